//! Every case of `wasmrun bench` runs and measures something, and what is compared with others is one of ours.
//! What the figures are is no business of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use wasmrun_tests::{Wasmrun, guest};

#[test]
fn what_is_compared_with_ray_is_a_case_of_ours() {
    let list = Wasmrun::new(["bench", "--list"]).ok();
    let ours: BTreeSet<&str> = list.lines().filter_map(|it| it.split(' ').next()).collect();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../xtask/src/against_ray.py");
    let script = std::fs::read_to_string(script).expect("the script is in the checkout");
    let (_, cases) = script.split_once("\nCASES = {\n").expect("it has a table");
    let (cases, _) = cases.split_once("\n}\n").expect("which ends");
    let cases: Vec<&str> = cases
        .lines()
        .filter_map(|it| it.split('"').nth(1))
        .collect();
    assert_eq!(
        cases.len(),
        cases.iter().collect::<BTreeSet<_>>().len(),
        "each once"
    );
    for wanted in ["put_1g_first", "memory_actor", "tasks_async"] {
        assert!(cases.contains(&wanted), "{wanted} is compared");
    }
    for case in cases {
        assert!(
            ours.contains(case),
            "`wasmrun bench --list` has no {case}:\n{list}"
        );
    }
}

#[test]
fn every_case_measures_something() {
    let listed = Wasmrun::new(["bench", "--list"]).ok();
    let names = listed.lines().skip(1);
    let names = names.filter_map(|line| Some(line.split_whitespace().next()?.to_owned()));
    let short = Wasmrun::new(["bench", "--short", "--runs", "2", "--flow-module"]);
    let json = short
        .arg(guest("flow"))
        .args(["--object-memory", "64MiB"])
        .json(0);
    let results = json["results"].as_array().expect("a list").iter();
    let values = results.map(|result| {
        let name = result["name"].as_str().expect("a name").to_owned();
        (name, result)
    });
    let values: BTreeMap<_, _> = values.collect();
    for name in names {
        let result = values
            .get(&name)
            .unwrap_or_else(|| panic!("{name}: {json:#}"));
        let runs = result["runs"].as_array().expect("a list");
        assert_eq!(runs.len(), 2, "{result}");
        // The memory of a few actors more is lost in that of a process.
        let may_be_less = name == "memory_actor";
        let is_right = |value: f64| value.is_finite() && (value > 0.0 || may_be_less);
        let value = result["value"].as_f64().expect("a number");
        assert!(is_right(value), "{result}");
    }
}
