//! Fuzz targets as plain functions: for `fuzz/` (libFuzzer) and for the stable test beside them.
//!
//! Each takes bytes from anywhere: the first ones spell a type, the rest is what is decoded. None
//! may panic, whatever the bytes; each asserts what must hold of whatever was accepted.

use super::codec::{self, DecodeFault, DecodeLimits, EncodedRef};
use super::json::{from_json, to_json};
use super::numbers::NumberKind;
use super::types::{FunctionType, HandleKind, ValueType};
use super::wave;

/// Small, so that a hostile length would show.
const LIMITS: DecodeLimits = DecodeLimits {
    memory_bytes: 1 << 20,
};

/// Deepest type that is spelled.
const DEPTH_MAX: usize = 6;

/// Bytes that decode encode to the same bytes again; checking without decoding agrees.
pub fn decode(data: &[u8]) {
    let mut data = data;
    let ty = spell_type(&mut data);
    let encoded = match ty.buffer_kind() {
        Some(kind) => EncodedRef::Buffer { kind, bytes: data },
        None => EncodedRef::Postcard(data),
    };
    check_decode(&ty, encoded);
    // The other form: refused for every type, and postcard is still read by the `_postcard` pair.
    check_decode(
        &ty,
        EncodedRef::Buffer {
            kind: NumberKind::U16,
            bytes: data,
        },
    );
    if let Ok(value) = codec::decode_postcard(&ty, data, LIMITS) {
        assert_eq!(codec::encode_postcard(&ty, &value).as_deref(), Ok(data));
        assert_eq!(codec::validate_postcard(&ty, data), Ok(()));
    }
}

fn check_decode(ty: &ValueType, encoded: EncodedRef<'_>) {
    let validated = codec::validate(ty, encoded);
    match codec::decode(ty, encoded, LIMITS) {
        Ok(value) => {
            assert_eq!(validated, Ok(()));
            assert_eq!(value.check(ty), Ok(()));
            let again = codec::encode(ty, &value).expect("a decoded value has its type");
            assert_eq!(EncodedRef::from(&again), encoded);
            assert_eq!(
                codec::encoded_size_bytes(ty, &value),
                Ok(again.size_bytes())
            );
        }
        Err(error) if matches!(error.fault, DecodeFault::Memory { .. }) => {}
        Err(error) => assert_eq!(validated, Err(error)),
    }
}

/// Text that reads as a value prints to text that reads as the same value, and prints the same.
pub fn wave(data: &[u8]) {
    let mut data = data;
    let ty = spell_type(&mut data);
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(call) = wave::Invocation::parse(text) {
        let params = [("a", ty.clone()), ("b", ty.clone())];
        let function = FunctionType::new(params, None).expect("two parameters");
        if let Ok(values) = call.arguments(&function) {
            values
                .iter()
                .for_each(|value| assert_eq!(value.check(&ty), Ok(())));
        }
    }
    if let Ok(value) = wave::parse(&ty, text) {
        let printed = wave::print(&ty, &value).expect("a parsed value has its type");
        let again = wave::parse(&ty, &printed).expect("printed text can be read");
        assert!(again.same_as(&value), "{value:?} printed as {printed}");
        assert_eq!(wave::print(&ty, &again).as_ref(), Ok(&printed));
    }
}

/// JSON that reads as a value writes to JSON that reads as the same value.
pub fn json(data: &[u8]) {
    let mut data = data;
    let ty = spell_type(&mut data);
    let Ok(json) = serde_json::from_slice(data) else {
        return;
    };
    if let Ok(value) = from_json(&ty, &json) {
        let written = to_json(&ty, &value)
            .expect("a read value has its type")
            .to_string();
        let json = serde_json::from_str(&written).expect("our JSON is JSON");
        let again = from_json(&ty, &json).expect("our JSON can be read");
        assert!(again.same_as(&value), "{value:?} written as {written}");
    }
}

/// Takes bytes off the front and makes a type of them; any bytes will do.
pub fn spell_type(data: &mut &[u8]) -> ValueType {
    spell(data, DEPTH_MAX)
}

fn spell(data: &mut &[u8], depth: usize) -> ValueType {
    let kind = next(data);
    let scalars = 15;
    if depth <= 1 || kind % 23 < scalars {
        return match kind % scalars {
            0 => ValueType::Bool,
            1 => ValueType::Char,
            2 => ValueType::String,
            13 => ValueType::Handle(HandleKind::Object),
            14 => ValueType::Handle(HandleKind::Actor),
            number => NumberKind::ALL[usize::from(number) - 3].element_type(),
        };
    }
    let part = |data: &mut &[u8]| spell(data, depth - 1);
    let count = |data: &mut &[u8]| usize::from(next(data) % 4) + 1;
    match kind % 23 - scalars {
        0 => ValueType::list(part(data)),
        1 => ValueType::option(part(data)),
        2 => {
            let ok = (next(data) % 2 == 1).then(|| part(data));
            let err = (next(data) % 2 == 1).then(|| part(data));
            ValueType::result(ok, err)
        }
        3 => {
            let count = count(data);
            ValueType::record(NAMES[..count].iter().map(|&name| (name, part(data))))
        }
        4 => {
            let count = count(data);
            ValueType::tuple((0..count).map(|_| part(data)))
        }
        5 => {
            let count = count(data);
            let cases = NAMES[..count].iter();
            ValueType::variant(cases.map(|&name| (name, (next(data) % 2 == 1).then(|| part(data)))))
        }
        6 => ValueType::enumeration(NAMES[..count(data)].iter().copied()),
        _ => ValueType::flags(NAMES[..count(data)].iter().copied()),
    }
    .expect("few names, all different, and shallow")
}

/// Among them a keyword of WAVE and names that JSON forms use.
const NAMES: [&str; 4] = ["a", "some", "ok", "base64"];

fn next(data: &mut &[u8]) -> u8 {
    match data.split_first() {
        None => 0,
        Some((&first, rest)) => {
            *data = rest;
            first
        }
    }
}
