//! Checks that the project stands alone: that nothing in it points out of the checkout.
//!
//! Looks at every file that git has or would add, for what works only on the machine it was
//! written on: absolute paths of the checkout, of what lies beside it and of the home directory;
//! relative paths that climb out to something that exists there; and crates from other places
//! than crates.io.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, bail};

use crate::shell::{self, command, root};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Whether the check can be made at all.
pub fn is_git_checkout() -> bool {
    shell::succeeds(command("git").args(["rev-parse", "--is-inside-work-tree"]))
}

pub fn check() -> Result<()> {
    let list = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let files = shell::read(command("git").args(list))?;
    let forbidden = forbidden_paths(root(), std::env::var_os("HOME"));
    let mut found = Vec::new();
    for file in files.split_terminator('\0') {
        // Deleted but not yet staged, or not text: nothing to read.
        let Ok(text) = fs::read_to_string(root().join(file)) else {
            continue;
        };
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(what) = outside(Path::new(file), line, &forbidden) {
                found.push(format!("  {file}:{number}: {what}"));
            }
        }
    }
    if !found.is_empty() {
        bail!("these point out of the checkout:\n{}", found.join("\n"));
    }
    Ok(())
}

/// Absolute paths that mean something on this machine alone.
fn forbidden_paths(root: &Path, home: Option<OsString>) -> Vec<String> {
    let mut paths = vec![root.to_path_buf()];
    if let Some(parent) = root.parent() {
        let beside = fs::read_dir(parent).into_iter().flatten().flatten();
        paths.extend(beside.map(|entry| entry.path()));
    }
    paths.extend(home.map(|home| PathBuf::from(home).join(".cargo")));
    // A path of one part, such as /src, is as likely one inside a sandbox.
    paths.retain(|path| path.components().count() > 2);
    paths
        .iter()
        .filter_map(|path| path.to_str())
        .map(str::to_owned)
        .collect()
}

/// What on this line points out of the checkout.
fn outside(file: &Path, line: &str, forbidden: &[String]) -> Option<String> {
    if let Some(path) = forbidden.iter().find(|path| has_word(line, path)) {
        return Some(format!("the path {path}"));
    }
    if file.file_name().is_some_and(|name| name == "Cargo.lock")
        && let Some(source) = line.strip_prefix("source = ")
        && source.trim_matches('"') != CRATES_IO
    {
        return Some(format!("a crate that is not from crates.io: {source}"));
    }
    climbing_paths(line).into_iter().find_map(|path| {
        let target = resolve(&root().join(file.parent()?).join(path))?;
        let leaves = !target.starts_with(root()) && target != root().parent()?;
        (leaves && target.exists()).then(|| format!("the path {path}"))
    })
}

/// Whether `word` stands in the line with no more of a name after it.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let after = line[at + word.len()..].chars().next();
        !after.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_')
    })
}

/// The parts of a line that look like `../name`, with any number of `../`.
fn climbing_paths(line: &str) -> Vec<&str> {
    let in_path = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    let words = line.split(|c: char| !in_path(c));
    words
        .filter(|word| word.starts_with("../") && word.len() > 3)
        .collect()
}

/// The path without `.` and `..`, by its text alone; `None` above the top.
fn resolve(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                if !resolved.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            other => resolved.push(other),
        }
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_of_this_machine_are_found() {
        let forbidden = ["/home/someone/wasmrun".to_owned()];
        let file = Path::new("docs/page.md");
        assert!(outside(file, "cd /home/someone/wasmrun/xtask", &forbidden).is_some());
        assert!(outside(file, "cd /home/someone/wasmrun2", &forbidden).is_none());
    }

    #[test]
    fn short_paths_are_left_to_sandboxes() {
        assert!(
            forbidden_paths(Path::new("/src"), None)
                .iter()
                .all(|path| path != "/src")
        );
    }

    #[test]
    fn only_paths_that_climb_out_count() {
        let deep = Path::new("runtime/cli/src/main.rs");
        assert!(outside(deep, "include_str!(\"../../../README.md\")", &[]).is_none());
        assert!(outside(deep, "the test reads ../../../../no-such-file", &[]).is_none());
        assert_eq!(climbing_paths("a = \"../b/c\", d/../e ../"), ["../b/c"]);
        assert_eq!(
            resolve(Path::new("/a/b/../../c/./d")),
            Some(PathBuf::from("/c/d"))
        );
        assert_eq!(resolve(Path::new("/a/../../..")), None);
    }

    #[test]
    fn crates_come_from_crates_io() {
        let lock = Path::new("examples/Cargo.lock");
        assert!(outside(lock, &format!("source = \"{CRATES_IO}\""), &[]).is_none());
        assert!(outside(lock, "source = \"git+https://example.org/x\"", &[]).is_some());
    }
}
