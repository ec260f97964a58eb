//! Those who want to know when a segment is closed.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;

/// Who is told that a segment is closed.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) next: u64,
    pub(crate) told: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
}

impl Listeners {
    /// The segment is closed.
    pub(crate) fn tell(listeners: &Mutex<Self>) {
        let told = std::mem::take(&mut listeners.lock().told);
        told.into_values().for_each(|told| told());
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listeners({})", self.told.len())
    }
}
