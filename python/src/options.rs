//! What can be asked for tasks and actors, by names of Python.
//!
//! Owns how options become terms, limits and grants. Must not: know which of them a function or a class has besides.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt};
use wasmrun_client::wire::{self, Terms};
use wasmrun_model::http::HttpHost;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::secret::SecretUse;
use wasmrun_model::trace::{Span, TraceContext, TraceState};
use wasmrun_model::units;

/// Seconds, as people give them.
pub(crate) fn seconds(given: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(given).map_err(|_| {
        PyValueError::new_err(format!("{given} is no time: give seconds, not negative"))
    })
}

/// Takes each option in by `own`, which says false of those that it does not know. `known` are those that it knows.
pub(crate) fn apply(
    options: &Bound<'_, PyDict>,
    known: &str,
    mut own: impl FnMut(&str, &Bound<'_, PyAny>) -> PyResult<bool>,
) -> PyResult<()> {
    for (name, value) in options.iter() {
        let name: String = name.extract()?;
        if !own(&name, &value)? {
            return Err(PyTypeError::new_err(format!(
                "there is no option '{name}'; there are {known}, {COMMON}"
            )));
        }
    }
    Ok(())
}

/// The options that tasks and actors have.
const COMMON: &str = "cpus, gpus, memory, resources, time_limit, strategy, labels, priority, env, dirs, secrets, http, trace";

/// An option that tasks and actors have. False if it is none.
pub(crate) fn common(
    name: &str,
    value: &Bound<'_, PyAny>,
    terms: &mut Terms,
    limits: &mut wire::Limits,
    grants: &mut wire::Grants,
    trace: &mut Option<TraceContext>,
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
            limits.time_ms = Some(units::ms(seconds(value.extract()?)?).max(1));
        }
        "env" => {
            let mut env: Vec<(String, String)> = Vec::new();
            for (name, value) in value.cast::<PyDict>()?.iter() {
                env.push((name.extract()?, value.extract()?));
            }
            grants.env = env;
        }
        "secrets" => {
            let mut secrets = Vec::new();
            for secret in value.extract::<Vec<String>>()? {
                secrets.push(
                    secret
                        .parse::<SecretUse>()
                        .map_err(|error| invalid(&error))?,
                );
            }
            grants.secrets = secrets;
        }
        "http" => {
            grants.http = Vec::new();
            for host in value.extract::<Vec<String>>()? {
                grants
                    .http
                    .push(host.parse::<HttpHost>().map_err(|error| invalid(&error))?);
            }
        }
        "dirs" => {
            grants.dirs = Vec::new();
            for text in value.extract::<Vec<String>>()? {
                grants
                    .dirs
                    .push(directory(&text).map_err(|error| invalid(&error))?);
            }
        }
        "trace" => *trace = trace_of(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// A directory of this machine, as of `wasmrun submit --dir`.
fn directory(text: &str) -> Result<wire::Dir, String> {
    let mut dir: wire::Dir = text.parse()?;
    let host = std::path::absolute(&dir.host).map_err(|error| format!("{text}: {error}"))?;
    let host = host.into_os_string().into_string();
    dir.host = host.map_err(|_| format!("{text}: its path is not UTF-8"))?;
    Ok(dir)
}

/// The trace context of a carrier: a dict as OpenTelemetry's `inject` fills it, which has none where there is no span.
pub(crate) fn trace_of(carrier: &Bound<'_, PyAny>) -> PyResult<Option<TraceContext>> {
    let carrier = carrier.cast::<PyDict>()?;
    let invalid =
        |error: &dyn std::fmt::Display| PyValueError::new_err(format!("option trace: {error}"));
    let Some(parent) = carrier.get_item("traceparent")? else {
        return Ok(None);
    };
    let parent: String = parent.extract()?;
    let parent = parent.parse::<Span>().map_err(|error| invalid(&error))?;
    let state = match carrier.get_item("tracestate")? {
        Some(state) => {
            let state: String = state.extract()?;
            state
                .parse::<TraceState>()
                .map_err(|error| invalid(&error))?
        }
        None => TraceState::default(),
    };
    Ok(Some(TraceContext::new(parent, state)))
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
    if resource.is_memory() && value.is_instance_of::<PyInt>() {
        text.push('B');
    }
    let amount = Amount::parse_for(&resource, &text);
    let amount =
        amount.map_err(|error| PyValueError::new_err(format!("option {name}: {error}")))?;
    terms.resources.insert(resource, amount);
    Ok(())
}
