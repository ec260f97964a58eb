//! How commands fail: a message in three parts and an exit code.

use std::fmt;

use wasmrun_model::failure::{LimitKind, TaskError};

/// Why a command did not do what it was asked to: shown as `error: …`, with the causes below it.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// `None` where everything has been said already.
    pub error: Option<anyhow::Error>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "{error:#}"),
            None => write!(f, "exit code {}", self.exit.code()),
        }
    }
}

/// Exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Wrong usage, argument or module.
    Usage,
    /// No node can ever serve the request.
    Unschedulable,
    /// The node cannot be reached.
    Unreachable,
    /// The task failed: trap, guest error, limit.
    TaskFailed,
    /// The time limit was reached.
    TimedOut,
    /// Somebody pressed Ctrl-C.
    Interrupted,
    /// Whoever read our output has left.
    BrokenPipe,
    /// The program's own code.
    Program(i32),
}

impl Exit {
    pub fn code(self) -> i32 {
        match self {
            Self::Usage => 2,
            Self::Unschedulable => 3,
            Self::Unreachable => 4,
            Self::TaskFailed => 5,
            Self::TimedOut => 6,
            Self::Interrupted => 130,
            Self::BrokenPipe => 141,
            // The system keeps the low eight bits: a failure must not look like success.
            Self::Program(code) if code & 0xff == 0 => 1,
            Self::Program(code) => code,
        }
    }
}

impl Failure {
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit,
            error: Some(error.into()),
        }
    }

    /// An exit code without a word.
    pub fn silent(exit: Exit) -> Self {
        Self { exit, error: None }
    }

    /// The same, with what was being done.
    pub fn context(self, what: impl fmt::Display + Send + Sync + 'static) -> Self {
        Self {
            error: self.error.map(|error| error.context(what)),
            ..self
        }
    }

    /// Wrong usage.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, anyhow::anyhow!("{message}"))
    }
}

/// Errors without a code of their own are of the usage kind: a file that is not there, a disk
/// that is full, a module that does not load.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(Exit::Usage, error)
    }
}

pub type CommandResult = Result<(), Failure>;

/// The exit code that a task's end calls for; `None` if it did what it should.
pub fn exit_of(error: &TaskError) -> Exit {
    match error {
        TaskError::Exit { code, .. } => Exit::Program(*code),
        TaskError::Limit { hit, .. } if hit.kind == LimitKind::Time => Exit::TimedOut,
        TaskError::Cancelled => Exit::Interrupted,
        TaskError::Arguments(_) => Exit::Usage,
        _ => Exit::TaskFailed,
    }
}

/// How many frames of a guest's stack are shown.
const SHOWN_FRAMES: usize = 16;

/// What is said of an error, and below it where the guest was.
pub fn with_frames(mut text: String, error: &TaskError) -> String {
    let frames = error.frames();
    for frame in frames.iter().take(SHOWN_FRAMES) {
        text.push_str(&format!("\n    at {frame}"));
    }
    if let Some(more @ 1..) = frames.len().checked_sub(SHOWN_FRAMES) {
        text.push_str(&format!("\n    and {more} more frames"));
    }
    text
}
