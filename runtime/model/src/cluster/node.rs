//! What is known of one node.
//!
//! Owns the node's own part of the view and the judgements of it: whether it fits, how full it is,
//! how long one would wait. Must not: know other nodes, or be changed but by the view.

use std::collections::BTreeMap;

use super::labels::Labels;
use super::name::NodeName;
use super::table::WHOLE;
use super::wait::{self, Mean, QueueReport};
use crate::id::{Digest, Incarnation, NodeId};
use crate::resource::{
    Allocation, Amount, Fit, Load, NodeReport, NodeResources, PoolReport, Request, ResourceName,
    ResourceSet,
};

/// What is known of a node's resources.
#[derive(Debug, PartialEq, Eq)]
pub enum Supply {
    /// The truth: whoever owns this view hands these resources out.
    Own(NodeResources),
    /// What another node told last, with the claims made since.
    Peer(NodeReport),
}

/// Which judgement of a node counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// What can be acquired right now, load or not: to start a task. Own nodes only.
    Acquirable,
    /// What is truly free, the load of placed tasks set aside: to place a task. All nodes.
    TrulyFree,
}

/// A node that joins.
#[derive(Debug)]
pub struct NewNode {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: NodeName,
    /// Which incarnation of it this is.
    pub incarnation: Incarnation,
    /// Its labels.
    pub labels: Labels,
    /// Its resources.
    pub supply: Supply,
}

/// A node that is there.
#[derive(Debug)]
pub struct Node {
    pub(super) id: NodeId,
    pub(super) name: NodeName,
    pub(super) incarnation: Incarnation,
    pub(super) labels: Labels,
    pub(super) supply: Supply,
    pub(super) total: ResourceSet,
    /// What it reports, and what was placed there since.
    pub(super) queue: QueueReport,
    /// What was added to the queue since the last report, of tasks that are still there.
    pub(super) placed: QueueReport,
    pub(super) modules: BTreeMap<Digest, u32>,
    pub(super) bandwidth: Mean,
    pub(super) kept: Option<Request>,
    pub(super) kept_cpu: Option<Request>,
    pub(super) is_draining: bool,
    pub(super) is_unreachable: bool,
}

impl Node {
    /// Its id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Which incarnation of it this is.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Its labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Its resources.
    pub fn supply(&self) -> &Supply {
        &self.supply
    }

    /// Whether its resources are handed out here.
    pub fn is_own(&self) -> bool {
        matches!(self.supply, Supply::Own(_))
    }

    /// What it has in all.
    pub fn total(&self) -> &ResourceSet {
        &self.total
    }

    /// What waits there, as far as is known: what was placed there since its last report counts.
    pub fn queue(&self) -> QueueReport {
        self.queue
    }

    /// The modules that run there, and how many tasks run each.
    pub fn modules(&self) -> &BTreeMap<Digest, u32> {
        &self.modules
    }

    /// The bytes per second at which it sends objects, on average.
    pub fn bandwidth(&self) -> u64 {
        self.bandwidth.get()
    }

    /// What is kept there for a request that has waited too long.
    pub fn kept(&self) -> Option<&Request> {
        self.kept.as_ref()
    }

    /// What is kept there besides for blocked tasks that are to go on: CPU.
    pub fn kept_cpu(&self) -> Option<&Request> {
        self.kept_cpu.as_ref()
    }

