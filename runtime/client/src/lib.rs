//! What a Rust driver depends on: tasks, objects and actors of a node that runs on this machine, or of one that is
//! reached over the network.
//!
//! Owns the client's side of the protocol (`wasmrun_model::wire`). Must not: know how a node works, or
//! what wasm is; start a node.
//!
//! ```no_run
//! use wasmrun_client::{Argument, Client, Submit};
//! use wasmrun_model::value::codec::{decode, encode};
//! use wasmrun_model::value::{DecodeLimits, Value, ValueType};
//!
//! # async fn driver() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(&wasmrun_client::default_address()?, Default::default()).await?;
//! let module = client.load(&std::fs::read("module.wasm")?).await?;
//! let one = encode(&ValueType::U64, &Value::U64(1))?;
//! let add = Submit::function(&module, "add");
//! let two = client.submit(add.clone().values([one.clone().into(), one.clone().into()])).await?;
//! // A future is an argument: the task starts when its value is there.
//! let three = client.submit(add.values([two.future().into(), one.into()])).await?;
//! let value = three.future().get(None).await?;
//! println!("{:?}", decode(&ValueType::U64, &value, DecodeLimits::default())?);
//! # Ok(())
//! # }
//! ```
//!
//! Invariants: what a [`Client`] submitted ends when its last clone is dropped, unless it is detached. A
//! [`Future`] keeps its object in the node as long as it lives. What arrives is taken in its order: read
//! the output of a watched task, and poll a value that is on its way, or nothing else arrives.

mod actor;
pub mod blocking;
mod connection;
mod error;
mod future;
pub mod graph;
mod group;
pub mod identity;
mod line;
mod named;
mod pages;
pub mod queue;
mod reader;
pub mod record;
mod routes;
pub mod rows;
mod scheduling;
mod secret;
mod service;
mod submit;
mod tenant;
pub mod timeline;
mod transfer;
pub mod typed;
mod value;

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::Digest;
use wasmrun_model::units;
use wasmrun_model::value::Encoded;
use wasmrun_model::wire::{Address, Gotten, ObjectRef, Request, Response};

pub use crate::actor::{Actor, ActorError, CallOptions, CreateActor};
pub use crate::error::{ConnectError, Error, GetError, GroupError};
pub use crate::future::{Future, Task};
pub use crate::group::{CreateGroup, Group};
pub use crate::named::Handles;
pub use crate::submit::{Argument, Submit};
pub use crate::tenant::TenantChange;
pub use crate::transfer::Incoming;
pub use crate::value::{Value, Writable};
pub use wasmrun_model::task::Cancellation;
pub use wasmrun_model::trace::{Span, TraceContext, TraceState};
pub use wasmrun_model::wire;

use crate::connection::Connection;
use crate::identity::Identity;

/// The environment variable that names a node.
pub const ADDRESS_VARIABLE: &str = "WASMRUN_ADDRESS";

/// Where the node is that nobody has named: as `WASMRUN_ADDRESS` says, else the user's own.
///
/// # Errors
/// When the variable holds no address.
pub fn default_address() -> Result<Address, wire::ParseAddressError> {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    match variable(ADDRESS_VARIABLE) {
        Some(text) => text.parse(),
        None => {
            let user = rustix::process::geteuid().as_raw();
            Ok(Address::default_for(
                variable("XDG_RUNTIME_DIR").as_deref(),
                user,
            ))
        }
    }
}

/// What can be said about a value that is stored.
#[derive(Debug, Clone, Copy, Default)]
pub struct PutOptions {
    /// Whether it stays until it is deleted.
    pub is_kept: bool,
    /// How long it may wait for room; as long as the node says if not given (`--put-wait`).
    pub room_patience: Option<Duration>,
}

/// What an id or a name stands for, and all about it.
#[derive(Debug, Clone, PartialEq)]
pub enum Described {
    /// A task or a call.
    Task(Box<wire::TaskDetail>),
    /// An actor that lives, is about to, or has failed.
    Actor(Box<wire::ActorDetail>),
    /// All that a session has submitted.
    Job(Box<wire::JobDetail>),
    /// An object, with those who need it.
    Object(Box<wire::ObjectDetail>),
}

impl Described {
    /// The task, if it is one.
    pub fn task(self) -> Option<wire::TaskDetail> {
        match self {
            Self::Task(task) => Some(*task),
            Self::Actor(_) | Self::Job(_) | Self::Object(_) => None,
        }
    }
}

