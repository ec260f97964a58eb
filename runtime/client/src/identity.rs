//! Who we are to nodes of other machines: a certificate that a token was redeemed for, or that a person has logged in for, in
//! a folder.
//!
//! Owns that folder: `identity.pem`, readable by its owner only; `head`, where the certificate came from, one
//! `HOST:PORT` a line; and `login`, the same, if a person has logged in there. Must not: know sessions, or how people log in.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use wasmrun_net::{
    ClientId, ClusterId, Fingerprint, Identity, IdentityError, JoinError, Login, Role, Token,
};
use wasmrun_net::{FileError, Timing, TokenKind};

/// The environment variable that names the folder.
pub const IDENTITY_VARIABLE: &str = "WASMRUN_IDENTITY";

/// Where the certificate came from.
const HEAD: &str = "head";
/// Where a person has logged in for it.
const LOGIN: &str = "login";

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
    prepare(folder, token.authority)?;
    let identity = wasmrun_net::join(token, &Timing::default()).await?;
    let lines: String = token.addresses.iter().map(|it| format!("{it}\n")).collect();
    keep(&identity, folder, &lines)?;
    match std::fs::remove_file(folder.join(LOGIN)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LoginError::Io {
            path: folder.join(LOGIN),
            error,
        }),
        _ => Ok(identity),
    }
}

/// Asks a head (`HOST:PORT`) how people log in, and sees whether a certificate could be kept in a folder. Only a head with
/// this authority is believed, if one is given; and only one of the cluster of the certificate that is there.
///
/// # Errors
/// When the head cannot be asked or lets nobody log in, or the folder has another cluster's.
pub async fn begin_login(
    head: &str,
    authority: Option<Fingerprint>,
    folder: &Path,
) -> Result<Login, LoginError> {
    let login = Login::begin(head, authority, &Timing::default()).await?;
    prepare(folder, login.authority())?;
    Ok(login)
}

/// Gets a certificate for who an ID token says we are, and keeps it in a folder.
///
/// # Errors
/// When the head cannot be asked or lets us not in, or the folder cannot be written.
pub async fn finish_login(
    login: Login,
    id_token: String,
    head: &str,
    folder: &Path,
) -> Result<Identity, LoginError> {
    let identity = login.finish(id_token, &Timing::default()).await?;
    let line = format!("{head}\n");
    keep(&identity, folder, &line)?;
    let path = folder.join(LOGIN);
    std::fs::write(&path, line).map_err(|error| LoginError::Io { path, error })?;
    Ok(identity)
}

/// The head (`HOST:PORT`) at which a person has logged in for the certificate in a folder. Such a certificate is not renewed.
pub fn login_head(folder: &Path) -> Option<String> {
    let line = std::fs::read_to_string(folder.join(LOGIN)).ok()?;
    Some(line.trim().to_owned())
}

/// Sees whether a certificate of this authority can be kept in a folder.
fn prepare(folder: &Path, authority: Fingerprint) -> Result<(), LoginError> {
    if let Some(there) = existing(folder)?
        && there.fingerprint() != authority
    {
        let folder = folder.to_owned();
        return Err(LoginError::OtherCluster { folder });
    }
    let failed = |path: PathBuf, error| LoginError::Io { path, error };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder.to_owned(), error))?;
    let head = folder.join(HEAD);
    can_write(folder, &head).map_err(|error| failed(head, error))
}

fn keep(identity: &Identity, folder: &Path, heads: &str) -> Result<(), LoginError> {
    let Role::Client(_) = identity.role() else {
        return Err(LoginError::NotClient);
    };
    save(identity, folder)?;
    let path = folder.join(HEAD);
    std::fs::write(&path, heads).map_err(|error| LoginError::Io { path, error })
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
