//! Fitting: whether a request can be served, judged on a report.
//!
//! Owns what a pool tells others and the judgement on it, with the reason in words. Must not: take
//! anything. A node judges itself by the same code as others judge it.
//!
//! Invariant: on a fresh report without load, `Available` and a successful acquire are the same.

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::load::Load;
use super::name::ResourceName;
use super::request::{IndexedDemand, PoolKind, Request, RequestError};
use super::share::Share;

/// What a node tells others about one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolReport {
    /// Units with ids.
    Indexed {
        /// Units in all.
        capacity: u32,
        /// What is free in all; for display and scores, as it does not say what fits.
        available: Amount,
        /// How many ids are free as a whole.
        whole_ids: u32,
        /// The largest share that can be had without splitting a whole id.
        largest_share: Option<Share>,
    },
    /// A quantity without ids.
    Sum {
        /// What there is in all.
        capacity: Amount,
        /// What is free.
        available: Amount,
    },
}

/// Whether a request can be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// Yes, now.
    Available,
    /// Yes, but not now: for this reason, the first in the order of names.
    Unavailable(Shortage),
    /// Never, as the node is: for this reason, the first in the order of names.
    Infeasible(Infeasibility),
}

/// What is lacking now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Shortage {
    /// Not enough whole units.
    #[error("{name}: needs {needs}, node has {free} whole units free")]
    Units {
        /// The resource.
        name: ResourceName,
        /// Units asked for.
        needs: Amount,
        /// Whole units free.
        free: u32,
    },
    /// No single unit has enough left.
    #[error("{name}: needs {needs} of one unit, node has at most {free} of one free")]
    Share {
        /// The resource.
        name: ResourceName,
        /// The share asked for.
        needs: Amount,
        /// The largest share free.
        free: Amount,
    },
    /// Not enough of a quantity without ids.
    #[error("{name}: needs {}, node has {} free", needs.display_for(name), free.display_for(name))]
    Sum {
        /// The resource.
        name: ResourceName,
        /// What is asked for.
        needs: Amount,
        /// What is free.
        free: Amount,
    },
}

/// Why a node can never serve a request, as the node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Infeasibility {
    /// The node does not have the resource.
    #[error("{name}: needs {}, node has none", needs.display_for(name))]
    Missing {
        /// The resource.
        name: ResourceName,
        /// What is asked for.
        needs: Amount,
    },
    /// The node has too little of it.
    #[error(
        "{name}: needs {}, node has {} in total", needs.display_for(name), total.display_for(name)
    )]
    Total {
        /// The resource.
        name: ResourceName,
        /// What is asked for.
        needs: Amount,
        /// What the node has in all.
        total: Amount,
    },
    /// The resource cannot be asked for like that on this node.
    #[error(transparent)]
    Request(RequestError),
}

/// Why nothing was acquired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcquireError {
    /// Not now; try again after a release.
    #[error(transparent)]
    Unavailable(Shortage),
    /// Not before the node's resources change.
    #[error(transparent)]
    Infeasible(Infeasibility),
}

impl PoolReport {
    /// The kind of the pool.
    pub fn kind(&self) -> PoolKind {
        match self {
            Self::Indexed { .. } => PoolKind::Indexed,
            Self::Sum { .. } => PoolKind::Sum,
        }
    }

    /// The same without shares, if not yet so many ids are whole.
    pub(super) fn gathering(mut self, units: u64) -> Self {
        if let Self::Indexed {
            whole_ids,
            largest_share,
            ..
        } = &mut self
            && u64::from(*whole_ids) < units
        {
            *largest_share = None;
        }
        self
    }

    /// What there is in all.
    pub fn capacity(&self) -> Amount {
        match self {
            Self::Indexed { capacity, .. } => Amount::units(*capacity),
            Self::Sum { capacity, .. } => *capacity,
        }
    }

    /// What is free in all.
    pub fn available(&self) -> Amount {
        match self {
            Self::Indexed { available, .. } | Self::Sum { available, .. } => *available,
        }
    }

    /// Whether this much, more than zero, could be served if nothing were taken.
    pub fn is_feasible(&self, amount: Amount) -> bool {
        let is_possible = match self {
            Self::Indexed { .. } => IndexedDemand::new(amount).is_some(),
            Self::Sum { .. } => true,
        };
        is_possible && amount <= self.capacity()
    }

