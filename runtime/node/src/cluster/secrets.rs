//! Secrets of tenants, in the control store, and the key that opens them.
//!
//! Owns the records at `secrets/TENANT/NAME`, which are sealed, the watch by which a node knows all of them ([`Vault`]), and the
//! way of the key: the head makes it when it is first wanted, the other nodes ask for it over the network of nodes and have it in
//! memory and in their state folders from then on. Must not: open a value, or give the key to anybody but a node that lives.
//!
//! Invariant: what this node goes by is what was in the store at one revision, which only grows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use wasmrun_control::records::{self, Record, SECRETS};
use wasmrun_control::{Changes, ControlStore, Entry, Error, Event, Revision, Watch};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::secret::SecretName;
use wasmrun_net::{KeyId, Plain, Sealed, SecretKey, SecretKeyError};

use super::protocol::{Request, Response};
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

    /// Another node has said what the key is.
    fn learn(&self, key: &SecretKey) -> Result<(), SecretKeyError> {
        let mut known = self.known.lock();
        if known.as_ref().is_none_or(|it| it.id() != key.id()) {
            key.save(&self.folder)?;
            *known = Some(key.clone());
        }
        Ok(())
    }
}

/// The secrets of all tenants, as the store has them.
#[derive(Debug)]
pub(super) struct Secrets {
    store: Arc<dyn ControlStore>,
    /// As of when this node goes by it.
    applied: Applied,
}

impl Secrets {
    pub(super) fn new(store: Arc<dyn ControlStore>) -> Self {
        Self {
            store,
            applied: Applied::default(),
        }
    }

    async fn put(
        &self,
        (tenant, name): (&TenantName, &SecretName),
        stored: &StoredSecret,
    ) -> Result<(), SecretError> {
        let key = records::secret(tenant, name);
        let value = stored.to_value();
        // Sealed anew it has other bytes: where they are there already, an earlier attempt has written them.
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
        let entry = self.told(self.store.get(&key)).await?;
        let stored = entry.map(|entry| StoredSecret::from_value(&entry.value));
        Ok(stored.transpose()?)
    }

    async fn key(&self, id: KeyId) -> Result<SecretKey, SecretError> {
        let own = self.own_key()?;
        if let Some(key) = own.as_ref().filter(|key| key.id() == id) {
            return Ok(key.clone());
        }
        // Nobody can open what no node has the key of, and a task that tries is told of that.
        let asked = self.asked_key(Some(id)).await;
        asked.or(own).ok_or_else(|| self.no_key())
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
        assert!(vault.rows(&tenant).is_empty());
        secrets.put((&tenant, &name), &stored).await.unwrap();
        assert_eq!(vault.rows(&tenant).len(), 1);
        running.abort();
        let _ = running.await;
        store.close().await;
        drop((store, secrets));
        let (_store, secrets, vault, running) = open().await;
        let (_, found) = vault.find(&tenant, &name).await.unwrap();
        assert_eq!(found, stored);
        secrets.remove(&tenant, &name).await.unwrap();
        assert!(vault.rows(&tenant).is_empty());
        let again = secrets.remove(&tenant, &name).await;
        assert!(matches!(again, Err(SecretError::Missing { .. })));
        running.abort();
    }
}
