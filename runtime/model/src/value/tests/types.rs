//! Types: what can be built, how it prints, how it is serialised.

use super::*;

#[test]
fn types_print_as_wit() {
    let ty = ValueType::record([
        ("points", ValueType::list(point()).unwrap()),
        (
            "kind",
            ValueType::variant([("a", None), ("b", Some(ValueType::Char))]).unwrap(),
        ),
        ("color", ValueType::enumeration(["red", "green"]).unwrap()),
        ("mode", ValueType::flags(["read", "write"]).unwrap()),
        (
            "pair",
            ValueType::tuple([ValueType::S8, ValueType::U64]).unwrap(),
        ),
        ("maybe", ValueType::option(ValueType::String).unwrap()),
    ])
    .unwrap();
    assert_eq!(
        ty.to_string(),
        "record { points: list<record { x: f32, y: f32 }>, kind: variant { a, b(char) }, \
         color: enum { red, green }, mode: flags { read, write }, pair: tuple<s8, u64>, \
         maybe: option<string> }"
    );
    let result = |ok, err| ValueType::result(ok, err).unwrap().to_string();
    assert_eq!(result(None, None), "result");
    assert_eq!(result(Some(ValueType::Bool), None), "result<bool>");
    assert_eq!(result(None, Some(ValueType::F64)), "result<_, f64>");
    assert_eq!(
        result(Some(ValueType::S16), Some(ValueType::U16)),
        "result<s16, u16>"
    );
    let function = FunctionType::new([("a", ValueType::U8), ("b", point())], Some(ValueType::S32));
    assert_eq!(
        function.unwrap().to_string(),
        "func(a: u8, b: record { x: f32, y: f32 }) -> s32"
    );
    let nothing = FunctionType::new::<&str>([], None).unwrap();
    assert_eq!(nothing.to_string(), "func()");
}

#[test]
fn buffer_kinds() {
    for kind in NumberKind::ALL {
        assert_eq!(
            ValueType::list(kind.element_type()).unwrap().buffer_kind(),
            Some(kind)
        );
        assert_eq!(kind.element_type().buffer_kind(), None);
        assert_eq!(kind.to_string(), kind.element_type().to_string());
    }
    for element in [ValueType::Bool, ValueType::Char, point()] {
        assert_eq!(ValueType::list(element).unwrap().buffer_kind(), None);
    }
}

#[test]
fn what_wit_cannot_express_is_refused() {
    let empty = |kind, part| Err(InvalidType::Empty { kind, part });
    assert_eq!(ValueType::record::<&str>([]), empty("record", "field"));
    assert_eq!(ValueType::tuple([]), empty("tuple", "item"));
    assert_eq!(ValueType::variant::<&str>([]), empty("variant", "case"));
    assert_eq!(ValueType::enumeration::<&str>([]), empty("enum", "case"));
    assert_eq!(ValueType::flags::<&str>([]), empty("flags", "flag"));
    let twice = ValueType::enumeration(["a", "a"]).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "enum names \"a\" twice; give each case its own name"
    );
    for name in [
        "",
        "-",
        "a-",
        "-a",
        "a--b",
        "1a",
        "aB",
        "a_b",
        "a b",
        "é",
        "\u{1b}[31m",
        "%a",
    ] {
        let error = ValueType::flags([name]).unwrap_err();
        assert!(
            matches!(error, InvalidType::BadName { .. }),
            "{name:?}: {error}"
        );
    }
    for name in ["a", "A", "a-1", "HTTP3", "method-GET", "x1-2b"] {
        assert!(ValueType::flags([name]).is_ok(), "{name:?}");
    }
    let twice = FunctionType::new([("a", ValueType::U8), ("a", ValueType::U8)], None);
    assert!(matches!(twice, Err(InvalidType::DuplicateName { .. })));
}

