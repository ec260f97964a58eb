//! Having others keep what a node that leaves has.
//!
//! A node that stops or is drained tells the owner of each result that it keeps, and the owner has another node keep it:
//! itself or one that has a copy or brings one just now, if there is such. What the node owns itself and others were
//! given, those bring while it is there.
//!
//! Owns what is said and done for that. Must not: decide when a node leaves.
//!
//! Invariant: a result is kept where it is until its owner has heard that it is kept elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use wasmrun_model::id::{NodeId, ObjectId, ObjectName};
use wasmrun_model::value::NumberKind;
use wasmrun_net::CallError;
use wasmrun_store::{Copy, Form};

use super::protocol::{At, Body, Moved, OneWay, Request, Response};
use super::transfer::Wanted;
use super::{Exchange, Fabric, Remote};

use crate::records::object::{RemoteBytes, Value};
use crate::records::wait::Countdown;

/// How many objects are asked about at a time.
const AT_A_TIME: usize = 8;
/// How many nodes are asked to keep an object.
const MOST_ASKED: usize = 4;
/// How long having one object elsewhere may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How soon somebody is asked again who does not know of an object yet or has too much to do,
const AGAIN: Duration = Duration::from_millis(100);
/// and how often.
const MOST_TRIES: usize = 10;
/// How often a drained node looks whether there is something new.
const EVERY: Duration = Duration::from_millis(500);
/// After how long a drained node tries once more what could not be moved.
const ONCE_MORE: Duration = Duration::from_secs(10);

/// Why nobody keeps an object, if nobody could be asked.
const NOBODY: &str = "no other node takes anything";
/// How many of the objects that cannot be moved a drained node names in its log at a time.
const MOST_NAMED: usize = 20;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Moving(Mutex<Option<AbortHandle>>);

impl Drop for Moving {
    fn drop(&mut self) {
        if let Some(moving) = self.0.get_mut().take() {
            moving.abort();
        }
    }
}

/// What is to be elsewhere, and who is asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Leaving {
    /// A result that is kept for its owner.
    Result(NodeId, ObjectId),
    /// An object of ours that a node was given.
    Loan(NodeId, ObjectName),
}

/// What came of it, so far.
type Tried = BTreeMap<Leaving, Result<(), String>>;

/// An object that goes with its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StrandedObject {
    pub(crate) object: ObjectId,
    /// What the node is called that needs it.
    pub(crate) needed_by: String,
    pub(crate) why: String,
}

/// How many of them are elsewhere.
fn moved(tried: &Tried) -> usize {
    tried.values().filter(|it| it.is_ok()).count()
}

impl Exchange {
    /// Has others keep what this node has and they need, until all of it is elsewhere or time is up. How many objects
    /// were moved, and which were not.
    pub(crate) async fn move_out(&self, until: Instant) -> (usize, Vec<StrandedObject>) {
        let mut tried = Tried::new();
        let _ = tokio::time::timeout_at(until, self.move_all(&mut tried)).await;
        let moved = moved(&tried);
        let left = self.leaving().into_iter().filter_map(|leaving| {
            let why = match tried.remove(&leaving) {
                Some(Ok(())) => return None,
                Some(Err(why)) => why,
                None => "there was no time".to_owned(),
            };
            Some(self.stranded(leaving, why))
        });
        (moved, left.collect())
    }

    /// Begins to have others keep what this node has, as long as it is drained; or ends that.
    pub(super) fn move_while_drained(&self, is_drained: bool) {
        let before = self.moving.0.lock().take();
        if let Some(before) = before {
            before.abort();
        }
        let (true, Some(shared)) = (is_drained, self.shared.upgrade()) else {
            return;
        };
        let this = self.this.clone();
        // It ends when the node is drained no longer, or with the exchange.
        let moving = shared.control.spawn(async move {
            let (mut tried, mut since) = (Tried::new(), Instant::now());
            let mut named = BTreeSet::new();
            loop {
                let Some(exchange) = this.upgrade() else {
                    return;
                };
                if let Some(desk) = exchange.desk() {
                    // It says by itself what stays.
                    desk.place_results().await;
                }
                let before = moved(&tried);
                exchange.move_all(&mut tried).await;
                let moved = moved(&tried) - before;
                exchange.name_new(&tried, &mut named);
                if moved > 0 {
                    tracing::info!(
                        moved,
                        "other nodes have what they need of this one, as far as they can"
                    );
                }
                let leaving = exchange.leaving();
                tried.retain(|it, _| leaving.binary_search(it).is_ok());
                named.retain(|it| leaving.binary_search(it).is_ok());
                if since.elapsed() >= ONCE_MORE {
                    since = Instant::now();
                    tried.retain(|_, came| came.is_ok());
                }
                drop(exchange);
                tokio::time::sleep(EVERY).await;
            }
        });
        *self.moving.0.lock() = Some(moving.abort_handle());
    }

