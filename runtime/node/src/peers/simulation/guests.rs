//! What runs in place of guests.
//!
//! Owns plans: what a task does follows from its argument alone, and so does what must come of it, whatever happens to
//! nodes meanwhile.

use std::time::Duration;

use wasmrun_engine::{Entry, GuestArgument, Invocation, Outcome, ServiceError, Wishes};
use wasmrun_model::failure::TaskError;
use wasmrun_model::random::Random;
use wasmrun_model::value::{Encoded, NumberKind};

use crate::testing;

/// More than goes with messages.
const LARGE: usize = 80_000;
/// More than is sent with the message that begins a task.
const LONG: usize = 70_000;
/// What stands for a failure that was planned, in the result of who waited for it.
const FAILURE: u64 = 666;

/// A component with a function of the type that plans have. Its code never runs.
pub(super) const MODULE: &str = r#"(component
    (core module $m
      (memory (export "memory") 1)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
      (func (export "f") (param i32 i32) (result i32) (i32.const 0)))
    (core instance $i (instantiate $m))
    (func (export "f") (param "plan" (list u8)) (result (list u8))
      (canon lift (core func $i "f")
        (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"#;

/// What a task is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// How deep those may be nested that it starts.
    pub(super) depth: u8,
}

/// The same, in full.
struct Steps {
    sleep: Duration,
    fails: bool,
    is_large: bool,
    children: Vec<Child>,
}

struct Child {
    plan: Plan,
    /// What it depends on besides.
    needs: Needs,
    is_awaited: bool,
    /// Whether its argument is too long for the message that begins it.
    is_long: bool,
    cpus: &'static str,
}

#[derive(Clone, Copy)]
enum Needs {
    Nothing,
    /// An object that its parent puts.
    Object,
    /// What the child before it makes.
    Sibling,
}

impl Plan {
    /// As an argument, which may be longer than it need be.
    pub(super) fn to_bytes(self, is_long: bool) -> Vec<u8> {
        let mut bytes = self.seed.to_le_bytes().to_vec();
        bytes.push(self.depth);
        bytes.resize(if is_long { LONG } else { bytes.len() }, 0);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let (seed, depth) = bytes.split_first_chunk().expect("a plan");
        Self {
            seed: u64::from_le_bytes(*seed),
            depth: depth[0],
        }
    }

    fn steps(self) -> Steps {
        let mut random = Random::new(self.seed);
        let count = if self.depth == 0 { 0 } else { random.below(4) };
        let children = (0..count).map(|at| Child {
            plan: Plan {
                seed: random.next(),
                depth: self.depth - 1,
            },
            needs: match random.below(6) {
                0 => Needs::Object,
                1 if at > 0 => Needs::Sibling,
                _ => Needs::Nothing,
            },
            is_awaited: random.below(5) > 0,
            is_long: random.below(8) == 0,
            cpus: ["0.5", "1", "2"][random.below(3)],
        });
        let children = children.collect();
        Steps {
            sleep: Duration::from_millis(random.below(300) as u64),
            fails: random.below(20) == 0,
            is_large: random.below(4) == 0,
            children,
        }
    }

    /// What comes of it; none if it fails.
    pub(super) fn expected(self) -> Option<u64> {
        let steps = self.steps();
        let results = steps.expected_of_children();
        let awaited = steps.children.iter().zip(results);
        let awaited = awaited.filter(|(child, _)| child.is_awaited);
        let all = awaited.map(|(_, result)| result.unwrap_or(FAILURE));
        (!steps.fails).then(|| all.fold(self.seed, mixed))
    }
}

fn mixed(one: u64, other: u64) -> u64 {
    Random::new(one.rotate_left(7) ^ other).next()
}

impl Steps {
    fn expected_of_children(&self) -> Vec<Option<u64>> {
        let mut all: Vec<Option<u64>> = Vec::new();
        for child in &self.children {
            let can_start = match child.needs {
                Needs::Sibling => all.last().is_some_and(Option::is_some),
                Needs::Object | Needs::Nothing => true,
            };
            all.push(child.plan.expected().filter(|_| can_start));
        }
        all
    }
}

/// The bytes that stand for a result.
fn encoded(result: u64, is_large: bool) -> Encoded {
    let times = if is_large { LARGE / 8 } else { 1 };
    Encoded::Buffer {
        kind: NumberKind::U8,
        bytes: result.to_le_bytes().repeat(times),
    }
}

/// The result that these bytes stand for.
pub(super) fn decoded(bytes: &[u8]) -> u64 {
    let (first, _) = bytes.split_first_chunk().expect("a result");
    assert!(
        bytes.chunks(8).all(|chunk| chunk == first),
        "a result that has changed"
    );
    u64::from_le_bytes(*first)
}

/// Carries out plans.
pub(super) struct Guests;

#[async_trait::async_trait]
impl testing::Guests for Guests {
    async fn run(&self, invocation: Invocation<'_>) -> Result<Outcome, TaskError> {
        let plan = Plan::from_bytes(invocation.values[0].bytes());
        let steps = plan.steps();
        for object in &invocation.values[1..] {
            // It is a result, or what the parent has put, and nothing else.
            decoded(object.bytes());
        }
        let services = invocation.services;
        let Entry::Function(function) = invocation.entry else {
            unreachable!("plans are functions");
        };
        let broken = |error: ServiceError| TaskError::Sandbox(format!("not planned: {error}"));
        tokio::time::sleep(steps.sleep / 2).await;
        let mut futures = Vec::new();
        for child in &steps.children {
            let mut given = vec![GuestArgument::Value(child.plan.to_bytes(child.is_long))];
            match child.needs {
                Needs::Nothing => {}
                Needs::Object => {
                    let object = services.put(encoded(plan.seed, true), Vec::new()).await;
                    given.push(GuestArgument::Object(object.map_err(broken)?));
                }
                Needs::Sibling => given.push(GuestArgument::Object(
                    *futures.last().expect("the one before"),
                )),
            }
            let wishes = Wishes {
                resources: vec![("CPU".into(), child.cpus.into())],
                retries: Some(50),
                ..Wishes::default()
            };
            let future = services.spawn(function, given, wishes);
            futures.push(future.map_err(broken)?);
        }
        tokio::time::sleep(steps.sleep / 2).await;
        let mut result = plan.seed;
        let expected = steps.expected_of_children();
        for ((child, future), expected) in steps.children.iter().zip(&futures).zip(expected) {
            if !child.is_awaited {
                continue;
            }
            let came = match services.get(*future, None).await {
                Ok(value) => Some(decoded(value.encoded().bytes())),
                Err(ServiceError::Failed { .. }) if expected.is_none() => None,
                Err(error) => return Err(broken(error)),
            };
            assert_eq!(came, expected, "what {:?} made", child.plan);
            result = mixed(result, came.unwrap_or(FAILURE));
        }
        for future in futures {
            services.release(future);
        }
        match steps.fails {
            // Of a kind that is not tried again.
            true => Err(TaskError::Arguments("planned".to_owned())),
            false => Ok(Outcome {
                result: Some(encoded(result, steps.is_large)),
                handles: Vec::new(),
                memory_peak: 0,
            }),
        }
    }
}
