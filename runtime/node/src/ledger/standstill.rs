//! Tasks that can never start, because all who hold what they need wait for them, on whichever nodes.
//!
//! Owns what nodes tell each other of that: who lacks what, and who has it; what follows from it, and how it is told. A
//! task that waits for resources goes on if it could start, on any node that could ever serve it, when all have ended
//! but those who are stuck. So whoever runs, waits with a timeout, or lives as an actor that others can reach may yet
//! make room, and a node that does not answer or has just joined may have some. Must not: look for anything by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::mem;

use serde::{Deserialize, Serialize};
use wasmrun_model::id::{NodeId, TaskId};
use wasmrun_model::scheduler::{Demand, Room, Spare};
use wasmrun_model::task::{Attempt, Phase as State};

use super::deadlock::{MOST_WAITERS, Place, SHOWN, WaitNumber, Waiter};
use super::graph::{self, Graph, Needs};
use crate::ledger::Ledger;
use crate::records::reach::Reach;

/// A task that waits for what others hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lacking {
    pub(crate) task: TaskId,
    pub(crate) attempt: Attempt,
    /// What people call it.
    pub(crate) name: String,
    /// With what it could start, where. Not empty.
    pub(crate) demands: Vec<Demand>,
}

/// Tasks of a node that wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waits {
    /// For others, without a timeout.
    pub(crate) waiters: Vec<Waiter>,
    /// For what others hold.
    pub(crate) lacking: Vec<Lacking>,
    /// What the node gives out, if that was asked for.
    pub(crate) room: Option<Room>,
}

/// What was heard of tasks that wait, by where they are.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) waiters: BTreeMap<Place, Waiter>,
    pub(crate) lacking: BTreeMap<Place, Lacking>,
    pub(crate) rooms: BTreeMap<NodeId, Room>,
}

/// A wait that is to end so that others can go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) at: Place,
    pub(crate) wait: WaitNumber,
    pub(crate) why: String,
}

/// Those who can never go on: they wait for each other, or for what such hold as can never go on. Of nodes whose room is
/// not known it may be all free.
pub(crate) fn stuck(
    graph: &Graph<Place>,
    lacking: &BTreeMap<Place, Lacking>,
    rooms: &BTreeMap<NodeId, Room>,
) -> BTreeSet<Place> {
    let could_start = |stuck: &BTreeSet<Place>| {
        let spare = spare(rooms, stuck);
        move |place: &Place| {
            let mut demands = lacking[place].demands.iter();
            demands.any(|it| {
                let spare = spare.get(&it.node);
                spare.is_none_or(|spare| spare.serves(&it.amounts))
            })
        }
    };
    graph::stuck_without_room(graph, lacking.keys().copied(), could_start)
}

/// What nodes have beside those who are stuck.
fn spare<'a>(
    rooms: &'a BTreeMap<NodeId, Room>,
    stuck: &BTreeSet<Place>,
) -> BTreeMap<NodeId, Spare<'a>> {
    let spare = rooms.iter().map(|(node, room)| {
        let (node, stays) = (*node, |task: TaskId, node| {
            stuck.contains(&Place { node, task })
        });
        (node, room.beside(|task| stays(*task, node)))
    });
    spare.collect()
}

impl Heard {
    /// What was the same before: so it was at every time in between.
    pub(crate) fn unchanged(mut self, mut before: Self) -> Self {
        self.waiters.retain(|place, it| {
            let before = before.waiters.remove(place);
            // In the same wait, some that it needed may have ended since: so it did not wait for those, and for no others.
            before.is_some_and(|before| {
                before == *it || it.wait.is_some_and(|it| before.wait == Some(it))
            })
        });
        self.lacking
            .retain(|place, it| before.lacking.remove(place).as_ref() == Some(it));
        self.rooms
            .retain(|node, room| match before.rooms.remove(node) {
                Some(before) if before.total == room.total && before.slots == room.slots => {
                    // Of the others it may be that they held nothing in between.
                    room.holders.retain(|it| before.holders.contains(it));
                    true
                }
                _ => false,
            });
        self
    }

    /// Who waits for whom.
    fn graph(&self) -> Graph<Place> {
        let needs = self.waiters.iter().map(|(place, waiter)| {
            let count = usize::try_from(waiter.count).unwrap_or(usize::MAX);
            let of = waiter.needs.clone();
            (*place, Needs { of, count })
        });
        needs.collect()
    }

