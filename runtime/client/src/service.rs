//! Services: HTTP requests that a module answers at a node.

use std::time::Duration;

use wasmrun_model::units;
use wasmrun_model::wire::{List, Request, Response, Rows, Serve, ServiceRow, What};

use crate::Client;
use crate::error::Error;

impl Client {
    /// Starts a service, or has another module answer for the one of that name. The node has the module: see
    /// [`Client::load`]. One that is not detached ends with this session.
    ///
    /// # Errors
    /// When the module answers no requests, the address cannot be listened on, or the name is another session's.
    pub async fn serve(&self, serve: Serve) -> Result<ServiceRow, Error> {
        match self.request(Request::Serve(Box::new(serve))).await? {
            Response::Service(row) => Ok(*row),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// The services of all nodes.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn services(&self) -> Result<Vec<ServiceRow>, Error> {
        Ok(match self.list(List::of(What::Services)).await?.rows {
            Rows::Services(rows) => rows,
            _ => Vec::new(),
        })
    }

    /// Ends a service of the session's tenant at this node, by its name, once its requests have ended or `patience` has.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn stop_service(&self, name: &str, patience: Duration) -> Result<(), Error> {
        let request = Request::StopService {
            name: name.to_owned(),
            patience_ms: units::ms(patience),
        };
        self.done(request).await
    }
}
