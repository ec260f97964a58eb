//! What tenants are due, in the control store: the same at all nodes.
//!
//! Owns the record at `tenants/NAME`, its changes by compare-and-swap, and the watch by which a node's scheduler hears
//! of them ([`Work`](super::Work)). Must not: know who uses what, or decide who is next.
//!
//! Invariants: what this node goes by is what was in the store at one revision, which only grows; a tenant without a
//! record has the defaults. A record that cannot be read changes nothing: what was known before goes on to count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmrun_control::records::{self, Form, Record, RecordError, TENANTS};
use wasmrun_control::{Changes, ControlStore, Entry, Error, Event, Revision, Watch};
use wasmrun_model::fairness::{Quota, TenantConfig, TenantName, Weight};
use wasmrun_model::resource::{ResourceName, ResourceSet};

use super::watched::{self, Applied, Follow, Next};

/// What an operator has said of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Due {
    #[serde(default)]
    weight: Weight,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    resource_weights: BTreeMap<ResourceName, Weight>,
    #[serde(default)]
    min_share: ResourceSet,
    #[serde(default, skip_serializing_if = "Quota::is_empty")]
    quota: Quota,
}

impl Record for Due {
    // Nodes of two versions read it.
    const FORM: Form = Form::Json;
    const VERSION: u8 = 3;

    fn version(&self) -> u8 {
        // A quota is not to be overlooked: a node that knows none says that it cannot read the record.
        let is_of_version_2 = self.quota
            == Quota {
                max: self.quota.max.clone(),
                max_tasks: self.quota.max_tasks,
                max_waiting: self.quota.max_waiting,
                ..Quota::default()
            };
        match (self.quota.is_empty(), is_of_version_2) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => Self::VERSION,
        }
    }
}

impl From<TenantConfig> for Due {
    fn from(config: TenantConfig) -> Self {
        Self {
            weight: config.weight,
            resource_weights: config.resource_weights,
            min_share: config.min_share,
            quota: config.quota,
        }
    }
}

impl From<Due> for TenantConfig {
    fn from(due: Due) -> Self {
        Self {
            weight: due.weight,
            resource_weights: due.resource_weights,
            min_share: due.min_share,
            quota: due.quota,
        }
    }
}

/// Why what a tenant is due could not be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TenantsError {
    /// The store did not do it, or has not said whether it did.
    #[error(transparent)]
    Store(#[from] Error),
    /// What is there cannot be read.
    #[error(
        "what is set for tenant '{tenant}' cannot be read; `wasmrun tenant remove {tenant}` takes it away"
    )]
    Record {
        /// The tenant.
        tenant: TenantName,
        /// Why not.
        source: RecordError,
    },
    /// There is nothing to take away.
    #[error(
        "nothing is set for tenant '{0}', so it has weight 1, no minimum and no quota of its own; `wasmrun tenant list` shows \
         all"
    )]
    Unset(TenantName),
}

/// What tenants are due, as the store has it.
#[derive(Debug)]
pub(crate) struct Tenants {
    store: Arc<dyn ControlStore>,
    /// As of when this node goes by it.
    applied: Applied,
}

impl Tenants {
    pub(super) fn new(store: Arc<dyn ControlStore>) -> Self {
        Self {
            store,
            applied: Applied::default(),
        }
    }

    /// Changes what a tenant is due, for all nodes. What it is from now on; this node goes by it, unless the store has
    /// stopped answering just now.
    ///
    /// # Errors
    /// When the store does not do it, and when it has not said whether it did: to try again is right.
    pub(crate) async fn change(
        &self,
        tenant: &TenantName,
        change: impl Fn(TenantConfig) -> TenantConfig,
    ) -> Result<TenantConfig, TenantsError> {
        let mut config = TenantConfig::default();
        let change = |entry: Option<&Entry>, _: bool| {
            let before = entry.map(|entry| Due::from_value(&entry.value));
            let before = before.transpose().map_err(|source| TenantsError::Record {
                tenant: tenant.clone(),
                source,
            })?;
            config = change(before.clone().map(Into::into).unwrap_or_default());
            let due = Due::from(config.clone());
            // It may be so already, perhaps by an attempt of ours that was not answered.
            Ok(match before.as_ref() == Some(&due) {
                true => Next::Stays,
                false => Next::Put(due.to_value()),
            })
        };
        let key = records::tenant(tenant);
        watched::swap::<TenantsError>(&*self.store, &self.applied, key, change).await?;
        Ok(config)
    }

