//! Secrets of tenants, as attempts of this node get them.
//!
//! Owns the sealed values that this node knows of ([`Vault`]), and what they become when an attempt begins: variables and files
//! of its sandbox. Must not: log a value, or put one into an error.
//!
//! Invariants: a value is open from when an attempt begins until its sandbox is made, and nowhere else at this node; it opens
//! under its own tenant and name alone.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wasmrun_control::Error;
use wasmrun_control::records::{Form, Record, RecordError};
use wasmrun_engine::{Grants, SecretFile};
use wasmrun_model::access::Tenants;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::secret::{MAX_SECRETS, SecretName, SecretPlace};
use wasmrun_model::wire::SecretRow;
use wasmrun_net::{KeyId, Plain, Sealed, SecretKey};

/// A secret as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredSecret {
    sealed: Sealed,
    /// When it was set, in seconds since 1970, by the clock of the head.
    set_s: u64,
    /// Who has set it, for people.
    by: String,
}

impl Record for StoredSecret {
    const FORM: Form = Form::Postcard;
    const VERSION: u8 = 1;
}

impl StoredSecret {
    pub(crate) fn seal(
        key: &SecretKey,
        (tenant, name): (&TenantName, &SecretName),
        value: &[u8],
        (set_s, by): (u64, &str),
    ) -> Self {
        Self {
            sealed: key.seal(&bound(tenant, name), value),
            set_s,
            by: by.to_owned(),
        }
    }

    /// Which key has sealed it.
    pub(crate) fn key(&self) -> KeyId {
        self.sealed.key()
    }

    /// The same, sealed by another key than before. None if that did not seal it.
    pub(crate) fn resealed(
        &self,
        (before, now): (&SecretKey, &SecretKey),
        (tenant, name): (&TenantName, &SecretName),
    ) -> Option<Self> {
        let value = self.open(before, tenant, name)?;
        let set = (self.set_s, self.by.as_str());
        Some(Self::seal(now, (tenant, name), &value, set))
    }

    fn open(&self, key: &SecretKey, tenant: &TenantName, name: &SecretName) -> Option<Plain> {
        key.open(&bound(tenant, name), &self.sealed)
    }
}

/// What a value is bound to. A secret's name has no '/'.
fn bound(tenant: &TenantName, name: &SecretName) -> String {
    format!("{tenant}/{name}")
}

/// Why a task does not get a secret, or one cannot be set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    /// There is none.
    #[error(
        "there is no secret {name} for tenant '{tenant}': set it with `wasmrun secret set {name} --tenant {tenant}`; `wasmrun \
         secret list --tenant {tenant}` shows those that there are"
    )]
    Missing {
        tenant: TenantName,
        name: SecretName,
    },
    /// It is there, and cannot be read.
    #[error(
        "secret {name} of tenant '{tenant}' cannot be read: it was sealed with another key than the cluster has now, or was \
         altered; restore secrets.key at the head from a backup, or set it again with `wasmrun secret set {name} --tenant \
         {tenant}`"
    )]
    Sealed {
        tenant: TenantName,
        name: SecretName,
    },
    /// Variables are text.
    #[error(
        "secret {name} of tenant '{tenant}' is not text without NUL bytes, as a variable is: give it as a file, with --secret \
         /run/secrets/{name}={name}"
    )]
    NotText {
        tenant: TenantName,
        name: SecretName,
    },
    /// There are as many as may be.
    #[error(
        "tenant '{0}' has {MAX_SECRETS} secrets, and may have no more: remove some with `wasmrun secret remove`"
    )]
    TooMany(TenantName),
    /// The store does not answer.
    #[error("secrets cannot be read: {0}")]
    Store(#[from] Error),
    /// Its record is none.
    #[error("secrets cannot be read: {0}")]
    Record(#[from] RecordError),
    /// The key is not there.
    #[error("secrets cannot be opened: {0}")]
    Key(String),
    /// Another node makes keys.
    #[error(
        "the key of secrets is replaced at the head, node {0}: `wasmrun secret rotate` there, or at its address"
    )]
    NotHead(String),
}

