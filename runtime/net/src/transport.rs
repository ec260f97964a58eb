//! QUIC's settings, by measurement (docs/decisions/transport.md).
//!
//! Owns sockets and everything that quinn can be tuned by. Must not: know what is sent.
//!
//! Two kinds of connections. *Control* carries messages: small windows, so that nobody can make us
//! hold much. *Bulk* carries objects on a connection and a socket of its own: large windows, and what
//! it fills is not what messages wait in.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{
    AckFrequencyConfig, ClientConfig, Endpoint, EndpointConfig, IdleTimeout, MtuDiscoveryConfig,
    ServerConfig, TransportConfig, VarInt,
};

use crate::config::Timing;
use crate::tls::Tls;

/// The datagram size on loopback: the fastest measured. Ten of them, the most that quinn hands to the
/// kernel at once, must stay below 64 KiB, or segmentation offload falls away.
const LOOPBACK_MTU: u16 = 6400;
/// Up to which size discovery looks for larger datagrams on a network, for the same reason. Networks
/// with jumbo frames of 9000 bytes are left 30 % short, and are faster for it.
const NETWORK_MTU_BOUND: u16 = 6400;
/// What every network takes; discovery begins there.
const NETWORK_MTU: u16 = 1200;
/// The largest datagram that is received, from peers that are set up otherwise.
const MAX_DATAGRAM: u16 = 9000;
/// What is asked from the kernel for a socket, each way, in bytes. It may give less.
const SOCKET_BYTES: usize = 2 << 20;

/// What a control connection may have under way, in bytes.
const CONTROL_STREAM_WINDOW: u32 = 2 << 20;
const CONTROL_WINDOW: u32 = 5 << 20;
/// What a bulk connection may have under way, in bytes. More is slower on loopback, where it falls out
/// of the processor's caches; at 1 ms it still allows 8 GB/s.
pub(crate) const BULK_WINDOW: u32 = 8 << 20;
const BULK_STREAM_WINDOW: u32 = 4 << 20;
/// How long a bulk connection is kept when nothing is asked of it.
const BULK_IDLE: Duration = Duration::from_secs(30);

/// What a connection is for, as far as its settings go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Control,
    Bulk,
}

/// A socket with large buffers, and an endpoint on it.
pub(crate) fn endpoint(address: SocketAddr) -> io::Result<Endpoint> {
    use rustix::net::sockopt;
    let socket = UdpSocket::bind(address)?;
    // With the right to, beyond what the system allows everybody. Less is slower, and no error.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES));
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(MAX_DATAGRAM)
        .expect("it is larger than the least and fits");
    Endpoint::new(config, None, socket, Arc::new(quinn::TokioRuntime))
}

pub(crate) fn server(tls: &Tls, from: IpAddr, timing: &Timing) -> ServerConfig {
    let mut config = ServerConfig::with_crypto(tls.server.clone());
    config
        // Nodes do not roam; an address that changes is a new connection.
        .migration(false)
        .transport_config(Arc::new(transport(from, Kind::Control, timing)));
    config
}

pub(crate) fn client(
    tls: Arc<quinn::crypto::rustls::QuicClientConfig>,
    to: IpAddr,
    kind: Kind,
    timing: &Timing,
) -> ClientConfig {
    let mut config = ClientConfig::new(tls);
    config.transport_config(Arc::new(transport(to, kind, timing)));
    config
}

fn transport(remote: IpAddr, kind: Kind, timing: &Timing) -> TransportConfig {
    let mut config = TransportConfig::default();
    let idle = match kind {
        Kind::Control => timing.idle,
        Kind::Bulk => BULK_IDLE,
    };
    config
        .max_idle_timeout(IdleTimeout::try_from(idle).ok())
        .datagram_receive_buffer_size(None)
        .allow_spin(false);
    let mut discovery = MtuDiscoveryConfig::default();
    if remote.is_loopback() {
        discovery.upper_bound(LOOPBACK_MTU);
        config
            .initial_mtu(LOOPBACK_MTU)
            .initial_rtt(Duration::from_millis(5));
    } else {
        discovery.upper_bound(NETWORK_MTU_BOUND);
        config
            .initial_mtu(NETWORK_MTU)
            .initial_rtt(Duration::from_millis(100));
    }
    config.mtu_discovery_config(Some(discovery));
    match kind {
        Kind::Control => config
            .max_concurrent_bidi_streams(VarInt::from_u32(1))
            .max_concurrent_uni_streams(VarInt::from_u32(1))
            .stream_receive_window(VarInt::from_u32(CONTROL_STREAM_WINDOW))
            .receive_window(VarInt::from_u32(CONTROL_WINDOW))
            .send_window(u64::from(CONTROL_WINDOW))
            .keep_alive_interval(Some(timing.idle / 3)),
        Kind::Bulk => {
            let mut acks = AckFrequencyConfig::default();
            acks.ack_eliciting_threshold(VarInt::from_u32(20));
            config
                .max_concurrent_bidi_streams(VarInt::from_u32(0))
                .max_concurrent_uni_streams(VarInt::from_u32(0))
                .stream_receive_window(VarInt::from_u32(BULK_STREAM_WINDOW))
                .receive_window(VarInt::from_u32(BULK_WINDOW))
                .ack_frequency_config(Some(acks))
        }
    };
    config
}
