//! What the control store does for somebody who waits.
//!
//! Owns how long that may take: the store itself is tried for longer, which is right for a node and too long for people.

use std::time::Duration;

use tokio::time::Instant;
use wasmrun_control::Error;

use super::Cluster;

/// How long whoever waits for the control store waits for it, in all.
pub(crate) const STORE_PATIENCE: Duration = Duration::from_secs(5);

impl Cluster {
    /// A change of the control store that somebody waits for.
    ///
    /// # Errors
    /// Those of the change; and when the store does not answer in [`STORE_PATIENCE`]: then nothing was changed, or nobody
    /// knows, as the error says.
    pub(crate) async fn changed<T, E: From<Error>>(
        &self,
        change: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let until = Instant::now() + STORE_PATIENCE;
        // What has not begun is not made: most often the store is away already, and that can be said.
        match tokio::time::timeout_at(until, self.store.revision()).await {
            Ok(there) => there?,
            Err(_) => return Err(Error::Unavailable { why: self.silent() }.into()),
        };
        let changed = tokio::time::timeout_at(until, change).await;
        changed.unwrap_or_else(|_| Err(Error::Uncertain { why: self.silent() }.into()))
    }

    /// What somebody waits for who wants to know what is in the control store.
    ///
    /// # Errors
    /// Those of the question, and when the store does not answer in [`STORE_PATIENCE`].
    pub(crate) async fn query<T, E: From<Error>>(
        &self,
        question: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let told = tokio::time::timeout(STORE_PATIENCE, question).await;
        told.unwrap_or_else(|_| Err(Error::Unavailable { why: self.silent() }.into()))
    }

    /// Who does not answer, and what to do about it.
    fn silent(&self) -> String {
        let after = STORE_PATIENCE.as_secs();
        match (&self.embedded, self.lines.head_id()) {
            (None, Some(head)) => format!(
                "the head, node {}, has not answered for {after}s: see that it runs and can be reached \
                 (`wasmrun node list`), or start it again",
                self.name_of(head)
            ),
            (Some(_), _) => format!("its disk has not answered for {after}s"),
            (None, None) => {
                format!("it has not answered for {after}s: see that etcd runs and can be reached")
            }
        }
    }
}
