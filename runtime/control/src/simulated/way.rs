//! The way of one client to a simulated store, and what goes wrong on it.
//!
//! Owns delays, requests and answers that are lost, requests that arrive after their client has given up, lines that are
//! cut, and watches that lag and break: each by its own random numbers, so that what one client draws does not move the
//! others. What a client is told is what the trait promises: after [`Error::Unavailable`] nothing was changed or will be,
//! after [`Error::Uncertain`] it may have been, or may yet be.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use wasmrun_model::random::Random;

use super::{Hand, Process, Store, Time};
use crate::Embedded;
use crate::clock::Clock;
use crate::error::Error;
use crate::store::{ControlStore, Watch, WatchSource, first_watched};
use crate::types::{Changes, Entry, Lease, LeaseId, Page, Range, Revision, Txn, TxnReply};

/// The process that requests and answers on their way belong to: it is never stopped.
const NETWORK: Process = Process(u64::MAX);

/// What goes wrong, in so many of a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// How long a request or an answer takes at most.
    pub delay: Duration,
    /// Requests that never arrive.
    pub lost: usize,
    /// Answers that never arrive.
    pub unheard: usize,
    /// Requests that arrive when their client has given up.
    pub late: usize,
    /// Changes after which a watch breaks. It is opened again where it was.
    pub breaks: usize,
    /// How long a client waits for an answer.
    pub patience: Duration,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        delay: Duration::from_millis(2),
        lost: 0,
        unheard: 0,
        late: 0,
        breaks: 0,
        patience: Duration::from_secs(1),
    };
}

/// What all ways of a node share.
#[derive(Debug)]
pub struct Line(Mutex<(Faults, bool)>);

impl Line {
    /// A line with these faults.
    pub fn new(faults: Faults) -> Arc<Self> {
        Arc::new(Self(Mutex::new((faults, false))))
    }

    /// From now on this goes wrong.
    pub fn set_faults(&self, faults: Faults) {
        self.0.lock().0 = faults;
    }

    /// Whether nothing arrives, either way.
    pub fn set_cut(&self, is_cut: bool) {
        self.0.lock().1 = is_cut;
    }

    fn faults(&self) -> Faults {
        self.0.lock().0
    }

    /// Whether it is cut.
    pub fn is_cut(&self) -> bool {
        self.0.lock().1
    }
}

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Good,
    Lost,
    Unheard,
    Late,
}

/// One request, drawn.
struct Trip {
    fate: Fate,
    out: Duration,
    back: Duration,
    patience: Duration,
    clock: Hand,
}

/// Whether somebody must be told that nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Change,
}

type Asked<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// The way of one client to a [`Store`], on which [`Faults`] happen.
pub struct Way {
    store: Arc<Store>,
    line: Arc<Line>,
    clock: Hand,
    random: Mutex<Random>,
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Way({})", self.clock.process())
    }
}

impl Way {
    /// A way of a process to the store, over a line.
    pub fn new(
        store: &Arc<Store>,
        line: &Arc<Line>,
        (time, process): (&Arc<Time>, Process),
        mut random: Random,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            line: line.clone(),
            clock: time.hand(process, random.next()),
            random: Mutex::new(random),
        })
    }

    fn draw(&self, kind: Kind) -> Trip {
        let faults = self.line.faults();
        let mut random = self.random.lock();
        let number = random.next();
        let of_thousand = random.below(1000);
        let bounds = [
            (Fate::Lost, faults.lost),
            (Fate::Unheard, faults.unheard),
            (Fate::Late, faults.late),
        ];
        let mut sum = 0;
        let fate = bounds.iter().find(|(_, share)| {
            sum += share;
            of_thousand < sum
        });
        let mut fate = fate.map_or(Fate::Good, |(fate, _)| *fate);
        if (kind, fate) == (Kind::Read, Fate::Late) {
            fate = Fate::Lost;
        }
        let mut out = up_to(&mut random, faults.delay);
        let back = up_to(&mut random, faults.delay);
        if fate == Fate::Late {
            out = faults.patience + up_to(&mut random, faults.patience * 8);
        }
        Trip {
            fate,
            out,
            back,
            patience: faults.patience,
            clock: self.clock.time().hand(NETWORK, number),
        }
    }

    /// Asks the store, and waits for what it says.
    async fn call<T: Send + 'static>(
        &self,
        kind: Kind,
        ask: impl FnOnce(Arc<Embedded>) -> Asked<T> + Send + 'static,
    ) -> Result<T, Error> {
        let trip = self.draw(kind);
        let patience = trip.patience;
        let (answer, answered) = oneshot::channel();
        let (store, line) = (self.store.clone(), self.line.clone());
        // It goes on whether somebody waits for it or not.
        tokio::spawn(async move {
            if let Some(said) = travel(&store, &line, trip, kind, ask).await {
                let _ = answer.send(said);
            }
        });
        let said = tokio::select! {
            biased;
            Ok(said) = answered => said,
            () = self.clock.sleep(patience) => Err(nobody_knows(kind)),
        };
        // Who is stopped hears it later.
        self.clock.sleep(Duration::ZERO).await;
        said
    }
}

fn up_to(random: &mut Random, longest: Duration) -> Duration {
    let micros = usize::try_from(longest.as_micros()).unwrap_or(usize::MAX);
    Duration::from_micros(random.below(micros.max(1)) as u64)
}

