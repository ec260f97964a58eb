//! Lineage: how results were made, kept to reconstruct them when they are lost (as in Ray, OSDI 2018).
//!
//! Owns [`Recipe`], what a task was to do, which lives as long as its result or one that was made from that;
//! [`CallRecipe`], the same of a call of an actor; and how much a node may keep of both ([`Lineage`]). Must not: keep
//! results, or run anything.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use wasmrun_engine::Input;
use wasmrun_model::id::{DriverId, ObjectId, TaskId};
use wasmrun_model::task::Attempt;
use wasmrun_model::trace::TraceContext;

use crate::records::actor::ActorCell;
use crate::records::ids::Ids;
use crate::records::job::{Argument, Call, Job};
use crate::records::object::{Object, Reference, Value};
use crate::records::task::TaskCell;

/// What a recipe takes besides what it keeps of arguments, about.
const RECIPE_BYTES: u64 = 512;

/// How an object came to be.
#[derive(Clone)]
pub(crate) enum Origin {
    /// A task made it.
    Task(Arc<Recipe>),
    /// A call of an actor made it.
    Call(Arc<CallRecipe>),
}

impl Origin {
    /// Whether to reconstruct it, rather than to wait for nodes that may have it.
    pub(crate) fn can_be_reconstructed(&self) -> bool {
        match self {
            Self::Task(recipe) => !recipe.is_forgotten(),
            // Its actor may be where it is.
            Self::Call(_) => false,
        }
    }
}

/// What a task was to do.
pub(crate) struct Recipe {
    pub(crate) id: TaskId,
    pub(crate) driver: DriverId,
    pub(crate) job: Arc<Job>,
    /// Its last attempt.
    attempt: Mutex<Attempt>,
    array_index: Option<u64>,
    trace: Option<TraceContext>,
    /// None once there was no room for it.
    ingredients: Mutex<Option<Ingredients>>,
    /// What that takes, but for objects.
    bytes: u64,
    /// Objects among that, with their sizes.
    objects: Vec<(ObjectId, u64)>,
    /// Whether actors may be among that, or behind it.
    keeps_actors: bool,
    used: Arc<Used>,
}

/// What a task was given.
pub(crate) struct Ingredients {
    values: Vec<Ingredient>,
    args: Vec<String>,
    input: Option<Bytes>,
}

/// An argument.
enum Ingredient {
    Argument(Argument),
    /// A result that can itself be reconstructed, as long as there is one.
    Result(Arc<Recipe>, Weak<TaskCell>),
}

