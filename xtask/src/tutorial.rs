//! `cargo xtask test tutorial`: a newcomer who does what `docs/tutorial.md` says, and compares what comes.
//!
//! Owns how the page is read. In its order: a `toml` block takes the place of `[dependencies]`; the first `rust`
//! block is `src/lib.rs` with two gaps (`// …`), the second fills the first gap, one with `#[cfg(test)]` goes below
//! the module, and all others go into the second gap; the commands of a `console` block are typed, in one folder
//! and with the wasmrun of this checkout. What they print is compared by these rules:
//!
//! - what goes to standard output is as the page has it, and so is all of a command that fails, which are those
//!   where the page has a line that begins with `error: `;
//! - what tasks print while others run depends on who is first: of a command that goes well, each line of standard
//!   error has its like on the page and the other way round, where all numbers are alike. `…` stands for more;
//! - of `cargo`, what it says itself does not count, nor do the order of tests, empty lines, and how long it took;
//! - `rustup` is not run: what it would get is made sure of before, as for all guests.
//!
//! Whether all of the crate in `examples/tutorial` stands on the page is for that crate's own tests.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{self, cargo, command, root, target_dir};
use crate::{guests, wasm_std};

const PAGE: &str = "docs/tutorial.md";
/// The crate that is made, as the page calls it.
const CRATE: &str = "primes";
/// What stands for something that is left out of code.
const GAP: &str = "// …";
/// What stands for lines that are left out of output.
const MORE: &str = "…";

/// Does what the page says.
pub fn follow() -> Result<()> {
    let page = fs::read_to_string(root().join(PAGE)).context("cannot read the tutorial")?;
    let mut reader = Newcomer::new()?;
    let mut typed = 0;
    for block in blocks(&page) {
        let at = || format!("{PAGE}, the block at line {}", block.line);
        match block.language {
            "toml" => reader.depend(&block.lines).with_context(at)?,
            "rust" => reader.write(&block.lines).with_context(at)?,
            "console" => {
                for step in commands(&block)? {
                    eprintln!("   $ {}", step.command);
                    reader.type_in(&step).with_context(at)?;
                    typed += 1;
                }
            }
            _ => {}
        }
    }
    ensure!(typed > 0, "{PAGE} has no commands");
    Ok(())
}

/// A block of the page.
struct Block<'a> {
    language: &'a str,
    /// Where it begins, counted from 1.
    line: usize,
    lines: Vec<&'a str>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        if let Some(language) = text.strip_prefix("```") {
            let rest = lines.by_ref().map(|(_, text)| text);
            let lines = rest.take_while(|text| *text != "```").collect();
            blocks.push(Block {
                language,
                line,
                lines,
            });
        }
    }
    blocks
}

/// A command, and what the page shows of its output.
struct Step<'a> {
    command: &'a str,
    shown: Vec<&'a str>,
}

fn commands<'a>(block: &Block<'a>) -> Result<Vec<Step<'a>>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for line in &block.lines {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step {
                command,
                shown: Vec::new(),
            }),
            (None, Some(step)) => step.shown.push(line),
            (None, None) => bail!("a console block begins with a command, after `$ `"),
        }
    }
    Ok(steps)
}

/// Who reads the page: the folder they are in, and what they have written so far.
struct Newcomer {
    /// The folder beside which the checkout is.
    home: PathBuf,
    /// Where they are.
    folder: PathBuf,
    path: OsString,
    outline: String,
    gaps: [String; 2],
    below: String,
}

impl Newcomer {
    fn new() -> Result<Self> {
        let wasmrun = target_dir().join("debug/wasmrun");
        ensure!(
            wasmrun.is_file(),
            "there is no {}; run `cargo xtask test build tutorial`",
            wasmrun.display()
        );
        wasm_std::ensure(&guests::TARGETS)?;
        // Outside of the checkout, whose workspace the crate would join. Always the same for a checkout, so that
        // what has been built stays good.
        let mut hasher = DefaultHasher::new();
        root().hash(&mut hasher);
        let name = format!("wasmrun-tutorial-{:x}", hasher.finish());
        let home = env::temp_dir().join(name);
        if home.exists() {
            fs::remove_dir_all(&home)
                .with_context(|| format!("cannot remove {}", home.display()))?;
        }
        shell::private_dir(&home)?;
        std::os::unix::fs::symlink(root(), home.join("wasmrun"))?;
        // The crate is given the examples' lock file, and needs nothing that they do not need.
        shell::run(cargo().args([
            "fetch",
            "--quiet",
            "--locked",
            "--manifest-path",
            "examples/Cargo.toml",
        ]))?;
        let others = env::var_os("PATH").unwrap_or_default();
        let own = wasmrun.parent().map(Path::to_path_buf);
        let path = env::join_paths(own.into_iter().chain(env::split_paths(&others)))?;
        Ok(Self {
            folder: home.clone(),
            home,
            path,
            outline: String::new(),
            gaps: Default::default(),
            below: String::new(),
        })
    }

