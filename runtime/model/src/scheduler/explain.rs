//! Why a task is not running, as data.
//!
//! Owns the reasons. How an explanation is put is in `explain_text.rs`. Must not: decide anything; it asks the same code
//! that decides.

use std::fmt;
use std::time::Duration;

use super::Scheduler;
use super::class::Wants;
use super::preempt::{PausedFor, Pauses};
use super::record::{Owner, TaskIx};
use crate::cluster::{Basis, Choice, Demand, NodeFit, NodeIx, NodeName, Strategy, Unschedulable};
use crate::fairness::{Ahead, AtQuota, BeyondQuota, TenantName, TooManyTenants};
use crate::group::Impossible;
use crate::id::{ActorId, GroupId, NodeId, ObjectId, TaskId};
use crate::random::Random;
use crate::task::{Attempt, BlockedOn, MAX_ALTERNATIVES, Phase, Place, Rule, TaskKind, TaskState};

/// Why a task did not start, or will never.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is no node at all.
    #[error("there is no node; start one")]
    NoNode,
    /// No node can ever serve it.
    #[error(
        "no node can ever run this task: {} (node {}{}); ask for less, or add a node that has it",
        why(&first.fit),
        first.node,
        and_others(*.others)
    )]
    Nowhere {
        /// What the first node lacks.
        first: NodeVerdict,
        /// How many other nodes cannot either.
        others: usize,
    },
    /// The one node that it may run on is gone or cannot serve it.
    #[error(transparent)]
    Unschedulable(#[from] Unschedulable),
    /// Something ties it to one node, which can never serve it.
    #[error(transparent)]
    Tied(Box<Tied>),
    /// The tenant would be one too many.
    #[error(transparent)]
    Tenants(#[from] TooManyTenants),
    /// Its tenant may never have as much at once.
    #[error(transparent)]
    Quota(Box<BeyondQuota>),
    /// It is not to be paused or stopped for others, and its tenant may not ask for that.
    #[error(
        "tasks of tenant {0} may not ask to be neither paused nor stopped for others: leave --no-preempt out, or have an \
         operator allow it (`wasmrun tenant set {0} --no-preempt allow`)"
    )]
    NoPreempt(TenantName),
    /// It asks for too many variants, or for none.
    #[error(
        "a task asks for 1 to {MAX_ALTERNATIVES} variants, and this one for {0}; leave some out"
    )]
    Alternatives(usize),
    /// It is to run in a placement group, and on a node with certain labels.
    #[error(
        "where the bundles of placement group {0} are was decided when it was reserved, so a label selector has no \
         meaning for what runs in it: give the selector to the bundles (`wasmrun group create --label-selector`), and \
         none to this"
    )]
    SelectorInGroup(GroupId),
    /// Its actor does not live any more.
    #[error("actor {0} has died; create it again")]
    ActorDied(ActorId),
    /// An object that it needs will never be there.
    #[error(
        "it needs object {0}, and what was to make that has failed; see why, and submit both again"
    )]
    ArgumentFailed(ObjectId),
    /// Its placement group is not there (any more).
    #[error(
        "the tenant has no placement group {0}: nobody has created it, or it has ended; create it before what \
         runs in it"
    )]
    NoGroup(GroupId),
    /// Its placement group was removed.
    #[error(
        "placement group {0} was removed, and what runs in it or waits for it ends with it; create another one \
         for what is still to run"
    )]
    GroupRemoved(GroupId),
    /// The node that owned its placement group is lost.
    #[error(
        "placement group {0} has ended, because the node that owned it is lost, and what runs in it ends with it; \
         create it again at another node"
    )]
    GroupLost(GroupId),
    /// The node that owned its placement group was not seen for a while, and may live.
    #[error(
        "its node was cut off from the one that owns placement group {0}, and has given back the bundle in which it \
         ran; if the group is still there, submit it again"
    )]
    BundleLost(GroupId),
    /// Its placement group can never be reserved, as the nodes are.
    #[error("placement group {group} can never be reserved: {why}")]
    GroupImpossible {
        /// The group.
        group: GroupId,
        /// Why not.
        why: Impossible,
    },
    /// Its placement group has no bundle of this number.
    #[error(
        "placement group {group} has no bundle {bundle} that can ever hold this task: it has {bundles}, numbered from 0; \
         name one of these, or none"
    )]
    NoSuchBundle {
        /// The group.
        group: GroupId,
        /// The number.
        bundle: u32,
        /// How many it has.
        bundles: usize,
    },
    /// No bundle of its placement group can ever hold it.
    #[error(
        "no bundle of placement group {group} can ever hold this task; ask for no more than one \
         bundle has, of memory too"
    )]
    NoBundle {
        /// The group.
        group: GroupId,
    },
}

