//! Placement groups that were created here: whose they are.
//!
//! Owns what the scheduler does not know of them: their driver, their name, and who is to hear of changes. Must
//! not: reserve anything; that is the scheduler's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use wasmrun_control::records::{Form, Record};
use wasmrun_model::fairness::{TenantName, TooManyTenants};
use wasmrun_model::group::GroupSpec;
use wasmrun_model::id::{DriverId, GroupId, NodeId};
use wasmrun_model::scheduler::{Event, GroupView};

use super::{Ledger, Todo};

/// A placement group that outlives its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupRecord {
    /// What was asked for.
    pub(crate) spec: GroupSpec,
    /// Whose tasks may run in it.
    pub(crate) tenant: TenantName,
    /// What people call it, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// How often it was taken over.
    pub(crate) takeovers: u32,
}

impl Record for GroupRecord {
    // Nodes of two versions read it.
    const FORM: Form = Form::Json;
    const VERSION: u8 = 1;
}

/// What is told of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupNews {
    /// A group has a record, and this owner.
    Recorded(GroupId, NodeId, Box<GroupRecord>),
    /// A group of this owner has no record any more.
    Unrecorded(GroupId, NodeId),
}

/// The most groups that a tenant may have at one node.
pub(crate) const MOST_GROUPS: usize = 100;

/// The groups of a node.
#[derive(Default)]
pub(super) struct Groups {
    own: BTreeMap<GroupId, OwnGroup>,
    /// All that outlive their owners, wherever they are.
    recorded: BTreeMap<GroupId, RecordedGroup>,
    /// Those of them that were ended here, and whose records may be there for a moment longer.
    ended: BTreeSet<GroupId>,
    /// How often it stood otherwise with a group.
    changes: watch::Sender<u64>,
}

/// A group that was created here.
#[derive(Debug, Clone)]
pub(crate) struct OwnGroup {
    pub(crate) tenant: TenantName,
    /// It ends with its driver.
    pub(crate) driver: DriverId,
    /// What people call it, if anything.
    pub(crate) name: Option<String>,
    pub(crate) created: Instant,
}

/// A group that has a record, as that says.
pub(crate) struct RecordedGroup {
    pub(crate) record: GroupRecord,
    /// Since when this node knows of it, or of its takeover.
    pub(crate) since: Instant,
}

impl Ledger {
    /// Begins to reserve a group.
    pub(crate) fn create_group(&mut self, id: GroupId, spec: GroupSpec, group: OwnGroup) -> Todo {
        let tenant = group.tenant.clone();
        self.groups.own.insert(id, group);
        self.happens(Event::CreateGroup {
            group: id,
            spec,
            tenant,
        })
    }

    /// This node adopts a group of another owner, or of its own earlier incarnation.
    pub(crate) fn take_group_over(
        &mut self,
        id: GroupId,
        record: GroupRecord,
        group: OwnGroup,
    ) -> Todo {
        self.groups.own.insert(id, group);
        self.groups.ended.remove(&id);
        self.happens(Event::TakeOverGroup {
            group: id,
            spec: record.spec,
            tenant: record.tenant,
            takeovers: record.takeovers,
        })
    }

    /// The control store has a record of a group, or none any more.
    pub(crate) fn group_news(&mut self, news: GroupNews) -> Todo {
        match news {
            GroupNews::Recorded(group, owner, record) => {
                let takeovers = record.takeovers;
                let recorded = RecordedGroup {
                    record: *record,
                    since: Instant::now(),
                };
                self.groups.recorded.insert(group, recorded);
                self.happens(Event::GroupRecorded {
                    group,
                    owner,
                    takeovers,
                })
            }
            GroupNews::Unrecorded(group, owner) => {
                self.groups.recorded.remove(&group);
                self.groups.ended.remove(&group);
                self.happens(Event::GroupUnrecorded { group, owner })
            }
        }
    }

    /// Groups that outlive their owners, but for those that were ended here just now.
    pub(crate) fn recorded_groups(&self) -> impl Iterator<Item = (GroupId, &RecordedGroup)> {
        let recorded = self.groups.recorded.iter();
        let recorded = recorded.filter(|(group, _)| !self.groups.ended.contains(group));
        recorded.map(|(group, recorded)| (*group, recorded))
    }

    /// Ends a group that was created here; another changes nothing.
    pub(crate) fn remove_group(&mut self, group: GroupId) -> Todo {
        if !self.groups.own.contains_key(&group) {
            return Todo::default();
        }
        if self.groups.recorded.contains_key(&group) {
            self.groups.ended.insert(group);
        }
        self.happens(Event::RemoveGroup(group))
    }

    /// Somebody here wants to know how it stands with a group, which may be another node's.
    pub(crate) fn want_group(&mut self, group: GroupId) -> Todo {
        self.happens(Event::WantGroup(group))
    }

    /// How it stands with a group, as far as is known here; how long it has been so is as of now.
    pub(crate) fn group(&mut self, group: &GroupId) -> Option<GroupView> {
        let now = self.now();
        self.scheduler.note(now, Event::Tick);
        self.scheduler.group(group)
    }

    /// The groups that were created here and have not ended, and how it stands with them now.
    pub(crate) fn group_views(&mut self) -> Vec<(GroupId, OwnGroup, GroupView)> {
        let now = self.now();
        self.scheduler.note(now, Event::Tick);
        let own = self.groups.own.iter();
        let views = own.filter_map(|(id, group)| {
            let view = self.scheduler.group(id)?;
            Some((*id, group.clone(), view))
        });
        views.collect()
    }

    /// A tenant is about to have something here.
    pub(crate) fn admit(&mut self, tenant: &TenantName) -> Result<(), TooManyTenants> {
        self.scheduler.admit(tenant)
    }

    /// Whether there is room for what an operator says of a tenant.
    pub(crate) fn make_room_for(&mut self, tenant: &TenantName) -> bool {
        self.scheduler.make_room_for(tenant)
    }

    /// Whether the owner of a group has been asked how it stands with it.
    pub(crate) fn is_group_asked_for(&self, group: &GroupId) -> bool {
        self.scheduler.is_group_asked_for(group)
    }

    /// The groups that were created here and have not ended.
    pub(crate) fn own_groups(&self) -> impl Iterator<Item = (&GroupId, &OwnGroup)> {
        self.groups.own.iter()
    }

    /// Changes when it stands otherwise with a group.
    pub(crate) fn group_changes(&self) -> watch::Receiver<u64> {
        self.groups.changes.subscribe()
    }

    /// It stands otherwise with a group.
    pub(super) fn group_changed(&mut self, group: GroupId) {
        if !self.scheduler.owns_group(&group) {
            // Nothing of it is held anywhere, or another node owns it.
            self.groups.own.remove(&group);
        }
        self.groups.changes.send_modify(|changes| *changes += 1);
    }
}
