//! A bad link: a UDP proxy in front of a node that loses, doubles, delays and reorders datagrams, from a seed.
//!
//! For kernels without `tc netem`, and for who may not use it. Owns its threads: they end with the proxy.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::world::Random;

/// In thousandths.
const LOST: u64 = 50;
const DOUBLED: u64 = 30;
/// Each datagram is under way for a while between these, so that some overtake others.
const SOONEST_US: u64 = 1000;
const LATEST_US: u64 = 6000;
/// How soon a thread notices that the proxy is gone.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    passed: AtomicU64,
    lost: AtomicU64,
}

/// A datagram on its way.
struct Flying {
    from: Arc<UdpSocket>,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Proxy {
    /// In front of what listens at `target`, or will.
    pub(super) fn new(target: SocketAddr, seed: u64) -> Self {
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let address = front.local_addr().expect("it has an address");
        let shared = Arc::<Shared>::default();
        let (sender, flying) = mpsc::channel();
        let of_link = shared.clone();
        thread::spawn(move || fly(&of_link, &flying, seed));
        let front = Arc::new(front);
        let of_front = shared.clone();
        thread::spawn(move || forth(&front, target, &sender, &of_front));
        Self { address, shared }
    }

    /// How many datagrams it has let pass, and how many not.
    pub(super) fn counts(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&self.shared.passed), count(&self.shared.lost))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

/// Calls `take` with what comes, until the proxy is gone.
fn each(socket: &UdpSocket, shared: &Shared, mut take: impl FnMut(SocketAddr, &[u8])) {
    socket.set_read_timeout(Some(LOOK)).expect("it is a time");
    let mut buffer = vec![0; 65_536];
    while !shared.is_over.load(Ordering::Relaxed) {
        // Nothing has come for a while, or what was sent has reached nobody.
        if let Ok((len, from)) = socket.recv_from(&mut buffer) {
            take(from, &buffer[..len]);
        }
    }
}

/// What goes to the node, each sender's from a port of its own.
fn forth(
    front: &Arc<UdpSocket>,
    target: SocketAddr,
    sender: &Sender<Flying>,
    shared: &Arc<Shared>,
) {
    let mut backs: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    each(front, shared, |from, bytes| {
        let back = backs.entry(from).or_insert_with(|| {
            let back = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
            let back = Arc::new(back.expect("a socket"));
            let (front, socket) = (front.clone(), back.clone());
            let (sender, shared) = (sender.clone(), shared.clone());
            thread::spawn(move || {
                each(&socket, &shared, |_, bytes| {
                    let _ = sender.send(Flying {
                        from: front.clone(),
                        to: from,
                        bytes: bytes.to_vec(),
                    });
                });
            });
            back
        });
        let _ = sender.send(Flying {
            from: back.clone(),
            to: target,
            bytes: bytes.to_vec(),
        });
    });
}

/// Delivers what is under way, or does not.
fn fly(shared: &Shared, coming: &Receiver<Flying>, seed: u64) {
    let mut random = Random::new(seed);
    let mut under_way: BinaryHeap<Reverse<(Instant, u64)>> = BinaryHeap::new();
    let mut flying: HashMap<u64, Flying> = HashMap::new();
    let mut count = 0;
    loop {
        let now = Instant::now();
        while let Some(Reverse((due, number))) = under_way.peek().copied()
            && due <= now
        {
            under_way.pop();
            let datagram = flying.remove(&number).expect("it is under way");
            // A full buffer is a lost datagram, as in life.
            let _ = datagram.from.send_to(&datagram.bytes, datagram.to);
        }
        let next = under_way.peek().map(|Reverse((due, _))| *due);
        let wait = next.map_or(LOOK, |due| due.saturating_duration_since(now));
        let datagram = match coming.recv_timeout(wait) {
            Ok(datagram) => datagram,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if random.next() % 1000 < LOST {
            shared.lost.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        shared.passed.fetch_add(1, Ordering::Relaxed);
        for _ in 0..1 + u64::from(random.next() % 1000 < DOUBLED) {
            let delay = SOONEST_US + random.next() % (LATEST_US - SOONEST_US);
            under_way.push(Reverse((
                Instant::now() + Duration::from_micros(delay),
                count,
            )));
            let twin = Flying {
                from: datagram.from.clone(),
                to: datagram.to,
                bytes: datagram.bytes.clone(),
            };
            flying.insert(count, twin);
            count += 1;
        }
    }
}
