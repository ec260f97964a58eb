//! `wasmrun inspect`: what is in a module.

use anyhow::Context;
use serde_json::{Value as Json, json};
use wasmrun_engine::{Class, Function, Method, Module, Program, wit_text};
use wasmrun_model::manifest::{ActorSettings, Asked, FunctionSettings, HTTP, PROGRAM};
use wasmrun_model::resource::Amount;
use wasmrun_model::units;
use wasmrun_model::value::{FunctionType, ValueType};

use crate::args::{Inspect, Output};
use crate::fail::CommandResult;
use crate::local;
use crate::printer::Printer;

/// The cases of the SDK's error (`wit/objects.wit`). Most functions of a module may have it, so it is spelled out once.
const ERROR_CASES: [&str; 4] = [
    "failed(record { kind: enum { guest, trap, exit, limit, arguments, cancelled, dependency, actor-died, system }, \
     message: string, origin: string, payload: option<list<u8>> })",
    "timed-out",
    "deadlock(string)",
    "refused(string)",
];

pub fn inspect(inspect: &Inspect, printer: &Printer) -> CommandResult {
    let bytes = local::read_module(&inspect.module, &inspect.node)?;
    if inspect.wit {
        let shown = inspect.module.display();
        let text = wit_text(&bytes).with_context(|| format!("cannot show the WIT of {shown}"))?;
        return printer.result(text.trim_end());
    }
    let node = local::start(&inspect.node, printer)?;
    let module = local::load_bytes(node.engine(), &inspect.module, &bytes, printer)?;
    match printer.output {
        Output::Json => printer.json(&to_json(&module, bytes.len())),
        _ => printer.result(to_text(&module, bytes.len())),
    }
}

fn kind(module: &Module) -> &'static str {
    match module.program() {
        Some(Program::Core) => "core program for preview1",
        Some(Program::Component) => "component with a program",
        None => "component",
    }
}

/// What is declared for a function, in words. The settings come most particular first, and the
/// first to say something about a thing decides it.
fn declared<'a>(settings: impl Iterator<Item = &'a FunctionSettings>) -> String {
    let settings: Vec<_> = settings.collect();
    let mut resources = Asked::default();
    for settings in settings.iter().rev() {
        resources.0.extend(settings.resources.0.clone());
    }
    let mut words = amounts(&resources);
    if let Some(limit) = settings.iter().find_map(|settings| settings.time_limit) {
        words.push(format!("at most {}", units::milliseconds(limit.ms)));
    }
    if let Some(retries) = settings.iter().find_map(|settings| settings.retries) {
        words.push(format!("{retries} retries"));
    }
    if settings.iter().find_map(|settings| settings.retry_on_error) == Some(true) {
        words.push("after errors that it returns, too".to_owned());
    }
    words.join(", ")
}

fn amounts(asked: &Asked) -> Vec<String> {
    let amount = |(name, amount): (_, &Amount)| format!("{name} {}", amount.display_for(name));
    asked.0.iter().map(amount).collect()
}

/// What is declared for an actor class, in words.
fn declared_of_class(settings: &ActorSettings) -> String {
    let mut words = amounts(&settings.resources);
    if let Some(restarts) = settings.restarts {
        words.push(format!("{restarts} restarts"));
    }
    if let Some(retries) = settings.call_retries {
        words.push(format!("{retries} retries of calls"));
    }
    if settings.deterministic {
        words.push("deterministic".to_owned());
    }
    words.join(", ")
}

/// The settings of a class, by its full name or its own, as the node looks them up.
fn settings_of<'a>(module: &'a Module, class: &Class) -> Option<&'a ActorSettings> {
    let actors = &module.manifest().actors;
    let full = actors.get(&class.full_name());
    full.or_else(|| actors.get(&class.name))
}

/// A way to fail: the name of a case, if the error has cases, and what it carries.
type Failing<'a> = (Option<&'a str>, Option<&'a ValueType>);

/// The ways in which a function can say that it has failed; empty if it cannot.
fn errors(ty: &FunctionType) -> Vec<Failing<'_>> {
    let Some(ValueType::Result(result)) = ty.result() else {
        return Vec::new();
    };
    match &result.err {
        Some(ValueType::Variant(variant)) => {
            let cases = variant.cases.iter();
            cases
                .map(|(name, ty)| (Some(&**name), ty.as_ref()))
                .collect()
        }
        Some(ValueType::Enum(names)) => {
            let cases = names.cases.iter();
            cases.map(|name| (Some(&**name), None)).collect()
        }
        err => vec![(None, err.as_ref())],
    }
}

/// The SDK's error as it stands in types.
fn error_type() -> String {
    format!("variant {{ {} }}", ERROR_CASES.join(", "))
}

/// A function's type, with a name for the SDK's error.
fn shown(ty: &FunctionType) -> String {
    ty.to_string().replace(&error_type(), "error")
}

/// The lines that say how a function can fail, each with what stands before it.
fn failures(ty: &FunctionType, indent: &str) -> String {
    if let Some(ValueType::Result(result)) = ty.result()
        && let Some(err) = &result.err
        && err.to_string() == error_type()
    {
        return format!("\n{indent}fails with error");
    }
    let errors = errors(ty);
    let shown = errors.iter().map(|failing| match failing {
        (Some(name), Some(ty)) => format!("{name}({ty})"),
        (Some(name), None) => (*name).to_owned(),
        (None, Some(ty)) => ty.to_string(),
        (None, None) => "an error that carries nothing".to_owned(),
    });
    match &shown.collect::<Vec<_>>()[..] {
        [] => String::new(),
        [one] => format!("\n{indent}fails with {one}"),
        many => {
            let line = format!("\n{indent}  ");
            format!("\n{indent}fails with one of{line}{}", many.join(&line))
        }
    }
}

