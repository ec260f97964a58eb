//! What waits because a tenant is at its quota.
//!
//! Owns the question whether a task may start under the quotas of its tenant and of all that this is part of, and the
//! classes that wait for room under one. Must not: decide whose turn it is.
//!
//! Invariant: nothing starts here by which a tenant would use more than its quota, as far as is known here. What runs goes on.
//! A blocked task waits for room for its CPU as a new one does, but where actors have that room for as long as they live:
//! there it goes on without, as it does on a node whose CPUs actors have.

use std::collections::BTreeMap;

use super::Scheduler;
use super::class::{Class, ClassIx, Wants};
use super::place::Holders;
use super::record::{Owner, TaskIx};
use crate::cluster::{Basis, NodeFit, NodeIx, Strategy};
use crate::fairness::{Ask, AtQuota, BeyondQuota, TenantIx, TenantName, TooManyWaiting};
use crate::group::GroupSpec;
use crate::id::GroupId;
use crate::resource::{Amount, Request, ResourceName, ResourceSet};
use crate::task::{Attempt, Phase, Rule, TaskKind, TaskSpec};

/// What a start would be charged for, of one variant of a rule.
pub(super) fn ask<'a>(rule: &Rule, wants: Wants, request: &'a Request) -> Ask<'a> {
    let is_grouped = matches!(rule.strategy, Strategy::PlacementGroup { .. });
    Ask {
        // A group is charged for its bundles.
        amounts: (!is_grouped).then(|| request.amounts()),
        needs_sandbox: wants == Wants::Start,
    }
}

impl Scheduler {
    /// The quota under which a new task can never start, whichever variant of it.
    pub(super) fn never_within_quota(
        &self,
        tenant: TenantIx,
        spec: &TaskSpec,
        (owner, attempt): (Owner, Attempt),
    ) -> Option<BeyondQuota> {
        // What was taken once is not refused later, though quotas are smaller by then.
        let is_new = owner == Owner::Here && attempt == Attempt::FIRST;
        if !is_new || !self.tenants.has_quotas() {
            return None;
        }
        let (rule, wants) = (&spec.terms.rule, Wants::of(spec.kind));
        let mut why = None;
        for request in &rule.alternatives {
            why = Some(
                self.tenants
                    .beyond_quota(tenant, ask(rule, wants, request))?,
            );
        }
        why
    }

    /// Whether one more task of a tenant may wait here.
    ///
    /// # Errors
    /// If as many wait as its quota lets wait.
    pub fn may_wait(&self, tenant: &TenantName) -> Result<(), TooManyWaiting> {
        match self.tenants.has_quotas() {
            true => self.tenants.may_wait(tenant),
            false => Ok(()),
        }
    }

    /// Whether a task waits here: it has not started, and no other node has it.
    pub(super) fn is_waiting(&self, ix: TaskIx) -> bool {
        let task = &self.tasks[ix];
        !task.phase().holds() && task.peer().is_none()
    }

    /// The tenant whose turn it is in a class, of those with room under their quotas.
    pub(super) fn turn_in(&mut self, ix: ClassIx) -> Option<TenantIx> {
        let first = self.classes[ix].first_tenant(&self.tenants, &self.keys);
        match self.tenants.has_quotas() {
            true => self.first_with_room(&self.classes[ix]),
            false => first,
        }
    }

    /// The same. But where a task has room for one of its variants alone, and only another one is free, those behind it come
    /// before it.
    pub(super) fn turn_to_start_in(&mut self, ix: ClassIx) -> Option<TenantIx> {
        let first = self.turn_in(ix)?;
        let class = &self.classes[ix];
        if !self.tenants.has_quotas() || class.rule().alternatives.len() == 1 {
            return Some(first);
        }
        let fits = class.first_where(&|tenant, has_lane| match has_lane {
            true => self.lane_may_fit(class, tenant),
            false => self.may_have_room(class, tenant),
        });
        Some(fits.unwrap_or(first))
    }

    /// The tenant whose turn it was when somebody looked last, of those with room under their quotas now; cheaper.
    pub(super) fn turn_lately_in(&self, class: &Class) -> Option<TenantIx> {
        match self.tenants.has_quotas() {
            true => self.first_with_room(class),
            false => class.first_tenant_lately(),
        }
    }

    fn first_with_room(&self, class: &Class) -> Option<TenantIx> {
        class.first_where(&|tenant, has_lane| match has_lane {
            true => self.lane_has_room(class, tenant),
            false => self.may_have_room(class, tenant),
        })
    }

    /// Whether all that are part of a tenant may be left out.
    fn may_have_room(&self, class: &Class, tenant: TenantIx) -> bool {
        let (rule, wants) = (class.rule(), class.key.wants);
        let mut requests = rule.alternatives.iter();
        wants.is_to_go_on()
            || requests.any(|it| {
                let ask = ask(rule, wants, it);
                !self.tenants.is_at_own_quota(tenant, ask)
            })
    }

