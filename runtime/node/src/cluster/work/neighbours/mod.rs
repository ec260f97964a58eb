//! Objects of nodes on the same machine, without a copy.
//!
//! Owns who is a neighbour, and the sockets between neighbours: this node lends what it has (`lending`) and borrows what
//! it reads (`borrowing`). Must not: decide from which node an object is brought; that is `transfer`'s, which brings it
//! over the network if it cannot be had this way.
//!
//! ```text
//!   reader ── Request::Neighbour (TLS) ──▶ holder      my machine: so is mine; come to this socket with this secret
//!   reader ── Hello, secret ─────────────▶ socket      shown once
//!          ◀─ Welcome, proof ──                        nobody else knows that
//!          ── Ask ──▶ ◀── Lent, descriptor ──          pinned there until ── Returned ──▶, or the reader's end
//! ```
//!
//! Invariants: nobody is lent anything who has not shown a secret that was told to a living member in this life of both.
//! What is lent stays pinned until its borrower says that it does not look at it any more, or its process has ended: never
//! because of what this node thinks of it. What was borrowed is not lent again: the pins would not be those of who looks.

mod borrowing;
mod frame;
mod lending;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;
use wasmrun_model::id::{NodeId, ObjectId};
use wasmrun_store::{Store, View, WHOLE_PAGES_FROM_BYTES};

use self::borrowing::Line;
use self::frame::Secret;
use self::lending::Borrower;
use super::hedged::first_of;
use super::protocol::{Request, Response};
use super::transfer::Wanted;
use crate::cluster::Cluster;
use crate::node::random;

/// The socket in the state folder, which only its user can enter.
const SOCKET: &str = "neighbours.sock";
/// What tells one boot of a machine from all others.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How long a neighbour may take to say something.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one that did not is not asked again.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a transfer waits in all for what can be had in place, and for one neighbour until it asks the next too.
const BORROWING: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_millis(300);
/// How often a neighbour is come to that cannot be: then objects are sent, until one of the two begins a new life.
const MOST_TRIES: u32 = 6;
/// How soon it is tried for the second time. Each time after that it takes four times as long.
const FIRST_AGAIN: Duration = Duration::from_secs(1);
/// How long a secret can be shown.
const VALID: Duration = Duration::from_secs(30);
/// How many secrets a member can have that it has not shown.
const MOST_INVITATIONS: usize = 4;

/// Where a neighbour is to come to, and how both know each other there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invitation {
    path: PathBuf,
    secret: Secret,
    /// What the other side has to say.
    proof: Secret,
}

/// A secret that was told to a member.
struct Invited {
    secret: Secret,
    proof: Secret,
    until: Instant,
}

/// The way to a node.
#[derive(Default)]
struct Way {
    /// None if it is no neighbour.
    line: Arc<OnceCell<Option<Arc<Line>>>>,
    /// How often it could not be gone.
    failures: u32,
    /// When it may be tried again.
    next: Option<Instant>,
}

/// How many nodes of this machine share objects with this one, as far as it has tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ways {
    pub(crate) open: u64,
    /// They could not be come to, and are tried again.
    pub(crate) failing: u64,
    /// They are not tried any more.
    pub(crate) given_up: u64,
}

impl Way {
    fn is_open(&self) -> bool {
        let line = self.line.get().and_then(Option::as_ref);
        line.is_some_and(|line| !line.is_over())
    }
}

/// Who asks other nodes whether they are neighbours.
pub(super) trait Invite: Sync {
    /// Where to come to; nowhere if the node is on another machine than this.
    ///
    /// # Errors
    /// If it does not answer.
    fn invitation(
        &self,
        node: NodeId,
        machine: &str,
    ) -> impl Future<Output = Result<Option<Invitation>, ()>> + Send;
}

impl Invite for Cluster {
    async fn invitation(&self, node: NodeId, machine: &str) -> Result<Option<Invitation>, ()> {
        let request = Request::Neighbour(machine.to_owned());
        match self.request(node, request, PATIENCE).await {
            Ok(Response::Neighbour(invitation)) => Ok(invitation),
            Ok(_) | Err(_) => Err(()),
        }
    }
}

