//! One task: a fresh sandbox, one call, and what came of it.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use wasmrun_model::failure::{Frame, LimitHit, LimitKind, TaskError};
use wasmrun_model::value::{Encoded, EncodedRef, Handle};
use wasmtime::component::{ComponentExportIndex, Func, Instance, Val};
use wasmtime::{Store, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::EngineInner;
use crate::call::{CallPlan, Callee, Returned, Target, call, call_fast, check_arguments};
use crate::limits::Limits;
use crate::module::{Entry, Function, Linked, Module};
use crate::room::Room;
use crate::services::Services;
use crate::state::{Grants, Setup, TaskContext, TaskState};
use crate::stdio::{Input, TaskOutput};
use crate::task_store::TaskStore;

/// Everything that one run needs.
pub struct Invocation<'a> {
    /// The module.
    pub module: &'a Module,
    /// What of it to run.
    pub entry: Entry,
    /// The arguments of a function, encoded by its parameters' types.
    pub values: &'a [EncodedRef<'a>],
    /// The arguments of a program, its name first.
    pub args: &'a [String],
    /// Who runs.
    pub context: Arc<TaskContext>,
    /// What it may reach.
    pub grants: &'a Grants,
    /// What it may use.
    pub limits: &'a Limits,
    /// Where its output goes.
    pub output: &'a Arc<TaskOutput>,
    /// What it reads.
    pub input: Input,
    /// Who answers when it asks for tasks, objects and actors.
    pub services: Arc<dyn Services>,
}

/// What came of a run that did not fail.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The function's result, encoded by its result type; `None` for programs and for functions
    /// without a result.
    pub result: Option<Encoded>,
    /// Handles in the result that the guest no longer has. The node still counts them for it.
    pub handles: Vec<Handle>,
    /// The most that the task's memories and tables came to, in bytes.
    pub memory_peak: u64,
}

pub(crate) async fn run(
    engine: &EngineInner,
    invocation: Invocation<'_>,
) -> Result<Outcome, TaskError> {
    let time = invocation.limits.time;
    within(time, pin!(run_unhurried(engine, invocation))).await
}

/// What `running` comes to, if that takes no longer than `time`. It stays where it was made: such a future has
/// some kilobytes, which would be copied at each step of its way.
pub(crate) async fn within<T>(
    time: Option<Duration>,
    running: Pin<&mut impl Future<Output = Result<T, TaskError>>>,
) -> Result<T, TaskError> {
    let Some(limit) = time else {
        return running.await;
    };
    match tokio::time::timeout(limit, running).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let limit = limit.as_millis().try_into().unwrap_or(u64::MAX);
            let hit = LimitHit {
                kind: LimitKind::Time,
                limit,
                wanted: None,
            };
            Err(TaskError::Limit {
                hit,
                frames: Vec::new(),
            })
        }
    }
}

async fn run_unhurried(
    engine: &EngineInner,
    invocation: Invocation<'_>,
) -> Result<Outcome, TaskError> {
    let Invocation {
        module,
        entry,
        values,
        args,
        context,
        grants,
        limits,
        output,
        input,
        services,
    } = invocation;
    let setup = Setup {
        module,
        context,
        grants,
        args,
        limits,
        output,
        input,
        services,
    };
    let mut sandbox = Sandbox::new(engine, setup)?;
    let _ticking = engine.ticker.start();
    let returned = match entry {
        Entry::Function(index) => {
            let function = module.function(index);
            pin!(sandbox.run_function(function, values, limits)).await?
        }
        Entry::Program => {
            sandbox.run_program().await?;
            Returned {
                value: None,
                handles: Vec::new(),
            }
        }
    };
    Ok(Outcome {
        result: returned.value,
        handles: returned.handles,
        memory_peak: sandbox.store.data().limiter.used(),
    })
}

/// How many handles a sandbox may have: some tens of bytes each, on the host.
const MOST_HANDLES: usize = 1 << 19;
/// What wasmtime says when there are more. Its error has no type that could be asked for.
const OUT_OF_HANDLES: &str = "store handle limit exceeded";

/// A store that is about to hold one instance.
pub(crate) struct Sandbox {
    pub(crate) store: TaskStore,
    module: Module,
    stack_bytes: usize,
    /// What host calls may copy.
    fuel: usize,
    room: Arc<Room>,
}

