//! Scheduling: tasks that are tried again, variants of what they ask for, and where they may run.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value as Json, json};
use wasmrun_tests::{Stream, Wasmrun, assemble, assert_says, guest, scratch};

/// A call that fails in this way before attempt `at` (from 0), and says so on stderr.
fn succeed_at(at: u32, before: &str) -> Wasmrun {
    Wasmrun::call(&format!("succeed-at({at}, {before}, \"x\", [1.5, -2])"))
}

/// Asserts that the guest's attempts before this one failed, and that no other one did.
#[track_caller]
fn assert_failed_before(attempt: u32, stderr: &str) {
    let said = stderr.lines().filter(|line| line.starts_with("attempt "));
    let expected = (0..attempt).map(|attempt| format!("attempt {attempt} fails"));
    assert!(said.eq(expected), "{attempt} attempts fail: {stderr}");
}

/// The fixture with this manifest.
fn with_manifest(dir: &Path, functions: &Json) -> PathBuf {
    let (file, out) = (dir.join("manifest.json"), dir.join("module.wasm"));
    let manifest = json!({"version": 1, "functions": functions});
    fs::write(&file, manifest.to_string()).unwrap();
    Wasmrun::new(["annotate"])
        .arg(guest("fixture"))
        .arg("--manifest")
        .arg(&file)
        .arg("--out")
        .arg(&out)
        .ok();
    out
}

#[test]
fn what_may_not_be_the_tasks_own_fault_is_tried_again() {
    for failure in ["trap", "exit", "allocate"] {
        let ended = succeed_at(2, failure).args(["--retries", "2"]).run();
        assert_eq!(ended.code, Some(0), "{ended}");
        // The arguments are still there, and the guest knows which attempt it is.
        assert_eq!(ended.stdout_text(), "ok((2, \"x\", [1.5, -2]))\n");
        assert_failed_before(2, &ended.stderr);
    }
    // Both ways of building a guest.
    let call = "succeed-at(1, trap, \"x\", [])";
    let run = Wasmrun::submit("fixture-p1").args(["--invoke", call, "--retries", "1"]);
    assert_eq!(run.ok(), "ok((1, \"x\", []))\n");
}

#[test]
fn only_as_often_as_was_said() {
    for (failure, says) in [
        ("trap", "the guest trapped"),
        ("exit", "the guest exited with code 1"),
        ("allocate", "memory limit of 64 MiB reached"),
    ] {
        let stderr = succeed_at(1, failure).fails(5);
        assert_failed_before(1, &stderr);
        let stderr = succeed_at(9, failure).args(["--retries", "3"]).fails(5);
        assert_failed_before(4, &stderr);
        assert_says(&stderr, &["attempt 3 fails\n", "error: succeed-at: ", says]);
    }
    // What succeeds at once is not tried again.
    let out = succeed_at(0, "trap").args(["--retries", "3"]).ok();
    assert_eq!(out, "ok((0, \"x\", [1.5, -2]))\n");
}

#[test]
fn an_error_of_the_functions_own_is_an_answer() {
    let ended = succeed_at(1, "error").args(["--retries", "3"]).run();
    assert_eq!(ended.code, Some(5), "{ended}");
    assert_failed_before(1, &ended.stderr);
    assert_says(&ended.stderr, &["the function returned an error: \"x\""]);
    // As well where the module declares retries for it.
    Wasmrun::call("fail(\"no\")").fails_saying(5, &["the function returned an error: \"no\""]);
}

#[test]
fn an_error_of_the_functions_own_is_a_failure_where_that_is_said() {
    let run = |at: u32| succeed_at(at, "error").args(["--retries", "2", "--retry-on-error"]);
    assert_eq!(run(2).ok(), "ok((2, \"x\", [1.5, -2]))\n");
    // It is the answer in the end.
    let stderr = run(9).fails(5);
    assert_failed_before(3, &stderr);
    assert_says(&stderr, &["the function returned an error: \"x\""]);
    // It says what is a failure, not how often that is tried again.
    let stderr = succeed_at(1, "error").args(["--retry-on-error"]).fails(5);
    assert_failed_before(1, &stderr);
    // The module may say so.
    let dir = scratch();
    let functions = json!({"succeed-at": {"retries": 1, "retry_on_error": true}});
    let module = with_manifest(dir.path(), &functions);
    let call = "succeed-at(1, error, \"\", [])";
    let submit = || Wasmrun::submit_file(&module).args(["--invoke", call]);
    submit().ok();
    // And the command that it is not.
    let stderr = submit().args(["--retry-on-error=false"]).fails(5);
    assert_failed_before(1, &stderr);
    submit()
        .args(["--retry-on-error=perhaps"])
        .fails_saying(2, &["perhaps", "--retry-on-error"]);
}

