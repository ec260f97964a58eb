//! The examples that start tasks and actors of their own do their work.

use std::fs;

use wasmrun_tests::{Wasmrun, scratch};

#[test]
fn words_are_counted_by_tasks_of_tasks() {
    let dir = scratch();
    for (name, text) in [
        ("a.txt", "one two two three three three"),
        ("b.md", "three four"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let run = Wasmrun::submit("word-count")
        .args(["--dir", &format!("{}::/text:ro", dir.path().display())])
        .args(["--invoke", "top(\"/text\", 2, 3)"]);
    let json = run.json(0);
    let shown = json["result"].to_string();
    assert!(
        shown.contains("\"three\"") && shown.contains("\"two\""),
        "{shown}"
    );
    assert!(!shown.contains("\"four\""), "{shown}");
}

#[test]
fn a_policy_learns_from_actors() {
    let run = Wasmrun::submit("reinforce").args(["--invoke", "train(6, 4, 100)"]);
    let json = run.json(0);
    let last = json["result"]["ok"]["last-steps"].as_f64();
    assert!(last.is_some_and(|steps| steps > 200.0), "{json:#}");
}

#[test]
fn a_parameter_server_lowers_the_loss() {
    let run = Wasmrun::submit("parameter-server").args(["--invoke", "train(2, 8)"]);
    let json = run.json(0);
    let right = json["result"]["ok"]["right-percent"].as_f64();
    assert!(right.is_some_and(|percent| percent > 50.0), "{json:#}");
}

#[test]
fn without_an_sdk_all_can_be_done_too() {
    let survey = |call: &str| Wasmrun::submit("by-hand").args(["--invoke", call]).json(0);
    let json = survey("survey(200000, 7)");
    let summary = &json["result"]["ok"];
    assert_eq!(summary["count"], 200_000, "{json:#}");
    assert_eq!(summary["sum"], 99_900_000.0, "{json:#}");
    assert_eq!(
        (&summary["least"], &summary["most"]),
        (&0.0.into(), &999.0.into())
    );
    // More parts than measurements, and none.
    assert_eq!(survey("survey(2, 5)")["result"]["ok"]["sum"], 37.0);
    let none = Wasmrun::submit("by-hand")
        .args(["--invoke", "survey(0, 1)"])
        .fails(5);
    assert!(none.contains("there must be a measurement"), "{none}");
}

#[test]
fn a_picture_goes_through_tasks_that_map_it() {
    let dir = scratch();
    let run = Wasmrun::submit("image-pipeline")
        .args(["--dir", &format!("{}::/out", dir.path().display())])
        .args([
            "--invoke",
            "sketch(fractal({width: 320, height: 240}), \"/out\")",
        ]);
    run.ok();
    let png = fs::read(dir.path().join("sketch.png")).unwrap();
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
}
