//! Tests of what becomes of attempts in a scenario.

use wasmrun_model::fairness::Quota;
use wasmrun_model::id::{DriverId, NodeId, ObjectId, TaskId};
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::scheduler::Settings;
use wasmrun_model::simulate::Scenario;

use super::*;
use crate::rows::Object;
use crate::wire::{HeldResource, Phases, Run, TaskRow};

/// When the first task was submitted, in microseconds since 1970.
const T0: u64 = 1_700_000_000_000_000;

fn task(number: u8) -> TaskId {
    TaskId::from_bytes([number; 16])
}

/// A task of one CPU that was submitted and ran then, in milliseconds.
fn ran(number: u8, submit_ms: u64, wait_ms: u64, run_ms: u64) -> TaskRow {
    TaskRow {
        submitted_us: T0 + submit_ms * 1000,
        held: vec![HeldResource {
            name: ResourceName::CPU,
            steps: Amount::ONE.steps(),
            units: Vec::new(),
        }],
        run: Some(Run {
            waited_us: wait_ms * 1000,
            ran_us: Some(run_ms * 1000),
            ended_us: T0 + (submit_ms + wait_ms + run_ms) * 1000,
            phases: Phases::default(),
            memory_peak_bytes: 0,
        }),
        ..TaskRow::example(task(number))
    }
}

fn nodes() -> Vec<MemberRow> {
    let node = |name: &str, state: &str| MemberRow {
        name: name.into(),
        id: NodeId::default(),
        state: state.into(),
        incarnation: 1,
        address: None,
        is_head: false,
        is_own: false,
        total: [
            (ResourceName::CPU, Amount::units(2)),
            ("tpu".parse().unwrap(), Amount::ONE),
        ]
        .into(),
        available: Amounts::new(),
        since_ms: 0,
        version: "0".into(),
    };
    vec![node("n1", "alive"), node("n2", "dead")]
}

fn due(name: &str, weight: &str) -> DueRow {
    DueRow {
        name: name.parse().unwrap(),
        weight: weight.parse().unwrap(),
        min: Amounts::new(),
        share: "0".into(),
        used: Amounts::new(),
        quota: Quota::default(),
        tasks: 0,
        waiting: 0,
    }
}

fn record(rows: &[TaskRow], wanted: &Wanted) -> Recording {
    let mut recorder = Recorder::new();
    for row in rows {
        recorder.add(row.object());
    }
    let quota = DueRow {
        quota: Quota {
            max: [(ResourceName::CPU, Amount::ONE)].into(),
            max_tasks: Some(3),
            ..Quota::default()
        },
        ..due("red", "2.5")
    };
    let scheduling = Scheduling {
        settings: Settings::default(),
        resource_weights: Vec::new(),
        notes: Vec::new(),
    };
    let cluster = Cluster {
        nodes: &nodes(),
        tenants: &[due("default", "1"), quota],
        scheduling: &scheduling,
    };
    recorder.scenario(&cluster, wanted)
}

/// The lines of tasks of a recording that simulate can read.
fn tasks(recording: &Recording) -> Vec<Json> {
    let scenario = Scenario::parse(&recording.text).unwrap();
    let count: u32 = scenario.tasks.iter().map(|it| it.count).sum();
    assert_eq!(count as usize, recording.tasks);
    let mut json: Json = serde_json::from_str(&recording.text).unwrap();
    serde_json::from_value(json["tasks"].take()).unwrap()
}

#[test]
fn equal_tasks_that_arrive_together_are_one_entry() {
    let of_array = |number: u8| TaskRow {
        array_index: Some(number.into()),
        ..ran(number, 500, number.into(), 20)
    };
    let first = TaskRow {
        name: "wasmrun:graph/tests@0.1.0#counter".into(),
        tenant: "red".parse().unwrap(),
        ..ran(1, 0, 0, 7)
    };
    let recording = record(&[of_array(3), first, of_array(2)], &Wanted::default());
    assert_eq!((recording.tenants, recording.span_us), (2, 500_000));
    let one = json!({ "CPU": "1" });
    let expected = [
        json!({ "name": "counter.1", "tenant": "red", "count": 1, "submit_at_ms": 0, "duration_ms": 7, "resources": one }),
        json!({ "name": "f.1", "tenant": "default", "count": 2, "submit_at_ms": 500, "duration_ms": 20, "resources": one }),
    ];
    assert_eq!(tasks(&recording), expected);
    let json: Json = serde_json::from_str(&recording.text).unwrap();
    let node = json!({ "name": "n1", "resources": { "CPU": "2", "tpu": "sum:1" } });
    assert_eq!(json["nodes"], json!([node]));
    let red = json!({ "name": "red", "weight": "2.5", "max": { "CPU": "1" }, "max_tasks": 3 });
    assert_eq!(json["tenants"], json!([red]));
    assert_eq!(json["policy"], "drf");
}

