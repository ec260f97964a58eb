//! How views reach the others: the driver of [`Gossip`].
//!
//! Owns its clock and its timer, and when this node's own view is made. Must not: know what is in a view, or
//! decide to whom it goes. What cannot be sent at once is dropped: gossip repairs what is lost.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use wasmrun_model::gossip::{Gossip, Input, Message, Output};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::time::Instant as ModelInstant;

use super::Cluster;
use super::protocol::OneWay;
use crate::guests::counters::Counter;

/// How often our own view is made when nobody says that it has changed.
const EVERY: Duration = Duration::from_millis(500);
/// It is made at most so often.
const SOON: Duration = Duration::from_millis(20);

/// What is known of views, and is to be said about them.
pub(super) struct Views {
    gossip: Mutex<Gossip>,
    started: Instant,
    /// There may be something to be done.
    wake: Notify,
    /// Our own view is worth telling.
    changed: Notify,
    /// Messages that came.
    heard: Counter,
    /// Messages that were sent.
    told: Counter,
}

impl Views {
    pub(super) fn new(own: NodeId, incarnation: Incarnation) -> Self {
        Self {
            gossip: Mutex::new(new_gossip(ModelInstant::ZERO, own, incarnation)),
            started: Instant::now(),
            wake: Notify::new(),
            changed: Notify::new(),
            heard: Counter::default(),
            told: Counter::default(),
        }
    }

    /// Forgets everybody: this node begins a new incarnation.
    pub(super) fn begin_anew(&self, own: NodeId, incarnation: Incarnation) {
        *self.gossip.lock() = new_gossip(self.now(), own, incarnation);
        self.changed.notify_one();
    }

    pub(super) fn joined(&self, node: NodeId, incarnation: Incarnation) {
        self.handle(Input::Joined { node, incarnation });
        self.changed.notify_one();
    }

    pub(super) fn left(&self, node: NodeId, incarnation: Incarnation) {
        self.handle(Input::Left { node, incarnation });
    }

    /// A member says something.
    pub(super) fn heard(&self, from: NodeId, message: Message) {
        self.heard.add(1);
        self.handle(Input::Message { from, message });
    }

    /// How many messages came, and how many were sent.
    pub(super) fn counts(&self) -> [u64; 2] {
        [self.heard.get(), self.told.get()]
    }

    /// Our own view is worth telling.
    pub(super) fn changed(&self) {
        self.changed.notify_one();
    }

    fn handle(&self, input: Input) {
        self.gossip.lock().handle(self.now(), input);
        self.wake.notify_one();
    }

    fn next(&self) -> Option<Output> {
        self.gossip.lock().poll()
    }

    fn now(&self) -> ModelInstant {
        ModelInstant::ZERO + self.started.elapsed()
    }

    /// When there is something to be done even if nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let due = self.gossip.lock().poll_timeout()?;
        Some(self.started + due.since(ModelInstant::ZERO))
    }
}

fn new_gossip(now: ModelInstant, own: NodeId, incarnation: Incarnation) -> Gossip {
    let seed = *crate::records::ids::random()
        .first_chunk()
        .expect("it is longer than that");
    Gossip::new(now, own, incarnation, u64::from_le_bytes(seed))
}

/// Tells and hears views until it is dropped.
pub(super) async fn tell(cluster: Arc<Cluster>) {
    let views = &cluster.views;
    let mut made = Instant::now();
    let mut is_changed = false;
    make_own(&cluster);
    loop {
        while let Some(output) = views.next() {
            carry_out(&cluster, output);
        }
        let make_at = made + if is_changed { SOON } else { EVERY };
        let due = views.deadline().unwrap_or(make_at);
        tokio::select! {
            () = views.wake.notified() => {}
            () = views.changed.notified(), if !is_changed => is_changed = true,
            () = tokio::time::sleep_until(make_at) => {
                (made, is_changed) = (Instant::now(), false);
                make_own(&cluster);
            }
            () = tokio::time::sleep_until(due) => {
                views.gossip.lock().handle(views.now(), Input::Tick);
            }
        }
    }
}

fn carry_out(cluster: &Cluster, output: Output) {
    match output {
        Output::Send { to, message } => {
            if let Some(peer) = cluster.peer(to) {
                let sent = peer.try_send(&OneWay::View(Box::new(message)));
                cluster.views.told.add(sent.is_ok().into());
            }
        }
        Output::View { node, view } => cluster.members.view(node.id, node.incarnation, *view),
    }
}

/// Makes our own view. What is worth telling of it, and to whom, is not decided here.
fn make_own(cluster: &Cluster) {
    let (Some(work), Some(node)) = (cluster.members.work(), cluster.own_info()) else {
        return;
    };
    let view = Box::new(work.own_view());
    let views = &cluster.views;
    let mut gossip = views.gossip.lock();
    // A new incarnation may have begun meanwhile; it makes its own.
    if node.incarnation == cluster.incarnation() {
        gossip.handle(views.now(), Input::OwnView { node, view });
    }
}
