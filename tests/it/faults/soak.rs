//! Fault upon fault, from a seed: nodes that are killed and started again, frozen and thawed, wires that are cut
//! and joined, under load all the time, that of a driver and what is detached.
//!
//! `WASMRUN_FAULT_SEEDS` says how many seeds are tried, one after the other; `WASMRUN_FAULT_SEED` is the first.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::detached::Detached;
use super::links::{Hosts, NAMES};
use super::world::{Random, Three, Tree};

/// How many seeds are tried if nobody says how many: each takes half a minute.
const SEEDS: u64 = 2;
/// How many faults a tree of tasks meets.
const FAULTS: usize = 4;

#[derive(Debug, Clone, Copy)]
enum Fault {
    Killed(&'static str),
    Frozen(&'static str),
    Parted((&'static str, &'static str), bool),
}

impl Fault {
    /// Any, but that the driver's node is not killed.
    fn any(random: &mut Random, driver: &str) -> Self {
        let mut up_to = |most: u64| random.next() % most;
        let name = NAMES[up_to(3) as usize];
        match up_to(3) {
            0 if name != driver => Self::Killed(name),
            0 | 1 => Self::Frozen(name),
            _ => {
                let pairs = [("a", "b"), ("b", "c"), ("a", "c")];
                Self::Parted(pairs[up_to(3) as usize], up_to(2) == 0)
            }
        }
    }

    fn begin(self, three: &mut Three, hosts: &Hosts) {
        match self {
            Self::Killed(name) => drop(three.node_mut(name).kill()),
            Self::Frozen(name) => three.node_mut(name).running().signal(Signal::STOP),
            Self::Parted((one, other), is_unplugged) => hosts.part(one, other, is_unplugged),
        }
    }

    fn end(self, three: &mut Three, hosts: &Hosts) {
        match self {
            Self::Killed(name) => {
                let part = if name == "a" { "--head" } else { "--join" };
                three.node_mut(name).start(&[part]);
            }
            Self::Frozen(name) => three.node_mut(name).running().signal(Signal::CONT),
            Self::Parted((one, other), is_unplugged) => hosts.heal(one, other, is_unplugged),
        }
    }
}

/// One fault or two, for a while. Those that others may wait for end first.
fn disturb(random: &mut Random, driver: &str, three: &mut Three, hosts: &Hosts) {
    let mut faults = vec![Fault::any(random, driver)];
    let second = Fault::any(random, driver);
    let is_same_kind = |one: &Fault| std::mem::discriminant(one) == std::mem::discriminant(&second);
    let hits = |one: &Fault, name: &str| matches!(one, Fault::Killed(it) | Fault::Frozen(it) if *it == name);
    let is_same_node = NAMES
        .iter()
        .any(|name| hits(&faults[0], name) && hits(&second, name));
    if random.next().is_multiple_of(2) && !is_same_kind(&faults[0]) && !is_same_node {
        faults.push(second);
    }
    let time = Duration::from_millis(200 + random.next() % 7000);
    println!("{time:?} {faults:?}");
    faults.iter().for_each(|fault| fault.begin(three, hosts));
    // How long a fault lasts is part of it; nothing is waited for so.
    thread::sleep(time);
    faults.sort_by_key(|fault| matches!(fault, Fault::Killed(_)));
    faults.iter().for_each(|fault| fault.end(three, hosts));
    thread::sleep(Duration::from_millis(random.next() % 1000));
}

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn fault_upon_fault() {
    let first = number("WASMRUN_FAULT_SEED", 1);
    for seed in first..first + number("WASMRUN_FAULT_SEEDS", SEEDS) {
        let Some(hosts) = Hosts::new() else { return };
        // Shown if it fails.
        println!("seed {seed}: WASMRUN_FAULT_SEED={seed} does the same");
        let mut random = Random::new(seed);
        let mut three = hosts.three();
        let driver = NAMES[(random.next() % 3) as usize];
        println!("driver {driver}");
        let detached = Detached::begin(&three, &[]);
        for begin in [Tree::start_large, Tree::start] {
            let mut tree = begin(three.node(driver));
            tree.wait_until_at(driver, 10);
            for _ in 0..FAULTS {
                if !tree.is_running() {
                    break;
                }
                disturb(&mut random, driver, &mut three, &hosts);
            }
            tree.ends_well();
        }
        three.meet();
        three.node(driver).none_has_failed();
        detached.ends_well(&three);
    }
}
