//! Which language a file is in, and what comments and strings look like there.
//!
//! Owns the list of languages. A language is known by its file's extension or whole name.

/// A language and how to read it.
#[derive(Debug)]
pub struct Language {
    /// As shown in the table.
    pub name: &'static str,
    /// Extensions without the dot, and whole file names after a slash, in lower case.
    files: &'static [&'static str],
    /// How to read it.
    pub syntax: Syntax,
}

/// What separates code from comments. ASCII only, so files can be read as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Syntax {
    /// What begins a comment that ends with the line.
    pub line: &'static [&'static str],
    /// What begins and ends a comment of any length.
    pub block: Option<(&'static str, &'static str)>,
    /// Whether blocks stand within blocks.
    pub nested: bool,
    /// What begins, and ends, a string.
    pub quotes: &'static [&'static str],
    /// Whether a string that starts a line is documentation (Python's docstrings).
    pub docstrings: bool,
    /// Whether it has Rust's raw strings (`r#"…"#`), lifetimes and character literals.
    pub rust: bool,
}

/// No comments at all.
const PLAIN: Syntax = Syntax {
    line: &[],
    block: None,
    nested: false,
    quotes: &[],
    docstrings: false,
    rust: false,
};
const C: Syntax = Syntax {
    line: &["//"],
    block: Some(("/*", "*/")),
    quotes: &["\"", "'"],
    ..PLAIN
};
const SCRIPT: Syntax = Syntax {
    quotes: &["\"", "'", "`"],
    ..C
};
const RUST: Syntax = Syntax {
    nested: true,
    quotes: &["\""],
    rust: true,
    ..C
};
const HASH: Syntax = Syntax {
    line: &["#"],
    quotes: &["\"", "'"],
    ..PLAIN
};
const PYTHON: Syntax = Syntax {
    quotes: &["\"\"\"", "'''", "\"", "'"],
    docstrings: true,
    ..HASH
};
const TOML: Syntax = Syntax {
    quotes: &["\"\"\"", "'''", "\"", "'"],
    ..HASH
};
const MARKUP: Syntax = Syntax {
    block: Some(("<!--", "-->")),
    ..PLAIN
};

const fn language(name: &'static str, files: &'static [&'static str], syntax: Syntax) -> Language {
    Language {
        name,
        files,
        syntax,
    }
}

/// Every other file: counted, but not read.
pub static OTHER: Language = language("(other)", &[], PLAIN);

static LANGUAGES: &[Language] = &[
    language(
        "Assembly",
        &["s", "asm"],
        Syntax {
            line: &["#", ";", "//"],
            ..C
        },
    ),
    language("C", &["c", "h"], C),
    language("C#", &["cs"], C),
    language("C++", &["cc", "cpp", "cxx", "hh", "hpp"], C),
    language("CMake", &["cmake", "/cmakelists.txt"], HASH),
    language("CSS", &["css", "scss", "less"], C),
    language("Dart", &["dart"], C),
    language("Dockerfile", &["/dockerfile", "/containerfile"], HASH),
    language("Elixir", &["ex", "exs"], HASH),
    language("Go", &["go"], SCRIPT),
    language("HTML", &["html", "htm"], MARKUP),
    language(
        "Haskell",
        &["hs"],
        Syntax {
            line: &["--"],
            block: Some(("{-", "-}")),
            quotes: &["\""],
            ..RUST_LESS
        },
    ),
    language("JSON", &["json", "jsonl"], PLAIN),
    language("Java", &["java"], C),
    language("JavaScript", &["js", "mjs", "cjs", "jsx"], SCRIPT),
    language("Kotlin", &["kt", "kts"], C),
    language(
        "Lua",
        &["lua"],
        Syntax {
            line: &["--"],
            ..HASH
        },
    ),
    language("Makefile", &["/makefile", "mk"], HASH),
    language("Markdown", &["md"], MARKUP),
    language("Nix", &["nix"], HASH),
    language(
        "PHP",
        &["php"],
        Syntax {
            line: &["//", "#"],
            ..C
        },
    ),
    language("Perl", &["pl", "pm"], HASH),
    language("Protobuf", &["proto"], C),
    language("Python", &["py", "pyi"], PYTHON),
    language("Ruby", &["rb"], HASH),
    language("Rust", &["rs"], RUST),
    language("SQL", &["sql"], Syntax { line: &["--"], ..C }),
    language("SVG", &["svg"], MARKUP),
    language("Scala", &["scala"], Syntax { nested: true, ..C }),
    language(
        "Shell",
        &["sh", "bash", "zsh"],
        Syntax {
            quotes: &[],
            ..HASH
        },
    ),
    language(
        "Swift",
        &["swift"],
        Syntax {
            nested: true,
            quotes: &["\""],
            ..C
        },
    ),
    language("TOML", &["toml"], TOML),
    language("Text", &["txt"], PLAIN),
    language("TypeScript", &["ts", "tsx", "mts"], SCRIPT),
    language(
        "WAT",
        &["wat", "wast"],
        Syntax {
            line: &[";;"],
            block: Some(("(;", ";)")),
            quotes: &["\""],
            ..RUST_LESS
        },
    ),
    language(
        "WIT",
        &["wit"],
        Syntax {
            nested: true,
            quotes: &[],
            ..C
        },
    ),
    language("XML", &["xml"], MARKUP),
    language(
        "YAML",
        &["yaml", "yml"],
        Syntax {
            quotes: &[],
            ..HASH
        },
    ),
    language("Zig", &["zig"], Syntax { block: None, ..C }),
];

/// Nested blocks as in Rust, and nothing else of it.
const RUST_LESS: Syntax = Syntax {
    rust: false,
    ..RUST
};

/// The language of a file of this name; [`OTHER`] if it is none we know.
pub fn of(file_name: &str) -> &'static Language {
    let name = file_name.to_ascii_lowercase();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let whole = format!("/{name}");
    let known = |key: &str| {
        LANGUAGES
            .iter()
            .find(|language| language.files.contains(&key))
    };
    known(&whole).or_else(|| known(extension)).unwrap_or(&OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_extension_or_name() {
        for (file, name) in [
            ("main.rs", "Rust"),
            ("CMakeLists.txt", "CMake"),
            ("notes.txt", "Text"),
            ("Makefile", "Makefile"),
            ("README.MD", "Markdown"),
            ("a.tar.gz", "(other)"),
            ("rs", "(other)"),
            ("LICENSE", "(other)"),
        ] {
            assert_eq!(of(file).name, name, "{file}");
        }
    }

    #[test]
    fn no_two_languages_claim_a_file() {
        let mut files: Vec<_> = LANGUAGES
            .iter()
            .flat_map(|language| language.files)
            .collect();
        let count = files.len();
        files.sort();
        files.dedup();
        assert_eq!(files.len(), count);
    }
}
