//! What commands print: formats, `doctor`, `bench`, `inspect`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value as Json, json};
use wasmrun_tests::{Wasmrun, assert_says, guest, scratch};

use crate::cluster::Member;
use crate::node::Node;

#[test]
fn the_fields_of_a_result_in_json() {
    let json = Wasmrun::call("echo-u8(7)")
        .args(["--name", "seven"])
        .json(0);
    let keys: BTreeSet<&str> = json
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "attempt",
        "duration_us",
        "memory_peak_bytes",
        "name",
        "node",
        "resource_ids",
        "result",
        "state",
        "task_id",
        "version",
        "waited_us",
    ];
    assert_eq!(keys, BTreeSet::from(expected));
    assert_eq!(json["version"], 1);
    assert_eq!(json["name"], "seven");
    assert_eq!(json["state"], "finished");
    assert_eq!(json["result"], 7);
    assert_eq!(json["resource_ids"], json!({"CPU": [[0, "1"]]}));
    assert!(json["duration_us"].is_u64() && json["waited_us"].is_u64());
    let id = json["task_id"].as_str().unwrap();
    assert!(
        id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{id}"
    );
}

#[test]
fn the_fields_of_a_failure_in_json() {
    let json = Wasmrun::call("allocate(200)").json(5);
    assert_eq!(json["version"], 1);
    assert_eq!(json["state"], "failed");
    assert_eq!(json["error"]["kind"], "limit");
    assert_says(
        json["error"]["message"].as_str().unwrap(),
        &["memory limit of 128 MiB reached"],
    );
    assert_eq!(
        json["error"]["backtrace"]
            .as_array()
            .unwrap()
            .last()
            .unwrap(),
        "allocate"
    );
    assert_says(
        json["error"]["stderr_tail"].as_str().unwrap(),
        &["out of memory"],
    );
    let json = Wasmrun::call("spin()")
        .args(["--time-limit", "100ms"])
        .json(6);
    assert_eq!(
        (&json["state"], &json["error"]["kind"]),
        (&json!("failed"), &json!("limit"))
    );
}

#[test]
fn quiet_prints_nothing_but_errors() {
    for run in [
        Wasmrun::call("echo-u8(7)"),
        Wasmrun::call("print(\"x\")"),
        Wasmrun::call("echo-u8(7)").args(["--array", "0-3"]),
        Wasmrun::submit("prog").program(["args", "x"]),
        Wasmrun::submit("prog-p1").program(["stderr", "x"]),
        Wasmrun::new(["inspect"]).arg(guest("prog")),
    ] {
        let ended = run.args(["-o", "quiet"]).run();
        let silent = ended.stdout.is_empty() && ended.stderr.is_empty();
        assert!(ended.code == Some(0) && silent, "{ended}");
    }
    let ended = Wasmrun::call("fail(\"x\")").args(["-o", "quiet"]).run();
    assert_eq!((ended.code, ended.stdout.len()), (Some(5), 0), "{ended}");
    assert_says(
        &ended.stderr,
        &["error: fail: the function returned an error: \"x\"\n"],
    );
}

#[test]
fn verbose_says_how_it_went() {
    let ended = Wasmrun::call("echo-u8(7)").arg("-v").run();
    assert_eq!(ended.stdout_text(), "7\n");
    assert_says(
        &ended.stderr,
        &[
            "module ",
            ": ",
            " in ",
            "\ntask ",
            ": waited ",
            ", ran ",
            ", held CPU 1 (0), memory 64MiB, memory at most ",
        ],
    );
    let stderr = Wasmrun::call("noop()").args(["-v", "-q"]).fails(2);
    assert_says(&stderr, &["cannot be used with"]);
}

#[test]
fn no_colour_and_no_progress_without_a_terminal() {
    for run in [
        Wasmrun::call("fail(\"x\")"),
        Wasmrun::call("fail(\"x\")").args(["--array", "0-9"]),
        Wasmrun::new(["submit", "/no/such/file"]),
        Wasmrun::new(["bogus"]),
        Wasmrun::new(["--help"]),
    ] {
        let ended = run.env("TERM", "xterm-256color").run();
        assert!(
            !ended.stderr.contains('\x1b') && !ended.stdout.contains(&0x1b),
            "{ended}"
        );
    }
}

