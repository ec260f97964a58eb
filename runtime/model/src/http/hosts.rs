//! Which HTTP servers a guest may send requests to.
//!
//! Owns the text of a grant ([`HttpHost`]) and which names and addresses it covers. Must not: look names up or connect.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The ports of a grant that names none: those of `http` and `https`.
const DEFAULT_PORTS: [u16; 2] = [80, 443];
/// The longest name of a host (RFC 1035, section 2.3.4).
const MOST_NAME_BYTES: usize = 253;
/// The longest part of a name between two dots (the same).
const MOST_LABEL_BYTES: usize = 63;

/// Servers that a guest may send HTTP requests to. As text `HOST[:PORT]`; without a port it covers 80 and 443.
///
/// A name stands for whatever public addresses it has. An address of a private network or of this machine is reached
/// only where a grant has the address itself, so that who owns a name cannot lead a guest into the network that its
/// node is in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HttpHost {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Host {
    /// `*`.
    Any,
    /// `*.example.com`: all names below that one, not itself.
    Below(String),
    /// In lower case, without a dot at its end.
    Name(String),
    Address(IpAddr),
}

/// A text that names no servers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no HTTP server: {why}; write HOST or HOST:PORT, such as api.example.com, *.example.com:8443, \
     127.0.0.1:8080 or [::1]:8080"
)]
pub struct ParseHttpHostError {
    text: String,
    why: &'static str,
}

impl HttpHost {
    /// Whether it covers this name at this port. A literal address is not a name.
    pub fn covers_name(&self, name: &str, port: u16) -> bool {
        let name = normal(name);
        self.covers_port(port)
            && match &self.host {
                Host::Any => true,
                Host::Name(own) => *own == name,
                Host::Below(own) => name
                    .strip_suffix(own.as_str())
                    .and_then(|rest| rest.strip_suffix('.'))
                    .is_some_and(|rest| !rest.is_empty()),
                Host::Address(_) => false,
            }
    }

    /// Whether it has this very address, at this port.
    pub fn covers_address(&self, address: SocketAddr) -> bool {
        self.covers_port(address.port())
            && matches!(self.host, Host::Address(own) if own == address.ip().to_canonical())
    }

    fn covers_port(&self, port: u16) -> bool {
        match self.port {
            Some(own) => own == port,
            None => DEFAULT_PORTS.contains(&port),
        }
    }
}

/// Whether an address is one of the internet, that a name may lead to: none of this machine, of a private network, of
/// one link, of a group, or set aside.
///
/// Source: IANA's registries of special-purpose addresses (RFC 6890). Addresses of IPv6 that stand for one of IPv4 are
/// what that one is.
pub fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_shared = a == 100 && b & 0xc0 == 64;
    let is_protocol = (a, b, c) == (192, 0, 0);
    let is_benchmark = a == 198 && b & 0xfe == 18;
    let is_relay = (a, b, c) == (192, 88, 99);
    // Public by its number, and on each virtual machine of Azure the host that has its secrets.
    let is_wire_server = ip.octets() == [168, 63, 129, 16];
    !(a == 0
        || a >= 240
        || ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_documentation()
        || is_shared
        || is_protocol
        || is_benchmark
        || is_relay
        || is_wire_server)
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, high, low] = ip.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match (a, b) {
        // NAT64 (RFC 6052) and 6to4 (RFC 3056).
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => is_public_v4(v4(high, low)),
        (0x2002, _) => is_public_v4(v4(b, c)),
        // Protocols, Teredo among them; documentation.
        (0x2001, b) if b < 0x200 || b == 0xdb8 => false,
        (0x3fff, b) if b < 0x1000 => false,
        _ => a & 0xe000 == 0x2000,
    }
}

/// A name as it is compared: in lower case, without the dot that may end it.
fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Why a text is not a host's name.
fn check_name(name: &str) -> Result<(), &'static str> {
    let is_label = |label: &str| {
        (1..=MOST_LABEL_BYTES).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if name.len() > MOST_NAME_BYTES || !name.split('.').all(is_label) {
        return Err("a name has letters, digits, hyphens and dots (others as punycode, xn--…)");
    }
    // A resolver may take such a name for an address in an old form.
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
        return Err("it looks like an address, and is none");
    }
    Ok(())
}

impl FromStr for HttpHost {
    type Err = ParseHttpHostError;

