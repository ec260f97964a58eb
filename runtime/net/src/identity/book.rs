//! Which tokens there are, and who has used them.
//!
//! Owns the decision who may join, as the trait [`Enroll`] and an implementation in memory,
//! [`TokenBook`], which can be kept anywhere as it serialises. Must not: read a clock by itself.
//! Invariants: secrets are kept as hashes; a token that serves once serves one key, however often that
//! one asks (an answer may get lost).

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wasmrun_model::access::Access;
use wasmrun_model::id::NodeId;

use super::name::{ClientId, Role};
use super::own::PublicKey;
use super::token::{TokenId, TokenKind, TokenSecret};

/// How many tokens there may be at a time; used and expired ones are forgotten first.
const MAX_TOKENS: usize = 10_000;

/// Somebody who asks for a certificate with a token, and has proved to have the key.
#[derive(Debug, Clone)]
pub struct Applicant {
    /// The token.
    pub token: TokenId,
    /// What proves that they have it.
    pub secret: TokenSecret,
    /// Where they are.
    pub from: SocketAddr,
    pub(crate) key: PublicKey,
}

impl Applicant {
    /// One whose key was shown to be theirs; it is an Ed25519 key.
    pub const fn new(token: TokenId, secret: TokenSecret, from: SocketAddr, key: [u8; 32]) -> Self {
        Self {
            token,
            secret,
            from,
            key: PublicKey(key),
        }
    }

    /// The role that this applicant's key gets: the same key, the same id.
    pub fn role(&self, kind: TokenKind) -> Role {
        match kind {
            TokenKind::Node => Role::Node(NodeId::from_bytes(self.key.id())),
            TokenKind::Client => Role::Client(ClientId(self.key.id())),
        }
    }
}

/// Somebody who logs in, and has proved to have the key.
#[derive(Clone)]
pub struct Person {
    /// What shows who they are.
    pub credential: String,
    /// Where they are.
    pub from: SocketAddr,
    pub(crate) key: PublicKey,
}

impl Person {
    /// One whose key was shown to be theirs; it is an Ed25519 key.
    pub const fn new(credential: String, from: SocketAddr, key: [u8; 32]) -> Self {
        Self {
            credential,
            from,
            key: PublicKey(key),
        }
    }

    /// The client that their key makes them.
    pub fn client(&self) -> ClientId {
        ClientId(self.key.id())
    }

    /// What binds a credential to their key, if it can have something like that.
    pub fn nonce(&self) -> String {
        self.key.nonce()
    }
}

/// Why a token does not open. The text is for whoever wants to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refused {
    /// There is no such token, or the secret is wrong: not told apart, so that nobody can guess.
    #[error("the cluster does not know this token: make one with `wasmrun node token create`")]
    Unknown,
    /// It is too old.
    #[error("this token has expired: make a new one with `wasmrun node token create`")]
    Expired,
    /// It was taken back.
    #[error("this token was revoked: make a new one with `wasmrun node token create`")]
    Revoked,
    /// It served already.
    #[error(
        "this token was used already, and serves once: make a new one with `wasmrun node token create`"
    )]
    Used,
    /// Too many attempts from this address.
    #[error("too many attempts to join from this address: try again in {retry_after_s}s")]
    TooMany {
        /// How long to wait, in seconds.
        retry_after_s: u32,
    },
    /// The one who asks does not have the key it asks a certificate for.
    #[error(
        "the join request is not signed by the key that it names: use the same wasmrun on both sides"
    )]
    Proof,
    /// This node has no authority.
    #[error("this node cannot let anybody join: use the address of the head")]
    NotHere,
    /// Only what has a certificate can renew it.
    #[error("there is no valid certificate to renew: join again with a token")]
    NoCertificate,
    /// The decision failed.
    #[error("the cluster could not check the token just now: try again")]
    Unavailable,
    /// People cannot log in.
    #[error(
        "people cannot log in at this cluster without a token: its head is started with `--oidc FILE` for that"
    )]
    NoLogin,
    /// A login is not renewed.
    #[error(
        "this certificate came of a login, and is not renewed: `wasmrun login --oidc` gets another one"
    )]
    LoginAgain,
    /// The one who asks is not let in, for a reason that is theirs: a person, a key that has another certificate, or a node
    /// that was removed.
    #[error("{0}")]
    Person(String),
}

/// What a token gives: a role, and what a client may do. A certificate says both.
pub type Redeemed = (Role, Option<Access>);

/// What a person gets who logs in: what it may do, and for how long.
pub type Welcomed = (Access, Duration);

/// Decides who may join.
pub trait Enroll: Send + Sync + 'static {
    /// Whether this applicant's token opens, and as what; and what it may do, if it is a client. The same applicant may
    /// ask again.
    fn redeem<'a>(
        &'a self,
        applicant: &'a Applicant,
    ) -> Pin<Box<dyn Future<Output = Result<Redeemed, Refused>> + Send + 'a>>;

    /// Whether a holder of this role may have a further certificate, which says the same of it. Anybody, by default.
    fn renew(&self, _role: Role) -> Pin<Box<dyn Future<Output = Result<(), Refused>> + Send + '_>> {
        Box::pin(async { Ok(()) })
    }

    /// How people log in without a token. They cannot, by default.
    fn offer(&self) -> Option<String> {
        None
    }

    /// What a person may do, and for how long, if they may come in.
    fn login<'a>(
        &'a self,
        _person: &'a Person,
    ) -> Pin<Box<dyn Future<Output = Result<Welcomed, Refused>> + Send + 'a>> {
        Box::pin(async { Err(Refused::NoLogin) })
    }
}

