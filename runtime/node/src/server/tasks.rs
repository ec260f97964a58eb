//! Tasks that a session submits: one, or many at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use wasmrun_engine::{Entry, Input, Listener};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::manifest::Asked;
use wasmrun_model::wire::{self, Argument as Given, MAX_CALLS, Refusal, RefusalKind, Response};

use super::given::grants;
use super::out::Gone;
use super::registry::{Detached, Log, Record};
use super::session::{Session, refusal};
use super::watch::Watcher;
use crate::node::SubmitError;
use crate::options::{JobError, Overrides};
use crate::task::{Call, Job, TaskHandle};

/// How many chunks of a task's or an actor's output may wait for the client.
pub(super) const OUTPUT_CHUNKS: usize = 16;
/// How many chunks of a task's standard input may wait for it.
const INPUT_CHUNKS: usize = 4;

impl Session {
    pub(super) fn job(&self, submit: &wire::Submit) -> Result<Arc<Job>, Refusal> {
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

    pub(super) async fn submit(&self, id: u64, submit: wire::Submit) -> Result<(), Gone> {
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

    pub(super) fn record(
        &self,
        handle: &TaskHandle,
        name: &str,
        tenant: &TenantName,
        log: Option<Arc<Log>>,
    ) {
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
    pub(super) fn submit_all(
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
    pub(super) async fn started(
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

pub(super) fn refused(error: &SubmitError) -> Refusal {
    let kind = match error {
        SubmitError::Unschedulable(_) => RefusalKind::Unschedulable,
        SubmitError::Stopping | SubmitError::Stopped => RefusalKind::Stopping,
    };
    refusal(kind, error)
}
