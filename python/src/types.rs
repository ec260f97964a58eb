//! Types as Python sees them.
//!
//! Owns [`PyType`]: a WIT type with the Python classes of its records, variants, enums and flags, which are made once for
//! each type that a module names. Must not: convert values.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use wasmrun_model::value::{HandleKind, NumberKind, ValueType};
use wit_parser::{Resolve, Type, TypeDefKind, TypeId, TypeOwner};

/// A type, and the classes of its values.
pub(crate) enum PyType {
    Bool,
    Integer(ValueType),
    F32,
    F64,
    Char,
    String,
    Handle(HandleKind),
    Numbers(NumberKind),
    List(Arc<PyType>),
    Option(Arc<PyType>),
    Result(Option<Arc<PyType>>, Option<Arc<PyType>>),
    Record(Record),
    Tuple(Vec<Arc<PyType>>),
    Variant(Variant),
    Enum(Enum),
    Flags(Enum),
}

/// A frozen dataclass.
pub(crate) struct Record {
    pub(crate) class: Py<PyAny>,
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
}

pub(crate) struct Field {
    /// As Python has it.
    pub(crate) name: Py<PyString>,
    pub(crate) ty: Arc<PyType>,
}

/// A class with one of its own for each case.
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) cases: Vec<Case>,
}

pub(crate) struct Case {
    pub(crate) class: Py<PyAny>,
    pub(crate) payload: Option<Arc<PyType>>,
}

/// An `enum.Enum` or `enum.Flag`, and its members in the type's order.
pub(crate) struct Enum {
    pub(crate) class: Py<PyAny>,
    pub(crate) name: String,
    pub(crate) members: Vec<Py<PyAny>>,
    /// Their names, as WIT has them.
    pub(crate) names: Vec<Arc<str>>,
}

impl PyType {
    /// How a type checker writes it: what is given, or what is got.
    pub(crate) fn hint(&self, is_given: bool) -> String {
        match self {
            Self::Bool => "bool".into(),
            Self::Integer(_) => "int".into(),
            Self::F32 | Self::F64 => "float".into(),
            Self::Char | Self::String => "str".into(),
            Self::Handle(HandleKind::Object) => "ObjectRef[Any]".into(),
            Self::Handle(HandleKind::Actor) => "ActorHandle".into(),
            Self::Numbers(NumberKind::U8) if is_given => "Buffer".into(),
            Self::Numbers(NumberKind::U8) => "bytes".into(),
            Self::Numbers(kind) if is_given => {
                let is_float = matches!(kind, NumberKind::F32 | NumberKind::F64);
                let item = if is_float { "float" } else { "int" };
                format!("Buffer | Sequence[{item}]")
            }
            Self::Numbers(_) => "Numbers".into(),
            Self::List(item) if is_given => format!("Sequence[{}]", item.hint(true)),
            Self::List(item) => format!("list[{}]", item.hint(false)),
            Self::Option(some) if matches!(**some, Self::Option(_)) => {
                format!("Some[{}] | None", some.hint(is_given))
            }
            Self::Option(some) => format!("{} | None", some.hint(is_given)),
            Self::Result(ok, err) => {
                let hint = |ty: &Option<Arc<Self>>| {
                    ty.as_ref()
                        .map_or("None".to_owned(), |ty| ty.hint(is_given))
                };
                format!("Ok[{}] | Err[{}]", hint(ok), hint(err))
            }
            Self::Record(record) => record.name.clone(),
            Self::Variant(variant) => variant.name.clone(),
            Self::Enum(it) | Self::Flags(it) => it.name.clone(),
            Self::Tuple(items) => {
                let items: Vec<_> = items.iter().map(|it| it.hint(is_given)).collect();
                format!("tuple[{}]", items.join(", "))
            }
        }
    }
}

/// The types of one module that have classes.
#[derive(Default)]
pub(crate) struct Made {
    named: HashMap<TypeId, Arc<PyType>>,
    unnamed: Vec<(ValueType, Arc<PyType>)>,
}

/// Makes the types of one module.
pub(crate) struct Maker<'a, 'py> {
    py: Python<'py>,
    resolve: Option<&'a Resolve>,
    /// `(kind, scope, name, members, docs)` to a class and what belongs to it.
    factory: &'a Bound<'py, PyAny>,
    made: &'a mut Made,
}

