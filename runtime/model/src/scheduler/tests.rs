//! Every rule of the scheduler by itself, on a small harness; and random events.

mod actors;
mod explain;
mod groups;
mod lifecycle;
mod moves;
mod nodes;
mod offers;
mod order;
mod preempt;
mod quotas;
mod random;
mod room;
mod sharing;
mod starve;
mod stops;
mod succession;
mod two_levels;

use std::sync::Arc;
use std::time::Duration;

use super::table::LOOKS;
use super::{
    Config, Effect, Event, Message, NodeInfo, PeerView, Scheduler, Setting, Settings, check,
};
use crate::cluster::QueueReport;
use crate::fairness::TenantConfig;
use crate::id::{ActorId, DriverId, Incarnation, JobId, NodeId, ObjectId, TaskId};
use crate::resource::{NodeResources, Request, ResourceSet};
use crate::task::{Argument, Attempt, FailureKind, Phase, Rule, TaskKind, TaskSpec, Terms};
use crate::time::Instant;

fn task_id(at: u8) -> TaskId {
    TaskId::from_bytes([at; 16])
}

fn node_id(at: u8) -> NodeId {
    NodeId::from_bytes([at; 16])
}

fn object_id(at: u8) -> ObjectId {
    ObjectId::from_bytes([at; 20])
}

fn driver_id(at: u8) -> DriverId {
    DriverId::from_bytes([at; 16])
}

fn actor_id(at: u8) -> ActorId {
    ActorId::from_bytes([at; 16])
}

fn settled(at: u8, attempt: u32, outcome: super::Outcome) -> Message {
    Message::Settled {
        task: task_id(at),
        attempt: Attempt::new(0, attempt),
        outcome,
    }
}

fn request(json: &str) -> Request {
    serde_json::from_str(json).expect("a request")
}

fn resources(json: &str) -> NodeResources {
    NodeResources::of(&serde_json::from_str(json).expect("amounts")).expect("capacities")
}

/// A task that asks for this; everything else is changed where it matters.
fn task(at: u8, asks: &str) -> TaskSpec {
    TaskSpec {
        id: task_id(at),
        driver: driver_id(1),
        job: JobId::from_bytes([1; 16]),
        terms: Arc::new(Terms::of(request(asks))),
        kind: TaskKind::Task,
        args: Vec::new(),
    }
}

trait With: Sized {
    fn terms(self, change: impl FnOnce(&mut Terms)) -> Self;
    fn rule(self, change: impl FnOnce(&mut Rule)) -> Self;
    fn tenant(self, name: &str) -> Self {
        self.terms(|terms| terms.tenant = name.parse().expect("a name"))
    }
    fn strategy(self, text: &str) -> Self {
        self.rule(|rule| rule.strategy = text.parse().expect("a strategy"))
    }
    fn labels(self, text: &str) -> Self {
        self.rule(|rule| rule.selectors = text.parse().expect("selectors"))
    }
    fn arg(self, at: u8, is_local: bool) -> Self;
}

impl With for TaskSpec {
    fn terms(mut self, change: impl FnOnce(&mut Terms)) -> Self {
        change(Arc::make_mut(&mut self.terms));
        self
    }

    fn rule(self, change: impl FnOnce(&mut Rule)) -> Self {
        self.terms(|terms| change(Arc::make_mut(&mut terms.rule)))
    }

    fn arg(mut self, at: u8, is_local: bool) -> Self {
        self.args.push(Argument {
            object: object_id(at),
            bytes: 10,
            holders: Vec::new(),
            is_local,
        });
        self
    }
}

/// A scheduler, its time in milliseconds, and what it did, as words.
struct Harness {
    scheduler: Scheduler,
    now_ms: u64,
}

/// How many records this looks at.
fn looks_of(step: impl FnOnce()) -> u64 {
    let before = LOOKS.get();
    step();
    LOOKS.get() - before
}

impl Harness {
    /// A scheduler that gives out the resources of these nodes, n0, n1, ….
    fn new(nodes: &[&str]) -> Self {
        Self::with(Config::default(), nodes)
    }

    /// One that serves node n0, as on a real node.
    fn local(resources: &str) -> Self {
        Self::with(local_config(), &[resources])
    }

    fn with(config: Config, nodes: &[&str]) -> Self {
        let scheduler = Scheduler::new(config);
        let mut harness = Self {
            scheduler,
            now_ms: 0,
        };
        for (at, resources) in (0..).zip(nodes) {
            harness.join(at, resources, "");
        }
        harness
    }

