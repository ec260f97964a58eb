//! What a control store says when it cannot do what it was asked.
//!
//! Owns the one error of all operations. It travels between nodes, so it holds text and no sources.
//! Invariant: whoever gets [`Error::Unavailable`] knows that nothing was changed, and whoever gets
//! [`Error::Uncertain`] that nobody knows.

use serde::{Deserialize, Serialize};

use crate::types::{LeaseId, Revision};

/// Why a control store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Error {
    /// The store cannot be reached, or is being started or closed. Nothing was changed.
    #[error("the control store cannot be reached: {why}; nothing was changed, try again")]
    Unavailable {
        /// What happened.
        why: String,
    },
    /// The connection broke before the answer came: the change may have been made or not.
    #[error(
        "the control store may or may not have made this change: {why}; read what is there before trying again"
    )]
    Uncertain {
        /// What happened.
        why: String,
    },
    /// The lease has expired or was revoked, and with it all keys under it.
    #[error("the lease {lease} is gone, and all keys under it; take a new one and register again")]
    LeaseLost {
        /// The lease.
        lease: LeaseId,
    },
    /// The changes that a watch asks for are no longer kept.
    #[error(
        "changes before revision {next} are no longer kept; read what is there now, then watch from the revision after that (at least {next})"
    )]
    Compacted {
        /// The first revision from which a watch can begin.
        next: Revision,
    },
    /// A key, a value or a transaction is too large.
    #[error(
        "{what} has {size}, and {limit} are the most; split it, or store the bytes as an object"
    )]
    TooLarge {
        /// What is too large: `the key "a"`, `the transaction`.
        what: String,
        /// How large it is, in bytes or operations.
        size: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The request makes no sense. Trying again does not help.
    #[error("the control store refuses this request: {why}")]
    Invalid {
        /// What is wrong with it.
        why: String,
    },
    /// The disk (or etcd's quota) is full. Nothing was changed; reading still works.
    #[error(
        "the control store's disk is full: {why}; nothing was changed. Make room, and it goes on by itself"
    )]
    Full {
        /// What the system says.
        why: String,
    },
    /// What is on the disk is not what was written.
    #[error(
        "the control store's data is damaged: {why}; restore its folder from a backup, or start a new cluster"
    )]
    Corrupt {
        /// Where.
        why: String,
    },
    /// We are not who may do this.
    #[error(
        "the control store does not let us in: {why}; check its user, password and certificates"
    )]
    Denied {
        /// What it says.
        why: String,
    },
}

impl Error {
    /// Whether the same request may be sent again and then do some good. After
    /// [`Error::Uncertain`] it may not, without a look at what is there.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Full { .. } => true,
            Self::Uncertain { .. }
            | Self::LeaseLost { .. }
            | Self::Compacted { .. }
            | Self::TooLarge { .. }
            | Self::Invalid { .. }
            | Self::Corrupt { .. }
            | Self::Denied { .. } => false,
        }
    }

    pub(crate) fn unavailable(why: impl ToString) -> Self {
        Self::Unavailable {
            why: why.to_string(),
        }
    }

    pub(crate) fn uncertain(why: impl ToString) -> Self {
        Self::Uncertain {
            why: why.to_string(),
        }
    }

    pub(crate) fn invalid(why: impl ToString) -> Self {
        Self::Invalid {
            why: why.to_string(),
        }
    }

    pub(crate) fn corrupt(why: impl ToString) -> Self {
        Self::Corrupt {
            why: why.to_string(),
        }
    }
}
