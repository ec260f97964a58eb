//! Actors of a node: their instances, what they are made of, and who holds them.
//!
//! Owns [`ActorCell`] (one actor, through all its lives) and [`ActorRef`] (a counted reference to it).
//! Must not: decide when an actor is created or called; its creation and its calls are tasks of the
//! scheduler.
//!
//! Invariants: at most one call is with an instance at a time; an actor without references has no
//! calls left, and ends.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use wasmrun_engine::{
    ActorInstance, Class, ClassIndex, Grants, Limits, Listener, Module, TaskOutput,
};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{ActorId, ActorName, NodeId, TaskId};
use wasmrun_model::task::{Attempt, Terms};

use crate::known::Known;
use crate::node::WeakShared;
use crate::policy::Policy;
use crate::shared::kill_later;
use crate::task::{Derived, Parent, TaskCell};

/// What an actor is: a class, with what its instances ask for.
pub struct ActorJob {
    /// The module.
    pub module: Module,
    /// Which of its classes.
    pub class: ClassIndex,
    /// Whose it is, and what it holds all its life. The retries are of its creation.
    pub terms: Arc<Terms>,
    /// What it may use besides.
    pub limits: Limits,
    /// What it may reach.
    pub grants: Grants,
    /// How often it is started again after it died.
    pub restarts: u32,
    /// The terms of its calls: they hold nothing, and are made again so often.
    pub call_terms: Arc<Terms>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) derived: Derived,
}

/// One actor, through all its lives.
pub(crate) struct ActorCell {
    pub(crate) id: ActorId,
    /// The node where it was created.
    owner: NodeId,
    pub(crate) job: Arc<ActorJob>,
    /// Handles that its guest has.
    pub(crate) known: Arc<Known>,
    /// Where its output goes, until it is over: whoever listens waits for that.
    output: Mutex<Option<Arc<TaskOutput>>>,
    life: Mutex<Life>,
    restarts_left: AtomicU32,
    /// Whether nobody can call it any more.
    is_over: AtomicBool,
    /// Whether it can be found by its name: it was submitted.
    is_public: AtomicBool,
    /// Which task created it, if one did.
    pub(crate) creator: Option<Creator>,
}

/// An attempt that has created an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Creator {
    pub(crate) task: TaskId,
    pub(crate) attempt: Attempt,
}

/// The end of a life.
pub(crate) struct Death {
    /// The instance, if no call had it.
    pub(crate) instance: Option<Box<ActorInstance>>,
    /// Whether another life follows.
    pub(crate) is_followed: bool,
}

/// What an actor leaves behind.
pub(crate) struct Remains {
    pub(crate) instance: Option<Box<ActorInstance>>,
    pub(crate) output: Option<Arc<TaskOutput>>,
}

/// What there is of an actor now.
#[derive(Default)]
struct Life {
    /// The instance, while no call has it.
    instance: Option<Box<ActorInstance>>,
    is_alive: bool,
    /// The call that has the instance.
    current: Option<Arc<TaskCell>>,
    checkpoint: Option<Arc<[u8]>>,
    /// How the last life ended.
    death: Option<TaskError>,
}

impl ActorCell {
    pub(crate) fn new(
        id: ActorId,
        owner: NodeId,
        job: Arc<ActorJob>,
        listener: Option<Listener>,
    ) -> Self {
        Self {
            id,
            owner,
            known: Arc::default(),
            output: Mutex::new(Some(TaskOutput::new(job.limits.output, listener))),
            life: Mutex::default(),
            restarts_left: AtomicU32::new(job.restarts),
            is_over: AtomicBool::new(false),
            is_public: AtomicBool::new(false),
            creator: None,
            job,
        }
    }

    /// The same, with the attempt that creates it.
    pub(crate) fn made_by(mut self, creator: Creator) -> Self {
        self.creator = Some(creator);
        self
    }

    pub(crate) fn class(&self) -> &Class {
        self.job.module.class(self.job.class)
    }

    pub(crate) fn name(&self) -> ActorName {
        ActorName {
            id: self.id,
            owner: self.owner,
        }
    }

    /// The task that creates it.
    pub(crate) fn creation(&self) -> TaskId {
        self.id.task()
    }

