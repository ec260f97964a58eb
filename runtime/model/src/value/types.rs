//! WIT types, independent of wasmtime: [`ValueType`] and [`FunctionType`].
//!
//! A type is cheap to clone (one `Arc`) and can only be built through the constructors below,
//! which refuse what the component model refuses (records, tuples, variants, enums and flags with
//! nothing in them, names that are not kebab-case, duplicates) and what is nested or spelled out too
//! far. Types are structural, as in the component model: a WIT type's own name is not kept.
//!
//! Of handles there are those of the runtime, which name an object or an actor. Other handles, futures,
//! streams, maps and fixed-length lists are not value types here.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::numbers::NumberKind;

/// How deep types may nest: a number is 1 deep, a list of numbers 2. Below the 100 levels that
/// WAVE's parser and the 128 that JSON's parser allow, so every value has all its text forms.
pub const TYPE_DEPTH_MAX: usize = 64;

/// How much a type may spell out, counting 1 for each part and the bytes of each name with every
/// use of a shared part counted anew: it bounds the work of a walk over the type.
pub const TYPE_SIZE_MAX: usize = 1 << 18;

/// The type of a value.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The plain kinds are WIT's own names.
pub enum ValueType {
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
    Handle(HandleKind),
    List(Shared<ListType>),
    Option(Shared<OptionType>),
    Result(Shared<ResultType>),
    Record(Shared<RecordType>),
    Tuple(Shared<TupleType>),
    Variant(Shared<VariantType>),
    Enum(Shared<EnumType>),
    Flags(Shared<FlagsType>),
}

/// What a handle stands for. As a value it is the name of that, [`super::Handle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandleKind {
    /// An object that is there or will be.
    Object,
    /// An actor.
    Actor,
}

/// `list<element>`.
#[derive(PartialEq, Eq)]
pub struct ListType {
    /// The type of each element.
    pub element: ValueType,
}

/// `option<some>`.
#[derive(PartialEq, Eq)]
pub struct OptionType {
    /// The type of the value if there is one.
    pub some: ValueType,
}

/// `result<ok, err>`; either side may have no payload.
#[derive(PartialEq, Eq)]
pub struct ResultType {
    /// The payload of `ok`.
    pub ok: Option<ValueType>,
    /// The payload of `err`.
    pub err: Option<ValueType>,
}

/// `record { x: u32, .. }`.
#[derive(PartialEq, Eq)]
pub struct RecordType {
    /// Names and types, in order; at least one.
    pub fields: Box<[(Arc<str>, ValueType)]>,
}

/// `tuple<u32, ..>`.
#[derive(PartialEq, Eq)]
pub struct TupleType {
    /// The types, in order; at least one.
    pub items: Box<[ValueType]>,
}

/// `variant { none, some(u32), .. }`.
#[derive(PartialEq, Eq)]
pub struct VariantType {
    /// Names and payloads, in order; at least one.
    pub cases: Box<[(Arc<str>, Option<ValueType>)]>,
}

/// `enum { a, b, .. }`.
#[derive(PartialEq, Eq)]
pub struct EnumType {
    /// Names, in order; at least one.
    pub cases: Box<[Arc<str>]>,
}

/// `flags { a, b, .. }`.
#[derive(PartialEq, Eq)]
pub struct FlagsType {
    /// Names, in order; at least one.
    pub flags: Box<[Arc<str>]>,
}

/// A part of a type that has been checked and measured; only this module can make one.
pub struct Shared<T>(Arc<Measured<T>>);

struct Measured<T> {
    measure: Measure,
    shape: T,
}

#[derive(Clone, Copy)]
struct Measure {
    depth: usize,
    size: usize,
}

/// Parameters and result of a function.
#[derive(Clone, PartialEq, Eq)]
pub struct FunctionType {
    params: Arc<[(Arc<str>, ValueType)]>,
    result: Option<ValueType>,
}

