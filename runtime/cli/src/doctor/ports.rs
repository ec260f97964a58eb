//! The ports that a node listens at: free, or taken by whom.
//!
//! Owns how that is found out: by listening there for a moment, and by what the kernel says of sockets and processes.
//! Must not: send anything to anybody; whether a firewall lets others in is nothing that this machine knows.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use super::Check;

/// A port that a node listens at.
#[derive(Clone, Copy)]
pub(super) struct Port {
    /// What the check of it is called.
    pub(super) name: &'static str,
    pub(super) protocol: Protocol,
    pub(super) address: SocketAddr,
    /// The option of `node start` that names another.
    pub(super) option: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

/// The node of this machine that commands find, if there is one.
pub(super) struct Own {
    pub(super) name: String,
    pub(super) process: u32,
}

impl Port {
    /// How it is with it. `own` is asked for only where somebody has it.
    pub(super) fn check(self, own: impl Fn() -> Option<Own>) -> Check {
        let (is_good, found) = match self.listen() {
            Ok(()) => (true, format!("{self} is free")),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                self.taken(self.holder().as_ref(), own())
            }
            Err(error) => (false, self.refused(&error)),
        };
        Check::new(self.name, is_good, found)
    }

    /// As a node would.
    fn listen(self) -> io::Result<()> {
        match self.protocol {
            Protocol::Tcp => TcpListener::bind(self.address).map(drop),
            Protocol::Udp => UdpSocket::bind(self.address).map(drop),
        }
    }

    /// Whether that is well, and what is said of it.
    fn taken(self, holder: Option<&Process>, own: Option<Own>) -> (bool, String) {
        let Some(Process { id, name }) = holder else {
            return (
                false,
                format!(
                    "{self} is taken, by a process that this user cannot see: look as root, or give the node another \
                     port with {}",
                    self.option
                ),
            );
        };
        match own.filter(|own| own.process == *id) {
            Some(own) => (
                true,
                format!("{self} is taken by node {} (process {id})", own.name),
            ),
            None if name == "wasmrun" => (
                true,
                format!(
                    "{self} is taken by wasmrun (process {id}); a second node on this machine needs another port: {}",
                    self.option
                ),
            ),
            None => (
                false,
                format!(
                    "{self} is taken by {name} (process {id}): stop that, or give the node another port with {}",
                    self.option
                ),
            ),
        }
    }

    fn refused(self, error: &io::Error) -> String {
        let option = self.option;
        match error.kind() {
            ErrorKind::AddrNotAvailable => format!(
                "{self} cannot be used: {} is no address of this machine; name one that is with {option}",
                self.address.ip()
            ),
            ErrorKind::PermissionDenied => format!(
                "{self} is not allowed to this user: ports below net.ipv4.ip_unprivileged_port_start are for root, or \
                 for programs with CAP_NET_BIND_SERVICE; give the node a higher one with {option}"
            ),
            _ => format!(
                "{self} cannot be used: {error}; give the node another address with {option}"
            ),
        }
    }

    /// The process that has it, as far as this user may know.
    fn holder(self) -> Option<Process> {
        let tables = match self.protocol {
            Protocol::Tcp => ["/proc/net/tcp", "/proc/net/tcp6"],
            Protocol::Udp => ["/proc/net/udp", "/proc/net/udp6"],
        };
        let texts = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
        let sockets = texts.iter().flat_map(|text| text.lines());
        let sockets: Vec<u64> = sockets.filter_map(|line| self.socket(line)).collect();
        processes().find(|process| process.has(&sockets))
    }

    /// The socket of a line of such a table, if it is in the way.
    fn socket(self, line: &str) -> Option<u64> {
        /// The state of TCP's sockets that listen.
        const LISTENS: &str = "0A";
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.split_once(':')?;
        let (ip, port) = (ip_of(ip)?, u16::from_str_radix(port, 16).ok()?);
        let ours = self.address.ip();
        let is_there = ip == ours || ip.is_unspecified() || ours.is_unspecified();
        let is_open = self.protocol == Protocol::Udp || *fields.get(3)? == LISTENS;
        let is_it = port == self.address.port() && is_there && is_open;
        fields.get(9).filter(|_| is_it)?.parse().ok()
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        };
        write!(f, "{protocol} {}", self.address)
    }
}

