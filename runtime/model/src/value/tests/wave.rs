//! WAVE: wasm-wave's style, round trips, calls, and errors that name the part.

use super::*;
use crate::value::wave::{Invocation, TEXT_MAX_BYTES, Wave, WaveError, parse, print};

/// The type in wasm-wave's terms.
fn theirs(ty: &ValueType) -> wasm_wave::value::Type {
    use wasm_wave::value::Type as T;
    let maybe = |ty: &Option<ValueType>| ty.as_ref().map(theirs);
    match ty {
        ValueType::Bool => T::BOOL,
        ValueType::S8 => T::S8,
        ValueType::U8 => T::U8,
        ValueType::S16 => T::S16,
        ValueType::U16 => T::U16,
        ValueType::S32 => T::S32,
        ValueType::U32 => T::U32,
        ValueType::S64 => T::S64,
        ValueType::U64 => T::U64,
        ValueType::F32 => T::F32,
        ValueType::F64 => T::F64,
        ValueType::Char => T::CHAR,
        // A handle is written as a string.
        ValueType::String | ValueType::Handle(_) => T::STRING,
        ValueType::List(list) => T::list(theirs(&list.element)),
        ValueType::Option(option) => T::option(theirs(&option.some)),
        ValueType::Result(result) => T::result(maybe(&result.ok), maybe(&result.err)),
        ValueType::Record(record) => {
            T::record(record.fields.iter().map(|(name, ty)| (&**name, theirs(ty)))).unwrap()
        }
        ValueType::Tuple(tuple) => {
            T::tuple(tuple.items.iter().map(theirs).collect::<Vec<_>>()).unwrap()
        }
        ValueType::Variant(variant) => {
            T::variant(variant.cases.iter().map(|(name, ty)| (&**name, maybe(ty)))).unwrap()
        }
        ValueType::Enum(names) => T::enum_ty(names.cases.iter().map(|name| &**name)).unwrap(),
        ValueType::Flags(names) => T::flags(names.flags.iter().map(|name| &**name)).unwrap(),
    }
}

proptest! {
    #[test]
    fn text_round_trips((ty, value) in typed()) {
        let printed = print(&ty, &value).unwrap();
        let parsed = parse(&ty, &printed).unwrap();
        prop_assert!(parsed.same_as(&value), "{printed} parsed as {parsed:?}");
    }

    #[test]
    fn text_is_wasm_waves((ty, value) in typed()) {
        let printed = print(&ty, &value).unwrap();
        let theirs: wasm_wave::value::Value = wasm_wave::from_str(&theirs(&ty), &printed).unwrap();
        prop_assert_eq!(wasm_wave::to_string(&theirs).unwrap(), printed);
    }
}

#[test]
fn printed_text() {
    let case = |ty: &ValueType, value: Value, expected: &str| {
        assert_eq!(print(ty, &value).unwrap(), expected);
        assert!(parse(ty, expected).unwrap().same_as(&value), "{expected}");
    };
    case(&ValueType::F32, Value::F32(f32::NAN), "nan");
    case(&ValueType::F64, Value::F64(f64::NEG_INFINITY), "-inf");
    case(&ValueType::F32, Value::F32(0.1), "0.1");
    case(&ValueType::F64, Value::F64(-0.0), "-0");
    case(&ValueType::Char, Value::Char('\''), r"'\''");
    case(&ValueType::Char, Value::Char('☃'), "'☃'");
    case(
        &ValueType::String,
        text("a\"b\\c\n\u{1b}é"),
        r#""a\"b\\c\n\u{1b}é""#,
    );
    let floats = ValueType::list(ValueType::F64).unwrap();
    case(
        &floats,
        numbers(&[1.5, f64::INFINITY, f64::NAN]),
        "[1.5, inf, nan]",
    );
    let option = ValueType::option(ValueType::U8).unwrap();
    case(&option, some(Value::U8(3)), "some(3)");
    let record = ValueType::record([("a", option.clone()), ("b", option)]).unwrap();
    case(
        &record,
        Value::Record(vec![Value::Option(None), some(Value::U8(1))]),
        "{b: some(1)}",
    );
    case(
        &record,
        Value::Record(vec![Value::Option(None), Value::Option(None)]),
        "{:}",
    );
    let keywords = ValueType::variant([("some", Some(ValueType::U8)), ("nan", None)]).unwrap();
    case(
        &keywords,
        Value::Variant(0, Some(Box::new(Value::U8(1)))),
        "%some(1)",
    );
    case(&keywords, Value::Variant(1, None), "%nan");
    let flags = ValueType::flags(["read", "ok"]).unwrap();
    case(&flags, Value::Flags(vec![true, true]), "{read, ok}");
    case(&flags, Value::Flags(vec![false, false]), "{}");
    let result = ValueType::result(None, Some(ValueType::String)).unwrap();
    case(&result, Value::Result(Ok(None)), "ok");
    case(
        &result,
        Value::Result(Err(Some(Box::new(text("x"))))),
        "err(\"x\")",
    );
}

