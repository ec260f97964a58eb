//! What a module declares it needs: the JSON of the custom section `wasmrun:manifest`.
//!
//! Owns its shape, parsing and printing. What a function gets in the end (flags before manifest
//! before defaults) is decided by the node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::resource::{Amount, ResourceName, ResourceSet};
use crate::units;

/// The version that this code reads and writes.
pub const VERSION: u32 = 1;

/// The largest manifest that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// The name under which a program's settings stand.
pub const PROGRAM: &str = "run";

/// The name under which settings of the handler of HTTP requests stand.
pub const HTTP: &str = "http";

/// The name under which settings for all functions stand.
pub const ANY: &str = "*";

/// What a module declares. The default declares nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format.
    version: u32,
    /// Settings per function, by name (`run` for the program, `*` for all).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, FunctionSettings>,
    /// Settings per actor class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub actors: BTreeMap<String, ActorSettings>,
    /// What the module would like to reach. A wish: the person who submits grants.
    #[serde(default, skip_serializing_if = "Capabilities::is_empty")]
    pub capabilities: Capabilities,
}

/// What a function declares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSettings {
    /// What it needs to run.
    #[serde(default, skip_serializing_if = "Asked::is_empty")]
    pub resources: Asked,
    /// What would do instead, in order of preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<ResourceSet>,
    /// How often to try again after a failure that is not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Whether an error that it returns is such a failure, and not an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_on_error: Option<bool>,
    /// How long it may run, such as `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<TimeLimit>,
    /// Whether it runs untrusted code: it starts no tasks, creates no actors and finds none by name. It can use the objects and
    /// actors among its arguments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
}

/// Amounts by resource. Unlike in a [`ResourceSet`], an amount of zero says something: not the
/// default, but none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<ResourceName, serde_json::Value>")]
#[serde(into = "BTreeMap<ResourceName, String>")]
pub struct Asked(pub BTreeMap<ResourceName, Amount>);

impl Asked {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it says something about anything but memory: about what kind of machine is wanted.
    pub fn names_units(&self) -> bool {
        self.0.keys().any(|name| !name.is_memory())
    }

    /// Puts these amounts in place of those in `set`.
    pub fn apply_to(&self, set: &mut ResourceSet) {
        for (name, amount) in &self.0 {
            set.set(name.clone(), *amount);
        }
    }
}

impl TryFrom<BTreeMap<ResourceName, serde_json::Value>> for Asked {
    type Error = String;

    fn try_from(amounts: BTreeMap<ResourceName, serde_json::Value>) -> Result<Self, String> {
        let read = |(name, value): (ResourceName, serde_json::Value)| {
            let amount = match &value {
                serde_json::Value::String(text) => Amount::parse_for(&name, text),
                serde_json::Value::Number(n) if n.is_u64() => {
                    Amount::parse_for(&name, &n.to_string())
                }
                other => {
                    return Err(format!(
                        "{name}: {other} is no amount: write text such as \"0.5\", or a whole number"
                    ));
                }
            };
            Ok((
                name.clone(),
                amount.map_err(|error| format!("{name}: {error}"))?,
            ))
        };
        amounts
            .into_iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl From<Asked> for BTreeMap<ResourceName, String> {
    fn from(asked: Asked) -> Self {
        let text = |(name, amount): (ResourceName, Amount)| {
            let text = amount.display_for(&name).to_string();
            (name, text)
        };
        asked.0.into_iter().map(text).collect()
    }
}

/// What an actor class declares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActorSettings {
    /// What an instance holds all its life.
    #[serde(default, skip_serializing_if = "Asked::is_empty")]
    pub resources: Asked,
    /// How often a lost instance is started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// How often a call that was under way is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_retries: Option<u32>,
    /// Whether calls with the same arguments, made in the same order of a new instance, give the same results: then
    /// results that are lost with their node can be reconstructed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deterministic: bool,
    /// As of functions, for its constructor and methods.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
}

/// What a module would like to reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// Directories, by the guest's name for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirs: Vec<String>,
    /// Addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net: Vec<String>,
    /// Servers to send HTTP requests to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<String>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Secrets, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

/// A time limit, written as a duration (`30s`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeLimit {
    /// In milliseconds, at least 1.
    pub ms: u64,
}

impl TryFrom<String> for TimeLimit {
    type Error = units::ParseDurationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Ok(Self {
            ms: units::parse_milliseconds(&text)?,
        })
    }
}

impl From<TimeLimit> for String {
    fn from(limit: TimeLimit) -> Self {
        // Not the rounded form for people: this one is read again.
        format!("{}ms", limit.ms)
    }
}

