//! Values that are there or will be, and tasks under way.

use std::sync::Arc;
use std::time::Duration;

use wasmrun_model::id::{ObjectId, ObjectName, TaskId};
use wasmrun_model::task::Cancellation;
use wasmrun_model::value::Handle;
use wasmrun_model::wire::{ObjectRef, Output, Report, Request, Response};

use crate::Client;
use crate::connection::Connection;
use crate::error::{Error, GetError};
use crate::routes::Answers;
use crate::transfer::Incoming;
use crate::value::Value;

/// A value that is there or will be. Cheap to clone; the node keeps it as long as there is one.
#[derive(Debug, Clone)]
pub struct Future(Arc<ObjectReference>);

#[derive(Debug)]
struct ObjectReference {
    name: ObjectName,
    connection: Arc<Connection>,
}

impl Drop for ObjectReference {
    fn drop(&mut self) {
        self.connection.routes.release_object(self.name.id);
    }
}

impl Future {
    /// Of what the session has made.
    pub(crate) fn new(connection: &Arc<Connection>, id: ObjectId) -> Self {
        let owner = connection.owner;
        Self::named(connection, ObjectName { id, owner })
    }

    /// Of what the node has given the session one more handle of.
    pub(crate) fn named(connection: &Arc<Connection>, name: ObjectName) -> Self {
        Self(Arc::new(ObjectReference {
            name,
            connection: connection.clone(),
        }))
    }

    /// The object's id.
    pub fn id(&self) -> ObjectId {
        self.0.name.id
    }

    /// The object's id, and the node that owns it.
    pub fn name(&self) -> ObjectName {
        self.0.name
    }

    /// What stands for it inside a value; to pass it on, see [`Handles`](crate::Handles).
    pub fn handle(&self) -> Handle {
        Handle::Object(self.0.name)
    }

    /// Cancels the task or call that is to make it, and all that this has started: what came of that, without waiting
    /// for it.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn cancel(&self) -> Result<Cancellation, Error> {
        let client = Client(self.0.connection.clone());
        match client.request(Request::CancelObject(self.id())).await? {
            Response::Cancelled(outcome) => Ok(outcome),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// The value, once it is there. A stored one is mapped: it is not copied, and stays where it is as long
    /// as there is a [`Value`] of it.
    ///
    /// # Errors
    /// When what was to make it failed, time is up, or the node is gone.
    pub async fn get(&self, timeout: Option<Duration>) -> Result<Value, GetError> {
        Ok(self.stream(timeout).await?.value().await?)
    }

    /// As [`Future::get`], part by part, for what is large.
    ///
    /// # Errors
    /// As of `get`.
    pub async fn stream(&self, timeout: Option<Duration>) -> Result<Incoming, GetError> {
        Incoming::start(&self.0.connection, ObjectRef::Id(self.id()), timeout).await
    }

    /// The value that was asked for together with the call that makes it.
    pub(crate) async fn answered(&self, answers: Answers) -> Result<Incoming, GetError> {
        Incoming::answered(&self.0.connection, ObjectRef::Id(self.id()), answers).await
    }
}

/// A task or call that was submitted.
#[derive(Debug)]
pub struct Task {
    id: TaskId,
    future: Future,
    answers: Answers,
    /// The report, once it has come.
    report: Option<Report>,
    /// Why it is lost with its node, if it was to outlive that.
    why_not_durable: Option<String>,
}

impl Task {
    /// Sends a request that starts a task; if `is_wanted`, together with one for its value, to which these are the answers.
    pub(crate) async fn start(
        connection: &Arc<Connection>,
        request: Request,
        is_wanted: bool,
    ) -> Result<(Self, Option<Answers>), Error> {
        let (answers, value) = match is_wanted {
            true => connection.start_and_get(request).await?,
            false => (connection.start(request).await?, None),
        };
        Ok((Self::submitted(connection, answers).await?, value))
    }

    /// What a request that starts a task gives.
    pub(crate) async fn submitted(
        connection: &Arc<Connection>,
        mut answers: Answers,
    ) -> Result<Self, Error> {
        let (id, why_not_durable) = match answers.next().await? {
            Response::Submitted(id) => (id, None),
            Response::SubmittedHere { task, why } => (task, Some(why)),
            other => return Err(Error::unexpected(&other)),
        };
        Ok(Self {
            id,
            future: Future::new(connection, ObjectId::of(id, 0)),
            answers,
            report: None,
            why_not_durable,
        })
    }

    /// Why it is lost if its node is, where it was submitted as detached to a node of a cluster, and so should go on
    /// at another one.
    pub fn why_not_durable(&self) -> Option<&str> {
        self.why_not_durable.as_deref()
    }

    /// Its id.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// What it makes.
    pub fn future(&self) -> Future {
        self.future.clone()
    }

    /// What a watched task writes next; `None` when it has ended.
    ///
    /// # Errors
    /// When the node is gone. For a task that is not watched this never ends.
    pub async fn output(&mut self) -> Result<Option<Output>, Error> {
        if self.report.is_some() {
            return Ok(None);
        }
        match self.answers.next().await? {
            Response::Output(output) => Ok(Some(output)),
            Response::Ended(report) => {
                self.report = Some(*report);
                Ok(None)
            }
            other => Err(Error::unexpected(&other)),
        }
    }

    /// What came of a watched task. Output that was not read before is dropped.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn report(&mut self) -> Result<Report, Error> {
        loop {
            if let Some(report) = &self.report {
                return Ok(report.clone());
            }
            self.output().await?;
        }
    }

    /// The name of the node at which it ran, for the last time, if it has ended: the units that its report names are that
    /// node's. The node of this session if it did not run at all.
    ///
    /// # Errors
    /// When the node is gone, or does not remember the task any more.
    pub async fn ran_at(&self) -> Result<String, Error> {
        let client = Client(self.future.0.connection.clone());
        match client.request(Request::RanAt(self.id)).await? {
            Response::Text(node) => Ok(node),
            other => Err(Error::unexpected(&other)),
        }
    }
}
