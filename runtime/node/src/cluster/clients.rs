//! Clients of the cluster: who has a certificate, and whose was taken back.
//!
//! Owns the record at `clients/ID`, its changes by compare-and-swap, and the watch by which a node hears whom it is not to
//! let in any more. Must not: make sessions or end them; that is `net`'s, which is told who is revoked.
//!
//! Invariants: a revocation is never taken back, as its certificate is not: who is to come again logs in anew and is
//! another client. A record that cannot be read changes nothing: who was let in before is let in, and who was not is
//! not. A record is forgotten when no certificate of its client can be valid any more. All certificates of a client that are
//! valid say the same: what it is listed with is what holds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmrun_control::records::{self, CLIENTS, Form, Record, RecordError};
use wasmrun_control::{
    Changes, Condition, ControlStore, Entry, Error, Event, Op, Revision, Txn, Watch,
};
use wasmrun_model::access::{Access, Role, Tenants};
use wasmrun_model::wire::AccessRow;
use wasmrun_net::ClientId;

use super::Cluster;
use super::clock::now_s;
use super::lines::Lines;
use super::renew::LIFETIME;
use super::watched::{self, Applied, Follow};

/// For how long after its last certificate a client is remembered.
const REMEMBERED_S: u64 = 24 * 3600;

/// What is known of a client. Times in seconds since 1970, by the clock of the head; when it was revoked is by that of
/// the node that was asked, and nothing goes by it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClientRecord {
    /// What whoever made its token calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// What its certificate says that it may do, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    /// … and for whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenants: Option<Tenants>,
    /// When it has logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_s: Option<u64>,
    /// When it got its last certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issued_s: Option<u64>,
    /// When that ends, if it came of a login and is not renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_s: Option<u64>,
    /// When that was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked_s: Option<u64>,
}

impl Record for ClientRecord {
    // Nodes of two versions read it.
    const FORM: Form = Form::Json;
    const VERSION: u8 = 1;
}

impl ClientRecord {
    /// When its last certificate ends, if that is known.
    fn ends_s(&self) -> Option<u64> {
        let issued = self.issued_s;
        self.until_s
            .or(issued.map(|it| it.saturating_add(LIFETIME.as_secs())))
    }

    /// Whether what it has says this.
    fn says(&self, login: &Login<'_>) -> bool {
        self.name.as_deref() == login.name
            && self.role == login.access.map(|it| it.role)
            && self.tenants.as_ref() == login.access.map(|it| &it.tenants)
            && self.until_s.is_some() == login.until_s.is_some()
    }

    /// Notes a certificate, unless another one is valid that says something else, or one was taken back.
    fn log_in(
        &mut self,
        client: ClientId,
        login: &Login<'_>,
        now_s: u64,
    ) -> Result<(), ClientsError> {
        if self.revoked_s.is_some() {
            return Err(ClientsError::Revoked(client));
        }
        let is_valid = self.ends_s().is_some_and(|it| it > now_s);
        if is_valid && !self.says(login) {
            return Err(ClientsError::KeyInUse(client));
        }
        // The same one may ask again.
        self.since_s = self.since_s.or(Some(now_s));
        self.issued_s = self.issued_s.max(Some(now_s));
        // The one before may be valid for longer.
        let until_s = login.until_s;
        self.until_s = until_s.map(|it| self.until_s.map_or(it, |before| before.max(it)));
        self.name = login.name.map(str::to_owned);
        self.role = login.access.map(|it| it.role);
        self.tenants = login.access.map(|it| it.tenants.clone());
        Ok(())
    }

    fn is_over(&self, now_s: u64) -> bool {
        self.ends_s()
            .is_some_and(|it| it.saturating_add(REMEMBERED_S) <= now_s)
    }

    fn validity(&self, now_s: u64) -> Validity {
        match () {
            () if self.revoked_s.is_some() => Validity::Revoked,
            () if self.ends_s().is_some_and(|it| it <= now_s) => Validity::Expired,
            () => Validity::Valid,
        }
    }

    fn state(&self, now_s: u64) -> &'static str {
        match self.validity(now_s) {
            Validity::Revoked => "revoked",
            Validity::Expired => "expired",
            Validity::Valid => "valid",
        }
    }
}

/// What its certificates are good for. Who is meant by a name is the greatest of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Validity {
    Revoked,
    Expired,
    Valid,
}

