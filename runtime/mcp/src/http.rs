//! The server over HTTP, for clients that cannot start a program: the protocol's streamable HTTP, at `/mcp`.
//!
//! Owns the socket, its connections and their authorization. A client can run code in sandboxes: so it listens for this
//! machine alone, unless a token is demanded. A page in a browser, which can reach this machine's sockets under a name of its
//! own, is refused by `Host` and `Origin`.
//!
//! Invariant: there are at most [`MAX_CONNECTIONS`] and [`MAX_SESSIONS`].

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wasmrun_model::id::Digest;

use crate::{MAX_MESSAGE_BYTES, Server};

/// How many may be connected at a time. More wait in the socket's own queue.
const MAX_CONNECTIONS: usize = 256;
/// How many sessions there may be. A client that asks for one more is refused with 503.
const MAX_SESSIONS: usize = 256;
/// How long a session stays of which nothing is heard, at least. A longer call keeps its own.
const SESSION_IDLE: Duration = Duration::from_secs(60 * 60);
/// How long the head of a request may take to come.
const HEADER_PATIENCE: Duration = Duration::from_secs(10);
/// How soon a socket that gives an error is asked again.
const AGAIN: Duration = Duration::from_millis(100);
/// The fewest characters of a token.
const MIN_TOKEN_CHARS: usize = 16;
const PATH: &str = "/mcp";
const SESSION: &str = "mcp-session-id";
/// Pages of this machine, at whatever port.
const ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

/// A secret that clients must send, of which only a hash is kept.
#[derive(Debug, Clone, Copy)]
pub struct Token(Digest);

impl Token {
    /// `None` if it is too short, or has what cannot be sent in a header.
    pub fn new(text: &str) -> Option<Self> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_plain && text.len() >= MIN_TOKEN_CHARS).then(|| Self(Digest::of(text.as_bytes())))
    }

    /// Whether a request has it. Hashes are compared: how long that takes tells nothing.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|it| it.to_str().ok());
        let given = given.and_then(|it| it.split_once(' '));
        given.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && Digest::of(token.trim().as_bytes()) == self.0
        })
    }
}

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Others could reach it.
    #[error(
        "other machines can reach {0}, and clients of it can run code here: use 127.0.0.1, or demand a token with --token-file"
    )]
    Open(SocketAddr),
    /// The system refuses.
    #[error("cannot listen at {address}: {error}; name a free address of this machine")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
}

/// A socket that listens.
#[derive(Debug)]
pub struct Http {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<Token>,
}

impl Http {
    /// Listens at this address.
    ///
    /// # Errors
    /// When the address is not of this machine alone and no token is demanded, and when the system refuses.
    pub async fn bind(address: SocketAddr, token: Option<Token>) -> Result<Self, ListenError> {
        if token.is_none() && !address.ip().is_loopback() {
            return Err(ListenError::Open(address));
        }
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|error| ListenError::Bind { address, error })?;
        // The port, where the system has chosen it.
        let address = listener.local_addr().unwrap_or(address);
        Ok(Self {
            listener,
            address,
            token,
        })
    }

    /// Where clients find the server.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Serves until `stop` says so. What runs then is cancelled.
    pub async fn serve(self, server: Server, stop: CancellationToken) {
        let mut config = StreamableHttpServerConfig::default()
            .with_allowed_origins(ORIGINS)
            .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
            .with_cancellation_token(stop.child_token());
        if self.token.is_some() {
            // It is reached by names that we do not know, and no page of a browser has the token.
            config = config.disable_allowed_hosts();
        }
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE.max(server.longest_call() * 2));
        let sessions = Arc::new(sessions);
        let made = server.clone();
        let desk = Desk {
            service: StreamableHttpService::new(move || Ok(made.clone()), sessions.clone(), config),
            sessions,
            token: self.token,
        };
        tokio::select! {
            () = accept(&self.listener, &desk) => {}
            () = stop.cancelled() => {}
        }
        server.end().await;
    }
}

/// Who answers requests.
#[derive(Clone)]
struct Desk {
    service: StreamableHttpService<Server, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    token: Option<Token>,
}

/// Takes connections. Owns their tasks.
async fn accept(listener: &TcpListener, desk: &Desk) {
    let mut connections = JoinSet::new();
    loop {
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(desk.clone(), stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "the server cannot take a connection");
                    tokio::time::sleep(AGAIN).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(desk: Desk, stream: TcpStream) {
    let answer = service_fn(|request| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(desk.answer(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection broke");
    }
}

impl Desk {
    async fn answer(&self, request: Request<Incoming>) -> Response<BoxBody<Bytes, Infallible>> {
        if self
            .token
            .is_some_and(|token| !token.is_in(request.headers()))
        {
            let mut refused = said(
                StatusCode::UNAUTHORIZED,
                "send the token of this server: Authorization: Bearer TOKEN\n",
            );
            let scheme = HeaderValue::from_static("Bearer");
            refused.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            return refused;
        }
        if request.uri().path() != PATH {
            return said(StatusCode::NOT_FOUND, "the server is at /mcp\n");
        }
        // It may be the beginning of one. Clients of protocols without sessions wait with those who begin one.
        let is_new = !request.headers().contains_key(SESSION);
        if is_new && self.sessions.sessions.read().await.len() >= MAX_SESSIONS {
            return said(
                StatusCode::SERVICE_UNAVAILABLE,
                "there are too many sessions; try again later\n",
            );
        }
        self.service.handle(request).await
    }
}

fn said(status: StatusCode, text: &'static str) -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_plain_and_compared_as_a_whole() {
        assert!(Token::new("short").is_none());
        assert!(Token::new("with a space in the middle").is_none());
        let token = Token::new("0123456789abcdef").expect("it is long enough");
        let is_in = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            token.is_in(&headers)
        };
        assert!(is_in("Bearer 0123456789abcdef") && is_in("bearer 0123456789abcdef"));
        assert!(
            !is_in("Bearer 0123456789abcde")
                && !is_in("0123456789abcdef")
                && !is_in("Basic 0123456789abcdef")
        );
        assert!(!token.is_in(&HeaderMap::new()));
    }
}
