//! The folder in which a node keeps who it is.
//!
//! Owns its files, but for what is in those of `net` and `control`:
//!
//! | file | what |
//! |---|---|
//! | `lock` | locked by the process that uses the folder |
//! | `life` | how often a node was started from it: its incarnation |
//! | `identity.pem` | the node's key and certificate, and the authority's certificate |
//! | `cluster.json` | where the head is, at nodes that joined |
//! | `authority.pem` | the cluster's authority, at the head |
//! | `secrets.key` | the key of the cluster's secrets, once it was wanted |
//! | `resources` | the changes of `node resource --persist`: a line for each resource |
//! | `control/` | the embedded control store, at the head |
//! | `audit/` | the audit, if that has no other folder |
//!
//! Invariants: one process at a time; no incarnation is used twice; folder and files are readable by their owner
//! only.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::resource::{Pool, PoolKind, ResourceName};

/// Why a node's state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process does.
    #[error(
        "another node uses the state folder {}; stop it, or give this one another --state-dir", path.display()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// Others could use it.
    #[error(
        "the state folder {} {fault}, and it holds a private key: choose another --state-dir, or chmod 700 it", path.display()
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// A file of it is not what we wrote.
    #[error(
        "{} is damaged: restore it from a backup, or remove the folder and join the cluster again", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("{} cannot be {doing}: check the path, its permissions and that the disk has room", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Where the head is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// `HOST:PORT` each.
    pub(crate) addresses: Vec<String>,
    /// Who it is, once it was reached.
    pub(crate) node: Option<NodeId>,
}

/// A folder that is ours until it is dropped.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    lock: File,
}

impl StateDir {
    /// Opens a folder; makes it if it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|source| failed(path, "made", source))?;
        let meta = fs::metadata(path).map_err(|source| failed(path, "read", source))?;
        let fault = match () {
            () if !meta.is_dir() => Some("is no folder"),
            () if meta.uid() != rustix::process::geteuid().as_raw() => {
                Some("belongs to another user")
            }
            () if meta.mode() & 0o077 != 0 => Some("can be used by others"),
            () => None,
        };
        if let Some(fault) = fault {
            let path = path.into();
            return Err(StateError::Folder { path, fault });
        }
        let file = path.join("lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&file)
            .map_err(|source| failed(&file, "opened", source))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                path: path.into(),
                lock,
            }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::InUse { path: path.into() }),
            Err(error) => Err(failed(&file, "locked", error.into())),
        }
    }

    /// Lets another process use the folder from now on.
    pub(crate) fn release(&self) {
        // It is released with the file in any case.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.path.join(file).exists()
    }

    /// Begins a new incarnation. It is on the disk before anybody hears of it.
    pub(crate) fn next_incarnation(&self) -> Result<Incarnation, StateError> {
        let path = self.path.join("life");
        let last = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse::<u64>().ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(0),
            Err(source) => return Err(failed(&path, "read", source)),
        };
        let next = last.and_then(|last| last.checked_add(1));
        let next = next.ok_or(StateError::Damaged { path })?;
        self.write("life", format!("{next}\n").as_bytes())?;
        Ok(Incarnation(next))
    }

    /// The changes of `node resource --persist`; none of a resource that was deleted.
    pub(crate) fn resources(&self) -> Result<BTreeMap<ResourceName, Option<Pool>>, StateError> {
        let path = self.path.join(RESOURCES);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(source) => return Err(failed(&path, "read", source)),
        };
        let line = |line: &str| {
            let (name, amount) = line.split_once('=')?;
            let name: ResourceName = name.parse().ok()?;
            let pool = match amount {
                "" => None,
                pool => Some(Pool::parse(&name, pool).ok()?),
            };
            Some((name, pool))
        };
        let lines: Option<_> = text.lines().map(line).collect();
        lines.ok_or(StateError::Damaged { path })
    }

    /// Persists how much the node has of a resource, and in which kind of pool; `None`: it was deleted. Call it under a lock.
    pub(crate) fn keep_resource(
        &self,
        name: &ResourceName,
        pool: Option<Pool>,
    ) -> Result<(), StateError> {
        let mut all = self.resources()?;
        all.insert(name.clone(), pool);
        let line = |(name, pool): (&ResourceName, &Option<Pool>)| match pool {
            Some(pool) if pool.kind() == PoolKind::Sum && !name.is_memory() => {
                format!("{name}=sum:{}\n", pool.capacity())
            }
            Some(pool) => format!("{name}={}\n", pool.capacity()),
            None => format!("{name}=\n"),
        };
        let text: String = all.iter().map(line).collect();
        self.write(RESOURCES, text.as_bytes())
    }

    /// Where the head was last.
    pub(crate) fn head(&self) -> Result<Option<Head>, StateError> {
        let path = self.path.join(HEAD);
        match fs::read(&path) {
            Ok(bytes) => {
                let head = serde_json::from_slice(&bytes);
                head.map(Some).map_err(|_| StateError::Damaged { path })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed(&path, "read", source)),
        }
    }

    pub(crate) fn set_head(&self, head: &Head) -> Result<(), StateError> {
        let json = serde_json::to_vec_pretty(head).expect("it is written to memory");
        self.write(HEAD, &json)
    }

    /// Writes a file whole or not at all.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let path = self.path.join(name);
        let temporary = self.path.join(format!("{name}.new"));
        let written = (|| {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.path)?.sync_all()
        })();
        written.map_err(|source| failed(&path, "written", source))
    }
}