/// What a certificate is to say.
#[derive(Clone, Copy)]
struct Login<'a> {
    name: Option<&'a str>,
    access: Option<&'a Access>,
    /// When it ends, if it is a person's; with a token it is renewed.
    until_s: Option<u64>,
}

/// Why clients could not be listed or revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientsError {
    /// The store did not do it, or has not said whether it did.
    #[error(transparent)]
    Store(#[from] Error),
    /// What is there cannot be read.
    #[error("what is known of client {client} cannot be read: {source}")]
    Record {
        /// The client.
        client: ClientId,
        /// Why not.
        source: RecordError,
    },
    /// It has a certificate that says something else.
    #[error(
        "the key of client {0} has a certificate already that is valid and says something else: make another key, as \
         `wasmrun login` does, or wait until that certificate has ended"
    )]
    KeyInUse(ClientId),
    /// Its certificate was taken back.
    #[error(
        "the certificate of client {0} was revoked, and its key gets no other: make another key, as `wasmrun login` does"
    )]
    Revoked(ClientId),
    /// There is no such client.
    #[error(
        "there is no client '{0}': give its name, or its id or the beginning of it, as `wasmrun client list` shows them; \
         one that is not listed is revoked by its whole id"
    )]
    Unknown(String),
    /// There are several.
    #[error("'{text}' stands for more than one client: {ids}; give one of the ids")]
    Ambiguous {
        /// What was given.
        text: String,
        /// Some of them.
        ids: String,
    },
}

/// Whether a certificate is followed by a further one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    Yes,
    /// It was taken back.
    Revoked,
    /// It came of a login, which has to be done again.
    LoginAgain,
}

/// What becomes of a client's record when it logs in with a token: what must be true of the record, and its change.
/// It is written with the change of the token, so that who gets no certificate uses no token up.
///
/// # Errors
/// When its key may have no such certificate, and when the record cannot be read.
pub(super) async fn joining(
    store: &dyn ControlStore,
    client: ClientId,
    name: Option<&str>,
    access: Option<&Access>,
    now_s: u64,
) -> Result<(Condition, Op), ClientsError> {
    let named = access.map(|it| &*it.name);
    let login = Login {
        name: named.filter(|it| !it.is_empty()).or(name),
        access,
        until_s: None,
    };
    let key = records::client(client);
    let entry = store.get(&key).await?;
    let mut known = read(client, entry.as_ref())?.unwrap_or_default();
    known.log_in(client, &login, now_s)?;
    let condition = match entry {
        Some(entry) => Condition::Modified(entry.modified),
        None => Condition::Absent,
    };
    Ok((condition, Op::put(key, known.to_value())))
}

/// Somebody has logged in as a person, for so long.
pub(super) async fn logged_in(
    store: &dyn ControlStore,
    client: ClientId,
    access: &Access,
    lifetime: Duration,
) -> Result<(), ClientsError> {
    let now = now_s();
    let login = Login {
        name: Some(&access.name),
        access: Some(access),
        until_s: Some(now.saturating_add(lifetime.as_secs())),
    };
    let logged_in = change(store, client, |known| known.log_in(client, &login, now));
    logged_in.await.map(drop)
}

/// Somebody is to get a further certificate. Whether it may have one.
pub(super) async fn renewed(
    store: &dyn ControlStore,
    client: ClientId,
) -> Result<Renewal, ClientsError> {
    let now = now_s();
    let renew = |known: &mut ClientRecord| {
        if known.revoked_s.is_none() && known.until_s.is_none() {
            known.issued_s = known.issued_s.max(Some(now));
        }
        Ok(())
    };
    let (known, _) = change(store, client, renew).await?;
    Ok(match (known.revoked_s, known.until_s) {
        (Some(_), _) => Renewal::Revoked,
        (None, Some(_)) => Renewal::LoginAgain,
        (None, None) => Renewal::Yes,
    })
}

/// Forgets those that cannot come any more; the next login does, where the store does not answer.
pub(super) async fn tidy(store: &dyn ControlStore, now_s: u64) {
    let is_over = |entry: &Entry| {
        let known = ClientRecord::from_value(&entry.value);
        known.is_ok_and(|known| known.is_over(now_s))
    };
    if let Err(error) = watched::prune(store, CLIENTS, is_over).await {
        tracing::debug!(%error, "clients whose certificates have ended are remembered for longer");
    }
}

/// What is known of a client, as it is stored.
fn read(client: ClientId, entry: Option<&Entry>) -> Result<Option<ClientRecord>, ClientsError> {
    let known = entry.map(|entry| ClientRecord::from_value(&entry.value));
    known
        .transpose()
        .map_err(|source| ClientsError::Record { client, source })
}

