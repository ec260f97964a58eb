//! The check of an ID token, by OpenID Connect Core 1.0, section 3.1.3.7.
//!
//! Invariant: a token is signed by an asymmetric key that the provider publishes; what else a token names as its key counts for
//! nothing.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::device::Offer;

/// What a signature may be. None of them takes a secret that both sides know, and none is `none`.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Why an ID token does not serve. The text is for the person who logs in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is none.
    #[error("the ID token cannot be read; log in again")]
    Malformed,
    /// Anybody could have made it.
    #[error(
        "the ID token is not signed with RSA, ECDSA or Ed25519, and no other signature counts; an operator of the cluster sets \
         its client at the provider to RS256 or ES256"
    )]
    Algorithm,
    /// The provider does not know the key.
    #[error("the ID token is signed with a key that the provider does not publish; log in again")]
    UnknownKey,
    /// The signature is wrong.
    #[error("the signature of the ID token is wrong; log in again")]
    Signature,
    /// It is of another provider.
    #[error(
        "the ID token is of another provider than the cluster's; log in again with `wasmrun login --oidc`"
    )]
    Issuer,
    /// It is for another program.
    #[error(
        "the ID token is for another client than the cluster's; log in again with `wasmrun login --oidc`"
    )]
    Audience,
    /// It is too old.
    #[error("the ID token has expired; log in again, and check the clocks of both machines")]
    Expired,
    /// It belongs to another login.
    #[error("the ID token is of another login than this one; log in again")]
    Nonce,
}

/// The keys that a provider publishes.
#[derive(Debug)]
pub(crate) struct Keys(Vec<Jwk>);

/// As they come. Those that are not understood are left out.
#[derive(Deserialize)]
pub(crate) struct KeySet {
    keys: Vec<Value>,
}

impl From<KeySet> for Keys {
    fn from(set: KeySet) -> Self {
        let keys = set.keys.into_iter();
        let keys = keys.filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        let signs = |key: &Jwk| match &key.common.public_key_use {
            Some(what) => *what == PublicKeyUse::Signature,
            None => true,
        };
        Self(keys.filter(signs).collect())
    }
}

impl Keys {
    /// The key of this name; where a token names none, the only one.
    fn find(&self, name: Option<&str>) -> Option<&Jwk> {
        match name {
            Some(_) => {
                let mut keys = self.0.iter();
                keys.find(|key| key.common.key_id.as_deref() == name)
            }
            None => match &self.0[..] {
                [key] => Some(key),
                _ => None,
            },
        }
    }

    /// What a token says, if it is the provider's, for us, of now, and of this login.
    pub(crate) fn check(
        &self,
        token: &str,
        offer: &Offer,
        nonce: &str,
    ) -> Result<Map<String, Value>, TokenError> {
        let header = decode_header(token).map_err(|error| of(error.kind()))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(TokenError::Algorithm);
        }
        let key = self.find(header.kid.as_deref());
        let key = key.ok_or(TokenError::UnknownKey)?;
        let key = DecodingKey::from_jwk(key).map_err(|_| TokenError::UnknownKey)?;
        let mut validation = Validation::new(header.alg);
        validation.validate_nbf = true;
        validation.set_issuer(&[&offer.issuer]);
        validation.set_audience(&[&offer.client_id]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let decoded = decode::<Map<String, Value>>(token, &key, &validation);
        let claims = decoded.map_err(|error| of(error.kind()))?.claims;
        // A list of issuers is none.
        if claims.get("iss").and_then(Value::as_str) != Some(offer.issuer.as_str()) {
            return Err(TokenError::Issuer);
        }
        let is_ours = |name: &str, ours: &str| claims.get(name).is_none_or(|it| it == ours);
        if !is_ours("azp", &offer.client_id) {
            return Err(TokenError::Audience);
        }
        // Not every provider has one where there is no redirection.
        if !is_ours("nonce", nonce) {
            return Err(TokenError::Nonce);
        }
        Ok(claims)
    }
}

