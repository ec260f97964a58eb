//! Secrets of tenants, in the control store, and the key that opens them.
//!
//! Owns the records at `secrets/TENANT/NAME`, which are sealed, the watch by which a node knows all of them ([`Vault`]), and the
//! way of the key: the head makes it when it is first wanted, the other nodes ask for it over the network of nodes and have it in
//! memory and in their state folders from then on. Must not: open a value but to reseal it, or give the key to anybody but a node
//! that lives.
//!
//! Invariants: what this node goes by is what was in the store at one revision, which only grows. Who has the key can open every
//! record, wherever a rotation was cut off: the key before it is in the store, sealed by this one, before this one seals anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wasmrun_control::records::{self, Form, Record, SECRET_KEYS, SECRETS, SERVICES};
use wasmrun_control::{
    Changes, Condition, ControlStore, Entry, Error, Event, Op, Revision, Txn, Watch,
};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::secret::SecretName;
use wasmrun_net::{KeyId, Plain, Sealed, SecretKey, SecretKeyError};

use super::protocol::{Request, Response};
use super::services;
use super::watched::{self, Applied, Follow, Next};
use super::{Cluster, STORE_PATIENCE};
use crate::guests::secrets::{SecretError, Source, StoredSecret, Vault};

/// How many nodes are asked for the key.
const MOST_ASKED: usize = 4;

/// The key, as far as this node has it.
pub(super) struct Keys {
    folder: PathBuf,
    /// Whether this node makes it if there is none.
    is_head: bool,
    known: Mutex<Option<SecretKey>>,
}

impl Keys {
    pub(super) fn new(folder: &Path, is_head: bool) -> Self {
        Self {
            folder: folder.to_owned(),
            is_head,
            known: Mutex::default(),
        }
    }

    /// The key, if this node has it: the head always does.
    pub(super) fn own(&self) -> Result<Option<SecretKey>, SecretKeyError> {
        let mut known = self.known.lock();
        if known.is_none() {
            *known = match self.is_head {
                true => Some(SecretKey::load_or_create(&self.folder)?),
                false => SecretKey::load(&self.folder)?,
            };
        }
        Ok(known.clone())
    }

    /// Another node has said what the key is, or was. The head knows it better.
    fn learn(&self, key: &SecretKey) -> Result<(), SecretKeyError> {
        let known = self.known.lock().as_ref().map(SecretKey::id);
        match known {
            Some(known) if self.is_head || known == key.id() => Ok(()),
            _ => self.replace(key),
        }
    }

    /// This is the key from now on.
    fn replace(&self, key: &SecretKey) -> Result<(), SecretKeyError> {
        let mut known = self.known.lock();
        key.save(&self.folder)?;
        *known = Some(key.clone());
        Ok(())
    }
}

/// A key that has sealed secrets before.
#[derive(Debug, Serialize, Deserialize)]
struct FormerKey(Sealed);

impl Record for FormerKey {
    const FORM: Form = Form::Postcard;
    const VERSION: u8 = 1;
}

/// How many secrets and private keys of services were resealed, and how many stay as they are because nobody can open them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Resealed {
    pub(crate) secrets: u64,
    pub(crate) unreadable: u64,
}

/// The secrets of all tenants, as the store has them.
#[derive(Debug)]
pub(super) struct Secrets {
    store: Arc<dyn ControlStore>,
    /// Held while the key is replaced.
    rotating: tokio::sync::Mutex<()>,
    /// As of when this node goes by it.
    applied: Applied,
}

impl Secrets {
    pub(super) fn new(store: Arc<dyn ControlStore>) -> Self {
        Self {
            store,
            rotating: tokio::sync::Mutex::default(),
            applied: Applied::default(),
        }
    }

    /// The key with this id that has sealed secrets before, if the store has it and this one opens it.
    async fn former(&self, key: &SecretKey, id: KeyId) -> Result<Option<SecretKey>, Error> {
        let entry = self.store.get(&records::secret_key(id)).await?;
        let former = entry.and_then(|it| FormerKey::from_value(&it.value).ok());
        Ok(former.and_then(|former| key.open_key(id, &former.0)))
    }

