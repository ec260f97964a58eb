//! What a change of a view means to others, and so how soon they should hear of it.
//!
//! Owns the judgement. Must not: know what was published when.

use std::time::Duration;

use crate::resource::{Amount, NodeReport, PoolReport, ResourceSet};
use crate::scheduler::{NodeInfo, PeerView};

/// What has changed of a view, from the least to the most important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// Nothing.
    None,
    /// A little: no amount by more than 1/16 of what the node has.
    Slight,
    /// More than that.
    Notable,
    /// Something that decides whether tasks go there: a resource has run out or is there again, the queue
    /// has become empty or is not any more.
    Turning,
    /// What can go there at all: the resources in all, name or labels.
    Structural,
}

/// An amount has changed notably if it has by more than this part of what the node has of it.
const NOTABLE_PART: u64 = 16;

impl Change {
    /// What has changed from what was published.
    pub fn between(old: (&NodeInfo, &PeerView), new: (&NodeInfo, &PeerView)) -> Self {
        // All fields are named, so that a new one is thought of here.
        let PeerView {
            version: _,
            resources,
            queue,
            usage,
        } = new.1;
        let old_view = old.1;
        if old.0 != new.0 {
            return Self::Structural;
        }
        let mut change = Self::of_resources(&old_view.resources, resources);
        let (had, has) = (old_view.queue, *queue);
        if had != has {
            let is_notable = has.tasks.abs_diff(had.tasks) > had.tasks / 8
                || has.run_time_us.abs_diff(had.run_time_us) > had.run_time_us / 8;
            change = change.max(match (had.tasks == 0) != (has.tasks == 0) {
                true => Self::Turning,
                false if is_notable => Self::Notable,
                false => Self::Slight,
            });
        }
        if change < Self::Notable && old_view.usage != *usage {
            let total = resources.total();
            let none = ResourceSet::new();
            let tenants = old_view.usage.keys().chain(usage.keys());
            let by_tenant = tenants.map(|tenant| {
                let had = old_view.usage.get(tenant).unwrap_or(&none);
                let has = usage.get(tenant).unwrap_or(&none);
                let names = had.iter().chain(has.iter()).map(|(name, _)| name);
                let amounts = names
                    .map(|name| Self::of_amount(had.get(name), has.get(name), total.get(name)));
                amounts.max().unwrap_or(Self::Slight)
            });
            change = change
                .max(by_tenant.max().unwrap_or(Self::Slight))
                .max(Self::Slight);
        }
        change
    }

    fn of_resources(old: &NodeReport, new: &NodeReport) -> Self {
        if old == new {
            return Self::None;
        }
        let is_same = |(had, has): (&PoolReport, &PoolReport)| {
            had.kind() == has.kind() && had.capacity() == has.capacity()
        };
        let is_same_total = old.pools().keys().eq(new.pools().keys())
            && std::iter::zip(old.pools().values(), new.pools().values()).all(is_same);
        if !is_same_total {
            return Self::Structural;
        }
        let by_pool = new.pools().iter().map(|(name, pool)| {
            let free = |report: &NodeReport| {
                let pool = report.free(name);
                pool.map_or(Amount::ZERO, |pool| pool.available())
            };
            let (had, has) = (free(old), free(new));
            match had.is_zero() != has.is_zero() {
                true => Self::Turning,
                false => Self::of_amount(had, has, pool.capacity()),
            }
        });
        by_pool.max().unwrap_or(Self::Slight).max(Self::Slight)
    }

    fn of_amount(had: Amount, has: Amount, total: Amount) -> Self {
        match had.steps().abs_diff(has.steps()) {
            0 => Self::None,
            steps if steps > total.steps() / NOTABLE_PART => Self::Notable,
            _ => Self::Slight,
        }
    }

    /// How long after the last view the next one is published, with so many peers.
    ///
    /// Whatever is published reaches everybody, so what a node hears grows with the cluster unless each says
    /// less: 500 views a second are heard at most, four times as many while things turn.
    pub fn interval(self, peers: usize) -> Duration {
        const SOONEST: u64 = 20;
        let peers = peers as u64;
        let millis = match self {
            Self::Structural => SOONEST,
            Self::Turning => (peers / 2).clamp(SOONEST, 500),
            Self::Notable => (2 * peers).clamp(SOONEST, 2_000),
            Self::None | Self::Slight => (10 * peers).clamp(100, 2_000),
        };
        Duration::from_millis(millis)
    }
}
