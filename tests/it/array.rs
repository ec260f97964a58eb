//! Arrays: one task per index.

use std::fs;

use serde_json::{Value as Json, json};
use wasmrun_tests::{Wasmrun, assert_says, scratch};

#[test]
fn the_index_is_in_the_call() {
    let out = |call: &str, indices: &str| Wasmrun::call(call).args(["--array", indices]).ok();
    assert_eq!(out("echo-u32($i)", "1-3"), "[1] 1\n[2] 2\n[3] 3\n");
    assert_eq!(
        out("echo-string(\"$i-${i}0-$$i\")", "7"),
        "[7] \"7-70-$i\"\n"
    );
    assert_eq!(
        out("echo-list-option([some($i), none])", "0-1"),
        "[0] [some(0), none]\n[1] [some(1), none]\n"
    );
    // The function's own name, too.
    assert_eq!(out("echo-u${i}(1)", "8,16,32"), "[8] 1\n[16] 1\n[32] 1\n");
}

#[test]
fn the_index_is_in_the_arguments_and_the_environment() {
    for guest in ["prog", "prog-p1"] {
        let run = Wasmrun::submit(guest).args(["--array", "1-2", "--node-cpus", "1"]);
        let out = run.program(["args", "a$i", "$$i", "${i}b", "$index"]).ok();
        assert_eq!(
            out,
            "[1] a1\n[1] $i\n[1] 1b\n[1] $index\n[2] a2\n[2] $i\n[2] 2b\n[2] $index\n"
        );
        let run = Wasmrun::submit(guest).args(["--array", "5", "--node-cpus", "1"]);
        assert_eq!(run.program(["env"]).ok(), "[5] WASMRUN_ARRAY_INDEX=5\n");
    }
    let json = Wasmrun::call("context-info()")
        .args(["--array", "5"])
        .json(0);
    assert_eq!(json["tasks"][0]["result"]["array-index"], 5);
    assert_eq!(
        Wasmrun::call("context-info()").json(0)["result"]["array-index"],
        Json::Null
    );
}

#[test]
fn indices_as_written() {
    for (indices, expected) in [
        ("0", vec![0]),
        ("3-5", vec![3, 4, 5]),
        ("1-9:4", vec![1, 5, 9]),
        ("8,2-3,1", vec![8, 2, 3, 1]),
    ] {
        let out = Wasmrun::call("echo-u32($i)")
            .args(["--array", indices])
            .ok();
        let lines: String = expected.iter().map(|i| format!("[{i}] {i}\n")).collect();
        assert_eq!(out, lines, "{indices}");
    }
    for (indices, says) in [
        ("3-1", "'3-1' runs backwards: write 1-3"),
        ("1-5:0", "'1-5:0' has a step of 0"),
        ("a-b", "'a-b' is not a range: write 0-31, 1-9:2 or 7"),
        ("", "is not a range"),
        ("1,,2", "'' is not a range"),
        ("0-99999999", "has more than 10000000 indices"),
        ("0-18446744073709551615", "has more than 10000000 indices"),
    ] {
        Wasmrun::call("noop()")
            .args(["--array", indices])
            .fails_saying(2, &["error: ", says]);
    }
}

#[test]
fn results_are_in_the_order_of_the_indices() {
    // Those that come first take longest.
    let run = |format: &str| {
        Wasmrun::call("sleep(${i}0)").args([
            "--array",
            "5,4,3,2,1",
            "--node-cpus",
            "5",
            "-o",
            format,
        ])
    };
    run("table").ok();
    let json: Json = serde_json::from_str(&run("json").ok()).unwrap();
    let tasks = json["tasks"].as_array().unwrap();
    let order: Vec<_> = tasks
        .iter()
        .map(|task| task["array_index"].as_u64().unwrap())
        .collect();
    assert_eq!(order, [5, 4, 3, 2, 1]);
    let out = Wasmrun::call("echo-u32($i)")
        .args(["--array", "0-999"])
        .ok();
    let lines: String = (0..1000).map(|i| format!("[{i}] {i}\n")).collect();
    assert_eq!(out, lines);
}

#[test]
fn more_tasks_than_are_submitted_ahead() {
    let ended = Wasmrun::call("echo-u32($i)")
        .args(["--array", "0-24999"])
        .run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let out = ended.stdout_text();
    assert_eq!(out.lines().count(), 25_000);
    assert_eq!(out.lines().last(), Some("[24999] 24999"));
    assert_says(&ended.stderr, &["echo-u32: 25000 finished, 0 failed in "]);
}

#[test]
fn failures_are_named_and_do_not_stop_the_others() {
    let ended = Wasmrun::call("fail(\"no $i\")")
        .args(["--array", "1-3"])
        .run();
    assert_eq!(ended.code, Some(5), "{ended}");
    assert_says(
        &ended.stderr,
        &[
            "[1] failed: the function returned an error: \"no 1\"\n",
            "[2] failed: the function returned an error: \"no 2\"\n",
            "[3] failed: the function returned an error: \"no 3\"\n",
            "fail: 0 finished, 3 failed in ",
            "error: 3 of 3 tasks did not finish\n",
        ],
    );
    // Of programs: some good, some bad.
    let ended = Wasmrun::submit("prog-p1")
        .args(["--array", "0-3"])
        .program(["exit", "$i"])
        .run();
    assert_eq!(ended.code, Some(5), "{ended}");
    assert_says(
        &ended.stderr,
        &[
            "[1] failed: the program exited with code 1\n",
            "[3] failed: the program exited with code 3\n",
            "prog-p1.wasm: 1 finished, 3 failed in ",
            "error: 3 of 4 tasks did not finish\n",
        ],
    );
    let ended = Wasmrun::call("allocate(${i}00)")
        .args(["--array", "1-2", "--memory", "150MiB"])
        .run();
    assert_eq!(
        (ended.code, &ended.stdout_text()[..]),
        (Some(5), "[1] 100\n"),
        "{ended}"
    );
    assert_says(
        &ended.stderr,
        &["[2] failed: memory limit of 150 MiB reached", "[2]     at "],
    );
}

