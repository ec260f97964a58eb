//! What clients submit, as records in the control store have it.
//!
//! Owns these layouts: a field that is new on the wire leaves them as they are. What is in the fields is laid out as on the wire.
//! Must not: change, unless the records get another version.
//!
//! They have no field for secrets: one is a variable whose name begins with `=`, as none of an environment does
//! ([`Grants::check`](wasmrun_engine::Grants::check)). That a task is not to be preempted is a resource that no node has.

use serde::{Deserialize, Serialize};
use wasmrun_model::http::{HttpHost, Route};
use wasmrun_model::id::Digest;
use wasmrun_model::secret::SecretUse;
use wasmrun_model::trace::TraceContext;
use wasmrun_model::wire::{
    self, Argument, Bytes, Dir, Entry, Input, Limits, Listen, Net, Terms, Wishes,
};

/// A task.
#[derive(Serialize, Deserialize)]
#[serde(remote = "wire::Submit")]
pub(crate) struct Submit {
    module: Digest,
    entry: Entry,
    name: String,
    values: Vec<Argument>,
    args: Vec<String>,
    array_index: Option<u64>,
    #[serde(with = "terms")]
    terms: Terms,
    limits: Limits,
    #[serde(with = "grants")]
    grants: wire::Grants,
    input: Input,
    is_watched: bool,
    is_detached: bool,
    trace: Option<TraceContext>,
}

/// An actor.
#[derive(Serialize, Deserialize)]
#[serde(remote = "wire::Create")]
pub(crate) struct Create {
    module: Digest,
    class: String,
    values: Vec<Argument>,
    name: Option<String>,
    #[serde(with = "terms")]
    terms: Terms,
    limits: Limits,
    #[serde(with = "grants")]
    grants: wire::Grants,
    wishes: Wishes,
    is_detached: bool,
    trace: Option<TraceContext>,
}

/// A service.
#[derive(Serialize, Deserialize)]
#[serde(remote = "wire::Serve")]
pub(crate) struct Serve {
    name: String,
    module: Digest,
    routes: Vec<Route>,
    address: Listen,
    tls: Option<(Bytes, Bytes)>,
    hosts: Vec<String>,
    most_running: u32,
    most_waiting: u32,
    patience_ms: u64,
    #[serde(with = "terms")]
    terms: Terms,
    limits: Limits,
    #[serde(with = "grants")]
    grants: wire::Grants,
    is_detached: bool,
}

/// What was submitted before there were traces, HTTP requests of guests and secrets.
pub(crate) mod first {
    use super::*;

    /// A task.
    #[derive(Serialize, Deserialize)]
    #[serde(remote = "wire::Submit")]
    pub(crate) struct Submit {
        module: Digest,
        entry: Entry,
        name: String,
        values: Vec<Argument>,
        args: Vec<String>,
        array_index: Option<u64>,
        #[serde(with = "terms")]
        terms: Terms,
        limits: Limits,
        #[serde(with = "Grants")]
        grants: wire::Grants,
        input: Input,
        is_watched: bool,
        is_detached: bool,
        #[serde(skip)]
        trace: Option<TraceContext>,
    }

    /// An actor.
    #[derive(Serialize, Deserialize)]
    #[serde(remote = "wire::Create")]
    pub(crate) struct Create {
        module: Digest,
        class: String,
        values: Vec<Argument>,
        name: Option<String>,
        #[serde(with = "terms")]
        terms: Terms,
        limits: Limits,
        #[serde(with = "Grants")]
        grants: wire::Grants,
        wishes: Wishes,
        is_detached: bool,
        #[serde(skip)]
        trace: Option<TraceContext>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "wire::Grants")]
    struct Grants {
        env: Vec<(String, String)>,
        dirs: Vec<Dir>,
        net: Net,
        #[serde(skip)]
        http: Vec<HttpHost>,
        #[serde(skip)]
        secrets: Vec<SecretUse>,
    }
}

mod terms {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use wasmrun_model::resource::Amount;
    use wasmrun_model::wire::{Amounts, Terms};

    const NO_PREEMPT: &str = "wasmrun/no-preempt";

