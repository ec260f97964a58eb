//! A node and its clients, on small modules written as text.

use std::sync::Arc;

use wasmrun_engine::{Entry, Grants};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::DriverId;
use wasmrun_model::manifest::Asked;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{Value, ValueType};
use wasmrun_node::{Call, Job, Node, NodeConfig, Overrides, Phase, SubmitError, wait_all};

/// `noop`, `spin` for ever unless its argument is 0, and `trap` in every attempt before this one.
const GUEST: &str = r#"(component
    (import "wasmrun:runtime/context@0.1.0" (instance $context
      (export "attempt" (func (result u32)))))
    (core func $attempt (canon lower (func $context "attempt")))
    (core module $m
      (import "context" "attempt" (func $attempt (result i32)))
      (memory 1)
      (func (export "noop"))
      (func (export "spin") (param i32)
        (if (local.get 0) (then (loop $l (br $l)))))
      (func (export "trap") (param i32)
        (if (i32.lt_u (call $attempt) (local.get 0)) (then unreachable))))
    (core instance $i (instantiate $m
      (with "context" (instance (export "attempt" (func $attempt))))))
    (func (export "noop") (canon lift (core func $i "noop")))
    (func (export "spin") (param "really" u32) (canon lift (core func $i "spin")))
    (func (export "trap") (param "before" u32) (canon lift (core func $i "trap"))))"#;

fn node(cpus: u32) -> Node {
    let config = NodeConfig {
        cpus: Some(Amount::units(cpus)),
        gpus: Some(Amount::units(2)),
        ..NodeConfig::default()
    };
    Node::start(config).unwrap()
}

fn job(node: &Node, function: &str, asked: &[(ResourceName, &str)]) -> Arc<Job> {
    let amounts = asked
        .iter()
        .map(|(name, text)| (name.clone(), text.parse().unwrap()));
    let overrides = Overrides {
        resources: Asked(amounts.collect()),
        ..Overrides::default()
    };
    job_with(node, function, &overrides)
}

fn job_with(node: &Node, function: &str, overrides: &Overrides) -> Arc<Job> {
    let module = node.engine().load(&wat::parse_str(GUEST).unwrap()).unwrap();
    let entry = Entry::Function(module.find(function).unwrap());
    Arc::new(Job::new(function, &module, entry, overrides, Grants::default()).unwrap())
}

/// Traps before this attempt, and may be tried so often.
fn trap(node: &Node, retries: u32) -> Arc<Job> {
    let overrides = Overrides {
        retries: Some(retries),
        ..Overrides::default()
    };
    job_with(node, "trap", &overrides)
}

fn number(number: u32) -> Call {
    let value = encode(&ValueType::U32, &Value::U32(number)).unwrap();
    Call {
        values: vec![value.into()],
        ..Call::default()
    }
}

#[test]
fn everything_is_given_back() {
    let node = node(2);
    let client = node.client();
    let gpu = [(ResourceName::GPU, "0.5"), (ResourceName::CPU, "0.25")];
    let jobs = [job(&node, "noop", &[]), job(&node, "noop", &gpu)];
    let tasks: Vec<_> = (0..500)
        .map(|n| client.submit(&jobs[n % 2], Call::default()).unwrap())
        .collect();
    for (n, report) in wait_all(tasks).into_iter().enumerate() {
        assert_eq!(report.result, Ok(None));
        let held: Vec<_> = report.held.iter().map(|held| held.name.as_str()).collect();
        assert_eq!(
            held,
            [&["CPU", "memory"][..], &["CPU", "GPU", "memory"]][n % 2]
        );
    }
    assert_eq!(node.available(), node.total());
}

#[test]
fn ids_follow_from_the_driver_and_the_order() {
    let ids = || {
        let node = node(1);
        let client = node.client_as(DriverId::from_bytes([9; 16]));
        let job = job(&node, "noop", &[]);
        let tasks = (0..3).map(|_| client.submit(&job, Call::default()).unwrap());
        tasks.map(|task| task.wait().id).collect::<Vec<_>>()
    };
    assert_eq!(ids(), ids());
}

#[test]
fn cancelling_ends_the_waiting_and_the_running() {
    let node = node(1);
    let (client, other) = (node.client(), node.client());
    let busy = job(&node, "spin", &[]);
    let running = client.submit(&busy, number(1)).unwrap();
    let waiting = client.submit(&busy, number(1)).unwrap();
    let others = other.submit(&busy, number(0)).unwrap();
    assert_eq!(waiting.phase(), Phase::Ready);
    client.cancel(&waiting);
    assert_eq!(waiting.wait().result, Err(TaskError::Cancelled));
    assert_ne!(running.phase(), Phase::Ended);
    client.cancel_all();
    assert_eq!(running.wait().result, Err(TaskError::Cancelled));
    // Another session's task is left alone, and now has its turn.
    assert_eq!(others.wait().result, Ok(None));
    assert_eq!(node.available(), node.total());
}

