//! Random events to try the invariants on: for `fuzz/` (libFuzzer) and the tests beside this module.
//!
//! Owns what bytes stand for which events. Must not: know what holds ([`check`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::invariants::{check, live};
use super::{
    Config, Effect, Event, Message, NodeInfo, Outcome, PeerView, Scheduler, Setting, Settings,
};
use crate::cluster::QueueReport;
use crate::fairness::{Policy, Quota, TenantConfig, TenantName};
use crate::group::{GroupAnswer, GroupKind, GroupMessage, GroupRequest, GroupSpec, Round};
use crate::id::{ActorId, DriverId, GroupId, Incarnation, JobId, NodeId, ObjectId, TaskId};
use crate::resource::{Amount, NodeResources, Request, ResourceName, ResourceSet};
use crate::task::{Argument, Attempt, FailureKind, Phase, Rule, TaskKind, TaskSpec, Terms};
use crate::time::Instant;

/// Bytes that are used up one by one; zeros when there are no more.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        self.0.next().copied().unwrap_or_default()
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.next() % bound
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::from(self.below(of.len() as u8))].clone()
    }
}

/// Few ids of each kind, so that they meet again.
struct Fuzz<'a> {
    bytes: Bytes<'a>,
    scheduler: Scheduler,
    now: Instant,
    /// What was submitted here and has not ended.
    submitted: BTreeSet<TaskId>,
    /// Who was told to pause.
    pausing: Vec<(TaskId, Attempt)>,
    /// Who was told to stop, to be tried again.
    stopping: Vec<(TaskId, Attempt)>,
}

/// Bytes as events. Whatever comes in whatever order: the invariants hold, and every submission
/// ends at most once.
///
/// # Panics
/// If they do not.
pub fn fuzz(data: &[u8]) {
    let mut bytes = Bytes(data.iter());
    let kind = bytes.next();
    let config = Config {
        settings: Settings {
            policy: [Policy::Drf, Policy::Fair, Policy::Fifo][usize::from(kind % 3)],
            local_queue: 2,
            patience: Duration::from_secs(1),
            ..Settings::default()
        },
        seed: kind.into(),
        local: (kind & 4 != 0).then(|| node_id(0)),
        max_running: if kind & 8 != 0 { 3 } else { u32::MAX },
        ..Config::default()
    };
    let mut fuzz = Fuzz {
        bytes,
        scheduler: Scheduler::new(config),
        now: Instant::ZERO,
        submitted: BTreeSet::new(),
        pausing: Vec::new(),
        stopping: Vec::new(),
    };
    while fuzz.bytes.0.len() > 0 {
        fuzz.step();
    }
    // What is held is not to be dropped.
    for own in fuzz.scheduler.own.clone() {
        let node = &fuzz.scheduler.cluster[own];
        let (node, incarnation) = (node.id(), node.incarnation());
        fuzz.handle(Event::NodeLost { node, incarnation });
    }
}

fn node_id(at: u8) -> NodeId {
    NodeId::from_bytes([at; 16])
}

