//! One attempt of a task, a creation or a call: from what the scheduler starts to the report of its end.
//!
//! Owns the lease on what an attempt holds: whatever way it ends, it is given back and its waiter hears
//! of it, once. Runs on guest threads; the thread on which one ends goes on with the next that starts
//! because of that, if it is nobody else's turn.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;
use wasmrun_engine::{
    ActorCall, ActorInstance, ActorOrigin, Birth, Invocation, Limits, Outcome, TaskContext,
    TaskOutput,
};
use wasmrun_model::failure::TaskError;
use wasmrun_model::resource::Amount;
use wasmrun_model::task::Attempt as Try;
use wasmrun_model::trace::Span;
use wasmrun_model::value::{Encoded, EncodedRef, FunctionType, Handle, ValueType};

use crate::guests::attempt::Attempt;
use crate::guests::clock::Clock;
use crate::guests::executor::{Turn, Weight};
use crate::guests::orphans;
use crate::guests::shared::Shared;
use crate::ledger::{Start, Todo};
use crate::records::actor::ActorCell;
use crate::records::call_log::Ran;
use crate::records::handles::HandleTable;
use crate::records::job::{Argument, Call};
use crate::records::object::{Fitted, LoadError, Object, Reference, Value};
use crate::records::reach::Referent;
use crate::records::task::{Report, TaskCell, Work};

impl Start {
    /// The part of the CPU that it asked for and holds. A call holds nothing: it has its actor's.
    pub(crate) fn weight(&self) -> Weight {
        Weight::of_cpu(match &self.cell.work {
            Work::Call(actor, _) => actor.cpu(),
            Work::Task(_) | Work::Create(_) | Work::Elsewhere(_) => self.cpu(),
        })
    }

    /// What it holds of the CPU, in 1/10,000 of a core.
    fn cpu(&self) -> u64 {
        let cpu = self.held.iter().find(|held| held.name.is_cpu());
        cpu.map_or(0, |held| held.amount)
    }

    /// The actor that it creates or calls, if others may have that live elsewhere when they take this node for dead.
    pub(crate) fn movable_actor(&self) -> Option<&ActorCell> {
        match &self.cell.work {
            Work::Create(actor) | Work::Call(actor, _) => {
                Some(&**actor).filter(|actor| actor.is_foreign() || actor.is_recorded())
            }
            Work::Task(_) | Work::Elsewhere(_) => None,
        }
    }

    /// The memory that it asked for and holds, in bytes.
    fn memory(&self) -> u64 {
        let memory = self.held.iter().find(|held| held.name.is_memory());
        memory.map_or(0, |held| Amount::from_steps(held.amount).whole_units())
    }
}

/// What a running attempt holds.
struct Lease {
    shared: Arc<Shared>,
    cell: Arc<TaskCell>,
    attempt: Try,
    is_held: bool,
}

impl Lease {
    /// The end of an attempt. The next, if this thread is to go on with it.
    fn end(mut self, report: Box<Report>, turn: &Turn) -> Option<Start> {
        self.is_held = false;
        let mut todo = self.ended(report);
        let next = todo.start.first();
        // Calls of some actors may have to wait: see `Exchange::hold_back`.
        let next = next
            .is_some_and(|next| next.movable_actor().is_none() && turn.may_go_on(next.weight()));
        let next = next.then(|| todo.start.remove(0));
        self.shared.carry_out(todo);
        next
    }

    /// The end of a call whose actor is lost with it.
    fn end_fatally(mut self, report: Box<Report>, actor: &Arc<ActorCell>) {
        self.is_held = false;
        let (task, attempt) = (self.cell.id, self.attempt);
        self.shared
            .tell(|ledger| ledger.ended_fatally(task, attempt, report, actor));
    }

    /// From now on the actor has it. Back if the actor was ended meanwhile.
    fn born(mut self, actor: &Arc<ActorCell>, instance: ActorInstance) -> Option<Self> {
        let instance = Box::new(instance);
        let attempt = self.attempt;
        let refused = self.shared.tell_and(|ledger| {
            match ledger.born(actor, instance, attempt) {
                Ok(todo) => (todo, None),
                // Dropping the instance takes time: not under the lock.
                Err(instance) => (Todo::default(), Some(instance)),
            }
        });
        self.is_held = refused.is_some();
        self.is_held.then_some(self)
    }