impl Drop for Ingredients {
    /// One after the other, not one inside the other: each may be the last of a long chain.
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.values);
        while let Some(value) = left.pop() {
            if let Ingredient::Result(recipe, _) = value
                && let Some(recipe) = Arc::into_inner(recipe)
                && let Some(mut ingredients) = recipe.forget()
            {
                left.append(&mut ingredients.values);
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
pub(crate) struct Counted {
    used: Arc<Used>,
    objects: Vec<(ObjectId, u64)>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.used.sub(0, &self.objects);
    }
}

/// Whether an argument keeps an actor, by what it holds or by what it can be reconstructed of, as far as is known.
pub(crate) fn keeps_actors(argument: &Argument) -> bool {
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
            Input::Empty | Input::Stream(_) | Input::Http(_) => None,
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
            trace: call.trace.clone(),
            ingredients: Mutex::new(Some(Ingredients {
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

    /// Lets go of what it keeps: what it is for cannot be reconstructed any more. The caller drops that.
    fn forget(&self) -> Option<Ingredients> {
        let ingredients = self.ingredients.lock().take()?;
        self.used.sub(self.bytes, &self.objects);
        Some(ingredients)
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        self.ingredients.lock().is_none()
    }

    /// How to make those results of which it is made and that are not there any more.
    pub(crate) fn missing_inputs(&self) -> Vec<Arc<Self>> {
        let ingredients = self.ingredients.lock();
        let values = ingredients.as_ref().map_or(&[][..], |it| &it.values);
        let gone = values.iter().filter_map(|value| match value {
            Ingredient::Result(before, cell) if cell.strong_count() == 0 => Some(before.clone()),
            _ => None,
        });
        gone.collect()
    }

    /// The call that reconstructs the result. `reconstructed` finds results that are being reconstructed, by their tasks.
    /// `None` if an argument is not there any more.
    ///
    /// # Errors
    /// When what it needs was not kept.
    pub(crate) fn call(
        &self,
        reconstructed: impl Fn(&TaskId) -> Option<Arc<TaskCell>>,
    ) -> Result<Option<Call>, Forgotten> {
        let ingredients = self.ingredients.lock();
        let ingredients = ingredients.as_ref().ok_or(Forgotten)?;
        let of_task = |cell| Argument::Object(Object(Reference::Task(cell)));
        let values = ingredients.values.iter().map(|value| match value {
            Ingredient::Argument(argument) => Some(argument.clone()),
            Ingredient::Result(before, cell) => {
                let cell = cell.upgrade().or_else(|| reconstructed(&before.id));
                cell.map(of_task)
            }
        });
        let values: Option<Vec<_>> = values.collect();
        Ok(values.map(|values| Call {
            values,
            args: ingredients.args.clone(),
            array_index: self.array_index,
            input: ingredients.input.clone().map_or(Input::Empty, Input::Bytes),
            // The listener has had the output of the first run.
            listener: None,
            time_limit: None,
            trace: self.trace.clone(),
        }))
    }

    /// The number of the attempt that makes it again: later than all before.
    pub(crate) fn next_attempt(&self, ids: &Ids) -> Attempt {
        let mut attempt = self.attempt.lock();
        *attempt = ids.again(*attempt);
        *attempt
    }
}

/// What a task was given was not kept.
#[derive(Debug, thiserror::Error)]
#[error(
    "what it was made of was not kept: that takes memory, of which there is a quarter of --object-memory; give the node more"
)]
pub(crate) struct Forgotten;

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
    pub(crate) fn count_call(&self, values: &[Argument]) -> Option<Counted> {
        let objects = values.iter().filter_map(object_of).collect();
        let counted = Counted {
            used: self.of_calls.clone(),
            objects,
        };
        counted.used.add(0, &counted.objects);
        let is_room = counted.used.0.lock().total <= self.limit / OF_CALLS;
        is_room.then_some(counted)
    }

    /// How many recipes, and how many logged calls, keep an object.
    pub(crate) fn uses(&self, object: &ObjectId) -> (u32, u32) {
        let count = |used: &Used| {
            let used = used.0.lock();
            used.objects.get(object).map_or(0, |(_, count)| *count)
        };
        (count(&self.used), count(&self.of_calls))
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
    ) -> (Arc<Recipe>, Vec<Ingredients>) {
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
            if let Some(ingredients) = oldest.upgrade().and_then(|oldest| oldest.forget()) {
                self.forgotten += 1;
                over.push(ingredients);
            }
        }
        (recipe, over)
    }
}

/// What the result of a call is made of, at the node that owns the result.
pub(crate) struct CallRecipe {
    pub(crate) actor: Arc<ActorCell>,
    pub(crate) task: TaskId,
    pub(crate) made: Weak<TaskCell>,
    /// It was made along with another one, when that was reconstructed.
    pub(crate) reconstructed: Mutex<Option<Value>>,
}

impl CallRecipe {
    /// Of a call that has ended.
    pub(crate) fn new(actor: &Arc<ActorCell>, call: &Arc<TaskCell>) -> Arc<Self> {
        let recipe = Arc::new(Self {
            actor: actor.clone(),
            task: call.id,
            made: Arc::downgrade(call),
            reconstructed: Mutex::default(),
        });
        if let Some(log) = actor.log() {
            log.want(call.id, &recipe);
        }
        recipe
    }

    /// What was made along with another one.
    pub(crate) fn take(&self) -> Option<Value> {
        self.reconstructed.lock().take()
    }
}
