//! Who we are to nodes of other machines: a certificate that a token was redeemed for, in a folder.
//!
//! Owns that folder: `identity.pem`, readable by its owner only, and `head`, where the certificate came from, one
//! `HOST:PORT` a line. Must not: know sessions.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use wasmrun_net::{ClientId, ClusterId, Identity, IdentityError, JoinError, Role, Token};
use wasmrun_net::{FileError, Timing, TokenKind};

/// The environment variable that names the folder.
pub const IDENTITY_VARIABLE: &str = "WASMRUN_IDENTITY";

/// Where the certificate came from.
const HEAD: &str = "head";

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The token is for something else.
    #[error(
        "this token lets a node join, and no client: make one with `wasmrun node token create --client`"
    )]
    NodeToken,
    /// The folder has another cluster's.
    #[error(
        "{} has a certificate of another cluster, which would be lost: name another folder with --identity DIR or \
         {IDENTITY_VARIABLE}, or remove it", folder.display()
    )]
    OtherCluster {
        /// The folder.
        folder: PathBuf,
    },
    /// The cluster does not give one.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// What was given is no client's.
    #[error(
        "the cluster has given something else than a client's certificate; use the same wasmrun on both sides"
    )]
    NotClient,
    /// There is none to renew.
    #[error(
        "there is no certificate in {} to renew: get one with `wasmrun login TOKEN`", folder.display()
    )]
    None {
        /// The folder.
        folder: PathBuf,
    },
    /// What is in the folder.
    #[error("the certificate in {} cannot be used", folder.display())]
    Identity {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        error: IdentityError,
    },
    /// The system.
    #[error("{} cannot be used: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The folder of the user's identity where none is named: as `WASMRUN_IDENTITY` says, else `wasmrun/client` in the
/// user's folder for settings. `None` where there is no such folder.
pub fn default_identity() -> Option<PathBuf> {
    let from_env = |name| {
        let value = std::env::var_os(name).filter(|it| !it.is_empty());
        value.map(PathBuf::from)
    };
    if let Some(folder) = from_env(IDENTITY_VARIABLE) {
        return Some(folder);
    }
    let settings = from_env("XDG_CONFIG_HOME").filter(|dir| dir.is_absolute());
    let settings = settings.or_else(|| Some(from_env("HOME")?.join(".config")))?;
    Some(settings.join("wasmrun/client"))
}

/// The identity in a folder; `None` if there is none.
///
/// # Errors
/// When others could read its key, or it is no identity.
pub fn load(folder: &Path) -> Result<Option<Identity>, IdentityError> {
    match Identity::load(folder) {
        Ok(identity) => Ok(Some(identity)),
        Err(IdentityError::File(FileError::Io { source, .. }))
            if source.kind() == io::ErrorKind::NotFound =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Redeems a token for a certificate, and keeps that in a folder, in the place of one of the same cluster.
///
/// # Errors
/// When the token is not for clients or does not open, nobody can be asked, or the folder has another cluster's.
pub async fn login(token: &Token, folder: &Path) -> Result<Identity, LoginError> {
    if token.kind != TokenKind::Client {
        return Err(LoginError::NodeToken);
    }
    // Before the token is used up.
    if let Some(there) = existing(folder)?
        && there.fingerprint() != token.authority
    {
        let folder = folder.to_owned();
        return Err(LoginError::OtherCluster { folder });
    }
    std::fs::create_dir_all(folder).map_err(|error| LoginError::Io {
        path: folder.to_owned(),
        error,
    })?;
    let head = folder.join(HEAD);
    can_write(folder, &head).map_err(|error| LoginError::Io {
        path: head.clone(),
        error,
    })?;
    let identity = wasmrun_net::join(token, &Timing::default()).await?;
    let Role::Client(_) = identity.role() else {
        return Err(LoginError::NotClient);
    };
    save(&identity, folder)?;
    let lines: String = token.addresses.iter().map(|it| format!("{it}\n")).collect();
    std::fs::write(&head, lines).map_err(|error| LoginError::Io { path: head, error })?;
    Ok(identity)
}

/// Gets a further certificate by the one in a folder, and keeps it in its place.
///
/// # Errors
/// When there is none, it has ended, or the cluster's head cannot be asked.
pub async fn renew(folder: &Path) -> Result<Identity, LoginError> {
    let there = existing(folder)?.ok_or_else(|| LoginError::None {
        folder: folder.to_owned(),
    })?;
    let head = folder.join(HEAD);
    let lines = std::fs::read_to_string(&head);
    let lines = lines.map_err(|error| LoginError::Io { path: head, error })?;
    let mut addresses = Vec::new();
    for line in lines.lines() {
        // One of several may still have an address.
        addresses.extend(tokio::net::lookup_host(line).await.into_iter().flatten());
    }
    let renewed = wasmrun_net::renew(&there, &addresses, &Timing::default()).await?;
    save(&renewed, folder)?;
    Ok(renewed)
}

/// How long an identity is still of use.
pub fn time_left(identity: &Identity) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    Duration::from_secs(identity.valid_until_s()).saturating_sub(now)
}

/// Whether files can be made in a folder, and this one written, as far as that can be told beforehand.
fn can_write(folder: &Path, file: &Path) -> std::io::Result<()> {
    if file.is_dir() {
        return Err(std::io::ErrorKind::IsADirectory.into());
    }
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    let made = std::fs::write(&probe, [0; 4096]);
    // Also where the disk took a part of it.
    let removed = std::fs::remove_file(&probe);
    made.and(removed)
}

fn existing(folder: &Path) -> Result<Option<Identity>, LoginError> {
    load(folder).map_err(|error| LoginError::Identity {
        folder: folder.to_owned(),
        error,
    })
}

fn save(identity: &Identity, folder: &Path) -> Result<(), LoginError> {
    identity.save(folder).map_err(|error| LoginError::Identity {
        folder: folder.to_owned(),
        error,
    })
}