/// Why a task can never run that needs what only one node has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Tied {
    /// What the one node is for it.
    pub here: NodeVerdict,
    /// Another node that could serve it, or how many others cannot either.
    pub elsewhere: Result<NodeName, usize>,
    /// What ties it to the node: `its standard input comes to node n1 and to no other`.
    pub tie: String,
    /// What to do so that nothing ties it: `give it its input as a whole`.
    pub remedy: &'static str,
}

impl fmt::Display for Tied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            here: NodeVerdict { node, fit },
            elsewhere,
            tie,
            remedy,
        } = self;
        let why = why(fit);
        match elsewhere {
            Ok(other) => write!(
                f,
                "node {node} can never run this task: {why}; {tie}: submit it at node {other}, which can, or {remedy}"
            ),
            Err(others) => write!(
                f,
                "no node can ever run this task: {why} (node {node}{}); ask for less, or add a node that has it and \
                 submit it there: {tie}",
                and_others(*others)
            ),
        }
    }
}

fn and_others(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => ", and one other cannot either".to_owned(),
        others => format!(", and {others} others cannot either"),
    }
}

/// Why a node cannot serve a task, without the word for that.
fn why(fit: &NodeFit) -> String {
    match fit {
        NodeFit::Infeasible(why) => why.to_string(),
        NodeFit::Label(term) => format!("label {term} does not match"),
        other => other.to_string(),
    }
}

/// What a node is for a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeVerdict {
    /// The node.
    pub node: NodeName,
    /// Whether it can serve the task, and if not, why.
    pub fit: NodeFit,
}

impl fmt::Display for NodeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}: {}", self.node, self.fit)
    }
}

/// What a task waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    /// For nothing: it runs, or is about to.
    Nothing {
        /// Where.
        node: NodeName,
    },
    /// For other tasks or objects, while it runs.
    Others {
        /// Where it runs.
        node: NodeName,
    },
    /// For its CPU, which it gave back while it waited for others.
    Cpu {
        /// Where it runs.
        node: NodeName,
    },
    /// For its CPU, which another tenant was due: it was paused.
    Pause {
        /// Where it runs.
        node: NodeName,
        /// For whom.
        why: Option<PausedFor>,
    },
    /// For its CPU, and it runs meanwhile: the time is up that it wanted to wait.
    CpuMeanwhile {
        /// Where it runs.
        node: NodeName,
    },
    /// For objects to come here.
    Arguments(Vec<ObjectId>),
    /// For its actor to be created.
    Actor(Option<ActorId>),
    /// For another node, which has it.
    Peer {
        /// That node.
        node: NodeId,
        /// What it is called, if it is in the cluster.
        name: Option<NodeName>,
        /// Whether it has said so.
        is_accepted: bool,
    },
    /// For its placement group.
    Group {
        /// The group.
        group: GroupId,
        /// What that waits for.
        why: Option<String>,
    },
    /// For room in its placement group.
    Bundle(GroupId),
    /// For resources: no node fits now.
    Resources,
    /// For the tasks before it: some node would fit.
    Turn {
        /// The tenant whose turn it is, if that is another.
        ahead: Option<Ahead>,
    },
    /// For the tasks of another tenant, of which nothing is to be told.
    OthersTurn,
    /// For room under a quota.
    Quota(AtQuota),
    /// For room under the quota of this tenant, of whose use nothing is to be told.
    OthersQuota(TenantName),
    /// For one of the tasks that run to end: there may be no more of them at a time.
    Slot {
        /// How many.
        max_running: u32,
    },
    /// For the first view of the node that it is bound to: that has just joined.
    Newcomer(NodeName),
    /// For a node that can serve it: none that is there ever can.
    Node,
    /// For a moment to pass: nodes that were to run it have handed it back.
    Rest {
        /// How often it was handed from node to node.
        hops: u8,
    },
}

