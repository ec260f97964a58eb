//! Where a node keeps its audit.

use wasmrun_model::units;
use wasmrun_node::{AuditConfig, ClusterConfig, audit_dir};

use crate::args::WatchOptions;
use crate::fail::Failure;

/// The least that all files may have.
const LEAST_BYTES: u64 = 1 << 20;

/// The folder that the options name; else one in the state folder, if the node has that.
///
/// # Errors
/// When there is to be none, and more is said of it.
pub fn config(
    options: &WatchOptions,
    cluster: Option<&ClusterConfig>,
) -> Result<Option<AuditConfig>, Failure> {
    if options.audit_files < LEAST_BYTES {
        return Err(Failure::usage(format!(
            "--audit-files must be {} or more",
            units::bytes(LEAST_BYTES)
        )));
    }
    let of_state = || cluster.map(|it| audit_dir(&it.state_dir));
    let dir = options.audit_dir.clone().or_else(of_state);
    if dir.is_none() && options.audit_required {
        return Err(Failure::usage(
            "--audit-required needs an audit, and a node that is in no cluster keeps one if --audit-dir says where",
        ));
    }
    Ok(dir.map(|dir| AuditConfig {
        dir,
        most_bytes: options.audit_files,
        is_required: options.audit_required,
    }))
}