#[test]
fn a_bad_call_for_one_index_runs_nothing() {
    // 256 does not fit: everything is checked before anything runs.
    let ended = Wasmrun::call("echo-u8($i)")
        .args(["--array", "254-257"])
        .run();
    assert_eq!((ended.code, ended.stdout.len()), (Some(2), 0), "{ended}");
    assert_says(&ended.stderr, &["error: ", "256 does not fit u8"]);
}

#[test]
fn an_array_that_no_node_can_serve() {
    Wasmrun::call("noop()")
        .args(["--array", "0-9", "--gpus", "1"])
        .fails_saying(3, &["error: no node can ever run this task: GPU: needs 1"]);
}

#[test]
fn time_limits_in_an_array() {
    let run = Wasmrun::call("sleep-forever()").args(["--array", "0-3", "--time-limit", "150ms"]);
    run.fails_saying(
        6,
        &[
            "[0] failed: time limit of 150ms reached",
            "0 finished, 4 failed",
        ],
    );
}

#[test]
fn what_arrays_report_in_json() {
    let json = Wasmrun::submit("prog-p1")
        .args(["--array", "0-1", "--name", "mine"])
        .program(["exit", "$i"])
        .json(5);
    assert_eq!(json["version"], 1);
    let tasks = json["tasks"].as_array().unwrap();
    let field = |name: &str| {
        tasks
            .iter()
            .map(|task| task[name].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(field("array_index"), [0, 1]);
    assert_eq!(field("state"), ["finished", "failed"]);
    assert_eq!(field("exit_code"), [0, 1]);
    assert_eq!(field("name"), ["mine", "mine"]);
    assert_ne!(tasks[0]["task_id"], tasks[1]["task_id"]);
    let json = Wasmrun::submit("prog")
        .args(["--array", "0-1"])
        .program(["args", "$i"])
        .json(0);
    let printed: Vec<_> = json["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["stdout"])
        .collect();
    assert_eq!(printed, [&json!("0\n"), &json!("1\n")]);
}

/// Before any task runs, which would be for nothing.
#[test]
fn where_results_cannot_be_written_is_said_before_the_work() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).display().to_string();
    fs::write(path("file"), "").unwrap();
    for (out, why) in [
        (path("nowhere/out"), "nowhere; make it first"),
        (path(""), "it is a folder; name a file in it"),
        (
            path("file/out"),
            "a part of its path is a file; name another",
        ),
    ] {
        Wasmrun::call("spin()")
            .args(["-O", &out])
            .fails_saying(2, &["cannot write to ", why]);
        let all = format!("{out}-$i");
        if !out.ends_with('/') {
            let array = Wasmrun::call("spin()").args(["--array", "0-9", "-O", &all]);
            array.fails_saying(2, &["cannot write to ", why]);
        }
    }
}

#[test]
fn results_into_files() {
    let dir = scratch();
    let pattern = |name: &str| dir.path().join(name).display().to_string();
    let ended = Wasmrun::call("echo-bytes([$i, 10])")
        .args(["--array", "0-2", "-O", &pattern("part-$i.bin")])
        .run();
    assert_eq!((ended.code, ended.stdout.len()), (Some(0), 0), "{ended}");
    for i in 0..3 {
        assert_eq!(
            fs::read(dir.path().join(format!("part-{i}.bin"))).unwrap(),
            [i, 10]
        );
    }
    for guest in ["prog", "prog-p1"] {
        Wasmrun::submit(guest)
            .args(["--array", "0-2", "-O", &pattern("out-${i}")])
            .program(["args", guest, "$i"])
            .ok();
        for i in 0..3 {
            let text = fs::read_to_string(dir.path().join(format!("out-{i}"))).unwrap();
            assert_eq!(text, format!("{guest}\n{i}\n"));
        }
    }
    Wasmrun::call("echo-u32($i)")
        .args(["--array", "0-2", "-O", &pattern("same")])
        .fails_saying(
            2,
            &[
                "all tasks of the array would write to ",
                "same: put $i into its name",
            ],
        );
}

#[test]
fn the_same_input_for_each() {
    let dir = scratch();
    let path = dir.path().join("in");
    fs::write(&path, "line\n").unwrap();
    let run = Wasmrun::submit("prog-p1").args(["--array", "0-1", "--node-cpus", "1"]);
    assert_eq!(
        run.arg("--stdin").arg(&path).program(["cat"]).ok(),
        "[0] line\n[1] line\n"
    );
    // Ours could only go to one of them, so none gets it.
    let run = Wasmrun::submit("prog-p1")
        .args(["--array", "0-1"])
        .stdin("ours");
    assert_eq!(run.program(["cat"]).ok(), "");
}

#[test]
fn lines_of_output_stay_whole() {
    let line = "x".repeat(1000);
    let ended = Wasmrun::submit("prog-p1")
        .args(["--array", "0-199"])
        .program(["args", &line, &line])
        .run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let out = ended.stdout_text();
    assert_eq!(out.lines().count(), 400);
    for printed in out.lines() {
        let (index, rest) = printed.split_once("] ").unwrap();
        assert!(index.starts_with('[') && rest == line, "{printed}");
    }
}