impl Fuzz<'_> {
    fn step(&mut self) {
        let step = [0, 1, 1_000, 300_000, 2_000_000][usize::from(self.bytes.below(5))];
        self.now = self.now + Duration::from_micros(step);
        let event = self.event();
        self.handle(event);
    }

    fn handle(&mut self, event: Event) {
        if let Event::Submit(spec) = &event
            && self.scheduler.tasks.find(&spec.id).is_none()
        {
            self.submitted.insert(spec.id);
        }
        self.scheduler.handle(self.now, event);
        check(&self.scheduler);
        while let Some(effect) = self.scheduler.poll_effect() {
            match effect {
                Effect::Ended { task, phase, .. } => {
                    assert!(phase.is_terminal() && self.submitted.remove(&task));
                }
                Effect::Dispatch {
                    task,
                    attempt,
                    node,
                    ..
                } => {
                    let view = self.scheduler.task(&task).expect("a dispatched task");
                    assert_eq!((view.attempt, view.phase), (attempt, Phase::Dispatching));
                    assert!(self.scheduler.cluster.own(node).is_some());
                }
                Effect::Pause { task, attempt } => {
                    let view = self.scheduler.task(&task).expect("what is to pause");
                    assert_eq!((view.attempt, view.phase), (attempt, Phase::Running));
                    self.pausing.push((task, attempt));
                }
                Effect::Preempt { task, attempt } => {
                    let view = self.scheduler.task(&task).expect("what is to stop");
                    assert!(view.attempt == attempt && view.phase.holds());
                    self.stopping.push((task, attempt));
                }
                Effect::Stop { node, .. } => {
                    assert!(self.scheduler.cluster.own(node).is_some());
                }
                _ => {}
            }
        }
        let own = |id: &TaskId| self.scheduler.task(id).is_some_and(|task| task.is_own);
        assert!(
            self.submitted.iter().all(own),
            "a submission is gone, unended"
        );
        let live: Vec<TaskId> = live(&self.scheduler)
            .map(|ix| self.scheduler.tasks[ix].id)
            .collect();
        for id in live {
            let text = self
                .scheduler
                .explain(&id)
                .expect("a live task")
                .to_string();
            assert!(text.contains("it waits for"));
        }
    }

    fn event(&mut self) -> Event {
        let task = self.task();
        let attempt = match self.scheduler.tasks.find(&task) {
            Some(ix) if self.bytes.below(8) > 0 => self.scheduler.tasks[ix].attempt,
            _ => Attempt::new(0, self.bytes.below(4).into()),
        };
        let node = node_id(self.bytes.below(4));
        let driver = DriverId::from_bytes([self.bytes.below(2); 16]);
        let actor = ActorId::from_bytes([self.bytes.below(2); 16]);
        match self.bytes.below(42) {
            0..=7 => Event::Submit(self.spec(task)),
            8..=10 => Event::Accepted { task, attempt },
            11 => Event::Refused { task, attempt },
            12..=14 => Event::Finished { task, attempt },
            15 => {
                let kind = self
                    .bytes
                    .pick(&[FailureKind::Final, FailureKind::Retryable]);
                Event::Failed {
                    task,
                    attempt,
                    kind,
                }
            }
            16..=17 => Event::Blocked { task, attempt },
            18 => Event::Unblocked { task, attempt },
            19 => Event::Overdue { task, attempt },
            20 => Event::ArgumentReady(self.object()),
            21 => Event::ArgumentLost(self.object()),
            22 if self.bytes.below(4) == 0 => Event::ArgumentFailed(self.object()),
            22 => Event::Cancel(task),
            23 => match self.bytes.below(3) {
                0 => Event::CancelJob(JobId::from_bytes([self.bytes.below(2); 16])),
                1 => Event::DriverGone(driver),
                _ => Event::DriverJoined(driver),
            },
            kind @ 24..=32 => self.node_event(kind, node),
            33 => Event::ActorCreated { actor, node },
            34 => Event::ActorDied {
                actor,
                will_restart: self.bytes.below(2) == 0,
            },
            35 => match self.bytes.below(2) {
                0 => {
                    let settings = self.scheduler.settings();
                    let policies = [Policy::Drf, Policy::Fair, Policy::Fifo];
                    let setting = match self.bytes.next() % 5 {
                        0 => Setting::TopNodes(self.bytes.next().into()),
                        1 => Setting::LocalQueue(self.bytes.next().into()),
                        2 => Setting::Patience(Duration::from_millis(self.bytes.next().into())),
                        3 => Setting::Preemption(self.bytes.below(4) > 0),
                        _ => Setting::Policy(self.bytes.pick(&policies)),
                    };
                    Event::Configure(settings.with(setting).into())
                }
                _ => Event::SetTenant {
                    tenant: self.bytes.pick(&["a", "b", "a/x"]).parse().expect("a name"),
                    config: Box::new(TenantConfig {
                        min_share: self.amounts(),
                        quota: self.quota(),
                        ..TenantConfig::default()
                    }),
                },
            },
            36 => self.group_event(node),
            37..=38 => Event::Message {
                from: node,
                message: self.message(task, attempt).into(),
            },
            39..=40 => self.preemption_event((task, attempt)),
            _ => Event::Tick,
        }
    }

    /// What an executor that was told to stop or to pause something says of that; where none was, of `other`.
    fn preemption_event(&mut self, other: (TaskId, Attempt)) -> Event {
        if let Some((task, attempt)) = self.stopping.pop() {
            return match self.bytes.below(4) {
                0 => Event::Stays { task, attempt },
                _ => Event::Preempted { task, attempt },
            };
        }
        let (task, attempt) = self.pausing.pop().unwrap_or(other);
        Event::Paused { task, attempt }
    }

    fn group_event(&mut self, owner: NodeId) -> Event {
        let group = GroupId::from_bytes([self.bytes.below(2); 16]);
        let takeovers = self.bytes.below(4).into();
        let kind = self.bytes.below(6);
        match kind {
            0 => {
                return Event::GroupRecorded {
                    group,
                    owner,
                    takeovers,
                };
            }
            1 => return Event::GroupUnrecorded { group, owner },
            _ => {}
        }
        let bundles = (0..1 + self.bytes.below(3)).map(|_| self.amounts());
        let bundles = bundles.map(|bundle| Request::new(bundle).expect("whole units"));
        let bundles = bundles.collect();
        let tenant = self.bytes.pick(&["a", "b"]).parse().expect("a name");
        match GroupSpec::new(self.bytes.pick(&GroupKind::ALL), bundles) {
            Ok(spec) if kind == 2 => Event::TakeOverGroup {
                group,
                spec,
                tenant,
                takeovers,
            },
            Ok(spec) => Event::CreateGroup {
                group,
                spec,
                tenant,
            },
            Err(_) => Event::RemoveGroup(group),
        }
    }

    /// What is said of a claim to a group.
    fn group_message(&mut self) -> GroupMessage {
        let group = GroupId::from_bytes([self.bytes.below(2); 16]);
        let from = Round::of_takeover(self.bytes.below(4).into());
        match self.bytes.below(2) {
            0 => GroupRequest::Claim { group, from }.into(),
            _ => GroupAnswer::Holds {
                group,
                from,
                bundles: vec![(self.bytes.below(4).into(), Round(1))],
            }
            .into(),
        }
    }

    /// What happens to a node: by 24 to 32.
    fn node_event(&mut self, kind: u8, node: NodeId) -> Event {
        match kind {
            24..=25 => Event::OwnNode {
                node: self.node(node),
                resources: self.resources().into(),
            },
            26..=27 => Event::PeerView {
                node: self.node(node),
                view: Box::new(PeerView {
                    version: self.bytes.below(4).into(),
                    resources: self.resources().report(),
                    queue: QueueReport::default(),
                    usage: BTreeMap::from([(self.tenant(), self.usage())]),
                }),
            },
            28 => {
                let incarnation = Incarnation(self.bytes.below(3).into());
                match self.bytes.below(4) {
                    0 => Event::NodeExpected(NodeInfo {
                        incarnation,
                        ..self.node(node)
                    }),
                    1 => Event::NodeUnseen { node, incarnation },
                    _ => Event::NodeLost { node, incarnation },
                }
            }
            29 => Event::SetCapacity {
                node,
                name: self.name(),
                capacity: Amount::units(self.bytes.below(6).into()),
            },
            30 => Event::DeleteResource {
                node,
                name: self.name(),
            },
            31 => Event::SetLabels {
                node,
                labels: self.node(node).labels,
            },
            _ => match self.bytes.below(4) {
                at @ 0..=1 => Event::SetDraining {
                    node,
                    is_draining: at == 0,
                },
                at => Event::SetReachable {
                    node,
                    is_reachable: at == 2,
                },
            },
        }
    }

    fn message(&mut self, task: TaskId, attempt: Attempt) -> Message {
        match self.bytes.below(6) {
            0 | 1 => Message::Place {
                spec: self.spec(task),
                attempt,
                hops: self.bytes.below(6),
            },
            2 => Message::Placed { task, attempt },
            3 => Message::Settled {
                task,
                attempt,
                outcome: self.bytes.pick(&[
                    Outcome::Finished,
                    Outcome::Failed(FailureKind::Retryable),
                    Outcome::Cancelled,
                    Outcome::HandedBack,
                ]),
            },
            4 => Message::Group(self.group_message()),
            _ => Message::Withdraw { task, attempt },
        }
    }

    fn task(&mut self) -> TaskId {
        TaskId::from_bytes([self.bytes.below(24); 16])
    }

    fn object(&mut self) -> ObjectId {
        ObjectId::from_bytes([self.bytes.below(4); 20])
    }

    fn name(&mut self) -> ResourceName {
        self.bytes
            .pick(&[ResourceName::CPU, ResourceName::GPU, ResourceName::MEMORY])
    }

    fn amounts(&mut self) -> ResourceSet {
        let share = self.bytes.pick(&["0", "0.3", "0.5", "1", "2"]);
        ResourceSet::new()
            .with(ResourceName::CPU, Amount::units(self.bytes.below(4).into()))
            .with(ResourceName::GPU, share.parse().expect("an amount"))
            .with(
                ResourceName::MEMORY,
                Amount::units(self.bytes.below(8).into()),
            )
    }

    fn tenant(&mut self) -> TenantName {
        let name = self.bytes.pick(&["a", "b", "c", "a/x"]);
        name.parse().expect("a name")
    }

    /// What another node says that a tenant uses.
    fn usage(&mut self) -> ResourceSet {
        let of_actors = Amount::units(self.bytes.below(3).into());
        let sandboxes = self.bytes.pick(&[Amount::ZERO, Amount::ONE, Amount::MAX]);
        self.amounts()
            .with("wasmrun/actors".parse().expect("a name"), of_actors)
            .with("wasmrun/sandboxes".parse().expect("a name"), sandboxes)
    }

    fn quota(&mut self) -> Quota {
        let max = self.amounts();
        let max = max.iter().map(|(name, amount)| (name.clone(), amount));
        Quota {
            max: max.collect(),
            max_tasks: self.bytes.pick(&[None, Some(1), Some(3)]),
            no_preempt: self.bytes.pick(&[false, true]),
            ..Quota::default()
        }
    }

    fn resources(&mut self) -> NodeResources {
        let mut resources = NodeResources::new();
        for name in [ResourceName::CPU, ResourceName::GPU, ResourceName::MEMORY] {
            let capacity = Amount::units(self.bytes.below(6).into());
            resources
                .set_capacity(&name, capacity)
                .expect("a small capacity");
        }
        resources
    }

    fn node(&mut self, id: NodeId) -> NodeInfo {
        NodeInfo {
            id,
            incarnation: Incarnation(self.bytes.below(3).into()),
            name: format!("n{}", id.as_bytes()[0]).parse().expect("a name"),
            labels: self
                .bytes
                .pick(&["", "zone=a", "zone=b"])
                .parse()
                .expect("labels"),
        }
    }

    fn spec(&mut self, id: TaskId) -> TaskSpec {
        let mut alternatives = vec![Request::new(self.amounts()).expect("whole units")];
        if self.bytes.below(4) == 0 {
            alternatives.push(Request::new(self.amounts()).expect("whole units"));
        }
        let strategy = match self.bytes.below(10) {
            0 => "random",
            1 => "spread",
            2 => "node:n0",
            3 => "node:n1:soft",
            4 => "group:00000000000000000000000000000000",
            5 => "group:01010101010101010101010101010101:1",
            _ => "default",
        };
        let actor = ActorId::from_bytes([self.bytes.below(2); 16]);
        let rule = Rule {
            alternatives,
            selectors: self
                .bytes
                .pick(&["*", "*", "zone=a", "zone=a;zone=b"])
                .parse()
                .expect("one"),
            strategy: strategy.parse().expect("a strategy"),
            module: None,
        };
        let args = (0..self.bytes.below(3)).map(|at| Argument {
            object: ObjectId::from_bytes([at; 20]),
            bytes: if at == 0 { 1 << 20 } else { 10 },
            holders: vec![node_id(at)],
            is_local: at == 0,
        });
        TaskSpec {
            id,
            args: args.collect(),
            driver: DriverId::from_bytes([id.as_bytes()[0] % 2; 16]),
            job: JobId::from_bytes([id.as_bytes()[0] % 2; 16]),
            terms: Arc::new(Terms {
                tenant: self.tenant(),
                priority: i32::from(self.bytes.below(3)) - 1,
                retries: self.bytes.below(3).into(),
                retry_on_error: false,
                no_preempt: id.as_bytes()[0].is_multiple_of(5),
                rule: Arc::new(rule),
            }),
            kind: match self.bytes.below(6) {
                0 => TaskKind::Actor(actor),
                1 | 2 => TaskKind::Call {
                    actor,
                    caller: (self.bytes.below(3) == 0).then(|| self.task()),
                },
                _ => TaskKind::Task,
            },
        }
    }
}
