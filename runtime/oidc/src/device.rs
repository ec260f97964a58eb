//! The device authorization grant (RFC 8628), as the command runs it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use crate::ask::Url;
use crate::provider::{Provider, ProviderError, read};
use crate::shown;

/// How long the provider may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is asked, in seconds, if it does not say; also what is added when it wants to be asked less often.
const INTERVAL_S: u64 = 5;
/// The longest that somebody has to enter the code, whatever the provider says.
const MOST_S: u64 = 3600;
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// How people log in at a cluster, as its head says it to clients.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The provider.
    pub issuer: String,
    /// What the cluster is there.
    pub client_id: String,
    /// For providers that demand one of such clients. It is no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// What is asked for.
    pub scopes: Vec<String>,
}

impl Offer {
    /// Reads what a head says.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn parse(text: &str) -> Result<Self, ProviderError> {
        serde_json::from_str(text).map_err(|error| ProviderError::Malformed {
            what: "through the head",
            why: shown(&error.to_string()),
        })
    }

    /// What a head says.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("it is plain text")
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer({} at {})", self.client_id, self.issuer)
    }
}

/// A login that waits for somebody with a browser.
pub struct Device {
    offer: Offer,
    token_url: Url,
    device_code: String,
    interval: Duration,
    until: Instant,
    /// Where to go.
    pub page: String,
    /// What to enter there.
    pub code: String,
}

#[derive(Deserialize)]
struct Begun {
    device_code: String,
    user_code: String,
    // As some call it.
    #[serde(alias = "verification_url")]
    verification_uri: String,
    expires_in: u64,
    interval: Option<u64>,
}

#[derive(Deserialize)]
struct Token {
    id_token: Option<String>,
}

#[derive(Deserialize)]
struct Fault {
    error: String,
    error_description: Option<String>,
}

impl Fault {
    fn text(&self) -> String {
        match &self.error_description {
            Some(more) => shown(&format!("{}: {more}", self.error)),
            None => shown(&self.error),
        }
    }
}

/// What an answer to a poll means.
#[derive(Debug, PartialEq, Eq)]
enum Polled {
    Token(String),
    Pending,
    SlowDown,
}

impl Device {
    /// Asks the provider for a code. The nonce is to be in the ID token, where the provider puts one into it.
    ///
    /// # Errors
    /// When the provider cannot be asked, or does not do it.
    pub async fn begin(offer: Offer, nonce: &str) -> Result<Self, ProviderError> {
        let provider = Provider::find(&offer.issuer, PATIENCE).await?;
        let (Some(device), Some(token)) = (
            &provider.device_authorization_endpoint,
            &provider.token_endpoint,
        ) else {
            let issuer = shown(&offer.issuer);
            return Err(ProviderError::NoDevice { issuer });
        };
        let token_url = Url::parse(token)?;
        let scope = offer.scopes.join(" ");
        let mut form = client(&offer);
        form.extend([("scope", scope.as_str()), ("nonce", nonce)]);
        let answer = Url::parse(device)?.ask(Some(&form), PATIENCE).await?;
        let what = "a code";
        if answer.0 >= 400
            && let Ok(fault) = serde_json::from_slice::<Fault>(&answer.1)
        {
            let why = fault.text();
            return Err(ProviderError::Refused { what, why });
        }
        let begun: Begun = read(what, answer)?;
        let interval = begun.interval.unwrap_or(INTERVAL_S).clamp(1, 60);
        Ok(Self {
            token_url,
            device_code: begun.device_code,
            interval: Duration::from_secs(interval),
            until: Instant::now() + Duration::from_secs(begun.expires_in.min(MOST_S)),
            page: shown(&begun.verification_uri),
            code: shown(&begun.user_code),
            offer,
        })
    }