#[test]
fn a_time_limit_is_that_of_each_attempt() {
    let run = |at: u32, limit: &str| {
        succeed_at(at, "spin").args(["--retries", "1", "--time-limit", limit])
    };
    assert_eq!(run(1, "1s").ok(), "ok((1, \"x\", [1.5, -2]))\n");
    let stderr = run(9, "150ms").fails(6);
    assert_failed_before(2, &stderr);
    assert_says(&stderr, &["time limit of 150ms reached"]);
}

#[test]
fn the_module_may_say_how_often() {
    let dir = scratch();
    let functions = json!({"succeed-at": {"retries": 1}, "*": {"retries": 3}});
    let module = with_manifest(dir.path(), &functions);
    let run = |at: u32, args: &[&str]| {
        let call = format!("succeed-at({at}, trap, \"\", [])");
        Wasmrun::submit_file(&module)
            .args(["--invoke", &call])
            .args(args)
    };
    run(1, &[]).ok();
    assert_failed_before(2, &run(2, &[]).fails(5));
    // What the submitter says counts, more or less.
    run(2, &["--retries", "2"]).ok();
    assert_failed_before(1, &run(1, &["--retries", "0"]).fails(5));
    // The program and the other functions have what is declared for all.
    let panic = Wasmrun::submit_file(&module).args(["--invoke", "panic(\"again\")"]);
    assert_eq!(panic.fails(5).matches("again\n").count(), 4);
}

#[test]
fn a_task_is_reported_once_however_often_it_is_tried() {
    let json = succeed_at(2, "trap").args(["--retries", "2"]).json(0);
    assert_eq!(json["state"], "finished", "{json:#}");
    assert_eq!(json["result"], json!({"ok": [2, "x", [1.5, -2.0]]}));
    assert_eq!(json["stderr"], "attempt 0 fails\nattempt 1 fails\n");
    assert_eq!(json["resource_ids"], json!({"CPU": [[0, "1"]]}));
    let json = succeed_at(9, "trap").args(["--retries", "2"]).json(5);
    assert_eq!(json["state"], "failed", "{json:#}");
    assert_eq!(json["error"]["kind"], "trap", "{json:#}");
    // The error is that of the last attempt.
    assert_eq!(json["error"]["stderr_tail"], "attempt 2 fails\n");
}

#[test]
fn arguments_from_files_are_there_again() {
    let dir = scratch();
    let numbers: Vec<f64> = (0..1000).map(|n| f64::from(n) / 8.0).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    fs::write(dir.path().join("numbers"), bytes).unwrap();
    fs::write(dir.path().join("text"), "héllo\n").unwrap();
    let json = Wasmrun::call("succeed-at(1, trap)")
        .args(["--arg-file", "3=text", "--arg-file", "4=numbers"])
        .args(["--retries", "1"])
        .dir(dir.path())
        .json(0);
    assert_eq!(json["result"], json!({"ok": [1, "héllo\n", numbers]}));
}

#[test]
fn each_task_of_an_array_has_its_own_attempts() {
    let out = Wasmrun::call("succeed-at($i, trap, \"$i\", [$i])")
        .args(["--array", "0-4", "--retries", "4"])
        .ok();
    let expected: String = (0..5)
        .map(|i| format!("[{i}] ok(({i}, \"{i}\", [{i}]))\n"))
        .collect();
    assert_eq!(out, expected);
    // Those that need more than they have fail, and no other.
    let ended = Wasmrun::call("succeed-at($i, trap, \"\", [])")
        .args(["--array", "0-4", "--retries", "2"])
        .run();
    assert_eq!(ended.code, Some(5), "{ended}");
    assert_eq!(ended.stdout_text().lines().count(), 3, "{ended}");
    assert_says(&ended.stderr, &["3 finished, 2 failed", "2 of 5 tasks"]);
}

