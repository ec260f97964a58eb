//! The Python package: its wheel, and its tests on that wheel.
//!
//! Owns where its tools live: virtual environments below `target/python`, made from PyPI as needed; nothing of the machine's own
//! Python is touched. Must not: be needed by those who have no Python: whoever asks is told so and goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell::{self, cargo, command, root, target_dir};

/// The oldest Python that the package is for.
const OLDEST: (u32, u32) = (3, 11);
const MATURIN: &str = "maturin==1.16.0";
const COMPONENTIZE: &str = "componentize-py==0.25.0";
/// What the interpreter has inside, beside its standard library: pure Python, without dependencies.
const INSIDE: &str = "cloudpickle==3.1.3";
/// What the tests use beside the wheel: these versions, so that what passes today passes tomorrow.
const TESTED_WITH: [&str; 4] = [
    "numpy==2.4.6",
    "pytest==9.2.0",
    "mypy==2.4.1",
    // Pyright, with the Node that it runs on in its wheel: pyright's own downloads one.
    "basedpyright==1.40.2",
];

/// Whose types are checked as those of a user.
const EXAMPLES: [&str; 4] = [
    "python/monte_carlo.py",
    "python/parameter_server.py",
    "python/snippets.py",
    "three-languages/picture.py",
];

/// How the wheel's compiled parts are built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Release,
    /// With what the other steps of `cargo xtask test` have compiled.
    Dev,
}

/// Why there is no wheel on this machine, if there can be none.
pub fn missing() -> Option<&'static str> {
    let code = format!(
        "import sys, venv, ensurepip; sys.exit(sys.version_info < {:?})",
        OLDEST
    );
    let is_there = shell::succeeds(command("python3").args(["-c", &code]));
    (!is_there).then_some("there is no python3 of 3.11 or later with venv (Debian: python3-venv)")
}

/// Builds the wheel, with the program in it, and says where it is.
pub fn wheel(profile: Profile) -> Result<PathBuf> {
    if let Some(why) = missing() {
        bail!("{why}: install it, or build elsewhere");
    }
    let tools = environment("tools", &[MATURIN, COMPONENTIZE])?;
    let (folder, of_cargo): (&str, &[&str]) = match profile {
        Profile::Release => (
            "release",
            &["--release", "--package", "wasmrun", "--bin", "wasmrun"],
        ),
        // What the other steps have compiled: with other targets, dependencies have other features.
        Profile::Dev => ("debug", &["--workspace", "--all-targets"]),
    };
    let mut build = cargo();
    build.args(["build", "--quiet", "--locked"]).args(of_cargo);
    if profile == Profile::Dev {
        crate::check::lint(&mut build);
    }
    shell::run(&mut build)?;
    let program = target_dir().join(folder).join("wasmrun");
    bring_program(&program)?;
    bring_interpreter(&tools, &program)?;
    let wheels = target_dir().join("wheels");
    // One at a time: which one is installed is not to be guessed.
    let _ = fs::remove_dir_all(&wheels);
    let mut maturin = command(tools.join("bin/maturin"));
    maturin.args(["build", "--quiet", "--locked", "--manifest-path"]);
    maturin.arg("python/Cargo.toml").arg("--out").arg(&wheels);
    match profile {
        Profile::Release => maturin.arg("--release"),
        Profile::Dev => {
            crate::check::lint(&mut maturin);
            maturin.args(["--profile", "dev"])
        }
    };
    shell::run(&mut maturin)?;
    let found = fs::read_dir(&wheels)
        .with_context(|| format!("cannot read {}", wheels.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|it| it == "whl"));
    found.context("maturin has made no wheel")
}

/// `cargo xtask python`.
pub fn run() -> Result<()> {
    let wheel = wheel(Profile::Release)?;
    println!("{}", wheel.display());
    Ok(())
}

