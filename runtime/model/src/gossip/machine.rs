//! The machine: what happens goes in, what is to be sent and to be known comes out.
//!
//! Owns when views are published, passed on and compared, and the answers to messages. Must not: know what
//! is in a view.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;

use super::deck::Deck;
use super::message::{Message, Update, ViewVersion};
use super::publish::Publisher;
use super::table::{Table, Taken};
use super::{
    ASK_AGAIN, COMPARE_AFTER_JOIN, COMPARE_AFTER_REPAIR, COMPARE_EVERY, DIRECT_PEERS,
    MAX_ANSWER_BYTES, MAX_KNOWN, MAX_MESSAGE_BYTES, MAX_UPDATES, MAX_VERSION, ROUND,
};
use crate::id::{Incarnation, NodeId};
use crate::random::Random;
use crate::scheduler::{NodeInfo, PeerView};
use crate::time::Instant;

/// What happens. What is stale changes nothing.
#[derive(Debug)]
pub enum Input {
    /// A node is a member: its lease says so. A later incarnation takes the place of an earlier one.
    Joined {
        /// The node.
        node: NodeId,
        /// Which incarnation of it.
        incarnation: Incarnation,
    },
    /// A node is no member any more. That incarnation never joins again.
    Left {
        /// The node.
        node: NodeId,
        /// Which incarnation of it, or a later one.
        incarnation: Incarnation,
    },
    /// What this node has and does. The version is set here, whatever it is. Cheap to repeat, but to make a
    /// view costs its maker something: more often than each 20 ms is of no use.
    OwnView {
        /// Who it is.
        node: NodeInfo,
        /// What it has and does.
        view: Box<PeerView>,
    },
    /// A node says something. It is who it says it is: the connection has made sure of that.
    Message {
        /// Which one.
        from: NodeId,
        /// What.
        message: Message,
    },
    /// Nothing has happened but time.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send this, or drop it if it cannot be sent now.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// A member has a view that is newer than all before.
    View {
        /// Who it is.
        node: NodeInfo,
        /// What it has and does.
        view: Box<PeerView>,
    },
}

/// What has happened so far, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Views of its own that this node has published.
    pub published: u64,
    /// Views of others that were newer than what was known.
    pub taken: u64,
    /// Updates that said nothing new.
    pub duplicates: u64,
    /// Updates and messages about, or from, incarnations that are not members.
    pub strangers: u64,
    /// Updates and messages that made no sense.
    pub malformed: u64,
    /// Comparisons with a peer that showed a difference.
    pub differing: u64,
    /// Own views that were too long: tenants were left out, or they were not published.
    pub too_long: u64,
}

/// How a node of a cluster hears what the others have and do, and they of it.
#[derive(Debug)]
pub struct Gossip {
    own: NodeId,
    now: Instant,
    table: Table,
    publisher: Publisher,
    /// What is to be passed on in the next round, and who is known to have it.
    news: BTreeMap<NodeId, SmallVec<[NodeId; 4]>>,
    /// No round before.
    next_round: Instant,
    compare_at: Instant,
    compare_every: Duration,
    news_deck: Deck,
    compare_deck: Deck,
    random: Random,
    outputs: VecDeque<Output>,
    stats: Stats,
}

impl Gossip {
    /// A node without members. The seed should differ from node to node and from incarnation to incarnation.
    pub fn new(now: Instant, own: NodeId, incarnation: Incarnation, seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            own,
            now,
            table: Table::new(own, incarnation),
            publisher: Publisher::default(),
            news: BTreeMap::new(),
            next_round: now,
            compare_at: now,
            compare_every: COMPARE_EVERY,
            news_deck: Deck::new(random.split()),
            compare_deck: Deck::new(random.split()),
            random,
            outputs: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Takes in what has happened. Time never goes back; an earlier one counts as the latest.
    ///
    /// # Panics
    /// If an own view is of another node.
    pub fn handle(&mut self, now: Instant, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Joined { node, incarnation } => self.joined(node, incarnation),
            Input::Left { node, incarnation } => self.left(node, incarnation),
            Input::OwnView { node, view } => {
                assert_eq!(node.id, self.own, "a view of another node");
                self.publisher.set(node, *view);
            }
            Input::Message { from, message } => {
                if from == self.own || self.table.get(from).is_none() {
                    self.stats.strangers += 1;
                } else {
                    self.message(from, message);
                }
            }
            Input::Tick => {}
        }
        self.act();
    }

