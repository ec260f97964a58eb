//! Requests about the cluster: its nodes and join tokens.
//!
//! Those that ask the control store wait for it, so they run beside the reading.

use std::sync::atomic::Ordering;
use std::time::Duration;

use wasmrun_model::cluster::NodeName;
use wasmrun_model::id::{IdPrefix, NodeId};
use wasmrun_model::wire::{
    ClientRow, List, Listed, MemberRow, NodeStatus, Refusal, RefusalKind, Request, Response, Rows,
    TokenRow, What,
};
use wasmrun_net::{ClientId, TokenKind};

use super::Inner;
use super::lists::passes;
use super::session::{Session, refusal};
use super::views::status;
use crate::cluster::{ClientsError, Cluster, TokensError};
use crate::ledger::LOCAL;

impl Session {
    /// Answers a request that asks the control store.
    pub(super) async fn of_cluster(&self, request: Request) -> Result<Response, Refusal> {
        let cluster = self.inner.cluster().ok_or_else(|| {
            let why = "this node is in no cluster; begin one with `wasmrun node start --head`";
            refusal(RefusalKind::Usage, why)
        })?;
        match request {
            Request::CreateToken {
                is_for_clients,
                is_reusable,
                lifetime_ms,
            } => {
                let lifetime = Duration::from_millis(lifetime_ms);
                let kind = match is_for_clients {
                    true => TokenKind::Client,
                    false => TokenKind::Node,
                };
                let token = cluster
                    .create_token(kind, is_reusable, lifetime, None)
                    .await;
                token
                    .map(|token| Response::Text(token.to_string()))
                    .map_err(refused)
            }
            Request::CreateClientToken {
                name,
                is_reusable,
                lifetime_ms,
            } => {
                check_name(&name)?;
                let lifetime = Duration::from_millis(lifetime_ms);
                let token =
                    cluster.create_token(TokenKind::Client, is_reusable, lifetime, Some(name));
                let token = token.await.map_err(refused)?;
                Ok(Response::Text(token.to_string()))
            }
            Request::RevokeClient(text) => {
                let revoked = cluster.changed(cluster.clients().revoke(&text)).await;
                let client = revoked.map_err(not_revoked)?;
                tracing::info!(%client, "a client's certificate was taken back");
                Ok(Response::Text(client.to_string()))
            }
            Request::RevokeToken(prefix) => {
                let revoked = cluster.revoke_token(&prefix).await;
                revoked.map(|()| Response::Done).map_err(refused)
            }
            Request::Drain { node, is_draining } => drain(cluster, &node, is_draining).await,
            Request::RemoveNode { node, is_forced } => remove(cluster, &node, is_forced).await,
            Request::List(list) if list.what == What::Clients => {
                let mut rows = cluster.list_clients().await.map_err(not_revoked)?;
                rows.retain(|row: &ClientRow| {
                    let name = row.name.as_deref().unwrap_or_default();
                    passes(
                        &list,
                        &[("id", &row.id), ("name", &name), ("state", &row.state)],
                    )
                });
                rows.truncate(Rows::MAX);
                Ok(listed(Rows::Clients(rows)))
            }
            Request::List(list) => {
                let mut rows = cluster.tokens().await.map_err(refused)?;
                rows.retain(|row: &TokenRow| {
                    passes(
                        &list,
                        &[("id", &row.id), ("kind", &row.kind), ("state", &row.state)],
                    )
                });
                rows.truncate(Rows::MAX);
                Ok(listed(Rows::Tokens(rows)))
            }
            _ => unreachable!("the session gives us no others"),
        }
    }
}

/// The longest name of a client, in bytes.
const MOST_NAME_BYTES: usize = 64;

/// Refuses what would not be readable in a list, or would be taken for an id.
fn check_name(name: &str) -> Result<(), Refusal> {
    let is_fit = |it: char| it.is_ascii_alphanumeric() || "-_.@".contains(it);
    let is_id = ClientId::parse(name).is_some();
    if !name.is_empty() && name.len() <= MOST_NAME_BYTES && name.chars().all(is_fit) && !is_id {
        return Ok(());
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
        ClientsError::Store(_) | ClientsError::Record { .. } => RefusalKind::Full,
    };
    refusal(kind, error)
}

/// Rows that are all there is.
pub(super) fn listed(rows: Rows) -> Response {
    Response::Listed(Box::new(Listed {
        rows,
        silent: Vec::new(),
    }))
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
    let mut members = cluster.members();
    members.retain(|row| row.state != "dead");
    let named = members.iter().find(|row| row.name == node);
    match named {
        Some(row) => Ok(row.id),
        None => Ok(begun_so(node, &members)?.id),
    }
}

async fn drain(cluster: &Cluster, node: &str, is_draining: bool) -> Result<Response, Refusal> {
    let id = living(cluster, node)?;
    let drained = cluster.drain(id, is_draining).await;
    match drained.map_err(|error| refusal(RefusalKind::Full, error))? {
        true => Ok(Response::Done),
        false => {
            let why = format_args!("node '{node}' has just died");
            Err(refusal(RefusalKind::NotFound, why))
        }
    }
}

async fn remove(cluster: &Cluster, node: &str, is_forced: bool) -> Result<Response, Refusal> {
    let (id, name) = removable(&cluster.members(), node, is_forced)?;
    let removed = cluster.remove(id, name).await;
    removed.map_err(|error| refusal(RefusalKind::Full, error))?;
    tracing::info!(node = %id, "a node was taken out of the cluster");
    Ok(Response::Text(id.to_string()))
}

/// Which node is meant, and what it is called, if it may be removed.
fn removable(
    members: &[MemberRow],
    node: &str,
    is_forced: bool,
) -> Result<(NodeId, Option<NodeName>), Refusal> {
    let usage = |why: std::fmt::Arguments<'_>| Err(refusal(RefusalKind::Usage, why));
    let is_gone = |row: &MemberRow| matches!(&row.state[..], "dead" | "removed");
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
        None => vec![alone(status(inner))],
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
    rows.truncate(Rows::MAX);
    rows
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
