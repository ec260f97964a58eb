//! Turns at something that serves bytes one piece after the other, such as a connection: by the weights of the tree.
//!
//! Owns what waits, and which of it is next. Must not: send anything, read a clock.
//!
//! Invariants: of one tenant first come, first served; of tenants that always wait each gets of its row what its weight says, to a
//! piece of each; who had nothing to send for a while is not paid for that; what is kept of those for whom nothing waits is
//! bounded.
//!
//! Source: Goyal, Vin and Cheng, "Start-time Fair Queueing: A Scheduling Algorithm for Integrated Services Packet Switching
//! Networks", SIGCOMM 1996, with its hierarchy: each row of the tree has a virtual time, the start of what it has served last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::parts::{Parts, start};
use super::tenant::TenantName;

/// How fine virtual time is: a byte of the smallest weight, and of the largest.
const FINER: u128 = 1 << 34;

/// Of how many that have nothing to send it is kept, about, what they have sent.
const MOST_IDLE: usize = 256;

/// What waits for its turn.
#[derive(Debug)]
pub struct Turns<T> {
    waiting: BTreeMap<TenantName, VecDeque<(u64, T)>>,
    /// The virtual time of each row, by level and the tenant whose row it is.
    times: BTreeMap<(usize, String), u128>,
    /// When those of a row have finished what they have sent, by level and name.
    finishes: BTreeMap<(usize, String), u128>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            times: BTreeMap::new(),
            finishes: BTreeMap::new(),
        }
    }
}

impl<T> Turns<T> {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Something of so many bytes waits from now on.
    pub fn push(&mut self, tenant: &TenantName, bytes: u64, what: T) {
        let waiting = self.waiting.entry(tenant.clone()).or_default();
        waiting.push_back((bytes, what));
    }

