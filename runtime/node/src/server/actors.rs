//! Actors that a session creates, finds, calls and kills.

use std::sync::Arc;
use std::time::Duration;

use wasmrun_engine::{Limits, Listener, Module, Wishes};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ActorId;
use wasmrun_model::wire::{self, Refusal, RefusalKind, Response};

use super::lookup::Meant;
use super::operands::grants;
use super::out::ConnectionClosed;
use super::session::{Session, refusal};
use super::stored::{Durable, StoredActor};
use super::tasks::{only_one, refused};
use super::watch::Watcher;
use super::{Inner, views};
use crate::actor::{Actor, ActorOptions};
use crate::client::CallError;
use crate::guests::names::{FindError, NameError};
use crate::records::class::ActorJob;
use crate::records::job::{Argument, Call};
use crate::records::log::{ActorLog, Log};

impl Session {
    pub(super) async fn create(&self, create: wire::Create) -> Result<Response, Refusal> {
        let module = self.module(&create.module)?;
        if create.is_detached && create.name.is_none() {
            let why = "an actor that outlives its session wants a name, or nobody could reach it";
            return Err(refusal(RefusalKind::Usage, why));
        }
        let class = module.find_class(&create.class);
        let class = class.map_err(|error| refusal(RefusalKind::Usage, error))?;
        let values = create.values.clone();
        let values = self.arguments(&module.class(class).constructor.ty, values)?;
        let tenant = self.tenant(&create.terms);
        let job = Arc::new(new_job(&self.inner, &module, &create, tenant)?);
        let label = create.class.clone();
        let detached = create.is_detached.then(|| only_one(label.clone()));
        let client = &match &detached {
            Some(detached) => self.detached_job(detached, &label, &job.terms.tenant)?,
            None => {
                self.begins(&label, &job.terms.tenant);
                self.client.clone()
            }
        };
        let record = self.record_of_actor(&create, detached.as_ref(), &job, &values);
        let log = Arc::<Log>::default();
        let call = Call {
            values,
            listener: Some(Listener::with_log(log.clone(), None)),
            trace: create.trace,
            ..Call::default()
        };
        let name = create.name.clone();
        let actor = client.create_actor_as(client.next_id(), &job, call, create.name, None);
        let actor = actor.await;
        if let Some(detached) = &detached {
            self.close_job(&detached.id);
        }
        let actor = actor.map_err(|error| call_refused(&error))?;
        self.inner.shared.actor_logs.add(ActorLog {
            id: actor.id(),
            tenant: job.terms.tenant.clone(),
            driver: client.driver(),
            name,
            log,
        });
        let kept = match record {
            Some(Ok(stored)) => self.inner.keep_actor(actor.actor.cell(), stored).await,
            Some(Err(why)) => Err(why),
            None => Ok(()),
        };
        let created = self.hand_out(&actor.with(&self.client));
        Ok(match (kept, created) {
            (Err(why), Response::Actor(actor)) => Response::ActorHere { actor, why },
            (_, created) => created,
        })
    }

    /// What is kept of an actor in the control store, or why nothing is; none if it ends with its node anyway.
    fn record_of_actor(
        &self,
        create: &wire::Create,
        detached: Option<&wire::Job>,
        job: &ActorJob,
        values: &[Argument],
    ) -> Option<Result<StoredActor, String>> {
        let of = detached.filter(|_| job.restarts > 0 && self.inner.durable.get().is_some())?;
        Some(Durable::record_of_actor(
            &self.inner,
            create.clone(),
            self.origin(of.clone()),
            job,
            values,
        ))
    }

    pub(super) fn hand_out(&self, actor: &Actor) -> Response {
        self.add_actor(actor);
        Response::Actor(Box::new(views::actor(actor)))
    }

    /// An actor with a name, by that or its id.
    pub(super) async fn find(&self, name: &str) -> Result<Actor, Refusal> {
        let named = self.inner.shared.names.of_tenant(&self.tenant);
        let by_id = views::one(&self.tenant, name, "actor", named.iter(), |actor| actor.id);
        match self.client.find_actor(&self.tenant, name).await {
            Ok(actor) => Ok(actor),
            // Its id may be meant.
            Err(FindError::None(_) | FindError::Dead { .. }) => match by_id {
                Ok(actor) => Ok(self.client.actor(actor.clone())),
                Err(why) => Err(self.why_gone(name, why).await),
            },
            Err(error) => by_id
                .map(|actor| self.client.actor(actor.clone()))
                .map_err(|_| refusal(RefusalKind::Full, error)),
        }
    }

