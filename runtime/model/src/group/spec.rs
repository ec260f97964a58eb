//! What a placement group is: its kind and its bundles.
//!
//! Owns both and their limits. Must not: know nodes.
//!
//! Invariants: a [`GroupSpec`] has 1 to [`MAX_BUNDLES`] bundles, and each asks for something; it has as many selectors, or
//! none where every node will do for each.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::cluster::{Selector, Selectors};
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
///
/// In JSON the selectors are `label_selectors`, as they are typed, one for each bundle. In bytes there is no place for
/// them, for nodes and clients of the version before would not know it: what has some is sent
/// [without](GroupSpec::without_selectors), and they go beside it where they are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    kind: GroupKind,
    bundles: Vec<Request>,
    /// By number of the bundle; none at all if all nodes will do for all.
    selectors: Vec<Selectors>,
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
            None => Ok(Self {
                kind,
                bundles,
                selectors: Vec::new(),
            }),
        }
    }

    /// The same, with what labels the node of each bundle must have: one for each, in their order. None at all stands
    /// for any node.
    pub fn with_selectors(mut self, selectors: Vec<Selectors>) -> Result<Self, GroupSpecError> {
        let (bundles, count) = (self.bundles.len(), selectors.len());
        if count != bundles && count != 0 {
            return Err(GroupSpecError::Selectors { count, bundles });
        }
        self.selectors = match selectors.iter().all(Selectors::is_any) {
            true => Vec::new(),
            false => selectors,
        };
        Ok(self)
    }

    /// The same for any nodes, and what labels those of each bundle had to have; nothing for any.
    #[must_use]
    pub fn without_selectors(&self) -> (Self, Vec<Selectors>) {
        let bare = Self {
            selectors: Vec::new(),
            ..self.clone()
        };
        (bare, self.selectors.clone())
    }

    /// What labels the node of a bundle must have: selectors that are tried in order, none for any node.
    pub fn selectors(&self, bundle: u32) -> &[Selector] {
        let selectors = self.selectors.get(bundle as usize);
        selectors.map_or(&[], Selectors::as_slice)
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
    /// Not one for each bundle.
    #[error(
        "{count} label selectors are given for {bundles} bundles; give one for each, * where any node will do"
    )]
    Selectors {
        /// How many selectors.
        count: usize,
        /// How many bundles.
        bundles: usize,
    },
}

/// The form that a [`GroupSpec`] has as text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    kind: GroupKind,
    bundles: Vec<Request>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    label_selectors: Vec<Selectors>,
}

/// The form that it has in bytes.
#[derive(Serialize, Deserialize)]
struct Bytes {
    kind: GroupKind,
    bundles: Vec<Request>,
}

impl Serialize for GroupSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, bundles) = (self.kind, self.bundles.clone());
        if serializer.is_human_readable() {
            let label_selectors = self.selectors.clone();
            let text = Text {
                kind,
                bundles,
                label_selectors,
            };
            return text.serialize(serializer);
        }
        if !self.selectors.is_empty() {
            let why = "the bytes of a placement group have no place for label selectors";
            return Err(ser::Error::custom(why));
        }
        Bytes { kind, bundles }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for GroupSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (kind, bundles, selectors) = match deserializer.is_human_readable() {
            true => {
                let it = Text::deserialize(deserializer)?;
                (it.kind, it.bundles, it.label_selectors)
            }
            false => {
                let it = Bytes::deserialize(deserializer)?;
                (it.kind, it.bundles, Vec::new())
            }
        };
        let spec = Self::new(kind, bundles).and_then(|it| it.with_selectors(selectors));
        spec.map_err(de::Error::custom)
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
        let text = r#"{"kind":"pack","bundles":[{"CPU":"1"},{"GPU":"1"}],"label_selectors":[["zone=a"],[]]}"#;
        let selective: GroupSpec = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&selective).unwrap(), text);
        assert_eq!(selective.selectors(0)[0].to_string(), "zone=a");
        assert!(selective.selectors(1).is_empty());
        let typed = text.replace(r#"[["zone=a"],[]]"#, r#"["zone=a","*"]"#);
        assert_eq!(
            serde_json::from_str::<GroupSpec>(&typed).unwrap(),
            selective
        );
        let any = text.replace("zone=a", "*");
        let (bare, selectors) = selective.without_selectors();
        assert_eq!(serde_json::from_str::<GroupSpec>(&any).unwrap(), bare);
        // Nothing of it is lost by accident.
        assert!(postcard::to_allocvec(&selective).is_err());
        let bytes = postcard::to_allocvec(&bare).unwrap();
        assert_eq!(postcard::from_bytes::<GroupSpec>(&bytes).unwrap(), bare);
        assert_eq!(bare.with_selectors(selectors).unwrap(), selective);
        let few = text.replace(r#",[]]"#, "]");
        let error = serde_json::from_str::<GroupSpec>(&few).unwrap_err();
        let says = "1 label selectors are given for 2 bundles";
        assert!(error.to_string().contains(says), "{error}");
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