/// A session with a node. Cheap to clone; clones are one session, which ends with the last.
#[derive(Debug, Clone)]
pub struct Client(pub(crate) Arc<Connection>);

impl Client {
    /// Begins a session, in a tokio runtime with I/O. `tenant` pays for what does not say otherwise. On the network
    /// we are who [`identity::default_identity`] says.
    ///
    /// # Errors
    /// When no node runs there, it is another user's or cluster's, or another version; and when it is on the network
    /// and there is no certificate for it.
    pub async fn connect(address: &Address, tenant: TenantName) -> Result<Self, ConnectError> {
        Self::connect_for(address, tenant, None, "").await
    }

    /// As [`Client::connect`], on the network with this identity. At a socket nobody asks for one.
    ///
    /// # Errors
    /// As of that.
    pub async fn connect_as(
        address: &Address,
        tenant: TenantName,
        identity: Identity,
    ) -> Result<Self, ConnectError> {
        Self::connect_for(address, tenant, Some(identity), "").await
    }

    /// As [`Client::connect`], or as [`Client::connect_as`] with an identity; what the session submits is a job of this name.
    /// With an empty name the job has the name of its first task.
    ///
    /// # Errors
    /// As of those.
    pub async fn connect_for(
        address: &Address,
        tenant: TenantName,
        identity: Option<Identity>,
        job: &str,
    ) -> Result<Self, ConnectError> {
        let identity = match (identity, address, identity::default_identity()) {
            (Some(identity), _, _) => Some(Arc::new(identity)),
            (None, Address::Network(_), Some(folder)) => Some(identity_in(&folder, address)?),
            (None, _, _) => None,
        };
        let connection = Connection::open(address, tenant, identity, job).await?;
        Ok(Self(Arc::new(connection)))
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        self.0.node()
    }

    /// Whether the session goes on. If it does not, the node keeps nothing for it.
    pub fn is_connected(&self) -> bool {
        self.0.routes.is_open()
    }

    /// Why the session has ended: [`Error::Ended`] if the node has said it, else [`Error::Closed`]; `None` while it goes
    /// on.
    pub fn ended(&self) -> Option<Error> {
        (!self.is_connected()).then(|| self.0.routes.ended())
    }

