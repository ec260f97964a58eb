//! Labels: what nodes say about themselves, as `key=value`.
//!
//! Owns keys, values and the map of them. Must not: match; that is what selectors do.
//!
//! Invariants: keys and values are valid, in Kubernetes' syntax of labels; no key twice; the order
//! is that of the keys.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::encoding::text::serde_as_text;

/// The label that every node has by default: its id in hexadecimal digits.
pub const NODE_ID: &str = "wasmrun.io/node-id";
/// The label that a node has by default where its name in the network is known.
pub const HOSTNAME: &str = "wasmrun.io/hostname";
/// The label that a node has by default where it found accelerators: the type of the first one.
pub const ACCELERATOR_TYPE: &str = "wasmrun.io/accelerator-type";

/// The key of a label: a name, or `prefix/name`.
///
/// The name has 1 to 63 letters, digits, `-`, `_`, `.` and begins and ends with a letter or digit;
/// the prefix is a domain of up to 253 bytes: small letters, digits, `-`, `.`. A clone is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelKey(Arc<str>);

/// The value of a label: empty, or at most 63 letters, digits, `-`, `_`, `.` that begin and end
/// with a letter or digit. A clone is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelValue(Arc<str>);

/// Longest name in a key, and longest value, in bytes.
const NAME_LEN_MAX: usize = 63;
/// Longest prefix of a key, in bytes.
const PREFIX_LEN_MAX: usize = 253;

/// Why a text is not a label, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseLabelError {
    /// No key, or nothing before or after its `/`.
    #[error(
        "'{text}' is not a label key: it lacks a name; write for example zone or example.org/zone"
    )]
    NoName {
        /// The text, cut.
        text: String,
    },
    /// A part is too long.
    #[error("{what} '{text}…' is too long: {len} bytes of at most {max}; choose a shorter one")]
    TooLong {
        /// Which part.
        what: &'static str,
        /// How it begins.
        text: String,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A character that does not belong there.
    #[error(
        "'{text}' is not a {what}: {character:?} may not stand there; use letters, digits, - _ . \
         and begin and end with a letter or digit"
    )]
    Character {
        /// Which part.
        what: &'static str,
        /// The text.
        text: String,
        /// The first character that does not belong.
        character: char,
    },
    /// A label without `=`.
    #[error("'{text}' is not a label: write key=value")]
    NoValue {
        /// The text, cut.
        text: String,
    },
    /// A key that comes twice.
    #[error("the label {key} is given twice; keep one")]
    Twice {
        /// The key.
        key: LabelKey,
    },
    /// More labels than [`Labels::MAX`].
    #[error("more than {} labels on one node; use fewer", Labels::MAX)]
    TooMany,
}

/// The start of a text from outside, short enough for a message.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Checks one part: its length, its characters, and that it begins and ends with a letter or digit.
fn check(
    what: &'static str,
    text: &str,
    max: usize,
    is_inner: impl Fn(char) -> bool,
) -> Result<(), ParseLabelError> {
    if text.len() > max {
        let len = text.len();
        let text = text.chars().take(20).collect();
        return Err(ParseLabelError::TooLong {
            what,
            text,
            len,
            max,
        });
    }
    let last = text.chars().count().saturating_sub(1);
    let mut wrong = text.chars().enumerate().filter(|(at, c)| {
        !(c.is_ascii_alphanumeric() && is_inner(*c) || *at > 0 && *at < last && is_inner(*c))
    });
    match wrong.next() {
        Some((_, character)) => Err(ParseLabelError::Character {
            what,
            text: text.into(),
            character,
        }),
        None => Ok(()),
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn is_domain(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.')
}

impl FromStr for LabelKey {
    type Err = ParseLabelError;

    fn from_str(text: &str) -> Result<Self, ParseLabelError> {
        let (prefix, name) = match text.split_once('/') {
            Some((prefix, name)) => (Some(prefix), name),
            None => (None, text),
        };
        if name.is_empty() || prefix == Some("") {
            return Err(ParseLabelError::NoName { text: cut(text) });
        }
        if let Some(prefix) = prefix {
            check("prefix of a label key", prefix, PREFIX_LEN_MAX, is_domain)?;
        }
        check("label key", name, NAME_LEN_MAX, is_name)?;
        Ok(Self(text.into()))
    }
}

impl FromStr for LabelValue {
    type Err = ParseLabelError;

    fn from_str(text: &str) -> Result<Self, ParseLabelError> {
        check("label value", text, NAME_LEN_MAX, is_name)?;
        Ok(Self(text.into()))
    }
}

macro_rules! text {
    ($name:ident) => {
        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        serde_as_text!($name, "a string");
    };
}

text!(LabelKey);
text!(LabelValue);

/// The labels of one node.
///
/// Text: `key=value` with commas between them. Serialised as a map; a decoded one has at most
/// [`Labels::MAX`] entries and no key twice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Labels(BTreeMap<LabelKey, LabelValue>);

impl Labels {
    /// The most labels that one node may have.
    pub const MAX: usize = 256;

    /// No labels.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&LabelValue> {
        self.0.get(key)
    }

    /// Sets a label; another value of it is replaced. Fails above [`Labels::MAX`].
    pub fn set(&mut self, key: LabelKey, value: LabelValue) -> Result<(), ParseLabelError> {
        if self.0.len() == Self::MAX && !self.0.contains_key(&key) {
            return Err(ParseLabelError::TooMany);
        }
        self.0.insert(key, value);
        Ok(())
    }

    /// Takes a label away; false if there was none.
    pub fn remove(&mut self, key: &str) -> bool {
        self.0.remove(key).is_some()
    }

    /// The labels, in the order of their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&LabelKey, &LabelValue)> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn set_once(&mut self, key: LabelKey, value: LabelValue) -> Result<(), ParseLabelError> {
        match self.0.contains_key(&key) {
            true => Err(ParseLabelError::Twice { key }),
            false => self.set(key, value),
        }
    }
}

