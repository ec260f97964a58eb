//! The metrics endpoint: HTTP for whoever scrapes, and for probes.
//!
//! Owns the socket and its connections. Nobody is asked who they are: what is told names tenants and nodes but
//! nothing of what they do, and nothing can be changed here. Must not: let anybody who connects hold more than a
//! place among [`MOST_CONNECTIONS`], for more than [`PATIENCE`].
//!
//! Invariants: one request a connection; one scrape at a time; a request's body is not read.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use super::super::{Inner, Server};
use super::sample;

/// The port that metrics are served at if nobody says otherwise.
pub const DEFAULT_METRICS_PORT: u16 = 7462;
/// How many may be connected at a time. More wait in the socket's own queue.
const MOST_CONNECTIONS: usize = 32;
/// How long a request may take to come.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may take as a whole.
const PATIENCE: Duration = Duration::from_secs(15);
/// The longest request, in bytes.
const MOST_HEADER_BYTES: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// How soon a socket that gives an error is asked again.
const AGAIN: Duration = Duration::from_millis(100);

const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be served at {address}: {source}; name a free address of this machine")]
pub struct ServeMetricsError {
    /// Where they were to be served.
    pub address: SocketAddr,
    /// What the system said.
    pub source: io::Error,
}

/// A node's metrics, served. Dropping it closes the socket and all connections.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Metrics {
    /// Where.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        // The connections are the accepting task's, and end with it.
        self.accepting.abort();
    }
}

impl Server {
    /// Serves `/metrics`, `/healthz` and `/readyz` over HTTP at this address, to everybody who reaches it.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn serve_metrics(&self, address: SocketAddr) -> Result<Metrics, ServeMetricsError> {
        let control = self.inner.shared.control.clone();
        let _context = control.enter();
        let bound = control.block_on(TcpListener::bind(address));
        let listener = bound.map_err(|source| ServeMetricsError { address, source })?;
        // The port, where the system has chosen it.
        let address = listener.local_addr().unwrap_or(address);
        let accepting = control.spawn(accept(self.inner.clone(), listener));
        Ok(Metrics { address, accepting })
    }
}

/// Takes connections until it is aborted. Owns their tasks.
async fn accept(inner: Arc<Inner>, listener: TcpListener) {
    let scrape = Arc::<Mutex<()>>::default();
    let mut connections = JoinSet::new();
    loop {
        if connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let served = serve(inner.clone(), scrape.clone(), stream);
                    // Who takes longer is cut off.
                    connections.spawn(async move { drop(tokio::time::timeout(PATIENCE, served).await) });
                }
                Err(error) => {
                    tracing::warn!(%error, "the metrics endpoint cannot take a connection");
                    tokio::time::sleep(AGAIN).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(inner: Arc<Inner>, scrape: Arc<Mutex<()>>, stream: TcpStream) {
    let answer = service_fn(|request| {
        let (inner, scrape) = (inner.clone(), scrape.clone());
        async move { Ok::<_, Infallible>(answer(&inner, &scrape, &request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .max_buf_size(MOST_HEADER_BYTES)
        .max_headers(MOST_HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a request for metrics broke");
    }
}

async fn answer(
    inner: &Arc<Inner>,
    scrape: &Mutex<()>,
    request: &Request<Incoming>,
) -> Response<String> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = said(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, allowed);
        return refused;
    }
    match request.uri().path() {
        "/metrics" => {
            let _one_at_a_time = scrape.lock().await;
            let mut sampled = Response::new(sample::sample(inner));
            let kind = HeaderValue::from_static(METRICS);
            sampled.headers_mut().insert(CONTENT_TYPE, kind);
            sampled
        }
        // Whoever is told so has been answered by the control threads: that is all there is to it.
        "/healthz" => said(StatusCode::OK, "ok\n"),
        "/readyz" => match sample::unready(inner) {
            None => said(StatusCode::OK, "ready\n"),
            Some(why) => said(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        _ => said(
            StatusCode::NOT_FOUND,
            "there are /metrics, /healthz and /readyz\n",
        ),
    }
}

fn said(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(PLAIN);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
