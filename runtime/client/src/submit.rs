//! What to run, put together step by step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wasmrun_model::id::{DriverId, ObjectId, TaskId};
use wasmrun_model::trace::TraceContext;
use wasmrun_model::value::{Encoded, HandleKind, ValueType};
use wasmrun_model::wire::{
    self, Entry, Grants, INLINE_BYTES, INLINE_TOTAL_BYTES, Limits, MAX_CALLS, Module, Request,
    Response, Terms,
};

use crate::actor::Actor;
use crate::connection::Connection;
use crate::error::Error;
use crate::future::{Future, Task};
use crate::named::Handles;
use crate::routes::Answers;
use crate::{Client, PutOptions};

/// How many requests of one [`Client::submit_all`] may be under way.
const AHEAD: usize = 4;
/// How many bytes of arguments one of them takes, but for the last call's.
const CALL_BYTES: usize = 256 << 10;

/// How long a node may take to be back before a detached task counts as not submitted.
const PATIENCE: Duration = Duration::from_secs(30);
/// How soon is looked again whether it is.
const AGAIN: Duration = Duration::from_millis(100);

/// An argument: a value, encoded by its parameter's type, or a future.
#[derive(Debug, Clone)]
pub enum Argument {
    /// A value. A large one is stored first.
    Value(Encoded),
    /// What another task makes, or what is stored: the task starts when it is there. Where the parameter is itself an
    /// object, it gets the handle.
    Future(Future),
    /// A value that has handles in it, and what it names: made by [`Handles::encode`]. A large one is stored first.
    Naming(Encoded, Arc<Handles>),
}

impl From<Encoded> for Argument {
    fn from(value: Encoded) -> Self {
        Self::Value(value)
    }
}

impl From<&Future> for Argument {
    fn from(future: &Future) -> Self {
        Self::Future(future.clone())
    }
}

impl From<&Actor> for Argument {
    /// The actor, as an argument by itself.
    fn from(actor: &Actor) -> Self {
        let mut handles = Handles::default();
        let value = handles.actor(actor);
        let argument = handles.encode(&ValueType::Handle(HandleKind::Actor), &value);
        argument.expect("an actor is of its type")
    }
}

impl From<Future> for Argument {
    fn from(future: Future) -> Self {
        Self::Future(future)
    }
}

/// What arguments name, until they are with the node.
#[expect(dead_code, reason = "it is held, not read")]
pub(crate) enum ArgumentReference {
    Future(Future),
    Handles(Arc<Handles>),
}

/// A task to submit.
#[derive(Debug, Clone)]
pub struct Submit {
    pub(crate) wire: wire::Submit,
    pub(crate) values: Vec<Argument>,
}

impl Submit {
    /// A call of a function, by any name that is unique in its module.
    pub fn function(module: &Module, name: &str) -> Self {
        let entry = Entry::Function(name.to_owned());
        Self::of(wire::Submit::new(module.digest, entry))
    }

    /// A run of the module's program, with these arguments, its name first.
    pub fn program(module: &Module, args: Vec<String>) -> Self {
        Self::of(wire::Submit {
            args,
            ..wire::Submit::new(module.digest, Entry::Program)
        })
    }

    /// All that can be said about a task. Its arguments come with [`Submit::values`].
    pub fn of(wire: wire::Submit) -> Self {
        Self {
            wire,
            values: Vec::new(),
        }
    }

    /// All that is said about it, but its arguments.
    pub fn wire(&self) -> &wire::Submit {
        &self.wire
    }

    /// The function's arguments. Futures behind the last parameter are dependencies: the task starts when they are there too,
    /// and may name them.
    #[must_use]
    pub fn values(mut self, values: impl IntoIterator<Item = Argument>) -> Self {
        self.values = values.into_iter().collect();
        self
    }

    /// What it asks for, over what its module declares.
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Self {
        self.wire.terms = terms;
        self
    }

    /// What it may use besides.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.wire.limits = limits;
        self
    }

    /// What it may reach.
    #[must_use]
    pub fn grants(mut self, grants: Grants) -> Self {
        self.wire.grants = grants;
        self
    }

    /// Has it, and the tasks that it starts, belong to this trace, below the span of the client that submits it.
    #[must_use]
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.wire.trace = Some(trace);
        self
    }

    /// Asks for its output and its report.
    #[must_use]
    pub fn watched(mut self) -> Self {
        self.wire.is_watched = true;
        self
    }

    /// Lets it go on when the session ends.
    #[must_use]
    pub fn detached(mut self) -> Self {
        self.wire.is_detached = true;
        self
    }
}

