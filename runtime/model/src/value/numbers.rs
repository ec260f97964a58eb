//! Fixed-width numbers: their kinds, and lists of them held contiguously.
//!
//! A [`NumberList`] is raw little-endian bytes and a kind: the form of a buffer object and of guest
//! memory, so bytes move in and out by memcpy (or by moving the `Vec`) on any host, and equality is
//! equality of bits, also for NaN. Invariant: the bytes are a whole number of elements.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::types::ValueType;
use super::value::Value;

/// A fixed-width number type. The order is a wire layout (golden test).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // WIT's own names.
pub enum NumberKind {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    F32,
    F64,
}

/// A Rust type that holds one kind of number. Sealed: implemented for the ten kinds.
pub trait Element: sealed::Sealed + Copy + fmt::Display + PartialEq + 'static {
    /// The kind it holds.
    const KIND: NumberKind;

    /// Reads one number from exactly [`NumberKind::width_bytes`] bytes.
    fn read_le(bytes: &[u8]) -> Self;

    /// Appends the number's bytes.
    fn push_le(self, out: &mut Vec<u8>);

    /// The number as a value by itself.
    fn into_value(self) -> Value;
}

/// A list of fixed-width numbers.
#[derive(Clone, PartialEq, Eq)]
pub struct NumberList {
    kind: NumberKind,
    bytes: Vec<u8>,
}

impl NumberKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::U8,
        Self::S8,
        Self::U16,
        Self::S16,
        Self::U32,
        Self::S32,
        Self::U64,
        Self::S64,
        Self::F32,
        Self::F64,
    ];

    /// Bytes of one number: 1, 2, 4 or 8.
    pub const fn width_bytes(self) -> usize {
        match self {
            Self::U8 | Self::S8 => 1,
            Self::U16 | Self::S16 => 2,
            Self::U32 | Self::S32 | Self::F32 => 4,
            Self::U64 | Self::S64 | Self::F64 => 8,
        }
    }

    /// The type of one number.
    pub const fn element_type(self) -> ValueType {
        match self {
            Self::U8 => ValueType::U8,
            Self::S8 => ValueType::S8,
            Self::U16 => ValueType::U16,
            Self::S16 => ValueType::S16,
            Self::U32 => ValueType::U32,
            Self::S32 => ValueType::S32,
            Self::U64 => ValueType::U64,
            Self::S64 => ValueType::S64,
            Self::F32 => ValueType::F32,
            Self::F64 => ValueType::F64,
        }
    }

    /// Whether postcard writes an element just as it lies in memory, so that a list of them is
    /// one memcpy also inside other values; the other kinds are varints there.
    pub const fn is_raw_in_postcard(self) -> bool {
        matches!(self, Self::U8 | Self::S8 | Self::F32 | Self::F64)
    }
}

impl fmt::Display for NumberKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.element_type().fmt(f)
    }
}

impl NumberList {
    /// An empty list.
    pub fn new(kind: NumberKind) -> Self {
        Self {
            kind,
            bytes: Vec::new(),
        }
    }

    /// A list from its little-endian bytes, without copying. `None` if they are not a whole number
    /// of elements.
    pub fn from_le_bytes(kind: NumberKind, bytes: Vec<u8>) -> Option<Self> {
        bytes
            .len()
            .is_multiple_of(kind.width_bytes())
            .then_some(Self { kind, bytes })
    }

    /// A list of the given numbers.
    pub fn from_elements<T: Element>(elements: impl IntoIterator<Item = T>) -> Self {
        let elements = elements.into_iter();
        let mut bytes = Vec::with_capacity(elements.size_hint().0 * T::KIND.width_bytes());
        elements.for_each(|element| element.push_le(&mut bytes));
        Self {
            kind: T::KIND,
            bytes,
        }
    }

