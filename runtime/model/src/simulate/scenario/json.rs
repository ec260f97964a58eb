//! JSON with places: values that know where they stand, so that every error can say it.
//!
//! Owns walking a text that is JSON: objects with known fields, lists, strings, whole numbers, the
//! text of amounts. Must not: know what a scenario is, or turn a number into a float.
//!
//! Invariants: the text was checked to be JSON as a whole before the first value is made. A value
//! is read when it is asked for, level by level, so the depth of the text costs no stack.

use std::borrow::Cow;
use std::fmt::{self, Write};

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::error::{Fault, Found, ScenarioError, clip, nearest};

/// A part of the text, and how to get there. `'a` is the text's life, `'p` the life of the values
/// around it.
#[derive(Clone, Copy)]
pub struct Value<'a, 'p> {
    text: &'a str,
    place: Place<'a, 'p>,
}

/// A step from a value to one inside it.
#[derive(Clone, Copy)]
enum Place<'a, 'p> {
    /// None: the value is all of this document.
    Root(&'a str),
    Field(&'p Value<'a, 'p>, &'p str),
    Index(&'p Value<'a, 'p>, usize),
}

impl<'a, 'p> Value<'a, 'p> {
    /// The whole text as a value.
    pub fn root(text: &'a str) -> Result<Self, ScenarioError> {
        let raw: &RawValue = serde_json::from_str(text).map_err(not_json)?;
        Ok(Self {
            text: raw.get(),
            place: Place::Root(text),
        })
    }

    /// The fields of this object, which may be these only.
    pub fn fields(
        &'p self,
        known: &'static [&'static str],
    ) -> Result<Fields<'a, 'p>, ScenarioError> {
        let mut values: SmallVec<[Option<&'a str>; 12]> = SmallVec::from_elem(None, known.len());
        for (key, text) in self.entries("an object with fields", "{\"name\": …}")? {
            let Some(at) = known.iter().position(|field| *field == key) else {
                return Err(self.fault(Fault::UnknownField {
                    field: clip(&key),
                    nearest: nearest(&key, known.iter().copied()).map(Into::into),
                    known,
                }));
            };
            if values[at].replace(text).is_some() {
                return Err(self.fault(Fault::KeyTwice { key: key.into() }));
            }
        }
        Ok(Fields {
            object: self,
            known,
            values,
        })
    }

    /// The entries of this object, whose keys the file's author chose. No key comes twice.
    pub fn map(
        &self,
        limit: u64,
        what: &'static str,
        example: &'static str,
    ) -> Result<Vec<(Cow<'a, str>, &'a str)>, ScenarioError> {
        let entries = self.entries("an object", example)?;
        self.check_count(entries.len() as u64, limit, what)?;
        for (at, (key, _)) in entries.iter().enumerate() {
            if entries[..at].iter().any(|(other, _)| other == key) {
                return Err(self.fault(Fault::KeyTwice { key: clip(key) }));
            }
        }
        Ok(entries)
    }

    /// The value of an entry of this object.
    pub fn entry<'q>(&'q self, key: &'q str, text: &'a str) -> Value<'a, 'q>
    where
        'p: 'q,
    {
        let place = Place::Field(self, key);
        Value { text, place }
    }

    /// The elements of this list, of which there may be so many.
    pub fn list(
        &'p self,
        limit: u64,
        what: &'static str,
        example: &'static str,
    ) -> Result<impl ExactSizeIterator<Item = Value<'a, 'p>>, ScenarioError> {
        let items: Vec<&'a RawValue> = match self.found() {
            Found::List => serde_json::from_str(self.text).map_err(not_json)?,
            _ => return Err(self.wrong_type("a list", example)),
        };
        self.check_count(items.len() as u64, limit, what)?;
        let items = items.into_iter().enumerate();
        Ok(items.map(move |(at, raw)| Value {
            text: raw.get(),
            place: Place::Index(self, at),
        }))
    }

