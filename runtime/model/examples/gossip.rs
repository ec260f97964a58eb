//! What gossip costs and how fast it is, in virtual time: `cargo run --release -p wasmrun-model --example gossip`.
//!
//! Bytes are those of postcard messages, without what QUIC adds. Times of a change are from when it is
//! passed to its node until others hear, over links of 0.2 to 0.8 ms. CPU time is of this machine, noisy.

#[path = "../tests/gossip/world.rs"]
#[allow(dead_code)] // Its oracles are for the tests.
mod world;

use std::time::Duration;

use wasmrun_model::random::Random;
use wasmrun_model::time::Instant;

use world::{Faults, GOOD, Traffic, World, id};

/// How often the view of each node changes.
#[derive(Clone, Copy)]
enum Load {
    Idle,
    Busy(Duration),
}

fn main() {
    let lossy = Faults { lost: 5, ..GOOD };
    let busy = Load::Busy(Duration::from_millis(100));
    println!(
        "| nodes | load | loss | all bytes/s | node bytes/s | node messages/s | copies | half | 99 % | all | worst | node CPU |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let loads = [
        (Load::Idle, GOOD),
        (busy, GOOD),
        (Load::Idle, lossy),
        (busy, lossy),
    ];
    for (load, faults) in loads {
        for nodes in [3, 10, 100, 1_000] {
            measure(nodes, load, faults);
        }
    }
    println!();
    println!("| nodes | a newcomer knows all | all know it | bytes for that |");
    println!("|---|---|---|---|");
    for nodes in [3, 10, 100, 1_000] {
        join(nodes);
    }
}

/// A node joins: everybody learns of it by the control store within 50 ms, each in its time.
fn join(nodes: u64) {
    let mut world = World::new(1, GOOD, true);
    (1..nodes).for_each(|n| world.join(n, 1, Duration::from_millis(200)));
    world.run_for(Duration::from_secs(10));
    let (began, before) = (world.now, world.traffic);
    let newcomer = id(0);
    world.join(0, 1, Duration::from_millis(50));
    let (mut knows, mut is_known, mut bytes) = (None, None, 0);
    while knows.is_none() || is_known.is_none() {
        world.run_for(Duration::from_millis(1));
        let took = Some(world.now.since(began));
        bytes = world.traffic.bytes - before.bytes;
        let others = || world.nodes.iter().filter(|(id, _)| **id != newcomer);
        if knows.is_none() && world.nodes[&newcomer].views.len() as u64 == nodes - 1 {
            knows = took;
        }
        if is_known.is_none() && others().all(|(_, node)| node.views.contains_key(&newcomer)) {
            is_known = took;
        }
    }
    let shown = [knows, is_known].map(|time| millis(time.expect("it was waited for")));
    println!("| {nodes} | {} | {} | {bytes} |", shown[0], shown[1]);
}

fn measure(nodes: u64, load: Load, faults: Faults) {
    let mut world = World::new(1, faults, false);
    (0..nodes).for_each(|n| world.join(n, 1, Duration::from_millis(200)));
    world.run_for(Duration::from_secs(8));
    let mut random = Random::new(7);
    let mut next: Vec<Instant> = (0..nodes).map(|_| world.now).collect();
    run(
        &mut world,
        load,
        &mut next,
        &mut random,
        Duration::from_secs(3),
    );
    let updates = |world: &World| {
        let stats = world.nodes.values().map(|node| node.gossip.stats());
        stats.fold((0, 0), |(taken, all), stats| {
            (taken + stats.taken, all + stats.taken + stats.duplicates)
        })
    };
    let taken_before = updates(&world);
    let (before, began) = (world.traffic, world.now);
    run(
        &mut world,
        load,
        &mut next,
        &mut random,
        Duration::from_secs(5),
    );
    let traffic = less(world.traffic, before);
    let taken = updates(&world);
    let new = (taken.0 - taken_before.0).max(1);
    let copies = (taken.1 - taken_before.1) as f64 / new as f64;
    let seconds = world.now.since(began).as_secs_f64();
    let mut times: [Vec<Duration>; 3] = Default::default();
    let turns = if nodes < 1_000 { 20 } else { 4 };
    for turn in 0..turns {
        let (node, mark) = (id(turn % nodes), u64::MAX - turn);
        let queue = &mut world.nodes.get_mut(&node).expect("a node").work.queue;
        queue.tasks = u64::from(queue.tasks == 0);
        queue.run_time_us = mark;
        let told = world.now;
        world.tell(node);
        run(
            &mut world,
            load,
            &mut next,
            &mut random,
            Duration::from_millis(2_500),
        );
        let first = world.heard.remove(&mark).unwrap_or_default();
        let mut first: Vec<_> = first.into_values().collect();
        first.sort_unstable();
        let at = |part: f64| {
            let count = ((nodes - 1) as f64 * part).ceil() as usize;
            first
                .get(count - 1)
                .map_or(Duration::MAX, |at| at.since(told))
        };
        std::iter::zip(&mut times, [0.5, 0.99, 1.0]).for_each(|(times, part)| times.push(at(part)));
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    let per_node = |count: u64| count as f64 / seconds / nodes as f64;
    let cpu_ns = traffic.handled_ns + traffic.encoded_ns + traffic.decoded_ns;
    println!(
        "| {nodes} | {} | {} % | {:.0} | {:.0} | {:.1} | {copies:.1} | {} | {} | {} | {} | {:.3} % |",
        match load {
            Load::Idle => "idle",
            Load::Busy(_) => "busy",
        },
        faults.lost,
        traffic.bytes as f64 / seconds,
        per_node(traffic.bytes),
        per_node(traffic.messages),
        millis(times[0][times[0].len() / 2]),
        millis(times[1][times[1].len() / 2]),
        millis(times[2][times[2].len() / 2]),
        millis(times[2][times[2].len() - 1]),
        per_node(cpu_ns) / 1e7,
    );
}

fn less(now: Traffic, before: Traffic) -> Traffic {
    Traffic {
        messages: now.messages - before.messages,
        bytes: now.bytes - before.bytes,
        largest: now.largest,
        handled: now.handled - before.handled,
        handled_ns: now.handled_ns - before.handled_ns,
        encoded_ns: now.encoded_ns - before.encoded_ns,
        decoded_ns: now.decoded_ns - before.decoded_ns,
    }
}

fn millis(time: Duration) -> String {
    match time {
        Duration::MAX => "never".to_owned(),
        time => format!("{:.1} ms", time.as_secs_f64() * 1e3),
    }
}

/// Lets time pass, in which every node's view changes as often as the load says.
fn run(world: &mut World, load: Load, next: &mut [Instant], random: &mut Random, time: Duration) {
    let until = world.now + time;
    let Load::Busy(every) = load else {
        world.run_until(until);
        return;
    };
    loop {
        let (n, at) = next
            .iter()
            .copied()
            .enumerate()
            .min_by_key(|(_, at)| *at)
            .expect("there are nodes");
        if at > until {
            break;
        }
        world.run_until(at);
        world.change(id(n as u64));
        let jitter = random.below(every.as_micros() as usize) as u64;
        next[n] = at + every / 2 + Duration::from_micros(jitter);
    }
    world.run_until(until);
}
