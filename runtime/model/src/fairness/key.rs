//! The order of service between tenants that are part of the same.
//!
//! Owns the ranking of one tenant's resources and the key that results. Must not: look at another
//! tenant.
//!
//! Invariant: comparing two keys, made under one policy and one cluster total, is the comparator of
//! Hadoop YARN's fair scheduler (`DominantResourceFairnessPolicy`), as a total order.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::resource::{Amount, ResourceName};
use crate::time::Instant;

use super::ratio::{Ratio, Scale};
use super::tenant::TenantName;
use super::usage::Usage;

/// Where a tenant stands: the smaller key is served first. Keys compare if they were made under
/// the same policy and the same total of the cluster.
///
/// 1. Whoever is below its guarantee of its dominant resource goes before all who are not.
/// 2. Both below: usage ÷ guarantee, without weights, resource by resource, each in its own order;
///    what has no guarantee counts 0 if unused, else more than anything.
/// 3. Neither below: share of the cluster ÷ weights, resource by resource, each in its own order.
/// 4. The earlier first submission, then the name.
///
/// A tenant's own order of resources is by share of the cluster ÷ weights, largest first; among
/// equal shares first what is below its guarantee (so whoever has nothing yet is below its
/// guarantee, whatever that is of), then by name. All resources of the cluster's total count and
/// no others, so every tenant has as many.
///
/// Under `fair` memory is the only resource. Under `fifo` all keys are equal: there is one line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShareKey {
    rank: Rank,
    /// Of rank `BelowGuarantee`: usage ÷ guarantee; of `Served`: share ÷ weights.
    ratios: SmallVec<[Ratio; 4]>,
    submitted: Instant,
    /// None under `fifo`.
    name: Option<TenantName>,
}

/// The order of the variants is the order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    BelowGuarantee,
    Served,
}

/// When a tenant that has not submitted anything is taken to do so.
const NEVER: Instant = Instant::from_micros(u64::MAX);

impl ShareKey {
    /// The key of everyone under `fifo`, where no resource counts.
    pub(super) fn common() -> Self {
        Self {
            rank: Rank::Served,
            ratios: SmallVec::new(),
            submitted: Instant::ZERO,
            name: None,
        }
    }

    /// The key of a tenant, or of its own work, that uses nothing.
    pub(super) fn of(name: &TenantName, submitted: Option<Instant>) -> Self {
        Self {
            rank: Rank::Served,
            ratios: SmallVec::new(),
            submitted: submitted.unwrap_or(NEVER),
            name: Some(name.clone()),
        }
    }

    /// Replaces the shares by those of the tenant's resources, in its own order.
    pub(super) fn update(&mut self, places: &[Place]) {
        self.ratios.clear();
        if places.first().is_some_and(Place::is_below) {
            self.rank = Rank::BelowGuarantee;
            let of_guarantee = |place: &Place| Ratio::of(place.used, place.minimum);
            self.ratios.extend(places.iter().map(of_guarantee));
        } else {
            self.rank = Rank::Served;
            self.ratios.extend(places.iter().map(|place| place.share));
        }
    }

    /// The order by guarantees and shares alone: tenants may be equal in it.
    pub fn cmp_shares(&self, other: &Self) -> Ordering {
        (self.rank, &self.ratios).cmp(&(other.rank, &other.ratios))
    }

    /// Whether the tenant is below its guarantee of its dominant resource.
    pub fn is_below_guarantee(&self) -> bool {
        self.rank == Rank::BelowGuarantee
    }

    pub(super) fn ratios(&self) -> &[Ratio] {
        &self.ratios
    }

    pub(super) fn submitted(&self) -> Instant {
        self.submitted
    }
}

/// A resource of the cluster.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: ResourceName,
    /// Not zero.
    pub(super) total: Amount,
    /// Whether the policy ranks tenants by it.
    pub(super) counts: bool,
}

/// What the settings of a tenant say about a column; by default, weight 1 and no guarantee.
#[derive(Debug, Clone)]
pub(super) struct Term {
    pub(super) scale: Scale,
    /// The guarantee; zero for none.
    pub(super) minimum: Amount,
}

impl Default for Term {
    fn default() -> Self {
        Self {
            scale: Scale::ONE,
            minimum: Amount::ZERO,
        }
    }
}

/// A resource in a tenant's own order.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) share: Ratio,
    pub(super) column: usize,
    pub(super) used: Amount,
    pub(super) minimum: Amount,
}

impl Place {
    pub(super) fn is_below(&self) -> bool {
        self.used < self.minimum
    }

    /// Whether it stands before `other`, whose column is the earlier one.
    fn is_before(&self, other: &Self) -> bool {
        self.share > other.share
            || self.share == other.share && self.is_below() && !other.is_below()
    }
}

/// A tenant's resources in its own order.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    /// Those that the policy ranks by.
    pub(super) places: SmallVec<[Place; 4]>,
    /// The largest share of the cluster, over all of its resources, without weights.
    pub(super) dominant: Ratio,
}

impl Ranking {
    /// `terms` are those of `columns`, which are in the order of names.
    pub(super) fn new(columns: &[Column], terms: &[Term], usage: &Usage) -> Self {
        let mut ranking = Self::default();
        let mut entries = usage.iter().peekable();
        for (at, (column, term)) in columns.iter().zip(terms).enumerate() {
            while entries.next_if(|(name, _)| **name < column.name).is_some() {}
            let used = entries
                .next_if(|(name, _)| **name == column.name)
                .map_or(Amount::ZERO, |(_, used)| used);
            let (share, plain) = Ratio::weighted(used, column.total, term.scale);
            ranking.dominant = ranking.dominant.max(plain);
            if column.counts {
                let place = Place {
                    share,
                    column: at,
                    used,
                    minimum: term.minimum,
                };
                ranking.insert(place);
            }
        }
        ranking
    }

    fn insert(&mut self, place: Place) {
        let before = self
            .places
            .iter()
            .rposition(|other| !place.is_before(other));
        self.places.insert(before.map_or(0, |at| at + 1), place);
    }
}