    /// Gives a tenant back what it is due by default, for all nodes.
    ///
    /// # Errors
    /// As of [`change`](Self::change), and when nothing is set.
    pub(crate) async fn remove(&self, tenant: &TenantName) -> Result<(), TenantsError> {
        let key = records::tenant(tenant);
        let go = |entry: Option<&Entry>, is_doubtful: bool| match entry {
            Some(_) => Ok(Next::Goes),
            // It may have been us.
            None if is_doubtful => Ok(Next::Stays),
            None => Err(TenantsError::Unset(tenant.clone())),
        };
        watched::swap(&*self.store, &self.applied, key, go).await
    }
}

/// Who is told what a tenant is due.
pub(super) type Tell = Box<dyn Fn(TenantName, TenantConfig) + Send + Sync>;

/// Tells somebody what is in the store.
pub(super) struct Follower {
    tenants: Arc<Tenants>,
    tell: Tell,
    /// Those with a record, as far as was told.
    set: BTreeSet<TenantName>,
}

impl Follower {
    /// Tells what is there, and begins to watch it.
    ///
    /// # Errors
    /// When the store does not say.
    pub(super) async fn begin(tenants: Arc<Tenants>, tell: Tell) -> Result<(Self, Watch), Error> {
        let mut follower = Self {
            tenants,
            tell,
            set: BTreeSet::new(),
        };
        let watch = watched::begin(&mut follower).await?;
        Ok((follower, watch))
    }

    fn put(&mut self, entry: &Entry) {
        let Some(tenant) = tenant_of(&entry.key) else {
            return;
        };
        match Due::from_value(&entry.value) {
            Ok(due) => {
                tracing::debug!(%tenant, weight = %due.weight, min = %due.min_share, "what a tenant is due");
                self.set.insert(tenant.clone());
                (self.tell)(tenant, due.into());
            }
            Err(error) => {
                tracing::warn!(%tenant, %error, "what is set for a tenant cannot be read, and does not count");
            }
        }
    }

    fn remove(&mut self, tenant: TenantName) {
        if self.set.remove(&tenant) {
            tracing::debug!(%tenant, "a tenant has its defaults again");
            (self.tell)(tenant, TenantConfig::default());
        }
    }
}

impl Follow for Follower {
    const PREFIX: &'static str = TENANTS;
    const WHAT: &'static str = "what tenants are due";

    fn store(&self) -> &dyn ControlStore {
        self.tenants.store.as_ref()
    }

    fn all(&mut self, entries: &[Entry], revision: Revision) {
        let there = entries.iter().filter_map(|entry| tenant_of(&entry.key));
        let there: BTreeSet<TenantName> = there.collect();
        let gone: Vec<TenantName> = self.set.difference(&there).cloned().collect();
        for tenant in gone {
            self.remove(tenant);
        }
        for entry in entries {
            self.put(entry);
        }
        self.tenants.applied.set(revision);
    }

    fn changed(&mut self, changes: Changes) {
        for event in changes.events {
            match event {
                Event::Put(entry) => self.put(&entry),
                Event::Delete { key } => {
                    if let Some(tenant) = tenant_of(&key) {
                        self.remove(tenant);
                    }
                }
            }
        }
        self.tenants.applied.set(changes.revision);
    }
}

