//! What tasks, objects and results do across nodes.
//!
//! Owns the way of tasks to other nodes and back ([`Exchange`]), references between nodes (`borrow`) and
//! the bytes of objects that are elsewhere (`remote`). Must not: decide where a task runs; that is the
//! scheduler's, whose messages these are. Must not block, or hold the ledger's lock while anything else is
//! called.
//!
//! Invariants: what is said to a node is said in order, as long as both live. A task's report comes after
//! all that it wrote. An object that another node may name is kept until that node, too, needs it no more, or
//! is dead.

mod actors;
mod arguments;
mod arriving;
pub(crate) mod ask;
mod awaited;
mod borrow;
mod ends;
mod fabric;
mod hedged;
mod holders;
mod homes;
mod inbound;
mod modules;
mod moving;
mod named;
mod outlive;
mod outputs;
mod oversize;
mod place;
pub(crate) mod protocol;
mod reconstruct;
mod remote;
mod replay;
mod session;
#[cfg(test)]
mod simulation;
mod spread;
mod transfer;
mod turns;
mod waits;
mod work;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorName, DriverId, NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::reference::Peers;
use wasmrun_model::scheduler::Message;

pub(crate) use self::fabric::Fabric;
pub(crate) use self::moving::StrandedObject;
pub(crate) use self::outlive::{CopyAt, Whereabouts};
pub(crate) use self::protocol::{Bulk, OneWay, Request, Response};
pub use self::transfer::Moved;
pub(crate) use self::work::{Backlog, Work};

use self::actors::Actors;
use self::ask::{Answer, Asked, Desk};
use self::awaited::Awaited;
use self::borrow::{Borrowed, Lending};
use self::ends::{Ends, Received};
use self::homes::Homes;
use self::modules::Modules;
use self::moving::Moving;
use self::outlive::{LostPeer, Outliving};
use self::outputs::Outputs;
use self::reconstruct::Reconstructions;
use self::remote::{Owned, Remote, Stalls};
use self::replay::Replays;
use self::session::{PeerSessions, Queued};
use self::spread::Spread;
use self::transfer::Transfers;
use crate::guests::claim::{Claim, Sought};
use crate::guests::counters::{Counter, Counters};
use crate::guests::others::Others;
use crate::guests::shared::{Shared, WeakShared};
use crate::ledger::{Ledger, Outbound, Outgoing, Start, Todo};
use crate::records::actor::ActorCell;
use crate::records::call_log::Ran;
use crate::records::job::Argument;
use crate::records::lineage::Lineage;
use crate::records::object::{Reference, Value};
use crate::records::task::TaskCell;

/// How often the scheduler is told the time.
const TICK: Duration = Duration::from_millis(100);

/// How many bytes of a value travel with the message that names it.
const INLINE_BYTES: usize = crate::guests::storing::INLINE_BYTES;

/// Lineage may take this part of the object memory.
const LINEAGE_PART: u64 = 4;

/// What this node exchanges with others.
pub(crate) struct Exchange {
    me: NodeId,
    this: Weak<Exchange>,
    shared: WeakShared,
    fabric: Weak<dyn Fabric>,
    sessions: PeerSessions,
    /// The peers that are there, with what each borrows, and its results here.
    peers: Mutex<Peers<Lending, Value>>,
    borrowed: Borrowed,
    actors: Actors,
    modules: Modules,
    /// Objects on their way here, and how much came and went.
    transfers: Transfers,
    /// Who brings which object of ours from whom.
    spread: Spread,
    /// What tasks of ours at other nodes write, and their reports behind that.
    outputs: Outputs,
    /// Results of ours that other nodes have made, as long as somebody needs them.
    owned: Mutex<Owned>,
    /// Having what is kept here elsewhere.
    moving: Moving,
    /// What is kept here and outlives its owner.
    outliving: Outliving,
    /// Results that are being reconstructed.
    reconstructing: Reconstructions,
    /// Attempts of other nodes' tasks that cannot begin before their modules are here.
    arriving: Mutex<HashSet<Received>>,
    /// Where the ends of other nodes' tasks go that somebody listens to.
    ends: Ends,
    homes: Homes,
    /// Actors that are looked for by their names.
    seeking: Awaited<Sought>,
    /// Objects that are waited for because nodes do not answer.
    stalls: Stalls,
    replays: Replays,
    /// Who answers clients here, those of other nodes too.
    desk: Mutex<Option<Weak<dyn Desk>>>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({})", self.me)
    }
}