impl From<SecretError> for TaskError {
    fn from(error: SecretError) -> Self {
        let why = error.to_string();
        match error {
            // Another attempt may find the store and the key there.
            SecretError::Store(_) | SecretError::Key(_) => Self::Sandbox(why),
            SecretError::Missing { .. }
            | SecretError::Sealed { .. }
            | SecretError::NotText { .. }
            | SecretError::TooMany(_)
            | SecretError::NotHead(_)
            | SecretError::Record(_) => Self::Unschedulable(why),
        }
    }
}

/// Where secrets and their key come from in a cluster.
#[async_trait]
pub(crate) trait Source: Send + Sync {
    /// What the control store has now.
    ///
    /// # Errors
    /// When it does not say.
    async fn stored(
        &self,
        tenant: &TenantName,
        name: &SecretName,
    ) -> Result<Option<StoredSecret>, SecretError>;

    /// The cluster's key that this is the id of.
    ///
    /// # Errors
    /// When nobody who answers has it.
    async fn key(&self, id: KeyId) -> Result<SecretKey, SecretError>;
}

type Key = (TenantName, SecretName);

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Vault {
    known: Mutex<BTreeMap<Key, StoredSecret>>,
    /// The key of a node that is alone: it and what it has sealed end with the node.
    own_key: OnceLock<SecretKey>,
    cluster: OnceLock<Arc<dyn Source>>,
}

impl Vault {
    /// It is in a cluster from now on. Once.
    pub(crate) fn join(&self, cluster: Arc<dyn Source>) {
        self.cluster.get_or_init(|| cluster);
    }

    /// This is all that there is.
    pub(crate) fn replace(&self, all: impl IntoIterator<Item = (Key, StoredSecret)>) {
        *self.known.lock() = all.into_iter().collect();
    }

    pub(crate) fn put(&self, key: Key, stored: StoredSecret) {
        self.known.lock().insert(key, stored);
    }

    /// False if there was none.
    pub(crate) fn remove(&self, key: &Key) -> bool {
        self.known.lock().remove(key).is_some()
    }

    /// Refuses one that would be one too many for its tenant, as far as is known here.
    ///
    /// # Errors
    /// [`SecretError::TooMany`].
    pub(crate) fn has_room(&self, key: &Key) -> Result<(), SecretError> {
        let known = self.known.lock();
        let is_full = || known.keys().filter(|it| it.0 == key.0).count() >= MAX_SECRETS;
        match known.contains_key(key) || !is_full() {
            true => Ok(()),
            false => Err(SecretError::TooMany(key.0.clone())),
        }
    }

    /// The key of a node that is alone.
    pub(crate) fn own_key(&self) -> &SecretKey {
        self.own_key.get_or_init(SecretKey::generate)
    }

    /// The secrets that work of a tenant may use: its own, then those of the tenants above. For somebody who has these tenants:
    /// who has set one of another is not said.
    pub(crate) fn rows(&self, tenant: &TenantName, has: &Tenants) -> Vec<SecretRow> {
        let known = self.known.lock();
        let owners = covering(tenant);
        let of = |owner: &TenantName| {
            let rows = known.iter().filter(|((it, _), _)| it == owner);
            let rows = rows.map(|((tenant, name), stored)| SecretRow {
                name: name.clone(),
                tenant: tenant.clone(),
                bytes: stored.sealed.value_len() as u64,
                set_s: stored.set_s,
                by: match has.covers(tenant) {
                    true => stored.by.clone(),
                    false => String::new(),
                },
            });
            rows.collect::<Vec<_>>()
        };
        owners.iter().flat_map(of).collect()
    }

