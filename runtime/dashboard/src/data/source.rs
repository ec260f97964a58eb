//! Requests to the node.
//!
//! Invariant: none takes longer than [`PATIENCE`].

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value as Json;
use wasmrun_client::wire::{
    ActorRow, Address, DueRow, GroupRow, JobRow, List, MemberRow, NodeStatus, ObjectRow,
    RefusalKind, Rows, ServiceRow, Silent, TaskRow, TenantRow, What,
};
use wasmrun_client::{Client, ConnectError, Described, Error, rows};
use wasmrun_model::fairness::TenantName;

use super::samples::Samples;

/// How long the node may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many tenants there are sessions for at a time.
const MOST_SESSIONS: usize = 64;
/// How much of an output is shown, in bytes: its end.
const MOST_OUTPUT_BYTES: usize = 64 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The node cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It refuses, or the session is lost.
    #[error(transparent)]
    Request(#[from] Error),
    /// It takes too long.
    #[error("the node has not answered within {} s; see whether it is busy: `wasmrun status`", PATIENCE.as_secs())]
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
    DueRow: Due,
    ServiceRow: Services,
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
    clients: Mutex<BTreeMap<TenantName, Client>>,
    /// Numbers of the last minutes, taken while a browser looked.
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
            clients: Mutex::new(clients),
            samples: Mutex::default(),
        })
    }

    /// A session of this tenant.
    async fn client(&self, tenant: &TenantName) -> Result<Client, AskError> {
        let known = self.clients.lock().get(tenant).cloned();
        if let Some(client) = known.filter(Client::is_connected) {
            return Ok(client);
        }
        let connecting = Client::connect(&self.address, tenant.clone());
        let connected = tokio::time::timeout(PATIENCE, connecting).await;
        let client = connected.map_err(|_| AskError::Slow)??;
        let mut clients = self.clients.lock();
        if clients.len() >= MOST_SESSIONS {
            clients.clear();
        }
        clients.insert(tenant.clone(), client.clone());
        Ok(client)
    }

    /// A session of the tenant that a task, a job, an actor or an object belongs to.
    async fn client_of(&self, what: What, id: &str) -> Result<Client, AskError> {
        let client = self.client(&TenantName::default()).await?;
        let listed = in_time(client.list(List::of(what).with("id", id))).await?;
        let tenant = match &listed.rows {
            Rows::Tasks(rows) => rows.first().map(|it| &it.tenant),
            Rows::Jobs(rows) => rows.first().map(|it| &it.tenant),
            Rows::Actors(rows) => rows.first().map(|it| &it.tenant),
            Rows::Objects(rows) => rows.first().map(|it| &it.tenant),
            _ => None,
        };
        match tenant {
            Some(tenant) => self.client(tenant).await,
            // Asked for it, the node says why it is not there.
            None => Ok(client),
        }
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

    /// All that is known of a task, a job, an actor or an object.
    ///
    /// # Errors
    /// When there is no such thing.
    pub async fn describe(&self, what: What, id: &str) -> Result<Described, AskError> {
        let client = self.client_of(what, id).await?;
        in_time(client.describe(id)).await
    }

    /// Why a tenant's task stands where it does.
    ///
    /// # Errors
    /// When there is no such thing.
    pub async fn explain(&self, tenant: &TenantName, id: &str) -> Result<String, AskError> {
        let client = self.client(tenant).await?;
        in_time(client.explain(id)).await
    }

    /// The end of the output that is kept of a tenant's task, job or actor, as text.
    ///
    /// # Errors
    /// When none is kept: [`Error::Refused`].
    pub async fn logs(&self, tenant: &TenantName, id: &str) -> Result<String, AskError> {
        let client = self.client(tenant).await?;
        let mut end = Vec::<u8>::new();
        let read = client.each_log(id, |output| {
            end.extend(output.bytes.0);
            end.drain(..end.len().saturating_sub(MOST_OUTPUT_BYTES));
        });
        in_time(read).await?;
        Ok(String::from_utf8_lossy(&end).into_owned())
    }

    /// Cancels a task or a job, or kills an actor.
    ///
    /// # Errors
    /// When there is no such thing, or it has ended.
    pub async fn cancel(&self, what: What, id: &str) -> Result<(), AskError> {
        let client = self.client_of(what, id).await?;
        in_time(client.cancel(id)).await
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, AskError> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(AskError::Slow),
    }
}