fn new_store(engine: &wasmtime::Engine, state: TaskState, fuel: usize) -> TaskStore {
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.limiter);
    store.set_max_component_handles(MOST_HANDLES);
    store.set_epoch_deadline(1);
    store.epoch_deadline_async_yield_and_update(1);
    store.set_hostcall_fuel(fuel);
    TaskStore::new(store)
}

impl Sandbox {
    pub(crate) fn new(engine: &EngineInner, setup: Setup<'_>) -> Result<Self, TaskError> {
        let (module, limits) = (setup.module.clone(), setup.limits);
        let runtime = engine
            .flavors
            .get(module.0.facts.flavor, &engine.ticker)
            .map_err(|error| TaskError::Sandbox(error.to_string()))?;
        let state = setup.into_state()?;
        let fuel = limits
            .arguments
            .saturating_add(limits.result)
            .max(128 << 20);
        let fuel = usize::try_from(fuel).unwrap_or(usize::MAX);
        Ok(Self {
            store: new_store(&runtime.engine, state, fuel),
            module,
            stack_bytes: engine.config.stack_bytes,
            fuel,
            room: runtime.room.clone(),
        })
    }

    /// Waits until the pool has what the module needs.
    async fn find_room(&mut self) {
        if !self.store.has_place() {
            let place = self.room.take(self.module.0.needs).await;
            self.store.set_place(place);
        }
    }

    /// Gives back what an instance took that did not come to be, and begins anew. Nothing of the guest
    /// has run by then: memories and tables are there before the first of its functions, and of all else
    /// the pool has so many that only the first thing of an instance can be missing.
    fn renew(&mut self) -> Result<(), TaskError> {
        let gone = || TaskError::Sandbox("its memory could not be given back".into());
        let engine = self.store.engine().clone();
        let mut state = self.store.take_data().ok_or_else(gone)?;
        state.limiter = state.limiter.renewed();
        self.store = new_store(&engine, state, self.fuel);
        Ok(())
    }

    /// The module's instance, made now.
    pub(crate) async fn instantiate(&mut self) -> Result<Instance, TaskError> {
        let module = self.module.clone();
        let Linked::Component { pre, .. } = &module.0.code else {
            return Err(TaskError::Sandbox(
                "a core module has no typed functions".into(),
            ));
        };
        loop {
            self.find_room().await;
            match pre.instantiate_async(&mut self.store).await {
                Ok(instance) => return Ok(instance),
                Err(error) if is_full(&error) => {
                    self.renew()?;
                    wait_for_slot().await;
                }
                Err(error) => return Err(self.failure(error)),
            }
        }
    }

