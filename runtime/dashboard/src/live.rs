//! Views as they change, for browsers that follow them.
//!
//! Owns when a view is rendered: at most once a second, less often while that takes long, once for all browsers that follow it,
//! and not while none does. Must not: know HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::data::Source;
use crate::views::{self, View};

/// How often a view is rendered.
const PERIOD: Duration = Duration::from_secs(1);
/// The rest after rendering a view, as a multiple of how long that took: a busy node is asked less often.
const REST: u32 = 4;

/// The HTML of a view. Empty before it is rendered for the first time.
pub type Shown = Arc<str>;

/// The views that browsers follow.
#[derive(Debug, Default, Clone)]
pub struct LiveViews(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    open: HashMap<View, watch::Sender<Shown>>,
    rendering: JoinSet<()>,
}

impl LiveViews {
    /// Follows a view, in a tokio runtime.
    pub fn follow(&self, view: View, source: &Arc<Source>) -> watch::Receiver<Shown> {
        let mut inner = self.0.lock();
        while inner.rendering.try_join_next().is_some() {}
        if let Some(sender) = inner.open.get(&view) {
            let mut receiver = sender.subscribe();
            receiver.mark_changed();
            return receiver;
        }
        let (sender, receiver) = watch::channel(Shown::from(""));
        inner.open.insert(view.clone(), sender.clone());
        let (live, source) = (self.clone(), source.clone());
        inner.rendering.spawn(keep_up(live, source, view, sender));
        receiver
    }

    /// Ends the rendering of all views.
    pub fn stop(&self) {
        self.0.lock().rendering.abort_all();
    }

    /// Whether no browser follows the view any more. Then it is removed, under the same lock: the next one starts it again.
    fn has_ended(&self, view: &View, sender: &watch::Sender<Shown>) -> bool {
        let mut inner = self.0.lock();
        let has_ended = sender.receiver_count() == 0;
        if has_ended {
            inner.open.remove(view);
        }
        has_ended
    }
}

/// Renders a view every [`PERIOD`], as long as a browser follows it.
async fn keep_up(live: LiveViews, source: Arc<Source>, view: View, sender: watch::Sender<Shown>) {
    while !live.has_ended(&view, &sender) {
        let start = Instant::now();
        let html = match views::render(&view, &source).await {
            Ok(fragment) => fragment.body.into_string(),
            Err(error) => views::failed(&error).body.into_string(),
        };
        sender.send_if_modified(|shown| {
            let has_changed = **shown != *html;
            if has_changed {
                *shown = html.into();
            }
            has_changed
        });
        let took = start.elapsed();
        let rest = (took * REST).max(view.period(PERIOD).saturating_sub(took));
        tokio::time::sleep(rest).await;
    }
}
