//! Join tokens: one printable word that lets somebody into a cluster.
//!
//! Owns the text form. `wasmrun-join-1` says what it is and which version; after a further `-`, in
//! base 32 (RFC 4648, lower case, no padding), come postcard bytes and a checksum of them. The checksum
//! tells a typing error from a token that is refused; the secret is what protects.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::name::Fingerprint;

const PREFIX: &str = "wasmrun-join-";
const VERSION: &str = "1-";
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const CHECKSUM_BYTES: usize = 4;
/// The longest token that is read, in characters.
const MAX_CHARS: usize = 4096;
/// How many addresses a token may have.
const MAX_ADDRESSES: usize = 16;

/// Lets somebody join: where to, whom to trust there, and the secret that opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Where to ask, `HOST:PORT` each, tried in turn.
    pub addresses: Vec<String>,
    /// The authority that must be there.
    pub authority: Fingerprint,
    /// Which token this is.
    pub id: TokenId,
    /// What proves it.
    pub secret: TokenSecret,
    /// What whoever has it may become.
    pub kind: TokenKind,
    /// When it ends, in seconds since 1970. For a message only: the cluster decides by its own clock.
    pub expires_s: u64,
}

/// Names a token, in lists and for revoking. No secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenId(pub(crate) [u8; 8]);

/// The secret of a token. Debug output does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenSecret(pub(crate) [u8; 16]);

/// What a token lets its holder become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TokenKind {
    /// A node of the cluster.
    Node,
    /// A client of it.
    Client,
}

/// Why a word is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseTokenError {
    /// Something else.
    #[error(
        "this is no join token: one begins with '{PREFIX}'; copy all of what `node start --head` or `node token create` printed"
    )]
    NotAToken,
    /// From another version.
    #[error(
        "this join token is of a version that this wasmrun does not know: use the same wasmrun as the head's"
    )]
    Version,
    /// Damaged on its way.
    #[error("this join token has a typing error or is cut off: copy it again, all of it")]
    Damaged,
}

impl TokenId {
    /// The one made of exactly these bytes.
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// The bytes of it.
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret(…)")
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = postcard::to_stdvec(self).map_err(|_| fmt::Error)?;
        let checksum = checksum(&bytes);
        bytes.extend_from_slice(&checksum);
        write!(f, "{PREFIX}{VERSION}{}", base32(&bytes))
    }
}

impl FromStr for Token {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let rest = text.trim().strip_prefix(PREFIX);
        let rest = rest.ok_or(ParseTokenError::NotAToken)?;
        let word = rest.strip_prefix(VERSION).ok_or(ParseTokenError::Version)?;
        let bytes = unbase32(word).ok_or(ParseTokenError::Damaged)?;
        let (body, sum) = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or(ParseTokenError::Damaged)?;
        if checksum(body) != *sum {
            return Err(ParseTokenError::Damaged);
        }
        match postcard::take_from_bytes::<Self>(body) {
            Ok((token, [])) if token.addresses.len() <= MAX_ADDRESSES => Ok(token),
            _ => Err(ParseTokenError::Damaged),
        }
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let hash = blake3::derive_key("wasmrun join token checksum", bytes);
    hash[..CHECKSUM_BYTES]
        .try_into()
        .expect("a hash is longer than a checksum")
}

fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut bits, mut count) = (0u32, 0);
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            text.push(char::from(ALPHABET[(bits >> count) as usize & 31]));
        }
        bits &= (1 << count) - 1;
    }
    if count > 0 {
        text.push(char::from(ALPHABET[(bits << (5 - count)) as usize & 31]));
    }
    text
}

fn unbase32(text: &str) -> Option<Vec<u8>> {
    if text.len() > MAX_CHARS {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut bits, mut count) = (0u32, 0);
    for c in text.bytes() {
        let digit = ALPHABET.iter().position(|known| *known == c)?;
        bits = bits << 5 | u32::try_from(digit).ok()?;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    // What is left over must be the zeros that filled the last digit: one text for one token.
    (count < 5 && bits == 0).then_some(bytes)
}
