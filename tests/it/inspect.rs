//! What `inspect` shows of a module: functions with the ways in which they fail, actor classes.

use serde_json::{Value as Json, json};
use wasmrun_tests::{Wasmrun, assert_says, guest};

fn inspect(name: &str) -> Wasmrun {
    Wasmrun::new(["inspect"]).arg(guest(name))
}

fn named<'a>(list: &'a Json, name: &str) -> &'a Json {
    let mut entries = list.as_array().expect("a list").iter();
    let found = entries.find(|entry| entry["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list:#}"))
}

#[test]
fn actor_classes_are_shown() {
    assert_says(
        &inspect("graph").ok(),
        &[
            "\nactors\n  wasmrun:graph/tests@0.1.0#counter\n    constructor(start: u64)\n    add: func(n: u64) -> u64\n",
            "    relay: func(other: actor, third: option<actor>) -> result<u64, string>\n      fails with string\n",
            "    keeps its state when it is started again",
            "    needs memory 4MiB\n  wasmrun:graph/trouble@0.1.0#busy\n    constructor()\n",
            "    needs memory 8MiB\n",
        ],
    );
    let json = inspect("graph").json(0);
    let counter = named(&json["actors"], "counter");
    assert_eq!(
        counter["constructor"]["params"],
        json!([{"name": "start", "type": "u64"}])
    );
    assert_eq!(counter["can_checkpoint"], true);
    assert_eq!(
        counter["settings"],
        json!({"resources": {"memory": "4MiB"}})
    );
    let relay = named(&counter["methods"], "relay");
    assert_eq!(relay["errors"], json!([{"case": null, "type": "string"}]));
    assert_eq!(named(&json["actors"], "busy")["can_checkpoint"], false);
    // What has none says so.
    assert_eq!(inspect("orders").json(0)["actors"], json!([]));
}

#[test]
fn ways_to_fail_are_shown_one_by_one() {
    let says = [
        "#price: func(",
        "\n      fails with one of\n        empty\n        bad-item(record { index: u32, reason: string })\n",
        "        too-large\n      needs CPU 0.1",
    ];
    assert_says(&inspect("orders").ok(), &says);
    let json = inspect("orders").json(0);
    let errors = &named(&json["functions"], "price")["errors"];
    assert_eq!(errors[0], json!({"case": "empty", "type": null}));
    assert_eq!(
        errors[2],
        json!({"case": "unknown-coupon", "type": "string"})
    );
    assert_eq!(named(&json["functions"], "price-all")["errors"], Json::Null);
}

#[test]
fn the_error_of_the_sdk_is_spelled_out_once() {
    let text = inspect("word-count").ok();
    let says = [
        "#reduce: func(parts: list<object>, count: u32) -> result<record { words: u64, different: u64, ",
        " }, error>\n      fails with error\n",
        "\ntypes\n  error: one of\n    failed(record { kind: enum { guest, trap, ",
        "\n    timed-out\n    deadlock(string)\n    refused(string)\n",
    ];
    assert_says(&text, &says);
    assert_eq!(text.matches("timed-out").count(), 1, "{text}");
    let json = inspect("word-count").json(0);
    let errors = &named(&json["functions"], "reduce")["errors"];
    assert_eq!(errors[1], json!({"case": "timed-out", "type": null}));
    assert!(!inspect("orders").ok().contains("\ntypes\n"));
}