    fn join(&mut self, at: u8, has: &str, labels: &str) -> Vec<String> {
        self.event(Event::OwnNode {
            node: info(at, 1, labels),
            resources: resources(has).into(),
        })
    }

    /// What another node tells of itself.
    fn peer(&mut self, at: u8, version: u64, has: &str) -> Vec<String> {
        self.event(Event::PeerView {
            node: info(at, 1, ""),
            view: Box::new(PeerView {
                version,
                resources: resources(has).report(),
                queue: QueueReport::default(),
                usage: Default::default(),
            }),
        })
    }

    /// The same of one that has one CPU, and so many tasks to begin.
    fn one_cpu(&mut self, at: u8, version: u64, is_free: bool, tasks: u64) -> Vec<String> {
        let one = r#"{"CPU": 1}"#;
        let mut has = resources(one);
        let held = (!is_free).then(|| has.acquire(&request(one)).expect("it is free"));
        let report = has.report();
        held.into_iter().for_each(|held| held.abandon());
        self.event(Event::PeerView {
            node: info(at, 1, ""),
            view: Box::new(PeerView {
                version,
                resources: report,
                queue: QueueReport::of(tasks, 0),
                usage: Default::default(),
            }),
        })
    }

    fn lose(&mut self, at: u8) -> Vec<String> {
        let (node, incarnation) = (node_id(at), Incarnation(1));
        self.event(Event::NodeLost { node, incarnation })
    }

    /// Sets what a tenant is due. What begins then, and is said.
    fn set_tenant(&mut self, tenant: &str, json: &str) -> Vec<String> {
        let config: TenantConfig = serde_json::from_str(json).expect("settings");
        self.event(Event::SetTenant {
            tenant: tenant.parse().expect("a name"),
            config: config.into(),
        })
    }

    /// What follows from an event, in words.
    fn event(&mut self, event: Event) -> Vec<String> {
        let now = Instant::ZERO + Duration::from_millis(self.now_ms);
        self.scheduler.handle(now, event);
        check(&self.scheduler);
        let mut effects = Vec::new();
        while let Some(effect) = self.scheduler.poll_effect() {
            effects.push(words(&self.scheduler, effect));
        }
        effects
    }

    fn submit(&mut self, spec: TaskSpec) -> Vec<String> {
        self.event(Event::Submit(spec))
    }

    fn attempt(&self, at: u8) -> Attempt {
        self.scheduler
            .task(&task_id(at))
            .expect("a live task")
            .attempt
    }

    fn about(&mut self, at: u8, event: impl FnOnce(TaskId, Attempt) -> Event) -> Vec<String> {
        let attempt = self.attempt(at);
        self.event(event(task_id(at), attempt))
    }

    /// Whether a task is with a peer.
    fn is_at(&self, at: u8, peer: u8) -> bool {
        let (task, peer) = (task_id(at), node_id(peer));
        self.scheduler.is_at(&task, Attempt::FIRST, peer)
    }

    fn accept(&mut self, at: u8) -> Vec<String> {
        self.about(at, |task, attempt| Event::Accepted { task, attempt })
    }

    fn refuse(&mut self, at: u8) -> Vec<String> {
        self.about(at, |task, attempt| Event::Refused { task, attempt })
    }

    fn finish(&mut self, at: u8) -> Vec<String> {
        self.about(at, |task, attempt| Event::Finished { task, attempt })
    }

    fn fail(&mut self, at: u8, kind: FailureKind) -> Vec<String> {
        self.about(at, |task, attempt| Event::Failed {
            task,
            attempt,
            kind,
        })
    }

    fn block(&mut self, at: u8) -> Vec<String> {
        self.about(at, |task, attempt| Event::Blocked { task, attempt })
    }

    fn pause(&mut self, at: u8) -> Vec<String> {
        self.about(at, |task, attempt| Event::Paused { task, attempt })
    }

    /// It has stopped, to be tried again; or it is an actor that has left.
    fn preempted(&mut self, at: u8) -> Vec<String> {
        self.about(at, |task, attempt| Event::Preempted { task, attempt })
    }

    /// An actor cannot leave.
    fn stays(&mut self, at: u8) -> Vec<String> {
        self.about(at, |task, attempt| Event::Stays { task, attempt })
    }

    fn unblock(&mut self, at: u8) -> Vec<String> {
        self.about(at, |task, attempt| Event::Unblocked { task, attempt })
    }

