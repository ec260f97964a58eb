//! What can be asked for tasks and actors, by names of JavaScript.
//!
//! Owns how options become terms, limits and grants.

use std::fmt::Display;
use std::time::Duration;

use serde_json::{Map, Value as Json};
use wasmrun_client::wire::{Create, Grants, Limits, Submit, Terms};
use wasmrun_model::http::HttpHost;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::secret::SecretUse;
use wasmrun_model::units;

/// The options that tasks and actors have.
const COMMON: &str =
    "cpus, gpus, memory, resources, timeLimit, strategy, labels, priority, env, secrets, http";

/// Milliseconds, as people give them.
pub(crate) fn milliseconds(given: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(given / 1000.0)
        .map_err(|_| format!("{given} is no time: give milliseconds, not negative"))
}

/// Adds options to those of a task.
pub(crate) fn of_task(submit: &mut Submit, options: &Map<String, Json>) -> Result<(), String> {
    for (name, value) in options {
        match &name[..] {
            "name" => submit.name = text(name, value)?,
            "retries" => submit.terms.retries = Some(whole(name, value)?),
            "noPreempt" => submit.terms.no_preempt = is_so(name, value)?,
            "retryOnError" => submit.terms.retry_on_error = Some(is_so(name, value)?),
            _ => {
                let (terms, limits) = (&mut submit.terms, &mut submit.limits);
                let known = "name, retries, retryOnError, noPreempt";
                common((name, value), known, terms, limits, &mut submit.grants)?;
            }
        }
    }
    Ok(())
}

/// Adds options to those of an actor.
pub(crate) fn of_actor(create: &mut Create, options: &Map<String, Json>) -> Result<(), String> {
    for (name, value) in options {
        match &name[..] {
            "name" => create.name = Some(text(name, value)?),
            "detached" => create.is_detached = is_so(name, value)?,
            "restarts" => create.wishes.restarts = Some(whole(name, value)?),
            "callRetries" => create.wishes.call_retries = Some(whole(name, value)?),
            _ => {
                let (terms, limits) = (&mut create.terms, &mut create.limits);
                let known = "name, detached, restarts, callRetries";
                common((name, value), known, terms, limits, &mut create.grants)?;
            }
        }
    }
    if create.is_detached && create.name.is_none() {
        return Err("a detached actor needs a name, by which others find it".into());
    }
    Ok(())
}

/// An option that tasks and actors have. `known` are those that they do not share.
fn common(
    (name, value): (&str, &Json),
    known: &str,
    terms: &mut Terms,
    limits: &mut Limits,
    grants: &mut Grants,
) -> Result<(), String> {
    let invalid = |error: &dyn Display| format!("option {name}: {error}");
    match name {
        "cpus" => amount(terms, ResourceName::CPU, name, value)?,
        "gpus" => amount(terms, ResourceName::GPU, name, value)?,
        "memory" => amount(terms, ResourceName::MEMORY, name, value)?,
        "resources" => {
            for (resource, value) in object(name, value)? {
                let parsed = resource.parse().map_err(|error| invalid(&error))?;
                amount(terms, parsed, resource, value)?;
            }
        }
        "priority" => {
            let given = value.as_i64().and_then(|it| i32::try_from(it).ok());
            terms.priority = given.ok_or_else(|| wrong(name, "a whole number", value))?;
        }
        "strategy" => {
            let text = text(name, value)?;
            terms.strategy = text.parse().map_err(|error| invalid(&error))?;
        }
        "labels" => {
            let text = text(name, value)?;
            terms.selectors = text.parse().map_err(|error| invalid(&error))?;
        }
        "timeLimit" => {
            let given = value.as_f64();
            let given = given.ok_or_else(|| wrong(name, "milliseconds", value))?;
            let limit = milliseconds(given).map_err(|error| invalid(&error))?;
            limits.time_ms = Some(units::ms(limit).max(1));
        }
        "env" => {
            let mut env = Vec::new();
            for (name, value) in object(name, value)? {
                env.push((name.clone(), text(name, value)?));
            }
            grants.env = env;
        }
        "secrets" => {
            let uses = value.as_array();
            let uses = uses.ok_or_else(|| wrong(name, "a list of texts", value))?;
            let mut secrets = Vec::new();
            for it in uses {
                let secret = text(name, it)?.parse::<SecretUse>();
                secrets.push(secret.map_err(|error| invalid(&error))?);
            }
            grants.secrets = secrets;
        }
        "http" => {
            let hosts = value.as_array();
            let hosts = hosts.ok_or_else(|| wrong(name, "a list of texts", value))?;
            grants.http = Vec::new();
            for host in hosts {
                let host = text(name, host)?
                    .parse::<HttpHost>()
                    .map_err(|error| invalid(&error))?;
                grants.http.push(host);
            }
        }
        _ => {
            return Err(format!(
                "there is no option '{name}'; there are {known}, {COMMON}"
            ));
        }
    }
    Ok(())
}

/// Numbers as they are, of memory in bytes, or text such as `64MiB`.
fn amount(
    terms: &mut Terms,
    resource: ResourceName,
    name: &str,
    value: &Json,
) -> Result<(), String> {
    let text = match value {
        Json::String(text) => text.clone(),
        Json::Number(bytes) if resource.is_memory() => format!("{bytes}B"),
        Json::Number(number) => number.to_string(),
        _ => return Err(wrong(name, "a number or text such as '64MiB'", value)),
    };
    let amount = Amount::parse_for(&resource, &text);
    let amount = amount.map_err(|error| format!("option {name}: {error}"))?;
    terms.resources.insert(resource, amount);
    Ok(())
}

fn text(name: &str, value: &Json) -> Result<String, String> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| wrong(name, "text", value))
}

fn whole(name: &str, value: &Json) -> Result<u32, String> {
    let number = value.as_u64().and_then(|it| u32::try_from(it).ok());
    number.ok_or_else(|| wrong(name, "a whole number from 0", value))
}

fn is_so(name: &str, value: &Json) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| wrong(name, "true or false", value))
}

fn object<'a>(name: &str, value: &'a Json) -> Result<&'a Map<String, Json>, String> {
    let object = value.as_object();
    object.ok_or_else(|| wrong(name, "an object", value))
}

fn wrong(name: &str, expected: &str, found: &Json) -> String {
    format!("option {name}: expected {expected}, got {found}")
}
