//! Names of actors: which actors of this node have one, and giving, finding and freeing names.
//!
//! Owns the table of this node's names, which keep their actors. In a cluster a name is one of all nodes: it is
//! claimed in the control store (`cluster/named`), and whoever looks for it asks the node that has claimed it.
//! Must not: decide when an actor ends. A node that is in no cluster asks nobody.
//!
//! Invariant: a name is in the table before it is claimed, and the claim is given up after it has left the table. So
//! a claim of this node's that the table does not know is over, and may be replaced.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use wasmrun_control::{Error, LeaseId};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::ActorId;

use crate::guests::claim::{Claim, Settled, Sought, WaitsFor, Wants};
use crate::guests::others::{Directory, Others};
use crate::guests::shared::Shared;
use crate::records::actor::ActorCell;
use crate::records::actor_ref::ActorRef;
use crate::records::dead::Dead;

/// How long the control store and the owner of a name have, in all, to say whose it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon somebody is asked again who could not be reached.
const AGAIN: Duration = Duration::from_millis(100);
/// How many names are claimed anew at a time.
const CLAIMS_AT_A_TIME: usize = 16;
/// The longest name, in bytes.
const MOST_BYTES: usize = 128;

/// Why a name cannot be given to an actor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Another actor has it.
    #[error(
        "the name '{name}' belongs to actor {actor} of node {node}; kill that first, or choose another name"
    )]
    Taken {
        /// The name.
        name: String,
        /// Who has it.
        actor: ActorId,
        /// The node where that was created, by its name.
        node: String,
    },
    /// It is no name.
    #[error("'{0}' is no name for an actor: use 1 to 128 bytes without spaces")]
    Form(String),
    /// Nobody can say whether it is free.
    #[error("whether the name '{name}' is free is not known: {why}")]
    Unknown {
        /// The name.
        name: String,
        /// Who does not answer.
        why: Silent,
    },
}

/// Why an actor is not found by its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// No actor of the tenant has it.
    #[error("there is no actor named '{0}'; create one with that name first")]
    None(String),
    /// The last actor of this node that had it has failed.
    #[error(
        "there is no actor named '{name}' any more: {actor} had that name, and {why}; create it again"
    )]
    Dead {
        /// The name.
        name: String,
        /// Who had it.
        actor: ActorId,
        /// How that failed, in words.
        why: String,
    },
    /// Nobody can say who has it.
    #[error("whether there is an actor named '{name}' is not known: {why}")]
    Unknown {
        /// The name.
        name: String,
        /// Who does not answer.
        why: Silent,
    },
}

/// Who does not answer when a name is looked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Silent {
    /// The control store.
    #[error("the control store does not answer; try again when it does")]
    Store,
    /// The control store, which says why.
    #[error("{0}")]
    Refused(Error),
    /// The node that has claimed it.
    #[error(
        "node {node}, which has it, does not answer; try again, or when that node counts as dead"
    )]
    Owner {
        /// The node, by its name.
        node: String,
    },
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Names(Mutex<HashMap<(TenantName, String), Named>>);

struct Named {
    actor: ActorRef,
    /// What is in the control store for it, or may be.
    claim: Option<Bytes>,
    /// The lease under which that is.
    lease: Option<LeaseId>,
}

/// What is known of a name here.
pub(crate) enum NameState {
    /// It is this actor's, and anybody may find it.
    Public(ActorRef),
    /// Somebody is about to have it.
    Reserved(ActorId),
    None,
}

impl Names {
    /// Whose a name is.
    pub(crate) fn find(&self, tenant: &TenantName, name: &str) -> NameState {
        let names = self.0.lock();
        match names.get(&(tenant.clone(), name.to_owned())) {
            Some(named) if named.actor.is_public() => NameState::Public(named.actor.clone()),
            Some(named) if !named.actor.is_over() => NameState::Reserved(named.actor.id),
            _ => NameState::None,
        }
    }

    /// Actors of a tenant that have names and can be found.
    pub(crate) fn of_tenant(&self, tenant: &TenantName) -> Vec<ActorRef> {
        let names = self.0.lock();
        let of_it = names.iter().filter(|((its, _), _)| its == tenant);
        let public = of_it.filter(|(_, named)| named.actor.is_public());
        public.map(|(_, named)| named.actor.clone()).collect()
    }

