//! The trace that a command belongs to, as OpenTelemetry passes it on in the environment.

use clap::Args;
use wasmrun_model::trace::{Span, TraceContext, TraceState};

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Tracing")]
pub struct TraceOptions {
    /// The span that caused this: a W3C traceparent.
    ///
    /// The spans of the task, and of those that it starts, are below it, in its trace: see `node start --otlp`.
    #[arg(long, env = "TRACEPARENT", value_name = "SPAN")]
    pub traceparent: Option<Span>,
    /// What is passed on along with it: a W3C tracestate.
    #[arg(long, env = "TRACESTATE", value_name = "STATE")]
    pub tracestate: Option<TraceState>,
}

impl TraceOptions {
    /// A state alone names no trace.
    pub fn context(&self) -> Option<TraceContext> {
        let state = self.tracestate.clone().unwrap_or_default();
        Some(TraceContext::new(self.traceparent?, state))
    }
}
