//! Limits that hold: each is a typed error that names the limit, its value and the flag that
//! raises it, and raising it as told helps.

use std::fs;
use std::path::{Path, PathBuf};

use wasmrun_tests::{Stream, Wasmrun, assemble, assert_says, guest, scratch};

use crate::node::Node;

/// A function of the fixture, and the same of the two programs.
fn everywhere(call: &str, command: &str) -> [Wasmrun; 3] {
    [
        Wasmrun::call(call),
        Wasmrun::submit("prog").program([command]),
        Wasmrun::submit("prog-p1").program([command]),
    ]
}

/// A core program around these instructions, with what it may import and have.
fn program(fields: &str, body: &str) -> String {
    format!("(module {fields} (func (export \"_start\") {body}))")
}

/// The flag and the value that an error advises.
fn advice(stderr: &str) -> [String; 2] {
    let words: Vec<&str> = stderr.split_whitespace().collect();
    let flag = words
        .iter()
        .position(|word| word.starts_with("--"))
        .unwrap_or_else(|| panic!("no flag in: {stderr}"));
    [words[flag], words[flag + 1]].map(|word| word.trim_end_matches([';', ',']).to_owned())
}

#[test]
fn memory_beyond_the_limit_fails_the_task() {
    let stderr = Wasmrun::call("allocate(200)").fails(5);
    assert_says(
        &stderr,
        &[
            "out of memory: cannot have 200 MiB",
            "error: allocate: memory limit of 128 MiB reached: the guest asked for 20",
            " MiB; to allow more, use --memory 256MiB or the module's manifest",
            "\n    at allocate\n",
        ],
    );
    assert_eq!(
        Wasmrun::call("allocate(200)").args(advice(&stderr)).ok(),
        "200\n"
    );
}

#[test]
fn memory_within_the_limit_is_counted() {
    let json = Wasmrun::call("allocate(100)").json(0);
    assert_eq!(json["result"], 100);
    let peak = json["memory_peak_bytes"].as_u64().unwrap();
    assert!((100 << 20..=128 << 20).contains(&peak), "{json:#}");
}

#[test]
fn memory_limit_is_exact() {
    let dir = scratch();
    // 16 pages of 64 KiB are 1 MiB.
    let text = program("(memory (export \"memory\") 16)", "");
    let module = assemble(dir.path(), "sixteen-pages", &text);
    Wasmrun::submit_file(&module)
        .args(["--memory", "1MiB"])
        .ok();
    Wasmrun::submit_file(&module)
        .args(["--memory", "1048575B"])
        .fails_saying(
            5,
            &[
                "memory limit of 1023.9 KiB reached",
                "asked for 1 MiB",
                "--memory",
            ],
        );
}

/// Two memories, each of which grows by `pages` and traps where it cannot.
fn two_memories(pages: u32) -> String {
    let grow = |memory: &str| {
        format!(
            "(if (i32.eq (memory.grow {memory} (i32.const {pages})) (i32.const -1)) \
             (then unreachable))"
        )
    };
    let fields = "(memory $a (export \"memory\") 1) (memory $b 1)";
    program(fields, &(grow("$a") + &grow("$b")))
}

#[test]
fn memories_count_together() {
    let dir = scratch();
    // 41 pages each: 2.6 MiB, and 5.1 MiB together.
    let module = assemble(dir.path(), "two", &two_memories(40));
    let stderr = Wasmrun::submit_file(&module)
        .args(["--memory", "4MiB"])
        .fails(5);
    assert_says(
        &stderr,
        &[
            "memory limit of 4 MiB reached: the guest asked for 5.1 MiB",
            "use --memory 8MiB",
        ],
    );
    Wasmrun::submit_file(&module).args(advice(&stderr)).ok();
}

#[test]
fn tables_count_as_memory() {
    let dir = scratch();
    // 100,000 entries of 8 bytes each: 0.8 MiB a table.
    let grow = |table: &str| {
        format!(
            "(if (i32.eq (table.grow {table} (ref.null func) (i32.const 100000)) (i32.const -1)) \
             (then unreachable))"
        )
    };
    let fields = "(memory (export \"memory\") 1) (table $a 0 funcref) (table $b 0 funcref)";
    let text = program(fields, &(grow("$a") + &grow("$b")));
    let module = assemble(dir.path(), "tables", &text);
    let stderr = Wasmrun::submit_file(&module)
        .args(["--memory", "1MiB"])
        .fails(5);
    assert_says(
        &stderr,
        &["memory limit of 1 MiB reached: the guest asked for 1.5 MiB"],
    );
    Wasmrun::submit_file(&module).args(advice(&stderr)).ok();
}

