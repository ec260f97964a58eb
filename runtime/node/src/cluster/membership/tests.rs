//! Names of nodes in a real control store, in which leases end at the worst of times.

use std::fmt;

use parking_lot::Mutex;
use wasmrun_control::{Embedded, EmbeddedConfig, Lease, Page, Range, Revision, TxnReply, Watch};

use super::*;

const ME: NodeId = NodeId::from_bytes([1; 16]);
const OTHER: NodeId = NodeId::from_bytes([2; 16]);
const TTL: Duration = Duration::from_secs(30);

/// A store in which a lease ends right after the first transaction.
struct Lapsing {
    store: Arc<Embedded>,
    ending: Mutex<Option<LeaseId>>,
}

impl fmt::Debug for Lapsing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ControlStore for Lapsing {
    async fn get(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        self.store.get(key).await
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        self.store.range(range).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnReply, Error> {
        let reply = self.store.txn(txn).await;
        let ending = self.ending.lock().take();
        if let Some(lease) = ending {
            self.store.revoke(lease).await?;
        }
        reply
    }

    async fn watch(&self, prefix: &[u8], from: Revision) -> Result<Watch, Error> {
        self.store.watch(prefix, from).await
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, Error> {
        self.store.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error> {
        self.store.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        self.store.revoke(lease).await
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        self.store.compact(through).await
    }
}

/// What comes of claiming a name that this node has from an earlier incarnation, or another node has, whose lease ends
/// after the first look at it or not at all.
async fn claimed(by: NodeId, ends: bool) -> Result<NodeName, ClusterError> {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), EmbeddedConfig::default()).await;
    let store = store.unwrap();
    let before = store.grant(TTL).await.unwrap();
    let name: NodeName = "c".parse().unwrap();
    let put = Op::put_leased(records::node_name(&name), by.to_string(), before.id);
    store.txn(Txn::of([put])).await.unwrap();
    let lease = store.grant(TTL).await.unwrap();
    let keeper = LeaseKeeper::new(store.clone(), lease);
    let lapsing = Lapsing {
        store,
        ending: Mutex::new(ends.then_some(before.id)),
    };
    claim_name(&lapsing, ME, &keeper, &name, false).await
}

#[tokio::test]
async fn a_name_is_had_again_whenever_the_lease_of_before_ends() {
    for ends in [false, true] {
        let name = claimed(ME, ends).await;
        assert_eq!(name.expect("it is ours").as_str(), "c", "ends: {ends}");
    }
    assert!(matches!(
        claimed(OTHER, false).await,
        Err(ClusterError::Name(_))
    ));
}
