//! Arguments of tasks that go to other nodes, before these are told of the task.
//!
//! Owns which values travel with the message that begins a task, and putting the others into the store, where the other
//! node fetches them. Must not: lend anything. If the store has no room the message is not sent, and the peer would never
//! release what it was lent.
//!
//! A task whose arguments need room waits for it, and so do later calls of the same actor. All other messages for the peer
//! overtake them: a release may make the room. Without room in time a task goes back to the scheduler, as if the peer
//! had handed it back. A call can run nowhere else: it waits on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{NodeId, ObjectId, TaskId};
use wasmrun_model::scheduler::{Message, Outcome};
use wasmrun_model::task::{Attempt, FailureKind};
use wasmrun_store::CreateError;

use super::session::{PeerSession, Queued};
use super::{Exchange, remote};
use crate::ledger::Outgoing;
use crate::records::job::Argument;
use crate::records::object::Value;
use crate::records::task::{Report, TaskCell, Work};

/// How much of values goes with the message that begins a task; the rest is fetched.
pub(super) const MESSAGE_BYTES: usize = 1 << 20;
/// How soon a call whose arguments found no room in time is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Arguments that are stored to be sent count from here: a task's own objects are numbered from 0.
const SENT_FROM: u32 = 1 << 31;

/// What an argument of a task is stored as.
pub(super) fn stored_as(task: TaskId, index: u32) -> ObjectId {
    ObjectId::put_by(task, SENT_FROM | index)
}

/// How many bytes of an argument travel with the message.
pub(super) fn inline_bytes(argument: &Argument) -> usize {
    match argument {
        Argument::Value(value) => value.as_inline().map_or(0, |it| it.size_bytes()),
        Argument::Object(_) => 0,
    }
}

/// The arguments that do not fit into the message: they are put into the store.
fn too_long(values: &[Argument]) -> impl Iterator<Item = usize> {
    let mut room = MESSAGE_BYTES;
    let sizes = values.iter().map(inline_bytes).enumerate();
    sizes.filter_map(move |(index, bytes)| {
        let fits = bytes <= remote::MAX_INLINE.min(room);
        room -= if fits { bytes } else { 0 };
        (!fits).then_some(index)
    })
}

/// Tasks for a peer whose arguments are being put into the store. The tasks of a queue keep their order: it has all calls
/// of an actor, by the creation of that, or one task.
#[derive(Default)]
pub(super) struct StagingQueues {
    queues: HashMap<TaskId, VecDeque<Box<Outgoing>>>,
    /// The attempts that are still to be sent. Those that were withdrawn leave their queues when their turn comes.
    attempts: HashMap<TaskId, Attempt>,
}

impl StagingQueues {
    /// Whether this task is in one.
    pub(super) fn has(&self, task: &TaskId) -> bool {
        self.attempts.contains_key(task)
    }

    fn has_attempt(&self, task: &TaskId, attempt: Attempt) -> bool {
        self.attempts.get(task) == Some(&attempt)
    }

    /// An attempt is sent now, or never. False if that was said before.
    fn take(&mut self, task: &TaskId, attempt: Attempt) -> bool {
        let is_there = self.has_attempt(task, attempt);
        is_there && self.attempts.remove(task).is_some()
    }

    /// Takes the next task out of a queue. Without one the queue ends.
    fn next(&mut self, queue: &TaskId) -> Option<Box<Outgoing>> {
        let next = self.queues.get_mut(queue)?.pop_front();
        if next.is_none() {
            self.queues.remove(queue);
        }
        next
    }
}

impl Exchange {
    /// Tells a peer that a task is to run there, once its arguments can be had.
    pub(super) fn say_place(&self, to: NodeId, outgoing: Box<Outgoing>) {
        let (Some(session), Some(shared)) = (self.sessions.get(&to), self.shared.upgrade()) else {
            return;
        };
        let Outgoing::Place(Message::Place { attempt, .. }, cell, call) = &*outgoing else {
            return;
        };
        let queue = match &cell.work {
            Work::Call(actor, _) => actor.id.task(),
            _ => cell.id,
        };
        let mut staging = session.staging.lock();
        let is_queued = staging.queues.contains_key(&queue);
        if !is_queued && too_long(&call.values).next().is_none() {
            drop(staging);
            session.say(Queued::Outgoing(outgoing));
            return;
        }
        staging.attempts.insert(cell.id, *attempt);
        let waiting = staging.queues.entry(queue).or_default();
        if is_queued {
            return waiting.push_back(outgoing);
        }
        drop(staging);
        let staging = Self::stage_all(self.this.clone(), to, session, queue, outgoing);
        // It ends with the queue, or with the session.
        shared.control.spawn(staging);
    }

