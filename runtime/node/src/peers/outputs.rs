//! What comes back of tasks that other nodes run for this one: what they write, in order, and how they ended
//! behind that.
//!
//! Owns a pipe for each node at which an attempt of a task writes ([`Outputs`]). Must not: know what a report means.
//!
//! Invariant: the report of a superseded attempt, which may come late and from another node, neither closes the pipe of the
//! current attempt nor replaces its report.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use wasmrun_engine::{OutputChunk, OutputSource};
use wasmrun_model::id::{NodeId, TaskId};
use wasmrun_model::scheduler::{Message, Outcome};

use super::Exchange;
use super::protocol::{Output, Settled};

/// What tasks of ours at other nodes write, in order, and their reports behind that.
#[derive(Default)]
pub(super) struct Outputs(Mutex<HashMap<(TaskId, NodeId), Pipe>>);

/// One task's at one node.
struct Pipe {
    /// Whether the report is on its way: what its children write later is not heard.
    is_ended: bool,
    /// Whether the node has left: its report is of an incarnation that is over, as is all that it names.
    is_lost: Arc<AtomicBool>,
    to: mpsc::UnboundedSender<Piece>,
}

enum Piece {
    Chunk(OutputChunk),
    End(Box<Settled>),
}

impl Outputs {
    /// Some output has come. What a task writes is limited, and so is what waits here.
    pub(super) fn wrote(&self, exchange: &Exchange, from: NodeId, output: Output) {
        let Some(shared) = exchange.shared.upgrade() else {
            return;
        };
        let listener = shared.ask(|ledger| {
            // Children of a superseded attempt may still write at another node: that is discarded.
            let is_there = ledger.peer(&output.task) == Some(from);
            ledger.listener(&output.task).filter(|_| is_there)
        });
        let Some(listener) = listener else {
            return;
        };
        let chunk = OutputChunk {
            tag: listener.tag,
            writer: output.writer,
            attempt: output.attempt,
            source: match output.is_stderr {
                true => OutputSource::Stderr,
                false => OutputSource::Stdout,
            },
            bytes: output.bytes.0.into(),
        };
        let mut pipes = self.0.lock();
        let key = (output.task, from);
        let pipe = pipes.entry(key).or_insert_with(|| {
            let (to, mut pieces) = mpsc::unbounded_channel();
            let this = exchange.this.clone();
            let is_lost = Arc::<AtomicBool>::default();
            let was_lost = is_lost.clone();
            // It ends with the task, or when its node is lost.
            shared.control.spawn(async move {
                while let Some(piece) = pieces.recv().await {
                    match piece {
                        Piece::Chunk(chunk) => {
                            listener.send(chunk).await;
                        }
                        Piece::End(settled) => {
                            drop(listener);
                            if was_lost.load(Ordering::Acquire) {
                                return;
                            }
                            if let Some(exchange) = this.upgrade() {
                                // Before it is heard: another attempt may begin at once, with a pipe of its own.
                                exchange.outputs.close(&key, &was_lost);
                                exchange.settled(from, *settled);
                            }
                            return;
                        }
                    }
                }
            });
            Pipe {
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
        let Message::Settled {
            task,
            attempt,
            outcome,
        } = settled.message
        else {
            return exchange.settled(from, settled);
        };
        let is_back = matches!(outcome, Outcome::HandedBack);
        let key = (task, from);
        let mut pipes = self.0.lock();
        let (Some(pipe), Some(shared)) = (pipes.get_mut(&key), exchange.shared.upgrade()) else {
            drop(pipes);
            return exchange.settled(from, settled);
        };
        let (is_current, placed_at) =
            shared.ask(|ledger| (ledger.is_at(&task, attempt, from), ledger.peer(&task)));
        if is_current && settled.report.is_some() {
            pipe.is_ended = true;
            let _ = pipe.to.send(Piece::End(Box::new(settled)));
            return;
        }
        let mut over = None;
        if placed_at != Some(from) || is_back {
            // No attempt runs there.
            over = pipes.remove(&key);
        }
        drop(pipes);
        drop(over);
        exchange.settled(from, settled);
    }

    /// A task's report has come out of its pipe, which is this one unless another was begun meanwhile.
    fn close(&self, key: &(TaskId, NodeId), pipe: &Arc<AtomicBool>) {
        let mut pipes = self.0.lock();
        let is_it = |it: &Pipe| Arc::ptr_eq(&it.is_lost, pipe);
        let closed = match pipes.get(key).is_some_and(is_it) {
            true => pipes.remove(key),
            false => None,
        };
        drop(pipes);
        drop(closed);
    }

    /// A node is gone. What its tasks wrote goes out, and no more comes.
    pub(super) fn lost(&self, node: NodeId) {
        let mut pipes = self.0.lock();
        for (_, pipe) in pipes.extract_if(|(_, from), _| *from == node) {
            pipe.is_lost.store(true, Ordering::Release);
        }
    }
}
