//! Programs: arguments, input, output as it comes, and exit codes.

use std::fs;
use std::process::Command;

use wasmrun_tests::{Stream, Wasmrun, assemble, assert_says, binary, guest, scratch};

use crate::node::Node;

const PROGRAMS: [&str; 2] = ["prog", "prog-p1"];

#[test]
fn arguments_arrive_as_they_are() {
    for guest in PROGRAMS {
        let args = ["args", "a b", "", "ä😀", "--cpus", "-x", "$i", "--", "*"];
        let run = Wasmrun::submit(guest).program(args);
        let ended = run.run();
        assert_eq!(ended.code, Some(0), "{ended}");
        let printed = ended.stdout_text();
        assert_eq!(printed, "a b\n\nä😀\n--cpus\n-x\n$i\n--\n*\n");
        // It is the index of nothing here.
        assert_says(&ended.stderr, &["warning: $i is", "add --array"]);
        let many: Vec<String> = (0..2000).map(|n| n.to_string()).collect();
        let run = Wasmrun::submit(guest).program(["args"]).program(&many);
        assert_eq!(run.ok(), many.join("\n") + "\n");
        // Without any, the program is alone with its name.
        assert_says(
            &Wasmrun::submit(guest).fails(match guest {
                "prog" => 1,
                _ => 2,
            }),
            &["usage: prog COMMAND"],
        );
    }
}

#[test]
fn exit_codes_of_core_programs_pass_through() {
    for code in [0, 1, 2, 3, 5, 6, 7, 100, 125, 126, 127, 130, 200, 255] {
        let ended = Wasmrun::submit("prog-p1")
            .program(["exit", &code.to_string()])
            .run();
        assert_eq!(ended.code, Some(code), "{ended}");
        assert_eq!(
            (ended.stdout.len(), &ended.stderr[..]),
            (0, ""),
            "it has nothing to add"
        );
    }
}

#[test]
fn component_programs_say_success_or_failure() {
    for (code, seen) in [(0, 0), (1, 1), (7, 1), (255, 1)] {
        let ended = Wasmrun::submit("prog")
            .program(["exit", &code.to_string()])
            .run();
        assert_eq!(ended.code, Some(seen), "{ended}");
        assert_eq!((ended.stdout.len(), &ended.stderr[..]), (0, ""), "{ended}");
    }
}

#[test]
fn input_from_a_pipe() {
    let input: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    for guest in PROGRAMS {
        let ended = Wasmrun::submit(guest)
            .stdin(&input[..])
            .program(["cat"])
            .run();
        assert_eq!(ended.code, Some(0), "{ended}");
        assert!(ended.stdout == input, "{} bytes", ended.stdout.len());
        let run = Wasmrun::submit(guest).program(["cat"]);
        assert_eq!(run.ok(), "", "nothing in, nothing out");
    }
}

#[test]
fn input_from_a_file() {
    let dir = scratch();
    let path = dir.path().join("in");
    fs::write(&path, "from the file\n").unwrap();
    for guest in PROGRAMS {
        let run = Wasmrun::submit(guest).arg("--stdin").arg(&path);
        let run = run.stdin("not from here").program(["cat"]);
        assert_eq!(run.ok(), "from the file\n");
        let run = Wasmrun::submit(guest).args(["--stdin", "/dev/null"]);
        assert_eq!(run.stdin("x").program(["cat"]).ok(), "");
        let run = Wasmrun::submit(guest).args(["--stdin", "/no/such/file"]);
        run.program(["cat"]).fails_saying(
            2,
            &["error: cannot read /no/such/file for --stdin\n  because: No such file or directory"],
        );
    }
}

#[test]
fn input_that_nobody_reads_is_left_to_others() {
    let node = Node::start();
    let here = format!("unix:{}", node.socket().display());
    let nowhere = node.dir.path().join("none").display().to_string();
    // The shell reads lines of the same pipe, and one program of it all that is left.
    let script = r#"printf 'a\nb\nc\nd\n' | {
        read -r line; "$0" submit "$1" -- args "$line" || exit 1
        read -r line; "$0" submit "$1" -- args "$line" || exit 2
        "$0" submit "$1" -- cat || exit 3
    }"#;
    for (name, value) in [("WASMRUN_ADDRESS", here), ("XDG_RUNTIME_DIR", nowhere)] {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script]).arg(binary()).arg(guest("prog"));
        shell.env_clear().env(name, value);
        let ended = shell.env("HOME", node.dir.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{stderr}");
        assert_eq!(ended.stdout, b"a\nb\nc\nd\n", "{stderr}");
    }
}

