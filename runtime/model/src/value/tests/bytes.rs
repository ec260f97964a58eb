//! What is encoded: golden bytes, the same bytes as serde and postcard give, and round trips.

use std::fmt::Debug;

use serde::Serialize;

use super::*;
use crate::value::codec::*;

/// Our bytes, postcard's bytes for a Rust value of the same shape, and the expected bytes are one;
/// and they decode to the value.
#[track_caller]
fn same(ty: &ValueType, value: &Value, rust: &(impl Serialize + Debug + ?Sized), golden: &[u8]) {
    let ours = encode_postcard(ty, value).unwrap();
    assert_eq!(
        ours,
        postcard::to_allocvec(rust).unwrap(),
        "{rust:?} differs from postcard"
    );
    assert_eq!(ours, golden, "{rust:?} differs from the golden bytes");
    let decoded = decode_postcard(ty, &ours, DecodeLimits::default()).unwrap();
    assert!(decoded.same_as(value), "{decoded:?} is not {value:?}");
    validate_postcard(ty, &ours).unwrap();
}

#[test]
fn golden_numbers() {
    use ValueType as T;
    same(&T::Bool, &Value::Bool(false), &false, &[0]);
    same(&T::Bool, &Value::Bool(true), &true, &[1]);
    same(&T::U8, &Value::U8(0), &0u8, &[0]);
    same(&T::U8, &Value::U8(255), &255u8, &[255]);
    same(&T::S8, &Value::S8(-1), &-1i8, &[255]);
    same(&T::S8, &Value::S8(-128), &-128i8, &[128]);
    same(&T::U16, &Value::U16(127), &127u16, &[127]);
    same(&T::U16, &Value::U16(128), &128u16, &[0x80, 1]);
    same(&T::U16, &Value::U16(u16::MAX), &u16::MAX, &[255, 255, 3]);
    same(&T::S16, &Value::S16(-1), &-1i16, &[1]);
    same(&T::S16, &Value::S16(1), &1i16, &[2]);
    same(&T::S16, &Value::S16(i16::MIN), &i16::MIN, &[255, 255, 3]);
    same(
        &T::U32,
        &Value::U32(u32::MAX),
        &u32::MAX,
        &[255, 255, 255, 255, 15],
    );
    same(&T::S32, &Value::S32(-64), &-64i32, &[127]);
    same(&T::S32, &Value::S32(64), &64i32, &[0x80, 1]);
    same(
        &T::S32,
        &Value::S32(i32::MAX),
        &i32::MAX,
        &[254, 255, 255, 255, 15],
    );
    let max = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    same(&T::U64, &Value::U64(u64::MAX), &u64::MAX, &max);
    same(&T::S64, &Value::S64(i64::MIN), &i64::MIN, &max);
    same(&T::F32, &Value::F32(1.5), &1.5f32, &[0, 0, 0xc0, 0x3f]);
    same(
        &T::F64,
        &Value::F64(-0.0),
        &-0.0f64,
        &[0, 0, 0, 0, 0, 0, 0, 0x80],
    );
    let nan = f32::from_bits(0x7fa0_0001);
    same(&T::F32, &Value::F32(nan), &nan, &[1, 0, 0xa0, 0x7f]);
}

#[test]
fn golden_text() {
    same(&ValueType::Char, &Value::Char('a'), &'a', &[1, b'a']);
    same(
        &ValueType::Char,
        &Value::Char('🦀'),
        &'🦀',
        &[4, 0xf0, 0x9f, 0xa6, 0x80],
    );
    same(&ValueType::String, &text(""), &"", &[0]);
    same(
        &ValueType::String,
        &text("hé"),
        &"hé",
        &[3, b'h', 0xc3, 0xa9],
    );
}

