//! A node and its peers: what stays, what goes, and the messages between.

use super::*;
use crate::resource::{Amount, ResourceName};
use crate::scheduler::Outcome;

const ONE: &str = r#"{"CPU": 1}"#;

fn place(spec: TaskSpec, attempt: u32, hops: u8) -> Message {
    Message::Place {
        spec,
        attempt: Attempt::new(0, attempt),
        hops,
    }
}

#[test]
fn local_first() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, r#"{"CPU": 8}"#);
    assert_eq!(it.submit(task(1, ONE)), ["start t1 on n0"]);
    assert_eq!(it.submit(task(2, ONE)), ["n1: place t2 1, hop 1"]);
    // Nobody is free: who waits the shortest.
    it.peer(1, 2, ONE);
    it.submit(task(3, ONE));
    assert_eq!(it.submit(task(4, ONE)).len(), 0);
    assert_eq!(it.phase(4), Phase::Ready);
}

#[test]
fn an_actor_that_asks_for_nothing_does_not_stay_because_it_was_created_here() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    it.peer(2, 1, ONE);
    let actor = |at: u8, asks| TaskSpec {
        kind: TaskKind::Actor(actor_id(at)),
        ..task(at, asks)
    };
    for at in 0..60 {
        it.submit(actor(at, "{}"));
    }
    let there = |peer| (0..60).filter(|at| it.is_at(*at, peer)).count();
    let (first, second) = (there(1), there(2));
    let least = [first, second, 60 - first - second].into_iter().min();
    assert!(least >= Some(10), "{first} {second}");
    // One that asks for something is a task like any other.
    assert_eq!(it.submit(actor(61, ONE)), ["start t61 on n0"]);
}

