//! The limit of what the node can do: the same sandboxes, straight on wasmtime.
//!
//! `wasmrun bench` compares tasks with this: a loop that makes a fresh instance with the same
//! settings, WASI context and limits, calls a function and drops everything. No
//! queue, no resources, no ids, no results.

use std::pin::pin;
use std::sync::Arc;

use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::TaskId;
use wasmrun_model::value::{Encoded, EncodedRef};

use crate::Engine;
use crate::input::Input;
use crate::limits::Limits;
use crate::module::{FunctionIndex, Module};
use crate::run::Sandbox;
use crate::services::{Alone, Services};
use crate::state::{Grants, Setup, TaskContext};
use crate::stdio::TaskOutput;

impl Engine {
    /// Calls a function with the same arguments `count` times, in a fresh sandbox each.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn call_raw(
        &self,
        module: &Module,
        function: FunctionIndex,
        values: &[Encoded],
        count: u64,
    ) -> Result<(), TaskError> {
        let (grants, limits) = (Grants::default(), Limits::default());
        let context = Arc::new(TaskContext {
            task: TaskId::from_bytes([0; 16]),
            attempt: 0,
            tenant: TenantName::default(),
            node: "raw".into(),
            array_index: None,
            span: None,
            trace: None,
            resources: Vec::new(),
        });
        let output = TaskOutput::new(limits.output, None);
        let services: Arc<dyn Services> = Arc::new(Alone);
        let values: Vec<EncodedRef<'_>> = values.iter().map(EncodedRef::from).collect();
        let _ticking = self.0.ticker.start();
        for _ in 0..count {
            let setup = Setup {
                module,
                context: context.clone(),
                grants: &grants,
                args: &[],
                limits: &limits,
                output: &output,
                input: Input::Empty,
                services: services.clone(),
            };
            let mut sandbox = Sandbox::new(&self.0, setup)?;
            let function = module.function(function);
            pin!(sandbox.run_function(function, &values, &limits)).await?;
        }
        Ok(())
    }
}
