//! Requests that are answered at once: tasks, calls, actors, lists.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use wasmrun_engine::{DirGrant, Entry, Grants, Input, Limits, Listener, Module, NetGrant, Wishes};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, Digest, ObjectId, TaskId};
use wasmrun_model::manifest::Asked;
use wasmrun_model::value::codec::handles;
use wasmrun_model::value::{Encoded, EncodedRef, FunctionType, Handle};
use wasmrun_model::wire::{
    self, Argument as Given, Bytes, MAX_CALLS, Net, Refusal, RefusalKind, Request, Response,
};

use super::Stopper;
use super::out::Gone;
use super::registry::{ActorLog, Detached, Log, Record};
use super::session::{Session, refusal};
use super::transfer::{inline, unknown};
use super::views;
use super::watch::{Watcher, output};
use crate::actor::ActorJob;
use crate::client::{Actor, ActorOptions, CallError, check};
use crate::node::SubmitError;
use crate::object::{Object, Reference, Value};
use crate::options::{JobError, Overrides};
use crate::task::{Argument, Call, Job, TaskHandle};

/// How many chunks of a task's output may wait for the client.
const OUTPUT_CHUNKS: usize = 16;
/// How many chunks of a task's standard input may wait for it.
const INPUT_CHUNKS: usize = 4;

impl Session {
    /// Answers a request that needs no waiting.
    pub(super) async fn at_once(&self, id: u64, request: Request) -> Result<(), Gone> {
        let answer = match request {
            Request::Submit(submit) => return self.submit(id, *submit).await,
            Request::Call(call) => return self.call(id, *call).await,
            Request::Logs(prefix) => return self.logs(id, &prefix).await,
            Request::Release(objects) => {
                let mut known = self.objects.lock();
                let released: Vec<_> = objects.iter().filter_map(|it| known.remove(it)).collect();
                drop(known);
                drop(released);
                return Ok(());
            }
            Request::ReleaseActor(actor) => {
                let released = self.actors.lock().remove(&actor);
                drop(released);
                return Ok(());
            }
            Request::Unpin(ids) => {
                self.unpin(&ids);
                return Ok(());
            }
            Request::Module(digest) => match self.inner.registry().module(&digest) {
                Some(module) => Ok(Response::Module(Box::new(views::module(&module)))),
                None => Ok(Response::Unknown),
            },
            Request::SubmitAll { submit, calls } => self.submit_all(&submit, calls),
            Request::Create(create) => self.create(*create),
            Request::FindActor(name) => self.find(&name).map(|actor| self.hand_out(&actor)),
            Request::Kill(name) => self.kill(&name),
            Request::Cancel(prefix) => {
                let task = views::live_task(&self.inner, self.asker(), &prefix);
                task.map(|task| {
                    self.inner.shared.cancel(task);
                    Response::Done
                })
            }
            Request::CancelMine => {
                self.client.cancel_all();
                Ok(Response::Done)
            }
            Request::List(list) => Ok(Response::Rows(views::list(&self.inner, &list))),
            Request::Describe(prefix) => {
                let detail = views::describe(&self.inner, self.asker(), &prefix);
                detail.map(|detail| Response::Task(Box::new(detail)))
            }
            Request::Explain(prefix) => {
                views::explain(&self.inner, self.asker(), &prefix).map(Response::Text)
            }
            Request::Delete(prefix) => self.delete(&prefix),
            Request::Status => Ok(Response::Status(Box::new(views::status(&self.inner)))),
            Request::Stop { is_now } => {
                let done = self.out.send(id, Response::Done).await;
                Stopper(self.inner.clone()).stop(is_now);
                return done;
            }
            Request::Chunk(_)
            | Request::Upload { .. }
            | Request::Put { .. }
            | Request::Get { .. }
            | Request::GetAll { .. }
            | Request::Wait { .. }
            | Request::Input { .. }
            | Request::CreateToken { .. }
            | Request::RevokeToken(_)
            | Request::Drain { .. } => unreachable!("the session has taken these"),
        };
        self.answer(id, answer).await
    }

    fn module(&self, digest: &Digest) -> Result<Module, Refusal> {
        if self.inner.is_draining.load(Ordering::Acquire) {
            let why = "the node is stopping and takes no more work";
            return Err(refusal(RefusalKind::Stopping, why));
        }
        self.inner.registry().module(digest).ok_or_else(|| {
            let why = format_args!("the node has no module {digest}; send it first");
            refusal(RefusalKind::NotFound, why)
        })
    }

