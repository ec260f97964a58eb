//! The head's side: who somebody with an ID token is, and what they may do.
//!
//! Owns the provider's keys as they were last published. Invariants: they are asked for by one at a time, not more often than
//! [`AGAIN`] for a key that is not among them, and are not used for longer than [`FRESH`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use wasmrun_model::access::Access;

use crate::ask::Url;
use crate::provider::{Provider, ProviderError, read};
use crate::rules::Settings;
use crate::token::{KeySet, Keys, TokenError};

/// How long keys are gone by. A key that the provider takes back counts for no longer.
const FRESH: Duration = Duration::from_secs(600);
/// How soon they are asked for again, because a token names one that is not there.
const AGAIN: Duration = Duration::from_secs(10);
/// How long all of it may take. The command that logs in waits for five seconds.
const PATIENCE: Duration = Duration::from_secs(4);

/// Why somebody is not let in. The text is for them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PersonError {
    /// Their ID token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// It says no name.
    #[error(
        "the ID token has no name for you: its claim '{0}' is missing or not verified; ask an operator of the provider"
    )]
    NoName(String),
    /// It says a name that is none here.
    #[error(
        "'{0}' is no name for a client: names are at most 128 letters, digits and signs without '/'"
    )]
    Name(String),
    /// No rule fits.
    #[error("this cluster does not let {0} in: ask one of its operators")]
    NoRule(String),
    /// The provider was of no use.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

/// Those whom a provider knows.
#[derive(Debug)]
pub struct People {
    settings: Settings,
    keys: Mutex<Option<(Arc<Keys>, Instant)>>,
    turn: Semaphore,
}

impl People {
    /// By these settings. The provider is asked when the first one logs in.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            keys: Mutex::new(None),
            turn: Semaphore::new(1),
        }
    }

    /// How they log in, as an [`Offer`](crate::Offer) reads it.
    pub fn offer(&self) -> String {
        self.settings.offer.text()
    }

    /// How long their certificates are valid.
    pub fn lifetime(&self) -> Duration {
        self.settings.lifetime
    }

    /// The name and rights of the holder of an ID token.
    ///
    /// # Errors
    /// When the token does not serve, no rule fits, or the provider cannot be asked for its keys.
    pub async fn access(&self, token: &str, nonce: &str) -> Result<Access, PersonError> {
        let check = |keys: &Keys| keys.check(token, &self.settings.offer, nonce);
        let (keys, age) = self.keys(FRESH).await?;
        let claims = match check(&keys) {
            // The provider may have another one by now.
            Err(TokenError::UnknownKey) if age >= AGAIN => check(&self.keys(AGAIN).await?.0)?,
            checked => checked?,
        };
        self.settings.access(claims)
    }

    /// Keys that are younger than this, and how old they are.
    async fn keys(&self, most: Duration) -> Result<(Arc<Keys>, Duration), ProviderError> {
        if let Some(keys) = self.cached_keys(most) {
            return Ok(keys);
        }
        let asked = timeout(PATIENCE, async {
            let _turn = self.turn.acquire().await;
            // Somebody else may have asked meanwhile.
            if let Some(keys) = self.cached_keys(most) {
                return Ok(keys);
            }
            let issuer = &self.settings.offer.issuer;
            let provider = Provider::find(issuer, PATIENCE).await?;
            let answer = Url::parse(&provider.jwks_uri)?.ask(None, PATIENCE).await?;
            let keys = Arc::new(Keys::from(read::<KeySet>("its keys", answer)?));
            *self.keys.lock() = Some((keys.clone(), Instant::now()));
            Ok::<_, ProviderError>((keys, Duration::ZERO))
        });
        let late = |_| ProviderError::Unreachable {
            url: self.settings.offer.issuer.clone(),
            why: format!("no answer for {} s", PATIENCE.as_secs()),
        };
        asked.await.map_err(late)?
    }

    fn cached_keys(&self, most: Duration) -> Option<(Arc<Keys>, Duration)> {
        let keys = self.keys.lock();
        let (keys, at) = keys.as_ref()?;
        let age = at.elapsed();
        (age < most).then(|| (keys.clone(), age))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::token::tests::{Signer, claims};

    /// A provider on a loopback address: its issuer, and how often it was asked for its keys.
    async fn provider(keys: Value) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let issuer = format!("http://{address}");
        let description = json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/keys") });
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("a request"));
                }
                let body = match head.starts_with(b"GET /keys ") {
                    true => {
                        counted.fetch_add(1, Ordering::Relaxed);
                        keys.to_string()
                    }
                    false => description.to_string(),
                };
                let size = body.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.expect("written");
            }
        });
        (issuer, asked)
    }

    fn people(issuer: &str) -> People {
        let rule =
            json!({"claim": "groups", "value": "ml-team", "role": "submitter", "tenants": ["ml"]});
        let file = json!({"issuer": issuer, "client_id": "wasmrun", "rules": [rule]});
        People::new(Settings::parse(&file.to_string()).expect("settings"))
    }

    #[tokio::test]
    async fn somebody_with_a_token_is_let_in_and_keys_are_asked_for_once() {
        let signer = Signer::new("a");
        let (issuer, asked) = provider(signer.set.clone()).await;
        let people = people(&issuer);
        let mut said = claims();
        said["iss"] = issuer.into();
        let token = signer.sign("a", &said);
        for _ in 0..3 {
            let access = people.access(&token, "").await.expect("let in");
            assert_eq!(access.name, "ann@example.com");
        }
        // Keys of just now are not asked for again, whatever a token names.
        let unknown = people.access(&signer.sign("b", &said), "").await;
        assert_eq!(unknown, Err(PersonError::Token(TokenError::UnknownKey)));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        said["groups"] = json!([]);
        let outside = people.access(&signer.sign("a", &said), "").await;
        assert_eq!(outside, Err(PersonError::NoRule("ann@example.com".into())));
    }

    #[tokio::test]
    async fn a_provider_that_is_away_or_another_one_lets_nobody_in() {
        let (issuer, _) = provider(json!({ "keys": [] })).await;
        let other = people(&format!("{issuer}/"));
        let error = other.access("a.b.c", "").await.expect_err("another name");
        assert!(error.to_string().contains("calls itself"), "{error}");
        // The port is free again.
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let away = people(&format!("http://{address}"));
        let error = away.access("a.b.c", "").await.expect_err("nobody there");
        assert!(error.to_string().contains("cannot be asked"), "{error}");
    }
}
