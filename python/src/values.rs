//! The values of objects, waited for beside Python.
//!
//! Owns in how few requests they are got. Must not: need the interpreter.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wasmrun_client::queue::{self, Outcome, Slot, Wanted, copied};
use wasmrun_client::{Future, GetError};

use crate::session::Shared;

impl Shared {
    /// The values of these, once all are there; `early` if it is one, and was wanted before, without a limit of time.
    pub(crate) fn values(
        self: Arc<Self>,
        slots: Vec<(Arc<Slot>, bool)>,
        timeout: Option<Duration>,
        early: Option<Wanted>,
    ) -> impl std::future::Future<Output = Result<Vec<Outcome>, GetError>> + Send + 'static {
        // At once: its call may not be sent yet.
        let alone = match &slots[..] {
            [(slot, is_known)] => {
                let wanted = early.unwrap_or_else(|| Wanted::new(slot.clone(), timeout));
                Some((wanted, *is_known))
            }
            _ => None,
        };
        async move {
            let Some((wanted, is_known)) = alone else {
                return self.several(slots, timeout).await;
            };
            match wanted.value(is_known).await {
                Err(GetError::TimedOut) => Err(GetError::TimedOut),
                one => Ok(vec![one]),
            }
        }
    }

    async fn several(
        self: Arc<Self>,
        slots: Vec<(Arc<Slot>, bool)>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Outcome>, GetError> {
        let end = timeout.and_then(|it| Instant::now().checked_add(it));
        let mut futures = Vec::with_capacity(slots.len());
        for (slot, _) in &slots {
            let future = slot.future();
            let future = match end {
                Some(end) => tokio::time::timeout_at(end, future)
                    .await
                    .map_err(|_| GetError::TimedOut)?,
                None => future.await,
            };
            futures.push(future);
        }
        let left = || end.map(|it| it.saturating_duration_since(Instant::now()));
        // All in one request, but those of which the type is to be told.
        let known: Vec<Future> = futures
            .iter()
            .zip(&slots)
            .filter(|(_, (_, is_known))| *is_known)
            .filter_map(|(it, _)| it.as_ref().ok().cloned())
            .collect();
        let mut all = self.client().get_all(&known, left()).await?.into_iter();
        let mut outcomes = Vec::with_capacity(futures.len());
        for (future, (_, is_known)) in futures.iter().zip(&slots) {
            outcomes.push(match future {
                Err(error) => Err(GetError::Request(copied(error))),
                Ok(_) if *is_known => {
                    let value = all.next().expect("one for each");
                    value.map(|value| (value, None))
                }
                Ok(future) => match queue::value(future, false, left()).await {
                    Err(GetError::TimedOut) => return Err(GetError::TimedOut),
                    one => one,
                },
            });
        }
        Ok(outcomes)
    }
}
