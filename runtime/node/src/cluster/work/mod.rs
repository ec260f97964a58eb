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

mod borrow;
mod modules;
mod place;
pub(crate) mod protocol;
mod recipe;
mod remote;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use wasmrun_model::id::{DriverId, Incarnation, NodeId, ObjectId, TaskId};
use wasmrun_model::scheduler::{NodeInfo, PeerView};
use wasmrun_model::task::Attempt;
use wasmrun_net::{BulkRefusal, BulkSender, Range};

pub(crate) use self::borrow::Foreign;
pub(crate) use self::protocol::{Bulk, OneWay, Request, Response};
pub(crate) use self::recipe::Recipe;
pub(crate) use self::remote::Remote;

use self::borrow::Borrowed;
use self::modules::Modules;
use self::place::Outputs;
use self::recipe::Remaking;
use crate::cluster::{Cluster, Work};
use crate::ledger::{Outgoing, Todo};
use crate::node::{Shared, WeakShared};
use crate::object::Value;

/// How often the scheduler is told the time.
const TICK: Duration = Duration::from_millis(100);

/// How many bytes of a value travel with the message that names it.
const INLINE_BYTES: usize = crate::shared::INLINE_BYTES;

/// What this node exchanges with others.
pub(crate) struct Exchange {
    me: NodeId,
    this: Weak<Exchange>,
    shared: WeakShared,
    /// What is to be said to each node that is alive, in order.
    queues: Mutex<HashMap<NodeId, mpsc::UnboundedSender<Queued>>>,
    borrowed: Borrowed,
    modules: Modules,
    /// What tasks of ours at other nodes write, and their reports behind that.
    outputs: Outputs,
    /// Results that are kept for who owns them, and how often.
    kept: Mutex<HashMap<(NodeId, ObjectId), (Value, u64)>>,
    /// Results that are being made again.
    remaking: Remaking,
    /// Arguments that were put into the store to be sent, until their attempt is over.
    sent: Mutex<HashMap<(TaskId, Attempt), Vec<Value>>>,
}

/// What waits to be said.
enum Queued {
    Message(OneWay),
    Outgoing(Box<Outgoing>),
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({})", self.me)
    }
}

impl Exchange {
    /// What a node exchanges with others from now on. `folder` is for modules.
    pub(crate) fn start(shared: &Arc<Shared>, folder: PathBuf) -> Arc<Self> {
        let exchange = Arc::new_cyclic(|this| Self {
            me: shared.home.node,
            this: this.clone(),
            shared: Arc::downgrade(shared),
            queues: Mutex::default(),
            borrowed: Borrowed::default(),
            modules: Modules::new(Some(folder)),
            outputs: Outputs::default(),
            kept: Mutex::default(),
            remaking: Remaking::default(),
            sent: Mutex::default(),
        });
        shared.ledger.lock().join_cluster();
        // It ends with the node.
        shared.control.spawn(Self::tick(exchange.this.clone()));
        exchange
    }

    /// Lets the scheduler see that time passes: some messages are to be repeated, some tasks lose patience.
    async fn tick(this: Weak<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match this.upgrade() {
                Some(exchange) => exchange.carry_out(|ledger| ledger.tick()),
                None => return,
            }
        }
    }

    /// Modules that came here, and whoever wants one.
    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    fn cluster(&self) -> Option<Arc<Cluster>> {
        self.shared.upgrade()?.cluster.get().cloned()
    }

    /// Says what the ledger wants other nodes to know.
    pub(crate) fn say(&self, to: NodeId, outgoing: Outgoing) {
        self.queue(to, Queued::Outgoing(Box::new(outgoing)));
    }

    /// A driver has gone, and what tasks of its own elsewhere has to end.
    pub(crate) fn driver_gone(&self, driver: DriverId) {
        let nodes: Vec<NodeId> = self.queues.lock().keys().copied().collect();
        for node in nodes {
            self.queue(node, Queued::Message(OneWay::DriverGone(driver)));
        }
    }

    /// A node that is not there (any more) hears nothing: nobody waits for its answer either.
    fn queue(&self, to: NodeId, queued: Queued) {
        if let Some(queue) = self.queues.lock().get(&to) {
            // The other end is there as long as this one.
            let _ = queue.send(queued);
        }
    }

    /// Says one thing after the other to a node, at the pace at which it takes them.
    async fn talk(this: Weak<Self>, to: NodeId, mut queue: mpsc::UnboundedReceiver<Queued>) {
        while let Some(queued) = queue.recv().await {
            let Some(exchange) = this.upgrade() else {
                return;
            };
            let message = match queued {
                Queued::Message(message) => Some(message),
                Queued::Outgoing(outgoing) => exchange.encode(to, *outgoing).await,
            };
            let (Some(message), Some(cluster)) = (message, exchange.cluster()) else {
                continue;
            };
            drop(exchange);
            if let Err(error) = cluster.send(to, message).await {
                tracing::warn!(node = %to, %error, "a message to another node is lost");
            }
        }
    }

    fn carry_out(&self, act: impl FnOnce(&mut crate::ledger::Ledger) -> Todo) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut ledger = shared.ledger.lock();
        let todo = act(&mut ledger);
        shared.home.set_waiting(ledger.waiting());
        drop(ledger);
        shared.carry_out(todo);
    }

    /// Another node's copy of an object of ours comes or goes.
    fn holding(&self, node: NodeId, object: ObjectId, is_held: bool) {
        self.borrowed.set_holder(node, object, is_held);
    }
}

