//! The ways by which tasks of other nodes write to where they came from, and how their ends come behind that.
//!
//! Owns one way for each attempt that somebody listens to. Must not: send anything.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use wasmrun_engine::{Listener, OutputChunk};
use wasmrun_model::id::{NodeId, TaskId};
use wasmrun_model::task::Attempt;

use crate::ledger::Outgoing;

/// How many chunks of a task's output may wait to be sent.
const CHUNKS: usize = 16;

/// An attempt of another node's task: whose, which task, which attempt.
pub(super) type Received = (NodeId, TaskId, Attempt);

/// See the [module](self).
#[derive(Default)]
pub(super) struct Ends(Mutex<HashMap<Received, mpsc::UnboundedSender<Box<Outgoing>>>>);

/// The other end of a way.
pub(super) struct Written {
    pub(super) chunks: mpsc::Receiver<OutputChunk>,
    pub(super) ends: mpsc::UnboundedReceiver<Box<Outgoing>>,
}

impl Ends {
    /// Where an attempt writes to, and the other end of that.
    pub(super) fn open(&self, attempt: Received) -> (Listener, Written) {
        let (chunks, written) = mpsc::channel(CHUNKS);
        let (ends, end) = mpsc::unbounded_channel();
        self.0.lock().insert(attempt, ends);
        let written = Written {
            chunks: written,
            ends: end,
        };
        (Listener::new(0, chunks), written)
    }

    /// Lets an end go behind what was written. Back if nothing was or will be.
    pub(super) fn end(&self, attempt: &Received, end: Box<Outgoing>) -> Result<(), Box<Outgoing>> {
        match self.0.lock().get(attempt) {
            Some(way) => way.send(end).map_err(|unsent| unsent.0),
            None => Err(end),
        }
    }

    /// Nobody can write any more. Passes on what ends are left, in order; further ones come back from
    /// [`Ends::end`].
    pub(super) fn close(
        &self,
        attempt: &Received,
        mut written: Written,
        mut pass_on: impl FnMut(Box<Outgoing>),
    ) {
        self.0.lock().remove(attempt);
        written.ends.close();
        while let Ok(end) = written.ends.try_recv() {
            pass_on(end);
        }
    }

    /// A node has left.
    pub(super) fn lost(&self, node: NodeId) {
        self.0.lock().retain(|(to, ..), _| *to != node);
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_engine::OutputSource;
    use wasmrun_model::scheduler::{Message, Outcome};

    use super::*;

    const ATTEMPT: Received = (
        NodeId::from_bytes([1; 16]),
        TaskId::from_bytes([2; 16]),
        Attempt::FIRST,
    );

    fn end() -> Box<Outgoing> {
        let (_, task, attempt) = ATTEMPT;
        let outcome = Outcome::Finished;
        let message = Message::Settled {
            task,
            attempt,
            outcome,
        };
        Box::new(Outgoing::Settled(message, None))
    }

    fn chunk() -> OutputChunk {
        OutputChunk {
            tag: 0,
            writer: 0,
            attempt: 1,
            source: OutputSource::Stdout,
            bytes: bytes::Bytes::from_static(b"hello"),
        }
    }

    #[test]
    fn an_end_goes_behind_what_was_written_and_not_when_all_is_written() {
        let ends = Ends::default();
        assert!(ends.end(&ATTEMPT, end()).is_err(), "nobody listens");
        let (listener, mut written) = ends.open(ATTEMPT);
        assert!(listener.chunks.try_send(chunk()).is_ok());
        assert!(ends.end(&ATTEMPT, end()).is_ok());
        assert!(written.chunks.try_recv().is_ok());
        drop(listener);
        let mut passed_on = 0;
        ends.close(&ATTEMPT, written, |_| passed_on += 1);
        assert_eq!(passed_on, 1);
        assert!(ends.end(&ATTEMPT, end()).is_err());
        let (_listener, _written) = ends.open(ATTEMPT);
        ends.lost(ATTEMPT.0);
        assert!(ends.end(&ATTEMPT, end()).is_err());
    }
}
