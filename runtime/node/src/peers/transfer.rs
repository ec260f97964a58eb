//! Bringing the bytes of objects from other nodes, and sending them.
//!
//! Owns what is on its way here ([`Transfers`]). The bytes go from a holder straight into an extent of this node's store,
//! on several streams. All who need an object here share one transfer, which ends when nobody waits for it any more.
//! What a holder cannot give any more, or gives wrong, comes from another; what has arrived stays. Must not: know what
//! tasks make of the bytes; have anything reconstructed.
//!
//! Each piece is checked against the checksum of the first time that it was sent, which goes from holder to holder with
//! the object. So a node that passes on what has changed in its memory or on its disk is found out.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes as Shared;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use wasmrun_model::fairness::{TenantName, Weight};
use wasmrun_model::id::{NodeId, ObjectId, ObjectName};
use wasmrun_model::random::Random;
use wasmrun_net::{Arrived, BulkRefusal, BulkSender, PullOptions, PullWhy, Range};
use wasmrun_store::{Copy, CreateError, Form, ReadError, View, Writer};

use super::protocol::{Body, Bulk, OneWay, Request, Response};
use super::turns::{Gate, Taker};
use super::{Exchange, Fabric};
use crate::guests::shared::Shared as Node;
use crate::records::object::{LoadError, viewed};

/// How much is handed to a stream at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// From this size on the owner says who sends an object: smaller ones are sent in the time of a question.
const SPREAD_FROM_BYTES: u64 = 4 << 20;
/// How long the owner may take to say that.
const SOURCE: Duration = Duration::from_secs(10);
/// How soon is looked again for an object that somebody else is about to have here.
const LOOK: Duration = Duration::from_millis(5);

/// On how many streams at a time objects come from one node: as many as it serves.
const STREAMS_AT_A_TIME: usize = 32;
/// How many pieces at a time are handed to the connection with a node, while several tenants have some to send there. More
/// would go by streams, and not by tenants.
const PIECES_AT_A_TIME: usize = 1;

/// For how many objects at a time memory is made ahead of their bytes.
const TOUCHED_AT_A_TIME: usize = 2;

/// What is on its way here, and how much came and went.
pub(super) struct Transfers {
    under_way: Mutex<HashMap<ObjectId, Weak<Transfer>>>,
    /// Chooses among holders. Any choice is a right one, and other nodes choose otherwise.
    random: Mutex<Random>,
    /// Who brings something from a node next, and who sends something to one.
    asking: Gate,
    sending: Gate,
}

impl Transfers {
    pub(super) fn of(node: NodeId) -> Self {
        let seed = *node.as_bytes().first_chunk().expect("an id has 16 bytes");
        Self {
            under_way: Mutex::default(),
            random: Mutex::new(Random::new(u64::from_le_bytes(seed))),
            asking: Gate::new(STREAMS_AT_A_TIME, true),
            sending: Gate::new(PIECES_AT_A_TIME, false),
        }
    }

    pub(super) fn set_weight(&self, tenant: &TenantName, weight: Weight) {
        self.asking.set_weight(tenant, weight);
        self.sending.set_weight(tenant, weight);
    }
}

/// How much of objects and modules came to a node and went from it, since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes of objects that came.
    pub received_bytes: u64,
    /// Bytes of objects that went, as far as they were handed to the network.
    pub sent_bytes: u64,
    /// How often bytes came that are not what they were when they were made.
    pub changed: u64,
    /// Modules that came.
    pub modules: u64,
    /// Their bytes.
    pub module_bytes: u64,
}

/// What is to be brought.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) id: ObjectId,
    pub(super) owner: NodeId,
    pub(super) tenant: TenantName,
    pub(super) form: Form,
    pub(super) len: u64,
}

/// What came of it.
#[derive(Debug, Clone)]
pub(super) struct Brought {
    /// None if nobody gives it. It cannot be dropped before somebody has read it, whoever else waits for room.
    pub(super) view: Option<View>,
    /// Who could not give it.
    pub(super) gone: Vec<NodeId>,
    /// Those of them that could not be reached, or had no time: they may have it.
    pub(super) silent: Vec<NodeId>,
}

/// An object on its way here, kept by all who wait for it.
struct Transfer {
    outcome: watch::Receiver<Option<Result<Brought, LoadError>>>,
    task: AbortHandle,
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Tells the owner, unless the object has come, that this node is no source for others.
struct SourceGuard<'a> {
    exchange: &'a Exchange,
    wanted: &'a Wanted,
    is_here: bool,
}

