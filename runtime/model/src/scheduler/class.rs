//! Scheduling classes: the ready tasks grouped by what decides whether they fit.
//!
//! Owns the interning of classes, the lanes of each, the order of its tenants, and how many tasks
//! of each state it has, which is what resource sums are computed from. Must not: judge fits.
//!
//! The order of tenants within a class is brought up to date when somebody looks: the fairness
//! keys that changed since then stand in a log, so that a class nobody looks at costs nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use super::lane::{Lane, Turn};
use super::order::Order;
use super::record::TaskIx;
use super::table::Table;
use crate::cluster::{NodeIx, Strategy};
use crate::fairness::{TenantIx, Tenants};
use crate::id::GroupId;
use crate::resource::{Amount, ResourceName};
use crate::task::{Phase, Rule, TaskKind};
use crate::time::Instant;

/// The slot of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassIx(pub(crate) u32);

/// What the members of a class want.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Wants {
    /// To start, each in a sandbox of its own.
    Start,
    /// To start in the sandbox of their actor, which it has already.
    Call,
    /// They were blocked, run, and only want their CPU again.
    Resume,
    /// The same of tasks that were paused: nothing is kept for them.
    Continue,
}

impl Wants {
    /// What a task of this kind wants when it is new.
    pub(crate) fn of(kind: TaskKind) -> Self {
        match kind {
            TaskKind::Task | TaskKind::Actor(_) => Self::Start,
            TaskKind::Call { .. } => Self::Call,
        }
    }

    /// Whether it is a CPU alone, to go on.
    pub(crate) fn is_to_go_on(self) -> bool {
        matches!(self, Self::Resume | Self::Continue)
    }
}

/// What a class is interned by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClassKey {
    pub rule: Arc<Rule>,
    /// The node that its tasks are bound to.
    pub bound: Option<NodeIx>,
    /// What its members want.
    pub wants: Wants,
}

/// Whether a class is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Gate {
    /// Nobody is in line.
    #[default]
    Idle,
    /// Somebody is, and may fit.
    Open,
    /// Somebody is, and does not fit until what the class watches is reached.
    Parked,
}

/// What a parked class waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watch {
    /// A node (or any) can serve this much of a resource.
    Reach {
        node: Option<NodeIx>,
        name: ResourceName,
        amount: Amount,
    },
    /// Anything is given back on a node (or any).
    Release { node: Option<NodeIx> },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Class {
    pub key: ClassKey,
    pub gate: Gate,
    /// What it watches, and is registered for: one per variant, if it was ever parked since it was
    /// idle.
    pub watches: SmallVec<[Watch; 1]>,
    /// How many live tasks are in each state. Members of a resuming class are counted elsewhere.
    pub counts: [u32; Phase::LIVE],
    /// How many tasks are in its lanes.
    pub in_line: u32,
    /// The state of the cluster in which some node was seen to be able to serve it ever.
    pub feasible_at: u64,
    /// Since when its first task has been passed over by one that comes after it.
    pub passed_over: Option<(Instant, TaskIx)>,
    /// Whether it stands in the list of those without members.
    is_listed: bool,
    lanes: BTreeMap<TenantIx, Lane>,
    /// Of the lanes, once there was more than one.
    order: Order,
    cursor: u64,
}

impl Class {
    fn new(key: ClassKey) -> Self {
        Self {
            key,
            gate: Gate::Idle,
            watches: SmallVec::new(),
            counts: [0; Phase::LIVE],
            in_line: 0,
            feasible_at: 0,
            passed_over: None,
            is_listed: false,
            lanes: BTreeMap::new(),
            order: Order::default(),
            cursor: 0,
        }
    }

    pub(crate) fn rule(&self) -> &Rule {
        &self.key.rule
    }

    /// The placement group in whose bundles its tasks run.
    pub(crate) fn group(&self) -> Option<GroupId> {
        match self.key.rule.strategy {
            Strategy::PlacementGroup { group, .. } => Some(group),
            _ => None,
        }
    }

    /// Whether its tasks run in the bundles of a placement group.
    pub(crate) fn is_grouped(&self) -> bool {
        self.group().is_some()
    }

    pub(crate) fn members(&self) -> u32 {
        self.counts.iter().sum()
    }

    /// The tenant whose lane it is, if there is one lane only.
    pub(crate) fn only_lane(&self) -> Option<TenantIx> {
        let (tenant, _) = self.lanes.first_key_value()?;
        (self.lanes.len() == 1).then_some(*tenant)
    }