    /// Calls a function in a new instance.
    pub(crate) async fn run_function(
        &mut self,
        function: &Function,
        values: &[EncodedRef<'_>],
        limits: &Limits,
    ) -> Result<Returned, TaskError> {
        check_arguments(&function.ty, values, limits)?;
        let instance = pin!(self.instantiate()).await?;
        if let (CallPlan::Fast, Some(lane)) = (function.plan, self.module.fast_lane()) {
            let (lane, name) = (*lane, function.full_name());
            let (target, ty) = (Target::Function(&name), &function.ty);
            return pin!(call_fast(self, instance, &lane, target, ty, values, limits)).await;
        }
        let callee = Callee {
            func: self.export(&instance, function.export, &function.name)?,
            receiver: None,
            ty: &function.ty,
            plan: function.plan,
        };
        pin!(call(self, callee, values, limits)).await
    }

    /// An exported function of the instance.
    pub(crate) fn export(
        &mut self,
        instance: &Instance,
        export: ComponentExportIndex,
        name: &str,
    ) -> Result<Func, TaskError> {
        let func = instance.get_func(&mut self.store, export);
        func.ok_or_else(|| TaskError::Sandbox(format!("the export {name} is gone")))
    }

    async fn run_program(&mut self) -> Result<(), TaskError> {
        let module = self.module.clone();
        match &module.0.code {
            Linked::Core { pre } => {
                let instance = loop {
                    self.find_room().await;
                    match pre.instantiate_async(&mut self.store).await {
                        Ok(instance) => break instance,
                        Err(error) if is_full(&error) => {
                            self.renew()?;
                            wait_for_slot().await;
                        }
                        Err(error) => return ended(self.failure(error)),
                    }
                };
                let start = instance.get_typed_func::<(), ()>(&mut self.store, "_start");
                let start = start.map_err(|error| self.failure(error))?;
                match start.call_async(&mut self.store, ()).await {
                    Ok(()) => Ok(()),
                    Err(error) => ended(self.failure(error)),
                }
            }
            Linked::Component { run, .. } => {
                let run = run
                    .as_ref()
                    .ok_or_else(|| TaskError::Sandbox("the component has no program".into()))?;
                let instance = match self.instantiate().await {
                    Ok(instance) => instance,
                    Err(error) => return ended(error),
                };
                let func = instance.get_func(&mut self.store, run).ok_or_else(|| {
                    TaskError::Sandbox("the component's wasi:cli/run has no function".into())
                })?;
                let mut result = [Val::Bool(false)];
                match func.call_async(&mut self.store, &[], &mut result).await {
                    Ok(()) if matches!(result, [Val::Result(Err(_))]) => Err(self.exit(1)),
                    Ok(()) => Ok(()),
                    Err(error) => ended(self.failure(error)),
                }
            }
        }
    }

    fn exit(&self, code: i32) -> TaskError {
        TaskError::Exit {
            code,
            limit: self.store.data().limiter.hit(),
        }
    }

    /// What an error of wasmtime means for the task.
    pub(crate) fn failure(&self, error: wasmtime::Error) -> TaskError {
        let frames = error
            .downcast_ref::<WasmBacktrace>()
            .map(frames)
            .unwrap_or_default();
        if let Some(I32Exit(code)) = error.downcast_ref() {
            return self.exit(*code);
        }
        if let Some(hit) = error.downcast_ref::<LimitHit>() {
            return TaskError::Limit {
                hit: hit.clone(),
                frames,
            };
        }
        let trap = error.downcast_ref::<Trap>();
        if trap == Some(&Trap::StackOverflow) {
            let limit = self.stack_bytes as u64;
            let hit = LimitHit {
                kind: LimitKind::Stack,
                limit,
                wanted: None,
            };
            return TaskError::Limit { hit, frames };
        }
        // A guest that was refused memory usually gives up with `unreachable`, or goes on with a
        // null pointer; an instance that was refused it does not come to be.
        let gives_up = matches!(
            trap,
            None | Some(Trap::UnreachableCodeReached | Trap::MemoryOutOfBounds)
        );
        if let Some(hit) = self.store.data().limiter.hit().filter(|_| gives_up) {
            return TaskError::Limit { hit, frames };
        }
        match trap {
            Some(trap) => TaskError::Trap {
                message: trap.to_string(),
                frames,
            },
            None => match format!("{error:#}") {
                text if text.contains(OUT_OF_HANDLES) => TaskError::Trap {
                    message: format!(
                        "it has {MOST_HANDLES} handles, as many as a sandbox may; drop those that are not needed"
                    ),
                    frames,
                },
                text => TaskError::Sandbox(text),
            },
        }
    }
}

/// A program that exits with 0 did not fail.
fn ended(error: TaskError) -> Result<(), TaskError> {
    match error {
        TaskError::Exit { code: 0, .. } => Ok(()),
        error => Err(error),
    }
}

/// How deep a backtrace is kept: the innermost frames tell what happened.
const MAX_FRAMES: usize = 64;

fn frames(backtrace: &WasmBacktrace) -> Vec<Frame> {
    let frames: Vec<Frame> = backtrace
        .frames()
        .iter()
        .map(|frame| Frame {
            function: match frame.func_name() {
                // The short form, without hashes.
                Some(name) => format!("{:#}", rustc_demangle::demangle(name)),
                None => format!("function {}", frame.func_index()),
            },
            location: frame.symbols().last().and_then(|symbol| {
                let (file, line) = (symbol.file()?, symbol.line()?);
                Some(format!("{file}:{line}"))
            }),
        })
        .collect();
    // What Rust does to panic is the same each time: begin with who panicked.
    let is_panic = |frame: &Frame| {
        frame.function.contains("rust_begin_unwind") || frame.function.contains("core::panicking::")
    };
    let start = frames.iter().rposition(is_panic).map_or(0, |last| last + 1);
    frames.into_iter().skip(start).take(MAX_FRAMES).collect()
}

/// Whether the pool had no room. Tasks are admitted by count, but a sandbox that has ended may still be
/// on its way back.
fn is_full(error: &wasmtime::Error) -> bool {
    error.is::<wasmtime::PoolConcurrencyLimitError>()
}

async fn wait_for_slot() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}
