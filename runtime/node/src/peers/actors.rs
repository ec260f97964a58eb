//! Actors that are owned, hosted and called on different nodes.
//!
//! Owns who must hear where an actor is, and the way of its state to its owner. An owner tells everybody who
//! has asked, and everybody who has hosted the actor, in the order in which things happen; callers send
//! their calls to the host itself. Must not: decide where an actor lives, or whether it lives again.
//!
//! Invariants: an actor of another node is one [`ActorCell`] here. A node that has a reference to one has asked
//! its owner about it. What a host says about a generation counts only for the attempt that its owner has given it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use bytes::Bytes as Piece;
use parking_lot::Mutex;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{ActorId, ActorName, NodeId, ObjectName, TaskId};
use wasmrun_model::reference::{Lenders, Taken};
use wasmrun_model::task::Attempt;
use wasmrun_model::wire::{Bytes, WireError};
use wasmrun_net::{BulkRefusal, BulkSender, Range};

use super::protocol::{Bulk, NamedActor, OneWay, Stands, State, StateOf, Where};
use super::{Exchange, borrow};
use crate::ledger::{MOST_INLINE, Start};
use crate::records::actor::{ActorCell, Checkpoint, Standing, object_of};
use crate::records::actor_ref::{ActorRef, WeakActorRef};
use crate::records::class::Face;
use crate::records::object::Reference;

/// How many actors of other nodes are known before those that nobody needs are looked for.
const SWEEP: usize = 64;

/// What is known of actors, besides what the ledger knows.
#[derive(Default)]
pub(super) struct Actors {
    /// Those of other nodes that are named, called or hosted here.
    foreign: Mutex<BTreeMap<ActorName, ForeignActor>>,
    /// Who is to hear of ours.
    watchers: Mutex<BTreeMap<ActorId, BTreeSet<NodeId>>>,
    /// What is not begun while nobody confirms that this node lives.
    held_back: Mutex<HeldBack>,
}

/// An actor of another node.
#[derive(Default)]
struct ForeignActor {
    cell: Weak<ActorCell>,
    references: WeakActorRef,
    /// Who has given it to us, and how often.
    lenders: Lenders,
}

/// Calls that would begin if it were known that their actors live nowhere else.
#[derive(Default)]
struct HeldBack {
    /// Whether nobody confirms that this node lives.
    is_paused: bool,
    /// Whether it is not known which of this node's own actors others have live on by now.
    are_own_paused: bool,
    /// How often nobody confirmed it.
    pauses: u64,
    starts: Vec<Start>,
}

impl HeldBack {
    fn holds(&self, start: &Start) -> bool {
        start
            .movable_actor()
            .is_some_and(|actor| match actor.is_foreign() {
                true => self.is_paused,
                false => self.are_own_paused,
            })
    }

    /// What is held back no more.
    fn release(&mut self) -> Vec<Start> {
        let starts = std::mem::take(&mut self.starts);
        let (held, free) = starts.into_iter().partition(|start| self.holds(start));
        self.starts = held;
        free
    }
}

/// That this node is known to live, from a time on: see [`Exchange::confirmation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confirmation(u64);

impl ForeignActor {
    /// Whether anything here needs it.
    fn is_needed(&self) -> bool {
        self.cell.strong_count() > 0 || self.references.is_held()
    }
}

impl Actors {
    fn cell(&self, name: &ActorName) -> Option<Arc<ActorCell>> {
        self.foreign.lock().get(name)?.cell.upgrade()
    }
}

impl Exchange {
    /// What another node needs to know of an actor that it is given.
    pub(super) fn named(&self, actor: &ActorCell) -> NamedActor {
        NamedActor {
            name: actor.name(),
            face: actor.face.clone(),
            at: match actor.standing() {
                Standing::At(node) => Some(node),
                Standing::Away | Standing::Dead(_) => None,
            },
        }
    }

