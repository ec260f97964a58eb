//! Why the node cannot be reached, does not do it, or has no value.

use std::io;
use std::path::PathBuf;

use wasmrun_model::failure::TaskError;
use wasmrun_model::id::TaskId;
use wasmrun_model::version::Version;
use wasmrun_model::wire::{Address, FrameError, MAX_NAMES, Refusal, Response};
use wasmrun_net::IdentityError;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens.
    #[error("no node is running here ({address}); start one with `wasmrun node start`")]
    NotRunning {
        /// Where.
        address: Address,
    },
    /// It is somebody else's.
    #[error(
        "the node at {address} belongs to another user: start your own with `wasmrun node start`; one that lets other users in \
         has its socket in a folder that only its user can change"
    )]
    NotOurs {
        /// Where.
        address: Address,
    },
    /// Nobody has said who we are.
    #[error(
        "the node at {address} takes clients with a certificate of its cluster, and there is none here: get one with \
         `wasmrun login TOKEN`; an operator makes the token with `wasmrun node token create --client`. Where people log in \
         themselves it is `wasmrun login --oidc HOST:PORT`"
    )]
    NoIdentity {
        /// Where.
        address: Address,
    },
    /// Who we are cannot be read.
    #[error("the certificate in {} cannot be used", folder.display())]
    Identity {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        #[source]
        error: IdentityError,
    },
    /// The name service does not know it.
    #[error("'{address}' has no address: check the name ({error})")]
    Name {
        /// Where.
        address: Address,
        /// Why not.
        error: io::Error,
    },
    /// It is not of the cluster that our certificate is of.
    #[error(
        "the node at {address} is not of the cluster that your certificate is for ({why}): check the address, or log \
         in to its cluster with `wasmrun login TOKEN`"
    )]
    OtherCluster {
        /// Where.
        address: Address,
        /// What was wrong with it.
        why: String,
    },
    /// It does not accept our certificate.
    #[error(
        "the node at {address} does not accept your certificate ({why}): log in to its cluster, again if the \
         certificate has ended, with `wasmrun login TOKEN` or `wasmrun login --oidc HOST:PORT`"
    )]
    NotAccepted {
        /// Where.
        address: Address,
        /// What it said.
        why: String,
    },
    /// Nobody answers there, or whoever does turns us away.
    #[error("cannot connect to {address}: {error}")]
    Network {
        /// Where.
        address: Address,
        /// Why not.
        error: wasmrun_net::ConnectError,
    },
    /// It does not talk to us.
    #[error("the node at {address}: {error}")]
    Frame {
        /// Where.
        address: Address,
        /// Why not.
        error: FrameError,
    },
    /// The system refuses.
    #[error("cannot connect to {address}: {error}; {}", advice(.error))]
    Io {
        /// Where.
        address: Address,
        /// Why not.
        error: io::Error,
    },
}

/// What to do where the system refuses.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "its user can let you in: `wasmrun node start --users FILE`, with the socket in a folder that you can enter"
        }
        io::ErrorKind::NotADirectory => {
            "a part of the path is a file: check the address, as `wasmrun node start` prints where the node listens"
        }
        _ => "check the address: `wasmrun node start` prints where the node listens",
    }
}

impl ConnectError {
    /// One word for the kind of failure, as drivers of other languages have a class for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotRunning { .. } => "not-running",
            _ => "connection",
        }
    }

    /// What an error of the network means for a client.
    pub(crate) fn on_network(address: &Address, error: wasmrun_net::ConnectError) -> Self {
        let address = address.clone();
        match error {
            wasmrun_net::ConnectError::Untrusted { why, .. } => Self::OtherCluster { address, why },
            wasmrun_net::ConnectError::NotAccepted { why, .. } => {
                Self::NotAccepted { address, why }
            }
            error => Self::Network { address, error },
        }
    }
}

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The node refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The connection has ended.
    #[error(
        "the connection to the node has ended; what was submitted through it is cancelled. See whether the node still runs: `wasmrun status`"
    )]
    Closed,
    /// The node has ended the session.
    #[error(
        "the node has ended the session: {why}. What was submitted through it is cancelled, unless it was detached"
    )]
    Ended {
        /// What it said.
        why: String,
    },
    /// The connection has ended before a detached task was answered, and the node is not back.
    #[error(
        "the connection to the node has ended, and the node is not back: whether it has taken task {task} is not known; see `wasmrun get {task}` when it runs again, or at another node"
    )]
    Undecided {
        /// The task.
        task: TaskId,
    },
    /// A value that is to be stored names too many objects and actors.
    #[error(
        "a value that is to be stored names {names} objects and actors, and may name {MAX_NAMES}: put parts of it, and \
         a value that names those"
    )]
    TooManyNames {
        /// How many it names.
        names: usize,
    },
    /// The node is a version behind, and does not know of this yet.
    #[error(
        "the node speaks version {spoken} of the protocol, and what you ask for came with {since}: bring the node to your \
         wasmrun"
    )]
    TooNew {
        /// The version that it came with.
        since: Version,
        /// The one that the node speaks.
        spoken: Version,
    },
    /// A module, a value or an actor is not what Rust code was generated for.
    #[error(
        "{0}; generate the code anew, from the module that is loaded: `wasmrun stubs MODULE --lang rust`"
    )]
    OtherTypes(String),
    /// The request cannot be sent.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// What is to be sent cannot be read.
    #[error("cannot read what is to be sent: {0}")]
    Source(io::Error),
    /// The node says what it should not.
    #[error("the node gives an answer that does not belong to the request: {0}")]
    Unexpected(String),
}

impl Error {
    /// As [`ConnectError::kind`].
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Closed | Self::Ended { .. } | Self::Undecided { .. } => "connection",
            Self::Refused(_) => "refused",
            _ => "error",
        }
    }

    pub(crate) fn unexpected(response: &Response) -> Self {
        let text = format!("{response:?}");
        Self::Unexpected(text.chars().take(80).collect())
    }
}

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// What was to make it failed.
    #[error("{error}")]
    Failed {
        /// The task.
        origin: TaskId,
        /// How it failed.
        error: TaskError,
    },
    /// Time is up.
    #[error("timed out: it is not there yet; wait for longer, or cancel what makes it")]
    TimedOut,
    /// The node cannot be asked, or does not know it.
    #[error(transparent)]
    Request(#[from] Error),
}

/// Why a placement group is not ready.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// Time is up, and why.
    #[error("{0}")]
    TimedOut(String),
    /// The node cannot be asked, or there is no such group (any more).
    #[error(transparent)]
    Request(#[from] Error),
}
