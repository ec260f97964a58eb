//! What a tenant is called and what it is due.
//!
//! Owns the name and the settings of a tenant. Must not: know usage.
//!
//! Invariant: a name is valid; the order of names is that of their bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::encoding::text::serde_as_text;
use crate::resource::{ResourceName, ResourceSet};

use super::quota::Quota;
use super::weight::Weight;

/// The name of a tenant, as a path: an organisation, a team in it, a project of that. By default `default`.
///
/// One to [`TenantName::MAX_PARTS`] parts with `/` between them. A part is a letter or digit, then letters, digits,
/// `-`, `_` and `.`, all ASCII, at most [`TenantName::MAX_PART_LEN`] bytes. Case counts. A clone is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantName(Arc<str>);

impl TenantName {
    /// The most parts: the next tenant is looked for level by level.
    pub const MAX_PARTS: usize = 4;
    /// The longest part, in bytes.
    pub const MAX_PART_LEN: usize = 63;
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = Self::MAX_PARTS * (Self::MAX_PART_LEN + 1) - 1;
    /// The tenant of work that names none.
    pub const DEFAULT: &'static str = "default";

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the tenant that it is part of, if there is one.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(Self(parent.into()))
    }

    /// How many tenants it is part of: 0 without a `/`.
    pub fn depth(&self) -> usize {
        self.0.matches('/').count()
    }
}

impl Default for TenantName {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

/// Why a text is not the name of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseTenantNameError {
    /// No text at all.
    #[error("a tenant needs a name: give one, or leave the tenant out for 'default'")]
    Empty,
    /// A part above [`TenantName::MAX_PART_LEN`].
    #[error(
        "the tenant name '{start}' is too long: {len} bytes of at most {}; choose a shorter one",
        TenantName::MAX_PART_LEN
    )]
    TooLong {
        /// How the part begins, with … if it goes on.
        start: String,
        /// Its length in bytes.
        len: usize,
    },
    /// More than [`TenantName::MAX_PARTS`].
    #[error(
        "the tenant name '{start}' has {parts} parts, and {} are the most, such as org/team/project/user; leave some out",
        TenantName::MAX_PARTS
    )]
    TooDeep {
        /// How the name begins, with … if it goes on.
        start: String,
        /// How many parts it has.
        parts: usize,
    },
    /// A part without text.
    #[error(
        "'{name}' is not a tenant name: there is nothing before or behind one of its slashes; write it as org/team"
    )]
    EmptyPart {
        /// The text.
        name: String,
    },
    /// A character that names do not have, or not there.
    #[error(
        "'{name}' is not a tenant name: {character:?} may not stand there; \
         begin each part with a letter or digit, and go on with letters, digits, - _ ."
    )]
    Character {
        /// The text.
        name: String,
        /// The first character that does not belong.
        character: char,
    },
}

impl FromStr for TenantName {
    type Err = ParseTenantNameError;

    fn from_str(text: &str) -> Result<Self, ParseTenantNameError> {
        if text.is_empty() {
            return Err(ParseTenantNameError::Empty);
        }
        let start = |text: &str| match text.char_indices().nth(20) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        let parts = text.split('/').count();
        if parts > Self::MAX_PARTS {
            return Err(ParseTenantNameError::TooDeep {
                start: start(text),
                parts,
            });
        }
        if let Some(part) = text.split('/').find(|part| part.len() > Self::MAX_PART_LEN) {
            return Err(ParseTenantNameError::TooLong {
                start: start(part),
                len: part.len(),
            });
        }
        if text.split('/').any(str::is_empty) {
            return Err(ParseTenantNameError::EmptyPart { name: text.into() });
        }
        let is_wrong = |(at, c): &(usize, char)| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' => false,
            '-' | '_' | '.' => *at == 0,
            _ => true,
        };
        let mut parts = text.split('/');
        match parts.find_map(|part| part.char_indices().find(is_wrong)) {
            Some((_, character)) => Err(ParseTenantNameError::Character {
                name: text.into(),
                character,
            }),
            None => Ok(Self(text.into())),
        }
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(TenantName, "the name of a tenant");

/// What a tenant is due, and may have. By default: weight 1, no guarantee, no quota.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// How much it counts beside the others.
    #[serde(default)]
    pub weight: Weight,
    /// Weights that divide its share of single resources, on top of `weight`; 1 where none.
    #[serde(default)]
    pub resource_weights: BTreeMap<ResourceName, Weight>,
    /// What it is guaranteed: while it uses less than this of its dominant resource it goes before
    /// all who have what they are guaranteed. Nothing is reserved. May exceed the cluster's total.
    #[serde(default)]
    pub min_share: ResourceSet,
    /// What it may have at once.
    #[serde(default)]
    pub quota: Quota,
}

impl TenantConfig {
    /// Its weight for one resource.
    pub fn resource_weight(&self, name: &ResourceName) -> Weight {
        self.resource_weights.get(name).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert_eq!(TenantName::default().as_str(), "default");
        let long = "x".repeat(63);
        let longest = [long.as_str(); TenantName::MAX_PARTS].join("/");
        assert_eq!(longest.len(), TenantName::MAX_LEN);
        for text in [
            "a",
            "Team-1",
            "9.q_b",
            "a/b",
            "org/team/p.1/u",
            &long,
            &longest,
        ] {
            let name: TenantName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<TenantName>(&json).unwrap(), name);
            let bytes = postcard::to_allocvec(&name).unwrap();
            assert_eq!(postcard::from_bytes::<TenantName>(&bytes).unwrap(), name);
        }
        let long = format!("a/{}", "x".repeat(64));
        for (text, says) in [
            ("", "needs a name"),
            ("-a", "'-' may not stand there"),
            (".a", "'.' may not stand there"),
            ("_a", "'_' may not stand there"),
            ("a b", "' ' may not stand there"),
            ("é", "'é' may not stand there"),
            ("a/-b", "'-' may not stand there"),
            ("/a", "nothing before or behind"),
            ("a/", "nothing before or behind"),
            ("a//b", "nothing before or behind"),
            ("a/b/c/d/e", "'a/b/c/d/e' has 5 parts, and 4 are the most"),
            (&long, "xxx…' is too long: 64 bytes of at most 63"),
        ] {
            let error = text.parse::<TenantName>().unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
        let error = serde_json::from_str::<TenantName>("\"a b\"").unwrap_err();
        assert!(
            error.to_string().contains("' ' may not stand there"),
            "{error}"
        );
    }

    #[test]
    fn a_path_has_parents() {
        let name: TenantName = "org/team/project".parse().unwrap();
        let parent = name.parent().unwrap();
        assert_eq!((parent.as_str(), name.depth()), ("org/team", 2));
        let root = parent.parent().unwrap();
        assert_eq!((root.as_str(), root.depth()), ("org", 0));
        assert_eq!(root.parent(), None);
    }

    #[test]
    fn settings_have_defaults() {
        let config: TenantConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(config, TenantConfig::default());
        let json = r#"{"weight":"2.5","resource_weights":{"CPU":2},"min_share":{"memory":"1GiB"}}"#;
        let config: TenantConfig = serde_json::from_str(json).unwrap();
        assert_eq!(config.resource_weight(&ResourceName::CPU).to_string(), "2");
        assert_eq!(config.resource_weight(&ResourceName::GPU), Weight::ONE);
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<TenantConfig>(&json).unwrap(), config);
        assert!(serde_json::from_str::<TenantConfig>(r#"{"wieght":1}"#).is_err());
        assert!(serde_json::from_str::<TenantConfig>(r#"{"weight":0}"#).is_err());
    }
}
