//! Names in certificates: which cluster, and which role in it.
//!
//! Owns the text of the URIs that the authority puts into certificates:
//!
//! ```text
//! wasmrun://CLUSTER/ca                 the authority itself
//! wasmrun://CLUSTER/node/NODE          a node
//! wasmrun://CLUSTER/client/CLIENT      a client
//! wasmrun://CLUSTER/until/SECONDS      beside a role: when the certificate ends, seconds since 1970
//! wasmrun://CLUSTER/access/ROLE/NAME/TENANTS
//!                                      beside a client: what it may do, what people call it, for which tenants
//! ```
//!
//! Invariants: names are read only from certificates whose chain was checked before; a certificate with a name that is not
//! understood is refused as a whole, so that who reads less than it says lets nobody do more.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use wasmrun_model::access::Access;
use wasmrun_model::id::NodeId;

/// The DNS name in every node's certificate, and in nobody else's: what TLS checks when dialling.
pub(crate) const ROLE_NODE_DNS: &str = "node.wasmrun";

const SCHEME: &str = "wasmrun://";

macro_rules! hex_name {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub(crate) [u8; $len]);

        impl $name {
            /// The bytes of it.
            pub const fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }

            /// The one made of exactly these bytes.
            pub const fn from_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// The one with these hexadecimal digits, all of them; `None` for any other text.
            pub fn parse(text: &str) -> Option<Self> {
                let mut bytes = [0; $len];
                if text.len() != $len * 2 || !text.is_ascii() {
                    return None;
                }
                for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
                    let digit = |at: usize| char::from(pair[at]).to_digit(16);
                    *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
                }
                Some(Self(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

hex_name!(
    /// A cluster: drawn at random when its authority is made.
    ClusterId,
    16
);

hex_name!(
    /// Whoever holds a client's certificate. Made from its public key.
    ClientId,
    16
);

hex_name!(
    /// The SHA-256 hash of an authority's certificate: what a token pins.
    Fingerprint,
    32
);

hex_name!(
    /// Which [`SecretKey`](super::SecretKey): the beginning of a hash of it.
    KeyId,
    8
);

impl Fingerprint {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let hash = ring::digest::digest(&ring::digest::SHA256, certificate);
        Self(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// What somebody is in the cluster, as the authority has certified it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A node.
    Node(NodeId),
    /// A client: it submits work, and is no part of the cluster.
    Client(ClientId),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(id) => write!(f, "node {id}"),
            Self::Client(id) => write!(f, "client {id}"),
        }
    }
}

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) cluster: ClusterId,
    /// `None` for the authority itself.
    pub(crate) role: Option<Role>,
    /// When it ends, in seconds since 1970; 0 if it does not say.
    pub(crate) until: u64,
    /// What a client may do, if it says.
    pub(crate) access: Option<Access>,
}

/// The URI of the authority, and of a role.
pub(crate) fn uri(cluster: ClusterId, role: Option<Role>) -> String {
    match role {
        None => format!("{SCHEME}{cluster}/ca"),
        Some(Role::Node(id)) => format!("{SCHEME}{cluster}/node/{id}"),
        Some(Role::Client(id)) => format!("{SCHEME}{cluster}/client/{id}"),
    }
}

pub(crate) fn until_uri(cluster: ClusterId, until: u64) -> String {
    format!("{SCHEME}{cluster}/until/{until}")
}

/// The URI of what a client may do. Of its name stays what a URI can have.
pub(crate) fn access_uri(cluster: ClusterId, access: &Access) -> String {
    let Access {
        name,
        role,
        tenants,
    } = access;
    let is_fit = |it: &char| it.is_ascii_graphic() && *it != '/';
    let name: String = name.chars().filter(is_fit).collect();
    format!("{SCHEME}{cluster}/access/{role}/{name}/{tenants}")
}

/// What [`access_uri`] has behind `access/`.
fn parse_access(text: &str) -> Option<Access> {
    let (role, rest) = text.split_once('/')?;
    let (name, tenants) = rest.split_once('/')?;
    let access = Access {
        name: name.to_owned(),
        role: role.parse().ok()?,
        tenants: tenants.parse().ok()?,
    };
    access.checked().ok()
}

/// The names in a certificate; `None` if it is not one of ours.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Option<Names> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut role = None;
    let mut until = 0;
    let mut access = None;
    for name in certificate.valid_uri_names() {
        let (cluster, rest) = name.strip_prefix(SCHEME)?.split_once('/')?;
        let cluster = ClusterId::parse(cluster)?;
        match rest.split_once('/') {
            None if rest == "ca" => role = Some((cluster, None)),
            Some(("node", id)) => {
                role = Some((cluster, Some(Role::Node(NodeId::from_str(id).ok()?))));
            }
            Some(("client", id)) => {
                role = Some((cluster, Some(Role::Client(ClientId::parse(id)?))))
            }
            Some(("until", seconds)) => until = seconds.parse().ok()?,
            Some(("access", text)) => access = Some(parse_access(text)?),
            _ => return None,
        }
    }
    let (cluster, role) = role?;
    Some(Names {
        cluster,
        role,
        until,
        access,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_may_do_is_read_as_it_was_written() {
        let cluster = ClusterId::from_bytes([1; 16]);
        let before = format!("{SCHEME}{cluster}/access/");
        for text in ["viewer/ann@x/a,b", "submitter//*", "operator/o/*"] {
            let access = parse_access(text).expect(text);
            let uri = access_uri(cluster, &access);
            assert_eq!(uri.strip_prefix(&before), Some(text));
        }
        for text in [
            "",
            "viewer/ann",
            "root/ann/a",
            "viewer/ann/",
            "operator/o/a",
        ] {
            assert_eq!(parse_access(text), None, "{text}");
        }
        let mut access = Access::operator("a/b\n\u{e9}c");
        access = parse_access(&access_uri(cluster, &access)[before.len()..]).expect("access");
        assert_eq!(access.name, "abc");
    }
}
