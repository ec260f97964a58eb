//! The first words on a connection: versions, who is there, and what the connection is for.
//!
//! Owns their bytes and the rule which versions understand each other. Invariants: [`Preamble`] never
//! changes, so two of any version can tell each other apart; nothing behind it is read unless the
//! versions fit; a hello claims nothing that its certificate does not say.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wasmrun_model::id::{Incarnation, NodeId};
pub use wasmrun_model::version::Version;

use crate::identity::{ClusterId, Refused, Role, TokenId, TokenSecret};

/// The longest hello, in bytes.
pub(crate) const MAX_BYTES: usize = 16 << 10;
/// How many addresses somebody may tell.
pub(crate) const MAX_ADDRESSES: usize = 8;
/// The version of wasmrun, as others see it.
pub(crate) const SOFTWARE: &str = env!("CARGO_PKG_VERSION");
const MAX_SOFTWARE_CHARS: usize = 64;
const MAGIC: [u8; 8] = *b"wasmrunQ";

/// What stands before everything else, in every version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Preamble {
    magic: [u8; 8],
    pub(crate) version: Version,
    /// The version of wasmrun, for people.
    pub(crate) software: String,
}

/// What the one who dials says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) cluster: ClusterId,
    pub(crate) id: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Where the speaker can be dialled.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) purpose: Purpose,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// Messages.
    Control {
        /// Names this connection.
        connection: u64,
        /// The connection between these two that the speaker had last, and has no more.
        last: Option<u64>,
    },
    /// Bulk streams, from the one who is dialled.
    Bulk,
    /// Streams both ways, opened by the one who dials.
    Streams,
}

/// What the one who is dialled says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) cluster: ClusterId,
    pub(crate) id: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// What the one who dials says in order to get a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    pub(crate) ask: JoinAsk,
    /// The Ed25519 key that is to be certified.
    pub(crate) key: [u8; 32],
    /// Its signature under this request.
    pub(crate) proof: Vec<u8>,
}

/// By what right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JoinAsk {
    Token(TokenId, TokenSecret),
    /// By the certificate that the connection was made with.
    Renew,
    /// By none: asks how people log in.
    Offer,
    /// By what shows who a person is.
    Login(String),
}

/// An answer to a first word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer<T, E> {
    Yes(T),
    No(E),
}

pub(crate) type HelloAnswer = Answer<Welcome, Refusal>;
/// The certificates, in PEM; or how people log in.
pub(crate) type JoinAnswer = Answer<String, Refused>;

/// Why somebody is turned away. The text is for whom it is said to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The peer belongs elsewhere.
    #[error(
        "it belongs to cluster {cluster}, not to ours: check the address, or join that cluster"
    )]
    Cluster {
        /// The cluster of the one who refuses.
        cluster: ClusterId,
    },
    /// The hello and the certificate disagree.
    #[error(
        "the certificate is {certified}'s, and the hello says otherwise: join again, with an identity of its own for each process"
    )]
    Certificate {
        /// Who the certificate is for.
        certified: Role,
    },
    /// A later incarnation of the node is known.
    #[error(
        "a later process of this node is known (incarnation {known}): this one is out of date and must stop"
    )]
    OldIncarnation {
        /// The later one.
        known: Incarnation,
    },
    /// There is a connection between the two already.
    #[error("there is a connection already")]
    Duplicate,
    /// Too many are there.
    #[error("it has as many peers as it may: raise its limits, or connect to another node")]
    Full,
    /// It is being stopped.
    #[error("it is being stopped: connect to another node")]
    Closing,
    /// It dialled itself.
    #[error("it is this very node: check the address")]
    Itself,
    /// It speaks an incompatible version. Said as a version, never in these words.
    #[error("it speaks another version of the protocol")]
    Version,
    /// What it was told makes no sense.
    #[error("it did not understand the hello: use the same wasmrun on both sides")]
    Malformed,
    /// The node was taken out of the cluster.
    #[error(
        "the node was removed from the cluster; it can come back as another one, which joins with a token and an empty \
         state folder"
    )]
    Removed,
}

/// Why first words were not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Something else is there.
    #[error("it does not speak wasmrun's protocol: check the address and port")]
    NotWasmrun,
    /// Another version.
    #[error(
        "it speaks version {theirs} of the protocol (wasmrun {software}) and we {ours}: \
         bring both to the same wasmrun; one minor version apart is fine"
    )]
    Version {
        /// Ours.
        ours: Version,
        /// Theirs.
        theirs: Version,
        /// Their wasmrun, as they call it.
        software: String,
    },
    /// The right version, and nonsense.
    #[error("its first words make no sense: use the same wasmrun on both sides")]
    Malformed,
}

