//! Actors: instances that live on between calls.
//!
//! Owns [`ActorInstance`]: one sandbox with one instance of one class in it, called again and again.
//! Must not: decide whose call is next, or what becomes of an actor that failed; a guest that trapped
//! cannot be called again, and whoever owns the actor drops it.
//!
//! Invariant: an instance runs one call at a time (`&mut self`).

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use tokio::runtime::Handle;
use wasmrun_model::failure::{LimitKind, TaskError};
use wasmrun_model::value::codec::decode;
use wasmrun_model::value::{DecodeLimits, EncodedRef, Value};
use wasmtime::component::{Instance, ResourceAny, Val};

use crate::blocking::{share, within_share};
use crate::call::{self, CallPlan, Callee, Target, check_arguments};
use crate::class::{Class, ClassIndex, Lane, MethodIndex};
use crate::exports::FastLane;
use crate::input::Input;
use crate::limits::Limits;
use crate::module::Module;
use crate::prefault::Name;
use crate::run::{Outcome, Sandbox, never_paused, within};
use crate::services::{Services, alone};
use crate::state::{Grants, Setup, TaskContext};
use crate::stdio::TaskOutput;
use crate::{Engine, EngineInner};

/// Everything that the creation of an actor needs.
pub struct Birth<'a> {
    /// The module.
    pub module: &'a Module,
    /// Which of its classes.
    pub class: ClassIndex,
    /// What it is made of.
    pub from: Origin<'a>,
    /// Who it is.
    pub context: Arc<TaskContext>,
    /// What it may reach.
    pub grants: &'a Grants,
    /// What it may use, all its life; the time is for its creation alone.
    pub limits: &'a Limits,
    /// Where its output goes.
    pub output: &'a Arc<TaskOutput>,
    /// Who answers when it asks for tasks, objects and actors.
    pub services: Arc<dyn Services>,
}

/// What an actor is made of.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// Its constructor's arguments, encoded by their types.
    Arguments(&'a [EncodedRef<'a>]),
    /// A state that an instance of the class gave before.
    Checkpoint(&'a [u8]),
}

/// Everything that one call of an actor needs.
pub struct ActorCall<'a> {
    /// Which method.
    pub method: MethodIndex,
    /// Its arguments, encoded by their types.
    pub values: &'a [EncodedRef<'a>],
    /// Who runs: the call, as a task.
    pub context: Arc<TaskContext>,
    /// What arguments, result and time of the call are limited to.
    pub limits: &'a Limits,
    /// Who answers when it asks for tasks, objects and actors.
    pub services: Arc<dyn Services>,
}

/// An actor: an instance of a class in a sandbox of its own.
pub struct ActorInstance {
    sandbox: Sandbox,
    instance: Instance,
    module: Module,
    class: ClassIndex,
    body: Body,
    engine: Engine,
    /// See [`share`].
    share: Option<Handle>,
}

/// The instance as its lane knows it.
#[derive(Clone, Copy)]
enum Body {
    Typed(ResourceAny),
    Fast(u32),
}

pub(crate) async fn create(
    engine: &Arc<EngineInner>,
    birth: Birth<'_>,
) -> Result<ActorInstance, TaskError> {
    let Birth {
        module,
        class,
        from,
        context,
        grants,
        limits,
        output,
        services,
    } = birth;
    let share = share(grants, &context.tenant);
    let setup = Setup {
        module,
        context,
        grants,
        args: &[],
        limits,
        output,
        input: Input::Empty,
        services,
    };
    let creating = pin!(async {
        let of_class = module.class(class);
        if let Origin::Arguments(values) = from {
            check_arguments(&of_class.constructor.ty, values, limits)?;
        }
        let mut sandbox = Sandbox::new(engine, setup)?;
        let _ticking = engine.ticker.start();
        let instance = sandbox.instantiate().await?;
        let body = match (of_class.lane, module.fast_lane()) {
            (Lane::Fast, Some(lane)) => {
                create_fast(&mut sandbox, &instance, lane, of_class, from).await?
            }
            _ => create_typed(&mut sandbox, &instance, of_class, from).await?,
        };
        sandbox.check_output()?;
        let state = sandbox.store.data_mut();
        state.services = alone();
        state.creation = Some(state.context.clone());
        Ok(ActorInstance {
            sandbox,
            instance,
            module: module.clone(),
            class,
            body,
            engine: Engine(engine.clone()),
            share: share.clone(),
        })
    });
    let creating = pin!(within_share(share.clone(), creating));
    within(limits.time, never_paused, creating).await
}

