//! Properties of gossip. The simulation of whole clusters is in `tests/gossip`.

use proptest::prelude::*;

use super::change::Change;
use super::fuzz::fuzz;
use super::*;
use crate::cluster::QueueReport;
use crate::id::{Incarnation, NodeId};
use crate::random::Random;
use crate::resource::{Amount, NodeResources, Request, ResourceName, ResourceSet};
use crate::scheduler::{NodeInfo, PeerView};

fn view_version() -> impl Strategy<Value = ViewVersion> {
    (any::<[u8; 16]>(), any::<[u64; 3]>()).prop_map(|(id, numbers)| ViewVersion {
        node: NodeId::from_bytes(id),
        incarnation: Incarnation(numbers[0]),
        version: numbers[1],
        info_version: numbers[2],
    })
}

fn update() -> impl Strategy<Value = Update> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    (view_version(), proptest::option::of(bytes()), bytes()).prop_map(|(known, info, view)| {
        Update {
            node: known.node,
            incarnation: known.incarnation,
            version: known.version,
            info_version: known.info_version,
            info: info.map(Body::from),
            view: Body::from(view),
        }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let updates = || proptest::collection::vec(update(), 0..6);
    let view_versions = || proptest::collection::vec(view_version(), 0..6);
    let checksum = any::<[u8; 8]>().prop_map(Checksum);
    prop_oneof![
        updates().prop_map(Message::News),
        proptest::collection::vec(checksum, 0..70).prop_map(Message::Compare),
        view_versions().prop_map(Message::Digest),
        (updates(), view_versions())
            .prop_map(|(updates, wants)| Message::Repair { updates, wants }),
    ]
}

proptest! {
    #[test]
    fn messages_come_back_the_same(message in message()) {
        let bytes = postcard::to_stdvec(&message).unwrap();
        prop_assert_eq!(postcard::from_bytes(&bytes), Ok(message));
    }

    #[test]
    fn an_update_is_not_longer_than_it_is_counted(update in update()) {
        let bytes = postcard::to_stdvec(&update).unwrap();
        prop_assert!(bytes.len() <= update.encoded_bytes());
    }

    #[test]
    fn bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = postcard::from_bytes::<Message>(&bytes);
    }
}

#[test]
fn whatever_happens_the_invariants_hold() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let bytes: Vec<u8> = (0..2_000).map(|_| random.next() as u8).collect();
        fuzz(&bytes);
    }
}

fn resources() -> NodeResources {
    let mut node = NodeResources::new();
    for (name, units) in [(ResourceName::CPU, 32), (ResourceName::GPU, 1)] {
        node.set_capacity(&name, Amount::units(units)).unwrap();
    }
    node
}

fn view(node: &NodeResources, tasks: u64) -> (NodeInfo, PeerView) {
    let info = NodeInfo {
        id: NodeId::from_bytes([1; 16]),
        incarnation: Incarnation(1),
        name: "a".parse().unwrap(),
        labels: "zone=a".parse().unwrap(),
    };
    let queue = QueueReport {
        tasks,
        run_time_us: tasks * 1_000,
    };
    let view = PeerView {
        version: 0,
        resources: node.report(),
        queue,
        usage: [("a".parse().unwrap(), node.held())].into(),
    };
    (info, view)
}

fn change(old: &(NodeInfo, PeerView), new: &(NodeInfo, PeerView)) -> Change {
    Change::between((&old.0, &old.1), (&new.0, &new.1))
}

#[test]
fn what_changes_mean() {
    let mut node = resources();
    let take = |node: &mut NodeResources, name, amount: &str| {
        let wanted = ResourceSet::new().with(name, amount.parse().unwrap());
        node.acquire(&Request::new(wanted).unwrap()).unwrap()
    };
    let old = view(&node, 8);
    let mut same = old.clone();
    same.1.version = 7;
    assert_eq!(change(&old, &same), Change::None);
    let one = take(&mut node, ResourceName::CPU, "1");
    assert_eq!(change(&old, &view(&node, 8)), Change::Slight);
    let more = take(&mut node, ResourceName::CPU, "4");
    assert_eq!(change(&old, &view(&node, 8)), Change::Notable);
    let gpu = take(&mut node, ResourceName::GPU, "1");
    assert_eq!(change(&old, &view(&node, 8)), Change::Turning);
    [one, more, gpu]
        .into_iter()
        .for_each(|held| node.release(held));
    assert_eq!(change(&old, &view(&node, 9)), Change::Slight);
    assert_eq!(change(&old, &view(&node, 10)), Change::Notable);
    assert_eq!(change(&old, &view(&node, 0)), Change::Turning);
    node.set_capacity(&ResourceName::CPU, Amount::units(33))
        .unwrap();
    assert_eq!(change(&old, &view(&node, 8)), Change::Structural);
    let mut labelled = old.clone();
    labelled.0.labels = "zone=b".parse().unwrap();
    assert_eq!(change(&old, &labelled), Change::Structural);
    // Who uses it has changed, though not how much is used.
    let mut other = old.clone();
    let used = ResourceSet::new().with(ResourceName::CPU, Amount::units(3));
    other.1.usage = [("b".parse().unwrap(), used)].into();
    assert_eq!(change(&old, &other), Change::Notable);
}

#[test]
fn important_changes_go_sooner_and_large_clusters_say_less() {
    let changes = [
        Change::Slight,
        Change::Notable,
        Change::Turning,
        Change::Structural,
    ];
    for peers in [1, 8, 99, 999, 100_000] {
        let intervals = changes.map(|change| change.interval(peers));
        assert!(
            intervals.is_sorted_by(|one, next| one >= next),
            "{intervals:?}"
        );
    }
    for change in changes {
        assert!(change.interval(8) <= change.interval(999));
    }
}
