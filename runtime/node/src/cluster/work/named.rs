//! Finding actors by their names at the nodes that own them.
//!
//! Owns the questions that are under way. What is found was lent by the answer, as any handle that is passed: also
//! where nobody waits for it any more it is taken, and given back. Must not: know the control store, which says whom to
//! ask.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::NodeId;

use super::protocol::{Find, Found, OneWay, Whose};
use super::{Exchange, Queued};
use crate::actor::ActorRef;
use crate::cluster::Claim;
use crate::object::Reference;

/// What the owner of a name says.
pub(crate) enum Sought {
    /// It is this actor's.
    Actor(ActorRef),
    /// It is the actor's that has claimed it, which is not to be found (yet), or was not asked for.
    Held,
    /// It is nobody's any more.
    Gone,
}

/// Questions that wait for their answers, by their numbers, and whom they were put to.
#[derive(Default)]
pub(super) struct Seeking {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, (NodeId, oneshot::Sender<Sought>)>>,
}

/// A question, until nobody waits for it.
struct Question {
    exchange: Arc<Exchange>,
    number: u64,
}

impl Drop for Question {
    fn drop(&mut self) {
        let answer = self.exchange.seeking.waiting.lock().remove(&self.number);
        drop(answer);
    }
}

impl Seeking {
    /// A node has left, and answers nothing any more.
    pub(super) fn left(&self, node: NodeId) {
        let mut waiting = self.waiting.lock();
        let of_it: Vec<_> = waiting.extract_if(|_, (of, _)| *of == node).collect();
        drop(waiting);
        drop(of_it);
    }
}

impl Exchange {
    /// Asks who has claimed a name for the actor that has it. Waits as long as that node lives; `None` if it does not,
    /// as far as is known here.
    pub(crate) async fn seek(
        &self,
        tenant: &TenantName,
        name: &str,
        claim: &Claim,
        is_wanted: bool,
    ) -> Option<Sought> {
        let (_question, answer) = self.ask_owner(tenant, name, claim, is_wanted)?;
        answer.await.ok()
    }

    fn ask_owner(
        &self,
        tenant: &TenantName,
        name: &str,
        claim: &Claim,
        is_wanted: bool,
    ) -> Option<(Question, oneshot::Receiver<Sought>)> {
        let exchange = self.this.upgrade()?;
        let number = self.seeking.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        let mut waiting = self.seeking.waiting.lock();
        waiting.insert(number, (claim.owner, sender));
        drop(waiting);
        let question = Question { exchange, number };
        let find = Find {
            number,
            tenant: tenant.clone(),
            name: name.to_owned(),
            actor: claim.actor,
            is_wanted,
        };
        let message = Queued::Message(OneWay::Find(Box::new(find)));
        let is_asked = self.queue(claim.owner, message);
        is_asked.then_some((question, answer))
    }

    /// Another node looks for an actor of ours.
    pub(super) fn find(&self, from: NodeId, find: Find) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let Find {
            number,
            tenant,
            name,
            actor,
            is_wanted,
        } = find;
        if !self.is_alive(&from) {
            // Nothing is kept for it.
            return;
        }
        let whose = match shared.sought(&tenant, &name, actor, is_wanted) {
            Sought::Actor(actor) => {
                let named = self.named(&actor);
                self.lend(from, &Reference::Actor(actor));
                Whose::Actor(Box::new(named))
            }
            Sought::Held => Whose::Held,
            Sought::Gone => Whose::Gone,
        };
        let found = Found { number, whose };
        self.queue(from, Queued::Message(OneWay::Found(Box::new(found))));
    }

    /// The answer of another node.
    pub(super) fn found(&self, from: NodeId, found: Found) {
        let Found { number, whose } = found;
        let sought = match whose {
            // It was kept for us, whether or not anybody still waits.
            Whose::Actor(actor) => match self.borrow_actor(from, *actor) {
                Ok(Reference::Actor(actor)) => Sought::Actor(actor),
                Ok(_) | Err(_) => Sought::Gone,
            },
            Whose::Held => Sought::Held,
            Whose::Gone => Sought::Gone,
        };
        let mut waiting = self.seeking.waiting.lock();
        let asked = match waiting.get(&number) {
            Some((of, _)) if *of == from => waiting.remove(&number),
            _ => None,
        };
        drop(waiting);
        if let Some((_, answer)) = asked {
            // Who has given up waiting gives it back.
            let _ = answer.send(sought);
        }
    }
}
