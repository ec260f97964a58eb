//! What rustc says about guests that are wrong: the first error of each file in `bad/` is where its `//~` stands, and
//! says what stands behind it. So the macros point at what their users wrote, and nothing else is reported before.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The line of a case where the error is, and what it must say.
fn expected(source: &str) -> (usize, &str) {
    let mut marks = (1..).zip(source.lines()).filter_map(|(line, text)| {
        let (_, what) = text.split_once("//~ ")?;
        Some((line, what))
    });
    let first = marks.next().expect("a case says where its error is");
    assert!(marks.next().is_none(), "a case has one mark");
    first
}

/// A crate with all cases as its examples.
fn write_crate(dir: &Path, cases: &BTreeMap<String, PathBuf>) {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut manifest = format!(
        "[package]\nname = \"bad-guests\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nwasmrun-guest = {{ path = {sdk:?} }}\n"
    );
    for (name, path) in cases {
        manifest +=
            &format!("\n[[example]]\nname = {name:?}\npath = {path:?}\ncrate-type = [\"lib\"]\n");
    }
    fs::create_dir_all(dir.join("src")).expect("the target folder can be written");
    fs::write(dir.join("src/lib.rs"), "").expect("as above");
    fs::write(dir.join("Cargo.toml"), manifest).expect("as above");
    // The versions that everything else here is built with.
    fs::copy(sdk.join("Cargo.lock"), dir.join("Cargo.lock")).expect("it is in the checkout");
}

#[test]
fn errors_are_where_the_mistakes_are() {
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let cases = fs::read_dir(bad)
        .expect("it is in the checkout")
        .map(|entry| {
            let path = entry.expect("it can be read").path();
            let name = path.file_stem().expect("it has a name").to_string_lossy();
            (name.into_owned(), path)
        });
    let cases: BTreeMap<_, _> = cases.collect();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad-guests");
    write_crate(&dir, &cases);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let checked = Command::new(cargo)
        .args([
            "check",
            "--quiet",
            "--offline",
            "--examples",
            "--keep-going",
        ])
        .args(["--message-format", "short", "--color", "never"])
        .arg("--manifest-path")
        .arg(dir.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(dir.join("target"))
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&checked.stderr);
    for (name, path) in cases {
        let source = fs::read_to_string(&path).expect("it can be read");
        let (line, what) = expected(&source);
        // PATH:LINE:COLUMN: error: WHAT
        let file = format!("{name}.rs:");
        let first = said.lines().find_map(|said| {
            let (_, place) = said.split_once(&file)?;
            let (place, message) = place.split_once(": error")?;
            Some((place.split(':').next()?.to_owned(), message))
        });
        let Some((at, message)) = first else {
            panic!("{name} has no error:\n{said}");
        };
        assert!(
            at == line.to_string() && message.contains(what),
            "{name}: line {at}{message}\nwanted on line {line}: {what}\n{said}"
        );
    }
}
