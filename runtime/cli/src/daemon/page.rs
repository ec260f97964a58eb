//! `node start --dashboard`: the page of a node, on a runtime of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};
use wasmrun_client::wire::Address;
use wasmrun_dashboard::{BoundDashboard, Config, DEFAULT_ADDRESS, Dashboard, Tls};
use wasmrun_node::Server;

use crate::args::PageOptions;
use crate::fail::{Exit, Failure};

/// A page whose socket listens, before there is a node.
pub struct BoundPage {
    bound: BoundDashboard,
    runtime: Runtime,
}

/// A page that is served until this is dropped.
pub struct Page {
    dashboard: Option<Arc<Dashboard>>,
    runtime: Option<Runtime>,
}

impl BoundPage {
    /// Listens, if a page is wanted.
    ///
    /// # Errors
    /// When it cannot be served there.
    pub fn bind(options: &PageOptions) -> Result<Option<Self>, Failure> {
        let Some(address) = options.dashboard else {
            return Ok(None);
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("wasmrun-page")
            .enable_all()
            .build()
            .context("cannot start the thread that serves the page")?;
        let bound = runtime.block_on(BoundDashboard::bind(config(options, address)));
        let bound = bound.map_err(|error| Failure::new(Exit::Usage, error))?;
        Ok(Some(Self { bound, runtime }))
    }

    /// Serves the page of the node at this socket, and has the node make links to it.
    ///
    /// # Errors
    /// When the node does not answer.
    pub fn serve(self, node: &Address, server: &Server) -> Result<Page, Failure> {
        let Self { bound, runtime } = self;
        let dashboard = Arc::new(runtime.block_on(bound.serve(node.clone()))?);
        let url = dashboard.url();
        tracing::info!(%url, "the page is served");
        // The node may outlive it.
        let known = Arc::downgrade(&dashboard);
        server.set_dashboard(Arc::new(move || {
            known.upgrade().map(|it| it.link()).unwrap_or_default()
        }));
        Ok(Page {
            dashboard: Some(dashboard),
            runtime: Some(runtime),
        })
    }
}

impl Page {
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

fn config(options: &PageOptions, address: Option<SocketAddr>) -> Config {
    let tls = options
        .dashboard_cert
        .clone()
        .zip(options.dashboard_key.clone());
    Config {
        address: address.unwrap_or(DEFAULT_ADDRESS),
        is_chosen: address.is_some(),
        tls: tls.map(|(cert, key)| Tls { cert, key }),
    }
}
