//! Bytes to values, and the check that bytes are a value without making one.
//!
//! The bytes come from outside. A claimed length is first compared with the bytes that are left
//! (every element of every type takes at least one) and with the memory that may still be used;
//! only then is anything allocated. Recursion is bounded by the type's depth.

use super::super::numbers::{Element, NumberKind, NumberList};
use super::super::path::{At, Located, Path};
use super::super::types::HandleKind;
use super::super::value::{Handle, Value};
use super::{DecodeLimits, EncodedRef};
use crate::id::{ActorName, ObjectName};
use crate::value::ValueType;

type Fail = Box<DecodeError>;

/// Bytes are not the encoding of a value of the type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} (byte {offset}): {fault}")]
pub struct DecodeError {
    /// Which part of the value was being read.
    pub path: Path,
    /// Where in the bytes the unreadable item starts, counted from 0.
    pub offset: usize,
    /// What is wrong.
    pub fault: DecodeFault,
}

/// What is wrong with encoded bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeFault {
    /// The bytes end too early.
    #[error(
        "the bytes end where {needed} more are needed, {left} are left; check that sender and \
         receiver use the same type and that nothing was cut off"
    )]
    Truncated {
        /// Bytes that the item takes.
        needed: u64,
        /// Bytes that are there.
        left: usize,
    },
    /// A list claims more elements than can follow.
    #[error(
        "a list of {claimed} elements cannot fit in the {left} bytes that are left; check that \
         sender and receiver use the same type"
    )]
    Length {
        /// Elements claimed.
        claimed: u64,
        /// Bytes that are there.
        left: usize,
    },
    /// A varint larger than its type.
    #[error(
        "the integer does not fit in {bits} bits; check that sender and receiver use the same type"
    )]
    Overflow {
        /// The type's width.
        bits: u32,
    },
    /// A varint with needless zero bytes.
    #[error("the integer is written in more bytes than it needs; encode it as postcard does")]
    Overlong,
    /// A bool, or the discriminant of an option or result, that is neither 0 nor 1.
    #[error(
        "{what} must be 0 or 1, found {found}; check that sender and receiver use the same type"
    )]
    NotZeroOrOne {
        /// `a bool`, `an option` or `a result`.
        what: &'static str,
        /// The byte.
        found: u8,
    },
    /// A case that the type does not have.
    #[error(
        "case number {found} does not exist, the type has {count}; check that sender and receiver \
         use the same version of the type"
    )]
    Case {
        /// The number.
        found: u32,
        /// How many cases there are.
        count: usize,
    },
    /// A string that is not UTF-8.
    #[error("the text is not UTF-8; send other bytes as list<u8>")]
    NotUtf8,
    /// A char that is not exactly one.
    #[error("a char must be the UTF-8 of exactly one character; send several as a string")]
    NotOneChar,
    /// Bytes after the value's end.
    #[error("{count} bytes follow the value; check that sender and receiver use the same type")]
    Trailing {
        /// How many.
        count: usize,
    },
    /// The decoded value would take too much memory.
    #[error(
        "the value would take more than {limit_bytes} bytes of memory; raise the decode limit, or \
         pass large data as a list of numbers, which takes what it is long"
    )]
    Memory {
        /// The limit: [`DecodeLimits::memory_bytes`].
        limit_bytes: usize,
    },
    /// A buffer object where the type asks for postcard, or the other way round.
    #[error(
        "the value came as {found} but its type asks for {expected}; encode it with its own type"
    )]
    Form {
        /// The form that goes with the type.
        expected: &'static str,
        /// The form it came in.
        found: &'static str,
    },
    /// A buffer object with another kind of elements.
    #[error("expected a buffer of {expected}, found one of {found}; convert the numbers first")]
    Kind {
        /// The kind that the type asks for.
        expected: NumberKind,
        /// The kind of the buffer.
        found: NumberKind,
    },
    /// A buffer object that ends within an element.
    #[error(
        "a buffer of {kind} cannot be {length_bytes} bytes long; its length must be a multiple \
         of {}",
        .kind.width_bytes()
    )]
    Ragged {
        /// The elements.
        kind: NumberKind,
        /// The buffer's length.
        length_bytes: usize,
    },
}

