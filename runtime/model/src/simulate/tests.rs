//! Tests of what a run leaves behind: statistics, summary, table.

use super::scenario::{NodeNo, Scenario, TenantNo};
use super::statistics::Statistics;
use super::summary::Summary;
use crate::resource::{Amount, ResourceName, ResourceSet};

const A: TenantNo = TenantNo(0);
const B: TenantNo = TenantNo(1);
const N1: NodeNo = NodeNo(0);
const N2: NodeNo = NodeNo(1);

fn scenario() -> Scenario {
    Scenario::parse(
        r#"{"nodes":[{"name":"n1","resources":{"CPU":9,"memory":"18GB"}},
                     {"name":"n2","resources":{"CPU":4}}],
            "tenants":[{"name":"b"},{"name":"a"}],"tasks":[]}"#,
    )
    .unwrap()
}

fn set(json: &str) -> ResourceSet {
    serde_json::from_str(json).unwrap()
}

/// Two tenants on two nodes, of which the second leaves and comes back.
fn run() -> Summary {
    let scenario = scenario();
    let mut run = Statistics::new(&scenario);
    run.node_joined(0, N1, &scenario.nodes[0].total());
    run.node_joined(0, N2, &scenario.nodes[1].total());
    let (small, large) = (set(r#"{"CPU":1,"memory":"4GB"}"#), set(r#"{"CPU":4}"#));
    for tenant in [A, A, A, B, B] {
        run.submitted(tenant);
    }
    run.started(0, A, N1, &small, 0);
    run.started(0, A, N1, &small, 0);
    run.started(10, B, N2, &large, 10);
    run.infeasible(B);
    run.finished(50, A, N1, &small);
    run.started(50, A, N1, &small, 50);
    run.lost(60, B, N2, &large);
    run.retried(B);
    run.node_left(60, N2);
    run.finished(80, A, N1, &small);
    run.feasible_again(B);
    run.node_joined(90, N2, &set(r#"{"CPU":8}"#));
    run.started(90, B, N2, &large, 30);
    run.unschedulable(A);
    run.finished(100, B, N2, &large);
    run.finished(100, A, N1, &small);
    // After the end: it must not count.
    run.node_changed(400, N1, &ResourceName::CPU, Amount::units(1));
    run.summary(&scenario)
}

#[test]
fn the_summary_is_one_line_of_json() {
    // n1: CPU (50 + 80 + 50) / 900; memory 4 × 180 / 1800. n2: (200 + 40) / (240 + 80).
    let expected = concat!(
        r#"{"summary":{"version":1,"makespan_ms":100,"#,
        r#""submitted":5,"started":5,"finished":4,"retried":1,"unfinished":1,"infeasible":0,"unschedulable":1,"paused":0,"preempted":0,"repeated_ms":0,"at_quota":0,"#,
        r#""utilisation":{"CPU":0.3442,"memory":0.4},"#,
        r#""tenants":{"a":{"submitted":2,"started":2,"finished":1,"retried":1,"unfinished":1,"infeasible":0,"unschedulable":0,"paused":0,"preempted":0,"repeated_ms":0,"at_quota":0,"#,
        r#""dominant_share_max":0.3076,"wait_mean_ms":20,"wait_p50_ms":10,"wait_p95_ms":30,"wait_p99_ms":30,"wait_max_ms":30},"#,
        r#""b":{"submitted":3,"started":3,"finished":3,"retried":0,"unfinished":0,"infeasible":0,"unschedulable":1,"paused":0,"preempted":0,"repeated_ms":0,"at_quota":0,"#,
        r#""dominant_share_max":0.4444,"wait_mean_ms":16.6666,"wait_p50_ms":0,"wait_p95_ms":50,"wait_p99_ms":50,"wait_max_ms":50}},"#,
        r#""nodes":{"n1":{"CPU":0.2,"memory":0.4},"n2":{"CPU":0.75}}}}"#,
        "\n"
    );
    let line = run().to_json_line();
    assert_eq!(line, expected);
    assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok());
}

#[test]
fn the_table_is_for_people() {
    let expected = "\
4 of 5 tasks finished in 100ms, 1 unschedulable, 1 retried

tenant  started  finished  share max  wait mean  wait p99
a             2         1     0.3076       20ms      30ms
b             3         3     0.4444       16ms      50ms

node       resource  utilisation
n1         CPU       [####················]   20 %
           memory    [########············]   40 %
n2         CPU       [###############·····]   75 %
all nodes  CPU       [######··············]   34 %
           memory    [########············]   40 %
";
    assert_eq!(run().to_table(), expected);
}

#[test]
fn a_run_of_nothing_has_a_summary() {
    let scenario = Scenario::parse(r#"{"nodes":[],"tasks":[]}"#).unwrap();
    let summary = Statistics::new(&scenario).summary(&scenario);
    assert!(
        summary
            .to_json_line()
            .ends_with("\"utilisation\":{},\"tenants\":{},\"nodes\":{}}}\n")
    );
    let table = summary.to_table();
    assert!(
        table.starts_with("0 of 0 tasks finished in 0ms\n\ntenant "),
        "{table}"
    );
}

#[test]
fn many_nodes_are_folded() {
    let scenario = Scenario::parse(
        r#"{"nodes":[{"name":"n","count":100,"resources":{"CPU":100}}],"tasks":[
            {"name":"a","duration_ms":1,"resources":{"CPU":1}}]}"#,
    )
    .unwrap();
    let mut run = Statistics::new(&scenario);
    let total = scenario.nodes[0].total();
    for node in (0..100).map(NodeNo) {
        run.node_joined(0, node, &total);
    }
    let held: Vec<ResourceSet> = (1..=100)
        .map(|cpus| ResourceSet::new().with(ResourceName::CPU, Amount::units(cpus)))
        .collect();
    for (node, held) in (0..).map(NodeNo).zip(&held) {
        run.submitted(A);
        run.started(0, A, node, held, 0);
    }
    for (node, held) in (0..).map(NodeNo).zip(&held) {
        run.finished(7, A, node, held);
    }
    let table = run.summary(&scenario).to_table();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 31, "{table}");
    assert_eq!(lines[0], "100 of 100 tasks finished in 7ms");
    assert_eq!(
        lines[25],
        "n-19       CPU       [####················]   20 %"
    );
    assert_eq!(lines[26], "… 80 more nodes; `-o json` shows them all");
    assert_eq!(
        lines[27],
        "all nodes  CPU       [##########··········]   50 %"
    );
    assert_eq!(
        lines[28],
        "least      CPU       [····················]    1 %"
    );
    assert_eq!(
        lines[29],
        "median     CPU       [##########··········]   50 %"
    );
    assert_eq!(
        lines[30],
        "most       CPU       [####################]  100 %"
    );
}

#[test]
fn figures_above_64_bits_are_exact() {
    let scenario = Scenario::parse(
        r#"{"nodes":[{"name":"n","count":2,"resources":{"memory":"1.6PiB"}}],"tasks":[
            {"name":"a","duration_ms":1,"resources":{}}]}"#,
    )
    .unwrap();
    let mut run = Statistics::new(&scenario);
    let total = scenario.nodes[0].total();
    run.node_joined(0, N1, &total);
    run.node_joined(0, N2, &total);
    run.started(0, A, N1, &total, u64::MAX / 2);
    run.started(0, A, N2, &total, u64::MAX / 2);
    let end_ms = u64::MAX / 1_000;
    run.finished(end_ms / 4, A, N1, &total);
    run.finished(end_ms, A, N2, &total);
    let summary = run.summary(&scenario);
    assert_eq!(summary.tenants[0].dominant_share_max.to_string(), "1");
    assert_eq!(summary.nodes[0].utilisation[0].1.to_string(), "0.2499");
    assert_eq!(summary.nodes[1].utilisation[0].1.to_string(), "1");
    assert_eq!(
        summary.tenants[0].waits.unwrap().mean_ms.whole(),
        u64::MAX / 2
    );
}

#[test]
fn shares_are_of_what_there_is_when_a_task_starts() {
    let scenario = scenario();
    let mut run = Statistics::new(&scenario);
    let held = set(r#"{"CPU":2}"#);
    run.node_joined(0, N1, &set(r#"{"CPU":10}"#));
    run.started(0, A, N1, &held, 0);
    run.finished(1, A, N1, &held);
    run.node_changed(2, N1, &ResourceName::CPU, Amount::units(4));
    run.started(3, A, N1, &held, 0);
    run.node_changed(4, N1, &ResourceName::CPU, Amount::units(20));
    run.started(5, A, N1, &held, 0);
    run.finished(6, A, N1, &held);
    run.finished(6, A, N1, &held);
    let summary = run.summary(&scenario);
    // Of the tenants in the order of their names, the second is `b`.
    assert_eq!(summary.tenants[1].dominant_share_max.to_string(), "0.5");
}

#[test]
#[should_panic(expected = "time went back")]
fn time_does_not_go_back() {
    let scenario = scenario();
    let mut run = Statistics::new(&scenario);
    run.node_joined(5, N1, &scenario.nodes[0].total());
    run.node_left(4, N1);
}

#[test]
#[should_panic(expected = "more ended than had begun")]
fn a_task_ends_where_it_started() {
    let scenario = scenario();
    let mut run = Statistics::new(&scenario);
    let held = set(r#"{"CPU":1}"#);
    run.started(0, A, N1, &held, 0);
    run.finished(0, A, N2, &held);
}
