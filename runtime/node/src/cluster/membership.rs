//! Who lives: this node's lease, and what the control store says of the others.
//!
//! Owns one loop. It registers this node under a lease, watches the keys of nodes, and tells [`Members`] what
//! follows. A node that was declared dead while its process lived, as after a partition, begins a new life
//! within the process: the others have dropped what it did for them, so from here too all of them have left
//! and join again.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch as value;
use wasmrun_control::membership::{self, Member, MembershipError};
use wasmrun_control::records::{self, NODES};
use wasmrun_control::{
    Changes, Condition, ControlStore, Entry, Error, Event, Health, LeaseKeeper, Op, Txn,
};
use wasmrun_model::cluster::NodeName;
use wasmrun_model::id::{Incarnation, NodeId};

use super::members::NodeRecord;
use super::watched::{self, Read};
use super::{Cluster, ClusterError};

/// How soon something is tried again that the store did not do.
const AGAIN: Duration = Duration::from_millis(200);
/// How many names are tried if nobody has said which.
const MOST_NAMES: u32 = 1000;

/// A registration: what this node has in the control store.
pub(super) struct Registered {
    pub(super) keeper: LeaseKeeper,
    pub(super) incarnation: Incarnation,
}

/// Takes a name, under a lease. If it is only proposed, the next free one like it.
pub(super) async fn claim_name(
    store: &dyn ControlStore,
    node: NodeId,
    lease: &LeaseKeeper,
    name: &NodeName,
    is_proposed: bool,
) -> Result<NodeName, ClusterError> {
    let value = node.to_string();
    for number in 1..=MOST_NAMES {
        let wanted = match number {
            1 => name.clone(),
            number => {
                let name = format!("{name}-{number}");
                name.parse().unwrap_or_else(|_| {
                    let short = format!("node-{number}");
                    short.parse().expect("this is a name")
                })
            }
        };
        let key = records::node_name(&wanted);
        let put = || Op::put_leased(key.clone(), value.clone(), lease.lease().id);
        // From an earlier life of ours, whose lease has not ended yet.
        let ours = Condition::Value(value.clone().into());
        for condition in [Condition::Absent, ours] {
            let txn = Txn::when(key.clone(), condition).then(put());
            if store.txn(txn).await?.succeeded {
                return Ok(wanted);
            }
        }
        if !is_proposed {
            break;
        }
    }
    Err(ClusterError::Name(name.clone()))
}

/// Registers this node in a new life of the control store's.
pub(super) async fn register(
    cluster: &Cluster,
    keeper: LeaseKeeper,
) -> Result<Registered, MembershipError> {
    let record = cluster.record();
    let lease = keeper.lease().id;
    let incarnation =
        membership::register(cluster.store.as_ref(), cluster.id, lease, record).await?;
    *cluster.lease.lock() = Some(lease);
    Ok(Registered {
        keeper,
        incarnation,
    })
}

/// Keeps this node a member and follows the others, until it is dropped.
pub(super) async fn run(cluster: Arc<Cluster>, registered: Registered) {
    let mut registered = registered;
    loop {
        follow(&cluster, registered).await;
        tracing::warn!("this node was declared dead; it begins a new life");
        registered = be_reborn(&cluster).await;
    }
}

