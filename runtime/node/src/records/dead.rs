//! Actors of this node that have failed: that never came to be, or died of a call with no restarts left.
//!
//! Owns what is remembered of them, for whoever asks what became of an actor. Must not: know those that were killed, or
//! that nobody had a handle to any more: they ended as somebody wished. Invariant: it has a limit, and who failed first
//! is forgotten first.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, DriverId};

/// How many actors that have failed are remembered.
const MOST: usize = 1000;

/// The state of an actor that has failed, in words.
pub(crate) const FAILED: &str = "failed";

/// An actor that has failed.
#[derive(Debug, Clone)]
pub(crate) struct Dead {
    pub(crate) id: ActorId,
    /// Its name within its tenant, if it was given one.
    pub(crate) name: Option<String>,
    pub(crate) class: String,
    pub(crate) tenant: TenantName,
    /// Who has created it.
    pub(crate) driver: DriverId,
    /// When it was created.
    pub(crate) submitted: Instant,
    /// Whether it has lived.
    pub(crate) has_lived: bool,
    /// The name of the node on which it lived, if that was another one.
    pub(crate) node: Option<String>,
    pub(crate) why: TaskError,
}

impl Dead {
    /// What became of it, in words.
    pub(crate) fn describe(&self) -> String {
        let why = &self.why;
        match self.has_lived {
            true => format!("it has died: {why}"),
            false => format!("it never came to be: {why}"),
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct DeadActors {
    by_id: BTreeMap<ActorId, Dead>,
    /// Who failed first is first.
    order: VecDeque<ActorId>,
}

impl DeadActors {
    /// An actor has failed.
    pub(crate) fn add(&mut self, dead: Dead) {
        self.forget(&dead.id);
        self.order.push_back(dead.id);
        self.by_id.insert(dead.id, dead);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }

    /// An actor is created (again).
    pub(crate) fn forget(&mut self, id: &ActorId) {
        if self.by_id.remove(id).is_some() {
            self.order.retain(|it| it != id);
        }
    }

    pub(crate) fn get(&self, id: &ActorId) -> Option<&Dead> {
        self.by_id.get(id)
    }

    /// All of them, who failed last first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Dead> {
        let youngest_first = self.order.iter().rev();
        youngest_first.filter_map(|id| self.by_id.get(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(number: u64) -> Dead {
        let driver = DriverId::from_bytes([1; 16]);
        Dead {
            id: driver.task(number).actor(),
            name: None,
            class: "c".into(),
            tenant: TenantName::default(),
            driver,
            submitted: Instant::now(),
            has_lived: false,
            node: None,
            why: TaskError::Sandbox("s".into()),
        }
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut all = DeadActors::default();
        let id = |number| dead(number).id;
        for number in 0..=MOST as u64 {
            all.add(dead(number));
        }
        assert!(all.get(&id(0)).is_none());
        assert_eq!(all.iter().count(), MOST);
        assert_eq!(all.iter().next().map(|it| it.id), Some(id(MOST as u64)));
        // One that fails again is the youngest, and takes no second place.
        all.add(dead(1));
        assert_eq!(all.iter().count(), MOST);
        assert_eq!(all.iter().next().map(|it| it.id), Some(id(1)));
        all.forget(&id(1));
        assert!(all.get(&id(1)).is_none());
        assert_eq!(all.iter().count(), MOST - 1);
    }
}
