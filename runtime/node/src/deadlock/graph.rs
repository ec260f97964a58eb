//! Who of those that wait for each other can never go on.
//!
//! Each waits for some number of others to end: all of them, or k of n (the general model of waits: Bracha and
//! Toueg, 1987; edges of waits for all are those of Chandy, Misra and Haas, 1983). Whoever is not in a graph goes on as
//! far as is known, so what is left out of one makes it find less, never more. Must not: know tasks, clocks or nodes.

use std::collections::{BTreeMap, BTreeSet};

/// What somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needs<V> {
    /// Those of whom some must end.
    pub(crate) of: Vec<V>,
    /// How many of them.
    pub(crate) count: usize,
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

    proptest! {
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