    /// Keeps a key for those that have the next one.
    async fn keep(&self, former: &SecretKey, next: &SecretKey) -> Result<(), Error> {
        let key = records::secret_key(former.id());
        loop {
            let condition = match self.store.get(&key).await? {
                // A rotation was cut off before its key sealed anything.
                Some(entry) => Condition::Modified(entry.modified),
                None => Condition::Absent,
            };
            let put = Op::put(key.clone(), FormerKey(next.seal_key(former)).to_value());
            let txn = Txn::when(key.clone(), condition).then(put);
            if self.store.txn(txn).await?.succeeded {
                return Ok(());
            }
        }
    }

    /// Has this key seal all that another one has sealed, also what is set meanwhile. The same may be begun again wherever it was
    /// cut off.
    async fn reseal(&self, key: &SecretKey) -> Result<Resealed, Error> {
        let mut secrets = 0;
        loop {
            let mut tried = 0;
            let now = self.reseal_once(key, &mut tried).await?;
            secrets += now.secrets;
            if tried == 0 {
                return Ok(Resealed { secrets, ..now });
            }
        }
    }

    async fn reseal_once(&self, key: &SecretKey, tried: &mut u64) -> Result<Resealed, Error> {
        let mut done = Resealed::default();
        let (entries, _) = watched::entries(&*self.store, SECRETS).await?;
        for entry in entries {
            let Some(((tenant, name), stored)) = read(&entry) else {
                done.unreadable += 1;
                continue;
            };
            if stored.key() == key.id() {
                continue;
            }
            let before = self.former(key, stored.key()).await?;
            let sealed = before.and_then(|it| stored.resealed((&it, key), (&tenant, &name)));
            let Some(sealed) = sealed else {
                done.unreadable += 1;
                continue;
            };
            *tried += 1;
            done.secrets += u64::from(self.replace(entry, sealed.to_value()).await?);
        }
        let (entries, _) = watched::entries(&*self.store, SERVICES).await?;
        for entry in entries {
            let Some((service, by)) = services::sealed_by(&entry).filter(|it| it.1 != key.id())
            else {
                continue;
            };
            let before = self.former(key, by).await?;
            let sealed = before.and_then(|it| service.resealed((&it, key)));
            let Some(sealed) = sealed else {
                done.unreadable += 1;
                continue;
            };
            *tried += 1;
            done.secrets += u64::from(self.replace(entry, sealed.to_value()).await?);
        }
        Ok(done)
    }

    /// Whether it was as before. What is set or removed meanwhile is looked at by the next round.
    async fn replace(&self, entry: Entry, value: bytes::Bytes) -> Result<bool, Error> {
        let unchanged = Condition::Modified(entry.modified);
        let put = Op::put(entry.key.clone(), value);
        let txn = Txn::when(entry.key, unchanged).then(put);
        Ok(self.store.txn(txn).await?.succeeded)
    }

    async fn put(
        &self,
        (tenant, name): (&TenantName, &SecretName),
        stored: &StoredSecret,
    ) -> Result<(), SecretError> {
        let key = records::secret(tenant, name);
        let value = stored.to_value();
        // Resealed it has other bytes: where they are there already, an earlier attempt has written them.
        let next = |entry: Option<&Entry>, _: bool| match entry {
            Some(entry) if entry.value == value => Ok(Next::Stays),
            _ => Ok(Next::Put(value.clone())),
        };
        watched::swap(&*self.store, &self.applied, key, next).await
    }

    async fn remove(&self, tenant: &TenantName, name: &SecretName) -> Result<(), SecretError> {
        let key = records::secret(tenant, name);
        let next = |entry: Option<&Entry>, is_doubtful: bool| match entry {
            Some(_) => Ok(Next::Goes),
            // It may have been us.
            None if is_doubtful => Ok(Next::Stays),
            None => Err(SecretError::Missing {
                tenant: tenant.clone(),
                name: name.clone(),
            }),
        };
        watched::swap(&*self.store, &self.applied, key, next).await
    }
}

