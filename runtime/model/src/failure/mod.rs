//! Why a task did not succeed, as data that can travel and be shown.
//!
//! Owns the one vocabulary of task failures that nodes, clients and the command line share.
//! Texts follow one order: what happened, why, what to do.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fairness::TenantName;
use crate::id::{ActorId, ObjectId, TaskId};
use crate::units::{bytes, milliseconds};
use crate::value::{Encoded, EncodedRef};

/// Why a task failed. Serialised without what led to it: that travels beside it, in a
/// [`WireError`](crate::wire::WireError).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum TaskError {
    /// The guest stopped with a trap, such as a panic or an access out of bounds, or used the host wrongly.
    #[error("the guest trapped: {message}")]
    Trap {
        /// The trap, in the words of the wasm specification, or what it did wrong; one line.
        message: String,
        /// Where it happened, innermost frame first.
        frames: Vec<Frame>,
    },
    /// The function returned the error case of its `result`.
    #[error("{}", match .passed {
        Some(passed) => format!("it passed on how task {} failed: {text}", passed.origin),
        None => format!("the function returned an error: {text}"),
    })]
    Guest {
        /// The error value as WAVE text; of one that was passed on, what that says.
        text: String,
        /// The whole result value (`err(…)`), encoded by the function's result type.
        value: Encoded,
        /// The failure that the error tells of, if it is one that the function got from the runtime.
        passed: Option<Box<Failure>>,
    },
    /// The program ended with a code other than 0.
    #[error("the program exited with code {code}{}", .limit.iter().map(|hit| format!(" after this: {hit}")).collect::<String>())]
    Exit {
        /// The code it gave.
        code: i32,
        /// The limit that it had run into before, which is probably why.
        limit: Option<LimitHit>,
    },
    /// A limit was reached.
    #[error("{hit}")]
    Limit {
        /// Which limit, how much it is and how to raise it.
        hit: LimitHit,
        /// Where the guest was, innermost frame first, if it was running.
        frames: Vec<Frame>,
    },
    /// Somebody cancelled the task.
    #[error("the task was cancelled")]
    Cancelled,
    /// The arguments don't fit the function's type.
    #[error("the arguments do not fit: {0}")]
    Arguments(String),
    /// An object that it needs could not be made.
    #[error("argument {} could not be made: task {task} ({name}) failed: {cause}", .index + 1)]
    Dependency {
        /// Which argument, from 0.
        index: u32,
        /// The task that was to make it.
        task: TaskId,
        /// What people call that task.
        name: String,
        /// How it failed.
        #[serde(skip, default = "TaskError::not_said")]
        cause: Box<TaskError>,
    },
    /// The actor that it was to run on is dead.
    #[error("actor {actor} {}", match .cause {
        Some(cause) => format!("has died: {cause}; call it again if it has restarts left, else create it again, or give it restarts"),
        None => "was ended: somebody killed it, or its driver has gone; create it again".into(),
    })]
    ActorDied {
        /// The actor.
        actor: ActorId,
        /// How it died, if it was not killed.
        #[serde(skip)]
        cause: Option<Box<TaskError>>,
    },
    /// No node can ever run it, or what it needs is gone.
    #[error("it cannot be run: {0}")]
    Unschedulable(String),
    /// The sandbox could not be set up, or the host failed in it: not what the guest does wrong.
    #[error("the sandbox failed: {0}")]
    Sandbox(String),
    /// An object that it needs was there and is not any more.
    #[error(
        "object {0} is lost: every node that had it is gone, and what made it cannot be run again; \
         put it again"
    )]
    Lost(ObjectId),
    /// The same, where it is known why.
    #[error("object {object} is lost: {why}")]
    Gone {
        /// The object.
        object: ObjectId,
        /// Which node had it, and why it is not reconstructed.
        why: String,
    },
    /// An attempt was stopped so that another tenant gets what it is due. The task is tried again: no task fails with this.
    #[error("it was stopped, to be tried again: {why}")]
    Preempted {
        /// For whom; not said to those who may not know of it.
        tenant: Option<TenantName>,
        /// Why that is due it.
        why: String,
    },
}

