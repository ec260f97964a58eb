//! What a module exports, to be called.
//!
//! Owns [`Module`], [`Callable`], [`Class`] and [`Method`], and how arguments become those of a call. Must not: choose names
//! for Python: that is `wasmrun/_module.py`.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple};
use wasmrun_client::wire::{self, Terms};
use wasmrun_client::{Argument, CallOptions, CreateActor, Handles, Submit};
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{FunctionType, ValueType};
use wit_parser::{Function, FunctionKind, InterfaceId, Resolve, TypeId, WorldId, WorldItem};

use crate::convert::{self, Fault};
use crate::failure;
use crate::queue::{Command, Given, Slot, What};
use crate::refs::{Actor, Expected, Ref, Typed};
use crate::session::Shared;
use crate::types::{Made, Maker};

/// A function, method or constructor.
pub(crate) struct Signature {
    /// As the node knows it.
    pub(crate) name: Arc<str>,
    /// What Python calls it.
    short: String,
    docs: Option<String>,
    names: Vec<Py<PyString>>,
    params: Vec<Typed>,
    result: Expected,
}

impl Signature {
    /// `wit` is what the module says of it, besides the types.
    pub(crate) fn new(
        py: Python<'_>,
        maker: &mut Maker<'_, '_>,
        name: &str,
        ty: &FunctionType,
        wit: Option<&Function>,
        is_method: bool,
    ) -> PyResult<Arc<Self>> {
        let short = name.rsplit(['#', '.']).next().unwrap_or(name).to_owned();
        let skipped = usize::from(is_method);
        let (mut names, mut params) = (Vec::new(), Vec::new());
        for (at, (param, ty)) in ty.params().iter().enumerate() {
            let wit = wit.and_then(|it| it.params.get(at + skipped));
            let typed = Typed {
                ty: ty.clone(),
                py: maker.make(ty, wit.map(|it| it.ty), &format!("{short}-{param}"))?,
            };
            names.push(python_name(py, param)?);
            params.push(typed);
        }
        let result = match ty.result() {
            None => Expected::Nothing,
            Some(ty) => {
                let wit = wit.and_then(|it| it.result);
                let py = maker.make(ty, wit, &format!("{short}-result"))?;
                Expected::Value(Arc::new(Typed { ty: ty.clone(), py }))
            }
        };
        Ok(Arc::new(Self {
            name: name.into(),
            short,
            docs: wit.and_then(|it| it.docs.contents.clone()),
            names,
            params,
            result,
        }))
    }

