//! What is kept of the output of tasks and actors, for clients: of one, and of all tasks of a job.
//!
//! Owns how many tasks' output is asked for at a time. Invariants: of a job comes what its tasks wrote in the order in
//! which they were submitted; no more of it is in memory at a time than a batch of tasks may have; a node that is
//! silent is waited for once.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use wasmrun_model::id::{DriverId, NodeId, TaskId};
use wasmrun_model::wire::{Output, Refusal, RefusalKind, Response, Silent};

use super::Inner;
use super::lookup::Meant;
use super::merge::with_silent;
use super::out::ConnectionClosed;
use super::registry::{Record, Registry};
use super::requests::outputs;
use super::session::{Session, refusal};
use super::views::{Asker, missing};
use crate::peers::ask::{Answer, Question};
use crate::records::log::Log;

/// How many tasks' output is asked for at a time.
const BATCH: usize = 128;
/// How many bytes of output are enough for an answer: with one task's more it still is a message.
const ENOUGH_BYTES: usize = 1 << 20;
/// What a piece of output takes beside its bytes, at most.
const PIECE_BYTES: usize = 24;
/// How many nodes are asked at a time.
const MOST_ASKED: usize = 64;

/// What is kept of each task's output, or why nothing is.
pub(super) type OutputsByTask = BTreeMap<TaskId, Result<Vec<Output>, Refusal>>;

/// The other nodes, as long as they answer.
#[derive(Default)]
struct Others {
    asked: Vec<(NodeId, String)>,
    silent: Vec<Silent>,
}

/// What is kept of what a task wrote.
pub(super) fn detached_log(record: &Record) -> Result<Arc<Log>, Refusal> {
    match &record.detached {
        Some(detached) => Ok(detached.log.clone()),
        None => Err(not_kept(&record.id)),
    }
}

/// That nothing is kept of what a task wrote.
pub(super) fn not_kept(task: &TaskId) -> Refusal {
    let why = format_args!(
        "nothing is kept of what {task} wrote: a task's output goes to the client that waits for it, unless it was \
         submitted with --detach; a call's is its actor's, and a request's its service's"
    );
    refusal(RefusalKind::Usage, why)
}

/// What this node keeps of these tasks' output, of as many of them as there is room for in an answer.
pub(super) fn of_tasks(inner: &Inner, asker: Asker<'_>, tasks: &[TaskId]) -> Answer {
    let find = |registry: &Registry, id: &TaskId| {
        let record = registry.task(id);
        let record = record.filter(|it| asker.owns(&it.tenant, it.driver))?;
        Some((record.id, detached_log(record)))
    };
    // Copied outside the lock.
    let known: Vec<_> = {
        let registry = inner.registry();
        tasks.iter().map(|id| find(&registry, id)).collect()
    };
    let (mut of, mut looked_at, mut bytes) = (Vec::new(), 0, 0);
    for found in known {
        if bytes >= ENOUGH_BYTES {
            break;
        }
        looked_at += 1;
        if let Some((id, log)) = found {
            let log = log.map(|log| outputs(&log));
            let pieces = log.iter().flatten();
            bytes += pieces
                .map(|it| it.bytes.0.len() + PIECE_BYTES)
                .sum::<usize>();
            of.push((id, log));
        }
    }
    Answer::OutputsOf { of, looked_at }
}

impl Session {
    /// Sends what is kept of the output of what a text stands for.
    pub(super) async fn logs(&self, request: u64, text: &str) -> Result<(), ConnectionClosed> {
        // Its requests are tasks of a job of its name, and of each of them nothing is kept.
        let parts = match self.inner.service_output(&self.tenant, text) {
            Some(parts) => Ok(parts),
            None => match self.meant(text).await {
                Ok(Meant::Task(id)) => self.logs_of(id).await,
                Ok(Meant::Actor(id, _)) => self.logs_of(id.task()).await,
                Ok(Meant::Job(id)) => {
                    let answer = self.job_logs(request, id).await?;
                    return self.answer(request, answer).await;
                }
                Err(why) => Err(why),
            },
        };
        match parts {
            Ok(parts) => {
                self.send_parts(request, parts).await?;
                self.answer(request, Ok(Response::Done)).await
            }
            Err(why) => self.refuse(request, why).await,
        }
    }

    async fn send_parts(&self, request: u64, parts: Vec<Output>) -> Result<(), ConnectionClosed> {
        for part in parts {
            self.out.send(request, Response::Output(part)).await?;
        }
        Ok(())
    }