/// What a new token gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenGrant {
    /// What its holder becomes.
    pub kind: TokenKind,
    /// How often it serves.
    pub uses: TokenUses,
    /// How long it serves.
    pub lifetime: Duration,
}

/// How often a token serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenUses {
    /// One key.
    Once,
    /// Any number, until it expires.
    Many,
}

/// A token as a list shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRow {
    /// Which.
    pub id: TokenId,
    /// What its holder becomes.
    pub kind: TokenKind,
    /// How often it serves.
    pub uses: TokenUses,
    /// When it ends, in seconds since 1970.
    pub expires_s: u64,
    /// How many have joined with it.
    pub joined: u32,
    /// Whether it was taken back.
    pub is_revoked: bool,
}

/// All tokens of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenBook {
    tokens: BTreeMap<TokenId, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    secret: [u8; 32],
    kind: TokenKind,
    uses: TokenUses,
    expires_s: u64,
    joined: u32,
    /// Whom it has served last.
    holder: Option<[u8; 32]>,
    is_revoked: bool,
}

impl TokenBook {
    /// Makes a token. `now_s` is in seconds since 1970.
    pub fn create(&mut self, grant: TokenGrant, now_s: u64) -> (TokenId, TokenSecret, u64) {
        if self.tokens.len() >= MAX_TOKENS {
            self.prune(now_s);
        }
        if self.tokens.len() >= MAX_TOKENS {
            let oldest = self.tokens.iter().min_by_key(|(_, entry)| entry.expires_s);
            let oldest = oldest.map(|(id, _)| *id);
            oldest.and_then(|id| self.tokens.remove(&id));
        }
        let (id, secret) = (TokenId(super::random()), TokenSecret(super::random()));
        let expires_s = now_s.saturating_add(grant.lifetime.as_secs());
        let entry = Entry {
            secret: hash(&secret).into(),
            kind: grant.kind,
            uses: grant.uses,
            expires_s,
            joined: 0,
            holder: None,
            is_revoked: false,
        };
        self.tokens.insert(id, entry);
        (id, secret, expires_s)
    }

    /// Whether a token opens for an applicant, now.
    ///
    /// # Errors
    /// Why not.
    pub fn redeem(&mut self, applicant: &Applicant, now_s: u64) -> Result<Role, Refused> {
        let entry = self.tokens.get_mut(&applicant.token);
        let entry = entry.ok_or(Refused::Unknown)?;
        // This comparison takes the same time wherever they differ.
        if blake3::Hash::from_bytes(entry.secret) != hash(&applicant.secret) {
            return Err(Refused::Unknown);
        }
        if entry.is_revoked {
            return Err(Refused::Revoked);
        }
        if now_s >= entry.expires_s {
            return Err(Refused::Expired);
        }
        match (entry.uses, entry.holder) {
            // An answer was lost, and it asks again.
            (_, Some(holder)) if holder == applicant.key.0 => {}
            (TokenUses::Once, Some(_)) => return Err(Refused::Used),
            (TokenUses::Once | TokenUses::Many, _) => {
                entry.holder = Some(applicant.key.0);
                entry.joined = entry.joined.saturating_add(1);
            }
        }
        Ok(applicant.role(entry.kind))
    }

    /// Takes a token back. Whether there was one.
    pub fn revoke(&mut self, id: TokenId) -> bool {
        let entry = self.tokens.get_mut(&id);
        entry.map(|entry| entry.is_revoked = true).is_some()
    }

    /// All tokens, by id.
    pub fn list(&self) -> impl Iterator<Item = TokenRow> {
        self.tokens.iter().map(|(id, entry)| TokenRow {
            id: *id,
            kind: entry.kind,
            uses: entry.uses,
            expires_s: entry.expires_s,
            joined: entry.joined,
            is_revoked: entry.is_revoked,
        })
    }

    /// Forgets tokens that ended more than a day ago; until then they are refused by their reason.
    pub fn prune(&mut self, now_s: u64) {
        self.tokens
            .retain(|_, entry| entry.expires_s.saturating_add(24 * 3600) > now_s);
    }
}

impl Enroll for Mutex<TokenBook> {
    fn redeem<'a>(
        &'a self,
        applicant: &'a Applicant,
    ) -> Pin<Box<dyn Future<Output = Result<Redeemed, Refused>> + Send + 'a>> {
        let answer = self.lock().redeem(applicant, super::unix_now());
        Box::pin(std::future::ready(answer.map(|role| (role, None))))
    }
}

fn hash(secret: &TokenSecret) -> blake3::Hash {
    blake3::Hash::from_bytes(blake3::derive_key("wasmrun join token secret", &secret.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_again_is_counted_once() {
        for uses in [TokenUses::Once, TokenUses::Many] {
            let mut book = TokenBook::default();
            let grant = TokenGrant {
                kind: TokenKind::Node,
                uses,
                lifetime: Duration::from_secs(60),
            };
            let (id, secret, _) = book.create(grant, 0);
            let mut ask = |key| {
                let from = ([127, 0, 0, 1], 1).into();
                let applicant = Applicant::new(id, secret.clone(), from, [key; 32]);
                let redeemed = book.redeem(&applicant, 1);
                (
                    redeemed.is_ok(),
                    book.list().map(|it| it.joined).sum::<u32>(),
                )
            };
            let is_reusable = uses == TokenUses::Many;
            let of_other = (is_reusable, 1 + u32::from(is_reusable));
            assert_eq!([ask(1), ask(1), ask(2)], [(true, 1), (true, 1), of_other]);
        }
    }
}
