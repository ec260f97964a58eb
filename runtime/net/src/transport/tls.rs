//! TLS as nodes and clients use it.
//!
//! Owns the configurations of rustls. Invariants: TLS 1.3 only; a server's certificate is always
//! checked against the cluster's authority, or against one whose hash is pinned; no resumption, so that
//! a certificate is looked at for each connection. That a peer without a certificate gets nothing but
//! enrolment is the business of who accepts, by ALPN.

use std::sync::Arc;

use quinn::Connection;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};

use super::packet;
use crate::identity::{ClusterId, Fingerprint, Identity, Names, Role, names_of};

/// Between members of a cluster. The version of the protocol is in the hello, where a mismatch can be
/// explained.
pub(crate) const ALPN_MEMBER: &[u8] = b"wasmrun";
/// Of clients, for their sessions. The version of what they say is in their own first words.
pub(crate) const ALPN_CLIENT: &[u8] = b"wasmrun-client";
/// For joining and renewing, and for nothing else.
pub(crate) const ALPN_JOIN: &[u8] = b"wasmrun-join";

/// The configurations that follow from an identity.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) server: Arc<QuicServerConfig>,
    pub(crate) member: Arc<QuicClientConfig>,
}

impl Tls {
    pub(crate) fn new(identity: &Identity) -> Result<Self, Error> {
        let roots = roots(identity.authority())?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider())
            // Who joins has none yet. The connection's ALPN decides what it may do without.
            .allow_unauthenticated()
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(identity.chain(), identity.key())?;
        server.alpn_protocols = vec![ALPN_MEMBER.into(), ALPN_JOIN.into(), ALPN_CLIENT.into()];
        server.send_tls13_tickets = 0;
        Ok(Self {
            server: Arc::new(QuicServerConfig::try_from(server).map_err(no_cipher)?),
            member: client(identity, ALPN_MEMBER)?,
        })
    }
}

/// Dials as a member, for one purpose.
pub(crate) fn client(identity: &Identity, alpn: &[u8]) -> Result<Arc<QuicClientConfig>, Error> {
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(identity.authority())?)
        .with_client_auth_cert(identity.chain(), identity.key())?;
    client.alpn_protocols = vec![alpn.into()];
    client.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(
        QuicClientConfig::try_from(client).map_err(no_cipher)?,
    ))
}

/// Dials without a certificate any server whose chain ends in an authority with this hash; in any authority if there is none.
pub(crate) fn pinned(authority: Option<Fingerprint>) -> Result<Arc<QuicClientConfig>, Error> {
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned(authority)))
        .with_no_client_auth();
    client.alpn_protocols = vec![ALPN_JOIN.into()];
    client.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(
        QuicClientConfig::try_from(client).map_err(no_cipher)?,
    ))
}

/// The role in the certificate that a connection was made with, if that is of this cluster.
pub(crate) fn certified(connection: &Connection, cluster: ClusterId) -> Option<Role> {
    names(connection, cluster)?.role
}

/// What the certificate says that a connection was made with, if that is of this cluster. TLS has checked it.
pub(crate) fn names(connection: &Connection, cluster: ClusterId) -> Option<Names> {
    let chain = connection.peer_identity()?;
    let chain = chain.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    let names = names_of(chain.first()?)?;
    (names.cluster == cluster).then_some(names)
}

fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::ring::{self, cipher_suite};
    let mut provider = ring::default_provider();
    // AES-128 is as safe here and faster than AES-256, which comes first by default.
    provider.cipher_suites = vec![
        packet::suite(),
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
}

fn roots(authority: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(Arc::new(roots))
}

fn no_cipher(error: quinn::crypto::rustls::NoInitialCipherSuite) -> Error {
    Error::General(error.to_string())
}

/// Finds the authority with the pinned hash in what the server sends, and then checks the server as a
/// member of the cluster would.
#[derive(Debug)]
struct Pinned(Option<Fingerprint>);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = intermediates
            .iter()
            .find(|certificate| {
                self.0
                    .is_none_or(|pinned| Fingerprint::of(certificate) == pinned)
            })
            .ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        WebPkiServerVerifier::builder_with_provider(
            roots(&authority.clone().into_owned())?,
            provider(),
        )
        .build()
        .map_err(|error| Error::General(error.to_string()))?
        .verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("QUIC has no TLS 1.2".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wasmrun_model::id::NodeId;

    use super::*;
    use crate::identity::{Authority, ROLE_NODE_DNS, unix_now};

    /// Whoever joins has nothing but its own clock to look at a certificate by that the head has just made, by another.
    #[test]
    fn a_certificate_is_valid_for_whoever_is_a_day_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::create(folder.path()).expect("the first one");
        let role = Role::Node(NodeId::from_bytes([1; 16]));
        let identity = authority.issue(role, Duration::from_secs(90 * 24 * 3600));
        let [own, root] = &identity.expect("issued").chain()[..] else {
            panic!("two certificates");
        };
        let name = ServerName::try_from(ROLE_NODE_DNS).expect("a name");
        let pinned = Pinned(Some(authority.fingerprint()));
        let issued = unix_now();
        let look = |ahead_hours: i64| {
            let now = issued.saturating_add_signed(ahead_hours * 3600);
            let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
            let seen = pinned.verify_server_cert(own, std::slice::from_ref(root), &name, &[], now);
            seen.map(drop)
        };
        for ahead_hours in [0, -1, -23, 1, 89 * 24] {
            assert_eq!(look(ahead_hours), Ok(()), "{ahead_hours} h");
        }
        let is_said = |ahead_hours, what: &str| {
            let error = look(ahead_hours).expect_err("it is too far off");
            assert!(error.to_string().contains(what), "{error}");
        };
        is_said(-25, "certificate not valid yet");
        is_said(91 * 24, "certificate expired");
    }
}
