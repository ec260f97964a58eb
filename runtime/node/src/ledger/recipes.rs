//! How to make the results of tasks again, noted when they end.

use super::{Ledger, Todo};
use crate::records::job::{Call, Job};
use crate::records::lineage::{CallRecipe, Kept};
use crate::records::task::{Report, Work};
use wasmrun_model::id::TaskId;
use wasmrun_model::task::Attempt;

use std::sync::Arc;

use crate::records::lineage::{Origin, Recipe};
use crate::records::object::Value;
use crate::records::task::TaskCell;

impl Ledger {
    /// Notes how to make the result of a task again that another node owned, and that has ended. What there is no room
    /// for any more, for the caller to drop outside the lock.
    #[must_use]
    pub(crate) fn inherit_recipe(
        &mut self,
        cell: &TaskCell,
        job: &Arc<Job>,
        call: &Call,
        value: &Value,
    ) -> Vec<Kept> {
        let (recipe, over) = self.lineage.add(cell, job, call, Attempt::FIRST);
        set_recipe(cell, value, recipe);
        over
    }

    /// Notes how to make the result of a task again, if that may get lost.
    pub(super) fn note_recipe(
        &mut self,
        task: &TaskId,
        attempt: Attempt,
        report: &Report,
        todo: &mut Todo,
    ) {
        let Ok(Some(value)) = &report.result else {
            return;
        };
        if value.as_inline().is_some() {
            return;
        }
        let Some(entry) = self.tasks.get(task) else {
            return;
        };
        match (&entry.cell.work, &entry.call) {
            (Work::Task(job), Some(call)) => {
                let (recipe, over) = self.lineage.add(&entry.cell, job, call, attempt);
                todo.trash.recipes.extend(over);
                set_recipe(&entry.cell, value, recipe);
            }
            (Work::Call(actor, _), _) => {
                if let Some(remote) = value.as_remote() {
                    let recipe = CallRecipe::new(actor, &entry.cell);
                    remote.set_origin(Origin::Call(recipe));
                }
            }
            _ => {}
        }
    }
}

/// From now on a task's result can be made again.
pub(super) fn set_recipe(cell: &TaskCell, value: &Value, recipe: Arc<Recipe>) {
    if let Some(remote) = value.as_remote() {
        remote.set_origin(Origin::Task(recipe.clone()));
    }
    cell.set_recipe(recipe);
}
