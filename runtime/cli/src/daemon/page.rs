//! `node start --dashboard`: the page of a node, on a runtime of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};
use wasmrun_client::wire::Address;
use wasmrun_dashboard::{Config, DEFAULT_ADDRESS, Dashboard, Tls};
use wasmrun_node::Server;

use crate::args::PageOptions;
use crate::fail::{Exit, Failure};

/// A page that is served until this is dropped.
pub struct Page {
    dashboard: Option<Arc<Dashboard>>,
    runtime: Option<Runtime>,
}

impl Page {
    /// Serves the page of a node at this socket, if one is wanted, and has the node make links to it.
    ///
    /// # Errors
    /// When it cannot be served there.
    pub fn serve(
        options: &PageOptions,
        node: &Address,
        server: &Server,
    ) -> Result<Option<Self>, Failure> {
        let Some(address) = options.dashboard else {
            return Ok(None);
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("wasmrun-page")
            .enable_all()
            .build()
            .context("cannot start the thread that serves the page")?;
        let config = config(options, address, node);
        let dashboard = runtime.block_on(Dashboard::serve(config));
        let dashboard = Arc::new(dashboard.map_err(|error| Failure::new(Exit::Usage, error))?);
        let url = dashboard.url();
        tracing::info!(%url, "the page is served");
        // The node may outlive it.
        let known = Arc::downgrade(&dashboard);
        server.set_dashboard(Arc::new(move || {
            known.upgrade().map(|it| it.link()).unwrap_or_default()
        }));
        Ok(Some(Self {
            dashboard: Some(dashboard),
            runtime: Some(runtime),
        }))
    }

    /// Where it is.
    pub fn url(&self) -> String {
        self.dashboard
            .as_ref()
            .map(|it| it.url())
            .unwrap_or_default()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.dashboard.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn config(options: &PageOptions, address: Option<SocketAddr>, node: &Address) -> Config {
    let tls = options
        .dashboard_cert
        .clone()
        .zip(options.dashboard_key.clone());
    Config {
        address: address.unwrap_or(DEFAULT_ADDRESS),
        is_chosen: address.is_some(),
        tls: tls.map(|(cert, key)| Tls { cert, key }),
        node: node.clone(),
    }
}