/// Where a task stands and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The task.
    pub task: TaskId,
    /// Its attempt.
    pub attempt: Attempt,
    /// Its state.
    pub phase: Phase,
    /// For how long it has been in it.
    pub since: Duration,
    /// What it waits for.
    pub waits: Waits,
    /// How often and for how long in all it was paused, if it was.
    pub paused: Option<(u32, Duration)>,
    /// How often attempts of it were stopped for other tenants, how long those had run in all, and why, if any were. No why where
    /// that was at other nodes.
    pub stopped: Option<(u32, Duration, Option<PausedFor>)>,
    /// How many tasks of its class and tenant come before it. At most [`COUNTED`] are counted.
    pub before: usize,
    /// What each node is for it. At most [`SHOWN`] nodes, own ones first.
    pub nodes: Vec<NodeVerdict>,
    /// How many more nodes there are.
    pub more_nodes: usize,
}

/// How many tasks are counted before another.
pub const COUNTED: usize = 10_000;

/// How many nodes an explanation shows.
pub const SHOWN: usize = 50;

impl Scheduler {
    /// Where a task stands and why; `None` if it is not live.
    pub fn explain(&self, task: &TaskId) -> Option<Explanation> {
        let ix = self.tasks.find(task)?;
        let task = &self.tasks[ix];
        let name = |node: NodeIx| self.cluster[node].name().clone();
        let waits = match task.state() {
            TaskState::Placeable(Place::Peer {
                node, is_accepted, ..
            }) => Waits::Peer {
                node: *node,
                name: self.cluster.by_id(*node).map(name),
                is_accepted: *is_accepted,
            },
            TaskState::Placeable(Place::Undecided)
                if !matches!(task.kind, TaskKind::Call { .. }) =>
            {
                Waits::Rest { hops: task.hops }
            }
            TaskState::Placeable(Place::Undecided) | TaskState::WaitingForActorCreation => {
                Waits::Actor(task.actor())
            }
            TaskState::Waiting { .. } => {
                let lacking = task.args.iter().filter(|arg| !arg.is_local);
                Waits::Arguments(lacking.map(|arg| arg.object).collect())
            }
            TaskState::Ready => self.why_ready(ix),
            TaskState::Dispatching(assignment) | TaskState::Running(assignment) => Waits::Nothing {
                node: name(assignment.node),
            },
            TaskState::Blocked { assignment, on } => {
                let node = name(assignment.node);
                match on {
                    BlockedOn::Others => Waits::Others { node },
                    BlockedOn::Cpu => Waits::Cpu { node },
                    BlockedOn::Nothing => Waits::CpuMeanwhile { node },
                    BlockedOn::Pause => Waits::Pause {
                        node,
                        why: self.pauses_of(ix).map(|pauses| pauses.why.clone()),
                    },
                }
            }
            TaskState::Infeasible => match &task.terms.rule.strategy {
                Strategy::PlacementGroup { group, .. } => Waits::Group {
                    group: *group,
                    why: self.why_group_waits(group),
                },
                Strategy::NodeAffinity { node, soft: false } if self.cluster.is_expected(node) => {
                    Waits::Newcomer(node.clone())
                }
                _ => Waits::Node,
            },
        };
        let is_placed = matches!(
            task.phase(),
            Phase::Dispatching | Phase::Running | Phase::Blocked
        );
        let is_grouped = matches!(task.terms.rule.strategy, Strategy::PlacementGroup { .. });
        let (nodes, more_nodes) = match is_placed || is_grouped {
            true => (Vec::new(), 0),
            false => self.verdicts(ix),
        };
        let stops = self.stops_of(ix).filter(|it| it.times > 0);
        Some(Explanation {
            task: task.id,
            attempt: task.attempt,
            phase: task.phase(),
            since: self.now - task.since,
            waits,
            paused: self.pauses_of(ix).map(|it| self.paused_for(it)),
            stopped: stops.map(|it| (it.times, it.in_all, it.why.clone())),
            before: self.count_before(ix),
            nodes,
            more_nodes,
        })
    }

