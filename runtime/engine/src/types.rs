//! Between wasmtime's types and values and the model's.

use std::sync::Arc;

use wasmrun_model::value::{FunctionType, NumberKind, NumberList, Value, ValueType};
use wasmtime::component::Val;
use wasmtime::component::types::{ComponentFunc, Type};

/// A function's type in the model's terms.
///
/// # Errors
/// Why the function cannot be a task.
pub(crate) fn function_type(func: &ComponentFunc) -> Result<FunctionType, String> {
    let params = func
        .params()
        .map(|(name, ty)| Ok((name, value_type(&ty)?)))
        .collect::<Result<Vec<_>, String>>()?;
    let mut results = func.results();
    let result = results.next().map(|ty| value_type(&ty)).transpose()?;
    if results.next().is_some() {
        return Err("it has several results".into());
    }
    FunctionType::new(params, result).map_err(|error| error.to_string())
}

fn value_type(ty: &Type) -> Result<ValueType, String> {
    let optional = |ty: Option<Type>| ty.map(|ty| value_type(&ty)).transpose();
    let made = match ty {
        Type::Bool => return Ok(ValueType::Bool),
        Type::S8 => return Ok(ValueType::S8),
        Type::U8 => return Ok(ValueType::U8),
        Type::S16 => return Ok(ValueType::S16),
        Type::U16 => return Ok(ValueType::U16),
        Type::S32 => return Ok(ValueType::S32),
        Type::U32 => return Ok(ValueType::U32),
        Type::S64 => return Ok(ValueType::S64),
        Type::U64 => return Ok(ValueType::U64),
        Type::Float32 => return Ok(ValueType::F32),
        Type::Float64 => return Ok(ValueType::F64),
        Type::Char => return Ok(ValueType::Char),
        Type::String => return Ok(ValueType::String),
        Type::List(list) => ValueType::list(value_type(&list.ty())?),
        Type::Option(option) => ValueType::option(value_type(&option.ty())?),
        Type::Result(result) => ValueType::result(optional(result.ok())?, optional(result.err())?),
        Type::Record(record) => {
            let fields = record.fields().map(|f| Ok((f.name, value_type(&f.ty)?)));
            ValueType::record(fields.collect::<Result<Vec<_>, String>>()?)
        }
        Type::Tuple(tuple) => {
            let items = tuple.types().map(|ty| value_type(&ty));
            ValueType::tuple(items.collect::<Result<Vec<_>, String>>()?)
        }
        Type::Variant(variant) => {
            let cases = variant.cases().map(|c| Ok((c.name, optional(c.ty)?)));
            ValueType::variant(cases.collect::<Result<Vec<_>, String>>()?)
        }
        Type::Enum(names) => ValueType::enumeration(names.names()),
        Type::Flags(names) => ValueType::flags(names.names()),
        Type::Own(_) | Type::Borrow(_) => {
            return Err("its type has a resource, which only actors can pass".into());
        }
        Type::Future(_) | Type::Stream(_) | Type::ErrorContext => {
            return Err("its type has a future or stream, which cannot leave a sandbox".into());
        }
        Type::Map(_) => return Err("its type has a map; use list<tuple<key, value>>".into()),
        Type::FixedLengthList(_) => {
            return Err("its type has a list of fixed length; use list or tuple".into());
        }
    };
    made.map_err(|error| error.to_string())
}

/// Arguments for wasmtime. Each has passed [`Value::check`] against its parameter's type.
pub(crate) fn to_vals(ty: &FunctionType, values: &[Value]) -> Vec<Val> {
    ty.params()
        .iter()
        .zip(values)
        .map(|((_, ty), value)| to_val(ty, value))
        .collect()
}

/// A value for wasmtime. It has passed [`Value::check`] against `ty`.
fn to_val(ty: &ValueType, value: &Value) -> Val {
    let payload = |ty: Option<&ValueType>, value: &Option<Box<Value>>| {
        Some(Box::new(to_val(ty?, value.as_deref()?)))
    };
    match (ty, value) {
        (_, Value::Bool(v)) => Val::Bool(*v),
        (_, Value::S8(v)) => Val::S8(*v),
        (_, Value::U8(v)) => Val::U8(*v),
        (_, Value::S16(v)) => Val::S16(*v),
        (_, Value::U16(v)) => Val::U16(*v),
        (_, Value::S32(v)) => Val::S32(*v),
        (_, Value::U32(v)) => Val::U32(*v),
        (_, Value::S64(v)) => Val::S64(*v),
        (_, Value::U64(v)) => Val::U64(*v),
        (_, Value::F32(v)) => Val::Float32(*v),
        (_, Value::F64(v)) => Val::Float64(*v),
        (_, Value::Char(v)) => Val::Char(*v),
        (_, Value::String(v)) => Val::String(v.clone()),
        (_, Value::Numbers(numbers)) => {
            let ty = numbers.kind().element_type();
            Val::List(numbers.values().map(|n| to_val(&ty, &n)).collect())
        }
        (ValueType::List(list), Value::List(items)) => Val::List(
            items
                .iter()
                .map(|item| to_val(&list.element, item))
                .collect(),
        ),
        (ValueType::Option(option), Value::Option(some)) => {
            Val::Option(payload(Some(&option.some), some))
        }
        (ValueType::Result(result), Value::Result(either)) => Val::Result(match either {
            Ok(ok) => Ok(payload(result.ok.as_ref(), ok)),
            Err(err) => Err(payload(result.err.as_ref(), err)),
        }),
        (ValueType::Record(record), Value::Record(values)) => {
            let fields = record.fields.iter().zip(values);
            Val::Record(
                fields
                    .map(|((n, ty), v)| (n.to_string(), to_val(ty, v)))
                    .collect(),
            )
        }
        (ValueType::Tuple(tuple), Value::Tuple(values)) => Val::Tuple(
            tuple
                .items
                .iter()
                .zip(values)
                .map(|(ty, v)| to_val(ty, v))
                .collect(),
        ),
        (ValueType::Variant(variant), Value::Variant(case, value)) => {
            let (name, ty) = &variant.cases[*case as usize];
            Val::Variant(name.to_string(), payload(ty.as_ref(), value))
        }
        (ValueType::Enum(names), Value::Enum(case)) => {
            Val::Enum(names.cases[*case as usize].to_string())
        }
        (ValueType::Flags(names), Value::Flags(set)) => {
            let set = names.flags.iter().zip(set).filter(|(_, set)| **set);
            Val::Flags(set.map(|(name, _)| name.to_string()).collect())
        }
        (ty, value) => unreachable!("{} is no {ty}, as was checked", value.kind_name()),
    }
}

