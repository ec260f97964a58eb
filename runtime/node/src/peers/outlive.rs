//! Results that outlive their owner: those of detached tasks, which another node goes on with.
//!
//! The owner says to who keeps such a result that it is one. When the owner is lost it stays, and whoever takes the task
//! over says that it is its own now.
//!
//! A node that comes back after it counted as dead has what it had, and is asked for it anew: also for results of its own
//! tasks, which others have taken over.
//!
//! Owns who keeps what of this kind, and until when. Must not: know tasks or their records; those are the server's.
//!
//! Invariants: what nobody comes for is let go, after a time in which somebody could have come. Who keeps a result that was
//! left there says so to its new owner, which so knows whom to tell when nobody needs it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{NodeId, ObjectId};
use wasmrun_model::reference::{Keepers, Peer};
use wasmrun_model::value::NumberKind;
use wasmrun_store::Form;

use super::Exchange;
use super::borrow::Lending;
use super::protocol::{At, Body, OneWay};
use super::remote::Remote;
use crate::records::object::Value;

/// How long the new owner of a result may take to come for it. Time in which the control store is not known to answer
/// does not count: nobody can take anything over then.
const PATIENCE: Duration = Duration::from_secs(600);

/// See the [module](self).
#[derive(Default)]
pub(super) struct Outliving(Mutex<State>);

#[derive(Default)]
struct State {
    /// What is kept and outlives its owner.
    marked: BTreeSet<(NodeId, ObjectId)>,
    /// What was, and since when it waits for its new owner.
    orphans: BTreeMap<ObjectId, (Value, Instant)>,
    /// What was taken over from a node that counts as alive here, and was its own. It does not know so in that
    /// incarnation.
    taken: BTreeSet<(NodeId, ObjectId)>,
}

/// A lost peer with what was there for it, to be dropped outside of all locks.
pub(super) struct LostPeer {
    pub(super) node: NodeId,
    _peer: Option<Peer<Lending, Value>>,
    _replaced: Vec<Value>,
}

impl Outliving {
    /// It need not be kept any more.
    pub(super) fn forget(&self, owner: NodeId, object: ObjectId) {
        self.0.lock().marked.remove(&(owner, object));
    }

    pub(super) fn mark(&self, owner: NodeId, object: ObjectId) {
        self.0.lock().marked.insert((owner, object));
    }
}

/// Where a result is, for whoever takes its task over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whereabouts {
    /// The form of a list of numbers.
    pub(crate) numbers: Option<NumberKind>,
    pub(crate) len: u64,
    pub(crate) holders: Vec<NodeId>,
}

/// A copy of a result of this node that another one keeps for it, until this is dropped.
pub(crate) struct CopyAt {
    exchange: Weak<Exchange>,
    object: ObjectId,
    keepers: Keepers,
    pub(crate) node: NodeId,
}

impl CopyAt {
    /// The node has come back, and has said that it keeps it.
    pub(crate) fn is_kept_again(&mut self) {
        if let Some(exchange) = self.exchange.upgrade() {
            self.keepers.add(self.node, &exchange.peers.lock());
        }
    }
}

impl Drop for CopyAt {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.upgrade() {
            let keepers = self.keepers.let_go(&exchange.peers.lock());
            for keeper in keepers {
                exchange.send(keeper, OneWay::Drop(self.object));
            }
        }
    }
}

impl Exchange {
    /// Where a result of this node is, unless it is in messages. Only plain values can be had by others.
    pub(crate) fn whereabouts_of(&self, id: ObjectId, value: &Value) -> Option<Whereabouts> {
        if !value.references().is_empty() {
            return None;
        }
        let Body::At(at) = self.body(id, value) else {
            return None;
        };
        if (at.id, at.owner) != (id, self.me) {
            // It is known by another name, and kept under that.
            return None;
        }
        let At {
            numbers,
            len,
            mut holders,
            ..
        } = *at;
        if let Some(remote) = value.as_remote() {
            // Others may let their copies go.
            holders = remote.holders();
            if remote.here().is_some() {
                holders.push(self.me);
            }
        }
        Some(Whereabouts {
            numbers,
            len,
            holders,
        })
    }

