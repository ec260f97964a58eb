//! Checks that `docs/tutorial.md` and this crate are the same program.
//!
//! Owns the rules: every `rust` block of the page stands in `lib.rs`, every `toml` block in `Cargo.toml`,
//! and all of `lib.rs` but the line that brings this module stands on the page. A line `// …` in a block
//! leaves something out. Indentation does not matter, and neither do empty lines.

const PAGE: &str = include_str!("../../../docs/tutorial.md");
const CODE: &str = include_str!("lib.rs");
const MANIFEST: &str = include_str!("../Cargo.toml");

/// What stands for something that is left out.
const GAP: &str = "// …";
/// The end of `lib.rs`, which newcomers do not need.
const THIS_MODULE: &str = "#[cfg(test)]\nmod page;\n";
/// Where the SDK is, seen from a folder beside the checkout and from here.
const SDK: [&str; 2] = ["../wasmrun/guest-sdk", "../../guest-sdk"];

/// The blocks of a language.
fn blocks(language: &str) -> Vec<Vec<&'static str>> {
    let mut blocks = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let block = lines.by_ref().take_while(|line| *line != "```");
            let block = significant(block);
            if info == language {
                blocks.push(block);
            }
        }
    }
    assert!(!blocks.is_empty(), "the page has {language}");
    blocks
}

fn significant<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    lines
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect()
}

/// Where the pieces of a block are in a source, one after the other.
fn find(block: &[&str], source: &[&str]) -> Vec<std::ops::Range<usize>> {
    let mut from = 0;
    let mut found = Vec::new();
    for piece in block
        .split(|line| *line == GAP)
        .filter(|piece| !piece.is_empty())
    {
        let at = source[from..]
            .windows(piece.len())
            .position(|lines| lines == piece);
        let Some(at) = at else {
            panic!("this is not in the source:\n{}", piece.join("\n"));
        };
        found.push(from + at..from + at + piece.len());
        from += at + piece.len();
    }
    found
}

#[test]
fn the_page_shows_this_crate() {
    let code = CODE
        .strip_suffix(THIS_MODULE)
        .expect("lib.rs ends with this module");
    let code = significant(code.lines());
    let mut shown = vec![false; code.len()];
    for block in blocks("rust") {
        for range in find(&block, &code) {
            shown[range].fill(true);
        }
    }
    // A bracket on a line of its own is found wherever there is one.
    let is_missing = |(line, shown): &(&str, bool)| !shown && line.contains(char::is_alphanumeric);
    let lines = code.into_iter().zip(shown).filter(is_missing);
    let missing: Vec<&str> = lines.map(|(line, _)| line).collect();
    assert!(
        missing.is_empty(),
        "the page lacks these lines:\n{}",
        missing.join("\n")
    );
}

#[test]
fn the_page_shows_this_manifest() {
    let manifest = significant(MANIFEST.lines());
    for block in blocks("toml") {
        let block: Vec<String> = block
            .into_iter()
            .map(|line| line.replace(SDK[0], SDK[1]))
            .collect();
        find(
            &block.iter().map(String::as_str).collect::<Vec<_>>(),
            &manifest,
        );
    }
}
