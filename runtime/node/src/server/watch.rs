//! Following a task to its end.
//!
//! Owns the way of its output and report to the client that submitted it, and of its output to what the
//! server remembers. Must not: outlive its task by more than that takes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use wasmrun_engine::{OutputChunk, OutputLog, OutputSource};
use wasmrun_model::units::us;
use wasmrun_model::wire::{self, Bytes, Output, Response};

use super::Inner;
use super::out::{ConnectionClosed, Out, Pending};
use super::requests::outputs;
use super::stored::Keeping;
use crate::client::Client;
use crate::records::log::Log;
use crate::records::object::{Object, Reference};
use crate::records::task::{Report, TaskHandle};

/// How often is looked whether all is there that a task wrote which has ended, and how long at most.
const LOOK: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(1);

/// Who sees a task to its end: passes its output and report on.
pub(super) struct Watcher {
    pub(super) inner: Arc<Inner>,
    pub(super) chunks: Option<mpsc::Receiver<OutputChunk>>,
    pub(super) log: Option<Arc<Log>>,
    pub(super) to: Option<(Out, u64)>,
    /// Its record in the control store.
    pub(super) keeping: Option<Keeping>,
}

impl Watcher {
    pub(super) async fn watch(mut self, mut handle: TaskHandle) {
        let is_pending = self.to.is_some() || self.keeping.is_some();
        let _pending = is_pending.then(|| Pending::new(&self.inner.pending));
        let report = loop {
            let Some(chunks) = &mut self.chunks else {
                break handle.await;
            };
            tokio::select! {
                biased;
                chunk = chunks.recv() => match chunk {
                    Some(chunk) => self.pass_on(chunk).await,
                    None => self.chunks = None,
                },
                report = &mut handle => break report,
            }
        };
        // What it wrote is in the channel by now; what others write who have its listener may not be.
        while let Some(chunk) = self
            .chunks
            .as_mut()
            .and_then(|chunks| chunks.try_recv().ok())
        {
            self.pass_on(chunk).await;
        }
        if let Some(log) = &self.log {
            log.close();
        }
        if let (Some(keeping), Some(log)) = (self.keeping.take(), &self.log) {
            keeping.ended(&self.inner, &report, log);
        }
        if let Some((out, id)) = &self.to {
            // A client that is gone does not want to know.
            let _ = out
                .send(*id, Response::Ended(Box::new(to_wire(&report))))
                .await;
        }
    }

    async fn pass_on(&mut self, chunk: OutputChunk) {
        if let Some(log) = &self.log {
            log.keep(&chunk);
        }
        if let Some((out, id)) = &self.to {
            let by = (chunk.writer, chunk.attempt);
            let part = output(by, chunk.source, chunk.bytes.to_vec());
            if out.send(*id, Response::Output(part)).await.is_err() {
                self.to = None;
            }
        }
    }
}

/// A task that somebody else sees to its end, and that one more client wants to hear of.
pub(super) struct Follower {
    pub(super) inner: Arc<Inner>,
    pub(super) client: Client,
    /// What it makes.
    pub(super) object: Object,
    /// What it writes, if that is kept here.
    pub(super) log: Option<Arc<Log>>,
    pub(super) to: (Out, u64),
}

impl Follower {
    /// Tells the client of the task's end, after what it wrote.
    pub(super) async fn follow(self) {
        let _pending = Pending::new(&self.inner.pending);
        let Reference::Task(cell) = &self.object.0 else {
            return;
        };
        let objects = std::slice::from_ref(&self.object);
        self.client.wait(objects, 1, None).await;
        let report = cell.report().expect("it has ended, and is shared");
        // A client that is gone does not want to know.
        let _ = self.tell(&report).await;
    }

    async fn tell(&self, report: &Report) -> Result<(), ConnectionClosed> {
        let (out, id) = &self.to;
        if let Some(log) = &self.log {
            let complete = async {
                while !log.is_over() {
                    tokio::time::sleep(LOOK).await;
                }
            };
            let _ = tokio::time::timeout(PATIENCE, complete).await;
            for part in outputs(log) {
                out.send(*id, Response::Output(part)).await?;
            }
        }
        let ended = Response::Ended(Box::new(to_wire(report)));
        out.send(*id, ended).await
    }
}

fn to_wire(report: &Report) -> wire::Report {
    let held = report.held.iter().map(|held| wire::HeldResource {
        name: held.name.clone(),
        steps: held.amount,
        units: held.units.clone(),
    });
    wire::Report {
        task: report.id,
        result: match &report.result {
            Ok(value) => Ok(value.is_some()),
            Err(error) => Err(error.into()),
        },
        waited_us: us(report.waited),
        ran_us: us(report.ran),
        held: held.collect(),
        memory_peak_bytes: report.memory_peak,
        stderr_tail: report.stderr_tail.clone(),
        attempt: report.attempt,
    }
}

/// A part of a task's output as it travels, of this writer and this attempt of it.
pub(super) fn output(
    (writer, attempt): (u64, u32),
    source: OutputSource,
    bytes: Vec<u8>,
) -> Output {
    Output {
        is_stderr: source == OutputSource::Stderr,
        writer,
        attempt,
        bytes: Bytes(bytes),
    }
}