/// Why a type cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidType {
    /// Nested deeper than [`TYPE_DEPTH_MAX`].
    #[error(
        "the type nests deeper than {TYPE_DEPTH_MAX} levels; flatten it, or pass the inner part \
         as list<u8> in an encoding of your own"
    )]
    TooDeep,
    /// Larger than [`TYPE_SIZE_MAX`].
    #[error(
        "the type has more than {TYPE_SIZE_MAX} parts and bytes of names when written out in \
         full; use fewer or smaller record and variant types"
    )]
    TooLarge,
    /// A type with nothing in it, which WIT does not allow either.
    #[error("a {kind} needs at least one {part}; leave it out where there is nothing to say")]
    Empty {
        /// `record`, `tuple`, `variant`, `enum` or `flags`.
        kind: &'static str,
        /// What it would consist of.
        part: &'static str,
    },
    /// The same name twice.
    #[error("{kind} names {name:?} twice; give each {part} its own name")]
    DuplicateName {
        /// `record`, `variant`, `enum` or `flags`.
        kind: &'static str,
        /// What is named.
        part: &'static str,
        /// The name.
        name: String,
    },
    /// Not a WIT identifier.
    #[error(
        "{name:?} is not a WIT name; write words of ASCII letters and digits joined by '-', each \
         word in one case, the first one starting with a letter"
    )]
    BadName {
        /// The name, shortened if it is very long.
        name: String,
    },
    /// A row of a serialised type refers to a row that does not come before it, or there is none.
    #[error("the serialised type is damaged ({why}); send it again from its source")]
    Damaged {
        /// What is wrong.
        why: &'static str,
    },
}

impl ValueType {
    /// `list<element>`.
    pub fn list(element: ValueType) -> Result<Self, InvalidType> {
        let measure = Measure::of([&element])?;
        Ok(Self::List(Shared::new(measure, ListType { element })))
    }

    /// `option<some>`.
    pub fn option(some: ValueType) -> Result<Self, InvalidType> {
        let measure = Measure::of([&some])?;
        Ok(Self::Option(Shared::new(measure, OptionType { some })))
    }

    /// `result<ok, err>`.
    pub fn result(ok: Option<ValueType>, err: Option<ValueType>) -> Result<Self, InvalidType> {
        let measure = Measure::of(ok.iter().chain(&err))?;
        Ok(Self::Result(Shared::new(measure, ResultType { ok, err })))
    }

    /// `record { name: type, .. }`.
    pub fn record<N: Into<Arc<str>>>(
        fields: impl IntoIterator<Item = (N, ValueType)>,
    ) -> Result<Self, InvalidType> {
        let fields: Box<[_]> = fields
            .into_iter()
            .map(|(name, ty)| (name.into(), ty))
            .collect();
        let measure = Measure::of(fields.iter().map(|(_, ty)| ty))?
            .named("record", "field", fields.iter().map(|(name, _)| name))?
            .not_empty("record", "field", fields.len())?;
        Ok(Self::Record(Shared::new(measure, RecordType { fields })))
    }

    /// `tuple<type, ..>`.
    pub fn tuple(items: impl IntoIterator<Item = ValueType>) -> Result<Self, InvalidType> {
        let items: Box<[_]> = items.into_iter().collect();
        let measure = Measure::of(items.iter())?.not_empty("tuple", "item", items.len())?;
        Ok(Self::Tuple(Shared::new(measure, TupleType { items })))
    }

    /// `variant { name(type), name, .. }`.
    pub fn variant<N: Into<Arc<str>>>(
        cases: impl IntoIterator<Item = (N, Option<ValueType>)>,
    ) -> Result<Self, InvalidType> {
        let cases: Box<[_]> = cases
            .into_iter()
            .map(|(name, ty)| (name.into(), ty))
            .collect();
        let measure = Measure::of(cases.iter().filter_map(|(_, ty)| ty.as_ref()))?
            .named("variant", "case", cases.iter().map(|(name, _)| name))?
            .not_empty("variant", "case", cases.len())?;
        Ok(Self::Variant(Shared::new(measure, VariantType { cases })))
    }

    /// `enum { name, .. }`.
    pub fn enumeration<N: Into<Arc<str>>>(
        cases: impl IntoIterator<Item = N>,
    ) -> Result<Self, InvalidType> {
        let cases: Box<[Arc<str>]> = cases.into_iter().map(Into::into).collect();
        let measure = Measure::of([])?
            .named("enum", "case", cases.iter())?
            .not_empty("enum", "case", cases.len())?;
        Ok(Self::Enum(Shared::new(measure, EnumType { cases })))
    }

    /// `flags { name, .. }`.
    pub fn flags<N: Into<Arc<str>>>(
        flags: impl IntoIterator<Item = N>,
    ) -> Result<Self, InvalidType> {
        let flags: Box<[Arc<str>]> = flags.into_iter().map(Into::into).collect();
        let measure = Measure::of([])?
            .named("flags", "flag", flags.iter())?
            .not_empty("flags", "flag", flags.len())?;
        Ok(Self::Flags(Shared::new(measure, FlagsType { flags })))
    }

