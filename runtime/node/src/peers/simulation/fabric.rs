//! The network between simulated nodes.
//!
//! Owns which incarnations of nodes there are and which links are down. What one says to another arrives once, in order,
//! after a while; a link that is down holds it up. Requests get no answer meanwhile, and pulls break.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::random::Random;
use wasmrun_net::{
    Arrived, CallError, LinkHint, Lost, PullError, PullOptions, PullWhy, Range, SendError,
};

use super::super::{Bulk, Exchange, Fabric, OneWay, Request, Response};
use crate::cluster::members::Members;
use crate::guests::shared::Shared;
use crate::peers::Work;

/// An incarnation of a node.
pub(super) type End = (NodeId, Incarnation);

/// What is reached over the network.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) shared: Arc<Shared>,
    pub(super) exchange: Arc<Exchange>,
    pub(super) members: Arc<Members>,
}

#[derive(Default)]
pub(super) struct Network(Mutex<State>);

struct State {
    random: Random,
    places: BTreeMap<NodeId, (Incarnation, Place)>,
    down: BTreeSet<(NodeId, NodeId)>,
    sessions: BTreeMap<(End, End), mpsc::UnboundedSender<Vec<u8>>>,
    trace: Vec<String>,
    is_traced: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            random: Random::new(0),
            places: BTreeMap::new(),
            down: BTreeSet::new(),
            sessions: BTreeMap::new(),
            trace: Vec::new(),
            is_traced: false,
        }
    }
}

impl Network {
    pub(super) fn new(random: Random, is_traced: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            random,
            is_traced,
            ..State::default()
        })))
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        let mut state = self.0.lock();
        let now = tokio::time::Instant::now();
        let line = what();
        if state.is_traced {
            eprintln!("{now:?} {line}");
        }
        state.trace.push(line);
    }

    pub(super) fn take_trace(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().trace)
    }

    /// A number below this.
    pub(super) fn below(&self, bound: usize) -> usize {
        self.0.lock().random.below(bound)
    }

    /// A while between these, in milliseconds.
    pub(super) async fn wait(&self, from_ms: usize, until_ms: usize) {
        let us = 1_000 * from_ms + self.below(1_000 * (until_ms - from_ms) + 1);
        tokio::time::sleep(Duration::from_micros(us as u64)).await;
    }

    pub(super) fn add(&self, (node, incarnation): End, place: Place) {
        self.0.lock().places.insert(node, (incarnation, place));
    }

    /// An incarnation of a node is over. What it was saying is lost.
    pub(super) fn remove(&self, node: NodeId) -> Option<(Incarnation, Place)> {
        let mut state = self.0.lock();
        let (incarnation, place) = state.places.remove(&node)?;
        let over = (node, incarnation);
        state
            .sessions
            .retain(|(from, to), _| *from != over && *to != over);
        drop(state);
        Some((incarnation, place))
    }

    pub(super) fn place(&self, (node, incarnation): End) -> Option<Place> {
        let state = self.0.lock();
        let (there, place) = state.places.get(&node)?;
        (*there == incarnation).then(|| place.clone())
    }

    pub(super) fn alive(&self) -> Vec<(End, Place)> {
        let state = self.0.lock();
        let places = state.places.iter();
        places
            .map(|(node, (incarnation, place))| ((*node, *incarnation), place.clone()))
            .collect()
    }

    pub(super) fn set_down(&self, one: NodeId, other: NodeId, is_down: bool) {
        let link = (one.min(other), one.max(other));
        let mut state = self.0.lock();
        match is_down {
            true => state.down.insert(link),
            false => state.down.remove(&link),
        };
    }

    pub(super) fn is_down(&self, one: NodeId, other: NodeId) -> bool {
        self.0
            .lock()
            .down
            .contains(&(one.min(other), one.max(other)))
    }

    async fn is_up(&self, one: NodeId, other: NodeId) {
        while self.is_down(one, other) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Carries what one incarnation says to another.
    async fn carry(
        this: Weak<Self>,
        from: End,
        to: End,
        mut said: mpsc::UnboundedReceiver<Vec<u8>>,
    ) {
        while let Some(bytes) = said.recv().await {
            let Some(network) = this.upgrade() else {
                return;
            };
            let slow = if network.below(30) == 0 { 400 } else { 10 };
            network.wait(0, slow).await;
            network.is_up(from.0, to.0).await;
            let message: OneWay = postcard::from_bytes(&bytes).expect("as it was written");
            let Some(place) = network.place(to).filter(|_| network.place(from).is_some()) else {
                return;
            };
            network.note(|| {
                let name = format!("{message:?}");
                let end = name.find(['(', ' ']).unwrap_or(name.len());
                format!(
                    "{} to {}: {} of {} bytes",
                    from.0,
                    to.0,
                    &name[..end],
                    bytes.len()
                )
            });
            let tell = |work: &dyn Work| work.one_way(from.0, message);
            place.members.while_alive(from.0, from.1, tell).await;
        }
    }
}

