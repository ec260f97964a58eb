//! From submission to the end, state by state.

use super::*;

const ONE: &str = r#"{"CPU": 1}"#;

#[test]
fn a_task_runs_once() {
    let mut it = Harness::local(ONE);
    assert_eq!(it.submit(task(1, ONE)), ["start t1 on n0"]);
    assert!(it.submit(task(1, ONE)).is_empty(), "the same again");
    assert_eq!(it.phase(1), Phase::Dispatching);
    it.accept(1);
    assert_eq!(it.phase(1), Phase::Running);
    let stale = it.scheduler.status().stale;
    let (task, attempt) = (task_id(1), Attempt::new(0, 2));
    assert!(it.event(Event::Finished { task, attempt }).is_empty());
    assert_eq!(it.finish(1), ["t1 finished"]);
    let attempt = Attempt::FIRST;
    assert!(it.event(Event::Finished { task, attempt }).is_empty());
    assert_eq!(it.scheduler.status().stale, stale + 2);
    assert_eq!(it.scheduler.live(), 0);
}

#[test]
fn a_mark_comes_back_with_the_start() {
    let mut it = Harness::local(ONE);
    it.submit(task(1, ONE));
    it.submit(task(2, ONE));
    it.submit(task(3, ONE));
    it.scheduler.mark(&task_id(2), 7);
    it.scheduler.mark(&task_id(9), 8);
    let mut marks = Vec::new();
    for at in 1..=2 {
        let (task, attempt) = (task_id(at), Attempt::FIRST);
        it.scheduler
            .handle(Instant::ZERO, Event::Finished { task, attempt });
        while let Some(effect) = it.scheduler.poll_effect() {
            if let Effect::Dispatch { task, mark, .. } = effect {
                marks.push((task, mark));
            }
        }
    }
    assert_eq!(marks, [(task_id(2), 7), (task_id(3), 0)]);
    it.finish(3);
}

#[test]
fn an_end_counts_without_the_acceptance() {
    let mut it = Harness::local(ONE);
    it.submit(task(1, ONE));
    assert_eq!(it.finish(1), ["t1 finished"]);
}

#[test]
fn a_refused_task_is_ready_again_in_its_place() {
    let mut it = Harness::local(ONE);
    it.submit(task(1, ONE));
    it.submit(task(2, ONE));
    assert_eq!(it.refuse(1), ["start t1 on n0, attempt 2"]);
    let (task, attempt) = (task_id(1), Attempt::FIRST);
    assert!(it.event(Event::Finished { task, attempt }).is_empty());
    assert_eq!(it.finish(1), ["t1 finished", "start t2 on n0"]);
}

#[test]
fn retries_are_counted() {
    let mut it = Harness::local(ONE);
    it.submit(task(1, ONE).terms(|terms| terms.retries = 2));
    for attempt in [2, 3] {
        let expected = [
            format!("retry t1 as {attempt}"),
            format!("start t1 on n0, attempt {attempt}"),
        ];
        assert_eq!(it.fail(1, FailureKind::Retryable), expected);
    }
    assert_eq!(it.fail(1, FailureKind::Retryable), ["t1 failed"]);
    it.submit(task(2, ONE).terms(|terms| terms.retries = 2));
    assert_eq!(it.fail(2, FailureKind::Final), ["t2 failed"]);
}

