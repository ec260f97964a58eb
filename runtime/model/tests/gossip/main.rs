//! Seeded simulation of gossip: a cluster over a bad network. Those tests that try many seeds print the one that fails.
//!
//! `WASMRUN_SEEDS` is how many seeds are tried (150), `WASMRUN_SEED` the first; one seed alone (`WASMRUN_SEEDS=1`)
//! prints its trace. Tests of which a seed takes longer try fewer of them, in proportion.

#[path = "../seeds/mod.rs"]
mod seeds;
mod world;

use std::time::Duration;

use wasmrun_model::gossip::{Input, MAX_BODY_BYTES, MAX_MESSAGE_BYTES, Message};
use wasmrun_model::id::NodeId;
use wasmrun_model::random::Random;

use world::{Faults, GOOD, World, id};

const BAD: Faults = Faults {
    lost: 20,
    doubled: 20,
    delay_us: (200, 500_000),
};

const NOTICE: Duration = Duration::from_secs(3);

/// How many seeds are tried if nobody says how many.
const SEEDS: u64 = 150;

/// Tries many seeds, `usually` so many. What tries one is told whether it is the only one.
fn explore(usually: u64, test: &str, one: impl Fn(u64, bool)) {
    seeds::explore((usually, SEEDS), &format!("gossip {test}"), one);
}

fn some_node(world: &mut World) -> Option<NodeId> {
    let at = world.random.next() as usize;
    let at = at.checked_rem(world.nodes.len())?;
    world.nodes.keys().nth(at).copied()
}

/// Twenty seconds with everything going wrong that can, then peace.
fn turmoil(seed: u64, has_trace: bool, is_shown: bool) -> World {
    let mut world = World::new(seed, BAD, true);
    world.trace = has_trace.then(Vec::new);
    world.is_shown = is_shown;
    let nodes = 2 + world.random.below(24) as u64;
    let mut incarnations = nodes;
    (0..nodes).for_each(|n| world.join(n, 1, NOTICE));
    for _ in 0..400 {
        let step = Duration::from_micros(world.random.below(100_000) as u64);
        world.run_for(step);
        match world.random.below(40) {
            0 => {
                let side = world.nodes.keys().copied().collect::<Vec<_>>();
                let side = side.into_iter().filter(|_| world.random.below(2) == 0);
                world.cut = Some(side.collect());
            }
            1..=3 => world.cut = None,
            4 if world.nodes.len() > 2 => {
                let node = some_node(&mut world).unwrap();
                world.kill(node, NOTICE);
            }
            5 => {
                let n = world.random.below(nodes as usize + 4) as u64;
                // A node comes back as another incarnation only after its old one has ended.
                world.kill(id(n), NOTICE);
                incarnations += 1;
                world.join(n, incarnations, NOTICE);
            }
            _ => {
                if let Some(node) = some_node(&mut world) {
                    world.change(node);
                }
            }
        }
    }
    world.cut = None;
    world.run_for(NOTICE);
    world.faults = GOOD;
    world.run_for(Duration::from_secs(6));
    world
}

#[test]
fn all_know_all_once_faults_heal() {
    explore(SEEDS, "all_know_all", |seed, is_shown| {
        let world = turmoil(seed, false, is_shown);
        let lacking = world.lacking();
        assert_eq!(lacking, None, "{} nodes", world.nodes.len());
    });
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    explore(5, "the_same_seed", |seed, _| {
        let [one, two] = [(); 2].map(|()| turmoil(seed, true, false));
        assert_eq!(one.trace, two.trace);
    });
}

fn cluster(seed: u64, nodes: u64) -> World {
    let mut world = World::new(seed, GOOD, true);
    (0..nodes).for_each(|n| world.join(n, 1, Duration::from_millis(100)));
    world.run_for(Duration::from_secs(8));
    assert_eq!(world.lacking(), None, "{nodes} nodes");
    world
}

/// One node's view changes so that tasks go elsewhere.
fn turn(world: &mut World, node: NodeId, mark: u64) {
    let queue = &mut world.nodes.get_mut(&node).unwrap().work.queue;
    queue.tasks = u64::from(queue.tasks == 0);
    queue.run_time_us = mark;
    world.tell(node);
}

#[test]
fn in_small_clusters_everybody_is_told_directly() {
    for nodes in 2..=9 {
        let mut world = cluster(nodes, nodes);
        let before = world.traffic.messages;
        turn(&mut world, id(0), 1);
        // One hop, with nothing to wait for.
        world.run_for(Duration::from_micros(GOOD.delay_us.1 as u64));
        assert_eq!(world.heard[&1].len() as u64, nodes - 1);
        assert!(world.traffic.messages - before <= 2 * (nodes - 1));
    }
}

#[test]
fn without_loss_news_reaches_everybody_without_comparison() {
    for nodes in [10, 30, 100] {
        for seed in 0..5 {
            let mut world = cluster(seed, nodes);
            turn(&mut world, id(3), 1);
            world.run_for(Duration::from_millis(900));
            let heard = world.heard[&1].len() as u64;
            assert_eq!(heard, nodes - 1, "{nodes} nodes, seed {seed}");
        }
    }
}

