//! Which function a name stands for.

use wasmrun_tests::{Wasmrun, assemble, scratch};

#[test]
fn unknown_functions_suggest_near_ones() {
    for (call, says) in [
        (
            "ech0-u8(1)",
            "no function 'ech0-u8'; did you mean echo-u8 or ",
        ),
        (
            "echo_bytes([])",
            "no function 'echo_bytes'; did you mean echo-bytes?",
        ),
        ("Noop()", "no function 'Noop'; did you mean noop?"),
        (
            "only-hear()",
            "no function 'only-hear'; did you mean wasmrun:fixture/named@0.1.0#only-here?",
        ),
        (
            "c#who()",
            "no function 'c#who'; did you mean a#who or b#who?",
        ),
        (
            "matrix([])",
            "no function 'matrix'; did you mean echo-matrix?",
        ),
        (
            "zzzzzzzz()",
            "no function 'zzzzzzzz'; `wasmrun inspect` lists its functions",
        ),
    ] {
        let stderr = Wasmrun::call(call).fails(2);
        let start = format!("error: the module exports {says}");
        assert!(stderr.starts_with(&start), "{start:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn a_module_of_few_functions_names_them_all() {
    let dir = scratch();
    let text = r#"(component
        (core module $m (func (export "f")))
        (core instance $i (instantiate $m))
        (func (export "first") (canon lift (core func $i "f")))
        (func (export "second") (canon lift (core func $i "f"))))"#;
    let module = assemble(dir.path(), "two", text);
    let stderr = Wasmrun::submit_file(module)
        .args(["--invoke", "xyz()"])
        .fails(2);
    assert_eq!(
        stderr,
        "error: the module exports no function 'xyz'; it exports first, second\n"
    );
}

#[test]
fn a_name_that_two_interfaces_have_needs_more() {
    let stderr = Wasmrun::call("who()").fails(2);
    assert_eq!(
        stderr,
        "error: 'who' could be any of a#who, b#who; use the full name\n"
    );
    assert_eq!(Wasmrun::call("a#who()").ok(), "\"a\"\n");
    assert_eq!(Wasmrun::call("b#who()").ok(), "\"b\"\n");
}

#[test]
fn interfaces_with_and_without_package_and_version() {
    for call in [
        "only-here()",
        "named#only-here()",
        "wasmrun:fixture/named#only-here()",
        "wasmrun:fixture/named@0.1.0#only-here()",
    ] {
        assert_eq!(Wasmrun::call(call).ok(), "\"named\"\n", "{call}");
    }
    for call in [
        "other#only-here()",
        "wasmrun:fixture/named@0.2.0#only-here()",
        "fixture/named#only-here()",
        "named#noop()",
    ] {
        Wasmrun::call(call).fails(2);
    }
}

#[test]
fn a_component_may_have_a_program_and_functions() {
    let dir = scratch();
    let text = r#"(component
        (core module $m
            (func (export "f") (result i32) (i32.const 7))
            (func (export "run") (result i32) (i32.const 0)))
        (core instance $i (instantiate $m))
        (func (export "f") (result u32) (canon lift (core func $i "f")))
        (func $run (result (result)) (canon lift (core func $i "run")))
        (instance $cli (export "run" (func $run)))
        (export "wasi:cli/run@0.2.0" (instance $cli)))"#;
    let module = assemble(dir.path(), "both", text);
    assert_eq!(Wasmrun::submit_file(&module).ok(), "");
    assert_eq!(
        Wasmrun::submit_file(&module).args(["--invoke", "f()"]).ok(),
        "7\n"
    );
    let inspect = Wasmrun::new(["inspect"]).arg(&module).ok();
    assert!(inspect.contains("\nprogram\n  run\n"), "{inspect}");
    assert!(
        inspect.contains("\nfunctions\n  f: func() -> u32"),
        "{inspect}"
    );
}