    /// The arguments of a call.
    fn arguments(
        &self,
        shared: &Arc<Shared>,
        given: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Given>> {
        let py = given.py();
        let function = python_text(&self.short);
        let given = convert::bind(&function, &self.names, given, keywords)?;
        let mut values = Vec::with_capacity(given.len());
        for ((given, param), name) in given.iter().zip(&self.params).zip(&self.names) {
            let value = self.argument(shared, given, param);
            values.push(value.map_err(|fault| {
                fault.raised(py, &format!("{function}() argument {}", name.bind(py)))
            })?);
        }
        Ok(values)
    }

    fn argument(
        &self,
        shared: &Arc<Shared>,
        given: &Bound<'_, PyAny>,
        param: &Typed,
    ) -> Result<Given, Fault> {
        // Whether the parameter takes what it makes, or is the object itself.
        if let Ok(object) = given.cast::<Ref>() {
            let object = object.get();
            if !Arc::ptr_eq(&object.shared, shared) {
                return Err(Fault::text(
                    "it is an object of another session: get its value, or use one session",
                ));
            }
            return Ok(Given::Made(object.slot.clone()));
        }
        let mut handles = Handles::default();
        let value = convert::to_value(&param.py, given, &mut handles)?;
        let argument = match param.ty.has_handles() {
            true => handles.encode(&param.ty, &value),
            false => encode(&param.ty, &value).map(Argument::Value),
        };
        let argument = argument.map_err(|error| Fault::text(error.to_string()))?;
        Ok(Given::Value(argument))
    }

    /// `(name, how it is given, whether it may be left out)` of each parameter, and what it gives.
    fn described(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let params = self.names.iter().zip(&self.params);
        let params: Vec<_> = params
            .map(|(name, it)| (name.clone_ref(py), it.py.hint(true)))
            .collect();
        let result = match &self.result {
            Expected::Value(typed) => {
                // An error is raised.
                match &*typed.py {
                    crate::types::PyType::Result(ok, _) => {
                        ok.as_ref().map_or("None".into(), |ok| ok.hint(false))
                    }
                    other => other.hint(false),
                }
            }
            Expected::Nothing => "None".to_owned(),
            Expected::Unknown => "Any".to_owned(),
        };
        let described = (params, result, self.docs.clone());
        Ok(described.into_pyobject(py)?.into_any().unbind())
    }
}

/// A name of WIT as one of Python.
fn python_text(name: &str) -> String {
    name.replace('-', "_")
}

fn python_name(py: Python<'_>, name: &str) -> PyResult<Py<PyString>> {
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
    fn of(bytes: &[u8], factory: Py<PyAny>) -> Arc<Self> {
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

    fn described(&self) -> Option<Described<'_>> {
        let (resolve, world) = self.decoded.as_ref()?;
        Some(Described::of(resolve, *world))
    }

    /// The methods of an actor, by the names that Python has for them.
    pub(crate) fn methods(
        &self,
        py: Python<'_>,
        actor: &wasmrun_client::Actor,
    ) -> PyResult<Methods> {
        let factory = self.factory.bind(py);
        let described = self.described();
        let mut made = self.made.lock();
        let resolve = described.as_ref().map(|it| it.resolve);
        let mut maker = Maker::new(resolve, factory, &mut made);
        let mut methods = BTreeMap::new();
        for (name, ty) in actor.methods() {
            let key = (actor.class().to_owned(), name.to_owned());
            let wit = described.as_ref().and_then(|it| it.methods.get(&key));
            let signature = Signature::new(py, &mut maker, name, ty, wit.copied(), true)?;
            let name = python_name(py, name)?.extract(py)?;
            methods.insert(name, signature);
        }
        Ok(Arc::new(methods))
    }
}

/// What the text of a module says besides what the node needs: names of types, and documentation.
struct Described<'a> {
    resolve: &'a Resolve,
    functions: BTreeMap<String, &'a Function>,
    /// Methods of a class, and its constructor by the name of the class.
    methods: BTreeMap<(String, String), &'a Function>,
    docs: BTreeMap<String, &'a str>,
}

