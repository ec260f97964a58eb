//! What can be typed about clients of the cluster.

use clap::Subcommand;

use super::FilterArg;

/// What to do with clients. For operators.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// List who has a certificate of the cluster as a client, and whose was revoked.
    List {
        /// Only those whose field, id, name, state or role, has this value, such as state=valid. Repeatable.
        #[arg(long, short, value_name = "FIELD=VALUE")]
        filter: Vec<FilterArg>,
    },
    /// Let a client in no more, at no node: its connections end, and what it submitted through them, unless it was
    /// detached. To come again, it logs in with a new token.
    Revoke {
        /// Its name, its id, or the beginning of that.
        client: String,
    },
}
