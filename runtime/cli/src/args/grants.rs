//! Options that grant what a task may reach.

use std::fs;

use anyhow::Context;
use clap::Args;
use wasmrun_model::http::HttpHost;
use wasmrun_model::secret::SecretUse;

use super::{DirArg, EnvArg, NetArg};
use crate::fail::Failure;

/// What a task may reach. Nothing, unless granted here.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Grants")]
pub struct GrantOptions {
    /// Give the guest a directory: HOST::GUEST, HOST::GUEST:ro, or HOST alone.
    ///
    /// HOST alone keeps its name in the guest; :ro at the end is to read only. Repeatable.
    #[arg(long, value_name = "HOST::GUEST")]
    pub dir: Vec<DirArg>,
    /// Let the guest use the network, or only --net=ADDRESS:PORT,….
    ///
    /// Without addresses it may connect, listen and look names up. With some, behind the `=`, it may only connect and
    /// send to these; port 0 stands for any.
    #[arg(long, value_name = "ADDRESSES", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub net: Option<NetArg>,
    /// Let the guest send HTTP requests: to a name, *.NAME, *, or an address.
    ///
    /// *.NAME is all names below that one, * is all. Without a port it covers 80 and 443. A name stands for its public addresses: one of this machine or of a private
    /// network has to be granted itself. Repeatable.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub http: Vec<HttpHost>,
    /// Set an environment variable in the guest: K=V, or K to pass ours on.
    ///
    /// Repeatable.
    #[arg(long, value_name = "K=V")]
    pub env: Vec<EnvArg>,
    /// Give the guest a secret: NAME, K=NAME, or /run/secrets/FILE=NAME.
    ///
    /// Of its tenant or one above, as `wasmrun secret set` has set it: in the variable of its name, in another one, or as a file.
    /// Needs a running node. Repeatable.
    #[arg(long, value_name = "[K=]NAME")]
    pub secret: Vec<SecretUse>,
}

impl GrantOptions {
    /// Whether the directories are there.
    ///
    /// # Errors
    /// Which one is not.
    pub fn check_dirs(&self) -> Result<(), Failure> {
        for dir in &self.dir {
            let host = &dir.0.host;
            let meta = fs::metadata(host)
                .with_context(|| format!("cannot give {} to the guest (--dir)", host.display()))?;
            if !meta.is_dir() {
                return Err(Failure::usage(format!(
                    "{} is not a directory: --dir gives whole directories",
                    host.display()
                )));
            }
        }
        Ok(())
    }
}
