//! The object store of a node: immutable objects in memory-mapped segments.
//!
//! Owns the memory of objects, their bytes, references and pins, spilling, and handing bytes to
//! other processes of the machine without a copy. Must not: know tasks, futures, owners or the
//! network, run an executor, or decide who may see what beyond keeping tenants apart.
//! `docs/decisions/store.md` says why it is built so.
//!
//! ```
//! use wasmrun_model::{fairness::TenantName, id::{DriverId, ObjectId}};
//! use wasmrun_store::{Form, Store, StoreConfig};
//!
//! let store = Store::open(StoreConfig::new(64 << 20))?;
//! let id = ObjectId::of(DriverId::from_bytes([7; 16]).task(0), 0);
//! let mut writer = store.try_create(&TenantName::default(), id, 5, Form::Postcard)?;
//! writer.copy_from(b"hello");
//! let object = writer.seal();
//! assert_eq!(&*object.view()?, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From the bottom, each folder using only those before it: `segment` maps memory (the only `unsafe` code), in files of
//! `segment/folder` where that is asked for; `arena` gives it out; `state` knows every object and who waits, behind one
//! lock, and says why something cannot be had. Above them `disk` spills; `store`, `create` and `object` are what callers
//! hold; `share` and `staging` are for other processes.
//!
//! Invariants: a sealed object never changes. What is used and what is free add up to the capacity.
//! No byte of one tenant reaches another. Nothing that is referred to is lost, except secondary
//! copies. No lock is held while bytes move, disks work or somebody is woken.

mod arena;
mod config;
mod create;
mod disk;
mod object;
mod segment;
mod share;
mod staging;
mod state;
mod store;

pub use config::{Backing, OpenError, SpillConfig, StoreConfig};
pub use create::{Ahead, CreateFuture, Writer};
pub use object::{Object, Pages, RestoreFuture, View};
pub use segment::SegmentNumber;
pub use share::{
    Beside, ClientView, Place, PrivateView, SegmentWatch, Segments, receive, send, send_beside,
};
pub use staging::{Staging, StagingWriter};
pub use state::{
    Copy, CreateError, Form, Fullness, ObjectInfo, ObjectPlace, PartUsed, QuotaUsed, ReadError,
    TenantLimits, TenantUsage, Usage,
};
pub use store::Store;
