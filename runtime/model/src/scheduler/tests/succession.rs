//! What goes from a task to its heir goes to it by the long way, too.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{With, check, driver_id, info, local_config, node_id, resources, task};
use crate::fairness::Policy;
use crate::id::TaskId;
use crate::resource::{Amount, ResourceName};
use crate::scheduler::{Config, Effect, Event, Scheduler, Setting, Settings};
use crate::task::{Attempt, FailureKind, TaskSpec};
use crate::time::Instant;

const SHAPES: [&str; 6] = [
    r#"{"CPU": 1, "memory": 100}"#,
    r#"{"CPU": 1, "memory": 100}"#,
    r#"{"CPU": 2}"#,
    r#"{"CPU": "0.5"}"#,
    r#"{"CPU": 1, "GPU": 1}"#,
    r#"{"memory": 300}"#,
];

/// Two that get the same events; the second gives everything back before it looks who starts.
struct Twins {
    both: [Scheduler; 2],
    now: Instant,
    running: Vec<(TaskId, Attempt)>,
    waiting: Vec<TaskId>,
    heirs: u32,
}

impl Twins {
    fn new(config: &Config) -> Self {
        let both = [(); 2].map(|()| {
            let mut scheduler = Scheduler::new(config.clone());
            let node = Event::OwnNode {
                node: info(0, 1, ""),
                resources: resources(r#"{"CPU": 3, "GPU": 2, "memory": 800}"#).into(),
            };
            scheduler.handle(Instant::ZERO, node);
            scheduler
        });
        Self {
            both,
            now: Instant::ZERO,
            running: Vec::new(),
            waiting: Vec::new(),
            heirs: 0,
        }
    }

    fn event(&mut self, make: impl Fn() -> Event) {
        let now = self.now;
        let told = self.both.each_mut().map(|scheduler| {
            scheduler.note(now, make());
            scheduler
        });
        let [quick, long] = told;
        self.heirs += u32::from(quick.estate.is_some());
        long.settle_estate();
        let effects = [quick, long].map(|scheduler| {
            scheduler.dispatch();
            check(scheduler);
            let effects = std::iter::from_fn(|| scheduler.poll_effect());
            effects.collect::<Vec<Effect>>()
        });
        assert_eq!(format!("{:?}", effects[0]), format!("{:?}", effects[1]));
        for effect in &effects[0] {
            match effect {
                Effect::Dispatch { task, attempt, .. } => {
                    self.waiting.retain(|it| it != task);
                    self.running.push((*task, *attempt));
                }
                Effect::Ended { task, .. } | Effect::Retried { task, .. } => {
                    self.waiting.retain(|it| it != task);
                    self.running.retain(|(it, _)| it != task);
                    if matches!(effect, Effect::Retried { .. }) {
                        self.waiting.push(*task);
                    }
                }
                _ => {}
            }
        }
        self.compare();
    }

    fn compare(&self) {
        let told = self.both.each_ref().map(|scheduler| {
            let held = |(task, _): &(TaskId, Attempt)| {
                let assignment = scheduler.assignment(task)?;
                Some((assignment.alternative, assignment.allocation.holdings()))
            };
            let held: BTreeMap<_, _> = self.running.iter().map(|it| (it.0, held(it))).collect();
            let own = scheduler.own_view();
            let (status, starving) = (scheduler.status(), &scheduler.starving);
            format!("{held:?} {own:?} {status:?} {starving:?}")
        });
        assert_eq!(told[0], told[1]);
    }

    fn step(&mut self, number: usize, what: u8, which: u8) {
        let nth = |len: usize| usize::from(which) % len.max(1);
        let running = self.running.get(nth(self.running.len())).copied();
        match what {
            // Mostly of one shape: so that there are long lines of one kind.
            0..=9 => {
                let shape = SHAPES[if what < 7 { 0 } else { nth(SHAPES.len()) }];
                let tenant = if which < 200 { "a" } else { "b" };
                let spec = || TaskSpec {
                    id: driver_id(1).task(number as u64),
                    ..task(0, shape).tenant(tenant)
                };
                self.waiting.push(spec().id);
                self.event(|| Event::Submit(spec()));
            }
            10..=21 => {
                if let Some((task, attempt)) = running {
                    self.event(|| Event::Finished { task, attempt });
                }
            }
            22 => {
                if let Some((task, attempt)) = running {
                    let kind = FailureKind::Retryable;
                    self.event(|| Event::Failed {
                        task,
                        attempt,
                        kind,
                    });
                }
            }
            23 => {
                if let Some((task, attempt)) = running {
                    self.event(|| Event::Blocked { task, attempt });
                }
            }
            24 => {
                if let Some((task, attempt)) = running {
                    self.event(|| Event::Unblocked { task, attempt });
                }
            }
            25 => {
                if let Some(task) = self.waiting.get(nth(self.waiting.len())).copied() {
                    self.event(|| Event::Cancel(task));
                }
            }
            26 => {
                if let Some((task, _)) = running {
                    self.event(|| Event::Cancel(task));
                }
            }
            27 => {
                let capacity = Amount::units(u32::from(which) % 5);
                self.event(|| Event::SetCapacity {
                    node: node_id(0),
                    name: ResourceName::CPU,
                    capacity,
                });
            }
            28 => self.event(|| Event::SetDraining {
                node: node_id(0),
                is_draining: which < 100,
            }),
            _ => {
                self.now = self.now + Duration::from_millis(u64::from(which) * 100);
                self.event(|| Event::Tick);
            }
        }
    }
}

fn twins(steps: Vec<(u8, u8)>, policy: Policy, max_running: u32, accepts_all: bool) -> u32 {
    let config = Config {
        settings: Settings::default().with(Setting::Policy(policy)),
        max_running,
        accepts_all,
        ..local_config()
    };
    let mut twins = Twins::new(&config);
    for (number, (what, which)) in steps.into_iter().enumerate() {
        twins.step(number, what, which);
    }
    let heirs = twins.heirs;
    twins.event(|| Event::DriverGone(driver_id(1)));
    while let Some((task, attempt)) = twins.running.first().copied() {
        twins.event(|| Event::Finished { task, attempt });
    }
    heirs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn it_is_the_same_by_the_long_way(
        steps in vec((0u8..30, any::<u8>()), 0..250),
        policy in prop::sample::select(vec![Policy::Fifo, Policy::Drf, Policy::Fair]),
        max_running in prop::sample::select(vec![2, 1000]),
        accepts_all in any::<bool>(),
    ) {
        twins(steps, policy, max_running, accepts_all);
    }
}

#[test]
fn a_long_line_goes_this_way() {
    let submits = (0..50).map(|_| (0, 0));
    let ends = (0..60).map(|at| (10, at));
    let heirs = twins(submits.chain(ends).collect(), Policy::Drf, 1000, true);
    // All but the three that started at once.
    assert_eq!(heirs, 47);
}
