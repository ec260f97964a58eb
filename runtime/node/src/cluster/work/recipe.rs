//! Making results again that were lost with a node.
//!
//! Owns [`Recipe`]: what a task was to do, kept as long as its result is and for as long as that is what
//! another result was made of (lineage, as in Ray, OSDI 2018). Must not: keep results.
//!
//! Only what somebody needs is made again: a lost result when it is read, and of what it was made of what is
//! not there any more, and so on.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use wasmrun_engine::Input;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{DriverId, TaskId};
use wasmrun_model::task::{Attempt, TaskKind};

use super::{Exchange, Remote};
use crate::ledger::Submission;
use crate::object::{Object, Reference, Value};
use crate::services::{MOST_ATTEMPTS, Watch};
use crate::task::{Argument, Call, Job, TaskCell, Work};

/// What a task was to do.
pub(crate) struct Recipe {
    id: TaskId,
    driver: DriverId,
    job: Arc<Job>,
    /// Its last attempt.
    attempt: Mutex<Attempt>,
    values: Vec<Ingredient>,
    args: Vec<String>,
    array_index: Option<u64>,
    input: Option<Bytes>,
}

/// An argument.
enum Ingredient {
    Argument(Argument),
    /// A result that can itself be made again, as long as there is one.
    Result(Arc<Recipe>, Weak<TaskCell>),
}

impl Drop for Recipe {
    /// One after the other, not one inside the other: each may be the last of a long chain.
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.values);
        while let Some(value) = left.pop() {
            if let Ingredient::Result(recipe, _) = value
                && let Some(mut recipe) = Arc::into_inner(recipe)
            {
                left.append(&mut recipe.values);
            }
        }
    }
}

impl Recipe {
    /// What a task that has ended was to do.
    pub(crate) fn new(cell: &TaskCell, job: &Arc<Job>, call: &Call, attempt: Attempt) -> Arc<Self> {
        let values = call.values.iter().map(|argument| match argument {
            Argument::Object(Object(Reference::Task(made))) => {
                match (made.value(), made.recipe()) {
                    (Some(value), _) if value.as_inline().is_some() => Ingredient::Argument(
                        Argument::Object(Object(Reference::Task(made.clone()))),
                    ),
                    (_, Some(recipe)) => Ingredient::Result(recipe.clone(), Arc::downgrade(made)),
                    _ => Ingredient::Argument(argument.clone()),
                }
            }
            other => Ingredient::Argument(other.clone()),
        });
        Arc::new(Self {
            id: cell.id,
            driver: cell.driver,
            job: job.clone(),
            attempt: Mutex::new(attempt),
            values: values.collect(),
            args: call.args.clone(),
            array_index: call.array_index,
            input: match &call.input {
                Input::Bytes(bytes) => Some(bytes.clone()),
                Input::Empty | Input::Stream(_) => None,
            },
        })
    }
}

/// Tasks that run again for one who waits.
struct Again<'a> {
    exchange: &'a Exchange,
    tasks: Vec<TaskId>,
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        self.exchange.remade(&self.tasks);
    }
}

/// Results that are being made again, by the tasks that make them.
#[derive(Default)]
pub(super) struct Remaking(Mutex<HashMap<TaskId, Arc<TaskCell>>>);

impl Exchange {
    /// Makes an object of ours again that no node has any more.
    pub(super) async fn remake(&self, remote: &Remote) -> Result<(), TaskError> {
        let lost = || TaskError::Lost(remote.id());
        let recipe = remote.recipe().ok_or_else(lost)?.clone();
        tracing::info!(object = %remote.id(), task = %recipe.id, "an object is lost, and made again");
        self.count(|counters| &counters.objects_remade, 1);
        // Also where nobody waits for it any more.
        let mut again = Again {
            exchange: self,
            tasks: Vec::new(),
        };
        let made = [self.run_again(&recipe, &mut again.tasks)?];
        let watch = Watch::new(&made, 1);
        watch.countdown.done().await;
        drop(watch);
        let [cell] = made;
        let value: Value = match cell.result() {
            Some(Ok(Some(value))) => value,
            Some(Err(error)) => return Err(error),
            Some(Ok(None)) | None => return Err(lost()),
        };
        match remote.was_remade(value) {
            true => Ok(()),
            false => Err(lost()),
        }
    }

