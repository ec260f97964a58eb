//! All that is below a prefix of the control store, and what becomes of it.

use wasmrun_control::{ControlStore, Entry, Error, Range, Revision, Watch};

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
