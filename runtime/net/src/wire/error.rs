//! Why a peer cannot be reached or does not answer.
//!
//! Owns the texts, and the way from quinn's errors to ours. Must not: decide what is tried again.

use std::net::SocketAddr;
use std::time::Duration;

use quinn::ConnectionError;
use wasmrun_model::id::NodeId;

use super::close::Close;
use super::frame::{FrameError, ReadError};
use super::hello::{HelloError, Refusal, Version};

/// Why a connection was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Nothing came from it.
    #[error("nothing was heard from it for {}s", after.as_secs())]
    Silent {
        /// For how long.
        after: Duration,
    },
    /// It said so.
    #[error("{0}")]
    ByPeer(&'static str),
    /// There is another one, or is about to be: both sides had dialled, or it dialled anew. Nothing is wrong.
    #[error("another connection took its place")]
    Replaced,
    /// It came back as a new process.
    #[error("it was restarted")]
    Restarted,
    /// What it sent breaks the protocol.
    #[error("it broke the protocol ({0}) and was disconnected")]
    Protocol(&'static str),
    /// It asked for too much.
    #[error("it asked for more at a time than it may and was disconnected")]
    Limit,
    /// It does not read what it gets.
    #[error("it did not read what was sent to it and was disconnected")]
    Slow,
    /// We closed it.
    #[error("this side closed the connection")]
    Closed,
    /// Something below broke.
    #[error("the connection broke: {0}")]
    Transport(String),
}

impl Lost {
    pub(crate) fn from_quinn(error: &ConnectionError, idle: Duration) -> Self {
        match error {
            ConnectionError::TimedOut => Self::Silent { after: idle },
            ConnectionError::ApplicationClosed(close) => match Close::of(close.error_code) {
                Some(Close::Replaced) => Self::Replaced,
                Some(close) => Self::ByPeer(close.text()),
                None => Self::ByPeer(Close::Finished.text()),
            },
            ConnectionError::LocallyClosed => Self::Closed,
            ConnectionError::Reset => Self::ByPeer("it has stopped"),
            other => Self::Transport(other.to_string()),
        }
    }
}

/// Why there is no connection to a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nobody answers there.
    #[error("{address} does not answer: check that a node runs there and that UDP reaches it")]
    Unreachable {
        /// Where.
        address: SocketAddr,
    },
    /// The address cannot be used.
    #[error("{address} cannot be dialled ({why}): check the address")]
    Address {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        why: String,
    },
    /// Its certificate is not from our cluster's authority.
    #[error(
        "{address} is no member of our cluster ({why}): check the address, or join its cluster"
    )]
    Untrusted {
        /// Where.
        address: SocketAddr,
        /// What was wrong with it.
        why: String,
    },
    /// Its certificate is not valid now, by the clock of this machine.
    #[error(
        "the certificate of {address} is not valid now by the clock of this machine ({why}): compare the clocks of both \
         machines; if they are right, that side's certificate has ended"
    )]
    NotValidNow {
        /// Where.
        address: SocketAddr,
        /// What was wrong with it.
        why: String,
    },
    /// It does not take our certificate.
    #[error(
        "{address} does not accept our certificate ({why}): join its cluster, or join again if the certificate has expired"
    )]
    NotAccepted {
        /// Where.
        address: SocketAddr,
        /// What it said.
        why: String,
    },
    /// Our certificate or key is not of use for this.
    #[error("this identity cannot be used ({why}): log in again, with a token for a client")]
    Identity {
        /// Why.
        why: String,
    },
    /// Its first words were not understood.
    #[error("{address} cannot be talked to: {error}")]
    Hello {
        /// Where.
        address: SocketAddr,
        /// Why.
        error: HelloError,
    },
    /// It turned us away.
    #[error("{address} refuses the connection: {why}")]
    Refused {
        /// Where.
        address: SocketAddr,
        /// What it said.
        why: Refusal,
    },
    /// We turned it away.
    #[error("{address} is refused: {why}")]
    WeRefuse {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: Refusal,
    },
    /// Somebody else is there.
    #[error("{address} is node {found}, not {expected}: the address is out of date")]
    WrongNode {
        /// Where.
        address: SocketAddr,
        /// Whom we wanted.
        expected: NodeId,
        /// Who it is.
        found: NodeId,
    },
    /// The connection broke before it was there.
    #[error("the connection to {address} broke: {why}")]
    Lost {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: Lost,
    },
    /// There is nothing to dial.
    #[error("no address of it is known: wait until it connects, or name one")]
    NoAddress,
    /// This side is closed, or has forgotten the peer.
    #[error("this side has closed the connection: nothing more is sent")]
    Closed,
}

/// Whether TLS has broken off because a certificate has ended or is not valid yet, by the clock of whoever says so.
fn is_not_valid_now(code: quinn::TransportErrorCode) -> bool {
    const CERTIFICATE_EXPIRED: u8 = 45;
    code == quinn::TransportErrorCode::crypto(CERTIFICATE_EXPIRED)
}

