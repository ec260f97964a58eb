//! `wasmrun stubs`: what type checkers of Python and TypeScript need to know of a module, or Rust code for drivers.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use wasmrun_bindgen::{BindgenError, Module};

use crate::args::{Language, Stubs};
use crate::fail::CommandResult;
use crate::local;
use crate::outfile;
use crate::printer::{self, Printer};
use crate::stdio;
use crate::submit;

pub fn stubs(stubs: &Stubs, printer: &Printer) -> CommandResult {
    match stubs.lang {
        Language::Python => submit::python_stubs(stubs),
        Language::Rust => {
            let what = "for programs that use wasmrun-client";
            written(stubs, printer, ("rs", what), Module::generate)
        }
        Language::Ts => {
            let what = "for TypeScript that uses the npm package";
            written(stubs, printer, ("d.ts", what), Module::typescript)
        }
    }
}

fn written(
    stubs: &Stubs,
    printer: &Printer,
    (extension, what): (&str, &str),
    code: impl Fn(&Module) -> Result<String, BindgenError>,
) -> CommandResult {
    local::check_path(&stubs.module)?;
    let beside = || stubs.module.with_extension(extension);
    let out = stubs.out.clone().unwrap_or_else(beside);
    let is_printed = out == Path::new("-");
    if !is_printed {
        outfile::check(&out)?;
    }
    let code = code(&Module::from_file(&stubs.module)?)?;
    if is_printed {
        return printer::written(stdio::output().write_all(code.as_bytes()));
    }
    let shown = out.display();
    outfile::replace(&out, code.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    printer.note(format_args!("{shown}: {what}"));
    Ok(())
}
