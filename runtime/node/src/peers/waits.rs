//! Circles of waits through several nodes, and waits for what those hold who wait.
//!
//! Who has waited for long asks the nodes on which that depends for whom their tasks wait, and goes on from there, until
//! nothing new comes (edges are chased from node to node, as by Chandy, Misra and Haas, 1983, but by the one who asks). It
//! does so twice, and the second time begins when the first has ended: waits that are the same both times, by their
//! numbers, have all lasted at the moment in between. So those of them that are stuck by [`graph::stuck`] were stuck
//! then, and are for ever. Where one of them waits for resources, all nodes that could give it those are asked who has them
//! (see [`crate::ledger::standstill`]): who has held something in the same wait both times has held it in between. Owns the
//! questions and answers. Must not: ask where nobody waits for long, or take a node that does not answer for one that
//! waits.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use wasmrun_model::id::{NodeId, TaskId};

use super::protocol::BreakWait;
use super::{Exchange, OneWay, Request, Response};
use crate::ledger::deadlock::Place;
use crate::ledger::standstill::{Broken, Heard, Waits};

/// How long a node may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// For how many tasks one is asked at a time.
const MOST_ASKED: usize = 2_000;
/// Of how many waits is heard in all: of more, nothing is found.
const MOST: usize = 50_000;

impl Exchange {
    /// The waits here that these tasks are part of, and those that they lead to; with what the node gives out if that is
    /// asked for, and the waits of all who wait here.
    pub(super) fn waits(&self, from: &[TaskId], with_room: bool) -> Waits {
        let Some(shared) = self.shared.upgrade() else {
            return Waits::default();
        };
        let from = &from[..from.len().min(MOST_ASKED)];
        if !with_room {
            return shared.ask(|ledger| ledger.waits(from));
        }
        let (waits, looked_at) = shared.ask(|ledger| ledger.waits_with_room(from));
        drop(looked_at);
        waits
    }

    /// Another node has found that a task here waits in a circle.
    pub(super) fn break_wait(&self, broken: &BreakWait) {
        if let Some(shared) = self.shared.upgrade() {
            let why = broken.why.clone();
            shared.ask(|ledger| ledger.break_wait(&broken.task, broken.number, why));
        }
    }

    /// Looks whether tasks here wait in a circle through other nodes, or for what is held in one, and ends one wait of it.
    pub(super) async fn look_for_circle_from(&self, from: &[TaskId]) {
        let from = from.iter().map(|task| Place {
            node: self.me,
            task: *task,
        });
        let from: Vec<Place> = from.collect();
        let before = self.hear_of(&from).await;
        let found = before.stuck();
        if !from.iter().any(|it| found.contains(it)) {
            return;
        }
        let heard = self.hear_of(&from).await.unchanged(before);
        let stuck = heard.stuck();
        let Some(from) = from.into_iter().find(|it| stuck.contains(it)) else {
            return;
        };
        if let Some(broken) = heard.to_break(&stuck, from, |node| self.name_for_people(node)) {
            self.end_wait(broken);
        }
    }

    /// What people call a node that is asked.
    fn name_for_people(&self, node: NodeId) -> String {
        match self.shared.upgrade() {
            Some(shared) if node == self.me => shared.name.to_string(),
            _ => self.name_of(node),
        }
    }

    /// Ends a wait, wherever that is.
    fn end_wait(&self, Broken { at, wait, why }: Broken) {
        let broken = BreakWait {
            task: at.task,
            number: wait,
            why,
        };
        tracing::info!(task = %at.task, node = %at.node, "a wait that would never end is ended");
        match at.node == self.me {
            true => self.break_wait(&broken),
            false => {
                let message = OneWay::BreakWait(Box::new(broken));
                self.send(at.node, message);
            }
        }
    }

    /// All that wait among those that these lead to, and what others hold of what those lack.
    async fn hear_of(&self, from: &[Place]) -> Heard {
        let mut heard = Heard::default();
        let mut known: BTreeSet<Place> = from.iter().copied().collect();
        let mut rooms: BTreeSet<NodeId> = BTreeSet::new();
        let mut next = Asked::default();
        next.add(from.iter().copied());
        while !next.0.is_empty() && heard.waiters.len() < MOST {
            let mut asked = FuturesUnordered::new();
            for (node, (tasks, with_room)) in mem::take(&mut next.0) {
                asked.push(async move { (node, self.ask_waits(node, tasks, with_room).await) });
            }
            while let Some((node, waits)) = asked.next().await {
                let Waits {
                    waiters,
                    lacking,
                    room,
                } = waits;
                heard.rooms.extend(room.map(|room| (node, room)));
                for waiter in waiters {
                    let task = waiter.task;
                    known.insert(Place { node, task });
                    // Of its own tasks it has said all that it knows.
                    let others = waiter.needs.iter().filter(|it| it.node != node);
                    next.add(others.copied().filter(|place| known.insert(*place)));
                    heard.waiters.insert(Place { node, task }, waiter);
                }
                for lacking in lacking {
                    for demand in lacking.demands.iter().filter(|it| rooms.insert(it.node)) {
                        next.0.entry(demand.node).or_default().1 = true;
                    }
                    let task = lacking.task;
                    heard.lacking.insert(Place { node, task }, lacking);
                }
            }
        }
        heard
    }

    /// What a node says; nothing if it does not answer.
    async fn ask_waits(&self, node: NodeId, mut tasks: Vec<TaskId>, with_room: bool) -> Waits {
        tasks.truncate(MOST_ASKED);
        if node == self.me {
            return self.waits(&tasks, with_room);
        }
        let Some(fabric) = self.fabric() else {
            return Waits::default();
        };
        let request = Request::Standstill { tasks, with_room };
        match fabric.request(node, request, ANSWER).await {
            Ok(Response::Standstill(waits)) => {
                if let Some(shared) = self.shared.upgrade() {
                    let numbers = waits.waiters.iter().filter_map(|it| it.wait);
                    shared.waits.note(numbers);
                }
                *waits
            }
            _ => Waits::default(),
        }
    }
}

/// What nodes are asked: for whom these tasks wait, and whether for what they give out.
#[derive(Default)]
struct Asked(BTreeMap<NodeId, (Vec<TaskId>, bool)>);

impl Asked {
    fn add(&mut self, places: impl Iterator<Item = Place>) {
        for Place { node, task } in places {
            self.0.entry(node).or_default().0.push(task);
        }
    }
}
