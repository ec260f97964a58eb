//! How a [`ValueType`] is serialised: a flat table.
//!
//! Each row is one type whose parts are named by the numbers of earlier rows; equal types share a
//! row; the last row is the type itself. Reading the table needs no recursion, so bytes from
//! outside cannot exhaust the stack, and the type's constructors apply their limits row by row.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::types::{FunctionType, HandleKind, InvalidType, ValueType};

/// One type of the table. The order of the kinds is a wire layout (golden test).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Row {
    Bool,
    S8,
    U8,
    S16,
    U16,
    S32,
    U32,
    S64,
    U64,
    F32,
    F64,
    Char,
    String,
    List(u32),
    Option(u32),
    Result(Option<u32>, Option<u32>),
    Record(Vec<(String, u32)>),
    Tuple(Vec<u32>),
    Variant(Vec<(String, Option<u32>)>),
    Enum(Vec<String>),
    Flags(Vec<String>),
    Handle(HandleKind),
}

impl Serialize for ValueType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = Table::default();
        table.add(self);
        table.rows.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ValueType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        build(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A function's parameters and result, each a table of its own.
#[derive(Serialize, Deserialize)]
struct Function<'a> {
    params: Vec<(std::borrow::Cow<'a, str>, ValueType)>,
    result: Option<ValueType>,
}

impl Serialize for FunctionType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let params = self
            .params()
            .iter()
            .map(|(name, ty)| ((&**name).into(), ty.clone()));
        Function {
            params: params.collect(),
            result: self.result().cloned(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FunctionType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Function { params, result } = Function::deserialize(deserializer)?;
        FunctionType::new(params, result).map_err(serde::de::Error::custom)
    }
}

#[derive(Default)]
struct Table {
    rows: Vec<Row>,
    numbers: BTreeMap<Row, u32>,
}

impl Table {
    fn add(&mut self, ty: &ValueType) -> u32 {
        let row = match ty {
            ValueType::Bool => Row::Bool,
            ValueType::S8 => Row::S8,
            ValueType::U8 => Row::U8,
            ValueType::S16 => Row::S16,
            ValueType::U16 => Row::U16,
            ValueType::S32 => Row::S32,
            ValueType::U32 => Row::U32,
            ValueType::S64 => Row::S64,
            ValueType::U64 => Row::U64,
            ValueType::F32 => Row::F32,
            ValueType::F64 => Row::F64,
            ValueType::Char => Row::Char,
            ValueType::String => Row::String,
            ValueType::Handle(kind) => Row::Handle(*kind),
            ValueType::List(list) => Row::List(self.add(&list.element)),
            ValueType::Option(option) => Row::Option(self.add(&option.some)),
            ValueType::Result(result) => Row::Result(
                result.ok.as_ref().map(|ty| self.add(ty)),
                result.err.as_ref().map(|ty| self.add(ty)),
            ),
            ValueType::Record(record) => Row::Record(
                record
                    .fields
                    .iter()
                    .map(|(name, ty)| (name.to_string(), self.add(ty)))
                    .collect(),
            ),
            ValueType::Tuple(tuple) => {
                Row::Tuple(tuple.items.iter().map(|ty| self.add(ty)).collect())
            }
            ValueType::Variant(variant) => Row::Variant(
                variant
                    .cases
                    .iter()
                    .map(|(name, ty)| (name.to_string(), ty.as_ref().map(|ty| self.add(ty))))
                    .collect(),
            ),
            ValueType::Enum(names) => Row::Enum(strings(&names.cases)),
            ValueType::Flags(names) => Row::Flags(strings(&names.flags)),
        };
        if let Some(&number) = self.numbers.get(&row) {
            return number;
        }
        // TYPE_SIZE_MAX bounds the rows far below u32::MAX.
        let number = self.rows.len() as u32;
        self.rows.push(row.clone());
        self.numbers.insert(row, number);
        number
    }
}

fn build(rows: Vec<Row>) -> Result<ValueType, InvalidType> {
    let mut types: Vec<ValueType> = Vec::new();
    for row in rows {
        let at = |number: u32| {
            let why = "a part refers to a later row";
            types
                .get(number as usize)
                .cloned()
                .ok_or(InvalidType::Damaged { why })
        };
        let maybe = |number: Option<u32>| number.map(at).transpose();
        let ty = match row {
            Row::Bool => ValueType::Bool,
            Row::S8 => ValueType::S8,
            Row::U8 => ValueType::U8,
            Row::S16 => ValueType::S16,
            Row::U16 => ValueType::U16,
            Row::S32 => ValueType::S32,
            Row::U32 => ValueType::U32,
            Row::S64 => ValueType::S64,
            Row::U64 => ValueType::U64,
            Row::F32 => ValueType::F32,
            Row::F64 => ValueType::F64,
            Row::Char => ValueType::Char,
            Row::String => ValueType::String,
            Row::Handle(kind) => ValueType::Handle(kind),
            Row::List(element) => ValueType::list(at(element)?)?,
            Row::Option(some) => ValueType::option(at(some)?)?,
            Row::Result(ok, err) => ValueType::result(maybe(ok)?, maybe(err)?)?,
            Row::Record(fields) => ValueType::record(
                fields
                    .into_iter()
                    .map(|(name, ty)| Ok((name, at(ty)?)))
                    .collect::<Result<Vec<_>, _>>()?,
            )?,
            Row::Tuple(items) => {
                ValueType::tuple(items.into_iter().map(at).collect::<Result<Vec<_>, _>>()?)?
            }
            Row::Variant(cases) => ValueType::variant(
                cases
                    .into_iter()
                    .map(|(name, ty)| Ok((name, maybe(ty)?)))
                    .collect::<Result<Vec<_>, _>>()?,
            )?,
            Row::Enum(names) => ValueType::enumeration(names)?,
            Row::Flags(names) => ValueType::flags(names)?,
        };
        types.push(ty);
    }
    types.pop().ok_or(InvalidType::Damaged {
        why: "it has no rows",
    })
}

fn strings(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}
