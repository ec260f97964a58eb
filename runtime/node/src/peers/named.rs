//! Finding actors by their names at the nodes that own them.
//!
//! Owns asking and answering. What is found was lent by the answer, as any handle that is passed: also
//! where nobody waits for it any more it is taken, and given back. Must not: know the control store, which says whom to
//! ask.

use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::NodeId;

use super::Exchange;
use super::awaited::Question;
use super::protocol::{Find, Found, OneWay, Whose};
use crate::guests::claim::{Claim, Sought};
use crate::records::object::Reference;

impl Exchange {
    /// Asks who has claimed a name for the actor that has it. `None` if that node does not live, as far as is known here.
    pub(super) fn ask_owner(
        &self,
        tenant: &TenantName,
        name: &str,
        claim: &Claim,
        is_wanted: bool,
    ) -> Option<Question<Sought>> {
        let question = self.seeking.ask(claim.owner);
        let find = Find {
            number: question.number,
            tenant: tenant.clone(),
            name: name.to_owned(),
            actor: claim.actor,
            is_wanted,
        };
        let message = OneWay::Find(Box::new(find));
        self.send(claim.owner, message).then_some(question)
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
            Sought::Claimant => Whose::Held,
            Sought::Nobody => Whose::Gone,
        };
        let found = Found { number, whose };
        self.send(from, OneWay::Found(Box::new(found)));
    }

    /// The answer of another node.
    pub(super) fn found(&self, from: NodeId, found: Found) {
        let Found { number, whose } = found;
        let sought = match whose {
            // It was kept for us, whether or not anybody still waits.
            Whose::Actor(actor) => match self.borrow_actor(from, *actor) {
                Ok(Reference::Actor(actor)) => Sought::Actor(actor),
                Ok(_) | Err(_) => Sought::Nobody,
            },
            Whose::Held => Sought::Claimant,
            Whose::Gone => Sought::Nobody,
        };
        // Who has given up waiting gives it back.
        self.seeking.answer(from, number, sought);
    }
}
