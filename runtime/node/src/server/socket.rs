//! The socket's file: where it may lie, and whose it is.
//!
//! Owns the lock beside it, which tells a live node from a dead one's leftovers.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use tokio::net::UnixListener;
use wasmrun_model::wire::Address;

/// Why a node cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another one does.
    #[error(
        "a node is running already at {0}; stop it with `wasmrun node stop`, or choose another --address"
    )]
    Running(Address),
    /// It is no socket of this machine.
    #[error(
        "a node listens for commands at a socket of its machine: use --address unix:PATH instead of {0}; where others \
         reach it on the network says --listen, with --head or --join"
    )]
    Network(Address),
    /// Others could reach into the folder.
    #[error("the folder {path} {fault}; a node's socket must lie in a folder that is yours alone: choose another --address, or chmod 700 it", path = .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// Others cannot reach the socket, or could put another one in its place.
    #[error(
        "the folder {} {fault}, and with --users others are to find the socket there, and only you to change it: choose \
         another --address, or chmod 755 it", path.display()
    )]
    SharedFolder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// Something else is there.
    #[error("cannot listen at {}: it {fault}; choose another --address", path.display())]
    Taken {
        /// The file.
        path: PathBuf,
        /// What it is.
        fault: &'static str,
    },
    /// The system refuses.
    #[error("cannot listen at {address}: {error}; choose another --address")]
    Io {
        /// Where.
        address: Address,
        /// Why not.
        error: io::Error,
    },
}

/// A socket that listens, and its file. Dropping it removes that.
#[derive(Debug)]
pub(super) struct Bound {
    path: PathBuf,
    /// Locked as long as the node runs. The file stays: to remove it would let two nodes lock two.
    _lock: File,
}

impl Drop for Bound {
    fn drop(&mut self) {
        // If it is gone already, so much the better.
        let _ = fs::remove_file(&self.path);
    }
}

/// Listens there, for other users of the machine too if it is shared. What a dead node left behind is replaced.
///
/// Must be called inside a tokio context.
pub(super) fn bind(
    address: &Address,
    is_shared: bool,
) -> Result<(Bound, UnixListener), ServeError> {
    let Address::Unix(path) = address else {
        return Err(ServeError::Network(address.clone()));
    };
    let path = Path::new(path.as_str());
    let io_error = |error| ServeError::Io {
        address: address.clone(),
        error,
    };
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mode = if is_shared { 0o755 } else { 0o700 };
    match DirBuilder::new().recursive(true).mode(mode).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_error(error)),
        _ => check_folder(folder, is_shared).map_err(io_error)??,
    }
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(lock)
        .map_err(io_error)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(ServeError::Running(address.clone())),
        Err(error) => return Err(io_error(error.into())),
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(error)),
        Ok(about) => {
            let fault = match () {
                () if !about.file_type().is_socket() => "is there already, and is no socket",
                // A node would have the lock.
                () if UnixStream::connect(path).is_ok() => {
                    "is the socket of something else that listens"
                }
                () => "",
            };
            if !fault.is_empty() {
                let path = path.to_owned();
                return Err(ServeError::Taken { path, fault });
            }
            fs::remove_file(path).map_err(io_error)?;
        }
    }
    let listener = UnixListener::bind(path).map_err(io_error)?;
    // Who may do what says the kernel, by the user of each connection.
    let mode = if is_shared { 0o666 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(io_error)?;
    let bound = Bound {
        path: path.to_owned(),
        _lock: lock,
    };
    Ok((bound, listener))
}

/// Whether a folder is ours alone, or ours to change and others' to look into.
fn check_folder(path: &Path, is_shared: bool) -> io::Result<Result<(), ServeError>> {
    let meta = fs::metadata(path)?;
    if is_shared {
        let fault = match () {
            () if !meta.is_dir() => "is no folder",
            () if meta.uid() != rustix::process::geteuid().as_raw() => "belongs to another user",
            () if meta.mode() & 0o022 != 0 => "can be changed by others",
            () if meta.mode() & 0o001 == 0 => "is closed to others",
            () => return Ok(Ok(())),
        };
        let path = path.to_owned();
        return Ok(Err(ServeError::SharedFolder { path, fault }));
    }
    let fault = match () {
        () if !meta.is_dir() => "is no folder",
        () if meta.uid() != rustix::process::geteuid().as_raw() => "belongs to another user",
        () if meta.mode() & 0o077 != 0 => "can be used by others",
        () => return Ok(Ok(())),
    };
    Ok(Err(ServeError::Folder {
        path: path.to_owned(),
        fault,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_socket_of_a_dead_node_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let address = address(dir.path());
        let path = dir.path().join("node.sock");
        fs::write(&path, "precious").unwrap();
        let refused = bind(&address, false).unwrap_err().to_string();
        assert!(
            refused.contains("is no socket; choose another"),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        let _somebody = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(
            bind(&address, false),
            Err(ServeError::Taken { .. })
        ));
        assert!(path.exists());
    }

    fn address(dir: &Path) -> Address {
        format!("unix:{}/node.sock", dir.display()).parse().unwrap()
    }

    #[tokio::test]
    async fn one_node_listens_and_leftovers_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let address = address(&dir.path().join("made"));
        let (bound, listener) = bind(&address, false).unwrap();
        assert!(matches!(bind(&address, false), Err(ServeError::Running(_))));
        // As a process that is killed would: the file stays, the lock goes.
        drop(listener);
        let path = bound.path.clone();
        drop(bound);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let (bound, _listener) = bind(&address, false).unwrap();
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn no_socket_is_on_the_network() {
        let refused = bind(&"10.0.0.1:7461".parse().unwrap(), false);
        assert!(matches!(refused, Err(ServeError::Network(_))));
    }

    #[tokio::test]
    async fn where_others_are_to_find_the_socket_only_we_can_change_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [0o700, 0o777] {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
            let refused = bind(&address(dir.path()), true);
            let is_folder = matches!(refused, Err(ServeError::SharedFolder { .. }));
            assert!(is_folder, "{mode:o}: {refused:?}");
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (bound, _listener) = bind(&address(dir.path()), true).unwrap();
        let mode = fs::metadata(&bound.path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o666);
    }

    #[tokio::test]
    async fn a_folder_that_others_can_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let refused = bind(&address(dir.path()), false);
        assert!(
            matches!(refused, Err(ServeError::Folder { .. })),
            "{refused:?}"
        );
    }
}