impl Drop for SourceGuard<'_> {
    fn drop(&mut self) {
        if !self.is_here {
            let message = OneWay::Holding(self.wanted.id, false);
            self.exchange.send(self.wanted.owner, message);
        }
    }
}

impl Exchange {
    /// Brings an object from one of these nodes, or another that its owner knows of, into the store; but not from
    /// those that are gone. Where somebody brings it already, this waits for that.
    pub(super) async fn bring(
        &self,
        wanted: Wanted,
        holders: Vec<NodeId>,
        gone: &[NodeId],
    ) -> Result<Brought, LoadError> {
        let nobody = || Brought {
            view: None,
            gone: gone.to_vec(),
            silent: Vec::new(),
        };
        let Some(transfer) = self.transfer(wanted, holders, gone) else {
            return Ok(nobody());
        };
        let mut outcome = transfer.outcome.clone();
        let outcome = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            // The node is stopping.
            Err(_) => None,
        };
        outcome.unwrap_or_else(|| Ok(nobody()))
    }

    /// The transfer of an object, begun if there is none.
    fn transfer(
        &self,
        wanted: Wanted,
        holders: Vec<NodeId>,
        gone: &[NodeId],
    ) -> Option<Arc<Transfer>> {
        let (this, fabric) = (self.this.upgrade()?, self.fabric()?);
        let mut under_way = self.transfers.under_way.lock();
        if let Some(transfer) = under_way.get(&wanted.id).and_then(Weak::upgrade)
            && transfer.outcome.borrow().is_none()
        {
            return Some(transfer);
        }
        let (teller, outcome) = watch::channel(None);
        let (id, gone) = (wanted.id, gone.to_vec());
        // It ends when it is done, with the last who waits, or with the node.
        let task = fabric.bulk().spawn(async move {
            let brought = this.run(&wanted, holders, gone).await;
            this.transfers.under_way.lock().remove(&wanted.id);
            teller.send_replace(Some(brought));
        });
        let transfer = Arc::new(Transfer {
            outcome,
            task: task.abort_handle(),
        });
        under_way.retain(|_, it| it.strong_count() > 0);
        under_way.insert(id, Arc::downgrade(&transfer));
        Some(transfer)
    }

    async fn run(
        &self,
        wanted: &Wanted,
        mut holders: Vec<NodeId>,
        mut gone: Vec<NodeId>,
    ) -> Result<Brought, LoadError> {
        let nobody = |gone, silent| {
            Ok(Brought {
                view: None,
                gone,
                silent,
            })
        };
        let mut silent = Vec::new();
        let (Some(shared), Some(fabric)) = (self.shared.upgrade(), self.fabric()) else {
            return nobody(gone, silent);
        };
        let is_spread = wanted.owner != self.me && wanted.len >= SPREAD_FROM_BYTES;
        holders.retain(|it| *it != self.me && !gone.contains(it));
        if holders.is_empty() && !is_spread && shared.store.get(&wanted.id).is_none() {
            // No need to make room.
            return nobody(gone, silent);
        }
        let mut writer = match room(&shared, wanted).await? {
            Place::Room(writer) => writer,
            Place::Here(view) => {
                let view = Some(view);
                return Ok(Brought { view, gone, silent });
            }
        };
        let mut guard = is_spread.then_some(SourceGuard {
            exchange: self,
            wanted,
            is_here: false,
        });
        let mut missing = vec![Range {
            offset: 0,
            len: wanted.len,
        }];
        let (mut sums, mut is_touched) = (Vec::new(), false);
        while !missing.is_empty() {
            let told = match is_spread {
                true => self.ask_source(&*fabric, wanted, &gone).await,
                false => None,
            };
            holders.retain(|it| *it != self.me && !gone.contains(it));
            let holder = match told {
                Some(holder) => holder,
                // At random, so that copies of an object that many need spread as a tree.
                None if !holders.is_empty() => holders.swap_remove(self.pick(holders.len())),
                None => return nobody(gone, silent),
            };
            if !std::mem::replace(&mut is_touched, true) {
                touch_ahead(&writer);
            }
            let (left, arrived, is_silent) = self
                .pull_from(&*fabric, holder, wanted, &mut writer, &missing)
                .await;
            sums.extend(arrived);
            if is_silent {
                silent.push(holder);
            }
            if !left.is_empty() {
                gone.push(holder);
            }
            missing = left;
        }
        let object = writer.seal();
        for Arrived { range, sum } in sums {
            object.set_sum(range.offset, range.len, sum);
        }
        let view = viewed(&object).await?;
        // The one that must not be lost is where it was made. Said when it is held: a copy that nobody holds
        // goes at once to whoever waits for its room.
        object.set_copy(Copy::Secondary);
        if let Some(guard) = &mut guard {
            guard.is_here = true;
        }
        let view = Some(view);
        Ok(Brought { view, gone, silent })
    }

    /// Brings these ranges from a node. What it did not give, the checksums of what it did, and whether that is
    /// because it did not answer.
    async fn pull_from(
        &self,
        fabric: &dyn Fabric,
        holder: NodeId,
        wanted: &Wanted,
        writer: &mut Writer,
        missing: &[Range],
    ) -> (Vec<Range>, Vec<Arrived>, bool) {
        let options = PullOptions::for_len(wanted.len);
        let (mut left, mut arrived, mut is_silent) = (Vec::new(), Vec::new(), false);
        let taker = self.transfers.asking.enter(holder, &wanted.tenant);
        for range in missing {
            let (from, to) = (range.offset as usize, (range.offset + range.len) as usize);
            let pieces = (to - from).div_ceil(options.piece_bytes);
            let turn = taker.turn(range.len, pieces.min(options.streams)).await;
            let started = Instant::now();
            let request = Bulk::Object(wanted.id);
            let pulled = fabric
                .pull(
                    holder,
                    &request,
                    range.offset,
                    &mut writer[from..to],
                    &options,
                )
                .await;
            drop(turn);
            let came = match pulled {
                None => {
                    left.push(*range);
                    Vec::new()
                }
                Some(Ok(came)) => {
                    self.count(|counters| &counters.transfers_in, 1);
                    self.note_transfer(holder, range.len, started.elapsed());
                    came
                }
                Some(Err(error)) => {
                    if error.why == PullWhy::Changed {
                        self.count(|counters| &counters.transfers_changed, 1);
                        tracing::warn!(object = %wanted.id, node = %holder, "bytes came that have changed since they were made");
                    }
                    tracing::info!(object = %wanted.id, node = %holder, %error, "a transfer broke");
                    self.count(|counters| &counters.transfers_failed, 1);
                    is_silent |= may_have_it(&error.why);
                    left.extend(error.missing);
                    error.arrived
                }
            };
            let bytes = came.iter().map(|it| it.range.len).sum();
            self.count(|counters| &counters.bytes_in, bytes);
            arrived.extend(came);
        }
        (left, arrived, is_silent)
    }

    fn pick(&self, count: usize) -> usize {
        self.transfers.random.lock().below(count)
    }

    fn note_transfer(&self, from: NodeId, bytes: u64, took: Duration) {
        if let Some(shared) = self.shared.upgrade() {
            shared.ask(|ledger| ledger.note_transfer(from, bytes, took));
        }
    }

    /// Asks the owner of an object from whom to bring it.
    async fn ask_source(
        &self,
        fabric: &dyn Fabric,
        wanted: &Wanted,
        gone: &[NodeId],
    ) -> Option<NodeId> {
        let request = Request::Source {
            name: ObjectName {
                id: wanted.id,
                owner: wanted.owner,
            },
            gone: gone.to_vec(),
        };
        match fabric.request(wanted.owner, request, SOURCE).await {
            Ok(Response::Source(holder)) => holder.filter(|it| !gone.contains(it)),
            _ => None,
        }
    }

    /// From whom a node brings an object of ours.
    pub(super) async fn source(
        &self,
        reader: NodeId,
        name: ObjectName,
        gone: &[NodeId],
    ) -> Option<NodeId> {
        let holders = || {
            let Some(value) = self.value_of(&name) else {
                return Vec::new();
            };
            let Body::At(at) = self.body(name.id, &value) else {
                return Vec::new();
            };
            let mut holders = at.holders;
            holders.retain(|it| {
                let is_alive = *it == self.me || self.sessions.has(it);
                is_alive && *it != reader && !gone.contains(it)
            });
            holders
        };
        self.spread.source(name.id, reader, holders).await
    }

    /// Sends a range of an object to whoever brings it to another node.
    pub(super) async fn serve(
        &self,
        reader: NodeId,
        object: &ObjectId,
        range: Range,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        let shared = self.shared.upgrade().ok_or(BulkRefusal::NotHere)?;
        let Some(object) = shared.store.get(object) else {
            drop(shared);
            let (argument, len) = self.argument(object).ok_or(BulkRefusal::NotHere)?;
            return self
                .serve_bytes(Shared::from_owner(argument), len, range, None, to)
                .await;
        };
        let view = viewed(&object).await.map_err(|error| match error {
            ReadError::Dropped { .. } => BulkRefusal::NotHere,
            // It is on disk, and safe.
            ReadError::Full { .. } => BulkRefusal::Busy,
            ReadError::Disk { .. } => BulkRefusal::Failed,
        })?;
        drop(shared);
        let known = object.sum(range.offset, range.len);
        if let Some(sum) = known {
            to.set_sum(sum);
        }
        let (whole, len) = (Shared::from_owner(view), object.len());
        let taker = self.transfers.sending.enter(reader, object.tenant());
        self.serve_bytes(whole, len, range, Some(&taker), to)
            .await?;
        drop(taker);
        // Of the pieces that all ask for: what others ask for is not worth the memory.
        let piece = PullOptions::for_len(object.len()).piece_bytes as u64;
        let is_piece = range.offset.is_multiple_of(piece)
            && range.len == piece.min(object.len() - range.offset);
        if known.is_none() && is_piece {
            object.set_sum(range.offset, range.len, to.sum());
        }
        Ok(())
    }

    async fn serve_bytes(
        &self,
        whole: Shared,
        len: u64,
        range: Range,
        taker: Option<&Taker>,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        let end = range.offset.checked_add(range.len);
        let end = end
            .filter(|end| *end <= len)
            .ok_or(BulkRefusal::Malformed)?;
        let mut at = range.offset;
        while at < end {
            let piece = (end - at).min(PIECE_BYTES);
            let bytes = whole.slice(at as usize..(at + piece) as usize);
            let turn = match taker {
                Some(taker) => taker.turn(piece, 1).await,
                None => None,
            };
            // Whoever asked notices by itself that not all came.
            to.write(bytes).await.map_err(|_| BulkRefusal::Failed)?;
            drop(turn);
            self.count(|counters| &counters.bytes_out, piece);
            at += piece;
        }
        self.count(|counters| &counters.transfers_out, 1);
        Ok(())
    }
}

