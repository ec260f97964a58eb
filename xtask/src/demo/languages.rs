//! Acts that need more than Rust: the examples of Python, and a job in three languages.
//!
//! Owns what they show. They are left out where their languages are missing.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Act, Nodes, Stage, on_cluster};
use crate::shell::{self, root, target_dir};
use crate::{js, python};

/// Not played in the tests: those of the package run the same examples, on its wheel.
pub(super) const PYTHON: Act = Act {
    name: "python",
    what: "functions, actors and code of strangers in sandboxes, from Python",
    play: play_python,
    check: |_, _| Ok(()),
};

pub(super) const THREE: Act = Act {
    name: "three-languages",
    what: "one job of Rust, Python and JavaScript, whose values go from task to task on three nodes",
    play: |stage| on_cluster(stage, play_three),
    check: check_picture,
};

/// Where the job is.
const FOLDER: &str = "examples/three-languages";
/// Its tasks, and what they are written in.
const TASKS: [(&str, &str); 3] = [
    ("band", "Rust"),
    ("lights", "Python"),
    ("draw", "JavaScript"),
];

/// Why the job cannot be played on this machine, if it cannot.
pub(super) fn missing() -> Option<&'static str> {
    python::missing().or_else(js::missing)
}

/// The examples of the package, which lies in the checkout: it is not installed.
fn play_python(stage: &Stage) -> Result<String> {
    let package = stage.package()?;
    println!(
        "\n$ export PYTHONPATH={} WASMRUN_BIN={}",
        shown(package),
        shown(&stage.wasmrun)
    );
    for arguments in [
        ["monte_carlo.py", "8", "20000"],
        ["parameter_server.py", "3", "4"],
        ["snippets.py", "--try", ""],
    ] {
        let mut example = shell::command("python3");
        example.arg(Path::new("examples/python").join(arguments[0]));
        example.args(arguments[1..].iter().filter(|it| !it.is_empty()));
        example
            .env("PYTHONPATH", package)
            .env("WASMRUN_BIN", &stage.wasmrun);
        stage.show(&mut example)?;
    }
    Ok(String::new())
}

fn play_three(stage: &Stage, nodes: &Nodes) -> Result<String> {
    let package = stage.package()?;
    let interpreter = target_dir().join("npm/javascript.wasm");
    js::interpreter(&stage.wasmrun, &interpreter)?;
    println!(
        "\n$ export PYTHONPATH={} WASMRUN_JAVASCRIPT={}",
        shown(package),
        shown(&interpreter)
    );
    let mut picture = shell::command("python3");
    picture.arg(format!("{FOLDER}/picture.py"));
    picture
        .env("PYTHONPATH", package)
        .env("WASMRUN_JAVASCRIPT", &interpreter)
        .env("WASMRUN_ADDRESS", &nodes.address);
    let said = stage.show(&mut picture)?.1;
    println!();
    for (name, language) in TASKS {
        let ran = nodes.tasks(name)?.into_iter().filter(|(_, ran)| *ran > 0);
        let ran: Vec<_> = ran.map(|(node, ran)| format!("{ran} on {node}")).collect();
        ensure!(!ran.is_empty(), "no task {name} of {language} has run");
        println!("{name} in {language}: {}", ran.join(", "));
    }
    Ok(said)
}

/// The picture is the one that the page of the example shows.
fn check_picture(_: &Stage, said: &str) -> Result<()> {
    let page = root().join(FOLDER).join("README.md");
    let text =
        fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    // The package says when interpreters are compiled.
    let lines = said.lines().filter(|line| !line.starts_with("wasmrun: "));
    let picture = lines.collect::<Vec<_>>().join("\n");
    ensure!(
        !picture.is_empty() && text.contains(&picture),
        "the picture is not that of {FOLDER}/README.md"
    );
    Ok(())
}

/// A path as it is typed in the root of the checkout.
fn shown(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap_or(path);
    path.display().to_string()
}
