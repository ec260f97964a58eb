//! Placement groups that are created at this node.
//!
//! Owns their creation, limits and ends. The node where a group is created owns it.
//! Must not: reserve anything, or hold the ledger's lock while anything else is called.
//!
//! Invariants: a group ends with the driver that created it, or with this node, unless the control store has a record
//! of it: then another node takes it over. What is never possible here is
//! refused where no other node could help.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wasmrun_model::fairness::{BeyondQuota, TenantName, TooManyTenants};
use wasmrun_model::group::{GroupSpec, GroupState};
use wasmrun_model::id::{DriverId, GroupId};

use crate::guests::shared::Shared;
use crate::ledger::{GroupRecord, Ledger, MOST_GROUPS, OwnGroup, Todo};

/// How often the owner of a group is asked for its state, while a client waits for it to be ready.
const ASK: Duration = Duration::from_secs(1);

/// How often a node without others looks at the time while it has groups.
const TICK: Duration = Duration::from_millis(100);

/// The longest name of a group, in characters.
pub(crate) const GROUP_NAME_CHARS: usize = 128;

/// Why there is no such group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The tenant has too many.
    #[error(
        "tenant '{tenant}' has {most} placement groups at this node, and may have no more; remove some: \
         `wasmrun group list`"
    )]
    TooMany {
        /// The tenant.
        tenant: TenantName,
        /// How many it may have.
        most: usize,
    },
    /// What people call it cannot be a name.
    #[error(
        "'{0}' is no name for a placement group: use 1 to {GROUP_NAME_CHARS} characters without spaces"
    )]
    Name(String),
    /// It is of a tenant that would be one too many.
    #[error(transparent)]
    Tenants(#[from] TooManyTenants),
    /// Its tenant may never have as much at once.
    #[error(transparent)]
    Quota(#[from] BeyondQuota),
    /// This node can never reserve it, and there are no others.
    #[error(
        "this node can never reserve the placement group: {0}; ask for less, or give the node more"
    )]
    Impossible(String),
    /// The node is stopping.
    #[error("the node is stopping and takes no more placement groups")]
    Stopping,
}

/// Why a group is not ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// There is none (any more).
    #[error("there is no placement group {0} (any more); create it again")]
    Gone(GroupId),
    /// Time is up.
    #[error("timed out: placement group {group} is not ready: {why}")]
    TimedOut {
        /// The group.
        group: GroupId,
        /// What it waits for.
        why: String,
    },
}

/// The state of a group, for one that waits until it is ready.
enum Stands {
    Ready,
    Open,
    Gone,
}

/// Whether a tenant may have one more group here.
fn may_create(
    ledger: &mut Ledger,
    tenant: &TenantName,
    spec: &GroupSpec,
) -> Result<(), GroupError> {
    if ledger.is_stopping() {
        return Err(GroupError::Stopping);
    }
    let of_tenant = ledger.own_groups().filter(|(_, it)| it.tenant == *tenant);
    if of_tenant.count() >= MOST_GROUPS {
        return Err(GroupError::TooMany {
            tenant: tenant.clone(),
            most: MOST_GROUPS,
        });
    }
    if let Some(why) = ledger.scheduler().group_beyond_quota(tenant, spec) {
        return Err(why.into());
    }
    Ok(ledger.admit(tenant)?)
}

impl Shared {
    pub(crate) fn create_group(
        self: &Arc<Self>,
        id: GroupId,
        driver: DriverId,
        spec: GroupSpec,
        tenant: &TenantName,
        name: Option<String>,
    ) -> Result<GroupId, GroupError> {
        let group = OwnGroup {
            tenant: tenant.clone(),
            driver,
            name,
            created: Instant::now(),
        };
        // How it stands, where nobody else can come to help.
        let alone = self.tell_and(|ledger| match may_create(ledger, tenant, &spec) {
            Ok(()) => {
                let todo = ledger.create_group(id, spec, group);
                let alone = (!ledger.is_clustered()).then(|| ledger.group(&id));
                (todo, Ok(alone))
            }
            Err(error) => (Todo::default(), Err(error)),
        })?;
        if let Some(view) = alone {
            if let Some(view) = view.filter(|view| view.is_impossible) {
                self.remove_groups(&[id]);
                return Err(GroupError::Impossible(view.why.unwrap_or_default()));
            }
            self.tick_for_groups();
        }
        tracing::debug!(group = %id, %tenant, "a placement group was created");
        Ok(id)
    }

