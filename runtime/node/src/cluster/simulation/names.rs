//! Names of actors at a node: those that its actors have or are to have, as `crate::names` has them, over the product's own
//! claiming.
//!
//! Owns the table, and asking other nodes ([`Book`]). Must not: look into the store but to find a name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use wasmrun_control::records::{Record as _, named};
use wasmrun_control::simulated::{Line, Process, Time};
use wasmrun_control::{ControlStore, Embedded, Error, LeaseId};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, NodeId};

use super::super::named::{claim_at, unclaim_at};
use super::super::records::Standing;
use super::node::Place;
use super::oracles::Oracle;
use crate::guests::claim::{Claim, Settled, WaitsFor, Wants};

/// How long the store and the owner of a name have to say whose it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon something is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a question to another node takes.
const TRIP: Duration = Duration::from_millis(20);

/// The key of a name.
pub(super) fn key(name: &str) -> Bytes {
    named(&TenantName::default(), name)
}

/// Who can be asked what: the process of each node that has one.
pub(super) struct Book {
    time: Arc<Time>,
    nodes: Mutex<BTreeMap<NodeId, Arc<Names>>>,
}

impl Book {
    pub(super) fn new(time: &Arc<Time>) -> Arc<Self> {
        Arc::new(Self {
            time: time.clone(),
            nodes: Mutex::default(),
        })
    }

    pub(super) fn set(&self, names: &Arc<Names>) {
        self.nodes.lock().insert(names.place.id(), names.clone());
    }

    /// Whether a node's table has a name for an actor. `None` if the two cannot hear each other now.
    fn ask(&self, from: &Names, claim: &Claim, name: &str) -> Option<bool> {
        let asked = self.nodes.lock().get(&claim.owner).cloned()?;
        let is_heard = !self.time.is_stopped(asked.process)
            && [from, &asked].iter().all(|names| !names.line.is_cut());
        is_heard.then(|| asked.change(name, claim.actor, |_| ()))
    }
}

struct Named {
    actor: ActorId,
    /// The lease under which it is claimed.
    lease: Option<LeaseId>,
    /// Whether it was given: others may find the actor.
    is_public: bool,
}

/// See the module.
pub(super) struct Names {
    process: Process,
    place: Arc<Place>,
    line: Arc<Line>,
    book: Arc<Book>,
    oracle: Arc<Oracle>,
    table: Mutex<BTreeMap<String, Named>>,
}

/// Why an actor does not get its name.
enum NameError {
    Taken,
    Unknown,
}

impl Names {
    pub(super) fn new(
        process: Process,
        place: Arc<Place>,
        line: &Arc<Line>,
        book: &Arc<Book>,
        oracle: &Arc<Oracle>,
    ) -> Arc<Self> {
        let names = Arc::new(Self {
            process,
            place,
            line: line.clone(),
            book: book.clone(),
            oracle: oracle.clone(),
            table: Mutex::default(),
        });
        book.set(&names);
        names
    }

    /// Whose a name is here, if it was given.
    pub(super) fn actor(&self, name: &str) -> Option<ActorId> {
        let table = self.table.lock();
        let named = table.get(name).filter(|it| it.is_public);
        named.map(|it| it.actor)
    }