/// Decodes a value in the form that its type asks for.
///
/// Errors: see [`DecodeFault`]. The value can be encoded again to the very same bytes.
pub fn decode<'a>(
    ty: &ValueType,
    encoded: impl Into<EncodedRef<'a>>,
    limits: DecodeLimits,
) -> Result<Value, DecodeError> {
    match form(ty, encoded.into()).map_err(|error| *error)? {
        EncodedRef::Postcard(bytes) => decode_postcard(ty, bytes, limits),
        EncodedRef::Buffer { kind, bytes } => {
            let mut reader = Reader::new(bytes, limits);
            reader.charge(bytes.len(), 1).map_err(|error| *error)?;
            let list = NumberList::from_le_bytes(kind, bytes.to_vec());
            Ok(Value::Numbers(list.expect("form() has checked the length")))
        }
    }
}

/// Decodes postcard bytes, also where [`decode`] would want a buffer object.
pub fn decode_postcard(
    ty: &ValueType,
    bytes: &[u8],
    limits: DecodeLimits,
) -> Result<Value, DecodeError> {
    let mut reader = Reader::new(bytes, limits);
    reader
        .value(ty)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| *error)
}

/// Checks that [`decode`] would succeed given enough memory, without using any.
pub fn validate<'a>(ty: &ValueType, encoded: impl Into<EncodedRef<'a>>) -> Result<(), DecodeError> {
    match form(ty, encoded.into()).map_err(|error| *error)? {
        EncodedRef::Postcard(bytes) => validate_postcard(ty, bytes),
        EncodedRef::Buffer { .. } => Ok(()),
    }
}

/// Checks that [`decode_postcard`] would succeed given enough memory, without using any.
pub fn validate_postcard(ty: &ValueType, bytes: &[u8]) -> Result<(), DecodeError> {
    postcard_handles(ty, bytes).map(drop)
}

/// As [`validate`]; returns the handles in the value, in order.
pub fn handles<'a>(
    ty: &ValueType,
    encoded: impl Into<EncodedRef<'a>>,
) -> Result<Vec<Handle>, DecodeError> {
    match form(ty, encoded.into()).map_err(|error| *error)? {
        EncodedRef::Postcard(bytes) => postcard_handles(ty, bytes),
        EncodedRef::Buffer { .. } => Ok(Vec::new()),
    }
}

fn postcard_handles(ty: &ValueType, bytes: &[u8]) -> Result<Vec<Handle>, DecodeError> {
    let mut reader = Reader::new(bytes, DecodeLimits { memory_bytes: 0 });
    reader
        .skip(ty)
        .and_then(|()| reader.end())
        .map_err(|error| *error)?;
    Ok(reader.handles)
}

/// Checks that the form is the type's and that a buffer fits its type.
fn form<'a>(ty: &ValueType, encoded: EncodedRef<'a>) -> Result<EncodedRef<'a>, Fail> {
    let (expected, found) = ("a buffer object", "postcard");
    match (ty.buffer_kind(), encoded) {
        (None, EncodedRef::Postcard(_)) => {}
        (Some(_), EncodedRef::Postcard(_)) => {
            return fail(0, DecodeFault::Form { expected, found });
        }
        (None, EncodedRef::Buffer { .. }) => {
            return fail(
                0,
                DecodeFault::Form {
                    expected: found,
                    found: expected,
                },
            );
        }
        (Some(expected), EncodedRef::Buffer { kind: found, .. }) if expected != found => {
            return fail(0, DecodeFault::Kind { expected, found });
        }
        (Some(kind), EncodedRef::Buffer { bytes, .. }) => {
            let length_bytes = bytes.len();
            if !length_bytes.is_multiple_of(kind.width_bytes()) {
                return fail(0, DecodeFault::Ragged { kind, length_bytes });
            }
        }
    }
    Ok(encoded)
}

