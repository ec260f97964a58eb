//! Attempts that a node sends to an OpenTelemetry collector: `node start --otlp`. The collector is this test: it takes spans and
//! metrics over gRPC.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span, status::StatusCode};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use wasmrun_tests::assert_says;

use crate::node::Node;

/// How long anything may take to arrive. Far more than it needs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Hands on what comes.
struct Taken<T>(Sender<T>);

#[tonic::async_trait]
impl TraceService for Taken<ResourceSpans> {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for spans in request.into_inner().resource_spans {
            // A test that has seen enough takes no more.
            let _ = self.0.send(spans);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Taken<ResourceMetrics> {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        for metrics in request.into_inner().resource_metrics {
            let _ = self.0.send(metrics);
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

struct Collector {
    address: SocketAddr,
    spans: Receiver<ResourceSpans>,
    metrics: Receiver<ResourceMetrics>,
    _runtime: Runtime,
}

impl Collector {
    fn start() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("there are threads");
        let (spans_in, spans) = mpsc::channel();
        let (metrics_in, metrics) = mpsc::channel();
        let incoming = {
            let _context = runtime.enter();
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            TcpIncoming::bind(any).expect("there is a port")
        };
        let address = incoming.local_addr().expect("it has one");
        let server = Server::builder()
            .add_service(TraceServiceServer::new(Taken(spans_in)))
            .add_service(MetricsServiceServer::new(Taken(metrics_in)));
        runtime.spawn(server.serve_with_incoming(incoming));
        Self {
            address,
            spans,
            metrics,
            _runtime: runtime,
        }
    }

    /// Waits for spans until those are there that are wanted.
    fn spans(&self, names: &[&str]) -> Vec<Span> {
        let mut all: Vec<Span> = Vec::new();
        while !names
            .iter()
            .all(|name| all.iter().any(|it| it.name == *name))
        {
            let spans = self.spans.recv_timeout(PATIENCE).expect("spans come");
            let resource = spans.resource.expect("whose they are").attributes;
            assert_eq!(text(&resource, "service.name"), "wasmrun");
            assert_eq!(text(&resource, "service.instance.id").len(), 32);
            all.extend(spans.scope_spans.into_iter().flat_map(|it| it.spans));
        }
        all
    }
}

/// The text of an attribute.
#[track_caller]
fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    let attribute = attributes.iter().find(|it| it.key == key);
    let value = attribute.and_then(|it| it.value.as_ref()?.value.as_ref());
    match value {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_collector_gets_spans_and_metrics() {
    let collector = Collector::start();
    let mut node = Node::new();
    let endpoint = format!("http://{}", collector.address);
    node.start_with(&["--otlp", &endpoint]);
    // It starts `crash`, and ends well.
    node.submit("error-of(\"trap\")").ok();
    let listed = node.wasmrun(["list", "tasks"]).json(0);
    let listed = listed["tasks"].as_array().expect("a list");
    let spans = collector.spans(&["error-of", "crash"]);
    let named = |name: &str| {
        let span = spans.iter().find(|it| it.name == name);
        let row = listed.iter().find(|it| it["name"] == name);
        (span.expect("it is there"), row.expect("it is listed"))
    };
    let ((parent, parent_row), (crash, crash_row)) = (named("error-of"), named("crash"));
    for (span, row) in [(parent, parent_row), (crash, crash_row)] {
        assert_eq!(row["job"], *hex(&span.trace_id));
        assert_eq!(row["id"], *text(&span.attributes, "wasmrun.task.id"));
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        let phases = span.events.iter().map(|it| &*it.name);
        let expected = ["arguments", "sandbox", "run", "result"];
        assert_eq!(phases.collect::<Vec<_>>(), expected);
    }
    assert!(parent.parent_span_id.is_empty());
    assert_eq!(crash.parent_span_id, parent.span_id);
    let [well, failed] = [parent, crash].map(|it| it.status.clone().expect("it has one"));
    assert_eq!(well.code(), StatusCode::Unset);
    assert_eq!(failed.code(), StatusCode::Error);
    assert_says(&failed.message, &["the guest trapped"]);

    node.wasmrun(["node", "stop"]).ok();
    let ended = node.running.take().expect("it runs").end();
    assert_eq!(ended.code, Some(0), "{ended}");
    let metrics = collector.metrics.try_iter();
    let metrics = metrics
        .flat_map(|it| it.scope_metrics)
        .flat_map(|it| it.metrics);
    let mut names: Vec<String> = metrics.map(|it| it.name).collect();
    names.sort();
    names.dedup();
    let expected = [
        "wasmrun.attempt.ran",
        "wasmrun.attempt.waited",
        "wasmrun.attempts",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_collector_that_is_not_there_holds_nothing_up() {
    let mut node = Node::new();
    node.start_with(&["--otlp", "http://127.0.0.1:9"]);
    assert_eq!(node.submit("add(1, 2)").ok(), "3\n");
    node.wasmrun(["node", "stop"]).ok();
    let ended = node.running.take().expect("it runs").end();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_says(&ended.stderr, &["the collector"]);
    assert!(!ended.stderr.contains("tonic::"), "{ended}");
}

#[test]
fn what_is_no_endpoint_is_refused() {
    let node = Node::new();
    let start = node.wasmrun(["node", "start", "--otlp", "https://collector:4317"]);
    assert_says(&start.fails(2), &["http://HOST:PORT"]);
    let start = node.wasmrun(["node", "start"]);
    let start = start.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector");
    assert_says(
        &start.fails(2),
        &["OTEL_EXPORTER_OTLP_ENDPOINT, as http://HOST:PORT"],
    );
    let start = node.wasmrun(["node", "start", "--otlp", "http://127.0.0.1:9"]);
    let start = start.env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip");
    assert_says(
        &start.fails(2),
        &["cannot be compressed", "unset the variables"],
    );
}
