//! How a task failed, in a form that does not nest.
//!
//! A [`TaskError`] holds the one that led to it. Bytes from outside could nest such values deeper than
//! any stack, so they travel as a list, from the last to the first.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::failure::TaskError;

/// The most failures that one led to another; what is before is left out.
const MAX_LINKS: usize = 64;

/// A [`TaskError`] on its way: itself, then what led to it, each without its cause (golden test).
#[derive(Debug, Clone, PartialEq)]
pub struct WireError(TaskError);

impl From<&TaskError> for WireError {
    fn from(error: &TaskError) -> Self {
        Self(error.clone())
    }
}

impl From<WireError> for TaskError {
    fn from(error: WireError) -> Self {
        error.0
    }
}

impl Serialize for WireError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let causes = std::iter::successors(Some(&self.0), |error| match error {
            TaskError::Dependency { cause, .. } => Some(cause),
            TaskError::ActorDied { cause, .. } => cause.as_deref(),
            _ => None,
        });
        let links: Vec<&TaskError> = causes.take(MAX_LINKS).collect();
        links.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for WireError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let links = Vec::<TaskError>::deserialize(deserializer)?;
        let whole = links.into_iter().take(MAX_LINKS).rev().reduce(led_to);
        let unknown = || TaskError::Sandbox("it was not said how".into());
        Ok(Self(whole.unwrap_or_else(unknown)))
    }
}

/// `error`, with what led to it.
fn led_to(led: TaskError, mut error: TaskError) -> TaskError {
    match &mut error {
        TaskError::Dependency { cause, .. } => **cause = led,
        TaskError::ActorDied { cause, .. } => *cause = Some(Box::new(led)),
        _ => {}
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ActorId, TaskId};

    fn arrived(error: &TaskError) -> TaskError {
        let bytes = postcard::to_allocvec(&WireError::from(error)).unwrap();
        postcard::from_bytes::<WireError>(&bytes).unwrap().into()
    }

    #[test]
    fn causes_travel() {
        let after = |index, cause| TaskError::Dependency {
            index,
            task: TaskId::from_bytes([2; 16]),
            name: "f".into(),
            cause: Box::new(cause),
        };
        let actor = TaskError::ActorDied {
            actor: ActorId::from_bytes([3; 16]),
            cause: Some(Box::new(TaskError::Sandbox("x".into()))),
        };
        let error = after(1, actor);
        assert_eq!(arrived(&error), error);
        // Of a chain that is too long, the end is told.
        let long = (0..1000).fold(TaskError::Cancelled, |cause, index| after(index, cause));
        let arrived = arrived(&long);
        assert!(matches!(arrived, TaskError::Dependency { index: 999, .. }));
        assert_eq!(arrived.depth(), MAX_LINKS);
        assert_eq!(
            arrived.root(),
            &TaskError::Sandbox("see the task itself".into())
        );
        let none: TaskError = postcard::from_bytes::<WireError>(&[0]).unwrap().into();
        assert!(matches!(none, TaskError::Sandbox(_)));
    }
}
