//! Bytes as one string of bytes, for `#[serde(with = "…")]`.
//!
//! Owns that formats copy them whole, not element by element. Must not: limit their length.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<T, S>(bytes: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: AsRef<[u8]>,
    S: Serializer,
{
    serializer.serialize_bytes(bytes.as_ref())
}

pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: From<Vec<u8>> + for<'a> From<&'a [u8]>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_byte_buf(Whole(PhantomData))
}

struct Whole<T>(PhantomData<T>);

impl<'de, T> Visitor<'de> for Whole<T>
where
    T: From<Vec<u8>> + for<'a> From<&'a [u8]>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<T, E> {
        Ok(bytes.into())
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<T, E> {
        Ok(bytes.into())
    }

    /// JSON has no bytes, only arrays of numbers.
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(T::from)
    }
}
