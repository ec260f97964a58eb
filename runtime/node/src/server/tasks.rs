//! Tasks that a session submits: one, or many at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use wasmrun_engine::{Entry, Feed, Input, Listener, Module, intake};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{DriverId, TaskId};
use wasmrun_model::manifest::Asked;
use wasmrun_model::task::Attempt;
use wasmrun_model::wire::{self, MAX_CALLS, Refusal, RefusalKind, Response};

use super::Inner;
use super::again::{self, Submitted};
use super::operands::grants;
use super::out::ConnectionClosed;
use super::registry::{Detached, Record};
use super::session::{Session, refusal, too_many};
use super::stored::{Durable, Origin, Pending};
use super::watch::Watcher;
use crate::client::Client;
use crate::ledger::SubmitError;
use crate::ledger::jobs::About;
use crate::records::ids::random;
use crate::records::job::{Call, Job};
use crate::records::log::Log;
use crate::records::options::{JobError, Overrides};
use crate::records::task::TaskHandle;

/// How many chunks of a task's or an actor's output may wait for the client.
pub(super) const OUTPUT_CHUNKS: usize = 16;
/// How long the name of a task may be, in characters.
const MAX_NAME_CHARS: usize = 200;
/// How many chunks of a task's standard input may wait for it.
const INPUT_CHUNKS: usize = 4;
/// How many detached jobs of several tasks a session may submit to at a time.
const MOST_JOBS: usize = 10_000;

impl Session {
    pub(super) fn job(&self, submit: &wire::Submit) -> Result<Arc<Job>, Refusal> {
        let module = self.module(&submit.module)?;
        let mut last = self.last_job.lock();
        if let Some((like, job)) = &*last
            && is_alike(like, submit)
        {
            return Ok(job.clone());
        }
        let job = Arc::new(new_job(
            &self.inner,
            &module,
            submit,
            self.tenant(&submit.terms),
        )?);
        let like = wire::Submit {
            values: Vec::new(),
            args: Vec::new(),
            input: wire::Input::Empty,
            ..submit.clone()
        };
        *last = Some((like, job.clone()));
        Ok(job)
    }

    pub(super) async fn submit(
        &self,
        id: u64,
        submit: wire::Submit,
    ) -> Result<(), ConnectionClosed> {
        let is_watched = submit.is_watched;
        let started = match submit.is_detached {
            true => {
                let job = only_one(submit.name.clone());
                self.start(submit, Some(job), None)
            }
            false => self.start(submit, None, None),
        };
        self.answer_start(id, started, is_watched).await
    }

    pub(super) async fn answer_start(
        &self,
        id: u64,
        started: Result<Started, Refusal>,
        is_watched: bool,
    ) -> Result<(), ConnectionClosed> {
        match started {
            Ok(Started {
                handle,
                watcher,
                durable: None,
            }) => self.started(id, handle, watcher, is_watched).await,
            Ok(started) => self.started_for_good(id, started, is_watched).await,
            Err(why) => self.refuse(id, why).await,
        }
    }

    /// The job of a task; none where there are as many detached tasks of its tenant as may be, and this is one.
    fn job_to_start(&self, submit: &wire::Submit) -> Result<Arc<Job>, Refusal> {
        let job = self.job(submit)?;
        let tenant = &job.terms.tenant;
        let bounds = match submit.is_detached {
            true => {
                let shared = &self.inner.shared;
                shared.ask(|ledger| ledger.scheduler().tenants().max_detached(tenant))
            }
            false => Vec::new(),
        };
        if bounds.is_empty() {
            return Ok(job);
        }
        let registry = self.inner.registry();
        let mut full = bounds
            .iter()
            .filter(|(of, most)| registry.live_of(of) >= *most);
        let Some((of, most)) = full.next() else {
            return Ok(job);
        };
        let why = format_args!(
            "tenant {of} has as many detached tasks at this node that have not ended as its quota allows, {most}: submit more when \
             some have ended, or have the quota raised (`wasmrun tenant set {of} --max-detached`)"
        );
        Err(refusal(RefusalKind::Full, why))
    }

