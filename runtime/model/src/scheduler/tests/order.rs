//! Which of the tasks of one tenant starts next.

use super::*;

const ONE: &str = r#"{"CPU": 1}"#;

#[test]
fn by_priority_then_by_submission() {
    let mut it = Harness::local(ONE);
    assert_eq!(it.submit(task(1, ONE)), ["start t1 on n0"]);
    for (at, priority) in [(2, 0), (3, 5), (4, 0), (5, 5), (6, -1)] {
        it.submit(task(at, ONE).terms(|terms| terms.priority = priority));
    }
    for (at, next) in [(1, 3), (3, 5), (5, 2), (2, 4), (4, 6)] {
        let expected = [format!("t{at} finished"), format!("start t{next} on n0")];
        assert_eq!(it.finish(at), expected);
    }
}

/// A lane that was empty has forgotten the priority that it had.
#[test]
fn a_lower_priority_after_a_higher_one() {
    let mut it = Harness::local(ONE);
    it.submit(task(1, ONE).terms(|terms| terms.priority = 5));
    it.submit(task(2, ONE).terms(|terms| terms.priority = 5));
    it.finish(1);
    it.submit(task(3, ONE));
    assert_eq!(it.finish(2), ["t2 finished", "start t3 on n0"]);
}

#[test]
fn what_does_not_fit_is_skipped() {
    let mut it = Harness::local(r#"{"CPU": 4}"#);
    it.submit(task(1, r#"{"CPU": 3}"#));
    assert!(it.submit(task(2, r#"{"CPU": 2}"#)).is_empty());
    assert_eq!(it.submit(task(3, ONE)), ["start t3 on n0"]);
    // Once both fit, the first in the order of submission wins, also across shapes.
    it.submit(task(4, ONE));
    assert_eq!(
        it.finish(1),
        ["t1 finished", "start t2 on n0", "start t4 on n0"]
    );
}

#[test]
fn blocked_ones_resume_before_new_work_of_their_tenant() {
    let mut it = Harness::local(r#"{"CPU": 1, "GPU": 1}"#);
    it.submit(task(1, r#"{"CPU": 1, "GPU": 1}"#));
    it.submit(task(2, ONE).terms(|terms| terms.priority = 9));
    it.submit(task(3, ONE).terms(|terms| terms.priority = 9));
    it.accept(1);
    // Its CPU is given back, its GPU is not.
    assert_eq!(it.block(1), ["start t2 on n0"]);
    let assignment = it
        .scheduler
        .assignment(&task_id(1))
        .expect("it holds its GPU");
    assert_eq!(assignment.allocation.amounts().to_string(), "{GPU: 1}");
    assert!(it.unblock(1).is_empty());
    assert_eq!(it.phase(1), Phase::Blocked);
    assert_eq!(it.finish(2), ["t2 finished", "resume t1"]);
    assert_eq!(it.phase(1), Phase::Running);
    assert_eq!(it.finish(1), ["t1 finished", "start t3 on n0"]);
}

#[test]
fn who_has_waited_long_enough_goes_on_and_gets_a_cpu_later() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    for at in 1..=3 {
        it.submit(task(at, ONE));
    }
    it.accept(1);
    assert_eq!(it.block(1), ["start t2 on n0"]);
    // It runs, without a CPU, and so counts as blocked.
    assert!(it.overdue(1).is_empty());
    let why = it.explain(1);
    assert!(why.contains("runs meanwhile"), "{why}");
    // It waits again, and nobody keeps a CPU for it.
    assert!(it.block(1).is_empty());
    assert_eq!(it.finish(2), ["t2 finished", "start t3 on n0"]);
    assert!(it.overdue(1).is_empty());
    assert_eq!(it.finish(3), ["t3 finished", "resume t1"]);
    assert_eq!(it.phase(1), Phase::Running);

    // What it waited for may come at the same time: it stands in line once.
    it.submit(task(4, ONE));
    assert_eq!(it.block(1), ["start t4 on n0"]);
    assert!(it.unblock(1).is_empty());
    assert!(it.overdue(1).is_empty());
    assert!(it.unblock(1).is_empty());
    // It ends without ever having got its CPU back.
    it.submit(task(5, ONE));
    assert_eq!(it.finish(1), ["t1 finished"]);
    assert_eq!(it.finish(4), ["t4 finished", "start t5 on n0"]);
}

#[test]
fn at_most_so_many_run() {
    let config = Config {
        max_running: 2,
        ..local_config()
    };
    let mut it = Harness::with(config, &[r#"{"CPU": 8}"#]);
    for at in 1..=3 {
        it.submit(task(at, ONE));
    }
    assert_eq!(it.phase(3), Phase::Ready);
    let why = it.explain(3);
    assert!(
        why.contains("one of 2 sandboxes") && why.contains("--max-sandboxes"),
        "{why}"
    );
    it.accept(1);
    // Who is blocked has its executor still, and gets its CPU back.
    assert!(it.block(1).is_empty());
    assert_eq!(it.unblock(1), ["resume t1"]);
    assert_eq!(it.finish(1), ["t1 finished", "start t3 on n0"]);
}

#[test]
fn alternatives_in_their_order() {
    let either = |at| {
        task(at, r#"{"GPU": 1}"#).rule(|rule| rule.alternatives.push(request(r#"{"CPU": 16}"#)))
    };
    let mut it = Harness::local(r#"{"CPU": 16, "GPU": 1}"#);
    for (at, held) in [(1, "{GPU: 1}"), (2, "{CPU: 16}")] {
        it.submit(either(at));
        let task = it
            .scheduler
            .assignment(&task_id(at))
            .expect("it has started");
        assert_eq!(task.allocation.amounts().to_string(), held);
    }
    assert!(it.submit(either(3)).is_empty());
    assert_eq!(it.finish(1), ["t1 finished", "start t3 on n0"]);
}
