//! What a module says in its own WIT: names of types and documentation, which the node does not need.
//!
//! Owns [`Names`], with the Python classes that were made of those types. Must not: call anything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyString;
use wasmrun_model::value::ValueType;
use wit_parser::{Function, FunctionKind, InterfaceId, Resolve, TypeId, WorldId, WorldItem};

use crate::module::{Methods, Signature};
use crate::types::{Made, Maker, PyType};

/// A name of WIT as one of Python.
pub(crate) fn python_name(py: Python<'_>, name: &str) -> PyResult<Py<PyString>> {
    let make = py.import("wasmrun._values")?.getattr("identifier")?;
    Ok(make.call1((name,))?.cast_into::<PyString>()?.unbind())
}

/// The names that a module has for its types, and the classes that were made of those.
pub(crate) struct Names {
    /// Makes the classes.
    factory: Py<PyAny>,
    decoded: Option<(Resolve, WorldId)>,
    made: Mutex<Made>,
}

impl Names {
    pub(crate) fn of(bytes: &[u8], factory: Py<PyAny>) -> Arc<Self> {
        // A core module says nothing, and its types have no names then.
        let decoded = match wit_component::decode(bytes) {
            Ok(wit_component::DecodedWasm::Component(resolve, world)) => Some((resolve, world)),
            _ => None,
        };
        Arc::new(Self {
            factory,
            decoded,
            made: Mutex::default(),
        })
    }

    /// Of something of which nothing is known.
    pub(crate) fn unknown(factory: Py<PyAny>) -> Self {
        Self {
            factory,
            decoded: None,
            made: Mutex::default(),
        }
    }

    pub(crate) fn described(&self) -> Option<Described<'_>> {
        let (resolve, world) = self.decoded.as_ref()?;
        Some(Described::of(resolve, *world))
    }

    /// The classes that were made. To make one runs Python, which may let another thread go on that wants them, too: that
    /// one lets the interpreter go while it waits.
    pub(crate) fn made(&self, py: Python<'_>) -> MutexGuard<'_, Made> {
        let made = self.made.lock_py_attached(py);
        made.unwrap_or_else(|it| it.into_inner())
    }

    /// The methods of an actor, by the names that Python has for them.
    pub(crate) fn methods(
        &self,
        py: Python<'_>,
        actor: &wasmrun_client::Actor,
    ) -> PyResult<Methods> {
        let factory = self.factory.bind(py);
        let described = self.described();
        let mut made = self.made(py);
        let resolve = described.as_ref().map(|it| it.resolve);
        let mut maker = Maker::new(resolve, factory, &mut made);
        let mut methods = BTreeMap::new();
        for (name, ty) in actor.methods() {
            let wit = described.as_ref();
            let wit = wit.and_then(|it| it.method(actor.class(), Some(name)));
            let signature = Signature::new(py, &mut maker, name, ty, wit, true)?;
            let name = python_name(py, name)?.extract(py)?;
            methods.insert(name, signature);
        }
        Ok(Arc::new(methods))
    }
}

/// What the text of a module says besides what the node needs: names of types, and documentation.
pub(crate) struct Described<'a> {
    pub(crate) resolve: &'a Resolve,
    functions: BTreeMap<String, &'a Function>,
    /// Methods by class and name; a constructor has no name.
    methods: BTreeMap<(String, String), &'a Function>,
    docs: BTreeMap<String, &'a str>,
}

impl<'a> Described<'a> {
    fn of(resolve: &'a Resolve, world: WorldId) -> Self {
        let mut described = Self {
            resolve,
            functions: BTreeMap::new(),
            methods: BTreeMap::new(),
            docs: BTreeMap::new(),
        };
        for (key, item) in &resolve.worlds[world].exports {
            match item {
                WorldItem::Function(function) => {
                    described.functions.insert(function.name.clone(), function);
                }
                WorldItem::Interface { id, .. } => {
                    let name = resolve.name_world_key(key);
                    described.interface(&name, *id);
                }
                WorldItem::Type { .. } => {}
            }
        }
        described
    }

    pub(crate) fn function(&self, name: &str) -> Option<&'a Function> {
        self.functions.get(name).copied()
    }

    /// A method of a class, or its constructor.
    pub(crate) fn method(&self, class: &str, method: Option<&str>) -> Option<&'a Function> {
        let key = (class.to_owned(), method.unwrap_or_default().to_owned());
        self.methods.get(&key).copied()
    }

    pub(crate) fn docs(&self, class: &str) -> Option<&'a str> {
        self.docs.get(class).copied()
    }

    fn interface(&mut self, name: &str, id: InterfaceId) {
        let interface = &self.resolve.interfaces[id];
        let class = |id: TypeId| {
            let class = self.resolve.types[id].name.as_deref().unwrap_or_default();
            format!("{name}#{class}")
        };
        for function in interface.functions.values() {
            match function.kind {
                FunctionKind::Freestanding | FunctionKind::AsyncFreestanding => {
                    let full = format!("{name}#{}", function.name);
                    self.functions.insert(full, function);
                }
                FunctionKind::Constructor(id) => {
                    self.methods.insert((class(id), String::new()), function);
                }
                FunctionKind::Method(id) | FunctionKind::AsyncMethod(id) => {
                    let method = function.name.rsplit('.').next().unwrap_or_default();
                    self.methods.insert((class(id), method.into()), function);
                }
                FunctionKind::Static(_) | FunctionKind::AsyncStatic(_) => {}
            }
        }
        for id in interface.types.values() {
            if let Some(docs) = &self.resolve.types[*id].docs.contents {
                self.docs.insert(class(*id), docs);
            }
        }
    }
}

/// What a type is for a value of which nothing else is known.
pub(crate) fn unnamed(factory: &Bound<'_, PyAny>, ty: &ValueType) -> PyResult<Arc<PyType>> {
    Maker::new(None, factory, &mut Made::default()).make(ty, None, "value")
}
