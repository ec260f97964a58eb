//! Random clusters under random changes, against a look at every node.
//!
//! The reference shares no code with the indexes: it asks each node, compares scores as fractions
//! and sorts.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::candidates::{By, Class};
use super::*;
use crate::id::Digest;
use crate::resource::{Allocation, Amount, Fit, ResourceName, ResourceSet};

const TOTALS: [&str; 4] = [
    r#"{"CPU": 4, "memory": 64}"#,
    r#"{"CPU": 3, "GPU": 2, "memory": 32}"#,
    r#"{"CPU": 8}"#,
    r#"{"GPU": 1, "memory": 3, "tpu": 2}"#,
];
const REQUESTS: [&str; 6] = [
    r#"{"CPU": 1}"#,
    r#"{"CPU": 2, "memory": 10}"#,
    r#"{"GPU": "0.4"}"#,
    r#"{"memory": 30}"#,
    r#"{"tpu": 1}"#,
    "{}",
];
const LABELS: [&str; 3] = ["", "zone=a", "zone=b,spot=1"];
const SELECTORS: [&str; 3] = ["zone=a", "zone", "!spot"];

struct World {
    cluster: Cluster,
    random: Random,
    held: Vec<(NodeIx, Allocation)>,
    claims: Vec<(NodeIx, Request)>,
    running: Vec<(NodeIx, Digest)>,
}

impl World {
    fn pick<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.random.below(texts.len())]
    }

    fn module(&mut self) -> Digest {
        Digest::of(&[self.random.below(2) as u8])
    }

    fn node(&mut self) -> Option<NodeIx> {
        let nodes: Vec<_> = self.cluster.iter().map(|(ix, _)| ix).collect();
        (!nodes.is_empty()).then(|| nodes[self.random.below(nodes.len())])
    }

    fn join(&mut self) {
        let resources = resources(self.pick(&TOTALS));
        let supply = match self.random.below(3) {
            0 => Supply::Peer(resources.report()),
            _ => Supply::Own(resources),
        };
        let (number, labels) = (self.random.below(40) as u8, self.pick(&LABELS));
        // It may be there already.
        let _ = self.cluster.join(new_node(number, labels, supply));
    }

    fn forget(&mut self, ix: NodeIx) {
        let (gone, held) = self.held.drain(..).partition(|(node, _)| *node == ix);
        self.held = held;
        let gone: Vec<(NodeIx, Allocation)> = gone;
        gone.into_iter().for_each(|(_, held)| held.abandon());
        self.claims.retain(|(node, _)| *node != ix);
        self.running.retain(|(node, _)| *node != ix);
    }

    fn change(&mut self) {
        let Some(ix) = self.node() else {
            return self.join();
        };
        let request = request(self.pick(&REQUESTS));
        let is_own = self.cluster[ix].is_own();
        match self.random.below(22) {
            0 | 1 => self.join(),
            2 => {
                self.cluster.leave(ix);
                self.forget(ix);
            }
            3..8 if is_own => {
                if let Ok(held) = self.cluster.own_mut(ix).acquire(&request) {
                    self.held.push((ix, held));
                }
            }
            8..11 if !self.held.is_empty() => {
                let at = self.random.below(self.held.len());
                let (ix, held) = self.held.swap_remove(at);
                self.cluster.own_mut(ix).release(held);
            }
            11 | 12 => {
                self.cluster.claim(ix, &request);
                self.claims.push((ix, request));
            }
            13 if !self.claims.is_empty() => {
                let at = self.random.below(self.claims.len());
                let (ix, request) = self.claims.swap_remove(at);
                self.cluster.unclaim(ix, &request);
            }
            14 => {
                let labels = self.pick(&LABELS).parse().unwrap();
                self.cluster.set_labels(ix, labels);
            }
            15 => {
                let is_draining = self.random.below(2) == 0;
                self.cluster.set_draining(ix, is_draining);
            }
            16 => {
                let kept = Some(request).filter(|_| self.random.below(2) == 0);
                self.cluster.keep(ix, kept);
            }
            17 => {
                let module = self.module();
                self.cluster.module_started(ix, module);
                self.running.push((ix, module));
            }
            18 if !self.running.is_empty() => {
                let at = self.random.below(self.running.len());
                let (ix, module) = self.running.swap_remove(at);
                self.cluster.module_stopped(ix, module);
            }
            19 => {
                let run_time_us = self.random.below(5) as u64 * 1_000;
                let queue = QueueReport {
                    tasks: 1,
                    run_time_us,
                };
                match self.random.below(3) {
                    0 => self.cluster.queued(ix, run_time_us),
                    1 => self.cluster.unqueued(ix),
                    _ => self.cluster.set_queue(ix, queue, queue),
                }
            }
            20 if is_own => {
                let units = Amount::units(self.random.below(6) as u32);
                let cpu = ResourceName::CPU;
                let changed = self.cluster.resize(ix, |own| own.set_capacity(&cpu, units));
                changed.unwrap();
            }
            20 => {
                let report = resources(self.pick(&TOTALS)).report();
                self.cluster.report(ix, report);
                self.claims.retain(|(node, _)| *node != ix);
            }
            21 => {
                let local = Some(ix).filter(|_| self.random.below(2) == 0);
                self.cluster.set_local(local);
            }
            _ => {}
        }
    }

    fn demand_parts(&mut self) -> (Vec<Request>, Vec<Selector>, Option<Digest>, Basis) {
        let alternatives = (0..=self.random.below(2)).map(|_| request(self.pick(&REQUESTS)));
        let alternatives = alternatives.collect();
        let selectors = (0..self.random.below(3)).map(|_| self.pick(&SELECTORS).parse().unwrap());
        let selectors = selectors.collect();
        let module = (self.random.below(2) == 0).then(|| self.module());
        let basis = [Basis::Acquirable, Basis::TrulyFree][self.random.below(2)];
        (alternatives, selectors, module, basis)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.held.drain(..).for_each(|(_, held)| held.abandon());
    }
}

