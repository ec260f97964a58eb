//! Actors and the order of their calls.

use std::collections::BTreeSet;

use super::*;
use crate::scheduler::{NewWaiters, Outcome};

fn create(at: u8) -> TaskSpec {
    TaskSpec {
        kind: TaskKind::Actor(actor_id(1)),
        ..task(at, r#"{"CPU": 1}"#)
    }
}

fn call(at: u8, driver: u8) -> TaskSpec {
    TaskSpec {
        kind: TaskKind::Call {
            actor: actor_id(1),
            caller: None,
        },
        driver: driver_id(driver),
        job: JobId::from_bytes([driver; 16]),
        ..task(at, "{}")
    }
}

fn created(it: &mut Harness, node: u8) -> Vec<String> {
    it.event(Event::ActorCreated {
        actor: actor_id(1),
        node: node_id(node),
    })
}

fn died(it: &mut Harness, will_restart: bool) -> Vec<String> {
    it.event(Event::ActorDied {
        actor: actor_id(1),
        will_restart,
    })
}

#[test]
fn calls_wait_for_their_actor_and_run_one_by_one() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    it.submit(create(1));
    it.accept(1);
    it.submit(call(2, 1));
    it.submit(call(3, 1));
    assert_eq!(it.phase(2), Phase::WaitingForActorCreation);
    assert_eq!(created(&mut it, 0), ["start t2 on n0"]);
    assert_eq!(it.finish(2), ["t2 finished", "start t3 on n0"]);
    assert!(it.finish(1).is_empty(), "an actor lives on");
    it.finish(3);
}

#[test]
fn an_argument_holds_up_the_calls_of_one_caller() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    created(&mut it, 0);
    it.submit(call(1, 1).arg(1, false));
    assert!(it.submit(call(2, 1)).is_empty());
    assert_eq!(it.submit(call(3, 2)), ["start t3 on n0"]);
    it.event(Event::ArgumentReady(object_id(1)));
    assert_eq!(it.finish(3), ["t3 finished", "start t1 on n0"]);
    assert_eq!(it.finish(1), ["t1 finished", "start t2 on n0"]);
}

#[test]
fn a_call_is_held_up_by_the_last_before_it_that_lacks_an_argument() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    created(&mut it, 0);
    it.submit(call(1, 1).arg(1, false));
    it.submit(call(2, 1).arg(2, false));
    it.submit(call(3, 2).arg(3, false));
    it.submit(call(4, 1));
    let held_up_by = |it: &Harness, call| it.scheduler.held_up_by(&task_id(call));
    assert_eq!(held_up_by(&it, 4), Some(task_id(2)));
    assert_eq!(held_up_by(&it, 2), Some(task_id(1)));
    assert_eq!(held_up_by(&it, 1), None);
    it.event(Event::ArgumentReady(object_id(2)));
    assert_eq!(held_up_by(&it, 4), Some(task_id(1)));
}