    /// Says to those who keep a result of this node that it is to outlive it.
    pub(crate) fn let_outlive(&self, object: ObjectId, holders: &[NodeId]) {
        for holder in holders.iter().filter(|it| **it != self.me) {
            self.send(*holder, OneWay::Outlives(object));
        }
    }

    /// A node owns this, which is kept here or was left here by its owner before.
    pub(super) fn outlives(&self, owner: NodeId, object: ObjectId) {
        let mut state = self.outliving.0.lock();
        if state.taken.contains(&(owner, object)) {
            return;
        }
        let orphan = state.orphans.remove(&object).map(|(value, _)| value);
        if self.peers.lock().kept_for(owner, &object).is_some() {
            state.marked.insert((owner, object));
            drop(state);
            // It was reconstructed here.
            return drop(orphan);
        }
        // We may not have heard yet that its owner is lost.
        let before = state.marked.iter().find(|(_, it)| *it == object).copied();
        if let Some(before) = before {
            state.marked.remove(&before);
            state.taken.insert(before);
        }
        drop(state);
        let left = before.and_then(|(before, _)| self.peers.lock().forget_kept(before, &object));
        if let Some(value) = orphan.or(left) {
            self.keep_for(owner, object, value);
            self.outliving.mark(owner, object);
            // It cannot know that it is here still.
            self.send(owner, OneWay::Keeps(object));
        }
    }

    /// A node keeps a result of ours that was left there. If we need it, that is told when we do no more.
    pub(super) fn is_kept_by(&self, node: NodeId, object: ObjectId) {
        let value = self.owned.lock().get(&object);
        let is_needed = match value.as_ref().and_then(Remote::of) {
            Some(remote) => remote.is_kept_by(self, node),
            None => self
                .desk()
                .is_some_and(|desk| desk.is_kept_by(node, &object)),
        };
        if !is_needed {
            self.send(node, OneWay::Drop(object));
        }
    }

    /// The task that made a result of this node is another's now: if the result is here, it waits for its new owner.
    pub(crate) fn leave(&self, object: ObjectId, value: Value) {
        if value.in_store().is_none() {
            return;
        }
        let orphan = (value, Instant::now());
        let before = self.outliving.0.lock().orphans.insert(object, orphan);
        drop(before);
        // Its owner may have asked before it was one.
        let nodes: Vec<NodeId> = self.sessions.peers();
        for node in nodes {
            self.send(node, OneWay::Left(object));
        }
    }

    /// A result was left at a node, perhaps for us.
    pub(super) fn was_left_at(&self, node: NodeId, object: ObjectId) {
        if self.desk().is_some_and(|desk| desk.outlives(&object)) {
            self.let_outlive(object, &[node]);
        }
    }

