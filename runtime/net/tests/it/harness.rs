//! A cluster for tests: identities, a service that remembers what it was told, short times.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Semaphore, mpsc};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_net::{
    Authority, BulkRefusal, BulkSender, ByteStream, ClientId, Config, Event, Identity, Network,
    Peer, Protocol, Range, Role, Service, Session, Version,
};

/// How long anything may take before a test counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const LOCAL: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// How long a slow peer takes for a range, with something every now and then.
pub const SLOWLY: Duration = Duration::from_secs(3);

/// The protocol of these tests, in several versions.
#[derive(Debug)]
pub struct Test<const MAJOR: u16 = 1, const MINOR: u16 = 0>;

#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Answered with the same.
    Echo(u64, Vec<u8>),
    /// Never answered.
    Never,
    /// Answered with this many bytes.
    Bytes(usize),
}

impl<const MAJOR: u16, const MINOR: u16> Protocol for Test<MAJOR, MINOR> {
    const VERSION: Version = Version {
        major: MAJOR,
        minor: MINOR,
    };
    type OneWay = (u64, Vec<u8>);
    type Request = Ask;
    type Response = (u64, Vec<u8>);
    /// 0: the bytes; 1: refused; 2: half of it; 3: stops without a word; 4: a wrong byte; 5: half of it, and then
    /// nothing more; 6: the bytes, in [`SLOWLY`].
    type Bulk = u8;
}

/// Remembers everything.
pub struct Memory<P: Protocol> {
    pub one_ways: mpsc::UnboundedSender<(NodeId, u64)>,
    /// Which incarnation sent each of these.
    pub senders: Mutex<Vec<(u64, Incarnation)>>,
    pub asked: Mutex<BTreeMap<(NodeId, u64), u32>>,
    pub events: mpsc::UnboundedSender<Event<P>>,
    /// One-way messages wait for a permit here.
    pub gate: Semaphore,
    /// How many sessions of clients there are. Whatever comes is sent back.
    pub sessions: tokio::sync::watch::Sender<usize>,
    /// How many requests that are never answered, or only in half, are under way.
    pub hanging: tokio::sync::watch::Sender<usize>,
}

/// Counts as long as it is there.
struct Hanging<'a>(&'a tokio::sync::watch::Sender<usize>);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl<const MAJOR: u16, const MINOR: u16> Service<Test<MAJOR, MINOR>>
    for Memory<Test<MAJOR, MINOR>>
{
    async fn one_way(
        &self,
        from: &Peer<Test<MAJOR, MINOR>>,
        incarnation: Incarnation,
        (number, _): (u64, Vec<u8>),
    ) {
        self.gate.acquire().await.expect("it stays open").forget();
        self.gate.add_permits(1);
        self.senders.lock().push((number, incarnation));
        let _ = self.one_ways.send((from.id(), number));
    }

    async fn request(&self, from: &Peer<Test<MAJOR, MINOR>>, ask: Ask) -> (u64, Vec<u8>) {
        match ask {
            Ask::Echo(number, bytes) => {
                *self.asked.lock().entry((from.id(), number)).or_default() += 1;
                (number, bytes)
            }
            Ask::Never => {
                self.hanging.send_modify(|count| *count += 1);
                let _hanging = Hanging(&self.hanging);
                std::future::pending().await
            }
            Ask::Bytes(len) => (0, vec![7; len]),
        }
    }

    async fn bulk(
        &self,
        _from: &Peer<Test<MAJOR, MINOR>>,
        kind: u8,
        range: Range,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        let bytes = |len: u64| {
            Bytes::from(
                (0..len)
                    .map(|n| byte_at(range.offset + n))
                    .collect::<Vec<_>>(),
            )
        };
        match kind {
            0 => to
                .write(bytes(range.len))
                .await
                .map_err(|_| BulkRefusal::Failed),
            1 => Err(BulkRefusal::NotHere),
            2 => {
                let _ = to.write(bytes(range.len / 2)).await;
                Err(BulkRefusal::Failed)
            }
            // One byte of the piece at 64 KiB is not what it was.
            4 => {
                let right = bytes(range.len);
                to.set_sum(crc32fast::hash(&right));
                let mut sent = right.to_vec();
                if range.offset == 64 << 10 {
                    sent[7] ^= 0x10;
                }
                let sent = to.write(sent.into()).await;
                sent.map_err(|_| BulkRefusal::Failed)
            }
            6 => {
                let (whole, mut tick) = (bytes(range.len), tokio::time::interval(SLOWLY / 30));
                let parts = whole.chunks(whole.len().div_ceil(30));
                for part in parts.map(Bytes::copy_from_slice) {
                    tick.tick().await;
                    to.write(part).await.map_err(|_| BulkRefusal::Failed)?;
                }
                Ok(())
            }
            5 => {
                let _ = to.write(bytes(range.len / 2)).await;
                self.hanging.send_modify(|count| *count += 1);
                let _hanging = Hanging(&self.hanging);
                std::future::pending().await
            }
            _ => std::future::pending().await,
        }
    }

    async fn stream(&self, _from: &Peer<Test<MAJOR, MINOR>>, stream: ByteStream) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
        let _ = writer.shutdown().await;
    }

    async fn session(&self, mut session: Session) {
        self.sessions.send_modify(|count| *count += 1);
        let _there = Hanging(&self.sessions);
        let _ = tokio::io::copy(&mut session.reader, &mut session.writer).await;
    }

    fn event(&self, event: Event<Test<MAJOR, MINOR>>) {
        let _ = self.events.send(event);
    }
}

