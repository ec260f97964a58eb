//! Calls to a cluster of etcd servers: which of them, in whose name, and how often.
//!
//! Owns the connection, retries and the meaning of etcd's errors. Must not: know what is asked. Invariant:
//! a call that may have changed something is never sent a second time, unless that does no harm.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::pb::{AuthenticateRequest, AuthenticateResponse};
use crate::backoff::Backoff;
use crate::error::Error;
use crate::types::{LeaseId, MAX_PAGE_BYTES, Revision};

/// The largest answer that we take from etcd: some full pages.
const MAX_ANSWER_BYTES: usize = 80 * MAX_PAGE_BYTES;

/// How soon a server that says nothing at all counts as gone.
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How to reach etcd.
#[derive(Clone)]
pub struct EtcdConfig {
    /// Its servers: `http://HOST:PORT` or `https://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// What all keys in etcd begin with, so that several clusters can share it: `/wasmrun/CLUSTER/`.
    pub prefix: String,
    /// For `https` endpoints.
    pub tls: EtcdTls,
    /// User name and password, where etcd asks for them.
    pub user: Option<(String, String)>,
    /// How long a request is tried before it is given up.
    pub patience: Duration,
}

/// Certificates for etcd, as PEM text.
#[derive(Clone, Default)]
pub struct EtcdTls {
    /// Who may have signed etcd's certificate. Needed for `https`.
    pub ca: Option<String>,
    /// Our certificate and its key, where etcd asks for them.
    pub identity: Option<(String, String)>,
}

impl EtcdConfig {
    /// These servers without encryption or user, for a cluster of this name.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>, cluster: &str) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: format!("/wasmrun/{cluster}/"),
            tls: EtcdTls::default(),
            user: None,
            patience: Duration::from_secs(15),
        }
    }
}

impl fmt::Debug for EtcdConfig {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .finish_non_exhaustive()
    }
}

/// Why a configuration for etcd cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EtcdConfigError {
    /// No servers.
    #[error("no etcd server is named: give at least one, such as http://127.0.0.1:2379")]
    NoEndpoints,
    /// No address of a server.
    #[error("'{endpoint}' is no address of an etcd server ({why}); it looks like http://HOST:PORT")]
    Endpoint {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// Encryption without somebody to trust.
    #[error(
        "'{endpoint}' is encrypted, but no CA certificate is given: name the one that signed etcd's"
    )]
    NoCa {
        /// The server.
        endpoint: String,
    },
    /// The prefix is too long to leave room for keys.
    #[error("the prefix of keys has {bytes} bytes, and {limit} are the most; choose a shorter one")]
    Prefix {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
}

/// The longest prefix, in bytes.
const MAX_PREFIX_BYTES: usize = 512;

/// Whether a call may be sent again if it is not known what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    Harmless,
    Harmful,
}

/// A connection to one of the servers, and the name we go by there.
#[derive(Clone)]
struct Open {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    /// Tells it from later ones.
    number: u64,
}

#[derive(Default)]
struct Current {
    open: Option<Open>,
    /// How many connections were tried.
    tried: u64,
}

/// The way to etcd.
pub struct Connection {
    endpoints: Vec<Endpoint>,
    user: Option<(String, String)>,
    patience: Duration,
    current: Mutex<Current>,
    /// One at a time connects; the others wait for that.
    connecting: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uris: Vec<_> = self.endpoints.iter().map(Endpoint::uri).collect();
        f.debug_struct("Connection")
            .field("endpoints", &uris)
            .finish_non_exhaustive()
    }
}

/// Why a call did not give an answer.
struct Failed {
    error: Error,
    /// Whether another try makes sense, and then where.
    next: Next,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The answer stands.
    Stop,
    /// On the same connection, with a new token.
    NewToken,
    /// On another connection.
    NewConnection,
}