/// An address as the kernel's tables have it: words of 32 bits, each in the order of this machine.
fn ip_of(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(digits.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    if digits.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let words = [word(0)?, word(1)?, word(2)?, word(3)?];
    let bytes: [u8; 16] = words.concat().try_into().ok()?;
    let ip = Ipv6Addr::from(bytes);
    Some(ip.to_ipv4_mapped().map_or(ip.into(), IpAddr::from))
}

struct Process {
    id: u32,
    name: String,
}

/// Those that run, in the order of the system.
fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let name = name.trim().to_owned();
        Some(Process { id, name })
    })
}

impl Process {
    /// Whether it has one of these sockets. Of processes of other users only root is told.
    fn has(&self, sockets: &[u64]) -> bool {
        let folder = Path::new("/proc").join(self.id.to_string()).join("fd");
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| {
            let socket = target.to_str().and_then(|it| it.strip_prefix("socket:["));
            let socket = socket.and_then(|it| it.strip_suffix(']')?.parse().ok());
            socket.is_some_and(|socket| sockets.contains(&socket))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(protocol: Protocol, address: &str) -> Port {
        Port {
            name: "node port",
            protocol,
            address: address.parse().unwrap(),
            option: "--listen",
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_are_found_in_the_kernels_tables() {
        let line = |local: &str, state: &str| {
            format!(
                "  7: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0  0 5151 2 0 0"
            )
        };
        let (udp, tcp) = (Protocol::Udp, Protocol::Tcp);
        let held = |protocol, address: &str, local: &str, state: &str| {
            let socket = port(protocol, address).socket(&line(local, state));
            assert!(socket.is_none_or(|it| it == 5151));
            socket.is_some()
        };
        assert!(held(udp, "127.0.0.1:7461", "0100007F:1D25", "07"));
        assert!(held(udp, "127.0.0.1:7461", "00000000:1D25", "07"));
        assert!(held(udp, "0.0.0.0:7461", "0100007F:1D25", "07"));
        assert!(!held(udp, "127.0.0.1:7461", "0200007F:1D25", "07"));
        assert!(!held(udp, "127.0.0.1:7461", "0100007F:1D26", "07"));
        let (any, mapped) = ("0".repeat(32), "0000000000000000FFFF00000100007F");
        assert!(held(udp, "127.0.0.1:7461", &format!("{any}:1D25"), "07"));
        assert!(held(udp, "127.0.0.1:7461", &format!("{mapped}:1D25"), "07"));
        // One that is connected is in nobody's way.
        assert!(held(tcp, "127.0.0.1:7461", "0100007F:1D25", "0A"));
        assert!(!held(tcp, "127.0.0.1:7461", "0100007F:1D25", "01"));
        // The first line, and what is none.
        for line in ["  sl  local_address rem_address   st", "", "7: x"] {
            assert_eq!(port(udp, "127.0.0.1:7461").socket(line), None);
        }
    }

    #[test]
    fn what_is_said_tells_what_to_do() {
        let port = port(Protocol::Udp, "10.0.0.1:80");
        let denied = port.refused(&ErrorKind::PermissionDenied.into());
        assert!(
            denied.contains("UDP 10.0.0.1:80 is not allowed"),
            "{denied}"
        );
        assert!(denied.contains("a higher one with --listen"), "{denied}");
        let (is_good, hidden) = port.taken(None, None);
        assert!(!is_good && hidden.contains("look as root"), "{hidden}");
        let process = |name: &str| Process {
            id: 7,
            name: name.into(),
        };
        let own = |process| {
            Some(Own {
                name: "n1".into(),
                process,
            })
        };
        let (is_good, said) = port.taken(Some(&process("wasmrun")), own(7));
        assert!(
            is_good && said.ends_with("by node n1 (process 7)"),
            "{said}"
        );
        let (is_good, said) = port.taken(Some(&process("wasmrun")), own(8));
        assert!(is_good && said.contains("by wasmrun (process 7)"), "{said}");
        let (is_good, said) = port.taken(Some(&process("nginx")), own(8));
        assert!(
            !is_good && said.contains("by nginx (process 7): stop that"),
            "{said}"
        );
    }
}
