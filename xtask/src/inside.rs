//! The interpreter of JavaScript: the component that the npm package brings, and the tests of what is around it.
//!
//! Owns where it is built: in a copy of its sources below `target/npm/inside`, which lie there as in the checkout. It is built again
//! when they have changed.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::python::{copy, copy_all};
use crate::shell::{self, command, root, target_dir};

/// What it is built from, and what its tests are of.
const SOURCES: [&str; 5] = [
    "js/inside",
    "js/lib/inside",
    "js/lib/guest.ts",
    "js/lib/errors.ts",
    "wit",
];
/// Folders in those that it is not built from.
const BESIDE: [&str; 2] = ["node_modules", "test"];

fn folder() -> PathBuf {
    target_dir().join("npm/inside")
}

/// Builds the component, if it is not there, and says where it is. It has no manifest.
pub fn component() -> Result<PathBuf> {
    let mut sources = Vec::new();
    for source in SOURCES {
        list(Path::new(source), &mut sources)?;
    }
    sources.sort();
    let mut hasher = DefaultHasher::new();
    for source in &sources {
        source.hash(&mut hasher);
        let bytes = fs::read(root().join(source));
        bytes
            .with_context(|| format!("cannot read {}", source.display()))?
            .hash(&mut hasher);
    }
    let key = format!("{:016x}", hasher.finish());
    let folder = folder();
    let (component, built) = (folder.join("interpreter.wasm"), folder.join("key"));
    if component.exists() && fs::read_to_string(&built).is_ok_and(|it| it == key) {
        return Ok(component);
    }
    let _ = fs::remove_dir_all(&folder);
    for source in &sources {
        let to = folder.join(source);
        let parent = to.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        copy(&root().join(source), &to)?;
    }
    let inside = folder.join("js/inside");
    let mut install = command("npm");
    install.args(["ci", "--silent", "--no-audit", "--no-fund"]);
    shell::run(install.current_dir(&inside))?;
    let mut build = command("node");
    build.arg("build.mjs").arg(&component);
    shell::run(build.current_dir(&inside))?;
    fs::write(&built, key).with_context(|| format!("cannot write {}", built.display()))?;
    Ok(component)
}

/// The files at a path of the checkout.
fn list(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let full = root().join(path);
    if full.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(&full).with_context(|| format!("cannot read {}", full.display()))? {
        let name = entry?.file_name();
        if !BESIDE.iter().any(|it| name == *it) {
            list(&path.join(name), files)?;
        }
    }
    Ok(())
}

/// Checks the types of what is built from, and runs its tests with a program and the component with its manifest.
pub fn test(program: &Path, interpreter: &Path) -> Result<()> {
    component()?;
    let inside = folder().join("js/inside");
    let tests = inside.join("test");
    let _ = fs::remove_dir_all(&tests);
    copy_all(&root().join("js/inside/test"), &tests)?;
    // Values are those of Python, too.
    let package = folder().join("python/wasmrun");
    fs::create_dir_all(&package).with_context(|| format!("cannot make {}", package.display()))?;
    let data = "python/wasmrun/_data.py";
    copy(&root().join(data), &folder().join(data))?;
    shell::run(
        command("npm")
            .args(["run", "--silent", "check"])
            .current_dir(&inside),
    )?;
    let mut test = command("npm");
    test.args(["test", "--silent"]).current_dir(&inside);
    test.env("WASMRUN_BIN", program);
    test.env("WASMRUN_JAVASCRIPT", interpreter);
    test.env_remove("WASMRUN_ADDRESS");
    shell::run(&mut test)
}