#[test]
fn doctor_checks_the_machine() {
    let text = Wasmrun::new(["doctor"]).ok();
    assert!(text.starts_with("check "), "{text}");
    for check in [
        "CPUs",
        "memory",
        "GPUs",
        "address space",
        "kernel",
        "code cache",
        "sandbox",
    ] {
        assert_says(&text, &[&format!("\n{check} ")]);
    }
    let json = Wasmrun::new(["doctor"]).json(0);
    assert_eq!(json["version"], 1);
    let checks = json["checks"].as_array().unwrap();
    assert!(
        checks
            .iter()
            .all(|check| matches!(check["verdict"].as_str(), Some("ok" | "note"))),
        "{json:#}"
    );
    let sandbox = checks
        .iter()
        .find(|check| check["name"] == "sandbox")
        .unwrap();
    assert_says(sandbox["found"].as_str().unwrap(), &["a task ran in "]);
    // What is wrong is found, and said.
    let json = Wasmrun::new(["doctor", "--cache-dir", "/proc/nowhere"]).json(0);
    let checks = json["checks"].as_array().unwrap();
    let cache = checks
        .iter()
        .find(|check| check["name"] == "code cache")
        .unwrap();
    assert_eq!(cache["verdict"], "note");
    assert_says(
        cache["found"].as_str().unwrap(),
        &["cannot make the cache folder /proc/nowhere"],
    );
}

/// What `doctor` says of a node's ports: their verdicts, and what it found.
#[track_caller]
fn ports(doctor: Wasmrun) -> [(String, String); 2] {
    let json = doctor.json(0);
    let checks = json["checks"].as_array().expect("checks");
    ["node port", "metrics port"].map(|name| {
        let check = checks.iter().find(|check| check["name"] == name);
        let check = check.unwrap_or_else(|| panic!("no {name}: {json:#}"));
        let text = |field: &str| check[field].as_str().expect("a text").to_owned();
        (text("verdict"), text("found"))
    })
}

#[test]
fn doctor_says_whether_a_node_can_listen_here() {
    let doctor = |listen: &str, metrics: &str| {
        Wasmrun::new(["doctor", "--listen", listen, "--metrics", metrics])
    };
    // Nobody else uses this address, nor ports that the system gives away.
    let (udp, tcp) = ("127.71.6.1:7461", "127.71.6.1:7462");
    let free = ports(doctor(udp, tcp));
    let ok = |found: String| ("ok".to_owned(), found);
    let free_now = [("UDP", udp), ("TCP", tcp)].map(|it| ok(format!("{} {} is free", it.0, it.1)));
    assert_eq!(free, free_now);
    // This process has them.
    let _udp = std::net::UdpSocket::bind(udp).expect("it is free");
    let _tcp = std::net::TcpListener::bind(tcp).expect("it is free");
    let who = format!("(process {}): stop that, or", std::process::id());
    for ((verdict, found), option) in ports(doctor(udp, tcp))
        .into_iter()
        .zip(["listen", "metrics"])
    {
        assert_eq!(verdict, "note");
        let option = format!("another port with --{option}");
        assert_says(&found, &["127.71.6.1:746", "is taken by ", &who, &option]);
    }
    let text = doctor(udp, tcp).ok();
    let says = "\nnode port        note  UDP 127.71.6.1:7461 is taken by ";
    assert_says(&text, &[says]);
    // No address of this machine: it is for documentation.
    let [(verdict, found), _] = ports(doctor("192.0.2.1:7461", tcp));
    assert_eq!(verdict, "note");
    assert_says(
        &found,
        &["192.0.2.1 is no address of this machine", "--listen"],
    );
    doctor("localhost", tcp)
        .fails_saying(2, &["'localhost' must be the IP address", "127.0.0.1:7461"]);
}