    /// Whether the first task of a lane has room under all quotas.
    pub(super) fn lane_has_room(&self, class: &Class, lane: TenantIx) -> bool {
        let Some((_, task)) = class.head(lane) else {
            return false;
        };
        let tenant = self.tasks[task].tenant;
        let (rule, wants) = (class.rule(), class.key.wants);
        rule.alternatives.iter().any(|request| {
            self.at_quota(tenant, rule, wants, request).is_none()
                || wants.is_to_go_on() && !self.may_have_cpu(tenant, request)
        })
    }

    /// Whether a variant for which the first task of a lane has room is free on some node here.
    fn lane_may_fit(&self, class: &Class, lane: TenantIx) -> bool {
        let Some((_, task)) = class.head(lane) else {
            return false;
        };
        let within = self.rule_within_quota(task, class.rule());
        let rule = within.as_ref().map_or(class.rule(), |(rule, _)| rule);
        let task = &self.tasks[task];
        let holders = Holders::of(task);
        let demand = holders.demand(task, rule, Basis::Acquirable);
        let fits = |node: NodeIx| self.cluster.fit_on(node, &demand) == Some(NodeFit::Available);
        let is_meant = |node: &NodeIx| class.key.bound.is_none_or(|bound| bound == *node);
        let mut nodes = self.own.iter().copied().filter(is_meant);
        !rule.alternatives.is_empty() && nodes.any(fits)
    }

    /// The quota that a variant has no room under.
    pub(super) fn at_quota(
        &self,
        tenant: TenantIx,
        rule: &Rule,
        wants: Wants,
        request: &Request,
    ) -> Option<AtQuota> {
        match self.tenants.has_quotas() {
            true => self.tenants.at_quota(tenant, ask(rule, wants, request)),
            false => None,
        }
    }

    /// The quota that a task has no room under that waits to start, if there is none for any of its variants.
    pub(super) fn held_by_quota(&self, ix: TaskIx) -> Option<AtQuota> {
        let task = &self.tasks[ix];
        let (rule, wants) = (&task.terms.rule, Wants::of(task.kind));
        let mut why = None;
        for request in &rule.alternatives {
            why = Some(self.at_quota(task.tenant, rule, wants, request)?);
        }
        why
    }

    /// A rule with only the variants that have room under all quotas, and which these are; `None` if that is all of them.
    pub(super) fn rule_within_quota(
        &self,
        task: TaskIx,
        rule: &Rule,
    ) -> Option<(Rule, Vec<usize>)> {
        if !self.tenants.has_quotas() {
            return None;
        }
        let (tenant, wants) = (self.tasks[task].tenant, Wants::of(self.tasks[task].kind));
        let has_room = |at: &usize| {
            self.at_quota(tenant, rule, wants, &rule.alternatives[*at])
                .is_none()
        };
        let places: Vec<usize> = (0..rule.alternatives.len()).filter(has_room).collect();
        if places.len() == rule.alternatives.len() {
            return None;
        }
        let alternatives = places.iter().map(|at| rule.alternatives[*at].clone());
        let rule = Rule {
            alternatives: alternatives.collect(),
            ..rule.clone()
        };
        Some((rule, places))
    }

    /// Whether the CPU that a task gave back may come to be within its tenant's quotas again while it waits.
    fn may_have_cpu(&self, tenant: TenantIx, cpu: &Request) -> bool {
        let wanted = cpu.amounts().get(&ResourceName::CPU).steps();
        let mut above = std::iter::successors(Some(tenant), |ix| self.tenants.get(*ix).parent());
        above.all(|ix| {
            let quota = &self.tenants.get(ix).config().quota;
            let most = quota.max.get(&ResourceName::CPU);
            most.is_none_or(|most| {
                let lasting = self.cpu_of_actors_of(ix).steps();
                wanted <= most.steps().saturating_sub(lasting)
            })
        })
    }

    /// What actors of a tenant, and of those below it, hold of CPUs, outside of groups.
    fn cpu_of_actors_of(&self, tenant: TenantIx) -> Amount {
        let all = self.cpu_of_actors_here();
        let own = all.filter(|(it, _)| self.tenants.is_part_of(*it, tenant));
        let here: u64 = own.map(|(_, cpu)| cpu.steps()).sum();
        let elsewhere = self.tenants.get(tenant).cpu_of_actors_elsewhere();
        Amount::from_steps(elsewhere.steps().saturating_add(here))
    }

