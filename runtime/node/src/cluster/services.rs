//! HTTP services of the cluster, in the control store: what every node is to serve.
//!
//! Owns the record of each, its changes, the watch by which a node hears of them, and sealing the keys of their certificates.
//! Must not: serve anything; that is the server's.
//!
//! A service has one record, and no owner: each node serves what has one. So there is nothing to adopt when a node is lost.
//! Invariant: a record that cannot be read changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use wasmrun_control::records::{self, Form, Record, RecordError, SERVICES};
use wasmrun_control::{Changes, ControlStore, Entry, Error, Event, Revision, Watch};
use wasmrun_model::fairness::{NoPlace, TenantName, check_place};
use wasmrun_model::id::NodeId;
use wasmrun_model::resource::Request;
use wasmrun_model::wire::{Bytes, Serve};
use wasmrun_net::{ByteStream, ConnectError, KeyId, Sealed, SecretKey};

use super::Cluster;
use super::watched::{self, Applied, Follow, Next};
use crate::guests::secrets::SecretError;
use crate::records::submitted;

/// The most bytes of a record.
const MOST_BYTES: usize = 256 << 10;
/// How many services a cluster has at most.
const MOST_SERVICES: usize = 256;

/// A tenant and the name of a service of it.
pub(crate) type ServiceKey = (TenantName, String);

/// All services of the cluster.
pub(crate) type Wanted = Arc<BTreeMap<ServiceKey, Arc<ServiceRecord>>>;

/// A service that every node serves. An older wasmrun would misread another field: that raises [`Record::VERSION`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServiceRecord {
    pub(crate) tenant: TenantName,
    /// With TLS, the private key is sealed: [`Cluster::seal_key`].
    #[serde(with = "submitted::Serve")]
    pub(crate) serve: Serve,
    /// How long the module is.
    pub(crate) module_bytes: u64,
    /// How often the name was given, since it was free: 1 for the first module.
    pub(crate) generation: u64,
    /// Who has started it, for people.
    pub(crate) by: String,
    /// It is to end, and how long requests under way may take, in milliseconds.
    pub(crate) ending_ms: Option<u64>,
}

impl Record for ServiceRecord {
    const FORM: Form = Form::Postcard;
    const VERSION: u8 = 1;
}

impl ServiceRecord {
    fn key(&self) -> ServiceKey {
        (self.tenant.clone(), self.serve.name.clone())
    }

    /// One of this name and module.
    #[cfg(test)]
    pub(crate) fn for_test(name: &str, module: u8) -> Self {
        use wasmrun_model::id::Digest;
        use wasmrun_model::wire::{Grants, Limits, Listen, Terms};

        Self {
            tenant: "t".parse().unwrap(),
            serve: Serve {
                name: name.into(),
                module: Digest::from_bytes([module; 32]),
                routes: Vec::new(),
                address: Listen::Advertised(300),
                tls: None,
                hosts: Vec::new(),
                most_running: 1,
                most_waiting: 2,
                patience_ms: 3,
                terms: Terms::default(),
                limits: Limits::default(),
                grants: Grants::default(),
                is_detached: true,
            },
            module_bytes: 4,
            generation: 5,
            by: "b".into(),
            ending_ms: None,
        }
    }
}

/// Why a service could not be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServicesError {
    /// The store did not do it, or has not said whether it did.
    #[error(transparent)]
    Store(#[from] Error),
    /// What is there cannot be read.
    #[error("the record of the service cannot be read: {0}; `wasmrun service stop` removes it")]
    Record(RecordError),
    /// There is one that this cannot take the place of.
    #[error("{0}")]
    Unfit(String),
    /// It has too many options.
    #[error(
        "the record of the service would have {0} bytes, and {most} are kept at most: give it fewer routes, variables or \
         certificates",
        most = MOST_BYTES
    )]
    TooLarge(usize),
    /// There is no key of the cluster for its private key.
    #[error("the private key of the service: {0}")]
    Key(SecretError),
    /// No key of the cluster opens its private key.
    #[error(
        "the private key of the service cannot be read: it was sealed with another key than the cluster has now, or was altered; \
         restore secrets.key at the head from a backup, or serve it again with --tls-cert and --tls-key"
    )]
    Sealed,
    /// There are too many.
    #[error("a cluster has at most {most} services, and {0}: stop one first", most = MOST_SERVICES)]
    TooMany(NoPlace),
}

