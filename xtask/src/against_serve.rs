//! `cargo xtask bench --against serve`: one component behind `wasmrun serve` and `wasmtime serve`, and the same answer by
//! Ray Serve and by a bare HTTP server, in turn.
//!
//! Owns which servers there are and what must be installed for them. `against_serve.py` runs and measures them.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{self, cargo, target_dir};
use crate::{bench, demo, guests};

const SCRIPT: &str = "xtask/src/against_serve.py";

/// What answers. It imports WASI alone: `wasmtime serve` refuses modules that import more.
const GUEST: &str = "hello";

/// In the order in which they are measured.
const SERVERS: [&str; 4] = ["hyper", "wasmrun", "wasmtime", "ray"];

/// Ray with what its servers need. In an environment of its own: they would start with every Ray.
const RAY_SERVE: &str = "ray[serve]==2.60.*";

/// What `wasmtime serve` is made of: all that its speed depends on, nothing of the other commands.
const FEATURES: &str =
    "run,serve,component-model-async,cranelift,parallel-compilation,pooling-allocator";

/// Installs the servers that are named, or all, and measures them.
pub fn run(args: &[&str]) -> Result<()> {
    let (names, options) = choose(args)?;
    if shell::command("wrk").arg("--version").output().is_err() {
        bail!(
            "there is no wrk, which sends the requests: install it with `apt-get install wrk` (Debian, \
             Ubuntu) or your system's own package of that name"
        );
    }
    let guest = guests::build_these(&[GUEST])?.join(format!("{GUEST}.wasm"));
    let mut measure = bench::alone(Path::new("python3"));
    measure.arg(SCRIPT).args(options).arg(guest);
    for name in names {
        let program = program(name)?;
        measure.arg(format!("{name}={}", program.display()));
    }
    bench::compare(&mut measure)
}

/// The servers that are asked for, and the options of the script.
fn choose<'a>(args: &[&'a str]) -> Result<(Vec<&'a str>, &'static [&'static str])> {
    let (names, options): (_, &[&str]) = match args {
        [names @ .., "-o", "json"] => (names, &["-o", "json"]),
        names => (names, &[]),
    };
    if let Some(unknown) = names.iter().find(|name| !SERVERS.contains(name)) {
        bail!(
            "no such server: {unknown}; there are {}, and `-o json` at the end",
            SERVERS.join(", ")
        );
    }
    Ok(match names {
        [] => (SERVERS.to_vec(), options),
        names => (names.to_vec(), options),
    })
}

/// The program that is or runs a server.
fn program(name: &str) -> Result<PathBuf> {
    match name {
        "hyper" => bare_http(),
        "wasmrun" => demo::build_wasmrun(demo::Build::Release),
        "wasmtime" => wasmtime(),
        _ => bench::environment("against/ray-serve", &[RAY_SERVE]),
    }
}

fn bare_http() -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--locked", "--release"]);
    build.args(["--package", "xtask", "--example", "bare_http"]);
    shell::run(&mut build)?;
    let program = format!("release/examples/bare_http{}", env::consts::EXE_SUFFIX);
    Ok(target_dir().join(program))
}

/// The command of the wasmtime that is in wasmrun, built when it is first needed.
fn wasmtime() -> Result<PathBuf> {
    let lock = std::fs::read_to_string(shell::root().join("Cargo.lock"))?;
    let release = locked(&lock, "wasmtime").context("Cargo.lock has no wasmtime")?;
    let home = target_dir().join(format!("against/wasmtime-{release}"));
    let program = home.join(format!("bin/wasmtime{}", env::consts::EXE_SUFFIX));
    if !program.exists() {
        eprintln!("bench: building wasmtime {release} (minutes, once)…");
        let mut install = cargo();
        install.args(["install", "--quiet", "--locked", "wasmtime-cli"]);
        install.args(["--version", release, "--no-default-features"]);
        install.args(["--features", FEATURES, "--root"]).arg(&home);
        shell::run(&mut install)?;
        ensure!(
            program.exists(),
            "cargo was content, but there is no {}",
            program.display()
        );
    }
    Ok(program)
}

/// The version of a package in a lock file.
fn locked<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let mut lines = lock.lines();
    lines.find(|line| *line == format!("name = \"{package}\""))?;
    lines
        .next()?
        .strip_prefix("version = \"")?
        .strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_or_all() {
        let (none, json): (&[&str], &[&str]) = (&[], &["-o", "json"]);
        assert_eq!(choose(none).unwrap(), (SERVERS.to_vec(), none));
        assert_eq!(choose(json).unwrap(), (SERVERS.to_vec(), json));
        let some = choose(&["wasmrun", "hyper", "-o", "json"]).unwrap();
        assert_eq!(some, (vec!["wasmrun", "hyper"], json));
        let error = choose(&["wasmrun", "-o"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "no such server: -o; there are hyper, wasmrun, wasmtime, ray, and `-o json` at the end"
        );
    }

    #[test]
    fn the_release_that_is_compared_with_is_that_of_the_lock_file() {
        let lock = "[[package]]\nname = \"wasmtime-wasi\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"wasmtime\"\nversion = \"48.0.8\"\nsource = \"…\"\n";
        assert_eq!(locked(lock, "wasmtime"), Some("48.0.8"));
        assert_eq!(locked(lock, "wasm"), None);
    }
}
