//! What is tried again, how often, and what becomes of attempts that are over.

use wasmrun_model::trace::{TraceContext, TraceState};

use super::*;

#[test]
fn what_failed_is_tried_again_as_often_as_it_may() {
    let mut desk = Desk::new(1, 0, "4GiB");
    let value = encode(&ValueType::U32, &Value::U32(7)).unwrap();
    let parent = format!("00-{}-{}-01", "1".repeat(32), "2".repeat(16));
    let trace = TraceContext::new(parent.parse().unwrap(), TraceState::default());
    let call = Call {
        values: vec![value.clone().into()],
        args: vec!["x".into()],
        array_index: Some(3),
        input: Input::Bytes(b"input"[..].into()),
        listener: None,
        time_limit: None,
        trace: Some(trace.clone()),
    };
    let job = desk.job(&retrying(2));
    assert_eq!(desk.submit_call("t", job, call), Ok(vec!["t".to_owned()]));
    for attempt in 1..=3 {
        let Start {
            call, attempt: nth, ..
        } = &desk.running["t"];
        assert_eq!(*nth, Attempt::new(0, attempt));
        // Each attempt is given the same.
        assert_eq!(call.values, [value.clone().into()]);
        assert_eq!(
            (&*call.args, call.array_index),
            (&["x".to_owned()][..], Some(3))
        );
        assert!(matches!(&call.input, Input::Bytes(bytes) if **bytes == *b"input"));
        assert_eq!(call.trace.as_ref(), Some(&trace));
        assert!(
            desk.ended.is_empty(),
            "nobody hears of an attempt that is not the last"
        );
        let started = desk.end("t", Err(trap()));
        assert_eq!(started.len(), usize::from(attempt < 3));
    }
    assert_eq!(desk.results(), [("t", Some(&trap()))]);
    desk.assert_idle();
}

#[test]
fn what_succeeds_in_the_end_has_succeeded() {
    let mut desk = Desk::new(1, 0, "4GiB");
    desk.submit("t", retrying(9));
    desk.end("t", Err(trap()));
    assert_eq!(desk.attempt("t"), Attempt::new(0, 2));
    assert!(desk.end("t", Ok(())).is_empty());
    assert_eq!(desk.results(), [("t", None)]);
    desk.assert_idle();
}

#[test]
fn a_nested_task_knows_which_attempt_has_started_it() {
    let mut desk = Desk::new(2, 0, "4GiB");
    desk.submit("parent", retrying(1));
    desk.end("parent", Err(trap()));
    let (parent, job) = (desk.cell("parent").id, desk.job(&Overrides::default()));
    let started = desk.submit_below(Some(parent), "child", job, Call::default());
    assert_eq!(started, Ok(vec!["child".to_owned()]));
    let starter = desk.ledger.parent(&desk.cell("child").id);
    assert_eq!(starter.map(|it| (it.task, it.attempt)), Some((parent, 2)));
    desk.end("child", Ok(()));
    desk.end("parent", Ok(()));
    desk.assert_idle();
}

#[test]
fn which_failures_are_tried_again() {
    let limit = |kind| TaskError::Limit {
        hit: LimitHit {
            kind,
            limit: 1,
            wanted: None,
        },
        frames: Vec::new(),
    };
    let exit = TaskError::Exit {
        code: 3,
        limit: None,
    };
    let guest = TaskError::Guest {
        text: "no".into(),
        value: encode(&ValueType::U32, &Value::U32(7)).unwrap(),
        passed: None,
    };
    let cases = [
        (trap(), true),
        (exit, true),
        (limit(LimitKind::Time), true),
        (limit(LimitKind::Memory), true),
        (TaskError::Sandbox("no memory".into()), true),
        (guest, false),
        (TaskError::Arguments("too few".into()), false),
        (TaskError::Cancelled, false),
    ];
    for (error, is_retried) in cases {
        let mut desk = Desk::new(1, 0, "4GiB");
        desk.submit("t", retrying(1));
        let started = desk.end("t", Err(error.clone()));
        assert_eq!(!started.is_empty(), is_retried, "{error:?}");
        if is_retried {
            assert!(desk.end("t", Err(error.clone())).is_empty());
        }
        assert_eq!(desk.results(), [("t", Some(&error))]);
        desk.assert_idle();
    }
}

