//! What tasks that have ended have left behind at other nodes.
//!
//! A task that is cancelled takes with it what it has started, and what that has left behind. A node whose task ran
//! at another one knows nothing of what it has started there: so where it has left something, its owner is told,
//! and says when that is to end. Owns who has left what where. Must not: know of what is left here by tasks of this
//! node; those are children of the task above (`Entry::children`).
//!
//! Invariants: whoever was told that something is left is told when it is over, as long as both nodes live; nothing
//! is kept of tasks that have ended, except of another node's that has left something which lives.

use std::collections::{BTreeMap, BTreeSet};

use wasmrun_model::id::{NodeId, TaskId};

use super::entry::Starter;
use super::{Ledger, Outbound, Outgoing, Todo};

/// A task of ours, and the node at which it has ended and left something behind.
type Place = (NodeId, TaskId);

/// See the [module](self).
#[derive(Default)]
pub(super) struct Estates {
    /// By another node's task that has ended here.
    here: BTreeMap<TaskId, Estate>,
    /// By task that lives, or stands in `here`: where what it started has left something.
    elsewhere: BTreeMap<TaskId, BTreeSet<Place>>,
    /// The other way round: to which task that counts.
    counts_to: BTreeMap<Place, TaskId>,
}

/// What another node's task has left here.
struct Estate {
    owner: NodeId,
    children: BTreeSet<TaskId>,
}

impl Estates {
    fn is_empty(&self) -> bool {
        self.here.is_empty() && self.elsewhere.is_empty()
    }

    fn add(&mut self, to: TaskId, place: Place) {
        if let Some(before) = self.counts_to.insert(place, to) {
            self.take_from(before, &place);
        }
        self.elsewhere.entry(to).or_default().insert(place);
    }

    fn take_from(&mut self, task: TaskId, place: &Place) {
        if let Some(places) = self.elsewhere.get_mut(&task) {
            places.remove(place);
            if places.is_empty() {
                self.elsewhere.remove(&task);
            }
        }
    }

    /// Where something is left that counts to a task; nobody knows of it from here on.
    fn take_all(&mut self, task: &TaskId) -> BTreeSet<Place> {
        let places = self.elsewhere.remove(task).unwrap_or_default();
        for place in &places {
            self.counts_to.remove(place);
        }
        places
    }
}

impl Ledger {
    /// A task of ours has ended: what it has left behind is its parent's.
    pub(super) fn leave_to_parent(
        &mut self,
        task: TaskId,
        parent: Option<Starter>,
        mut children: Vec<TaskId>,
    ) {
        if children.is_empty() && self.estates.is_empty() {
            return;
        }
        children.retain(|child| self.tasks.contains(child));
        let places = self.estates.take_all(&task);
        let Some(parent) = parent else {
            // It ends with its driver.
            return;
        };
        for child in &children {
            if let Some(entry) = self.tasks.get_mut(child) {
                entry.parent = Some(parent);
            }
        }
        let parent = parent.task;
        if let Some(estate) = self.estates.here.get_mut(&parent) {
            // Also where the parent runs here once more: it is of an earlier attempt then.
            estate.children.remove(&task);
        }
        let is_live = match self.tasks.get_mut(&parent) {
            Some(entry) => {
                entry.children.extend(children);
                true
            }
            None => match self.estates.here.get_mut(&parent) {
                Some(estate) => {
                    estate.children.extend(children);
                    true
                }
                None => false,
            },
        };
        if is_live {
            for place in places {
                self.estates.add(parent, place);
            }
            self.forget_if_over(&parent);
        }
    }

    /// Another node's task has ended here.
    pub(super) fn leave_behind(&mut self, task: TaskId, owner: NodeId, mut children: Vec<TaskId>) {
        children.retain(|child| self.tasks.contains(child));
        if children.is_empty() && !self.estates.elsewhere.contains_key(&task) {
            return self.forget_if_over(&task);
        }
        let estate = self.estates.here.entry(task).or_insert(Estate {
            owner,
            children: BTreeSet::new(),
        });
        estate.children.extend(children);
        self.tell(owner, Outgoing::LeftBehind(task, true));
    }

    /// Where the last of what another node's task has left is over, its owner hears of that.
    fn forget_if_over(&mut self, task: &TaskId) {
        let estate = self.estates.here.get(task);
        let is_over = estate.is_some_and(|estate| estate.children.is_empty())
            && !self.estates.elsewhere.contains_key(task);
        if is_over && let Some(estate) = self.estates.here.remove(task) {
            self.tell(estate.owner, Outgoing::LeftBehind(*task, false));
        }
    }

    /// An own task has ended at another node, where children of it still run (`lives_on`), or did until now.
    pub(crate) fn left_behind(&mut self, from: NodeId, task: TaskId, lives_on: bool) -> Todo {
        match lives_on {
            true if self.tasks.contains(&task) => self.estates.add(task, (from, task)),
            // It was cancelled meanwhile.
            true => self.tell(from, Outgoing::EndLeft(task)),
            false => {
                if let Some(to) = self.estates.counts_to.remove(&(from, task)) {
                    self.estates.take_from(to, &(from, task));
                    self.forget_if_over(&to);
                }
            }
        }
        Todo::default()
    }

    /// What another node's task has left here, and all that it has started, is to end.
    pub(crate) fn end_left(&mut self, from: NodeId, task: TaskId) -> Todo {
        let estate = self.estates.here.get(&task);
        let Some(estate) = estate.filter(|estate| estate.owner == from) else {
            return Todo::default();
        };
        let mut family = vec![task];
        for child in estate.children.clone() {
            family.extend(self.family(child));
        }
        self.end_what_was_left(&family);
        self.cancel(&family[1..])
    }

    /// Tasks are cancelled: so is what they have left at other nodes.
    pub(crate) fn end_what_was_left(&mut self, family: &[TaskId]) {
        if self.estates.is_empty() {
            return;
        }
        for task in family {
            for (node, left) in self.estates.take_all(task) {
                self.tell(node, Outgoing::EndLeft(left));
            }
            self.forget_if_over(task);
        }
    }

    /// A node is gone: nothing that was left there lives, and what its tasks have left here is to end. What that is.
    pub(super) fn left_by_lost(&mut self, node: NodeId) -> Vec<TaskId> {
        let places: Vec<Place> = self.estates.counts_to.keys().copied().collect();
        for place in places.into_iter().filter(|(at, _)| *at == node) {
            if let Some(to) = self.estates.counts_to.remove(&place) {
                self.estates.take_from(to, &place);
                self.forget_if_over(&to);
            }
        }
        let of_it = self
            .estates
            .here
            .extract_if(.., |_, estate| estate.owner == node);
        let of_it: Vec<(TaskId, Estate)> = of_it.collect();
        let mut family = Vec::new();
        for (task, estate) in of_it {
            family.push(task);
            for child in estate.children {
                family.extend(self.family(child));
            }
        }
        self.end_what_was_left(&family);
        family
    }

    fn tell(&self, node: NodeId, outgoing: Outgoing) {
        self.outbox.push(Outbound::Say(node, Box::new(outgoing)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_somewhere_counts_to_one_task() {
        let mut estates = Estates::default();
        let [child, parent, other] = [1, 2, 3].map(|it| TaskId::from_bytes([it; 16]));
        let place = (NodeId::from_bytes([1; 16]), child);
        estates.add(child, place);
        estates.add(parent, place);
        assert!(estates.take_all(&child).is_empty());
        estates.take_from(other, &place);
        assert_eq!(estates.take_all(&parent), BTreeSet::from([place]));
        assert!(estates.is_empty() && estates.counts_to.is_empty());
    }
}
