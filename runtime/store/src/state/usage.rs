//! What a store says about itself: for metrics, `wasmrun list objects` and error texts.

use std::collections::BTreeMap;

use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ObjectId;

use super::kind::{Copy, Form};

/// How full a store is. All sizes are in bytes as they are taken, with rounding, except those on
/// disk.
///
/// `used + free = capacity`, and `used = unsealed + spilling + pinned + droppable + ` what could be
/// spilled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// What objects may take in memory.
    pub capacity_bytes: u64,
    /// What objects take in memory.
    pub used_bytes: u64,
    /// What is left.
    pub free_bytes: u64,
    /// What of the free part takes memory all the same, to be used again without being touched
    /// first.
    pub warm_bytes: u64,
    /// Objects that are being written, or read back from disk.
    pub unsealed_bytes: u64,
    /// Objects that are being written to disk.
    pub spilling_bytes: u64,
    /// Objects that somebody has a view of. They stay.
    pub pinned_bytes: u64,
    /// Secondary copies that would go first.
    pub droppable_bytes: u64,
    /// What is taken on disk, or set aside there.
    pub spilled_bytes: u64,
    /// What may be taken on disk; 0 without spilling.
    pub spill_capacity_bytes: u64,
    /// Objects that were written to disk to make room, ever, and their bytes.
    pub spills: u64,
    /// See `spills`.
    pub spill_bytes: u64,
    /// Objects that were read back, ever, and their bytes.
    pub restores: u64,
    /// See `restores`.
    pub restore_bytes: u64,
    /// Writes and reads of spilled objects that failed.
    pub disk_errors: u64,
    /// All objects, unfinished and spilled ones too.
    pub objects: u64,
    /// Creates that wait for room.
    pub waiting_creates: u64,
    /// Restores that wait for room.
    pub waiting_restores: u64,
    /// By tenant, those that have something.
    pub tenants: BTreeMap<TenantName, TenantUsage>,
}

/// What one tenant has in a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// What its objects take in memory, in bytes.
    pub used_bytes: u64,
    /// The bytes of its objects on disk.
    pub spilled_bytes: u64,
    /// Its objects, unfinished and spilled ones too.
    pub objects: u64,
}

/// One object, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // As in `Object`.
pub struct ObjectInfo {
    pub id: ObjectId,
    pub tenant: TenantName,
    pub len_bytes: u64,
    pub form: Form,
    pub copy: Copy,
    pub place: ObjectPlace,
    /// How many [`crate::Object`]s there are of it; every view has one.
    pub references: u64,
    /// How many hold a [`crate::View`], counting its clones as one, or wait for one.
    pub pins: u64,
}

/// Where the bytes of an object are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectPlace {
    /// In memory, and not sealed yet.
    Writing,
    /// In memory.
    Memory,
    /// On disk.
    Disk,
}
