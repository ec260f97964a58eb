//! Requests that have been passed over for too long.
//!
//! Owns who has, and what is kept for whom. Must not: start anything.
//!
//! Smaller tasks that fit are started before a larger one that does not, so that nothing stands
//! idle. Without a limit the larger one might never find enough free at once. So when the first
//! task of a class has been passed over for [`super::Config::patience`], one node keeps for its
//! request what becomes free there, as backfilling schedulers do: others may use what is left
//! beside it. For a blocked task that is to go on it is kept at once. Tasks of placement groups wait for their bundle, which nobody else can take: for them nothing
//! is kept. What was kept on a node could be what their group waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Scheduler;
use super::class::{ClassIx, Gate, Wants};
use super::table::TaskIx;
use crate::cluster::{Basis, NodeFit, NodeIx};
use crate::fairness::TenantIx;
use crate::resource::Request;
use crate::time::Instant;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Starving {
    /// When the patience of a class's first task ends, or sooner; checked when it is time.
    deadlines: BTreeSet<(Instant, ClassIx)>,
    /// Those that have a deadline. One is enough: it is moved when it is checked.
    has_deadline: BTreeSet<ClassIx>,
    kept_on: BTreeMap<NodeIx, ClassIx>,
    kept_for: BTreeMap<ClassIx, NodeIx>,
    /// What was kept so far for those that have not started since.
    tries: BTreeMap<ClassIx, Tries>,
    /// Which classes are looked at next.
    cursor: usize,
    /// And when, if there are many.
    look_at: Instant,
}

/// What is kept for a class, and what was kept for it in vain.
#[derive(Debug, Default)]
struct Tries {
    /// What is kept now: the place of the alternative, and where.
    kept: Option<(usize, NodeIx)>,
    /// What that lacked when it was last looked at.
    lacking: u128,
    in_vain: BTreeSet<(usize, NodeIx)>,
    /// How often all were tried.
    rounds: u32,
}

impl Tries {
    /// How long something is kept without anything becoming free, at most.
    fn patience(&self, once: Duration) -> Duration {
        once.saturating_mul(1 << self.rounds.min(16))
    }
}

/// How many parked classes a start looks at, where there are few.
const LOOKED_AT: usize = 4;
/// How many a start looks at that comes after a pause of [`PAUSE`], where there are more of them
/// than [`FEW`]. Patience lasts for seconds, so all have their turn early enough.
const LOOKED_AT_SELDOM: usize = 64;
const FEW: usize = 16;
const PAUSE: Duration = Duration::from_millis(20);

impl Starving {
    /// Whether nobody has been passed over for long, and nothing is kept.
    pub(crate) fn is_idle(&self) -> bool {
        self.deadlines.is_empty() && self.kept_for.is_empty()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn come_back_at(&mut self, at: Instant, class: ClassIx) {
        if self.has_deadline.insert(class) {
            self.deadlines.insert((at, class));
        }
    }
}

impl Scheduler {
    /// The first task of a lane is about to start: notes who is passed over by that.
    pub(super) fn note_passed_over(&mut self, class: ClassIx, lane: TenantIx) {
        let parked = self.gated - self.open.len();
        let is_pause = self.classes.slots() > FEW && self.now < self.starving.look_at;
        if parked == 0 || is_pause {
            return;
        }
        self.starving.look_at = self.now + PAUSE;
        let (turn, _) = self.classes[class].head(lane).expect("somebody in line");
        let key = self.tenants.key(lane);
        let slots = self.classes.slots();
        let looked_at = match slots {
            0..=FEW => LOOKED_AT.min(slots),
            _ => LOOKED_AT_SELDOM.min(slots),
        };
        for _ in 0..looked_at {
            self.starving.cursor = (self.starving.cursor + 1) % slots;
            let at = ClassIx(self.starving.cursor as u32);
            let Some(other) = self.classes.get(at) else {
                continue;
            };
            if other.passed_over.is_some() || other.gate != Gate::Parked || other.is_grouped() {
                continue;
            }
            let Some(tenant) = other.first_tenant_lately() else {
                continue;
            };
            let Some((others, task)) = other.head(tenant) else {
                continue;
            };
            let is_before = match tenant == lane {
                true => others < turn,
                false => self.tenants.key(tenant) < key,
            };
            if is_before {
                self.classes[at].passed_over = Some((self.now, task));
                let deadline = self.now + self.config.patience;
                self.starving.come_back_at(deadline, at);
            }
        }
    }

