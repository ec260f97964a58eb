//! Between tenants.

use super::*;
use crate::fairness::Policy;

/// Submits tasks 0..20 of A and 100..120 of B in turns, on a node that something else fills, and
/// returns how many of each run once it is free.
fn shares(config: Config, settings: &[(&str, &str)], has: &str, asks: [&str; 2]) -> (usize, usize) {
    let mut it = Harness::with(config, &[has]);
    for (name, json) in settings {
        it.set_tenant(name, json);
    }
    it.submit(task(250, has).tenant("filler"));
    for at in 0..20 {
        it.submit(task(at, asks[0]).tenant("A"));
        it.submit(task(100 + at, asks[1]).tenant("B"));
    }
    let started = it.finish(250);
    let of_a = started
        .iter()
        .skip(1)
        .filter(|text| text.len() < "start t100 on n0".len());
    let of_a = of_a.count();
    (of_a, started.len() - 1 - of_a)
}

const BOTH: [&str; 2] = [r#"{"CPU": 1, "memory": 4}"#, r#"{"CPU": 3, "memory": 1}"#];
const WORKED: &str = r#"{"CPU": 9, "memory": 18}"#;

#[test]
fn dominant_shares_worked_case() {
    assert_eq!(shares(local_config(), &[], WORKED, BOTH), (3, 2));
}

#[test]
fn tasks_of_some_tenants_are_counted() {
    let mut it = Harness::with(local_config(), &[r#"{"CPU": 2}"#]);
    let one = r#"{"CPU": 1}"#;
    it.submit(task(1, one).tenant("A"));
    it.submit(task(2, one).tenant("A/x"));
    it.submit(task(3, one).tenant("B"));
    it.finish(1);
    it.cancel(3);
    let counts = |it: &Harness, of: &str| {
        let counts = it.scheduler.counts_of(|name| name.as_str().starts_with(of));
        let live = counts.iter().filter(|(phase, _)| !phase.is_terminal());
        let live: u64 = live.map(|(_, tasks)| tasks).sum();
        let ended = [Phase::Finished, Phase::Cancelled].map(|phase| {
            let found = counts.iter().find(|(it, _)| *it == phase);
            found.map(|(_, tasks)| *tasks)
        });
        (live, ended)
    };
    let live_of_b = counts(&it, "B").0;
    assert_eq!(counts(&it, "A"), (1, [Some(1), Some(0)]));
    assert_eq!(
        counts(&it, ""),
        (1 + live_of_b, [Some(1), Some(1 - live_of_b)])
    );
    assert_eq!(counts(&it, "C"), (0, [Some(0), Some(0)]));
}

#[test]
fn weights() {
    let one = [r#"{"CPU": 1}"#; 2];
    let weight = [("A", r#"{"weight": 3}"#)];
    let has = r#"{"CPU": 12}"#;
    assert_eq!(shares(local_config(), &weight, has, one), (9, 3));
    assert_eq!(shares(local_config(), &[], has, one), (6, 6));
}

#[test]
fn guarantees() {
    let one = [r#"{"CPU": 1}"#; 2];
    let settings = [("B", r#"{"min_share": {"CPU": 9}}"#)];
    assert_eq!(
        shares(local_config(), &settings, r#"{"CPU": 12}"#, one),
        (3, 9)
    );
}

#[test]
fn fair_looks_at_memory_alone() {
    let config = Config {
        settings: Settings::default().with(Setting::Policy(Policy::Fair)),
        ..local_config()
    };
    let asks = [r#"{"CPU": 1, "memory": 1}"#, r#"{"CPU": 1, "memory": 3}"#];
    let has = r#"{"CPU": 40, "memory": 12}"#;
    assert_eq!(shares(config, &[], has, asks), (6, 2));
}

#[test]
fn fifo_looks_at_nobody() {
    let config = Config {
        settings: Settings::default().with(Setting::Policy(Policy::Fifo)),
        ..local_config()
    };
    let one = [r#"{"CPU": 1}"#; 2];
    let weight = [("A", r#"{"weight": 3}"#)];
    assert_eq!(shares(config, &weight, r#"{"CPU": 12}"#, one), (6, 6));
}

#[test]
fn the_policy_changes_in_the_middle() {
    const ONE: &str = r#"{"CPU": 1}"#;
    let mut it = Harness::local(r#"{"CPU": 4}"#);
    for at in 1..=3 {
        it.submit(task(at, ONE).tenant("A"));
    }
    it.submit(task(4, ONE).tenant("B"));
    it.accept(1);
    it.block(1);
    it.submit(task(5, ONE).tenant("B"));
    it.submit(task(6, ONE).tenant("A"));
    it.submit(task(7, ONE).tenant("B"));
    it.submit(task(8, ONE).tenant("C"));
    it.unblock(1);
    // By shares C is first.
    assert_eq!(it.finish(4), ["t4 finished", "start t8 on n0"]);
    it.event(Event::Configure(
        Settings::default()
            .with(Setting::Policy(Policy::Fifo))
            .into(),
    ));
    // Now it is who waits for its CPU, then the order of submission.
    assert_eq!(it.finish(8), ["t8 finished", "resume t1"]);
    assert_eq!(it.finish(2), ["t2 finished", "start t6 on n0"]);
    it.event(Event::Configure(Settings::default().into()));
    assert_eq!(it.finish(3), ["t3 finished", "start t7 on n0"]);
}

#[test]
fn what_runs_elsewhere_counts() {
    let one = r#"{"CPU": 1}"#;
    let mut it = Harness::local(one);
    it.submit(task(1, one));
    it.submit(task(2, one).tenant("A").strategy("node:n0"));
    it.submit(task(3, one).tenant("B").strategy("node:n0"));
    let usage = [(
        "A".parse().expect("a name"),
        serde_json::from_str(r#"{"CPU": 3}"#).expect("it"),
    )];
    it.event(Event::PeerView {
        node: info(1, 1, ""),
        view: Box::new(PeerView {
            version: 1,
            resources: resources(r#"{"CPU": 3}"#).report(),
            queue: QueueReport::default(),
            usage: usage.into(),
        }),
    });
    assert_eq!(it.finish(1), ["t1 finished", "start t3 on n0"]);
}
