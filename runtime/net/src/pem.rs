//! TLS of servers whose certificate an operator gives, in PEM.
//!
//! Owns what is said of one that cannot be used. Must not: read files.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Which of the two cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PemPart {
    /// The certificate.
    Certificate,
    /// Its key.
    Key,
}

/// Why a certificate and a key are of no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemError {
    /// Which of them.
    pub part: PemPart,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            PemPart::Certificate => "certificate",
            PemPart::Key => "key",
        };
        write!(
            f,
            "the {part} cannot be used: {}; give a certificate and its private key, each as PEM",
            self.why
        )
    }
}

impl std::error::Error for PemError {}

/// TLS with this certificate (and those between it and a root) and this key, for protocols by their ALPN names.
///
/// # Errors
/// When one of them is not PEM of what it should be, or they do not belong together.
pub fn server_tls(cert: &[u8], key: &[u8], protocols: &[&[u8]]) -> Result<ServerConfig, PemError> {
    let of_cert = |why| PemError {
        part: PemPart::Certificate,
        why,
    };
    let of_key = |why| PemError {
        part: PemPart::Key,
        why,
    };
    let certs = CertificateDer::pem_slice_iter(cert).collect::<Result<Vec<_>, _>>();
    let certs = match certs {
        Ok(certs) if certs.is_empty() => Err(pem::Error::NoItemsFound),
        certs => certs,
    };
    let certs = certs.map_err(|error| of_cert(pem_text(error, "certificate")))?;
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|error| of_key(pem_text(error, "unencrypted private key")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|it| it.with_no_client_auth().with_single_cert(certs, key));
    let mut config = config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => of_key("it is not that of the certificate".into()),
        rustls::Error::InvalidCertificate(why) => {
            of_cert(format!("its first certificate cannot be read ({why})"))
        }
        error => of_key(format!("it cannot be read ({error})")),
    })?;
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    Ok(config)
}

/// What is wrong with PEM that is to have this in it.
fn pem_text(error: pem::Error, what: &str) -> String {
    match error {
        pem::Error::NoItemsFound => format!("there is no {what} in it"),
        pem::Error::MissingSectionEnd { .. } => {
            "it is cut off: a line that begins with -----END is missing".to_owned()
        }
        pem::Error::IllegalSectionStart { .. } => {
            "a line that begins with -----BEGIN does not end with -----".to_owned()
        }
        pem::Error::Base64Decode(_) => {
            "what is between two lines -----BEGIN and -----END is not base64".to_owned()
        }
        error => error.to_string(),
    }
}