#[test]
fn attempts_give_back_what_they_held() {
    let node = node(2);
    let client = node.client();
    let job = trap(&node, 3);
    let tasks: Vec<_> = (0..200)
        .map(|n| client.submit(&job, number(n % 6)).unwrap())
        .collect();
    for (n, report) in wait_all(tasks).into_iter().enumerate() {
        // The fourth attempt, which is number 3, is the last.
        let is_well = n % 6 <= 3;
        match report.result {
            Ok(None) => assert!(is_well, "task {n}"),
            Err(TaskError::Trap { .. }) => assert!(!is_well, "task {n}"),
            other => panic!("task {n}: {other:?}"),
        }
        assert_eq!(report.held.len(), 2);
    }
    assert_eq!(node.available(), node.total());
}

#[test]
fn cancelling_ends_what_would_be_tried_for_ever() {
    let node = node(2);
    let client = node.client();
    let job = trap(&node, u32::MAX);
    let tasks: Vec<_> = (0..20)
        .map(|_| client.submit(&job, number(u32::MAX)).unwrap())
        .collect();
    // This one goes before them, but not before an attempt has failed.
    let urgent = Overrides {
        priority: 1,
        ..Overrides::default()
    };
    let urgent = client.submit(&job_with(&node, "noop", &urgent), Call::default());
    assert_eq!(urgent.unwrap().wait().result, Ok(None));
    client.cancel_all();
    for report in wait_all(tasks) {
        assert_eq!(report.result, Err(TaskError::Cancelled));
    }
    assert_eq!(node.available(), node.total());
}

#[test]
fn what_fails_for_ever_does_not_keep_others_from_their_turn() {
    let node = node(1);
    let client = node.client();
    let for_ever = trap(&node, u32::MAX);
    for _ in 0..3 {
        client.submit(&for_ever, number(u32::MAX)).unwrap();
    }
    let last = client.submit(&trap(&node, 1), number(1)).unwrap();
    assert_eq!(last.wait().result, Ok(None));
}

#[test]
fn a_node_that_goes_away_tries_nothing_again() {
    let node = node(1);
    let client = node.client();
    let job = trap(&node, u32::MAX);
    let tasks = [(); 3].map(|()| client.submit(&job, number(u32::MAX)).unwrap());
    drop(node);
    for task in tasks {
        assert_eq!(task.wait().result, Err(TaskError::Cancelled));
    }
}

#[test]
fn a_busy_guest_does_not_keep_others_from_running() {
    // One thread, one task that never ends: a second one with a share still gets its turns.
    let node = node(1);
    let client = node.client();
    let half = [(ResourceName::CPU, "0.5")];
    let busy = client
        .submit(&job(&node, "spin", &half), number(1))
        .unwrap();
    let noop = job(&node, "noop", &half);
    for _ in 0..3 {
        assert_eq!(
            client.submit(&noop, Call::default()).unwrap().wait().result,
            Ok(None)
        );
    }
    assert_eq!(busy.phase(), Phase::Running);
    client.cancel(&busy);
    assert_eq!(busy.wait().result, Err(TaskError::Cancelled));
}

#[test]
fn a_node_that_goes_away_ends_its_tasks() {
    let node = node(1);
    let client = node.client();
    let busy = job(&node, "spin", &[]);
    let running = client.submit(&busy, number(1)).unwrap();
    let waiting = client.submit(&busy, number(1)).unwrap();
    drop(node);
    assert_eq!(running.wait().result, Err(TaskError::Cancelled));
    assert_eq!(waiting.wait().result, Err(TaskError::Cancelled));
    assert_eq!(
        client.submit(&busy, number(0)).unwrap_err(),
        SubmitError::Stopping
    );
}

#[test]
fn what_the_node_will_never_have_is_refused_with_the_reason() {
    let node = node(1);
    let client = node.client();
    let greedy = job(&node, "noop", &[(ResourceName::GPU, "3")]);
    let error = client
        .submit(&greedy, Call::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("GPU: needs 3, node has 2 in total"),
        "{error}"
    );
}

#[test]
fn a_task_is_a_future() {
    let node = node(1);
    let task = node
        .client()
        .submit(&job(&node, "noop", &[]), Call::default())
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert_eq!(runtime.block_on(task).result, Ok(None));
}

#[test]
fn offers_are_checked() {
    for bad in ["tpu", "tpu=1.5", "=3", "bw=sum:", "CPU=sum:2"] {
        assert!(bad.parse::<wasmrun_node::ResourceOffer>().is_err(), "{bad}");
    }
    let offer = "CPU=2".parse().unwrap();
    // The CPUs are offered already.
    assert!(
        Node::start(NodeConfig {
            resources: vec![offer],
            ..NodeConfig::default()
        })
        .is_err()
    );
    let fraction = Some("1.5".parse().unwrap());
    assert!(
        Node::start(NodeConfig {
            cpus: fraction,
            ..NodeConfig::default()
        })
        .is_err()
    );
}
