//! Certificates that end are renewed long before.
//!
//! Owns when. The head issues its own; the others ask it.

use std::sync::Arc;
use std::time::Duration;

use wasmrun_net::{Authority, Identity, Role};

use super::Cluster;
use super::clock::now_s;
use super::lines::Lines;

/// How long certificates are valid.
pub(super) const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// They are renewed when this is left.
const LEFT: Duration = Duration::from_secs(60 * 24 * 3600);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(3600);

/// Whether an identity should be renewed, by our own clock: it has been made by the head's, and what is left is far
/// more than clocks differ by.
pub(super) fn is_due(identity: &Identity) -> bool {
    identity.valid_until_s() < now_s().saturating_add(LEFT.as_secs())
}

/// Renews the node's certificate whenever it is due, until it is dropped.
pub(super) async fn run(cluster: Arc<Cluster>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let identity = match Identity::load(cluster.state.path()) {
            Ok(identity) if is_due(&identity) => identity,
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(%error, "this node's certificate cannot be read");
                continue;
            }
        };
        if let Err(error) = renew(&cluster, &identity).await {
            tracing::warn!(error, "this node's certificate cannot be renewed");
        }
    }
}

async fn renew(cluster: &Cluster, identity: &Identity) -> Result<(), String> {
    let renewed = match &cluster.authority {
        Some(authority) => issue(authority, identity.role())?,
        None => {
            let addresses = cluster.members.head_addresses();
            let addresses = addresses.ok_or("the head is not there now")?;
            let renewed = wasmrun_net::renew(identity, &addresses, &Lines::timing()).await;
            renewed.map_err(|error| error.to_string())?
        }
    };
    let saved = renewed.save(cluster.state.path());
    saved.map_err(|error| error.to_string())?;
    match cluster.lines.network() {
        Some(network) => network
            .set_identity(&renewed)
            .map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

fn issue(authority: &Authority, role: Role) -> Result<Identity, String> {
    let issued = authority.issue(role, LIFETIME);
    issued.map_err(|error| error.to_string())
}