/// First words as the payload of a frame.
pub(crate) fn encode<T: Serialize>(version: Version, software: &str, words: &T) -> Vec<u8> {
    let preamble = Preamble {
        magic: MAGIC,
        version,
        software: software.chars().take(MAX_SOFTWARE_CHARS).collect(),
    };
    postcard::to_stdvec(&(preamble, words)).expect("these types can be encoded")
}

/// What a payload says, its preamble first, and the version to speak.
pub(crate) fn decode<T: DeserializeOwned>(
    ours: Version,
    payload: &[u8],
) -> Result<(Preamble, Version, T), HelloError> {
    let (preamble, rest) = match postcard::take_from_bytes::<Preamble>(payload) {
        Ok((preamble, rest)) if preamble.magic == MAGIC => (preamble, rest),
        _ => return Err(HelloError::NotWasmrun),
    };
    let software: String = preamble
        .software
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_SOFTWARE_CHARS)
        .collect();
    let Some(version) = ours.common(preamble.version) else {
        return Err(HelloError::Version {
            ours,
            theirs: preamble.version,
            software,
        });
    };
    match postcard::take_from_bytes(rest) {
        Ok((words, [])) => Ok((
            Preamble {
                software,
                ..preamble
            },
            version,
            words,
        )),
        _ => Err(HelloError::Malformed),
    }
}

/// A frame of first words.
pub(crate) fn frame<T: Serialize>(version: Version, software: &str, words: &T) -> Bytes {
    let mut bytes = bytes::BytesMut::new();
    super::frame::put_frame(&mut bytes, &encode(version, software, words));
    bytes.freeze()
}

/// For the fuzzer and a stable test: whatever is said gives words or an error, and words that are said
/// again mean the same.
pub(crate) fn fuzz(payload: &[u8]) {
    fn again<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(payload: &[u8]) {
        let ours = Version { major: 1, minor: 1 };
        let Ok((preamble, version, words)) = decode::<T>(ours, payload) else {
            return;
        };
        assert!(version <= ours);
        let said = encode(preamble.version, &preamble.software, &words);
        let (_, _, second) = decode::<T>(ours, &said).expect("it was understood before");
        assert_eq!(words, second);
    }
    again::<Hello>(payload);
    again::<HelloAnswer>(payload);
    again::<JoinRequest>(payload);
    again::<JoinAnswer>(payload);
    if let Ok(text) = std::str::from_utf8(payload)
        && let Ok(token) = text.parse::<crate::identity::Token>()
    {
        assert_eq!(token.to_string().parse(), Ok(token));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: Version = Version { major: 1, minor: 1 };

    fn hello() -> Hello {
        Hello {
            cluster: ClusterId::from_bytes([1; 16]),
            id: NodeId::from_bytes([2; 16]),
            incarnation: Incarnation(3),
            addresses: vec!["127.0.0.1:7000".parse().expect("an address")],
            purpose: Purpose::Control {
                connection: 4,
                last: Some(5),
            },
        }
    }

    /// What must never change, whatever the version.
    #[test]
    fn golden_preamble() {
        let bytes = encode(Version { major: 1, minor: 2 }, "0.1", &());
        assert_eq!(bytes, b"wasmrunQ\x01\x02\x030.1");
    }

    #[test]
    fn another_version_is_named_and_not_read() {
        let theirs = Version { major: 9, minor: 0 };
        let said = encode(theirs, "9.0\x1b[31m", &"something else");
        let error = decode::<Hello>(OURS, &said).expect_err("another version");
        let text = error.to_string();
        assert!(text.contains("9.0") && text.contains("1.1"), "{text}");
        assert!(
            !text.contains('\x1b'),
            "what others say may not reach a terminal as it is"
        );
        assert_eq!(
            decode::<Hello>(OURS, b"GET / HTTP/1.1"),
            Err(HelloError::NotWasmrun)
        );
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            fuzz(&bytes);
        }

        #[test]
        fn a_hello_with_something_wrong(at in any::<proptest::sample::Index>(), flip in any::<u8>()) {
            let mut said = encode(OURS, "0.1.0", &hello());
            fuzz(&said);
            let at = at.index(said.len());
            said[at] ^= flip;
            fuzz(&said);
            fuzz(&said[..at]);
        }
    }
}
