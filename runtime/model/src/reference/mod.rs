//! References to objects between nodes: who keeps what for whom, who has copies, what becomes of what is lost.
//!
//! Owns the decisions, as tables without I/O: which peers are there and what a node keeps for each ([`Peers`]), what it has
//! been given by others ([`Borrowed`], [`Lenders`]), who has copies ([`Holders`], [`Keepers`]), how an object is looked for
//! ([`Search`]), and in which order results are reconstructed that others are made of ([`Path`]). Must not: know what
//! an object is, send anything, read a clock, hold a lock. Whoever drives it passes in what is kept, as it likes
//! to, and does what comes out.
//!
//! ```text
//!   owner ── lends ──▶ B ── lends ──▶ C        each keeps the object for those behind it, counted by messages
//!         ◀─ release ─   ◀─ release ─          when it needs it no more itself, and nobody behind it does
//! ```
//!
//! A node that sends a message in which an object is named keeps the object until the receiver has given that
//! reference back (the reference tree of Ray's ownership, NSDI 2021). Counts are per message, so nothing is lost
//! when a reference goes out while another comes back.
//!
//! Invariants:
//! - what a node has from others makes a tree whose root is the owner: who has an object already takes it from
//!   nobody else but the owner. Two nodes that keep it for each other would keep it for ever;
//! - nothing is kept for an incarnation of a node that is over;
//! - an answer counts for what was asked, not for what has the same name by now;
//! - equal calls give equal results.

mod borrowed;
mod copies;
mod lenders;
mod path;
mod peers;
mod search;
#[cfg(test)]
mod tests;

pub use borrowed::{Answer, Borrowed, Token, Want};
pub use copies::{Holders, Keepers};
pub use lenders::{Lenders, Taken};
pub use path::Path;
pub use peers::{LentAs, Peer, Peers};
pub use search::{Next, OwnerSaid, Search};
