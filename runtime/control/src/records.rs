//! Keys and values with types: which keys there are, and records in them.
//!
//! Owns how keys are built (nobody else concatenates them) and how a record becomes bytes: one byte that
//! says how, one for the version of the record's type, then JSON or postcard. Must not: know what the
//! records mean; `node` defines their types.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasmrun_model::cluster::NodeName;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{GroupId, NodeId, TaskId};
use wasmrun_model::secret::SecretName;

/// Nodes that live, each under its lease.
pub const NODES: &str = "nodes/";
/// The last incarnation of each node that was ever there.
pub const INCARNATIONS: &str = "incarnations/";
/// Names of nodes that live, each under its lease.
pub const NODE_NAMES: &str = "node-names/";
/// Join tokens, all in one record.
pub const TOKENS: &str = "tokens";
/// Clients that have a certificate of the cluster.
pub const CLIENTS: &str = "clients/";
/// Nodes that were taken out of the cluster.
pub const REMOVED: &str = "removed/";
/// Actors by tenant and name.
pub const NAMED: &str = "named/";
/// Placement groups, under their owner.
pub const GROUPS: &str = "groups/";
/// Tenants.
pub const TENANTS: &str = "tenants/";
/// Secrets by tenant and name, sealed.
pub const SECRETS: &str = "secrets/";
/// Keys that have sealed secrets before, sealed by the one after them.
pub const SECRET_KEYS: &str = "secret-keys/";
/// How the cluster schedules, all in one record.
pub const SCHEDULING: &str = "scheduling";
/// HTTP services that every node serves.
pub const SERVICES: &str = "services/";
/// Tasks and their lineage, under their owner.
pub const TASKS: &str = "tasks/";
/// What each node has written last.
pub const FENCES: &str = "fences/";

fn key(prefix: &str, rest: impl std::fmt::Display) -> Bytes {
    format!("{prefix}{rest}").into()
}

/// The key of a node that lives.
pub fn node(id: NodeId) -> Bytes {
    key(NODES, id)
}

/// The key of a node's last incarnation.
pub fn incarnation(id: NodeId) -> Bytes {
    key(INCARNATIONS, id)
}

/// The key of a node's name.
pub fn node_name(name: &NodeName) -> Bytes {
    key(NODE_NAMES, name)
}

/// The key of the join tokens.
pub fn tokens() -> Bytes {
    Bytes::from_static(TOKENS.as_bytes())
}

/// The key of how the cluster schedules.
pub fn scheduling() -> Bytes {
    Bytes::from_static(SCHEDULING.as_bytes())
}

/// The key of a client, by its id.
pub fn client(id: impl std::fmt::Display) -> Bytes {
    key(CLIENTS, id)
}

/// The key of a node that was taken out of the cluster.
pub fn removed(id: NodeId) -> Bytes {
    key(REMOVED, id)
}

/// The key of an actor's name. Any name is fine that leaves the key within its limit.
pub fn named(tenant: &TenantName, name: &str) -> Bytes {
    key(NAMED, of_tenant(tenant, name))
}

/// A name that is one tenant's. It is last in the key, so whatever is in it cannot be mistaken for another part; and no tenant
/// has a colon.
fn of_tenant(tenant: &TenantName, name: &str) -> String {
    format!("{}/{name}", tenant.as_str().replace('/', ":"))
}

/// What the keys of all placement groups of one owner begin with.
pub fn groups_of(owner: NodeId) -> Bytes {
    key(GROUPS, format_args!("{owner}/"))
}

/// The key of a placement group.
pub fn group(owner: NodeId, id: GroupId) -> Bytes {
    key(GROUPS, format_args!("{owner}/{id}"))
}

/// The key of a tenant.
pub fn tenant(name: &TenantName) -> Bytes {
    key(TENANTS, name)
}

/// The key of a secret.
pub fn secret(tenant: &TenantName, name: &SecretName) -> Bytes {
    // A tenant's name may hold a '/', a secret's does not.
    key(SECRETS, format_args!("{tenant}/{name}"))
}

/// The key of a key that has sealed secrets before, by its id.
pub fn secret_key(id: impl std::fmt::Display) -> Bytes {
    key(SECRET_KEYS, id)
}

/// Whose secret a key is, and its name; none if it is not a secret's.
pub fn secret_of(key: &[u8]) -> Option<(TenantName, SecretName)> {
    let rest = std::str::from_utf8(key).ok()?.strip_prefix(SECRETS)?;
    let (tenant, name) = rest.rsplit_once('/')?;
    Some((tenant.parse().ok()?, name.parse().ok()?))
}

/// The key of an HTTP service. Its name stands last, as that of an actor does.
pub fn service(tenant: &TenantName, name: &str) -> Bytes {
    key(SERVICES, of_tenant(tenant, name))
}

/// What the keys of all tasks of one owner begin with.
pub fn tasks_of(owner: NodeId) -> Bytes {
    key(TASKS, format_args!("{owner}/"))
}

/// The key of a task.
pub fn task(owner: NodeId, id: TaskId) -> Bytes {
    key(TASKS, format_args!("{owner}/{id}"))
}

/// The key of what a node has written last, of one kind.
pub fn fence(node: NodeId, what: impl std::fmt::Display) -> Bytes {
    key(FENCES, format_args!("{node}/{what}"))
}

