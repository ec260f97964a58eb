//! Circles of waits: found from those that begin to wait, and the same as if all were looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use futures_util::FutureExt;
use proptest::prelude::*;
use wasmrun_model::id::ActorId;

use super::*;
use crate::actor::ActorOptions;
use crate::ledger::deadlock::{Place, WaitNumbers};
use crate::ledger::graph::{self, Graph};
use crate::records::actor::ActorCell;
use crate::records::class::ActorJob;
use crate::records::job::Argument;
use crate::records::object::{Object, Reference};
use crate::testing::COUNTER;

impl Ledger {
    /// Those that can never go on of all that wait here, and of those for whom they wait.
    fn stuck(&self) -> BTreeSet<TaskId> {
        let mut graph: Graph<Place> = Graph::new();
        let mut next: Vec<TaskId> = self.blocked.tasks().collect();
        while let Some(task) = next.pop() {
            let place = Place {
                node: self.id(),
                task,
            };
            if !graph.contains_key(&place)
                && let Some(needs) = self.waits_for(&task)
            {
                let here = needs.of.iter().filter(|it| it.node == self.id());
                next.extend(here.map(|it| it.task));
                graph.insert(place, needs);
            }
        }
        let stuck = graph::stuck(&graph);
        stuck.into_iter().map(|it| it.task).collect()
    }
}

/// A desk whose tasks, and calls of actors, wait for each other.
struct Waiters {
    desk: Desk,
    numbers: WaitNumbers,
    /// By the names of their creations.
    actors: BTreeMap<String, Arc<ActorCell>>,
    /// For what those wait that have not heard that they need not any more, and whether with a timeout.
    waits: BTreeMap<String, (Arc<Countdown>, bool)>,
    /// Those that wait for their CPU.
    resuming: BTreeMap<String, Arc<Countdown>>,
    /// Attempts that have not noticed that their tasks have ended.
    late: Vec<Start>,
}

impl Waiters {
    fn new(cpus: u32) -> Self {
        static LOADED: LazyLock<Module> = LazyLock::new(|| load(COUNTER));
        Self {
            desk: Desk::with(LOADED.clone(), cpus, 0, "4GiB"),
            numbers: WaitNumbers::default(),
            actors: BTreeMap::new(),
            waits: BTreeMap::new(),
            resuming: BTreeMap::new(),
            late: Vec::new(),
        }
    }

    fn next_id(&self) -> TaskId {
        self.desk.driver.task(self.desk.tasks.len() as u64)
    }

    fn submit(&mut self, work: Work, kind: TaskKind, terms: Arc<Terms>, needs: &[&str]) -> String {
        let id = self.next_id();
        let values = needs.iter().map(|name| {
            let cell = self.desk.cell(name).clone();
            Argument::Object(Object(Reference::Task(cell)))
        });
        let call = Call {
            values: values.collect(),
            ..Call::default()
        };
        let cell = Arc::new(TaskCell::new(id, self.desk.driver, work, Home::new(LOCAL)));
        let name = format!("t{}", self.desk.tasks.len());
        self.desk.tasks.push((name.clone(), cell.clone()));
        let todo = self.desk.ledger.submit(Submission {
            driver: self.desk.driver,
            parent: None,
            terms,
            kind,
            call,
            cell,
            keeps: None,
            first: Attempt::FIRST,
        });
        self.carry_out(todo);
        name
    }

    fn task(&mut self, retries: u32, needs: &[&str]) -> String {
        let job = Arc::new(self.desk.job(&retrying(retries)));
        let terms = job.terms.clone();
        self.submit(Work::Task(job), TaskKind::Task, terms, needs)
    }

    fn actor(&mut self, needs: &[&str]) -> String {
        let class = self.desk.module.find_class("counter").unwrap();
        let job = ActorJob::new(&self.desk.module, class, ActorOptions::default()).unwrap();
        let terms = job.terms.clone();
        let id: ActorId = self.next_id().actor();
        let actor = Arc::new(ActorCell::new(id, LOCAL, Arc::new(job), None));
        let work = Work::Create(actor.clone());
        let name = self.submit(work, TaskKind::Actor(id), terms, needs);
        self.actors.insert(name.clone(), actor);
        name
    }

