//! Requests that have been passed over for too long.
//!
//! Owns who has, and what is kept for whom. Must not: start anything.
//!
//! Smaller tasks that fit are started before a larger one that does not, so that nothing stands
//! idle. Without a limit the larger one might never find enough free at once. So when the first
//! task of a class has been passed over for [`super::Config::patience`], one node keeps for its
//! request what becomes free there, as backfilling schedulers do: others may use what is left
//! beside it. What is kept in vain is given up: for another alternative or node, for another class
//! that has been passed over, and in the end until the task is passed over once more.
//!
//! For blocked tasks that are to go on their CPU is kept at once, and besides. Of tasks of placement groups these alone
//! have something kept for them, in their bundle: what was kept on a node could be what a group waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Scheduler;
use super::class::{ClassIx, Gate, Wants};
use super::running::Place;
use crate::cluster::{Basis, NodeFit, NodeIx, Strategy};
use crate::fairness::TenantIx;
use crate::resource::{Request, ResourceName};
use crate::time::Instant;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Starving {
    /// When the patience of a class's first task ends, or sooner; checked when it is time.
    deadlines: BTreeSet<(Instant, ClassIx)>,
    /// The deadline of each that has one. One is enough: it is moved when it is checked.
    has_deadline: BTreeMap<ClassIx, Instant>,
    kept_on: BTreeMap<NodeIx, ClassIx>,
    kept_for: BTreeMap<ClassIx, NodeIx>,
    /// Those whose patience has ended and for whom nothing can be kept, as it is kept for others.
    waiting: BTreeSet<ClassIx>,
    /// What was kept so far for those that have not started since.
    tries: BTreeMap<ClassIx, Tries>,
    /// The classes of blocked tasks for which CPU is kept, by where they had it.
    resuming: BTreeMap<Place, BTreeSet<ClassIx>>,
    /// Which classes are looked at next.
    cursor: usize,
    /// And when, if there are many.
    look_at: Instant,
}

/// What is kept for a class, and what was kept for it in vain.
#[derive(Debug, Default)]
struct Tries {
    /// What is kept now.
    kept: Option<Kept>,
    /// What was kept before: the place of the alternative, and where.
    in_vain: BTreeSet<(usize, NodeIx)>,
    /// How often all were tried.
    rounds: u32,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    /// The place of the alternative.
    alternative: usize,
    node: NodeIx,
    since: Instant,
    /// When it was seen last that more has become free, or nothing had yet.
    better_at: Instant,
    /// What was lacking then.
    lacking: u128,
}