    /// Whether this much, more than zero, can be served now.
    pub fn is_available(&self, amount: Amount) -> bool {
        match self {
            Self::Indexed {
                whole_ids,
                largest_share,
                ..
            } => match IndexedDemand::new(amount) {
                Some(IndexedDemand::Units(units)) => units.get() <= u64::from(*whole_ids),
                Some(IndexedDemand::Share(share)) => {
                    *whole_ids > 0 || largest_share.is_some_and(|largest| share <= largest)
                }
                None => false,
            },
            Self::Sum { available, .. } => amount <= *available,
        }
    }

    fn judge(&self, name: &ResourceName, needs: Amount) -> Fit {
        if let Err(error) = RequestError::check(name, needs, self.kind()) {
            return Fit::Infeasible(Infeasibility::Request(error));
        }
        if !self.is_feasible(needs) {
            let total = self.capacity();
            return Fit::Infeasible(Infeasibility::Total {
                name: name.clone(),
                needs,
                total,
            });
        }
        if self.is_available(needs) {
            return Fit::Available;
        }
        let name = name.clone();
        Fit::Unavailable(match *self {
            Self::Indexed { whole_ids, .. } if needs.is_whole() => Shortage::Units {
                name,
                needs,
                free: whole_ids,
            },
            Self::Indexed { largest_share, .. } => {
                let free = largest_share.map_or(Amount::ZERO, Share::amount);
                Shortage::Share { name, needs, free }
            }
            Self::Sum { available, .. } => Shortage::Sum {
                name,
                needs,
                free: available,
            },
        })
    }
}

/// Judges a request on the reports of a node's pools, less the load. That it can never be served
/// goes before that it cannot be served now.
pub(super) fn judge(
    request: &Request,
    report_of: impl Fn(&ResourceName) -> Option<PoolReport>,
    load: Option<&Load>,
) -> Fit {
    let mut fit = Fit::Available;
    for (name, needs) in request.amounts().iter() {
        let Some(report) = report_of(name) else {
            return Fit::Infeasible(Infeasibility::Missing {
                name: name.clone(),
                needs,
            });
        };
        let claims = load.and_then(|load| load.of(name));
        let truly_free = claims.map_or(report, |claims| claims.leave_of(report));
        match truly_free.judge(name, needs) {
            Fit::Available => {}
            Fit::Infeasible(why) => return Fit::Infeasible(why),
            Fit::Unavailable(why) if fit == Fit::Available => fit = Fit::Unavailable(why),
            Fit::Unavailable(_) => {}
        }
    }
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(report: PoolReport, name: &ResourceName, needs: &str) -> String {
        match report.judge(name, Amount::parse_for(name, needs).unwrap()) {
            Fit::Available => "available".into(),
            Fit::Unavailable(why) => format!("unavailable: {why}"),
            Fit::Infeasible(why) => format!("infeasible: {why}"),
        }
    }

    #[test]
    fn reasons_in_words() {
        let gpus = PoolReport::Indexed {
            capacity: 2,
            available: "0.8".parse().unwrap(),
            whole_ids: 0,
            largest_share: Share::new("0.4".parse().unwrap()),
        };
        let gpu = |needs| judged(gpus, &ResourceName::GPU, needs);
        assert_eq!(gpu("0.4"), "available");
        assert_eq!(
            gpu("0.75"),
            "unavailable: GPU: needs 0.75 of one unit, node has at most 0.4 of one free"
        );
        assert_eq!(
            gpu("2"),
            "unavailable: GPU: needs 2, node has 0 whole units free"
        );
        assert_eq!(gpu("3"), "infeasible: GPU: needs 3, node has 2 in total");
        assert!(gpu("1.5").starts_with("infeasible: GPU: 1.5 is not possible"));
        let memory = PoolReport::Sum {
            capacity: Amount::units(1 << 31),
            available: Amount::ONE,
        };
        assert_eq!(
            judged(memory, &ResourceName::MEMORY, "1GiB"),
            "unavailable: memory: needs 1GiB, node has 1 free"
        );
    }
}