    /// Asks once for each thing that is here for others, also for what comes meanwhile.
    async fn move_all(&self, tried: &mut Tried) {
        loop {
            let mut due = self.leaving();
            due.retain(|it| !tried.contains_key(it));
            if due.is_empty() {
                return;
            }
            let asking = due
                .into_iter()
                .map(|it| async move { (it, self.ask_away(it).await) });
            let mut asking = stream::iter(asking).buffer_unordered(AT_A_TIME);
            while let Some((leaving, came)) = asking.next().await {
                tried.insert(leaving, came);
            }
        }
    }

    /// Says what cannot be had elsewhere, once.
    fn name_new(&self, tried: &Tried, named: &mut BTreeSet<Leaving>) {
        for (leaving, came) in tried {
            let Err(why) = came else {
                continue;
            };
            if named.len() >= MOST_NAMED || !named.insert(*leaving) {
                continue;
            }
            let left = self.stranded(*leaving, why.clone());
            tracing::warn!(
                object = %left.object, node = %left.needed_by, why = %left.why,
                "an object that another node needs is at this drained one only"
            );
        }
    }

    fn stranded(&self, leaving: Leaving, why: String) -> StrandedObject {
        let (node, object) = match leaving {
            Leaving::Result(owner, object) => (owner, object),
            Leaving::Loan(to, name) => (to, name.id),
        };
        let fabric = self.fabric();
        StrandedObject {
            object,
            needed_by: fabric.map_or_else(|| node.to_string(), |it| it.name_of(node)),
            why,
        }
    }

    /// What others need that is here, in order.
    fn leaving(&self) -> Vec<Leaving> {
        let peers = self.peers.lock();
        let kept = peers.results();
        let kept = kept.map(|(owner, object, _)| Leaving::Result(owner, *object));
        let mut all: Vec<Leaving> = kept.collect();
        drop(peers);
        let lent = self.lent_and_made().into_iter();
        let own = lent.filter(|(_, name)| name.owner == self.me);
        all.extend(own.map(|(to, name)| Leaving::Loan(to, name)));
        all.sort_unstable();
        all
    }

    /// Asks whoever can to have something elsewhere. Else why it is not, for people.
    async fn ask_away(&self, leaving: Leaving) -> Result<(), String> {
        let fabric = self.fabric().ok_or("the node is stopping")?;
        let (to, request) = match leaving {
            Leaving::Result(owner, object) => (owner, Request::MoveAway(object)),
            Leaving::Loan(to, name) => (to, Request::Bring(name)),
        };
        for _ in 0..MOST_TRIES {
            match fabric.request(to, request.clone(), PATIENCE).await {
                Ok(Response::Moved(Moved::Done)) => return Ok(()),
                Ok(Response::Moved(Moved::Refused(why))) => return Err(why),
                Ok(Response::Moved(Moved::Unknown)) | Err(CallError::Busy) => {}
                Ok(_) | Err(CallError::NotUnderstood | CallError::TooNew(_)) => {
                    return Err("the node that needs it has an older wasmrun".to_owned());
                }
                Err(error) => return Err(format!("the node that needs it does not say: {error}")),
            }
            if !self.is_here_for(leaving) {
                return Ok(());
            }
            tokio::time::sleep(AGAIN).await;
        }
        if let Leaving::Result(owner, object) = leaving {
            // It has never heard of it, or has forgotten it in a way that we have not heard of.
            let forgotten = self.peers.lock().forget_kept(owner, &object);
            self.outliving.forget(owner, object);
            drop(forgotten);
        }
        Ok(())
    }

