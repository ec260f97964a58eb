//! A node's side of groups, message by message.

use super::*;
use crate::resource::{Amount, ResourceName};

const GROUP: GroupId = GroupId::from_bytes([7; 16]);
const OWNER: u32 = 9;

#[derive(Default)]
struct Node {
    now: Instant,
    node: NodeResources,
    it: Participant<u32>,
}

impl Node {
    fn new(cpus: u32) -> Self {
        let mut node = Self::default();
        let cpus = Amount::units(cpus);
        node.node.set_capacity(&ResourceName::CPU, cpus).unwrap();
        node
    }

    /// What it wants done after a request, in short.
    fn ask(&mut self, request: GroupRequest) -> Vec<String> {
        self.it.handle(self.now, &mut self.node, OWNER, request);
        self.effects()
    }

    fn prepare(&mut self, bundle: u32, round: u64) -> Vec<String> {
        let id = id(bundle, round);
        let bundle = cpus("2");
        self.ask(GroupRequest::Prepare { id, bundle })
    }

    fn commit(&mut self, bundle: u32, round: u64) -> Vec<String> {
        self.ask(GroupRequest::Commit(id(bundle, round)))
    }

    fn remove(&mut self, bundle: u32, round: u64) -> Vec<String> {
        self.ask(GroupRequest::Remove(id(bundle, round)))
    }

    fn pass(&mut self, time: Duration) -> Vec<String> {
        self.now = self.now + time;
        self.it.handle_timeout(self.now, &mut self.node);
        self.effects()
    }

    fn effects(&mut self) -> Vec<String> {
        let effects = std::iter::from_fn(|| self.it.poll_effect());
        let text = |effect| match effect {
            ParticipantEffect::Answer { to, answer } => {
                let Some(id) = answer.id() else {
                    return format!("to {to}: {answer:?}");
                };
                assert!([OWNER, NEXT].contains(&to));
                let what = match answer {
                    GroupAnswer::Prepared(_) => "prepared".into(),
                    GroupAnswer::Refused { why, .. } => format!("refused ({why})"),
                    GroupAnswer::Committed(_) => "committed".into(),
                    GroupAnswer::Gone(_) => "gone".into(),
                    GroupAnswer::Removed(_) => "removed".to_string(),
                    GroupAnswer::Holds { .. } => unreachable!("it names no reservation"),
                };
                format!("{} in {}: {what}", id.bundle, id.round)
            }
            ParticipantEffect::Usable { bundle, .. } => format!("{bundle} usable"),
            ParticipantEffect::Ended { bundle, .. } => format!("{bundle} ended"),
        };
        effects.map(text).collect()
    }

    fn lose(&mut self, owner: u32, outlives: bool) {
        self.it
            .owner_lost(self.now, &mut self.node, owner, |_| outlives);
    }

    fn ask_as(&mut self, owner: u32, request: GroupRequest) -> Vec<String> {
        self.it.handle(self.now, &mut self.node, owner, request);
        self.effects()
    }

    fn free(&self) -> u64 {
        self.node.available().get(&ResourceName::CPU).whole_units()
    }

    fn acquire(&mut self, amount: &str) -> Result<Allocation, BundleError> {
        self.it.acquire(GROUP, 0, &cpus(amount))
    }

    fn release(&mut self, held: Allocation) -> Vec<String> {
        self.it.release(&mut self.node, GROUP, 0, held);
        self.effects()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        std::mem::take(&mut self.it).abandon();
    }
}

fn id(bundle: u32, round: u64) -> ReservationId {
    ReservationId {
        group: GROUP,
        bundle,
        round: Round(round),
    }
}