    /// The text of this string.
    pub fn string(
        &self,
        expected: &'static str,
        example: &'static str,
    ) -> Result<Cow<'a, str>, ScenarioError> {
        match self.found() {
            Found::String => self.unescape(),
            _ => Err(self.wrong_type(expected, example)),
        }
    }

    /// This whole number, which is at least `min` and at most `max`.
    pub fn integer(&self, min: i64, max: i64, unit: &'static str) -> Result<i64, ScenarioError> {
        if self.found() != Found::Number {
            return Err(self.wrong_type("a whole number", "digits only, such as 100"));
        }
        match self.text.parse() {
            // "-0" is a number in JSON, and fine.
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(self.fault(Fault::Number {
                number: clip(self.text),
                min,
                max,
                unit,
            })),
        }
    }

    /// This whole number of at least 0.
    pub fn count(&self, min: u64, max: u64, unit: &'static str) -> Result<u64, ScenarioError> {
        let as_i64 = |number: u64| i64::try_from(number).expect("limits are far below");
        let number = self.integer(as_i64(min), as_i64(max), unit)?;
        Ok(u64::try_from(number).expect("checked to be at least `min`"))
    }

    /// Whether this is `true`.
    pub fn boolean(&self) -> Result<bool, ScenarioError> {
        match self.found() {
            Found::Boolean => Ok(self.text == "true"),
            _ => Err(self.wrong_type("true or false", "true or false")),
        }
    }

    /// The text of this amount: of the number as it is written, or of the string.
    pub fn amount_text(&self) -> Result<Cow<'a, str>, ScenarioError> {
        match self.found() {
            Found::Number => Ok(Cow::Borrowed(self.text)),
            Found::String => self.unescape(),
            _ => Err(self.wrong_type("an amount", "a number or text, such as 2, 0.5 or \"18GiB\"")),
        }
    }

    fn found(&self) -> Found {
        match self.text.as_bytes().first() {
            Some(b'{') => Found::Object,
            Some(b'[') => Found::List,
            Some(b'"') => Found::String,
            Some(b't' | b'f') => Found::Boolean,
            Some(b'n') => Found::Null,
            _ => Found::Number,
        }
    }

    /// Whether this is a string.
    pub fn is_string(&self) -> bool {
        self.found() == Found::String
    }

    /// Whether this is a list.
    pub fn is_list(&self) -> bool {
        self.found() == Found::List
    }

    /// Whether this is an object.
    pub fn is_object(&self) -> bool {
        self.found() == Found::Object
    }

    fn wrong_type(&self, expected: &'static str, example: &'static str) -> ScenarioError {
        self.fault(Fault::Type {
            found: self.found(),
            expected,
            example,
        })
    }

    /// The error that this value has a fault.
    pub fn fault(&self, fault: impl Into<Fault>) -> ScenarioError {
        let (line, column) = self.line_and_column();
        ScenarioError::Invalid {
            place: self.to_string(),
            line,
            column,
            fault: Box::new(fault.into()),
        }
    }

    /// The error that a field of this object has a fault; of the object, if it has no such field.
    pub fn fault_in(&self, field: &str, fault: impl Into<Fault>) -> ScenarioError {
        let entries = self.entries("", "").unwrap_or_default();
        match entries.into_iter().find(|(key, _)| key == field) {
            Some((key, text)) => self.entry(&key, text).fault(fault),
            None => self.fault(fault),
        }
    }

    /// Checks a number of things.
    pub fn check_count(
        &self,
        found: u64,
        limit: u64,
        what: &'static str,
    ) -> Result<(), ScenarioError> {
        if found > limit {
            return Err(self.fault(Fault::TooMany { found, what, limit }));
        }
        Ok(())
    }

    fn entries(
        &self,
        expected: &'static str,
        example: &'static str,
    ) -> Result<Vec<(Cow<'a, str>, &'a str)>, ScenarioError> {
        match self.found() {
            Found::Object => serde_json::from_str::<Entries<'a>>(self.text)
                .map(|entries| entries.0)
                .map_err(|error| self.text_fault(&error)),
            _ => Err(self.wrong_type(expected, example)),
        }
    }

    fn unescape(&self) -> Result<Cow<'a, str>, ScenarioError> {
        let inner = &self.text[1..self.text.len() - 1];
        if !inner.contains('\\') {
            return Ok(Cow::Borrowed(inner));
        }
        serde_json::from_str(self.text)
            .map(Cow::Owned)
            .map_err(|error| self.text_fault(&error))
    }

    fn text_fault(&self, error: &serde_json::Error) -> ScenarioError {
        let what = message(error);
        self.fault(Fault::Text { what })
    }

    /// Where this value starts in the document. Every value is a slice of it, so the addresses
    /// tell.
    fn line_and_column(&self) -> (usize, usize) {
        let mut place = self.place;
        let document = loop {
            match place {
                Place::Root(document) => break document,
                Place::Field(parent, _) | Place::Index(parent, _) => place = parent.place,
            }
        };
        let offset = self.text.as_ptr() as usize - document.as_ptr() as usize;
        let before = &document.as_bytes()[..offset];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let start = before.iter().rposition(|byte| *byte == b'\n');
        (line, offset - start.map_or(0, |newline| newline + 1) + 1)
    }
}

