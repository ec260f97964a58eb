//! Whole modules through the macro: the WIT and the manifest that come out, and the errors with their
//! places.

use wit_parser::{Resolve, WorldItem};

use crate::parse::{self, Import, Program};
use crate::{emit, manifest, wit};

/// Reads a module as the attribute does, in a crate named `my-guest`.
fn read(options: &str, module: &str) -> syn::Result<Program> {
    let settings = syn::parse_str(options)?;
    parse::program(settings, "my_guest", Vec::new(), syn::parse_str(module)?)
}

fn good(options: &str, module: &str) -> Program {
    read(options, module).unwrap_or_else(|error| panic!("{error}"))
}

/// The errors of a module: what is underlined, and the message.
fn errors(module: &str) -> Vec<(String, String)> {
    let Err(errors) = read("", module) else {
        panic!("no error in {module}");
    };
    errors
        .into_iter()
        .map(|error| {
            (
                error.span().source_text().unwrap_or_default(),
                error.to_string(),
            )
        })
        .collect()
}

/// The module has one error, at `place`, which says `part`.
#[track_caller]
fn refused(module: &str, place: &str, part: &str) {
    let errors = errors(module);
    let [(found, message)] = errors.as_slice() else {
        panic!("not one error: {errors:?}");
    };
    assert!(message.contains(part), "{message}");
    assert_eq!(found, place, "{message}");
}

/// A task with a parameter of this type is refused there.
#[track_caller]
fn refused_type(ty: &str, part: &str) {
    refused(
        &format!("mod app {{ #[task] pub fn f(x: {ty}) {{}} }}"),
        ty,
        part,
    );
}

const MODULE: &str = r##"
    /// Does things.
    pub mod my_app {
        use wasmrun_guest::prelude::*;

        /// A record.
        pub struct Part { pub seed: u64, pub r#type: Option<Kind>, next: Option<Future<Part>> }
        pub enum Kind { Small, LargeOne }
        pub enum Shape { Dot, Circle(f64), Rect(u8, i8), Star { points: u32 } }
        type Money = u64;
        struct Unused<T>(T);

        #[task(cpus = 0.5, memory = "64MiB", retries = 3, retry_on_error, time_limit = "30s",
               resources(FPGA = 1), alternative(cpus = 4), alternative(gpus = "0.25"))]
        pub fn sample(part: Part, shapes: Vec<Shape>, price: Money) -> Result<(), String> { todo!() }
        #[task]
        pub fn nothing() {}
        #[task]
        fn hand_on(a: Future<()>, c: CounterHandle, m: Mapped<f32>, e: Result<(), ()>) -> Result<char, Error> {
            todo!()
        }
        pub fn helper(x: usize) {}

        #[actor(memory = "64MiB", restarts = 2, call_retries = 0, deterministic)]
        pub struct Counter { n: u64 }
        #[actor]
        impl Counter {
            pub fn new(start: u64) -> Self { todo!() }
            pub fn incr(&mut self, by: u64) -> u64 { todo!() }
            fn private(&self, x: usize) {}
            pub fn checkpoint(&self) -> Vec<u8> { todo!() }
            pub fn restore(state: Vec<u8>) -> Self { todo!() }
        }
    }
"##;

#[test]
fn the_wit_is_what_the_types_say() {
    let program = good("", MODULE);
    let text = wit::text(&program);
    let (module, _) = text.split_once("world module").unwrap();
    let plain = module.replace('%', "");
    let expected = "\
package my-guest:my-guest;

/// Does things.
interface my-app {
  use wasmrun:runtime/objects@0.1.0.{object};
  use wasmrun:runtime/actors@0.1.0.{actor};
  use wasmrun:runtime/objects@0.1.0.{error};
  enum kind {
    small,
    large-one,
  }
  /// A record.
  record part {
    seed: u64,
    type: option<kind>,
    next: option<object>,
  }
  record shape-star {
    points: u32,
  }
  variant shape {
    dot,
    circle(f64),
    rect(tuple<u8, s8>),
    star(shape-star),
  }
  resource counter {
    constructor(start: u64);
    incr: func(by: u64) -> u64;
    checkpoint: func() -> list<u8>;
    restore: static func(state: list<u8>) -> counter;
  }
  sample: func(part: part, shapes: list<shape>, price: u64) -> result<_, string>;
  nothing: func();
  hand-on: func(a: object, c: actor, m: object, e: result) -> result<char, error>;
}

";
    assert_eq!(plain, expected);
}

#[test]
fn the_wit_is_read_and_exports_both_lanes() {
    let text = wit::text(&good("package = \"my:record\"", MODULE));
    let mut resolve = Resolve::default();
    let package = resolve.push_str("module.wit", &text).unwrap();
    let world = resolve.select_world(&[package], Some(wit::WORLD)).unwrap();
    let exports = &resolve.worlds[world].exports;
    let name = |item: &WorldItem| match item {
        WorldItem::Interface { id, .. } => resolve.id_of(*id),
        _ => None,
    };
    let names: Vec<String> = exports.values().filter_map(name).collect();
    assert_eq!(names, ["my:record/my-app", "wasmrun:runtime/calls@0.1.0"]);
}