    fn call(&mut self, actor: &str, caller: Option<&str>, needs: &[&str]) -> String {
        let actor = self.actors[actor].clone();
        let caller = caller.map(|it| self.desk.cell(it).id);
        let kind = TaskKind::Call {
            actor: actor.id,
            caller,
        };
        let terms = actor.face.call_terms.clone();
        self.submit(Work::Call(actor, 0), kind, terms, needs)
    }

    /// An actor is in a call, or in none.
    fn set_current(&mut self, actor: &ActorCell, call: Option<Arc<TaskCell>>) {
        self.desk.ledger.living -= usize::from(actor.is_here());
        actor.set_current(call);
        self.desk.ledger.living += usize::from(actor.is_here());
    }

    /// An actor whose creation runs lives.
    fn born(&mut self, actor: &str) {
        let actor = self.actors[actor].id;
        let node = LOCAL;
        let todo = self
            .desk
            .ledger
            .happens(Event::ActorCreated { actor, node });
        self.carry_out(todo);
    }

    /// An actor dies, and is to live again.
    fn dies(&mut self, name: &str) {
        let actor = self.actors[name].clone();
        self.set_current(&actor, None);
        self.desk.running.remove(name);
        let todo = self.desk.ledger.happens(Event::ActorDied {
            actor: actor.id,
            will_restart: true,
        });
        self.carry_out(todo);
    }

    /// Does what is to be done, and tells those that need what has ended.
    fn carry_out(&mut self, mut todo: Todo) {
        loop {
            for resumed in std::mem::take(&mut todo.resume) {
                resumed.finish();
            }
            for name in self.desk.carry_out(todo) {
                let cell = self.desk.cell(&name).clone();
                if let Work::Call(actor, _) = &cell.work {
                    self.set_current(actor, Some(cell.clone()));
                }
            }
            let Some((name, report)) = self.desk.ended.pop() else {
                return;
            };
            let cell = self.desk.cell(&name).clone();
            if let Work::Call(actor, _) = &cell.work
                && actor.current().is_some_and(|it| it.id == cell.id)
            {
                self.set_current(actor, None);
            }
            self.late.extend(self.desk.running.remove(&name));
            self.waits.remove(&name);
            self.resuming.remove(&name);
            let is_there = report.result.is_ok();
            cell.end(report);
            todo = self.desk.ledger.made(cell.object().id, is_there);
        }
    }

    /// Attempts notice that their tasks have ended.
    fn notice(&mut self) {
        for start in std::mem::take(&mut self.late) {
            let report = Report::never_ran(&start.cell, TaskError::Cancelled);
            let todo = self.desk.ledger.ended(start.cell.id, start.attempt, report);
            self.carry_out(todo);
        }
    }

    fn end(&mut self, name: &str, result: Result<(), TaskError>) {
        let Some(start) = self.desk.running.remove(name) else {
            return;
        };
        if let Work::Call(actor, _) = &start.cell.work {
            self.set_current(actor, None);
        }
        self.waits.remove(name);
        self.resuming.remove(name);
        let report = Report {
            result: result.map(|()| None),
            ..*Report::never_ran(&start.cell, TaskError::Cancelled)
        };
        let (task, attempt) = (start.cell.id, start.attempt);
        let todo = self.desk.ledger.ended(task, attempt, Box::new(report));
        self.carry_out(todo);
    }

    fn cancel(&mut self, name: &str) {
        let id = self.desk.cell(name).id;
        let todo = self.desk.ledger.cancel(&[id]);
        self.carry_out(todo);
    }

