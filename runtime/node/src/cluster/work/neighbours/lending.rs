//! Lending objects to neighbours, and keeping what is lent.
//!
//! Owns the socket and one [`Borrower`] for each who has shown that it is a member. Must not: drop what is lent while
//! its borrower may look at it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{NodeId, ObjectId};
use wasmrun_store::View;

use super::frame::{self, Say, Tell};
use super::{LentOut, Neighbours, PATIENCE};

/// How many may be about to show who they are.
const MOST_STRANGERS: usize = 16;
/// How many objects one may have borrowed.
const MOST_LOANS: usize = 16 << 10;
/// How soon it is tried again when the system gives no connection.
const AGAIN: Duration = Duration::from_millis(100);

/// A neighbour that borrows from us.
pub(super) struct Borrower {
    node: NodeId,
    out: tokio::sync::Mutex<OwnedWriteHalf>,
    /// What it may look at, by the loan's number. It is not with whoever serves the connection: that may be stopped
    /// while the process at the other end goes on.
    loans: Mutex<HashMap<u64, View>>,
    is_closed: AtomicBool,
    is_recalling: AtomicBool,
}

impl Borrower {
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// It is lent nothing more.
    pub(super) fn close(&self, node: NodeId) {
        if self.node == node {
            self.is_closed.store(true, Ordering::Release);
        }
    }

    pub(super) fn lends(&self) -> LentOut {
        let loans = self.loans.lock();
        LentOut {
            objects: loans.len() as u64,
            bytes: loans.values().map(|view| view.len() as u64).sum(),
        }
    }

    /// False if somebody is asking it already.
    pub(super) fn begin_recall(&self) -> bool {
        !self.is_recalling.swap(true, Ordering::AcqRel)
    }

    pub(super) async fn recall(self: Arc<Self>) {
        // If it has ended, all comes back anyway.
        let _ = frame::write(&mut *self.out.lock().await, &Tell::Recall).await;
        self.is_recalling.store(false, Ordering::Release);
    }

    async fn tell(&self, tell: &Tell) -> io::Result<()> {
        frame::write(&mut *self.out.lock().await, tell).await
    }
}

/// Serves all who come, until the node stops listening.
pub(super) async fn serve(neighbours: Weak<Neighbours>, listener: UnixListener) {
    let strangers = Arc::new(Semaphore::new(MOST_STRANGERS));
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let Ok(place) = strangers.clone().try_acquire_owned() else {
            continue;
        };
        let Some(control) = neighbours.upgrade().map(|it| it.control.clone()) else {
            return;
        };
        let neighbours = neighbours.clone();
        // It ends with the connection, or with the node.
        control.spawn(async move {
            let greeted = greet(&neighbours, socket).await;
            drop(place);
            if let Some((borrower, socket)) = greeted {
                lend(&neighbours, &borrower, &socket).await;
            }
        });
    }
}

/// Lets one in that is of this user and shows a secret which was told to a member.
async fn greet(
    neighbours: &Weak<Neighbours>,
    socket: UnixStream,
) -> Option<(Arc<Borrower>, tokio::net::unix::OwnedReadHalf)> {
    if !is_ours(&socket) {
        return None;
    }
    let hello = tokio::time::timeout(PATIENCE, frame::read(&socket)).await;
    let (Say::Hello { node, secret }, _) = hello.ok()?.ok()? else {
        return None;
    };
    let neighbours = neighbours.upgrade()?;
    let (reading, out) = socket.into_split();
    let borrower = Arc::new(Borrower {
        node,
        out: tokio::sync::Mutex::new(out),
        loans: Mutex::default(),
        is_closed: AtomicBool::new(false),
        is_recalling: AtomicBool::new(false),
    });
    let Some(proof) = neighbours.admit(&borrower, &secret) else {
        tracing::warn!(%node, "somebody has shown a secret for neighbours that was not told to it");
        return None;
    };
    let welcome = Tell::Welcome { proof };
    let told = tokio::time::timeout(PATIENCE, borrower.tell(&welcome)).await;
    match told {
        Ok(Ok(())) => Some((borrower, reading)),
        Ok(Err(_)) | Err(_) => {
            neighbours.dismiss(&borrower);
            None
        }
    }
}

/// Whether the other side runs as our user.
pub(super) fn is_ours(socket: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    socket.peer_cred().is_ok_and(|peer| peer.uid() == ours)
}

/// Answers one after the other, until the borrower has no more use for the connection or talks nonsense.
async fn lend(
    neighbours: &Weak<Neighbours>,
    borrower: &Arc<Borrower>,
    socket: &tokio::net::unix::OwnedReadHalf,
) {
    let mut last = 0;
    while let Ok((said, _)) = frame::read(socket.as_ref()).await {
        let answered = match said {
            Say::Hello { .. } => break,
            Say::Returned { loan } => {
                let view = borrower.loans.lock().remove(&loan);
                drop(view);
                Ok(())
            }
            Say::Ask {
                object,
                tenant,
                len,
            } => {
                last += 1;
                let found = neighbours
                    .upgrade()
                    .map(|it| it.find(borrower, &object, &tenant, len));
                match found {
                    Some(Ok(view)) => hand_over(borrower, last, view).await,
                    Some(Err(why)) => borrower.tell(&why).await,
                    None => break,
                }
            }
        };
        if answered.is_err() {
            break;
        }
    }
    // Its process has ended, or it has nothing of ours any more. Who talks nonsense looks at its own risk.
    let loans = std::mem::take(&mut *borrower.loans.lock());
    drop(loans);
    if let Some(neighbours) = neighbours.upgrade() {
        neighbours.dismiss(borrower);
    }
}

/// Pins an object for a borrower and gives it the descriptor.
async fn hand_over(borrower: &Borrower, loan: u64, view: View) -> io::Result<()> {
    let Some(lent) = Tell::lent(loan, &view) else {
        return borrower.tell(&Tell::Refused).await;
    };
    borrower.loans.lock().insert(loan, view.clone());
    let mut out = borrower.out.lock().await;
    if frame::write_beside(&mut out, &lent, &view).await? {
        return Ok(());
    }
    // We have too many files open, or too many are on their way.
    borrower.loans.lock().remove(&loan);
    frame::write(&mut out, &Tell::Refused).await
}

impl Neighbours {
    /// An object that may be lent: to any member, as over the network, but of this tenant.
    ///
    /// # Errors
    /// What to say if there is none.
    fn find(
        &self,
        borrower: &Borrower,
        id: &ObjectId,
        tenant: &TenantName,
        len: u64,
    ) -> Result<View, Tell> {
        let is_full = borrower.loans.lock().len() >= MOST_LOANS;
        if borrower.is_closed.load(Ordering::Acquire) || is_full {
            return Err(Tell::Refused);
        }
        let object = self.store.get(id).ok_or(Tell::Refused)?;
        if object.tenant() != tenant || object.len() != len {
            return Err(Tell::Refused);
        }
        if object.is_borrowed() {
            let lender = self.lender_of(id);
            return Err(lender.map_or(Tell::Refused, Tell::Elsewhere));
        }
        // What is on disk is there because room was needed, and what is lent takes room for as long as it is.
        if self.is_short() {
            return Err(Tell::Refused);
        }
        object.try_view().ok_or(Tell::Refused)
    }
}
