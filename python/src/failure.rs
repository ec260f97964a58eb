//! Failures as Python raises them.
//!
//! Owns which class and which words: `wasmrun/_errors.py` has the classes and makes them of a kind, a message and what belongs
//! to it. Must not: raise what Python has a class for by another.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use wasmrun_client::{ConnectError, Error, GetError};
use wasmrun_model::failure::TaskError;
use wasmrun_model::value::codec::decode;
use wasmrun_model::value::{DecodeLimits, Value};

use crate::convert;
use crate::refs::{Expected, Ref};
use crate::types::PyType;

/// An error of this kind. Where it cannot be made, why not.
fn made(
    py: Python<'_>,
    kind: &str,
    message: &str,
    details: &Bound<'_, PyDict>,
) -> PyResult<Py<PyAny>> {
    let make = py.import("wasmrun._errors")?.getattr("made")?;
    Ok(make.call1((kind, message, details))?.unbind())
}

fn raised(py: Python<'_>, kind: &str, message: &str) -> PyErr {
    match made(py, kind, message, &PyDict::new(py)) {
        Ok(error) => PyErr::from_value(error.into_bound(py)),
        Err(error) => error,
    }
}

/// Something that should not be.
pub(crate) fn other(py: Python<'_>, message: &str) -> PyErr {
    raised(py, "error", message)
}

/// What was asked for took too long.
pub(crate) fn timed_out(py: Python<'_>, message: &str) -> PyErr {
    raised(py, "timeout", message)
}

/// A session that could not begin.
pub(crate) fn of_connecting(py: Python<'_>, error: &ConnectError) -> PyErr {
    raised(py, error.kind(), &error.to_string())
}

/// A request that was not done.
pub(crate) fn of_request(py: Python<'_>, error: &Error) -> PyErr {
    raised(py, error.kind(), &error.to_string())
}

/// An object that has no value.
pub(crate) fn of_get(py: Python<'_>, object: &Ref, error: &GetError) -> Py<PyAny> {
    let made = match error {
        GetError::Failed { error, origin } => {
            let details = PyDict::new(py);
            details
                .set_item("task", origin.to_string())
                .and_then(|()| details.set_item("function", &*object.name))
                .and_then(|()| task(py, error, Some(object), &details))
        }
        GetError::TimedOut => Ok(value_of(py, timed_out(py, &error.to_string()))),
        GetError::Request(error) => Ok(value_of(py, of_request(py, error))),
    };
    let made = match &object.decoder {
        Some(decoder) => made.and_then(|error| decoder.call_method1(py, "raised", (error,))),
        None => made,
    };
    made.unwrap_or_else(|error| value_of(py, error))
}

/// An error as what it is: an object.
pub(crate) fn value_of(py: Python<'_>, error: PyErr) -> Py<PyAny> {
    error.into_value(py).into_any()
}

/// How a task failed. `object` is what it was to make, if that is known.
fn task(
    py: Python<'_>,
    error: &TaskError,
    object: Option<&Ref>,
    details: &Bound<'_, PyDict>,
) -> PyResult<Py<PyAny>> {
    let frames: Vec<String> = error.frames().iter().map(ToString::to_string).collect();
    details.set_item("frames", frames)?;
    match error {
        TaskError::Guest { value, text, .. } => {
            details.set_item("text", text)?;
            if let Some(payload) = object.and_then(|it| payload(py, it, value).transpose()) {
                details.set_item("value", payload?)?;
            }
        }
        TaskError::Exit { code, .. } => details.set_item("code", code)?,
        TaskError::Dependency {
            index,
            task: of,
            name,
            cause,
        } => {
            details.set_item("argument", index)?;
            let inner = PyDict::new(py);
            inner.set_item("task", of.to_string())?;
            inner.set_item("function", name)?;
            // Functions of Python have errors of one type.
            let object = object.filter(|it| it.decoder.is_some());
            details.set_item("cause", task(py, cause, object, &inner)?)?;
        }
        TaskError::ActorDied { actor, cause } => {
            details.set_item("actor", actor.to_string())?;
            if let Some(cause) = cause {
                details.set_item("cause", task(py, cause, None, &PyDict::new(py))?)?;
            }
        }
        _ => {}
    }
    made(py, error.kind(), &error.to_string(), details)
}

/// The payload of the error that a function has returned.
fn payload(
    py: Python<'_>,
    object: &Ref,
    value: &wasmrun_model::value::Encoded,
) -> PyResult<Option<Py<PyAny>>> {
    let Expected::Value(typed) = &object.expected else {
        return Ok(None);
    };
    let PyType::Result(_, Some(err)) = &*typed.py else {
        return Ok(None);
    };
    let decoded = decode(&typed.ty, value, DecodeLimits::default());
    match decoded {
        Ok(Value::Result(Err(Some(payload)))) => {
            Ok(Some(convert::to_python(py, err, *payload, &Nobody)?))
        }
        // The cause may be of a function in another language.
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Errors keep nothing that they name.
struct Nobody;

impl convert::Named for Nobody {
    fn handle(&self, py: Python<'_>, handle: &wasmrun_model::value::Handle) -> PyResult<Py<PyAny>> {
        Ok(handle.to_string().into_pyobject(py)?.into_any().unbind())
    }
}