impl<'a> Described<'a> {
    fn of(resolve: &'a Resolve, world: wit_parser::WorldId) -> Self {
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

/// A module that the node has.
#[pyclass(frozen, module = "wasmrun._wasmrun")]
pub(crate) struct Module {
    #[pyo3(get)]
    digest: String,
    #[pyo3(get)]
    has_program: bool,
    functions: Vec<Py<Callable>>,
    classes: Vec<Py<Class>>,
}

impl Module {
    /// `factory` makes the classes of values.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        module: &wire::Module,
        bytes: &[u8],
        factory: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let py = factory.py();
        let names = Names::of(bytes, factory.clone().unbind());
        let described = names.described();
        let mut made = names.made.lock();
        let resolve = described.as_ref().map(|it| it.resolve);
        let mut maker = Maker::new(resolve, factory, &mut made);
        let mut functions = Vec::new();
        for (name, ty) in &module.functions {
            let wit = described.as_ref().and_then(|it| it.functions.get(name));
            let signature = Signature::new(py, &mut maker, name, ty, wit.copied(), false)?;
            let wire = wire::Submit {
                module: module.digest,
                entry: wire::Entry::Function(name.clone()),
                name: String::new(),
                values: Vec::new(),
                args: Vec::new(),
                array_index: None,
                terms: Terms::default(),
                limits: wire::Limits::default(),
                grants: wire::Grants::default(),
                input: wire::Input::Empty,
                is_watched: false,
                is_detached: false,
            };
            let callable = Callable {
                shared: shared.clone(),
                submit: Arc::new(Submit::of(wire.clone())),
                wire,
                signature,
            };
            functions.push(Py::new(py, callable)?);
        }
        let mut classes = Vec::new();
        for (name, ty) in &module.classes {
            let method = |method: &str| {
                let key = (name.clone(), method.to_owned());
                described
                    .as_ref()
                    .and_then(|it| it.methods.get(&key))
                    .copied()
            };
            let signature = Signature::new(py, &mut maker, name, ty, method(""), false)?;
            let docs = described.as_ref().and_then(|it| it.docs.get(name));
            let class = Class {
                shared: shared.clone(),
                create: CreateActor::new(module, name, Vec::new()),
                docs: docs.map(ToString::to_string),
                signature,
                names: names.clone(),
                methods: Arc::default(),
            };
            classes.push(Py::new(py, class)?);
        }
        Ok(Self {
            digest: module.digest.to_string(),
            has_program: module.has_program,
            functions,
            classes,
        })
    }
}

#[pymethods]
impl Module {
    fn functions(&self, py: Python<'_>) -> Vec<Py<Callable>> {
        self.functions.iter().map(|it| it.clone_ref(py)).collect()
    }

    fn classes(&self, py: Python<'_>) -> Vec<Py<Class>> {
        self.classes.iter().map(|it| it.clone_ref(py)).collect()
    }
}

/// A function of a module, with what is asked for it.
#[pyclass(frozen, module = "wasmrun._wasmrun")]
pub(crate) struct Callable {
    shared: Arc<Shared>,
    signature: Arc<Signature>,
    wire: wire::Submit,
    submit: Arc<Submit>,
}

#[pymethods]
impl Callable {
    #[getter]
    fn full_name(&self) -> &str {
        &self.signature.name
    }

    fn described(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.signature.described(py)
    }

    /// Calls it in a sandbox of its own.
    #[pyo3(signature = (*args, **kwargs))]
    fn remote(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Ref> {
        self.shared.check()?;
        let values = self.signature.arguments(&self.shared, args, kwargs)?;
        let slot = Arc::new(Slot::default());
        self.shared.queue.push(Command {
            what: What::Task(self.submit.clone()),
            values,
            slot: slot.clone(),
        });
        Ok(Ref {
            shared: self.shared.clone(),
            slot,
            expected: self.signature.result.clone(),
            name: self.signature.name.clone(),
        })
    }

    /// The same function, with these options besides those that it has.
    fn with_options(&self, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut wire = self.wire.clone();
        for (name, value) in options.iter() {
            let name: String = name.extract()?;
            let is_known = match &name[..] {
                "name" => {
                    wire.name = value.extract()?;
                    true
                }
                "retries" => {
                    wire.terms.retries = Some(value.extract()?);
                    true
                }
                "retry_on_error" => {
                    wire.terms.retry_on_error = Some(value.extract()?);
                    true
                }
                other => common(
                    other,
                    &value,
                    &mut wire.terms,
                    &mut wire.limits,
                    &mut wire.grants,
                )?,
            };
            if !is_known {
                return Err(unknown(
                    &name,
                    "cpus, gpus, memory, resources, retries, retry_on_error, time_limit, strategy, labels, name, \
                     priority, env",
                ));
            }
        }
        Ok(Self {
            shared: self.shared.clone(),
            signature: self.signature.clone(),
            submit: Arc::new(Submit::of(wire.clone())),
            wire,
        })
    }
}

/// A class of a module, with what is asked for its actors.
#[pyclass(frozen, module = "wasmrun._wasmrun")]
pub(crate) struct Class {
    shared: Arc<Shared>,
    signature: Arc<Signature>,
    create: CreateActor,
    docs: Option<String>,
    names: Arc<Names>,
    /// Those of its actors, once there was one.
    methods: Arc<OnceLock<Methods>>,
}

pub(crate) type Methods = Arc<BTreeMap<String, Arc<Signature>>>;

#[pymethods]
impl Class {
    #[getter]
    fn full_name(&self) -> &str {
        &self.signature.name
    }

