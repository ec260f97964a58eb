//! Who is below its minimum gets what a pause does not free from tasks that may be tried again.

use std::collections::BTreeMap;

use super::*;
use crate::random::Random;
use crate::resource::{Amount, ResourceName};
use crate::scheduler::stops::RUN_MIN;

const NODE: &str = r#"{"CPU": 8, "GPU": 2, "memory": 4}"#;
const ONE: &str = r#"{"CPU": 1, "memory": 1}"#;
const TWO: &str = r#"{"CPU": 1, "memory": 2}"#;
const NOTHING: [&str; 0] = [];

/// A task that may be tried again.
fn again(at: u8, asks: &str) -> TaskSpec {
    task(at, asks).terms(|terms| terms.retries = 1)
}

/// A node whose memory two tasks of A have, of which the second has begun 500 ms after the first; B is guaranteed half of it.
fn full() -> Harness {
    let mut it = Harness::local(NODE);
    it.set_tenant("B", r#"{"min_share": {"memory": 2}}"#);
    for at in 1..=2 {
        it.submit(again(at, TWO).tenant("A"));
        it.accept(at);
        it.wait(500);
    }
    it.wait(2_000);
    it
}

#[test]
fn what_has_run_for_the_shortest_time_is_stopped_and_tried_again() {
    let mut it = full();
    assert_eq!(it.submit(task(3, ONE).tenant("B")), ["preempt t2"]);
    // What it holds is nobody's before it has stopped.
    assert_eq!(it.phase(2), Phase::Running);
    let why = it.scheduler.why_preempted(&task_id(2), Attempt::FIRST);
    let why = why.expect("it is to stop").to_string();
    assert_eq!(why, "tenant B is below its guaranteed memory: 0 of 2");
    assert_eq!(it.preempted(2), ["retry t2 as 2", "start t3 on n0"]);
    it.accept(3);
    assert!(it.explain(2).contains(&format!(
        "it was stopped once and begun again, after 2.5s in all: {why}"
    )));
    // The retry that it has is still there.
    assert_eq!(it.finish(3), ["t3 finished", "start t2 on n0, attempt 2"]);
    it.accept(2);
    let failed = it.fail(2, FailureKind::Retryable);
    assert_eq!(failed, ["retry t2 as 3", "start t2 on n0, attempt 3"]);
    it.accept(2);
    assert_eq!(it.fail(2, FailureKind::Retryable), ["t2 failed"]);
    assert_eq!(it.scheduler.stops(&task_id(2)), None);
}

#[test]
fn nothing_is_stopped_that_may_not_be_tried_again() {
    let mut it = Harness::local(NODE);
    it.set_tenant("B", r#"{"min_share": {"memory": 2}}"#);
    it.submit(task(1, r#"{"memory": 4}"#).tenant("A"));
    it.accept(1);
    it.wait(5_000);
    assert_eq!(it.submit(task(2, ONE).tenant("B")), NOTHING);
    assert_eq!(it.wait(60_000), NOTHING);
}

#[test]
fn it_runs_for_a_while_before_and_for_longer_each_time() {
    let mut it = Harness::local(NODE);
    it.set_tenant("B", r#"{"min_share": {"memory": 2}}"#);
    it.submit(again(1, r#"{"CPU": 1, "memory": 4}"#).tenant("A"));
    it.accept(1);
    let mut least = RUN_MIN.as_millis() as u64;
    for at in 2..=5 {
        assert_eq!(it.submit(task(at, ONE).tenant("B")), NOTHING);
        assert_eq!(it.wait(least - 10), NOTHING);
        assert_eq!(it.wait(10), ["preempt t1"]);
        it.preempted(1);
        it.accept(at);
        it.finish(at);
        it.accept(1);
        least *= 2;
    }
    let stops = it.scheduler.stops(&task_id(1)).expect("it was stopped");
    assert_eq!((stops.times, stops.in_all), (4, Duration::from_secs(15)));
}

#[test]
fn nobody_comes_below_its_minimum() {
    let mut it = full();
    it.set_tenant("A", r#"{"min_share": {"memory": 3}}"#);
    assert_eq!(it.submit(task(3, ONE).tenant("B")), NOTHING);
    assert_eq!(it.wait(60_000), NOTHING);
    // Of nothing: what it holds besides counts too.
    it.set_tenant("A", r#"{"min_share": {"memory": 2, "CPU": 2}}"#);
    assert_eq!(it.wait(10), NOTHING);
    it.set_tenant("A", r#"{"min_share": {"memory": 2, "CPU": 1}}"#);
    assert_eq!(it.wait(10), ["preempt t2"]);
    it.preempted(2);
    it.accept(3);
    // A has all that it is guaranteed, and no more.
    it.submit(task(4, TWO).tenant("B"));
    assert_eq!(it.wait(60_000), NOTHING);
}

#[test]
fn who_is_not_guaranteed_it_waits() {
    let mut it = Harness::local(NODE);
    it.set_tenant("B", r#"{"min_share": {"CPU": 8}}"#);
    for at in 1..=2 {
        it.submit(again(at, TWO).tenant("A"));
        it.accept(at);
    }
    it.wait(5_000);
    assert_eq!(it.submit(task(3, ONE).tenant("B")), NOTHING);
    assert_eq!(it.wait(60_000), NOTHING);
}

#[test]
fn several_stop_for_one_and_nobody_takes_what_the_first_has_left() {
    let mut it = Harness::local(NODE);
    it.set_tenant("B", r#"{"min_share": {"GPU": 2}}"#);
    let half = r#"{"CPU": 1, "GPU": "0.5"}"#;
    for at in 1..=4 {
        it.submit(again(at, half).tenant("A"));
        it.accept(at);
    }
    it.submit(task(5, half).tenant("C"));
    it.wait(2_000);
    let large = task(6, r#"{"CPU": 1, "GPU": 1}"#).tenant("B");
    // It has just looked what there is for the other.
    assert_eq!(it.submit(large), NOTHING);
    let stopped = it.wait(10);
    assert_eq!(stopped.len(), 2, "{stopped:?}");
    let number = |it: &String| it["preempt t".len()..].parse::<u8>();
    let numbers = stopped.iter().map(|it| number(it).expect("a number"));
    let numbers: Vec<u8> = numbers.collect();
    let [first, second] = numbers[..] else {
        panic!("{numbers:?}");
    };
    assert_eq!(it.preempted(first), [format!("retry t{first} as 2")]);
    let then = it.preempted(second);
    assert_eq!(
        then[..2],
        [format!("retry t{second} as 2"), "start t6 on n0".into()]
    );
}

#[test]
fn a_paused_task_stops_where_its_memory_is_needed() {
    let mut it = Harness::local(r#"{"CPU": 1, "memory": 2}"#);
    it.set_tenant("B", r#"{"min_share": {"CPU": 1, "memory": 2}}"#);
    it.submit(again(1, r#"{"CPU": 1, "memory": 1}"#).tenant("A"));
    it.accept(1);
    it.wait(1_500);
    assert_eq!(it.submit(task(2, ONE).tenant("B")), ["pause t1"]);
    assert_eq!(it.pause(1), ["start t2 on n0"]);
    it.accept(2);
    it.wait(100);
    let more = task(3, r#"{"memory": 1}"#).tenant("B");
    assert_eq!(it.submit(more), NOTHING);
    assert_eq!(it.wait(10), ["preempt t1"]);
    assert_eq!(it.preempted(1), ["retry t1 as 2", "start t3 on n0"]);
}

#[test]
fn who_cannot_pause_in_time_is_stopped() {
    let mut it = Harness::local(r#"{"CPU": 1}"#);
    it.set_tenant("B", r#"{"min_share": {"CPU": 1}}"#);
    it.submit(again(1, r#"{"CPU": 1}"#).tenant("A"));
    it.accept(1);
    it.wait(5_000);
    assert_eq!(
        it.submit(task(2, r#"{"CPU": 1}"#).tenant("B")),
        ["pause t1"]
    );
    assert_eq!(it.wait(1_000), ["preempt t1"]);
    assert_eq!(it.preempted(1), ["retry t1 as 2", "start t2 on n0"]);
}

#[test]
fn one_that_ends_before_it_stops_has_ended() {
    let mut it = full();
    it.submit(task(3, ONE).tenant("B"));
    assert_eq!(it.finish(2), ["t2 finished", "start t3 on n0"]);
    // And one that nobody wants any more is not tried again.
    let mut it = full();
    it.submit(task(3, ONE).tenant("B"));
    assert_eq!(it.cancel(2), ["stop t2"]);
    assert_eq!(
        it.scheduler.why_preempted(&task_id(2), Attempt::FIRST),
        None
    );
    assert_eq!(it.preempted(2), ["t2 cancelled", "start t3 on n0"]);
}

#[test]
fn who_comes_after_one_that_was_cancelled_has_not_its_claim() {
    let mut it = full();
    it.submit(task(5, ONE).tenant("C"));
    it.submit(task(3, TWO).tenant("B"));
    assert_eq!(it.wait(10), ["preempt t2"]);
    assert_eq!(it.cancel(3), ["t3 cancelled"]);
    // It has the slot of that one, and is the first of a line of the same kind.
    let next = task(4, TWO).tenant("A").terms(|terms| terms.priority = 1);
    assert_eq!(it.submit(next), NOTHING);
    assert_eq!(it.preempted(2), ["retry t2 as 2", "start t5 on n0"]);
}

#[test]
fn what_fails_unasked_counts_as_a_retry() {
    let mut it = Harness::local(NODE);
    it.submit(again(1, ONE));
    it.accept(1);
    assert_eq!(
        it.preempted(1),
        ["retry t1 as 2", "start t1 on n0, attempt 2"]
    );
    it.accept(1);
    assert_eq!(it.preempted(1), ["t1 failed"]);
}

#[test]
fn a_task_of_another_node_goes_back_to_that() {
    let mut it = Harness::local(NODE);
    it.peer(1, 1, "{}");
    it.set_tenant("B", r#"{"min_share": {"memory": 2}}"#);
    let spec = again(1, r#"{"CPU": 1, "memory": 4}"#).tenant("A");
    // It was stopped twice there.
    let attempt = Attempt::new(0, 3);
    let hops = 1;
    it.message(
        1,
        Message::Place {
            spec,
            attempt,
            hops,
        },
    );
    it.accept(1);
    it.submit(task(2, ONE).tenant("B"));
    assert_eq!(it.wait(3_990), NOTHING);
    assert_eq!(it.wait(10), ["preempt t1"]);
    let back = ["n1: settled t1 3 HandedBack", "start t2 on n0"];
    assert_eq!(it.preempted(1), back);
}

#[test]
fn who_may_opt_out_is_not_stopped() {
    let opts_out = |at| {
        again(at, TWO)
            .tenant("A/x")
            .terms(|it| it.no_preempt = true)
    };
    let mut it = Harness::local(NODE);
    it.set_tenant("B", r#"{"min_share": {"CPU": 8, "memory": 2}}"#);
    let refused = it.submit(opts_out(1));
    assert!(
        refused[0]
            .starts_with("t1 failed: tasks of tenant A/x may not ask to be neither paused nor"),
        "{refused:?}"
    );
    let allows = r#"{"quota": {"no_preempt": true}}"#;
    it.set_tenant("A", allows);
    for at in 1..=2 {
        it.submit(opts_out(at));
        it.accept(at);
    }
    it.wait(5_000);
    assert_eq!(it.submit(task(3, ONE).tenant("B")), NOTHING);
    assert_eq!(it.submit(task(4, r#"{"CPU": 8}"#).tenant("B")), NOTHING);
    assert_eq!(it.wait(60_000), NOTHING);
    // When it may not any more, it is like others.
    it.set_tenant("A", "{}");
    assert_eq!(it.wait(10), ["preempt t2"]);
}

const TENANTS: [&str; 4] = ["A", "B", "B/x", "B/y"];
const STEP_MS: u64 = 50;
const RESOURCES: [ResourceName; 3] = [ResourceName::CPU, ResourceName::GPU, ResourceName::MEMORY];

/// A task of a random load.
struct Load {
    tenant: usize,
    duration_ms: u64,
    /// Since when it runs, and how much of it was left then.
    running: Option<(u64, u64)>,
    /// What is left of it while it is paused.
    left_ms: Option<u64>,
    asks: ResourceSet,
    stops: u32,
}

/// A random load on a random tree of tenants.
struct Play {
    it: Harness,
    seed: u64,
    random: Random,
    minima: [ResourceSet; 4],
    loads: BTreeMap<u8, Load>,
    repeated_ms: u64,
    said: Vec<String>,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let config = Config {
            accepts_all: true,
            ..local_config()
        };
        let mut it = Harness::with(config, &[r#"{"CPU": 4, "GPU": 2, "memory": 8}"#]);
        let minima = TENANTS.map(|tenant| {
            let most = if tenant.len() == 1 {
                [3, 2, 5]
            } else {
                [2, 2, 3]
            };
            let minimum = RESOURCES.into_iter().zip(most);
            let minimum: ResourceSet = minimum
                .map(|(name, most)| (name, Amount::units(random.below(most) as u32)))
                .collect();
            let config = TenantConfig {
                min_share: minimum.clone(),
                ..TenantConfig::default()
            };
            it.event(Event::SetTenant {
                tenant: tenant.parse().expect("a name"),
                config: config.into(),
            });
            minimum
        });
        Self {
            it,
            seed,
            random,
            minima,
            loads: BTreeMap::new(),
            repeated_ms: 0,
            said: Vec::new(),
        }
    }

    fn submit(&mut self, at: u8) {
        let random = &mut self.random;
        let asks = ResourceSet::new()
            .with(ResourceName::CPU, Amount::units(random.below(3) as u32))
            .with(
                ResourceName::GPU,
                ["0", "0", "0.5", "1"][random.below(4)]
                    .parse()
                    .expect("an amount"),
            )
            .with(
                ResourceName::MEMORY,
                Amount::units(1 + random.below(4) as u32),
            );
        let tenant = random.below(TENANTS.len());
        let duration_ms = STEP_MS * (1 + random.below(160)) as u64;
        let retries = random.below(3) as u32;
        let mut spec = task(at, "{}").tenant(TENANTS[tenant]);
        spec = spec.terms(|terms| terms.retries = retries);
        spec = spec.rule(|rule| {
            rule.alternatives = vec![Request::new(asks.clone()).expect("a request")];
        });
        self.loads.insert(
            at,
            Load {
                tenant,
                duration_ms,
                running: None,
                left_ms: None,
                asks,
                stops: 0,
            },
        );
        let words = self.it.submit(spec);
        self.hear(words);
    }

    /// What tasks hold now, of a tenant and all that are part of it.
    fn used(&self, of: usize) -> ResourceSet {
        let mut used = ResourceSet::new();
        let path = format!("{}/", TENANTS[of]);
        for load in self.loads.values() {
            let is_part = load.tenant == of || TENANTS[load.tenant].starts_with(&path);
            let mut held = load.asks.clone();
            match (load.running, load.left_ms) {
                (Some(_), _) => {}
                (None, Some(_)) => {
                    held.remove(&ResourceName::CPU);
                }
                (None, None) => continue,
            }
            if is_part {
                used.add(&held).expect("small amounts");
            }
        }
        used
    }

    /// One that was told to stop was not needed by its tenant to have its minimum, nor by those that it is part of, if
    /// what comes free does not go to those.
    fn check_minima(&self, stopped: &[u8]) {
        for (of, minimum) in self.minima.iter().enumerate() {
            let path = format!("{}/", TENANTS[of]);
            let is_part =
                |load: &Load| load.tenant == of || TENANTS[load.tenant].starts_with(&path);
            let mut left = self.used(of);
            let mut given = ResourceSet::new();
            for at in stopped {
                let load = &self.loads[at];
                if is_part(load) {
                    let mut held = load.asks.clone();
                    if load.left_ms.is_some() {
                        held.remove(&ResourceName::CPU);
                    }
                    given.add(&held).expect("small amounts");
                }
            }
            left.subtract(&given).expect("it was used");
            // Only at the leaves it is clear that nobody of the same gets it.
            let is_leaf = of != 1;
            for (name, _) in given.iter().filter(|_| is_leaf) {
                let (left, minimum) = (left.get(name), minimum.get(name));
                assert!(
                    left >= minimum,
                    "seed {}: {}: {name} {left}",
                    self.seed,
                    TENANTS[of]
                );
            }
        }
    }

    fn hear(&mut self, words: Vec<String>) {
        let (mut paused, mut stopped) = (Vec::new(), Vec::new());
        let now = self.it.now_ms;
        for word in &words {
            let mut parts = word.split(' ');
            let (Some(what), Some(id)) = (parts.next(), parts.next()) else {
                continue;
            };
            let Some(at) = id.strip_prefix('t').and_then(|it| it.parse::<u8>().ok()) else {
                continue;
            };
            let Some(load) = self.loads.get_mut(&at) else {
                continue;
            };
            match what {
                "start" => load.running = Some((now, load.duration_ms)),
                "resume" => {
                    let left = load.left_ms.take().expect("it was paused");
                    load.running = Some((now, left));
                }
                "pause" => paused.push(at),
                "preempt" => {
                    load.stops += 1;
                    stopped.push(at);
                }
                _ => {}
            }
        }
        self.check_minima(&stopped);
        self.said.extend(words);
        for at in paused {
            let load = self.loads.get_mut(&at).expect("it is there");
            let (since, left) = load.running.take().expect("it runs");
            load.left_ms = Some(left - (now - since));
            let words = self.it.pause(at);
            self.hear(words);
        }
        for at in stopped {
            self.stop(at);
        }
    }

    /// One stops at once, to be tried again.
    fn stop(&mut self, at: u8) {
        let load = self.loads.get_mut(&at).expect("it is there");
        let left = match (load.running.take(), load.left_ms.take()) {
            (Some((since, left)), _) => left - (self.it.now_ms - since),
            (None, Some(left)) => left,
            (None, None) => panic!("seed {}: t{at} does not run", self.seed),
        };
        let ran_ms = load.duration_ms - left;
        let least = RUN_MIN.as_millis() as u64 * (1 << (load.stops - 1));
        assert!(
            ran_ms >= least,
            "seed {}: t{at} has run for {ran_ms}",
            self.seed
        );
        self.repeated_ms += ran_ms;
        let words = self.it.preempted(at);
        self.hear(words);
    }

    fn step(&mut self) {
        let words = self.it.wait(STEP_MS);
        self.hear(words);
        for at in self.loads.keys().copied().collect::<Vec<u8>>() {
            let running = self.loads.get(&at).and_then(|it| it.running);
            if running.is_some_and(|(since, left)| since + left <= self.it.now_ms) {
                self.loads.remove(&at);
                let words = self.it.finish(at);
                self.hear(words);
            }
        }
    }
}

/// Plays a random load to its end, and returns all that happened.
fn play(seed: u64) -> Vec<String> {
    let mut play = Play::new(seed);
    let mut work_ms = 0;
    let mut comes: Vec<(u64, u8)> = (0..30)
        .map(|at| (STEP_MS * play.random.below(80) as u64, at))
        .collect();
    comes.sort_unstable();
    let mut comes = comes.into_iter().peekable();
    let mut most_ms = 0;
    while comes.peek().is_some() || !play.loads.is_empty() {
        let now = play.it.now_ms;
        assert!(now < 3_600_000, "seed {seed}: not all come to their end");
        while let Some((_, at)) = comes.next_if(|(ms, _)| *ms <= now) {
            play.submit(at);
            let duration = play.loads.get(&at).map_or(0, |it| it.duration_ms);
            work_ms += duration;
            // Stops come after 1, 2, 4, … seconds of what is less than the whole.
            most_ms += duration * u64::from((duration / 1_000 + 1).ilog2() + 1);
        }
        play.step();
    }
    assert!(
        play.repeated_ms <= most_ms,
        "seed {seed}: {} ms of {work_ms} ms are repeated",
        play.repeated_ms
    );
    let tenants = play.it.scheduler.tenants();
    let counted: u64 = tenants
        .iter()
        .map(|(_, tenant)| tenant.counters().repeated_us / 1_000)
        .sum();
    assert_eq!(counted, play.repeated_ms, "seed {seed}");
    play.said
}

#[test]
fn random_loads_come_to_their_end_and_repeat_little() {
    let mut stops = 0;
    for seed in 0..20 {
        let said = play(seed);
        assert_eq!(said, play(seed), "the same seed gives another trace");
        stops += said.iter().filter(|it| it.starts_with("preempt")).count();
    }
    assert!(stops > 0, "none was stopped");
}
