//! Measures the network between two processes on loopback, encrypted as always.
//!
//! `cargo run --release -p wasmrun-net --example throughput` starts a copy of itself as the other node and
//! prints one line per case. `-- 1g 100m messages requests` chooses cases; STREAMS and PIECE_MB in the
//! environment set how ranges are fetched, WORKERS how many threads each process has, and BULK how many more for bulk:
//! one if it is not set; with 0 bulk goes where all else does.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::{Handle, Runtime};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_net::{
    Authority, BulkRefusal, BulkSender, Config, Identity, Network, Peer, Protocol, PullOptions,
    Range, Role, Service, Version,
};

const WAIT: Duration = Duration::from_secs(30);
const OBJECT_BYTES: usize = 1 << 30;
const MIB: usize = 1 << 20;

struct Bench;

impl Protocol for Bench {
    const VERSION: Version = Version { major: 1, minor: 0 };
    type OneWay = (u64, [u8; 16]);
    type Request = u64;
    type Response = u64;
    type Bulk = ();
}

/// Has an object and counts messages.
struct Node {
    object: Bytes,
    told: AtomicU64,
}

impl Service<Bench> for Node {
    async fn one_way(&self, _from: &Peer<Bench>, _: Incarnation, _message: (u64, [u8; 16])) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    async fn request(&self, _from: &Peer<Bench>, request: u64) -> u64 {
        match request {
            0 => self.told.load(Ordering::Relaxed),
            other => other,
        }
    }

    async fn bulk(
        &self,
        _from: &Peer<Bench>,
        _request: (),
        range: Range,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        let (begin, end) = (range.offset as usize, (range.offset + range.len) as usize);
        if end > self.object.len() {
            return Err(BulkRefusal::NotHere);
        }
        let sent = to.write(self.object.slice(begin..end)).await;
        sent.map_err(|_| BulkRefusal::Failed)
    }
}

/// Where bulk goes, if it goes elsewhere.
fn bulk() -> Option<Handle> {
    static BULK: OnceLock<Option<Runtime>> = OnceLock::new();
    let runtime = BULK.get_or_init(|| match set("BULK").unwrap_or(1) {
        0 => None,
        threads => Some(runtime(threads)),
    });
    runtime.as_ref().map(|runtime| runtime.handle().clone())
}

fn runtime(threads: usize) -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn set(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

fn start(identity: Identity, object: Bytes) -> (Network<Bench>, Arc<Node>) {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let node = Arc::new(Node {
        object,
        told: AtomicU64::new(0),
    });
    let mut config = Config::new(identity, Incarnation(1), listen);
    config.bulk = bulk();
    let network = Network::start(config, node.clone()).expect("a network");
    (network, node)
}

/// The other process; ended with this one.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let runtime = runtime(set("WORKERS").unwrap_or(2));
    // As a task, as in a node; the thread that waits for it is none of the runtime's.
    runtime.block_on(async { tokio::spawn(measure()).await.expect("no panic") });
}

async fn measure() {
    let cases: Vec<String> = std::env::args().skip(1).collect();
    if let [first, folder] = cases.as_slice()
        && first == "--serve"
    {
        return serve(folder).await;
    }
    let is_wanted = |case: &str| cases.is_empty() || cases.iter().any(|wanted| wanted == case);
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::create(folder.path()).expect("an authority");
    let issue = |n| {
        let role = Role::Node(NodeId::from_bytes([n; 16]));
        authority
            .issue(role, Duration::from_secs(3600))
            .expect("an identity")
    };
    issue(2).save(folder.path()).expect("saved");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--serve".as_ref(), folder.path()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut line = String::new();
    let output = child.stdout.take().expect("it is piped");
    let _other = Other(child);
    BufReader::new(output)
        .read_line(&mut line)
        .expect("its address");
    let address = line.trim().parse().expect("an address");
    let (network, _) = start(issue(1), Bytes::new());
    let peer = network
        .peer(NodeId::from_bytes([2; 16]), vec![address])
        .expect("a peer");
    peer.connected().await.expect("connected");
    if is_wanted("messages") {
        messages(&peer).await;
    }
    if is_wanted("requests") {
        requests(&peer).await;
    }
    if is_wanted("100m") || is_wanted("1g") || is_wanted("beside") {
        let wanted = ["1g", "100m", "beside"].map(is_wanted);
        let pulling = pulls(peer.clone(), wanted);
        let runtime = bulk().unwrap_or_else(Handle::current);
        runtime.spawn(pulling).await.expect("no panic");
    }
    network.close().await;
}