#[test]
fn golden_number_lists() {
    fn list(kind: NumberKind) -> ValueType {
        ValueType::list(kind.element_type()).unwrap()
    }
    same(
        &list(NumberKind::U8),
        &numbers(&[1u8, 255]),
        &[1u8, 255][..],
        &[2, 1, 255],
    );
    same(
        &list(NumberKind::S8),
        &numbers(&[-1i8, 1]),
        &[-1i8, 1][..],
        &[2, 255, 1],
    );
    same(
        &list(NumberKind::U16),
        &numbers(&[1u16, 300]),
        &[1u16, 300][..],
        &[2, 1, 0xac, 2],
    );
    same(
        &list(NumberKind::S16),
        &numbers(&[-1i16, 1]),
        &[-1i16, 1][..],
        &[2, 1, 2],
    );
    same(
        &list(NumberKind::U32),
        &numbers(&[300u32]),
        &[300u32][..],
        &[1, 0xac, 2],
    );
    same(
        &list(NumberKind::S32),
        &numbers(&[-150i32]),
        &[-150i32][..],
        &[1, 0xab, 2],
    );
    same(
        &list(NumberKind::U64),
        &numbers(&[300u64]),
        &[300u64][..],
        &[1, 0xac, 2],
    );
    same(
        &list(NumberKind::S64),
        &numbers(&[-150i64]),
        &[-150i64][..],
        &[1, 0xab, 2],
    );
    same(
        &list(NumberKind::F32),
        &numbers(&[1.5f32]),
        &[1.5f32][..],
        &[1, 0, 0, 0xc0, 0x3f],
    );
    let f64s = [1, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f];
    same(
        &list(NumberKind::F64),
        &numbers(&[1.5f64]),
        &[1.5f64][..],
        &f64s,
    );
    let extremes = [i64::MIN, -1, 0, i64::MAX];
    let bytes = postcard::to_allocvec(&extremes[..]).unwrap();
    same(
        &list(NumberKind::S64),
        &numbers(&extremes),
        &extremes[..],
        &bytes,
    );
}

#[test]
fn golden_compounds() {
    let strings = ValueType::list(ValueType::String).unwrap();
    let value = Value::List(vec![text("a"), text("")]);
    same(&strings, &value, &["a", ""][..], &[2, 1, b'a', 0]);

    let option = ValueType::option(ValueType::option(ValueType::U8).unwrap()).unwrap();
    same(&option, &Value::Option(None), &None::<Option<u8>>, &[0]);
    same(
        &option,
        &some(Value::Option(None)),
        &Some(None::<u8>),
        &[1, 0],
    );
    same(
        &option,
        &some(some(Value::U8(7))),
        &Some(Some(7u8)),
        &[1, 1, 7],
    );

    let result = ValueType::result(Some(ValueType::U16), Some(ValueType::String)).unwrap();
    let ok = Value::Result(Ok(Some(Box::new(Value::U16(300)))));
    same(&result, &ok, &Ok::<u16, &str>(300), &[0, 0xac, 2]);
    let err = Value::Result(Err(Some(Box::new(text("no")))));
    same(&result, &err, &Err::<u16, &str>("no"), &[1, 2, b'n', b'o']);
    let bare = ValueType::result(None, None).unwrap();
    same(&bare, &Value::Result(Ok(None)), &Ok::<(), ()>(()), &[0]);
    same(&bare, &Value::Result(Err(None)), &Err::<(), ()>(()), &[1]);

    let tuple = ValueType::tuple([ValueType::U8, ValueType::String, ValueType::Bool]).unwrap();
    let value = Value::Tuple(vec![Value::U8(1), text("x"), Value::Bool(true)]);
    same(&tuple, &value, &(1u8, "x", true), &[1, 1, b'x', 1]);
}