/// What the store has.
pub(crate) struct Services {
    store: Arc<dyn ControlStore>,
    /// As of when this node goes by it.
    applied: Applied,
    wanted: watch::Sender<Wanted>,
}

impl Services {
    pub(super) fn new(store: Arc<dyn ControlStore>) -> Self {
        Self {
            store,
            applied: Applied::default(),
            wanted: watch::Sender::new(Wanted::default()),
        }
    }

    /// All of them, and their changes.
    pub(crate) fn wanted(&self) -> watch::Receiver<Wanted> {
        self.wanted.subscribe()
    }

    /// One of them, as far as this node knows.
    #[cfg(test)]
    fn get(&self, key: &ServiceKey) -> Option<Arc<ServiceRecord>> {
        self.wanted.borrow().get(key).cloned()
    }

    /// Has every node serve this, in place of what has the name if `may_replace` says so. Its generation.
    ///
    /// # Errors
    /// When it may not, and when the store does not do it.
    pub(crate) async fn publish(
        &self,
        mut record: ServiceRecord,
        may_replace: impl Fn(&ServiceRecord) -> Result<(), String>,
    ) -> Result<u64, ServicesError> {
        let bytes = record.to_value().len();
        if bytes > MOST_BYTES {
            return Err(ServicesError::TooLarge(bytes));
        }
        let key = record.key();
        self.check_place(&key)?;
        let mut generation = 1;
        let change = |entry: Option<&Entry>, _: bool| {
            if let Some(before) = read(entry)? {
                if before.ending_ms.is_none() {
                    may_replace(&before).map_err(ServicesError::Unfit)?;
                    // As at nodes that have it already, also at those that come later.
                    record.serve.hosts.clone_from(&before.serve.hosts);
                    record.serve.most_running = before.serve.most_running;
                    record.serve.most_waiting = before.serve.most_waiting;
                    record.serve.patience_ms = before.serve.patience_ms;
                }
                generation = before.generation + 1;
            }
            record.generation = generation;
            Ok(Next::Put(record.to_value()))
        };
        let key = records::service(&key.0, &key.1);
        watched::swap::<ServicesError>(&*self.store, &self.applied, key, change).await?;
        Ok(generation)
    }

    /// Whether there is a place for it, or it has one.
    fn check_place(&self, key: &ServiceKey) -> Result<(), ServicesError> {
        let wanted = self.wanted.borrow().clone();
        if wanted.contains_key(key) {
            return Ok(());
        }
        let mut counts = BTreeMap::<_, usize>::new();
        for (tenant, _) in wanted.keys() {
            *counts.entry(tenant.clone()).or_default() += 1;
        }
        check_place(MOST_SERVICES, &counts, &key.0).map_err(ServicesError::TooMany)
    }

    /// Has every node end a service, whose requests may take so long. False if there is none.
    ///
    /// # Errors
    /// When the store does not do it.
    pub(crate) async fn end(
        &self,
        (tenant, name): &ServiceKey,
        ending_ms: u64,
    ) -> Result<bool, ServicesError> {
        let mut is_there = false;
        let change = |entry: Option<&Entry>, _: bool| {
            is_there = entry.is_some();
            Ok(match read(entry) {
                Ok(None) => Next::Stays,
                Ok(Some(mut record)) => {
                    record.ending_ms = Some(ending_ms);
                    Next::Put(record.to_value())
                }
                // Nobody serves what cannot be read.
                Err(_) => Next::Goes,
            })
        };
        let key = records::service(tenant, name);
        watched::swap::<ServicesError>(&*self.store, &self.applied, key, change).await?;
        Ok(is_there)
    }

