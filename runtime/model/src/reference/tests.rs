//! The parts one by one; all of them together are in `tests/objects`.

use std::cell::Cell;
use std::time::Duration;

use super::*;
use crate::id::{NodeId, ObjectId, ObjectName, TaskId};

const ME: NodeId = NodeId::from_bytes([1; 16]);
const OWNER: NodeId = NodeId::from_bytes([2; 16]);
const OTHER: NodeId = NodeId::from_bytes([3; 16]);

fn name() -> ObjectName {
    ObjectName {
        id: ObjectId::of(TaskId::from_bytes([4; 16]), 0),
        owner: OWNER,
    }
}

/// What stands for a name: alive as long as this says so.
type Names = Borrowed<u32>;

fn take(names: &mut Names, from: NodeId) -> (Token, Taken) {
    let token = Cell::new(None);
    let make = |it| {
        token.set(Some(it));
        (0, ())
    };
    let ((), taken) = names.take(from, name(), |_| None, make);
    (token.get().expect("it is made anew"), taken)
}

fn take_known(names: &mut Names, from: NodeId) -> Taken {
    let make = |_| unreachable!("it is known");
    let ((), taken) = names.take(from, name(), |_| Some(()), make);
    taken
}

#[test]
fn who_has_an_object_takes_it_from_nobody_else_but_its_owner() {
    let mut lenders = Lenders::default();
    assert_eq!(lenders.take(OTHER, OWNER), Taken::Kept);
    assert_eq!(lenders.take(OTHER, OWNER), Taken::Kept);
    assert_eq!(lenders.take(ME, OWNER), Taken::GiveBack);
    assert_eq!(lenders.take(OWNER, OWNER), Taken::Kept);
    let given_back: Vec<_> = lenders.give_back().collect();
    assert_eq!(given_back, [(OTHER, 2), (OWNER, 1)]);
    assert!(lenders.is_empty());
}

#[test]
fn whose_lender_is_lost_asks_the_owner() {
    let mut lenders = Lenders::default();
    assert_eq!(lenders.take(OTHER, OWNER), Taken::Kept);
    lenders.remove_node(OTHER);
    // It may have it from us.
    assert_eq!(lenders.take(ME, OWNER), Taken::Ask);
    assert_eq!(lenders.take(OWNER, OWNER), Taken::Kept);
    assert_eq!(lenders.take(ME, OWNER), Taken::GiveBack);
}

#[test]
fn nothing_is_lent_to_who_is_not_there() {
    let mut peers = Peers::<_, ()>::default();
    assert!(!peers.lend(OTHER, name(), 1));
    peers.joined(OTHER);
    assert!(peers.lend(OTHER, name(), 1) && peers.lend(OTHER, name(), 1));
    assert!(peers.released(OTHER, &name(), 1).is_empty());
    assert_eq!(peers.lent_as(&name()), Some(&1));
    assert_eq!(peers.released(OTHER, &name(), 1).as_slice(), [1]);
    assert!(peers.is_empty() && peers.lent_as(&name()).is_none());
    peers.lend(OTHER, name(), 1);
    // Its owner has begun a new incarnation: both are kept until neither is needed.
    peers.lend(OTHER, name(), 2);
    assert!(peers.released(OTHER, &name(), 1).is_empty());
    let (lent, _) = peers.left(OTHER).expect("it was there").into_parts();
    assert_eq!(lent, [1, 2]);
    assert!(!peers.lend(OTHER, name(), 1));
}

#[test]
fn what_was_lost_with_an_incarnation_of_its_owner_is_still_given_back_to_others() {
    let mut names = Names::default();
    names.joined(OWNER);
    let (before, _) = take(&mut names, OTHER);
    assert_eq!(names.left(OWNER), [0]);
    // Whoever names it may mean what it was, and have it from us.
    let (_, taken) = take(&mut names, ME);
    assert_eq!(taken, Taken::Ask);
    let (after, taken) = take(&mut names, OWNER);
    assert!(taken == Taken::Kept && before != after);
    let given_back: Vec<_> = names.dropped(&name(), before).give_back().collect();
    assert_eq!(given_back, [(OTHER, 1)]);
    let given_back: Vec<_> = names.dropped(&name(), after).give_back().collect();
    assert_eq!(given_back, [(OWNER, 1)]);
    assert!(names.is_empty());
}

