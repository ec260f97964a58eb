//! The manifest: what the attributes declare, as JSON.
//!
//! Owns its text. The host owns what may stand in it. Nothing to say makes no manifest, so that a module
//! without amounts can have one from elsewhere.

use std::fmt::Write;

use crate::parse::Program;
use crate::settings::{ActorSettings, Amounts, ModuleSettings, TaskSettings};

/// The manifest of a module, if its attributes declare anything.
pub fn text(program: &Program) -> Option<String> {
    let mut functions = Vec::new();
    if !program.settings.tasks.is_empty() {
        functions.push(pair("*", &task(&program.settings.tasks)));
    }
    for function in program.functions.iter().filter(|f| !f.settings.is_empty()) {
        functions.push(pair(&function.wit_name, &task(&function.settings)));
    }
    let mut actors = Vec::new();
    for class in program.classes.iter().filter(|c| !c.settings.is_empty()) {
        actors.push(pair(&class.wit_name, &actor(&class.settings)));
    }
    let capabilities = capabilities(&program.settings);

    let mut parts = vec![pair("version", "1")];
    for (name, fields) in [
        ("functions", functions),
        ("actors", actors),
        ("capabilities", capabilities),
    ] {
        if !fields.is_empty() {
            parts.push(pair(name, &object(&fields)));
        }
    }
    (parts.len() > 1).then(|| object(&parts))
}

fn task(settings: &TaskSettings) -> String {
    let mut fields = Vec::new();
    if !settings.resources.is_empty() {
        fields.push(pair("resources", &amounts(&settings.resources)));
    }
    if !settings.alternatives.is_empty() {
        let list: Vec<String> = settings.alternatives.iter().map(amounts).collect();
        fields.push(pair("alternatives", &format!("[{}]", list.join(","))));
    }
    if let Some(retries) = settings.retries {
        fields.push(pair("retries", &retries.to_string()));
    }
    if settings.retry_on_error {
        fields.push(pair("retry_on_error", "true"));
    }
    if let Some(limit) = &settings.time_limit {
        fields.push(pair("time_limit", &string(limit)));
    }
    object(&fields)
}

fn actor(settings: &ActorSettings) -> String {
    let mut fields = Vec::new();
    if !settings.resources.is_empty() {
        fields.push(pair("resources", &amounts(&settings.resources)));
    }
    if let Some(restarts) = settings.restarts {
        fields.push(pair("restarts", &restarts.to_string()));
    }
    if let Some(retries) = settings.call_retries {
        fields.push(pair("call_retries", &retries.to_string()));
    }
    if settings.deterministic {
        fields.push(pair("deterministic", "true"));
    }
    object(&fields)
}

fn capabilities(settings: &ModuleSettings) -> Vec<String> {
    let lists = [
        ("dirs", &settings.dirs),
        ("net", &settings.net),
        ("http", &settings.http),
        ("env", &settings.env),
        ("secrets", &settings.secrets),
    ];
    let mut fields = Vec::new();
    for (name, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
        let list: Vec<String> = list.iter().map(|text| string(text)).collect();
        fields.push(pair(name, &format!("[{}]", list.join(","))));
    }
    fields
}

fn amounts(amounts: &Amounts) -> String {
    let fields: Vec<String> = amounts
        .iter()
        .map(|(name, amount)| pair(name, &string(amount)))
        .collect();
    object(&fields)
}

fn object(fields: &[String]) -> String {
    format!("{{{}}}", fields.join(","))
}

fn pair(name: &str, value: &str) -> String {
    format!("{}:{value}", string(name))
}

/// A JSON string.
fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\0'..='\x1f' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
