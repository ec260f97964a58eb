//! What a guest has handles to.
//!
//! Owns [`Known`]: a guest can name what it was given or has made, and nothing else. What it names is kept
//! until it has dropped as many handles as it got, or ends.

use std::collections::HashMap;

use parking_lot::Mutex;
use wasmrun_model::value::Handle;

use crate::object::Reference;
use crate::reach::Held;

/// The handles of one task or actor.
#[derive(Default)]
pub(crate) struct Known(Mutex<HashMap<Handle, (Reference, u64)>>);

impl Known {
    /// The guest gets a handle to this.
    pub(crate) fn add(&self, reference: Reference) {
        let handle = reference.handle();
        let mut known = self.0.lock();
        let entry = known
            .entry(handle)
            .or_insert_with(|| (reference.clone(), 0));
        entry.1 += 1;
        // The newest stands: an attempt before may have left one of the same name behind.
        let before = std::mem::replace(&mut entry.0, reference);
        drop(known);
        drop(before);
    }

    /// The guest gets one more handle. False if it has none yet.
    pub(crate) fn retain(&self, handle: &Handle) -> bool {
        match self.0.lock().get_mut(handle) {
            Some((_, count)) => {
                *count += 1;
                true
            }
            None => false,
        }
    }

    /// The guest has dropped a handle.
    pub(crate) fn release(&self, handle: &Handle) {
        let mut known = self.0.lock();
        let Some((_, count)) = known.get_mut(handle) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            let last = known.remove(handle);
            drop(known);
            drop(last);
        }
    }

    /// The guest has no handles any more. What they stood for.
    pub(crate) fn clear(&self) -> Vec<Reference> {
        let known = std::mem::take(&mut *self.0.lock());
        known
            .into_values()
            .map(|(reference, _)| reference)
            .collect()
    }

    /// All that it holds.
    pub(crate) fn held(&self) -> Vec<Held> {
        let known = self.0.lock();
        let references = known.values();
        references.map(|(reference, _)| reference.into()).collect()
    }

    /// What a handle of the guest's stands for.
    pub(crate) fn get(&self, handle: &Handle) -> Option<Reference> {
        let known = self.0.lock();
        known.get(handle).map(|(reference, _)| reference.clone())
    }
}
