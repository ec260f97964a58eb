//! Compiled code on disk, so that a module is compiled once per machine.
//!
//! One file per module and engine: the code (an ELF image, mapped straight from the file), some
//! facts about the module, and a seal. Its name is a hash of the module's digest and of
//! everything that shapes code: wasmtime's version, the engine's settings, the processor.
//!
//! Loading a file means running what it contains, so nothing is believed without the seal, a
//! BLAKE3 hash keyed with 32 random bytes that stay in the cache folder: a file that is
//! truncated, damaged or was written by somebody without the key is compiled anew and replaced.
//! The folder and its files must belong to us and be writable by nobody else, so that a file
//! cannot change between the check and its use.
//!
//! Files are written under a temporary name and renamed, so readers and other writers never see
//! half of one. The folder is kept below a size; what was used least recently goes first.

use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use memmap2::Mmap;

const SUFFIX: &str = "code";
const TEMPORARY: &str = "tmp";
const KEY_FILE: &str = "seal.key";

/// What stands at the end of a file: `facts` length (u32), `code` length (u64), both little-
/// endian, [`MAGIC`], then the seal over everything before it and the file's name: one module's
/// code is not another's.
const MAGIC: &[u8; 8] = b"WRCODE01";
const SEAL_BYTES: usize = 32;
const TRAILER_BYTES: usize = 4 + 8 + MAGIC.len() + SEAL_BYTES;

/// A file's time of last use is written again only when it is older than this.
const TOUCH_AFTER: Duration = Duration::from_secs(600);
/// Temporary files older than this were left behind by a crash.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// Whether compiled code can be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheStatus {
    /// No folder was given.
    Off,
    /// It can, in this folder.
    Ready(PathBuf),
    /// It cannot: everything is compiled anew each time.
    Unusable {
        /// The folder.
        dir: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
}

/// The folder of compiled code.
#[derive(Debug)]
pub(crate) struct CodeCache {
    dir: Option<PathBuf>,
    limit_bytes: u64,
    key: OnceLock<Result<[u8; 32], String>>,
}

/// What was found under a name: checked, and mapped.
pub(crate) struct Cached {
    /// The facts, as they were given to [`CodeCache::put`].
    pub(crate) facts: Vec<u8>,
    /// The file, open. The code is at its start.
    pub(crate) file: File,
}

impl CodeCache {
    pub(crate) fn new(dir: Option<PathBuf>, limit_bytes: u64) -> Self {
        Self {
            dir,
            limit_bytes,
            key: OnceLock::new(),
        }
    }

    pub(crate) fn status(&self) -> CacheStatus {
        match (&self.dir, self.key()) {
            (None, _) | (_, None) => CacheStatus::Off,
            (Some(dir), Some(Ok(_))) => CacheStatus::Ready(dir.clone()),
            (Some(dir), Some(Err(reason))) => CacheStatus::Unusable {
                dir: dir.clone(),
                reason: reason.clone(),
            },
        }
    }

    /// Looks `name` up. Anything wrong with the file means that it is not there.
    pub(crate) fn get(&self, name: &str) -> Option<Cached> {
        let path = self.path(name)?;
        let key = self.key()?.as_ref().ok()?;
        let file = File::open(path).ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || !only_ours(&meta) {
            return None;
        }
        // SAFETY: only our own user can write to the file, and wasmrun never writes to a file
        // that it has renamed into place.
        let mapped = unsafe { Mmap::map(&file) }.ok()?;
        let facts = unseal(name, &mapped, key)?.to_vec();
        let now = SystemTime::now();
        let used = meta.modified().ok()?;
        if now.duration_since(used).is_ok_and(|age| age > TOUCH_AFTER) {
            // Only the order of eviction depends on it.
            let _ = file.set_times(FileTimes::new().set_modified(now));
        }
        Some(Cached { facts, file })
    }

