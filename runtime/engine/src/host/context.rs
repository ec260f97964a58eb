//! `wasmrun:runtime/context`: what a task can learn about itself.

use wasmrun_model::trace::TraceContext;

use super::bindings::wasmrun::runtime::context::{Allocation, Host, UnitShare};
use crate::state::TaskState;

impl Host for TaskState {
    fn task_id(&mut self) -> wasmtime::Result<String> {
        Ok(self.context.task.to_string())
    }

    fn attempt(&mut self) -> wasmtime::Result<u32> {
        Ok(self.context.attempt)
    }

    fn node(&mut self) -> wasmtime::Result<String> {
        Ok(self.context.node.to_string())
    }

    fn array_index(&mut self) -> wasmtime::Result<Option<u64>> {
        Ok(self.context.array_index)
    }

    fn trace_parent(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(self.context.span.map(|span| span.to_string()))
    }

    fn trace_state(&mut self) -> wasmtime::Result<Option<String>> {
        let trace = self.context.trace.as_ref();
        Ok(trace.and_then(TraceContext::state).map(str::to_owned))
    }

    fn resources(&mut self) -> wasmtime::Result<Vec<Allocation>> {
        let unit = |&(id, amount): &(u32, u64)| UnitShare { id, amount };
        let mut held: Vec<_> = self.holds().iter().collect();
        held.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        let held = held.into_iter();
        Ok(held
            .map(|held| Allocation {
                name: held.name.to_string(),
                amount: held.amount,
                units: held.units.iter().map(unit).collect(),
            })
            .collect())
    }
}
