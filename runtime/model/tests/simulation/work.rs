//! What drivers submit: tasks of all kinds, at random.

use std::sync::Arc;

use wasmrun_model::cluster::{Labels, Strategy};
use wasmrun_model::group::{GroupKind, GroupSpec};
use wasmrun_model::id::{ActorId, Digest, DriverId, GroupId, JobId, NodeId, ObjectId};
use wasmrun_model::random::Random;
use wasmrun_model::resource::{Amount, NodeResources, Request, ResourceName, ResourceSet};
use wasmrun_model::task::{Argument, Rule, TaskKind, TaskSpec, Terms};

pub fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())]
}

/// Whether something happens that happens `percent` times of a hundred.
pub fn chance(random: &mut Random, percent: usize) -> bool {
    random.below(100) < percent
}

pub fn node_id(at: usize) -> NodeId {
    NodeId::from_bytes([at as u8; 16])
}

pub fn driver_id(at: usize) -> DriverId {
    DriverId::from_bytes([at as u8; 16])
}

pub fn actor_id(at: usize) -> ActorId {
    ActorId::from_bytes([at as u8; 16])
}

pub fn group_id(at: usize, owner: NodeId) -> GroupId {
    GroupId::of(owner, [at as u8; 8])
}

pub fn object_id(at: usize) -> ObjectId {
    ObjectId::from_bytes([at as u8; 20])
}

pub fn job_id(driver: usize, at: usize) -> JobId {
    let mut id = [driver as u8; 16];
    id[0] = at as u8;
    JobId::from_bytes(id)
}

pub fn amounts(cpu: &str, gpu: &str, memory: u32) -> ResourceSet {
    ResourceSet::new()
        .with(ResourceName::CPU, cpu.parse().expect("an amount"))
        .with(ResourceName::GPU, gpu.parse().expect("an amount"))
        .with(ResourceName::MEMORY, Amount::units(memory))
}

/// The nodes: the first can serve every task that is possible at all.
pub fn resources(at: usize) -> NodeResources {
    let capacities = match at {
        0 => amounts("8", "2", 64),
        at if at % 2 == 1 => amounts("4", "0", 16),
        _ => amounts("2", "1", 32),
    };
    NodeResources::of(&capacities).expect("small capacities")
}

pub fn labels(at: usize) -> Labels {
    let zone = if at.is_multiple_of(2) {
        "zone=a"
    } else {
        "zone=b"
    };
    zone.parse().expect("labels")
}

/// How many objects there are.
pub const OBJECTS: usize = 6;

/// The terms that tasks have; the last ones can never be met.
pub fn all_terms() -> Vec<Arc<Terms>> {
    let request = |cpu, gpu, memory| Request::new(amounts(cpu, gpu, memory)).expect("a request");
    let small = ["0", "0.25", "0.5", "1", "2"].map(|cpu| request(cpu, "0", 2));
    let mut rules: Vec<Rule> = small.into_iter().map(Rule::of).collect();
    rules.push(Rule::of(request("1", "0.5", 4)));
    rules.push(Rule::of(request("8", "0", 0)));
    rules.push(Rule::of(request("4", "2", 8)));
    rules.push(Rule {
        alternatives: vec![request("0", "1", 0), request("6", "0", 0)],
        ..Rule::default()
    });
    for strategy in ["random", "spread", "node:n0", "node:n1:soft"] {
        rules.push(Rule {
            strategy: strategy.parse().expect("a strategy"),
            ..Rule::of(request("1", "0", 3))
        });
    }
    for selectors in ["zone=a", "zone=b;*"] {
        rules.push(Rule {
            selectors: selectors.parse().expect("selectors"),
            ..Rule::of(request("1", "0", 1))
        });
    }
    rules.push(Rule {
        module: Some(Digest::of(b"a module")),
        ..Rule::of(request("0.5", "0", 1))
    });
    rules.push(Rule::of(request("64", "0", 0)));
    let terms = rules.into_iter().enumerate().map(|(at, rule)| Terms {
        tenant: ["a", "b", "c"][at % 3].parse().expect("a name"),
        priority: (at % 4 == 3).into(),
        retries: (at % 3) as u32,
        retry_on_error: false,
        no_preempt: false,
        rule: Arc::new(rule),
    });
    terms.map(Arc::new).collect()
}

/// A placement group of any kind; not all can be reserved.
pub fn group(random: &mut Random) -> GroupSpec {
    let bundles = (0..1 + random.below(3)).map(|_| {
        let cpu = pick(random, &["1", "2", "0.5"]);
        Request::new(amounts(cpu, "0", 4)).expect("a request")
    });
    let bundles = bundles.collect();
    GroupSpec::new(pick(random, &GroupKind::ALL), bundles).expect("a group")
}

/// What runs in a group.
pub fn terms_in(random: &mut Random, group: GroupId) -> Arc<Terms> {
    let bundle = if chance(random, 30) { Some(0) } else { None };
    Arc::new(Terms {
        retries: 1,
        rule: Arc::new(Rule {
            strategy: Strategy::PlacementGroup { group, bundle },
            ..Rule::of(Request::new(amounts("0.5", "0", 1)).expect("a request"))
        }),
        ..Terms::of(Request::default())
    })
}

/// The `counter`-th task of a driver.
pub fn task(
    random: &mut Random,
    terms: &[Arc<Terms>],
    driver: usize,
    counter: u64,
    is_local: impl Fn(ObjectId) -> bool,
) -> TaskSpec {
    let count = if chance(random, 25) {
        1 + random.below(2)
    } else {
        0
    };
    let first = random.below(OBJECTS);
    let args = (0..count).map(|at| {
        let object = object_id((first + at) % OBJECTS);
        Argument {
            object,
            bytes: if first == 0 { 1 << 20 } else { 100 },
            holders: vec![node_id(first % 3)],
            is_local: is_local(object),
        }
    });
    TaskSpec {
        id: driver_id(driver).task(counter),
        driver: driver_id(driver),
        job: job_id(driver, random.below(3)),
        args: args.collect(),
        terms: terms[random.below(terms.len())].clone(),
        kind: TaskKind::Task,
    }
}
