//! What a node is put together from.
//!
//! Owns [`Parts`] and how [`Shared`] is made of them, for nodes of this process and for those of the simulation. Must not:
//! start threads, or anything that runs.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use wasmrun_engine::Engine;
use wasmrun_model::resource::NodeResources;
use wasmrun_model::scheduler::NodeInfo;
use wasmrun_store::Store;

use crate::counters::Counters;
use crate::deadlock::WaitNumbers;
use crate::executor::Spawner;
use crate::ids::Ids;
use crate::ledger::Ledger;
use crate::names::Names;
use crate::node::Shared;
use crate::object::WaitingBytes;
use crate::policy::Policy;
use crate::task::Home;

/// How many modules are loaded at a time: a part of the threads that may block, so that slow ones of one tenant leave the
/// control store and other tenants theirs.
const MOST_LOADING: usize = 128;

/// Arguments that wait may take this part of what objects may.
const WAITING_PART: u64 = 4;

/// See the [module](self).
pub(crate) struct Parts {
    pub(crate) info: NodeInfo,
    pub(crate) resources: NodeResources,
    /// How many tasks may run at a time, whatever they ask for.
    pub(crate) max_running: u32,
    pub(crate) engine: Engine,
    pub(crate) spawner: Spawner,
    pub(crate) store: Store,
    pub(crate) room_patience: Duration,
    pub(crate) policy: Policy,
    pub(crate) control: Handle,
    /// What its ids follow from.
    pub(crate) random: [u8; 16],
}

impl Shared {
    /// A node that runs nothing yet and is in no cluster.
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let object_memory = parts.store.usage().capacity_bytes;
        let (id, name) = (parts.info.id, parts.info.name.as_str().into());
        let ledger = Ledger::new(parts.info, parts.resources, parts.max_running);
        Arc::new(Self {
            name,
            engine: parts.engine,
            loading: Arc::new(Semaphore::new(MOST_LOADING)),
            spawner: parts.spawner,
            home: Home::new(id),
            outbox: ledger.outbox(),
            ledger: Mutex::new(ledger),
            store: parts.store,
            room_patience: parts.room_patience,
            policy: Arc::new(parts.policy),
            control: parts.control,
            names: Names::default(),
            waiting_bytes: WaitingBytes::new(object_memory / WAITING_PART),
            ids: Ids::new(parts.random),
            waits: WaitNumbers::default(),
            counters: Counters::default(),
            desk: Mutex::default(),
            is_looking: AtomicBool::new(false),
            is_ticking: AtomicBool::new(false),
            cluster: OnceLock::new(),
            exchange: OnceLock::new(),
            #[cfg(test)]
            guests: OnceLock::new(),
        })
    }
}
