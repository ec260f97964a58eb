//! Values of many slots: which are there, and what they are.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use wasmrun_model::value::ValueType;

use super::Slot;
use crate::routes::Answers;
use crate::{Client, Error, Future, GetError, Incoming, Value};

/// What a value was found to be, and its type if that was asked for; or why there is none.
pub type Outcome = Result<(Value, Option<ValueType>), GetError>;

/// One value, and its type unless that is known.
pub async fn value(future: &Future, is_known: bool, timeout: Option<Duration>) -> Outcome {
    read(future.stream(timeout).await?, is_known).await
}

async fn read(incoming: Incoming, is_known: bool) -> Outcome {
    let ty = incoming.ty.clone().filter(|_| !is_known);
    Ok((incoming.value().await?, ty))
}

/// One value that somebody waits for. Where that is known before the call is sent, and for as long as it takes, both go
/// together, and take one round trip; else the value is asked for when the node has answered the call.
#[derive(Debug)]
pub struct Wanted {
    slot: Arc<Slot>,
    end: Option<Instant>,
    answers: Option<oneshot::Receiver<Answers>>,
}

impl Wanted {
    /// Best made before the call is pushed. The time begins now.
    pub fn new(slot: Arc<Slot>, timeout: Option<Duration>) -> Self {
        let end = timeout.and_then(|it| Instant::now().checked_add(it));
        let answers = match end {
            Some(_) => None,
            None => slot.want(),
        };
        Self { slot, end, answers }
    }

    /// The value, once it is there, and its type unless that is known.
    pub async fn value(self, is_known: bool) -> Outcome {
        let future = self.slot.future();
        let future = match self.end {
            Some(end) => tokio::time::timeout_at(end, future)
                .await
                .map_err(|_| GetError::TimedOut)?,
            None => future.await,
        };
        let future = future.map_err(|error| GetError::Request(copied(&error)))?;
        // They are told before the slot is filled.
        let incoming = match self.answers.and_then(|mut it| it.try_recv().ok()) {
            Some(answers) => future.answered(answers).await?,
            None => {
                let left = self
                    .end
                    .map(|it| it.saturating_duration_since(Instant::now()));
                future.stream(left).await?
            }
        };
        read(incoming, is_known).await
    }
}

/// How many values [`each`] waits for in one request: it says again which of them are missing.
pub const TOGETHER: usize = 256;

/// Tells of each of these values as soon as it is there: what a [`value`] for each does, with a fraction of the requests.
/// Of more than [`TOGETHER`] the later ones wait for earlier ones: call it for parts of them. `found` gets the key that came with the slot.
pub async fn each<K>(
    client: &Client,
    slots: Vec<(K, Arc<Slot>)>,
    mut found: impl FnMut(K, Result<Value, GetError>),
) {
    let mut waiting = Vec::with_capacity(slots.len());
    for (key, slot) in slots {
        match slot.future().await {
            Ok(future) => waiting.push((key, future)),
            Err(error) => found(key, Err(GetError::Request(copied(&error)))),
        }
    }
    while !waiting.is_empty() {
        if waiting.len() == 1
            && let Some((key, future)) = waiting.pop()
        {
            return found(key, future.get(None).await);
        }
        let count = waiting.len().min(TOGETHER);
        let futures: Vec<_> = waiting[..count].iter().map(|(_, it)| it.clone()).collect();
        let ready = match client.wait_for(&futures, 1, None).await {
            Ok(ready) => ready,
            Err(error) => {
                for (key, _) in waiting {
                    found(key, Err(GetError::Request(copied(&error))));
                }
                return;
            }
        };
        let mut is_ready = vec![false; waiting.len()];
        for at in ready.into_iter().filter(|at| *at < count) {
            is_ready[at] = true;
        }
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for (it, is_ready) in waiting.into_iter().zip(is_ready) {
            match is_ready {
                true => there.push(it),
                false => missing.push(it),
            }
        }
        waiting = missing;
        let futures: Vec<_> = there.iter().map(|(_, it)| it.clone()).collect();
        match client.get_all(&futures, None).await {
            Ok(values) => {
                for ((key, _), value) in there.into_iter().zip(values) {
                    found(key, value);
                }
            }
            Err(error) => {
                for (key, _) in there {
                    found(key, Err(copied_of_get(&error)));
                }
            }
        }
    }
}

/// The indexes of those that are there or have failed, once so many are, or time is up.
///
/// # Errors
/// When the node is gone.
pub async fn ready(
    client: &Client,
    slots: &[Arc<Slot>],
    count: usize,
    timeout: Option<Duration>,
) -> Result<Vec<usize>, Error> {
    let end = timeout.and_then(|it| Instant::now().checked_add(it));
    let (mut ready, mut futures, mut at_of) = (Vec::new(), Vec::new(), Vec::new());
    for (at, slot) in slots.iter().enumerate() {
        let answered = match end {
            Some(end) => tokio::time::timeout_at(end, slot.future()).await.ok(),
            None => Some(slot.future().await),
        };
        match answered {
            Some(Ok(future)) => {
                futures.push(future);
                at_of.push(at);
            }
            // It has failed.
            Some(Err(_)) => ready.push(at),
            // The node has not taken it yet: it is not there.
            None => {}
        }
    }
    let more = count.saturating_sub(ready.len()).min(futures.len());
    let left = end.map(|it| it.saturating_duration_since(Instant::now()));
    if !futures.is_empty() {
        let left = if more == 0 {
            Some(Duration::ZERO)
        } else {
            left
        };
        let found = client.wait_for(&futures, more, left).await?;
        ready.extend(found.into_iter().filter_map(|it| at_of.get(it).copied()));
    }
    ready.sort_unstable();
    Ok(ready)
}

/// A copy of an error that several objects have.
pub fn copied(error: &Error) -> Error {
    match error {
        Error::Refused(refusal) => Error::Refused(refusal.clone()),
        Error::Closed => Error::Closed,
        Error::Ended { why } => Error::Ended { why: why.clone() },
        other => Error::Unexpected(other.to_string()),
    }
}

fn copied_of_get(error: &GetError) -> GetError {
    match error {
        GetError::Request(error) => GetError::Request(copied(error)),
        other => GetError::Request(Error::Unexpected(other.to_string())),
    }
}