    /// The actor has its instance back after a call, and its owner hears of it. Back if the actor is lost.
    fn give_back(
        &self,
        actor: &Arc<ActorCell>,
        instance: Box<ActorInstance>,
        state: Result<Option<Vec<u8>>, TaskError>,
        (values, ran): (&[Argument], Ran),
    ) -> Result<(), Box<ActorInstance>> {
        let Ok(state) = state else {
            return Err(instance);
        };
        let has_state = state.is_some();
        let position = actor.give_back(instance, state)?;
        if let Some(others) = self.shared.others.get().filter(|_| actor.is_foreign()) {
            // Before the report: where all go to one node, it has the state first.
            if has_state {
                others.checkpointed(actor);
            }
            if actor.face.is_deterministic {
                others.tell_call(actor, &self.cell, values, ran, position);
            }
        }
        Ok(())
    }

    fn ended(&self, report: Box<Report>) -> Todo {
        self.shared
            .counters
            .times
            .observe(report.waited, report.ran);
        self.shared
            .decide(|ledger| ledger.ended(self.cell.id, self.attempt, report))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Only where the future was dropped before its end: the node is stopping.
        if self.is_held {
            let report = Report::never_ran(&self.cell, TaskError::Cancelled);
            let todo = self.ended(report);
            self.shared.carry_out(todo);
        }
    }
}

/// Runs an attempt to its end, and those that this thread goes on with.
pub(crate) async fn start(shared: Arc<Shared>, start: Start, turn: Turn) {
    let mut next = Some(start);
    while let Some(start) = next {
        turn.begin_anew();
        let started = Instant::now();
        let lease = Lease {
            cell: start.cell.clone(),
            attempt: start.attempt,
            is_held: true,
            shared: shared.clone(),
        };
        start.cell.set_running();
        let attempt = (lease, start, started);
        // Pinned, as all that a task awaits on its way: such a future has some kilobytes, which are copied where
        // it is handed on.
        next = match &attempt.1.cell.work {
            Work::Task(_) => pin!(run_task(attempt, &turn)).await,
            Work::Create(_) => pin!(create_actor(attempt, &turn)).await,
            Work::Call(..) => pin!(run_call(attempt, &turn)).await,
            Work::Elsewhere(_) => unreachable!("it is run by its owner"),
        };
    }
}

/// Runs the guest of a task to its end.
async fn run_guest(shared: &Shared, invocation: Invocation<'_>) -> Result<Outcome, TaskError> {
    #[cfg(test)]
    if let Some(guests) = shared.guests.get() {
        return guests.run(invocation).await;
    }
    pin!(shared.engine.run(invocation)).await
}

/// What an attempt begins with: what it holds, what it is to do, and when it started.
type Begun = (Lease, Start, Instant);

impl Lease {
    fn context(&self, start: &mut Start) -> Arc<TaskContext> {
        Arc::new(TaskContext {
            task: self.cell.id,
            attempt: self.attempt.number().saturating_sub(1),
            tenant: self.cell.work.terms().tenant.clone(),
            node: self.shared.name.clone(),
            array_index: start.call.array_index,
            span: Some(Span::of(
                start.call.trace.as_ref(),
                self.cell.driver.job(),
                &self.cell.id,
                self.attempt.number(),
            )),
            trace: start.call.trace.clone(),
            resources: std::mem::take(&mut start.held),
        })
    }

    fn attempt(&self, call: &Call, handles: Arc<HandleTable>, started: Instant) -> Arc<Attempt> {
        Arc::new_cyclic(|this| Attempt {
            shared: self.shared.clone(),
            cell: self.cell.clone(),
            number: self.attempt,
            driver: self.cell.driver,
            listener: call.listener.clone(),
            trace: call.trace.clone(),
            handles,
            is_listed: AtomicBool::new(false),
            lent: parking_lot::Mutex::default(),
            started: AtomicU64::new(0),
            in_flight: OnceLock::new(),
            stored: AtomicU32::new(0),
            id_base: OnceLock::new(),
            arguments: parking_lot::Mutex::default(),
            clock: Clock::new(started),
            this: this.clone(),
        })
    }
}

