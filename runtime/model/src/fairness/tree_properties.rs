//! Property tests of sharing in the tree of tenants: the four properties of dominant resource fairness at each level, within one
//! task, on the table itself.
//!
//! All who share need something of everything, so that one resource that is full is full for all: what a tenant leaves when it
//! can use no more goes to others, and the paper says nothing of levels then.
//!
//! Source: Ghodsi et al., NSDI 2011, section 4.

use proptest::prelude::*;

use super::properties::{units, weight};
use super::reference::Rational;
use super::*;
use crate::resource::{Amount, ResourceName, ResourceSet};
use crate::time::Instant;

const NAMES: [ResourceName; 3] = [ResourceName::CPU, ResourceName::GPU, ResourceName::MEMORY];
/// Those that run tasks.
const LEAVES: [&str; 4] = ["a/x/1", "a/x/2", "a/y", "b"];
/// Who shares what with whom: of all there is, or of what one has.
const ROWS: [(Option<&str>, [&str; 2]); 3] = [
    (None, ["a", "b"]),
    (Some("a"), ["a/x", "a/y"]),
    (Some("a/x"), ["a/x/1", "a/x/2"]),
];
/// All, those that others are part of included.
const ALL: [&str; 6] = ["a", "a/x", "a/x/1", "a/x/2", "a/y", "b"];

/// The largest need of one task, and the smallest capacity, in whole units.
const LARGEST_NEED: u64 = 10;
const SMALLEST_CAPACITY: u64 = 1_000;

/// A cluster, and who shares it.
#[derive(Debug, Clone)]
struct Case {
    capacity: Vec<u64>,
    /// What a task of each leaf needs.
    needs: Vec<Vec<u64>>,
    /// Of [`ALL`].
    weights: Vec<u64>,
}

fn need() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(1..=LARGEST_NEED, 3)
}

fn cases() -> impl Strategy<Value = Case> {
    let capacity = prop::collection::vec(SMALLEST_CAPACITY..2_000, 3);
    let needs = prop::collection::vec(need(), LEAVES.len());
    let weights = prop::collection::vec(1u64..4, ALL.len());
    (capacity, needs, weights).prop_map(|(capacity, needs, weights)| Case {
        capacity,
        needs,
        weights,
    })
}

/// A cluster that is full.
struct Filled {
    tenants: Tenants,
    capacity: Vec<u64>,
    /// How many tasks of each leaf run.
    tasks: [u64; LEAVES.len()],
    left: ResourceSet,
}

impl Case {
    /// Starts the task of whose turn it is, until that does not fit.
    fn fill(&self) -> Filled {
        let mut tenants = Tenants::new(Policy::Drf);
        tenants.set_total(units(&self.capacity));
        for (name, by) in std::iter::zip(ALL, &self.weights) {
            let config = TenantConfig {
                weight: weight(by * Amount::STEPS_PER_UNIT),
                ..TenantConfig::default()
            };
            tenants.set_config(&name.parse().unwrap(), config).unwrap();
        }
        let leaves = LEAVES.map(|name| tenants.find(&name.parse().unwrap()).unwrap());
        for leaf in leaves {
            tenants.note_submission(leaf, Instant::ZERO);
        }
        let (mut left, mut tasks) = (units(&self.capacity), [0; LEAVES.len()]);
        loop {
            let first = (0..LEAVES.len()).min_by(|a, b| tenants.order(leaves[*a], leaves[*b]));
            let first = first.unwrap();
            let need = units(&self.needs[first]);
            if !need.is_subset(&left) {
                break;
            }
            left.subtract(&need).unwrap();
            tenants.charge(leaves[first], &need);
            tasks[first] += 1;
        }
        Filled {
            tenants,
            capacity: self.capacity.clone(),
            tasks,
            left,
        }
    }

    fn weight(&self, name: &str) -> Rational {
        let at = ALL.iter().position(|it| *it == name).unwrap();
        Rational::whole(self.weights[at])
    }
}

impl Filled {
    /// What of all there is of a resource a tenant has, with those below it.
    fn part(&self, name: &str, resource: usize) -> Rational {
        let ix = self.tenants.find(&name.parse().unwrap()).unwrap();
        let used = self.tenants.get(ix).used(&NAMES[resource]);
        let all = self.capacity[resource] * Amount::STEPS_PER_UNIT;
        Rational::new(used.steps().into(), all.into())
    }

    fn dominant(&self, name: &str) -> usize {
        (0..3).max_by_key(|it| self.part(name, *it)).unwrap()
    }

    fn share(&self, name: &str) -> Rational {
        self.part(name, self.dominant(name))
    }
}

/// What one task takes of any resource, at most.
fn one_task() -> Rational {
    Rational::new(LARGEST_NEED.into(), SMALLEST_CAPACITY.into())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Everybody has at least the part, by weight, of what those have together who share it.
    #[test]
    fn sharing_incentive_at_each_level(case in cases()) {
        let filled = case.fill();
        for (parent, row) in ROWS {
            let all = parent.map_or(Rational::whole(1), |parent| filled.share(parent));
            let weights: Rational = row.iter().map(|it| case.weight(it)).sum();
            for name in row {
                let weight = case.weight(name);
                let lost = one_task() * (weight + Rational::whole(1));
                prop_assert!(filled.share(name) + lost >= all * weight / weights, "{name}");
            }
        }
    }

    /// Nobody has more than a sibling of what matters most to that one, by weight.
    #[test]
    fn envy_freeness_at_each_level(case in cases()) {
        let filled = case.fill();
        for (_, [one, other]) in ROWS {
            for (own, others) in [(one, other), (other, one)] {
                let theirs = filled.part(others, filled.dominant(own)) / case.weight(others);
                let ours = filled.share(own) / case.weight(own);
                prop_assert!(theirs <= ours + one_task(), "{own} envies {others}");
            }
        }
    }

    /// Nothing more is given than there is, and what is left of some resource is less than one task.
    #[test]
    fn pareto_efficiency_in_the_tree(case in cases()) {
        let filled = case.fill();
        let mut sum = filled.left.clone();
        for leaf in LEAVES {
            let ix = filled.tenants.find(&leaf.parse().unwrap()).unwrap();
            sum.add(&filled.tenants.get(ix).usage()).unwrap();
        }
        prop_assert_eq!(sum, units(&case.capacity));
        let one = LARGEST_NEED * Amount::STEPS_PER_UNIT;
        prop_assert!(NAMES.iter().any(|name| filled.left.get(name).steps() < one));
    }

    /// Who says to need something else runs no more tasks that need what they really do, but for one at each level.
    #[test]
    fn strategy_proofness_in_the_tree(
        case in cases(),
        who in 0..LEAVES.len(),
        lies in prop::collection::vec(need(), 1..6),
    ) {
        let honest = case.fill().tasks[who];
        for lie in lies {
            let mut said = case.clone();
            said.needs[who].clone_from(&lie);
            let tasks = said.fill().tasks[who];
            let useful = std::iter::zip(&lie, &case.needs[who]).map(|(got, need)| got * tasks / need);
            let useful = useful.min().unwrap();
            prop_assert!(useful <= honest + ROWS.len() as u64, "{lie:?}: {useful} of {honest}");
        }
    }
}
