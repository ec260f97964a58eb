//! What is said of tenants, and of who may do what for them: settings, tokens, clients, secrets, the audit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::view::Amounts;
use crate::access::{Access, Role, Tenants};
use crate::fairness::{Quota, TenantName, Weight};
use crate::id::DriverId;
use crate::resource::ResourceName;
use crate::secret::SecretName;

/// What is to change of what a tenant is due, and of its quota. What is not given stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeTenant {
    /// The tenant.
    pub tenant: TenantName,
    /// How much it counts beside the others.
    pub weight: Option<Weight>,
    /// What it is guaranteed, of at most [`super::MAX_MINIMA`] resources; nothing if empty.
    pub min: Option<Amounts>,
    /// How much it counts beside the others where it is about single resources, of at most [`super::MAX_MINIMA`], in place
    /// of all that was set of that.
    pub resource_weights: Option<Weights>,
    /// What it may use at once with all that are part of it, of at most [`super::MAX_MINIMA`] resources; no bound if empty.
    pub max: Option<Amounts>,
    /// How many sandboxes it may have at once; `Some(None)`: no bound.
    pub max_tasks: Option<Option<u32>>,
    /// How many of its tasks may wait at one node; `Some(None)`: no bound.
    pub max_waiting: Option<Option<u32>>,
    /// How many bytes of objects it may have in memory at each node; `Some(None)`: no bound.
    pub max_objects: Option<Option<u64>>,
    /// How many detached tasks that have not ended it may have at each node; `Some(None)`: no bound.
    pub max_detached: Option<Option<u64>>,
    /// Whether its tasks may ask not to be paused or stopped for others.
    pub no_preempt: Option<bool>,
}

/// What a tenant is due, and its quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantChanged {
    /// The tenant.
    pub tenant: TenantName,
    /// How much it counts beside the others.
    pub weight: Weight,
    /// What it is guaranteed.
    pub min: Amounts,
    /// What it may have at once.
    pub quota: Quota,
    /// What the operator should know, for people: a guarantee that no node can keep now, for instance.
    pub notes: Vec<String>,
}

/// Weights of single resources.
pub type Weights = BTreeMap<ResourceName, Weight>;

/// A join token for clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientToken {
    /// What its clients are called and may do. The name may be empty.
    pub access: Access,
    /// Whether it serves more than once.
    pub is_reusable: bool,
    /// How long it serves, in milliseconds.
    pub lifetime_ms: u64,
}

/// Who a client is to its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoAmI {
    /// What it is called and may do.
    pub access: Access,
    /// The tenant of what the session submits, if it does not say otherwise.
    pub tenant: TenantName,
    /// The node.
    pub node: String,
    /// Where the node sees the client, for people.
    pub from: String,
}

/// A secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRow {
    /// Its name.
    pub name: SecretName,
    /// Whose it is.
    pub tenant: TenantName,
    /// How long the value is, in bytes.
    pub bytes: u64,
    /// When it was set, in seconds since 1970, by the clock of the head.
    pub set_s: u64,
    /// Who has set it, for people.
    pub by: String,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRow {
    /// Its name.
    pub name: TenantName,
    /// What its tasks hold at the node.
    pub used: Amounts,
    /// How many bytes of its objects are in memory there.
    pub objects_bytes: u64,
    /// Its dominant share of the cluster, as far as the node knows, as text.
    pub share: String,
    /// Tasks that it has submitted and that have ended well, badly and by being cancelled.
    pub submitted: u64,
    /// See `submitted`.
    pub finished: u64,
    /// See `submitted`.
    pub failed: u64,
    /// See `submitted`.
    pub cancelled: u64,
    /// The node that says so.
    pub node: String,
}

/// What a tenant is due of the whole cluster and what it has with all that are part of it, and its quota, as far as the node
/// that is asked knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueRow {
    /// Its name.
    pub name: TenantName,
    /// How much it counts beside the others.
    pub weight: Weight,
    /// What it is guaranteed.
    pub min: Amounts,
    /// Its dominant share, without weights, as text.
    pub share: String,
    /// What its tasks hold.
    pub used: Amounts,
    /// What it may have at once.
    pub quota: Quota,
    /// How many sandboxes it has: at the node that is asked, and at the others where a quota bounds them.
    pub tasks: u64,
    /// How many of its tasks wait at the node that is asked.
    pub waiting: u64,
}

/// A join token. Its secret is shown once, when it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// Its id.
    pub id: String,
    /// What it makes: `node` or `client`.
    pub kind: String,
    /// `valid`, `used`, `expired` or `revoked`.
    pub state: String,
    /// Whether it serves more than once.
    pub is_reusable: bool,
    /// How many have joined with it.
    pub joined: u32,
    /// How long it serves, in milliseconds.
    pub left_ms: u64,
}

/// Somebody who has a certificate of the cluster as a client, and what that says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRow {
    /// Its id, which is made from its public key.
    pub id: String,
    /// Its name, from its token.
    pub name: Option<String>,
    /// `valid`, `expired` or `revoked`.
    pub state: String,
    /// How long ago it has logged in, in milliseconds, if that is known.
    pub age_ms: Option<u64>,
    /// How long its last certificate is of use, in milliseconds, if that is known.
    pub left_ms: Option<u64>,
    /// What it may do.
    pub role: Role,
    /// For whom.
    pub tenants: Tenants,
}

/// A line of the audit of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// Its number among the lines of that node, from 1.
    pub sequence: u64,
    /// When it was answered, in microseconds since 1970, by the clock of that node.
    pub time_us: u64,
    /// The same as RFC 3339 has it.
    pub time: String,
    /// The node that was asked.
    pub node: String,
    /// Who has asked.
    pub who: String,
    /// From where.
    pub from: String,
    /// The tenant of its session.
    pub tenant: Option<String>,
    /// What was asked for, as the command line calls it.
    pub action: String,
    /// What it was done to.
    pub subject: Option<String>,
    /// The job that it belongs to.
    pub job: Option<DriverId>,
    /// What else is to be known: no arguments of tasks, and no secrets.
    pub details: BTreeMap<String, String>,
    /// `done`, `refused`, or `unknown` where the client was gone before the answer.
    pub outcome: String,
    /// Of one that was refused, what kind of reason it had,
    pub kind: Option<String>,
    /// and the reason.
    pub error: Option<String>,
}
