//! The lineage of results, noted when their tasks end.
//!
//! Owns which results get a recipe. Must not: decide how many recipes a node keeps, which is
//! [`Lineage`](crate::records::lineage::Lineage)'s.

use std::sync::Arc;

use wasmrun_model::id::TaskId;
use wasmrun_model::task::Attempt;

use super::{Ledger, Todo};
use crate::records::job::{Call, Job};
use crate::records::lineage::{CallRecipe, Ingredients, Origin, Recipe};
use crate::records::object::Value;
use crate::records::task::{Report, TaskCell, Work};

impl Ledger {
    /// Notes the recipe of an ended task that another node owned before. What there is no room for any more, for the
    /// caller to drop outside the lock.
    #[must_use]
    pub(crate) fn inherit_recipe(
        &mut self,
        cell: &TaskCell,
        job: &Arc<Job>,
        call: &Call,
        value: &Value,
    ) -> Vec<Ingredients> {
        let (recipe, over) = self.lineage.add(cell, job, call, Attempt::FIRST);
        set_recipe(cell, value, recipe);
        over
    }

    /// Notes the recipe of a task's result, if that may get lost.
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

/// From now on a task's result can be reconstructed.
fn set_recipe(cell: &TaskCell, value: &Value, recipe: Arc<Recipe>) {
    if let Some(remote) = value.as_remote() {
        remote.set_origin(Origin::Task(recipe.clone()));
    }
    cell.set_recipe(recipe);
}
