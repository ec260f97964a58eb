//! What starts when, decided by hand: nothing runs here, each test says itself how attempts end.

mod circles;
mod lost;
mod retries;
mod waits;

use std::collections::{HashMap, VecDeque};

use wasmrun_engine::{Engine, EngineConfig, Entry, Grants, Input, Module};
use wasmrun_model::cluster::Labels;
use wasmrun_model::failure::{LimitHit, LimitKind};
use wasmrun_model::id::{DriverId, Incarnation};
use wasmrun_model::manifest::Asked;
use wasmrun_model::resource::{Amount, Pool, Request, ResourceName, ResourceSet};
use wasmrun_model::scheduler::{Message, Reason};
use wasmrun_model::task::{Rule, TaskKind, Terms};
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{Value, ValueType};

use super::*;
use crate::ledger::deadlock::{Wait, WaitNumber};
use crate::records::job::{Call, Job};
use crate::records::options::Overrides;
use crate::records::task::{Home, Work};

/// A ledger, and what it has said about tasks, which are called by name.
struct Desk {
    ledger: Ledger,
    module: Module,
    driver: DriverId,
    tasks: Vec<(String, Arc<TaskCell>)>,
    running: HashMap<String, Start>,
    ended: Vec<(String, Box<Report>)>,
    stopped: Vec<String>,
}