    fn is_here_for(&self, leaving: Leaving) -> bool {
        match leaving {
            Leaving::Result(owner, object) => self.peers.lock().kept_for(owner, &object).is_some(),
            Leaving::Loan(_, name) => self.lent_as(&name).is_some(),
        }
    }

    /// A node that keeps a result of ours leaves: another one is to keep it.
    pub(super) async fn move_away(&self, from: NodeId, object: ObjectId) -> Moved {
        let value = self.owned.lock().get(&object);
        let Some(value) = value else {
            if let Some(desk) = self.desk() {
                desk.has_left(&object, from);
            }
            return Moved::Unknown;
        };
        match self.keep_elsewhere(from, &value).await {
            Ok(to) => {
                tracing::debug!(%object, node = %from, %to, "a result is kept by another node");
                Moved::Done
            }
            Err(why) => Moved::Refused(why),
        }
    }

    /// Has a result of ours kept by another node than this one. By which; else why by none.
    async fn keep_elsewhere(&self, from: NodeId, value: &Value) -> Result<NodeId, String> {
        let fabric = self.fabric().ok_or("its owner is stopping")?;
        let remote = Remote::of(value).ok_or("its owner has it itself")?;
        let desk = self.desk();
        let outlives = desk.as_ref().is_some_and(|it| it.outlives(&remote.id()));
        let mut why = NOBODY.to_owned();
        for to in self.who_keeps(&*fabric, remote, from, outlives) {
            let came = match to == self.me {
                true => remote.keep_here(self).await,
                false => {
                    let asked = self.ask_to_keep(&*fabric, to, remote.id(), value, outlives);
                    asked.await
                }
            };
            match came {
                Ok(()) => {
                    remote.moved(self, to);
                    if let Some(desk) = desk.filter(|_| outlives) {
                        desk.has_moved(&remote.id());
                    }
                    return Ok(to);
                }
                Err(error) => why = format!("node {}: {error}", fabric.name_of(to)),
            }
        }
        Err(why)
    }

    /// Who is to keep a result of ours instead of a node that leaves, the best first: this node or others that have it,
    /// those that bring it just now, this node, and others. One that outlives this node is best kept by others.
    fn who_keeps(
        &self,
        fabric: &dyn Fabric,
        remote: &Remote,
        from: NodeId,
        outlives: bool,
    ) -> Vec<NodeId> {
        let own = (!fabric.is_leaving()).then_some(self.me);
        let is_first = remote.here().is_some() && !outlives;
        let (near, rest) = self.others_for(fabric, remote.id(), &remote.holders());
        let mut all: Vec<NodeId> = own.filter(|_| is_first).into_iter().collect();
        all.extend(near);
        all.extend(own.filter(|_| !is_first && !outlives));
        all.extend(rest);
        all.extend(own.filter(|_| outlives));
        all.retain(|node| *node != from);
        all.truncate(MOST_ASKED);
        all
    }

    /// Other nodes that could keep an object: those that have it or bring it just now, and the rest.
    fn others_for(
        &self,
        fabric: &dyn Fabric,
        id: ObjectId,
        holders: &[NodeId],
    ) -> (Vec<NodeId>, Vec<NodeId>) {
        let mut open = fabric.open_nodes();
        let mut near = holders.to_vec();
        near.extend(self.borrowed.holders(&id));
        near.extend(self.spread.bringing(&id));
        let mut seen = BTreeSet::new();
        near.retain(|node| open.contains(node) && seen.insert(*node));
        open.retain(|node| !seen.contains(node));
        // Not the same one for all: any is as good.
        let first = usize::from(id.task().as_bytes()[0]) % open.len().max(1);
        open.rotate_left(first);
        (near, open)
    }

    /// Has a result of ours, which outlives this node, kept by another one. By which; else why by none.
    pub(super) async fn keep_outliving(
        &self,
        id: ObjectId,
        value: &Value,
    ) -> Result<NodeId, String> {
        let fabric = self.fabric().ok_or("the node is in no cluster")?;
        let holders = value.as_remote().map(|it| it.holders()).unwrap_or_default();
        let (near, rest) = self.others_for(&*fabric, id, &holders);
        let mut why = NOBODY.to_owned();
        for to in near.into_iter().chain(rest).take(MOST_ASKED) {
            match self.ask_to_keep(&*fabric, to, id, value, true).await {
                Ok(()) => return Ok(to),
                Err(error) => why = format!("node {}: {error}", fabric.name_of(to)),
            }
        }
        Err(why)
    }

