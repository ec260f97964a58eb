//! Where tasks go: to the node inside this process, or to one that runs already.
//!
//! Both give the same reports, so what prints them does not care.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::oneshot;
use wasmrun_client::blocking;
use wasmrun_client::wire::{self, Dir, Net};
use wasmrun_client::{Error, Handles, PutOptions, Submit as Task, Value};
use wasmrun_engine::{
    Entry, HeldResource, Input, Intake, Module, NetGrant, OutputChunk, OutputSource, Readable,
    intake,
};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{DriverId, TaskId};
use wasmrun_model::units;
use wasmrun_model::value::{Encoded, NumberKind};
use wasmrun_node::{Argument, Call, Client, Job, Node, Report, SubmitError, TaskHandle};

use crate::args::{GrantOptions, LimitOptions, Submit, TaskOptions};
use crate::fail::{Exit, Failure};
use crate::remote;
use crate::submit::waiting::{Pending, Source};

/// Where tasks go.
pub enum Target {
    /// To the node inside this process.
    Local { node: Box<Node>, client: Client },
    /// To one that runs already.
    Remote(Box<Remote>),
}

/// A node that runs already, and what all tasks of this submission have in common.
pub struct Remote {
    client: Arc<blocking::Client>,
    template: wire::Submit,
    pending: Arc<Pending>,
    /// Whether it is asked where each task ran, and not only those that trapped.
    wants_places: bool,
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Whoever listens for Ctrl-C has the client to the end of the process.
        self.client.leave();
    }
}

/// A task of either.
pub enum Handle {
    Local(TaskHandle),
    Remote {
        id: TaskId,
        ended: oneshot::Receiver<Result<Ended, Error>>,
    },
}

/// What came of a task, and at which node, if that was asked for and is known.
pub struct Ended {
    pub report: Report,
    pub node: Option<String>,
}

/// Ends all tasks of a submission. Cheap to clone.
#[derive(Clone)]
pub enum Stopper {
    Local(Client),
    Remote(Arc<blocking::Client>),
}

impl Stopper {
    pub fn cancel_all(&self) {
        match self {
            Self::Local(client) => client.cancel_all(),
            Self::Remote(client) => {
                let session = (***client).clone();
                client.handle().spawn(async move {
                    // If the node is gone, so are the tasks.
                    let _ = session.cancel_all().await;
                });
            }
        }
    }
}

impl Target {
    pub fn remote(
        client: Arc<blocking::Client>,
        submit: &Submit,
        module: &Module,
        job: &Job,
        wants_places: bool,
    ) -> Result<Self, Failure> {
        let entry = match job.entry {
            Entry::Program | Entry::Http => wire::Entry::Program,
            Entry::Function(index) => wire::Entry::Function(module.function(index).full_name()),
        };
        let template = wire::Submit {
            name: job.name.clone(),
            terms: terms(&submit.task)?,
            limits: limits(&submit.task.limits),
            grants: grants(&submit.task.grants)?,
            is_watched: !submit.detach,
            is_detached: submit.detach,
            ..wire::Submit::new(module.digest(), entry)
        };
        Ok(Self::Remote(Box::new(Remote {
            client,
            template,
            pending: Arc::default(),
            wants_places,
        })))
    }

    pub fn node(&self) -> &str {
        match self {
            Self::Local { node, .. } => node.name(),
            Self::Remote(remote) => remote.client.node(),
        }
    }

    /// Who knows why a task waits.
    pub fn source(&self) -> Source {
        match self {
            Self::Local { client, .. } => Source::Local(client.clone()),
            Self::Remote(remote) => Source::Remote(remote.client.clone(), remote.pending.clone()),
        }
    }

    pub fn stopper(&self) -> Stopper {
        match self {
            Self::Local { client, .. } => Stopper::Local(client.clone()),
            Self::Remote(remote) => Stopper::Remote(remote.client.clone()),
        }
    }

    pub fn submit(&self, job: &Arc<Job>, call: Call) -> Result<Handle, Failure> {
        match self {
            Self::Local { client, .. } => {
                let submitted = client.submit(job, call).map_err(|error| match error {
                    SubmitError::Unschedulable(_) => Failure::new(Exit::Unschedulable, error),
                    other => Failure::new(Exit::Usage, other),
                });
                submitted.map(Handle::Local)
            }
            Self::Remote(remote) => remote.submit(call),
        }
    }

    /// The job that is submitted with [`Target::detach`], which is to have so many tasks.
    pub fn detached_job(&self, tasks: u64) -> DriverId {
        match self {
            Self::Local { .. } => unreachable!("only a node that stays takes such tasks"),
            Self::Remote(remote) => {
                remote.client.expect_tasks(tasks);
                remote.client.detached_job()
            }
        }
    }

    /// Submits what outlives us. Its id, and why it does not outlive the node, if it should.
    pub fn detach(&self, call: Call) -> Result<(TaskId, Option<String>), Failure> {
        match self {
            Self::Local { .. } => unreachable!("only a node that stays takes such tasks"),
            Self::Remote(remote) => {
                let (task, _) = remote.task(call)?;
                let task = remote.client.wait(remote.client.submit(task));
                let task = task.map_err(remote::failed)?;
                Ok((task.id(), task.why_not_durable().map(str::to_owned)))
            }
        }
    }