#[test]
fn who_begins_to_wait_for_others_is_noted() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    let noted = |it: &mut Harness| match it.scheduler.take_new_waiters() {
        NewWaiters::These(tasks) => tasks.into_iter().collect::<BTreeSet<_>>(),
        NewWaiters::TooMany => panic!("so many"),
    };
    let these = |tasks: &[u8]| tasks.iter().map(|it| task_id(*it)).collect();
    // For resources is not for others.
    it.submit(create(1));
    it.submit(task(2, r#"{"CPU": 1}"#));
    assert_eq!(noted(&mut it), BTreeSet::new());
    it.submit(task(3, r#"{"CPU": 1}"#).arg(1, false));
    it.submit(call(4, 1));
    it.submit(call(5, 1).arg(1, false));
    assert_eq!(noted(&mut it), these(&[3, 4, 5]));
    // Calls for their turn, and for where they go now.
    it.accept(1);
    created(&mut it, 0);
    assert_eq!(noted(&mut it), these(&[4, 5]));
    it.event(Event::ArgumentReady(object_id(1)));
    assert_eq!(noted(&mut it), these(&[5]));
    died(&mut it, true);
    assert_eq!(noted(&mut it), these(&[5]));
}

/// A task's calls are in order among themselves only: what a driver's call waits for may need them.
#[test]
fn a_task_is_a_caller_of_its_own() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    created(&mut it, 0);
    it.submit(call(1, 1).arg(1, false));
    let by_task = TaskSpec {
        kind: TaskKind::Call {
            actor: actor_id(1),
            caller: Some(task_id(9)),
        },
        ..call(2, 1)
    };
    assert_eq!(it.submit(by_task), ["start t2 on n0"]);
}

#[test]
fn what_needs_an_object_that_will_never_be_fails() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    it.submit(task(1, r#"{"CPU": 1}"#).arg(1, false));
    it.submit(task(2, r#"{"CPU": 1}"#).arg(2, false));
    let ended = it.event(Event::ArgumentFailed(object_id(1)));
    assert_eq!(
        ended,
        [
            "t1 failed: it needs object 0101010101010101010101010101010101010101, and what was to make that has failed; see why, and submit both again"
        ]
    );
    assert_eq!(it.phase(2), Phase::Waiting);
}

/// The turn of a call that loses an argument goes to others, and comes back.
#[test]
fn the_call_whose_turn_it_is_loses_an_argument() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    it.submit(task(9, r#"{"CPU": 1}"#));
    created(&mut it, 0);
    let needs_cpu = |at, driver| TaskSpec {
        terms: task(at, r#"{"CPU": 1}"#).terms,
        ..call(at, driver)
    };
    it.submit(needs_cpu(1, 1).arg(1, true));
    it.submit(needs_cpu(2, 2));
    it.event(Event::ArgumentLost(object_id(1)));
    assert_eq!(it.finish(9), ["t9 finished", "start t2 on n0"]);
    it.event(Event::ArgumentReady(object_id(1)));
    assert_eq!(it.finish(2), ["t2 finished", "start t1 on n0"]);
    it.finish(1);
}

#[test]
fn a_cancelled_call_holds_up_nobody() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    created(&mut it, 0);
    it.submit(call(1, 1).arg(1, false));
    it.submit(call(2, 1));
    assert_eq!(it.cancel(1), ["t1 cancelled", "start t2 on n0"]);
}

#[test]
fn a_death_fails_what_runs_and_a_restart_takes_the_rest() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    it.submit(create(1));
    it.accept(1);
    created(&mut it, 0);
    it.submit(call(2, 1));
    it.submit(call(3, 1));
    let effects = died(&mut it, true);
    assert_eq!(effects[0], "retry t1 as 2");
    assert!(effects.iter().any(|it| it.starts_with("t2 failed: actor ")));
    assert!(effects.contains(&"start t1 on n0, attempt 2".to_owned()));
    it.accept(1);
    assert_eq!(created(&mut it, 0), ["start t3 on n0"]);
    it.submit(call(4, 1));
    let effects = died(&mut it, false);
    let failed = effects.iter().filter(|it| it.contains(" failed")).count();
    assert_eq!((failed, it.scheduler.live()), (3, 0));
}

#[test]
fn calls_run_where_the_actor_lives() {
    let mut it = Harness::new(&[r#"{"CPU": 1}"#, r#"{"CPU": 9}"#]);
    created(&mut it, 0);
    assert_eq!(it.submit(call(1, 1)), ["start t1 on n0"]);
    // Also after a refusal.
    assert_eq!(it.refuse(1), ["start t1 on n0, attempt 2"]);
    it.finish(1);
    created(&mut it, 1);
    assert_eq!(it.submit(call(2, 1)), ["start t2 on n1"]);
}

#[test]
fn an_actor_is_heard_of_before_its_node() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    created(&mut it, 1);
    it.submit(call(1, 1));
    assert_eq!(it.phase(1), Phase::WaitingForActorCreation);
    assert_eq!(it.peer(1, 1, "{}"), ["n1: place t1 1, hop 1"]);
}

#[test]
fn who_was_blocked_goes_on_though_an_actor_has_its_cpu_for_life() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    it.submit(task(1, r#"{"CPU": 1}"#));
    it.accept(1);
    it.block(1);
    assert_eq!(it.submit(create(2)), ["start t2 on n0"]);
    it.accept(2);
    // Not yet while the creation may still fail, and give it back.
    assert!(it.unblock(1).is_empty());
    assert_eq!(created(&mut it, 0), ["resume t1"]);
    // It waits and goes on once more, and nothing is given back that it does not have.
    it.block(1);
    assert_eq!(it.unblock(1), ["resume t1"]);
    assert_eq!(it.finish(1), ["t1 finished"]);
    it.submit(task(3, r#"{"CPU": 1}"#));
    assert_eq!(it.phase(3), Phase::Ready);
    it.event(Event::Cancel(task_id(2)));
    assert_eq!(died(&mut it, false), ["t2 cancelled", "start t3 on n0"],);
}

#[test]
fn who_was_blocked_waits_for_a_cpu_that_comes_free() {
    let mut it = Harness::local(r#"{"CPU": 2}"#);
    it.submit(task(1, r#"{"CPU": 1}"#));
    it.accept(1);
    it.block(1);
    it.submit(create(2));
    it.accept(2);
    created(&mut it, 0);
    it.submit(task(3, r#"{"CPU": 1}"#));
    it.accept(3);
    assert!(it.unblock(1).is_empty(), "the other task ends some time");
    assert_eq!(it.finish(3), ["t3 finished", "resume t1"]);
}

#[test]
fn who_was_blocked_goes_on_though_the_node_has_shrunk() {
    let mut it = Harness::local(r#"{"CPU": 2}"#);
    it.submit(task(1, r#"{"CPU": 2}"#));
    it.accept(1);
    it.block(1);
    it.event(Event::SetCapacity {
        node: node_id(0),
        name: "CPU".parse().unwrap(),
        capacity: crate::resource::Amount::ONE,
    });
    assert_eq!(it.unblock(1), ["resume t1"]);
    assert_eq!(it.finish(1), ["t1 finished"]);
}

#[test]
fn a_call_that_is_reconstructed_keeps_its_place() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    created(&mut it, 0);
    let first = call(1, 1).terms(|terms| terms.retries = 1);
    assert_eq!(it.submit(first), ["start t1 on n0"]);
    it.accept(1);
    // The next of its caller needs what follows from the first.
    it.submit(call(2, 1).arg(1, false));
    let again = it.fail(1, FailureKind::Retryable);
    assert_eq!(again, ["retry t1 as 2", "start t1 on n0, attempt 2"]);
    it.accept(1);
    it.finish(1);
    it.event(Event::ArgumentReady(object_id(1)));
    assert_eq!(it.phase(2), Phase::Dispatching);
}

#[test]
fn a_generation_on_another_node_ends_and_another_follows_or_does_not() {
    for will_restart in [true, false] {
        let mut it = Harness::local("{}");
        it.peer(1, 1, r#"{"CPU": 1}"#);
        assert_eq!(it.submit(create(1)), ["n1: place t1 1, hop 1"]);
        created(&mut it, 1);
        assert_eq!(it.submit(call(2, 1)), ["n1: place t2 1, hop 1"]);
        let effects = died(&mut it, will_restart);
        match will_restart {
            true => assert_eq!(effects, ["retry t1 as 2", "n1: place t1 2, hop 2"]),
            // What the call came to, the other node says.
            false => assert_eq!(effects.len(), 2, "{effects:?}"),
        }
        assert_eq!(it.phase(2), Phase::Placeable);
        let call = it.message(1, settled(2, 1, Outcome::Finished));
        assert_eq!(call, ["t2 finished"]);
    }
}

#[test]
fn a_call_on_a_node_that_is_lost_is_reconstructed_only_if_it_may() {
    for retries in [0, 1] {
        let mut it = Harness::local("{}");
        it.peer(1, 1, "{}");
        created(&mut it, 1);
        it.submit(call(2, 1).terms(|terms| terms.retries = retries));
        let (task, attempt) = (task_id(2), Attempt::FIRST);
        it.message(1, Message::Placed { task, attempt });
        let effects = it.event(Event::NodeLost {
            node: node_id(1),
            incarnation: Incarnation(1),
        });
        match retries {
            0 => assert!(effects[0].starts_with("t2 failed: actor "), "{effects:?}"),
            _ => assert_eq!(effects, ["retry t2 as 2"]),
        }
    }
}

#[test]
fn a_host_leaves_it_to_the_owner_whether_another_generation_follows() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    it.peer(1, 1, "{}");
    it.message(
        1,
        Message::Place {
            spec: create(1),
            attempt: Attempt::FIRST,
            hops: 1,
        },
    );
    it.accept(1);
    created(&mut it, 0);
    let effects = died(&mut it, true);
    assert_eq!(effects, ["n1: settled t1 1 Failed(Final)"]);
    assert_eq!(it.scheduler.live(), 0);
}

/// An actor moves while its host lives: what was sent there comes back, and goes before what was called since.
#[test]
fn calls_stay_in_order_when_their_actor_moves() {
    let mut it = Harness::local("{}");
    it.peer(1, 1, "{}");
    it.peer(2, 1, "{}");
    created(&mut it, 1);
    it.submit(call(1, 1));
    it.submit(call(2, 1));
    assert!(created(&mut it, 2).is_empty());
    assert!(
        it.submit(call(3, 1)).is_empty(),
        "it waits for those before"
    );
    // Another caller does not.
    assert_eq!(it.submit(call(4, 2)), ["n2: place t4 1, hop 1"]);
    let back = it.message(1, settled(1, 1, Outcome::HandedBack));
    assert_eq!(back, ["n2: place t1 2, hop 2"]);
    // This one had been run before the other node heard of it.
    let ended = it.message(1, settled(2, 1, Outcome::Finished));
    assert_eq!(ended, ["t2 finished", "n2: place t3 1, hop 1"]);
}

/// One comes back, and nothing else is where the actor lived before.
#[test]
fn a_call_goes_on_when_the_one_before_it_is_back() {
    for is_lost in [false, true] {
        let mut it = Harness::local("{}");
        it.peer(1, 1, "{}");
        it.peer(2, 1, "{}");
        created(&mut it, 1);
        it.submit(call(1, 1).terms(|terms| terms.retries = 1));
        created(&mut it, 2);
        assert!(it.submit(call(2, 1)).is_empty(), "it waits for the first");
        let effects = match is_lost {
            true => it.event(Event::NodeLost {
                node: node_id(1),
                incarnation: Incarnation(1),
            }),
            false => it.message(1, settled(1, 1, Outcome::HandedBack)),
        };
        let placed = ["n2: place t1 2, hop 2", "n2: place t2 1, hop 1"];
        assert!(effects.ends_with(&placed.map(str::to_owned)), "{effects:?}");
    }
}

/// How many records are looked at where so many calls of one actor wait: when another one comes, when somebody asks what
/// holds a call up, and when one ends.
fn looks_with(count: u8) -> [u64; 4] {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    created(&mut it, 0);
    it.submit(call(1, 1));
    it.accept(1);
    for at in 0..count {
        it.submit(call(130 + at, 2).arg(at, false));
    }
    for at in 0..count {
        it.submit(call(10 + at, 1));
    }
    let (ready, lacking) = (task_id(9 + count), task_id(129 + count));
    let before = task_id(128 + count);
    let now = Instant::ZERO + Duration::from_secs(1);
    let finished = Event::Finished {
        task: task_id(1),
        attempt: Attempt::FIRST,
    };
    let looks = [
        looks_of(|| it.scheduler.handle(now, Event::Submit(call(9, 3)))),
        looks_of(|| assert_eq!(it.scheduler.held_up_by(&ready), None)),
        looks_of(|| assert_eq!(it.scheduler.held_up_by(&lacking), Some(before))),
        looks_of(|| it.scheduler.handle(now, finished)),
    ];
    while it.scheduler.poll_effect().is_some() {}
    looks
}

#[test]
fn looks_do_not_grow_with_the_calls_that_wait() {
    assert_eq!(looks_with(100), looks_with(10));
}

/// A call that is to stop may come to its end, and wait for others on the way.
#[test]
fn a_call_that_is_to_stop_waits_and_goes_on() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    created(&mut it, 0);
    for is_cancelled_first in [true, false] {
        let n = 1 + u8::from(is_cancelled_first);
        it.submit(call(n, 1));
        it.accept(n);
        if is_cancelled_first {
            assert_eq!(it.cancel(n), [format!("stop t{n}")]);
        }
        it.block(n);
        if !is_cancelled_first {
            assert_eq!(it.cancel(n), [format!("stop t{n}")]);
        }
        assert_eq!(it.unblock(n), [format!("resume t{n}")]);
        assert_eq!(it.finish(n), [format!("t{n} cancelled")]);
    }
}
