//! What parked classes wait for, so that a release wakes only those whom it can help.
//!
//! A class that fits nowhere is parked under one resource that is short for it, with the amount it
//! needs. When something is given back on a node, the classes that need no more of a resource than
//! the node can now serve are looked at again. That condition is necessary for a fit, not
//! sufficient: a woken class that still does not fit is parked again, maybe under another resource.

use std::collections::{BTreeMap, BTreeSet};

use super::class::{ClassIx, Watch};
use crate::cluster::NodeIx;
use crate::resource::{Amount, PoolReport, ResourceIdSet, ResourceName};

/// Parked classes by what they wait for.
///
/// Up to [`FEW`] watches stand in one list that is looked through, which is faster than any tree;
/// more go into ordered ones.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    few: Vec<(ClassIx, Watch)>,
    reach: BTreeMap<(Option<NodeIx>, ResourceName), BTreeSet<(Amount, ClassIx)>>,
    release: BTreeMap<Option<NodeIx>, BTreeSet<ClassIx>>,
}

/// See [`Watches`].
const FEW: usize = 24;

impl Watches {
    pub(crate) fn add(&mut self, class: ClassIx, watch: &Watch) {
        if self.few.len() < FEW {
            return self.few.push((class, watch.clone()));
        }
        match watch {
            Watch::Reach { node, name, amount } => {
                let key = (*node, name.clone());
                self.reach.entry(key).or_default().insert((*amount, class));
            }
            Watch::Release { node } => {
                self.release.entry(*node).or_default().insert(class);
            }
        }
    }

    pub(crate) fn remove(&mut self, class: ClassIx, watch: &Watch) {
        let mut few = self.few.iter();
        if let Some(at) = few.position(|(of, it)| *of == class && it == watch) {
            self.few.swap_remove(at);
            return;
        }
        match watch {
            Watch::Reach { node, name, amount } => {
                let key = (*node, name.clone());
                if let Some(classes) = self.reach.get_mut(&key) {
                    classes.remove(&(*amount, class));
                }
            }
            Watch::Release { node } => {
                if let Some(classes) = self.release.get_mut(node) {
                    classes.remove(&class);
                }
            }
        }
    }

    /// The classes that what a node can serve now may help, into `woken`, maybe more than once.
    pub(crate) fn wake(&self, node: NodeIx, pools: &ResourceIdSet, woken: &mut Vec<ClassIx>) {
        let is_meant = |scope: &Option<NodeIx>| scope.is_none_or(|scope| scope == node);
        for (class, watch) in &self.few {
            let may_help = match watch {
                Watch::Release { node } => is_meant(node),
                Watch::Reach { node, name, amount } => {
                    let report = is_meant(node).then(|| pools.report(name)).flatten();
                    report.is_some_and(|report| reach(report) >= *amount)
                }
            };
            if may_help {
                woken.push(*class);
            }
        }
        for scope in [None, Some(node)] {
            if let Some(classes) = self.release.get(&scope) {
                woken.extend(classes);
            }
        }
        let Some(((last, _), _)) = self.reach.last_key_value() else {
            return;
        };
        let has_bound = last.is_some();
        for (name, pool) in pools.iter() {
            let until = (reach(pool.report()), ClassIx(u32::MAX));
            let mut key = (None, name.clone());
            if let Some(classes) = self.reach.get(&key) {
                woken.extend(classes.range(..=until).map(|(_, class)| class));
            }
            if has_bound {
                key.0 = Some(node);
                if let Some(classes) = self.reach.get(&key) {
                    woken.extend(classes.range(..=until).map(|(_, class)| class));
                }
            }
        }
    }
}

/// The most that a pool can serve in one request: a request for `amount` can be served exactly if
/// it is not above this. Where whole units are free, a share is too.
fn reach(report: PoolReport) -> Amount {
    match report {
        PoolReport::Sum { available, .. } => available,
        PoolReport::Indexed {
            whole_ids,
            largest_share,
            ..
        } => match largest_share {
            Some(share) if whole_ids == 0 => share.amount(),
            _ => Amount::units(whole_ids),
        },
    }
}
