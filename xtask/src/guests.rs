//! Builds every guest and puts it where tests, the demo and people find it: `target/guests`.
//!
//! Owns the list of guests. Their cargo output is in `target/guests-build`, so that one folder
//! is all there is to cache or delete.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::shell::{self, cargo, root};
use crate::wasm_std;

/// The WebAssembly targets, as rustc names them.
pub const P1: &str = "wasm32-wasip1";
pub const P2: &str = "wasm32-wasip2";
pub const TARGETS: [&str; 2] = [P1, P2];

/// A folder of guests: a cargo workspace of its own, because its code is for another machine.
struct Workspace {
    dir: &'static str,
    /// The cargo packages. Each makes a component of its name.
    guests: &'static [&'static str],
    /// Those that make a module for WASI 0.1 too, whose name ends in `-p1`.
    for_p1: &'static [&'static str],
}

const WORKSPACES: &[Workspace] = &[
    Workspace {
        dir: "tests/guests",
        guests: &[
            "bench",
            "conformance",
            "faults",
            "fixture",
            "flow",
            "graph",
            "hello",
            "sdk",
            "service",
            "spread",
            "web",
            "prog",
        ],
        for_p1: &["fixture", "sdk", "prog"],
    },
    Workspace {
        dir: "examples",
        guests: &[
            "code-stats",
            "csv-to-json",
            "render",
            "assemble",
            "orders",
            "word-count",
            "reinforce",
            "parameter-server",
            "image-pipeline",
            "by-hand",
            "primes",
        ],
        for_p1: &["code-stats"],
    },
];

/// The manifest of each guest workspace, and of the SDK they build on.
pub const MANIFESTS: [&str; 3] = [
    "guest-sdk/Cargo.toml",
    "tests/guests/Cargo.toml",
    "examples/Cargo.toml",
];

/// Where the finished modules are.
pub fn dir() -> PathBuf {
    root().join("target/guests")
}

/// Cargo's output folder for all guest workspaces.
pub fn build_dir() -> PathBuf {
    root().join("target/guests-build")
}

/// Builds all guests and returns the folder they are in. Near-instant when nothing changed.
pub fn build() -> Result<PathBuf> {
    build_some(&TARGETS, |_| true)
}

/// The same with those packages alone, as components.
pub fn build_these(packages: &[&str]) -> Result<PathBuf> {
    build_some(&[P2], |package| packages.contains(&package))
}

fn build_some(targets: &[&str], is_wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let start = Instant::now();
    wasm_std::ensure(targets)?;
    std::fs::create_dir_all(dir()).with_context(|| format!("cannot create {}", dir().display()))?;
    let mut count = 0;
    let mut changed = 0;
    for workspace in WORKSPACES {
        for target in targets {
            let (built, new) = build_for(workspace, target, &is_wanted)?;
            count += built;
            changed += new;
        }
    }
    let time = shell::seconds(start.elapsed());
    eprintln!("guests: {count} in target/guests, {changed} new or changed ({time})");
    Ok(dir())
}

/// Builds a workspace's guests for one target. Returns how many there are and how many changed.
fn build_for(
    workspace: &Workspace,
    target: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(usize, usize)> {
    let (guests, suffix) = match target {
        P1 => (workspace.for_p1, "-p1"),
        _ => (workspace.guests, ""),
    };
    let wanted: Vec<&str> = guests.iter().copied().filter(|it| is_wanted(it)).collect();
    if wanted.is_empty() {
        return Ok((0, 0));
    }
    let output = build_dir().join(target).join("release");
    if wanted
        .iter()
        .any(|package| !made(&output, package).exists())
    {
        eprintln!("guests: building {} for {target}…", workspace.dir);
    }
    let mut build = cargo();
    build.args([
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--target",
        target,
    ]);
    build
        .arg("--manifest-path")
        .arg(format!("{}/Cargo.toml", workspace.dir));
    build.arg("--target-dir").arg(build_dir());
    for package in &wanted {
        build.args(["--package", package]);
    }
    shell::run(&mut build)?;

    let mut changed = 0;
    for package in &wanted {
        let (from, to) = (made(&output, package), format!("{package}{suffix}.wasm"));
        changed += usize::from(copy_if_changed(&from, &dir().join(to))?);
    }
    Ok((wanted.len(), changed))
}

/// What cargo made of a package. A library's file has underscores for hyphens, a program's keeps them; no
/// package here is both.
fn made(output: &Path, package: &str) -> PathBuf {
    let library = output.join(format!("{}.wasm", package.replace('-', "_")));
    if library.exists() {
        return library;
    }
    output.join(format!("{package}.wasm"))
}

/// Copies a file unless the copy is there already; a reader never sees half of it.
fn copy_if_changed(from: &Path, to: &Path) -> Result<bool> {
    let bytes = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if std::fs::read(to).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let partial = to.with_extension("partial");
    std::fs::write(&partial, bytes)
        .and_then(|()| std::fs::rename(&partial, to))
        .with_context(|| format!("cannot write {}", to.display()))?;
    Ok(true)
}
