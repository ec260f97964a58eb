//! Who is in the cluster, as this node knows it now.
//!
//! Owns the table of members and the order in which [`Work`] hears of them: a member is `joined` before any
//! view or message of it and not after it has `left`. Must not: decide who lives; that is `membership`'s.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard, RwLock};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use wasmrun_model::cluster::{Labels, NodeName};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::resource::{Amount, Fit, Request, ResourceName, ResourceSet};
use wasmrun_model::scheduler::{NodeInfo, PeerView};
use wasmrun_model::wire::{Amounts, MemberRow};

use crate::peers::Work;

/// How long a request waits for us to hear that its sender lives.
const ADMISSION: Duration = Duration::from_secs(5);
/// How many that have left are shown.
const REMEMBERED: usize = 64;
/// How many nodes are remembered as dead, so that what they still send is dropped at once.
const MOST_DEAD: usize = 4096;

/// What a node says of itself in the control store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) name: NodeName,
    pub(crate) labels: Labels,
    /// Which incarnation of the node, as its folder counts them: also that of its network.
    #[serde(rename = "life")]
    pub(crate) incarnation: Incarnation,
    /// Where it can be dialled.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether it lets others join.
    pub(crate) is_head: bool,
    /// Whether it is to take no new work.
    pub(crate) is_draining: bool,
    pub(crate) total: Amounts,
    /// The version of wasmrun.
    pub(crate) version: String,
}

impl NodeRecord {
    pub(crate) fn info(&self, id: NodeId) -> NodeInfo {
        NodeInfo {
            id,
            incarnation: self.incarnation,
            name: self.name.clone(),
            labels: self.labels.clone(),
        }
    }
}

/// A member that lives.
#[derive(Debug, Clone)]
struct Member {
    /// Its incarnation, as the control store counts them.
    registered: Incarnation,
    record: NodeRecord,
    since: Instant,
    view: Option<PeerView>,
    /// Whether it cannot be spoken with.
    is_silent: bool,
}

#[derive(Debug, Default)]
struct Table {
    alive: BTreeMap<NodeId, Member>,
    /// Those that left last, and when.
    gone: VecDeque<(NodeId, NodeRecord, Instant)>,
    /// The last incarnation of each that is over.
    dead: BTreeMap<NodeId, Incarnation>,
    /// The incarnations that this node does not see any more since it was cut off.
    unseen: BTreeMap<NodeId, Incarnation>,
}

impl Table {
    /// Removes a member. Its incarnation.
    fn leave(&mut self, node: NodeId) -> Option<Incarnation> {
        let Member { record, .. } = self.alive.remove(&node)?;
        let incarnation = record.incarnation;
        self.gone.push_back((node, record, Instant::now()));
        if self.gone.len() > REMEMBERED {
            self.gone.pop_front();
        }
        Some(incarnation)
    }

    fn note_dead(&mut self, node: NodeId, incarnation: Incarnation) {
        self.dead.insert(node, incarnation);
        if self.dead.len() > MOST_DEAD
            && let Some(other) = self.dead.keys().copied().find(|it| *it != node)
        {
            self.dead.remove(&other);
        }
    }
}

/// What is known of somebody who sends something.
enum Standing {
    Alive(Incarnation),
    /// That incarnation is over.
    Over,
    /// Nothing yet.
    Unknown,
}

/// See the module.
pub(crate) struct Members {
    table: Mutex<Table>,
    /// Held for writing while somebody joins or leaves, for reading while something of a member is told.
    gate: RwLock<()>,
    work: OnceLock<Arc<dyn Work>>,
    /// How many live, ourselves not counted.
    count: watch::Sender<usize>,
}

impl Members {
    pub(crate) fn new() -> Self {
        Self {
            table: Mutex::default(),
            gate: RwLock::default(),
            work: OnceLock::new(),
            count: watch::Sender::new(0),
        }
    }

    pub(crate) fn set_work(&self, work: Arc<dyn Work>) {
        assert!(self.work.set(work).is_ok(), "a node has one work");
    }

    pub(crate) fn work(&self) -> Option<&Arc<dyn Work>> {
        self.work.get()
    }

