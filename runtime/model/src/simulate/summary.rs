//! The summary of a run.
//!
//! Owns the figures and their one line of JSON. Must not: measure anything; `statistics` does.
//!
//! Invariant: decimals have at most four digits after the point and are rounded down, by integer
//! division, so equal runs have equal bytes on every machine.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::decimal::Decimal;
use crate::fairness::TenantName;
use crate::resource::ResourceName;

/// The version of the summary's JSON.
pub const VERSION: u32 = 1;

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// When the last task ended, in milliseconds.
    pub makespan_ms: u64,
    /// The tasks of all tenants.
    #[serde(flatten)]
    pub counts: Counts,
    /// Of all nodes together: what was busy ÷ what was there, over time until the makespan.
    #[serde(serialize_with = "decimals")]
    pub utilisation: Vec<(ResourceName, Decimal)>,
    /// The tenants in the order of their names.
    #[serde(serialize_with = "tenants")]
    pub tenants: Vec<TenantSummary>,
    /// The nodes in the order of their numbers.
    #[serde(serialize_with = "nodes")]
    pub nodes: Vec<NodeSummary>,
}

/// How many tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Submitted.
    pub submitted: u64,
    /// Starts, so a task that was retried counts again.
    pub started: u64,
    /// Run to the end.
    pub finished: u64,
    /// Times that one was to be tried again since its node was removed, or since it was stopped for another tenant.
    pub retried: u64,
    /// Unfinished in the end since no node could ever serve them.
    pub infeasible: u64,
    /// Unfinished in the end since they were given up.
    pub unschedulable: u64,
    /// Times that one was paused for another tenant.
    pub paused: u64,
    /// Times that one was stopped for another tenant, to be tried again.
    pub preempted: u64,
    /// How long those had run, in milliseconds: what is done again.
    pub repeated_ms: u64,
    /// Tasks that waited since there was no room under a quota when they were submitted.
    pub at_quota: u64,
}

/// What came of a tenant's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TenantSummary {
    /// The tenant.
    #[serde(skip)]
    pub name: TenantName,
    /// Its tasks.
    #[serde(flatten)]
    pub counts: Counts,
    /// The largest dominant share that it had when one of its tasks started: of some resource,
    /// what it used ÷ what all nodes had then. Without weights.
    pub dominant_share_max: Decimal,
    /// How long its tasks waited before each start; `None` if none started.
    #[serde(flatten, serialize_with = "waits")]
    pub waits: Option<Waits>,
}

/// How long tasks waited, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// The mean.
    #[serde(rename = "wait_mean_ms")]
    pub mean_ms: Decimal,
    /// The smallest wait that at least half of them do not exceed; exact.
    #[serde(rename = "wait_p50_ms")]
    pub p50_ms: u64,
    /// The same of 95 of 100.
    #[serde(rename = "wait_p95_ms")]
    pub p95_ms: u64,
    /// The smallest wait that at least 99 of 100 do not exceed; exact.
    #[serde(rename = "wait_p99_ms")]
    pub p99_ms: u64,
    /// The longest.
    #[serde(rename = "wait_max_ms")]
    pub max_ms: u64,
}

/// What a node was used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeSummary {
    /// The node.
    #[serde(skip)]
    pub name: Arc<str>,
    /// For each resource that it ever had: what was busy ÷ what was there, over the time that the
    /// node was there until the makespan. Above 1 where a capacity fell below what was in use.
    #[serde(flatten, serialize_with = "decimals")]
    pub utilisation: Vec<(ResourceName, Decimal)>,
}

impl Counts {
    /// How many of the submitted tasks have not finished in the end. Those that are neither
    /// infeasible nor unschedulable come after one that is, or wait for their placement group.
    pub fn unfinished(&self) -> u64 {
        self.submitted.saturating_sub(self.finished)
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.submitted += other.submitted;
        self.started += other.started;
        self.finished += other.finished;
        self.retried += other.retried;
        self.infeasible += other.infeasible;
        self.unschedulable += other.unschedulable;
        self.paused += other.paused;
        self.preempted += other.preempted;
        self.repeated_ms += other.repeated_ms;
        self.at_quota += other.at_quota;
    }
}

