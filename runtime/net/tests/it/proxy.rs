//! A UDP proxy that loses, doubles, delays and reorders datagrams, from a seed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use wasmrun_model::random::Random;

/// What happens to datagrams, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub lost: u64,
    pub doubled: u64,
    pub delayed: u64,
    /// How long the others are under way.
    pub latency: Duration,
}

impl Faults {
    pub const BAD: Self = Self {
        lost: 50,
        doubled: 30,
        delayed: 100,
        latency: Duration::ZERO,
    };
}

pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    target: SocketAddr,
    is_cut: AtomicBool,
    passed: AtomicU64,
    random: Mutex<Random>,
    faults: Faults,
}

impl Proxy {
    pub async fn start(target: SocketAddr, faults: Faults, seed: u64) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"));
        let address = front.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            target,
            is_cut: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            random: Mutex::new(Random::new(seed)),
            faults,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(run(front, shared.clone()));
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    /// From now on nothing passes, or everything as before.
    pub fn cut(&self, is_cut: bool) {
        self.shared.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

async fn run(front: Arc<UdpSocket>, shared: Arc<Shared>) {
    let mut backs: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut tasks = JoinSet::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let Ok((len, from)) = front.recv_from(&mut buffer).await else {
            continue;
        };
        let back = match backs.get(&from) {
            Some(back) => back.clone(),
            None => {
                let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"));
                back.connect(shared.target).await.expect("it is UDP");
                backs.insert(from, back.clone());
                tasks.spawn(answers(front.clone(), back.clone(), from, shared.clone()));
                back
            }
        };
        let bytes = buffer[..len].to_vec();
        shared.pass(&mut tasks, bytes, move |bytes| {
            let back = back.clone();
            // A full buffer is a lost datagram, as in life.
            async move { drop(back.send(&bytes).await) }
        });
    }
}

async fn answers(front: Arc<UdpSocket>, back: Arc<UdpSocket>, to: SocketAddr, shared: Arc<Shared>) {
    let mut tasks = JoinSet::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let Ok(len) = back.recv(&mut buffer).await else {
            continue;
        };
        let front = front.clone();
        shared.pass(&mut tasks, buffer[..len].to_vec(), move |bytes| {
            let front = front.clone();
            async move { drop(front.send_to(&bytes, to).await) }
        });
    }
}

impl Shared {
    fn pass<F>(&self, tasks: &mut JoinSet<()>, bytes: Vec<u8>, send: impl Fn(Vec<u8>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while tasks.try_join_next().is_some() {}
        let mut random = self.random.lock();
        let mut happens = |per_mille: u64| random.next() % 1000 < per_mille;
        if self.is_cut.load(Ordering::SeqCst) || happens(self.faults.lost) {
            return;
        }
        self.passed.fetch_add(1, Ordering::Relaxed);
        for _ in 0..1 + u8::from(happens(self.faults.doubled)) {
            let sent = send(bytes.clone());
            if happens(self.faults.delayed) {
                // Behind those that come in the next milliseconds.
                tasks.spawn(async move {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    sent.await;
                });
            } else if self.faults.latency.is_zero() {
                tasks.spawn(sent);
            } else {
                let latency = self.faults.latency;
                tasks.spawn(async move {
                    tokio::time::sleep(latency).await;
                    sent.await;
                });
            }
        }
    }
}