impl Desk {
    /// A node with so many CPUs and GPUs, and so much memory.
    fn new(cpus: u32, gpus: u32, memory: &str) -> Self {
        let text = r#"(component
            (core module $m (func (export "f")))
            (core instance $i (instantiate $m))
            (func (export "f") (canon lift (core func $i "f"))))"#;
        Self::with(load(text), cpus, gpus, memory)
    }

    /// The same, whose tasks are of this module.
    fn with(module: Module, cpus: u32, gpus: u32, memory: &str) -> Self {
        let mut resources = NodeResources::new();
        for (name, amount) in [
            (ResourceName::CPU, Amount::units(cpus)),
            (ResourceName::GPU, Amount::units(gpus)),
            (ResourceName::MEMORY, Amount::parse_memory(memory).unwrap()),
        ] {
            let pool = Pool::for_name(&name, amount).unwrap();
            resources.add(name, pool).unwrap();
        }
        let node = NodeInfo {
            id: LOCAL,
            incarnation: Incarnation::default(),
            name: "n1".parse().unwrap(),
            labels: Labels::new(),
        };
        Self {
            ledger: Ledger::new(node, resources, 1000),
            module,
            driver: DriverId::from_bytes([7; 16]),
            tasks: Vec::new(),
            running: HashMap::new(),
            ended: Vec::new(),
            stopped: Vec::new(),
        }
    }

    /// From now on there is another node, `n2`, which is the same and is called `b`.
    fn join_peer(&mut self) -> NodeId {
        let name_of = |_: NodeId| "b".to_owned();
        let lineage = crate::records::lineage::Lineage::new(u64::MAX);
        self.ledger.join_cluster(lineage, Box::new(name_of));
        let id = NodeId::from_bytes([9; 16]);
        let node = NodeInfo {
            id,
            incarnation: Incarnation::default(),
            name: "n2".parse().unwrap(),
            labels: Labels::new(),
        };
        let mut view = self.ledger.own_view();
        view.version = 1;
        drop(self.ledger.peer_view(node, view));
        id
    }

    fn job(&self, overrides: &Overrides) -> Job {
        let entry = Entry::Function(self.module.find("f").unwrap());
        Job::new("f", &self.module, entry, overrides, Grants::default()).unwrap()
    }

    /// Submits a task of the default terms, but for these.
    fn submit(&mut self, name: &str, overrides: Overrides) -> Vec<String> {
        let job = self.job(&overrides);
        self.submit_call(name, job, Call::default()).unwrap()
    }

    /// Submits a task. The names of those that start, or why it is refused.
    fn submit_call(&mut self, name: &str, job: Job, call: Call) -> Result<Vec<String>, Reason> {
        self.submit_below(None, name, job, call)
    }

    /// The same, where another task does.
    fn submit_below(
        &mut self,
        parent: Option<TaskId>,
        name: &str,
        job: Job,
        call: Call,
    ) -> Result<Vec<String>, Reason> {
        let id = self.driver.task(self.tasks.len() as u64);
        let job = Arc::new(job);
        let work = Work::Task(job.clone());
        let cell = Arc::new(TaskCell::new(id, self.driver, work, Home::new(LOCAL)));
        self.tasks.push((name.into(), cell.clone()));
        let mut todo = self.ledger.submit(Submission {
            driver: self.driver,
            parent,
            terms: job.terms.clone(),
            kind: TaskKind::Task,
            call,
            cell,
            keeps: None,
            first: Attempt::FIRST,
        });
        match todo.refused.take() {
            Some(why) => Err(why),
            None => Ok(self.carry_out(todo)),
        }
    }

    /// Ends the attempt of a task that runs. The names of those that start.
    fn end(&mut self, name: &str, result: Result<(), TaskError>) -> Vec<String> {
        let start = self.running.remove(name).expect("it runs");
        let report = Report {
            result: result.map(|()| None),
            held: start.held,
            ..*Report::never_ran(&start.cell, TaskError::Cancelled)
        };
        let todo = self
            .ledger
            .ended(start.cell.id, start.attempt, Box::new(report));
        self.carry_out(todo)
    }

    /// Ends one after the other, first those that started first, until nothing runs. The names of
    /// those that start.
    fn drain(&mut self, mut running: VecDeque<String>) -> Vec<String> {
        let mut started = Vec::new();
        while let Some(name) = running.pop_front() {
            let next = self.end(&name, Ok(()));
            running.extend(next.iter().cloned());
            started.extend(next);
        }
        started
    }

    /// Ends all that run or wait.
    #[track_caller]
    fn clear(&mut self) {
        let running: Vec<String> = self.running.keys().cloned().collect();
        self.drain(running.into());
        self.assert_idle();
    }

    fn cancel(&mut self, names: &[&str]) -> Vec<String> {
        let ids: Vec<TaskId> = names.iter().map(|name| self.cell(name).id).collect();
        let todo = self.ledger.cancel(&ids);
        self.carry_out(todo)
    }

    fn carry_out(&mut self, todo: Todo) -> Vec<String> {
        assert_eq!(todo.refused, None);
        let name_of = |cell: &TaskCell| {
            let mut known = self.tasks.iter();
            let known = known.find(|(_, known)| known.id == cell.id);
            known.expect("it was submitted").0.clone()
        };
        let stopped = todo.stop.iter().map(|cell| name_of(cell));
        self.stopped.extend(stopped);
        let ended = todo.end.into_iter();
        self.ended
            .extend(ended.map(|it| (name_of(&it.cell), it.report)));
        let mut names = Vec::new();
        for start in todo.start {
            let name = name_of(&start.cell);
            let before = self.running.insert(name.clone(), start);
            assert!(before.is_none(), "{name} runs twice at once");
            names.push(name);
        }
        names
    }

    fn cell(&self, name: &str) -> &Arc<TaskCell> {
        let mut tasks = self.tasks.iter();
        &tasks
            .find(|(known, _)| known == name)
            .expect("it is known")
            .1
    }

    /// A task that runs begins to wait for others. The names of those that start.
    fn block(&mut self, name: &str, needs: &[&str], count: usize) -> (Arc<Countdown>, Vec<String>) {
        let (task, attempt) = (self.cell(name).id, self.attempt(name));
        let needs: Vec<_> = needs.iter().map(|it| self.cell(it).clone()).collect();
        let countdown = Countdown::of(count, Some((task, attempt)));
        for cell in &needs {
            assert!(!cell.watch(&countdown), "it has not ended");
        }
        let starts = self.block_for(name, &countdown);
        (countdown, starts)
    }

    fn block_for(&mut self, name: &str, countdown: &Arc<Countdown>) -> Vec<String> {
        let (task, attempt) = (self.cell(name).id, self.attempt(name));
        let blocked = Blocked {
            needs: Arc::default(),
            reads: None,
            count: 1,
            is_bounded: true,
            wait: Wait::new(countdown.clone(), WaitNumber(1)),
            attempt: std::sync::Weak::<crate::guests::attempt::Attempt>::new(),
        };
        let todo = self.ledger.block(task, attempt, blocked);
        self.carry_out(todo)
    }

    /// The thread of a task that waits has heard that it need wait no more. Whether it has its CPU.
    fn resume(&mut self, name: &str) -> bool {
        let (task, attempt) = (self.cell(name).id, self.attempt(name));
        let resumed = Countdown::new(1);
        let mut todo = self.ledger.unblock(task, attempt, &resumed);
        let has_cpu = std::mem::take(&mut todo.resume).len() == 1;
        assert!(self.carry_out(todo).is_empty(), "it has waited for longer");
        has_cpu
    }

    /// The time is up that a task wanted to wait.
    fn go_ahead(&mut self, name: &str) {
        let (task, attempt) = (self.cell(name).id, self.attempt(name));
        let todo = self.ledger.overdue(task, attempt);
        assert!(self.carry_out(todo).is_empty(), "nobody gives it a CPU");
    }

    fn attempt(&self, name: &str) -> Attempt {
        self.running[name].attempt
    }

    /// The results of those that have ended, in the order in which they did.
    fn results(&self) -> Vec<(&str, Option<&TaskError>)> {
        let ended = self.ended.iter();
        ended
            .map(|(name, report)| (&**name, report.result.as_ref().err()))
            .collect()
    }

    /// Asserts that no task is left and nothing is held.
    #[track_caller]
    fn assert_idle(&self) {
        let scheduler = self.ledger.scheduler();
        assert!(self.ledger.all().is_empty() && self.running.is_empty());
        assert_eq!((self.ledger.waiting(), self.ledger.running()), (0, 0));
        let node = scheduler.own_nodes()[0];
        let available = scheduler.cluster().own(node).unwrap().available();
        assert_eq!(available, *scheduler.cluster().total());
    }
}

