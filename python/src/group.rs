//! Placement groups, as Python holds them.
//!
//! Owns their creation, waiting and ends. `wasmrun/_group.py` says what a bundle is. Must not: know what runs in them.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use wasmrun_client::{CreateGroup, GroupError};
use wasmrun_model::group::GroupSpec;

use crate::failure;
use crate::options::seconds;
use crate::session::{Session, Shared};

/// Bundles of resources that are reserved together.
#[pyclass(frozen, module = "wasmrun._wasmrun")]
pub(crate) struct Group {
    shared: Arc<Shared>,
    group: wasmrun_client::Group,
}

#[pymethods]
impl Group {
    /// Creates one. `spec` is JSON, as of `wasmrun group create --spec`.
    #[staticmethod]
    fn create(
        py: Python<'_>,
        session: &Session,
        spec: &str,
        name: Option<&str>,
        is_detached: bool,
    ) -> PyResult<Self> {
        let spec: GroupSpec = serde_json::from_str(spec)
            .map_err(|error| PyValueError::new_err(format!("no placement group: {error}")))?;
        let mut create = CreateGroup::new(spec);
        if let Some(name) = name {
            create = create.named(name);
        }
        if is_detached {
            create = create.detached();
        }
        let shared = session.0.clone();
        let client = shared.client();
        let made = shared.wait(py, async move { client.create_group(create).await })?;
        let group = made.map_err(|error| failure::of_request(py, &error))?;
        Ok(Self { shared, group })
    }

    /// Its id.
    #[getter]
    fn id(&self) -> String {
        self.group.id().to_string()
    }

    /// Waits until tasks can run in all bundles.
    fn ready(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = timeout.map(seconds).transpose()?;
        let group = self.group.clone();
        let ready = self
            .shared
            .wait(py, async move { group.ready(timeout).await })?;
        ready.map_err(|error| match error {
            GroupError::TimedOut(why) => failure::timed_out(py, &why),
            GroupError::Request(error) => failure::of_request(py, &error),
        })
    }

    /// Ends it.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        let group = self.group.clone();
        let removed = self.shared.wait(py, async move { group.remove().await })?;
        removed.map_err(|error| failure::of_request(py, &error))
    }
}