    /// Keeps what could not be written where it should: at the node, if that stays, else in a file. What is to be said of
    /// it.
    pub fn keep(&self, bytes: Vec<u8>) -> anyhow::Result<String> {
        match self {
            Self::Local { .. } => {
                let mut file = tempfile::Builder::new()
                    .prefix("wasmrun-result-")
                    .tempfile()?;
                std::io::Write::write_all(&mut file, &bytes)?;
                let (_, path) = file.keep()?;
                Ok(format!("it is in {} instead", path.display()))
            }
            Self::Remote(remote) => {
                let kind = NumberKind::U8;
                let value = Encoded::Buffer { kind, bytes };
                let options = PutOptions {
                    is_kept: true,
                    ..PutOptions::default()
                };
                let (client, handles) = (&remote.client, Handles::default());
                let kept = client.wait(client.put_with(&value, &handles, options))?;
                let (id, node) = (kept.id(), client.node());
                Ok(format!(
                    "node {node} keeps it as object {id}: `wasmrun object get {id} -O FILE` gets it, `wasmrun object delete {id}` \
                     lets it go"
                ))
            }
        }
    }

    pub fn cancel(&self, handle: &Handle) {
        match (self, handle) {
            (Self::Local { client, .. }, Handle::Local(handle)) => client.cancel(handle),
            (Self::Remote(remote), Handle::Remote { id, .. }) => {
                let (session, id) = ((**remote.client).clone(), id.to_string());
                remote.client.handle().spawn(async move {
                    let _ = session.cancel(&id).await;
                });
            }
            _ => unreachable!("a handle is of its own target"),
        }
    }

    /// Waits until the task has ended.
    pub fn wait(&self, handle: Handle) -> Result<Ended, Failure> {
        match handle {
            Handle::Local(handle) => Ok(Ended {
                report: handle.wait(),
                node: Some(self.node().to_owned()),
            }),
            Handle::Remote { ended, .. } => {
                let ended = ended.blocking_recv().unwrap_or(Err(Error::Closed));
                ended.map_err(remote::failed)
            }
        }
    }
}

impl Remote {
    /// A call as it travels, and what it reads as it comes.
    fn task(&self, call: Call) -> Result<(Task, Option<Intake>), Failure> {
        let mut wire = self.template.clone();
        let (input, stream) = match call.input {
            Input::Empty | Input::Http(_) => (wire::Input::Empty, None),
            Input::Bytes(bytes) if bytes.len() <= wire::INLINE_TOTAL_BYTES / 2 => {
                (wire::Input::Bytes(wire::Bytes(bytes.to_vec())), None)
            }
            Input::Bytes(bytes) if self.template.is_detached || wire.terms.retries > Some(0) => {
                let (size, most) = (bytes.len() as u64, wire::INLINE_TOTAL_BYTES as u64 / 2);
                return Err(Failure::usage(format!(
                    "--stdin has {}, and a running node takes {} that way; give the program a \
                     directory with --dir",
                    units::bytes(size),
                    units::bytes(most)
                )));
            }
            Input::Bytes(bytes) => {
                let (feed, stream) = intake(2);
                // There is room for all, and for the end.
                self.client.wait(async {
                    feed.send(Ok(bytes)).await;
                    feed.send(Ok(bytes::Bytes::new())).await;
                });
                (wire::Input::Stream, Some(stream))
            }
            Input::Stream(stream) => (wire::Input::Stream, Some(stream)),
        };
        wire.input = input;
        wire.args = call.args;
        wire.array_index = call.array_index;
        wire.trace = call.trace;
        let values = call.values.into_iter().map(|value| match value {
            Argument::Value(value) => Ok(Encoded::from(value.load()?.encoded()).into()),
            Argument::Object(_) => unreachable!("what is typed is a value"),
        });
        let values: Result<Vec<_>, Failure> = values.collect();
        Ok((Task::of(wire).values(values?), stream))
    }

    fn submit(&self, mut call: Call) -> Result<Handle, Failure> {
        let listener = call.listener.take();
        let (task, stream) = self.task(call)?;
        let session = (**self.client).clone();
        let submitted = self.client.wait(session.submit(task));
        let mut task = submitted.map_err(remote::failed)?;
        let id = task.id();
        if let Some(stream) = stream {
            self.client
                .handle()
                .spawn(pass_on(session.clone(), id, stream));
        }
        let (sender, ended) = oneshot::channel();
        let wants_place = self.wants_places;
        let pending = self.pending.clone();
        let at = pending.submitted(id);
        self.client.handle().spawn(async move {
            let ended = async {
                while let Some(output) = task.output().await? {
                    let source = match output.is_stderr {
                        true => OutputSource::Stderr,
                        false => OutputSource::Stdout,
                    };
                    let Some(listener) = &listener else { continue };
                    let chunk = OutputChunk {
                        tag: listener.tag,
                        writer: output.writer,
                        attempt: output.attempt,
                        source,
                        bytes: output.bytes.0.into(),
                    };
                    // If the printer has stopped, it has cancelled everything.
                    listener.send(chunk).await;
                }
                let report = task.report().await?;
                let value = match &report.result {
                    Ok(true) => Some(task.future().get(None).await),
                    _ => None,
                };
                let report = local(report, value)?;
                let has_trapped = matches!(report.result, Err(TaskError::Trap { .. }));
                let node = match wants_place || has_trapped {
                    // A node of the version before does not say, and one that has forgotten cannot.
                    true => task.ran_at().await.ok(),
                    false => None,
                };
                Ok(Ended { report, node })
            };
            let ended = ended.await;
            pending.ended(at);
            drop(listener);
            let _ = sender.send(ended);
        });
        Ok(Handle::Remote { id, ended })
    }
}

