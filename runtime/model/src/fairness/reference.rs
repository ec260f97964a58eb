//! Dominant resource fairness as the paper defines it, of demands that can be divided: what the
//! real thing is compared with. Exact rationals, nothing fast.

use std::cmp::Ordering;
use std::ops::{Add, Div, Mul, Sub};

/// A fraction in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rational {
    numerator: i128,
    /// Above 0.
    denominator: i128,
}

impl Rational {
    pub(super) const ZERO: Self = Self {
        numerator: 0,
        denominator: 1,
    };

    pub(super) fn new(numerator: i128, denominator: i128) -> Self {
        assert_ne!(denominator, 0);
        let (mut a, mut b) = (numerator.abs(), denominator.abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let common = a * denominator.signum();
        Self {
            numerator: numerator / common,
            denominator: denominator / common,
        }
    }

    pub(super) fn whole(number: u64) -> Self {
        Self::new(number.into(), 1)
    }
}

fn times(a: i128, b: i128) -> i128 {
    a.checked_mul(b).expect("test cases are small")
}

impl Add for Rational {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let left = times(self.numerator, other.denominator);
        let right = times(other.numerator, self.denominator);
        Self::new(left + right, times(self.denominator, other.denominator))
    }
}

impl Sub for Rational {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + other * Self::new(-1, 1)
    }
}

impl Mul for Rational {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self::new(
            times(self.numerator, other.numerator),
            times(self.denominator, other.denominator),
        )
    }
}

impl Div for Rational {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        Self::new(
            times(self.numerator, other.denominator),
            times(self.denominator, other.numerator),
        )
    }
}

impl std::iter::Sum for Rational {
    fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
        numbers.fold(Self::ZERO, Add::add)
    }
}

impl PartialOrd for Rational {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rational {
    fn cmp(&self, other: &Self) -> Ordering {
        times(self.numerator, other.denominator).cmp(&times(other.numerator, self.denominator))
    }
}

/// Tasks that are all alike, as many as there is room for.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    /// What one task needs of each resource; not all 0.
    pub(super) demand: Vec<u64>,
    pub(super) weight: u64,
}

impl Asker {
    /// The dominant share of one task.
    pub(super) fn share(&self, capacity: &[u64]) -> Rational {
        let shares = self.demand.iter().zip(capacity);
        shares
            .map(|(&needs, &capacity)| Rational::new(needs.into(), capacity.into()))
            .max()
            .expect("there are resources")
    }

    /// How many tasks (and parts of one) run with these amounts.
    pub(super) fn tasks_with(&self, amounts: &[Rational]) -> Rational {
        let needed = self.demand.iter().zip(amounts);
        needed
            .filter(|(needs, _)| **needs > 0)
            .map(|(&needs, &amount)| amount / Rational::whole(needs))
            .min()
            .expect("it needs something")
    }

    /// What this many tasks need.
    pub(super) fn amounts(&self, tasks: Rational) -> Vec<Rational> {
        self.demand
            .iter()
            .map(|&needs| tasks * Rational::whole(needs))
            .collect()
    }
}

/// How many tasks each may run: all dominant shares ÷ weight grow alike; whoever needs a resource
/// that is used up stays where it is, and the others go on.
pub(super) fn drf_divisible(capacity: &[u64], askers: &[Asker]) -> Vec<Rational> {
    let mut tasks = vec![Rational::ZERO; askers.len()];
    let mut left: Vec<_> = capacity.iter().map(|&all| Rational::whole(all)).collect();
    let mut growing: Vec<usize> = (0..askers.len()).collect();
    // Tasks by which one grows while the common level grows by 1.
    let pace = |at: usize| Rational::whole(askers[at].weight) / askers[at].share(capacity);
    while !growing.is_empty() {
        let use_of = |resource: usize| -> Rational {
            growing
                .iter()
                .map(|&at| pace(at) * Rational::whole(askers[at].demand[resource]))
                .sum()
        };
        let uses: Vec<_> = (0..capacity.len()).map(use_of).collect();
        let level = left
            .iter()
            .zip(&uses)
            .filter(|(_, used)| **used > Rational::ZERO)
            .map(|(&left, &used)| left / used)
            .min()
            .expect("everyone needs something");
        for &at in &growing {
            tasks[at] = tasks[at] + level * pace(at);
        }
        for (left, used) in left.iter_mut().zip(&uses) {
            *left = *left - level * *used;
        }
        let has_room = |(needs, left): (&u64, &Rational)| *needs == 0 || *left > Rational::ZERO;
        growing.retain(|&at| askers[at].demand.iter().zip(&left).all(has_room));
    }
    tasks
}

#[test]
fn the_papers_cases() {
    let of = |demand: &[u64], weight| Asker {
        demand: demand.to_vec(),
        weight,
    };
    let run = |capacity: &[u64], askers: &[Asker]| drf_divisible(capacity, askers);
    let whole = Rational::whole;
    // Figure 2 and section 4.1.
    let tasks = run(&[9, 18], &[of(&[1, 4], 1), of(&[3, 1], 1)]);
    assert_eq!(tasks, [whole(3), whole(2)]);
    // A's tasks are three times as large in their dominant resource.
    let tasks = run(&[30, 30], &[of(&[1, 3], 1), of(&[1, 1], 1)]);
    assert_eq!(tasks, [whole(5), whole(15)]);
    // Whoever does not need what is used up goes on.
    let tasks = run(&[10, 10], &[of(&[1, 0], 1), of(&[1, 0], 1), of(&[0, 1], 3)]);
    assert_eq!(tasks, [whole(5), whole(5), whole(10)]);
    // By weight.
    let tasks = run(&[12], &[of(&[1], 1), of(&[2], 2)]);
    assert_eq!(tasks, [whole(4), whole(4)]);
}
