//! Property tests of bundles: tasks inside reservations against an id-level ledger.
//!
//! Owns the generators and the ledger. The oracles: no unit, and no more of one than the bundle
//! has, is given out twice; a refusal changes nothing; the node gets exactly back what it gave.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn node(json: &str) -> NodeResources {
    NodeResources::of(&serde_json::from_str(json).unwrap()).unwrap()
}

fn requests() -> impl Strategy<Value = Request> {
    let indexed = || {
        let shares = vec![1_000u64, 2_500, 4_000, 5_000, 6_000, 7_500];
        prop_oneof![
            Just(0u64),
            (1u64..4).prop_map(|units| units * Amount::STEPS_PER_UNIT),
            prop::sample::select(shares),
        ]
    };
    (indexed(), indexed(), 0u64..30_000).prop_map(|(cpu, gpu, memory)| {
        let amounts = ResourceSet::new()
            .with(ResourceName::CPU, Amount::from_steps(cpu))
            .with(ResourceName::GPU, Amount::from_steps(gpu))
            .with(ResourceName::MEMORY, Amount::from_steps(memory));
        Request::new(amounts).unwrap()
    })
}

#[derive(Debug, Clone)]
enum Step {
    Reserve(Request),
    GiveBack(usize),
    Acquire(usize, Request),
    Release(usize, usize),
    Block(usize, usize),
    Unblock(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = any::<usize>;
    let step = prop_oneof![
        2 => requests().prop_map(Step::Reserve),
        1 => at().prop_map(Step::GiveBack),
        8 => (at(), requests()).prop_map(|(at, wanted)| Step::Acquire(at, wanted)),
        4 => (at(), at()).prop_map(|(at, task)| Step::Release(at, task)),
        1 => (at(), at()).prop_map(|(at, task)| Step::Block(at, task)),
        1 => (at(), at()).prop_map(|(at, task)| Step::Unblock(at, task)),
    ];
    prop::collection::vec(step, 0..80)
}

struct Task {
    wanted: Request,
    held: Allocation,
    is_blocked: bool,
}

type Ledger = BTreeMap<(ResourceName, Option<ResourceId>), u64>;

/// How much of each unit, and of what has none, some allocations hold.
fn ledger<'a>(held: impl Iterator<Item = &'a Allocation>) -> Ledger {
    let mut ledger = Ledger::new();
    for (name, part) in held.flat_map(Allocation::iter) {
        let ids: Vec<_> = part.ids().map(|(id, amount)| (Some(id), amount)).collect();
        let all = if ids.is_empty() {
            vec![(None, part.amount())]
        } else {
            ids
        };
        for (id, amount) in all {
            *ledger.entry((name.clone(), id)).or_default() += amount.steps();
        }
    }
    ledger
}

struct World {
    node: NodeResources,
    bundles: Vec<(Bundle, Vec<Task>)>,
}

impl World {
    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let bundles = self.bundles.len();
        let task_of = |bundles: &[(Bundle, Vec<Task>)], at: usize, task: usize| {
            let at = at.checked_rem(bundles.len())?;
            Some((at, task.checked_rem(bundles[at].1.len())?))
        };
        match step {
            Step::Reserve(wanted) => {
                if let Ok(held) = self.node.acquire(&wanted) {
                    self.bundles.push((Bundle::new(held), Vec::new()));
                }
            }
            Step::GiveBack(at) => {
                let Some(at) = at.checked_rem(bundles) else {
                    return Ok(());
                };
                let (mut bundle, tasks) = self.bundles.remove(at);
                tasks.into_iter().for_each(|task| bundle.release(task.held));
                self.node.release(bundle.into_allocation());
            }
            Step::Acquire(at, wanted) => {
                let Some(at) = at.checked_rem(bundles) else {
                    return Ok(());
                };
                let (bundle, tasks) = &mut self.bundles[at];
                let fit = bundle.judge(&wanted);
                prop_assert_eq!(bundle.can_acquire(&wanted), fit == Fit::Available);
                let before = format!("{bundle:?}");
                match bundle.acquire(&wanted) {
                    Ok(held) => {
                        prop_assert_eq!(&held.amounts(), wanted.amounts());
                        tasks.push(Task {
                            wanted,
                            held,
                            is_blocked: false,
                        });
                    }
                    Err(AcquireError::Unavailable(why)) => {
                        prop_assert_eq!(fit, Fit::Unavailable(why));
                        prop_assert_eq!(format!("{bundle:?}"), before);
                    }
                    Err(AcquireError::Infeasible(why)) => {
                        prop_assert_eq!(fit, Fit::Infeasible(why));
                        prop_assert_eq!(format!("{bundle:?}"), before);
                    }
                }
            }
            Step::Release(at, task) => {
                if let Some((at, task)) = task_of(&self.bundles, at, task) {
                    let (bundle, tasks) = &mut self.bundles[at];
                    bundle.release(tasks.remove(task).held);
                }
            }
            Step::Block(at, task) => {
                if let Some((at, task)) = task_of(&self.bundles, at, task) {
                    let (bundle, tasks) = &mut self.bundles[at];
                    bundle.release_cpu(&mut tasks[task].held);
                    tasks[task].is_blocked = true;
                }
            }
            Step::Unblock(at, task) => {
                if let Some((at, task)) = task_of(&self.bundles, at, task)
                    && self.bundles[at].1[task].is_blocked
                {
                    let (bundle, tasks) = &mut self.bundles[at];
                    let Task { wanted, held, .. } = &mut tasks[task];
                    let can = bundle.can_acquire(&wanted.cpu_part());
                    let done = bundle.reacquire_cpu(wanted, held).is_ok();
                    prop_assert_eq!(can, done);
                    tasks[task].is_blocked = !done;
                }
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (bundle, tasks) in &self.bundles {
            let has = ledger(std::iter::once(bundle.allocation()));
            let used = ledger(tasks.iter().map(|task| &task.held));
            for (unit, steps) in &used {
                let limit = has.get(unit).copied().unwrap_or(0);
                prop_assert!(*steps <= limit, "{:?}: {} of {}", unit, steps, limit);
            }
            let mut sum = bundle.available();
            for task in tasks {
                sum.add(&task.held.amounts()).unwrap();
            }
            prop_assert_eq!(sum, bundle.total());
            prop_assert_eq!(bundle.is_idle(), used.is_empty());
        }
        Ok(())
    }
}

impl Drop for World {
    /// A failing case shows its own message, not that of the allocations it leaves.
    fn drop(&mut self) {
        for (bundle, tasks) in self.bundles.drain(..) {
            tasks.into_iter().for_each(|task| task.held.abandon());
            bundle.abandon();
        }
    }
}

proptest! {
    #[test]
    fn nothing_in_a_bundle_is_given_twice_and_all_comes_back(steps in steps()) {
        let mut world = World {
            node: node(r#"{"CPU": 6, "GPU": 4, "memory": 5}"#),
            bundles: Vec::new(),
        };
        for step in steps {
            world.step(step)?;
            world.check()?;
        }
        while !world.bundles.is_empty() {
            world.step(Step::GiveBack(0))?;
        }
        prop_assert_eq!(&world.node, &node(r#"{"CPU": 6, "GPU": 4, "memory": 5}"#));
    }
}
