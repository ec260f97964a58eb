//! Reconstruction of results of actors' calls, where the class is declared deterministic.
//!
//! Owns the way of calls from the node that has made them to the log of the actor's owner, and the replay: a private
//! generation of the actor begins with the state before, gets the same calls, and their results get the same ids (state edges
//! of lineage, as in Ray, OSDI 2018). Must not: touch the actor
//! itself.
//!
//! Only calls that are made at other nodes are told: what is made at the owner is lost with it and its log.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use wasmrun_engine::Input;
use wasmrun_model::cluster::Strategy;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{ActorId, DriverId, NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::task::{Attempt, Rule, TaskKind, Terms};
use wasmrun_model::value::Handle;
use wasmrun_model::wire::WireError;

use super::awaited::{Awaited, Question};
use super::protocol::{Body, Called, CalledAgain, CarriedArgument, Made, OneWay, Replay};
use super::{Exchange, remote};
use crate::guests::services::Watch;
use crate::guests::shared::Shared;
use crate::ledger::Submission;
use crate::records::actor::ActorCell;
use crate::records::actor_ref::ActorRef;
use crate::records::call_log::{Logged, MOST_CALLS, Ran, Story};
use crate::records::class::ActorJob;
use crate::records::job::{Argument, Call, Derived};
use crate::records::lineage::{self, CallRecipe};
use crate::records::object::{Object, Reference, Value};
use crate::records::task::{TaskCell, Work};

/// The numbers of actors that are made to call them again, among what a creation could have started.
const SCRATCH_FROM: u64 = 1 << 62;
/// How many calls are replayed ahead of the one whose result is looked at.
const AT_A_TIME: usize = 16;
/// How many actors' logs are known before those are looked for that are gone.
const SWEEP: usize = 64;

/// What is under way, and the actors of this node that have logs.
#[derive(Default)]
pub(super) struct Replays {
    pub(super) awaited: Awaited<Result<Value, String>>,
    actors: Mutex<HashMap<ActorId, Weak<ActorCell>>>,
    /// How many actors were made for this.
    scratch: AtomicU64,
}

impl Replays {
    fn log_of(&self, actor: &Arc<ActorCell>) {
        let mut actors = self.actors.lock();
        if actors.len() >= SWEEP && actors.len() == actors.capacity() {
            actors.retain(|_, it| it.strong_count() > 0);
        }
        actors.insert(actor.id, Arc::downgrade(actor));
    }

    fn find(&self, actor: &ActorId) -> Option<Arc<ActorCell>> {
        self.actors.lock().get(actor)?.upgrade()
    }
}

/// The calls of a story as they are replayed, a few at a time: so there need not be room for all results.
struct Calls<'a> {
    shared: Arc<Shared>,
    scratch: ActorRef,
    driver: DriverId,
    first: Attempt,
    left: std::slice::Iter<'a, Arc<Logged>>,
    under_way: VecDeque<(&'a Logged, Arc<TaskCell>)>,
}

impl<'a> Calls<'a> {
    /// The next one, which may still run.
    fn next(&mut self) -> Result<Option<(&'a Logged, Arc<TaskCell>)>, String> {
        while self.under_way.len() < AT_A_TIME
            && let Some(call) = self.left.find(|call| call.ran != Ran::Never)
        {
            match self.call(call) {
                Ok(cell) => self.under_way.push_back((call, cell)),
                Err(error) => {
                    self.shared.kill(self.scratch.cell());
                    return Err(error);
                }
            }
        }
        Ok(self.under_way.pop_front())
    }

    fn call(&self, call: &Logged) -> Result<Arc<TaskCell>, String> {
        let work = Work::Call(self.scratch.cell().clone(), call.method);
        let submission = Submission {
            driver: self.driver,
            parent: None,
            terms: self.scratch.face.call_terms.clone(),
            kind: TaskKind::Call {
                actor: self.scratch.id,
                caller: None,
            },
            call: call_of(&call.values),
            cell: cell(&self.shared, call.task, self.driver, work),
            keeps: Some(self.scratch.clone()),
            first: self.first,
        };
        self.shared.submit(submission).map_err(unmade)
    }
}

fn unmade(error: impl Display) -> String {
    format!("its actor cannot be made again: {error}")
}

/// Objects that calls of a story were given.
fn needed(story: &Story) -> HashSet<ObjectId> {
    let values = story.calls.iter().flat_map(|call| &call.values);
    let objects = values.filter_map(|value| match value {
        Argument::Object(Object(reference)) => match reference.handle() {
            Handle::Object(name) => Some(name.id),
            _ => None,
        },
        Argument::Value(_) => None,
    });
    objects.collect()
}

/// At the node where an actor lives.
impl Exchange {
    /// An actor that another node owns was called. `position`: which call it is in this generation, from 1.
    pub(super) fn tell_owner_of_call(
        &self,
        actor: &ActorCell,
        call: &TaskCell,
        values: &[Argument],
        ran: Ran,
        position: u64,
    ) {
        let Work::Call(_, method) = &call.work else {
            return;
        };
        let owner = actor.name().owner;
        if !self.is_alive(&owner) {
            // Nothing is kept for it.
            return;
        }
        let called = Called {
            actor: actor.id,
            attempt: actor.attempt(),
            position,
            task: call.id,
            driver: call.driver,
            method: actor.face.methods[*method].0.clone(),
            values: self.log_arguments(owner, values),
            ran,
        };
        self.send(owner, OneWay::Called(Box::new(called)));
    }

    /// Arguments for the log of another node. `None` if some are too large to be sent as they are: they may be gone
    /// when they are needed. Also if some hold handles: a log that keeps actors could keep its own, for ever.
    fn log_arguments(&self, to: NodeId, values: &[Argument]) -> Option<Vec<CarriedArgument>> {
        let bytes = values.iter().map(Argument::size_bytes).sum::<u64>();
        let is_plain = |value: &Argument| match value {
            Argument::Value(value) => value.as_inline().is_some() && value.references().is_empty(),
            Argument::Object(Object(Reference::Put(object))) => {
                object.value.references().is_empty()
            }
            Argument::Object(Object(Reference::Task(cell))) => {
                let made = cell.value();
                made.is_some_and(|value| value.references().is_empty())
            }
            Argument::Object(Object(Reference::Actor(_))) => false,
        };
        if bytes > remote::MAX_INLINE as u64 || !values.iter().all(is_plain) {
            return None;
        }
        let id = ObjectId::of(TaskId::from_bytes([0; 16]), 0);
        let told = values.iter().map(|value| match value {
            // Its id counts for what is stored, and this is not.
            Argument::Value(value) => CarriedArgument::Value(self.carry(to, id, value)),
            Argument::Object(object) => CarriedArgument::Object(self.lend(to, &object.0), None),
        });
        Some(told.collect())
    }
}

/// At the node that owns the actor.
impl Exchange {
    /// A generation of an own actor is about to begin at another node.
    pub(super) fn generation_begins(&self, actor: &Arc<ActorCell>, attempt: Attempt, call: &Call) {
        if let Some(log) = actor.log() {
            self.replays.log_of(actor);
            log.begins(attempt, actor.checkpoint(), &call.values);
        }
    }

    /// A host tells of a call.
    pub(super) fn was_called(&self, from: NodeId, called: Called) {
        let Called {
            actor,
            attempt,
            position,
            task,
            driver,
            method,
            values,
            ran,
        } = called;
        // All that it names was kept for us, whatever becomes of it.
        let values = values.map(|values| {
            let values = values.into_iter().map(|it| self.take_argument(from, it));
            let values: Vec<_> = values.collect();
            values.into_iter().collect::<Result<Vec<_>, _>>()
        });
        let values = values.and_then(Result::ok);
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let (cell, objects) = shared.ask(|ledger| {
            let is_there = ledger.scheduler().is_at(&actor.task(), attempt, from);
            let cell = ledger.own_actor(&actor.task()).filter(|_| is_there);
            let values = values.as_ref();
            let objects = values.and_then(|values| ledger.lineage().count_call(values));
            (cell, objects)
        });
        // The host has looked at what it knows; how to make a result of ours again only we know.
        let values = values
            .filter(|values| !values.iter().any(lineage::keeps_actors))
            .zip(objects);
        let Some(cell) = cell else {
            return;
        };
        let (Some(log), Some(method)) = (cell.log(), cell.face.find(&method)) else {
            return;
        };
        for value in values.iter().flat_map(|(values, _)| values) {
            // The log is for when the host is lost, and with it what it keeps for us.
            if let Argument::Object(Object(reference)) = value
                && let Handle::Object(name) = reference.handle()
                && ![self.me, from].contains(&name.owner)
            {
                self.send(name.owner, OneWay::Lend(name));
            }
        }
        let call = values.map(|(values, objects)| Logged {
            task,
            driver,
            method,
            bytes: LOGGED_BYTES + values.iter().map(Argument::size_bytes).sum::<u64>(),
            values,
            _objects: Some(objects),
            ran,
        });
        log.add(attempt, position, call, cell.checkpoint());
    }

    /// Makes the results of calls again, up to that of this one. Else why not.
    async fn replay(&self, actor: &Arc<ActorCell>, task: TaskId) -> Result<Value, String> {
        let log = actor.log().ok_or("its actor is not known any more")?;
        if let Some(value) = log.made_along(&task) {
            return Ok(value);
        }
        let story = log.story(&task).ok_or_else(|| {
            format!(
                "the call that made it is not among those of its actor that are kept: the last {MOST_CALLS} at most, \
                 as long as somebody has a handle to it, with arguments of up to 64 KiB, without handles, and with objects \
                 for which there was room"
            )
        })?;
        let again = &story.again;
        let _asked = again.ask(task);
        let made = || log.made_along(&task).or_else(|| again.made(&task));
        let _one_at_a_time = loop {
            // From here on nothing is missed.
            let changed = again.changed.notified();
            if let Some(value) = made() {
                return Ok(value);
            }
            // It may be one of those that are being replayed that needs this one.
            tokio::select! {
                guard = again.replaying.lock() => break guard,
                () = changed => {}
            }
        };
        if let Some(value) = made() {
            return Ok(value);
        }
        tracing::info!(%task, actor = %actor.id, calls = story.calls.len(), "calls of an actor are made again");
        let _replaying = again.replays();
        let mut calls = self.again(actor, &story)?;
        let needed = needed(&story);
        let mut last = None;
        while let Some((call, cell)) = calls.next()? {
            let watch = Watch::new(std::slice::from_ref(&cell), 1);
            watch.countdown.done().await;
            drop(watch);
            let (method, _) = &actor.face.methods[call.method];
            let value = match (call.ran, cell.result()) {
                (Ran::Well, Some(Ok(value))) => value,
                (Ran::Badly, Some(Err(_))) => None,
                (Ran::Well, Some(Err(error))) => {
                    return Err(format!(
                        "its actor's calls were made again, and {method} failed: {error}"
                    ));
                }
                _ => {
                    return Err(format!(
                        "its actor's calls were made again, and {method} did not fail as it had: is the class \
                         deterministic?"
                    ));
                }
            };
            if call.task == task {
                last = value;
            } else if let Some(value) = value {
                let is_needed = needed.contains(&ObjectId::of(call.task, 0));
                again.has_made(call.task, value.clone(), is_needed);
                self.keep_along(log.wanted(&call.task), value);
            }
        }
        last.ok_or_else(|| "the call that made it gives nothing".to_owned())
    }

    /// Keeps what was made along with another result, if it is lost as well.
    fn keep_along(&self, recipe: Option<Arc<CallRecipe>>, value: Value) {
        let Some(recipe) = recipe else {
            return;
        };
        let made = recipe.made.upgrade().and_then(|made| made.value());
        let holders = made.and_then(|value| Some(value.as_remote()?.holders()));
        if holders.is_some_and(|holders| !holders.iter().any(|it| self.is_alive(it))) {
            let before = recipe.reconstructed.lock().replace(value);
            drop(before);
        }
    }

    /// Begins a private generation of an actor, for a replay.
    fn again<'a>(&self, actor: &ActorCell, story: &'a Story) -> Result<Calls<'a>, String> {
        let shared = self.shared.upgrade().ok_or("the node is stopping")?;
        let number = self.replays.scratch.fetch_add(1, Ordering::Relaxed);
        let id = actor.id.task().task(SCRATCH_FROM | number);
        let driver = story.calls.last().expect("it ends with a call").driver;
        let scratch = ActorCell::new(id.actor(), self.me, Arc::new(job(&shared, actor)), None);
        if let Some(state) = &story.state {
            scratch.set_checkpoint(state.clone());
        }
        // The last that refers to it ends it.
        let scratch = ActorRef::new(Arc::new(scratch), self.shared.clone());
        let creation = Submission {
            driver,
            parent: None,
            terms: scratch.job().terms.clone(),
            kind: TaskKind::Actor(scratch.id),
            call: call_of(&story.arguments),
            cell: cell(&shared, id, driver, Work::Create(scratch.cell().clone())),
            keeps: None,
            first: Attempt::FIRST,
        };
        shared.submit(creation).map_err(unmade)?;
        let first = shared.ids.again(Attempt::FIRST);
        Ok(Calls {
            shared,
            scratch,
            driver,
            first,
            left: story.calls.iter(),
            under_way: VecDeque::new(),
        })
    }

    /// Another node wants the result of a call of an own actor reconstructed.
    pub(super) fn replay_for(&self, from: NodeId, replay: Replay) {
        let (this, Some(shared)) = (self.this.clone(), self.shared.upgrade()) else {
            return;
        };
        // It ends with the calls, and those with their driver or the node.
        shared.control.spawn(async move {
            let Replay {
                number,
                actor,
                task,
            } = replay;
            let Some(exchange) = this.upgrade() else {
                return;
            };
            let made = match exchange.replays.find(&actor) {
                Some(cell) => exchange.replay(&cell, task).await,
                None => Err("its actor is not known any more where it was created".to_owned()),
            };
            let name = ObjectName {
                id: ObjectId::of(task, 0),
                owner: from,
            };
            let made = exchange.give_back(from, name, made).await;
            let again = CalledAgain { number, made };
            exchange.send(from, OneWay::CalledAgain(Box::new(again)));
        });
    }

    /// What was replayed, for who owns it.
    async fn give_back(&self, to: NodeId, name: ObjectName, made: Result<Value, String>) -> Made {
        let made = match made {
            // The node that made it keeps it for us only.
            Ok(value) => match value.read().await {
                Ok(_) => Ok(value),
                Err(error) => Err(error.to_string()),
            },
            Err(why) => Err(why),
        };
        let result = made.map(|value| {
            let mut carried = self.carry(to, name.id, &value);
            if let Body::At(at) = &mut carried.body {
                at.owner = to;
                at.holders = vec![self.me];
                if self.is_alive(&to) {
                    self.keep_for(to, name.id, value);
                }
            }
            carried
        });
        let gone = |why: String| TaskError::Gone {
            object: name.id,
            why,
        };
        Made {
            name,
            result: result.map_err(|why| WireError::from(&gone(why))),
            ty: None,
        }
    }
}