/// A task in every live state, by number.
fn in_every_state() -> Harness {
    let mut it = Harness::local(r#"{"CPU": 4}"#);
    it.submit(task(1, ONE));
    for at in 2..=4 {
        it.submit(task(at, ONE));
        it.accept(at);
    }
    it.block(3);
    it.block(4);
    it.submit(task(5, r#"{"CPU": 2}"#));
    it.unblock(4);
    it.block(4);
    it.submit(task(6, r#"{"CPU": 4}"#));
    it.submit(task(7, ONE).arg(1, false));
    it.submit(task(8, r#"{"CPU": 5}"#));
    let mut call = task(9, ONE);
    call.kind = TaskKind::Call {
        actor: actor_id(1),
        caller: None,
    };
    it.submit(call);
    it
}

const STATES: [(u8, Phase); 9] = [
    (1, Phase::Dispatching),
    (2, Phase::Running),
    (3, Phase::Blocked),
    (4, Phase::Blocked),
    (5, Phase::Dispatching),
    (6, Phase::Ready),
    (7, Phase::Waiting),
    (8, Phase::Infeasible),
    (9, Phase::WaitingForActorCreation),
];

#[test]
fn cancelled_in_every_state() {
    for (at, phase) in STATES {
        let mut it = in_every_state();
        // One that was unblocked waits for its CPU, which another took.
        it.unblock(4);
        assert_eq!(it.phase(at), phase, "t{at}");
        let first = it.cancel(at);
        if phase.holds() {
            assert_eq!(first[0], format!("stop t{at}"));
            let last = it.fail(at, FailureKind::Retryable);
            assert_eq!(last[0], format!("t{at} cancelled"));
        } else {
            assert_eq!(first, [format!("t{at} cancelled")]);
        }
        assert!(it.scheduler.task(&task_id(at)).is_none());
    }
}

#[test]
fn a_job_or_driver_goes_as_a_whole() {
    let gone = [
        Event::DriverGone(driver_id(1)),
        Event::CancelJob(JobId::from_bytes([1; 16])),
    ];
    for event in gone {
        let mut it = in_every_state();
        let mut other = task(20, "{}");
        other.driver = driver_id(2);
        other.job = JobId::from_bytes([2; 16]);
        it.submit(other);
        let effects = it.event(event);
        assert_eq!(
            effects.iter().filter(|it| it.starts_with("stop")).count(),
            5
        );
        for at in 1..=5 {
            it.finish(at);
        }
        assert_eq!(it.scheduler.live(), 1);
        assert_eq!(it.scheduler.of_driver(&driver_id(1)).count(), 0);
        assert_eq!(it.finish(20), ["t20 finished"]);
    }
}

#[test]
fn drivers_are_known_while_they_are_here_or_have_tasks() {
    let mut it = in_every_state();
    let drivers = |it: &Harness| it.scheduler.status().drivers;
    let mut other = task(20, "{}");
    other.driver = driver_id(2);
    other.job = JobId::from_bytes([2; 16]);
    it.submit(other.clone());
    assert_eq!(drivers(&it), 2);
    // Nobody says of one that only submits that it has gone.
    it.finish(20);
    assert_eq!(drivers(&it), 1);
    it.event(Event::DriverJoined(driver_id(2)));
    other.id = task_id(21);
    it.submit(other);
    it.finish(21);
    assert_eq!(drivers(&it), 2, "it has come and not gone");
    it.event(Event::DriverGone(driver_id(2)));
    assert_eq!(drivers(&it), 1);
}

#[test]
fn arguments_come_and_go() {
    let mut it = Harness::local(ONE);
    it.submit(task(1, ONE));
    let spec = task(2, ONE).arg(1, true).arg(2, false).arg(3, false);
    assert_eq!(it.submit(spec), ["fetch [2, 3] for t2"]);
    let ready = |at| Event::ArgumentReady(object_id(at));
    let lost = |at| Event::ArgumentLost(object_id(at));
    it.event(ready(2));
    assert_eq!(it.phase(2), Phase::Waiting);
    assert_eq!(it.event(lost(1)), ["fetch [1] for t2"]);
    it.event(ready(1));
    it.event(ready(3));
    assert_eq!(it.phase(2), Phase::Ready);
    assert_eq!(it.event(lost(3)), ["fetch [3] for t2"]);
    assert_eq!(it.phase(2), Phase::Waiting);
    assert_eq!(it.finish(1), ["t1 finished"]);
    assert_eq!(it.event(ready(3)), ["start t2 on n0"]);
    // What runs has its arguments; what was refused must have them again.
    assert!(it.event(lost(1)).is_empty());
    assert_eq!(it.refuse(2), ["fetch [1] for t2"]);
    assert_eq!(it.phase(2), Phase::Waiting);
    assert_eq!(it.event(ready(1)), ["start t2 on n0, attempt 2"]);
    it.finish(2);
}

/// An argument that comes or goes while no node can serve the task is not forgotten.
#[test]
fn arguments_of_infeasible_tasks() {
    let mut it = Harness::local(ONE);
    it.submit(task(1, r#"{"CPU": 2}"#).arg(1, true).arg(2, false));
    it.event(Event::ArgumentLost(object_id(1)));
    it.event(Event::ArgumentReady(object_id(2)));
    let grown = Event::SetCapacity {
        node: node_id(0),
        name: "CPU".parse().expect("a name"),
        capacity: "2".parse().expect("an amount"),
    };
    assert_eq!(it.event(grown), ["fetch [1] for t1"]);
    assert_eq!(
        it.event(Event::ArgumentReady(object_id(1))),
        ["start t1 on n0"]
    );
}
