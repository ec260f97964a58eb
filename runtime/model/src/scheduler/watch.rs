//! What parked classes wait for, so that a release wakes only those whom it can help.
//!
//! A class that fits nowhere is parked under one resource that is short for it, with the amount it
//! needs. When something is given back on a node, the classes that need no more of a resource than
//! the node can now serve are looked at again. That condition is necessary for a fit, not
//! sufficient: a woken class that still does not fit is parked again, maybe under another resource.

use std::collections::{BTreeMap, BTreeSet};

use super::class::{ClassIx, Watch};
use crate::cluster::NodeIx;
use crate::resource::{Amount, PoolReport, ResourceName};

/// Parked classes by what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    reach: BTreeMap<(Option<NodeIx>, ResourceName), BTreeSet<(Amount, ClassIx)>>,
    release: BTreeMap<Option<NodeIx>, BTreeSet<ClassIx>>,
}

impl Watches {
    pub(crate) fn add(&mut self, class: ClassIx, watch: &Watch) {
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

    /// The classes that what a node can serve now may help, into `woken`.
    pub(crate) fn wake<'a>(
        &self,
        node: NodeIx,
        pools: impl Iterator<Item = (&'a ResourceName, PoolReport)>,
        woken: &mut Vec<ClassIx>,
    ) {
        for scope in [None, Some(node)] {
            if let Some(classes) = self.release.get(&scope) {
                woken.extend(classes);
            }
        }
        let has_bound = self
            .reach
            .last_key_value()
            .is_some_and(|((scope, _), _)| scope.is_some());
        for (name, report) in pools {
            let reach = reach(report);
            let until = (reach, ClassIx(u32::MAX));
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