#[test]
fn the_manifest_is_what_the_attributes_say() {
    let program = good("cpus = 1, env(\"A\\\"B\")", MODULE);
    let expected = concat!(
        r#"{"version":1,"functions":{"*":{"resources":{"CPU":"1"}},"#,
        r#""sample":{"resources":{"CPU":"0.5","FPGA":"1","memory":"64MiB"},"#,
        r#""alternatives":[{"CPU":"4"},{"GPU":"0.25"}],"retries":3,"retry_on_error":true,"time_limit":"30s"}},"#,
        r#""actors":{"counter":{"resources":{"memory":"64MiB"},"restarts":2,"call_retries":0,"deterministic":true}},"#,
        r#""capabilities":{"env":["A\"B"]}}"#,
    );
    assert_eq!(manifest::text(&program).as_deref(), Some(expected));
    let silent = good(
        "",
        "mod app { #[task] fn f() {} #[actor] struct C; #[actor] impl C { pub fn new() -> C { C } } }",
    );
    assert_eq!(manifest::text(&silent), None);
}

#[test]
fn what_is_written_is_rust() {
    let tokens = emit::module(&good("", MODULE));
    let file: syn::File = syn::parse2(tokens).unwrap();
    assert_eq!(file.items.len(), 1);
}

#[test]
fn a_type_from_elsewhere_is_known_by_its_name() {
    let import = Import {
        path: syn::parse_str("crate::shapes::Shape").unwrap(),
        item: syn::parse_str("pub enum Shape { Dot, Line(f32) }").unwrap(),
    };
    let module = "mod app { #[task] fn f(s: Vec<Shape>) {} }";
    let settings = syn::parse_str("").unwrap();
    let module = syn::parse_str(module).unwrap();
    let program =
        parse::program(settings, "g", vec![import], module).unwrap_or_else(|e| panic!("{e}"));
    assert!(wit::text(&program).contains("%line(f32)"));
    assert!(program.declarations[0].is_imported);
}

#[test]
fn names_that_the_contract_uses_are_free() {
    let module = "mod app { pub struct Object { n: u8 } #[task] fn error(o: Object, f: Future<u8>) -> Result<(), Error> {} }";
    let text = wit::text(&good("", module));
    assert!(
        text.contains("{object as %wasmrun-runtime-object}"),
        "{text}"
    );
    let mut resolve = Resolve::default();
    resolve.push_str("module.wit", &text).unwrap();
}

#[test]
fn types_without_a_place_are_refused_with_advice() {
    refused_type(
        "Foo",
        "type `Foo` is neither declared in this module nor known: declare it here",
    );
    refused_type("usize", "use `u64` or `u32`");
    refused_type("u128", "has no type in WIT");
    refused_type("HashMap<String, u8>", "use `Vec<(K, V)>`");
    refused_type("Box<u8>", "use the value itself");
    refused_type("&str", "take `String`");
    refused_type("&[u8]", "take `Vec<u8>`");
    refused_type("[u8; 4]", "use `Vec<u8>`");
    refused_type("()", "`()` is no value");
    refused_type("impl Into<u8>", "write a concrete type");
    refused_type("Result<u8>", "`Result<T, E>`");
    refused_type("Vec", "is not complete");
    refused_type("fn(u8)", "cannot cross between tasks");
    // Within others, only the wrong part is underlined.
    refused(
        "mod app { #[task] fn f(x: Vec<(u8, usize)>) {} }",
        "usize",
        "`u64`",
    );
    refused(
        "mod app { #[task] fn f() -> Future<usize> {} }",
        "usize",
        "`u64`",
    );
    refused(
        "mod app { #[task] fn f(x: Mapped<bool>) {} }",
        "bool",
        "only numbers",
    );
    refused(
        "mod app { #[task] fn f(x: Vec<Mapped<u8>>) {} }",
        "Mapped<u8>",
        "whole parameter",
    );
}

#[test]
fn declarations_that_wit_has_not_are_refused() {
    let with = |declaration: &str| format!("mod app {{ {declaration} #[task] fn f(x: S) {{}} }}");
    refused(
        &with("struct S { a: u8, b: Foo }"),
        "Foo",
        "neither declared",
    );
    refused(&with("struct S { next: Vec<S> }"), "S", "holds itself");
    refused(&with("struct S<T> { a: T }"), "<T>", "cannot be generic");
    refused(
        &with("struct S(u8);"),
        "(u8)",
        "the fields of a record have names",
    );
    refused(&with("struct S;"), "S", "no fields");
    refused(&with("enum S {}"), "S", "no cases");
    refused(
        &with("struct S { get_2: u8 }"),
        "get_2",
        "join it to the word before",
    );
    refused(
        &with("struct S { aB: u8, a_b: u8 }"),
        "a_b",
        "two fields are `a-b`",
    );
    refused(
        &with("struct S { #[serde(skip)] a: u8 }"),
        "skip",
        "changes the bytes",
    );
    refused(
        &with("#[derive(Serialize)] struct S { a: u8 }"),
        "#[derive(Serialize)]",
        "both",
    );
    // What nobody uses may be anything.
    good("", "mod app { struct S<T>(T); #[task] fn f() {} }");
}

