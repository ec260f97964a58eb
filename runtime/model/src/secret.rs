//! Secrets by name: what they are called, and where a task finds one.
//!
//! Owns names, places and limits. Must not: hold a value; those are sealed in the control store and opened by the node that
//! runs an attempt.
//!
//! A task is given a secret in a variable or in a file of [`FOLDER`]. Among grants on the wire and in records that is one more
//! variable, whose name begins with `=`: no variable of an environment can be called so, and layouts stay as they are
//! ([`split`], [`joined`]).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

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

/// A secret that a task is given: `NAME` in the variable of that name, `VARIABLE=NAME`, or `/run/secrets/FILE=NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// Variables as they travel: those of an environment, then secrets.
pub fn joined(
    variables: impl IntoIterator<Item = (String, String)>,
    secrets: &[SecretUse],
) -> Vec<(String, String)> {
    let secrets = secrets.iter();
    let secrets = secrets.map(|it| (format!("={}", it.place), it.name.to_string()));
    variables.into_iter().chain(secrets).collect()
}

/// Variables of an environment, each with its value.
pub type Variables = Vec<(String, String)>;

/// Takes variables as they travel apart: those of an environment, and secrets.
///
/// # Errors
/// When one that stands for a secret is none, two have the same place, or there are too many.
pub fn split(
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<(Variables, Vec<SecretUse>), ParseSecretError> {
    let (mut plain, mut secrets) = (Vec::new(), Vec::new());
    let mut places = BTreeSet::new();
    for (name, value) in variables {
        let Some(place) = name.strip_prefix('=') else {
            plain.push((name, value));
            continue;
        };
        let place: SecretPlace = place.parse()?;
        if !places.insert(place.clone()) {
            return Err(ParseSecretError::SamePlace(place.to_string()));
        }
        secrets.push(SecretUse {
            name: value.parse()?,
            place,
        });
    }
    match secrets.len() {
        ..=MAX_USES => Ok((plain, secrets)),
        more => Err(ParseSecretError::TooMany(more)),
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
    fn secrets_travel_among_variables() {
        let secrets: Vec<SecretUse> = ["A", "B=A", "/run/secrets/f=A"]
            .map(|it| it.parse().unwrap())
            .into();
        let env = vec![("K".to_owned(), "v".to_owned())];
        let travels = joined(env.clone(), &secrets);
        assert_eq!(travels[3], ("=/run/secrets/f".to_owned(), "A".to_owned()));
        assert_eq!(split(travels), Ok((env, secrets)));
        let one = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        for bad in [
            vec![one("=", "A")],
            vec![one("=A", "")],
            vec![one("=A", "A"), one("=A", "B")],
            (0..=MAX_USES)
                .map(|n| one(&format!("=V{n}"), "A"))
                .collect(),
        ] {
            assert!(split(bad).is_err());
        }
    }
}
