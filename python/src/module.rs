//! What a module exports, to be called.
//!
//! Owns [`Module`], [`Callable`], [`Class`] and [`Method`], and how arguments become those of a call. Must not: choose names
//! for Python: that is `wasmrun/_module.py`.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use wasmrun_client::queue::{Command, QueuedArgument, Slot, What};
use wasmrun_client::wire;
use wasmrun_client::{Argument, CallOptions, CreateActor, Handles, Submit};
use wasmrun_model::value::FunctionType;
use wasmrun_model::value::codec::encode;
use wit_parser::Function;

use crate::bind::bind;
use crate::convert::{self, Fault};
use crate::failure;
use crate::names::{Names, python_name};
use crate::options::{self, common, seconds, trace_of};
use crate::refs::{Actor, Decoder, Expected, Ref, Typed};
use crate::session::{Session, Shared};
use crate::types::{Maker, PyType};

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
    ) -> PyResult<Vec<QueuedArgument>> {
        let py = given.py();
        let function = self.short.replace('-', "_");
        let is_optional = |at: usize| matches!(*self.params[at].py, PyType::Option(_));
        let given = bind(&function, &self.names, is_optional, given, keywords)?;
        let mut values = Vec::with_capacity(given.len());
        for ((given, param), name) in given.iter().zip(&self.params).zip(&self.names) {
            let value = self.argument(shared, given, param);
            values.push(value.map_err(|fault| {
                fault.raised(py, &format!("{function}() argument {}", name.bind(py)))
            })?);
        }
        Ok(values)
    }

    /// Sends a call off that waits for these. What it is to make: what people call that, and what reads it.
    fn begin(
        &self,
        shared: &Arc<Shared>,
        what: What,
        (name, decoder): (&Arc<str>, &Option<Decoder>),
        after: &[Py<Ref>],
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Ref> {
        shared.check()?;
        let mut values = self.arguments(shared, args, kwargs)?;
        for (slot, _) in shared.slots(after)? {
            values.push(QueuedArgument::Made(slot));
        }
        let slot = Arc::new(Slot::default());
        shared.queue.push([Command {
            what,
            values,
            slot: slot.clone(),
        }]);
        Ok(Ref {
            shared: shared.clone(),
            slot,
            expected: self.result.clone(),
            decoder: decoder.clone(),
            name: name.clone(),
        })
    }

    fn argument(
        &self,
        shared: &Arc<Shared>,
        given: &Bound<'_, PyAny>,
        param: &Typed,
    ) -> Result<QueuedArgument, Fault> {
        // Whether the parameter takes what it makes, or is the object itself.
        if let Ok(object) = given.cast::<Ref>() {
            let object = object.get();
            if !Arc::ptr_eq(&object.shared, shared) {
                return Err(Fault::text(
                    "it is an object of another session: get its value, or use one session",
                ));
            }
            return Ok(QueuedArgument::Made(object.slot.clone()));
        }
        let mut handles = Handles::default();
        let value = convert::to_value(&param.py, given, &mut handles)?;
        let argument = match param.ty.has_handles() {
            true => handles.encode(&param.ty, &value),
            false => encode(&param.ty, &value).map(Argument::Value),
        };
        let argument = argument.map_err(|error| Fault::text(error.to_string()))?;
        Ok(QueuedArgument::Value(argument))
    }

    /// Name and type of each parameter, the type of what it gives, and what the module says of it.
    fn described(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let params = self.names.iter().zip(&self.params);
        let params: Vec<_> = params
            .map(|(name, it)| (name.clone_ref(py), it.py.hint(true)))
            .collect();
        let result = match &self.result {
            Expected::Value(typed) => {
                // An error is raised.
                match &*typed.py {
                    PyType::Result(ok, _) => ok.as_ref().map_or("None".into(), |ok| ok.hint(false)),
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
        let mut made = names.made(py);
        let resolve = described.as_ref().map(|it| it.resolve);
        let mut maker = Maker::new(resolve, factory, &mut made);
        let mut functions = Vec::new();
        for (name, ty) in &module.functions {
            let wit = described.as_ref().and_then(|it| it.function(name));
            let callable = Callable {
                shared: shared.clone(),
                signature: Signature::new(py, &mut maker, name, ty, wit, false)?,
                submit: Arc::new(Submit::function(module, name)),
                shown: name.as_str().into(),
                decoder: None,
            };
            functions.push(Py::new(py, callable)?);
        }
        let mut classes = Vec::new();
        for (name, ty) in &module.classes {
            let wit = described.as_ref().and_then(|it| it.method(name, None));
            let docs = described.as_ref().and_then(|it| it.docs(name));
            let class = Class {
                shared: shared.clone(),
                signature: Signature::new(py, &mut maker, name, ty, wit, false)?,
                create: CreateActor::new(module, name, Vec::new()),
                docs: docs.map(ToString::to_string),
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
    submit: Arc<Submit>,
    /// What people call it.
    shown: Arc<str>,
    decoder: Option<Decoder>,
}

impl Callable {
    fn begin(
        &self,
        after: &[Py<Ref>],
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Ref> {
        let what = What::Task(self.submit.clone());
        let read = (&self.shown, &self.decoder);
        self.signature
            .begin(&self.shared, what, read, after, args, kwargs)
    }
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

    #[getter(_session)]
    fn session(&self) -> Session {
        Session(self.shared.clone())
    }

    /// Calls it in a sandbox of its own.
    #[pyo3(signature = (*args, **kwargs))]
    fn remote(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Ref> {
        self.begin(&[], args, kwargs)
    }

    /// As `remote`, once these are there. It fails if one of them does.
    #[pyo3(signature = (after, *args))]
    fn remote_after(&self, after: Vec<Py<Ref>>, args: &Bound<'_, PyTuple>) -> PyResult<Ref> {
        self.begin(&after, args, None)
    }

    /// The same function, whose results are read further.
    fn decoded_by(&self, decoder: Py<PyAny>) -> Self {
        Self {
            shared: self.shared.clone(),
            signature: self.signature.clone(),
            submit: self.submit.clone(),
            shown: self.shown.clone(),
            decoder: Some(Arc::new(decoder)),
        }
    }

    /// Stores a value of the type of the last parameter.
    fn put(&self, given: &Bound<'_, PyAny>) -> PyResult<Ref> {
        let Some(param) = self.signature.params.last() else {
            return Err(PyTypeError::new_err("it has no parameters"));
        };
        self.shared.put(given, param, self.decoder.clone())
    }

    /// An object whose type is not known as one that this function has made, or whose type is that of its last parameter.
    fn made(&self, object: &Bound<'_, Ref>, is_put: bool) -> Ref {
        let object = object.get();
        let param = self.signature.params.last().filter(|_| is_put);
        let expected = param.map(|it| Expected::Value(Arc::new(it.clone())));
        Ref {
            shared: object.shared.clone(),
            slot: object.slot.clone(),
            expected: expected.unwrap_or_else(|| self.signature.result.clone()),
            decoder: self.decoder.clone(),
            name: object.name.clone(),
        }
    }

    /// The same function, with these options besides those that it has.
    fn with_options(&self, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut submit = self.submit.wire().clone();
        options::apply(
            options,
            "name, retries, retry_on_error, no_preempt",
            |name, value| {
                let wire::Submit {
                    terms,
                    limits,
                    grants,
                    trace,
                    ..
                } = &mut submit;
                match name {
                    "name" => submit.name = value.extract()?,
                    "retries" => terms.retries = Some(value.extract()?),
                    "no_preempt" => terms.no_preempt = value.extract()?,
                    "retry_on_error" => terms.retry_on_error = Some(value.extract()?),
                    other => return common(other, value, terms, limits, grants, trace),
                }
                Ok(true)
            },
        )?;
        Ok(Self {
            shared: self.shared.clone(),
            signature: self.signature.clone(),
            shown: match submit.name.is_empty() {
                true => self.signature.name.clone(),
                false => submit.name.as_str().into(),
            },
            submit: Arc::new(Submit::of(submit)),
            decoder: self.decoder.clone(),
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
                create.values.push(value.argument().await?);
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
        let known = "name, detached, restarts, call_retries";
        options::apply(options, known, |name, value| {
            let wire::Create {
                terms,
                limits,
                grants,
                wishes,
                trace,
                ..
            } = &mut create.wire;
            match name {
                "name" => create.wire.name = value.extract()?,
                "detached" => create.wire.is_detached = value.extract()?,
                "restarts" => wishes.restarts = Some(value.extract()?),
                "call_retries" => wishes.call_retries = Some(value.extract()?),
                other => return common(other, value, terms, limits, grants, trace),
            }
            Ok(true)
        })?;
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
    decoder: Option<Decoder>,
}

impl Method {
    pub(crate) fn new(actor: &Actor, signature: &Arc<Signature>) -> Self {
        Self {
            shared: actor.shared.clone(),
            actor: actor.actor.clone(),
            signature: signature.clone(),
            options: CallOptions::default(),
            decoder: None,
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
        let call = What::Call {
            actor: self.actor.clone(),
            method: self.signature.name.clone(),
            options: self.options.clone(),
        };
        let read = (&self.signature.name, &self.decoder);
        self.signature
            .begin(&self.shared, call, read, &[], args, kwargs)
    }

    /// The same method, whose results are read further.
    fn decoded_by(&self, decoder: Py<PyAny>) -> Self {
        Self {
            shared: self.shared.clone(),
            actor: self.actor.clone(),
            signature: self.signature.clone(),
            options: self.options.clone(),
            decoder: Some(Arc::new(decoder)),
        }
    }

    /// The same method, whose calls may take so many seconds, and belong to this trace.
    #[pyo3(signature = (*, time_limit=None, trace=None))]
    fn options(&self, time_limit: Option<f64>, trace: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let mut options = self.options.clone();
        if let Some(limit) = time_limit {
            options.time_limit = Some(seconds(limit)?);
        }
        if let Some(carrier) = trace {
            options.trace = trace_of(carrier)?;
        }
        Ok(Self {
            shared: self.shared.clone(),
            actor: self.actor.clone(),
            signature: self.signature.clone(),
            options,
            decoder: self.decoder.clone(),
        })
    }

    fn __call__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(format!(
            "methods of actors run elsewhere: call .{}.remote(…), and get what that gives",
            self.signature.short.replace('-', "_")
        )))
    }
}