#[test]
fn memory_that_is_there_from_the_start_counts() {
    let dir = scratch();
    for (name, fields) in [
        ("one", "(memory (export \"memory\") 100)"),
        ("two", "(memory (export \"memory\") 50) (memory 50)"),
        (
            "tables",
            "(memory (export \"memory\") 1) (table 100000 funcref) (table 100000 funcref)",
        ),
    ] {
        let module = assemble(dir.path(), name, &program(fields, ""));
        Wasmrun::submit_file(&module)
            .args(["--memory", "1MiB"])
            .fails_saying(5, &["memory limit of 1 MiB reached", "--memory"]);
        Wasmrun::submit_file(&module)
            .args(["--memory", "8MiB"])
            .ok();
    }
}

#[test]
fn memories_of_a_component_count_together() {
    let dir = scratch();
    // Two instances of a core module with 2.5 MiB each.
    let text = r#"(component
        (core module $m (memory 40) (func (export "f")))
        (core instance $a (instantiate $m))
        (core instance $b (instantiate $m))
        (func (export "f") (canon lift (core func $b "f"))))"#;
    let module = assemble(dir.path(), "instances", text);
    let call =
        |memory: &str| Wasmrun::submit_file(&module).args(["--invoke", "f()", "--memory", memory]);
    call("4MiB").fails_saying(
        5,
        &["memory limit of 4 MiB reached: the guest asked for 5 MiB"],
    );
    call("5MiB").ok();
}

#[test]
fn a_refused_growth_that_the_guest_copes_with_is_no_failure() {
    let dir = scratch();
    // Asks for 64 MiB, gets -1, is content with 1 MiB.
    let body = "(if (i32.ne (memory.grow (i32.const 1024)) (i32.const -1)) (then unreachable))
        (if (i32.eq (memory.grow (i32.const 15)) (i32.const -1)) (then unreachable))";
    let text = program("(memory (export \"memory\") 1)", body);
    let module = assemble(dir.path(), "modest", &text);
    let ended = Wasmrun::submit_file(&module)
        .args(["--memory", "1MiB"])
        .run();
    assert_eq!((ended.code, &ended.stderr[..]), (Some(0), ""), "{ended}");
}

#[test]
fn growth_beyond_all_bounds_is_refused() {
    let dir = scratch();
    let body = "(if (i32.ne (memory.grow (i32.const -1)) (i32.const -1)) (then unreachable))";
    let text = program("(memory (export \"memory\") 1)", body);
    let module = assemble(dir.path(), "greedy-32", &text);
    Wasmrun::submit_file(&module).ok();
    let body = "(if (i64.ne (memory.grow (i64.const -1)) (i64.const -1)) (then unreachable))
        (if (i64.ne (memory.grow (i64.const 0x1000000000)) (i64.const -1)) (then unreachable))";
    let text = program("(memory (export \"memory\") i64 1)", body);
    let module = assemble(dir.path(), "greedy-64", &text);
    Wasmrun::submit_file(&module).ok();
}

#[test]
fn a_program_out_of_memory_says_so_itself() {
    for guest in ["prog", "prog-p1"] {
        let run = |memory: &str| {
            Wasmrun::submit(guest)
                .args(["--memory", memory])
                .program(["alloc", "10"])
        };
        run("4MiB").fails_saying(1, &["prog: out of memory: cannot have 10 MiB"]);
        assert_eq!(run("16MiB").ok(), "10\n");
    }
}

#[test]
fn calls_that_nest_too_deep() {
    for run in everywhere("recurse()", "recurse") {
        let stderr = run.fails(5);
        assert_says(
            &stderr,
            &[
                "stack limit of 1 MiB reached: the guest's calls nest too deep; \
                 to allow more, use --max-stack 2MiB\n",
                "descend",
            ],
        );
        assert!(
            stderr.lines().count() < 100,
            "a backtrace has an end: {stderr}"
        );
    }
}

