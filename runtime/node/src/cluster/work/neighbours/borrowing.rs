//! Borrowing objects from a neighbour, and what becomes of them when it ends.
//!
//! Owns a [`Line`] to each neighbour that was asked. Must not: close it while something is borrowed over it: the other
//! side would take that for the end of this process, and use the memory for something else.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use wasmrun_model::id::{NodeId, ObjectId};
use wasmrun_store::{BorrowError, Lender, Place, Store, View};

use super::frame::{self, Say, Tell, place};
use super::lending::is_ours;
use super::{Invitation, Neighbours, PATIENCE};
use crate::cluster::work::transfer::Wanted;

/// The way to a neighbour that lends us objects.
pub(super) struct Line {
    node: NodeId,
    lender: Lender,
    /// Who waits for an answer, in the order in which they have asked. Held while something is said.
    asking: Mutex<VecDeque<Asking>>,
    /// What is said; the connection is closed when the last who may say something is gone.
    out: mpsc::UnboundedSender<Say>,
    /// The loan of each object that is borrowed over it.
    borrowed: Mutex<HashMap<ObjectId, u64>>,
    is_over: AtomicBool,
    /// Keeps the connection open, also where the tasks that use it have ended with the node.
    _socket: OwnedFd,
}

/// The half that is written to, which says nothing to the other side when it goes.
struct Out(Option<OwnedWriteHalf>);

impl Drop for Out {
    fn drop(&mut self) {
        if let Some(out) = self.0.take() {
            out.forget();
        }
    }
}

struct Asking {
    object: ObjectId,
    len: u64,
    answer: oneshot::Sender<Answer>,
}

/// What came of asking.
enum Answer {
    Lent {
        place: Place,
        descriptor: OwnedFd,
        loan: Loan,
        sums: Vec<(u64, u64, u32)>,
    },
    Elsewhere(NodeId),
    Refused,
}

/// What is borrowed; the lender hears when it is dropped.
struct Loan {
    line: Arc<Line>,
    object: ObjectId,
    number: u64,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut borrowed = self.line.borrowed.lock();
        if borrowed.get(&self.object) == Some(&self.number) {
            borrowed.remove(&self.object);
        }
        drop(borrowed);
        // Where the lender has ended there is nobody to tell.
        let _ = self.line.out.send(Say::Returned { loan: self.number });
    }
}

impl Neighbours {
    /// Comes to a neighbour that has told us where, and makes sure that it is the one.
    pub(super) async fn connect(
        self: &Arc<Self>,
        node: NodeId,
        invitation: &Invitation,
    ) -> io::Result<Arc<Line>> {
        let connecting = async {
            let socket = UnixStream::connect(&invitation.path).await?;
            if !is_ours(&socket) {
                return Err(io::Error::other("another user listens there"));
            }
            let open = socket.as_fd().try_clone_to_owned()?;
            let (reading, mut out) = socket.into_split();
            let hello = Say::Hello {
                node: self.me,
                secret: invitation.secret,
            };
            frame::write(&mut out, &hello).await?;
            match frame::read(reading.as_ref()).await? {
                (Tell::Welcome { proof }, _) if proof == invitation.proof => {
                    Ok((reading, out, open))
                }
                _ => Err(io::Error::other("somebody else listens there")),
            }
        };
        let connected = tokio::time::timeout(PATIENCE, connecting).await;
        let (reading, out, socket) = connected.map_err(|_| io::ErrorKind::TimedOut)??;
        let (said, saying) = mpsc::unbounded_channel();
        let line = Arc::new(Line {
            node,
            lender: Lender::default(),
            asking: Mutex::default(),
            out: said,
            borrowed: Mutex::default(),
            is_over: AtomicBool::new(false),
            _socket: socket,
        });
        // They end with the line and what was borrowed over it, with its lender, or with the node.
        self.control.spawn(say(saying, Out(Some(out))));
        let (this, weak) = (Arc::downgrade(self), Arc::downgrade(&line));
        self.control.spawn(hear(this, weak, reading));
        Ok(line)
    }
}

/// Says one thing after the other.
async fn say(mut saying: mpsc::UnboundedReceiver<Say>, mut out: Out) {
    while let (Some(said), Some(out)) = (saying.recv().await, &mut out.0) {
        if frame::write(out, &said).await.is_err() {
            // Whoever hears finds out.
            return;
        }
    }
}

