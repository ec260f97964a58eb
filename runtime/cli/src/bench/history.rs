//! What it costs to remember how tasks ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmrun_engine::{Entry, Grants};
use wasmrun_node::{Call, Client, Job, Node, NodeConfig, Overrides, wait_all};

use crate::bench::Sample;
use crate::bench::cases::{ASYNC_TASKS, Setting};
use crate::fail::Failure;
use crate::local;

/// How many times the two nodes take turns in a sample.
const TURNS: usize = 8;

impl Setting {
    /// As `tasks_async`, at a node that keeps a history, as those do that others can ask, and at one that keeps none, in
    /// short turns, since the machine drifts: the speed of the first by that of the second.
    pub(super) fn tasks_history(&self) -> Result<Sample, Failure> {
        let tasks = self.count(ASYNC_TASKS) / TURNS;
        let nodes = [Some(0), None].map(|history_bytes| Ready::start(self, history_bytes));
        let [without, with] = nodes;
        let (without, with) = (without?, with?);
        // What the nodes need is there from now on, and the history is as long as it gets.
        without.run(self.count(ASYNC_TASKS))?;
        with.run(self.count(ASYNC_TASKS))?;
        let mut took = [Duration::ZERO; 2];
        for turn in 0..TURNS {
            let mut both = [(0, &without), (1, &with)];
            both.rotate_left(turn % 2);
            for (at, node) in both {
                took[at] += node.run(tasks)?;
            }
        }
        Ok(Sample::from(took[0].as_secs_f64() / took[1].as_secs_f64()))
    }
}

/// A node and what it is to run.
struct Ready {
    client: Client,
    job: Arc<Job>,
    _node: Node,
}

impl Ready {
    fn start(setting: &Setting, history_bytes: Option<u64>) -> Result<Self, Failure> {
        let node = Node::start(NodeConfig {
            history_bytes,
            ..local::config(&setting.options)?
        })?;
        let bytes = local::read_module(&setting.module_path, &setting.options)?;
        let module = node.load(&bytes)?;
        let entry = Entry::Function(module.find("noop")?);
        let overrides = Overrides::default();
        let job = Job::new("noop", &module, entry, &overrides, Grants::default())?;
        Ok(Self {
            client: node.client(),
            job: Arc::new(job),
            _node: node,
        })
    }

    fn run(&self, tasks: usize) -> Result<Duration, Failure> {
        let started = Instant::now();
        let submitted = (0..tasks).map(|_| self.client.submit(&self.job, Call::default()));
        let reports = wait_all(submitted.collect::<Result<Vec<_>, _>>()?);
        let mut reports = reports.into_iter();
        reports.try_for_each(|report| report.result.map(drop))?;
        Ok(started.elapsed())
    }
}
