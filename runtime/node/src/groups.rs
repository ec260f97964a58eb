//! Placement groups, for drivers in this process.
//!
//! Owns the calls of a [`Client`]. Must not: keep groups, which is `guests/groups.rs`'s.

use std::time::Duration;

use wasmrun_model::fairness::TenantName;
use wasmrun_model::group::GroupSpec;
use wasmrun_model::id::GroupId;

use crate::client::Client;
use crate::guests::groups::{GROUP_NAME_CHARS as NAME_CHARS, GroupError, NotReady};

impl Client {
    /// Begins to reserve the bundles of a group, for tasks and actors of this tenant. It ends with this session.
    /// One that cannot be had now waits; see [`Client::group_ready`].
    ///
    /// # Errors
    /// When there are too many, or it can never be had and nobody could help.
    pub fn create_group(
        &self,
        spec: GroupSpec,
        tenant: &TenantName,
        name: Option<String>,
    ) -> Result<GroupId, GroupError> {
        if let Some(name) = &name {
            let chars = name.chars().count();
            let is_fit = |c: char| !c.is_whitespace() && !c.is_control();
            if !(1..=NAME_CHARS).contains(&chars) || !name.chars().all(is_fit) {
                let shown = name.chars().take(80).collect();
                return Err(GroupError::Name(shown));
            }
        }
        self.shared()
            .create_group(self.next_group(), self.driver(), spec, tenant, name)
    }

    /// Ends a group that was created at this node. What runs in it is killed.
    pub fn remove_group(&self, group: &GroupId) {
        self.shared().remove_groups(&[*group]);
    }

    /// Waits until tasks can run in all bundles of a group, or time is up. To be awaited where tokio's timers
    /// run.
    ///
    /// # Errors
    /// When there is no such group (any more), or time is up.
    pub async fn group_ready(
        &self,
        group: GroupId,
        timeout: Option<Duration>,
    ) -> Result<(), NotReady> {
        let shared = self.shared();
        match timeout {
            None => shared.group_ready(group).await,
            Some(limit) => match tokio::time::timeout(limit, shared.group_ready(group)).await {
                Ok(ready) => ready,
                Err(_) => Err(NotReady::TimedOut {
                    group,
                    why: shared.why_group_waits(&group),
                }),
            },
        }
    }
}