/// A value from wasmtime, which has made sure that it is of this type.
pub(crate) fn from_val(ty: &ValueType, val: Val) -> Value {
    let payload =
        |ty: Option<&ValueType>, val: Option<Box<Val>>| Some(Box::new(from_val(ty?, *val?)));
    let index_of = |mut names: Box<dyn Iterator<Item = &Arc<str>> + '_>, name: &str| {
        names
            .position(|n| **n == *name)
            .expect("wasmtime knows only the type's names")
    };
    match (ty, val) {
        (_, Val::Bool(v)) => Value::Bool(v),
        (_, Val::S8(v)) => Value::S8(v),
        (_, Val::U8(v)) => Value::U8(v),
        (_, Val::S16(v)) => Value::S16(v),
        (_, Val::U16(v)) => Value::U16(v),
        (_, Val::S32(v)) => Value::S32(v),
        (_, Val::U32(v)) => Value::U32(v),
        (_, Val::S64(v)) => Value::S64(v),
        (_, Val::U64(v)) => Value::U64(v),
        (_, Val::Float32(v)) => Value::F32(v),
        (_, Val::Float64(v)) => Value::F64(v),
        (_, Val::Char(v)) => Value::Char(v),
        (_, Val::String(v)) => Value::String(v),
        (ty @ ValueType::List(list), Val::List(items)) => match ty.buffer_kind() {
            Some(kind) => Value::Numbers(numbers(kind, items)),
            None => Value::List(
                items
                    .into_iter()
                    .map(|v| from_val(&list.element, v))
                    .collect(),
            ),
        },
        (ValueType::Option(option), Val::Option(some)) => {
            Value::Option(payload(Some(&option.some), some))
        }
        (ValueType::Result(result), Val::Result(either)) => Value::Result(match either {
            Ok(ok) => Ok(payload(result.ok.as_ref(), ok)),
            Err(err) => Err(payload(result.err.as_ref(), err)),
        }),
        (ValueType::Record(record), Val::Record(values)) => {
            let fields = record.fields.iter().zip(values);
            Value::Record(fields.map(|((_, ty), (_, v))| from_val(ty, v)).collect())
        }
        (ValueType::Tuple(tuple), Val::Tuple(values)) => Value::Tuple(
            tuple
                .items
                .iter()
                .zip(values)
                .map(|(ty, v)| from_val(ty, v))
                .collect(),
        ),
        (ValueType::Variant(variant), Val::Variant(name, val)) => {
            let case = index_of(Box::new(variant.cases.iter().map(|(n, _)| n)), &name);
            Value::Variant(case as u32, payload(variant.cases[case].1.as_ref(), val))
        }
        (ValueType::Enum(names), Val::Enum(name)) => {
            Value::Enum(index_of(Box::new(names.cases.iter()), &name) as u32)
        }
        (ValueType::Flags(names), Val::Flags(set)) => Value::Flags(
            names
                .flags
                .iter()
                .map(|name| set.iter().any(|s| **s == **name))
                .collect(),
        ),
        (ty, val) => unreachable!("wasmtime gave {val:?} for {ty}"),
    }
}

fn numbers(kind: NumberKind, items: Vec<Val>) -> NumberList {
    let mut bytes = Vec::with_capacity(items.len() * kind.width_bytes());
    for item in items {
        match item {
            Val::S8(v) => bytes.extend(v.to_le_bytes()),
            Val::U8(v) => bytes.push(v),
            Val::S16(v) => bytes.extend(v.to_le_bytes()),
            Val::U16(v) => bytes.extend(v.to_le_bytes()),
            Val::S32(v) => bytes.extend(v.to_le_bytes()),
            Val::U32(v) => bytes.extend(v.to_le_bytes()),
            Val::S64(v) => bytes.extend(v.to_le_bytes()),
            Val::U64(v) => bytes.extend(v.to_le_bytes()),
            Val::Float32(v) => bytes.extend(v.to_le_bytes()),
            Val::Float64(v) => bytes.extend(v.to_le_bytes()),
            other => unreachable!("wasmtime gave {other:?} for a {kind}"),
        }
    }
    NumberList::from_le_bytes(kind, bytes).expect("whole elements")
}
