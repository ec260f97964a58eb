//! Between wasmtime's types and values and the model's.

use std::sync::Arc;

use wasmrun_model::value::{
    FunctionType, Handle, HandleKind, NumberKind, NumberList, Value, ValueType,
};
use wasmtime::component::types::{ComponentFunc, Type};
use wasmtime::component::{ResourceAny, ResourceType, Val};

use crate::handle::{ActorHandle, ObjectHandle};

/// A function's type in the model's terms.
///
/// # Errors
/// Why the function cannot be a task.
pub(crate) fn function_type(func: &ComponentFunc) -> Result<FunctionType, String> {
    let result = result_type(func)?.map(|ty| value_type(&ty)).transpose()?;
    signature(func, 0, result)
}

/// A method's type, without the instance that it is called on.
///
/// # Errors
/// Why it cannot be called.
pub(crate) fn method_type(func: &ComponentFunc) -> Result<FunctionType, String> {
    let result = result_type(func)?.map(|ty| value_type(&ty)).transpose()?;
    signature(func, 1, result)
}

/// A constructor's type, without the instance that it makes.
///
/// # Errors
/// Why it cannot be called.
pub(crate) fn constructor_type(func: &ComponentFunc) -> Result<FunctionType, String> {
    match result_type(func)? {
        Some(Type::Own(_)) => signature(func, 0, None),
        _ => Err("it may fail; make it one that returns the instance itself".into()),
    }
}

/// Whether a function makes an instance of bytes.
///
/// # Errors
/// Why it does not.
pub(crate) fn restore_type(func: &ComponentFunc) -> Result<(), String> {
    let params: Vec<Type> = func.params().map(|(_, ty)| ty).collect();
    let takes_bytes = matches!(&params[..], [Type::List(list)] if matches!(list.ty(), Type::U8));
    match result_type(func)? {
        Some(Type::Own(_)) if takes_bytes => Ok(()),
        _ => Err("it must take a list<u8> and return the instance".into()),
    }
}

fn result_type(func: &ComponentFunc) -> Result<Option<Type>, String> {
    let mut results = func.results();
    let result = results.next();
    match results.next() {
        None => Ok(result),
        Some(_) => Err("it has several results".into()),
    }
}

