//! TLS of servers whose certificate an operator gives, in PEM.
//!
//! Owns what is said of one that cannot be used, and taking certificates apart from keys. Must not: read files.

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

/// The certificates of PEM that may hold more, such as a private key.
pub fn certificates(pem: &[u8]) -> Vec<u8> {
    let mut is_one = false;
    let lines = pem.split_inclusive(|byte| matches!(byte, b'\n' | b'\r'));
    let kept = lines.filter(|line| {
        is_one |= line.starts_with(b"-----BEGIN CERTIFICATE-----");
        let is_kept = is_one;
        is_one &= !line.starts_with(b"-----END CERTIFICATE-----");
        is_kept
    });
    kept.flatten().copied().collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_taken_apart_from_keys() {
        let block = |kind: &str, text: &str| {
            format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
        };
        let [one, two] = ["b25l", "dHdv"].map(|it| block("CERTIFICATE", it));
        let key = block("PRIVATE KEY", "a2V5");
        let file = format!("{key}Bag Attributes\n{one}{key}{two}{key}");
        assert_eq!(certificates(file.as_bytes()), (one + &two).into_bytes());
        let file = file.replace('\n', "\r");
        let kept = certificates(file.as_bytes());
        let kept = String::from_utf8(kept).unwrap();
        assert!(kept.contains("dHdv") && !kept.contains("a2V5"), "{kept:?}");
        assert_eq!(certificates(key.as_bytes()), b"");
    }
}