/// Why a manifest cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is not JSON at all.
    #[error("it is not JSON: {0}; write it anew with `wasmrun annotate`")]
    NotJson(String),
    /// It is from another time.
    #[error("it has version {found}, and this wasmrun reads version {VERSION}; {}", if *.found > u64::from(VERSION) {
        "use a newer wasmrun"
    } else {
        "write it anew with `wasmrun annotate`"
    })]
    Version {
        /// Its version.
        found: u64,
    },
    /// It says something that has no meaning.
    #[error("{0}; correct it, or write it anew with `wasmrun annotate`")]
    Invalid(String),
    /// It is larger than any sensible one.
    #[error("it has {bytes} bytes, more than the {MAX_BYTES} that are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl Default for Manifest {
    fn default() -> Self {
        Self {
            version: VERSION,
            functions: BTreeMap::new(),
            actors: BTreeMap::new(),
            capabilities: Capabilities::default(),
        }
    }
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// When it is not JSON, of another version, or has fields or values that mean nothing.
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: Option<u64>,
        }
        if json.len() > MAX_BYTES {
            return Err(ManifestError::TooLarge { bytes: json.len() });
        }
        let json = json.trim_ascii();
        match serde_json::from_slice::<Versioned>(json) {
            Ok(Versioned {
                version: Some(found),
            }) if found != u64::from(VERSION) => {
                return Err(ManifestError::Version { found });
            }
            Err(error) if error.is_syntax() || error.is_eof() => {
                return Err(ManifestError::NotJson(error.to_string()));
            }
            // What else is wrong, the whole structure says better.
            _ => {}
        }
        serde_json::from_slice(json).map_err(|error| ManifestError::Invalid(error.to_string()))
    }

    /// The manifest as JSON, without what says nothing.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a manifest is plain data")
    }

    /// Whether it declares nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is declared for a function, most particular first: under its full name
    /// (`interface#name`), under its name, for all.
    pub fn settings<'a>(
        &'a self,
        full_name: &'a str,
    ) -> impl Iterator<Item = &'a FunctionSettings> + 'a {
        let name = full_name.rsplit_once('#').map(|(_, name)| name);
        [Some(full_name), name, Some(ANY)]
            .into_iter()
            .flatten()
            .filter_map(|name| self.functions.get(name))
    }

    /// The settings of a class with this full name.
    pub fn class(&self, full_name: &str) -> Option<&ActorSettings> {
        let name = full_name.rsplit_once('#').map(|(_, name)| name);
        let full = self.actors.get(full_name);
        full.or_else(|| self.actors.get(name?))
    }
}

impl Capabilities {
    /// Whether nothing is wished for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Fuzz target: whatever is accepted survives being written and read again. Never panics.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    if let Ok(manifest) = Manifest::parse(data) {
        assert_eq!(Manifest::parse(manifest.to_json().as_bytes()), Ok(manifest));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FULL: &str = r#"{"version":1,
        "functions":{"*":{"resources":{"CPU":"1","memory":"64MiB"}},
                     "render":{"resources":{"CPU":"1","GPU":"0.25","memory":"256MiB"},
                               "retries":3,"time_limit":"30s","alternatives":[{"CPU":"4"}]}},
        "actors":{"counter":{"resources":{"CPU":"0"},"restarts":2,"call_retries":0}},
        "capabilities":{"dirs":[],"net":[],"env":[],"secrets":["KEY"]}}"#;

    #[test]
    fn the_documented_example_is_read_and_round_trips() {
        let manifest = Manifest::parse(FULL.as_bytes()).unwrap();
        let render = &manifest.functions["render"];
        assert_eq!(render.retries, Some(3));
        assert_eq!(render.time_limit, Some(TimeLimit { ms: 30_000 }));
        assert_eq!(render.alternatives.len(), 1);
        assert_eq!(manifest.actors["counter"].restarts, Some(2));
        assert_eq!(manifest.capabilities.secrets, ["KEY"]);
        assert_eq!(Manifest::parse(manifest.to_json().as_bytes()), Ok(manifest));
    }

    #[test]
    fn the_particular_comes_before_the_general() {
        let json = r#"{"version":1,"functions":{"*":{"retries":1},"f":{"retries":2},
            "a:b/c#f":{"retries":3}}}"#;
        let manifest = Manifest::parse(json.as_bytes()).unwrap();
        let retries = |name| {
            manifest
                .settings(name)
                .map(|s| s.retries.unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(retries("a:b/c#f"), [3, 2, 1]);
        assert_eq!(retries("f"), [2, 1]);
        assert_eq!(retries("x#g"), [1]);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let error = |json: &str| Manifest::parse(json.as_bytes()).unwrap_err().to_string();
        assert!(
            error("not json").starts_with("it is not JSON"),
            "{}",
            error("not json")
        );
        assert!(error(r#"{"version":1"#).starts_with("it is not JSON"));
        assert!(error(r#"{"version":2,"new":[]}"#).contains("version 2"));
        assert!(
            error("{}").contains("missing field `version`"),
            "{}",
            error("{}")
        );
        let unknown = error(r#"{"version":1,"functions":{"f":{"cpus":1}}}"#);
        assert!(unknown.contains("unknown field `cpus`"), "{unknown}");
        let amount = error(r#"{"version":1,"functions":{"f":{"resources":{"CPU":"1.00005"}}}}"#);
        assert!(amount.contains("1.00005"), "{amount}");
        assert!(error(r#"{"version":1,"functions":{"f":{"time_limit":"soon"}}}"#).contains("soon"));
        assert!(error("[]").contains("expected"), "{}", error("[]"));
    }

    proptest! {
        /// Valid manifests with a few bytes changed: near the border between right and wrong.
        #[test]
        fn damaged_manifests_do_no_harm(
            changes in prop::collection::vec((0..FULL.len(), any::<u8>()), 0..4),
            length in 0..=FULL.len(),
        ) {
            let mut bytes = FULL.as_bytes().to_vec();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            fuzz(&bytes[..length]);
            fuzz(&bytes);
        }
    }
}
