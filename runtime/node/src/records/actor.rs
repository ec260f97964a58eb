//! Actors of a node: their instances, what they are made of, and who holds them.
//!
//! Owns [`ActorCell`] (one actor, through all its generations). Must not: decide when an actor is created or called: its
//! creation and its calls are tasks of the scheduler.
//!
//! The node where an actor was created owns it: it counts its generations, keeps its last state, and ends it when no reference
//! to it is left. Any node may host it: have its instance, for one generation. Others know its [`Face`], and where it is.
//!
//! Invariants: at most one call is with an instance at a time; an actor without references has no
//! calls left, and ends. There is one cell for an actor on a node, whatever the node is to it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use wasmrun_engine::{ActorInstance, Class, Listener, TaskOutput};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, ActorName, NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::task::Attempt;

use crate::records::call_log::CallLog;
use crate::records::class::{ActorJob, Face};
use crate::records::handles::HandleTable;
use crate::records::job::Parent;
use crate::records::task::TaskCell;

/// One actor, through all its generations.
pub(crate) struct ActorCell {
    pub(crate) id: ActorId,
    /// The node where it was created.
    owner: NodeId,
    /// Whether that is another one.
    is_foreign: bool,
    pub(crate) face: Arc<Face>,
    /// What its instances are made of, on its owner and where it is hosted.
    job: OnceLock<Arc<ActorJob>>,
    /// Handles that its guest has.
    pub(crate) handles: Arc<HandleTable>,
    /// Where its output goes, until it is over: its listeners wait for that.
    output: Mutex<Option<Arc<TaskOutput>>>,
    generation: Mutex<Generation>,
    restarts_left: AtomicU32,
    /// What it holds of the CPU where it lives here, in 1/10,000 of a core: its calls run with that.
    cpu: AtomicU64,
    /// Whether its owner is about to be told its state.
    is_telling: AtomicBool,
    /// Whether nobody can call it any more.
    is_over: AtomicBool,
    /// Whether it can be found by its name: it was submitted.
    is_public: AtomicBool,
    /// Whether another node has it live on when its owner is lost: there is a record of it.
    is_recorded: AtomicBool,
    /// Its name within its tenant, on its owner, if it was given one.
    public_name: OnceLock<String>,
    /// What it was called with at other nodes, on its owner, if its class is deterministic.
    log: Option<Box<CallLog>>,
    /// Which task created it, if one did.
    pub(crate) creator: Option<Creator>,
    /// A generation has begun, or there will be no other one.
    settled: Notify,
}

/// An attempt that has created an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Creator {
    pub(crate) task: TaskId,
    pub(crate) attempt: Attempt,
}

/// The end of a generation.
pub(crate) struct Death {
    /// The instance, if it was here and no call had it.
    pub(crate) instance: Option<Box<ActorInstance>>,
    /// Whether another generation follows, as far as this node knows: of another node's actor, that node says.
    pub(crate) is_followed: bool,
    /// Whether it lived on this node.
    pub(crate) was_here: bool,
}

/// The state that a generation begins with.
#[derive(Clone)]
pub(crate) struct Checkpoint {
    /// Which one: higher is later.
    pub(crate) number: u64,
    pub(crate) state: Arc<[u8]>,
}

/// Where an actor stands, for other nodes.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    /// It lives on a node.
    At(NodeId),
    /// It does not live now.
    Away,
    /// It will never live again.
    Dead(Option<TaskError>),
}

/// What an actor leaves behind.
pub(crate) struct Remains {
    pub(crate) instance: Option<Box<ActorInstance>>,
    pub(crate) output: Option<Arc<TaskOutput>>,
}

