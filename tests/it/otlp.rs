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
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use wasmrun_tests::{Wasmrun, assert_says, guest};

use crate::anywhere::cluster;
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

    /// Waits for spans until those are there whose names end so.
    fn spans(&self, names: &[&str]) -> Vec<Span> {
        let mut all: Vec<Span> = Vec::new();
        while !names
            .iter()
            .all(|name| all.iter().any(|it| it.name.ends_with(name)))
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

/// A trace of a client, and its span.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// The command, as part of that trace.
fn traced(command: Wasmrun) -> Wasmrun {
    let parent = format!("00-{TRACE}-{CALLER}-01");
    command
        .env("TRACEPARENT", parent)
        .env("TRACESTATE", " k=v ,")
}

/// The span whose name ends so.
#[track_caller]
fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut spans = spans.iter();
    spans
        .find(|it| it.name.ends_with(name))
        .expect("it is there")
}

/// A node that sends spans to this collector.
fn node_for(collector: &Collector) -> Node {
    let mut node = Node::new();
    let endpoint = format!("http://{}", collector.address);
    node.start_with(&["--otlp", &endpoint]);
    node
}

#[test]
fn tasks_are_in_the_trace_of_their_client_and_their_guests_know() {
    let collector = Collector::start();
    let node = node_for(&collector);
    let sdk = |call: &str| {
        let submit = node.wasmrun(["submit"]).arg(guest("sdk"));
        submit.args(["--invoke", call])
    };
    // A trace that nobody records: if this were sent, it would be before all others.
    let unsampled = format!("00-{}-{CALLER}-00", "1".repeat(32));
    sdk("noop()").env("TRACEPARENT", unsampled).ok();
    let told = traced(sdk("tracing()")).json(0)["result"]["ok"].clone();
    let spans = collector.spans(&["traced", "tracing"]);
    let [own, nested] = ["tracing", "traced"].map(|name| named(&spans, name));
    for (span, told) in [(own, &told[0]), (nested, &told[1])] {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(span.trace_state, "k=v");
        let parent = format!("00-{TRACE}-{}-01", hex(&span.span_id));
        assert_eq!(*told, json!([parent, "k=v"]));
    }
    assert_eq!(hex(&own.parent_span_id), CALLER);
    assert_eq!(nested.parent_span_id, own.span_id);
    assert!(spans.iter().all(|it| it.name != "noop"));

    let create = node.wasmrun(["actor", "create"]).arg(guest("graph"));
    create.args(["counter", "10", "--name", "total"]).ok();
    traced(node.wasmrun(["actor", "call", "total", "add(1)"])).ok();
    let spans = collector.spans(&["counter.add"]);
    let call = named(&spans, "counter.add");
    let ids = [hex(&call.trace_id), hex(&call.parent_span_id)];
    assert_eq!(ids, [TRACE, CALLER]);

    let program = || node.wasmrun(["submit"]).arg(guest("prog"));
    let said = traced(program()).program(["env", "TRACEPARENT"]).ok();
    assert!(said.starts_with(&format!("00-{TRACE}-")), "{said}");
    program().program(["env", "TRACEPARENT"]).fails(1);
}

#[test]
fn without_a_trace_of_the_client_guests_know_that_of_their_job() {
    let collector = Collector::start();
    let node = node_for(&collector);
    let submit = node.wasmrun(["submit"]).arg(guest("sdk"));
    let told = submit.args(["--invoke", "tracing()"]).json(0)["result"]["ok"].clone();
    let spans = collector.spans(&["traced", "tracing"]);
    for (at, name) in ["tracing", "traced"].into_iter().enumerate() {
        let span = named(&spans, name);
        let parent = format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id));
        assert_eq!(told[at], json!([parent]));
    }
    assert!(named(&spans, "tracing").parent_span_id.is_empty());
}

#[test]
fn the_trace_of_a_client_goes_to_other_nodes() {
    let members = cluster(["a", "b"]);
    let submit = members[0].command(&["submit"]).arg(guest("sdk"));
    let submit = submit.args(["--invoke", "tracing()", "--strategy", "node:b"]);
    let said = traced(submit).json(0);
    let told = said["result"]["ok"].as_array().expect("a list");
    assert_eq!(told.len(), 2);
    for told in told {
        let parent = told[0].as_str().expect("it has one");
        assert!(parent.starts_with(&format!("00-{TRACE}-")), "{said}");
        assert_eq!(told[1], "k=v");
    }
}

#[test]
fn what_is_no_trace_context_is_refused() {
    let submit = || Wasmrun::call("noop()");
    let wrong = submit().env("TRACEPARENT", "00-1-2-01");
    let said = [
        "the variable TRACEPARENT",
        "00-TRACE-SPAN-FLAGS",
        "unset it",
    ];
    assert_says(&wrong.fails(2), &said);
    let wrong = traced(submit()).env("TRACESTATE", "k");
    wrong.fails_saying(2, &["the variable TRACESTATE", "KEY=VALUE"]);
    let wrong = submit().args(["--traceparent", "x"]);
    wrong.fails_saying(2, &["--traceparent", "00-TRACE-SPAN-FLAGS"]);
    submit().env("TRACEPARENT", "").ok();
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
    start.fails_saying(2, &["http://HOST:PORT"]);
    let start = node.wasmrun(["node", "start"]);
    let start = start.env("OTEL_EXPORTER_OTLP_ENDPOINT", "collector");
    start.fails_saying(2, &["OTEL_EXPORTER_OTLP_ENDPOINT, as http://HOST:PORT"]);
    let start = node.wasmrun(["node", "start", "--otlp", "http://127.0.0.1:9"]);
    let start = start.env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip");
    start.fails_saying(2, &["cannot be compressed", "unset the variables"]);
}