#[test]
fn doctor_knows_a_node_of_this_machine_by_its_name() {
    let mut node = Member::new("here");
    let start = ["--head", "--listen", "127.0.0.1:0", "--metrics=127.0.0.1:0"];
    let metrics = node.watched(&start, crate::metrics::address).to_string();
    let row = node.wait_for("here", "alive");
    let listen = row["address"].as_str().expect("it listens");
    let args = ["doctor", "--listen", listen, "--metrics", &metrics];
    let process = node.process().as_raw_nonzero();
    let named = format!("is taken by node here (process {process})");
    for (verdict, found) in ports(node.command(&args)) {
        assert_eq!(verdict, "ok");
        assert_says(&found, &[&named]);
    }
    // Where it is not known which node that is.
    let unnamed = format!("is taken by wasmrun (process {process}); a second node");
    for (verdict, found) in ports(Wasmrun::new(args)) {
        assert_eq!(verdict, "ok");
        assert_says(&found, &[&unnamed]);
    }
}

#[test]
fn bench_names_its_cases() {
    let list = Wasmrun::new(["bench", "--list"]).ok();
    let names: Vec<_> = list
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next())
        .collect();
    for name in CASES {
        assert!(names.contains(name), "{name} is not in:\n{list}");
    }
    let stderr = Wasmrun::new(["bench", "bogus"]).fails(2);
    assert_says(
        &stderr,
        &["error: there is no case 'bogus'; there are engine_raw_1, engine_raw, tasks_sync, "],
    );
}

const CASES: &[&str] = &[
    "engine_raw_1",
    "engine_raw",
    "tasks_sync",
    "tasks_async",
    "tasks_history",
    "busy_1ms",
    "memory_idle",
    "start_cold",
    "start_warm",
];

