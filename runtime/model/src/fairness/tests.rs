//! Tests of the table of tenants: what each rule does, and how it is explained.

use std::collections::BTreeMap;

use super::*;
use crate::id::NodeId;
use crate::resource::ResourceSet;
use crate::time::Instant;

fn set(json: &str) -> ResourceSet {
    serde_json::from_str(json).unwrap()
}

fn name(text: &str) -> TenantName {
    text.parse().unwrap()
}

fn config(json: &str) -> TenantConfig {
    serde_json::from_str(json).unwrap()
}

/// A table of a cluster of 10 CPUs, 4 GPUs and 100 bytes, with tenants A and B.
fn table(policy: Policy, a: &str, b: &str) -> (Tenants, TenantIx, TenantIx) {
    let mut tenants = Tenants::new(policy);
    let a = tenants.set_config(&name("A"), config(a)).unwrap();
    tenants.set_total(set(r#"{"CPU":10,"GPU":4,"memory":100}"#));
    let b = tenants.set_config(&name("B"), config(b)).unwrap();
    (tenants, a, b)
}

fn ahead(tenants: &Tenants, a: TenantIx, b: TenantIx) -> String {
    let ahead = tenants.compare(a, b);
    assert_eq!(ahead, tenants.compare(b, a));
    ahead.unwrap().to_string()
}

#[test]
fn shares_weights_and_their_explanation() {
    let (mut tenants, a, b) = table(Policy::Drf, "{}", r#"{"weight":2}"#);
    tenants.charge(a, &set(r#"{"CPU":2,"memory":10}"#));
    tenants.charge(b, &set(r#"{"CPU":3,"memory":30}"#));
    let text = "tenant B is ahead: share ÷ weight 0.15 < 0.20";
    assert_eq!(ahead(&tenants, a, b), text);
    assert_eq!(tenants.get(b).dominant_share().to_string(), "0.3000");
    // Equal dominant shares: the next resource decides, each tenant's own.
    tenants.charge(b, &set(r#"{"CPU":1}"#));
    let text = "tenant A is ahead: share ÷ weight 0.20 for both, then 0.10 < 0.15";
    assert_eq!(ahead(&tenants, a, b), text);
    // A weight for one resource divides that share alone.
    let halved = config(r#"{"resource_weights":{"CPU":4}}"#);
    tenants.set_config(&name("A"), halved).unwrap();
    let text = "tenant A is ahead: share ÷ weight 0.10 < 0.20";
    assert_eq!(ahead(&tenants, a, b), text);
    tenants
        .set_config(&name("A"), TenantConfig::default())
        .unwrap();
    tenants
        .set_config(&name("B"), TenantConfig::default())
        .unwrap();
    assert_eq!(
        ahead(&tenants, a, b),
        "tenant A is ahead: share 0.20 < 0.40"
    );
    tenants.refund(b, &set(r#"{"CPU":"1.9999", "memory":"12.5"}"#));
    assert_eq!(
        ahead(&tenants, a, b),
        "tenant A is ahead: share 0.20000 < 0.20001"
    );
}

#[test]
fn ties_go_to_the_first_submission_then_the_name() {
    let (mut tenants, a, b) = table(Policy::Drf, "{}", "{}");
    let text = "tenant A is ahead: equal shares and first submissions, \
                and its name comes before B";
    assert_eq!(ahead(&tenants, a, b), text);
    // Whoever has not submitted anything comes last.
    tenants.note_submission(b, Instant::from_micros(5));
    let text = "tenant B is ahead: equal shares, and it was the first to submit";
    assert_eq!(ahead(&tenants, a, b), text);
    tenants.note_submission(a, Instant::from_micros(4));
    tenants.note_submission(b, Instant::from_micros(3));
    let why = tenants.compare(a, b).unwrap().why;
    let first = Instant::from_micros(4);
    assert_eq!(why, WhyAhead::EarlierSubmission { first });
    assert_eq!(tenants.get(b).counters().submitted, 2);
    assert_eq!(tenants.compare(a, a), None);
    // Equal shares by different ways: 2 of 4 GPUs, 50 of 100 bytes.
    tenants.charge(a, &set(r#"{"GPU":2}"#));
    tenants.charge(b, &set(r#"{"memory":50}"#));
    let why = tenants.compare(a, b).unwrap().why;
    assert_eq!(why, WhyAhead::EarlierSubmission { first });
}

#[test]
fn the_needy_go_first() {
    let a = r#"{"min_share":{"CPU":2,"memory":50}}"#;
    let (mut tenants, a, b) = table(Policy::Drf, a, r#"{"min_share":{"CPU":8},"weight":100}"#);
    let c = tenants.intern(&name("C")).unwrap();
    tenants.charge(a, &set(r#"{"CPU":1}"#));
    // One needs nothing, and uses nothing.
    let text = "tenant A is below its guaranteed CPU: 1 of 2";
    assert_eq!(ahead(&tenants, a, c), text);
    assert!(tenants.key(a).is_below_guarantee() && !tenants.key(c).is_below_guarantee());
    // Both are below: weights do not count, only what is guaranteed.
    tenants.charge(b, &set(r#"{"CPU":5}"#));
    let text = "tenant A is ahead: both are below their guarantees, CPU at 0.50 < CPU at 0.62";
    assert_eq!(ahead(&tenants, a, b), text);
    tenants.refund(b, &set(r#"{"CPU":1}"#));
    // 1/2 and 4/8 are equal; A's next is GPU (by name), of which nothing is used or due by
    // either; then memory. All equal: the name.
    assert_eq!(tenants.compare(a, b).unwrap().why, WhyAhead::Name);
    tenants.charge(b, &set(r#"{"GPU":"0.01"}"#));
    // The GPU has no guarantee and is used: more than anything.
    let text = "tenant A is ahead: both are below their guarantees, memory at 0.00 < GPU at inf";
    assert_eq!(ahead(&tenants, a, b), text);
    // What counts is the guarantee of the dominant resource: A's is the memory now.
    tenants.charge(a, &set(r#"{"memory":49}"#));
    assert_eq!(
        ahead(&tenants, a, c),
        "tenant A is below its guaranteed memory: 49 of 50"
    );
    tenants.charge(a, &set(r#"{"memory":1}"#));
    assert!(!tenants.key(a).is_below_guarantee());
    assert_eq!(
        ahead(&tenants, a, b),
        "tenant B is below its guaranteed CPU: 4 of 8"
    );
}

#[test]
fn whoever_has_nothing_is_below_any_guarantee() {
    let (tenants, a, b) = table(Policy::Drf, "{}", r#"{"min_share":{"memory":1024}}"#);
    let text = "tenant B is below its guaranteed memory: 0 of 1KiB";
    assert_eq!(ahead(&tenants, a, b), text);
    // A guarantee of what the cluster does not have is none.
    let (tenants, a, b) = table(Policy::Drf, "{}", r#"{"min_share":{"tpu":1}}"#);
    assert_eq!(tenants.compare(a, b).unwrap().why, WhyAhead::Name);
}

#[test]
fn fair_is_memory_alone_and_fifo_one_line() {
    let b = r#"{"min_share":{"CPU":9},"resource_weights":{"CPU":9}}"#;
    let (mut tenants, a, b) = table(Policy::Fair, "{}", b);
    tenants.charge(a, &set(r#"{"CPU":9,"memory":10}"#));
    tenants.charge(b, &set(r#"{"memory":11}"#));
    assert_eq!(
        ahead(&tenants, a, b),
        "tenant A is ahead: share 0.10 < 0.11"
    );
    assert_eq!(tenants.get(a).dominant_share().to_string(), "0.9000");
    let due = config(r#"{"min_share":{"memory":12}}"#);
    tenants.set_config(&name("B"), due).unwrap();
    assert!(tenants.key(b) < tenants.key(a));

    let generation = tenants.generation();
    tenants.set_policy(Policy::Fifo);
    assert!(tenants.generation() > generation);
    assert_eq!(
        (tenants.compare(a, b), tenants.policy()),
        (None, Policy::Fifo)
    );
    assert_eq!(tenants.key(a), tenants.key(b));
    tenants.note_submission(a, Instant::from_micros(1));
    tenants.charge(a, &set(r#"{"GPU":4}"#));
    assert_eq!(tenants.key(a), tenants.key(b));
    assert_eq!(tenants.get(a).dominant_share(), Ratio::ONE);
    tenants.set_policy(Policy::Drf);
    let text = "tenant B is below its guaranteed memory: 11 of 12";
    assert_eq!(ahead(&tenants, a, b), text);
}

#[test]
fn the_total_moves_all_keys() {
    let (mut tenants, a, b) = table(Policy::Drf, "{}", "{}");
    tenants.charge(a, &set(r#"{"CPU":5}"#));
    tenants.charge(b, &set(r#"{"memory":40, "tpu":7}"#));
    assert!(tenants.key(b) < tenants.key(a));
    let generation = tenants.generation();
    tenants.set_total(tenants.total().clone());
    assert_eq!(tenants.generation(), generation);
    tenants.set_total(set(r#"{"CPU":20,"memory":100}"#));
    assert!(tenants.generation() > generation && tenants.key(a) < tenants.key(b));
    assert_eq!(tenants.get(a).dominant_share().to_string(), "0.2500");
    assert_eq!(tenants.get(a).dominant_share_max().to_string(), "0.5000");
    // What the cluster had no more of counts again when it is back.
    tenants.set_total(set(r#"{"CPU":20,"tpu":7}"#));
    assert_eq!(tenants.get(b).dominant_share(), Ratio::ONE);
    tenants.set_total(ResourceSet::new());
    assert_eq!(tenants.get(b).dominant_share(), Ratio::ZERO);
}

#[test]
fn what_other_nodes_use_counts_too() {
    let (mut tenants, a, b) = table(Policy::Drf, "{}", "{}");
    let node = |byte| NodeId::from_bytes([byte; 16]);
    let report = |amounts: &[(&str, &str)]| -> BTreeMap<_, _> {
        amounts
            .iter()
            .map(|(tenant, amounts)| (name(tenant), set(amounts)))
            .collect()
    };
    tenants.charge(a, &set(r#"{"CPU":2}"#));
    let one = report(&[("A", r#"{"CPU":1}"#), ("C", r#"{"CPU":4}"#), ("D", "{}")]);
    let changed = tenants.set_remote(node(1), &one).unwrap();
    let c = tenants.find(&name("C")).unwrap();
    assert_eq!(changed, [a, c]);
    assert_eq!(tenants.find(&name("D")), None);
    assert_eq!(tenants.set_remote(node(1), &one), Ok(vec![]));
    tenants
        .set_remote(node(2), &report(&[("A", r#"{"CPU":2,"GPU":1}"#)]))
        .unwrap();
    assert_eq!(tenants.get(a).usage(), set(r#"{"CPU":5,"GPU":1}"#));
    assert_eq!(tenants.get(a).dominant_share().to_string(), "0.5000");
    // Only the own part is told to others.
    assert_eq!(tenants.own_usage(), report(&[("A", r#"{"CPU":2}"#)]));
    // A new report replaces the old one, without a peak in between.
    let two = report(&[("A", r#"{"CPU":3}"#), ("B", r#"{"CPU":1}"#)]);
    assert_eq!(tenants.set_remote(node(1), &two).unwrap(), [a, b, c]);
    assert_eq!(tenants.get(a).usage(), set(r#"{"CPU":7,"GPU":1}"#));
    assert!(tenants.get(c).usage().is_empty());
    assert_eq!(tenants.get(a).dominant_share_max().to_string(), "0.7000");
    assert_eq!(tenants.clear_remote(node(2)), [a]);
    assert_eq!(tenants.clear_remote(node(2)), []);
    assert_eq!(tenants.clear_remote(node(1)), [a, b]);
    assert_eq!(tenants.get(a).usage(), tenants.get(a).own_usage());
    tenants.refund(a, &set(r#"{"CPU":2}"#));
    assert!(tenants.iter().all(|(_, tenant)| tenant.usage().is_empty()));
}

#[test]
fn a_subtree_counts_as_one_beside_its_siblings() {
    let mut tenants = Tenants::new(Policy::Drf);
    tenants.set_total(set(r#"{"CPU":10}"#));
    let [a, x, y, b] = ["A", "A/x", "A/y", "B"].map(|text| tenants.intern(&name(text)).unwrap());
    let one = set(r#"{"CPU":1}"#);
    for ix in [x, x, x, y, b, b, b] {
        tenants.charge(ix, &one);
    }
    // All of A have 4, so B is ahead of each of them; among themselves y is.
    let text = "tenant B is ahead: share 0.30 < 0.40";
    assert_eq!(ahead(&tenants, y, b), text);
    assert_eq!(
        ahead(&tenants, x, y),
        "tenant A/y is ahead: share 0.10 < 0.30"
    );
    assert_eq!(tenants.get(a).usage(), set(r#"{"CPU":4}"#));
    assert_eq!(tenants.get(a).own_usage(), ResourceSet::new());
    // A weight counts for the whole of A, and what A itself runs is one more beside x and y.
    tenants
        .set_config(&name("A"), config(r#"{"weight":2}"#))
        .unwrap();
    assert_eq!(
        ahead(&tenants, x, b),
        "tenant A is ahead: share ÷ weight 0.20 < 0.30"
    );
    tenants.charge(a, &set(r#"{"CPU":2}"#));
    assert_eq!(
        ahead(&tenants, a, x),
        "tenant A is ahead: share 0.20 < 0.30"
    );
    assert_eq!(
        ahead(&tenants, a, y),
        "tenant A/y is ahead: share 0.10 < 0.20"
    );
    assert_eq!(tenants.own_usage()[&name("A")], set(r#"{"CPU":2}"#));
    // A guarantee counts among siblings.
    let due = config(r#"{"min_share":{"CPU":4}}"#);
    tenants.set_config(&name("A/x"), due).unwrap();
    let text = "tenant A/x is below its guaranteed CPU: 3 of 4";
    assert_eq!(ahead(&tenants, x, y), text);
    // What is used elsewhere counts for A, too, and goes again.
    let node = NodeId::from_bytes([1; 16]);
    let report = BTreeMap::from([(name("A/y"), set(r#"{"CPU":4}"#))]);
    assert_eq!(tenants.set_remote(node, &report), Ok(vec![y]));
    assert_eq!(tenants.get(a).usage(), set(r#"{"CPU":10}"#));
    tenants.clear_remote(node);
    assert_eq!(tenants.get(a).usage(), set(r#"{"CPU":6}"#));
}

/// What Bhattacharya et al. show of trees that are compared by all that they use: this is known, and a resource weight
/// helps.
#[test]
fn who_uses_much_of_what_nobody_else_wants_holds_up_its_siblings() {
    let mut tenants = Tenants::new(Policy::Drf);
    tenants.set_total(set(r#"{"CPU":10,"GPU":4}"#));
    let [gpu, cpu, other] =
        ["A/gpu", "A/cpu", "B"].map(|text| tenants.intern(&name(text)).unwrap());
    tenants.charge(gpu, &set(r#"{"GPU":4}"#));
    tenants.charge(other, &set(r#"{"CPU":9}"#));
    let text = "tenant B is ahead: share 0.90 < 1.00";
    assert_eq!(ahead(&tenants, cpu, other), text);
    let due = config(r#"{"resource_weights":{"GPU":1000000}}"#);
    tenants.set_config(&name("A"), due).unwrap();
    assert!(tenants.is_before(cpu, other) && tenants.is_before(cpu, gpu));
}

#[test]
fn tenants_are_limited() {
    let mut tenants = Tenants::new(Policy::Drf);
    for at in 0..MAX_TENANTS - 1 {
        tenants.intern(&name(&format!("t{at}"))).unwrap();
    }
    let node = NodeId::from_bytes([1; 16]);
    let two = BTreeMap::from_iter(["x", "y"].map(|text| (name(text), set(r#"{"CPU":1}"#))));
    let error = tenants.set_remote(node, &two).unwrap_err();
    assert_eq!(error, TooManyTenants::InAll { name: name("y") });
    assert_eq!(tenants.len(), MAX_TENANTS - 1);
    tenants.intern(&name("x")).unwrap();
    assert!(tenants.intern(&name("y")).is_err());
    assert_eq!(tenants.intern(&name("t7")), Ok(TenantIx(7)));
    // One that would need room for those that it is part of.
    assert!(tenants.intern(&name("t7/a")).is_err());
    let error = error.to_string();
    assert!(error.contains("at most 65536"), "{error}");
}

#[test]
#[should_panic(expected = "more than was charged")]
fn more_than_was_charged_cannot_be_refunded() {
    let (mut tenants, a, _) = table(Policy::Drf, "{}", "{}");
    tenants.charge(a, &set(r#"{"CPU":1}"#));
    tenants.refund(a, &set(r#"{"CPU":"1.0001"}"#));
}
