//! What comes back of tasks that other nodes run for this one: what they write, in order, and how they ended
//! behind that.
//!
//! Owns a pipe per task that writes ([`Outputs`]). Must not: know what a report means.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use wasmrun_engine::{OutputChunk, OutputSource};
use wasmrun_model::id::{NodeId, TaskId};
use wasmrun_model::scheduler::Message;

use super::Exchange;
use super::protocol::{Output, Settled};

/// What tasks of ours at other nodes write, in order, and their reports behind that.
#[derive(Default)]
pub(super) struct Outputs(Mutex<HashMap<TaskId, Pipe>>);

/// One task's.
struct Pipe {
    from: NodeId,
    /// Whether the report is on its way: what its children write later is not heard.
    is_ended: bool,
    /// Whether the node has left: its report is of a life that is over, as is all that it names.
    is_lost: Arc<AtomicBool>,
    to: mpsc::UnboundedSender<Piece>,
}

enum Piece {
    Chunk(OutputChunk),
    End(NodeId, Box<Settled>),
}

impl Outputs {
    /// Some output has come. What a task writes is limited, and so is what waits here.
    pub(super) fn wrote(&self, exchange: &Exchange, from: NodeId, output: Output) {
        let Some(shared) = exchange.shared.upgrade() else {
            return;
        };
        let Some(listener) = shared.ledger.lock().listener(&output.task) else {
            return;
        };
        let chunk = OutputChunk {
            tag: listener.tag,
            writer: output.writer,
            source: match output.is_stderr {
                true => OutputSource::Stderr,
                false => OutputSource::Stdout,
            },
            bytes: output.bytes.0.into(),
        };
        let mut pipes = self.0.lock();
        let pipe = pipes.entry(output.task).or_insert_with(|| {
            let (to, mut pieces) = mpsc::unbounded_channel();
            let this = exchange.this.clone();
            let task = output.task;
            let is_lost = Arc::<AtomicBool>::default();
            let was_lost = is_lost.clone();
            // It ends with the task, or when its node is lost.
            shared.control.spawn(async move {
                while let Some(piece) = pieces.recv().await {
                    match piece {
                        Piece::Chunk(chunk) => {
                            // Whoever listened may be gone.
                            let _ = listener.chunks.send(chunk).await;
                        }
                        Piece::End(from, settled) => {
                            drop(listener);
                            if was_lost.load(Ordering::Acquire) {
                                return;
                            }
                            if let Some(exchange) = this.upgrade() {
                                // Before it is heard: another attempt may begin at once, with a pipe of its own.
                                exchange.outputs.close(&task, &was_lost);
                                exchange.settled(from, *settled);
                            }
                            return;
                        }
                    }
                }
            });
            Pipe {
                from,
                is_ended: false,
                is_lost,
                to,
            }
        });
        if !pipe.is_ended {
            let _ = pipe.to.send(Piece::Chunk(chunk));
        }
    }

    /// An attempt is over: its report comes behind what it wrote.
    pub(super) fn settled(&self, exchange: &Exchange, from: NodeId, settled: Settled) {
        let Message::Settled { task, .. } = settled.message else {
            return exchange.settled(from, settled);
        };
        let mut pipes = self.0.lock();
        match pipes.get_mut(&task) {
            // Its report is on its way: nothing overtakes that.
            Some(pipe) if pipe.is_ended => {}
            // Said again, of an attempt before this one: it ends nothing here.
            Some(_) if settled.report.is_none() => {
                drop(pipes);
                exchange.settled(from, settled);
            }
            Some(pipe) => {
                pipe.is_ended = true;
                let _ = pipe.to.send(Piece::End(from, Box::new(settled)));
            }
            None => {
                drop(pipes);
                exchange.settled(from, settled);
            }
        }
    }

    /// A task's report has come out of its pipe, which is this one unless another was begun meanwhile.
    fn close(&self, task: &TaskId, pipe: &Arc<AtomicBool>) {
        let mut pipes = self.0.lock();
        let is_it = |it: &Pipe| Arc::ptr_eq(&it.is_lost, pipe);
        let closed = match pipes.get(task).is_some_and(is_it) {
            true => pipes.remove(task),
            false => None,
        };
        drop(pipes);
        drop(closed);
    }

    /// A node is gone. What its tasks wrote goes out, and no more comes.
    pub(super) fn lost(&self, node: NodeId) {
        let mut pipes = self.0.lock();
        for (_, pipe) in pipes.extract_if(|_, pipe| pipe.from == node) {
            pipe.is_lost.store(true, Ordering::Release);
        }
    }
}