/// At the node that owns the result.
impl Exchange {
    /// Has the result of a call reconstructed. Else why not.
    pub(super) fn call_again<'a>(
        &'a self,
        made: &'a CallRecipe,
    ) -> BoxFuture<'a, Result<Option<Value>, String>> {
        // In a box: what it waits for may come to wait for another of these.
        Box::pin(self.have_called_again(made))
    }

    async fn have_called_again(&self, made: &CallRecipe) -> Result<Option<Value>, String> {
        if let Some(value) = made.take() {
            return Ok(Some(value));
        }
        if !made.actor.face.is_deterministic {
            return Err(format!(
                "it cannot be made again: the class {} of the actor that made it is not declared deterministic",
                made.actor.face.class
            ));
        }
        self.count(|counters| &counters.objects_reconstructed, 1);
        let value = match made.actor.is_foreign() {
            false => self.replay(&made.actor, made.task).await?,
            true => {
                let silent = "the node that owns the actor which made it is lost";
                let question = self.ask_to_replay(made).ok_or(silent)?;
                question.answered().await.ok_or(silent)??
            }
        };
        Ok(Some(value))
    }

    fn ask_to_replay(&self, made: &CallRecipe) -> Option<Question<Result<Value, String>>> {
        let name = made.actor.name();
        let question = self.replays.awaited.ask(name.owner);
        let replay = Replay {
            number: question.number,
            actor: name.id,
            task: made.task,
        };
        let message = OneWay::Replay(Box::new(replay));
        self.send(name.owner, message).then_some(question)
    }

    /// What came of that.
    pub(super) fn called_again(&self, from: NodeId, again: CalledAgain) {
        let CalledAgain { number, made } = again;
        let value = match made.result {
            // Also where nobody waits any more: its end gives it back.
            Ok(carried) => self.take(from, carried).map_err(|error| error.to_string()),
            Err(error) => Err(match TaskError::from(error) {
                TaskError::Gone { why, .. } => why,
                error => error.to_string(),
            }),
        };
        self.replays.awaited.answer(from, number, value);
    }
}

