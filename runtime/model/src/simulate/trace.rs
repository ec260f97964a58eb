//! The trace: one line of JSON for each thing that happens to a task.
//!
//! Owns the events and the exact bytes of their lines. Must not: know the scheduler, or keep what
//! was written.
//!
//! Invariant: a line has the fields `t_ms`, `event`, `task`, then those of the event, always in
//! this order and without spaces, so equal runs are equal texts. A reader should still take them
//! in any order.
//!
//! A run of a million tasks writes some three million lines, so a line is appended to bytes that the
//! caller keeps. Only the texts of amounts are allocated for it.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::scenario::TaskLabel;
use crate::resource::{Allocation, Holding, PoolAllocation, ResourceName};

/// One line of the trace.
#[derive(Debug, Clone, Copy)]
pub struct TraceLine<'a> {
    /// The virtual time, in milliseconds.
    pub t_ms: u64,
    /// The task that it happens to.
    pub task: TaskLabel<'a>,
    /// What happens.
    pub event: TraceEvent<'a>,
}

/// What happens to a task.
#[derive(Debug, Clone, Copy)]
pub enum TraceEvent<'a> {
    /// It was submitted.
    Submit,
    /// It starts to run, for the first time or again.
    Start {
        /// The name of the node.
        node: &'a str,
        /// Which units it holds there.
        ids: HeldIds<'a>,
    },
    /// It is paused: another tenant is due its CPU.
    Pause,
    /// It goes on after a pause.
    Resume,
    /// It is stopped, and tried again: another tenant is due what it held.
    Preempt,
    /// It has run to its end.
    Finish,
    /// No node that is there could ever serve it. It waits for one that can.
    Infeasible {
        /// Why not, as text for people.
        reason: &'a str,
    },
    /// It will not run (any more), whatever joins: the end of it.
    Unschedulable {
        /// Why not, as text for people.
        reason: &'a str,
    },
    /// Its node was removed while it ran, or it was stopped for another tenant. It waits again.
    Retry {
        /// The name of the node.
        node: &'a str,
        /// The number of the attempt that begins with it: 1 for the first retry.
        attempt: u32,
    },
}

/// Which units a task holds, from either form in which a scheduler tells it.
#[derive(Debug, Clone, Copy)]
pub enum HeldIds<'a> {
    /// What it holds.
    Allocation(&'a Allocation),
    /// The description of what it holds.
    Holdings(&'a BTreeMap<ResourceName, Holding>),
}

impl TraceEvent<'_> {
    /// The name of the event in the trace.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Start { .. } => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Preempt => "preempt",
            Self::Finish => "finish",
            Self::Infeasible { .. } => "infeasible",
            Self::Unschedulable { .. } => "unschedulable",
            Self::Retry { .. } => "retry",
        }
    }
}

impl TraceLine<'_> {
    /// Appends the line, with the newline after it.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(&mut *out, self).expect("a line is JSON");
        out.push(b'\n');
    }
}

impl Serialize for TraceLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("t_ms", &self.t_ms)?;
        line.serialize_entry("event", self.event.name())?;
        line.serialize_entry("task", &format_args!("{}", self.task))?;
        match &self.event {
            TraceEvent::Submit
            | TraceEvent::Pause
            | TraceEvent::Resume
            | TraceEvent::Preempt
            | TraceEvent::Finish => {}
            TraceEvent::Start { node, ids } => {
                line.serialize_entry("node", node)?;
                line.serialize_entry("ids", ids)?;
            }
            TraceEvent::Infeasible { reason } | TraceEvent::Unschedulable { reason } => {
                line.serialize_entry("reason", reason)?;
            }
            TraceEvent::Retry { node, attempt } => {
                line.serialize_entry("node", node)?;
                line.serialize_entry("attempt", attempt)?;
            }
        }
        line.end()
    }
}

