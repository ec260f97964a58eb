//! Under quotas.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::fairness::TenantName;
use crate::group::{GroupKind, GroupSpec};
use crate::id::GroupId;

const ONE: &str = r#"{"CPU": 1}"#;

impl Harness {
    fn quota(&mut self, tenant: &str, json: &str) -> Vec<String> {
        self.set_tenant(tenant, &format!("{{\"quota\": {json}}}"))
    }

    /// Node n1, which has nothing, says what a tenant uses there.
    pub(super) fn elsewhere(&mut self, version: u64, tenant: &str, used: &str) -> Vec<String> {
        let used = serde_json::from_str(used).expect("amounts");
        let usage = BTreeMap::from([(tenant.parse().expect("a name"), used)]);
        self.tells(version, usage)
    }

    fn tells(&mut self, version: u64, usage: BTreeMap<TenantName, ResourceSet>) -> Vec<String> {
        self.event(Event::PeerView {
            node: info(1, 1, ""),
            view: Box::new(PeerView {
                version,
                resources: resources("{}").report(),
                queue: QueueReport::default(),
                usage,
            }),
        })
    }
}

#[test]
fn who_is_at_a_quota_waits_and_others_go_on() {
    let mut it = Harness::local(r#"{"CPU": 8}"#);
    it.quota("a", r#"{"max": {"CPU": 2}}"#);
    assert_eq!(it.submit(task(1, ONE).tenant("a/x")), ["start t1 on n0"]);
    assert_eq!(it.submit(task(2, ONE).tenant("a/y")), ["start t2 on n0"]);
    assert!(it.submit(task(3, ONE).tenant("a/x")).is_empty());
    let text = it.explain(3);
    let says = "it waits for room: tenant a is at its quota: CPU 2 of 2";
    assert!(text.contains(says), "{text}");
    // Who does not have a hears nothing of what it uses.
    let explanation = it.scheduler.explain(&task_id(3)).expect("a live task");
    let text = explanation
        .seen_by(|tenant| tenant.as_str() == "a/x")
        .to_string();
    let says = "it waits for room: tenant a is at its quota";
    assert!(text.lines().any(|line| line.ends_with(says)), "{text}");
    // Of the same class, and behind it.
    assert!(it.submit(task(4, ONE).tenant("a")).is_empty());
    assert_eq!(it.submit(task(5, ONE).tenant("b")), ["start t5 on n0"]);
    // What a itself runs is beside what x does, and less.
    assert_eq!(it.finish(2), ["t2 finished", "start t4 on n0"]);
    assert_eq!(it.quota("a", "{}"), ["start t3 on n0"]);
}

#[test]
fn a_group_that_waits_says_nothing_of_what_a_tenant_above_uses() {
    let mut it = Harness::local(r#"{"CPU": 8}"#);
    it.quota("a", r#"{"max": {"CPU": 2}}"#);
    it.submit(task(1, r#"{"CPU": 2}"#).tenant("a/y"));
    let mut why = |tenant: &str, number| {
        let group = GroupId::of(node_id(0), [number; 8]);
        let spec = GroupSpec::new(GroupKind::Pack, vec![request(ONE)]).expect("a group");
        let tenant = tenant.parse().expect("a name");
        it.event(Event::CreateGroup {
            group,
            spec,
            tenant,
        });
        let view = it.scheduler.group(&group).expect("a group");
        view.why.expect("it waits")
    };
    assert_eq!(why("a/x", 7), "tenant a is at its quota");
    assert_eq!(why("a", 8), "tenant a is at its quota: CPU 2 of 2");
}

#[test]
fn what_a_quota_never_allows_is_refused() {
    let mut it = Harness::local(r#"{"CPU": 8}"#);
    it.quota("a", r#"{"max": {"CPU": 2}}"#);
    let two = task(1, r#"{"CPU": 3}"#).tenant("a/x");
    let smaller = two
        .clone()
        .rule(|rule| rule.alternatives.push(request(ONE)));
    let refused = it.submit(two);
    assert!(refused[0].starts_with("t1 failed: the quota of tenant a is CPU 2 at once"));
    // A variant that fits will do, and only that.
    assert_eq!(it.submit(smaller), ["start t1 on n0"]);
    let assignment = it.scheduler.assignment(&task_id(1)).expect("it runs");
    assert_eq!(assignment.alternative, 1);
    // What waits goes on to wait when the quota has become too small for it.
    assert!(it.submit(task(2, r#"{"CPU": 2}"#).tenant("a")).is_empty());
    it.quota("a", r#"{"max": {"CPU": 1}}"#);
    assert!(it.explain(2).contains("CPU 1 of 1"));
    it.finish(1);
    assert!(it.explain(2).contains("CPU 0 of 1, and it asks for 2"));
}

#[test]
fn sandboxes_and_tasks_that_wait_are_counted() {
    let mut it = Harness::local(r#"{"CPU": 8}"#);
    it.quota("a", r#"{"max_tasks": 1, "max_waiting": 1}"#);
    let tenant = "a/x".parse().expect("a name");
    it.submit(task(1, ONE).tenant("a/x"));
    assert!(it.scheduler.may_wait(&tenant).is_ok());
    assert!(it.submit(task(2, ONE).tenant("a/y")).is_empty());
    assert!(
        it.explain(2)
            .contains("tenant a is at its quota: 1 of 1 sandboxes")
    );
    assert!(it.scheduler.may_wait(&tenant).is_err());
    // One that waits for others keeps its sandbox.
    assert!(it.block(1).is_empty());
    it.unblock(1);
    assert_eq!(it.finish(1), ["t1 finished", "start t2 on n0"]);
    assert!(it.scheduler.may_wait(&tenant).is_ok());
}

#[test]
fn a_blocked_task_has_its_cpu_back_within_the_quota() {
    let mut it = Harness::local(r#"{"CPU": 8}"#);
    it.quota("a", r#"{"max": {"CPU": 1}}"#);
    it.submit(task(1, ONE).tenant("a"));
    it.submit(task(2, ONE).tenant("a"));
    assert_eq!(it.block(1), ["start t2 on n0"]);
    assert!(it.unblock(1).is_empty());
    assert_eq!(it.finish(2), ["t2 finished", "resume t1"]);
    // An actor has it for as long as it lives.
    let mut create = task(3, ONE).tenant("a");
    create.kind = TaskKind::Actor(actor_id(1));
    it.submit(create);
    assert_eq!(it.block(1), ["start t3 on n0"]);
    assert_eq!(it.unblock(1), ["resume t1"]);
    it.finish(1);
}

#[test]
fn what_others_use_counts() {
    let mut it = Harness::local(r#"{"CPU": 8}"#);
    it.quota("a", r#"{"max": {"CPU": 2}}"#);
    it.elsewhere(1, "a/x", r#"{"CPU": 2}"#);
    let started = it.submit(task(1, ONE).tenant("a/y"));
    assert!(started.is_empty(), "{started:?}");
    assert_eq!(it.elsewhere(2, "a/x", ONE), ["start t1 on n0"]);
}

#[test]
fn no_cpu_is_kept_for_who_is_at_a_quota() {
    let mut it = Harness::local(r#"{"CPU": 2}"#);
    it.quota("a", r#"{"max": {"CPU": 2}}"#);
    it.submit(task(1, ONE).tenant("a"));
    it.accept(1);
    it.block(1);
    for at in 2..=4 {
        it.submit(task(at, ONE).tenant("b"));
    }
    // It is kept for the first that is to go on, until that may not have it.
    assert!(it.unblock(1).is_empty());
    it.elsewhere(1, "a", r#"{"CPU": 2}"#);
    assert_eq!(it.finish(2), ["t2 finished", "start t4 on n0"]);
    it.elsewhere(2, "a", ONE);
    it.submit(task(5, ONE).tenant("b"));
    assert_eq!(it.finish(3), ["t3 finished", "resume t1"]);
}

#[test]
fn who_waits_for_cpu_that_actors_have_elsewhere_goes_on_without() {
    let quota = r#"{"max": {"CPU": 1}}"#;
    let mut it = Harness::local(r#"{"CPU": 8}"#);
    it.quota("a", quota);
    it.submit(task(1, ONE).tenant("a/x"));
    it.accept(1);
    it.block(1);
    it.elsewhere(1, "a/y", ONE);
    assert!(it.unblock(1).is_empty(), "a task there ends some time");
    let mut there = Harness::local(ONE);
    there.quota("a", quota);
    let mut create = task(2, ONE).tenant("a/y");
    create.kind = TaskKind::Actor(actor_id(1));
    there.submit(create);
    let usage = there.scheduler.own_view().usage;
    assert_eq!(it.tells(2, usage), ["resume t1"]);
    it.finish(1);
}

#[test]
fn who_has_room_for_what_is_not_free_holds_up_nobody() {
    let either = |at: u8, tenant: &str| {
        let spec = task(at, ONE).tenant(tenant);
        spec.rule(|rule| rule.alternatives.push(request(r#"{"GPU": 1}"#)))
    };
    let mut it = Harness::local(r#"{"CPU": 1, "GPU": 1}"#);
    it.quota("a", r#"{"max": {"GPU": 0}}"#);
    it.submit(task(1, ONE).tenant("b"));
    assert!(it.submit(either(2, "a")).is_empty());
    assert_eq!(it.submit(either(3, "b")), ["start t3 on n0"]);
    assert!(it.submit(either(4, "b")).is_empty());
    assert_eq!(it.finish(3), ["t3 finished", "start t4 on n0"]);
    assert_eq!(it.finish(1), ["t1 finished", "start t2 on n0"]);
}

const TENANTS: [&str; 6] = ["a", "a/x", "a/y", "a/x/1", "b", "b/z"];

proptest! {
    /// Nobody is above a quota at any time, nobody who could start stands idle (see `check`), and all end in the end.
    #[test]
    fn no_tenant_is_above_its_quota(
        quotas in vec((0..TENANTS.len(), 1u32..5, prop::option::of(1u32..4)), 0..5),
        tasks in vec((0..TENANTS.len(), 1u32..3, any::<bool>()), 1..40),
        nodes in 1usize..3,
    ) {
        let config = if nodes == 1 { local_config() } else { Config::default() };
        let mut it = Harness::with(config, &[r#"{"CPU": 5}"#; 2][..nodes]);
        for (who, cpus, max_tasks) in quotas {
            let max_tasks = max_tasks.map_or(String::new(), |most| format!(r#", "max_tasks": {most}"#));
            it.quota(TENANTS[who], &format!(r#"{{"max": {{"CPU": {cpus}}}{max_tasks}}}"#));
        }
        let mut running: Vec<u8> = Vec::new();
        let note = |it: &Harness, effects: Vec<String>, running: &mut Vec<u8>| {
            for effect in effects {
                if let Some(rest) = effect.strip_prefix("start t") {
                    let number = rest.split(' ').next().expect("a number");
                    running.push(number.parse().expect("a number"));
                }
            }
            let tenants = it.scheduler.tenants();
            for (ix, tenant) in tenants.iter() {
                assert!(!tenants.is_above_quota(ix), "{}: {}", tenant.name(), tenant.usage());
            }
        };
        for (at, (who, cpus, blocks)) in (1u8..).zip(tasks) {
            let spec = task(at, &format!(r#"{{"CPU": {cpus}}}"#)).tenant(TENANTS[who]);
            let effects = it.submit(spec);
            note(&it, effects, &mut running);
            let Some(first) = running.first().copied().filter(|_| at % 3 == 0) else {
                continue;
            };
            if blocks {
                let effects = it.block(first);
                note(&it, effects, &mut running);
                let effects = it.unblock(first);
                note(&it, effects, &mut running);
            } else {
                running.remove(0);
                let effects = it.finish(first);
                note(&it, effects, &mut running);
            }
        }
        while !running.is_empty() {
            let effects = it.finish(running.remove(0));
            note(&it, effects, &mut running);
        }
        prop_assert_eq!(it.scheduler.live(), 0);
        prop_assert!(it.scheduler.tenants().iter().all(|(_, it)| it.sandboxes() == 0 && it.waiting() == 0));
    }
}
