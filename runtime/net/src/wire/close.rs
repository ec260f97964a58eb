//! How a connection is closed: the reason, and the last words.
//!
//! Owns the codes and their texts. Invariant: a code never changes its meaning.

use std::time::Duration;

use quinn::{Connection, SendStream, VarInt};
use tokio::time::timeout;

/// How long the one who was turned away may take to read why.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);

/// Why a connection is closed, as the code that the other side sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Close {
    /// The process ends.
    Done = 0,
    /// Another connection took its place.
    Replaced = 1,
    /// What it was opened for has happened, or was refused in words.
    Finished = 2,
    /// No certificate, where there has to be one.
    NoCertificate = 3,
    /// Its frames or streams break the protocol.
    Protocol = 4,
    /// It asks for more than it may.
    Limit = 5,
    /// It does not read.
    Slow = 6,
    /// The peer was forgotten.
    Forgotten = 7,
    /// The certificate is not a client's, where it has to be.
    NotClient = 8,
    /// There are as many sessions as there may be.
    Full = 9,
    /// Nobody serves clients here now.
    NotServing = 10,
    /// Its first words did not come in time.
    Late = 11,
    /// The client's certificate was taken back.
    Revoked = 12,
}

impl Close {
    pub(crate) fn code(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }

    pub(super) fn of(code: VarInt) -> Option<Self> {
        let all = [
            Self::Done,
            Self::Replaced,
            Self::Finished,
            Self::NoCertificate,
            Self::Protocol,
            Self::Limit,
            Self::Slow,
            Self::Forgotten,
            Self::NotClient,
            Self::Full,
            Self::NotServing,
            Self::Late,
            Self::Revoked,
        ];
        all.into_iter().find(|close| close.code() == code)
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Done => "it has stopped",
            Self::Replaced => "another connection took its place",
            Self::Finished => "it closed the connection",
            Self::NoCertificate => "it takes nobody without a certificate",
            Self::Protocol => "it did not understand what was sent",
            Self::Limit => "it was asked for more at a time than it allows",
            Self::Slow => "what it sent was not read",
            Self::Forgotten => "it does not want to talk to us any more",
            Self::NotClient => "the certificate is no client's",
            Self::Full => "it has as many clients as it may",
            Self::NotServing => "it does not serve clients now: try again soon, or at another node",
            Self::Revoked => "it was revoked",
            Self::Late => "it has not heard our first words in time: try again",
        }
    }
}

/// Gives the other side time to read the last words, and closes.
pub(crate) async fn farewell(connection: &Connection, mut writer: SendStream) {
    // Closing at once could overtake the words.
    let _ = writer.finish();
    let _ = timeout(FAREWELL, connection.closed()).await;
    connection.close(Close::Finished.code(), b"");
}
