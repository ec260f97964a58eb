//! How the nodes of a cluster tell each other what they have and do.
//!
//! Owns the spreading of views: each node publishes its own ([`NodeInfo`](crate::scheduler::NodeInfo) and
//! [`PeerView`](crate::scheduler::PeerView)), and every
//! node hears of all. Must not: decide who is a member (leases do, the driver says so), place a task, read
//! a clock, send anything itself.
//!
//! Invariants: what is emitted of a node is newer than all that was emitted of it before, by incarnation,
//! then version; nothing is kept of who is not a member; a message never makes more than a bounded
//! answer; equal inputs at equal times with an equal seed give equal outputs.
//!
//! Views spread in three ways.
//!
//! - *To eight peers at once.* A node sends a new view of its own to [`DIRECT_PEERS`] peers. In a small
//!   cluster that is everybody, and nobody passes it on.
//! - *On.* In larger ones, whoever hears something new passes it on once, to its two neighbours on the
//!   ring of all ids and to a peer drawn at random, collected into rounds. The random links make it fast,
//!   the ring makes it complete (Voulgaris and van Steen, "Hybrid Dissemination", Middleware 2007).
//! - *By comparison.* About once a second each node sends one peer checksums of what it knows. If they
//!   differ, the two find out where, and exchange what is newer (Demers et al., "Epidemic Algorithms for
//!   Replicated Database Maintenance", PODC 1987). That repairs what was lost, and serves newcomers.
//!
//! So an idle cluster sends a message a second a node, whatever its size. How soon a change is published
//! depends on what it means ([`Change`]) and on how many nodes will have to hear of it.
//!
//! Whoever drives it passes in what happened ([`Gossip::handle`]), does what [`Gossip::poll`] says until
//! there is nothing more, and comes back at [`Gossip::poll_timeout`] with [`Input::Tick`]. A message that
//! cannot be sent is dropped: it is not worth a queue.
//!
//! Members are authenticated and trusted not to be malicious. One that errs does no lasting harm: what it
//! says about unknown incarnations is dropped, and a node that hears of a view of itself that it has not published
//! publishes a newer one.

mod body;
mod change;
mod deck;
mod fuzz;
mod machine;
mod message;
mod publish;
mod table;
#[cfg(test)]
mod tests;

pub use body::Body;
pub use change::Change;
#[doc(hidden)]
pub use fuzz::fuzz;
pub use machine::{Gossip, Input, Output, Stats};
pub use message::{Checksum, Message, Update, ViewVersion};

use std::time::Duration;

/// To how many peers a node sends a new view of its own.
pub const DIRECT_PEERS: usize = 8;

/// How long the updates of one message may be together, in bytes. One that is longer goes alone.
pub const MAX_MESSAGE_BYTES: usize = 16 << 10;

/// The longest encoded view, or node with its labels, in bytes. Of a view that is longer, tenants are left
/// out; if that does not do, it is not published. A longer one of somebody else is dropped.
pub const MAX_BODY_BYTES: usize = 128 << 10;

/// How many views a digest or a wish names at most. What is beyond waits for the next comparison.
pub const MAX_KNOWN: usize = 256;

/// How many updates a message has at most; one with more is dropped.
pub const MAX_UPDATES: usize = 4096;

/// How long all updates are together that answer one message, in bytes. What is beyond waits for the next
/// comparison.
pub const MAX_ANSWER_BYTES: usize = 256 << 10;

/// Into how many parts what is known is divided to be compared.
pub(crate) const BUCKETS: usize = 64;

/// How many nodes there are to a part, about: few checksums in small clusters, short digests in large ones.
pub(crate) const NODES_PER_BUCKET: usize = 12;

/// How often a node compares what it knows with a peer, when all is well.
pub const COMPARE_EVERY: Duration = Duration::from_secs(1);

/// How soon it compares again after nodes have joined, in a small cluster; in a large one a millisecond for
/// each peer. The interval doubles from there.
pub(crate) const COMPARE_AFTER_JOIN: Duration = Duration::from_millis(20);

/// How soon it compares again after a comparison has shown that something was missed.
pub(crate) const COMPARE_AFTER_REPAIR: Duration = Duration::from_millis(250);

/// The highest version that is taken from others. No node gets there by itself.
pub(crate) const MAX_VERSION: u64 = 1 << 62;

/// For how long news is left to spread before it is looked for by comparison.
pub(crate) const SETTLE: Duration = Duration::from_millis(300);

/// How often what was heard is passed on at most, on average.
pub const ROUND: Duration = Duration::from_millis(50);

/// How often a node asks for the labels of another at most, when views come that it lacks them for.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(100);
