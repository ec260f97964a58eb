//! Where a node can be reached, as text.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Where a node can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// `unix:PATH`: a socket of this machine, for its user.
    Unix(SocketPath),
    /// `HOST:PORT`: on the network, for clients with a certificate of its cluster.
    Network(HostPort),
}

/// The path of a unix socket, which the system can take.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SocketPath(String);

/// `HOST:PORT`, where the host is a name or an address; one of IPv6 stands in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort(String);

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseAddressError {
    /// Nothing that we know.
    #[error(
        "'{0}' is no address of a node: use unix:PATH on its machine, such as unix:/run/user/1000/wasmrun/node.sock, \
         or HOST:PORT from elsewhere, such as 10.0.0.1:7461"
    )]
    Form(String),
    /// The system takes no path that long.
    #[error("the path of the socket has {0} bytes, and the system takes {max}; choose a shorter one", max = Address::MAX_PATH_BYTES)]
    TooLong(usize),
}

impl Address {
    /// The longest path of a unix socket, in bytes.
    pub const MAX_PATH_BYTES: usize = 107;
    /// The longest name of a host, in bytes.
    const MAX_HOST_BYTES: usize = 253;

    /// The socket of a user's node where none is named: below the user's runtime folder, if there is
    /// one, else in a folder of the user's own in `/tmp`.
    pub fn default_for(runtime_dir: Option<&str>, user_id: u32) -> Self {
        let dir = runtime_dir.filter(|dir| dir.starts_with('/'));
        let path = dir.map(|dir| format!("{}/wasmrun/node.sock", dir.trim_end_matches('/')));
        let path = path.filter(|path| path.len() <= Self::MAX_PATH_BYTES);
        let elsewhere = || format!("/tmp/wasmrun-{user_id}/node.sock");
        Self::Unix(SocketPath(path.unwrap_or_else(elsewhere)))
    }
}

impl SocketPath {
    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl HostPort {
    /// `HOST:PORT`, as name services take it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        // As a number reads it, but for a sign.
        let is_port = port.bytes().all(|it| it.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0);
        let is_name = |it: u8| it.is_ascii_alphanumeric() || b"-._".contains(&it);
        let is_host = match host.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')
                .is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok()),
            None => {
                (1..=Address::MAX_HOST_BYTES).contains(&host.len()) && host.bytes().all(is_name)
            }
        };
        (is_port && is_host).then(|| Self(text.to_owned()))
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let form = || ParseAddressError::Form(text.chars().take(120).collect());
        match text.strip_prefix("unix:") {
            Some(path) if path.len() > Self::MAX_PATH_BYTES => {
                Err(ParseAddressError::TooLong(path.len()))
            }
            Some(path) if !path.is_empty() && !path.contains('\0') => {
                Ok(Self::Unix(SocketPath(path.into())))
            }
            Some(_) => Err(form()),
            None => HostPort::parse(text).map(Self::Network).ok_or_else(form),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.0),
            Self::Network(host) => f.write_str(&host.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_refused() {
        for good in [
            "unix:/run/x.sock",
            "10.0.0.1:7461",
            "head.example:1",
            "[::1]:65535",
        ] {
            let address: Address = good.parse().unwrap();
            assert_eq!(address.to_string(), good);
            assert_eq!(
                matches!(address, Address::Unix(_)),
                good.starts_with("unix:")
            );
        }
        for bad in [
            "",
            "unix:",
            "/run/x.sock",
            "node",
            "unix:a\0b",
            ":1",
            "host:",
            "host:0",
            "host:65536",
            "host:+1",
            "::1:7461",
            "[::1]",
            "[x]:1",
            "a b:1",
            "a/b:1",
            "https://x:1",
        ] {
            let parsed = bad.parse::<Address>();
            assert!(matches!(parsed, Err(ParseAddressError::Form(_))), "{bad}");
        }
        let long = format!("unix:/{}", "x".repeat(200));
        assert_eq!(
            long.parse::<Address>(),
            Err(ParseAddressError::TooLong(201))
        );
    }

    #[test]
    fn each_user_has_a_default() {
        let text = |dir, user| Address::default_for(dir, user).to_string();
        assert_eq!(
            text(Some("/run/user/7"), 7),
            "unix:/run/user/7/wasmrun/node.sock"
        );
        assert_eq!(text(Some("relative"), 7), "unix:/tmp/wasmrun-7/node.sock");
        assert_eq!(text(None, 7), "unix:/tmp/wasmrun-7/node.sock");
        let long = format!("/{}", "x".repeat(Address::MAX_PATH_BYTES));
        assert_eq!(text(Some(&long), 7), "unix:/tmp/wasmrun-7/node.sock");
    }
}