    /// The secret of this name that work of a tenant gets, and whose it is: the nearest.
    ///
    /// # Errors
    /// When there is none, or nobody can say.
    pub(crate) async fn find(
        &self,
        tenant: &TenantName,
        name: &SecretName,
    ) -> Result<(TenantName, StoredSecret), SecretError> {
        let owners = covering(tenant);
        {
            let known = self.known.lock();
            for owner in &owners {
                if let Some(stored) = known.get(&(owner.clone(), name.clone())) {
                    return Ok((owner.clone(), stored.clone()));
                }
            }
        }
        // It may have been set at another node just now.
        if let Some(cluster) = self.cluster.get() {
            for owner in owners {
                if let Some(stored) = cluster.stored(&owner, name).await? {
                    return Ok((owner, stored));
                }
            }
        }
        Err(SecretError::Missing {
            tenant: tenant.clone(),
            name: name.clone(),
        })
    }

    async fn value(&self, tenant: &TenantName, name: &SecretName) -> Result<Plain, SecretError> {
        let (owner, stored) = self.find(tenant, name).await?;
        let opened = match self.cluster.get() {
            Some(cluster) => {
                let key = cluster.key(stored.key()).await?;
                stored.open(&key, &owner, name)
            }
            None => stored.open(self.own_key(), &owner, name),
        };
        opened.ok_or_else(|| SecretError::Sealed {
            tenant: owner,
            name: name.clone(),
        })
    }

    /// What an attempt may reach, with the values of its secrets in place of their names.
    ///
    /// # Errors
    /// When it does not get one of them.
    pub(crate) async fn granted<'a>(
        &self,
        tenant: &TenantName,
        grants: &'a Grants,
    ) -> Result<Cow<'a, Grants>, TaskError> {
        match grants.secrets.is_empty() {
            true => Ok(Cow::Borrowed(grants)),
            // In a box: most have none, and need no room for this.
            false => Ok(Cow::Owned(Box::pin(self.opened(tenant, grants)).await?)),
        }
    }

    async fn opened(&self, tenant: &TenantName, grants: &Grants) -> Result<Grants, SecretError> {
        let mut opened = grants.clone();
        for it in std::mem::take(&mut opened.secrets) {
            let value = self.value(tenant, &it.name).await?;
            match it.place {
                SecretPlace::Variable(variable) => {
                    let text = std::str::from_utf8(&value).ok();
                    let text = text.filter(|it| !it.contains('\0'));
                    let text = text.ok_or_else(|| SecretError::NotText {
                        tenant: tenant.clone(),
                        name: it.name,
                    })?;
                    opened.env.push((variable, text.to_owned()));
                }
                SecretPlace::File(name) => opened.files.push(SecretFile {
                    name,
                    bytes: value.to_vec(),
                }),
            }
        }
        Ok(opened)
    }
}

