//! The UDP socket under an endpoint: quinn's, but for how much is received at a time, and for its end.
//!
//! Owns the size of receive buffers, and how a port is given back. Must not: look at datagrams.
//!
//! quinn makes room for 32 receptions of 64 datagrams each, of the largest size there is: 134 MB with datagrams of
//! 64 KiB. But a reception never has more than 64 KiB, of one large datagram or of small ones that the kernel has joined;
//! and what is received at a time is copied at once, so it should stay in a core's cache.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Endpoint, Runtime, UdpPoller};

/// The most that one reception has, in bytes: a datagram that UDP can carry, or joined ones.
pub(crate) const MAX_RECEIVED: u16 = 65_527;
/// How many receptions at a time: half a megabyte.
const RECEPTIONS: usize = 8;

#[derive(Debug)]
pub(crate) struct Socket(Arc<dyn AsyncUdpSocket>);

impl Socket {
    /// A socket of this runtime.
    pub(crate) fn new(socket: UdpSocket, runtime: &dyn Runtime) -> io::Result<Self> {
        runtime.wrap_udp_socket(socket).map(Self)
    }

    /// To see when nobody has it any more.
    pub(crate) fn watch(&self) -> Weak<dyn AsyncUdpSocket> {
        Arc::downgrade(&self.0)
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.0.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.try_send(transmit)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let count = RECEPTIONS.min(buffers.len()).min(meta.len());
        self.0
            .poll_recv(context, &mut buffers[..count], &mut meta[..count])
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments()
    }

    /// How many of the largest datagrams a reception can have.
    fn max_receive_segments(&self) -> usize {
        1
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}

/// How soon it is looked again whether a socket is closed.
const LOOK: Duration = Duration::from_millis(1);

/// Takes an endpoint's socket away, and returns when that is closed: its port is free.
///
/// What is left of its connections goes nowhere. quinn keeps a socket until the last of them has waited for three times
/// as long as a packet may take, which after a node was frozen, or its network away, is many seconds.
pub(crate) async fn take_from(endpoint: &Endpoint, socket: &Weak<dyn AsyncUdpSocket>) {
    let Ok(address) = endpoint.local_addr() else {
        return;
    };
    // The one that was there before is kept as well, for what still arrives at it: until there is another.
    for _ in 0..2 {
        // It fails if the new socket has no address. This one has.
        let _ = endpoint.rebind_abstract(Arc::new(Nowhere(address)));
    }
    while socket.strong_count() > 0 {
        tokio::time::sleep(LOOK).await;
    }
}

/// A socket at which nothing arrives. What is sent from it is lost on the way.
#[derive(Debug)]
struct Nowhere(SocketAddr);

impl AsyncUdpSocket for Nowhere {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Self(self.0))
    }

    fn try_send(&self, _: &Transmit<'_>) -> io::Result<()> {
        Ok(())
    }

    fn poll_recv(
        &self,
        _: &mut Context<'_>,
        _: &mut [IoSliceMut<'_>],
        _: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0)
    }
}

impl UdpPoller for Nowhere {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
