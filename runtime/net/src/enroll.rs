//! Getting a certificate: with a token, or with the one that will soon end.
//!
//! Owns both sides of that conversation: one request and one answer on the one stream of a connection
//! of its own. Invariants: the private key stays where it was made; the token's secret goes only to a
//! server of the authority that the token pins; without a valid token or certificate nothing is learnt.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::Connection;
use quinn::crypto::rustls::QuicClientConfig;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::config::Timing;
use crate::core::Core;
use crate::error::{Close, ConnectError};
use crate::frame::FrameReader;
use crate::hello::{self, Answer, HelloError, JoinAnswer, JoinAsk, JoinRequest, Version};
use crate::identity::{
    Applicant, Fingerprint, Identity, IdentityError, JoinKey, PublicKey, ROLE_NODE_DNS, Redeemed,
    Refused, Token,
};
use crate::tls::{self, ALPN_JOIN};
use crate::transport::{self, Kind};

/// The version of this conversation, which does not depend on that of the messages.
const VERSION: Version = Version { major: 1, minor: 0 };
/// How many attempts in a row may fail from one address, …
const ATTEMPTS: u32 = 10;
/// … and how long it takes until there is one more.
const ATTEMPT_EVERY: Duration = Duration::from_secs(2);
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
    let tls = tls::pinned(token.authority).map_err(|error| JoinError::Tls(error.to_string()))?;
    let mut last = JoinError::Connect(ConnectError::NoAddress);
    for name in &token.addresses {
        let Ok(addresses) = tokio::net::lookup_host(name).await else {
            last = JoinError::Name { name: name.clone() };
            continue;
        };
        for address in addresses {
            match ask(address, &tls, &request, timing).await {
                Ok(chain) => return Ok(key.certified(&chain)?),
                // It knows the token; the others would say the same.
                Err(error @ JoinError::Refused { why, .. }) if why != Refused::NotHere => {
                    return Err(error);
                }
                Err(error) => last = error,
            }
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
            Ok(chain) => return Ok(key.certified(&chain)?),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn ask(
    address: SocketAddr,
    tls: &Arc<QuicClientConfig>,
    request: &JoinRequest,
    timing: &Timing,
) -> Result<String, JoinError> {
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
        let frame = hello::frame(VERSION, crate::SOFTWARE, request);
        // If it fails, reading says why.
        let _ = writer.write_chunk(frame).await;
        let answer = FrameReader::new(reader, hello::MAX_BYTES).one().await;
        let answer = answer.map_err(|error| ConnectError::from_read(address, &error));
        connection.close(Close::Finished.code(), b"");
        let answer = hello::decode::<JoinAnswer>(VERSION, &answer?);
        answer.map_err(|error| ConnectError::Hello { address, error })
    };
    let answer = match timeout(timing.handshake, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(ConnectError::Unreachable { address }),
    };
    // So that the closing reaches the other side.
    let _ = timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
    match answer.map_err(JoinError::Connect)?.2 {
        Answer::Yes(chain) => Ok(chain),
        Answer::No(why) => Err(JoinError::Refused { address, why }),
    }
}

/// Answers one request on a connection, and closes it.
pub(crate) async fn answer(
    core: &Arc<Core>,
    connection: &Connection,
    from: SocketAddr,
) -> Result<(), ConnectError> {
    let from_quinn = |error: quinn::ConnectionError| ConnectError::from_quinn(from, &error);
    if core
        .sessions
        .is_revoked(crate::dial::certified(core, connection))
    {
        connection.close(Close::Revoked.code(), b"");
        let why = "its certificate was revoked".into();
        return Err(ConnectError::Untrusted { address: from, why });
    }
    let (mut writer, reader) = connection.accept_bi().await.map_err(from_quinn)?;
    let words = FrameReader::new(reader, hello::MAX_BYTES).one().await;
    let words = words.map_err(|error| ConnectError::from_read(from, &error))?;
    let (answer, error) = match hello::decode::<JoinRequest>(VERSION, &words) {
        Ok((_, _, request)) => (decide(core, connection, from, request).await, None),
        // Our preamble goes with it, so that the other side can explain the rest.
        Err(error) => (Err(Refused::Proof), Some(error)),
    };
    match &answer {
        Ok(_) => tracing::info!(%from, "a certificate was issued"),
        Err(why) => tracing::warn!(%from, %why, "a certificate was refused"),
    }
    let answer: JoinAnswer = match answer {
        Ok(chain) => Answer::Yes(chain),
        Err(why) => Answer::No(why),
    };
    let frame = hello::frame(VERSION, crate::SOFTWARE, &answer);
    if writer.write_chunk(frame).await.is_ok() {
        crate::accept::farewell(connection, writer).await;
    }
    match error {
        Some(error) if error != HelloError::Malformed => Err(ConnectError::Hello {
            address: from,
            error,
        }),
        _ => Ok(()),
    }
}

async fn decide(
    core: &Arc<Core>,
    connection: &Connection,
    from: SocketAddr,
    request: JoinRequest,
) -> Result<String, Refused> {
    let enrolment = core.enrolment.as_ref().ok_or(Refused::NotHere)?;
    core.attempts.lock().check(from.ip(), Instant::now())?;
    let decided = redeem(
        core,
        connection,
        from,
        request,
        enrolment.authority.fingerprint(),
    )
    .await;
    if decided.is_err() {
        core.attempts.lock().failed(from.ip(), Instant::now());
    }
    let (key, (role, access)) = decided?;
    let lifetime = enrolment.lifetime;
    Ok(enrolment
        .authority
        .certify(&key, role, access.as_ref(), lifetime))
}

async fn redeem(
    core: &Arc<Core>,
    connection: &Connection,
    from: SocketAddr,
    request: JoinRequest,
    authority: Fingerprint,
) -> Result<(PublicKey, Redeemed), Refused> {
    let enrolment = core.enrolment.as_ref().ok_or(Refused::NotHere)?;
    let key = PublicKey(request.key);
    let token = match &request.ask {
        JoinAsk::Token(id, _) => Some(*id),
        JoinAsk::Renew => None,
    };
    if !key.proves(&authority, token, &request.proof) {
        return Err(Refused::Proof);
    }
    match request.ask {
        JoinAsk::Token(token, secret) => {
            let applicant = Applicant {
                token,
                secret,
                from,
                key: key.clone(),
            };
            let redeemed = enrolment.enroll.redeem(&applicant).await?;
            Ok((key, redeemed))
        }
        JoinAsk::Renew => {
            let names = crate::dial::names(core, connection).ok_or(Refused::NoCertificate)?;
            let role = names.role.ok_or(Refused::NoCertificate)?;
            enrolment.enroll.renew(role).await?;
            Ok((key, (role, names.access)))
        }
    }
}

/// Attempts to join that failed, by address: a bucket that fills by one every now and then.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
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