    /// Those who can never go on.
    pub(crate) fn stuck(&self) -> BTreeSet<Place> {
        stuck(&self.graph(), &self.lacking, &self.rooms)
    }

    /// Which wait is to end of those that one who is stuck depends on, and why: the one that began last, so it is the
    /// same one whoever has found it. `called`: what people call a node.
    pub(crate) fn to_break(
        &self,
        stuck: &BTreeSet<Place>,
        from: Place,
        called: impl Fn(NodeId) -> String,
    ) -> Option<Broken> {
        let waits = self.with_holders(stuck);
        let knot = graph::knot(&waits, stuck, from);
        match knot.iter().any(|it| self.lacking.contains_key(it)) {
            true => self.of_knot(stuck, &knot, called),
            false => {
                let any = *knot.first()?;
                self.of_circle(&graph::circle(&waits, stuck, any), called)
            }
        }
    }

    /// The waits, and of those who lack something those who hold it, as far as they are stuck.
    fn with_holders(&self, stuck: &BTreeSet<Place>) -> Graph<Place> {
        let mut graph = self.graph();
        for place in self.lacking.keys().filter(|it| stuck.contains(it)) {
            let of = self.holders(place, stuck).collect();
            graph.insert(*place, Needs { of, count: 1 });
        }
        graph
    }

    /// Those who are stuck and hold something where one who lacks something could start.
    fn holders<'a>(
        &'a self,
        lacking: &Place,
        stuck: &'a BTreeSet<Place>,
    ) -> impl Iterator<Item = Place> + 'a {
        let demands = self.lacking[lacking].demands.iter();
        let nodes: BTreeSet<NodeId> = demands.map(|it| it.node).collect();
        let holders = nodes.into_iter().flat_map(|node| {
            let room = self.rooms.get(&node);
            let holders = room.into_iter().flat_map(|room| &room.holders);
            holders.map(move |it| Place {
                node,
                task: it.task,
            })
        });
        holders.filter(|it| stuck.contains(it))
    }

    fn of_circle(&self, circle: &[Place], called: impl Fn(NodeId) -> String) -> Option<Broken> {
        let waits = circle
            .iter()
            .filter_map(|place| Some((self.waiters[place].wait?, *place)));
        // Only calls in line: those they wait for are told by whoever asks there.
        let (wait, at) = waits.max()?;
        let next = circle.iter().cycle().skip(1);
        // A task is known where it was submitted, and to the node that has it: that counts.
        let members = circle
            .iter()
            .zip(next)
            .filter(|(place, next)| place.task != next.task);
        let members: Vec<String> = members
            .map(|(place, _)| self.named(place, &called))
            .collect();
        let why = super::deadlock::describe(members.into_iter());
        Some(Broken { at, wait, why })
    }

    fn of_knot(
        &self,
        stuck: &BTreeSet<Place>,
        knot: &BTreeSet<Place>,
        called: impl Fn(NodeId) -> String,
    ) -> Option<Broken> {
        let graph = self.graph();
        let waits = knot.iter().filter_map(|place| {
            let wait = self.waiters.get(place)?.wait?;
            Some((wait, *place))
        });
        let mut waits: Vec<(WaitNumber, Place)> = waits.collect();
        waits.sort_unstable();
        // Whoever reads this may know of those it waits for, and of who waits for it: they are of one tenant.
        let lacks = |place: &Place| knot.contains(place) && self.lacking.contains_key(place);
        let mut last = waits.into_iter().rev();
        let (wait, at, way) =
            last.find_map(|(wait, at)| Some((wait, at, graph::way(&graph, at, lacks)?)))?;
        let lacking = way.last()?;
        let mut why = String::new();
        let chain = self.chain(way.clone(), &graph, knot);
        for place in chain.iter().rev().take(SHOWN).rev() {
            let _ = match place == lacking {
                true => write!(why, "{}", self.named(place, &called)),
                false => write!(why, "{} waits for ", self.named(place, &called)),
            };
        }
        let holders: BTreeSet<Place> = self.holders(lacking, stuck).collect();
        let is_actor = |it: &&Place| self.waiters.get(it).is_some_and(|it| it.wait.is_none());
        let (actors, kill) = match holders.iter().filter(is_actor).count() {
            0 => (String::new(), ""),
            1 => (
                " and an actor of theirs".to_owned(),
                super::deadlock::ACTORS,
            ),
            n => (
                format!(" and {n} actors of theirs"),
                super::deadlock::ACTORS,
            ),
        };
        let tasks = holders.iter().filter(|it| !is_actor(it)).count();
        let _ = write!(
            why,
            ", which cannot start because of what {tasks} tasks{actors} hold that wait for others: {}. Ask for less, nest \
             less deep,{kill} or give the nodes more",
            self.shortages(lacking, stuck, called)
        );
        Some(Broken { at, wait, why })
    }

    /// A way, and before it those who wait for its first one, each known once.
    fn chain(
        &self,
        mut way: Vec<Place>,
        graph: &Graph<Place>,
        knot: &BTreeSet<Place>,
    ) -> Vec<Place> {
        way.reverse();
        while let Some(first) = way.last()
            && way.len() < 2 * SHOWN
        {
            let waits = |it: &&Place| graph.get(it).is_some_and(|it| it.of.contains(first));
            let before = knot.iter().find(|it| !way.contains(it) && waits(it));
            match before {
                Some(before) => way.push(*before),
                None => break,
            }
        }
        way.reverse();
        let next: Vec<Option<TaskId>> = way.iter().skip(1).map(|it| Some(it.task)).collect();
        let next = next.into_iter().chain([None]);
        // A task is known where it was submitted, and to the node that has it: that counts.
        let known = way.into_iter().zip(next);
        let known = known.filter(|(place, next)| Some(place.task) != *next);
        known.map(|(place, _)| place).collect()
    }

    /// What one lacks on which nodes, beside those who are stuck.
    fn shortages(
        &self,
        lacking: &Place,
        stuck: &BTreeSet<Place>,
        called: impl Fn(NodeId) -> String,
    ) -> String {
        let spare = spare(&self.rooms, stuck);
        let short = self.lacking[lacking].demands.iter().filter_map(|demand| {
            let short = spare.get(&demand.node)?.lacking(&demand.amounts);
            let node = called(demand.node);
            Some(format!("at node {node} it lacks {}", short.join(" and ")))
        });
        let mut short: Vec<String> = short.collect();
        let more = short.len().saturating_sub(SHOWN);
        short.truncate(SHOWN);
        let more = if more > 0 { ", and so on" } else { "" };
        format!("{}{more}", short.join(", "))
    }

    fn named(&self, place: &Place, called: impl Fn(NodeId) -> String) -> String {
        let name = match (self.waiters.get(place), self.lacking.get(place)) {
            (Some(waiter), _) => &waiter.name,
            (None, Some(lacking)) => &lacking.name,
            (None, None) => return place.task.to_string(),
        };
        format!("{name} ({}) at node {}", place.task, called(place.node))
    }
}