#[test]
fn what_is_named_again_before_its_end_is_noted_is_given_back_once() {
    let mut names = Names::default();
    let (before, _) = take(&mut names, OTHER);
    let (after, _) = take(&mut names, OTHER);
    assert!(names.dropped(&name(), before).is_empty());
    let given_back: Vec<_> = names.dropped(&name(), after).give_back().collect();
    assert_eq!(given_back, [(OTHER, 2)]);
}

#[test]
fn an_owner_is_asked_once_or_when_it_comes() {
    let mut names = Names::default();
    let (token, _) = take(&mut names, OTHER);
    assert_eq!(names.want(&name(), token, false), Want::Wait);
    assert_eq!(names.want(&name(), token, true), Want::Known);
    assert_eq!(names.unknown(&name(), token, false), Some(0));
    assert_eq!(names.joined(OWNER), [name()]);
    assert_eq!(names.unknown(&name(), token, true), None);
    assert_eq!(names.answered(OTHER, &name(), Answer::Ended), None);
    assert_eq!(names.answered(OWNER, &name(), Answer::Gone), Some(0));
}

#[test]
fn an_answer_to_a_question_of_before_is_none_to_this_one() {
    let mut names = Names::default();
    names.joined(OWNER);
    let (token, _) = take(&mut names, OTHER);
    assert_eq!(names.want(&name(), token, true), Want::Ask);
    drop(names.dropped(&name(), token));
    // Somebody names it again, and somebody asks again.
    let (token, _) = take(&mut names, OTHER);
    assert_eq!(names.want(&name(), token, true), Want::Ask);
    assert_eq!(names.answered(OWNER, &name(), Answer::Gone), None);
    assert_eq!(take_known(&mut names, OTHER), Taken::Kept);
    assert_eq!(names.answered(OWNER, &name(), Answer::Ended), Some(0));
    assert_eq!(names.dropped(&name(), token).count(OTHER), 2);
    assert!(names.is_empty());
}

#[test]
fn what_is_told_beside_something_else_need_not_be_asked_for() {
    let mut names = Names::default();
    names.joined(OWNER);
    let (token, _) = take(&mut names, OWNER);
    assert_eq!(names.announced(OTHER, &name()), None);
    assert_eq!(names.announced(OWNER, &name()), Some(0));
    assert_eq!(names.want(&name(), token, true), Want::Known);
}

#[test]
fn a_result_is_kept_as_often_as_its_owner_was_told() {
    let mut peers = Peers::<(), _>::default();
    let object = name().id;
    assert_eq!(peers.keep(OWNER, object, 1), Err(1), "it is not there");
    peers.joined(OWNER);
    assert_eq!(peers.keep(OWNER, object, 1), Ok(()));
    assert_eq!(peers.keep(OWNER, object, 2), Err(2), "it is kept");
    assert_eq!(peers.unkeep(OWNER, &object), None);
    assert_eq!(
        peers.replace_kept(OWNER, &object, 7),
        1,
        "as often as that was"
    );
    assert_eq!(peers.unkeep(OWNER, &object), Some(7));
    assert_eq!(peers.unkeep(OWNER, &object), None);
    assert_eq!(peers.replace_kept(OWNER, &object, 7), 7, "there is none");
    assert_eq!(peers.keep(OWNER, object, 3), Ok(()));
    let (_, kept) = peers.left(OWNER).expect("it was there").into_parts();
    assert_eq!(kept, [3]);
}

#[test]
fn who_has_left_is_not_told_to_let_go_of_what_it_reconstructed() {
    let mut peers = Peers::<(), ()>::default();
    peers.joined(ME);
    peers.joined(OTHER);
    let mut keepers = Keepers::new(&[ME, OTHER, OWNER], &peers);
    let mut again = keepers.clone();
    assert_eq!(keepers.let_go(&peers).as_slice(), [ME, OTHER]);
    assert!(keepers.let_go(&peers).is_empty(), "once");
    peers.left(OTHER);
    peers.joined(OTHER);
    assert_eq!(again.let_go(&peers).as_slice(), [ME]);
}

