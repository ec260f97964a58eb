//! Property tests of resources: sequences of operations against what must always hold.
//!
//! Owns the generators and the id-level ledger that the implementation is compared with. The
//! oracles: what is free and held is the capacity (with the backlog), no id is given out beyond one
//! unit, a refusal changes nothing, a release undoes its acquire, a report never promises wrongly.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Sets of a few resources, small and large amounts mixed.
pub(super) fn sets() -> impl Strategy<Value = ResourceSet> {
    let name = prop::sample::select(vec!["CPU", "GPU", "memory", "tpu", "bw"]);
    let steps = prop_oneof![0u64..5, 0u64..50_000, 0u64..u64::MAX / 4];
    prop::collection::vec((name, steps), 0..6).prop_map(|entries| {
        let amount =
            |(name, steps): (&str, u64)| (name.parse().unwrap(), Amount::from_steps(steps));
        entries.into_iter().map(amount).collect()
    })
}

#[derive(Debug, Clone)]
enum Step {
    Acquire(Request),
    /// The allocation to release, counted round.
    Release(usize),
    Block(usize),
    Unblock(usize),
    Resize(ResourceName, Amount),
    Delete(ResourceName),
    /// A claim, and what is asked for after it.
    Claim(Request, Request),
}

/// GPUs ask for units or shares, the sum `bw` for anything.
fn requests() -> impl Strategy<Value = Request> {
    let indexed = || {
        prop_oneof![
            2 => Just(0u64),
            3 => (1u64..4).prop_map(|units| units * Amount::STEPS_PER_UNIT),
            2 => prop::sample::select(vec![2_500u64, 4_000, 5_000, 6_000, 7_500]),
            1 => 1u64..Amount::STEPS_PER_UNIT,
        ]
    };
    (indexed(), indexed(), 0u64..40_000).prop_map(|(cpu, gpu, bandwidth)| {
        let amounts = ResourceSet::new()
            .with(ResourceName::CPU, Amount::from_steps(cpu))
            .with(ResourceName::GPU, Amount::from_steps(gpu))
            .with(bandwidth_name(), Amount::from_steps(bandwidth));
        Request::new(amounts).unwrap()
    })
}

fn bandwidth_name() -> ResourceName {
    "bw".parse().unwrap()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let names = || prop::sample::select(vec![ResourceName::CPU, ResourceName::GPU]);
    let step = prop_oneof![
        8 => requests().prop_map(Step::Acquire),
        5 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Block),
        1 => any::<usize>().prop_map(Step::Unblock),
        2 => (names(), 0u32..6).prop_map(|(name, units)| Step::Resize(name, Amount::units(units))),
        1 => (0u64..90_000).prop_map(|n| Step::Resize(bandwidth_name(), Amount::from_steps(n))),
        1 => names().prop_map(Step::Delete),
        2 => (requests(), requests()).prop_map(|(first, second)| Step::Claim(first, second)),
    ];
    prop::collection::vec(step, 0..60)
}

struct Task {
    wanted: Request,
    held: Allocation,
    is_blocked: bool,
}

struct World {
    node: NodeResources,
    tasks: Vec<Task>,
}