#[test]
fn an_idle_cluster_of_100_stays_below_a_megabyte_a_second() {
    let mut world = cluster(1, 100);
    let before = world.traffic.bytes;
    world.run_for(Duration::from_secs(10));
    let per_s = (world.traffic.bytes - before) / 10;
    assert!(per_s < 1_000_000, "{per_s} bytes a second");
    // Nothing but comparisons.
    assert!(per_s < 20_000, "{per_s} bytes a second");
}

#[test]
fn the_cost_of_a_node_stays_flat() {
    let mut per_node = [30, 240].map(|nodes| {
        let mut world = World::new(1, GOOD, false);
        (0..nodes).for_each(|n| world.join(n, 1, Duration::from_millis(100)));
        world.run_for(Duration::from_secs(8));
        let before = world.traffic.messages;
        world.run_for(Duration::from_secs(5));
        (world.traffic.messages - before) / nodes
    });
    per_node.sort_unstable();
    assert!(per_node[1] <= per_node[0] + 1, "{per_node:?}");
}

#[test]
fn slight_changes_wait_and_what_goes_back_is_not_told() {
    let mut world = cluster(1, 3);
    turn(&mut world, id(0), 1_000_000);
    world.run_for(Duration::from_millis(20));
    let before = world.nodes[&id(0)].gossip.stats().published;
    for mark in [1_000_001, 1_000_002, 1_000_003] {
        world.nodes.get_mut(&id(0)).unwrap().work.queue.run_time_us = mark;
        world.tell(id(0));
        world.run_for(Duration::from_millis(10));
    }
    assert_eq!(world.nodes[&id(0)].gossip.stats().published, before);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.nodes[&id(0)].gossip.stats().published, before + 1);
    assert_eq!(world.lacking(), None);
    turn(&mut world, id(0), 0);
    turn(&mut world, id(0), 1);
    let due = world.nodes[&id(0)].gossip.stats().published;
    world.run_for(Duration::from_secs(3));
    assert!(world.nodes[&id(0)].gossip.stats().published <= due + 1);
}

#[test]
fn messages_are_split() {
    let mut world = World::new(1, GOOD, true);
    (0..200).for_each(|n| world.join(n, 1, Duration::from_millis(100)));
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.lacking(), None);
    assert!(
        world.traffic.largest <= MAX_MESSAGE_BYTES + 8 * 1024,
        "{}",
        world.traffic.largest
    );
}

#[test]
fn too_many_tenants_are_left_out() {
    let mut world = cluster(1, 3);
    let mut view = world.nodes[&id(0)].work.view();
    let used = view.resources.total();
    for n in 0..20_000 {
        view.usage
            .insert(format!("tenant-{n}").parse().unwrap(), used.clone());
    }
    let (node, view) = (world.nodes[&id(0)].work.info.clone(), Box::new(view));
    world.handle(id(0), Input::OwnView { node, view });
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.nodes[&id(0)].gossip.stats().too_long, 1);
    let heard = &world.nodes[&id(1)].views[&id(0)].1;
    assert!(heard.usage.len() > 1_000);
    assert!(world.traffic.largest < MAX_BODY_BYTES + 1_000);
}

#[test]
fn a_node_that_hears_of_a_view_it_has_not_published_outdoes_it() {
    let mut world = cluster(1, 12);
    let known = world.nodes[&id(1)].gossip.version_of(id(0)).unwrap();
    let lie = wasmrun_model::gossip::ViewVersion {
        version: known.version + 1_000,
        ..known
    };
    let message = Message::Digest(vec![lie]);
    world.handle(
        id(0),
        Input::Message {
            from: id(5),
            message,
        },
    );
    world.run_for(Duration::from_secs(2));
    let known = world.nodes[&id(1)].gossip.version_of(id(0)).unwrap();
    assert_eq!(known.version, lie.version + 1);
    assert_eq!(world.lacking(), None);
}

#[test]
fn spoilt_messages_do_no_harm() {
    // Bytes of real messages, some of them changed: whoever sends them is a member.
    explore(30, "spoilt_messages", |seed, is_shown| {
        let mut world = World::new(seed, GOOD, false);
        world.is_shown = is_shown;
        let mut random = Random::new(seed);
        (0..12).for_each(|n| world.join(n, 1, Duration::from_millis(10)));
        world.run_for(Duration::from_secs(1));
        let real = [
            Message::News(Vec::new()),
            Message::Compare(vec![Default::default(); 3]),
            Message::Digest(
                (0..12)
                    .filter_map(|n| world.nodes[&id(0)].gossip.version_of(id(n)))
                    .collect(),
            ),
        ];
        for _ in 0..300 {
            let mut bytes = postcard::to_stdvec(&real[random.below(real.len())]).unwrap();
            bytes.extend((0..random.below(8)).map(|_| random.next() as u8));
            for _ in 0..random.below(6) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            if let Ok((message, _)) = postcard::take_from_bytes::<Message>(&bytes) {
                let (from, to) = (id(random.below(12) as u64), id(random.below(12) as u64));
                world.handle(to, Input::Message { from, message });
            }
            world.run_for(Duration::from_millis(5));
        }
    });
}
