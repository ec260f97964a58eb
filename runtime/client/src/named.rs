//! Handles inside values: those that a driver puts into what it passes on, and those in what it gets.
//!
//! Invariant: a handle is known to the node as long as something here holds it, so a value that is sent names nothing
//! that the node has forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;

use wasmrun_model::id::{ActorName, ObjectName};
use wasmrun_model::value::codec::{encode, handles};
use wasmrun_model::value::{EncodedRef, Handle, TypeError, Value, ValueType};
use wasmrun_model::wire::Request;

use crate::actor::Actor;
use crate::connection::Connection;
use crate::error::Error;
use crate::future::Future;
use crate::submit::Argument;

/// The futures and actors of a value that is being put together.
///
/// ```no_run
/// # use wasmrun_client::{Actor, Argument, Future, Handles};
/// # use wasmrun_model::value::{TypeError, Value, ValueType};
/// # fn order(ty: &ValueType, clerk: &Actor, rows: &Future) -> Result<Argument, TypeError> {
/// // record order { clerk: actor, rows: list<object>, count: u64 }
/// let mut handles = Handles::default();
/// let order = Value::Record(vec![
///     handles.actor(clerk),
///     Value::List(vec![handles.future(rows)]),
///     Value::U64(1),
/// ]);
/// handles.encode(ty, &order)
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Handles {
    futures: Vec<Future>,
    actors: Vec<Actor>,
    /// Actors that came in other values.
    again: Vec<(ActorName, Arc<Named>)>,
}

impl Handles {
    /// The value that stands for a future. Whoever gets it gets a handle, whether its own value is there or not.
    pub fn future(&mut self, future: &Future) -> Value {
        self.futures.push(future.clone());
        future.handle().into()
    }

    /// The value that stands for an actor.
    pub fn actor(&mut self, actor: &Actor) -> Value {
        self.actors.push(actor.clone());
        actor.handle().into()
    }

    /// An actor that another value names is in this one, too.
    pub(crate) fn again(&mut self, name: ActorName, named: &Arc<Named>) {
        self.again.push((name, named.clone()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.futures.is_empty() && self.actors.is_empty() && self.again.is_empty()
    }

    /// An argument of a type: the value, which holds what it names until it is with the node. A large one is stored
    /// first, as by [`Client::put_with`](crate::Client::put_with).
    ///
    /// # Errors
    /// When the value is not of the type.
    pub fn encode(self, ty: &ValueType, value: &Value) -> Result<Argument, TypeError> {
        Ok(Argument::Naming(encode(ty, value)?, Arc::new(self)))
    }

    /// All that they name, each once.
    pub(crate) fn names(&self) -> (Vec<ObjectName>, Vec<ActorName>) {
        let objects: BTreeSet<_> = self.futures.iter().map(Future::name).collect();
        let again = self.again.iter().map(|(name, _)| *name);
        let actors: BTreeSet<_> = self.actors.iter().map(Actor::name).chain(again).collect();
        (objects.into_iter().collect(), actors.into_iter().collect())
    }
}

/// What a value names that has come, held for whoever has it.
#[derive(Debug)]
pub(crate) struct Named {
    futures: Vec<Future>,
    actors: Vec<HeldActor>,
    connection: Arc<Connection>,
}

#[derive(Debug)]
struct HeldActor {
    name: ActorName,
    connection: Arc<Connection>,
}

impl Drop for HeldActor {
    fn drop(&mut self) {
        self.connection.routes.release_actor(self.name.id);
    }
}

impl Named {
    /// The handles in a value of this type that the node has just sent: it counts one of each.
    pub(crate) fn of(
        connection: &Arc<Connection>,
        ty: Option<&ValueType>,
        value: EncodedRef<'_>,
    ) -> Result<Option<Arc<Self>>, Error> {
        let Some(ty) = ty.filter(|ty| ty.has_handles()) else {
            return Ok(None);
        };
        let mut all = handles(ty, value).map_err(|error| Error::Unexpected(error.to_string()))?;
        all.sort_unstable();
        all.dedup();
        Ok(Self::of_handles(connection, all))
    }

    /// Of handles, of each of which the node counts one. `None` of none.
    pub(crate) fn of_handles(
        connection: &Arc<Connection>,
        handles: impl IntoIterator<Item = Handle>,
    ) -> Option<Arc<Self>> {
        let mut handles = handles.into_iter().peekable();
        handles.peek()?;
        let mut named = Self {
            futures: Vec::new(),
            actors: Vec::new(),
            connection: connection.clone(),
        };
        for handle in handles {
            match handle {
                Handle::Object(name) => named.futures.push(Future::named(connection, name)),
                Handle::Actor(name) => named.actors.push(HeldActor {
                    name,
                    connection: connection.clone(),
                }),
            }
        }
        Some(Arc::new(named))
    }

    pub(crate) fn future(&self, name: &ObjectName) -> Option<&Future> {
        self.futures.iter().find(|it| it.name() == *name)
    }

    pub(crate) async fn actor(&self, name: &ActorName) -> Result<Option<Actor>, Error> {
        if !self.actors.iter().any(|it| it.name == *name) {
            return Ok(None);
        }
        let client = crate::Client(self.connection.clone());
        client.actor(Request::Actor(name.id)).await.map(Some)
    }
}
