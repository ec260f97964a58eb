//! Values as JSON, directed by their type.
//!
//! | type | JSON |
//! |---|---|
//! | `bool` | `true`, `false` |
//! | integers | number, exact also beyond 2^53; a string of digits is read too for `u64` and `s64` |
//! | `f32`, `f64` | number, or `"nan"`, `"inf"`, `"-inf"` |
//! | `char`, `string` | string (`char`: of one character) |
//! | `object`, `actor` | string: the id, `@`, the owner's id |
//! | `list` | array; for `list<u8>`, `{"base64": ".."}` is read too |
//! | `record` | object; fields that are options may be left out |
//! | `tuple` | array |
//! | `variant` | `{"case": payload}`, or `"case"` where it has no payload |
//! | `enum` | `"case"` |
//! | `flags` | array of the names that are set |
//! | `result` | `{"ok": payload}` or `{"err": payload}`, with `null` where it has no payload |
//! | `option` | `null` or the value; around another option, `null` or `{"some": value}` |
//!
//! The last rule keeps `option<option<u8>>` unambiguous: none is `null`, some(none) is
//! `{"some": null}`, some(some(3)) is `{"some": 3}`. What [`to_json`] makes, [`from_json`] reads back
//! to the same value (NaN loses its payload).

use serde_json::{Map, Number, Value as Json};

use super::numbers::{NumberKind, NumberList};
use super::path::{At, Root};
use super::text::{
    Fail, TextError, TextFault, arguments, excerpt, fail, find_name, handle, left_out, mismatch,
    mismatch_hint, names, number, out_of_range,
};
use super::types::{FunctionType, ValueType};
use super::value::{TypeError, Value};

/// A value as JSON. Errors: the value does not have the type.
pub fn to_json(ty: &ValueType, value: &Value) -> Result<Json, TypeError> {
    value.check(ty)?;
    Ok(write(ty, value))
}

/// A value of type `ty` from JSON.
pub fn from_json(ty: &ValueType, json: &Json) -> Result<Value, TextError> {
    read(ty, json).map_err(|error| *error)
}

/// A call's arguments: an array in the order of the parameters, or an object by their names. Options
/// may be left out of an object, and of the end of an array.
pub fn arguments_from_json(ty: &FunctionType, json: &Json) -> Result<Vec<Value>, TextError> {
    match json {
        Json::Array(given) => arguments(ty, given.iter(), read),
        Json::Object(given) => read_fields(ty.params(), given).under(Root::Arguments),
        _ => {
            let expected = format!("an array or object of arguments for {}", excerpt(ty));
            fail(TextFault::Mismatch {
                expected,
                found: found(json),
            })
            .under(Root::Arguments)
        }
    }
    .map_err(|error| *error)
}

fn write(ty: &ValueType, value: &Value) -> Json {
    match (ty, value) {
        (_, Value::Bool(b)) => Json::Bool(*b),
        (_, Value::S8(n)) => (*n).into(),
        (_, Value::U8(n)) => (*n).into(),
        (_, Value::S16(n)) => (*n).into(),
        (_, Value::U16(n)) => (*n).into(),
        (_, Value::S32(n)) => (*n).into(),
        (_, Value::U32(n)) => (*n).into(),
        (_, Value::S64(n)) => (*n).into(),
        (_, Value::U64(n)) => (*n).into(),
        (_, Value::F32(n)) => float(shortest(*n)),
        (_, Value::F64(n)) => float(*n),
        (_, Value::Char(c)) => Json::String(c.to_string()),
        (_, Value::String(text)) => Json::String(text.clone()),
        (_, Value::Handle(handle)) => Json::String(handle.to_string()),
        (ValueType::List(list), Value::Numbers(numbers)) => numbers
            .values()
            .map(|number| write(&list.element, &number))
            .collect(),
        (ValueType::List(list), Value::List(items)) => items
            .iter()
            .map(|item| write(&list.element, item))
            .collect(),
        (_, Value::Option(None)) => Json::Null,
        (ValueType::Option(option), Value::Option(Some(some))) => match &option.some {
            inner @ ValueType::Option(_) => object("some", write(inner, some)),
            inner => write(inner, some),
        },
        (ValueType::Result(result), Value::Result(Ok(payload))) => {
            object("ok", write_payload(result.ok.as_ref(), payload))
        }
        (ValueType::Result(result), Value::Result(Err(payload))) => {
            object("err", write_payload(result.err.as_ref(), payload))
        }
        (ValueType::Record(record), Value::Record(values)) => {
            let fields = record.fields.iter().zip(values);
            fields
                .map(|((name, ty), value)| (name.to_string(), write(ty, value)))
                .collect()
        }
        (ValueType::Tuple(tuple), Value::Tuple(values)) => tuple
            .items
            .iter()
            .zip(values)
            .map(|(ty, value)| write(ty, value))
            .collect(),
        (ValueType::Variant(variant), Value::Variant(case, payload)) => {
            let (name, ty) = &variant.cases[*case as usize];
            match ty {
                None => Json::String(name.to_string()),
                Some(_) => object(name, write_payload(ty.as_ref(), payload)),
            }
        }
        (ValueType::Enum(names), Value::Enum(case)) => {
            Json::String(names.cases[*case as usize].to_string())
        }
        (ValueType::Flags(names), Value::Flags(set)) => {
            let set = names.flags.iter().zip(set).filter(|(_, set)| **set);
            set.map(|(name, _)| Json::String(name.to_string()))
                .collect()
        }
        (ty, value) => unreachable!("{} was checked to be a {ty}", value.kind_name()),
    }
}

