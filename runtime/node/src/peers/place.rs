//! Tasks on their way to other nodes, and what comes back.
//!
//! Owns how a task becomes a message and a message a task, and the order of what a task writes and how it
//! ends. Must not: decide where a task runs, or whether it is tried again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use wasmrun_engine::{
    Entry, Grants, HeldResource, Input, Limits, Listener, Module, NetGrant, OutputChunk,
    OutputSource,
};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{DriverId, NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::scheduler::{Message, Outcome};
use wasmrun_model::task::{Attempt, FailureKind, TaskKind, TaskSpec};
use wasmrun_model::units::us;
use wasmrun_model::wire::{Bytes, Net, Phases, WireError};

use super::ends::{Received, Written};
use super::protocol::{
    CallOrder, CarriedArgument, CreateOrder, Deed, JobOrder, LimitOrder, OneWay, Output, Place,
    ReportOrder, Settled,
};
use super::session::{PeerSession, Queued};
use super::{Exchange, actors};
use crate::ledger::{Incoming, Outgoing};
use crate::peers::arriving::Arriving;
use crate::records::job::{Argument, Call};
use crate::records::object::{Object, Reference, Value};
use crate::records::task::{Report, TaskCell, Work};

/// Why a message cannot be made or understood.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    /// There is no such function.
    #[error("the module has no function {0} that can be a task")]
    Function(String),
    /// There is no such class.
    #[error("the module has no class {0} with the methods that its callers know")]
    Class(String),
    /// It is no message that begins a task.
    #[error("another node sent a task without its terms")]
    Form,
    /// An argument cannot be sent or understood.
    #[error(transparent)]
    Argument(#[from] TaskError),
}

impl Exchange {
    /// What a node is told, as a message. It is to be sent: what is lent is named in it.
    pub(super) fn encode(&self, to: NodeId, session: &PeerSession, outgoing: Outgoing) -> OneWay {
        match outgoing {
            Outgoing::Message(message) => OneWay::Scheduler(Box::new(message)),
            Outgoing::LeftBehind(task, lives_on) => OneWay::LeftBehind(task, lives_on),
            Outgoing::EndLeft(task) => OneWay::EndLeft(task),
            Outgoing::Settled(message, report) => {
                let report = report.map(|report| self.report_order(to, *report));
                let settled = Settled { message, report };
                OneWay::Settled(Box::new(settled))
            }
            Outgoing::Place(message, cell, call) => OneWay::Place(Box::new(
                self.place_order(to, session, message, &cell, call),
            )),
        }
    }

    fn place_order(
        &self,
        to: NodeId,
        session: &PeerSession,
        message: Message,
        cell: &Arc<TaskCell>,
        call: Call,
    ) -> Place {
        let Message::Place { attempt, .. } = message else {
            unreachable!("it is the message that begins an attempt");
        };
        let values = self.give(to, session, (cell, attempt), &call.values);
        let deed = match &cell.work {
            Work::Task(job) => {
                let function = match job.entry {
                    Entry::Program | Entry::Http => None,
                    Entry::Function(index) => Some(job.module.function(index).full_name()),
                };
                let order = self.job_order(&job.name, &job.module, &job.limits, &job.grants);
                Deed::Task(Box::new(JobOrder { function, ..order }))
            }
            Work::Create(actor) => {
                self.generation_begins(actor, attempt, &call);
                let (job, name) = (actor.job(), &actor.face.class);
                Deed::Create(Box::new(CreateOrder {
                    actor: actor.name(),
                    face: actor.face.clone(),
                    job: self.job_order(name, &job.module, &job.limits, &job.grants),
                    state: actor.checkpoint().as_ref().map(actors::state),
                }))
            }
            Work::Call(actor, method) => Deed::Call(Box::new(CallOrder {
                actor: actor.name(),
                method: actor.face.methods[*method].0.clone(),
                time_us: call.time_limit.map(us),
            })),
            Work::Elsewhere(_) => unreachable!("its owner sends it"),
        };
        Place {
            message,
            deed,
            values,
            args: call.args,
            array_index: call.array_index,
            trace: call.trace,
            input: match call.input {
                Input::Bytes(bytes) => Some(Bytes(bytes.to_vec())),
                Input::Empty | Input::Stream(_) | Input::Http(_) => None,
            },
            is_heard: call.listener.is_some(),
            home: self.homes.of(&cell.driver).unwrap_or(self.me),
            submitted_us: self.shared.upgrade().map_or(0, |it| it.submitted_us(cell)),
        }
    }

    fn job_order(&self, name: &str, module: &Module, limits: &Limits, grants: &Grants) -> JobOrder {
        let digest = module.digest();
        JobOrder {
            name: name.to_owned(),
            module: digest,
            module_bytes: self.modules.len(&digest).unwrap_or(0),
            function: None,
            limits: LimitOrder {
                memory_bytes: limits.memory,
                output_bytes: limits.output,
                argument_bytes: limits.arguments,
                result_bytes: limits.result,
                time_us: limits.time.map(us),
            },
            env: grants.env.clone(),
            net: match &grants.net {
                NetGrant::None => Net::None,
                NetGrant::Only(addresses) => Net::Only(addresses.clone()),
                NetGrant::All => Net::All,
            },
            http: grants.http.clone(),
            secrets: grants.secrets.clone(),
        }
    }

    /// Another node wants a task run here.
    pub(super) fn placed(&self, from: NodeId, place: Place) {
        let Place {
            message,
            deed,
            values,
            args,
            array_index,
            trace,
            input,
            is_heard,
            home,
            submitted_us,
        } = place;
        let Message::Place {
            spec,
            attempt,
            hops,
        } = message
        else {
            return tracing::warn!(node = %from, "{}", PlaceError::Form);
        };
        if !is_consistent(from, &deed, &spec) || attempt.number() == 0 {
            return tracing::warn!(node = %from, "{}", PlaceError::Form);
        }
        self.note_home(spec.driver, home);
        // At once, so that what is named is kept from now on.
        let values = values.into_iter().map(|it| self.take_argument(from, it));
        let values: Vec<_> = values.collect();
        let values: Result<Vec<_>, _> = values.into_iter().collect();
        let call = values.map(|values| Call {
            values,
            args,
            array_index,
            input: input.map_or(Input::Empty, |bytes| Input::Bytes(bytes.0.into())),
            listener: is_heard.then(|| self.listener((from, spec.id, attempt))),
            time_limit: match &deed {
                Deed::Call(order) => order.time_us.map(Duration::from_micros),
                Deed::Task(_) | Deed::Create(_) => None,
            },
            trace,
        });
        let arriving = Arriving {
            from,
            spec,
            attempt,
            hops,
            submitted_us,
        };
        let (order, create) = match deed {
            Deed::Call(order) => return self.call_arrived(arriving, call, &order),
            Deed::Task(order) => (*order, None),
            Deed::Create(create) => (create.job.clone(), Some(create)),
        };
        let state = create.as_ref().and_then(|create| create.state.as_ref());
        let is_whole = state.is_none_or(|state| state.inline.is_some());
        if let Some(module) = self.modules.get(&order.module).filter(|_| is_whole) {
            return self.arrived(arriving, order, create, call, &module);
        }
        let (this, Some(shared)) = (self.this.clone(), self.shared.upgrade()) else {
            return;
        };
        self.arriving.lock().insert(arriving.attempt());
        // It ends with the node.
        shared.control.spawn(async move {
            let Some(exchange) = this.upgrade() else {
                return;
            };
            let mut create = create;
            let fetched = exchange.fetch_needed(from, &order, &mut create).await;
            if !exchange.arriving.lock().remove(&arriving.attempt()) {
                // It was withdrawn, or its owner has left.
                return;
            }
            match fetched {
                Ok(module) => exchange.arrived(arriving, order, create, call, &module),
                Err(error) => exchange.turn_away(&arriving, FailureKind::Retryable, error),
            }
        });
    }

    /// The driver of a task that is placed here is at this node.
    fn note_home(&self, driver: DriverId, home: NodeId) {
        if home != self.me
            && let Some(shared) = self.shared.upgrade()
        {
            let has_tasks = |driver: &_| {
                shared.ask(|ledger| ledger.scheduler().of_driver(driver).next().is_some())
            };
            self.homes.note(driver, home, has_tasks);
        }
    }

    /// Fetches what a task needs to begin and that did not come along.
    async fn fetch_needed(
        &self,
        from: NodeId,
        order: &JobOrder,
        create: &mut Option<Box<CreateOrder>>,
    ) -> Result<Module, TaskError> {
        self.fetch_state(from, order, create).await?;
        self.module(from, order.module, order.module_bytes).await
    }

    /// The owner of a task does not want an attempt of it any more.
    pub(super) fn withdrawn(&self, from: NodeId, task: TaskId, attempt: Attempt) {
        if self.arriving.lock().remove(&(from, task, attempt)) {
            return self.settle_unbegun(from, task, attempt, Outcome::Cancelled);
        }
        let message = Message::Withdraw { task, attempt };
        self.tell(|ledger| ledger.message(from, message));
    }

    /// Fetches the state that a generation of an actor is to begin with, if that did not come along.
    async fn fetch_state(
        &self,
        from: NodeId,
        order: &JobOrder,
        create: &mut Option<Box<CreateOrder>>,
    ) -> Result<(), TaskError> {
        let Some(create) = create else {
            return Ok(());
        };
        let Some(state) = &mut create.state else {
            return Ok(());
        };
        let most = order.limits.memory_bytes;
        let pulled = self.pull_state(from, create.actor.id, state, most).await;
        let lost = || TaskError::Sandbox(format!("its state could not be had from node {from}"));
        state.inline = Some(Bytes(pulled.ok_or_else(lost)?.state.to_vec()));
        Ok(())
    }

    /// A call has come for an actor that is here, if all is well.
    fn call_arrived(&self, arriving: Arriving, call: Result<Call, TaskError>, order: &CallOrder) {
        let Some(actor) = self.called(&order.actor) else {
            // Its owner tells where it is now, or that it is dead.
            let Arriving { spec, attempt, .. } = arriving;
            return self.settle_unbegun(arriving.from, spec.id, attempt, Outcome::HandedBack);
        };
        let found = actor.face.find(&order.method);
        let method = found.ok_or_else(|| PlaceError::Function(order.method.clone()));
        match call
            .map_err(PlaceError::from)
            .and_then(|call| Ok((call, method?)))
        {
            Ok((call, method)) => self.begin(arriving, Work::Call(actor, method), call),
            Err(error) => {
                let error = TaskError::Unschedulable(error.to_string());
                self.turn_away(&arriving, FailureKind::Final, error);
            }
        }
    }

    pub(super) fn take_argument(
        &self,
        from: NodeId,
        argument: CarriedArgument,
    ) -> Result<Argument, TaskError> {
        Ok(match argument {
            CarriedArgument::Value(carried) => Argument::Value(self.take(from, carried)?),
            CarriedArgument::Object(name, made) => {
                let reference = self.borrow(from, name)?;
                if let Some(made) = made.filter(|made| made.name == name) {
                    self.made_along(from, *made);
                }
                Argument::Object(Object(reference))
            }
        })
    }

    fn arrived(
        &self,
        arriving: Arriving,
        order: JobOrder,
        create: Option<Box<CreateOrder>>,
        call: Result<Call, TaskError>,
        module: &Module,
    ) {
        let begun = call.map_err(PlaceError::from).and_then(|call| {
            let work = match create {
                Some(create) => self.to_create(&arriving, *create, module)?,
                None => Work::Task(Arc::new(self.job(&arriving.spec, order, module)?)),
            };
            Ok((call, work))
        });
        match begun {
            Ok((call, work)) => self.begin(arriving, work, call),
            Err(error) => {
                let error = TaskError::Unschedulable(error.to_string());
                self.turn_away(&arriving, FailureKind::Final, error);
            }
        }
    }

    fn begin(&self, arriving: Arriving, work: Work, call: Call) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let Arriving {
            from,
            spec,
            attempt,
            hops,
            submitted_us,
        } = arriving;
        let cell = TaskCell::new(spec.id, spec.driver, work, shared.home());
        let cell = cell.submitted_elsewhere(submitted_us);
        cell.share();
        let incoming = Incoming {
            from,
            call,
            cell: Arc::new(cell),
        };
        self.tell(|ledger| ledger.place(spec, attempt, hops, incoming));
    }

    /// An attempt ends that the scheduler has not heard of.
    fn settle_unbegun(&self, to: NodeId, task: TaskId, attempt: Attempt, outcome: Outcome) {
        let message = Message::Settled {
            task,
            attempt,
            outcome,
        };
        let settled = Settled {
            message,
            report: None,
        };
        self.send(to, OneWay::Settled(Box::new(settled)));
    }

    /// A task that is not even taken in.
    fn turn_away(&self, arriving: &Arriving, kind: FailureKind, error: TaskError) {
        let message = Message::Settled {
            task: arriving.spec.id,
            attempt: arriving.attempt,
            outcome: Outcome::Failed(kind),
        };
        let report = ReportOrder {
            result: Err(WireError::from(&error)),
            ran_us: 0,
            held: Vec::new(),
            memory_peak_bytes: 0,
            stderr_tail: String::new(),
            attempt: 0,
            phases: Phases::default(),
        };
        let settled = Settled {
            message,
            report: Some(report),
        };
        let message = OneWay::Settled(Box::new(settled));
        self.send(arriving.from, message);
    }

    /// Where an attempt of another node's task writes to.
    fn listener(&self, attempt: Received) -> Listener {
        let (listener, written) = self.ends.open(attempt);
        if let Some(shared) = self.shared.upgrade() {
            let this = self.this.clone();
            // It ends when the task and all that it has started have.
            shared.control.spawn(pass_on(this, attempt, written));
        }
        listener
    }

    fn report_order(&self, to: NodeId, report: Report) -> ReportOrder {
        let object = ObjectId::of(report.id, 0);
        let result = report.result.map(|value| {
            let value = value?;
            let mut carried = self.carry(to, object, &value);
            if let super::protocol::Body::At(at) = &mut carried.body {
                // Whoever submitted the task owns what it makes.
                at.owner = to;
                self.keep_for(to, object, value);
            }
            Some(carried)
        });
        ReportOrder {
            result: result.map_err(|error| WireError::from(&error)),
            ran_us: us(report.ran),
            held: report
                .held
                .iter()
                .map(|held| super::protocol::HeldResource {
                    name: held.name.clone(),
                    amount: held.amount,
                    units: held.units.clone(),
                })
                .collect(),
            memory_peak_bytes: report.memory_peak,
            stderr_tail: report.stderr_tail,
            attempt: report.attempt,
            phases: report.phases,
        }
    }

    /// A task of ours has come to an end elsewhere.
    pub(super) fn settled(&self, from: NodeId, settled: Settled) {
        let Settled { message, report } = settled;
        let Message::Settled { task, attempt, .. } = message else {
            return tracing::warn!(node = %from, "{}", PlaceError::Form);
        };
        if let Some(session) = self.sessions.get(&from) {
            session.arguments.settled(&task, attempt);
        }
        let Some(report) = report else {
            return self.tell(|ledger| ledger.settled_unreported(from, message));
        };
        let result = report.result.map_err(TaskError::from);
        let result =
            result.and_then(|carried| carried.map(|carried| self.take(from, carried)).transpose());
        let ran = Duration::from_micros(report.ran_us);
        let held = report.held.into_iter().map(|held| HeldResource {
            name: held.name,
            amount: held.amount,
            units: held.units,
        });
        let mut report = Box::new(Report {
            id: task,
            result,
            waited: Duration::ZERO,
            ran,
            held: held.collect(),
            memory_peak: report.memory_peak_bytes,
            stderr_tail: report.stderr_tail,
            ran_at: Some(from),
            attempt: report.attempt,
            phases: report.phases,
        });
        self.tell(|ledger| {
            let since = ledger.cell(&task).map(|cell| cell.submitted.elapsed());
            report.waited = since.map_or(Duration::ZERO, |since| since.saturating_sub(ran));
            ledger.settled(from, message, report)
        });
    }

    /// An object of ours that somebody else has been given.
    pub(super) fn value_of(&self, name: &ObjectName) -> Option<Value> {
        match self.lent_as(name)? {
            Reference::Put(object) => Some(object.value.clone()),
            Reference::Task(cell) => cell.value(),
            Reference::Actor(_) => None,
        }
    }
}

