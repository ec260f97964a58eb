//! Taking records over: of nodes that are lost, and of earlier processes of this one.
//!
//! Owns the loop that looks for records without an owner that lives, and going on with their tasks. One node takes all
//! that a lost one had, and gives the tasks away as it does with its own; where that one does not, the next does after
//! a while, in an order that all know.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wasmrun_control::Error;
use wasmrun_control::records::Record as _;
use wasmrun_engine::{Listener, Module};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{Digest, DriverId, NodeId, ObjectId, TaskId};
use wasmrun_model::task::Attempt;
use wasmrun_model::wire::{Refusal, RefusalKind};

use crate::client::Client;
use crate::cluster::{Cluster, Found, Heir, Records, look};
use crate::ledger::jobs::About;
use crate::records::ids::random;
use crate::records::job::{Call, Job};
use crate::records::log::Log;
use crate::records::object::Value;
use crate::records::task::{Report, TaskCell, TaskHandle, Work};
use crate::server::Inner;
use crate::server::again;
use crate::server::operands::call_of;
use crate::server::registry::{Detached, Record};
use crate::server::session::refusal;
use crate::server::stored::{
    Durable, Ending, Keeping, Origin, Stored, StoredActor, StoredRecord, encoded,
};
use crate::server::tasks::{OUTPUT_CHUNKS, new_job, plain_name};
use crate::server::views;
use crate::server::watch::Watcher;

/// The most nodes that a task may lose without having ended: it may be the reason.
const MOST_LOSSES: u32 = 10;
/// How long what a lost node had here may take to end.
const LEAVING: Duration = Duration::from_secs(60);
/// How often is looked whether it has.
const LOOK: Duration = Duration::from_millis(10);

impl Inner {
    /// Begins to keep detached tasks in the control store, if the node is in a cluster.
    pub(in crate::server) fn keep_durable(self: &Arc<Self>) {
        let Some(cluster) = self.cluster() else {
            return;
        };
        let durable = Durable {
            records: Records::start(cluster.clone(), &self.shared.control),
            groups: Records::start(cluster.clone(), &self.shared.control),
            inventory: Default::default(),
            actors: Default::default(),
            placed: Default::default(),
            read_in: Default::default(),
            is_closed: Default::default(),
        };
        if self.durable.set(Arc::new(durable)).is_ok() {
            let looking = Looking {
                inner: Arc::downgrade(self),
                cluster: cluster.clone(),
                missing: HashSet::new(),
                half_taken: HashSet::new(),
            };
            // It ends with the server.
            self.shared.control.spawn(look(looking, cluster.reasons()));
            let states = Self::keep_states(Arc::downgrade(self));
            self.shared.control.spawn(states);
            self.look_for_groups(cluster);
        }
    }
}

/// A record that was read to be taken over.
enum Prepared {
    /// What follows, and what is written for that.
    Ready(Going, Bytes),
    /// Nobody has its module.
    Waits,
    /// It cannot be read.
    Unread,
}

/// How it goes on with what was taken over.
enum Going {
    /// A task that has ended, or that begins again or may have to: that has its module.
    Task(Box<Stored>, Option<Module>),
    Actor(Box<StoredActor>, Module),
    /// An actor that has lived for the last time.
    Over(Box<StoredActor>),
}

/// Who looks for records.
struct Looking {
    inner: std::sync::Weak<Inner>,
    cluster: Arc<Cluster>,
    /// Modules that nobody had when they were needed.
    missing: HashSet<Digest>,
    /// What may have been taken over without having been gone on with, as the store did not answer: its loss of an
    /// owner is counted.
    half_taken: HashSet<TaskId>,
}