    /// How often and for how long in all a task was paused.
    pub(super) fn paused_for(&self, pauses: &Pauses) -> (u32, Duration) {
        let now = pauses
            .since
            .map_or(Duration::ZERO, |since| self.now - since);
        (pauses.times, pauses.in_all + now)
    }

    fn why_ready(&self, ix: TaskIx) -> Waits {
        let task = &self.tasks[ix];
        if let Strategy::PlacementGroup { group, .. } = task.terms.rule.strategy
            && !self.groups.is_ready(&group)
        {
            let why = self.why_group_waits(&group);
            return Waits::Group { group, why };
        }
        if let Some(why) = self.held_by_quota(ix) {
            return Waits::Quota(why);
        }
        let needs_slot = Wants::of(task.kind) == Wants::Start;
        if needs_slot && self.with_executors >= self.config.max_running {
            return Waits::Slot {
                max_running: self.config.max_running,
            };
        }
        let fits =
            |node: &NodeIx| self.fit_on(*node, ix, Basis::Acquirable) == Some(NodeFit::Available);
        let is_grouped = matches!(task.terms.rule.strategy, Strategy::PlacementGroup { .. });
        if is_grouped || !self.own.iter().take(SHOWN).any(fits) {
            // Who is ahead is told where it matters: the next free resources go there.
            let ahead = self.who_is_ahead(ix);
            return match ahead {
                Some(ahead) if !is_grouped => Waits::Turn { ahead: Some(ahead) },
                _ => match task.terms.rule.strategy {
                    Strategy::PlacementGroup { group, .. } => Waits::Bundle(group),
                    _ => Waits::Resources,
                },
            };
        }
        Waits::Turn {
            ahead: self.who_is_ahead(ix),
        }
    }

    /// The tenant that is served before this task's, of those that have tasks in line.
    fn who_is_ahead(&self, ix: TaskIx) -> Option<Ahead> {
        let own = self.tasks[ix].tenant;
        let ready = self.tasks.in_phase(Phase::Ready).take(COUNTED);
        let first = ready
            .map(|other| self.tasks[other].tenant)
            .filter(|other| *other != own)
            .min_by(|one, other| self.tenants.order(*one, *other))?;
        let is_ahead = self.tenants.is_before(first, own);
        self.tenants.compare(first, own).filter(|_| is_ahead)
    }

    fn count_before(&self, ix: TaskIx) -> usize {
        let task = &self.tasks[ix];
        if !task.is_in_line || task.phase() != Phase::Ready {
            return 0;
        }
        let line = self.classes[task.class].lane(self.lane_of(ix), &self.tasks);
        line.take(COUNTED).take_while(|other| *other != ix).count()
    }

