//! How much others may take from us, and how long things may take.
//!
//! Owns the defaults. What happens at a limit stands beside it.

use std::time::Duration;

/// What others may take from us at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest message, encoded, in bytes. A longer one is an error at the sender; a peer that sends
    /// one nevertheless is disconnected.
    pub message_bytes: usize,
    /// One-way messages to a peer that it has not accepted yet, in bytes. At the limit `send` waits and
    /// `try_send` fails.
    pub one_way_bytes: usize,
    /// Requests from one peer that run at a time. At the limit the peer waits with further ones.
    pub requests: usize,
    /// Those requests together, in bytes. At the limit further ones are answered "busy".
    pub request_bytes: usize,
    /// Answers that are kept for a peer that may ask again. The oldest go first; asked for again, they
    /// are refused, not run twice.
    pub answers: usize,
    /// Those answers together, in bytes.
    pub answer_bytes: usize,
    /// Connections that are being set up at a time. Further ones are refused at once.
    pub handshakes: usize,
    /// Nodes that we know at a time. Further ones are refused.
    pub nodes: usize,
    /// Sessions of clients at a time. Further ones are refused.
    pub sessions: usize,
    /// Sessions of one client at a time, so that it leaves some to others. Further ones are refused.
    pub sessions_of_one: usize,
    /// Bulk streams that one peer may have open. At the limit it waits.
    pub bulk_streams: u32,
    /// Bulk streams that are served at a time to all peers. At the limit they wait, and a peer whose stream waits for
    /// longer than [`Timing::bulk_stall`] looks for another holder: so there should be room for what many peers may
    /// have open each. A stream that is served costs a task of some kilobytes; windows are the connection's.
    pub bulk_serving: usize,
}

/// How long things may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Setting up a connection, hello included.
    pub handshake: Duration,
    /// Silence after which a connection is lost. Keep-alives go out three times in it.
    pub idle: Duration,
    /// How long a peer may leave requests and answers unread before it is disconnected.
    pub write_stall: Duration,
    /// How long a bulk stream may bring or take no byte before it is given up.
    pub bulk_stall: Duration,
    /// The first wait before dialling again; it doubles with each failure.
    pub backoff_min: Duration,
    /// The longest wait before dialling again.
    pub backoff_max: Duration,
    /// How long closing may take, for messages that are under way.
    pub close: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 1 << 20,
            one_way_bytes: 4 << 20,
            requests: 1024,
            request_bytes: 64 << 20,
            answers: 4096,
            answer_bytes: 16 << 20,
            handshakes: 64,
            nodes: 4096,
            sessions: 256,
            sessions_of_one: 64,
            bulk_streams: 32,
            bulk_serving: 4096,
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(12),
            write_stall: Duration::from_secs(10),
            bulk_stall: Duration::from_secs(10),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(3),
            close: Duration::from_secs(1),
        }
    }
}
