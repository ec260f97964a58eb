//! Options of `dashboard`, and of `node start` for its page.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use wasmrun_dashboard::DEFAULT_ADDRESS;

use super::things::listening;

/// The page of a node.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Page")]
pub struct PageOptions {
    /// Serve a page for browsers.
    ///
    /// `wasmrun dashboard` makes a link to it [default address: 127.0.0.1:7463, or the next port that is free]. With
    /// --local only the first node serves it, and shows all nodes.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = true, value_parser = listening(DEFAULT_ADDRESS))]
    pub dashboard: Option<Option<SocketAddr>>,
    /// Encrypt the page with this certificate, a PEM file.
    ///
    /// It is needed where other machines reach the page's address.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["dashboard", "dashboard_key"])]
    pub dashboard_cert: Option<PathBuf>,
    /// The certificate's key, a PEM file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "dashboard_cert")]
    pub dashboard_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub struct Dashboard {
    /// Print the link and open nothing.
    #[arg(long)]
    pub no_open: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Cli;

    #[test]
    fn an_address_that_is_none_is_told_the_default_one() {
        let read = Cli::try_parse_from(["wasmrun", "node", "start", "--dashboard=nonsense"]);
        let Err(error) = read else {
            panic!("it is no address");
        };
        let error = error.to_string();
        assert!(error.contains("such as 127.0.0.1:7463;"), "{error}");
    }
}
