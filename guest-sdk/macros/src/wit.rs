//! The WIT of a module, with what it needs of `wasmrun:runtime`.
//!
//! Owns the text that wit-bindgen reads. The contract itself is included from `wit/`, the one source.
//! Every name has a `%`, which is no part of it: so keywords are names like others.

use std::fmt::Write;

use crate::names::wit_id;
use crate::parse::{Class, Function, Parameter, Program};
use crate::types::{Case, Declaration, Field, Payload, Runtime, Shape, Wit};

/// The world of a module.
pub const WORLD: &str = "module";

const FILES: [&str; 5] = [
    include_str!("../../../wit/context.wit"),
    include_str!("../../../wit/objects.wit"),
    include_str!("../../../wit/tasks.wit"),
    include_str!("../../../wit/actors.wit"),
    include_str!("../../../wit/fast.wit"),
];

/// Has the package's name, on a line of its own, before its worlds.
const WORLDS: &str = include_str!("../../../wit/worlds.wit");

/// The package of the contract, as `namespace:name@version`, and its worlds.
fn contract() -> (&'static str, &'static str) {
    let (package, worlds) = WORLDS
        .trim_start()
        .split_once(';')
        .expect("worlds.wit begins with its package");
    let package = package
        .strip_prefix("package ")
        .expect("worlds.wit begins with its package");
    (package, worlds)
}

/// An interface of the contract, as `wasmrun:runtime/name@version`.
pub fn contract_interface(name: &str) -> String {
    let (package, _) = contract();
    let (id, version) = package.split_once('@').expect("the contract has a version");
    format!("{id}/{name}@{version}")
}

/// The WIT of a module.
pub fn text(program: &Program) -> String {
    let (namespace, name) = program
        .package
        .split_once(':')
        .expect("checked when it was read");
    let mut text = format!("package {}:{};\n\n", wit_id(namespace), wit_id(name));
    text += &interface(program);
    let _ = writeln!(
        text,
        "world {WORLD} {{\n  include {};\n  export {};\n}}\n",
        contract_interface("fast"),
        wit_id(&program.interface),
    );
    let (package, worlds) = contract();
    let _ = writeln!(text, "package {package} {{\n{}{worlds}}}", FILES.concat());
    text
}

fn interface(program: &Program) -> String {
    let mut text = documented("", &docs_of(&program.shell.attrs));
    let _ = writeln!(text, "interface {} {{", wit_id(&program.interface));
    let name = |ty: Runtime| wit_id(&runtime_name(program, ty));
    for ty in &program.runtime {
        let (interface, original) = origin(*ty);
        let local = runtime_name(program, *ty);
        let alias = if local == original {
            String::new()
        } else {
            format!(" as {}", wit_id(&local))
        };
        let interface = contract_interface(interface);
        let _ = writeln!(text, "  use {interface}.{{{original}{alias}}};");
    }
    for declaration in &program.declarations {
        text += &self::declaration(declaration, &name);
    }
    for class in &program.classes {
        text += &resource(class, &name);
    }
    for function in &program.functions {
        let head = format!("  {}: func", wit_id(&function.wit_name));
        text += &documented("  ", &function.docs);
        text += &self::function(&head, function, &name);
    }
    text + "}\n\n"
}

/// The interface of the contract that has the type, and its name there.
fn origin(ty: Runtime) -> (&'static str, &'static str) {
    match ty {
        Runtime::Object => ("objects", "object"),
        Runtime::Actor => ("actors", "actor"),
        Runtime::Error => ("objects", "error"),
    }
}

/// What the module calls a type of the contract: its name, unless that is taken.
fn runtime_name(program: &Program, ty: Runtime) -> String {
    let (_, name) = origin(ty);
    match program.has_name(name) {
        true => format!("wasmrun-runtime-{name}"),
        false => name.to_owned(),
    }
}

fn declaration(declaration: &Declaration, name: &impl Fn(Runtime) -> String) -> String {
    let mut text = String::new();
    let id = wit_id(&declaration.wit_name);
    match &declaration.shape {
        Shape::Record(fields) => {
            text += &record(&id, &declaration.docs, fields, name);
        }
        Shape::Variant(cases) => {
            for case in cases {
                if let Payload::Record(record_name, fields) = &case.payload {
                    text += &record(&wit_id(record_name), &case.docs, fields, name);
                }
            }
            let is_enum = cases
                .iter()
                .all(|case| matches!(case.payload, Payload::None));
            let keyword = if is_enum { "enum" } else { "variant" };
            text += &documented("  ", &declaration.docs);
            let _ = writeln!(text, "  {keyword} {id} {{");
            for case in cases {
                text += &documented("    ", &case.docs);
                let _ = writeln!(
                    text,
                    "    {}{},",
                    wit_id(&case.wit_name),
                    payload(case, name)
                );
            }
            text += "  }\n";
        }
    }
    text
}

fn record(
    id: &str,
    docs: &[String],
    fields: &[Field],
    name: &impl Fn(Runtime) -> String,
) -> String {
    let mut text = documented("  ", docs);
    let _ = writeln!(text, "  record {id} {{");
    for field in fields {
        text += &documented("    ", &field.docs);
        let _ = writeln!(
            text,
            "    {}: {},",
            wit_id(&field.wit_name),
            field.wit.text(name)
        );
    }
    text + "  }\n"
}

fn payload(case: &Case, name: &impl Fn(Runtime) -> String) -> String {
    match &case.payload {
        Payload::None => String::new(),
        Payload::Record(record, _) => format!("({})", wit_id(record)),
        Payload::Tuple(types) => match types.as_slice() {
            [(_, one)] => format!("({})", one.text(name)),
            several => {
                let parts = several.iter().map(|(_, wit)| wit.clone()).collect();
                format!("({})", Wit::Tuple(parts).text(name))
            }
        },
    }
}

fn resource(class: &Class, name: &impl Fn(Runtime) -> String) -> String {
    let mut text = documented("  ", &class.docs);
    let id = wit_id(&class.wit_name);
    let _ = writeln!(text, "  resource {id} {{");
    let _ = writeln!(
        text,
        "    constructor({});",
        parameters(&class.constructor, name)
    );
    for method in &class.methods {
        let head = format!("    {}: func", wit_id(&method.wit_name));
        text += &documented("    ", &method.docs);
        text += &function(&head, method, name);
    }
    if class.is_checkpointed {
        text += "    checkpoint: func() -> list<u8>;\n";
        let _ = writeln!(text, "    restore: static func(state: list<u8>) -> {id};");
    }
    text + "  }\n"
}

fn function(head: &str, function: &Function, name: &impl Fn(Runtime) -> String) -> String {
    let output = match &function.output {
        Some((_, wit)) => format!(" -> {}", wit.text(name)),
        None => String::new(),
    };
    format!(
        "{head}({}){output};\n",
        parameters(&function.parameters, name)
    )
}

fn parameters(parameters: &[Parameter], name: &impl Fn(Runtime) -> String) -> String {
    let parameters: Vec<String> = parameters
        .iter()
        .map(|parameter| {
            format!(
                "{}: {}",
                wit_id(&parameter.wit_name),
                parameter.wit.text(name)
            )
        })
        .collect();
    parameters.join(", ")
}

fn docs_of(attrs: &[syn::Attribute]) -> Vec<String> {
    crate::types::docs(attrs)
}

fn documented(indent: &str, docs: &[String]) -> String {
    docs.iter()
        .map(|line| format!("{indent}///{line}\n"))
        .collect()
}
