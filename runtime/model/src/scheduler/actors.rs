//! Actors: which are known to live, and whose call is next.
//!
//! Owns when calls are placed and start, and when an actor leaves that is to (`stops.rs`): between two calls. Must not: know
//! what an actor is; its creation is a task that keeps running, and a call is a task that runs where the actor lives. The
//! order among calls is in `call_order.rs`.
//!
//! Invariant: an actor here has at most one call in line or in an executor at a time, and the calls
//! of one caller (a driver, or a task) start in the order in which they were made.

use std::collections::BTreeMap;

use super::call_order::{Caller, Mailbox, Strays};
use super::explain::Reason;
use super::record::{Doom, Owner, Sequence, TaskIx};
use super::{Effect, Scheduler};
use crate::id::{ActorId, NodeId, TaskId};
use crate::resource::{Amount, ResourceName};
use crate::task::{Assignment, Attempt, FailureKind, Phase, Place, TaskKind, TaskState};

/// What is known of actors.
#[derive(Debug, Default)]
pub(crate) struct Actors {
    known: BTreeMap<ActorId, Actor>,
    /// Those that are to leave, and whose last call has ended.
    leavers: Vec<ActorId>,
}

#[derive(Debug, Default)]
struct Actor {
    /// Where it lives, if it does.
    node: Option<NodeId>,
    /// The call that is in line or in an executor.
    current: Option<TaskIx>,
    /// Its calls that are placed here and have not had their turn.
    mailbox: Mailbox,
    /// Its calls that are still where it lived before, and those that wait for them.
    strays: Strays,
    /// Whether it is to leave, so that another tenant gets what it holds.
    leave: Leave,
}

/// Whether this generation of an actor is to leave its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Leave {
    #[default]
    No,
    /// As soon as the call has ended that is in line or in an executor. No other gets its turn before.
    AfterCall,
    /// Its node was told.
    Told,
    /// Its node has said that it cannot.
    Refused,
}

impl Actor {
    /// Whether a call may have its turn.
    fn is_idle(&self) -> bool {
        let is_leaving = matches!(self.leave, Leave::AfterCall | Leave::Told);
        self.current.is_none() && self.node.is_some() && !is_leaving
    }
}

/// A call in the order of its caller's calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    actor: ActorId,
    caller: Caller,
    sequence: Sequence,
}

impl Actors {
    /// Whether an actor is known to live.
    pub(super) fn is_alive(&self, id: &ActorId) -> bool {
        self.known.get(id).is_some_and(|actor| actor.node.is_some())
    }

    /// Whether an actor lives, and may be told to leave.
    pub(super) fn may_leave(&self, id: &ActorId) -> bool {
        let actor = self.known.get(id);
        actor.is_some_and(|it| it.node.is_some() && it.leave == Leave::No)
    }

    /// Whether an actor is about to leave, so that its calls wait.
    pub(super) fn is_leaving(&self, id: &ActorId) -> bool {
        let actor = self.known.get(id);
        actor.is_some_and(|it| matches!(it.leave, Leave::AfterCall | Leave::Told))
    }

    /// An actor is to leave, and no other call of it begins. Whether none is under way, so that its node can be told at once.
    pub(super) fn leave(&mut self, id: &ActorId) -> bool {
        let Some(actor) = self.known.get_mut(id) else {
            return false;
        };
        let is_free = actor.current.is_none();
        actor.leave = match is_free {
            true => Leave::Told,
            false => Leave::AfterCall,
        };
        is_free
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
        let call = self.call(ix).expect("a call");
        let is_own = self.tasks[ix].owner == Owner::Here;
        let strays = &mut self.actors.known.entry(actor).or_default().strays;
        if is_own && strays.hold(call.caller, call.sequence, ix) {
            return;
        }
        let freed = strays.leave(call.caller, call.sequence);
        if self.cluster[node].is_own() {
            let bound = (!self.serves_one()).then_some(node);
            self.arrive(ix, bound, 0);
        } else {
            self.hand_over(ix, node);
        }
        self.place_freed(actor, freed);
    }

    /// What is known of a task as a call, if it is one.
    pub(super) fn call(&self, ix: TaskIx) -> Option<Call> {
        let task = &self.tasks[ix];
        let TaskKind::Call { actor, caller } = task.kind else {
            return None;
        };
        Some(Call {
            actor,
            caller: (task.driver, caller),
            sequence: task.sequence,
        })
    }

    /// Whether a task of an actor that lives on this node is with another one, where the actor lived before.
    fn is_stray(&self, ix: TaskIx, node: NodeId) -> bool {
        self.tasks[ix].peer().is_some_and(|it| it != node)
    }

