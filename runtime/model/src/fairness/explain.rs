//! Why one tenant is served before another.
//!
//! Owns the reason as data and as text. Must not: decide; it tells what the keys decided.

use std::fmt;

use crate::resource::{Amount, ResourceName};
use crate::time::Instant;

use super::key::{Column, Ranking, ShareKey, Term};
use super::ratio::{Ratio, Scale};
use super::tenant::TenantName;

/// One tenant is served before another. Printed as a reason to wait for the one behind:
/// `tenant B is ahead: share 0.66 < 0.71`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// The tenant that is served first.
    pub ahead: TenantName,
    /// The tenant that is served after it.
    pub behind: TenantName,
    /// The first criterion in which they differ.
    pub why: WhyAhead,
}

/// The criterion that puts one tenant before another, in the order of precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyAhead {
    /// Only the one ahead is below what it is guaranteed of its dominant resource.
    BelowGuarantee {
        /// Its dominant resource.
        resource: ResourceName,
        /// What it uses of it.
        used: Amount,
        /// What it is guaranteed of it.
        minimum: Amount,
    },
    /// Both are below, and the one ahead has a smaller part of what it is guaranteed.
    LessOfGuarantee {
        /// The resource of the one ahead at the first place where they differ.
        resource: ResourceName,
        /// What the one ahead uses of it ÷ what it is guaranteed.
        ratio: Ratio,
        /// The resource at that place of the one behind.
        other_resource: ResourceName,
        /// Its usage ÷ guarantee.
        other_ratio: Ratio,
    },
    /// Neither is below, and the one ahead has the smaller share of the cluster ÷ weights.
    Share {
        /// The dominant share of the one ahead; or, if they are equal, its next share, and so on.
        share: Ratio,
        /// The share at that place of the one behind.
        other_share: Ratio,
        /// The dominant share of both, if it is equal.
        equal_before: Option<Ratio>,
        /// Whether a weight other than 1 had a part in either.
        is_weighted: bool,
    },
    /// All is equal, and the one ahead was the first to submit anything.
    EarlierSubmission {
        /// When it first did.
        first: Instant,
    },
    /// All else is equal.
    Name,
}

/// One tenant as seen here.
pub(super) struct Side<'a> {
    pub(super) name: &'a TenantName,
    pub(super) key: &'a ShareKey,
    pub(super) ranking: Ranking,
    pub(super) terms: &'a [Term],
}

impl Ahead {
    /// The two sides in the order of their keys, which differ.
    pub(super) fn new(ahead: &Side<'_>, behind: &Side<'_>, columns: &[Column]) -> Self {
        assert!(ahead.key < behind.key, "the one ahead has the smaller key");
        Self {
            ahead: ahead.name.clone(),
            behind: behind.name.clone(),
            why: why(ahead, behind, columns),
        }
    }
}

fn why(ahead: &Side<'_>, behind: &Side<'_>, columns: &[Column]) -> WhyAhead {
    let place = |side: &Side<'_>, at: usize| side.ranking.places[at].clone();
    let resource = |side: &Side<'_>, at| columns[place(side, at).column].name.clone();
    let is_below = ahead.key.is_below_guarantee();
    if is_below != behind.key.is_below_guarantee() {
        let first = place(ahead, 0);
        return WhyAhead::BelowGuarantee {
            resource: resource(ahead, 0),
            used: first.used,
            minimum: first.minimum,
        };
    }
    let (ratios, others) = (ahead.key.ratios(), behind.key.ratios());
    let differs = ratios.iter().zip(others).position(|(a, b)| a != b);
    let is_weighted = |side: &Side<'_>, at| side.terms[place(side, at).column].scale != Scale::ONE;
    match differs {
        Some(at) if is_below => WhyAhead::LessOfGuarantee {
            resource: resource(ahead, at),
            ratio: ratios[at],
            other_resource: resource(behind, at),
            other_ratio: others[at],
        },
        Some(at) => WhyAhead::Share {
            share: ratios[at],
            other_share: others[at],
            equal_before: (at > 0).then(|| ratios[0]),
            is_weighted: is_weighted(ahead, at) || is_weighted(behind, at),
        },
        None if ahead.key.submitted() != behind.key.submitted() => WhyAhead::EarlierSubmission {
            first: ahead.key.submitted(),
        },
        None => WhyAhead::Name,
    }
}

/// Two ratios with as many digits, from two on, as tell them apart.
struct Pair(Ratio, Ratio);

impl Pair {
    fn texts(&self) -> (String, String) {
        let text = |ratio: Ratio, digits: usize| format!("{ratio:.digits$}");
        (2..18)
            .map(|digits| (text(self.0, digits), text(self.1, digits)))
            .find(|(a, b)| a != b)
            .unwrap_or_else(|| (text(self.0, 18), text(self.1, 18)))
    }
}

impl fmt::Display for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.ahead;
        match &self.why {
            WhyAhead::BelowGuarantee {
                resource,
                used,
                minimum,
            } => {
                let (used, minimum) = (used.display_for(resource), minimum.display_for(resource));
                write!(
                    f,
                    "tenant {name} is below its guaranteed {resource}: {used} of {minimum}"
                )
            }
            WhyAhead::LessOfGuarantee {
                resource,
                ratio,
                other_resource,
                other_ratio,
            } => {
                let (a, b) = Pair(*ratio, *other_ratio).texts();
                write!(
                    f,
                    "tenant {name} is ahead: both are below their guarantees, \
                     {resource} at {a} < {other_resource} at {b}"
                )
            }
            WhyAhead::Share {
                share,
                other_share,
                equal_before,
                is_weighted,
            } => {
                let (a, b) = Pair(*share, *other_share).texts();
                let what = if *is_weighted {
                    "share ÷ weight"
                } else {
                    "share"
                };
                match equal_before {
                    None => write!(f, "tenant {name} is ahead: {what} {a} < {b}"),
                    Some(equal) => write!(
                        f,
                        "tenant {name} is ahead: {what} {equal:.2} for both, then {a} < {b}"
                    ),
                }
            }
            WhyAhead::EarlierSubmission { .. } => write!(
                f,
                "tenant {name} is ahead: equal shares, and it was the first to submit"
            ),
            WhyAhead::Name => write!(
                f,
                "tenant {name} is ahead: equal shares and first submissions, \
                 and its name comes before {}",
                self.behind
            ),
        }
    }
}
