//! Ends that come from outside: Ctrl-C, and readers that leave early.

use std::io::{BufRead, BufReader, pipe};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use wasmrun_tests::{Stream, Wasmrun, assemble, scratch};

/// A core program that prints `ready` and then does this.
fn ready_then(body: &str) -> String {
    format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_write"
                (func $write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "poll_oneoff"
                (func $poll (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 0) "\08\00\00\00\06\00\00\00ready\n")
            (func (export "_start")
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 100)))
                {body}))"#
    )
}

const SPIN: &str = "(loop $l (br $l))";
/// A subscription to the monotonic clock, a thousand years from now: all bytes but these are 0.
const SLEEP: &str = "(i32.store (i32.const 216) (i32.const 1))
    (i64.store (i32.const 224) (i64.const 0x7fff_ffff_ffff_ffff))
    (loop $l
        (drop (call $poll (i32.const 200) (i32.const 300) (i32.const 1) (i32.const 400)))
        (br $l))";

#[test]
fn ctrl_c_stops_a_busy_guest() {
    interrupted(SPIN, Signal::INT);
}

#[test]
fn ctrl_c_stops_a_sleeping_guest() {
    interrupted(SLEEP, Signal::INT);
}

#[test]
fn a_request_to_terminate_is_as_good_as_ctrl_c() {
    interrupted(SPIN, Signal::TERM);
}

fn interrupted(body: &str, signal: Signal) {
    let dir = scratch();
    let module = assemble(dir.path(), "ready", &ready_then(body));
    let mut running = Wasmrun::submit_file(module).start();
    running.wait_for(Stream::Out, "ready\n");
    running.signal(signal);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended}");
    assert!(ended.stderr.contains("cancelled"), "{ended}");
}

#[test]
fn ctrl_c_stops_a_guest_that_waits_for_input() {
    for guest in ["prog", "prog-p1"] {
        let mut running = Wasmrun::submit(guest).program(["cat"]).open_stdin().start();
        running.write(b"hello\n");
        running.wait_for(Stream::Out, "hello\n");
        running.signal(Signal::INT);
        // Its standard input is still open.
        running.wait_for(Stream::Err, "cancelled");
        let ended = running.end();
        assert_eq!(ended.code, Some(130), "{ended}");
    }
}

#[test]
fn ctrl_c_ends_a_wait_for_the_reader_of_a_pipe() {
    let dir = scratch();
    let pipe = dir.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let run = Wasmrun::submit("prog").arg("-O").arg(&pipe);
    let mut running = run.program(["stderr", "ready"]).start();
    running.wait_for(Stream::Err, "ready");
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended}");
}

#[test]
fn ctrl_c_stops_a_guest_that_never_stops_writing() {
    let runs = [
        (Wasmrun::call("flood()"), Stream::Err),
        (Wasmrun::submit("prog").program(["flood"]), Stream::Out),
        (Wasmrun::submit("prog-p1").program(["flood"]), Stream::Out),
    ];
    for (run, stream) in runs {
        let mut running = run.args(["--max-output", "1PiB"]).start();
        running.wait_for(stream, "flood flood");
        running.signal(Signal::INT);
        let ended = running.end();
        assert_eq!(ended.code, Some(130), "{ended}");
    }
}

#[test]
fn ctrl_c_stops_an_array_those_that_wait_included() {
    let dir = scratch();
    let module = assemble(dir.path(), "ready", &ready_then(SPIN));
    let mut running = Wasmrun::submit_file(module)
        .args(["--array", "0-99999", "--node-cpus", "2"])
        .start();
    running.wait_for(Stream::Out, "] ready\n");
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended}");
    // One or two may start while the others are being sent away.
    let started = ended.stdout_text().lines().count();
    assert!((1..10).contains(&started), "{ended}");
}

#[test]
fn ctrl_c_is_not_lost_while_tasks_are_being_submitted() {
    let dir = scratch();
    let spin = r#"(component
        (core module $m (func (export "f") (loop $l (br $l))))
        (core instance $a (instantiate $m))
        (func (export "f") (canon lift (core func $a "f"))))"#;
    let module = assemble(dir.path(), "spin", spin);
    for options in [
        &[][..],
        &["--array", "0-1"],
        &["--array", "0-9999", "-o", "json"],
    ] {
        for _ in 0..5 {
            let mut running = Wasmrun::submit_file(&module)
                .args(["--invoke", "f()", "--node-cpus", "1"])
                .args(options)
                .start();
            // As soon as there is a handler: before that the signal would end the process itself.
            while running.is_running() && !handles_interrupts(running.process()) {
                std::thread::yield_now();
            }
            running.signal(Signal::INT);
            let ended = running.end();
            assert_eq!(ended.code, Some(130), "{ended}");
        }
    }
}

/// Whether the process has a handler for SIGINT, as the kernel sees it.
fn handles_interrupts(process: rustix::process::Pid) -> bool {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (Signal::INT.as_raw() - 1)) != 0)
}

/// Runs with standard output into a pipe of which only the first line is read.
fn read_one_line(run: Wasmrun) -> (String, wasmrun_tests::Ended) {
    let (reader, writer) = pipe().unwrap();
    let running = run.stdout_to(writer).start();
    let mut line = String::new();
    BufReader::with_capacity(64, reader)
        .read_line(&mut line)
        .unwrap();
    // The reader is gone by now.
    (line, running.end())
}

#[test]
fn a_program_whose_reader_leaves_ends_quietly() {
    for guest in ["prog", "prog-p1"] {
        let run = Wasmrun::submit(guest).program(["flood"]);
        let (line, ended) = read_one_line(run);
        assert!(line.starts_with("flood flood "), "{line}");
        assert_eq!((ended.code, &ended.stderr[..]), (Some(141), ""), "{ended}");
    }
}

#[test]
fn an_array_whose_reader_leaves_ends_quietly() {
    let run = Wasmrun::call("echo-u32(7)").args(["--array", "0-9999"]);
    let (line, ended) = read_one_line(run);
    assert_eq!(line, "[0] 7\n");
    assert_eq!((ended.code, &ended.stderr[..]), (Some(141), ""), "{ended}");
    let run = Wasmrun::submit("prog-p1").args(["--array", "0-9999"]);
    let (line, ended) = read_one_line(run.program(["args", "hello"]));
    assert!(line.ends_with("] hello\n"), "{line}");
    assert_eq!(ended.code, Some(141), "{ended}");
}

#[test]
fn a_report_whose_reader_leaves_ends_quietly() {
    // Larger than any pipe, so that it cannot all be written before the reader has gone.
    let run = Wasmrun::call("echo-list-option([none])").args(["--array", "0-9999", "-o", "json"]);
    let (line, ended) = read_one_line(run);
    assert_eq!(line, "{\n");
    assert_eq!(ended.code, Some(141), "{ended}");
}
