//! Modules by their digest: kept for other nodes, and fetched from them, once.
//!
//! Owns the files in the node's state folder. Must not: load what does not have the digest that it was
//! asked for by.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use wasmrun_engine::Module;
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{Digest, NodeId};
use wasmrun_net::{BulkRefusal, BulkSender, Range};

use super::Exchange;
use super::holders::Holders;
use super::protocol::{Bulk, Request, Response};

/// How many modules stay loaded; the one that was loaded first goes first.
const MOST_LOADED: usize = 256;
/// How long a node may take to fetch a module that it is to keep.
const HOLDING: Duration = Duration::from_secs(60);

/// See the [module](self).
pub(crate) struct Modules {
    /// Where their bytes are kept.
    folder: Option<PathBuf>,
    loaded: Mutex<Loaded>,
    /// Those whose bytes somebody is looking for just now, for all who want them.
    wanted: Mutex<HashMap<Digest, Weak<OnceCell<Bytes>>>>,
    /// How long some are, so that no file need be asked: each task that goes to another node asks.
    lengths: Mutex<BTreeMap<Digest, u64>>,
    /// Who else keeps those that must outlive this node.
    holders: Arc<Holders>,
}

#[derive(Default)]
struct Loaded {
    by_digest: HashMap<Digest, Arc<OnceCell<Module>>>,
    order: VecDeque<Digest>,
}

impl Modules {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            loaded: Mutex::default(),
            wanted: Mutex::default(),
            lengths: Mutex::default(),
            holders: Arc::default(),
        }
    }

    /// Keeps a module's bytes for nodes that will need it. Blocks this thread while they are written.
    ///
    /// # Errors
    /// When the state folder cannot be written to.
    pub(crate) fn keep(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        let Some(path) = self.path(digest) else {
            return Ok(());
        };
        if path.exists() {
            self.set_len(digest, bytes.len() as u64);
            return Ok(());
        }
        let folder = path.parent().expect("it is in a folder");
        std::fs::create_dir_all(folder)?;
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!(".{digest}.{number}"));
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(bytes)?;
            // A name that is there after a crash must have all its bytes.
            file.sync_all()?;
            std::fs::rename(&new, path)
        });
        if let Err(error) = written {
            // What is there of it takes the room that others need.
            let _ = std::fs::remove_file(&new);
            return Err(error);
        }
        self.set_len(digest, bytes.len() as u64);
        Ok(())
    }

    /// How long a module is, in bytes, if it is kept.
    pub(crate) fn len(&self, digest: &Digest) -> Option<u64> {
        if let Some(len) = self.lengths.lock().get(digest) {
            return Some(*len);
        }
        let len = std::fs::metadata(self.path(digest)?).ok()?.len();
        self.set_len(digest, len);
        Some(len)
    }

    fn set_len(&self, digest: &Digest, len: u64) {
        let mut lengths = self.lengths.lock();
        if lengths.len() >= MOST_LOADED {
            lengths.clear();
        }
        lengths.insert(*digest, len);
    }

    fn path(&self, digest: &Digest) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.join(format!("{digest}.wasm")))
    }

    /// Has a module after a while, as if it were fetched until then.
    #[cfg(test)]
    pub(super) fn put_after(
        &self,
        module: Module,
        pause: std::time::Duration,
    ) -> impl Future<Output = ()> + use<> {
        self.set_len(&module.digest(), 1);
        let cell = self.cell(&module.digest());
        async move {
            let fetched = async {
                tokio::time::sleep(pause).await;
                module
            };
            cell.get_or_init(|| fetched).await;
        }
    }

    /// A module that is loaded already.
    pub(super) fn get(&self, digest: &Digest) -> Option<Module> {
        let loaded = self.loaded.lock();
        loaded.by_digest.get(digest)?.get().cloned()
    }

    fn cell(&self, digest: &Digest) -> Arc<OnceCell<Module>> {
        let mut loaded = self.loaded.lock();
        if let Some(cell) = loaded.by_digest.get(digest) {
            return cell.clone();
        }
        let cell = Arc::<OnceCell<Module>>::default();
        loaded.by_digest.insert(*digest, cell.clone());
        loaded.order.push_back(*digest);
        if loaded.order.len() > MOST_LOADED
            && let Some(oldest) = loaded.order.pop_front()
        {
            loaded.by_digest.remove(&oldest);
        }
        cell
    }

    /// Where a module's bytes will be for all who want them now.
    fn wanted(&self, digest: &Digest) -> Arc<OnceCell<Bytes>> {
        let mut wanted = self.wanted.lock();
        if let Some(bytes) = wanted.get(digest).and_then(Weak::upgrade) {
            return bytes;
        }
        wanted.retain(|_, bytes| bytes.strong_count() > 0);
        let bytes = Arc::<OnceCell<Bytes>>::default();
        wanted.insert(*digest, Arc::downgrade(&bytes));
        bytes
    }

    /// What is kept of a module, if it is what it was. Blocks this thread while it is read.
    fn read_verified(&self, digest: &Digest) -> Option<Bytes> {
        let path = self.path(digest)?;
        let bytes = std::fs::read(&path).ok()?;
        if Digest::of(&bytes) == *digest {
            return Some(bytes.into());
        }
        // Somebody has changed it.
        let _ = std::fs::remove_file(path);
        self.lengths.lock().remove(digest);
        None
    }

    /// Sends a range of a module's bytes.
    pub(super) async fn serve(
        &self,
        digest: &Digest,
        range: Range,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        let path = self.path(digest).ok_or(BulkRefusal::NotHere)?;
        let reading = tokio::task::spawn_blocking(move || read(&path, range));
        let part = reading.await.map_err(|_| BulkRefusal::Failed)??;
        to.write(part).await.map_err(|_| BulkRefusal::Failed)
    }
}

