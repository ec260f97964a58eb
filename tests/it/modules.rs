//! Modules: what can run, and what is wrong with what cannot.

use std::fs;
use std::path::Path;

use wasmrun_tests::{Wasmrun, assemble, assert_says, guest, scratch};

/// A component with a function `f` that does nothing, and these imports.
fn component(imports: &str) -> String {
    format!(
        "(component {imports}
            (core module $m (func (export \"f\")))
            (core instance $i (instantiate $m))
            (func (export \"f\") (canon lift (core func $i \"f\"))))"
    )
}

/// The error of a module that does not load, with its path shortened.
#[track_caller]
fn refused(module: &Path) -> String {
    let submit = Wasmrun::submit_file(module).fails(2);
    let inspect = Wasmrun::new(["inspect"]).arg(module).fails(2);
    assert_eq!(
        submit, inspect,
        "a module is as bad for one command as for another"
    );
    let start = format!("error: cannot load {}\n  because: ", module.display());
    let rest = submit.strip_prefix(&start);
    rest.unwrap_or_else(|| panic!("it should begin {start:?}: {submit}"))
        .to_owned()
}

#[track_caller]
fn refused_bytes(bytes: &[u8]) -> String {
    let dir = scratch();
    let module = dir.path().join("module.wasm");
    fs::write(&module, bytes).unwrap();
    refused(&module)
}

#[track_caller]
fn refused_text(text: &str) -> String {
    let dir = scratch();
    refused(&assemble(dir.path(), "module", text))
}

#[test]
fn what_is_not_wasm() {
    let start = "this is not a wasm module: ";
    for (bytes, says) in [
        (
            &b""[..],
            "the file is empty; build one with `cargo build --target wasm32-wasip2`, for example\n",
        ),
        (
            &fs::read("/proc/self/exe").unwrap()[..4096],
            "it is a native program or precompiled code (ELF); build one",
        ),
        (
            b"(module)",
            "it is wasm text (WAT); turn it into a binary with `wasm-tools parse`\n",
        ),
        (b"  \n(component\n)", "it is wasm text (WAT)"),
        (b";; text\n(module)", "it is wasm text (WAT)"),
        (b"#!/bin/sh\necho", "it is a script"),
        (
            b"\x1f\x8b\x08\x00",
            "it is compressed (gzip); decompress it first",
        ),
        (b"PK\x03\x04", "it is a zip archive; unpack it first"),
        (b"\0as", "it does not begin with the four bytes \\0asm"),
        (
            b"fn main() {}",
            "it does not begin with the four bytes \\0asm",
        ),
        (&[0; 1000], "it does not begin with the four bytes \\0asm"),
    ] {
        let stderr = refused_bytes(bytes);
        assert_says(&stderr, &[start, says]);
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn files_that_cannot_be_read() {
    let dir = scratch();
    for (path, says, advises) in [
        (
            dir.path().join("missing.wasm"),
            "No such file or directory",
            "check the path: a relative one begins at /",
        ),
        (dir.path().to_owned(), "Is a directory", "give a file in it"),
    ] {
        Wasmrun::submit_file(&path).fails_saying(
            2,
            &[
                "error: cannot read the module ",
                "\n  because: ",
                says,
                advises,
            ],
        );
    }
}

#[test]
fn a_module_that_never_ends_is_refused() {
    let run = Wasmrun::submit_file("/dev/zero").args(["--max-module", "1MiB"]);
    let stderr = run.address_space_kib(2 << 20).fails(2);
    assert!(
        !stderr.contains("out of memory"),
        "no more is read than is accepted: {stderr}"
    );
}

#[test]
fn truncated_modules() {
    for (name, cuts) in [("prog-p1", 12), ("fixture", 12), ("fixture-p1", 6)] {
        let whole = fs::read(guest(name)).unwrap();
        for cut in 1..cuts {
            let at = whole.len() * cut / cuts;
            let stderr = refused_bytes(&whole[..at]);
            assert_says(
                &stderr,
                &["the module is truncated: it ends in the middle of a section at byte "],
            );
        }
        for at in [4, 7, 9, 10, whole.len() - 1] {
            let stderr = refused_bytes(&whole[..at]);
            assert_says(&stderr, &["the module is "]);
        }
    }
}

#[test]
fn damaged_modules_never_bring_it_down() {
    let dir = scratch();
    let module = dir.path().join("module.wasm");
    for name in ["prog-p1", "prog"] {
        let whole = fs::read(guest(name)).unwrap();
        for n in 0..12 {
            let mut bytes = whole.clone();
            let at = 4 + (whole.len() - 4) * n / 12;
            bytes[at] ^= 0x55;
            fs::write(&module, bytes).unwrap();
            let ended = Wasmrun::submit_file(&module)
                .args(["--time-limit", "5s"])
                .program(["args"])
                .run();
            // It may even run: not every byte matters.
            assert!(
                matches!(ended.code, Some(0..=6)),
                "byte {at} of {name}: {ended}"
            );
            assert!(!ended.stderr.contains("panicked at runtime/"), "{ended}");
        }
    }
}

#[test]
fn bad_sections() {
    let whole = fs::read(guest("prog-p1")).unwrap();
    let with_section = |section: &[u8]| [&whole[..8], section, &whole[8..]].concat();
    for (section, says) in [
        (&b"\x7f\x03abc"[..], "malformed section id: 127"),
        (b"\x01\x03abc", "the module is not valid wasm: "),
        (b"\x01\xff\xff\xff\xff\x0f", "the module is "),
        // A custom section whose name is longer than itself.
        (b"\x00\x02\x09a", "the module is "),
    ] {
        assert_says(&refused_bytes(&with_section(section)), &[says]);
    }
    assert_says(
        &refused_bytes(b"\0asm\x02\0\0\0"),
        &["the module is not valid wasm: ", "version"],
    );
    // Types that do not add up.
    let text = "(module (func (export \"_start\") (result i32) (i64.const 1)))";
    assert_says(
        &refused_text(text),
        &["the module is not valid wasm: ", "type mismatch"],
    );
}

#[test]
fn unknown_imports_are_named() {
    let instance = |name: &str, function: &str| {
        component(&format!(
            "(import \"{name}\" (instance (export \"{function}\" (func))))"
        ))
    };
    for (text, names) in [
        (instance("acme:things/door@1.0.0", "open"), ["acme:things/door@1.0.0", "open"]),
        (instance("wasi:http/outgoing-handler@0.2.0", "handle"), ["wasi:http/outgoing-handler@0.2.0", "handle"]),
        (instance("wasi:clocks/monotonic-clock@0.2.0", "later"), ["wasi:clocks/monotonic-clock@0.2.0", "later"]),
        (component("(import \"open-door\" (func))"), ["open-door", ""]),
        (
            "(module (import \"env\" \"magic\" (func)) (func (export \"_start\")))".into(),
            ["env::magic", ""],
        ),
        (
            "(module (import \"wasi_snapshot_preview1\" \"fd_write\" (func)) (func (export \"_start\")))".into(),
            ["wasi_snapshot_preview1::fd_write", "(param i32 i32 i32 i32)"],
        ),
    ] {
        let stderr = refused_text(&text);
        assert_says(
            &stderr,
            &["the module imports something that is not on offer: ", names[0], names[1], "a task may import WASI 0.2"],
        );
    }
    // What was built for another version of ours is to be built anew: its types may differ where its version does not.
    for interface in [
        "wasmrun:runtime/context@0.2.0",
        "wasmrun:runtime/context@0.1.0",
    ] {
        let stderr = refused_text(&instance(interface, "task-id"));
        assert_says(
            &stderr,
            &[
                "not on offer: ",
                interface,
                "task-id",
                "another version of wasmrun's interface",
                "build it anew",
            ],
        );
    }
}

#[test]
fn modules_with_nothing_to_run() {
    for (text, says) in [
        (
            "(module (func (export \"add\") (result i32) (i32.const 1)))",
            "it is a core module that exports only add, neither `_start` nor a component's types",
        ),
        ("(module)", "it is a core module that exports no function"),
        (
            "(module (func (export \"_initialize\")) (func (export \"add\")))",
            "it is a core module that exports only _initialize, add",
        ),
        ("(component)", "it is a component that exports no function"),
    ] {
        let stderr = refused_text(text);
        assert_says(
            &stderr,
            &[
                "the module has nothing to run: ",
                says,
                "; export a function or wasi:cli/run from a component",
            ],
        );
    }
}

#[test]
fn shared_memories_are_refused() {
    let memory = "(memory (export \"memory\") 1 2 shared)";
    let program = format!("(module {memory} (func (export \"_start\")))");
    assert_says(&refused_text(&program), &["shared memor"]);
    let inside = format!(
        "(component (core module $m {memory} (func (export \"f\")))
            (core instance $i (instantiate $m))
            (func (export \"f\") (canon lift (core func $i \"f\"))))"
    );
    assert_says(&refused_text(&inside), &["shared memor"]);
    let imported =
        "(module (import \"env\" \"memory\" (memory 1 2 shared)) (func (export \"_start\")))";
    assert_says(&refused_text(imported), &["shared memor"]);
}

#[test]
fn proposals_that_escape_the_account_are_refused() {
    for (text, says) in [
        (
            "(module (type (struct (field i32))) (func (export \"_start\")))",
            "gc",
        ),
        (
            "(module (memory 1) (func (export \"_start\") (drop (i32.atomic.load (i32.const 0)))))",
            "threads",
        ),
    ] {
        let stderr = refused_text(text).to_lowercase();
        assert_says(&stderr, &["not on offer: ", says]);
    }
}

#[test]
fn more_than_the_host_holds_is_the_hosts_limit_and_not_the_modules_fault() {
    let memories = "(memory 1) ".repeat(17);
    for fields in ["(table 200000 funcref)", &memories, "(memory i64 200000)"] {
        let stderr = refused_text(&format!("(module {fields} (func (export \"_start\")))"));
        assert_says(&stderr, &["limit"]);
        assert!(!stderr.contains("not valid wasm"), "{stderr}");
    }
}

#[test]
fn programs_of_few_means() {
    let dir = scratch();
    let run = |name: &str, text: &str| Wasmrun::submit_file(assemble(dir.path(), name, text));
    // Not even a memory.
    assert_eq!(run("bare", "(module (func (export \"_start\")))").ok(), "");
    for (name, text, says) in [
        (
            "divides",
            "(drop (i32.div_s (i32.const 1) (i32.const 0)))",
            "integer divide by zero",
        ),
        (
            "reads",
            "(drop (i32.load (i32.const -1)))",
            "out of bounds memory access",
        ),
        (
            "jumps",
            "(call_indirect (type $t) (i32.const 0))",
            "uninitialized element",
        ),
        (
            "converts",
            "(drop (i32.trunc_f32_s (f32.const nan)))",
            "invalid conversion to integer",
        ),
    ] {
        let text = format!(
            "(module (memory 1) (table 1 funcref) (type $t (func)) (func (export \"_start\") {text}))"
        );
        assert_says(
            &run(name, &text).fails(5),
            &[&format!(
                "error: {name}.wasm: the guest trapped: wasm trap: {says}\n    at function 0\n"
            )],
        );
    }
    let text = "(module (func $start unreachable) (start $start) (func (export \"_start\")))";
    run("starts", text).fails_saying(5, &["the guest trapped", "at start\n"]);
    let text = "(module (memory 1) (data (i32.const 65536) \"x\") (func (export \"_start\")))";
    run("data", text).fails_saying(5, &["the guest trapped", "out of bounds memory access"]);
}

#[test]
fn a_start_of_another_type_is_refused() {
    for ty in ["(param i32)", "(result i32) (i32.const 0)"] {
        let text = format!("(module (func (export \"_start\") {ty}))");
        assert_says(&refused_text(&text), &["_start"]);
    }
}

#[test]
fn functions_that_pass_resources_are_no_tasks() {
    let text = r#"(component
        (type $thing (resource (rep i32)))
        (core func $new (canon resource.new $thing))
        (core module $m
            (import "" "new" (func $new (param i32) (result i32)))
            (func (export "make") (result i32) (call $new (i32.const 1))))
        (core instance $i (instantiate $m (with "" (instance (export "new" (func $new))))))
        (export $exported "thing" (type $thing))
        (func (export "make") (result (own $exported)) (canon lift (core func $i "make"))))"#;
    let dir = scratch();
    let module = assemble(dir.path(), "resource", text);
    let stderr = Wasmrun::submit_file(&module)
        .args(["--invoke", "make()"])
        .fails(2);
    assert_eq!(
        stderr,
        "error: 'make' cannot be run as a task: its type has a resource that is neither an object's handle nor an actor's\n"
    );
    let inspect = Wasmrun::new(["inspect"]).arg(&module).ok();
    assert_says(&inspect, &["\nnot tasks\n  make: its type has a resource"]);
}

#[test]
fn asynchronous_exports_are_called_like_others() {
    let text = r#"(component
        (core module $m
            (import "" "task.return" (func $return (param i32)))
            (func (export "f") (result i32) (call $return (i32.const 42)) (i32.const 0))
            (func (export "callback") (param i32 i32 i32) (result i32) unreachable))
        (core func $return (canon task.return (result u32)))
        (core instance $i
            (instantiate $m (with "" (instance (export "task.return" (func $return))))))
        (func (export "f") async (result u32)
            (canon lift (core func $i "f") async (callback (core func $i "callback")))))"#;
    let dir = scratch();
    let module = assemble(dir.path(), "async", text);
    let run = || Wasmrun::submit_file(&module).args(["--invoke", "f()"]);
    assert_eq!(run().ok(), "42\n");
    assert_eq!(run().json(0)["result"], 42);
}

#[test]
fn modules_with_much_data_run_too() {
    // Enough for the copy-on-write engine.
    let dir = scratch();
    let data = "x".repeat(1 << 20);
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_write"
                (func $write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 40)
            (data (i32.const 0) "\10\00\00\00\03\00\00\00\00\00\00\00\00\00\00\00ok\n")
            (data (i32.const 65536) "{data}")
            (func (export "_start")
                ;; What the task before wrote must be gone.
                (if (i32.ne (i32.load8_u (i32.const 65536)) (i32.const 120)) (then unreachable))
                (if (i32.load8_u (i32.const 2000000)) (then unreachable))
                (i32.store8 (i32.const 65536) (i32.const 1))
                (i32.store8 (i32.const 2000000) (i32.const 1))
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 100)))))"#
    );
    let module = assemble(dir.path(), "large", &text);
    assert_eq!(Wasmrun::submit_file(&module).ok(), "ok\n");
    let out = Wasmrun::submit_file(&module).args(["--array", "0-99"]).ok();
    assert_eq!(out.lines().count(), 100);
}

#[test]
fn each_task_has_a_fresh_sandbox() {
    let dir = scratch();
    let text = r#"(component
        (core module $m
            (memory (export "memory") 1)
            (global $n (mut i32) (i32.const 0))
            (table $t 1 funcref)
            (func (export "f") (result i32)
                (if (i32.eqz (ref.is_null (table.get $t (i32.const 0)))) (then unreachable))
                (table.set $t (i32.const 0) (ref.func 0))
                (global.set $n (i32.add (global.get $n) (i32.const 1)))
                (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
                (i32.add (global.get $n) (i32.load (i32.const 64))))
            (elem declare func 0))
        (core instance $i (instantiate $m))
        (func (export "f") (result u32) (canon lift (core func $i "f"))))"#;
    let module = assemble(dir.path(), "counter", text);
    let out = Wasmrun::submit_file(&module)
        .args(["--invoke", "f()", "--array", "1-200"])
        .ok();
    let lines: Vec<String> = (1..=200).map(|n| format!("[{n}] 2")).collect();
    assert_eq!(out.trim_end(), lines.join("\n"));
}

#[test]
fn a_module_may_come_from_a_pipe() {
    let bytes = fs::read(guest("graph")).unwrap();
    let node = crate::node::Node::start();
    let call = ["/dev/stdin", "--invoke", "add(1, 2)"];
    let own = Wasmrun::new(["submit"]).args(call);
    assert_eq!(own.stdin(&bytes[..]).ok(), "3\n");
    let there = node.wasmrun(["submit"]).args(call);
    assert_eq!(there.stdin(&bytes[..]).ok(), "3\n");
    let inspect = Wasmrun::new(["inspect", "/dev/stdin"]);
    assert_says(&inspect.stdin(&bytes[..]).ok(), &["add"]);
    let out = scratch();
    let annotate = Wasmrun::new(["annotate", "/dev/stdin", "--retries", "1", "--out"]);
    annotate.arg(out.path().join("m.wasm")).stdin(bytes).ok();
}
