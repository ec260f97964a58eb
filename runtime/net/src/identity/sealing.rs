//! The key with which a cluster's secrets are sealed.
//!
//! Owns the key, its file, and sealing (ChaCha20-Poly1305). Must not: know what is sealed, or decide who gets the key: that is
//! every node of the cluster, and nobody else.
//!
//! A nonce is 96 random bits. Two of 2^32 values have the same with a chance of 2^-33, and a cluster sets far fewer in its life.
//! What is sealed is bound to a name, and opens under no other. It says which key has sealed it, so that there can be a next one.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::Path;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use wasmrun_model::wire::Bytes;
use zeroize::{Zeroize, Zeroizing};

use super::files::{self, FileError};
use super::name::KeyId;

/// The file of the key in a node's folder.
const FILE: &str = "secrets.key";
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

/// The key with which a cluster's secrets are sealed. Overwritten when dropped.
#[derive(Clone, Serialize, Deserialize)]
pub struct SecretKey([u8; KEY_BYTES]);

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.id())
    }
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum SecretKeyError {
    /// Its file.
    #[error(transparent)]
    File(#[from] FileError),
    /// What is in the file.
    #[error(
        "{FILE} in the state folder holds no key: restore it from a backup; without it what is set cannot be read, and has to be \
         set again"
    )]
    Malformed,
}

/// A value that only the key opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    key: KeyId,
    nonce: [u8; NONCE_LEN],
    /// The value, encrypted, and its tag.
    text: Bytes,
}

impl Sealed {
    /// The key that opens it.
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// How long the value is, in bytes.
    pub fn value_len(&self) -> usize {
        self.text.0.len().saturating_sub(TAG_BYTES)
    }
}

/// A value that was opened. Overwritten when dropped, and not shown.
pub struct Plain(Zeroizing<Vec<u8>>);

impl Deref for Plain {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plain({} bytes)", self.0.len())
    }
}

impl SecretKey {
    /// A new key.
    pub fn generate() -> Self {
        Self(super::random())
    }

    /// The key in a folder, if there is one.
    ///
    /// # Errors
    /// When others could read the file, and when there is no key in it.
    pub fn load(folder: &Path) -> Result<Option<Self>, SecretKeyError> {
        let text = match files::read_private(&folder.join(FILE)) {
            Ok(text) => Zeroizing::new(text),
            Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let digits = text.trim_end().as_bytes();
        let mut key = Self([0; KEY_BYTES]);
        if digits.len() != 2 * KEY_BYTES {
            return Err(SecretKeyError::Malformed);
        }
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            let both = digit(0).zip(digit(1)).map(|(high, low)| high * 16 + low);
            let both = both.and_then(|both| u8::try_from(both).ok());
            *byte = both.ok_or(SecretKeyError::Malformed)?;
        }
        Ok(Some(key))
    }

    /// The key in a folder; a new one if there is none.
    ///
    /// # Errors
    /// As of [`Self::load`], and when the file cannot be written.
    pub fn load_or_create(folder: &Path) -> Result<Self, SecretKeyError> {
        if let Some(key) = Self::load(folder)? {
            return Ok(key);
        }
        let key = Self::generate();
        files::write_private(&folder.join(FILE), &key.to_text(), false)?;
        Ok(key)
    }