#[test]
fn a_long_queue_sends_on() {
    // It fits here, but one waits already, and another node is emptier.
    for (local_queue, expected) in [(1, "n1: place t3 1, hop 1"), (2, "start t3 on n0")] {
        let config = Config {
            settings: Settings::default().with(Setting::LocalQueue(local_queue)),
            ..local_config()
        };
        let mut it = Harness::with(config, &[r#"{"CPU": 4, "GPU": 1}"#]);
        it.submit(task(1, r#"{"GPU": 1}"#));
        it.submit(task(2, r#"{"GPU": 1}"#));
        it.peer(1, 1, r#"{"CPU": 8}"#);
        assert_eq!(it.submit(task(3, ONE)), [expected]);
    }
}

#[test]
fn a_burst_is_shared_out_before_anybody_reports() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, r#"{"CPU": 2}"#);
    it.peer(2, 1, ONE);
    let mut shares = [0, 0, 0];
    for at in 0..40 {
        match it.submit(task(at, ONE).strategy("spread")).first() {
            Some(effect) if effect.starts_with("n1: place") => shares[1] += 1,
            Some(effect) if effect.starts_with("n2: place") => shares[2] += 1,
            _ => shares[0] += 1,
        }
    }
    // In proportion to what each has.
    assert_eq!(shares, [11, 19, 10]);
    // What a node has taken is in its view; what it has not answered for is not.
    let (task, attempt) = (task_id(0), Attempt::FIRST);
    it.message(1, Message::Placed { task, attempt });
    let tasks_at_1 = |it: &Harness| {
        let cluster = it.scheduler.cluster();
        let node = cluster.by_id(node_id(1)).expect("a member");
        cluster[node].queue().tasks
    };
    assert_eq!(tasks_at_1(&it), 19);
    it.peer(1, 2, r#"{"CPU": 2}"#);
    assert_eq!(tasks_at_1(&it), 18);
    // One that it has not answered for until its end.
    let mut placed = (0..40).filter(|at| it.is_at(*at, 1));
    let last = placed.next_back().expect("many");
    it.message(1, settled(last, 1, Outcome::Finished));
    assert_eq!(tasks_at_1(&it), 17);
}

#[test]
fn another_node_runs_it() {
    let mut it = Harness::local("{}");
    it.peer(1, 1, ONE);
    assert_eq!(it.submit(task(1, ONE)), ["n1: place t1 1, hop 1"]);
    assert!(it.wait(10_000).is_empty(), "nothing is said twice");
    let (task, attempt) = (task_id(1), Attempt::FIRST);
    it.message(1, Message::Placed { task, attempt });
    assert!(it.wait(1_000).is_empty());
    // Not from this node, not of this attempt.
    it.peer(2, 1, "{}");
    assert!(it.message(2, settled(1, 1, Outcome::Finished)).is_empty());
    assert!(it.message(1, settled(1, 2, Outcome::Finished)).is_empty());
    assert_eq!(
        it.message(1, settled(1, 1, Outcome::Finished)),
        ["t1 finished"]
    );
}

#[test]
fn a_node_that_drains_is_given_nothing() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    let (node, is_draining) = (node_id(1), true);
    it.event(Event::SetDraining { node, is_draining });
    assert_eq!(
        it.submit(task(1, ONE).strategy("node:n1")),
        ["t1 infeasible"]
    );
    let is_draining = false;
    let after = it.event(Event::SetDraining { node, is_draining });
    assert_eq!(after, ["n1: place t1 1, hop 1"]);
}

#[test]
fn a_failure_elsewhere_is_the_owners_to_judge() {
    let mut it = Harness::local("{}");
    it.peer(1, 1, ONE);
    it.submit(task(1, ONE).terms(|terms| terms.retries = 1));
    let failed = Outcome::Failed(FailureKind::Retryable);
    let again = ["retry t1 as 2", "n1: place t1 2, hop 2"];
    assert_eq!(it.message(1, settled(1, 1, failed)), again);
    let handed_back = ["n1: place t1 3, hop 3"];
    assert_eq!(
        it.message(1, settled(1, 2, Outcome::HandedBack)),
        handed_back
    );
    assert_eq!(it.message(1, settled(1, 3, failed)), ["t1 failed"]);
}

#[test]
fn after_some_hops_a_task_stays() {
    let mut it = Harness::local(ONE);
    it.submit(task(9, ONE));
    it.peer(1, 1, r#"{"CPU": 8}"#);
    it.submit(task(1, ONE));
    for attempt in 1..=3 {
        it.message(1, settled(1, attempt, Outcome::HandedBack));
        assert_eq!(it.phase(1), Phase::Placeable);
    }
    it.message(1, settled(1, 4, Outcome::HandedBack));
    assert_eq!(it.phase(1), Phase::Ready);
    assert_eq!(it.finish(9), ["t9 finished", "start t1 on n0, attempt 5"]);
}

#[test]
fn a_peer_without_room_is_not_tried_again_at_once() {
    let mut it = Harness::local(r#"{"GPU": 1}"#);
    it.peer(1, 1, ONE);
    assert_eq!(it.submit(task(1, ONE)), ["n1: place t1 1, hop 1"]);
    it.peer(2, 1, ONE);
    // It has begun something since its last view.
    let back = it.message(1, settled(1, 1, Outcome::HandedBack));
    assert_eq!(back, ["n2: place t1 2, hop 2"]);
    let (task_1, attempt) = (task_id(1), Attempt::new(0, 2));
    it.message(
        2,
        Message::Placed {
            task: task_1,
            attempt,
        },
    );
    // It says nothing new: so it has room again, as it said.
    assert!(it.wait(200).is_empty());
    assert_eq!(it.submit(task(2, ONE)), ["n1: place t2 1, hop 1"]);
}

#[test]
fn a_task_that_was_handed_on_too_often_moves_again_after_a_while() {
    let mut it = Harness::local(ONE);
    it.submit(task(9, ONE));
    it.peer(1, 1, ONE);
    // Owned by another one, and it cannot start here while that one stands idle.
    let spec = task(1, ONE);
    assert_eq!(it.message(1, place(spec, 4, 4)), ["n1: placed t1 4"]);
    assert!(it.wait(900).is_empty());
    assert_eq!(it.phase(1), Phase::Ready);
    let moved = it.wait(200);
    assert_eq!(moved, ["n1: settled t1 4 HandedBack"]);
}

/// A task that another node cannot begin may be what those that wait here wait for.
#[test]
fn what_waits_for_arguments_keeps_no_task_of_others_away() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, "{}");
    for at in [1, 2, 3] {
        let fetched = it.submit(task(at, ONE).arg(1, false));
        assert_eq!(fetched, [format!("fetch [1] for t{at}")]);
    }
    let told = |it: &Harness| {
        let view = it.scheduler.own_view();
        let load = view.resources.load().amounts();
        (load.get(&ResourceName::CPU), view.queue.tasks)
    };
    assert_eq!(told(&it), (Amount::ZERO, 3));
    // What could begin as soon as there is room does.
    it.event(Event::ArgumentReady(object_id(1)));
    assert_eq!(told(&it), (Amount::units(2), 2));
    it.event(Event::ArgumentLost(object_id(1)));
    assert_eq!(told(&it), (Amount::ZERO, 2));
}

#[test]
fn cancelled_elsewhere() {
    let mut it = Harness::local("{}");
    it.peer(1, 1, ONE);
    it.submit(task(1, ONE));
    assert_eq!(it.cancel(1), ["n1: withdraw t1 1", "t1 cancelled"]);
    assert!(it.message(1, settled(1, 1, Outcome::Cancelled)).is_empty());
    assert!(it.wait(1_000).is_empty());
}

#[test]
fn a_lost_node_costs_what_it_had() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    it.peer(1, 1, ONE);
    it.peer(2, 1, r#"{"CPU": 99}"#);
    for at in 0..200 {
        let node = if at < 100 { "node:n0" } else { "node:n2" };
        it.submit(task(at, ONE).strategy(node));
    }
    it.submit(task(200, ONE).strategy("node:n1:soft"));
    it.message(1, place(task(201, ONE).arg(1, false), 1, 1));
    let (node, incarnation) = (node_id(1), Incarnation(1));
    let lost = Event::NodeLost { node, incarnation };
    let looks = looks_of(|| it.scheduler.handle(Instant::ZERO, lost));
    // A few dozen for its two tasks, and none for the others.
    assert!(looks < 70, "{looks}");
    let view = it.scheduler.task(&task_id(200)).expect("it is placed anew");
    assert_eq!(view.attempt, Attempt::new(0, 2));
    assert_eq!(it.scheduler.phase(&task_id(201)), None);
}

#[test]
fn the_other_node_is_lost() {
    let mut it = Harness::local("{}");
    it.peer(1, 1, ONE);
    it.submit(task(1, ONE));
    it.submit(task(2, ONE).strategy("node:n1"));
    let (task, attempt) = (task_id(1), Attempt::FIRST);
    it.message(1, Message::Placed { task, attempt });
    let effects = it.lose(1);
    assert_eq!(effects[..2], ["retry t1 as 2", "t1 infeasible"]);
    assert!(
        effects[2].starts_with("t2 failed: unschedulable"),
        "{effects:?}"
    );
    // A late view of the same incarnation does not revive it; the next one is new.
    assert!(it.peer(1, 9, ONE).is_empty());
    assert_eq!(it.phase(1), Phase::Infeasible);
    let view = PeerView {
        version: 1,
        resources: resources(ONE).report(),
        queue: QueueReport::default(),
        usage: Default::default(),
    };
    let node = info(1, 2, "");
    assert_eq!(
        it.event(Event::PeerView {
            node,
            view: view.into()
        }),
        ["n1: place t1 2, hop 2"]
    );
}

#[test]
fn an_incarnation_that_was_lost_to_us_alone_comes_back() {
    let mut it = Harness::local(r#"{"CPU": 0}"#);
    it.peer(1, 1, ONE);
    it.submit(task(1, ONE));
    assert_eq!(it.lose(1), ["t1 infeasible"]);
    it.event(Event::NodeExpected(info(1, 1, "")));
    assert_eq!(it.peer(1, 2, ONE), ["n1: place t1 2, hop 2"]);
}

#[test]
fn what_is_bound_to_a_newcomer_waits_for_its_first_view() {
    let mut it = Harness::local(ONE);
    it.event(Event::NodeExpected(info(1, 1, "")));
    for (at, node) in [(1, "n1".to_owned()), (2, node_id(1).to_string())] {
        let effects = it.submit(task(at, ONE).strategy(&format!("node:{node}")));
        assert_eq!(effects, [format!("t{at} infeasible")]);
        let waits = it.scheduler.explain(&task_id(at)).expect("it is there");
        let waits = waits.waits.to_string();
        assert_eq!(
            waits,
            format!("node {node} to say what it has: it has just joined")
        );
    }
    assert!(it.submit(task(3, ONE).strategy("node:n2"))[0].contains("n2 is not in the cluster"));
    let effects = it.peer(1, 1, ONE);
    assert_eq!(effects, ["n1: place t1 1, hop 1", "n1: place t2 1, hop 1"]);
}

#[test]
fn what_is_bound_to_a_newcomer_fails_if_that_goes_before_it_said_anything() {
    let mut it = Harness::local(ONE);
    it.event(Event::NodeExpected(info(1, 2, "")));
    it.submit(task(1, ONE).strategy("node:n1"));
    // The incarnation before this one is heard of late.
    it.lose(1);
    assert_eq!(it.phase(1), Phase::Infeasible);
    let (node, incarnation) = (node_id(1), Incarnation(2));
    let effects = it.event(Event::NodeLost { node, incarnation });
    assert!(
        effects[0].contains("n1 is not in the cluster"),
        "{effects:?}"
    );
    // Nor is it heard of after that.
    it.event(Event::NodeExpected(info(1, 1, "")));
    let effects = it.submit(task(2, ONE).strategy("node:n1"));
    assert!(
        effects[0].contains("n1 is not in the cluster"),
        "{effects:?}"
    );
}

#[test]
fn a_newcomer_gets_what_was_infeasible_and_one_ready_task() {
    let mut it = Harness::local(ONE);
    it.submit(task(1, ONE));
    for at in 2..=4 {
        it.submit(task(at, ONE));
    }
    it.submit(task(5, r#"{"CPU": 2}"#));
    it.submit(task(6, r#"{"CPU": 2}"#));
    assert_eq!(
        it.peer(1, 1, r#"{"CPU": 8}"#),
        [
            "n1: place t5 1, hop 1",
            "n1: place t6 1, hop 1",
            "n1: place t2 1, hop 1"
        ]
    );
    // It tells again what it has: nothing new. It grows: one more.
    assert!(it.peer(1, 2, r#"{"CPU": 8}"#).is_empty());
    assert_eq!(it.peer(1, 3, r#"{"CPU": 9}"#), ["n1: place t3 1, hop 1"]);
}

#[test]
fn a_peer_that_stands_idle_takes_what_waits() {
    let mut it = Harness::local(ONE);
    it.one_cpu(1, 1, false, 0);
    for at in 1..=4 {
        it.submit(task(at, ONE));
    }
    let waits = |it: &Harness| (1..=4).filter(|at| it.phase(*at) == Phase::Ready).count();
    let here = waits(&it);
    assert!(here > 0, "some wait here");
    assert!(
        it.one_cpu(1, 2, true, 1).is_empty(),
        "it has something to begin"
    );
    for at in 1..=4 {
        if it.is_at(at, 1) {
            let (task, attempt) = (task_id(at), Attempt::FIRST);
            it.message(1, Message::Placed { task, attempt });
        }
    }
    assert!(it.one_cpu(1, 3, false, 0).is_empty(), "it is busy");
    let given = it.one_cpu(1, 4, true, 0);
    assert!(
        matches!(&given[..], [one] if one.starts_with("n1: place t")),
        "{given:?}"
    );
    assert_eq!(waits(&it), here - 1);
    // It has not said that it took that.
    assert!(it.one_cpu(1, 5, true, 0).is_empty());
}

#[test]
fn what_waits_here_for_another_goes_back_when_a_peer_stands_idle() {
    let mut it = Harness::local(ONE);
    it.submit(task(1, ONE));
    it.one_cpu(1, 1, false, 0);
    let message = Message::Place {
        spec: task(2, ONE),
        attempt: Attempt::FIRST,
        hops: 1,
    };
    assert_eq!(it.message(1, message), ["n1: placed t2 1"]);
    assert!(it.one_cpu(1, 2, false, 0).is_empty());
    assert_eq!(it.one_cpu(1, 3, true, 0), ["n1: settled t2 1 HandedBack"]);
}

#[test]
fn what_a_peer_that_cannot_be_reached_has_not_taken_goes_elsewhere() {
    let mut it = Harness::local(r#"{"CPU": 0}"#);
    it.peer(1, 1, ONE);
    it.submit(task(1, ONE));
    let (task_1, attempt) = (task_id(1), Attempt::FIRST);
    it.message(
        1,
        Message::Placed {
            task: task_1,
            attempt,
        },
    );
    it.peer(1, 2, r#"{"CPU": 4}"#);
    assert_eq!(it.submit(task(2, ONE)), ["n1: place t2 1, hop 1"]);
    let reach = |is_reachable| Event::SetReachable {
        node: node_id(1),
        is_reachable,
    };
    // What it took stays with it.
    assert_eq!(
        it.event(reach(false)),
        ["n1: withdraw t2 1", "t2 infeasible"]
    );
    assert_eq!(
        it.submit(task(3, ONE).strategy("node:n1")),
        ["t3 infeasible"]
    );
    assert!(
        it.scheduler
            .explain(&task_id(3))
            .unwrap()
            .to_string()
            .contains("no connection")
    );
    assert_eq!(it.peer(2, 1, ONE), ["n2: place t2 2, hop 2"]);
    // Its views may come by way of others.
    assert!(it.peer(1, 3, r#"{"CPU": 4}"#).is_empty());
    assert_eq!(it.event(reach(true)), ["n1: place t3 1, hop 1"]);
}

#[test]
fn labels_of_a_peer_change() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    assert_eq!(it.submit(task(1, ONE).labels("zone=a")), ["t1 infeasible"]);
    let view = PeerView {
        version: 2,
        resources: resources(ONE).report(),
        queue: QueueReport::default(),
        usage: Default::default(),
    };
    let node = info(1, 1, "zone=a");
    assert_eq!(
        it.event(Event::PeerView {
            node,
            view: view.into()
        }),
        ["n1: place t1 1, hop 1"]
    );
}

#[test]
fn a_task_of_another_node() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    let spec = task(1, ONE).terms(|terms| terms.retries = 5);
    let placed = ["n1: placed t1 1", "start t1 on n0"];
    assert_eq!(it.message(1, place(spec, 1, 1)), placed);
    assert_eq!(it.finish(1), ["n1: settled t1 1 Finished"]);
    assert!(it.wait(10_000).is_empty(), "nothing is said twice");
}

/// Its owner has lost sight of this node, and gives it the task anew.
#[test]
fn a_new_attempt_of_what_runs_here_is_handed_back() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    it.message(1, place(task(1, ONE), 1, 1));
    assert_eq!(
        it.message(1, place(task(1, ONE), 2, 1)),
        ["stop t1", "n1: settled t1 2 HandedBack"]
    );
    assert_eq!(it.finish(1), ["n1: settled t1 1 Cancelled"]);
    // What has not started makes way at once.
    it.message(1, place(task(2, ONE).arg(1, false), 1, 1));
    let effects = it.message(1, place(task(2, ONE), 2, 1));
    let expected = [
        "n1: settled t2 1 Cancelled",
        "n1: placed t2 2",
        "start t2 on n0, attempt 2",
    ];
    assert_eq!(effects, expected);
    // Another node's task by that name is not taken.
    it.peer(2, 1, ONE);
    assert_eq!(
        it.message(2, place(task(2, ONE), 3, 1)),
        ["n2: settled t2 3 HandedBack"]
    );
}

/// Its owner numbers the attempts: here none is begun.
#[test]
fn refused_failed_or_infeasible_it_goes_back_to_its_owner() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    it.message(1, place(task(1, ONE), 1, 1));
    assert_eq!(it.refuse(1), ["n1: settled t1 1 HandedBack"]);
    it.message(
        1,
        place(task(2, ONE).terms(|terms| terms.retries = 5), 1, 1),
    );
    let failed = it.fail(2, FailureKind::Retryable);
    assert_eq!(failed, ["n1: settled t2 1 Failed(Retryable)"]);
    let back = ["n1: placed t3 1", "n1: settled t3 1 HandedBack"];
    assert_eq!(it.message(1, place(task(3, r#"{"CPU": 2}"#), 1, 1)), back);
    it.message(1, place(task(4, ONE), 1, 1));
    assert_eq!(it.lose(0), ["n1: settled t4 1 Cancelled"]);
}

#[test]
fn withdrawn_here() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    let withdraw = |at, attempt| Message::Withdraw {
        task: task_id(at),
        attempt: Attempt::new(0, attempt),
    };
    it.message(1, place(task(1, ONE), 1, 1));
    assert_eq!(it.message(1, withdraw(1, 1)), ["stop t1"]);
    assert_eq!(it.finish(1), ["n1: settled t1 1 Cancelled"]);
    // What has ended here is settled.
    assert!(it.message(1, withdraw(1, 1)).is_empty());
    // What another node gave, or an attempt that is not here, is not meant.
    it.peer(2, 1, ONE);
    it.message(1, place(task(2, ONE), 2, 1));
    assert!(it.message(1, withdraw(2, 1)).is_empty());
    assert!(it.message(2, withdraw(2, 2)).is_empty());
    assert_eq!(it.phase(2), Phase::Dispatching);
}

#[test]
fn given_back_when_it_is_ready_and_cannot_be_served() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    it.message(1, place(task(1, ONE).arg(1, false), 1, 1));
    it.message(1, place(task(3, ONE).arg(1, false), 1, 4));
    it.submit(task(2, ONE).strategy("node:n0"));
    assert_eq!(
        it.event(Event::ArgumentReady(object_id(1))),
        ["n1: settled t1 1 HandedBack"]
    );
    // One that was handed on often enough stays.
    assert_eq!(it.phase(3), Phase::Ready);
}

#[test]
fn tasks_of_a_node_that_is_lost_are_nobodys() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    it.message(1, place(task(1, ONE), 1, 1));
    it.message(1, place(task(2, ONE), 1, 1));
    assert_eq!(it.lose(1), ["stop t1"]);
    it.finish(1);
    assert_eq!(it.scheduler.live(), 0);
}

/// The preferred node can never serve them: for its owner and for the node that it goes to alike.
#[test]
fn a_soft_node_that_can_never_serve_a_task_is_in_nobodys_way() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, r#"{"CPU": 1, "GPU": 1}"#);
    let soft = |node: &str| format!("node:{node}:soft").parse().unwrap();
    // As the owner: the node itself is preferred, and has no GPU.
    let mine = task(1, r#"{"GPU": 1}"#).rule(|rule| rule.strategy = soft("n0"));
    assert_eq!(it.submit(mine), ["n1: place t1 1, hop 1"]);
    // As the node that is to run it: the other one is preferred, and has too few CPUs.
    let mut it = Harness::local(r#"{"CPU": 4}"#);
    it.peer(1, 1, ONE);
    let theirs = task(2, r#"{"CPU": 2}"#).rule(|rule| rule.strategy = soft("n1"));
    let effects = it.message(1, place(theirs, 1, 1));
    assert!(
        effects.contains(&"start t2 on n0".to_owned()),
        "{effects:?}"
    );
}

/// Another node says that it has what a task needs, and hands it back each time.
#[test]
fn what_is_handed_back_again_and_again_rests_in_between() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, r#"{"CPU": 1, "GPU": 8}"#);
    it.submit(task(1, r#"{"GPU": 1}"#));
    let mut sent = 1;
    for attempt in 1..100 {
        let effects = it.message(1, settled(1, attempt, Outcome::HandedBack));
        if effects.iter().any(|text| text.contains("place t1")) {
            sent += 1;
            continue;
        }
        assert!(
            it.explain(1).contains("handed from node to node"),
            "{}",
            it.explain(1)
        );
        let effects = it.wait(1_000);
        assert!(
            effects.iter().any(|text| text.contains("place t1")),
            "{effects:?}"
        );
    }
    assert_eq!(sent, 4, "more often in one go than it may");
}

#[test]
fn a_node_does_not_take_a_second_choice_while_another_one_has_the_first() {
    let mut it = Harness::local(r#"{"CPU": 8}"#);
    it.peer(1, 1, r#"{"CPU": 1, "GPU": 1}"#);
    let either = |at| {
        let cpus = request(r#"{"CPU": 4}"#);
        task(at, r#"{"GPU": 1}"#).rule(|rule| rule.alternatives.push(cpus))
    };
    assert_eq!(it.submit(either(1)), ["n1: place t1 1, hop 1"]);
    // That one is taken.
    assert_eq!(it.submit(either(2)), ["start t2 on n0"]);
}
