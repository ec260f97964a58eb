//! What requests name and give: modules, arguments, objects and actors of the session, grants.
//!
//! Invariant: a session reaches what it has a handle of, and nothing else.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use wasmrun_engine::{DirGrant, Grants, Input, Module, NetGrant};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, ActorName, Digest, ObjectId, ObjectName};
use wasmrun_model::value::codec::handles;
use wasmrun_model::value::{Encoded, EncodedRef, FunctionType, Handle};
use wasmrun_model::wire::{self, MAX_NAMES, Net, Refusal, RefusalKind};

use super::send::{inline, unknown};
use super::session::{Session, refusal};
use crate::actor::Actor;
use crate::client::check;
use crate::records::job::{Argument, Call, Job};
use crate::records::object::{Object, Reference, Value};

impl Session {
    pub(super) fn module(&self, digest: &Digest) -> Result<Module, Refusal> {
        if self.inner.is_draining.load(Ordering::Acquire) {
            let why = "the node is stopping and takes no more work";
            return Err(refusal(RefusalKind::Stopping, why));
        }
        self.loaded(digest).ok_or_else(|| {
            let why = format_args!("the node has no module {digest}; send it first");
            refusal(RefusalKind::NotFound, why)
        })
    }

    /// A module that is loaded, and stays so for this session.
    pub(super) fn loaded(&self, digest: &Digest) -> Option<Module> {
        // It counts as used for the node, too.
        let of_node = self.inner.registry().modules.get(digest);
        let mut own = self.modules.lock();
        own.get(digest).or_else(|| {
            own.add(of_node.clone()?);
            of_node
        })
    }

    /// The arguments that a client gives, for a function of this type.
    pub(super) fn arguments(
        &self,
        ty: &FunctionType,
        given: Vec<wire::Argument>,
    ) -> Result<Vec<Argument>, Refusal> {
        let usage = |error| refusal(RefusalKind::Usage, error);
        let mut values = Vec::with_capacity(given.len());
        for (at, given) in given.into_iter().enumerate() {
            values.push(match given {
                wire::Argument::Object(id) => Argument::Object(self.resolve_object(&id)?),
                wire::Argument::Value(value) => {
                    let bytes = EncodedRef::from(&inline(value)?).bytes().to_vec();
                    match ty.params().get(at) {
                        Some((_, ty)) => {
                            let value = Encoded::in_form(ty, bytes);
                            let named = match ty.has_handles() {
                                true => handles(ty, &value)
                                    .map_err(|error| refusal(RefusalKind::Usage, error))?,
                                false => Vec::new(),
                            };
                            let named: Result<_, _> =
                                named.iter().map(|it| self.resolve_handle(it)).collect();
                            Argument::Value(Value::inline(value, named?))
                        }
                        None => Encoded::Postcard(bytes).into(),
                    }
                }
            });
        }
        check(ty, &values).map_err(|error| usage(error.to_string()))?;
        Ok(values)
    }

    /// Objects that the client has handles of.
    pub(super) fn resolve_objects(&self, ids: &[ObjectId]) -> Result<Vec<Object>, Refusal> {
        let objects = self.objects.lock();
        let known = ids.iter().map(|id| objects.get(id).cloned().ok_or(id));
        let known: Result<_, _> = known.collect();
        known.map_err(unknown)
    }

    pub(super) fn resolve_object(&self, id: &ObjectId) -> Result<Object, Refusal> {
        self.objects
            .lock()
            .get(id)
            .cloned()
            .ok_or_else(|| unknown(id))
    }

    pub(super) fn resolve_actor(&self, id: &ActorId) -> Result<Actor, Refusal> {
        self.actors.lock().get(id).cloned().ok_or_else(|| {
            let why = format_args!("there is no actor {id} that this session has a handle of");
            refusal(RefusalKind::NotFound, why)
        })
    }

