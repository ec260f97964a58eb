//! The lock around the state, and what the objects, writers and futures of a store share.
//!
//! Owns the lock and what happens after it: waking, unmapping, giving pages back. Invariant: none
//! of that, and no destructor of an object or view, runs while the lock is held.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ObjectId;

use super::disk::DiskThread;
use super::kind::Form;
use super::{After, State};

/// What a store, its objects, writers and futures share.
pub(crate) struct Shared {
    // Dropped first: the thread ends once its store is gone.
    core: Arc<Core>,
    _disk: Option<DiskThread>,
}

/// The lock, and what it is around. The disk's thread knows it too, but does not keep it.
pub(crate) struct Core {
    state: Mutex<State>,
    pub(crate) patience: Duration,
}

/// What all references to an object share.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: ObjectId,
    pub(crate) serial: u64,
    pub(crate) len: u64,
    pub(crate) form: Form,
    pub(crate) tenant: TenantName,
    /// Checksums of parts, by where they start.
    pub(crate) sums: Mutex<BTreeMap<u64, (u64, u32)>>,
}

impl Shared {
    pub(crate) fn new(core: Arc<Core>, disk: Option<DiskThread>) -> Self {
        Self { core, _disk: disk }
    }
}

impl fmt::Debug for Shared {
    /// Not every object, and without the lock: this may be called from anywhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Deref for Shared {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Core {
    pub(crate) fn new(state: State, patience: Duration) -> Self {
        Self {
            state: Mutex::new(state),
            patience,
        }
    }

    /// Does something to the state, serves those who wait, and does what that leaves to be done.
    pub(crate) fn with<R>(&self, operation: impl FnOnce(&mut State) -> R) -> R {
        let (result, mut after) = self.locked(operation);
        while !after.is_empty() {
            let After { wakers, memory } = after;
            wakers.into_iter().for_each(std::task::Waker::wake);
            drop(memory.closing);
            let released: Vec<_> = memory
                .leaving
                .into_iter()
                .map(|mut extent| {
                    let is_given_back = extent.release_pages().is_ok();
                    (extent, is_given_back)
                })
                .collect();
            ((), after) = self.locked(|state| {
                for (extent, is_given_back) in released {
                    state.pages_released(extent, is_given_back);
                }
            });
        }
        result
    }

    fn locked<R>(&self, operation: impl FnOnce(&mut State) -> R) -> (R, After) {
        let mut state = self.state.lock();
        let result = operation(&mut state);
        state.settle();
        if cfg!(debug_assertions) {
            state.check_as_cheap();
        }
        (result, state.take_after())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(|state| state.forget(self.id, self.serial));
    }
}
