//! Requests that take no time, and who answers them; what is kept of outputs, standard input, waiting.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use wasmrun_model::id::{ObjectId, TaskId};
use wasmrun_model::wire::{Bytes, Output, Refusal, RefusalKind, Request, Response};

use super::cluster::listed;
use super::gather::is_of_all;
use super::out::Gone;
use super::registry::Log;
use super::session::{Session, refusal};
use super::views::{self, Asker};
use super::watch::output;
use super::{Inner, Stopper, lists, logs};

impl Session {
    /// Answers a request that needs no waiting.
    pub(super) async fn at_once(&self, id: u64, request: Request) -> Result<(), Gone> {
        let answer = match request {
            // Alone, there is nobody to wait for.
            request if is_of_all(&request) => return self.of_all(id, request).await,
            Request::Submit(submit) => return self.submit(id, *submit).await,
            Request::SubmitOnce { task, submit, .. } => {
                return self.submit_once(id, task, *submit).await;
            }
            Request::Call(call) => return self.call(id, *call).await,
            Request::Release(objects) => {
                let mut known = self.objects.lock();
                let released: Vec<_> = objects.iter().filter_map(|it| known.release(it)).collect();
                drop(known);
                drop(released);
                return Ok(());
            }
            Request::ReleaseActor(actor) => {
                let released = self.actors.lock().release(&actor);
                drop(released);
                return Ok(());
            }
            Request::Unpin(ids) => {
                self.unpin(&ids);
                return Ok(());
            }
            Request::Module(digest) => match self.loaded(&digest) {
                Some(module) => Ok(Response::Module(Box::new(views::module(&module)))),
                None => Ok(Response::Unknown),
            },
            Request::SubmitAll { submit, calls } => self.submit_all(&submit, calls),
            // In a cluster the session lets these wait beside the reading.
            request @ (Request::Create(_) | Request::FindActor(_) | Request::Kill(_)) => {
                self.of_actor(request).await
            }
            Request::CancelObject(object) => {
                let object = self.known(&object);
                object.map(|it| Response::Cancelled(self.client.cancel_object(&it)))
            }
            Request::KillActor(actor) => self.known_actor(&actor).map(|actor| {
                self.client.kill(&actor);
                Response::Done
            }),
            Request::Actor(actor) => self.known_actor(&actor).map(|it| self.hand_out(&it)),
            Request::RanAt(task) => views::ran_at(&self.inner, self.asker(), &task),
            Request::CancelMine => {
                self.client.cancel_all();
                Ok(Response::Done)
            }
            Request::List(list) => Ok(listed(lists::list(&self.inner, &list))),
            // A detached one is written down first.
            request @ (Request::CreateGroup(_) | Request::CreateGroupWith { .. }) => {
                self.of_group(request).await
            }
            Request::Status => Ok(Response::Status(Box::new(views::status(&self.inner)))),
            Request::Stop { is_now } => {
                let done = self.out.send(id, Response::Done).await;
                Stopper(self.inner.clone()).stop(is_now);
                return done;
            }
            Request::Chunk(_)
            | Request::Upload { .. }
            | Request::Put { .. }
            | Request::PutWith(_)
            | Request::PutStaged(_)
            | Request::Staged { .. }
            | Request::Get { .. }
            | Request::GetWith { .. }
            | Request::GetAll { .. }
            | Request::Wait { .. }
            | Request::FindObject(_)
            | Request::Input { .. }
            | Request::InputFailed { .. }
            | Request::InputWanted(_)
            | Request::CreateToken { .. }
            | Request::RevokeToken(_)
            | Request::CreateClientToken { .. }
            | Request::RevokeClient(_)
            | Request::Drain { .. }
            | Request::SetResource(_)
            | Request::RemoveNode { .. }
            | Request::SetTenant(_)
            | Request::SetTenantWith { .. }
            | Request::Scheduling(_)
            | Request::SchedulerState
            | Request::RemoveTenant(_)
            | Request::RemoveGroup(_)
            | Request::GroupReady { .. }
            | Request::ActorReady { .. }
            | Request::Describe(_)
            | Request::Explain(_)
            | Request::Cancel(_)
            | Request::Logs(_)
            | Request::Delete(_) => unreachable!("these were taken before"),
        };
        self.answer(id, answer).await
    }

    /// What names of actors may have to be looked for.
    pub(super) async fn of_actor(&self, request: Request) -> Result<Response, Refusal> {
        match request {
            Request::Create(create) => self.create(*create).await,
            Request::FindActor(name) => {
                let found = self.find(&name).await;
                found.map(|actor| self.hand_out(&actor))
            }
            Request::Kill(name) => self.kill(&name).await,
            _ => unreachable!("the session gives us no others"),
        }
    }

    /// What a task reads next: no bytes are the end, and nothing comes behind that or an error.
    pub(super) async fn input(
        &self,
        task: TaskId,
        read: io::Result<Bytes>,
    ) -> Result<Response, Refusal> {
        let read = read.map(|bytes| bytes::Bytes::from(bytes.0));
        let is_last = read.as_ref().map_or(true, bytes::Bytes::is_empty);
        let feed = match is_last {
            true => self.inputs.lock().remove(&task),
            false => self.inputs.lock().get(&task).cloned(),
        };
        let sent = match feed {
            Some(feed) => feed.send(read).await || is_last,
            // The end of what nobody reads any more.
            None => is_last,
        };
        self.is_read(task, sent)
    }

    /// Waits until a task wants more to read than has come.
    pub(super) async fn input_wanted(&self, task: TaskId) -> Result<Response, Refusal> {
        let feed = self.inputs.lock().get(&task).cloned();
        let is_wanted = match feed {
            Some(feed) => feed.wanted().await,
            None => false,
        };
        self.is_read(task, is_wanted)
    }

    /// The answer to what is about the standard input of a task.
    fn is_read(&self, task: TaskId, is_read: bool) -> Result<Response, Refusal> {
        if is_read {
            return Ok(Response::Done);
        }
        self.inputs.lock().remove(&task);
        let why = "nobody reads this any more";
        Err(refusal(RefusalKind::NotFound, why))
    }

    pub(super) async fn wait(
        &self,
        objects: &[ObjectId],
        count: u32,
        timeout_ms: Option<u64>,
    ) -> Result<Response, Refusal> {
        let objects = self.all_known(objects)?;
        let (count, timeout) = (count as usize, timeout_ms.map(Duration::from_millis));
        let ready = self.client.wait_async(&objects, count, timeout).await;
        let ready = ready.into_iter().filter_map(|at| u32::try_from(at).ok());
        Ok(Response::Ready(ready.collect()))
    }
}

/// What is kept of the output of a task, or of the actor that it has created.
pub(super) fn log(inner: &Inner, asker: Asker<'_>, task: &TaskId) -> Result<Arc<Log>, Refusal> {
    let registry = inner.registry();
    let actor = registry.actor_log(&task.actor());
    if let Some(actor) = actor.filter(|it| asker.owns(&it.tenant, it.driver)) {
        return Ok(actor.log.clone());
    }
    let record = registry.task(task);
    let record = record.filter(|it| asker.owns(&it.tenant, it.driver));
    logs::kept(record.ok_or_else(|| views::missing(asker.tenant, "task or actor", task))?)
}

/// What is kept, as it travels.
pub(super) fn outputs(log: &Log) -> Vec<Output> {
    let parts = log.chunks().into_iter();
    parts
        .map(|it| output(it.writer, it.source, it.bytes))
        .collect()
}