/// Brings a task what it reads, when it wants it, to the end or to what went wrong.
async fn pass_on(session: wasmrun_client::Client, task: TaskId, mut stream: Intake) {
    // Whoever read has gone without a word.
    let gone = || Err(io::ErrorKind::BrokenPipe.into());
    loop {
        if session.input_wanted(task).await.is_err() {
            return;
        }
        let read = stream.next().await.unwrap_or_else(gone);
        let is_last = read.as_ref().map_or(true, bytes::Bytes::is_empty);
        let passed = match read {
            Ok(bytes) if bytes.is_empty() => session.input_of(task, Vec::new()).await,
            Ok(bytes) => {
                let parts = bytes.chunks(wire::CHUNK_BYTES);
                let mut passed = Ok(());
                for part in parts {
                    passed = session.input_of(task, part.to_vec()).await;
                    if passed.is_err() {
                        break;
                    }
                }
                passed
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                session.input_failed(task, errno).await
            }
        };
        if is_last || passed.is_err() {
            return;
        }
    }
}

/// A report as our own node gives it.
fn local(
    report: wire::Report,
    value: Option<Result<Value, wasmrun_client::GetError>>,
) -> Result<Report, Error> {
    let us = std::time::Duration::from_micros;
    let held = report.held.into_iter().map(|held| HeldResource {
        name: held.name,
        amount: held.steps,
        units: held.units,
    });
    let result = match (report.result, value) {
        (Err(error), _) => Err(TaskError::from(error)),
        (Ok(_), None) => Ok(None),
        (Ok(_), Some(Ok(value))) => Ok(Some(value.into_encoded().into())),
        (Ok(_), Some(Err(wasmrun_client::GetError::Request(error)))) => return Err(error),
        (Ok(_), Some(Err(error))) => Err(TaskError::Sandbox(error.to_string())),
    };
    Ok(Report {
        id: report.task,
        result,
        waited: us(report.waited_us),
        ran: us(report.ran_us),
        held: held.collect(),
        memory_peak: report.memory_peak_bytes,
        stderr_tail: report.stderr_tail,
        // Its name is asked for, where that is printed.
        ran_at: None,
        attempt: report.attempt,
        phases: wire::Phases::default(),
    })
}

/// When and where what is asked for runs, and with what.
///
/// # Errors
/// One resource has two amounts.
pub fn terms(task: &TaskOptions) -> Result<wire::Terms, Failure> {
    let scheduling = &task.scheduling;
    Ok(wire::Terms {
        resources: task.request.asked()?.0,
        tenant: Some(scheduling.tenant.clone()),
        priority: scheduling.priority,
        retries: scheduling.retries,
        retry_on_error: scheduling.retry_on_error,
        no_preempt: scheduling.no_preempt,
        selectors: scheduling.label_selector.clone().unwrap_or_default(),
        strategy: scheduling.strategy.clone(),
    })
}

/// What it may use besides.
pub fn limits(limits: &LimitOptions) -> wire::Limits {
    wire::Limits {
        time_ms: limits.time_limit.map(units::ms),
        output_bytes: limits.max_output,
        argument_bytes: limits.max_arguments,
        result_bytes: limits.max_result,
    }
}

/// What may be reached, for a node that has another working directory.
pub fn grants(options: &GrantOptions) -> Result<wire::Grants, Failure> {
    let dirs = options.dir.iter().map(|dir| {
        let host = std::path::absolute(&dir.0.host)?;
        let host = host
            .into_os_string()
            .into_string()
            .map_err(|host| Failure::usage(format!("{} is not UTF-8", host.to_string_lossy())))?;
        Ok(Dir {
            host,
            guest: dir.0.guest.clone(),
            is_read_only: dir.0.read_only,
        })
    });
    let dirs: Result<Vec<Dir>, Failure> = dirs.collect();
    let env = options.env.iter().map(|it| (it.0.clone(), it.1.clone()));
    Ok(wire::Grants {
        env: env.collect(),
        dirs: dirs?,
        net: match options.net.as_ref().map(|net| &net.0) {
            None | Some(NetGrant::None) => Net::None,
            Some(NetGrant::Only(addresses)) => Net::Only(addresses.clone()),
            Some(NetGrant::All) => Net::All,
        },
        http: options.http.clone(),
        secrets: options.secret.clone(),
    })
}
