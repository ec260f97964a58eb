//! Actors in this process: each has a queue of calls, which are made in order and one at a time.
//!
//! A call whose actor is busy, because it was made by what the actor itself called, is made when that is
//! done. A panic ends the actor, as a trap does on a node. Invariant: an actor's state is out of the table
//! while a call runs, so nothing is ever borrowed twice.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use super::{
    Object, ObjectState, Outcome, WORLD, first_missing, name_as_number, number_as_name,
    read_arguments, refuse_refused, run, value_or_error,
};
use crate::argument::Argument;
use crate::error::{Error, Failure, FailureKind};
use crate::host::{ACTOR_NAME_BYTES, ActorName};
use crate::module::{Instance, Module, Returned};
use crate::options::ActorSettings;
use crate::value::Encoded;

/// A handle to an actor.
pub struct Actor(Rc<ActorState>);

pub(super) struct ActorState {
    index: u64,
    class: &'static str,
    generation: RefCell<Generation>,
    /// Calls that were not made yet, in order; the first one may have arguments to wait for.
    queue: RefCell<VecDeque<Call>>,
    is_running: Cell<bool>,
}

/// An actor has one here: it is not restarted.
enum Generation {
    /// It will be made by the first entry of the queue.
    Unborn,
    /// Its state; `None` while a call runs.
    Alive(Option<Box<dyn Instance>>),
    Dead(Failure),
}

/// A call of a constructor or a method.
struct Call {
    task: String,
    object: Option<Rc<ObjectState>>,
    what: What,
    arguments: Vec<Argument>,
}