/// What there is of an actor now.
#[derive(Default)]
struct Generation {
    /// The instance, while no call has it.
    instance: Option<Box<ActorInstance>>,
    /// Where it lives, if it does.
    at: Option<NodeId>,
    /// The attempt of its creation that lives here.
    attempt: Attempt,
    /// Whether this generation is to end, though others may follow.
    is_stopped: bool,
    /// The call that has the instance.
    current: Option<Arc<TaskCell>>,
    /// Whether that call was told to stop, because nobody wants it any more.
    is_abandoned: bool,
    checkpoint: Option<Checkpoint>,
    /// The last attempt of its creation that another node has ordered, which said what to begin with.
    ordered: Option<Attempt>,
    /// How many calls of this generation there were.
    calls: u64,
    /// Since when it lives, as far as is known here.
    since: Option<Instant>,
    /// How long the last one has lived, until somebody takes note of that.
    lived: Option<Duration>,
    /// Where the last generation lived that has begun, if any has.
    lived_at: Option<NodeId>,
    /// Whether there will be no other one, on this node at least.
    is_buried: bool,
    /// How the last generation ended.
    death: Option<TaskError>,
    /// Its owner is lost: that is why it ends, whatever ends first.
    orphaned: Option<TaskError>,
}

impl ActorCell {
    /// An actor that this node owns.
    pub(crate) fn new(
        id: ActorId,
        owner: NodeId,
        job: Arc<ActorJob>,
        listener: Option<Listener>,
    ) -> Self {
        let output = TaskOutput::new(job.limits.output, listener);
        Self {
            output: Mutex::new(Some(output)),
            restarts_left: AtomicU32::new(job.restarts),
            is_foreign: false,
            log: job.is_deterministic.then(Box::default),
            job: OnceLock::from(job.clone()),
            ..Self::foreign(ActorName { id, owner }, Arc::new(Face::of(&job)))
        }
    }

    /// An actor that another node owns.
    pub(crate) fn foreign(name: ActorName, face: Arc<Face>) -> Self {
        Self {
            id: name.id,
            owner: name.owner,
            is_foreign: true,
            face,
            job: OnceLock::new(),
            handles: Arc::default(),
            output: Mutex::default(),
            generation: Mutex::default(),
            // Its owner counts its generations.
            restarts_left: AtomicU32::new(0),
            cpu: AtomicU64::new(0),
            is_telling: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_recorded: AtomicBool::new(false),
            is_public: AtomicBool::new(false),
            public_name: OnceLock::new(),
            log: None,
            creator: None,
            settled: Notify::new(),
        }
    }

    /// The same, with the attempt that creates it.
    pub(crate) fn made_by(mut self, creator: Creator) -> Self {
        self.creator = Some(creator);
        self
    }

    /// What its instances are made of: for its owner, and for who hosts it.
    pub(crate) fn job(&self) -> &Arc<ActorJob> {
        let job = self.job.get();
        job.expect("only its owner and who hosts it make instances")
    }

    /// From now on this node may host it.
    pub(crate) fn set_job(&self, job: ActorJob) {
        // It is the same in all generations.
        let _ = self.job.set(Arc::new(job));
    }

    pub(crate) fn class(&self) -> &Class {
        let job = self.job();
        job.module.class(job.class)
    }

    pub(crate) fn name(&self) -> ActorName {
        ActorName {
            id: self.id,
            owner: self.owner,
        }
    }

    /// From now on another node has it live on when this one is lost.
    pub(crate) fn set_recorded(&self) {
        self.is_recorded.store(true, Ordering::Release);
    }

