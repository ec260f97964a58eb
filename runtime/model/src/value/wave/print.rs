//! Values as WAVE text, in one pass.

use std::fmt::{self, Display, Write};

use wasm_wave::lex::Keyword;

use super::super::numbers::by_kind;
use crate::value::{TypeError, Value, ValueType};

/// A value that prints as WAVE. Write it into something that stops early to show only the
/// beginning of a large value.
pub struct Wave<'a> {
    ty: &'a ValueType,
    value: &'a Value,
}

impl<'a> Wave<'a> {
    /// Errors: the value does not have the type.
    pub fn new(ty: &'a ValueType, value: &'a Value) -> Result<Self, TypeError> {
        value.check(ty)?;
        Ok(Self { ty, value })
    }
}

impl Display for Wave<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_value(f, self.ty, self.value)
    }
}

fn write_value(f: &mut fmt::Formatter<'_>, ty: &ValueType, value: &Value) -> fmt::Result {
    match (ty, value) {
        (_, Value::Bool(b)) => write!(f, "{b}"),
        (_, Value::S8(n)) => write!(f, "{n}"),
        (_, Value::U8(n)) => write!(f, "{n}"),
        (_, Value::S16(n)) => write!(f, "{n}"),
        (_, Value::U16(n)) => write!(f, "{n}"),
        (_, Value::S32(n)) => write!(f, "{n}"),
        (_, Value::U32(n)) => write!(f, "{n}"),
        (_, Value::S64(n)) => write!(f, "{n}"),
        (_, Value::U64(n)) => write!(f, "{n}"),
        (_, Value::F32(n)) => write_number(f, *n, n.is_nan()),
        (_, Value::F64(n)) => write_number(f, *n, n.is_nan()),
        (_, Value::Char(c)) => {
            f.write_char('\'')?;
            write_char(f, *c)?;
            f.write_char('\'')
        }
        (_, Value::String(text)) => {
            f.write_char('"')?;
            write_text(f, text)?;
            f.write_char('"')
        }
        (_, Value::Handle(handle)) => write!(f, "\"{handle}\""),
        (_, Value::Numbers(list)) => by_kind!(list.kind(), T => {
            let elements = list.elements::<T>().expect("the list's own kind");
            #[allow(clippy::eq_op)] // Only NaN differs from itself.
            sequence(f, "[", "]", elements, |f, n| write_number(f, n, n != n))
        }),
        (ValueType::List(list), Value::List(items)) => sequence(f, "[", "]", items, |f, item| {
            write_value(f, &list.element, item)
        }),
        (ValueType::Option(option), Value::Option(some)) => match some {
            Some(some) => write_case(f, "some", Some((&option.some, some))),
            None => f.write_str("none"),
        },
        (ValueType::Result(result), Value::Result(Ok(payload))) => {
            write_case(f, "ok", result.ok.as_ref().zip(payload.as_deref()))
        }
        (ValueType::Result(result), Value::Result(Err(payload))) => {
            write_case(f, "err", result.err.as_ref().zip(payload.as_deref()))
        }
        (ValueType::Record(record), Value::Record(values)) => {
            let mut fields = record
                .fields
                .iter()
                .zip(values)
                .filter(|(_, value)| !matches!(value, Value::Option(None)))
                .peekable();
            if fields.peek().is_none() {
                return f.write_str("{:}");
            }
            sequence(f, "{", "}", fields, |f, ((name, ty), value)| {
                write!(f, "{name}: ")?;
                write_value(f, ty, value)
            })
        }
        (ValueType::Tuple(tuple), Value::Tuple(values)) => sequence(
            f,
            "(",
            ")",
            tuple.items.iter().zip(values),
            |f, (ty, value)| write_value(f, ty, value),
        ),
        (ValueType::Variant(variant), Value::Variant(case, payload)) => {
            let (name, ty) = &variant.cases[*case as usize];
            write_name(f, name)?;
            write_case(f, "", ty.as_ref().zip(payload.as_deref()))
        }
        (ValueType::Enum(names), Value::Enum(case)) => write_name(f, &names.cases[*case as usize]),
        (ValueType::Flags(names), Value::Flags(set)) => {
            let set = names.flags.iter().zip(set).filter(|(_, set)| **set);
            sequence(f, "{", "}", set, |f, (name, _)| f.write_str(name))
        }
        (ty, value) => unreachable!("{} was checked to be a {ty}", value.kind_name()),
    }
}

fn write_number(f: &mut fmt::Formatter<'_>, n: impl Display, is_nan: bool) -> fmt::Result {
    // Display says "NaN"; infinities print as WAVE has them.
    if is_nan {
        f.write_str("nan")
    } else {
        write!(f, "{n}")
    }
}

fn write_case(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    payload: Option<(&ValueType, &Value)>,
) -> fmt::Result {
    f.write_str(name)?;
    match payload {
        None => Ok(()),
        Some((ty, payload)) => {
            f.write_char('(')?;
            write_value(f, ty, payload)?;
            f.write_char(')')
        }
    }
}

/// A variant's or enum's case; `%` sets it apart from a keyword.
fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    if Keyword::decode(name).is_some() {
        f.write_char('%')?;
    }
    f.write_str(name)
}

/// Plain stretches are written whole; only what needs an escape is looked at by itself.
fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut rest = text;
    let plain = |c: char| c == ' ' || (c.is_ascii_graphic() && !"\\\"'".contains(c));
    while let Some(first) = rest.chars().next() {
        let run = rest.find(|c| !plain(c)).unwrap_or(rest.len());
        if run > 0 {
            f.write_str(&rest[..run])?;
            rest = &rest[run..];
        } else {
            write_char(f, first)?;
            rest = &rest[first.len_utf8()..];
        }
    }
    Ok(())
}

/// Escapes what a terminal would not show as itself, just as wasm-wave's writer does.
fn write_char(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    if c.is_control() && !matches!(c, '\t' | '\r' | '\n') {
        write!(f, "{}", c.escape_unicode())
    } else {
        write!(f, "{}", c.escape_debug())
    }
}

fn sequence<T>(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    close: &str,
    items: impl IntoIterator<Item = T>,
    mut each: impl FnMut(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    f.write_str(open)?;
    for (index, item) in items.into_iter().enumerate() {
        if index != 0 {
            f.write_str(", ")?;
        }
        each(f, item)?;
    }
    f.write_str(close)
}