/// Goes on with what was taken over from a node.
async fn go_on(
    inner: &Arc<Inner>,
    durable: &Durable,
    (task, owner): (TaskId, NodeId),
    going: Going,
    bytes: usize,
) {
    // Where it is known its client has submitted it again just now.
    match going {
        Going::Over(stored) => {
            tracing::warn!(%task, node = %owner, "a detached actor is lost with its node: it has no restarts left");
            drop(durable.records.delete(task));
            let cluster = inner.cluster();
            let node = cluster.map_or_else(|| owner.to_string(), |it| it.name_of(owner));
            let why = format!("node {node}, which owned it, is lost, and it has no restarts left");
            inner.actor_is_over(task, &stored, Some(node), TaskError::Sandbox(why));
        }
        Going::Actor(stored, module) => {
            if durable.note(task, (stored.create.module, stored.module_bytes), true) {
                // It ends when the actor lives, or cannot.
                let going = inner.clone().go_on_with_actor(task, *stored, module);
                drop(inner.shared.control.spawn(going));
            }
        }
        Going::Task(stored, module) => {
            if !durable.note(task, (stored.submit.module, stored.module_bytes), true) {
                return;
            }
            let going = inner.clone().go_on(task, *stored, module, bytes);
            // One that has run here for the lost node must end first.
            let is_here = inner.shared.ask(|ledger| ledger.cell(&task).is_some());
            match is_here {
                true => drop(inner.shared.control.spawn(going)),
                false => going.await,
            }
        }
    }
}

#[async_trait]
impl Heir<TaskId> for Looking {
    type Server = Inner;

    fn server(&self) -> Option<Arc<Inner>> {
        let inner = self.inner.upgrade()?;
        let is_open = inner.durable.get().is_some_and(|it| !it.is_closed());
        is_open.then_some(inner)
    }

    fn records(inner: &Inner) -> &Records {
        &durable(inner).records
    }

    fn is_willing(inner: &Inner) -> bool {
        !inner.is_draining.load(Ordering::Acquire)
    }

    async fn look_at_own(&mut self, inner: &Arc<Inner>) -> Result<bool, Error> {
        let durable = durable(inner);
        let exchange = inner.exchange();
        let since = exchange.and_then(|exchange| exchange.confirmation());
        let kept = durable.stored_tasks();
        let incarnation = self.cluster.incarnation();
        let found = durable.records.own().await?;
        let there: HashSet<TaskId> = found.iter().map(|found| found.id).collect();
        for task in kept.iter().filter(|task| !there.contains(task)) {
            inner.give_up(*task);
        }
        durable.own_is_known_in(incarnation);
        // Those who keep results for us may have lost sight of us. What is not ours any more is claimed by others.
        inner.claim_places(durable, |_| true);
        if let (Some(exchange), Some(since)) = (exchange, since) {
            exchange.own_actors_are_known(since);
        }
        let new = found.into_iter().filter(|it| !durable.knows(&it.id));
        let new: Vec<Found> = new.collect();
        self.adopt(inner, durable, self.cluster.id(), new).await
    }

    async fn inherit(
        &mut self,
        inner: &Arc<Inner>,
        owner: NodeId,
        found: Vec<Found>,
    ) -> Result<(), Error> {
        self.adopt(inner, durable(inner), owner, found).await?;
        Ok(())
    }

    async fn look_around(&mut self, inner: &Arc<Inner>) {
        inner.share_modules(durable(inner)).await;
    }
}

/// What a server has in the control store, once it looks for more.
pub(super) fn durable(inner: &Inner) -> &Durable {
    let durable = inner.durable.get();
    durable.expect("it is set before anybody looks")
}

impl Looking {
    /// Takes records over. Whether some were left, which wait for their modules.
    async fn adopt(
        &mut self,
        inner: &Arc<Inner>,
        durable: &Durable,
        owner: NodeId,
        found: Vec<Found>,
    ) -> Result<bool, Error> {
        let (mut records, mut next) = (Vec::new(), Vec::new());
        // Looked for once each, also those that nobody has.
        let mut modules = BTreeMap::new();
        let mut is_left = false;
        for found in found {
            match self.prepare(inner, owner, &found, &mut modules).await {
                Prepared::Ready(going, value) => {
                    next.push(going);
                    records.push((found, value));
                }
                Prepared::Waits => is_left = true,
                Prepared::Unread => {}
            }
        }
        let mut next = next.into_iter();
        // In the order in which they are gone on with, so that a crash in the middle leaves little to wait for.
        for some in records.chunks(1000) {
            let tasks = || some.iter().map(|(found, _)| found.id);
            let taken = match durable.records.take(owner, some).await {
                Ok(taken) => taken,
                Err(error) => {
                    self.half_taken.extend(tasks());
                    return Err(error);
                }
            };
            for task in tasks() {
                self.half_taken.remove(&task);
            }
            for ((found, value), going) in some.iter().zip(&mut next) {
                if taken.contains(&found.id) {
                    go_on(inner, durable, (found.id, owner), going, value.len()).await;
                }
            }
        }
        Ok(is_left)
    }