    /// The lane of a tenant, if anybody is in it.
    pub(crate) fn head(&self, tenant: TenantIx) -> Option<(Turn, TaskIx)> {
        let (turn, task) = self.lanes.get(&tenant)?.head()?;
        let wants = self.key.wants;
        let turn = Turn {
            is_new: wants != Wants::Resume,
            is_fresh: wants != Wants::Continue,
            ..turn
        };
        Some((turn, task))
    }

    /// Puts a task into its lane.
    pub(crate) fn push(
        &mut self,
        tasks: &mut Table,
        tenants: &Tenants,
        tenant: TenantIx,
        task: TaskIx,
    ) {
        let lanes = self.lanes.len();
        let lane = self.lanes.entry(tenant).or_default();
        let was_empty = lane.len() == 0;
        lane.push(tasks, task);
        self.in_line += 1;
        if was_empty && lanes > 1 {
            self.order.add(tenant, tenants);
        } else if lanes == 1 && self.lanes.len() == 2 {
            // A tenant that was alone was not sorted.
            let waiting = self.lanes.iter().filter(|(_, lane)| lane.len() > 0);
            waiting.for_each(|(tenant, _)| self.order.add(*tenant, tenants));
        }
    }

    /// Takes the first task out of a lane.
    pub(crate) fn pop(
        &mut self,
        tasks: &mut Table,
        tenants: &Tenants,
        tenant: TenantIx,
    ) -> Option<TaskIx> {
        let task = self.lanes.get_mut(&tenant)?.pop(tasks)?;
        self.left(tenants, tenant, task);
        Some(task)
    }

    /// Takes a task out of its lane, wherever it stands.
    pub(crate) fn remove(
        &mut self,
        tasks: &mut Table,
        tenants: &Tenants,
        tenant: TenantIx,
        task: TaskIx,
    ) {
        let lane = self.lanes.get_mut(&tenant);
        let lane = lane.expect("the lane of a task in line");
        lane.remove(tasks, task);
        self.left(tenants, tenant, task);
    }

    fn left(&mut self, tenants: &Tenants, tenant: TenantIx, task: TaskIx) {
        self.in_line -= 1;
        if self.passed_over.is_some_and(|(_, passed)| passed == task) {
            self.passed_over = None;
        }
        if self.lanes[&tenant].len() == 0 {
            self.order.remove(tenant, tenants);
            // One lane is kept: a class usually gets more of the same tenant's tasks.
            if self.lanes.len() > 1 {
                self.lanes.remove(&tenant);
            }
        }
    }

    /// The tenant whose turn it is in this class.
    pub(crate) fn first_tenant(&mut self, tenants: &Tenants, log: &KeyLog) -> Option<TenantIx> {
        if let (1, Some((tenant, lane))) = (self.lanes.len(), self.lanes.first_key_value()) {
            return (lane.len() > 0).then_some(*tenant);
        }
        self.bring_up_to_date(tenants, log);
        self.order.first()
    }

    /// The tenant whose turn it was when somebody looked last; cheaper.
    pub(crate) fn first_tenant_lately(&self) -> Option<TenantIx> {
        let only = || self.lanes.first_key_value().map(|(tenant, _)| *tenant);
        self.order.first().or_else(only)
    }

    /// The first tenant of whom it is said that it may start something, as of when somebody looked last. It is asked of those
    /// with a lane, and of those of which only others with a lane are part.
    pub(crate) fn first_where(
        &self,
        may_start: &dyn Fn(TenantIx, bool) -> bool,
    ) -> Option<TenantIx> {
        match self.only_lane() {
            Some(tenant) => may_start(tenant, true).then_some(tenant),
            None => self.order.first_where(may_start),
        }
    }

    /// The first task of each lane in which somebody stands.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (TenantIx, Turn, TaskIx)> + '_ {
        let lanes = self.lanes.keys();
        lanes.filter_map(move |tenant| {
            let (turn, task) = self.head(*tenant)?;
            Some((*tenant, turn, task))
        })
    }

    /// The tasks of a tenant's lane, in the order in which they may start.
    pub(crate) fn lane<'a>(
        &'a self,
        tenant: TenantIx,
        tasks: &'a Table,
    ) -> impl Iterator<Item = TaskIx> + 'a {
        let lane = self.lanes.get(&tenant);
        lane.into_iter().flat_map(|lane| lane.iter(tasks))
    }

    fn bring_up_to_date(&mut self, tenants: &Tenants, log: &KeyLog) {
        if self.cursor == log.end() {
            return;
        }
        match log.since(self.cursor, self.lanes.len() * 2 + 8) {
            Some(changed) => {
                // With a lane here or without: others may be part of the same.
                for tenant in changed {
                    self.order.refresh(*tenant, tenants);
                }
            }
            None => {
                for tenant in self.lanes.keys() {
                    self.order.refresh(*tenant, tenants);
                }
            }
        }
        self.cursor = log.end();
    }
}

