//! Bytes as inputs of a node's gossip, and what must hold after each: for `fuzz/` (libFuzzer) and the tests
//! beside this module.
//!
//! Owns the invariants as checks. Must not: change anything that it checks.

use std::collections::BTreeMap;
use std::time::Duration;

use super::body::Body;
use super::{
    BUCKETS, Checksum, DIRECT_PEERS, Gossip, Input, MAX_ANSWER_BYTES, MAX_BODY_BYTES, MAX_KNOWN,
    MAX_MESSAGE_BYTES, Message, Output, Update, ViewVersion,
};
use crate::cluster::QueueReport;
use crate::id::{Incarnation, NodeId};
use crate::resource::{Amount, NodeResources, ResourceName};
use crate::scheduler::{NodeInfo, PeerView};
use crate::time::Instant;

/// How many nodes there are, in some incarnations.
const NODES: u8 = 24;
const INCARNATIONS: u8 = 3;

/// Whatever happens and whatever members say, the invariants hold. Never panics.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (own, incarnation) = (node_id(0), Incarnation(1));
    let mut world = World {
        gossip: Gossip::new(Instant::ZERO, own, incarnation, bytes.next().into()),
        now: Instant::ZERO,
        members: BTreeMap::new(),
        heard: BTreeMap::new(),
    };
    while !bytes.0.is_empty() {
        let input = world.input(&mut bytes);
        world.handle(input);
    }
}

struct World {
    gossip: Gossip,
    now: Instant,
    members: BTreeMap<NodeId, Incarnation>,
    heard: BTreeMap<NodeId, (Incarnation, u64)>,
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    /// Zero when they have run out.
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.next() % bound
    }

    fn node(&mut self) -> NodeId {
        node_id(self.below(NODES))
    }

    fn incarnation(&mut self) -> Incarnation {
        Incarnation(self.below(INCARNATIONS).into())
    }

    fn version(&mut self) -> u64 {
        match self.below(16) {
            0 => u64::MAX,
            1 => (1 << 62) + u64::from(self.below(3)) - 1,
            few => few.into(),
        }
    }

    fn view_version(&mut self) -> ViewVersion {
        ViewVersion {
            node: self.node(),
            incarnation: self.incarnation(),
            version: self.version(),
            info_version: self.version(),
        }
    }

    fn view_versions(&mut self) -> Vec<ViewVersion> {
        (0..self.below(8)).map(|_| self.view_version()).collect()
    }

    fn info(&mut self, id: NodeId, incarnation: Incarnation) -> NodeInfo {
        NodeInfo {
            id,
            incarnation,
            name: format!("n{}", id.as_bytes()[0]).parse().expect("a name"),
            labels: ["", "zone=a", "zone=b"][usize::from(self.below(3))]
                .parse()
                .expect("labels"),
        }
    }

    fn view(&mut self, version: u64) -> PeerView {
        let mut resources = NodeResources::new();
        resources
            .set_capacity(&ResourceName::CPU, Amount::units(self.below(4).into()))
            .expect("a small capacity");
        PeerView {
            version,
            resources: resources.report(),
            queue: QueueReport {
                tasks: self.below(3).into(),
                run_time_us: self.next().into(),
            },
            usage: BTreeMap::new(),
        }
    }

    fn update(&mut self) -> Update {
        let (node, incarnation) = (self.node(), self.incarnation());
        let (version, info_version) = (self.version(), self.version());
        let is_right = self.below(8) > 0;
        let view = self.view(if is_right { version } else { 1 });
        let info = self.info(
            node,
            if is_right {
                incarnation
            } else {
                Incarnation(9)
            },
        );
        let garbage = Body::from(vec![0xff; self.below(9).into()]);
        Update {
            node,
            incarnation,
            version,
            info_version,
            info: (self.below(2) == 0).then(|| Body::of(&info)),
            view: if self.below(8) > 0 {
                Body::of(&view)
            } else {
                garbage
            },
        }
    }

    fn updates(&mut self) -> Vec<Update> {
        (0..self.below(8)).map(|_| self.update()).collect()
    }

    fn message(&mut self) -> Option<Message> {
        Some(match self.below(6) {
            0 | 1 => Message::News(self.updates()),
            2 => {
                let parts = self.below(80);
                Message::Compare(vec![Checksum([self.next(); 8]); parts.into()])
            }
            3 => Message::Digest(self.view_versions()),
            4 => Message::Repair {
                updates: self.updates(),
                wants: self.view_versions(),
            },
            _ => {
                let (message, rest) = postcard::take_from_bytes(self.0).ok()?;
                self.0 = rest;
                message
            }
        })
    }
}

impl World {
    fn input(&mut self, bytes: &mut Bytes) -> Input {
        let own = node_id(0);
        match bytes.below(12) {
            0 | 1 => {
                let (node, incarnation) = (bytes.node(), bytes.incarnation());
                let known = self.members.get(&node);
                if node != own && known.is_none_or(|known| *known < incarnation) {
                    self.members.insert(node, incarnation);
                    self.heard.remove(&node);
                }
                Input::Joined { node, incarnation }
            }
            2 => {
                let (node, incarnation) = (bytes.node(), bytes.incarnation());
                if self
                    .members
                    .get(&node)
                    .is_some_and(|known| *known <= incarnation)
                {
                    self.members.remove(&node);
                    self.heard.remove(&node);
                }
                Input::Left { node, incarnation }
            }
            3 => Input::OwnView {
                node: bytes.info(own, Incarnation(1)),
                view: Box::new(bytes.view(0)),
            },
            4..=6 => {
                self.now = self.now + Duration::from_millis(u64::from(bytes.next()) * 4);
                Input::Tick
            }
            _ => match bytes.message() {
                Some(message) => Input::Message {
                    from: bytes.node(),
                    message,
                },
                None => Input::Tick,
            },
        }
    }

    fn handle(&mut self, input: Input) {
        self.gossip.handle(self.now, input);
        let later = self.gossip.poll_timeout();
        assert!(later.is_none_or(|at| at > self.now), "what is due is done");
        let mut sent = 0;
        while let Some(output) = self.gossip.poll() {
            match output {
                Output::Send { to, message } => {
                    assert!(self.members.contains_key(&to), "sent to a stranger");
                    sent += check_message(&message);
                }
                Output::View { node, view } => {
                    assert_eq!(self.members.get(&node.id), Some(&node.incarnation));
                    let is = (node.incarnation, view.version);
                    let was = self.heard.insert(node.id, is);
                    assert!(was.is_none_or(|was| was < is), "an older view");
                }
            }
        }
        // An answer, the own view, and a round.
        let most = MAX_ANSWER_BYTES + (DIRECT_PEERS + 4) * (MAX_BODY_BYTES + MAX_MESSAGE_BYTES);
        assert!(sent <= most, "{sent} bytes");
        self.gossip.check();
    }
}

fn check_message(message: &Message) -> usize {
    let bytes = postcard::to_stdvec(message).expect("a message can be encoded");
    assert_eq!(postcard::from_bytes(&bytes).as_ref(), Ok(message));
    match message {
        Message::News(updates) | Message::Repair { updates, .. } => {
            let wants = MAX_KNOWN * 48;
            assert!(updates.len() <= 1 || bytes.len() <= MAX_MESSAGE_BYTES + wants);
        }
        Message::Compare(checksums) => assert!(checksums.len() <= BUCKETS),
        Message::Digest(known) => assert!(known.len() <= MAX_KNOWN),
    }
    bytes.len()
}

fn node_id(n: u8) -> NodeId {
    NodeId::from_bytes([n; 16])
}