    /// Whether an actor here has a name, or is to have it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.table.lock().contains_key(name)
    }

    /// A name of which it is not settled whose it is.
    pub(super) fn unsettled(&self) -> Option<String> {
        let lease = self.place.lease();
        let table = self.table.lock();
        let mut all = table.iter();
        let found = all.find(|(_, it)| !it.is_public || it.lease != lease);
        found.map(|(name, _)| name.clone())
    }

    /// The actor that has a name, as this node finds it when nothing goes wrong.
    pub(super) async fn find(
        &self,
        store: &Embedded,
        name: &str,
    ) -> Result<Option<ActorId>, Error> {
        if self.has(name) {
            return Ok(self.actor(name));
        }
        let Some(entry) = store.get(&key(name)).await? else {
            return Ok(None);
        };
        let claim = Claim::from_value(&entry.value).expect("it is a claim");
        let is_there = self.book.ask(self, &claim, name) == Some(true);
        Ok(is_there.then_some(claim.actor))
    }

    /// An actor is created and wants a name. Nothing happens where another has it here.
    pub(super) fn give(self: &Arc<Self>, name: String, actor: ActorId) {
        let named = Named {
            actor,
            lease: None,
            is_public: false,
        };
        let mut table = self.table.lock();
        if table.contains_key(&name) {
            return;
        }
        table.insert(name.clone(), named);
        drop(table);
        let names = self.clone();
        tokio::spawn(async move {
            match names.claim(&name, actor).await {
                Ok(()) => names.note(&name, actor),
                Err(_) => names.unname(&name, actor),
            }
        });
    }

    /// The actor that has a name, or is to have it, ends.
    pub(super) fn end(self: &Arc<Self>, name: &str) {
        let actor = self.table.lock().get(name).map(|it| it.actor);
        if let Some(actor) = actor {
            self.unname(name, actor);
        }
    }

    /// This node's lease is confirmed again, and may be another one.
    pub(super) fn claim_again(self: &Arc<Self>) {
        let Some(lease) = self.place.lease() else {
            return;
        };
        let table = self.table.lock();
        let before = table
            .iter()
            .filter(|(_, it)| it.lease.is_some_and(|of| of != lease));
        for (name, actor) in before.map(|(name, it)| (name.clone(), it.actor)) {
            let names = self.clone();
            tokio::spawn(async move {
                while names.place.lease() == Some(lease) && names.change(&name, actor, |_| ()) {
                    match names.claim(&name, actor).await {
                        Ok(()) => return names.note(&name, actor),
                        Err(NameError::Taken) => {
                            names.oracle.loses(&name, actor, names.place.lease());
                            return names.unname(&name, actor);
                        }
                        Err(NameError::Unknown) => names.place.clock().sleep(AGAIN).await,
                    }
                }
            });
        }
    }

    /// Something about a name, if it is still this actor's.
    fn change(&self, name: &str, actor: ActorId, change: impl FnOnce(&mut Named)) -> bool {
        match self.table.lock().get_mut(name) {
            Some(named) if named.actor == actor => {
                change(named);
                true
            }
            _ => false,
        }
    }

    /// An actor has a name, if it was not given up meanwhile.
    fn note(&self, name: &str, actor: ActorId) {
        let mut lease = None;
        self.change(name, actor, |named| {
            named.is_public = true;
            lease = named.lease;
        });
        if let Some(lease) = lease {
            self.oracle.named(self.process, name, actor, lease);
        }
    }

    async fn claim(&self, name: &str, actor: ActorId) -> Result<(), NameError> {
        let claim = Claim::for_test(self.place.id(), actor);
        let wants = Giving {
            names: self,
            name,
            actor,
        };
        loop {
            let settled = tokio::select! {
                biased;
                settled = claim_at(self.place.as_ref(), key(name), &claim, &wants) => settled,
                () = self.place.clock().sleep(PATIENCE) => return Err(NameError::Unknown),
            };
            let lease = match settled {
                Ok(Settled::Ours(lease)) => lease,
                Ok(Settled::Taken(_)) => return Err(NameError::Taken),
                Ok(Settled::Unwanted) => return Ok(()),
                Err(_) => return Err(NameError::Unknown),
            };
            if !self.change(name, actor, |named| named.lease = Some(lease)) {
                self.give_up(name, actor);
                return Ok(());
            }
            if self.place.lease().is_none_or(|now| now == lease) {
                return Ok(());
            }
        }
    }

    fn unname(&self, name: &str, actor: ActorId) {
        let mut table = self.table.lock();
        if table.get(name).is_some_and(|it| it.actor == actor) {
            table.remove(name);
            drop(table);
            self.oracle.unnamed(name, actor);
            self.give_up(name, actor);
        }
    }

    fn give_up(&self, name: &str, actor: ActorId) {
        let claim = Claim::for_test(self.place.id(), actor).to_value();
        let (place, key) = (self.place.clone(), key(name));
        tokio::spawn(async move { unclaim_at(place.as_ref(), key, &claim).await });
    }
}

/// A name that an actor is to have.
struct Giving<'n> {
    names: &'n Names,
    name: &'n str,
    actor: ActorId,
}

#[async_trait]
impl Wants for Giving<'_> {
    fn is_wanted(&self) -> bool {
        self.names.change(self.name, self.actor, |_| ())
    }

    async fn is_held(&self, by: &Claim) -> Option<bool> {
        let place = &self.names.place;
        while place.others().contains(&by.owner) {
            place.clock().sleep(TRIP).await;
            let said = self.names.book.ask(self.names, by, self.name);
            if said.is_some() {
                return said;
            }
        }
        None
    }

    fn waits_for(&self, _: WaitsFor) {}
}