    /// Nobody need share these tasks any more.
    fn remade(&self, tasks: &[TaskId]) {
        let mut remaking = self.remaking.0.lock();
        let cells: Vec<_> = tasks
            .iter()
            .filter_map(|task| remaking.remove(task))
            .collect();
        drop(remaking);
        drop(cells);
    }

    /// Submits a task again, and those before it of whose results nothing is left. Which ones, in `again`.
    fn run_again(
        &self,
        last: &Arc<Recipe>,
        again: &mut Vec<TaskId>,
    ) -> Result<Arc<TaskCell>, TaskError> {
        let mut path = vec![last.clone()];
        loop {
            let recipe = path.last().expect("it begins with one").clone();
            let lacking = recipe.values.iter().find_map(|value| match value {
                Ingredient::Result(before, cell) if cell.strong_count() == 0 => {
                    let is_under_way = self.remaking.0.lock().contains_key(&before.id);
                    (!is_under_way).then(|| before.clone())
                }
                _ => None,
            });
            if let Some(before) = lacking {
                path.push(before);
                continue;
            }
            let cell = self.submit_again(&recipe)?;
            again.push(recipe.id);
            path.pop();
            if path.is_empty() {
                return Ok(cell);
            }
        }
    }

    fn submit_again(&self, recipe: &Arc<Recipe>) -> Result<Arc<TaskCell>, TaskError> {
        let lost =
            |why: String| TaskError::Unschedulable(format!("it cannot be made again: {why}"));
        let shared = self
            .shared
            .upgrade()
            .ok_or_else(|| lost("the node is stopping".into()))?;
        let mut remaking = self.remaking.0.lock();
        if let Some(cell) = remaking.get(&recipe.id).filter(|cell| !cell.has_ended()) {
            return Ok(cell.clone());
        }
        let of_task = |cell: Arc<TaskCell>| Argument::Object(Object(Reference::Task(cell)));
        let values = recipe.values.iter().map(|value| match value {
            Ingredient::Argument(argument) => Ok(argument.clone()),
            Ingredient::Result(before, cell) => cell
                .upgrade()
                .or_else(|| remaking.get(&before.id).cloned())
                .map(of_task)
                .ok_or_else(|| lost("what it was made of is gone".into())),
        });
        let call = Call {
            values: values.collect::<Result<_, _>>()?,
            args: recipe.args.clone(),
            array_index: recipe.array_index,
            input: recipe.input.clone().map_or(Input::Empty, Input::Bytes),
            // Whoever listened has heard it all.
            listener: None,
            time_limit: None,
        };
        let work = Work::Task(recipe.job.clone());
        let cell = TaskCell::new(recipe.id, recipe.driver, work, shared.home());
        cell.share();
        let cell = Arc::new(cell);
        let first = {
            let mut attempt = recipe.attempt.lock();
            // The last time may have taken several.
            *attempt = Attempt(attempt.0.saturating_add(MOST_ATTEMPTS));
            *attempt
        };
        remaking.insert(recipe.id, cell.clone());
        drop(remaking);
        let submitted = shared.submit(Submission {
            driver: recipe.driver,
            parent: None,
            terms: recipe.job.terms.clone(),
            kind: TaskKind::Task,
            call,
            cell: cell.clone(),
            keeps: None,
            first,
        });
        match submitted {
            Ok(known) => {
                if !Arc::ptr_eq(&known, &cell) {
                    self.remaking.0.lock().insert(recipe.id, known.clone());
                }
                Ok(known)
            }
            Err(error) => {
                self.remaking.0.lock().remove(&recipe.id);
                Err(lost(error.to_string()))
            }
        }
    }
}
