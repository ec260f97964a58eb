//! Tests of plans: each kind by itself, then all of them against trying everything.
//!
//! Owns the generators and the slow reference. The oracles: what is planned can be reserved, in
//! the order of the plan; `strict_spread` finds a plan exactly if there is one; what is called
//! impossible is impossible on empty nodes too.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::resource::{Allocation, Fit, NodeResources, Request, ResourceSet};

fn node(json: &str) -> NodeResources {
    NodeResources::of(&serde_json::from_str(json).unwrap()).unwrap()
}

fn nodes(all: &[&str]) -> Vec<NodeResources> {
    all.iter().map(|json| node(json)).collect()
}

fn requests(all: &[&str]) -> Vec<Request> {
    let request = |json: &&str| serde_json::from_str(json).unwrap();
    all.iter().map(request).collect()
}

fn planned(
    kind: GroupKind,
    bundles: &[&str],
    nodes: &[NodeResources],
) -> Result<Vec<usize>, String> {
    let truth = plan(kind, &requests(bundles), nodes.iter().enumerate());
    let reports: Vec<_> = nodes.iter().map(NodeResources::report).collect();
    let reported = plan(kind, &requests(bundles), reports.iter().enumerate());
    assert_eq!(truth, reported, "a fresh report is as good as the truth");
    truth.map_err(|error| match error {
        PlanError::Unavailable(why) => format!("unavailable: {why}"),
        PlanError::Infeasible(why) => format!("infeasible: {why}"),
    })
}

const CPU1: &str = r#"{"CPU": 1}"#;
const CPU2: &str = r#"{"CPU": 2}"#;
const CPU4: &str = r#"{"CPU": 4}"#;