    /// How many live besides us, to wait for changes. Also said when one changes its incarnation.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    fn standing(&self, node: NodeId, incarnation: Option<Incarnation>) -> Standing {
        let table = self.table.lock();
        let known = table
            .alive
            .get(&node)
            .map(|member| member.record.incarnation);
        let is_dead = |incarnation| {
            table
                .dead
                .get(&node)
                .is_some_and(|dead| *dead >= incarnation)
        };
        match (known, incarnation) {
            (Some(known), None) => Standing::Alive(known),
            (Some(known), Some(incarnation)) if known == incarnation => {
                Standing::Alive(incarnation)
            }
            (Some(known), Some(incarnation)) if known > incarnation => Standing::Over,
            (None, Some(incarnation)) if is_dead(incarnation) => Standing::Over,
            (_, _) => Standing::Unknown,
        }
    }

    /// The incarnation of a member that sends a request, once it is known to live. `None` if that is not known soon.
    pub(crate) async fn admitted_soon(
        &self,
        node: NodeId,
        incarnation: Option<Incarnation>,
    ) -> Option<Incarnation> {
        let admitted = tokio::time::timeout(ADMISSION, self.admitted(node, incarnation));
        admitted.await.ok().flatten()
    }

    /// The incarnation of a member that sends a message, once it is known to live, however long that takes: its messages
    /// wait meanwhile. `None` if that incarnation is over.
    pub(crate) async fn admitted(
        &self,
        node: NodeId,
        incarnation: Option<Incarnation>,
    ) -> Option<Incarnation> {
        // As for nearly all messages: there is nothing to wait for.
        if let (Standing::Alive(incarnation), Some(_)) =
            (self.standing(node, incarnation), self.work())
        {
            return Some(incarnation);
        }
        let mut changed = self.count.subscribe();
        loop {
            match self.standing(node, incarnation) {
                Standing::Alive(incarnation) if self.work().is_some() => return Some(incarnation),
                Standing::Over => return None,
                Standing::Alive(_) | Standing::Unknown => {}
            }
            changed.changed().await.ok()?;
        }
    }

    /// Tells the work something of a member, as soon as that incarnation is known to live, and never if it is over.
    pub(crate) async fn while_alive(
        &self,
        node: NodeId,
        incarnation: Incarnation,
        tell: impl FnOnce(&dyn Work),
    ) {
        while self.admitted(node, Some(incarnation)).await.is_some() {
            let _open = self.gate.read();
            // It may have left since.
            if let (Standing::Alive(_), Some(work)) =
                (self.standing(node, Some(incarnation)), self.work())
            {
                return tell(work.as_ref());
            }
        }
        tracing::debug!(peer = %node, %incarnation, "a message of an incarnation that is over is dropped");
    }

    /// A member's view of itself, by whatever way it came. Older ones than the last are dropped.
    pub(crate) fn view(&self, node: NodeId, incarnation: Incarnation, view: PeerView) {
        let _open = self.gate.read();
        let mut table = self.table.lock();
        let Some(member) = table.alive.get_mut(&node) else {
            return;
        };
        let last = member.view.as_ref().map_or(0, |view| view.version);
        let is_first = member.view.is_none();
        if member.record.incarnation != incarnation || view.version <= last {
            return;
        }
        member.view = Some(view.clone());
        let info = member.record.info(node);
        let (is_draining, is_silent) = (member.record.is_draining, member.is_silent);
        drop(table);
        if let Some(work) = self.work() {
            work.view(info, view);
            if is_first && is_silent {
                work.set_reachable(node, false);
            }
            // Before its first view the scheduler does not know it.
            if is_first && is_draining {
                work.set_draining(node, true);
            }
        }
    }

    /// A member lives.
    pub(crate) fn join(&self, node: NodeId, registered: Incarnation, record: NodeRecord) {
        let _closed = self.gate.write();
        let info = record.info(node);
        let member = Member {
            registered,
            record,
            since: Instant::now(),
            view: None,
            is_silent: false,
        };
        let mut table = self.table.lock();
        table.alive.insert(node, member);
        table.unseen.remove(&node);
        table.gone.retain(|(gone, ..)| *gone != node);
        let count = table.alive.len();
        drop(table);
        if let Some(work) = self.work() {
            work.joined(&info);
        }
        self.count.send_replace(count);
    }

    /// Whether a member that lives cannot be spoken with.
    pub(crate) fn silent(&self, node: NodeId, is_silent: bool) {
        let _open = self.gate.read();
        let mut table = self.table.lock();
        let Some(member) = table.alive.get_mut(&node) else {
            return;
        };
        if std::mem::replace(&mut member.is_silent, is_silent) == is_silent {
            return;
        }
        let name = member.record.name.clone();
        drop(table);
        match is_silent {
            true => {
                tracing::warn!(node = %name, "it does not answer, or does not take what is said to it, and counts as alive: its new work goes elsewhere")
            }
            false => tracing::info!(node = %name, "it answers again"),
        }
        if let Some(work) = self.work() {
            work.set_reachable(node, !is_silent);
        }
    }

    /// A member's record has changed within its incarnation.
    pub(crate) fn amend(&self, node: NodeId, record: NodeRecord) {
        let _closed = self.gate.write();
        let mut table = self.table.lock();
        let Some(member) = table.alive.get_mut(&node) else {
            return;
        };
        let is_draining = record.is_draining;
        let was_draining = std::mem::replace(&mut member.record, record).is_draining;
        drop(table);
        if is_draining != was_draining
            && let Some(work) = self.work()
        {
            work.set_draining(node, is_draining);
        }
    }

    /// A member does not live any more, nor will that incarnation of it again. Which one that was.
    pub(crate) fn leave(&self, node: NodeId) -> Option<Incarnation> {
        let _closed = self.gate.write();
        let mut table = self.table.lock();
        let incarnation = table.leave(node)?;
        table.note_dead(node, incarnation);
        self.have_left(table, &[(node, incarnation)], true);
        Some(incarnation)
    }

    /// This node was cut off from all members: they may live, and it cannot know that.
    pub(crate) fn lose_sight(&self) {
        let _closed = self.gate.write();
        let mut table = self.table.lock();
        let nodes: Vec<NodeId> = table.alive.keys().copied().collect();
        let incarnations = nodes.into_iter().filter_map(|node| {
            let incarnation = table.leave(node)?;
            table.unseen.insert(node, incarnation);
            Some((node, incarnation))
        });
        let incarnations: Vec<_> = incarnations.collect();
        self.have_left(table, &incarnations, false);
    }

    /// The work hears of those who were taken out of the table, while the gate is closed.
    fn have_left(
        &self,
        table: MutexGuard<'_, Table>,
        incarnations: &[(NodeId, Incarnation)],
        is_over: bool,
    ) {
        let count = table.alive.len();
        drop(table);
        if let Some(work) = self.work() {
            work.left(incarnations, is_over);
        }
        self.count.send_replace(count);
    }

    /// All members are known again: who is not among them died while this node was cut off.
    pub(crate) fn give_up_unseen(&self) {
        let _closed = self.gate.write();
        let mut table = self.table.lock();
        let unseen = std::mem::take(&mut table.unseen);
        let unseen: Vec<_> = unseen.into_iter().collect();
        for (node, incarnation) in &unseen {
            table.note_dead(*node, *incarnation);
        }
        let count = table.alive.len();
        drop(table);
        if let Some(work) = self.work()
            && !unseen.is_empty()
        {
            work.left(&unseen, true);
        }
        // Their messages may wait.
        self.count.send_replace(count);
    }

    /// The incarnations of all that live, as they are registered.
    pub(crate) fn registered(&self) -> BTreeMap<NodeId, Incarnation> {
        let table = self.table.lock();
        let alive = table.alive.iter();
        alive.map(|(id, it)| (*id, it.registered)).collect()
    }

    /// Who lives besides us.
    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.table.lock().alive.keys().copied().collect()
    }

    /// Who lives besides us, those first that let others join.
    pub(crate) fn heads_first(&self) -> Vec<NodeId> {
        let table = self.table.lock();
        let heads = table.alive.iter().filter(|(_, it)| it.record.is_head);
        let others = table.alive.iter().filter(|(_, it)| !it.record.is_head);
        heads.chain(others).map(|(id, _)| *id).collect()
    }

    /// Who lives besides us, answers, and is not drained.
    pub(crate) fn open(&self) -> Vec<NodeId> {
        let table = self.table.lock();
        let open = table
            .alive
            .iter()
            .filter(|(_, it)| !it.is_silent && !it.record.is_draining);
        open.map(|(id, _)| *id).collect()
    }

    /// Those of [`open`](Self::open) that have free what is asked for by the last that they have said, those first that have
    /// the most CPU; all of them where nothing is asked for.
    pub(crate) fn with_room(&self, request: Option<&Request>) -> Vec<NodeId> {
        let table = self.table.lock();
        let open = table.alive.iter().filter_map(|(id, it)| {
            let view = it.view.as_ref()?;
            let resources = &view.resources;
            let has_room = request.is_none_or(|it| resources.judge(it) == Fit::Available);
            let is_open = !it.is_silent && !it.record.is_draining;
            let free = resources.free(&ResourceName::CPU);
            let free = free.map_or(Amount::ZERO, |free| free.available());
            (is_open && has_room).then_some((free, *id))
        });
        let mut open: Vec<(Amount, NodeId)> = open.collect();
        open.sort_by_key(|(free, id)| (std::cmp::Reverse(*free), *id));
        open.into_iter().map(|(_, id)| id).collect()
    }

    /// What a member that lives is called.
    pub(crate) fn name(&self, node: NodeId) -> Option<NodeName> {
        let table = self.table.lock();
        let alive = table.alive.get(&node).map(|member| &member.record);
        let left = || table.gone.iter().rev().find(|(id, ..)| *id == node);
        let record = alive.or_else(|| left().map(|(_, record, _)| record));
        record.map(|record| record.name.clone())
    }

    pub(crate) fn is_alive(&self, node: NodeId) -> bool {
        self.table.lock().alive.contains_key(&node)
    }

    /// In which incarnation a member is.
    pub(crate) fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        let table = self.table.lock();
        table
            .alive
            .get(&node)
            .map(|member| member.record.incarnation)
    }

    /// The head, as far as is known.
    pub(crate) fn head(&self) -> Option<NodeId> {
        let table = self.table.lock();
        let mut alive = table.alive.iter();
        alive.find(|(_, it)| it.record.is_head).map(|(id, _)| *id)
    }

    /// Where one can join, as far as is known.
    pub(crate) fn head_addresses(&self) -> Option<Vec<SocketAddr>> {
        let table = self.table.lock();
        let head = table.alive.values().find(|it| it.record.is_head)?;
        Some(head.record.addresses.clone())
    }

    /// All that live and those that left last. `is_connected` says whether there is a connection.
    pub(crate) fn rows(&self, is_connected: impl Fn(NodeId) -> bool) -> Vec<MemberRow> {
        let table = self.table.lock();
        let alive = table.alive.iter().map(|(id, member)| {
            let state = match () {
                () if member.is_silent || !is_connected(*id) => "unreachable",
                () if member.record.is_draining => "draining",
                () => "alive",
            };
            let resources = member.view.as_ref().map(|it| &it.resources);
            let resources = resources.map(|it| (it.total(), it.available()));
            row(*id, &member.record, state, member.since, resources)
        });
        let mut rows: Vec<_> = alive.collect();
        let gone = table.gone.iter();
        rows.extend(gone.map(|(id, record, since)| row(*id, record, "dead", *since, None)));
        rows
    }
}

/// A node as lists show it. `resources`: what it has and what of that is free, where it has told; else it has what it
/// began with.
pub(crate) fn row(
    id: NodeId,
    record: &NodeRecord,
    state: &str,
    since: Instant,
    resources: Option<(ResourceSet, ResourceSet)>,
) -> MemberRow {
    let amounts =
        |set: ResourceSet| -> Amounts { set.iter().map(|(name, it)| (name.clone(), it)).collect() };
    let (total, available) = match resources {
        Some((total, free)) => (amounts(total), amounts(free)),
        None => (record.total.clone(), Amounts::new()),
    };
    MemberRow {
        name: record.name.to_string(),
        id,
        state: state.to_owned(),
        incarnation: record.incarnation.0,
        address: record.addresses.first().copied(),
        is_head: record.is_head,
        is_own: false,
        total,
        available,
        since_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
        version: record.version.clone(),
    }
}

#[cfg(test)]
mod tests;
