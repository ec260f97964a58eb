//! What a placement group is: its kind and its bundles.
//!
//! Owns both and their limits. Must not: know nodes.
//!
//! Invariant: a [`GroupSpec`] has 1 to [`MAX_BUNDLES`] bundles, and each asks for something.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::resource::Request;

/// The most bundles of one group. A plan looks at pairs of them.
pub const MAX_BUNDLES: usize = 256;

/// How the bundles of a group lie to each other. The kinds are Ray's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupKind {
    /// On as few nodes as possible; more where it must be.
    Pack,
    /// On as many different nodes as possible; several on one where it must be.
    Spread,
    /// All on one node, or not at all.
    StrictPack,
    /// Each on a node of its own, or not at all.
    StrictSpread,
}

impl GroupKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [
        Self::Pack,
        Self::Spread,
        Self::StrictPack,
        Self::StrictSpread,
    ];

    /// Its name, as in text forms: `strict_pack`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pack => "pack",
            Self::Spread => "spread",
            Self::StrictPack => "strict_pack",
            Self::StrictSpread => "strict_spread",
        }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no kind of group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no kind of placement group: use pack, spread, strict_pack or strict_spread")]
pub struct ParseGroupKindError {
    /// The text, cut.
    pub text: String,
}

impl FromStr for GroupKind {
    type Err = ParseGroupKindError;

    fn from_str(text: &str) -> Result<Self, ParseGroupKindError> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.name() == text)
            .ok_or_else(|| ParseGroupKindError {
                text: text.chars().take(80).collect(),
            })
    }
}

/// A placement group as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Plain", into = "Plain")]
pub struct GroupSpec {
    kind: GroupKind,
    bundles: Vec<Request>,
}

impl GroupSpec {
    /// A group of this kind with these bundles, in the order in which tasks will name them.
    pub fn new(kind: GroupKind, bundles: Vec<Request>) -> Result<Self, GroupSpecError> {
        if bundles.is_empty() {
            return Err(GroupSpecError::NoBundles);
        }
        if bundles.len() > MAX_BUNDLES {
            let count = bundles.len();
            return Err(GroupSpecError::TooMany { count });
        }
        let is_empty = |bundle: &Request| bundle.amounts().is_empty();
        match bundles.iter().position(is_empty) {
            Some(bundle) => Err(GroupSpecError::EmptyBundle { bundle }),
            None => Ok(Self { kind, bundles }),
        }
    }

    /// How the bundles lie to each other.
    pub fn kind(&self) -> GroupKind {
        self.kind
    }

    /// The bundles; a bundle's number is its place here.
    pub fn bundles(&self) -> &[Request] {
        &self.bundles
    }
}

/// Why there is no such group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupSpecError {
    /// None at all.
    #[error("a placement group needs at least one bundle; give some")]
    NoBundles,
    /// Above [`MAX_BUNDLES`].
    #[error(
        "a placement group with {count} bundles is not possible: at most {MAX_BUNDLES}; make \
         several groups, or larger bundles"
    )]
    TooMany {
        /// How many were asked for.
        count: usize,
    },
    /// A bundle of nothing.
    #[error("bundle {bundle} asks for nothing; give it a resource or leave it out")]
    EmptyBundle {
        /// Its number, from 0.
        bundle: usize,
    },
}

/// The form that a [`GroupSpec`] has as data.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    kind: GroupKind,
    bundles: Vec<Request>,
}

impl TryFrom<Plain> for GroupSpec {
    type Error = GroupSpecError;

    fn try_from(plain: Plain) -> Result<Self, GroupSpecError> {
        Self::new(plain.kind, plain.bundles)
    }
}

impl From<GroupSpec> for Plain {
    fn from(spec: GroupSpec) -> Self {
        Self {
            kind: spec.kind,
            bundles: spec.bundles,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_checked() {
        let text = r#"{"kind":"strict_spread","bundles":[{"CPU":"1"},{"GPU":"0.5"}]}"#;
        let spec: GroupSpec = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), text);
        for (text, expected) in [
            (r#"{"kind":"pack","bundles":[]}"#, "at least one bundle"),
            (
                r#"{"kind":"pack","bundles":[{"CPU":1},{"CPU":0}]}"#,
                "bundle 1 asks for nothing",
            ),
            (
                r#"{"kind":"tight","bundles":[{"CPU":1}]}"#,
                "unknown variant",
            ),
        ] {
            let error = serde_json::from_str::<GroupSpec>(text).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let many = vec![spec.bundles()[0].clone(); MAX_BUNDLES + 1];
        let error = GroupSpec::new(GroupKind::Pack, many).unwrap_err();
        assert!(error.to_string().contains("257 bundles"), "{error}");
    }

    #[test]
    fn kinds_have_names() {
        for kind in GroupKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        assert!("STRICT_PACK".parse::<GroupKind>().is_err());
    }
}