    #[getter]
    fn docs(&self) -> Option<&str> {
        self.docs.as_deref()
    }

    fn described(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.signature.described(py)
    }

    /// Creates an actor.
    #[pyo3(signature = (*args, **kwargs))]
    fn remote(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Actor> {
        let py = args.py();
        self.shared.check()?;
        let given = self.signature.arguments(&self.shared, args, kwargs)?;
        let (client, mut create) = (self.shared.client(), self.create.clone());
        let created = self.shared.wait(py, async move {
            for value in given {
                create.values.push(match value {
                    Given::Value(value) => value,
                    Given::Made(slot) => slot.future().await?.into(),
                });
            }
            client.create_actor(create).await.map_err(Arc::new)
        })?;
        let actor = created.map_err(|error| failure::of_request(py, &error))?;
        let methods = match self.methods.get() {
            Some(methods) => methods.clone(),
            None => {
                let methods = self.names.methods(py, &actor)?;
                // Another one is the same.
                let _ = self.methods.set(methods.clone());
                methods
            }
        };
        Ok(Actor {
            shared: self.shared.clone(),
            actor,
            methods,
        })
    }

    /// The same class, with these options besides those that it has.
    fn with_options(&self, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut create = self.create.clone();
        let wire = &mut create.wire;
        for (name, value) in options.iter() {
            let name: String = name.extract()?;
            let is_known = match &name[..] {
                "name" => {
                    wire.name = value.extract()?;
                    true
                }
                "detached" => {
                    wire.is_detached = value.extract()?;
                    true
                }
                "restarts" => {
                    wire.wishes.restarts = Some(value.extract()?);
                    true
                }
                "call_retries" => {
                    wire.wishes.call_retries = Some(value.extract()?);
                    true
                }
                other => common(
                    other,
                    &value,
                    &mut wire.terms,
                    &mut wire.limits,
                    &mut wire.grants,
                )?,
            };
            if !is_known {
                return Err(unknown(
                    &name,
                    "cpus, gpus, memory, resources, restarts, call_retries, time_limit, strategy, labels, name, detached, \
                     priority, env",
                ));
            }
        }
        if create.wire.is_detached && create.wire.name.is_none() {
            return Err(PyValueError::new_err(
                "a detached actor needs a name, by which others find it",
            ));
        }
        Ok(Self {
            shared: self.shared.clone(),
            signature: self.signature.clone(),
            create,
            docs: self.docs.clone(),
            names: self.names.clone(),
            methods: self.methods.clone(),
        })
    }
}

/// A method of an actor.
#[pyclass(frozen, module = "wasmrun._wasmrun")]
pub(crate) struct Method {
    shared: Arc<Shared>,
    actor: wasmrun_client::Actor,
    signature: Arc<Signature>,
    options: CallOptions,
}

impl Method {
    pub(crate) fn new(actor: &Actor, signature: &Arc<Signature>) -> Self {
        Self {
            shared: actor.shared.clone(),
            actor: actor.actor.clone(),
            signature: signature.clone(),
            options: CallOptions::default(),
        }
    }
}

#[pymethods]
impl Method {
    fn described(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.signature.described(py)
    }

