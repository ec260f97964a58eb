//! Tests of the whole folder: what each form promises, for examples and for arbitrary pairs of a
//! type and a value.

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::id::{ActorId, ActorName, NodeId, ObjectId, ObjectName};

mod bytes;
mod bytes_refused;
mod json;
mod random;
mod types;
mod wave;

/// Keywords of WAVE, names that JSON forms use, and words in both cases.
const NAMES: [&str; 9] = [
    "a",
    "none",
    "some",
    "ok",
    "true",
    "base64",
    "two-words",
    "HTTP-2a",
    "x1",
];

/// A list of numbers.
fn numbers<T: Element>(elements: &[T]) -> Value {
    Value::Numbers(NumberList::from_elements(elements.iter().copied()))
}

fn some(value: Value) -> Value {
    Value::Option(Some(Box::new(value)))
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// `record { x: f32, y: f32 }`.
fn point() -> ValueType {
    ValueType::record([("x", ValueType::F32), ("y", ValueType::F32)]).unwrap()
}

/// A type and a value of it.
pub(crate) fn typed() -> impl Strategy<Value = (ValueType, Value)> {
    any_type().prop_flat_map(|ty| any_value(&ty).prop_map(move |value| (ty.clone(), value)))
}

fn any_names() -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(&NAMES[..], 1..=4).prop_shuffle()
}

fn any_type() -> impl Strategy<Value = ValueType> {
    let leaf = prop_oneof![
        Just(ValueType::Bool),
        Just(ValueType::Char),
        Just(ValueType::String),
        Just(ValueType::Handle(HandleKind::Object)),
        Just(ValueType::Handle(HandleKind::Actor)),
        (0..10usize).prop_map(|kind| NumberKind::ALL[kind].element_type()),
        any_names().prop_map(|names| ValueType::enumeration(names).unwrap()),
        any_names().prop_map(|names| ValueType::flags(names).unwrap()),
    ];
    leaf.prop_recursive(4, 24, 4, |part| {
        let maybe = || proptest::option::of(part.clone());
        let parts = || proptest::collection::vec(part.clone(), 4);
        let maybes = proptest::collection::vec(maybe(), 4);
        prop_oneof![
            part.clone().prop_map(|ty| ValueType::list(ty).unwrap()),
            part.clone().prop_map(|ty| ValueType::option(ty).unwrap()),
            (maybe(), maybe()).prop_map(|(ok, err)| ValueType::result(ok, err).unwrap()),
            proptest::collection::vec(part.clone(), 1..4)
                .prop_map(|items| ValueType::tuple(items).unwrap()),
            (any_names(), parts())
                .prop_map(
                    |(names, parts)| ValueType::record(names.into_iter().zip(parts)).unwrap()
                ),
            (any_names(), maybes).prop_map(|(names, parts)| {
                ValueType::variant(names.into_iter().zip(parts)).unwrap()
            }),
        ]
    })
}

fn any_value(ty: &ValueType) -> BoxedStrategy<Value> {
    let boxed = |ty: &ValueType| any_value(ty).prop_map(Box::new);
    let maybe = |ty: Option<&ValueType>| match ty {
        None => Just(None).boxed(),
        Some(ty) => boxed(ty).prop_map(Some).boxed(),
    };
    match ty {
        ValueType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ValueType::S8 => any::<i8>().prop_map(Value::S8).boxed(),
        ValueType::U8 => any::<u8>().prop_map(Value::U8).boxed(),
        ValueType::S16 => any::<i16>().prop_map(Value::S16).boxed(),
        ValueType::U16 => any::<u16>().prop_map(Value::U16).boxed(),
        ValueType::S32 => any::<i32>().prop_map(Value::S32).boxed(),
        ValueType::U32 => any::<u32>().prop_map(Value::U32).boxed(),
        ValueType::S64 => any::<i64>().prop_map(Value::S64).boxed(),
        ValueType::U64 => any::<u64>().prop_map(Value::U64).boxed(),
        ValueType::F32 => prop_oneof![
            any::<u32>().prop_map(f32::from_bits),
            any::<i16>().prop_map(|n| f32::from(n) / 10.0),
            prop::sample::select(vec![0.0, -0.0, f32::INFINITY, -f32::INFINITY, f32::NAN]),
        ]
        .prop_map(Value::F32)
        .boxed(),
        ValueType::F64 => prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            any::<i16>().prop_map(|n| f64::from(n) / 10.0),
            prop::sample::select(vec![0.0, -0.0, f64::INFINITY, -f64::INFINITY, f64::NAN]),
        ]
        .prop_map(Value::F64)
        .boxed(),
        ValueType::Char => any::<char>().prop_map(Value::Char).boxed(),
        ValueType::String => proptest::collection::vec(any::<char>(), 0..6)
            .prop_map(|chars| Value::String(chars.into_iter().collect()))
            .boxed(),
        ValueType::Handle(HandleKind::Object) => (any::<[u8; 20]>(), any::<[u8; 16]>())
            .prop_map(|(id, owner)| {
                Value::from(Handle::Object(ObjectName {
                    id: ObjectId::from_bytes(id),
                    owner: NodeId::from_bytes(owner),
                }))
            })
            .boxed(),
        ValueType::Handle(HandleKind::Actor) => (any::<[u8; 16]>(), any::<[u8; 16]>())
            .prop_map(|(id, owner)| {
                Value::from(Handle::Actor(ActorName {
                    id: ActorId::from_bytes(id),
                    owner: NodeId::from_bytes(owner),
                }))
            })
            .boxed(),
        ValueType::List(list) => {
            let kind = ty.buffer_kind();
            proptest::collection::vec(any_value(&list.element), 0..4)
                .prop_map(move |items| match kind {
                    None => Value::List(items),
                    Some(kind) => {
                        let mut list = NumberList::new(kind);
                        items.into_iter().for_each(|item| list.push(item).unwrap());
                        Value::Numbers(list)
                    }
                })
                .boxed()
        }
        ValueType::Option(option) => proptest::option::of(boxed(&option.some))
            .prop_map(Value::Option)
            .boxed(),
        ValueType::Result(result) => prop_oneof![
            maybe(result.ok.as_ref()).prop_map(|payload| Value::Result(Ok(payload))),
            maybe(result.err.as_ref()).prop_map(|payload| Value::Result(Err(payload))),
        ]
        .boxed(),
        ValueType::Record(record) => {
            let fields: Vec<_> = record.fields.iter().map(|(_, ty)| any_value(ty)).collect();
            fields.prop_map(Value::Record).boxed()
        }
        ValueType::Tuple(tuple) => {
            let items: Vec<_> = tuple.items.iter().map(any_value).collect();
            items.prop_map(Value::Tuple).boxed()
        }
        ValueType::Variant(variant) => {
            let cases: Vec<_> = variant
                .cases
                .iter()
                .map(|(_, ty)| maybe(ty.as_ref()))
                .collect();
            (0..cases.len())
                .prop_flat_map(move |case| {
                    let payload = cases[case].clone();
                    payload.prop_map(move |payload| Value::Variant(case as u32, payload))
                })
                .boxed()
        }
        ValueType::Enum(names) => (0..names.cases.len())
            .prop_map(|case| Value::Enum(case as u32))
            .boxed(),
        ValueType::Flags(names) => proptest::collection::vec(any::<bool>(), names.flags.len())
            .prop_map(Value::Flags)
            .boxed(),
    }
}
