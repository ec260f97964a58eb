//! The cluster's join tokens, in the control store; and who may join, by one of them or as a person who logs in.
//!
//! Owns the record and its changes, by compare-and-swap: any node may make and revoke tokens, and the head
//! redeems them. Secrets are kept as hashes (see [`TokenBook`]). Invariant: all times in it are by the head's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use wasmrun_control::records::{self, Form, Record, RecordError};
use wasmrun_control::{Condition, ControlStore, Error, Op, Txn};
use wasmrun_model::access::Access;
use wasmrun_model::wire::TokenRow;
use wasmrun_net::{
    Applicant, Enroll, Identity, Person, Redeemed, Refused, Role, Token, TokenBook, TokenGrant,
    TokenId, TokenKind, TokenUses, Welcomed,
};
use wasmrun_oidc::{People, PersonError};

use super::clients::{ClientsError, Renewal};
use super::clock::now_s;
use super::renew::LIFETIME;
use super::{Cluster, clients, removed};
use crate::audit::{Audit, Entry, Outcome};

/// The tokens, as they are written where none has a name.
#[derive(Debug, Serialize, Deserialize)]
struct Unnamed(TokenBook);

impl Record for Unnamed {
    // There may be thousands, in one value.
    const FORM: Form = Form::Postcard;
    const VERSION: u8 = 1;
}

/// The tokens, as they were written when clients had names and no roles. It is read, and not written any more.
#[derive(Debug, Serialize, Deserialize)]
struct Named(TokenBook, BTreeMap<TokenId, String>);

impl Record for Named {
    const FORM: Form = Form::Postcard;
    const VERSION: u8 = 2;
}

/// All tokens, with the names and rights of their clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Book {
    pub(super) tokens: TokenBook,
    /// Of tokens that say no more.
    names: BTreeMap<TokenId, String>,
    access: BTreeMap<TokenId, Access>,
}

impl Record for Book {
    const FORM: Form = Form::Postcard;
    const VERSION: u8 = 3;
}

impl Book {
    fn read(value: &[u8]) -> Result<Self, RecordError> {
        match value.get(1) {
            Some(&Unnamed::VERSION) => Unnamed::from_value(value).map(|it| Self {
                tokens: it.0,
                ..Self::default()
            }),
            Some(&Named::VERSION) => Named::from_value(value).map(|it| Self {
                tokens: it.0,
                names: it.1,
                ..Self::default()
            }),
            _ => Self::from_value(value),
        }
    }

    fn written(&self) -> Bytes {
        match self.names.is_empty() && self.access.is_empty() {
            true => Unnamed(self.tokens.clone()).to_value(),
            false => self.to_value(),
        }
    }

    /// The one token whose id begins so. What is empty begins none.
    fn begun_so(&self, prefix: &str) -> Option<TokenId> {
        let prefix = prefix.to_ascii_lowercase();
        let all = self.tokens.list().map(|it| it.id);
        let mut fit = all.filter(|id| id.to_string().starts_with(&prefix));
        let one = fit.next().filter(|_| !prefix.is_empty())?;
        fit.next().is_none().then_some(one)
    }

    /// Forgets what ended long ago.
    fn prune(&mut self, now_s: u64) {
        self.tokens.prune(now_s);
        let known: BTreeSet<TokenId> = self.tokens.list().map(|it| it.id).collect();
        self.names.retain(|id, _| known.contains(id));
        self.access.retain(|id, _| known.contains(id));
    }
}

/// Why tokens could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] Error),
    /// What is there cannot be read.
    #[error("the record of join tokens cannot be read")]
    Record(#[from] RecordError),
    /// There is no such token.
    #[error("there is no join token '{0}', or more than one; `wasmrun node token list` shows them")]
    Unknown(String),
    /// Nobody could join with it.
    #[error("the head is not there now, and only with it somebody can join: start it first")]
    NoHead,
}

/// Who comes with a token, what that calls it, and what it may do as a client.
type Admitted = (Role, Option<String>, Option<Access>);

/// Decides who may join, by the tokens in the control store, and by who people are.
pub(super) struct StoreEnroll {
    store: Arc<dyn ControlStore>,
    audit: Arc<Audit>,
    /// Those who need no token, if there are some.
    people: Option<People>,
    /// Has the task that forgets clients, while there is one.
    tidying: Mutex<JoinSet<()>>,
}