    /// The kind of number this is, if it is a fixed-width number.
    pub fn number_kind(&self) -> Option<NumberKind> {
        Some(match self {
            Self::U8 => NumberKind::U8,
            Self::S8 => NumberKind::S8,
            Self::U16 => NumberKind::U16,
            Self::S16 => NumberKind::S16,
            Self::U32 => NumberKind::U32,
            Self::S32 => NumberKind::S32,
            Self::U64 => NumberKind::U64,
            Self::S64 => NumberKind::S64,
            Self::F32 => NumberKind::F32,
            Self::F64 => NumberKind::F64,
            _ => return None,
        })
    }

    /// The element kind, if this is a list of fixed-width numbers. A value of such a type is held
    /// contiguously, and is a buffer object when it is a whole argument or result.
    pub fn buffer_kind(&self) -> Option<NumberKind> {
        match self {
            Self::List(list) => list.element.number_kind(),
            _ => None,
        }
    }

    /// Whether values of it can have handles in them.
    pub fn has_handles(&self) -> bool {
        let any = |ty: &Option<ValueType>| ty.as_ref().is_some_and(Self::has_handles);
        match self {
            Self::Handle(_) => true,
            Self::List(list) => list.element.has_handles(),
            Self::Option(option) => option.some.has_handles(),
            Self::Result(result) => any(&result.ok) || any(&result.err),
            Self::Record(record) => record.fields.iter().any(|(_, ty)| ty.has_handles()),
            Self::Tuple(tuple) => tuple.items.iter().any(Self::has_handles),
            Self::Variant(variant) => variant.cases.iter().any(|(_, ty)| any(ty)),
            _ => false,
        }
    }

    /// The type of the value where all went well: of a `result`, what its ok case holds.
    pub fn when_ok(&self) -> Option<&ValueType> {
        match self {
            Self::Result(result) => result.ok.as_ref(),
            ty => Some(ty),
        }
    }

    fn measure(&self) -> Measure {
        match self {
            Self::List(shape) => shape.0.measure,
            Self::Option(shape) => shape.0.measure,
            Self::Result(shape) => shape.0.measure,
            Self::Record(shape) => shape.0.measure,
            Self::Tuple(shape) => shape.0.measure,
            Self::Variant(shape) => shape.0.measure,
            Self::Enum(shape) => shape.0.measure,
            Self::Flags(shape) => shape.0.measure,
            _ => Measure { depth: 1, size: 1 },
        }
    }
}

impl FunctionType {
    /// `func(name: type, ..) -> result`.
    pub fn new<N: Into<Arc<str>>>(
        params: impl IntoIterator<Item = (N, ValueType)>,
        result: Option<ValueType>,
    ) -> Result<Self, InvalidType> {
        let params: Arc<[_]> = params
            .into_iter()
            .map(|(name, ty)| (name.into(), ty))
            .collect();
        Measure { depth: 0, size: 0 }
            .around(params.iter().map(|(_, ty)| ty).chain(&result))?
            .named("function", "parameter", params.iter().map(|(name, _)| name))?;
        Ok(Self { params, result })
    }

    /// Names and types of the parameters, in order.
    pub fn params(&self) -> &[(Arc<str>, ValueType)] {
        &self.params
    }

    /// What it returns, if anything.
    pub fn result(&self) -> Option<&ValueType> {
        self.result.as_ref()
    }

    /// Whether it can take or return handles.
    pub fn has_handles(&self) -> bool {
        let params = self.params.iter().map(|(_, ty)| ty);
        params.chain(&self.result).any(ValueType::has_handles)
    }
}

