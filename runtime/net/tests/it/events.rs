//! Events, and what may be done where one is heard.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use wasmrun_model::id::Incarnation;
use wasmrun_net::{BulkRefusal, BulkSender, Event, Network, Peer, Range, Service};

use crate::harness::{Ask, Cluster, Test, node_id, soon};

/// Forgets the first peer that is there.
struct Forgetful {
    network: Mutex<Option<Network<Test>>>,
    has_lost: watch::Sender<bool>,
}

impl Service<Test> for Forgetful {
    async fn one_way(&self, _: &Peer<Test>, _: Incarnation, _: (u64, Vec<u8>)) {}

    async fn request(&self, _: &Peer<Test>, _: Ask) -> (u64, Vec<u8>) {
        (0, Vec::new())
    }

    async fn bulk(
        &self,
        _: &Peer<Test>,
        _: u8,
        _: Range,
        _: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        Err(BulkRefusal::NotHere)
    }

    fn event(&self, event: Event<Test>) {
        match event {
            Event::Connected { info, .. } => {
                let network = self.network.lock().take();
                if let Some(network) = network {
                    network.forget(info.id);
                }
            }
            Event::Lost { .. } => {
                self.has_lost.send_replace(true);
            }
            Event::Refused { .. } => {}
        }
    }
}

/// Events are told without the locks that `forget` takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_may_be_forgotten_where_it_is_heard_that_it_is_there() {
    let cluster = Cluster::new();
    let other = cluster.node(2);
    let service = Arc::new(Forgetful {
        network: Mutex::default(),
        has_lost: watch::Sender::new(false),
    });
    let network =
        Network::<Test>::start(cluster.node_config(1, 1), service.clone()).expect("a network");
    *service.network.lock() = Some(network.clone());
    network
        .peer(node_id(2), vec![other.address])
        .expect("a peer");
    let mut has_lost = service.has_lost.subscribe();
    soon(has_lost.wait_for(|it| *it)).await.expect("it is told");
    soon(network.close()).await;
}