impl Exchange {
    /// What a node exchanges with others from now on. `folder` is that of its state.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        fabric: Weak<dyn Fabric>,
        folder: &Path,
    ) -> Arc<Self> {
        let modules = folder.join("modules");
        let exchange = Self::of(shared.home.node, Arc::downgrade(shared), fabric, modules);
        let most = shared.store.usage().capacity_bytes / LINEAGE_PART;
        let this = exchange.this.clone();
        let name_of = move |node: NodeId| match this.upgrade() {
            Some(exchange) => exchange.name_of(node),
            None => node.to_string(),
        };
        shared.ask(|ledger| ledger.join_cluster(Lineage::new(most), Box::new(name_of)));
        // It ends with the node.
        shared.control.spawn(Self::tick(exchange.this.clone()));
        exchange
    }

    fn of(me: NodeId, shared: WeakShared, fabric: Weak<dyn Fabric>, folder: PathBuf) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            me,
            this: this.clone(),
            shared,
            fabric,
            sessions: PeerSessions::default(),
            peers: Mutex::default(),
            borrowed: Borrowed::default(),
            actors: Actors::default(),
            modules: Modules::new(Some(folder)),
            transfers: Transfers::of(me),
            spread: Spread::default(),
            outputs: Outputs::default(),
            owned: Mutex::default(),
            moving: Moving::default(),
            outliving: Outliving::default(),
            reconstructing: Reconstructions::default(),
            arriving: Mutex::default(),
            ends: Ends::default(),
            homes: Homes::default(),
            seeking: Awaited::default(),
            stalls: Stalls::default(),
            replays: Replays::default(),
            desk: Mutex::default(),
        })
    }

    /// Without a node.
    #[cfg(test)]
    fn alone(me: NodeId) -> Arc<Self> {
        Self::of(
            me,
            WeakShared::new(),
            Weak::<crate::cluster::Cluster>::new(),
            PathBuf::new(),
        )
    }

    /// Lets the scheduler see that time passes: some tasks lose patience.
    async fn tick(this: Weak<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match this.upgrade() {
                Some(exchange) => {
                    exchange.tell(|ledger| ledger.tick());
                    exchange.let_orphans_go();
                }
                None => return,
            }
        }
    }

    /// Modules that came here, and whoever wants one.
    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    fn fabric(&self) -> Option<Arc<dyn Fabric>> {
        self.fabric.upgrade()
    }

    /// A node by the name that people know it by, if it is known here.
    fn name_of(&self, node: NodeId) -> String {
        match self.fabric() {
            Some(fabric) => fabric.name_of(node),
            None => node.to_string(),
        }
    }

    fn say(&self, to: NodeId, mut outgoing: Box<Outgoing>) {
        if let Outgoing::Settled(Message::Settled { task, attempt, .. }, _) = &*outgoing {
            let attempt = (to, *task, *attempt);
            outgoing = match self.ends.end(&attempt, outgoing) {
                Ok(()) => return,
                Err(outgoing) => outgoing,
            };
        }
        self.queue(to, Queued::Outgoing(outgoing));
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let desk = self.desk();
        desk.map_or(Answer::NotServed, |desk| desk.answer(asked))
    }

    /// Who answers clients here, if somebody does.
    fn desk(&self) -> Option<Arc<dyn Desk>> {
        self.desk.lock().as_ref()?.upgrade()
    }

    /// From now on clients are answered here.
    pub(crate) fn set_desk(&self, desk: Weak<dyn Desk>) {
        *self.desk.lock() = Some(desk);
    }

    /// Counts something for whoever watches.
    fn count(&self, which: impl FnOnce(&Counters) -> &Counter, more: u64) {
        if let Some(shared) = self.shared.upgrade() {
            which(&shared.counters).add(more);
        }
    }

    /// See [`Shared::tell`]. Nothing where the node is stopping.
    fn tell(&self, event: impl FnOnce(&mut Ledger) -> Todo) {
        if let Some(shared) = self.shared.upgrade() {
            shared.tell(event);
        }
    }

    /// Drops what was there for a lost peer, and ends what waits for it.
    fn let_go_of(&self, lost: LostPeer) {
        let node = lost.node;
        self.outputs.lost(node);
        self.spread.remove_node(node);
        self.lost_holder(node);
        self.lost_owner(node);
        self.lost_actors(node);
        self.seeking.remove_node(node);
        self.replays.awaited.remove_node(node);
        drop(lost);
        self.arriving.lock().retain(|(from, ..)| *from != node);
        self.ends.lost(node);
    }

    /// Another node's copy of an object of ours comes or goes.
    fn holding(&self, node: NodeId, object: ObjectId, is_held: bool) {
        let name = ObjectName {
            id: object,
            owner: self.me,
        };
        let is_known = self.lent_as(&name).is_some();
        if is_held && !is_known {
            self.spread.ended(&object, node);
            // Nobody has been given it.
            return;
        }
        self.borrowed.set_holder(node, object, is_held);
        self.spread.ended(&object, node);
    }
}