/// The critical utilisation as a fraction, 0 below one half.
fn utilisation(node: &Node, basis: Basis) -> (u128, u128) {
    let (total, free) = match (node.supply(), basis) {
        (Supply::Own(own), Basis::Acquirable) => (own.total(), own.available()),
        (Supply::Own(own), Basis::TrulyFree) => (own.total(), own.truly_free()),
        (Supply::Peer(report), _) => (report.total(), report.truly_free()),
    };
    let fractions = total.iter().map(|(name, total)| {
        let used = total.saturating_sub(free.get(name)).steps();
        (u128::from(used), u128::from(total.steps()))
    });
    let most = fractions.max_by(compare).unwrap_or((0, 1));
    if most.0 * 2 < most.1 { (0, 1) } else { most }
}

fn compare(a: &(u128, u128), b: &(u128, u128)) -> Ordering {
    (a.0 * b.1).cmp(&(b.0 * a.1))
}

fn is_looked_at(node: &Node, selector: Option<&Selector>, basis: Basis) -> bool {
    !node.is_draining()
        && (node.is_own() || basis == Basis::TrulyFree)
        && selector.is_none_or(|selector| selector.matches(node.labels()))
}

/// The available nodes in the order of the default strategy.
fn by_score(cluster: &Cluster, class: Class<'_>) -> Vec<NodeIx> {
    let mut nodes: Vec<_> = cluster
        .iter()
        .filter(|(_, node)| is_looked_at(node, class.selector, class.basis))
        .filter(|(_, node)| node.fit(class.request, class.basis) == Fit::Available)
        .collect();
    nodes.sort_by(|(a_ix, a), (b_ix, b)| {
        let local = cluster.local();
        let runs = |node: &Node| {
            class
                .module
                .is_some_and(|it| node.modules().contains_key(it))
        };
        compare(&utilisation(a, class.basis), &utilisation(b, class.basis))
            .then((local != Some(*a_ix)).cmp(&(local != Some(*b_ix))))
            .then((!runs(a)).cmp(&!runs(b)))
            .then(a.id().cmp(&b.id()))
    });
    nodes.into_iter().map(|(ix, _)| ix).collect()
}

