//! What WAVE and JSON have in common: the error of reading a typed value from what a person or
//! another program wrote, numbers from their digits, and the argument count.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use super::numbers::{NumberKind, by_kind};
use super::path::{At, Located, Path, Root, clip};
use super::types::{FunctionType, HandleKind, ValueType};
use super::value::{Handle, Value};

/// Longest excerpt of a type or of the input in an error.
const EXCERPT_MAX_BYTES: usize = 120;

pub(super) type Fail = Box<TextError>;

/// Text (WAVE or JSON) is well-formed but not a value of the type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct TextError {
    /// Which part.
    pub path: Path,
    /// What is wrong with it.
    pub fault: TextFault,
}

/// What is wrong with a part of a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    /// Something of another kind.
    #[error("expected {expected}, found {found}")]
    Mismatch {
        /// The type, and how to write it where that is not plain.
        expected: String,
        /// The text, or what it is.
        found: String,
    },
    /// A number that the type cannot hold.
    #[error("{found} does not fit {kind}; give a number from {min} to {max}")]
    OutOfRange {
        /// The type.
        kind: NumberKind,
        /// The number as written.
        found: String,
        /// The type's least number.
        min: String,
        /// The type's greatest number.
        max: String,
    },
    /// A field that the record does not have.
    #[error("there is no field {found:?}; the fields are {known}")]
    UnknownField {
        /// The name as written.
        found: String,
        /// The type's names.
        known: String,
    },
    /// A field that must be given.
    #[error("field {name:?} is missing; add it, its type is {ty}")]
    MissingField {
        /// The field.
        name: String,
        /// Its type.
        ty: String,
    },
    /// A case or flag that the type does not have.
    #[error("there is no {what} {found:?}; choose from {known}")]
    UnknownName {
        /// `case` or `flag`.
        what: &'static str,
        /// The name as written.
        found: String,
        /// The type's names.
        known: String,
    },
    /// A flag that was given twice.
    #[error("flag {name:?} is given twice; give it once")]
    DuplicateFlag {
        /// The flag.
        name: String,
    },
    /// A case that needs a payload, without one.
    #[error("case {case:?} needs a payload of type {ty}; write {hint}")]
    MissingPayload {
        /// The case.
        case: String,
        /// The payload's type.
        ty: String,
        /// How that is written.
        hint: String,
    },
    /// A case that has no payload, with one.
    #[error("case {case:?} has no payload; write {hint}")]
    UnexpectedPayload {
        /// The case.
        case: String,
        /// How that is written.
        hint: String,
    },
    /// A tuple with the wrong number of items.
    #[error("expected {expected} items, {ty}, found {found}")]
    TupleLength {
        /// The type's count.
        expected: usize,
        /// The type.
        ty: String,
        /// The text's count.
        found: usize,
    },
    /// The wrong number of arguments.
    #[error("expected {}, found {found}", describe_arguments(.expected, *.required))]
    Arguments {
        /// Each parameter as `name: type`.
        expected: Vec<String>,
        /// How many of them must be given: the others are options.
        required: usize,
        /// How many arguments there are.
        found: usize,
    },
    /// A string or char that cannot be read.
    #[error("{why} in {found}; the escapes are \\\" \\' \\\\ \\n \\r \\t and \\u{{1f600}}")]
    BadEscape {
        /// What is wrong.
        why: String,
        /// The text.
        found: String,
    },
    /// Base64 that cannot be read.
    #[error(
        "{why}; write standard base64 (A-Z a-z 0-9 + /) padded with '=', or an array of numbers"
    )]
    Base64 {
        /// What is wrong.
        why: &'static str,
    },
}

/// Reads a handle from its text.
pub(super) fn handle(kind: HandleKind, text: &str) -> Result<Value, Fail> {
    match Handle::parse(kind, text) {
        Ok(handle) => Ok(handle.into()),
        Err(_) => mismatch_hint(&ValueType::Handle(kind), "as ID@OWNER", excerpt(&text)),
    }
}

pub(super) fn fail<T>(fault: TextFault) -> Result<T, Fail> {
    Err(Box::new(TextError {
        path: Path::default(),
        fault,
    }))
}

pub(super) fn mismatch<T>(expected: &ValueType, found: impl Display) -> Result<T, Fail> {
    fail(TextFault::Mismatch {
        expected: excerpt(expected),
        found: excerpt(&found),
    })
}

/// As [`mismatch`], with a word on how the type is written.
pub(super) fn mismatch_hint<T>(
    expected: &ValueType,
    hint: &str,
    found: impl Display,
) -> Result<T, Fail> {
    let expected = format!("{} ({hint})", excerpt(expected));
    fail(TextFault::Mismatch {
        expected,
        found: excerpt(&found),
    })
}

pub(crate) fn excerpt(item: &impl Display) -> String {
    clip(item, EXCERPT_MAX_BYTES)
}