#[test]
fn functions_that_wit_has_not_are_refused() {
    refused(
        "mod app { #[task] async fn f() {} }",
        "async",
        "tasks are not async",
    );
    refused(
        "mod app { #[task] fn f<T>(x: T) {} }",
        "<T>",
        "cannot be generic",
    );
    refused(
        "mod app { #[task] fn f((a, b): (u8, u8)) {} }",
        "(a, b)",
        "has a name here",
    );
    refused(
        "mod app { #[task] #[cfg(test)] fn f() {} }",
        "#[cfg(test)]",
        "same in every build",
    );
    refused("mod app { fn f() {} }", "app", "no tasks and no actors");
    refused(
        "mod app { struct Go { a: u8 } #[task] fn go(x: Go) {} }",
        "go",
        "both `go` in WIT",
    );
    refused(
        "mod app { #[task] mod m {} #[task] fn f() {} }",
        "#[task]",
        "only functions are tasks",
    );
}

#[test]
fn amounts_are_checked_where_they_stand() {
    refused(
        "mod app { #[task(cpus = \"abc\")] fn f() {} }",
        "\"abc\"",
        "`abc` is no amount",
    );
    refused(
        "mod app { #[task(memory = \"64XB\")] fn f() {} }",
        "\"64XB\"",
        "no unit of memory",
    );
    refused(
        "mod app { #[task(time_limit = \"soon\")] fn f() {} }",
        "\"soon\"",
        "no duration",
    );
    refused(
        "mod app { #[task(resources(\"9x\" = 1))] fn f() {} }",
        "\"9x\"",
        "no resource's name",
    );
    refused(
        "mod app { #[task(cpu = 1)] fn f() {} }",
        "cpu",
        "a task takes cpus, gpus",
    );
    refused(
        "mod app { #[task(retries = -1)] fn f() {} }",
        "-1",
        "a whole number such as 3",
    );
    refused(
        "mod app { #[task(cpus = 1, cpus = 2)] fn f() {} }",
        "cpus",
        "twice",
    );
    let actor =
        "mod app { #[actor(retries = 1)] struct C; #[actor] impl C { pub fn new() -> C { C } } }";
    refused(actor, "retries", "an actor takes");
}

#[test]
fn actors_are_checked() {
    let with = |calls: &str| {
        format!(
            "mod app {{ #[actor] struct C; #[actor] impl C {{ pub fn new() -> Self {{ C }} {calls} }} }}"
        )
    };
    refused("mod app { #[actor] struct C; }", "C", "has no calls");
    refused(
        "mod app { #[task] fn f() {} #[actor] impl C {} }",
        "C",
        "this is no actor",
    );
    refused(
        "mod app { #[actor] struct C; #[actor] impl C {} }",
        "C",
        "no constructor",
    );
    refused(&with("pub fn create() {}"), "create", "is generated");
    refused(&with("pub fn f() {}"), "f", "takes `&self` or `&mut self`");
    refused(&with("pub fn f(self) {}"), "self", "outlives its calls");
    refused(
        &with("pub fn f(&self, other: C) {}"),
        "C",
        "its handle, `CHandle`",
    );
    refused(
        &with("pub fn checkpoint(&self) -> Vec<u8> {}"),
        "checkpoint",
        "needs its way back",
    );
    refused(
        &with("pub fn checkpoint(&self) -> u8 {} pub fn restore(s: Vec<u8>) -> Self {}"),
        "fn checkpoint(&self) -> u8",
        "state as bytes",
    );
    let fallible =
        "mod app { #[actor] struct C; #[actor] impl C { pub fn new() -> Option<C> { None } } }";
    refused(fallible, "-> Option<C>", "a constructor returns `Self`");
}

#[test]
fn all_errors_are_told_at_once() {
    let module = "mod app {
        pub struct Part { a: usize, b: Foo }
        pub enum Kind { A(u128), B { c: Bar } }
        #[task(cpus = \"x\")] fn f(a: Part, b: &str) -> Box<u8> {}
        #[task] fn g(a: Vec<Part>, k: Kind) -> HashMap<u8, u8> {}
    }";
    let places: Vec<String> = errors(module).into_iter().map(|(place, _)| place).collect();
    let expected = [
        "\"x\"",
        "usize",
        "Foo",
        "&str",
        "Box<u8>",
        "u128",
        "Bar",
        "HashMap<u8, u8>",
    ];
    assert_eq!(places, expected);
}

#[test]
fn packages_are_checked() {
    let error = |options: &str| match read(options, "mod app { #[task] fn f() {} }") {
        Ok(_) => panic!("{options} was accepted"),
        Err(error) => error.to_string(),
    };
    assert!(error("package = \"app\"").contains("`app` is no package"));
    assert!(error("package = \"My:app\"").contains("is no package"));
    assert!(error("package = \"my:type\"").contains("`type` is a keyword of Rust"));
    assert!(error("color = 1").contains("a module takes package"));
}