    /// What a module exports, once the node has it. It is sent only if the node does not have it.
    ///
    /// # Errors
    /// When it is no module that the node can run.
    pub async fn load(&self, bytes: &[u8]) -> Result<wire::Module, Error> {
        let digest = Digest::of(bytes);
        match self.request(Request::Module(digest)).await? {
            Response::Module(module) => return Ok(*module),
            Response::Unknown => {}
            other => return Err(Error::unexpected(&other)),
        }
        let len = bytes.len() as u64;
        let upload = Request::Upload { digest, len };
        match self.0.send_all(upload, len, bytes).await? {
            Response::Module(module) => Ok(*module),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// Stores a value. The handles in it are mere bytes to the node; [`Client::put_with`] has it keep what they stand
    /// for.
    ///
    /// # Errors
    /// When there is no room for it in time.
    pub async fn put(&self, value: &Encoded) -> Result<Future, Error> {
        self.put_with(value, &Handles::default(), PutOptions::default())
            .await
    }

    /// Stores a value that holds these handles, and keeps what they stand for as long as the value is there, at most
    /// [`MAX_NAMES`](wire::MAX_NAMES) things. Whoever reads it may use them.
    ///
    /// ```no_run
    /// # use wasmrun_client::{Client, Future, Handles};
    /// # use wasmrun_model::value::{Value, ValueType, codec::encode};
    /// # async fn keep(client: &Client, ty: &ValueType, rows: &[Future]) -> Result<(), Box<dyn std::error::Error>> {
    /// // list<object>
    /// let mut handles = Handles::default();
    /// let list = Value::List(rows.iter().map(|it| handles.future(it)).collect());
    /// let list = client.put_with(&encode(ty, &list)?, &handles, Default::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no room for it in time, it names too many, or one that is another session's.
    pub async fn put_with(
        &self,
        value: &Encoded,
        handles: &Handles,
        options: PutOptions,
    ) -> Result<Future, Error> {
        let bytes = wasmrun_model::value::EncodedRef::from(value).bytes();
        let (form, len) = (wire::Form::of(value), bytes.len() as u64);
        self.stored(form, len, handles, options, bytes).await
    }

    /// Stores the first `len` bytes of `source`: a buffer, or a value that holds no handles. Waits for room for them; the
    /// source is read then, as the bytes are sent.
    ///
    /// # Errors
    /// When there is no room, or the source fails or has fewer bytes.
    pub async fn put_from(
        &self,
        form: wire::Form,
        len: u64,
        options: PutOptions,
        source: impl Read,
    ) -> Result<Future, Error> {
        self.stored(form, len, &Handles::default(), options, source)
            .await
    }

    async fn stored(
        &self,
        form: wire::Form,
        len: u64,
        handles: &Handles,
        options: PutOptions,
        source: impl Read,
    ) -> Result<Future, Error> {
        let (objects, actors) = handles.names();
        let names = objects.len() + actors.len();
        if names > wire::MAX_NAMES {
            return Err(Error::TooManyNames { names });
        }
        let put = Request::Put(Box::new(wire::Put {
            form,
            len,
            is_kept: options.is_kept,
            room_ms: options.room_patience.map(units::ms),
            can_stage: !self.0.is_on_network(),
            objects,
            actors,
        }));
        match self.0.send_all(put, len, source).await? {
            Response::Object(id) => Ok(Future::new(&self.0, id)),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// The value of an object that is kept, by a unique prefix of its id, as it comes.
    ///
    /// # Errors
    /// As of [`Future::get`].
    pub async fn get_kept(
        &self,
        prefix: &str,
        timeout: Option<Duration>,
    ) -> Result<Incoming, GetError> {
        let object = ObjectRef::Prefix(prefix.to_owned());
        Incoming::start(&self.0, object, timeout).await
    }

    /// An object of the session's tenant that is kept, by a unique prefix of its id: to pass it on.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub async fn find_object(&self, prefix: &str) -> Result<Future, Error> {
        match self.request(Request::FindObject(prefix.to_owned())).await? {
            Response::Found(name) => Ok(Future::named(&self.0, name)),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// Waits until `count` of the futures are there or have failed, or time is up. The indexes of all
    /// that are by then.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn wait_for(
        &self,
        futures: &[Future],
        count: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<usize>, Error> {
        let request = Request::Wait {
            objects: futures.iter().map(Future::id).collect(),
            count: u32::try_from(count).unwrap_or(u32::MAX),
            timeout_ms: timeout.map(units::ms),
        };
        match self.request(request).await? {
            Response::Ready(ready) => Ok(ready.into_iter().map(|at| at as usize).collect()),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// The values of many futures, once all are there: what a loop of [`Future::get`] does, with a
    /// fraction of the work. The time is for all of them together.
    ///
    /// # Errors
    /// For each what it failed with. For all when time is up, or the node is gone.
    pub async fn get_all(
        &self,
        futures: &[Future],
        timeout: Option<Duration>,
    ) -> Result<Vec<Result<Value, GetError>>, GetError> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut values = Vec::with_capacity(futures.len());
        for some in futures.chunks(wire::MAX_GETS) {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let request = Request::GetAll {
                objects: some.iter().map(Future::id).collect(),
                timeout_ms: left.map(units::ms),
            };
            let mut answers = self.0.start(request).await?;
            let mut all = Vec::with_capacity(some.len());
            loop {
                match answers.next().await? {
                    Response::Values(gotten) => all.extend(gotten),
                    Response::Done if all.len() == some.len() => break,
                    Response::TimedOut => return Err(GetError::TimedOut),
                    other => return Err(Error::unexpected(&other).into()),
                }
                if all.len() > some.len() {
                    return Err(Error::Unexpected("more values than futures".into()).into());
                }
            }
            // Not before they are all here: what is asked for in between would be answered behind them, and
            // they would wait for us.
            for (gotten, future) in all.into_iter().zip(some) {
                match value_of(gotten, future, end).await {
                    Err(GetError::TimedOut) => return Err(GetError::TimedOut),
                    value => values.push(value),
                }
            }
        }
        Ok(values)
    }

    /// Cancels all that the session has submitted, but for what is detached.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn cancel_all(&self) -> Result<(), Error> {
        self.done(Request::CancelMine).await
    }

    /// Cancels a task or all live tasks of a job, or ends an actor, by a unique prefix of its id, or the actor's name.
    /// [`Future::cancel`] and [`Actor::kill`] need no id.
    ///
    /// # Errors
    /// When there is no such thing, or it has ended.
    pub async fn cancel(&self, id: &str) -> Result<(), Error> {
        self.done(Request::Cancel(id.to_owned())).await
    }

    /// Where a task, a job, an actor or a placement group stands and why, for people.
    ///
    /// # Errors
    /// When there is no such thing.
    pub async fn explain(&self, id: &str) -> Result<String, Error> {
        match self.request(Request::Explain(id.to_owned())).await? {
            Response::Text(text) => Ok(text),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// A list of what there is, at all nodes of the cluster.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn list(&self, list: wire::List) -> Result<wire::Listed, Error> {
        match self.request(Request::List(list)).await? {
            Response::Listed(listed) => Ok(*listed),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// The node in numbers.
    ///
    /// # Errors
    /// When the node is gone.
    pub async fn status(&self) -> Result<wire::NodeStatus, Error> {
        match self.request(Request::Status).await? {
            Response::Status(status) => Ok(*status),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// Everything about one task, job or actor, by a unique prefix of its id, or the actor's name.
    ///
    /// # Errors
    /// When there is no such thing.
    pub async fn describe(&self, id: &str) -> Result<Described, Error> {
        match self.request(Request::Describe(id.to_owned())).await? {
            Response::Task(task) => Ok(Described::Task(task)),
            Response::ActorDetail(actor) => Ok(Described::Actor(actor)),
            Response::Job(job) => Ok(Described::Job(job)),
            Response::ObjectDetail(object) => Ok(Described::Object(object)),
            other => Err(Error::unexpected(&other)),
        }
    }

    /// What is kept of the output of a detached task, of those of a job one after the other, or of an actor: the end of
    /// it.
    ///
    /// # Errors
    /// When there is no such thing, or nothing is kept of it.
    pub async fn logs(&self, id: &str) -> Result<Vec<wire::Output>, Error> {
        let mut all = Vec::new();
        self.each_log(id, |output| all.push(output)).await?;
        Ok(all)
    }

    /// As [`Client::logs`], piece by piece: a job's logs may be large.
    ///
    /// # Errors
    /// As of that.
    pub async fn each_log(
        &self,
        id: &str,
        mut take: impl FnMut(wire::Output),
    ) -> Result<(), Error> {
        let mut answers = self.0.start(Request::Logs(id.to_owned())).await?;
        loop {
            match answers.next().await? {
                Response::Output(output) => take(output),
                Response::Done => return Ok(()),
                other => return Err(Error::unexpected(&other)),
            }
        }
    }

    /// Deletes an object that is kept.
    ///
    /// # Errors
    /// When there is no such object.
    pub async fn delete(&self, object: &str) -> Result<(), Error> {
        self.done(Request::Delete(object.to_owned())).await
    }

    /// Ends the node: when all tasks have ended, or at once. Waits until it is gone.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn stop(&self, is_now: bool) -> Result<(), Error> {
        match self.done(Request::Stop { is_now }).await {
            // It is gone already.
            Err(Error::Closed) => return Ok(()),
            result => result?,
        }
        self.0.routes.closed().await;
        Ok(())
    }

    /// Any request that has one answer.
    ///
    /// # Errors
    /// When it is refused, or the node is gone.
    pub async fn request(&self, request: Request) -> Result<Response, Error> {
        self.0.start(request).await?.next().await
    }

    pub(crate) async fn done(&self, request: Request) -> Result<(), Error> {
        match self.request(request).await? {
            Response::Done => Ok(()),
            other => Err(Error::unexpected(&other)),
        }
    }
}

/// The identity in a folder, for a node on the network.
fn identity_in(folder: &std::path::Path, address: &Address) -> Result<Arc<Identity>, ConnectError> {
    match identity::load(folder) {
        Ok(Some(identity)) => Ok(Arc::new(identity)),
        Ok(None) => Err(ConnectError::NoIdentity {
            address: address.clone(),
        }),
        Err(error) => Err(ConnectError::Identity {
            folder: folder.to_owned(),
            error,
        }),
    }
}

/// One of many values. A large one is got by itself, until `end`.
async fn value_of(
    gotten: Gotten,
    future: &Future,
    end: Option<Instant>,
) -> Result<Value, GetError> {
    match gotten {
        Gotten::Value { form, bytes } => Ok(Value::own(form, bytes.0)),
        Gotten::Large => {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            future.get(left).await
        }
        Gotten::Failed { origin, error } => Err(GetError::Failed {
            origin,
            error: error.into(),
        }),
    }
}