    /// Waits until somebody has entered the code, and has the ID token then.
    ///
    /// # Errors
    /// When somebody says no, or nobody says anything in time.
    pub async fn id_token(mut self) -> Result<String, ProviderError> {
        let offer = self.offer.clone();
        let device_code = self.device_code.clone();
        let mut form = client(&offer);
        form.extend([("grant_type", GRANT), ("device_code", device_code.as_str())]);
        loop {
            let next = Instant::now() + self.interval;
            if next >= self.until {
                return Err(ProviderError::Late);
            }
            sleep_until(next).await;
            match self.token_url.ask(Some(&form), PATIENCE).await {
                Ok(answer) => match polled(answer)? {
                    Polled::Token(token) => return Ok(token),
                    Polled::Pending => {}
                    Polled::SlowDown => self.interval += Duration::from_secs(INTERVAL_S),
                },
                // It may be back before the code has ended.
                Err(ProviderError::Unreachable { .. }) => {
                    self.interval += Duration::from_secs(INTERVAL_S);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn client(offer: &Offer) -> Vec<(&'static str, &str)> {
    let secret = offer.client_secret.as_deref();
    let secret = secret.map(|secret| ("client_secret", secret));
    let id = ("client_id", offer.client_id.as_str());
    std::iter::once(id).chain(secret).collect()
}

fn polled(answer: (u16, Bytes)) -> Result<Polled, ProviderError> {
    let what = "an ID token";
    if answer.0 == 200 {
        let token: Token = read(what, answer)?;
        return token
            .id_token
            .map(Polled::Token)
            .ok_or_else(|| ProviderError::Malformed {
                what,
                why: "there is none; the scopes must have openid".into(),
            });
    }
    let Ok(fault) = serde_json::from_slice::<Fault>(&answer.1) else {
        return Err(ProviderError::Malformed {
            what,
            why: format!("with status {}", answer.0),
        });
    };
    match fault.error.as_str() {
        "authorization_pending" => Ok(Polled::Pending),
        "slow_down" => Ok(Polled::SlowDown),
        "access_denied" => Err(ProviderError::Denied),
        "expired_token" => Err(ProviderError::Late),
        _ => {
            let why = fault.text();
            Err(ProviderError::Refused { what, why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_is_answered_as_the_grant_says() {
        let answered = |status, body: &'static str| polled((status, Bytes::from(body)));
        let token = answered(200, r#"{"access_token":"a","id_token":"b"}"#);
        assert_eq!(token, Ok(Polled::Token("b".into())));
        let fault = |name: &str| polled((400, format!(r#"{{"error":"{name}"}}"#).into()));
        assert_eq!(fault("authorization_pending"), Ok(Polled::Pending));
        assert_eq!(fault("slow_down"), Ok(Polled::SlowDown));
        assert_eq!(fault("access_denied"), Err(ProviderError::Denied));
        assert_eq!(fault("expired_token"), Err(ProviderError::Late));
        for (answer, said) in [
            (fault("invalid_client"), "invalid_client"),
            (fault("a\\u001bb"), "ab"),
            (answered(200, "{}"), "openid"),
            (answered(200, "no"), "expected"),
            (answered(502, "no"), "502"),
        ] {
            let error = answer.expect_err("it is no token").to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        let mut offer = Offer {
            issuer: "https://op.example.com".into(),
            client_id: "wasmrun".into(),
            client_secret: None,
            scopes: vec!["openid".into()],
        };
        let text =
            r#"{"issuer":"https://op.example.com","client_id":"wasmrun","scopes":["openid"]}"#;
        assert_eq!(offer.text(), text);
        assert_eq!(Offer::parse(text), Ok(offer.clone()));
        offer.client_secret = Some("word".into());
        assert_eq!(Offer::parse(&offer.text()), Ok(offer.clone()));
        assert!(!format!("{offer:?}").contains("word"));
        assert_eq!(client(&offer)[1], ("client_secret", "word"));
        assert!(Offer::parse("{}").is_err());
    }
}