/// The nodes that can ever serve it, in the order of their waits.
fn by_wait(cluster: &Cluster, class: Class<'_>) -> Vec<NodeIx> {
    let mut nodes: Vec<_> = cluster
        .iter()
        .filter(|(_, node)| is_looked_at(node, class.selector, class.basis))
        .filter(|(_, node)| !matches!(node.fit(class.request, class.basis), Fit::Infeasible(_)))
        .map(|(ix, node)| (node.queue_wait_us(class.request), node.id(), ix))
        .collect();
    nodes.sort_unstable();
    nodes.into_iter().map(|(_, _, ix)| ix).collect()
}

fn check_choice(world: &mut World) {
    let (alternatives, selectors, module, basis) = world.demand_parts();
    let demand = Demand {
        selectors: &selectors,
        module: module.as_ref(),
        ..Demand::of(&alternatives, basis)
    };
    let class = |selector, request, by| Class {
        request,
        selector,
        module: module.as_ref().filter(|_| by == By::Score),
        basis,
        by,
    };
    let selectors: Vec<Option<&Selector>> = match selectors.is_empty() {
        true => vec![None],
        false => selectors.iter().map(Some).collect(),
    };
    let pairs = || {
        let numbered = || alternatives.iter().enumerate();
        selectors
            .iter()
            .flat_map(move |selector| numbered().map(move |it| (*selector, it)))
    };
    // The indexes are what a look at every node gives.
    for (selector, (_, request)) in pairs() {
        let Cluster { nodes, indexes } = &mut world.cluster;
        let scored = class(selector, request, By::Score);
        let found: Vec<_> = indexes.of(scored, nodes).iter().collect();
        assert_eq!(found, by_score(&world.cluster, scored));
        let Cluster { nodes, indexes } = &mut world.cluster;
        let waiting = class(selector, request, By::Wait);
        let found: Vec<_> = indexes.of(waiting, nodes).iter().collect();
        assert_eq!(found, by_wait(&world.cluster, waiting));
        let Cluster { nodes, indexes } = &mut world.cluster;
        let plain = class(selector, request, By::Id);
        let found: BTreeSet<_> = indexes.of(plain, nodes).iter().collect();
        assert_eq!(found, by_score(&world.cluster, plain).into_iter().collect());
    }
    // The choice falls on the nodes that the rule names.
    let expected = pairs().find_map(|(selector, (alternative, request))| {
        let nodes = by_score(&world.cluster, class(selector, request, By::Score));
        (!nodes.is_empty()).then_some((alternative, nodes))
    });
    let choice = world.cluster.choose(&demand, &mut world.random);
    assert_eq!(
        world.cluster.is_available_somewhere(&demand),
        expected.is_some()
    );
    match (choice, expected) {
        (Choice::Now { node, alternative }, Some((expected, nodes))) => {
            assert_eq!(alternative, expected);
            let live = world.cluster.iter();
            let live = live.filter(|(_, node)| node.is_own() || basis == Basis::TrulyFree);
            let top = (live.count() * 2).div_ceil(10).max(1);
            let idle = |ix: NodeIx| utilisation(&world.cluster[ix], basis).0 == 0;
            match world
                .cluster
                .local()
                .filter(|ix| nodes.contains(ix) && idle(*ix))
            {
                Some(local) => assert_eq!(node, local),
                None => assert!(nodes.iter().take(top).any(|ix| *ix == node)),
            }
        }
        (Choice::Later { node, alternative }, None) => {
            let expected = pairs().find_map(|(selector, (alternative, request))| {
                let nodes = by_wait(&world.cluster, class(selector, request, By::Wait));
                Some((*nodes.first()?, alternative))
            });
            assert_eq!(Some((node, alternative)), expected);
        }
        (Choice::Infeasible, None) => {
            for (selector, (_, request)) in pairs() {
                let nodes = by_wait(&world.cluster, class(selector, request, By::Wait));
                assert_eq!(nodes, []);
            }
        }
        (choice, expected) => panic!("{choice:?}, expected {expected:?}"),
    }
}

