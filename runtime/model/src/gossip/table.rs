//! What is known of each member.
//!
//! Owns the latest view of every member, this node included, and checksums of which views these are. Must
//! not: send, or decide when something is told.
//!
//! Invariants: the versions of one incarnation of a node only rise; the checksums are those of the views that are
//! held; nothing is held of who is not a member.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::body::Body;
use super::message::{Checksum, Update, ViewVersion};
use super::{BUCKETS, DIRECT_PEERS, MAX_BODY_BYTES, MAX_VERSION, NODES_PER_BUCKET, SETTLE};
use crate::id::{Incarnation, NodeId};
use crate::random::Random;
use crate::scheduler::{NodeInfo, PeerView};
use crate::time::Instant;

/// All members, by id: which is their order on the ring.
#[derive(Debug)]
pub(super) struct Table {
    own: NodeId,
    members: BTreeMap<NodeId, Member>,
    buckets: [u64; BUCKETS],
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) incarnation: Incarnation,
    pub(super) held: Option<StoredView>,
    /// When somebody was asked for what it is called and its labels.
    pub(super) asked_at: Option<Instant>,
}

/// A view that is known.
#[derive(Debug)]
pub(super) struct StoredView {
    pub(super) version: u64,
    pub(super) info_version: u64,
    pub(super) node: NodeInfo,
    pub(super) info: Body,
    pub(super) view: Body,
    /// When it came as news, which spreads without anybody asking for it; `None` if it was a repair.
    pub(super) news_at: Option<Instant>,
}

/// What became of an update.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is the newest that is known now.
    Newer { node: NodeInfo, view: Box<PeerView> },
    /// It is known.
    Known,
    /// Something newer is known.
    Older,
    /// It is about an incarnation that is not a member.
    NoMember,
    /// It is about this node.
    Own,
    /// It cannot be used without the node's labels.
    LacksInfo,
    /// It is no update.
    Malformed,
}

impl Table {
    pub(super) fn new(own: NodeId, incarnation: Incarnation) -> Self {
        let mut table = Self {
            own,
            members: BTreeMap::new(),
            buckets: [0; BUCKETS],
        };
        table.join(own, incarnation);
        table
    }

    /// Takes a member in. False if it is one, in this incarnation or a later one.
    pub(super) fn join(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        let known = self.members.get(&node);
        if known.is_some_and(|known| known.incarnation >= incarnation) {
            return false;
        }
        self.remove(node);
        let member = Member {
            incarnation,
            held: None,
            asked_at: None,
        };
        self.members.insert(node, member);
        true
    }