/// Where the control store is in it, at the head.
pub(super) const CONTROL: &str = "control";

const HEAD: &str = "cluster.json";
const RESOURCES: &str = "resources";

fn failed(path: &Path, doing: &'static str, source: io::Error) -> StateError {
    StateError::Io {
        path: path.into(),
        doing,
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn changed_resources_keep_their_kind() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("state")).unwrap();
        assert!(state.resources().unwrap().is_empty());
        let pool = |name: &str, text: &str| {
            let name: ResourceName = name.parse().unwrap();
            let pool = Pool::parse(&name, text).unwrap();
            (name, Some(pool))
        };
        let mut all = BTreeMap::from([
            pool("bw", "sum:3.5"),
            pool("CPU", "2"),
            pool("memory", "4096"),
            pool("tpu", "4"),
        ]);
        all.insert("fpga".parse().unwrap(), None);
        for name in all.keys() {
            let pool = all[name].as_ref().map(|pool| match pool.kind() {
                PoolKind::Sum => Pool::sum(pool.capacity()),
                PoolKind::Indexed => Pool::for_name(name, pool.capacity()).unwrap(),
            });
            state.keep_resource(name, pool).unwrap();
        }
        let text = fs::read_to_string(dir.path().join("state/resources")).unwrap();
        assert_eq!(text, "CPU=2\nmemory=4096\nbw=sum:3.5\nfpga=\ntpu=4\n");
        assert_eq!(state.resources().unwrap(), all);
        fs::write(dir.path().join("state/resources"), "bw=x\n").unwrap();
        assert!(matches!(state.resources(), Err(StateError::Damaged { .. })));
    }

    #[test]
    fn a_folder_has_one_user_and_incarnations_only_grow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let state = StateDir::open(&path).unwrap();
        assert!(matches!(
            StateDir::open(&path),
            Err(StateError::InUse { .. })
        ));
        assert_eq!(state.next_incarnation().unwrap(), Incarnation(1));
        assert_eq!(state.head().unwrap(), None);
        let head = Head {
            addresses: vec!["127.0.0.1:1".into()],
            node: Some(NodeId::from_bytes([3; 16])),
        };
        state.set_head(&head).unwrap();
        drop(state);
        let state = StateDir::open(&path).unwrap();
        assert_eq!(state.next_incarnation().unwrap(), Incarnation(2));
        assert_eq!(state.head().unwrap(), Some(head));
        fs::write(path.join("life"), "x").unwrap();
        assert!(matches!(
            state.next_incarnation(),
            Err(StateError::Damaged { .. })
        ));
    }

    #[test]
    fn a_folder_that_others_can_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(
            StateDir::open(dir.path()),
            Err(StateError::Folder { .. })
        ));
    }
}
