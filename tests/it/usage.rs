//! Help, completions, and errors of wrong usage.

use wasmrun_tests::{Wasmrun, assert_says};

#[test]
fn wrong_usage() {
    for (args, says) in [
        (&["bogus"][..], "unrecognized subcommand 'bogus'"),
        (&[], "Usage: wasmrun"),
        (&["submit"], "<MODULE>"),
        (
            &["submit", "x.wasm", "--cpu", "1"],
            "a similar argument exists: '--cpus'",
        ),
        (
            &["submit", "x.wasm", "-o", "xml"],
            "possible values: table, json, quiet",
        ),
        (&["submit", "x.py", "-i", "f()"], "has no functions to call"),
        (&["submit", "x.py"], "cannot read the script x.py"),
        (&["submit", "x.ts", "-i", "f()"], "has no functions to call"),
        (&["submit", "x.ts"], "`npx wasmrun submit x.ts`"),
        (&["run", "x.ts"], "`npx wasmrun submit x.ts`"),
        (&["run", "x.wasm"], "its name must end with .py, .js or .ts"),
        (&["inspect"], "<MODULE>"),
        (&["submit", "x.wasm", "add(1, 2)"], "--invoke 'add(1, 2)'"),
        (
            &["submit", "--net", "10.0.0.1:80", "x.wasm"],
            "--net=10.0.0.1:80",
        ),
        (&["submit", "--net", "10.0.0.1:80"], "--net=10.0.0.1:80"),
        (
            &["node", "start", "--metrics", "127.0.0.1:99999"],
            "--metrics=127.0.0.1:99999",
        ),
        (
            &["job", "show", "a", "b"],
            "`job show` takes one job: run it once for each",
        ),
        (
            &["submit", "https://example.com/x.wasm"],
            "`curl -LO https://example.com/x.wasm`",
        ),
        (&["inspect", "oci://x"], "download it first"),
        (
            &["submit", "x.wasm", "--memory", "64"],
            "did you mean 64MiB?",
        ),
        (&["submit", "x.wasm", "--dir", "./a:/b"], "./a::/b"),
        (&["completions", "cmd"], "possible values: bash"),
        (&["bench", "--runs", "0"], "--runs"),
        (&["submit", "x.wasm", "--cpus", "-1"], "'-1' is negative"),
        (
            &["submit", "x.wasm", "--memory", "-5MiB"],
            "stands behind an equals sign: --memory=-5MiB",
        ),
        (
            &["submit", "x.wasm", "--priority", "high"],
            "'high' for '--priority <N>': it must be a whole number, such as 10",
        ),
        (
            &["list", "tasks", "--limit", "99999999999999999999"],
            "it is too large; write a smaller number",
        ),
        (
            &["list", "tasks", "--limit", "-1"],
            "'-1' for '--limit <N>': -1 is not in 1..=4294967295",
        ),
    ] {
        Wasmrun::new(args).fails_saying(2, &[says]);
    }
}

#[test]
fn an_address_that_can_be_no_socket_is_refused_with_advice() {
    let said = Wasmrun::new(["status", "--address", "unix:/dev/null/node.sock"]).fails(4);
    assert_says(
        &said,
        &[
            "cannot connect to unix:/dev/null/node.sock: ",
            "a part of the path is a file: check the address",
        ],
    );
}

#[test]
fn help_and_version() {
    let version = Wasmrun::new(["--version"]).ok();
    assert_eq!(version, format!("wasmrun {}\n", env!("CARGO_PKG_VERSION")));
    let help = Wasmrun::new(["--help"]).ok();
    for command in [
        "submit",
        "inspect",
        "annotate",
        "bench",
        "doctor",
        "completions",
    ] {
        assert_says(&help, &[&format!("\n  {command}")]);
    }
    assert!(!help.contains("idle-node"), "{help}");
    let help = Wasmrun::new(["submit", "--help"]).ok();
    for option in [
        "--invoke",
        "--arg-file",
        "--json-args",
        "--array",
        "--from-lines",
        "--from-json",
        "--each",
        "--name",
        "--result-file",
        "--stdin",
        "--cpus",
        "--gpus",
        "--memory",
        "--resource",
        "--dir",
        "--net",
        "--env",
        "--time-limit",
        "--max-output",
        "--max-arguments",
        "--max-result",
        "--node-cpus",
        "--node-gpus",
        "--node-memory",
        "--node-resource",
        "--cache-dir",
        "--cache-size",
        "--max-stack",
        "--max-module",
        "--max-sandboxes",
        "--output",
        "--verbose",
        "--quiet",
    ] {
        assert!(help.contains(option), "{option} is not in:\n{help}");
    }
    for heading in ["Resources:", "Grants:", "Limits:", "Node options:"] {
        assert!(help.contains(heading), "{heading} is not in:\n{help}");
    }
    // Every limit names its default.
    for default in [
        "[default: 256MiB]",
        "[default: 64MiB]",
        "[default: 1MiB]",
        "[default: 1000]",
    ] {
        assert!(help.contains(default), "{default} is not in:\n{help}");
    }
}

#[test]
fn help_begins_with_what_people_need_first() {
    let headings = [
        "Arguments:\n",
        "\nWhat to run:\n",
        "\nArrays:\n",
        "\nResources:\n",
        "\nLimits:\n",
        "\nGrants:\n",
        "\nScheduling:\n",
        "\nNode options:\n",
        "\nOutput and connection:\n",
        "--help",
    ];
    let all = Wasmrun::new(["submit", "--help"]).ok();
    let summary = Wasmrun::new(["submit", "-h"]).ok();
    for help in [&all, &summary] {
        assert_says(help, &headings);
        assert!(!help.contains("\nOptions:"), "{help}");
    }
    // The details are for those who want all.
    let detail = "group:ID:BUNDLE";
    assert!(all.contains(detail) && !summary.contains(detail));
    // A line for each option.
    let options = summary.lines().skip_while(|line| *line != "Arguments:");
    for line in options.filter(|line| line.starts_with(' ')) {
        let is_begun = line.trim_start().starts_with(['-', '<', '[']);
        assert!(is_begun && line.chars().count() <= 100, "{line}\n{summary}");
    }
}

#[test]
fn completions_for_shells() {
    for (shell, says) in [
        ("bash", "complete -F _wasmrun"),
        ("zsh", "#compdef wasmrun"),
        ("fish", "complete -c wasmrun"),
    ] {
        let script = Wasmrun::new(["completions", shell]).ok();
        assert_says(&script, &[says]);
        assert!(
            script.contains("annotate") && script.contains("time-limit"),
            "{shell}"
        );
    }
}
