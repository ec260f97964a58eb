//! Fuzz target: for `fuzz/` (libFuzzer) and for the stable test beside it.

use super::scenario::{Change, NodeEntry, NodeNo, Placement, Scenario, ScenarioError};

/// Bytes as a scenario. Never panics; an error names a place; what was accepted keeps the
/// invariants that the run relies on.
pub fn fuzz_scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Scenario::parse(text) {
        Ok(scenario) => check(&scenario),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            if let ScenarioError::Invalid {
                place,
                line,
                column,
                fault,
            } = &error
            {
                assert!(!place.is_empty() && !fault.to_string().is_empty());
                let line = text.split('\n').nth(line - 1).expect("a line of the text");
                assert!((1..=line.len() + 1).contains(column), "{error}");
            }
        }
    }
}

fn check(scenario: &Scenario) {
    let mut is_there = vec![false; scenario.node_names.len()];
    let join = |entry: &NodeEntry, is_there: &mut Vec<bool>| {
        for node in &entry.instances {
            assert!(!std::mem::replace(&mut is_there[node.0 as usize], true));
        }
        assert_eq!(entry.node_resources().total(), entry.total());
    };
    scenario
        .nodes
        .iter()
        .for_each(|entry| join(entry, &mut is_there));
    assert!(scenario.events.is_sorted_by_key(|event| event.at_ms));
    for event in &scenario.events {
        match &event.change {
            Change::AddNode(entry) => join(entry, &mut is_there),
            Change::RemoveNode(node) => {
                assert!(std::mem::take(&mut is_there[node.0 as usize]));
            }
            Change::SetResource { node, .. } => assert!(is_there[node.0 as usize]),
        }
    }
    let is_node = |node: NodeNo| assert!((node.0 as usize) < scenario.node_names.len());
    for task in &scenario.tasks {
        assert!(task.count > 0 && !task.requests.is_empty());
        assert!((task.tenant.0 as usize) < scenario.tenants.len());
        task.args.iter().for_each(|arg| is_node(arg.on));
        for entry in &task.after {
            assert!((entry.0 as usize) < scenario.tasks.len());
        }
        match &task.placement {
            Placement::NodeAffinity { node, .. } => is_node(*node),
            Placement::PlacementGroup { bundles, .. } => assert!(!bundles.is_empty()),
            Placement::Default | Placement::Random | Placement::Spread => {}
        }
    }
}
