//! Making results again that were lost with a node.
//!
//! Owns [`Recipe`]: what a task was to do, kept as long as its result is and for as long as that is what
//! another result was made of (lineage, as in Ray, OSDI 2018). Must not: keep results.
//!
//! Only what somebody needs is made again: a lost result when it is read, and of what it was made of what is
//! not there any more, and so on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use wasmrun_engine::Input;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{DriverId, NodeId, ObjectId, TaskId};
use wasmrun_model::reference::Path;
use wasmrun_model::task::{Attempt, TaskKind};

use super::replay::CallRecipe;
use super::{Exchange, Remote};
use crate::ledger::Submission;
use crate::object::{Object, Reference, Value};
use crate::services::Watch;
use crate::task::{Argument, Call, Job, TaskCell, Work};

/// What a recipe takes besides what it keeps of arguments, about.
const RECIPE_BYTES: u64 = 512;

/// How long what a lost node had here may take to end,
const LEAVING: Duration = Duration::from_secs(60);
/// and how often is looked whether it has.
const LOOK: Duration = Duration::from_millis(10);

const NOT_KEPT: &str = "what it was made of was not kept: that takes memory, of which there is a quarter of \
                        --object-memory; give the node more";

/// How an object came to be.
#[derive(Clone)]
pub(crate) enum Origin {
    /// A task made it.
    Task(Arc<Recipe>),
    /// A call of an actor made it.
    Call(Arc<CallRecipe>),
}

impl Origin {
    /// Whether it is worth a try to make it again, rather than to wait for those who may have it.
    pub(super) fn can_be_made_again(&self) -> bool {
        match self {
            Self::Task(recipe) => !recipe.is_forgotten(),
            // Its actor may be where it is.
            Self::Call(_) => false,
        }
    }
}

/// What a task was to do.
pub(crate) struct Recipe {
    id: TaskId,
    driver: DriverId,
    job: Arc<Job>,
    /// Its last attempt.
    attempt: Mutex<Attempt>,
    array_index: Option<u64>,
    /// None once there was no room for it.
    kept: Mutex<Option<Kept>>,
    /// What that takes, but for objects.
    bytes: u64,
    /// Objects among that, with their sizes.
    objects: Vec<(ObjectId, u64)>,
    /// Whether actors may be among that, or behind it.
    keeps_actors: bool,
    used: Arc<Used>,
}

/// What a task was given.
pub(crate) struct Kept {
    values: Vec<Ingredient>,
    args: Vec<String>,
    input: Option<Bytes>,
}

/// An argument.
enum Ingredient {
    Argument(Argument),
    /// A result that can itself be made again, as long as there is one.
    Result(Arc<Recipe>, Weak<TaskCell>),
}

impl Drop for Kept {
    /// One after the other, not one inside the other: each may be the last of a long chain.
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.values);
        while let Some(value) = left.pop() {
            if let Ingredient::Result(recipe, _) = value
                && let Some(recipe) = Arc::into_inner(recipe)
                && let Some(mut kept) = recipe.forget()
            {
                left.append(&mut kept.values);
            }
        }
    }
}

impl Drop for Recipe {
    fn drop(&mut self) {
        drop(self.forget());
    }
}

impl Ingredient {
    fn of(argument: &Argument) -> Self {
        if let Argument::Object(Object(Reference::Task(made))) = argument
            && made.value().is_none_or(|value| value.as_inline().is_none())
            && let Some(recipe) = made.recipe().filter(|recipe| !recipe.is_forgotten())
        {
            return Self::Result(recipe.clone(), Arc::downgrade(made));
        }
        Self::Argument(argument.clone())
    }

    /// How much memory a value takes that is kept for this alone.
    fn bytes(&self) -> u64 {
        match self {
            Self::Argument(Argument::Value(value)) => value.size_bytes(),
            // That has its own.
            Self::Argument(Argument::Object(_)) | Self::Result(..) => 0,
        }
    }

    /// An object that others may keep as well, with its size.
    fn object(&self) -> Option<(ObjectId, u64)> {
        match self {
            Self::Argument(argument) => object_of(argument),
            Self::Result(..) => None,
        }
    }
}

/// The object that an argument is, with its size.
fn object_of(argument: &Argument) -> Option<(ObjectId, u64)> {
    let Argument::Object(Object(reference)) = argument else {
        return None;
    };
    match reference {
        Reference::Put(object) => Some((object.name.id, object.value.size_bytes())),
        Reference::Task(made) => Some((made.object().id, made.value()?.size_bytes())),
        Reference::Actor(_) => None,
    }
}

/// What recipes keep, in bytes. An object counts once, however many are made of it.
#[derive(Default)]
struct Used(Mutex<UsedBytes>);

#[derive(Default)]
struct UsedBytes {
    total: u64,
    objects: HashMap<ObjectId, (u64, u32)>,
}

