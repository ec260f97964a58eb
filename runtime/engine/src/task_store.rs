//! A task's store: wasmtime's, and what has to happen before its memory is somebody else's.
//!
//! Invariant: memory in which an object is still mapped never goes back to the pool. When the kernel
//! refuses to take an object out, the store is never dropped: its place in the pool is lost, which
//! costs one sandbox of those that may run at a time, and no task sees what another was given.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use wasmtime::{AsContext, AsContextMut, Store, StoreContext, StoreContextMut};

use crate::state::TaskState;

/// As the store that is in it.
pub(crate) struct TaskStore(ManuallyDrop<Store<TaskState>>);

impl TaskStore {
    pub(crate) fn new(store: Store<TaskState>) -> Self {
        Self(ManuallyDrop::new(store))
    }
}

impl Drop for TaskStore {
    fn drop(&mut self) {
        match self.0.data_mut().windows.clear() {
            // SAFETY: it is not used any more, and nobody else drops it.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.0) },
            Err(error) => eprintln!(
                "wasmrun: an object cannot be taken out of a sandbox's memory, which is not used \
                 again: {error}"
            ),
        }
    }
}

impl Deref for TaskStore {
    type Target = Store<TaskState>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for TaskStore {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl AsContext for TaskStore {
    type Data = TaskState;

    fn as_context(&self) -> StoreContext<'_, TaskState> {
        (*self.0).as_context()
    }
}

impl AsContextMut for TaskStore {
    fn as_context_mut(&mut self) -> StoreContextMut<'_, TaskState> {
        (*self.0).as_context_mut()
    }
}
