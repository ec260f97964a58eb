//! The policies by which tenants take turns.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the order between tenants is decided.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Dominant resource fairness, over all resources of the cluster.
    #[default]
    Drf,
    /// Max-min fairness of one resource, memory.
    Fair,
    /// One line for all tenants, in the order of priority and submission.
    Fifo,
}

impl Policy {
    const ALL: [Self; 3] = [Self::Drf, Self::Fair, Self::Fifo];

    /// The name as text: `drf`, `fair` or `fifo`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drf => "drf",
            Self::Fair => "fair",
            Self::Fifo => "fifo",
        }
    }
}

/// The error of a text that names no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a policy for sharing: use drf, fair or fifo")]
pub struct ParsePolicyError {
    /// The text, shortened.
    pub text: String,
}

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == text);
        found.ok_or_else(|| ParsePolicyError {
            text: text.chars().take(40).collect(),
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(Policy::default(), Policy::Drf);
        for (policy, name) in [
            (Policy::Drf, "drf"),
            (Policy::Fair, "fair"),
            (Policy::Fifo, "fifo"),
        ] {
            assert_eq!(policy.to_string(), name);
            assert_eq!(name.parse(), Ok(policy));
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(json, format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
        }
        let error = "DRF".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("'DRF' is not a policy"), "{error}");
    }
}
