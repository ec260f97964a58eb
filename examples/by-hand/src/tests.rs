//! What can be tested without a node; and that `README.md` leaves nothing of the WIT files out.

use super::*;

#[test]
fn parts_make_the_whole() {
    let all = |from: u32, to: u32| {
        (from..to)
            .map(measure)
            .fold(Summary::NOTHING, Summary::with)
    };
    let whole = all(0, 1000);
    let parts = ByHand::merge(vec![all(0, 400), all(400, 1000)]);
    assert_eq!((whole.count, whole.sum), (1000, 499_500.0));
    assert_eq!(
        (parts.count, parts.sum, parts.least, parts.most),
        (1000, 499_500.0, 0.0, 999.0)
    );
}

#[test]
fn the_fast_lane_gives_the_same() {
    use bindings::exports::wasmrun::runtime::calls::Guest as Calls;

    let parts = [1.0, 5.0].map(|value| Summary::NOTHING.with(value));
    let list = Writer::default().list(&parts, Writer::summary).0;
    let merged = <ByHand as Calls>::call("example:by-hand/survey@0.1.0#merge".into(), vec![list]);
    let typed = ByHand::merge(parts.to_vec());
    assert_eq!(merged, Writer::default().summary(&typed).0);

    let instance = ByHand::create("tally".into(), Vec::new());
    for (n, part) in (1..).zip(&parts) {
        let part = Writer::default().summary(part).0;
        assert_eq!(ByHand::invoke(instance, "add".into(), vec![part]), [n]);
    }
    assert_eq!(ByHand::invoke(instance, "total".into(), Vec::new()), merged);
    assert_eq!(ByHand::checkpoint(instance), None);

    let add = |counter| ByHand::invoke(counter, "add".into(), vec![vec![2]]);
    let counter = ByHand::create("tour#counter".into(), vec![vec![5]]);
    assert_eq!(add(counter), [7]);
    let state = ByHand::checkpoint(counter).expect("it has a state");
    assert_eq!(add(ByHand::restore("counter".into(), state)), [9]);
}

/// The functions of a WIT file: `interface.function`, or `resource.function` for those of a resource.
fn functions(wit: &str) -> Vec<String> {
    let (mut interface, mut resource) = ("", "");
    let mut found = Vec::new();
    for line in wit.lines() {
        let text = line.trim();
        let mut words = text.split_whitespace();
        match words.next() {
            Some("interface") => interface = words.next().unwrap_or_default(),
            Some("resource") => resource = words.next().unwrap_or_default(),
            Some("}") if line.starts_with("    }") => resource = "",
            Some("///") | None => {}
            Some(_) => {
                let function = text
                    .split_once(": func")
                    .or(text.split_once(": static func"));
                if let Some((name, _)) = function {
                    let of = if resource.is_empty() {
                        interface
                    } else {
                        resource
                    };
                    found.push(format!("{of}.{}", name.trim_start_matches('%')));
                }
            }
        }
    }
    found
}

#[test]
fn the_table_has_all_that_the_wit_files_have() {
    let readme = include_str!("../README.md");
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `"));
    let table: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let files = [
        include_str!("../../../wit/tasks.wit"),
        include_str!("../../../wit/objects.wit"),
        include_str!("../../../wit/actors.wit"),
        include_str!("../../../wit/context.wit"),
        include_str!("../../../wit/fast.wit"),
    ];
    let functions: Vec<String> = files.into_iter().flat_map(functions).collect();
    assert_eq!(functions.len(), 34, "{functions:?}");
    for function in &functions {
        assert!(table.contains(&&function[..]), "the table lacks {function}");
    }
}
