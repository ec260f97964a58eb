//! `actor`: actors by their names.

use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{Module, What, Wishes};
use wasmrun_client::{Actor, ActorError, Argument, CallOptions, CreateActor, Described};
use wasmrun_engine::LookupError;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::units;
use wasmrun_model::value::codec::decode;
use wasmrun_model::value::wave::Invocation;
use wasmrun_model::value::{DecodeLimits, FunctionType, json, wave};

use super::ends;
use crate::args::{ActorCommand, ActorCreate, Global, Output};
use crate::fail::{CommandResult, Exit, Failure, exit_of};
use crate::names::Names;
use crate::printer::Printer;
use crate::{local, remote};

/// The largest module that is read here; the node may take less.
const MODULE_BYTES: u64 = 1 << 30;

/// `actor`.
pub fn actor(command: &ActorCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        ActorCommand::Create(options) => create(options, global, printer),
        ActorCommand::Call {
            actor,
            call: text,
            tenant,
            time_limit,
            trace,
        } => {
            let options = CallOptions {
                time_limit: *time_limit,
                trace: trace.context(),
                ..CallOptions::default()
            };
            call((actor, text), options, tenant, global, printer)
        }
        ActorCommand::Kill { actor, tenant } => {
            let client = remote::connect(global, tenant)?;
            let what = ends::described(&client, actor, printer);
            client.wait(client.kill(actor)).map_err(remote::failed)?;
            match what {
                Some(Described::Actor(_)) => printer.note(ends::ended(what.as_ref(), actor)),
                _ => printer.note(format_args!("actor {actor} is ended")),
            }
            Ok(())
        }
        ActorCommand::List => super::show(What::Actors, Vec::new(), global, printer),
    }
}

fn create(options: &ActorCreate, global: &Global, printer: &Printer) -> CommandResult {
    let resources = options.request.asked()?;
    options.grants.check_dirs()?;
    let client = Arc::new(remote::connect(global, &options.tenant)?);
    let shown = options.module.display();
    local::check_path(&options.module)?;
    let bytes = local::read_file(&options.module, MODULE_BYTES, "a smaller module");
    let bytes = bytes.with_context(|| format!("cannot read the module {shown}"))?;
    let module = client.wait(client.load(&bytes)).map_err(remote::failed)?;
    let (class, constructor) = class(&module, &options.class)?;
    let text = format!("create({})", options.arguments);
    let names = Names::of(Some(client.clone()));
    let values = arguments(&text, constructor, &names)?;
    let mut create = CreateActor::new(&module, class, values);
    create = create.named(&options.name).detached();
    create.wire.terms.resources = resources.0;
    create.wire.grants = crate::submit::wire_grants(&options.grants)?;
    create.wire.wishes = Wishes {
        restarts: options.restarts,
        call_retries: options.call_retries,
    };
    create.wire.terms.priority = options.priority;
    create.wire.terms.selectors = options.label_selector.clone().unwrap_or_default();
    create.wire.terms.strategy = options.strategy.clone();
    create.wire.limits.time_ms = options.time_limit.map(units::ms);
    create.wire.trace = options.trace.context();
    let actor = client
        .wait(client.create_actor(create))
        .map_err(remote::failed)?;
    if let Some(why) = actor.why_not_durable() {
        printer.warn(format_args!(
            "actor {} is lost if node {} is, and not kept elsewhere: {why}",
            actor.id(),
            client.node()
        ));
    }
    if !options.no_wait {
        await_alive(&client, &actor, options, printer)?;
    }
    match printer.output {
        Output::Json => {
            let (id, name) = (actor.id().to_string(), &options.name);
            printer
                .json(&json!({ "version": 1, "actor": id, "name": name, "class": actor.class() }))
        }
        _ => printer.result(actor.id()),
    }
}

