//! Getting a certificate: with a token, with the one that will soon end, or by logging in as a person.
//!
//! Owns both sides of that conversation: one request and one answer on the one stream of a connection
//! of its own. Invariants: the private key stays where it was made; the token's secret goes only to a
//! server of the authority that the token pins; without a valid token or certificate nothing is learnt but how people
//! log in, if they can.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quinn::Connection;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::CertificateDer;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::config::{Enrolment, Timing};
use crate::identity::{
    Applicant, ClusterId, Fingerprint, Identity, IdentityError, JoinKey, Person, PublicKey,
    ROLE_NODE_DNS, Redeemed, Refused, Role, Token,
};
use crate::session::Sessions;
use crate::transport::tls::{self, ALPN_JOIN};
use crate::transport::{self, Kind};
use crate::wire::frame::FrameReader;
use crate::wire::hello::{self, Answer, HelloError, JoinAnswer, JoinAsk, JoinRequest, Version};
use crate::wire::{Close, ConnectError, farewell};

/// The version of this conversation, which does not depend on that of the messages.
const VERSION: Version = Version { major: 1, minor: 1 };
/// How many attempts in a row may fail from one address, …
const ATTEMPTS: u32 = 10;
/// … and how long it takes until there is one more.
const ATTEMPT_EVERY: Duration = Duration::from_secs(2);
/// The longest credential of a person, in bytes: so that the request is not too long.
const MOST_CREDENTIAL_BYTES: usize = 12 << 10;
/// How many addresses are remembered for that.
const ADDRESSES: usize = 4096;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The cluster said no.
    #[error("{address} does not let us join: {why}")]
    Refused {
        /// Who.
        address: SocketAddr,
        /// Why.
        why: Refused,
    },
    /// Nobody could be asked.
    #[error("no node of the cluster could be asked; the last one tried: {0}")]
    Connect(ConnectError),
    /// A name has no address.
    #[error("'{name}' has no address: check the name, or the name service")]
    Name {
        /// The name.
        name: String,
    },
    /// There is no socket.
    #[error("no UDP socket can be opened: check the limits of this process")]
    Socket(#[source] std::io::Error),
    /// The answer is no identity.
    #[error("the cluster's answer cannot be used: use the same wasmrun on both sides")]
    Identity(#[from] IdentityError),
    /// The identity or token cannot be used for TLS.
    #[error("this identity cannot be used: {0}; join again with a token")]
    Tls(String),
    /// What shows who somebody is does not fit.
    #[error(
        "the ID token has {bytes} bytes, and a head takes {MOST_CREDENTIAL_BYTES}: have the provider put less into it, such \
         as fewer groups"
    )]
    Credential {
        /// How long it is.
        bytes: usize,
    },
}

/// A person who is about to log in: a key, and what the head has said.
pub struct Login {
    key: JoinKey,
    authority: Fingerprint,
    addresses: Vec<SocketAddr>,
    offer: String,
}

/// Gives certificates to those who ask for one here.
pub(crate) struct Issuer {
    cluster: ClusterId,
    /// `None` refuses all.
    enrolment: Option<Enrolment>,
    /// They know whose certificates were taken back.
    sessions: Arc<Sessions>,
    attempts: Mutex<Attempts>,
}

impl JoinError {
    /// Whether others of the cluster would say the same.
    fn is_final(&self) -> bool {
        matches!(self, Self::Refused { why, .. } if *why != Refused::NotHere)
    }
}

impl Login {
    /// Asks a head how people log in. Only one with this authority is believed; without one any is.
    ///
    /// # Errors
    /// When nobody answers, and when people cannot log in.
    pub async fn begin(
        head: &str,
        authority: Option<Fingerprint>,
        timing: &Timing,
    ) -> Result<Self, JoinError> {
        let unknown = |_| JoinError::Name { name: head.into() };
        let addresses = tokio::net::lookup_host(head).await.map_err(unknown)?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let key = JoinKey::generate();
        let request = JoinRequest {
            ask: JoinAsk::Offer,
            key: key.public().0,
            // Nothing is given for it.
            proof: Vec::new(),
        };
        let (found, offer) = ask_pinned(&addresses, authority, &request, timing).await?;
        let authority = authority.unwrap_or(found);
        Ok(Self {
            key,
            authority,
            addresses,
            offer,
        })
    }

    /// How to log in, in the words of the head.
    pub fn offer(&self) -> &str {
        &self.offer
    }

