//! How nodes and clients talk: mutual TLS over QUIC.
//!
//! Owns identities, connections and the delivery of messages between nodes. Must not: know tasks, objects, the
//! store or the engine; what is sent is the types of a [`Protocol`], and what becomes of it is up to a
//! [`Service`]. `node` brings both.
//!
//! ```text
//!   Authority ─ Token ─ join ─▶ Identity ─▶ Network ─▶ Peer: send, call, pull, open
//!                                              │
//!                                           Service: one_way, request, bulk, stream, event
//!   a client's Identity ─▶ Session ═════════▶ Service: session
//! ```
//!
//! | what | order | arrives | when a connection is lost |
//! |---|---|---|---|
//! | one-way message | as sent | once in an incarnation of the peer | goes on after the last one that was accepted |
//! | request | any | is carried out at most once in an incarnation of the peer | asked again under its id |
//! | bulk range | whole | as often as asked for | the missing rest is asked for again |
//! | stream | as written | once | it ends with an error at both sides |
//!
//! With a new incarnation of a node nothing of the old one is left: its messages are dropped, its requests fail. The
//! same if one side forgets the other.
//! Messages that a service must not see twice across incarnations need ids of their own.
//!
//! From the bottom, each folder using only those before it: `identity` says who somebody is, `config` what can be set,
//! `transport` has QUIC and TLS, `wire` the bytes and errors; `peer` is another node through all its connections, `bulk`
//! moves ranges of bytes from it. Above them `accept` takes in connections of peers, clients (`session`) and those who want
//! a certificate (`enroll`), `service` has the types, and `network` puts it together.
//!
//! Invariants: there is no mode without TLS or without certificates; everything that a peer can make us
//! keep has a limit in [`Limits`]; whatever bytes arrive, they give an error and no panic.

mod accept;
mod bulk;
mod config;
mod enroll;
mod event;
mod identity;
mod network;
mod peer;
mod pem;
mod service;
mod session;
mod streams;
mod transport;
mod wire;

pub use bulk::{
    Arrived, BulkRefusal, BulkSendError, BulkSender, PullError, PullOptions, PullWhy, Range,
    checksum,
};
pub use config::{Config, Enrolment, Limits, Timing};
pub use enroll::{JoinError, Login, join, renew};
pub use event::Event;
pub use identity::{
    Applicant, Authority, AuthorityError, ClientId, ClusterId, Enroll, FileError, Fingerprint,
    Identity, IdentityError, KeyId, ParseTokenError, Person, Plain, Redeemed, Refused, Role,
    Sealed, SecretKey, SecretKeyError, Token, TokenBook, TokenGrant, TokenId, TokenKind, TokenRow,
    TokenSecret, TokenUses, Welcomed,
};
pub use network::{Network, StartError};
pub use peer::{Peer, PeerInfo, Tally, Traffic};
pub use pem::{PemError, PemPart, certificates, server_tls};
pub use service::Service;
pub use session::{Session, SessionReader, SessionWriter};
pub use streams::ByteStream;
pub use wire::frame::FrameError;
pub use wire::hello::{HelloError, Refusal, Version};
pub use wire::{CallError, ConnectError, LinkHint, Lost, Protocol, SendError, TooNew};

/// For the fuzzer and a stable test: frames from any bytes.
#[doc(hidden)]
pub fn fuzz_frame(bytes: &[u8]) {
    wire::frame::fuzz(bytes);
}

/// For the fuzzer and a stable test: first words and tokens from any bytes.
#[doc(hidden)]
pub fn fuzz_hello(bytes: &[u8]) {
    wire::hello::fuzz(bytes);
}