impl Client {
    /// Submits a task.
    ///
    /// # Errors
    /// When the arguments do not fit, no node can ever run it, or the node is stopping.
    pub async fn submit(&self, submit: Submit) -> Result<Task, Error> {
        let (task, _) = self.submit_wanted(submit, false).await?;
        Ok(task)
    }

    /// As [`Client::submit`]; if `is_wanted`, and the task is not detached, its value is asked for together with it.
    pub(crate) async fn submit_wanted(
        &self,
        submit: Submit,
        is_wanted: bool,
    ) -> Result<(Task, Option<Answers>), Error> {
        let (values, held) = self.arguments(submit.values).await?;
        let wire = wire::Submit {
            values,
            ..submit.wire
        };
        if wire.is_detached {
            let task = self.submit_once(wire, held.is_empty()).await?;
            return Ok((task, None));
        }
        Task::start(&self.0, Request::Submit(Box::new(wire)), is_wanted).await
    }

    /// A detached task as it was submitted first, to be submitted again: a node keeps that of the last ones.
    ///
    /// # Errors
    /// When it is not kept: the task was not detached, is forgotten, or its arguments name objects or actors.
    pub async fn submission(&self, task: TaskId) -> Result<Submit, Error> {
        let mut wire = match self.request(Request::Given(task)).await? {
            Response::Given(wire) => *wire,
            other => return Err(Error::unexpected(&other)),
        };
        // Nobody who waits for it is there any more.
        wire.is_watched = false;
        let values = std::mem::take(&mut wire.values).into_iter();
        let values = values.map(|it| match it {
            wire::Argument::Value(value) => Ok(Argument::Value(value)),
            wire::Argument::Object(id) => Err(Error::Unexpected(format!(
                "it has object {id}, which is another session's"
            ))),
        });
        let values: Vec<Argument> = values.collect::<Result<_, Error>>()?;
        Ok(Submit::of(wire).values(values))
    }

    /// The job that detached tasks of this session are submitted as.
    pub fn detached_job(&self) -> DriverId {
        self.0.job.id
    }

    /// That job is to have so many tasks: it is over when they have ended, and not before.
    pub fn expect_tasks(&self, tasks: u64) {
        self.0.tasks.store(tasks, Ordering::Relaxed);
    }

