//! Runs wasm modules in sandboxes: one fresh instance per task, limits that hold, nothing granted
//! by default.
//!
//! Owns: loading modules (`load`), compiled code on disk (`cache`), wasmtime and its settings
//! (`flavor`), what guests may import (`host`) and how that is put to the node (`services`), the
//! limits of one task (`limits`), the threads that it may block (`blocking`), its output and input (`stdio`),
//! the run itself (`run`), and instances that live on as actors (`actor`). Must not: decide what runs when or
//! where (`node` does), know of networks or stores.
//!
//! Invariants: an instance serves one task, or one actor, and is never used again; compiled code is only ever
//! code that this machine's compiler produced; a future of a running task may be dropped at any
//! time, which ends the task.

mod actor;
mod blocking;
mod cache;
mod call;
mod class;
mod compile;
mod direct;
mod exports;
mod fault;
mod flavor;
mod handle;
mod host;
mod http;
mod http_answer;
mod http_body;
mod http_send;
mod input;
mod limits;
mod listener;
mod load;
mod lookup;
mod module;
mod passed;
mod prefault;
mod raw;
mod room;
mod run;
mod secret_files;
pub mod section;
mod services;
mod spare;
mod state;
mod stdio;
mod task_store;
mod ticker;
mod types;
mod windows;

use std::path::PathBuf;
use std::sync::Arc;

pub use crate::actor::{ActorCall, ActorInstance, Birth, Origin as ActorOrigin};
pub use crate::cache::CacheStatus;
pub use crate::class::{Class, ClassIndex, Method, MethodIndex};
pub use crate::compile::{CompileError, Compiler, Task as CompileTask, compile_as_told};
pub use crate::flavor::{EngineError, PoolUsage, has_pagemap_scan};
pub use crate::http_answer::HttpExchange;
pub use crate::http_body::{HttpBody, HttpError, patient_body};
pub use crate::input::{Feed, Input, Intake, intake};
pub use crate::limits::Limits;
pub use crate::listener::{Listener, OutputChunk, OutputLog, OutputSource};
pub use crate::load::{LoadError, Origin, wit_text};
pub use crate::module::{Entry, Function, FunctionIndex, LookupError, Module, Program, Skipped};
pub use crate::run::{Invocation, Outcome};
pub use crate::secret_files::{SecretFile, sweep as sweep_secrets};
pub use crate::services::{
    Alone, GuestArgument, HandleSlot, Pages, Pause, Readable, ServiceError, Services, Spares,
    Waiting, Wishes,
};
pub use crate::state::{DirGrant, GrantError, Grants, HeldResource, NetGrant, TaskContext};
pub use crate::stdio::TaskOutput;

use crate::cache::CodeCache;
use crate::flavor::Flavors;
use crate::ticker::Ticker;

/// What an [`Engine`] is made with.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Where compiled code is kept; `None` keeps none.
    pub cache_dir: Option<PathBuf>,
    /// How much compiled code to keep on disk, in bytes. The least recently used goes first.
    pub cache_bytes: u64,
    /// How much stack a guest's calls may use, in bytes (64 KiB to 64 MiB).
    pub stack_bytes: usize,
    /// The largest module to accept, in bytes.
    pub module_bytes: usize,
    /// How many sandboxes may exist at a time (1 to 5,000).
    pub max_sandboxes: u32,
    /// The process that compiles modules, with its limits. `None`: they are compiled in this process, where
    /// nothing limits what that takes.
    pub compiler: Option<Compiler>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            cache_dir: None,
            cache_bytes: 4 << 30,
            stack_bytes: 1 << 20,
            module_bytes: 256 << 20,
            max_sandboxes: 1000,
            compiler: None,
        }
    }
}

/// Loads modules and runs tasks. Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine(Arc<EngineInner>);

pub(crate) struct EngineInner {
    pub(crate) config: EngineConfig,
    pub(crate) flavors: Flavors,
    pub(crate) cache: CodeCache,
    pub(crate) ticker: Ticker,
}

impl Engine {
    /// An engine with these settings. Nothing is compiled or reserved until a module needs it.
    ///
    /// # Errors
    /// When a setting is out of its range.
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        let flavors = Flavors::new(&config)?;
        let cache = CodeCache::new(config.cache_dir.clone(), config.cache_bytes);
        Ok(Self(Arc::new(EngineInner {
            config,
            flavors,
            cache,
            ticker: Ticker::new(),
        })))
    }

    /// What is in use of the pools that sandboxes are made from, by all engines together.
    pub fn pool_usage(&self) -> PoolUsage {
        self.0.flavors.usage()
    }

    /// Memory that guests of this process have, as they see it, in bytes: linear memories and tables, whether
    /// their pages were touched or not.
    pub fn guest_memory_bytes() -> u64 {
        limits::in_use()
    }

    /// Loads a module: checks it, compiles it or takes its code from the cache, and finds out
    /// what it exports.
    ///
    /// Compiling takes seconds for large modules and uses all cores: don't call this from a
    /// thread that must not block.
    ///
    /// # Errors
    /// When the bytes are no module that can run here; the error says what is wrong.
    pub fn load(&self, bytes: &[u8]) -> Result<Module, LoadError> {
        load::load(&self.0, bytes)
    }

    /// Runs a task in a fresh sandbox, to its end or until the future is dropped.
    ///
    /// Must be polled inside a tokio context (timers and sockets of the guest need one). The
    /// future gives way to others every few milliseconds even while the guest is busy.
    ///
    /// # Errors
    /// Whatever made the task fail.
    pub fn run(
        &self,
        invocation: Invocation<'_>,
    ) -> impl Future<Output = Result<Outcome, wasmrun_model::failure::TaskError>> {
        run::run(&self.0, invocation)
    }

    /// Creates an actor in a sandbox of its own, which it keeps until it is dropped.
    ///
    /// Must be polled inside a tokio context, as [`Engine::run`].
    ///
    /// # Errors
    /// Whatever made its constructor fail.
    pub fn create_actor(
        &self,
        birth: Birth<'_>,
    ) -> impl Future<Output = Result<ActorInstance, wasmrun_model::failure::TaskError>> {
        actor::create(&self.0, birth)
    }

    /// The settings that the engine was made with.
    pub fn config(&self) -> &EngineConfig {
        &self.0.config
    }

    /// Whether compiled code can be kept, and where.
    pub fn cache_status(&self) -> CacheStatus {
        self.0.cache.status()
    }
}
