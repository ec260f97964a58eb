//! A large request is not passed over for ever.

use super::*;
use crate::fairness::Policy;
use crate::resource::{Amount, ResourceName};

const ONE: &str = r#"{"CPU": 1}"#;

/// A node on which small tasks come and go, 1 to 4, so that a large one, 100, never fits.
fn busy() -> Harness {
    let mut it = Harness::local(r#"{"CPU": 4, "memory": 4}"#);
    for at in 1..=4 {
        it.submit(task(at, ONE));
    }
    it.submit(task(100, r#"{"CPU": 4}"#));
    it
}

/// One small task ends and another begins, if it may.
fn next(it: &mut Harness, ends: u8, begins: u8) -> bool {
    it.submit(task(begins, ONE));
    let effects = it.finish(ends);
    effects.iter().any(|text| text.starts_with("start"))
}

#[test]
fn what_becomes_free_is_kept_after_a_while() {
    let mut it = busy();
    assert!(next(&mut it, 1, 5));
    it.wait(29_000);
    assert!(next(&mut it, 2, 6), "its patience has not ended");
    assert_eq!(
        it.scheduler.poll_timeout().map(Instant::as_micros),
        Some(30_000_000)
    );
    it.wait(1_000);
    assert!(!next(&mut it, 3, 7), "kept");
    assert!(
        it.explain(7)
            .contains("the rest being kept for a request that has waited long")
    );
    // Others run beside what is kept.
    assert_eq!(it.submit(task(8, r#"{"memory": 1}"#)), ["start t8 on n0"]);
    it.finish(4);
    it.finish(5);
    assert_eq!(it.finish(6), ["t6 finished", "start t100 on n0"]);
    // Nothing is kept any more.
    assert_eq!(it.finish(100), ["t100 finished", "start t7 on n0"]);
}

#[test]
fn who_waits_already_has_the_patience_that_is_set_now() {
    let patience = |seconds| {
        let patience = Setting::Patience(Duration::from_secs(seconds));
        Event::Configure(Settings::default().with(patience).into())
    };
    let mut it = busy();
    assert!(next(&mut it, 1, 5));
    it.wait(5_000);
    it.event(patience(60));
    it.wait(30_000);
    assert!(next(&mut it, 2, 6), "it lasts longer");
    it.event(patience(40));
    it.wait(4_000);
    assert!(next(&mut it, 3, 7));
    it.wait(1_000);
    assert!(!next(&mut it, 4, 8), "kept");
}

#[test]
fn what_is_kept_stays_kept_when_the_policy_changes() {
    let mut it = busy();
    assert!(next(&mut it, 1, 5));
    it.wait(20_000);
    let policy =
        |it: Policy| Event::Configure(Settings::default().with(Setting::Policy(it)).into());
    it.event(policy(Policy::Fifo));
    // It has waited for twenty seconds already.
    it.wait(10_000);
    assert!(!next(&mut it, 2, 6), "kept");
    it.event(policy(Policy::Drf));
    assert!(!next(&mut it, 3, 7), "kept still");
}

#[test]
fn shorter_patience_is_that_of_what_is_kept_too() {
    let patience = |seconds| Setting::Patience(Duration::from_secs(seconds));
    let set = |setting| Event::Configure(Settings::default().with(setting).into());
    // What it waits for is held for good.
    let mut it = Harness::local(r#"{"CPU": 2, "GPU": 1}"#);
    it.event(set(patience(3_600)));
    it.submit(task(1, r#"{"GPU": 1}"#));
    it.submit(task(100, r#"{"CPU": 2, "GPU": 1}"#));
    it.submit(task(2, ONE));
    it.submit(task(3, ONE));
    it.submit(task(4, ONE));
    it.finish(2);
    it.wait(3_600_000);
    it.submit(task(5, ONE));
    it.finish(3);
    assert_eq!(it.phase(5), Phase::Ready, "kept");
    it.event(set(patience(1)));
    it.wait(1_000);
    it.wait(1_000);
    assert_ne!(it.phase(5), Phase::Ready, "given up");
}

#[test]
fn nothing_is_kept_for_whom_it_does_not_help() {
    let starved = || {
        let mut it = busy();
        next(&mut it, 1, 5);
        it.wait(30_000);
        assert!(!next(&mut it, 2, 6));
        it
    };
    let mut it = starved();
    assert_eq!(it.cancel(100), ["t100 cancelled", "start t6 on n0"]);
    // It does not fit any more.
    let mut it = starved();
    let effects = it.event(Event::SetCapacity {
        node: node_id(0),
        name: ResourceName::CPU,
        capacity: Amount::units(3),
    });
    assert_eq!(effects, ["t100 infeasible"]);
    assert_eq!(it.finish(3), ["t3 finished", "start t6 on n0"]);
}

/// With several nodes, one that changes so that it cannot serve the request is given up.
#[test]
fn a_node_that_is_kept_in_vain_is_given_up() {
    let mut it = Harness::new(&[r#"{"CPU": 2}"#, r#"{"CPU": 2}"#]);
    for at in 1..=4 {
        it.submit(task(at, ONE));
    }
    it.submit(task(100, r#"{"CPU": 2}"#));
    next(&mut it, 1, 5);
    it.wait(30_000);
    let kept: Vec<u8> = it
        .scheduler
        .cluster()
        .iter()
        .filter(|(_, node)| node.kept().is_some())
        .map(|(_, node)| node.id().as_bytes()[0])
        .collect();
    let [node] = kept[..] else {
        panic!("{kept:?}");
    };
    let (node, name) = (node_id(node), ResourceName::CPU);
    let capacity = Amount::units(1);
    it.event(Event::SetCapacity {
        node,
        name,
        capacity,
    });
    assert!(
        it.scheduler
            .cluster()
            .iter()
            .all(|(_, node)| node.kept().is_none())
    );
}

#[test]
fn the_second_choice_is_kept_where_the_first_is_not_to_be_had() {
    let mut it = Harness::local(r#"{"CPU": 2}"#);
    it.submit(task(1, ONE));
    it.submit(task(2, ONE));
    it.submit(
        task(100, r#"{"GPU": 1}"#).rule(|rule| rule.alternatives.push(request(r#"{"CPU": 2}"#))),
    );
    next(&mut it, 1, 3);
    it.wait(30_000);
    assert!(!next(&mut it, 2, 4));
    assert_eq!(it.finish(3), ["t3 finished", "start t100 on n0"]);
}

/// Who is blocked holds what the large one may wait for, so it gets its CPU back all the same.
#[test]
fn a_blocked_task_resumes_beside_what_is_kept() {
    let mut it = Harness::local(r#"{"CPU": 4, "memory": 4}"#);
    it.submit(task(1, r#"{"CPU": 1, "memory": 4}"#));
    for at in 2..=4 {
        it.submit(task(at, ONE));
    }
    it.submit(task(100, r#"{"CPU": 4, "memory": 4}"#));
    next(&mut it, 2, 5);
    it.wait(30_000);
    it.accept(1);
    it.block(1);
    assert!(it.submit(task(6, ONE)).is_empty());
    assert_eq!(it.unblock(1), ["resume t1"]);
}

/// Small requests would take each piece of the CPU that it needs whole.
#[test]
fn a_blocked_task_is_not_passed_by_small_requests() {
    for other in ["default", "other"] {
        let mut it = Harness::local(r#"{"CPU": 1}"#);
        it.submit(task(1, ONE));
        it.block(1);
        for at in 2..=9 {
            it.submit(task(at, r#"{"CPU": "0.25"}"#).tenant(other));
        }
        assert!(it.unblock(1).is_empty());
        for at in 2..=4 {
            assert_eq!(it.finish(at), [format!("t{at} finished")], "kept");
        }
        assert_eq!(it.finish(5), ["t5 finished", "resume t1"]);
        // Nothing is kept any more.
        assert_eq!(it.finish(1).len(), 5);
    }
}

/// The alternative that it likes best is held by somebody who does not pass it over at all.
#[test]
fn another_alternative_is_kept_where_one_was_kept_in_vain() {
    let mut it = Harness::local(r#"{"CPU": 2, "GPU": 1}"#);
    it.submit(task(50, r#"{"GPU": 1}"#));
    it.submit(task(1, ONE));
    it.submit(task(2, ONE));
    it.submit(
        task(100, r#"{"GPU": 1}"#).rule(|rule| rule.alternatives.push(request(r#"{"CPU": 2}"#))),
    );
    next(&mut it, 1, 3);
    it.wait(30_000);
    assert!(next(&mut it, 2, 4), "the GPU is kept");
    it.wait(30_000);
    assert!(!next(&mut it, 3, 5), "the CPUs are kept");
    assert_eq!(it.finish(4), ["t4 finished", "start t100 on n0"]);
}

/// So it is with nodes: one that nothing leaves is not kept for ever.
#[test]
fn another_node_is_kept_where_one_was_kept_in_vain() {
    let mut it = Harness::new(&[r#"{"CPU": 2}"#, r#"{"CPU": 2}"#]);
    let on = |at, node: &str| {
        let strategy = format!("node:{node}").parse().unwrap();
        task(at, ONE).rule(|rule| rule.strategy = strategy)
    };
    // It lacks less on the first, half of which is free but held by one that stays.
    it.submit(on(50, "n0"));
    it.submit(on(1, "n1"));
    it.submit(on(2, "n1"));
    it.submit(on(3, "n0"));
    it.submit(task(100, r#"{"CPU": 2}"#));
    it.submit(on(4, "n1"));
    assert!(it.finish(1).contains(&"start t4 on n1".to_owned()));
    it.wait(30_000);
    it.submit(on(5, "n1"));
    it.finish(3);
    for _ in 0..4 {
        it.wait(30_000);
    }
    it.finish(2);
    let effects = it.finish(4);
    let started = |text: &String| text == "start t100 on n1";
    let goes_on = effects.iter().any(started) || it.finish(5).iter().any(started);
    assert!(goes_on, "{}", it.explain(100));
}

/// What is kept for a request that has waited long is another matter, and so is who else goes on before.
#[test]
fn whoever_is_to_go_on_is_not_passed_by_small_requests() {
    // A GPU is kept for somebody.
    let mut it = Harness::local(r#"{"CPU": 2, "GPU": 1}"#);
    it.submit(task(50, r#"{"GPU": 1}"#));
    it.submit(task(100, r#"{"GPU": 1, "CPU": "0.5"}"#));
    it.submit(task(1, ONE));
    it.submit(task(2, ONE));
    it.wait(30_000);
    let node = it.scheduler.own_nodes()[0];
    assert!(it.scheduler.cluster()[node].kept().is_some());
    // Two are blocked, and small ones have their CPUs.
    it.block(1);
    it.block(2);
    for at in 3..=30 {
        it.submit(task(at, r#"{"CPU": "0.25"}"#));
    }
    assert!(it.unblock(1).is_empty());
    assert!(it.unblock(2).is_empty());
    let mut resumed = Vec::new();
    for at in 3..=10 {
        if it.scheduler.task(&task_id(at)).is_none() {
            continue;
        }
        let effects = it.finish(at);
        resumed.extend(
            effects
                .iter()
                .filter(|text| text.starts_with("resume"))
                .cloned(),
        );
        if resumed.len() < 2 {
            assert!(
                !effects.iter().any(|text| text.starts_with("start")),
                "{effects:?}"
            );
        }
    }
    assert_eq!(resumed, ["resume t1", "resume t2"]);
}

/// Of different sizes, so that the first that was looked at is not the largest.
#[test]
fn the_largest_that_is_to_go_on_is_kept_for() {
    let mut it = Harness::local(r#"{"CPU": 3}"#);
    it.submit(task(1, ONE));
    it.submit(task(2, r#"{"CPU": 2}"#));
    it.block(1);
    it.block(2);
    for at in 3..=40 {
        it.submit(task(at, r#"{"CPU": "0.5"}"#));
    }
    assert!(it.unblock(1).is_empty());
    assert!(it.unblock(2).is_empty());
    let effects: Vec<String> = (3..=8).flat_map(|at| it.finish(at)).collect();
    let effects: Vec<&String> = effects
        .iter()
        .filter(|it| !it.contains("finished"))
        .collect();
    assert_eq!(effects[..2], ["resume t1", "resume t2"], "{effects:?}");
}

/// A GPU that one task has for hours is kept in vain, with a CPU beside it.
#[test]
fn what_is_kept_in_vain_is_in_nobodys_way() {
    let held = |asks| {
        let mut it = Harness::local(r#"{"CPU": 4, "GPU": 1}"#);
        it.submit(task(50, r#"{"GPU": 1}"#));
        it.submit(task(100, asks));
        it.submit(task(1, ONE));
        it
    };
    // Nobody passes it over any more: who needs the rest of the node gets it.
    let mut it = held(r#"{"CPU": 1, "GPU": 1}"#);
    it.finish(1);
    it.wait(30_000);
    assert!(it.submit(task(101, r#"{"CPU": 4}"#)).is_empty(), "kept");
    assert_eq!(it.wait(30_000), ["start t101 on n0"]);
    // Another one is kept for, which small ones would pass for ever.
    let mut it = held(r#"{"GPU": 1}"#);
    for at in 2..=4 {
        it.submit(task(at, ONE));
    }
    it.submit(task(101, r#"{"CPU": 4}"#));
    assert!(next(&mut it, 1, 5));
    it.wait(30_000);
    assert!(next(&mut it, 2, 6));
    it.wait(30_000);
    assert!(!next(&mut it, 3, 7), "kept for the other");
    for at in [4, 5] {
        it.finish(at);
    }
    assert_eq!(it.finish(6), ["t6 finished", "start t101 on n0"]);
    // It has its turn again, when it is passed over again.
    assert!(it.finish(101).contains(&"start t7 on n0".to_owned()));
    assert_eq!(it.finish(50), ["t50 finished", "start t100 on n0"]);
}

/// One alternative was kept in vain on a node: the next is tried before the same on all other nodes.
#[test]
fn each_alternative_is_kept_in_its_turn() {
    let gpu = r#"{"CPU": 1, "GPU": 1}"#;
    let mut it = Harness::new(&[gpu, gpu, gpu, gpu, r#"{"CPU": 2}"#]);
    for at in 0..4 {
        let strategy = format!("node:n{at}");
        it.submit(task(50 + at, r#"{"GPU": 1}"#).strategy(&strategy));
    }
    let on_last = |at| task(at, ONE).strategy("node:n4");
    it.submit(on_last(1));
    it.submit(on_last(2));
    it.submit(
        task(100, r#"{"GPU": 1}"#).rule(|rule| rule.alternatives.push(request(r#"{"CPU": 2}"#))),
    );
    it.submit(on_last(3));
    it.finish(1);
    for at in 10..20 {
        it.submit(task(at, "{}"));
    }
    it.wait(30_000);
    it.wait(30_000);
    it.submit(on_last(4));
    assert_eq!(it.finish(2), ["t2 finished"], "kept");
    assert_eq!(it.finish(3), ["t3 finished", "start t100 on n4"]);
}

/// Whoever was passed over has left: nothing stays kept for the next of its kind, which has to be patient again.
#[test]
fn what_was_kept_for_one_that_left_is_not_kept_for_ever() {
    let mut it = busy();
    it.submit(task(101, r#"{"CPU": 4}"#));
    next(&mut it, 1, 5);
    it.wait(30_000);
    assert!(!next(&mut it, 2, 6), "kept");
    it.cancel(100);
    assert_eq!(it.wait(30_000), ["start t6 on n0"]);
}

/// Of one unit somebody has a little for ever: the shares that are left of it are not what makes another one whole.
#[test]
fn shares_that_never_become_whole_do_not_count() {
    let little = r#"{"CPU": "0.1"}"#;
    let small = |at| task(at, r#"{"CPU": "0.25"}"#);
    let mut it = Harness::local(r#"{"CPU": 2}"#);
    it.submit(task(50, little));
    it.submit(task(1, ONE));
    it.block(1);
    for at in 2..=30 {
        it.submit(small(at));
    }
    assert!(it.unblock(1).is_empty());
    let effects: Vec<String> = (2..=8).flat_map(|at| it.finish(at)).collect();
    let first = effects.iter().find(|text| !text.contains("finished"));
    assert_eq!(first.map(String::as_str), Some("resume t1"));
    // So it is with a request that has waited long.
    let mut it = Harness::local(r#"{"CPU": 2}"#);
    it.submit(task(50, little));
    for at in 2..=8 {
        it.submit(small(at));
    }
    it.submit(task(100, ONE));
    assert_eq!(it.finish(2), ["t2 finished"]);
    it.submit(small(9));
    it.wait(30_000);
    for at in 10..=30 {
        assert!(it.submit(small(at)).is_empty());
    }
    let effects: Vec<String> = (3..=9).flat_map(|at| it.finish(at)).collect();
    let first = effects.iter().find(|text| !text.contains("finished"));
    assert_eq!(first.map(String::as_str), Some("start t100 on n0"));
}
