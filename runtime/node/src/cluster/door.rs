//! What becomes of what peers send: the network's service.
//!
//! Owns who may say what: anybody with a node's certificate may use our control store, if we have one; about
//! work we listen only to members that live, and they alone get the key of secrets. A message that comes before we have heard that its sender
//! lives waits until we know that it does, or that it does not any more; a request waits only for a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use wasmrun_control::remote::{Server, Session as StoreSession};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_net::{
    BulkRefusal, BulkSender, ByteStream, ConnectError, Event, Peer, Range, Service, Session,
};

use super::clock::now_s;
use super::link;
use super::members::Members;
use super::protocol::{ClusterProtocol, OneWay, Request, Response};
use super::secrets::Keys;
use super::views::Views;
use crate::audit::{Audit, Entry, Outcome};
use crate::peers::{self, Work};

/// Where peers come in.
pub(super) struct Door {
    members: Arc<Members>,
    views: Arc<Views>,
    /// The key of secrets, for others.
    keys: Arc<Keys>,
    /// Our control store, for others.
    server: Option<Server>,
    sessions: Mutex<BTreeMap<NodeId, StoreSession>>,
    /// Who serves clients, once somebody does.
    clients: Mutex<Option<Weak<dyn Clients>>>,
    audit: Arc<Audit>,
}

/// Who serves clients of other machines, and their requests.
pub(crate) trait Clients: Send + Sync {
    /// Serves one to its end. May be dropped before.
    fn serve(self: Arc<Self>, session: Session) -> BoxFuture<'static, ()>;

    /// Takes a request of a service that another node passes on.
    fn take(self: Arc<Self>, stream: ByteStream) -> BoxFuture<'static, ()>;
}

impl Door {
    pub(super) fn new(
        members: Arc<Members>,
        views: Arc<Views>,
        keys: Arc<Keys>,
        server: Option<Server>,
        audit: Arc<Audit>,
    ) -> Self {
        Self {
            members,
            views,
            keys,
            server,
            sessions: Mutex::default(),
            clients: Mutex::default(),
            audit,
        }
    }

    pub(super) fn serve_clients(&self, clients: Weak<dyn Clients>) {
        *self.clients.lock() = Some(clients);
    }

    /// What a node has under way with our control store.
    fn store_session(&self, from: &Peer<ClusterProtocol>) -> Option<StoreSession> {
        let server = self.server.as_ref()?;
        let mut sessions = self.sessions.lock();
        Some(
            sessions
                .entry(from.id())
                .or_insert_with(|| server.session())
                .clone(),
        )
    }

    /// The member that asks for something, once it is known to live.
    async fn asking(&self, from: &Peer<ClusterProtocol>) -> Option<NodeId> {
        let node = from.id();
        // If the connection is lost by now, whoever it was is who we know.
        let incarnation = from.incarnation();
        self.members.admitted_soon(node, incarnation).await?;
        Some(node)
    }
}

impl Service<ClusterProtocol> for Door {
    async fn one_way(
        &self,
        from: &Peer<ClusterProtocol>,
        incarnation: Incarnation,
        message: OneWay,
    ) {
        let node = from.id();
        match message {
            OneWay::Work(message) => {
                let tell = |work: &dyn Work| work.one_way(node, message);
                self.members.while_alive(node, incarnation, tell).await;
            }
            OneWay::View(message) => {
                if self
                    .members
                    .admitted(node, Some(incarnation))
                    .await
                    .is_some()
                {
                    self.views.heard(node, *message);
                }
            }
        }
    }

    async fn request(&self, from: &Peer<ClusterProtocol>, request: Request) -> Response {
        match request {
            Request::Work(request) => match (self.asking(from).await, self.members.work()) {
                (Some(node), Some(work)) => Response::Work(work.request(node, request).await),
                _ => Response::NotMember,
            },
            Request::Control(request) => match self.store_session(from) {
                Some(session) => Response::Control(session.answer(request).await),
                None => Response::NoStore,
            },
            Request::Watch { watch, is_first } => match self.store_session(from) {
                Some(session) => link::poll(&session, watch, is_first).await,
                None => Response::NoStore,
            },
            Request::Clock => Response::Clock(now_s()),
            Request::SecretKey => match self.asking(from).await {
                Some(node) => Response::SecretKey(self.keys.own().unwrap_or_else(|error| {
                    tracing::warn!(%node, %error, "a node wants the key of secrets, and it is not to be had");
                    None
                })),
                None => Response::NotMember,
            },
        }
    }

    async fn bulk(
        &self,
        from: &Peer<ClusterProtocol>,
        request: peers::Bulk,
        range: Range,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        match (self.asking(from).await, self.members.work()) {
            (Some(node), Some(work)) => work.bulk(node, request, range, to).await,
            // It is not said whether it is here. One that others count as dead hears that soon, and must not take what it
            // owns for lost before.
            _ => Err(BulkRefusal::Busy),
        }
    }

    async fn stream(&self, from: &Peer<ClusterProtocol>, stream: ByteStream) {
        let clients = self.clients.lock().as_ref().and_then(Weak::upgrade);
        if let (Some(_), Some(clients)) = (self.asking(from).await, clients) {
            clients.take(stream).await;
        }
    }

    async fn session(&self, session: Session) {
        let clients = self.clients.lock().as_ref().and_then(Weak::upgrade);
        match clients {
            Some(clients) => clients.serve(session).await,
            None => session.turn_away(),
        }
    }

    fn event(&self, event: Event<ClusterProtocol>) {
        match event {
            Event::Lost { id, .. } => {
                // What it asks next counts anew.
                self.sessions.lock().remove(&id);
            }
            Event::Refused { from, why } if is_turned_away(&why) => {
                self.audit.add_stranger(Entry {
                    outcome: Outcome::Refused {
                        kind: "certificate".to_owned(),
                        why: why.to_string(),
                    },
                    ..Entry::new("unknown".to_owned(), from.to_string(), "connect")
                });
            }
            Event::Refused { .. } | Event::Connected { .. } => {}
        }
    }
}

/// Whether somebody was not let in because of who it is, and not because of the network between.
fn is_turned_away(why: &ConnectError) -> bool {
    matches!(
        why,
        ConnectError::Untrusted { .. }
            | ConnectError::NotValidNow { .. }
            | ConnectError::WeRefuse { .. }
    )
}
