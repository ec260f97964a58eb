//! Checks that the crates under `runtime/` depend on each other only downwards, that `model` is
//! pure, and that guests depend on none of them.
//!
//! Owns the allowed dependencies. A new crate under `runtime/` must be added here.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

use crate::guests;
use crate::shell::{self, cargo, root};

/// Each crate under `runtime/`, from the bottom up, and which others it may use.
const LAYERS: &[(&str, &[&str])] = &[
    (MODEL, &[]),
    ("wasmrun-engine", &[MODEL]),
    ("wasmrun-store", &[MODEL]),
    ("wasmrun-net", &[MODEL]),
    ("wasmrun-control", &[MODEL]),
    // A dependency of build scripts, which should not build more of ours.
    ("wasmrun-bindgen", &[]),
    ("wasmrun-client", &[MODEL, "wasmrun-store", "wasmrun-net"]),
    (
        "wasmrun-mcp",
        &[MODEL, "wasmrun-store", "wasmrun-net", "wasmrun-client"],
    ),
    (
        "wasmrun-dashboard",
        &[MODEL, "wasmrun-store", "wasmrun-net", "wasmrun-client"],
    ),
    ("wasmrun-telemetry", &[MODEL]),
    ("wasmrun-oidc", &[MODEL]),
    (
        "wasmrun-node",
        &[
            MODEL,
            "wasmrun-engine",
            "wasmrun-store",
            "wasmrun-net",
            "wasmrun-control",
            "wasmrun-oidc",
        ],
    ),
    (
        "wasmrun",
        &[
            MODEL,
            "wasmrun-engine",
            "wasmrun-store",
            "wasmrun-net",
            "wasmrun-control",
            "wasmrun-node",
            "wasmrun-client",
            "wasmrun-mcp",
            "wasmrun-dashboard",
            "wasmrun-telemetry",
            "wasmrun-oidc",
            "wasmrun-bindgen",
        ],
    ),
];

pub const MODEL: &str = "wasmrun-model";

/// What `model` must not bring in: threads, clocks, sockets, files, randomness and the sandbox.
/// Each stands for itself and for everything named after it (`tokio-util`).
const IMPURE: &[&str] = &[
    "async-std",
    "crossbeam",
    "fastrand",
    "getrandom",
    "libc",
    "memmap2",
    "mio",
    "nix",
    "quinn",
    "rand",
    "rayon",
    "redb",
    "rustix",
    "rustls",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
    "wasi",
    "wasmtime",
    "windows-sys",
    "windows-targets",
];

/// The crates under `runtime/` depend only on what `LAYERS` allows.
pub fn check() -> Result<()> {
    let members = runtime_members()?;
    for member in &members {
        let Some((_, may_use)) = LAYERS.iter().find(|(name, _)| name == member) else {
            bail!("`{member}` is new under runtime/: say in xtask/src/layers.rs what it may use");
        };
        for used in dependencies(&["--package", member])? {
            let is_allowed = used == *member || may_use.contains(&used.as_str());
            ensure!(
                !members.contains(&used) || is_allowed,
                "`{member}` uses `{used}`, which is not below it; a lower layer never names a \
                 higher one, and engine, store and net never each other"
            );
        }
    }
    for manifest in guests::MANIFESTS {
        for used in dependencies(&["--workspace", "--manifest-path", manifest])? {
            ensure!(
                !members.contains(&used),
                "{manifest} uses `{used}`; guests depend on guest-sdk and wit/ alone"
            );
        }
    }
    Ok(())
}

/// `model` brings in nothing that touches the world outside.
pub fn check_model() -> Result<()> {
    for used in dependencies(&["--package", MODEL])? {
        let named_after = |name: &&&str| {
            used.strip_prefix(**name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        if let Some(name) = IMPURE.iter().find(named_after) {
            bail!(
                "`{MODEL}` depends on `{used}` (`{name}` is not for it): time, randomness and I/O \
                 enter model as arguments. `cargo tree -p {MODEL} -e normal -i {used}` says why"
            );
        }
    }
    Ok(())
}

/// The packages under `runtime/`.
fn runtime_members() -> Result<BTreeSet<String>> {
    let args = [
        "tree",
        "--locked",
        "--workspace",
        "--depth",
        "0",
        "--prefix",
        "none",
    ];
    let tree = shell::read(cargo().args(args).args(["--format", "{p}"]))?;
    let runtime = format!("({}", root().join("runtime").display());
    let lines = tree.lines().filter(|line| line.contains(&runtime));
    let members: BTreeSet<String> = lines.filter_map(first_word).collect();
    ensure!(
        !members.is_empty(),
        "cargo tree shows no package under runtime/"
    );
    Ok(members)
}

/// Everything that is linked into these packages, directly or not.
fn dependencies(which: &[&str]) -> Result<BTreeSet<String>> {
    let args = [
        "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}",
    ];
    let tree = shell::read(cargo().args(args).args(which))?;
    let names: BTreeSet<String> = tree.lines().filter_map(first_word).collect();
    ensure!(
        !names.is_empty(),
        "cargo tree shows nothing for {}",
        which.join(" ")
    );
    Ok(names)
}

fn first_word(line: &str) -> Option<String> {
    line.split_whitespace().next().map(str::to_owned)
}

/// `model` compiles for a machine with no threads, no sockets and no operating system.
pub fn check_model_on_wasm() -> Result<()> {
    let mut check = cargo();
    check.args([
        "check",
        "--quiet",
        "--locked",
        "--package",
        MODEL,
        "--target",
        guests::P1,
    ]);
    // With the guests, whose folder is cleaned when the standard library changes.
    check.arg("--target-dir").arg(guests::build_dir());
    shell::run(&mut check).context("model must stay free of what only some machines have")
}
