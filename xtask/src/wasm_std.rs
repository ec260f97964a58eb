//! Makes sure that rustc can build for the WebAssembly targets.
//!
//! Owns the question "is the standard library there, and is it this rustc's?" and the two ways of
//! getting it: `rustup target add`, and where that cannot download, `wasm-std.sh`. The question is
//! answered by linking a program: after an upgrade of rustc a stale library may lie where the
//! right one should.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use std::{fs, io};

use anyhow::{Context, Result, bail};

use crate::guests::build_dir;
use crate::shell::{self, command, root, rustc};

/// Makes sure that programs can be built for `targets`.
///
/// Cargo does not notice when the standard library is replaced, so the guests' output folder is
/// deleted when that happens.
pub fn ensure(targets: &[&str]) -> Result<()> {
    let stamp = build_dir().join("wasm-std.stamp");
    if fs::read_to_string(&stamp).is_ok_and(|seen| identity(targets).is_ok_and(|now| seen == now)) {
        return Ok(());
    }
    let missing = unusable(targets)?;
    if !missing.is_empty() {
        install(&missing)?;
    }
    remove_dir(&build_dir())?;
    fs::create_dir_all(build_dir())?;
    fs::write(&stamp, identity(targets)?)
        .with_context(|| format!("cannot write {}", stamp.display()))
}

fn install(missing: &[&str]) -> Result<()> {
    let names = missing.join(" ");
    eprintln!(
        "guests: rustc has no usable standard library for {names}; trying `rustup target add`"
    );
    let rustup = shell::read(command("rustup").args(["target", "add"]).args(missing));
    let missing = unusable(missing)?;
    if missing.is_empty() {
        return Ok(());
    }
    let (why, said) = match rustup {
        Ok(_) => ("what rustup installed is not this rustc's", String::new()),
        Err(error) => ("rustup could not install it", format!(": {error:#}")),
    };
    eprintln!("guests: {why}; building it from Debian's sources of this rustc (a minute or so)");
    let script = root().join("xtask/wasm-std.sh");
    let built = shell::run(command("bash").arg(script).args(&missing));
    let still_missing = unusable(&missing)?;
    let Some(target) = still_missing.first() else {
        return Ok(());
    };
    let built = match built {
        Ok(()) => format!(
            "what it built does not work: {}",
            probe(target)?.unwrap_or_default()
        ),
        Err(_) => "it failed; the reason is above".to_owned(),
    };
    let names = still_missing.join(" ");
    bail!(
        "cannot get the standard library for {names}.\n\
         1. `rustup target add {names}`: {why}{said}\n\
         2. xtask/wasm-std.sh, from Debian's sources: {built}\n\
         Mend either one: the first needs rustup's download server, the second a Debian machine and \
         a rustc of a version that Debian packages."
    )
}

/// Those of the targets that rustc cannot build for.
fn unusable<'a>(targets: &[&'a str]) -> Result<Vec<&'a str>> {
    let mut unusable = Vec::new();
    for target in targets {
        if probe(target)?.is_some() {
            unusable.push(*target);
        }
    }
    Ok(unusable)
}

/// Links a small program for the target. Returns what rustc said if it could not.
fn probe(target: &str) -> Result<Option<String>> {
    let dir = std::env::temp_dir().join(format!("xtask-probe-{}", std::process::id()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let source = dir.join("probe.rs");
    fs::write(&source, "fn main() { println!(\"hello\"); }\n")?;
    let built = shell::read(
        rustc()
            .args(["--target", target, "-o"])
            .arg(dir.join("probe.wasm"))
            .arg(&source),
    );
    remove_dir(&dir)?;
    Ok(built.err().map(|error| format!("{error:#}")))
}

/// Names this rustc and these very library files; changes whenever either does.
fn identity(targets: &[&str]) -> Result<String> {
    let mut identity = shell::read(rustc().arg("-vV"))?;
    let sysroot = shell::read(rustc().args(["--print", "sysroot"]))?;
    for target in targets {
        let dir = PathBuf::from(sysroot.trim())
            .join("lib/rustlib")
            .join(target)
            .join("lib");
        let mut files = Vec::new();
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let entry = entry?;
            let about = entry.metadata()?;
            let changed = about
                .modified()?
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            files.push((entry.file_name(), about.len(), changed.as_nanos()));
        }
        files.sort();
        for (name, length, changed) in files {
            writeln!(identity, "{target} {} {length} {changed}", name.display())?;
        }
    }
    Ok(identity)
}

fn remove_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot delete {}", dir.display()))
        }
        _ => Ok(()),
    }
}