/// What a call takes in a log besides its arguments, about.
const LOGGED_BYTES: u64 = 256;

/// What the actor is, for private generations: at this node, if there is room.
fn job(shared: &Shared, actor: &ActorCell) -> ActorJob {
    let job = actor.job();
    let rule = &job.terms.rule;
    let strategy = match shared.name.parse() {
        Ok(node) => Strategy::NodeAffinity { node, soft: true },
        Err(_) => Strategy::default(),
    };
    ActorJob {
        module: job.module.clone(),
        class: job.class,
        terms: Arc::new(Terms {
            rule: Arc::new(Rule {
                strategy,
                alternatives: rule.alternatives.clone(),
                selectors: rule.selectors.clone(),
                module: rule.module,
            }),
            // It stays until it has been called as often as the other was.
            retries: 0,
            ..(*job.terms).clone()
        }),
        limits: job.limits.clone(),
        grants: job.grants.clone(),
        restarts: 0,
        call_terms: job.call_terms.clone(),
        policy: job.policy.clone(),
        derived: Derived::default(),
        // Its calls are not told to anybody.
        is_deterministic: false,
    }
}

fn cell(shared: &Shared, id: TaskId, driver: DriverId, work: Work) -> Arc<TaskCell> {
    let cell = TaskCell::new(id, driver, work, shared.home());
    cell.share();
    Arc::new(cell)
}

fn call_of(values: &[Argument]) -> Call {
    Call {
        values: values.to_vec(),
        input: Input::Empty,
        ..Call::default()
    }
}