/// The arguments in memory, in the form that the function takes. The guest may name what they name, and objects that are
/// given behind the last parameter: mere dependencies.
async fn arguments(
    attempt: &Attempt,
    ty: Option<&FunctionType>,
    values: &[Argument],
) -> Result<Vec<Fitted>, TaskError> {
    let params = ty.map_or(&[][..], FunctionType::params);
    let mut fitted = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let param = params.get(index).map(|(_, ty)| ty);
        if let (Some(_), None, Argument::Object(object)) = (ty, param, value) {
            attempt.lend(&object.0);
            attempt.note_argument(value.into(), 1);
            continue;
        }
        let ty = param;
        fitted.push(match value {
            Argument::Value(value) => Fitted::Whole(load(attempt, value).await?),
            Argument::Object(object) => argument(attempt, ty, object).await?,
        });
        // What can lead to actors: see `reach`.
        match value {
            Argument::Value(given) => note_value(attempt, given, fitted.last(), 1),
            Argument::Object(_) => attempt.note_argument(value.into(), 1),
        }
    }
    Ok(fitted)
}

/// Notes a value that names others, which is held so often besides what was loaded of it.
fn note_value(attempt: &Attempt, value: &Value, fitted: Option<&Fitted>, times: usize) {
    let is_loaded = fitted.is_some_and(Fitted::holds_value);
    let times = times + usize::from(is_loaded);
    if times > 0 && !value.references().is_empty() {
        attempt.note_argument(Referent::Value(value.clone()), times);
    }
}

async fn argument(
    attempt: &Attempt,
    ty: Option<&ValueType>,
    object: &Object,
) -> Result<Fitted, TaskError> {
    let reference = &object.0;
    if matches!(ty, Some(ValueType::Handle(_))) {
        attempt.lend(reference);
        let Handle::Object(name) = reference.handle() else {
            unreachable!("an object's handle");
        };
        return Ok(Fitted::Made(Encoded::Postcard(name.to_bytes().to_vec())));
    }
    let value = match reference {
        Reference::Put(object) => Some(object.value.clone()),
        Reference::Task(cell) => match cell.result() {
            Some(Ok(value)) => value,
            // The scheduler starts nothing before its arguments are there.
            Some(Err(_)) | None => {
                return Err(TaskError::Arguments(
                    "an object that it needs is lost".into(),
                ));
            }
        },
        Reference::Actor(_) => unreachable!("an actor is no object"),
    };
    let value = value.unwrap_or_else(|| Encoded::Postcard(Vec::new()).into());
    let loaded = load(attempt, &value).await?;
    let Some(ty) = ty else {
        return Ok(Fitted::Whole(loaded));
    };
    let fitted = Fitted::new(loaded, reference.ty(), ty);
    let fitted = fitted.map_err(|error| TaskError::Arguments(error.to_string()))?;
    note_value(attempt, &value, Some(&fitted), 0);
    Ok(fitted)
}

async fn load(
    attempt: &Attempt,
    value: &Value,
) -> Result<crate::records::object::Loaded, TaskError> {
    value.references().iter().for_each(|it| attempt.lend(it));
    let loaded = attempt.read(value).await;
    loaded.map_err(|error| match error {
        LoadError::Lost(lost) => lost,
        error => TaskError::Sandbox(error.to_string()),
    })
}

/// What a guest returned, kept, with what it names.
async fn store_result(
    attempt: &Attempt,
    work: &Work,
    outcome: Result<Outcome, TaskError>,
) -> (Result<Option<Value>, TaskError>, u64) {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return (Err(error), 0),
    };
    let value = match (work.result_type(), outcome.result) {
        (Some(ty), Some(value)) => attempt.result(ty, value).await.map(Some),
        _ => Ok(None),
    };
    // The guest gave these away with its result.
    for slot in outcome.handles {
        attempt.handles.release(slot);
    }
    let memory_peak = value.as_ref().map_or(0, |_| outcome.memory_peak);
    (value, memory_peak)
}