/// Waits until an actor lives that was created.
fn await_alive(
    client: &Client,
    actor: &Actor,
    options: &ActorCreate,
    printer: &Printer,
) -> CommandResult {
    let (id, name) = (actor.id(), &options.name);
    match client.wait(actor.ready(Some(options.wait))) {
        Ok(()) => Ok(()),
        Err(ActorError::TimedOut(why)) => {
            printer.warn(format_args!(
                "actor {id} is created and does not live yet; `wasmrun explain {name}` says where it stands:\n{why}"
            ));
            Ok(())
        }
        Err(ActorError::Failed { error, .. }) => {
            let exit = match (&error, exit_of(&error)) {
                (TaskError::Unschedulable(_), _) => Exit::Unschedulable,
                // A program's code, or that somebody has ended the actor, is not this command's.
                (_, Exit::Program(_) | Exit::Interrupted) => Exit::TaskFailed,
                (_, exit) => exit,
            };
            let why = format!(
                "actor '{name}' ({id}) does not come to be: {error}; `wasmrun logs {id}` shows what it wrote"
            );
            Err(Failure::new(exit, anyhow::Error::msg(why)))
        }
        Err(ActorError::Request(error)) => Err(remote::failed(error)),
    }
}

/// The class that a name stands for.
fn class<'a>(module: &'a Module, name: &str) -> Result<(&'a str, &'a FunctionType), Failure> {
    let short = |full: &'a str| full.rsplit('#').next().unwrap_or(full);
    let fit = module
        .classes
        .iter()
        .filter(|(full, _)| full == name || short(full) == name);
    let names =
        |of: &[&'a (String, FunctionType)]| of.iter().map(|(full, _)| full.clone()).collect();
    match &fit.collect::<Vec<_>>()[..] {
        [(full, ty)] => Ok((full, ty)),
        [] if module.classes.is_empty() => Err(Failure::usage(
            "the module has no classes: no resource with a constructor",
        )),
        [] => {
            let all: Vec<_> = module.classes.iter().collect();
            Err(Failure::from(LookupError::unknown(
                "class",
                name,
                names(&all),
            )))
        }
        several => Err(Failure::from(LookupError::Ambiguous {
            name: name.to_owned(),
            candidates: names(several),
        })),
    }
}

fn arguments(text: &str, ty: &FunctionType, names: &Names) -> Result<Vec<Argument>, Failure> {
    let call = Invocation::parse(text).with_context(|| format!("cannot read the call '{text}'"))?;
    let values = names.arguments(&call, ty, ty)?;
    let encoded = values.iter().zip(ty.params());
    let encoded = encoded.map(|(value, (_, ty))| Ok(names.encode(ty, value)?.into()));
    encoded.collect()
}

fn call(
    (name, text): (&str, &str),
    options: CallOptions,
    tenant: &TenantName,
    global: &Global,
    printer: &Printer,
) -> CommandResult {
    let client = Arc::new(remote::connect(global, tenant)?);
    let actor = client
        .wait(client.find_actor(name))
        .map_err(remote::failed)?;
    let call = Invocation::parse(text).with_context(|| format!("cannot read the call '{text}'"))?;
    let method = call.function();
    let Some(ty) = actor.method(method) else {
        let methods: Vec<&str> = actor.methods().map(|(name, _)| name).collect();
        return Err(Failure::usage(format!(
            "the class {} has no method '{method}'; it has {}",
            actor.class(),
            methods.join(", ")
        )));
    };
    let names = Names::of(Some(client.clone()));
    let values = arguments(text, ty, &names)?;
    let started = client.wait(actor.start(method, values, options));
    let future = started.map_err(remote::failed)?.future();
    let value = client.wait(future.get(None)).map_err(remote::no_value)?;
    let task = future.id().task().to_string();
    let value = match ty.result() {
        Some(ty) => Some((ty, decode(ty, &value, DecodeLimits::default())?)),
        None => None,
    };
    match (printer.output, &value) {
        (Output::Json, value) => {
            let result = value
                .as_ref()
                .map(|(ty, value)| json::to_json(ty, value))
                .transpose()?;
            printer.json(&json!({ "version": 1, "task_id": task, "result": result }))
        }
        (_, Some((ty, value))) => printer.result(wave::print(ty, value)?),
        (_, None) => Ok(()),
    }
}
