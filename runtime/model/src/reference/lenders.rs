//! From whom a node has one object, and how often.
//!
//! Owns whether what one more node gives is kept or given back. Must not: send anything.

use smallvec::SmallVec;

use crate::id::NodeId;

/// Who has given this node an object that another owns.
///
/// Invariant: one who is not the owner is among them only if nothing of that name was here when it named it to us. So
/// whoever keeps it for us does not have it from us, also not by way of others, nor will.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lenders {
    of: SmallVec<[(NodeId, u64); 1]>,
    /// Others may have it from us by now: nobody but the owner can be trusted not to be one of them.
    is_owner_only: bool,
}

/// What becomes of what was lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is owed to the lender until nobody here needs it.
    Kept,
    /// It is to be given back at once: there is another who keeps it for us.
    GiveBack,
    /// It is to be given back, and whoever kept the object for us is lost: the owner should be asked to lend it.
    Ask,
}

impl Lenders {
    /// Nobody yet, and then the owner.
    pub fn owner_only() -> Self {
        Self {
            is_owner_only: true,
            ..Self::default()
        }
    }

    /// A node has named the object to us, and keeps it.
    pub fn take(&mut self, from: NodeId, owner: NodeId) -> Taken {
        if let Some((_, count)) = self.of.iter_mut().find(|(lender, _)| *lender == from) {
            *count += 1;
            return Taken::Kept;
        }
        if from == owner || self.of.is_empty() && !self.is_owner_only {
            self.of.push((from, 1));
            return Taken::Kept;
        }
        match self.of.is_empty() {
            true => Taken::Ask,
            false => Taken::GiveBack,
        }
    }

    /// An incarnation of a node is over: nothing is owed to it, and it keeps nothing for us.
    pub fn remove_node(&mut self, node: NodeId) {
        let before = self.of.len();
        self.of.retain(|(lender, _)| *lender != node);
        self.is_owner_only |= self.of.len() < before;
    }

    /// Nobody here needs the object any more: what is to be given back, to whom, how often.
    pub fn give_back(&mut self) -> impl Iterator<Item = (NodeId, u64)> + use<> {
        std::mem::take(self).of.into_iter()
    }

    /// How often this node has given it to us and was not given it back.
    pub fn count(&self, lender: NodeId) -> u64 {
        let of_it = self.of.iter().find(|(it, _)| *it == lender);
        of_it.map_or(0, |(_, count)| *count)
    }

    /// Who has given it to us.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.of.iter().map(|(lender, _)| *lender)
    }

    /// Whether nobody keeps the object for us.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}
