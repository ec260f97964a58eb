//! What a client wants listed. As in [`super::message`], the order is a wire layout.

use serde::{Deserialize, Serialize};

use super::view::Rows;

/// What to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Tasks and calls: live ones, and those that have ended and are in the history.
    Tasks,
    /// Live actors.
    Actors,
    /// Objects that are kept or in the store.
    Objects,
    /// Jobs: those that run, and those that ended last.
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
    /// What each tenant is due of the whole cluster and what it has, with its quota.
    Due,
    /// Clients that have a certificate of the cluster, and what they may do.
    Access,
    /// Attempts of tasks that have ended, those that others followed included.
    Attempts,
    /// Services.
    Services,
    /// What was done to the cluster, and by whom: lines of the audit, the last ones first.
    Audit,
}

impl What {
    /// The fields that a list can be filtered by. The `actor` of a task is the one that it creates or is a call of.
    pub const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Tasks | Self::Attempts => &[
                "id", "name", "state", "tenant", "job", "node", "actor", "parent",
            ],
            Self::Actors => &["id", "name", "class", "state", "tenant", "node"],
            Self::Objects => &["id", "place", "tenant", "kept", "node"],
            Self::Jobs => &["id", "name", "state", "tenant", "detached", "node"],
            Self::Modules => &["digest", "node"],
            Self::Nodes => &[],
            Self::Tenants => &["name", "node"],
            Self::Due => &["name", "weight"],
            Self::Members => &["name", "id", "state"],
            Self::Services => &["name", "tenant", "node"],
            Self::Tokens => &["id", "kind", "state"],
            Self::Access => &["id", "name", "state", "role"],
            Self::Groups => &["id", "name", "kind", "state", "tenant", "job", "node"],
            Self::Audit => &[
                "node", "who", "tenant", "action", "subject", "job", "outcome",
            ],
        }
    }
}

/// What states of tasks are called in rows. Of an actor it is that of its creation.
const TASK_STATES: &[&str] = &[
    "placeable",
    "waiting-for-actor",
    "waiting",
    "ready",
    "dispatching",
    "running",
    "blocked",
    "infeasible",
    "ending",
    "ended",
    "finished",
    "failed",
    "cancelled",
];

impl What {
    /// All values that a field can have, where these are few.
    pub fn choices(self, field: &str) -> Option<&'static [&'static str]> {
        Some(match (self, field) {
            (Self::Tasks | Self::Actors, "state") => TASK_STATES,
            (Self::Attempts, "state") => &["finished", "failed", "cancelled", "retried"],
            (Self::Jobs, "state") => &["running", "finished", "failed", "cancelled"],
            (Self::Jobs, "detached") => &["yes", "no"],
            (Self::Objects, "place") => {
                &["memory", "disk", "writing", "inline", "elsewhere", "lost"]
            }
            (Self::Objects, "kept") => &["yes", "no"],
            (Self::Members, "state") => &[
                "alive",
                "draining",
                "unreachable",
                "unconfirmed",
                "stopping",
                "dead",
                "removed",
            ],
            (Self::Tokens, "kind") => &["node", "client"],
            (Self::Tokens, "state") => &["valid", "used", "expired", "revoked"],
            (Self::Access, "state") => &["valid", "expired", "revoked"],
            (Self::Access, "role") => &["viewer", "submitter", "operator"],
            (Self::Groups, "kind") => &["pack", "spread", "strict_pack", "strict_spread"],
            (Self::Groups, "state") => &[
                "pending",
                "preparing",
                "committing",
                "ready",
                "removing",
                "unowned",
            ],
            (Self::Audit, "outcome") => &["done", "refused", "unknown"],
            _ => return None,
        })
    }

    /// Whether a field is an id, of which the beginning will do.
    pub fn is_id(self, field: &str) -> bool {
        self.fields().contains(&field) && matches!(field, "id" | "job" | "parent" | "digest")
    }
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Of what.
    pub what: What,
    /// Only rows where all of these fields have these values, as the table shows them; of an id the beginning will do.
    pub filters: Vec<(String, String)>,
    /// How many rows at most; [`Rows::MAX`](super::Rows::MAX) at most, and if it is 0.
    pub limit: u32,
    /// Only rows behind this place: [`Listed::next`](super::Listed::next) of the page before. For tasks, attempts, jobs and the
    /// audit.
    pub after: Option<String>,
}

impl List {
    /// All of something, as far as one page goes.
    pub const fn of(what: What) -> Self {
        Self {
            what,
            filters: Vec::new(),
            limit: 0,
            after: None,
        }
    }

    /// Only rows where this field has this value, too.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl ToString) -> Self {
        self.filters.push((field.to_owned(), value.to_string()));
        self
    }

    /// How many rows the page may have.
    pub fn page(&self) -> usize {
        match self.limit as usize {
            0 => Rows::MAX,
            limit => limit.min(Rows::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::GroupKind;
    use crate::task::Phase;

    #[test]
    fn whatever_rows_can_have_is_a_choice() {
        let choices = |what: What, field| what.choices(field).unwrap_or_default();
        for phase in Phase::ALL {
            assert!(choices(What::Tasks, "state").contains(&phase.name()));
        }
        let kinds = GroupKind::ALL.map(GroupKind::name);
        assert_eq!(choices(What::Groups, "kind"), kinds);
        assert_eq!(What::Tasks.choices("name"), None);
    }
}