/// Brings answers to those who wait for them, until the neighbour has ended.
async fn hear(neighbours: Weak<Neighbours>, line: Weak<Line>, reading: OwnedReadHalf) {
    while let Ok((tell, descriptor)) = frame::read(reading.as_ref()).await {
        let Some(line) = line.upgrade() else {
            break;
        };
        let heard = match tell {
            Tell::Recall => {
                if let Some(neighbours) = neighbours.upgrade() {
                    line.give_back(&neighbours.store);
                }
                true
            }
            Tell::Welcome { .. } => false,
            answer => line.answered(answer, descriptor),
        };
        if !heard {
            break;
        }
    }
    if let (Some(neighbours), Some(line)) = (neighbours.upgrade(), line.upgrade()) {
        neighbours.retire(&line);
    }
    // Not before all is returned: see the head of this module. It may only be that we do not understand each other.
    while line.strong_count() > 0 && reading.as_ref().readable().await.is_ok() {
        let mut rest = [0; 4096];
        match reading.try_read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

impl Line {
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(super) fn has_lent(&self, object: &ObjectId) -> bool {
        self.borrowed.lock().contains_key(object)
    }

    /// Nothing more is borrowed over it. False if so already.
    pub(super) fn end(&self) -> bool {
        let is_first = !self.is_over.swap(true, Ordering::AcqRel);
        let asking = std::mem::take(&mut *self.asking.lock());
        // They hear that nobody answers.
        drop(asking);
        is_first
    }

    /// Has an object in place.
    ///
    /// # Errors
    /// Who has lent it to the other side, if that is why.
    pub(super) async fn ask(
        self: &Arc<Self>,
        store: &Store,
        wanted: &Wanted,
    ) -> Result<View, Option<NodeId>> {
        let (answer, answered) = oneshot::channel();
        let said = Say::Ask {
            object: wanted.id,
            tenant: wanted.tenant.clone(),
            len: wanted.len,
        };
        let asking = Asking {
            object: wanted.id,
            len: wanted.len,
            answer,
        };
        {
            let mut all = self.asking.lock();
            if self.is_over() || self.out.send(said).is_err() {
                return Err(None);
            }
            all.push_back(asking);
        }
        let answer = tokio::time::timeout(PATIENCE, answered).await;
        let (place, descriptor, loan, sums) = match answer {
            Ok(Ok(Answer::Lent {
                place,
                descriptor,
                loan,
                sums,
            })) => (place, descriptor, loan, sums),
            Ok(Ok(Answer::Elsewhere(node))) => return Err(Some(node)),
            Ok(Ok(Answer::Refused) | Err(_)) | Err(_) => return Err(None),
        };
        let number = loan.number;
        self.borrowed.lock().insert(wanted.id, number);
        let borrowed = store.borrow(
            &self.lender,
            (wanted.id, &wanted.tenant, wanted.form),
            (&place, descriptor),
            Box::new(loan),
        );
        match borrowed {
            Ok(object) => {
                for (start, len, sum) in sums {
                    object.set_sum(start, len, sum);
                }
                // What was recalled in between is gone again.
                object.try_view().ok_or(None)
            }
            Err(BorrowError::Exists(_)) => Err(None),
            Err(error) => {
                tracing::info!(node = %self.node, %error, "what a neighbour has cannot be used in place");
                Err(None)
            }
        }
    }

    /// Passes an answer to who has waited longest. False if nobody does.
    fn answered(self: &Arc<Self>, tell: Tell, descriptor: Option<OwnedFd>) -> bool {
        let Some(asking) = self.asking.lock().pop_front() else {
            return false;
        };
        let answer = match tell {
            Tell::Lent {
                loan,
                segment,
                segment_bytes,
                offset_bytes,
                sums,
            } => {
                let loan = Loan {
                    line: self.clone(),
                    object: asking.object,
                    number: loan,
                };
                let place = place(segment, segment_bytes, offset_bytes, asking.len);
                match descriptor {
                    Some(descriptor) => Answer::Lent {
                        place,
                        descriptor,
                        loan,
                        sums,
                    },
                    None => Answer::Refused,
                }
            }
            Tell::Elsewhere(node) => Answer::Elsewhere(node),
            Tell::Refused | Tell::Recall | Tell::Welcome { .. } => Answer::Refused,
        };
        // Who does not wait any more gives it back by that.
        let _ = asking.answer.send(answer);
        true
    }

    /// Gives back what nobody looks at.
    fn give_back(&self, store: &Store) {
        let borrowed: Vec<ObjectId> = self.borrowed.lock().keys().copied().collect();
        for object in borrowed.iter().filter_map(|id| store.get(id)) {
            object.give_back();
        }
    }

    /// Copies what is borrowed over it, as far as there is room within this time, for all of it. What finds none stays as it is, in memory that nobody
    /// counts, until it is dropped.
    pub(super) async fn adopt(self: Arc<Self>, store: Store, room: Duration) {
        let borrowed: Vec<ObjectId> = self.borrowed.lock().keys().copied().collect();
        let until = tokio::time::Instant::now() + room;
        for object in borrowed.iter().filter_map(|id| store.get(id)) {
            let id = object.id();
            // Also later it has what room there is.
            match tokio::time::timeout_at(until, object.adopt()).await {
                Ok(Ok(adoption)) => {
                    // Given back in between, it is nobody's.
                    let _ = tokio::task::spawn_blocking(|| adoption.copy()).await;
                }
                // It is ours already.
                Ok(Err(wasmrun_store::CreateError::Exists { .. })) => {}
                Ok(Err(_)) | Err(_) => {
                    tracing::warn!(object = %id, node = %self.node, "what a neighbour has left us finds no room here: it stays in that node's memory");
                }
            }
        }
    }
}