/// A type's names for an error: all, or the first ones and `…`.
pub(crate) fn names<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> String {
    let mut text = String::new();
    for name in names {
        if !text.is_empty() {
            text.push_str(", ");
        }
        if text.len() + name.len() > EXCERPT_MAX_BYTES {
            text.push('…');
            break;
        }
        text.push_str(name);
    }
    text
}

/// Which of these has this name.
pub(super) fn find_name<'a>(
    what: &'static str,
    found: &str,
    known: impl Iterator<Item = &'a Arc<str>> + Clone,
) -> Result<usize, Fail> {
    match known.clone().position(|name| **name == *found) {
        Some(at) => Ok(at),
        None => fail(TextFault::UnknownName {
            what,
            found: excerpt(&found),
            known: names(known),
        }),
    }
}

/// What a field is that is left out: an option may be.
pub(super) fn left_out(name: &str, ty: &ValueType) -> Result<Value, Fail> {
    match ty {
        ValueType::Option(_) => Ok(Value::Option(None)),
        ty => fail(TextFault::MissingField {
            name: name.to_owned(),
            ty: excerpt(ty),
        }),
    }
}

/// A number of the given kind from its text; `nan`, `inf` and `-inf` for floats.
///
/// Digits beyond a float's precision are rounded; a finite number beyond its range is an error.
pub(super) fn number(kind: NumberKind, text: &str) -> Result<Value, Fail> {
    /// Whether a float came out infinite that was not written so.
    fn overflowed(infinite: bool, text: &str) -> bool {
        infinite && !text.ends_with("inf")
    }
    fn parse<T: FromStr>(text: &str) -> Option<T> {
        text.parse().ok()
    }
    let value = match kind {
        NumberKind::U8 => parse(text).map(Value::U8),
        NumberKind::S8 => parse(text).map(Value::S8),
        NumberKind::U16 => parse(text).map(Value::U16),
        NumberKind::S16 => parse(text).map(Value::S16),
        NumberKind::U32 => parse(text).map(Value::U32),
        NumberKind::S32 => parse(text).map(Value::S32),
        NumberKind::U64 => parse(text).map(Value::U64),
        NumberKind::S64 => parse(text).map(Value::S64),
        NumberKind::F32 => parse(text)
            .filter(|n: &f32| !overflowed(n.is_infinite(), text))
            .map(Value::F32),
        NumberKind::F64 => parse(text)
            .filter(|n: &f64| !overflowed(n.is_infinite(), text))
            .map(Value::F64),
    };
    if let Some(value) = value {
        return Ok(value);
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_integer = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if is_integer || text.parse::<f64>().is_ok() && is_float(kind) {
        return fail(out_of_range(kind, text));
    }
    mismatch(&kind.element_type(), text)
}

pub(super) fn out_of_range(kind: NumberKind, found: impl Display) -> TextFault {
    let (min, max) = by_kind!(kind, T => {
        let show = |n: T| if is_float(kind) { format!("{n:e}") } else { n.to_string() };
        (show(T::MIN), show(T::MAX))
    });
    TextFault::OutOfRange {
        kind,
        found: excerpt(&found),
        min,
        max,
    }
}

fn is_float(kind: NumberKind) -> bool {
    matches!(kind, NumberKind::F32 | NumberKind::F64)
}

/// Pairs parameters with arguments. Options at the end may be left out and are then none.
pub(super) fn arguments<A>(
    ty: &FunctionType,
    given: impl ExactSizeIterator<Item = A>,
    mut read: impl FnMut(&ValueType, A) -> Result<Value, Fail>,
) -> Result<Vec<Value>, Fail> {
    let params = ty.params();
    let required = params
        .iter()
        .rposition(|(_, ty)| !matches!(ty, ValueType::Option(_)))
        .map_or(0, |last| last + 1);
    let found = given.len();
    if found < required || found > params.len() {
        let expected = params
            .iter()
            .map(|(name, ty)| format!("{name}: {}", excerpt(ty)));
        return fail(TextFault::Arguments {
            expected: expected.collect(),
            required,
            found,
        })
        .under(Root::Arguments);
    }
    let mut values = Vec::with_capacity(params.len());
    for (index, ((_, ty), argument)) in params.iter().zip(given).enumerate() {
        values.push(read(ty, argument).under(Root::Argument(index))?);
    }
    values.resize(params.len(), Value::Option(None));
    Ok(values)
}

fn describe_arguments(expected: &[String], required: usize) -> String {
    let all = expected.join(", ");
    match (expected.len(), expected.len() - required) {
        (0, _) => "no arguments".to_owned(),
        (1, 0) => format!("1 argument ({all})"),
        (most, 0) => format!("{most} arguments ({all})"),
        (most, 1) => format!("{required} or {most} arguments ({all})"),
        (most, _) => format!("{required} to {most} arguments ({all})"),
    }
}

impl Located for TextError {
    fn path_mut(&mut self) -> &mut Path {
        &mut self.path
    }
}