/// The path of the value.
impl fmt::Display for Value<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Root(_) => f.write_str("the scenario"),
            Place::Field(parent, field) => {
                if !matches!(parent.place, Place::Root(_)) {
                    write!(f, "{parent}.")?;
                }
                let is_plain = |c: char| c.is_alphanumeric() || "_-./".contains(c);
                match !field.is_empty() && field.chars().all(is_plain) {
                    true => f.write_str(&clip(field)),
                    false => write!(f, "{:?}", clip(field)),
                }
            }
            Place::Index(parent, at) => {
                if !matches!(parent.place, Place::Root(_)) {
                    fmt::Display::fmt(parent, f)?;
                }
                f.write_char('[')?;
                write!(f, "{at}]")
            }
        }
    }
}

/// The fields of an object of which all are known.
pub struct Fields<'a, 'p> {
    object: &'p Value<'a, 'p>,
    known: &'static [&'static str],
    values: SmallVec<[Option<&'a str>; 12]>,
}

impl<'a, 'p> Fields<'a, 'p> {
    /// The value of a field, if it is there.
    pub fn get(&self, field: &'static str) -> Option<Value<'a, 'p>> {
        let at = self.known.iter().position(|known| *known == field);
        let text = self.values[at.expect("only known fields are asked for")]?;
        Some(self.object.entry(field, text))
    }

    /// The value of a field that must be there.
    pub fn required(
        &self,
        field: &'static str,
        example: &'static str,
    ) -> Result<Value<'a, 'p>, ScenarioError> {
        self.get(field)
            .ok_or_else(|| self.object.fault(Fault::MissingField { field, example }))
    }
}

/// The entries of an object in the order of the text, with keys that come twice.
struct Entries<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Vec<(Cow<'de, str>, &'de str)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((Key(key), raw)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    entries.push((key, raw.get()));
                }
                Ok(entries)
            }
        }

        deserializer.deserialize_map(EntriesVisitor).map(Self)
    }
}

/// A key that is copied only if it has escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E: de::Error>(self, key: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(key))
            }

            fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(key.into()))
            }
        }

        deserializer.deserialize_str(KeyVisitor).map(Self)
    }
}

fn not_json(error: serde_json::Error) -> ScenarioError {
    ScenarioError::NotJson {
        what: message(&error),
        line: error.line(),
        column: error.column(),
    }
}

/// What the parser says, without the position that it adds.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].into(),
        None => text,
    }
}
