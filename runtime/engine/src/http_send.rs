//! Sends one request of a guest, on a connection of its own.
//!
//! Must not: decide whether it may be sent, but for the addresses that a name turns out to have.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::Uri;
use hyper::Request;
use hyper::client::conn::http1;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use wasmtime_wasi::runtime::spawn;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, WasiBody};

use crate::http::{Sending, Sent, Target, TargetHost};
use crate::http_body::patient_body;
use crate::lookup::look_up;

/// The largest head of a response, in bytes.
const MOST_HEAD_BYTES: usize = 128 << 10;
/// How many headers a response may have.
const MOST_HEADERS: usize = 256;

trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Sends the request and waits for the head of its response.
pub(crate) async fn send(sending: Sending, mut request: Request<WasiBody>) -> Result<Sent, Error> {
    let turn = sending.turn().await?;
    let connected = timeout(sending.connect, connect(&sending)).await;
    let connection = connected.map_err(|_| Error::ConnectionTimeout)??;
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(MOST_HEAD_BYTES)
        .max_headers(MOST_HEADERS);
    let (mut sender, driver) = builder
        .handshake(TokioIo::new(connection))
        .await
        .map_err(broken)?;
    let driver = spawn(driver);
    // Only proxies are told more.
    *request.uri_mut() = origin_form(request.uri());
    let response = timeout(sending.first_byte, sender.send_request(request)).await;
    let response = response
        .map_err(|_| Error::HttpResponseTimeout)?
        .map_err(broken)?;
    let response = response.map(|body| patient_body(body, sending.between_bytes, broken));
    let ended = async move {
        let ended = driver.await;
        drop(turn);
        ended.map_err(broken)
    };
    Ok((response, Box::new(ended)))
}

fn origin_form(uri: &Uri) -> Uri {
    // Written out, a query has a path before it.
    let path = uri.path_and_query().map(ToString::to_string);
    let path = path.and_then(|it| it.parse().ok());
    path.unwrap_or_else(|| Uri::from_static("/"))
}

async fn connect(sending: &Sending) -> Result<Box<dyn Connection>, Error> {
    let Target { host, port, is_tls } = &sending.target;
    let addresses = match host {
        TargetHost::Address(ip) => vec![SocketAddr::new(*ip, *port)],
        TargetHost::Name(name) => {
            let found = look_up(name, *port, &sending.tenant).await;
            let found = found.map_err(|_| unknown_name())?;
            Target::reachable(name, &sending.hosts, found)
                .map_err(|refused| sending.refuse(&refused))?
        }
    };
    if addresses.is_empty() {
        return Err(unknown_name());
    }
    let stream = TcpStream::connect(&addresses[..]).await;
    let stream = stream.map_err(unconnected)?;
    // A request is written as a whole.
    let _ = stream.set_nodelay(true);
    if !is_tls {
        return Ok(Box::new(stream));
    }
    let name = match host {
        TargetHost::Address(ip) => ServerName::from(*ip),
        TargetHost::Name(name) => {
            ServerName::try_from(name.clone()).map_err(|_| Error::HttpRequestUriInvalid)?
        }
    };
    let stream = tls()?.connect(name, stream).await.map_err(insecure)?;
    Ok(Box::new(stream))
}

/// TLS as this machine trusts it: its certificates, or those that SSL_CERT_FILE and SSL_CERT_DIR name.
fn tls() -> Result<TlsConnector, Error> {
    static TLS: OnceLock<Option<Arc<rustls::ClientConfig>>> = OnceLock::new();
    let config = TLS.get_or_init(|| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().ok()?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Some(Arc::new(config))
    });
    match config {
        Some(config) => Ok(TlsConnector::from(config.clone())),
        None => Err(Error::ConfigurationError),
    }
}

fn unknown_name() -> Error {
    Error::DnsError {
        rcode: Some("there is no such name".into()),
        info_code: None,
    }
}

fn unconnected(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::ConnectionRefused,
        io::ErrorKind::TimedOut => Error::ConnectionTimeout,
        _ => Error::DestinationUnavailable,
    }
}

fn insecure(error: io::Error) -> Error {
    let tls = error.get_ref().and_then(|it| it.downcast_ref());
    match tls {
        Some(rustls::Error::InvalidCertificate(_)) => Error::TlsCertificateError,
        Some(rustls::Error::AlertReceived(alert)) => Error::TlsAlertReceived {
            alert_id: Some(u8::from(*alert)),
            alert_message: Some(format!("{alert:?}")),
        },
        Some(_) => Error::TlsProtocolError,
        None => Error::ConnectionTerminated,
    }
}

fn broken(error: hyper::Error) -> Error {
    if error.is_timeout() {
        Error::HttpResponseTimeout
    } else if error.is_parse_too_large() {
        Error::HttpResponseHeaderSectionSize(Some(MOST_HEAD_BYTES as u32))
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else if error.is_parse() {
        Error::HttpProtocolError
    } else {
        Error::ConnectionTerminated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_the_path_and_the_query_alone() {
        for (uri, told) in [
            ("http://a.org", "/"),
            ("http://a.org?x=1", "/?x=1"),
            ("https://a.org:81/b?x=1", "/b?x=1"),
            ("http://a.org//b.org/c", "//b.org/c"),
        ] {
            let uri: Uri = uri.parse().unwrap();
            assert_eq!(origin_form(&uri).to_string(), told);
        }
    }
}