fn load(text: &str) -> Module {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    engine.load(&wat::parse_str(text).unwrap()).unwrap()
}

fn of(tenant: &str, priority: i32) -> Overrides {
    Overrides {
        tenant: tenant.parse().unwrap(),
        priority,
        ..Overrides::default()
    }
}

/// Of a tenant, asking for so many CPUs and so much memory.
fn asking(tenant: &str, cpus: &str, memory: &str) -> Overrides {
    let memory = Amount::parse_memory(memory).unwrap();
    let amounts = [
        (ResourceName::CPU, cpus.parse().unwrap()),
        (ResourceName::MEMORY, memory),
    ];
    Overrides {
        resources: Asked(amounts.into()),
        ..of(tenant, 0)
    }
}

fn retrying(retries: u32) -> Overrides {
    Overrides {
        retries: Some(retries),
        ..Overrides::default()
    }
}

fn trap() -> TaskError {
    TaskError::Trap {
        message: "unreachable".into(),
        frames: Vec::new(),
    }
}

fn names(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn higher_priorities_go_first_and_equal_ones_in_order() {
    let mut desk = Desk::new(1, 0, "4GiB");
    assert_eq!(desk.submit("first", of("t", i32::MIN)), ["first"]);
    for (name, priority) in [
        ("a0", 0),
        ("a-1", -1),
        ("a5", 5),
        ("b0", 0),
        ("b5", 5),
        ("max", i32::MAX),
        ("min", i32::MIN),
    ] {
        assert!(desk.submit(name, of("t", priority)).is_empty());
    }
    let started = desk.drain(["first".to_owned()].into());
    assert_eq!(started, names("max a5 b5 a0 b0 a-1 min"));
    desk.assert_idle();
}

#[test]
fn a_smaller_task_does_not_wait_for_one_that_does_not_fit() {
    let mut desk = Desk::new(2, 0, "4GiB");
    assert_eq!(desk.submit("one", asking("t", "1", "1MiB")), ["one"]);
    let urgent = Overrides {
        priority: 9,
        ..asking("t", "2", "1MiB")
    };
    assert!(desk.submit("both", urgent).is_empty());
    assert_eq!(desk.submit("small", asking("t", "1", "1MiB")), ["small"]);
    assert!(desk.end("one", Ok(())).is_empty());
    assert_eq!(desk.end("small", Ok(())), ["both"]);
    desk.clear();
}

#[test]
fn two_tenants_take_turns_on_a_full_node() {
    let mut desk = Desk::new(2, 0, "4GiB");
    for name in ["a1", "a2", "a3", "a4", "a5"] {
        // What tenants say of priority counts among their own only.
        desk.submit(name, of("a", 100));
    }
    for name in ["b1", "b2", "b3"] {
        assert!(desk.submit(name, of("b", -100)).is_empty());
    }
    let started = desk.drain(["a1".to_owned(), "a2".to_owned()].into());
    // Whoever holds nothing is next, and at the end whoever is left.
    assert_eq!(started, names("b1 a3 b2 a4 b3 a5"));
    desk.assert_idle();
}

#[test]
fn shares_are_those_of_what_each_tenant_needs_most() {
    // The example of Ghodsi et al., "Dominant Resource Fairness", NSDI 2011.
    let mut desk = Desk::new(9, 0, "18GiB");
    let all = asking("operator", "9", "18GiB");
    assert_eq!(desk.submit("all", all), ["all"]);
    for n in 0..9 {
        let (a, b) = (format!("a{n}"), format!("b{n}"));
        assert!(desk.submit(&a, asking("a", "1", "4GiB")).is_empty());
        assert!(desk.submit(&b, asking("b", "3", "1GiB")).is_empty());
    }
    let started = desk.end("all", Ok(()));
    assert_eq!(started, names("a0 b0 a1 b1 a2"));
    desk.clear();
}

#[test]
fn each_attempt_holds_what_there_is_then() {
    let mut desk = Desk::new(3, 1, "4GiB");
    let memory = (ResourceName::MEMORY, Amount::units(1));
    let set = |amounts: &[(ResourceName, u32)]| {
        let amounts = amounts.iter().cloned();
        let set = amounts.fold(ResourceSet::new(), |set, (name, amount)| {
            set.with(name, Amount::units(amount))
        });
        Request::new(set.with(memory.0.clone(), memory.1)).unwrap()
    };
    let gpu = set(&[(ResourceName::CPU, 1), (ResourceName::GPU, 1)]);
    let cpus = set(&[(ResourceName::CPU, 2)]);
    let job = |desk: &Desk, alternatives: Vec<Request>, priority| {
        let rule = Rule {
            alternatives,
            ..Rule::default()
        };
        let terms = Terms {
            priority,
            retries: 1,
            rule: Arc::new(rule),
            ..(*desk.job(&Overrides::default()).terms).clone()
        };
        Job {
            terms: Arc::new(terms),
            ..desk.job(&Overrides::default())
        }
    };
    let held = |desk: &Desk, name: &str| -> Vec<(String, Vec<u32>)> {
        let held = desk.running[name].held.iter();
        held.map(|part| {
            let ids = part.units.iter().map(|(id, _)| *id);
            (part.name.to_string(), ids.collect())
        })
        .collect()
    };
    let with = |ids: &[(&str, &[u32])]| -> Vec<(String, Vec<u32>)> {
        let ids = ids.iter().copied().chain([("memory", &[][..])]);
        ids.map(|(name, ids)| (name.to_string(), ids.to_vec()))
            .collect()
    };
    let either = vec![gpu.clone(), cpus];
    let (t, other) = (job(&desk, either, 0), job(&desk, vec![gpu], 1));
    desk.submit_call("t", t, Call::default()).unwrap();
    assert_eq!(held(&desk, "t"), with(&[("CPU", &[0]), ("GPU", &[0])]));
    desk.submit_call("other", other, Call::default()).unwrap();
    // The other one has the GPU now.
    assert_eq!(desk.end("t", Err(trap())), ["other", "t"]);
    assert_eq!(held(&desk, "other"), with(&[("CPU", &[0]), ("GPU", &[0])]));
    assert_eq!(held(&desk, "t"), with(&[("CPU", &[1, 2])]));
    desk.end("t", Ok(()));
    desk.end("other", Ok(()));
    desk.assert_idle();
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let mut desk = Desk::new(1, 0, "4GiB");
    let greedy = desk.job(&asking("t", "2", "1MiB"));
    let why = desk.submit_call("greedy", greedy, Call::default());
    assert!(
        matches!(why, Err(Reason::Nowhere { others: 0, .. })),
        "{why:?}"
    );
    let elsewhere = desk.job(&Overrides {
        strategy: "node:n2".parse().unwrap(),
        ..Overrides::default()
    });
    let why = desk.submit_call("elsewhere", elsewhere, Call::default());
    assert!(matches!(why, Err(Reason::Unschedulable(_))), "{why:?}");
    let labelled = desk.job(&Overrides {
        selectors: "zone=a".parse().unwrap(),
        retries: Some(3),
        ..Overrides::default()
    });
    let why = desk.submit_call("labelled", labelled, Call::default());
    assert!(matches!(why, Err(Reason::Nowhere { .. })), "{why:?}");
    assert!(desk.ended.is_empty(), "who submitted it has been told");
    desk.assert_idle();
    // Others are not disturbed.
    assert_eq!(desk.submit("t", Overrides::default()), ["t"]);
    desk.clear();
}

#[test]
fn the_oldest_that_waits_is_explained() {
    let mut desk = Desk::new(1, 0, "4GiB");
    assert_eq!(desk.ledger.explain_oldest(), None);
    desk.submit("a1", of("a", 0));
    assert_eq!(desk.ledger.explain_oldest(), None);
    desk.submit("a2", of("a", 0));
    desk.submit("b1", of("b", 9));
    let oldest = desk.ledger.explain_oldest().unwrap();
    assert_eq!(oldest.task, desk.cell("a2").id);
    // The first that starts next is the other tenant's.
    let text = oldest.to_string();
    assert!(
        text.contains("it waits for its turn: tenant b is ahead"),
        "{text}"
    );
    assert!(
        text.contains("CPU: needs 1, node has 0 whole units free"),
        "{text}"
    );
    let b1 = desk.cell("b1").id;
    let text = desk.ledger.explain(&b1).unwrap().to_string();
    assert!(text.contains("it waits for resources"), "{text}");
    let a1 = desk.cell("a1").id;
    let text = desk.ledger.explain(&a1).unwrap().to_string();
    assert!(text.contains("it is with node n1"), "{text}");
    desk.end("a1", Ok(()));
    assert_eq!(desk.ledger.explain(&a1), None);
    desk.clear();
}

#[test]
fn a_result_without_its_report_is_a_failure() {
    let mut desk = Desk::new(1, 0, "1GiB");
    let other = desk.join_peer();
    let there = Overrides {
        strategy: "node:n2".parse().unwrap(),
        ..Overrides::default()
    };
    desk.submit("t", there);
    let message = Message::Settled {
        task: desk.cell("t").id,
        attempt: Attempt::FIRST,
        outcome: wasmrun_model::scheduler::Outcome::Finished,
    };
    let todo = desk.ledger.settled_unreported(other, message);
    let [Ended { report, .. }] = &todo.end[..] else {
        panic!("it has ended");
    };
    let error = report.result.as_ref().unwrap_err().to_string();
    assert!(
        error.contains("node b ran it, and sent no report"),
        "{error}"
    );
}

#[test]
fn recipes_keep_no_more_than_they_may_and_the_oldest_go_first() {
    let mut desk = Desk::new(1, 0, "1GiB");
    desk.submit("t", Overrides::default());
    let (cell, job) = (
        desk.cell("t").clone(),
        Arc::new(desk.job(&Overrides::default())),
    );
    let given = |bytes| Call {
        values: vec![wasmrun_model::value::Encoded::Postcard(vec![0; bytes]).into()],
        ..Call::default()
    };
    let mut lineage = crate::records::lineage::Lineage::new(10_000);
    let add = |lineage: &mut crate::records::lineage::Lineage, bytes| {
        lineage.add(&cell, &job, &given(bytes), Attempt::FIRST)
    };
    let (first, over) = add(&mut lineage, 4000);
    let before = lineage.used();
    assert!(over.is_empty() && before > 4000);
    let (second, over) = add(&mut lineage, 4000);
    assert!(over.is_empty() && lineage.used() == 2 * before);
    // What nobody needs counts no more.
    drop(second);
    assert_eq!((lineage.used(), lineage.forgotten()), (before, 0));
    let (third, over) = add(&mut lineage, 4000);
    assert!(over.is_empty());
    let (fourth, over) = add(&mut lineage, 4000);
    assert_eq!((over.len(), lineage.forgotten()), (1, 1));
    assert_eq!(lineage.used(), 2 * before);
    drop(first);
    assert_eq!(lineage.used(), 2 * before, "it is not given back twice");
    // One that is too large alone is not kept, and the others stay.
    let (fifth, over) = add(&mut lineage, 20_000);
    assert_eq!((over.len(), lineage.used()), (1, 2 * before));
    drop((third, fourth, fifth));
    assert_eq!(lineage.used(), 0);
    desk.clear();
}
