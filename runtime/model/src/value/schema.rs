//! JSON Schema of the JSON that stands for values: what [`super::json`] reads and writes, said to other programs.
//!
//! Owns the mapping from types to schemas. Must not: read or write values.
//!
//! Invariants: whatever [`json::to_json`](super::json::to_json) makes of a value fits the schema of its type as [`Side::Output`];
//! what fits the schema as [`Side::Input`] is read by [`json::from_json`](super::json::from_json), but for flags and fields
//! that are named twice. Input has the plain forms alone: what is read besides, such as digits in strings, is not offered.
//! The keywords used mean the same in drafts 7 and 2020-12, or nothing in the older.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::numbers::NumberKind;
use super::types::ValueType;

/// Who writes the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Others do, and we read it.
    Input,
    /// We do.
    Output,
}

/// The schema of values of a type.
pub fn of_type(ty: &ValueType, side: Side) -> Json {
    if let Some(kind) = ty.number_kind() {
        return number(kind, side);
    }
    match ty {
        ValueType::Bool => json!({ "type": "boolean" }),
        ValueType::Char => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
        ValueType::String => json!({ "type": "string" }),
        ValueType::Handle(kind) => {
            json!({ "type": "string", "description": format!("{kind}, as ID@OWNER") })
        }
        ValueType::List(list) => {
            let array = json!({ "type": "array", "items": of_type(&list.element, side) });
            match (ty.buffer_kind(), side) {
                (Some(NumberKind::U8), Side::Input) => any_of([
                    array,
                    object([("base64", json!({ "type": "string" }), true)]),
                ]),
                _ => array,
            }
        }
        ValueType::Option(option) => {
            let some = of_type(&option.some, side);
            let some = match &option.some {
                ValueType::Option(_) => object([("some", some, true)]),
                _ => some,
            };
            any_of([some, json!({ "type": "null" })])
        }
        ValueType::Result(result) => {
            let case = |name, ty: &Option<ValueType>| object([(name, payload(ty, side), true)]);
            any_of([case("ok", &result.ok), case("err", &result.err)])
        }
        ValueType::Record(record) => object(record.fields.iter().map(|(name, ty)| {
            let may_be_left_out = side == Side::Input && matches!(ty, ValueType::Option(_));
            (&**name, of_type(ty, side), !may_be_left_out)
        })),
        ValueType::Tuple(tuple) => {
            let items: Vec<_> = tuple.items.iter().map(|ty| of_type(ty, side)).collect();
            let count = items.len();
            json!({ "type": "array", "prefixItems": items, "minItems": count, "maxItems": count })
        }
        ValueType::Variant(variant) => {
            let plain = variant.cases.iter().filter(|(_, ty)| ty.is_none());
            let plain: Vec<_> = plain.map(|(name, _)| &**name).collect();
            let plain = (!plain.is_empty()).then(|| names(&plain));
            let others = variant.cases.iter().filter(|(_, ty)| ty.is_some());
            let others = others.map(|(name, ty)| object([(&**name, payload(ty, side), true)]));
            any_of(plain.into_iter().chain(others))
        }
        ValueType::Enum(it) => names(&it.cases.iter().map(|name| &**name).collect::<Vec<_>>()),
        ValueType::Flags(it) => {
            let flags: Vec<_> = it.flags.iter().map(|name| &**name).collect();
            json!({ "type": "array", "items": names(&flags), "uniqueItems": true })
        }
        _ => unreachable!("{ty} is a number"),
    }
}

/// The schema of the arguments for some parameters: an object by their names. Options may be left out.
pub fn of_arguments<'a>(
    params: impl IntoIterator<Item = &'a (Arc<str>, ValueType)>,
) -> Map<String, Json> {
    let params = params.into_iter().map(|(name, ty)| {
        let is_required = !matches!(ty, ValueType::Option(_));
        (&**name, of_type(ty, Side::Input), is_required)
    });
    match object(params) {
        Json::Object(schema) => schema,
        _ => unreachable!("it was made an object"),
    }
}

/// Properties with their names, schemas and whether they are required; there are no others.
fn object<'a>(properties: impl IntoIterator<Item = (&'a str, Json, bool)>) -> Json {
    let (mut all, mut required) = (Map::new(), Vec::new());
    for (name, schema, is_required) in properties {
        if is_required {
            required.push(name);
        }
        all.insert(name.to_owned(), schema);
    }
    json!({ "type": "object", "properties": all, "required": required, "additionalProperties": false })
}

fn payload(ty: &Option<ValueType>, side: Side) -> Json {
    match ty {
        Some(ty) => of_type(ty, side),
        None => json!({ "type": "null" }),
    }
}

fn names(names: &[&str]) -> Json {
    json!({ "type": "string", "enum": names })
}

