//! `simulate` and the nodes of a cluster give the same answers: random scenarios are run through `simulate`, which has one
//! scheduler for all nodes, and through a scheduler per node with a network that loses nothing.
//!
//! What must be the same: whether a task runs, waits for a node that can serve it, or fails; and, for one that runs, that
//! it does so where its rule lets it, with what it asked for. When and on which of several nodes may differ.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use wasmrun_model::cluster::{NodeName, Selectors, Strategy};
use wasmrun_model::id::{DriverId, Incarnation, JobId, NodeId, TaskId};
use wasmrun_model::random::Random;
use wasmrun_model::resource::{NodeResources, Request, ResourceSet};
use wasmrun_model::scheduler::{Config, Effect, Event, Message, NodeInfo, Scheduler, check};
use wasmrun_model::simulate::{Scenario, TraceEvent, run};
use wasmrun_model::task::{Phase, Rule, TaskKind, TaskSpec, Terms, alternative};
use wasmrun_model::time::Instant;

/// What becomes of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Ran,
    Infeasible,
    Unschedulable(String),
}

/// Where each task ran, and what became of it.
type Fates = BTreeMap<usize, (Option<usize>, Fate)>;

/// A cluster and tasks, as random as is useful.
struct Case {
    nodes: Vec<(Json, Json)>,
    tasks: Vec<Json>,
}

const SEEDS: u64 = 600;

fn pick<T: Clone>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())].clone()
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let nodes = (0..1 + random.below(4)).map(|_| {
            let has = pick(
                &mut random,
                &[
                    json!({"CPU": 1, "memory": "1GiB"}),
                    json!({"CPU": 4, "memory": "2GiB"}),
                    json!({"CPU": 2, "GPU": 1, "memory": "1GiB"}),
                    json!({"CPU": 8, "GPU": 4, "memory": "8GiB"}),
                ],
            );
            let labels = pick(
                &mut random,
                &[
                    json!({}),
                    json!({"zone": "a"}),
                    json!({"zone": "b"}),
                    json!({"zone": "b", "disk": "ssd"}),
                ],
            );
            (has, labels)
        });
        let nodes: Vec<_> = nodes.collect();
        let names = nodes.len();
        let tasks = (0..1 + random.below(12)).map(|at| {
            let resources = pick(
                &mut random,
                &[
                    json!({"CPU": 1}),
                    json!({"CPU": "0.5", "memory": "64MiB"}),
                    json!({"CPU": 4, "memory": "1GiB"}),
                    json!({"GPU": 1, "CPU": 1, "memory": "4GiB"}),
                    json!({"GPU": "0.5"}),
                    json!({"GPU": 2, "memory": "1GiB"}),
                    json!({"CPU": 9}),
                ],
            );
            let mut task = json!({
                "name": format!("t{at}"),
                "resources": resources,
                "duration_ms": 10,
                "priority": random.below(3),
            });
            match random.below(4) {
                0 => task["alternatives"] = json!([{"CPU": 2}]),
                1 => task["alternatives"] = json!([{"GPU": 1}, {"CPU": 8, "memory": "512MiB"}]),
                _ => {}
            }
            match random.below(4) {
                0 => task["labels"] = json!([["zone=a"]]),
                1 => task["labels"] = json!([["disk=ssd"], ["zone=b", "!disk"]]),
                _ => {}
            }
            let node = format!("n{}", random.below(names));
            task["strategy"] = match random.below(6) {
                0 => json!("random"),
                1 => json!("spread"),
                2 => json!({"node_affinity": {"node": node, "soft": false}}),
                3 => json!({"node_affinity": {"node": node, "soft": true}}),
                _ => json!("default"),
            };
            task
        });
        Self {
            tasks: tasks.collect(),
            nodes,
        }
    }

    fn scenario(&self, seed: u64) -> String {
        let nodes = self.nodes.iter().enumerate();
        let nodes = nodes.map(|(at, (has, labels))| {
            json!({"name": format!("n{at}"), "resources": has, "labels": labels})
        });
        let nodes: Vec<Json> = nodes.collect();
        json!({"seed": seed, "nodes": nodes, "tasks": self.tasks}).to_string()
    }

    /// The rule of a task, as a node makes it.
    fn rule(&self, at: usize) -> Rule {
        let task = &self.tasks[at];
        let set = |json: &Json| serde_json::from_value::<ResourceSet>(json.clone()).unwrap();
        let main = set(&task["resources"]);
        let others = task["alternatives"].as_array().into_iter().flatten();
        let others = others.map(|other| alternative(&main, &set(other)));
        let requests = [main.clone()].into_iter().chain(others);
        let fallbacks = task["labels"].as_array().into_iter().flatten();
        let fallbacks = fallbacks.map(|terms| {
            let terms = terms.as_array().unwrap().iter();
            let terms: Vec<&str> = terms.map(|term| term.as_str().unwrap()).collect();
            terms.join(",")
        });
        let fallbacks: Vec<String> = fallbacks.collect();
        Rule {
            alternatives: requests.map(|set| Request::new(set).unwrap()).collect(),
            selectors: match fallbacks.is_empty() {
                true => Selectors::default(),
                false => fallbacks.join(";").parse().unwrap(),
            },
            strategy: serde_json::from_value(task["strategy"].clone()).unwrap(),
            module: None,
        }
    }

    /// Whether a node may ever run a task: by its labels and by what it has in all, looked at by hand.
    fn can_serve(&self, node: usize, rule: &Rule) -> bool {
        let total = self.resources(node).total().clone();
        let info = self.info(node);
        let fits = |request: &Request| {
            let mut amounts = request.amounts().iter();
            amounts.all(|(name, amount)| total.get(name) >= amount)
        };
        let selectors = rule.selectors.as_slice();
        let is_labelled =
            selectors.is_empty() || selectors.iter().any(|it| it.matches(&info.labels));
        is_labelled && rule.alternatives.iter().any(fits)
    }

    fn may_run(&self, node: usize, rule: &Rule) -> bool {
        let is_named = |name: &NodeName, node| *name == self.info(node).name;
        let is_wanted = match &rule.strategy {
            Strategy::NodeAffinity { node: name, soft } => {
                let mut all = 0..self.nodes.len();
                let preferred = all.find(|at| is_named(name, *at)).unwrap();
                node == preferred || *soft && !self.can_serve(preferred, rule)
            }
            _ => true,
        };
        is_wanted && self.can_serve(node, rule)
    }

    fn resources(&self, node: usize) -> NodeResources {
        let amounts = serde_json::from_value::<ResourceSet>(self.nodes[node].0.clone()).unwrap();
        NodeResources::of(&amounts).unwrap()
    }

    fn info(&self, node: usize) -> NodeInfo {
        let labels = self.nodes[node].1.as_object().unwrap().iter();
        let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap()));
        NodeInfo {
            id: node_id(node),
            incarnation: Incarnation(1),
            name: format!("n{node}").parse().unwrap(),
            labels: labels.collect::<Vec<_>>().join(",").parse().unwrap(),
        }
    }

    /// By one scheduler for all nodes.
    fn simulated(&self, seed: u64) -> Fates {
        let scenario = Scenario::parse(&self.scenario(seed)).unwrap();
        let mut fates = Fates::new();
        let Ok(_) = run(&scenario, |line| {
            let task = line.task.entry[1..].parse().unwrap();
            let fate = fates.entry(task).or_insert((None, Fate::Infeasible));
            match line.event {
                TraceEvent::Start { node, .. } => {
                    *fate = (Some(node[1..].parse().unwrap()), Fate::Ran);
                }
                TraceEvent::Unschedulable { reason } => {
                    fate.1 = Fate::Unschedulable(reason.to_owned());
                }
                _ => {}
            }
            Ok::<(), Infallible>(())
        });
        fates
    }
}

