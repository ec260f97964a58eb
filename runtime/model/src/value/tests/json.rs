//! JSON: the documented forms, round trips, and errors that name the part.

use serde_json::{Value as Json, json};

use super::*;
use crate::value::json::{arguments_from_json, from_json, to_json};

proptest! {
    #[test]
    fn json_round_trips((ty, value) in typed()) {
        let json = to_json(&ty, &value).unwrap();
        let read = from_json(&ty, &json).unwrap();
        prop_assert!(read.same_as(&value), "{json} read as {read:?}");
        let json: Json = serde_json::from_str(&json.to_string()).unwrap();
        let read = from_json(&ty, &json).unwrap();
        prop_assert!(read.same_as(&value), "{json} as text read as {read:?}");
    }

    #[test]
    fn f32s_are_exact(bits: u32) {
        let n = f32::from_bits(bits);
        let json = to_json(&ValueType::F32, &Value::F32(n)).unwrap();
        prop_assert!(from_json(&ValueType::F32, &json).unwrap().same_as(&Value::F32(n)));
    }
}

#[test]
fn forms() {
    let case = |ty: &ValueType, value: Value, expected: Json| {
        assert_eq!(to_json(ty, &value).unwrap(), expected);
        assert!(
            from_json(ty, &expected).unwrap().same_as(&value),
            "{expected}"
        );
    };
    case(&ValueType::U64, Value::U64(u64::MAX), json!(u64::MAX));
    case(&ValueType::S64, Value::S64(i64::MIN), json!(i64::MIN));
    case(&ValueType::F32, Value::F32(0.1), json!(0.1));
    case(&ValueType::F64, Value::F64(f64::NAN), json!("nan"));
    case(&ValueType::F32, Value::F32(-f32::INFINITY), json!("-inf"));
    case(&ValueType::Char, Value::Char('🦀'), json!("🦀"));
    let bytes = ValueType::list(ValueType::U8).unwrap();
    case(&bytes, numbers(&[1u8, 2]), json!([1, 2]));
    let option = ValueType::option(ValueType::U8).unwrap();
    case(&option, Value::Option(None), json!(null));
    case(&option, some(Value::U8(3)), json!(3));
    let twice = ValueType::option(option).unwrap();
    case(&twice, Value::Option(None), json!(null));
    case(&twice, some(Value::Option(None)), json!({"some": null}));
    case(&twice, some(some(Value::U8(3))), json!({"some": 3}));
    let thrice = ValueType::option(twice).unwrap();
    case(
        &thrice,
        some(some(Value::Option(None))),
        json!({"some": {"some": null}}),
    );
    let result = ValueType::result(Some(ValueType::U8), None).unwrap();
    case(
        &result,
        Value::Result(Ok(Some(Box::new(Value::U8(1))))),
        json!({"ok": 1}),
    );
    case(&result, Value::Result(Err(None)), json!({"err": null}));
    case(
        &point(),
        Value::Record(vec![Value::F32(1.0), Value::F32(2.5)]),
        json!({"x": 1.0, "y": 2.5}),
    );
    let tuple = ValueType::tuple([ValueType::Bool, ValueType::String]).unwrap();
    case(
        &tuple,
        Value::Tuple(vec![Value::Bool(true), text("a")]),
        json!([true, "a"]),
    );
    let variant = ValueType::variant([("a", None), ("b", Some(ValueType::U8))]).unwrap();
    case(&variant, Value::Variant(0, None), json!("a"));
    case(
        &variant,
        Value::Variant(1, Some(Box::new(Value::U8(1)))),
        json!({"b": 1}),
    );
    let color = ValueType::enumeration(["red", "green"]).unwrap();
    case(&color, Value::Enum(1), json!("green"));
    let flags = ValueType::flags(["r", "w", "x"]).unwrap();
    case(
        &flags,
        Value::Flags(vec![true, false, true]),
        json!(["r", "x"]),
    );
}

#[test]
fn f32s_are_short() {
    for (n, expected) in [
        (0.1f32, "0.1"),
        (1.0e-7, "1e-7"),
        (3.4e38, "3.4e+38"),
        (-2.5, "-2.5"),
    ] {
        assert_eq!(
            to_json(&ValueType::F32, &Value::F32(n))
                .unwrap()
                .to_string(),
            expected
        );
    }
}