    /// Submits what outlives this session, and again, in another one, if the node was restarted before it has
    /// answered: under the same id, so that it is run once. `is_whole`: whether it names nothing of this session.
    async fn submit_once(&self, wire: wire::Submit, is_whole: bool) -> Result<Task, Error> {
        let task = TaskId::from_bytes(random());
        let job = wire::Job {
            tasks: self.0.tasks.load(Ordering::Relaxed),
            ..self.0.job.clone()
        };
        let request = |is_again| Request::SubmitOnce {
            task,
            submit: Box::new(wire.clone()),
            job: job.clone(),
            is_again,
        };
        let submitted = async |connection: &Arc<Connection>, is_again| {
            let answers = connection.start(request(is_again)).await?;
            Task::submitted(connection, answers).await
        };
        match submitted(&self.0, false).await {
            // Objects of this session have ended with it, and nobody sends its input any more.
            Err(Error::Closed) if is_whole && wire.input != wire::Input::Stream => {}
            other => return other,
        }
        let again = async {
            loop {
                if let Ok(connection) = self.0.again().await
                    && let Some(done) = decided(submitted(&Arc::new(connection), true).await)
                {
                    return done;
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        let again = tokio::time::timeout(PATIENCE, again).await;
        again.unwrap_or(Err(Error::Undecided { task }))
    }

    /// Submits a function once with each of these arguments: what a loop of [`Client::submit`] does, with a
    /// fraction of the work. Nobody gets their output or reports. When some are refused, those before
    /// them may have been submitted: they end with the session.
    ///
    /// # Errors
    /// As of `submit`; and for a program, or what is watched or detached.
    pub async fn submit_all(
        &self,
        submit: &Submit,
        calls: impl IntoIterator<Item = Vec<Argument>>,
    ) -> Result<Vec<Future>, Error> {
        let mut calls = calls.into_iter().peekable();
        let mut sent = VecDeque::new();
        let mut futures = Vec::new();
        while calls.peek().is_some() {
            let (mut some, mut stored, mut bytes) = (Vec::new(), Vec::new(), 0);
            while let Some(call) = calls.next_if(|_| some.len() < MAX_CALLS && bytes < CALL_BYTES) {
                let (values, of_it) = self.arguments(call).await?;
                bytes += values.iter().map(size_bytes).sum::<usize>();
                stored.extend(of_it);
                some.push(values);
            }
            let request = Request::SubmitAll {
                submit: Box::new(submit.wire.clone()),
                calls: some,
            };
            sent.push_back(self.0.start(request).await?);
            // The node takes some while we prepare the next.
            if sent.len() > AHEAD
                && let Some(answers) = sent.pop_front()
            {
                self.submitted(answers, &mut futures).await?;
            }
        }
        for answers in sent {
            self.submitted(answers, &mut futures).await?;
        }
        Ok(futures)
    }

    async fn submitted(
        &self,
        mut answers: Answers,
        futures: &mut Vec<Future>,
    ) -> Result<(), Error> {
        match answers.next().await? {
            Response::SubmittedAll(ids) => {
                let made = ids.into_iter().map(|id| ObjectId::of(id, 0));
                futures.extend(made.map(|id| Future::new(&self.0, id)));
                Ok(())
            }
            other => Err(Error::unexpected(&other)),
        }
    }

    /// Arguments as they travel. What is held must be until the request is sent.
    pub(crate) async fn arguments(
        &self,
        given: Vec<Argument>,
    ) -> Result<(Vec<wire::Argument>, Vec<ArgumentReference>), Error> {
        let (mut values, mut held) = (Vec::with_capacity(given.len()), Vec::new());
        let mut inline = 0;
        for argument in given {
            let future = match argument {
                Argument::Naming(value, handles) if value.size_bytes() <= INLINE_BYTES => {
                    inline = (inline + value.size_bytes()).min(INLINE_TOTAL_BYTES);
                    values.push(wire::Argument::Value(value));
                    held.push(ArgumentReference::Handles(handles));
                    continue;
                }
                Argument::Naming(value, handles) => {
                    let options = PutOptions::default();
                    self.put_with(&value, &handles, options).await?
                }
                Argument::Value(value)
                    if value.size_bytes() <= INLINE_BYTES.min(INLINE_TOTAL_BYTES - inline) =>
                {
                    inline += value.size_bytes();
                    values.push(wire::Argument::Value(value));
                    continue;
                }
                Argument::Value(value) => self.put(&value).await?,
                Argument::Future(future) => future,
            };
            values.push(wire::Argument::Object(future.id()));
            held.push(ArgumentReference::Future(future));
        }
        Ok((values, held))
    }

    /// More for the standard input of a task that reads a stream; nothing is the end. Waits until the
    /// task takes it.
    ///
    /// # Errors
    /// When the task does not read any more.
    pub async fn input(&self, task: &Task, bytes: Vec<u8>) -> Result<(), Error> {
        self.input_of(task.id(), bytes).await
    }

    /// As [`Client::input`], by the task's id.
    ///
    /// # Errors
    /// As of `input`.
    pub async fn input_of(
        &self,
        task: wasmrun_model::id::TaskId,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        let bytes = wire::Bytes(bytes);
        self.done(Request::Input { task, bytes }).await
    }

    /// Waits until a task that reads a stream wants more of it than has come. Whoever reads what others may want, too, does
    /// so first.
    ///
    /// # Errors
    /// When the task does not read any more.
    pub async fn input_wanted(&self, task: wasmrun_model::id::TaskId) -> Result<(), Error> {
        self.done(Request::InputWanted(task)).await
    }

    /// The standard input of a task that reads a stream cannot be read any further: the task's next read fails. `errno` is
    /// why, as Linux numbers errors.
    ///
    /// # Errors
    /// As of `input`.
    pub async fn input_failed(
        &self,
        task: wasmrun_model::id::TaskId,
        errno: i32,
    ) -> Result<(), Error> {
        self.done(Request::InputFailed { task, errno }).await
    }
}

/// What is to be said of a submission; none if the node has gone once more.
fn decided(submitted: Result<Task, Error>) -> Option<Result<Task, Error>> {
    match submitted {
        Err(Error::Closed) => None,
        other => Some(other),
    }
}

/// Random bytes.
///
/// # Panics
/// When the system has no randomness to give.
pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    let drawn = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    assert_eq!(drawn, Ok(bytes.len()), "the kernel has randomness");
    bytes
}

fn size_bytes(argument: &wire::Argument) -> usize {
    match argument {
        wire::Argument::Value(value) => value.size_bytes(),
        wire::Argument::Object(_) => size_of::<ObjectId>(),
    }
}
