//! wasmtime's settings: the engines that modules run on.
//!
//! One size does not fit all, and these settings hold for a whole wasmtime engine:
//!
//! - *fast*: data is copied into the memory at start. The least work per task for modules with
//!   little data (`docs/decisions/engines.md` has figures).
//! - *image*: memories are mapped copy-on-write from the module's image. For modules with more
//!   data, such as those that carry a JavaScript or Python interpreter.
//! - *concurrent*: as *image*, with the component model's async. It costs every call a little,
//!   so only modules that use it pay.
//!
//! All use the pooling allocator, epochs, and Cranelift only. Threads (shared memories) and
//! garbage-collected heaps are not even compiled in: they would escape the account of a task's
//! memory.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use wasmtime::component;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::EngineConfig;
use crate::room::{MOST_MEMORIES, MOST_TABLES, Room};
use crate::state::TaskState;
use crate::ticker::Ticker;

/// Which settings a module runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Flavor {
    /// Memory kept resident, data copied.
    Fast,
    /// Memory mapped from the module's image.
    Image,
    /// With the component model's async.
    Concurrent,
}

/// Modules with this much data or more run copy-on-write, in bytes. Measured: from here on,
/// copying the data costs more than restoring the pages of an image that a task wrote to.
pub(crate) const IMAGE_DATA_BYTES: usize = 64 << 10;

/// How much of a memory that a task wrote to is restored in place for the next one, in bytes.
/// The rest goes back to the kernel, and each of its pages then costs a fault.
const KEPT_BYTES: usize = 2 << 20;
/// The same where the kernel cannot tell which pages were written to: then all of them are
/// restored, so fewer are kept.
const KEPT_UNSCANNED_BYTES: usize = 256 << 10;

/// A module's largest memory, in bytes.
const MEMORY_BYTES: usize = 4 << 30;
/// A module's largest table, in entries.
const TABLE_ENTRIES: usize = 1 << 17;
/// The most core instances that one sandbox may have.
const MOST_CORE_INSTANCES: u32 = 256;
/// With this many, the three engines' memories still fit into 47 bits of address space.
const MOST_SANDBOXES: u32 = 5_000;
/// How many slots that are not in use keep their memory.
const WARM_SLOTS: u32 = 100;
/// Host calls run on the guest's stack: this much beyond what the guest may use, in bytes.
const HOST_STACK_BYTES: usize = 1 << 20;

/// A wasmtime engine and what modules on it may import, which `host` says.
pub(crate) struct Runtime {
    pub(crate) engine: wasmtime::Engine,
    /// What there is for its sandboxes.
    pub(crate) room: Arc<Room>,
    /// A hash of everything that compiled code depends on: wasmtime's version, settings, target.
    pub(crate) compatibility: [u8; 32],
    pub(crate) concurrent: bool,
    pub(crate) components: OnceLock<component::Linker<TaskState>>,
    pub(crate) core: OnceLock<wasmtime::Linker<TaskState>>,
}

/// Feeds what wasmtime hashes into BLAKE3: unlike `std`'s hashers, the same in every release.
struct StableHasher(blake3::Hasher);

impl Hasher for StableHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("only the whole hash is used")
    }
}

/// Why an engine could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A setting is out of its range.
    #[error("{what} must be {range}, not {value}")]
    Setting {
        /// Which setting.
        what: &'static str,
        /// What it may be.
        range: &'static str,
        /// What it was.
        value: u64,
    },
    /// wasmtime refuses, for example because address space is limited.
    #[error(
        "cannot reserve address space for {sandboxes} sandboxes: {reason}; allow fewer with \
         --max-sandboxes, or lift the limit on virtual memory (ulimit -v unlimited)"
    )]
    Reserve {
        /// How many sandboxes were to fit.
        sandboxes: u32,
        /// wasmtime's reason.
        reason: String,
    },
}

/// What is in use of the pools that sandboxes are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// Linear memories that sandboxes have.
    pub memories: u64,
    /// Tables that they have.
    pub tables: u64,
    /// Stacks: one for each sandbox.
    pub stacks: u64,
    /// Memories that nobody has and that keep their pages, for whoever comes next.
    pub warm_memories: u64,
}

/// The engines, each made when the first module needs it.
pub(crate) struct Flavors {
    config: EngineConfig,
    made: [OnceLock<Runtime>; 3],
}

