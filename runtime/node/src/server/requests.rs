//! Which function answers each request, and which requests may take their time.
//!
//! Owns also what is about standard input, waiting and kept output. Must not: let a request that takes no time wait for one
//! that does.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use wasmrun_engine::Feed;
use wasmrun_model::id::{ObjectId, TaskId};
use wasmrun_model::wire::{Bytes, Output, Refusal, RefusalKind, Request, Response, What};

use super::out::ConnectionClosed;
use super::session::{Session, refusal};
use super::views::{self, Asker};
use super::watch::output;
use super::{Inner, Stopper, logs};
use crate::records::log::Log;

/// Why there is no link to a page.
const NO_PAGE: &str = "the node serves no page: start it with `wasmrun node start --dashboard`";

impl Session {
    /// Whether the answer to a request may take its time, so that others should not wait for it. What takes none is
    /// answered in the order of the requests.
    pub(super) fn may_wait(&self, request: &Request) -> bool {
        // Alone, there is nobody to wait for.
        let has_others = self.inner.cluster().is_some();
        match request {
            Request::Module(_)
            | Request::Submit(_)
            | Request::SubmitAll { .. }
            | Request::Call(_)
            | Request::Release(_)
            | Request::ReleaseActor(_)
            | Request::Unpin(_)
            | Request::CancelObject(_)
            | Request::CancelMine
            | Request::KillActor(_)
            | Request::Actor(_)
            | Request::RanAt(_)
            | Request::Status
            | Request::Dashboard
            | Request::Secrets
            | Request::WhoAmI
            | Request::Stop { .. } => false,
            Request::SubmitOnce { is_again, .. } => *is_again,
            // A detached one is written down first.
            Request::CreateGroup(create) => create.is_detached,
            // The control store and other nodes may have to be asked for the name of an actor.
            Request::Create(create) if create.name.is_none() => false,
            Request::Create(_) | Request::FindActor(_) | Request::Kill(_) => {
                self.inner.shared.are_names_elsewhere()
            }
            Request::List(list) => match list.what {
                What::Tokens | What::Access | What::Audit => true,
                What::Members | What::Due => false,
                _ => has_others,
            },
            Request::Describe(_)
            | Request::Explain(_)
            | Request::Cancel(_)
            | Request::Logs(_)
            | Request::Given(_)
            | Request::Delete(_) => has_others,
            // All others ask other nodes or the control store, or wait for something.
            _ => true,
        }
    }

    /// Answers a request.
    pub(super) async fn respond(&self, id: u64, request: Request) -> Result<(), ConnectionClosed> {
        if let Err(why) = self.has_secrets(&request).await {
            return self.refuse(id, why).await;
        }
        match request {
            Request::Submit(submit) => self.submit(id, *submit).await,
            Request::SubmitOnce {
                task,
                submit,
                job,
                is_again: false,
            } => self.submit_once(id, task, *submit, job).await,
            Request::SubmitOnce {
                task, submit, job, ..
            } => self.submit_again(id, task, *submit, job).await,
            Request::Call(call) => self.call(id, *call).await,
            Request::Get {
                object,
                timeout_ms,
                can_map,
            } => self.get(id, object, timeout_ms, can_map).await,
            Request::GetAll {
                objects,
                timeout_ms,
            } => self.get_all(id, &objects, timeout_ms).await,
            Request::Logs(text) => self.logs(id, &text).await,
            Request::Stop { is_now } => {
                let done = self.out.send(id, Response::Done).await;
                Stopper(self.inner.clone()).stop(is_now);
                done
            }
            // Nobody waits for an answer to these.
            Request::Release(objects) => {
                self.release(&objects);
                Ok(())
            }
            Request::ReleaseActor(actor) => {
                let released = self.actors.lock().release(&actor);
                drop(released);
                Ok(())
            }
            Request::Unpin(ids) => {
                self.unpin(&ids);
                Ok(())
            }
            request => {
                let answer = self.answer_to(request).await;
                self.answer(id, answer).await
            }
        }
    }