    /// Tells a peer that an attempt is not to run, if it was told to run it.
    pub(super) fn say_withdraw(&self, to: NodeId, task: TaskId, attempt: Attempt) {
        let (Some(session), Some(shared)) = (self.sessions.get(&to), self.shared.upgrade()) else {
            return;
        };
        if !session.staging.lock().take(&task, attempt) {
            let message = Message::Withdraw { task, attempt };
            session.say(Queued::Outgoing(Box::new(Outgoing::Message(message))));
            return;
        }
        let this = self.this.clone();
        // Not at once: what others are told is told from here.
        shared.control.spawn(async move {
            let (Some(exchange), outcome) = (this.upgrade(), Outcome::Cancelled) else {
                return;
            };
            let message = Message::Settled {
                task,
                attempt,
                outcome,
            };
            exchange.tell(|ledger| ledger.message(to, message));
        });
    }

    async fn stage_all(
        this: Weak<Self>,
        to: NodeId,
        session: Arc<PeerSession>,
        queue: TaskId,
        mut next: Box<Outgoing>,
    ) {
        loop {
            if let Some(exchange) = this.upgrade() {
                exchange.stage(to, &session, next).await;
            }
            let following = session.staging.lock().next(&queue);
            match following {
                Some(following) => next = following,
                None => return,
            }
        }
    }

    /// Stores the arguments of a task that are too long, and then queues its message.
    async fn stage(&self, to: NodeId, session: &PeerSession, mut outgoing: Box<Outgoing>) {
        let Outgoing::Place(Message::Place { attempt, .. }, cell, call) = &mut *outgoing else {
            return;
        };
        let (attempt, is_call) = (*attempt, matches!(cell.work, Work::Call(..)));
        let stored = loop {
            if session.is_over() || !session.staging.lock().has_attempt(&cell.id, attempt) {
                return;
            }
            match self.store_arguments(cell, &mut call.values).await {
                Ok(stored) => break stored,
                Err(CreateError::Full { .. } | CreateError::Memory { .. }) if is_call => {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => {
                    if session.staging.lock().take(&cell.id, attempt) {
                        self.cannot_be_staged(to, cell, attempt, &error);
                    }
                    return;
                }
            }
        };
        let key = (to, cell.id, attempt);
        if !stored.is_empty() {
            self.sent.lock().insert(key, stored);
        }
        let id = cell.id;
        let mut staging = session.staging.lock();
        // In one step: a withdrawal is said behind it, or takes it back.
        let is_said = staging.take(&id, attempt) && session.say(Queued::Outgoing(outgoing));
        drop(staging);
        if !is_said {
            let stored = self.sent.lock().remove(&key);
            drop(stored);
        }
    }

    /// Puts those that are too long into the store, in their places. All of them, or none.
    async fn store_arguments(
        &self,
        cell: &TaskCell,
        values: &mut [Argument],
    ) -> Result<Vec<Value>, CreateError> {
        let tenant = &cell.work.terms().tenant;
        let mut stored = Vec::new();
        for index in too_long(values).collect::<Vec<_>>() {
            if let (Some(shared), Argument::Value(value)) = (self.shared.upgrade(), &values[index])
                && let Some(encoded) = value.as_inline()
            {
                let id = stored_as(cell.id, index as u32);
                let references = value.references().to_vec();
                let storing = shared.store_value(tenant, id, encoded.into(), references);
                stored.push((index, storing.await?));
            }
        }
        for (index, value) in &stored {
            values[*index] = Argument::Value(value.clone());
        }
        Ok(stored.into_iter().map(|(_, value)| value).collect())
    }

    /// The arguments of a task do not find room.
    fn cannot_be_staged(&self, to: NodeId, cell: &TaskCell, attempt: Attempt, error: &CreateError) {
        let settled = |outcome| Message::Settled {
            task: cell.id,
            attempt,
            outcome,
        };
        match error {
            // There never will be.
            CreateError::TooLarge { .. } => {
                let why = format!("an argument cannot be stored to be sent: {error}");
                let report = Report::never_ran(cell, TaskError::Sandbox(why));
                let settled = settled(Outcome::Failed(FailureKind::Final));
                self.tell(|ledger| ledger.settled(to, settled, report));
            }
            _ => {
                let settled = settled(Outcome::HandedBack);
                self.tell(|ledger| ledger.message(to, settled));
            }
        }
    }
}
