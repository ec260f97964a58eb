//! Requests about the cluster: its nodes and join tokens.
//!
//! Those that ask the control store wait for it, so they run beside the reading.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wasmrun_model::access::{Access, Tenants};
use wasmrun_model::cluster::NodeName;
use wasmrun_model::id::{IdPrefix, NodeId};
use wasmrun_model::wire::{
    ClientToken, List, MemberRow, NodeStatus, Refusal, RefusalKind, Response, Rows, TokenRow,
};
use wasmrun_net::{ClientId, TokenKind};

use super::Inner;
use super::lists::passes;
use super::session::{Session, refusal};
use super::views::status;
use crate::cluster::{ClientsError, Cluster, TokensError};
use crate::ledger::LOCAL;

impl Session {
    /// The node's cluster, for a request that is about one.
    fn cluster(&self) -> Result<&Arc<Cluster>, Refusal> {
        self.inner.cluster().ok_or_else(|| {
            let why = "this node is in no cluster; begin one with `wasmrun node start --head`";
            refusal(RefusalKind::Usage, why)
        })
    }

    pub(super) async fn create_client_token(
        &self,
        token: ClientToken,
    ) -> Result<Response, Refusal> {
        let ClientToken {
            access,
            is_reusable,
            lifetime_ms,
        } = token;
        let access = access.checked();
        let mut access = access.map_err(|why| refusal(RefusalKind::Usage, why))?;
        if !access.name.is_empty() {
            access.name = checked_name(access.name)?;
        }
        self.create_token(Some(access), is_reusable, lifetime_ms)
            .await
    }

    /// A token for clients that may do this, or for nodes.
    pub(super) async fn create_token(
        &self,
        access: Option<Access>,
        is_reusable: bool,
        lifetime_ms: u64,
    ) -> Result<Response, Refusal> {
        let kind = match access {
            Some(_) => TokenKind::Client,
            None => TokenKind::Node,
        };
        let lifetime = Duration::from_millis(lifetime_ms);
        let token = self
            .cluster()?
            .create_token(kind, is_reusable, lifetime, access);
        let token = token.await.map_err(refused)?;
        Ok(Response::Text(token.to_string()))
    }

    pub(super) async fn revoke_token(&self, prefix: &str) -> Result<Response, Refusal> {
        let revoked = self.cluster()?.revoke_token(prefix).await;
        revoked.map(|()| Response::Done).map_err(refused)
    }

    pub(super) async fn revoke_client(&self, text: &str) -> Result<Response, Refusal> {
        let revoked = self.cluster()?.revoke_client(text).await;
        let client = revoked.map_err(not_revoked)?;
        tracing::info!(%client, "a client's certificate was taken back");
        Ok(Response::Text(client.to_string()))
    }

    pub(super) async fn drain(&self, node: &str, is_draining: bool) -> Result<Response, Refusal> {
        let cluster = self.cluster()?;
        let drained = cluster.drain(living(cluster, node)?, is_draining).await;
        match drained.map_err(|error| refusal(RefusalKind::Full, error))? {
            true => Ok(Response::Done),
            false => {
                let why = format_args!("node '{node}' has just died");
                Err(refusal(RefusalKind::NotFound, why))
            }
        }
    }

    pub(super) async fn remove_node(
        &self,
        node: &str,
        is_forced: bool,
    ) -> Result<Response, Refusal> {
        let cluster = self.cluster()?;
        let (id, name) = removable(&cluster.members(), node, is_forced)?;
        let removed = cluster.remove(id, name).await;
        removed.map_err(|error| refusal(RefusalKind::Full, error))?;
        tracing::info!(node = %id, "a node was taken out of the cluster");
        Ok(Response::Text(id.to_string()))
    }

    /// The clients that have certificates, and what they may do.
    pub(super) async fn access(&self, list: &List) -> Result<Rows, Refusal> {
        let rows = self.cluster()?.list_clients().await;
        let mut rows = rows.map_err(not_revoked)?;
        rows.retain(|row| {
            let name = row.name.as_deref().unwrap_or_default();
            let fields: [(&str, &dyn std::fmt::Display); 4] = [
                ("id", &row.id),
                ("name", &name),
                ("state", &row.state),
                ("role", &row.role),
            ];
            passes(list, &fields)
        });
        rows.truncate(Rows::MAX);
        Ok(Rows::Access(rows))
    }