/// How a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Fields have names: an older wasmrun skips those that it does not know. For what nodes of two
    /// versions read.
    Json,
    /// Short. For what there are many of.
    Postcard,
}

impl Form {
    const fn byte(self) -> u8 {
        match self {
            Self::Json => b'j',
            Self::Postcard => b'p',
        }
    }
}

/// Why a value is not the record that it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It was written by a newer wasmrun.
    #[error(
        "a record has version {found}, and this wasmrun knows versions up to {known}; update this node"
    )]
    Newer {
        /// Its version.
        found: u8,
        /// The newest that we know.
        known: u8,
    },
    /// It is no record, or not of this type.
    #[error(
        "a record cannot be read: {why}; if no other program writes there, the store is damaged"
    )]
    Malformed {
        /// What is wrong.
        why: String,
    },
}

/// A type of records that can be written and read.
pub trait Record: Serialize + DeserializeOwned {
    /// How it is written.
    const FORM: Form;
    /// The version of its fields. A change that old readers would misread raises it.
    const VERSION: u8;

    /// The version that this record is written with: lower than [`Record::VERSION`] where an older reader reads it rightly.
    fn version(&self) -> u8 {
        Self::VERSION
    }

    /// The record as a value.
    fn to_value(&self) -> Bytes {
        let mut bytes = vec![Self::FORM.byte(), self.version()];
        match Self::FORM {
            Form::Json => {
                serde_json::to_writer(&mut bytes, self).expect("a record is written to memory");
            }
            Form::Postcard => {
                bytes = postcard::to_extend(self, bytes).expect("a record is written to memory");
            }
        }
        bytes.into()
    }

    /// The record in a value.
    ///
    /// # Errors
    /// When it is none, or newer than we are.
    fn from_value(value: &[u8]) -> Result<Self, RecordError> {
        let malformed = |why: String| RecordError::Malformed { why };
        let &[form, found, ref body @ ..] = value else {
            return Err(malformed("it is too short".to_owned()));
        };
        if found > Self::VERSION {
            let known = Self::VERSION;
            return Err(RecordError::Newer { found, known });
        }
        if form == Form::Json.byte() {
            return serde_json::from_slice(body).map_err(|error| malformed(error.to_string()));
        }
        if form != Form::Postcard.byte() {
            return Err(malformed(format!("it begins with {form:#04x}")));
        }
        match postcard::take_from_bytes(body) {
            Ok((record, [])) => Ok(record),
            Ok((_, rest)) => Err(malformed(format!("{} bytes follow it", rest.len()))),
            Err(error) => Err(malformed(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Old {
        a: u8,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct New {
        a: u8,
        #[serde(default)]
        b: Option<String>,
    }

    impl Record for Old {
        const FORM: Form = Form::Json;
        const VERSION: u8 = 1;
    }

    impl Record for New {
        const FORM: Form = Form::Json;
        const VERSION: u8 = 1;
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Short(u16);

    impl Record for Short {
        const FORM: Form = Form::Postcard;
        const VERSION: u8 = 3;
    }

    #[test]
    fn records_have_these_bytes() {
        assert_eq!(Old { a: 7 }.to_value().as_ref(), b"j\x01{\"a\":7}");
        assert_eq!(Short(300).to_value().as_ref(), b"p\x03\xac\x02");
        assert_eq!(Short::from_value(b"p\x03\xac\x02"), Ok(Short(300)));
    }

    #[test]
    fn two_versions_read_each_other_and_what_is_newer_is_said() {
        let new = New {
            a: 7,
            b: Some("x".into()),
        };
        assert_eq!(Old::from_value(&new.to_value()), Ok(Old { a: 7 }));
        let old = Old { a: 8 }.to_value();
        assert_eq!(New::from_value(&old), Ok(New { a: 8, b: None }));
        let newer = RecordError::Newer { found: 9, known: 3 };
        assert_eq!(Short::from_value(b"p\x09\x00"), Err(newer));
        for bad in [&b""[..], b"p", b"p\x03", b"p\x03\x01\x01", b"x\x03\x01"] {
            assert!(matches!(
                Short::from_value(bad),
                Err(RecordError::Malformed { .. })
            ));
        }
    }

    #[test]
    fn keys_look_like_this() {
        let id = NodeId::from_bytes([0xab; 16]);
        assert_eq!(node(id), format!("nodes/{}", "ab".repeat(16)));
        let tenant = TenantName::default();
        assert_eq!(named(&tenant, "a/b"), "named/default/a/b");
        // No other tenant's name is the same key.
        let inner: TenantName = "default/a".parse().unwrap();
        assert_eq!(named(&inner, "b"), "named/default:a/b");
        assert_eq!(super::tenant(&inner), "tenants/default/a");
        let name: SecretName = "API_KEY".parse().unwrap();
        let secret = secret(&tenant, &name);
        assert_eq!(secret, "secrets/default/API_KEY");
        assert_eq!(secret_of(&secret), Some((tenant, name)));
        assert_eq!(secret_of(b"secrets/API_KEY"), None);
        let owner = NodeId::from_bytes([1; 16]);
        let task = task(owner, TaskId::from_bytes([2; 16]));
        assert!(task.starts_with(&tasks_of(owner)));
    }
}
