//! Tests of the owner's side, message by message; the whole is in `simulation`.

use std::time::Duration;

use super::coordinator::{BACKOFF, BACKOFF_DOUBLINGS, PREPARE_LIMIT};
use super::*;
use crate::id::GroupId;
use crate::resource::{Amount, NodeResources, Request, ResourceName};
use crate::time::Instant;

const GROUP: GroupId = GroupId::from_bytes([7; 16]);

struct Owner {
    now: Instant,
    nodes: Vec<NodeResources>,
    it: Coordinator<usize>,
}

impl Owner {
    /// Three nodes with 4 CPUs each, and a group of two bundles of 3 CPUs.
    fn new(kind: GroupKind) -> Self {
        let node = || {
            let mut node = NodeResources::new();
            node.set_capacity(&ResourceName::CPU, Amount::units(4))
                .unwrap();
            node
        };
        let bundle: Request = serde_json::from_str(r#"{"CPU": 3}"#).unwrap();
        let spec = GroupSpec::new(kind, vec![bundle.clone(), bundle]).unwrap();
        Self {
            now: Instant::ZERO,
            nodes: vec![node(), node(), node()],
            it: Coordinator::new(GROUP, spec, Instant::ZERO),
        }
    }

    fn plan(&mut self) -> Result<(), PlanError> {
        self.it.plan(self.now, self.nodes.iter().enumerate())
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.it.handle_timeout(self.now);
    }

    fn answer(&mut self, from: usize, answer: GroupAnswer) {
        self.it.answer(self.now, from, answer);
    }

    /// What it wants done, in short.
    fn effects(&mut self) -> Vec<String> {
        let effects = std::iter::from_fn(|| self.it.poll_effect());
        let text = |effect| match effect {
            CoordinatorEffect::Send { to, request } => {
                let (id, what) = match request {
                    GroupRequest::Prepare { id, .. } => (id, "prepare"),
                    GroupRequest::Commit(id) => (id, "commit"),
                    GroupRequest::Remove(id) => (id, "remove"),
                    GroupRequest::Claim { .. } => return format!("{to}: claim"),
                };
                format!("{to}: {what} {} in {}", id.bundle, id.round)
            }
            CoordinatorEffect::Ready => "ready".into(),
            CoordinatorEffect::Found => "found".into(),
            CoordinatorEffect::Lost { bundle, node } => format!("lost {bundle} of {node}"),
            CoordinatorEffect::Removed => "removed".into(),
        };
        effects.map(text).collect()
    }

    /// A group that was taken over while these three nodes were there.
    fn taken_over(kind: GroupKind) -> Self {
        let mut owner = Self::new(kind);
        let spec = owner.it.spec().clone();
        owner.it = Coordinator::take_over(GROUP, spec, FROM, 0..3, owner.now);
        let claims = ["0: claim", "1: claim", "2: claim"];
        assert_eq!(owner.effects(), claims);
        owner
    }

    fn holds(&mut self, node: usize, bundles: &[(u32, Round)]) {
        let holds = GroupAnswer::Holds {
            group: GROUP,
            from: FROM,
            bundles: bundles.to_vec(),
        };
        self.answer(node, holds);
    }

    fn prepared(&mut self) {
        self.plan().unwrap();
        self.answer(0, GroupAnswer::Prepared(id(0, 1)));
        self.answer(1, GroupAnswer::Prepared(id(1, 1)));
    }

    fn ready(&mut self) {
        self.prepared();
        self.answer(0, GroupAnswer::Committed(id(0, 1)));
        self.answer(1, GroupAnswer::Committed(id(1, 1)));
        assert_eq!(self.it.state(), GroupState::Ready);
        self.effects();
    }
}

/// The first round of whoever has taken the group over.
const FROM: Round = Round::of_takeover(1);

fn id(bundle: u32, round: u64) -> ReservationId {
    ReservationId {
        group: GROUP,
        bundle,
        round: Round(round),
    }
}

fn refused(bundle: u32, round: u64) -> GroupAnswer {
    GroupAnswer::Refused {
        id: id(bundle, round),
        why: Refusal::Ending,
    }
}

#[test]
fn two_phases() {
    let mut owner = Owner::new(GroupKind::StrictSpread);
    owner.plan().unwrap();
    assert_eq!(owner.effects(), ["0: prepare 0 in 1", "1: prepare 1 in 1"]);
    owner.answer(1, GroupAnswer::Prepared(id(1, 1)));
    assert_eq!(owner.it.state(), GroupState::Preparing);
    // An answer of another node counts for nothing.
    owner.answer(2, GroupAnswer::Prepared(id(0, 1)));
    assert_eq!(owner.effects(), [""; 0]);
    owner.answer(0, GroupAnswer::Prepared(id(0, 1)));
    assert_eq!(owner.effects(), ["0: commit 0 in 1", "1: commit 1 in 1"]);
    owner.answer(0, GroupAnswer::Committed(id(0, 1)));
    assert_eq!(
        (owner.it.ready_node(0), owner.it.ready_node(1)),
        (Some(0), None)
    );
    owner.answer(1, GroupAnswer::Committed(id(1, 1)));
    assert_eq!(owner.effects(), ["ready"]);
    assert_eq!(owner.it.poll_timeout(), None);
    // Late and double ones change nothing.
    owner.answer(1, GroupAnswer::Committed(id(1, 1)));
    owner.answer(0, GroupAnswer::Prepared(id(0, 1)));
    owner.answer(0, refused(0, 1));
    assert_eq!(
        (owner.effects(), owner.it.state()),
        (vec![], GroupState::Ready)
    );
}

#[test]
fn a_refusal_rolls_back_and_waits_before_the_next_plan() {
    let mut owner = Owner::new(GroupKind::StrictSpread);
    owner.plan().unwrap();
    owner.answer(0, GroupAnswer::Prepared(id(0, 1)));
    owner.effects();
    owner.answer(1, refused(1, 1));
    assert_eq!(owner.effects(), ["0: remove 0 in 1"]);
    assert_eq!(owner.it.last_refusal(), Some((1, &Refusal::Ending)));
    assert_eq!(
        (owner.it.state(), owner.it.wants_plan()),
        (GroupState::Pending, false)
    );
    owner.pass(BACKOFF * 3 / 2);
    assert!(owner.it.wants_plan());
    owner.plan().unwrap();
    owner.effects();
    // It counts as reserved until that is answered.
    assert_eq!(owner.it.reserved(), [0, 0, 1]);
    owner.answer(0, GroupAnswer::Removed(id(0, 1)));
    assert_eq!(owner.it.reserved(), [0, 1]);
}

#[test]
fn the_wait_grows_until_the_group_is_ready() {
    let mut owner = Owner::new(GroupKind::StrictSpread);
    let refuse = |owner: &mut Owner, round| {
        owner.plan().unwrap();
        owner.answer(0, refused(0, round));
        owner.answer(1, GroupAnswer::Removed(id(1, round)));
        let wait = owner.it.poll_timeout().unwrap() - owner.now;
        owner.pass(wait);
        wait
    };
    let first = refuse(&mut owner, 1);
    let later: Vec<_> = (2..10).map(|round| refuse(&mut owner, round)).collect();
    assert!(first >= BACKOFF / 2 && first < BACKOFF * 2, "{first:?}");
    let longest = BACKOFF * (1 << BACKOFF_DOUBLINGS);
    assert!(
        later[7] >= longest / 2 && later[7] < longest * 3 / 2,
        "{later:?}"
    );
    assert_ne!(later[6], later[7], "every round waits a time of its own");
    owner.plan().unwrap();
    for answer in [GroupAnswer::Prepared, GroupAnswer::Committed] {
        owner.answer(0, answer(id(0, 10)));
        owner.answer(1, answer(id(1, 10)));
    }
    assert_eq!(owner.it.last_refusal(), None);
    owner.it.node_lost(owner.now, 0);
    assert!(refuse(&mut owner, 11) < BACKOFF * 2);
}

#[test]
fn a_node_that_does_not_answer_has_refused() {
    let mut owner = Owner::new(GroupKind::StrictSpread);
    owner.plan().unwrap();
    owner.answer(0, GroupAnswer::Prepared(id(0, 1)));
    owner.pass(PREPARE_LIMIT - Duration::from_micros(1));
    owner.effects();
    assert_eq!(owner.it.state(), GroupState::Preparing);
    owner.pass(Duration::from_micros(1));
    let effects = owner.effects();
    assert_eq!(effects[..2], ["0: remove 0 in 1", "1: remove 1 in 1"]);
    assert_eq!(owner.it.state(), GroupState::Pending);
}

#[test]
fn a_lost_node_while_preparing_rolls_back() {
    let mut owner = Owner::new(GroupKind::StrictSpread);
    owner.plan().unwrap();
    owner.answer(0, GroupAnswer::Prepared(id(0, 1)));
    owner.it.node_lost(owner.now, 1);
    // What was still to be sent to it is not.
    assert_eq!(owner.effects(), ["0: prepare 0 in 1", "0: remove 0 in 1"]);
    assert!(owner.it.wants_plan(), "nobody has refused");
}

#[test]
fn only_the_bundles_of_a_lost_node_move() {
    let mut owner = Owner::new(GroupKind::StrictSpread);
    owner.ready();
    owner.it.node_lost(owner.now, 0);
    assert_eq!(owner.effects(), ["lost 0 of 0"]);
    owner.plan().unwrap();
    // Node 1 keeps bundle 1; node 0 is offered again here, as another incarnation would be.
    assert_eq!(owner.effects(), ["0: prepare 0 in 2"]);
    owner.answer(0, refused(0, 2));
    assert_eq!((owner.effects(), owner.it.ready_node(1)), (vec![], Some(1)));
}

#[test]
fn a_bundle_that_is_gone_is_lost() {
    let mut owner = Owner::new(GroupKind::Spread);
    owner.ready();
    owner.answer(0, GroupAnswer::Gone(id(0, 0)));
    assert_eq!(owner.it.state(), GroupState::Ready);
    owner.answer(0, GroupAnswer::Gone(id(0, 1)));
    assert_eq!(owner.effects(), ["lost 0 of 0"]);
    assert!(owner.it.wants_plan());
    // While it was being committed, too.
    let mut owner = Owner::new(GroupKind::Spread);
    owner.prepared();
    owner.effects();
    owner.answer(1, GroupAnswer::Gone(id(1, 1)));
    assert_eq!(owner.effects(), ["lost 1 of 1"]);
}

#[test]
fn removing_ends_in_any_state() {
    let mut owner = Owner::new(GroupKind::Pack);
    owner.it.remove(owner.now);
    assert_eq!(owner.effects(), ["removed"]);
    let mut owner = Owner::new(GroupKind::StrictSpread);
    owner.ready();
    owner.it.remove(owner.now);
    owner.it.remove(owner.now);
    assert_eq!(owner.effects(), ["0: remove 0 in 1", "1: remove 1 in 1"]);
    owner.answer(0, GroupAnswer::Removed(id(0, 1)));
    assert_eq!(owner.effects(), [""; 0]);
    assert_eq!(owner.it.state(), GroupState::Removing);
    owner.it.node_lost(owner.now, 1);
    assert_eq!(owner.effects(), ["removed"]);
    assert_eq!(
        (owner.it.state(), owner.it.poll_timeout()),
        (GroupState::Removed, None)
    );
}

#[test]
fn who_takes_a_group_over_asks_all_before_it_plans() {
    let mut owner = Owner::taken_over(GroupKind::Spread);
    owner.holds(1, &[(0, Round(4))]);
    owner.holds(1, &[]);
    assert_eq!(owner.effects(), [""; 0]);
    assert!(owner.it.is_finding() && !owner.it.wants_plan());
    owner.holds(2, &[]);
    owner.it.node_lost(owner.now, 0);
    // What is there stays, and the rest is planned as ever.
    assert_eq!(owner.effects(), ["found"]);
    assert_eq!(owner.it.ready_node(0), Some(1));
    assert!(owner.it.wants_plan());
    owner.nodes.truncate(1);
    owner.plan().unwrap();
    let round = FROM.next();
    assert_eq!(owner.effects(), [format!("0: prepare 1 in {round}")]);
    owner.answer(0, GroupAnswer::Prepared(id(1, round.0)));
    owner.answer(0, GroupAnswer::Committed(id(1, round.0)));
    assert_eq!(
        owner.effects(),
        [format!("0: commit 1 in {round}"), "ready".into()]
    );
    assert_eq!(owner.it.poll_timeout(), None);
}

#[test]
fn what_is_found_late_stays_where_nothing_runs_elsewhere() {
    let mut owner = Owner::taken_over(GroupKind::Spread);
    (0..3).for_each(|node| owner.holds(node, &[]));
    assert_eq!(owner.effects(), ["found"]);
    owner.plan().unwrap();
    owner.effects();
    // It was about to be reserved elsewhere.
    owner.it.node_joined(3);
    owner.holds(3, &[(0, Round(9))]);
    let round = FROM.next();
    assert_eq!(
        owner.effects(),
        [
            "3: claim".to_owned(),
            format!("0: remove 0 in {round}"),
            format!("1: remove 1 in {round}"),
            "found".to_owned()
        ]
    );
    assert_eq!(owner.it.ready_node(0), Some(3));
    // It can be used elsewhere already.
    owner.it.node_joined(4);
    owner.holds(4, &[(0, Round(8))]);
    assert_eq!(owner.effects(), ["4: claim", "4: remove 0 in 8", "found"]);
    assert_eq!(owner.it.ready_node(0), Some(3));
}

#[test]
fn a_group_that_is_removed_before_all_is_found_leaves_nothing() {
    let mut owner = Owner::taken_over(GroupKind::Spread);
    owner.holds(0, &[(0, Round(1))]);
    owner.it.remove(owner.now);
    assert_eq!(owner.effects(), ["0: remove 0 in 1"]);
    owner.answer(0, GroupAnswer::Removed(id(0, 1)));
    owner.holds(1, &[(1, Round(1))]);
    owner.holds(2, &[]);
    assert_eq!(owner.effects(), ["1: remove 1 in 1"]);
    assert_eq!(owner.it.state(), GroupState::Removing);
    owner.answer(1, GroupAnswer::Removed(id(1, 1)));
    assert_eq!(owner.effects(), ["removed"]);
}

#[test]
fn all_that_is_found_is_ready_at_once() {
    let mut owner = Owner::taken_over(GroupKind::StrictPack);
    owner.holds(0, &[]);
    owner.holds(1, &[(0, Round(1)), (1, Round(1))]);
    assert_eq!(owner.it.state(), GroupState::Pending);
    owner.holds(2, &[]);
    assert_eq!(owner.effects(), ["found", "ready"]);
    assert_eq!(owner.it.poll_timeout(), None);
}

#[test]
fn without_a_plan_nothing_changes() {
    let mut owner = Owner::new(GroupKind::StrictPack);
    assert!(matches!(owner.plan(), Err(PlanError::Infeasible(_))));
    assert_eq!(
        (owner.effects(), owner.it.state()),
        (vec![], GroupState::Pending)
    );
    assert!(owner.it.wants_plan() && owner.it.poll_timeout().is_none());
}

#[test]
fn the_removal_of_a_round_is_that_of_those_before() {
    let mut owner = Owner::new(GroupKind::StrictSpread);
    for round in 1..=2 {
        owner.plan().unwrap();
        owner.answer(1, refused(1, round));
        owner.pass(BACKOFF * 3);
    }
    // The first is ending still, so the node says it of the last alone.
    assert_eq!(owner.it.reserved(), [0, 0]);
    owner.answer(0, GroupAnswer::Removed(id(0, 2)));
    assert_eq!(owner.it.reserved(), [0; 0]);
}
