//! Handles of actors.
//!
//! Owns what every handle can do. The typed handles around it, with a method for each call, are
//! made by [`#[module]`](macro@crate::module).

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::argument::Argument;
use crate::error::Error;
use crate::future::{Future, deserialize_name, serialize_name};
use crate::host::{self, ACTOR_NAME_BYTES, Actor};
use crate::module::Module;
use crate::options::ActorSettings;

/// A handle to an actor, of whatever class. A typed handle, such as `CounterHandle`, derefs to it.
///
/// Handles may be arguments, results and parts of values. A clone is another handle to the same
/// actor, which lives until it is killed or nothing names it any more.
#[derive(Clone)]
pub struct ActorHandle {
    actor: Rc<Actor>,
    /// Of the calls that are made through this handle.
    time_limit: Option<Duration>,
}

/// Handles whose calls may be limited in time. All typed handles are such.
pub trait LimitCalls {
    /// Another handle to the same actor: each call that is made through it may take so long, in whole
    /// milliseconds (rounded up). A handle that is passed on has no limit.
    ///
    /// A call that is stopped takes its actor with it, which is started again if it has restarts left.
    #[must_use = "the limit is of the handle that this returns"]
    fn with_time_limit(&self, limit: Duration) -> Self;
}

impl LimitCalls for ActorHandle {
    fn with_time_limit(&self, limit: Duration) -> Self {
        Self {
            time_limit: Some(limit),
            ..self.clone()
        }
    }
}

impl ActorHandle {
    fn of(actor: Actor) -> Self {
        Self {
            actor: Rc::new(actor),
            time_limit: None,
        }
    }

    /// Creates an actor: what `C::create` does.
    #[doc(hidden)]
    pub fn create(
        module: &'static Module,
        class: &'static str,
        arguments: Vec<Argument>,
        settings: Option<&ActorSettings>,
    ) -> Result<Self, Error> {
        let actor = host::create(module, class, arguments, settings)?;
        Ok(Self::of(actor))
    }

    /// The actor with this name: what `C::find` does.
    #[doc(hidden)]
    pub fn find(name: &str) -> Result<Self, Error> {
        Ok(Self::of(host::find(name)?))
    }

    /// Calls a method: what the methods of a typed handle do.
    #[doc(hidden)]
    pub fn call<T>(&self, method: &'static str, arguments: Vec<Argument>) -> Future<T> {
        Future::new(self.actor.call(method, arguments, self.time_limit))
    }

    #[cfg(target_family = "wasm")]
    pub(crate) fn from_actor(actor: Actor) -> Self {
        Self::of(actor)
    }

    /// A handle of its own to the actor, for a typed call.
    #[cfg(target_family = "wasm")]
    pub(crate) fn into_actor(self) -> Actor {
        Rc::try_unwrap(self.actor).unwrap_or_else(|shared| shared.duplicate())
    }

    /// Its id, as `wasmrun` prints it.
    pub fn id(&self) -> String {
        self.actor.id()
    }

    /// Ends the actor, at once. Its calls fail, and it is not started again.
    pub fn kill(&self) {
        self.actor.kill();
    }
}

impl fmt::Debug for ActorHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActorHandle({})", self.id())
    }
}

impl Serialize for ActorHandle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_name(&self.actor.name(), serializer)
    }
}

impl<'de> Deserialize<'de> for ActorHandle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = deserialize_name::<ACTOR_NAME_BYTES, D>(deserializer)?;
        let actor = Actor::named(&name).map_err(D::Error::custom)?;
        Ok(Self::of(actor))
    }
}