    /// Calls it, behind all calls that this session has made before.
    #[pyo3(signature = (*args, **kwargs))]
    fn remote(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Ref> {
        self.shared.check()?;
        let values = self.signature.arguments(&self.shared, args, kwargs)?;
        let slot = Arc::new(Slot::default());
        self.shared.queue.push(Command {
            what: What::Call {
                actor: self.actor.clone(),
                method: self.signature.name.clone(),
                options: self.options,
            },
            values,
            slot: slot.clone(),
        });
        Ok(Ref {
            shared: self.shared.clone(),
            slot,
            expected: self.signature.result.clone(),
            name: self.signature.name.clone(),
        })
    }

    /// The same method, whose calls may take so many seconds.
    #[pyo3(signature = (*, time_limit))]
    fn options(&self, time_limit: f64) -> PyResult<Self> {
        Ok(Self {
            shared: self.shared.clone(),
            actor: self.actor.clone(),
            signature: self.signature.clone(),
            options: CallOptions {
                time_limit: Some(seconds(time_limit)?),
                ..self.options
            },
        })
    }

    fn __call__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(format!(
            "methods of actors run elsewhere: call .{}.remote(…), and get what that gives",
            python_text(&self.signature.short)
        )))
    }
}

/// Seconds, as people give them.
pub(crate) fn seconds(given: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(given).map_err(|_| {
        PyValueError::new_err(format!("{given} is no time: give seconds, not negative"))
    })
}

fn unknown(name: &str, known: &str) -> PyErr {
    PyTypeError::new_err(format!("there is no option '{name}'; there are {known}"))
}

/// An option that tasks and actors have. False if it is none.
fn common(
    name: &str,
    value: &Bound<'_, PyAny>,
    terms: &mut Terms,
    limits: &mut wire::Limits,
    grants: &mut wire::Grants,
) -> PyResult<bool> {
    let invalid =
        |error: &dyn std::fmt::Display| PyValueError::new_err(format!("option {name}: {error}"));
    match name {
        "cpus" => amount(terms, ResourceName::CPU, name, value)?,
        "gpus" => amount(terms, ResourceName::GPU, name, value)?,
        "memory" => amount(terms, ResourceName::MEMORY, name, value)?,
        "resources" => {
            for (resource, value) in value.cast::<PyDict>()?.iter() {
                let text: String = resource.extract()?;
                let resource = text.parse().map_err(|error| invalid(&error))?;
                amount(terms, resource, &text, &value)?;
            }
        }
        "priority" => terms.priority = value.extract()?,
        "strategy" => {
            let text: String = value.str()?.extract()?;
            terms.strategy = text.parse().map_err(|error| invalid(&error))?;
        }
        "labels" => {
            let text: String = value.extract()?;
            terms.selectors = text.parse().map_err(|error| invalid(&error))?;
        }
        "time_limit" => {
            let limit = seconds(value.extract()?)?.as_millis();
            limits.time_ms = Some(u64::try_from(limit).unwrap_or(u64::MAX).max(1));
        }
        "env" => {
            grants.env = Vec::new();
            for (name, value) in value.cast::<PyDict>()?.iter() {
                grants.env.push((name.extract()?, value.extract()?));
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Numbers as they are, of memory in bytes, or text such as `64MiB`.
fn amount(
    terms: &mut Terms,
    resource: ResourceName,
    name: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if value.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!(
            "option {name}: expected a number or text such as '64MiB', got bool"
        )));
    }
    let mut text: String = value.str()?.extract()?;
    if resource.is_memory() && value.is_instance_of::<pyo3::types::PyInt>() {
        text.push('B');
    }
    let amount = Amount::parse_for(&resource, &text);
    let amount =
        amount.map_err(|error| PyValueError::new_err(format!("option {name}: {error}")))?;
    terms.resources.insert(resource, amount);
    Ok(())
}

/// What a type is for a value of which nothing else is known.
pub(crate) fn unnamed(
    factory: &Bound<'_, PyAny>,
    ty: &ValueType,
) -> PyResult<Arc<crate::types::PyType>> {
    Maker::new(None, factory, &mut Made::default()).make(ty, None, "value")
}
