//! Groups of other nodes: who is asked, what is told, and where tasks go then.

use super::*;
use crate::fairness::{MAX_TENANTS, Policy, TenantName};
use crate::group::{
    GroupAnswer, GroupKind, GroupMessage, GroupRequest, GroupSpec, GroupState, ReservationId, Round,
};
use crate::id::GroupId;
use crate::resource::{Amount, ResourceName};
use crate::scheduler::{GroupFace, Outcome};

const ONE: &str = r#"{"CPU": 1}"#;
const TWO: &str = r#"{"CPU": 2}"#;

/// A group that a node owns.
fn group(owner: u8) -> GroupId {
    GroupId::of(node_id(owner), [7; 8])
}

fn spec(bundles: usize) -> GroupSpec {
    let bundles = vec![request(ONE); bundles];
    GroupSpec::new(GroupKind::Spread, bundles).expect("a group")
}

/// Node 0 begins to own a group of these bundles.
fn create(it: &mut Harness, bundles: &[&str]) -> Vec<String> {
    let bundles = bundles.iter().map(|json| request(json)).collect();
    let spec = GroupSpec::new(GroupKind::Spread, bundles).expect("a group");
    let (group, tenant) = (group(0), TenantName::default());
    it.event(Event::CreateGroup {
        group,
        spec,
        tenant,
    })
}

/// A task in a bundle of node 0's group.
fn member(at: u8, asks: &str, bundle: u32) -> TaskSpec {
    task(at, asks).strategy(&format!("group:{}:{bundle}", group(0)))
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
        attempt: Attempt::new(0, attempt),
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
    assert_eq!(back, ["n1: how is the group"]);
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
        Event::Message {
            from,
            message: message.into(),
        },
        "has no placement group",
    );
    let mut it = asking();
    it.message(1, stands(1, &[Some(2)]));
    let message = gone();
    ended(
        &mut it,
        Event::Message {
            from,
            message: message.into(),
        },
        "was removed",
    );
    let (node, incarnation) = (from, Incarnation(1));
    ended(
        &mut asking(),
        Event::NodeLost { node, incarnation },
        "that owned it is lost",
    );
    // Nobody owns it.
    let nobody = task(2, ONE).strategy(&format!("group:{}", group(9)));
    let mut it = Harness::local(ONE);
    assert_eq!(it.submit(nobody), ["t2 infeasible"]);
    assert!(it.explain(2).contains("no node that is known here owns it"));
    // Nobody ever will.
    let of_own = task(3, ONE).strategy(&format!("group:{}", group(0)));
    assert!(it.submit(of_own)[0].contains("has no placement group"));
    it.peer(8, 1, ONE);
    it.lose(8);
    let of_lost = task(4, ONE).strategy(&format!("group:{}", group(8)));
    assert!(it.submit(of_lost)[0].contains("has no placement group"));
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
        attempt: Attempt::new(0, at),
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

/// What is kept for a task of a group could be what the group itself waits for.
#[test]
fn nothing_is_kept_for_tasks_of_a_group() {
    let mut it = Harness::local(TWO);
    it.submit(task(1, ONE));
    it.submit(task(2, ONE));
    create(&mut it, &[TWO]);
    assert!(it.submit(member(100, ONE, 0)).is_empty());
    // It is passed over, for longer than anybody else has patience.
    it.submit(task(3, ONE));
    it.finish(1);
    it.wait(60_000);
    it.submit(task(4, ONE));
    it.finish(2);
    it.wait(60_000);
    it.finish(3);
    let last = it.finish(4);
    assert!(last.contains(&"start t100 on n0".to_owned()), "{last:?}");
}