impl Connection {
    /// Checks the configuration. Connects when it is first needed.
    pub fn new(config: &EtcdConfig) -> Result<Self, EtcdConfigError> {
        if config.endpoints.is_empty() {
            return Err(EtcdConfigError::NoEndpoints);
        }
        if config.prefix.len() > MAX_PREFIX_BYTES {
            return Err(EtcdConfigError::Prefix {
                bytes: config.prefix.len(),
                limit: MAX_PREFIX_BYTES,
            });
        }
        let endpoints = config.endpoints.iter();
        Ok(Self {
            endpoints: endpoints
                .map(|endpoint| make_endpoint(endpoint, &config.tls))
                .collect::<Result<_, _>>()?,
            user: config.user.clone(),
            patience: config.patience,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    /// Sends a message and waits for its answer.
    pub async fn call<M, A>(
        &self,
        path: &'static str,
        message: M,
        repeat: Repeat,
    ) -> Result<A, Error>
    where
        M: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let deadline = Instant::now() + self.patience;
        let mut backoff = Backoff::default();
        loop {
            let attempt = async {
                let open = self.open().await?;
                let message = message.clone();
                let answer = unary(&open, path, message, repeat).await;
                answer.map_err(|failed| (Some(open), failed))
            };
            let (open, failed) = match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failed)) => failed,
                Err(_) => {
                    let why = "etcd takes too long to answer";
                    return Err(match repeat {
                        Repeat::Harmless => Error::unavailable(why),
                        Repeat::Harmful => Error::uncertain(why),
                    });
                }
            };
            match (failed.next, open) {
                (Next::Stop, _) => return Err(failed.error),
                (Next::NewToken | Next::NewConnection, Some(open)) => self.give_up(open.number),
                (Next::NewToken | Next::NewConnection, None) => {}
            }
            let pause = backoff.pause();
            if Instant::now() + pause >= deadline || !failed.error.is_retryable() {
                return Err(failed.error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a message and gives the stream of its answers. Tries once.
    pub async fn stream<M, A>(&self, path: &'static str, message: M) -> Result<Streaming<A>, Error>
    where
        M: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let open = self.open().await.map_err(|(_, failed)| failed.error)?;
        let mut grpc = grpc(&open);
        let sent = async {
            grpc.ready()
                .await
                .map_err(|error| Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::<M, A>::default();
            let path = PathAndQuery::from_static(path);
            grpc.server_streaming(request(&open, message), path, codec)
                .await
        };
        match sent.await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => {
                let failed = explain(&status, Repeat::Harmless);
                if failed.next != Next::Stop {
                    self.give_up(open.number);
                }
                Err(failed.error)
            }
        }
    }

    /// What an error in the midst of a stream means. The connection is left if it is to blame.
    pub fn stream_broke(&self, status: &Status) -> Error {
        let failed = explain(status, Repeat::Harmless);
        if failed.next != Next::Stop {
            let number = self.current.lock().open.as_ref().map(|open| open.number);
            number.into_iter().for_each(|number| self.give_up(number));
        }
        failed.error
    }

    /// The connection is of no more use, unless a later one took its place.
    fn give_up(&self, number: u64) {
        let mut current = self.current.lock();
        current.open.take_if(|open| open.number == number);
    }

    /// The open connection, or a new one to the next server.
    async fn open(&self) -> Result<Open, (Option<Open>, Failed)> {
        let _connecting = self.connecting.lock().await;
        let number = {
            let mut current = self.current.lock();
            if let Some(open) = &current.open {
                return Ok(open.clone());
            }
            current.tried += 1;
            current.tried
        };
        let servers = self.endpoints.len() as u64;
        let at = usize::try_from(number % servers).expect("it is below the number of servers");
        let endpoint = &self.endpoints[at];
        let unreachable = |why: String| Failed {
            error: Error::unavailable(format_args!("etcd at {}: {why}", endpoint.uri())),
            next: Next::NewConnection,
        };
        let channel = endpoint.connect().await;
        let channel = channel.map_err(|error| (None, unreachable(with_sources(&error))))?;
        let mut open = Open {
            channel,
            token: None,
            number,
        };
        if let Some((name, password)) = &self.user {
            let who = AuthenticateRequest {
                name: name.clone(),
                password: password.clone(),
            };
            let path = "/etcdserverpb.Auth/Authenticate";
            let answer = unary(&open, path, who, Repeat::Harmless).await;
            let answer: AuthenticateResponse = answer.map_err(|failed| (None, failed))?;
            let token = answer.token.parse();
            let token =
                token.map_err(|_| (None, unreachable("its token is no text".to_owned())))?;
            open.token = Some(token);
        }
        self.current.lock().open = Some(open.clone());
        Ok(open)
    }
}

fn make_endpoint(text: &str, tls: &EtcdTls) -> Result<Endpoint, EtcdConfigError> {
    let bad = |why: String| EtcdConfigError::Endpoint {
        endpoint: text.to_owned(),
        why,
    };
    let endpoint =
        Endpoint::from_shared(text.to_owned()).map_err(|error| bad(error.to_string()))?;
    let is_encrypted = match endpoint.uri().scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(bad("it begins with neither http:// nor https://".to_owned())),
    };
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    if !is_encrypted {
        return Ok(endpoint);
    }
    let Some(ca) = &tls.ca else {
        return Err(EtcdConfigError::NoCa {
            endpoint: text.to_owned(),
        });
    };
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(certificate, key));
    }
    endpoint
        .tls_config(config)
        .map_err(|error| bad(with_sources(&error)))
}

