//! Tasks, as far as objects are concerned: given to some node, tried again elsewhere when that is lost, run once their
//! arguments are there, and run again when what they made is lost.

use std::rc::Rc;

use wasmrun_model::id::{DriverId, NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::reference::Path;

use super::readers::Done;
use super::{Coming, World};
use crate::things::{
    Body, CarriedResult, Cell, Does, Ended, Failure, Ingredient, Message, Recipe, node_id,
};

/// The attempts of a task that runs again come after those of the time before.
const MOST_ATTEMPTS: u32 = 1_000;

/// A task that was submitted here.
pub(super) struct Task {
    pub(super) cell: Rc<Cell>,
    args: Vec<Rc<Cell>>,
    does: Does,
    attempt: u32,
    at: usize,
}

/// An attempt that runs here.
pub(super) struct Run {
    attempt: u32,
    args: Vec<Rc<Cell>>,
    does: Does,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Arrived,
    /// For its arguments.
    Waits,
    /// One of them, by its place.
    Reads(usize),
    Runs,
}

impl World {
    pub(super) fn fresh(&mut self) -> TaskId {
        self.counter += 1;
        DriverId::from_bytes([7; 16]).task(self.counter)
    }

    pub(super) fn own_cell(&self, at: usize, task: TaskId) -> Rc<Cell> {
        let name = ObjectName {
            id: ObjectId::of(task, 0),
            owner: node_id(at),
        };
        Cell::new(&self.nodes[at].home, name, None)
    }

    pub(super) fn submit(&mut self, at: usize, args: Vec<Rc<Cell>>, does: Does) -> Rc<Cell> {
        let task = self.fresh();
        let cell = self.own_cell(at, task);
        self.submit_as(at, task, cell.clone(), args, does, 1);
        cell
    }

    fn submit_as(
        &mut self,
        at: usize,
        task: TaskId,
        cell: Rc<Cell>,
        args: Vec<Rc<Cell>>,
        does: Does,
        attempt: u32,
    ) {
        let new = Task {
            cell,
            args,
            does,
            attempt,
            at,
        };
        let before = self.nodes[at].tasks.insert(task, new);
        assert!(before.is_none(), "{at}: {task} is made twice at a time");
        self.place(at, task);
    }

    /// Gives a task to some node that lives, as far as is known.
    fn place(&mut self, at: usize, id: TaskId) {
        let others: Vec<usize> = self.nodes[at].known.keys().copied().collect();
        let chosen = self.random.below(others.len() + 1);
        let to = others.get(chosen).copied().unwrap_or(at);
        let task = self.nodes[at]
            .tasks
            .get_mut(&id)
            .expect("it is to be placed");
        task.at = to;
        let (attempt, args, does) = (task.attempt, task.args.clone(), task.does);
        if to == at {
            let stage = Stage::Arrived;
            let run = Run {
                attempt,
                args,
                does,
                stage,
            };
            drop(self.nodes[at].runs.insert((at, id), run));
            return;
        }
        let args = args.iter().map(|arg| {
            let name = self.lend(at, node_id(to), arg);
            let is_told = arg.token.is_none() && arg.has_ended() && self.chance(50);
            (name, is_told.then(|| self.tell(at, node_id(to), arg)))
        });
        let message = Message::Place {
            task: id,
            attempt,
            args: args.collect(),
            does,
        };
        self.say(at, node_id(to), message);
    }

    pub(super) fn placed(
        &mut self,
        at: usize,
        from: usize,
        task: TaskId,
        attempt: u32,
        args: Vec<(ObjectName, Option<CarriedResult>)>,
        does: Does,
    ) {
        // All of them before the first error: each was kept for us.
        let args: Vec<_> = args
            .into_iter()
            .map(|(name, told)| {
                let cell = self.borrow(at, from, name)?;
                if told.is_some() {
                    self.made(at, from, name, told, true);
                }
                Ok(cell)
            })
            .collect();
        match args.into_iter().collect::<Result<Vec<_>, Failure>>() {
            Ok(args) => {
                let stage = Stage::Arrived;
                let run = Run {
                    attempt,
                    args,
                    does,
                    stage,
                };
                drop(self.nodes[at].runs.insert((from, task), run));
            }
            Err(failure) => {
                let message = Message::Settled {
                    task,
                    attempt,
                    result: Err(failure),
                };
                self.say(at, node_id(from), message);
            }
        }
    }

    /// Lets runs go on that can. Whether something has happened.
    pub(super) fn go_on(&mut self, at: usize) -> bool {
        let runs: Vec<_> = self.nodes[at].runs.keys().copied().collect();
        let mut has_more = false;
        for key in runs {
            has_more |= self.run_on(at, key);
        }
        has_more | self.readers_go_on(at) | self.get_on(at)
    }

    fn run_on(&mut self, at: usize, key: (usize, TaskId)) -> bool {
        let run = &self.nodes[at].runs[&key];
        let (args, stage) = (run.args.clone(), run.stage);
        match stage {
            Stage::Arrived => {
                args.iter().for_each(|arg| self.want(at, arg));
                self.set_stage(at, key, Stage::Waits);
                true
            }
            Stage::Waits => {
                let results: Vec<_> = args.iter().filter_map(|arg| arg.result()).collect();
                let failed = results.iter().find_map(|it| it.as_ref().err().cloned());
                if let Some(failure) = failed {
                    self.settle(at, key, Err(failure));
                    return true;
                }
                if results.len() < args.len() {
                    return false;
                }
                self.read_next(at, key, 0);
                true
            }
            Stage::Reads(_) | Stage::Runs => false,
        }
    }

    fn set_stage(&mut self, at: usize, key: (usize, TaskId), stage: Stage) {
        if let Some(run) = self.nodes[at].runs.get_mut(&key) {
            run.stage = stage;
        }
    }

    /// Reads the arguments from this one on, then runs.
    fn read_next(&mut self, at: usize, key: (usize, TaskId), from: usize) {
        let run = &self.nodes[at].runs[&key];
        let (attempt, does) = (run.attempt, run.does);
        let lacking = run.args.iter().enumerate().skip(from);
        let mut lacking = lacking.filter(|(_, arg)| match arg.result() {
            Some(Ok(value)) => !value.is_here(),
            Some(Err(_)) | None => false,
        });
        let lacking = lacking.next().map(|(at, arg)| (at, arg.clone()));
        match lacking.filter(|_| does.reads) {
            Some((place, cell)) => {
                self.set_stage(at, key, Stage::Reads(place));
                self.read(at, cell, Done::Run(key, attempt));
            }
            None => {
                self.set_stage(at, key, Stage::Runs);
                let boot = self.nodes[at].boot;
                self.come(1, 400, Coming::Finish(at, boot, key, attempt));
            }
        }
    }

    /// An argument was read, or cannot be.
    pub(super) fn run_has_read(
        &mut self,
        at: usize,
        key: (usize, TaskId),
        attempt: u32,
        result: Result<(), Failure>,
    ) {
        let run = self.nodes[at].runs.get(&key);
        let Some(run) = run.filter(|run| run.attempt == attempt) else {
            return;
        };
        let Stage::Reads(place) = run.stage else {
            return;
        };
        match result {
            Ok(()) => self.read_next(at, key, place + 1),
            Err(failure) => self.settle(at, key, Err(failure)),
        }
    }

    /// An attempt has made something.
    pub(super) fn finish(&mut self, at: usize, key: (usize, TaskId), attempt: u32) {
        let run = self.nodes[at].runs.get(&key);
        let Some(run) = run.filter(|run| run.attempt == attempt) else {
            return;
        };
        let (mut args, does) = (run.args.clone(), run.does);
        for value in run.args.iter().filter_map(|arg| arg.result()?.ok()) {
            args.extend(value.names.iter().cloned());
        }
        let mut names = Vec::new();
        for _ in 0..does.starts {
            let of_child = Does {
                starts: usize::from(does.depth > 1 && self.chance(60)),
                depth: does.depth.saturating_sub(1),
                ..self.some_does()
            };
            let given = self.some(&args, 50);
            names.push(self.submit(at, given, of_child));
        }
        names.extend(self.some(&args, 30));
        let names = self.some(&names, 70);
        let object = ObjectId::of(key.1, 0);
        let value = self.value(at, object, does.is_large, names);
        self.settle(at, key, Ok(value));
    }

    fn settle(&mut self, at: usize, key: (usize, TaskId), result: Ended) {
        let (from, task) = key;
        let run = self.nodes[at].runs.remove(&key).expect("it ends once");
        let attempt = run.attempt;
        if from == at {
            return self.settled(at, at, task, attempt, result);
        }
        let to = node_id(from);
        let object = ObjectId::of(task, 0);
        let result = result.map(|value| {
            let mut carried = self.carry(at, to, &value);
            if let Body::At { owner, .. } = &mut carried.body {
                *owner = to;
                let kept = self.peers(at).keep(to, object, value);
                drop(kept);
            }
            carried
        });
        let message = Message::Settled {
            task,
            attempt,
            result,
        };
        self.say(at, to, message);
    }

    /// What came of an attempt, here or elsewhere.
    pub(super) fn settled(
        &mut self,
        at: usize,
        from: usize,
        id: TaskId,
        attempt: u32,
        result: Ended,
    ) {
        let tasks = &mut self.nodes[at].tasks;
        let is_it = |task: &Task| task.at == from && task.attempt == attempt;
        if !tasks.get(&id).is_some_and(is_it) {
            return;
        }
        let task = tasks.remove(&id).expect("it is there");
        if let Ok(value) = &result
            && task.does.has_lineage
            && !value.is_inline()
        {
            let recipe = Rc::new(Recipe {
                task: id,
                args: task.args.iter().map(Ingredient::of).collect(),
                does: task.does,
                attempt: attempt.into(),
            });
            if let Some(remote) = value.as_remote() {
                remote.origin.replace(Some(recipe.clone()));
            }
            task.cell.recipe.replace(Some(recipe));
        }
        task.cell.end(result);
    }

    /// A node is gone: what it had of ours is placed anew, what we have of its is nobody's.
    pub(super) fn tasks_left(&mut self, at: usize, node: usize) {
        let runs = self.nodes[at]
            .runs
            .extract_if(.., |(from, _), _| *from == node);
        let runs: Vec<_> = runs.collect();
        drop(runs);
        let tasks = self.nodes[at].tasks.iter_mut();
        let of_it = tasks.filter(|(_, task)| task.at == node);
        let of_it = of_it.map(|(id, task)| {
            task.attempt += 1;
            *id
        });
        let of_it: Vec<TaskId> = of_it.collect();
        for task in of_it {
            self.place(at, task);
        }
    }

    /// Runs a task again, and before it those of whose results nothing is left. Which ones.
    pub(super) fn run_again(&mut self, at: usize, last: Rc<Recipe>) -> (Rc<Cell>, Vec<TaskId>) {
        let mut path = Path::new(last);
        let mut again = Vec::new();
        loop {
            let reconstructing = &self.nodes[at].reconstructing;
            let lacking = |it: &Rc<Recipe>| {
                let mut missing = it.missing_inputs();
                missing
                    .find(|before| !reconstructing.contains_key(&before.task))
                    .cloned()
            };
            let recipe = path.next(lacking).clone();
            let cell = self.submit_again(at, &recipe);
            again.push(recipe.task);
            if path.begun() {
                return (cell, again);
            }
            self.seen.reconstructed_before += 1;
        }
    }

    fn submit_again(&mut self, at: usize, recipe: &Recipe) -> Rc<Cell> {
        let reconstructing = &self.nodes[at].reconstructing;
        let under_way = reconstructing
            .get(&recipe.task)
            .filter(|cell| !cell.has_ended());
        if let Some(cell) = under_way {
            return cell.clone();
        }
        let args = recipe.args.iter().map(|arg| match arg {
            Ingredient::Argument(cell) => cell.clone(),
            Ingredient::Result(before, cell) => {
                let cell = cell.upgrade();
                cell.unwrap_or_else(|| reconstructing[&before.task].clone())
            }
        });
        let args = args.collect();
        let cell = self.own_cell(at, recipe.task);
        let attempt = recipe.attempt.get() + MOST_ATTEMPTS;
        recipe.attempt.set(attempt);
        let shared = self.nodes[at]
            .reconstructing
            .insert(recipe.task, cell.clone());
        drop(shared);
        self.submit_as(at, recipe.task, cell.clone(), args, recipe.does, attempt);
        cell
    }

    /// Nobody need share these any more.
    pub(super) fn reconstructed(&mut self, at: usize, again: &[TaskId]) {
        let reconstructing = &mut self.nodes[at].reconstructing;
        let cells: Vec<_> = again
            .iter()
            .filter_map(|task| reconstructing.remove(task))
            .collect();
        drop(cells);
    }

    /// Who has had it, for people.
    pub(super) fn unrecoverable(id: ObjectId, had: Vec<NodeId>) -> Failure {
        Failure::Gone { id, had }
    }
}