    /// The names of all actors that have one.
    pub(crate) fn all(&self) -> BTreeMap<ActorId, String> {
        let names = self.0.lock();
        let all = names.iter();
        all.map(|((_, name), named)| (named.actor.id, name.clone()))
            .collect()
    }

    /// Keeps a name for an actor. What was before it in its place.
    fn reserve(&self, name: &str, actor: &ActorRef) -> Result<Option<ActorRef>, ActorId> {
        let key = (actor.tenant().clone(), name.to_owned());
        let mut names = self.0.lock();
        if let Some(Named { actor: other, .. }) = names.get(&key)
            && !other.is_over()
            && !is_earlier(other, actor)
        {
            return Err(other.id);
        }
        let named = Named {
            actor: actor.clone(),
            claim: None,
            lease: None,
        };
        Ok(names.insert(key, named).map(|before| before.actor))
    }

    /// Something about an actor's name, if it still has it.
    fn change(&self, actor: &ActorCell, change: impl FnOnce(&mut Named)) -> bool {
        let Some(name) = actor.public_name() else {
            return false;
        };
        let key = (actor.tenant().clone(), name.to_owned());
        let mut names = self.0.lock();
        match names.get_mut(&key) {
            Some(named) if named.actor.id == actor.id => {
                change(named);
                true
            }
            _ => false,
        }
    }

    fn remove(&self, actor: &ActorCell) -> Option<Named> {
        let name = actor.public_name()?;
        let key = (actor.tenant().clone(), name.to_owned());
        let mut names = self.0.lock();
        match names.get(&key) {
            Some(named) if named.actor.id == actor.id => names.remove(&key),
            _ => None,
        }
    }

    /// Those whose claims were under another lease than this.
    fn claimed_before(&self, lease: LeaseId) -> Vec<ActorRef> {
        let names = self.0.lock();
        let before = names
            .values()
            .filter(|named| named.lease.is_some_and(|of| of != lease));
        before.map(|named| named.actor.clone()).collect()
    }
}

/// Whether an actor was created by an earlier attempt of what has created this one: it is on its way out.
fn is_earlier(other: &ActorCell, this: &ActorCell) -> bool {
    match (other.creator, this.creator) {
        (Some(other), Some(this)) => other.task == this.task && other.attempt < this.attempt,
        _ => false,
    }
}

fn is_name(name: &str) -> bool {
    let is_odd = |it: char| it.is_whitespace() || it.is_control();
    (1..=MOST_BYTES).contains(&name.len()) && !name.contains(is_odd)
}

fn shown(name: &str) -> String {
    name.chars().take(80).collect()
}

/// A name that is being given: it is free again unless the actor comes to be.
pub(crate) struct Naming {
    shared: Arc<Shared>,
    actor: Option<Arc<ActorCell>>,
}

impl Naming {
    /// The actor keeps its name.
    pub(crate) fn keep(mut self) {
        self.actor = None;
    }
}

impl Drop for Naming {
    fn drop(&mut self) {
        if let Some(actor) = self.actor.take() {
            self.shared.unname(&actor);
        }
    }
}

/// A name that an actor of this node is to have.
struct Giving<'a> {
    shared: &'a Shared,
    directory: &'a dyn Directory,
    others: &'a dyn Others,
    name: &'a str,
    actor: &'a ActorCell,
    /// Who is waited for.
    silent: Mutex<Silent>,
}

#[async_trait]
impl Wants for Giving<'_> {
    fn is_wanted(&self) -> bool {
        self.shared.names.change(self.actor, |_| ())
    }

    async fn is_held(&self, by: &Claim) -> Option<bool> {
        let tenant = self.actor.tenant();
        let sought = self.others.seek(tenant, self.name, by, false);
        Some(!matches!(sought.await?, Sought::Nobody))
    }

    fn waits_for(&self, what: WaitsFor) {
        *self.silent.lock() = match what {
            WaitsFor::Store(error) => Silent::Refused(error),
            WaitsFor::Owner(node) => Silent::Owner {
                node: self.directory.name_of(node),
            },
        };
    }
}

