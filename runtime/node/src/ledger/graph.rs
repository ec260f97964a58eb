//! Who of those that wait for each other can never go on.
//!
//! Each waits for some number of others to end: all of them, or k of n (the general model of waits: Bracha and
//! Toueg, 1987; edges of waits for all are those of Chandy, Misra and Haas, 1983). Whoever is not in a graph goes on as
//! far as is known, so what is left out of one makes it find less, never more. Must not: know tasks, clocks or nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needs<V> {
    /// Those of whom some must end.
    pub(crate) of: Vec<V>,
    /// How many of them.
    pub(crate) count: usize,
}

impl<V> Needs<V> {
    /// Of whom nothing is known but that it may never go on.
    pub(crate) fn itself(it: V) -> Self {
        Self {
            of: vec![it],
            count: 1,
        }
    }
}

/// All that is known of who waits.
pub(crate) type Graph<V> = BTreeMap<V, Needs<V>>;

/// Those that can never go on, because each waits for more of the others here than it can do without.
pub(crate) fn stuck<V: Copy + Ord>(graph: &Graph<V>) -> BTreeSet<V> {
    // How many that may still end each can do without.
    let mut lacks: BTreeMap<V, usize> = BTreeMap::new();
    let mut waiters: BTreeMap<V, Vec<V>> = BTreeMap::new();
    let mut goes_on = Vec::new();
    let mut stuck: BTreeSet<V> = graph.keys().copied().collect();
    for (waiter, needs) in graph {
        let mut free = 0;
        for needed in &needs.of {
            match graph.contains_key(needed) {
                true => waiters.entry(*needed).or_default().push(*waiter),
                false => free += 1,
            }
        }
        match needs.count.min(needs.of.len()).saturating_sub(free) {
            0 => goes_on.push(*waiter),
            lacking => drop(lacks.insert(*waiter, lacking)),
        }
    }
    // Whoever goes on ends some time, and those that wait for it need one less.
    while let Some(ended) = goes_on.pop() {
        stuck.remove(&ended);
        for waiter in waiters.remove(&ended).unwrap_or_default() {
            if let Some(lacking) = lacks.get_mut(&waiter) {
                *lacking -= 1;
                if *lacking == 0 {
                    lacks.remove(&waiter);
                    goes_on.push(waiter);
                }
            }
        }
    }
    stuck
}

/// The same where some wait for what others have: they go on if `could_start` says so, which is given those that are left
/// when all others have ended. It must not say no where less is left and yes where more is.
pub(crate) fn stuck_without_room<V: Copy + Ord, P: Fn(&V) -> bool>(
    graph: &Graph<V>,
    held_up: impl IntoIterator<Item = V>,
    could_start: impl Fn(&BTreeSet<V>) -> P,
) -> BTreeSet<V> {
    let mut graph = graph.clone();
    let mut held_up: Vec<V> = held_up.into_iter().collect();
    // As far as it is known, what they wait for never comes.
    graph.extend(held_up.iter().map(|it| (*it, Needs::itself(*it))));
    loop {
        let stuck = stuck(&graph);
        let could_start = could_start(&stuck);
        let before = held_up.len();
        held_up.retain(|it| {
            let starts = could_start(it);
            if starts {
                graph.remove(it);
            }
            !starts
        });
        if held_up.len() == before {
            return stuck;
        }
    }
}

/// The shortest way from one to one of those who are wanted, with both ends, over such who wait.
pub(crate) fn way<V: Copy + Ord>(
    graph: &Graph<V>,
    from: V,
    is_wanted: impl Fn(&V) -> bool,
) -> Option<Vec<V>> {
    let mut came_from: BTreeMap<V, V> = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(at) = next.pop_front() {
        if is_wanted(&at) {
            let mut way = vec![at];
            let mut at = at;
            while at != from {
                at = came_from[&at];
                way.push(at);
            }
            way.reverse();
            return Some(way);
        }
        for needed in graph.get(&at).into_iter().flat_map(|needs| &needs.of) {
            if *needed != from && !came_from.contains_key(needed) {
                came_from.insert(*needed, at);
                next.push_back(*needed);
            }
        }
    }
    None
}

/// Those who are stuck, wait for each other, and for nobody else: others wait for them. One of several such sets that
/// somebody waits for who is stuck, or is in.
pub(crate) fn knot<V: Copy + Ord>(graph: &Graph<V>, stuck: &BTreeSet<V>, from: V) -> BTreeSet<V> {
    let mut from = from;
    loop {
        let mut ahead = BTreeSet::from([from]);
        let mut behind: BTreeMap<V, Vec<V>> = BTreeMap::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            let needs = graph.get(&at).into_iter().flat_map(|needs| &needs.of);
            for needed in needs.filter(|needed| stuck.contains(needed)) {
                behind.entry(*needed).or_default().push(at);
                if ahead.insert(*needed) {
                    next.push(*needed);
                }
            }
        }
        let mut leads_here = BTreeSet::from([from]);
        next.push(from);
        while let Some(at) = next.pop() {
            let waiters = behind.remove(&at).unwrap_or_default();
            next.extend(waiters.into_iter().filter(|it| leads_here.insert(*it)));
        }
        match ahead.difference(&leads_here).next() {
            None => return ahead,
            // From there on it is fewer.
            Some(further) => from = *further,
        }
    }
}