/// Follows the store until this life of ours is over.
async fn follow(cluster: &Arc<Cluster>, registered: Registered) {
    let mut health = registered.keeper.watch();
    let confirm = async {
        let mut was_confirmed = true;
        loop {
            let now = *health.borrow_and_update();
            let is_confirmed = now == Health::Confirmed;
            if is_confirmed != was_confirmed {
                was_confirmed = is_confirmed;
                cluster.set_confirmed(is_confirmed);
            }
            if now == Health::Lost || changed(&mut health).await.is_err() {
                return;
            }
        }
    };
    let watch = async {
        loop {
            let ended = watch_nodes(cluster, registered.incarnation).await;
            match ended {
                Ok(ControlFlow::Break(())) => return,
                // What is there now is read anew.
                Ok(ControlFlow::Continue(())) => {}
                Err(error) => {
                    tracing::warn!(%error, "the members cannot be read");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    };
    tokio::select! {
        () = confirm => {}
        () = watch => {
            // Our key is gone, and our lease may live.
            let lease = registered.keeper.lease().id;
            let revoked = cluster.store.revoke(lease);
            let _ = tokio::time::timeout(AGAIN, revoked).await;
        }
    }
    cluster.set_confirmed(false);
}

async fn changed(health: &mut value::Receiver<Health>) -> Result<(), value::error::RecvError> {
    health.changed().await
}

/// Reads who is there, then follows the changes. Breaks when we are told to be dead.
async fn watch_nodes(cluster: &Arc<Cluster>, ours: Incarnation) -> Result<ControlFlow<()>, Error> {
    let Read {
        entries, mut watch, ..
    } = watched::read(cluster.store.as_ref(), NODES).await?;
    let mut gone: BTreeSet<NodeId> = cluster.members.registered().into_keys().collect();
    for entry in entries {
        if let Some(node) = node_of(&entry.key) {
            gone.remove(&node);
        }
        if put(cluster, &entry, ours).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    for node in gone {
        lost(cluster, node);
    }
    cluster.members.give_up_unseen();
    loop {
        let Changes { events, .. } = match watch.next().await {
            Ok(changes) => changes,
            Err(Error::Compacted { .. }) => return Ok(ControlFlow::Continue(())),
            Err(error) => return Err(error),
        };
        for event in events {
            let flow = match event {
                Event::Put(entry) => put(cluster, &entry, ours),
                Event::Delete { key } => match node_of(&key) {
                    Some(node) if node == cluster.id => ControlFlow::Break(()),
                    Some(node) => {
                        lost(cluster, node);
                        ControlFlow::Continue(())
                    }
                    None => ControlFlow::Continue(()),
                },
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
    }
}

fn node_of(key: &[u8]) -> Option<NodeId> {
    let id = key.strip_prefix(NODES.as_bytes())?;
    std::str::from_utf8(id).ok()?.parse().ok()
}

/// A node's entry is there or has changed. Breaks if it is ours and of another life.
fn put(cluster: &Arc<Cluster>, entry: &Entry, ours: Incarnation) -> ControlFlow<()> {
    let Some(node) = node_of(&entry.key) else {
        return ControlFlow::Continue(());
    };
    let member: Member<NodeRecord> = match membership::member(&entry.value) {
        Ok(member) => member,
        Err(error) => {
            tracing::warn!(%node, %error, "the entry of a node cannot be read");
            return ControlFlow::Continue(());
        }
    };
    let Member {
        incarnation,
        info: record,
    } = member;
    if node == cluster.id {
        if incarnation == ours {
            cluster.amend_own(record);
        }
        return match incarnation > ours {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
    }
    match cluster.members.registered().get(&node) {
        Some(known) if *known > incarnation => {}
        Some(known) if *known == incarnation => cluster.members.amend(node, record),
        known => {
            if known.is_some() {
                leave(cluster, node);
            }
            meet(cluster, node, incarnation, record);
        }
    }
    ControlFlow::Continue(())
}

/// A node lives: it is dialled, and may be talked to.
fn meet(cluster: &Arc<Cluster>, node: NodeId, incarnation: Incarnation, record: NodeRecord) {
    tracing::info!(%node, name = %record.name, life = record.life.0, "a node has joined");
    if cluster.lines.head_id() == Some(node) {
        cluster.lines.set_head(node, record.addresses.clone());
    }
    if let Some(network) = cluster.lines.network() {
        network.expect(node, record.life);
        if let Err(error) = network.peer(node, record.addresses.clone()) {
            tracing::warn!(%node, %error, "a node cannot be dialled");
        }
    }
    let life = record.life;
    cluster.members.join(node, incarnation, record);
    cluster.views.joined(node, life);
}

/// A node is dead, for everybody.
fn lost(cluster: &Arc<Cluster>, node: NodeId) {
    let name = cluster.members.name(node);
    let name = name.map(tracing::field::display);
    tracing::info!(%node, name, "a node has left or is lost");
    leave(cluster, node);
    // The head's control store is still wanted.
    if cluster.lines.head_id() != Some(node)
        && let Some(network) = cluster.lines.network()
    {
        network.forget(node);
    }
}

fn leave(cluster: &Cluster, node: NodeId) {
    if let Some(life) = cluster.members.leave(node, true) {
        cluster.views.left(node, life);
    }
}

/// Begins a new life of this node, within the process.
async fn be_reborn(cluster: &Arc<Cluster>) -> Registered {
    for node in cluster.members.ids() {
        cluster.members.leave(node, false);
    }
    let life = loop {
        match cluster.state.next_life() {
            Ok(life) => break life,
            Err(error) => tracing::error!(%error, "a new life cannot be begun"),
        }
        tokio::time::sleep(AGAIN).await;
    };
    cluster.set_life(life);
    cluster.views.begin_anew(cluster.id, life);
    cluster.lines.reopen(&cluster.state, life).await;
    loop {
        match register_anew(cluster).await {
            Ok(registered) => {
                tracing::info!(life = life.0, "this node lives again");
                cluster.set_confirmed(true);
                cluster.rebirths.send_modify(|count| *count += 1);
                return registered;
            }
            Err(error) => tracing::warn!(%error, "this node cannot be registered again"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn register_anew(cluster: &Arc<Cluster>) -> Result<Registered, ClusterError> {
    let lease = cluster.store.grant(cluster.lease_ttl).await?;
    let keeper = LeaseKeeper::new(cluster.store.clone(), lease);
    let name = cluster.record().name;
    claim_name(cluster.store.as_ref(), cluster.id, &keeper, &name, false).await?;
    Ok(register(cluster, keeper).await?)
}
