//! Why there is no value: the errors of futures, tasks and actors.
//!
//! Owns the Rust face of the `error` of `wasmrun:runtime/objects` (see `wit/objects.wit`, the one
//! source). Invariant: shapes and orders of cases are those of the WIT types, because these types
//! may stand in signatures and cross as bytes then.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::value::{self, Value};

/// Why there is no value.
///
/// Its text is whole: what happened, with the causes in other tasks. May stand in a signature:
/// `Result<u64, Error>` is what a task returns that passes on the failures of the tasks it started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Error {
    /// The task or call that was to make it failed, or was cancelled.
    Failed(Failure),
    /// Time is up.
    TimedOut,
    /// Tasks wait for each other in a circle: this wait would never end. Says which.
    Deadlock(String),
    /// The request cannot be served: an unknown name, a wrong argument, a limit. Says why and what
    /// to do.
    Refused(String),
}

/// How a task or call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// What happened, in words, with the causes in other tasks that led to it.
    pub message: String,
    /// The id of the task where it began.
    pub origin: String,
    /// The payload of the error case, encoded, where the guest returned one and its type has one:
    /// see [`Error::payload`].
    pub payload: Option<Vec<u8>>,
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureKind {
    /// The guest returned the error case of its result.
    Guest,
    /// The guest trapped: in Rust, it panicked.
    Trap,
    /// A program ended with an exit code that is not 0.
    Exit,
    /// The guest ran into a limit.
    Limit,
    /// The arguments were not what the function takes.
    Arguments,
    /// Somebody cancelled it.
    Cancelled,
    /// An object that it needed could not be made.
    Dependency,
    /// Its actor is dead.
    ActorDied,
    /// The sandbox could not be set up, or what it made is lost.
    System,
}

impl Error {
    /// The error that the task returned, where that is why it failed: the `E` of its
    /// `Result<T, E>`. `None` for any other failure, and where the payload is not an `E`.
    pub fn payload<E: Value>(&self) -> Option<E> {
        let bytes = self.failure()?.payload.as_deref()?;
        value::from_postcard(bytes).ok()
    }

    /// How the task or call failed, where that is what happened.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Error::Failed(failure) => Some(failure),
            Error::TimedOut | Error::Deadlock(_) | Error::Refused(_) => None,
        }
    }

    /// What kind of failure it was, where a task or call failed.
    pub fn kind(&self) -> Option<FailureKind> {
        self.failure().map(|failure| failure.kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Failed(failure) => f.write_str(&failure.message),
            Error::TimedOut => f.write_str("time is up, and the value is not there yet"),
            Error::Deadlock(message) | Error::Refused(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// So that `?` works in tasks that return `Result<_, String>`.
impl From<Error> for String {
    fn from(error: Error) -> String {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(payload: Option<Vec<u8>>) -> Error {
        Error::Failed(Failure {
            kind: FailureKind::Guest,
            message: "task 7 returned an error".to_owned(),
            origin: "7".to_owned(),
            payload,
        })
    }

    #[test]
    fn payloads_are_read_as_what_they_are() {
        let error = failed(Some(value::to_postcard(&"no".to_owned()).unwrap()));
        assert_eq!(error.payload::<String>().as_deref(), Some("no"));
        assert_eq!(error.payload::<u8>(), None);
        assert_eq!(failed(None).payload::<String>(), None);
        assert_eq!(Error::TimedOut.payload::<String>(), None);
    }

    #[test]
    fn errors_have_the_bytes_of_their_wit_type() {
        assert_eq!(value::to_postcard(&Error::TimedOut).unwrap(), [1]);
        assert_eq!(
            value::to_postcard(&failed(Some(vec![5]))).unwrap()[..2],
            [0, 0]
        );
        let refused = Error::Refused("x".to_owned());
        assert_eq!(value::to_postcard(&refused).unwrap(), [3, 1, b'x']);
    }
}
