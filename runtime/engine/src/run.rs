//! One task: a fresh sandbox, one call, and what came of it.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use wasmrun_model::failure::{LimitHit, LimitKind, TaskError};
use wasmrun_model::value::{Encoded, EncodedRef};
use wasmtime::component::{ComponentExportIndex, Func, Instance, Val};
use wasmtime::{Store, UpdateDeadline};

use crate::EngineInner;
use crate::blocking::{share, within_share};
use crate::call::{CallPlan, Callee, Returned, Target, call, call_fast, check_arguments};
use crate::input::Input;
use crate::limits::Limits;
use crate::module::{Entry, Function, Linked, Module};
use crate::room::Room;
use crate::services::{HandleSlot, Services};
use crate::state::{Grants, Setup, TaskContext, TaskState};
use crate::stdio::TaskOutput;
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
    pub handles: Vec<HandleSlot>,
    /// The most that the task's memories and tables came to, in bytes.
    pub memory_peak: u64,
}

pub(crate) async fn run(
    engine: &EngineInner,
    invocation: Invocation<'_>,
) -> Result<Outcome, TaskError> {
    let (time, services) = (invocation.limits.time, invocation.services.clone());
    let share = share(invocation.grants, &invocation.context.tenant);
    let running = pin!(run_unhurried(engine, invocation));
    let running = pin!(within_share(share, running));
    within(time, || services.paused(), running).await
}

/// How much later than it should a guest may be stopped that has been paused.
const LATE: Duration = Duration::from_millis(10);

/// Of what is never paused.
pub(crate) fn never_paused() -> Duration {
    Duration::ZERO
}

/// What `running` comes to, if that takes no longer than `time`, for which pauses do not count. It stays where it was made: such a future has
/// some kilobytes, which would be copied at each step of its way.
pub(crate) async fn within<T>(
    time: Option<Duration>,
    paused: impl Fn() -> Duration,
    mut running: Pin<&mut impl Future<Output = Result<T, TaskError>>>,
) -> Result<T, TaskError> {
    let Some(limit) = time else {
        return running.await;
    };
    let (mut left, mut counted) = (limit, Duration::ZERO);
    loop {
        if let Ok(outcome) = tokio::time::timeout(left, running.as_mut()).await {
            return outcome;
        }
        // While it is paused this grows, and it is looked again and again.
        let in_all = paused();
        if in_all <= counted {
            break;
        }
        left = (in_all - counted).max(LATE);
        counted = in_all;
    }
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
    let (input, exchange) = match input {
        Input::Http(exchange) => (Input::Empty, Some(*exchange)),
        input => (input, None),
    };
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
            Returned::default()
        }
        Entry::Http => {
            let exchange =
                exchange.ok_or_else(|| TaskError::Sandbox("there is no request".into()))?;
            pin!(sandbox.answer(exchange)).await?;
            Returned::default()
        }
    };
    sandbox.check_output()?;
    Ok(Outcome {
        result: returned.value,
        handles: returned.handles,
        memory_peak: sandbox.store.data().limiter.used(),
    })
}

/// How many handles a sandbox may have: some tens of bytes each, on the host.
pub(crate) const MOST_HANDLES: usize = 1 << 19;
/// The same of those of WASI: each may be headers or pieces of a body, up to 80 KiB on the host.
pub(crate) const MOST_WASI_HANDLES: usize = 1 << 14;

/// A store that is about to hold one instance.
pub(crate) struct Sandbox {
    pub(crate) store: TaskStore,
    pub(crate) module: Module,
    pub(crate) stack_bytes: usize,
    /// What the result of a call may have.
    pub(crate) result_bytes: u64,
    /// What host calls may copy.
    pub(crate) fuel: usize,
    room: Arc<Room>,
}

fn new_store(engine: &wasmtime::Engine, state: TaskState, fuel: usize) -> TaskStore {
    let handles = state.module.most_handles();
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.limiter);
    store.set_max_component_handles(handles);
    store.set_epoch_deadline(1);
    // This says, too, that the store is called in no other way than asynchronously.
    store.epoch_deadline_async_yield_and_update(1);
    store.epoch_deadline_callback(|store| {
        Ok(match store.data().services.pause() {
            None => UpdateDeadline::Yield(1),
            Some(pause) => UpdateDeadline::YieldCustom(1, pause),
        })
    });
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
            result_bytes: limits.result,
            fuel,
            room: runtime.room.clone(),
        })
    }

    /// Waits until the pool has what the module needs, but not for ever.
    async fn find_room(&mut self) -> Result<(), TaskError> {
        if !self.store.has_place() {
            let place = self.room.take(self.module.0.needs).await?;
            self.store.set_place(place);
        }
        Ok(())
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
            self.find_room().await?;
            match pre.instantiate_async(&mut self.store).await {
                Ok(instance) => {
                    self.store.data().services.sandbox_made();
                    return Ok(instance);
                }
                Err(error) if is_full(&error) => {
                    self.renew()?;
                    wait_for_slot().await;
                }
                Err(error) => return Err(self.unborn(error)),
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
                    self.find_room().await?;
                    match pre.instantiate_async(&mut self.store).await {
                        Ok(instance) => {
                            self.store.data().services.sandbox_made();
                            break instance;
                        }
                        Err(error) if is_full(&error) => {
                            self.renew()?;
                            wait_for_slot().await;
                        }
                        Err(error) => return ended(self.unborn(error)),
                    }
                };
                let start = instance.get_typed_func::<(), ()>(&mut self.store, "_start");
                let start = start.map_err(|error| self.unborn(error))?;
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
}

/// A program that exits with 0 did not fail.
fn ended(error: TaskError) -> Result<(), TaskError> {
    match error {
        TaskError::Exit { code: 0, .. } => Ok(()),
        error => Err(error),
    }
}

/// Whether the pool had no room. Tasks are admitted by count, but a sandbox that has ended may still be
/// on its way back.
fn is_full(error: &wasmtime::Error) -> bool {
    error.is::<wasmtime::PoolConcurrencyLimitError>()
}

async fn wait_for_slot() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::Poll;

    use super::*;

    /// What comes of something that is over when it is looked at for the third time: after its first time limit.
    fn third_time(paused: impl Fn() -> Duration) -> Result<u32, TaskError> {
        let mut times = 0;
        let running = pin!(std::future::poll_fn(|_| {
            times += 1;
            match times {
                3 => Poll::Ready(Ok(times)),
                _ => Poll::Pending,
            }
        }));
        let time = Some(Duration::from_millis(1));
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(within(time, paused, running))
    }

    #[test]
    fn pauses_do_not_count_for_the_time_limit() {
        let limited = third_time(never_paused).unwrap_err();
        assert!(matches!(limited, TaskError::Limit { .. }), "{limited}");
        let hour = Duration::from_secs(3600);
        assert_eq!(third_time(|| hour), Ok(3));
        // What was counted once is not again.
        let asked = Cell::new(0);
        let once = third_time(|| {
            asked.set(asked.get() + 1);
            Duration::from_millis(1)
        });
        assert_eq!((once, asked.get()), (Ok(3), 1));
    }
}
