//! JSON in which no object has a key twice. `serde_json` alone would take the last value of it.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_json::error::Category;

/// Reads a text that is JSON, and has no key twice in an object.
///
/// # Errors
/// When it is not.
pub fn read_json(text: &[u8]) -> serde_json::Result<Json> {
    check_json(text)?;
    serde_json::from_slice(text)
}

/// Checks that a text is JSON, and has no key twice in an object.
///
/// # Errors
/// When it is not.
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
        let mut keys = BTreeSet::new();
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
    fn a_key_is_in_an_object_once() {
        let every = r#"{"a": [{"b": null, "c": true}, {"b": -1}], "b": {"a": "\u00e9"}, "c": [1.5, 1e9, 7]}"#;
        read_json(every.as_bytes()).unwrap();
        for text in [r#"{"a": 1, "a": 2}"#, r#"[{"b": {"a": 1, "\u0061": {}}}]"#] {
            let error = read_json(text.as_bytes()).unwrap_err();
            let says = "the key \"a\" is twice in one object: keep one at line 1";
            assert!(error.to_string().starts_with(says), "{error}");
            assert!(is_json(&error), "{error}");
        }
        for text in ["[1,]", "1 2", "\"\\ud800\"", "1e999"] {
            let error = read_json(text.as_bytes()).unwrap_err();
            assert!(!is_json(&error), "{error}");
        }
    }
}