/// Installs the wheel in an environment of its own and runs the package's tests there.
pub fn test() -> Result<()> {
    let wheel = wheel(Profile::Dev)?;
    let fresh = target_dir().join("python/fresh");
    let _ = fs::remove_dir_all(&fresh);
    let wheel = wheel.to_str().context("the path of the wheel is no text")?;
    let packages: Vec<&str> = [wheel].into_iter().chain(TESTED_WITH).collect();
    let fresh = environment("fresh", &packages)?;
    let mut pytest = command(fresh.join("bin/python"));
    pytest.args([
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "python/tests",
    ]);
    // What is installed is tried, and not what lies in the checkout.
    pytest.env("PYTHONSAFEPATH", "1").env_remove("PYTHONPATH");
    pytest.env("WASMRUN_GUESTS", crate::guests::dir());
    pytest.env_remove("WASMRUN_ADDRESS");
    shell::run(&mut pytest)?;
    let mut mypy = command(fresh.join("bin/python"));
    mypy.args(["-m", "mypy", "--no-error-summary", "--cache-dir"]);
    mypy.arg(target_dir().join("python/mypy"));
    mypy.args(["--config-file", "python/pyproject.toml"]);
    mypy.env("PYTHONSAFEPATH", "1");
    shell::run(mypy.args(["-p", "wasmrun"]))?;
    let mut examples = command(fresh.join("bin/python"));
    examples.args(["-m", "mypy", "--no-error-summary", "--strict"]);
    examples
        .arg("--cache-dir")
        .arg(target_dir().join("python/mypy"));
    let paths = EXAMPLES.map(|it| Path::new("examples").join(it));
    shell::run(examples.args(&paths))?;
    let mut pyright = command(fresh.join("bin/basedpyright"));
    pyright.args(["--level", "error", "--project", "python/pyproject.toml"]);
    pyright.arg("--pythonpath").arg(fresh.join("bin/python"));
    shell::run(&mut pyright)
}

/// Lays out the package as it lies in the checkout, with what `cargo build` has made beside the program: no wheel is
/// built. Returns the folder for `PYTHONPATH`.
pub fn lay_out(program: &Path) -> Result<PathBuf> {
    let tools = environment("tools", &[COMPONENTIZE])?;
    bring_interpreter(&tools, program)?;
    let folder = target_dir().join("python/package");
    let package = folder.join("wasmrun");
    let _ = fs::remove_dir_all(&package);
    copy_all(&root().join("python/wasmrun"), &package)?;
    let compiled = program.with_file_name("lib_wasmrun.so");
    copy(&compiled, &package.join("_wasmrun.abi3.so"))?;
    Ok(folder)
}

/// A virtual environment with these packages.
fn environment(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = target_dir().join("python").join(name);
    if !folder.join("bin/python").exists() {
        shell::run(command("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    let mut pip: Command = command(folder.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
    ]);
    shell::run(pip.args(packages))?;
    Ok(folder)
}

/// Builds the component that runs Python in sandboxes, and puts it where maturin packs it: CPython, with `python/inside`.
fn bring_interpreter(tools: &Path, program: &Path) -> Result<()> {
    let package = root().join("python");
    let folder = target_dir().join("python/inside");
    let _ = fs::remove_dir_all(&folder);
    copy_all(&package.join("inside"), &folder)?;
    // Both sides have the same values and errors.
    for shared in ["_data.py", "_errors.py"] {
        let of_package = package.join("wasmrun").join(shared);
        copy(&of_package, &folder.join("wasmrun").join(shared))?;
    }
    let mut pip = command(tools.join("bin/python"));
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
    pip.args(["install", "--no-deps", "--target"]).arg(&folder);
    shell::run(pip.arg(INSIDE))?;
    let wit = folder.join("wit");
    copy_all(&root().join("wit"), &wit.join("deps/runtime"))?;
    let mut build = command(tools.join("bin/componentize-py"));
    build.args(["--quiet", "--wit-path"]).arg(&wit);
    build.args(["--world", "python", "componentize", "_app"]);
    build.arg("--python-path").arg(&folder);
    // Nothing of the machine's Python gets into it.
    build.env_remove("VIRTUAL_ENV").env_remove("PYTHONPATH");
    let component = package.join("wasmrun/python.wasm");
    shell::run(build.arg("--output").arg(&component))?;
    let mut immortal = command(tools.join("bin/python"));
    immortal.arg(package.join("immortal.py"));
    shell::run(immortal.arg(&component))?;
    let mut annotate = command(program);
    annotate.arg("annotate").arg(&component);
    annotate
        .arg("--manifest")
        .arg(package.join("inside/manifest.json"));
    annotate.args(["--quiet", "--out"]).arg(component);
    shell::run(&mut annotate)
}

/// Copies a file.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Copies a folder of texts, and those in it.
pub fn copy_all(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let path = entry?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => copy_all(&path, &to)?,
            false => copy(&path, &to)?,
        }
    }
    Ok(())
}

/// Puts the program where maturin packs it, without what only a debugger reads.
fn bring_program(program: &Path) -> Result<()> {
    let folder = root().join("python/wasmrun.data/scripts");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    shell::strip(program, &folder.join("wasmrun"))
}
