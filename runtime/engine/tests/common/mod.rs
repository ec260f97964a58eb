//! What tests of the engine share: a small engine, and calls of functions by their names.

use std::sync::Arc;

use wasmrun_engine::{
    Alone, Engine, EngineConfig, Entry, Grants, Input, Invocation, Limits, Module, Outcome,
    TaskContext, TaskOutput,
};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::TaskId;
use wasmrun_model::value::{Encoded, EncodedRef};

/// An engine with room for four sandboxes.
pub fn engine() -> Engine {
    Engine::new(EngineConfig {
        max_sandboxes: 4,
        ..EngineConfig::default()
    })
    .unwrap()
}

/// A module that is written as text.
pub fn load(engine: &Engine, text: &str) -> Module {
    engine.load(&wat::parse_str(text).unwrap()).unwrap()
}

/// Where calls run.
pub fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// Calls a function.
pub async fn call(
    engine: &Engine,
    module: &Module,
    name: &str,
    values: &[Encoded],
    limits: Limits,
) -> Result<Outcome, TaskError> {
    let values: Vec<EncodedRef<'_>> = values.iter().map(EncodedRef::from).collect();
    let invocation = Invocation {
        module,
        entry: Entry::Function(module.find(name).unwrap()),
        values: &values,
        args: &[],
        context: Arc::new(TaskContext {
            task: TaskId::from_bytes([1; 16]),
            attempt: 0,
            tenant: Default::default(),
            node: "test".into(),
            array_index: None,
            span: None,
            trace: None,
            resources: Vec::new(),
        }),
        grants: &Grants::default(),
        limits: &limits,
        output: &TaskOutput::new(limits.output, None),
        input: Input::Empty,
        services: Arc::new(Alone),
    };
    engine.run(invocation).await
}