impl fmt::Display for ValueType {
    /// WIT syntax, with records and the like spelled out in place: `list<record { x: f32 }>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::S8 => f.write_str("s8"),
            Self::U8 => f.write_str("u8"),
            Self::S16 => f.write_str("s16"),
            Self::U16 => f.write_str("u16"),
            Self::S32 => f.write_str("s32"),
            Self::U32 => f.write_str("u32"),
            Self::S64 => f.write_str("s64"),
            Self::U64 => f.write_str("u64"),
            Self::F32 => f.write_str("f32"),
            Self::F64 => f.write_str("f64"),
            Self::Char => f.write_str("char"),
            Self::String => f.write_str("string"),
            Self::Handle(kind) => kind.fmt(f),
            Self::List(list) => write!(f, "list<{}>", list.element),
            Self::Option(option) => write!(f, "option<{}>", option.some),
            Self::Result(result) => match (&result.ok, &result.err) {
                (None, None) => f.write_str("result"),
                (Some(ok), None) => write!(f, "result<{ok}>"),
                (None, Some(err)) => write!(f, "result<_, {err}>"),
                (Some(ok), Some(err)) => write!(f, "result<{ok}, {err}>"),
            },
            Self::Record(record) => sequence(f, "record { ", " }", &record.fields, |f, field| {
                write!(f, "{}: {}", field.0, field.1)
            }),
            Self::Tuple(tuple) => sequence(f, "tuple<", ">", &tuple.items, |f, ty| ty.fmt(f)),
            Self::Variant(variant) => sequence(
                f,
                "variant { ",
                " }",
                &variant.cases,
                |f, (name, ty)| match ty {
                    None => f.write_str(name),
                    Some(ty) => write!(f, "{name}({ty})"),
                },
            ),
            Self::Enum(names) => sequence(f, "enum { ", " }", &names.cases, |f, name| {
                f.write_str(name)
            }),
            Self::Flags(names) => sequence(f, "flags { ", " }", &names.flags, |f, name| {
                f.write_str(name)
            }),
        }
    }
}

impl fmt::Display for HandleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "object",
            Self::Actor => "actor",
        })
    }
}

impl fmt::Debug for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for FunctionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for FunctionType {
    /// WIT syntax: `func(a: u32, b: string) -> bool`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        sequence(f, "func(", ")", self.params(), |f, (name, ty)| {
            write!(f, "{name}: {ty}")
        })?;
        match &self.result {
            None => Ok(()),
            Some(ty) => write!(f, " -> {ty}"),
        }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.shape
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.shape == other.0.shape
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T> Shared<T> {
    fn new(measure: Measure, shape: T) -> Self {
        Self(Arc::new(Measured { measure, shape }))
    }
}

impl Measure {
    /// The measure of a type around `parts`.
    fn of<'a>(parts: impl IntoIterator<Item = &'a ValueType>) -> Result<Self, InvalidType> {
        Self { depth: 1, size: 1 }.around(parts)
    }

    /// Makes this measure, of a type without its parts, one that has them.
    fn around<'a>(
        self,
        parts: impl IntoIterator<Item = &'a ValueType>,
    ) -> Result<Self, InvalidType> {
        let mut whole = self;
        for part in parts {
            let part = part.measure();
            whole.depth = whole.depth.max(self.depth + part.depth);
            whole = whole.grow(part.size)?;
        }
        if whole.depth > TYPE_DEPTH_MAX {
            return Err(InvalidType::TooDeep);
        }
        Ok(whole)
    }

    /// Adds the names of the parts, after checking them.
    fn named<'a>(
        mut self,
        kind: &'static str,
        part: &'static str,
        names: impl Iterator<Item = &'a Arc<str>>,
    ) -> Result<Self, InvalidType> {
        let mut seen = BTreeSet::new();
        for name in names {
            if !is_kebab_case(name) {
                return Err(InvalidType::BadName {
                    name: super::path::clip(name, 60),
                });
            }
            if !seen.insert(&**name) {
                return Err(InvalidType::DuplicateName {
                    kind,
                    part,
                    name: name.to_string(),
                });
            }
            self = self.grow(1 + name.len())?;
        }
        Ok(self)
    }

    fn not_empty(
        self,
        kind: &'static str,
        part: &'static str,
        count: usize,
    ) -> Result<Self, InvalidType> {
        if count == 0 {
            Err(InvalidType::Empty { kind, part })
        } else {
            Ok(self)
        }
    }

    fn grow(mut self, by: usize) -> Result<Self, InvalidType> {
        self.size += by;
        if self.size > TYPE_SIZE_MAX {
            Err(InvalidType::TooLarge)
        } else {
            Ok(self)
        }
    }
}

/// Words of one case joined by `-`, the first starting with a letter: the component model's labels,
/// and exactly what WAVE can read back.
fn is_kebab_case(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.split('-').all(|word| {
            let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            let upper = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit();
            !word.is_empty() && (word.bytes().all(lower) || word.bytes().all(upper))
        })
}

fn sequence<T>(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    close: &str,
    items: &[T],
    mut each: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_str(open)?;
    for (index, item) in items.iter().enumerate() {
        if index != 0 {
            f.write_str(", ")?;
        }
        each(f, item)?;
    }
    f.write_str(close)
}
