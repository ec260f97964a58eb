//! The cluster's authority: the key that says who belongs to the cluster.
//!
//! Owns that key and its file. Must not: decide who gets a certificate (see [`super::Enroll`]).
//! Invariant: what a certificate says about its holder is decided here, from a [`Role`]; nothing of it
//! comes from the one who asks. Likewise what a client may do.

use std::path::Path;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;
use wasmrun_model::access::Access;

use super::files::{self, FileError};
use super::name::{
    ClusterId, Fingerprint, ROLE_NODE_DNS, Role, access_uri, names_of, until_uri, uri,
};
use super::own::{Identity, IdentityError, JoinKey, PublicKey};

/// The file of an authority in its folder.
const FILE: &str = "authority.pem";
/// Clocks differ: a certificate is valid from this long before it was made.
const BACKDATED: Duration = Duration::from_secs(24 * 3600);
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(20 * 365 * 24 * 3600);

/// The authority of a cluster. Whoever has it can make anybody a member.
pub struct Authority {
    cluster: ClusterId,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Its file.
    #[error("the cluster authority's file cannot be used")]
    File(#[from] FileError),
    /// What is in the file.
    #[error("this is no cluster authority ({0}): restore the file from a backup")]
    Malformed(&'static str),
}

impl Authority {
    /// Makes a new cluster, and writes its authority into a folder.
    ///
    /// # Errors
    /// When there is an authority already, or the file cannot be written.
    pub fn create(folder: &Path) -> Result<Self, AuthorityError> {
        let cluster = ClusterId(super::random());
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("an Ed25519 key can be made");
        let params = authority_params(cluster);
        let certificate = params.self_signed(&key).expect("the parameters are ours");
        let pem = format!("{}{}", key.serialize_pem(), certificate.pem());
        files::write_private(&folder.join(FILE), &pem, false)?;
        Self::from_pem(&pem)
    }

    /// Reads the authority in a folder.
    ///
    /// # Errors
    /// When there is none, when others could read its key, and when it is not one.
    pub fn load(folder: &Path) -> Result<Self, AuthorityError> {
        Self::from_pem(&files::read_private(&folder.join(FILE))?)
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// What a token pins.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// An identity with a key of its own: for the process that has the authority, and for operators
    /// who make clients by hand.
    ///
    /// # Errors
    /// Never, unless the system is out of order.
    pub fn issue(&self, role: Role, lifetime: Duration) -> Result<Identity, IdentityError> {
        let key = JoinKey::generate();
        let chain = self.certify(&key.public(), role, None, lifetime);
        key.certified(&chain)
    }

    /// The certificate for a key, and this authority's, as PEM.
    pub(crate) fn certify(
        &self,
        key: &PublicKey,
        role: Role,
        access: Option<&Access>,
        lifetime: Duration,
    ) -> String {
        let now = super::unix_now();
        let until = now.saturating_add(lifetime.as_secs());
        let mut params = CertificateParams::default();
        params.distinguished_name = name(&role.to_string());
        params.not_before = date(now.saturating_sub(BACKDATED.as_secs()));
        params.not_after = date(until);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![
            san_uri(uri(self.cluster, Some(role))),
            san_uri(until_uri(self.cluster, until)),
        ];
        if let Some(access) = access {
            let uri = access_uri(self.cluster, access);
            params.subject_alt_names.push(san_uri(uri));
        }
        if let Role::Node(_) = role {
            // Only a node can be dialled: a client's certificate does not serve as a server's.
            params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
            let dns = ROLE_NODE_DNS.try_into().expect("it is ASCII");
            params.subject_alt_names.push(SanType::DnsName(dns));
        }
        let certificate = params
            .signed_by(key, &self.issuer)
            .expect("the parameters are ours");
        format!("{}{}", certificate.pem(), self.certificate_pem)
    }

    fn from_pem(pem: &str) -> Result<Self, AuthorityError> {
        let bad = AuthorityError::Malformed;
        let key = KeyPair::from_pem(pem).map_err(|_| bad("it has no private key"))?;
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| bad("it has no certificate"))?;
        let names = names_of(&certificate).ok_or(bad("its certificate names no cluster"))?;
        if names.role.is_some() {
            return Err(bad("this is a member's certificate"));
        }
        let start = pem.find("-----BEGIN CERTIFICATE").unwrap_or(0);
        Ok(Self {
            cluster: names.cluster,
            certificate_pem: pem[start..].into(),
            certificate,
            // All that an issuer's parameters give to what it signs follows from the cluster's id.
            issuer: Issuer::new(authority_params(names.cluster), key),
        })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key.
        write!(f, "Authority({})", self.cluster)
    }
}

fn authority_params(cluster: ClusterId) -> CertificateParams {
    let now = super::unix_now();
    let mut params = CertificateParams::default();
    params.distinguished_name = name(&format!("cluster {cluster}"));
    params.not_before = date(now.saturating_sub(BACKDATED.as_secs()));
    params.not_after = date(now.saturating_add(AUTHORITY_LIFETIME.as_secs()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.subject_alt_names = vec![san_uri(uri(cluster, None))];
    params
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "wasmrun");
    name.push(DnType::CommonName, common);
    name
}

fn san_uri(uri: String) -> SanType {
    SanType::URI(uri.try_into().expect("it is ASCII"))
}

fn date(unix_seconds: u64) -> OffsetDateTime {
    i64::try_from(unix_seconds)
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        // X.509 ends with the year 9999, and so does this type.
        .unwrap_or(OffsetDateTime::new_utc(
            time::Date::MAX,
            time::Time::MIDNIGHT,
        ))
}