    fn verdicts(&self, ix: TaskIx) -> (Vec<NodeVerdict>, usize) {
        let owns = self.own.iter().copied();
        let peers = self.cluster.iter().filter(|(_, node)| !node.is_own());
        let nodes = owns.chain(peers.map(|(node, _)| node)).take(SHOWN);
        let basis = match self.tasks[ix].owner {
            _ if self.has_peers() => Basis::TrulyFree,
            Owner::Here | Owner::Peer(_) => Basis::Acquirable,
        };
        let verdicts: Vec<NodeVerdict> = nodes
            .filter_map(|node| {
                Some(NodeVerdict {
                    node: self.cluster[node].name().clone(),
                    fit: self.fit_on(node, ix, basis)?,
                })
            })
            .collect();
        let more = self.cluster.len() - verdicts.len();
        (verdicts, more)
    }

    /// The first node that can ever serve what follows this rule, if there is one.
    pub fn could_serve(&self, rule: &Rule) -> Option<&NodeName> {
        let demand = Demand {
            selectors: rule.selectors.as_slice(),
            strategy: &rule.strategy,
            ..Demand::of(&rule.alternatives, Basis::TrulyFree)
        };
        let fits = |node: &NodeIx| self.cluster.fit_on(*node, &demand);
        let mut nodes = self.cluster.iter();
        let found = nodes.find(|(node, _)| fits(node).is_some_and(|fit| fit.is_ever()));
        found.map(|(_, node)| node.name())
    }

    /// Why no task that follows this rule could run at the nodes that are there, in the words that it would be told. Of a
    /// placement group its owner says so, when there are tasks.
    pub fn why_never(&mut self, rule: &Rule) -> Option<Reason> {
        let strategy = match &rule.strategy {
            Strategy::PlacementGroup { .. } => return None,
            // It does not take a turn.
            Strategy::Spread => &Strategy::Default,
            strategy => strategy,
        };
        let demand = Demand {
            selectors: rule.selectors.as_slice(),
            strategy,
            ..Demand::of(&rule.alternatives, Basis::TrulyFree)
        };
        match self.cluster.choose(&demand, &mut Random::new(0)) {
            Choice::Now { .. } | Choice::Later { .. } => None,
            Choice::Unschedulable(why) => Some(why.into()),
            Choice::Infeasible => Some(self.nowhere_by(|node| self.cluster.fit_on(node, &demand))),
        }
    }

    /// Why no node can ever serve a task.
    pub(super) fn why_nowhere(&self, ix: TaskIx) -> Reason {
        self.nowhere_by(|node| self.fit_on(node, ix, Basis::TrulyFree))
    }

    fn nowhere_by(&self, fit_on: impl Fn(NodeIx) -> Option<NodeFit>) -> Reason {
        let first = self.cluster.iter().next();
        let Some((node, known)) = first else {
            return Reason::NoNode;
        };
        match fit_on(node) {
            Some(fit) => Reason::Nowhere {
                first: NodeVerdict {
                    node: known.name().clone(),
                    fit,
                },
                others: self.cluster.len() - 1,
            },
            None => Reason::NoNode,
        }
    }
}

impl Explanation {
    /// The same for one who is to hear of these tenants alone.
    #[must_use]
    pub fn seen_by(mut self, sees: impl Fn(&TenantName) -> bool) -> Self {
        if let Waits::Turn { ahead: Some(ahead) } = &self.waits
            // One that the task's tenant is part of may stand for it.
            && !(sees(&ahead.ahead) && sees(&ahead.behind))
        {
            self.waits = Waits::OthersTurn;
        }
        if let Waits::Quota(why) = &self.waits
            && !sees(&why.tenant)
        {
            self.waits = Waits::OthersQuota(why.tenant.clone());
        }
        let stopped = self.stopped.as_mut().map(|(_, _, why)| why);
        let paused = match &mut self.waits {
            Waits::Pause { why, .. } => Some(why),
            _ => None,
        };
        for why in stopped.into_iter().chain(paused) {
            why.take_if(|why| !sees(why.tenant()));
        }
        self
    }
}