/// A program that copies its input and then exits with code 7, but for the attempt that finds the
/// directory that an earlier one made.
const SECOND_TIME_LUCKY: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read"
        (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write"
        (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_create_directory"
        (func $mkdir (param i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\00\01\00\00\00\10\00\00")
    (data (i32.const 32) "tried")
    (func (export "_start")
        (loop $more
            (i32.store (i32.const 4) (i32.const 4096))
            (if (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16))
                (then unreachable))
            (if (i32.load (i32.const 16))
                (then
                    (i32.store (i32.const 4) (i32.load (i32.const 16)))
                    (drop (call $write
                        (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20)))
                    (br $more))))
        (if (i32.eqz (call $mkdir (i32.const 3) (i32.const 32) (i32.const 5)))
            (then (call $exit (i32.const 7))))))"#;

/// Runs it with an empty directory of its own.
fn second_time_lucky(dir: &Path, args: &[&str]) -> Wasmrun {
    let module = assemble(dir, "second", SECOND_TIME_LUCKY);
    fs::create_dir(dir.join("work")).unwrap();
    Wasmrun::submit_file(module)
        .args(["--dir", "work::/work"])
        .args(args)
        .dir(dir)
}

#[test]
fn a_program_of_an_array_is_tried_again_with_its_input_from_the_start() {
    let dir = scratch();
    fs::write(dir.path().join("input"), "one\ntwo\n").unwrap();
    let args = ["--array", "0", "--retries", "1", "--stdin", "input"];
    let out = second_time_lucky(dir.path(), &args).ok();
    // The output of an attempt is not held back.
    let second = "[0 attempt 2] one\n[0 attempt 2] two\n";
    assert_eq!(out, format!("[0] one\n[0] two\n{second}"));
    let dir = scratch();
    second_time_lucky(dir.path(), &["--array", "0"])
        .fails_saying(5, &["[0] failed: the program exited with code 7"]);
}

#[test]
fn a_single_program_gets_its_whole_input_each_time() {
    let dir = scratch();
    fs::write(dir.path().join("input"), "one\n").unwrap();
    let args = ["--retries", "1", "--stdin", "input"];
    let out = second_time_lucky(dir.path(), &args).ok();
    assert_eq!(out, "one\none\n");
    let dir = scratch();
    let run = second_time_lucky(dir.path(), &["--retries", "1"]);
    assert_eq!(run.stdin("two\n").ok(), "two\ntwo\n");
    // Once is not enough, and then its code is ours.
    let dir = scratch();
    let ended = second_time_lucky(dir.path(), &[]).stdin("three\n").run();
    assert_eq!((ended.code, &*ended.stdout), (Some(7), &b"three\n"[..]));
    // A function may be given a file as well.
    let dir = scratch();
    fs::write(dir.path().join("input"), "four\n").unwrap();
    let run = succeed_at(1, "trap").args(["--retries", "1", "--stdin", "input"]);
    run.dir(dir.path()).ok();
}

#[test]
fn ctrl_c_ends_what_would_be_tried_for_ever() {
    for options in [&[][..], &["--array", "0-9", "--node-cpus", "2"]] {
        let mut running = succeed_at(u32::MAX, "trap")
            .args(["--retries", "4294967295"])
            .args(options)
            .start();
        running.wait_for(Stream::Err, "attempt 20 fails\n");
        running.signal(Signal::INT);
        let ended = running.end();
        assert_eq!(ended.code, Some(130), "{ended}");
    }
}

/// What a module of alternatives declares: a GPU, else two CPUs and less memory, else one CPU.
fn with_alternatives(dir: &Path) -> PathBuf {
    let settings = json!({
        "resources": {"CPU": "1", "GPU": "1", "memory": "128MiB"},
        "alternatives": [{"CPU": "2", "memory": "32MiB"}, {"CPU": "1"}],
    });
    with_manifest(dir, &json!({ "*": settings }))
}

#[test]
fn the_first_alternative_that_fits_is_taken() {
    let dir = scratch();
    let module = with_alternatives(dir.path());
    let cases = [
        (
            ["--node-gpus=1", "--node-cpus=1"],
            json!({"CPU": [[0, "1"]], "GPU": [[0, "1"]]}),
            128,
        ),
        (
            ["--node-gpus=0", "--node-cpus=2"],
            json!({"CPU": [[0, "1"], [1, "1"]]}),
            32,
        ),
        // What an alternative does not say of memory is as in the main request.
        (
            ["--node-gpus=0", "--node-cpus=1"],
            json!({"CPU": [[0, "1"]]}),
            128,
        ),
    ];
    for (node, ids, memory) in cases {
        let run = |args: &[&str]| {
            let call = ["--invoke", "context-info()"];
            Wasmrun::submit_file(&module)
                .args(call)
                .args(node)
                .args(args)
        };
        let json = run(&[]).json(0);
        assert_eq!(json["resource_ids"], ids, "{json:#}");
        assert_eq!(memory_mib(&json), memory, "{json:#}");
        // The submitter's memory is that of each.
        let json = run(&["--memory", "96MiB"]).json(0);
        assert_eq!(json["resource_ids"], ids, "{json:#}");
        assert_eq!(memory_mib(&json), 96, "{json:#}");
    }
}

/// The memory that the context says the task holds.
fn memory_mib(json: &Json) -> u64 {
    let resources = json["result"]["resources"].as_array().unwrap();
    let memory = resources.iter().find(|held| held["name"] == "memory");
    memory.unwrap()["amount"].as_u64().unwrap() / 10_000 / (1 << 20)
}

#[test]
fn the_memory_of_the_alternative_is_the_limit() {
    let dir = scratch();
    let module = with_alternatives(dir.path());
    let run = |gpus: &str| {
        Wasmrun::submit_file(&module)
            .args(["--invoke", "allocate(60)", "--node-cpus", "2"])
            .args(["--node-gpus", gpus])
    };
    assert_eq!(run("1").ok(), "60\n");
    run("0").fails_saying(5, &["memory limit of 32 MiB reached"]);
}

#[test]
fn while_the_best_is_taken_the_next_will_do() {
    let dir = scratch();
    let module = with_alternatives(dir.path());
    // None ends before its time is up, so all run at once.
    let json = Wasmrun::submit_file(&module)
        .args(["--invoke", "sleep-forever()", "--array", "0-2"])
        .args(["--node-cpus", "4", "--node-gpus", "1"])
        .args(["--time-limit", "1s"])
        .json(6);
    let tasks = json["tasks"].as_array().unwrap();
    let ids: Vec<Json> = tasks
        .iter()
        .map(|task| task["resource_ids"].clone())
        .collect();
    let expected = [
        json!({"CPU": [[0, "1"]], "GPU": [[0, "1"]]}),
        json!({"CPU": [[1, "1"], [2, "1"]]}),
        json!({"CPU": [[3, "1"]]}),
    ];
    assert_eq!(ids, expected);
}

#[test]
fn whoever_says_what_it_is_to_be_gets_no_alternative() {
    let dir = scratch();
    let module = with_alternatives(dir.path());
    let run = |args: &[&str]| {
        Wasmrun::submit_file(&module)
            .args(["--invoke", "context-info()", "--node-gpus", "0"])
            .args(args)
    };
    for args in [&["--gpus", "1"][..], &["--cpus", "1"]] {
        run(args).fails_saying(3, &["GPU: needs 1, node has 0 in total"]);
    }
    // Where none fits, what the first lacks is told.
    run(&["--node-memory", "16MiB"]).fails_saying(3, &["error: no node can ever run this task: "]);
}

#[test]
fn labels_decide_where_a_task_may_run() {
    let run = |selector: &str| {
        Wasmrun::call("noop()")
            .args(["--node-name", "n1"])
            .args(["--node-label", "zone=a", "--node-label", "disk=ssd"])
            .args(["--label-selector", selector])
    };
    for matches in [
        "zone=a",
        "zone=a, disk in (hdd,ssd)",
        "zone!=b,!spot,disk",
        "zone notin (b,c)",
        "zone=b ; zone=a",
        "zone=b;*",
        "*",
        "wasmrun.io/hostname=n1",
    ] {
        run(matches).ok();
    }
    for (selector, term) in [
        ("zone=b", "zone=b"),
        ("zone=a,disk=hdd", "disk=hdd"),
        ("!zone", "!zone"),
        ("spot", "spot"),
        ("disk in (hdd, nvme)", "disk in (hdd,nvme)"),
        ("disk notin (ssd)", "disk notin (ssd)"),
        ("zone=b;disk=hdd", "zone=b"),
        ("wasmrun.io/hostname=n2", "wasmrun.io/hostname=n2"),
    ] {
        let stderr = run(selector).fails(3);
        assert_eq!(
            stderr,
            format!(
                "error: no node can ever run this task: label {term} does not match (node n1); \
                 ask for less, or add a node that has it\n"
            )
        );
    }
}

#[test]
fn one_node_is_as_good_as_another_strategy() {
    for strategy in [
        "default",
        "random",
        "spread",
        "node:n1",
        "node:n1:soft",
        // It is not there: any other will do.
        "node:n2:soft",
    ] {
        let json = Wasmrun::call("context-info()")
            .args(["--node-name", "n1", "--strategy", strategy])
            .args(["--node-cpus", "1", "--array", "0-9"])
            .json(0);
        for task in json["tasks"].as_array().unwrap() {
            assert_eq!(task["result"]["node"], "n1", "{strategy}: {task:#}");
        }
    }
}

#[test]
fn a_node_that_is_named_must_be_there_and_have_what_it_takes() {
    let run = |strategy: &str, args: &[&str]| {
        Wasmrun::call("noop()")
            .args(["--node-name", "n1", "--node-gpus", "0"])
            .args(["--strategy", strategy])
            .args(args)
            .fails(3)
    };
    let stderr = run("node:n2", &[]);
    assert_eq!(
        stderr,
        "error: unschedulable: node n2 is not in the cluster; name another one, or make the \
         affinity soft: node:n2:soft\n"
    );
    let lacks = "GPU: needs 1, node has 0 in total";
    let stderr = run("node:n1", &["--gpus", "1"]);
    assert_says(&stderr, &["error: unschedulable: node n1: ", lacks]);
    let stderr = run("node:n1:soft", &["--gpus", "1"]);
    assert_says(&stderr, &["error: ", lacks]);
    let stderr = run("node:n1", &["--label-selector", "zone=b"]);
    let why = "label zone=b does not match";
    assert_says(&stderr, &["error: unschedulable: node n1: ", why]);
}

#[test]
fn programs_are_told_that_it_cannot_be_scheduled() {
    let json = Wasmrun::call("noop()")
        .args(["--node-name", "n1", "--label-selector", "zone=b"])
        .json(3);
    assert_eq!(json["error"]["exit_code"], 3, "{json:#}");
    let message = json["error"]["message"].as_str().unwrap();
    assert_says(message, &["label zone=b does not match (node n1)"]);
    // All of an array are alike: the first one tells.
    let stderr = Wasmrun::call("noop()")
        .args(["--array", "0-999", "--strategy", "node:nowhere"])
        .fails(3);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn options_that_make_no_sense_are_named() {
    let long = "x".repeat(64);
    for (flag, value, says) in [
        ("--tenant", "", "a tenant needs a name"),
        ("--tenant", "a b", "'a b' is not a tenant name: ' '"),
        ("--tenant", "-a", "'-a' is not a tenant name: '-'"),
        ("--tenant", "équipe", "'équipe' is not a tenant name"),
        ("--tenant", &long, "is too long: 64 bytes of at most 63"),
        ("--priority", "2147483648", "2147483648 is not in"),
        ("--priority", "-2147483649", "-2147483649 is not in"),
        ("--priority", "1.5", "must be a whole number, such as 10"),
        ("--priority", "high", "must be a whole number, such as 10"),
        ("--retries", "-1", "-1 is not in 0..=4294967295"),
        ("--retries", "4294967296", "4294967296 is not in"),
        ("--label-selector", "", "empty; write k=v"),
        ("--label-selector", "zone=a,", "empty; write k=v"),
        ("--label-selector", "zone=a;;zone=b", "empty; write k=v"),
        ("--label-selector", "zone in a", "'zone in a' is not a"),
        ("--label-selector", "zone in ()", "'zone in ()' is not a"),
        (
            "--label-selector",
            "zone=a b",
            "in the selector term 'zone=a b'",
        ),
        ("--label-selector", "=a", "lacks a name"),
        ("--strategy", "", "'' is not a strategy; use default, "),
        ("--strategy", "best", "'best' is not a strategy"),
        ("--strategy", "node:", "is not the name of a node"),
        ("--strategy", "node:n1:hard", "'node:n1:hard' is not a str"),
        ("--strategy", "group:1", "'1' is not a placement group id"),
        ("--node-name", "", "'' is not the name of a node"),
        ("--node-name", "a b", "'a b' is not the name of a node"),
        ("--node-label", "zone", "must be KEY=VALUE, such as zone=a"),
        ("--node-label", "=a", "lacks a name"),
        ("--node-label", "zone=-a", "'-a' is not a label value"),
    ] {
        let stderr = Wasmrun::call("noop()")
            .arg(format!("{flag}={value}"))
            .fails(2);
        let named = format!("for '{flag} <");
        assert_says(&stderr, &["error: invalid value '", &named, "': ", says]);
    }
    let labels = ["--node-label", "zone=a", "--node-label", "zone=b"];
    Wasmrun::call("noop()")
        .args(labels)
        .fails_saying(2, &["--node-label zone=b", "the label zone is given twice"]);
}

#[test]
fn placement_groups_are_for_clusters() {
    let id = "000102030405060708090a0b0c0d0e0f";
    for strategy in [format!("group:{id}"), format!("group:{id}:0")] {
        let stderr = Wasmrun::call("noop()")
            .args(["--strategy", &strategy])
            .fails(2);
        let says = format!("error: there is no placement group {id}: ");
        assert_says(&stderr, &[&says, "--strategy"]);
    }
}

#[test]
fn any_tenant_and_any_priority() {
    for args in [
        ["--tenant", "team-a.x_1", "--priority", "0"],
        ["--tenant", "7", "--priority", "-2147483648"],
        ["--tenant", "A", "--priority", "2147483647"],
        ["--tenant", &"x".repeat(63), "--priority", "-1"],
    ] {
        Wasmrun::call("noop()").args(args).ok();
    }
}

#[test]
fn whoever_wants_details_hears_what_a_task_waits_for() {
    let details = |args: &[&str], says: &[&str]| {
        let mut running = Wasmrun::call("sleep-forever()")
            .args(["-v", "--array", "0-1", "--node-name", "n1"])
            .args(args)
            .start();
        for part in says {
            running.wait_for(Stream::Err, part);
        }
        running.signal(Signal::INT);
        let ended = running.end();
        assert_eq!(ended.code, Some(130), "{ended}");
        assert_says(&ended.stderr, says);
    };
    details(
        &["--node-cpus", "1"],
        &[
            " has been ready for ",
            "s: it waits for resources\n",
            "  node n1: unavailable: CPU: needs 1, node has 0 whole units free\n",
        ],
    );
    details(
        &["--node-memory", "100MiB", "--memory", "60MiB"],
        &[
            "s: it waits for resources\n",
            "  node n1: unavailable: memory: needs 60MiB, node has 40MiB free\n",
        ],
    );
    details(
        &["--max-sandboxes", "1"],
        &["s: it waits for one of 1 sandboxes: "],
    );
}

#[test]
fn nobody_else_hears_of_waiting() {
    // The second waits for as long as the first may run.
    let ended = Wasmrun::call("sleep-forever()")
        .args(["--array", "0-1", "--node-cpus", "1"])
        .args(["--time-limit", "600ms"])
        .run();
    assert_eq!(ended.code, Some(6), "{ended}");
    assert!(!ended.stderr.contains("waits for"), "{ended}");
}
