//! What one tenant gets while another wants all of the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use anyhow::Context;
use wasmrun_engine::{Entry, Grants, Module};
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{Encoded, Value};
use wasmrun_node::{Call, Job, Overrides};

use crate::bench::cases::Setting;
use crate::bench::serve::Stopping;
use crate::bench::{GUEST, Sample};
use crate::fail::Failure;

/// The program that writes.
const FLOOD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/flood.wasm"));
/// How many tasks the neighbour has: each may wait until a CPU is taken back for it.
const TASKS: usize = 100;
const THREADS_PER_CPU: u64 = 2;
const SPAWNED: u32 = 10_000;
/// 32 MiB of `f64`.
const NUMBERS: u32 = (32 << 20) / 8;
const MEMORY_BYTES: usize = 64 << 20;

/// What a hostile tenant does again and again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attack {
    /// Starts tasks.
    Spawn,
    /// Stores objects.
    Put,
    /// Takes memory, and returns it as a result.
    Memory,
    /// Writes.
    Output,
    /// Has modules compiled.
    Compile,
}

/// One time of it.
type Deed<'a> = Box<dyn Fn() -> Result<(), Failure> + Send + 'a>;

impl Setting {
    /// As `tasks_sync`, of which it is the sample, with fewer tasks.
    pub(super) fn beside(&self, attack: Attack) -> Result<Sample, Failure> {
        let deeds = (0..THREADS_PER_CPU * self.cpus()).map(|_| self.deed(attack));
        let deeds = deeds.collect::<Result<Vec<Deed<'_>>, Failure>>()?;
        let stop = AtomicBool::new(false);
        let (began, begun) = mpsc::channel();
        std::thread::scope(|scope| {
            let stopping = Stopping(&stop);
            let mut threads = Vec::new();
            for deed in deeds {
                let (began, stop) = (began.clone(), &stop);
                threads.push(scope.spawn(move || -> Result<(), Failure> {
                    let _ = began.send(());
                    while !stop.load(Ordering::Relaxed) {
                        deed()?;
                    }
                    Ok(())
                }));
            }
            begun.iter().take(threads.len()).for_each(drop);
            let sample = self.one_by_one(self.count(TASKS));
            drop(stopping);
            for thread in threads {
                thread.join().expect("a bench thread does not panic")?;
            }
            sample
        })
    }

    fn deed(&self, attack: Attack) -> Result<Deed<'_>, Failure> {
        let flow = || self.flow().context("the case needs --flow-module");
        let bytes = u32::try_from(self.bytes(MEMORY_BYTES)).expect("it is less than 4 GiB");
        match attack {
            Attack::Spawn => {
                let values = [Value::U32(self.count(SPAWNED))];
                self.call_of(&flow()?.1, "spawn-many", &values)
            }
            Attack::Put => {
                let count = Value::U32(self.count(NUMBERS));
                let values = [count, Value::Bool(false), Value::U32(1)];
                self.call_of(&flow()?.1, "sum-stored", &values)
            }
            Attack::Memory => self.call_of(&self.module, "make", &[Value::U32(bytes)]),
            Attack::Output => {
                let module = self.node.engine().load(FLOOD)?;
                self.task_of(&module, "flood", Entry::Program, Vec::new())
            }
            Attack::Compile => {
                let engine = self.node.engine();
                Ok(Box::new(move || -> Result<(), Failure> {
                    engine.load(&another())?;
                    Ok(())
                }))
            }
        }
    }

    /// A call of a function of the hostile tenant.
    fn call_of(
        &self,
        module: &Module,
        function: &str,
        values: &[Value],
    ) -> Result<Deed<'_>, Failure> {
        let index = module.find(function)?;
        let types = module.function(index).ty.params().iter();
        let values = types.zip(values).map(|((_, ty), it)| Ok(encode(ty, it)?));
        let values = values.collect::<Result<Vec<Encoded>, Failure>>()?;
        self.task_of(module, function, Entry::Function(index), values)
    }

    fn task_of(
        &self,
        module: &Module,
        name: &str,
        entry: Entry,
        values: Vec<Encoded>,
    ) -> Result<Deed<'_>, Failure> {
        let overrides = Overrides {
            tenant: "hostile".parse().expect("it is a name"),
            ..Overrides::default()
        };
        let job = Job::new(name, module, entry, &overrides, Grants::default())?;
        let (job, client) = (Arc::new(job), self.node.client());
        Ok(Box::new(move || -> Result<(), Failure> {
            let call = Call {
                values: values.iter().cloned().map(Into::into).collect(),
                ..Call::default()
            };
            client.submit(&job, call)?.wait().result?;
            Ok(())
        }))
    }
}

/// The built-in guest with a section that says nothing, so that it has not been compiled yet.
fn another() -> Vec<u8> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    // A custom section: its length, that of its name, the name, eight bytes.
    let section = [&[0, 11, 2][..], b"nr", &number].concat();
    [GUEST, &section].concat()
}
