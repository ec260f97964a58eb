//! Failures as JSON, of which `lib/errors.ts` makes errors.

use serde_json::{Map, Value as Json, json};
use wasmrun_client::{ConnectError, Error, GetError};
use wasmrun_model::failure::TaskError;
use wasmrun_model::value::EncodedRef;

/// What went wrong.
pub(crate) struct Failure {
    /// Its kind, a message, and what belongs to the kind.
    pub(crate) json: Json,
    /// The whole result of the function that returned an error, this one or one that this came of, as bytes by its type.
    pub(crate) result: Vec<u8>,
}

impl Failure {
    fn new(kind: &str, message: &dyn ToString) -> Self {
        Self {
            json: json!({ "kind": kind, "message": message.to_string() }),
            result: Vec::new(),
        }
    }

    /// Something that should not be.
    pub(crate) fn other(message: &str) -> Self {
        Self::new("error", &message)
    }
}

impl From<&ConnectError> for Failure {
    fn from(error: &ConnectError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<&GetError> for Failure {
    fn from(error: &GetError) -> Self {
        match error {
            GetError::Failed { error, origin } => {
                let mut json = task(error);
                json.insert("task".to_owned(), origin.to_string().into());
                let result = match error.root() {
                    TaskError::Guest { value, .. } => EncodedRef::from(value).bytes().to_vec(),
                    _ => Vec::new(),
                };
                Self {
                    json: Json::Object(json),
                    result,
                }
            }
            GetError::TimedOut => Self::new("timeout", error),
            GetError::Request(error) => error.into(),
        }
    }
}

/// How a task failed.
fn task(error: &TaskError) -> Map<String, Json> {
    let frames: Vec<_> = error.frames().iter().map(ToString::to_string).collect();
    let details = match error {
        TaskError::Guest { text, .. } => json!({ "text": text }),
        TaskError::Exit { code, .. } => json!({ "code": code }),
        TaskError::Dependency {
            index,
            task: of,
            name,
            cause,
        } => {
            let mut cause = task(cause);
            cause.insert("task".to_owned(), of.to_string().into());
            cause.insert("function".to_owned(), name.as_str().into());
            json!({ "argument": index, "cause": cause })
        }
        TaskError::ActorDied { actor, cause } => {
            json!({ "actor": actor.to_string(), "cause": cause.as_deref().map(task) })
        }
        _ => json!({}),
    };
    let mut all = Map::new();
    all.insert("kind".to_owned(), error.kind().into());
    all.insert("message".to_owned(), error.to_string().into());
    all.insert("frames".to_owned(), frames.into());
    if let Json::Object(details) = details {
        all.extend(details.into_iter().filter(|(_, value)| !value.is_null()));
    }
    all
}
