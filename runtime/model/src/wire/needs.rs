//! What each request needs: a role, and a place.
//!
//! Owns the one table of that. Must not: know who asks. Whether tenants are the client's is checked where things are looked
//! up; here are those that a request names itself.

use super::list::{List, What};
use super::message::Request;
use super::work::Grants;
use crate::access::Role::{self, Operator, Submitter, Viewer};
use crate::fairness::TenantName;

/// From where a request may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// From any machine.
    Anywhere,
    /// From the machine of the node.
    Machine,
    /// From the user that the node runs as, on its machine: with the rights of that user files are opened.
    Owner,
}

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// At least this role.
    pub role: Role,
    /// At least this near.
    pub place: Place,
}

impl Request {
    /// What it needs.
    pub fn needs(&self) -> Needs {
        let (role, place) = match self {
            // Looks.
            Self::Get { .. }
            | Self::GetAll { .. }
            | Self::Wait { .. }
            | Self::FindObject(_)
            | Self::Release(_)
            | Self::ReleaseActor(_)
            | Self::Unpin(_)
            | Self::Describe(_)
            | Self::Explain(_)
            | Self::Logs(_)
            | Self::RanAt(_)
            | Self::GroupReady { .. }
            | Self::Status
            // Their names.
            | Self::Secrets
            | Self::WhoAmI => (Viewer, Place::Anywhere),
            Self::List(list) => (list.what.role(), Place::Anywhere),
            Self::Scheduling(choices) => match choices.is_empty() {
                true => (Viewer, Place::Anywhere),
                false => (Operator, Place::Anywhere),
            },
            // Works.
            Self::Module(_)
            | Self::Upload { .. }
            | Self::Chunk(_)
            | Self::Put(_)
            | Self::Staged { .. }
            | Self::Input { .. }
            | Self::InputFailed { .. }
            | Self::InputWanted(_)
            | Self::FindActor(_)
            | Self::Actor(_)
            | Self::ActorReady { .. }
            | Self::Call(_)
            | Self::Kill(_)
            | Self::KillActor(_)
            | Self::Cancel(_)
            | Self::CancelMine
            | Self::CancelObject(_)
            | Self::Delete(_)
            | Self::CreateGroup(_)
            | Self::RemoveGroup(_)
            // With its environment, in which there may be secrets.
            | Self::Given(_)
            | Self::SetSecret { .. }
            | Self::RemoveSecret(_)
            | Self::StopService { .. } => (Submitter, Place::Anywhere),
            Self::Submit(submit)
            | Self::SubmitOnce { submit, .. }
            | Self::SubmitAll { submit, .. } => (Submitter, submit.grants.place()),
            Self::Create(create) => (Submitter, create.grants.place()),
            Self::Serve(serve) => (Submitter, serve.grants.place()),
            // Runs the cluster.
            Self::CreateToken { .. }
            | Self::CreateClientToken(_)
            | Self::RevokeToken(_)
            | Self::RevokeClient(_)
            | Self::Drain { .. }
            | Self::RemoveNode { .. }
            | Self::ChangeTenant(_)
            | Self::RemoveTenant(_)
            | Self::SetResource(_)
            | Self::SchedulerState
            | Self::RotateSecrets => (Operator, Place::Anywhere),
            // It can be undone on the machine alone, or acts as the node's user.
            Self::Stop { .. } | Self::Dashboard => (Operator, Place::Machine),
        };
        Needs { role, place }
    }

    /// What it would have a guest reach.
    pub fn grants(&self) -> Option<&Grants> {
        match self {
            Self::Submit(submit)
            | Self::SubmitOnce { submit, .. }
            | Self::SubmitAll { submit, .. } => Some(&submit.grants),
            Self::Create(create) => Some(&create.grants),
            Self::Serve(serve) => Some(&serve.grants),
            _ => None,
        }
    }

    /// The tenant that it names, if it names one that is not the session's.
    pub fn tenant(&self) -> Option<&TenantName> {
        match self {
            Self::Submit(submit)
            | Self::SubmitOnce { submit, .. }
            | Self::SubmitAll { submit, .. } => submit.terms.tenant.as_ref(),
            Self::Create(create) => create.terms.tenant.as_ref(),
            Self::Serve(serve) => serve.terms.tenant.as_ref(),
            Self::ChangeTenant(change) => Some(&change.tenant),
            Self::RemoveTenant(tenant) => Some(tenant),
            _ => None,
        }
    }
}

impl List {
    /// The tenant that it is filtered by, as text.
    pub fn tenant(&self) -> Option<&str> {
        let field = match self.what {
            What::Tenants | What::Due => "name",
            _ => "tenant",
        };
        let found = self.filters.iter().find(|(name, _)| name == field);
        found.map(|(_, tenant)| tenant.as_str())
    }
}

impl What {
    const fn role(self) -> Role {
        match self {
            Self::Tasks
            | Self::Actors
            | Self::Objects
            | Self::Jobs
            | Self::Modules
            | Self::Nodes
            | Self::Tenants
            | Self::Members
            | Self::Groups
            | Self::Due
            | Self::Attempts
            | Self::Services => Viewer,
            Self::Tokens | Self::Access | Self::Audit => Operator,
        }
    }
}

impl Grants {
    fn place(&self) -> Place {
        match self.dirs.is_empty() {
            true => Place::Anywhere,
            false => Place::Owner,
        }
    }
}