    /// What is next of what has not gone meanwhile. What has gone counts for nobody.
    pub fn pop(&mut self, parts: &Parts, is_gone: impl Fn(&T) -> bool) -> Option<T> {
        self.waiting.retain(|_, all| {
            while all.front().is_some_and(|(_, what)| is_gone(what)) {
                all.pop_front();
            }
            !all.is_empty()
        });
        let mut among: Vec<TenantName> = self.waiting.keys().cloned().collect();
        let (mut path, mut row) = (Vec::new(), String::new());
        // Down to the own work of one tenant.
        for depth in 0..=TenantName::MAX_PARTS {
            let time = self.times.get(&(depth, row.clone())).copied();
            let seats: BTreeSet<&str> = among.iter().map(|it| start(it.as_str(), depth)).collect();
            let begins = |seat: &str| {
                let finish = self.finishes.get(&(depth, seat.to_owned()));
                finish.copied().max(time).unwrap_or_default()
            };
            let seats = seats.into_iter().map(|seat| (begins(seat), seat));
            let (begin, seat) = seats.min()?;
            let seat = seat.to_owned();
            among.retain(|it| start(it.as_str(), depth) == seat);
            path.push((begin, row, seat.clone()));
            row = seat;
        }
        let tenant = among.pop()?;
        let waiting = self.waiting.get_mut(&tenant)?;
        let (bytes, what) = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&tenant);
        }
        for (depth, (begin, row, seat)) in path.into_iter().enumerate() {
            let weight = u128::from(parts.weight(&seat, depth).steps());
            let finish = begin + u128::from(bytes) * FINER / weight;
            self.times.insert((depth, row), begin);
            self.finishes.insert((depth, seat), finish);
        }
        let rows = TenantName::MAX_PARTS + 1;
        if self.finishes.len() > MOST_IDLE + 2 * rows * self.waiting.len() {
            self.forget_idle();
        }
        Some(what)
    }

    /// Forgets what those have sent for whom nothing waits: each is ahead by one piece at most.
    fn forget_idle(&mut self) {
        let names = self.waiting.keys().map(TenantName::as_str);
        let seats =
            |name| (0..=TenantName::MAX_PARTS).map(move |depth| (depth, start(name, depth)));
        let busy: BTreeSet<(usize, &str)> = names.flat_map(seats).collect();
        self.finishes
            .retain(|(depth, seat), _| busy.contains(&(*depth, seat.as_str())));
        // The row of a depth is a seat of the one before.
        self.times
            .retain(|(depth, row), _| *depth == 0 || busy.contains(&(*depth - 1, row.as_str())));
    }

    /// Forgets who has sent what: for when nothing waits and all is sent.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fairness::Weight;
    use crate::resource::Amount;

    fn name(text: &str) -> TenantName {
        text.parse().unwrap()
    }

    fn parts(of: &[(&str, u64)]) -> Parts {
        let mut parts = Parts::default();
        for (tenant, weight) in of {
            let weight = Weight::new(Amount::from_units(*weight).unwrap()).unwrap();
            parts.set_weight(&name(tenant), weight);
        }
        parts
    }

    fn pop<T>(turns: &mut Turns<T>, parts: &Parts) -> Option<T> {
        turns.pop(parts, |_| false)
    }

    #[test]
    fn one_that_comes_late_waits_for_one_turn_and_is_not_paid_for_before() {
        let (parts, mut turns) = (Parts::default(), Turns::default());
        for at in 0..8 {
            turns.push(&name("a"), 10, ("a", at));
        }
        for at in 0..4 {
            assert_eq!(pop(&mut turns, &parts), Some(("a", at)));
        }
        for at in 0..3 {
            turns.push(&name("b"), 10, ("b", at));
        }
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut turns, &parts))
            .map(|it| it.0)
            .collect();
        assert_eq!(order.concat(), "bababaa");
        assert!(turns.is_empty());
    }

    #[test]
    fn in_the_tree_each_row_is_shared_by_itself() {
        let parts = parts(&[("org", 2), ("org/x", 3)]);
        let mut turns = Turns::default();
        for tenant in ["org", "org/x", "web"] {
            for _ in 0..120 {
                turns.push(&name(tenant), 1, tenant);
            }
        }
        let first: Vec<_> = (0..120).filter_map(|_| pop(&mut turns, &parts)).collect();
        let of = |tenant: &str| first.iter().filter(|it| **it == tenant).count();
        assert_eq!(["org", "org/x", "web"].map(of), [20, 60, 40]);
    }

    #[test]
    fn what_has_gone_counts_for_nobody() {
        let (parts, mut turns) = (Parts::default(), Turns::default());
        for at in 0..4 {
            turns.push(&name("a"), 10, ("a", at));
        }
        turns.push(&name("b"), 10, ("b", 4));
        let mut order = Vec::new();
        while let Some(next) = turns.pop(&parts, |it| it.1 < 3) {
            order.push(next);
        }
        assert_eq!(order, [("a", 3), ("b", 4)]);
        turns.push(&name("a"), 10, ("a", 5));
        assert_eq!(turns.pop(&parts, |_| true), None);
        assert!(turns.is_empty());
    }

    #[test]
    fn of_tenants_that_come_and_go_little_is_kept() {
        let (parts, mut turns) = (Parts::default(), Turns::default());
        turns.push(&name("org/first"), 10, 0);
        for at in 1..2_000 {
            turns.push(&name(&format!("org/{at}")), 10, at);
            turns.push(&name(&format!("{at}/x")), 10, at);
            assert!(pop(&mut turns, &parts).is_some() && pop(&mut turns, &parts).is_some());
            assert!(!turns.is_empty());
            let most = 2 * (MOST_IDLE + 10);
            assert!(turns.finishes.len() <= most && turns.times.len() <= most);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// While all wait, what two have got by weight differs by a piece of each at most (theorem 1 of the paper).
        #[test]
        fn bytes_are_by_weight(
            weights in prop::collection::vec(1_u64..9, 2..5),
            sizes in prop::collection::vec(1_u64..100, 200),
        ) {
            const NAMES: [&str; 4] = ["a", "b", "c", "d"];
            let named: Vec<_> = NAMES.into_iter().zip(weights.iter().copied()).collect();
            let (parts, mut turns) = (parts(&named), Turns::default());
            for (tenant, _) in &named {
                for size in &sizes {
                    turns.push(&name(tenant), *size, (*tenant, *size));
                }
            }
            let mut sent: BTreeMap<&str, u64> = BTreeMap::new();
            for _ in 0..sizes.len() {
                let (tenant, size) = pop(&mut turns, &parts).unwrap();
                *sent.entry(tenant).or_default() += size;
                for (a, of_a) in &named {
                    for (b, of_b) in &named {
                        let got = |tenant: &str| sent.get(tenant).copied().unwrap_or_default();
                        // Each is multiplied by both weights; a step for what divisions have rounded.
                        let apart = (got(a) * of_b).saturating_sub(got(b) * of_a);
                        prop_assert!(apart <= 100 * (of_a + of_b), "{a} is {apart} ahead of {b}");
                    }
                }
            }
        }
    }
}
