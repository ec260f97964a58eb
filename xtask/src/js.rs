//! The npm package and the one of `npm create wasmrun`: their tarballs, and the tests on those.
//!
//! Owns where its tools live: below `target/npm`, from the npm registry as needed; nothing of the machine's own is touched. Must
//! not: be needed by those who have no Node: the step says so and is skipped.

use std::env::consts::ARCH;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::inside;
use crate::python::{Profile, copy, copy_all};
use crate::shell::{self, cargo, command, root, target_dir};

/// The oldest Node that the package is for.
const OLDEST: u32 = 20;
/// What compiles the package and checks the examples: these versions, so that what passes today passes tomorrow.
const TOOLS: [&str; 2] = ["typescript@5.9.3", "@types/node@20.19.43"];
/// What builds the example of a service: the version that the interpreter is built with.
const COMPONENTIZE: &str = "@bytecodealliance/componentize-js@0.23.0";
/// Modules whose types are written for TypeScript and checked.
const TYPED: [&str; 3] = ["orders", "parameter-server", "fixture"];

/// Why there is no package on this machine, if there can be none.
pub fn missing() -> Option<&'static str> {
    let code = format!("process.exit(parseInt(process.versions.node) < {OLDEST} ? 1 : 0)");
    let is_there = shell::succeeds(command("node").args(["-e", &code]))
        && shell::succeeds(command("npm").arg("--version"));
    (!is_there).then_some("there is no node of 20 or later with npm (Debian: nodejs, npm)")
}

/// Packs the package, with the program in it, and says where it is.
fn pack(profile: Profile) -> Result<PathBuf> {
    if let Some(why) = missing() {
        bail!("{why}: install it, or build elsewhere");
    }
    let built = build(profile)?;
    let npm = target_dir().join("npm");
    let package = npm.join("package");
    let _ = fs::remove_dir_all(&package);
    let native = package.join("native");
    fs::create_dir_all(&native).with_context(|| format!("cannot make {}", native.display()))?;
    shell::strip(&built.join("wasmrun"), &native.join("wasmrun"))?;
    shell::strip(
        &built.join("libwasmrun_js.so"),
        &native.join("wasmrun.node"),
    )?;
    let ours = root().join("js");
    copy(&ours.join("README.md"), &package.join("README.md"))?;
    let description = description()?;
    fs::write(package.join("package.json"), &description)?;
    // Compiled where what it depends on is.
    let tools = npm.join("tools");
    install(&tools, &description, TOOLS)?;
    let _ = fs::remove_dir_all(tools.join("lib"));
    copy_all(&ours.join("lib"), &tools.join("lib"))?;
    copy(&ours.join("tsconfig.json"), &tools.join("tsconfig.json"))?;
    let mut tsc = command(tools.join("node_modules/.bin/tsc"));
    tsc.arg("--project").arg(&tools);
    tsc.arg("--outDir").arg(package.join("dist"));
    shell::run(&mut tsc)?;
    interpreter(&native.join("wasmrun"), &package.join("javascript.wasm"))?;
    tarball(&package)
}