async fn run_task(begun: Begun, turn: &Turn) -> Option<Start> {
    let (lease, mut start, started) = begun;
    let memory = start.memory();
    let context = lease.context(&mut start);
    let Start { call, cell, .. } = start;
    let Work::Task(job) = &cell.work else {
        unreachable!("it is a task");
    };
    // Its request is its limit, whichever of the variants it got.
    let limits = Limits {
        memory,
        ..job.limits.clone()
    };
    let attempt = lease.attempt(&call, Arc::default(), started);
    let number = lease.attempt.number();
    let output = TaskOutput::of_attempt(number, job.limits.output, call.listener);
    let outcome = {
        let running = pin!(async {
            let fitted = arguments(&attempt, job.function_type(), &call.values).await?;
            let grants = lease
                .shared
                .secrets
                .granted(&job.terms.tenant, &job.grants)
                .await?;
            attempt.clock.arguments_loaded();
            let values: Vec<EncodedRef<'_>> = fitted.iter().map(Fitted::encoded).collect();
            let invocation = Invocation {
                module: &job.module,
                entry: job.entry,
                values: &values,
                args: &call.args,
                context: context.clone(),
                grants: &grants,
                limits: &limits,
                output: &output,
                input: call.input,
                services: attempt.clone(),
            };
            pin!(run_guest(&lease.shared, invocation)).await
        });
        let outcome = cell.unless_stopped(lease.attempt, running).await;
        outcome.unwrap_or(Err(TaskError::Cancelled))
    };
    let returned = Instant::now();
    let stderr_tail = match &outcome {
        Ok(_) => String::new(),
        Err(_) => output.stderr_tail(),
    };
    // Whoever listens to the output must see its end before the report.
    drop(output);
    let kept = cell
        .unless_cancelled(pin!(store_result(&attempt, &cell.work, outcome)))
        .await;
    let (result, memory_peak) = kept.unwrap_or((Err(TaskError::Cancelled), 0));
    let phases = attempt.clock.phases(returned);
    drop(attempt);
    drop(call.values);
    let report = Report {
        id: cell.id,
        result,
        waited: started.duration_since(cell.submitted),
        ran: started.elapsed(),
        held: Arc::try_unwrap(context).map_or_else(|c| c.resources.clone(), |c| c.resources),
        memory_peak,
        stderr_tail,
        ran_at: None,
        attempt: lease.attempt.number(),
        phases,
    };
    lease.end(Box::new(report), turn)
}

async fn create_actor(begun: Begun, turn: &Turn) -> Option<Start> {
    let (lease, mut start, started) = begun;
    let (memory, cpu) = (start.memory(), start.cpu());
    let context = lease.context(&mut start);
    let Start { call, cell, .. } = start;
    let Work::Create(actor) = &cell.work else {
        unreachable!("it creates an actor");
    };
    actor.set_cpu(cpu);
    let limits = Limits {
        memory,
        ..actor.job().limits.clone()
    };
    let attempt = lease.attempt(&call, actor.handles.clone(), started);
    let checkpoint = actor.checkpoint();
    let job = actor.job();
    if actor.is_foreign() {
        actor.is_hosted(call.listener.clone());
    }
    let Some(output) = actor.output() else {
        return lease.end(Report::never_ran(&cell, TaskError::Cancelled), turn);
    };
    let created = {
        let creating = pin!(async {
            let ty = Some(&actor.class().constructor.ty);
            let fitted = arguments(&attempt, ty, &call.values).await?;
            let grants = lease
                .shared
                .secrets
                .granted(&job.terms.tenant, &job.grants)
                .await?;
            let values: Vec<EncodedRef<'_>> = fitted.iter().map(Fitted::encoded).collect();
            let birth = Birth {
                module: &job.module,
                class: job.class,
                from: match &checkpoint {
                    Some(checkpoint) => ActorOrigin::Checkpoint(&checkpoint.state),
                    None => ActorOrigin::Arguments(&values),
                },
                context: context.clone(),
                grants: &grants,
                limits: &limits,
                output: &output,
                services: attempt.clone(),
            };
            pin!(lease.shared.engine.create_actor(birth)).await
        });
        cell.unless_cancelled(creating).await
    };
    let (lease, error) = match created.unwrap_or(Err(TaskError::Cancelled)) {
        Ok(instance) => match lease.born(actor, instance) {
            None => return None,
            Some(lease) => (lease, TaskError::Cancelled),
        },
        Err(error) => (lease, error),
    };
    let report = Report {
        stderr_tail: actor.stderr_tail(),
        waited: started.duration_since(cell.submitted),
        ran: started.elapsed(),
        attempt: lease.attempt.number(),
        ..*Report::never_ran(&cell, error)
    };
    lease.end(Box::new(report), turn)
}

