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
use crate::object::Value;
use crate::task::{Argument, Report, TaskCell, Work};

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
pub(super) struct StagingQueues(HashMap<TaskId, StagingQueue>);

struct StagingQueue {
    /// Whose arguments are being stored.
    first: TaskId,
    waiting: VecDeque<Box<Outgoing>>,
}

/// The task that is placed.
fn placed(outgoing: &Outgoing) -> Option<TaskId> {
    match outgoing {
        Outgoing::Place(_, cell, _) => Some(cell.id),
        _ => None,
    }
}

impl StagingQueues {
    /// Whether this task is in one.
    pub(super) fn has(&self, task: &TaskId) -> bool {
        self.0.values().any(|queue| {
            let mut waiting = queue.waiting.iter().filter_map(|it| placed(it));
            queue.first == *task || waiting.any(|id| id == *task)
        })
    }

    /// Takes the next task out of a queue. Without one the queue ends.
    fn next(&mut self, queue: &TaskId) -> Option<Box<Outgoing>> {
        let next = self.0.get_mut(queue)?.waiting.pop_front();
        match next.as_deref().and_then(placed) {
            Some(first) => self.0.get_mut(queue)?.first = first,
            None => drop(self.0.remove(queue)),
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
        let Outgoing::Place(_, cell, call) = &*outgoing else {
            return;
        };
        let queue = match &cell.work {
            Work::Call(actor, _) => actor.id.task(),
            _ => cell.id,
        };
        let mut queues = session.staging.lock();
        if let Some(queue) = queues.0.get_mut(&queue) {
            return queue.waiting.push_back(outgoing);
        }
        if too_long(&call.values).next().is_none() {
            drop(queues);
            session.say(Queued::Outgoing(outgoing));
            return;
        }
        let (first, waiting) = (cell.id, VecDeque::new());
        queues.0.insert(queue, StagingQueue { first, waiting });
        drop(queues);
        let staging = Self::stage_all(self.this.clone(), to, session, queue, outgoing);
        // It ends with the queue, or with the session.
        shared.control.spawn(staging);
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
            if session.is_over() || !self.is_to_run(cell, attempt, to) {
                return;
            }
            match self.store_arguments(cell, &mut call.values).await {
                Ok(stored) => break stored,
                Err(CreateError::Full { .. } | CreateError::Memory { .. }) if is_call => {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => return self.cannot_be_staged(to, cell, attempt, &error),
            }
        };
        let key = (to, cell.id, attempt);
        if !stored.is_empty() {
            self.sent.lock().insert(key, stored);
        }
        if !session.say(Queued::Outgoing(outgoing)) {
            let stored = self.sent.lock().remove(&key);
            drop(stored);
        }
    }

    /// Whether this attempt of a task is still to run at a peer.
    fn is_to_run(&self, cell: &TaskCell, attempt: Attempt, at: NodeId) -> bool {
        let shared = self.shared.upgrade();
        shared.is_some_and(|it| it.ledger.lock().scheduler().is_at(&cell.id, attempt, at))
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
                self.carry_out(|ledger| ledger.settled(to, settled, report));
            }
            _ => {
                let settled = settled(Outcome::HandedBack);
                self.carry_out(|ledger| ledger.message(to, settled));
            }
        }
    }
}