impl Cluster {
    /// Sets a secret of a tenant, for all nodes; this node goes by it, unless the store has stopped answering just now.
    ///
    /// # Errors
    /// When the key is not to be had, or the store does not keep it or has not said whether it did.
    pub(crate) async fn set_secret(
        &self,
        tenant: &TenantName,
        name: &SecretName,
        value: &[u8],
        by: &str,
    ) -> Result<(), SecretError> {
        let key = self.key_to_seal().await?;
        let now_s = self.about_now_s().await;
        let stored = StoredSecret::seal(&key, (tenant, name), value, (now_s, by));
        self.changed(self.secrets.put((tenant, name), &stored))
            .await
    }

    /// Removes a secret of a tenant, for all nodes.
    ///
    /// # Errors
    /// When there is none, and as of [`Self::set_secret`].
    pub(crate) async fn remove_secret(
        &self,
        tenant: &TenantName,
        name: &SecretName,
    ) -> Result<(), SecretError> {
        self.changed(self.secrets.remove(tenant, name)).await
    }

    /// Seals what nodes alone may read, under a name that no secret has.
    ///
    /// # Errors
    /// When the key is not to be had.
    pub(super) async fn seal(&self, name: &str, value: &[u8]) -> Result<Sealed, SecretError> {
        Ok(self.key_to_seal().await?.seal(name, value))
    }

    /// Opens that. None if it was sealed with another key or under another name, or was altered.
    ///
    /// # Errors
    /// When the key is not to be had.
    pub(super) async fn unseal(
        &self,
        name: &str,
        sealed: &Sealed,
    ) -> Result<Option<Plain>, SecretError> {
        Ok(self.key(sealed.key()).await?.open(name, sealed))
    }

    /// Makes another key, and has it seal all secrets and the private keys of services, at the head alone. The key before it stays in the store, sealed by this one, until
    /// the next time.
    ///
    /// # Errors
    /// At another node; and when the store or the state folder does not keep it. Then all secrets can be read as before, and to say it
    /// again goes on.
    pub(crate) async fn rotate_secrets(&self) -> Result<Resealed, SecretError> {
        if self.authority.is_none() {
            let head = self.lines.head_id().map(|head| self.name_of(head));
            return Err(SecretError::NotHead(head.unwrap_or_default()));
        }
        let _alone = self.secrets.rotating.lock().await;
        let old = self.own_key()?.ok_or_else(|| self.no_key())?;
        // Where the last time was cut off.
        self.secrets.reseal(&old).await?;
        let new = SecretKey::generate();
        self.query(self.secrets.keep(&old, &new)).await?;
        self.keys.replace(&new).map_err(key_error)?;
        let done = self.secrets.reseal(&new).await?;
        let is_over = |entry: &Entry| entry.key != records::secret_key(old.id());
        let store = &*self.secrets.store;
        self.query(watched::prune(store, SECRET_KEYS, is_over))
            .await?;
        Ok(done)
    }

    /// The key with this id, as far as this node has it or can open it.
    async fn held_key(&self, id: KeyId) -> Result<Option<SecretKey>, SecretError> {
        match self.own_key()? {
            Some(key) if key.id() == id => Ok(Some(key)),
            Some(key) => Ok(self.query(self.secrets.former(&key, id)).await?),
            None => Ok(None),
        }
    }

    /// The key by which others will open what is sealed now: the head's, where that says which.
    async fn key_to_seal(&self) -> Result<SecretKey, SecretError> {
        if self.authority.is_some() {
            return self.own_key()?.ok_or_else(|| self.no_key());
        }
        match self.asked_key(None).await {
            Some(key) => Ok(key),
            None => self.own_key()?.ok_or_else(|| self.no_key()),
        }
    }

    fn own_key(&self) -> Result<Option<SecretKey>, SecretError> {
        self.keys.own().map_err(key_error)
    }

    /// What another node says is the key, or the key with this id. None if nobody says.
    async fn asked_key(&self, id: Option<KeyId>) -> Option<SecretKey> {
        for node in self.members.heads_first().into_iter().take(MOST_ASKED) {
            let Some(peer) = self.peer(node) else {
                continue;
            };
            match peer.call(&Request::SecretKey, STORE_PATIENCE).await {
                Ok(Response::SecretKey(Some(key))) if id.is_none_or(|id| key.id() == id) => {
                    if let Err(error) = self.keys.learn(&key) {
                        tracing::warn!(%error, "the key of secrets is not kept here");
                    }
                    return Some(key);
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%node, %error, "no key of secrets from a node"),
            }
        }
        None
    }

