//! Secrets of the session's tenant. Their values go one way only: to the node.

use wasmrun_model::secret::SecretName;
use wasmrun_model::wire::{Bytes, Request, Response, SecretRow};

use crate::Client;
use crate::error::Error;

impl Client {
    /// Sets a secret of the session's tenant, of at most [`MAX_BYTES`](wasmrun_model::secret::MAX_BYTES), for all nodes of the
    /// cluster. Attempts that begin from now on get the new value. A node that is in no cluster has it until it stops.
    ///
    /// # Errors
    /// When the value is empty or too long, the tenant has too many, or the control store does not keep it: then nothing is
    /// changed, unless the error says that nobody knows. To say it again is right.
    pub async fn set_secret(&self, name: SecretName, value: Vec<u8>) -> Result<(), Error> {
        let value = Bytes(value);
        self.done(Request::SetSecret { name, value }).await
    }

    /// Removes a secret of the session's tenant. Attempts that run keep what they were given.
    ///
    /// # Errors
    /// When there is none, and as of [`Client::set_secret`].
    pub async fn remove_secret(&self, name: SecretName) -> Result<(), Error> {
        self.done(Request::RemoveSecret(name)).await
    }

    /// Has another key seal the secrets of all tenants. An operator may, at the cluster's head. What was done, for people.
    ///
    /// # Errors
    /// At another node, and when the control store does not keep it: then all secrets can be read as before, and to say it again
    /// goes on.
    pub async fn rotate_secrets(&self) -> Result<String, Error> {
        match self.request(Request::RotateSecrets).await? {
            Response::Text(told) => Ok(told),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// The secrets that work of the session's tenant may use, and how many more there are.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn secrets(&self) -> Result<(Vec<SecretRow>, u32), Error> {
        match self.request(Request::Secrets).await? {
            Response::Secrets(rows, left) => Ok((rows, left)),
            other => Err(Error::unexpected(&other)),
        }
    }
}
