//! Exports to an OpenTelemetry collector: a span for each attempt of a task that has ended, and metrics of the attempts.
//!
//! Owns how an attempt becomes a span (`span`), the metrics (`meters`), and sending them (`send`), on threads of its own. The
//! program that runs a node passes the attempts ([`Attempts`]). Must not: know how a node works, parse arguments, print.
//!
//! Invariants: only dropping [`Telemetry`] waits for a collector, for some seconds; the queue of spans is bounded, and lost
//! spans are counted and logged; metrics also count attempts whose spans are lost, or not sampled.

mod endpoint;
mod meters;
mod send;
mod span;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use wasmrun_model::id::NodeId;
use wasmrun_model::wire::TaskRow;

pub use self::endpoint::{Endpoint, ParseEndpointError};

use self::meters::Meters;

/// The instrumentation scope of spans and metrics.
const SCOPE: &str = "wasmrun";
/// How many spans may wait for the collector.
const MOST_WAITING: usize = 50_000;
/// How often it gets metrics.
const METRICS_EVERY: Duration = Duration::from_secs(10);
/// How long the spans that are left may take at the end. Metrics may take as long once more, by the SDK.
const LAST: Duration = Duration::from_secs(5);

/// The source of attempts that have ended.
pub trait Attempts: Send + 'static {
    /// The next ones, at most so many; none when there will be no more. It loses none if it is dropped before it has ended.
    fn next(&mut self, most: usize) -> impl Future<Output = Vec<TaskRow>> + Send;

    /// How many were left out since the last call.
    fn take_missed(&self) -> u64;
}

/// Which collector, and which node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the collector is.
    pub endpoint: Endpoint,
    /// The node whose attempts they are.
    pub node: NodeId,
    /// The version of the program.
    pub version: &'static str,
}

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system has no threads for it.
    #[error("the threads that send to the OpenTelemetry collector cannot be started")]
    Threads(#[from] io::Error),
    /// `OTEL_EXPORTER_OTLP_COMPRESSION`, or that of traces or metrics alone, is set.
    #[error(
        "spans and metrics cannot be compressed on their way to the OpenTelemetry collector: unset the variables \
         OTEL_EXPORTER_OTLP_*COMPRESSION"
    )]
    Compression,
    /// Another setting is wrong.
    #[error(
        "the settings for the OpenTelemetry collector are wrong: correct --otlp or the variables OTEL_EXPORTER_OTLP_*"
    )]
    Settings(#[source] ExporterBuildError),
}

impl From<ExporterBuildError> for StartError {
    fn from(error: ExporterBuildError) -> Self {
        match error {
            ExporterBuildError::UnsupportedCompressionAlgorithm(_)
            | ExporterBuildError::FeatureRequiredForCompressionAlgorithm(..) => Self::Compression,
            error => Self::Settings(error),
        }
    }
}

/// Exports until it is dropped, which sends what is left for some seconds.
#[derive(Debug)]
pub struct Telemetry {
    stop: watch::Sender<bool>,
    provider: SdkMeterProvider,
    /// None once it is dropped.
    running: Option<(Runtime, JoinHandle<()>)>,
}

impl Telemetry {
    /// Starts to export. The collector may come later.
    ///
    /// # Errors
    /// When the system has no threads, or settings in the environment are wrong.
    pub fn start(config: &Config, attempts: impl Attempts) -> Result<Self, StartError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("wasmrun-otlp")
            .enable_all()
            .build()?;
        let resource = resource(config);
        let (exporter, provider) = {
            // Connections belong to this runtime.
            let _context = runtime.enter();
            let exporter = exporter(&config.endpoint, &resource)?;
            (exporter, provider(&config.endpoint, resource)?)
        };
        let scope = InstrumentationScope::builder(SCOPE).with_version(config.version);
        let meters = Arc::new(Meters::new(&provider));
        let (stop, stopped) = watch::channel(false);
        let (queue, rows) = mpsc::channel(MOST_WAITING);
        runtime.spawn(read(attempts, queue, meters.clone(), stopped.clone()));
        let sending = send::Sending {
            endpoint: config.endpoint.clone(),
            exporter,
            scope: scope.build(),
            meters,
            stopped,
        };
        let sending = runtime.spawn(sending.run(rows));
        Ok(Self {
            stop,
            provider,
            running: Some((runtime, sending)),
        })
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let Some((runtime, sending)) = self.running.take() else {
            return;
        };
        let sent = runtime.block_on(async { tokio::time::timeout(LAST, sending).await });
        if sent.is_err() {
            tracing::warn!("the collector was too slow at the end: spans are lost");
        }
        // It logs its errors itself.
        let _ = self.provider.shutdown();
        runtime.shutdown_background();
    }
}

/// Counts attempts and queues them for the collector, until it is stopped and none is left.
async fn read(
    mut attempts: impl Attempts,
    queue: mpsc::Sender<TaskRow>,
    meters: Arc<Meters>,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let rows = tokio::select! {
            biased;
            rows = attempts.next(send::MOST_SPANS) => rows,
            _ = stopped.wait_for(|is_stopped| *is_stopped) => Vec::new(),
        };
        let mut lost = attempts.take_missed();
        let is_over = rows.is_empty();
        for row in rows {
            meters.count(&row);
            if span::is_sampled(&row) {
                lost += u64::from(queue.try_send(row).is_err());
            }
        }
        if lost > 0 {
            meters.lose(lost, &"too many wait");
        }
        if is_over {
            return;
        }
    }
}

/// The attributes of the node.
fn resource(config: &Config) -> Resource {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    Resource::builder()
        .with_service_name("wasmrun")
        .with_attributes([
            KeyValue::new("service.instance.id", config.node.to_string()),
            KeyValue::new("service.version", config.version),
            KeyValue::new("host.name", host),
        ])
        .build()
}

fn exporter(endpoint: &Endpoint, resource: &Resource) -> Result<SpanExporter, ExporterBuildError> {
    let builder = SpanExporter::builder().with_tonic();
    let mut exporter = builder.with_endpoint(endpoint.to_string()).build()?;
    exporter.set_resource(resource);
    Ok(exporter)
}

fn provider(
    endpoint: &Endpoint,
    resource: Resource,
) -> Result<SdkMeterProvider, ExporterBuildError> {
    let builder = MetricExporter::builder().with_tonic();
    let exporter = builder.with_endpoint(endpoint.to_string()).build()?;
    let reader = PeriodicReader::builder(exporter).with_interval(METRICS_EVERY);
    let provider = SdkMeterProvider::builder().with_reader(reader.build());
    Ok(provider.with_resource(resource).build())
}
