//! What it costs to remember how tasks ended.

use std::sync::Arc;
use std::time::Instant;

use wasmrun_engine::{Entry, Grants};
use wasmrun_node::{Call, Job, Node, NodeConfig, Overrides, wait_all};

use crate::bench::Sample;
use crate::bench::cases::{ASYNC_TASKS, Setting};
use crate::fail::Failure;
use crate::local;

impl Setting {
    /// As `tasks_async`, at a node that keeps a history, as those do that others can ask.
    pub(super) fn tasks_history(&self) -> Result<Sample, Failure> {
        let node = Node::start(NodeConfig {
            history_bytes: None,
            ..local::config(&self.options)?
        })?;
        let bytes = local::read_module(&self.module_path, &self.options)?;
        let module = node.load(&bytes)?;
        let entry = Entry::Function(module.find("noop")?);
        let overrides = Overrides::default();
        let job = Job::new("noop", &module, entry, &overrides, Grants::default())?;
        let (job, client) = (Arc::new(job), node.client());
        let tasks = self.count(ASYNC_TASKS);
        let run_all = || {
            let submitted = (0..tasks).map(|_| client.submit(&job, Call::default()));
            let reports = wait_all(submitted.collect::<Result<Vec<_>, _>>()?);
            let mut reports = reports.into_iter();
            reports.try_for_each(|report| report.result.map(drop))?;
            Ok::<_, Failure>(())
        };
        // What the node needs is there from now on, and its history is as long as it gets.
        run_all()?;
        let started = Instant::now();
        run_all()?;
        Ok(Sample::from(tasks as f64 / started.elapsed().as_secs_f64()))
    }
}