    /// What these names stand for, each once.
    pub(super) fn resolve_names(
        &self,
        objects: &[ObjectName],
        actors: &[ActorName],
    ) -> Result<Vec<Reference>, Refusal> {
        let names = objects.len() + actors.len();
        if names > MAX_NAMES {
            let why = format_args!(
                "the value names {names} objects and actors, and may name {MAX_NAMES}: put parts of it, and a value \
                 that names those"
            );
            return Err(refusal(RefusalKind::Usage, why));
        }
        let objects = objects.iter().copied().map(Handle::Object);
        let actors = actors.iter().copied().map(Handle::Actor);
        let handles: BTreeSet<Handle> = objects.chain(actors).collect();
        handles
            .iter()
            .map(|handle| self.resolve_handle(handle))
            .collect()
    }

    fn resolve_handle(&self, handle: &Handle) -> Result<Reference, Refusal> {
        let known = match handle {
            Handle::Object(name) => self.resolve_object(&name.id)?.0,
            Handle::Actor(name) => Reference::Actor(self.resolve_actor(&name.id)?.actor),
        };
        if known.handle() != *handle {
            let why = format_args!(
                "{handle} is not where that is, which is {}: pass the handle as it was given",
                known.handle()
            );
            return Err(refusal(RefusalKind::NotFound, why));
        }
        Ok(known)
    }

    /// For whom something is to run. `default` is also what those name who name none.
    pub(super) fn tenant(&self, terms: &wire::Terms) -> TenantName {
        let named = terms.tenant.as_ref();
        let own = named.filter(|it| self.caller.access.covers(it));
        own.unwrap_or(&self.tenant).clone()
    }
}

pub(super) fn grants(grants: &wire::Grants) -> Result<Grants, Refusal> {
    let dirs = grants.dirs.iter().map(|dir| DirGrant {
        host: dir.host.clone().into(),
        guest: dir.guest.clone(),
        read_only: dir.is_read_only,
    });
    let grants = Grants {
        env: grants.env.clone(),
        secrets: grants.secrets.clone(),
        files: Vec::new(),
        dirs: dirs.collect(),
        net: match &grants.net {
            Net::None => NetGrant::None,
            Net::Only(addresses) => NetGrant::Only(addresses.clone()),
            Net::All => NetGrant::All,
        },
        http: grants.http.clone(),
    };
    let checked = grants.check();
    checked.map_err(|error| refusal(RefusalKind::Usage, error))?;
    Ok(grants)
}

/// What a task of this job is to do that was submitted to a lost node.
pub(super) fn call_of(job: &Job, submit: &wire::Submit) -> Result<Call, Refusal> {
    let values = match job.function_type() {
        Some(ty) => plain(ty, &submit.values)?,
        None => Vec::new(),
    };
    Ok(Call {
        values,
        args: submit.args.clone(),
        array_index: submit.array_index,
        input: match &submit.input {
            wire::Input::Bytes(bytes) => Input::Bytes(bytes.0.clone().into()),
            wire::Input::Empty | wire::Input::Stream => Input::Empty,
        },
        listener: None,
        time_limit: None,
        trace: submit.trace.clone(),
    })
}

/// Arguments that name nothing.
pub(super) fn plain(ty: &FunctionType, given: &[wire::Argument]) -> Result<Vec<Argument>, Refusal> {
    let mut values = Vec::with_capacity(given.len());
    for (at, given) in given.iter().enumerate() {
        let wire::Argument::Value(value) = given else {
            let why = "an argument is an object of another session";
            return Err(refusal(RefusalKind::Usage, why));
        };
        let bytes = EncodedRef::from(value).bytes().to_vec();
        values.push(Argument::from(match ty.params().get(at) {
            Some((_, ty)) => Encoded::in_form(ty, bytes),
            None => Encoded::Postcard(bytes),
        }));
    }
    check(ty, &values).map_err(|error| refusal(RefusalKind::Usage, error))?;
    Ok(values)
}