fn fail<T>(offset: usize, fault: DecodeFault) -> Result<T, Fail> {
    Err(Box::new(DecodeError {
        path: Path::default(),
        offset,
        fault,
    }))
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// Index of the next byte to read.
    at: usize,
    limits: DecodeLimits,
    memory_left_bytes: usize,
    /// Those that [`Self::skip`] has come by.
    handles: Vec<Handle>,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], limits: DecodeLimits) -> Self {
        Self {
            bytes,
            at: 0,
            limits,
            memory_left_bytes: limits.memory_bytes,
            handles: Vec::new(),
        }
    }

    fn handle(&mut self, kind: HandleKind) -> Result<Handle, Fail> {
        Ok(match kind {
            HandleKind::Object => Handle::Object(ObjectName::from_bytes(self.array()?)),
            HandleKind::Actor => Handle::Actor(ActorName::from_bytes(self.array()?)),
        })
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Fail> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("as many as were asked for"))
    }

    fn value(&mut self, ty: &ValueType) -> Result<Value, Fail> {
        Ok(match ty {
            ValueType::Bool => Value::Bool(self.zero_or_one("a bool")?),
            ValueType::U8 => Value::U8(self.byte()?),
            ValueType::S8 => Value::S8(self.byte()? as i8),
            ValueType::U16 => Value::U16(self.varint(16)? as u16),
            ValueType::U32 => Value::U32(self.varint(32)? as u32),
            ValueType::U64 => Value::U64(self.varint(64)?),
            ValueType::S16 => Value::S16(unzigzag(self.varint(16)?) as i16),
            ValueType::S32 => Value::S32(unzigzag(self.varint(32)?) as i32),
            ValueType::S64 => Value::S64(unzigzag(self.varint(64)?)),
            ValueType::F32 => Value::F32(f32::read_le(self.take(4)?)),
            ValueType::F64 => Value::F64(f64::read_le(self.take(8)?)),
            ValueType::Char => Value::Char(self.char()?),
            ValueType::String => {
                let text = self.text()?;
                self.charge(text.len(), 1)?;
                Value::String(text.to_owned())
            }
            ValueType::Handle(kind) => self.handle(*kind)?.into(),
            ValueType::List(list) => match list.element.number_kind() {
                Some(kind) => Value::Numbers(self.numbers(kind)?),
                None => {
                    let length = self.length()?;
                    let mut items = self.values(length)?;
                    for index in 0..length {
                        items.push(self.value(&list.element).at_index(index)?);
                    }
                    Value::List(items)
                }
            },
            ValueType::Option(option) => Value::Option(match self.zero_or_one("an option")? {
                false => None,
                true => self.payload(Some(&option.some))?,
            }),
            ValueType::Result(result) => Value::Result(match self.zero_or_one("a result")? {
                false => Ok(self.payload(result.ok.as_ref()).at_case("ok")?),
                true => Err(self.payload(result.err.as_ref()).at_case("err")?),
            }),
            ValueType::Record(record) => {
                let mut values = self.values(record.fields.len())?;
                for (name, ty) in &record.fields {
                    values.push(self.value(ty).at_name(name)?);
                }
                Value::Record(values)
            }
            ValueType::Tuple(tuple) => {
                let mut values = self.values(tuple.items.len())?;
                for (position, ty) in tuple.items.iter().enumerate() {
                    values.push(self.value(ty).at_position(position)?);
                }
                Value::Tuple(values)
            }
            ValueType::Variant(variant) => {
                let case = self.case(variant.cases.len())?;
                let (name, ty) = &variant.cases[case as usize];
                Value::Variant(case, self.payload(ty.as_ref()).at_name(name)?)
            }
            ValueType::Enum(names) => Value::Enum(self.case(names.cases.len())?),
            ValueType::Flags(names) => {
                self.charge(names.flags.len(), 1)?;
                let flags = names.flags.iter();
                Value::Flags(
                    flags
                        .map(|name| self.zero_or_one("a bool").at_name(name))
                        .collect::<Result<_, _>>()?,
                )
            }
        })
    }

    /// Reads a value and makes nothing of it. Must fail exactly where [`Self::value`] does.
    fn skip(&mut self, ty: &ValueType) -> Result<(), Fail> {
        match ty {
            ValueType::Bool => drop(self.zero_or_one("a bool")?),
            ValueType::U8 | ValueType::S8 => drop(self.take(1)?),
            ValueType::U16 | ValueType::S16 => drop(self.varint(16)?),
            ValueType::U32 | ValueType::S32 => drop(self.varint(32)?),
            ValueType::U64 | ValueType::S64 => drop(self.varint(64)?),
            ValueType::F32 => drop(self.take(4)?),
            ValueType::F64 => drop(self.take(8)?),
            ValueType::Char => drop(self.char()?),
            ValueType::String => drop(self.text()?),
            ValueType::Handle(kind) => {
                let handle = self.handle(*kind)?;
                self.handles.push(handle);
            }
            ValueType::List(list) => {
                let length = self.length()?;
                match list
                    .element
                    .number_kind()
                    .filter(|kind| kind.is_raw_in_postcard())
                {
                    Some(kind) => drop(self.take_elements(length, kind)?),
                    None => {
                        for index in 0..length {
                            self.skip(&list.element).at_index(index)?;
                        }
                    }
                }
            }
            ValueType::Option(option) => {
                if self.zero_or_one("an option")? {
                    self.skip(&option.some)?;
                }
            }
            ValueType::Result(result) => match self.zero_or_one("a result")? {
                false => result
                    .ok
                    .as_ref()
                    .map_or(Ok(()), |ty| self.skip(ty))
                    .at_case("ok")?,
                true => result
                    .err
                    .as_ref()
                    .map_or(Ok(()), |ty| self.skip(ty))
                    .at_case("err")?,
            },
            ValueType::Record(record) => {
                for (name, ty) in &record.fields {
                    self.skip(ty).at_name(name)?;
                }
            }
            ValueType::Tuple(tuple) => {
                for (position, ty) in tuple.items.iter().enumerate() {
                    self.skip(ty).at_position(position)?;
                }
            }
            ValueType::Variant(variant) => {
                let case = self.case(variant.cases.len())?;
                let (name, ty) = &variant.cases[case as usize];
                ty.as_ref()
                    .map_or(Ok(()), |ty| self.skip(ty))
                    .at_name(name)?;
            }
            ValueType::Enum(names) => drop(self.case(names.cases.len())?),
            ValueType::Flags(names) => {
                for name in &names.flags {
                    self.zero_or_one("a bool").at_name(name)?;
                }
            }
        }
        Ok(())
    }

    fn payload(&mut self, ty: Option<&ValueType>) -> Result<Option<Box<Value>>, Fail> {
        let Some(ty) = ty else { return Ok(None) };
        self.charge(1, size_of::<Value>())?;
        Ok(Some(Box::new(self.value(ty)?)))
    }

    /// Room for `count` values.
    fn values(&mut self, count: usize) -> Result<Vec<Value>, Fail> {
        self.charge(count, size_of::<Value>())?;
        Ok(Vec::with_capacity(count))
    }

    fn numbers(&mut self, kind: NumberKind) -> Result<NumberList, Fail> {
        let length = self.length()?;
        self.charge(length, kind.width_bytes())?;
        let bytes = if kind.is_raw_in_postcard() {
            self.take_elements(length, kind)?.to_vec()
        } else {
            let bits = kind.width_bytes() as u32 * 8;
            let signed = matches!(kind, NumberKind::S16 | NumberKind::S32 | NumberKind::S64);
            let mut bytes = Vec::with_capacity(length * kind.width_bytes());
            for index in 0..length {
                let n = self.varint(bits).at_index(index)?;
                let n = if signed { unzigzag(n) as u64 } else { n };
                bytes.extend_from_slice(&n.to_le_bytes()[..kind.width_bytes()]);
            }
            bytes
        };
        Ok(NumberList::from_le_bytes(kind, bytes).expect("a whole number of elements was read"))
    }

    /// Takes the raw elements of a list, whose length is not more than the bytes left.
    fn take_elements(&mut self, length: usize, kind: NumberKind) -> Result<&'a [u8], Fail> {
        self.take(length as u64 * kind.width_bytes() as u64)
    }

    /// A list's length: never more than the bytes that are left.
    fn length(&mut self) -> Result<usize, Fail> {
        let offset = self.at;
        let claimed = self.varint(64)?;
        let left = self.remaining();
        if claimed > left as u64 {
            return fail(offset, DecodeFault::Length { claimed, left });
        }
        Ok(claimed as usize)
    }

    fn char(&mut self) -> Result<char, Fail> {
        let offset = self.at;
        let mut chars = self.text()?.chars();
        match (chars.next(), chars.next()) {
            (Some(char), None) => Ok(char),
            _ => fail(offset, DecodeFault::NotOneChar),
        }
    }

    fn text(&mut self) -> Result<&'a str, Fail> {
        let offset = self.at;
        let length = self.varint(64)?;
        let bytes = self.take(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(_) => fail(offset, DecodeFault::NotUtf8),
        }
    }

    fn case(&mut self, count: usize) -> Result<u32, Fail> {
        let offset = self.at;
        let found = self.varint(32)? as u32;
        if found as usize >= count {
            return fail(offset, DecodeFault::Case { found, count });
        }
        Ok(found)
    }

    fn zero_or_one(&mut self, what: &'static str) -> Result<bool, Fail> {
        let offset = self.at;
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            found => fail(offset, DecodeFault::NotZeroOrOne { what, found }),
        }
    }

    /// An LEB128 number of at most `bits` bits, in as few bytes as it needs.
    fn varint(&mut self, bits: u32) -> Result<u64, Fail> {
        let offset = self.at;
        let mut n = 0u64;
        for shift in (0..bits).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else {
                return fail(offset, DecodeFault::Truncated { needed: 1, left: 0 });
            };
            self.at += 1;
            let part = u64::from(byte & 0x7f);
            if bits - shift < 7 && part >> (bits - shift) != 0 {
                break;
            }
            n |= part << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return fail(offset, DecodeFault::Overlong);
                }
                return Ok(n);
            }
        }
        fail(offset, DecodeFault::Overflow { bits })
    }

    fn byte(&mut self) -> Result<u8, Fail> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Fail> {
        let left = self.remaining();
        if count > left as u64 {
            return fail(
                self.at,
                DecodeFault::Truncated {
                    needed: count,
                    left,
                },
            );
        }
        let taken = &self.bytes[self.at..self.at + count as usize];
        self.at += count as usize;
        Ok(taken)
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Counts memory that is about to be allocated.
    fn charge(&mut self, count: usize, each_bytes: usize) -> Result<(), Fail> {
        let left = count
            .checked_mul(each_bytes)
            .and_then(|bytes| self.memory_left_bytes.checked_sub(bytes));
        match left {
            Some(left) => {
                self.memory_left_bytes = left;
                Ok(())
            }
            None => {
                let limit_bytes = self.limits.memory_bytes;
                fail(self.at, DecodeFault::Memory { limit_bytes })
            }
        }
    }

    fn end(&self) -> Result<(), Fail> {
        match self.remaining() {
            0 => Ok(()),
            count => fail(self.at, DecodeFault::Trailing { count }),
        }
    }
}

/// Undoes zigzag: 0, 1, 2, 3 to 0, -1, 1, -2.
fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

impl Located for DecodeError {
    fn path_mut(&mut self) -> &mut Path {
        &mut self.path
    }
}
