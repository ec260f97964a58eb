//! Actors leave for who is below its minimum, and their calls wait for the next generation.

use super::*;
use crate::scheduler::Outcome;

const NODE: &str = r#"{"CPU": 2, "GPU": 1}"#;
const GPU: &str = r#"{"GPU": 1}"#;
const NOTHING: [&str; 0] = [];

/// The creation of an actor of A that can go on from a checkpoint.
fn create(at: u8, asks: &str) -> TaskSpec {
    let spec = TaskSpec {
        kind: TaskKind::Actor(actor_id(at)),
        ..task(at, asks)
    };
    spec.tenant("A").terms(|terms| terms.retries = 1)
}

fn call(at: u8, actor: u8) -> TaskSpec {
    TaskSpec {
        kind: TaskKind::Call {
            actor: actor_id(actor),
            caller: None,
        },
        ..task(at, "{}").tenant("A")
    }
}

fn created(it: &mut Harness, at: u8) -> Vec<String> {
    it.accept(at);
    it.event(Event::ActorCreated {
        actor: actor_id(at),
        node: node_id(0),
    })
}

/// A node whose GPU an actor of A has, for a while; B is guaranteed it.
fn full() -> Harness {
    let mut it = Harness::local(NODE);
    it.set_tenant("B", r#"{"min_share": {"GPU": 1}}"#);
    it.submit(create(1, GPU));
    created(&mut it, 1);
    it.wait(2_000);
    it
}

/// The same while that actor is in a call: it is to leave after that.
fn full_in_a_call() -> Harness {
    let mut it = full();
    it.submit(call(2, 1));
    it.accept(2);
    it.submit(task(3, GPU).tenant("B"));
    it.wait(10);
    assert!(it.scheduler.stops(&task_id(1)).is_some());
    it
}

#[test]
fn an_idle_actor_leaves_and_its_calls_wait_for_the_next_generation() {
    let mut it = full();
    assert_eq!(it.submit(task(2, GPU).tenant("B")), ["preempt t1"]);
    // No call begins before it has left.
    assert_eq!(it.submit(call(3, 1)), NOTHING);
    assert_eq!(it.preempted(1), ["retry t1 as 2", "start t2 on n0"]);
    assert_eq!(it.submit(call(4, 1)), NOTHING);
    assert!(it.explain(1).contains(
        "it was stopped once and begun again, after 2s in all: tenant B is below its guaranteed \
         GPU: 0 of 1"
    ));
    let a = it.scheduler.tenants();
    let a = a.get(a.find(&"A".parse().expect("a name")).expect("a tenant"));
    let counters = a.counters();
    assert_eq!((counters.preempted, counters.repeated_us), (1, 0));
    it.accept(2);
    assert_eq!(it.finish(2), ["t2 finished", "start t1 on n0, attempt 2"]);
    assert_eq!(created(&mut it, 1), ["start t3 on n0"]);
    assert_eq!(it.finish(3), ["t3 finished", "start t4 on n0"]);
    assert_eq!(it.finish(4), ["t4 finished"]);
    // It lives for twice as long by then.
    assert_eq!(it.submit(task(5, GPU).tenant("B")), NOTHING);
    assert_eq!(it.wait(1_990), NOTHING);
    assert_eq!(it.wait(10), ["preempt t1"]);
    assert_eq!(it.preempted(1), ["retry t1 as 3", "start t5 on n0"]);
}

#[test]
fn a_call_under_way_comes_to_its_end_before() {
    let mut it = full();
    it.submit(call(2, 1));
    it.accept(2);
    it.submit(call(3, 1));
    assert_eq!(it.submit(task(4, GPU).tenant("B")), NOTHING);
    // It takes longer than others are waited for.
    assert_eq!(it.wait(5_000), NOTHING);
    assert_eq!(it.finish(2), ["t2 finished", "preempt t1"]);
    assert_eq!(it.preempted(1), ["retry t1 as 2", "start t4 on n0"]);
    assert_eq!(it.phase(3), Phase::Placeable);
}

#[test]
fn who_needs_it_no_more_has_nobody_leave() {
    let mut it = full();
    it.submit(call(2, 1));
    it.accept(2);
    it.submit(call(3, 1));
    it.submit(task(4, GPU).tenant("B"));
    assert_eq!(it.cancel(4), ["t4 cancelled"]);
    assert_eq!(it.finish(2), ["t2 finished", "start t3 on n0"]);
    assert_eq!(it.scheduler.stops(&task_id(1)), None);
    // Another time it does.
    it.submit(task(5, GPU).tenant("B"));
    it.wait(10);
    assert_eq!(it.finish(3), ["t3 finished", "preempt t1"]);
}

#[test]
fn what_one_has_left_is_kept_until_the_call_of_another_has_ended() {
    let mut it = Harness::local(r#"{"CPU": 2, "GPU": 2}"#);
    it.set_tenant("B", r#"{"min_share": {"GPU": 2}}"#);
    for at in 1..3 {
        it.submit(create(at, GPU));
        created(&mut it, at);
    }
    it.submit(call(3, 1));
    it.accept(3);
    it.wait(2_000);
    let both = task(4, r#"{"GPU": 2}"#).tenant("B");
    assert_eq!(it.submit(both), ["preempt t2"]);
    assert_eq!(it.preempted(2), ["retry t2 as 2"]);
    // Others are looked for meanwhile, but the first does not come back.
    assert_eq!(it.wait(2_000), NOTHING);
    assert_eq!(it.finish(3), ["t3 finished", "preempt t1"]);
    assert_eq!(it.preempted(1), ["retry t1 as 2", "start t4 on n0"]);
}

#[test]
fn who_waits_for_something_else_has_nobody_leave() {
    let mut it = full_in_a_call();
    for at in 4..7 {
        it.submit(task(at, r#"{"CPU": 1}"#).tenant("B"));
    }
    assert_eq!(it.phase(6), Phase::Ready);
    assert_eq!(it.cancel(3), ["t3 cancelled"]);
    assert_eq!(it.finish(2), ["t2 finished"]);
    assert_eq!(it.scheduler.stops(&task_id(1)), None);
}

#[test]
fn who_has_come_to_its_minimum_during_the_call_keeps_its_actor() {
    let mut it = full_in_a_call();
    it.set_tenant("A", r#"{"min_share": {"GPU": 1}}"#);
    assert_eq!(it.finish(2), ["t2 finished"]);
    assert_eq!(it.scheduler.stops(&task_id(1)), None);
}

#[test]
fn nobody_leaves_after_a_call_once_preemption_is_off() {
    let mut it = full_in_a_call();
    let off = Settings::default().with(Setting::Preemption(false));
    it.event(Event::Configure(off.into()));
    assert_eq!(it.finish(2), ["t2 finished"]);
    assert_eq!(it.scheduler.stops(&task_id(1)), None);
}

#[test]
fn an_actor_that_dies_before_it_leaves_has_died() {
    let mut it = full();
    it.submit(call(2, 1));
    it.accept(2);
    it.submit(task(3, GPU).tenant("B"));
    let died = it.event(Event::ActorDied {
        actor: actor_id(1),
        will_restart: true,
    });
    assert_eq!(died[0], "retry t1 as 2");
    assert!(died.contains(&"start t3 on n0".to_owned()), "{died:?}");
    assert!(!died.contains(&"preempt t1".to_owned()), "{died:?}");
    let why = it.scheduler.why_preempted(&task_id(1), it.attempt(1));
    assert_eq!(why, None);
}

#[test]
fn who_has_no_checkpoints_stays() {
    let mut it = Harness::local(NODE);
    it.set_tenant("B", r#"{"min_share": {"GPU": 1}}"#);
    it.submit(create(1, GPU).terms(|terms| terms.retries = 0));
    created(&mut it, 1);
    it.wait(5_000);
    assert_eq!(it.submit(task(2, GPU).tenant("B")), NOTHING);
    assert_eq!(it.wait(60_000), NOTHING);
}

#[test]
fn one_that_cannot_leave_goes_on_and_is_not_told_again() {
    let mut it = full();
    it.submit(task(2, GPU).tenant("B"));
    it.submit(call(3, 1));
    assert_eq!(it.stays(1), ["start t3 on n0"]);
    assert_eq!(it.wait(60_000), NOTHING);
    assert_eq!(it.finish(3), ["t3 finished"]);
    assert_eq!(it.scheduler.stops(&task_id(1)), None);
}

#[test]
fn the_cpu_of_actors_is_had_where_pauses_do_not_do() {
    let cpu = r#"{"CPU": 1}"#;
    let mut it = Harness::local(NODE);
    it.set_tenant("B", r#"{"min_share": {"CPU": 2}}"#);
    it.submit(create(1, cpu));
    created(&mut it, 1);
    it.wait(5_000);
    it.submit(task(2, cpu).tenant("A"));
    it.accept(2);
    // It has just begun, and is paused in a moment.
    assert_eq!(it.submit(task(3, cpu).tenant("B")), NOTHING);
    assert_eq!(it.wait(100), ["pause t2"]);
    assert_eq!(it.pause(2), ["start t3 on n0"]);
    it.accept(3);
    let mut told = it.submit(task(4, cpu).tenant("B"));
    told.extend(it.wait(10));
    assert_eq!(told, ["preempt t1"]);
    let left = it.preempted(1);
    assert_eq!(left, ["retry t1 as 2", "start t4 on n0"]);
}

#[test]
fn nobody_comes_below_its_minimum_by_it() {
    let mut it = full();
    it.set_tenant("A", r#"{"min_share": {"GPU": 1}}"#);
    assert_eq!(it.submit(task(2, GPU).tenant("B")), NOTHING);
    assert_eq!(it.wait(60_000), NOTHING);
}

#[test]
fn what_was_stopped_at_another_node_counts_at_its_own() {
    let mut it = Harness::local(NODE);
    it.peer(1, 1, r#"{"GPU": 2}"#);
    it.submit(task(1, r#"{"GPU": 2}"#).tenant("A"));
    assert_eq!(it.scheduler.peer(&task_id(1)), Some(node_id(1)));
    for times in ["once", "2 times"] {
        it.scheduler
            .stopped_elsewhere(&task_id(1), Duration::from_secs(2));
        let said = format!("it was stopped {times} and begun again, after ");
        assert!(it.explain(1).contains(&said), "{}", it.explain(1));
    }
    it.cancel(1);
    it.scheduler
        .stopped_elsewhere(&task_id(1), Duration::from_secs(2));
    assert!(it.scheduler.stops.is_empty());
}

#[test]
fn an_actor_of_another_node_goes_back_to_that() {
    let mut it = Harness::local(NODE);
    it.peer(1, 1, "{}");
    it.set_tenant("B", r#"{"min_share": {"GPU": 1}}"#);
    it.message(
        1,
        Message::Place {
            spec: create(1, GPU),
            attempt: Attempt::FIRST,
            hops: 1,
        },
    );
    created(&mut it, 1);
    it.wait(2_000);
    assert_eq!(it.submit(task(2, GPU).tenant("B")), ["preempt t1"]);
    let back = ["n1: settled t1 1 HandedBack", "start t2 on n0"];
    assert_eq!(it.preempted(1), back);
    // Calls wait until its owner says where it lives.
    it.submit(call(3, 1));
    assert_eq!(it.phase(3), Phase::WaitingForActorCreation);
}

#[test]
fn its_owner_begins_another_generation() {
    let mut it = Harness::local("{}");
    it.peer(1, 1, GPU);
    assert_eq!(it.submit(create(1, GPU)), ["n1: place t1 1, hop 1"]);
    let lives = Event::ActorCreated {
        actor: actor_id(1),
        node: node_id(1),
    };
    it.event(lives);
    it.submit(call(2, 1));
    // That it does not live any more comes with what its node says of the creation.
    let died = it.event(Event::ActorDied {
        actor: actor_id(1),
        will_restart: true,
    });
    assert_eq!(died, ["retry t1 as 2", "n1: place t1 2, hop 2"]);
    let late = Message::Settled {
        task: task_id(1),
        attempt: Attempt::FIRST,
        outcome: Outcome::HandedBack,
    };
    assert_eq!(it.message(1, late), NOTHING);
    // The call had not begun.
    let back = Message::Settled {
        task: task_id(2),
        attempt: Attempt::FIRST,
        outcome: Outcome::HandedBack,
    };
    assert_eq!(it.message(1, back), NOTHING);
    let lives = it.event(Event::ActorCreated {
        actor: actor_id(1),
        node: node_id(1),
    });
    assert_eq!(lives, ["n1: place t2 2, hop 2"]);
}

#[test]
fn a_creation_that_fails_is_not_tried_again() {
    let mut it = Harness::local(NODE);
    it.submit(create(1, GPU));
    it.accept(1);
    assert_eq!(it.fail(1, FailureKind::Retryable), ["t1 failed"]);
}
