//! The identity of one process: a private key, the certificate for it, and the authority's.
//!
//! Owns the file of an identity and the key that a join request is made with. Invariant: the key is
//! made here and leaves this process only into its own file.

use std::path::Path;

use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use wasmrun_model::access::Access;

use super::files::{self, FileError};
use super::name::{ClusterId, Fingerprint, Role, names_of};
use super::token::TokenId;

/// The file of an identity in its folder.
const FILE: &str = "identity.pem";

/// What stands before everything that a join request signs, so that no signature serves twice.
const PROOF: &[u8] = b"wasmrun join request 1\0";

/// The certificate of a process, its key and the authority that both are from.
pub struct Identity {
    pub(super) cluster: ClusterId,
    pub(super) role: Role,
    pub(super) until: u64,
    access: Option<Access>,
    pub(super) pem: String,
    key: PrivatePkcs8KeyDer<'static>,
    /// The certificate, then the authority's.
    chain: Vec<CertificateDer<'static>>,
}

/// Why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Its file.
    #[error("the identity's file cannot be used")]
    File(#[from] FileError),
    /// What is in it.
    #[error("this is no identity of a wasmrun cluster ({0}): join the cluster again")]
    Malformed(&'static str),
}

/// A key that is to be certified.
pub(crate) struct JoinKey(KeyPair);

/// The public half of an Ed25519 key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicKey(pub(crate) [u8; 32]);

impl Identity {
    /// Reads the identity in a folder.
    ///
    /// # Errors
    /// When there is none, when others could read its key, and when it is not one.
    pub fn load(folder: &Path) -> Result<Self, IdentityError> {
        Self::from_pem(files::read_private(&folder.join(FILE))?)
    }

    /// Writes it into a folder, in the place of the one that is there, at once or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), IdentityError> {
        Ok(files::write_private(&folder.join(FILE), &self.pem, true)?)
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// What it is in the cluster.
    pub fn role(&self) -> Role {
        self.role
    }

    /// What a client may do, if its certificate says.
    pub fn access(&self) -> Option<&Access> {
        self.access.as_ref()
    }

    /// When its certificate ends, in seconds since 1970. It should be renewed long before.
    pub fn valid_until_s(&self) -> u64 {
        self.until
    }

    /// The hash of the authority's certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.authority())
    }

    pub(crate) fn from_pem(pem: String) -> Result<Self, IdentityError> {
        let bad = IdentityError::Malformed;
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| bad("it has no private key"))?;
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| bad("a certificate in it cannot be read"))?;
        let [own, authority] = chain.as_slice() else {
            return Err(bad("it has to have two certificates"));
        };
        let names = names_of(own).ok_or(bad("its certificate has no role"))?;
        let root = names_of(authority).ok_or(bad("the authority has no cluster"))?;
        if root.cluster != names.cluster {
            return Err(bad("certificate and authority are of different clusters"));
        }
        Ok(Self {
            cluster: names.cluster,
            role: names.role.ok_or(bad("its certificate has no role"))?,
            until: names.until,
            access: names.access,
            pem,
            key,
            chain,
        })
    }

    pub(crate) fn authority(&self) -> &CertificateDer<'static> {
        &self.chain[1]
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.chain.clone()
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key.
        write!(f, "Identity({} of cluster {})", self.role, self.cluster)
    }
}

impl JoinKey {
    pub(crate) fn generate() -> Self {
        Self(KeyPair::generate_for(&PKCS_ED25519).expect("an Ed25519 key can be made"))
    }

    pub(crate) fn public(&self) -> PublicKey {
        let raw = self.0.public_key_raw();
        PublicKey(raw.try_into().expect("an Ed25519 key has 32 bytes"))
    }

    /// Shows that the applicant for a certificate has the key. `token` is `None` for a renewal and a login.
    pub(crate) fn prove(&self, authority: &Fingerprint, token: Option<TokenId>) -> Vec<u8> {
        let message = proof(authority, token, &self.public());
        SigningKey::sign(&self.0, &message).expect("Ed25519 can sign anything")
    }

    /// The identity that this key and an authority's answer make.
    pub(crate) fn certified(self, chain_pem: &str) -> Result<Identity, IdentityError> {
        Identity::from_pem(format!("{}{chain_pem}", self.0.serialize_pem()))
    }
}

impl PublicKey {
    pub(crate) fn proves(
        &self,
        authority: &Fingerprint,
        token: Option<TokenId>,
        signature: &[u8],
    ) -> bool {
        ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, &self.0)
            .verify(&proof(authority, token, self), signature)
            .is_ok()
    }

    /// An id that belongs to this key: joining twice with one key makes one node.
    pub(crate) fn id(&self) -> [u8; 16] {
        let hash = blake3::derive_key("wasmrun id of a public key", &self.0);
        hash[..16].try_into().expect("a hash is longer")
    }

    /// A text that belongs to this key, for credentials that can be bound to one.
    pub(crate) fn nonce(&self) -> String {
        let hash = blake3::derive_key("wasmrun nonce of a login", &self.0);
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &PKCS_ED25519
    }
}

fn proof(authority: &Fingerprint, token: Option<TokenId>, key: &PublicKey) -> Vec<u8> {
    let token = token.map_or([0; 8], |token| *token.as_bytes());
    [PROOF, authority.as_bytes(), &token, &key.0].concat()
}
