//! Services: HTTP requests that a module answers, each in a sandbox of its own.
//!
//! Owns [`Service`]: a socket, what takes its connections ([`listen`]), who goes first ([`places`]), what becomes of each
//! request ([`front`]), and which of them other nodes answer ([`passing`]). A request is a task of the service's driver, as all
//! others are: it waits for what it asks for, in its tenant's turn, has its limits, is in the history, and can be explained.
//! Must not: know how wasm runs, or what a handler does.
//!
//! Threads: the connections have threads of their own, so that neither the guests nor the node's own work wait for them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use wasmrun_model::id::{DriverId, TaskId};
use wasmrun_net::{PemError, server_tls};

use crate::client::Client;

mod actors;
mod answers;
mod body;
mod front;
mod listen;
mod passing;
mod places;
mod problem;
mod stats;
mod typed;

pub use answers::{Answers, AnswersError};
use front::Front;
pub(crate) use passing::{Passed, Passing, Taken};
pub use stats::ServiceStats;

/// Protocols over TLS, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// How many threads serve the connections of one service, at most.
const MOST_THREADS: usize = 4;
/// How many requests of other nodes may wait to be looked at.
const MOST_TAKEN: usize = 64;

/// What TLS has that begins now. None that has begun sees a change of it.
type Tls = Arc<RwLock<TlsAcceptor>>;

/// Gets told of requests at their end.
pub type AccessLog = Arc<dyn Fn(&Served) + Send + Sync>;

/// How a service is served.
#[derive(Clone)]
pub struct ServiceConfig {
    /// What people call it.
    pub name: String,
    /// Where clients find it; port 0 is one that the system chooses.
    pub address: SocketAddr,
    /// A certificate and its key, as PEM, where clients come by TLS.
    pub tls: Option<(Vec<u8>, Vec<u8>)>,
    /// Names that it answers to at an address of loopback, beyond addresses and `localhost`; `*` is all.
    pub hosts: Vec<String>,
    /// How many requests may be under way at a time (1 or more).
    pub most_running: usize,
    /// How many more may wait for that. Others are refused.
    pub most_waiting: usize,
    /// How long a request may wait before it is refused.
    pub patience: Duration,
    /// Gets what is printed by handlers, if anybody does.
    pub listener: Option<wasmrun_engine::Listener>,
    /// Is told of each request at its end.
    pub log: Option<AccessLog>,
}

impl ServiceConfig {
    /// The names that requests must be for, where those for others are refused. A browser has compared the name with the
    /// certificate, and what other machines reach has whatever name they know.
    fn own_names(&self) -> Option<&[String]> {
        let is_local = self.address.ip().to_canonical().is_loopback();
        (is_local && self.tls.is_none()).then_some(&self.hosts[..])
    }
}