    /// The authority of the cluster.
    pub fn authority(&self) -> Fingerprint {
        self.authority
    }

    /// What the credential should have in it, so that it serves this login alone.
    pub fn nonce(&self) -> String {
        self.key.public().nonce()
    }

    /// Gets the certificate, with what shows who the person is. It is not saved yet.
    ///
    /// # Errors
    /// When nobody answers, and when the person is not let in.
    pub async fn finish(self, credential: String, timing: &Timing) -> Result<Identity, JoinError> {
        if credential.len() > MOST_CREDENTIAL_BYTES {
            let bytes = credential.len();
            return Err(JoinError::Credential { bytes });
        }
        let request = JoinRequest {
            proof: self.key.prove(&self.authority, None),
            key: self.key.public().0,
            ask: JoinAsk::Login(credential),
        };
        let pinned = Some(self.authority);
        let (_, chain) = ask_pinned(&self.addresses, pinned, &request, timing).await?;
        Ok(self.key.certified(&chain)?)
    }
}

/// Joins the cluster that a token is from. The identity is not saved yet.
///
/// # Errors
/// When nobody answers, and when the token does not open.
pub async fn join(token: &Token, timing: &Timing) -> Result<Identity, JoinError> {
    let key = JoinKey::generate();
    let request = JoinRequest {
        proof: key.prove(&token.authority, Some(token.id)),
        key: key.public().0,
        ask: JoinAsk::Token(token.id, token.secret.clone()),
    };
    let mut last = JoinError::Connect(ConnectError::NoAddress);
    for name in &token.addresses {
        let Ok(addresses) = tokio::net::lookup_host(name).await else {
            last = JoinError::Name { name: name.clone() };
            continue;
        };
        let addresses: Vec<SocketAddr> = addresses.collect();
        match ask_pinned(&addresses, Some(token.authority), &request, timing).await {
            Ok((_, chain)) => return Ok(key.certified(&chain)?),
            Err(error) if error.is_final() => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Asks one after the other, without a certificate, until one decides: its authority, and its answer.
async fn ask_pinned(
    addresses: &[SocketAddr],
    authority: Option<Fingerprint>,
    request: &JoinRequest,
    timing: &Timing,
) -> Result<(Fingerprint, String), JoinError> {
    let tls = tls::pinned(authority).map_err(|error| JoinError::Tls(error.to_string()))?;
    let mut last = JoinError::Connect(ConnectError::NoAddress);
    for address in addresses {
        match ask(*address, &tls, request, timing).await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_final() => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A further certificate for the same role, from a node that has the authority.
///
/// # Errors
/// When nobody answers, and when the cluster does not want us any more.
pub async fn renew(
    identity: &Identity,
    addresses: &[SocketAddr],
    timing: &Timing,
) -> Result<Identity, JoinError> {
    let key = JoinKey::generate();
    let request = JoinRequest {
        proof: key.prove(&identity.fingerprint(), None),
        key: key.public().0,
        ask: JoinAsk::Renew,
    };
    let tls =
        tls::client(identity, ALPN_JOIN).map_err(|error| JoinError::Tls(error.to_string()))?;
    let mut last = JoinError::Connect(ConnectError::NoAddress);
    for address in addresses {
        match ask(*address, &tls, &request, timing).await {
            Ok((_, chain)) => return Ok(key.certified(&chain)?),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The authority of the head, and its answer.
async fn ask(
    address: SocketAddr,
    tls: &Arc<QuicClientConfig>,
    request: &JoinRequest,
    timing: &Timing,
) -> Result<(Fingerprint, String), JoinError> {
    let local: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let endpoint = transport::endpoint(SocketAddr::new(local, 0), Handle::current())
        .map_err(JoinError::Socket)?;
    let config = transport::client(tls.clone(), address.ip(), Kind::Control, timing);
    let asked = async {
        let connecting = endpoint
            .connect_with(config, address, ROLE_NODE_DNS)
            .map_err(|error| ConnectError::Address {
                address,
                why: error.to_string(),
            })?;
        let from_quinn = |error: quinn::ConnectionError| ConnectError::from_quinn(address, &error);
        let connection = connecting.await.map_err(from_quinn)?;
        let (mut writer, reader) = connection.open_bi().await.map_err(from_quinn)?;
        let frame = hello::frame(VERSION, hello::SOFTWARE, request);
        // If it fails, reading says why.
        let _ = writer.write_chunk(frame).await;
        let answer = FrameReader::new(reader, hello::MAX_BYTES).one().await;
        let answer = answer.map_err(|error| ConnectError::from_read(address, &error));
        let authority = authority_of(&connection);
        connection.close(Close::Finished.code(), b"");
        let answer = hello::decode::<JoinAnswer>(VERSION, &answer?);
        let answer = answer.map_err(|error| ConnectError::Hello { address, error })?;
        let authority = authority.ok_or_else(|| ConnectError::Untrusted {
            address,
            why: "it does not say its authority".into(),
        })?;
        Ok::<_, ConnectError>((authority, answer.2))
    };
    let answer = match timeout(timing.handshake, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(ConnectError::Unreachable { address }),
    };
    // So that the closing reaches the other side.
    let _ = timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
    match answer.map_err(JoinError::Connect)? {
        (authority, Answer::Yes(answer)) => Ok((authority, answer)),
        (_, Answer::No(Refused::Person(why))) => {
            // What others say may not reach a terminal as it is.
            let why = why.chars().filter(|it| !it.is_control()).collect();
            let why = Refused::Person(why);
            Err(JoinError::Refused { address, why })
        }
        (_, Answer::No(why)) => Err(JoinError::Refused { address, why }),
    }
}

/// The authority of the other side, which TLS has checked it against: it stands behind its own certificate.
fn authority_of(connection: &Connection) -> Option<Fingerprint> {
    let chain = connection.peer_identity()?;
    let chain = chain.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.get(1).map(Fingerprint::of)
}

impl Issuer {
    pub(crate) fn new(
        cluster: ClusterId,
        enrolment: Option<Enrolment>,
        sessions: Arc<Sessions>,
    ) -> Self {
        Self {
            cluster,
            enrolment,
            sessions,
            attempts: Mutex::default(),
        }
    }

    /// Answers one request on a connection, and closes it.
    pub(crate) async fn answer(
        &self,
        connection: &Connection,
        from: SocketAddr,
    ) -> Result<(), ConnectError> {
        let from_quinn = |error: quinn::ConnectionError| ConnectError::from_quinn(from, &error);
        let role = tls::certified(connection, self.cluster);
        if self.sessions.is_revoked(role) {
            connection.close(Close::Revoked.code(), b"");
            let why = "its certificate was revoked".into();
            return Err(ConnectError::Untrusted { address: from, why });
        }
        let (mut writer, reader) = connection.accept_bi().await.map_err(from_quinn)?;
        let words = FrameReader::new(reader, hello::MAX_BYTES).one().await;
        let words = words.map_err(|error| ConnectError::from_read(from, &error))?;
        let (answer, error) = match hello::decode::<JoinRequest>(VERSION, &words) {
            Ok((_, _, request)) if request.ask == JoinAsk::Offer => (self.offer(), None),
            Ok((_, _, request)) => {
                let decided = self.decide(connection, from, request).await;
                match &decided {
                    Ok(_) => tracing::info!(%from, "a certificate was issued"),
                    Err(why) => tracing::warn!(%from, %why, "a certificate was refused"),
                }
                (decided, None)
            }
            // Our preamble goes with it, so that the other side can explain the rest.
            Err(error) => {
                tracing::warn!(%from, why = %error, "a certificate was refused");
                (Err(Refused::Proof), Some(error))
            }
        };
        let answer: JoinAnswer = match answer {
            Ok(chain) => Answer::Yes(chain),
            Err(why) => Answer::No(why),
        };
        let frame = hello::frame(VERSION, hello::SOFTWARE, &answer);
        if writer.write_chunk(frame).await.is_ok() {
            farewell(connection, writer).await;
        }
        match error {
            Some(error) if error != HelloError::Malformed => Err(ConnectError::Hello {
                address: from,
                error,
            }),
            _ => Ok(()),
        }
    }

    fn offer(&self) -> Result<String, Refused> {
        let enrolment = self.enrolment.as_ref().ok_or(Refused::NotHere)?;
        enrolment.enroll.offer().ok_or(Refused::NoLogin)
    }

    async fn decide(
        &self,
        connection: &Connection,
        from: SocketAddr,
        request: JoinRequest,
    ) -> Result<String, Refused> {
        let enrolment = self.enrolment.as_ref().ok_or(Refused::NotHere)?;
        self.attempts.lock().check(from.ip(), Instant::now())?;
        let authority = enrolment.authority.fingerprint();
        let decided = self.redeem(connection, from, request, authority).await;
        if decided.is_err() {
            self.attempts.lock().failed(from.ip(), Instant::now());
        }
        let (key, (role, access), lifetime) = decided?;
        let lifetime = lifetime.min(enrolment.lifetime);
        Ok(enrolment
            .authority
            .certify(&key, role, access.as_ref(), lifetime))
    }

    async fn redeem(
        &self,
        connection: &Connection,
        from: SocketAddr,
        request: JoinRequest,
        authority: Fingerprint,
    ) -> Result<(PublicKey, Redeemed, Duration), Refused> {
        let enrolment = self.enrolment.as_ref().ok_or(Refused::NotHere)?;
        let key = PublicKey(request.key);
        let token = match &request.ask {
            JoinAsk::Token(id, _) => Some(*id),
            JoinAsk::Renew | JoinAsk::Login(_) => None,
            // It is answered without a certificate.
            JoinAsk::Offer => return Err(Refused::Proof),
        };
        if !key.proves(&authority, token, &request.proof) {
            return Err(Refused::Proof);
        }
        match request.ask {
            JoinAsk::Token(token, secret) => {
                let applicant = Applicant::new(token, secret, from, key.0);
                let redeemed = enrolment.enroll.redeem(&applicant).await?;
                Ok((key, redeemed, enrolment.lifetime))
            }
            JoinAsk::Renew => {
                let names = tls::names(connection, self.cluster).ok_or(Refused::NoCertificate)?;
                let role = names.role.ok_or(Refused::NoCertificate)?;
                enrolment.enroll.renew(role).await?;
                Ok((key, (role, names.access), enrolment.lifetime))
            }
            JoinAsk::Login(credential) => {
                let person = Person::new(credential, from, key.0);
                let (access, lifetime) = enrolment.enroll.login(&person).await?;
                let role = Role::Client(person.client());
                Ok((key, (role, Some(access)), lifetime))
            }
            JoinAsk::Offer => Err(Refused::Proof),
        }
    }
}

/// Attempts to join that failed, by address: a bucket that fills by one every now and then.
#[derive(Debug, Default)]
struct Attempts {
    /// When the bucket would be full again.
    full_at: BTreeMap<IpAddr, Instant>,
}

impl Attempts {
    fn check(&self, from: IpAddr, now: Instant) -> Result<(), Refused> {
        let full_at = self.full_at.get(&network(from));
        let missing = full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let allowed = ATTEMPT_EVERY * (ATTEMPTS - 1);
        if missing <= allowed {
            return Ok(());
        }
        let wait = (missing - allowed).as_secs() + 1;
        Err(Refused::TooMany {
            retry_after_s: u32::try_from(wait).unwrap_or(u32::MAX),
        })
    }

    fn failed(&mut self, from: IpAddr, now: Instant) {
        if self.full_at.len() >= ADDRESSES {
            self.full_at.retain(|_, at| *at > now);
        }
        // Still too many: somebody has many addresses. The one that has failed least goes.
        if self.full_at.len() >= ADDRESSES {
            let least = self.full_at.iter().min_by_key(|(_, at)| **at);
            let least = least.map(|(address, _)| *address);
            least.and_then(|address| self.full_at.remove(&address));
        }
        let at = self.full_at.entry(network(from)).or_insert(now);
        *at = (*at).max(now) + ATTEMPT_EVERY;
    }
}

/// One household has 2^64 addresses in IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => {
            let prefix = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_attempts_wait_and_others_do_not() {
        let mut attempts = Attempts::default();
        let now = Instant::now();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        for _ in 0..ATTEMPTS {
            assert_eq!(attempts.check(one, now), Ok(()));
            attempts.failed(one, now);
        }
        assert!(matches!(
            attempts.check(one, now),
            Err(Refused::TooMany {
                retry_after_s: 1..=3
            })
        ));
        assert_eq!(attempts.check(other, now), Ok(()));
        assert_eq!(attempts.check(one, now + ATTEMPT_EVERY), Ok(()));
        for n in 0..2 * ADDRESSES {
            attempts.failed(IpAddr::V4(Ipv4Addr::from_bits(n as u32)), now);
        }
        assert!(attempts.full_at.len() <= ADDRESSES);
    }
}