/// What stands at an offset of the object that everybody has.
pub fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// One end, with what it was told.
pub struct End<P: Protocol = Test> {
    pub network: Network<P>,
    pub memory: Arc<Memory<P>>,
    pub one_ways: mpsc::UnboundedReceiver<(NodeId, u64)>,
    pub events: mpsc::UnboundedReceiver<Event<P>>,
    pub address: SocketAddr,
}

pub struct Cluster {
    pub authority: Arc<Authority>,
    pub folder: tempfile::TempDir,
}

pub fn node_id(n: u8) -> NodeId {
    NodeId::from_bytes([n; 16])
}

impl Cluster {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::create(folder.path()).expect("an authority");
        Self {
            authority: Arc::new(authority),
            folder,
        }
    }

    pub fn identity(&self, role: Role) -> Identity {
        let day = Duration::from_secs(24 * 3600);
        self.authority.issue(role, day).expect("an identity")
    }

    pub fn node_config(&self, n: u8, incarnation: u64) -> Config {
        self.config(Role::Node(node_id(n)), incarnation)
    }

    pub fn client(&self, n: u8) -> Identity {
        self.identity(Role::Client(ClientId::from_bytes([n; 16])))
    }

    fn config(&self, role: Role, incarnation: u64) -> Config {
        let mut config = Config::new(self.identity(role), Incarnation(incarnation), LOCAL);
        config.seed = Some(incarnation);
        config.timing.idle = Duration::from_secs(3);
        config.timing.handshake = Duration::from_secs(10);
        config.timing.backoff_min = Duration::from_millis(10);
        config.timing.backoff_max = Duration::from_millis(200);
        config
    }

    pub fn node(&self, n: u8) -> End {
        start(self.node_config(n, 1))
    }
}

pub fn start<const MAJOR: u16, const MINOR: u16>(config: Config) -> End<Test<MAJOR, MINOR>> {
    let (one_ways, told) = mpsc::unbounded_channel();
    let (event_sender, events) = mpsc::unbounded_channel();
    let memory = Arc::new(Memory {
        one_ways,
        senders: Mutex::default(),
        asked: Mutex::default(),
        events: event_sender,
        gate: Semaphore::new(1),
        sessions: tokio::sync::watch::Sender::new(0),
        hanging: tokio::sync::watch::Sender::new(0),
    });
    let network = Network::start(config, memory.clone()).expect("a network");
    let address = network.local_address().expect("an address");
    End {
        network,
        memory,
        one_ways: told,
        events,
        address,
    }
}

impl<P: Protocol> End<P> {
    /// The next event that is one of these.
    pub async fn event(&mut self, is_it: impl Fn(&Event<P>) -> bool) -> Event<P> {
        soon(async {
            loop {
                let event = self.events.recv().await.expect("it is open");
                if is_it(&event) {
                    return event;
                }
            }
        })
        .await
    }

    /// The next one-way message.
    pub async fn told(&mut self) -> (NodeId, u64) {
        soon(self.one_ways.recv()).await.expect("it is open")
    }
}

/// What must happen, sooner or later.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what)
        .await
        .expect("it hangs")
}