    /// Takes an actor that a node has named, which has kept it for us.
    ///
    /// # Errors
    /// When it is ours and nobody has it any more.
    pub(super) fn borrow_actor(
        &self,
        from: NodeId,
        actor: NamedActor,
    ) -> Result<Reference, TaskError> {
        let NamedActor { name, face, at } = actor;
        if name.owner == self.me {
            // It has come home: nobody need keep it for us.
            let object = object_of(name);
            let known = self.lent_as(&object);
            self.send(from, OneWay::Release(object, 1));
            let died = TaskError::ActorDied {
                actor: name.id,
                cause: None,
            };
            return known.ok_or(died);
        }
        let (cell, is_new) = self.foreign_cell(name, face);
        let mut foreign = self.actors.foreign.lock();
        let known = foreign.entry(name).or_default();
        let taken = known.lenders.take(from, name.owner);
        let reference = known.references.upgrade().unwrap_or_else(|| {
            let reference = ActorRef::new(cell.clone(), self.shared.clone());
            known.references = reference.downgrade();
            reference
        });
        drop(foreign);
        let object = object_of(name);
        match taken {
            Taken::Kept => {}
            Taken::GiveBack => self.release(from, object),
            Taken::Ask => {
                self.send(name.owner, OneWay::Lend(object));
                self.release(from, object);
            }
        }
        if is_new {
            self.ask_about(name);
        }
        if let Some(node) = at.filter(|_| is_new) {
            // It may be elsewhere by now: then its owner says so.
            self.tell(|ledger| ledger.stands(name.id, Some(&cell), Standing::At(node)));
        }
        Ok(Reference::Actor(reference))
    }

    /// What its owner keeps for us may be an actor that is named here. False if it is none.
    pub(super) fn lent_actor(&self, from: NodeId, object: ObjectName) -> bool {
        let name = ActorName {
            id: object.id.task().actor(),
            owner: object.owner,
        };
        let mut foreign = self.actors.foreign.lock();
        let known = foreign.get_mut(&name);
        let known = known.filter(|it| object_of(name) == object && it.references.is_held());
        let taken = known.map(|known| known.lenders.take(from, name.owner));
        drop(foreign);
        if matches!(taken, Some(Taken::GiveBack | Taken::Ask)) {
            self.release(from, object);
        }
        taken.is_some()
    }

    /// The cell of another node's actor, and whether it is new here.
    pub(super) fn foreign_cell(&self, name: ActorName, face: Arc<Face>) -> (Arc<ActorCell>, bool) {
        let mut foreign = self.actors.foreign.lock();
        if let Some(cell) = foreign.get(&name).and_then(|known| known.cell.upgrade()) {
            return (cell, false);
        }
        if foreign.len() >= SWEEP && foreign.len().is_power_of_two() {
            foreign.retain(|_, known| known.is_needed());
        }
        let cell = Arc::new(ActorCell::foreign(name, face));
        let known = foreign.entry(name).or_default();
        known.cell = Arc::downgrade(&cell);
        (cell, true)
    }

    /// The creation of another node's actor has left this node. Holders of a handle here may wait for the actor to start.
    pub(super) fn creation_left(&self, name: ActorName) {
        let foreign = self.actors.foreign.lock();
        let is_named = foreign.get(&name).is_some_and(|it| it.references.is_held());
        drop(foreign);
        if is_named {
            self.ask_about(name);
        }
    }

    /// Asks the owner of an actor where it stands, now and whenever that changes.
    fn ask_about(&self, name: ActorName) {
        if self.send(name.owner, OneWay::WantActor(name)) {
            return;
        }
        let (this, Some(shared)) = (self.this.clone(), self.shared.upgrade()) else {
            return;
        };
        shared.control.spawn(async move {
            tokio::time::sleep(borrow::UNKNOWN).await;
            if let Some(exchange) = this.upgrade()
                && !exchange.sessions.has(&name.owner)
            {
                exchange.has_died(name, None);
            }
        });
    }