impl<'a, 'py> Maker<'a, 'py> {
    pub(crate) fn new(
        resolve: Option<&'a Resolve>,
        factory: &'a Bound<'py, PyAny>,
        made: &'a mut Made,
    ) -> Self {
        Self {
            py: factory.py(),
            resolve,
            factory,
            made,
        }
    }

    /// The type behind aliases, and the name that it was given there.
    fn definition(&self, wit: Option<Type>) -> Option<(TypeId, &'a wit_parser::TypeDef)> {
        let Some(Type::Id(mut id)) = wit else {
            return None;
        };
        let resolve = self.resolve?;
        while let TypeDefKind::Type(Type::Id(behind)) = &resolve.types[id].kind {
            id = *behind;
        }
        Some((id, &resolve.types[id]))
    }

    /// The type of a value. `near` is what an unnamed one is called after.
    pub(crate) fn make(
        &mut self,
        ty: &ValueType,
        wit: Option<Type>,
        near: &str,
    ) -> PyResult<Arc<PyType>> {
        let definition = self.definition(wit);
        if let Some((id, _)) = definition
            && let Some(made) = self.made.named.get(&id)
        {
            return Ok(made.clone());
        }
        let is_class = matches!(
            ty,
            ValueType::Record(_) | ValueType::Variant(_) | ValueType::Enum(_) | ValueType::Flags(_)
        );
        if definition.is_none()
            && is_class
            && let Some((_, made)) = self.made.unnamed.iter().find(|(it, _)| it == ty)
        {
            return Ok(made.clone());
        }
        let made = Arc::new(self.make_new(ty, definition.map(|(_, it)| it), near)?);
        match definition {
            Some((id, _)) if is_class => {
                self.made.named.insert(id, made.clone());
            }
            None if is_class => self.made.unnamed.push((ty.clone(), made.clone())),
            _ => {}
        }
        Ok(made)
    }

