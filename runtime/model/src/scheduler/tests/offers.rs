//! What waits at one node goes where there is room, whatever it is and whatever waits beside it.

use super::*;
use crate::resource::ResourceName;

const ONE: &str = r#"{"CPU": 1}"#;
const BOTH: &str = r#"{"CPU": 1, "GPU": 1}"#;

/// The node is full, and so is the other.
fn full() -> Harness {
    let mut it = Harness::local(BOTH);
    it.one_cpu(1, 1, false, 1);
    assert_eq!(it.submit(task(1, BOTH)), ["start t1 on n0"]);
    it
}

/// The same while the other has nothing to run anything with yet.
fn alone() -> Harness {
    let mut it = Harness::local(BOTH);
    it.peer(1, 1, r#"{"memory": 1}"#);
    it.submit(task(1, BOTH));
    it
}

/// A GPU, or else this.
fn or_else(at: u8, alternative: &str) -> TaskSpec {
    task(at, r#"{"GPU": 1}"#).rule(|rule| rule.alternatives.push(request(alternative)))
}

#[test]
fn another_node_has_another_alternative_free() {
    let mut it = full();
    assert!(it.submit(or_else(2, ONE)).is_empty());
    assert_eq!(it.phase(2), Phase::Ready);
    assert_eq!(it.one_cpu(1, 2, true, 0), ["n1: place t2 1, hop 1"]);
    // It is that alternative that counts as taken there.
    let name = ResourceName::CPU;
    let cluster = it.scheduler.cluster();
    let node = &cluster[cluster.by_id(node_id(1)).expect("a member")];
    let crate::cluster::Supply::Peer(report) = node.supply() else {
        panic!("a peer");
    };
    assert_eq!(report.load().amount(&name).to_string(), "1");
}

#[test]
fn a_soft_rule_that_gives_way_holds_nobody_back() {
    let soft = |at, node: &str| task(at, ONE).strategy(&format!("node:{node}:soft"));
    let mut it = full();
    assert!(it.submit(soft(2, "gone")).is_empty());
    assert!(it.submit(soft(3, "n0")).is_empty());
    assert_eq!(it.one_cpu(1, 2, true, 0), ["n1: place t2 1, hop 1"]);
    // The node that this one names is there, and only busy.
    it.message(
        1,
        Message::Placed {
            task: task_id(2),
            attempt: Attempt::FIRST,
        },
    );
    assert!(it.one_cpu(1, 3, true, 0).is_empty());
    assert_eq!(it.phase(3), Phase::Ready);
}

#[test]
fn an_actor_that_was_not_created_yet_goes_too() {
    let mut it = full();
    let kind = TaskKind::Actor(actor_id(2));
    let actor = TaskSpec {
        kind,
        ..task(2, ONE)
    };
    assert!(it.submit(actor.clone()).is_empty());
    assert_eq!(it.one_cpu(1, 2, true, 0), ["n1: place t2 1, hop 1"]);
    // One of another owner goes back to that.
    let mut it = full();
    it.message(
        1,
        Message::Place {
            spec: actor,
            attempt: Attempt::FIRST,
            hops: 1,
        },
    );
    assert_eq!(it.one_cpu(1, 2, true, 0), ["n1: settled t2 1 HandedBack"]);
}

#[test]
fn many_that_find_no_room_there_hide_nobody() {
    let mut it = alone();
    for at in 10..210 {
        assert!(it.submit(task(at, r#"{"GPU": 1}"#)).is_empty());
    }
    assert!(it.submit(task(2, ONE)).is_empty());
    assert_eq!(it.one_cpu(1, 2, true, 0), ["n1: place t2 1, hop 1"]);
}

/// By priority, then by age, whichever class it is of.
#[test]
fn who_would_be_next_goes_first() {
    let mut it = alone();
    it.submit(task(2, r#"{"CPU": "0.5"}"#));
    it.submit(task(3, ONE).terms(|terms| terms.priority = 1));
    it.submit(task(4, r#"{"CPU": "0.25"}"#).terms(|terms| terms.priority = 1));
    assert_eq!(it.one_cpu(1, 2, true, 0), ["n1: place t3 1, hop 1"]);
}

/// Each node has its own turns, so they would all begin with the same node.
#[test]
fn who_spreads_begins_behind_itself() {
    for (at, expected) in [(0, "n1: place t1 1, hop 1"), (1, "n2: place t1 1, hop 1")] {
        let config = Config {
            local: Some(node_id(at)),
            ..Config::default()
        };
        let mut it = Harness::with(config, &[]);
        it.join(at, ONE, "");
        for peer in (0..3).filter(|peer| *peer != at) {
            it.one_cpu(peer, 1, true, 0);
        }
        assert_eq!(it.submit(task(1, ONE).strategy("spread")), [expected]);
    }
}

/// What waits here for its second choice would else seem to take nothing.
#[test]
fn what_waits_counts_as_what_the_node_can_serve() {
    let load = |it: &Harness| {
        let own = it.scheduler.cluster().own(it.scheduler.own_nodes()[0]);
        own.expect("an own node").load().amounts()
    };
    for strategy in ["default", "random"] {
        let mut it = Harness::local(ONE);
        it.peer(1, 1, r#"{"memory": 1}"#);
        it.submit(task(1, ONE));
        it.submit(or_else(2, ONE).strategy(strategy));
        assert_eq!(it.phase(2), Phase::Ready);
        let expected: ResourceSet = serde_json::from_str(ONE).expect("amounts");
        assert_eq!(load(&it), expected, "{strategy}");
        assert_eq!(it.finish(1), ["t1 finished", "start t2 on n0"]);
        assert!(load(&it).is_empty());
        // What another node gave it, too.
        it.message(
            1,
            Message::Place {
                spec: or_else(3, ONE),
                attempt: Attempt::FIRST,
                hops: 1,
            },
        );
        assert_eq!(load(&it), expected, "{strategy}");
        it.message(
            1,
            Message::Withdraw {
                task: task_id(3),
                attempt: Attempt::FIRST,
            },
        );
    }
}
