//! How the cluster schedules, as far as operators choose.

use wasmrun_model::scheduler::Setting;
use wasmrun_model::wire::{Request, Response, Scheduling};

use crate::Client;
use crate::error::Error;

impl Client {
    /// Makes these choices for all nodes of the cluster, if any, and says what holds. A node that is in no cluster knows
    /// them until it stops.
    ///
    /// # Errors
    /// When a choice is out of range, there are any and the node is on another machine, or the control store does not do
    /// it: then nothing is changed, unless the error says that nobody knows. To say it again is right.
    pub async fn scheduling(&self, choices: Vec<Setting>) -> Result<Scheduling, Error> {
        match self.request(Request::Scheduling(choices)).await? {
            Response::Scheduling(scheduling) => Ok(*scheduling),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// What the schedulers of all nodes have, to find faults: queues, classes of requests, tenants, resources. The text
    /// changes from version to version.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn scheduler_state(&self) -> Result<String, Error> {
        match self.request(Request::SchedulerState).await? {
            Response::Text(text) => Ok(text),
            other => Err(Error::unexpected(&other)),
        }
    }
}
