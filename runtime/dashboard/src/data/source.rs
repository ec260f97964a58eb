//! The node, asked.
//!
//! Invariant: no question takes longer than [`PATIENCE`].

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value as Json;
use wasmrun_client::wire::{
    ActorRow, Address, GroupRow, JobRow, List, MemberRow, NodeStatus, ObjectRow, Output,
    RefusalKind, Rows, ShareRow, Silent, TaskRow, TenantRow,
};
use wasmrun_client::{Client, ConnectError, Described, Error, rows};
use wasmrun_model::fairness::TenantName;

use super::samples::Samples;

/// How long the node may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many tenants there are sessions for at a time.
const MOST_SESSIONS: usize = 64;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The node cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It refuses, or is gone.
    #[error(transparent)]
    Request(#[from] Error),
    /// It takes too long.
    #[error("the node has not answered in {} s; see whether it is busy: `wasmrun status`", PATIENCE.as_secs())]
    Slow,
    /// An id is of something else.
    #[error("there is no such {0}")]
    Missing(&'static str),
}

impl AskError {
    /// Whether there is no such thing.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Missing(_) => true,
            Self::Request(Error::Refused(why)) => {
                matches!(why.kind, RefusalKind::NotFound | RefusalKind::Ambiguous)
            }
            Self::Request(_) | Self::Connect(_) | Self::Slow => false,
        }
    }
}

/// What lists have rows of.
pub trait OfList: Sized {
    /// The rows, if they are such.
    fn of(rows: Rows) -> Option<Vec<Self>>;
}

macro_rules! of_lists {
    ($($row:ty: $rows:ident,)*) => { $(
        impl OfList for $row {
            fn of(rows: Rows) -> Option<Vec<Self>> {
                match rows {
                    Rows::$rows(rows) => Some(rows),
                    _ => None,
                }
            }
        }
    )* };
}

of_lists! {
    TaskRow: Tasks,
    ActorRow: Actors,
    ObjectRow: Objects,
    JobRow: Jobs,
    NodeStatus: Nodes,
    TenantRow: Tenants,
    MemberRow: Members,
    GroupRow: Groups,
    ShareRow: Shares,
}

/// A page of a list.
#[derive(Debug)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page begins, if there may be one.
    pub next: Option<String>,
    /// The nodes that have not answered.
    pub silent: Vec<Silent>,
}

/// The node that is asked. What belongs to a tenant is asked for in a session of that tenant.
#[derive(Debug)]
pub struct Source {
    address: Address,
    clients: tokio::sync::Mutex<BTreeMap<TenantName, Client>>,
    /// What was seen in the last minutes, while somebody looked.
    pub samples: Mutex<Samples>,
}

impl Source {
    /// The node at this address.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn connect(address: Address) -> Result<Self, ConnectError> {
        let client = Client::connect(&address, TenantName::default()).await?;
        let clients = BTreeMap::from([(TenantName::default(), client)]);
        Ok(Self {
            address,
            clients: tokio::sync::Mutex::new(clients),
            samples: Mutex::default(),
        })
    }

    /// A session of this tenant.
    async fn client(&self, tenant: &TenantName) -> Result<Client, AskError> {
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(tenant)
            && client.is_connected()
        {
            return Ok(client.clone());
        }
        if clients.len() >= MOST_SESSIONS {
            clients.clear();
        }
        let connecting = Client::connect(&self.address, tenant.clone());
        let connected = tokio::time::timeout(PATIENCE, connecting).await;
        let client = connected.map_err(|_| AskError::Slow)??;
        clients.insert(tenant.clone(), client.clone());
        Ok(client)
    }

    /// A page of a list, as the state API has it.
    ///
    /// # Errors
    /// When the node gives none.
    pub async fn list(&self, list: List) -> Result<Json, AskError> {
        let client = self.client(&TenantName::default()).await?;
        let what = list.what;
        let due = in_time(client.due(&list)).await?;
        let listed = in_time(client.list(list)).await?;
        Ok(rows::list(what, &listed, &due))
    }

    /// The rows of a page of a list.
    ///
    /// # Errors
    /// When the node gives none.
    pub async fn rows<T: OfList>(&self, list: List) -> Result<Page<T>, AskError> {
        let client = self.client(&TenantName::default()).await?;
        let listed = in_time(client.list(list)).await?;
        Ok(Page {
            rows: T::of(listed.rows).unwrap_or_default(),
            next: listed.next,
            silent: listed.silent,
        })
    }

    /// All about something of a tenant's.
    ///
    /// # Errors
    /// When there is no such thing.
    pub async fn describe(&self, tenant: &TenantName, id: &str) -> Result<Described, AskError> {
        let client = self.client(tenant).await?;
        in_time(client.describe(id)).await
    }

    /// Where something of a tenant's stands and why.
    ///
    /// # Errors
    /// When there is no such thing.
    pub async fn explain(&self, tenant: &TenantName, id: &str) -> Result<String, AskError> {
        let client = self.client(tenant).await?;
        in_time(client.explain(id)).await
    }

    /// What is kept of the output of something of a tenant's: the last `most_bytes` of it, as text. `None` if nothing is.
    pub async fn logs(&self, tenant: &TenantName, id: &str, most_bytes: usize) -> Option<String> {
        let client = self.client(tenant).await.ok()?;
        let outputs: Vec<Output> = in_time(client.logs(id)).await.ok()?;
        let bytes: Vec<u8> = outputs.into_iter().flat_map(|it| it.bytes.0).collect();
        let from = bytes.len().saturating_sub(most_bytes);
        Some(String::from_utf8_lossy(&bytes[from..]).into_owned())
    }

    /// Cancels a task or a job of a tenant's, or ends an actor.
    ///
    /// # Errors
    /// When there is no such thing, or it has ended.
    pub async fn cancel(&self, tenant: &TenantName, id: &str) -> Result<(), AskError> {
        let client = self.client(tenant).await?;
        in_time(client.cancel(id)).await
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, AskError> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(AskError::Slow),
    }
}