impl Ledger {
    /// What a task waits for that others hold, on all nodes or one. `None` if it waits for nothing, or for something else.
    pub(super) fn lacks(&self, task: &TaskId, only: Option<NodeId>) -> Option<Lacking> {
        let work = self.work(task)?;
        let demands = self.scheduler().demands(task, only);
        if demands.is_empty() {
            return None;
        }
        Some(Lacking {
            task: *task,
            attempt: self.scheduler().task(task)?.attempt,
            name: work.name().into_owned(),
            demands,
        })
    }

    /// What this node gives out, and who has it, with the waits that these tasks are part of, and all those of who waits
    /// here. What it looked at is to be dropped where no lock is held.
    #[must_use]
    pub(crate) fn waits_with_room(&self, from: &[TaskId]) -> (Waits, Reach) {
        let mut reach = Reach::default();
        let captives = self.captive_waiters(&mut reach);
        let blocked = self.blocked.iter().filter(|(_, it)| !it.is_bounded);
        let from = from.iter().chain(blocked.map(|(task, _)| task)).copied();
        let needed = captives.iter().flat_map(|it| &it.needs);
        let from: BTreeSet<TaskId> = from.chain(needed.map(|it| it.task)).collect();
        let from: Vec<TaskId> = from.into_iter().collect();
        let mut waits = self.waits(&from);
        waits.waiters.extend(captives);
        waits.room = self.scheduler().room();
        (waits, reach)
    }

