//! Strategies: how a request wants its node chosen.
//!
//! Owns the names and arguments of the strategies. Must not: choose.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::labels::cut;
use super::name::{NodeName, ParseNodeNameError};
use crate::id::{GroupId, ParseIdError};

/// How the node for a task or actor is chosen. The names and the hybrid default are Ray's.
///
/// Text, as on a command line: `default`, `random`, `spread`, `node:NAME`, `node:NAME:soft`,
/// `group:ID`, `group:ID:BUNDLE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Strategy {
    /// Packs nodes up to a threshold, then levels them.
    #[default]
    Default,
    /// Any node that fits.
    Random,
    /// Round the nodes that fit.
    Spread,
    /// One node.
    NodeAffinity {
        /// Its name, or its id in hexadecimal digits.
        node: NodeName,
        /// Whether any other will do if it is gone or can never serve the request.
        #[serde(default)]
        soft: bool,
    },
    /// Inside the resources that a placement group has reserved.
    PlacementGroup {
        /// The group.
        group: GroupId,
        /// Which of its bundles, from 0; any if `None`.
        #[serde(default)]
        bundle: Option<u32>,
    },
}

/// Why a text is not a strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseStrategyError {
    /// No strategy is called that.
    #[error(
        "'{text}' is not a strategy; use default, random, spread, node:NAME, node:NAME:soft, \
         group:ID or group:ID:BUNDLE"
    )]
    Unknown {
        /// The text, cut.
        text: String,
    },
    /// The node's name is none.
    #[error(transparent)]
    Node(#[from] ParseNodeNameError),
    /// The group's id is none.
    #[error(transparent)]
    Group(#[from] ParseIdError),
    /// The bundle is not a number.
    #[error("'{text}' is not a bundle of a placement group; give its number, from 0")]
    Bundle {
        /// The text, cut.
        text: String,
    },
}

impl FromStr for Strategy {
    type Err = ParseStrategyError;

    fn from_str(text: &str) -> Result<Self, ParseStrategyError> {
        let unknown = || ParseStrategyError::Unknown { text: cut(text) };
        let mut parts = text.splitn(3, ':');
        let kind = parts.next().unwrap_or_default();
        Ok(match (kind, parts.next(), parts.next()) {
            ("default", None, None) => Self::Default,
            ("random", None, None) => Self::Random,
            ("spread", None, None) => Self::Spread,
            ("node", Some(node), soft @ (None | Some("soft"))) => Self::NodeAffinity {
                node: node.parse()?,
                soft: soft.is_some(),
            },
            ("group", Some(group), bundle) => Self::PlacementGroup {
                group: group.parse()?,
                bundle: bundle.map(parse_bundle).transpose()?,
            },
            _ => return Err(unknown()),
        })
    }
}

fn parse_bundle(text: &str) -> Result<u32, ParseStrategyError> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let bundle = text.parse().ok().filter(|_| is_number);
    bundle.ok_or_else(|| ParseStrategyError::Bundle { text: cut(text) })
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Random => f.write_str("random"),
            Self::Spread => f.write_str("spread"),
            Self::NodeAffinity { node, soft } => {
                write!(f, "node:{node}{}", if *soft { ":soft" } else { "" })
            }
            Self::PlacementGroup {
                group,
                bundle: None,
            } => write!(f, "group:{group}"),
            Self::PlacementGroup {
                group,
                bundle: Some(bundle),
            } => write!(f, "group:{group}:{bundle}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let group = "group:000102030405060708090a0b0c0d0e0f";
        for text in [
            "default",
            "random",
            "spread",
            "node:n1",
            "node:n1.example.org:soft",
            group,
            &format!("{group}:7"),
        ] {
            let strategy: Strategy = text.parse().unwrap();
            assert_eq!(strategy.to_string(), text);
            let json = serde_json::to_string(&strategy).unwrap();
            assert_eq!(serde_json::from_str::<Strategy>(&json).unwrap(), strategy);
            let bytes = postcard::to_allocvec(&strategy).unwrap();
            assert_eq!(postcard::from_bytes::<Strategy>(&bytes).unwrap(), strategy);
        }
        for text in [
            "",
            "Default",
            "spread:1",
            "node",
            "node:",
            "node:n:hard",
            "node:n:soft:x",
            "group:1",
            &format!("{group}:x"),
            &format!("{group}:+1"),
        ] {
            assert!(text.parse::<Strategy>().is_err(), "{text}");
        }
    }

    #[test]
    fn json_is_as_in_scenarios() {
        let strategy = |json| serde_json::from_str::<Strategy>(json);
        assert_eq!(strategy(r#""spread""#).unwrap(), Strategy::Spread);
        let hard = strategy(r#"{"node_affinity":{"node":"n1"}}"#).unwrap();
        assert_eq!(hard.to_string(), "node:n1");
        let soft = strategy(r#"{"node_affinity":{"node":"n1","soft":true}}"#).unwrap();
        assert_eq!(soft.to_string(), "node:n1:soft");
        assert!(strategy(r#"{"node_affinity":{"node":"n1","sofd":true}}"#).is_err());
    }
}