    /// Keeps `code` and `facts` under `name`. Failing to is not an error: the next start is
    /// slower, that is all.
    pub(crate) fn put(&self, name: &str, code: &[u8], facts: &[u8]) {
        let (Some(path), Some(Ok(key))) = (self.path(name), self.key()) else {
            return;
        };
        if (code.len() + facts.len() + TRAILER_BYTES) as u64 > self.limit_bytes {
            return;
        }
        if self.write(name, &path, key, code, facts).is_ok() {
            let _ = self.evict(&path);
        }
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(name).with_extension(SUFFIX))
    }

    fn write(
        &self,
        name: &str,
        path: &Path,
        key: &[u8; 32],
        code: &[u8],
        facts: &[u8],
    ) -> io::Result<()> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}-{unique}.{TEMPORARY}", std::process::id()));
        let mut lengths = Vec::with_capacity(TRAILER_BYTES);
        lengths.extend(
            u32::try_from(facts.len())
                .map_err(io::Error::other)?
                .to_le_bytes(),
        );
        lengths.extend((code.len() as u64).to_le_bytes());
        lengths.extend(MAGIC);
        let seal = seal_of(name, &[code, facts, &lengths], key);

        let written = (|| {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&temporary)?;
            for part in [code, facts, &lengths, seal.as_bytes()] {
                file.write_all(part)?;
            }
            fs::rename(&temporary, path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes what was used least recently until the folder is within its limit. `keep` stays.
    fn evict(&self, keep: &Path) -> io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let (mut files, mut total) = (Vec::new(), 0);
        for entry in fs::read_dir(dir)?.flatten() {
            let (path, Ok(meta)) = (entry.path(), entry.metadata()) else {
                continue;
            };
            let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            // Others may have files there too.
            if !is_ours(&entry.file_name().to_string_lossy()) {
                continue;
            }
            match path.extension().and_then(|e| e.to_str()) {
                Some(SUFFIX) if meta.is_file() => {
                    total += meta.len();
                    files.push((used, meta.len(), path));
                }
                Some(TEMPORARY) if used.elapsed().is_ok_and(|age| age > ABANDONED_AFTER) => {
                    let _ = fs::remove_file(path);
                }
                _ => {}
            }
        }
        files.sort();
        for (_, bytes, path) in files {
            if total <= self.limit_bytes {
                break;
            }
            // Somebody else may have removed it: then it is gone all the same.
            if path != keep && (fs::remove_file(&path).is_ok() || !path.exists()) {
                total -= bytes;
            }
        }
        Ok(())
    }

    /// The key of the seals, made on first use; `None` without a folder.
    fn key(&self) -> Option<&Result<[u8; 32], String>> {
        let dir = self.dir.as_ref()?;
        Some(self.key.get_or_init(|| open_dir(dir)))
    }
}

/// Whether a file may be one that a cache has made: of code, half of one, or half of a key.
fn is_ours(name: &str) -> bool {
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    let is_key = stem.len() == 64 && stem.bytes().all(|it| it.is_ascii_hexdigit());
    is_key || (stem == "seal" && name.ends_with(TEMPORARY))
}

/// Makes the folder fit for use and reads, or makes, its key.
fn open_dir(dir: &Path) -> Result<[u8; 32], String> {
    let shown = dir.display();
    let advice = "name another folder with --cache-dir or WASMRUN_CACHE_DIR";
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| format!("cannot make the cache folder {shown}: {error}; {advice}"))?;
    let meta = fs::metadata(dir)
        .map_err(|error| format!("cannot look at the cache folder {shown}: {error}; {advice}"))?;
    if !only_ours(&meta) {
        return Err(format!(
            "the cache folder {shown} belongs to or can be written by others, who could put code \
             into it; chmod go-w it or {advice}"
        ));
    }
    read_or_make_key(&dir.join(KEY_FILE))
        .map_err(|error| format!("cannot use the cache folder {shown}: {error}; {advice}"))
}

