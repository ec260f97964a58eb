//! What is not decoded: every kind of damage, with its place, and lengths that lie.

use super::*;
use crate::value::codec::*;

#[track_caller]
fn refused(ty: &ValueType, bytes: &[u8], offset: usize, fault: DecodeFault) {
    let error = decode_postcard(ty, bytes, DecodeLimits::default()).unwrap_err();
    assert_eq!((error.offset, &error.fault), (offset, &fault), "{error}");
    assert_eq!(
        validate_postcard(ty, bytes),
        Err(error),
        "validation disagrees"
    );
}

#[test]
fn damage_is_refused() {
    use DecodeFault as F;
    let list = |ty| ValueType::list(ty).unwrap();
    let both = ValueType::tuple([ValueType::U8, ValueType::Bool]).unwrap();
    refused(&both, &[1], 1, F::Truncated { needed: 1, left: 0 });
    refused(
        &both,
        &[1, 2],
        1,
        F::NotZeroOrOne {
            what: "a bool",
            found: 2,
        },
    );
    refused(&both, &[1, 1, 0], 2, F::Trailing { count: 1 });
    refused(
        &ValueType::F64,
        &[0; 7],
        0,
        F::Truncated { needed: 8, left: 7 },
    );
    refused(
        &ValueType::U16,
        &[0x80, 0x80, 4],
        0,
        F::Overflow { bits: 16 },
    );
    refused(
        &ValueType::U16,
        &[0x80, 0x80, 0x80, 0],
        0,
        F::Overflow { bits: 16 },
    );
    refused(
        &ValueType::U32,
        &[255, 255, 255, 255, 16],
        0,
        F::Overflow { bits: 32 },
    );
    refused(&ValueType::S64, &[255; 11], 0, F::Overflow { bits: 64 });
    refused(&ValueType::U32, &[0x80, 0], 0, F::Overlong);
    refused(&ValueType::S16, &[0xff, 0x80, 0], 0, F::Overlong);
    refused(
        &ValueType::U32,
        &[0x80],
        0,
        F::Truncated { needed: 1, left: 0 },
    );
    refused(&ValueType::String, &[2, 0xc3, 0x28], 0, F::NotUtf8);
    refused(
        &ValueType::String,
        &[3, b'a'],
        1,
        F::Truncated { needed: 3, left: 1 },
    );
    refused(&ValueType::Char, &[0], 0, F::NotOneChar);
    refused(&ValueType::Char, &[2, b'a', b'b'], 0, F::NotOneChar);
    refused(&ValueType::Char, &[3, 0xed, 0xa0, 0x80], 0, F::NotUtf8);
    refused(&list(ValueType::U8), &[0x82, 0], 0, F::Overlong);
    let option = ValueType::option(ValueType::U8).unwrap();
    refused(
        &option,
        &[2, 0],
        0,
        F::NotZeroOrOne {
            what: "an option",
            found: 2,
        },
    );
    let result = ValueType::result(None, None).unwrap();
    refused(
        &result,
        &[9],
        0,
        F::NotZeroOrOne {
            what: "a result",
            found: 9,
        },
    );
    let color = ValueType::enumeration(["red", "green"]).unwrap();
    refused(&color, &[2], 0, F::Case { found: 2, count: 2 });
    let variant = ValueType::variant([("a", Some(ValueType::U8))]).unwrap();
    refused(&variant, &[1, 1], 0, F::Case { found: 1, count: 1 });
    refused(
        &variant,
        &[0xff, 0xff, 0xff, 0xff, 0xff],
        0,
        F::Overflow { bits: 32 },
    );
    refused(
        &ValueType::Bool,
        &[],
        0,
        F::Truncated { needed: 1, left: 0 },
    );
}

