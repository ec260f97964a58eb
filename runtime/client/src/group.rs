//! Placement groups: creation, waiting, ends.

use std::time::Duration;

use wasmrun_model::cluster::Strategy;
use wasmrun_model::group::GroupSpec;
use wasmrun_model::id::GroupId;
use wasmrun_model::units;
use wasmrun_model::wire::{self, Request, Response};

use crate::error::{Error, GroupError};
use crate::{Client, CreateActor, Submit};

/// A placement group, to be created.
#[derive(Debug, Clone)]
pub struct CreateGroup {
    /// All that can be said about it.
    pub wire: wire::CreateGroup,
}

impl CreateGroup {
    /// A group of this kind with these bundles.
    pub fn new(spec: GroupSpec) -> Self {
        let (spec, selectors) = spec.without_selectors();
        Self {
            wire: wire::CreateGroup {
                spec,
                name: None,
                is_detached: false,
                selectors,
            },
        }
    }

    /// Gives it a name, for people.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.wire.name = Some(name.to_owned());
        self
    }

    /// Lets it stay when the session ends, until it is removed.
    #[must_use]
    pub fn detached(mut self) -> Self {
        self.wire.is_detached = true;
        self
    }
}

/// Bundles of resources that are reserved together. Cheap to clone. It ends with the session that created it,
/// unless it is detached, or when it is removed; not when this is dropped.
#[derive(Debug, Clone)]
pub struct Group {
    id: GroupId,
    client: Client,
    /// Why it ends with its node, if it was to outlive that.
    why_not_durable: Option<String>,
}

impl Client {
    /// Creates a placement group, for tasks and actors of the session's tenant. One that cannot be had now
    /// waits: see [`Group::ready`].
    ///
    /// # Errors
    /// When the tenant has too many, or the node is alone and can never reserve it.
    pub async fn create_group(&self, create: CreateGroup) -> Result<Group, Error> {
        let request = Request::CreateGroup(Box::new(create.wire));
        match self.request(request).await? {
            Response::Group(id) => Ok(self.group(id)),
            Response::GroupHere { group, why } => Ok(Group {
                why_not_durable: Some(why),
                ..self.group(group)
            }),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// A group that somebody has created, at whichever node of the cluster. Whether there is one, its use
    /// says.
    pub fn group(&self, id: GroupId) -> Group {
        let client = self.clone();
        Group {
            id,
            client,
            why_not_durable: None,
        }
    }

    /// Waits until tasks can run in all bundles of a group, by its name or a unique prefix of its id.
    ///
    /// # Errors
    /// When there is no such group (any more), or time is up, and why it is not ready.
    pub async fn group_ready(
        &self,
        group: &str,
        timeout: Option<Duration>,
    ) -> Result<(), GroupError> {
        let request = Request::GroupReady {
            group: group.to_owned(),
            timeout_ms: timeout.map(units::ms),
        };
        match self.request(request).await? {
            Response::Done => Ok(()),
            Response::NotReady(why) => Err(GroupError::TimedOut(why)),
            other => Err(Error::unexpected(&other).into()),
        }
    }

    /// Ends a group, by its name or a unique prefix of its id. What runs in it is killed.
    ///
    /// # Errors
    /// When there is no such group.
    pub async fn remove_group(&self, group: &str) -> Result<(), Error> {
        self.done(Request::RemoveGroup(group.to_owned())).await
    }
}

impl Group {
    /// Its id.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// Why it ends if its node is lost, where it was created as detached at a node of a cluster, and so should stay.
    pub fn why_not_durable(&self) -> Option<&str> {
        self.why_not_durable.as_deref()
    }

    /// The strategy of what is to run in it: in the bundle of this number, or in any.
    pub fn strategy(&self, bundle: Option<u32>) -> Strategy {
        let group = self.id;
        Strategy::PlacementGroup { group, bundle }
    }

    /// Waits until tasks can run in all its bundles. They may be submitted before, and wait for it too.
    ///
    /// # Errors
    /// When it has ended, or time is up, and why it is not ready.
    pub async fn ready(&self, timeout: Option<Duration>) -> Result<(), GroupError> {
        self.client.group_ready(&self.id.to_string(), timeout).await
    }

    /// Ends it. What runs in it is killed.
    ///
    /// # Errors
    /// When it has ended already.
    pub async fn remove(&self) -> Result<(), Error> {
        self.client.remove_group(&self.id.to_string()).await
    }
}

impl Submit {
    /// Has it run in a bundle of a placement group: the one of this number, or any.
    #[must_use]
    pub fn group(mut self, group: &Group, bundle: Option<u32>) -> Self {
        self.wire.terms.strategy = group.strategy(bundle);
        self
    }
}

impl CreateActor {
    /// Has it live in a bundle of a placement group: the one of this number, or any.
    #[must_use]
    pub fn group(mut self, group: &Group, bundle: Option<u32>) -> Self {
        self.wire.terms.strategy = group.strategy(bundle);
        self
    }
}
