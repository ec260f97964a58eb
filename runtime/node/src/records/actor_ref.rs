//! Counted references to an actor.
//!
//! Owns the count: when the last reference goes, the node is told ([`ActorNode`]). Must not: end actors.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::records::actor::ActorCell;

/// A counted reference to an actor. When the last one goes, the actor ends; one of another node is given
/// back.
#[derive(Clone)]
pub(crate) struct ActorRef(Arc<Counted>);

struct Counted {
    cell: Arc<ActorCell>,
    node: Weak<dyn ActorNode>,
}

/// The node that has references to an actor.
pub(crate) trait ActorNode: Send + Sync {
    /// The last of them is gone. The caller may hold the ledger's lock: what needs that is to be done later.
    fn unreferenced(self: Arc<Self>, actor: &Arc<ActorCell>);
}

/// The references to an actor, as long as there are any.
#[derive(Clone, Default)]
pub(crate) struct WeakActorRef(Weak<Counted>);

impl WeakActorRef {
    pub(crate) fn upgrade(&self) -> Option<ActorRef> {
        self.0.upgrade().map(ActorRef)
    }

    /// Whether there is one.
    pub(crate) fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl ActorRef {
    pub(crate) fn new<N: ActorNode + 'static>(cell: Arc<ActorCell>, node: Weak<N>) -> Self {
        Self(Arc::new(Counted { cell, node }))
    }

    pub(crate) fn cell(&self) -> &Arc<ActorCell> {
        &self.0.cell
    }

    pub(crate) fn downgrade(&self) -> WeakActorRef {
        WeakActorRef(Arc::downgrade(&self.0))
    }

    /// Which it is: the same for all references to one actor.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// How many references there are.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Deref for ActorRef {
    type Target = ActorCell;

    fn deref(&self) -> &ActorCell {
        &self.0.cell
    }
}

impl fmt::Debug for ActorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActorRef({})", self.0.cell.id)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(log) = self.cell.log().filter(|_| !self.cell.is_foreign()) {
            log.clear();
        }
        if let Some(node) = self.node.upgrade() {
            node.unreferenced(&self.cell);
        }
    }
}
