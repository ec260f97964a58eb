//! `cargo xtask test`: everything CI checks, in order, stopping at the first thing wrong.
//!
//! Owns the steps, cheap ones first. CI runs this very command and nothing else, so that what
//! passes here passes there. Warnings are errors, but not by way of `RUSTFLAGS`: another set of
//! flags would have cargo build everything twice. Clippy denies them, rustc's own among them, while it
//! compiles what the tests run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::guests::{self, MANIFESTS, P2};
use crate::shell::{self, cargo, root, seconds};
use crate::{browser, debian, demo, folders, js, layers, outside, python, tutorial};

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn() -> Result<Outcome>,
}

enum Outcome {
    Done,
    /// All but what this machine has no part for: a line for each reason.
    Partly(Vec<String>),
    /// There was nothing to check, and why.
    Skipped(&'static str),
}

const FUZZ: &str = "fuzz/Cargo.toml";

const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        what: "every workspace is formatted",
        run: fmt,
    },
    Step {
        name: "outside",
        what: "nothing points out of the checkout",
        run: stands_alone,
    },
    Step {
        name: "layers",
        what: "crates depend only downwards, and their folders form no cycles",
        run: crate_layers,
    },
    Step {
        name: "comparisons",
        what: "the comparisons with Ray and other servers read and print what they should, without those",
        run: comparisons,
    },
    Step {
        name: "guests",
        what: "all guests build",
        run: build_guests,
    },
    Step {
        name: "model",
        what: "model is pure and compiles for wasm32",
        run: pure_model,
    },
    Step {
        name: "guest-clippy",
        what: "no warnings in guests and the SDK",
        run: guest_clippy,
    },
    Step {
        name: "build",
        what: "every crate, binary and test builds without warnings",
        run: build,
    },
    Step {
        name: "tests",
        what: "unit and end-to-end tests",
        run: tests,
    },
    Step {
        name: "simulation",
        what: "whole nodes, schedulers, objects, gossip and the control store's records under faults, many seeds",
        run: simulation,
    },
    Step {
        name: "guest-tests",
        what: "tests of guests and the SDK, run natively",
        run: guest_tests,
    },
    Step {
        name: "tutorial",
        what: "the tutorial's commands print what it says",
        run: follow_tutorial,
    },
    Step {
        name: "demo",
        what: "the demo's acts, small, say and make what they should",
        run: play_demo,
    },
    Step {
        name: "browser",
        what: "a node's page shows what it should, in a real browser",
        run: look_at_page,
    },
    Step {
        name: "python",
        what: "the Python package's tests pass on its wheel, in a fresh environment",
        run: test_python,
    },
    Step {
        name: "js",
        what: "the npm package's tests pass on its tarball, in a fresh folder, its examples fit its types, and its interpreter's tests pass",
        run: test_js,
    },
    Step {
        name: "doc-tests",
        what: "examples in the documentation run",
        run: doc_tests,
    },
    Step {
        name: "docs",
        what: "documentation builds without warnings",
        run: docs,
    },
    Step {
        name: "fuzz",
        what: "fuzz targets build",
        run: fuzz,
    },
];

/// Runs all steps, or those named.
pub fn run(args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--list") {
        STEPS
            .iter()
            .for_each(|step| println!("{:<14}{}", step.name, step.what));
        return Ok(());
    }
    if let Some(unknown) = args
        .iter()
        .find(|arg| STEPS.iter().all(|step| step.name != **arg))
    {
        bail!("no such step: {unknown} (`cargo xtask test --list` names them)");
    }
    let chosen = STEPS
        .iter()
        .filter(|step| args.is_empty() || args.iter().any(|a| a == step.name));
    let start = Instant::now();
    let mut passed = 0;
    let mut skipped = Vec::new();
    for step in chosen {
        eprintln!("── {}: {}", step.name, step.what);
        let step_start = Instant::now();
        let outcome = (step.run)().with_context(|| format!("step `{}` failed", step.name))?;
        match outcome {
            Outcome::Done => {}
            Outcome::Partly(without) => skipped.extend(without),
            Outcome::Skipped(why) => {
                eprintln!("   {} skipped: {why}", step.name);
                skipped.push(format!("{} skipped: {why}", step.name));
                continue;
            }
        }
        passed += 1;
        let took = seconds(step_start.elapsed());
        eprintln!("   {} passed in {took}", step.name);
    }
    let skipped = match skipped.as_slice() {
        [] => String::new(),
        some => format!("; {}", some.join("; ")),
    };
    let steps = if passed == 1 { "step" } else { "steps" };
    eprintln!(
        "test: {passed} {steps} passed in {}{skipped}",
        seconds(start.elapsed())
    );
    Ok(())
}

/// Runs a command with its output shown.
fn all_of(commands: impl IntoIterator<Item = Command>) -> Result<Outcome> {
    for mut command in commands {
        shell::run(&mut command)?;
    }
    Ok(Outcome::Done)
}

fn with(args: &[&str]) -> Command {
    let mut command = cargo();
    command.args(args);
    command
}

