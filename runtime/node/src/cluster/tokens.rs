//! The cluster's join tokens, in the control store.
//!
//! Owns the record and its changes, by compare-and-swap: any node may make and revoke tokens, and the head
//! redeems them. Secrets are kept as hashes (see [`TokenBook`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use wasmrun_control::records::{self, Form, Record, RecordError};
use wasmrun_control::{Condition, ControlStore, Error, Op, Txn};
use wasmrun_net::{Applicant, Enroll, Refused, Role, TokenBook};

#[derive(Debug, Default, Serialize, Deserialize)]
struct Book(TokenBook);

impl Record for Book {
    // There may be thousands, in one value.
    const FORM: Form = Form::Postcard;
    const VERSION: u8 = 1;
}

/// Why tokens could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] Error),
    /// What is there cannot be read.
    #[error("the record of join tokens cannot be read")]
    Record(#[from] RecordError),
    /// There is no such token.
    #[error("there is no join token '{0}', or more than one; `wasmrun node token list` shows them")]
    Unknown(String),
    /// Nobody could join with it.
    #[error("the head is not there now, and only with it somebody can join: start it first")]
    NoHead,
}

/// Decides who may join, by the tokens in the control store.
pub(super) struct StoreEnroll(pub(super) Arc<dyn ControlStore>);

impl Enroll for StoreEnroll {
    fn redeem<'a>(
        &'a self,
        applicant: &'a Applicant,
    ) -> Pin<Box<dyn Future<Output = Result<Role, Refused>> + Send + 'a>> {
        Box::pin(async move {
            let redeemed = change(self.0.as_ref(), |book| book.redeem(applicant, now_s())).await;
            redeemed.unwrap_or_else(|error| {
                tracing::warn!(%error, "a join token could not be checked");
                Err(Refused::Unavailable)
            })
        })
    }
}

/// All tokens.
pub(super) async fn read(store: &dyn ControlStore) -> Result<TokenBook, TokensError> {
    match store.get(&records::tokens()).await? {
        Some(entry) => Ok(Book::from_value(&entry.value)?.0),
        None => Ok(TokenBook::default()),
    }
}

/// Changes the tokens: what `change` does to them, until that is what is stored.
pub(super) async fn change<T>(
    store: &dyn ControlStore,
    change: impl Fn(&mut TokenBook) -> T,
) -> Result<T, TokensError> {
    let key = records::tokens();
    loop {
        let entry = store.get(&key).await?;
        let condition = match &entry {
            Some(entry) => Condition::Modified(entry.modified),
            None => Condition::Absent,
        };
        let mut book = match &entry {
            Some(entry) => Book::from_value(&entry.value)?,
            None => Book::default(),
        };
        let before = book.0.clone();
        book.0.prune(now_s());
        let result = change(&mut book.0);
        if book.0 == before {
            return Ok(result);
        }
        let put = Op::put(key.clone(), book.to_value());
        match store.txn(Txn::when(key.clone(), condition).then(put)).await {
            Ok(reply) if reply.succeeded => return Ok(result),
            // Somebody was faster. Where nobody knows whether it was done: a token that was redeemed is
            // redeemed by the same key again.
            Ok(_) | Err(Error::Uncertain { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Seconds since 1970: what tokens end by, at the head alone.
pub(super) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
