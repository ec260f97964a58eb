//! One call as a task: submitted, watched, and cancelled with its request.
//!
//! Owns what is kept of what a guest prints, and how failures read.

use std::fmt::Write;

use rmcp::model::{CallToolResult, ContentBlock};
use tokio_util::sync::CancellationToken;
use wasmrun_client::wire::{Output, Report};
use wasmrun_client::{Client, Error, GetError, Submit};
use wasmrun_model::failure::TaskError;
use wasmrun_model::units;
use wasmrun_model::value::codec::decode;
use wasmrun_model::value::{DecodeLimits, Value, ValueType};

/// How much of each of standard output and standard error is passed on, in bytes: models read it.
pub(crate) const MAX_PRINTED_BYTES: usize = 64 << 10;
/// How many frames of a guest's stack are told.
const MAX_FRAMES: usize = 16;

/// What came of a task.
pub(crate) struct Ended {
    pub(crate) result: Result<Option<wasmrun_client::Value>, TaskError>,
    pub(crate) stdout: Printed,
    pub(crate) stderr: Printed,
}

/// Why there is no such thing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the call was cancelled")]
    Cancelled,
    #[error(transparent)]
    Client(#[from] Error),
}

/// Runs a task to its end. It ends earlier when `cancelled` says so.
pub(crate) async fn run(
    client: &Client,
    submit: Submit,
    cancelled: &CancellationToken,
) -> Result<Ended, CallError> {
    let mut task = client.submit(submit.watched()).await?;
    let future = task.future();
    let ending = async {
        let (mut stdout, mut stderr) = (Printed::default(), Printed::default());
        while let Some(output) = task.output().await? {
            let Output { bytes, .. } = &output;
            match output.is_stderr {
                true => stderr.add(&bytes.0),
                false => stdout.add(&bytes.0),
            }
        }
        let Report { result, .. } = task.report().await?;
        let result = match result {
            Err(error) => Err(TaskError::from(error)),
            Ok(false) => Ok(None),
            Ok(true) => match future.get(None).await {
                Ok(value) => Ok(Some(value)),
                Err(GetError::Failed { error, .. }) => Err(error),
                Err(GetError::Request(error)) => return Err(error),
                Err(error @ GetError::TimedOut) => Err(TaskError::Sandbox(error.to_string())),
            },
        };
        Ok::<_, Error>(Ended {
            result,
            stdout,
            stderr,
        })
    };
    tokio::select! {
        ended = ending => Ok(ended?),
        () = cancelled.cancelled() => {
            // If the node is gone, so is the task.
            let _ = future.cancel().await;
            Err(CallError::Cancelled)
        }
    }
}

/// A value by its type. The engine has encoded it, and it may be larger than we can decode.
pub(crate) fn value(ty: &ValueType, value: &wasmrun_client::Value) -> Result<Value, TaskError> {
    let decoded = decode(ty, value, DecodeLimits::default());
    decoded.map_err(|error| TaskError::Sandbox(format!("the result cannot be read: {error}")))
}

/// What a guest has printed, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Printed {
    kept: Vec<u8>,
    left_out: u64,
}

impl Printed {
    pub(crate) fn of(text: &str) -> Self {
        let mut printed = Self::default();
        printed.add(text.as_bytes());
        printed
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = MAX_PRINTED_BYTES - self.kept.len();
        let (kept, rest) = bytes.split_at(room.min(bytes.len()));
        self.kept.extend_from_slice(kept);
        self.left_out += rest.len() as u64;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// As text, which says if it is not all.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.kept).into_owned();
        if self.left_out > 0 {
            let _ = write!(
                text,
                "\n[{} more were printed]",
                units::bytes(self.left_out)
            );
        }
        text
    }
}

/// An error of the tool: what it says, and what was printed before.
pub(crate) fn failed(
    text: impl Into<String>,
    stdout: &Printed,
    stderr: &Printed,
) -> CallToolResult {
    let mut blocks = vec![ContentBlock::text(text)];
    blocks.extend(printed(stdout, stderr));
    CallToolResult::error(blocks)
}

/// What was printed, as texts beside an answer.
pub(crate) fn printed(stdout: &Printed, stderr: &Printed) -> Vec<ContentBlock> {
    [("standard output", stdout), ("standard error", stderr)]
        .into_iter()
        .filter(|(_, printed)| !printed.is_empty())
        .map(|(to, printed)| ContentBlock::text(format!("Printed to {to}:\n{}", printed.text())))
        .collect()
}

/// What is said of a task that has failed, with where the guest was.
pub(crate) fn with_frames(error: &TaskError) -> String {
    let mut text = error.to_string();
    let frames = error.frames();
    for frame in frames.iter().take(MAX_FRAMES) {
        let _ = write!(text, "\n    at {frame}");
    }
    if let Some(more @ 1..) = frames.len().checked_sub(MAX_FRAMES) {
        let _ = write!(text, "\n    and {more} more frames");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_kept_up_to_a_limit() {
        let mut printed = Printed::of("begin");
        printed.add(&[b'x'; MAX_PRINTED_BYTES]);
        printed.add(b"more");
        let text = printed.text();
        assert!(text.starts_with("beginxxx"), "{text}");
        assert!(
            text.ends_with("x\n[9 bytes more were printed]"),
            "{}",
            &text[text.len() - 60..]
        );
    }
}