async fn pulls(peer: Peer<Bench>, [large, small, beside_it]: [bool; 3]) {
    let mut to = vec![0; OBJECT_BYTES];
    let options = options();
    if large {
        transfer("transfer_1g", &peer, &mut to, 5, &options).await;
    }
    if small {
        transfer("transfer_100m", &peer, &mut to[..100 * MIB], 20, &options).await;
    }
    if beside_it {
        beside(&peer, &mut to, &options).await;
    }
}

async fn serve(folder: &str) {
    let identity = Identity::load(folder.as_ref()).expect("an identity");
    // Touched, so that the first transfer does not measure the kernel clearing pages.
    let object = Bytes::from((0..OBJECT_BYTES).map(|n| n as u8).collect::<Vec<_>>());
    let (network, _node) = start(identity, object);
    println!("{}", network.local_address().expect("an address"));
    std::io::stdout().flush().expect("stdout is open");
    // Until the other side ends.
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    let _ = ended.await;
}

fn options() -> PullOptions {
    let mut options = PullOptions::default();
    options.streams = set("STREAMS").unwrap_or(options.streams);
    options.piece_bytes = set("PIECE_MB").map_or(options.piece_bytes, |n| n * MIB);
    options
}

async fn transfer(
    name: &str,
    peer: &Peer<Bench>,
    to: &mut [u8],
    times: usize,
    options: &PullOptions,
) {
    let mut rates = Vec::new();
    // The first one touches the memory.
    for n in 0..=times {
        let began = Instant::now();
        peer.pull(&(), 0, to, options).await.expect("the bytes");
        let rate = to.len() as f64 / began.elapsed().as_secs_f64() / 1e9;
        if n > 0 {
            rates.push(rate);
        } else {
            println!("{name:<22} first  {rate:6.2} GB/s");
        }
    }
    assert!(
        to.iter()
            .enumerate()
            .step_by(4099)
            .all(|(n, byte)| *byte == n as u8)
    );
    rates.sort_by(f64::total_cmp);
    let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
    println!("{name:<22} median {median:6.2} GB/s, best {best:.2}");
}

async fn messages(peer: &Peer<Bench>) {
    const COUNT: u64 = 1_000_000;
    let mut rates = Vec::new();
    for _ in 0..5 {
        let before = peer.call(&0, WAIT).await.expect("an answer");
        let began = Instant::now();
        for n in 0..COUNT {
            peer.send(&(n, [0; 16])).await.expect("sent");
        }
        peer.flushed().await;
        while peer.call(&0, WAIT).await.expect("an answer") < before + COUNT {}
        rates.push(COUNT as f64 / began.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    println!(
        "one_way_messages       median {:8.0} /s",
        rates[rates.len() / 2]
    );
}

async fn requests(peer: &Peer<Bench>) {
    round_trips("request, alone", peer, 5000).await;
    const COUNT: u64 = 100_000;
    let began = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..64 {
        let peer = peer.clone();
        callers.spawn(async move {
            for n in 0..COUNT / 64 {
                peer.call(&(caller * COUNT + n + 1), WAIT)
                    .await
                    .expect("an answer");
            }
        });
    }
    callers.join_all().await;
    let rate = COUNT as f64 / began.elapsed().as_secs_f64();
    println!("requests, 64 callers          {rate:8.0} /s");
}

async fn round_trips(name: &str, peer: &Peer<Bench>, count: usize) {
    let mut times = Vec::with_capacity(count);
    for n in 1..=count {
        let began = Instant::now();
        peer.call(&(n as u64), WAIT).await.expect("an answer");
        times.push(began.elapsed());
    }
    times.sort();
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000].as_micros();
    println!(
        "{name:<22} p50 {:5} us, p99 {:6} us, p99.9 {:6} us",
        at(500),
        at(990),
        at(999)
    );
}

/// Requests while a transfer goes on.
async fn beside(peer: &Peer<Bench>, to: &mut [u8], options: &PullOptions) {
    let asking = {
        let peer = peer.clone();
        tokio::spawn(async move { round_trips("request, beside bulk", &peer, 500).await })
    };
    let (mut bytes, began) = (0, Instant::now());
    while !asking.is_finished() {
        peer.pull(&(), 0, to, options).await.expect("the bytes");
        bytes += to.len();
    }
    let rate = bytes as f64 / began.elapsed().as_secs_f64() / 1e9;
    println!("bulk, beside requests  {rate:6.2} GB/s");
    asking.await.expect("it ends");
}
