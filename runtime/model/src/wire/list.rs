//! What a client wants listed. As in [`super::message`], the order is a wire layout.

use serde::{Deserialize, Serialize};

/// What to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Tasks and calls: live ones, and those that ended last.
    Tasks,
    /// Live actors.
    Actors,
    /// Objects that are kept or in the store.
    Objects,
    /// Sessions with live tasks.
    Jobs,
    /// Modules that are loaded.
    Modules,
    /// The node.
    Nodes,
    /// Tenants.
    Tenants,
    /// The nodes of the cluster.
    Members,
    /// Join tokens.
    Tokens,
    /// Placement groups.
    Groups,
    /// What each tenant is due of the whole cluster, and what it has.
    Shares,
    /// Clients that have a certificate of the cluster.
    Clients,
}

impl What {
    /// The fields that a list can be filtered by. The `actor` of a task is the one that it creates or is a call of.
    pub const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Tasks => &["id", "name", "state", "tenant", "job", "node", "actor"],
            Self::Actors => &["id", "name", "class", "state", "tenant", "node"],
            Self::Objects => &["id", "place", "tenant", "kept", "node"],
            Self::Jobs => &["id", "node"],
            Self::Modules => &["digest", "node"],
            Self::Nodes => &[],
            Self::Tenants => &["name", "node"],
            Self::Shares => &["name", "weight"],
            Self::Members => &["name", "id", "state"],
            Self::Tokens => &["id", "kind", "state"],
            Self::Clients => &["id", "name", "state"],
            Self::Groups => &["id", "name", "kind", "state", "tenant", "job", "node"],
        }
    }
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Of what.
    pub what: What,
    /// Only rows where all of these fields have these values, as the table shows them.
    pub filters: Vec<(String, String)>,
}
