//! Objects and actors, as Python holds them.
//!
//! Owns [`Ref`] and [`Actor`]. What they stand for lives in the node as long as there is one of them. Must not: know how
//! calls are sent.

use std::sync::Arc;

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyType;
use wasmrun_client::Future;
use wasmrun_client::queue::Slot;
use wasmrun_model::value::{Handle, ValueType};

use crate::asynchronous::Early;
use crate::convert::Named;
use crate::failure;
use crate::module::{Method, Methods};
use crate::session::{Session, Shared};
use crate::types;

/// What a value is of.
#[derive(Clone)]
pub(crate) struct Typed {
    pub(crate) ty: ValueType,
    pub(crate) py: Arc<types::PyType>,
}

/// What is known of the type of what is to come.
#[derive(Clone)]
pub(crate) enum Expected {
    Nothing,
    Value(Arc<Typed>),
    /// The node knows it.
    Unknown,
}

/// A function of Python that makes a value of data, with a method `raised` that makes an error of one.
pub(crate) type Decoder = Arc<Py<PyAny>>;

/// An object that is there or will be.
#[pyclass(frozen, weakref, name = "ObjectRef", module = "wasmrun")]
pub(crate) struct Ref {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slot: Arc<Slot>,
    pub(crate) expected: Expected,
    /// What reads its value further, and makes its errors: `wasmrun/_inside.py` has it.
    pub(crate) decoder: Option<Decoder>,
    /// What people call it.
    pub(crate) name: Arc<str>,
}

impl Ref {
    /// The future, for which this may wait until the node has answered.
    pub(crate) fn future(&self, py: Python<'_>) -> PyResult<Future> {
        let found = match self.slot.now() {
            Some(found) => found,
            None => {
                let slot = self.slot.clone();
                self.shared.wait(py, async move { slot.future().await })?
            }
        };
        found.map_err(|error| failure::of_request(py, &error))
    }
}

impl Drop for Ref {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // To let it go takes locks that threads of the parent may have held.
            std::mem::forget(self.slot.clone());
        }
    }
}

#[pymethods]
impl Ref {
    /// Its id, once the node has answered.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.future(py)?.id().to_string())
    }

    /// The id of the task or call that makes it.
    #[getter(_task)]
    fn task(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.future(py)?.id().task().to_string())
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// How Python in a sandbox reads it: `p`, data or what was raised; `d`, data; `s`, text; `b`, numbers; `n`, nothing; or
    /// `o`, which it cannot.
    #[getter(_kind)]
    fn kind(&self) -> &'static str {
        match (&self.expected, self.decoder.is_some()) {
            (Expected::Nothing, _) => "n",
            (Expected::Unknown, _) => "o",
            (Expected::Value(typed), true) => match &typed.ty {
                ValueType::Result(_) => "p",
                _ => "d",
            },
            (Expected::Value(typed), false) => match &typed.ty {
                ValueType::String => "s",
                ty if ty.buffer_kind().is_some() => "b",
                _ => "o",
            },
        }
    }

    #[getter(_session)]
    fn session(&self) -> Session {
        Session(self.shared.clone())
    }

    /// Its value, once it is there.
    #[pyo3(signature = (timeout = None))]
    fn get(slf: Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let session = slf.get().session();
        let values = session.get(py, vec![slf.unbind()], timeout)?;
        Ok(values.bind(py).get_item(0)?.unbind())
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().shared.check()?;
        // First of all: its call may not be sent yet.
        let early = Early::new(slf.get());
        let make = slf.py().import("wasmrun._asyncio")?.getattr("one")?;
        make.call1((slf, early))?.call_method0("__await__")
    }

    #[classmethod]
    fn __class_getitem__(cls: &Bound<'_, PyType>, _item: &Bound<'_, PyAny>) -> Py<PyType> {
        cls.clone().unbind()
    }

    fn __repr__(&self) -> String {
        match self.slot.now() {
            Some(Ok(future)) => format!("ObjectRef({}, {})", self.name, future.id()),
            _ => format!("ObjectRef({})", self.name),
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "an ObjectRef belongs to its session: pass it to tasks, or get its value",
        ))
    }
}

/// An actor. Its methods are attributes.
#[pyclass(frozen, weakref, name = "ActorHandle", module = "wasmrun")]
pub(crate) struct Actor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) actor: wasmrun_client::Actor,
    pub(crate) methods: Methods,
}

impl Actor {
    pub(crate) fn actor(&self) -> &wasmrun_client::Actor {
        &self.actor
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            std::mem::forget(self.actor.clone());
        }
    }
}

#[pymethods]
impl Actor {
    #[getter(_session)]
    fn session(&self) -> Session {
        Session(self.shared.clone())
    }

    #[getter(_id)]
    fn id(&self) -> String {
        self.actor.id().to_string()
    }

    #[getter(_class_name)]
    fn class_name(&self) -> String {
        self.actor.class().to_owned()
    }

    fn __getattr__(&self, name: &str) -> PyResult<Method> {
        match self.methods.get(name) {
            Some(signature) => Ok(Method::new(self, signature)),
            None => {
                let names: Vec<_> = self.methods.keys().map(String::as_str).collect();
                Err(PyAttributeError::new_err(format!(
                    "{} has no method '{name}'; it has {}",
                    self.actor.class(),
                    names.join(", ")
                )))
            }
        }
    }

    fn __dir__(&self) -> Vec<String> {
        self.methods.keys().cloned().collect()
    }

    fn __repr__(&self) -> String {
        format!("ActorHandle({}, {})", self.actor.class(), self.actor.id())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "an actor belongs to its session: pass it to tasks, or give it a name and find it with get_actor",
        ))
    }
}

/// The handles in a value that has come.
pub(crate) struct OfValue<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) value: &'a wasmrun_client::Value,
}

impl Named for OfValue<'_> {
    fn handle(&self, py: Python<'_>, handle: &Handle) -> PyResult<Py<PyAny>> {
        let gone = || failure::other(py, "a value names what was not kept for us");
        match handle {
            Handle::Object(_) => {
                let future = self.value.future(handle).ok_or_else(gone)?;
                let object = Ref {
                    shared: self.shared.clone(),
                    slot: Slot::filled(future),
                    expected: Expected::Unknown,
                    decoder: None,
                    name: "object".into(),
                };
                Ok(Py::new(py, object)?.into_any())
            }
            Handle::Actor(_) => {
                let (value, handle) = (self.value.clone(), *handle);
                let actor = async move { value.actor(&handle).await };
                let actor = self.shared.wait(py, actor)?;
                let actor = actor.map_err(|error| failure::of_request(py, &error))?;
                let actor = self.shared.actor(py, actor.ok_or_else(gone)?)?;
                Ok(Py::new(py, actor)?.into_any())
            }
        }
    }
}