impl ConnectError {
    /// Whether trying again will not help unless somebody does something.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Address { .. }
            | Self::Lost { .. }
            | Self::NoAddress => false,
            Self::Refused { why, .. } | Self::WeRefuse { why, .. } => {
                !matches!(why, Refusal::Duplicate | Refusal::Full | Refusal::Closing)
            }
            Self::Untrusted { .. }
            | Self::NotValidNow { .. }
            | Self::Identity { .. }
            | Self::NotAccepted { .. }
            | Self::Hello { .. }
            | Self::WrongNode { .. }
            | Self::Closed => true,
        }
    }

    pub(crate) fn from_quinn(address: SocketAddr, error: &ConnectionError) -> Self {
        let is_tls = |code: quinn::TransportErrorCode| (0x100..0x200).contains(&u64::from(code));
        match error {
            ConnectionError::TimedOut => Self::Unreachable { address },
            ConnectionError::TransportError(error) if is_not_valid_now(error.code) => {
                Self::NotValidNow {
                    address,
                    why: error.reason.clone(),
                }
            }
            ConnectionError::TransportError(error) if is_tls(error.code) => Self::Untrusted {
                address,
                why: error.reason.clone(),
            },
            ConnectionError::ConnectionClosed(close) if is_tls(close.error_code) => {
                let reason = String::from_utf8_lossy(&close.reason);
                let mut why: String = reason.chars().filter(|c| !c.is_control()).collect();
                if is_not_valid_now(close.error_code) {
                    why.push_str("; compare the clocks of both machines");
                }
                Self::NotAccepted { address, why }
            }
            ConnectionError::ApplicationClosed(close)
                if Close::of(close.error_code) == Some(Close::NoCertificate) =>
            {
                Self::NotAccepted {
                    address,
                    why: "there was none".into(),
                }
            }
            ConnectionError::ApplicationClosed(close)
                if matches!(
                    Close::of(close.error_code),
                    Some(Close::NotClient | Close::Revoked)
                ) =>
            {
                let why = Close::of(close.error_code).map_or("", Close::text);
                Self::NotAccepted {
                    address,
                    why: why.into(),
                }
            }
            ConnectionError::ApplicationClosed(close)
                if Close::of(close.error_code) == Some(Close::Full) =>
            {
                Self::Refused {
                    address,
                    why: Refusal::Full,
                }
            }
            ConnectionError::ConnectionClosed(close)
                if close.error_code == quinn::TransportErrorCode::CONNECTION_REFUSED =>
            {
                Self::Refused {
                    address,
                    why: Refusal::Full,
                }
            }
            other => Self::Lost {
                address,
                why: Lost::from_quinn(other, Duration::ZERO),
            },
        }
    }

    pub(crate) fn from_read(address: SocketAddr, error: &ReadError) -> Self {
        match error {
            ReadError::Stream(quinn::ReadError::ConnectionLost(error)) => {
                Self::from_quinn(address, error)
            }
            ReadError::Stream(_) | ReadError::Cut => Self::Lost {
                address,
                why: Lost::ByPeer("it ended the connection in its first words"),
            },
            ReadError::Frame(_) => Self::Hello {
                address,
                error: HelloError::NotWasmrun,
            },
        }
    }
}

/// A message that is newer than what the other side speaks. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooNew {
    /// The version that it came with.
    pub since: Version,
    /// What both sides speak; `None` if that is not known, because there was no connection yet.
    pub spoken: Option<Version>,
}

impl std::fmt::Display for TooNew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let since = self.since;
        write!(f, "it came with version {since} of the protocol, and ")?;
        match self.spoken {
            Some(spoken) => write!(
                f,
                "the peer speaks {spoken}: bring it to the same wasmrun as this side"
            ),
            None => f.write_str("which one the peer speaks is known once it has been connected"),
        }
    }
}

impl std::error::Error for TooNew {}

/// Why a one-way message was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It cannot be sent at all.
    #[error("the message cannot be sent: {0}")]
    Message(#[from] FrameError),
    /// The peer would not understand it.
    #[error("the message is not for this peer: {0}")]
    TooNew(#[from] TooNew),
    /// The peer has not taken what was sent before.
    #[error("too much is waiting for this peer: use `send`, which waits, or send less")]
    Full,
    /// The peer is in another incarnation than the one that it was for.
    #[error("the peer is in another incarnation than this is for")]
    OtherIncarnation,
    /// The peer or the network is closed.
    #[error("the peer is gone: nothing more is sent to it")]
    Closed,
}

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The request or the response cannot be a message.
    #[error("the request cannot be sent or its response not read: {0}")]
    Message(#[from] FrameError),
    /// The peer would not understand it.
    #[error("the request is not for this peer: {0}")]
    TooNew(#[from] TooNew),
    /// It took too long.
    #[error("no answer within {}ms ({state}): the request may have been carried out", after.as_millis())]
    TimedOut {
        /// How long it was waited for.
        after: Duration,
        /// How the peer was at the end.
        state: LinkHint,
    },
    /// The peer has too much to do.
    #[error("the peer is busy and did not begin with the request: try again later")]
    Busy,
    /// The peer did not understand.
    #[error(
        "the peer could not decode the request, so nothing was done: use the same wasmrun on both sides"
    )]
    NotUnderstood,
    /// The response is too long.
    #[error(
        "the request was carried out, and its response is longer than a message may be: ask for less"
    )]
    ResponseTooLong,
    /// It was carried out, and the response is lost.
    #[error("the request was carried out, and its response got lost with a connection")]
    ResponseLost,
    /// Another process is there now.
    #[error("the peer was restarted: whether the request was carried out is not known")]
    Restarted,
    /// The peer is not, or not any more, in the incarnation that the request is for, which was not sent.
    #[error(
        "the peer is in another incarnation than the one that the request is for: nothing was done"
    )]
    OtherIncarnation,
    /// The peer or the network is closed.
    #[error("the peer is gone: whether the request was carried out is not known")]
    Closed,
}

/// Whether there was a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkHint {
    /// There was.
    Connected,
    /// There was none.
    NotConnected,
}

impl std::fmt::Display for LinkHint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connected => "it is connected",
            Self::NotConnected => "there is no connection to it",
        })
    }
}