    pub(super) fn remove(&mut self, node: NodeId) {
        if let Some(Member {
            incarnation,
            held: Some(held),
            ..
        }) = self.members.remove(&node)
        {
            self.count(node, incarnation, held.version);
        }
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&Member> {
        self.members.get(&node)
    }

    pub(super) fn get_mut(&mut self, node: NodeId) -> Option<&mut Member> {
        self.members.get_mut(&node)
    }

    /// How many others there are.
    pub(super) fn peers(&self) -> usize {
        self.members.len() - 1
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.members.keys().copied()
    }

    /// The peers before and after this node on the ring. The same one, where there is one peer.
    pub(super) fn neighbours(&self) -> Option<[NodeId; 2]> {
        let after = self.members.range((Excluded(self.own), Unbounded)).next();
        let after = after.or_else(|| self.members.first_key_value())?;
        let before = self.members.range(..self.own).next_back();
        let before = before.or_else(|| self.members.last_key_value())?;
        (*after.0 != self.own).then_some([*before.0, *after.0])
    }

    /// Puts a view in the place of what is held of a member.
    ///
    /// # Panics
    /// If it is not newer, or of no member.
    pub(super) fn hold(&mut self, node: NodeId, held: StoredView) {
        let member = self.members.get_mut(&node).expect("a member");
        let incarnation = member.incarnation;
        member.asked_at = None;
        let version = held.version;
        let old = member.held.replace(held).map_or(0, |old| old.version);
        assert!(old < version, "versions rise");
        if old > 0 {
            self.count(node, incarnation, old);
        }
        self.count(node, incarnation, version);
    }

    /// Takes what somebody says of a member, if it is newer than what is known.
    pub(super) fn take(&mut self, update: Update, news_at: Option<Instant>) -> Taken {
        let Some(member) = self.members.get(&update.node) else {
            return Taken::NoMember;
        };
        if member.incarnation != update.incarnation {
            return Taken::NoMember;
        }
        if update.version > MAX_VERSION {
            return Taken::Malformed;
        }
        if update.node == self.own {
            return Taken::Own;
        }
        let held = member.held.as_ref();
        let (version, info_version) = held.map_or((0, 0), |held| (held.version, held.info_version));
        if update.version <= version {
            return match update.version == version && version > 0 {
                true => Taken::Known,
                false => Taken::Older,
            };
        }
        if update.info_version > update.version || update.info_version < info_version.max(1) {
            return Taken::Malformed;
        }
        let (node, info) = match (update.info, held) {
            (Some(info), _) => match decode_info(&info, update.node, update.incarnation) {
                Some(node) => (node, info),
                None => return Taken::Malformed,
            },
            (None, Some(held)) if info_version == update.info_version => {
                (held.node.clone(), held.info.clone())
            }
            (None, _) => return Taken::LacksInfo,
        };
        let Some(view) = decode_view(&update.view, update.version) else {
            return Taken::Malformed;
        };
        let held = StoredView {
            version: update.version,
            info_version: update.info_version,
            node: node.clone(),
            info,
            view: update.view,
            news_at,
        };
        self.hold(update.node, held);
        let view = Box::new(view);
        Taken::Newer { node, view }
    }

    /// What is known of a member; versions are 0 where nothing is.
    pub(super) fn version_of(&self, node: NodeId) -> Option<ViewVersion> {
        let member = self.members.get(&node)?;
        let held = member.held.as_ref();
        Some(ViewVersion {
            node,
            incarnation: member.incarnation,
            version: held.map_or(0, |held| held.version),
            info_version: held.map_or(0, |held| held.info_version),
        })
    }

    /// The view of a member for somebody who knows its labels as of `info_version`.
    pub(super) fn update(&self, node: NodeId, info_version: u64) -> Option<Update> {
        let member = self.members.get(&node)?;
        let held = member.held.as_ref()?;
        Some(Update {
            node,
            incarnation: member.incarnation,
            version: held.version,
            info_version: held.info_version,
            info: (info_version < held.info_version).then(|| held.info.clone()),
            view: held.view.clone(),
        })
    }

    /// The view of a member as news: the labels go along if it is they that are new.
    pub(super) fn news(&self, node: NodeId) -> Option<Update> {
        let held = self.members.get(&node)?.held.as_ref()?;
        self.update(node, held.version - 1)
    }

    /// Whether a view is so new that it still spreads by itself. Never where nobody passes anything on: there
    /// comparison is the only way around a link that is down.
    pub(super) fn is_spreading(&self, node: NodeId, now: Instant) -> bool {
        if self.peers() <= DIRECT_PEERS {
            return false;
        }
        let held = self
            .members
            .get(&node)
            .and_then(|member| member.held.as_ref());
        let news_at = held.and_then(|held| held.news_at);
        news_at.is_some_and(|at| now.since(at) < SETTLE)
    }

    /// Checksums of what is known: as many as suit the size of the cluster.
    pub(super) fn checksums(&self) -> Vec<Checksum> {
        let parts = (self.members.len() / NODES_PER_BUCKET).next_power_of_two();
        self.checksums_of(parts.min(BUCKETS))
    }

    fn checksums_of(&self, parts: usize) -> Vec<Checksum> {
        let chunks = self.buckets.chunks_exact(BUCKETS / parts);
        let sum = |chunk: &[u64]| chunk.iter().fold(0, |sum, bucket| sum ^ bucket);
        chunks
            .map(|chunk| Checksum(sum(chunk).to_le_bytes()))
            .collect()
    }

    /// The members in the parts that differ, in the order of the ring from a random one. `None` if these
    /// are not checksums.
    pub(super) fn differing(
        &self,
        theirs: &[Checksum],
        random: &mut Random,
    ) -> Option<Vec<NodeId>> {
        if !theirs.len().is_power_of_two() || theirs.len() > BUCKETS {
            return None;
        }
        let ours = self.checksums_of(theirs.len());
        if ours == theirs {
            return Some(Vec::new());
        }
        let width = BUCKETS / theirs.len();
        let differs = |node: &NodeId| {
            let part = bucket(*node) / width;
            ours[part] != theirs[part]
        };
        let mut nodes: Vec<_> = self.ids().filter(differs).collect();
        if !nodes.is_empty() {
            let first = random.below(nodes.len());
            nodes.rotate_left(first);
        }
        Some(nodes)
    }

    /// Checks that the checksums are of what is held; for the tests.
    pub(super) fn check(&self) {
        let mut anew = Self::new(self.own, Incarnation(0));
        for (node, member) in &self.members {
            if let Some(held) = &member.held {
                anew.count(*node, member.incarnation, held.version);
            }
        }
        assert_eq!(anew.buckets, self.buckets, "the checksums");
    }

    /// Counts a view in, or out again.
    fn count(&mut self, node: NodeId, incarnation: Incarnation, version: u64) {
        let hash = mixed(mixed(hash(node) ^ incarnation.0) ^ version);
        self.buckets[bucket(node)] ^= hash;
    }
}

fn mixed(bits: u64) -> u64 {
    Random::new(bits).next()
}

fn hash(node: NodeId) -> u64 {
    let (high, low) = node.as_bytes().split_at(8);
    let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    mixed(mixed(half(high)) ^ half(low))
}

fn bucket(node: NodeId) -> usize {
    hash(node) as usize % BUCKETS
}

fn decode_info(body: &Body, node: NodeId, incarnation: Incarnation) -> Option<NodeInfo> {
    if body.as_bytes().len() > MAX_BODY_BYTES {
        return None;
    }
    let info: NodeInfo = body.decode()?;
    (info.id == node && info.incarnation == incarnation).then_some(info)
}

fn decode_view(body: &Body, version: u64) -> Option<PeerView> {
    if body.as_bytes().len() > MAX_BODY_BYTES {
        return None;
    }
    let view: PeerView = body.decode()?;
    (view.version == version).then_some(view)
}
