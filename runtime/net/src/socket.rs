//! The UDP socket under an endpoint: quinn's, but for how much is received at a time.
//!
//! Owns the size of receive buffers. Must not: look at datagrams.
//!
//! quinn makes room for 32 receptions of 64 datagrams each, of the largest size there is: 134 MB with datagrams of
//! 64 KiB. But a reception never has more than 64 KiB, of one large datagram or of small ones that the kernel has joined;
//! and what is received at a time is copied at once, so it should stay in a core's cache.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, UdpPoller};

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
