//! Objects whose bytes are at other nodes.
//!
//! Owns [`Remote`], and its reconstruction when no replica is left. How the bytes come is `transfer`'s. Must not:
//! know what tasks make of them.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{NodeId, ObjectId, ObjectName};
use wasmrun_model::reference::{Keepers, Next, OwnerSaid, Search};
use wasmrun_net::CallError;
use wasmrun_store::{Copy, Form, Object, ReadError, View};

use super::protocol::{At, Body, Made, OneWay, Request, Response};
use super::transfer::Wanted;
use super::{Exchange, INLINE_BYTES, borrow};
use crate::records::lineage::Origin;
use crate::records::object::{LoadError, Reference, RemoteBytes, Value, WeakValue, viewed};

/// How long the owner may take to say where an object is: it may have it reconstructed.
const WHERE: Duration = Duration::from_secs(600);
/// Objects that are waited for because nodes do not answer that live and may have them: how many wait, for which nodes.
#[derive(Default)]
pub(super) struct Stalls(Mutex<HashMap<ObjectId, (usize, Vec<NodeId>)>>);

/// One who waits so.
struct Stalled {
    exchange: Weak<Exchange>,
    object: ObjectId,
}

impl Drop for Stalled {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange.upgrade() else {
            return;
        };
        let mut stalls = exchange.stalls.0.lock();
        if let Some((waiting, _)) = stalls.get_mut(&self.object) {
            *waiting -= 1;
            if *waiting == 0 {
                stalls.remove(&self.object);
            }
        }
    }
}

/// Why the owner of an object does not say where it is.
enum Unanswered {
    /// It does not answer, and counts as alive.
    Silent,
    /// Nobody has it.
    Lost(TaskError),
}

/// An object whose bytes are at other nodes.
pub(crate) struct Remote {
    exchange: Weak<Exchange>,
    id: ObjectId,
    owner: NodeId,
    tenant: TenantName,
    form: Form,
    len: u64,
    holders: Mutex<Vec<NodeId>>,
    /// Who keeps it for us, if it is ours.
    keepers: Mutex<Keepers>,
    /// It in our store, once somebody has needed it.
    here: Mutex<Option<Object>>,
    /// What made it, if it is ours.
    origin: OnceLock<Origin>,
    /// It as it was reconstructed: keeps the copies that there are of that.
    reconstructed: Mutex<Option<Value>>,
    /// Held while it is brought, and reconstructed if need be.
    bringing: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({}, {} bytes)", self.id, self.len)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange.upgrade() else {
            return;
        };
        self.let_go(&exchange);
        exchange.forget_owned(&self.id);
        if self.owner != exchange.me && self.here.get_mut().is_some() {
            let message = OneWay::Holding(self.id, false);
            exchange.send(self.owner, message);
        }
    }
}

impl RemoteBytes for Remote {
    fn id(&self) -> ObjectId {
        self.id
    }

    fn size_bytes(&self) -> u64 {
        self.len
    }

    fn holders(&self) -> Vec<NodeId> {
        self.holders.lock().clone()
    }

    fn here(&self) -> Option<Object> {
        self.here.lock().clone()
    }

    fn view(&self) -> BoxFuture<'_, Result<View, LoadError>> {
        Box::pin(async {
            match self.view_here().await? {
                Some(view) => Ok(view),
                None => self.bring().await,
            }
        })
    }

    fn set_origin(&self, origin: Origin) {
        // The one from the first time is as good.
        let _ = self.origin.set(origin);
    }
}

impl Remote {
    /// The bytes of a value, if they are at other nodes.
    pub(super) fn of(value: &Value) -> Option<&Self> {
        let bytes: &dyn Any = value.as_remote()?;
        bytes.downcast_ref()
    }