    /// The kind of every element.
    pub fn kind(&self) -> NumberKind {
        self.kind
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.kind.width_bytes()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The elements as little-endian bytes. Not aligned: see [`super::codec::BUFFER_ALIGN_BYTES`].
    pub fn as_le_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements as little-endian bytes, without copying.
    pub fn into_le_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The elements, if they are of type `T`.
    pub fn elements<T: Element>(&self) -> Option<impl ExactSizeIterator<Item = T> + '_> {
        (T::KIND == self.kind).then(|| {
            self.bytes
                .chunks_exact(T::KIND.width_bytes())
                .map(T::read_le)
        })
    }

    /// The elements as values by themselves, one at a time.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Value> + '_ {
        let kind = self.kind;
        self.bytes
            .chunks_exact(kind.width_bytes())
            .map(move |bytes| by_kind!(kind, T => T::read_le(bytes).into_value()))
    }

    /// Appends a value that is a number of this list's kind; hands anything else back.
    pub fn push(&mut self, value: Value) -> Result<(), Value> {
        match (self.kind, value) {
            (NumberKind::U8, Value::U8(n)) => n.push_le(&mut self.bytes),
            (NumberKind::S8, Value::S8(n)) => n.push_le(&mut self.bytes),
            (NumberKind::U16, Value::U16(n)) => n.push_le(&mut self.bytes),
            (NumberKind::S16, Value::S16(n)) => n.push_le(&mut self.bytes),
            (NumberKind::U32, Value::U32(n)) => n.push_le(&mut self.bytes),
            (NumberKind::S32, Value::S32(n)) => n.push_le(&mut self.bytes),
            (NumberKind::U64, Value::U64(n)) => n.push_le(&mut self.bytes),
            (NumberKind::S64, Value::S64(n)) => n.push_le(&mut self.bytes),
            (NumberKind::F32, Value::F32(n)) => n.push_le(&mut self.bytes),
            (NumberKind::F64, Value::F64(n)) => n.push_le(&mut self.bytes),
            (_, value) => return Err(value),
        }
        Ok(())
    }

    /// Whether the elements are the same, taking every NaN for the same as every other.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        self == other
            || (self.kind == other.kind
                && matches!(self.kind, NumberKind::F32 | NumberKind::F64)
                && self.len() == other.len()
                && self
                    .values()
                    .zip(other.values())
                    .all(|(a, b)| a.same_as(&b)))
    }
}

impl fmt::Debug for NumberList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        by_kind!(self.kind, T => {
            f.debug_list().entries(self.bytes.chunks_exact(size_of::<T>()).map(T::read_le)).finish()
        })
    }
}

/// Runs `$body` with `$t` standing for the Rust type of the kind.
macro_rules! by_kind {
    (@among [$($number:ident $of:ident)*] $kind:expr, $t:ident => $body:expr) => {
        match $kind {
            $($crate::value::NumberKind::$of => {
                type $t = $number;
                $body
            })*
        }
    };
    ($kind:expr, $t:ident => $body:expr) => {
        $crate::value::numbers::by_kind!(
            @among [u8 U8 i8 S8 u16 U16 i16 S16 u32 U32 i32 S32 u64 U64 i64 S64 f32 F32 f64 F64]
            $kind, $t => $body
        )
    };
}
pub(super) use by_kind;

mod sealed {
    pub trait Sealed {}
}

macro_rules! element {
    ($($t:ty => $kind:ident),*) => {$(
        impl sealed::Sealed for $t {}

        impl Element for $t {
            const KIND: NumberKind = NumberKind::$kind;

            fn read_le(bytes: &[u8]) -> Self {
                <$t>::from_le_bytes(bytes.try_into().expect("exactly one element's bytes"))
            }

            fn push_le(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn into_value(self) -> Value {
                Value::$kind(self)
            }
        }
    )*};
}

element!(u8 => U8, i8 => S8, u16 => U16, i16 => S16, u32 => U32, i32 => S32, u64 => U64,
    i64 => S64, f32 => F32, f64 => F64);