fn nobody_knows(kind: Kind) -> Error {
    match kind {
        Kind::Read => Error::unavailable("the answer was lost"),
        Kind::Change => Error::uncertain("the answer was lost"),
    }
}

/// A request there and its answer back. `None` if none ever comes.
async fn travel<T>(
    store: &Store,
    line: &Line,
    trip: Trip,
    kind: Kind,
    ask: impl FnOnce(Arc<Embedded>) -> Asked<T>,
) -> Option<Result<T, Error>> {
    if line.is_cut() {
        // It does not leave.
        trip.clock.sleep(trip.out).await;
        return Some(Err(Error::unavailable("the line is cut")));
    }
    trip.clock.sleep(trip.out).await;
    if trip.fate == Fate::Lost || line.is_cut() {
        return None;
    }
    let said = match store.itself() {
        Ok(store) => ask(store).await,
        // There is nobody to connect to.
        Err(error) => Err(error),
    };
    trip.clock.sleep(trip.back).await;
    let is_heard = trip.fate != Fate::Unheard && !line.is_cut();
    match said {
        // What was under way when the store was stopped.
        Err(Error::Unavailable { .. }) if kind == Kind::Change && !is_heard => None,
        said => is_heard.then_some(said),
    }
}

#[async_trait]
impl ControlStore for Way {
    async fn get(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        let key = Bytes::copy_from_slice(key);
        let ask =
            |store: Arc<Embedded>| -> Asked<_> { Box::pin(async move { store.get(&key).await }) };
        self.call(Kind::Read, ask).await
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        let ask = |store: Arc<Embedded>| -> Asked<_> {
            Box::pin(async move { store.range(range).await })
        };
        self.call(Kind::Read, ask).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnReply, Error> {
        let (whole, process) = (self.store.clone(), self.clock.process());
        let ask = move |store: Arc<Embedded>| -> Asked<_> {
            Box::pin(async move {
                let reply = store.txn(txn.clone()).await?;
                whole.made(process, &store, &txn, &reply);
                Ok(reply)
            })
        };
        self.call(Kind::Change, ask).await
    }

    async fn watch(&self, prefix: &[u8], from: Revision) -> Result<Watch, Error> {
        let prefix = Bytes::copy_from_slice(prefix);
        let wanted = prefix.clone();
        let ask = move |store: Arc<Embedded>| -> Asked<_> {
            Box::pin(async move {
                let from = first_watched(store.as_ref(), from).await?;
                Ok((store.watch(&wanted, from).await?, from))
            })
        };
        let (watch, from) = self.call(Kind::Read, ask).await?;
        let mut random = self.random.lock().split();
        let process = self.clock.process();
        let source = Following {
            store: self.store.clone(),
            line: self.line.clone(),
            clock: self.clock.time().hand(process, random.next()),
            random,
            prefix: prefix.clone(),
            next: from,
            watch: Some(watch),
            come: None,
        };
        Ok(Watch::new(prefix, source))
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, Error> {
        let ask = move |store: Arc<Embedded>| -> Asked<_> {
            Box::pin(async move { store.grant(ttl).await })
        };
        self.call(Kind::Change, ask).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error> {
        let ask = move |store: Arc<Embedded>| -> Asked<_> {
            Box::pin(async move { store.keep_alive(lease).await })
        };
        self.call(Kind::Read, ask).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        let ask = move |store: Arc<Embedded>| -> Asked<_> {
            Box::pin(async move { store.revoke(lease).await })
        };
        self.call(Kind::Change, ask).await
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        let ask = move |store: Arc<Embedded>| -> Asked<_> {
            Box::pin(async move { store.compact(through).await })
        };
        self.call(Kind::Change, ask).await
    }
}

/// A watch over a way.
struct Following {
    store: Arc<Store>,
    line: Arc<Line>,
    clock: Hand,
    random: Random,
    prefix: Bytes,
    /// What it has not seen yet.
    next: Revision,
    /// `None` while it is broken.
    watch: Option<Watch>,
    /// Has left the store, and not arrived yet.
    come: Option<Changes>,
}

impl Following {
    /// Opens it again where it was, if the store is there.
    async fn open(&mut self) -> Result<(), Error> {
        let lag = up_to(&mut self.random, self.line.faults().delay * 20);
        self.clock.sleep(lag + Duration::from_millis(1)).await;
        if self.line.is_cut() {
            return Ok(());
        }
        let Ok(store) = self.store.itself() else {
            return Ok(());
        };
        match store.watch(&self.prefix, self.next).await {
            Ok(watch) => self.watch = Some(watch),
            Err(error @ Error::Compacted { .. }) => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }
}

#[async_trait]
impl WatchSource for Following {
    async fn next(&mut self) -> Result<Changes, Error> {
        loop {
            if self.come.is_some() {
                let lag = up_to(&mut self.random, self.line.faults().delay);
                self.clock.sleep(lag).await;
                if !self.line.is_cut()
                    && let Some(changes) = self.come.take()
                {
                    self.next = changes.revision.next();
                    return Ok(changes);
                }
                // It is sent again when the line is there again.
                self.come = None;
                self.watch = None;
            }
            let Some(watch) = &mut self.watch else {
                self.open().await?;
                continue;
            };
            match watch.next().await {
                Ok(changes) => self.come = Some(changes),
                Err(error @ Error::Compacted { .. }) => return Err(error),
                Err(_) => self.watch = None,
            }
            if self.random.below(1000) < self.line.faults().breaks {
                (self.come, self.watch) = (None, None);
            }
        }
    }
}