    /// Tells the scheduler the time, as long as there are groups. In a cluster the exchange does.
    fn tick_for_groups(self: &Arc<Self>) {
        if self.is_ticking.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::downgrade(self);
        // It ends with the last group, or with the node.
        self.control.spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                let Some(shared) = this.upgrade() else {
                    return;
                };
                let is_over = shared.tell_and(|ledger| {
                    let is_over = ledger.own_groups().next().is_none();
                    if is_over {
                        // Under the lock: the next group that is created starts another timer.
                        shared.is_ticking.store(false, Ordering::Release);
                        return (Todo::default(), true);
                    }
                    (ledger.tick(), false)
                });
                if is_over {
                    return;
                }
            }
        });
    }

    /// This node adopts a group of another node, or of an earlier incarnation of its own.
    pub(crate) fn take_group_over(
        self: &Arc<Self>,
        id: GroupId,
        record: GroupRecord,
        driver: DriverId,
    ) {
        let group = OwnGroup {
            tenant: record.tenant.clone(),
            driver,
            name: record.name.clone(),
            created: Instant::now(),
        };
        self.tell(|ledger| ledger.take_group_over(id, record, group));
    }

    /// Ends groups that were created here.
    pub(crate) fn remove_groups(self: &Arc<Self>, groups: &[GroupId]) {
        for group in groups {
            self.tell(|ledger| ledger.remove_group(*group));
        }
    }

    /// Ends the groups of a driver, but for those that have a record and will be adopted.
    pub(crate) fn remove_groups_of(self: &Arc<Self>, driver: DriverId) {
        let of_driver: Vec<GroupId> = self.ask(|ledger| {
            let of_driver = ledger.own_groups().filter(|(group, it)| {
                it.driver == driver && ledger.scheduler().recorded_owner(group).is_none()
            });
            of_driver.map(|(group, _)| *group).collect()
        });
        self.remove_groups(&of_driver);
    }

    pub(crate) async fn group_ready(self: &Arc<Self>, group: GroupId) -> Result<(), NotReady> {
        let mut changes = self.ask(|ledger| ledger.group_changes());
        loop {
            // Each time anew: its owner's news may have been lost.
            self.tell(|ledger| ledger.want_group(group));
            let asked = Instant::now();
            while asked.elapsed() < ASK {
                changes.mark_unchanged();
                match self.group_stands(&group) {
                    Stands::Ready => return Ok(()),
                    Stands::Gone => return Err(NotReady::Gone(group)),
                    Stands::Open => {}
                }
                let changed = changes.changed();
                if let Ok(Err(_)) = tokio::time::timeout(ASK, changed).await {
                    // The node is gone.
                    return Err(NotReady::Gone(group));
                }
            }
        }
    }

    fn group_stands(&self, group: &GroupId) -> Stands {
        self.ask(|ledger| match ledger.group(group).map(|view| view.state) {
            Some(GroupState::Ready) => Stands::Ready,
            Some(GroupState::Removing | GroupState::Removed) => Stands::Gone,
            None if !ledger.is_group_asked_for(group) => Stands::Gone,
            Some(GroupState::Pending | GroupState::Preparing | GroupState::Committing) | None => {
                Stands::Open
            }
        })
    }

    pub(crate) fn why_group_waits(&self, group: &GroupId) -> String {
        let view = self.ask(|ledger| ledger.group(group));
        let why = view.and_then(|view| view.why);
        why.unwrap_or_else(|| "its owner has not said yet how it stands with it".to_owned())
    }
}
