//! What other nodes are to be told, in the order in which it was decided.
//!
//! Owns a queue that is filled under the ledger's lock and emptied without it, one at a time: whoever decides
//! second is heard second, whichever thread is the faster one. Calls of an actor depend on that, and whoever
//! hears that an actor lives, and that it has died. Must not: send anything itself.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use wasmrun_model::id::{ActorName, NodeId};
use wasmrun_model::task::Attempt;

use super::Outgoing;
use crate::records::actor::{ActorCell, Standing};

/// Something to tell.
pub(crate) enum Outbound {
    /// This, to that node.
    Say(NodeId, Box<Outgoing>),
    /// Another node's actor lives here: this attempt of its creation has come to that.
    Born(Arc<ActorCell>, Attempt),
    /// The creation of another node's actor has left this node: its owner is asked where it stands.
    CreationLeft(ActorName),
    /// Where an actor of ours stands, to all who want to know.
    Stands(Arc<ActorCell>, Standing),
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: Mutex<VecDeque<Outbound>>,
    emptying: Mutex<()>,
}

impl Outbox {
    /// Only with the ledger's lock.
    pub(super) fn push(&self, outbound: Outbound) {
        self.waiting.lock().push_back(outbound);
    }

    /// Gives all that waits to `tell`, which must not come back here. Only without the ledger's lock.
    pub(crate) fn empty(&self, mut tell: impl FnMut(Outbound)) {
        if self.waiting.lock().is_empty() {
            // What was put in before this is told, or being told.
            return;
        }
        let _one_at_a_time = self.emptying.lock();
        loop {
            let next = self.waiting.lock().pop_front();
            match next {
                Some(outbound) => tell(outbound),
                None => return,
            }
        }
    }
}
