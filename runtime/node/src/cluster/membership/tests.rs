//! Names of nodes in a real control store, in which leases end at the worst of times.

use parking_lot::Mutex;
use wasmrun_control::{Embedded, EmbeddedConfig, TxnReply};

use super::super::faulty::{Faulty, Transact};
use super::*;

const ME: NodeId = NodeId::from_bytes([1; 16]);
const OTHER: NodeId = NodeId::from_bytes([2; 16]);
const TTL: Duration = Duration::from_secs(30);

/// This lease ends right after the first transaction.
struct Lapsing(Mutex<Option<LeaseId>>);

#[async_trait]
impl Transact for Lapsing {
    async fn txn(&self, store: &Embedded, txn: Txn) -> Result<TxnReply, Error> {
        let reply = store.txn(txn).await;
        let ending = self.0.lock().take();
        if let Some(lease) = ending {
            store.revoke(lease).await?;
        }
        reply
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
    let way = Lapsing(Mutex::new(ends.then_some(before.id)));
    let lapsing = Faulty { store, way };
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
