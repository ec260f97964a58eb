//! What a driver in this process asks of a node: objects, futures and actors.

mod common;

use std::sync::Arc;
use std::time::Duration;

use wasmrun_engine::{Entry, Grants, Module, Readable, Wishes};
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::manifest::Asked;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::{DecodeLimits, Encoded, NumberKind, Value, ValueType};
use wasmrun_node::{
    Actor, ActorJob, ActorOptions, Argument, Call, CallError, Client, GetError, Job, Node,
    NodeConfig, Object, Overrides, Phase,
};

use crate::common::GUEST;

struct Driver {
    /// After the client: it stops the node.
    client: Client,
    module: Module,
    node: Node,
}

fn driver() -> Driver {
    driver_with(2)
}

/// With a node that has so many CPUs.
fn driver_with(cpus: u32) -> Driver {
    let node = Node::start(NodeConfig {
        cpus: Some(Amount::units(cpus)),
        ..NodeConfig::default()
    });
    let node = node.unwrap();
    let module = node.engine().load(&wat::parse_str(GUEST).unwrap());
    Driver {
        client: node.client(),
        module: module.unwrap(),
        node,
    }
}

/// What comes of something that has to be awaited.
fn wait<T>(what: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(what)
}

fn number(n: u64) -> Argument {
    encode(&ValueType::U64, &Value::U64(n)).unwrap().into()
}

impl Driver {
    fn start(&self, function: &str, values: Vec<Argument>) -> Object {
        let entry = Entry::Function(self.module.find(function).unwrap());
        let overrides = Overrides::default();
        let job = Job::new(function, &self.module, entry, &overrides, Grants::default());
        let call = Call {
            values,
            ..Call::default()
        };
        let task = self.client.submit(&Arc::new(job.unwrap()), call).unwrap();
        task.object()
    }

    fn counter(&self, name: Option<&str>, wishes: Wishes) -> Result<Actor, CallError> {
        let class = self.module.find_class("counter").unwrap();
        let options = ActorOptions {
            wishes,
            ..ActorOptions::default()
        };
        let job = Arc::new(ActorJob::new(&self.module, class, options).unwrap());
        let name = name.map(str::to_owned);
        let creating = self.client.create_actor(&job, vec![number(10)], name, None);
        wait(creating)
    }

    fn number(&self, object: &Object) -> u64 {
        let loaded = self.client.get(object, None).unwrap().load().unwrap();
        match decode(&ValueType::U64, loaded.encoded(), DecodeLimits::default()) {
            Ok(Value::U64(n)) => n,
            other => panic!("{other:?}"),
        }
    }

