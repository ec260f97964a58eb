//! Turns of tenants on the way from one node to another.
//!
//! Owns who sends to a node next, and who asks one for bytes next ([`Gate`]), by the order of [`Turns`]. Must not: know bytes.
//!
//! Invariants: no more is under way than there are places, but for one tenant alone where that may; what is dropped while it waits
//! takes no place; of a node with which nothing is under way nothing is kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use wasmrun_model::fairness::{Parts, TenantName, Turns, Weight};
use wasmrun_model::id::NodeId;

/// What goes to other nodes, or comes from them.
#[derive(Debug, Clone)]
pub(super) struct Gate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// How many places there are with each node.
    places: usize,
    /// Whether a tenant that is alone with a node waits for places.
    counts_alone: bool,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    parts: Parts,
    of: HashMap<NodeId, Line>,
}

/// What goes on with one node.
#[derive(Debug, Default)]
struct Line {
    /// Who takes turns, and how many of each.
    takers: BTreeMap<TenantName, usize>,
    /// How many places are taken.
    taken: usize,
    waiting: Turns<(usize, oneshot::Sender<Turn>)>,
}

/// Somebody who takes turns with a node.
#[derive(Debug)]
pub(super) struct Taker {
    gate: Gate,
    node: NodeId,
    tenant: TenantName,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    gate: Gate,
    node: NodeId,
    places: usize,
}

impl Gate {
    /// With so many places for each node.
    pub(super) fn new(places: usize, counts_alone: bool) -> Self {
        Self(Arc::new(Shared {
            places,
            counts_alone,
            lines: Mutex::default(),
        }))
    }

    pub(super) fn set_weight(&self, tenant: &TenantName, weight: Weight) {
        self.0.lines.lock().parts.set_weight(tenant, weight);
    }

    /// A tenant takes turns with a node from now on.
    pub(super) fn enter(&self, node: NodeId, tenant: &TenantName) -> Taker {
        let mut lines = self.0.lines.lock();
        let line = lines.of.entry(node).or_default();
        *line.takers.entry(tenant.clone()).or_default() += 1;
        Taker {
            gate: self.clone(),
            node,
            tenant: tenant.clone(),
        }
    }

    /// Gives turns to those who are next, as far as there are places.
    fn give(&self, node: NodeId) {
        loop {
            let mut lines = self.0.lines.lock();
            let Lines { parts, of } = &mut *lines;
            let Some(line) = of.get_mut(&node) else {
                return;
            };
            if !self.has_place(line) {
                return;
            }
            let waits_no_longer = |(_, next): &(usize, oneshot::Sender<Turn>)| next.is_closed();
            let Some((places, next)) = line.waiting.pop(parts, waits_no_longer) else {
                if line.taken == 0 {
                    line.waiting.clear();
                    if line.takers.is_empty() {
                        of.remove(&node);
                    }
                }
                return;
            };
            line.taken += places;
            drop(lines);
            // Who has left just now gives it back at once.
            let _ = next.send(self.turn(node, places));
        }
    }

    fn has_place(&self, line: &Line) -> bool {
        let is_alone = !self.0.counts_alone && line.takers.len() <= 1;
        is_alone || line.taken < self.0.places
    }

    fn turn(&self, node: NodeId, places: usize) -> Turn {
        Turn {
            gate: self.clone(),
            node,
            places,
        }
    }
}

impl Taker {
    /// Waits until so many bytes may go, which take so many places.
    pub(super) async fn turn(&self, bytes: u64, places: usize) -> Option<Turn> {
        let waiting = {
            let mut lines = self.gate.0.lines.lock();
            let line = lines.of.get_mut(&self.node)?;
            match line.waiting.is_empty() && self.gate.has_place(line) {
                true => {
                    line.taken += places;
                    None
                }
                false => {
                    let (sender, receiver) = oneshot::channel();
                    line.waiting.push(&self.tenant, bytes, (places, sender));
                    Some(receiver)
                }
            }
        };
        match waiting {
            None => Some(self.gate.turn(self.node, places)),
            Some(turn) => turn.await.ok(),
        }
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        if let Some(line) = self.gate.0.lines.lock().of.get_mut(&self.node)
            && let Some(count) = line.takers.get_mut(&self.tenant)
        {
            *count -= 1;
            if *count == 0 {
                line.takers.remove(&self.tenant);
            }
        }
        self.gate.give(self.node);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(line) = self.gate.0.lines.lock().of.get_mut(&self.node) {
            line.taken -= self.places;
        }
        self.gate.give(self.node);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    const NODE: NodeId = NodeId::from_bytes([1; 16]);

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
        poll(future).is_pending()
    }