impl TaskError {
    /// How many bytes of what a guest says of its failure are remembered when its task is over.
    pub const REMEMBERED_BYTES: usize = 16 << 10;

    /// Where the guest was when it failed, innermost frame first; empty if that says nothing.
    pub fn frames(&self) -> &[Frame] {
        match self {
            Self::Trap { frames, .. } | Self::Limit { frames, .. } => frames,
            Self::ActorDied {
                cause: Some(cause), ..
            } => cause.frames(),
            _ => &[],
        }
    }

    /// One word for the kind of failure, as it stands in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Trap { .. } => "trap",
            Self::Guest { .. } => "guest-error",
            Self::Exit { .. } => "exit",
            Self::Limit { .. } => "limit",
            Self::Cancelled => "cancelled",
            Self::Arguments(_) => "arguments",
            Self::Dependency { .. } => "dependency",
            Self::ActorDied { .. } => "actor-died",
            Self::Unschedulable(_) => "unschedulable",
            Self::Sandbox(_) => "sandbox",
            Self::Lost(_) | Self::Gone { .. } => "object-lost",
            Self::Preempted { .. } => "preempted",
        }
    }

    /// The same for one who is to hear of these tenants alone.
    #[must_use]
    pub fn seen_by(mut self, sees: impl Fn(&TenantName) -> bool) -> Self {
        if let Self::Preempted { tenant, why } = &mut self
            && tenant.take_if(|it| !sees(it)).is_some()
        {
            "another tenant was due what it held".clone_into(why);
        }
        self
    }

    /// Stands for a cause that did not come along.
    fn not_said() -> Box<Self> {
        Box::new(Self::Sandbox("see the task itself".into()))
    }

    /// How many failures of other tasks led to it.
    pub fn depth(&self) -> usize {
        let mut error = self;
        let mut depth = 0;
        while let Self::Dependency { cause, .. } = error {
            error = cause;
            depth += 1;
        }
        depth
    }

    /// The task where it began, of a failure of `task`.
    pub fn origin(&self, task: TaskId) -> TaskId {
        match self {
            Self::Dependency { task, cause, .. } => cause.origin(*task),
            Self::Guest {
                passed: Some(passed),
                ..
            } => passed.origin,
            _ => task,
        }
    }

    /// About how many bytes it takes, with what led to it. A guest may say as much as a result may have.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Guest {
                text,
                value,
                passed,
            } => {
                let passed = passed.as_ref().map_or(0, |it| {
                    it.message.len() + it.payload.as_ref().map_or(0, Vec::len)
                });
                text.len() + value.size_bytes() + passed
            }
            Self::Dependency { cause, .. }
            | Self::ActorDied {
                cause: Some(cause), ..
            } => cause.size_bytes(),
            Self::Trap { message: text, .. }
            | Self::Arguments(text)
            | Self::Unschedulable(text)
            | Self::Sandbox(text)
            | Self::Gone { why: text, .. }
            | Self::Preempted { why: text, .. } => text.len(),
            Self::Exit { .. }
            | Self::Limit { .. }
            | Self::Cancelled
            | Self::ActorDied { cause: None, .. }
            | Self::Lost(_) => 0,
        }
    }

    /// The same, as it is remembered of what is over: of what a guest says, where that is longer than
    /// [`Self::REMEMBERED_BYTES`], the beginning, as text alone.
    #[must_use]
    pub fn in_short(&self) -> Self {
        match self {
            Self::Guest { text, .. } if self.size_bytes() > Self::REMEMBERED_BYTES => Self::Guest {
                text: text[..text.floor_char_boundary(Self::REMEMBERED_BYTES)].to_owned(),
                value: Encoded::Postcard(Vec::new()),
                passed: None,
            },
            Self::Dependency {
                index,
                task,
                name,
                cause,
            } => Self::Dependency {
                index: *index,
                task: *task,
                name: name.clone(),
                cause: Box::new(cause.in_short()),
            },
            Self::ActorDied {
                actor,
                cause: Some(cause),
            } => Self::ActorDied {
                actor: *actor,
                cause: Some(Box::new(cause.in_short())),
            },
            error => error.clone(),
        }
    }

    /// The failure that this one comes from: its own where nothing else led to it.
    pub fn root(&self) -> &Self {
        match self {
            Self::Dependency { cause, .. } => cause.root(),
            error => error,
        }
    }
}