enum What {
    Construct(&'static Module),
    Invoke(&'static str),
}

pub fn create(
    module: &'static Module,
    class: &'static str,
    arguments: Vec<Argument>,
    settings: Option<&ActorSettings>,
) -> Result<Actor, Error> {
    refuse_refused(&arguments)?;
    let name = settings.and_then(|settings| settings.name.clone());
    let (actor, task) = WORLD.with_borrow_mut(|world| {
        let index = world.actors.len();
        if let Some(name) = name {
            if world.actor_names.contains_key(&name) {
                return Err(Error::Refused(format!(
                    "there is an actor named '{name}' already: choose another name, or kill it"
                )));
            }
            world.actor_names.insert(name, index);
        }
        let actor = Rc::new(ActorState {
            index: index as u64,
            class,
            generation: RefCell::new(Generation::Unborn),
            queue: RefCell::default(),
            is_running: Cell::new(false),
        });
        world.actors.push(actor.clone());
        Ok((actor, world.next_task()))
    })?;
    actor.clone().enqueue(Call {
        task,
        object: None,
        what: What::Construct(module),
        arguments,
    });
    Ok(Actor(actor))
}

pub fn find(name: &str) -> Result<Actor, Error> {
    let found = WORLD.with_borrow(|world| {
        let index = *world.actor_names.get(name)?;
        Some(world.actors[index].clone())
    });
    found.map(Actor).ok_or_else(|| {
        Error::Refused(format!(
            "no actor is named '{name}': create it with `options().name(…)`"
        ))
    })
}

impl Actor {
    pub fn id(&self) -> String {
        self.0.id()
    }

    pub fn name(&self) -> ActorName {
        number_as_name::<ACTOR_NAME_BYTES>(self.0.index)
    }

    pub fn named(name: &ActorName) -> Result<Self, Error> {
        let found = WORLD.with_borrow(|world| world.actors.get(name_as_number(name)?).cloned());
        found.map(Self).ok_or_else(|| {
            Error::Refused(
                "no actor of this thread has this name: pass handles on as they are".to_owned(),
            )
        })
    }

    /// Without a time limit: nothing could stop the call.
    pub fn call(
        &self,
        method: &'static str,
        arguments: Vec<Argument>,
        _time_limit: Option<Duration>,
    ) -> Result<Object, Error> {
        refuse_refused(&arguments)?;
        let (object, task) =
            WORLD.with_borrow_mut(|world| (world.add_object(Outcome::Pending), world.next_task()));
        self.0.clone().enqueue(Call {
            task,
            object: Some(object.clone()),
            what: What::Invoke(method),
            arguments,
        });
        Ok(Object(object))
    }

    pub fn kill(&self) {
        self.0.die(Failure {
            kind: FailureKind::ActorDied,
            message: format!("{} was killed", self.0.id()),
            origin: self.0.id(),
            payload: None,
        });
    }
}

impl ActorState {
    fn id(&self) -> String {
        format!("local-actor-{}", self.index)
    }

    fn enqueue(self: Rc<Self>, call: Call) {
        self.queue.borrow_mut().push_back(call);
        self.go_on();
    }

    /// Makes the calls that can be made, in order, one at a time.
    fn go_on(self: Rc<Self>) {
        if self.is_running.get() {
            return;
        }
        loop {
            let missing = match self.queue.borrow().front() {
                Some(call) if !self.is_dead() => first_missing(&call.arguments),
                Some(_) => None,
                None => return,
            };
            if let Some(missing) = missing {
                let actor = self.clone();
                let waiter = move || actor.go_on();
                missing.waiters.borrow_mut().push(Box::new(waiter));
                return;
            }
            let call = self.queue.borrow_mut().pop_front();
            if let Some(call) = call {
                self.is_running.set(true);
                self.make(call);
                self.is_running.set(false);
            }
        }
    }

    fn is_dead(&self) -> bool {
        matches!(*self.generation.borrow(), Generation::Dead(_))
    }

    /// Makes one call, whose arguments are all there.
    fn make(&self, call: Call) {
        let result = match &call.what {
            What::Construct(module) => self.construct(module, &call).map(|()| None),
            What::Invoke(method) => self.invoke(method, &call).map(Some),
        };
        match (result, call.object) {
            (Ok(Some(value)), Some(object)) => object.finish(Ok(value)),
            (Err(failure), Some(object)) => object.finish(Err(failure)),
            (Err(failure), None) => self.die(failure),
            (Ok(_), _) => {}
        }
    }

    fn construct(&self, module: &'static Module, call: &Call) -> Result<(), Failure> {
        self.alive()?;
        let arguments = read_arguments(&call.arguments, &call.task)?;
        let instance = run(&call.task, self.class, || {
            (module.create)(self.class, arguments)
        })?;
        let mut generation = self.generation.borrow_mut();
        if matches!(*generation, Generation::Unborn) {
            *generation = Generation::Alive(Some(instance));
        }
        Ok(())
    }

    fn invoke(&self, method: &'static str, call: &Call) -> Result<Encoded, Failure> {
        self.alive()?;
        let arguments = read_arguments(&call.arguments, &call.task)?;
        let taken = match &mut *self.generation.borrow_mut() {
            Generation::Alive(instance) => instance.take(),
            Generation::Unborn | Generation::Dead(_) => None,
        };
        let mut instance = taken.expect("an actor that is alive and idle has its state");
        let returned = run(&call.task, method, || instance.invoke(method, arguments));
        match &returned {
            // Its state may be half changed: on a node the whole instance would be gone.
            Err(failure) if failure.kind == FailureKind::Trap => self.die(died(failure)),
            _ => {
                if let Generation::Alive(state) = &mut *self.generation.borrow_mut() {
                    *state = Some(instance);
                }
            }
        }
        // Killed by what it called.
        self.alive_or_trapped(&returned)?;
        value_or_error(returned?, &call.task, method)
    }

    fn alive_or_trapped(&self, returned: &Result<Returned, Failure>) -> Result<(), Failure> {
        match returned {
            Ok(_) => self.alive(),
            Err(_) => Ok(()),
        }
    }

    fn alive(&self) -> Result<(), Failure> {
        match &*self.generation.borrow() {
            Generation::Unborn | Generation::Alive(_) => Ok(()),
            Generation::Dead(failure) => Err(failure.clone()),
        }
    }

    /// Ends it, unless it is dead: what is queued fails.
    fn die(&self, failure: Failure) {
        if self.is_dead() {
            return;
        }
        let failure = died(&failure);
        *self.generation.borrow_mut() = Generation::Dead(failure.clone());
        WORLD.with_borrow_mut(|world| {
            let index = self.index as usize;
            world.actor_names.retain(|_, other| *other != index);
        });
        for call in self.queue.take() {
            if let Some(object) = call.object {
                object.finish(Err(failure.clone()));
            }
        }
    }
}

/// What the calls of a dead actor hear.
fn died(cause: &Failure) -> Failure {
    Failure {
        kind: FailureKind::ActorDied,
        message: match cause.kind {
            FailureKind::ActorDied => cause.message.clone(),
            _ => format!("the actor is dead: {}", cause.message),
        },
        origin: cause.origin.clone(),
        payload: None,
    }
}