#[test]
fn people_may_write_less() {
    let ty = ValueType::option(ValueType::U8).unwrap();
    assert_eq!(parse(&ty, " 3 // three"), Ok(some(Value::U8(3))));
    let ty = ValueType::result(Some(ValueType::String), None).unwrap();
    assert_eq!(
        parse(&ty, "\"x\""),
        Ok(Value::Result(Ok(Some(Box::new(text("x"))))))
    );
    let ty = ValueType::record([
        ("a", ValueType::U8),
        ("b", ValueType::option(ValueType::U8).unwrap()),
    ])
    .unwrap();
    let value = Value::Record(vec![Value::U8(1), Value::Option(None)]);
    assert_eq!(parse(&ty, "{%a: 1,}"), Ok(value));
    let ty = ValueType::record([("b", ValueType::option(ValueType::U8).unwrap())]).unwrap();
    assert_eq!(
        parse(&ty, "{}"),
        Ok(Value::Record(vec![Value::Option(None)]))
    );
    let ty = ValueType::flags(["a", "b"]).unwrap();
    assert_eq!(parse(&ty, "{%b, a}"), Ok(Value::Flags(vec![true, true])));
    let multiline = "\"\"\"\n  two\n  lines\\u{21}\n  \"\"\"";
    assert_eq!(
        parse(&ValueType::String, multiline),
        Ok(text("two\nlines!"))
    );
}

fn call_error(function: &FunctionType, call: &str) -> String {
    Invocation::parse(call)
        .unwrap()
        .arguments(function)
        .unwrap_err()
        .to_string()
}

#[test]
fn errors_name_the_part() {
    let shape = ValueType::record([("points", ValueType::list(point()).unwrap())]).unwrap();
    let kind = ValueType::variant([("at", Some(point())), ("none", None)]).unwrap();
    let function = FunctionType::new(
        [
            ("n", ValueType::U8),
            ("shape", shape),
            ("kind", ValueType::option(kind).unwrap()),
        ],
        None,
    )
    .unwrap();
    let error = |call: &str| call_error(&function, call);
    let points = r#"{x: 0, y: 0}, {x: 0, y: 0}, {x: 0, y: 0}, {x: "abc", y: 0}"#;
    assert_eq!(
        error(&format!("f(1, {{points: [{points}]}})")),
        "args[1].points[3].x: expected f32, found \"abc\""
    );
    assert_eq!(
        error("f(300, {points: []})"),
        "args[0]: 300 does not fit u8; give a number from 0 to 255"
    );
    assert_eq!(
        error("f(1, {pionts: [], points: []})"),
        "args[1]: there is no field \"pionts\"; the fields are points"
    );
    assert_eq!(
        error("f(1, {points: [{x: 1}]})"),
        "args[1].points[0]: field \"y\" is missing; add it, its type is f32"
    );
    assert_eq!(
        error("f(1, {points: []}, at({x: 1, y: q}))"),
        "args[2].at.y: expected f32, found q"
    );
    assert_eq!(
        error("f(1, {points: []}, to)"),
        "args[2]: there is no case \"to\"; choose from at, none"
    );
    assert_eq!(
        error("f(1, {points: []}, some(at))"),
        "args[2]: case \"at\" needs a payload of type record { x: f32, y: f32 }; write at(..)"
    );
    assert_eq!(
        error("f(1)"),
        "args: expected 2 or 3 arguments (n: u8, shape: record { points: list<record { x: f32, y: f32 }> \
         }, kind: option<variant { at(record { x: f32, y: f32 }), none }>), found 1"
    );
    assert_eq!(
        error("f(1.5, {points: []})"),
        "args[0]: expected u8, found 1.5"
    );
    let nothing = FunctionType::new::<&str>([], None).unwrap();
    assert_eq!(
        call_error(&nothing, "f(1)"),
        "args: expected no arguments, found 1"
    );
    let error = parse(&ValueType::F32, "1e39").unwrap_err().to_string();
    assert!(
        error.starts_with("value: 1e39 does not fit f32; give a number from -3.4"),
        "{error}"
    );
    let error = parse(&ValueType::String, r#""\u{d800}""#)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("value: invalid character escape in \"\\u{d800}\"; "),
        "{error}"
    );
    let long = format!("[{}]", "1, ".repeat(1000));
    let error = parse(&ValueType::Bool, &long).unwrap_err().to_string();
    assert!(error.len() < 200 && error.ends_with('…'), "{error}");
}

