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
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Of any node, by resource: a handful, so a list.
    any: Vec<(ResourceName, Waiting)>,
    bound: BTreeMap<(NodeIx, ResourceName), Waiting>,
    release: BTreeMap<Option<NodeIx>, BTreeSet<ClassIx>>,
}

type Waiting = BTreeSet<(Amount, ClassIx)>;

impl Watches {
    pub(crate) fn add(&mut self, class: ClassIx, watch: &Watch) {
        match watch {
            Watch::Reach { node, name, amount } => {
                self.waiting(*node, name).insert((*amount, class));
            }
            Watch::Release { node } => {
                self.release.entry(*node).or_default().insert(class);
            }
        }
    }

    pub(crate) fn remove(&mut self, class: ClassIx, watch: &Watch) {
        match watch {
            Watch::Reach { node, name, amount } => {
                self.waiting(*node, name).remove(&(*amount, class));
            }
            Watch::Release { node } => {
                if let Some(classes) = self.release.get_mut(node) {
                    classes.remove(&class);
                }
            }
        }
    }

    fn waiting(&mut self, node: Option<NodeIx>, name: &ResourceName) -> &mut Waiting {
        if let Some(node) = node {
            return self.bound.entry((node, name.clone())).or_default();
        }
        let at = self.any.iter().position(|(of, _)| of == name);
        let at = at.unwrap_or_else(|| {
            self.any.push((name.clone(), Waiting::new()));
            self.any.len() - 1
        });
        &mut self.any[at].1
    }

    /// The classes that what a node can serve now may help, into `found`; maybe one more than once.
    pub(crate) fn find(&self, node: NodeIx, pools: &ResourceIdSet, found: &mut Vec<ClassIx>) {
        for scope in [None, Some(node)] {
            if let Some(classes) = self.release.get(&scope) {
                found.extend(classes);
            }
        }
        for (name, pool) in pools.iter() {
            let of_any = self.any.iter().find(|(of, _)| of == name);
            let of_any = of_any.map(|(_, classes)| classes);
            let of_node = match self.bound.is_empty() {
                true => None,
                false => self.bound.get(&(node, name.clone())),
            };
            let waiting = [of_any, of_node].into_iter().flatten();
            let waiting = waiting.filter(|classes| !classes.is_empty());
            let mut until = None;
            for classes in waiting {
                let until = *until.get_or_insert_with(|| reach(pool.report()));
                let reached = classes.range(..=(until, ClassIx(u32::MAX)));
                found.extend(reached.map(|(_, class)| class));
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
