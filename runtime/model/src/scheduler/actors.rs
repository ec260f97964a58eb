//! Actors: which are known to live, and whose call is next.
//!
//! Owns the order of calls. Must not: know what an actor is; its creation is a task that keeps
//! running, and a call is a task that runs where the actor lives.
//!
//! Invariant: an actor here has at most one call in line or in an executor at a time, and the calls
//! of one caller (a driver, or a task) start in the order in which they were made.

use std::collections::{BTreeMap, BTreeSet};

use super::Scheduler;
use super::explain::Reason;
use super::table::{Doom, Owner, Sequence, TaskIx};
use crate::id::{ActorId, NodeId, TaskId};
use crate::resource::{Amount, ResourceName};
use crate::task::{FailureKind, Held, Phase, Place, TaskKind, TaskState};

/// What is known of actors.
#[derive(Debug, Default)]
pub(crate) struct Actors {
    known: BTreeMap<ActorId, Actor>,
}

#[derive(Debug, Default)]
struct Actor {
    /// Where it lives, if it does.
    node: Option<NodeId>,
    /// The call that is in line or in an executor.
    current: Option<TaskIx>,
    /// Its calls that are placed here and have not had their turn.
    calls: BTreeMap<Sequence, TaskIx>,
    /// Whether calls may be on their way back from where it lived before: later ones of the same caller wait
    /// for those.
    has_strays: bool,
}

impl Actors {
    /// Whether an actor is known to live.
    pub(super) fn is_alive(&self, id: &ActorId) -> bool {
        self.known.get(id).is_some_and(|actor| actor.node.is_some())
    }
}

impl Scheduler {
    /// Decides where a call goes: to its actor, as soon as that is known to live.
    pub(super) fn place_call(&mut self, ix: TaskIx, actor: ActorId) {
        let node = self.actors.known.get(&actor).and_then(|actor| actor.node);
        let Some(node) = node.and_then(|node| self.cluster.by_id(node)) else {
            return;
        };
        if self.tasks[ix].phase() == Phase::WaitingForActorCreation {
            self.change(ix, TaskState::Placeable(Place::Undecided));
        }
        if self.is_behind_stray(ix, actor, self.cluster[node].id()) {
            return;
        }
        if !self.cluster[node].is_own() {
            return self.hand_over(ix, node);
        }
        let sequence = self.tasks[ix].sequence;
        let actor = self.actors.known.entry(actor).or_default();
        actor.calls.insert(sequence, ix);
        let bound = (!self.serves_one()).then_some(node);
        self.arrive(ix, bound, 0);
    }

    /// Whether an earlier call of the same caller is still where the actor lived before, or waits for such a
    /// one.
    fn is_behind_stray(&mut self, ix: TaskIx, id: ActorId, node: NodeId) -> bool {
        let Some(actor) = self.actors.known.get(&id).filter(|it| it.has_strays) else {
            return false;
        };
        debug_assert_eq!(actor.node, Some(node));
        let (sequence, caller) = (
            self.tasks[ix].sequence,
            (self.tasks[ix].driver, self.tasks[ix].kind),
        );
        let mut strays = 0_usize;
        let mut is_behind = false;
        for other in self.tasks.of_actor(&id) {
            let call = &self.tasks[other];
            let is_stray = self.peer_of(other).is_some_and(|it| it != node);
            let is_call = matches!(call.kind, TaskKind::Call { .. });
            if !is_call || call.owner != Owner::Here {
                continue;
            }
            strays += usize::from(is_stray);
            let is_held = matches!(call.state(), TaskState::Placeable(Place::Undecided));
            is_behind |= (is_stray || is_held && strays > 0)
                && call.sequence < sequence
                && (call.driver, call.kind) == caller;
        }
        if strays == 0
            && let Some(actor) = self.actors.known.get_mut(&id)
        {
            actor.has_strays = false;
        }
        is_behind
    }

    /// The actor that a task of ours calls, if it is a call.
    pub(super) fn own_call_of(&self, ix: TaskIx) -> Option<ActorId> {
        let task = &self.tasks[ix];
        match task.kind {
            TaskKind::Call { actor, .. } if task.owner == Owner::Here => Some(actor),
            _ => None,
        }
    }

    /// A call has come back from where its actor lived before, or has ended there: those behind it go on.
    pub(super) fn stray_is_back(&mut self, id: ActorId) {
        if self.actors.known.get(&id).is_some_and(|it| it.has_strays) {
            self.place_calls(id, |owner| owner == Owner::Here);
        }
    }