/// A node's ways to the others.
pub(super) struct Lines {
    pub(super) me: Mutex<End>,
    pub(super) network: Arc<Network>,
    pub(super) members: Arc<Members>,
    pub(super) control: Handle,
}

impl Lines {
    fn me(&self) -> End {
        *self.me.lock()
    }

    /// A member, as it is known here, if that is how it is.
    fn there(&self, node: NodeId) -> Option<(End, Option<Place>)> {
        let end = (node, self.members.incarnation(node)?);
        let place = self
            .network
            .place(end)
            .filter(|_| self.network.place(self.me()).is_some());
        Some((
            end,
            place.filter(|_| !self.network.is_down(self.me().0, node)),
        ))
    }
}

#[async_trait]
impl Fabric for Lines {
    async fn send(&self, to: End, message: OneWay) -> Result<(), SendError> {
        let bytes = postcard::to_allocvec(&message).expect("it can be written");
        let me = self.me();
        let mut state = self.network.0.lock();
        let is_there = |(node, incarnation): End| {
            state
                .places
                .get(&node)
                .is_some_and(|it| it.0 == incarnation)
        };
        if !is_there(me) || !is_there(to) {
            return Ok(());
        }
        let network = Arc::downgrade(&self.network);
        let session = state.sessions.entry((me, to)).or_insert_with(|| {
            let (session, said) = mpsc::unbounded_channel();
            self.control.spawn(Network::carry(network, me, to, said));
            session
        });
        let _ = session.send(bytes);
        Ok(())
    }

    async fn request(
        &self,
        to: NodeId,
        request: Request,
        wait: Duration,
    ) -> Result<Response, CallError> {
        let Some((end, place)) = self.there(to) else {
            return Err(CallError::Closed);
        };
        let asked = async {
            self.network.wait(0, 10).await;
            let Some(place) = place else {
                return std::future::pending().await;
            };
            if !place.members.is_alive(self.me().0) {
                return Err(CallError::Busy);
            }
            let response = place.exchange.request(self.me().0, request).await;
            self.network.wait(0, 10).await;
            match self.network.place(end) {
                Some(_) => Ok(response),
                None => std::future::pending().await,
            }
        };
        let state = LinkHint::NotConnected;
        let timed_out = CallError::TimedOut { after: wait, state };
        tokio::time::timeout(wait, asked)
            .await
            .unwrap_or(Err(timed_out))
    }

    async fn pull(
        &self,
        from: NodeId,
        what: &Bulk,
        offset: u64,
        to: &mut [u8],
        _: &PullOptions,
    ) -> Option<Result<Vec<Arrived>, PullError>> {
        let (_, place) = self.there(from)?;
        let range = Range {
            offset,
            len: to.len() as u64,
        };
        self.network.wait(0, 30).await;
        let broken = |why| PullError {
            missing: vec![range],
            arrived: Vec::new(),
            why,
        };
        let Some(place) = place else {
            tokio::time::sleep(Duration::from_secs(2)).await;
            return Some(Err(broken(PullWhy::Lost(Lost::Restarted))));
        };
        let Bulk::Object(object) = what else {
            unreachable!("only objects are pulled");
        };
        let stored = place.shared.store.get(object);
        let view = stored.as_ref().and_then(|it| it.view().ok());
        let argument = place.exchange.argument(object);
        let bytes = match (&view, &argument) {
            (Some(view), _) => &**view,
            (None, Some((argument, _))) => argument.as_ref(),
            (None, None) => {
                let refusal = wasmrun_net::BulkRefusal::NotHere;
                return Some(Err(broken(refusal.into())));
            }
        };
        let start = offset as usize;
        to.copy_from_slice(&bytes[start..start + to.len()]);
        let sum = wasmrun_net::checksum(to);
        Some(Ok(vec![Arrived { range, sum }]))
    }

    async fn pull_whole(&self, _: NodeId, _: Bulk, _: u64) -> Option<Result<Vec<u8>, PullError>> {
        unreachable!("modules are everywhere, and actors have no state")
    }

    fn bulk(&self) -> &Handle {
        &self.control
    }

    fn others(&self) -> Vec<NodeId> {
        self.members.heads_first()
    }

    fn open_nodes(&self) -> Vec<NodeId> {
        self.members.open()
    }

    fn name_of(&self, node: NodeId) -> String {
        let name = self.members.name(node);
        name.map_or_else(|| node.to_string(), |it| it.to_string())
    }

    fn is_leaving(&self) -> bool {
        false
    }

    fn is_confirmed(&self) -> bool {
        true
    }
}