    /// Frees the name of a service that has ended, unless it was given again.
    ///
    /// # Errors
    /// When the store does not do it.
    pub(crate) async fn remove(&self, (tenant, name): &ServiceKey) -> Result<(), ServicesError> {
        let change = |entry: Option<&Entry>, _: bool| {
            let is_over = read(entry)?.is_some_and(|it| it.ending_ms.is_some());
            Ok(if is_over { Next::Goes } else { Next::Stays })
        };
        let key = records::service(tenant, name);
        watched::swap::<ServicesError>(&*self.store, &self.applied, key, change).await
    }
}

/// The private keys of certificates.
impl Cluster {
    /// What a record has in place of the private key of a service: nodes alone can open it.
    ///
    /// # Errors
    /// When the cluster's key is not to be had.
    pub(crate) async fn seal_key(
        &self,
        service: &ServiceKey,
        key: &Bytes,
    ) -> Result<Bytes, ServicesError> {
        let sealed = self.seal(&bound(service), &key.0).await;
        Ok(encoded(&sealed.map_err(ServicesError::Key)?))
    }

    /// The private key of a service, of what its record has.
    ///
    /// # Errors
    /// When the cluster's key is not to be had, or another one has sealed it.
    pub(crate) async fn open_key(
        &self,
        service: &ServiceKey,
        sealed: &Bytes,
    ) -> Result<Bytes, ServicesError> {
        let sealed: Sealed = postcard::from_bytes(&sealed.0).map_err(|_| ServicesError::Sealed)?;
        let opened = self.unseal(&bound(service), &sealed).await;
        let plain = opened.map_err(ServicesError::Key)?;
        let plain = plain.ok_or(ServicesError::Sealed)?;
        Ok(Bytes(plain.to_vec()))
    }
}

/// A service with a private key, and which key has sealed that.
pub(super) fn sealed_by(entry: &Entry) -> Option<(ServiceRecord, KeyId)> {
    let record = read(Some(entry)).ok()??;
    let by = record.sealed()?.key();
    Some((record, by))
}

impl ServiceRecord {
    fn sealed(&self) -> Option<Sealed> {
        let (_, sealed) = self.serve.tls.as_ref()?;
        postcard::from_bytes(&sealed.0).ok()
    }

    /// With its private key sealed by another key than before. None if the one before does not open it.
    pub(super) fn resealed(mut self, (before, key): (&SecretKey, &SecretKey)) -> Option<Self> {
        let name = bound(&self.key());
        let plain = before.open(&name, &self.sealed()?)?;
        let (_, sealed) = self.serve.tls.as_mut()?;
        *sealed = encoded(&key.seal(&name, &plain));
        Some(self)
    }
}

fn encoded(sealed: &Sealed) -> Bytes {
    Bytes(postcard::to_stdvec(sealed).expect("it is numbers and bytes"))
}

/// What a private key is bound to. The name of a tenant has no space, nor has what a secret is bound to.
fn bound((tenant, name): &ServiceKey) -> String {
    format!("service {tenant} {name}")
}

/// The way of a request to another node.
impl Cluster {
    /// Who could take a request of a service that asks for this, if it asks for anything: the best first.
    pub(crate) fn with_room(&self, request: Option<&Request>) -> Vec<NodeId> {
        self.members.with_room(request)
    }

    /// A stream to a member that lives.
    pub(crate) async fn open(&self, node: NodeId) -> Result<ByteStream, ConnectError> {
        let peer = self.peer(node).ok_or(ConnectError::Closed)?;
        peer.open().await
    }
}

