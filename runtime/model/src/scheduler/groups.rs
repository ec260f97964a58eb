//! stub
use super::Scheduler;
use super::explain::Reason;
use crate::cluster::NodeIx;
use crate::group::{GroupKind, GroupMessage};
use crate::id::{GroupId, NodeId};
use crate::resource::{AcquireError, Allocation, Request};
use crate::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct GroupTable {}

impl GroupTable {
    pub(crate) fn can_acquire(&self, _: &GroupId, _: u32, _: &Request) -> bool {
        false
    }
    pub(crate) fn acquire(
        &mut self,
        _: &GroupId,
        _: u32,
        _: &Request,
    ) -> Result<Allocation, AcquireError> {
        panic!()
    }
    pub(crate) fn reacquire_cpu(
        &mut self,
        _: &GroupId,
        _: u32,
        _: &Request,
        _: &mut Allocation,
    ) -> Result<(), AcquireError> {
        panic!()
    }
    pub(crate) fn release_cpu(&mut self, _: &GroupId, _: u32, _: &mut Allocation) {
        panic!()
    }
    pub(crate) fn release(&mut self, _: &GroupId, _: u32, _: Allocation) {
        panic!()
    }
    pub(crate) fn spot(&self, _: &GroupId, _: Option<u32>, _: &Request) -> Option<(NodeIx, u32)> {
        None
    }
    pub(crate) fn whereabouts(
        &self,
        g: &GroupId,
        _: Option<u32>,
        _: &[Request],
    ) -> Result<Option<NodeIx>, Reason> {
        Err(Reason::NoGroup(*g))
    }
    pub(crate) fn is_ready(&self, _: &GroupId) -> bool {
        false
    }
    pub(crate) fn add_own(&mut self, _: NodeIx, _: NodeId) {}
    pub(crate) fn node_lost(&mut self, _: NodeIx, _: NodeId) -> Vec<Allocation> {
        vec![]
    }
    pub(crate) fn deadline(&self) -> Option<Instant> {
        None
    }
    pub(crate) fn set_changed(&mut self) {}
}
impl Scheduler {
    pub(super) fn pump_groups(&mut self) {}
    pub(super) fn time_groups(&mut self) {}
    pub(super) fn create_group(&mut self, _: GroupId, _: GroupKind, _: Vec<Request>) {}
    pub(super) fn remove_group(&mut self, _: GroupId) {}
    pub(super) fn group_message(&mut self, _: NodeId, _: GroupMessage) {}
}