async fn run_call(begun: Begun, turn: &Turn) -> Option<Start> {
    let (lease, mut start, started) = begun;
    let context = lease.context(&mut start);
    let Start { call, cell, .. } = start;
    let Work::Call(actor, method) = &cell.work else {
        unreachable!("it is a call");
    };
    let attempt = lease.attempt(&call, actor.handles.clone(), started);
    let Some(mut instance) = actor.take(&cell) else {
        // It died after the scheduler had started the call, and the call hears of that.
        return lease.end(Report::never_ran(&cell, actor.died()), turn);
    };
    let limits = Limits {
        time: call.time_limit,
        ..actor.job().limits.clone()
    };
    let mut has_begun = false;
    let outcome = {
        let running = pin!(async {
            let ty = cell.work.function_type();
            let fitted = arguments(&attempt, ty, &call.values).await?;
            attempt.clock.arguments_loaded();
            let values: Vec<EncodedRef<'_>> = fitted.iter().map(Fitted::encoded).collect();
            has_begun = true;
            let call = ActorCall {
                method: actor.class().at(*method).expect("its face has no other"),
                values: &values,
                context,
                limits: &limits,
                services: attempt.clone(),
            };
            pin!(instance.call(call)).await
        });
        let outcome = cell.unless_cancelled(running).await;
        outcome.unwrap_or_else(|| Err(stopped(actor, &cell)))
    };
    let returned = Instant::now();
    let ran = match &outcome {
        _ if !has_begun => Ran::Never,
        Ok(_) => Ran::Well,
        Err(_) => Ran::Badly,
    };
    let failure = outcome.as_ref().err();
    let state = pin!(state_after(actor, &cell, &mut instance, &limits, failure)).await;
    let kept = cell
        .unless_cancelled(pin!(store_result(&attempt, &cell.work, outcome)))
        .await;
    let (result, memory_peak) = kept.unwrap_or_else(|| (Err(stopped(actor, &cell)), 0));
    let phases = attempt.clock.phases(returned);
    drop(attempt);
    let report = Report {
        id: cell.id,
        result,
        waited: started.duration_since(cell.submitted),
        ran: started.elapsed(),
        held: Vec::new(),
        memory_peak,
        stderr_tail: match &state {
            Err(_) => actor.stderr_tail(),
            Ok(_) => String::new(),
        },
        ran_at: None,
        attempt: lease.attempt.number(),
        phases,
    };
    let given_back = lease.give_back(actor, instance, state, (&call.values, ran));
    drop(call.values);
    match given_back {
        Ok(()) => lease.end(Box::new(report), turn),
        Err(instance) => {
            drop(instance);
            lease.end_fatally(Box::new(report), actor);
            None
        }
    }
}

/// The state of an actor after a call, if its class gives one.
///
/// # Errors
/// When its instance cannot be used again: after a fatal failure, or where it cannot give its state.
async fn state_after(
    actor: &ActorCell,
    call: &TaskCell,
    instance: &mut ActorInstance,
    limits: &Limits,
    failure: Option<&TaskError>,
) -> Result<Option<Vec<u8>>, TaskError> {
    match failure.filter(|it| ActorInstance::is_fatal(it)) {
        Some(fatal) => Err(fatal.clone()),
        None if !actor.class().can_checkpoint() => Ok(None),
        None => {
            let state = pin!(instance.checkpoint(limits));
            let state = call.unless_cancelled(state).await;
            // Whatever the call gave, where that fails the instance cannot be used again.
            state.unwrap_or_else(|| Err(stopped(actor, call)))
        }
    }
}

/// Why a call that was told to stop has failed.
fn stopped(actor: &ActorCell, call: &TaskCell) -> TaskError {
    match actor.is_ending() {
        true => actor.died(),
        false if actor.is_abandoned() => orphans::ended(call),
        false => TaskError::Cancelled,
    }
}
