//! Loading modules, on threads that may block.
//!
//! Owns how many are loaded at a time: each may be compiled, for minutes, on a thread that others need. Invariant: what is
//! loaded has its place to the end, also when nobody waits for it any more.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// How many modules are loaded at a time: a part of the threads that may block, so that slow ones of one tenant leave the
/// control store and other tenants theirs.
const MOST_LOADING: usize = 128;

/// The places. A clone has the same ones.
#[derive(Clone)]
pub(crate) struct Loading(Arc<Semaphore>);

impl Loading {
    pub(super) fn new() -> Self {
        Self::with_places(MOST_LOADING)
    }

    fn with_places(places: usize) -> Self {
        Self(Arc::new(Semaphore::new(places)))
    }

    /// Does this, once there is a place for it.
    ///
    /// # Errors
    /// When it panics, and when the node is stopping.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        load: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // Nobody closes it.
        let place = self.0.clone().acquire_owned().await.ok();
        let loading = spawn_blocking(move || {
            let _place = place;
            load()
        });
        loading.await
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn who_gives_up_leaves_the_place_to_what_still_runs() {
        let loading = Loading::with_places(1);
        let (begun, has_begun) = oneshot::channel();
        let (end, is_ended) = std::sync::mpsc::channel::<()>();
        let first = loading.run(move || {
            begun.send(()).unwrap();
            is_ended.recv()
        });
        // The first one is dropped here.
        tokio::select! {
            _ = first => panic!("nobody has ended it"),
            begun = has_begun => begun.unwrap(),
        }
        assert_eq!(loading.0.available_permits(), 0);
        end.send(()).unwrap();
        loading.run(|| ()).await.unwrap();
    }
}
