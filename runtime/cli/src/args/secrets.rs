//! What can be typed about secrets.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::secret::SecretName;

/// What to do with secrets.
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Set a secret of a tenant, for all nodes of the cluster. Its value is read from standard input.
    ///
    /// One newline at its end is left out. Tasks get it with --secret.
    Set {
        /// Its name: letters, digits and _.
        name: SecretName,
        /// Read the value from a file instead, every byte of it.
        #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
        from_file: Option<PathBuf>,
        /// The tenant whose it is.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
    },
    /// List the secrets that work of a tenant may use, without their values.
    List {
        /// The tenant.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
    },
    /// Remove a secret of a tenant. Tasks that run keep what they were given.
    Remove {
        /// Its name.
        name: SecretName,
        /// The tenant whose it is.
        #[arg(long, value_name = "NAME", default_value_t)]
        tenant: TenantName,
    },
    /// Have another key seal the secrets of all tenants, at the head of the cluster. Values stay as they are.
    Rotate,
}