/// A circle that one of those who are stuck waits for, or is in.
pub(crate) fn circle<V: Copy + Ord>(graph: &Graph<V>, stuck: &BTreeSet<V>, from: V) -> Vec<V> {
    let mut path = Vec::new();
    let mut places = BTreeMap::new();
    let mut at = from;
    while !places.contains_key(&at) {
        places.insert(at, path.len());
        path.push(at);
        let needs = graph.get(&at).into_iter().flat_map(|needs| &needs.of);
        // The same for whoever looks, wherever it has begun.
        let next = needs.filter(|needed| stuck.contains(needed)).min();
        at = *next.expect("who is stuck waits for somebody who is");
    }
    path.split_off(places[&at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn graph(waits: &[(u8, usize, &[u8])]) -> Graph<u8> {
        let waits = waits.iter();
        let needs = waits.map(|(waiter, count, of)| {
            let of = of.to_vec();
            (*waiter, Needs { of, count: *count })
        });
        needs.collect()
    }

    fn is_stuck(waits: &[(u8, usize, &[u8])]) -> Vec<u8> {
        stuck(&graph(waits)).into_iter().collect()
    }

    #[test]
    fn circles_of_waits_for_all_are_found() {
        assert_eq!(is_stuck(&[(1, 1, &[1])]), [1]);
        let three: [(u8, usize, &[u8]); 4] =
            [(1, 1, &[2]), (2, 2, &[3, 9]), (3, 1, &[1]), (4, 2, &[8, 2])];
        // One that waits for the circle is stuck as well; who is not known is not.
        assert_eq!(is_stuck(&three), [1, 2, 3, 4]);
        let known = graph(&three);
        for from in 1..=4 {
            let found = circle(&known, &stuck(&known), from);
            let members: BTreeSet<u8> = found.into_iter().collect();
            assert_eq!(members, BTreeSet::from([1, 2, 3]));
        }
        assert!(is_stuck(&[(1, 1, &[2]), (2, 1, &[3])]).is_empty());
    }

    #[test]
    fn who_waits_for_some_is_stuck_when_too_few_can_end() {
        // One of two, and the other may end.
        assert!(is_stuck(&[(1, 1, &[2, 9]), (2, 1, &[1])]).is_empty());
        assert_eq!(
            is_stuck(&[(1, 1, &[2, 3]), (2, 1, &[1]), (3, 1, &[2])]),
            [1, 2, 3]
        );
        // Two of three, of which two wait for it.
        assert_eq!(
            is_stuck(&[(1, 2, &[2, 3, 9]), (2, 1, &[1]), (3, 1, &[1])]),
            [1, 2, 3]
        );
        // One that it waits for twice counts twice.
        assert_eq!(is_stuck(&[(1, 2, &[2, 2, 9]), (2, 1, &[1])]), [1, 2]);
        assert!(is_stuck(&[(1, 0, &[1])]).is_empty());
    }

    #[test]
    fn a_circle_of_any_length_is_found() {
        let count = 100_000_u32;
        let ring = (0..count).map(|at| {
            let of = vec![(at + 1) % count];
            (at, Needs { of, count: 1 })
        });
        let ring: Graph<u32> = ring.collect();
        let all = stuck(&ring);
        assert_eq!(all.len(), count as usize);
        assert_eq!(circle(&ring, &all, 7).len(), count as usize);
    }

    /// Ends one after the other all that can end: who is left is stuck.
    fn played(graph: &Graph<u8>) -> BTreeSet<u8> {
        let mut left: BTreeSet<u8> = graph.keys().copied().collect();
        loop {
            let can_end = |waiter: &&u8| {
                let needs = &graph[waiter];
                let ended = needs.of.iter().filter(|it| !left.contains(it)).count();
                ended >= needs.count
            };
            match left.iter().find(can_end).copied() {
                Some(ends) => left.remove(&ends),
                None => return left,
            };
        }
    }

    #[test]
    fn who_waits_for_room_is_stuck_only_if_all_are_who_have_it() {
        // 1 and 2 wait for 3 and 4, which fit where one of those has ended.
        let waits = graph(&[(1, 1, &[3]), (2, 1, &[4])]);
        let found = |waits: &Graph<u8>, holders: &[u8]| {
            let could_start = |stuck: &BTreeSet<u8>| {
                let is_free = !holders.iter().all(|it| stuck.contains(it));
                move |_: &u8| is_free
            };
            stuck_without_room(waits, [3, 4], could_start)
        };
        assert_eq!(found(&waits, &[1, 2]), BTreeSet::from([1, 2, 3, 4]));
        // Somebody who runs has some of it.
        assert!(found(&waits, &[1, 2, 9]).is_empty());
        // One of them waits for one of two that runs.
        let waits = graph(&[(1, 1, &[3]), (2, 1, &[4, 9])]);
        assert!(found(&waits, &[1, 2]).is_empty());
        assert_eq!(found(&waits, &[1]), BTreeSet::from([1, 3, 4]));
    }

    #[test]
    fn a_knot_is_what_the_others_wait_for() {
        let waits = graph(&[(1, 1, &[2]), (2, 1, &[1, 3]), (3, 1, &[4]), (4, 1, &[3])]);
        let stuck = stuck(&waits);
        for from in 1..=4 {
            assert_eq!(knot(&waits, &stuck, from), BTreeSet::from([3, 4]));
        }
    }

    #[test]
    fn the_way_is_the_shortest_or_there_is_none() {
        let waits = graph(&[(1, 1, &[2, 3]), (2, 1, &[1, 4]), (3, 1, &[5]), (4, 1, &[6])]);
        let to = |wanted: u8| way(&waits, 1, |it| *it == wanted);
        assert_eq!(to(1), Some(vec![1]));
        assert_eq!(to(6), Some(vec![1, 2, 4, 6]));
        assert_eq!(to(7), None);
    }

    proptest! {
        /// Tasks that hold some of what a node has, or lack some, and wait for each other. Whoever is found can never go
        /// on, in whatever order the others end: so it is left when all have ended who can.
        #[test]
        fn who_is_stuck_without_room_is_who_is_left(
            waits in proptest::collection::btree_map(
                0_u8..10,
                proptest::collection::vec(0_u8..16, 1..4),
                0..10,
            ),
            holds in proptest::collection::btree_map(0_u8..14, 1_u32..4, 0..10),
            asks in proptest::collection::btree_map(10_u8..16, 1_u32..6, 1..6),
            free in 0_u32..3,
        ) {
            let waits: Graph<u8> = waits
                .into_iter()
                .map(|(waiter, of)| {
                    let count = of.len();
                    (waiter, Needs { of, count })
                })
                .collect();
            let holds: BTreeMap<u8, u32> =
                holds.into_iter().filter(|(it, _)| !asks.contains_key(it)).collect();
            let total = free + holds.values().sum::<u32>();
            let room_beside = |left: &BTreeSet<u8>| {
                total - holds.iter().filter(|(it, _)| left.contains(it)).map(|(_, held)| held).sum::<u32>()
            };
            let could_start = |stuck: &BTreeSet<u8>| {
                let (asks, room) = (&asks, room_beside(stuck));
                move |it: &u8| asks[it] <= room
            };
            let found = stuck_without_room(&waits, asks.keys().copied(), could_start);
            // All end who can, one after the other, and give back what they hold.
            let mut left: BTreeSet<u8> = waits.keys().chain(asks.keys()).copied().collect();
            loop {
                let can_end = |it: &&u8| match asks.get(it) {
                    Some(asked) => *asked <= room_beside(&left),
                    None => waits[it].of.iter().all(|needed| !left.contains(needed)),
                };
                match left.iter().find(can_end).copied() {
                    Some(ends) => left.remove(&ends),
                    None => break,
                };
            }
            prop_assert_eq!(found, left);
        }

        #[test]
        fn who_is_stuck_is_who_is_left_when_all_others_have_ended(
            waits in proptest::collection::btree_map(
                0_u8..12,
                (proptest::collection::vec(0_u8..14, 0..5), 0_usize..5),
                0..12,
            ),
        ) {
            let graph: Graph<u8> = waits
                .into_iter()
                .map(|(waiter, (of, count))| {
                    let count = count.min(of.len());
                    (waiter, Needs { of, count })
                })
                .collect();
            let found = stuck(&graph);
            prop_assert_eq!(&found, &played(&graph));
            for from in &found {
                let circle = circle(&graph, &found, *from);
                let next = circle.iter().skip(1).chain(&circle[..1]);
                for (waiter, needed) in circle.iter().zip(next) {
                    prop_assert!(found.contains(waiter) && graph[waiter].of.contains(needed));
                }
            }
        }

        #[test]
        fn knowing_less_finds_less(
            waits in proptest::collection::btree_map(
                0_u8..10,
                (proptest::collection::vec(0_u8..10, 1..4), 1_usize..4),
                1..10,
            ),
            unknown in 0_u8..10,
        ) {
            let mut graph: Graph<u8> = waits
                .into_iter()
                .map(|(waiter, (of, count))| (waiter, Needs { of, count }))
                .collect();
            for needs in graph.values_mut() {
                needs.count = needs.count.min(needs.of.len());
            }
            let all = stuck(&graph);
            graph.remove(&unknown);
            prop_assert!(stuck(&graph).is_subset(&all));
        }
    }
}
