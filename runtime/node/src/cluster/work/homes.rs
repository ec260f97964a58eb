//! Where the drivers of other nodes' tasks are.
//!
//! Owns that table. A task may leave others behind that this node owns: they end with the driver, or with the
//! node that it is at, whoever has placed the task here. Must not: know tasks.

use std::collections::HashMap;

use parking_lot::Mutex;
use wasmrun_model::id::{DriverId, NodeId};

/// How many drivers are known before those are looked for that have no task here any more.
const MANY: usize = 1024;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Homes(Mutex<HashMap<DriverId, NodeId>>);

impl Homes {
    /// A task of this driver's has come. `has_tasks` says of others whether they are still of interest.
    pub(super) fn note(
        &self,
        driver: DriverId,
        home: NodeId,
        has_tasks: impl Fn(&DriverId) -> bool,
    ) {
        let mut homes = self.0.lock();
        homes.insert(driver, home);
        if homes.len() > MANY && homes.len().is_power_of_two() {
            homes.retain(|it, _| *it == driver || has_tasks(it));
        }
    }

    /// Where a driver is; `None` for those of this node.
    pub(super) fn of(&self, driver: &DriverId) -> Option<NodeId> {
        self.0.lock().get(driver).copied()
    }

    /// The driver is gone.
    pub(super) fn forget(&self, driver: &DriverId) {
        self.0.lock().remove(driver);
    }

    /// Whose drivers are at a node: which they are.
    pub(super) fn drivers(&self, node: NodeId) -> Vec<DriverId> {
        let homes = self.0.lock();
        let of_it = homes.iter().filter(|(_, home)| **home == node);
        of_it.map(|(driver, _)| *driver).collect()
    }

    /// The node is gone, and its drivers with it.
    pub(super) fn lost(&self, node: NodeId) {
        self.0.lock().retain(|_, home| *home != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(number: u32) -> DriverId {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        DriverId::from_bytes(bytes)
    }

    #[test]
    fn drivers_without_tasks_are_forgotten_when_there_are_many() {
        let homes = Homes::default();
        let [here, there] = [1, 2].map(|it| NodeId::from_bytes([it; 16]));
        for number in 0..100_000 {
            homes.note(driver(number), here, |it| *it == driver(3));
        }
        homes.note(driver(7), there, |_| true);
        assert_eq!(homes.of(&driver(7)), Some(there));
        let lost = homes.drivers(here);
        assert!(lost.contains(&driver(3)) && lost.len() < 2 * MANY);
        homes.lost(here);
        assert_eq!(homes.drivers(here), []);
        homes.forget(&driver(7));
        assert_eq!(homes.of(&driver(7)), None);
    }
}
