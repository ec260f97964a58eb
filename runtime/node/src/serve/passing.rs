//! Requests that another node of the cluster answers, since this one has no room for them, or is about to leave.
//!
//! Owns when that is, and the way there: HTTP/2 over a stream of the cluster, so that both bodies go as they are read, with
//! their trailers, and a client that is gone cancels its handler there. Must not: pass on what was passed on.
//!
//! ```text
//! there    the length of what follows (2 bytes, little-endian), [`Passed`] in postcard
//! back     the byte 1 if the other node takes it; else the end
//! then     HTTP/2, with one request
//! ```
//!
//! Invariant: nothing of a request is sent before the other node takes it, so another one can be asked, or this one answers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::HOST;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use wasmrun_engine::{HttpBody, HttpError};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::NodeId;
use wasmrun_net::ByteStream;

use super::front::{Caller, Front};
use super::listen::WINDOW_BYTES;
use super::problem::Problem;
use crate::cluster::Cluster;
use crate::peers::Fabric as _;

/// How many other nodes are asked to take a request.
const MOST_ASKED: usize = 2;
/// How long one may take to say that it does.
const PATIENCE: Duration = Duration::from_secs(1);
/// What it says then.
const TAKES: u8 = 1;

/// What is said before a request that is passed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Passed {
    /// Whose service it is for.
    pub(crate) tenant: TenantName,
    /// Which.
    pub(crate) name: String,
    /// Who asks.
    pub(crate) client: SocketAddr,
    /// The node that passes it on is about to leave: it may have to wait where it is taken.
    pub(crate) is_leaving: bool,
}

impl Passed {
    async fn write(&self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let head = postcard::to_stdvec(self).map_err(unreadable)?;
        let len = u16::try_from(head.len()).map_err(io::Error::other)?;
        to.write_all(&[&len.to_le_bytes()[..], &head].concat())
            .await
    }

    /// Reads it from a stream, and nothing behind it.
    pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let len = from.read_u16_le().await?;
        let mut head = vec![0; usize::from(len)];
        from.read_exact(&mut head).await?;
        postcard::from_bytes(&head).map_err(unreadable)
    }
}

fn unreadable(error: postcard::Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// A request that another node passes on, behind what it has said of it.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) stream: ByteStream,
    pub(crate) passed: Passed,
}

/// Says that a request is taken.
pub(super) async fn accept(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(&[TAKES]).await
}

/// What it takes to pass on requests of a service.
pub(crate) struct Passing {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) tenant: TenantName,
    pub(crate) name: String,
}

impl Passing {
    /// Asks a node to take a request.
    async fn ask(
        &self,
        node: NodeId,
        client: SocketAddr,
        is_leaving: bool,
    ) -> io::Result<SendRequest<HttpBody>> {
        let mut stream = self.cluster.open(node).await.map_err(io::Error::other)?;
        let passed = Passed {
            tenant: self.tenant.clone(),
            name: self.name.clone(),
            client,
            is_leaving,
        };
        passed.write(&mut stream).await?;
        // Its end is a refusal.
        stream.read_u8().await?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        let shaken = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(io::Error::other)?;
        // It ends with the request, or with the threads of the service.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a request that was passed on broke");
            }
        });
        Ok(sender)
    }
}

/// The way of one request to a node that takes it.
pub(super) struct Way {
    sender: SendRequest<HttpBody>,
    /// What the request is sent to: HTTP/2 has the host there.
    uri: Uri,
}

