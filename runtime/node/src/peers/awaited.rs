//! Questions to other nodes whose answers come as messages of their own.
//!
//! Owns who waits for which answer, of whom. Must not: know what is asked. Nobody waits for longer than the node lives
//! that was asked, as far as is known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use wasmrun_model::id::NodeId;

/// Questions that wait for answers.
pub(super) struct Awaited<T>(Arc<Mutex<Table<T>>>);

struct Table<T> {
    next: u64,
    /// By their numbers, with whom they were put to.
    waiting: BTreeMap<u64, (NodeId, oneshot::Sender<T>)>,
}

/// A question, until nobody waits for its answer any more.
pub(super) struct Question<T> {
    table: Arc<Mutex<Table<T>>>,
    /// What its answer will say.
    pub(super) number: u64,
    answer: oneshot::Receiver<T>,
}

impl<T> Default for Awaited<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Table {
            next: 0,
            waiting: BTreeMap::new(),
        })))
    }
}

impl<T> Awaited<T> {
    /// A question to a node, which the caller sends.
    pub(super) fn ask(&self, of: NodeId) -> Question<T> {
        let (sender, answer) = oneshot::channel();
        let mut table = self.0.lock();
        let number = table.next;
        table.next += 1;
        table.waiting.insert(number, (of, sender));
        drop(table);
        Question {
            table: self.0.clone(),
            number,
            answer,
        }
    }

    /// An answer has come. What nobody waits for is dropped; so is what comes from somebody else.
    pub(super) fn answer(&self, from: NodeId, number: u64, answer: T) {
        let mut table = self.0.lock();
        let asked = match table.waiting.get(&number) {
            Some((of, _)) if *of == from => table.waiting.remove(&number),
            _ => None,
        };
        drop(table);
        if let Some((_, waiting)) = asked {
            let _ = waiting.send(answer);
        }
    }

    /// A node has left, and answers nothing any more.
    pub(super) fn remove_node(&self, node: NodeId) {
        let mut table = self.0.lock();
        let of_it: Vec<_> = table
            .waiting
            .extract_if(.., |_, (of, _)| *of == node)
            .collect();
        drop(table);
        drop(of_it);
    }
}

impl<T> Question<T> {
    /// What is answered. `None` if the node was lost before.
    pub(super) async fn answered(mut self) -> Option<T> {
        (&mut self.answer).await.ok()
    }
}

impl<T> Drop for Question<T> {
    fn drop(&mut self) {
        let waiting = self.table.lock().waiting.remove(&self.number);
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const ASKED: NodeId = NodeId::from_bytes([1; 16]);
    const OTHER: NodeId = NodeId::from_bytes([2; 16]);

    #[test]
    fn only_who_was_asked_can_answer_and_only_once() {
        let awaited = Awaited::default();
        let question = awaited.ask(ASKED);
        awaited.answer(OTHER, question.number, "wrong");
        awaited.answer(ASKED, question.number + 1, "wrong");
        awaited.answer(ASKED, question.number, "right");
        awaited.answer(ASKED, question.number, "late");
        assert_eq!(question.answered().now_or_never(), Some(Some("right")));
    }

    #[test]
    fn nobody_waits_for_a_node_that_has_left_and_nothing_stays_of_who_gave_up() {
        let awaited = Awaited::<()>::default();
        let (lost, other) = (awaited.ask(ASKED), awaited.ask(OTHER));
        awaited.remove_node(ASKED);
        assert_eq!(lost.answered().now_or_never(), Some(None));
        assert_eq!(other.answered().now_or_never(), None);
        assert!(awaited.0.lock().waiting.is_empty());
    }
}
