//! Versions of what is said on a wire, and which of them understand each other.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version of a protocol. The same major number, and minor numbers at most one apart, understand each
/// other; then the lower one is spoken. A minor version adds variants at the end of enums, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// Changes when old and new cannot talk.
    pub major: u16,
    /// Changes when something is added; the newer side leaves it away towards the older one.
    pub minor: u16,
}

impl Version {
    /// What two sides speak; `None` if they cannot.
    pub const fn common(self, other: Self) -> Option<Self> {
        if self.major != other.major || self.minor.abs_diff(other.minor) > 1 {
            return None;
        }
        Some(if self.minor < other.minor {
            self
        } else {
            other
        })
    }

    /// Whether all that we may talk to know what came with this minor number of ours.
    pub const fn is_old(self, since: u16) -> bool {
        since < self.minor || since == 0
    }

    /// Whether whoever speaks this knows what came with this minor number.
    pub const fn has(self, since: u16) -> bool {
        since <= self.minor
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_understand_one_minor_apart() {
        let version = |major, minor| Version { major, minor };
        assert_eq!(version(1, 1).common(version(1, 0)), Some(version(1, 0)));
        assert_eq!(version(1, 0).common(version(1, 1)), Some(version(1, 0)));
        assert_eq!(version(1, 2).common(version(1, 0)), None);
        assert_eq!(version(1, 0).common(version(2, 0)), None);
    }

    #[test]
    fn only_what_came_with_this_version_may_be_unknown() {
        let ours = Version { major: 1, minor: 2 };
        for theirs in [1, 2, 3] {
            let spoken = ours.common(Version {
                major: 1,
                minor: theirs,
            });
            let spoken = spoken.expect("at most one apart");
            for since in 0..=ours.minor {
                let is_known = since <= theirs;
                assert_eq!(spoken.has(since), is_known);
                assert!(!ours.is_old(since) || is_known, "{since} towards {theirs}");
            }
        }
        assert!(Version { major: 1, minor: 0 }.is_old(0));
    }
}
