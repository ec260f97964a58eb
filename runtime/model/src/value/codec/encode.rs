//! Values to bytes. One walk serves encoding, measuring and type checking: they differ in the
//! [`Sink`], so they cannot disagree.

use super::super::numbers::{Element, NumberKind, NumberList};
use super::super::path::{At, Path, clip};
use super::super::value::{Handle, TypeError, TypeFault, Value};
use super::Encoded;
use crate::value::ValueType;

type Fail = Box<TypeError>;

/// Longest type text in an error.
const TYPE_TEXT_MAX_BYTES: usize = 120;

/// Encodes a value in the form that its type asks for. Errors: the value does not have the type.
pub fn encode(ty: &ValueType, value: &Value) -> Result<Encoded, TypeError> {
    match (ty.buffer_kind(), value) {
        (Some(kind), Value::Numbers(list)) if list.kind() == kind => Ok(Encoded::Buffer {
            kind,
            bytes: list.as_le_bytes().to_vec(),
        }),
        _ => encode_postcard(ty, value).map(Encoded::Postcard),
    }
}

/// Encodes a value as postcard, also where [`encode`] would make a buffer object.
pub fn encode_postcard(ty: &ValueType, value: &Value) -> Result<Vec<u8>, TypeError> {
    let mut out = Vec::new();
    put(&mut out, ty, value).map_err(|error| *error)?;
    Ok(out)
}

/// How many bytes [`encode`] would make.
pub fn encoded_size_bytes(ty: &ValueType, value: &Value) -> Result<usize, TypeError> {
    match (ty.buffer_kind(), value) {
        (Some(kind), Value::Numbers(list)) if list.kind() == kind => Ok(list.as_le_bytes().len()),
        _ => {
            let mut size = Size(0);
            put(&mut size, ty, value).map_err(|error| *error)?;
            Ok(size.0)
        }
    }
}

impl Value {
    /// Checks that this value has type `ty`.
    pub fn check(&self, ty: &ValueType) -> Result<(), TypeError> {
        put(&mut Nowhere, ty, self).map_err(|error| *error)
    }
}

/// Where encoded bytes go.
trait Sink {
    fn bytes(&mut self, bytes: &[u8]);
    fn varint(&mut self, n: u64);
    /// A number list's elements, without the length.
    fn numbers(&mut self, list: &NumberList);

    fn byte(&mut self, byte: u8) {
        self.bytes(&[byte]);
    }

    fn text(&mut self, text: &str) {
        self.varint(text.len() as u64);
        self.bytes(text.as_bytes());
    }
}

fn put<S: Sink>(out: &mut S, ty: &ValueType, value: &Value) -> Result<(), Fail> {
    match (ty, value) {
        (ValueType::Bool, Value::Bool(b)) => out.byte(u8::from(*b)),
        (ValueType::U8, Value::U8(n)) => out.byte(*n),
        (ValueType::S8, Value::S8(n)) => out.bytes(&n.to_le_bytes()),
        (ValueType::U16, Value::U16(n)) => out.varint((*n).into()),
        (ValueType::U32, Value::U32(n)) => out.varint((*n).into()),
        (ValueType::U64, Value::U64(n)) => out.varint(*n),
        (ValueType::S16, Value::S16(n)) => out.varint(zigzag((*n).into())),
        (ValueType::S32, Value::S32(n)) => out.varint(zigzag((*n).into())),
        (ValueType::S64, Value::S64(n)) => out.varint(zigzag(*n)),
        (ValueType::F32, Value::F32(n)) => out.bytes(&n.to_le_bytes()),
        (ValueType::F64, Value::F64(n)) => out.bytes(&n.to_le_bytes()),
        (ValueType::Char, Value::Char(c)) => out.text(c.encode_utf8(&mut [0; 4])),
        (ValueType::String, Value::String(text)) => out.text(text),
        (ValueType::Handle(kind), Value::Handle(handle)) if *kind == handle.kind() => {
            match &**handle {
                Handle::Object(name) => out.bytes(&name.to_bytes()),
                Handle::Actor(name) => out.bytes(&name.to_bytes()),
            }
        }
        (ValueType::List(_), Value::Numbers(list)) if ty.buffer_kind().is_some() => {
            if let Some(expected) = ty.buffer_kind().filter(|&kind| kind != list.kind()) {
                return fail(TypeFault::NumberKind {
                    expected,
                    found: list.kind(),
                });
            }
            out.varint(list.len() as u64);
            out.numbers(list);
        }
        (ValueType::List(list), Value::List(items)) if ty.buffer_kind().is_none() => {
            out.varint(items.len() as u64);
            for (index, item) in items.iter().enumerate() {
                put(out, &list.element, item).at_index(index)?;
            }
        }
        (ValueType::Option(_), Value::Option(None)) => out.byte(0),
        (ValueType::Option(option), Value::Option(Some(some))) => {
            out.byte(1);
            put(out, &option.some, some)?;
        }
        (ValueType::Result(result), Value::Result(Ok(payload))) => {
            out.byte(0);
            put_payload(out, "ok", result.ok.as_ref(), payload.as_deref())?;
        }
        (ValueType::Result(result), Value::Result(Err(payload))) => {
            out.byte(1);
            put_payload(out, "err", result.err.as_ref(), payload.as_deref())?;
        }
        (ValueType::Record(record), Value::Record(values)) => {
            count("fields", record.fields.len(), values.len())?;
            for ((name, ty), value) in record.fields.iter().zip(values) {
                put(out, ty, value).at_name(name)?;
            }
        }
        (ValueType::Tuple(tuple), Value::Tuple(values)) => {
            count("items", tuple.items.len(), values.len())?;
            for (position, (ty, value)) in tuple.items.iter().zip(values).enumerate() {
                put(out, ty, value).at_position(position)?;
            }
        }
        (ValueType::Variant(variant), Value::Variant(found, payload)) => {
            let (name, ty) = case(*found, &variant.cases)?;
            out.varint((*found).into());
            put_payload(out, name, ty.as_ref(), payload.as_deref())?;
        }
        (ValueType::Enum(names), Value::Enum(found)) => {
            case(*found, &names.cases)?;
            out.varint((*found).into());
        }
        (ValueType::Flags(names), Value::Flags(set)) => {
            count("flags", names.flags.len(), set.len())?;
            set.iter().for_each(|flag| out.byte(u8::from(*flag)));
        }
        (expected, found) => {
            return fail(TypeFault::Mismatch {
                expected: clip(expected, TYPE_TEXT_MAX_BYTES),
                found: found.kind_name(),
            });
        }
    }
    Ok(())
}