fn of(error: &ErrorKind) -> TokenError {
    match error {
        ErrorKind::ExpiredSignature | ErrorKind::ImmatureSignature => TokenError::Expired,
        ErrorKind::InvalidIssuer => TokenError::Issuer,
        ErrorKind::InvalidAudience => TokenError::Audience,
        ErrorKind::InvalidSignature => TokenError::Signature,
        // An algorithm that has no name here, such as `none`, or one that does not fit the key.
        ErrorKind::InvalidAlgorithm
        | ErrorKind::InvalidAlgorithmName
        | ErrorKind::UnsupportedAlgorithm => TokenError::Algorithm,
        ErrorKind::InvalidKeyFormat
        | ErrorKind::InvalidRsaKey(_)
        | ErrorKind::InvalidEcdsaKey
        | ErrorKind::InvalidEddsaKey => TokenError::UnknownKey,
        _ => TokenError::Malformed,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
    use serde_json::json;

    use super::*;

    const NONCE: &str = "of this login";

    /// A provider that signs.
    pub(crate) struct Signer {
        key: EncodingKey,
        pub(crate) set: Value,
    }

    impl Signer {
        pub(crate) fn new(name: &str) -> Self {
            let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
            let key = EncodingKey::from_ec_der(&pair.serialize_der());
            let jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).expect("a public key");
            let mut jwk = serde_json::to_value(jwk).expect("JSON");
            jwk["kid"] = name.into();
            let set = json!({ "keys": [jwk, {"kty": "new", "kid": "later"}, {"kid": 1}] });
            Self { key, set }
        }

        fn keys(&self) -> Keys {
            let set: KeySet = serde_json::from_value(self.set.clone()).expect("keys");
            set.into()
        }

        pub(crate) fn sign(&self, name: &str, claims: &Value) -> String {
            let mut header = Header::new(Algorithm::ES256);
            header.kid = Some(name.to_owned());
            encode(&header, claims, &self.key).expect("it signs")
        }
    }

    pub(crate) fn offer() -> Offer {
        Offer {
            issuer: "https://op.example.com".into(),
            client_id: "wasmrun".into(),
            client_secret: None,
            scopes: vec!["openid".into()],
        }
    }

    pub(crate) fn claims() -> Value {
        json!({
            "iss": "https://op.example.com", "aud": "wasmrun", "sub": "1", "exp": get_current_timestamp() + 600,
            "email": "ann@example.com", "groups": ["web", "ml-team"],
        })
    }

    /// What becomes of a token with these claims in the place of the usual ones. Null takes one away.
    fn checked(signer: &Signer, with: &Value) -> Result<(), TokenError> {
        let mut all = claims();
        for (name, value) in with.as_object().expect("claims") {
            match value {
                Value::Null => drop(all.as_object_mut().and_then(|it| it.remove(name))),
                value => all[name] = value.clone(),
            }
        }
        let token = signer.sign("a", &all);
        signer.keys().check(&token, &offer(), NONCE).map(drop)
    }

    #[test]
    fn a_token_of_the_provider_for_us_of_now_is_taken() {
        let signer = Signer::new("a");
        for with in [
            json!({}),
            json!({ "aud": ["other", "wasmrun"], "azp": "wasmrun" }),
            json!({ "nonce": NONCE }),
            // Clocks differ.
            json!({ "exp": get_current_timestamp() - 5 }),
        ] {
            assert_eq!(checked(&signer, &with), Ok(()), "{with}");
        }
    }

    #[test]
    fn claims_that_are_wrong_or_missing_are_refused() {
        let signer = Signer::new("a");
        let now = get_current_timestamp();
        for (with, why) in [
            (json!({ "aud": "other" }), TokenError::Audience),
            (json!({ "aud": ["other"] }), TokenError::Audience),
            (
                json!({ "aud": ["other", "wasmrun"], "azp": "other" }),
                TokenError::Audience,
            ),
            (
                json!({ "iss": "https://op.example.com/" }),
                TokenError::Issuer,
            ),
            (
                json!({ "iss": ["https://op.example.com"] }),
                TokenError::Issuer,
            ),
            (json!({ "exp": now - 120 }), TokenError::Expired),
            (json!({ "nbf": now + 600 }), TokenError::Expired),
            (json!({ "nonce": "of another" }), TokenError::Nonce),
            (json!({ "aud": null }), TokenError::Malformed),
            (json!({ "iss": null }), TokenError::Malformed),
            (json!({ "exp": null }), TokenError::Malformed),
            (json!({ "exp": "later" }), TokenError::Malformed),
            (json!({ "sub": null }), TokenError::Malformed),
        ] {
            assert_eq!(checked(&signer, &with), Err(why), "{with}");
        }
    }

    #[test]
    fn signatures_that_anybody_could_make_are_refused() {
        let (signer, other) = (Signer::new("a"), Signer::new("a"));
        let keys = signer.keys();
        let check = |token: &str| keys.check(token, &offer(), NONCE).map(drop);
        let good = signer.sign("a", &claims());
        assert_eq!(check(&good), Ok(()));
        assert_eq!(
            check(&signer.sign("b", &claims())),
            Err(TokenError::UnknownKey)
        );
        assert_eq!(
            check(&signer.sign("later", &claims())),
            Err(TokenError::UnknownKey)
        );
        assert_eq!(
            check(&other.sign("a", &claims())),
            Err(TokenError::Signature)
        );
        // {"alg":"none","kid":"a"}, without a signature and with a stranger's.
        let (_, rest) = good.split_once('.').expect("three parts");
        let (payload, signature) = rest.split_once('.').expect("three parts");
        let none = "eyJhbGciOiJub25lIiwia2lkIjoiYSJ9";
        for token in [
            format!("{none}.{payload}."),
            format!("{none}.{payload}.{signature}"),
        ] {
            assert!(check(&token).is_err(), "{token}");
        }
        // With what everybody knows as a secret.
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("a".into());
        let secret = EncodingKey::from_secret(signer.set.to_string().as_bytes()).expect("a secret");
        let token = encode(&header, &claims(), &secret).expect("it signs");
        assert_eq!(check(&token), Err(TokenError::Algorithm));
        for token in ["", ".", "a.b.c", "..", &good[..good.len() / 2]] {
            assert_eq!(check(token), Err(TokenError::Malformed), "{token}");
        }
    }
}
