//! Who is due CPU gets it from tasks that run.

use std::collections::BTreeMap;

use super::*;
use crate::random::Random;
use crate::scheduler::preempt::{PATIENCE, RUN_MIN};

const ONE: &str = r#"{"CPU": 1}"#;
const TWO: &str = r#"{"CPU": 2}"#;
const NOTHING: [&str; 0] = [];

/// A node of two CPUs on which two tasks of A have run for long enough, and a third waits; and what B is due.
fn full(of_b: &str) -> Harness {
    let mut it = Harness::local(TWO);
    it.set_tenant("B", of_b);
    for at in 1..=3 {
        it.submit(task(at, ONE).tenant("A"));
    }
    it.accept(1);
    it.accept(2);
    it.now_ms += 100;
    it
}

const MIN: &str = r#"{"min_share": {"CPU": 1}}"#;

#[test]
fn who_is_below_its_minimum_gets_the_cpu_of_who_started_last() {
    let mut it = full(MIN);
    assert_eq!(it.submit(task(4, ONE).tenant("B")), ["pause t2"]);
    // Its CPU is nobody's before it has stopped.
    assert_eq!(it.phase(2), Phase::Running);
    assert_eq!(it.pause(2), ["start t4 on n0"]);
    assert_eq!(it.wait(2_000), NOTHING);
    let told = it.explain(2);
    let says =
        "paused: tenant B is below its guaranteed CPU: 0 of 1\n  it was paused once, for 2s in all";
    assert!(told.contains(says), "{told}");
    // It goes on before its tenant's new ones.
    assert_eq!(it.finish(4), ["t4 finished", "resume t2"]);
    assert!(it.explain(2).contains("it was paused once, for 2s in all"));
    assert_eq!(it.finish(2), ["t2 finished", "start t3 on n0"]);
    assert_eq!(it.scheduler.pauses(&task_id(2)), None);
}

#[test]
fn nothing_is_paused_before_it_has_run_for_a_while() {
    let mut it = full(MIN);
    it.now_ms -= 50;
    assert_eq!(it.submit(task(4, ONE).tenant("B")), NOTHING);
    assert_eq!(
        it.scheduler.poll_timeout().map(Instant::as_micros),
        Some(100_000)
    );
    assert_eq!(it.wait(50), ["pause t2"]);
    it.pause(2);
    assert_eq!(it.finish(4), ["t4 finished", "resume t2"]);
    // The other one has run for longer.
    it.now_ms += 10;
    assert_eq!(it.submit(task(5, ONE).tenant("B")), ["pause t1"]);
}