/// The ids of each resource that has any: `{"GPU":[[0,"0.5"]]}`.
impl Serialize for HeldIds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Allocation(allocation) => {
                let parts = allocation.iter().map(|(name, part)| (name, Ids(part)));
                serializer.collect_map(parts.filter(|(_, ids)| ids.0.ids().next().is_some()))
            }
            Self::Holdings(holdings) => {
                let parts = holdings.iter().map(|(name, it)| (name, &it.ids));
                serializer.collect_map(parts.filter(|(_, ids)| !ids.is_empty()))
            }
        }
    }
}

struct Ids<'a>(&'a PoolAllocation);

impl Serialize for Ids<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.ids())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{NodeResources, Request};

    fn line(t_ms: u64, event: TraceEvent<'_>) -> String {
        let task = TaskLabel {
            entry: "a",
            index: 10,
        };
        let mut out = Vec::new();
        TraceLine { t_ms, task, event }.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn request(json: &str) -> Request {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn every_event_has_its_line() {
        let nothing = Allocation::nothing();
        let ids = HeldIds::Allocation(&nothing);
        let cases = [
            (
                TraceEvent::Submit,
                r#"{"t_ms":7,"event":"submit","task":"a-10"}"#,
            ),
            (
                TraceEvent::Start { node: "n1", ids },
                r#"{"t_ms":7,"event":"start","task":"a-10","node":"n1","ids":{}}"#,
            ),
            (
                TraceEvent::Pause,
                r#"{"t_ms":7,"event":"pause","task":"a-10"}"#,
            ),
            (
                TraceEvent::Resume,
                r#"{"t_ms":7,"event":"resume","task":"a-10"}"#,
            ),
            (
                TraceEvent::Preempt,
                r#"{"t_ms":7,"event":"preempt","task":"a-10"}"#,
            ),
            (
                TraceEvent::Finish,
                r#"{"t_ms":7,"event":"finish","task":"a-10"}"#,
            ),
            (
                TraceEvent::Infeasible {
                    reason: "too \"big\"\n",
                },
                r#"{"t_ms":7,"event":"infeasible","task":"a-10","reason":"too \"big\"\n"}"#,
            ),
            (
                TraceEvent::Unschedulable {
                    reason: "n1 is gone",
                },
                r#"{"t_ms":7,"event":"unschedulable","task":"a-10","reason":"n1 is gone"}"#,
            ),
            (
                TraceEvent::Retry {
                    node: "n1",
                    attempt: 2,
                },
                r#"{"t_ms":7,"event":"retry","task":"a-10","node":"n1","attempt":2}"#,
            ),
        ];
        for (event, expected) in cases {
            assert_eq!(line(7, event), format!("{expected}\n"));
        }
    }

    #[test]
    fn ids_are_those_of_the_allocation_in_both_forms() {
        let amounts = r#"{"CPU": 4, "GPU": 1, "memory": "1GiB", "tpu": 2}"#;
        let mut node = NodeResources::of(&serde_json::from_str(amounts).unwrap()).unwrap();
        let wanted = request(r#"{"CPU": 2, "GPU": "0.25", "memory": "1MiB", "tpu": "0.0301"}"#);
        let held = node.acquire(&wanted).unwrap();
        let expected = "{\"t_ms\":0,\"event\":\"start\",\"task\":\"a-10\",\"node\":\"n1\",\"ids\":\
            {\"CPU\":[[0,\"1\"],[1,\"1\"]],\"GPU\":[[0,\"0.25\"]],\"tpu\":[[0,\"0.0301\"]]}}\n";
        let node_name = "n1";
        let start = |ids| TraceEvent::Start {
            node: node_name,
            ids,
        };
        assert_eq!(line(0, start(HeldIds::Allocation(&held))), expected);
        let holdings = held.holdings();
        assert_eq!(line(0, start(HeldIds::Holdings(&holdings))), expected);
        node.release(held);
    }
}