/// Whether a node may have what it did not send: it was not heard, or had no time.
fn may_have_it(why: &PullWhy) -> bool {
    match why {
        PullWhy::Refused(refusal) => *refusal == BulkRefusal::Busy,
        PullWhy::Connect(_) | PullWhy::Lost(_) | PullWhy::Broken | PullWhy::Stalled { .. } => true,
        PullWhy::Changed | PullWhy::Message(_) | PullWhy::TooNew(_) => false,
    }
}

/// Has the memory made in which an object arrives, while it does: where that was never touched it takes longer than
/// the bytes. A few at a time: it takes a core from the guests, and the memory at once.
fn touch_ahead(writer: &Writer) {
    static TOUCHING: Semaphore = Semaphore::const_new(TOUCHED_AT_A_TIME);
    if let (Some(mut ahead), Ok(permit)) = (writer.ahead(), TOUCHING.try_acquire()) {
        // It ends with the writer.
        tokio::task::spawn_blocking(move || {
            while ahead.touch_more() {}
            drop(permit);
        });
    }
}

/// Where an object goes.
enum Place {
    Room(Writer),
    /// It is here already.
    Here(View),
}

async fn room(shared: &Node, wanted: &Wanted) -> Result<Place, LoadError> {
    let full = |error: CreateError| LoadError::Room(Arc::new(error));
    loop {
        if let Some(object) = shared.store.get(&wanted.id) {
            match viewed(&object).await {
                Ok(view) => return Ok(Place::Here(view)),
                // It has just been dropped.
                Err(ReadError::Dropped { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut creating = shared
            .store
            .create(&wanted.tenant, wanted.id, wanted.len, wanted.form);
        match tokio::time::timeout(shared.room_patience, &mut creating).await {
            Ok(Ok(writer)) => return Ok(Place::Room(writer)),
            // Who waited for it before us is about to let go of it.
            Ok(Err(CreateError::Exists { .. })) => tokio::time::sleep(LOOK).await,
            Ok(Err(error)) => return Err(full(error)),
            Err(_) => return Err(full(creating.error())),
        }
    }
}