fn node_id(at: usize) -> NodeId {
    NodeId::from_bytes([at as u8 + 1; 16])
}

fn task_id(at: usize) -> TaskId {
    TaskId::from_bytes([at as u8 + 1; 16])
}

/// The tasks' numbers, from their ids.
fn number(task: &TaskId) -> usize {
    usize::from(task.as_bytes()[0]) - 1
}

/// A scheduler per node, and what is under way between them.
struct Nodes<'a> {
    case: &'a Case,
    now: Instant,
    schedulers: Vec<Scheduler>,
    versions: Vec<u64>,
    messages: VecDeque<(usize, usize, Message)>,
    running: VecDeque<(usize, TaskId)>,
    fates: Fates,
    /// How often each task was placed at another node.
    placed: BTreeMap<usize, u32>,
}

impl<'a> Nodes<'a> {
    fn new(case: &'a Case, seed: u64) -> Self {
        let count = case.nodes.len();
        let scheduler = |at| {
            Scheduler::new(Config {
                seed,
                local: Some(node_id(at)),
                accepts_all: true,
                ..Config::default()
            })
        };
        let mut nodes = Self {
            case,
            now: Instant::ZERO,
            schedulers: (0..count).map(scheduler).collect(),
            versions: vec![0; count],
            messages: VecDeque::new(),
            running: VecDeque::new(),
            fates: Fates::new(),
            placed: BTreeMap::new(),
        };
        for at in 0..count {
            let resources = Box::new(case.resources(at));
            let node = case.info(at);
            nodes.handle(at, Event::OwnNode { node, resources });
        }
        nodes.tell_views();
        nodes
    }

    fn handle(&mut self, at: usize, event: Event) {
        self.schedulers[at].handle(self.now, event);
        check(&self.schedulers[at]);
        while let Some(effect) = self.schedulers[at].poll_effect() {
            self.carry_out(at, effect);
        }
    }

