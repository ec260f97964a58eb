//! A server that gives every request the same answer and does nothing else: what HTTP alone costs, for
//! `cargo xtask bench --against serve`.
//!
//! Its settings and the number of its threads are those of `runtime/node/src/serve`.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};

fn main() -> Result<()> {
    let address = std::env::args()
        .nth(1)
        .context("usage: bare_http ADDRESS:PORT")?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.min(4))
        .enable_all()
        .build()?
        .block_on(accept(address))
}

async fn accept(address: String) -> Result<()> {
    let listener = TcpListener::bind(&address)
        .await
        .with_context(|| format!("cannot listen at {address}"))?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream));
    }
}

async fn serve(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|_: Request<Incoming>| async {
        let mut response = Response::new("hello\n".to_owned());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok::<_, Infallible>(response)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(15))
        .max_buf_size(64 << 10)
        .max_headers(128);
    // A client that goes away in the middle is no error of the server.
    let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
}
