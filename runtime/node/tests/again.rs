//! Detached tasks that a client submits again, because it was not answered: at the node where they are, and at another
//! one of its cluster.

mod common;

use std::time::Duration;

use wasmrun_client::wire::{self, Report, Request, Response, Submit};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{DriverId, ObjectId, TaskId};
use wasmrun_model::resource::Amount;
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{Value, ValueType};
use wasmrun_node::{ClusterConfig, NodeConfig, Part};

use crate::common::{Raw, Served, load};

const HOUR: Duration = Duration::from_secs(3600);
const TASK: TaskId = TaskId::from_bytes([7; 16]);

impl Raw {
    fn ask(&mut self, message: Request) -> Response {
        self.send(1, message);
        self.answer()
    }

    fn submit(&mut self, submit: &Submit, is_again: bool) -> Response {
        self.ask(once(TASK, submit, is_again))
    }

    fn ended(&mut self) -> Report {
        match self.answer() {
            Response::Ended(report) => *report,
            other => panic!("{other:?}"),
        }
    }

    /// What the task made, as this client may see it.
    fn made(&mut self) -> Vec<u8> {
        let head = self.ask(Request::Get {
            object: wire::ObjectRef::Id(ObjectId::of(TASK, 0)),
            timeout_ms: None,
            can_map: false,
        });
        assert!(matches!(head, Response::Value { .. }), "{head:?}");
        match self.answer() {
            Response::Chunk(bytes) => bytes.0,
            other => panic!("{other:?}"),
        }
    }
}

/// Two nodes that know each other, and the folder that they have.
fn two() -> ([Served; 2], tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let start = |name: &str, part| {
        Served::start(NodeConfig {
            name: Some(name.to_owned()),
            cpus: Amount::from_units(2),
            cluster: Some(ClusterConfig {
                state_dir: dir.path().join(name),
                part,
                etcd: None,
                oidc: None,
                listen: Some("127.0.0.1:0".parse().unwrap()),
                advertise: Vec::new(),
                lease_ttl: Duration::from_secs(10),
            }),
            ..NodeConfig::default()
        })
    };
    let head = start("a", Part::Head);
    let token = head.node.join_token(false, HOUR).unwrap().ok();
    let other = start("b", Part::Member(token));
    for served in [&head, &other] {
        assert!(served.node.wait_for_members(2, HOUR));
    }
    ([head, other], dir)
}

fn add(served: &Served) -> Submit {
    let number = |n| encode(&ValueType::U64, &Value::U64(n)).unwrap();
    Submit {
        values: [1, 2].map(|n| wire::Argument::Value(number(n))).into(),
        is_watched: true,
        is_detached: true,
        ..Submit::new(
            load(&served.client()).digest,
            wire::Entry::Function("add".into()),
        )
    }
}

/// A detached task of this id.
fn once(task: TaskId, submit: &Submit, is_again: bool) -> Request {
    Request::SubmitOnce {
        task,
        submit: Box::new(submit.clone()),
        job: wire::Job {
            id: DriverId::detached([5; 16]),
            name: String::new(),
            tasks: 0,
        },
        is_again,
    }
}

#[test]
fn who_submits_again_hears_of_the_end_and_has_the_result() {
    let ([a, b], _dir) = two();
    let submit = add(&b);
    let mut first = Raw::connect(&b.address);
    let submitted = Response::Submitted(TASK);
    assert_eq!(first.submit(&submit, false), submitted);
    assert_eq!(first.ended().result, Ok(true));
    let made = first.made();
    drop(first);
    for served in [&b, &a] {
        let mut again = Raw::connect(&served.address);
        assert_eq!(again.submit(&submit, true), submitted);
        let report = again.ended();
        assert_eq!((report.task, report.result), (TASK, Ok(true)));
        assert_eq!(again.made(), made);
    }
}

#[test]
fn who_submits_again_is_warned_again() {
    let ([_a, b], dir) = two();
    let mut submit = add(&b);
    submit.grants.dirs = vec![wire::Dir {
        host: dir.path().display().to_string(),
        guest: "/".into(),
        is_read_only: true,
    }];
    let mut first = Raw::connect(&b.address);
    let warned = first.submit(&submit, false);
    let is_warning =
        matches!(&warned, Response::SubmittedHere { why, .. } if why.contains("folder"));
    assert!(is_warning, "{warned:?}");
    first.ended();
    let mut again = Raw::connect(&b.address);
    assert_eq!(again.submit(&submit, true), warned);
    again.ended();
}

#[test]
fn the_id_of_anothers_task_is_refused() {
    let served = Served::with_cpus(2);
    let own = add(&served);
    let mut theirs = Submit {
        entry: wire::Entry::Function("spin".into()),
        values: Vec::new(),
        is_detached: false,
        ..own.clone()
    };
    theirs.terms.tenant = Some("theirs".parse().unwrap());
    let mut session = Raw::connect(&served.address);
    let submitted = session.ask(Request::Submit(Box::new(theirs)));
    let Response::Submitted(task) = submitted else {
        panic!("{submitted:?}");
    };
    let why = match session.ask(once(task, &own, false)) {
        Response::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(why.message.contains("another task has the id"), "{why}");
}

#[test]
fn of_a_task_that_has_had_the_id_of_anothers_its_own_attempts_are_told() {
    let served = Served::with_cpus(2);
    let mut submit = Submit {
        entry: wire::Entry::Function("crash".into()),
        values: Vec::new(),
        is_detached: false,
        ..add(&served)
    };
    submit.terms.tenant = Some("theirs".parse().unwrap());
    let mut others = Raw::connect(&served.address);
    let submitted = others.ask(Request::Submit(Box::new(submit.clone())));
    let Response::Submitted(task) = submitted else {
        panic!("{submitted:?}");
    };
    others.ended();
    submit.terms = wire::Terms {
        retries: Some(1),
        retry_on_error: Some(true),
        ..wire::Terms::default()
    };
    submit.is_detached = true;
    let mut own = Raw::connect(&served.address);
    assert_eq!(
        own.ask(once(task, &submit, false)),
        Response::Submitted(task)
    );
    own.ended();
    let detail = loop {
        match own.ask(Request::Describe(task.to_string())) {
            Response::Task(detail) if detail.row.run.is_some() => break detail,
            Response::Task(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(detail.retried.len(), 1);
    assert_eq!(detail.retried[0].tenant, TenantName::default());
}