#[test]
fn depth_is_limited() {
    let mut ty = ValueType::U8;
    for _ in 1..TYPE_DEPTH_MAX {
        ty = ValueType::option(ty).unwrap();
    }
    assert!(FunctionType::new([("a", ty.clone())], Some(ty.clone())).is_ok());
    assert_eq!(ValueType::option(ty.clone()), Err(InvalidType::TooDeep));
    assert_eq!(
        ValueType::record([("a", ty.clone())]),
        Err(InvalidType::TooDeep)
    );
    // The deepest value has all its forms.
    let mut value = Value::U8(7);
    for _ in 1..TYPE_DEPTH_MAX {
        value = some(value);
    }
    let bytes = codec::encode(&ty, &value).unwrap();
    assert_eq!(
        codec::decode(&ty, &bytes, DecodeLimits::default()).unwrap(),
        value
    );
    let printed = crate::value::wave::print(&ty, &value).unwrap();
    assert_eq!(crate::value::wave::parse(&ty, &printed).unwrap(), value);
    let json = crate::value::json::to_json(&ty, &value)
        .unwrap()
        .to_string();
    let json = serde_json::from_str(&json).unwrap();
    assert_eq!(crate::value::json::from_json(&ty, &json).unwrap(), value);
}

#[test]
fn size_is_limited_however_much_is_shared() {
    let mut ty = ValueType::U8;
    let error = loop {
        match ValueType::tuple([ty.clone(), ty.clone()]) {
            Ok(bigger) => ty = bigger,
            Err(error) => break error,
        }
    };
    assert_eq!(error, InvalidType::TooLarge);
    let bytes = postcard::to_allocvec(&ty).unwrap();
    assert!(
        bytes.len() < 100,
        "shared parts are one row each: {}",
        bytes.len()
    );
    assert_eq!(postcard::from_bytes::<ValueType>(&bytes).unwrap(), ty);
}

/// The serialised layout: changing it breaks stored types and other versions' nodes.
#[test]
fn golden_serialised_types() {
    let ty = ValueType::record([
        ("p", ValueType::list(ValueType::F32).unwrap()),
        ("q", ValueType::list(ValueType::F32).unwrap()),
    ])
    .unwrap();
    let golden = [3, 9, 13, 0, 16, 2, 1, b'p', 1, 1, b'q', 1];
    assert_eq!(postcard::to_allocvec(&ty).unwrap(), golden);
    assert_eq!(
        serde_json::to_string(&ty).unwrap(),
        r#"["f32",{"list":0},{"record":[["p",1],["q",1]]}]"#
    );
    for (at, kind) in NumberKind::ALL.iter().enumerate() {
        assert_eq!(postcard::to_allocvec(kind).unwrap(), [at as u8]);
    }
    let function = FunctionType::new([("a", ValueType::Bool)], Some(ValueType::String)).unwrap();
    let bytes = postcard::to_allocvec(&function).unwrap();
    assert_eq!(bytes, [1, 1, b'a', 1, 0, 1, 1, 12]);
    assert_eq!(
        postcard::from_bytes::<FunctionType>(&bytes).unwrap(),
        function
    );
}

#[test]
fn damaged_serialised_types_are_refused() {
    for bad in [
        r#"[]"#,
        r#"[{"list":0}]"#,
        r#"[{"list":1},"u8"]"#,
        r#"["u8",{"record":[]}]"#,
        r#"["u8",{"record":[["a",0],["a",0]]}]"#,
        r#"["u8",{"record":[["A b",0]]}]"#,
        r#"["f16"]"#,
    ] {
        assert!(serde_json::from_str::<ValueType>(bad).is_err(), "{bad}");
    }
    let deep = format!(
        r#"["u8"{}]"#,
        (0..64)
            .map(|n| format!(r#",{{"option":{n}}}"#))
            .collect::<String>()
    );
    let error = serde_json::from_str::<ValueType>(&deep).unwrap_err();
    assert!(error.to_string().contains("deeper than 64"), "{error}");
    let function = r#"{"params":[["a",["u8"]],["a",["u8"]]],"result":null}"#;
    assert!(serde_json::from_str::<FunctionType>(function).is_err());
}

proptest! {
    #[test]
    fn types_round_trip(ty in any_type()) {
        let bytes = postcard::to_allocvec(&ty).unwrap();
        prop_assert_eq!(&postcard::from_bytes::<ValueType>(&bytes).unwrap(), &ty);
        let json = serde_json::to_string(&ty).unwrap();
        prop_assert_eq!(&serde_json::from_str::<ValueType>(&json).unwrap(), &ty);
    }

    #[test]
    fn damaged_types_do_not_panic(bytes: Vec<u8>) {
        if let Ok(ty) = postcard::from_bytes::<ValueType>(&bytes) {
            let _ = ty.to_string();
        }
    }
}