impl Waits {
    /// The figures of these waits, in any order.
    pub fn of(mut waits_ms: Vec<u64>) -> Option<Self> {
        let count = waits_ms.len();
        if count == 0 {
            return None;
        }
        let sum: u128 = waits_ms.iter().map(|wait| u128::from(*wait)).sum();
        waits_ms.sort_unstable();
        // The nearest rank: for 99 the ⌈0.99 n⌉-th of the sorted waits.
        let of_100 = |percent: usize| waits_ms[(count * percent).div_ceil(100) - 1];
        Some(Self {
            mean_ms: Decimal::quotient(sum, count as u128),
            p50_ms: of_100(50),
            p95_ms: of_100(95),
            p99_ms: of_100(99),
            max_ms: waits_ms[count - 1],
        })
    }
}

impl Summary {
    /// The summary as one line of JSON, with the newline after it.
    pub fn to_json_line(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            summary: Versioned<'a>,
        }

        #[derive(Serialize)]
        struct Versioned<'a> {
            version: u32,
            #[serde(flatten)]
            summary: &'a Summary,
        }

        let summary = Versioned {
            version: VERSION,
            summary: self,
        };
        serde_json::to_string(&Line { summary }).expect("a summary is JSON") + "\n"
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([
            ("submitted", self.submitted),
            ("started", self.started),
            ("finished", self.finished),
            ("retried", self.retried),
            ("unfinished", self.unfinished()),
            ("infeasible", self.infeasible),
            ("unschedulable", self.unschedulable),
            ("paused", self.paused),
            ("preempted", self.preempted),
            ("repeated_ms", self.repeated_ms),
            ("at_quota", self.at_quota),
        ])
    }
}

/// The fields are there without waits, too.
fn waits<S: Serializer>(waits: &Option<Waits>, serializer: S) -> Result<S::Ok, S::Error> {
    match waits {
        Some(waits) => waits.serialize(serializer),
        None => {
            let fields = [
                "wait_mean_ms",
                "wait_p50_ms",
                "wait_p95_ms",
                "wait_p99_ms",
                "wait_max_ms",
            ];
            serializer.collect_map(fields.map(|field| (field, ())))
        }
    }
}

fn decimals<S: Serializer>(
    decimals: &[(ResourceName, Decimal)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(decimals.iter().map(|(name, decimal)| (name, decimal)))
}

fn tenants<S: Serializer>(tenants: &[TenantSummary], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(tenants.iter().map(|tenant| (&tenant.name, tenant)))
}

fn nodes<S: Serializer>(nodes: &[NodeSummary], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(nodes.iter().map(|node| (&*node.name, node)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_is_the_nearest_rank() {
        let p99 = |count: u64| Waits::of((1..=count).rev().collect()).unwrap().p99_ms;
        assert_eq!(p99(1), 1);
        assert_eq!(p99(2), 2);
        assert_eq!(p99(99), 99);
        assert_eq!(p99(100), 99);
        assert_eq!(p99(101), 100);
        assert_eq!(p99(1_000), 990);
        // ⌈0.99 n⌉, by another way.
        for count in 1..500 {
            assert_eq!(p99(count), (99 * count).div_ceil(100));
        }
        let waits = Waits::of((1..=200).collect()).unwrap();
        assert_eq!((waits.p50_ms, waits.p95_ms), (100, 190));
        let waits = Waits::of(vec![0, 10, 3]).unwrap();
        assert_eq!((waits.p50_ms, waits.p95_ms), (3, 10));
        assert_eq!(
            (waits.mean_ms.to_string(), waits.max_ms),
            ("4.3333".into(), 10)
        );
        assert_eq!(Waits::of(vec![]), None);
    }

    #[test]
    fn without_waits_their_fields_are_null() {
        let tenant = TenantSummary {
            name: TenantName::default(),
            counts: Counts::default(),
            dominant_share_max: Decimal::ZERO,
            waits: None,
        };
        let expected = r#""wait_mean_ms":null,"wait_p50_ms":null,"wait_p95_ms":null,"wait_p99_ms":null,"wait_max_ms":null}"#;
        let json = serde_json::to_string(&tenant).unwrap();
        assert!(json.ends_with(expected), "{json}");
    }
}
