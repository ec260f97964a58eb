//! `wasmrun stubs`: what type checkers of Python need to know of a module, or Rust code for drivers.

use anyhow::Context;
use wasmrun_bindgen::Module;

use crate::args::{Language, Stubs};
use crate::fail::CommandResult;
use crate::local;
use crate::outfile;
use crate::printer::Printer;
use crate::submit;

pub fn stubs(stubs: &Stubs, printer: &Printer) -> CommandResult {
    match stubs.lang {
        Language::Python => submit::python_stubs(stubs),
        Language::Rust => rust_stubs(stubs, printer),
    }
}

fn rust_stubs(stubs: &Stubs, printer: &Printer) -> CommandResult {
    local::check_path(&stubs.module)?;
    let beside = || stubs.module.with_extension("rs");
    let out = stubs.out.clone().unwrap_or_else(beside);
    outfile::check(&out)?;
    let code = Module::from_file(&stubs.module)?.generate()?;
    let shown = out.display();
    outfile::replace(&out, code.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    printer.note(format_args!(
        "{shown}: for programs that use wasmrun-client"
    ));
    Ok(())
}