#[test]
fn golden_named_types() {
    #[derive(Serialize, Debug)]
    struct Point {
        x: f32,
        y: f32,
    }
    #[derive(Serialize, Debug)]
    enum Shape {
        Empty,
        Named(String),
        At(Point),
        Pair((u8, i16)),
    }
    #[derive(Serialize, Debug)]
    enum Color {
        Red,
        Green,
    }
    #[derive(Serialize, Debug)]
    struct Mode {
        read: bool,
        write: bool,
        exec: bool,
    }
    #[derive(Serialize, Debug)]
    struct Drawing {
        shapes: Vec<Shape>,
        color: Option<Color>,
        mode: Mode,
        raw: Vec<u8>,
    }
    let rust_point = || Point { x: 1.0, y: -2.0 };
    let our_point = || Value::Record(vec![Value::F32(1.0), Value::F32(-2.0)]);
    let point_bytes = [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0];
    same(&point(), &our_point(), &rust_point(), &point_bytes);

    let pair = ValueType::tuple([ValueType::U8, ValueType::S16]).unwrap();
    let shape = ValueType::variant([
        ("empty", None),
        ("named", Some(ValueType::String)),
        ("at", Some(point())),
        ("pair", Some(pair)),
    ])
    .unwrap();
    let case = |case, payload| Value::Variant(case, Some(Box::new(payload)));
    same(&shape, &Value::Variant(0, None), &Shape::Empty, &[0]);
    same(
        &shape,
        &case(1, text("a")),
        &Shape::Named("a".into()),
        &[1, 1, b'a'],
    );
    let pair = Value::Tuple(vec![Value::U8(9), Value::S16(-2)]);
    same(&shape, &case(3, pair), &Shape::Pair((9, -2)), &[3, 9, 3]);

    let color = ValueType::enumeration(["red", "green"]).unwrap();
    same(&color, &Value::Enum(0), &Color::Red, &[0]);
    let mode = ValueType::flags(["read", "write", "exec"]).unwrap();
    let rust_mode = || Mode {
        read: true,
        write: false,
        exec: true,
    };
    same(
        &mode,
        &Value::Flags(vec![true, false, true]),
        &rust_mode(),
        &[1, 0, 1],
    );

    let drawing = ValueType::record([
        ("shapes", ValueType::list(shape).unwrap()),
        ("color", ValueType::option(color).unwrap()),
        ("mode", mode),
        ("raw", ValueType::list(ValueType::U8).unwrap()),
    ])
    .unwrap();
    let value = Value::Record(vec![
        Value::List(vec![Value::Variant(0, None), case(2, our_point())]),
        some(Value::Enum(1)),
        Value::Flags(vec![true, false, true]),
        numbers(&[5u8, 6]),
    ]);
    let rust = Drawing {
        shapes: vec![Shape::Empty, Shape::At(rust_point())],
        color: Some(Color::Green),
        mode: rust_mode(),
        raw: vec![5, 6],
    };
    let golden = [
        &[2, 0, 2][..],
        &point_bytes,
        &[1, 1],
        &[1, 0, 1],
        &[2, 5, 6],
    ]
    .concat();
    same(&drawing, &value, &rust, &golden);
}

#[test]
fn many_cases_have_wide_discriminants() {
    let names: Vec<String> = (0..300).map(|n| format!("c{n}")).collect();
    let ty = ValueType::enumeration(names).unwrap();
    assert_eq!(encode_postcard(&ty, &Value::Enum(299)).unwrap(), [0xab, 2]);
}

#[test]
fn a_whole_list_of_numbers_is_a_buffer() {
    let ty = ValueType::list(ValueType::U16).unwrap();
    let value = numbers(&[1u16, 0x1234]);
    let encoded = encode(&ty, &value).unwrap();
    let golden = Encoded::Buffer {
        kind: NumberKind::U16,
        bytes: vec![1, 0, 0x34, 0x12],
    };
    assert_eq!(encoded, golden);
    assert_eq!(encoded.size_bytes(), 4);
    assert_eq!(
        decode(&ty, &encoded, DecodeLimits::default()).unwrap(),
        value
    );
    // Inside another value it is postcard.
    let outer = ValueType::option(ty).unwrap();
    let encoded = encode(&outer, &some(value)).unwrap();
    assert_eq!(encoded, Encoded::Postcard(vec![1, 2, 1, 0xb4, 0x24]));
}

#[test]
fn encoded_values_are_strings_of_bytes_in_a_frame() {
    let buffer = Encoded::Buffer {
        kind: NumberKind::F64,
        bytes: vec![0xff; 8],
    };
    let bytes = postcard::to_allocvec(&buffer).unwrap();
    assert_eq!(bytes, [&[1, 9, 8][..], &[0xff; 8]].concat());
    assert_eq!(postcard::from_bytes::<Encoded>(&bytes).unwrap(), buffer);
    let plain = Encoded::Postcard(vec![1, 2]);
    assert_eq!(postcard::to_allocvec(&plain).unwrap(), [0, 2, 1, 2]);
    let json = serde_json::to_string(&plain).unwrap();
    assert_eq!(serde_json::from_str::<Encoded>(&json).unwrap(), plain);
}

#[test]
fn number_lists_hold_what_they_are_given() {
    let list = NumberList::from_elements([1.5f32, f32::NAN]);
    assert_eq!((list.len(), list.kind()), (2, NumberKind::F32));
    assert_eq!(list.elements::<f32>().unwrap().next(), Some(1.5));
    assert!(list.elements::<u32>().is_none());
    assert_eq!(list, list.clone(), "bits are compared");
    assert_eq!(format!("{list:?}"), "f32[1.5, NaN]");
    assert!(NumberList::from_le_bytes(NumberKind::U32, vec![0; 5]).is_none());
    let mut list = NumberList::new(NumberKind::U8);
    assert_eq!(list.push(Value::S8(1)), Err(Value::S8(1)));
    assert_eq!(list.push(Value::U8(1)), Ok(()));
    assert_eq!(list.into_le_bytes(), [1]);
}