    /// What a record becomes that is taken over.
    async fn prepare(
        &mut self,
        inner: &Inner,
        owner: NodeId,
        found: &Found,
        modules: &mut BTreeMap<Digest, Option<Module>>,
    ) -> Prepared {
        let stored = match StoredRecord::from_value(found.value()) {
            Ok(stored) => stored.with_origin(),
            Err(error) => {
                tracing::warn!(task = %found.id, %error, "a record of a detached task is left");
                return Prepared::Unread;
            }
        };
        let (digest, len) = stored.module();
        let module = match modules.get(&digest) {
            Some(module) => module.clone(),
            None => {
                let module = self.module(inner, digest, len).await;
                modules.entry(digest).or_insert(module).clone()
            }
        };
        let is_counted = owner == self.cluster.id() && self.half_taken.contains(&found.id);
        let loss = u32::from(!is_counted);
        let (going, value) = match (stored, module) {
            (
                StoredRecord::TaskFrom(_, _, mut stored)
                | StoredRecord::TaskOf(_, mut stored)
                | StoredRecord::Task(mut stored),
                module,
            ) => {
                let has_ended = stored.ending.is_some();
                // What has ended does without, unless it may have to be run again.
                if module.is_none() && (!has_ended || stored.has_lineage()) {
                    return Prepared::Waits;
                }
                if !has_ended {
                    stored.losses += loss;
                }
                let value = stored.to_value();
                (Going::Task(stored, module), value)
            }
            (StoredRecord::ActorFrom(..) | StoredRecord::Actor(_), None) => return Prepared::Waits,
            (
                StoredRecord::ActorFrom(_, mut stored) | StoredRecord::Actor(mut stored),
                Some(module),
            ) => {
                let left = stored.restarts_left.checked_sub(loss);
                stored.restarts_left = left.unwrap_or_default();
                let value = stored.to_value();
                let going = match left {
                    Some(_) => Going::Actor(stored, module),
                    None => Going::Over(stored),
                };
                (going, value)
            }
        };
        Prepared::Ready(going, value)
    }

    async fn module(&mut self, inner: &Inner, digest: Digest, len: u64) -> Option<Module> {
        if let Some(module) = inner.registry().modules.get(&digest) {
            return Some(module);
        }
        let exchange = inner.exchange()?;
        match exchange.find_module(digest, len).await {
            Ok(module) => {
                self.missing.remove(&digest);
                inner.registry().modules.add(module.clone());
                Some(module)
            }
            Err(error) => {
                if self.missing.insert(digest) {
                    tracing::warn!(
                        %error, "detached tasks of a lost node wait in the control store for a node that has their module"
                    );
                }
                None
            }
        }
    }
}

impl Inner {
    /// Sees to it that modules of tasks that have not ended are at other nodes too.
    async fn share_modules(&self, durable: &Durable) {
        let Some(exchange) = self.exchange() else {
            return;
        };
        let sharing = async {
            for (digest, len, besides) in durable.modules() {
                let sharing = exchange.share_module(digest, len, &besides, super::PATIENCE);
                sharing.await;
            }
        };
        // What has been asked for goes on; the rest comes next time.
        let _ = tokio::time::timeout(super::PATIENCE, sharing).await;
    }

