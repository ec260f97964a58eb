//! What goes beyond one store: members of a cluster and leases that are kept, on the embedded store; and
//! servers that are away, which only etcd and links have.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wasmrun_control::etcd::{Etcd, EtcdConfig, EtcdConfigError, EtcdTls};
use wasmrun_control::membership::register;
use wasmrun_control::remote::{
    EventLink, Link, LinkError, Remote, RemoteConfig, Request, Response, WatchRequest,
};
use wasmrun_control::{ClientId, ControlStore, Error, Health, LeaseKeeper, Revision, records};
use wasmrun_model::id::{Incarnation, NodeId};

use crate::Harness;
use crate::embedded::InFolder;
use crate::etcd::Server;

const NODE: NodeId = NodeId::from_bytes([7; 16]);

#[tokio::test]
async fn each_incarnation_of_a_node_is_another() {
    let harness = InFolder::new().await;
    let store = harness.store();
    let lease = store.grant(Duration::from_secs(60)).await.unwrap().id;
    let store = store.as_ref();
    let one = register(store, NODE, lease, "a".to_owned()).await.unwrap();
    // It comes back before its lease has ended.
    let two = register(store, NODE, lease, "a".to_owned()).await.unwrap();
    assert_eq!((one, two), (Incarnation(1), Incarnation(2)));
    let three = register(store, NODE, lease, "a".to_owned()).await.unwrap();
    assert_eq!(three, Incarnation(3));
    store.revoke(lease).await.unwrap();
    assert_eq!(store.get(&records::node(NODE)).await, Ok(None));
    let lost = register(store, NODE, lease, "a".to_owned()).await;
    assert_eq!(lost, Err(Error::LeaseLost { lease }.into()));
}

#[tokio::test]
async fn a_kept_lease_lives_until_it_is_revoked() {
    let harness = InFolder::new().await;
    let store = harness.store();
    let lease = store.grant(Duration::from_secs(1)).await.unwrap();
    store
        .put("k".into(), "".into(), Some(lease.id))
        .await
        .unwrap();
    let keeper = LeaseKeeper::new(Arc::clone(&store), lease);
    let mut health = keeper.watch();
    let mut watch = store.watch(b"k", Revision::ZERO).await.unwrap();
    let long = Duration::from_secs(3);
    assert!(tokio::time::timeout(long, watch.next()).await.is_err());
    assert_eq!(keeper.health(), Health::Confirmed);
    store.revoke(lease.id).await.unwrap();
    health
        .wait_for(|health| *health == Health::Lost)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_in_etcd_survives_that_etcd_is_away() {
    let Some(mut server) = Server::start().await else {
        return;
    };
    let store: Arc<dyn ControlStore> = Arc::new(Etcd::new(&server.config()).unwrap());
    let lease = store.grant(Duration::from_secs(3)).await.unwrap();
    store
        .put("k".into(), "v".into(), Some(lease.id))
        .await
        .unwrap();
    let keeper = LeaseKeeper::new(Arc::clone(&store), lease);
    let mut health = keeper.watch();
    server.kill();
    // Longer than its time to live: we cannot be sure of it, and then we are again.
    health
        .wait_for(|health| *health == Health::Unconfirmed)
        .await
        .unwrap();
    server.start_again().await;
    health
        .wait_for(|health| *health == Health::Confirmed)
        .await
        .unwrap();
    assert_eq!(
        store.get(b"k").await.unwrap().unwrap().lease,
        Some(lease.id)
    );
}

#[tokio::test]
async fn the_first_etcd_server_that_answers_is_used_and_no_answer_is_said() {
    let nobody = "http://127.0.0.1:1";
    let mut config = EtcdConfig::new([nobody], "test");
    config.patience = Duration::from_millis(300);
    let store = Etcd::new(&config).unwrap();
    let error = store.put("k".into(), "v".into(), None).await.unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, Error::Unavailable { .. }), "{said}");
    assert!(
        said.contains(nobody) && said.contains("nothing was changed"),
        "{said}"
    );

    let Some(server) = Server::start().await else {
        return;
    };
    let config = EtcdConfig {
        endpoints: vec![nobody.into(), server.config().endpoints[0].clone()],
        ..server.config()
    };
    let store = Etcd::new(&config).unwrap();
    store.put("k".into(), "v".into(), None).await.unwrap();
    // Another cluster in the same etcd sees none of it.
    let config = EtcdConfig {
        prefix: "/wasmrun/other/".to_owned(),
        ..config
    };
    assert_eq!(Etcd::new(&config).unwrap().get(b"k").await, Ok(None));
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let refused = |config: &EtcdConfig| Etcd::new(config).unwrap_err();
    let none = EtcdConfig::new(Vec::<String>::new(), "c");
    assert!(matches!(refused(&none), EtcdConfigError::NoEndpoints));
    for bad in ["127.0.0.1:2379", "ftp://a", "http://"] {
        let error = refused(&EtcdConfig::new([bad], "c"));
        assert!(
            matches!(error, EtcdConfigError::Endpoint { .. }),
            "{bad}: {error}"
        );
    }
    let mut config = EtcdConfig::new(["https://a:1"], "c");
    assert!(matches!(refused(&config), EtcdConfigError::NoCa { .. }));
    config.tls = EtcdTls {
        ca: Some("no certificate".into()),
        identity: None,
    };
    config.user = Some(("me".into(), "secret".into()));
    let shown = format!("{config:?} {:?}", Etcd::new(&config));
    assert!(!shown.contains("secret"), "{shown}");
}

/// A link on which nothing ever comes back.
#[derive(Debug)]
struct Silent {
    is_unsent: bool,
}

#[async_trait]
impl Link for Silent {
    async fn call(&self, request: Request) -> Result<Response, LinkError> {
        let is_unsent = self.is_unsent;
        match request {
            Request::Change(None, _) => Ok(Response::Answer(wasmrun_control::Answer::Done)),
            _ => Err(LinkError {
                why: "nobody".to_owned(),
                is_unsent,
            }),
        }
    }

    async fn watch(&self, _: WatchRequest) -> Result<Box<dyn EventLink>, LinkError> {
        Err(LinkError::unsent("nobody"))
    }
}

#[tokio::test]
async fn what_may_have_been_done_is_told_from_what_was_not() {
    let remote = |is_unsent| {
        let config = RemoteConfig {
            patience: Duration::from_millis(100),
            attempt: Duration::from_millis(50),
        };
        Remote::new(Arc::new(Silent { is_unsent }), ClientId([1; 16]), config)
    };
    let put = |store: Remote| async move { store.put("k".into(), "v".into(), None).await };
    assert!(matches!(
        put(remote(true)).await,
        Err(Error::Unavailable { .. })
    ));
    assert!(matches!(
        put(remote(false)).await,
        Err(Error::Uncertain { .. })
    ));
    let read = remote(false).get(b"k").await;
    assert!(matches!(read, Err(Error::Unavailable { .. })));
}
