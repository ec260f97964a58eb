//! Python scripts: `submit script.py` runs the interpreter of the Python package with the script's text.
//!
//! Owns where the interpreter is. The guest reads its text from a variable, so that it needs no directory.

use std::path::PathBuf;

use anyhow::Context;

use crate::args::{EnvArg, Submit};
use crate::fail::Failure;
use crate::local;

/// Where the interpreter is, if not beside the program.
const PLACE: &str = "WASMRUN_PYTHON";
/// The variable that has the script. `python/inside/_app.py` takes it away before the script runs.
const SCRIPT: &str = "WASMRUN_SCRIPT";
/// How long a script may be, in bytes.
const MOST_BYTES: u64 = 512 << 10;

/// What is to be run where `submit` names a script.
///
/// # Errors
/// The script cannot be read, or there is no interpreter.
pub fn interpreted(submit: &Submit) -> Result<Submit, Failure> {
    let mut submit = submit.clone();
    let script = submit.module.clone();
    if script.extension().is_none_or(|it| it != "py") {
        return Ok(submit);
    }
    let name = script.display().to_string();
    if submit.invoke.is_some() || !submit.arg_file.is_empty() {
        return Err(Failure::usage(format!(
            "{name} is a script, which has no functions to call: leave --invoke and --arg-file away, and give it \
             arguments behind --"
        )));
    }
    let text = local::read_file(
        &script,
        MOST_BYTES,
        "modules that it imports (--dir, --env PYTHONPATH)",
    )
    .and_then(|bytes| String::from_utf8(bytes).context("it is no UTF-8"))
    .with_context(|| format!("cannot read the script {name}"))?;
    if text.contains('\0') {
        return Err(Failure::usage(format!("{name} has a zero byte in it")));
    }
    submit.module = interpreter()?;
    if submit.name.is_none() {
        let stem = script.file_stem().unwrap_or_default();
        submit.name = Some(stem.to_string_lossy().into_owned());
    }
    submit.grants.env.push(EnvArg(SCRIPT.into(), text));
    let given = ["-s".into(), name];
    submit.args.splice(0..0, given);
    Ok(submit)
}

/// The interpreter: the one that is named, or that of the package which brought this program.
pub fn interpreter() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os(PLACE).filter(|it| !it.is_empty()) {
        return Ok(named.into());
    }
    let beside = std::env::current_exe().ok().and_then(|program| {
        let lib = program.parent()?.parent()?.join("lib");
        let folders = std::fs::read_dir(lib).ok()?;
        let places = folders.flatten().map(|folder| {
            let packages = folder.path().join("site-packages");
            packages.join("wasmrun/python.wasm")
        });
        places.into_iter().find(|place| place.is_file())
    });
    beside.ok_or_else(|| {
        Failure::usage(format!(
            "there is no Python here: it comes with the Python package; in a checkout `cargo xtask python` \
             builds that, `pip install target/wheels/wasmrun-*.whl` installs it, and its `wasmrun` has it. Or name its \
             python.wasm in {PLACE}"
        ))
    })
}
