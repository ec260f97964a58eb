//! Every limit is met, and what is said then is what `docs/limits.md` says.
//!
//! Owns a way into each limit of the page's table of errors. A row of the page without one fails the test, and so does
//! one here without a row.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use wasmrun_tests::{Wasmrun, guest, scratch};

use crate::limits::slow_to_compile;
use crate::node::Node;

const PAGE: &str = include_str!("../../docs/limits.md");

/// The page's table of errors: by limit, what is said, with `…` for what differs.
fn rows() -> BTreeMap<&'static str, &'static str> {
    let (_, section) = PAGE
        .split_once("\n## What they say\n")
        .expect("the page has this section");
    let (section, _) = section.split_once("\n## ").expect("and others after it");
    let rows = section.lines().filter_map(|line| {
        let (limit, said) = line.strip_prefix("| ")?.split_once(" | `")?;
        Some((limit, said.strip_suffix("` |")?))
    });
    rows.collect()
}

/// Whether a text has these words, one after the other, with anything for each `…`.
fn has(text: &str, words: &str) -> bool {
    // Lines of an error are words that follow each other.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = &text[..];
    words.split('…').all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

fn graph(call: &str, options: &[&str]) -> Wasmrun {
    let run = Wasmrun::submit("graph").args(["--invoke", call]);
    run.args(options)
}

fn fixture(call: &str, options: &[&str]) -> Wasmrun {
    Wasmrun::call(call).args(options)
}

fn noop(options: &[&str]) -> Wasmrun {
    fixture("noop()", options)
}

/// Longer than any name may be, in bytes.
const LONG: usize = 300;

/// What is said at each limit.
fn met(dir: &Path) -> BTreeMap<&'static str, String> {
    let store = ["--object-memory", "20MiB", "--put-wait", "100ms"];
    let spilled = [
        "--spill-size",
        "30MiB",
        "--spill-dir",
        dir.to_str().expect("a plain path"),
    ];
    let file = format!("1={}", guest("fixture").display());
    let uncached = ["--cache-dir", "none"];
    let slow = Wasmrun::submit_file(slow_to_compile(dir)).args(uncached);
    let runs = [
        ("memory", fixture("allocate(100)", &["--memory", "64MiB"])),
        ("time", fixture("spin()", &["--time-limit", "100ms"])),
        ("stack", fixture("recurse()", &[])),
        ("output", fixture("flood()", &["--max-output", "64KiB"])),
        (
            "arguments",
            fixture(
                "echo-bytes()",
                &["--arg-file", &file, "--max-arguments", "64KiB"],
            ),
        ),
        (
            "arguments that a guest gives",
            Wasmrun::submit("by-hand").args([
                "--invoke",
                "survey(100, 100)",
                "--max-arguments",
                "1KiB",
            ]),
        ),
        (
            "result",
            fixture("join(\"abcdefghij\", 2, none)", &["--max-result", "16"]),
        ),
        ("module size", noop(&["--max-module", "10KiB"])),
        (
            "nested tasks",
            graph(
                "spawn-many(11)",
                &["--node-cpus", "1", "--max-nested", "10"],
            ),
        ),
        ("time to compile", slow.args(["--max-compile-time", "1s"])),
        (
            "memory to compile",
            noop(&["--max-compile-memory", "20MiB"]).args(uncached),
        ),
        (
            "sandboxes",
            Wasmrun::submit("sdk").args(["--invoke", "fib(10)", "--max-sandboxes", "3"]),
        ),
        ("object store", graph("hoard(100, 1024)", &store)),
        (
            "object store, with a disk",
            graph("hoard(100, 1024)", &store).args(spilled),
        ),
        (
            "one object",
            graph("put-and-get(20000000)", &["--object-memory", "4MiB"]),
        ),
        ("a secret", secret(dir, "KEY")),
        ("a secret's name", secret(dir, &"x".repeat(LONG))),
    ];
    let said = runs.into_iter().chain(asked()).map(|(limit, run)| {
        let ended = run.run();
        assert!(matches!(ended.code, Some(2..=6)), "{limit}: {ended}");
        (limit, ended.stderr)
    });
    said.chain(at_a_node()).collect()
}