#[test]
fn nobody_is_paused_whose_tenant_has_no_more_than_its_minimum() {
    let mut it = full(MIN);
    it.set_tenant("A", r#"{"min_share": {"CPU": 2}}"#);
    assert_eq!(it.submit(task(4, ONE).tenant("B")), NOTHING);
    assert_eq!(it.wait(60_000), NOTHING);
    it.set_tenant("A", r#"{"min_share": {"CPU": 1}}"#);
    assert_eq!(it.wait(10), ["pause t2"]);
    it.pause(2);
    // What B has by now is all that it is due.
    it.submit(task(5, ONE).tenant("B"));
    assert_eq!(it.wait(60_000), NOTHING);
}

#[test]
fn who_has_no_cpu_gets_its_share_after_a_while() {
    let mut it = full("{}");
    assert_eq!(it.submit(task(4, ONE).tenant("B")), NOTHING);
    it.submit(task(5, ONE).tenant("B"));
    let patience = PATIENCE.as_millis() as u64;
    assert_eq!(it.wait(patience - 10), NOTHING);
    assert_eq!(it.wait(10), ["pause t1"]);
    assert_eq!(it.pause(1), ["start t4 on n0"]);
    it.accept(4);
    assert!(
        it.explain(1)
            .contains("tenant B had no CPU, and tenant A more than its share")
    );
    // Each has its part.
    assert_eq!(it.wait(60_000), NOTHING);
}

#[test]
fn tenants_take_turns_where_there_are_fewer_cpus() {
    let mut it = Harness::local(ONE);
    for (at, tenant) in [(1, "A"), (2, "B"), (3, "C")] {
        it.submit(task(at, ONE).tenant(tenant));
    }
    it.accept(1);
    let mut turns = Vec::new();
    let mut running = 1;
    for _ in 0..9 {
        assert_eq!(it.wait(1_000), [format!("pause t{running}")]);
        let next = it.pause(running).remove(0);
        running = (1..=3)
            .find(|at| next.contains(&format!(" t{at}")))
            .expect("one of them");
        if next.starts_with("start") {
            it.accept(running);
        }
        turns.push(running);
    }
    for at in 1..=3 {
        let times = turns.iter().filter(|turn| **turn == at).count();
        assert!(times >= 2, "{turns:?}");
    }
}

#[test]
fn those_who_pause_for_one_task_give_their_cpus_back_together() {
    let mut it = full(r#"{"min_share": {"CPU": 2}}"#);
    let large = task(4, TWO).tenant("B");
    assert_eq!(it.submit(large), ["pause t2", "pause t1"]);
    assert_eq!(it.pause(2), NOTHING);
    assert_eq!(it.wait(500), NOTHING);
    assert_eq!(it.pause(1), ["start t4 on n0"]);
    assert_eq!(it.finish(4), ["t4 finished", "resume t1", "resume t2"]);
}

#[test]
fn nobody_waits_for_long_for_one_that_cannot_pause_now() {
    let mut it = full(r#"{"min_share": {"CPU": 2}}"#);
    it.submit(task(4, TWO).tenant("B"));
    it.pause(2);
    assert_eq!(it.wait(1_000), ["resume t2"]);
    assert_eq!(it.wait(60_000), NOTHING);
    // It comes back, for nothing.
    assert_eq!(it.pause(1), ["resume t1"]);
    it.now_ms += 100;
    assert_eq!(it.wait(0), ["pause t1", "pause t2"]);
}

#[test]
fn whole_cpus_come_free_where_parts_were_held() {
    let half = r#"{"CPU": "0.5"}"#;
    let mut it = Harness::local(TWO);
    it.set_tenant("B", MIN);
    for at in 1..=4 {
        it.submit(task(at, half).tenant("A"));
        it.accept(at);
    }
    it.now_ms += 100;
    let paused = it.submit(task(5, ONE).tenant("B"));
    assert_eq!(paused, ["pause t4", "pause t3"]);
    it.pause(3);
    assert_eq!(it.pause(4), ["start t5 on n0"]);
}

#[test]
fn who_has_waited_for_others_gets_its_cpu_again() {
    let mut it = Harness::local(ONE);
    it.set_tenant("B", MIN);
    it.submit(task(1, ONE).tenant("B"));
    it.accept(1);
    it.block(1);
    assert_eq!(it.submit(task(2, ONE).tenant("A")), ["start t2 on n0"]);
    it.accept(2);
    it.now_ms += 100;
    assert_eq!(it.unblock(1), ["pause t2"]);
    assert_eq!(it.pause(2), ["resume t1"]);
}

#[test]
fn one_that_waits_or_ends_need_not_pause() {
    let mut it = full(MIN);
    it.submit(task(4, ONE).tenant("B"));
    assert_eq!(it.block(2), ["start t4 on n0"]);
    it.unblock(2);
    // It was told, and has heard of it too late.
    it.pause(2);
    assert!(it.explain(2).contains("its CPU on node n0, to go on"));
    it.submit(task(5, ONE).tenant("B"));
    assert_eq!(it.cancel(1), ["stop t1"]);
    let ended = it.fail(1, FailureKind::Final);
    assert_eq!(ended[0], "t1 cancelled");
}

#[test]
fn what_a_pause_does_not_free_is_not_taken() {
    let has = r#"{"CPU": 2, "memory": 2}"#;
    let asks = r#"{"CPU": 1, "memory": 1}"#;
    let mut it = Harness::local(has);
    it.set_tenant("B", r#"{"min_share": {"CPU": 1, "memory": 1}}"#);
    for at in 1..=2 {
        it.submit(task(at, asks).tenant("A"));
        it.accept(at);
    }
    it.now_ms += 100;
    assert_eq!(it.submit(task(3, asks).tenant("B")), NOTHING);
    assert_eq!(it.wait(60_000), NOTHING);
    assert_eq!(it.submit(task(4, ONE).tenant("B")), NOTHING);
    assert_eq!(it.wait(10), ["pause t2"]);
}

#[test]
fn actors_keep_their_cpu() {
    let mut it = Harness::local(ONE);
    it.set_tenant("B", MIN);
    let mut actor = task(1, ONE).tenant("A");
    actor.kind = TaskKind::Actor(actor_id(1));
    it.submit(actor);
    it.accept(1);
    it.now_ms += 100;
    assert_eq!(it.submit(task(2, ONE).tenant("B")), NOTHING);
    assert_eq!(it.wait(60_000), NOTHING);
}

#[test]
fn a_minimum_is_not_taken_from_what_is_part_of_it() {
    let mut it = Harness::local(TWO);
    it.set_tenant("org", r#"{"min_share": {"CPU": 4}}"#);
    for at in 1..=2 {
        it.submit(task(at, ONE).tenant("org/x"));
        it.accept(at);
    }
    it.now_ms += 100;
    // org has 2 of 4, in all of its subtree.
    assert_eq!(it.submit(task(3, ONE).tenant("org/y")), NOTHING);
    assert_eq!(it.wait(900), NOTHING);
    // But y is due a part of what org has.
    assert_eq!(it.wait(100), ["pause t1"]);
    assert_eq!(it.pause(1), ["start t3 on n0"]);
    it.accept(3);
    let says = "tenant org/y had no CPU, and tenant org/x more than its share";
    assert!(it.explain(1).contains(says));
    assert_eq!(it.wait(60_000), NOTHING);
}

#[test]
fn those_whom_no_pause_helps_do_not_hide_others() {
    let both = r#"{"CPU": 1, "GPU": 1}"#;
    let mut it = Harness::local(r#"{"CPU": 2, "GPU": 1}"#);
    it.submit(task(1, both).tenant("A"));
    it.submit(task(2, ONE).tenant("A"));
    it.accept(1);
    it.accept(2);
    for at in 10..50 {
        it.submit(task(at, both).tenant(&format!("G{at}")));
    }
    it.wait(10);
    it.submit(task(3, ONE).tenant("Z"));
    let mut said = Vec::new();
    for _ in 0..120 {
        said.extend(it.wait(10));
    }
    assert_eq!(said, ["pause t1"]);
    assert_eq!(it.pause(1), ["start t3 on n0"]);
    it.accept(3);
    // All were looked at in vain by then: it does not look again and again.
    for _ in 0..10 {
        assert_eq!(it.wait(10), NOTHING);
    }
    assert_eq!(it.scheduler.preempts_at(), None);
}

#[test]
fn who_has_come_to_its_quota_meanwhile_does_not_go_on() {
    let mut it = Harness::local(TWO);
    let due = r#"{"min_share": {"CPU": 2}, "quota": {"max": {"CPU": 2}}}"#;
    it.set_tenant("B", due);
    it.submit(task(1, ONE).tenant("B"));
    it.accept(1);
    it.block(1);
    for at in 2..=3 {
        it.submit(task(at, ONE).tenant("A"));
        it.accept(at);
    }
    it.now_ms += 100;
    assert_eq!(it.unblock(1), ["pause t3"]);
    it.elsewhere(1, "B", r#"{"CPU": 2}"#);
    assert_eq!(it.pause(3), ["resume t3"]);
    assert_eq!(it.elsewhere(2, "B", r#"{"CPU": 1}"#), NOTHING);
    assert_eq!(it.finish(2), ["t2 finished", "resume t1"]);
}

/// A look at 1,000 lines takes a millisecond or more, under the lock of the node.
#[test]
fn of_many_tenants_it_is_looked_less_often_who_is_due() {
    let mut it = Harness::local(ONE);
    it.submit(task(0, ONE).tenant("A"));
    it.accept(0);
    for number in 0..1_000 {
        let mut spec = task(0, ONE).tenant(&format!("t{number}"));
        spec.id = driver_id(1).task(number);
        it.scheduler.handle(Instant::ZERO, Event::Submit(spec));
    }
    let looks = looks_of(|| {
        for ms in 1..90 {
            let now = Instant::ZERO + Duration::from_millis(10 * ms);
            it.scheduler.handle(now, Event::Tick);
        }
    });
    assert!((5_000..20_000).contains(&looks), "{looks}");
}

/// So does one at 1,000 tasks that run, of which none can be stopped.
#[test]
fn of_many_tasks_that_run_it_is_looked_less_often_who_can_stop() {
    let config = Config {
        accepts_all: true,
        ..local_config()
    };
    let mut it = Harness::with(config, &[r#"{"memory": 1000}"#]);
    it.set_tenant("B", r#"{"min_share": {"memory": 1}}"#);
    let memory = r#"{"memory": 1}"#;
    for number in 0..1_000 {
        let mut spec = task(0, memory).tenant("A");
        spec.id = driver_id(1).task(number);
        it.scheduler.handle(Instant::ZERO, Event::Submit(spec));
    }
    it.submit(task(0, memory).tenant("B"));
    let looks = looks_of(|| {
        for ms in 1..90 {
            let now = Instant::ZERO + Duration::from_millis(10 * ms);
            it.scheduler.handle(now, Event::Tick);
        }
    });
    assert!((5_000..50_000).contains(&looks), "{looks}");
}

#[test]
fn it_can_be_switched_off() {
    let mut it = full(MIN);
    let off = Settings::default().with(Setting::Preemption(false));
    it.event(Event::Configure(off.into()));
    assert_eq!(it.submit(task(4, ONE).tenant("B")), NOTHING);
    assert_eq!(it.wait(60_000), NOTHING);
    it.event(Event::Configure(Settings::default().into()));
    assert_eq!(it.wait(10), ["pause t2"]);
}

/// A task of A of this priority.
fn of(at: u8, priority: i32) -> TaskSpec {
    let task = task(at, ONE).tenant("A");
    task.terms(|terms| terms.priority = priority)
}

#[test]
fn a_task_of_higher_priority_gets_the_cpu_of_a_lower_one_after_a_while() {
    let mut it = Harness::local(TWO);
    for (at, priority) in [(1, -1), (2, 0)] {
        it.submit(of(at, priority));
        it.accept(at);
    }
    it.wait(500);
    assert_eq!(it.submit(of(3, 5)), NOTHING);
    it.submit(of(4, 0));
    let patience = PATIENCE.as_millis() as u64;
    assert_eq!(it.wait(patience - 10), NOTHING);
    assert_eq!(it.wait(10), ["pause t1"]);
    assert_eq!(it.pause(1), ["start t3 on n0"]);
    it.accept(3);
    let says = "paused: a task of priority 5 of the same tenant waited";
    assert!(it.explain(1).contains(says));
    // One of higher priority that comes later does not wait for it.
    it.submit(of(5, 1));
    assert_eq!(it.finish(3), ["t3 finished", "start t5 on n0"]);
    it.accept(5);
    // None of equal priority gives way: nobody is paused for t4, and t1 waits for its turn.
    assert_eq!(it.wait(60_000), NOTHING);
    assert_eq!(it.finish(5), ["t5 finished", "start t4 on n0"]);
    it.accept(4);
    assert_eq!(it.finish(2), ["t2 finished", "resume t1"]);
}

#[test]
fn of_another_tenant_priority_is_nothing() {
    let mut it = Harness::local(TWO);
    for at in 1..=2 {
        it.submit(of(at, -1));
        it.accept(at);
    }
    it.submit(task(3, ONE).tenant("B"));
    it.wait(2_000);
    it.pause(1);
    it.accept(3);
    let high = task(4, ONE).tenant("B").terms(|terms| terms.priority = 9);
    it.submit(high);
    // B has its part.
    assert_eq!(it.wait(900), NOTHING);
    // But its own are of lower priority.
    assert_eq!(it.wait(100), ["pause t3"]);
}

/// A task of a random load.
struct Load {
    left_ms: u64,
    /// Since when it runs, if it does.
    since: Option<u64>,
    /// When it pauses, if it was told to.
    pauses_at: Option<u64>,
}

/// Plays a random load to its end, and returns all that happened.
fn play(seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let config = Config {
        accepts_all: true,
        ..local_config()
    };
    let mut it = Harness::with(config, &[r#"{"CPU": 3}"#]);
    let names = ["A", "B", "C"];
    for (tenant, min) in names.into_iter().zip([0, 1, 1 + random.below(2)]) {
        let json = format!(r#"{{"min_share": {{"CPU": {min}}}}}"#);
        it.set_tenant(tenant, &json);
    }
    let mut loads: BTreeMap<u8, Load> = BTreeMap::new();
    let (mut said, mut pauses, mut work_ms) = (Vec::new(), 0, 0);
    let mut comes: Vec<(u64, u8)> = (0..30)
        .map(|at| (20 * random.below(100) as u64, at))
        .collect();
    comes.sort_unstable();
    let mut comes = comes.into_iter().peekable();
    while comes.peek().is_some() || !loads.is_empty() {
        assert!(
            it.now_ms < 600_000,
            "seed {seed}: not all come to their end"
        );
        let mut words = it.wait(20);
        while let Some((_, at)) = comes.next_if(|(ms, _)| *ms <= it.now_ms) {
            let tenant = names[random.below(3)];
            let asks = ["0.5", "1", "1", "2"][random.below(4)];
            let left_ms = 20 * (1 + random.below(100)) as u64;
            work_ms += left_ms;
            let (since, pauses_at) = (None, None);
            loads.insert(
                at,
                Load {
                    left_ms,
                    since,
                    pauses_at,
                },
            );
            let asks = format!(r#"{{"CPU": "{asks}"}}"#);
            words.extend(it.submit(task(at, &asks).tenant(tenant)));
        }
        for at in loads.keys().copied().collect::<Vec<u8>>() {
            let load = loads.get_mut(&at).expect("it is there");
            if load.since.is_none() {
                continue;
            }
            if load.pauses_at.is_some_and(|ms| ms <= it.now_ms) {
                (load.since, load.pauses_at) = (None, None);
                words.extend(it.pause(at));
                continue;
            }
            load.left_ms = load.left_ms.saturating_sub(20);
            if load.left_ms == 0 {
                loads.remove(&at);
                words.extend(it.finish(at));
            }
        }
        for word in &words {
            let mut parts = word.split(' ');
            let (Some(what @ ("start" | "resume" | "pause")), Some(id)) =
                (parts.next(), parts.next())
            else {
                continue;
            };
            let at: u8 = id[1..].parse().expect("a number");
            let Some(load) = loads.get_mut(&at) else {
                continue;
            };
            match what {
                "pause" => {
                    let since = load.since.expect("only what runs is told to pause");
                    let ran = Duration::from_millis(it.now_ms - since);
                    assert!(ran >= RUN_MIN, "seed {seed}: t{at} has run for {ran:?}");
                    pauses += 1;
                    load.pauses_at = Some(it.now_ms + 20 * random.below(5) as u64);
                }
                _ => load.since = Some(it.now_ms),
            }
        }
        said.extend(words);
    }
    let most = work_ms / RUN_MIN.as_millis() as u64;
    assert!(pauses <= most, "seed {seed}: {pauses} pauses");
    said
}

#[test]
fn random_loads_come_to_their_end() {
    for seed in 0..20 {
        let said = play(seed);
        assert_eq!(said, play(seed), "the same seed gives another trace");
    }
}