    pub(super) fn serialize<S: Serializer>(terms: &Terms, to: S) -> Result<S::Ok, S::Error> {
        let mut resources = terms.resources.clone();
        if terms.no_preempt {
            resources.insert(NO_PREEMPT.parse().expect("it is a name"), Amount::ONE);
        }
        let Terms {
            resources: _,
            tenant,
            priority,
            retries,
            retry_on_error,
            no_preempt: _,
            selectors,
            strategy,
        } = terms;
        let fields = (resources, tenant, priority, retries, retry_on_error);
        (fields, selectors, strategy).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Terms, D::Error> {
        let (fields, selectors, strategy) = Deserialize::deserialize(from)?;
        let (resources, tenant, priority, retries, retry_on_error): (Amounts, _, _, _, _) = fields;
        let before = resources.len();
        let resources: Amounts = resources
            .into_iter()
            .filter(|(name, _)| name.as_str() != NO_PREEMPT)
            .collect();
        Ok(Terms {
            no_preempt: resources.len() < before,
            resources,
            tenant,
            priority,
            retries,
            retry_on_error,
            selectors,
            strategy,
        })
    }
}

mod grants {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use wasmrun_model::secret::SecretUse;
    use wasmrun_model::wire::Grants;

    pub(super) fn serialize<S: Serializer>(
        grants: &Grants,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let secrets = grants.secrets.iter();
        let secrets = secrets.map(|it| (format!("={}", it.place), it.name.to_string()));
        let env: Vec<_> = grants.env.iter().cloned().chain(secrets).collect();
        (env, &grants.dirs, &grants.net, &grants.http).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Grants, D::Error> {
        let (all, dirs, net, http) = <(Vec<(String, String)>, _, _, _)>::deserialize(deserializer)?;
        let (mut env, mut secrets) = (Vec::new(), Vec::new());
        for (name, value) in all {
            match name.strip_prefix('=') {
                Some(place) => secrets.push(SecretUse {
                    name: value.parse().map_err(D::Error::custom)?,
                    place: place.parse().map_err(D::Error::custom)?,
                }),
                None => env.push((name, value)),
            }
        }
        Ok(Grants {
            env,
            dirs,
            net,
            http,
            secrets,
        })
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::resource::Amount;
    use wasmrun_model::wire::Grants;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Record(#[serde(with = "grants")] Grants);

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct RecordOfTerms(#[serde(with = "terms")] Terms);

    #[test]
    fn what_is_not_to_be_preempted_asks_for_a_resource_in_a_record() {
        let mut record = RecordOfTerms(Terms {
            resources: [("GPU".parse().unwrap(), Amount::ONE)].into(),
            priority: -1,
            retries: Some(2),
            ..Terms::default()
        });
        let bytes = b"\x01\x03GPU\x90\x4e\0\x01\x01\x02\0\0\0";
        assert_eq!(postcard::to_allocvec(&record).unwrap(), bytes);
        assert_eq!(
            postcard::from_bytes(bytes),
            Ok(RecordOfTerms(record.0.clone()))
        );
        record.0.no_preempt = true;
        let bytes = b"\x02\x03GPU\x90\x4e\x12wasmrun/no-preempt\x90\x4e\0\x01\x01\x02\0\0\0";
        assert_eq!(postcard::to_allocvec(&record).unwrap(), bytes);
        assert_eq!(postcard::from_bytes(bytes), Ok(record));
    }

    #[test]
    fn a_secret_is_a_variable_of_a_record() {
        let record = Record(Grants {
            env: vec![("K".into(), "v".into())],
            secrets: vec!["T=S".parse().unwrap(), "/run/secrets/f=S".parse().unwrap()],
            ..Grants::default()
        });
        let bytes = b"\x03\x01K\x01v\x02=T\x01S\x0f=/run/secrets/f\x01S\0\0\0";
        assert_eq!(postcard::to_allocvec(&record).unwrap(), bytes);
        assert_eq!(postcard::from_bytes(bytes), Ok(record));
        // A place that no secret can have.
        assert!(postcard::from_bytes::<Record>(b"\x01\x05=/etc\x01S\0\0\0").is_err());
    }
}
