//! Where the drivers of other nodes' tasks are.
//!
//! Owns that table. A task may leave others behind that this node owns: they end with the driver, or with the
//! node that it is at, whoever has placed the task here. Must not: know tasks, or ask for them while it is locked.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use wasmrun_model::id::{DriverId, NodeId};

/// How many drivers are known before those without a task here are looked for.
const MANY: usize = 1024;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Homes(Mutex<Table>);

#[derive(Default)]
struct Table {
    by_driver: BTreeMap<DriverId, Home>,
    /// How often a driver was noted.
    notes: u64,
    /// How many drivers there are when those without tasks are looked for next, if more than [`MANY`].
    next_sweep: usize,
}

#[derive(Clone, Copy)]
struct Home {
    node: NodeId,
    /// The number of the last note.
    note: u64,
}

impl Homes {
    /// A task of this driver's has come. `has_tasks` says of others whether they are still of interest.
    pub(super) fn note(
        &self,
        driver: DriverId,
        home: NodeId,
        has_tasks: impl Fn(&DriverId) -> bool,
    ) {
        let mut table = self.0.lock();
        table.notes += 1;
        let (node, note) = (home, table.notes);
        table.by_driver.insert(driver, Home { node, note });
        if table.by_driver.len() <= MANY.max(table.next_sweep) {
            return;
        }
        // One sweep at a time.
        table.next_sweep = usize::MAX;
        let all: Vec<_> = table.by_driver.iter().map(|(id, it)| (*id, *it)).collect();
        drop(table);
        let is_idle = |(id, _): &(DriverId, Home)| *id != driver && !has_tasks(id);
        let idle: Vec<_> = all.into_iter().filter(is_idle).collect();
        let mut table = self.0.lock();
        for (id, seen) in idle {
            // A task of it may have come since.
            if table
                .by_driver
                .get(&id)
                .is_some_and(|it| it.note == seen.note)
            {
                table.by_driver.remove(&id);
            }
        }
        table.next_sweep = 2 * table.by_driver.len();
    }

    /// Where a driver is; `None` for those of this node.
    pub(super) fn of(&self, driver: &DriverId) -> Option<NodeId> {
        self.0.lock().by_driver.get(driver).map(|it| it.node)
    }

    /// The driver is gone.
    pub(super) fn forget(&self, driver: &DriverId) {
        self.0.lock().by_driver.remove(driver);
    }

    /// Whose drivers are at a node: which they are.
    pub(super) fn drivers(&self, node: NodeId) -> Vec<DriverId> {
        let table = self.0.lock();
        let of_it = table.by_driver.iter().filter(|(_, it)| it.node == node);
        of_it.map(|(driver, _)| *driver).collect()
    }

    /// The node is gone, and its drivers with it.
    pub(super) fn lost(&self, node: NodeId) {
        self.0.lock().by_driver.retain(|_, it| it.node != node);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

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
    #[test]
    fn where_all_drivers_have_tasks_few_are_asked_for_again() {
        let (homes, asked) = (Homes::default(), Cell::new(0_u32));
        let here = NodeId::from_bytes([1; 16]);
        let numbers = 0..100_000;
        for number in numbers.clone() {
            homes.note(driver(number), here, |it| {
                // The table is not locked meanwhile.
                assert_eq!(homes.of(it), Some(here));
                asked.set(asked.get() + 1);
                true
            });
            // As many come as go.
            if let Some(gone) = number.checked_sub(2 * MANY as u32 - 1) {
                homes.forget(&driver(gone));
            }
        }
        assert!(asked.get() < numbers.end, "{}", asked.get());
    }

    #[test]
    fn a_driver_that_comes_again_during_a_sweep_stays() {
        let homes = Homes::default();
        let here = NodeId::from_bytes([1; 16]);
        for number in 0..=MANY as u32 {
            homes.note(driver(number), here, |idle| {
                homes.note(*idle, here, |_| {
                    unreachable!("there is one sweep at a time")
                });
                false
            });
        }
        assert_eq!(homes.drivers(here).len(), MANY + 1);
    }
}