impl StoreEnroll {
    pub(super) fn new(
        store: Arc<dyn ControlStore>,
        audit: Arc<Audit>,
        people: Option<People>,
    ) -> Self {
        Self {
            store,
            audit,
            people,
            tidying: Mutex::default(),
        }
    }

    /// Forgets clients whose certificates have ended long ago, while the answer is on its way: with a slow store who
    /// comes would be gone by then, and their token used up. What this misses the next login does.
    fn tidy(&self) {
        let mut tidying = self.tidying.lock();
        while tidying.try_join_next().is_some() {}
        if tidying.is_empty() {
            let store = self.store.clone();
            tidying.spawn(async move { clients::tidy(&*store, now_s()).await });
        }
    }

    /// Lets a person in, if the provider knows them and a rule fits.
    async fn welcome(&self, person: &Person) -> Result<Welcomed, Refused> {
        self.check_audit()?;
        let people = self.people.as_ref().ok_or(Refused::NoLogin)?;
        let access = people.access(&person.credential, &person.nonce()).await;
        let access = access.map_err(|error| match error {
            PersonError::Provider(error) => {
                tracing::warn!(%error, "the ID token of somebody who logs in could not be checked");
                Refused::Unavailable
            }
            error => Refused::Person(error.to_string()),
        })?;
        // The provider may have taken its time.
        self.check_audit()?;
        let lifetime = people.lifetime().min(LIFETIME);
        let store = self.store.as_ref();
        let known = clients::logged_in(store, person.client(), &access, lifetime).await;
        known.map_err(|error| unrecorded(&error))?;
        self.tidy();
        Ok((access, lifetime))
    }

    /// Says who has logged in, or why somebody has not.
    fn note_login(&self, person: &Person, welcomed: &Result<Welcomed, Refused>) {
        let from = person.from.to_string();
        match welcomed {
            Ok((access, _)) => self.audit.add(Entry {
                subject: Some(person.client().to_string()),
                ..Entry::new(format!("oidc {}", access.name), from, "client login")
            }),
            Err(why) => {
                let (kind, why) = ("oidc".to_owned(), why.to_string());
                self.audit.add_stranger(Entry {
                    outcome: Outcome::Refused { kind, why },
                    ..Entry::new("oidc".to_owned(), from, "join")
                });
            }
        }
    }

    /// Nobody comes in of whom there can be no line in an audit that must be kept.
    fn check_audit(&self) -> Result<(), Refused> {
        match self.audit.refuses() {
            true => Err(Refused::Unavailable),
            false => Ok(()),
        }
    }

    /// Lets somebody in, if the token does. With the name in the token.
    async fn admit(&self, applicant: &Applicant) -> Result<Admitted, Refused> {
        self.check_audit()?;
        let admitted = redeem(self.store.as_ref(), applicant, now_s()).await?;
        if let (Role::Client(_), ..) = admitted {
            self.tidy();
        }
        Ok(admitted)
    }

    /// Says who has come with a token, or why nobody has.
    fn note(&self, applicant: &Applicant, admitted: &Result<Admitted, Refused>) {
        let (action, subject, outcome) = match admitted {
            Ok((Role::Node(node), ..)) => ("node join", Some(node.to_string()), Outcome::Done),
            Ok((Role::Client(client), ..)) => {
                ("client login", Some(client.to_string()), Outcome::Done)
            }
            Err(why) => {
                let (kind, why) = ("token".to_owned(), why.to_string());
                ("join", None, Outcome::Refused { kind, why })
            }
        };
        let (who, from) = (
            format!("token {}", applicant.token),
            applicant.from.to_string(),
        );
        let name = admitted.as_ref().ok().and_then(|(_, name, _)| name.clone());
        let entry = Entry {
            subject,
            outcome,
            details: name.map(|name| ("name", name)).into_iter().collect(),
            ..Entry::new(who, from, action)
        };
        match admitted {
            Ok(_) => self.audit.add(entry),
            Err(_) => self.audit.add_stranger(entry),
        }
    }
}