impl Shared {
    /// Whether giving or finding a name may take a while.
    pub(crate) fn are_names_elsewhere(&self) -> bool {
        self.directory.get().is_some()
    }

    /// Gives an actor a name, which keeps it until it is killed or its driver goes.
    ///
    /// # Errors
    /// When another actor has it, in the whole cluster, or nobody can say.
    pub(crate) async fn name_actor(
        self: &Arc<Self>,
        name: String,
        actor: &ActorRef,
    ) -> Result<Naming, NameError> {
        if !is_name(&name) {
            return Err(NameError::Form(shown(&name)));
        }
        let reserved = self.names.reserve(&name, actor);
        drop(reserved.map_err(|other| NameError::Taken {
            name: name.clone(),
            actor: other,
            node: self.name.to_string(),
        })?);
        actor.set_public_name(name.clone());
        let naming = Naming {
            shared: self.clone(),
            actor: Some(actor.cell().clone()),
        };
        if let (Some(directory), Some(others)) = (self.directory.get(), self.others.get()) {
            self.claim(&**directory, &**others, &name, actor).await?;
        }
        Ok(naming)
    }

    /// Claims a name for an actor of ours that has reserved it here, unless it has lost that meanwhile.
    async fn claim(
        self: &Arc<Self>,
        directory: &dyn Directory,
        others: &dyn Others,
        name: &str,
        actor: &ActorCell,
    ) -> Result<(), NameError> {
        let claim = Claim::of(self.home.node, actor);
        // From here on it may be there, whatever we hear of it.
        self.names
            .change(actor, |named| named.claim = Some(claim.to_value()));
        let giving = Giving {
            shared: self,
            directory,
            others,
            name,
            actor,
            silent: Mutex::new(Silent::Store),
        };
        let unknown = |why| NameError::Unknown {
            name: name.to_owned(),
            why,
        };
        loop {
            let claiming = directory.claim(actor.tenant(), name, &claim, &giving);
            let lease = match tokio::time::timeout(PATIENCE, claiming).await {
                Ok(Ok(Settled::Ours(lease))) => lease,
                Ok(Ok(Settled::Unwanted)) => return Ok(()),
                Ok(Ok(Settled::Taken(other))) => {
                    return Err(NameError::Taken {
                        name: name.to_owned(),
                        actor: other.actor,
                        node: directory.name_of(other.owner),
                    });
                }
                Ok(Err(error)) => return Err(unknown(Silent::Refused(error))),
                Err(_) => return Err(unknown(giving.silent.lock().clone())),
            };
            if !self.names.change(actor, |named| named.lease = Some(lease)) {
                // It was given up before it was there.
                self.give_up(actor, claim.to_value());
                return Ok(());
            }
            // An incarnation that began while the answer was on its way has looked only for what was noted.
            if directory.lease().is_none_or(|now| now == lease) {
                return Ok(());
            }
        }
    }