/// One of these; a single one is itself.
fn any_of(schemas: impl IntoIterator<Item = Json>) -> Json {
    let mut schemas: Vec<_> = schemas.into_iter().collect();
    match schemas.len() {
        1 => schemas.remove(0),
        _ => json!({ "anyOf": schemas }),
    }
}

fn number(kind: NumberKind, side: Side) -> Json {
    let integer =
        |min: Json, max: Json| json!({ "type": "integer", "minimum": min, "maximum": max });
    match kind {
        NumberKind::U8 => integer(u8::MIN.into(), u8::MAX.into()),
        NumberKind::S8 => integer(i8::MIN.into(), i8::MAX.into()),
        NumberKind::U16 => integer(u16::MIN.into(), u16::MAX.into()),
        NumberKind::S16 => integer(i16::MIN.into(), i16::MAX.into()),
        NumberKind::U32 => integer(u32::MIN.into(), u32::MAX.into()),
        NumberKind::S32 => integer(i32::MIN.into(), i32::MAX.into()),
        NumberKind::U64 => integer(u64::MIN.into(), u64::MAX.into()),
        NumberKind::S64 => integer(i64::MIN.into(), i64::MAX.into()),
        NumberKind::F32 | NumberKind::F64 => match side {
            Side::Input => json!({ "type": "number" }),
            Side::Output => any_of([json!({ "type": "number" }), names(&["nan", "inf", "-inf"])]),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::FunctionType;

    fn s(ty: &ValueType) -> Json {
        of_type(ty, Side::Input)
    }

    #[test]
    fn arguments_are_an_object_in_which_options_may_be_left_out() {
        let text = ValueType::option(ValueType::String).unwrap();
        let ty = FunctionType::new([("times", ValueType::U8), ("last-one", text)], None).unwrap();
        let expected = json!({
            "type": "object",
            "properties": {
                "times": { "type": "integer", "minimum": 0, "maximum": 255 },
                "last-one": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
            },
            "required": ["times"],
            "additionalProperties": false,
        });
        assert_eq!(Json::Object(of_arguments(ty.params())), expected);
    }

    #[test]
    fn each_side_says_its_own_forms() {
        let bytes = ValueType::list(ValueType::U8).unwrap();
        let byte = json!({ "type": "integer", "minimum": 0, "maximum": 255 });
        let array = json!({ "type": "array", "items": byte });
        assert_eq!(of_type(&bytes, Side::Output), array);
        assert_eq!(s(&bytes)["anyOf"][0], array);
        assert_eq!(s(&bytes)["anyOf"][1]["required"], json!(["base64"]));
        assert_eq!(s(&ValueType::F32), json!({ "type": "number" }));
        let special = json!({ "type": "string", "enum": ["nan", "inf", "-inf"] });
        assert_eq!(of_type(&ValueType::F64, Side::Output)["anyOf"][1], special);
        let record = ValueType::record([("home", ValueType::option(ValueType::Bool).unwrap())]);
        let record = record.unwrap();
        assert_eq!(s(&record)["required"], json!([]));
        assert_eq!(of_type(&record, Side::Output)["required"], json!(["home"]));
    }

    #[test]
    fn cases_are_names_or_objects_of_one_name() {
        let shape = ValueType::variant([
            ("empty", None),
            ("circle", Some(ValueType::U8)),
            ("all", None),
        ]);
        let schema = s(&shape.unwrap());
        assert_eq!(
            schema["anyOf"][0],
            json!({ "type": "string", "enum": ["empty", "all"] })
        );
        assert_eq!(schema["anyOf"][1]["required"], json!(["circle"]));
        let single = s(&ValueType::variant([("only", None)]).unwrap());
        assert_eq!(single, json!({ "type": "string", "enum": ["only"] }));
        let result = s(&ValueType::result(None, Some(ValueType::String)).unwrap());
        assert_eq!(
            result["anyOf"][0]["properties"]["ok"],
            json!({ "type": "null" })
        );
        assert_eq!(
            result["anyOf"][1]["properties"]["err"],
            json!({ "type": "string" })
        );
        let inner = ValueType::option(ValueType::Bool).unwrap();
        let outer = s(&ValueType::option(inner).unwrap());
        assert_eq!(outer["anyOf"][0]["required"], json!(["some"]));
        let flags = s(&ValueType::flags(["read", "write"]).unwrap());
        assert_eq!(flags["items"]["enum"], json!(["read", "write"]));
        let tuple = s(&ValueType::tuple([ValueType::Bool, ValueType::Char]).unwrap());
        assert_eq!(
            (&tuple["minItems"], &tuple["maxItems"]),
            (&json!(2), &json!(2))
        );
    }
}
