//! `wasmrun inspect`: what is in a module.

use anyhow::Context;
use serde_json::{Value as Json, json};
use wasmrun_engine::{Function, Module, Program, wit_text};
use wasmrun_model::manifest::{Asked, FunctionSettings, PROGRAM};
use wasmrun_model::resource::Amount;
use wasmrun_model::units;

use crate::args::{Inspect, Output};
use crate::fail::CommandResult;
use crate::local;
use crate::printer::Printer;

pub fn inspect(inspect: &Inspect, printer: &Printer) -> CommandResult {
    let bytes = local::read_module(&inspect.module, &inspect.node)?;
    if inspect.wit {
        let shown = inspect.module.display();
        let text = wit_text(&bytes).with_context(|| format!("cannot show the WIT of {shown}"))?;
        return printer.result(text.trim_end());
    }
    let node = local::start(&inspect.node, printer)?;
    let module = local::load(node.engine(), &inspect.module, &inspect.node, printer)?;
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
    let amount = |(name, amount): (_, &Amount)| format!("{name} {}", amount.display_for(name));
    let mut words: Vec<String> = resources.0.iter().map(amount).collect();
    if let Some(limit) = settings.iter().find_map(|settings| settings.time_limit) {
        words.push(format!("at most {}", units::milliseconds(limit.ms)));
    }
    if let Some(retries) = settings.iter().find_map(|settings| settings.retries) {
        words.push(format!("{retries} retries"));
    }
    words.join(", ")
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
        format!("{name}: {}{}", f.ty, needs(&name))
    };
    if module.program().is_some() {
        section("program", vec![format!("{PROGRAM}{}", needs(PROGRAM))]);
    }
    section(
        "functions",
        module.functions().iter().map(function).collect(),
    );
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

fn to_json(module: &Module, size: usize) -> Json {
    let functions = module.functions().iter().map(|f| {
        let params = f.ty.params().iter();
        json!({
            "name": f.name,
            "interface": f.interface,
            "full_name": f.full_name(),
            "params": params.map(|(n, t)| json!({"name": **n, "type": t.to_string()})).collect::<Json>(),
            "result": f.ty.result().map(ToString::to_string),
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
        "size_bytes": size,
        "functions": functions.collect::<Json>(),
        "skipped": skipped.collect::<Json>(),
        "imports": module.imports(),
        "manifest": manifest,
    })
}