/// A command on the main workspace whose crates Clippy compiles: what it warns of is an error, and what it has compiled
/// is what the tests run. `cargo clippy` would read all crates, and all that they depend on, once more.
fn linted(args: &[&str]) -> Command {
    let mut command = with(&args[..1]);
    command.args(["--quiet", "--locked"]).args(&args[1..]);
    lint(&mut command);
    command
}

/// Has Clippy compile the crates of the main workspace.
pub fn lint(command: &mut Command) {
    command.env("RUSTC_WORKSPACE_WRAPPER", clippy_driver());
    // As `cargo clippy -- -D warnings` says it to the driver.
    command.env(
        "CLIPPY_ARGS",
        "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
    );
}

/// Clippy as a compiler. It lies beside the cargo that runs us, or rustup finds it.
fn clippy_driver() -> PathBuf {
    let name = format!("clippy-driver{}", std::env::consts::EXE_SUFFIX);
    let beside = std::env::var_os("CARGO").map(|cargo| Path::new(&cargo).with_file_name(&name));
    beside
        .filter(|driver| driver.is_file())
        .unwrap_or_else(|| name.into())
}

/// A command on a guest workspace, which has its own lock file and our folder for its output.
fn on_guests(action: &str, manifest: &str, args: &[&str]) -> Command {
    let mut command = with(&[action, "--quiet", "--locked", "--workspace"]);
    command
        .args(["--manifest-path", manifest, "--target-dir"])
        .arg(guests::build_dir())
        .args(args);
    command
}

fn fmt() -> Result<Outcome> {
    let has_fuzz = root().join(FUZZ).exists();
    let manifests = ["Cargo.toml"]
        .into_iter()
        .chain(MANIFESTS)
        .chain(has_fuzz.then_some(FUZZ));
    all_of(
        manifests.map(|manifest| with(&["fmt", "--all", "--check", "--manifest-path", manifest])),
    )
    .context("`cargo fmt --all` mends it (with `--manifest-path` for other workspaces)")
}

fn stands_alone() -> Result<Outcome> {
    if !outside::is_git_checkout() {
        return Ok(Outcome::Skipped("not a git checkout"));
    }
    outside::check()?;
    Ok(Outcome::Done)
}

fn crate_layers() -> Result<Outcome> {
    layers::check()?;
    folders::check()?;
    Ok(Outcome::Done)
}

fn comparisons() -> Result<Outcome> {
    if !shell::succeeds(shell::command("python3").arg("--version")) {
        return Ok(Outcome::Skipped("there is no python3"));
    }
    let tests = ["against_ray_test.py", "against_serve_test.py"];
    all_of(tests.map(|test| {
        let mut command = shell::command("python3");
        // Its compiled form would lie in the checkout.
        command.arg("-B").arg(format!("xtask/src/{test}"));
        command.arg("--quiet");
        command
    }))
}

fn build_guests() -> Result<Outcome> {
    guests::build()?;
    Ok(Outcome::Done)
}

fn pure_model() -> Result<Outcome> {
    layers::check_model()?;
    layers::check_model_on_wasm()?;
    Ok(Outcome::Done)
}

fn guest_clippy() -> Result<Outcome> {
    for manifest in MANIFESTS {
        // As guests, and natively with their tests.
        shell::run(&mut on_guests(
            "clippy",
            manifest,
            &["--target", P2, "--", "-D", "warnings"],
        ))?;
        shell::run(&mut on_guests(
            "clippy",
            manifest,
            &["--all-targets", "--", "-D", "warnings"],
        ))?;
    }
    Ok(Outcome::Done)
}

fn build() -> Result<Outcome> {
    // End-to-end tests run the binary, which `cargo test` alone would not always build.
    all_of([linted(&["build", "--workspace", "--all-targets"])])
}

fn tests() -> Result<Outcome> {
    let mut test = linted(&["test", "--workspace", "--lib", "--bins", "--tests"]);
    // Whoever waits for so long is told of all that is wrong.
    test.arg("--no-fail-fast");
    // Most of them wait for processes, timers and the network, and use half a core each.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        test.env("RUST_TEST_THREADS", (2 * cores).to_string());
    }
    debian::name_to(&mut test)?;
    let list = shell::target_dir().join("skipped-tests");
    // Of an earlier run.
    let _ = fs::remove_file(&list);
    test.env("WASMRUN_SKIPPED", &list);
    shell::run(&mut test)?;
    // There is none where nothing was skipped.
    let list = fs::read_to_string(&list).unwrap_or_default();
    Ok(match why_skipped(&list) {
        none if none.is_empty() => Outcome::Done,
        some => Outcome::Partly(some),
    })
}

/// Why tests, or parts of them, were skipped, and how often, from a list with a line for each.
fn why_skipped(list: &str) -> Vec<String> {
    let mut by_reason = BTreeMap::<&str, usize>::new();
    for why in list.lines() {
        *by_reason.entry(why).or_default() += 1;
    }
    let said = by_reason.into_iter().map(|(why, count)| match count {
        1 => format!("skipped once: {why}"),
        more => format!("skipped {more} times: {why}"),
    });
    said.collect()
}

