//! `wasmrun new`: a project that the tools of a language build, from the files in `templates/`.
//!
//! Owns which files a project has and its commands. Must not: run those tools, or touch a folder that is there.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;

use crate::args::{New, ProjectLanguage};
use crate::fail::{CommandResult, Failure};
use crate::printer::Printer;

/// A file of a project: its name, and its text with `{{…}}` for what differs.
type File = (&'static str, &'static str);

struct Template {
    language: &'static str,
    about: &'static str,
    /// What is done once.
    setup: &'static str,
    build: &'static str,
    /// The module that this makes.
    module: &'static str,
    test: &'static str,
    /// What is submitted of it, and what that prints.
    call: &'static str,
    printed: &'static str,
    ignored: &'static str,
    files: &'static [File],
    /// Whether its contract is a file of WIT.
    has_wit: bool,
}

/// A call that starts tasks and an actor.
const SUM: (&str, &str) = ("--invoke 'sum(1000, 4)'", "ok(500500)");

macro_rules! templates {
    ($($name:literal: $path:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../templates/", $path)))),*]
    };
}

macro_rules! interfaces {
    ($($name:literal),*) => {
        &[
            ("wit/world.wit", include_str!("../templates/world.wit")),
            $((
                concat!("wit/deps/wasmrun-runtime/", $name, ".wit"),
                include_str!(concat!("../../../wit/", $name, ".wit")),
            )),*
        ]
    };
}

/// The world, and the interfaces of the host that it includes.
const WIT: &[File] = interfaces!("actors", "context", "fast", "objects", "tasks", "worlds");

const README: &str = include_str!("../templates/README.md");

const RUST: Template = Template {
    language: "Rust",
    about: "The functions and classes of `src/lib.rs` are the contract: `#[wasmrun_guest::module]` writes its WIT, which \
            `wasmrun inspect --wit` shows. Where `wasmrun-guest` comes from, `Cargo.toml` says.",
    setup: "rustup target add wasm32-wasip2",
    build: "cargo build --release --target wasm32-wasip2",
    module: "target/wasm32-wasip2/release/{{crate}}.wasm",
    test: "cargo test",
    call: SUM.0,
    printed: SUM.1,
    ignored: "/target\n",
    files: templates! { "Cargo.toml": "rust/Cargo.toml.in", "src/lib.rs": "rust/lib.rs" },
    has_wit: false,
};

const PYTHON: Template = Template {
    language: "Python",
    about: "`wit/world.wit` is the contract, and `app.py` what stands behind it. For editors and type checkers \
            `.venv/bin/componentize-py --wit-path wit --world guest bindings types` writes what it imports.",
    setup: "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
    build: ".venv/bin/componentize-py --wit-path wit --world guest componentize app --output {{name}}.wasm",
    module: "{{name}}.wasm",
    test: "python3 -m unittest",
    call: SUM.0,
    printed: SUM.1,
    ignored: "/.venv\n/types\n__pycache__/\n*.wasm\n",
    files: templates! {
        "app.py": "py/app.py",
        "test_app.py": "py/test_app.py",
        "requirements.txt": "py/requirements.txt",
    },
    has_wit: true,
};

const JS: Template = Template {
    language: "JavaScript",
    about: "`wit/world.wit` is the contract, and `app.js` what stands behind it. `npm run types` writes the types of both \
            sides into `types/`, by which editors check it; the build does that too.",
    setup: "npm install",
    build: "npm run build",
    module: "{{name}}.wasm",
    test: "npm test",
    call: SUM.0,
    printed: SUM.1,
    ignored: "/node_modules\n/types\n*.wasm\n",
    files: templates! {
        "app.js": "js/app.js",
        "test.mjs": "js/test.mjs",
        "package.json": "js/package.json",
        "jsconfig.json": "js/jsconfig.json",
    },
    has_wit: true,
};

const TS: Template = Template {
    language: "TypeScript",
    about: "`wit/world.wit` is the contract, and `app.ts` what stands behind it. The build writes the types of both sides \
            into `types/`, and checks it against them.",
    ignored: "/build\n/node_modules\n/types\n*.wasm\n",
    files: templates! {
        "app.ts": "ts/app.ts",
        "test.mjs": "js/test.mjs",
        "package.json": "ts/package.json",
        "tsconfig.json": "ts/tsconfig.json",
    },
    ..JS
};

const C: Template = Template {
    language: "C",
    about: "`wit/world.wit` is the contract, and `app.c` what stands behind it, with the interfaces of the host in \
            `wasmrun.h`. Both follow the canonical ABI by hand; `wit-bindgen c wit --world guest` writes such code for \
            any world.",
    setup: "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
    build: "make",
    module: "{{name}}.wasm",
    test: "make test",
    call: SUM.0,
    printed: SUM.1,
    ignored: "/.venv\n*.wasm\n",
    files: templates! {
        "app.c": "c/app.c",
        "wasmrun.h": "c/wasmrun.h",
        "Makefile": "c/Makefile",
        "requirements.txt": "c/requirements.txt",
    },
    has_wit: true,
};

const GO: Template = Template {
    language: "Go",
    about: "`wit/world.wit` is the contract, and `app.go` what stands behind it, with the interfaces of the host in \
            `wasmrun.go`. Both follow the canonical ABI by hand, with Go's own compiler.",
    files: templates! {
        "app.go": "go/app.go",
        "sum.go": "go/sum.go",
        "sum_test.go": "go/sum_test.go",
        "wasmrun.go": "go/wasmrun.go",
        "go.mod": "go/go.mod.in",
        "Makefile": "go/Makefile",
        "requirements.txt": "go/requirements.txt",
    },
    ..C
};

pub fn new(new: &New, printer: &Printer) -> CommandResult {
    let template = match new.lang {
        ProjectLanguage::Rust => RUST,
        ProjectLanguage::Python => PYTHON,
        ProjectLanguage::Js => JS,
        ProjectLanguage::Ts => TS,
        ProjectLanguage::Go => GO,
        ProjectLanguage::C => C,
    };
    let name = new.name.as_str();
    let sdk = new.sdk.as_deref();
    if sdk.is_some() && new.lang != ProjectLanguage::Rust {
        return Err(Failure::usage(
            "--sdk is for projects in Rust: leave it out",
        ));
    }
    let sdk = sdk.unwrap_or("../wasmrun/guest-sdk");
    let filled = |text: &str| template.fill(text, name, sdk);
    let folder = Path::new(name);
    fs::create_dir(folder).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(format!(
            "{name} is there already: choose another name, or move it away first"
        )),
        _ => Failure::from(error).context(format!("cannot make the folder {name}")),
    })?;
    let wit = if template.has_wit { WIT } else { &[] };
    let own = [("README.md", README), (".gitignore", template.ignored)];
    for &(path, text) in own.iter().chain(wit).chain(template.files) {
        let path = folder.join(path);
        let parent = path.parent().expect("it is in the folder");
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, filled(text)))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if new.lang == ProjectLanguage::Rust && !folder.join(sdk).join("Cargo.toml").is_file() {
        printer.warn(format_args!(
            "{name}/Cargo.toml names {sdk}, and nothing is there: name the guest-sdk of a checkout of wasmrun"
        ));
    }
    printer.note(format_args!(
        "{name}: a project in {}; there:",
        template.language
    ));
    let submit = "wasmrun submit {{module}} {{call}}";
    for command in [template.setup, template.build, submit, template.test] {
        printer.note(format_args!("    {}", filled(command)));
    }
    Ok(())
}

impl Template {
    /// The text of one of its files. Those of its own may have other names in them, so they come first.
    fn fill(&self, text: &str, name: &str, sdk: &str) -> String {
        // A library's file has no `-` in its name.
        let file = name.replace('-', "_");
        let own = [
            ("{{language}}", self.language),
            ("{{about}}", self.about),
            ("{{setup}}", self.setup),
            ("{{build}}", self.build),
            ("{{module}}", self.module),
            ("{{test}}", self.test),
            ("{{call}}", self.call),
            ("{{printed}}", self.printed),
            ("{{crate}}", file.as_str()),
            ("{{name}}", name),
            ("{{sdk}}", sdk),
        ];
        let fill = |text: String, &(hole, what): &(&str, &str)| text.replace(hole, what);
        own.iter().fold(text.to_owned(), fill)
    }
}