impl World {
    fn new() -> Self {
        let mut node = NodeResources::new();
        node.add(
            ResourceName::CPU,
            Pool::grouped(&[vec![0, 2], vec![1, 3]]).unwrap(),
        )
        .unwrap();
        node.set_capacity(&ResourceName::GPU, Amount::units(2))
            .unwrap();
        node.add(bandwidth_name(), Pool::sum(Amount::units(5)))
            .unwrap();
        Self {
            node,
            tasks: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let chosen = |at: usize| at.checked_rem(self.tasks.len());
        match step {
            Step::Acquire(wanted) => self.acquire(wanted)?,
            Step::Release(at) => {
                if let Some(at) = chosen(at) {
                    self.node.release(self.tasks.remove(at).held);
                }
            }
            Step::Block(at) => {
                if let Some(task) = chosen(at).map(|at| &mut self.tasks[at]) {
                    self.node.release_cpu(&mut task.held);
                    task.is_blocked = true;
                }
            }
            Step::Unblock(at) => {
                if let Some(task) = chosen(at).map(|at| &mut self.tasks[at])
                    && task.is_blocked
                {
                    let can = self.node.can_acquire(&task.wanted.cpu_part());
                    let done = self
                        .node
                        .reacquire_cpu(&task.wanted, &mut task.held)
                        .is_ok();
                    prop_assert_eq!(can, done);
                    task.is_blocked = !done;
                }
            }
            Step::Resize(name, capacity) => {
                self.node.set_capacity(&name, capacity).unwrap();
                prop_assert_eq!(self.node.total().get(&name), capacity);
            }
            Step::Delete(name) => {
                self.node.delete(&name);
                prop_assert!(self.node.total().get(&name).is_zero());
            }
            Step::Claim(first, second) => self.claim(&first, &second)?,
        }
        Ok(())
    }

    fn acquire(&mut self, wanted: Request) -> Result<(), TestCaseError> {
        let before = format!("{:?}", self.node);
        let predicted = self.node.report().judge(&wanted);
        match self.node.acquire(&wanted) {
            Ok(held) => {
                prop_assert_eq!(predicted, Fit::Available);
                prop_assert_eq!(&held.amounts(), wanted.amounts());
                // A release at once undoes the acquire.
                self.node.release(held);
                prop_assert_eq!(format!("{:?}", self.node), before);
                let held = self.node.acquire(&wanted).unwrap();
                self.tasks.push(Task {
                    wanted,
                    held,
                    is_blocked: false,
                });
            }
            Err(AcquireError::Unavailable(why)) => {
                prop_assert_eq!(predicted, Fit::Unavailable(why));
                prop_assert_eq!(format!("{:?}", self.node), before);
            }
            Err(AcquireError::Infeasible(why)) => {
                prop_assert_eq!(predicted, Fit::Infeasible(why));
                prop_assert_eq!(format!("{:?}", self.node), before);
            }
        }
        Ok(())
    }

    /// What is truly free beside a claim can be taken after the claim has been served.
    fn claim(&mut self, first: &Request, second: &Request) -> Result<(), TestCaseError> {
        let before = format!("{:?}", self.node);
        let first_fits = self.node.judge(first) == Fit::Available;
        self.node.add_load(first);
        let mut view = self.node.report();
        prop_assert_eq!(self.node.judge(second), view.judge(second));
        let both_fit = first_fits && view.judge(second) == Fit::Available;
        prop_assert!(!both_fit || second.amounts().is_subset(&self.node.truly_free()));
        view.remove_load(first);
        self.node.remove_load(first);
        prop_assert_eq!(&view, &self.node.report());
        if both_fit {
            let held = [
                self.node.acquire(first).unwrap(),
                self.node.acquire(second).unwrap(),
            ];
            held.into_iter().for_each(|held| self.node.release(held));
        }
        prop_assert_eq!(format!("{:?}", self.node), before);
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let node = &self.node;
        let mut held = ResourceSet::new();
        let mut per_id: BTreeMap<(ResourceName, ResourceId), u64> = BTreeMap::new();
        for task in &self.tasks {
            held.add(&task.held.amounts()).unwrap();
            for (name, part) in task.held.iter() {
                for (id, amount) in part.ids() {
                    *per_id.entry((name.clone(), id)).or_default() += amount.steps();
                }
            }
        }
        prop_assert_eq!(
            &node.held(),
            &held,
            "what the node counts is what tasks hold"
        );
        let one = Amount::ONE.steps();
        prop_assert!(
            per_id.values().all(|steps| *steps <= one),
            "an id is over one unit"
        );
        // total + backlog = available + held, per resource.
        let (mut left, mut right) = (node.total(), node.available());
        left.add(&node.backlog()).unwrap();
        right.add(&held).unwrap();
        prop_assert_eq!(left, right);
        // Where something is available, what is held and available fits the total.
        for (name, free) in node.available().iter() {
            let held_and_free = free.checked_add(held.get(name)).unwrap();
            prop_assert!(
                held_and_free <= node.total().get(name),
                "{} beyond the total",
                name
            );
        }
        Ok(())
    }
}

impl Drop for World {
    /// A failing case shows its own message, not that of the allocations it leaves.
    fn drop(&mut self) {
        self.tasks.drain(..).for_each(|task| task.held.abandon());
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_or_given_twice(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step)?;
            world.check()?;
        }
        // Once all tasks have finished, everything is available again.
        while let Some(task) = world.tasks.pop() {
            world.node.release(task.held);
            world.check()?;
        }
        prop_assert_eq!(world.node.available(), world.node.total());
        prop_assert!(world.node.held().is_empty() && world.node.backlog().is_empty());
    }

    #[test]
    fn halves_of_different_ids_never_serve_more_than_either(
        taken in prop::collection::vec(1u64..10_000, 1..8),
        wanted in 1u64..10_000,
    ) {
        let mut pool = Pool::for_name(&ResourceName::GPU, Amount::units(3)).unwrap();
        let take = |steps| pool.acquire(Amount::from_steps(steps));
        let held: Vec<_> = taken.into_iter().filter_map(take).collect();
        let mut left: BTreeMap<u32, u64> = (0..3).map(|id| (id, 10_000)).collect();
        for (id, amount) in held.iter().flat_map(PoolAllocation::ids) {
            *left.get_mut(&id.get()).unwrap() -= amount.steps();
        }
        // The best fit among shared ids, else a whole one, by definition.
        let is_better = |(id, left): (&u32, &u64)| (*left == 10_000, *left, *id);
        let best = left.iter().filter(|(_, left)| **left >= wanted).map(is_better).min();
        let got = pool.acquire(Amount::from_steps(wanted));
        let id = got.as_ref().map(|got| got.ids().next().unwrap().0.get());
        prop_assert_eq!(id, best.map(|(_, _, id)| id));
        held.into_iter().chain(got).for_each(|held| pool.release(held));
        prop_assert_eq!(pool.available(), pool.capacity());
    }
}
