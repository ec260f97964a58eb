//! Names of resources.
//!
//! Owns the name type and which names are standard. Must not: know amounts or pools.
//!
//! Invariant: a name is valid; two names are equal exactly if their texts are. The order is the
//! standard names (`CPU`, `GPU`, `memory`), then a user's own by their bytes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::encoding::text::serde_as_text;

/// The name of a resource: `CPU`, `GPU`, `memory` (in bytes), or a user's own.
///
/// A user's own name is a letter or `_`, then letters, digits, `_`, `.`, `-` and `/`, all ASCII,
/// of at most [`ResourceName::MAX_LEN`] bytes. Names are case-sensitive. A clone is cheap; the
/// standard names allocate nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Repr);

/// The order of the variants is the order of the names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Cpu,
    Gpu,
    Memory,
    User(Arc<str>),
}

impl ResourceName {
    /// Processor time; a unit is a logical core.
    pub const CPU: Self = Self(Repr::Cpu);
    /// Graphics processors; a unit is a device.
    pub const GPU: Self = Self(Repr::Gpu);
    /// Memory; a unit is a byte.
    pub const MEMORY: Self = Self(Repr::Memory);
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 128;
    /// How names begin that no resource may have: nodes tell each other other sums under them.
    pub const RESERVED: &str = "wasmrun/";

    /// The name as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Cpu => "CPU",
            Repr::Gpu => "GPU",
            Repr::Memory => "memory",
            Repr::User(name) => name,
        }
    }

    /// Whether it is `CPU`.
    pub fn is_cpu(&self) -> bool {
        matches!(self.0, Repr::Cpu)
    }

    /// Whether it is `memory`, whose amounts are bytes and may be written as sizes.
    pub fn is_memory(&self) -> bool {
        matches!(self.0, Repr::Memory)
    }

    /// Whether no resource may have this name.
    pub fn is_reserved(&self) -> bool {
        self.as_str().starts_with(Self::RESERVED)
    }

    /// Whether it is a user's own name, not a standard one.
    pub fn is_user(&self) -> bool {
        matches!(self.0, Repr::User(_))
    }
}

/// Why a text is not the name of a resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseResourceNameError {
    /// No text at all.
    #[error("a resource needs a name: use CPU, GPU, memory or a name of your own")]
    Empty,
    /// Above [`ResourceName::MAX_LEN`].
    #[error(
        "the resource name '{start}…' is too long: {len} bytes of at most {}; choose a shorter one",
        ResourceName::MAX_LEN
    )]
    TooLong {
        /// How the name begins.
        start: String,
        /// Its length in bytes.
        len: usize,
    },
    /// A character that names do not have, or not there.
    #[error(
        "'{name}' is not a resource name: {character:?} may not stand there; \
         begin with a letter or _, and go on with letters, digits, _ . - /"
    )]
    Character {
        /// The text.
        name: String,
        /// The first character that does not belong.
        character: char,
    },
}

impl FromStr for ResourceName {
    type Err = ParseResourceNameError;

    fn from_str(text: &str) -> Result<Self, ParseResourceNameError> {
        match text {
            "CPU" => return Ok(Self::CPU),
            "GPU" => return Ok(Self::GPU),
            "memory" => return Ok(Self::MEMORY),
            "" => return Err(ParseResourceNameError::Empty),
            _ => {}
        }
        if text.len() > Self::MAX_LEN {
            let start = text.chars().take(20).collect();
            return Err(ParseResourceNameError::TooLong {
                start,
                len: text.len(),
            });
        }
        let is_ok = |(at, c): &(usize, char)| match c {
            'a'..='z' | 'A'..='Z' | '_' => true,
            '0'..='9' | '.' | '-' | '/' => *at > 0,
            _ => false,
        };
        match text.char_indices().find(|found| !is_ok(found)) {
            Some((_, character)) => Err(ParseResourceNameError::Character {
                name: text.into(),
                character,
            }),
            None => Ok(Self(Repr::User(text.into()))),
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

serde_as_text!(ResourceName, "the name of a resource");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_names_are_the_constants() {
        assert_eq!("CPU".parse(), Ok(ResourceName::CPU));
        assert_eq!("GPU".parse(), Ok(ResourceName::GPU));
        assert_eq!("memory".parse(), Ok(ResourceName::MEMORY));
        assert!("cpu".parse::<ResourceName>().unwrap().is_user());
    }

    #[test]
    fn names_are_checked() {
        let long = "x".repeat(128);
        for text in ["tpu", "_x", "example.org/tpu-v4", "A1", &long] {
            let name: ResourceName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<ResourceName>(&json).unwrap(), name);
            let bytes = postcard::to_allocvec(&name).unwrap();
            assert_eq!(postcard::from_bytes::<ResourceName>(&bytes).unwrap(), name);
        }
        for text in ["", "1x", "/x", "a b", "a=b", "é", "x\0", &"x".repeat(129)] {
            assert!(text.parse::<ResourceName>().is_err(), "{text:?}");
        }
        let error = "a b".parse::<ResourceName>().unwrap_err().to_string();
        assert!(error.contains("' ' may not stand there"), "{error}");
    }

    #[test]
    fn the_order_is_standard_names_first() {
        let name = |text: &str| text.parse::<ResourceName>().unwrap();
        let mut names = [
            name("tpu"),
            ResourceName::MEMORY,
            name("AAA"),
            ResourceName::CPU,
        ];
        names.sort();
        assert_eq!(
            names,
            [
                ResourceName::CPU,
                ResourceName::MEMORY,
                name("AAA"),
                name("tpu")
            ]
        );
    }
}
