//! Views as they change, for browsers that follow them.
//!
//! Owns when a view is made anew: at most once a second, less often while that takes long, for all who follow it together, and
//! not once nobody does. Must not: know HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::data::Source;
use crate::views::{self, View};

/// How often a view is made anew.
const PERIOD: Duration = Duration::from_secs(1);
/// The rest after making a view, as a multiple of how long that took: a busy node is asked less often.
const REST: u32 = 4;

/// What a view shows now. Empty before it was made for the first time.
pub type Shown = Arc<str>;

/// The views that somebody follows.
#[derive(Debug, Default, Clone)]
pub struct Lives(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    open: HashMap<View, watch::Sender<Shown>>,
    making: JoinSet<()>,
}

impl Lives {
    /// Follows a view, in a tokio runtime.
    pub fn follow(&self, view: View, source: &Arc<Source>) -> watch::Receiver<Shown> {
        let mut inner = self.0.lock();
        // Those that have ended.
        while inner.making.try_join_next().is_some() {}
        if let Some(sender) = inner.open.get(&view) {
            let mut receiver = sender.subscribe();
            receiver.mark_changed();
            return receiver;
        }
        let (sender, receiver) = watch::channel(Shown::from(""));
        inner.open.insert(view.clone(), sender.clone());
        let (lives, source) = (self.clone(), source.clone());
        inner.making.spawn(make(lives, source, view, sender));
        receiver
    }

    /// Ends the making of all views.
    pub fn stop(&self) {
        self.0.lock().making.abort_all();
    }

    /// Whether nobody follows the view any more. It is forgotten then: in one step, so that who comes now makes it anew.
    fn has_ended(&self, view: &View, sender: &watch::Sender<Shown>) -> bool {
        let mut inner = self.0.lock();
        let has_ended = sender.receiver_count() == 0;
        if has_ended {
            inner.open.remove(view);
        }
        has_ended
    }
}

/// Makes a view again and again, as long as somebody follows it.
async fn make(lives: Lives, source: Arc<Source>, view: View, sender: watch::Sender<Shown>) {
    while !lives.has_ended(&view, &sender) {
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