    /// Whether another node has it live on when this one, its owner, is lost.
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded.load(Ordering::Acquire)
    }

    /// Whether another node owns it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Whose it is.
    pub(crate) fn tenant(&self) -> &TenantName {
        &self.face.call_terms.tenant
    }

    /// The task that creates it.
    pub(crate) fn creation(&self) -> TaskId {
        self.id.task()
    }

    /// What tasks and actors that it starts have from it.
    pub(crate) fn parent(&self) -> Parent<'_> {
        let job = self.job();
        Parent {
            module: &job.module,
            grants: &job.grants,
            terms: &job.terms,
            limits: &job.limits,
            policy: &job.policy,
            derived: &job.derived,
        }
    }

    /// A generation of another node's actor is about to begin here. Where its output goes.
    pub(crate) fn is_hosted(&self, listener: Option<Listener>) {
        let output = TaskOutput::new(self.job().limits.output, listener);
        let before = self.output.lock().replace(output);
        drop(before);
        let mut generation = self.generation.lock();
        generation.is_stopped = false;
        generation.is_buried = false;
        generation.orphaned = None;
    }

    /// The node that owns it is lost, and this generation ends for that. Calls that fail first say so too.
    pub(crate) fn is_orphaned(&self, why: TaskError) {
        self.generation.lock().orphaned = Some(why);
    }

    /// It lives, here.
    ///
    /// # Errors
    /// Gives the instance back when the actor was ended meanwhile.
    pub(crate) fn born(
        &self,
        instance: Box<ActorInstance>,
        here: NodeId,
        attempt: Attempt,
    ) -> Result<(), Box<ActorInstance>> {
        let mut generation = self.generation.lock();
        if self.is_over() || generation.is_stopped {
            return Err(instance);
        }
        generation.instance = Some(instance);
        generation.at = Some(here);
        generation.attempt = attempt;
        generation.since = Some(Instant::now());
        generation.calls = 0;
        generation.lived_at = Some(here);
        drop(generation);
        self.settled.notify_waiters();
        Ok(())
    }

    /// So much of the CPU is its own, in 1/10,000 of a core, for the generation that is about to begin here.
    pub(crate) fn set_cpu(&self, amount: u64) {
        self.cpu.store(amount, Ordering::Relaxed);
    }

    /// What it holds of the CPU, in 1/10,000 of a core.
    pub(crate) fn cpu(&self) -> u64 {
        self.cpu.load(Ordering::Relaxed)
    }

    /// The attempt of its creation that lives here.
    pub(crate) fn attempt(&self) -> Attempt {
        self.generation.lock().attempt
    }

    /// It lives, on another node.
    pub(crate) fn lives_at(&self, node: NodeId) {
        let mut generation = self.generation.lock();
        if generation.at.replace(node).is_none() {
            generation.since = Some(Instant::now());
        }
        generation.lived_at = Some(node);
        drop(generation);
        self.settled.notify_waiters();
    }

    /// Where its last generation lived, if one has ever begun, as far as is known here.
    pub(crate) fn lived_at(&self) -> Option<NodeId> {
        self.generation.lock().lived_at
    }

    /// Waits until a generation has begun.
    ///
    /// # Errors
    /// When it never does: why, if it was not killed.
    pub(crate) async fn lives(&self) -> Result<(), Option<TaskError>> {
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            let known = |it: &Generation| (it.lived_at, it.is_buried, it.death.clone());
            let (lived_at, is_buried, death) = known(&self.generation.lock());
            match is_buried || self.is_foreign && self.is_over() {
                true => return Err(death),
                false if lived_at.is_some() && !self.is_over() => return Ok(()),
                false => settled.await,
            }
        }
    }

    /// Where it lives, as far as is known here.
    pub(crate) fn at(&self) -> Option<NodeId> {
        self.generation.lock().at
    }

    /// Whether its instance is on this node.
    pub(crate) fn is_here(&self) -> bool {
        let generation = self.generation.lock();
        generation.instance.is_some() || generation.current.is_some()
    }

    /// Where it stands.
    pub(crate) fn standing(&self) -> Standing {
        if self.is_over() {
            return Standing::Dead(self.death());
        }
        self.at().map_or(Standing::Away, Standing::At)
    }

    /// This generation is to end: the call that runs is its last.
    pub(crate) fn stop_generation(&self) {
        self.generation.lock().is_stopped = true;
    }

    /// Takes the instance for a call.
    pub(crate) fn take(&self, call: &Arc<TaskCell>) -> Option<Box<ActorInstance>> {
        let mut generation = self.generation.lock();
        let instance = generation.instance.take()?;
        generation.current = Some(call.clone());
        generation.is_abandoned = false;
        Some(instance)
    }

    /// The call has no caller any more: it is to stop, and this generation with it. Nothing if it does not run.
    pub(crate) fn abandon(&self, call: &Arc<TaskCell>) {
        let mut generation = self.generation.lock();
        generation.is_abandoned |= generation
            .current
            .as_ref()
            .is_some_and(|it| Arc::ptr_eq(it, call));
    }

    /// Whether the call that runs was told to stop because nobody wants it any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.generation.lock().is_abandoned
    }

    /// A call gives the instance back, with the state that another generation would begin with. Which call of this generation it
    /// was, from 1.
    ///
    /// # Errors
    /// Not if the actor was ended meanwhile: then its generation ends with the call.
    pub(crate) fn give_back(
        &self,
        instance: Box<ActorInstance>,
        checkpoint: Option<Vec<u8>>,
    ) -> Result<u64, Box<ActorInstance>> {
        let mut generation = self.generation.lock();
        // It is noted as over before the call that runs is looked for.
        if self.is_over() || generation.is_stopped || generation.at.is_none() {
            return Err(instance);
        }
        generation.current = None;
        if let Some(state) = checkpoint {
            let number = generation.checkpoint.as_ref().map_or(0, |it| it.number) + 1;
            generation.checkpoint = Some(Checkpoint {
                number,
                state: state.into(),
            });
        }
        generation.instance = Some(instance);
        generation.calls += 1;
        Ok(generation.calls)
    }

    /// It has a new state, of which its owner has to hear. False if that is under way already.
    pub(crate) fn note_checkpoint(&self) -> bool {
        !self.is_telling.swap(true, Ordering::AcqRel)
    }

    /// The state to tell its owner now. What comes after this is told again.
    pub(crate) fn checkpoint_to_send(&self) -> Option<Checkpoint> {
        self.is_telling.store(false, Ordering::Release);
        self.checkpoint()
    }

    /// A state that came from another node, unless a later one is known.
    pub(crate) fn set_checkpoint(&self, checkpoint: Checkpoint) {
        let mut generation = self.generation.lock();
        let known = generation.checkpoint.as_ref().map_or(0, |it| it.number);
        if checkpoint.number > known {
            generation.checkpoint = Some(checkpoint);
        }
    }

    /// Its owner has ordered a generation that begins with this state. That of an earlier one here does not count: it may have
    /// gone on from a state that its owner never heard of.
    pub(crate) fn begins_with(&self, order: Attempt, state: Option<Checkpoint>) {
        let mut generation = self.generation.lock();
        if Some(order) > generation.ordered {
            generation.ordered = Some(order);
            generation.checkpoint = state;
        }
    }

    /// How often it may still begin anew, on its owner.
    pub(crate) fn restarts_left(&self) -> u32 {
        self.restarts_left.load(Ordering::Acquire)
    }

    /// The state that the next generation begins with.
    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        self.generation.lock().checkpoint.clone()
    }

    /// The generation has ended, if there was one.
    pub(crate) fn dies(&self, why: Option<TaskError>, here: NodeId) -> Option<Death> {
        let mut generation = self.generation.lock();
        let at = generation.at.take()?;
        generation.lived = generation.since.take().map(|since| since.elapsed());
        generation.current = None;
        // One that was ended meanwhile has not left for anybody.
        let is_move = |why: &TaskError| matches!(why, TaskError::Preempted { .. });
        let why = why.filter(|why| !is_move(why) || !self.is_over());
        generation.death = generation.orphaned.take().or(why);
        // It has left for another tenant: that counts as no restart.
        let is_moved = generation.death.as_ref().is_some_and(is_move);
        let (left, order) = (&self.restarts_left, Ordering::AcqRel);
        let restarts = || left.fetch_update(order, Ordering::Acquire, |left| left.checked_sub(1));
        Some(Death {
            instance: generation.instance.take(),
            is_followed: self.is_foreign || !self.is_over() && (is_moved || restarts().is_ok()),
            was_here: at == here,
        })
    }

    /// How long the generation has lived that ended last, once.
    pub(crate) fn take_lived(&self) -> Option<Duration> {
        self.generation.lock().lived.take()
    }

    /// Its owner says that it does not live now.
    pub(crate) fn is_away(&self) {
        self.generation.lock().at = None;
    }

    /// Where its output goes, unless it is over.
    pub(crate) fn output(&self) -> Option<Arc<TaskOutput>> {
        self.output.lock().clone()
    }

    /// The end of what it wrote to standard error.
    pub(crate) fn stderr_tail(&self) -> String {
        self.output()
            .map_or_else(String::new, |output| output.stderr_tail())
    }

    /// There will be no other generation, on this node at least. What is left of the last one.
    pub(crate) fn buried(&self, why: Option<TaskError>) -> Remains {
        let mut generation = self.generation.lock();
        generation.at = None;
        generation.current = None;
        generation.is_buried = true;
        if why.is_some() {
            generation.death = why;
        }
        let instance = generation.instance.take();
        drop(generation);
        self.settled.notify_waiters();
        Remains {
            instance,
            output: self.output.lock().take(),
        }
    }

    /// The call that runs, if one does.
    pub(crate) fn current(&self) -> Option<Arc<TaskCell>> {
        self.generation.lock().current.clone()
    }

    /// A call runs, or none, where no instance does.
    #[cfg(test)]
    pub(crate) fn set_current(&self, call: Option<Arc<TaskCell>>) {
        self.generation.lock().current = call;
    }

    /// Nobody can call it any more. False if that was so already.
    pub(crate) fn ends(&self) -> bool {
        let is_new = !self.is_over.swap(true, Ordering::AcqRel);
        self.settled.notify_waiters();
        is_new
    }

    /// What it was called with at other nodes, if that is kept.
    pub(crate) fn log(&self) -> Option<&CallLog> {
        self.log.as_deref()
    }

    /// It is given this name. Once.
    pub(crate) fn set_public_name(&self, name: String) {
        let set = self.public_name.set(name);
        set.expect("an actor is given one name at most");
    }

    /// The name that it was given, which it may have lost by now.
    pub(crate) fn public_name(&self) -> Option<&str> {
        self.public_name.get().map(String::as_str)
    }

    /// From now on it can be found by its name.
    pub(crate) fn publish(&self) {
        self.is_public.store(true, Ordering::Release);
    }

    /// Whether it can be found by its name.
    pub(crate) fn is_public(&self) -> bool {
        self.is_public.load(Ordering::Acquire) && !self.is_over()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Whether its call that runs is its last.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_over() || self.generation.lock().is_stopped
    }

    /// How its last generation ended.
    pub(crate) fn death(&self) -> Option<TaskError> {
        self.generation.lock().death.clone()
    }

    /// How its last generation ended, as its owner says.
    pub(crate) fn set_death(&self, why: Option<TaskError>) {
        self.generation.lock().death = why;
    }

    /// What calls get when it is dead.
    pub(crate) fn died(&self) -> TaskError {
        let generation = self.generation.lock();
        let cause = generation.orphaned.as_ref().or(generation.death.as_ref());
        TaskError::ActorDied {
            actor: self.id,
            cause: cause.cloned().map(Box::new),
        }
    }
}

/// The name of what the creation of an actor makes.
pub(crate) fn object_of(actor: ActorName) -> ObjectName {
    ObjectName {
        id: ObjectId::of(actor.id.task(), 0),
        owner: actor.owner,
    }
}