fn tenant_of(key: &[u8]) -> Option<TenantName> {
    let name = key.strip_prefix(TENANTS.as_bytes())?;
    let tenant = std::str::from_utf8(name).ok()?.parse();
    if let Err(error) = &tenant {
        tracing::warn!(%error, "something is set for a tenant that there cannot be");
    }
    tenant.ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parking_lot::Mutex;
    use wasmrun_control::{Embedded, EmbeddedConfig};
    use wasmrun_model::resource::Amount;

    use super::*;

    fn clock() -> Arc<dyn wasmrun_control::Clock> {
        Arc::new(wasmrun_control::MonotonicClock::default())
    }

    #[test]
    fn a_record_has_these_bytes_and_reads_as_it_was_written() {
        let json = r#"{"weight": "2.5", "min_share": {"CPU": 2, "memory": "4GiB"}}"#;
        let config: TenantConfig = serde_json::from_str(json).unwrap();
        let due = Due::from(config.clone());
        let value = due.to_value();
        let text = r#"{"weight":"2.5","min_share":{"CPU":"2","memory":"4294967296"}}"#;
        assert_eq!(&value[..2], b"j\x01");
        assert_eq!(std::str::from_utf8(&value[2..]).unwrap(), text);
        assert_eq!(TenantConfig::from(Due::from_value(&value).unwrap()), config);
        let quota = Quota {
            max: [(ResourceName::CPU, Amount::units(8))].into(),
            max_tasks: Some(10),
            ..Quota::default()
        };
        let bounded = TenantConfig { quota, ..config };
        let value = Due::from(bounded.clone()).to_value();
        let text = r#""quota":{"max":{"CPU":"8"},"max_tasks":10,"max_waiting":null,"max_objects":null,"max_detached":null,"no_preempt":false}}"#;
        assert_eq!(&value[..2], b"j\x02", "who knows no quotas cannot read it");
        let found = std::str::from_utf8(&value[2..]).unwrap();
        assert!(found.ends_with(text), "{found}");
        let read = TenantConfig::from(Due::from_value(&value).unwrap());
        assert_eq!(read, bounded);
        let mut newer = bounded;
        newer.quota.max_objects = Some(1);
        let value = Due::from(newer.clone()).to_value();
        assert_eq!(&value[..2], b"j\x03", "nor who knows none of objects");
        let read = TenantConfig::from(Due::from_value(&value).unwrap());
        assert_eq!(read, newer);
        let json = r#"{"resource_weights": {"GPU": "4"}}"#;
        let config: TenantConfig = serde_json::from_str(json).unwrap();
        let value = Due::from(config.clone()).to_value();
        assert_eq!(TenantConfig::from(Due::from_value(&value).unwrap()), config);
        // What a later version adds is skipped, what is left out is the default.
        let later = Due::from_value(b"j\x01{\"weight\":\"3\",\"max\":1}").unwrap();
        assert_eq!(later.weight.to_string(), "3");
        assert!(later.min_share.is_empty());
        for bad in [&b"j\x01{\"weight\":0}"[..], b"j\x04{}", b"x"] {
            assert!(Due::from_value(bad).is_err());
        }
    }

    type TenantLog = Arc<Mutex<BTreeMap<TenantName, TenantConfig>>>;

    fn name(text: &str) -> TenantName {
        text.parse().unwrap()
    }

    fn weighing(weight: &str) -> TenantConfig {
        TenantConfig {
            weight: weight.parse().unwrap(),
            ..TenantConfig::default()
        }
    }

    async fn store(dir: &tempfile::TempDir) -> Arc<Embedded> {
        let config = EmbeddedConfig::default();
        Embedded::open(dir.path(), config).await.unwrap()
    }

    /// One who keeps what is told last.
    fn listener() -> (TenantLog, Tell) {
        let told = TenantLog::default();
        let tell = {
            let told = told.clone();
            move |tenant, config| drop(told.lock().insert(tenant, config))
        };
        (told, Box::new(tell))
    }

    #[tokio::test]
    async fn whoever_changes_it_goes_by_it_and_so_do_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir).await;
        // Two nodes.
        let [here, there] = [(); 2].map(|()| Arc::new(Tenants::new(store.clone())));
        let mut listeners = Vec::new();
        for tenants in [&here, &there] {
            let (told, tell) = listener();
            let (follower, watch) = Follower::begin(tenants.clone(), tell).await.unwrap();
            listeners.push((told, tokio::spawn(watched::run(follower, watch, clock()))));
        }
        let a = name("a");
        let set = here.change(&a, |config| TenantConfig {
            min_share: serde_json::from_str(r#"{"CPU": 2}"#).unwrap(),
            ..config
        });
        let set = set.await.unwrap();
        assert_eq!(listeners[0].0.lock().get(&a), Some(&set));
        // What is not named stays as it is, wherever it is changed.
        let weigh = |config: TenantConfig| TenantConfig {
            weight: "3".parse().unwrap(),
            ..config
        };
        let both = there.change(&a, weigh).await.unwrap();
        assert_eq!(both.min_share, set.min_share);
        assert_eq!(listeners[1].0.lock().get(&a), Some(&both));
        // Nothing is written where nothing changes.
        let before = store.revision().await.unwrap();
        there.change(&a, weigh).await.unwrap();
        assert_eq!(store.revision().await.unwrap(), before);
        here.remove(&a).await.unwrap();
        assert_eq!(
            listeners[0].0.lock().get(&a),
            Some(&TenantConfig::default())
        );
        let again = here.remove(&a).await;
        assert!(matches!(again, Err(TenantsError::Unset(tenant)) if tenant == a));
        for (_, running) in listeners {
            running.abort();
        }
    }

    #[tokio::test]
    async fn changes_at_the_same_time_are_all_made() {
        let dir = tempfile::tempdir().unwrap();
        let tenants = Arc::new(Tenants::new(store(&dir).await));
        let (_, tell) = listener();
        let (follower, watch) = Follower::begin(tenants.clone(), tell).await.unwrap();
        let following = tokio::spawn(watched::run(follower, watch, clock()));
        let one = |resource: String| {
            let tenants = tenants.clone();
            async move {
                let change = |mut config: TenantConfig| {
                    config.min_share.set(resource.parse().unwrap(), Amount::ONE);
                    config
                };
                tenants.change(&name("a"), change).await
            }
        };
        let all = (0..8).map(|number| tokio::spawn(one(format!("r{number}"))));
        let all: Vec<_> = all.collect();
        for changing in all {
            changing.await.unwrap().unwrap();
        }
        let last = tenants.change(&name("a"), |config| config).await.unwrap();
        assert_eq!(last.min_share.len(), 8);
        following.abort();
    }

    #[tokio::test]
    async fn what_was_missed_is_read_anew() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir).await;
        let tenants = Arc::new(Tenants::new(store.clone()));
        let put = async |name: &str, value: Bytes| {
            let key = records::tenant(&name.parse().unwrap());
            store.put(key, value, None).await.unwrap();
        };
        let due = |weight| Due::from(weighing(weight)).to_value();
        for tenant in ["kept", "changed", "removed", "broken"] {
            put(tenant, due("2")).await;
        }
        let (told, tell) = listener();
        let (follower, watch) = Follower::begin(tenants.clone(), tell).await.unwrap();
        assert_eq!(told.lock().len(), 4);
        // Before it is looked at, the changes are gone.
        put("changed", due("3")).await;
        put("broken", Bytes::from_static(b"?")).await;
        store
            .delete(records::tenant(&name("removed")))
            .await
            .unwrap();
        put("new", due("4")).await;
        let last = store.revision().await.unwrap();
        store.compact(last).await.unwrap();
        let following = tokio::spawn(watched::run(follower, watch, clock()));
        tenants.applied.reach(last).await;
        let now = |tenant| told.lock()[&name(tenant)].weight.to_string();
        let seen = ["kept", "changed", "removed", "broken", "new"].map(now);
        // What cannot be read changes nothing.
        assert_eq!(seen, ["2", "3", "1", "2", "4"]);
        let refused = tenants.change(&name("broken"), |config| config).await;
        assert!(matches!(refused, Err(TenantsError::Record { .. })));
        tenants.remove(&name("broken")).await.unwrap();
        assert_eq!(now("broken"), "1");
        following.abort();
    }

    #[test]
    fn a_key_names_its_tenant() {
        let tenant: TenantName = "a.b".parse().unwrap();
        assert_eq!(tenant_of(&records::tenant(&tenant)), Some(tenant));
        for key in [
            &b"tenants/"[..],
            b"tenants/a b",
            b"nodes/a",
            b"tenants/\xff",
        ] {
            assert_eq!(tenant_of(key), None);
        }
    }
}