#[test]
fn who_has_come_back_is_told_to_let_go_as_often_as_it_has_said_that_it_keeps_it() {
    let mut peers = Peers::<(), ()>::default();
    peers.joined(ME);
    peers.joined(OTHER);
    let mut keepers = Keepers::new(&[ME, OTHER], &peers);
    peers.left(OTHER);
    // It cannot have said so in this incarnation.
    keepers.add(OTHER, &peers);
    peers.joined(OTHER);
    assert_eq!(keepers.clone().let_go(&peers).as_slice(), [ME]);
    keepers.add(OTHER, &peers);
    keepers.add(OTHER, &peers);
    assert_eq!(keepers.let_go(&peers).as_slice(), [ME, OTHER, OTHER]);
    assert!(keepers.let_go(&peers).is_empty());
}

#[test]
fn holders_are_known_once() {
    let mut holders = Holders::default();
    let object = name().id;
    holders.set(ME, object, true);
    holders.set(OTHER, object, true);
    holders.set(ME, object, true);
    assert_eq!(holders.of(&object), [ME, OTHER]);
    holders.remove_node(ME);
    holders.set(OTHER, object, false);
    holders.set(OTHER, object, false);
    assert!(holders.is_empty() && holders.of(&object).is_empty());
}

#[test]
fn what_lacks_something_waits_for_it() {
    // Each number is made of the one before; 0 and 1 are there.
    let mut path = Path::new(4);
    let mut made = vec![0, 1];
    loop {
        let next = *path.next(|it| (!made.contains(&(it - 1))).then_some(it - 1));
        made.push(next);
        if path.begun() {
            break;
        }
    }
    assert_eq!(made, [0, 1, 2, 3, 4]);
}

#[test]
fn a_reader_asks_the_owner_and_waits_longer_each_time() {
    let mut search = Search::new(ME, OWNER);
    assert_eq!(
        search.not_brought(vec![OTHER], vec![], false),
        Next::AskOwner
    );
    assert_eq!(search.misses(), [OTHER, ME]);
    assert_eq!(
        search.owner_said(OwnerSaid::At { is_new: true }),
        Next::Bring
    );
    let mut pauses = Vec::new();
    loop {
        assert_eq!(search.not_brought(vec![], vec![], false), Next::AskOwner);
        match search.owner_said(OwnerSaid::At { is_new: false }) {
            Next::Pause(pause, silent) if silent.is_empty() => pauses.push(pause.as_millis()),
            other => panic!("{other:?}"),
        }
        if search.waited() == Next::Lost {
            break;
        }
    }
    assert_eq!(pauses, [100, 200, 300, 400, 500, 600, 700]);
}

#[test]
fn who_does_not_answer_is_waited_for_unless_it_can_be_reconstructed() {
    let mut search = Search::new(ME, ME);
    for _ in 0..100 {
        let next = search.not_brought(vec![OTHER], vec![OTHER], false);
        assert!(matches!(next, Next::Pause(_, silent) if silent == [OTHER]));
        assert_eq!(search.waited(), Next::Bring);
    }
    let next = search.not_brought(vec![OTHER], vec![OTHER], true);
    assert_eq!(next, Next::Reconstruct(Duration::ZERO));
    assert_eq!(search.reconstructed(), Next::Bring);
    assert!(search.misses().is_empty());
    // It was made just now: that takes at least as long as to wait for who made it.
    let next = search.not_brought(vec![OTHER], vec![OTHER], true);
    assert!(matches!(next, Next::Pause(..)));
    search.waited();
    let next = search.not_brought(vec![OTHER], vec![], true);
    assert!(matches!(next, Next::Reconstruct(pause) if pause > Duration::ZERO));
}

#[test]
fn who_needs_an_object_is_known_by_its_id_alone() {
    let mut peers: Peers<u32, u32> = Peers::default();
    peers.joined(OTHER);
    peers.joined(OWNER);
    let of = |number| ObjectId::of(TaskId::from_bytes([4; 16]), number);
    let needed = |peers: &Peers<u32, u32>, number| -> (Vec<NodeId>, Vec<NodeId>) {
        let object = of(number);
        (
            peers.borrowers(&object).collect(),
            peers.owners(&object).collect(),
        )
    };
    peers.lend(OTHER, name(), 0);
    assert_eq!(peers.keep(OWNER, of(1), 7), Ok(()));
    assert_eq!(needed(&peers, 0), (vec![OTHER], vec![]));
    assert_eq!(needed(&peers, 1), (vec![], vec![OWNER]));
    peers.released(OTHER, &name(), 1);
    assert_eq!(needed(&peers, 0), (vec![], vec![]));
}