fn grpc(open: &Open) -> Grpc<Channel> {
    Grpc::new(open.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
}

fn request<M>(open: &Open, message: M) -> Request<M> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    // A server that is cut off from the others says so, instead of letting us wait.
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = &open.token {
        metadata.insert("token", token.clone());
    }
    request
}

async fn unary<M, A>(
    open: &Open,
    path: &'static str,
    message: M,
    repeat: Repeat,
) -> Result<A, Failed>
where
    M: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let mut grpc = grpc(open);
    grpc.ready().await.map_err(|error| Failed {
        error: Error::unavailable(with_sources(&error)),
        next: Next::NewConnection,
    })?;
    let codec = ProstCodec::<M, A>::default();
    let sent = grpc.unary(
        request(open, message),
        PathAndQuery::from_static(path),
        codec,
    );
    match sent.await {
        Ok(response) => Ok(response.into_inner()),
        Err(status) => Err(explain(&status, repeat)),
    }
}

/// What an error of etcd or of the way to it means for a call.
fn explain(status: &Status, repeat: Repeat) -> Failed {
    let says = status.message();
    let stop = |error| Failed {
        error,
        next: Next::Stop,
    };
    let why = || says.to_owned();
    match status.code() {
        Code::Unauthenticated => Failed {
            error: Error::unavailable(says),
            next: Next::NewToken,
        },
        Code::PermissionDenied => stop(Error::Denied { why: why() }),
        Code::InvalidArgument if says.contains("too large") => stop(Error::invalid(format_args!(
            "{says}; its own limit must be at least the 1.5 MiB that it has by default (--max-request-bytes)"
        ))),
        Code::InvalidArgument if says.contains("user name") || says.contains("authentication") => {
            stop(Error::Denied { why: why() })
        }
        Code::ResourceExhausted if says.contains("space") => stop(Error::Full { why: why() }),
        Code::OutOfRange if says.contains("compacted") => stop(Error::Compacted {
            next: Revision::ZERO,
        }),
        Code::NotFound if says.contains("lease") => stop(Error::LeaseLost { lease: LeaseId(0) }),
        Code::InvalidArgument
        | Code::OutOfRange
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Unimplemented => stop(Error::invalid(says)),
        Code::DataLoss => stop(Error::corrupt(says)),
        Code::ResourceExhausted => Failed {
            error: Error::unavailable(says),
            next: Next::NewConnection,
        },
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable => {
            let why = with_sources(status);
            let is_harmless = repeat == Repeat::Harmless || is_unsent(status);
            Failed {
                error: match is_harmless {
                    true => Error::unavailable(why),
                    false => Error::uncertain(why),
                },
                next: Next::NewConnection,
            }
        }
    }
}

/// Whether there was never a connection to send it on, or etcd says that it did nothing.
fn is_unsent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    let says = status.message();
    says.contains("etcdserver: no leader") || says.contains("etcdserver: not capable")
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}