    /// Goes on with a task whose record is ours now.
    async fn go_on(
        self: Arc<Self>,
        task: TaskId,
        stored: Stored,
        module: Option<Module>,
        bytes: usize,
    ) {
        if let Some(ending) = stored.ending.clone() {
            if let Some(durable) = self.durable.get() {
                self.count_ended(durable, task, &stored, bytes);
            }
            if let Some(value) = self.restore(task, &stored, ending, module) {
                self.note_place(task, stored, &value);
            }
            return;
        }
        let module = module.expect("it is not taken over without");
        let begun = match stored.losses {
            ..=MOST_LOSSES => match self.begin_again(task, &stored, &module).await {
                Ok(Some(begun)) => Ok(begun),
                Ok(None) => return,
                Err(why) => Err(why),
            },
            losses => Err(refusal(
                RefusalKind::Unschedulable,
                format_args!(
                    "{losses} nodes were lost that owned it, which may be because of it; submit it again"
                ),
            )),
        };
        let why = match begun {
            Ok((handle, watcher)) => {
                let watcher = Watcher {
                    keeping: Some(Keeping { task, stored }),
                    ..watcher
                };
                // It ends with its task.
                tokio::spawn(watcher.watch(handle));
                return;
            }
            Err(why) => why,
        };
        let report = Report::without_run(task, Err(TaskError::Unschedulable(why.message)));
        let log = Log::default();
        let _ = self.restore(
            task,
            &stored,
            Ending::of(&report, self.shared.home.node, &log, None),
            Some(module),
        );
        Keeping { task, stored }.ended(&self, &report, &log);
    }