/// A failure as a guest is told of it: `failure` of `wasmrun:runtime/objects`.
///
/// However many tasks pass one on, each that gets it gets the same: a text that grew with each of them would soon fill
/// whole memories, as each puts the one before it in quotes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// What happened, in words, with the causes in other tasks that led to it.
    pub message: String,
    /// The task where it began.
    pub origin: TaskId,
    /// The payload of the error case, where the guest returned one and its type has one: postcard.
    pub payload: Option<Vec<u8>>,
}

impl Failure {
    /// What a guest is told of an error that began at `origin`.
    pub fn of(error: &TaskError, origin: TaskId) -> Self {
        if let TaskError::Guest {
            passed: Some(passed),
            ..
        } = error
        {
            return Self::clone(passed);
        }
        let payload = match error.root() {
            TaskError::Guest {
                passed: Some(passed),
                ..
            } => passed.payload.clone(),
            // All but the byte that says that it is the error case.
            TaskError::Guest { value, .. } => match EncodedRef::from(value).bytes() {
                [_, payload @ ..] if !payload.is_empty() => Some(payload.to_vec()),
                _ => None,
            },
            _ => None,
        };
        Self {
            kind: FailureKind::of(error),
            message: error.to_string(),
            origin,
            payload,
        }
    }
}

/// The kind of a [`Failure`], by the names of `wasmrun:runtime/objects`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // They are said there.
pub enum FailureKind {
    Guest,
    Trap,
    Exit,
    Limit,
    Arguments,
    Cancelled,
    Dependency,
    ActorDied,
    System,
}

impl FailureKind {
    const ALL: [Self; 9] = [
        Self::Guest,
        Self::Trap,
        Self::Exit,
        Self::Limit,
        Self::Arguments,
        Self::Cancelled,
        Self::Dependency,
        Self::ActorDied,
        Self::System,
    ];

    fn of(error: &TaskError) -> Self {
        match error {
            TaskError::Trap { .. } => Self::Trap,
            TaskError::Guest { .. } => Self::Guest,
            TaskError::Exit { .. } => Self::Exit,
            TaskError::Limit { .. } => Self::Limit,
            TaskError::Cancelled => Self::Cancelled,
            TaskError::Arguments(_) => Self::Arguments,
            TaskError::Dependency { .. } => Self::Dependency,
            TaskError::ActorDied { .. } => Self::ActorDied,
            TaskError::Sandbox(_)
            | TaskError::Unschedulable(_)
            | TaskError::Lost(_)
            | TaskError::Gone { .. }
            | TaskError::Preempted { .. } => Self::System,
        }
    }

    /// Its name in WIT.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Trap => "trap",
            Self::Exit => "exit",
            Self::Limit => "limit",
            Self::Arguments => "arguments",
            Self::Cancelled => "cancelled",
            Self::Dependency => "dependency",
            Self::ActorDied => "actor-died",
            Self::System => "system",
        }
    }

    /// The kind with this name in WIT.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A frame of a guest's stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The function, demangled where its name is known, else its index in the module.
    pub function: String,
    /// `file:line`, where the module carries debug information.
    pub location: Option<String>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        match &self.location {
            Some(location) => write!(f, " at {location}"),
            None => Ok(()),
        }
    }
}

/// A limit on what a task may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LimitKind {
    /// All linear memories and tables of the instance together, in bytes.
    Memory,
    /// Time from the start of the attempt, in milliseconds.
    Time,
    /// The guest's call stack, in bytes.
    Stack,
    /// Standard output and standard error together, in bytes.
    Output,
    /// All arguments of a call together, in bytes.
    Arguments,
    /// The result of a call, in bytes.
    Result,
}

