//! The map of tasks by their ids.
//!
//! Owns where each stands and how it is found. Must not: know what a task is.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use hashbrown::HashTable;

use super::TaskId;

/// What a [`TaskMap`] holds.
pub trait OfTask {
    /// The task that it is of: always the same.
    fn task(&self) -> &TaskId;
}

/// A map from the ids of tasks to what is known of each, made for many of which few are at work.
///
/// A hundred thousand tasks that wait are more than a processor's caches hold, so what a look costs is how much memory
/// nobody has looked at lately it takes. The table of places has 9 bytes a task, and so stays in a cache for much longer
/// than the tasks do; tasks stand in slots, in the order in which they came as long as none ends; and those that
/// [`TaskMap::expect`] was said of are found without either.
///
/// Slots are numbered from 0; that of a task which is taken out is used again.
#[derive(Debug)]
pub struct TaskMap<T> {
    places: HashTable<Place>,
    key: Key,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    expected: Box<[(TaskId, u32)]>,
}

/// Where a task is, and a part of its hash.
#[derive(Debug, Clone, Copy)]
struct Place {
    tag: u32,
    slot: u32,
}

impl Place {
    /// What the table places it by: of the whole hash it has this half, twice.
    fn hash(self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.tag)
    }
}

/// For how many slots there is room left, at most, when the last task is gone.
const KEPT: usize = 1 << 17;

/// How many tasks are expected at a time, at most.
const EXPECTED: usize = 64;

impl<T> Default for TaskMap<T> {
    fn default() -> Self {
        Self {
            places: HashTable::new(),
            key: Key::random(),
            slots: Vec::new(),
            free: Vec::new(),
            expected: [(TaskId([0; 16]), u32::MAX); EXPECTED].into(),
        }
    }
}

impl<T: OfTask> TaskMap<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The slot of a task.
    #[inline]
    pub fn find(&self, task: &TaskId) -> Option<u32> {
        let (expected, slot) = self.expected[expected_at(task)];
        if expected == *task && self.is_at(task, slot) {
            return Some(slot);
        }
        let place = self.place(task, 0);
        let is_it = |it: &Place| it.tag == place.tag && self.is_at(task, it.slot);
        self.places.find(place.hash(), is_it).map(|it| it.slot)
    }

    /// The slot of a task which was in this one when somebody noted it.
    #[inline]
    pub fn find_at(&self, task: &TaskId, noted: u32) -> Option<u32> {
        match self.is_at(task, noted) {
            true => Some(noted),
            false => self.find(task),
        }
    }

    /// Whether it is there.
    pub fn contains(&self, task: &TaskId) -> bool {
        self.find(task).is_some()
    }

    /// What is known of a task.
    #[inline]
    pub fn get(&self, task: &TaskId) -> Option<&T> {
        self.at(self.find(task)?)
    }

    /// What is known of a task, to be changed: not whose it is.
    #[inline]
    pub fn get_mut(&mut self, task: &TaskId) -> Option<&mut T> {
        let slot = self.find(task)?;
        self.at_mut(slot)
    }

    /// What is in a slot.
    #[inline]
    pub fn at(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// What is in a slot, to be changed.
    #[inline]
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Adds a task. Its slot.
    ///
    /// # Panics
    /// If it is there already, or there are 2^32.
    #[inline]
    pub fn insert(&mut self, of_task: T) -> u32 {
        let task = *of_task.task();
        assert!(!self.contains(&task), "task {task} is there already");
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(of_task);
                slot
            }
            None => {
                self.slots.push(Some(of_task));
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 tasks")
            }
        };
        let place = self.place(&task, slot);
        self.places
            .insert_unique(place.hash(), place, |it| it.hash());
        slot
    }

    /// Takes a task out.
    pub fn remove(&mut self, task: &TaskId) -> Option<T> {
        let slot = self.find(task)?;
        let of_task = self.slots[slot as usize].take();
        self.unplace(task, slot);
        of_task
    }

    /// Takes out what is in a slot, and drops it where it is.
    ///
    /// # Panics
    /// If nothing is.
    pub fn clear(&mut self, slot: u32) {
        let task = *self.at(slot).expect("a task in its slot").task();
        self.slots[slot as usize] = None;
        self.unplace(&task, slot);
    }

    /// This task is about to be looked for, some times: it started.
    #[inline]
    pub fn expect(&mut self, task: &TaskId, slot: u32) {
        self.expected[expected_at(task)] = (*task, slot);
    }

    /// All of them, by slot.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    /// Those in these slots. A task stays in its slot, so a walk of some slots at a time misses none that is there
    /// all along.
    pub fn values_in(&self, slots: Range<usize>) -> impl Iterator<Item = &T> {
        let end = slots.end.min(self.slots.len());
        self.slots[slots.start.min(end)..end].iter().flatten()
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    fn is_at(&self, task: &TaskId, slot: u32) -> bool {
        self.at(slot).is_some_and(|it| it.task() == task)
    }

    fn place(&self, task: &TaskId, slot: u32) -> Place {
        let tag = (self.key.hash(task) >> 32) as u32;
        Place { tag, slot }
    }

    fn unplace(&mut self, task: &TaskId, slot: u32) {
        let place = self.place(task, slot);
        let found = self.places.find_entry(place.hash(), |it| it.slot == slot);
        match found {
            Ok(found) => drop(found.remove()),
            Err(_) => unreachable!("task {task} is in a slot and has no place"),
        }
        self.free.push(slot);
        if self.places.is_empty() && self.slots.len() > KEPT {
            // Who has had very many does not keep their room for ever.
            self.slots = Vec::new();
            self.free = Vec::new();
            self.places = HashTable::new();
        }
    }
}

