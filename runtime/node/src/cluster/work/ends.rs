//! The ways by which tasks of other nodes write to where they came from, and how their ends come behind that.
//!
//! Owns one way for each attempt that somebody listens to. A message that begins an attempt may come more than
//! once: all of them share that way, so that what comes twice takes nothing from what runs. Must not: send anything.

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
pub(super) struct Ends(Mutex<HashMap<Received, Way>>);

struct Way {
    ends: mpsc::UnboundedSender<Box<Outgoing>>,
    /// Gone when nobody can write any more.
    chunks: mpsc::WeakSender<OutputChunk>,
}

/// The other end of a way.
pub(super) struct Written {
    pub(super) chunks: mpsc::Receiver<OutputChunk>,
    pub(super) ends: mpsc::UnboundedReceiver<Box<Outgoing>>,
}

impl Ends {
    /// Where an attempt writes to. Its other end, if this is the first who asks.
    pub(super) fn open(&self, attempt: Received) -> (Listener, Option<Written>) {
        let mut ways = self.0.lock();
        let known = ways.get(&attempt).and_then(|way| way.chunks.upgrade());
        if let Some(chunks) = known {
            return (Listener { tag: 0, chunks }, None);
        }
        let (chunks, written) = mpsc::channel(CHUNKS);
        let (ends, end) = mpsc::unbounded_channel();
        let way = Way {
            ends,
            chunks: chunks.downgrade(),
        };
        ways.insert(attempt, way);
        let written = Written {
            chunks: written,
            ends: end,
        };
        (Listener { tag: 0, chunks }, Some(written))
    }

    /// Lets an end go behind what was written. Back if nothing was or will be.
    pub(super) fn end(&self, attempt: &Received, end: Box<Outgoing>) -> Result<(), Box<Outgoing>> {
        match self.0.lock().get(attempt) {
            Some(way) => way.ends.send(end).map_err(|unsent| unsent.0),
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
        let mut ways = self.0.lock();
        // There may be a later way, if the attempt came once more just now.
        if ways
            .get(attempt)
            .is_some_and(|way| way.chunks.strong_count() == 0)
        {
            ways.remove(attempt);
        }
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
            source: OutputSource::Stdout,
            bytes: bytes::Bytes::from_static(b"hello"),
        }
    }

    #[test]
    fn an_attempt_that_comes_twice_has_one_way() {
        let ends = Ends::default();
        let (first, written) = ends.open(ATTEMPT);
        let mut written = written.expect("it is the first");
        let (again, none) = ends.open(ATTEMPT);
        assert!(none.is_none());
        // What came twice is not needed, and takes nothing with it.
        drop(again);
        assert!(first.chunks.try_send(chunk()).is_ok());
        assert!(written.chunks.try_recv().is_ok());
        assert!(ends.end(&ATTEMPT, end()).is_ok());
        drop(first);
        let mut passed_on = 0;
        ends.close(&ATTEMPT, written, |_| passed_on += 1);
        assert_eq!(passed_on, 1);
        assert!(
            ends.end(&ATTEMPT, end()).is_err(),
            "nothing is there to wait for"
        );
        // Another attempt, and the same after its end, have ways of their own.
        let (_third, written) = ends.open(ATTEMPT);
        assert!(written.is_some());
        ends.lost(ATTEMPT.0);
        assert!(ends.end(&ATTEMPT, end()).is_err());
    }
}