    /// A node has come: it is asked about those of its actors that are known here.
    pub(super) fn ask_about_again(&self, node: NodeId) {
        let foreign = self.actors.foreign.lock();
        let of_it = foreign
            .iter()
            .filter(|(name, known)| name.owner == node && known.references.is_held());
        let of_it: Vec<ActorName> = of_it.map(|(name, _)| *name).collect();
        drop(foreign);
        for name in of_it {
            self.send(node, OneWay::WantActor(name));
        }
    }

    /// A node wants to hear of an actor of ours.
    pub(super) fn watches(&self, by: NodeId, name: ActorName) {
        let mut watchers = self.actors.watchers.lock();
        let standing = match self.lent_as(&object_of(name)) {
            Some(Reference::Actor(actor)) if actor.id == name.id => actor.standing(),
            _ => Standing::Dead(None),
        };
        if !matches!(standing, Standing::Dead(_)) {
            watchers.entry(name.id).or_default().insert(by);
        }
        // Under the lock: what is said later is later.
        self.say_standing(by, name, standing);
    }

    fn say_standing(&self, to: NodeId, actor: ActorName, standing: Standing) {
        let place = match standing {
            Standing::At(node) => Where::At(node),
            Standing::Away => Where::Away,
            Standing::Dead(why) => Where::Dead(why.as_ref().map(WireError::from)),
        };
        let stands = Stands { actor, place };
        self.send(to, OneWay::Stands(Box::new(stands)));
    }

    /// Another node's actor lives here.
    pub(super) fn has_come(&self, actor: &ActorCell, attempt: Attempt) {
        let message = OneWay::Born(actor.id, attempt);
        self.send(actor.name().owner, message);
    }

    /// An actor of ours has come to live or to die, here or elsewhere.
    pub(super) fn has_moved(&self, actor: &ActorCell, standing: &Standing) {
        // With the lock: what is said later is later.
        let mut watchers = self.actors.watchers.lock();
        if let Standing::At(node) = standing
            && *node != self.me
        {
            // It has calls of others there, which have to go on from there when it has died.
            watchers.entry(actor.id).or_default().insert(*node);
        }
        for node in watchers.get(&actor.id).into_iter().flatten() {
            self.say_standing(*node, actor.name(), standing.clone());
        }
        if matches!(standing, Standing::Dead(_)) {
            watchers.remove(&actor.id);
        }
    }

    /// The owner of an actor says where it stands.
    pub(super) fn stands(&self, from: NodeId, stands: Stands) {
        let Stands { actor, place } = stands;
        if actor.owner != from {
            return tracing::warn!(node = %from, "a node speaks for another one's actor");
        }
        let standing = match place {
            Where::At(node) => Standing::At(node),
            Where::Away => Standing::Away,
            Where::Dead(why) => return self.has_died(actor, why.map(TaskError::from)),
        };
        let cell = self.actors.cell(&actor);
        self.tell(|ledger| ledger.stands(actor.id, cell.as_deref(), standing));
    }

    fn has_died(&self, actor: ActorName, why: Option<TaskError>) {
        let cell = self.actors.cell(&actor);
        self.tell(|ledger| ledger.stands(actor.id, cell.as_deref(), Standing::Dead(why)));
    }