/// A function's type without its first `skip` parameters.
fn signature(
    func: &ComponentFunc,
    skip: usize,
    result: Option<ValueType>,
) -> Result<FunctionType, String> {
    let params = func.params().skip(skip);
    let params = params.map(|(name, ty)| Ok((name, value_type(&ty)?)));
    let params = params.collect::<Result<Vec<_>, String>>()?;
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
        Type::Own(ty) if *ty == ResourceType::host::<ObjectHandle>() => {
            return Ok(ValueType::Handle(HandleKind::Object));
        }
        Type::Own(ty) if *ty == ResourceType::host::<ActorHandle>() => {
            return Ok(ValueType::Handle(HandleKind::Actor));
        }
        Type::Own(_) | Type::Borrow(_) => {
            return Err(
                "its type has a resource that is neither an object's handle nor an actor's".into(),
            );
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

/// What becomes a guest's handle on its way in. There is none where a type has no handles.
pub(crate) type ToHandle<'a> = dyn FnMut(Handle) -> wasmtime::Result<ResourceAny> + 'a;

/// What becomes of a guest's handle on its way out.
pub(crate) type FromHandle<'a> = dyn FnMut(ResourceAny) -> wasmtime::Result<Handle> + 'a;

/// Arguments for wasmtime. Each has passed [`Value::check`] against its parameter's type.
///
/// # Errors
/// When a handle cannot be given to the guest.
pub(crate) fn to_vals(
    ty: &FunctionType,
    values: &[Value],
    handles: &mut ToHandle<'_>,
) -> wasmtime::Result<Vec<Val>> {
    let params = ty.params().iter().zip(values);
    params
        .map(|((_, ty), value)| to_val(ty, value, handles))
        .collect()
}

/// A value for wasmtime. It has passed [`Value::check`] against `ty`.
fn to_val(ty: &ValueType, value: &Value, handles: &mut ToHandle<'_>) -> wasmtime::Result<Val> {
    Ok(match (ty, value) {
        (_, Value::Handle(handle)) => Val::Resource(handles(**handle)?),
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
            let numbers = numbers.values().map(|n| to_val(&ty, &n, handles));
            Val::List(numbers.collect::<wasmtime::Result<_>>()?)
        }
        (ValueType::List(list), Value::List(items)) => {
            let items = items
                .iter()
                .map(|item| to_val(&list.element, item, handles));
            Val::List(items.collect::<wasmtime::Result<_>>()?)
        }
        (ValueType::Option(option), Value::Option(some)) => {
            Val::Option(payload_to_val(Some(&option.some), some, handles)?)
        }
        (ValueType::Result(result), Value::Result(either)) => Val::Result(match either {
            Ok(ok) => Ok(payload_to_val(result.ok.as_ref(), ok, handles)?),
            Err(err) => Err(payload_to_val(result.err.as_ref(), err, handles)?),
        }),
        (ValueType::Record(record), Value::Record(values)) => {
            let fields = record.fields.iter().zip(values);
            let fields = fields.map(|((n, ty), v)| Ok((n.to_string(), to_val(ty, v, handles)?)));
            Val::Record(fields.collect::<wasmtime::Result<_>>()?)
        }
        (ValueType::Tuple(tuple), Value::Tuple(values)) => {
            let items = tuple.items.iter().zip(values);
            let items = items.map(|(ty, v)| to_val(ty, v, handles));
            Val::Tuple(items.collect::<wasmtime::Result<_>>()?)
        }
        (ValueType::Variant(variant), Value::Variant(case, value)) => {
            let (name, ty) = &variant.cases[*case as usize];
            Val::Variant(
                name.to_string(),
                payload_to_val(ty.as_ref(), value, handles)?,
            )
        }
        (ValueType::Enum(names), Value::Enum(case)) => {
            Val::Enum(names.cases[*case as usize].to_string())
        }
        (ValueType::Flags(names), Value::Flags(set)) => {
            let set = names.flags.iter().zip(set).filter(|(_, set)| **set);
            Val::Flags(set.map(|(name, _)| name.to_string()).collect())
        }
        (ty, value) => unreachable!("{} is no {ty}, as was checked", value.kind_name()),
    })
}

fn payload_to_val(
    ty: Option<&ValueType>,
    value: &Option<Box<Value>>,
    handles: &mut ToHandle<'_>,
) -> wasmtime::Result<Option<Box<Val>>> {
    let (Some(ty), Some(value)) = (ty, value) else {
        return Ok(None);
    };
    Ok(Some(Box::new(to_val(ty, value, handles)?)))
}

/// A value from wasmtime, which has made sure that it is of this type.
///
/// # Errors
/// When a handle cannot be taken from the guest.
pub(crate) fn from_val(
    ty: &ValueType,
    val: Val,
    handles: &mut FromHandle<'_>,
) -> wasmtime::Result<Value> {
    let index_of = |mut names: Box<dyn Iterator<Item = &Arc<str>> + '_>, name: &str| {
        names
            .position(|n| **n == *name)
            .expect("wasmtime knows only the type's names")
    };
    Ok(match (ty, val) {
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
        (_, Val::Resource(resource)) => handles(resource)?.into(),
        (ty @ ValueType::List(list), Val::List(items)) => match ty.buffer_kind() {
            Some(kind) => Value::Numbers(numbers(kind, items)),
            None => {
                let items = items.into_iter();
                let items = items.map(|v| from_val(&list.element, v, handles));
                Value::List(items.collect::<wasmtime::Result<_>>()?)
            }
        },
        (ValueType::Option(option), Val::Option(some)) => {
            Value::Option(payload_from_val(Some(&option.some), some, handles)?)
        }
        (ValueType::Result(result), Val::Result(either)) => Value::Result(match either {
            Ok(ok) => Ok(payload_from_val(result.ok.as_ref(), ok, handles)?),
            Err(err) => Err(payload_from_val(result.err.as_ref(), err, handles)?),
        }),
        (ValueType::Record(record), Val::Record(values)) => {
            let fields = record.fields.iter().zip(values);
            let fields = fields.map(|((_, ty), (_, v))| from_val(ty, v, handles));
            Value::Record(fields.collect::<wasmtime::Result<_>>()?)
        }
        (ValueType::Tuple(tuple), Val::Tuple(values)) => {
            let items = tuple.items.iter().zip(values);
            let items = items.map(|(ty, v)| from_val(ty, v, handles));
            Value::Tuple(items.collect::<wasmtime::Result<_>>()?)
        }
        (ValueType::Variant(variant), Val::Variant(name, val)) => {
            let case = index_of(Box::new(variant.cases.iter().map(|(n, _)| n)), &name);
            let ty = variant.cases[case].1.as_ref();
            Value::Variant(case as u32, payload_from_val(ty, val, handles)?)
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
    })
}

fn payload_from_val(
    ty: Option<&ValueType>,
    val: Option<Box<Val>>,
    handles: &mut FromHandle<'_>,
) -> wasmtime::Result<Option<Box<Value>>> {
    let (Some(ty), Some(val)) = (ty, val) else {
        return Ok(None);
    };
    Ok(Some(Box::new(from_val(ty, *val, handles)?)))
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