/// The tenants whose secrets work of this one may use, the nearest first: itself, then those above it, `org` above
/// `org/team`.
fn covering(tenant: &TenantName) -> Vec<TenantName> {
    let name = tenant.as_str();
    let above = name.rmatch_indices('/');
    let above = above.filter_map(|(at, _)| name[..at].parse().ok());
    std::iter::once(tenant.clone()).chain(above).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: &str, name: &str) -> Key {
        (tenant.parse().unwrap(), name.parse().unwrap())
    }

    /// Sets a secret of a node that is alone.
    fn set(vault: &Vault, tenant: &str, name: &str, value: &[u8]) {
        let key = key(tenant, name);
        let stored = StoredSecret::seal(vault.own_key(), (&key.0, &key.1), value, (7, "me"));
        vault.put(key, stored);
    }

    fn grants(secrets: &[&str]) -> Grants {
        Grants {
            env: vec![("A".into(), "plain".into())],
            secrets: secrets.iter().map(|it| it.parse().unwrap()).collect(),
            ..Grants::default()
        }
    }

    #[tokio::test]
    async fn an_attempt_has_values_where_it_has_asked_for_them() {
        let vault = Vault::default();
        set(&vault, "t", "KEY", b"one\n\xc3\xa4");
        set(&vault, "t", "RAW", b"\0\xff");
        let tenant = "t".parse().unwrap();
        let asked = grants(&["KEY", "A=KEY", "/run/secrets/raw=RAW"]);
        let opened = vault.opened(&tenant, &asked).await.unwrap();
        // The last value of a variable counts.
        let [_, (_, first), (second, _)] = &opened.env[..] else {
            panic!("{} variables", opened.env.len())
        };
        assert_eq!((&first[..], &second[..]), ("one\nä", "A"));
        assert_eq!(opened.files[0].bytes, b"\0\xff");
        assert!(opened.secrets.is_empty());
        for bad in ["RAW", "NONE"] {
            let refused = vault.opened(&tenant, &grants(&[bad])).await.unwrap_err();
            let refused = TaskError::from(refused);
            assert!(matches!(refused, TaskError::Unschedulable(_)));
            let said = refused.to_string();
            assert!(said.contains(bad) && said.contains("tenant 't'"), "{said}");
        }
        let other = vault.opened(&"u".parse().unwrap(), &asked).await;
        assert!(matches!(other, Err(SecretError::Missing { .. })));
    }

    #[test]
    fn a_tenant_is_covered_by_itself() {
        let tenant: TenantName = "a".parse().unwrap();
        assert_eq!(covering(&tenant), [tenant]);
    }

    #[tokio::test]
    async fn a_record_opens_under_its_own_name_alone() {
        let vault = Vault::default();
        set(&vault, "t", "A", b"value");
        let (tenant, name) = key("t", "A");
        let (_, stored) = vault.find(&tenant, &name).await.unwrap();
        let read = StoredSecret::from_value(&stored.to_value()).unwrap();
        assert_eq!(read, stored);
        for moved in [key("t", "B"), key("u", "A")] {
            vault.put(moved.clone(), stored.clone());
            let opened = vault.value(&moved.0, &moved.1).await;
            assert!(matches!(opened, Err(SecretError::Sealed { .. })));
        }
    }

    #[test]
    fn what_is_listed_and_what_is_kept_has_no_value() {
        let vault = Vault::default();
        set(&vault, "t", "A", b"the value");
        set(&vault, "u", "B", b"x");
        let rows = vault.rows(&"t".parse().unwrap(), &Tenants::All);
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.bytes, row.set_s, &row.by[..]), (9, 7, "me"));
        let known = vault.known.lock();
        let kept = known[&key("t", "A")].to_value();
        assert!(!kept.windows(9).any(|it| it == b"the value"));
    }

    #[test]
    fn who_has_set_a_secret_is_said_to_those_who_have_its_tenant() {
        let vault = Vault::default();
        set(&vault, "org", "A", b"x");
        set(&vault, "org/team", "B", b"x");
        let of = |has: &str| {
            let rows = vault.rows(&"org/team".parse().unwrap(), &has.parse().unwrap());
            rows.into_iter()
                .map(|row| (row.name.to_string(), row.by))
                .collect::<Vec<_>>()
        };
        let row = |name: &str, by: &str| (name.to_owned(), by.to_owned());
        assert_eq!(of("org"), [row("B", "me"), row("A", "me")]);
        assert_eq!(of("org/team"), [row("B", "me"), row("A", "")]);
    }

    #[test]
    fn a_tenant_has_no_more_than_it_may() {
        let vault = Vault::default();
        for number in 0..MAX_SECRETS {
            set(&vault, "t", &format!("S{number}"), b"");
        }
        assert!(vault.has_room(&key("t", "S0")).is_ok());
        assert!(vault.has_room(&key("u", "NEW")).is_ok());
        let refused = vault.has_room(&key("t", "NEW"));
        assert!(matches!(refused, Err(SecretError::TooMany(_))));
        assert!(vault.remove(&key("t", "S0")));
        assert!(vault.has_room(&key("t", "NEW")).is_ok());
    }
}
