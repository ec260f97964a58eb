//! Detached actors that outlive the node where they were created, if they have restarts left.
//!
//! Owns their records: what they are created from, and their last state, which is looked at once a second and written
//! behind. Must not: decide when an actor ends.

use std::sync::{Arc, Weak};
use std::time::Duration;

use wasmrun_engine::{Listener, Module};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::TaskId;
use wasmrun_model::wire;

use super::may_move;
use crate::client::CallError;
use crate::cluster::Written;
use crate::guests::names::NameError;
use crate::records::actor::{ActorCell, Checkpoint};
use crate::records::class::ActorJob;
use crate::records::dead::Dead;
use crate::records::job::{Argument, Call};
use crate::records::log::{ActorLog, Log};
use crate::records::task::{Notes, Report};
use crate::server::Inner;
use crate::server::actors::new_job;
use crate::server::operands::plain;
use crate::server::stored::{Durable, KeptActor, MOST_BYTES, Origin, Pending, State, StoredActor};

/// How often states are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How soon a name is asked for again that is not free yet, and how often.
const AGAIN: Duration = Duration::from_millis(500);
const MOST_TRIES: u32 = 120;

/// Ends the record of an actor that has ended.
struct Ended {
    durable: Weak<Durable>,
    task: TaskId,
}

impl Notes for Ended {
    fn ended(&self, _: &Report) {
        if let Some(durable) = self.durable.upgrade()
            && !durable.is_closed()
        {
            durable.forget(&self.task);
        }
    }
}

impl Durable {
    /// What is in the record of an actor that a client creates; or why it has none.
    pub(in crate::server) fn record_of_actor(
        inner: &Inner,
        create: wire::Create,
        origin: Origin,
        job: &ActorJob,
        values: &[Argument],
    ) -> Result<StoredActor, String> {
        let module_bytes = may_move(inner, &create.grants, &create.module, values)?;
        let stored = StoredActor {
            tenant: job.terms.tenant.clone(),
            module_bytes,
            create,
            restarts_left: job.restarts,
            state: State::Arguments,
            origin: Some(origin),
        };
        match stored.to_value().len() {
            ..=MOST_BYTES => Ok(stored),
            bytes => Err(format!(
                "with its arguments it has {bytes} bytes, and {MOST_BYTES} are kept at most"
            )),
        }
    }

    /// Writes down what is not written yet. Whether there was nothing.
    pub(in crate::server) fn flush(&self, inner: &Arc<Inner>) -> bool {
        self.keep_states(inner);
        self.is_written() && self.actors.lock().values().all(|kept| !kept.is_writing)
    }

    /// Writes down what has changed of actors.
    fn keep_states(&self, inner: &Arc<Inner>) {
        let mut changed = Vec::new();
        for (task, kept) in &mut *self.actors.lock() {
            if !kept.is_writing
                && let Some(cell) = kept.cell.upgrade()
                && kept.stored.update(&cell)
            {
                kept.is_writing = true;
                changed.push((*task, kept.stored.to_value()));
            }
        }
        for (task, value) in changed {
            let (written, inner) = (self.records.replace(task, value), inner.clone());
            // It ends when the store has answered, at the latest with the node.
            inner.shared.control.clone().spawn(async move {
                let written = written.await;
                if let Some(durable) = inner.durable.get()
                    && let Some(kept) = durable.actors.lock().get_mut(&task)
                {
                    kept.is_writing = false;
                }
                match written {
                    Ok(Written::Taken) => inner.give_up(task),
                    _ => tracing::debug!(%task, "the state of a detached actor is kept"),
                }
            });
        }
    }
}

impl Inner {
    /// Keeps a record of an actor that was created, until it ends. Else why it has none, for whoever has created it.
    pub(in crate::server) async fn keep_actor(
        self: &Arc<Self>,
        actor: &Arc<ActorCell>,
        stored: StoredActor,
    ) -> Result<(), String> {
        let Some(durable) = self.durable.get() else {
            return Ok(());
        };
        let task = actor.id.task();
        let module = (stored.create.module, stored.module_bytes);
        durable.note(task, module, false);
        let written = durable.records.put(task, stored.to_value());
        self.follow_actor(actor, stored);
        let pending = Pending {
            task,
            module,
            written,
        };
        self.wait_until_durable(pending).await
    }

