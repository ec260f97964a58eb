//! What a node and its drivers say to each other.
//!
//! Owns the messages and their bytes: [`Hello`] and [`Welcome`] first, then frames with a [`Request`] or
//! a [`Response`]. Must not: do I/O. Sockets, and who may connect, are the business of `node` and
//! `client`.
//!
//! ```text
//! byte  0         4
//!       length    postcard of (request id, message)      length: u32, little-endian, of what follows
//! ```
//!
//! Two sides of different minor versions speak the lower one.
//!
//! A request has an id that its connection has not in use; all that answers it carries the same. A
//! request has one answer, but for these:
//!
//! | request | answers |
//! |---|---|
//! | `Upload`, `Put` | `Continue`; the other side sends `Chunk`s under the same id; then the answer |
//! | `Put` with `can_stage` | the same, or `Staging`; then also `Staged`s under the same id, a `Continue` for each; then the answer |
//! | `Get` | `Value`, then `Chunk`s until its length is reached; or `Mapped` |
//! | `GetAll` | any number of `Values`, `Done` |
//! | `Submit`, `SubmitOnce`, `Call` with a report | `Submitted` or `SubmittedHere`, any number of `Output`s, `Ended` |
//! | `Release`, `ReleaseActor`, `Unpin`, `Chunk` | none |
//!
//! What a client maps: the descriptor of a segment comes beside the first byte of the `Mapped` that says
//! so, once for a connection. The client keeps it until a `Forget`, which belongs to no request; so the
//! node decides how many a connection has, at most [`MAX_SEGMENTS`], and all of this is in the order of
//! the node's frames. In the same way the descriptor of staging memory comes beside its `Staging`.
//!
//! Invariants: no frame is longer than [`MAX_FRAME_BYTES`]; nothing that is decoded nests, so bytes from
//! outside can exhaust neither memory nor stack; a frame has exactly one message.

mod address;
mod bytes;
#[doc(hidden)]
pub mod examples;
mod failure;
mod list;
mod message;
mod needs;
mod tenancy;
mod view;
mod work;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use address::{Address, HostPort, ParseAddressError, SocketPath};
pub use bytes::Bytes;
pub use failure::WireError;
pub use list::{List, What};
pub use message::{
    Actor, Form, Gotten, Mapped, Module, Put, Refusal, RefusalKind, Request, Response, Scheduling,
};
pub use needs::{Needs, Place};
pub use tenancy::{
    AccessRow, AuditRow, ChangeTenant, ClientToken, DueRow, SecretRow, TenantChanged, TenantRow,
    TokenRow, Weights, WhoAmI,
};
pub use view::{
    ActorDetail, ActorRow, Amounts, GroupBundle, GroupRow, Holder, JobDetail, JobRow, JobTasks,
    Listed, MemberRow, ModuleRow, NodeStatus, ObjectDetail, ObjectRow, Phases, Rows, Run,
    ServiceRow, Silent, StoreStatus, TaskDetail, TaskRow,
};
pub use work::{
    Argument, Call, Create, CreateGroup, Dir, Entry, Grants, HeldResource, Input, Job, Limits,
    Listen, Net, ObjectRef, Output, Report, Serve, SetResource, Submit, Terms, Wishes,
};

use crate::fairness::TenantName;
use crate::id::NodeId;
use crate::version::Version;

/// The version of all this. Two sides that are [further apart](Version::common) do not talk.
///
/// A variant at the end of a [`Request`] raises the minor number and says so in [`Request::since`]; one of a
/// [`Response`], or of what is in it, only answers requests that came with it. Any other change of
/// variants, fields or their order raises the major number.
pub const PROTOCOL: Version = Version { major: 9, minor: 0 };

/// The largest frame, without its length, in bytes.
pub const MAX_FRAME_BYTES: usize = 2 << 20;

/// How many bytes of a value or module travel in one frame.
pub const CHUNK_BYTES: usize = 256 << 10;

/// From how many bytes on a value goes through staging memory, where it can.
pub const STAGED_FROM_BYTES: u64 = 4 << 20;

/// How much of staging memory is filled, and taken, at a time, in bytes.
pub const STAGED_BYTES: u64 = 1 << 20;

/// The largest argument that travels with its task; larger ones are stored first. In bytes.
pub const INLINE_BYTES: usize = 64 << 10;

/// The largest arguments of one task together, as above, in bytes.
pub const INLINE_TOTAL_BYTES: usize = 1 << 20;

/// The most tasks that one `SubmitAll` submits: others want their turn.
pub const MAX_CALLS: usize = 256;

/// The most objects of one `GetAll`.
pub const MAX_GETS: usize = 10_000;

/// The most handles that a value may hold which a client stores: as many as one frame can name.
pub const MAX_NAMES: usize = 50_000;

/// The longest that a `Put` may wait for room because its client says so, in milliseconds: an hour.
pub const MAX_ROOM_MS: u64 = 60 * 60 * 1000;

/// The most segments that a client has the descriptors of.
pub const MAX_SEGMENTS: usize = 64;

/// The most resources that a tenant may be guaranteed something of, or have a quota of.
pub const MAX_MINIMA: usize = 32;

