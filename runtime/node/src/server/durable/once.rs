//! Detached tasks whose ids their clients have drawn, so that one that is submitted again is not run twice.
//!
//! Owns looking for a task that is there already. Must not: keep anything of its own: what is known of a task is in the
//! registry, here or at the node that has taken it over.

use std::time::Duration;

use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ObjectId, TaskId};
use wasmrun_model::task::Attempt;
use wasmrun_model::wire::{self, Refusal, RefusalKind, Response};

use super::PATIENCE;
use crate::peers::ask::{Answer, Asked, Question};
use crate::records::object::Object;
use crate::server::out::ConnectionClosed;
use crate::server::registry::Detached;
use crate::server::session::{Session, refusal};
use crate::server::tasks::Started;
use crate::server::watch::Follower;

/// How often is looked whether a task is durable that somebody else waits for.
const LOOK: Duration = Duration::from_millis(10);

impl Session {
    /// Submits what outlives the session, under an id of the client's.
    pub(in crate::server) async fn submit_once(
        &self,
        id: u64,
        task: TaskId,
        submit: wire::Submit,
        job: wire::Job,
    ) -> Result<(), ConnectionClosed> {
        self.submit_from(id, task, Attempt::FIRST, submit, job)
            .await
    }

    async fn submit_from(
        &self,
        id: u64,
        task: TaskId,
        first: Attempt,
        submit: wire::Submit,
        job: wire::Job,
    ) -> Result<(), ConnectionClosed> {
        let is_watched = submit.is_watched;
        let tenant = self.tenant(&submit.terms);
        match self.start_once(task, first, submit, job) {
            Ok(Some(started)) => self.answer_start(id, Ok(started), is_watched).await,
            Ok(None) => self.answer_again(id, task, &tenant, is_watched).await,
            Err(why) => self.refuse(id, why).await,
        }
    }

    /// The same, where the client has said it before and was not answered: the node may have been another process then,
    /// and the task may be another node's by now.
    pub(in crate::server) async fn submit_again(
        &self,
        id: u64,
        task: TaskId,
        submit: wire::Submit,
        job: wire::Job,
    ) -> Result<(), ConnectionClosed> {
        let is_here = self.inner.registry().task(&task).is_some();
        let tenant = self.tenant(&submit.terms);
        if !is_here && self.is_elsewhere(task, &tenant).await {
            let is_watched = submit.is_watched;
            return self.answer_again(id, task, &tenant, is_watched).await;
        }
        self.bring_module(&submit).await;
        // It may have run in that process, and others may have what it made.
        let first = self.inner.shared.ids.again(Attempt::FIRST);
        self.submit_from(id, task, first, submit, job).await
    }

    /// Starts a task from this attempt on, unless it is there already.
    fn start_once(
        &self,
        task: TaskId,
        first: Attempt,
        submit: wire::Submit,
        job: wire::Job,
    ) -> Result<Option<Started>, Refusal> {
        if !submit.is_detached {
            let why = "only detached tasks have ids of their clients";
            return Err(refusal(RefusalKind::Usage, why));
        }
        let tenant = self.tenant(&submit.terms);
        let _once = self.inner.once.lock();
        let known = self.inner.registry().task(&task).map(|record| {
            let is_kept = record.detached.is_some();
            is_kept && record.tenant == tenant
        });
        // One that runs here for the node that owns it.
        let shared = &self.inner.shared;
        let runs = || shared.ask(|ledger| ledger.tenant(&task).map(|it| *it == tenant));
        match known.or_else(runs) {
            Some(true) => return Ok(None),
            Some(false) => {
                let why = format_args!("another task has the id {task}; draw another");
                return Err(refusal(RefusalKind::Usage, why));
            }
            None => {}
        }
        self.start(submit, Some(job), Some((task, first))).map(Some)
    }