fn put_payload<S: Sink>(
    out: &mut S,
    case: &str,
    ty: Option<&ValueType>,
    payload: Option<&Value>,
) -> Result<(), Fail> {
    match (ty, payload) {
        (None, None) => Ok(()),
        (Some(ty), Some(payload)) => put(out, ty, payload).at_case(case),
        (ty, _) => fail(TypeFault::Payload {
            case: case.to_owned(),
            expected: ty.is_some(),
        }),
    }
}

fn count(part: &'static str, expected: usize, found: usize) -> Result<(), Fail> {
    if expected == found {
        Ok(())
    } else {
        fail(TypeFault::Count {
            part,
            expected,
            found,
        })
    }
}

fn case<T>(found: u32, cases: &[T]) -> Result<&T, Fail> {
    match cases.get(found as usize) {
        Some(case) => Ok(case),
        None => fail(TypeFault::Case {
            found,
            last: cases.len() - 1,
        }),
    }
}

fn fail<T>(fault: TypeFault) -> Result<T, Fail> {
    Err(Box::new(TypeError {
        path: Path::default(),
        fault,
    }))
}

/// Small magnitudes to small numbers: 0, -1, 1, -2 to 0, 1, 2, 3.
fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

impl Sink for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.push(n as u8);
    }

    fn numbers(&mut self, list: &NumberList) {
        if list.kind().is_raw_in_postcard() {
            self.extend_from_slice(list.as_le_bytes());
        } else {
            self.reserve(list.len());
            each_varint(list, |n| self.varint(n));
        }
    }
}

/// Counts the bytes.
struct Size(usize);

impl Sink for Size {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn varint(&mut self, n: u64) {
        self.0 += (64 - (n | 1).leading_zeros()).div_ceil(7) as usize;
    }

    fn numbers(&mut self, list: &NumberList) {
        if list.kind().is_raw_in_postcard() {
            self.0 += list.as_le_bytes().len();
        } else {
            each_varint(list, |n| self.varint(n));
        }
    }
}

/// Only the walk matters.
struct Nowhere;

impl Sink for Nowhere {
    fn bytes(&mut self, _: &[u8]) {}
    fn varint(&mut self, _: u64) {}
    fn numbers(&mut self, _: &NumberList) {}
}

/// The elements of a list of integers wider than a byte, as the numbers that become varints.
fn each_varint(list: &NumberList, mut each: impl FnMut(u64)) {
    let bytes = list.as_le_bytes();
    match list.kind() {
        NumberKind::U16 => bytes
            .chunks_exact(2)
            .for_each(|b| each(u16::read_le(b).into())),
        NumberKind::U32 => bytes
            .chunks_exact(4)
            .for_each(|b| each(u32::read_le(b).into())),
        NumberKind::U64 => bytes.chunks_exact(8).for_each(|b| each(u64::read_le(b))),
        NumberKind::S16 => bytes
            .chunks_exact(2)
            .for_each(|b| each(zigzag(i16::read_le(b).into()))),
        NumberKind::S32 => bytes
            .chunks_exact(4)
            .for_each(|b| each(zigzag(i32::read_le(b).into()))),
        NumberKind::S64 => bytes
            .chunks_exact(8)
            .for_each(|b| each(zigzag(i64::read_le(b)))),
        NumberKind::U8 | NumberKind::S8 | NumberKind::F32 | NumberKind::F64 => {
            unreachable!("{} is raw in postcard", list.kind())
        }
    }
}