/// Redeems a token, and notes the client that comes with it, both at once or not at all: who is not let in has used
/// nothing up.
async fn redeem(
    store: &dyn ControlStore,
    applicant: &Applicant,
    now_s: u64,
) -> Result<Admitted, Refused> {
    loop {
        let (mut book, unchanged) = book(store).await.map_err(|error| unchecked(&error))?;
        book.prune(now_s);
        let role = book.tokens.redeem(applicant, now_s)?;
        let name = book.names.get(&applicant.token).cloned();
        let access = book.access.get(&applicant.token).cloned();
        let put = Op::put(records::tokens(), book.written());
        let txn = Txn::when(records::tokens(), unchanged).then(put);
        let txn = match role {
            Role::Client(client) => {
                let joining =
                    clients::joining(store, client, name.as_deref(), access.as_ref(), now_s);
                let (unchanged, put) = joining.await.map_err(|error| unrecorded(&error))?;
                txn.and(records::client(client), unchanged).then(put)
            }
            Role::Node(node) => {
                let is_removed = removed::is_removed(store, node).await;
                if is_removed.map_err(|error| unchecked(&TokensError::Store(error)))? {
                    return Err(Refused::Person(format!(
                        "node {node} was removed from the cluster, and its key gets no certificate: join with an empty \
                         state folder"
                    )));
                }
                txn.and(records::removed(node), Condition::Absent)
            }
        };
        match store.txn(txn).await {
            Ok(reply) if reply.succeeded => return Ok((role, name, access)),
            // Somebody was faster. Where nobody knows whether it was done: a token that was redeemed is
            // redeemed by the same key again.
            Ok(_) | Err(Error::Uncertain { .. }) => {}
            Err(error) => return Err(unchecked(&TokensError::Store(error))),
        }
    }
}

/// Why somebody is not let in whose token could not be looked up.
fn unchecked(error: &TokensError) -> Refused {
    tracing::warn!(%error, "a join token could not be checked");
    Refused::Unavailable
}

/// Why somebody is not let in who could not be recorded.
fn unrecorded(error: &ClientsError) -> Refused {
    match error {
        ClientsError::KeyInUse(_) | ClientsError::Revoked(_) => Refused::Person(error.to_string()),
        error => {
            tracing::warn!(%error, "somebody who logs in could not be recorded");
            Refused::Unavailable
        }
    }
}

impl Enroll for StoreEnroll {
    fn redeem<'a>(
        &'a self,
        applicant: &'a Applicant,
    ) -> Pin<Box<dyn Future<Output = Result<Redeemed, Refused>> + Send + 'a>> {
        Box::pin(async move {
            let admitted = self.admit(applicant).await;
            self.note(applicant, &admitted);
            admitted.map(|(role, _, access)| (role, access))
        })
    }

    fn renew(&self, role: Role) -> Pin<Box<dyn Future<Output = Result<(), Refused>> + Send + '_>> {
        Box::pin(async move {
            let store = self.store.as_ref();
            let may = match role {
                Role::Client(client) => clients::renewed(store, client).await,
                Role::Node(node) => removed::is_removed(store, node)
                    .await
                    .map(|is_removed| match is_removed {
                        true => Renewal::Revoked,
                        false => Renewal::Yes,
                    })
                    .map_err(Into::into),
            };
            match may {
                Ok(Renewal::Yes) => Ok(()),
                Ok(Renewal::Revoked) => Err(Refused::NoCertificate),
                Ok(Renewal::LoginAgain) => Err(Refused::LoginAgain),
                Err(error) => {
                    tracing::warn!(%error, "a certificate could not be renewed");
                    Err(Refused::Unavailable)
                }
            }
        })
    }

    fn offer(&self) -> Option<String> {
        self.people.as_ref().map(People::offer)
    }

    fn login<'a>(
        &'a self,
        person: &'a Person,
    ) -> Pin<Box<dyn Future<Output = Result<Welcomed, Refused>> + Send + 'a>> {
        Box::pin(async move {
            let welcomed = self.welcome(person).await;
            self.note_login(person, &welcomed);
            welcomed
        })
    }
}

/// All tokens.
pub(super) async fn read(store: &dyn ControlStore) -> Result<TokenBook, TokensError> {
    Ok(book(store).await?.0.tokens)
}