    /// Answers as when the task was submitted for the first time.
    async fn answer_again(
        &self,
        id: u64,
        task: TaskId,
        tenant: &TenantName,
        is_watched: bool,
    ) -> Result<(), ConnectionClosed> {
        let here = self.inner.registry().task(&task).cloned();
        let here = here.and_then(|record| record.detached);
        let (lasting, object, log) = match here {
            Some(Detached { object, log, .. }) => {
                (self.lasting(task).await, Some(object), Some(log))
            }
            None => (Ok(()), self.made_elsewhere(task, tenant).await, None),
        };
        if let Some(object) = &object
            && let Err(why) = self.add_object(object.clone())
        {
            return self.refuse(id, why).await;
        }
        let answer = match lasting {
            Ok(()) => Response::Submitted(task),
            Err(why) => Response::SubmittedHere { task, why },
        };
        self.out.send(id, answer).await?;
        match object {
            _ if !is_watched => {}
            Some(object) => {
                let follower = Follower {
                    inner: self.inner.clone(),
                    client: self.client.clone(),
                    object,
                    log,
                    to: (self.out.clone(), id),
                };
                // It ends with its task, and all tasks end with their node or that is lost.
                tokio::spawn(follower.follow());
            }
            None => {
                let error = TaskError::Lost(ObjectId::of(task, 0));
                let report = wire::Report {
                    task,
                    result: Err((&error).into()),
                    waited_us: 0,
                    ran_us: 0,
                    held: Vec::new(),
                    memory_peak_bytes: 0,
                    stderr_tail: String::new(),
                    attempt: 0,
                };
                let ended = Response::Ended(Box::new(report));
                self.out.send(id, ended).await?;
            }
        }
        Ok(())
    }

    /// Whether a task that was submitted here outlives this node, or why not, as its first client was told.
    async fn lasting(&self, task: TaskId) -> Result<(), String> {
        let Some(durable) = self.inner.durable.get() else {
            return Ok(());
        };
        let said = async {
            loop {
                // Where there is nothing more to be told it was forgotten meanwhile.
                let detached = self.inner.registry().task(&task)?.detached.clone()?;
                if detached.lasting.is_some() {
                    return detached.lasting;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let silent = || Err(super::SILENT.to_owned());
        let said = tokio::time::timeout(PATIENCE, said).await;
        match said.unwrap_or_else(|_| Some(silent())) {
            // The store has answered since.
            Some(why) if why == silent() && durable.is_kept(&task) == Some(true) => Ok(()),
            said => said.unwrap_or(Ok(())),
        }
    }

    /// What a task makes that another node has.
    async fn made_elsewhere(&self, task: TaskId, tenant: &TenantName) -> Option<Object> {
        let object = ObjectId::of(task, 0).to_string();
        let asked = self.asked_for(tenant, Question::Object(object));
        let all = self.inner.cluster()?.ask_all(&asked).await;
        let mut names = all
            .answers
            .into_iter()
            .filter_map(|(_, answer)| match answer {
                Answer::Object(name) => Some(name),
                _ => None,
            });
        let (name, exchange) = (names.next()?, self.inner.exchange()?);
        Some(Object(exchange.borrow_kept(name, tenant)))
    }

    /// Whether another node has taken a task over.
    async fn is_elsewhere(&self, task: TaskId, tenant: &TenantName) -> bool {
        let Some(cluster) = self.inner.cluster() else {
            return false;
        };
        let asked = self.asked_for(tenant, Question::Describe(task));
        let all = cluster.ask_all(&asked).await;
        let is_known = |(_, answer): &(_, Answer)| matches!(answer, Answer::Task { .. });
        all.answers.iter().any(is_known)
    }

    /// A task may be submitted for another tenant than the session's.
    fn asked_for(&self, tenant: &TenantName, question: Question) -> Asked {
        Asked {
            tenant: tenant.clone(),
            ..self.asked(question)
        }
    }

    /// The module may have come to an earlier process of this node.
    async fn bring_module(&self, submit: &wire::Submit) {
        let digest = submit.module;
        let is_here = self.inner.registry().modules.get(&digest).is_some();
        if let (false, Some(exchange)) = (is_here, self.inner.exchange())
            && let Some(len) = exchange.modules().len(&digest)
            && let Ok(module) = exchange.find_module(digest, len).await
        {
            self.inner.registry().modules.add(module);
        }
    }
}