impl LimitKind {
    /// The limit's name, as in `memory limit`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Time => "time",
            Self::Stack => "stack",
            Self::Output => "output",
            Self::Arguments => "argument",
            Self::Result => "result",
        }
    }

    /// The flag of `wasmrun submit` that raises it.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Memory => "--memory",
            Self::Time => "--time-limit",
            Self::Stack => "--max-stack",
            Self::Output => "--max-output",
            Self::Arguments => "--max-arguments",
            Self::Result => "--max-result",
        }
    }

    /// Whether it bounds what is passed to a guest or comes from it, so that the guest itself came to
    /// its end.
    pub fn is_of_values(self) -> bool {
        matches!(self, Self::Arguments | Self::Result)
    }

    fn in_words(self, amount: u64) -> String {
        match self {
            Self::Time => milliseconds(amount),
            _ => bytes(amount),
        }
    }
}

/// A limit that a task reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct LimitHit {
    /// Which limit.
    pub kind: LimitKind,
    /// How much it allows: bytes, or milliseconds for [`LimitKind::Time`].
    pub limit: u64,
    /// How much would have been needed, in the same unit, where that is known.
    pub wanted: Option<u64>,
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            limit,
            wanted,
        } = self;
        let allowed = kind.in_words(*limit);
        let verb = match kind {
            LimitKind::Memory => "the guest asked for",
            LimitKind::Output => "the guest wrote",
            LimitKind::Arguments => "the arguments take",
            LimitKind::Result => "the result takes",
            LimitKind::Time | LimitKind::Stack => "",
        };
        write!(f, "{} limit of {allowed} reached", kind.name())?;
        match (kind, wanted) {
            (LimitKind::Stack, _) => f.write_str(": the guest's calls nest too deep")?,
            (LimitKind::Time, _) => f.write_str(": the task was stopped")?,
            (LimitKind::Output, _) => f.write_str(": the guest wrote more than that")?,
            (_, Some(wanted)) => write!(f, ": {verb} {}", kind.in_words(*wanted))?,
            (_, None) => write!(f, ": {verb} more than that")?,
        }
        let more = match kind {
            LimitKind::Time => milliseconds(limit.saturating_mul(2).max(1)),
            _ => {
                let least = wanted
                    .unwrap_or(*limit)
                    .max(limit.saturating_add(1))
                    .max(1024);
                bytes(least.checked_next_power_of_two().unwrap_or(u64::MAX))
            }
        };
        write!(
            f,
            "; to allow more, use {} {}",
            kind.flag(),
            more.replace(' ', "")
        )?;
        match kind {
            LimitKind::Memory | LimitKind::Time => f.write_str(" or the module's manifest"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_actor_that_may_be_starting_again_nobody_is_told_to_create_it() {
        let died = TaskError::ActorDied {
            actor: TaskId::from_bytes([1; 16]).actor(),
            cause: Some(Box::new(TaskError::Sandbox("s".into()))),
        };
        let said = died.to_string();
        assert!(
            said.ends_with("s; call it again if it has restarts left, else create it again, or give it restarts"),
            "{said}"
        );
    }

    #[test]
    fn a_limit_names_itself_its_value_and_its_flag() {
        let hit = LimitHit {
            kind: LimitKind::Memory,
            limit: 64 << 20,
            wanted: Some(65 << 20),
        };
        assert_eq!(
            hit.to_string(),
            "memory limit of 64 MiB reached: the guest asked for 65 MiB; \
             to allow more, use --memory 128MiB or the module's manifest"
        );
        let hit = LimitHit {
            kind: LimitKind::Time,
            limit: 200,
            wanted: None,
        };
        assert_eq!(
            hit.to_string(),
            "time limit of 200ms reached: the task was stopped; \
             to allow more, use --time-limit 400ms or the module's manifest"
        );
    }
}
