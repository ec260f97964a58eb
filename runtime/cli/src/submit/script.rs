//! Scripts: `submit` and `run` have the interpreter of the Python package run a script or code, and that of the npm package a file of
//! JavaScript or TypeScript.
//!
//! Owns where those packages are. The guest reads its text from a variable, so that it needs no directory.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::args::{EnvArg, RunScript, Stubs, Submit};
use crate::fail::{CommandResult, Failure};
use crate::local;

/// Where the interpreter is, if not beside the program.
const PLACE: &str = "WASMRUN_PYTHON";
/// The same for JavaScript.
const JAVASCRIPT_PLACE: &str = "WASMRUN_JAVASCRIPT";
/// The variable that has the script. `python/inside/_app.py` takes it away before the script runs, and `js/inside/guest.ts` hides it.
const SCRIPT: &str = "WASMRUN_SCRIPT";
/// How long a script may be, in bytes.
const MOST_BYTES: u64 = 512 << 10;

enum Language {
    Python,
    JavaScript,
}

/// What a file is written in, if it is a script.
fn language(file: &Path) -> Option<Language> {
    match file.extension()?.to_str()? {
        "py" => Some(Language::Python),
        "js" | "mjs" | "jsx" | "ts" | "mts" | "tsx" => Some(Language::JavaScript),
        _ => None,
    }
}

/// What is to be run where `submit` names a script.
///
/// # Errors
/// The script cannot be read, or there is no interpreter.
pub fn interpreted(submit: &Submit) -> Result<Submit, Failure> {
    local::check_path(&submit.module)?;
    let script = &submit.module;
    let Some(language) = language(script) else {
        return Ok(submit.clone());
    };
    let name = script.display().to_string();
    if submit.invoke.is_some() || !submit.arg_file.is_empty() {
        return Err(Failure::usage(format!(
            "{name} is a script, which has no functions to call: leave --invoke and --arg-file away, and give it \
             arguments behind --"
        )));
    }
    let (module, text, given) = match language {
        Language::JavaScript => {
            let (module, text) = bundled(script)?;
            (module, text, vec![name.clone()])
        }
        Language::Python => {
            let text = script_text(script)?;
            (interpreter()?, text, vec!["-s".into(), name.clone()])
        }
    };
    if text.contains('\0') {
        return Err(Failure::usage(format!("{name} has a zero byte in it")));
    }
    let mut submit = submit.clone();
    if submit.name.is_none() {
        let stem = script.file_stem().unwrap_or_default();
        submit.name = Some(stem.to_string_lossy().into_owned());
    }
    submit.module = module;
    submit.task.grants.env.push(EnvArg(SCRIPT.into(), text));
    submit.args.splice(0..0, given);
    Ok(submit)
}

fn script_text(script: &Path) -> Result<String, Failure> {
    let text = local::read_file(
        script,
        MOST_BYTES,
        "modules that it imports (--dir, --env PYTHONPATH)",
    )
    .and_then(|bytes| String::from_utf8(bytes).context("it is no UTF-8"))
    .with_context(|| format!("cannot read the script {}", script.display()))?;
    Ok(text)
}

/// The interpreter of the npm package, and a file of JavaScript or TypeScript as one text, which only that package can make.
fn bundled(script: &Path) -> Result<(PathBuf, String), Failure> {
    let missing = || {
        Failure::usage(format!(
            "{name} is bundled and run by the npm package wasmrun, and this program is not that one's: \
             in a checkout `cargo xtask js` packs it: `npm install target/npm/wasmrun-*.tgz`, then `npx wasmrun submit {name}`. \
             Or name its javascript.wasm in {JAVASCRIPT_PLACE}",
            name = script.display()
        ))
    };
    let named = std::env::var_os(JAVASCRIPT_PLACE).filter(|it| !it.is_empty());
    let package = match &named {
        Some(named) => Path::new(named).parent().map(Path::to_owned),
        None => prefix().filter(|it| it.join("javascript.wasm").is_file()),
    };
    let package = package.ok_or_else(missing)?;
    let print = package.join("dist/inside/print.js");
    let printed = std::process::Command::new("node")
        .arg(&print)
        .arg(script)
        .stdin(std::process::Stdio::null())
        .output()
        .context("cannot run node, which bundles JavaScript: install Node 20 or later")?;
    if !printed.status.success() {
        let why = String::from_utf8_lossy(&printed.stderr);
        return Err(anyhow::anyhow!("{}", why.trim_end()).into());
    }
    let text = String::from_utf8(printed.stdout).context("the bundle is no UTF-8")?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Failure::usage(format!(
            "{} is {} KiB with what it imports, and at most {} KiB can be submitted: import less",
            script.display(),
            text.len() >> 10,
            MOST_BYTES >> 10
        )));
    }
    let module = named.map_or_else(|| package.join("javascript.wasm"), PathBuf::from);
    Ok((module, text))
}

