//! What a node is called: by people, and inside the view.
//!
//! Owns [`NodeName`] and [`NodeIx`]. Must not: know what a node has.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::labels::cut;
use crate::encoding::text::serde_as_text;

/// A node's place in a [`Cluster`](super::Cluster)'s table: dense, from 0. It is that node's only
/// while the node is there; after it left, another may get the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIx(pub u32);

impl NodeIx {
    /// As an index into tables of nodes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What people call a node: unique in a cluster.
///
/// 1 to [`NodeName::MAX_LEN`] letters, digits, `-`, `_`, `.`, beginning with a letter or digit.
/// Where a node is to be named, its id in hexadecimal digits is a name for it too. A clone is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

/// Why a text is not the name of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not the name of a node: use 1 to {} letters, digits, - _ . and begin with a \
     letter or digit",
    NodeName::MAX_LEN
)]
pub struct ParseNodeNameError {
    /// The text, cut.
    pub text: String,
}

impl NodeName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 253;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = ParseNodeNameError;

    fn from_str(text: &str) -> Result<Self, ParseNodeNameError> {
        let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        match begins_well && text.len() <= Self::MAX_LEN && text.chars().all(is_name) {
            true => Ok(Self(text.into())),
            false => Err(ParseNodeNameError { text: cut(text) }),
        }
    }
}

impl Borrow<str> for NodeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(NodeName, "a string");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let long = "n".repeat(253);
        for text in ["n1", "gpu-0.example.org", "0", "a_b", &long] {
            let name: NodeName = text.parse().unwrap();
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<NodeName>(&json).unwrap(), name);
        }
        for text in ["", "-n", "a b", "a:b", "é", &"n".repeat(254)] {
            assert!(text.parse::<NodeName>().is_err(), "{text:?}");
        }
    }
}