    /// The join tokens that are remembered.
    pub(super) async fn tokens(&self, list: &List) -> Result<Rows, Refusal> {
        let mut rows = self.cluster()?.tokens().await.map_err(refused)?;
        rows.retain(|row: &TokenRow| {
            passes(
                list,
                &[("id", &row.id), ("kind", &row.kind), ("state", &row.state)],
            )
        });
        rows.truncate(Rows::MAX);
        Ok(Rows::Tokens(rows))
    }
}

/// The longest name of a client, in bytes.
const MOST_NAME_BYTES: usize = 64;

/// Refuses what would not be readable in a list, or would be taken for an id.
fn checked_name(name: String) -> Result<String, Refusal> {
    let is_fit = |it: char| it.is_ascii_alphanumeric() || "-_.@".contains(it);
    let is_id = ClientId::parse(&name).is_some();
    if !name.is_empty() && name.len() <= MOST_NAME_BYTES && name.chars().all(is_fit) && !is_id {
        return Ok(name);
    }
    let shown: String = name.chars().take(80).collect();
    let why = format_args!(
        "'{shown}' is no name for a client: use 1 to {MOST_NAME_BYTES} letters, digits and any of - _ . @, and no id"
    );
    Err(refusal(RefusalKind::Usage, why))
}

fn not_revoked(error: ClientsError) -> Refusal {
    let kind = match &error {
        ClientsError::Unknown(_) => RefusalKind::NotFound,
        ClientsError::Ambiguous { .. } => RefusalKind::Ambiguous,
        ClientsError::KeyInUse(_) | ClientsError::Revoked(_) => RefusalKind::Usage,
        ClientsError::Store(_) | ClientsError::Record { .. } => RefusalKind::Full,
    };
    refusal(kind, error)
}

/// The one node whose id begins so.
fn begun_so<'a>(prefix: &str, members: &'a [MemberRow]) -> Result<&'a MemberRow, Refusal> {
    let begins = IdPrefix::parse(prefix);
    let is_fit = |row: &&MemberRow| begins.is_some_and(|it| it.begins(&row.id));
    let mut fit = members.iter().filter(is_fit);
    let shown: String = prefix.chars().take(80).collect();
    match (fit.next(), fit.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => {
            let why = format_args!("there is no node '{shown}'; see `wasmrun list nodes`");
            Err(refusal(RefusalKind::NotFound, why))
        }
        (Some(_), Some(_)) => {
            let why =
                format_args!("'{shown}' begins the id of more than one node; give more of it");
            Err(refusal(RefusalKind::Ambiguous, why))
        }
    }
}

/// The node that lives and has this name, or whose id begins so.
pub(super) fn living(cluster: &Cluster, node: &str) -> Result<NodeId, Refusal> {
    among_living(cluster.members(), node)
}

fn among_living(members: Vec<MemberRow>, node: &str) -> Result<NodeId, Refusal> {
    let (gone, living): (Vec<_>, Vec<_>) = members.into_iter().partition(is_gone);
    if let Some(row) = living.iter().find(|row| row.name == node) {
        return Ok(row.id);
    }
    let found = begun_so(node, &living).map(|row| row.id);
    match (found, gone.iter().find(|row| row.name == node)) {
        (Err(_), Some(row)) => {
            let state = &row.state;
            let why = format_args!(
                "node '{node}' is {state}, and this is for nodes that live: `wasmrun node list` shows them"
            );
            Err(refusal(RefusalKind::NotFound, why))
        }
        (found, _) => found,
    }
}

