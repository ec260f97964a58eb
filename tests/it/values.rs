//! Values: each type of WIT there and back, as WAVE and as JSON, and what is wrong with those
//! that do not fit.

use std::fs;

use serde_json::{Value as Json, json};
use wasmrun_tests::{Wasmrun, assert_says, scratch};

const PERSON: &str = r#"{full-name: "Ada L.", age: 36, home: some({x: 1.5, y: -2}), tags: ["a", ""], role: site-admin, rights: {read, run-jobs}}"#;

/// A function, its argument and so its result as WAVE, and the result as JSON.
fn echoes() -> Vec<(&'static str, &'static str, Json)> {
    let person = json!({
        "full-name": "Ada L.", "age": 36, "home": {"x": 1.5, "y": -2.0}, "tags": ["a", ""],
        "role": "site-admin", "rights": ["read", "run-jobs"],
    });
    vec![
        ("echo-bool", "true", json!(true)),
        ("echo-bool", "false", json!(false)),
        ("echo-u8", "255", json!(255)),
        ("echo-u16", "65535", json!(65535)),
        ("echo-u32", "4294967295", json!(u32::MAX)),
        ("echo-u64", "18446744073709551615", json!(u64::MAX)),
        ("echo-u64", "9007199254740993", json!(9007199254740993_u64)),
        ("echo-s8", "-128", json!(-128)),
        ("echo-s16", "-32768", json!(-32768)),
        ("echo-s32", "-2147483648", json!(i32::MIN)),
        ("echo-s64", "-9223372036854775808", json!(i64::MIN)),
        ("echo-f32", "0.1", json!(0.1)),
        ("echo-f32", "nan", json!("nan")),
        ("echo-f32", "-inf", json!("-inf")),
        ("echo-f64", "0.1", json!(0.1)),
        ("echo-f64", "-0", json!(-0.0)),
        ("echo-char", "'x'", json!("x")),
        ("echo-char", "'😀'", json!("😀")),
        ("echo-string", "\"\"", json!("")),
        (
            "echo-string",
            r#""a\nb\"c\\ äö 😀""#,
            json!("a\nb\"c\\ äö 😀"),
        ),
        ("echo-bytes", "[]", json!([])),
        ("echo-bytes", "[0, 127, 255]", json!([0, 127, 255])),
        (
            "echo-list-s32",
            "[-1, 0, 2147483647]",
            json!([-1, 0, i32::MAX]),
        ),
        (
            "echo-list-f64",
            "[0.5, nan, inf, -0]",
            json!([0.5, "nan", "inf", -0.0]),
        ),
        (
            "echo-list-string",
            r#"["a", "", "ä"]"#,
            json!(["a", "", "ä"]),
        ),
        (
            "echo-list-record",
            "[{x: 1, y: 2}, {x: 3, y: 4}]",
            json!([{"x": 1.0, "y": 2.0}, {"x": 3.0, "y": 4.0}]),
        ),
        (
            "echo-list-option",
            "[some(1), none, some(3)]",
            json!([1, null, 3]),
        ),
        (
            "echo-list-result",
            "[ok(1), err(\"e\")]",
            json!([{"ok": 1}, {"err": "e"}]),
        ),
        (
            "echo-matrix",
            "[[1, 2], [], [65535]]",
            json!([[1, 2], [], [65535]]),
        ),
        ("echo-tuple", "(1, \"a\", true)", json!([1, "a", true])),
        ("echo-option", "some(\"a\")", json!("a")),
        ("echo-option", "none", json!(null)),
        ("echo-option-option", "some(some(1))", json!({"some": 1})),
        ("echo-option-option", "some(none)", json!({"some": null})),
        ("echo-option-option", "none", json!(null)),
        ("echo-result", "ok(1)", json!({"ok": 1})),
        ("echo-result-ok", "ok(1)", json!({"ok": 1})),
        ("echo-result-err", "ok", json!({"ok": null})),
        ("echo-result-empty", "ok", json!({"ok": null})),
        (
            "echo-record",
            "{x: 1.5, y: -2}",
            json!({"x": 1.5, "y": -2.0}),
        ),
        ("echo-person", PERSON, person),
        ("echo-enum", "site-admin", json!("site-admin")),
        (
            "echo-flags",
            "{read, run-jobs}",
            json!(["read", "run-jobs"]),
        ),
        ("echo-flags", "{}", json!([])),
        ("echo-variant", "empty", json!("empty")),
        ("echo-variant", "circle(1.5)", json!({"circle": 1.5})),
        (
            "echo-variant",
            "polygon([{x: 1, y: 2}])",
            json!({"polygon": [{"x": 1.0, "y": 2.0}]}),
        ),
        (
            "echo-variant",
            "named((\"n\", {x: 1, y: 2}))",
            json!({"named": ["n", {"x": 1.0, "y": 2.0}]}),
        ),
        (
            "echo-nested",
            "[(\"a\", some([circle(1.5), empty])), (\"b\", none)]",
            json!([["a", [{"circle": 1.5}, "empty"]], ["b", null]]),
        ),
    ]
}