    /// The arguments that a client gives, for a function of this type.
    fn arguments(&self, ty: &FunctionType, given: Vec<Given>) -> Result<Vec<Argument>, Refusal> {
        let usage = |error| refusal(RefusalKind::Usage, error);
        let mut values = Vec::with_capacity(given.len());
        for (at, given) in given.into_iter().enumerate() {
            values.push(match given {
                Given::Object(id) => Argument::Object(self.known(&id)?),
                Given::Value(value) => {
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
                                named.iter().map(|it| self.named(it)).collect();
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
    pub(super) fn all_known(&self, ids: &[ObjectId]) -> Result<Vec<Object>, Refusal> {
        let objects = self.objects.lock();
        let known = ids.iter().map(|id| objects.get(id).cloned().ok_or(id));
        let known: Result<_, _> = known.collect();
        known.map_err(unknown)
    }

    fn known(&self, id: &ObjectId) -> Result<Object, Refusal> {
        self.objects
            .lock()
            .get(id)
            .cloned()
            .ok_or_else(|| unknown(id))
    }

    fn known_actor(&self, id: &ActorId) -> Result<Actor, Refusal> {
        self.actors.lock().get(id).cloned().ok_or_else(|| {
            let why = format_args!("there is no actor {id} that this session has a handle of");
            refusal(RefusalKind::NotFound, why)
        })
    }

    fn named(&self, handle: &Handle) -> Result<Reference, Refusal> {
        Ok(match handle {
            Handle::Object(name) => self.known(&name.id)?.0,
            Handle::Actor(name) => Reference::Actor(self.known_actor(&name.id)?.actor),
        })
    }

    fn tenant(&self, terms: &wire::Terms) -> TenantName {
        terms.tenant.clone().unwrap_or_else(|| self.tenant.clone())
    }

    fn job(&self, submit: &wire::Submit) -> Result<Arc<Job>, Refusal> {
        let module = self.module(&submit.module)?;
        let mut last = self.last_job.lock();
        if let Some((like, job)) = &*last
            && is_alike(like, submit)
        {
            return Ok(job.clone());
        }
        let entry = match &submit.entry {
            wire::Entry::Program if module.program().is_some() => Entry::Program,
            wire::Entry::Program => {
                let why = "the module has no program to run; name one of its functions";
                return Err(refusal(RefusalKind::Usage, why));
            }
            wire::Entry::Function(name) => {
                let found = module.find(name);
                Entry::Function(found.map_err(|error| refusal(RefusalKind::Usage, error))?)
            }
        };
        let name = match (&submit.name, entry) {
            (name, _) if !name.is_empty() => name.chars().take(200).collect(),
            (_, Entry::Function(index)) => module.function(index).name.clone(),
            (_, Entry::Program) => "program".to_owned(),
        };
        let (terms, limits) = (&submit.terms, &submit.limits);
        let overrides = Overrides {
            resources: Asked(terms.resources.clone()),
            tenant: self.tenant(terms),
            priority: terms.priority,
            retries: terms.retries,
            selectors: terms.selectors.clone(),
            strategy: terms.strategy.clone(),
            time_limit: limits.time_ms.map(Duration::from_millis),
            output_bytes: limits.output_bytes,
            argument_bytes: limits.argument_bytes,
            result_bytes: limits.result_bytes,
            policy: self.inner.shared.policy.clone(),
        };
        let job = Job::new(name, &module, entry, &overrides, grants(&submit.grants));
        let job = Arc::new(job.map_err(|error| match error {
            JobError::TooMuch(_) => refusal(RefusalKind::Unschedulable, error),
            error => refusal(RefusalKind::Usage, error),
        })?);
        let like = wire::Submit {
            values: Vec::new(),
            args: Vec::new(),
            input: wire::Input::Empty,
            ..submit.clone()
        };
        *last = Some((like, job.clone()));
        Ok(job)
    }

    async fn submit(&self, id: u64, submit: wire::Submit) -> Result<(), Gone> {
        let is_watched = submit.is_watched;
        match self.start(submit) {
            Ok((handle, watcher)) => self.started(id, handle, watcher, is_watched).await,
            Err(why) => self.refuse(id, why).await,
        }
    }

    fn start(&self, submit: wire::Submit) -> Result<(TaskHandle, Watcher), Refusal> {
        let job = self.job(&submit)?;
        let values = match job.function_type() {
            Some(ty) => self.arguments(ty, submit.values)?,
            None => Vec::new(),
        };
        let (listener, chunks) = match submit.is_watched || submit.is_detached {
            true => {
                let (sender, chunks) = mpsc::channel(OUTPUT_CHUNKS);
                let listener = Listener {
                    tag: 0,
                    chunks: sender,
                };
                (Some(listener), Some(chunks))
            }
            false => (None, None),
        };
        let (input, sender) = match submit.input {
            wire::Input::Empty => (Input::Empty, None),
            wire::Input::Bytes(bytes) => (Input::Bytes(bytes.0.into()), None),
            wire::Input::Stream => {
                let (sender, receiver) = mpsc::channel(INPUT_CHUNKS);
                (Input::Stream(receiver), Some(sender))
            }
        };
        let call = Call {
            values,
            args: submit.args,
            array_index: submit.array_index,
            input,
            listener,
            time_limit: None,
        };
        let client = match submit.is_detached {
            true => &self.inner.detached,
            false => &self.client,
        };
        let handle = client.submit(&job, call).map_err(|error| refused(&error))?;
        if let Some(sender) = sender {
            self.inputs.lock().insert(handle.id(), sender);
        }
        let log = submit.is_detached.then(Arc::<Log>::default);
        let watcher = Watcher {
            inner: self.inner.clone(),
            chunks,
            log: log.clone(),
            to: None,
        };
        self.record(&handle, &job.name, &job.terms.tenant, log);
        Ok((handle, watcher))
    }

    fn record(&self, handle: &TaskHandle, name: &str, tenant: &TenantName, log: Option<Arc<Log>>) {
        let cell = &handle.0;
        self.inner.registry().add_task(Record {
            id: cell.id,
            name: name.to_owned(),
            tenant: tenant.clone(),
            driver: cell.driver,
            submitted: cell.submitted,
            detached: log.map(|log| Detached {
                object: handle.object(),
                log,
            }),
            end: None,
        });
        cell.note(self.inner.ends.clone());
    }

    /// Submits a function once with each of these arguments: all of them, or none.
    fn submit_all(
        &self,
        submit: &wire::Submit,
        calls: Vec<Vec<Given>>,
    ) -> Result<Response, Refusal> {
        let is_fit = calls.len() <= MAX_CALLS && !submit.is_watched && !submit.is_detached;
        let job = self.job(submit)?;
        let Some(ty) = job.function_type().filter(|_| is_fit) else {
            let why = format_args!(
                "only functions are submitted together, at most {MAX_CALLS}, neither watched nor \
                 detached: submit them one by one"
            );
            return Err(refusal(RefusalKind::Usage, why));
        };
        let calls = calls.into_iter().map(|given| self.arguments(ty, given));
        let calls = calls.collect::<Result<Vec<_>, _>>()?;
        let mut handles = Vec::with_capacity(calls.len());
        for values in calls {
            let call = Call {
                values,
                ..Call::default()
            };
            let submitted = self.client.submit(&job, call);
            let submitted = submitted.map_err(|error| refused(&error));
            let known = submitted.and_then(|handle| {
                self.add_object(handle.object())?;
                Ok(handle)
            });
            match known {
                Ok(handle) => handles.push(handle),
                Err(why) => {
                    for handle in handles {
                        self.inner.shared.cancel(handle.id());
                        drop(self.objects.lock().remove(&handle.object().id()));
                    }
                    return Err(why);
                }
            }
        }
        for handle in &handles {
            self.record(handle, &job.name, &job.terms.tenant, None);
        }
        let ids = handles.iter().map(TaskHandle::id).collect();
        Ok(Response::SubmittedAll(ids))
    }

    /// The client hears of its task, and then of its end.
    async fn started(
        &self,
        id: u64,
        handle: TaskHandle,
        watcher: Watcher,
        is_watched: bool,
    ) -> Result<(), Gone> {
        if let Err(why) = self.add_object(handle.object()) {
            self.inner.shared.cancel(handle.id());
            return self.refuse(id, why).await;
        }
        let told = self.out.send(id, Response::Submitted(handle.id())).await;
        let to = is_watched.then(|| (self.out.clone(), id));
        if to.is_some() || watcher.log.is_some() {
            // It ends with its task, and all tasks end with their session or the node.
            tokio::spawn(Watcher { to, ..watcher }.watch(handle));
        }
        told
    }

    async fn call(&self, id: u64, call: wire::Call) -> Result<(), Gone> {
        let started = self.known_actor(&call.actor).and_then(|actor| {
            let class = actor.actor.class();
            let values = match class.find(&call.method) {
                Some(index) => self.arguments(&class.method(index).ty, call.values)?,
                // The call itself says what is wrong.
                None => Vec::new(),
            };
            let name = format!("{}.{}", class.full_name(), call.method);
            let call_of_it = Call {
                values,
                time_limit: call.time_ms.map(Duration::from_millis),
                ..Call::default()
            };
            let handle = actor.start(&call.method, call_of_it);
            let handle = handle.map_err(|error| call_refused(&error))?;
            self.record(&handle, &name, &actor.actor.job.terms.tenant, None);
            Ok(handle)
        });
        let watcher = Watcher {
            inner: self.inner.clone(),
            chunks: None,
            log: None,
            to: None,
        };
        match started {
            Ok(handle) => self.started(id, handle, watcher, call.is_watched).await,
            Err(why) => self.refuse(id, why).await,
        }
    }

    fn create(&self, create: wire::Create) -> Result<Response, Refusal> {
        let module = self.module(&create.module)?;
        if create.is_detached && create.name.is_none() {
            let why = "an actor that outlives its session wants a name, or nobody could reach it";
            return Err(refusal(RefusalKind::Usage, why));
        }
        let class = module.find_class(&create.class);
        let class = class.map_err(|error| refusal(RefusalKind::Usage, error))?;
        let values = self.arguments(&module.class(class).constructor.ty, create.values)?;
        let terms = &create.terms;
        let resources = terms.resources.iter();
        let options = ActorOptions {
            tenant: self.tenant(terms),
            priority: terms.priority,
            grants: grants(&create.grants),
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
            policy: self.inner.shared.policy.clone(),
        };
        let job = ActorJob::new(&module, class, options);
        let job = Arc::new(job.map_err(|error| match error.is_too_much() {
            true => refusal(RefusalKind::Unschedulable, error),
            false => refusal(RefusalKind::Usage, error),
        })?);
        let client = match create.is_detached {
            true => &self.inner.detached,
            false => &self.client,
        };
        let (sender, chunks) = mpsc::channel(OUTPUT_CHUNKS);
        let listener = Listener {
            tag: 0,
            chunks: sender,
        };
        let name = create.name.clone();
        let actor = client.create_actor(&job, values, create.name, Some(listener));
        let actor = actor.map_err(|error| call_refused(&error))?;
        let log = Arc::<Log>::default();
        // It ends with the actor, and all actors end with their session or the node.
        tokio::spawn(Watcher::collect(log.clone(), chunks));
        self.inner.registry().log_actor(ActorLog {
            id: actor.id(),
            tenant: job.terms.tenant.clone(),
            driver: client.driver(),
            name,
            log,
        });
        Ok(self.hand_out(&actor.with(&self.client)))
    }

    fn hand_out(&self, actor: &Actor) -> Response {
        self.add_actor(actor);
        Response::Actor(Box::new(views::actor(actor)))
    }

    /// An actor with a name, by that or its id.
    fn find(&self, name: &str) -> Result<Actor, Refusal> {
        if let Some(actor) = self.client.find_actor(&self.tenant, name) {
            return Ok(actor);
        }
        let names = self.inner.shared.names.lock();
        let named = names
            .iter()
            .filter(|((tenant, _), actor)| *tenant == self.tenant && actor.is_public());
        let named: Vec<_> = named.map(|(_, actor)| actor.clone()).collect();
        drop(names);
        let found = views::one(&self.tenant, name, "actor", named.iter(), |actor| actor.id);
        found.map(|actor| self.client.actor(actor.clone()))
    }

    fn kill(&self, name: &str) -> Result<Response, Refusal> {
        match self.client.find_actor(&self.tenant, name) {
            Some(actor) => self.client.kill(&actor),
            None => {
                let actor = views::live_actor(&self.inner, self.asker(), name)?;
                self.inner.shared.kill(&actor);
            }
        }
        Ok(Response::Done)
    }

    fn delete(&self, prefix: &str) -> Result<Response, Refusal> {
        let mut registry = self.inner.registry();
        let id = self.kept_object(&registry, prefix)?.id();
        let deleted = registry.delete(&id);
        drop(registry);
        match deleted {
            Some(_) => Ok(Response::Done),
            None => {
                let why = "the task that makes it has not ended; cancel that first";
                Err(refusal(RefusalKind::Usage, why))
            }
        }
    }

    async fn logs(&self, id: u64, prefix: &str) -> Result<(), Gone> {
        let log = match self.log(prefix) {
            Ok(log) => log,
            Err(why) => return self.refuse(id, why).await,
        };
        for it in log.chunks() {
            let message = output(it.writer, it.source, it.bytes);
            self.out.send(id, message).await?;
        }
        self.out.send(id, Response::Done).await
    }

    /// What is kept of the output of an actor, by its name or id, or of a task.
    fn log(&self, prefix: &str) -> Result<Arc<Log>, Refusal> {
        let registry = self.inner.registry();
        let is_named = |actor: &&ActorLog| {
            actor.tenant == self.tenant && actor.name.as_deref() == Some(prefix)
        };
        if let Some(actor) = registry.actor_logs().find(is_named) {
            return Ok(actor.log.clone());
        }
        let asker = self.asker();
        let actors = registry.actor_logs();
        let actors = actors.filter(|it| asker.owns(&it.tenant, it.driver));
        if let Ok(actor) = asker.one(prefix, "actor", actors, |it| it.id) {
            return Ok(actor.log.clone());
        }
        let tasks = registry.tasks();
        let tasks = tasks.filter(|it| asker.owns(&it.tenant, it.driver));
        let record = asker.one(prefix, "task or actor", tasks, |it| it.id)?;
        match &record.detached {
            Some(detached) => Ok(detached.log.clone()),
            None => {
                let why = format_args!(
                    "nothing is kept of what {} wrote: a task's output goes to whoever waits for it, \
                     unless it was submitted with --detach, and a call's is its actor's",
                    record.id
                );
                Err(refusal(RefusalKind::Usage, why))
            }
        }
    }

    pub(super) async fn input(&self, task: TaskId, bytes: Bytes) -> Result<Response, Refusal> {
        if bytes.0.is_empty() {
            self.inputs.lock().remove(&task);
            return Ok(Response::Done);
        }
        let sender = self.inputs.lock().get(&task).cloned();
        let sent = match sender {
            Some(sender) => sender.send(bytes.0.into()).await.is_ok(),
            None => false,
        };
        match sent {
            true => Ok(Response::Done),
            false => {
                self.inputs.lock().remove(&task);
                let why = "nobody reads this any more";
                Err(refusal(RefusalKind::NotFound, why))
            }
        }
    }

    pub(super) async fn wait(
        &self,
        objects: &[ObjectId],
        count: u32,
        timeout_ms: Option<u64>,
    ) -> Result<Response, Refusal> {
        let objects = self.all_known(objects)?;
        let (count, timeout) = (count as usize, timeout_ms.map(Duration::from_millis));
        let ready = self.client.wait_async(&objects, count, timeout).await;
        let ready = ready.into_iter().filter_map(|at| u32::try_from(at).ok());
        Ok(Response::Ready(ready.collect()))
    }
}

/// Whether two tasks are of one job.
fn is_alike(one: &wire::Submit, other: &wire::Submit) -> bool {
    one.module == other.module
        && one.entry == other.entry
        && one.name == other.name
        && one.terms == other.terms
        && one.limits == other.limits
        && one.grants == other.grants
}

fn grants(grants: &wire::Grants) -> Grants {
    let dirs = grants.dirs.iter().map(|dir| DirGrant {
        host: dir.host.clone().into(),
        guest: dir.guest.clone(),
        read_only: dir.is_read_only,
    });
    Grants {
        env: grants.env.clone(),
        dirs: dirs.collect(),
        net: match &grants.net {
            Net::None => NetGrant::None,
            Net::Only(addresses) => NetGrant::Only(addresses.clone()),
            Net::All => NetGrant::All,
        },
    }
}

fn refused(error: &SubmitError) -> Refusal {
    let kind = match error {
        SubmitError::Unschedulable(_) => RefusalKind::Unschedulable,
        SubmitError::Stopping | SubmitError::Stopped => RefusalKind::Stopping,
    };
    refusal(kind, error)
}

fn call_refused(error: &CallError) -> Refusal {
    match error {
        CallError::Submit(error) => refused(error),
        CallError::TooMuch(error) => refusal(RefusalKind::Unschedulable, error),
        error => refusal(RefusalKind::Usage, error),
    }
}
