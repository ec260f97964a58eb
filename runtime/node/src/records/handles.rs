//! What a guest has handles to.
//!
//! Owns [`HandleTable`]: a guest can name what it was given or has made, and nothing else. What it names is kept
//! until it has dropped as many handles as it got, or ends. The engine has the slot of each handle, so that nothing is
//! looked up by its name but what stands in values.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use wasmrun_engine::HandleSlot;
use wasmrun_model::value::Handle;

use crate::records::object::Reference;
use crate::records::reach::Referent;
use crate::records::task::TaskCell;

/// The handles of one task or actor.
#[derive(Default)]
pub(crate) struct HandleTable(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    by_name: HashMap<Handle, u32>,
}

struct Slot {
    reference: Reference,
    /// How many handles the guest has to it, and how often it was lent.
    count: u64,
    /// Whether it has been seen to be there, which it stays.
    is_ready: bool,
}

/// Those of some objects that are there, and those that are not.
#[derive(Default)]
pub(crate) struct Readiness {
    /// Their places among those that were looked at, in order.
    pub(crate) ready: Vec<u32>,
    pub(crate) pending: Vec<Arc<TaskCell>>,
    /// The places of `pending`.
    pub(crate) places: Vec<u32>,
}

impl HandleTable {
    /// The guest gets a handle to this.
    pub(crate) fn add(&self, reference: Reference) -> HandleSlot {
        let handle = reference.handle();
        let mut table = self.0.lock();
        let Slots {
            slots,
            free,
            by_name,
        } = &mut *table;
        match by_name.entry(handle) {
            Entry::Occupied(slot) => {
                let slot = *slot.get();
                let entry = slots[slot as usize].as_mut().expect("what has a name");
                entry.count += 1;
                entry.is_ready = false;
                // The newest stands: an attempt before may have left one of the same name behind.
                let before = std::mem::replace(&mut entry.reference, reference);
                drop(table);
                drop(before);
                HandleSlot(slot)
            }
            Entry::Vacant(name) => {
                let entry = Some(Slot {
                    reference,
                    count: 1,
                    is_ready: false,
                });
                let slot = match free.pop() {
                    Some(slot) => {
                        slots[slot as usize] = entry;
                        slot
                    }
                    None => {
                        slots.push(entry);
                        u32::try_from(slots.len() - 1).expect("guests have fewer handles")
                    }
                };
                HandleSlot(*name.insert(slot))
            }
        }
    }

    /// The guest gets one more handle to what has this name. `None` if it has none yet.
    pub(crate) fn open(&self, handle: &Handle) -> Option<HandleSlot> {
        let mut table = self.0.lock();
        let slot = *table.by_name.get(handle)?;
        table.entry(slot)?.count += 1;
        Some(HandleSlot(slot))
    }

    /// The guest gets one more handle to what is in a slot.
    pub(crate) fn duplicate(&self, slot: HandleSlot) {
        if let Some(entry) = self.0.lock().entry(slot.0) {
            entry.count += 1;
        }
    }

    /// The guest has dropped a handle.
    pub(crate) fn release(&self, slot: HandleSlot) {
        let mut table = self.0.lock();
        let Some(entry) = table.entry(slot.0) else {
            return;
        };
        entry.count -= 1;
        if entry.count == 0 {
            let last = table.slots[slot.0 as usize].take();
            table.free.push(slot.0);
            if let Some(last) = &last {
                table.by_name.remove(&last.reference.handle());
            }
            drop(table);
            drop(last);
        }
    }

    /// The guest has no handles any more. What they stood for. Slots are not used again: a call may still be on its way
    /// out.
    pub(crate) fn clear(&self) -> Vec<Reference> {
        let mut table = self.0.lock();
        table.by_name = HashMap::new();
        let entries = table.slots.iter_mut().filter_map(Option::take);
        entries.map(|entry| entry.reference).collect()
    }

    /// All that it holds.
    pub(crate) fn referents(&self) -> Vec<Referent> {
        let table = self.0.lock();
        let entries = table.slots.iter().flatten();
        entries.map(|entry| (&entry.reference).into()).collect()
    }