impl Way {
    /// The answer of the other node.
    pub(super) async fn pass(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<HttpBody>, Problem> {
        let Self { mut sender, uri } = self;
        let (mut head, body) = request.into_parts();
        head.uri = uri;
        head.version = Version::HTTP_2;
        let failure = |error: hyper::Error| -> HttpError { error.into() };
        let request = Request::from_parts(head, body.map_err(failure).boxed_unsync());
        let response = sender.send_request(request).await.map_err(|error| {
            tracing::debug!(%error, "a request was not answered by the node that has taken it");
            let detail = "the node that was to answer is gone";
            Problem::new(StatusCode::BAD_GATEWAY, detail)
        })?;
        let (mut head, body) = response.into_parts();
        head.version = Version::default();
        let body = body.map_err(failure).map_frame(move |frame| {
            // The connection is there as long as the body.
            let _sender = &sender;
            frame
        });
        Ok(Response::from_parts(head, body.boxed_unsync()))
    }
}

impl Front {
    /// Whether a request of another node is taken.
    pub(super) fn takes(&self, passed: &Passed) -> bool {
        let is_leaving = self.passing.get().is_none_or(|it| it.cluster.is_leaving());
        !is_leaving && (passed.is_leaving || self.has_room())
    }

    /// Where a request goes, if this node has no room for it.
    pub(super) fn goes_on(&self, request: &Request<Incoming>, caller: Caller) -> Option<Uri> {
        let passing = self.passing.get()?;
        let stays = !passing.cluster.is_leaving() && self.has_room();
        match caller.is_passed || stays {
            true => None,
            false => absolute(request),
        }
    }

    /// Its way to another node, if one takes it.
    pub(super) async fn way(&self, uri: Uri, client: SocketAddr) -> Option<Way> {
        let passing = self.passing.get()?;
        let is_leaving = passing.cluster.is_leaving();
        let rule = self.rule().filter(|_| !is_leaving);
        let needs = rule.as_ref().map(|it| it.preferred());
        let nodes = passing.cluster.with_room(needs);
        for node in nodes.into_iter().take(MOST_ASKED) {
            match timeout(PATIENCE, passing.ask(node, client, is_leaving)).await {
                Ok(Ok(sender)) => return Some(Way { sender, uri }),
                Ok(Err(error)) => tracing::debug!(%node, %error, "a request is not passed on"),
                Err(_) => tracing::debug!(%node, "it does not say whether it takes a request"),
            }
        }
        None
    }
}

/// Where a request goes, with its host; `None` of one that has no path, and stays here.
fn absolute<B>(request: &Request<B>) -> Option<Uri> {
    let uri = request.uri();
    let path = uri.path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    if *request.method() == Method::CONNECT || !path.as_str().starts_with('/') {
        return None;
    }
    let authority = match uri.authority() {
        Some(authority) => authority.clone(),
        None => Authority::try_from(request.headers().get(HOST)?.as_bytes()).ok()?,
    };
    let uri = Uri::builder().scheme(Scheme::HTTP).authority(authority);
    uri.path_and_query(path).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_said_before_a_request_has_these_bytes_and_nothing_behind_it_is_read() {
        let passed = Passed {
            tenant: "t".parse().unwrap(),
            name: "s".into(),
            client: "127.0.0.1:80".parse().unwrap(),
            is_leaving: true,
        };
        let mut bytes = Vec::new();
        passed.write(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"\x0b\0\x01t\x01s\0\x7f\0\0\x01\x50\x01");
        bytes.push(7);
        let mut rest = &bytes[..];
        assert_eq!(Passed::read(&mut rest).await.unwrap(), passed);
        assert_eq!(rest, [7]);
        for cut in 0..bytes.len() - 1 {
            assert!(Passed::read(&mut &bytes[..cut]).await.is_err(), "{cut}");
        }
    }

    #[test]
    fn a_request_is_passed_on_to_its_host_and_path() {
        let goes = |method: Method, target: &str, host: Option<&str>| {
            let mut request = Request::builder().method(method).uri(target);
            if let Some(host) = host {
                request = request.header(HOST, host);
            }
            absolute(&request.body(()).unwrap()).map(|it| it.to_string())
        };
        let same = Some("http://a:80/b?c".to_owned());
        assert_eq!(goes(Method::GET, "/b?c", Some("a:80")), same);
        assert_eq!(goes(Method::GET, "http://a:80/b?c", None), same);
        assert_eq!(goes(Method::OPTIONS, "*", Some("a")), None);
        assert_eq!(goes(Method::CONNECT, "a:80", Some("a:80")), None);
        assert_eq!(goes(Method::GET, "/", None), None);
    }
}
