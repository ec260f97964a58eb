//! QUIC and its TLS, with settings by measurement (docs/decisions/transport.md).
//!
//! Owns everything that quinn can be tuned by: endpoints and their sockets, where they are driven, how packets are encrypted
//! and certificates checked. Must not: know what is sent.
//!
//! Two kinds of connections. *Control* carries messages: small windows, so that nobody can make us
//! hold much. *Bulk* carries objects on a connection and a socket of its own: large windows, and what
//! it fills is not what messages wait in.

pub(crate) mod lane;
mod packet;
pub(crate) mod socket;
pub(crate) mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use quinn::congestion::CubicConfig;
use quinn::{
    AckFrequencyConfig, AsyncUdpSocket, ClientConfig, Endpoint, EndpointConfig, IdleTimeout,
    MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt,
};
use tokio::runtime::Handle;

use crate::config::Timing;
use lane::Lane;
use socket::{MAX_RECEIVED, Socket};
use tls::Tls;

/// The largest datagram on loopback, whose packets have 64 KiB: there nothing is cheaper than few of them. A third of
/// the time goes with what is done for each.
const LOOPBACK_MTU: u16 = 65_000;
/// What stands before a datagram in a packet: the headers of IPv6 and UDP.
const HEADERS: u16 = 48;
/// Where there is less, quinn hands ten datagrams at a time to the kernel, which splits them. They must stay
/// below 64 KiB, or it takes them one by one. So no larger ones are used where ten fit, and none is handed over
/// with others where ten do not fit.
const TEN_FIT: u16 = 6400;
/// Up to which size discovery looks for larger datagrams on a network, for the same reason. Networks
/// with jumbo frames of 9000 bytes are left 30 % short, and are faster for it.
const NETWORK_MTU_BOUND: u16 = TEN_FIT;
/// What every network takes; discovery begins there.
const NETWORK_MTU: u16 = 1200;
/// What a datagram of a handshake can have: its length is told in 14 bits.
const HANDSHAKE_MTU: u16 = 16_000;
/// How much may be under way on loopback before anything is known of it, in bytes. Less than two datagrams would be
/// none at all.
const LOOPBACK_WINDOW: u64 = 1 << 20;
/// How soon large datagrams are tried again on loopback, when a full receive buffer has made it look as if they did
/// not arrive.
const LOOPBACK_AGAIN: Duration = Duration::from_secs(1);
/// What is asked from the kernel for a socket, each way, in bytes. It may give less.
const SOCKET_BYTES: usize = 4 << 20;

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

/// A socket with large buffers, and an endpoint on it, driven there.
pub(crate) fn endpoint(address: SocketAddr, lane: Handle) -> io::Result<Endpoint> {
    watched_endpoint(address, lane).map(|(endpoint, _)| endpoint)
}

/// The same, and its socket, to be given back before the endpoint is.
pub(crate) fn watched_endpoint(
    address: SocketAddr,
    lane: Handle,
) -> io::Result<(Endpoint, Weak<dyn AsyncUdpSocket>)> {
    use rustix::net::sockopt;
    let socket = UdpSocket::bind(address)?;
    // With the right to, beyond what the system allows everybody. Less is slower, and no error.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES));
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(MAX_RECEIVED)
        .expect("it is larger than the least and fits");
    let lane = Arc::new(Lane(lane));
    let socket = Socket::new(socket, &*lane)?;
    let watch = socket.watch();
    let endpoint = Endpoint::new_with_abstract_socket(config, None, Arc::new(socket), lane)?;
    Ok((endpoint, watch))
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
        let mtu = loopback_mtu();
        let mut congestion = CubicConfig::default();
        congestion.initial_window(LOOPBACK_WINDOW);
        discovery
            .upper_bound(mtu)
            .black_hole_cooldown(LOOPBACK_AGAIN);
        config
            .initial_mtu(mtu)
            .min_mtu(mtu.min(HANDSHAKE_MTU))
            .enable_segmentation_offload(mtu <= TEN_FIT)
            .congestion_controller_factory(Arc::new(congestion))
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

/// The datagrams that the loopback device takes. It is set to 64 KiB unless somebody has changed that.
fn loopback_mtu() -> u16 {
    static MTU: OnceLock<u16> = OnceLock::new();
    *MTU.get_or_init(|| {
        let told = std::fs::read_to_string("/sys/class/net/lo/mtu").ok();
        datagrams_of(told.and_then(|told| told.trim().parse().ok()))
    })
}

/// The size of datagrams for a loopback device with packets of this size, if that is known.
fn datagrams_of(packet_bytes: Option<u32>) -> u16 {
    let Some(packet_bytes) = packet_bytes else {
        return NETWORK_MTU;
    };
    let packet_bytes = u16::try_from(packet_bytes).unwrap_or(u16::MAX);
    match packet_bytes.saturating_sub(HEADERS) {
        fit @ LOOPBACK_MTU.. => fit.min(LOOPBACK_MTU),
        // Ten of them together are more than one that is a little larger.
        fit @ TEN_FIT.. if fit < 2 * TEN_FIT => TEN_FIT,
        fit => fit.max(NETWORK_MTU),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_fit_the_loopback_device() {
        assert_eq!(datagrams_of(Some(65_536)), LOOPBACK_MTU);
        assert_eq!(datagrams_of(Some(1 << 20)), LOOPBACK_MTU);
        assert_eq!(datagrams_of(Some(32_768)), 32_720);
        assert_eq!(datagrams_of(Some(9000)), TEN_FIT);
        assert_eq!(datagrams_of(Some(1500)), 1452);
        assert_eq!(datagrams_of(Some(0)), NETWORK_MTU);
        assert_eq!(datagrams_of(None), NETWORK_MTU);
    }
}
