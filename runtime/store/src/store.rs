//! The store: what callers hold.
//!
//! Owns how a store is put together from its settings: the arena, the state, and the thread that spills. Must not:
//! decide anything about objects.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use wasmrun_model::fairness::{TenantName, Weight};
use wasmrun_model::id::ObjectId;

use crate::arena::Arena;
use crate::config::{OpenError, StoreConfig};
use crate::create::{CreateFuture, Writer};
use crate::disk::{self, SpillDir};
use crate::object::Object;
use crate::segment::{Backing, folder};
use crate::state::{
    Core, CreateError, Disk, DiskThread, Form, Job, ObjectInfo, Request, Shared, State, Usage,
};

/// The object store of a node. A clone is another reference to the same store; the store lives as
/// long as it, its objects and its views do. When the last of them goes, that waits for the thread
/// that spills to finish what it is doing, and removes its files.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

impl Store {
    /// Opens a store. It takes no memory for objects before there are objects.
    ///
    /// With spilling it starts a thread, `wasmrun-spill`, and removes from the spill folder what
    /// processes that died have left there.
    ///
    /// # Errors
    /// When the capacity is less than a page, or a folder cannot be used.
    pub fn open(config: StoreConfig) -> Result<Self, OpenError> {
        config.check()?;
        if let Backing::Dir(dir) = &config.backing {
            folder::open(dir).map_err(|source| OpenError::ObjectDir {
                dir: dir.clone(),
                source,
            })?;
        }
        let Some(spill) = &config.spill else {
            let core = Arc::new(core_of(&config, None));
            return Ok(Self(Arc::new(Shared::new(core, None))));
        };
        let dir = SpillDir::create(&spill.dir).map_err(|source| OpenError::SpillDir {
            dir: spill.dir.clone(),
            source,
        })?;
        let (jobs, receiver) = channel();
        let core = Arc::new(core_of(&config, Some(jobs)));
        let weak = Arc::downgrade(&core);
        let thread = std::thread::Builder::new()
            .name("wasmrun-spill".into())
            .spawn(move || disk::run(dir, &receiver, &weak))
            .map_err(|source| OpenError::Thread { source })?;
        let disk = DiskThread::new(thread);
        Ok(Self(Arc::new(Shared::new(core, Some(disk)))))
    }

    /// Removes what is on disk, for good: it can no more be read, and nothing more is spilled. For a node that ends while
    /// somebody has a reference to the store still. Waits for what the disk is doing.
    pub fn end_spilling(&self) {
        let (ended, end) = channel();
        self.0.with(|state| state.end_disk(ended));
        // Nothing is ever sent: this is the end of the sender, which is there at once without a disk.
        let _ = end.recv();
    }

    /// Creates an object if there is room now, or secondary copies can make room. Never waits, and
    /// does not overtake those who do. It may have to give memory back to the system first, which
    /// takes some 0.1 s for a GiB.
    ///
    /// # Errors
    /// [`CreateError::Exists`] when the id is taken, by an unfinished object too;
    /// [`CreateError::Full`] when there is no room now; [`CreateError::TooLarge`] and [`CreateError::AboveQuota`] when there
    /// never will be.
    pub fn try_create(
        &self,
        tenant: &TenantName,
        id: ObjectId,
        len_bytes: u64,
        form: Form,
    ) -> Result<Writer, CreateError> {
        let request = Request {
            tenant: tenant.clone(),
            id,
            len: len_bytes,
            form,
        };
        let grant = self.0.with(|state| state.try_create(&request))?;
        Writer::new(self.0.clone(), request, grant)
    }

    /// Creates an object as soon as there is room: others are spilled for it, or go. First come,
    /// first served within a tenant; between tenants who has least of its part is first. The future never says [`CreateError::Full`]; put a limit on the time around
    /// it, and when that has passed say [`CreateFuture::error`]. It does nothing before it is
    /// polled, and can be dropped at any time.
    pub fn create(
        &self,
        tenant: &TenantName,
        id: ObjectId,
        len_bytes: u64,
        form: Form,
    ) -> CreateFuture {
        let request = Request {
            tenant: tenant.clone(),
            id,
            len: len_bytes,
            form,
        };
        CreateFuture::new(self.0.clone(), request)
    }

    /// Says how much a tenant counts beside others when they share the memory, by default 1, and how many bytes of objects
    /// it may have there with all that are part of it, by default any number. What is there stays.
    pub fn set_tenant(&self, tenant: &TenantName, weight: Weight, max_bytes: Option<u64>) {
        self.0
            .with(|state| state.set_tenant(tenant, weight, max_bytes));
    }

    /// A reference to a sealed object. A look-up: nothing is copied or read from disk.
    pub fn get(&self, id: &ObjectId) -> Option<Object> {
        let handle = self.0.with(|state| state.get(id))?;
        Some(Object::new(handle))
    }

    /// How full the store is. Takes a time that depends on the number of tenants only.
    pub fn usage(&self) -> Usage {
        self.0.with(|state| state.usage())
    }

    /// Every object, by id.
    pub fn objects(&self) -> Vec<ObjectInfo> {
        self.0.with(|state| state.objects())
    }

    /// Checks that every byte is accounted for, by looking at everything. For tests.
    ///
    /// # Panics
    /// If one is not.
    pub fn check(&self) {
        self.0.with(|state| state.check());
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the settings say, with the way to the thread that spills, if there is one.
fn core_of(config: &StoreConfig, jobs: Option<Sender<Job>>) -> Core {
    let StoreConfig {
        capacity_bytes,
        backing,
        spill,
        segment_bytes,
        patience,
    } = config;
    let arena = Arena::new(*capacity_bytes, *segment_bytes, backing.clone());
    let disk = spill.as_ref().zip(jobs);
    let disk = disk.map(|(spill, jobs)| Disk::new(spill.dir.clone(), spill.capacity_bytes, jobs));
    Core::new(State::new(arena, disk), *patience)
}

#[cfg(test)]
impl Store {
    /// A store whose disk is the test: it gets the jobs, and says what came of them.
    pub(crate) fn with_jobs(config: &StoreConfig) -> (Self, std::sync::mpsc::Receiver<Job>) {
        let (jobs, receiver) = channel();
        let core = Arc::new(core_of(config, Some(jobs)));
        (Self(Arc::new(Shared::new(core, None))), receiver)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}