#[test]
fn what_reads_a_stream_is_not_tried_again() {
    let mut desk = Desk::new(1, 0, "4GiB");
    let (_feed, intake) = wasmrun_engine::intake(1);
    let call = Call {
        input: Input::Stream(intake),
        ..Call::default()
    };
    let job = desk.job(&retrying(5));
    desk.submit_call("t", job, call).unwrap();
    assert!(matches!(desk.running["t"].call.input, Input::Stream(_)));
    assert!(desk.end("t", Err(trap())).is_empty());
    assert_eq!(desk.results(), [("t", Some(&trap()))]);
    desk.assert_idle();
}

#[test]
fn another_attempt_waits_its_turn() {
    let mut desk = Desk::new(1, 0, "4GiB");
    desk.submit("t", retrying(1));
    desk.submit("urgent", of("default", 1));
    desk.submit("later", Overrides::default());
    assert_eq!(desk.end("t", Err(trap())), ["urgent"]);
    assert_eq!(desk.ledger.waiting(), 2);
    // It is behind those that have not had a turn yet.
    let rest = desk.drain(["urgent".to_owned()].into());
    assert_eq!(rest, ["later", "t"]);
    assert_eq!(desk.ended.len(), 3);
    desk.assert_idle();
}

#[test]
fn what_waits_for_another_attempt_can_be_cancelled() {
    let mut desk = Desk::new(1, 0, "4GiB");
    desk.submit("t", retrying(u32::MAX));
    desk.submit("urgent", of("default", 1));
    assert_eq!(desk.end("t", Err(trap())), ["urgent"]);
    assert!(desk.cancel(&["t"]).is_empty());
    assert_eq!(desk.results(), [("t", Some(&TaskError::Cancelled))]);
    assert!(desk.stopped.is_empty(), "nothing of it runs");
    desk.end("urgent", Ok(()));
    desk.assert_idle();
}

#[test]
fn whatever_comes_of_what_was_cancelled_is_not_tried_again() {
    for result in [Err(trap()), Err(TaskError::Cancelled), Ok(())] {
        let mut desk = Desk::new(1, 0, "4GiB");
        desk.submit("t", retrying(5));
        desk.submit("next", Overrides::default());
        // It holds its resources until it has noticed.
        assert!(desk.cancel(&["t"]).is_empty());
        assert!(desk.cancel(&["t"]).is_empty(), "once more changes nothing");
        assert_eq!(desk.stopped, ["t"]);
        assert!(desk.ended.is_empty());
        assert_eq!(desk.end("t", result), ["next"]);
        assert_eq!(desk.results(), [("t", Some(&TaskError::Cancelled))]);
        // It has run, and its report says with what.
        assert_eq!(desk.ended[0].1.held.len(), 2);
        desk.end("next", Ok(()));
        desk.assert_idle();
    }
}

#[test]
fn cancelling_all_starts_none_of_them() {
    let mut desk = Desk::new(2, 0, "4GiB");
    for name in ["a", "b", "c", "d"] {
        desk.submit(name, retrying(3));
    }
    assert!(desk.cancel(&["a", "b", "c", "d"]).is_empty());
    assert_eq!(desk.stopped, ["a", "b"]);
    let ended: Vec<&str> = desk.ended.iter().map(|(name, _)| &**name).collect();
    assert_eq!(ended, ["c", "d"]);
    assert!(desk.end("b", Err(TaskError::Cancelled)).is_empty());
    assert!(desk.end("a", Err(trap())).is_empty());
    desk.assert_idle();
}

#[test]
fn a_late_word_about_an_old_attempt_changes_nothing() {
    let mut desk = Desk::new(1, 0, "4GiB");
    desk.submit("t", retrying(1));
    let (id, first) = (desk.cell("t").id, desk.attempt("t"));
    desk.end("t", Err(trap()));
    for error in [TaskError::Cancelled, trap()] {
        let report = Report::never_ran(desk.cell("t"), error);
        let todo = desk.ledger.ended(id, first, report);
        assert!(desk.carry_out(todo).is_empty());
    }
    assert!(desk.ended.is_empty());
    assert_eq!(
        (desk.ledger.running(), desk.attempt("t")),
        (1, Attempt::new(0, 2))
    );
    desk.end("t", Ok(()));
    assert_eq!(desk.results(), [("t", None)]);
    desk.assert_idle();
}