#[async_trait::async_trait]
impl Others for Exchange {
    fn hold_back(&self, start: Start) -> Option<Start> {
        self.hold_back_start(start)
    }

    fn tell_others(&self, outbound: Outbound) {
        match outbound {
            Outbound::Say(to, outgoing) => {
                if let Outgoing::Place(_, cell, _) = &*outgoing {
                    let tenant = &cell.work.terms().tenant;
                    tracing::debug!(task = %cell.id, %tenant, node = %to, "a task goes to another node");
                    self.count(|counters| &counters.tasks_sent, 1);
                }
                self.say(to, outgoing);
            }
            Outbound::Born(actor, attempt) => self.has_come(&actor, attempt),
            Outbound::CreationLeft(actor) => self.creation_left(actor),
            Outbound::Stands(actor, standing) => self.has_moved(&actor, &standing),
        }
    }

    fn view_changed(&self) {
        if let Some(fabric) = self.fabric() {
            fabric.view_changed();
        }
    }

    fn kill(&self, actor: ActorName) {
        self.send(actor.owner, OneWay::Kill(actor));
    }

    fn actor_dropped(&self, actor: &Arc<ActorCell>) {
        self.give_actor_back(actor);
    }

    fn driver_gone(&self, driver: DriverId) {
        for node in self.sessions.peers() {
            self.send(node, OneWay::DriverGone(driver));
        }
    }

    fn checkpointed(&self, actor: &Arc<ActorCell>) {
        if actor.is_foreign() && actor.note_checkpoint() {
            self.queue(actor.name().owner, Queued::Checkpoint(actor.clone()));
        }
    }

    fn tell_call(
        &self,
        actor: &Arc<ActorCell>,
        cell: &Arc<TaskCell>,
        values: &[Argument],
        ran: Ran,
        position: u64,
    ) {
        self.tell_owner_of_call(actor, cell, values, ran, position);
    }

    fn is_stalled(&self, object: &ObjectId) -> bool {
        self.stalled_by(object).is_some()
    }

    async fn look_for_circle(&self, from: &[TaskId]) {
        self.look_for_circle_from(from).await;
    }

    async fn seek(
        &self,
        tenant: &TenantName,
        name: &str,
        claim: &Claim,
        is_wanted: bool,
    ) -> Option<Sought> {
        let question = self.ask_owner(tenant, name, claim, is_wanted)?;
        question.answered().await
    }
}

impl Exchange {
    /// Cancels what is to make an object of ours that was given away.
    fn cancel(&self, name: ObjectName) {
        if let (Some(Reference::Task(cell)), Some(shared)) =
            (self.lent_as(&name), self.shared.upgrade())
        {
            shared.cancel_maker(&cell);
        }
    }

    fn unkeep(&self, owner: NodeId, object: ObjectId) {
        let last = self.peers.lock().unkeep(owner, &object);
        if last.is_some() {
            self.outliving.forget(owner, object);
        }
        drop(last);
    }

    fn keep_for(&self, owner: NodeId, object: ObjectId, value: Value) {
        let mut peers = self.peers.lock();
        // One that is kept already is no other, and for who has left nothing is.
        let mut unused = peers.keep(owner, object, value);
        if let Err(value) = unused {
            let before = peers.kept_for(owner, &object).and_then(Value::in_store);
            unused = Err(match before.is_some_and(|it| it.was_dropped()) {
                true => peers.replace_kept(owner, &object, value),
                false => value,
            });
        }
        drop(peers);
        drop(unused);
    }
}