    fn overdue(&mut self, at: u8) -> Vec<String> {
        self.about(at, |task, attempt| Event::Overdue { task, attempt })
    }

    fn cancel(&mut self, at: u8) -> Vec<String> {
        self.event(Event::Cancel(task_id(at)))
    }

    fn message(&mut self, from: u8, message: Message) -> Vec<String> {
        let from = node_id(from);
        self.event(Event::Message {
            from,
            message: message.into(),
        })
    }

    /// Lets time go by.
    fn wait(&mut self, ms: u64) -> Vec<String> {
        self.now_ms += ms;
        self.event(Event::Tick)
    }

    fn phase(&self, at: u8) -> Phase {
        self.scheduler
            .task(&task_id(at))
            .expect("a live task")
            .phase
    }

    fn explain(&self, at: u8) -> String {
        let explanation = self.scheduler.explain(&task_id(at));
        let text = explanation.expect("a live task").to_string();
        text.replace(&task_id(at).to_string(), &format!("t{at}"))
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // What is held is not to be dropped.
        for ix in self.scheduler.own_nodes().to_vec() {
            let node = self.scheduler.cluster()[ix].id();
            let incarnation = Incarnation(9);
            self.event(Event::NodeLost { node, incarnation });
        }
    }
}

fn local_config() -> Config {
    Config {
        local: Some(node_id(0)),
        ..Config::default()
    }
}

fn info(at: u8, incarnation: u64, labels: &str) -> NodeInfo {
    NodeInfo {
        id: node_id(at),
        incarnation: Incarnation(incarnation),
        name: format!("n{at}").parse().expect("a name"),
        labels: labels.parse().expect("labels"),
    }
}

fn words(scheduler: &Scheduler, effect: Effect) -> String {
    let name = |id: &TaskId| format!("t{}", id.as_bytes()[0]);
    match effect {
        Effect::Dispatch {
            task,
            attempt,
            node,
            ..
        } => {
            let node = scheduler.cluster()[node].name();
            match attempt {
                Attempt::FIRST => format!("start {} on {node}", name(&task)),
                _ => format!("start {} on {node}, attempt {attempt}", name(&task)),
            }
        }
        Effect::Pause { task, .. } => format!("pause {}", name(&task)),
        Effect::Preempt { task, .. } => format!("preempt {}", name(&task)),
        Effect::Resume { task, .. } => format!("resume {}", name(&task)),
        Effect::Stop { task, .. } => format!("stop {}", name(&task)),
        Effect::Fetch { task, objects } => {
            let objects: Vec<_> = objects.iter().map(|id| id.as_bytes()[0]).collect();
            format!("fetch {objects:?} for {}", name(&task))
        }
        Effect::Ended {
            task, phase, why, ..
        } => match why {
            None => format!("{} {phase}", name(&task)),
            Some(why) => format!("{} {phase}: {why}", name(&task)),
        },
        Effect::Retried { task, attempt } => format!("retry {} as {attempt}", name(&task)),
        Effect::Infeasible { task, .. } => format!("{} infeasible", name(&task)),
        Effect::GroupChanged(_) => "group changed".to_owned(),
        Effect::Send { to, message } => {
            let to = format!("n{}", to.as_bytes()[0]);
            match *message {
                Message::Place {
                    spec,
                    attempt,
                    hops,
                } => {
                    format!("{to}: place {} {attempt}, hop {hops}", name(&spec.id))
                }
                Message::Placed { task, attempt } => {
                    format!("{to}: placed {} {attempt}", name(&task))
                }
                Message::Settled {
                    task,
                    attempt,
                    outcome,
                } => {
                    format!("{to}: settled {} {attempt} {outcome:?}", name(&task))
                }
                Message::Withdraw { task, attempt } => {
                    format!("{to}: withdraw {} {attempt}", name(&task))
                }
                Message::Group(_) => format!("{to}: about a bundle"),
                Message::WantGroup(_) => format!("{to}: how is the group"),
                Message::GroupStands { face: None, .. } => format!("{to}: the group is gone"),
                Message::GroupStands {
                    face: Some(face), ..
                } => {
                    let nodes = face.nodes.iter();
                    let nodes = nodes.map(|node| node.map(|node| node.as_bytes()[0]));
                    format!("{to}: the group is at {:?}", nodes.collect::<Vec<_>>())
                }
            }
        }
    }
}