    /// The answer to a request that has one answer, which is short.
    async fn answer_to(&self, request: Request) -> Result<Response, Refusal> {
        match request {
            Request::Upload { .. }
            | Request::Put(_)
            | Request::Chunk(_)
            | Request::Staged { .. } => unreachable!("the connection takes the parts of transfers"),
            Request::Submit(_)
            | Request::SubmitOnce { .. }
            | Request::Call(_)
            | Request::Get { .. }
            | Request::GetAll { .. }
            | Request::Logs(_)
            | Request::Stop { .. }
            | Request::Release(_)
            | Request::ReleaseActor(_)
            | Request::Unpin(_) => unreachable!("these are answered in other ways"),
            Request::Module(digest) => Ok(match self.loaded(&digest) {
                Some(module) => Response::Module(Box::new(views::module(&module))),
                None => Response::Unknown,
            }),
            Request::SubmitAll { submit, calls } => self.submit_all(&submit, calls),
            Request::Input { task, bytes } => self.input(task, Ok(bytes)).await,
            Request::InputFailed { task, errno } => {
                let failed = io::Error::from_raw_os_error(errno);
                self.input(task, Err(failed)).await
            }
            Request::InputWanted(task) => self.input_wanted(task).await,
            Request::Wait {
                objects,
                count,
                timeout_ms,
            } => self.wait(&objects, count, timeout_ms).await,
            Request::FindObject(prefix) => self.find_object(prefix).await,
            Request::Delete(prefix) => self.delete_anywhere(&prefix).await,
            Request::Create(create) => self.create(*create).await,
            Request::FindActor(name) => self.find(&name).await.map(|it| self.hand_out(&it)),
            Request::Actor(actor) => self.resolve_actor(&actor).map(|it| self.hand_out(&it)),
            Request::ActorReady { actor, timeout_ms } => self.actor_ready(&actor, timeout_ms).await,
            Request::Kill(name) => self.kill(&name).await,
            Request::KillActor(actor) => self.resolve_actor(&actor).map(|it| {
                self.client.kill(&it);
                Response::Done
            }),
            Request::Cancel(text) => self.cancel(&text).await,
            Request::CancelMine => {
                self.client.cancel_all();
                Ok(Response::Done)
            }
            Request::CancelObject(object) => {
                let object = self.resolve_object(&object);
                object.map(|it| Response::Cancelled(self.client.cancel_object(&it)))
            }
            Request::List(list) => self.list(list).await,
            Request::Describe(text) => self.describe(&text).await,
            Request::Explain(text) => self.explain_any(&text).await,
            Request::Given(task) => self.submission(task).await,
            Request::RanAt(task) => views::ran_at(&self.inner, self.asker(), &task),
            Request::CreateGroup(create) => self.create_group(*create).await,
            Request::GroupReady { group, timeout_ms } => self.group_ready(&group, timeout_ms).await,
            Request::RemoveGroup(group) => self.remove_group(&group).await,
            Request::Serve(serve) => self.serve(*serve).await,
            Request::StopService { name, patience_ms } => {
                let patience = Duration::from_millis(patience_ms);
                self.stop_service(&name, patience).await
            }
            Request::SetSecret { name, value } => self.set_secret(name, value).await,
            Request::RemoveSecret(name) => self.remove_secret(name).await,
            Request::Secrets => Ok(self.secrets()),
            Request::RotateSecrets => self.rotate_secrets().await,
            request @ (Request::ChangeTenant(_)
            | Request::RemoveTenant(_)
            | Request::Scheduling(_)
            | Request::SchedulerState
            | Request::SetResource(_)
            | Request::CreateToken { .. }
            | Request::CreateClientToken(_)
            | Request::RevokeToken(_)
            | Request::RevokeClient(_)
            | Request::WhoAmI
            | Request::Drain { .. }
            | Request::RemoveNode { .. }
            | Request::Dashboard
            | Request::Status) => self.administer(request).await,
        }
    }

