//! One request to a provider, on a connection of its own.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::provider::ProviderError;
use crate::shown;

/// The longest answer, in bytes.
const MOST_BYTES: usize = 256 << 10;

/// An address that may be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    uri: Uri,
    /// Without brackets.
    host: String,
    port: u16,
    is_tls: bool,
}

impl Url {
    /// `https://…`, or `http://…` with a loopback address.
    pub(crate) fn parse(text: &str) -> Result<Self, ProviderError> {
        let wrong = || ProviderError::Address { url: shown(text) };
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        let host = authority.host();
        let host = host.strip_prefix('[').unwrap_or(host);
        let host = host.strip_suffix(']').unwrap_or(host).to_owned();
        let is_loopback = host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let is_plain = !authority.as_str().contains('@') && !text.contains('#');
        if host.is_empty() || !is_plain || !(is_tls || is_loopback) {
            return Err(wrong());
        }
        let port = authority.port_u16().unwrap_or(match is_tls {
            true => 443,
            false => 80,
        });
        Ok(Self {
            uri,
            host,
            port,
            is_tls,
        })
    }

    /// One below it.
    pub(crate) fn below(&self, path: &str) -> Result<Self, ProviderError> {
        let text = self.uri.to_string();
        match self.uri.query().is_some() {
            true => Err(ProviderError::Address { url: shown(&text) }),
            false => Self::parse(&format!("{}/{path}", text.trim_end_matches('/'))),
        }
    }

    /// Asks, with a form if there is one: the status and the body of the answer.
    pub(crate) async fn ask(
        &self,
        form: Option<&[(&str, &str)]>,
        limit: Duration,
    ) -> Result<(u16, Bytes), ProviderError> {
        let failed = |why: String| ProviderError::Unreachable {
            url: shown(&self.uri.to_string()),
            why: shown(&why),
        };
        match timeout(limit, self.exchange(form)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("no answer for {} s", limit.as_secs()))),
        }
    }

    async fn exchange(&self, form: Option<&[(&str, &str)]>) -> Result<(u16, Bytes), Failed> {
        let request = self.request(form)?;
        let connection = TokioIo::new(self.connect().await?);
        let (mut sender, driver) = http1::handshake(connection).await?;
        let answered = async {
            let response = sender.send_request(request).await?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), MOST_BYTES);
            Ok::<_, Failed>((status, body.collect().await?.to_bytes()))
        };
        // What it ends with, the answer says, too.
        let driven = async {
            let _ = driver.await;
            std::future::pending().await
        };
        tokio::select! {
            answer = answered => answer,
            answer = driven => answer,
        }
    }

    fn request(&self, form: Option<&[(&str, &str)]>) -> Result<Request<Full<Bytes>>, Failed> {
        // Written out, a query has a path before it.
        let path = self.uri.path_and_query().map(ToString::to_string);
        let authority = self.uri.authority().map_or("", |it| it.as_str());
        let request = Request::builder()
            .uri(path.as_deref().unwrap_or("/"))
            .header(header::HOST, HeaderValue::from_str(authority)?)
            .header(header::ACCEPT, "application/json");
        let Some(form) = form else {
            return Ok(request.body(Full::default())?);
        };
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let kind = "application/x-www-form-urlencoded";
        let request = request.method("POST").header(header::CONTENT_TYPE, kind);
        Ok(request.body(Full::from(form))?)
    }

    async fn connect(&self) -> Result<Box<dyn Connection>, Failed> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        if !self.is_tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(self.host.clone())?;
        Ok(Box::new(tls().await?.connect(name, stream).await?))
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// TLS as this machine trusts it: its certificates, or those that SSL_CERT_FILE and SSL_CERT_DIR name.
async fn tls() -> Result<TlsConnector, Failed> {
    static TLS: OnceCell<Arc<rustls::ClientConfig>> = OnceCell::const_new();
    let config = TLS.get_or_try_init(|| async {
        // It reads files.
        let load = || rustls_native_certs::load_native_certs().certs;
        let found = tokio::task::spawn_blocking(load).await?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(found);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok::<_, Failed>(Arc::new(config))
    });
    Ok(TlsConnector::from(config.await?.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_addresses_alone() {
        for url in [
            "https://op.example.com",
            "https://op.example.com:8443/realms/a",
            "http://127.0.0.1:8080",
            "http://[::1]:8080/a",
        ] {
            assert!(Url::parse(url).is_ok(), "{url}");
        }
        for url in [
            "http://op.example.com",
            "http://localhost:8080",
            "http://10.0.0.1",
            "http://127.0.0.1.example.com",
            "ftp://127.0.0.1",
            "https://",
            "https://ann@op.example.com",
            "https://op.example.com#a",
            "op.example.com",
            "",
        ] {
            assert!(Url::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn what_is_below_an_issuer_has_one_slash_before_it() {
        for issuer in ["https://a.org/b", "https://a.org/b/"] {
            let below = Url::parse(issuer).and_then(|it| it.below("c/d"));
            assert_eq!(below, Url::parse("https://a.org/b/c/d"));
        }
        let with_query = Url::parse("https://a.org/?b").expect("an address");
        assert!(with_query.below("c").is_err());
    }
}