    /// The actor of a tenant that has a name, wherever it was created.
    ///
    /// # Errors
    /// When there is none, or nobody can say.
    pub(crate) async fn find_actor(
        &self,
        tenant: &TenantName,
        name: &str,
    ) -> Result<ActorRef, FindError> {
        let none = || self.was_named(tenant, name);
        let (directory, others) = match self.names.find(tenant, name) {
            NameState::Public(actor) => return Ok(actor),
            // Who is about to have it here may find that another node's has it.
            NameState::Reserved(_) | NameState::None => {
                match (self.directory.get(), self.others.get()) {
                    (Some(directory), Some(others)) if is_name(name) => (directory, others),
                    _ => return Err(none()),
                }
            }
        };
        let unknown = |why| FindError::Unknown {
            name: shown(name),
            why,
        };
        let mut silent = Silent::Store;
        let finding = async {
            let mut before = None;
            loop {
                let other = match directory.claim_of(tenant, name).await {
                    Ok(Some(other)) if other.owner != self.home.node => other,
                    Ok(_) => return Err(none()),
                    Err(error) if error.is_retryable() => {
                        silent = Silent::Refused(error);
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    }
                    Err(error) => return Err(unknown(Silent::Refused(error))),
                };
                silent = Silent::Owner {
                    node: directory.name_of(other.owner),
                };
                match others.seek(tenant, name, &other, true).await {
                    Some(Sought::Actor(actor)) => return Ok(actor),
                    Some(Sought::Claimant) => return Err(none()),
                    // Another may have it by now.
                    Some(Sought::Nobody) if before.as_ref() == Some(&other) => {
                        return Err(none());
                    }
                    Some(Sought::Nobody) => before = Some(other),
                    None => tokio::time::sleep(AGAIN).await,
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, finding).await;
        found.unwrap_or_else(|_| Err(unknown(silent)))
    }

    /// Nobody has this name; who had it and has failed, if that is remembered here.
    fn was_named(&self, tenant: &TenantName, name: &str) -> FindError {
        let is_it = |dead: &&Dead| dead.tenant == *tenant && dead.name.as_deref() == Some(name);
        self.ask(|ledger| match ledger.dead.iter().find(is_it) {
            Some(dead) => FindError::Dead {
                name: shown(name),
                actor: dead.id,
                why: dead.describe(),
            },
            None => FindError::None(shown(name)),
        })
    }

    /// What another node hears that looks for an actor of ours by its name, or asks whether we still have it.
    pub(crate) fn sought(
        &self,
        tenant: &TenantName,
        name: &str,
        actor: ActorId,
        is_wanted: bool,
    ) -> Sought {
        match self.names.find(tenant, name) {
            NameState::Public(known) if known.id == actor && is_wanted => Sought::Actor(known),
            NameState::Public(known) if known.id == actor => Sought::Claimant,
            NameState::Reserved(known) if known == actor => Sought::Claimant,
            _ => Sought::Nobody,
        }
    }

    /// An actor has no name any more.
    pub(crate) fn unname(self: &Arc<Self>, actor: &ActorCell) {
        let Some(named) = self.names.remove(actor) else {
            return;
        };
        let Named {
            actor: named,
            claim,
            ..
        } = named;
        if let Some(claim) = claim {
            self.give_up(actor, claim);
        }
        drop(named);
    }

    /// Takes a claim back, sooner or later.
    fn give_up(self: &Arc<Self>, actor: &ActorCell, claim: Bytes) {
        if let (Some(directory), Some(name)) = (self.directory.get(), actor.public_name()) {
            let (directory, tenant) = (directory.clone(), actor.tenant().clone());
            let name = name.to_owned();
            // It ends when the store has done it, or with the node.
            self.control
                .spawn(async move { directory.unclaim(&tenant, &name, &claim).await });
        }
    }

    /// This node begins a new incarnation: its names were under the lease of the one before, and are claimed anew. Who
    /// has taken one meanwhile keeps it.
    pub(crate) fn claim_names_again(self: &Arc<Self>) -> impl Future<Output = ()> + use<> {
        let shared = self.clone();
        async move {
            let (Some(directory), Some(others)) = (shared.directory.get(), shared.others.get())
            else {
                return;
            };
            let Some(lease) = directory.lease() else {
                return;
            };
            let actors = stream::iter(shared.names.claimed_before(lease));
            // Some may have to wait for nodes that do not answer.
            let each = actors.for_each_concurrent(CLAIMS_AT_A_TIME, |actor| {
                let shared = &shared;
                async move {
                    // Until that is settled, or this incarnation is over too.
                    while directory.lease() == Some(lease) && !actor.is_over() {
                        if shared.claim_again(&**directory, &**others, &actor).await {
                            break;
                        }
                        tokio::time::sleep(AGAIN).await;
                    }
                }
            });
            each.await;
        }
    }

    /// Claims the name of an actor anew. Whether that is settled, one way or the other.
    async fn claim_again(
        self: &Arc<Self>,
        directory: &dyn Directory,
        others: &dyn Others,
        actor: &ActorCell,
    ) -> bool {
        let Some(name) = actor.public_name() else {
            return true;
        };
        match self.claim(directory, others, name, actor).await {
            Ok(()) => true,
            Err(error @ (NameError::Taken { .. } | NameError::Form(_))) => {
                tracing::warn!(actor = %actor.id, %error, "an actor has lost its name");
                self.unname(actor);
                true
            }
            Err(error @ NameError::Unknown { .. }) => {
                tracing::info!(actor = %actor.id, %error, "an actor has no name yet again");
                false
            }
        }
    }
}
