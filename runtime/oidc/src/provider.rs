//! A provider: where its parts are, by OpenID Connect Discovery 1.0.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::ask::Url;
use crate::shown;

/// Why a provider is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// It may not be asked there.
    #[error(
        "'{url}' is no address of an OpenID provider: use https://…, or http:// with a loopback address such as \
         http://127.0.0.1:8080, without user, query or fragment"
    )]
    Address {
        /// Where.
        url: String,
    },
    /// It does not answer.
    #[error(
        "the OpenID provider cannot be asked at {url}: {why}; check the address, the network and the certificates that this \
         machine trusts"
    )]
    Unreachable {
        /// Where.
        url: String,
        /// Why not.
        why: String,
    },
    /// It answers something else.
    #[error(
        "the OpenID provider answers {what} in a way that cannot be used: {why}; check the issuer"
    )]
    Malformed {
        /// What was asked for.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// It is another one.
    #[error(
        "the provider calls itself '{found}' and not '{expected}': the issuer must be written as it writes it"
    )]
    Issuer {
        /// What was configured.
        expected: String,
        /// What it says.
        found: String,
    },
    /// It has no device authorization grant.
    #[error(
        "the provider {issuer} has no device authorization grant (RFC 8628): switch it on there, or log in with a token"
    )]
    NoDevice {
        /// Which.
        issuer: String,
    },
    /// It said no.
    #[error(
        "the provider refuses {what}: {why}; an operator of the cluster checks its client there"
    )]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// Its error.
        why: String,
    },
    /// The person said no.
    #[error("the login was denied at the provider: log in again")]
    Denied,
    /// The person took too long.
    #[error("nobody has entered the code in time: log in again")]
    Late,
}

/// Where the parts of a provider are.
#[derive(Debug, Deserialize)]
pub(crate) struct Provider {
    issuer: String,
    pub(crate) device_authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: Option<String>,
    pub(crate) jwks_uri: String,
}

impl Provider {
    /// Asks the issuer.
    pub(crate) async fn find(issuer: &str, limit: Duration) -> Result<Self, ProviderError> {
        let url = Url::parse(issuer)?.below(".well-known/openid-configuration")?;
        let found: Self = read("its description", url.ask(None, limit).await?)?;
        if found.issuer != issuer {
            return Err(ProviderError::Issuer {
                expected: shown(issuer),
                found: shown(&found.issuer),
            });
        }
        Ok(found)
    }
}

/// What an answer says, if its status is 200.
pub(crate) fn read<T: DeserializeOwned>(
    what: &'static str,
    (status, body): (u16, Bytes),
) -> Result<T, ProviderError> {
    let why = match (status, serde_json::from_slice(&body)) {
        (200, Ok(read)) => return Ok(read),
        (200, Err(error)) => error.to_string(),
        (status, _) => format!("with status {status}"),
    };
    let why = shown(&why);
    Err(ProviderError::Malformed { what, why })
}