#[test]
fn a_larger_stack_holds_deeper_calls() {
    let dir = scratch();
    // 20,000 calls deep, and no tail calls, since each adds to what the next returns.
    let fields = "(memory (export \"memory\") 1)
        (func $deep (param i32) (result i32)
            (if (result i32) (i32.eqz (local.get 0))
                (then (i32.const 0))
                (else (i32.add (i32.const 1)
                    (call $deep (i32.sub (local.get 0) (i32.const 1)))))))";
    let text = program(fields, "(drop (call $deep (i32.const 20000)))");
    let module = assemble(dir.path(), "deep", &text);
    let run = |stack: &str| Wasmrun::submit_file(&module).args(["--max-stack", stack]);
    run("64KiB").fails_saying(5, &["stack limit of 64 KiB reached", "--max-stack 128KiB"]);
    run("8MiB").ok();
    run("64MiB").ok();
    for stack in ["1KiB", "65MiB", "0"] {
        run(stack).fails_saying(2, &["error: the stack limit must be 64 KiB to 64 MiB"]);
    }
}

#[test]
fn time_is_up_while_the_guest_is_busy() {
    for run in everywhere("spin()", "spin") {
        let stderr = run.args(["--time-limit", "150ms"]).fails(6);
        assert_says(
            &stderr,
            &["time limit of 150ms reached: the task was stopped; \
               to allow more, use --time-limit 300ms or the module's manifest\n"],
        );
    }
}

#[test]
fn time_is_up_inside_a_host_call() {
    for run in everywhere("sleep-forever()", "sleep") {
        run.args(["--time-limit", "150ms"])
            .fails_saying(6, &["time limit of 150ms reached"]);
    }
}

#[test]
fn time_is_up_while_reading_what_never_comes() {
    for guest in ["prog", "prog-p1"] {
        let mut running = Wasmrun::submit(guest)
            .args(["--time-limit", "300ms"])
            .program(["cat"])
            .open_stdin()
            .start();
        // Standard input stays open until the command has said so.
        running.wait_for(Stream::Err, "time limit of 300ms reached");
        let ended = running.end();
        assert_eq!(ended.code, Some(6), "{ended}");
    }
}

#[test]
fn time_is_up_in_a_loop_of_host_calls() {
    // A component that writes for ever.
    Wasmrun::call("flood()")
        .args([
            "--time-limit",
            "300ms",
            "--max-output",
            "1PiB",
            "-o",
            "quiet",
        ])
        .fails_saying(6, &["time limit of 300ms reached"]);
    // Core programs whose loop is nothing but a call.
    let dir = scratch();
    for (name, import, call) in [
        (
            "yields",
            "\"sched_yield\" (func $f (result i32))",
            "(drop (call $f))",
        ),
        (
            "clock",
            "\"clock_time_get\" (func $f (param i32 i64 i32) (result i32))",
            "(drop (call $f (i32.const 1) (i64.const 1) (i32.const 0)))",
        ),
        (
            "random",
            "\"random_get\" (func $f (param i32 i32) (result i32))",
            "(drop (call $f (i32.const 0) (i32.const 65536)))",
        ),
        (
            "polls",
            "\"poll_oneoff\" (func $f (param i32 i32 i32 i32) (result i32))",
            "(drop (call $f (i32.const 0) (i32.const 100) (i32.const 0) (i32.const 200)))",
        ),
    ] {
        let fields =
            format!("(import \"wasi_snapshot_preview1\" {import}) (memory (export \"memory\") 1)");
        let text = program(&fields, &format!("(loop $for-ever {call} (br $for-ever))"));
        let module = assemble(dir.path(), name, &text);
        Wasmrun::submit_file(&module)
            .args(["--time-limit", "150ms"])
            .fails_saying(6, &["time limit of 150ms reached"]);
    }
}

#[test]
fn time_is_up_before_the_first_instruction_of_the_program() {
    let dir = scratch();
    let text = program(
        "(memory (export \"memory\") 1) (func $start (loop $l (br $l))) (start $start)",
        "",
    );
    let module = assemble(dir.path(), "start", &text);
    Wasmrun::submit_file(&module)
        .args(["--time-limit", "150ms"])
        .fails_saying(6, &["time limit of 150ms reached"]);

    let text = r#"(component
        (core module $m (func $start (loop $l (br $l))) (start $start) (func (export "f")))
        (core instance $a (instantiate $m))
        (func (export "f") (canon lift (core func $a "f"))))"#;
    let module = assemble(dir.path(), "component-start", text);
    Wasmrun::submit_file(&module)
        .args(["--time-limit", "150ms", "--invoke", "f()"])
        .fails_saying(6, &["time limit of 150ms reached"]);
}

