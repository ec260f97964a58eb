//! How a task failed, in a form that does not nest.
//!
//! A [`TaskError`] holds the one that led to it. Bytes from outside could nest such values deeper than
//! any stack, so they travel as a list, from the last to the first.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Frame, LimitHit, TaskError};
use crate::id::{ActorId, ObjectId, TaskId};
use crate::value::Encoded;

/// The most failures that one led to another; what is before is left out.
const MAX_LINKS: usize = 64;

/// A [`TaskError`] on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireError(Vec<Link>);

/// One failure, without what led to it. The order is a wire layout (golden test).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Link {
    Trap {
        message: String,
        frames: Vec<Frame>,
    },
    Guest {
        text: String,
        value: Encoded,
        passed: Option<Box<Failure>>,
    },
    Exit {
        code: i32,
        limit: Option<LimitHit>,
    },
    Limit {
        hit: LimitHit,
        frames: Vec<Frame>,
    },
    Cancelled,
    Arguments(String),
    Dependency {
        index: u32,
        task: TaskId,
        name: String,
    },
    ActorDied {
        actor: ActorId,
    },
    Unschedulable(String),
    Sandbox(String),
    Lost(ObjectId),
    Gone {
        object: ObjectId,
        why: String,
    },
}

impl From<&TaskError> for WireError {
    fn from(error: &TaskError) -> Self {
        let causes = std::iter::successors(Some(error), |error| match error {
            TaskError::Dependency { cause, .. } => Some(cause),
            TaskError::ActorDied { cause, .. } => cause.as_deref(),
            _ => None,
        });
        Self(causes.take(MAX_LINKS).map(Link::of).collect())
    }
}

impl From<WireError> for TaskError {
    fn from(error: WireError) -> Self {
        let links = error.0.into_iter().take(MAX_LINKS).rev();
        let whole = links.fold(None, |cause: Option<Self>, link| Some(link.with(cause)));
        whole.unwrap_or_else(|| Self::Sandbox("it was not said how".into()))
    }
}

impl Link {
    fn of(error: &TaskError) -> Self {
        match error {
            TaskError::Trap { message, frames } => Self::Trap {
                message: message.clone(),
                frames: frames.clone(),
            },
            TaskError::Guest {
                text,
                value,
                passed,
            } => Self::Guest {
                text: text.clone(),
                value: value.clone(),
                passed: passed.clone(),
            },
            TaskError::Exit { code, limit } => Self::Exit {
                code: *code,
                limit: limit.clone(),
            },
            TaskError::Limit { hit, frames } => Self::Limit {
                hit: hit.clone(),
                frames: frames.clone(),
            },
            TaskError::Cancelled => Self::Cancelled,
            TaskError::Arguments(why) => Self::Arguments(why.clone()),
            TaskError::Dependency {
                index, task, name, ..
            } => Self::Dependency {
                index: *index,
                task: *task,
                name: name.clone(),
            },
            TaskError::ActorDied { actor, .. } => Self::ActorDied { actor: *actor },
            TaskError::Unschedulable(why) => Self::Unschedulable(why.clone()),
            TaskError::Sandbox(why) => Self::Sandbox(why.clone()),
            TaskError::Lost(object) => Self::Lost(*object),
            TaskError::Gone { object, why } => Self::Gone {
                object: *object,
                why: why.clone(),
            },
        }
    }

    fn with(self, cause: Option<TaskError>) -> TaskError {
        match self {
            Self::Trap { message, frames } => TaskError::Trap { message, frames },
            Self::Guest {
                text,
                value,
                passed,
            } => TaskError::Guest {
                text,
                value,
                passed,
            },
            Self::Exit { code, limit } => TaskError::Exit { code, limit },
            Self::Limit { hit, frames } => TaskError::Limit { hit, frames },
            Self::Cancelled => TaskError::Cancelled,
            Self::Arguments(why) => TaskError::Arguments(why),
            Self::Dependency { index, task, name } => TaskError::Dependency {
                index,
                task,
                name,
                cause: Box::new(cause.unwrap_or(TaskError::Sandbox("see the task itself".into()))),
            },
            Self::ActorDied { actor } => TaskError::ActorDied {
                actor,
                cause: cause.map(Box::new),
            },
            Self::Unschedulable(why) => TaskError::Unschedulable(why),
            Self::Sandbox(why) => TaskError::Sandbox(why),
            Self::Lost(object) => TaskError::Lost(object),
            Self::Gone { object, why } => TaskError::Gone { object, why },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_travel() {
        let actor = TaskError::ActorDied {
            actor: ActorId::from_bytes([3; 16]),
            cause: Some(Box::new(TaskError::Sandbox("x".into()))),
        };
        let error = TaskError::Dependency {
            index: 1,
            task: TaskId::from_bytes([2; 16]),
            name: "f".into(),
            cause: Box::new(actor),
        };
        assert_eq!(TaskError::from(WireError::from(&error)), error);
        // Of a chain that is too long, the end is told.
        let mut long = TaskError::Cancelled;
        for index in 0..1000 {
            long = TaskError::Dependency {
                index,
                task: TaskId::from_bytes([2; 16]),
                name: "f".into(),
                cause: Box::new(long),
            };
        }
        assert_eq!(WireError::from(&long).0.len(), MAX_LINKS);
        assert!(matches!(
            TaskError::from(WireError::from(&long)),
            TaskError::Dependency { index: 999, .. }
        ));
        assert!(matches!(
            TaskError::from(WireError(Vec::new())),
            TaskError::Sandbox(_)
        ));
    }
}