fn cpus(amount: &str) -> Request {
    serde_json::from_str(&format!(r#"{{"CPU": "{amount}"}}"#)).unwrap()
}

const STALE: &str = "refused (this round of the bundle is over)";

#[test]
fn twice_is_once() {
    let mut node = Node::new(4);
    for _ in 0..2 {
        assert_eq!(node.prepare(0, 1), ["0 in 1: prepared"]);
        assert_eq!(node.free(), 2);
    }
    assert!(matches!(
        node.acquire("1"),
        Err(BundleError::NotUsable { .. })
    ));
    assert_eq!(node.commit(0, 1), ["0 usable", "0 in 1: committed"]);
    assert_eq!(node.commit(0, 1), ["0 in 1: committed"]);
    assert_eq!(node.prepare(0, 1), ["0 in 1: prepared"]);
    assert_eq!(node.remove(0, 1), ["0 ended", "0 in 1: removed"]);
    assert_eq!(node.remove(0, 1), ["0 in 1: removed"]);
    assert_eq!(node.commit(0, 1), ["0 in 1: gone"]);
    assert_eq!((node.free(), node.it.iter().len()), (4, 0));
}

#[test]
fn the_newest_round_counts() {
    let mut node = Node::new(4);
    node.prepare(0, 2);
    assert_eq!(node.prepare(0, 1), [format!("0 in 1: {STALE}")]);
    assert_eq!(node.commit(0, 1), ["0 in 1: gone"]);
    assert_eq!(node.remove(0, 1), ["0 in 1: removed"]);
    assert_eq!((node.free(), node.it.iter().len()), (2, 1));
    // A newer one takes its place.
    assert_eq!(node.prepare(0, 3), ["0 in 3: prepared"]);
    assert_eq!((node.free(), node.it.iter().len()), (2, 1));
    assert_eq!(node.commit(0, 2), ["0 in 2: gone"]);
    assert_eq!(node.remove(0, 4), ["0 in 4: removed"]);
    assert_eq!(node.free(), 4);
}

#[test]
fn a_bundle_goes_back_after_what_runs_in_it() {
    let mut node = Node::new(4);
    node.prepare(0, 1);
    node.commit(0, 1);
    let (mut first, second) = (node.acquire("1").unwrap(), node.acquire("1").unwrap());
    assert!(matches!(node.acquire("1"), Err(BundleError::Acquire(_))));
    assert_eq!(node.remove(0, 1), ["0 ended"]);
    assert!(node.acquire("1").is_err() && node.it.usable(GROUP, 0).is_none());
    assert_eq!(node.commit(0, 1), ["0 in 1: gone"]);
    let ending = Refusal::Ending;
    assert_eq!(node.prepare(0, 2), [format!("0 in 2: refused ({ending})")]);
    // A blocked task gives its CPU back, and does not get it again.
    node.it.release_cpu(&mut node.node, GROUP, 0, &mut first);
    let again = node.it.reacquire_cpu(GROUP, 0, &cpus("1"), &mut first);
    assert!(matches!(again, Err(BundleError::NotUsable { .. })));
    assert_eq!(node.free(), 2);
    assert_eq!(node.release(second), ["0 in 1: removed"]);
    assert_eq!(node.free(), 4);
    assert_eq!(node.release(first), [""; 0]);
}

#[test]
fn the_bundles_of_a_dead_owner_go_back() {
    let mut node = Node::new(8);
    (0..3).for_each(|bundle| drop(node.prepare(bundle, 1)));
    node.commit(0, 1);
    node.commit(1, 1);
    let held = node.acquire("2").unwrap();
    node.lose(OWNER + 1, false);
    assert_eq!(node.free(), 2);
    node.lose(OWNER, false);
    assert_eq!(node.effects(), ["0 ended", "1 ended"]);
    assert_eq!(node.free(), 6);
    // Nobody is there to be told.
    assert_eq!(node.release(held), [""; 0]);
    assert_eq!((node.free(), node.it.iter().len()), (8, 0));
}

const NEXT: u32 = OWNER + 1;

fn claim(takeovers: u32) -> GroupRequest {
    GroupRequest::Claim {
        group: GROUP,
        from: Round::of_takeover(takeovers),
    }
}

#[test]
fn what_is_committed_waits_for_the_next_owner() {
    let mut node = Node::new(8);
    (0..3).for_each(|bundle| drop(node.prepare(bundle, 1)));
    node.commit(0, 1);
    node.commit(1, 1);
    let held = node.acquire("1").unwrap();
    node.lose(OWNER, true);
    // Nobody will commit the third.
    assert_eq!((node.effects(), node.free()), (vec![], 4));
    assert_eq!(node.it.poll_timeout(), Some(node.now + ORPHAN_LIMIT));
    let more = node.acquire("1").unwrap();
    let holds = "to 10: Holds { group: GroupId(07070707070707070707070707070707), from: Round(4294967296), \
                 bundles: [(0, Round(1)), (1, Round(1))] }";
    for _ in 0..2 {
        assert_eq!(node.ask_as(NEXT, claim(1)), [holds]);
    }
    assert_eq!(node.it.poll_timeout(), None);
    // Who owned it before has no say, whatever it has sent.
    assert_eq!(node.remove(0, 9), [""; 0]);
    assert_eq!(node.prepare(2, 9), [""; 0]);
    node.lose(OWNER, false);
    assert_eq!(node.effects(), [""; 0]);
    let id = ReservationId {
        group: GROUP,
        bundle: 1,
        round: Round(1),
    };
    let removed = node.ask_as(NEXT, GroupRequest::Remove(id));
    assert_eq!(removed.len(), 2, "{removed:?}");
    // Nor has an earlier owner than the last.
    assert_eq!(node.ask_as(OWNER, claim(0)), [""; 0]);
    node.release(held);
    node.release(more);
    assert_eq!(node.free(), 6);
}

#[test]
fn what_nobody_claims_is_given_back() {
    let mut node = Node::new(4);
    node.prepare(0, 1);
    node.commit(0, 1);
    node.lose(OWNER, true);
    let until = node.now + ORPHAN_LIMIT;
    assert_eq!(node.it.poll_timeout(), Some(until));
    assert_eq!(node.pass(ORPHAN_LIMIT - HOLD_LIMIT), [""; 0]);
    assert_eq!(node.pass(HOLD_LIMIT), ["0 ended"]);
    assert_eq!((node.free(), node.it.poll_timeout()), (4, None));
    // Or when there is nobody to claim it.
    let mut node = Node::new(4);
    node.prepare(0, 1);
    node.commit(0, 1);
    node.it.disown(&mut node.node, GROUP, None);
    assert_eq!((node.effects(), node.free()), (vec![], 2));
    node.lose(OWNER, true);
    node.it.disown(&mut node.node, GROUP, None);
    assert_eq!(node.effects(), ["0 ended"]);
    assert_eq!((node.free(), node.it.poll_timeout()), (4, None));
}

#[test]
fn what_is_prepared_and_not_committed_is_given_back() {
    let mut node = Node::new(4);
    node.prepare(0, 1);
    node.prepare(1, 1);
    node.commit(1, 1);
    assert_eq!(node.it.poll_timeout(), Some(node.now + HOLD_LIMIT));
    assert_eq!(node.pass(HOLD_LIMIT), [""; 0]);
    assert_eq!(node.free(), 2);
    assert_eq!(node.commit(0, 1), ["0 in 1: gone"]);
    assert_eq!(node.it.poll_timeout(), None);
}

#[test]
fn usable_bundles_are_those_of_the_group() {
    let mut node = Node::new(8);
    for bundle in [3, 1, 2] {
        node.prepare(bundle, 1);
    }
    node.commit(3, 1);
    node.commit(1, 1);
    let numbers = |group| {
        let bundles = node.it.usable_bundles(group);
        bundles.map(|(bundle, _)| bundle).collect::<Vec<_>>()
    };
    assert_eq!(numbers(GROUP), [1, 3]);
    assert!(numbers(GroupId::from_bytes([8; 16])).is_empty());
    assert_eq!(node.it.judge(GROUP, 1, &cpus("2")), Ok(Fit::Available));
    assert!(node.it.judge(GROUP, 2, &cpus("2")).is_err());
}