impl Used {
    fn add(&self, bytes: u64, objects: &[(ObjectId, u64)]) {
        let mut used = self.0.lock();
        used.total += bytes;
        for (object, size) in objects {
            let (_, count) = used.objects.entry(*object).or_insert((*size, 0));
            *count += 1;
            if *count == 1 {
                used.total += size;
            }
        }
    }

    fn sub(&self, bytes: u64, objects: &[(ObjectId, u64)]) {
        let mut used = self.0.lock();
        used.total -= bytes;
        for (object, _) in objects {
            let Some((size, count)) = used.objects.get_mut(object) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                used.total -= *size;
                used.objects.remove(object);
            }
        }
    }
}

/// Objects that the log of an actor keeps for the arguments of a call, until this goes.
pub(super) struct Counted {
    used: Arc<Used>,
    objects: Vec<(ObjectId, u64)>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.used.sub(0, &self.objects);
    }
}

/// Whether an argument keeps an actor, by what it holds or by what it can be made again of, as far as is known.
pub(super) fn keeps_actors(argument: &Argument) -> bool {
    let holds = |value: &Value| {
        let mut references = value.references().iter();
        references.any(keeps_actors_behind)
    };
    match argument {
        Argument::Value(value) => holds(value),
        Argument::Object(Object(reference)) => keeps_actors_behind(reference),
    }
}

fn keeps_actors_behind(reference: &Reference) -> bool {
    match reference {
        Reference::Actor(_) => true,
        // What is held by what is held is not looked at: who holds handles at all may hold an actor's.
        Reference::Put(object) => !object.value.references().is_empty(),
        Reference::Task(made) => {
            made.recipe().is_some_and(|recipe| recipe.keeps_actors)
                || made
                    .value()
                    .is_some_and(|value| !value.references().is_empty())
        }
    }
}

impl Recipe {
    /// What a task that has ended was to do.
    fn new(
        cell: &TaskCell,
        job: &Arc<Job>,
        call: &Call,
        attempt: Attempt,
        used: &Arc<Used>,
    ) -> Arc<Self> {
        let values: Vec<Ingredient> = call.values.iter().map(Ingredient::of).collect();
        let input = match &call.input {
            Input::Bytes(bytes) => Some(bytes.clone()),
            Input::Empty | Input::Stream(_) => None,
        };
        let of_args: usize = call.args.iter().map(String::len).sum();
        let of_input = input.as_ref().map_or(0, Bytes::len);
        let bytes = RECIPE_BYTES
            + (of_args + of_input) as u64
            + values.iter().map(Ingredient::bytes).sum::<u64>();
        let objects: Vec<_> = values.iter().filter_map(Ingredient::object).collect();
        used.add(bytes, &objects);
        Arc::new(Self {
            id: cell.id,
            driver: cell.driver,
            job: job.clone(),
            attempt: Mutex::new(attempt),
            array_index: call.array_index,
            kept: Mutex::new(Some(Kept {
                values,
                args: call.args.clone(),
                input,
            })),
            bytes,
            objects,
            keeps_actors: call.values.iter().any(keeps_actors),
            used: used.clone(),
        })
    }

    /// Lets go of what it keeps: what it is for cannot be made again any more. The caller drops that.
    fn forget(&self) -> Option<Kept> {
        let kept = self.kept.lock().take()?;
        self.used.sub(self.bytes, &self.objects);
        Some(kept)
    }

    fn is_forgotten(&self) -> bool {
        self.kept.lock().is_none()
    }

    /// How to make those results of which it is made and that are not there any more.
    fn gone(&self) -> Vec<Arc<Self>> {
        let kept = self.kept.lock();
        let values = kept.as_ref().map_or(&[][..], |kept| &kept.values);
        let gone = values.iter().filter_map(|value| match value {
            Ingredient::Result(before, cell) if cell.strong_count() == 0 => Some(before.clone()),
            _ => None,
        });
        gone.collect()
    }
}

/// The part of the limit that objects may take which logs of actors keep.
const OF_CALLS: u64 = 2;

/// All recipes of a node: how much they may keep.
///
/// Invariant: what is over the limit goes at once, the oldest first.
pub(crate) struct Lineage {
    limit: u64,
    used: Arc<Used>,
    /// What logs of actors keep.
    of_calls: Arc<Used>,
    /// The oldest first.
    recipes: VecDeque<Weak<Recipe>>,
    forgotten: u64,
}