    fn no_key(&self) -> SecretError {
        let head = self.lines.head_id().map(|head| self.name_of(head));
        SecretError::Key(match head {
            Some(head) => format!(
                "their key is with the head, node {head}, and that has not given it: see that it runs and can be reached \
                 (`wasmrun node list`)"
            ),
            None => "their key is with the head, and that has not given it: see that it runs and can be reached (`wasmrun \
                     node list`)"
                .to_owned(),
        })
    }
}

fn key_error(error: SecretKeyError) -> SecretError {
    SecretError::Key(error.to_string())
}

#[async_trait]
impl Source for Cluster {
    async fn stored(
        &self,
        tenant: &TenantName,
        name: &SecretName,
    ) -> Result<Option<StoredSecret>, SecretError> {
        let key = records::secret(tenant, name);
        let entry = self.query(self.store.get(&key)).await?;
        let stored = entry.map(|entry| StoredSecret::from_value(&entry.value));
        Ok(stored.transpose()?)
    }

    async fn key(&self, id: KeyId) -> Result<SecretKey, SecretError> {
        // Where the store does not say, a node may.
        if let Ok(Some(key)) = self.held_key(id).await {
            return Ok(key);
        }
        if let Some(key) = self.asked_key(Some(id)).await {
            return Ok(key);
        }
        if self.authority.is_none() {
            // The head may have a later one, which opens this one.
            drop(self.asked_key(None).await);
        }
        let held = self.held_key(id).await?;
        // Nobody can open what no node has the key of, and a task that tries is told of that.
        let key = held.or(self.own_key()?);
        key.ok_or_else(|| self.no_key())
    }
}

/// Tells a node's vault what is in the store.
pub(super) struct Follower {
    secrets: Arc<Secrets>,
    vault: Arc<Vault>,
}

impl Follower {
    /// Tells what is there, and begins to watch it.
    ///
    /// # Errors
    /// When the store does not say.
    pub(super) async fn begin(
        secrets: Arc<Secrets>,
        vault: Arc<Vault>,
    ) -> Result<(Self, Watch), Error> {
        let mut follower = Self { secrets, vault };
        let watch = watched::begin(&mut follower).await?;
        Ok((follower, watch))
    }
}

/// A secret in the store. None if it cannot be read: a task that wants it reads it again, and is told why.
fn read(entry: &Entry) -> Option<((TenantName, SecretName), StoredSecret)> {
    let key = records::secret_of(&entry.key)?;
    match StoredSecret::from_value(&entry.value) {
        Ok(stored) => Some((key, stored)),
        Err(error) => {
            tracing::warn!(tenant = %key.0, name = %key.1, %error, "a secret cannot be read");
            None
        }
    }
}

impl Follow for Follower {
    const PREFIX: &'static str = SECRETS;
    const WHAT: &'static str = "secrets";

    fn store(&self) -> &dyn ControlStore {
        self.secrets.store.as_ref()
    }

    fn all(&mut self, entries: &[Entry], revision: Revision) {
        self.vault.replace(entries.iter().filter_map(read));
        self.secrets.applied.set(revision);
    }

