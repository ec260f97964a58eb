//! A task's store: wasmtime's, and what has to happen before its memory is somebody else's.
//!
//! Invariant: memory in which an object is still mapped never goes back to the pool. When the kernel
//! refuses to take an object out, the store is never dropped: its place in the pool is lost, which
//! costs one sandbox of those that may run at a time, and no task sees what another was given.

use std::ops::{Deref, DerefMut};

use wasmtime::{AsContext, AsContextMut, Store, StoreContext, StoreContextMut};

use crate::room::Place;
use crate::state::TaskState;

/// As the store that is in it, which is there until it is taken out.
pub(crate) struct TaskStore {
    store: Option<Store<TaskState>>,
    /// What the store may take from the pool. After it: the next one takes what this one has given back.
    place: Option<Place>,
}

impl TaskStore {
    /// A store that has nothing yet.
    pub(crate) fn new(store: Store<TaskState>) -> Self {
        Self {
            store: Some(store),
            place: None,
        }
    }

    /// Whether it may take what it needs from the pool.
    pub(crate) fn has_place(&self) -> bool {
        self.place.is_some()
    }

    /// It may take so much from the pool.
    pub(crate) fn set_place(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Ends the store, and leaves what it carried; `None` if its memory cannot be given back. It must not
    /// be used again.
    pub(crate) fn take_data(&mut self) -> Option<TaskState> {
        self.cleared().map(Store::into_data)
    }

    /// The store without objects in its memory, if it is still there and that can be had.
    fn cleared(&mut self) -> Option<Store<TaskState>> {
        let mut store = self.store.take()?;
        match store.data_mut().windows.clear() {
            Ok(()) => Some(store),
            Err(error) => {
                eprintln!(
                    "wasmrun: an object cannot be taken out of a sandbox's memory, which is not used \
                     again: {error}"
                );
                std::mem::forget((store, self.place.take()));
                None
            }
        }
    }
}

impl Drop for TaskStore {
    fn drop(&mut self) {
        drop(self.cleared());
    }
}

impl Deref for TaskStore {
    type Target = Store<TaskState>;

    fn deref(&self) -> &Self::Target {
        self.store.as_ref().expect("a store that was not taken out")
    }
}

impl DerefMut for TaskStore {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.store.as_mut().expect("a store that was not taken out")
    }
}

impl AsContext for TaskStore {
    type Data = TaskState;

    fn as_context(&self) -> StoreContext<'_, TaskState> {
        (**self).as_context()
    }
}

impl AsContextMut for TaskStore {
    fn as_context_mut(&mut self) -> StoreContextMut<'_, TaskState> {
        (**self).as_context_mut()
    }
}