    /// What is to be done next; call it until there is nothing.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with [`Input::Tick`], if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let peers = self.table.peers();
        let compare = (peers > 0).then_some(self.compare_at);
        let publish = self.publisher.due(peers);
        let times = [compare, publish, self.round_at()];
        times.into_iter().flatten().min()
    }

    /// Which view of a member is known; `None` if it is no member. Version 0 if none is.
    pub fn version_of(&self, node: NodeId) -> Option<ViewVersion> {
        self.table.version_of(node)
    }

    /// What has happened so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Checks what must hold between inputs; for the tests.
    pub(super) fn check(&self) {
        self.table.check();
        let are_peers = |deck: &Deck| {
            let mut peers = deck.peers().to_vec();
            peers.sort_unstable();
            let others = self.table.ids().filter(|node| *node != self.own);
            others.eq(peers)
        };
        assert!(are_peers(&self.news_deck) && are_peers(&self.compare_deck));
        let is_held = |node: &NodeId| self.table.news(*node).is_some();
        assert!(self.news.keys().all(is_held), "news without a view");
    }

    fn joined(&mut self, node: NodeId, incarnation: Incarnation) {
        if node == self.own || !self.table.join(node, incarnation) {
            return;
        }
        self.news.remove(&node);
        self.news_deck.remove(node);
        self.compare_deck.remove(node);
        self.news_deck.add(node);
        self.compare_deck.add(node);
        let peers = self.table.peers() as u64;
        let soon = Duration::from_millis(peers).clamp(COMPARE_AFTER_JOIN, COMPARE_EVERY / 2);
        self.compare_soon(soon);
    }

    fn left(&mut self, node: NodeId, incarnation: Incarnation) {
        let known = self.table.get(node);
        if node == self.own || known.is_none_or(|known| known.incarnation > incarnation) {
            return;
        }
        self.table.remove(node);
        self.news.remove(&node);
        self.news_deck.remove(node);
        self.compare_deck.remove(node);
    }

    fn message(&mut self, from: NodeId, message: Message) {
        match message {
            Message::News(updates) if updates.len() <= MAX_UPDATES => {
                let mut wants = Vec::new();
                for update in updates {
                    self.update(from, update, true, &mut wants);
                }
                self.answer(from, Vec::new(), wants);
            }
            Message::Compare(theirs) => {
                let Some(nodes) = self.table.differing(&theirs, &mut self.random) else {
                    self.stats.malformed += 1;
                    return;
                };
                self.digest(from, nodes);
            }
            Message::Digest(theirs) if theirs.len() <= MAX_KNOWN => self.compare(from, &theirs),
            Message::Repair { updates, wants }
                if updates.len() <= MAX_UPDATES && wants.len() <= MAX_KNOWN =>
            {
                let mut lacking = Vec::new();
                let taken = self.stats.taken;
                for update in updates {
                    self.update(from, update, false, &mut lacking);
                }
                if self.stats.taken > taken {
                    self.compare_soon(COMPARE_AFTER_REPAIR);
                }
                let newer = wants.iter().filter_map(|wanted| self.newer_than(wanted));
                let newer = newer.collect();
                self.answer(from, newer, lacking);
            }
            Message::News(_) | Message::Digest(_) | Message::Repair { .. } => {
                self.stats.malformed += 1;
            }
        }
    }

    /// Takes in what a peer says of a member.
    fn update(
        &mut self,
        from: NodeId,
        update: Update,
        is_news: bool,
        wants: &mut Vec<ViewVersion>,
    ) {
        let (id, version) = (update.node, update.version);
        let was_held = self
            .table
            .get(id)
            .is_some_and(|member| member.held.is_some());
        match self.table.take(update, is_news.then_some(self.now)) {
            Taken::Newer { node, view } => {
                self.stats.taken += 1;
                self.outputs.push_back(Output::View { node, view });
                // Whoever gets to know a member by asking others is new itself: they have heard of it.
                let is_told = is_news || was_held || from == id;
                self.news.remove(&id);
                if is_told && self.table.peers() > DIRECT_PEERS {
                    self.news.insert(id, SmallVec::from_slice(&[from, id]));
                }
            }
            Taken::Known => {
                self.stats.duplicates += 1;
                if let Some(heard) = self.news.get_mut(&id)
                    && !heard.contains(&from)
                {
                    heard.push(from);
                }
            }
            Taken::Older => self.stats.duplicates += 1,
            Taken::Own => self.publisher.outdo(version),
            Taken::LacksInfo => {
                let now = self.now;
                let member = self.table.get_mut(id).expect("a member");
                let asked_at = member.asked_at;
                if wants.len() < MAX_KNOWN
                    && asked_at.is_none_or(|asked| now.since(asked) >= ASK_AGAIN)
                {
                    member.asked_at = Some(now);
                    wants.extend(self.table.version_of(id));
                }
            }
            Taken::NoMember => self.stats.strangers += 1,
            Taken::Malformed => self.stats.malformed += 1,
        }
    }

    /// Tells a peer what is known of these nodes. What is new spreads by itself and is left out.
    fn digest(&mut self, to: NodeId, nodes: Vec<NodeId>) {
        if nodes.is_empty() {
            return;
        }
        self.stats.differing += 1;
        let settled = nodes
            .into_iter()
            .filter(|node| !self.table.is_spreading(*node, self.now));
        let known = settled.filter_map(|node| self.table.version_of(node));
        let known: Vec<_> = known.take(MAX_KNOWN).collect();
        if !known.is_empty() {
            self.send(to, Message::Digest(known));
        }
    }

    /// Finds out who knows more of what is in a digest.
    fn compare(&mut self, from: NodeId, theirs: &[ViewVersion]) {
        let mut updates = Vec::new();
        let mut wants = Vec::new();
        for theirs in theirs {
            let Some(ours) = self.table.version_of(theirs.node) else {
                continue;
            };
            if ours.incarnation != theirs.incarnation || theirs.version > MAX_VERSION {
                continue;
            }
            if theirs.node == self.own {
                self.publisher.outdo(theirs.version);
            }
            if theirs.version > ours.version && theirs.node != self.own {
                wants.push(ours);
            } else if !self.table.is_spreading(theirs.node, self.now) {
                updates.extend(self.newer_than(theirs));
            }
        }
        self.answer(from, updates, wants);
    }

    fn newer_than(&self, theirs: &ViewVersion) -> Option<Update> {
        let ours = self.table.version_of(theirs.node)?;
        let is_newer = ours.incarnation == theirs.incarnation && ours.version > theirs.version;
        let update = || self.table.update(theirs.node, theirs.info_version);
        is_newer.then(update).flatten()
    }

    /// Sends a repair, if there is anything to repair, in as many messages as it takes.
    fn answer(&mut self, to: NodeId, mut updates: Vec<Update>, mut wants: Vec<ViewVersion>) {
        let mut bytes = 0;
        let is_short = |update: &Update| {
            bytes += update.encoded_bytes();
            bytes <= MAX_ANSWER_BYTES
        };
        let fitting = updates
            .iter()
            .map(is_short)
            .take_while(|fits| *fits)
            .count();
        // One goes in any case: else one that is too long would never.
        updates.truncate(fitting.max(1));
        if updates.is_empty() && !wants.is_empty() {
            return self.send(to, Message::Repair { updates, wants });
        }
        for updates in split(updates) {
            let wants = std::mem::take(&mut wants);
            self.send(to, Message::Repair { updates, wants });
        }
    }

    fn send(&mut self, to: NodeId, message: Message) {
        self.outputs.push_back(Output::Send { to, message });
    }

    /// Compares again soon, and then less and less often.
    fn compare_soon(&mut self, soon: Duration) {
        self.compare_every = self.compare_every.min(soon);
        let at = self.now + self.jittered(soon);
        self.compare_at = self.compare_at.min(at);
    }

    /// Up to an eighth more or less, so that nodes that began together part.
    fn jittered(&mut self, about: Duration) -> Duration {
        let eighth = about / 8;
        let more = self.random.below(2 * eighth.as_micros() as usize + 1);
        about - eighth + Duration::from_micros(more as u64)
    }

    /// When what was heard is passed on.
    fn round_at(&self) -> Option<Instant> {
        (!self.news.is_empty()).then_some(self.next_round)
    }

    /// Does what is due.
    fn act(&mut self) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        let publishes = is_due(self.publisher.due(self.table.peers()));
        let passes_on = is_due(self.round_at());
        let compares = self.table.peers() > 0 && self.compare_at <= self.now;
        if publishes {
            self.publish();
        }
        if passes_on {
            self.pass_on();
        }
        if compares {
            self.compare_with_one();
        }
    }

    /// Tells a few peers, or all if there are few, what is new of this node.
    fn publish(&mut self) {
        let Some((held, left_out)) = self.publisher.publish(self.now) else {
            self.stats.too_long += 1;
            return;
        };
        self.stats.too_long += u64::from(left_out > 0);
        self.stats.published += 1;
        self.table.hold(self.own, held);
        let peers = self.table.peers();
        let wanted = peers.min(DIRECT_PEERS);
        let mut to: SmallVec<[NodeId; DIRECT_PEERS]> = SmallVec::new();
        if peers <= DIRECT_PEERS {
            to.extend(self.table.ids().filter(|node| *node != self.own));
        } else {
            to.extend(self.table.neighbours().into_iter().flatten());
        }
        while to.len() < wanted {
            let drawn = self.news_deck.draw().expect("there are peers");
            if !to.contains(&drawn) {
                to.push(drawn);
            }
        }
        for to in to {
            let news = self.table.news(self.own).expect("it was just published");
            self.send(to, Message::News(vec![news]));
        }
    }

    /// Tells the neighbours and one other peer what was heard since the last round.
    fn pass_on(&mut self) {
        // Rounds in step would make all news wait for a whole one at every hop: what is passed on arrives
        // just after the round of whoever hears it. So they are half to one and a half times as long.
        let more = self.random.below(ROUND.as_micros() as usize) as u64;
        self.next_round = self.now + ROUND / 2 + Duration::from_micros(more);
        let mut to: SmallVec<[NodeId; 3]> = SmallVec::new();
        to.extend(self.table.neighbours().into_iter().flatten());
        to.extend(self.news_deck.draw());
        to.sort_unstable();
        to.dedup();
        let news = std::mem::take(&mut self.news);
        for to in to {
            let lacking = news.iter().filter(|(_, heard)| !heard.contains(&to));
            let updates = lacking.filter_map(|(node, _)| self.table.news(*node));
            for updates in split(updates.collect()) {
                self.send(to, Message::News(updates));
            }
        }
    }

    /// Compares what is known with a peer.
    fn compare_with_one(&mut self) {
        self.compare_at = self.now + self.jittered(self.compare_every);
        self.compare_every = (self.compare_every * 2).min(COMPARE_EVERY);
        if let Some(peer) = self.compare_deck.draw() {
            let checksums = self.table.checksums();
            self.send(peer, Message::Compare(checksums));
        }
    }
}

/// Updates in as many messages as keep to the limits.
fn split(updates: Vec<Update>) -> Vec<Vec<Update>> {
    let mut messages: Vec<Vec<Update>> = Vec::new();
    let mut room = 0;
    for update in updates {
        let bytes = update.encoded_bytes();
        match messages.last_mut() {
            Some(message) if bytes <= room => {
                room -= bytes;
                message.push(update);
            }
            _ => {
                room = MAX_MESSAGE_BYTES.saturating_sub(bytes);
                messages.push(vec![update]);
            }
        }
    }
    messages
}