/// Who waits for a task of a group waits for the group first, whatever else is held.
/// Its CPU alone: small ones would take each piece of the CPU of the bundle.
#[test]
fn a_blocked_task_is_not_passed_by_small_requests_in_its_bundle() {
    let mut it = Harness::local(TWO);
    create(&mut it, &[ONE]);
    assert_eq!(it.submit(member(1, ONE, 0)), ["start t1 on n0"]);
    it.block(1);
    for at in 2..=9 {
        it.submit(member(at, r#"{"CPU": "0.25"}"#, 0));
    }
    assert!(it.unblock(1).is_empty());
    // Outside of the bundle there is room for others.
    assert_eq!(it.submit(task(10, ONE)), ["start t10 on n0"]);
    for at in 2..=4 {
        assert_eq!(it.finish(at), [format!("t{at} finished")], "kept");
    }
    assert_eq!(it.finish(5), ["t5 finished", "resume t1"]);
    assert_eq!(it.finish(1).len(), 5, "nothing is kept any more");
}

#[test]
fn a_task_of_a_group_could_only_start_in_its_bundle() {
    let mut it = Harness::local(r#"{"CPU": 3, "memory": 4}"#);
    create(&mut it, &[r#"{"CPU": 1, "memory": 4}"#, r#"{"CPU": 2}"#]);
    let would_start = |it: &Harness, at, holder| {
        let holders = [task_id(holder)];
        it.scheduler.would_start_without(&task_id(at), &holders)
    };
    // In a bundle: what they hold of it matters, and what is free of the node does not.
    assert_eq!(it.submit(member(1, ONE, 1)), ["start t1 on n0"]);
    assert_eq!(it.submit(member(2, ONE, 0)), ["start t2 on n0"]);
    assert!(it.submit(member(3, TWO, 1)).is_empty());
    assert!(would_start(&it, 3, 1));
    assert!(!would_start(&it, 3, 2), "that one is in another bundle");
    // Nor does what is held in a bundle help others.
    it.submit(task(4, ONE));
    assert!(!would_start(&it, 4, 1));
    // A group that is not there yet: nothing that is held here is what its task waits for.
    let mut it = asking();
    it.submit(task(2, ONE));
    assert_eq!(it.phase(1), Phase::Ready);
    assert!(!would_start(&it, 1, 2));
}

/// What stands of a group goes on serving, whatever becomes of the rest.
#[test]
fn a_bundle_that_stands_serves_although_another_can_never_come_back() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, TWO);
    create(&mut it, &[ONE, TWO]);
    let committed = |it: &mut Harness, answer| it.message(1, Message::Group(answer));
    let id = ReservationId {
        group: group(0),
        bundle: 1,
        round: Round(1),
    };
    committed(&mut it, GroupMessage::Answer(GroupAnswer::Prepared(id)));
    committed(&mut it, GroupMessage::Answer(GroupAnswer::Committed(id)));
    assert_eq!(it.submit(member(1, TWO, 1)), ["n1: place t1 1, hop 1"]);
    it.lose(1);
    assert_eq!(it.phase(1), Phase::Ready);
    assert_eq!(it.submit(member(2, ONE, 0)), ["start t2 on n0"]);
    assert_eq!(it.submit(member(3, TWO, 1)), ["t3 infeasible"]);
}

#[test]
fn what_another_tenant_s_group_can_never_have_is_not_told() {
    let mut it = Harness::local(ONE);
    create(&mut it, &[r#"{"CPU": 3}"#]);
    assert_eq!(it.submit(member(1, ONE, 0)), ["t1 infeasible"]);
    let others = it.submit(member(2, ONE, 0).tenant("other"));
    assert!(
        others[0].contains("t2 failed: the tenant has no placement group"),
        "{others:?}"
    );
}

#[test]
fn what_the_owner_says_again_changes_nothing() {
    let mut it = asking();
    let other = task(2, ONE).strategy(&format!("group:{}:1", group(1)));
    assert!(it.submit(other).is_empty());
    it.message(1, stands(4, &[None, Some(9)]));
    // Nobody has heard of node 9. Its news is asked for as long as tasks wait, and is the same.
    for _ in 0..3 {
        assert_eq!(it.wait(200), ["n1: how is the group"]);
        assert!(it.message(1, stands(4, &[None, Some(9)])).is_empty());
    }
    assert_eq!(it.peer(9, 1, ONE), ["n9: place t2 1, hop 1"]);
    assert_eq!(it.phase(1), Phase::Ready);
}

#[test]
fn a_plan_in_vain_is_no_news_for_other_nodes() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    create(&mut it, &[TWO]);
    let asked = it.message(1, Message::WantGroup(group(0)));
    assert_eq!(asked, ["n1: the group is at [None]"]);
    // It fails for another reason each time: nobody hears of that who does not ask.
    for at in 2..5 {
        assert!(it.peer(at, 1, ONE).is_empty());
        let why = it.scheduler.group(&group(0)).and_then(|it| it.why);
        let nodes = format!("none of {} nodes", at + 1);
        assert!(
            why.as_ref().is_some_and(|why| why.contains(&nodes)),
            "{why:?}"
        );
    }
    // At last there is room, here.
    let told = it.event(Event::SetCapacity {
        node: node_id(0),
        name: ResourceName::CPU,
        capacity: Amount::units(2),
    });
    assert!(
        told.contains(&"n1: the group is at [Some(0)]".to_owned()),
        "{told:?}"
    );
}

#[test]
fn what_waits_for_a_group_is_nobody_else_s_queue() {
    let mut config = local_config();
    config.settings.local_queue = 2;
    let mut it = Harness::with(config, &[TWO]);
    it.peer(1, 1, TWO);
    for at in 1..=4 {
        let of_group = task(at, ONE).strategy(&format!("group:{}:0", group(1)));
        assert_eq!(it.submit(of_group).len(), usize::from(at == 1));
    }
    assert_eq!(it.scheduler.own_view().queue, QueueReport::default());
    assert_eq!(it.submit(task(10, ONE)), ["start t10 on n0"]);
}

/// This node was cut off, and not the others: they may have what its tasks wait for.
#[test]
fn what_waits_for_a_group_waits_until_its_owner_is_seen_again() {
    let unseen = || {
        let mut it = asking();
        it.message(1, stands(4, &[None]));
        for at in [1, 2] {
            let (node, incarnation) = (node_id(at), Incarnation(1));
            let effects = it.event(Event::NodeUnseen { node, incarnation });
            assert!(effects.is_empty(), "{effects:?}");
        }
        assert_eq!(it.phase(1), Phase::Ready);
        // Also what comes now.
        let late = task(2, ONE).strategy(&format!("group:{}:0", group(1)));
        assert!(it.submit(late).is_empty());
        assert!(it.explain(2).contains("has not said yet"));
        let never_heard_of = task(3, ONE).strategy(&format!("group:{}:0", group(5)));
        assert_eq!(it.submit(never_heard_of), ["t3 infeasible"]);
        it
    };
    let mut it = unseen();
    it.peer(1, 1, ONE);
    it.peer(2, 1, ONE);
    assert_eq!(it.wait(200), ["n1: how is the group"]);
    let placed = it.message(1, stands(5, &[Some(2)]));
    assert!(
        placed.contains(&"n2: place t1 1, hop 1".to_owned()),
        "{placed:?}"
    );
    assert!(
        placed.contains(&"n2: place t2 1, hop 1".to_owned()),
        "{placed:?}"
    );
    // The owner of the other is there at last.
    assert_eq!(it.peer(5, 1, ONE), ["n5: how is the group"]);
    assert_eq!(it.phase(3), Phase::Ready);
    // It was lost meanwhile.
    let mut it = unseen();
    let lost = it.lose(1).join("; ");
    assert!(
        lost.contains("t1 failed") && lost.contains("t2 failed"),
        "{lost}"
    );
    assert!(lost.contains("that owned it is lost"), "{lost}");
    let lost = it.lose(5).join("; ");
    assert!(
        lost.contains("t3 failed: the tenant has no placement group"),
        "{lost}"
    );
}

/// What ran in its bundle ends, and only where the owner is gone for everybody that is said.
#[test]
fn what_runs_in_a_bundle_of_a_node_that_is_gone_says_why_it_ends() {
    for (is_over, said) in [(true, "that owned it is lost"), (false, "was cut off")] {
        let mut it = asking();
        let id = ReservationId {
            group: group(1),
            bundle: 0,
            round: Round(1),
        };
        let bundle = request(ONE);
        for request in [
            GroupRequest::Prepare { id, bundle },
            GroupRequest::Commit(id),
        ] {
            it.message(1, Message::Group(request.into()));
        }
        it.message(1, stands(1, &[Some(0)]));
        it.accept(1);
        assert_eq!(it.phase(1), Phase::Running);
        let (node, incarnation) = (node_id(1), Incarnation(1));
        let effects = it.event(match is_over {
            true => Event::NodeLost { node, incarnation },
            false => Event::NodeUnseen { node, incarnation },
        });
        assert!(effects.contains(&"stop t1".to_owned()), "{effects:?}");
        let why = it.scheduler.why_stopped(&task_id(1));
        let why = why.map(ToString::to_string).unwrap_or_default();
        assert!(why.contains(said), "{why}");
        it.fail(1, FailureKind::Final);
    }
}

/// The control store says so of node 1's group.
fn recorded(owner: u8, takeovers: u32) -> Event {
    Event::GroupRecorded {
        group: group(1),
        owner: node_id(owner),
        takeovers,
    }
}

/// Node 0 takes node 1's group over, of two bundles.
fn take_over(takeovers: u32) -> Event {
    Event::TakeOverGroup {
        group: group(1),
        spec: spec(2),
        tenant: TenantName::default(),
        takeovers,
    }
}

fn holds(takeovers: u32, bundles: &[u32]) -> Message {
    let holds = GroupAnswer::Holds {
        group: group(1),
        from: Round::of_takeover(takeovers),
        bundles: bundles.iter().map(|at| (*at, Round(1))).collect(),
    };
    Message::Group(holds.into())
}

#[test]
fn what_waits_for_a_group_with_a_record_waits_for_its_next_owner() {
    let mut it = asking();
    it.event(recorded(1, 0));
    it.message(1, stands(4, &[None]));
    let lost = it.lose(1);
    assert!(lost.contains(&"group changed".to_owned()), "{lost:?}");
    assert!(
        it.explain(1)
            .contains("is lost; another node is about to take it over")
    );
    // Its next owner is asked, and counts its news anew; what an older record says is stale.
    assert!(
        it.event(recorded(2, 1))
            .contains(&"n2: how is the group".to_owned())
    );
    assert!(it.event(recorded(1, 0)).is_empty());
    let placed = it.message(2, stands(1, &[Some(2)]));
    assert!(
        placed.contains(&"n2: place t1 1, hop 1".to_owned()),
        "{placed:?}"
    );
    // A group whose record is gone is not waited for.
    it.message(2, handed_back(1, 1));
    it.lose(2);
    let gone = it.event(Event::GroupUnrecorded {
        group: group(1),
        owner: node_id(2),
    });
    assert!(
        gone.iter()
            .any(|it| it.contains("t1 failed: placement group")),
        "{gone:?}"
    );
}

#[test]
fn who_takes_a_group_over_keeps_what_others_have_of_it() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    it.peer(2, 1, ONE);
    it.event(recorded(1, 0));
    let of_group = |at| task(at, ONE).strategy(&format!("group:{}:{}", group(1), at - 1));
    it.submit(of_group(1));
    it.submit(of_group(2));
    it.lose(1);
    assert_eq!(it.message(2, Message::WantGroup(group(1))), [""; 0]);
    let asked = it.event(take_over(1));
    assert!(
        asked.contains(&"n2: about a bundle".to_owned()),
        "{asked:?}"
    );
    assert!(
        it.explain(1)
            .contains("it was taken over from a node that is lost")
    );
    let begun = it.message(2, holds(1, &[0]));
    // The first is where it was, the other is planned here.
    assert!(
        begun.contains(&"n2: place t1 1, hop 1".to_owned()),
        "{begun:?}"
    );
    assert!(begun.contains(&"start t2 on n0".to_owned()), "{begun:?}");
    let stands = it.message(2, Message::WantGroup(group(1)));
    assert_eq!(stands, ["n2: the group is at [Some(2), Some(0)]"]);
    // Another has taken it over meanwhile: this node has nothing of it any more.
    it.accept(2);
    let lost = it.event(recorded(2, 2));
    assert!(lost.contains(&"stop t2".to_owned()), "{lost:?}");
    assert!(!it.scheduler.owns_group(&group(1)));
}

#[test]
fn a_node_that_has_not_said_yet_what_it_has_is_heard_of_groups() {
    let mut it = Harness::local(ONE);
    it.event(recorded(1, 0));
    it.event(Event::NodeExpected(info(2, 1, "")));
    let asked = it.event(take_over(1));
    assert!(
        asked.contains(&"n2: about a bundle".to_owned()),
        "{asked:?}"
    );
    it.message(2, holds(1, &[0, 1]));
    let view = it.scheduler.group(&group(1)).expect("its own");
    assert_eq!(view.state, GroupState::Ready, "{view:?}");
    // Its first view changes nothing, though it is asked once more.
    it.peer(2, 1, ONE);
    it.message(2, holds(1, &[0, 1]));
    let view = it.scheduler.group(&group(1)).expect("its own");
    assert_eq!(view.state, GroupState::Ready, "{view:?}");
    // An owner that is expected reserves here, and what it has reserved goes with it.
    let mut it = Harness::local(ONE);
    it.event(Event::NodeExpected(info(1, 1, "")));
    let id = ReservationId {
        group: group(1),
        bundle: 0,
        round: Round(1),
    };
    let prepare = GroupRequest::Prepare {
        id,
        bundle: request(ONE),
    };
    let said = it.message(1, Message::Group(prepare.into()));
    assert_eq!(said, ["n1: about a bundle"]);
    it.submit(task(1, ONE));
    assert_eq!(it.phase(1), Phase::Ready);
    it.lose(1);
    assert_eq!(it.phase(1), Phase::Dispatching);
}

#[test]
fn a_node_that_was_cut_off_leaves_it_to_the_record_whose_its_groups_are() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    it.event(take_over(1));
    it.message(1, holds(1, &[0]));
    assert!(it.scheduler.owns_group(&group(1)));
    let (node, incarnation) = (node_id(1), Incarnation(1));
    it.event(Event::NodeUnseen { node, incarnation });
    assert!(!it.scheduler.owns_group(&group(1)));
    // Nobody has taken it over: its own bundle is there yet.
    it.event(take_over(2));
    assert!(it.scheduler.owns_group(&group(1)));
    let view = it.scheduler.group(&group(1)).expect("its own");
    assert!(view.nodes.contains(&Some(node_id(0))), "{view:?}");
}

#[test]
fn what_ran_in_a_group_that_another_has_taken_over_is_not_told_that_it_was_removed() {
    let mut it = Harness::local(ONE);
    it.peer(1, 1, ONE);
    it.event(recorded(1, 0));
    let (node, incarnation) = (node_id(1), Incarnation(1));
    it.event(Event::NodeLost { node, incarnation });
    it.event(Event::TakeOverGroup {
        group: group(1),
        spec: spec(1),
        tenant: TenantName::default(),
        takeovers: 1,
    });
    it.submit(task(1, ONE).strategy(&format!("group:{}", group(1))));
    it.accept(1);
    assert_eq!(it.phase(1), Phase::Running);
    let stopped = it.event(recorded(2, 2));
    assert!(stopped.contains(&"stop t1".to_owned()), "{stopped:?}");
    let why = it.scheduler.why_stopped(&task_id(1));
    let why = why.map(ToString::to_string).unwrap_or_default();
    assert!(why.contains("has given back the bundle"), "{why}");
}

#[test]
fn who_waits_for_a_group_asks_again() {
    let mut it = asking();
    it.message(1, stands(1, &[None]));
    it.cancel(1);
    // No task waits any more, and the news that it is ready may be lost.
    assert!(it.wait(200).is_empty());
    let want = |it: &mut Harness| it.event(Event::WantGroup(group(1)));
    assert_eq!(want(&mut it), ["n1: how is the group"]);
    assert!(want(&mut it).is_empty(), "it has been asked");
    assert_eq!(it.wait(200), ["n1: how is the group"]);
    assert_eq!(it.message(1, stands(2, &[Some(2)])), ["group changed"]);
    assert!(want(&mut it).is_empty(), "it is ready");
    assert!(it.wait(200).is_empty());
}

/// Who has groups is one of the tenants, of which there are so many and no more. Those that nothing uses make room.
#[test]
fn a_group_makes_its_tenant_known() {
    let mut it = Harness::local(ONE);
    let create = |it: &mut Harness, at: u32| {
        let group = GroupId::of(node_id(0), u64::from(at).to_le_bytes());
        let tenant = format!("tenant-{at}").parse().expect("a name");
        let spec = spec(1);
        it.event(Event::CreateGroup {
            group,
            spec,
            tenant,
        });
        it.scheduler.group(&group).is_some()
    };
    let most = u32::try_from(MAX_TENANTS).expect("few");
    let none = "t".parse().expect("a name");
    it.scheduler.admit(&none).expect("the first");
    for at in 1..most {
        let name = format!("tenant-{at}").parse().expect("a name");
        it.scheduler.admit(&name).expect("one more");
    }
    assert!(create(&mut it, 1));
    assert!(create(&mut it, most));
    assert_eq!(it.scheduler.tenants().len(), 3, "the first, and those two");
}

#[test]
fn a_group_that_nobody_has_made_is_not_waited_for_for_ever() {
    let mut it = asking();
    // Its id names no node that was ever here.
    let strategy = format!("group:{}", group(9));
    assert_eq!(
        it.submit(task(7, ONE).strategy(&strategy)),
        ["t7 infeasible"]
    );
    assert!(it.wait(9_999).iter().all(|it| !it.starts_with("t7")));
    let ended = it.wait(1);
    let why = format!(
        "t7 failed: the tenant has no placement group {}: ",
        group(9)
    );
    assert!(ended.iter().any(|it| it.starts_with(&why)), "{ended:?}");
    // Its owner joins late.
    it.submit(task(8, ONE).strategy(&strategy));
    it.wait(9_000);
    assert_eq!(it.peer(9, 1, TWO), ["n9: how is the group"]);
    assert!(it.wait(60_000).iter().all(|it| !it.starts_with("t8")));
    // It was here before, and is not known to be dead.
    let (node, incarnation) = (node_id(9), Incarnation(1));
    it.cancel(8);
    it.event(Event::NodeUnseen { node, incarnation });
    let other = GroupId::of(node_id(9), [8; 8]);
    it.submit(task(9, ONE).strategy(&format!("group:{other}")));
    assert!(it.wait(60_000).iter().all(|it| !it.starts_with("t9")));
    it.cancel(9);
}

#[test]
fn a_bundle_that_there_is_not_is_refused() {
    let mut it = Harness::local(TWO);
    create(&mut it, &[ONE, ONE]);
    let why = format!(
        "t1 failed: placement group {} has no bundle 2 that can ever hold this task: it has 2, numbered from 0; name one of \
         these, or none",
        group(0)
    );
    assert_eq!(it.submit(member(1, ONE, 2)), [why]);
}

#[test]
fn a_selector_has_no_meaning_in_a_group() {
    let mut it = Harness::local(TWO);
    create(&mut it, &[ONE]);
    let said = it.submit(member(1, ONE, 0).labels("zone=a"));
    let [why] = &said[..] else {
        panic!("{said:?}");
    };
    let text = format!(
        "t1 failed: where the bundles of placement group {} are",
        group(0)
    );
    assert!(why.starts_with(&text), "{why}");
    assert_eq!(it.submit(member(2, ONE, 0)), ["start t2 on n0"]);
    it.finish(2);
}

/// A group of these bundles, of which each has its selector; whose are its nodes by the letters of their zones.
fn create_with(it: &mut Harness, kind: GroupKind, selectors: &[&str]) -> Vec<String> {
    let bundles = vec![request(ONE); selectors.len()];
    let selectors = selectors
        .iter()
        .map(|text| text.parse().expect("selectors"));
    let spec = GroupSpec::new(kind, bundles).expect("a group");
    let spec = spec.with_selectors(selectors.collect()).expect("one each");
    let (group, tenant) = (group(0), TenantName::default());
    it.event(Event::CreateGroup {
        group,
        spec,
        tenant,
    })
}

fn nodes_of(it: &Harness) -> Vec<Option<u8>> {
    let view = it.scheduler.group(&group(0)).expect("a group");
    let nodes = view.nodes.iter();
    nodes.map(|it| it.map(|id| id.as_bytes()[0])).collect()
}

#[test]
fn bundles_lie_on_nodes_with_the_labels_that_they_want() {
    for kind in GroupKind::ALL {
        let mut it = Harness::new(&[]);
        for (at, labels) in [(0, "zone=a"), (1, "zone=b"), (2, "zone=b,spot=1")] {
            it.join(at, TWO, labels);
        }
        let strict_pack = kind == GroupKind::StrictPack;
        let wanted = match strict_pack {
            true => ["zone=b,!spot", "zone=b"],
            false => ["zone=b,!spot", "zone=a"],
        };
        create_with(&mut it, kind, &wanted);
        let nodes = if strict_pack { [1, 1] } else { [1, 0] };
        assert_eq!(nodes_of(&it), nodes.map(Some), "{kind}");
        // One whose node is lost goes to another that has them, if there is one.
        it.lose(1);
        let after = nodes_of(&it);
        assert_eq!(after[0], None, "{kind}");
        it.join(3, TWO, "zone=b");
        assert_eq!(nodes_of(&it)[0], Some(3), "{kind}");
        it.event(Event::RemoveGroup(group(0)));
    }
}

#[test]
fn what_bundles_want_of_labels_has_fallbacks_and_is_explained() {
    let mut it = Harness::new(&[]);
    it.join(0, ONE, "zone=a");
    it.join(1, ONE, "zone=b");
    create_with(&mut it, GroupKind::Spread, &["zone=c ; zone=b", "*"]);
    assert_eq!(nodes_of(&it), [Some(1), Some(0)]);
    it.event(Event::RemoveGroup(group(0)));
    let why = |it: &Harness| it.scheduler.group(&group(0)).expect("a group").why;
    create_with(&mut it, GroupKind::Pack, &["zone=c", "*"]);
    let said = why(&it).expect("a reason");
    assert_eq!(said, "bundle 0: label zone=c matches none of 2 nodes");
    // Who waits for it hears that.
    it.submit(member(1, ONE, 0));
    assert!(it.explain(1).contains(&said), "{}", it.explain(1));
    it.join(2, r#"{"CPU": 0}"#, "zone=c");
    let said = why(&it).expect("a reason");
    let text = "bundle 0 fits none of the 1 nodes whose labels match zone=c, not even an empty one (CPU: needs 1";
    assert!(said.starts_with(text), "{said}");
    it.join(3, ONE, "zone=c");
    // The first round of a group of this id is over where the one before was.
    it.wait(1_000);
    assert_eq!(nodes_of(&it), [Some(3), Some(0)]);
    let mut it = Harness::new(&[]);
    it.join(0, ONE, "zone=a");
    it.join(1, ONE, "zone=b");
    create_with(&mut it, GroupKind::StrictPack, &["zone=a", "zone=b"]);
    let said = why(&it).expect("a reason");
    assert_eq!(
        said,
        "strict_pack: no node has the labels that all 2 bundles demand"
    );
    it.event(Event::RemoveGroup(group(0)));
}

/// What a tenant uses, in CPUs.
fn cpus_of(it: &Harness, tenant: &str) -> String {
    let tenants = it.scheduler.tenants();
    let tenant = tenants
        .find(&tenant.parse().expect("a name"))
        .expect("known");
    tenants
        .get(tenant)
        .usage()
        .get(&ResourceName::CPU)
        .to_string()
}

#[test]
fn what_a_group_has_reserved_is_used_by_its_tenant() {
    let mut it = Harness::local(r#"{"CPU": 4}"#);
    create(&mut it, &[TWO, ONE]);
    assert_eq!(cpus_of(&it, "default"), "3");
    // What runs inside is not counted once more, blocked or not.
    assert_eq!(it.submit(member(1, ONE, 0)), ["start t1 on n0"]);
    it.accept(1);
    assert_eq!(cpus_of(&it, "default"), "3");
    it.block(1);
    it.unblock(1);
    assert_eq!(cpus_of(&it, "default"), "3");
    // Beside it.
    assert_eq!(it.submit(task(2, ONE)), ["start t2 on n0"]);
    assert_eq!(cpus_of(&it, "default"), "4");
    // Until the last has let go of it.
    it.event(Event::RemoveGroup(group(0)));
    assert_eq!(cpus_of(&it, "default"), "3", "one bundle is back");
    it.fail(1, FailureKind::Final);
    assert_eq!(cpus_of(&it, "default"), "1");
    it.finish(2);
    assert_eq!(cpus_of(&it, "default"), "0");
}

#[test]
fn a_group_goes_in_turn_with_the_tasks_of_other_tenants() {
    for policy in [Policy::Drf, Policy::Fair, Policy::Fifo] {
        let mut it = Harness::local(r#"{"CPU": 2, "memory": "2GiB"}"#);
        it.event(Event::Configure(
            Settings::default().with(Setting::Policy(policy)).into(),
        ));
        let create = |it: &mut Harness, at: u8| {
            let bundles = vec![request(r#"{"CPU": 1, "memory": "1GiB"}"#); 2];
            it.event(Event::CreateGroup {
                group: GroupId::of(node_id(0), [at; 8]),
                spec: GroupSpec::new(GroupKind::Pack, bundles).expect("a group"),
                tenant: "greedy".parse().expect("a name"),
            })
        };
        create(&mut it, 1);
        it.submit(task(1, r#"{"CPU": 1, "memory": "1GiB"}"#).tenant("other"));
        // The whole node is theirs again and again.
        create(&mut it, 2);
        let said = it.event(Event::RemoveGroup(GroupId::of(node_id(0), [1; 8])));
        let is_started = said.iter().any(|it| it == "start t1 on n0");
        assert!(is_started, "{policy:?}: {said:?}");
        it.finish(1);
        it.event(Event::RemoveGroup(GroupId::of(node_id(0), [2; 8])));
    }
}