    fn make_new(
        &mut self,
        ty: &ValueType,
        definition: Option<&'a wit_parser::TypeDef>,
        near: &str,
    ) -> PyResult<PyType> {
        let kind = definition.map(|it| &it.kind);
        let called = definition.and_then(|it| it.name.as_deref());
        let scope = definition.and_then(|it| match (self.resolve, it.owner) {
            (Some(resolve), TypeOwner::Interface(id)) => resolve.interfaces[id].name.as_deref(),
            _ => None,
        });
        let name = called.unwrap_or(near);
        let docs = definition.and_then(|it| it.docs.contents.as_deref());
        Ok(match ty {
            ValueType::Bool => PyType::Bool,
            ValueType::S8
            | ValueType::U8
            | ValueType::S16
            | ValueType::U16
            | ValueType::S32
            | ValueType::U32
            | ValueType::S64
            | ValueType::U64 => PyType::Integer(ty.clone()),
            ValueType::F32 => PyType::F32,
            ValueType::F64 => PyType::F64,
            ValueType::Char => PyType::Char,
            ValueType::String => PyType::String,
            ValueType::Handle(kind) => PyType::Handle(*kind),
            ValueType::List(list) => match ty.buffer_kind() {
                Some(kind) => PyType::Numbers(kind),
                None => {
                    let item = match kind {
                        Some(TypeDefKind::List(item)) => Some(*item),
                        _ => None,
                    };
                    PyType::List(self.make(&list.element, item, near)?)
                }
            },
            ValueType::Option(option) => {
                let some = match kind {
                    Some(TypeDefKind::Option(some)) => Some(*some),
                    _ => None,
                };
                PyType::Option(self.make(&option.some, some, near)?)
            }
            ValueType::Result(result) => {
                let (ok, err) = match kind {
                    Some(TypeDefKind::Result(it)) => (it.ok, it.err),
                    _ => (None, None),
                };
                let mut side = |ty: &Option<ValueType>, wit| {
                    let ty = ty.as_ref();
                    ty.map(|ty| self.make(ty, wit, near)).transpose()
                };
                PyType::Result(side(&result.ok, ok)?, side(&result.err, err)?)
            }
            ValueType::Tuple(tuple) => {
                let wit = match kind {
                    Some(TypeDefKind::Tuple(it)) => Some(&it.types),
                    _ => None,
                };
                let items = tuple.items.iter().enumerate();
                let items = items.map(|(at, item)| {
                    let wit = wit.and_then(|it| it.get(at).copied());
                    self.make(item, wit, near)
                });
                PyType::Tuple(items.collect::<PyResult<_>>()?)
            }
            ValueType::Record(record) => {
                let wit = match kind {
                    Some(TypeDefKind::Record(it)) => Some(&it.fields),
                    _ => None,
                };
                let mut fields = Vec::new();
                let members = PyList::empty(self.py);
                for (at, (field, ty)) in record.fields.iter().enumerate() {
                    let wit = wit.and_then(|it| it.get(at));
                    let near = format!("{name}-{field}");
                    let ty = self.make(ty, wit.map(|it| it.ty), &near)?;
                    let docs = wit.and_then(|it| it.docs.contents.as_deref());
                    members.append((&**field, ty.hint(false), ty.is_optional(), docs))?;
                    fields.push(ty);
                }
                let (class, names, name) = self.class("record", scope, name, members, docs)?;
                let fields = names.into_iter().zip(fields).map(|(name, ty)| {
                    let name = name.bind(self.py).cast::<PyString>()?.clone().unbind();
                    Ok(Field { name, ty })
                });
                PyType::Record(Record {
                    class,
                    name,
                    fields: fields.collect::<PyResult<_>>()?,
                })
            }
            ValueType::Variant(variant) => {
                let wit = match kind {
                    Some(TypeDefKind::Variant(it)) => Some(&it.cases),
                    _ => None,
                };
                let mut payloads = Vec::new();
                let members = PyList::empty(self.py);
                for (at, (case, payload)) in variant.cases.iter().enumerate() {
                    let wit = wit.and_then(|it| it.get(at));
                    let near = format!("{name}-{case}");
                    let payload = payload.as_ref();
                    let payload = payload.map(|ty| self.make(ty, wit.and_then(|it| it.ty), &near));
                    let payload = payload.transpose()?;
                    let docs = wit.and_then(|it| it.docs.contents.as_deref());
                    let hint = payload.as_ref().map(|ty| ty.hint(false));
                    members.append((&**case, hint, false, docs))?;
                    payloads.push(payload);
                }
                let (_, classes, name) = self.class("variant", scope, name, members, docs)?;
                let cases = classes.into_iter().zip(payloads);
                let cases = cases.map(|(class, payload)| Case { class, payload });
                PyType::Variant(Variant {
                    name,
                    cases: cases.collect(),
                })
            }
            ValueType::Enum(it) => PyType::Enum(self.named("enum", scope, name, &it.cases, docs)?),
            ValueType::Flags(it) => {
                PyType::Flags(self.named("flags", scope, name, &it.flags, docs)?)
            }
        })
    }

    fn named(
        &self,
        kind: &str,
        scope: Option<&str>,
        name: &str,
        names: &[Arc<str>],
        docs: Option<&str>,
    ) -> PyResult<Enum> {
        let members = PyList::empty(self.py);
        for name in names {
            members.append((&**name, None::<String>, false, None::<String>))?;
        }
        let (class, members, name) = self.class(kind, scope, name, members, docs)?;
        Ok(Enum {
            class,
            name,
            members,
            names: names.to_vec(),
        })
    }

    /// A class, what belongs to it (fields' names, cases' classes, members), and what it is called.
    fn class(
        &self,
        kind: &str,
        scope: Option<&str>,
        name: &str,
        members: Bound<'py, PyList>,
        docs: Option<&str>,
    ) -> PyResult<(Py<PyAny>, Vec<Py<PyAny>>, String)> {
        let made = self.factory.call1((kind, scope, name, members, docs))?;
        let made = made.cast::<PyTuple>()?;
        let class = made.get_item(0)?;
        let name = class.getattr("__qualname__")?.extract()?;
        let parts = made.get_item(1)?.extract()?;
        Ok((class.unbind(), parts, name))
    }
}

impl PyType {
    fn is_optional(&self) -> bool {
        matches!(self, Self::Option(_))
    }
}