#[async_trait::async_trait]
impl Work for Exchange {
    fn one_way(&self, from: NodeId, message: OneWay) {
        match message {
            OneWay::Scheduler(message) => self.carry_out(|ledger| ledger.message(from, *message)),
            OneWay::Place(place) => self.placed(from, *place),
            OneWay::Settled(settled) => self.outputs.settled(self, from, *settled),
            OneWay::Output(output) => self.outputs.wrote(self, from, *output),
            OneWay::Want(name) => self.wanted(from, name),
            OneWay::Made(made) => self.made(from, *made),
            OneWay::Release(name, count) => self.borrowed.released(from, name, count),
            OneWay::Holding(object, is_held) => self.holding(from, object, is_held),
            OneWay::Drop(object) => self.unkeep(from, object),
            OneWay::DriverGone(driver) => {
                let Some(shared) = self.shared.upgrade() else {
                    return;
                };
                let mut ledger = shared.ledger.lock();
                let mut of_driver = ledger.of_driver(&driver);
                of_driver.retain(|task| !ledger.is_running_call(task));
                let todo = ledger.cancel(&of_driver);
                drop(ledger);
                shared.carry_out(todo);
            }
        }
    }

    async fn request(&self, from: NodeId, request: Request) -> Response {
        match request {
            Request::Where { name, gone } => {
                Response::Made(Box::new(self.whereabouts(from, name, &gone).await))
            }
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
        }
    }

    fn joined(&self, node: &NodeInfo) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let (sender, receiver) = mpsc::unbounded_channel();
        self.queues.lock().insert(node.id, sender);
        // If it had left, it was we who were cut off.
        self.carry_out(|ledger| ledger.node_back(node.id, node.incarnation));
        // It ends when the node has left, or with the exchange.
        shared
            .control
            .spawn(Self::talk(self.this.clone(), node.id, receiver));
    }

    fn left(&self, node: NodeId, incarnation: Incarnation) {
        self.queues.lock().remove(&node);
        self.carry_out(|ledger| ledger.node_lost(node, incarnation));
        self.outputs.lost(node);
        self.lost_borrower(node);
        self.lost_owner(node);
        let mut kept = self.kept.lock();
        let of_it: Vec<_> = kept.extract_if(|(owner, _), _| *owner == node).collect();
        drop(kept);
        drop(of_it);
    }

    fn view(&self, node: NodeInfo, view: PeerView) {
        self.carry_out(|ledger| ledger.peer_view(node, view));
    }

    fn own_view(&self) -> PeerView {
        match self.shared.upgrade() {
            Some(shared) => shared.ledger.lock().own_view(),
            None => PeerView {
                version: 0,
                resources: Default::default(),
                queue: Default::default(),
                usage: Default::default(),
            },
        }
    }

    fn set_draining(&self, node: NodeId, is_draining: bool) {
        self.carry_out(|ledger| ledger.set_draining(node, is_draining));
    }

    fn is_lease_confirmed(&self, _is_confirmed: bool) {
        // Actors run where they were created, and end with that node's process: none can live twice.
    }
}

impl Exchange {
    fn unkeep(&self, owner: NodeId, object: ObjectId) {
        let mut kept = self.kept.lock();
        let Some((_, count)) = kept.get_mut(&(owner, object)) else {
            return;
        };
        *count -= 1;
        let last = match *count {
            0 => kept.remove(&(owner, object)),
            _ => None,
        };
        drop(kept);
        drop(last);
    }

    fn keep_for(&self, owner: NodeId, object: ObjectId, value: Value) {
        let mut kept = self.kept.lock();
        let (_, count) = kept.entry((owner, object)).or_insert((value, 0));
        *count += 1;
    }

    /// Keeps arguments until their attempt is over.
    fn keep_sent(&self, attempt: (TaskId, Attempt), values: Vec<Value>) {
        if !values.is_empty() {
            self.sent.lock().insert(attempt, values);
        }
    }
}