impl Kept {
    /// When it has been kept in vain, if no more becomes free before; patience lasts so long. What was gathered for long
    /// is not let go of sooner.
    fn until(&self, patience: Duration) -> Instant {
        self.better_at + patience.max(self.better_at - self.since)
    }
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
        self.deadlines.is_empty() && self.kept_for.is_empty() && self.resuming.is_empty()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Then, or sooner.
    fn come_back_at(&mut self, at: Instant, class: ClassIx) {
        match self.has_deadline.get(&class) {
            Some(before) if *before <= at => return,
            Some(before) => drop(self.deadlines.remove(&(*before, class))),
            None => {}
        }
        self.has_deadline.insert(class, at);
        self.deadlines.insert((at, class));
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
            let is_kept_for = other.is_grouped() || other.key.wants.is_to_go_on();
            if other.passed_over.is_some() || other.gate != Gate::Parked || is_kept_for {
                continue;
            }
            let Some(tenant) = self.turn_lately_in(other) else {
                continue;
            };
            let Some((others, task)) = other.head(tenant) else {
                continue;
            };
            let is_before = match tenant == lane {
                true => others < turn,
                false => self.tenants.is_before(tenant, lane),
            };
            if is_before {
                self.classes[at].passed_over = Some((self.now, task));
                let deadline = self.now + self.config.settings.patience;
                self.starving.come_back_at(deadline, at);
            }
        }
    }

    /// Patience lasts longer or shorter from now on: whose has ended is seen anew.
    pub(super) fn look_at_deadlines(&mut self) {
        self.starving.has_deadline.clear();
        let waiting = std::mem::take(&mut self.starving.deadlines);
        for (_, class) in waiting {
            self.starving.come_back_at(self.now, class);
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
                // Whoever was passed over has left.
                if self.classes.get(class).is_some() {
                    self.stop_keeping_for(class);
                }
                continue;
            };
            if self.starving.kept_for.contains_key(&class) {
                self.keep_on_or_else(class);
                continue;
            }
            if since + self.config.settings.patience > self.now {
                let deadline = since + self.config.settings.patience;
                self.starving.come_back_at(deadline, class);
                continue;
            }
            self.keep_something(class);
        }
    }

    /// Keeps what the first task of a class asks for, as soon as it can be kept somewhere. Once all was tried in vain,
    /// nothing is kept until it has been passed over again: others may do with what it does not need for now.
    fn keep_something(&mut self, class: ClassIx) {
        let pairs = self.pairs_to_keep(class);
        let tries = self.starving.tries.entry(class).or_default();
        let left = |pair: &&(usize, NodeIx)| !tries.in_vain.contains(pair);
        let left: Vec<(usize, NodeIx)> = pairs.iter().filter(left).copied().collect();
        if left.is_empty() && !tries.in_vain.is_empty() {
            tries.in_vain.clear();
            tries.rounds += 1;
            self.starving.waiting.remove(&class);
            self.classes[class].passed_over = None;
            return;
        }
        let Some((alternative, lacking, node)) = self.best_to_keep(class, &left) else {
            self.starving.waiting.insert(class);
            let again = self.now + self.config.settings.patience;
            return self.starving.come_back_at(again, class);
        };
        if let Some(other) = self.starving.kept_on.get(&node).copied() {
            self.give_up(other);
            self.starving.waiting.insert(other);
        }
        self.keep(class, alternative, lacking, node);
    }

    /// Keeps what becomes free on a node, where nothing is kept, for a variant of what the tasks of a class ask for.
    fn keep(&mut self, class: ClassIx, alternative: usize, lacking: u128, node: NodeIx) {
        let request = self.classes[class].rule().alternatives[alternative].clone();
        self.starving.waiting.remove(&class);
        self.starving.kept_on.insert(node, class);
        self.starving.kept_for.insert(class, node);
        let tries = self.starving.tries.entry(class).or_default();
        let until = self.now + tries.patience(self.config.settings.patience);
        tries.kept = Some(Kept {
            alternative,
            node,
            since: self.now,
            better_at: self.now,
            lacking,
        });
        self.starving.come_back_at(until, class);
        self.cluster.keep(node, Some(request));
        self.open(class);
    }

    /// Keeps what becomes free on a node for a class until those have stopped that stand in its way. Not if something is kept
    /// already: there, or for it.
    pub(super) fn keep_for_round(
        &mut self,
        class: ClassIx,
        alternative: usize,
        node: NodeIx,
    ) -> bool {
        let starving = &self.starving;
        let is_new =
            !starving.kept_on.contains_key(&node) && !starving.kept_for.contains_key(&class);
        if is_new {
            let request = &self.classes[class].rule().alternatives[alternative];
            let lacking = self.lacking(node, request);
            self.keep(class, alternative, lacking, node);
        }
        is_new
    }

    /// Something has been kept for a class for as long as its patience lasts: it stays kept where more has become
    /// free, else something else is. Others that wait for that come first.
    fn keep_on_or_else(&mut self, class: ClassIx) {
        let lacks_less = self.lacks_less(class);
        let tries = self.starving.tries.entry(class).or_default();
        let once = tries.patience(self.config.settings.patience);
        let Some(kept) = &mut tries.kept else {
            return;
        };
        if let Some(lacking) = lacks_less {
            (kept.better_at, kept.lacking) = (self.now, lacking);
        }
        let until = kept.until(once);
        if until > self.now {
            return self.starving.come_back_at(until, class);
        }
        self.give_up(class);
        let mut others: Vec<ClassIx> = self.starving.waiting.iter().copied().collect();
        others.sort_by_key(|other| {
            let rounds = self.rounds(*other);
            let passed_over = self.classes.get(*other).and_then(|other| other.passed_over);
            (rounds, passed_over.map(|(since, _)| since))
        });
        for other in others.into_iter().chain([class]) {
            match self.classes.get(other).and_then(|it| it.passed_over) {
                Some(_) => self.keep_something(other),
                None => drop(self.starving.waiting.remove(&other)),
            }
        }
    }

    /// What is kept for a class is not any more: it was in vain.
    fn give_up(&mut self, class: ClassIx) {
        let tries = self.starving.tries.entry(class).or_default();
        if let Some(kept) = tries.kept.take() {
            tries.in_vain.insert((kept.alternative, kept.node));
        }
        if let Some(node) = self.starving.kept_for.remove(&class) {
            self.starving.kept_on.remove(&node);
            self.cluster.keep(node, None);
            self.wake(node);
        }
    }

    fn rounds(&self, class: ClassIx) -> u32 {
        self.starving
            .tries
            .get(&class)
            .map_or(0, |tries| tries.rounds)
    }

    /// What is lacking of what is kept for a class, if that is less than when it was looked at last.
    fn lacks_less(&self, class: ClassIx) -> Option<u128> {
        let kept = self.starving.tries.get(&class)?.kept?;
        let request = &self.classes[class].rule().alternatives[kept.alternative];
        let lacking = self.lacking(kept.node, request);
        (lacking < kept.lacking).then_some(lacking)
    }

    /// Keeps what becomes free for a blocked task that is to go on, at once: it holds its memory and what others
    /// wait for, and requests for a fraction of its CPU would pass it for as long as there are any. As much as the largest
    /// of them needs, in a bundle as on a node: a blocked task takes of what is kept for whomever. Whether that is new.
    pub(super) fn keep_for_resume(&mut self, class: ClassIx) -> bool {
        let Some(place) = self.resumes_at(class) else {
            return false;
        };
        let is_new = self
            .starving
            .resuming
            .entry(place)
            .or_default()
            .insert(class);
        if is_new {
            self.keep_cpu(place);
        }
        is_new
    }

    /// Where the tasks of a class have been blocked, if that is what it is of.
    fn resumes_at(&self, class: ClassIx) -> Option<Place> {
        let key = &self.classes[class].key;
        let is_resuming = key.wants == Wants::Resume;
        let node = key.bound.filter(|_| is_resuming)?;
        let bundle = match key.rule.strategy {
            Strategy::PlacementGroup { group, bundle } => bundle.map(|bundle| (group, bundle)),
            _ => None,
        };
        Some((node, bundle))
    }

    /// Keeps as much CPU as the largest blocked task there needs that is to go on.
    fn keep_cpu(&mut self, place @ (node, bundle): Place) {
        let classes = self.starving.resuming.get(&place).into_iter().flatten();
        let cpus = classes.map(|class| self.classes[*class].rule().preferred());
        let most = cpus.max_by_key(|cpu| cpu.amounts().get(&ResourceName::CPU));
        let most = most.cloned();
        match bundle {
            Some(bundle) => self.groups.keep_cpu(node, bundle, most),
            None => self.cluster.keep_cpu(node, most),
        }
    }

    /// The alternatives that could be kept for the first task of a class, each with where.
    fn pairs_to_keep(&mut self, class: ClassIx) -> Vec<(usize, NodeIx)> {
        let first = self.turn_in(class);
        let first = first.and_then(|tenant| self.classes[class].head(tenant));
        let Some((_, task)) = first else {
            return Vec::new();
        };
        let bound = self.classes[class].key.bound;
        let rule = self.classes[class].rule();
        let nodes = self.own.iter().copied().filter(|node| {
            let fit = || self.fit_on(*node, task, Basis::Acquirable);
            bound.is_none_or(|bound| bound == *node)
                && matches!(fit(), Some(NodeFit::Unavailable(_) | NodeFit::Kept(_)))
        });
        let pairs = nodes.flat_map(|node| (0..rule.alternatives.len()).map(move |at| (at, node)));
        let pairs =
            pairs.filter(|(at, node)| self.cluster[*node].is_feasible(&rule.alternatives[*at]));
        pairs.collect()
    }

    /// Which of these to keep for a class: of an alternative that was kept in vain the least often, by preference, on the
    /// node that lacks least of it. Not where something is kept for others, unless in vain, and more often than for this
    /// class. The place of the alternative, what is lacking, the node.
    fn best_to_keep(
        &self,
        class: ClassIx,
        pairs: &[(usize, NodeIx)],
    ) -> Option<(usize, u128, NodeIx)> {
        let rule = self.classes[class].rule();
        let in_vain = |alternative: usize| {
            let tries = self.starving.tries.get(&class).into_iter();
            let in_vain = tries.flat_map(|tries| &tries.in_vain);
            in_vain.filter(|(at, _)| *at == alternative).count()
        };
        let best_of = |is_meant: &dyn Fn(NodeIx) -> bool| {
            let meant = pairs.iter().filter(|(_, node)| is_meant(*node));
            let meant = meant.map(|&(at, node)| {
                let lacking = self.lacking(node, &rule.alternatives[at]);
                (in_vain(at), at, lacking, node)
            });
            let (_, at, lacking, node) = meant.min()?;
            Some((at, lacking, node))
        };
        let keeper = |node: NodeIx| self.starving.kept_on.get(&node).copied();
        best_of(&|node| keeper(node).is_none()).or_else(|| {
            best_of(&|node| {
                keeper(node).is_some_and(|keeper| {
                    self.rounds(keeper) > self.rounds(class) && self.is_in_vain(keeper)
                })
            })
        })
    }

    /// Whether nothing of what is kept for a class has become free for as long as its patience lasts once.
    fn is_in_vain(&self, class: ClassIx) -> bool {
        let kept = self.starving.tries.get(&class).and_then(|tries| tries.kept);
        kept.is_some_and(|kept| kept.better_at + self.config.settings.patience <= self.now)
            && self.lacks_less(class).is_none()
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
        self.starving.waiting.remove(&class);
        if let Some(node) = self.starving.kept_for.remove(&class) {
            self.starving.kept_on.remove(&node);
            self.cluster.keep(node, None);
            let is_waiting = self.classes[class].passed_over.is_some();
            if is_waiting {
                // Another of the class was served; this one has to be patient again.
                let again = self.now + self.config.settings.patience;
                self.starving.come_back_at(again, class);
            }
            self.wake(node);
        }
        self.stop_keeping_cpu(class);
    }

    /// CPU is kept until the last of a class goes on.
    fn stop_keeping_cpu(&mut self, class: ClassIx) {
        if self.classes[class].in_line == 0 {
            self.let_cpu_go(class);
        }
    }

    /// No CPU is kept for a class of blocked tasks any more. Whether some was.
    pub(super) fn let_cpu_go(&mut self, class: ClassIx) -> bool {
        let Some(place) = self.resumes_at(class) else {
            return false;
        };
        let classes = self.starving.resuming.get_mut(&place);
        let Some(classes) = classes.filter(|it| it.contains(&class)) else {
            return false;
        };
        classes.remove(&class);
        if classes.is_empty() {
            self.starving.resuming.remove(&place);
        }
        self.keep_cpu(place);
        self.wake(place.0);
        true
    }

    /// A node goes, and with it whatever is kept there.
    pub(super) fn forget_kept_on(&mut self, node: NodeIx) {
        self.stop_keeping_on(node);
        self.starving.resuming.retain(|(on, _), _| *on != node);
    }

    fn stop_keeping_on(&mut self, node: NodeIx) {
        if let Some(class) = self.starving.kept_on.remove(&node) {
            self.starving.kept_for.remove(&class);
            if let Some(tries) = self.starving.tries.get_mut(&class) {
                tries.kept = None;
            }
            self.starving
                .come_back_at(self.now + self.config.settings.patience, class);
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