    /// Keeps something for those whose patience has ended.
    pub(super) fn end_patience(&mut self) {
        while let Some((at, class)) = self.starving.deadlines.first().copied() {
            if at > self.now {
                return;
            }
            self.starving.deadlines.pop_first();
            self.starving.has_deadline.remove(&class);
            let since = self.classes.get(class).and_then(|class| class.passed_over);
            let Some((since, _)) = since else {
                self.starving.tries.remove(&class);
                continue;
            };
            if self.starving.kept_for.contains_key(&class) {
                self.keep_on_or_else(class);
                continue;
            }
            if since + self.config.patience > self.now {
                let deadline = since + self.config.patience;
                self.starving.come_back_at(deadline, class);
                continue;
            }
            self.keep_something(class);
        }
    }

    /// Keeps what the first task of a class asks for, as soon as it can be kept somewhere.
    fn keep_something(&mut self, class: ClassIx) {
        let Some((lacking, alternative, node)) = self.node_to_keep(class) else {
            let again = self.now + self.config.patience;
            return self.starving.come_back_at(again, class);
        };
        let request = self.classes[class].rule().alternatives[alternative].clone();
        self.starving.kept_on.insert(node, class);
        self.starving.kept_for.insert(class, node);
        let tries = self.starving.tries.entry(class).or_default();
        tries.kept = Some((alternative, node));
        tries.lacking = lacking;
        let again = self.now + tries.patience(self.config.patience);
        self.starving.come_back_at(again, class);
        self.cluster.keep(node, Some(request));
        self.open(class);
    }

    /// Something has been kept for a class for as long as its patience lasts: it stays kept where more has become
    /// free, else something else is.
    fn keep_on_or_else(&mut self, class: ClassIx) {
        let tries = self.starving.tries.get(&class);
        let Some((alternative, node)) = tries.and_then(|tries| tries.kept) else {
            return;
        };
        let request = &self.classes[class].rule().alternatives[alternative];
        let lacking = self.lacking(node, request);
        let tries = self.starving.tries.entry(class).or_default();
        let again = self.now + tries.patience(self.config.patience);
        if std::mem::replace(&mut tries.lacking, lacking) > lacking {
            return self.starving.come_back_at(again, class);
        }
        tries.in_vain.insert((alternative, node));
        self.starving.kept_for.remove(&class);
        self.starving.kept_on.remove(&node);
        self.cluster.keep(node, None);
        self.wake(node);
        self.keep_something(class);
    }

    /// Keeps what becomes free for a blocked task that is to go on, at once: it holds its memory and what others
    /// wait for, and requests for a fraction of its CPU would pass it for as long as there are any.
    ///
    /// What is kept for somebody else stays: a blocked task takes of that too. Whether it is new.
    pub(super) fn keep_for_resume(&mut self, class: ClassIx, task: TaskIx) -> bool {
        if self.classes[class].key.wants != Wants::Resume {
            return false;
        }
        let held = self.tasks[task].state().held();
        let held = held.expect("a blocked task holds");
        let node = held.node;
        if held.bundle.is_some()
            || self.starving.kept_on.contains_key(&node)
            || self.starving.kept_for.contains_key(&class)
        {
            return false;
        }
        let cpu = self.request_of(task, held).cpu_part();
        self.starving.kept_on.insert(node, class);
        self.starving.kept_for.insert(class, node);
        self.cluster.keep(node, Some(cpu));
        true
    }

