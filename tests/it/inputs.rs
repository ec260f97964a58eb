//! Arrays of inputs: one task per line, JSON value or file; and arguments as JSON.

use std::fs;

use serde_json::json;
use tempfile::TempDir;
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

use crate::node::Node;

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let dir = scratch();
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

/// A call of the fixture's for each line of a text.
fn lines(call: &str, text: &str) -> Wasmrun {
    each_of("--from-lines", call, text)
}

/// A call of the fixture's for each value of a text.
fn values(call: &str, text: &str) -> Wasmrun {
    each_of("--from-json", call, text)
}

fn each_of(option: &str, call: &str, text: &str) -> Wasmrun {
    Wasmrun::call(call).args([option, "-"]).stdin(text)
}

/// A program for each line or value of a text, one at a time.
fn program(option: &str, text: &str) -> Wasmrun {
    let run = Wasmrun::submit("prog").args(["--node-cpus", "1", option, "-"]);
    run.stdin(text)
}

#[test]
fn a_line_is_an_argument_of_its_type() {
    assert_eq!(
        lines("echo-u32($line)", "1\n20\r\n3").ok(),
        "[0] 1\n[1] 20\n[2] 3\n"
    );
    // Of a string it is the text, whatever stands in it; a last end of line begins no line.
    assert_eq!(
        lines("join($line, 1, none)", "a\", 2\n\n$i ${line}\n").ok(),
        "[0] \"a\\\", 2\"\n[1] \"\"\n[2] \"$i ${line}\"\n"
    );
    assert_eq!(
        lines("echo-record(${line})", "{x: 1, y: -2}\n").ok(),
        "[0] {x: 1, y: -2}\n"
    );
    // The index is there, too, and a dollar sign.
    assert_eq!(
        lines("join($line, $i, some(\"$$line\"))", "a\nb").ok(),
        "[0] \"$line\"\n[1] \"b$line\"\n"
    );
    // The name alone will do where there is one argument.
    assert_eq!(lines("echo-f64", "0.5").ok(), "[0] 0.5\n");
    lines("join", "a").fails_saying(2, &["cannot call join(", "'join($line, …)'"]);
    lines("noop", "a").fails_saying(2, &["cannot call noop("]);
}

#[test]
fn a_bad_line_is_found_before_anything_runs() {
    let dir = folder(&[
        ("numbers", b"1\nx\n3\n"),
        ("bytes", b"a\nb\xff\n"),
        ("empty", b""),
    ]);
    let run =
        |call: &str, name: &str| Wasmrun::call(call).args(["--from-lines", &path(&dir, name)]);
    let ended = run("echo-u8($line)", "numbers").run();
    assert_eq!((ended.code, ended.stdout.len()), (Some(2), 0), "{ended}");
    assert_says(
        &ended.stderr,
        &[
            "error: cannot call echo-u8(v: u8) -> u8 with line 2 of ",
            "numbers\n  because: value: expected u8, found x\n",
        ],
    );
    // No line adds arguments.
    lines("join(\"a\", $line)", "1, some(\"b\")")
        .fails_saying(2, &["with line 1 of <stdin>", "because: "]);
    for (name, says) in [
        ("bytes", "bytes is not UTF-8"),
        ("empty", "there is no line in "),
        ("none", "cannot read "),
    ] {
        run("echo-string($line)", name).fails_saying(2, &["error: ", says]);
    }
    for (call, says) in [
        ("echo-string()", "has no $line in it"),
        ("echo-list-string([$line])", "must be a whole one"),
    ] {
        run(call, "numbers").fails_saying(2, &["error: ", says]);
    }
    run("echo-string($line)", "bytes").fails_saying(2, &["line 2 of"]);
}

#[test]
fn a_line_is_an_argument_of_a_program() {
    let run = |args: &[&str], text: &str| program("--from-lines", text).program(args).ok();
    // The last one, unless it is named.
    assert_eq!(
        run(&["args", "a"], "x y\nz"),
        "[0] a\n[0] x y\n[1] a\n[1] z\n"
    );
    assert_eq!(run(&["args", "<$line>", "$i"], "x y"), "[0] <x y>\n[0] 0\n");
    let slip = program("--from-lines", "x")
        .program(["args", "$lines"])
        .run();
    assert_says(&slip.stderr, &["warning: $lines", "did you mean $line?"]);
    assert_eq!(
        run(&["env"], "WASMRUN_ARRAY_INDEX\nWASMRUN_ARRAY_INDEX"),
        "[0] 0\n[1] 1\n"
    );
}