/// A range of a file. Blocks this thread while it is read.
fn read(path: &Path, range: Range) -> Result<Bytes, BulkRefusal> {
    let file = File::open(path).map_err(|_| BulkRefusal::NotHere)?;
    let len = file.metadata().map_err(|_| BulkRefusal::Failed)?.len();
    if range.offset.saturating_add(range.len) > len {
        return Err(BulkRefusal::Malformed);
    }
    let mut part = vec![0; range.len as usize];
    let read = file.read_exact_at(&mut part, range.offset);
    read.map_err(|_| BulkRefusal::Failed)?;
    Ok(part.into())
}

impl Exchange {
    /// A module, loaded, from this node's folder or any other node that lives. `len` is how many bytes it has.
    ///
    /// # Errors
    /// When no node gives it.
    pub(crate) async fn find_module(&self, digest: Digest, len: u64) -> Result<Module, TaskError> {
        let none = || TaskError::Sandbox(format!("module {digest}: no node that lives has it"));
        let fabric = self.fabric().ok_or_else(none)?;
        let mut found = Err(none());
        // This node has itself for a peer only if it has the file.
        for node in std::iter::once(self.me).chain(fabric.others()) {
            found = self.module(node, digest, len).await;
            if found.is_ok() {
                break;
            }
        }
        found
    }

    /// Sees to it that another node that lives has a module, besides some that may be lost with this one, if there is one.
    /// False if none has said in time that it keeps it.
    pub(crate) async fn share_module(
        &self,
        digest: Digest,
        len: u64,
        besides: &[NodeId],
        patience: Duration,
    ) -> bool {
        let Some(fabric) = self.fabric() else {
            return false;
        };
        let mut others = fabric.others();
        others.retain(|node| !besides.contains(node));
        let ask = move |node| {
            let fabric = fabric.clone();
            async move {
                let request = Request::Hold(digest, len);
                let answer = fabric.request(node, request, HOLDING).await;
                matches!(answer, Ok(Response::Holds(true)))
            }
        };
        let holders = &self.modules.holders;
        holders.share(digest, others, patience, ask).await
    }

