//! Who lives: this node's lease, and what the control store says of the others.
//!
//! Owns one loop. It registers this node under a lease, watches the keys of nodes, and tells [`Members`] what
//! follows. A node that was declared dead while its process lived, as after a partition, begins a new incarnation
//! within the process: the others have dropped what it did for them, so from here too all of them have left
//! and join again.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch as value;
use wasmrun_control::membership::{self, Member, MembershipError};
use wasmrun_control::records::{self, NODES};
use wasmrun_control::{
    Changes, Condition, ControlStore, Entry, Error, Event, Health, LeaseId, LeaseKeeper, Op, Txn,
};
use wasmrun_model::cluster::NodeName;
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_net::{ConnectError, Refusal};

use super::members::{Members, NodeRecord};
use super::records::Standing;
use super::watched::{self, Read};
use super::{Cluster, ClusterError, removed};

/// How soon something is tried again that the store did not do.
const AGAIN: Duration = Duration::from_millis(200);
/// How often a node whose lease is not confirmed looks whether that is because it was removed.
const LOOK: Duration = Duration::from_secs(1);
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
        // Of an earlier incarnation of this node, whose lease has not expired yet.
        let ours = Condition::Value(value.clone().into());
        // If that ends between the two questions, the name is free after all.
        for condition in [Condition::Absent, ours, Condition::Absent] {
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

/// What keeping a node's place needs of it, and what follows from it.
#[async_trait]
pub(super) trait Host: Standing {
    /// The store, for those who keep it.
    fn shared_store(&self) -> Arc<dyn ControlStore>;

    /// How long its leases live.
    fn lease_ttl(&self) -> Duration;

    /// Who lives, which is kept up to date.
    fn members(&self) -> &Members;

    /// What it says of itself.
    fn record(&self) -> NodeRecord;

    /// Somebody has changed what it says of itself.
    fn amend_own(&self, record: NodeRecord);

    /// It is registered under this lease from now on.
    fn set_lease(&self, lease: LeaseId);

    /// Whether it is known to live.
    fn set_confirmed(&self, is_confirmed: bool);

    /// Another node lives, and is about to be a member.
    fn meet(&self, node: NodeId, record: &NodeRecord);

    /// It is one now.
    fn met(&self, node: NodeId, incarnation: Incarnation);

    /// It is none any more, in this incarnation.
    fn left(&self, node: NodeId, incarnation: Incarnation);

    /// Nor will it be one, as far as is known.
    fn forget(&self, node: NodeId);

    /// Begins a new incarnation of this node, in which none of what was sent in the one before arrives.
    async fn begin_incarnation(&self);

    /// The new incarnation is registered.
    fn lives_again(&self);

    /// Looks whether it was taken out of the cluster, and so cannot be registered.
    async fn look_if_removed(&self);
}

#[async_trait]
impl Host for Cluster {
    fn shared_store(&self) -> Arc<dyn ControlStore> {
        self.store.clone()
    }

    fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    fn members(&self) -> &Members {
        &self.members
    }

    fn record(&self) -> NodeRecord {
        self.record()
    }

    fn amend_own(&self, record: NodeRecord) {
        self.amend_own(record);
    }

    fn set_lease(&self, lease: LeaseId) {
        *self.lease.lock() = Some(lease);
    }

    fn set_confirmed(&self, is_confirmed: bool) {
        self.set_confirmed(is_confirmed);
    }

    fn meet(&self, node: NodeId, record: &NodeRecord) {
        if self.lines.head_id() == Some(node) {
            self.lines.set_head(node, record.addresses.clone());
        }
        if let Some(network) = self.lines.network() {
            network.expect(node, record.incarnation);
            if let Err(error) = network.peer(node, record.addresses.clone()) {
                tracing::warn!(%node, %error, "a node cannot be dialled");
            }
        }
    }

    fn met(&self, node: NodeId, incarnation: Incarnation) {
        self.views.joined(node, incarnation);
    }

    fn left(&self, node: NodeId, incarnation: Incarnation) {
        self.views.left(node, incarnation);
    }

    fn forget(&self, node: NodeId) {
        // The head's control store is still wanted.
        if self.lines.head_id() != Some(node)
            && let Some(network) = self.lines.network()
        {
            network.forget(node);
        }
    }

    async fn begin_incarnation(&self) {
        let incarnation = loop {
            match self.state.next_incarnation() {
                Ok(incarnation) => break incarnation,
                Err(error) => tracing::error!(%error, "a new incarnation cannot be begun"),
            }
            self.clock.sleep(AGAIN).await;
        };
        self.set_incarnation(incarnation);
        self.views.begin_anew(self.id, incarnation);
        self.lines.reopen(&self.state, incarnation).await;
    }

    async fn look_if_removed(&self) {
        // Whose control store is the head's gets no answer from that, and hears from the head why not.
        let is_turned_away = match self.lines.head() {
            None => false,
            Some(head) => {
                let tried = tokio::time::timeout(AGAIN, head.connected()).await;
                let why = tried.ok().and_then(Result::err);
                matches!(
                    why,
                    Some(ConnectError::Refused {
                        why: Refusal::Removed,
                        ..
                    })
                )
            }
        };
        let is_removed = is_turned_away
            || removed::is_removed(self.store.as_ref(), self.id)
                .await
                .is_ok_and(|is_removed| is_removed);
        if is_removed {
            self.removed.hear();
        }
    }

    fn lives_again(&self) {
        tracing::info!(incarnation = self.incarnation().0, "this node lives again");
        self.returns.send_modify(|count| *count += 1);
    }
}

/// Registers this node, as a new incarnation by the control store's count.
pub(super) async fn register(
    host: &impl Host,
    keeper: LeaseKeeper,
) -> Result<Registered, MembershipError> {
    let record = host.record();
    let lease = keeper.lease().id;
    let incarnation = membership::register(host.store(), host.id(), lease, record).await?;
    host.set_lease(lease);
    Ok(Registered {
        keeper,
        incarnation,
    })
}

/// Keeps this node a member and follows the others, until it is dropped.
pub(super) async fn run(host: Arc<impl Host>, registered: Registered) {
    let mut registered = registered;
    loop {
        follow(host.as_ref(), registered).await;
        tracing::warn!("this node was declared dead; it begins a new incarnation");
        registered = be_reborn(host.as_ref()).await;
    }
}

/// Follows the store until this node's incarnation is over.
async fn follow(host: &impl Host, registered: Registered) {
    let mut health = registered.keeper.watch();
    let confirm = async {
        let mut was_confirmed = true;
        loop {
            let now = *health.borrow_and_update();
            let is_confirmed = now == Health::Confirmed;
            if is_confirmed != was_confirmed {
                was_confirmed = is_confirmed;
                host.set_confirmed(is_confirmed);
            }
            if now == Health::Lost {
                return;
            }
            // Whoever has removed this node does not let it hear so from the store. What comes of the lease meanwhile is
            // not kept waiting by that.
            let look = async {
                host.clock().sleep(LOOK).await;
                host.look_if_removed().await;
            };
            tokio::select! {
                biased;
                changed = changed(&mut health) => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = look, if !is_confirmed => {}
            }
        }
    };
    let watch = async {
        loop {
            let ended = watch_nodes(host, registered.incarnation).await;
            match ended {
                Ok(ControlFlow::Break(())) => return,
                // What is there now is read anew.
                Ok(ControlFlow::Continue(())) => {}
                Err(error) => {
                    tracing::warn!(%error, "the members cannot be read");
                    host.clock().sleep(AGAIN).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = confirm => {}
        () = watch => {
            // Our key is gone, and our lease may live.
            let lease = registered.keeper.lease().id;
            tokio::select! {
                biased;
                _ = host.store().revoke(lease) => {}
                () = host.clock().sleep(AGAIN) => {}
            }
        }
    }
    host.set_confirmed(false);
}

async fn changed(health: &mut value::Receiver<Health>) -> Result<(), value::error::RecvError> {
    health.changed().await
}

/// Reads who is there, then follows the changes. Breaks when we are told to be dead.
async fn watch_nodes(host: &impl Host, ours: Incarnation) -> Result<ControlFlow<()>, Error> {
    let Read {
        entries, mut watch, ..
    } = watched::read(host.store(), NODES).await?;
    // It may have gone while nobody watched, and its lease live.
    if !entries.iter().any(|it| node_of(&it.key) == Some(host.id())) {
        return Ok(ControlFlow::Break(()));
    }
    let mut gone: BTreeSet<NodeId> = host.members().registered().into_keys().collect();
    for entry in entries {
        if let Some(node) = node_of(&entry.key) {
            gone.remove(&node);
        }
        if put(host, &entry, ours).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    for node in gone {
        lost(host, node);
    }
    host.members().give_up_unseen();
    loop {
        let Changes { events, .. } = match watch.next().await {
            Ok(changes) => changes,
            Err(Error::Compacted { .. }) => return Ok(ControlFlow::Continue(())),
            Err(error) => return Err(error),
        };
        for event in events {
            let flow = match event {
                Event::Put(entry) => put(host, &entry, ours),
                Event::Delete { key } => match node_of(&key) {
                    Some(node) if node == host.id() => ControlFlow::Break(()),
                    Some(node) => {
                        lost(host, node);
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

/// A node's entry is there or has changed. Breaks if it is ours and of another incarnation.
fn put(host: &impl Host, entry: &Entry, ours: Incarnation) -> ControlFlow<()> {
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
    if node == host.id() {
        if incarnation == ours {
            host.amend_own(record);
        }
        return match incarnation > ours {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
    }
    match host.members().registered().get(&node) {
        Some(known) if *known > incarnation => {}
        Some(known) if *known == incarnation => host.members().amend(node, record),
        known => {
            if known.is_some() {
                leave(host, node);
            }
            meet(host, node, incarnation, record);
        }
    }
    ControlFlow::Continue(())
}

/// A node lives: it is dialled, and may be talked to.
fn meet(host: &impl Host, node: NodeId, registered: Incarnation, record: NodeRecord) {
    tracing::info!(%node, name = %record.name, incarnation = record.incarnation.0, "a node has joined");
    host.meet(node, &record);
    let incarnation = record.incarnation;
    host.members().join(node, registered, record);
    host.met(node, incarnation);
}

/// A node is dead, for everybody.
fn lost(host: &impl Host, node: NodeId) {
    let name = host.members().name(node);
    let name = name.map(tracing::field::display);
    tracing::info!(%node, name, "a node has left or is lost");
    leave(host, node);
    host.forget(node);
}

fn leave(host: &impl Host, node: NodeId) {
    if let Some(incarnation) = host.members().leave(node) {
        host.left(node, incarnation);
    }
}

/// Begins a new incarnation of this node, within the process.
async fn be_reborn(host: &impl Host) -> Registered {
    host.members().lose_sight();
    host.begin_incarnation().await;
    loop {
        // Nobody would talk to it. Whoever runs it ends it then.
        host.look_if_removed().await;
        match register_anew(host).await {
            Ok(registered) => {
                host.set_confirmed(true);
                host.lives_again();
                return registered;
            }
            Err(error) => tracing::warn!(%error, "this node cannot be registered again"),
        }
        host.clock().sleep(AGAIN).await;
    }
}

async fn register_anew(host: &impl Host) -> Result<Registered, ClusterError> {
    let store = host.shared_store();
    let lease = store.grant(host.lease_ttl()).await?;
    let keeper = LeaseKeeper::with_clock(store.clone(), lease, host.clock().clone());
    let name = host.record().name;
    claim_name(store.as_ref(), host.id(), &keeper, &name, false).await?;
    Ok(register(host, keeper).await?)
}

#[cfg(test)]
mod tests;