#[test]
fn each_type_as_wave() {
    for (function, wave, _) in echoes() {
        let call = format!("{function}({wave})");
        assert_eq!(Wasmrun::call(&call).ok(), format!("{wave}\n"), "{call}");
    }
}

#[test]
fn each_type_as_json() {
    for (function, wave, expected) in echoes() {
        let call = format!("{function}({wave})");
        let json = Wasmrun::call(&call).json(0);
        assert_eq!(json["state"], "finished", "{call}: {json:#}");
        assert_eq!(json["result"], expected, "{call}");
    }
}

#[test]
fn a_core_module_with_a_component_type_is_as_good() {
    let call = |call: &str| Wasmrun::submit("fixture-p1").args(["--invoke", call]);
    for (function, wave, _) in echoes() {
        let text = format!("{function}({wave})");
        assert_eq!(call(&text).ok(), format!("{wave}\n"), "{text}");
    }
    assert_eq!(call("join(\"ab\", 2, some(\"c\"))").ok(), "\"ababc\"\n");
    assert_eq!(call("only-here()").ok(), "\"named\"\n");
}

#[test]
fn other_ways_to_write_a_value() {
    for (call, result) in [
        ("echo-u8( 7 )", "7"),
        ("echo-string(\"\\u{1F600}\\t\")", "\"😀\\t\""),
        (
            "echo-option(\"short for some\")",
            "some(\"short for some\")",
        ),
        ("echo-result(3)", "ok(3)"),
        ("echo-record({y: 2, x: 1})", "{x: 1, y: 2}"),
        ("echo-flags({run-jobs, read})", "{read, run-jobs}"),
        ("echo-f64(1e3)", "1000"),
        ("echo-f64(1.5e-7)", "0.00000015"),
        ("echo-f32(16777217)", "16777216"),
        ("echo-bytes([1, 2, 3,])", "[1, 2, 3]"),
        // An option that is left out is none.
        (
            "echo-person({full-name: \"A\", age: 1, tags: [], role: guest, rights: {}})",
            "{full-name: \"A\", age: 1, tags: [], role: guest, rights: {}}",
        ),
    ] {
        assert_eq!(Wasmrun::call(call).ok(), format!("{result}\n"), "{call}");
    }
}

#[test]
fn several_arguments_and_none() {
    assert_eq!(
        Wasmrun::call("join(\"ab\", 3, some(\"c\"))").ok(),
        "\"abababc\"\n"
    );
    assert_eq!(Wasmrun::call("join(\"ab\", 0, none)").ok(), "\"\"\n");
    assert_eq!(Wasmrun::call("noop()").ok(), "");
    let json = Wasmrun::call("noop()").json(0);
    assert_eq!(
        (&json["state"], json.get("result")),
        (&json!("finished"), None)
    );
    // Without parentheses it is a call without arguments.
    assert_eq!(Wasmrun::call("noop").ok(), "");
}