    /// Keeps another node's module. Whether it is kept.
    pub(super) async fn hold(&self, from: NodeId, digest: Digest, len: u64) -> bool {
        if self.modules.len(&digest).is_some() {
            return true;
        }
        match self.bytes(from, digest, len).await {
            Ok(_) => self.modules.len(&digest).is_some(),
            Err(error) => {
                tracing::info!(%digest, %error, "another node's module is not kept");
                false
            }
        }
    }

    /// A module's bytes, from this node's folder, or else from that node, and then they are in the folder. All who
    /// want them at a time share one transfer.
    async fn bytes(&self, from: NodeId, digest: Digest, len: u64) -> Result<Bytes, TaskError> {
        let wanted = self.modules.wanted(&digest);
        let bytes = wanted.get_or_try_init(|| self.fetch(from, digest, len));
        bytes.await.cloned()
    }

    async fn fetch(&self, from: NodeId, digest: Digest, len: u64) -> Result<Bytes, TaskError> {
        let kept = self.with_files(move |modules| modules.read_verified(&digest));
        if let Some(kept) = kept.await.flatten() {
            return Ok(kept);
        }
        let bytes = Bytes::from(self.pull_module(from, digest, len).await?);
        let fetched = bytes.clone();
        let kept = self.with_files(move |modules| {
            if Digest::of(&fetched) != digest {
                return Err("its bytes are not those of its digest");
            }
            if let Err(error) = modules.keep(&digest, &fetched) {
                tracing::warn!(%digest, %error, "a module cannot be kept in the state folder");
            }
            Ok(())
        });
        let kept = kept.await.unwrap_or(Err("the node is stopping"));
        kept.map_err(|why| TaskError::Sandbox(format!("module {digest}: {why}")))?;
        self.count(|counters| &counters.modules_in, 1);
        self.count(|counters| &counters.module_bytes_in, bytes.len() as u64);
        Ok(bytes)
    }

    /// Does something with files, on a thread that may wait for them. None when the node is stopping.
    async fn with_files<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Modules) -> T + Send + 'static,
    ) -> Option<T> {
        let this = self.this.clone();
        let acting = move || this.upgrade().map(|this| act(&this.modules));
        tokio::task::spawn_blocking(acting).await.ok().flatten()
    }

    async fn pull_module(
        &self,
        from: NodeId,
        digest: Digest,
        len: u64,
    ) -> Result<Vec<u8>, TaskError> {
        let failed = |why: String| TaskError::Sandbox(format!("module {digest}: {why}"));
        let stopping = || failed("the node is stopping".into());
        let most = {
            let shared = self.shared.upgrade().ok_or_else(stopping)?;
            shared.engine.config().module_bytes as u64
        };
        if len > most {
            let why = format!("it has {len} bytes, and this node takes {most}");
            return Err(failed(why));
        }
        let fabric = self.fabric().ok_or_else(stopping)?;
        let pulled = fabric.pull_whole(from, Bulk::Module(digest), len).await;
        let pulled = pulled.ok_or_else(|| failed("its node is gone".into()))?;
        pulled.map_err(|error| failed(error.to_string()))
    }

    /// A module, loaded, fetched from this node if it is not here yet. All who need it share one transfer.
    pub(super) async fn module(
        &self,
        from: NodeId,
        digest: Digest,
        len: u64,
    ) -> Result<Module, TaskError> {
        let cell = self.modules.cell(&digest);
        let module = cell.get_or_try_init(|| self.load(from, digest, len)).await;
        module.cloned()
    }

    async fn load(&self, from: NodeId, digest: Digest, len: u64) -> Result<Module, TaskError> {
        let failed = |why: String| TaskError::Sandbox(format!("module {digest}: {why}"));
        let stopping = || failed("the node is stopping".into());
        let shared = self.shared.upgrade().ok_or_else(stopping)?;
        let engine = shared.engine.clone();
        let loading = shared.loading.clone();
        drop(shared);
        let bytes = self.bytes(from, digest, len).await?;
        // Compiling takes seconds and all cores.
        match loading.run(move || engine.load(&bytes)).await {
            Ok(loaded) => loaded.map_err(|error| failed(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}
