//! Circles of waits through several nodes.
//!
//! Who has waited for long asks the nodes on which that depends for whom their tasks wait, and goes on from there, until
//! nothing new comes (edges are chased from node to node, as by Chandy, Misra and Haas, 1983, but by the one who asks). It
//! does so twice, and the second time begins when the first has ended: waits that are the same both times, by their
//! numbers, have all lasted at the moment in between. So those of them that are stuck by [`graph::stuck`] were stuck
//! then, and are for ever. Owns the questions and answers. Must not: ask where nobody waits for long, or take a node
//! that does not answer for one that waits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use wasmrun_model::id::{NodeId, TaskId};

use super::protocol::BreakWait;
use super::{Exchange, OneWay, Queued, Request, Response};
use crate::deadlock::graph::{self, Graph, Needs};
use crate::deadlock::{Place, Waiter, describe};

/// How long a node may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Of how many tasks a node is asked at once.
const MOST_ASKED: usize = 2_000;
/// Of how many waits is heard in all: of more, nothing is found.
const MOST: usize = 50_000;

/// What was heard of, by where it is.
type Heard = BTreeMap<Place, Waiter>;

impl Exchange {
    /// The waits here that these tasks are part of, and those that they lead to.
    pub(super) fn waiters(&self, from: &[TaskId]) -> Vec<Waiter> {
        let Some(shared) = self.shared.upgrade() else {
            return Vec::new();
        };
        let from = &from[..from.len().min(MOST_ASKED)];
        shared.ledger.lock().waiters(from, &shared.clock)
    }

    /// Another node has found that a task here waits in a circle.
    pub(super) fn break_wait(&self, broken: &BreakWait) {
        if let Some(shared) = self.shared.upgrade() {
            let why = broken.why.clone();
            let ledger = shared.ledger.lock();
            ledger.break_wait(&broken.task, broken.number, why);
        }
    }

    /// Looks whether tasks here wait in a circle through other nodes, or for one, and ends one wait of it.
    pub(crate) async fn look_for_circle(&self, from: &[TaskId]) {
        let from = from.iter().map(|task| Place {
            node: self.me,
            task: *task,
        });
        let from: Vec<Place> = from.collect();
        let mut before = self.hear_of(&from).await;
        let found = graph::stuck(&as_graph(&before));
        if !from.iter().any(|it| found.contains(it)) {
            return;
        }
        let mut heard = self.hear_of(&from).await;
        heard.retain(|place, waiter| before.remove(place).as_ref() == Some(waiter));
        let waits = as_graph(&heard);
        let stuck = graph::stuck(&waits);
        if let Some(from) = from.into_iter().find(|it| stuck.contains(it)) {
            self.tell_one(&heard, &graph::circle(&waits, &stuck, from));
        }
    }

    /// Ends the wait of a circle that began last: the same one, whoever has found it.
    fn tell_one(&self, heard: &Heard, circle: &[Place]) {
        let waits = circle
            .iter()
            .filter_map(|place| Some((heard[place].wait?, place)));
        // All others wait for those who wait.
        let Some((wait, last)) = waits.max() else {
            return;
        };
        let (cluster, shared) = (self.cluster(), self.shared.upgrade());
        let name_of = |node: NodeId| match (&cluster, &shared) {
            (_, Some(shared)) if node == self.me => shared.name.to_string(),
            (Some(cluster), _) => cluster.name_of(node),
            (None, _) => node.to_string(),
        };
        let next = circle.iter().cycle().skip(1);
        // A task is known where it was submitted, and to the node that has it: that counts.
        let members = circle
            .iter()
            .zip(next)
            .filter(|(place, next)| place.task != next.task);
        let members: Vec<String> = members
            .map(|(place, _)| {
                let Waiter { name, task, .. } = &heard[place];
                format!("{name} ({task}) at node {}", name_of(place.node))
            })
            .collect();
        let broken = BreakWait {
            task: last.task,
            number: wait.number,
            why: describe(members.into_iter()),
        };
        tracing::info!(task = %last.task, node = %last.node, "a circle of waits is ended");
        match last.node == self.me {
            true => self.break_wait(&broken),
            false => {
                let message = OneWay::BreakWait(Box::new(broken));
                self.queue(last.node, Queued::Message(message));
            }
        }
    }

    /// All that wait among those that these lead to.
    async fn hear_of(&self, from: &[Place]) -> Heard {
        let mut heard = Heard::new();
        let mut known: BTreeSet<Place> = from.iter().copied().collect();
        let mut next = by_node(from.iter().copied());
        while !next.is_empty() && heard.len() < MOST {
            let mut asked = FuturesUnordered::new();
            for (node, tasks) in std::mem::take(&mut next) {
                asked.push(async move { (node, self.ask_waits(node, tasks).await) });
            }
            let mut new = Vec::new();
            while let Some((node, waiters)) = asked.next().await {
                for waiter in waiters {
                    let task = waiter.task;
                    known.insert(Place { node, task });
                    // Of its own tasks it has said all that it knows.
                    new.extend(waiter.needs.iter().filter(|it| it.node != node).copied());
                    heard.insert(Place { node, task }, waiter);
                }
            }
            next = by_node(new.into_iter().filter(|place| known.insert(*place)));
        }
        heard
    }

    /// What a node says; nothing if it does not answer.
    async fn ask_waits(&self, node: NodeId, mut tasks: Vec<TaskId>) -> Vec<Waiter> {
        tasks.truncate(MOST_ASKED);
        if node == self.me {
            return self.waiters(&tasks);
        }
        let Some(cluster) = self.cluster() else {
            return Vec::new();
        };
        match cluster.request(node, Request::Waits(tasks), ANSWER).await {
            Ok(Response::Waits(waiters)) => waiters,
            _ => Vec::new(),
        }
    }
}

fn by_node(places: impl Iterator<Item = Place>) -> BTreeMap<NodeId, Vec<TaskId>> {
    let mut by_node: BTreeMap<NodeId, Vec<TaskId>> = BTreeMap::new();
    for Place { node, task } in places {
        by_node.entry(node).or_default().push(task);
    }
    by_node
}

fn as_graph(heard: &Heard) -> Graph<Place> {
    let needs = heard.iter().map(|(place, waiter)| {
        let count = usize::try_from(waiter.count).unwrap_or(usize::MAX);
        let of = waiter.needs.clone();
        (*place, Needs { of, count })
    });
    needs.collect()
}