#[test]
fn values_are_arguments() {
    assert_eq!(values("echo-u32($json)", "[1, 2]").ok(), "[0] 1\n[1] 2\n");
    assert_eq!(values("echo-u32", "1\n\n2\n").ok(), "[0] 1\n[1] 2\n");
    assert_eq!(
        values("join($json, 2, none)", "[\"a\", \"b\"]").ok(),
        "[0] \"aa\"\n[1] \"bb\"\n"
    );
    assert_eq!(
        values("echo-bytes", "{\"base64\": \"AQI=\"}\n[3]").ok(),
        "[0] [1, 2]\n[1] [3]\n"
    );
    // All arguments, in their order or by their names.
    let all = "[\"a\", 2]\n{\"times\": 1, \"first\": \"b\", \"last\": \"c\"}\n";
    assert_eq!(values("join", all).ok(), "[0] \"aa\"\n[1] \"bc\"\n");
    let run = program("--from-json", "{\"b\": 1.0, \"a\": [ ]}\n");
    assert_eq!(run.program(["args"]).ok(), "[0] {\"b\":1.0,\"a\":[]}\n");
}

#[test]
fn a_bad_value_is_found_before_anything_runs() {
    for (call, text, says) in [
        (
            "join",
            "[[\"a\", 1], {\"first\": \"a\", \"times\": -1}]",
            &[
                "with value [1] of <stdin>",
                "args.times: -1 does not fit u32",
            ][..],
        ),
        (
            "echo-person($json)",
            "{}\n",
            &["with line 1 of <stdin>", "field \"full-name\" is missing"],
        ),
        ("echo-u8", "1\n\n{\n", &["line 3 of <stdin> is not JSON: "]),
        ("echo-u8", "[1,\n2", &["<stdin> is not JSON: ", "line 2"]),
        ("echo-u8", "[]", &["there is no value in <stdin>"]),
        ("echo-u8(1)", "[1]", &["has no $json in it"]),
        ("noop", "[1]", &["cannot call noop("]),
    ] {
        let ended = values(call, text).run();
        assert_eq!((ended.code, ended.stdout.len()), (Some(2), 0), "{ended}");
        assert_says(&ended.stderr, says);
    }
}

#[test]
fn files_are_arguments() {
    let dir = folder(&[("b.txt", b"B"), ("a.txt", b"A"), (".c.txt", b"C")]);
    let all = path(&dir, "*.txt");
    let run = |call: &str| Wasmrun::call(call).args(["--each", &all]).ok();
    assert_eq!(run("echo-string($file)"), "[0] \"A\"\n[1] \"B\"\n");
    assert_eq!(run("echo-bytes"), "[0] [65]\n[1] [66]\n");
    assert_eq!(run("echo-string($name)"), "[0] \"a.txt\"\n[1] \"b.txt\"\n");
    assert_eq!(
        run("join($path, 1, some(\" $i\"))"),
        format!(
            "[0] \"{} 0\"\n[1] \"{} 1\"\n",
            path(&dir, "a.txt"),
            path(&dir, "b.txt")
        )
    );
    // A program gets the path, and reads the file where it may.
    let dir_grant = format!("{}:ro", dir.path().display());
    let program = |args: &[&str]| {
        let run = Wasmrun::submit("prog").args(["--node-cpus", "1", "--dir", &dir_grant]);
        let b = path(&dir, "b*");
        let run = run.args(["--each", &all, "--each", &b]);
        run.program(args).ok()
    };
    assert_eq!(program(&["read"]), "[0] A\n[1] B\n");
    assert_eq!(
        program(&["args", "$stem", "${name}"]),
        "[0] a\n[0] a.txt\n[1] b\n[1] b.txt\n"
    );
}

#[test]
fn files_that_are_no_arguments() {
    let dir = folder(&[("a", b"abc"), ("b", b"\xff")]);
    let run = |call: &str, glob: &str| {
        let run = Wasmrun::call(call).args(["--each", &path(&dir, glob)]);
        run.fails(2)
    };
    let none = run("echo-string($file)", "*.txt");
    assert_says(&none, &["error: no file matches --each '", "*.txt'"]);
    let doubles = run("echo-list-f64($file)", "a");
    assert_says(&doubles, &["3 bytes, not a whole number of f64"]);
    let text = run("echo-string($file)", "*");
    assert_says(
        &text,
        &["error: cannot call echo-string(", "not UTF-8 text"],
    );
    let number = run("echo-u8($file)", "a");
    assert_says(&number, &["only strings and lists of numbers"]);
    let pattern = run("echo-string($file)", "a**b");
    assert_says(&pattern, &["cannot look for --each '"]);
    let unnamed = run("echo-string(\"x\")", "a");
    assert_says(&unnamed, &["has no $file, $path, $name or $stem in it"]);
}