/// How many bytes stand before a frame: its length.
pub const HEADER_BYTES: usize = 4;

/// What each side begins with, so that neither takes something else for wasmrun.
pub const MAGIC: [u8; 8] = *b"wasmrun\0";

/// The first frame of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`]. Nothing after it is read if the two do not understand each other.
    pub protocol: Version,
    /// The version of wasmrun, for people.
    pub version: String,
    /// Whose work this session submits, if a task does not say otherwise.
    pub tenant: TenantName,
    /// What people call the job that this session is; what its first task is called if empty.
    pub job: String,
}

/// The first frame of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`PROTOCOL`].
    pub protocol: Version,
    /// The version of wasmrun, for people.
    pub version: String,
    /// The node's name.
    pub node: String,
    /// Its id: the owner of what the session makes.
    pub id: NodeId,
}

/// What stands before anything that may change between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// The protocol of whoever says it.
    pub protocol: Version,
}

impl Request {
    /// The minor version of [`PROTOCOL`] with which it came, and all that it has in it. A node that speaks an
    /// older one is not asked.
    pub const fn since(&self) -> u16 {
        // All came with the first of this major version.
        let _ = self;
        0
    }
}

/// A message with the request that it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame<T> {
    /// The request.
    pub id: u64,
    /// The message.
    pub message: T,
}

/// Why bytes are no frame, or a message is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is longer than allowed.
    #[error(
        "a message has {bytes} bytes, and {MAX_FRAME_BYTES} are the most; send large values by themselves"
    )]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// It is no message of this protocol.
    #[error("these bytes are no message of this protocol: {0}")]
    Malformed(String),
    /// There is more in it than one message.
    #[error("{0} bytes follow a message in its frame")]
    Trailing(usize),
    /// The other side does not speak wasmrun.
    #[error("the other side does not speak wasmrun's protocol; is this the right socket?")]
    NotWasmrun,
    /// The other side speaks another version.
    #[error(
        "the other side speaks version {theirs} of the protocol and we {PROTOCOL}; bring both to the same wasmrun; one \
         minor version apart is fine"
    )]
    Version {
        /// Its version.
        theirs: Version,
    },
}

/// A message as a frame, its length included.
///
/// # Errors
/// When it is longer than a frame may be.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let bytes = postcard::to_extend(message, vec![0; HEADER_BYTES])
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    let len = bytes.len() - HEADER_BYTES;
    if len > MAX_FRAME_BYTES {
        return Err(FrameError::TooLong { bytes: len });
    }
    let mut bytes = bytes;
    let header = u32::try_from(len).expect("a frame is short").to_le_bytes();
    bytes[..HEADER_BYTES].copy_from_slice(&header);
    Ok(bytes)
}

/// How many bytes of a frame follow its length.
///
/// # Errors
/// When they are more than a frame may have.
pub fn frame_len(header: [u8; HEADER_BYTES]) -> Result<usize, FrameError> {
    let bytes = usize::try_from(u32::from_le_bytes(header)).unwrap_or(usize::MAX);
    match bytes {
        ..=MAX_FRAME_BYTES => Ok(bytes),
        _ => Err(FrameError::TooLong { bytes }),
    }
}

/// The message of a frame, from the bytes after its length.
///
/// # Errors
/// When they are not exactly one message.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    let (message, rest) = postcard::take_from_bytes(bytes)
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    match rest.len() {
        0 => Ok(message),
        more => Err(FrameError::Trailing(more)),
    }
}

/// A first frame: whether it is wasmrun's, of a version that we understand, and then what it says and the
/// version to speak.
///
/// # Errors
/// When it is not.
pub fn decode_greeting<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, Version), FrameError> {
    let theirs = match postcard::take_from_bytes::<Greeting>(bytes) {
        Ok((greeting, _)) if greeting.magic == MAGIC => greeting.protocol,
        _ => return Err(FrameError::NotWasmrun),
    };
    let spoken = PROTOCOL.common(theirs);
    let spoken = spoken.ok_or(FrameError::Version { theirs })?;
    Ok((decode(bytes)?, spoken))
}

/// For the fuzzer and a stable test: whatever the bytes are, they give a message or an error, and a
/// message that is sent again comes back the same.
pub fn fuzz(bytes: &[u8]) {
    fn again<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
        let Ok(message) = decode::<T>(bytes) else {
            return;
        };
        if let Ok(sent) = encode(&message) {
            let header = sent[..HEADER_BYTES].try_into().expect("a header");
            assert_eq!(frame_len(header), Ok(sent.len() - HEADER_BYTES));
            let second = decode::<T>(&sent[HEADER_BYTES..]).expect("what was sent can be read");
            assert_eq!(encode(&second).as_ref(), Ok(&sent));
        }
    }
    again::<Frame<Request>>(bytes);
    again::<Frame<Response>>(bytes);
    let _ = decode_greeting::<Hello>(bytes);
    let _ = decode_greeting::<Welcome>(bytes);
    if let Some((header, _)) = bytes.split_first_chunk() {
        let _ = frame_len(*header);
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
