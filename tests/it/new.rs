//! `wasmrun new`: projects that the tools of their languages build, and what they make runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use wasmrun_tests::{Wasmrun, assert_says, binary, scratch, skipped};

/// The name of each project: its language behind it. A library's file has another one.
const NAME: &str = "my-sum";

/// A project that was just written, in this folder.
fn written(dir: &Path, lang: &str) -> PathBuf {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-sdk");
    let new = Wasmrun::new(["new", NAME, "--lang", lang]).dir(dir);
    let new = match lang {
        "rust" => new.arg("--sdk").arg(sdk),
        _ => new,
    };
    new.ok();
    dir.join(NAME)
}

/// The commands of its README: for the tools, to build, to submit, to test.
fn commands(project: &Path) -> Vec<String> {
    let readme = fs::read_to_string(project.join("README.md")).unwrap();
    let lines = readme.lines().filter_map(|line| line.strip_prefix("    "));
    lines.map(str::to_owned).collect()
}

/// What a command of the README prints, or why it failed.
fn shell(project: &Path, command: &str) -> Result<String, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ours = binary().parent().unwrap();
    let paths = [ours.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let path = std::env::join_paths(paths).unwrap();
    let output = Command::new("sh")
        .args(["-ec", command])
        .current_dir(project)
        .env("PATH", path)
        // No node of a developer's, and no code of other programs'.
        .env("XDG_RUNTIME_DIR", project)
        .env("WASMRUN_CACHE_DIR", project.join("cache"))
        // The crates that the guests of this repository are built of.
        .env("CARGO_NET_OFFLINE", "true")
        .env_remove("CARGO_TARGET_DIR")
        // `cargo xtask test tutorial` builds there, too: what is compiled of them is the same.
        .env("CARGO_BUILD_BUILD_DIR", ours.with_file_name("projects"))
        .env_remove("WASMRUN_ADDRESS")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(printed),
        false => Err(format!("`{command}`: {printed}\n{said}")),
    }
}

/// Does what the README says. Where the tools cannot be had, the test is skipped.
fn follow(lang: &str, required: &str, expected: &str) {
    let dir = scratch();
    let project = written(dir.path(), lang);
    let commands = commands(&project);
    let [tools, build, submit, test] = &commands[..] else {
        panic!("{commands:?}");
    };
    if let Err(why) = shell(&project, tools) {
        return skipped(
            required,
            &format!("a project in {lang} is not built: {why}"),
        );
    }
    shell(&project, build).unwrap();
    assert_eq!(shell(&project, submit).unwrap(), format!("{expected}\n"));
    shell(&project, test).unwrap();
}

const SUM: &str = "ok(500500)";

#[test]
fn a_project_in_rust() {
    let dir = scratch();
    let project = written(dir.path(), "rust");
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/Cargo.lock");
    fs::copy(lock, project.join("Cargo.lock")).unwrap();
    let commands = commands(&project);
    assert_eq!(commands[0], "rustup target add wasm32-wasip2");
    shell(&project, &commands[1]).unwrap();
    assert_eq!(shell(&project, &commands[2]).unwrap(), format!("{SUM}\n"));
    shell(&project, &commands[3]).unwrap();
    // The next project lies elsewhere: nothing that is its own would be used again.
    shell(&project, &format!("cargo clean --package {NAME}")).unwrap();
}

#[test]
fn a_project_in_python() {
    follow("python", "WASMRUN_REQUIRE_PYTHON", SUM);
}

#[test]
fn a_project_in_javascript() {
    follow("js", "WASMRUN_REQUIRE_JS", SUM);
}

#[test]
fn a_project_in_typescript() {
    follow("ts", "WASMRUN_REQUIRE_JS", SUM);
}

#[test]
fn a_project_in_c() {
    follow("c", "WASMRUN_REQUIRE_PYTHON", SUM);
}

#[test]
fn a_project_in_go() {
    follow("go", "WASMRUN_REQUIRE_PYTHON", SUM);
}

#[test]
fn nothing_is_left_to_fill_in() {
    for lang in ["rust", "python", "js", "ts", "go", "c"] {
        let dir = scratch();
        let mut folders = vec![written(dir.path(), lang)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                assert!(!text.contains("{{"), "{}: {text}", path.display());
            }
        }
    }
}

#[test]
fn names_and_languages_that_are_none() {
    let dir = scratch();
    let fails = |args: &[&str]| Wasmrun::new(["new"]).args(args).dir(dir.path()).fails(2);
    let said = fails(&["My_Sum", "--lang", "js"]);
    assert_says(&said, &["My_Sum", "words of a-z and 0-9", "my-tasks"]);
    let said = fails(&["interface", "--lang", "js"]);
    assert_says(&said, &["interface-tasks"]);
    let said = fails(&[NAME, "--lang", "pyhton"]);
    assert_says(&said, &["pyhton", "rust", "'python'"]);
    let said = fails(&[NAME]);
    assert_says(&said, &["--lang"]);
    let said = fails(&[NAME, "--lang", "c", "--sdk", "x"]);
    assert_says(&said, &["--sdk is for projects in Rust"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_is_there_is_left_alone() {
    let dir = scratch();
    fs::write(dir.path().join(NAME), "mine").unwrap();
    let new = Wasmrun::new(["new", NAME, "--lang", "js"]).dir(dir.path());
    new.fails_saying(2, &["my-sum is there already", "another name"]);
    assert_eq!(fs::read_to_string(dir.path().join(NAME)).unwrap(), "mine");
}