/// How many seeds each simulation of the model is tried with here. `cargo test` alone tries fewer.
const SEEDS: &str = "2000";
/// The same for gossip, of clusters that are larger.
const GOSSIP_SEEDS: &str = "400";
/// The same for whole nodes, for what they have in the control store, for placement groups, and for the disk of the store.
const CLUSTER_SEEDS: &str = "200";

/// `cargo xtask simulate`: all simulations, with so many seeds each.
pub(crate) fn simulate(seeds: &str) -> Result<()> {
    simulations(Some(seeds)).map(|_| ())
}

fn simulation() -> Result<Outcome> {
    simulations(None)
}

fn simulations(seeds: Option<&str>) -> Result<Outcome> {
    // Of the model alone, dependencies would have other features, and all of it be compiled once more.
    let of_model = |tests: &[&str]| {
        let mut test = linted(&["test", "--workspace"]);
        test.args(tests.iter().flat_map(|it| ["--test", it]));
        test
    };
    let mut test = of_model(&["simulation", "objects"]);
    let mut gossip = of_model(&["gossip"]);
    let mut cluster = linted(&[
        "test",
        "--workspace",
        "--lib",
        "--",
        "cluster::simulation",
        "peers::simulation",
        "group::simulation",
        "embedded::tests::faults",
    ]);
    if let Some(seeds) = seeds {
        for command in [&mut test, &mut gossip, &mut cluster] {
            command.env("WASMRUN_SEEDS", seeds);
        }
    } else if std::env::var_os("WASMRUN_SEED").is_none()
        && std::env::var_os("WASMRUN_SEEDS").is_none()
    {
        test.env("WASMRUN_SEEDS", SEEDS);
        gossip.env("WASMRUN_SEEDS", GOSSIP_SEEDS);
        cluster.env("WASMRUN_SEEDS", CLUSTER_SEEDS);
    }
    all_of([test, gossip, cluster])
}

fn guest_tests() -> Result<Outcome> {
    all_of(MANIFESTS.map(|manifest| on_guests("test", manifest, &[])))
}

fn follow_tutorial() -> Result<Outcome> {
    tutorial::follow()?;
    Ok(Outcome::Done)
}

fn play_demo() -> Result<Outcome> {
    Ok(match demo::check()? {
        None => Outcome::Done,
        Some(without) => Outcome::Partly(vec![without]),
    })
}

fn look_at_page() -> Result<Outcome> {
    if let Some(why) = browser::missing() {
        if std::env::var_os("WASMRUN_REQUIRE_CHROMIUM").is_some() {
            bail!("{why}, and WASMRUN_REQUIRE_CHROMIUM is set");
        }
        return Ok(Outcome::Skipped(why));
    }
    browser::check()?;
    Ok(Outcome::Done)
}

/// Builds what the page's pictures need, and makes them.
pub(crate) fn screenshots() -> Result<()> {
    guests::build()?;
    build()?;
    browser::screenshots()
}

fn doc_tests() -> Result<Outcome> {
    all_of([linted(&["test", "--workspace", "--doc"])])
}

fn test_python() -> Result<Outcome> {
    if let Some(why) = python::missing() {
        if std::env::var_os("WASMRUN_REQUIRE_PYTHON").is_some() {
            bail!("{why}, and WASMRUN_REQUIRE_PYTHON is set");
        }
        return Ok(Outcome::Skipped(why));
    }
    python::test()?;
    Ok(Outcome::Done)
}

fn test_js() -> Result<Outcome> {
    if let Some(why) = js::missing() {
        if std::env::var_os("WASMRUN_REQUIRE_JS").is_some() {
            bail!("{why}, and WASMRUN_REQUIRE_JS is set");
        }
        return Ok(Outcome::Skipped(why));
    }
    js::test()?;
    Ok(Outcome::Done)
}

fn docs() -> Result<Outcome> {
    let main = with(&["doc", "--quiet", "--locked", "--workspace", "--no-deps"]);
    let sdk = on_guests("doc", "guest-sdk/Cargo.toml", &["--no-deps"]);
    all_of([main, sdk].map(|mut command| {
        command.env("RUSTDOCFLAGS", "-D warnings");
        command
    }))
}

fn fuzz() -> Result<Outcome> {
    if !root().join(FUZZ).exists() {
        return Ok(Outcome::Skipped("there is no fuzz crate"));
    }
    // libFuzzer is C++.
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut build = match shell::succeeds(shell::command(compiler).arg("--version")) {
        true => with(&["build"]),
        false => with(&["check", "--no-default-features"]),
    };
    build.args(["--quiet", "--locked", "--manifest-path", FUZZ]);
    build
        .arg("--target-dir")
        .arg(root().join("target/fuzz-build"));
    fs::create_dir_all(root().join("target"))?;
    all_of([build])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_counted_by_reason() {
        assert!(why_skipped("").is_empty());
        let said = why_skipped("no etcd\nno wires\nno etcd\n");
        assert_eq!(said, ["skipped 2 times: no etcd", "skipped once: no wires"]);
    }
}