    /// Sends what is kept of the output of a job's tasks. What is to be answered then.
    async fn job_logs(
        &self,
        request: u64,
        job: DriverId,
    ) -> Result<Result<Response, Refusal>, ConnectionClosed> {
        let mut tasks = match self.describe_job(job).await {
            Ok(detail) => detail.tasks,
            Err(why) => return Ok(Err(why)),
        };
        // In the order in which they were submitted.
        tasks.sort_by_key(|row| std::cmp::Reverse(row.age_ms));
        let detached = tasks.iter().filter(|row| row.is_detached);
        let detached: Vec<TaskId> = detached.map(|row| row.id).collect();
        let (mut others, mut is_any, mut why) = (self.other_nodes(), false, None);
        for batch in detached.chunks(BATCH) {
            let mut found = self.logs_of_tasks(batch, &mut others).await;
            for id in batch {
                match found.remove(id) {
                    Some(Ok(parts)) => {
                        is_any |= !parts.is_empty();
                        self.send_parts(request, parts).await?;
                    }
                    Some(Err(refused)) => why = Some(refused),
                    None => why = Some(self.unknown(*id, &others.silent)),
                }
            }
        }
        Ok(match why {
            Some(why) if !is_any => Err(why),
            None if detached.is_empty() => {
                let why = format_args!(
                    "nothing is kept of what job {job} wrote: a task's output goes to the client that waits for it, \
                     unless it was submitted with --detach"
                );
                Err(refusal(RefusalKind::Usage, why))
            }
            _ => Ok(Response::Done),
        })
    }

    fn unknown(&self, id: TaskId, silent: &[Silent]) -> Refusal {
        with_silent(missing(&self.tenant, "task", id), silent)
    }

    fn other_nodes(&self) -> Others {
        let mut others = Others::default();
        let Some(cluster) = self.inner.cluster() else {
            return others;
        };
        for member in cluster.members() {
            match member.state.as_str() {
                _ if member.is_own => {}
                "dead" => {}
                "unreachable" => others.silent.push(Silent {
                    node: member.name,
                    why: "there is no connection to it".to_owned(),
                }),
                _ => others.asked.push((member.id, member.name)),
            }
        }
        others
    }

    /// What is kept of these tasks' output, here or elsewhere.
    async fn logs_of_tasks(&self, tasks: &[TaskId], others: &mut Others) -> OutputsByTask {
        let own = self.inner.shared.home.node;
        // This node never fails to answer itself.
        let mut kept = self.outputs_at(own, tasks).await.unwrap_or_default();
        let is_missing = |id: &TaskId| !matches!(kept.get(id), Some(Ok(_)));
        let missing: Vec<TaskId> = tasks.iter().copied().filter(is_missing).collect();
        if missing.is_empty() {
            return kept;
        }
        let missing = &missing;
        let asking = others.asked.drain(..).map(|(node, name)| async move {
            let found = self.outputs_at(node, missing).await;
            (node, name, found)
        });
        let asking: Vec<_> = asking.collect();
        let mut answers = stream::iter(asking).buffered(MOST_ASKED);
        let mut asked = Vec::new();
        while let Some((node, name, found)) = answers.next().await {
            match found {
                Ok(found) => {
                    asked.push((node, name));
                    add(&mut kept, found);
                }
                Err(why) => others.silent.push(Silent { node: name, why }),
            }
        }
        drop(answers);
        others.asked = asked;
        kept
    }

    /// What one node keeps of these tasks' output, in as many answers as it takes.
    async fn outputs_at(
        &self,
        node: NodeId,
        mut tasks: &[TaskId],
    ) -> Result<OutputsByTask, String> {
        let mut kept = OutputsByTask::new();
        while !tasks.is_empty() {
            let asked = self.asked(Question::LogsOf(tasks.to_vec()));
            match self.ask(node, &asked).await? {
                Answer::OutputsOf { of, looked_at } if looked_at > 0 => {
                    kept.extend(of);
                    tasks = tasks.get(looked_at as usize..).unwrap_or_default();
                }
                Answer::Refused(why) => return Err(why.message),
                _ => return Err("it has answered with something else".to_owned()),
            }
        }
        Ok(kept)
    }
}

/// One that has it, or knows the task and why nothing is kept of it, knows best.
fn add(kept: &mut OutputsByTask, more: OutputsByTask) {
    for (id, found) in more {
        let is_better = match (kept.get(&id), &found) {
            (Some(Ok(_)), _) => false,
            (Some(Err(_)), found) => found.is_ok(),
            (None, _) => true,
        };
        if is_better {
            kept.insert(id, found);
        }
    }
}
