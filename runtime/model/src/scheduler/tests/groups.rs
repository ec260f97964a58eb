//! Groups of other nodes: who is asked, what is told, and where tasks go then.

use super::*;
use crate::fairness::TenantName;
use crate::group::{GroupKind, GroupSpec};
use crate::id::GroupId;
use crate::scheduler::{GroupFace, Outcome};

const ONE: &str = r#"{"CPU": 1}"#;

/// A group that a node owns.
fn group(owner: u8) -> GroupId {
    GroupId::of(node_id(owner), [7; 8])
}

fn spec(bundles: usize) -> GroupSpec {
    let bundles = vec![request(ONE); bundles];
    GroupSpec::new(GroupKind::Spread, bundles).expect("a group")
}

/// What node 1 says of its group, whose bundles are there.
fn stands(version: u64, nodes: &[Option<u8>]) -> Message {
    Message::GroupStands {
        group: group(1),
        face: Some(Box::new(GroupFace {
            version,
            tenant: TenantName::default(),
            spec: spec(nodes.len()),
            nodes: nodes.iter().map(|node| node.map(node_id)).collect(),
            why: None,
        })),
    }
}

fn gone() -> Message {
    Message::GroupStands {
        group: group(1),
        face: None,
    }
}

fn handed_back(at: u8, attempt: u32) -> Message {
    Message::Settled {
        task: task_id(at),
        attempt: Attempt(attempt),
        outcome: Outcome::HandedBack,
    }
}

/// Node 0 with two others, and a task of node 1's group.
fn asking() -> Harness {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    it.peer(2, 1, ONE);
    let of_group = task(1, ONE).strategy(&format!("group:{}:0", group(1)));
    assert_eq!(it.submit(of_group), ["n1: how is the group"]);
    it
}

#[test]
fn a_task_goes_where_the_owner_says_that_its_bundle_is() {
    let mut it = asking();
    assert!(
        it.explain(1).contains("has not said yet"),
        "{}",
        it.explain(1)
    );
    // The question or its answer was lost.
    assert_eq!(it.wait(200), ["n1: how is the group"]);
    assert_eq!(it.message(1, stands(3, &[None, None])), ["group changed"]);
    assert_eq!(it.phase(1), Phase::Ready);
    let there = it.message(1, stands(4, &[Some(2), Some(1)]));
    assert_eq!(there, ["group changed", "n2: place t1 1, hop 1"]);
    // Of what is known nobody is asked.
    let other = task(2, ONE).strategy(&format!("group:{}:1", group(1)));
    assert_eq!(it.submit(other), ["n1: place t2 1, hop 1"]);
    // Late news, and news of somebody else's.
    assert!(it.message(1, stands(3, &[Some(1), Some(1)])).is_empty());
    assert!(it.message(2, stands(9, &[Some(0), Some(0)])).is_empty());
}

#[test]
fn a_node_that_hands_back_is_believed() {
    let mut it = asking();
    it.message(1, stands(1, &[Some(2)]));
    // It has no such bundle: until its owner says where it is, the task waits.
    let back = it.message(2, handed_back(1, 1));
    assert_eq!(back, ["n2: seen t1 1", "n1: how is the group"]);
    assert_eq!(it.phase(1), Phase::Ready);
    let again = it.message(1, stands(1, &[Some(2)]));
    assert_eq!(again, ["group changed", "n2: place t1 2, hop 2"]);
    it.lose(2);
    assert_eq!(it.phase(1), Phase::Ready);
    let elsewhere = it.message(1, stands(2, &[Some(1)]));
    assert_eq!(elsewhere.last().expect("it goes"), "n1: place t1 3, hop 3");
}

#[test]
fn a_task_without_a_bundle_takes_one_after_the_other() {
    let mut it = asking();
    it.message(1, stands(1, &[Some(1), Some(2)]));
    let any = format!("group:{}", group(1));
    let mut at = |number| it.submit(task(number, ONE).strategy(&any));
    assert_eq!(at(2), ["n2: place t2 1, hop 1"]);
    assert_eq!(at(3), ["n1: place t3 1, hop 1"]);
    assert_eq!(at(4), ["n2: place t4 1, hop 1"]);
}

#[test]
fn a_task_ends_with_its_group() {
    let ended = |it: &mut Harness, event: Event, says: &str| {
        let effects = it.event(event).join("; ");
        assert!(
            effects.contains("t1 failed: ") && effects.contains(says),
            "{effects}"
        );
    };
    let from = node_id(1);
    let message = gone();
    ended(
        &mut asking(),
        Event::Message { from, message },
        "has no placement group",
    );
    let mut it = asking();
    it.message(1, stands(1, &[Some(2)]));
    let message = gone();
    ended(&mut it, Event::Message { from, message }, "was removed");
    let (node, incarnation) = (from, Incarnation(1));
    ended(
        &mut asking(),
        Event::NodeLost { node, incarnation },
        "that owned it is lost",
    );
    // Nobody owns it.
    let nobody = task(2, ONE).strategy(&format!("group:{}", group(9)));
    let mut it = Harness::local(ONE);
    assert!(it.submit(nobody)[0].contains("has no placement group"));
}

#[test]
fn a_group_is_its_tenant_s() {
    let mut it = asking();
    it.message(1, stands(1, &[Some(2)]));
    let other = task(2, ONE)
        .tenant("other")
        .strategy(&format!("group:{}", group(1)));
    assert!(it.submit(other)[0].contains("t2 failed: the tenant has no placement group"));
}

#[test]
fn who_has_asked_hears_of_every_change() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    assert_eq!(
        it.message(1, Message::WantGroup(group(0))),
        ["n1: the group is gone"]
    );
    let create = Event::CreateGroup {
        group: group(0),
        spec: spec(1),
        tenant: TenantName::default(),
    };
    assert_eq!(it.event(create), ["group changed"]);
    let asked = it.message(1, Message::WantGroup(group(0)));
    assert_eq!(asked, ["n1: the group is at [Some(0)]"]);
    // A task of another node runs in it; one for which there is no bundle is handed back.
    let spec = task(1, ONE).strategy(&format!("group:{}:0", group(0)));
    let place = |spec, at| Message::Place {
        spec,
        attempt: Attempt(at),
        hops: 1,
    };
    assert_eq!(
        it.message(1, place(spec, 1)),
        ["n1: placed t1 1", "start t1 on n0"]
    );
    let wrong = task(2, ONE).strategy(&format!("group:{}:1", group(0)));
    let back = it.message(1, place(wrong, 1));
    assert_eq!(back, ["n1: placed t2 1", "n1: settled t2 1 HandedBack"]);
    let removed = it.event(Event::RemoveGroup(group(0)));
    assert_eq!(
        removed,
        ["stop t1", "group changed", "n1: the group is gone"]
    );
    let why = it
        .scheduler
        .why_stopped(&task_id(1))
        .expect("a reason")
        .to_string();
    assert!(why.contains("was removed"), "{why}");
    let last = it.fail(1, FailureKind::Final);
    let gone = "n1: the group is gone";
    assert_eq!(
        last,
        [gone, "group changed", "n1: settled t1 1 Failed(Final)"]
    );
}
