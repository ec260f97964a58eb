//! HTTP (`wasi:http`): requests that guests send, by what they were granted, and those that they answer ([`crate::http_answer`]).
//!
//! Owns which request may be sent and what a guest and its log hear of one that may not. Must not: connect: that is
//! [`crate::http_send`].
//!
//! Every request is checked by itself, a redirection that a guest follows too: the name that it is for, and then each
//! address that the name turns out to have (see [`HttpHost`]).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use hyper::Request;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::http::{HttpHost, is_public};
use wasmtime::component::ResourceTable;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks,
};

use crate::stdio::{CHUNK_BYTES, TaskOutput};

/// How many requests of one sandbox may be under way; others wait.
const MOST_REQUESTS: usize = 100;
/// How many lines about refusals one sandbox's log gets: a guest may try for ever.
const MOST_TOLD: usize = 10;
/// How large headers may be that a guest makes, in memory. Those of a request that it passes on are smaller.
const MOST_FIELD_BYTES: usize = 80 << 10;
/// How much of a body the host takes from a guest at a time. Of each body it has two such pieces at most.
const PIECE_BYTES: usize = 16 << 10;
// What a stream permits may be written: see `host::streams`.
const _: () = assert!(PIECE_BYTES <= CHUNK_BYTES);
/// How long a request waits for a connection, a name included, where the guest says nothing, and at most.
const CONNECT_TIME: Duration = Duration::from_secs(60);
/// The same, for the head of the response, and between two pieces of its body.
const SILENT_TIME: Duration = Duration::from_secs(600);

/// What of a sandbox sends its requests. Made when the guest first does something with HTTP.
pub(crate) struct Http {
    ctx: WasiHttpCtx,
    hooks: Outgoing,
}

struct Outgoing {
    hosts: Arc<[HttpHost]>,
    tenant: TenantName,
    open: Arc<Semaphore>,
    refusals: Arc<RefusalLog>,
}

impl Http {
    pub(crate) fn new(hosts: &[HttpHost], tenant: TenantName, output: Arc<TaskOutput>) -> Self {
        let mut ctx = WasiHttpCtx::new();
        ctx.set_field_size_limit(MOST_FIELD_BYTES);
        Self {
            ctx,
            hooks: Outgoing {
                hosts: hosts.into(),
                tenant,
                open: Arc::new(Semaphore::new(MOST_REQUESTS)),
                refusals: Arc::new(RefusalLog {
                    output,
                    left: Semaphore::new(MOST_TOLD),
                }),
            },
        }
    }

    pub(crate) fn view<'a>(&'a mut self, table: &'a mut ResourceTable) -> WasiHttpCtxView<'a> {
        let Self { ctx, hooks } = self;
        WasiHttpCtxView { hooks, table, ctx }
    }
}

/// The lines that a sandbox's log gets about requests that were refused.
pub(crate) struct RefusalLog {
    output: Arc<TaskOutput>,
    left: Semaphore,
}

impl RefusalLog {
    fn say(&self, refused: &Refused) {
        if let Ok(permit) = self.left.try_acquire() {
            permit.forget();
            self.output.say(&format!("wasmrun: {refused}\n"));
        }
    }
}

/// Why a request was not sent.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("a request to {0} was refused: it was not granted; grant it with --http {0}")]
    NotGranted(String),
    #[error(
        "a request to {name} was refused: it is at {address}, which is not on the public internet, and such an address \
         has to be granted itself; grant it with --http {address} besides"
    )]
    NotPublic { name: String, address: SocketAddr },
}

impl From<&Refused> for Error {
    fn from(refused: &Refused) -> Self {
        match refused {
            Refused::NotGranted(_) => Self::HttpRequestDenied,
            Refused::NotPublic { .. } => Self::DestinationIpProhibited,
        }
    }
}

/// Where a request goes.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) host: TargetHost,
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) enum TargetHost {
    Name(String),
    Address(IpAddr),
}

impl Target {
    fn of(scheme: Option<&Scheme>, authority: Option<&Authority>) -> Option<Self> {
        let is_tls = scheme == Some(&Scheme::HTTPS);
        // The host's header would have what stands before the name, too.
        let authority = authority.filter(|it| !it.as_str().contains('@'))?;
        let port = match authority.port_u16() {
            Some(port) => port,
            // A port that is none.
            None if authority.port().is_some() => return None,
            None if is_tls => 443,
            None => 80,
        };
        let host = authority.host();
        let literal = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let host = match literal.unwrap_or(host).parse() {
            Ok(ip) => TargetHost::Address(ip),
            Err(_) if host.is_empty() || literal.is_some() => return None,
            Err(_) => TargetHost::Name(host.to_owned()),
        };
        Some(Self { host, port, is_tls })
    }

    /// Whether a request may go there, as far as the name tells.
    fn check(&self, hosts: &[HttpHost]) -> Result<(), Refused> {
        let port = self.port;
        let is_granted = |host: &HttpHost| match &self.host {
            TargetHost::Name(name) => host.covers_name(name, port),
            TargetHost::Address(ip) => host.covers_address(SocketAddr::new(*ip, port)),
        };
        match hosts.iter().any(is_granted) {
            true => Ok(()),
            false => Err(Refused::NotGranted(match &self.host {
                TargetHost::Name(name) => format!("{name}:{port}"),
                TargetHost::Address(ip) => SocketAddr::new(*ip, port).to_string(),
            })),
        }
    }