/// Which tenants' keys changed, in order, as far back as anybody should want to know.
#[derive(Debug)]
pub(crate) struct KeyLog {
    changes: Vec<TenantIx>,
    /// The number of the first change in `changes`, from 1: a cursor of 0 has seen nothing.
    base: u64,
}

impl Default for KeyLog {
    fn default() -> Self {
        Self {
            changes: Vec::new(),
            base: 1,
        }
    }
}

/// How many changes are kept.
const LOG: usize = 1 << 14;

impl KeyLog {
    pub(crate) fn note(&mut self, tenant: TenantIx) {
        if self.changes.len() == LOG {
            let gone = LOG / 2;
            self.changes.drain(..gone);
            self.base += gone as u64;
        }
        self.changes.push(tenant);
    }

    /// Everything may have changed.
    pub(crate) fn note_all(&mut self) {
        self.base = self.end() + 1;
        self.changes.clear();
    }

    fn end(&self) -> u64 {
        self.base + self.changes.len() as u64
    }

    /// The changes from `cursor` on, unless that is more than `limit` or too long ago.
    fn since(&self, cursor: u64, limit: usize) -> Option<&[TenantIx]> {
        let from = usize::try_from(cursor.checked_sub(self.base)?).ok()?;
        let changes = self.changes.get(from..)?;
        (changes.len() <= limit).then_some(changes)
    }
}

/// The classes.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    slots: Vec<Option<Class>>,
    free: Vec<ClassIx>,
    by_key: HashMap<ClassKey, ClassIx>,
    /// Classes that were asked for lately: most tasks come in long rows of the same.
    recent: VecDeque<(Arc<Rule>, Wants, ClassIx)>,
    /// Classes without members, the first to have become so first. They are kept a while.
    unused: VecDeque<ClassIx>,
}

const RECENT: usize = 16;

/// How many classes without members are kept.
const KEPT: usize = 256;

impl Classes {
    /// The class of a rule, not bound to a node.
    pub(crate) fn of_rule(&mut self, rule: &Arc<Rule>, kind: TaskKind) -> ClassIx {
        let wants = Wants::of(kind);
        let is_it = |(of, wanted, _): &&(Arc<Rule>, Wants, ClassIx)| {
            Arc::ptr_eq(of, rule) && *wanted == wants
        };
        if let Some((_, _, class)) = self.recent.iter().find(is_it) {
            return *class;
        }
        let class = self.intern(ClassKey {
            rule: rule.clone(),
            bound: None,
            wants,
        });
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((rule.clone(), wants, class));
        class
    }

    pub(crate) fn intern(&mut self, key: ClassKey) -> ClassIx {
        if let Some(class) = self.by_key.get(&key) {
            return *class;
        }
        self.evict();
        let class = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            ClassIx(u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 classes"))
        });
        self.by_key.insert(key.clone(), class);
        self.slots[class.0 as usize] = Some(Class::new(key));
        self.retire(class);
        class
    }

    /// Notes that a class has no members (any more).
    pub(crate) fn retire(&mut self, ix: ClassIx) {
        let class = &mut self[ix];
        if !class.is_listed {
            class.is_listed = true;
            self.unused.push_back(ix);
        }
    }

    /// Forgets classes without members when there are many of them.
    fn evict(&mut self) {
        while self.unused.len() > KEPT {
            let Some(ix) = self.unused.pop_front() else {
                return;
            };
            let class = &mut self[ix];
            class.is_listed = false;
            if class.members() == 0 && class.in_line == 0 {
                let key = class.key.clone();
                self.by_key.remove(&key);
                self.recent.retain(|(_, _, recent)| *recent != ix);
                self.slots[ix.0 as usize] = None;
                self.free.push(ix);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClassIx, &Class)> {
        let ix = |at: usize| ClassIx(at as u32);
        self.slots
            .iter()
            .enumerate()
            .filter_map(move |(at, class)| Some((ix(at), class.as_ref()?)))
    }

    pub(crate) fn get(&self, ix: ClassIx) -> Option<&Class> {
        self.slots.get(ix.0 as usize)?.as_ref()
    }

    /// How many slots there are, for whoever goes round them.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }
}

impl std::ops::Index<ClassIx> for Classes {
    type Output = Class;

    fn index(&self, ix: ClassIx) -> &Class {
        self.slots[ix.0 as usize].as_ref().expect("a class in use")
    }
}

impl std::ops::IndexMut<ClassIx> for Classes {
    fn index_mut(&mut self, ix: ClassIx) -> &mut Class {
        self.slots[ix.0 as usize].as_mut().expect("a class in use")
    }
}