    fn from_str(text: &str) -> Result<Self, ParseHttpHostError> {
        let wrong = |why| ParseHttpHostError {
            text: text.to_owned(),
            why,
        };
        if text.contains("://") {
            return Err(wrong("it is a URL, and a grant has no scheme and no path"));
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::of_address(ip, None));
        }
        let (host, port) = match text.rsplit_once(':') {
            None => (text, None),
            // The colon is one of the address.
            Some(_) if text.ends_with(']') => (text, None),
            Some((host, port)) => {
                let port: u16 = port.parse().map_err(|_| wrong("its port is no number"))?;
                if port == 0 {
                    return Err(wrong("no server has port 0"));
                }
                (host, Some(port))
            }
        };
        let literal = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        if let Some(literal) = literal {
            let ip: Ipv6Addr = literal
                .parse()
                .map_err(|_| wrong("what is in brackets is no IPv6 address"))?;
            return Ok(Self::of_address(ip.into(), port));
        }
        if let Ok(ip) = host.parse::<Ipv4Addr>() {
            return Ok(Self::of_address(ip.into(), port));
        }
        if host == "*" {
            return Ok(Self {
                host: Host::Any,
                port,
            });
        }
        let name = normal(host);
        let host = match name.strip_prefix("*.") {
            Some(below) => Host::Below(below.to_owned()),
            None => Host::Name(name.clone()),
        };
        check_name(name.strip_prefix("*.").unwrap_or(&name)).map_err(wrong)?;
        Ok(Self { host, port })
    }
}

impl HttpHost {
    fn of_address(ip: IpAddr, port: Option<u16>) -> Self {
        Self {
            host: Host::Address(ip.to_canonical()),
            port,
        }
    }
}

impl fmt::Display for HttpHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Any => f.write_str("*")?,
            Host::Below(name) => write!(f, "*.{name}")?,
            Host::Name(name) => f.write_str(name)?,
            Host::Address(IpAddr::V6(ip)) => write!(f, "[{ip}]")?,
            Host::Address(ip) => write!(f, "{ip}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl TryFrom<String> for HttpHost {
    type Error = ParseHttpHostError;

    fn try_from(text: String) -> Result<Self, ParseHttpHostError> {
        text.parse()
    }
}

impl From<HttpHost> for String {
    fn from(host: HttpHost) -> Self {
        host.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HttpHost {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_covers_itself_and_a_wildcard_what_is_below() {
        let plain = host("API.Example.com.");
        assert!(
            plain.covers_name("api.example.COM", 443) && plain.covers_name("api.example.com.", 80)
        );
        assert!(!plain.covers_name("api.example.com", 8080));
        assert!(!plain.covers_name("x.api.example.com", 443));
        let below = host("*.example.com:8443");
        assert!(below.covers_name("a.b.example.com", 8443));
        for other in [
            "example.com",
            ".example.com",
            "badexample.com",
            "example.com.evil.org",
        ] {
            assert!(!below.covers_name(other, 8443), "{other}");
        }
        assert!(!below.covers_name("a.example.com", 443));
        assert!(
            host("*").covers_name("anything.org", 443) && host("*:81").covers_name("x.org", 81)
        );
    }

    #[test]
    fn an_address_covers_only_itself() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(host("127.0.0.1:8080").covers_address(at("127.0.0.1:8080")));
        assert!(host("127.0.0.1:8080").covers_address(at("[::ffff:127.0.0.1]:8080")));
        assert!(!host("127.0.0.1:8080").covers_address(at("127.0.0.1:80")));
        assert!(
            host("[::1]").covers_address(at("[::1]:443"))
                && host("::1").covers_address(at("[::1]:80"))
        );
        assert!(!host("*").covers_address(at("127.0.0.1:80")));
        assert!(!host("127.0.0.1").covers_name("127.0.0.1", 80));
    }

    #[test]
    fn texts_are_read_back() {
        for text in [
            "*",
            "*:8080",
            "*.example.com",
            "a-b.c_d.xn--e1a:1",
            "10.0.0.1",
            "[2001:db8::1]:81",
        ] {
            assert_eq!(host(text).to_string(), text);
        }
        let wrong = [
            "",
            ":80",
            "a:b",
            "a:0",
            "a:65536",
            "https://a",
            "a/b",
            "a..b",
            "*.",
            "*.*.a",
            "a.*",
            "-*",
            "1.2.3",
            "0x7f.1",
            "0x7f000001",
            "2130706433",
            "[::1",
            "[1.2.3.4]",
            "ä.de",
            "user@host",
            "a b",
        ];
        for text in wrong {
            assert!(text.parse::<HttpHost>().is_err(), "{text}");
        }
    }

    #[test]
    fn private_addresses_are_not_public_however_they_are_written() {
        let private = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.0.8",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
        ];
        for ip in private {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "1.1.1.1",
            "100.128.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "2001:4860::8888",
            "64:ff9b::101:101",
            "2002:101:101::1",
        ] {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
    }
}
