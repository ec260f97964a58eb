//! Reconstruction of results that were lost with a node.
//!
//! Owns running a task again, by its [`Recipe`], when its result is read and no node has it. Of what the task needs, only
//! what is lost too is reconstructed before it. Must not: keep results.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{NodeId, TaskId};
use wasmrun_model::reference::Path;
use wasmrun_model::task::TaskKind;

use super::{Exchange, Remote};
use crate::guests::services::Watch;
use crate::ledger::Submission;
use crate::records::lineage::{Forgotten, Origin, Recipe};
use crate::records::object::RemoteBytes;
use crate::records::task::{TaskCell, Work};

/// How long what a lost node had here may take to end,
const LEAVING: Duration = Duration::from_secs(60);
/// and how often is looked whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// Tasks that run again for one reader.
struct Again<'a> {
    exchange: &'a Exchange,
    tasks: Vec<TaskId>,
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        self.exchange.reconstructed(&self.tasks);
    }
}

/// Why a task is not run again.
enum NotAgain {
    /// An attempt runs here for the node that owned the task before, and is about to end: that node is lost.
    Leaving,
    /// This.
    For(String),
}

impl From<&str> for NotAgain {
    fn from(why: &str) -> Self {
        Self::For(why.to_owned())
    }
}

/// Results that are being reconstructed, by the tasks that make them.
#[derive(Default)]
pub(super) struct Reconstructions(Mutex<HashMap<TaskId, Arc<TaskCell>>>);

impl Exchange {
    /// Reconstructs an object that this node owns and no node has any more.
    pub(super) async fn reconstruct(&self, remote: &Remote) -> Result<(), TaskError> {
        let object = remote.id();
        let gone = |why: String| TaskError::Gone { object, why };
        let had = self.names_of(&remote.holders());
        let made = match remote.origin() {
            None => return Err(gone(format!("{had}; what made it cannot be run again"))),
            Some(Origin::Task(recipe)) if recipe.is_forgotten() => {
                return Err(gone(format!("{had}, and {Forgotten}")));
            }
            Some(Origin::Task(recipe)) => {
                tracing::info!(%object, task = %recipe.id, "an object is lost, and reconstructed");
                self.count(|counters| &counters.objects_reconstructed, 1);
                let cell = self.rerun(recipe).await;
                let cell = cell.map_err(|why| gone(format!("{had}, and {why}")))?;
                cell.result().unwrap_or(Ok(None))?
            }
            Some(Origin::Call(made)) => {
                let again = self.call_again(made).await;
                again.map_err(|why| gone(format!("{had}, and {why}")))?
            }
        };
        let value = made.ok_or(TaskError::Lost(object))?;
        match remote.was_reconstructed(value) {
            true => {
                if let Some(desk) = self.desk() {
                    desk.has_moved(&object);
                }
                Ok(())
            }
            false => Err(gone(format!(
                "{had}, and what made it has made something else this time: is it deterministic?"
            ))),
        }
    }

    /// Who had an object, for people.
    pub(super) fn names_of(&self, holders: &[NodeId]) -> String {
        let fabric = self.fabric();
        let name = |node: &NodeId| match &fabric {
            Some(fabric) => fabric.name_of(*node),
            None => node.to_string(),
        };
        let names: Vec<String> = holders.iter().map(name).collect();
        match &names[..] {
            [] => "no node has it".to_owned(),
            [one] => format!("node {one}, which had it, has it no more or is lost"),
            many => format!(
                "nodes {}, which had it, have it no more or are lost",
                many.join(", ")
            ),
        }
    }

    /// Runs a task again, and what it needs for that, to the end. Else why not.
    async fn rerun(&self, recipe: &Arc<Recipe>) -> Result<Arc<TaskCell>, String> {
        // Also where nobody waits for it any more.
        let mut again = Again {
            exchange: self,
            tasks: Vec::new(),
        };
        let until = Instant::now() + LEAVING;
        let made = loop {
            match self.run_again(recipe, &mut again.tasks) {
                Ok(cell) => break [cell],
                Err(NotAgain::For(why)) => return Err(why),
                Err(NotAgain::Leaving) if Instant::now() < until => {
                    tokio::time::sleep(LOOK).await;
                }
                Err(NotAgain::Leaving) => {
                    return Err("an attempt of it for a node that is lost does not end here".into());
                }
            }
        };
        let watch = Watch::new(&made, 1);
        watch.countdown.done().await;
        drop(watch);
        let [cell] = made;
        Ok(cell)
    }

    /// Nobody need share these tasks any more.
    fn reconstructed(&self, tasks: &[TaskId]) {
        let mut reconstructing = self.reconstructing.0.lock();
        let cells: Vec<_> = tasks
            .iter()
            .filter_map(|task| reconstructing.remove(task))
            .collect();
        drop(reconstructing);
        drop(cells);
    }

    /// Submits a task again, and those before it of whose results nothing is left. Which ones, in `again`.
    fn run_again(
        &self,
        last: &Arc<Recipe>,
        again: &mut Vec<TaskId>,
    ) -> Result<Arc<TaskCell>, NotAgain> {
        let mut path = Path::new(last.clone());
        loop {
            let lacking = |recipe: &Arc<Recipe>| {
                // Not both locks at a time: `submit_again` takes them the other way round.
                let missing = recipe.missing_inputs();
                let reconstructing = self.reconstructing.0.lock();
                missing
                    .into_iter()
                    .find(|it| !reconstructing.contains_key(&it.id))
            };
            let recipe = path.next(lacking).clone();
            let Some(cell) = self.submit_again(&recipe)? else {
                continue;
            };
            again.push(recipe.id);
            if path.begun() {
                return Ok(cell);
            }
        }
    }

    /// `None` if an argument that was being reconstructed for another reader is gone meanwhile.
    fn submit_again(&self, recipe: &Arc<Recipe>) -> Result<Option<Arc<TaskCell>>, NotAgain> {
        let shared = self
            .shared
            .upgrade()
            .ok_or("what made it cannot be run again: the node is stopping")?;
        if shared.ask(|ledger| ledger.is_of_other(&recipe.id)) {
            // That is nobody's any more, and what came of it nobody would hear.
            return Err(NotAgain::Leaving);
        }
        let mut reconstructing = self.reconstructing.0.lock();
        if let Some(cell) = reconstructing
            .get(&recipe.id)
            .filter(|cell| !cell.has_ended())
        {
            return Ok(Some(cell.clone()));
        }
        let call = recipe.call(|task| reconstructing.get(task).cloned());
        let Some(call) = call.map_err(|error| NotAgain::For(error.to_string()))? else {
            return Ok(None);
        };
        let work = Work::Task(recipe.job.clone());
        let cell = TaskCell::new(recipe.id, recipe.driver, work, shared.home());
        cell.share();
        let cell = Arc::new(cell);
        let first = recipe.next_attempt(&shared.ids);
        reconstructing.insert(recipe.id, cell.clone());
        drop(reconstructing);
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
                    self.reconstructing
                        .0
                        .lock()
                        .insert(recipe.id, known.clone());
                }
                Ok(Some(known))
            }
            Err(error) => {
                self.reconstructing.0.lock().remove(&recipe.id);
                let why = format!("what made it cannot be run again: {error}");
                Err(NotAgain::For(why))
            }
        }
    }
}