fn read(entry: Option<&Entry>) -> Result<Option<ServiceRecord>, ServicesError> {
    let record = entry.map(|entry| ServiceRecord::from_value(&entry.value));
    record.transpose().map_err(ServicesError::Record)
}

/// Follows what is in the store.
pub(super) struct Follower {
    services: Arc<Services>,
    /// By their keys in the store.
    records: BTreeMap<bytes::Bytes, Arc<ServiceRecord>>,
}

impl Follower {
    /// Reads what is there, and begins to watch it.
    ///
    /// # Errors
    /// When the store does not say.
    pub(super) async fn begin(services: Arc<Services>) -> Result<(Self, Watch), Error> {
        let mut follower = Self {
            services,
            records: BTreeMap::new(),
        };
        let watch = watched::begin(&mut follower).await?;
        Ok((follower, watch))
    }

    fn put(&mut self, entry: &Entry) {
        match ServiceRecord::from_value(&entry.value) {
            Ok(record) => drop(self.records.insert(entry.key.clone(), Arc::new(record))),
            Err(error) => {
                tracing::warn!(%error, "the record of a service cannot be read, and does not count");
            }
        }
    }

    fn tell(&self, revision: Revision) {
        let records = self.records.values();
        let all = records.map(|record| (record.key(), record.clone()));
        self.services.wanted.send_replace(Arc::new(all.collect()));
        self.services.applied.set(revision);
    }
}

impl Follow for Follower {
    const PREFIX: &'static str = SERVICES;
    const WHAT: &'static str = "services";

    fn store(&self) -> &dyn ControlStore {
        self.services.store.as_ref()
    }

    fn all(&mut self, entries: &[Entry], revision: Revision) {
        self.records
            .retain(|key, _| entries.iter().any(|entry| entry.key == *key));
        for entry in entries {
            self.put(entry);
        }
        self.tell(revision);
    }

