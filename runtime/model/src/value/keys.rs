//! JSON in which no object has a key twice, and that is not too large in memory. `serde_json` alone would take the last value
//! of such a key, and whatever memory it needs.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_json::error::Category;

/// What a value takes in a list, whose memory grows by doubling.
const VALUE_BYTES: usize = 2 * size_of::<Json>();
/// What a node of the standard library's B-trees takes, which has room for eleven entries: here of an object.
const NODE_BYTES: usize = 11 * (size_of::<String>() + size_of::<Json>()) + 16;
/// How many entries such a node has at least, but for the first.
const NODE_ENTRIES: usize = 5;

/// Reads a text that is JSON, and has no key twice in an object.
///
/// # Errors
/// When it is not.
pub fn read_json(text: &[u8]) -> serde_json::Result<Json> {
    read_json_within(text, usize::MAX)
}

/// The same, where that takes about so many bytes of memory at most. It may take a hundred times as many as the text has.
///
/// # Errors
/// When it is no such text, or takes more: which is found out before it is read.
pub fn read_json_within(text: &[u8], most_bytes: usize) -> serde_json::Result<Json> {
    check_within(text, most_bytes)?;
    serde_json::from_slice(text)
}

/// Checks that a text is JSON, and has no key twice in an object.
///
/// # Errors
/// When it is not.
pub fn check_json(text: &[u8]) -> serde_json::Result<()> {
    check_within(text, usize::MAX)
}

/// Whether a text with this error is JSON all the same.
pub fn is_json(error: &serde_json::Error) -> bool {
    error.classify() == Category::Data
}

fn check_within(text: &[u8], most_bytes: usize) -> serde_json::Result<()> {
    let left_bytes = Cell::new(most_bytes);
    let mut reader = serde_json::Deserializer::from_slice(text);
    Check(&left_bytes).deserialize(&mut reader)?;
    reader.end()
}

/// Any JSON; nothing is kept of it but how much memory is left.
#[derive(Clone, Copy)]
struct Check<'a>(&'a Cell<usize>);

impl Check<'_> {
    fn takes<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(bytes);
        let left = left.ok_or_else(|| {
            E::custom(
                "it would take too much memory to read: send less at a time, or bytes as {\"base64\": ..}",
            )
        })?;
        self.0.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Check<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.takes(VALUE_BYTES)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Check<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.takes(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format_args!(
                    "the key {key:?} is twice in one object: keep one"
                )));
            }
            if keys.len().is_multiple_of(NODE_ENTRIES) {
                self.takes(NODE_BYTES)?;
            }
            self.takes(key.len())?;
            keys.insert(key);
            fields.next_value_seed(self)?;
        }
        Ok(())
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

    #[test]
    fn what_would_take_too_much_memory_is_not_read() {
        let numbers = format!("[{}0]", "0,".repeat(999));
        let objects = format!("[{}0]", r#"{"a":0},"#.repeat(99));
        let text = format!("[{:?}]", "x".repeat(50_000));
        for (text, takes) in [(numbers, 60_000), (objects, 70_000), (text, 50_000)] {
            assert!(read_json_within(text.as_bytes(), 2 * takes).is_ok());
            let error = read_json_within(text.as_bytes(), takes / 2).unwrap_err();
            assert!(is_json(&error), "{error}");
            assert!(error.to_string().contains("too much memory"), "{error}");
            assert!(read_json(text.as_bytes()).is_ok());
        }
    }
}