/// The tokens with their names and rights, and what holds as long as nobody changes them.
async fn book(store: &dyn ControlStore) -> Result<(Book, Condition), TokensError> {
    Ok(match store.get(&records::tokens()).await? {
        Some(entry) => (
            Book::read(&entry.value)?,
            Condition::Modified(entry.modified),
        ),
        None => (Book::default(), Condition::Absent),
    })
}

/// Changes the tokens: what `change` does to them, until that is what is stored. Whoever knows what time it is at the
/// head has those forgotten that ended long ago.
pub(super) async fn change<T>(
    store: &dyn ControlStore,
    now_s: Option<u64>,
    change: impl Fn(&mut Book) -> T,
) -> Result<T, TokensError> {
    let key = records::tokens();
    loop {
        let (mut book, unchanged) = book(store).await?;
        let before = book.clone();
        if let Some(now_s) = now_s {
            book.prune(now_s);
        }
        let result = change(&mut book);
        if book == before {
            return Ok(result);
        }
        let put = Op::put(key.clone(), book.written());
        match store.txn(Txn::when(key.clone(), unchanged).then(put)).await {
            Ok(reply) if reply.succeeded => return Ok(result),
            // Somebody was faster, or nobody knows whether it was done.
            Ok(_) | Err(Error::Uncertain { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Cluster {
    /// Makes a join token. `access` is what clients that come with it are called and may do.
    ///
    /// # Errors
    /// When the store does not keep it, or there is no head to join at.
    pub(crate) async fn create_token(
        &self,
        kind: TokenKind,
        is_reusable: bool,
        lifetime: Duration,
        access: Option<Access>,
    ) -> Result<Token, TokensError> {
        let addresses = match &self.authority {
            Some(_) => self.lines.addresses(),
            None => self.members.head_addresses().ok_or(TokensError::NoHead)?,
        };
        let identity = Identity::load(self.state.path()).map_err(|_| TokensError::NoHead)?;
        let now_s = self.clock_for_change().await?;
        let now_s = now_s.ok_or(TokensError::NoHead)?;
        let grant = TokenGrant {
            kind,
            uses: match is_reusable {
                true => TokenUses::Many,
                false => TokenUses::Once,
            },
            lifetime,
        };
        let made = |book: &mut Book| {
            let made = book.tokens.create(grant, now_s);
            let given = access.iter().map(|access| (made.0, access.clone()));
            book.access.extend(given);
            made
        };
        let made = self.changed(change(self.store.as_ref(), Some(now_s), made));
        let (id, secret, expires_s) = made.await?;
        Ok(Token {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            authority: identity.fingerprint(),
            id,
            secret,
            kind,
            expires_s,
        })
    }

    /// All join tokens that are remembered.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn tokens(&self) -> Result<Vec<TokenRow>, TokensError> {
        let book = self.query(read(self.store.as_ref())).await?;
        let now = self.about_now_s().await;
        let rows = book.list().map(|token| TokenRow {
            id: token.id.to_string(),
            kind: match token.kind {
                TokenKind::Node => "node",
                TokenKind::Client => "client",
            }
            .to_owned(),
            state: match () {
                () if token.is_revoked => "revoked",
                () if token.expires_s <= now => "expired",
                () if token.uses == TokenUses::Once && token.joined > 0 => "used",
                () => "valid",
            }
            .to_owned(),
            is_reusable: token.uses == TokenUses::Many,
            joined: token.joined,
            left_ms: token.expires_s.saturating_sub(now).saturating_mul(1000),
        });
        Ok(rows.collect())
    }

    /// Takes back the one join token whose id begins so.
    ///
    /// # Errors
    /// When there is none or more than one, and when the store does not do it.
    pub(crate) async fn revoke_token(&self, prefix: &str) -> Result<(), TokensError> {
        let revoked = change(self.store.as_ref(), None, |book| {
            let meant = book.begun_so(prefix);
            meant.is_some_and(|id| book.tokens.revoke(id))
        });
        match self.changed(revoked).await? {
            true => Ok(()),
            false => Err(TokensError::Unknown(prefix.chars().take(80).collect())),
        }
    }
}

#[cfg(test)]
mod tests;