fn write_payload(ty: Option<&ValueType>, payload: &Option<Box<Value>>) -> Json {
    match (ty, payload) {
        (Some(ty), Some(payload)) => write(ty, payload),
        _ => Json::Null,
    }
}

fn object(name: &str, value: Json) -> Json {
    Json::Object(Map::from_iter([(name.to_owned(), value)]))
}

fn float(n: f64) -> Json {
    match Number::from_f64(n) {
        Some(number) => Json::Number(number),
        None if n.is_nan() => "nan".into(),
        None if n > 0.0 => "inf".into(),
        None => "-inf".into(),
    }
}

/// The f64 that prints as the f32 does (0.1, not 0.10000000149011612) if it rounds back to it.
fn shortest(n: f32) -> f64 {
    let exact = f64::from(n);
    match n.to_string().parse::<f64>() {
        Ok(short) if (short as f32).to_bits() == n.to_bits() => short,
        _ => exact,
    }
}

fn read(ty: &ValueType, json: &Json) -> Result<Value, Fail> {
    if let Some(kind) = ty.number_kind() {
        return read_number(kind, json);
    }
    match (ty, json) {
        (ValueType::Bool, Json::Bool(b)) => Ok(Value::Bool(*b)),
        (ValueType::Char, Json::String(text)) => {
            let mut chars = text.chars();
            match (chars.next(), chars.next()) {
                (Some(c), None) => Ok(Value::Char(c)),
                _ => mismatch_hint(ty, "a string of exactly one character", found(json)),
            }
        }
        (ValueType::String, Json::String(text)) => Ok(Value::String(text.clone())),
        (ValueType::Handle(kind), Json::String(text)) => handle(*kind, text),
        (ValueType::List(list), Json::Array(items)) => {
            let items = items.iter().enumerate();
            let items = items.map(|(index, item)| read(&list.element, item).at_index(index));
            match ty.buffer_kind() {
                None => items.collect::<Result<_, _>>().map(Value::List),
                Some(kind) => {
                    let mut list = NumberList::new(kind);
                    for item in items {
                        list.push(item?).expect("a number of the list's kind");
                    }
                    Ok(Value::Numbers(list))
                }
            }
        }
        (ValueType::List(_), Json::Object(_)) => read_base64(ty, json),
        (ValueType::Option(_), Json::Null) => Ok(Value::Option(None)),
        (ValueType::Option(option), json) => {
            let some = match (&option.some, single(json)) {
                (ty @ ValueType::Option(_), Some(("some", inner))) => {
                    read(ty, inner).at_case("some")?
                }
                (ValueType::Option(_), _) => {
                    return mismatch_hint(ty, r#"null or {"some": ..}"#, found(json));
                }
                (ty, _) => read(ty, json)?,
            };
            Ok(Value::Option(Some(Box::new(some))))
        }
        (ValueType::Result(result), json) => match single(json) {
            Some(("ok", json)) => Ok(Value::Result(Ok(read_payload(
                "ok",
                result.ok.as_ref(),
                json,
            )?))),
            Some(("err", json)) => Ok(Value::Result(Err(read_payload(
                "err",
                result.err.as_ref(),
                json,
            )?))),
            _ => mismatch_hint(ty, r#"{"ok": ..} or {"err": ..}"#, found(json)),
        },
        (ValueType::Record(record), Json::Object(given)) => {
            read_fields(&record.fields, given).map(Value::Record)
        }
        (ValueType::Tuple(tuple), Json::Array(items)) => {
            if items.len() != tuple.items.len() {
                let (expected, found) = (tuple.items.len(), items.len());
                return fail(TextFault::TupleLength {
                    expected,
                    ty: excerpt(ty),
                    found,
                });
            }
            let items = tuple.items.iter().zip(items).enumerate();
            let items = items.map(|(position, (ty, item))| read(ty, item).at_position(position));
            items.collect::<Result<_, _>>().map(Value::Tuple)
        }
        (ValueType::Variant(_), json) => read_variant(ty, json),
        (ValueType::Enum(names), Json::String(name)) => {
            let case = find_name("case", name, names.cases.iter())?;
            Ok(Value::Enum(case as u32))
        }
        (ValueType::Flags(_), Json::Array(items)) => read_flags(ty, items),
        (ty, json) => mismatch(ty, found(json)),
    }
}

fn read_number(kind: NumberKind, json: &Json) -> Result<Value, Fail> {
    match (kind, json) {
        (NumberKind::F64, Json::Number(n)) => match n.as_f64() {
            Some(n) => Ok(Value::F64(n)),
            None => fail(out_of_range(kind, n)),
        },
        (NumberKind::F32, Json::Number(n)) => match n.as_f64().map(|n| n as f32) {
            Some(n) if n.is_finite() => Ok(Value::F32(n)),
            _ => fail(out_of_range(kind, n)),
        },
        (NumberKind::F32 | NumberKind::F64, Json::String(text))
            if matches!(&**text, "nan" | "inf" | "-inf") =>
        {
            number(kind, text)
        }
        (NumberKind::F32 | NumberKind::F64, json) => mismatch_hint(
            &kind.element_type(),
            r#"or "nan", "inf", "-inf""#,
            found(json),
        ),
        // The digits decide: exact for every integer, and 1.0 or 1e3 is not one.
        (_, Json::Number(n)) => number(kind, &n.to_string()),
        (NumberKind::U64 | NumberKind::S64, Json::String(digits))
            if digits.ends_with(|last: char| last.is_ascii_digit()) =>
        {
            number(kind, digits)
        }
        (_, json) => mismatch(&kind.element_type(), found(json)),
    }
}

fn read_fields(
    fields: &[(std::sync::Arc<str>, ValueType)],
    given: &Map<String, Json>,
) -> Result<Vec<Value>, Fail> {
    let mut values = Vec::with_capacity(fields.len());
    let mut used = 0;
    for (name, ty) in fields {
        values.push(match given.get(&**name) {
            Some(json) => {
                used += 1;
                read(ty, json).at_name(name)?
            }
            None => left_out(name, ty)?,
        });
    }
    if used == given.len() {
        return Ok(values);
    }
    let unknown = given
        .keys()
        .find(|key| fields.iter().all(|(name, _)| **name != ***key));
    fail(TextFault::UnknownField {
        found: unknown.map_or(String::new(), excerpt),
        known: names(fields.iter().map(|(name, _)| name)),
    })
}

fn read_variant(ty: &ValueType, json: &Json) -> Result<Value, Fail> {
    let ValueType::Variant(variant) = ty else {
        unreachable!("{ty} is a variant")
    };
    let (found, payload) = match (json, single(json)) {
        (Json::String(name), _) => (&**name, None),
        (_, Some((name, payload))) => (name, Some(payload)),
        _ => return mismatch_hint(ty, r#""case" or {"case": payload}"#, found(json)),
    };
    let case = find_name("case", found, variant.cases.iter().map(|(name, _)| name))?;
    let (name, ty) = &variant.cases[case];
    let payload = match (ty, payload) {
        (None, None) => None,
        (Some(ty), Some(json)) => Some(Box::new(read(ty, json).at_name(name)?)),
        (Some(ty), None) => {
            return fail(TextFault::MissingPayload {
                case: name.to_string(),
                ty: excerpt(ty),
                hint: format!("{{\"{name}\": ..}}"),
            });
        }
        (None, Some(_)) => {
            let (case, hint) = (name.to_string(), format!("\"{name}\""));
            return fail(TextFault::UnexpectedPayload { case, hint });
        }
    };
    Ok(Value::Variant(case as u32, payload))
}

/// A result's payload; `null` where there is none.
fn read_payload(
    case: &str,
    ty: Option<&ValueType>,
    json: &Json,
) -> Result<Option<Box<Value>>, Fail> {
    match (ty, json) {
        (Some(ty), json) => Ok(Some(Box::new(read(ty, json).at_case(case)?))),
        (None, Json::Null) => Ok(None),
        (None, _) => fail(TextFault::UnexpectedPayload {
            case: case.to_owned(),
            hint: format!("{{\"{case}\": null}}"),
        }),
    }
}

fn read_flags(ty: &ValueType, items: &[Json]) -> Result<Value, Fail> {
    let ValueType::Flags(names) = ty else {
        unreachable!("{ty} is flags")
    };
    let mut set = vec![false; names.flags.len()];
    for (index, item) in items.iter().enumerate() {
        let Json::String(name) = item else {
            return mismatch_hint(ty, "an array of strings", found(item)).at_index(index);
        };
        let flag = find_name("flag", name, names.flags.iter()).at_index(index)?;
        if set[flag] {
            let name = name.clone();
            return fail(TextFault::DuplicateFlag { name }).at_index(index);
        }
        set[flag] = true;
    }
    Ok(Value::Flags(set))
}

fn read_base64(ty: &ValueType, json: &Json) -> Result<Value, Fail> {
    match (ty.buffer_kind(), single(json)) {
        (Some(kind @ NumberKind::U8), Some(("base64", Json::String(text)))) => {
            match base64(text.as_bytes()) {
                Ok(bytes) => {
                    let list = NumberList::from_le_bytes(kind, bytes);
                    Ok(Value::Numbers(list.expect("any bytes are u8s")))
                }
                Err(why) => fail(TextFault::Base64 { why }),
            }
        }
        (Some(NumberKind::U8), _) => {
            mismatch_hint(ty, r#"an array or {"base64": "..."}"#, found(json))
        }
        _ => mismatch_hint(ty, "an array", found(json)),
    }
}

/// RFC 4648, section 4, padded.
fn base64(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    if !text.len().is_multiple_of(4) {
        return Err("the base64 text's length is not a multiple of 4");
    }
    let padding = text
        .iter()
        .rev()
        .take(2)
        .take_while(|&&b| b == b'=')
        .count();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let digits = &text[..text.len() - padding];
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for &digit in group {
            bits = bits << 6 | u32::from(base64_digit(digit).ok_or("not a base64 digit")?);
        }
        let unused = 8 * (4 - group.len()) - 2 * (4 - group.len());
        bits <<= unused;
        let whole = group.len() * 6 / 8;
        let [_, group @ ..] = bits.to_be_bytes();
        if group[whole..].iter().any(|&byte| byte != 0) {
            return Err("the base64 text's last digit has bits that belong to no byte");
        }
        bytes.extend_from_slice(&group[..whole]);
    }
    Ok(bytes)
}

fn base64_digit(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// The name and value of an object that has just one.
fn single(json: &Json) -> Option<(&str, &Json)> {
    let object = json.as_object().filter(|object| object.len() == 1)?;
    object.iter().next().map(|(name, value)| (&**name, value))
}

/// What JSON was found, in few words: large ones are not printed.
pub(crate) fn found(json: &Json) -> String {
    match json {
        Json::Null | Json::Bool(_) | Json::Number(_) => json.to_string(),
        Json::String(text) => excerpt(&format_args!("{text:?}")),
        Json::Array(items) => format!("an array of {}", items.len()),
        Json::Object(fields) => {
            let keys: Vec<_> = fields
                .keys()
                .take(5)
                .map(|key| format!("{key:?}"))
                .collect();
            let more = if fields.len() > keys.len() {
                ", …"
            } else {
                ""
            };
            excerpt(&format_args!("an object {{{}{more}}}", keys.join(", ")))
        }
    }
}
