//! What a running task can ask about itself.
//!
//! Owns the Rust face of `wasmrun:runtime/context` (see `wit/context.wit`, the one source). All
//! answers are fixed for the life of one attempt of a task, so a guest may keep them. In an actor a task
//! is the creation in `new`, and each call in its method. Outside
//! WebAssembly there is no node: a first attempt on the node `local` answers, that holds nothing.

use std::fmt;

#[cfg(target_family = "wasm")]
use crate::host::context as host;

/// The task's id, as `wasmrun` prints it.
#[cfg(target_family = "wasm")]
pub fn task_id() -> String {
    host::task_id()
}

/// The task's id, as `wasmrun` prints it; `local` outside any task.
#[cfg(not(target_family = "wasm"))]
pub fn task_id() -> String {
    crate::host::running_task().unwrap_or_else(|| LOCAL.to_owned())
}

/// Which attempt of the task this is; the first is 0. A call is made again only with `call_retries`.
pub fn attempt() -> u32 {
    #[cfg(target_family = "wasm")]
    return host::attempt();
    #[cfg(not(target_family = "wasm"))]
    0
}

/// The name of the node that runs the task.
pub fn node() -> String {
    #[cfg(target_family = "wasm")]
    return host::node();
    #[cfg(not(target_family = "wasm"))]
    LOCAL.to_owned()
}

/// The task's index in its array; `None` unless it was submitted with `--array`.
pub fn array_index() -> Option<u64> {
    #[cfg(target_family = "wasm")]
    return host::array_index();
    #[cfg(not(target_family = "wasm"))]
    None
}

/// The span of this attempt, as W3C's `traceparent` has it: pass it on with what the task asks of others. It is in the trace that
/// the client has named, else in that of the task's job; `None` outside any task.
pub fn trace_parent() -> Option<String> {
    #[cfg(target_family = "wasm")]
    return host::trace_parent();
    #[cfg(not(target_family = "wasm"))]
    None
}

/// The `tracestate` that the client has given along with its trace.
pub fn trace_state() -> Option<String> {
    #[cfg(target_family = "wasm")]
    return host::trace_state();
    #[cfg(not(target_family = "wasm"))]
    None
}

/// What the task holds while it runs, in order of name; in a method, what its actor holds.
pub fn resources() -> Vec<Allocation> {
    #[cfg(target_family = "wasm")]
    return host::resources()
        .into_iter()
        .map(Allocation::from)
        .collect();
    #[cfg(not(target_family = "wasm"))]
    Vec::new()
}

/// The name of a node that is no node.
#[cfg(not(target_family = "wasm"))]
const LOCAL: &str = "local";

/// What the task holds of one resource; `None` if it holds nothing of it.
pub fn resource(name: &str) -> Option<Allocation> {
    resources().into_iter().find(|held| held.name == name)
}

/// What the task holds of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The resource's name: `CPU`, `GPU`, `memory` (in bytes) or a name of the operator's.
    pub name: String,
    /// How much in all.
    pub amount: Amount,
    /// Which units, in order of id. Empty for resources without ids, such as `memory`.
    pub units: Vec<UnitShare>,
}

/// A share of one unit of a resource, for example half of GPU 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitShare {
    /// Which unit: 0 up to the node's capacity less one.
    pub id: u32,
    /// How much of it, at most [`Amount::ONE`].
    pub amount: Amount,
}

/// An exact amount of a resource, counted in 1/10,000 of a unit.
///
/// Prints as a decimal without trailing zeros: a quarter is `0.25`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(u64);

impl Amount {
    /// One whole unit.
    pub const ONE: Amount = Amount(10_000);

    /// An amount of so many 1/10,000 of a unit.
    pub const fn from_ten_thousandths(count: u64) -> Self {
        Amount(count)
    }

    /// The amount in 1/10,000 of a unit.
    pub const fn ten_thousandths(self) -> u64 {
        self.0
    }

    /// How many whole units there are, rounded down: bytes for `memory`.
    pub const fn whole_units(self) -> u64 {
        self.0 / Self::ONE.0
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = self.0 % Self::ONE.0;
        if fraction == 0 {
            return write!(f, "{}", self.whole_units());
        }
        let digits = format!("{fraction:04}");
        write!(f, "{}.{}", self.whole_units(), digits.trim_end_matches('0'))
    }
}

#[cfg(target_family = "wasm")]
impl From<host::Allocation> for Allocation {
    fn from(held: host::Allocation) -> Self {
        Allocation {
            name: held.name,
            amount: Amount(held.amount),
            units: held.units.into_iter().map(UnitShare::from).collect(),
        }
    }
}

#[cfg(target_family = "wasm")]
impl From<host::UnitShare> for UnitShare {
    fn from(share: host::UnitShare) -> Self {
        UnitShare {
            id: share.id,
            amount: Amount(share.amount),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_print_exactly() {
        for (count, text) in [
            (0, "0"),
            (1, "0.0001"),
            (2_500, "0.25"),
            (10_000, "1"),
            (15_010, "1.501"),
        ] {
            assert_eq!(Amount::from_ten_thousandths(count).to_string(), text);
        }
        assert_eq!(
            Amount::from_ten_thousandths(u64::MAX).to_string(),
            "1844674407370955.1615"
        );
    }

    #[test]
    fn a_byte_of_memory_is_a_whole_unit() {
        let memory = Amount::from_ten_thousandths((64 << 20) * 10_000);
        assert_eq!(memory.whole_units(), 64 << 20);
    }
}