    /// From now on the record of an actor follows it.
    fn follow_actor(&self, actor: &Arc<ActorCell>, stored: StoredActor) {
        let Some(durable) = self.durable.get() else {
            return;
        };
        let task = actor.id.task();
        actor.set_recorded();
        let cell = Arc::downgrade(actor);
        durable.actors.lock().insert(
            task,
            KeptActor {
                cell,
                stored,
                is_writing: false,
            },
        );
        let creation = self.shared.ask(|ledger| ledger.cell(&task));
        match creation {
            Some(creation) => creation.note(Arc::new(Ended {
                durable: Arc::downgrade(durable),
                task,
            })),
            // It has ended already.
            None => durable.forget(&task),
        }
    }

    /// Writes down states of actors, as long as the server is there.
    pub(super) async fn keep_states(inner: Weak<Self>) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(inner) = inner.upgrade() else {
                return;
            };
            if let Some(durable) = inner.durable.get() {
                if durable.is_closed() {
                    return;
                }
                durable.keep_states(&inner);
            }
        }
    }

    /// Begins the next generation of an actor whose record is ours now.
    pub(super) async fn go_on_with_actor(
        self: Arc<Self>,
        task: TaskId,
        stored: StoredActor,
        module: Module,
    ) {
        let Some(durable) = self.durable.get() else {
            return;
        };
        if let Err(why) = self.create_again(durable, task, &stored, &module).await {
            tracing::warn!(actor = %task.actor(), why, "a detached actor of a lost node ends");
            durable.forget(&task);
            let why = format!("the node is lost that owned it, and it does not go on: {why}");
            self.actor_is_over(task, &stored, None, TaskError::Sandbox(why));
        }
    }

    /// An actor that was kept for a lost node does not live again. Those who ask for it hear why. `node`: that node, by its
    /// name, where the actor ends because of its loss.
    pub(super) fn actor_is_over(
        &self,
        task: TaskId,
        stored: &StoredActor,
        node: Option<String>,
        why: TaskError,
    ) {
        let dead = Dead {
            id: task.actor(),
            name: stored.create.name.clone(),
            class: stored.create.class.clone(),
            tenant: stored.tenant.clone(),
            driver: stored.origin(task).job.id,
            submitted: tokio::time::Instant::now(),
            has_lived: true,
            node,
            why,
        };
        self.shared.ask(|ledger| ledger.dead.add(dead));
    }

    async fn create_again(
        self: &Arc<Self>,
        durable: &Durable,
        task: TaskId,
        stored: &StoredActor,
        module: &Module,
    ) -> Result<(), String> {
        let state = match &stored.state {
            State::Arguments => None,
            State::Checkpoint(number, bytes) => Some(Checkpoint {
                number: *number,
                state: bytes.0.as_slice().into(),
            }),
            State::TooLarge(_) => return Err("its state was too large to be kept".to_owned()),
        };
        self.has_left(task).await.map_err(|why| why.message)?;
        let mut create = stored.create.clone();
        create.wishes.restarts = Some(stored.restarts_left);
        let job = new_job(self, module, &create, stored.tenant.clone());
        let job = Arc::new(job.map_err(|why| why.message)?);
        let constructor = &module.class(job.class).constructor.ty;
        let values = plain(constructor, &create.values).map_err(|why| why.message)?;
        let client = self.adopt_job(stored.origin(task), &stored.tenant);
        let mut tries = 0;
        let created = loop {
            let log = Arc::<Log>::default();
            let call = Call {
                values: values.clone(),
                listener: Some(Listener::with_log(log.clone(), None)),
                trace: create.trace.clone(),
                ..Call::default()
            };
            let creating =
                client.create_actor_as(task, &job, call, create.name.clone(), state.clone());
            let error = match creating.await {
                Ok(actor) => break Ok((actor, log)),
                Err(error) => error,
            };
            // The lost node may be back, and about to give it up; or nobody can say whose the name is.
            let is_for_now = match &error {
                CallError::Name(NameError::Taken { actor, .. }) => *actor == task.actor(),
                CallError::Name(NameError::Unknown { .. }) => true,
                _ => false,
            };
            tries += 1;
            if !is_for_now || tries >= MOST_TRIES || !durable.knows(&task) {
                break Err(error.to_string());
            }
            tokio::time::sleep(AGAIN).await;
        };
        self.close_job(&client.driver());
        let (actor, log) = created?;
        self.shared.actor_logs.add(ActorLog {
            id: actor.id(),
            tenant: stored.tenant.clone(),
            driver: client.driver(),
            name: create.name.clone(),
            log,
        });
        self.follow_actor(actor.actor.cell(), stored.clone());
        Ok(())
    }
}