    fn block(&mut self, name: &str, needs: &[&str], count: usize, is_bounded: bool) {
        let (task, attempt) = (self.desk.cell(name).id, self.desk.attempt(name));
        let cells = needs.iter().map(|it| self.desk.cell(it).clone());
        let needs: Arc<[_]> = cells.filter(|it| !it.has_ended()).collect();
        let count = count.min(needs.len());
        if count == 0 {
            return;
        }
        let countdown = Countdown::of(count, Some((task, attempt)));
        for cell in &*needs {
            assert!(!cell.watch(&countdown), "it has not ended");
        }
        let todo = self.desk.ledger.block(
            task,
            attempt,
            Blocked {
                needs,
                reads: None,
                count,
                is_bounded,
                wait: Wait::new(countdown.clone(), self.numbers.next()),
                attempt: std::sync::Weak::<crate::guests::attempt::Attempt>::new(),
            },
        );
        self.waits.insert(name.into(), (countdown, is_bounded));
        self.carry_out(todo);
    }

    /// A wait is over, or its time.
    fn wake(&mut self, name: &str, is_broken: bool) {
        let Some((countdown, is_bounded)) = self.waits.get(name).cloned() else {
            return;
        };
        let (task, attempt) = (self.desk.cell(name).id, self.desk.attempt(name));
        let is_over = is_broken || countdown.is_decided();
        if !is_over && !is_bounded {
            return;
        }
        self.waits.remove(name);
        let todo = match is_over {
            true => {
                let resumed = Countdown::new(1);
                self.resuming.insert(name.into(), resumed.clone());
                self.desk.ledger.unblock(task, attempt, &resumed)
            }
            false => self.desk.ledger.overdue(task, attempt),
        };
        self.carry_out(todo);
    }

    /// Those that run and do not wait.
    fn busy(&mut self) -> Vec<String> {
        self.resuming
            .retain(|_, it| it.done().now_or_never().is_none());
        let running = self.desk.running.keys();
        let busy =
            running.filter(|it| !self.waits.contains_key(*it) && !self.resuming.contains_key(*it));
        let mut busy: Vec<String> = busy.cloned().collect();
        busy.sort();
        busy
    }

    /// Everything ends.
    fn clear(&mut self) {
        while !self.desk.ledger.all().is_empty() {
            let todo = self.desk.ledger.cancel(&self.desk.ledger.all());
            self.carry_out(todo);
            let running: Vec<String> = self.desk.running.keys().cloned().collect();
            for name in running {
                self.end(&name, Err(TaskError::Cancelled));
            }
            self.notice();
        }
        self.desk.assert_idle();
    }

    /// A look finds a circle if there is one, until there is none.
    #[track_caller]
    fn look(&mut self) {
        loop {
            let stuck = self.desk.ledger.stuck();
            let can_be_told = stuck.iter().any(|it| self.desk.ledger.blocked.contains(it));
            let found = self.desk.ledger.find_circle();
            assert_eq!(found.is_some(), can_be_told, "{found:?} of {stuck:?}");
            let Some((task, _)) = found else {
                return;
            };
            assert!(stuck.contains(&task), "it can go on");
            let again = self.desk.ledger.find_circle();
            assert_eq!(again.map(|it| it.0), Some(task), "until that has ended");
            let known = self.desk.tasks.iter().find(|it| it.1.id == task);
            let name = known.expect("it is known").0.clone();
            match self.waits.contains_key(&name) {
                true => self.wake(&name, true),
                // It has ended, and its attempt does not know.
                false => self.notice(),
            }
        }
    }
}

