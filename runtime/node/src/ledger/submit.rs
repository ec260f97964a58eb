//! How tasks are taken.
//!
//! Owns what is known of a task from when it is submitted, and the end of one that will never run. Must not: run or place it;
//! that is the scheduler's.

use std::sync::Arc;

use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{JobId, ObjectId, TaskId};
use wasmrun_model::scheduler::{Event, Reason};
use wasmrun_model::task::{Attempt, Phase as State, TaskSpec, Terms};

use super::arguments::{Tie, has_failed, needs};
use super::entry::Starter;
use super::{Ended, Entry, InputSummary, Ledger, Resuming, Submission, SubmitError, Todo};
use crate::records::job::{Call, Job};
use crate::records::task::{Report, TaskCell, Work};

/// How many children a task has before those that have ended are looked for.
const MANY_CHILDREN: usize = 1024;

impl Ledger {
    /// Whether a task may be submitted: if it lives here already, because another attempt of its parent started it, that
    /// one is it.
    ///
    /// # Errors
    /// When the node or its parent is stopping, or as many tasks of its tenant wait as may.
    pub(crate) fn may_submit(
        &self,
        submission: &Submission,
    ) -> Result<Option<Arc<TaskCell>>, SubmitError> {
        let mut parent = submission.parent.iter();
        match () {
            () if self.is_stopping => Err(SubmitError::Stopping),
            () if parent.any(|it| self.is_stopped(it)) => Err(SubmitError::Stopped),
            () => {
                // A driver never uses an id twice. But another node may have given us the task since its id was looked for.
                let known = self.cell(&submission.cell.id);
                if known.is_none() && submission.first == Attempt::FIRST {
                    self.scheduler.may_wait(&submission.terms.tenant)?;
                }
                Ok(known)
            }
        }
    }

    /// Takes a task. One that this node can never run is refused, unless others can come to help.
    pub(crate) fn submit(&mut self, submission: Submission) -> Todo {
        let Submission {
            driver,
            parent,
            terms,
            kind,
            call,
            cell,
            keeps,
            first,
        } = submission;
        let parent = parent.map(|task| self.starter(task));
        let terms = match self.terms_here(&cell.work, &call, terms) {
            Ok(terms) => terms,
            Err(error) => return self.never_runs(parent, cell, call, error),
        };
        if let Work::Create(actor) = &cell.work {
            self.dead.forget(&actor.id);
        }
        let args = needs(&call);
        let given = InputSummary::of(&call);
        let spec = TaskSpec {
            id: cell.id,
            driver,
            job: JobId::from_bytes(*driver.as_bytes()),
            terms,
            kind,
            args,
        };
        // What has failed already will not be told again.
        let lost = spec.args.iter().filter(|needed| !needed.is_local);
        let lost: Vec<ObjectId> = lost
            .map(|needed| needed.object)
            .filter(|it| has_failed(&call, it))
            .collect();
        let entry = Entry {
            call: Some(call),
            cell: cell.clone(),
            parent,
            children: Vec::new(),
            is_stopped: false,
            resuming: Resuming::No,
            keeps,
            from: None,
            given,
        };
        if let Some(parent) = parent {
            self.add_child(&parent.task, cell.id);
        }
        self.jobs
            .submitted(driver, parent.is_none(), cell.submitted);
        let slot = self.insert(entry);
        let now = self.at(cell.submitted);
        self.submitting = Some(cell.id);
        let event = match first {
            Attempt::FIRST => Event::Submit(spec),
            first => Event::Resubmit(spec, first),
        };
        self.scheduler.note(now, event);
        self.scheduler.mark(&cell.id, slot);
        for object in lost {
            self.scheduler.note(now, Event::ArgumentFailed(object));
        }
        let mut todo = Todo::default();
        self.carry_out(now, None, &mut todo);
        self.submitting = None;
        if todo.refused.is_some() {
            self.jobs.refused(&driver, parent.is_none(), cell.submitted);
            if let Some(entry) = self.tasks.remove(&cell.id) {
                // It waits as infeasible, and nobody can help it.
                todo.trash.calls.extend(entry.call);
                self.scheduler.note(now, Event::Cancel(cell.id));
                self.carry_out(now, None, &mut todo);
            }
        }
        todo
    }

    /// The terms of a task, with this node as the only one if something ties it here.
    ///
    /// # Errors
    /// When it will never run.
    fn terms_here(
        &self,
        work: &Work,
        call: &Call,
        terms: Arc<Terms>,
    ) -> Result<Arc<Terms>, TaskError> {
        if let Work::Call(actor, _) = work
            && match actor.is_foreign() {
                true => actor.is_over(),
                // The scheduler knows nothing of it any more.
                false => !self.tasks.contains(&actor.creation()),
            }
        {
            // Dead for good.
            return Err(actor.died());
        }
        match Tie::of(work, call).filter(|_| self.is_clustered) {
            Some(_) => self.stays(&terms).map_err(TaskError::Unschedulable),
            None => Ok(terms),
        }
    }

    /// Why no task of a job could ever run here, in the words that it would be told. In a cluster what nothing ties to this
    /// node may wait for a node that has yet to join. `is_request` if its tasks answer requests by themselves.
    pub(crate) fn why_never(&mut self, job: &Job, is_request: bool) -> Option<String> {
        let tie = Tie::of_job(job, is_request).filter(|_| self.is_clustered);
        let terms = match tie {
            Some(_) => self.stays(&job.terms),
            None => Ok(job.terms.clone()),
        };
        let why = match terms {
            Ok(terms) => self.scheduler.why_never(&terms.rule)?,
            Err(why) => return Some(why),
        };
        let why = match (why, tie) {
            (why, Some(tie)) => self.say_what_ties(why, &job.terms.rule, tie),
            (Reason::NoNode | Reason::Nowhere { .. }, None) if self.is_clustered => return None,
            (why, None) => why,
        };
        Some(why.to_string())
    }

    /// A task that starts another: it runs here, in this attempt.
    fn starter(&self, task: TaskId) -> Starter {
        let known = self.scheduler.task(&task);
        let attempt = known.map_or(0, |it| it.attempt.number());
        Starter { task, attempt }
    }

    /// A task is not taken, and has failed.
    fn never_runs(
        &mut self,
        parent: Option<Starter>,
        cell: Arc<TaskCell>,
        call: Call,
        error: TaskError,
    ) -> Todo {
        let (driver, now) = (cell.driver, cell.submitted);
        self.jobs.submitted(driver, parent.is_none(), now);
        self.jobs
            .ended(&driver, parent.is_none(), State::Failed, now);
        let mut todo = Todo::default();
        todo.end.push(Ended {
            report: Report::never_ran(&cell, error),
            cell,
            parent,
            given: InputSummary::of(&call),
        });
        todo.trash.calls.push(call);
        todo
    }

    fn add_child(&mut self, parent: &TaskId, child: TaskId) {
        let Some(entry) = self.tasks.get_mut(parent) else {
            return;
        };
        let children = &mut entry.children;
        if children.len() < children.capacity().max(MANY_CHILDREN) {
            return children.push(child);
        }
        // Before more is taken for them: most have ended where a task starts others all its life.
        let mut children = std::mem::take(children);
        children.retain(|child| self.tasks.contains(child));
        children.reserve(children.len().max(MANY_CHILDREN));
        children.push(child);
        if let Some(entry) = self.tasks.get_mut(parent) {
            entry.children = children;
        }
    }
}