#[test]
fn the_error_case_of_a_result_fails_the_task() {
    for (call, text, value) in [
        (
            "fail(\"no \\\"more\\\"\")",
            "fail: the function returned an error: \"no \"more\"\"",
            json!({"err": "no \"more\""}),
        ),
        (
            "echo-result(err(\"bad\"))",
            "echo-result: the function returned an error: \"bad\"",
            json!({"err": "bad"}),
        ),
        (
            "echo-result-ok(err)",
            "echo-result-ok: the function returned an error: err, without saying more",
            json!({"err": null}),
        ),
        (
            "echo-result-empty(err)",
            "echo-result-empty: the function returned an error: err, without saying more",
            json!({"err": null}),
        ),
    ] {
        assert_eq!(Wasmrun::call(call).fails(5), format!("error: {text}\n"));
        let json = Wasmrun::call(call).json(5);
        assert_eq!(json["state"], "failed");
        assert_eq!(json["result"], value);
        assert_eq!(json["error"]["kind"], "guest-error");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_its_path() {
    for (call, says) in [
        (
            "echo-bool(1)",
            "args[0]: expected bool (true or false), found 1",
        ),
        (
            "echo-u8(256)",
            "args[0]: 256 does not fit u8; give a number from 0 to 255",
        ),
        ("echo-u8(-1)", "args[0]: -1 does not fit u8"),
        ("echo-u8(1.5)", "args[0]: expected u8, found 1.5"),
        ("echo-u8(\"x\")", "args[0]: expected u8, found \"x\""),
        (
            "echo-u64(18446744073709551616)",
            "args[0]: 18446744073709551616 does not fit u64",
        ),
        (
            "echo-s8(-129)",
            "args[0]: -129 does not fit s8; give a number from -128 to 127",
        ),
        ("echo-f32(\"1\")", "args[0]: expected f32, found \"1\""),
        ("echo-f64(1e400)", "args[0]: 1e400 does not fit f64"),
        (
            "echo-char(\"ab\")",
            "args[0]: expected char (like 'x'), found \"ab\"",
        ),
        (
            "echo-string(1)",
            "args[0]: expected string (in double quotes), found 1",
        ),
        ("echo-bytes([1, 256])", "args[0][1]: 256 does not fit u8"),
        ("echo-bytes(\"text\")", "args[0]: expected"),
        (
            "echo-list-s32([1, \"x\"])",
            "args[0][1]: expected s32, found \"x\"",
        ),
        (
            "echo-list-f64([1, [2]])",
            "args[0][1]: expected f64, found [2]",
        ),
        (
            "echo-list-record([{x: 1, y: 2}, {x: 1, y: \"abc\"}])",
            "args[0][1].y: expected f32, found \"abc\"",
        ),
        (
            "echo-matrix([[1], [70000]])",
            "args[0][1][0]: 70000 does not fit u16",
        ),
        ("echo-tuple((1, \"a\"))", "args[0]: expected 3 items"),
        ("echo-tuple((1, 2, true))", "args[0].1: expected string"),
        ("echo-option(some(1))", "args[0]: expected string"),
        (
            "echo-result(ok(\"x\"))",
            "args[0].ok: expected u32, found \"x\"",
        ),
        (
            "echo-record({x: 1})",
            "args[0]: field \"y\" is missing; add it, its type is f32",
        ),
        (
            "echo-record({x: 1, y: 2, z: 3})",
            "args[0]: there is no field \"z\"; the fields are x, y",
        ),
        (
            "echo-enum(nobody)",
            "args[0]: there is no case \"nobody\"; choose from guest, member, site-admin",
        ),
        (
            "echo-flags({read, fly})",
            "args[0]: there is no flag \"fly\"; choose from read, write, run-jobs",
        ),
        (
            "echo-variant(square(1))",
            "args[0]: there is no case \"square\"; choose from empty, circle, polygon, named",
        ),
        (
            "echo-variant(circle)",
            "args[0]: case \"circle\" needs a payload of type f64",
        ),
        ("echo-variant(empty(1))", "args[0]: "),
        (
            "echo-variant(polygon([{x: 1}]))",
            "args[0].polygon[0]: field \"y\" is missing",
        ),
        (
            "echo-nested([(\"a\", some([circle(\"r\")]))])",
            "args[0][0].1[0].circle: expected f64, found \"r\"",
        ),
        ("join(\"a\", -1, none)", "args[1]: -1 does not fit u32"),
    ] {
        let stderr = Wasmrun::call(call).fails(2);
        let function = call.split('(').next().unwrap();
        assert_says(
            &stderr,
            &[
                &format!("error: cannot call {function}("),
                "\n  because: ",
                says,
            ],
        );
    }
}

#[test]
fn wrong_arity_shows_the_parameters() {
    for (call, says) in [
        ("echo-u8()", "args: expected 1 argument (v: u8), found 0"),
        (
            "echo-u8(1, 2)",
            "args: expected 1 argument (v: u8), found 2",
        ),
        ("noop(1)", "expected no arguments, found 1"),
        (
            "join(\"a\")",
            "args: expected 2 or 3 arguments (first: string, times: u32, last: option<string>), found 1",
        ),
    ] {
        Wasmrun::call(call).fails_saying(2, &["error: cannot call ", says]);
    }
}

#[test]
fn bad_wave_says_where() {
    for (call, says) in [
        ("echo-u8(1", "unexpected end of input at byte 9"),
        ("echo-u8((1)", "unexpected end of input"),
        ("echo-u8(1))", "trailing characters after value at byte 10"),
        (
            "echo-u8(1) x",
            "trailing characters after value at byte 11, at \"x\"",
        ),
        ("echo-string(\"abc)", "invalid token at byte 12"),
        (
            "echo-flags({read, read})",
            "duplicate flag: \"read\" at byte 18",
        ),
        (
            "echo-record({x: 1, x: 2, y: 3})",
            "duplicate field: \"x\" at byte 19",
        ),
        ("echo-u8 1", "\"echo-u8 1\" is not a function's name"),
        ("(1)", "\"\" is not a function's name: it is empty"),
        ("", "\"\" is not a function's name: it is empty"),
        ("echo-u8($i)", "invalid token at byte 8, at \"$i)\""),
    ] {
        Wasmrun::call(call)
            .fails_saying(2, &["error: cannot read the call '", "\n  because: ", says]);
    }
}

#[test]
fn nesting_without_end_is_refused() {
    let deep = "[".repeat(100_000);
    let stderr = Wasmrun::call(&format!("echo-matrix({deep}")).fails(2);
    assert_says(&stderr, &["error: cannot read the call 'echo-matrix([[["]);
    assert!(
        stderr.len() < 2000,
        "and said briefly: {} bytes",
        stderr.len()
    );
    let deep = format!("{}none{}", "some(".repeat(20_000), ")".repeat(20_000));
    Wasmrun::call(&format!("echo-option({deep})")).fails(2);
}

#[test]
fn arguments_from_files() {
    let dir = scratch();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let call = |call: &str, position: u32, path: &str| {
        let file = format!("{position}={path}");
        Wasmrun::call(call).args(["--arg-file", &file])
    };
    let text = file("text", "ä\n".as_bytes());
    assert_eq!(call("echo-string()", 1, &text).ok(), "\"ä\\n\"\n");
    assert_eq!(call("echo-bytes()", 1, &text).ok(), "[195, 164, 10]\n");
    assert_eq!(call("join(2, none)", 1, &text).ok(), "\"ä\\nä\\n\"\n");
    let doubles: Vec<u8> = [1.5_f64, -2.0]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let doubles = file("doubles", &doubles);
    assert_eq!(call("echo-list-f64()", 1, &doubles).ok(), "[1.5, -2]\n");
    let empty = file("empty", b"");
    assert_eq!(call("echo-bytes()", 1, &empty).ok(), "[]\n");

    let bytes = file("bytes", b"\xff\xfe\xfd");
    for (run, says) in [
        (
            call("echo-list-f64()", 1, &bytes),
            "3 bytes, not a whole number of f64",
        ),
        (call("echo-string()", 1, &bytes), "not UTF-8 text"),
        (
            call("echo-u8()", 1, &bytes),
            "only strings and lists of numbers can come from a file",
        ),
        (
            call("echo-string()", 2, &bytes),
            "echo-string takes 1 arguments",
        ),
        (
            call("echo-string(\"x\")", 1, &text),
            "expected no arguments, found 1",
        ),
        (
            call("echo-string()", 1, "/no/such/file"),
            "cannot read the file",
        ),
        (call("echo-string()", 0, &text), "must be N=PATH"),
        (
            call("join(none)", 1, &text).args(["--arg-file", &format!("1={text}")]),
            "argument 1 is given twice",
        ),
        (
            Wasmrun::submit("prog").args(["--arg-file", &format!("1={text}")]),
            "--arg-file gives a function's argument: name the function with --invoke",
        ),
    ] {
        run.fails_saying(2, &["error: ", says]);
    }
}

#[test]
fn large_lists_go_there_and_back() {
    let dir = scratch();
    let input: Vec<u8> = (0..5_000_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let path = dir.path().join("in");
    fs::write(&path, &input).unwrap();
    let run = |guest: &str, call: &str, out: &str| {
        Wasmrun::submit(guest)
            .args([
                "--invoke",
                call,
                "--arg-file",
                &format!("1={}", path.display()),
            ])
            .args(["-O", &dir.path().join(out).display().to_string()])
    };
    assert_eq!(run("fixture", "echo-bytes()", "bytes").ok(), "");
    assert!(fs::read(dir.path().join("bytes")).unwrap() == input);
    // As text, a list takes a line of its own.
    let sum: u64 = input.iter().map(|byte| u64::from(*byte)).sum();
    run("bench", "sum()", "sum").ok();
    assert_eq!(
        fs::read_to_string(dir.path().join("sum")).unwrap(),
        format!("{sum}\n")
    );
}

#[test]
fn a_result_into_a_file() {
    let dir = scratch();
    let out = dir.path().join("out");
    for (call, content) in [
        ("echo-bytes([0, 10, 255])", &b"\x00\x0a\xff"[..]),
        ("echo-string(\"a\\n\")", b"a\n"),
        ("echo-record({x: 1, y: 2})", b"{x: 1, y: 2}\n"),
    ] {
        assert_eq!(Wasmrun::call(call).arg("-O").arg(&out).ok(), "");
        assert_eq!(fs::read(&out).unwrap(), content);
    }
    let stderr = Wasmrun::call("echo-u8(1)")
        .args(["-O", "/no/such/dir/out"])
        .fails(2);
    assert_says(
        &stderr,
        &[
            "error: cannot write to /no/such/dir/out: there is no folder /no/such/dir; make it first",
        ],
    );
}

#[test]
fn functions_print_to_standard_error() {
    let ended = Wasmrun::call("print(\"hello\")").run();
    assert_eq!((ended.code, ended.stdout.len()), (Some(0), 0), "{ended}");
    assert_eq!(ended.stderr, "hello\nhello\n");
    let json = Wasmrun::call("print(\"hello\")").json(0);
    assert_eq!(json["stdout"], "hello\n");
    assert_eq!(json["stderr"], "hello\n");
}