    /// Those of the addresses of a name that it may lead to.
    pub(crate) fn reachable(
        name: &str,
        hosts: &[HttpHost],
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, Refused> {
        let mut refused = None;
        let mut reachable = Vec::new();
        for address in addresses {
            if is_public(address.ip()) || hosts.iter().any(|it| it.covers_address(address)) {
                reachable.push(address);
            } else {
                refused = Some(address);
            }
        }
        match refused {
            Some(address) if reachable.is_empty() => Err(Refused::NotPublic {
                name: name.to_owned(),
                address,
            }),
            _ => Ok(reachable),
        }
    }
}

/// What sends one request.
pub(crate) struct Sending {
    pub(crate) target: Target,
    pub(crate) hosts: Arc<[HttpHost]>,
    pub(crate) tenant: TenantName,
    pub(crate) refusals: Arc<RefusalLog>,
    pub(crate) open: Arc<Semaphore>,
    pub(crate) connect: Duration,
    pub(crate) first_byte: Duration,
    pub(crate) between_bytes: Duration,
}

impl Sending {
    pub(crate) fn refuse(&self, refused: &Refused) -> Error {
        self.refusals.say(refused);
        refused.into()
    }

    /// Waits for its turn among the requests of its sandbox.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, Error> {
        match tokio::time::timeout(self.connect, self.open.clone().acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Error::ConnectionLimitReached),
        }
    }
}

/// A response, and what moves its body along until that ends.
pub(crate) type Sent = (
    hyper::Response<WasiBody>,
    Box<dyn Future<Output = Result<(), Error>> + Send>,
);

impl WasiHttpHooks for Outgoing {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Sent, Error>> + Send> {
        let uri = request.uri();
        let Some(target) = Target::of(uri.scheme(), uri.authority()) else {
            return Box::new(async { Err(Error::HttpRequestUriInvalid) });
        };
        let options = options.unwrap_or_default();
        let within =
            |asked: Option<Duration>, most: Duration| asked.map_or(most, |it| it.min(most));
        let sending = Sending {
            target,
            hosts: self.hosts.clone(),
            tenant: self.tenant.clone(),
            refusals: self.refusals.clone(),
            open: self.open.clone(),
            connect: within(options.connect_timeout, CONNECT_TIME),
            first_byte: within(options.first_byte_timeout, SILENT_TIME),
            between_bytes: within(options.between_bytes_timeout, SILENT_TIME),
        };
        Box::new(async move {
            if let Err(refused) = sending.target.check(&sending.hosts) {
                return Err(sending.refuse(&refused));
            }
            crate::http_send::send(sending, request).await
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        PIECE_BYTES
    }

    fn p3_outgoing_body_chunk_size(&mut self) -> usize {
        PIECE_BYTES
    }

    fn p2_error_from_hyper(&mut self, _: &hyper::Error) -> ErrorCode {
        ErrorCode::HttpProtocolError
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(scheme: Scheme, authority: &str) -> Option<Target> {
        Target::of(Some(&scheme), authority.parse().ok().as_ref())
    }

    #[test]
    fn a_target_is_a_name_or_an_address_with_a_port() {
        let found = target(Scheme::HTTPS, "example.com").unwrap();
        assert!(found.is_tls && found.port == 443);
        let found = target(Scheme::HTTP, "[::1]:81").unwrap();
        assert_eq!(found.host, TargetHost::Address("::1".parse().unwrap()));
        assert!(!found.is_tls && found.port == 81);
        assert_eq!(target(Scheme::HTTP, "a:").map(|it| it.port), Some(80));
        assert_eq!(target(Scheme::HTTP, "user@a.org"), None);
        assert_eq!(Target::of(None, None), None);
    }

    #[test]
    fn nothing_is_reached_that_was_not_granted() {
        let hosts = |texts: &[&str]| -> Vec<HttpHost> {
            texts.iter().map(|it| it.parse().unwrap()).collect()
        };
        let checked = |granted: &[&str], authority: &str| {
            target(Scheme::HTTP, authority)
                .unwrap()
                .check(&hosts(granted))
        };
        assert_eq!(
            checked(&[], "a.org"),
            Err(Refused::NotGranted("a.org:80".into()))
        );
        assert_eq!(checked(&["*.a.org"], "b.a.org"), Ok(()));
        assert_eq!(checked(&["10.0.0.1:81"], "10.0.0.1:81"), Ok(()));
        // An address is granted as one, not by the name of all.
        for address in ["10.0.0.1", "1.1.1.1", "[::ffff:7f00:1]"] {
            assert!(checked(&["*"], address).is_err(), "{address}");
        }
    }

    #[test]
    fn a_name_leads_to_public_addresses_and_to_what_is_granted_itself() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let reachable = |granted: &str, addresses: &[&str]| {
            let hosts: Vec<HttpHost> = vec![granted.parse().unwrap()];
            Target::reachable("a.org", &hosts, addresses.iter().map(|it| at(it)))
        };
        let local = at("127.0.0.1:80");
        assert_eq!(
            reachable("a.org", &["127.0.0.1:80"]),
            Err(Refused::NotPublic {
                name: "a.org".into(),
                address: local
            })
        );
        assert_eq!(reachable("127.0.0.1", &["127.0.0.1:80"]), Ok(vec![local]));
        assert_eq!(
            reachable("a.org", &["[::1]:80", "1.1.1.1:80"]),
            Ok(vec![at("1.1.1.1:80")]),
            "one that is not public is left out"
        );
    }
}