    /// Starts a task: of this job if it is detached, and under this id if one is given.
    pub(super) fn start(
        &self,
        submit: wire::Submit,
        detached: Option<wire::Job>,
        id: Option<(TaskId, Attempt)>,
    ) -> Result<Started, Refusal> {
        let job = self.job_to_start(&submit)?;
        let (name, tenant) = (&job.name, &job.terms.tenant);
        let is_durable = submit.is_detached && self.inner.durable.get().is_some();
        let like = submit.is_detached.then(|| submit.clone());
        let log = submit.is_detached.then(Arc::<Log>::default);
        let values = match job.function_type() {
            Some(ty) => self.arguments(ty, submit.values)?,
            None => Vec::new(),
        };
        let (listener, chunks) = match submit.is_watched || submit.is_detached {
            true => {
                let (chunks, coming) = mpsc::channel(OUTPUT_CHUNKS);
                (Some(Listener::new(0, chunks)), Some(coming))
            }
            false => (None, None),
        };
        let (input, feed) = input_of(submit.input);
        let call = Call {
            values,
            args: submit.args,
            array_index: submit.array_index,
            input,
            listener,
            time_limit: None,
            trace: submit.trace,
        };
        let given = like.as_ref();
        let given = given.map(|submit| again::snapshot(submit, &call.values));
        let client = match &detached {
            Some(detached) => self.detached_job(detached, name, tenant)?,
            None => {
                self.begins(name, tenant);
                self.client.clone()
            }
        };
        let durable = like.as_ref().filter(|_| is_durable);
        let stored = durable.map(|submit| {
            let origin = self.origin(detached.clone().expect("it is detached"));
            let (submit, values) = (submit.clone(), &call.values);
            Durable::record_of(&self.inner, submit, origin, name, tenant, values)
        });
        let submitted = match id {
            Some((id, first)) => client.submit_as(id, first, &job, call),
            None => client.submit(&job, call),
        };
        if let Some(detached) = detached.filter(|it| it.tasks == 1) {
            self.close_job(&detached.id);
        }
        let handle = submitted.map_err(|error| refused(&error))?;
        if let Some(feed) = feed {
            self.take_input(handle.id(), feed);
        }
        let mut watcher = Watcher {
            inner: self.inner.clone(),
            chunks,
            log: log.clone(),
            to: None,
            keeping: None,
        };
        if let (Some(log), Some(given)) = (log, given) {
            let name = name.to_string();
            self.inner.record(&handle, name, tenant, log, given);
        }
        let durable = stored.map(|stored| {
            let durable = self.inner.durable.get().expect("it has made the record");
            let (pending, keeping) = durable.begin(handle.id(), stored?);
            watcher.keeping = Some(keeping);
            Ok(pending)
        });
        Ok(Started {
            handle,
            watcher,
            durable,
        })
    }