#[test]
fn bench_measures_each_case() {
    let quick: Vec<&str> = CASES
        .iter()
        .copied()
        .filter(|name| *name != "busy_1ms")
        .collect();
    let json = Wasmrun::new(["bench", "--short", "--runs", "1"])
        .args(&quick)
        .json(0);
    assert_eq!(json["version"], 1);
    assert!(json["machine"]["cpus"].as_u64().unwrap() >= 1, "{json:#}");
    let results = json["results"].as_array().unwrap();
    let names: Vec<_> = results
        .iter()
        .map(|result| result["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, quick);
    for result in results {
        assert!(result["value"].as_f64().unwrap() > 0.0, "{result:#}");
        assert_eq!(result["runs"].as_array().unwrap().len(), 1, "{result:#}");
        assert!(
            ["1/s", "bytes", "ms", "ratio"].contains(&result["unit"].as_str().unwrap()),
            "{result:#}"
        );
    }
    let sync = results
        .iter()
        .find(|result| result["name"] == "tasks_sync")
        .unwrap();
    assert!(
        sync["p50_us"].as_f64().unwrap() <= sync["p99_us"].as_f64().unwrap(),
        "{sync:#}"
    );
}

#[test]
fn bench_prints_a_table_and_takes_other_guests() {
    let ended = Wasmrun::new(["bench", "start_warm", "--runs", "1", "--module"])
        .arg(guest("bench"))
        .run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let out = ended.stdout_text();
    let mut lines = out.lines();
    let header: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        header.join(" "),
        "case median unit least most p50 us p99 us"
    );
    assert!(lines.next().unwrap().starts_with("start_warm "), "{out}");
    assert_says(&ended.stderr, &[" CPUs, ", "guest bench.wasm"]);
    Wasmrun::new(["bench", "start_warm", "--module"])
        .arg(guest("fixture"))
        .fails_saying(2, &["is no guest for the bench", "busy-iterations"]);
}

/// What `inspect` prints with its digest left out.
fn without_digest(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| match line.strip_prefix("digest     ") {
            Some(digest) if digest.len() == 64 => "digest     [DIGEST]",
            _ => line,
        });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn inspect_shows_what_is_in_a_module() {
    let dir = scratch();
    let text = r#"(component
        (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock (export "now" (func (result u64)))))
        (core module $m
            (func (export "add") (param i32 i32) (result i32) (i32.const 1)) (func (export "f")))
        (core instance $i (instantiate $m))
        (func $add (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add")))
        (instance $math (export "add" (func $add)))
        (export "acme:things/math@1.2.0" (instance $math))
        (func (export "noop") (canon lift (core func $i "f"))))"#;
    let module = wasmrun_tests::assemble(dir.path(), "module", text);
    let inspect = || Wasmrun::new(["inspect"]).arg(&module);
    let bytes = module.metadata().unwrap().len();
    assert_eq!(
        without_digest(&inspect().ok()),
        format!(
            "digest     [DIGEST]
kind       component, {bytes} bytes

functions
  acme:things/math@1.2.0#add: func(a: u32, b: u32) -> u32
  noop: func()

imports
  wasi:clocks/monotonic-clock@0.2.0"
        )
    );
    let json = inspect().json(0);
    assert_eq!(json["version"], 1);
    assert_eq!(
        (&json["kind"], &json["program"]),
        (&json!("component"), &json!(false))
    );
    assert_eq!(json["size_bytes"], bytes);
    assert_eq!(
        json["imports"],
        json!(["wasi:clocks/monotonic-clock@0.2.0"])
    );
    assert_eq!(
        json["functions"][0],
        json!({
            "name": "add",
            "interface": "acme:things/math@1.2.0",
            "full_name": "acme:things/math@1.2.0#add",
            "params": [{"name": "a", "type": "u32"}, {"name": "b", "type": "u32"}],
            "result": "u32",
            "errors": null,
        })
    );
    assert_eq!(json["functions"][1]["result"], Json::Null);
}

#[test]
fn inspect_of_programs() {
    let out = Wasmrun::new(["inspect"]).arg(guest("prog-p1")).ok();
    assert_says(
        &out,
        &[
            "kind       core program for preview1, ",
            "\nprogram\n  run\n",
            "\nimports\n  wasi_snapshot_preview1.",
        ],
    );
    let out = Wasmrun::new(["inspect"]).arg(guest("prog")).ok();
    assert_says(
        &out,
        &[
            "kind       component with a program, ",
            "\nprogram\n  run\n",
            "\n  wasi:cli/",
        ],
    );
    let json = Wasmrun::new(["inspect"]).arg(guest("prog-p1")).json(0);
    assert_eq!(
        (&json["kind"], &json["program"]),
        (&json!("core-program"), &json!(true))
    );
}

#[test]
fn inspect_prints_wit() {
    for guest_name in ["fixture", "fixture-p1"] {
        let wit = Wasmrun::new(["inspect", "--wit"])
            .arg(guest(guest_name))
            .ok();
        assert_says(
            &wit,
            &[
                "package root:component;",
                "import wasmrun:runtime/context@0.1.0;",
                "export echo-u8: func(v: u8) -> u8;",
            ],
        );
    }
    Wasmrun::new(["inspect", "--wit"])
        .arg(guest("prog-p1"))
        .fails_saying(2, &["error: cannot show the WIT of ", "\n  because: "]);
    Wasmrun::new(["inspect", "--wit", "/bin/sh"]).fails_saying(2, &["this is not a wasm module"]);
}

#[test]
fn errors_before_any_task_are_json_too() {
    let json = Wasmrun::submit("prog").args(["--gpus", "1"]).json(3);
    assert_eq!(json["version"], 1);
    assert_eq!(json["error"]["exit_code"], 3);
    let message = json["error"]["message"].as_str().unwrap();
    assert!(message.contains("GPU: needs 1"), "{message}");
    let json = Wasmrun::submit_file("/nowhere.wasm").json(2);
    assert!(!json["error"]["because"].as_array().unwrap().is_empty());
}

#[test]
fn a_result_that_cannot_be_written_is_kept() {
    let node = Node::start();
    let dir = scratch();
    let kept_in = |said: &str| {
        assert_says(
            said,
            &[
                "error: cannot write ",
                "No space left on device",
                "keeps it as object",
            ],
        );
        let (_, rest) = said.split_once("wasmrun object get ").unwrap();
        rest.split(' ').next().unwrap().to_owned()
    };
    let value = |id: &str| node.wasmrun(["object", "get", id]).ok();
    let said = node.submit("add(1, 2)").args(["-O", "/dev/full"]).fails(2);
    assert_eq!(value(&kept_in(&said)), "3\n");
    // A program reads one document, and hears of the file by the exit code.
    let both = node.submit("add(1, 2)").args(["-O", "/dev/full"]).json(2);
    assert_eq!(both["result"], 3);
    let json = node.submit("add(1, 2)").args(["-o", "json"]);
    let said = json.redirected(">/dev/full").fails(2);
    let report: Json = serde_json::from_str(&value(&kept_in(&said))).unwrap();
    assert_eq!(report["result"], 3);
    // An array goes on with the others.
    std::os::unix::fs::symlink("/dev/full", dir.path().join("2")).unwrap();
    let files = dir.path().join("$i");
    let array = node.submit("add($i, 1)").args(["--array", "1-3", "-O"]);
    let said = array.arg(files).fails(2);
    assert_eq!(value(&kept_in(&said)), "3\n");
    assert_says(
        &said,
        &[
            "[2] cannot write the result to ",
            "error: cannot write 1 of 3 results",
        ],
    );
    for (index, value) in [("1", "2\n"), ("3", "4\n")] {
        assert_eq!(fs::read_to_string(dir.path().join(index)).unwrap(), value);
    }
    // A node that ends with the command keeps nothing: a file does.
    let own = Wasmrun::submit("graph").args(["--invoke", "add(1, 2)", "-O", "/dev/full"]);
    let said = own.env("TMPDIR", dir.path()).fails(2);
    let (_, rest) = said.split_once("it is in ").unwrap();
    let path = rest.split(' ').next().unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "3\n");
}