#[test]
fn a_program_may_leave_its_input_alone() {
    for guest in PROGRAMS {
        let run = Wasmrun::submit(guest).stdin(vec![b'x'; 10 << 20]);
        assert_eq!(run.program(["args", "done"]).ok(), "done\n");
        // And input that never ends holds nobody up.
        let mut running = Wasmrun::submit(guest)
            .open_stdin()
            .program(["args", "done"])
            .start();
        running.wait_for(Stream::Out, "done\n");
        running.wait_for_exit();
    }
}

#[test]
fn outputs_are_kept_apart() {
    for guest in PROGRAMS {
        let ended = Wasmrun::submit(guest)
            .program(["stderr", "to stderr"])
            .run();
        assert_eq!((ended.code, ended.stdout.len()), (Some(0), 0), "{ended}");
        assert_eq!(ended.stderr, "to stderr\n");
        let ended = Wasmrun::submit(guest).program(["args", "to stdout"]).run();
        assert_eq!(
            (&ended.stdout[..], &ended.stderr[..]),
            (&b"to stdout\n"[..], "")
        );
    }
}

#[test]
fn output_comes_as_it_is_written() {
    for guest in PROGRAMS {
        let mut running = Wasmrun::submit(guest).open_stdin().program(["cat"]).start();
        for line in ["one\n", "two\n", "three\n"] {
            running.write(line.as_bytes());
            // The program cannot end yet: its input is open.
            running.wait_for(Stream::Out, line);
            assert!(running.is_running());
        }
        running.close_stdin();
        let ended = running.end();
        assert_eq!(ended.code, Some(0), "{ended}");
        assert_eq!(ended.stdout_text(), "one\ntwo\nthree\n");
    }
}

#[test]
fn output_into_a_file() {
    let dir = scratch();
    let out = dir.path().join("out");
    for guest in PROGRAMS {
        let run = Wasmrun::submit(guest).arg("-O").arg(&out);
        assert_eq!(run.program(["args", guest]).ok(), "");
        assert_eq!(fs::read_to_string(&out).unwrap(), format!("{guest}\n"));
        let run = Wasmrun::submit(guest).arg("-O").arg(&out);
        assert_eq!(run.program(["stderr", "aside"]).run().stderr, "aside\n");
        // The program wrote nothing, and that is what the file says.
        assert_eq!(fs::read_to_string(&out).unwrap(), "");
    }
    let run = Wasmrun::submit("prog-p1").args(["-O", "/no/such/dir/out"]);
    assert_says(
        &run.program(["args", "x"]).fails(2),
        &[
            "error: cannot write to /no/such/dir/out: there is no folder /no/such/dir; make it first",
        ],
    );
}

#[test]
fn a_panic_shows_its_message_and_backtrace() {
    for (run, place) in [
        (Wasmrun::call("panic(\"all is lost\")"), "    at panic\n"),
        (
            Wasmrun::submit("prog").program(["panic", "all is lost"]),
            "    at prog::main",
        ),
        (
            Wasmrun::submit("prog-p1").program(["panic", "all is lost"]),
            "    at prog::main",
        ),
    ] {
        run.fails_saying(
            5,
            &[
                "panicked at ",
                "all is lost\n",
                "error: ",
                ": the guest trapped: wasm trap: wasm `unreachable` instruction executed\n",
                place,
            ],
        );
    }
}