    /// Removes lost peers. Results that outlive their owner become orphans, in the same step: the adopter of one finds it at
    /// any time. The caller drops the rest.
    pub(super) fn remove_peers(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<LostPeer> {
        let mut state = self.outliving.0.lock();
        let mut peers = self.peers.lock();
        let lost = nodes.map(|node| {
            let mut peer = peers.left(node);
            state.taken.retain(|(it, _)| *it != node);
            let of_it = state.marked.extract_if(.., |(it, _)| *it == node);
            let of_it: Vec<ObjectId> = of_it.map(|(_, object)| object).collect();
            let mut replaced = Vec::new();
            for object in of_it {
                if let Some(value) = peer.as_mut().and_then(|peer| peer.take_kept(&object)) {
                    let before = state.orphans.insert(object, (value, Instant::now()));
                    replaced.extend(before.map(|(value, _)| value));
                }
            }
            LostPeer {
                node,
                _peer: peer,
                _replaced: replaced,
            }
        });
        lost.collect()
    }

    /// Time goes by.
    pub(super) fn let_orphans_go(&self) {
        let mut state = self.outliving.0.lock();
        if state.orphans.is_empty() {
            return;
        }
        let is_confirmed = self.fabric().is_some_and(|it| it.is_confirmed());
        let mut over = Vec::new();
        state.orphans.retain(|object, (value, since)| {
            if !is_confirmed {
                *since = Instant::now();
            }
            let is_over = since.elapsed() >= PATIENCE;
            if is_over {
                over.push((*object, value.clone()));
            }
            !is_over
        });
        drop(state);
        for (object, value) in over {
            tracing::info!(%object, "nobody has come for a result whose owner is lost: it is let go");
            drop(value);
        }
    }

    /// Takes over a result whose owner is lost. `None` if nobody has it any more who could have it, unless
    /// `can_be_reconstructed`: then it is had when it is read.
    pub(crate) fn adopt_result(
        &self,
        id: ObjectId,
        tenant: &TenantName,
        place: &Whereabouts,
        can_be_reconstructed: bool,
    ) -> Option<Value> {
        if let Some((value, _)) = self.outliving.0.lock().orphans.remove(&id) {
            return Some(value);
        }
        let mut holders = place.holders.clone();
        holders.retain(|holder| self.is_alive(holder));
        if holders.is_empty() {
            let here = self.own_orphan(id, place);
            if here.is_some() || !can_be_reconstructed {
                return here;
            }
            // They are named where that fails, and may be there again by then.
            holders.clone_from(&place.holders);
            holders.retain(|holder| *holder != self.me);
        }
        let at = At {
            id,
            owner: self.me,
            tenant: tenant.clone(),
            numbers: place.numbers,
            len: place.len,
            holders: holders.clone(),
        };
        let body = Body::At(Box::new(at));
        // Values are laid out by it, and anybody could have written the record.
        let value = body.is_whole().then(|| self.value(body, Vec::new()))?;
        if let Some(remote) = Remote::of(&value) {
            remote.is_left();
        }
        // After it is known here of what they are about to say that they keep it.
        self.let_outlive(id, &holders);
        Some(value)
    }

    /// Whether some node has a value, as far as is known here.
    pub(crate) fn is_somewhere(&self, value: &Value) -> bool {
        value.as_remote().is_none_or(|remote| {
            remote.here().is_some() || remote.holders().iter().any(|holder| self.is_alive(holder))
        })
    }

    /// A result that is kept here for an owner of which this node has not heard yet that it is lost.
    fn own_orphan(&self, id: ObjectId, place: &Whereabouts) -> Option<Value> {
        let mut state = self.outliving.0.lock();
        let (owner, _) = *state.marked.iter().find(|(_, it)| *it == id)?;
        let value = self.peers.lock().forget_kept(owner, &id)?;
        state.marked.remove(&(owner, id));
        drop(state);
        let form = place.numbers.map_or(Form::Postcard, Form::Buffer);
        let is_it = |object: wasmrun_store::Object| object.form() == form;
        value.in_store().is_some_and(is_it).then_some(value)
    }

    /// Has a result of this node kept by another one, so that it outlives this one. By which, and what keeps it there
    /// if the value does not; else why by none.
    pub(crate) async fn keep_beyond(
        &self,
        id: ObjectId,
        value: &Value,
    ) -> Result<(NodeId, Option<CopyAt>), String> {
        let to = self.keep_outliving(id, value).await?;
        if let Some(remote) = Remote::of(value) {
            remote.moved(self, to);
            return Ok((to, None));
        }
        let copy = CopyAt {
            exchange: self.this.clone(),
            object: id,
            keepers: Keepers::new(&[to], &self.peers.lock()),
            node: to,
        };
        Ok((to, Some(copy)))
    }
}