    fn changed(&mut self, changes: Changes) {
        for event in changes.events {
            match event {
                Event::Put(entry) => {
                    if let Some((key, stored)) = read(&entry) {
                        self.vault.put(key, stored);
                    }
                }
                Event::Delete { key } => {
                    if let Some(key) = records::secret_of(&key) {
                        self.vault.remove(&key);
                    }
                }
            }
        }
        self.secrets.applied.set(changes.revision);
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_control::{Embedded, EmbeddedConfig, MonotonicClock};
    use wasmrun_model::access::Tenants;

    use super::*;

    #[test]
    fn the_head_makes_the_key_and_others_learn_it() {
        let [head, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let key = Keys::new(head.path(), true).own().unwrap().unwrap();
        // It is the same after a restart.
        let again = Keys::new(head.path(), true).own().unwrap().unwrap();
        assert_eq!(again.id(), key.id());
        let member = Keys::new(other.path(), false);
        assert!(member.own().unwrap().is_none());
        member.learn(&key).unwrap();
        let later = Keys::new(other.path(), false).own().unwrap().unwrap();
        assert_eq!(later.id(), key.id());
    }

    #[tokio::test]
    async fn a_rotation_is_finished_wherever_it_was_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), EmbeddedConfig::default()).await;
        let store = store.unwrap();
        let secrets = Secrets::new(store.clone());
        let [old, lost, new, stranger] = [(); 4].map(|()| SecretKey::generate());
        let tenant = TenantName::default();
        let names = ["A", "B", "C", "D"].map(|it| it.parse::<SecretName>().unwrap());
        for (name, key) in std::iter::zip(&names, [&old, &old, &new, &stranger]) {
            let stored = StoredSecret::seal(key, (&tenant, name), b"value", (7, "me"));
            let key = records::secret(&tenant, name);
            let put = Op::put(key.clone(), stored.to_value());
            store
                .txn(Txn::when(key, Condition::Absent).then(put))
                .await
                .unwrap();
        }
        // Cut off before its key was written, and then after one secret.
        secrets.keep(&old, &lost).await.unwrap();
        secrets.keep(&old, &new).await.unwrap();
        let done = secrets.reseal(&new).await.unwrap();
        assert_eq!((done.secrets, done.unreadable), (2, 1));
        let (entries, _) = watched::entries(&*store, SECRETS).await.unwrap();
        let keys = entries.iter().map(|it| read(it).unwrap().1.key());
        let sealed = [&new, &new, &new, &stranger].map(SecretKey::id);
        assert_eq!(keys.collect::<Vec<_>>(), sealed);
        let [a, ..] = &entries[..] else {
            panic!("four")
        };
        let again = read(a)
            .unwrap()
            .1
            .resealed((&new, &old), (&tenant, &names[0]));
        assert!(again.is_some(), "the value is what it was");
        // Who is late with the old key can be read all the same.
        let found = secrets.former(&new, old.id()).await.unwrap();
        assert_eq!(found.map(|it| it.id()), Some(old.id()));
        assert!(secrets.former(&old, old.id()).await.unwrap().is_none());
        let again = secrets.reseal(&new).await.unwrap();
        assert_eq!((again.secrets, again.unreadable), (0, 1));
    }

    #[tokio::test]
    async fn what_is_set_and_removed_is_known_and_outlives_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let key = SecretKey::generate();
        let (tenant, name): (TenantName, SecretName) =
            (TenantName::default(), "KEY".parse().unwrap());
        let stored = StoredSecret::seal(&key, (&tenant, &name), b"value", (7, "me"));
        let open = async || {
            let config = EmbeddedConfig::default();
            let store = Embedded::open(dir.path(), config).await.unwrap();
            let secrets = Arc::new(Secrets::new(store.clone()));
            let vault = Arc::new(Vault::default());
            let begun = Follower::begin(secrets.clone(), vault.clone()).await;
            let (follower, watch) = begun.unwrap();
            let clock = Arc::new(MonotonicClock::default());
            let running = tokio::spawn(watched::run(follower, watch, clock));
            (store, secrets, vault, running)
        };
        let (store, secrets, vault, running) = open().await;
        assert!(vault.rows(&tenant, &Tenants::All).is_empty());
        secrets.put((&tenant, &name), &stored).await.unwrap();
        assert_eq!(vault.rows(&tenant, &Tenants::All).len(), 1);
        running.abort();
        let _ = running.await;
        store.close().await;
        drop((store, secrets));
        let (_store, secrets, vault, running) = open().await;
        let (_, found) = vault.find(&tenant, &name).await.unwrap();
        assert_eq!(found, stored);
        secrets.remove(&tenant, &name).await.unwrap();
        assert!(vault.rows(&tenant, &Tenants::All).is_empty());
        let again = secrets.remove(&tenant, &name).await;
        assert!(matches!(again, Err(SecretError::Missing { .. })));
        running.abort();
    }
}