    fn changed(&mut self, changes: Changes) {
        for event in changes.events {
            match event {
                Event::Put(entry) => self.put(&entry),
                Event::Delete { key } => drop(self.records.remove(&key)),
            }
        }
        self.tell(changes.revision);
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_control::{Embedded, EmbeddedConfig, MonotonicClock};
    use wasmrun_net::SecretKey;

    use super::*;

    fn record(module: u8) -> ServiceRecord {
        ServiceRecord {
            ending_ms: Some(6),
            ..ServiceRecord::for_test("s", module)
        }
    }

    #[test]
    fn a_record_begins_with_these_bytes_and_reads_as_it_was_written() {
        let value = record(9).to_value();
        assert_eq!(value[..6], *b"p\x01\x01t\x01s");
        assert_eq!(value[value.len() - 6..], *b"\x04\x05\x01b\x01\x06");
        assert_eq!(ServiceRecord::from_value(&value).unwrap(), record(9));
        assert!(ServiceRecord::from_value(b"p\x02").is_err());
    }

    #[test]
    fn a_private_key_opens_for_its_own_service_alone() {
        let service =
            |tenant: &str, name: &str| -> ServiceKey { (tenant.parse().unwrap(), name.to_owned()) };
        let key = SecretKey::generate();
        let own = bound(&service("a", "b c"));
        let sealed = key.seal(&own, b"pem");
        assert!(key.open(&own, &sealed).is_some());
        for (tenant, name) in [("a", "b"), ("b", "b c"), ("a/b", "c"), ("a", "c")] {
            let other = bound(&service(tenant, name));
            assert!(key.open(&other, &sealed).is_none(), "{other}");
        }
        // Another key takes its place.
        let mut before = record(1);
        before.serve.tls = Some((
            Bytes(b"cert".to_vec()),
            encoded(&key.seal(&bound(&before.key()), b"pem")),
        ));
        let next = SecretKey::generate();
        assert!(before.clone().resealed((&next, &next)).is_none());
        let after = before.resealed((&key, &next)).unwrap();
        let sealed = after.sealed().unwrap();
        assert_eq!(sealed.key(), next.id());
        let opened = next.open(&bound(&after.key()), &sealed).unwrap();
        assert_eq!(opened[..], *b"pem");
    }

    #[tokio::test]
    async fn each_node_hears_of_what_is_published_replaced_and_ended_at_any() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), EmbeddedConfig::default());
        let store = store.await.unwrap();
        let [here, there] = [(); 2].map(|()| Arc::new(Services::new(store.clone())));
        for services in [&here, &there] {
            let (follower, watch) = Follower::begin(services.clone()).await.unwrap();
            let clock = Arc::new(MonotonicClock::default());
            tokio::spawn(watched::run(follower, watch, clock));
        }
        let key = record(1).key();
        let new = |module| ServiceRecord {
            ending_ms: None,
            ..record(module)
        };
        let mut heard = there.wanted();
        assert_eq!(here.publish(new(1), |_| Ok(())).await.unwrap(), 1);
        let is_first = |it: &Wanted| it.get(&key).is_some_and(|it| it.generation == 1);
        heard.wait_for(is_first).await.unwrap();
        let refused = there.publish(new(2), |_| Err("no".into())).await;
        assert!(matches!(refused, Err(ServicesError::Unfit(_))));
        let mut second = new(2);
        second.serve.hosts = vec!["shop".into()];
        second.serve.most_waiting = 9;
        assert_eq!(there.publish(second, |_| Ok(())).await.unwrap(), 2);
        // What no node changes is as it was, also for those that come later.
        let serve = there.get(&key).unwrap().serve.clone();
        assert_eq!(serve, new(2).serve);
        // One that lives keeps its name.
        there.remove(&key).await.unwrap();
        assert_eq!(there.get(&key).unwrap().serve.module, new(2).serve.module);
        assert!(there.end(&key, 7).await.unwrap());
        assert_eq!(there.get(&key).unwrap().ending_ms, Some(7));
        there.remove(&key).await.unwrap();
        assert_eq!(there.get(&key), None);
        assert!(!there.end(&key, 7).await.unwrap());
    }

    #[tokio::test]
    async fn a_tenant_leaves_services_for_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), EmbeddedConfig::default());
        let services = Services::new(store.await.unwrap());
        let all = (0..192).map(|at| {
            let mut record = record(1);
            record.serve.name = format!("s{at}");
            (record.key(), Arc::new(record))
        });
        services.wanted.send_replace(Arc::new(all.collect()));
        let refused = services.publish(record(1), |_| Ok(())).await;
        let error = refused.expect_err("it has three quarters");
        assert!(matches!(&error, ServicesError::TooMany(full) if full.most == 192));
        assert!(error.to_string().contains("'t' has 192"), "{error}");
        // What is there is replaced, and others have theirs.
        let key =
            |tenant: &str, name: &str| -> ServiceKey { (tenant.parse().unwrap(), name.to_owned()) };
        for key in [key("t", "s0"), key("other", "s")] {
            services.check_place(&key).unwrap();
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_not_served_and_can_be_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), EmbeddedConfig::default());
        let store = store.await.unwrap();
        let key = record(1).key();
        let place = records::service(&key.0, &key.1);
        let broken = bytes::Bytes::from_static(b"?");
        store.put(place, broken, None).await.unwrap();
        let services = Arc::new(Services::new(store.clone()));
        let (follower, watch) = Follower::begin(services.clone()).await.unwrap();
        let clock = Arc::new(MonotonicClock::default());
        tokio::spawn(watched::run(follower, watch, clock));
        assert_eq!(services.get(&key), None);
        let refused = services.publish(record(1), |_| Ok(())).await;
        assert!(matches!(refused, Err(ServicesError::Record(_))));
        assert!(services.end(&key, 1).await.unwrap());
        assert_eq!(services.publish(record(1), |_| Ok(())).await.unwrap(), 1);
    }
}
