//! What the benchmarks are called, here and where they are compared with others.

use std::collections::BTreeSet;
use std::path::Path;

use wasmrun_tests::Wasmrun;

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
