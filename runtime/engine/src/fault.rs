//! What an error of wasmtime means for a task: whose fault it is, and where the guest was.
//!
//! Owns the one place where such errors are sorted, and the one where frames are made. While a guest runs, whatever
//! goes wrong is its own doing, in its code or in what it asks of the host: a pointer outside its memory, a number that
//! is no clock, a handle that it has dropped. What fails of the host itself must come as a [`HostFault`].

use wasmrun_model::failure::{Frame, LimitHit, LimitKind, TaskError};
use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::run::{MOST_WASI_HANDLES, Sandbox};

/// Something of the host failed in a call of the guest's, which did nothing wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HostFault(pub(crate) String);

/// What wasmtime says when a guest has too many handles. The error has no type that could be asked for.
const OUT_OF_HANDLES: &str = "store handle limit exceeded";
/// The same of the table of WASI's.
const OUT_OF_WASI_HANDLES: &str = "resource table has no free keys";
/// What it says when more is to be copied out of a guest than the store allows.
const OUT_OF_FUEL: &str = "fuel allocated for hostcalls has been exhausted";

impl Sandbox {
    /// What an error of a guest that ran means for the task.
    pub(crate) fn failure(&self, error: wasmtime::Error) -> TaskError {
        self.sorted(error, true)
    }

    /// The same of an instance that did not come to be: without a frame of the guest's, it has not run.
    pub(crate) fn unborn(&self, error: wasmtime::Error) -> TaskError {
        let backtrace = error.downcast_ref::<WasmBacktrace>();
        let has_run = backtrace.is_some_and(|backtrace| !backtrace.frames().is_empty());
        self.sorted(error, has_run)
    }

    fn sorted(&self, error: wasmtime::Error, has_run: bool) -> TaskError {
        if let Some(I32Exit(code)) = error.downcast_ref() {
            return self.exit(*code);
        }
        if let Some(HostFault(why)) = error.downcast_ref() {
            return TaskError::Sandbox(why.clone());
        }
        let backtrace = error.downcast_ref::<WasmBacktrace>();
        let frames = backtrace.map(frames).unwrap_or_default();
        let text = text(&error, backtrace);
        let trap = error.downcast_ref::<Trap>();
        if let Some(hit) = self.limit_of(&error, trap, &text, frames.is_empty()) {
            return TaskError::Limit { hit, frames };
        }
        let message = match trap {
            Some(trap) => trap.to_string(),
            None if text.contains(OUT_OF_HANDLES) => too_many_handles(self.module.most_handles()),
            None if text.contains(OUT_OF_WASI_HANDLES) => too_many_handles(MOST_WASI_HANDLES),
            None if text.contains(OUT_OF_FUEL) => format!(
                "it passed more than {} bytes to the host in one call; pass less at a time",
                self.fuel
            ),
            None if has_run => text,
            None => return TaskError::Sandbox(text),
        };
        TaskError::Trap { message, frames }
    }

    /// The limit that is behind an error.
    fn limit_of(
        &self,
        error: &wasmtime::Error,
        trap: Option<&Trap>,
        text: &str,
        is_outside: bool,
    ) -> Option<LimitHit> {
        if let Some(hit) = error.downcast_ref::<LimitHit>() {
            return Some(hit.clone());
        }
        let hit = |kind, limit| LimitHit {
            kind,
            limit,
            wanted: None,
        };
        if trap == Some(&Trap::StackOverflow) {
            return Some(hit(LimitKind::Stack, self.stack_bytes as u64));
        }
        // The guest has come to its end, and its result is what there is too much of.
        if trap.is_none() && is_outside && text.contains(OUT_OF_FUEL) {
            return Some(hit(LimitKind::Result, self.result_bytes));
        }
        // A guest that was refused memory usually gives up with `unreachable`, or goes on with a
        // null pointer; an instance that was refused it does not come to be.
        let gives_up = matches!(
            trap,
            None | Some(Trap::UnreachableCodeReached | Trap::MemoryOutOfBounds)
        );
        self.store.data().hit().filter(|_| gives_up)
    }

    /// Fails if the guest went on after it had written more than it may: some of that is lost.
    pub(crate) fn check_output(&self) -> Result<(), TaskError> {
        let hit = self.store.data().output_hit();
        let frames = Vec::new();
        hit.map_or(Ok(()), |hit| Err(TaskError::Limit { hit, frames }))
    }

    pub(crate) fn exit(&self, code: i32) -> TaskError {
        TaskError::Exit {
            code,
            limit: self.store.data().hit(),
        }
    }
}

/// What an error and its causes say, in one line and without the frames, which stand apart.
fn text(error: &wasmtime::Error, backtrace: Option<&WasmBacktrace>) -> String {
    let frames = backtrace.map(ToString::to_string);
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // Some say their cause themselves.
        let is_new = !said.last().is_some_and(|before| before.ends_with(&cause));
        if frames.as_ref() != Some(&cause) && is_new {
            said.push(cause);
        }
    }
    let said = said.join(": ");
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

fn too_many_handles(most: usize) -> String {
    format!("it has {most} handles, as many as a sandbox may; drop those that are not needed")
}

/// How deep a backtrace is kept: the innermost frames tell what happened.
const MAX_FRAMES: usize = 64;

fn frames(backtrace: &WasmBacktrace) -> Vec<Frame> {
    let frames: Vec<Frame> = backtrace
        .frames()
        .iter()
        .map(|frame| Frame {
            function: match frame.func_name() {
                // The short form, without hashes.
                Some(name) => format!("{:#}", rustc_demangle::demangle(name)),
                None => format!("function {}", frame.func_index()),
            },
            location: frame.symbols().last().and_then(|symbol| {
                let (file, line) = (symbol.file()?, symbol.line()?);
                Some(format!("{file}:{line}"))
            }),
        })
        .collect();
    // What Rust does to panic is the same each time: begin with who panicked.
    let is_panic = |frame: &Frame| {
        frame.function.contains("rust_begin_unwind") || frame.function.contains("core::panicking::")
    };
    let start = frames.iter().rposition(is_panic).map_or(0, |last| last + 1);
    frames.into_iter().skip(start).take(MAX_FRAMES).collect()
}