    /// Puts the end of `Cargo.toml` in place.
    fn depend(&self, lines: &[&str]) -> Result<()> {
        let file = self.folder.join("Cargo.toml");
        let made = fs::read_to_string(&file).context("there is no Cargo.toml yet")?;
        let (before, _) = made
            .split_once("[dependencies]")
            .context("Cargo.toml has no [dependencies]")?;
        fs::write(file, format!("{before}{}\n", lines.join("\n")))?;
        Ok(())
    }

    /// Puts more into `src/lib.rs`.
    fn write(&mut self, lines: &[&str]) -> Result<()> {
        let text = lines.join("\n") + "\n";
        let place = match () {
            () if self.outline.is_empty() => &mut self.outline,
            () if self.gaps[0].is_empty() => &mut self.gaps[0],
            () if text.contains("#[cfg(test)]") => &mut self.below,
            () => &mut self.gaps[1],
        };
        place.push_str(&text);
        let parts: Vec<&str> = self.outline.split(GAP).collect();
        let [start, middle, end] = parts[..] else {
            bail!("the first block of Rust has two gaps, `{GAP}`");
        };
        let [uses, body] = &self.gaps;
        let code = [start, uses, middle, body, end, &self.below].concat();
        fs::write(self.folder.join("src/lib.rs"), code).context("there is no crate yet")
    }

    /// Types a command, and compares.
    fn type_in(&mut self, step: &Step<'_>) -> Result<()> {
        if step.command.starts_with("rustup ") {
            return Ok(());
        }
        let after = self.home.join("folder");
        let mut shell = command("sh");
        shell
            .arg("-c")
            .arg(format!(
                "{}\ncode=$?; pwd > \"$0\"; exit $code",
                step.command
            ))
            .arg(&after)
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            .env("CARGO_NET_OFFLINE", "true")
            .env_remove("CARGO_TARGET_DIR")
            .env("WASMRUN_CACHE_DIR", self.home.join("cache"))
            // Whatever node a developer has running is none of the page's business.
            .env("XDG_RUNTIME_DIR", self.home.join("nowhere"));
        let output = shell.output().context("cannot run sh")?;
        let [out, err] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        compare(step, output.status.success(), &out, &err)
            .map_err(|why| anyhow::anyhow!("`{}`: {why}\nit printed:\n{out}{err}", step.command))?;
        let now = fs::read_to_string(&after)?;
        self.folder = PathBuf::from(now.trim_end());
        let is_new = self.folder.ends_with(CRATE) && !self.folder.join("target").exists();
        if is_new {
            // `tests/it/new.rs` builds there, too: of the same crates, in the same way.
            let built = target_dir().join("projects");
            fs::create_dir_all(&built)?;
            std::os::unix::fs::symlink(built, self.folder.join("target"))?;
            fs::copy(
                root().join("examples/Cargo.lock"),
                self.folder.join("Cargo.lock"),
            )?;
        }
        Ok(())
    }
}

