//! Requests: resource sets that can be asked for.
//!
//! Owns the rule of what may be asked of which kind of pool. Must not: know what a node has; a
//! request is the same on every node.
//!
//! Invariant: what a [`Request`] asks of the standard resources is possible for their kinds. A
//! user's own resource may be of either kind on a node, so that part is judged there.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::name::ResourceName;
use super::set::ResourceSet;
use super::share::Share;

/// The kind of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PoolKind {
    /// Units with ids, given out whole or as shares of one unit.
    Indexed,
    /// A plain quantity without ids.
    Sum,
}

impl PoolKind {
    /// The kind that a standard resource always has; `None` for a user's own, where a node's
    /// declaration decides.
    pub fn fixed(name: &ResourceName) -> Option<Self> {
        match name.is_user() {
            true => None,
            false if name.is_memory() => Some(Self::Sum),
            false => Some(Self::Indexed),
        }
    }
}

/// What is asked of an indexed pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexedDemand {
    /// This many units, exclusively.
    Units(NonZeroU64),
    /// A part of one unit.
    Share(Share),
}

impl IndexedDemand {
    /// The demand for this amount: a whole number of units from 1, or a share below 1. `None` for
    /// zero and for anything else, such as 1.5.
    pub fn new(amount: Amount) -> Option<Self> {
        if amount.is_whole() {
            NonZeroU64::new(amount.whole_units()).map(Self::Units)
        } else {
            Share::new(amount).map(Self::Share)
        }
    }
}

/// A resource set that can be asked for: what a task or actor needs while it runs.
///
/// Of `CPU` and `GPU` it asks for whole units or for a share below 1 of one unit. Equal requests
/// are the same *resource shape*.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "ResourceSet", into = "ResourceSet")]
pub struct Request(ResourceSet);

impl Request {
    /// The request for these amounts, if the standard resources can be asked for like that.
    pub fn new(amounts: ResourceSet) -> Result<Self, RequestError> {
        for (name, amount) in amounts.iter() {
            if let Some(kind) = PoolKind::fixed(name) {
                RequestError::check(name, amount, kind)?;
            }
        }
        Ok(Self(amounts))
    }

    /// What is asked for.
    pub fn amounts(&self) -> &ResourceSet {
        &self.0
    }

    /// The CPU part alone: what a blocked task gives back and later needs again.
    #[must_use]
    pub fn cpu_part(&self) -> Self {
        Self(self.0.cpu_part())
    }
}

impl TryFrom<ResourceSet> for Request {
    type Error = RequestError;

    fn try_from(amounts: ResourceSet) -> Result<Self, RequestError> {
        Self::new(amounts)
    }
}

impl From<Request> for ResourceSet {
    fn from(request: Request) -> Self {
        request.0
    }
}

/// Why amounts cannot be asked for, on any node or of a pool of this kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RequestError {
    /// More than a unit, but not whole units, of a resource with ids.
    #[error(
        "{name}: {amount} is not possible: a resource with ids is asked for in whole units \
         (1, 2, …) or as a share below 1 of one unit; ask for {} or {}, or for {}",
        amount.whole_units(),
        amount.whole_units() + 1,
        amount.fraction()
    )]
    NotUnitsNorShare {
        /// The resource.
        name: ResourceName,
        /// What was asked for.
        amount: Amount,
    },
}

impl RequestError {
    /// Checks one amount against the kind of its pool.
    pub(super) fn check(name: &ResourceName, amount: Amount, kind: PoolKind) -> Result<(), Self> {
        match kind {
            PoolKind::Indexed if !amount.is_zero() && IndexedDemand::new(amount).is_none() => {
                Err(Self::NotUnitsNorShare {
                    name: name.clone(),
                    amount,
                })
            }
            PoolKind::Indexed | PoolKind::Sum => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: &str) -> Result<Request, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn indexed_resources_take_units_or_a_share() {
        for json in [
            r#"{"CPU": 3}"#,
            r#"{"GPU": "0.9999"}"#,
            r#"{"CPU": 0}"#,
            "{}",
        ] {
            assert!(request(json).is_ok(), "{json}");
        }
        for amount in ["1.5", "2.0001", "1844674407370955.1615"] {
            assert!(request(&format!(r#"{{"GPU": "{amount}"}}"#)).is_err());
        }
        let error = request(r#"{"CPU": "1.5"}"#).unwrap_err();
        let expected = "CPU: 1.5 is not possible: a resource with ids is asked for in whole units \
            (1, 2, …) or as a share below 1 of one unit; ask for 1 or 2, or for 0.5";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn sums_take_any_amount() {
        assert!(request(r#"{"memory": "1.5", "bandwidth": "1.5"}"#).is_ok());
    }

    #[test]
    fn the_cpu_part() {
        let whole = request(r#"{"CPU": "0.5", "GPU": 1}"#).unwrap();
        assert_eq!(whole.cpu_part(), request(r#"{"CPU": "0.5"}"#).unwrap());
    }
}