    #[test]
    fn beside_another_each_gets_its_turn() {
        let gate = Gate::new(1, false);
        let [a, b] = ["a", "b"].map(|it| gate.enter(NODE, &it.parse().unwrap()));
        let other = gate.enter(NodeId::from_bytes([2; 16]), &"a".parse().unwrap());
        let mut first = pin!(a.turn(10, 1));
        let Poll::Ready(first) = poll(first.as_mut()) else {
            panic!("there is a place")
        };
        let mut more = pin!(a.turn(10, 1));
        let mut last = pin!(a.turn(10, 1));
        assert!(is_pending(more.as_mut()) && is_pending(last.as_mut()));
        let mut of_b = pin!(b.turn(10, 1));
        assert!(is_pending(of_b.as_mut()));
        let mut elsewhere = pin!(other.turn(10, 1));
        assert!(!is_pending(elsewhere.as_mut()), "nodes are apart");
        drop(first);
        let Poll::Ready(turn) = poll(more.as_mut()) else {
            panic!("it was the first to wait")
        };
        drop(turn);
        assert!(is_pending(last.as_mut()));
        assert!(
            !is_pending(of_b.as_mut()),
            "it goes before a second one of a"
        );
        assert!(!is_pending(last.as_mut()));
    }

    #[test]
    fn alone_nobody_waits() {
        let gate = Gate::new(1, false);
        let a = gate.enter(NODE, &"a".parse().unwrap());
        let b = gate.enter(NODE, &"b".parse().unwrap());
        let mut first = Box::pin(a.turn(10, 1));
        let turn = poll(first.as_mut());
        assert!(turn.is_ready());
        let mut next = Box::pin(a.turn(10, 1));
        assert!(is_pending(next.as_mut()));
        drop(b);
        assert!(!is_pending(next.as_mut()));
        assert!(!is_pending(pin!(a.turn(10, 1))));
    }

    #[test]
    fn many_who_left_take_no_places_one_after_the_other() {
        let gate = Gate::new(1, true);
        let [a, b] = ["a", "b"].map(|it| gate.enter(NODE, &it.parse().unwrap()));
        let mut first = Box::pin(a.turn(10, 1));
        let Poll::Ready(turn) = poll(first.as_mut()) else {
            panic!("there is a place")
        };
        let mut gone: Vec<_> = (0..50_000).map(|_| Box::pin(a.turn(10, 1))).collect();
        assert!(gone.iter_mut().all(|it| is_pending(it.as_mut())));
        let mut of_b = Box::pin(b.turn(1_000, 1));
        let mut of_a = Box::pin(a.turn(10, 1));
        assert!(is_pending(of_b.as_mut()) && is_pending(of_a.as_mut()));
        drop(gone);
        drop(turn);
        assert!(!is_pending(of_a.as_mut()), "what had gone was not sent");
        drop(of_a);
        assert!(!is_pending(of_b.as_mut()));
    }

    #[test]
    fn who_waits_no_longer_takes_no_place_and_nothing_is_kept() {
        let gate = Gate::new(1, true);
        let taker = gate.enter(NODE, &TenantName::default());
        let mut first = Box::pin(taker.turn(10, 1));
        let Poll::Ready(turn) = poll(first.as_mut()) else {
            panic!("there is a place")
        };
        let mut gone = Box::pin(taker.turn(10, 1));
        let mut next = Box::pin(taker.turn(10, 1));
        assert!(is_pending(gone.as_mut()) && is_pending(next.as_mut()));
        drop(gone);
        drop(turn);
        assert!(!is_pending(next.as_mut()));
        drop((first, next));
        drop(taker);
        assert!(gate.0.lines.lock().of.is_empty());
    }
}