#[test]
fn a_task_runs_as_long_as_its_attempts_had_their_cpu() {
    let mut retried = TaskRow {
        state: "retried".into(),
        ..ran(1, 0, 0, 30)
    };
    let phases = &mut retried.run.as_mut().unwrap().phases;
    (phases.blocked_us, phases.paused_us) = (7_000, 3_000);
    let last = TaskRow {
        attempt: 2,
        ..ran(1, 0, 40, 5)
    };
    // The same from a file and from a list.
    let recording = record(&[retried.clone(), last, retried], &Wanted::default());
    assert_eq!(tasks(&recording)[0]["duration_ms"], 25);
    assert_eq!(recording.tasks, 1);
}

#[test]
fn many_short_tasks_take_as_long_together() {
    let short = |number: u8| {
        let mut row = ran(number, 0, 0, 0);
        row.run.as_mut().unwrap().ran_us = Some(300);
        row
    };
    let rows: Vec<TaskRow> = (0..10).map(short).collect();
    let durations: u64 = tasks(&record(&rows, &Wanted::default()))
        .iter()
        .map(|it| it["duration_ms"].as_u64().unwrap() * it["count"].as_u64().unwrap())
        .sum();
    assert_eq!(durations, 3);
}

#[test]
fn a_task_arrives_when_its_arguments_are_made() {
    let consumer = TaskRow {
        inputs: vec![ObjectId::of(task(1), 0)],
        ..ran(2, 1, 99, 5)
    };
    let recording = record(&[ran(1, 0, 0, 100), consumer], &Wanted::default());
    assert_eq!(tasks(&recording)[1]["submit_at_ms"], 100);
}

#[test]
fn calls_and_what_never_ran_are_left_out() {
    let call = TaskRow {
        actor: Some(task(9).actor()),
        ..ran(1, 0, 0, 5)
    };
    let creation = TaskRow {
        actor: Some(task(9).actor()),
        ..ran(9, 0, 0, 50)
    };
    let cancelled = TaskRow {
        run: None,
        ..ran(3, 0, 0, 0)
    };
    let recording = record(&[call, creation, cancelled], &Wanted::default());
    assert_eq!((recording.calls, recording.never_ran), (1, 1));
    assert_eq!(tasks(&recording)[0]["duration_ms"], 50);
}

#[test]
fn only_what_is_wanted_is_recorded() {
    let of = |number: u8, tenant: &str, submit_ms| TaskRow {
        tenant: tenant.parse().unwrap(),
        job: DriverId::from_bytes([number; 16]),
        ..ran(number, submit_ms, 0, 1)
    };
    let rows = [of(1, "a", 0), of(2, "a/b", 5), of(3, "ab", 9)];
    let count = |wanted: &Wanted| record(&rows, wanted).tasks;
    let tenant = Some("a".parse().unwrap());
    assert_eq!(
        count(&Wanted {
            tenant,
            ..Wanted::default()
        }),
        2
    );
    let since_us = T0 + 5000;
    assert_eq!(
        count(&Wanted {
            since_us,
            ..Wanted::default()
        }),
        2
    );
    let job = Some("0303".to_owned());
    assert_eq!(
        count(&Wanted {
            job,
            ..Wanted::default()
        }),
        1
    );
    let is_anonymous = true;
    let hidden = record(
        &rows,
        &Wanted {
            is_anonymous,
            ..Wanted::default()
        },
    );
    assert_eq!(tasks(&hidden)[0]["name"], "f1.1");
}

#[test]
fn lines_of_files_that_are_no_attempts_are_counted() {
    let mut recorder = Recorder::new();
    recorder.add_line(r#"{"version":1,"missed":3}"#);
    recorder.add_line(r#"{"version":1,"id":"00"#);
    recorder.add_line(&ran(1, 0, 0, 1).object().to_string());
    assert_eq!((recorder.missed(), recorder.unreadable()), (3, 1));
    assert_eq!(recorder.attempts.len(), 1);
}

#[test]
fn names_are_those_that_scenarios_may_have() {
    assert_eq!(label_of("double-even"), "double-even");
    assert_eq!(label_of("Counter.add é"), "Counter.add--");
    assert_eq!(label_of("a:b/c@0.1.0#counter.add"), "counter.add");
    assert_eq!(label_of("<lambda>"), "lambda-");
    assert_eq!(label_of("#"), "task");
    assert_eq!(label_of(&"x".repeat(99)).len(), MOST_NAME);
}
