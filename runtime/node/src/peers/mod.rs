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
mod arriving;
pub(crate) mod ask;
mod awaited;
mod borrow;
mod ends;
mod fabric;
mod hedged;
mod holders;
mod homes;
mod modules;
mod moving;
mod named;
mod outlive;
mod outputs;
mod oversize;
mod place;
pub(crate) mod protocol;
mod recipe;
mod remote;
mod replay;
mod session;
#[cfg(test)]
mod simulation;
mod spread;
mod staging;
mod transfer;
mod waits;
mod work;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use wasmrun_model::fairness::{TenantConfig, TenantName};
use wasmrun_model::id::{ActorName, DriverId, Incarnation, NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::reference::{KeptFor, Lives};
use wasmrun_model::scheduler::{Message, NodeInfo, Outcome, PeerView, Settings};
use wasmrun_model::task::Attempt;
use wasmrun_net::{BulkRefusal, BulkSender, Range};

pub(crate) use self::fabric::Fabric;
pub(crate) use self::moving::Left;
pub(crate) use self::outlive::{CopyAt, Whereabouts};
pub(crate) use self::protocol::{Bulk, OneWay, Request, Response};
pub use self::transfer::Moved;
pub(crate) use self::work::{Backlog, Work};

use self::actors::Actors;
use self::ask::{Answer, Asked, Desk};
use self::awaited::Awaited;
use self::borrow::Borrowed;
use self::ends::{Ends, Received};
use self::homes::Homes;
use self::modules::Modules;
use self::moving::Moving;
use self::outlive::Outliving;
use self::outputs::Outputs;
use self::recipe::Remaking;
use self::remote::{Owned, Remote, Stalls};
use self::replay::Replays;
use self::session::{PeerSessions, Queued};
use self::spread::Spread;
use self::transfer::Transfers;
use crate::guests::claim::{Claim, Sought};
use crate::guests::counters::{Counter, Counters};
use crate::guests::others::Others;
use crate::guests::shared::{Shared, WeakShared};
use crate::ledger::{GroupNews, Ledger, Outbound, Outgoing, Start, Todo};
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

/// What is kept to make results again may take this part of what objects may.
const LINEAGE_PART: u64 = 4;

/// An attempt of a task of ours, at a node.
type Sent = (NodeId, TaskId, Attempt);

/// What this node exchanges with others.
pub(crate) struct Exchange {
    me: NodeId,
    this: Weak<Exchange>,
    shared: WeakShared,
    fabric: Weak<dyn Fabric>,
    sessions: PeerSessions,
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
    /// Results that are kept for who owns them, and how often.
    kept: Mutex<KeptFor<Value>>,
    /// Who is there, to tell those who keep something for us from their next lives.
    lives: Mutex<Lives>,
    /// Results that are being made again.
    remaking: Remaking,
    /// Arguments that were put into the store to be sent, until their attempt is over.
    sent: Mutex<BTreeMap<Sent, Vec<Value>>>,
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
            borrowed: Borrowed::default(),
            actors: Actors::default(),
            modules: Modules::new(Some(folder)),
            transfers: Transfers::of(me),
            spread: Spread::default(),
            outputs: Outputs::default(),
            owned: Mutex::default(),
            moving: Moving::default(),
            outliving: Outliving::default(),
            kept: Mutex::default(),
            lives: Mutex::default(),
            remaking: Remaking::default(),
            sent: Mutex::default(),
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

    /// See [`Others::tell_others`].
    fn say_outbound(&self, outbound: Outbound) {
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

    fn say(&self, to: NodeId, mut outgoing: Box<Outgoing>) {
        if let Outgoing::Settled(Message::Settled { task, attempt, .. }, _) = &*outgoing {
            let attempt = (to, *task, *attempt);
            outgoing = match self.ends.end(&attempt, outgoing) {
                Ok(()) => return,
                Err(outgoing) => outgoing,
            };
        }
        match &*outgoing {
            Outgoing::Place(..) => self.say_place(to, outgoing),
            Outgoing::Message(Message::Withdraw { task, attempt }) => {
                self.say_withdraw(to, *task, *attempt);
            }
            _ => drop(self.queue(to, Queued::Outgoing(outgoing))),
        }
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

    /// A node is lost: all that is kept for it, and all that waits for it.
    fn let_go_of(&self, node: NodeId) {
        self.outputs.lost(node);
        self.spread.left(node);
        self.lost_borrower(node);
        self.lost_owner(node);
        self.lost_actors(node);
        self.seeking.left(node);
        self.replays.awaited.left(node);
        self.orphan(node);
        let of_it = self.kept.lock().left(node);
        drop(of_it);
        let mut sent = self.sent.lock();
        let of_it: Vec<_> = sent.extract_if(.., |(to, ..), _| *to == node).collect();
        drop(sent);
        drop(of_it);
        self.arriving.lock().retain(|(from, ..)| *from != node);
        self.ends.lost(node);
    }

    /// Another node's copy of an object of ours comes or goes.
    fn holding(&self, node: NodeId, object: ObjectId, is_held: bool) {
        let name = ObjectName {
            id: object,
            owner: self.me,
        };
        let is_known = self.borrowed.find(&name).is_some();
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
        self.say_outbound(outbound);
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
        self.seek_actor(tenant, name, claim, is_wanted).await
    }
}

#[async_trait::async_trait]
impl Work for Exchange {
    fn one_way(&self, from: NodeId, message: OneWay) {
        match message {
            // These come with what belongs to them.
            OneWay::Scheduler(message)
                if matches!(*message, Message::Place { .. } | Message::Settled { .. }) =>
            {
                tracing::warn!(node = %from, "another node sent half a message");
            }
            OneWay::Scheduler(message) => match *message {
                Message::Withdraw { task, attempt } => self.withdrawn(from, task, attempt),
                message => self.tell(|ledger| ledger.message(from, message)),
            },
            OneWay::Place(place) => {
                self.count(|counters| &counters.tasks_taken, 1);
                self.placed(from, *place);
            }
            OneWay::Settled(settled) => {
                if let Message::Settled {
                    outcome: Outcome::HandedBack,
                    ..
                } = &settled.message
                {
                    self.count(|counters| &counters.tasks_returned, 1);
                }
                self.outputs.settled(self, from, *settled);
            }
            OneWay::Output(output) => self.outputs.wrote(self, from, *output),
            OneWay::Want(name) => self.wanted(from, name),
            OneWay::Made(made) => self.made(from, *made),
            OneWay::Release(name, count) => self.borrowed.released(from, &name, count),
            OneWay::Holding(object, is_held) => self.holding(from, object, is_held),
            OneWay::Drop(object) => self.unkeep(from, object),
            OneWay::WantActor(name) => self.watches(from, name),
            OneWay::Stands(stands) => self.stands(from, *stands),
            OneWay::Lives(actor, attempt) => {
                self.tell(|ledger| ledger.lives(actor, attempt, from));
            }
            OneWay::Kill(name) => self.kill_for(from, name),
            OneWay::State(state) => self.has_state(from, *state),
            OneWay::DriverGone(driver) => {
                self.homes.forget(&driver);
                if let Some(shared) = self.shared.upgrade() {
                    shared.end_work_of(driver);
                }
            }
            OneWay::Cancel(name) => self.cancel(name),
            OneWay::Find(find) => self.find(from, *find),
            OneWay::Found(found) => self.found(from, *found),
            OneWay::Called(called) => self.was_called(from, *called),
            OneWay::Replay(replay) => self.replay_for(from, *replay),
            OneWay::CalledAgain(again) => self.called_again(from, *again),
            OneWay::Lend(name) => self.lend_directly(from, name),
            OneWay::Lent(name) => self.has_lent(from, name),
            OneWay::LendKept(kept) => self.lend_kept(from, &kept),
            OneWay::LeftBehind(task, lives) => {
                self.tell(|ledger| ledger.left_behind(from, task, lives));
            }
            OneWay::EndLeft(task) => self.tell(|ledger| ledger.end_left(from, task)),
            OneWay::BreakWait(broken) => self.break_wait(&broken),
            OneWay::Outlives(object) => self.outlives(from, object),
            OneWay::Keeps(object) => self.is_kept_by(from, object),
            OneWay::Left(object) => self.was_left_at(from, object),
        }
    }

    async fn request(&self, from: NodeId, request: Request) -> Response {
        match request {
            Request::Where { name, gone } => {
                Response::Made(Box::new(self.whereabouts(from, name, &gone).await))
            }
            Request::Ask(asked) => Response::Answered(Box::new(self.answer(&asked))),
            Request::Source { name, gone } => {
                Response::Source(self.source(from, name, &gone).await)
            }
            Request::Hold(digest, len) => Response::Holds(self.hold(from, digest, len).await),
            Request::Waits(tasks) => Response::Waits(self.waits(&tasks, false).waiters),
            Request::Standstill { tasks, with_room } => {
                Response::Standstill(Box::new(self.waits(&tasks, with_room)))
            }
            Request::MoveAway(object) => Response::Moved(self.move_away(from, object).await),
            Request::Keep { at, outlives } => {
                Response::Moved(self.keep_copy(from, *at, outlives).await)
            }
            Request::Bring(name) => Response::Moved(self.bring_for_good(from, name).await),
        }
    }

    async fn bulk(
        &self,
        _from: NodeId,
        what: Bulk,
        range: Range,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        match what {
            Bulk::Object(object) => self.serve(&object, range, to).await,
            Bulk::Module(digest) => self.modules.serve(&digest, range, to).await,
            Bulk::State(actor, number) => self.serve_state(actor, number, range, to).await,
        }
    }

    fn joined(&self, node: &NodeInfo) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        // Before anything can be said to it.
        self.borrowed.joined(node.id);
        self.kept.lock().joined(node.id);
        let (session, queue) = self.sessions.open(node.id);
        // Whoever sees that it is there can say something to it.
        self.lives.lock().joined(node.id);
        self.want_again(node.id);
        self.ask_about_again(node.id);
        if let Some(desk) = self.desk() {
            desk.has_come(node.id);
        }
        // If it had left, it was we who were cut off.
        self.tell(|ledger| ledger.node_expected(node.clone()));
        // It ends when the node has left, or with the exchange.
        shared.control.spawn(Self::talk(
            self.this.clone(),
            (node.id, node.incarnation),
            session,
            queue,
        ));
    }

    fn left(&self, lives: &[(NodeId, Incarnation)], is_over: bool) {
        let nodes = || lives.iter().map(|(node, _)| *node);
        for node in nodes() {
            self.sessions.close(&node);
        }
        let drivers: Vec<_> = nodes().flat_map(|node| self.homes.drivers(node)).collect();
        self.tell(|ledger| {
            let todo = ledger.nodes_lost(lives, is_over, &drivers);
            // In one step: what those had here has ended, and has not failed for want of what they owned.
            let mut lives = self.lives.lock();
            nodes().for_each(|node| lives.left(node));
            todo
        });
        // Not before: what of theirs was just about to go to another node says whose it is.
        nodes().for_each(|node| self.homes.lost(node));
        nodes().for_each(|node| self.let_go_of(node));
        if let Some(shared) = self.shared.upgrade() {
            for driver in drivers {
                shared.sweep_after(driver);
            }
        }
    }

    fn view(&self, node: NodeInfo, view: PeerView) {
        self.tell(|ledger| ledger.peer_view(node, view));
    }

    fn own_view(&self) -> PeerView {
        match self.shared.upgrade() {
            Some(shared) => shared.ask(|ledger| ledger.own_view()),
            None => PeerView {
                version: 0,
                resources: Default::default(),
                queue: Default::default(),
                usage: Default::default(),
            },
        }
    }

    fn set_draining(&self, node: NodeId, is_draining: bool) {
        if node == self.me {
            self.move_while_drained(is_draining);
        }
        self.tell(|ledger| ledger.set_draining(node, is_draining));
    }

    fn set_reachable(&self, node: NodeId, is_reachable: bool) {
        self.tell(|ledger| ledger.set_reachable(node, is_reachable));
    }

    fn backlog(&self, node: NodeId) -> Backlog {
        self.sessions.backlog(&node)
    }

    fn set_tenant(&self, tenant: TenantName, config: TenantConfig) {
        self.tell(|ledger| ledger.set_tenant(tenant, config));
    }

    fn configure(&self, settings: Settings) {
        self.tell(|ledger| ledger.configure(settings));
    }

    fn group_news(&self, news: GroupNews) {
        self.tell(|ledger| ledger.group_news(news));
    }

    fn is_lease_confirmed(&self, is_confirmed: bool) {
        self.pause_actors(!is_confirmed);
        if is_confirmed && let Some(shared) = self.shared.upgrade() {
            // It ends when all of them are settled, or with the node.
            shared.control.spawn(shared.claim_names_again());
        }
    }
}

impl Exchange {
    /// Cancels what is to make an object of ours that was given away.
    fn cancel(&self, name: ObjectName) {
        if let (Some(Reference::Task(cell)), Some(shared)) =
            (self.borrowed.find(&name), self.shared.upgrade())
        {
            shared.cancel_maker(&cell);
        }
    }

    fn unkeep(&self, owner: NodeId, object: ObjectId) {
        let last = self.kept.lock().unkeep(owner, &object);
        if last.is_some() {
            self.outliving.forget(owner, object);
        }
        drop(last);
    }

    fn keep_for(&self, owner: NodeId, object: ObjectId, value: Value) {
        let mut kept = self.kept.lock();
        // One that is kept already is no other, and for who has left nothing is.
        let mut unused = kept.keep(owner, object, value);
        if let Err(value) = unused {
            let before = kept.get(owner, &object).and_then(Value::in_store);
            unused = Err(match before.is_some_and(|it| it.was_dropped()) {
                true => kept.replace(owner, &object, value),
                false => value,
            });
        }
        drop(kept);
        drop(unused);
    }
}
