//! Secrets by name: what they are called, and where a task finds one.
//!
//! Owns names, places and limits. Must not: hold a value; those are sealed in the control store and opened by the node that
//! runs an attempt.
//!
//! A task is given a secret in a variable or in a file of [`FOLDER`]: a [`SecretUse`] among its grants.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::encoding::text::serde_as_text;

/// The longest value, in bytes.
pub const MAX_BYTES: usize = 64 << 10;
/// How many secrets a tenant may have.
pub const MAX_SECRETS: usize = 4096;
/// How many secrets a task may be given.
pub const MAX_USES: usize = 128;
/// The guest's folder of secrets that it is given as files.
pub const FOLDER: &str = "/run/secrets";

/// The longest name of a file, in bytes: that of Linux.
const MAX_FILE_NAME: usize = 255;

/// The name of a secret: letters, digits and `_`, all ASCII, no digit first, at most [`SecretName::MAX_LEN`] bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Arc<str>);

impl SecretName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 128;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is not the name of a secret, or does not say which secret a task is given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSecretError {
    /// Names are like those of variables.
    #[error(
        "'{0}' is not the name of a secret: use 1 to {max} letters, digits and _, and begin with no digit",
        max = SecretName::MAX_LEN
    )]
    Name(String),
    /// It is neither a variable nor a file.
    #[error(
        "a secret cannot be given in '{0}': use NAME, VARIABLE=NAME or {FOLDER}/FILE=NAME, such as TOKEN=API_KEY"
    )]
    Place(String),
    /// The guest would find one of them.
    #[error("two secrets are to be given in {0}: give each a place of its own")]
    SamePlace(String),
    /// Above [`MAX_USES`].
    #[error("a task is given {0} secrets, and may have {MAX_USES}: put several values into one")]
    TooMany(usize),
}

fn is_name(text: &str) -> bool {
    let is_ok = |(at, c): (usize, char)| match c {
        'a'..='z' | 'A'..='Z' | '_' => true,
        '0'..='9' => at > 0,
        _ => false,
    };
    (1..=SecretName::MAX_LEN).contains(&text.len()) && text.char_indices().all(is_ok)
}

/// The beginning of what was given, for an error.
fn start(text: &str) -> String {
    text.chars().take(40).collect()
}

impl FromStr for SecretName {
    type Err = ParseSecretError;

    fn from_str(text: &str) -> Result<Self, ParseSecretError> {
        match is_name(text) {
            true => Ok(Self(text.into())),
            false => Err(ParseSecretError::Name(start(text))),
        }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(SecretName, "the name of a secret");

/// Where a guest finds a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretPlace {
    /// An environment variable.
    Variable(String),
    /// A file in [`FOLDER`].
    File(String),
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(name) => write!(f, "{FOLDER}/{name}"),
        }
    }
}

impl FromStr for SecretPlace {
    type Err = ParseSecretError;

    fn from_str(text: &str) -> Result<Self, ParseSecretError> {
        let file = text
            .strip_prefix(FOLDER)
            .and_then(|it| it.strip_prefix('/'));
        let is_file = |it: &&str| {
            (1..=MAX_FILE_NAME).contains(&it.len())
                && !matches!(*it, "." | "..")
                && !it.contains(|c: char| c == '/' || c == '=' || c.is_control())
        };
        match file {
            None if is_name(text) => Ok(Self::Variable(text.to_owned())),
            Some(file) if is_file(&file) => Ok(Self::File(file.to_owned())),
            _ => Err(ParseSecretError::Place(start(text))),
        }
    }
}

serde_as_text!(SecretPlace, "the variable or file of a secret");

/// A secret that a task is given: `NAME` in the variable of that name, `VARIABLE=NAME`, or `/run/secrets/FILE=NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SecretUse {
    /// Which.
    pub name: SecretName,
    /// Where.
    pub place: SecretPlace,
}

impl FromStr for SecretUse {
    type Err = ParseSecretError;

    fn from_str(text: &str) -> Result<Self, ParseSecretError> {
        let (place, name) = text.rsplit_once('=').unwrap_or((text, text));
        Ok(Self {
            name: name.parse()?,
            place: place.parse()?,
        })
    }
}

impl fmt::Display for SecretUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.place, self.name)
    }
}

/// Whether a task can be given these together.
///
/// # Errors
/// When two have the same place, or there are too many.
pub fn check(secrets: &[SecretUse]) -> Result<(), ParseSecretError> {
    if secrets.len() > MAX_USES {
        return Err(ParseSecretError::TooMany(secrets.len()));
    }
    let mut places = BTreeSet::new();
    match secrets.iter().find(|it| !places.insert(&it.place)) {
        Some(same) => Err(ParseSecretError::SamePlace(same.place.to_string())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_like_those_of_variables() {
        for good in ["A", "_", "api_key2", &"x".repeat(128)] {
            assert_eq!(good.parse::<SecretName>().unwrap().as_str(), good);
        }
        for bad in ["", "2a", "a-b", "a/b", "a=b", "ä", "a\0", &"x".repeat(129)] {
            assert!(bad.parse::<SecretName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_use_says_which_and_where() {
        let parsed = |text: &str| text.parse::<SecretUse>().unwrap();
        assert_eq!(parsed("KEY"), parsed("KEY=KEY"));
        let file = parsed("/run/secrets/tls.key=TLS_KEY");
        assert_eq!(file.place, SecretPlace::File("tls.key".into()));
        assert_eq!(file.name.as_str(), "TLS_KEY");
        for text in ["TOKEN=API_KEY", "/run/secrets/a=B"] {
            assert_eq!(parsed(text).to_string(), text);
        }
        let long = format!("/run/secrets/{}=A", "x".repeat(256));
        for bad in [
            "",
            "=",
            "A=",
            "=A",
            "a b",
            "/tmp/a=A",
            "/run/secrets=A",
            "/run/secrets/=A",
            "/run/secrets/..=A",
            "/run/secrets/a/b=A",
            "/run/secretsx=A",
            &long,
        ] {
            assert!(bad.parse::<SecretUse>().is_err(), "{bad}");
        }
    }

    #[test]
    fn each_has_a_place_of_its_own() {
        let of = |texts: &[&str]| -> Vec<SecretUse> {
            texts.iter().map(|it| it.parse().unwrap()).collect()
        };
        assert_eq!(check(&of(&["A", "B=A", "/run/secrets/A=A"])), Ok(()));
        let same = ParseSecretError::SamePlace("A".to_owned());
        assert_eq!(check(&of(&["A", "A=B"])), Err(same));
        let many: Vec<String> = (0..=MAX_USES).map(|it| format!("V{it}=A")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(check(&of(&many[1..])), Ok(()));
        let too_many = ParseSecretError::TooMany(MAX_USES + 1);
        assert_eq!(check(&of(&many)), Err(too_many));
    }

    #[test]
    fn a_place_travels_as_text_and_is_checked() {
        let it: SecretUse = "/run/secrets/f=A".parse().unwrap();
        let bytes = postcard::to_allocvec(&it).unwrap();
        assert_eq!(bytes, b"\x01A\x0e/run/secrets/f");
        assert_eq!(postcard::from_bytes(&bytes), Ok(it));
        for bad in [&b"\x01A\x00"[..], b"\x01A\x02=B", b"\x01A\x06/etc/f"] {
            assert!(postcard::from_bytes::<SecretUse>(bad).is_err());
        }
    }
}