    /// What each actor here holds of CPUs, outside of groups.
    fn cpu_of_actors_here(&self) -> impl Iterator<Item = (TenantIx, Amount)> + '_ {
        let phases = [Phase::Dispatching, Phase::Running];
        let there = phases
            .into_iter()
            .flat_map(move |it| self.tasks.in_phase(it));
        there.filter_map(move |ix| {
            let task = &self.tasks[ix];
            let is_actor = matches!(task.kind, TaskKind::Actor(_));
            let assignment = task.state().assignment();
            let assignment = assignment.filter(|it| is_actor && it.bundle.is_none())?;
            let part = assignment.allocation.get(&ResourceName::CPU)?;
            Some((task.tenant, part.amount()))
        })
    }

    /// What other nodes are told of what tenants use here.
    pub(super) fn usage_report(&self) -> BTreeMap<TenantName, ResourceSet> {
        let mut report = self.tenants.report();
        if self.tenants.has_quotas() {
            for (tenant, cpu) in self.cpu_of_actors_here() {
                self.tenants.report_actor(&mut report, tenant, cpu);
            }
        }
        report
    }

    /// What a class watches is not all that it waits for, if somebody in it is at a quota: notes it for when there is room.
    pub(super) fn note_held(&mut self, ix: ClassIx, lane: TenantIx, task: TaskIx) {
        if !self.tenants.has_quotas() {
            return;
        }
        let class = &self.classes[ix];
        let (tenant, rule, wants) = (self.tasks[task].tenant, class.rule(), class.key.wants);
        let mut requests = rule.alternatives.iter();
        let is_held = class.first_tenant_lately() != Some(lane)
            || requests.any(|it| self.at_quota(tenant, rule, wants, it).is_some());
        if is_held {
            self.quota_held.insert(ix);
        }
    }

    /// Nobody in a class has room under its quotas, so no CPU is kept for it. Whether some was.
    pub(super) fn hold(&mut self, ix: ClassIx) -> bool {
        if self.classes[ix].in_line == 0 {
            return false;
        }
        self.park(ix);
        self.quota_held.insert(ix);
        self.let_cpu_go(ix)
    }

    /// Somebody else may be the first in a class that waits for room: of another tenant, which has some.
    pub(super) fn line_has_changed(&mut self, ix: ClassIx) {
        if self.quota_held.remove(&ix) {
            self.open(ix);
        }
    }

    /// A tenant may have room again: it, or one that it is part of, uses less, or may use more.
    pub(super) fn has_given_back(&mut self, tenant: TenantIx) {
        self.keys.note(tenant);
        self.open_held();
    }

    /// Looks again at those that wait for room under a quota.
    pub(super) fn open_held(&mut self) {
        for ix in std::mem::take(&mut self.quota_held) {
            if self.classes.get(ix).is_some() {
                self.open(ix);
            }
        }
        if self.tenants.has_quotas() && self.groups.has_owned() {
            self.groups.set_changed();
        }
    }

    /// The quota that a group which is to be planned has no room under.
    pub(super) fn group_at_quota(&self, group: &GroupId) -> Option<AtQuota> {
        let owned = self.groups.owned.get(group);
        let owned = owned.filter(|it| it.coordinator.wants_plan() && self.tenants.has_quotas())?;
        let mut lacks = ResourceSet::new();
        for (number, bundle) in (0..).zip(owned.coordinator.spec().bundles()) {
            if !owned.charged.contains(&number) {
                // Too much to be counted is more than any quota, and no node has it either.
                let _ = lacks.add(bundle.amounts());
            }
        }
        let ask = Ask {
            amounts: Some(&lacks),
            needs_sandbox: false,
        };
        self.tenants
            .at_quota(self.tenants.find(&owned.tenant)?, ask)
    }

    /// Why a group is not ready, if it is not. All who see the group are told, so what a tenant uses that its own is part of is
    /// not in it.
    pub(super) fn why_group_waits(&self, group: &GroupId) -> Option<String> {
        let quota = self.group_at_quota(group).map(|why| {
            let owned = self.groups.owned.get(group);
            match owned.is_some_and(|it| it.tenant == why.tenant) {
                true => why.to_string(),
                false => format!("tenant {} is at its quota", why.tenant),
            }
        });
        quota.or_else(|| self.groups.why_not_ready(group))
    }

    /// The quota under which a group of a tenant can never be.
    pub fn group_beyond_quota(&self, tenant: &TenantName, spec: &GroupSpec) -> Option<BeyondQuota> {
        let mut amounts = ResourceSet::new();
        for bundle in spec.bundles() {
            let _ = amounts.add(bundle.amounts());
        }
        let mut names = std::iter::successors(Some(tenant.clone()), TenantName::parent);
        let ix = names.find_map(|name| self.tenants.find(&name))?;
        let ask = Ask {
            amounts: Some(&amounts),
            needs_sandbox: false,
        };
        self.tenants.beyond_quota(ix, ask)
    }
}