#[test]
fn who_has_been_looked_at_is_not_looked_at_again() {
    let mut waiters = Waiters::new(1);
    let parent = waiters.task(0, &[]);
    let children: Vec<String> = (0..1000).map(|_| waiters.task(0, &[])).collect();
    let names: Vec<&str> = children.iter().map(|it| &**it).collect();
    waiters.block(&parent, &names, names.len(), false);
    let looked_at = |waiters: &mut Waiters| {
        let before = waiters.desk.ledger.blocked.looked_at;
        waiters.look();
        waiters.desk.ledger.blocked.looked_at - before
    };
    assert_eq!(looked_at(&mut waiters), 1001);
    assert_eq!(looked_at(&mut waiters), 0);
    // Nor when some have ended, and others run.
    waiters.end(&children[0], Ok(()));
    assert_eq!(looked_at(&mut waiters), 0);
    // Who begins to wait is, with those who have not ended for whom it leads to.
    waiters.block(&children[1], &[&parent], 1, false);
    assert!(waiters.desk.ledger.find_circle().is_some());
    assert_eq!(waiters.desk.ledger.blocked.looked_at, 1001 + 2 + 999);
    waiters.clear();
}

#[test]
fn calls_are_held_up_by_all_before_them_that_lack_arguments() {
    for is_slow_first in [true, false] {
        let mut waiters = Waiters::new(4);
        let [waits, slow, never] = [(); 3].map(|()| waiters.task(0, &[]));
        let actor = waiters.actor(&[]);
        waiters.born(&actor);
        let lacking = match is_slow_first {
            true => [&slow, &never],
            false => [&never, &slow],
        };
        for lacks in lacking {
            waiters.call(&actor, None, &[lacks]);
        }
        let last = waiters.call(&actor, None, &[]);
        waiters.block(&never, &[&waits], 1, false);
        waiters.block(&waits, &[&last], 1, false);
        // Also before the other one has come for which the last call waits: its end begins no wait.
        waiters.look();
        waiters.end(&slow, Ok(()));
        let stuck = waiters.desk.ledger.stuck();
        assert!(stuck.is_empty(), "{stuck:?}");
        waiters.clear();
    }
}

proptest! {
    #[test]
    fn the_search_from_new_waiters_finds_what_a_full_one_finds(
        cpus in 1_u32..4,
        steps in proptest::collection::vec(
            (0_u8..20, any::<proptest::sample::Index>(), any::<proptest::sample::Index>(),
             proptest::collection::vec(any::<proptest::sample::Index>(), 0..4)),
            1..120,
        ),
    ) {
        let mut waiters = Waiters::new(cpus);
        waiters.task(0, &[]);
        for (step, which, other, several) in steps {
            let all: Vec<String> = waiters.desk.tasks.iter().map(|it| it.0.clone()).collect();
            let needs: Vec<&str> = several.iter().map(|it| &**it.get(&all)).collect();
            let busy = waiters.busy();
            let busy = (!busy.is_empty()).then(|| which.get(&busy).clone());
            let actors: Vec<String> = waiters.actors.keys().cloned().collect();
            let actor = (!actors.is_empty()).then(|| which.get(&actors).clone());
            let is_live = |it: &String| waiters.desk.running.contains_key(it);
            match (step, busy, actor) {
                (0..3, ..) => drop(waiters.task(u32::from(step), &needs)),
                (3, _, _) if actors.len() < 3 => drop(waiters.actor(&needs)),
                (4, _, Some(actor)) if is_live(&actor) => waiters.born(&actor),
                (5..8, _, Some(actor)) => {
                    let caller = (step > 5).then(|| &**other.get(&all));
                    waiters.call(&actor, caller, &needs);
                }
                (8, _, Some(actor)) if is_live(&actor) => waiters.dies(&actor),
                (9 | 10, Some(busy), _) if !waiters.actors.contains_key(&busy) => {
                    let result = if step == 9 { Ok(()) } else { Err(trap()) };
                    waiters.end(&busy, result);
                }
                (11..15, Some(busy), _) => {
                    let count = if step == 11 { 1 } else { needs.len() };
                    waiters.block(&busy, &needs, count, step == 12);
                }
                (15, ..) => waiters.cancel(which.get(&all).as_str()),
                (16, ..) => waiters.notice(),
                (17, ..) => {
                    for name in waiters.waits.keys().cloned().collect::<Vec<_>>() {
                        waiters.wake(&name, false);
                    }
                }
                _ => waiters.look(),
            }
        }
        waiters.look();
        waiters.clear();
    }
}