fn read_or_make_key(path: &Path) -> io::Result<[u8; 32]> {
    // Another process may be making the key: whoever links it first has made it for all.
    for _ in 0..3 {
        match File::open(path) {
            Ok(mut file) => {
                let (mut key, meta) = ([0; 32], file.metadata()?);
                let whole = meta.len() == key.len() as u64 && file.read_exact(&mut key).is_ok();
                if whole && only_ours(&meta) && meta.mode() & 0o077 == 0 {
                    return Ok(key);
                }
                // Not a key that only we know: make another. What it sealed is compiled anew.
                fs::remove_file(path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut key = [0; 32];
        rustix::rand::getrandom(&mut key[..], rustix::rand::GetRandomFlags::empty())?;
        let temporary = path.with_extension(format!("{}.{TEMPORARY}", std::process::id()));
        let _ = fs::remove_file(&temporary);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&key)?;
        let linked = fs::hard_link(&temporary, path);
        fs::remove_file(&temporary)?;
        match linked {
            Ok(()) => return Ok(key),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("its key keeps changing"))
}

/// Whether the file is our own user's and nobody else may write to it.
fn only_ours(meta: &fs::Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
}

fn seal_of(name: &str, parts: &[&[u8]], key: &[u8; 32]) -> blake3::Hash {
    let mut seal = blake3::Hasher::new_keyed(key);
    parts.iter().for_each(|part| _ = seal.update(part));
    // Last, and all names are of one length: no part can be taken for another.
    seal.update(name.as_bytes()).finalize()
}

/// The facts in a file, if its seal is whole.
fn unseal<'a>(name: &str, file: &'a [u8], key: &[u8; 32]) -> Option<&'a [u8]> {
    let (sealed, seal) = file.split_at_checked(file.len().checked_sub(SEAL_BYTES)?)?;
    let (content, trailer) =
        sealed.split_at_checked(sealed.len().checked_sub(12 + MAGIC.len())?)?;
    let facts_len = u32::from_le_bytes(trailer[..4].try_into().ok()?) as usize;
    let code_len = u64::from_le_bytes(trailer[4..12].try_into().ok()?);
    if &trailer[12..] != MAGIC {
        return None;
    }
    // `blake3::Hash` compares in constant time.
    let expected = seal_of(name, &[sealed], key);
    if expected != blake3::Hash::from_slice(seal).ok()? {
        return None;
    }
    let facts = content.get(usize::try_from(code_len).ok()?..)?;
    (facts.len() == facts_len).then_some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(limit_bytes: u64) -> (tempfile::TempDir, CodeCache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = CodeCache::new(Some(dir.path().join("code")), limit_bytes);
        (dir, cache)
    }

    fn file_of(cache: &CodeCache, name: &str) -> PathBuf {
        cache.path(name).unwrap()
    }

    #[test]
    fn what_is_put_is_found() {
        let (_dir, cache) = cache(1 << 20);
        assert!(cache.get("a").is_none());
        cache.put("a", b"the code", b"the facts");
        let mut found = cache.get("a").unwrap();
        assert_eq!(found.facts, b"the facts");
        let mut bytes = Vec::new();
        found.file.read_to_end(&mut bytes).unwrap();
        assert!(bytes.starts_with(b"the code"));
    }

    #[test]
    fn any_changed_or_missing_byte_is_noticed() {
        let (_dir, cache) = cache(1 << 20);
        cache.put("a", b"the code", b"the facts");
        let whole = fs::read(file_of(&cache, "a")).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(file_of(&cache, "a"), &bytes).unwrap();
            assert!(cache.get("a").is_none(), "byte {at} changed");
            fs::write(file_of(&cache, "a"), &whole[..at]).unwrap();
            assert!(cache.get("a").is_none(), "cut at {at}");
        }
        fs::write(file_of(&cache, "a"), &whole).unwrap();
        assert!(cache.get("a").is_some());
    }

    #[test]
    fn a_file_sealed_elsewhere_is_not_believed() {
        let ((_a, ours), (_b, theirs)) = (cache(1 << 20), cache(1 << 20));
        ours.put("a", b"good", b"");
        theirs.put("a", b"evil", b"");
        fs::copy(file_of(&theirs, "a"), file_of(&ours, "a")).unwrap();
        assert!(ours.get("a").is_none());
    }

    #[test]
    fn one_modules_code_is_not_anothers() {
        let (_dir, cache) = cache(1 << 20);
        cache.put("a", b"code of a", b"");
        fs::copy(file_of(&cache, "a"), file_of(&cache, "b")).unwrap();
        assert!(cache.get("a").is_some());
        assert!(cache.get("b").is_none());
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let (_dir, cache) = cache(2500);
        let code = [7; 1000];
        let [old, older, new, huge] = ["a", "b", "c", "d"].map(|digit| digit.repeat(64));
        let age = |path: &Path, seconds| {
            let file = File::options().write(true).open(path).unwrap();
            let then = SystemTime::now() - Duration::from_secs(seconds);
            file.set_times(FileTimes::new().set_modified(then)).unwrap();
        };
        for (name, seconds) in [(&old, 3000), (&older, 9000)] {
            cache.put(name, &code, b"");
            age(&file_of(&cache, name), seconds);
        }
        // Others' stay, however old they are.
        let others = ["notes.code", "old.tmp"].map(|name| cache.dir.as_ref().unwrap().join(name));
        for other in &others {
            fs::write(other, code).unwrap();
            age(other, 1_000_000);
        }
        // Being used makes it young again.
        assert!(cache.get(&older).is_some());
        cache.put(&new, &code, b"");
        assert!(cache.get(&old).is_none());
        assert!(cache.get(&older).is_some() && cache.get(&new).is_some());
        // What does not fit at all is not kept, and nothing has to go for it.
        cache.put(&huge, &[0; 5000], b"");
        assert!(cache.get(&huge).is_none() && cache.get(&new).is_some());
        assert!(others.iter().all(|other| other.exists()));
    }

    #[test]
    fn writers_at_the_same_time_leave_whole_files() {
        let (_dir, cache) = cache(1 << 20);
        std::thread::scope(|scope| {
            for byte in 0..4u8 {
                let cache = &cache;
                scope.spawn(move || {
                    for _ in 0..50 {
                        cache.put("a", &[byte; 5000], &[byte]);
                        let found = cache.get("a").expect("always a whole file");
                        assert_eq!(found.facts.len(), 1);
                    }
                });
            }
        });
        let left = fs::read_dir(cache.dir.as_ref().unwrap()).unwrap().count();
        assert_eq!(left, 2, "the file and the key, nothing temporary");
    }

    #[test]
    fn a_folder_open_to_others_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, cache) = cache(1 << 20);
        let dir = cache.dir.clone().unwrap();
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        cache.put("a", b"code", b"");
        assert!(cache.get("a").is_none());
        let CacheStatus::Unusable { reason, .. } = cache.status() else {
            panic!()
        };
        assert!(reason.contains("written by others"), "{reason}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_reported() {
        let cache = CodeCache::new(Some("/proc/nowhere/code".into()), 1 << 20);
        cache.put("a", b"code", b"");
        assert!(cache.get("a").is_none());
        assert!(matches!(cache.status(), CacheStatus::Unusable { .. }));
    }
}