/// Which node is meant, and what it is called, if it may be removed.
fn removable(
    members: &[MemberRow],
    node: &str,
    is_forced: bool,
) -> Result<(NodeId, Option<NodeName>), Refusal> {
    let usage = |why: std::fmt::Arguments<'_>| Err(refusal(RefusalKind::Usage, why));
    // A name that is used again is that of who lives.
    let named = members.iter().filter(|row| row.name == node);
    let row = match (named.min_by_key(|row| is_gone(row)), node.parse::<NodeId>()) {
        (Some(row), _) => row,
        // It need not be known here.
        (None, Ok(id)) => match members.iter().find(|row| row.id == id) {
            Some(row) => row,
            None => return Ok((id, None)),
        },
        (None, Err(_)) => begun_so(node, members)?,
    };
    if row.is_own {
        return usage(format_args!(
            "node '{node}' is the one that you ask: ask another, or end it with `wasmrun node stop`"
        ));
    }
    if row.is_head {
        return usage(format_args!(
            "node '{node}' is the head: it has the authority that all others are known by, and the cluster is none without it"
        ));
    }
    if !is_gone(row) && !is_forced {
        return usage(format_args!(
            "node '{node}' lives: drain it (`wasmrun node drain {node}`) and stop it first, or say --force: then its work \
             begins elsewhere, and what only it has is lost"
        ));
    }
    Ok((row.id, row.name.parse().ok()))
}

fn refused(error: TokensError) -> Refusal {
    let kind = match &error {
        TokensError::Unknown(_) => RefusalKind::NotFound,
        TokensError::Store(_) | TokensError::Record(_) | TokensError::NoHead => RefusalKind::Full,
    };
    let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
    refusal(kind, format_args!("{error}{}", source.unwrap_or_default()))
}

/// The nodes of the cluster; of a node that is alone, that.
pub(super) fn members(inner: &Inner, list: &List) -> Vec<MemberRow> {
    let mut rows = match inner.cluster() {
        Some(cluster) => cluster.members(),
        None => vec![alone(status(inner, &Tenants::All))],
    };
    if inner.is_draining.load(Ordering::Acquire)
        && let Some(own) = rows.iter_mut().find(|row| row.is_own)
    {
        own.state = "stopping".to_owned();
    }
    rows.retain(|row| {
        passes(
            list,
            &[("name", &row.name), ("id", &row.id), ("state", &row.state)],
        )
    });
    sort(&mut rows);
    rows.truncate(Rows::MAX);
    rows
}

/// By name, those that are gone behind all others: they may be many.
fn sort(rows: &mut [MemberRow]) {
    rows.sort_by_cached_key(|row| (is_gone(row), row.name.clone(), row.id, row.incarnation));
}

fn is_gone(row: &MemberRow) -> bool {
    matches!(&row.state[..], "dead" | "removed")
}

fn alone(status: NodeStatus) -> MemberRow {
    MemberRow {
        name: status.name,
        id: LOCAL,
        state: "alive".to_owned(),
        incarnation: 0,
        address: None,
        is_head: false,
        is_own: true,
        total: status.total,
        available: status.available,
        since_ms: status.up_ms,
        version: status.version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row((name, state): (&str, &str)) -> MemberRow {
        MemberRow {
            name: name.into(),
            id: LOCAL,
            state: state.into(),
            incarnation: 1,
            address: None,
            is_head: false,
            is_own: false,
            total: Default::default(),
            available: Default::default(),
            since_ms: 0,
            version: String::new(),
        }
    }

    #[test]
    fn who_is_gone_is_not_said_to_be_unknown() {
        for state in ["dead", "removed"] {
            let members = || vec![row(("n1", "draining")), row(("n0", state))];
            assert_eq!(among_living(members(), "n1").ok(), Some(LOCAL));
            for (name, says) in [("n0", state), ("n2", "there is no node 'n2'")] {
                let refused = among_living(members(), name).unwrap_err();
                assert!(refused.message.contains(says), "{}", refused.message);
            }
        }
    }

    #[test]
    fn nodes_are_listed_by_name_and_those_that_are_gone_last() {
        let nodes = [
            ("n3", "alive"),
            ("n0", "dead"),
            ("n2", "draining"),
            ("n1", "alive"),
        ];
        let mut rows = nodes.map(row);
        sort(&mut rows);
        let names = rows.map(|row| row.name);
        assert_eq!(names, ["n1", "n2", "n3", "n0"]);
    }
}