    /// A call has ended, perhaps where its actor lived before: those that waited for it go on.
    pub(super) fn stray_ended(&mut self, call: Call) {
        if let Some(actor) = self.actors.known.get_mut(&call.actor) {
            let freed = actor.strays.leave(call.caller, call.sequence);
            self.place_freed(call.actor, freed);
        }
    }

    /// Places calls that wait for no earlier one any more, in the order in which they were made.
    fn place_freed(&mut self, actor: ActorId, freed: Vec<TaskIx>) {
        for ix in freed {
            self.place_call(ix, actor);
        }
    }

    /// Places the calls of an actor that wait for a place, in the order in which they were made.
    fn place_calls(&mut self, id: ActorId) {
        let waiting = self.tasks.of_actor(&id).filter(|ix| {
            let task = &self.tasks[*ix];
            let is_call = matches!(task.kind, TaskKind::Call { .. });
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

    /// A call waits for its turn, perhaps again: behind others of its caller if it lacks an argument.
    pub(super) fn call_waits(&mut self, ix: TaskIx) {
        let Some(call) = self.call(ix) else {
            return;
        };
        let lacks_argument = self.tasks[ix].phase() == Phase::Waiting;
        let Some(actor) = self.actors.known.get_mut(&call.actor) else {
            return;
        };
        if actor.is_idle() && actor.mailbox.is_empty() && !lacks_argument {
            actor.current = Some(ix);
            return self.enqueue(ix, self.tasks[ix].class);
        }
        actor.current = actor.current.filter(|current| *current != ix);
        let mailbox = &mut actor.mailbox;
        mailbox.put(call.caller, call.sequence, ix, lacks_argument);
        self.next_call(call.actor);
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

    /// Puts the next call of an actor into line, if it is idle.
    fn next_call(&mut self, id: ActorId) {
        let Some(actor) = self.actors.known.get_mut(&id) else {
            return;
        };
        if actor.leave == Leave::AfterCall && actor.current.is_none() {
            // See `tell_leavers`: what else follows from the same event comes first.
            self.actors.leavers.push(id);
            return;
        }
        if !actor.is_idle() {
            return;
        }
        if let Some(ix) = actor.mailbox.pop() {
            actor.current = Some(ix);
            self.enqueue(ix, self.tasks[ix].class);
        }
    }

    /// The last call before this one, of the same caller, that waits for an argument and so holds it up. That one is held
    /// up by those before it in the same way.
    pub fn held_up_by(&self, call: &TaskId) -> Option<TaskId> {
        let call = self.call(self.tasks.find(call)?)?;
        let mailbox = &self.actors.known.get(&call.actor)?.mailbox;
        let ix = mailbox.last_lacking(call.caller, call.sequence)?;
        Some(self.tasks[ix].id)
    }

    /// A call leaves its actor: it has ended, or goes back to be placed again.
    pub(super) fn call_ended(&mut self, ix: TaskIx) {
        let Some(call) = self.call(ix) else {
            return;
        };
        let Some(actor) = self.actors.known.get_mut(&call.actor) else {
            return;
        };
        actor.mailbox.remove(call.caller, call.sequence);
        actor.current = actor.current.filter(|current| *current != ix);
        // One that waited for arguments may have held up others of its caller.
        self.next_call(call.actor);
    }

    /// The CPU that living actors have, of the node or bundle of which `held` is.
    pub(super) fn cpu_of_actors(&self, assignment: &Assignment) -> Amount {
        let living = self.actors.known.iter().filter(|(_, it)| it.node.is_some());
        let creations = living.filter_map(|(id, _)| self.creation_of(id));
        let creations = creations.filter_map(|ix| self.tasks[ix].state().assignment());
        let there =
            creations.filter(|it| (it.node, it.bundle) == (assignment.node, assignment.bundle));
        let parts = there.filter_map(|it| it.allocation.get(&ResourceName::CPU));
        Amount::from_steps(parts.map(|part| part.amount().steps()).sum())
    }

    /// The task that creates an actor, where this scheduler has it.
    fn creation_of(&self, id: &ActorId) -> Option<TaskIx> {
        // It is submitted before the calls, so it is found at once.
        let is_creation = |ix: &TaskIx| matches!(self.tasks[*ix].kind, TaskKind::Actor(_));
        self.tasks.of_actor(id).find(is_creation)
    }

    /// Tells nodes of actors that are to leave: the last call of each has ended. One that nobody wants to leave any more has
    /// its next call.
    pub(super) fn tell_leavers(&mut self) {
        while let Some(id) = self.actors.leavers.pop() {
            let creation = self.creation_of(&id);
            let is_wanted = creation.is_some_and(|ix| self.is_wanted_to_stop(ix));
            let Some(actor) = self.actors.known.get_mut(&id) else {
                continue;
            };
            if actor.leave != Leave::AfterCall || actor.current.is_some() {
                continue;
            }
            if let Some(ix) = creation.filter(|_| is_wanted) {
                actor.leave = Leave::Told;
                let (task, attempt) = (self.tasks[ix].id, self.tasks[ix].attempt);
                self.effects.push_back(Effect::Preempt { task, attempt });
                continue;
            }
            actor.leave = Leave::No;
            if let Some(ix) = creation {
                self.stops.spare(ix);
            }
            self.next_call(id);
        }
    }

    /// An actor has left its node for another tenant: its next generation gets in line, and its calls wait for that.
    pub(super) fn actor_left(&mut self, id: ActorId, creation: TaskIx) {
        if let Some(actor) = self.actors.known.get_mut(&id) {
            actor.node = None;
        }
        self.retry(creation);
        self.calls_lost(id, true);
    }

    /// The node of an actor that was told to leave says that it cannot.
    pub(super) fn stays(&mut self, task: &TaskId, attempt: Attempt) {
        let Some(ix) = self.executing(task, attempt) else {
            return;
        };
        let TaskKind::Actor(id) = self.tasks[ix].kind else {
            self.stale += 1;
            return;
        };
        self.stops.spare(ix);
        if let Some(actor) = self.actors.known.get_mut(&id)
            && actor.leave == Leave::Told
        {
            actor.leave = Leave::Refused;
        }
        self.next_call(id);
    }

    pub(super) fn actor_created(&mut self, id: ActorId, node: NodeId) {
        // Who waits for a CPU may have lost the last that there was for it.
        self.open_resumes();
        let actor = self.actors.known.entry(id).or_default();
        let before = actor.node.replace(node);
        if before != Some(node) {
            actor.leave = Leave::No;
        }
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
        let strays = self.tasks.of_actor(&id);
        let strays = strays.filter(|ix| self.is_stray(*ix, node));
        let strays = strays.filter_map(|ix| self.call(ix));
        let strays = strays.map(|it| (it.caller, it.sequence)).collect();
        self.actors.known.entry(id).or_default().strays = strays;
        self.place_calls(id);
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
            let has_lived = is_held || self.tasks[ix].peer().is_some();
            match owner {
                Owner::Here if has_lived && will_restart => self.retry(ix),
                // Only its owner begins another generation.
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

    /// An actor does not live any more: its calls fail, or wait for its next generation.
    fn calls_lost(&mut self, id: ActorId, will_restart: bool) {
        for ix in self.tasks.of_actor(&id).collect::<Vec<_>>() {
            let task = &self.tasks[ix];
            match (task.kind, task.phase()) {
                (TaskKind::Actor(_) | TaskKind::Task, _) => {}
                _ if self.tasks[ix].peer().is_some() => {
                    // It may have ended well before that: whoever has it says so.
                    if let Some(node) = self.tasks[ix].peer().filter(|_| !will_restart) {
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

    /// Checks that mailboxes and strays are what the states of the calls say, and that who is to leave after a call has one.
    ///
    /// # Panics
    /// If they are not.
    pub(super) fn check_calls_of_actors(&self) {
        for (id, actor) in &self.actors.known {
            let has_call = actor.current.is_some();
            let leaves_after = actor.leave == Leave::AfterCall;
            assert!(has_call || !leaves_after, "{id} waits for no call");
            let mut calls: Vec<(Call, TaskIx)> = self
                .tasks
                .of_actor(id)
                .filter_map(|ix| Some((self.call(ix)?, ix)))
                .collect();
            calls.sort_by_key(|(call, _)| call.sequence);
            let mut mailbox = Mailbox::default();
            for (call, ix) in calls.iter().filter(|(_, ix)| actor.current != Some(*ix)) {
                let phase = self.tasks[*ix].phase();
                if let Phase::Waiting | Phase::Ready = phase {
                    let lacks_argument = phase == Phase::Waiting;
                    mailbox.put(call.caller, call.sequence, *ix, lacks_argument);
                }
            }
            assert_eq!(actor.mailbox, mailbox, "the mailbox of {id}");
            let Some(node) = actor.node.filter(|it| self.cluster.by_id(*it).is_some()) else {
                continue;
            };
            let strays = calls.iter().filter(|(_, ix)| self.is_stray(*ix, node));
            let mut strays: Strays = strays.map(|(it, _)| (it.caller, it.sequence)).collect();
            for (call, ix) in &calls {
                if let Phase::WaitingForActorCreation = self.tasks[*ix].phase() {
                    panic!("call {} waits for what is there", self.tasks[*ix].id);
                }
                if let TaskState::Placeable(Place::Undecided) = self.tasks[*ix].state() {
                    let is_held = strays.hold(call.caller, call.sequence, *ix);
                    assert!(is_held, "call {} waits for nothing", self.tasks[*ix].id);
                }
            }
            assert_eq!(actor.strays, strays, "the strays of {id}");
        }
    }
}