impl Lineage {
    /// Recipes may keep so many bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: Arc::default(),
            of_calls: Arc::default(),
            recipes: VecDeque::new(),
            forgotten: 0,
        }
    }

    /// How many bytes are kept.
    pub(crate) fn used(&self) -> u64 {
        self.used.0.lock().total + self.of_calls.0.lock().total
    }

    /// Counts the objects among the arguments of a call. `None` if there is no room for them.
    pub(super) fn count_call(&self, values: &[Argument]) -> Option<Counted> {
        let objects = values.iter().filter_map(object_of).collect();
        let counted = Counted {
            used: self.of_calls.clone(),
            objects,
        };
        counted.used.add(0, &counted.objects);
        let is_room = counted.used.0.lock().total <= self.limit / OF_CALLS;
        is_room.then_some(counted)
    }

    /// How many recipes there was no room for.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The recipe of a task that has ended. What there is no room for any more, for the caller to drop.
    pub(crate) fn add(
        &mut self,
        cell: &TaskCell,
        job: &Arc<Job>,
        call: &Call,
        attempt: Attempt,
    ) -> (Arc<Recipe>, Vec<Kept>) {
        let recipe = Recipe::new(cell, job, call, attempt, &self.used);
        if self.recipes.len() == self.recipes.capacity() {
            // Most are of results that nobody has any more.
            self.recipes.retain(|it| it.strong_count() > 0);
        }
        self.recipes.push_back(Arc::downgrade(&recipe));
        let mut over = Vec::new();
        let alone = recipe.bytes + recipe.objects.iter().map(|(_, size)| size).sum::<u64>();
        if alone > self.limit {
            // The others need not go for it.
            self.forgotten += 1;
            over.extend(recipe.forget());
        }
        // What logs keep does not go for a recipe, and has its own limit.
        while self.used.0.lock().total > self.limit
            && let Some(oldest) = self.recipes.pop_front()
        {
            if let Some(kept) = oldest.upgrade().and_then(|oldest| oldest.forget()) {
                self.forgotten += 1;
                over.push(kept);
            }
        }
        (recipe, over)
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

/// Results that are being made again, by the tasks that make them.
#[derive(Default)]
pub(super) struct Remaking(Mutex<HashMap<TaskId, Arc<TaskCell>>>);

impl Exchange {
    /// Makes an object of ours again that no node has any more.
    pub(super) async fn remake(&self, remote: &Remote) -> Result<(), TaskError> {
        let object = remote.id();
        let gone = |why: String| TaskError::Gone { object, why };
        let had = self.names_of(&remote.holders());
        let made = match remote.origin() {
            None => return Err(gone(format!("{had}; what made it cannot be run again"))),
            Some(Origin::Task(recipe)) if recipe.is_forgotten() => {
                return Err(gone(format!("{had}, and {NOT_KEPT}")));
            }
            Some(Origin::Task(recipe)) => {
                tracing::info!(%object, task = %recipe.id, "an object is lost, and made again");
                self.count(|counters| &counters.objects_remade, 1);
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
        match remote.was_remade(value) {
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
    ) -> Result<Arc<TaskCell>, NotAgain> {
        let mut path = Path::new(last.clone());
        loop {
            let lacking = |recipe: &Arc<Recipe>| {
                // Not both locks at a time: `submit_again` takes them the other way round.
                let gone = recipe.gone();
                let remaking = self.remaking.0.lock();
                gone.into_iter().find(|it| !remaking.contains_key(&it.id))
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

    /// `None` if what it is made of, which was being made again for somebody else, is gone meanwhile.
    fn submit_again(&self, recipe: &Arc<Recipe>) -> Result<Option<Arc<TaskCell>>, NotAgain> {
        let shared = self
            .shared
            .upgrade()
            .ok_or("what made it cannot be run again: the node is stopping")?;
        if shared.ask(|ledger| ledger.is_of_other(&recipe.id)) {
            // That is nobody's any more, and what came of it nobody would hear.
            return Err(NotAgain::Leaving);
        }
        let mut remaking = self.remaking.0.lock();
        if let Some(cell) = remaking.get(&recipe.id).filter(|cell| !cell.has_ended()) {
            return Ok(Some(cell.clone()));
        }
        let of_task = |cell: Arc<TaskCell>| Argument::Object(Object(Reference::Task(cell)));
        let call = {
            let kept = recipe.kept.lock();
            let kept = kept.as_ref().ok_or(NOT_KEPT)?;
            let values = kept.values.iter().map(|value| match value {
                Ingredient::Argument(argument) => Some(argument.clone()),
                Ingredient::Result(before, cell) => cell
                    .upgrade()
                    .or_else(|| remaking.get(&before.id).cloned())
                    .map(of_task),
            });
            let Some(values) = values.collect() else {
                return Ok(None);
            };
            Call {
                values,
                args: kept.args.clone(),
                array_index: recipe.array_index,
                input: kept.input.clone().map_or(Input::Empty, Input::Bytes),
                // Whoever listened has heard it all.
                listener: None,
                time_limit: None,
            }
        };
        let work = Work::Task(recipe.job.clone());
        let cell = TaskCell::new(recipe.id, recipe.driver, work, shared.home());
        cell.share();
        let cell = Arc::new(cell);
        let first = {
            let mut attempt = recipe.attempt.lock();
            *attempt = shared.ids.again(*attempt);
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
                Ok(Some(known))
            }
            Err(error) => {
                self.remaking.0.lock().remove(&recipe.id);
                let why = format!("what made it cannot be run again: {error}");
                Err(NotAgain::For(why))
            }
        }
    }
}
