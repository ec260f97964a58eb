//! When this node tells something new of itself.
//!
//! Owns its latest view, the one that was published last, and when the next one is due. Must not: send.
//!
//! Invariant: what is latest is published sooner or later; how soon, [`Change::interval`] says.

use super::MAX_BODY_BYTES;
use super::body::Body;
use super::change::Change;
use super::table::StoredView;
use crate::scheduler::{NodeInfo, PeerView};
use crate::time::Instant;

/// This node's own view.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    latest: Option<(NodeInfo, PeerView)>,
    published: Option<(NodeInfo, PeerView)>,
    /// What has changed from the published to the latest one.
    change: Option<Change>,
    published_at: Option<Instant>,
    /// The version of the published one, or a higher one that others believe to know.
    version: u64,
    info_version: u64,
}

impl Publisher {
    /// What this node has and does now.
    pub(super) fn set(&mut self, node: NodeInfo, view: PeerView) {
        let published = self.published.as_ref();
        let change = published.map_or(Change::Structural, |(old_node, old_view)| {
            Change::between((old_node, old_view), (&node, &view))
        });
        self.change = (change > Change::None).then_some(change);
        self.latest = Some((node, view));
    }

    /// Somebody believes to know a view of this node that was not published.
    pub(super) fn outdo(&mut self, version: u64) {
        if version > self.version && self.latest.is_some() {
            self.version = version;
            self.change = Some(Change::Structural);
        }
    }

    /// When the latest view is to be published; `None` if it is. The start of time if at once.
    pub(super) fn due(&self, peers: usize) -> Option<Instant> {
        let interval = self.change?.interval(peers);
        Some(self.published_at.map_or(Instant::ZERO, |at| at + interval))
    }

    /// The latest view, for all to hear, with the number of tenants that had to be left out. `None` if it is
    /// too long even without them; then the one before stays.
    pub(super) fn publish(&mut self, now: Instant) -> Option<(StoredView, usize)> {
        self.change = None;
        self.published_at = Some(now);
        let (node, view) = self.latest.clone()?;
        self.version = self.version.saturating_add(1);
        let mut told = view.clone();
        told.version = self.version;
        let mut body = Body::of(&told);
        let tenants = told.usage.len();
        while body.as_bytes().len() > MAX_BODY_BYTES && !told.usage.is_empty() {
            let kept = told.usage.len() / 2;
            told.usage = std::mem::take(&mut told.usage)
                .into_iter()
                .take(kept)
                .collect();
            body = Body::of(&told);
        }
        let info = Body::of(&node);
        let is_short = |body: &Body| body.as_bytes().len() <= MAX_BODY_BYTES;
        let is_known = self.published.as_ref().is_some_and(|(old, _)| *old == node);
        if !is_known {
            self.info_version = self.version;
        }
        self.published = Some((node.clone(), view));
        if !is_short(&body) || !is_short(&info) {
            return None;
        }
        let held = StoredView {
            version: self.version,
            info_version: self.info_version,
            node,
            info,
            view: body,
            news_at: Some(now),
        };
        Some((held, tenants - told.usage.len()))
    }
}