/// Changes what is known of a client, unless `change` fails: what that is then, and since when.
async fn change(
    store: &dyn ControlStore,
    client: ClientId,
    change: impl Fn(&mut ClientRecord) -> Result<(), ClientsError>,
) -> Result<(ClientRecord, Revision), ClientsError> {
    let key = records::client(client);
    let mut doubt: Option<Error> = None;
    loop {
        let entry = store.get(&key).await;
        let entry = entry.map_err(|error| doubt.clone().unwrap_or(error))?;
        let before = read(client, entry.as_ref())?;
        let mut known = before.clone().unwrap_or_default();
        change(&mut known)?;
        let condition = match &entry {
            // It is so already, perhaps by an attempt of ours that was not answered.
            Some(entry) if before.as_ref() == Some(&known) => return Ok((known, entry.modified)),
            Some(entry) => Condition::Modified(entry.modified),
            None => Condition::Absent,
        };
        let put = Op::put(key.clone(), known.to_value());
        match store.txn(Txn::when(key.clone(), condition).then(put)).await {
            Ok(reply) if reply.succeeded => return Ok((known, reply.revision)),
            // Somebody was faster.
            Ok(_) => {}
            Err(error @ Error::Uncertain { .. }) => doubt = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The clients, as the store has them.
pub(crate) struct Clients {
    store: Arc<dyn ControlStore>,
    lines: Arc<Lines>,
    /// As of when this node goes by it.
    applied: Applied,
}

impl Clients {
    pub(super) fn new(store: Arc<dyn ControlStore>, lines: Arc<Lines>) -> Self {
        Self {
            store,
            lines,
            applied: Applied::default(),
        }
    }

    /// As [`Cluster::revoke_client`]; `now_s` is by the clock of the head.
    async fn revoke(&self, text: &str, now_s: u64) -> Result<ClientId, ClientsError> {
        let client = meant(text, &self.all().await?, now_s)?;
        let now = self::now_s();
        let revoke = |known: &mut ClientRecord| {
            known.revoked_s = known.revoked_s.or(Some(now));
            Ok(())
        };
        let (_, revision) = change(self.store.as_ref(), client, revoke).await?;
        self.applied.reach_soon(revision).await;
        Ok(client)
    }

    /// All that are remembered.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) async fn all(&self) -> Result<Vec<(ClientId, ClientRecord)>, ClientsError> {
        let (entries, _) = watched::entries(self.store.as_ref(), CLIENTS).await?;
        let known = entries.iter().filter_map(|entry| {
            let client = client_of(&entry.key)?;
            match ClientRecord::from_value(&entry.value) {
                Ok(known) => Some((client, known)),
                Err(error) => {
                    tracing::warn!(%client, %error, "what is known of a client cannot be read");
                    Some((client, ClientRecord::default()))
                }
            }
        });
        Ok(known.collect())
    }
}

/// The one client with this id, of this name, or whose id begins so. An id that is not listed stands for itself, unless
/// somebody is called so who was not revoked. `now_s` is by the clock of the head: by another one a certificate may seem to
/// have ended that is valid.
fn meant(
    text: &str,
    all: &[(ClientId, ClientRecord)],
    now_s: u64,
) -> Result<ClientId, ClientsError> {
    let shown = || text.chars().take(80).collect::<String>();
    let whole = ClientId::parse(text);
    let is_named = |known: &ClientRecord| known.name.as_deref() == Some(text);
    let mut fit: Vec<_> = all.iter().filter(|(_, known)| is_named(known)).collect();
    if let Some(id) = whole {
        let is_listed = all.iter().any(|(listed, _)| *listed == id);
        if is_listed || fit.iter().all(|(_, known)| known.revoked_s.is_some()) {
            return Ok(id);
        }
    }
    if fit.is_empty() && !text.is_empty() {
        let begins = |id: &ClientId| id.to_string().starts_with(&text.to_ascii_lowercase());
        fit = all.iter().filter(|(id, _)| begins(id)).collect();
    }
    // Each login under a name is another client: meant is who can still come, and not who was revoked before.
    let best = fit.iter().map(|(_, known)| known.validity(now_s)).max();
    fit.retain(|(_, known)| Some(known.validity(now_s)) == best);
    match fit[..] {
        [(id, _)] => Ok(*id),
        [] => Err(ClientsError::Unknown(shown())),
        _ => {
            let ids: Vec<String> = fit.iter().take(5).map(|(id, _)| id.to_string()).collect();
            Err(ClientsError::Ambiguous {
                text: shown(),
                ids: ids.join(", "),
            })
        }
    }
}

fn client_of(key: &[u8]) -> Option<ClientId> {
    let id = key.strip_prefix(CLIENTS.as_bytes())?;
    ClientId::parse(std::str::from_utf8(id).ok()?)
}

/// Has the network go by what is in the store.
pub(super) struct Follower {
    clients: Arc<Clients>,
    revoked: BTreeSet<ClientId>,
}

impl Follower {
    /// Goes by what is there, and begins to watch it.
    ///
    /// # Errors
    /// When the store does not say.
    pub(super) async fn begin(clients: Arc<Clients>) -> Result<(Self, Watch), Error> {
        let mut follower = Self {
            clients,
            revoked: BTreeSet::new(),
        };
        let watch = watched::begin(&mut follower).await?;
        Ok((follower, watch))
    }

    fn put(&mut self, entry: &Entry) {
        let Some(client) = client_of(&entry.key) else {
            return;
        };
        match ClientRecord::from_value(&entry.value) {
            Ok(known) if known.revoked_s.is_some() => {
                if self.revoked.insert(client) {
                    tracing::info!(%client, "a client's certificate is revoked");
                }
            }
            Ok(_) => drop(self.revoked.remove(&client)),
            Err(error) => {
                tracing::warn!(%client, %error, "whether a client's certificate is revoked cannot be read");
            }
        }
    }

    fn apply(&self, revision: Revision) {
        self.clients.lines.set_revoked(self.revoked.clone());
        self.clients.applied.set(revision);
    }
}

/// As lists show them, the youngest first. `now_s` is by the clock of the head.
pub(super) fn rows(mut all: Vec<(ClientId, ClientRecord)>, now_s: u64) -> Vec<AccessRow> {
    all.sort_by_key(|(id, known)| (std::cmp::Reverse(known.since_s), *id));
    let ms = |s: u64| s.saturating_mul(1000);
    let unnamed = Access::unnamed();
    let rows = all.into_iter().map(|(id, known)| AccessRow {
        id: id.to_string(),
        state: known.state(now_s).to_owned(),
        age_ms: known.since_s.map(|it| ms(now_s.saturating_sub(it))),
        left_ms: match known.revoked_s {
            Some(_) => Some(0),
            None => known.ends_s().map(|it| ms(it.saturating_sub(now_s))),
        },
        name: known.name,
        role: known.role.unwrap_or(unnamed.role),
        tenants: known.tenants.unwrap_or_else(|| unnamed.tenants.clone()),
    });
    rows.collect()
}

impl Follow for Follower {
    const PREFIX: &'static str = CLIENTS;
    const WHAT: &'static str = "whose certificates are revoked";

    fn store(&self) -> &dyn ControlStore {
        self.clients.store.as_ref()
    }

    fn all(&mut self, entries: &[Entry], revision: Revision) {
        let there: BTreeSet<ClientId> =
            entries.iter().filter_map(|it| client_of(&it.key)).collect();
        self.revoked.retain(|client| there.contains(client));
        for entry in entries {
            self.put(entry);
        }
        self.apply(revision);
    }

    fn changed(&mut self, changes: Changes) {
        for event in changes.events {
            match event {
                Event::Put(entry) => self.put(&entry),
                Event::Delete { key } => {
                    let client = client_of(&key);
                    client.map(|client| self.revoked.remove(&client));
                }
            }
        }
        self.apply(changes.revision);
    }
}

impl Cluster {
    /// All clients that are remembered, the youngest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn list_clients(&self) -> Result<Vec<AccessRow>, ClientsError> {
        let all = self.query(self.clients.all()).await?;
        Ok(rows(all, self.about_now_s().await))
    }

    /// Takes the certificate of a client back, for all nodes: by its name, a unique prefix of its id, or its id, which
    /// need not be known here. Its id. This node goes by it then, unless the store has stopped answering just now.
    ///
    /// # Errors
    /// When there is none or more than one, and when the store does not do it.
    pub(crate) async fn revoke_client(&self, text: &str) -> Result<ClientId, ClientsError> {
        // Where the head does not say what time it is, no certificate counts as ended.
        let now_s = self.clock_for_change().await?.unwrap_or(0);
        self.changed(self.clients.revoke(text, now_s)).await
    }
}

#[cfg(test)]
mod tests;