#[test]
fn errors_name_the_part_and_the_place() {
    let ty = ValueType::record([("points", ValueType::list(point()).unwrap())]).unwrap();
    let mut bytes = vec![4];
    bytes.extend([0; 24]);
    bytes.extend([0; 3]);
    let error = decode_postcard(&ty, &bytes, DecodeLimits::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "value.points[3].x (byte 25): the bytes end where 4 more are needed, 3 are left; check \
         that sender and receiver use the same type and that nothing was cut off"
    );
}

#[test]
fn claimed_lengths_are_not_trusted() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 7];
    let claimed = u64::MAX;
    for element in [
        ValueType::U8,
        ValueType::F64,
        ValueType::U32,
        ValueType::String,
        point(),
    ] {
        let ty = ValueType::list(element).unwrap();
        refused(&ty, &huge, 0, DecodeFault::Length { claimed, left: 1 });
    }
    refused(
        &ValueType::String,
        &huge,
        10,
        DecodeFault::Truncated {
            needed: claimed,
            left: 1,
        },
    );
    // As many elements as bytes are left are believed, within the memory limit, and then missed.
    let ty = ValueType::list(ValueType::F64).unwrap();
    refused(
        &ty,
        &[3, 0, 0, 0],
        1,
        DecodeFault::Truncated {
            needed: 24,
            left: 3,
        },
    );
}

#[test]
fn memory_is_limited() {
    let limits = DecodeLimits { memory_bytes: 1000 };
    let full = DecodeFault::Memory { limit_bytes: 1000 };
    let list = |ty| ValueType::list(ty).unwrap();
    let of = |count: usize| {
        [
            &[count as u8 | 0x80, (count >> 7) as u8][..],
            &vec![0; count],
        ]
        .concat()
    };
    let fault = |ty: &ValueType, count: usize| {
        decode_postcard(ty, &of(count), limits)
            .map(drop)
            .map_err(|error| error.fault)
    };
    assert_eq!(fault(&list(ValueType::U8), 1000), Ok(()));
    assert_eq!(fault(&list(ValueType::U8), 1001), Err(full.clone()));
    assert_eq!(fault(&list(ValueType::U64), 130), Err(full.clone()));
    assert_eq!(fault(&list(ValueType::String), 200), Err(full.clone()));
    assert_eq!(fault(&ValueType::String, 1001), Err(full.clone()));
    let nested = list(list(ValueType::Bool));
    assert_eq!(fault(&nested, 200), Err(full.clone()));
    let buffer = Encoded::Buffer {
        kind: NumberKind::U8,
        bytes: vec![0; 1001],
    };
    let error = decode(&list(ValueType::U8), &buffer, limits).unwrap_err();
    assert_eq!(error.fault, full);
    assert!(size_of::<Value>() <= 32, "DecodeLimits says 32 times");
}

#[test]
fn the_form_must_be_the_types() {
    let limits = DecodeLimits::default();
    let bytes = ValueType::list(ValueType::U8).unwrap();
    let fault = |ty: &ValueType, encoded: Encoded| {
        let error = decode(ty, &encoded, limits).unwrap_err();
        assert_eq!(validate(ty, &encoded), Err(error.clone()));
        error.fault
    };
    let form = |expected, found| DecodeFault::Form { expected, found };
    let buffer = |kind, length| Encoded::Buffer {
        kind,
        bytes: vec![0; length],
    };
    let postcard = Encoded::Postcard(vec![0]);
    assert_eq!(fault(&bytes, postcard), form("a buffer object", "postcard"));
    assert_eq!(
        fault(&ValueType::U8, buffer(NumberKind::U8, 1)),
        form("postcard", "a buffer object")
    );
    let (expected, found) = (NumberKind::U8, NumberKind::S8);
    assert_eq!(
        fault(&bytes, buffer(found, 1)),
        DecodeFault::Kind { expected, found }
    );
    let ragged = DecodeFault::Ragged {
        kind: NumberKind::F32,
        length_bytes: 6,
    };
    assert_eq!(
        fault(
            &ValueType::list(ValueType::F32).unwrap(),
            buffer(NumberKind::F32, 6)
        ),
        ragged
    );
}
