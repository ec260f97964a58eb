//! Each rule by itself.

use super::*;
use crate::id::Digest;
use crate::resource::{Amount, NodeReport, ResourceName};

const CPU4: &str = r#"{"CPU": 4}"#;

fn choose(cluster: &mut Cluster, demand: &Demand<'_>) -> Choice {
    cluster.choose(demand, &mut Random::new(3))
}

fn with<'a>(demand: &Demand<'a>, strategy: &'a Strategy) -> Demand<'a> {
    Demand {
        strategy,
        ..*demand
    }
}

fn strategy(text: &str) -> Strategy {
    text.parse().unwrap()
}

#[test]
fn default_packs_below_the_threshold_and_levels_above() {
    let one = requests(&[r#"{"CPU": 1}"#]);
    let demand = Demand::of(&one, Basis::Acquirable);
    let mut cluster = cluster(&[CPU4; 5]);
    // One of five is 20 %: always the first among equals. 1 of 4 is below the threshold, 2 are not.
    take(&mut cluster, 0, r#"{"CPU": 1}"#);
    assert_eq!(chosen(&mut cluster, &demand), [0]);
    take(&mut cluster, 0, r#"{"CPU": 1}"#);
    assert_eq!(chosen(&mut cluster, &demand), [1]);
    (1..5).for_each(|node| take(&mut cluster, node, r#"{"CPU": 3}"#));
    assert_eq!(chosen(&mut cluster, &demand), [0]);
    take(&mut cluster, 0, r#"{"CPU": 2}"#);
    assert_eq!(chosen(&mut cluster, &demand), [1]);
}

#[test]
fn default_chooses_among_a_fifth_of_the_nodes_rounded_up() {
    let one = requests(&[r#"{"CPU": 1}"#]);
    let demand = Demand::of(&one, Basis::Acquirable);
    for (nodes, expected) in [(1, 1), (5, 1), (6, 2), (10, 2), (11, 3)] {
        let mut cluster = cluster(&vec![CPU4; nodes]);
        let first: Vec<u32> = (0..expected).collect();
        assert_eq!(chosen(&mut cluster, &demand), first);
    }
    // Fewer available nodes than that: those.
    let mut cluster = cluster(&[CPU4; 11]);
    (1..11).for_each(|node| take(&mut cluster, node, CPU4));
    assert_eq!(chosen(&mut cluster, &demand), [0]);
}

#[test]
fn the_numbers_of_the_default_strategy_change_at_any_time() {
    let one = requests(&[r#"{"CPU": 1}"#]);
    let demand = Demand::of(&one, Basis::Acquirable);
    let share = |text: &str| Share::try_from(text.parse::<Amount>().unwrap());
    let mut cluster = cluster(&[CPU4; 10]);
    (0..3).for_each(|node| take(&mut cluster, node, r#"{"CPU": 1}"#));
    let default = Tuning::default();
    let mut tuned = |tuning| {
        cluster.set_tuning(tuning);
        chosen(&mut cluster, &demand)
    };
    assert_eq!(tuned(default), [0, 1]);
    // All that are in use count as fuller than those that are not.
    let spread_threshold = share("0").unwrap();
    let level = Tuning {
        spread_threshold,
        ..default
    };
    assert_eq!(tuned(level), [3, 4]);
    // Among at least so many, or a larger part.
    let top_nodes = 4;
    let four = Tuning {
        top_nodes,
        ..default
    };
    assert_eq!(tuned(four), [0, 1, 2, 3]);
    let top_share = share("0.25").unwrap();
    let quarter = Tuning {
        top_share,
        ..default
    };
    assert_eq!(tuned(quarter), [0, 1, 2]);
    let first = Tuning {
        top_share: share("0").unwrap(),
        top_nodes: 0,
        ..default
    };
    assert_eq!(tuned(first), [0]);
    assert_eq!(tuned(default), [0, 1]);
    let error = share("1.0001").unwrap_err();
    assert!(error.to_string().contains("from 0 to 1"), "{error}");
}

#[test]
fn an_idle_local_node_is_taken_outright() {
    let one = requests(&[r#"{"CPU": 1}"#]);
    let demand = Demand::of(&one, Basis::Acquirable);
    let mut cluster = cluster(&[CPU4; 11]);
    cluster.set_local(Some(NodeIx(7)));
    assert_eq!(chosen(&mut cluster, &demand), [7]);
    // At 0.5 it is one of the others, and behind those that are idle.
    take(&mut cluster, 7, r#"{"CPU": 2}"#);
    assert_eq!(chosen(&mut cluster, &demand), [0, 1, 2]);
    // Among equals it goes first.
    for node in [0, 1, 2, 3, 4, 5, 6, 8, 9, 10] {
        take(&mut cluster, node, r#"{"CPU": 2}"#);
    }
    assert_eq!(chosen(&mut cluster, &demand), [0, 1, 7]);
    cluster.set_local(None);
    assert_eq!(chosen(&mut cluster, &demand), [0, 1, 2]);
}

#[test]
fn a_running_module_breaks_ties_and_nothing_else() {
    let one = requests(&[r#"{"CPU": 1}"#]);
    let module = Digest::of(b"module");
    let plain = Demand::of(&one, Basis::Acquirable);
    let demand = Demand {
        module: Some(&module),
        ..plain
    };
    let mut cluster = cluster(&[CPU4; 5]);
    cluster.module_started(NodeIx(3), module);
    cluster.module_started(NodeIx(3), module);
    cluster.module_stopped(NodeIx(3), module);
    assert_eq!(chosen(&mut cluster, &demand), [3]);
    assert_eq!(chosen(&mut cluster, &plain), [0]);
    take(&mut cluster, 3, r#"{"CPU": 2}"#);
    assert_eq!(chosen(&mut cluster, &demand), [0]);
    cluster.module_stopped(NodeIx(3), module);
    assert!(cluster[NodeIx(3)].modules().is_empty());
}

#[test]
fn the_score_is_that_of_the_scarcest_resource_and_counts_load_where_asked() {
    let one = requests(&[r#"{"CPU": 1}"#]);
    let node = r#"{"CPU": 4, "GPU": 2, "memory": 100}"#;
    let mut cluster = cluster(&[node; 2]);
    take(&mut cluster, 0, r#"{"memory": 60}"#);
    take(&mut cluster, 1, r#"{"GPU": 1}"#);
    let acquirable = Demand::of(&one, Basis::Acquirable);
    let truly_free = Demand::of(&one, Basis::TrulyFree);
    assert_eq!(chosen(&mut cluster, &acquirable), [1]);
    cluster.claim(NodeIx(1), &request(r#"{"CPU": 3}"#));
    assert_eq!(chosen(&mut cluster, &acquirable), [1]);
    assert_eq!(chosen(&mut cluster, &truly_free), [0]);
    cluster.unclaim(NodeIx(1), &request(r#"{"CPU": 3}"#));
    assert_eq!(chosen(&mut cluster, &truly_free), [1]);
}

#[test]
fn large_arguments_win_over_the_score() {
    let one = requests(&[r#"{"CPU": 1}"#]);
    let holders = [(id(3), 60 << 10), (id(4), 50 << 10), (id(99), 1 << 40)];
    let demand = Demand {
        argument_bytes: 110 << 10,
        holders: &holders,
        ..Demand::of(&one, Basis::Acquirable)
    };
    let mut cluster = cluster(&[CPU4; 5]);
    take(&mut cluster, 3, r#"{"CPU": 3}"#);
    assert_eq!(chosen(&mut cluster, &demand), [3]);
    // The best one that is available, and if none is, the normal rule.
    take(&mut cluster, 3, r#"{"CPU": 1}"#);
    assert_eq!(chosen(&mut cluster, &demand), [4]);
    take(&mut cluster, 4, CPU4);
    assert_eq!(chosen(&mut cluster, &demand), [0]);
    let mut cluster = super::cluster(&[CPU4; 5]);
    let small = Demand {
        argument_bytes: LOCALITY_BYTES_MIN - 1,
        ..demand
    };
    assert_eq!(chosen(&mut cluster, &small), [0]);
    let least = Demand {
        argument_bytes: LOCALITY_BYTES_MIN,
        ..demand
    };
    assert_eq!(chosen(&mut cluster, &least), [3]);
    let actor = Demand {
        kind: Kind::Actor,
        ..demand
    };
    assert_eq!(chosen(&mut cluster, &actor), [0]);
    assert_eq!(
        chosen(&mut cluster, &with(&demand, &Strategy::Spread)).len(),
        5
    );
    cluster.set_local(Some(NodeIx(1)));
    assert_eq!(chosen(&mut cluster, &demand), [3]);
}

#[test]
fn random_takes_any_that_fits_and_else_any_that_ever_will() {
    let two = requests(&[r#"{"CPU": 2}"#]);
    let demand = with(&Demand::of(&two, Basis::TrulyFree), &Strategy::Random);
    let mut cluster = cluster(&[CPU4, r#"{"CPU": 1}"#, CPU4, CPU4]);
    take(&mut cluster, 3, r#"{"CPU": 3}"#);
    assert_eq!(chosen(&mut cluster, &demand), [0, 2]);
    // Each choice is a claim, which the next one sees.
    let mut random = Random::new(5);
    for _ in 0..4 {
        let Choice::Now { node, .. } = cluster.choose(&demand, &mut random) else {
            panic!("there is room for four");
        };
        cluster.claim(node, &two[0]);
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        match cluster.choose(&demand, &mut random) {
            Choice::Later {
                node,
                alternative: 0,
            } => seen.insert(node.0),
            other => panic!("{other:?}"),
        };
    }
    assert!(seen.into_iter().eq([0, 2, 3]));
    // It looks at what is truly free, whatever the basis.
    let demand = Demand {
        basis: Basis::Acquirable,
        ..demand
    };
    assert!(!cluster.is_available_somewhere(&demand));
}

#[test]
fn spread_goes_round_the_available_nodes() {
    let one = requests(&[r#"{"CPU": 1}"#]);
    let other = requests(&[r#"{"CPU": 2}"#]);
    let spread = Strategy::Spread;
    let demand = with(&Demand::of(&one, Basis::Acquirable), &spread);
    let mut cluster = cluster(&[CPU4; 4]);
    let next = |cluster: &mut Cluster| match choose(cluster, &demand) {
        Choice::Now { node, .. } => node.0,
        other => panic!("{other:?}"),
    };
    assert_eq!([(); 6].map(|()| next(&mut cluster)), [0, 1, 2, 3, 0, 1]);
    // Another class has turns of its own, the first of them where the last of all was the longest ago.
    let others = with(&Demand::of(&other, Basis::Acquirable), &spread);
    assert_eq!(choose(&mut cluster, &others), now(2, 0));
    assert_eq!(choose(&mut cluster, &demand), now(2, 0));
    take(&mut cluster, 2, CPU4);
    assert_eq!([(); 3].map(|()| next(&mut cluster)), [3, 0, 1]);
    // The one whose turn it was last leaves: it goes on behind it.
    cluster.leave(NodeIx(1));
    assert_eq!([(); 3].map(|()| next(&mut cluster)), [3, 0, 3]);
    cluster.set_draining(NodeIx(0), true);
    assert_eq!(next(&mut cluster), 3);
}

/// Classes of one task each, by turns for the one half of the nodes and for the other.
#[test]
fn spread_begins_elsewhere_for_each_class() {
    let mut cluster = cluster(&[CPU4; 6]);
    for at in 0..6 {
        let zone = if at < 3 { "zone=a" } else { "zone=b" };
        cluster.set_labels(NodeIx(at), zone.parse().expect("labels"));
    }
    let spread = Strategy::Spread;
    let nodes = (1..=12).map(|at| {
        let zone = if at % 2 == 0 { "zone=a" } else { "zone=b" };
        let selectors = [zone.parse().expect("a selector")];
        let request = requests(&[&format!(r#"{{"CPU": "0.0{at:02}"}}"#)]);
        let demand = Demand {
            selectors: &selectors,
            ..with(&Demand::of(&request, Basis::Acquirable), &spread)
        };
        match choose(&mut cluster, &demand) {
            Choice::Now { node, .. } => node.0,
            other => panic!("{other:?}"),
        }
    });
    let nodes: Vec<u32> = nodes.collect();
    assert_eq!(nodes, [3, 0, 4, 1, 5, 2, 3, 0, 4, 1, 5, 2]);
}

#[test]
fn hard_affinity_waits_while_busy_and_fails_when_impossible() {
    let one = requests(&[r#"{"GPU": 2}"#, r#"{"CPU": 1}"#]);
    let hard = strategy("node:n1");
    let demand = with(&Demand::of(&one, Basis::Acquirable), &hard);
    let mut cluster = cluster(&[CPU4, CPU4]);
    assert_eq!(choose(&mut cluster, &demand), now(1, 1));
    assert!(cluster.is_available_somewhere(&demand));
    take(&mut cluster, 1, CPU4);
    assert_eq!(choose(&mut cluster, &demand), later(1, 1));
    assert!(!cluster.is_available_somewhere(&demand));
    let gpus = with(&Demand::of(&one[..1], Basis::Acquirable), &hard);
    let why = match choose(&mut cluster, &gpus) {
        Choice::Unschedulable(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(
        why.starts_with("unschedulable: node n1: infeasible: GPU: needs 2, node has none; ask"),
        "{why}"
    );
    let zone = ["zone=a".parse().unwrap()];
    let labelled = Demand {
        selectors: &zone,
        ..demand
    };
    let why = match choose(&mut cluster, &labelled) {
        Choice::Unschedulable(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(
        why.contains("node n1: infeasible: label zone=a does not match"),
        "{why}"
    );
    // By id too, and while it drains nothing is decided.
    let by_id = strategy(&format!("node:{}", id(1)));
    cluster.set_draining(NodeIx(1), true);
    assert_eq!(choose(&mut cluster, &with(&demand, &by_id)), later(1, 1));
    cluster.leave(NodeIx(1));
    match choose(&mut cluster, &demand) {
        Choice::Unschedulable(why @ Unschedulable::Gone { .. }) => {
            assert!(why.to_string().contains("node n1 is not in the cluster"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn soft_affinity_waits_while_busy_and_goes_elsewhere_when_impossible() {
    let one = requests(&[r#"{"CPU": 2}"#]);
    let soft = strategy("node:n1:soft");
    let demand = with(&Demand::of(&one, Basis::Acquirable), &soft);
    let mut cluster = cluster(&[CPU4, CPU4]);
    assert_eq!(choose(&mut cluster, &demand), now(1, 0));
    take(&mut cluster, 1, CPU4);
    assert_eq!(choose(&mut cluster, &demand), later(1, 0));
    assert!(!cluster.is_available_somewhere(&demand));
    cluster.resize(NodeIx(1), |own| {
        own.set_capacity(&ResourceName::CPU, Amount::ONE).unwrap()
    });
    assert_eq!(choose(&mut cluster, &demand), now(0, 0));
    assert!(cluster.is_available_somewhere(&demand));
    cluster.leave(NodeIx(1));
    assert_eq!(choose(&mut cluster, &demand), now(0, 0));
}

#[test]
fn soft_affinity_goes_elsewhere_while_the_node_drains_or_cannot_be_reached() {
    let one = requests(&[r#"{"CPU": 2}"#]);
    let soft = strategy("node:n1:soft");
    let demand = with(&Demand::of(&one, Basis::Acquirable), &soft);
    let mut cluster = cluster(&[CPU4, CPU4]);
    cluster.set_draining(NodeIx(1), true);
    assert_eq!(choose(&mut cluster, &demand), now(0, 0));
    assert!(cluster.is_available_somewhere(&demand));
    let fits = [0, 1].map(|at| cluster.fit_on(NodeIx(at), &demand));
    assert_eq!(fits, [Some(NodeFit::Available), Some(NodeFit::Draining)]);
    // Where nobody else can serve it, it waits for the drain to end.
    cluster.resize(NodeIx(0), |own| {
        own.set_capacity(&ResourceName::CPU, Amount::ONE).unwrap()
    });
    assert_eq!(choose(&mut cluster, &demand), later(1, 0));
    cluster.set_draining(NodeIx(1), false);
    assert_eq!(choose(&mut cluster, &demand), now(1, 0));
}

#[test]
fn selectors_are_fallbacks_and_go_before_alternatives() {
    let variants = requests(&[r#"{"GPU": 1}"#, r#"{"CPU": 4}"#]);
    let mut cluster = cluster(&[CPU4, r#"{"GPU": 1}"#, CPU4]);
    for (node, labels) in [(0, "zone=a"), (1, "zone=b"), (2, "zone=b")] {
        cluster.set_labels(NodeIx(node), labels.parse().unwrap());
    }
    let fallbacks: Selectors = "zone=a;zone=b".parse().unwrap();
    let demand = Demand {
        selectors: fallbacks.as_slice(),
        ..Demand::of(&variants, Basis::Acquirable)
    };
    assert_eq!(choose(&mut cluster, &demand), now(0, 1));
    take(&mut cluster, 0, r#"{"CPU": 1}"#);
    assert_eq!(choose(&mut cluster, &demand), now(1, 0));
    take(&mut cluster, 1, r#"{"GPU": 1}"#);
    assert_eq!(choose(&mut cluster, &demand), now(2, 1));
    take(&mut cluster, 2, r#"{"CPU": 1}"#);
    // Nobody can now: the earliest pair that somebody ever can.
    assert_eq!(choose(&mut cluster, &demand), later(0, 1));
    cluster.set_labels(NodeIx(0), "zone=c".parse().unwrap());
    assert_eq!(choose(&mut cluster, &demand), later(1, 0));
    cluster.leave(NodeIx(1));
    assert_eq!(choose(&mut cluster, &demand), later(2, 1));
    cluster.leave(NodeIx(2));
    assert_eq!(choose(&mut cluster, &demand), Choice::Infeasible);
    let any = [Selector::any()];
    let demand = Demand {
        selectors: &any,
        ..demand
    };
    assert_eq!(choose(&mut cluster, &demand), later(0, 1));
}

#[test]
fn an_actor_that_asks_for_nothing_goes_to_a_random_node() {
    let nothing = requests(&["{}"]);
    let task = Demand::of(&nothing, Basis::Acquirable);
    let actor = Demand {
        kind: Kind::Actor,
        ..task
    };
    let mut cluster = cluster(&[CPU4; 4]);
    cluster.set_local(Some(NodeIx(2)));
    assert_eq!(chosen(&mut cluster, &actor), [0, 1, 2, 3]);
    assert_eq!(chosen(&mut cluster, &task), [2]);
    let something = requests(&[r#"{"CPU": 1}"#]);
    let actor = Demand {
        alternatives: &something,
        ..actor
    };
    assert_eq!(chosen(&mut cluster, &actor), [2]);
}

fn set_queue(cluster: &mut Cluster, ix: NodeIx, queue: QueueReport) {
    cluster.set_queue(ix, queue, QueueReport::default());
}

#[test]
fn what_is_placed_counts_until_a_report_does() {
    let mut cluster = cluster(&[CPU4, CPU4]);
    let one = requests(&[r#"{"CPU": 1}"#]);
    let demand = Demand::of(&one, Basis::Acquirable);
    take(&mut cluster, 0, CPU4);
    take(&mut cluster, 1, CPU4);
    let (first, second) = (NodeIx(0), NodeIx(1));
    assert_eq!(choose(&mut cluster, &demand), later(0, 0));
    cluster.queued(first, 4_000);
    assert_eq!(choose(&mut cluster, &demand), later(1, 0));
    (0..3).for_each(|_| cluster.queued(second, 4_000));
    assert_eq!(choose(&mut cluster, &demand), later(0, 0));
    // They end before anybody has reported them.
    (0..3).for_each(|_| cluster.unqueued(second));
    assert_eq!(choose(&mut cluster, &demand), later(1, 0));
    // A report counts five, and has not heard of one more.
    cluster.set_queue(second, QueueReport::of(5, 4_000), QueueReport::of(1, 4_000));
    assert_eq!(cluster[second].queue(), QueueReport::of(6, 4_000));
    // Only that one is not in the report.
    (0..3).for_each(|_| cluster.unqueued(second));
    assert_eq!(cluster[second].queue(), QueueReport::of(5, 4_000));
    // However long they were taken to run: with the last of them nothing is left.
    (1..=3).for_each(|times| cluster.queued(second, times * 1_000));
    (0..3).for_each(|_| cluster.unqueued(second));
    assert_eq!(cluster[second].queue(), QueueReport::of(5, 4_000));
}

#[test]
fn later_is_where_the_wait_is_least() {
    let one = requests(&[r#"{"CPU": 1}"#]);
    let demand = Demand::of(&one, Basis::Acquirable);
    let mut cluster = cluster(&[r#"{"CPU": 2}"#, CPU4, r#"{"CPU": 8}"#]);
    take(&mut cluster, 0, r#"{"CPU": 2}"#);
    take(&mut cluster, 1, CPU4);
    take(&mut cluster, 2, r#"{"CPU": 8}"#);
    let queue = |run_time_us| QueueReport {
        tasks: 1,
        run_time_us,
    };
    set_queue(&mut cluster, NodeIx(0), queue(200_000));
    set_queue(&mut cluster, NodeIx(1), queue(240_000));
    set_queue(&mut cluster, NodeIx(2), queue(800_000));
    // 100 ms, 60 ms and 100 ms per slot.
    assert_eq!(choose(&mut cluster, &demand), later(1, 0));
    set_queue(&mut cluster, NodeIx(1), queue(480_000));
    assert_eq!(choose(&mut cluster, &demand), later(0, 0));
    // 10 MB take 100 ms from anywhere; where they are they take none.
    let holders = [(id(1), 10_000_000)];
    let near = Demand {
        argument_bytes: 10_000_000,
        holders: &holders,
        ..demand
    };
    assert_eq!(choose(&mut cluster, &near), later(1, 0));
    // A holder that sends ten times as fast: 10 ms.
    let fast = std::time::Duration::from_millis(10);
    cluster.note_transfer(NodeIx(1), 10_000_000, fast);
    assert_eq!(cluster[NodeIx(1)].bandwidth(), 1_000_000_000);
    assert_eq!(choose(&mut cluster, &near), later(0, 0));
    // What one holder lacks comes from the other: 115 ms and 10 MB at the slow one's 100 MB/s. The
    // first node gets all from both: 100 ms and 20 MB at 550 MB/s.
    let holders = [(id(1), 10_000_000), (id(2), 10_000_000)];
    let near = Demand {
        argument_bytes: 20_000_000,
        holders: &holders,
        ..demand
    };
    set_queue(&mut cluster, NodeIx(1), queue(460_000));
    set_queue(&mut cluster, NodeIx(2), queue(1_200_000));
    assert_eq!(choose(&mut cluster, &near), later(0, 0));
    set_queue(&mut cluster, NodeIx(2), queue(960_000));
    assert_eq!(choose(&mut cluster, &near), later(2, 0));
}

#[test]
fn what_is_kept_is_not_there_for_others() {
    let big = requests(&[r#"{"CPU": 4}"#]);
    let small = requests(&[r#"{"CPU": 1}"#]);
    let mut cluster = cluster(&[CPU4]);
    for basis in [Basis::Acquirable, Basis::TrulyFree] {
        let demand = Demand::of(&small, basis);
        cluster.keep(NodeIx(0), Some(big[0].clone()));
        assert_eq!(choose(&mut cluster, &demand), later(0, 0));
        let fit = cluster.fit_on(NodeIx(0), &demand).unwrap();
        assert!(matches!(fit, NodeFit::Kept(_)), "{fit:?}");
        assert_eq!(choose(&mut cluster, &Demand::of(&big, basis)), now(0, 0));
        // Half of it is left beside two kept units.
        cluster.keep(NodeIx(0), Some(request(r#"{"CPU": 2}"#)));
        assert_eq!(choose(&mut cluster, &demand), now(0, 0));
        assert_eq!(choose(&mut cluster, &Demand::of(&big, basis)), later(0, 0));
        cluster.keep(NodeIx(0), None);
        assert_eq!(choose(&mut cluster, &Demand::of(&big, basis)), now(0, 0));
    }
}

#[test]
fn peers_are_judged_by_their_reports_and_the_claims_since() {
    let two = requests(&[r#"{"CPU": 2}"#]);
    let mut cluster = cluster(&[r#"{"CPU": 1}"#]);
    let report: NodeReport = resources(CPU4).report();
    let peer = cluster
        .join(new_node(1, "", Supply::Peer(report.clone())))
        .unwrap();
    let demand = Demand::of(&two, Basis::TrulyFree);
    for _ in 0..2 {
        assert_eq!(choose(&mut cluster, &demand), now(1, 0));
        cluster.claim(peer, &two[0]);
    }
    assert_eq!(choose(&mut cluster, &demand), later(1, 0));
    cluster.report(peer, report);
    assert_eq!(choose(&mut cluster, &demand), now(1, 0));
    // To start something, a peer is no place.
    let starting = Demand::of(&two, Basis::Acquirable);
    assert_eq!(choose(&mut cluster, &starting), Choice::Infeasible);
    let hard = strategy("node:n1");
    assert_eq!(choose(&mut cluster, &with(&starting, &hard)), later(1, 0));
    assert_eq!(choose(&mut cluster, &with(&demand, &hard)), now(1, 0));
    assert_eq!(cluster.total().to_string(), "{CPU: 5}");
    cluster.report(peer, resources(r#"{"CPU": 1, "GPU": 1}"#).report());
    assert_eq!(choose(&mut cluster, &demand), Choice::Infeasible);
    assert_eq!(cluster.total().to_string(), "{CPU: 2, GPU: 1}");
}

#[test]
fn explanations_per_node() {
    let variants = requests(&[r#"{"GPU": 2}"#, r#"{"CPU": 8}"#]);
    let nodes = [
        r#"{"GPU": 1}"#,
        r#"{"CPU": 8}"#,
        r#"{"GPU": 2}"#,
        r#"{"GPU": 2}"#,
    ];
    let mut cluster = cluster(&nodes);
    take(&mut cluster, 1, r#"{"CPU": 1}"#);
    cluster.set_labels(NodeIx(2), "zone=b".parse().unwrap());
    cluster.set_draining(NodeIx(3), true);
    let zone = ["zone!=b".parse().unwrap()];
    let demand = Demand {
        selectors: &zone,
        ..Demand::of(&variants, Basis::Acquirable)
    };
    let text = |cluster: &Cluster, node, demand: &Demand<'_>| {
        cluster.fit_on(NodeIx(node), demand).unwrap().to_string()
    };
    let expected = [
        "infeasible: GPU: needs 2, node has 1 in total",
        "unavailable: CPU: needs 8, node has 7 whole units free",
        "infeasible: label zone!=b does not match",
        "unavailable: it is draining and gets no new work",
    ];
    for (node, expected) in expected.into_iter().enumerate() {
        assert_eq!(text(&cluster, node as u32, &demand), expected);
    }
    let hard = strategy("node:n1");
    assert_eq!(
        text(&cluster, 0, &with(&demand, &hard)),
        "infeasible: bound to node n1"
    );
    let cpu = requests(&[r#"{"CPU": 7}"#]);
    assert_eq!(
        text(&cluster, 1, &Demand::of(&cpu, Basis::Acquirable)),
        "available"
    );
    assert_eq!(cluster.fit_on(NodeIx(9), &demand), None);
}

#[test]
fn joining_is_checked_and_places_are_used_again() {
    let mut cluster = cluster(&[CPU4, CPU4]);
    let node = |number, incarnation| NewNode {
        incarnation: Incarnation(incarnation),
        ..new_node(number, "", Supply::Own(resources(r#"{"GPU": 3}"#)))
    };
    assert!(matches!(
        cluster.join(node(1, 1)),
        Err(JoinError::Stale { .. })
    ));
    assert!(matches!(
        cluster.join(node(1, 2)),
        Err(JoinError::StillThere { .. })
    ));
    let named = NewNode {
        name: "n1".parse().unwrap(),
        ..node(7, 1)
    };
    assert!(matches!(
        cluster.join(named),
        Err(JoinError::NameTaken { .. })
    ));
    assert_eq!(cluster.leave(NodeIx(1)).unwrap().id(), id(1));
    assert!(cluster.leave(NodeIx(1)).is_none());
    assert_eq!(cluster.total().to_string(), "{CPU: 4}");
    assert_eq!(cluster.join(node(1, 2)), Ok(NodeIx(1)));
    assert_eq!(cluster.total().to_string(), "{CPU: 4, GPU: 3}");
    assert_eq!(cluster.resolve(&"n1".parse().unwrap()), Some(NodeIx(1)));
    assert_eq!(cluster.by_id(id(1)), Some(NodeIx(1)));
    assert!(cluster.iter().map(|(ix, _)| ix.0).eq([0, 1]));
}

#[test]
fn the_total_of_many_nodes_does_not_overflow() {
    let all = format!(r#"{{"memory": "{}"}}"#, Amount::MAX);
    let mut cluster = cluster(&[&all, &all]);
    assert_eq!(cluster.total().get(&ResourceName::MEMORY), Amount::MAX);
    cluster.leave(NodeIx(0));
    assert_eq!(cluster.total().get(&ResourceName::MEMORY), Amount::MAX);
    cluster.leave(NodeIx(1));
    assert!(cluster.total().is_empty());
}

#[test]
fn more_classes_than_are_kept() {
    let mut cluster = cluster(&[r#"{"memory": 1000}"#; 3]);
    let requests: Vec<_> = (1..=600)
        .map(|memory| vec![request(&format!(r#"{{"memory": {memory}}}"#))])
        .collect();
    take(&mut cluster, 0, r#"{"memory": 700}"#);
    for _ in 0..2 {
        for (at, request) in requests.iter().enumerate() {
            let demand = Demand::of(request, Basis::Acquirable);
            assert_eq!(chosen(&mut cluster, &demand), [1], "{at}");
        }
        take(&mut cluster, 2, r#"{"memory": 100}"#);
    }
}

#[test]
#[should_panic(expected = "known to its owner")]
fn a_group_is_not_chosen_here() {
    let one = requests(&["{}"]);
    let group = strategy("group:000102030405060708090a0b0c0d0e0f");
    choose(
        &mut cluster(&[CPU4]),
        &with(&Demand::of(&one, Basis::Acquirable), &group),
    );
}
