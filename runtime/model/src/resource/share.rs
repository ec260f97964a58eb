//! Shares: parts of one unit.
//!
//! Owns the type for an amount strictly between 0 and 1. Must not: know ids or pools.
//!
//! Invariant: 0 < share < 1, so "a fraction of one unit" needs no check where a share is taken.

use std::fmt;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::amount::Amount;

/// A part of one unit: more than 0 and less than 1, in steps of 1/10,000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Amount", into = "Amount")]
pub struct Share(NonZeroU16);

/// Steps in one unit, in the width that shares are kept in.
const ONE: u16 = Amount::STEPS_PER_UNIT as u16;

impl Share {
    /// The share of this amount; `None` if it is 0, or 1 or more.
    pub fn new(amount: Amount) -> Option<Self> {
        let steps = u16::try_from(amount.steps())
            .ok()
            .filter(|steps| *steps < ONE)?;
        NonZeroU16::new(steps).map(Self)
    }

    /// The same as an amount.
    pub fn amount(self) -> Amount {
        Amount::from_steps(self.0.get().into())
    }

    /// What one unit leaves when this share is taken from it.
    pub(super) fn rest_of_one(self) -> Self {
        let rest = NonZeroU16::new(ONE - self.0.get());
        Self(rest.expect("a share is below 1"))
    }

    /// What this share leaves when `other` is taken from it: `None` if nothing. `other` must not
    /// be larger.
    pub(super) fn minus(self, other: Self) -> Option<Self> {
        assert!(other <= self, "took {other} out of a share of {self}");
        NonZeroU16::new(self.0.get() - other.0.get()).map(Self)
    }
}

impl From<Share> for Amount {
    fn from(share: Share) -> Self {
        share.amount()
    }
}

impl TryFrom<Amount> for Share {
    type Error = NotAShare;

    fn try_from(amount: Amount) -> Result<Self, NotAShare> {
        Self::new(amount).ok_or(NotAShare(amount))
    }
}

/// The error of decoding a share from an amount that is none.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not a share of one unit: it must lie between 0 and 1")]
pub struct NotAShare(Amount);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.amount(), f)
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_between_0_and_1() {
        for (steps, is_share) in [(0, false), (1, true), (9_999, true), (10_000, false)] {
            assert_eq!(Share::new(Amount::from_steps(steps)).is_some(), is_share);
        }
        assert_eq!(Share::new(Amount::MAX), None);
        let half = Share::new(Amount::from_steps(5_000)).unwrap();
        assert_eq!(half.rest_of_one(), half);
        assert_eq!(half.minus(half), None);
        assert!(serde_json::from_str::<Share>("1").is_err());
        assert_eq!(serde_json::to_string(&half).unwrap(), "\"0.5\"");
    }
}