fn check_view(cluster: &Cluster) {
    let mut sum = ResourceSet::new();
    for (_, node) in cluster.iter() {
        let total = match node.supply() {
            Supply::Own(own) => own.total(),
            Supply::Peer(report) => report.total(),
        };
        assert_eq!(&total, node.total());
        sum.add(&total).unwrap();
    }
    assert_eq!(&sum, cluster.total());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_choice_is_as_good_as_a_look_at_every_node(seed: u64, pace in 1..200_usize) {
        let mut world = World {
            cluster: Cluster::new(Tuning::default()),
            random: Random::new(seed),
            held: vec![],
            claims: vec![],
            running: vec![],
        };
        (0..12).for_each(|_| world.join());
        for _ in 0..600 / pace.min(30) {
            // Now few changes since the last look, now more than the log holds.
            (0..world.random.below(pace)).for_each(|_| world.change());
            check_choice(&mut world);
            check_view(&world.cluster);
        }
    }

    /// Scores compare as the fractions do, also where numbers are large.
    #[test]
    fn scores_are_exact(a in 1..u64::MAX, b in 1..u64::MAX, c: u64, times in 1..1_000_u64) {
        let node = |total: u64, used: u64| {
            let mut own = NodeResources::new();
            own.set_capacity(&ResourceName::MEMORY, Amount::from_steps(total)).unwrap();
            let used = ResourceSet::new().with(ResourceName::MEMORY, Amount::from_steps(used));
            own.acquire(&Request::new(used).unwrap()).unwrap().abandon();
            let mut cluster = Cluster::new(Tuning::default());
            let ix = cluster.join(new_node(0, "", Supply::Own(own))).unwrap();
            let node = cluster.leave(ix).unwrap();
            (node.score(Basis::Acquirable, 5_000), utilisation(&node, Basis::Acquirable))
        };
        let (first, second) = (node(a, c % a), node(b, c % b));
        // Fractions that differ by less than 2^-61 may count as equal, and never as swapped.
        let by_score = first.0.cmp(&second.0);
        prop_assert!(by_score == Ordering::Equal || by_score == compare(&first.1, &second.1));
        if by_score == Ordering::Equal {
            let cross = (first.1.0 * second.1.1).abs_diff(second.1.0 * first.1.1);
            prop_assert!(cross == 0 || cross / second.1.1 <= (first.1.1 >> 60) + 1);
        }
        // The same fraction in other numbers is the same score.
        let (small, part) = (a / 1_000, c % (a / 1_000 + 1));
        if small > 0 {
            prop_assert_eq!(node(small, part).0, node(small * times, part * times).0);
        }
    }
}

/// Each node joins between the first one and the one before: the numbers of the order run out.
#[test]
fn ids_that_crowd_in_one_place_stay_in_order() {
    let mut cluster = cluster(&[r#"{"CPU": 4}"#]);
    let request = request(r#"{"CPU": 1}"#);
    let class = Class {
        request: &request,
        selector: None,
        module: None,
        basis: Basis::Acquirable,
        by: By::Score,
    };
    for number in (100..200).rev() {
        let supply = Supply::Own(resources(r#"{"CPU": 4}"#));
        cluster.join(new_node(number, "", supply)).unwrap();
        let Cluster { nodes, indexes } = &mut cluster;
        let found: Vec<_> = indexes.of(class, nodes).iter().collect();
        assert_eq!(found, by_score(&cluster, class));
    }
    assert!(cluster.nodes.order.generation() > 1);
}