    /// Submits a function once with each of these arguments: all of them, or none.
    pub(super) fn submit_all(
        &self,
        submit: &wire::Submit,
        calls: Vec<Vec<wire::Argument>>,
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
        self.begins(&job.name, &job.terms.tenant);
        let mut handles = Vec::with_capacity(calls.len());
        for values in calls {
            let call = Call {
                values,
                trace: submit.trace.clone(),
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
                        drop(self.objects.lock().release(&handle.object().id()));
                    }
                    return Err(why);
                }
            }
        }
        let ids = handles.iter().map(TaskHandle::id).collect();
        Ok(Response::SubmittedAll(ids))
    }

    /// The session submits something, and so is a job: called so, if its client has not said how.
    pub(super) fn begins(&self, name: &str, tenant: &TenantName) {
        if !self.is_job.swap(true, Ordering::AcqRel) {
            let about = self.about(&self.job_name, name, tenant, 0);
            self.inner.open_job(self.client.driver(), about);
        }
    }

    /// The driver of a job that outlives the session.
    ///
    /// # Errors
    /// When the job's id is another kind's, or another tenant's, or the session has too many jobs.
    pub(super) fn detached_job(
        &self,
        job: &wire::Job,
        name: &str,
        tenant: &TenantName,
    ) -> Result<Client, Refusal> {
        let mut known = self.detached.lock();
        if let Some(client) = known.get(&job.id) {
            return Ok(client.clone());
        }
        let is_others = self.inner.shared.ask(|ledger| {
            let about = ledger.jobs.get(&job.id).and_then(|it| it.about.as_ref());
            about.is_some_and(|about| about.tenant != *tenant)
        });
        if !job.id.is_detached() || job.id.job() != job.id || is_others {
            let why = format_args!(
                "job {} cannot be submitted to: it is not the id of a detached job, or it is another tenant's; draw another id",
                job.id
            );
            return Err(refusal(RefusalKind::Usage, why));
        }
        if known.len() >= MOST_JOBS {
            let over: Vec<DriverId> = self.inner.shared.ask(|ledger| {
                let is_over = |id: &DriverId| {
                    let job = ledger.jobs.get(id);
                    job.is_none_or(|job| job.ended.is_some())
                };
                known.keys().copied().filter(is_over).collect()
            });
            for id in &over {
                known.remove(id);
                self.inner.close_job(id);
            }
            if over.is_empty() {
                return Err(too_many("detached jobs", MOST_JOBS));
            }
        }
        self.inner
            .open_job(job.id, self.about(&job.name, name, tenant, job.tasks));
        let client = Client::new(self.inner.shared.clone(), job.id);
        known.insert(job.id, client.clone());
        Ok(client)
    }

    /// What a job is that this session submits; called `else_named` if its client calls it nothing.
    fn about(&self, said: &str, else_named: &str, tenant: &TenantName, tasks: u64) -> About {
        let said = plain_name(said);
        About {
            name: match said.is_empty() {
                true => else_named.to_owned(),
                false => said,
            },
            tenant: tenant.clone(),
            by: self.by.clone(),
            expected: tasks,
        }
    }

    /// Where tasks and actors come from that this session submits to a job, which is open.
    pub(super) fn origin(&self, job: wire::Job) -> Origin {
        let shared = &self.inner.shared;
        let submitted = shared.ask(|ledger| ledger.jobs.get(&job.id).map(|it| it.submitted));
        Origin {
            job,
            by: self.by.clone(),
            submitted_us: submitted.map_or(0, |it| shared.history.unix_us(it)),
        }
    }

    /// The session submits nothing more to a job that outlives it.
    pub(super) fn close_job(&self, id: &DriverId) {
        self.detached.lock().remove(id);
        self.inner.close_job(id);
    }

    /// The session is over, and submits nothing more to its jobs.
    pub(super) fn close_jobs(&self) {
        let detached = std::mem::take(&mut *self.detached.lock());
        for id in detached.keys().chain([&self.client.driver()]) {
            self.inner.close_job(id);
        }
    }

    /// The client hears of its task, and then of its end.
    pub(super) async fn started(
        &self,
        id: u64,
        handle: TaskHandle,
        watcher: Watcher,
        is_watched: bool,
    ) -> Result<(), ConnectionClosed> {
        match self.add_object(handle.object()) {
            Ok(object) => *self.last_started.lock() = Some((id, object)),
            Err(why) => {
                self.inner.take_back(&handle);
                return self.refuse(id, why).await;
            }
        }
        let told = self.out.send(id, Response::Submitted(handle.id())).await;
        let to = is_watched.then(|| (self.out.clone(), id));
        if to.is_some() || watcher.log.is_some() {
            // It ends with its task, and all tasks end with their session or the node.
            tokio::spawn(Watcher { to, ..watcher }.watch(handle));
        }
        told
    }

    /// The client hears of its task when that is durable, or why it is not. Others do not wait for that.
    async fn started_for_good(
        &self,
        id: u64,
        started: Started,
        is_watched: bool,
    ) -> Result<(), ConnectionClosed> {
        let Started {
            handle,
            watcher,
            durable,
        } = started;
        if let Err(why) = self.add_object(handle.object()) {
            self.inner.take_back(&handle);
            return self.refuse(id, why).await;
        }
        let (inner, out) = (self.inner.clone(), self.out.clone());
        let to = is_watched.then(|| (out.clone(), id));
        // It ends with its task, and all tasks end with the node.
        tokio::spawn(async move {
            let kept = match durable {
                Some(Ok(pending)) => inner.wait_until_durable(pending).await,
                Some(Err(why)) => Err(why),
                None => Ok(()),
            };
            let task = handle.id();
            inner.registry().set_lasting(&task, kept.clone());
            let answer = match kept {
                Ok(()) => Response::Submitted(task),
                Err(why) => Response::SubmittedHere { task, why },
            };
            // The task goes on without its client.
            let _ = out.send(id, answer).await;
            Watcher { to, ..watcher }.watch(handle).await;
        });
        Ok(())
    }
}

/// A task that was submitted.
pub(super) struct Started {
    handle: TaskHandle,
    watcher: Watcher,
    /// Its record, if it is to outlive the node; or why it has none.
    durable: Option<Result<Pending, String>>,
}

impl Inner {
    /// The driver of a job says what it is, and may submit.
    pub(super) fn open_job(&self, id: DriverId, about: About) {
        let now = Instant::now();
        self.shared.ask(|ledger| ledger.jobs.open(id, about, now));
    }