#[test]
fn type_errors_name_the_part() {
    let ty = ValueType::record([
        ("name", ValueType::String),
        ("points", ValueType::list(point()).unwrap()),
    ])
    .unwrap();
    let bad = Value::Record(vec![Value::F32(0.0), text("no")]);
    let value = Value::Record(vec![text("n"), Value::List(vec![bad])]);
    let error = value.check(&ty).unwrap_err();
    assert_eq!(
        error.to_string(),
        "value.points[0].y: expected f32, found string; convert the value to that type first"
    );
    assert_eq!(encode(&ty, &value), Err(error));

    let list = ValueType::list(ValueType::U8).unwrap();
    for wrong in [numbers(&[1u16]), Value::List(vec![Value::U8(1)])] {
        assert!(wrong.check(&list).is_err(), "one representation: {wrong:?}");
    }
    let strings = ValueType::list(ValueType::String).unwrap();
    assert!(numbers::<u8>(&[]).check(&strings).is_err());
    let result = ValueType::result(None, Some(ValueType::U8)).unwrap();
    let error = Value::Result(Err(None)).check(&result).unwrap_err();
    assert_eq!(
        error.to_string(),
        "value: case err needs a payload, found none; match the type's payload"
    );
    let color = ValueType::enumeration(["red"]).unwrap();
    assert!(Value::Enum(1).check(&color).is_err());
    assert!(
        Value::Flags(vec![])
            .check(&ValueType::flags(["a"]).unwrap())
            .is_err()
    );
}

proptest! {
    #[test]
    fn bytes_round_trip((ty, value) in typed()) {
        prop_assert_eq!(value.check(&ty), Ok(()));
        let encoded = encode(&ty, &value).unwrap();
        prop_assert_eq!(encoded_size_bytes(&ty, &value), Ok(encoded.size_bytes()));
        let decoded = decode(&ty, &encoded, DecodeLimits::default()).unwrap();
        prop_assert!(decoded.same_as(&value));
        prop_assert_eq!(encode(&ty, &decoded).unwrap(), encoded.clone(), "to the bit, also NaN");
        prop_assert_eq!(validate(&ty, &encoded), Ok(()));
        let postcard = encode_postcard(&ty, &value).unwrap();
        let decoded = decode_postcard(&ty, &postcard, DecodeLimits::default()).unwrap();
        prop_assert!(decoded.same_as(&value));
    }

    #[test]
    fn number_lists_match_postcard(a: Vec<u16>, b: Vec<i32>, c: Vec<u64>, d: Vec<i64>, e: Vec<f64>) {
        let list = |kind: NumberKind| ValueType::list(kind.element_type()).unwrap();
        let ty = ValueType::tuple([
            list(NumberKind::U16), list(NumberKind::S32), list(NumberKind::U64),
            list(NumberKind::S64), list(NumberKind::F64),
        ]).unwrap();
        let value = Value::Tuple(vec![
            numbers(&a), numbers(&b), numbers(&c), numbers(&d), numbers(&e),
        ]);
        let golden = postcard::to_allocvec(&(a, b, c, d, e)).unwrap();
        prop_assert_eq!(encode_postcard(&ty, &value).unwrap(), golden.clone());
        let decoded = decode_postcard(&ty, &golden, DecodeLimits::default()).unwrap();
        prop_assert!(decoded.same_as(&value));
    }
}

#[test]
fn handles_are_found_in_bytes() {
    let object = Handle::Object(ObjectName {
        id: ObjectId::from_bytes([1; 20]),
        owner: NodeId::from_bytes([2; 16]),
    });
    let actor = Handle::Actor(ActorName {
        id: ActorId::from_bytes([3; 16]),
        owner: NodeId::from_bytes([4; 16]),
    });
    let ty = ValueType::tuple([
        ValueType::list(ValueType::Handle(HandleKind::Object)).unwrap(),
        ValueType::Handle(HandleKind::Actor),
    ])
    .unwrap();
    let value = Value::Tuple(vec![
        Value::List(vec![Value::from(object)]),
        Value::from(actor),
    ]);
    let encoded = codec::encode(&ty, &value).unwrap();
    assert_eq!(encoded.size_bytes(), 1 + 36 + 32);
    assert_eq!(codec::handles(&ty, &encoded), Ok(vec![object, actor]));
    // An actor's name is no object's: the kinds cannot be mistaken for each other.
    assert!(codec::encode(&ValueType::Handle(HandleKind::Actor), &Value::from(object)).is_err());
}