#[test]
fn calls() {
    let call = Invocation::parse("ns:pkg/iface@1.0.0-rc.1#f-2 (1, some(2),)").unwrap();
    assert_eq!(call.name(), "ns:pkg/iface@1.0.0-rc.1#f-2");
    assert_eq!(call.interface(), Some("ns:pkg/iface@1.0.0-rc.1"));
    assert_eq!(call.function(), "f-2");
    let option = ValueType::option(ValueType::U8).unwrap();
    let function = FunctionType::new(
        [("a", ValueType::U8), ("b", option.clone()), ("c", option)],
        None,
    )
    .unwrap();
    let expected = vec![Value::U8(1), some(Value::U8(2)), Value::Option(None)];
    assert_eq!(call.arguments(&function), Ok(expected));

    let nothing = FunctionType::new::<&str>([], None).unwrap();
    for text in [
        "f",
        " f ",
        "f()",
        "f ( // no arguments\n ) ",
        "[method]counter.incr",
    ] {
        let call = Invocation::parse(text).unwrap();
        assert_eq!(call.interface(), None);
        assert_eq!(call.arguments(&nothing), Ok(vec![]), "{text}");
    }
    for text in [
        "", "()", "a b", "f\"x\"", "a#b#c", "#f", "a#", "f{x: 1}", "é()",
    ] {
        let error = Invocation::parse(text).unwrap_err();
        assert!(matches!(error, WaveError::Name { .. }), "{text}: {error}");
    }
    let offset = |text: &str| match Invocation::parse(text) {
        Err(WaveError::Syntax { offset, .. }) => offset,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(offset("fun(1, ])"), 7);
    assert_eq!(offset("fun(1) 2"), 7);
    assert_eq!(offset("fun(1"), 5);
    assert_eq!(offset("fun((), 1)"), 4);
    let error = parse(&ValueType::U8, "[1, é]").unwrap_err().to_string();
    assert!(
        error.starts_with("invalid token at byte 4, at \"é]\"; values look like"),
        "{error}"
    );
}

#[test]
fn words_may_stand_for_values() {
    let call = Invocation::parse("f(one, [two], three(3), 4)").unwrap();
    assert_eq!(call.words().collect::<Vec<_>>(), ["one"]);
    let function = FunctionType::new([("a", ValueType::U8), ("b", ValueType::Bool)], None).unwrap();
    let word = |name: &str, ty: &ValueType| {
        (name == "one" && *ty == ValueType::U8).then_some(Value::U8(1))
    };
    let read = |text: &str| {
        let call = Invocation::parse(text).unwrap();
        call.arguments_with(&function, &|_, _| None, &word)
    };
    assert_eq!(
        read("f(one, true)"),
        Ok(vec![Value::U8(1), Value::Bool(true)])
    );
    // Others are what they were, and the places in errors stay right.
    let error = read("f(one, one)").unwrap_err().to_string();
    assert!(error.starts_with("args[1]: expected bool"), "{error}");
    let error = read("f(two, true)").unwrap_err().to_string();
    assert!(error.starts_with("args[0]: expected u8"), "{error}");
}

/// Long tokens and long sequences: no deep recursion in the lexer, no quadratic work.
#[test]
fn long_text() {
    let long = format!("\"{}\"", r"é\n\u{1f980}".repeat(100_000));
    let value = parse(&ValueType::String, &long).unwrap();
    assert_eq!(
        print(&ValueType::String, &value).unwrap().len(),
        2 + 100_000 * (2 + 2 + 4)
    );
    let comments = format!("{}1", "// a comment\n".repeat(100_000));
    assert_eq!(parse(&ValueType::U8, &comments), Ok(Value::U8(1)));
    let ty = ValueType::list(ValueType::U8).unwrap();
    let list = numbers(&vec![200u8; 200_000]);
    assert_eq!(parse(&ty, &print(&ty, &list).unwrap()), Ok(list));
    let deep = "[".repeat(100_000);
    assert!(matches!(parse(&ty, &deep), Err(WaveError::Syntax { .. })));
    let too_long = " ".repeat(TEXT_MAX_BYTES + 1);
    let length_bytes = too_long.len();
    assert_eq!(
        parse(&ty, &too_long),
        Err(WaveError::TooLong { length_bytes })
    );
    let invocation = Invocation::parse(&too_long).map(drop).unwrap_err();
    assert_eq!(invocation, WaveError::TooLong { length_bytes });
}

#[test]
fn printing_can_stop_early() {
    struct Short(String);
    impl std::fmt::Write for Short {
        fn write_str(&mut self, s: &str) -> std::fmt::Result {
            if self.0.len() > 5 {
                return Err(std::fmt::Error);
            }
            self.0.push_str(s);
            Ok(())
        }
    }
    let ty = ValueType::list(ValueType::U8).unwrap();
    let list = numbers(&vec![1u8; 1 << 20]);
    let mut short = Short(String::new());
    let shown = Wave::new(&ty, &list).unwrap();
    assert!(std::fmt::write(&mut short, format_args!("{shown}")).is_err());
    assert_eq!(short.0, "[1, 1, ");
}