    /// An actor of ours is to end: somebody at another node says so, who has a handle, or found it hosted there.
    pub(super) fn kill_for(&self, by: NodeId, name: ActorName) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let actor = shared.ask(|ledger| ledger.own_actor(&name.id.task()));
        match actor {
            Some(actor) => shared.kill(&actor),
            None => tracing::debug!(node = %by, actor = %name.id, "it is gone already"),
        }
    }

    /// The last reference to another node's actor is gone. Whoever dropped it may hold the ledger's lock.
    pub(super) fn give_actor_back(&self, cell: &Arc<ActorCell>) {
        let name = cell.name();
        let mut foreign = self.actors.foreign.lock();
        let Some(known) = foreign.get_mut(&name) else {
            return;
        };
        if known.references.is_held() {
            // Somebody has named it again.
            return;
        }
        for (lender, count) in known.lenders.give_back() {
            let message = OneWay::Release(object_of(name), count);
            self.send(lender, message);
        }
        drop(foreign);
        let (this, Some(shared)) = (self.this.clone(), self.shared.upgrade()) else {
            return;
        };
        shared.control.spawn(async move {
            if let Some(exchange) = this.upgrade() {
                exchange.forget(name);
            }
        });
    }

    /// Forgets another node's actor that nobody here names, calls or hosts.
    fn forget(&self, name: ActorName) {
        let mut foreign = self.actors.foreign.lock();
        if foreign.get(&name).is_none_or(ForeignActor::is_needed) {
            return;
        }
        foreign.remove(&name);
        drop(foreign);
        self.tell(|ledger| ledger.stands(name.id, None, Standing::Dead(None)));
    }

    /// A node is gone: the actors that it owned are, and it need not hear of others.
    pub(super) fn lost_actors(&self, node: NodeId) {
        self.actors.watchers.lock().retain(|_, watchers| {
            watchers.remove(&node);
            !watchers.is_empty()
        });
        let mut foreign = self.actors.foreign.lock();
        for known in foreign.values_mut() {
            known.lenders.remove_node(node);
        }
        let of_it = foreign.keys().filter(|name| name.owner == node);
        let of_it: Vec<ActorName> = of_it.copied().collect();
        drop(foreign);
        let owner = self.name_of(node);
        for name in of_it {
            let why = format!("node {owner}, which owned it, is lost");
            self.has_died(name, Some(TaskError::Sandbox(why)));
        }
    }

    /// The cell of an actor that is to be called here.
    pub(super) fn called(&self, name: &ActorName) -> Option<Arc<ActorCell>> {
        match name.owner == self.me {
            true => {
                let shared = self.shared.upgrade()?;
                shared.ask(|ledger| ledger.own_actor(&name.id.task()))
            }
            false => self.actors.cell(name),
        }
    }
}

/// States of actors on their way.
impl Exchange {
    /// The latest state of an actor, for its owner.
    pub(super) fn state_order(&self, actor: &ActorCell) -> Option<OneWay> {
        // From here on another one is another message.
        let checkpoint = actor.checkpoint_to_send()?;
        Some(OneWay::State(Box::new(StateOf {
            actor: actor.id,
            attempt: actor.attempt(),
            state: state(&checkpoint),
        })))
    }

    /// A host tells the state of an actor of ours.
    pub(super) fn has_state(&self, from: NodeId, of: StateOf) {
        let StateOf {
            actor,
            attempt,
            state,
        } = of;
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let is_hosted = move |shared: &crate::guests::shared::Shared| {
            shared.ask(|ledger| {
                let is_there = ledger.scheduler().is_at(&actor.task(), attempt, from);
                ledger.own_actor(&actor.task()).filter(|_| is_there)
            })
        };
        let Some(cell) = is_hosted(&shared) else {
            return;
        };
        if let Some(bytes) = state.inline {
            return cell.set_checkpoint(Checkpoint {
                number: state.number,
                state: bytes.0.into(),
            });
        }
        let this = self.this.clone();
        // It ends with the transfer.
        shared.control.spawn(async move {
            let Some(exchange) = this.upgrade() else {
                return;
            };
            let most = cell.job().limits.memory;
            let pulled = exchange.pull_state(from, actor, &state, most).await;
            let shared = exchange.shared.upgrade();
            // It may have been lost meanwhile, and live elsewhere with the state of before.
            if let (Some(checkpoint), Some(shared)) = (pulled, shared)
                && let Some(cell) = is_hosted(&shared)
            {
                cell.set_checkpoint(checkpoint);
            }
        });
    }

