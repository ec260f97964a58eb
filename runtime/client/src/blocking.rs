//! For drivers without an async runtime, such as the command line.
//!
//! Owns a runtime of one thread, on which the connection lives. Must not: be used in a thread of another
//! tokio runtime.

use std::ops::Deref;
use std::sync::Arc;

use tokio::runtime::Runtime;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::wire::Address;

use crate::error::ConnectError;
use crate::identity::Identity;

/// A session with a node, and the runtime that it lives on. It is a [`crate::Client`] too, whose futures
/// [`Client::wait`] drives: `client.wait(client.wait_for(&futures, 1, None))`.
#[derive(Debug)]
pub struct Client {
    client: crate::Client,
    runtime: Arc<SharedRuntime>,
}

/// A runtime that values which are mapped keep too: they may outlive the [`Client`].
#[derive(Debug)]
pub(crate) struct SharedRuntime(Option<Runtime>);

impl SharedRuntime {
    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for SharedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Not waiting for it: this may be a thread of its own.
            runtime.shutdown_background();
        }
    }
}

impl Client {
    /// As [`crate::Client::connect`].
    ///
    /// # Errors
    /// As of that, and when there can be no thread.
    pub fn connect(address: &Address, tenant: TenantName) -> Result<Self, ConnectError> {
        Self::on_runtime(address, crate::Client::connect(address, tenant))
    }

    /// As [`crate::Client::connect_as`].
    ///
    /// # Errors
    /// As of that, and when there can be no thread.
    pub fn connect_as(
        address: &Address,
        tenant: TenantName,
        identity: Identity,
    ) -> Result<Self, ConnectError> {
        Self::on_runtime(
            address,
            crate::Client::connect_as(address, tenant, identity),
        )
    }

    /// As [`crate::Client::connect_for`].
    ///
    /// # Errors
    /// As of that, and when there can be no thread.
    pub fn connect_for(
        address: &Address,
        tenant: TenantName,
        identity: Option<Identity>,
        job: &str,
    ) -> Result<Self, ConnectError> {
        let connecting = crate::Client::connect_for(address, tenant, identity, job);
        Self::on_runtime(address, connecting)
    }

    fn on_runtime(
        address: &Address,
        connecting: impl Future<Output = Result<crate::Client, ConnectError>>,
    ) -> Result<Self, ConnectError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("wasmrun-client")
            .enable_all()
            .build()
            .map_err(|error| ConnectError::Io {
                address: address.clone(),
                error,
            })?;
        let client = runtime.block_on(connecting)?;
        let runtime = Arc::new(SharedRuntime(Some(runtime)));
        let _ = client.0.runtime.set(Arc::downgrade(&runtime));
        Ok(Self { client, runtime })
    }

    /// Blocks this thread until the future is done.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.runtime().block_on(future)
    }

    /// Ends the session, clones or not, as the end of the process does; but a node on the network then hears of it at
    /// once, where it would miss a process that has ended for seconds.
    pub fn leave(&self) {
        // In a runtime nobody may wait.
        if self.client.0.is_on_network() && tokio::runtime::Handle::try_current().is_err() {
            self.wait(self.client.0.leave());
        }
    }

    /// What runs futures beside this thread.
    pub fn handle(&self) -> &tokio::runtime::Handle {
        self.runtime.runtime().handle()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Deref for Client {
    type Target = crate::Client;

    fn deref(&self) -> &crate::Client {
        &self.client
    }
}