#[test]
fn pack_takes_as_few_nodes_as_possible() {
    let cluster = nodes(&[CPU4, r#"{"CPU": 8}"#, CPU2]);
    let pack = |bundles: &[&str]| planned(GroupKind::Pack, bundles, &cluster);
    // The tightest single node that holds all.
    assert_eq!(pack(&[CPU1, CPU1]), Ok(vec![2, 2]));
    assert_eq!(pack(&[CPU2, CPU2]), Ok(vec![0, 0]));
    assert_eq!(pack(&[CPU4, CPU2]), Ok(vec![1, 1]));
    // None holds all: the one that holds most first.
    assert_eq!(pack(&[CPU2; 5]), Ok(vec![1, 1, 1, 1, 2]));
    assert_eq!(pack(&[CPU2; 7]), Ok(vec![1, 1, 1, 1, 0, 0, 2]));
}

#[test]
fn each_bundle_by_itself_is_the_last_resort() {
    // The node that takes most takes 4 and 3, and then the last 2 fit nowhere.
    let cluster = nodes(&[CPU4, r#"{"CPU": 8}"#]);
    let cpu3 = r#"{"CPU": 3}"#;
    let places = planned(GroupKind::Pack, &[CPU2, cpu3, CPU4, cpu3], &cluster);
    assert_eq!(places, Ok(vec![1, 1, 0, 1]));
    // On nodes of their own, the first two leave nothing for the third.
    let cluster = nodes(&[
        r#"{"CPU": 4, "memory": 3}"#,
        r#"{"CPU": 1, "GPU": 1, "memory": 5}"#,
    ]);
    let bundles = [
        r#"{"CPU": "0.25", "memory": "2.9"}"#,
        r#"{"CPU": "0.4", "GPU": "0.9", "memory": "1.2"}"#,
        r#"{"CPU": 1, "memory": "1.2"}"#,
    ];
    let places = planned(GroupKind::Spread, &bundles, &cluster);
    assert_eq!(places, Ok(vec![1, 1, 0]));
}

#[test]
fn spread_takes_as_many_nodes_as_possible() {
    let cluster = nodes(&[CPU2, CPU4, r#"{"CPU": 1, "GPU": 1}"#]);
    let spread = |bundles: &[&str]| planned(GroupKind::Spread, bundles, &cluster);
    assert_eq!(spread(&[CPU2, CPU1]), Ok(vec![0, 1]));
    // The GPU bundle can only go to node 2, so the others leave it alone.
    assert_eq!(spread(&[CPU1, CPU1, r#"{"GPU": 1}"#]), Ok(vec![0, 1, 2]));
    // More bundles than nodes: some nodes have two, those with most left first.
    assert_eq!(spread(&[CPU1; 4]), Ok(vec![0, 1, 2, 1]));
    let error = spread(&[CPU1; 8]).unwrap_err();
    assert_eq!(
        error,
        "infeasible: the bundles need 8 of CPU together, all nodes have 7"
    );
}

#[test]
fn strict_pack_takes_one_node_or_none() {
    let mut cluster = nodes(&[CPU4, r#"{"CPU": 8}"#]);
    let bundles = [CPU2, CPU1, CPU2];
    assert_eq!(
        planned(GroupKind::StrictPack, &bundles, &cluster),
        Ok(vec![1, 1, 1])
    );
    let held = cluster[1].acquire(&requests(&[CPU4])[0]).unwrap();
    let error = planned(GroupKind::StrictPack, &bundles, &cluster).unwrap_err();
    assert_eq!(
        error,
        "unavailable: strict_pack: no node has room for all 3 bundles now"
    );
    cluster[1].release(held);
    let error = planned(GroupKind::StrictPack, &[CPU4, CPU4, CPU1], &cluster).unwrap_err();
    assert_eq!(
        error,
        "infeasible: strict_pack: no node has enough in total for all 3 bundles"
    );
    // 1.2 of two GPUs, but two shares of more than half need one each, so three need three.
    let gpus = nodes(&[r#"{"GPU": 2}"#]);
    let large = r#"{"GPU": "0.6"}"#;
    assert_eq!(
        planned(GroupKind::StrictPack, &[large; 2], &gpus),
        Ok(vec![0, 0])
    );
    let error = planned(GroupKind::StrictPack, &[large; 3], &gpus).unwrap_err();
    assert!(error.starts_with("infeasible"), "{error}");
}

#[test]
fn strict_spread_takes_a_node_each_or_none() {
    let mut cluster = nodes(&[CPU2, CPU4, CPU1]);
    let strict = |bundles: &[&str], cluster: &[NodeResources]| {
        planned(GroupKind::StrictSpread, bundles, cluster)
    };
    assert_eq!(strict(&[CPU1, CPU4, CPU2], &cluster), Ok(vec![2, 1, 0]));
    let error = strict(&[CPU1; 4], &cluster).unwrap_err();
    assert_eq!(
        error,
        "infeasible: strict_spread: 4 bundles need a node each, and at most 3 can have one, even \
         if all nodes were empty"
    );
    let held = cluster[1].acquire(&requests(&[CPU4])[0]).unwrap();
    let error = strict(&[CPU1, CPU2, CPU2], &cluster).unwrap_err();
    assert_eq!(
        error,
        "unavailable: strict_spread: only 2 of 3 bundles find a node of their own now; bundle 2 \
         does not"
    );
    cluster[1].release(held);
}

#[test]
fn a_bundle_that_fits_nowhere_is_named() {
    let cluster = nodes(&[CPU4, r#"{"CPU": 4, "GPU": 1}"#]);
    for kind in GroupKind::ALL {
        let error = planned(kind, &[CPU1, r#"{"GPU": 2}"#], &cluster).unwrap_err();
        assert_eq!(
            error,
            "infeasible: bundle 1 fits none of 2 nodes, not even an empty one (GPU: needs 2, node \
             has none)"
        );
        let error = planned(kind, &[CPU1], &[]).unwrap_err();
        assert_eq!(
            error,
            "infeasible: bundle 0 fits none of 0 nodes, not even an empty one"
        );
    }
    let mut cluster = nodes(&[CPU4]);
    let held = cluster[0].acquire(&requests(&[CPU2])[0]).unwrap();
    let error = planned(GroupKind::Pack, &[CPU1, CPU1, CPU2], &cluster).unwrap_err();
    assert_eq!(
        error,
        "unavailable: bundle 0: no node has room for it now, beside the bundles before it"
    );
    cluster[0].release(held);
}

#[test]
fn bundles_that_stay_count() {
    let cluster = nodes(&[CPU4, CPU4, CPU4]);
    let wanted = requests(&[CPU1, CPU1]);
    let lost = [(3, &wanted[0]), (5, &wanted[1])];
    let beside = |kind, kept: &[usize]| {
        let mut places = plan_beside(kind, &lost, kept, cluster.iter().enumerate())?;
        places.sort_unstable();
        Ok::<_, PlanError>(places)
    };
    assert_eq!(beside(GroupKind::Pack, &[2]), Ok(vec![(3, 2), (5, 2)]));
    assert_eq!(
        beside(GroupKind::StrictPack, &[1]),
        Ok(vec![(3, 1), (5, 1)])
    );
    assert_eq!(beside(GroupKind::Spread, &[0]), Ok(vec![(3, 1), (5, 2)]));
    assert_eq!(
        beside(GroupKind::StrictSpread, &[1]),
        Ok(vec![(3, 0), (5, 2)])
    );
    let error = beside(GroupKind::StrictSpread, &[1, 2]).unwrap_err();
    let never = Impossible::OwnNode {
        bundles: 2,
        nodes: 1,
    };
    assert_eq!(error, PlanError::Infeasible(never));
}

#[test]
fn the_load_of_a_node_goes_first() {
    let mut cluster = nodes(&[CPU4, CPU4]);
    cluster[0].add_load(&requests(&[CPU4])[0]);
    assert_eq!(
        planned(GroupKind::StrictPack, &[CPU1], &cluster),
        Ok(vec![1])
    );
}

fn amounts() -> impl Strategy<Value = (u64, u64, u64)> {
    let indexed = || {
        let shares = vec![2_500u64, 3_000, 4_000, 5_000, 6_000, 7_500, 9_000];
        prop_oneof![
            2 => Just(0u64),
            3 => (1u64..4).prop_map(|units| units * 10_000),
            3 => prop::sample::select(shares),
        ]
    };
    (indexed(), indexed(), 0u64..30_000)
}

fn to_request((cpu, gpu, memory): (u64, u64, u64)) -> Request {
    use crate::resource::{Amount, ResourceName};
    let amounts = ResourceSet::new()
        .with(ResourceName::CPU, Amount::from_steps(cpu))
        .with(ResourceName::GPU, Amount::from_steps(gpu))
        .with(ResourceName::MEMORY, Amount::from_steps(memory));
    Request::new(amounts).unwrap()
}

/// Nodes of which tasks hold some.
#[derive(Debug)]
struct Cluster {
    nodes: Vec<NodeResources>,
    held: Vec<(usize, Allocation)>,
}

impl Cluster {
    fn new(sizes: Vec<(u64, u64, u64)>, taken: Vec<(usize, Request)>) -> Self {
        let size = |(cpu, gpu, memory)| {
            node(&format!(
                r#"{{"CPU": {cpu}, "GPU": {gpu}, "memory": {memory}}}"#
            ))
        };
        let mut cluster = Self {
            nodes: sizes.into_iter().map(size).collect(),
            held: Vec::new(),
        };
        for (at, request) in taken {
            let at = at % cluster.nodes.len();
            if let Ok(held) = cluster.nodes[at].acquire(&request) {
                cluster.held.push((at, held));
            }
        }
        cluster
    }

    fn clear(&mut self) {
        for (at, held) in self.held.drain(..) {
            self.nodes[at].release(held);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.clear();
    }
}

fn clusters() -> impl Strategy<Value = Cluster> {
    let sizes = prop::collection::vec((0u64..5, 0u64..4, 0u64..6), 1..5);
    let taken = prop::collection::vec((any::<usize>(), amounts().prop_map(to_request)), 0..8);
    (sizes, taken).prop_map(|(sizes, taken)| Cluster::new(sizes, taken))
}

fn bundles() -> impl Strategy<Value = Vec<Request>> {
    let bundle = amounts().prop_filter("something", |it| *it != (0, 0, 0));
    prop::collection::vec(bundle.prop_map(to_request), 1..5)
}

/// Whether the bundles fit on nodes, each on one of its own if so asked, by trying everything.
/// Takes what it tries for real, so it is exact for the order of the bundles.
fn can_place(bundles: &[Request], nodes: &mut [NodeResources], is_strict: bool, used: u32) -> bool {
    let Some((first, rest)) = bundles.split_first() else {
        return true;
    };
    (0..nodes.len()).any(|at| {
        if is_strict && used & (1 << at) != 0 {
            return false;
        }
        let Ok(held) = nodes[at].acquire(first) else {
            return false;
        };
        let done = can_place(rest, nodes, is_strict, used | 1 << at);
        nodes[at].release(held);
        done
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]
    #[test]
    fn plans_can_be_reserved_and_errors_are_true(
        mut cluster in clusters(),
        bundles in bundles(),
        kind in prop::sample::select(GroupKind::ALL.to_vec()),
    ) {
        let numbered: Vec<(u32, &Request)> = (0..).zip(&bundles).collect();
        let found = plan_beside(kind, &numbered, &[], cluster.nodes.iter().enumerate());
        let backwards = cluster.nodes.iter().enumerate().rev();
        prop_assert_eq!(&found, &plan_beside(kind, &numbered, &[], backwards));
        match found {
            Ok(places) => {
                let numbers: BTreeSet<u32> = places.iter().map(|(bundle, _)| *bundle).collect();
                prop_assert_eq!(numbers.len(), bundles.len());
                let used: BTreeSet<usize> = places.iter().map(|(_, node)| *node).collect();
                match kind {
                    GroupKind::StrictPack => prop_assert_eq!(used.len(), 1),
                    GroupKind::StrictSpread => prop_assert_eq!(used.len(), bundles.len()),
                    GroupKind::Pack | GroupKind::Spread => {}
                }
                for (bundle, at) in places {
                    let held = cluster.nodes[at].acquire(&bundles[bundle as usize]);
                    prop_assert!(held.is_ok(), "bundle {} on {}: {:?}", bundle, at, held);
                    cluster.held.push((at, held.unwrap()));
                }
            }
            Err(error) => {
                let is_strict = kind == GroupKind::StrictSpread;
                if is_strict {
                    prop_assert!(!can_place(&bundles, &mut cluster.nodes, true, 0));
                }
                let each_fits = bundles.iter().all(|bundle| {
                    cluster.nodes.iter().any(|node| node.judge(bundle) == Fit::Available)
                });
                if let PlanError::Infeasible(_) = error {
                    cluster.clear();
                    let is_possible = match kind {
                        GroupKind::StrictPack => cluster
                            .nodes
                            .iter_mut()
                            .any(|node| can_place(&bundles, std::slice::from_mut(node), false, 0)),
                        _ => can_place(&bundles, &mut cluster.nodes, is_strict, 0),
                    };
                    prop_assert!(!is_possible, "{}", error);
                } else if bundles.len() == 1 {
                    prop_assert!(!each_fits, "{}", error);
                }
            }
        }
    }

    /// Whole units of one resource: packing on one node is a sum, so it must be found.
    #[test]
    fn one_node_is_found_if_there_is_one(
        free in prop::collection::vec(0u64..12, 1..6),
        wants in prop::collection::vec(1u64..5, 1..5),
    ) {
        let cluster: Vec<_> = free.iter().map(|cpu| node(&format!(r#"{{"CPU": {cpu}}}"#))).collect();
        let bundles: Vec<_> = wants.iter().map(|cpu| to_request((cpu * 10_000, 0, 0))).collect();
        let sum: u64 = wants.iter().sum();
        let tightest = free.iter().copied().filter(|free| *free >= sum).min();
        for kind in [GroupKind::Pack, GroupKind::StrictPack] {
            let places = plan(kind, &bundles, cluster.iter().enumerate());
            match tightest {
                // What is left is counted in parts of the node.
                Some(_) => {
                    let places = places.unwrap();
                    prop_assert!(places.iter().all(|node| *node == places[0]));
                    let left = |free: u64| ((free - sum) << 32) / free.max(1);
                    let least = free.iter().filter(|free| **free >= sum).map(|free| left(*free)).min();
                    prop_assert_eq!(Some(left(free[places[0]])), least);
                }
                None => prop_assert!(kind == GroupKind::Pack || places.is_err()),
            }
        }
    }
}