    async fn ask_to_keep(
        &self,
        fabric: &dyn Fabric,
        to: NodeId,
        id: ObjectId,
        value: &Value,
        outlives: bool,
    ) -> Result<(), String> {
        let Body::At(at) = self.body(id, value) else {
            return Err("it is in messages only".to_owned());
        };
        let request = Request::Keep { at, outlives };
        let answer = fabric.request(to, request, PATIENCE).await;
        // It says by itself what it reads; that it keeps this it has said.
        self.spread.ended(&id, to);
        match answer {
            Ok(Response::Moved(Moved::Done)) => Ok(()),
            Ok(Response::Moved(Moved::Refused(why))) => Err(why),
            Ok(_) | Err(CallError::NotUnderstood | CallError::TooNew(_)) => {
                Err("it has an older wasmrun".to_owned())
            }
            Err(error) => {
                // It may keep it all the same, and nobody would ever say that it need not.
                self.send(to, OneWay::Drop(id));
                Err(error.to_string())
            }
        }
    }

    /// Keeps an object for its owner, which another node has that leaves.
    pub(super) async fn keep_copy(&self, owner: NodeId, at: At, outlives: bool) -> Moved {
        let id = at.id;
        match self.try_to_keep(owner, at).await {
            Ok(()) => {
                if outlives {
                    self.outliving.mark(owner, id);
                }
                Moved::Done
            }
            Err(why) => Moved::Refused(why),
        }
    }

    async fn try_to_keep(&self, owner: NodeId, at: At) -> Result<(), String> {
        let fabric = self.fabric().ok_or("it is stopping")?;
        if fabric.is_leaving() {
            return Err("it is drained itself".to_owned());
        }
        let At {
            id,
            tenant,
            numbers,
            len,
            holders,
            ..
        } = at;
        let is_whole =
            |kind: NumberKind| len.is_multiple_of(u64::try_from(kind.width_bytes()).unwrap_or(1));
        if !numbers.is_none_or(is_whole) {
            return Err("it is a list of numbers whose last one is cut off".to_owned());
        }
        self.check_room(id, len)?;
        let wanted = Wanted {
            id,
            owner,
            tenant,
            form: numbers.map_or(Form::Postcard, Form::Buffer),
            len,
        };
        let brought = self.bring(wanted, holders, &[]).await;
        let brought = brought.map_err(|error| error.to_string())?;
        let view = brought.view.ok_or("nobody gives it")?;
        view.object().set_copy(Copy::Primary);
        self.keep_for(owner, id, Value::stored(view.object().clone(), Vec::new()));
        Ok(())
    }

    /// The owner of an object that was given to this node leaves: it is to be here.
    pub(super) async fn bring_for_good(&self, from: NodeId, name: ObjectName) -> Moved {
        let Some(cell) = self.borrowed.foreign(&name).filter(|_| name.owner == from) else {
            return Moved::Unknown;
        };
        let countdown = Countdown::new(1);
        if !cell.watch(&countdown) {
            cell.want();
            countdown.done().await;
        }
        let value = cell.value();
        let Some(remote) = value.as_ref().and_then(Remote::of) else {
            // It came in a message, or with an error.
            return Moved::Done;
        };
        match remote.keep_here(self).await {
            Ok(()) => Moved::Done,
            Err(why) => Moved::Refused(why),
        }
    }

    /// Whether there is room for an object, in memory or on disk, that is not here. Else what there is, for people.
    pub(super) fn check_room(&self, id: ObjectId, len: u64) -> Result<(), String> {
        let shared = self.shared.upgrade().ok_or("it is stopping")?;
        if shared.store.get(&id).is_some() {
            return Ok(());
        }
        let usage = shared.store.usage();
        let on_disk = usage
            .spill_capacity_bytes
            .saturating_sub(usage.spilled_bytes);
        let room = usage.free_bytes + usage.droppable_bytes + on_disk;
        match len <= room {
            true => Ok(()),
            false => Err(format!(
                "it has room for {room} bytes of objects, and this one has {len}"
            )),
        }
    }
}
