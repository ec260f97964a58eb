//! The connections of a service.
//!
//! Must not: let a connection stay that has no request under way for longer than [`IDLE`], or whose client does not take a
//! piece of a response for as long; or take more than [`MOST_CONNECTIONS`] at a time, or all of one client.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Tls;
use super::front::{Caller, Front};
use super::passing::{self, Taken};
use super::places::{client_of, most_of_one};
use super::stats::{OneOf, Requests};

/// How many connections there may be at a time. More wait in the socket's own queue.
const MOST_CONNECTIONS: usize = 16 << 10;
/// How long the head of the first request may take to come, and TLS to agree.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);
/// The same for one that has begun to come when the service ends.
const LAST_HEAD: Duration = Duration::from_secs(1);
/// How long a connection may stay without a request, and how long a client may take for a piece of a body.
pub(super) const IDLE: Duration = Duration::from_secs(75);
/// The largest head of a request, in bytes.
const MOST_HEAD_BYTES: usize = 64 << 10;
pub(super) const MOST_HEADERS: usize = 128;
/// How many requests of one HTTP/2 connection may be under way.
const MOST_STREAMS: u32 = 200;
/// How much of the bodies of requests an HTTP/2 connection may send before they are read.
pub(super) const WINDOW_BYTES: u32 = 256 << 10;
/// How much of one response may wait in memory for such a connection.
const SEND_BYTES: usize = 64 << 10;
/// How soon a socket that gives an error is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// Takes connections until it is told to stop, and ends when the last of them has.
pub(super) async fn accept(
    (listener, tls): (TcpListener, Option<Tls>),
    mut taken: mpsc::Receiver<Taken>,
    front: Arc<Front>,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    let clients = Arc::<Clients>::default();
    loop {
        let has_room = connections.len() < MOST_CONNECTIONS;
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept(), if has_room => match accepted {
                Ok((stream, client)) => {
                    // One that has too many finds it closed.
                    let Some(share) = clients.connect(client.ip(), MOST_CONNECTIONS) else {
                        continue;
                    };
                    let connection = Connection {
                        front: front.clone(),
                        client,
                        stop: stop.clone(),
                        _share: Some(share),
                        is_passed: false,
                    };
                    let tls = tls.as_ref().map(|it| it.read().clone());
                    connections.spawn(connection.run(stream, tls));
                }
                Err(error) => {
                    tracing::warn!(%error, "a service cannot take a connection");
                    tokio::time::sleep(AGAIN).await;
                }
            },
            Some(taken) = taken.recv(), if has_room => {
                let connection = Connection {
                    front: front.clone(),
                    client: taken.passed.client,
                    stop: stop.clone(),
                    _share: None,
                    is_passed: true,
                };
                connections.spawn(connection.take(taken, tls.is_some()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    // Other nodes see that what waits here is not taken.
    drop((listener, taken));
    while connections.join_next().await.is_some() {}
}

/// How many connections each client has.
#[derive(Default)]
struct Clients(Mutex<BTreeMap<IpAddr, usize>>);

/// One connection of a client, until it is dropped.
struct OfClient {
    clients: Arc<Clients>,
    client: IpAddr,
}

impl Clients {
    /// One more of a client, if it may have that many of `most`.
    fn connect(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<OfClient> {
        let client = client_of(address);
        let mut counts = self.0.lock();
        let count = counts.entry(client).or_default();
        if *count >= most_of_one(client, most) {
            return None;
        }
        *count += 1;
        let clients = self.clone();
        Some(OfClient { clients, client })
    }
}

impl Drop for OfClient {
    fn drop(&mut self) {
        let mut counts = self.clients.0.lock();
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

struct Connection {
    front: Arc<Front>,
    client: SocketAddr,
    stop: CancellationToken,
    /// Its part of the connections; none of one that another node has taken.
    _share: Option<OfClient>,
    /// Whether it is a request that another node has passed on.
    is_passed: bool,
}

impl Connection {
    async fn run(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        let counted = &self.front.clone().stats.connections;
        counted.fetch_add(1, Ordering::Relaxed);
        // What is written is written as a whole.
        let _ = stream.set_nodelay(true);
        match tls {
            None => self.serve(stream, false).await,
            Some(tls) => {
                let accepted = tokio::time::timeout(HEAD_PATIENCE, tls.accept(stream));
                let accepted = self.stop.run_until_cancelled(accepted).await;
                match accepted {
                    Some(Ok(Ok(stream))) => self.serve(stream, true).await,
                    Some(Ok(Err(error))) => {
                        tracing::debug!(%error, "a connection to a service broke");
                    }
                    // It took too long, or the service ends.
                    Some(Err(_)) | None => {}
                }
            }
        }
        counted.fetch_sub(1, Ordering::Relaxed);
    }

    /// Serves a request of another node, if there is room for it. Its client has come by TLS if those do that come here.
    async fn take(self, Taken { mut stream, passed }: Taken, is_tls: bool) {
        if self.front.takes(&passed) && passing::accept(&mut stream).await.is_ok() {
            self.serve(stream, is_tls).await;
        }
    }

    async fn serve<S>(self, stream: S, is_tls: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let requests = Arc::new(Requests::default());
        let (front, counted) = (self.front.clone(), requests.clone());
        let caller = Caller {
            client: self.client,
            is_tls,
            is_passed: self.is_passed,
        };
        let answer = service_fn(move |request| {
            let (front, one) = (front.clone(), OneOf::new(&counted));
            async move { Ok::<_, Infallible>(front.answer(request, caller, one).await) }
        });
        let protocols = protocols();
        let mut connection = pin!(protocols.serve_connection(TokioIo::new(stream), answer));
        let mut is_leaving = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a request to a service broke");
                    }
                    return;
                }
                () = self.stop.cancelled(), if !is_leaving => {
                    connection.as_mut().graceful_shutdown();
                    is_leaving = true;
                }
                // hyper waits for the rest of a first head.
                () = tokio::time::sleep(LAST_HEAD), if is_leaving && requests.ever() == 0 => return,
                () = idle(&requests) => {
                    // A second time: it was told, and does not go.
                    if is_leaving {
                        return;
                    }
                    connection.as_mut().graceful_shutdown();
                    is_leaving = true;
                }
            }
        }
    }
}

/// HTTP/1 and HTTP/2, within our limits.
fn protocols() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // It runs while a connection is idle, too. For the first head there is less time, see `idle`.
        .header_read_timeout(IDLE)
        .max_buf_size(MOST_HEAD_BYTES)
        .max_headers(MOST_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(MOST_HEAD_BYTES as u32)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES);
    builder
}

/// Ends when a connection has had no request for too long, or has a response that the client does not read.
async fn idle(requests: &Requests) {
    let mut seen = requests.ever();
    let mut silent = Duration::ZERO;
    loop {
        tokio::time::sleep(HEAD_PATIENCE).await;
        let unread = requests.unread_since();
        if unread.is_some_and(|since| since.elapsed() >= IDLE) {
            return;
        }
        if requests.now() > 0 || requests.ever() != seen {
            seen = requests.ever();
            silent = Duration::ZERO;
            continue;
        }
        silent += HEAD_PATIENCE;
        // A client that connects has something to ask.
        if seen == 0 || silent >= IDLE {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Incoming;
    use hyper::{Request, Response};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn one_client_leaves_connections_to_others() {
        let clients = Arc::<Clients>::default();
        let connect = |address: &str| clients.connect(address.parse().unwrap(), 8);
        let flood: Vec<OfClient> = std::iter::from_fn(|| connect("192.0.2.1")).collect();
        assert_eq!(flood.len(), 7);
        assert!(connect("192.0.2.2").is_some());
        let proxy: Vec<_> = (0..8).map_while(|_| connect("127.0.0.1")).collect();
        assert_eq!(proxy.len(), 8);
        drop((flood, proxy));
        assert!(clients.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_may_be_idle_between_requests() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let answer = service_fn(|_: Request<Incoming>| async {
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let protocols = protocols();
        let mut serving = pin!(protocols.serve_connection(TokioIo::new(server), answer));
        let asking = async {
            for _ in 0..2 {
                let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
                client.write_all(request).await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"));
                tokio::time::advance(IDLE - HEAD_PATIENCE).await;
            }
        };
        tokio::select! {
            ended = serving.as_mut() => panic!("it was closed: {ended:?}"),
            () = asking => {}
        }
    }
}