    /// Writes the key into a folder, in place of one that is there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), SecretKeyError> {
        Ok(files::write_private(
            &folder.join(FILE),
            &self.to_text(),
            true,
        )?)
    }

    fn to_text(&self) -> Zeroizing<String> {
        // As long as it gets, so that no part of it stays where it was first.
        let mut text = Zeroizing::new(String::with_capacity(2 * KEY_BYTES + 1));
        for byte in self.0 {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).expect("below 16"));
            }
        }
        text.push('\n');
        text
    }

    /// Which key it is.
    pub fn id(&self) -> KeyId {
        let hash = blake3::derive_key("wasmrun: the id of a key of secrets", &self.0);
        KeyId::from_bytes(*hash.first_chunk().expect("a hash is longer"))
    }

    /// Seals a value under a name.
    pub fn seal(&self, name: &str, value: &[u8]) -> Sealed {
        let nonce: [u8; NONCE_LEN] = super::random();
        // As long as it gets: else the value would stay where it was first.
        let mut text = Vec::with_capacity(value.len() + TAG_BYTES);
        text.extend_from_slice(value);
        let (aad, unique) = (
            Aad::from(name.as_bytes()),
            Nonce::assume_unique_for_key(nonce),
        );
        self.cipher()
            .seal_in_place_append_tag(unique, aad, &mut text)
            .expect("values are far shorter than what can be sealed");
        Sealed {
            key: self.id(),
            nonce,
            text: Bytes(text),
        }
    }

    /// Opens what was sealed under this name. None if it was sealed with another key or under another name, or was altered.
    pub fn open(&self, name: &str, sealed: &Sealed) -> Option<Plain> {
        let mut text = Zeroizing::new(sealed.text.0.clone());
        let nonce = Nonce::assume_unique_for_key(sealed.nonce);
        let aad = Aad::from(name.as_bytes());
        let opened = self.cipher().open_in_place(nonce, aad, &mut text[..]);
        let len = opened.ok()?.len();
        text.truncate(len);
        Some(Plain(text))
    }

    /// Seals another key: who has this one can open what that one has sealed.
    pub fn seal_key(&self, other: &Self) -> Sealed {
        self.seal(&of_key(other.id()), &other.0)
    }

    /// Opens the key with this id, as [`Self::open`] does a value.
    pub fn open_key(&self, id: KeyId, sealed: &Sealed) -> Option<Self> {
        let plain = self.open(&of_key(id), sealed)?;
        let key = Self(plain[..].try_into().ok()?);
        (key.id() == id).then_some(key)
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.0);
        LessSafeKey::new(key.expect("it has the length of a key"))
    }
}

/// The name that a key is sealed under. No value has one without a '/'.
fn of_key(id: KeyId) -> String {
    format!("key {id}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_value_opens_with_its_key_and_under_its_name() {
        let key = SecretKey::generate();
        for value in [&b""[..], b"value", &[0; 1 << 16]] {
            let sealed = key.seal("t/a", value);
            assert_eq!(&*key.open("t/a", &sealed).unwrap(), value);
            assert_eq!((sealed.key(), sealed.value_len()), (key.id(), value.len()));
            // Moved, altered, or of another key.
            assert!(key.open("t/b", &sealed).is_none());
            assert!(SecretKey::generate().open("t/a", &sealed).is_none());
            let mut altered = sealed.clone();
            altered.text.0[0] ^= 1;
            assert!(key.open("t/a", &altered).is_none());
            altered.text.0.clear();
            assert!(key.open("t/a", &altered).is_none());
        }
        // Never twice the same.
        assert_ne!(key.seal("t/a", b"value"), key.seal("t/a", b"value"));
    }

    #[test]
    fn what_is_sealed_has_these_bytes() {
        let sealed = Sealed {
            key: KeyId::from_bytes([1; 8]),
            nonce: [2; NONCE_LEN],
            text: Bytes(vec![3, 4]),
        };
        let bytes = [&[1_u8; 8][..], &[2; 12], &[2, 3, 4]].concat();
        assert_eq!(postcard::to_allocvec(&sealed).unwrap(), bytes);
    }

    #[test]
    fn what_is_shown_holds_neither_key_nor_value() {
        let key = SecretKey([0xab; KEY_BYTES]);
        let sealed = key.seal("n", b"value");
        let shown = format!("{key:?} {sealed:?} {:?}", key.open("n", &sealed));
        assert!(
            !shown.contains("abab") && !shown.contains("value"),
            "{shown}"
        );
    }

    #[test]
    fn a_key_that_was_sealed_opens_as_itself_alone() {
        let [new, old] = [(); 2].map(|()| SecretKey::generate());
        let sealed = new.seal_key(&old);
        assert_eq!(new.open_key(old.id(), &sealed).unwrap().0, old.0);
        assert!(new.open_key(new.id(), &sealed).is_none());
        assert!(old.open_key(old.id(), &sealed).is_none());
        assert!(new.open_key(old.id(), &new.seal("n", b"value")).is_none());
    }

    #[test]
    fn a_key_is_made_once_and_read_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        assert!(SecretKey::load(dir.path()).unwrap().is_none());
        let key = SecretKey::load_or_create(dir.path()).unwrap();
        let again = SecretKey::load_or_create(dir.path()).unwrap();
        assert_eq!(again.0, key.0);
        let file = dir.path().join(FILE);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = SecretKey::generate();
        other.save(dir.path()).unwrap();
        assert_eq!(SecretKey::load(dir.path()).unwrap().unwrap().0, other.0);
        fs::write(&file, "no key\n").unwrap();
        let read = SecretKey::load_or_create(dir.path());
        assert!(matches!(read, Err(SecretKeyError::Malformed)));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let read = SecretKey::load(dir.path());
        assert!(matches!(read, Err(SecretKeyError::File(_))));
    }
}