    /// Whether nobody here can speak with it now.
    pub fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }

    /// Whether it is offered no new work, for whatever reason.
    pub fn is_closed(&self) -> bool {
        self.is_draining || self.is_unreachable
    }

    /// Whether it gets no new work.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// How long a request would wait behind the queue there, in microseconds.
    pub fn queue_wait_us(&self, request: &Request) -> u64 {
        if self.queue.run_time_us == 0 {
            return 0;
        }
        let slots = wait::slots(request, |name| self.pool(name));
        wait::queue_wait_us(self.queue, slots)
    }

    /// Whether it can take such a request now, and if not, why: beside what is kept there, unless
    /// it is kept for just such a request. One for as much CPU as is kept for blocked tasks does not pass those because it
    /// is small.
    pub fn fit(&self, request: &Request, basis: Basis) -> Fit {
        let kept = self.kept.as_ref().filter(|kept| *kept != request);
        let cpu = |request: &Request| request.amounts().get(&ResourceName::CPU);
        let kept_cpu = self.kept_cpu.as_ref();
        let kept_cpu = kept_cpu.filter(|kept| cpu(request) < cpu(kept));
        self.fit_beside([kept, kept_cpu], request, basis)
    }

    /// The same as if nothing were kept.
    pub(super) fn fit_without_kept(&self, request: &Request, basis: Basis) -> Fit {
        self.fit_beside([None, None], request, basis)
    }

    fn fit_beside(&self, kept: [Option<&Request>; 2], request: &Request, basis: Basis) -> Fit {
        match (&self.supply, basis, kept) {
            (Supply::Own(own), Basis::Acquirable, [None, None]) => match own.can_acquire(request) {
                true => Fit::Available,
                false => own.pools().judge(request),
            },
            (Supply::Own(own), Basis::TrulyFree, [None, None]) => own.judge(request),
            (Supply::Peer(report), _, [None, None]) => report.judge(request),
            (supply, basis, kept) => {
                let load = match (supply, basis) {
                    (Supply::Own(_), Basis::Acquirable) => Load::default(),
                    (Supply::Own(own), Basis::TrulyFree) => own.load().clone(),
                    (Supply::Peer(report), _) => report.load().clone(),
                };
                let kept = kept.into_iter().flatten();
                load.judge_beside(kept, |name| self.pool(name), request)
            }
        }
    }

    /// Whether it can take such a request now: [`Node::fit`] without the reason.
    pub fn is_available(&self, request: &Request, basis: Basis) -> bool {
        match (&self.supply, basis) {
            (Supply::Own(own), Basis::Acquirable) if self.keeps_nothing() => {
                own.can_acquire(request)
            }
            _ => self.fit(request, basis) == Fit::Available,
        }
    }

    fn keeps_nothing(&self) -> bool {
        self.kept.is_none() && self.kept_cpu.is_none()
    }

    /// Whether an own node, asked for as much as this after it is given back, gives out just this.
    pub(crate) fn passes_on(&self, allocation: &Allocation) -> bool {
        match &self.supply {
            Supply::Own(own) => {
                self.keeps_nothing() && !self.is_draining && own.pools().passes_on(allocation)
            }
            Supply::Peer(_) => false,
        }
    }

    /// Whether it could serve such a request if nothing were taken.
    pub fn is_feasible(&self, request: &Request) -> bool {
        let is_feasible =
            |(name, amount)| self.pool(name).is_some_and(|pool| pool.is_feasible(amount));
        request.amounts().iter().all(is_feasible)
    }

    fn pool(&self, name: &ResourceName) -> Option<PoolReport> {
        match &self.supply {
            Supply::Own(own) => own.pools().report(name),
            Supply::Peer(report) => report.pools().get(name).copied(),
        }
    }

    /// Its critical utilisation in units of 2^-61, or 0 below the threshold: the largest used ÷
    /// total over its resources. Equal quotients are equal numbers.
    pub(super) fn score(&self, basis: Basis, threshold: u16) -> u64 {
        let mut most = (0, 1);
        let mut consider = |total: Amount, available: Amount, load: Amount| {
            let (total, free) = (total.steps(), available.saturating_sub(load).steps());
            let used = total.saturating_sub(free);
            if u128::from(used) * u128::from(most.1) > u128::from(most.0) * u128::from(total) {
                most = (used, total);
            }
        };
        match &self.supply {
            Supply::Own(own) => {
                let counts_load = basis == Basis::TrulyFree && !own.load().is_empty();
                for (name, pool) in own.pools().iter() {
                    let load = match counts_load {
                        true => own.load().amount(name),
                        false => Amount::ZERO,
                    };
                    consider(pool.capacity(), pool.available(), load);
                }
            }
            Supply::Peer(report) => {
                for (name, pool) in report.pools() {
                    consider(
                        pool.capacity(),
                        pool.available(),
                        report.load().amount(name),
                    );
                }
            }
        }
        let (used, total) = most;
        let threshold = u128::from(total) * u128::from(threshold);
        if u128::from(used) * u128::from(WHOLE) < threshold {
            return 0;
        }
        ((u128::from(used) << 61) / u128::from(total)) as u64
    }
}

pub(super) fn have_same_totals(one: &NodeReport, other: &NodeReport) -> bool {
    // The kind counts too: it decides what can be asked for.
    one.pools().len() == other.pools().len()
        && std::iter::zip(one.pools(), other.pools()).all(|((name, pool), (other, theirs))| {
            name == other && pool.kind() == theirs.kind() && pool.capacity() == theirs.capacity()
        })
}