async fn create_fast(
    sandbox: &mut Sandbox,
    instance: &Instance,
    lane: &FastLane,
    class: &Class,
    from: Origin<'_>,
) -> Result<Body, TaskError> {
    let module = sandbox.module.clone();
    let (store, name) = (&mut sandbox.store, class.full_name());
    let made = match from {
        Origin::Arguments(values) => {
            let values: Vec<&[u8]> = values.iter().map(|value| value.bytes()).collect();
            let func =
                instance.get_typed_func::<(Name<'_>, &[&[u8]]), (u32,)>(&mut *store, lane.create);
            let name = Name(&name, &module.0.dirty_pages);
            match func {
                Ok(func) => func.call_async(&mut *store, (name, &values)).await,
                Err(error) => Err(error),
            }
        }
        Origin::Checkpoint(state) => {
            let func = instance.get_typed_func::<(&str, &[u8]), (u32,)>(&mut *store, lane.restore);
            match func {
                Ok(func) => func.call_async(&mut *store, (&name, state)).await,
                Err(error) => Err(error),
            }
        }
    };
    let (number,) = made.map_err(|error| sandbox.failure(error))?;
    Ok(Body::Fast(number))
}

async fn create_typed(
    sandbox: &mut Sandbox,
    instance: &Instance,
    class: &Class,
    from: Origin<'_>,
) -> Result<Body, TaskError> {
    let (func, vals) = match from {
        Origin::Arguments(values) => {
            let func = sandbox.export(instance, class.constructor.export, "constructor")?;
            (func, constructor_vals(sandbox, class, values)?)
        }
        Origin::Checkpoint(state) => {
            let restore = class.restore.ok_or_else(|| {
                TaskError::Sandbox(format!("the class {} cannot be restored", class.name))
            })?;
            let func = sandbox.export(instance, restore, "restore")?;
            let bytes = state.iter().map(|byte| Val::U8(*byte)).collect();
            (func, vec![Val::List(bytes)])
        }
    };
    let mut result = [Val::Bool(false)];
    let called = func
        .call_async(&mut sandbox.store, &vals, &mut result)
        .await;
    called.map_err(|error| sandbox.failure(error))?;
    match result {
        [Val::Resource(resource)] => Ok(Body::Typed(resource)),
        _ => Err(TaskError::Sandbox(
            "a constructor returned no instance".into(),
        )),
    }
}

fn constructor_vals(
    sandbox: &mut Sandbox,
    class: &Class,
    values: &[EncodedRef<'_>],
) -> Result<Vec<Val>, TaskError> {
    let ty = &class.constructor.ty;
    let values = ty.params().iter().zip(values).map(|((name, ty), value)| {
        decode(ty, *value, DecodeLimits::default())
            .map_err(|error| TaskError::Arguments(format!("{name}: {error}")))
    });
    let values = values.collect::<Result<Vec<Value>, TaskError>>()?;
    call::lower(sandbox, ty, &values)
}

impl ActorInstance {
    /// Calls a method. When the guest trapped, the actor must not be called again.
    ///
    /// # Errors
    /// Whatever made the call fail. [`is_fatal`] says whether the actor is lost with it.
    ///
    /// [`is_fatal`]: ActorInstance::is_fatal
    pub async fn call(&mut self, call: ActorCall<'_>) -> Result<Outcome, TaskError> {
        let ActorCall {
            method,
            values,
            context,
            limits,
            services,
        } = call;
        self.sandbox.result_bytes = limits.result;
        let state = self.sandbox.store.data_mut();
        state.context = context;
        state.services = services;
        state.limiter.forget_refusal();
        let engine = self.engine.clone();
        let _ticking = engine.0.ticker.start();
        let share = self.share.clone();
        let returned = {
            let calling = pin!(self.call_unhurried(method, values, limits));
            let calling = pin!(within_share(share, calling));
            within(limits.time, never_paused, calling).await
        };
        // Between calls it keeps nothing alive.
        self.sandbox.store.data_mut().services = alone();
        let returned = returned?;
        self.sandbox.check_output()?;
        Ok(Outcome {
            result: returned.value,
            handles: returned.handles,
            memory_peak: self.sandbox.store.data().limiter.used(),
        })
    }

    async fn call_unhurried(
        &mut self,
        method: MethodIndex,
        values: &[EncodedRef<'_>],
        limits: &Limits,
    ) -> Result<call::Returned, TaskError> {
        let module = self.module.clone();
        let method = module.class(self.class).method(method);
        check_arguments(&method.ty, values, limits)?;
        let (sandbox, instance) = (&mut self.sandbox, self.instance);
        match (self.body, module.fast_lane()) {
            (Body::Fast(number), Some(lane)) => {
                let target = Target::Method(number, &method.name);
                call::call_fast(sandbox, instance, lane, target, &method.ty, values, limits).await
            }
            (Body::Fast(_), None) => unreachable!("an instance in a lane that is not there"),
            (Body::Typed(receiver), _) => {
                let callee = Callee {
                    func: sandbox.export(&instance, method.export, &method.name)?,
                    receiver: Some(receiver),
                    ty: &method.ty,
                    plan: match method.plan {
                        CallPlan::Fast => CallPlan::Dynamic,
                        plan => plan,
                    },
                };
                call::call(sandbox, callee, values, limits).await
            }
        }
    }

    /// The actor's state, if its class can give it; another instance can be made of that. It may take as long, and be
    /// as large, as a call and its result.
    ///
    /// # Errors
    /// Whatever made the guest fail.
    pub async fn checkpoint(&mut self, limits: &Limits) -> Result<Option<Vec<u8>>, TaskError> {
        let engine = self.engine.clone();
        let _ticking = engine.0.ticker.start();
        let share = self.share.clone();
        let asking = pin!(self.checkpoint_unhurried(limits));
        let asking = pin!(within_share(share, asking));
        within(limits.time, never_paused, asking).await
    }

    async fn checkpoint_unhurried(
        &mut self,
        limits: &Limits,
    ) -> Result<Option<Vec<u8>>, TaskError> {
        let module = self.module.clone();
        let class = module.class(self.class);
        if let (Body::Fast(number), Some(lane)) = (self.body, module.fast_lane()) {
            let (sandbox, instance) = (&mut self.sandbox, self.instance);
            let store = &mut sandbox.store;
            let func =
                instance.get_typed_func::<(u32,), (Option<Vec<u8>>,)>(&mut *store, lane.checkpoint);
            let called = match func {
                Ok(func) => func.call_async(&mut *store, (number,)).await,
                Err(error) => Err(error),
            };
            let (state,) = called.map_err(|error| sandbox.failure(error))?;
            let size = state.as_ref().map_or(0, |state| state.len() as u64);
            return match size > limits.result {
                true => Err(call::limit(LimitKind::Result, limits.result, size)),
                false => Ok(state),
            };
        }
        let Some(method) = class.checkpoint().filter(|_| class.can_checkpoint()) else {
            return Ok(None);
        };
        let method = class.find(&method.name).expect("it was found by its name");
        let returned = self.call_unhurried(method, &[], limits).await?;
        Ok(returned
            .value
            .map(|value| EncodedRef::from(&value).bytes().to_vec()))
    }

    /// Whether an actor whose call failed so cannot be called again.
    pub fn is_fatal(error: &TaskError) -> bool {
        match error {
            // Nothing was run, or the guest came to its end.
            TaskError::Arguments(_) | TaskError::Guest { .. } => false,
            // Where wasmtime itself ran out of what it may copy, the guest was in the middle of something.
            TaskError::Limit { hit, .. } => !hit.kind.is_of_values() || hit.wanted.is_none(),
            _ => true,
        }
    }
}

impl fmt::Debug for ActorInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ActorInstance({})",
            self.module.class(self.class).full_name()
        )
    }
}
