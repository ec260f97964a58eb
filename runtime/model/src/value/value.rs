//! A value: what an argument, a result or a field holds, without its type.
//!
//! Parts are positional; names are the type's business. [`Value::check`] (in `codec`) says whether a value has
//! a type, with the path of the part that does not.

use std::fmt;

use super::numbers::NumberList;
use super::path::{Located, Path};
use super::types::HandleKind;
use crate::id::{ActorName, ObjectName, ParseIdError};

/// A value of some [`ValueType`](super::ValueType).
///
/// `==` compares floats as floats (NaN differs from itself) but number lists by their bits;
/// [`Value::same_as`] is the comparison for tests.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The plain kinds are WIT's own names.
pub enum Value {
    Bool(bool),
    S8(i8),
    U8(u8),
    S16(i16),
    U16(u16),
    S32(i32),
    U32(u32),
    S64(i64),
    U64(u64),
    F32(f32),
    F64(f64),
    Char(char),
    String(String),
    /// A handle, by the name of what it stands for.
    Handle(Box<Handle>),
    /// A list of fixed-width numbers, and only that.
    Numbers(NumberList),
    /// A list of anything else.
    List(Vec<Value>),
    Option(Option<Box<Value>>),
    /// `ok` or `err`, each with its payload if the type has one there.
    Result(Result<Option<Box<Value>>, Option<Box<Value>>>),
    /// The fields, in the type's order.
    Record(Vec<Value>),
    /// The items, in the type's order.
    Tuple(Vec<Value>),
    /// Which case, counted from 0 in the type's order, and its payload if that case has one.
    Variant(u32, Option<Box<Value>>),
    /// Which case, counted from 0 in the type's order.
    Enum(u32),
    /// One bool for each flag, in the type's order.
    Flags(Vec<bool>),
}

/// What a handle is as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Handle {
    /// Of an object that is there or will be.
    Object(ObjectName),
    /// Of an actor.
    Actor(ActorName),
}

impl Handle {
    /// What it stands for.
    pub fn kind(&self) -> HandleKind {
        match self {
            Self::Object(_) => HandleKind::Object,
            Self::Actor(_) => HandleKind::Actor,
        }
    }

    pub(super) fn parse_ok(kind: HandleKind, text: &str) -> Option<Self> {
        Self::parse(kind, text).ok()
    }

    /// Reads the text form of a handle of this kind.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse(kind: HandleKind, text: &str) -> Result<Self, ParseIdError> {
        match kind {
            HandleKind::Object => text.parse().map(Self::Object),
            HandleKind::Actor => text.parse().map(Self::Actor),
        }
    }
}

impl From<Handle> for Value {
    fn from(handle: Handle) -> Self {
        Self::Handle(Box::new(handle))
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(name) => name.fmt(f),
            Self::Actor(name) => name.fmt(f),
        }
    }
}

/// A value does not have the type it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct TypeError {
    /// Which part.
    pub path: Path,
    /// What is wrong with it.
    pub fault: TypeFault,
}

/// What is wrong with a part of a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeFault {
    /// A value of another kind.
    #[error("expected {expected}, found {found}; convert the value to that type first")]
    Mismatch {
        /// The type, shortened if it is very long.
        expected: String,
        /// What the value is.
        found: &'static str,
    },
    /// A list of numbers of another kind.
    #[error("expected list<{expected}>, found list<{found}>; convert the numbers first")]
    NumberKind {
        /// The kind that the type asks for.
        expected: super::NumberKind,
        /// The kind that the list holds.
        found: super::NumberKind,
    },
    /// A record, tuple or set of flags with the wrong number of parts.
    #[error("expected {expected} {part}, found {found}; give every one, in the type's order")]
    Count {
        /// Fields, items or flags.
        part: &'static str,
        /// How many the type has.
        expected: usize,
        /// How many the value has.
        found: usize,
    },
    /// A case that the type does not have.
    #[error("case number {found} does not exist; the type has cases 0 to {last}")]
    Case {
        /// The case.
        found: u32,
        /// The type's last case.
        last: usize,
    },
    /// A payload where there is none, or none where there is one.
    #[error("case {case} {}; match the type's payload",
        if *.expected { "needs a payload, found none" } else { "has no payload, found one" })]
    Payload {
        /// The case's name.
        case: String,
        /// Whether the type has a payload there.
        expected: bool,
    },
}

impl Value {
    /// The kind of value, in WIT's words.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::S8(_) => "s8",
            Self::U8(_) => "u8",
            Self::S16(_) => "s16",
            Self::U16(_) => "u16",
            Self::S32(_) => "s32",
            Self::U32(_) => "u32",
            Self::S64(_) => "s64",
            Self::U64(_) => "u64",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Char(_) => "char",
            Self::String(_) => "string",
            Self::Handle(handle) => match handle.kind() {
                HandleKind::Object => "object",
                HandleKind::Actor => "actor",
            },
            Self::Numbers(_) => "a list of numbers",
            Self::List(_) => "a list",
            Self::Option(_) => "an option",
            Self::Result(_) => "a result",
            Self::Record(_) => "a record",
            Self::Tuple(_) => "a tuple",
            Self::Variant(..) => "a variant",
            Self::Enum(_) => "an enum",
            Self::Flags(_) => "flags",
        }
    }

    /// Whether two values are the same for every purpose but NaN's payload: floats by their bits,
    /// any NaN like any other. Text forms keep just that much.
    pub fn same_as(&self, other: &Self) -> bool {
        fn all(a: &[Value], b: &[Value]) -> bool {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_as(b))
        }
        fn maybe(a: &Option<Box<Value>>, b: &Option<Box<Value>>) -> bool {
            match (a, b) {
                (Some(a), Some(b)) => a.same_as(b),
                (None, None) => true,
                _ => false,
            }
        }
        match (self, other) {
            (Self::F32(a), Self::F32(b)) => {
                a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
            }
            (Self::F64(a), Self::F64(b)) => {
                a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
            }
            (Self::Numbers(a), Self::Numbers(b)) => a.same_as(b),
            (Self::List(a), Self::List(b))
            | (Self::Record(a), Self::Record(b))
            | (Self::Tuple(a), Self::Tuple(b)) => all(a, b),
            (Self::Option(a), Self::Option(b)) => maybe(a, b),
            (Self::Result(Ok(a)), Self::Result(Ok(b)))
            | (Self::Result(Err(a)), Self::Result(Err(b))) => maybe(a, b),
            (Self::Variant(a, x), Self::Variant(b, y)) => a == b && maybe(x, y),
            (a, b) => a == b,
        }
    }
}

impl Located for TypeError {
    fn path_mut(&mut self) -> &mut Path {
        &mut self.path
    }
}