impl fmt::Debug for ServiceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceConfig")
            .field("name", &self.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A request at its end.
#[derive(Debug, Clone)]
pub struct Served {
    /// The client's address.
    pub client: SocketAddr,
    /// Its method.
    pub method: String,
    /// Its path and query.
    pub target: String,
    /// The status that the client got; 499 where it was gone before there was one.
    pub status: u16,
    /// How many bytes of a body the client was sent.
    pub bytes: u64,
    /// How long it took, from its head to the end of the response.
    pub took: Duration,
    /// Whether the response was cut off before its end.
    pub is_cut_off: bool,
    /// The task that answered it, if one was submitted.
    pub task: Option<TaskId>,
}

/// Why there is no service.
#[derive(Debug, thiserror::Error)]
pub enum StartServiceError {
    /// The certificate or its key is of no use.
    #[error(transparent)]
    Tls(#[from] PemError),
    /// No request could ever run.
    #[error("a service has at least one request under way at a time, and 0 are allowed")]
    NothingRuns,
    /// The address cannot be listened on.
    #[error(
        "the service cannot listen at {address}: {source}; name a free address of this machine"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no threads.
    #[error("the service cannot start its threads: {0}")]
    Threads(io::Error),
}

/// A service. Dropping it cuts off all its connections and cancels its requests.
pub struct Service {
    front: Arc<Front>,
    address: SocketAddr,
    stop: CancellationToken,
    tls: Option<Tls>,
    /// Takes requests that other nodes pass on.
    taker: mpsc::Sender<Taken>,
    accepting: Option<tokio::task::JoinHandle<()>>,
    threads: Option<Runtime>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Listens, and answers requests, as tasks of the session `client`.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn start(
        client: Client,
        answers: Answers,
        config: ServiceConfig,
    ) -> Result<Self, StartServiceError> {
        if config.most_running == 0 {
            return Err(StartServiceError::NothingRuns);
        }
        let tls = config.tls.as_ref();
        let tls = tls.map(|(cert, key)| acceptor(cert, key)).transpose()?;
        let tls = tls.map(|it| Arc::new(RwLock::new(it)));
        let address = config.address;
        let listener = listen(address);
        let listener = listener.map_err(|source| StartServiceError::Listen { address, source })?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores.min(MOST_THREADS))
            .thread_name("wasmrun-http")
            .enable_all()
            .build()
            .map_err(StartServiceError::Threads)?;
        let listener = {
            let _context = threads.enter();
            TcpListener::from_std(listener)
        };
        let listener = match listener {
            Ok(listener) => listener,
            Err(source) => {
                threads.shutdown_background();
                return Err(StartServiceError::Listen { address, source });
            }
        };
        // The port, where the system has chosen it.
        let address = listener.local_addr().unwrap_or(address);
        let stop = CancellationToken::new();
        let front = Arc::new(Front::new(client, answers, config));
        let (taker, taken) = mpsc::channel(MOST_TAKEN);
        let accepting = listen::accept((listener, tls.clone()), taken, front.clone(), stop.clone());
        let accepting = threads.spawn(accepting);
        Ok(Self {
            front,
            address,
            stop,
            tls,
            taker,
            accepting: Some(accepting),
            threads: Some(threads),
        })
    }

    /// Where clients find it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whose tasks its requests are.
    pub fn driver(&self) -> DriverId {
        self.front.client().driver()
    }

    /// Has all requests that come from now on answered by these, and connections that come find this certificate, if there is
    /// TLS. Those that are there go on with what they have.
    pub(crate) fn replace(&self, answers: Answers, tls: Option<TlsAcceptor>) {
        if let (Some(own), Some(tls)) = (&self.tls, tls) {
            *own.write() = tls;
        }
        self.front.replace(answers);
    }

    /// Passes requests on to other nodes from now on, when there is no room here. Once.
    pub(crate) fn share(&self, passing: Passing) {
        // The first one stays.
        let _ = self.front.passing.set(passing);
    }

    /// Takes requests that other nodes pass on.
    pub(crate) fn taker(&self) -> mpsc::Sender<Taken> {
        self.taker.clone()
    }

    /// What it has served so far.
    pub fn stats(&self) -> ServiceStats {
        self.front.stats()
    }

    /// Takes no more connections or requests. Those under way go on.
    pub fn leave(&self) {
        self.stop.cancel();
    }

    /// Takes no more connections or requests, and waits until those under way have ended, but no longer than `patience`.
    /// True if all have.
    ///
    /// # Panics
    /// When it is called in a thread of a tokio runtime.
    pub fn drain(self, patience: Duration) -> bool {
        let control = self.front.client().shared().control.clone();
        control.block_on(self.drain_async(patience))
    }

    /// As [`Service::drain`].
    pub(crate) async fn drain_async(mut self, patience: Duration) -> bool {
        self.leave();
        let drained = async {
            if let Some(accepting) = self.accepting.take() {
                // One that has panicked is over, too.
                let _ = accepting.await;
            }
            // A handler returns after its response has gone.
            for handler in self.front.client().unended() {
                handler.await;
            }
        };
        tokio::time::timeout(patience, drained).await.is_ok()
    }
}

/// TLS with a certificate and its key, as PEM.
///
/// # Errors
/// When they are of no use.
pub(crate) fn acceptor(cert: &[u8], key: &[u8]) -> Result<TlsAcceptor, PemError> {
    let config = server_tls(cert, key, &PROTOCOLS)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Listens. A runtime that is dropped in another one panics: so this comes before there are threads.
fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
        self.front.client().cancel_all();
    }
}