/// Packs what `npm create wasmrun` runs, and says where it is.
fn pack_create() -> Result<PathBuf> {
    let of_package = format!(r#""wasmrun": "{}""#, env!("CARGO_PKG_VERSION"));
    let text = versioned("js/create/package.json")?;
    ensure!(
        text.contains(&of_package),
        "js/create/package.json has not {of_package}"
    );
    tarball(&root().join("js/create"))
}

/// Packs a folder.
fn tarball(folder: &Path) -> Result<PathBuf> {
    let npm = target_dir().join("npm");
    let mut pack = command("npm");
    pack.args(["pack", "--silent", "--pack-destination"]);
    let name = shell::read(pack.arg(&npm).current_dir(folder))?;
    Ok(npm.join(name.trim()))
}

/// Builds the interpreter, and puts it there, with its manifest.
pub fn interpreter(program: &Path, to: &Path) -> Result<()> {
    let mut annotate = command(program);
    annotate.arg("annotate").arg(inside::component()?);
    annotate.args(["--manifest", "js/inside/manifest.json"]);
    annotate.args(["--quiet", "--out"]);
    shell::run(annotate.arg(to))
}

/// Builds what is compiled, and says where it is.
fn build(profile: Profile) -> Result<PathBuf> {
    let (folder, of_cargo): (&str, &[&str]) = match profile {
        Profile::Release => (
            "release",
            &[
                "--release",
                "--package",
                "wasmrun",
                "--package",
                "wasmrun-js",
            ],
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
    Ok(target_dir().join(folder))
}

/// `package.json` for this platform.
fn description() -> Result<String> {
    const OS: &str = r#""os": ["linux"],"#;
    let text = versioned("js/package.json")?;
    let cpu = match ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = format!(r#"{OS} "cpu": ["{cpu}"], "libc": ["glibc"],"#);
    Ok(text.replace(OS, &platform))
}

/// The text of a `package.json`, which has our version.
fn versioned(path: &str) -> Result<String> {
    let text = fs::read_to_string(root().join(path));
    let text = text.with_context(|| format!("cannot read {path}"))?;
    let version = format!(r#""version": "{}""#, env!("CARGO_PKG_VERSION"));
    ensure!(text.contains(&version), "{path} has not {version}");
    Ok(text)
}

/// A folder with these packages, and those that its description names.
fn install(
    folder: &Path,
    description: &str,
    packages: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(folder.join("package.json"), description)?;
    let mut npm: Command = command("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund"]);
    shell::run(npm.args(packages).current_dir(folder))
}

/// `cargo xtask js`.
pub fn run() -> Result<()> {
    println!("{}", pack(Profile::Release)?.display());
    println!("{}", pack_create()?.display());
    Ok(())
}

/// Installs the tarballs in a folder of their own, runs the packages' tests there, checks and runs the examples, and tests the parts
/// of the interpreter.
pub fn test() -> Result<()> {
    let tarballs = [pack(Profile::Dev)?, pack_create()?];
    let fresh = target_dir().join("npm/fresh");
    let _ = fs::remove_dir_all(&fresh);
    let tools = TOOLS.iter().chain([&COMPONENTIZE]).map(Path::new);
    install(
        &fresh,
        r#"{ "private": true, "type": "module" }"#,
        tools.chain(tarballs.iter().map(PathBuf::as_path)),
    )?;
    copy_all(&root().join("js/tests"), &fresh.join("tests"))?;
    let examples = fresh.join("examples");
    copy_all(&root().join("examples/javascript"), &examples)?;
    for module in TYPED {
        let mut stubs = command(fresh.join("node_modules/.bin/wasmrun"));
        stubs.args(["--quiet", "stubs", "--lang", "ts", "--out"]);
        stubs.arg(examples.join(format!("{module}.d.ts")));
        stubs.arg(crate::guests::dir().join(format!("{module}.wasm")));
        shell::run(&mut stubs)?;
    }
    let mut tsc = command(fresh.join("node_modules/.bin/tsc"));
    tsc.args(["--strict", "--target", "es2022", "--module", "nodenext"]);
    tsc.arg("--outDir").arg(&examples);
    for entry in fs::read_dir(&examples)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "ts") {
            tsc.arg(path);
        }
    }
    shell::run(tsc.current_dir(&fresh))?;
    let mut node = command("node");
    // It finds the tests by their names.
    node.arg("--test").current_dir(&fresh);
    node.env("WASMRUN_GUESTS", crate::guests::dir());
    node.env("WASMRUN_CONFORMANCE", root().join("tests/conformance"));
    let digits = root().join("examples/parameter-server/data/digits.txt");
    node.env("WASMRUN_DIGITS", digits);
    node.env_remove("WASMRUN_ADDRESS");
    shell::run(&mut node)?;
    let installed = fresh.join("node_modules/wasmrun");
    inside::test(
        &installed.join("native/wasmrun"),
        &installed.join("javascript.wasm"),
    )
}