#[test]
fn a_trap_shows_where() {
    for (run, place) in [
        (Wasmrun::call("trap()"), "    at trap\n"),
        (Wasmrun::submit("prog").program(["trap"]), "    at prog::"),
        (
            Wasmrun::submit("prog-p1").program(["trap"]),
            "    at prog::",
        ),
    ] {
        let stderr = run.fails(5);
        assert_says(
            &stderr,
            &[
                "error: ",
                ": the guest trapped: wasm trap: wasm `unreachable`",
                place,
            ],
        );
        assert!(
            !stderr.contains("RUST_BACKTRACE") && !stderr.contains("src/main.rs:"),
            "{stderr}"
        );
    }
    let json = Wasmrun::call("trap()").json(5);
    assert_eq!(json["error"]["kind"], "trap");
    assert_eq!(json["error"]["backtrace"][0], "trap");
}

#[test]
fn frames_are_readable() {
    // Not `prog::descend::h3eb27d793312a4e7` or `std[9cfeef3574e6ad2e]::…`.
    let stderr = Wasmrun::submit("prog-p1").program(["panic", "x"]).fails(5);
    let frames: Vec<&str> = stderr
        .lines()
        .filter(|line| line.starts_with("    at "))
        .collect();
    assert!(!frames.is_empty(), "{stderr}");
    for frame in frames {
        let hash = frame.rsplit_once("::h").is_some_and(|(_, hash)| {
            hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        assert!(!hash && !frame.contains("std["), "{frame}");
    }
}

#[test]
fn programs_in_json() {
    for guest in PROGRAMS {
        let json = Wasmrun::submit(guest).program(["args", "ä"]).json(0);
        assert_eq!(json["stdout"], "ä\n");
        assert_eq!(json["stderr"], "");
        assert_eq!(json["exit_code"], 0);
        assert_eq!(json["state"], "finished");
    }
    let json = Wasmrun::submit("prog-p1").program(["exit", "7"]).json(7);
    assert_eq!(json["exit_code"], 7);
    assert_eq!(json["state"], "failed");
    assert_eq!(json["error"]["kind"], "exit");
    let json = Wasmrun::submit("prog-p1")
        .program(["panic", "lost"])
        .json(5);
    assert_eq!(json["exit_code"], serde_json::Value::Null);
    assert_says(
        json["error"]["stderr_tail"].as_str().unwrap(),
        &["panicked at", "lost"],
    );
}

#[test]
fn what_is_for_functions_is_refused_for_programs_and_the_other_way_round() {
    let stderr = Wasmrun::submit("fixture").fails(2);
    assert_says(
        &stderr,
        &[
            "fixture.wasm has no program to run; call one of its functions, for example --invoke 'a#who()'",
        ],
    );
    Wasmrun::call("noop()").program(["x"]).fails_saying(
        2,
        &["arguments after -- are for a program: write a function's into --invoke 'f(…)'"],
    );
    Wasmrun::submit("prog")
        .args(["--invoke", "main()"])
        .fails_saying(2, &["error: the module exports no function 'main'"]);
}

#[test]
fn a_function_that_exits_has_failed() {
    let dir = scratch();
    let text = r#"(component
        (import "wasi:cli/exit@0.2.0" (instance $exit
          (export "exit" (func (param "status" (result))))))
        (core func $exit (canon lower (func $exit "exit")))
        (core module $m
          (import "" "exit" (func $exit (param i32)))
          (func (export "f") (param i32) (call $exit (local.get 0))))
        (core instance $i (instantiate $m (with "" (instance (export "exit" (func $exit))))))
        (func (export "f") (param "code" u32) (canon lift (core func $i "f"))))"#;
    let module = assemble(dir.path(), "exits", text);
    for code in [0, 1] {
        // It was to return, so even a success is none; and the code is not ours to pass on.
        let call = format!("f({code})");
        let error = Wasmrun::submit_file(&module)
            .args(["--invoke", &call])
            .fails(5);
        let says = format!("exited with code {code} before it returned a result");
        assert_says(&error, &[&says]);
    }
}

#[test]
fn output_goes_into_a_file_with_json_too() {
    let dir = scratch();
    let file = dir.path().join("out.txt");
    let json = Wasmrun::submit("prog")
        .arg("--result-file")
        .arg(&file)
        .program(["args", "hello"])
        .json(0);
    let stdout = json["stdout"].as_str().unwrap();
    assert!(stdout.contains("hello"), "{stdout}");
    assert_eq!(fs::read_to_string(&file).unwrap(), stdout);
}