/// Where a task is noted that is expected.
fn expected_at(task: &TaskId) -> usize {
    usize::from(task.0[0]) % EXPECTED
}

/// How tasks are looked for. Ids are hashes already, but a client may name its task itself, and could make every look a
/// walk with ids that are alike where a map looks. So each map has a key: the halves of the id, each with half of the
/// key, are multiplied in full and folded, as in wyhash.
#[derive(Debug)]
struct Key([u64; 2]);

impl Key {
    fn random() -> Self {
        let random = RandomState::new();
        Self([0_u8, 1].map(|half| random.hash_one(half)))
    }

    #[inline]
    fn hash(&self, task: &TaskId) -> u64 {
        let id = u128::from_le_bytes(task.0);
        let [low, high] = [id as u64, (id >> 64) as u64];
        let product = u128::from(low ^ self.0[0]) * u128::from(high ^ self.0[1]);
        product as u64 ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::id::DriverId;

    #[derive(Debug, Clone, PartialEq)]
    struct Of(TaskId, u32);

    impl OfTask for Of {
        fn task(&self) -> &TaskId {
            &self.0
        }
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u64..40, 0u8..5), 0..300)) {
            let driver = DriverId::from_bytes([3; 16]);
            let mut map = TaskMap::default();
            let mut model = BTreeMap::new();
            for (number, (task, what)) in steps.into_iter().enumerate() {
                let id = driver.task(task);
                let value = Of(id, number as u32);
                match (what, model.contains_key(&id)) {
                    (0 | 1, false) => {
                        let slot = map.insert(value.clone());
                        prop_assert_eq!(map.at(slot), Some(&value));
                        model.insert(id, value);
                    }
                    (0, true) => prop_assert_eq!(map.remove(&id), model.remove(&id)),
                    (1, true) => {
                        map.clear(map.find(&id).unwrap());
                        model.remove(&id);
                    }
                    (2, true) => map.expect(&id, map.find(&id).unwrap()),
                    (3, true) => map.get_mut(&id).unwrap().1 += 1000,
                    (_, false) => prop_assert_eq!(map.remove(&id), None),
                    (_, true) => {}
                }
                if let (3, Some(value)) = (what, model.get_mut(&id)) {
                    value.1 += 1000;
                }
                for task in 0..40 {
                    let id = driver.task(task);
                    prop_assert_eq!(map.get(&id), model.get(&id));
                    // Whatever was noted: its own slot, another's, an empty one, none that there ever was.
                    let noted = map.find_at(&id, number as u32 % 45);
                    prop_assert_eq!(noted, map.find(&id));
                }
                let all: BTreeMap<_, _> = map.values().map(|it| (it.0, it.clone())).collect();
                prop_assert_eq!(&all, &model);
                prop_assert_eq!(map.len(), model.len());
                let parts = (0..=map.slots()).step_by(3);
                let parts = parts.flat_map(|from| map.values_in(from..from + 3));
                prop_assert!(parts.eq(map.values()));
            }
        }
    }

    #[test]
    fn ids_that_somebody_chose_are_apart() {
        let key = Key::random();
        for at in [0, 7, 8, 15] {
            let ids = (0..=255_u8).map(|byte| {
                let mut bytes = [9; 16];
                bytes[at] = byte;
                TaskId::from_bytes(bytes)
            });
            let apart: BTreeSet<u32> = ids.map(|id| (key.hash(&id) >> 32) as u32).collect();
            assert_eq!(apart.len(), 256, "at {at}");
        }
        let id = DriverId::from_bytes([7; 16]).task(1);
        assert_eq!(key.hash(&id), key.hash(&id));
        assert_ne!(key.hash(&id), Key::random().hash(&id));
    }

    #[test]
    fn room_for_very_many_is_not_kept() {
        let driver = DriverId::from_bytes([7; 16]);
        for (count, is_kept) in [(KEPT, true), (KEPT + 1, false)] {
            let mut map = TaskMap::default();
            let ids = (0..count as u64).map(|at| driver.task(at));
            let ids: Vec<TaskId> = ids.collect();
            for id in &ids {
                map.insert(Of(*id, 0));
            }
            for id in &ids {
                map.remove(id);
            }
            assert_eq!(!map.slots.is_empty(), is_kept);
            let slot = map.insert(Of(ids[0], 1));
            assert_eq!(map.find(&ids[0]), Some(slot));
        }
    }

    #[test]
    #[should_panic(expected = "is there already")]
    fn a_task_is_there_once() {
        let mut map = TaskMap::default();
        let id = DriverId::from_bytes([7; 16]).task(1);
        map.insert(Of(id, 1));
        map.insert(Of(id, 2));
    }
}