    /// The driver of a job submits nothing more.
    pub(super) fn close_job(&self, id: &DriverId) {
        let now = Instant::now();
        self.shared.ask(|ledger| ledger.jobs.close(id, now));
    }

    /// Remembers a detached task.
    pub(super) fn record(
        &self,
        handle: &TaskHandle,
        name: String,
        tenant: &TenantName,
        log: Arc<Log>,
        submitted: Submitted,
    ) {
        let cell = &handle.0;
        let mut registry = self.registry();
        registry.submissions.add(cell.id, submitted);
        registry.add_task(Record {
            id: cell.id,
            name,
            tenant: tenant.clone(),
            driver: cell.driver,
            submitted: cell.submitted.into_std(),
            detached: Some(Detached {
                object: handle.object(),
                log,
                lasting: None,
            }),
            end: None,
        });
        drop(registry);
        cell.note(self.ends.clone());
    }

    /// A task was submitted, and its client is refused all the same: nothing of it stays.
    fn take_back(&self, handle: &TaskHandle) {
        let task = handle.id();
        if let Some(durable) = self.durable.get() {
            durable.forget(&task);
        }
        self.shared.cancel(task);
        let forgotten = self.registry().forget(&task);
        drop(forgotten);
    }
}

/// A job of one task or actor that outlives its session.
pub(super) fn only_one(name: String) -> wire::Job {
    wire::Job {
        id: DriverId::detached(random()),
        name,
        tasks: 1,
    }
}

/// What a task reads, and where it comes in if it comes later.
fn input_of(input: wire::Input) -> (Input, Option<Feed>) {
    match input {
        wire::Input::Empty => (Input::Empty, None),
        wire::Input::Bytes(bytes) => (Input::Bytes(bytes.0.into()), None),
        wire::Input::Stream => {
            let (feed, intake) = intake(INPUT_CHUNKS);
            (Input::Stream(intake), Some(feed))
        }
    }
}

/// What a client names its task, for terminals: without what they would obey, and not too long.
pub(super) fn plain_name(name: &str) -> String {
    let plain = name.chars().filter(|c| !c.is_control());
    plain.take(MAX_NAME_CHARS).collect()
}

/// The job of a task that is to be run for a tenant.
pub(super) fn new_job(
    inner: &Inner,
    module: &Module,
    submit: &wire::Submit,
    tenant: TenantName,
) -> Result<Job, Refusal> {
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
    let name = match (plain_name(&submit.name), entry) {
        (name, _) if !name.is_empty() => name,
        (_, Entry::Function(index)) => module.function(index).name.clone(),
        (_, Entry::Program) => "program".to_owned(),
        (_, Entry::Http) => "http".to_owned(),
    };
    let overrides = overrides(inner, &submit.terms, &submit.limits, tenant);
    let job = Job::new(name, module, entry, &overrides, grants(&submit.grants)?);
    job.map_err(job_refused)
}

/// Why there is no job, as a client is told.
pub(super) fn job_refused(error: JobError) -> Refusal {
    match error {
        JobError::TooMuch(_) => refusal(RefusalKind::Unschedulable, error),
        error => refusal(RefusalKind::Usage, error),
    }
}

/// What a client says of its tasks, over what their module declares.
pub(super) fn overrides(
    inner: &Inner,
    terms: &wire::Terms,
    limits: &wire::Limits,
    tenant: TenantName,
) -> Overrides {
    Overrides {
        resources: Asked(terms.resources.clone()),
        tenant,
        priority: terms.priority,
        retries: terms.retries,
        retry_on_error: terms.retry_on_error,
        no_preempt: terms.no_preempt,
        selectors: terms.selectors.clone(),
        strategy: terms.strategy.clone(),
        time_limit: limits.time_ms.map(Duration::from_millis),
        output_bytes: limits.output_bytes,
        argument_bytes: limits.argument_bytes,
        result_bytes: limits.result_bytes,
        policy: inner.shared.policy.clone(),
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
        SubmitError::Waiting(_) => RefusalKind::Full,
        SubmitError::Stopping | SubmitError::Stopped => RefusalKind::Stopping,
    };
    refusal(kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_for_terminals() {
        assert_eq!(plain_name("a\u{1b}[2Jb\n\u{9b}c é"), "a[2Jbc é");
        assert_eq!(plain_name("\r\n"), "");
        assert_eq!(plain_name(&"x".repeat(300)).len(), 200);
    }
}
