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

/// `noop`, and `spin` for ever unless its argument is 0.
const GUEST: &str = r#"(component
    (core module $m
      (memory 1)
      (func (export "noop"))
      (func (export "spin") (param i32)
        (if (local.get 0) (then (loop $l (br $l))))))
    (core instance $i (instantiate $m))
    (func (export "noop") (canon lift (core func $i "noop")))
    (func (export "spin") (param "really" u32) (canon lift (core func $i "spin"))))"#;

fn node(cpus: u32) -> Node {
    let config = NodeConfig {
        cpus: Some(Amount::units(cpus)),
        gpus: Some(Amount::units(2)),
        ..NodeConfig::default()
    };
    Node::start(config).unwrap()
}

fn job(node: &Node, function: &str, asked: &[(ResourceName, &str)]) -> Arc<Job> {
    let module = node.engine().load(&wat::parse_str(GUEST).unwrap()).unwrap();
    let amounts = asked
        .iter()
        .map(|(name, text)| (name.clone(), text.parse().unwrap()));
    let overrides = Overrides {
        resources: Asked(amounts.collect()),
        ..Overrides::default()
    };
    let entry = Entry::Function(module.find(function).unwrap());
    Arc::new(Job::new(function, &module, entry, &overrides, Grants::default()).unwrap())
}

fn spin(really: u32) -> Call {
    let value = encode(&ValueType::U32, &Value::U32(really)).unwrap();
    Call {
        values: vec![value],
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
        let held: Vec<_> = report.held.iter().map(|held| &*held.name).collect();
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
    let running = client.submit(&busy, spin(1)).unwrap();
    let waiting = client.submit(&busy, spin(1)).unwrap();
    let others = other.submit(&busy, spin(0)).unwrap();
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
fn a_busy_guest_does_not_keep_others_from_running() {
    // One thread, one task that never ends: a second one with a share still gets its turns.
    let node = node(1);
    let client = node.client();
    let half = [(ResourceName::CPU, "0.5")];
    let busy = client.submit(&job(&node, "spin", &half), spin(1)).unwrap();
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
    let running = client.submit(&busy, spin(1)).unwrap();
    let waiting = client.submit(&busy, spin(1)).unwrap();
    drop(node);
    assert_eq!(running.wait().result, Err(TaskError::Cancelled));
    assert_eq!(waiting.wait().result, Err(TaskError::Cancelled));
    assert_eq!(
        client.submit(&busy, spin(0)).unwrap_err(),
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