impl FromStr for Labels {
    type Err = ParseLabelError;

    /// Parses `key=value,key=value`; the empty text is no labels.
    fn from_str(text: &str) -> Result<Self, ParseLabelError> {
        let mut labels = Self::new();
        if text.trim().is_empty() {
            return Ok(labels);
        }
        for label in text.split(',') {
            let no_value = || ParseLabelError::NoValue { text: cut(label) };
            let (key, value) = label.split_once('=').ok_or_else(no_value)?;
            labels.set_once(key.trim().parse()?, value.trim().parse()?)?;
        }
        Ok(labels)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            write!(f, "{separator}{key}={value}")?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor;

        impl<'de> Visitor<'de> for LabelsVisitor {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from label keys to values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut labels = Labels::new();
                while let Some((key, value)) = map.next_entry()? {
                    labels.set_once(key, value).map_err(de::Error::custom)?;
                }
                Ok(labels)
            }
        }

        deserializer.deserialize_map(LabelsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_checked() {
        let long = format!("{}/{}", "p".repeat(253), "n".repeat(63));
        for text in ["zone", "wasmrun.io/node-id", "A_1.b", "x", &long] {
            assert_eq!(text.parse::<LabelKey>().unwrap().to_string(), text);
        }
        let longer = format!("{}/n", "p".repeat(254));
        let name = "n".repeat(64);
        for text in [
            "", "/", "a/", "/b", "-a", "a-", "a b", "a=b", "é", "A/b", "a/b/c", &longer, &name,
        ] {
            assert!(text.parse::<LabelKey>().is_err(), "{text:?}");
        }
        for text in ["", "a", "NVIDIA-H200", "1.5"] {
            assert_eq!(text.parse::<LabelValue>().unwrap().to_string(), text);
        }
        for text in ["-a", "a.", "a/b", "a,b", ")", &name] {
            assert!(text.parse::<LabelValue>().is_err(), "{text:?}");
        }
        for key in [NODE_ID, HOSTNAME, ACCELERATOR_TYPE] {
            assert!(key.parse::<LabelKey>().is_ok());
        }
    }

    #[test]
    fn labels_round_trip_and_refuse() {
        let labels: Labels = " zone=a, wasmrun.io/hostname=n1 ,gpu=".parse().unwrap();
        assert_eq!(labels.to_string(), "gpu=,wasmrun.io/hostname=n1,zone=a");
        assert_eq!(labels.to_string().parse(), Ok(labels.clone()));
        assert_eq!(labels.get("zone").unwrap().as_str(), "a");
        let json = serde_json::to_string(&labels).unwrap();
        assert_eq!(json, r#"{"gpu":"","wasmrun.io/hostname":"n1","zone":"a"}"#);
        assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), labels);
        let bytes = postcard::to_allocvec(&labels).unwrap();
        assert_eq!(postcard::from_bytes::<Labels>(&bytes).unwrap(), labels);
        assert_eq!("".parse(), Ok(Labels::new()));
        for text in ["zone", "zone=a,zone=b", "zone=a,", "=a"] {
            assert!(text.parse::<Labels>().is_err(), "{text}");
        }
        let twice = serde_json::from_str::<Labels>(r#"{"a":"1","a":"1"}"#).unwrap_err();
        assert!(twice.to_string().contains("the label a is given twice"));
    }

    #[test]
    fn too_many_labels_are_refused() {
        let many: Vec<_> = (0..Labels::MAX).map(|i| format!("k{i}=v")).collect();
        let mut labels: Labels = many.join(",").parse().unwrap();
        let key = |text: &str| text.parse::<LabelKey>().unwrap();
        assert_eq!(labels.set(key("k0"), "w".parse().unwrap()), Ok(()));
        assert_eq!(
            labels.set(key("more"), "w".parse().unwrap()),
            Err(ParseLabelError::TooMany)
        );
    }
}
