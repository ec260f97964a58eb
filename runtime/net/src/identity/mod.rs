//! Who somebody is: cluster, role, certificate, and how one comes by it.
//!
//! Owns the cluster's [`Authority`], the [`Identity`] of one process, join [`Token`]s and the
//! [`TokenBook`], and the [`SecretKey`] of what is sealed. Must not: open sockets (that is `enroll`), or decide what a role may do.
//! Invariants: a private key is written once, readable by its owner only, and never travels; the role
//! in a certificate is what the authority put there.

mod authority;
mod book;
mod files;
mod name;
mod own;
mod sealing;
mod token;

pub use authority::{Authority, AuthorityError};
pub use book::{
    Applicant, Enroll, Person, Redeemed, Refused, TokenBook, TokenGrant, TokenRow, TokenUses,
    Welcomed,
};
pub use files::FileError;
pub use name::{ClientId, ClusterId, Fingerprint, KeyId, Role};
pub(crate) use name::{Names, ROLE_NODE_DNS, names_of};
pub use own::{Identity, IdentityError};
pub(crate) use own::{JoinKey, PublicKey};
pub use sealing::{Plain, Sealed, SecretKey, SecretKeyError};
pub use token::{ParseTokenError, Token, TokenId, TokenKind, TokenSecret};

/// Random bytes from the system.
///
/// # Panics
/// If the system has none: nothing secret can be made then.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    use ring::rand::SecureRandom;
    let mut bytes = [0; N];
    ring::rand::SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system gives random bytes");
    bytes
}

/// Seconds since 1970, for the lifetimes of certificates and tokens.
pub(crate) fn unix_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