    /// Places the calls of an actor that wait for a place, in the order in which they were made.
    fn place_calls(&mut self, id: ActorId, is_meant: impl Fn(Owner) -> bool) {
        let waiting = self.tasks.of_actor(&id).filter(|ix| {
            let task = &self.tasks[*ix];
            let is_call = matches!(task.kind, TaskKind::Call { .. }) && is_meant(task.owner);
            let is_waiting = matches!(
                task.state(),
                TaskState::WaitingForActorCreation | TaskState::Placeable(Place::Undecided)
            );
            is_call && is_waiting
        });
        for ix in waiting.collect::<Vec<_>>() {
            self.place_call(ix, id);
        }
    }

    /// A call that had its turn waits for it again: behind others only if it lacks an argument.
    pub(super) fn call_waits(&mut self, ix: TaskIx) {
        let TaskKind::Call { actor: id, .. } = self.tasks[ix].kind else {
            return;
        };
        let sequence = self.tasks[ix].sequence;
        let Some(actor) = self
            .actors
            .known
            .get_mut(&id)
            .filter(|it| it.current == Some(ix))
        else {
            return;
        };
        actor.current = None;
        actor.calls.insert(sequence, ix);
        self.next_call(id);
    }

    /// A node is known now: calls of actors that live there go there.
    pub(super) fn actors_found(&mut self, node: NodeId) {
        let there = self
            .actors
            .known
            .iter()
            .filter(|(_, actor)| actor.node == Some(node));
        let there: Vec<ActorId> = there.map(|(id, _)| *id).collect();
        for id in there {
            self.actor_created(id, node);
        }
    }

    /// A call has its arguments. It waits for its turn.
    pub(super) fn call_ready(&mut self, _ix: TaskIx, actor: ActorId) {
        self.next_call(actor);
    }

    /// Puts the next call of an actor into line, if it is idle.
    fn next_call(&mut self, id: ActorId) {
        let Some(actor) = self.actors.known.get_mut(&id) else {
            return;
        };
        if actor.current.is_some() || actor.node.is_none() {
            return;
        }
        let mut waiting = BTreeSet::new();
        let next = actor.calls.iter().find(|(_, ix)| {
            let call = &self.tasks[**ix];
            let TaskKind::Call { caller, .. } = call.kind else {
                return false;
            };
            let caller = (call.driver, caller);
            let is_ready = call.phase() == Phase::Ready;
            // Who waits for arguments holds up the later calls of the same caller, no others.
            is_ready && !waiting.contains(&caller) || {
                waiting.insert(caller);
                false
            }
        });
        let Some((sequence, ix)) = next.map(|(sequence, ix)| (*sequence, *ix)) else {
            return;
        };
        actor.calls.remove(&sequence);
        actor.current = Some(ix);
        self.enqueue(ix, self.tasks[ix].class);
    }

    /// The call before this one, of the same caller, that waits for an argument and so holds it up.
    pub fn held_up_by(&self, call: &TaskId) -> Option<TaskId> {
        let ix = self.tasks.find(call)?;
        let task = &self.tasks[ix];
        let TaskKind::Call { actor, caller } = task.kind else {
            return None;
        };
        let calls = &self.actors.known.get(&actor)?.calls;
        let before = calls.range(..task.sequence).map(|(_, ix)| &self.tasks[*ix]);
        let mut of_caller = before
            .filter(|it| it.driver == task.driver && it.kind == TaskKind::Call { actor, caller });
        let waiting = of_caller.find(|it| it.phase() == Phase::Waiting);
        waiting.map(|it| it.id)
    }

    /// A call leaves its actor: it has ended, or goes back to be placed again.
    pub(super) fn call_ended(&mut self, ix: TaskIx) {
        let TaskKind::Call { actor: id, .. } = self.tasks[ix].kind else {
            return;
        };
        let sequence = self.tasks[ix].sequence;
        let Some(actor) = self.actors.known.get_mut(&id) else {
            return;
        };
        actor.calls.remove(&sequence);
        actor.current = actor.current.filter(|current| *current != ix);
        // One that waited for arguments may have held up others of its caller.
        self.next_call(id);
    }

