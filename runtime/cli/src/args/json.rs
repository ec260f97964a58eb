//! JSON that people give: `--json-args`, and the values of `--from-json`.
//!
//! Invariant: no object has a key twice. `serde_json` alone would take the last value of it.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_json::error::Category;

/// JSON, or `@FILE`, which has it.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonArg {
    Here(Json),
    File(PathBuf),
}

impl FromStr for JsonArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix('@') {
            return Ok(Self::File(path.into()));
        }
        match check_json(text.as_bytes()).and_then(|()| serde_json::from_str(text)) {
            Ok(json) => Ok(Self::Here(json)),
            Err(error) if is_json(&error) => Err(error.to_string()),
            Err(error) => Err(format!(
                "{error}; it must be JSON, such as [1, \"a\"], or @FILE"
            )),
        }
    }
}

/// Checks that a text is JSON, and has no key twice in an object.
pub fn check_json(text: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice(text).map(|Checked| ())
}

/// Whether a text with this error is JSON all the same.
pub fn is_json(error: &serde_json::Error) -> bool {
    error.classify() == Category::Data
}

/// Any JSON; nothing is kept of it.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Check)
    }
}

struct Check;

impl<'de> Visitor<'de> for Check {
    type Value = Checked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_str<E>(self, _: &str) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Checked, A::Error> {
        while let Some(Checked) = items.next_element()? {}
        Ok(Checked)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Checked, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(de::Error::custom(format_args!(
                    "the key {key:?} is twice in one object: keep one"
                )));
            }
            keys.insert(key);
            let Checked = fields.next_value()?;
        }
        Ok(Checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_or_a_file_is_read() {
        assert_eq!(
            "[1]".parse::<JsonArg>(),
            Ok(JsonArg::Here(serde_json::json!([1])))
        );
        assert_eq!("@a/b".parse::<JsonArg>(), Ok(JsonArg::File("a/b".into())));
        let error = "[1".parse::<JsonArg>().unwrap_err();
        assert!(
            error.contains("at line 1 column 2; it must be JSON"),
            "{error}"
        );
    }

    #[test]
    fn a_key_is_in_an_object_once() {
        let every = r#"{"a": [{"b": null, "c": true}, {"b": -1}], "b": {"a": "\u00e9"}, "c": [1.5, 1e9, 7]}"#;
        check_json(every.as_bytes()).unwrap();
        for text in [r#"{"a": 1, "a": 2}"#, r#"[{"b": {"a": 1, "\u0061": {}}}]"#] {
            let error = text.parse::<JsonArg>().unwrap_err();
            let says = "the key \"a\" is twice in one object: keep one at line 1";
            assert!(error.starts_with(says), "{error}");
        }
        for text in ["[1,]", "1 2", "\"\\ud800\"", "1e999"] {
            let error = check_json(text.as_bytes()).unwrap_err();
            assert!(!is_json(&error), "{error}");
        }
    }
}
