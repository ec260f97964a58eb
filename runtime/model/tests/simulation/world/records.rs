//! What the control store has of placement groups: which of them outlive their owners, and whose they are.
//!
//! Owns the records, the takeovers, and what each member has heard of both: all of it in order, each at its time. A
//! member that joins reads all that is there first.

use std::collections::{BTreeMap, BTreeSet};

use wasmrun_model::fairness::TenantName;
use wasmrun_model::group::GroupSpec;
use wasmrun_model::id::GroupId;
use wasmrun_model::scheduler::{Event, Reason};

use super::{Coming, Mode, World};
use crate::work;

/// A group that somebody created.
pub(super) struct Group {
    pub(super) id: GroupId,
    spec: GroupSpec,
    /// The member, in this incarnation, that owns it, where there is no record.
    owner: (usize, u64),
}

/// A group that outlives its owner.
struct Record {
    owner: usize,
    takeovers: u32,
}

#[derive(Debug, Clone, Copy)]
enum News {
    Recorded {
        group: usize,
        owner: usize,
        takeovers: u32,
    },
    Unrecorded {
        group: usize,
        owner: usize,
    },
}

/// The control store.
#[derive(Default)]
pub(super) struct Records {
    now: BTreeMap<usize, Record>,
    /// All that has ever changed.
    log: Vec<News>,
}

/// What a member has heard, in this incarnation of it.
#[derive(Default)]
pub(super) struct Heard {
    /// So much of the log.
    until: usize,
    /// These have records, as far as it knows.
    recorded: BTreeSet<GroupId>,
}

/// Something about a group that is going to happen.
#[derive(Debug, Clone, Copy)]
pub(super) enum OfGroup {
    /// Its owner writes a record.
    Keep,
    /// Somebody takes it over from this owner, if that is gone; or that one itself does, in another incarnation.
    TakeOver { from: usize },
    /// This member, in this incarnation, has taken it over, and meets all who are there before it asks them.
    Claim { by: (usize, u64), takeovers: u32 },
    /// Its owner ends it.
    Remove,
}

impl World {
    pub(super) fn create_group(&mut self, at: usize) {
        let (group, incarnation) = (self.groups.len(), self.incarnation_of(at));
        let id = work::group_id(group, work::node_id(at));
        let spec = work::group(&mut self.random);
        let owner = (at, incarnation);
        self.groups.push(Group {
            id,
            spec: spec.clone(),
            owner,
        });
        let event = Event::CreateGroup {
            group: id,
            spec,
            tenant: TenantName::default(),
        };
        self.handle(at, event);
        if self.mode == Mode::Each && work::chance(&mut self.random, 50) {
            self.come(0, 50, Coming::OfGroup(group, OfGroup::Keep));
        }
        self.come(1_000, 9_000, Coming::OfGroup(group, OfGroup::Remove));
    }

    pub(super) fn of_group(&mut self, group: usize, what: OfGroup) {
        match what {
            OfGroup::Keep => self.keep_group(group),
            OfGroup::TakeOver { from } => self.take_over(group, from),
            OfGroup::Claim { by, takeovers } => self.claim(group, by, takeovers),
            OfGroup::Remove => self.remove_group(group),
        }
    }

    fn is_in_incarnation(&self, (at, incarnation): (usize, u64)) -> bool {
        self.is_up(at) && self.incarnation_of(at) == incarnation
    }

    fn keep_group(&mut self, group: usize) {
        let Group { id, owner, .. } = &self.groups[group];
        let owner = *owner;
        if self.is_in_incarnation(owner) && self.members[owner.0].scheduler.owns_group(id) {
            self.record(group, owner.0, 0);
        }
    }

    /// A record is written, and all hear of it.
    fn record(&mut self, group: usize, owner: usize, takeovers: u32) {
        self.records.now.insert(group, Record { owner, takeovers });
        self.note(News::Recorded {
            group,
            owner,
            takeovers,
        });
    }

    fn note(&mut self, news: News) {
        self.records.log.push(news);
        let until = self.records.log.len();
        for to in 0..self.members.len() {
            let incarnation = self.incarnation_of(to);
            self.come(
                1,
                600,
                Coming::OfRecords {
                    to,
                    incarnation,
                    until,
                },
            );
        }
    }

    /// A member hears what has changed.
    pub(super) fn hear(&mut self, to: usize, incarnation: u64, until: usize) {
        while self.is_in_incarnation((to, incarnation)) && self.members[to].heard.until < until {
            let news = self.records.log[self.members[to].heard.until];
            self.members[to].heard.until += 1;
            self.tell(to, news);
        }
    }

    fn tell(&mut self, to: usize, news: News) {
        let heard = &mut self.members[to].heard.recorded;
        let event = match news {
            News::Recorded {
                group,
                owner,
                takeovers,
            } => {
                let group = self.groups[group].id;
                heard.insert(group);
                let owner = work::node_id(owner);
                Event::GroupRecorded {
                    group,
                    owner,
                    takeovers,
                }
            }
            News::Unrecorded { group, owner } => {
                let group = self.groups[group].id;
                heard.remove(&group);
                let owner = work::node_id(owner);
                Event::GroupUnrecorded { group, owner }
            }
        };
        self.handle(to, event);
    }

