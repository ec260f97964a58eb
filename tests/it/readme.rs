//! The tour of the README, typed as it stands there: all of it but for the cluster, which `faults::newcomer` types.
//!
//! What commands print is as the README has it, but for what is another each time: how long something took, ids, the
//! name of the machine, and what is counted of this checkout, which may also have more in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use wasmrun_tests::{binary, scratch};

const README: &str = include_str!("../../README.md");
/// What the machine of the README is called.
const MACHINE: &str = "vm";

/// A command, and what the README shows of what it prints.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    typed: String,
    shown: Vec<&'static str>,
}

/// The blocks of commands between these headings, without those under the other one.
fn blocks() -> Vec<Vec<Step>> {
    let (_, tour) = README.split_once("\n## A tour\n").expect("a tour");
    let (tour, _) = tour.split_once("\n## ").expect("that ends");
    let sections = tour.split("\n### ");
    let sections = sections.filter(|it| !it.starts_with("From one machine to three"));
    let blocks = sections.flat_map(|it| it.split("```console\n").skip(1));
    let blocks = blocks.map(|it| it.split_once("```").expect("it ends").0);
    blocks.map(steps).collect()
}

fn steps(block: &'static str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        if let Some(typed) = line.strip_prefix("$ ") {
            let (typed, shown) = (typed.to_owned(), Vec::new());
            steps.push(Step { typed, shown });
            continue;
        }
        let step = steps.last_mut().expect("a block begins with a command");
        match is_whole(&step.typed) {
            true => step.shown.push(line),
            false => step.typed.push_str(&format!("\n{line}")),
        }
    }
    steps
}

/// Whether a shell would not wait for more.
fn is_whole(typed: &str) -> bool {
    !typed.ends_with('\\') && typed.matches('\'').count().is_multiple_of(2)
}

fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("it is in the checkout").to_owned()
}

/// All that a command prints.
fn printed(typed: &str, cache: &Path) -> String {
    let path = std::env::var("PATH").expect("a path");
    let own = binary().parent().expect("it is in a folder");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{{ {typed}\n}} 2>&1")]);
    shell.current_dir(root()).env_clear();
    shell.env("PATH", format!("{}:{path}", own.display()));
    shell
        .env("HOME", "/nowhere")
        .env("WASMRUN_CACHE_DIR", cache);
    let output = shell.output().expect("there is a shell");
    String::from_utf8(output.stdout).expect("text")
}

/// What a command prints, or is shown to print, where what is another each time is alike.
fn alike(typed: &str, text: &str) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let text = text.replace(
        &format!("node: \"{host}\""),
        &format!("node: \"{MACHINE}\""),
    );
    let text = text.replace(&format!("(node {host})"), &format!("(node {MACHINE})"));
    let text = text.replace(&format!("at node {host}"), &format!("at node {MACHINE}"));
    let is_timed = [" -v", "--array", "--from-lines"]
        .iter()
        .any(|option| typed.contains(option));
    let lines = text.lines().map(|line| match is_counted(typed) {
        true => line.replace(
            |it: char| it.is_ascii_digit() || it.is_whitespace() || ",─".contains(it),
            "",
        ),
        false => {
            let words = line.split(' ').map(|word| timeless(word, is_timed));
            words.collect::<Vec<_>>().join(" ")
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether a command counts what is in this checkout.
fn is_counted(typed: &str) -> bool {
    typed.contains("code-stats")
}

/// A word, unless it is an id or, where that counts, says how long something took.
fn timeless(word: &str, is_timed: bool) -> String {
    let bare = word.trim_matches(|it: char| "\",:".contains(it));
    let is_id = matches!(bare.len(), 32 | 64) && bare.chars().all(|it| it.is_ascii_hexdigit());
    let is_of_time = |it: char| it.is_ascii_digit() || ".nµmhs".contains(it);
    let begins = bare.starts_with(|it: char| it.is_ascii_digit());
    let is_time = is_timed && begins && bare.ends_with('s') && bare.chars().all(is_of_time);
    match (is_id, is_time) {
        (true, _) => word.replace(bare, "ID"),
        (_, true) => word.replace(bare, "TIME"),
        _ => word.to_owned(),
    }
}

/// What is wrong with what a command prints.
fn difference(step: &Step, says: &str) -> Option<String> {
    let [printed, shown] = [says, &step.shown.join("\n")].map(|it| alike(&step.typed, it));
    let printed: Vec<&str> = printed.lines().collect();
    let is_right = match is_counted(&step.typed) {
        // A checkout may have more in it.
        true => shown.lines().all(|line| printed.contains(&line)),
        false => shown.lines().eq(printed),
    };
    (!is_right).then(|| format!("$ {}\n{says}", step.typed))
}

#[test]
fn the_tour_prints_what_it_shows() {
    let (shared, mut typed, mut wrong) = (scratch(), 0, Vec::new());
    for block in blocks() {
        // Where it is shown that something is compiled, it must not have been before.
        let own = scratch();
        let is_told = block.iter().any(|step| step.typed.ends_with(" -v"));
        let cache = if is_told { &own } else { &shared };
        for step in block {
            wrong.extend(difference(&step, &printed(&step.typed, cache.path())));
            typed += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "the README shows something else:\n{}",
        wrong.concat()
    );
    assert!(typed > 10, "these are all: {typed}");
}

#[test]
fn commands_are_found_as_they_stand_there() {
    let block = "$ a 'b\n  c' \\\n  d\nout\n$ e\n";
    let step = |typed: &str, shown: &[&'static str]| Step {
        typed: typed.to_owned(),
        shown: shown.to_vec(),
    };
    assert_eq!(
        steps(block),
        [step("a 'b\n  c' \\\n  d", &["out"]), step("e", &[])]
    );
    for (word, it) in [
        ("ran", "ran"),
        ("200.5µs,", "TIME,"),
        ("3s", "TIME"),
        ("1m4s", "TIME"),
        ("is", "is"),
        ("64MiB", "64MiB"),
    ] {
        assert_eq!(timeless(word, true), it);
        assert_eq!(timeless(word, false), word);
    }
    assert_eq!(timeless(&format!("{}:", "a1".repeat(16)), false), "ID:");
}