/// A neighbour that is being asked. If that is given up after a while, it is not asked again soon.
struct Asking<'a> {
    neighbours: &'a Neighbours,
    node: NodeId,
    since: Instant,
    is_answered: bool,
}

impl<'a> Asking<'a> {
    fn new(neighbours: &'a Neighbours, node: NodeId) -> Self {
        Self {
            neighbours,
            node,
            since: Instant::now(),
            is_answered: false,
        }
    }

    fn answered(mut self) {
        self.is_answered = self.since.elapsed() < BORROWING;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.since.elapsed() >= SOON {
            let mut silent = self.neighbours.silent.lock();
            silent.insert(self.node, Instant::now());
        }
    }
}

/// What came of an attempt to borrow.
enum Borrowed {
    /// It is here.
    Here(View),
    /// That node is no neighbour.
    Stranger,
    /// It is, and the object cannot be had this way.
    Failed,
}

/// The other nodes of this machine.
pub(super) struct Neighbours {
    me: NodeId,
    machine: String,
    path: PathBuf,
    store: Store,
    control: Handle,
    /// How long a copy of what was borrowed waits for room.
    room: Duration,
    invited: Mutex<HashMap<NodeId, Vec<Invited>>>,
    /// Who borrows from us. One stays until its process ends, or it does.
    borrowers: Mutex<Vec<Arc<Borrower>>>,
    /// From whom we borrow.
    ways: Mutex<HashMap<NodeId, Way>>,
    /// Who did not answer, and when. Nor is it asked for a while.
    silent: Mutex<HashMap<NodeId, Instant>>,
    listening: Mutex<Option<AbortHandle>>,
}

/// How much neighbours have borrowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LentOut {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.get_mut().take() {
            listening.abort();
        }
        // The file stays: the next node may be there already, and replaces it.
    }
}

impl Neighbours {
    /// Listens in a folder that is ours alone. `None` if that cannot be done: then all goes over the network.
    pub(super) fn start(
        me: NodeId,
        folder: &Path,
        store: Store,
        control: &Handle,
        room: Duration,
    ) -> Option<Arc<Self>> {
        let path = folder.join(SOCKET);
        let machine = fs::read_to_string(BOOT_ID).map(|it| it.trim().to_owned());
        let _ = fs::remove_file(&path);
        let _in_runtime = control.enter();
        let (machine, listener) = match (machine, UnixListener::bind(&path)) {
            (Ok(machine), Ok(listener)) => (machine, listener),
            (Err(error), _) | (_, Err(error)) => {
                tracing::info!(path = %path.display(), %error, "no objects are shared with other nodes of this machine");
                return None;
            }
        };
        let neighbours = Arc::new(Self {
            me,
            machine,
            path,
            store,
            control: control.clone(),
            room,
            invited: Mutex::default(),
            borrowers: Mutex::default(),
            ways: Mutex::default(),
            silent: Mutex::default(),
            listening: Mutex::default(),
        });
        let serving = lending::serve(Arc::downgrade(&neighbours), listener);
        *neighbours.listening.lock() = Some(control.spawn(serving).abort_handle());
        Some(neighbours)
    }

    /// What a member is told who says on which machine it is. `None` if that is another one.
    pub(super) fn invite(&self, node: NodeId, machine: &str) -> Option<Invitation> {
        if machine != self.machine {
            return None;
        }
        let (secret, proof) = (Secret(random()), Secret(random()));
        let mut invited = self.invited.lock();
        let of_node = invited.entry(node).or_default();
        if of_node.len() >= MOST_INVITATIONS {
            of_node.remove(0);
        }
        of_node.push(Invited {
            secret,
            proof,
            until: Instant::now() + VALID,
        });
        Some(Invitation {
            path: self.path.clone(),
            secret,
            proof,
        })
    }

    /// Lets one in that shows a secret, which serves once: what it is to be shown. From then on it is a borrower; a
    /// life that is over comes too late.
    fn admit(&self, borrower: &Arc<Borrower>, secret: &Secret) -> Option<Secret> {
        let mut invited = self.invited.lock();
        let of_node = invited.get_mut(&borrower.node())?;
        let now = Instant::now();
        of_node.retain(|it| it.until > now);
        let at = of_node.iter().position(|it| it.secret == *secret)?;
        let proof = of_node.remove(at).proof;
        // Under that lock: `forget` has not begun, and will find it.
        self.borrowers.lock().push(borrower.clone());
        Some(proof)
    }

