//! Routes that call a method of a named actor, at whichever node that is: `POST /add=actor:NAME.METHOD`.
//!
//! Owns finding the actor, which is kept until it is over. Must not: create one. The method's type is that of a class of the
//! service's module; an actor whose method has another type is not called.

use hyper::StatusCode;
use parking_lot::Mutex;
use wasmrun_engine::{Limits, Module};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::value::FunctionType;

use super::answers::TIME_LIMIT;
use super::problem::Problem;
use crate::actor::Actor;
use crate::client::Client;
use crate::guests::names::FindError;
use crate::records::job::Call;
use crate::records::options::Overrides;
use crate::records::task::{Report, TaskHandle};

/// What a route's function begins with where it is a method of an actor.
const PREFIX: &str = "actor:";

/// A method of a named actor.
pub(super) struct Method {
    tenant: TenantName,
    actor_name: String,
    name: String,
    pub(super) ty: FunctionType,
    pub(super) limits: Limits,
    /// The actor, once it was found.
    actor: Mutex<Option<Actor>>,
}

impl Method {
    /// The method that a route's function names, if it names one; else why there is none.
    pub(super) fn named(
        function: &str,
        module: &Module,
        overrides: &Overrides,
    ) -> Option<Result<Self, String>> {
        let rest = function.strip_prefix(PREFIX)?;
        let Some((actor_name, name)) = parts(rest) else {
            return Some(Err(format!(
                "'{rest}' must be the name of an actor and a method, such as counter.add"
            )));
        };
        let ty = type_of(module, name);
        Some(ty.map(|ty| Self {
            tenant: overrides.tenant.clone(),
            actor_name: actor_name.to_owned(),
            name: name.to_owned(),
            ty,
            limits: Limits {
                arguments: overrides.argument_bytes,
                time: overrides.time_limit.or(Some(TIME_LIMIT)),
                ..Limits::default()
            },
            actor: Mutex::default(),
        }))
    }

    /// Calls it.
    pub(super) async fn call(&self, client: &Client, call: Call) -> Result<TaskHandle, Problem> {
        let actor = self.find(client).await?;
        let face = &actor.actor.face;
        let index = face.find(&self.name);
        if index.is_none_or(|index| face.methods[index].1 != self.ty) {
            let (actor, method) = (&self.actor_name, &self.name);
            tracing::warn!(
                actor,
                method,
                "an actor has no such method as the module of the service that calls it"
            );
            let detail = "the actor of this path is another one than the service knows";
            return Err(Problem::new(StatusCode::BAD_GATEWAY, detail));
        }
        let call = Call {
            time_limit: self.limits.time,
            ..call
        };
        actor.start(&self.name, call).map_err(|error| {
            tracing::warn!(%error, "a request of a service cannot call its actor");
            Problem::busy("the actor cannot be called now")
        })
    }

    async fn find(&self, client: &Client) -> Result<Actor, Problem> {
        let known = self.actor.lock().clone();
        if let Some(actor) = known.filter(|it| !it.actor.is_over()) {
            return Ok(actor);
        }
        let found = client.find_actor(&self.tenant, &self.actor_name).await;
        let found = found.map_err(|error| match error {
            FindError::Unknown { .. } => Problem::busy("it is not known where the actor is"),
            FindError::None(_) | FindError::Dead { .. } => {
                Problem::new(StatusCode::NOT_FOUND, "the actor of this path is not there")
            }
        })?;
        let before = self.actor.lock().replace(found.clone());
        drop(before);
        Ok(found)
    }

    /// What came of a call: an actor that has died is looked for again.
    pub(super) fn note(&self, report: &Report) {
        if let Err(TaskError::ActorDied { .. }) = &report.result {
            let gone = self.actor.lock().take();
            drop(gone);
        }
    }
}

/// The name of an actor, and a method of it.
fn parts(text: &str) -> Option<(&str, &str)> {
    let (actor, method) = text.rsplit_once('.')?;
    (!actor.is_empty() && !method.is_empty()).then_some((actor, method))
}

/// The type of a method that some class of a module has.
fn type_of(module: &Module, method: &str) -> Result<FunctionType, String> {
    let methods = module.classes().iter().flat_map(|class| &class.methods);
    let mut types = methods.filter(|it| it.name == method).map(|it| &it.ty);
    let Some(first) = types.next() else {
        return Err(format!(
            "no class of the module has a method '{method}': serve the module that has the actor's class; `wasmrun inspect` \
             shows its classes"
        ));
    };
    match types.all(|other| other == first) {
        true => Ok(first.clone()),
        false => Err(format!(
            "several classes of the module have a method '{method}', of different types: give it another name"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_stands_behind_the_last_dot() {
        assert_eq!(parts("counter.add"), Some(("counter", "add")));
        assert_eq!(parts("a.b.add"), Some(("a.b", "add")));
        for bad in ["counter", ".add", "counter.", ""] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }
}