#[test]
fn a_time_limit_does_not_fail_what_ends_in_time() {
    Wasmrun::call("sleep(1)").args(["--time-limit", "1h"]).ok();
    Wasmrun::call("noop()")
        .args(["--time-limit", "0s"])
        .fails_saying(2, &["'0s' is no time at all"]);
    let stderr = Wasmrun::call("noop()")
        .args(["--time-limit", "soon"])
        .fails(2);
    assert_says(&stderr, &["'soon' is not a duration"]);
}

#[test]
fn a_flood_of_output_ends() {
    for (n, run) in everywhere("flood()", "flood").into_iter().enumerate() {
        let ended = run.args(["--max-output", "100KiB"]).run();
        assert_eq!(ended.code, Some(5), "{ended}");
        let at = ended.stderr.find("error: ").expect("an error");
        assert_says(
            &ended.stderr[at..],
            &[
                "output limit of 100 KiB reached: the guest wrote more than that; \
               to allow more, use --max-output 128KiB\n",
            ],
        );
        // What it wrote within the limit is there; for functions it goes to standard error.
        let written = if n == 0 { at } else { ended.stdout.len() };
        assert!((90 << 10..=100 << 10).contains(&written), "{written} bytes");
    }
}

#[test]
fn both_outputs_count_together() {
    // 61 bytes to each.
    let text = "x".repeat(60);
    let call =
        |limit: &str| Wasmrun::call(&format!("print(\"{text}\")")).args(["--max-output", limit]);
    call("121").fails_saying(5, &["output limit of 121 bytes reached"]);
    call("122").ok();
}

#[test]
fn output_that_nobody_wants_counts_too() {
    Wasmrun::call("flood()")
        .args(["--max-output", "100KiB", "-o", "quiet"])
        .fails_saying(5, &["error: flood: output limit of 100 KiB reached"]);
    let json = Wasmrun::call("flood()")
        .args(["--max-output", "100KiB"])
        .json(5);
    assert_eq!(json["error"]["kind"], "limit");
    assert!(json["stdout"].as_str().unwrap().len() <= 100 << 10);
}

#[test]
fn arguments_beyond_the_limit() {
    let call = || Wasmrun::call("echo-bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])");
    let stderr = call().args(["--max-arguments", "10"]).fails(5);
    assert_says(
        &stderr,
        &["error: echo-bytes: argument limit of 10 bytes reached: the arguments take 11 bytes"],
    );
    call().args(advice(&stderr)).ok();
    call().args(["--max-arguments", "11"]).ok();
    // From a file, and large.
    let dir = scratch();
    let file = dir.path().join("large");
    std::fs::write(&file, vec![7; 3 << 20]).unwrap();
    let from_file = |limit: &str| {
        Wasmrun::submit("bench")
            .args(["--invoke", "sum()", "--max-arguments", limit, "--arg-file"])
            .arg(format!("1={}", file.display()))
    };
    from_file("2MiB").fails_saying(
        5,
        &[
            "argument limit of 2 MiB reached: the arguments take 3 MiB",
            "--max-arguments 4MiB",
        ],
    );
    assert_eq!(from_file("3MiB").ok(), format!("{}\n", 7 * (3 << 20)));
}

#[test]
fn a_result_beyond_the_limit() {
    let call = || Wasmrun::call("join(\"abcdefghij\", 2, none)");
    let stderr = call().args(["--max-result", "16"]).fails(5);
    assert_says(
        &stderr,
        &["error: join: result limit of 16 bytes reached: the result takes 2"],
    );
    assert_eq!(
        call().args(advice(&stderr)).ok(),
        "\"abcdefghijabcdefghij\"\n"
    );
}

#[test]
fn a_result_beyond_the_limit_by_a_little_and_by_a_lot() {
    for times in [7_000_000, 20_000_000] {
        let call = format!("join(\"abcdefghij\", {times}, none)");
        Wasmrun::call(&call)
            .args(["--memory", "1GiB"])
            .fails_saying(5, &["result limit of 64 MiB reached", "--max-result"]);
    }
}

#[test]
fn handles_beyond_the_limit() {
    let many = |count: u32| {
        let call = format!("many-handles({count})");
        Wasmrun::submit("graph").args(["--invoke", &call])
    };
    // Of 524,288, one is the first, and some are the sandbox's own.
    assert_eq!(many(524_000).ok(), "524000\n");
    let said = many(524_288).fails(5);
    let what = "the guest trapped: it has 524288 handles, as many as a sandbox may; drop those";
    assert_says(&said, &[what, "many-handles"]);
}

