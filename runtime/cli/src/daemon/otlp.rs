//! `node start --otlp`: attempts that end at this node go to an OpenTelemetry collector.

use wasmrun_client::wire::TaskRow;
use wasmrun_node::{EndedAttempts, Node, Server};
use wasmrun_telemetry::{Attempts, Config, Telemetry};

use crate::args::WatchOptions;
use crate::fail::{Exit, Failure};

/// How many attempts may wait to be read. They are at once.
const MOST_UNREAD: usize = 10_000;

/// Attempts of a node that have ended, as `wasmrun_telemetry` asks for them.
struct Ended(EndedAttempts);

impl Attempts for Ended {
    async fn next(&mut self, most: usize) -> Vec<TaskRow> {
        self.0.next(most).await
    }

    fn take_missed(&self) -> u64 {
        self.0.take_missed()
    }
}

/// Begins to send to a collector, if the options name one.
///
/// # Errors
/// When settings in the environment are wrong, or there are no threads for it.
pub fn start(
    options: &WatchOptions,
    node: &Node,
    server: &Server,
) -> Result<Option<Telemetry>, Failure> {
    let Some(endpoint) = &options.otlp else {
        return Ok(None);
    };
    let config = Config {
        endpoint: endpoint.clone(),
        node: node.id(),
        version: env!("CARGO_PKG_VERSION"),
    };
    let started = Telemetry::start(&config, Ended(server.ended_attempts(MOST_UNREAD)));
    let telemetry = started.map_err(|error| Failure::new(Exit::Usage, error))?;
    tracing::info!(%endpoint, "attempts that end go to a collector");
    Ok(Some(telemetry))
}