    fn carry_out(&mut self, at: usize, effect: Effect) {
        match effect {
            Effect::Dispatch { task, .. } => {
                let rule = self.case.rule(number(&task));
                assert!(self.case.may_run(at, &rule), "{task} runs at n{at}");
                let held = self.schedulers[at]
                    .assignment(&task)
                    .unwrap()
                    .allocation
                    .amounts();
                let is_asked = |request: &Request| *request.amounts() == held;
                assert!(rule.alternatives.iter().any(is_asked), "holds {held:?}");
                self.fates.insert(number(&task), (Some(at), Fate::Ran));
                self.running.push_back((at, task));
            }
            Effect::Ended {
                task,
                phase: Phase::Failed,
                why,
                ..
            } => {
                let why = why.map(|why| why.to_string()).unwrap_or_default();
                let fate = (None, Fate::Unschedulable(why));
                self.fates.insert(number(&task), fate);
            }
            Effect::Infeasible { task, .. } => {
                self.fates.insert(number(&task), (None, Fate::Infeasible));
            }
            Effect::Send { to, message } => {
                let to = usize::from(to.as_bytes()[0]) - 1;
                if let Message::Place { spec, .. } = &*message {
                    *self.placed.entry(number(&spec.id)).or_default() += 1;
                }
                self.messages.push_back((at, to, *message));
            }
            _ => {}
        }
    }

    fn tell_views(&mut self) {
        for from in 0..self.schedulers.len() {
            self.versions[from] += 1;
            let mut view = self.schedulers[from].own_view();
            view.version = self.versions[from];
            for to in (0..self.schedulers.len()).filter(|to| *to != from) {
                let node = self.case.info(from);
                let view = Box::new(view.clone());
                self.handle(to, Event::PeerView { node, view });
            }
        }
    }

    /// Runs all tasks that can be run, submitted at one node.
    fn play(mut self, submitted_at: usize) -> Fates {
        for at in 0..self.case.tasks.len() {
            let priority = self.case.tasks[at]["priority"].as_i64().unwrap() as i32;
            let terms = Terms {
                priority,
                rule: Arc::new(self.case.rule(at)),
                ..Terms::of(self.case.rule(at).preferred().clone())
            };
            let spec = TaskSpec {
                id: task_id(at),
                driver: DriverId::from_bytes([1; 16]),
                job: JobId::from_bytes([1; 16]),
                terms: Arc::new(terms),
                kind: TaskKind::Task,
                args: Vec::new(),
            };
            self.handle(submitted_at, Event::Submit(spec));
        }
        let patience = self.now + Duration::from_secs(300);
        loop {
            if let Some((from, to, message)) = self.messages.pop_front() {
                let from = node_id(from);
                let message = Box::new(message);
                self.handle(to, Event::Message { from, message });
            } else if let Some((at, task)) = self.running.pop_front() {
                let attempt = self.schedulers[at].task(&task).unwrap().attempt;
                self.handle(at, Event::Finished { task, attempt });
                self.tell_views();
            } else {
                let timeouts = self.schedulers.iter().filter_map(Scheduler::poll_timeout);
                let Some(next) = timeouts.min().filter(|next| *next < patience) else {
                    break;
                };
                self.now = next.max(self.now);
                for at in 0..self.schedulers.len() {
                    self.handle(at, Event::Tick);
                }
                self.tell_views();
            }
        }
        let most = self.placed.values().max().copied().unwrap_or_default();
        assert!(most <= 8, "a task was placed elsewhere {most} times");
        for at in 0..self.case.tasks.len() {
            let live = self.schedulers[submitted_at].task(&task_id(at));
            let phase = live.map(|task| task.phase);
            assert!(
                matches!(phase, None | Some(Phase::Infeasible)),
                "task {at} is {phase:?} at last"
            );
        }
        std::mem::take(&mut self.fates)
    }
}

#[test]
fn simulate_and_nodes_give_the_same_answers() {
    for seed in 0..SEEDS {
        let case = Case::new(seed);
        let simulated = case.simulated(seed);
        for (at, (node, _)) in &simulated {
            let rule = case.rule(*at);
            assert!(
                node.is_none_or(|node| case.may_run(node, &rule)),
                "seed {seed}: task {at} runs at {node:?} in simulate"
            );
        }
        let submitted_at = seed as usize % case.nodes.len();
        let real = Nodes::new(&case, seed).play(submitted_at);
        for at in 0..case.tasks.len() {
            let (one, other) = (&simulated[&at].1, real.get(&at).map(|it| &it.1));
            assert_eq!(
                Some(one),
                other,
                "seed {seed}: task {at}, {}, of {}",
                case.tasks[at],
                case.scenario(seed)
            );
        }
    }
}
