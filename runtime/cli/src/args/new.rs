//! `wasmrun new`: a project's name and language.

use std::str::FromStr;

use clap::{Args, ValueEnum};

/// What language tools would take for something else than a name.
const RESERVED: &str = "as async await bool borrow box break char class const constructor continue core crate default \
     delete do dyn else enum export extern f32 f64 false flags fn for from func future if impl import in include \
     interface let list loop match mod move mut new option own package pub record ref resource result return s8 s16 s32 \
     s64 self static std stream string struct super test trait true tuple type u8 u16 u32 u64 unsafe use variant where \
     while with world yield";

const MAX_NAME: usize = 64;

#[derive(Debug, Args)]
pub struct New {
    /// The project's name, and that of the folder which is made for it.
    pub name: ProjectName,
    /// In which language.
    #[arg(long, value_name = "LANGUAGE")]
    pub lang: ProjectLanguage,
    /// The guest-sdk of a checkout of wasmrun, for Rust [default: ../wasmrun/guest-sdk].
    ///
    /// As the project is to name it: a path from there, or a whole one.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub sdk: Option<String>,
}

/// What a project is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProjectLanguage {
    /// With the guest SDK.
    Rust,
    /// With componentize-py.
    #[value(alias = "py")]
    Python,
    /// With jco.
    #[value(alias = "javascript")]
    Js,
    /// With jco and tsc.
    #[value(alias = "typescript")]
    Ts,
    /// With Go's own compiler.
    #[value(alias = "golang")]
    Go,
    /// With Zig's C compiler.
    C,
}

/// A name that is one to cargo, npm and WIT alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectName(String);

impl ProjectName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_word = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_lowercase())
                && word
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        if text.len() > MAX_NAME || !text.split('-').all(is_word) {
            return Err(format!(
                "a project's name is that of a package: words of a-z and 0-9 that begin with a letter, with `-` between \
                 them, at most {MAX_NAME} characters; such as my-tasks"
            ));
        }
        if RESERVED.split(' ').any(|word| word == text) {
            return Err(format!(
                "the languages have a meaning for it; such as {text}-tasks would do"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_packages() {
        for good in [
            "a",
            "hello",
            "my-tasks",
            "a1-b2",
            "a".repeat(MAX_NAME).as_str(),
        ] {
            assert_eq!(good.parse::<ProjectName>().unwrap().as_str(), good);
        }
        let long = "a".repeat(MAX_NAME + 1);
        for bad in [
            "",
            "-a",
            "a-",
            "a--b",
            "1a",
            "a-1",
            "A",
            "a_b",
            "a/b",
            "../a",
            ".",
            "ä",
            "a b",
            "interface",
            long.as_str(),
        ] {
            assert!(bad.parse::<ProjectName>().is_err(), "{bad}");
        }
    }
}