#[test]
fn a_module_beyond_the_limit() {
    let stderr = Wasmrun::call("noop()")
        .args(["--max-module", "1KiB"])
        .fails(2);
    let bytes = guest("fixture").metadata().unwrap().len();
    assert_says(
        &stderr,
        &[
            "error: cannot load ",
            "fixture.wasm\n  because: the module has ",
            &bytes.to_string(),
            "1024",
            "--max-module",
        ],
    );
    Wasmrun::call("noop()")
        .args(["--max-module", &bytes.to_string()])
        .ok();
}

#[test]
fn limits_out_of_their_range() {
    for (flag, value, says) in [
        ("--max-sandboxes", "0", "1 to 5,000"),
        ("--max-sandboxes", "5001", "1 to 5,000"),
        ("--max-sandboxes", "many", "invalid value 'many'"),
        ("--max-output", "much", "'much'"),
        ("--memory", "-1", "'--memory"),
        ("--memory", "1XB", "unknown suffix"),
    ] {
        let stderr = Wasmrun::call("noop()")
            .arg(format!("{flag}={value}"))
            .fails(2);
        assert_says(&stderr, &["error: ", says]);
    }
}

#[test]
fn a_node_has_maxima_of_its_own() {
    for (options, says) in [
        (
            ["--cpus", "4", "--max-cpus", "2"],
            "CPU limit of 2 for one task on this node: 4 was asked for",
        ),
        (
            ["--memory", "65MiB", "--max-memory", "64MiB"],
            "memory limit of 64MiB for one task",
        ),
        (
            ["--resource", "tpu=2", "--max-resource", "tpu=1"],
            "tpu limit of 1 for one task",
        ),
        (
            ["--time-limit", "10s", "--max-time-limit", "5s"],
            "time limit of 5s for one task",
        ),
    ] {
        let call =
            || Wasmrun::call("noop()").args(["--node-cpus", "4", "--node-resource", "tpu=2"]);
        let stderr = call().args(options).fails(3);
        assert_says(
            &stderr,
            &[
                "error: ",
                says,
                "ask for less, or start the node with --max-",
            ],
        );
        // The last of the two is what counts, as advised.
        let [flag, value] = advice(&stderr);
        call().args(&options[..2]).args([flag, value]).ok();
    }
}

#[test]
fn maxima_hold_for_what_guests_start() {
    let graph = |call: &str| Wasmrun::submit("graph").args(["--invoke", call]);
    let said = graph("error-of(\"resources\")")
        .args(["--max-cpus", "2"])
        .ok();
    assert_says(
        &said,
        &["refused: CPU limit of 2 for one task", "--max-cpus 100000"],
    );
    // Its counters ask for 4 MiB, what is busy for 8 MiB.
    let hold = graph("hold(1, 1)").args(["--memory", "4MiB", "--max-memory", "4MiB"]);
    hold.fails_saying(5, &["memory limit of 4MiB for one actor"]);
    // A constructor, and a call that asks for no limit, get that of the node.
    let call = graph("wait-for-one()")
        .args(["--max-time-limit", "1m"])
        .ok();
    assert_eq!(call, "1\n");
}

#[test]
fn a_node_has_defaults_of_its_own() {
    // The program declares nothing.
    let held = |options: &[&str]| {
        let program = Wasmrun::submit("prog")
            .args(options)
            .arg("-v")
            .program(["args"]);
        program.run().stderr
    };
    assert_says(&held(&[]), &["held CPU 1 (0), memory 256MiB"]);
    let halves = ["--default-cpus", "0.5", "--default-memory", "32MiB"];
    assert_says(&held(&halves), &["held CPU 0.5 (0), memory 32MiB"]);
    assert_says(
        &held(&[&halves[..], &["--cpus", "1"]].concat()),
        &["held CPU 1 (0), memory 32MiB"],
    );
    assert_says(&held(&["--max-memory", "100MiB"]), &["memory 100MiB"]);
    let above = ["--default-memory", "1GiB", "--max-memory", "100MiB"];
    Wasmrun::submit("prog")
        .args(above)
        .program(["args"])
        .fails_saying(2, &["memory 1GiB and at most 100MiB (--max-memory)"]);
    for limit in ["--default-time-limit", "--max-time-limit"] {
        let spin = Wasmrun::submit("graph").args(["--invoke", "spin()", limit, "200ms"]);
        spin.fails_saying(6, &["time limit of 200ms reached"]);
    }
    // This one declares a limit of its own.
    let declared = Wasmrun::call("spin()").args(["--max-time-limit", "200ms"]);
    declared.fails_saying(3, &["time limit of 200ms for one task on this node: 5s"]);
}

