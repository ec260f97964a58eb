//! The socket and its connections.
//!
//! Must not: let a connection last longer than [`PATIENCE`], or than [`FOLLOW`] if it follows a view; take more than
//! [`MOST_CONNECTIONS`] at a time.
//!
//! Invariants: one request a connection; a request's body is not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

/// How many connections there may be at a time. More wait in the socket's own queue.
const MOST_CONNECTIONS: usize = 64;
/// How many of them may follow views: the others are left for requests.
pub const MOST_FOLLOWERS: usize = 48;
/// How long a request may take to come.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may take as a whole.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much longer it may follow a view. The browser then connects again, with a session that must still be known.
const FOLLOW: Duration = Duration::from_secs(3600);
/// The longest request, in bytes.
const MOST_HEADER_BYTES: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// How soon a socket that gives an error is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// Whether a connection may stay: set by the handler of its request.
#[derive(Debug, Clone, Default)]
pub struct Stay(Arc<AtomicBool>);

impl Stay {
    /// It follows a view.
    pub fn allow(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_allowed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Takes connections until it is aborted. Owns their tasks.
pub async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        if connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(bounded(stream, tls.clone(), router.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the dashboard cannot take a connection");
                    tokio::time::sleep(AGAIN).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves a connection, and cuts it off if it takes too long.
async fn bounded(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router) {
    let stay = Stay::default();
    let served = encrypted(stream, tls, router, stay.clone());
    tokio::pin!(served);
    let in_time = tokio::time::timeout(PATIENCE, &mut served).await;
    if in_time.is_err() && stay.is_allowed() {
        drop(tokio::time::timeout(FOLLOW, served).await);
    }
}

async fn encrypted(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router, stay: Stay) {
    let Some(tls) = tls else {
        return serve(stream, router, stay).await;
    };
    match tls.accept(stream).await {
        Ok(stream) => serve(stream, router, stay).await,
        Err(error) => tracing::debug!(%error, "a connection to the dashboard broke"),
    }
}

async fn serve<S>(stream: S, router: Router, stay: Stay)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(stay.clone());
        router.clone().call(request)
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
        tracing::debug!(%error, "a request to the dashboard broke");
    }
}
