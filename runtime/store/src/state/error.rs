//! Why an object cannot be created or read, and what the store is full of.
//!
//! Owns the texts. Must not: decide anything.

use std::fmt;
use std::io;
use std::sync::Arc;

use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ObjectId;
use wasmrun_model::units::bytes;

/// Why an object could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// There is one with this id, sealed or not.
    #[error("object {id} exists already: an object is written once; get it instead")]
    Exists {
        /// The id.
        id: ObjectId,
    },
    /// More than the whole store.
    #[error(
        "object {id} of {} can never fit into the object store of {}: \
         make it smaller, or raise --object-memory",
        bytes(*len_bytes), bytes(*capacity_bytes)
    )]
    TooLarge {
        /// The id.
        id: ObjectId,
        /// Its length.
        len_bytes: u64,
        /// The store's capacity.
        capacity_bytes: u64,
    },
    /// More than the tenant, or one that it is part of, may have in memory at once.
    #[error(
        "object {id} of {} can never fit under the quota of tenant {tenant}, {} of memory for objects at a node: \
         make it smaller, or have the quota raised (`wasmrun tenant set {tenant} --max-objects`)",
        bytes(*len_bytes), bytes(*quota_bytes)
    )]
    AboveQuota {
        /// The id.
        id: ObjectId,
        /// Its length.
        len_bytes: u64,
        /// The tenant whose quota it is.
        tenant: TenantName,
        /// The quota.
        quota_bytes: u64,
    },
    /// There is no room now.
    #[error("object {id} of {} does not fit into the object store now: {store}", bytes(*len_bytes))]
    Full {
        /// The id.
        id: ObjectId,
        /// Its length.
        len_bytes: u64,
        /// How full the store is.
        store: Fullness,
    },
    /// The system gives no memory although the store may have more.
    #[error(
        "object {id} of {} got no memory from the system: give this process more memory, \
         files or disk space, or lower --object-memory",
        bytes(*len_bytes)
    )]
    Memory {
        /// The id.
        id: ObjectId,
        /// Its length.
        len_bytes: u64,
        /// What the system said.
        source: io::Error,
    },
}

/// How full a store is, as an error says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fullness {
    /// What objects may take in memory.
    pub capacity_bytes: u64,
    /// What they take.
    pub used_bytes: u64,
    /// What of that somebody has a view of.
    pub pinned_bytes: u64,
    /// How many others wait for room.
    pub waiting: usize,
    /// What is taken on disk; `None` without spilling.
    pub spilled_bytes: Option<u64>,
    /// What may be taken on disk; `None` without spilling.
    pub spill_capacity_bytes: Option<u64>,
    /// Why nothing more could be written there when that was last tried, and the folder.
    pub disk_fault: Option<Box<str>>,
    /// What bounds the tenant, beside other tenants.
    pub limits: Option<Box<TenantLimits>>,
}

/// What keeps an object of a tenant out of memory where other tenants are in the store, or it has a quota.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// A quota that there is no room under.
    pub quota: Option<QuotaUsed>,
    /// What it has of its part.
    pub part: Option<PartUsed>,
}

/// A quota of memory that is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUsed {
    /// The tenant whose quota it is: the one that has no room, or one that it is part of.
    pub tenant: TenantName,
    /// What it has in memory, and the quota; `None` for a tenant that is part of this one.
    pub bytes: Option<(u64, u64)>,
}

/// What a tenant has of its part of the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartUsed {
    /// The tenant.
    pub tenant: TenantName,
    /// What it has in memory.
    pub used_bytes: u64,
    /// What it may have without taking room from others.
    pub part_bytes: u64,
}

/// Why the bytes of an object cannot be had.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// It was a secondary copy, and its room was needed.
    #[error("this copy of object {id} was dropped to make room: fetch it again")]
    Dropped {
        /// The object.
        id: ObjectId,
    },
    /// It is on disk, there is no room for it in memory, and nothing can go.
    #[error("object {id} of {} cannot be read back from disk now: {store}", bytes(*len_bytes))]
    Full {
        /// The object.
        id: ObjectId,
        /// Its length.
        len_bytes: u64,
        /// How full the store is.
        store: Fullness,
    },
    /// It is on disk and could not be read.
    #[error("object {id} cannot be read back from disk: check the disk behind --spill-dir")]
    Disk {
        /// The object.
        id: ObjectId,
        /// What the system said.
        source: Arc<io::Error>,
    },
}

impl fmt::Display for Fullness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.limits.as_deref();
        if let Some(quota) = limits.and_then(|it| it.quota.as_ref()) {
            return write!(f, "{quota}");
        }
        let (used, capacity) = (bytes(self.used_bytes), bytes(self.capacity_bytes));
        write!(f, "{used} of {capacity} are in use")?;
        if self.pinned_bytes > 0 {
            write!(
                f,
                ", {} of that by tasks and clients",
                bytes(self.pinned_bytes)
            )?;
        }
        if let Some(part) = limits.and_then(|it| it.part.as_ref()) {
            write!(
                f,
                ", tenant {} has {} of its part of {}",
                part.tenant,
                bytes(part.used_bytes),
                bytes(part.part_bytes)
            )?;
        }
        if self.waiting > 0 {
            let waiting = self.waiting;
            match waiting {
                1 => f.write_str(", another one waits for room")?,
                _ => write!(f, ", {waiting} others wait for room")?,
            }
        }
        match (self.spilled_bytes, self.spill_capacity_bytes) {
            (Some(spilled), Some(_)) if let Some(fault) = &self.disk_fault => write!(
                f,
                ", {} on disk, and {fault}; free space there, drop objects that are not needed, or \
                 raise --object-memory",
                bytes(spilled)
            ),
            (Some(spilled), Some(capacity)) => write!(
                f,
                ", and {} of {} on disk; drop objects that are not needed, or raise \
                 --object-memory or --spill-size",
                bytes(spilled),
                bytes(capacity)
            ),
            _ => f.write_str(
                "; drop objects that are not needed, raise --object-memory, or let objects go to \
                 disk with --spill-dir",
            ),
        }
    }
}

impl fmt::Display for QuotaUsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenant = &self.tenant;
        write!(
            f,
            "tenant {tenant} is at its quota of memory for objects at this node"
        )?;
        if let Some((used, quota)) = self.bytes {
            write!(f, ", {} of {}", bytes(used), bytes(quota))?;
        }
        write!(
            f,
            "; drop objects that are not needed, or have the quota raised (`wasmrun tenant set {tenant} --max-objects`)"
        )
    }
}