    /// What a message says of a state, as a state.
    pub(super) async fn pull_state(
        &self,
        from: NodeId,
        actor: ActorId,
        state: &State,
        most_bytes: u64,
    ) -> Option<Checkpoint> {
        let number = state.number;
        if let Some(bytes) = &state.inline {
            return Some(Checkpoint {
                number,
                state: bytes.0.as_slice().into(),
            });
        }
        if state.len > most_bytes {
            tracing::warn!(node = %from, %actor, bytes = state.len, "a state is larger than its actor");
            return None;
        }
        let fabric = self.fabric()?;
        let request = Bulk::State(actor, number);
        match fabric.pull_whole(from, request, state.len).await? {
            Ok(bytes) => Some(Checkpoint {
                number,
                state: bytes.into(),
            }),
            Err(error) => {
                // A later one may be on its way already.
                tracing::info!(node = %from, %actor, %error, "the state of an actor did not arrive");
                None
            }
        }
    }

    /// Sends a range of an actor's state, as long as that is its state.
    pub(super) async fn serve_state(
        &self,
        actor: ActorId,
        number: u64,
        range: Range,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        let cell = {
            let shared = self.shared.upgrade().ok_or(BulkRefusal::NotHere)?;
            shared.ask(|ledger| ledger.actor(&actor.task()))
        };
        let checkpoint = cell.and_then(|cell| cell.checkpoint());
        let checkpoint = checkpoint.filter(|it| it.number == number);
        let state = checkpoint.ok_or(BulkRefusal::NotHere)?.state;
        let end = range.offset.saturating_add(range.len);
        if end > state.len() as u64 {
            return Err(BulkRefusal::Malformed);
        }
        let part = Piece::from_owner(state).slice(range.offset as usize..end as usize);
        to.write(part).await.map_err(|_| BulkRefusal::Failed)
    }
}

/// What a message says of a state.
pub(super) fn state(checkpoint: &Checkpoint) -> State {
    let Checkpoint { number, state } = checkpoint;
    State {
        number: *number,
        len: state.len() as u64,
        inline: (state.len() <= MOST_INLINE).then(|| Bytes(state.to_vec())),
    }
}

/// What waits while nobody confirms that this node lives. Owners of actors that are here may take it for dead, and have
/// them live elsewhere; so may whoever takes over its own actors of which there are records. Until that is settled, they
/// do nothing here.
impl Exchange {
    /// Gives back what may begin now.
    pub(super) fn hold_back_start(&self, start: Start) -> Option<Start> {
        if start.movable_actor().is_none() {
            return Some(start);
        }
        let mut held_back = self.actors.held_back.lock();
        match held_back.holds(&start) {
            true => {
                held_back.starts.push(start);
                None
            }
            false => Some(start),
        }
    }

    /// Whether a call would have begun if this node could confirm that it lives.
    pub(crate) fn is_held_back(&self, task: &TaskId) -> bool {
        let held_back = self.actors.held_back.lock();
        held_back.starts.iter().any(|start| start.cell.id == *task)
    }

    pub(super) fn pause_actors(&self, is_paused: bool) {
        let mut held_back = self.actors.held_back.lock();
        held_back.is_paused = is_paused;
        // They go on when the records have been read that say whose they are: see `own_actors_are_known`.
        held_back.are_own_paused |= is_paused;
        held_back.pauses += u64::from(is_paused);
        let starts = held_back.release();
        drop(held_back);
        self.let_go(starts);
    }

    /// Whether this node is known to live now: records that are read from here on say whose its actors are.
    pub(crate) fn confirmation(&self) -> Option<Confirmation> {
        let held_back = self.actors.held_back.lock();
        (!held_back.is_paused).then_some(Confirmation(held_back.pauses))
    }

    /// The records have been read since then, and actors that are others' by now were given up.
    pub(crate) fn own_actors_are_known(&self, since: Confirmation) {
        let mut held_back = self.actors.held_back.lock();
        if held_back.is_paused || Confirmation(held_back.pauses) != since {
            return;
        }
        held_back.are_own_paused = false;
        let starts = held_back.release();
        drop(held_back);
        self.let_go(starts);
    }

    fn let_go(&self, starts: Vec<Start>) {
        if let Some(shared) = self.shared.upgrade() {
            let todo = crate::ledger::Todo {
                start: starts,
                ..Default::default()
            };
            shared.carry_out(todo);
        }
    }
}