fn class_text(module: &Module, class: &Class) -> String {
    let mut text = class.full_name();
    let constructor = class.constructor.ty.to_string();
    // Of a constructor the parameters say all.
    let parameters = constructor.strip_prefix("func").unwrap_or(&constructor);
    text.push_str(&format!("\n    constructor{parameters}"));
    for Method { name, ty, .. } in &class.methods {
        let (shown, failures) = (shown(ty), failures(ty, "      "));
        text.push_str(&format!("\n    {name}: {shown}{failures}"));
    }
    if class.can_checkpoint() {
        text.push_str(
            "\n    keeps its state when it is started again: it has checkpoint and restore",
        );
    }
    match settings_of(module, class).map(declared_of_class) {
        Some(words) if !words.is_empty() => text.push_str(&format!("\n    needs {words}")),
        _ => {}
    }
    text
}

/// Whether the SDK's error is part of a type.
fn has_error(module: &Module) -> bool {
    let methods = module.classes().iter().flat_map(|class| &class.methods);
    let functions = module.functions().iter().map(|function| &function.ty);
    let mut types = functions.chain(methods.map(|method| &method.ty));
    types.any(|ty| ty.to_string().contains(&error_type()))
}

fn to_text(module: &Module, size: usize) -> String {
    let mut lines = vec![
        format!("digest     {}", module.digest()),
        format!("kind       {}, {}", kind(module), units::bytes(size as u64)),
    ];
    let mut section = |title: &str, entries: Vec<String>| {
        if !entries.is_empty() {
            lines.push(format!("\n{title}"));
            lines.extend(entries.into_iter().map(|entry| format!("  {entry}")));
        }
    };
    let needs = |name: &str| match declared(module.manifest().settings(name)) {
        words if words.is_empty() => String::new(),
        words => format!("\n      needs {words}"),
    };
    let function = |f: &Function| {
        let name = f.full_name();
        format!(
            "{name}: {}{}{}",
            shown(&f.ty),
            failures(&f.ty, "      "),
            needs(&name)
        )
    };
    if module.program().is_some() {
        section("program", vec![format!("{PROGRAM}{}", needs(PROGRAM))]);
    }
    if module.is_http_handler() {
        let handler = format!(
            "{HTTP}: answers HTTP requests, by `wasmrun serve`{}",
            needs(HTTP)
        );
        section("handler", vec![handler]);
    }
    section(
        "functions",
        module.functions().iter().map(function).collect(),
    );
    let classes = module.classes().iter();
    section(
        "actors",
        classes.map(|class| class_text(module, class)).collect(),
    );
    if has_error(module) {
        let cases = ERROR_CASES.join("\n    ");
        section("types", vec![format!("error: one of\n    {cases}")]);
    }
    let skipped = module.skipped().iter();
    section(
        "not tasks",
        skipped
            .map(|s| format!("{}: {}", s.name, s.reason))
            .collect(),
    );
    section("imports", module.imports().to_vec());
    if !module.manifest().is_empty() {
        section("manifest", vec![module.manifest().to_json()]);
    }
    lines.join("\n")
}

fn params(ty: &FunctionType) -> Json {
    let params = ty.params().iter();
    params
        .map(|(name, ty)| json!({"name": **name, "type": ty.to_string()}))
        .collect()
}

/// The ways to fail; null for a function that cannot say that it has.
fn errors_json(ty: &FunctionType) -> Json {
    match errors(ty) {
        errors if errors.is_empty() => Json::Null,
        errors => errors
            .into_iter()
            .map(|(name, ty)| json!({"case": name, "type": ty.map(ToString::to_string)}))
            .collect(),
    }
}

fn class_json(module: &Module, class: &Class) -> Json {
    let methods = class.methods.iter().map(|Method { name, ty, .. }| {
        json!({
            "name": name,
            "params": params(ty),
            "result": ty.result().map(ToString::to_string),
            "errors": errors_json(ty),
        })
    });
    let settings = settings_of(module, class).map(serde_json::to_value);
    json!({
        "name": class.name,
        "interface": class.interface,
        "full_name": class.full_name(),
        "constructor": {"params": params(&class.constructor.ty)},
        "methods": methods.collect::<Json>(),
        "can_checkpoint": class.can_checkpoint(),
        "settings": settings.and_then(Result::ok),
    })
}

fn to_json(module: &Module, size: usize) -> Json {
    let functions = module.functions().iter().map(|f| {
        json!({
            "name": f.name,
            "interface": f.interface,
            "full_name": f.full_name(),
            "params": params(&f.ty),
            "result": f.ty.result().map(ToString::to_string),
            "errors": errors_json(&f.ty),
        })
    });
    let skipped = module
        .skipped()
        .iter()
        .map(|s| json!({"name": s.name, "reason": s.reason}));
    let manifest: Json = serde_json::from_str(&module.manifest().to_json()).unwrap_or(Json::Null);
    json!({
        "version": 1,
        "digest": module.digest().to_string(),
        "kind": match module.program() {
            Some(Program::Core) => "core-program",
            Some(Program::Component) | None => "component",
        },
        "program": module.program().is_some(),
        "http_handler": module.is_http_handler(),
        "size_bytes": size,
        "functions": functions.collect::<Json>(),
        "actors": module.classes().iter().map(|class| class_json(module, class)).collect::<Json>(),
        "skipped": skipped.collect::<Json>(),
        "imports": module.imports(),
        "manifest": manifest,
    })
}