#[test]
fn what_declares_nothing_gets_the_defaults() {
    const MIB: u64 = 1 << 20;
    let mut node = Node::new();
    node.start_with(&["--node-memory", "512MiB"]);
    let [manifest, module] = ["manifest.json", "nothing.wasm"].map(|it| node.dir.path().join(it));
    fs::write(&manifest, "{\"version\": 1}").unwrap();
    let annotate = Wasmrun::new(["annotate"]).arg(guest("sdk"));
    annotate
        .arg("--manifest")
        .arg(&manifest)
        .arg("--out")
        .arg(&module)
        .ok();
    let free = || {
        let nodes = node.wasmrun(["list", "nodes"]).json(0);
        let free = ["CPU", "memory"].map(|name| nodes["nodes"][0]["available"][name].clone());
        free.map(|amount| amount.as_str().map(str::to_owned))
    };
    let amounts = |cpus: &str, mib: u64| [cpus.to_owned(), (mib * MIB).to_string()].map(Some);
    let all = amounts("2", 512);
    assert_eq!(free(), all);
    // A task has one CPU and 256 MiB …
    for (resource, amount) in [("CPU", "1".to_owned()), ("memory", (256 * MIB).to_string())] {
        let call = format!("held(\"{resource}\")");
        let held = node.wasmrun(["submit", "--invoke", &call]).arg(&module);
        assert_eq!(held.ok(), format!("\"{amount}\"\n"));
    }
    while free() != all {}
    // … and an actor, all its life, no CPU and 64 MiB.
    let create = node.wasmrun(["actor", "create"]).arg(&module);
    create.args(["keeper", "--name", "one"]).ok();
    let sum = node.wasmrun(["actor", "call", "one", "sum()"]);
    assert_eq!(sum.ok(), "ok(0)\n");
    while free() == all {}
    assert_eq!(free(), amounts("2", 512 - 64));
}

#[test]
fn nested_tasks_in_flight_are_limited() {
    let graph = |call: &str| {
        let run = Wasmrun::submit("graph").args(["--invoke", call]);
        // None can start before the one that starts them waits.
        run.args(["--node-cpus", "1", "--max-nested"])
    };
    let said = graph("spawn-many(11)").arg("10").fails(5);
    let says = [
        "limit of 10 nested tasks, calls and actors in flight reached",
        "--max-nested 20",
    ];
    assert_says(&said, &says);
    assert_eq!(graph("spawn-many(11)").arg("20").ok(), "11\n");
    // What has ended counts no more.
    assert_eq!(graph("waves(10, 300)").arg("10").ok(), "3000\n");
    assert_eq!(graph("fib(10)").arg("2").ok(), "55\n");
    // An actor counts as long as it lives.
    assert_says(&graph("crowd(\"named\", 11)").arg("10").fails(5), &says);
}

/// A module that is small and takes long to compile.
pub(crate) fn slow_to_compile(dir: &Path) -> PathBuf {
    // Many variables that meet after each of many branches: small to write down, much to work out.
    const LOCALS: usize = 2000;
    let locals = "i32 ".repeat(LOCALS);
    let step = |n: usize| {
        let local = |factor: usize| n * factor % LOCALS;
        format!(
            "(if (local.get {}) (then (local.set {} (i32.add (local.get {}) (i32.const {n})))))",
            local(3),
            local(5),
            local(7),
        )
    };
    let steps: String = (0..20_000).map(step).collect();
    let body = format!("(local {locals}) (loop $again {steps} (br_if $again (local.get 1)))");
    let text = program("(memory (export \"memory\") 1)", &body);
    assemble(dir, "slow", &text)
}

#[test]
fn compiling_is_limited_in_time_and_memory() {
    let dir = scratch();
    let slow = slow_to_compile(dir.path());
    let run = || Wasmrun::submit_file(&slow).args(["--cache-dir", "none"]);
    let said = run().args(["--max-compile-time", "1s"]).fails(2);
    let says = ["compile time limit of 1s reached", "--max-compile-time 2s"];
    assert_says(&said, &says);
    let fixture = || Wasmrun::call("noop()").args(["--cache-dir", "none"]);
    for command in [fixture(), run()] {
        let said = command.args(["--max-compile-memory", "20MiB"]).fails(2);
        let says = [
            "compile memory limit of 20 MiB reached",
            "--max-compile-memory 40MiB",
        ];
        assert_says(&said, &says);
    }
    fixture().args(["--max-compile-memory", "2GiB"]).ok();
}
