//! All that is below a prefix of the control store, and what becomes of it.
//!
//! Owns the loop that reads it, follows it, and reads it anew where that has ended ([`run`]). Must not: know what is
//! there, which is each [`Follow`]er's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use wasmrun_control::{
    Changes, Clock, Condition, ControlStore, Entry, Error, Op, Range, Revision, Txn, Watch,
};

/// How long whoever has changed something waits until this node goes by it. It does so later in any case.
const APPLYING: Duration = Duration::from_secs(2);
/// How soon the store is asked again that did not answer.
const AGAIN: Duration = Duration::from_millis(200);

/// Somebody who goes by what is below a prefix.
pub(super) trait Follow: Send + Sync {
    /// The prefix.
    const PREFIX: &'static str;
    /// What is there, for the log.
    const WHAT: &'static str;

    /// Where it is.
    fn store(&self) -> &dyn ControlStore;

    /// This is all there is, which may be less than what was there before. Some of it may be newer than the revision.
    fn all(&mut self, entries: &[Entry], revision: Revision);

    /// A revision has changed this.
    fn changed(&mut self, changes: Changes);
}

/// Tells a follower what is there, and begins to watch it: [`run`] goes on.
///
/// # Errors
/// When the store does not say.
pub(super) async fn begin<F: Follow>(follower: &mut F) -> Result<Watch, Error> {
    let Read {
        entries,
        revision,
        watch,
    } = read(follower.store(), F::PREFIX).await?;
    follower.all(&entries, revision);
    Ok(watch)
}

/// Tells a follower what becomes of it, until it is dropped.
pub(super) async fn run<F: Follow>(mut follower: F, mut watch: Watch, clock: Arc<dyn Clock>) {
    loop {
        match follow(&mut follower, watch).await {
            // What is there now is read anew.
            Error::Compacted { .. } => {}
            error => tracing::warn!(%error, "{} cannot be followed", F::WHAT),
        }
        watch = loop {
            match begin(&mut follower).await {
                Ok(watch) => break watch,
                Err(error) => tracing::debug!(%error, "{} cannot be read", F::WHAT),
            }
            clock.sleep(AGAIN).await;
        };
    }
}

/// Follows a watch to its end: why it has ended.
async fn follow<F: Follow>(follower: &mut F, mut watch: Watch) -> Error {
    loop {
        match watch.next().await {
            Ok(changes) => follower.changed(changes),
            Err(error) => return error,
        }
    }
}

/// As of when this node goes by what is below a prefix.
#[derive(Debug)]
pub(super) struct Applied(watch::Sender<Revision>);

impl Default for Applied {
    fn default() -> Self {
        Self(watch::Sender::new(Revision(0)))
    }
}

impl Applied {
    /// It goes by all that was there then.
    pub(super) fn set(&self, revision: Revision) {
        self.0.send_replace(revision);
    }

    /// Waits until it goes by what was there then.
    pub(super) async fn reach(&self, revision: Revision) {
        let mut applied = self.0.subscribe();
        // The sender is ours.
        let _ = applied.wait_for(|applied| *applied >= revision).await;
    }

    /// The same, and not for long: where the store has stopped answering it comes later.
    pub(super) async fn reach_soon(&self, revision: Revision) {
        let _ = tokio::time::timeout(APPLYING, self.reach(revision)).await;
    }
}

/// What becomes of a record.
pub(super) enum Next {
    /// It stays as it is, or as it is not.
    Stays,
    /// It is this from now on.
    Put(Bytes),
    /// It goes.
    Goes,
}

/// Changes one record by compare-and-swap, and waits for this node to go by it, unless the store has stopped answering
/// just now. `next` says what becomes of what is there; it is also told whether an attempt of ours was not answered, which
/// may have done it. It is asked again where somebody else was faster.
///
/// # Errors
/// Those of `next`; and when the store does not do it, or has not said whether it did: to try again is right.
pub(super) async fn swap<E: From<Error>>(
    store: &dyn ControlStore,
    applied: &Applied,
    key: Bytes,
    mut next: impl FnMut(Option<&Entry>, bool) -> Result<Next, E>,
) -> Result<(), E> {
    let mut doubt: Option<Error> = None;
    loop {
        let entry = store.get(&key).await;
        // Where a change was not answered before, an error says so.
        let entry = entry.map_err(|error| doubt.clone().unwrap_or(error))?;
        let op = match next(entry.as_ref(), doubt.is_some())? {
            Next::Stays => {
                if let Some(entry) = entry {
                    applied.reach_soon(entry.modified).await;
                }
                return Ok(());
            }
            Next::Put(value) => Op::put(key.clone(), value),
            Next::Goes => Op::delete(key.clone()),
        };
        let condition = match &entry {
            Some(entry) => Condition::Modified(entry.modified),
            None => Condition::Absent,
        };
        let txn = Txn::when(key.clone(), condition).then(op);
        match store.txn(txn).await {
            Ok(reply) if reply.succeeded => {
                applied.reach_soon(reply.revision).await;
                return Ok(());
            }
            // Somebody was faster.
            Ok(_) => {}
            Err(error @ Error::Uncertain { .. }) => doubt = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Deletes what is over below a prefix, unless somebody changes it meanwhile.
///
/// # Errors
/// When the store does not do it; some of it may be done.
pub(super) async fn prune(
    store: &dyn ControlStore,
    prefix: &'static str,
    is_over: impl Fn(&Entry) -> bool,
) -> Result<(), Error> {
    let (entries, _) = entries(store, prefix).await?;
    for entry in entries.into_iter().filter(is_over) {
        let unchanged = Condition::Modified(entry.modified);
        let txn = Txn::when(entry.key.clone(), unchanged);
        store.txn(txn.then(Op::delete(entry.key))).await?;
    }
    Ok(())
}

/// What was there, and a watch that misses nothing since.
pub(super) struct Read {
    pub(super) entries: Vec<Entry>,
    /// When it was so; some of it may be newer, and then it is told again.
    pub(super) revision: Revision,
    pub(super) watch: Watch,
}

/// Reads all keys below a prefix, and begins to watch it.
pub(super) async fn read(store: &dyn ControlStore, prefix: &'static str) -> Result<Read, Error> {
    let (entries, revision) = entries(store, prefix).await?;
    let watch = store.watch(prefix.as_bytes(), revision.next()).await?;
    Ok(Read {
        entries,
        revision,
        watch,
    })
}

/// All keys below a prefix, and when it was so; some of it may be newer.
pub(super) async fn entries(
    store: &dyn ControlStore,
    prefix: &'static str,
) -> Result<(Vec<Entry>, Revision), Error> {
    let mut range = Range::prefix(prefix);
    let first = store.range(range.clone()).await?;
    let revision = first.revision;
    let (mut entries, mut next) = (first.entries, first.next);
    while let Some(start) = next {
        range.from = start;
        let page = store.range(range.clone()).await?;
        entries.extend(page.entries);
        next = page.next;
    }
    Ok((entries, revision))
}