    /// The CPU that living actors have, of the node or bundle of which `held` is.
    pub(super) fn cpu_of_actors(&self, held: &Held) -> Amount {
        let living = self.actors.known.iter().filter(|(_, it)| it.node.is_some());
        // An actor's creation is submitted before its calls, so it is found at once.
        let is_creation = |ix: &TaskIx| matches!(self.tasks[*ix].kind, TaskKind::Actor(_));
        let creations = living.filter_map(|(id, _)| self.tasks.of_actor(id).find(is_creation));
        let creations = creations.filter_map(|ix| self.tasks[ix].state().held());
        let there = creations.filter(|it| (it.node, it.bundle) == (held.node, held.bundle));
        let parts = there.filter_map(|it| it.allocation.get(&ResourceName::CPU));
        Amount::from_steps(parts.map(|part| part.amount().steps()).sum())
    }

    pub(super) fn actor_created(&mut self, id: ActorId, node: NodeId) {
        // Who waits for a CPU may have lost the last that there was for it.
        self.open_resumes();
        let before = self.actors.known.entry(id).or_default().node.replace(node);
        if before.is_some_and(|before| before != node) {
            // It lives elsewhere now, and its calls go there, but those that run.
            for ix in self.tasks.of_actor(&id).collect::<Vec<_>>() {
                let task = &self.tasks[ix];
                let is_call = matches!(task.kind, TaskKind::Call { .. });
                if is_call && matches!(task.phase(), Phase::Waiting | Phase::Ready) {
                    self.unplace(ix);
                }
            }
        }
        let is_stray = |ix: TaskIx| {
            matches!(self.tasks[ix].kind, TaskKind::Call { .. })
                && self.peer_of(ix).is_some_and(|it| it != node)
        };
        let has_strays = self.tasks.of_actor(&id).any(is_stray);
        let actor = self.actors.known.entry(id).or_default();
        actor.has_strays = has_strays;
        self.place_calls(id, |_| true);
    }

    pub(super) fn actor_died(&mut self, id: ActorId, will_restart: bool) {
        match self.actors.known.get_mut(&id) {
            Some(actor) => actor.node = None,
            None => self.stale += 1,
        }
        for ix in self.tasks.of_actor(&id).collect::<Vec<_>>() {
            let task = &self.tasks[ix];
            if !matches!(task.kind, TaskKind::Actor(_)) {
                continue;
            }
            // It lived here, or it is ours and lived elsewhere.
            let (owner, is_held) = (task.owner, task.phase().holds());
            let has_lived = is_held || self.peer_of(ix).is_some();
            match owner {
                Owner::Here if has_lived && will_restart => self.retry(ix),
                // Only its owner begins another life.
                _ if has_lived && !self.meet_doom(ix) => {
                    self.attempt_failed(ix, FailureKind::Final);
                }
                _ => {}
            }
        }
        self.calls_lost(id, will_restart);
        if !will_restart {
            self.actors.known.remove(&id);
        }
    }

    /// An actor does not live any more: its calls fail, or wait for its next life.
    fn calls_lost(&mut self, id: ActorId, will_restart: bool) {
        for ix in self.tasks.of_actor(&id).collect::<Vec<_>>() {
            let task = &self.tasks[ix];
            match (task.kind, task.phase()) {
                (TaskKind::Actor(_) | TaskKind::Task, _) => {}
                _ if self.peer_of(ix).is_some() => {
                    // It may have ended well before that: whoever has it says so.
                    if let Some(node) = self.peer_of(ix).filter(|_| !will_restart) {
                        self.withdraw(ix, node);
                        let (phase, why) = (Phase::Failed, Some(Reason::ActorDied(id)));
                        self.tasks[ix].doom = Some(Box::new(Doom { phase, why }));
                    }
                }
                // A call that runs has failed: whether it did something, nobody knows.
                (_, phase) if phase.holds() || !will_restart => {
                    self.end(ix, Phase::Failed, Some(Reason::ActorDied(id)));
                }
                (_, Phase::Waiting | Phase::Ready) => {
                    self.unplace(ix);
                }
                _ => {}
            }
        }
    }

    /// The actors of a node that is gone do not live any more. Whether they are created again is
    /// for whoever owns them to say.
    pub(super) fn actors_lost(&mut self, node: NodeId) {
        let lost = self
            .actors
            .known
            .iter()
            .filter(|(_, actor)| actor.node == Some(node));
        let lost: Vec<ActorId> = lost.map(|(id, _)| *id).collect();
        for id in lost {
            if let Some(actor) = self.actors.known.get_mut(&id) {
                actor.node = None;
            }
            // Its creation is where it was created: that is settled with that node, or runs again
            // elsewhere already.
            self.calls_lost(id, true);
        }
    }
}