    /// What is in a slot.
    pub(crate) fn get(&self, slot: HandleSlot) -> Option<Reference> {
        let mut table = self.0.lock();
        table.entry(slot.0).map(|entry| entry.reference.clone())
    }

    /// What has this name.
    pub(crate) fn find(&self, handle: &Handle) -> Option<Reference> {
        let mut table = self.0.lock();
        let slot = *table.by_name.get(handle)?;
        table.entry(slot).map(|entry| entry.reference.clone())
    }

    /// Which of these objects are there. What is there stays there, so that is looked at once.
    pub(crate) fn readiness(&self, objects: &[HandleSlot]) -> Readiness {
        let mut readiness = Readiness::default();
        let mut table = self.0.lock();
        for (place, slot) in (0..).zip(objects) {
            let Some(entry) = table.entry(slot.0) else {
                // Its actor has ended, and the call with it.
                continue;
            };
            if !entry.is_ready
                && let Reference::Task(cell) = &entry.reference
                && !cell.has_ended()
            {
                readiness.pending.push(cell.clone());
                readiness.places.push(place);
                continue;
            }
            entry.is_ready = true;
            readiness.ready.push(place);
        }
        readiness
    }
}

impl Slots {
    fn entry(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::{NodeId, ObjectId, ObjectName, TaskId};
    use wasmrun_model::value::Encoded;

    use super::*;
    use crate::records::object::PutObject;

    fn stored(number: u32) -> Reference {
        let name = ObjectName {
            id: ObjectId::put_by(TaskId::from_bytes([1; 16]), number),
            owner: NodeId::from_bytes([2; 16]),
        };
        let value = Encoded::Postcard(vec![7]).into();
        Reference::Put(Arc::new(PutObject { name, value }))
    }

    fn holders(reference: &Reference) -> usize {
        let Reference::Put(object) = reference else {
            panic!("it was stored");
        };
        Arc::strong_count(object)
    }

    #[test]
    fn what_is_named_is_kept_until_its_last_handle_is_dropped() {
        let table = HandleTable::default();
        let object = stored(1);
        let name = object.handle();
        let slot = table.add(object.clone());
        assert_eq!(table.open(&name), Some(slot));
        table.duplicate(slot);
        assert_eq!(table.add(object.clone()), slot);
        for _ in 0..3 {
            table.release(slot);
            assert!(table.get(slot).is_some());
        }
        table.release(slot);
        assert!(table.get(slot).is_none() && table.find(&name).is_none());
        assert_eq!(table.open(&name), None);
        assert_eq!(holders(&object), 1);
    }

    #[test]
    fn a_slot_is_used_again_and_is_of_the_new_name() {
        let table = HandleTable::default();
        let [first, second] = [stored(1), stored(2)];
        let slot = table.add(first.clone());
        table.release(slot);
        assert_eq!(table.add(second.clone()), slot);
        assert_eq!(table.find(&first.handle()).map(|it| it.handle()), None);
        assert_eq!(table.get(slot).map(|it| it.handle()), Some(second.handle()));
    }

    #[test]
    fn the_newest_of_a_name_stands() {
        let table = HandleTable::default();
        let [before, after] = [stored(1), stored(1)];
        let slot = table.add(before.clone());
        assert_eq!(table.add(after.clone()), slot);
        assert_eq!((holders(&before), holders(&after)), (1, 2));
    }

    #[test]
    fn slots_that_were_cleared_are_not_given_to_others() {
        let table = HandleTable::default();
        let [first, second] = [stored(1), stored(2)];
        let slot = table.add(first.clone());
        assert_eq!(table.clear().len(), 1);
        assert_ne!(table.add(second.clone()), slot);
        // A call on its way out drops what it had.
        table.release(slot);
        table.duplicate(slot);
        assert!(table.get(slot).is_none());
        assert_eq!(holders(&second), 2);
    }

    #[test]
    fn each_place_of_a_list_is_looked_at() {
        let table = HandleTable::default();
        let slots = [1, 2, 1].map(|number| table.add(stored(number)));
        let readiness = table.readiness(&slots);
        assert_eq!(readiness.ready, [0, 1, 2]);
        assert!(readiness.pending.is_empty() && readiness.places.is_empty());
    }
}