/// Whether a command did what the page shows, by the rules above; if not, why.
fn compare(step: &Step<'_>, went_well: bool, out: &str, err: &str) -> Result<(), String> {
    let fails = step.shown.iter().any(|line| line.starts_with("error: "));
    if went_well == fails {
        return Err(match fails {
            true => "it went well, and the page has an error".into(),
            false => "it failed, and the page has no error".into(),
        });
    }
    let same = |what: &str, shown: &[&str], printed: &[&str]| match shown == printed {
        true => Ok(()),
        false => Err(format!(
            "{what} differs; the page has\n{}\n",
            shown.join("\n")
        )),
    };
    let lines = |text: &'_ str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    if step.command.starts_with("cargo ") {
        let timeless = |line: &str| line.split("; finished in").next().map(str::to_owned);
        let sorted = |text: &[&str]| -> Vec<String> {
            let said = text.iter().filter(|line| !line.is_empty());
            let mut said: Vec<String> = said.filter_map(|line| timeless(line)).collect();
            said.sort();
            said
        };
        let (shown, printed) = (
            sorted(&step.shown),
            sorted(&out.lines().collect::<Vec<_>>()),
        );
        let (shown, printed): (Vec<&str>, Vec<&str>) = (
            shown.iter().map(String::as_str).collect(),
            printed.iter().map(String::as_str).collect(),
        );
        return same("what it says", &shown, &printed);
    }
    if fails {
        return same("the error", &step.shown, &err.lines().collect::<Vec<_>>());
    }
    let printed: Vec<&str> = out.lines().collect();
    let (before, result) = match step.shown.len().checked_sub(printed.len()) {
        Some(at) => step.shown.split_at(at),
        None => return Err("it printed more than the page has".into()),
    };
    same("its output", result, &printed)?;
    let shapes = |lines: &mut dyn Iterator<Item = &str>| -> BTreeSet<String> {
        lines.filter(|line| *line != MORE).map(shape).collect()
    };
    let said = lines(err);
    match shapes(&mut before.iter().copied()) == shapes(&mut said.iter().map(String::as_str)) {
        true => Ok(()),
        false => Err("what its tasks printed is not like what the page has".into()),
    }
}

/// A line in which all numbers are alike.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for it in line.chars() {
        match it.is_ascii_digit() {
            true if shape.ends_with('0') => {}
            true => shape.push('0'),
            false => shape.push(it),
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step<'a>(command: &'a str, shown: &'a str) -> Step<'a> {
        Step {
            command,
            shown: shown.lines().collect(),
        }
    }

    #[test]
    fn blocks_and_commands_are_found() {
        let page = "x\n```console\n$ a b\n1\n\n2\n$ c\n```\ny\n```text\nz\n```\n";
        let blocks = blocks(page);
        let found: Vec<_> = blocks.iter().map(|it| (it.language, it.line)).collect();
        assert_eq!(found, [("console", 2), ("text", 10)]);
        let steps = commands(&blocks[0]).unwrap();
        let steps: Vec<_> = steps.iter().map(|it| (it.command, &it.shown[..])).collect();
        assert_eq!(steps, [("a b", &["1", "", "2"][..]), ("c", &[])]);
        assert!(commands(&blocks[1]).is_err());
    }

    #[test]
    fn results_are_compared_and_what_tasks_print_is_alike() {
        let it = step("wasmrun x", "10 of 8\n…\n7 of 8\nok(1)");
        let judge = |out, err| compare(&it, true, out, err);
        assert_eq!(judge("ok(1)\n", "3 of 8\n2 of 8\n1 of 8\n"), Ok(()));
        assert!(judge("ok(2)\n", "3 of 8\n").is_err(), "another result");
        assert!(judge("ok(1)\n", "3 of 8\nmore\n").is_err(), "another line");
        assert!(judge("ok(1)\n", "").is_err(), "a line less");
        assert!(compare(&it, false, "ok(1)\n", "3 of 8\n").is_err());
    }

    #[test]
    fn errors_are_compared_to_the_letter() {
        let it = step("wasmrun x", "error: no 1\n  because: 2");
        let judge = |well, err| compare(&it, well, "", err);
        assert_eq!(judge(false, "error: no 1\n  because: 2\n"), Ok(()));
        assert!(judge(false, "error: no 1\n  because: 3\n").is_err());
        assert!(judge(true, "error: no 1\n  because: 2\n").is_err());
    }

    #[test]
    fn of_cargo_neither_order_nor_time_counts() {
        let it = step(
            "cargo test",
            "running 2\na ok\nb ok\n\nok; finished in 0.01s",
        );
        let out = "\nrunning 2\nb ok\na ok\n\nok; finished in 2.5s\n\n";
        assert_eq!(compare(&it, true, out, "   Compiling x\n"), Ok(()));
        assert!(compare(&it, true, "running 2\na ok\n", "").is_err());
        assert_eq!(
            compare(&step("cargo build", ""), true, "", "Finished"),
            Ok(())
        );
    }
}