    /// Waits until what a lost node had here of this task is gone.
    pub(super) async fn has_left(&self, task: TaskId) -> Result<(), Refusal> {
        let left = async {
            while self.shared.ask(|ledger| ledger.cell(&task).is_some()) {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(LEAVING, left).await.is_err() {
            let why = "an attempt of the node that is lost does not end here; submit it again";
            return Err(refusal(RefusalKind::Unschedulable, why));
        }
        Ok(())
    }

    /// Begins a task anew. `None` if its client has submitted it here again meanwhile: then that goes on.
    async fn begin_again(
        self: &Arc<Self>,
        task: TaskId,
        stored: &Stored,
        module: &Module,
    ) -> Result<Option<(TaskHandle, Watcher)>, Refusal> {
        let is_submitted = || self.registry().task(&task).is_some();
        if is_submitted() {
            return Ok(None);
        }
        self.has_left(task).await?;
        let job = new_job(self, module, &stored.submit, stored.tenant.clone())?;
        let job = Arc::new(job);
        let (sender, chunks) = mpsc::channel(OUTPUT_CHUNKS);
        let call = Call {
            listener: Some(Listener::new(0, sender)),
            ..call_of(&job, &stored.submit)?
        };
        let log = Arc::<Log>::default();
        let once = self.once.lock();
        if is_submitted() {
            return Ok(None);
        }
        if self.shared.ask(|ledger| ledger.cell(&task).is_some()) {
            return Err(refusal(
                RefusalKind::Usage,
                "another node has an attempt of it run here",
            ));
        }
        // It may have run before, and others may have what it made.
        let first = self.shared.ids.again(Attempt::FIRST);
        let client = self.adopt_job(stored.origin(task), &stored.tenant);
        let submitted = client.submit_as(task, first, &job, call);
        self.close_job(&client.driver());
        let handle = submitted.map_err(|error| crate::server::tasks::refused(&error))?;
        let submitted = Ok(encoded(&stored.submit));
        let name = stored.name.clone();
        self.record(&handle, name, &stored.tenant, log.clone(), submitted);
        self.registry().set_lasting(&task, Ok(()));
        drop(once);
        let watcher = Watcher {
            inner: self.clone(),
            chunks: Some(chunks),
            log: Some(log),
            to: None,
            keeping: None,
        };
        Ok(Some((handle, watcher)))
    }

    /// The driver that goes on with a job of a lost node, until [`Inner::close_job`].
    pub(super) fn adopt_job(&self, origin: Origin, tenant: &TenantName) -> Client {
        let (job, submitted) = (&origin.job, self.submitted(&origin));
        let about = About {
            name: plain_name(&job.name),
            tenant: tenant.clone(),
            by: origin.by.clone(),
            expected: job.tasks,
        };
        self.shared
            .ask(|ledger| ledger.jobs.open(job.id, about, submitted));
        Client::new(self.shared.clone(), job.id.adopter(random()))
    }

    /// When a job was submitted; now if that is not known.
    fn submitted(&self, origin: &Origin) -> Instant {
        match origin.submitted_us {
            0 => Instant::now(),
            us => self.shared.history.at_us(us),
        }
    }

    /// Remembers a task that has ended at another node. What it has made.
    fn restore(
        &self,
        task: TaskId,
        stored: &Stored,
        ending: Ending,
        module: Option<Module>,
    ) -> Option<Value> {
        let log = Arc::<Log>::default();
        ending.write_to(&log);
        log.close();
        let object = ObjectId::of(task, 0);
        let job =
            module.and_then(|it| new_job(self, &it, &stored.submit, stored.tenant.clone()).ok());
        let job = job.map(Arc::new);
        let again = job.as_ref().filter(|_| ending.has_lineage());
        let again = again.and_then(|job| call_of(job, &stored.submit).ok());
        let (end, result) = ending.restore(object, |place| {
            let exchange = self.exchange()?;
            exchange.adopt_result(object, &stored.tenant, place, again.is_some())
        });
        let value = result.as_ref().ok().cloned().flatten();
        let phase = end.phase();
        let origin = stored.origin(task);
        // As if it had been submitted when its job was: when it ended by another clock nobody knows.
        let ended = self
            .submitted(&origin)
            .checked_add(end.waited.saturating_add(end.ran));
        let ended = ended.map_or(Instant::now(), |it| it.min(Instant::now()));
        let adopter = self.adopt_job(origin, &stored.tenant);
        let driver = adopter.driver();
        let report = Report {
            waited: end.waited,
            ran: end.ran,
            ran_at: end.ran_at,
            ..*Report::without_run(task, result)
        };
        let has_module = job.is_some();
        let detached = job.map(|job| Detached {
            object: TaskHandle(self.ended_cell(driver, job, again, Box::new(report))).object(),
            log,
            lasting: Some(Ok(())),
        });
        let record = Record {
            id: task,
            name: stored.name.clone(),
            tenant: stored.tenant.clone(),
            driver,
            submitted: std::time::Instant::now(),
            detached,
            end: Some(end),
        };
        self.shared.ask(|ledger| {
            ledger.jobs.submitted(driver, true, ended);
            ledger.jobs.ended(&driver, true, phase, ended);
            ledger.jobs.close(&driver, ended);
        });
        if let Some(mut attempt) = views::last_of(self, &record) {
            attempt.array_index = stored.submit.array_index;
            attempt.trace = stored.submit.trace.clone();
            self.shared.history.add(&attempt);
        }
        let submitted = match (stored.has_given, has_module) {
            (true, true) => Ok(encoded(&stored.submit)),
            (true, false) => Err(again::NO_MODULE),
            (false, _) => Err(again::LARGE),
        };
        let mut registry = self.registry();
        registry.submissions.add(task, submitted);
        let forgotten = registry.add_ended(record);
        drop(registry);
        drop(forgotten);
        value
    }

    /// A task that has ended at another node; its result can be reconstructed by this call, if there is one.
    fn ended_cell(
        &self,
        driver: DriverId,
        job: Arc<Job>,
        again: Option<Call>,
        report: Box<Report>,
    ) -> Arc<TaskCell> {
        let home = self.shared.home();
        let cell = TaskCell::new(report.id, driver, Work::Task(job.clone()), home);
        if let (Some(call), Ok(Some(value))) = (&again, &report.result) {
            let over = self
                .shared
                .ask(|ledger| ledger.inherit_recipe(&cell, &job, call, value));
            drop(over);
        }
        cell.end(report);
        Arc::new(cell)
    }
}