    /// That there is no such actor, with what became of it where some node remembers that.
    async fn why_gone(&self, text: &str, missing: Refusal) -> Refusal {
        match self.meant(text).await {
            Ok(Meant::Actor(id, name)) => match self.actor_failed(id, name.as_deref()).await {
                Some(why) => refusal(missing.kind, why),
                None => missing,
            },
            _ => missing,
        }
    }

    /// Waits until an actor lives that the session has a handle of.
    pub(super) async fn actor_ready(
        &self,
        id: &ActorId,
        timeout_ms: Option<u64>,
    ) -> Result<Response, Refusal> {
        let Actor { actor, .. } = self.resolve_actor(id)?;
        let lives = match timeout_ms.map(Duration::from_millis) {
            Some(limit) => tokio::time::timeout(limit, actor.lives()).await.ok(),
            None => Some(actor.lives().await),
        };
        Ok(match lives {
            Some(Ok(())) => Response::Done,
            Some(Err(why)) => Response::Failed {
                origin: id.task(),
                error: (&why.unwrap_or(TaskError::Cancelled)).into(),
            },
            None => {
                let task = self.find_task(id.task()).await;
                let why = task.map(|it| views::explained(it.whole()));
                Response::NotReady(why.unwrap_or_else(|why| why.message))
            }
        })
    }

    pub(super) async fn kill(&self, name: &str) -> Result<Response, Refusal> {
        let error = match self.client.find_actor(&self.tenant, name).await {
            Ok(actor) => {
                self.client.kill(&actor);
                return Ok(Response::Done);
            }
            Err(error) => error,
        };
        match (views::live_actor(&self.inner, self.asker(), name), error) {
            (Ok(actor), _) => {
                self.inner.shared.kill(&actor);
                Ok(Response::Done)
            }
            (Err(by_id), FindError::None(_) | FindError::Dead { .. }) => {
                Err(self.why_gone(name, by_id).await)
            }
            (Err(_), error) => Err(refusal(RefusalKind::Full, error)),
        }
    }

    pub(super) async fn call(&self, id: u64, call: wire::Call) -> Result<(), ConnectionClosed> {
        let started = self.resolve_actor(&call.actor).and_then(|actor| {
            let face = &actor.actor.face;
            let values = match face.find(&call.method) {
                Some(index) => self.arguments(&face.methods[index].1, call.values)?,
                // The call itself says what is wrong.
                None => Vec::new(),
            };
            let name = format!("{}.{}", face.class, call.method);
            let call_of_it = Call {
                values,
                time_limit: call.time_ms.map(Duration::from_millis),
                trace: call.trace,
                ..Call::default()
            };
            self.begins(&name, actor.actor.tenant());
            let handle = actor.start(&call.method, call_of_it);
            handle.map_err(|error| call_refused(&error))
        });
        let watcher = Watcher {
            inner: self.inner.clone(),
            chunks: None,
            log: None,
            to: None,
            keeping: None,
        };
        match started {
            Ok(handle) => self.started(id, handle, watcher, call.is_watched).await,
            Err(why) => self.refuse(id, why).await,
        }
    }
}

/// What an actor is that is to be created for a tenant.
pub(super) fn new_job(
    inner: &Inner,
    module: &Module,
    create: &wire::Create,
    tenant: TenantName,
) -> Result<ActorJob, Refusal> {
    let class = module.find_class(&create.class);
    let class = class.map_err(|error| refusal(RefusalKind::Usage, error))?;
    let terms = &create.terms;
    let resources = terms.resources.iter();
    let options = ActorOptions {
        tenant,
        priority: terms.priority,
        grants: grants(&create.grants)?,
        wishes: Wishes {
            resources: resources
                .map(|(name, amount)| (name.to_string(), amount.to_string()))
                .collect(),
            restarts: create.wishes.restarts,
            call_retries: create.wishes.call_retries,
            time_limit: create.limits.time_ms.map(Duration::from_millis),
            label_selector: Some(terms.selectors.to_string()),
            strategy: Some(terms.strategy.to_string()),
            ..Wishes::default()
        },
        limits: Limits {
            output: create.limits.output_bytes,
            arguments: create.limits.argument_bytes,
            result: create.limits.result_bytes,
            ..Limits::default()
        },
        policy: inner.shared.policy.clone(),
    };
    let job = ActorJob::new(module, class, options);
    job.map_err(|error| match error.is_too_much() {
        true => refusal(RefusalKind::Unschedulable, error),
        false => refusal(RefusalKind::Usage, error),
    })
}

fn call_refused(error: &CallError) -> Refusal {
    match error {
        CallError::Submit(error) => refused(error),
        CallError::TooMuch(error) => refusal(RefusalKind::Unschedulable, error),
        CallError::Name(error @ NameError::Unknown { .. }) => refusal(RefusalKind::Full, error),
        error => refusal(RefusalKind::Usage, error),
    }
}