#[test]
fn also_read() {
    assert_eq!(
        from_json(&ValueType::U64, &json!("18446744073709551615")),
        Ok(Value::U64(u64::MAX))
    );
    assert_eq!(from_json(&ValueType::S64, &json!("-5")), Ok(Value::S64(-5)));
    assert_eq!(from_json(&ValueType::F64, &json!(5)), Ok(Value::F64(5.0)));
    let bytes = ValueType::list(ValueType::U8).unwrap();
    let read = |text: &str| from_json(&bytes, &json!({ "base64": text }));
    for (text, expected) in [
        ("", ""),
        ("Zg==", "f"),
        ("Zm8=", "fo"),
        ("Zm9v", "foo"),
        ("+/+/AA==", "\0"),
    ] {
        let length = expected.len();
        let Ok(Value::Numbers(list)) = read(text) else {
            panic!("{text}")
        };
        assert!(
            list.as_le_bytes().ends_with(expected.as_bytes()),
            "{text}: {list:?}"
        );
        assert!(list.len() == length || text.starts_with('+'));
    }
    assert_eq!(read("+/+/"), Ok(numbers(&[0xfbu8, 0xff, 0xbf])));
    for bad in [
        "Zg", "Zg=", "Zh==", "Zm9=", "====", "=m9v", "Zm9v====", "Z===", "Zm9_", "Zg==Zg==",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
    let wide = ValueType::list(ValueType::U16).unwrap();
    assert!(from_json(&wide, &json!({"base64": "Zg=="})).is_err());
}

#[test]
fn errors_name_the_part() {
    let shape = ValueType::record([("points", ValueType::list(point()).unwrap())]).unwrap();
    let option = ValueType::option(ValueType::U8).unwrap();
    let function = FunctionType::new([("shape", shape), ("n", option)], None).unwrap();
    let error = |json: Json| {
        arguments_from_json(&function, &json)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(json!([{"points": [{"x": 1, "y": "abc"}]}])),
        r#"args[0].points[0].y: expected f32 (or "nan", "inf", "-inf"), found "abc""#
    );
    assert_eq!(
        error(json!({"shape": {"points": [{"x": 1, "z": 1, "y": 2}]}})),
        r#"args.shape.points[0]: there is no field "z"; the fields are x, y"#
    );
    assert_eq!(
        error(json!({"shape": {"points": []}, "n": 256})),
        "args.n: 256 does not fit u8; give a number from 0 to 255"
    );
    assert_eq!(
        error(json!({"n": 2})),
        "args: field \"shape\" is missing; add it, its type is record { points: list<record { x: \
         f32, y: f32 }> }"
    );
    assert!(error(json!([])).starts_with("args: expected 1 or 2 arguments (shape: record"));
    assert!(
        error(json!(1)).starts_with("args: expected an array or object of arguments for func(")
    );
    let empty = json!({"shape": {"points": []}});
    let expected = Ok(vec![
        Value::Record(vec![Value::List(vec![])]),
        Value::Option(None),
    ]);
    assert_eq!(arguments_from_json(&function, &empty), expected);
    assert_eq!(
        arguments_from_json(&function, &json!([{"points": []}])),
        expected
    );

    let option = ValueType::option(ValueType::U8).unwrap();
    let twice = ValueType::option(option).unwrap();
    let error = from_json(&twice, &json!({"some": 256})).unwrap_err();
    assert!(error.to_string().starts_with("value.some: 256"), "{error}");

    let refused = |ty: &ValueType, json: Json| {
        assert!(from_json(ty, &json).is_err(), "{json} is no {ty}");
    };
    refused(&ValueType::U8, json!(1.0));
    refused(&ValueType::U8, json!("1"));
    refused(&ValueType::U8, json!(-1));
    refused(&ValueType::U64, json!(""));
    refused(&ValueType::U64, json!("1e3"));
    refused(&ValueType::F32, json!(1e300));
    refused(&ValueType::F64, json!("NaN"));
    refused(&ValueType::F64, json!(null));
    refused(&ValueType::Bool, json!(0));
    refused(&ValueType::Char, json!("ab"));
    refused(&ValueType::Char, json!(""));
    refused(&ValueType::String, json!(1));
    refused(&ValueType::flags(["a"]).unwrap(), json!(["a", "a"]));
    refused(&ValueType::flags(["a"]).unwrap(), json!(["b"]));
    refused(&ValueType::flags(["a"]).unwrap(), json!({"a": true}));
    refused(&ValueType::tuple([ValueType::U8]).unwrap(), json!([1, 2]));
    let variant = ValueType::variant([("a", None), ("b", Some(ValueType::U8))]).unwrap();
    for json in [
        json!("b"),
        json!({"a": null}),
        json!({"b": 1, "a": 2}),
        json!({}),
        json!("c"),
    ] {
        refused(&variant, json);
    }
    let result = ValueType::result(None, Some(ValueType::U8)).unwrap();
    for json in [
        json!("ok"),
        json!({"ok": 1}),
        json!({"err": null}),
        json!(null),
    ] {
        refused(&result, json);
    }
    let option = ValueType::option(ValueType::option(ValueType::U8).unwrap()).unwrap();
    for json in [json!(3), json!({"some": 1, "x": 2}), json!({"none": null})] {
        refused(&option, json);
    }
}