    /// Its bytes, if it is in the store of this node.
    async fn view_here(&self) -> Result<Option<View>, LoadError> {
        let Some(object) = self.here() else {
            return Ok(None);
        };
        match viewed(&object).await {
            Ok(view) => Ok(Some(view)),
            // It was only a copy, and its room was needed.
            Err(ReadError::Dropped { .. }) => {
                *self.here.lock() = None;
                if let Some(exchange) = self.exchange.upgrade()
                    && self.owner != exchange.me
                {
                    let message = OneWay::Holding(self.id, false);
                    exchange.send(self.owner, message);
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Has it in the store of this node, as what must not be lost: who had it until now may leave.
    ///
    /// # Errors
    /// When it cannot be had, or there is no room for it: why, for people.
    pub(super) async fn keep_here(&self, exchange: &Exchange) -> Result<(), String> {
        let text = |error: LoadError| error.to_string();
        let view = match self.view_here().await.map_err(text)? {
            Some(view) => view,
            None => {
                exchange.check_room(self.id, self.len)?;
                self.bring().await.map_err(text)?
            }
        };
        view.object().set_copy(Copy::Primary);
        Ok(())
    }

    /// Another node, or this one, keeps it from now on; those who did until now need not any longer.
    pub(super) fn moved(&self, exchange: &Exchange, to: NodeId) {
        let keepers = Keepers::new(&[to], &exchange.peers.lock());
        let mut before = std::mem::replace(&mut *self.keepers.lock(), keepers);
        let mut holders = self.holders.lock();
        holders.clear();
        if to != exchange.me {
            holders.push(to);
        }
        drop(holders);
        let before = before.let_go(&exchange.peers.lock());
        for keeper in before {
            exchange.send(keeper, OneWay::Drop(self.id));
        }
    }

    /// It was left by its owner before: those who have it keep it for us from when they say so.
    pub(super) fn is_left(&self) {
        *self.keepers.lock() = Keepers::default();
    }

    /// A node keeps it for us again, or still. False if we do not need that.
    pub(super) fn is_kept_by(&self, exchange: &Exchange, node: NodeId) -> bool {
        if self.reconstructed.lock().is_some() {
            return false;
        }
        self.keepers.lock().add(node, &exchange.peers.lock());
        let mut holders = self.holders.lock();
        if !holders.contains(&node) {
            holders.push(node);
        }
        true
    }

    async fn bring(&self) -> Result<View, LoadError> {
        let lost = || LoadError::Lost(TaskError::Lost(self.id));
        let _one_at_a_time = self.bringing.lock().await;
        let me = self.exchange.upgrade().ok_or_else(lost)?.me;
        let mut search = Search::new(me, self.owner);
        let mut next = Next::Bring;
        let mut stalled = None;
        loop {
            next = match next {
                Next::Bring => match self.try_to_bring(&mut search).await? {
                    Ok(view) => return Ok(view),
                    Err(next) => next,
                },
                Next::AskOwner => {
                    let exchange = self.exchange.upgrade().ok_or_else(lost)?;
                    let said = match exchange.ask_where(self, search.misses()).await {
                        Ok(found) => {
                            let gone = search.misses();
                            let is_new = !found.iter().all(|holder| gone.contains(holder));
                            *self.holders.lock() = found;
                            OwnerSaid::At { is_new }
                        }
                        Err(Unanswered::Silent) => OwnerSaid::Silent,
                        Err(Unanswered::Lost(error)) => return Err(LoadError::Lost(error)),
                    };
                    search.owner_said(said)
                }
                Next::Reconstruct(pause) => {
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                    // It is the task that makes it which is waited for now.
                    stalled = None;
                    let exchange = self.exchange.upgrade().ok_or_else(lost)?;
                    exchange.reconstruct(self).await.map_err(LoadError::Lost)?;
                    search.reconstructed()
                }
                Next::Pause(pause, silent) => {
                    if !silent.is_empty() {
                        let exchange = self.exchange.upgrade().ok_or_else(lost)?;
                        stalled = Some(exchange.stalls(self.id, silent));
                    }
                    tokio::time::sleep(pause).await;
                    search.waited()
                }
                Next::Lost => break,
            };
        }
        drop(stalled);
        let exchange = self.exchange.upgrade().ok_or_else(lost)?;
        Err(LoadError::Lost(exchange.lost(self, search.misses())))
    }

    /// Brings it from one of those who have it, as far as is known. Else what is to be done next.
    async fn try_to_bring(&self, search: &mut Search) -> Result<Result<View, Next>, LoadError> {
        let lost = || LoadError::Lost(TaskError::Lost(self.id));
        if let Some(view) = self.view_here().await? {
            return Ok(Ok(view));
        }
        let exchange = self.exchange.upgrade().ok_or_else(lost)?;
        let mut holders = self.holders();
        if self.owner == exchange.me {
            holders.extend(exchange.borrowed.holders(&self.id));
        }
        let wanted = Wanted {
            id: self.id,
            owner: self.owner,
            tenant: self.tenant.clone(),
            form: self.form,
            len: self.len,
        };
        let brought = exchange.bring(wanted, holders, search.misses()).await?;
        if let Some(view) = brought.view {
            *self.here.lock() = Some(view.object().clone());
            if self.owner != exchange.me {
                let message = OneWay::Holding(self.id, true);
                exchange.send(self.owner, message);
            }
            return Ok(Ok(view));
        }
        // Who does not answer and counts as alive may well have it.
        let mut silent = brought.silent;
        silent.retain(|node| exchange.is_alive(node));
        let can_be_reconstructed = self.origin().is_some_and(Origin::can_be_reconstructed);
        Ok(Err(search.not_brought(
            brought.gone,
            silent,
            can_be_reconstructed,
        )))
    }

    pub(super) fn origin(&self) -> Option<&Origin> {
        self.origin.get()
    }

    /// It was reconstructed. False if that is another value than before.
    pub(super) fn was_reconstructed(&self, value: Value) -> bool {
        if value.size_bytes() != self.len {
            return false;
        }
        let now = Self::of(&value).map(Self::holders).unwrap_or_default();
        *self.holders.lock() = now;
        if let Some(exchange) = self.exchange.upgrade() {
            // Who is alive and only could not be reached need not keep it any longer. If it has made it again, that is
            // kept for the new value.
            self.let_go(&exchange);
        }
        if value.as_remote().is_none() {
            *self.here.lock() = value.in_store();
        }
        let before = self.reconstructed.lock().replace(value);
        drop(before);
        true
    }

    /// Those who keep it for us need not any longer.
    fn let_go(&self, exchange: &Exchange) {
        let keepers = self.keepers.lock().let_go(&exchange.peers.lock());
        for keeper in keepers {
            exchange.send(keeper, OneWay::Drop(self.id));
        }
    }
}

/// Results that this node owns and others store, as long as something refers to them.
///
/// There may be two of one object for a while: the report of a superseded attempt may come late, and is discarded.
#[derive(Default)]
pub(super) struct Owned(HashMap<ObjectId, Vec<WeakValue>>);

impl Owned {
    fn insert(&mut self, object: ObjectId, value: &Value) {
        let values = self.0.entry(object).or_default();
        values.push(value.downgrade());
    }

    /// The result that was reported last of those that are referred to.
    pub(super) fn get(&self, object: &ObjectId) -> Option<Value> {
        let values = self.0.get(object)?;
        values.iter().rev().find_map(WeakValue::upgrade)
    }

    /// Removes those of an object that nothing refers to.
    fn forget(&mut self, object: &ObjectId) {
        if let Some(values) = self.0.get_mut(object) {
            values.retain(|value| !value.is_gone());
            if values.is_empty() {
                self.0.remove(object);
            }
        }
    }
}

impl Exchange {
    /// What a message says about the bytes of a value.
    pub(super) fn body(&self, id: ObjectId, value: &Value) -> Body {
        if let Some(encoded) = value.as_inline() {
            return Body::Inline(encoded.clone());
        }
        let (mut holders, owner, tenant, form, len);
        match Remote::of(value) {
            Some(remote) => {
                holders = remote.holders();
                (owner, tenant) = (remote.owner, remote.tenant.clone());
                (form, len) = (remote.form, remote.len);
                if remote.here().is_some() {
                    holders.push(self.me);
                }
            }
            None => {
                let object = value.in_store().expect("a value is somewhere");
                holders = vec![self.me];
                owner = self.me;
                (tenant, form, len) = (object.tenant().clone(), object.form(), object.len());
            }
        }
        if owner == self.me {
            for holder in self.borrowed.holders(&id) {
                if !holders.contains(&holder) {
                    holders.push(holder);
                }
            }
        }
        Body::At(Box::new(At {
            id: value.stored_id().unwrap_or(id),
            owner,
            tenant,
            numbers: match form {
                Form::Postcard => None,
                Form::Buffer(kind) => Some(kind),
            },
            len,
            holders,
        }))
    }

    /// The value of which a message says this.
    pub(super) fn value(&self, body: Body, references: Vec<Reference>) -> Value {
        match body {
            Body::Inline(encoded) => Value::inline(encoded, references),
            Body::At(at) => {
                let At {
                    id,
                    owner,
                    tenant,
                    numbers,
                    len,
                    holders,
                } = *at;
                let keepers = match owner == self.me {
                    true => Keepers::new(&holders, &self.peers.lock()),
                    false => Keepers::default(),
                };
                let remote = Remote {
                    exchange: self.this.clone(),
                    id,
                    owner,
                    keepers: Mutex::new(keepers),
                    tenant,
                    form: numbers.map_or(Form::Postcard, Form::Buffer),
                    len,
                    holders: Mutex::new(holders),
                    here: Mutex::default(),
                    origin: OnceLock::new(),
                    reconstructed: Mutex::default(),
                    bringing: tokio::sync::Mutex::default(),
                };
                let value = Value::remote(Box::new(remote), references);
                if owner == self.me {
                    self.owned.lock().insert(id, &value);
                }
                value
            }
        }
    }

    /// An own result is needed no more. A reconstructed one has the same name.
    fn forget_owned(&self, object: &ObjectId) {
        self.owned.lock().forget(object);
    }

    /// Whether an incarnation of a node that was told to us goes on, as far as is known here.
    pub(crate) fn is_alive(&self, node: &NodeId) -> bool {
        self.peers.lock().is_there(node)
    }

    /// Somebody waits for an object because these nodes do not answer.
    fn stalls(&self, object: ObjectId, silent: Vec<NodeId>) -> Stalled {
        let mut stalls = self.stalls.0.lock();
        let (waiting, nodes) = stalls.entry(object).or_default();
        *waiting += 1;
        *nodes = silent;
        Stalled {
            exchange: self.this.clone(),
            object,
        }
    }

    /// The nodes that do not answer and without which an object cannot be had, if somebody waits for it because of
    /// that.
    pub(crate) fn stalled_by(&self, object: &ObjectId) -> Option<Vec<NodeId>> {
        let stalls = self.stalls.0.lock();
        stalls.get(object).map(|(_, nodes)| nodes.clone())
    }

    /// Why an object is lost and is not reconstructed, for its readers. `gone`: the nodes that do not have it.
    fn lost(&self, remote: &Remote, gone: &[NodeId]) -> TaskError {
        match remote.owner == self.me || self.is_alive(&remote.owner) {
            true => TaskError::Gone {
                object: remote.id,
                why: format!(
                    "{}, and what made it cannot be run again; put it again",
                    self.names_of(gone)
                ),
            },
            false => self.lost_with(remote.owner, remote.id),
        }
    }

    /// What is said of an object whose owner is lost: it alone knew what could be done.
    pub(super) fn lost_with(&self, owner: NodeId, object: ObjectId) -> TaskError {
        let name = self.name_of(owner);
        let why = format!(
            "node {name}, which owned it, is lost, and no other node has it; put it again, or submit again what made it"
        );
        TaskError::Gone { object, why }
    }

    /// Asks the owner of an object where it is.
    async fn ask_where(&self, remote: &Remote, gone: &[NodeId]) -> Result<Vec<NodeId>, Unanswered> {
        let lost = || Unanswered::Lost(self.lost(remote, gone));
        let fabric = self.fabric().ok_or_else(lost)?;
        let name = ObjectName {
            id: remote.id,
            owner: remote.owner,
        };
        let request = Request::Where {
            name,
            gone: gone.to_vec(),
        };
        let made = match fabric.request(remote.owner, request, WHERE).await {
            Ok(Response::Made(made)) => made,
            Err(CallError::NotUnderstood | CallError::Message(_) | CallError::TooNew(_))
            | Ok(_) => return Err(lost()),
            Err(_) if self.is_alive(&remote.owner) => return Err(Unanswered::Silent),
            Err(_) => return Err(lost()),
        };
        let made = made.result.map_err(TaskError::from);
        match made.map_err(Unanswered::Lost)?.body {
            Body::At(at) => Ok(at.holders),
            // It was small enough for a message all the time: that is another object.
            Body::Inline(_) => Err(lost()),
        }
    }

    /// Where an object of ours is, for a node that did not find it where it was.
    pub(super) async fn whereabouts(
        &self,
        _from: NodeId,
        name: ObjectName,
        gone: &[NodeId],
    ) -> Made {
        for node in gone {
            self.borrowed.set_holder(*node, name.id, false);
        }
        let Some(value) = self.value_of(&name) else {
            return borrow::lost_answer(name);
        };
        if let Some(remote) = value.as_remote() {
            // The read finds out which replicas are gone, and has it reconstructed.
            if remote.holders().iter().all(|holder| gone.contains(holder))
                && remote.view().await.is_err()
            {
                return borrow::lost_answer(name);
            }
        }
        // No names: whoever asks has them already.
        Made {
            name,
            result: Ok(super::protocol::Carried {
                body: self.body(name.id, &value),
                names: Vec::new(),
            }),
            ty: None,
        }
    }
}

/// How many bytes a value may have that is put into a message.
pub(super) const MAX_INLINE: usize = INLINE_BYTES;

#[cfg(test)]
mod tests {
    use wasmrun_model::id::TaskId;
    use wasmrun_model::value::Encoded;

    use super::*;

    #[test]
    fn a_late_report_hides_no_result() {
        let object = ObjectId::of(TaskId::from_bytes([1; 16]), 0);
        let value = |byte| Value::inline(Encoded::Postcard(vec![byte]), Vec::new());
        let (current, late) = (value(1), value(2));
        let mut owned = Owned::default();
        owned.insert(object, &current);
        owned.insert(object, &late);
        drop(late);
        owned.forget(&object);
        let found = owned.get(&object).expect("it is referred to");
        assert_eq!(found.as_inline(), current.as_inline());
        drop((found, current));
        owned.forget(&object);
        assert!(owned.get(&object).is_none());
        assert!(owned.0.is_empty());
    }
}
