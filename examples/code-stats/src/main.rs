//! Counts files, lines, code, comments and bytes by language; or the words of a text.
//!
//! An ordinary command-line program: nothing in it knows about wasmrun. Built for `wasm32-wasip2`
//! it is a component, for `wasm32-wasip1` a core module; `wasmrun submit` runs both, and so does
//! any other runtime with WASI.
//!
//! ```text
//! wasmrun submit target/guests/code-stats.wasm --dir .::/src -- /src
//! wasmrun submit target/guests/code-stats.wasm --stdin README.md
//! ```
//!
//! It sees only what it is granted: without `--dir` there is no `/src` to read.
//!
//! The table goes to stdout; what could not be read is said on stderr and makes the exit code 1.

mod language;
mod lines;
mod table;
mod text;
mod tree;

use std::io::{self, Read, Write};
use std::process::ExitCode;

const USAGE: &str = "\
Counts files, lines, code, comments and bytes by language.

usage: code-stats DIR…     of the files in these directories and below
       code-stats          of the text on stdin: lines, words and the most frequent words

Left out: hidden entries, links, node_modules, and folders marked as caches by a CACHEDIR.TAG.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        None => count_stdin(),
        Some("-h" | "--help") => print(USAGE).map(|()| ExitCode::SUCCESS),
        Some(option) if option.starts_with('-') => {
            eprintln!("code-stats: no such option: {option}\n\n{USAGE}");
            return ExitCode::from(2);
        }
        Some(_) => count_trees(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("code-stats: {error}");
        ExitCode::FAILURE
    })
}

fn count_stdin() -> io::Result<ExitCode> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    print(&text::report(&bytes))?;
    Ok(ExitCode::SUCCESS)
}

fn count_trees(roots: &[String]) -> io::Result<ExitCode> {
    let mut found = tree::Findings::default();
    for root in roots {
        found.add(root.as_ref());
    }
    if !found.languages.is_empty() || found.errors.is_empty() {
        print(&table::by_language(&found.languages))?;
    }
    if found.errors.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for error in &found.errors {
        eprintln!("code-stats: {error}");
    }
    if !found.languages.is_empty() {
        eprintln!("code-stats: the table leaves out what could not be read");
    }
    Ok(ExitCode::FAILURE)
}

/// Like `println!`, but a closed stdout is an error and not a panic.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.trim_end().as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}
