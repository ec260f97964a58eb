//! Looking for the bytes of an object: whom to ask, when to wait, when to have it reconstructed.
//!
//! Owns the order of these for one reader. Must not: bring bytes, sleep, ask.

use std::time::Duration;

use crate::id::NodeId;

/// How often an object is looked for before it counts as lost.
pub const ROUNDS: u32 = 8;
/// How long holders that could not be reached are left alone, longer each time.
pub const AGAIN: Duration = Duration::from_millis(100);
/// The longest of these pauses.
pub const MOST_PAUSE: Duration = Duration::from_secs(1);

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Bring it from one of those who have it, but for those of [`Search::misses`]; then [`Search::not_brought`].
    Bring,
    /// Ask its owner where it is, then [`Search::owner_said`].
    AskOwner,
    /// Have it reconstructed, after this pause, then [`Search::reconstructed`].
    Reconstruct(Duration),
    /// Wait so long, then [`Search::waited`]. These nodes do not answer, and are what it waits for.
    Pause(Duration, Vec<NodeId>),
    /// Nobody has it.
    Lost,
}

/// What the owner of an object says when it is asked where that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerSaid {
    /// At nodes of which some were not tried, or all were.
    At {
        /// Whether one was not tried.
        is_new: bool,
    },
    /// Nothing, and it counts as alive.
    Silent,
}

/// One reader's search for an object.
///
/// Invariant: as long as nodes that may have it count as alive and do not answer, it goes on; else it ends after
/// a bounded number of rounds.
#[derive(Debug)]
pub struct Search {
    me: NodeId,
    owner: NodeId,
    round: u32,
    pause: Duration,
    misses: Vec<NodeId>,
    silent: Vec<NodeId>,
    is_reconstructed: bool,
}

impl Search {
    /// Begins with [`Next::Bring`].
    pub fn new(me: NodeId, owner: NodeId) -> Self {
        Self {
            me,
            owner,
            round: 1,
            pause: AGAIN,
            misses: Vec::new(),
            silent: Vec::new(),
            is_reconstructed: false,
        }
    }

    /// Who has said that it has not got it, or did not give it.
    pub fn misses(&self) -> &[NodeId] {
        &self.misses
    }

    /// Nobody has given it: these could not, among them those that are `silent`, which live and may have it.
    /// `can_be_reconstructed`: it is ours, and worth a try to make it again rather than to wait for those.
    pub fn not_brought(
        &mut self,
        misses: Vec<NodeId>,
        silent: Vec<NodeId>,
        can_be_reconstructed: bool,
    ) -> Next {
        (self.misses, self.silent) = (misses, silent);
        // Nor is it here, whatever its owner says: replicas for an earlier incarnation of the owner are gone.
        if !self.misses.contains(&self.me) {
            self.misses.push(self.me);
        }
        if self.owner != self.me {
            return Next::AskOwner;
        }
        // Who has only just made it and does not answer will do so soon, or be lost; to have it made there
        // again and again would take no longer than that, and then it would count as lost.
        let is_too_soon = self.is_reconstructed && self.pause < MOST_PAUSE;
        if self.silent.is_empty() || can_be_reconstructed && !is_too_soon {
            return Next::Reconstruct(match self.is_reconstructed {
                true => self.pause,
                false => Duration::ZERO,
            });
        }
        self.pause()
    }

    /// The owner has answered, or not.
    pub fn owner_said(&mut self, said: OwnerSaid) -> Next {
        match said {
            OwnerSaid::At { is_new: true } => {
                self.round += 1;
                return self.again();
            }
            // The owner knows that they have it: it was the way to them that was broken.
            OwnerSaid::At { is_new: false } => {}
            OwnerSaid::Silent => self.silent.push(self.owner),
        }
        self.pause()
    }

    /// It was reconstructed.
    pub fn reconstructed(&mut self) -> Next {
        // Those who had lost it may have it now.
        self.misses.clear();
        self.is_reconstructed = true;
        self.pause = AGAIN * self.round;
        self.round += 1;
        self.again()
    }

    /// The pause is over.
    pub fn waited(&mut self) -> Next {
        self.pause = (self.pause + AGAIN).min(MOST_PAUSE);
        self.again()
    }

    fn pause(&mut self) -> Next {
        self.misses.clear();
        if self.silent.is_empty() {
            self.round += 1;
        }
        Next::Pause(self.pause, std::mem::take(&mut self.silent))
    }

    fn again(&self) -> Next {
        match self.round <= ROUNDS {
            true => Next::Bring,
            false => Next::Lost,
        }
    }
}