    /// What tasks and actors that it starts have from it.
    pub(crate) fn parent(&self) -> Parent<'_> {
        Parent {
            module: &self.job.module,
            grants: &self.job.grants,
            terms: &self.job.terms,
            limits: &self.job.limits,
            policy: &self.job.policy,
            derived: &self.job.derived,
        }
    }

    /// It lives.
    ///
    /// # Errors
    /// Gives the instance back when the actor was ended meanwhile.
    pub(crate) fn born(&self, instance: Box<ActorInstance>) -> Result<(), Box<ActorInstance>> {
        let mut life = self.life.lock();
        if self.is_over() {
            return Err(instance);
        }
        life.instance = Some(instance);
        life.is_alive = true;
        Ok(())
    }

    /// Takes the instance for a call.
    pub(crate) fn take(&self, call: &Arc<TaskCell>) -> Option<Box<ActorInstance>> {
        let mut life = self.life.lock();
        let instance = life.instance.take()?;
        life.current = Some(call.clone());
        Some(instance)
    }

    /// A call gives the instance back, with the state that another life would begin with.
    ///
    /// # Errors
    /// Not if the actor was ended meanwhile: then its life ends with the call.
    pub(crate) fn give_back(
        &self,
        instance: Box<ActorInstance>,
        checkpoint: Option<Vec<u8>>,
    ) -> Result<(), Box<ActorInstance>> {
        let mut life = self.life.lock();
        // Whoever ends it says so before it looks for the call that runs.
        if self.is_over() || !life.is_alive {
            return Err(instance);
        }
        life.current = None;
        if let Some(state) = checkpoint {
            life.checkpoint = Some(state.into());
        }
        life.instance = Some(instance);
        Ok(())
    }

    /// The state that the next life begins with.
    pub(crate) fn checkpoint(&self) -> Option<Arc<[u8]>> {
        self.life.lock().checkpoint.clone()
    }

    /// The life has ended, if it lived.
    pub(crate) fn dies(&self, why: Option<TaskError>) -> Option<Death> {
        let mut life = self.life.lock();
        if !std::mem::replace(&mut life.is_alive, false) {
            return None;
        }
        life.current = None;
        life.death = why;
        let left = &self.restarts_left;
        let fewer = |left: u32| left.checked_sub(1);
        Some(Death {
            instance: life.instance.take(),
            is_followed: !self.is_over()
                && left
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer)
                    .is_ok(),
        })
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

    /// There will be no other life. Whatever is left of the last one.
    pub(crate) fn buried(&self, why: Option<TaskError>) -> Remains {
        let mut life = self.life.lock();
        life.is_alive = false;
        life.current = None;
        if why.is_some() {
            life.death = why;
        }
        Remains {
            instance: life.instance.take(),
            output: self.output.lock().take(),
        }
    }

    /// The call that runs, if one does.
    pub(crate) fn current(&self) -> Option<Arc<TaskCell>> {
        self.life.lock().current.clone()
    }

    /// Nobody can call it any more. False if that was so already.
    pub(crate) fn ends(&self) -> bool {
        !self.is_over.swap(true, Ordering::AcqRel)
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

    /// What calls get when it is dead.
    pub(crate) fn died(&self) -> TaskError {
        TaskError::ActorDied {
            actor: self.id,
            cause: self.life.lock().death.clone().map(Box::new),
        }
    }
}

/// A counted reference to an actor. When the last one goes, the actor ends.
#[derive(Clone)]
pub(crate) struct ActorRef(Arc<Counted>);

struct Counted {
    cell: Arc<ActorCell>,
    shared: WeakShared,
}

impl ActorRef {
    pub(crate) fn new(cell: Arc<ActorCell>, shared: WeakShared) -> Self {
        Self(Arc::new(Counted { cell, shared }))
    }

    pub(crate) fn cell(&self) -> &Arc<ActorCell> {
        &self.0.cell
    }

    /// Which it is: the same for all references to one actor.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// How many references there are.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Deref for ActorRef {
    type Target = ActorCell;

    fn deref(&self) -> &ActorCell {
        &self.0.cell
    }
}

impl fmt::Debug for ActorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActorRef({})", self.0.cell.id)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.cell.is_over() {
            // Not here: whoever drops it may hold the ledger's lock.
            kill_later(&self.shared, self.cell.clone());
        }
    }
}