    /// A node has begun another incarnation: it reads what there is, and goes on with what it had before.
    pub(super) fn read_records(&mut self, at: usize) {
        let until = self.records.log.len();
        let recorded = BTreeSet::new();
        self.members[at].heard = Heard { until, recorded };
        let all = self.records.now.iter();
        let all = all.map(|(group, it)| (*group, it.owner, it.takeovers));
        for (group, owner, takeovers) in all.collect::<Vec<_>>() {
            let news = News::Recorded {
                group,
                owner,
                takeovers,
            };
            self.tell(at, news);
            if owner == at {
                let what = OfGroup::TakeOver { from: at };
                self.come(0, 800, Coming::OfGroup(group, what));
            }
        }
    }

    /// A node is gone: others will take over what it had.
    pub(super) fn leave_records(&mut self, at: usize) {
        let of_it = self.records.now.iter().filter(|(_, it)| it.owner == at);
        for group in of_it.map(|(group, _)| *group).collect::<Vec<_>>() {
            let what = OfGroup::TakeOver { from: at };
            self.come(1_000, 5_000, Coming::OfGroup(group, what));
        }
    }

    /// The record changes hands, in one transaction.
    fn take_over(&mut self, group: usize, from: usize) {
        let record = self.records.now.get(&group);
        let Some(takeovers) = record
            .filter(|it| it.owner == from)
            .map(|it| it.takeovers + 1)
        else {
            return;
        };
        let by = match self.is_up(from) {
            true => from,
            false => {
                let up = (0..self.members.len()).filter(|at| self.is_up(*at));
                let up: Vec<usize> = up.collect();
                if up.is_empty() {
                    let what = OfGroup::TakeOver { from };
                    return self.come(500, 2_000, Coming::OfGroup(group, what));
                }
                work::pick(&mut self.random, &up)
            }
        };
        let id = &self.groups[group].id;
        if by == from && self.members[by].scheduler.owns_group(id) {
            // It has taken that up already.
            return;
        }
        self.record(group, by, takeovers);
        let by = (by, self.incarnation_of(by));
        let what = OfGroup::Claim { by, takeovers };
        self.come(0, 100, Coming::OfGroup(group, what));
    }

    /// Whoever has taken a group over asks all what they have of it, as soon as it knows all who are there.
    fn claim(&mut self, group: usize, by: (usize, u64), takeovers: u32) {
        let record = self.records.now.get(&group);
        let is_its = record.is_some_and(|it| (it.owner, it.takeovers) == (by.0, takeovers));
        if !self.is_in_incarnation(by) || !is_its {
            // It was removed meanwhile, or taken over once more.
            return;
        }
        let cluster = self.members[by.0].scheduler.cluster();
        let mut there = (0..self.nodes.len()).filter(|at| self.nodes[*at].is_alive);
        if !there.all(|at| cluster.is_there(work::node_id(at))) {
            let what = OfGroup::Claim { by, takeovers };
            return self.come(100, 100, Coming::OfGroup(group, what));
        }
        let Group { id, spec, .. } = &self.groups[group];
        let event = Event::TakeOverGroup {
            group: *id,
            spec: spec.clone(),
            tenant: TenantName::default(),
            takeovers,
        };
        self.handle(by.0, event);
    }

    /// The record goes first, so that what was removed does not come back.
    fn remove_group(&mut self, group: usize) {
        let Group { id, owner, .. } = &self.groups[group];
        let (id, owner) = (*id, *owner);
        let owner = match self.records.now.get(&group) {
            Some(record) => {
                let at = record.owner;
                if !self.is_up(at) || !self.members[at].scheduler.owns_group(&id) {
                    // Between two owners.
                    return self.come(500, 500, Coming::OfGroup(group, OfGroup::Remove));
                }
                self.records.now.remove(&group);
                self.note(News::Unrecorded { group, owner: at });
                (at, self.incarnation_of(at))
            }
            None => owner,
        };
        if self.is_in_incarnation(owner) {
            self.handle(owner.0, Event::RemoveGroup(id));
        }
    }

    /// Nothing of a group ends with its owner, where its record is known.
    pub(super) fn check_outlives(&self, at: usize, why: Option<&Reason>) {
        let (Some(Reason::GroupLost(id)) | Some(Reason::GroupRemoved(id))) = why else {
            return;
        };
        let mut recorded = self.records.now.keys();
        let is_recorded = recorded.any(|group| self.groups[*group].id == *id);
        let is_known = self.members[at].heard.recorded.contains(id);
        assert!(!is_recorded || !is_known, "{at} ends what runs in {id}");
    }

    /// Some seconds after the last fault each group that has a record has one owner, the one that is recorded.
    pub(super) fn check_owners(&self) {
        for (group, record) in &self.records.now {
            let id = self.groups[*group].id;
            let mut owners = (0..self.members.len()).filter(|at| {
                let is_owner = self.members[*at].scheduler.owns_group(&id);
                self.is_up(*at) && is_owner
            });
            assert_eq!(owners.next(), Some(record.owner), "{id} has another owner");
            assert_eq!(owners.next(), None, "{id} has two owners");
        }
    }
}