    /// A borrower has gone.
    fn dismiss(&self, borrower: &Arc<Borrower>) {
        let mut borrowers = self.borrowers.lock();
        borrowers.retain(|it| !Arc::ptr_eq(it, borrower));
    }

    /// Has an object in place that one of these has who is a neighbour, and how many could not lend it. Takes
    /// [`BORROWING`] at most.
    pub(super) async fn borrow_from(
        self: &Arc<Self>,
        invite: &impl Invite,
        holders: &[NodeId],
        wanted: &Wanted,
    ) -> (Option<View>, u64) {
        let failed = AtomicU64::new(0);
        let failed = &failed;
        let mut holders = holders.to_vec();
        // Those first who are known to lend.
        holders.sort_by_key(|holder| !self.is_open(holder));
        let borrowing = first_of(holders, SOON, |holder| async move {
            match self.borrow(invite, holder, wanted).await {
                Borrowed::Here(view) => Some(view),
                Borrowed::Stranger => None,
                Borrowed::Failed => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    None
                }
            }
        });
        let borrowed = tokio::time::timeout(BORROWING, borrowing).await;
        (borrowed.ok().flatten(), failed.load(Ordering::Relaxed))
    }

    /// Has an object of a holder's in place, if that is a neighbour.
    async fn borrow(
        self: &Arc<Self>,
        invite: &impl Invite,
        holder: NodeId,
        wanted: &Wanted,
    ) -> Borrowed {
        if wanted.len < WHOLE_PAGES_FROM_BYTES {
            return Borrowed::Stranger;
        }
        let mut holder = holder;
        // It may have borrowed it itself, and say from whom.
        for _ in 0..2 {
            if self.is_silent(holder) {
                return Borrowed::Stranger;
            }
            let asking = Asking::new(self, holder);
            let line = self.line(invite, holder).await;
            let Some(line) = line else {
                asking.answered();
                return Borrowed::Stranger;
            };
            let asked = line.ask(&self.store, wanted).await;
            asking.answered();
            match asked {
                Ok(view) => {
                    if line.is_over() {
                        self.adopt(&line);
                    }
                    return Borrowed::Here(view);
                }
                Err(Some(other)) if other != self.me => holder = other,
                Err(_) => return Borrowed::Failed,
            }
        }
        Borrowed::Failed
    }

    /// The way to a neighbour, made if there is none. `None` if the node is no neighbour, does not answer, or cannot be
    /// come to now.
    async fn line(self: &Arc<Self>, invite: &impl Invite, holder: NodeId) -> Option<Arc<Line>> {
        let cell = {
            let mut ways = self.ways.lock();
            let way = ways.entry(holder).or_default();
            let is_due = way.next.is_none_or(|next| next <= Instant::now());
            if way.failures >= MOST_TRIES || !is_due {
                return None;
            }
            way.line.clone()
        };
        let made = cell.get_or_try_init(|| async {
            match invite.invitation(holder, &self.machine).await {
                Ok(None) => Ok(None),
                Ok(Some(invitation)) => match self.connect(holder, &invitation).await {
                    Ok(line) => Ok(Some(line)),
                    Err(error) => {
                        self.failed(holder, &cell, &error);
                        Err(())
                    }
                },
                // It may be a neighbour, and is asked again.
                Err(()) => {
                    self.silent.lock().insert(holder, Instant::now());
                    Err(())
                }
            }
        });
        let line = made.await.ok()?.clone()?;
        let is_current = {
            let ways = self.ways.lock();
            let way = ways.get(&holder);
            way.is_some_and(|way| Arc::ptr_eq(&way.line, &cell))
        };
        match (is_current, line.is_over()) {
            (true, false) => Some(line),
            (true, true) => {
                self.failed(holder, &cell, &"the connection has broken");
                None
            }
            // That life is over.
            (false, _) => {
                self.retire(&line);
                None
            }
        }
    }

    /// A neighbour cannot be come to, this way.
    fn failed(&self, node: NodeId, cell: &Arc<OnceCell<Option<Arc<Line>>>>, why: &dyn Display) {
        let mut ways = self.ways.lock();
        let way = ways.get_mut(&node);
        // Others may have seen it too.
        let Some(way) = way.filter(|way| Arc::ptr_eq(&way.line, cell)) else {
            return;
        };
        way.line = Arc::default();
        way.next = Some(Instant::now() + FIRST_AGAIN * 4_u32.pow(way.failures));
        way.failures += 1;
        match way.failures {
            // Another mount or user namespace, most likely: it will not be otherwise later.
            MOST_TRIES.. => tracing::warn!(
                %node, error = %why,
                "a node of this machine cannot share objects with us: from now on they are sent, until one of the two is started again"
            ),
            failures => tracing::info!(
                %node, error = %why, failures,
                "a node of this machine cannot share objects with us now; it is tried again"
            ),
        }
    }

    /// Whether a node lends us objects.
    fn is_open(&self, node: &NodeId) -> bool {
        let ways = self.ways.lock();
        ways.get(node).is_some_and(Way::is_open)
    }

    /// How the ways to the other nodes of this machine are.
    pub(super) fn ways(&self) -> Ways {
        let mut counted = Ways::default();
        for way in self.ways.lock().values() {
            match way.failures {
                _ if way.is_open() => counted.open += 1,
                0 => {}
                MOST_TRIES.. => counted.given_up += 1,
                _ => counted.failing += 1,
            }
        }
        counted
    }

    fn is_silent(&self, node: NodeId) -> bool {
        let silent = self.silent.lock();
        silent.get(&node).is_some_and(|at| at.elapsed() < SILENCE)
    }

    /// From whom an object was borrowed that is here.
    fn lender_of(&self, object: &ObjectId) -> Option<NodeId> {
        let ways = self.ways.lock();
        let mut lines = ways.values().filter_map(|way| way.line.get()?.as_ref());
        let lender = lines.find(|line| !line.is_over() && line.has_lent(object));
        lender.map(|line| line.node())
    }

    /// A life of a node is over: what it was told it cannot show any more, and what we have of it becomes ours.
    pub(super) fn forget(self: &Arc<Self>, node: NodeId) {
        self.invited.lock().remove(&node);
        self.silent.lock().remove(&node);
        for borrower in &*self.borrowers.lock() {
            borrower.close(node);
        }
        let way = self.ways.lock().remove(&node);
        if let Some(line) = way.as_ref().and_then(|way| way.line.get()?.as_ref()) {
            self.retire(line);
        }
    }

    /// Nothing more is borrowed over this line, and what was borrowed is copied.
    fn retire(self: &Arc<Self>, line: &Arc<Line>) {
        if line.end() {
            self.adopt(line);
        }
    }

    fn adopt(self: &Arc<Self>, line: &Arc<Line>) {
        // It ends when all is copied or has found no room, or with the node.
        self.control
            .spawn(line.clone().adopt(self.store.clone(), self.room));
    }

    /// Asks those who have borrowed something to return what they do not look at, if somebody waits for room.
    pub(super) fn make_room(&self) {
        let lending: Vec<_> = {
            let borrowers = self.borrowers.lock();
            let lending = borrowers.iter().filter(|it| it.lends().objects > 0);
            lending.cloned().collect()
        };
        if lending.is_empty() || !self.is_short() {
            return;
        }
        for borrower in lending {
            if borrower.begin_recall() {
                // It ends when the borrower has taken it, or with the node.
                self.control.spawn(borrower.recall());
            }
        }
    }

    /// Whether somebody waits for room.
    fn is_short(&self) -> bool {
        let usage = self.store.usage();
        usage.waiting_creates + usage.waiting_restores > 0
    }

    /// What neighbours have borrowed.
    pub(super) fn lent(&self) -> LentOut {
        let borrowers = self.borrowers.lock();
        let mut sum = LentOut::default();
        for lent in borrowers.iter().map(|it| it.lends()) {
            sum.objects += lent.objects;
            sum.bytes += lent.bytes;
        }
        sum
    }
}