    /// The answer to a request about the node or its cluster.
    async fn administer(&self, request: Request) -> Result<Response, Refusal> {
        match request {
            Request::ChangeTenant(change) => self.change_tenant(*change).await,
            Request::RemoveTenant(tenant) => self.remove_tenant(tenant).await,
            Request::Scheduling(choices) => self.scheduling(&choices).await,
            Request::SchedulerState => self.scheduler_state().await,
            Request::SetResource(set) => self.set_resource(*set).await,
            Request::CreateToken {
                is_reusable,
                lifetime_ms,
            } => self.create_token(None, is_reusable, lifetime_ms).await,
            Request::CreateClientToken(token) => self.create_client_token(*token).await,
            Request::WhoAmI => {
                let who = self.caller.who_am_i(&self.tenant, self.inner.name());
                Ok(Response::WhoAmI(Box::new(who)))
            }
            Request::RevokeToken(token) => self.revoke_token(&token).await,
            Request::RevokeClient(client) => self.revoke_client(&client).await,
            Request::Drain { node, is_draining } => self.drain(&node, is_draining).await,
            Request::RemoveNode { node, is_forced } => self.remove_node(&node, is_forced).await,
            Request::Dashboard => {
                let link = self.inner.dashboard.get();
                let link = link.map(|link| Response::Text(link()));
                link.ok_or_else(|| refusal(RefusalKind::NotFound, NO_PAGE))
            }
            Request::Status => {
                let tenants = &self.caller.access.tenants;
                Ok(Response::Status(Box::new(views::status(
                    &self.inner,
                    tenants,
                ))))
            }
            _ => unreachable!("it is about something else"),
        }
    }

    /// The client sends a task what it reads.
    pub(super) fn take_input(&self, task: TaskId, feed: Feed) {
        let mut inputs = self.inputs.lock();
        // A client may send no end to a task that has ended.
        if inputs.len() == inputs.capacity() {
            inputs.retain(|_, feed| !feed.is_closed());
        }
        inputs.insert(task, feed);
    }

    /// What a task reads next: no bytes are the end, and nothing comes behind that or an error.
    async fn input(&self, task: TaskId, read: io::Result<Bytes>) -> Result<Response, Refusal> {
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
    async fn input_wanted(&self, task: TaskId) -> Result<Response, Refusal> {
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

    async fn wait(
        &self,
        objects: &[ObjectId],
        count: u32,
        timeout_ms: Option<u64>,
    ) -> Result<Response, Refusal> {
        let objects = self.resolve_objects(objects)?;
        let (count, timeout) = (count as usize, timeout_ms.map(Duration::from_millis));
        let ready = self.client.wait(&objects, count, timeout).await;
        let ready = ready.into_iter().filter_map(|at| u32::try_from(at).ok());
        Ok(Response::Ready(ready.collect()))
    }
}

/// What is kept of the output of a task, or of the actor that it has created.
pub(super) fn log(inner: &Inner, asker: Asker<'_>, task: &TaskId) -> Result<Arc<Log>, Refusal> {
    let actor = inner.shared.actor_logs.get(&task.actor());
    if let Some(actor) = actor.filter(|it| asker.owns(&it.tenant, it.driver)) {
        return Ok(actor.log);
    }
    let registry = inner.registry();
    let record = registry.task(task);
    if let Some(record) = record.filter(|it| asker.owns(&it.tenant, it.driver)) {
        return logs::detached_log(record);
    }
    drop(registry);
    // To be told that nothing is kept of it, it must be the asker's.
    views::describe(inner, asker, task)
        .map_err(|_| views::missing(asker.tenant, "task or actor", task))?;
    Err(logs::not_kept(task))
}

/// What is kept, as it travels.
pub(super) fn outputs(log: &Log) -> Vec<Output> {
    let parts = log.chunks().into_iter();
    parts
        .map(|it| output((it.writer, it.attempt), it.source, it.bytes))
        .collect()
}