#[test]
fn a_file_keeps_what_it_has_until_there_is_something_new() {
    let dir = scratch();
    let path = dir.path().join("out");
    let run = |args: [&str; 2], out: &Path| {
        let submit = Wasmrun::submit("prog").arg("-O").arg(out);
        submit.program(args)
    };
    let printed = Wasmrun::submit("prog").program(["args", "a"]).ok();
    fs::write(&path, "precious").unwrap();
    // It can never run here.
    let never = ["--gpus", "5", "--node-gpus", "0"];
    run(["args", "a"], &path).args(never).fails(3);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    run(["args", "a"], &path).ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), printed);
    // One that has printed nothing has made nothing of it.
    run(["exit", "7"], &path).fails(1);
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
    // A pipe is open until all was written.
    let fifo = dir.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let reading = {
        let fifo = fifo.clone();
        std::thread::spawn(move || fs::read_to_string(fifo).unwrap())
    };
    run(["args", "a"], &fifo).ok();
    assert_eq!(reading.join().unwrap(), printed);
    // Which file it was is said.
    std::os::unix::fs::symlink("/dev/full", dir.path().join("part-2")).unwrap();
    let said = run(["args", "a"], &dir.path().join("part-$i")).args(["--array", "1-3"]);
    let says = [
        "[2] cannot write the guest's output: ",
        "part-2: No space left on device",
        "error: cannot write the output of 1 of 3 tasks",
    ];
    assert_says(&said.fails(2), &says);
    for name in ["part-1", "part-3"] {
        let written = fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(written, printed, "{name}: the others go on");
    }
    // Our own standard output is gone on with, whatever it is.
    let shared = dir.path().join("shared");
    for out in ["/dev/stdout", "/dev/fd/1"] {
        fs::write(&shared, "before ").unwrap();
        let redirection = format!(">>'{}'", shared.display());
        let program = run(["args", "a"], Path::new(out));
        program.redirected(&redirection).ok();
        let call = Wasmrun::call("echo-u32(3)").args(["-O", out]);
        call.redirected(&redirection).ok();
        let text = fs::read_to_string(&shared).unwrap();
        assert_eq!(text, format!("before {printed}3\n"));
    }
    for (name, says) in [("", "is empty"), ("new/", "name of a folder")] {
        let refused = Wasmrun::submit("prog").args(["-O", name]);
        refused.program(["args"]).fails_saying(2, &[says]);
    }
    // Nobody writes to this one.
    let node = Node::start();
    let put = node.wasmrun(["put"]).arg(&fifo).fails(2);
    assert_says(
        &put,
        &["is not a file", "write what comes out of it to a file"],
    );
    let put = node.wasmrun(["put"]).arg(dir.path()).fails(2);
    assert_says(&put, &["not a file but a folder: give a file in it"]);
}
