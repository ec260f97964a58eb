//! Following a task to its end.
//!
//! Owns the way of its output and report to the client that submitted it, and of its output to what the
//! server remembers. Must not: outlive its task by more than that takes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use wasmrun_engine::{OutputChunk, OutputSource};
use wasmrun_model::wire::{self, Bytes, Output, Response};

use super::Inner;
use super::out::Out;
use super::registry::Log;
use crate::task::{Report, TaskHandle};

/// Who sees a task to its end: passes its output and report on.
pub(super) struct Watcher {
    pub(super) inner: Arc<Inner>,
    pub(super) chunks: Option<mpsc::Receiver<OutputChunk>>,
    pub(super) log: Option<Arc<Log>>,
    pub(super) to: Option<(Out, u64)>,
}

impl Watcher {
    pub(super) async fn watch(mut self, mut handle: TaskHandle) {
        let _pending = Pending::new(&self);
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
        if let Some((out, id)) = &self.to {
            // A client that is gone does not want to know.
            let _ = out
                .send(*id, Response::Ended(Box::new(to_wire(&report))))
                .await;
        }
    }

    /// Takes what an actor writes, until it has ended.
    pub(super) async fn collect(log: Arc<Log>, mut chunks: mpsc::Receiver<OutputChunk>) {
        while let Some(chunk) = chunks.recv().await {
            log.add(chunk.writer, chunk.source, &chunk.bytes);
        }
    }

    async fn pass_on(&mut self, chunk: OutputChunk) {
        if let Some(log) = &self.log {
            log.add(chunk.writer, chunk.source, &chunk.bytes);
        }
        if let Some((out, id)) = &self.to {
            let part = output(chunk.writer, chunk.source, chunk.bytes.to_vec());
            if out.send(*id, Response::Output(part)).await.is_err() {
                self.to = None;
            }
        }
    }
}

/// Counts a report that a client waits for.
struct Pending(Option<Arc<Inner>>);

impl Pending {
    fn new(watcher: &Watcher) -> Self {
        let inner = watcher.to.is_some().then(|| watcher.inner.clone());
        if let Some(inner) = &inner {
            inner.pending.fetch_add(1, Ordering::AcqRel);
        }
        Self(inner)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(inner) = &self.0 {
            inner.pending.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn to_wire(report: &Report) -> wire::Report {
    let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let held = report.held.iter().map(|held| wire::Held {
        name: held.name.to_string(),
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
    }
}

/// A part of a task's output as it travels.
pub(super) fn output(writer: u64, source: OutputSource, bytes: Vec<u8>) -> Output {
    Output {
        is_stderr: source == OutputSource::Stderr,
        writer,
        bytes: Bytes(bytes),
    }
}