    fn error(&self, object: &Object) -> TaskError {
        match self.client.get(object, None) {
            Err(GetError::Failed { error, .. }) => error,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_one_task_makes_is_the_argument_of_another() {
    let driver = driver();
    let three = driver.start("add", vec![number(1), number(2)]);
    let six = driver.start(
        "add",
        vec![Argument::Object(three.clone()), Argument::Object(three)],
    );
    assert_eq!(driver.number(&six), 6);
}

#[test]
fn stored_bytes_come_back_and_are_arguments() {
    let driver = driver();
    for len in [0, 3, 64 << 10, 1 << 20] {
        let bytes: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
        let value = Encoded::Buffer {
            kind: NumberKind::U8,
            bytes,
        };
        let object = driver
            .client
            .put(&TenantName::default(), value.clone())
            .unwrap();
        let got = driver.client.get(&object, Some(Duration::ZERO)).unwrap();
        assert_eq!(got.load().unwrap().encoded(), (&value).into());
        assert_eq!(
            driver.number(&driver.start("sum", vec![Argument::Object(object)])),
            sum
        );
    }
}

#[test]
fn a_stored_value_keeps_what_it_names() {
    let driver = driver();
    let counter = driver.counter(None, Wishes::default()).unwrap();
    let eleven = counter.call("count", vec![number(1)]).unwrap();
    let tenant = TenantName::default();
    for len in [3, 1 << 20] {
        let value = Encoded::Postcard(vec![0; len]);
        let (objects, actors) = ([eleven.clone()], [counter.clone()]);
        let stored = driver.client.put_with(&tenant, value, &objects, &actors);
        let stored = driver.client.get(&stored.unwrap(), None).unwrap();
        let named = driver.client.object(&stored, &eleven.handle());
        assert_eq!(driver.number(&named.unwrap()), 11);
        assert!(driver.client.object(&stored, &counter.handle()).is_none());
    }
}

#[test]
fn a_get_ends_in_time_and_a_failure_says_why() {
    let driver = driver();
    let spins = driver.start("spin", vec![]);
    let soon = Some(Duration::from_millis(1));
    assert_eq!(driver.client.get(&spins, soon), Err(GetError::TimedOut));
    let sum = driver.start("add", vec![number(1), number(2)]);
    let both = [spins.clone(), sum];
    assert_eq!(wait(driver.client.wait(&both, 1, None)), [1]);
    assert_eq!(wait(driver.client.wait(&both, 2, soon)), [1]);
    driver.client.cancel_object(&spins);
    assert_eq!(wait(driver.client.wait(&both, 2, None)), [0, 1]);
    assert_eq!(driver.error(&spins), TaskError::Cancelled);
    let crashed = driver.start("crash", vec![]);
    let needs_it = driver.start("add", vec![Argument::Object(crashed.clone()), number(1)]);
    assert!(matches!(driver.error(&crashed), TaskError::Trap { .. }));
    assert!(matches!(
        driver.error(&needs_it),
        TaskError::Dependency { index: 0, .. }
    ));
}

#[test]
fn objects_behind_the_last_parameter_are_dependencies() {
    let driver = driver();
    let behind = |object| vec![number(1), number(2), Argument::Object(object)];
    let sum = driver.start(
        "add",
        behind(driver.start("add", vec![number(3), number(4)])),
    );
    assert_eq!(driver.number(&sum), 3);
    let crashed = driver.start("add", behind(driver.start("crash", vec![])));
    assert!(matches!(
        driver.error(&crashed),
        TaskError::Dependency { index: 2, .. }
    ));
    let spins = driver.start("spin", vec![]);
    let waits = driver.start("add", behind(spins.clone()));
    let soon = Some(Duration::from_millis(50));
    assert_eq!(driver.client.get(&waits, soon), Err(GetError::TimedOut));
    driver.client.cancel_object(&spins);
    assert!(matches!(driver.error(&waits), TaskError::Dependency { .. }));
}

#[test]
fn an_actor_keeps_count_and_is_found_by_its_name() {
    let driver = driver();
    let tenant = TenantName::default();
    let counter = driver.counter(Some("total"), Wishes::default()).unwrap();
    let taken = driver.counter(Some("total"), Wishes::default());
    assert!(matches!(taken, Err(CallError::Name(_))), "{taken:?}");
    let calls: Vec<Object> = (0..100)
        .map(|_| counter.call("count", vec![number(1)]).unwrap())
        .collect();
    assert_eq!(driver.number(&calls[99]), 110);
    assert_eq!(driver.number(&calls[0]), 11);
    drop(counter);
    // Another session, and an argument that another call makes.
    let other = driver.node.client();
    let found = wait(other.find_actor(&tenant, "total")).unwrap();
    let first = found.call("count", vec![number(0)]).unwrap();
    let second = found.call("count", vec![Argument::Object(first)]).unwrap();
    assert_eq!(driver.number(&second), 220);
    other.kill(&found);
    let late = found.call("count", vec![number(0)]).unwrap();
    assert!(matches!(driver.error(&late), TaskError::ActorDied { .. }));
    assert!(wait(driver.client.find_actor(&tenant, "total")).is_err());
    driver.counter(Some("total"), Wishes::default()).unwrap();
}

#[test]
fn wrong_calls_are_refused_before_they_are_made() {
    let driver = driver();
    let counter = driver.counter(None, Wishes::default()).unwrap();
    let refused = |error: CallError| error.to_string();
    let unknown = refused(counter.call("reset", vec![]).unwrap_err());
    assert_eq!(
        unknown,
        "the class test:counters/api#counter has no method 'reset'; it has count, die, hang, work"
    );
    let count = refused(counter.call("count", vec![]).unwrap_err());
    assert!(
        count.starts_with("it takes 1 arguments and 0 were given"),
        "{count}"
    );
    let name = refused(driver.counter(Some("a b"), Wishes::default()).unwrap_err());
    assert!(name.contains("no name for an actor"), "{name}");
    let greedy = Wishes {
        resources: vec![("CPU".into(), "1000".into())],
        ..Wishes::default()
    };
    let greedy = refused(driver.counter(Some("greedy"), greedy).unwrap_err());
    assert!(greedy.contains("no node can ever run"), "{greedy}");
    // It has not taken the name.
    driver.counter(Some("greedy"), Wishes::default()).unwrap();
}

#[test]
fn a_dead_actor_says_how_it_died() {
    let driver = driver();
    let counter = driver.counter(None, Wishes::default()).unwrap();
    let died = counter.call("die", vec![]).unwrap();
    assert!(matches!(driver.error(&died), TaskError::Trap { .. }));
    let late = counter.call("count", vec![number(1)]).unwrap();
    match driver.error(&late) {
        TaskError::ActorDied { cause, .. } => {
            assert!(matches!(cause.as_deref(), Some(TaskError::Trap { .. })));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_run_with_the_cpu_that_their_actor_holds() {
    const TURNS: u64 = 100_000_000;
    let driver = driver_with(1);
    let half = || vec![("CPU".into(), "0.5".into())];
    let wishes = Wishes {
        resources: half(),
        ..Wishes::default()
    };
    let counter = driver.counter(None, wishes).unwrap();
    driver.number(&counter.call("count", vec![number(1)]).unwrap());
    // On the node's one thread, beside a task of the same part of it and with ten times as much to do. A call without
    // CPU would get a fiftieth of what the task gets.
    let entry = Entry::Function(driver.module.find("toil").unwrap());
    let overrides = Overrides {
        resources: Asked([(ResourceName::CPU, "0.5".parse().unwrap())].into()),
        ..Overrides::default()
    };
    let job = Job::new("toil", &driver.module, entry, &overrides, Grants::default());
    let toil = Call {
        values: vec![number(10 * TURNS)],
        ..Call::default()
    };
    let task = driver.client.submit(&Arc::new(job.unwrap()), toil).unwrap();
    let worked = counter.call("work", vec![number(TURNS)]).unwrap();
    driver.client.get(&worked, None).unwrap();
    assert_eq!(task.phase(), Phase::Running, "the call had its half");
    driver.client.cancel(&task);
}

#[test]
fn a_session_that_ends_leaves_others_actors_alone() {
    let driver = driver();
    let counter = driver.counter(Some("shared"), Wishes::default()).unwrap();
    let other = driver.node.client();
    let found = wait(other.find_actor(&TenantName::default(), "shared")).unwrap();
    let first = found.call("count", vec![number(1)]).unwrap();
    assert_eq!(driver.number(&first), 11);
    let job = counter_job(&driver);
    let mine = wait(other.create_actor(&job, vec![number(1)], None, None)).unwrap();
    other.cancel_all();
    let late = mine.call("count", vec![number(1)]).unwrap();
    assert!(matches!(
        driver.error(&late),
        TaskError::ActorDied { .. } | TaskError::Cancelled
    ));
    assert_eq!(
        driver.number(&counter.call("count", vec![number(1)]).unwrap()),
        12
    );
}

fn counter_job(driver: &Driver) -> Arc<ActorJob> {
    let class = driver.module.find_class("counter").unwrap();
    Arc::new(ActorJob::new(&driver.module, class, ActorOptions::default()).unwrap())
}