    /// The actors here that only those can reach who wait here: each goes on as soon as one of those does, which may end
    /// it.
    fn captive_waiters(&self, reach: &mut Reach) -> Vec<Waiter> {
        let scheduler = self.scheduler();
        if !self.is_still()
            || scheduler.len_in(State::Dispatching) > 0
            || self.blocked.has_bounded()
        {
            return Vec::new();
        }
        let phases = [
            State::Placeable,
            State::Infeasible,
            State::WaitingForActorCreation,
            State::Waiting,
            State::Ready,
            State::Blocked,
        ];
        let reaching = phases.into_iter().flat_map(|it| scheduler.in_phase(it));
        let mut needs: Vec<Place> = reaching.map(|task| self.here(task)).collect();
        if needs.len() > MOST_WAITERS {
            return Vec::new();
        }
        needs.sort_unstable();
        let mut captives = self.captives(reach);
        captives.retain(|it| scheduler.assignment(it).is_some());
        captives.sort_unstable();
        // What goes for the first goes for all.
        let first = captives.first().map(|it| self.here(*it));
        let captives = captives.iter().map(|task| Waiter {
            task: *task,
            name: self
                .work(task)
                .map_or_else(String::new, |work| work.name().into_owned()),
            wait: None,
            needs: match first == Some(self.here(*task)) {
                true => mem::take(&mut needs),
                false => first.into_iter().collect(),
            },
            count: 1,
        });
        captives.collect()
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::resource::{Request, ResourceSet};
    use wasmrun_model::scheduler::Holding;

    use super::*;

    const A: u8 = 0;
    const B: u8 = 1;

    fn node(at: u8) -> NodeId {
        NodeId::from_bytes([at; 16])
    }

    fn id(task: u8) -> TaskId {
        TaskId::from_bytes([task; 16])
    }

    fn place(at: u8, task: u8) -> Place {
        Place {
            node: node(at),
            task: id(task),
        }
    }

    fn memory(bytes: u64) -> ResourceSet {
        let request = format!("{{\"memory\": {bytes}}}");
        let request: Request = serde_json::from_str(&request).expect("a request");
        request.amounts().clone()
    }

    impl Heard {
        /// A task in a wait of this number.
        fn waits(mut self, at: u8, task: u8, number: u64, needs: &[(u8, u8)]) -> Self {
            let waiter = Waiter {
                task: id(task),
                name: format!("f{task}"),
                wait: (number > 0).then_some(WaitNumber(number)),
                needs: needs.iter().map(|(at, task)| place(*at, *task)).collect(),
                count: needs.len() as u64,
            };
            self.waiters.insert(place(at, task), waiter);
            self
        }

        /// A task that needs 64 bytes of any of these nodes.
        fn lacks(mut self, at: u8, task: u8, nodes: &[u8]) -> Self {
            let demand = |at: &u8| Demand {
                node: node(*at),
                amounts: memory(64),
            };
            let lacking = Lacking {
                task: id(task),
                attempt: Attempt::FIRST,
                name: format!("f{task}"),
                demands: nodes.iter().map(demand).collect(),
            };
            self.lacking.insert(place(at, task), lacking);
            self
        }

        /// A node with 100 bytes, of which these hold 64 each.
        fn room(mut self, at: u8, holders: &[u8]) -> Self {
            let holding = |task: &u8| Holding {
                task: id(*task),
                attempt: Attempt::FIRST,
                is_actor: false,
                amounts: memory(64),
            };
            let room = Room {
                total: memory(100),
                slots: 8,
                holders: holders.iter().map(holding).collect(),
            };
            self.rooms.insert(node(at), room);
            self
        }

        fn said(&self, from: Place) -> Option<Broken> {
            let called = |it: NodeId| if it == node(A) { "a" } else { "b" }.to_owned();
            self.to_break(&self.stuck(), from, called)
        }
    }

    /// 1 at a waits for 2 at b, and that for 3, which neither has room for.
    fn nested() -> Heard {
        Heard::default()
            .waits(A, 1, 5, &[(A, 2)])
            .waits(A, 2, 0, &[(B, 2)])
            .waits(B, 2, 6, &[(B, 3)])
            .lacks(B, 3, &[A, B])
            .room(A, &[1])
            .room(B, &[2])
    }

    #[test]
    fn who_waits_for_what_all_hold_is_told_with_the_chain() {
        for from in [place(A, 1), place(B, 2), place(A, 2)] {
            let said = nested().said(from).expect("it never ends");
            assert_eq!((said.at, said.wait), (place(B, 2), WaitNumber(6)));
            let (one, two, three) = (id(1), id(2), id(3));
            assert_eq!(
                said.why,
                format!(
                    "f1 ({one}) at node a waits for f2 ({two}) at node b waits for f3 ({three}) at node b, which cannot \
                     start because of what 2 tasks hold that wait for others: at node a it lacks memory (needs 64, 36 \
                     free), at node b it lacks memory (needs 64, 36 free). Ask for less, nest less deep, or give the \
                     nodes more"
                )
            );
        }
    }

    #[test]
    fn nobody_is_stuck_as_long_as_somebody_may_make_room() {
        assert_eq!(nested().stuck().len(), 4);
        // Somebody at b runs, or holds something for a while.
        assert!(nested().room(B, &[9]).stuck().is_empty());
        // b does not answer.
        let mut silent = nested();
        silent.rooms.remove(&node(B));
        assert!(silent.stuck().is_empty());
        // A third node has joined.
        assert!(nested().lacks(B, 3, &[A, B, 2]).stuck().is_empty());
        assert!(
            nested()
                .lacks(B, 3, &[A, B, 2])
                .room(2, &[])
                .stuck()
                .is_empty()
        );
        // 1 waits for one of two, and the other one runs.
        let mut either = nested().waits(A, 1, 5, &[(A, 2), (A, 8)]);
        either
            .waiters
            .get_mut(&place(A, 1))
            .expect("it is there")
            .count = 1;
        assert!(either.stuck().is_empty());
    }

    #[test]
    fn what_has_changed_between_two_looks_proves_nothing() {
        let unchanged = |before: Heard| nested().unchanged(before).stuck();
        assert_eq!(unchanged(nested()).len(), 4);
        // Another wait of the same task, another attempt, another holder, another total.
        assert!(unchanged(nested().waits(B, 2, 4, &[(B, 3)])).is_empty());
        let mut before = nested();
        let lacking = before.lacking.get_mut(&place(B, 3)).expect("it is there");
        lacking.attempt = lacking.attempt.next();
        assert!(unchanged(before).is_empty());
        assert!(unchanged(nested().room(B, &[9])).is_empty());
        let mut before = nested();
        before.rooms.get_mut(&node(B)).expect("it is there").total = memory(99);
        assert!(unchanged(before).is_empty());
    }

    #[test]
    fn whoever_looks_ends_the_same_wait() {
        // At both nodes, and whether what is short or a circle keeps them.
        let circle = |a: u64, b: u64| {
            Heard::default()
                .waits(A, 1, a, &[(B, 2)])
                .waits(B, 2, b, &[(A, 1)])
        };
        let short = |a: u64, b: u64| nested().waits(A, 1, a, &[(A, 2)]).waits(B, 2, b, &[(B, 3)]);
        // The later one; of two with the same number, that of the higher node.
        for (a, b, last) in [(8, 7, A), (7, 8, B), (7, 7, B)] {
            for heard in [circle(a, b), short(a, b)] {
                for from in [place(A, 1), place(B, 2)] {
                    let said = heard.said(from).expect("it never ends");
                    assert_eq!((said.at.node, said.wait.0), (node(last), a.max(b)));
                }
            }
        }
    }

    #[test]
    fn what_somebody_waited_for_too_may_end_between_two_looks() {
        let before = nested().waits(A, 1, 5, &[(A, 9), (A, 2)]);
        assert_eq!(nested().unchanged(before).stuck().len(), 4);
        // One that is in line is known by what it waits for.
        let before = nested().waits(A, 2, 0, &[(A, 9), (B, 2)]);
        assert!(nested().unchanged(before).stuck().is_empty());
    }

    #[test]
    fn a_circle_is_told_as_one_though_others_hold_something() {
        let heard = nested().waits(B, 2, 6, &[(A, 1)]);
        let said = heard.said(place(A, 1)).expect("it never ends");
        assert!(
            said.why
                .starts_with("tasks wait for each other in a circle: ")
        );
        assert_eq!(said.at, place(B, 2));
    }
}