/// Sets a secret of this name, of more bytes than may be.
fn secret(dir: &Path, name: &str) -> Wasmrun {
    let value = dir.join("secret");
    fs::write(&value, vec![b'x'; (64 << 10) + 2]).expect("there is room");
    let set = Wasmrun::new(["secret", "set", name, "--from-file"]);
    set.arg(value)
}

/// What asks for more than may be asked for, or for nothing that there is.
fn asked() -> Vec<(&'static str, Wasmrun)> {
    let long = "x".repeat(LONG);
    vec![
        (
            "CPUs of one task",
            noop(&["--cpus", "4", "--max-cpus", "2"]),
        ),
        (
            "GPUs of one task",
            noop(&["--gpus", "2", "--max-gpus", "1", "--node-gpus", "4"]),
        ),
        (
            "memory of one task",
            noop(&["--memory", "65MiB", "--max-memory", "64MiB"]),
        ),
        (
            "another resource of one task",
            noop(&[
                "--resource",
                "tpu=2",
                "--max-resource",
                "tpu=1",
                "--node-resource",
                "tpu=2",
            ]),
        ),
        (
            "time of one task",
            noop(&["--time-limit", "10s", "--max-time-limit", "5s"]),
        ),
        ("what the nodes have", noop(&["--gpus", "1"])),
        ("indices of an array", noop(&["--array", "0-10000000"])),
        ("a tenant's name", noop(&["--tenant", &long])),
        ("parts of a tenant's name", noop(&["--tenant", "a/b/c/d/e"])),
        (
            "a resource's name",
            noop(&["--resource", &format!("{long}=1")]),
        ),
        ("a label's key", noop(&["--label-selector", &long])),
        ("a node's name", noop(&["--node-name", &long])),
        (
            "an actor's name",
            graph(&format!("by-name(\"{long}\")"), &[]),
        ),
    ]
}

/// What a node that runs says.
fn at_a_node() -> [(&'static str, String); 6] {
    let mut node = Node::new();
    node.start_with(&["--max-module", "10KiB"]);
    let upload = node.submit("noop()").fails(2);
    let group = |bundles: usize| {
        let create = node.wasmrun(["group", "create", "--detach"]);
        let create = create.args(["--kind", "pack"]);
        create.args(["--bundle", "cpus=0.001,memory=0"].repeat(bundles))
    };
    let bundles = group(257).fails(2);
    for _ in 0..100 {
        group(1).ok();
    }
    let other = Node::start();
    let refused = |tenant: &str, quota: &[&str]| {
        let set = other.wasmrun(["tenant", "set", tenant]).args(quota);
        set.ok();
        let submit = other.wasmrun(["submit", "--tenant", tenant]);
        let submit = submit.arg(guest("fixture")).args(["--invoke", "noop()"]);
        submit.run().stderr
    };
    let set = ["tenant", "set", "flat", "--max-objects", "64KiB"];
    other.wasmrun(set).ok();
    let put = other.wasmrun(["put", "--tenant", "flat"]);
    let put = put.arg(guest("fixture")).run().stderr;
    [
        ("a tenant's quota", refused("small", &["--max", "CPU=0.5"])),
        (
            "tasks of a tenant that wait",
            refused("full", &["--max-waiting", "0"]),
        ),
        ("memory of a tenant for objects", put),
        ("module size, at a node that runs", upload),
        ("bundles of a placement group", bundles),
        ("placement groups of a tenant", group(1).run().stderr),
    ]
}

#[test]
fn each_limit_says_what_the_page_says() {
    let dir = scratch();
    let (rows, met) = (rows(), met(dir.path()));
    assert_eq!(
        rows.keys().collect::<Vec<_>>(),
        met.keys().collect::<Vec<_>>(),
        "limits of the page, and those that are met here"
    );
    for (limit, said) in met {
        assert!(
            has(&said, rows[limit]),
            "{limit}: the page has\n{}\nand it said\n{said}",
            rows[limit]
        );
    }
}
