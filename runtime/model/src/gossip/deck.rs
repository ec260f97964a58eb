//! Peers in a random order, each as often as any other.
//!
//! Owns the order. Must not: know more of a peer than its id.
//!
//! Invariant: between two turns of a peer, each of the others has at least none and at most two turns.

use crate::id::NodeId;
use crate::random::Random;

/// A shuffled deck, shuffled anew when it is through (as SWIM chooses whom to ask): so nobody is left out
/// for long, as happens with independent draws.
#[derive(Debug)]
pub(super) struct Deck {
    peers: Vec<NodeId>,
    at: usize,
    random: Random,
}

impl Deck {
    pub(super) fn new(random: Random) -> Self {
        Self {
            peers: Vec::new(),
            at: 0,
            random,
        }
    }

    /// All of them.
    pub(super) fn peers(&self) -> &[NodeId] {
        &self.peers
    }

    pub(super) fn add(&mut self, peer: NodeId) {
        let place = self.random.below(self.peers.len() + 1);
        self.peers.push(peer);
        let last = self.peers.len() - 1;
        self.peers.swap(place, last);
    }

    pub(super) fn remove(&mut self, peer: NodeId) {
        if let Some(place) = self.peers.iter().position(|known| *known == peer) {
            self.peers.remove(place);
            self.at -= usize::from(place < self.at);
        }
    }

    pub(super) fn draw(&mut self) -> Option<NodeId> {
        if self.at >= self.peers.len() {
            self.at = 0;
            for place in (1..self.peers.len()).rev() {
                let other = self.random.below(place + 1);
                self.peers.swap(place, other);
            }
        }
        let drawn = self.peers.get(self.at).copied()?;
        self.at += 1;
        Some(drawn)
    }
}
