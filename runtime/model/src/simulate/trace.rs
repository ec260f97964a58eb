//! The trace: one line of JSON for each thing that happens to a task.
//!
//! Owns the events and the exact bytes of their lines. Must not: know the scheduler, or keep what
//! was written.
//!
//! Invariant: a line has the fields `t_ms`, `event`, `task`, then those of the event, always in
//! this order and without spaces, so equal runs are equal texts. A reader should still take them
//! in any order.
//!
//! A run of a million tasks writes some three million lines, so a line is appended to a text that
//! the caller keeps, without anything allocated for it.

use std::collections::BTreeMap;

use super::scenario::TaskLabel;
use crate::resource::{Allocation, Amount, Holding, ResourceId, ResourceName};

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
    /// Its node was removed while it ran. It waits again.
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
            Self::Finish => "finish",
            Self::Infeasible { .. } => "infeasible",
            Self::Unschedulable { .. } => "unschedulable",
            Self::Retry { .. } => "retry",
        }
    }
}

impl TraceLine<'_> {
    /// Appends the line, with the newline after it.
    pub fn write_to(&self, out: &mut String) {
        out.push_str("{\"t_ms\":");
        push_number(out, self.t_ms);
        out.push_str(",\"event\":\"");
        out.push_str(self.event.name());
        // Names of tasks need no escapes: they were checked.
        out.push_str("\",\"task\":\"");
        out.push_str(self.task.entry);
        out.push('-');
        push_number(out, self.task.index.into());
        out.push('"');
        match self.event {
            TraceEvent::Submit | TraceEvent::Finish => {}
            TraceEvent::Start { node, ids } => {
                push_field(out, "node", node);
                out.push_str(",\"ids\":{");
                ids.push_to(out);
                out.push('}');
            }
            TraceEvent::Infeasible { reason } | TraceEvent::Unschedulable { reason } => {
                push_field(out, "reason", reason);
            }
            TraceEvent::Retry { node, attempt } => {
                push_field(out, "node", node);
                out.push_str(",\"attempt\":");
                push_number(out, attempt.into());
            }
        }
        out.push_str("}\n");
    }
}

impl HeldIds<'_> {
    fn push_to(self, out: &mut String) {
        let mut is_first = true;
        match self {
            Self::Allocation(allocation) => {
                for (name, part) in allocation.iter() {
                    push_ids(out, name, part.ids(), &mut is_first);
                }
            }
            Self::Holdings(holdings) => {
                for (name, holding) in holdings {
                    push_ids(out, name, holding.ids.iter().copied(), &mut is_first);
                }
            }
        }
    }
}

/// The ids of one resource, if it has any: `"GPU":[[0,"0.5"]]`.
fn push_ids(
    out: &mut String,
    name: &ResourceName,
    ids: impl Iterator<Item = (ResourceId, Amount)>,
    is_first: &mut bool,
) {
    let mut ids = ids.peekable();
    if ids.peek().is_none() {
        return;
    }
    if !std::mem::take(is_first) {
        out.push(',');
    }
    // Names of resources need no escapes.
    out.push('"');
    out.push_str(name.as_str());
    out.push_str("\":[");
    for (at, (id, amount)) in ids.enumerate() {
        out.push_str(if at == 0 { "[" } else { ",[" });
        push_number(out, id.get().into());
        out.push_str(",\"");
        push_amount(out, amount);
        out.push_str("\"]");
    }
    out.push(']');
}

fn push_amount(out: &mut String, amount: Amount) {
    push_number(out, amount.whole_units());
    let mut rest = amount.fraction().steps();
    if rest > 0 {
        out.push('.');
        let mut place = Amount::STEPS_PER_UNIT / 10;
        while rest > 0 {
            out.push(char::from(b'0' + (rest / place) as u8));
            rest %= place;
            place /= 10;
        }
    }
}

/// Appends a whole number. Formatting takes several times as long.
pub(super) fn push_number(out: &mut String, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.push_str(std::str::from_utf8(&digits[start..]).expect("digits are ASCII"));
}

fn push_field(out: &mut String, field: &str, text: &str) {
    out.push_str(",\"");
    out.push_str(field);
    out.push_str("\":");
    push_text(out, text);
}

/// Appends a text as a JSON string.
pub(super) fn push_text(out: &mut String, text: &str) {
    let needs_escape = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    if !text.bytes().any(needs_escape) {
        out.push('"');
        out.push_str(text);
        out.push('"');
        return;
    }
    out.push_str(&serde_json::to_string(text).expect("a text is JSON"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{NodeResources, Pool, Request, ResourceSet};

    fn line(t_ms: u64, event: TraceEvent<'_>) -> String {
        let task = TaskLabel {
            entry: "a",
            index: 10,
        };
        let mut out = String::new();
        TraceLine { t_ms, task, event }.write_to(&mut out);
        out
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
        let mut node = NodeResources::new();
        let amounts: ResourceSet =
            serde_json::from_str(r#"{"CPU": 4, "GPU": 1, "memory": "1GiB", "tpu": 2}"#).unwrap();
        for (name, amount) in amounts.iter() {
            let pool = Pool::for_name(name, amount).unwrap();
            node.add(name.clone(), pool).unwrap();
        }
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

    #[test]
    fn numbers_and_amounts_are_those_of_display() {
        for number in [0, 9, 10, 1_234_567_890, u64::MAX] {
            let mut out = String::new();
            push_number(&mut out, number);
            assert_eq!(out, number.to_string());
            out.clear();
            push_amount(&mut out, Amount::from_steps(number));
            assert_eq!(out, Amount::from_steps(number).to_string());
        }
    }
}