/// What `run` has `submit` do.
///
/// # Errors
/// There is no interpreter, or what is named is no script.
pub fn program(run: &RunScript) -> Result<Submit, Failure> {
    match (&run.code, &run.script) {
        (Some(code), _) => {
            let mut submit = run.of(interpreter()?);
            submit.args.splice(0..0, ["-c".into(), code.clone()]);
            submit.name.get_or_insert_with(|| "code".into());
            Ok(submit)
        }
        (None, Some(script)) if language(script).is_some() => Ok(run.of(script.clone())),
        (None, Some(other)) => Err(Failure::usage(format!(
            "{} is no script: its name must end with .py, .js or .ts; `wasmrun submit` runs modules",
            other.display()
        ))),
        (None, None) => unreachable!("one of them is required"),
    }
}

/// Has the Python package write stubs: only it knows how types are called in Python.
///
/// # Errors
/// There is no package, or it could not.
pub fn python_stubs(stubs: &Stubs) -> CommandResult {
    let missing = || {
        Failure::usage(
            "stubs are written by the Python package, which is not beside this program: with its own Python, \
             `python -m wasmrun stubs MODULE` does the same",
        )
    };
    let prefix = prefix().ok_or_else(missing)?;
    let package = package(&prefix).ok_or_else(missing)?;
    let own = prefix.join("bin/python3");
    let mut writes = match own.is_file() {
        true => std::process::Command::new(own),
        false => {
            let mut python = std::process::Command::new("python3");
            python.env("PYTHONPATH", package.with_file_name(""));
            python.envs(std::env::current_exe().map(|it| ("WASMRUN_BIN", it)));
            python
        }
    };
    writes.args(["-m", "wasmrun", "stubs"]).arg(&stubs.module);
    if let Some(out) = &stubs.out {
        writes.arg("--out").arg(out);
    }
    // It takes the place of this program, and says what there is to say.
    let error = writes.exec();
    Err(anyhow::Error::new(error)
        .context("cannot run Python")
        .into())
}

/// Where this program is installed, as `PREFIX/bin/wasmrun`.
fn prefix() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.to_owned())
}

/// The Python package there: installed, or where the demo leaves it, if this is the `target` of a checkout.
fn package(prefix: &Path) -> Option<PathBuf> {
    let folders = std::fs::read_dir(prefix.join("lib"));
    let installed = folders
        .into_iter()
        .flatten()
        .flatten()
        .map(|folder| folder.path().join("site-packages/wasmrun"));
    let mut places = installed.chain([prefix.join("python/package/wasmrun")]);
    places.find(|place| place.join("python.wasm").is_file())
}

/// The interpreter: the one that is named, or that of the package which brought this program.
pub fn interpreter() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os(PLACE).filter(|it| !it.is_empty()) {
        return Ok(named.into());
    }
    prefix().and_then(|it| package(&it)).map(|it| it.join("python.wasm")).ok_or_else(|| {
        Failure::usage(format!(
            "there is no Python here: it comes with the Python package. In a checkout `cargo xtask demo` makes it for the \
             `wasmrun` there, and `cargo xtask python` builds a wheel: `pip install target/wheels/wasmrun-*.whl`. Or \
             name its python.wasm in {PLACE}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_found_where_it_is_installed_and_where_the_demo_leaves_it() {
        let prefix = tempfile::tempdir().unwrap();
        let prefix = prefix.path();
        assert_eq!(package(prefix), None);
        for place in [
            "python/package/wasmrun",
            "lib/python3.11/site-packages/wasmrun",
        ] {
            let place = prefix.join(place);
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("python.wasm"), "").unwrap();
            // What is installed comes first.
            assert_eq!(package(prefix), Some(place));
        }
    }
}