impl Flavors {
    pub(crate) fn new(config: &EngineConfig) -> Result<Self, EngineError> {
        let setting = |what, range, value: u64, ok: bool| {
            ok.then_some(())
                .ok_or(EngineError::Setting { what, range, value })
        };
        let (stack, sandboxes) = (config.stack_bytes, config.max_sandboxes);
        let ok = (64 << 10..=64 << 20).contains(&stack);
        setting("the stack limit", "64 KiB to 64 MiB", stack as u64, ok)?;
        let ok = (1..=MOST_SANDBOXES).contains(&sandboxes);
        setting(
            "the number of sandboxes",
            "1 to 5,000",
            sandboxes.into(),
            ok,
        )?;
        Ok(Self {
            config: config.clone(),
            made: Default::default(),
        })
    }

    /// The engine with these settings.
    pub(crate) fn get(&self, flavor: Flavor, ticker: &Ticker) -> Result<&Runtime, EngineError> {
        let slot = &self.made[flavor as usize];
        if let Some(runtime) = slot.get() {
            return Ok(runtime);
        }
        let runtime = self.make(flavor)?;
        // Two threads may get here at once; only the engine that stays needs ticks.
        Ok(slot.get_or_init(|| {
            ticker.add(&runtime.engine);
            runtime
        }))
    }

    /// What is in use of the pools of the engines that were made.
    pub(crate) fn usage(&self) -> PoolUsage {
        let made = self.made.iter().filter_map(OnceLock::get);
        let pools = made.filter_map(|it| it.engine.pooling_allocator_metrics());
        let mut usage = PoolUsage::default();
        for pool in pools {
            usage.memories += pool.memories() as u64;
            usage.tables += pool.tables() as u64;
            usage.stacks += pool.stacks() as u64;
            usage.warm_memories += u64::from(pool.unused_warm_memories());
        }
        usage
    }

    fn make(&self, flavor: Flavor) -> Result<Runtime, EngineError> {
        let sandboxes = self.config.max_sandboxes;
        let reserve = |error: wasmtime::Error| EngineError::Reserve {
            sandboxes,
            reason: format!("{error:#}"),
        };
        let engine = wasmtime::Engine::new(&self.wasmtime(flavor)).map_err(reserve)?;
        let mut hasher = StableHasher(blake3::Hasher::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Runtime {
            engine,
            room: Room::new(self.memories(), self.tables()),
            compatibility: *hasher.0.finalize().as_bytes(),
            concurrent: flavor == Flavor::Concurrent,
            components: OnceLock::new(),
            core: OnceLock::new(),
        })
    }

    fn wasmtime(&self, flavor: Flavor) -> Config {
        let concurrent = flavor == Flavor::Concurrent;
        let mut config = Config::new();
        config
            .epoch_interruption(true)
            .max_wasm_stack(self.config.stack_bytes)
            .async_stack_size(self.config.stack_bytes + HOST_STACK_BYTES)
            .memory_init_cow(flavor != Flavor::Fast)
            .concurrency_support(concurrent)
            .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Enable)
            .allocation_strategy(InstanceAllocationStrategy::Pooling(self.pool()));
        config
    }

    /// On average two memories a sandbox, and room for the largest one beside all others: who finds too
    /// few left waits, and would wait for ever if it could not fit at all.
    fn memories(&self) -> u32 {
        self.config.max_sandboxes * 2 + MOST_MEMORIES
    }

    /// The same for tables.
    fn tables(&self) -> u32 {
        self.config.max_sandboxes * 4 + MOST_TABLES
    }

    fn pool(&self) -> PoolingAllocationConfig {
        let n = self.config.max_sandboxes;
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(n)
            // They are only counted, and there are always enough: nobody is to find that there are too few
            // when some of its own are there already (see `room`).
            .total_core_instances(n * MOST_CORE_INSTANCES)
            .total_memories(self.memories())
            .total_tables(self.tables())
            .total_stacks(n)
            .max_memory_size(MEMORY_BYTES)
            .table_elements(TABLE_ENTRIES)
            .max_memories_per_module(MOST_MEMORIES)
            .max_memories_per_component(MOST_MEMORIES)
            .max_tables_per_module(MOST_TABLES)
            .max_tables_per_component(MOST_TABLES)
            .max_core_instances_per_component(MOST_CORE_INSTANCES)
            .max_core_instance_size(4 << 20)
            .max_component_instance_size(8 << 20)
            // Each may keep some MiB of memory that has been touched.
            .max_unused_warm_slots(WARM_SLOTS)
            .pagemap_scan(Enabled::Auto);
        pool.linear_memory_keep_resident(match has_pagemap_scan() {
            true => KEPT_BYTES,
            false => KEPT_UNSCANNED_BYTES,
        })
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10);
        pool
    }
}

impl fmt::Debug for Flavors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flavors").finish_non_exhaustive()
    }
}

/// Whether the kernel can tell which pages a sandbox has touched, which makes clearing it cheap.
pub fn has_pagemap_scan() -> bool {
    PoolingAllocationConfig::is_pagemap_scan_available()
}