    /// What to keep for the first task of a class: the alternative that it likes best of those that were not kept in
    /// vain, on the node that lacks least of it. What is lacking there, the place of the alternative, the node.
    fn node_to_keep(&mut self, class: ClassIx) -> Option<(u128, usize, NodeIx)> {
        let tenant = self.classes[class].first_tenant(&self.tenants, &self.keys)?;
        let (_, task) = self.classes[class].head(tenant)?;
        let (bound, is_resuming) = {
            let key = &self.classes[class].key;
            (key.bound, key.wants == Wants::Resume)
        };
        let nodes = self.own.iter().copied();
        let nodes = nodes.filter(|node| {
            bound.is_none_or(|bound| bound == *node)
                && !self.starving.kept_on.contains_key(node)
                && (is_resuming
                    || matches!(
                        self.fit_on(*node, task, Basis::Acquirable),
                        Some(NodeFit::Unavailable(_))
                    ))
        });
        let rule = self.classes[class].rule();
        let pairs = nodes.flat_map(|node| (0..rule.alternatives.len()).map(move |at| (at, node)));
        let pairs =
            pairs.filter(|(at, node)| self.cluster[*node].is_feasible(&rule.alternatives[*at]));
        let pairs: Vec<(usize, NodeIx)> = pairs.collect();
        let best = |in_vain: &BTreeSet<(usize, NodeIx)>| {
            let left = pairs.iter().filter(|pair| !in_vain.contains(pair));
            let left =
                left.map(|&(at, node)| (at, self.lacking(node, &rule.alternatives[at]), node));
            left.min().map(|(at, lacking, node)| (lacking, at, node))
        };
        let none = BTreeSet::new();
        let tries = self.starving.tries.get(&class);
        let found = best(tries.map_or(&none, |tries| &tries.in_vain));
        if found.is_some() || tries.is_none() {
            return found;
        }
        let found = best(&none);
        let tries = self.starving.tries.entry(class).or_default();
        tries.in_vain.clear();
        tries.rounds += 1;
        found
    }

    /// How much of a request is not free on a node: the largest part of an amount, as a fraction of 2^64.
    fn lacking(&self, node: NodeIx, request: &Request) -> u128 {
        let free = self.cluster.own(node).map(|own| own.available());
        let free = free.unwrap_or_default();
        let asked = request.amounts().iter();
        let lacking = asked.map(|(name, amount)| {
            let lacking = amount.saturating_sub(free.get(name)).steps();
            (u128::from(lacking) << 64) / u128::from(amount.steps())
        });
        lacking.max().unwrap_or_default()
    }

    /// A class has got what was kept for it, or does not need it any more.
    pub(super) fn stop_keeping_for(&mut self, class: ClassIx) {
        self.starving.tries.remove(&class);
        if let Some(node) = self.starving.kept_for.remove(&class) {
            self.starving.kept_on.remove(&node);
            self.cluster.keep(node, None);
            let is_waiting = self.classes[class].passed_over.is_some();
            if is_waiting {
                // Another of the class was served; this one has to be patient again.
                let again = self.now + self.config.patience;
                self.starving.come_back_at(again, class);
            }
            self.wake(node);
        }
    }

    /// A node goes: nothing is kept there any more.
    pub(super) fn stop_keeping_on(&mut self, node: NodeIx) {
        if let Some(class) = self.starving.kept_on.remove(&node) {
            self.starving.kept_for.remove(&class);
            self.starving
                .come_back_at(self.now + self.config.patience, class);
        }
    }

    /// After nodes have changed: nothing stays kept where those who wait for it cannot run any more.
    pub(super) fn stop_keeping_in_vain(&mut self) {
        let in_vain = self.starving.kept_on.iter().filter(|(node, class)| {
            let node = &self.cluster[**node];
            let kept = node.kept().expect("what is kept there");
            let selectors = self.classes[**class].rule().selectors.as_slice();
            let has_labels = selectors.is_empty()
                || selectors
                    .iter()
                    .any(|selector| selector.matches(node.labels()));
            !node.is_feasible(kept) || node.is_draining() || !has_labels
        });
        for node in in_vain.map(|(node, _)| *node).collect::<Vec<_>>() {
            self.stop_keeping_on(node);
            self.cluster.keep(node, None);
            self.wake(node);
        }
    }
}