/// Whether what a node wants done is what it says that the task is.
fn is_consistent(from: NodeId, deed: &Deed, spec: &TaskSpec) -> bool {
    match (deed, spec.kind) {
        (Deed::Task(_), TaskKind::Task) => true,
        (Deed::Create(order), TaskKind::Actor(actor)) => {
            order.actor.id == actor && order.actor.owner == from && actor.task() == spec.id
        }
        (Deed::Call(order), TaskKind::Call { actor, .. }) => order.actor.id == actor,
        _ => false,
    }
}

/// Passes on what a task and all that it starts write, and how the task ended behind what it wrote itself.
async fn pass_on(this: Weak<Exchange>, attempt: Received, mut written: Written) {
    let (to, task, _) = attempt;
    loop {
        tokio::select! {
            biased;
            chunk = written.chunks.recv() => match chunk {
                Some(chunk) => Exchange::send_output(&this, to, output(task, chunk)).await,
                None => break,
            },
            Some(outgoing) = written.ends.recv() => {
                // All that it wrote is in the channel by now.
                while let Ok(chunk) = written.chunks.try_recv() {
                    Exchange::send_output(&this, to, output(task, chunk)).await;
                }
                let Some(exchange) = this.upgrade() else {
                    return;
                };
                exchange.queue(to, Queued::Outgoing(outgoing));
            }
        }
    }
    if let Some(exchange) = this.upgrade() {
        exchange.ends.close(&attempt, written, |outgoing| {
            exchange.queue(to, Queued::Outgoing(outgoing));
        });
    }
}

fn output(task: TaskId, chunk: OutputChunk) -> Output {
    Output {
        task,
        writer: chunk.writer,
        attempt: chunk.attempt,
        is_stderr: chunk.source == OutputSource::Stderr,
        bytes: Bytes(chunk.bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests;