#[test]
fn arguments_as_json() {
    let run = |json: &str| Wasmrun::call("join").args(["--json-args", json]);
    assert_eq!(run("[\"a\", 2]").ok(), "\"aa\"\n");
    assert_eq!(run("{\"times\": 1, \"first\": \"$i\"}").ok(), "\"$i\"\n");
    let dir = folder(&[("args", b"[\"b\", 1, \"c\"]"), ("text", b"d")]);
    assert_eq!(run(&format!("@{}", path(&dir, "args"))).ok(), "\"bc\"\n");
    let file = format!("1={}", path(&dir, "text"));
    assert_eq!(run("[3]").args(["--arg-file", &file]).ok(), "\"ddd\"\n");
    assert_eq!(
        run("[\"a\", 2]").args(["--array", "4"]).ok(),
        "[4] \"aa\"\n"
    );
    for (run, says) in [
        (run("[\"a\"]"), "expected 2 or 3 arguments ("),
        (run("[\"a\", \"b\"]"), "args[1]: expected u32"),
        (run("3"), "expected an array or object of arguments"),
        (
            run("{\"first\": \"a\", \"times\": 1, \"times\": 2}"),
            "the key \"times\" is twice in one object",
        ),
        (run("[1"), "it must be JSON, such as [1, \"a\"], or @FILE"),
        (run("@/no/such/file"), "cannot read /no/such/file"),
        (run("[]").args(["--from-lines", "x"]), "cannot be used with"),
        (
            Wasmrun::call("join()").args(["--json-args", "[\"a\", 2]"]),
            "name the function alone, --invoke f",
        ),
        (
            Wasmrun::submit("prog").args(["--json-args", "[]"]),
            "--invoke",
        ),
    ] {
        run.fails_saying(2, &["error: ", says]);
    }
}

#[test]
fn one_thing_makes_an_array() {
    let ways = [
        ("--array", "0-1"),
        ("--from-lines", "x"),
        ("--from-json", "x"),
        ("--each", "x"),
    ];
    for (at, (one, what)) in ways.iter().enumerate() {
        for (other, of_it) in &ways[at + 1..] {
            let run = Wasmrun::call("noop").args([one, what, other, of_it]);
            run.fails_saying(2, &["cannot be used with"]);
        }
    }
}

#[test]
fn reports_have_what_each_task_was_for() {
    let inputs = |run: Wasmrun, code: i32| {
        let json = run.json(code);
        let tasks = json["tasks"].as_array().unwrap().iter();
        let part = |task: &serde_json::Value| (task["array_index"].clone(), task["input"].clone());
        tasks.map(part).collect::<Vec<_>>()
    };
    assert_eq!(
        inputs(lines("fail($line)", "a\n\n"), 5),
        [(json!(0), json!("a")), (json!(1), json!(""))]
    );
    assert_eq!(
        inputs(values("echo-u32", "[7, 8]"), 0),
        [(json!(0), json!(7)), (json!(1), json!(8))]
    );
    let dir = folder(&[("a", b"")]);
    let file = path(&dir, "a");
    let each = Wasmrun::call("echo-string").args(["--each", &file]);
    assert_eq!(inputs(each, 0), [(json!(0), json!(file))]);
}

#[test]
fn a_file_for_each_result_is_named_by_the_index() {
    let dir = folder(&[]);
    let run = |name: &str| lines("echo-string", "a\nb\n").args(["-O", &path(&dir, name)]);
    assert_eq!(run("out-$i").ok(), "");
    let read = |name: &str| fs::read_to_string(path(&dir, name)).unwrap();
    assert_eq!((&*read("out-0"), &*read("out-1")), ("a", "b"));
    run("out-$line").fails_saying(2, &["only $i stands for"]);
    run("out").fails_saying(2, &["put $i into its name"]);
}

#[test]
fn more_lines_than_are_submitted_ahead() {
    let text: String = (0..12_000).map(|n| format!("{n}\n")).collect();
    let out: String = (0..12_000).map(|n| format!("[{n}] {n}\n")).collect();
    assert_eq!(lines("echo-u32", &text).ok(), out);
}

#[test]
fn a_running_node_takes_them_too() {
    let node = Node::start();
    let run = |args: &[&str]| {
        let run = node.wasmrun(["submit"]).arg(guest("fixture"));
        let run = run.args(["--invoke", "echo-u32", "--from-lines", "-"]);
        run.args(args).stdin("5\n6\n")
    };
    assert_eq!(run(&[]).ok(), "[0] 5\n[1] 6\n");
    let json = run(&["--detach"]).json(0);
    let tasks = json["tasks"].as_array().unwrap();
    assert_eq!(
        (&tasks[0]["input"], &tasks[1]["input"]),
        (&json!("5"), &json!("6"))
    );
    assert_eq!(tasks[1]["array_index"], 1);
    assert_eq!(run(&["--detach"]).ok().lines().count(), 2);
}
