//! Keys, values, changes and transactions: the words that all control stores share.
//!
//! Owns the types and their limits. Must not: do I/O or know an implementation. Keys and values are
//! bytes; `records` puts types on top.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The longest key, in bytes. The shortest has one byte.
pub const MAX_KEY_BYTES: usize = 1 << 10;

/// The largest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// The most operations in one branch of a transaction, and the most comparisons.
pub const MAX_TXN_OPS: usize = 128;

/// The most bytes of keys and values in one transaction (all branches together), and in its answer.
/// Below etcd's own limit of 1.5 MiB for a request.
pub const MAX_TXN_BYTES: usize = (1 << 20) + (1 << 18);

/// The most entries that one [`Page`] has.
pub const MAX_PAGE_ENTRIES: usize = 1_000;

/// A page ends when it has this many bytes, but never before its first entry.
pub const MAX_PAGE_BYTES: usize = 1 << 20;

/// The shortest time to live of a lease. Longer ones are rounded up to whole seconds.
pub const MIN_TTL: Duration = Duration::from_secs(1);

/// The longest time to live of a lease.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// A point in the store's history. Every transaction that changes something makes the next one, for
/// all keys together. The first is 1 or more.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Revision(pub u64);

impl Revision {
    /// No revision: before all changes. As the start of a watch: from now on.
    pub const ZERO: Self = Self(0);

    /// The one after it.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The name of a lease, given by the store; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A lease as it was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its name.
    pub id: LeaseId,
    /// How long it lives after each keep-alive: what was asked for or longer.
    pub ttl: Duration,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The revision that made it.
    pub created: Revision,
    /// The revision that last changed it.
    pub modified: Revision,
    /// How often it was put since it was made: 1 for a new one.
    pub version: u64,
    /// The lease that it ends with.
    pub lease: Option<LeaseId>,
}

/// What became of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// It was made or changed: as it is since then.
    Put(Entry),
    /// It was deleted, or its lease ended.
    Delete {
        /// The key.
        key: Bytes,
    },
}

impl Event {
    /// The key that it is about.
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Delete { key } => key,
        }
    }
}

/// All that one revision changed under a watched prefix, in the order in which it was changed. Never
/// empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The revision.
    pub revision: Revision,
    /// The changes.
    pub events: Vec<Event>,
}

/// Which keys to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// What they begin with; all if it is empty.
    pub prefix: Bytes,
    /// The first key that counts: [`Page::next`] of the page before, or empty.
    pub from: Bytes,
    /// How many at most. [`MAX_PAGE_ENTRIES`] is the most; zero stands for that.
    pub limit: usize,
}

impl Range {
    /// All keys with this prefix, from the first.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        Self {
            prefix: prefix.into(),
            from: Bytes::new(),
            limit: 0,
        }
    }

    pub(crate) fn limit(&self) -> usize {
        match self.limit {
            0 => MAX_PAGE_ENTRIES,
            limit => limit.min(MAX_PAGE_ENTRIES),
        }
    }

    /// The first key that can be in it.
    pub(crate) fn start(&self) -> &Bytes {
        (&self.prefix).max(&self.from)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_prefix(&self.prefix)?;
        // One more than a key may have: the key after the longest one.
        let size = self.from.len();
        if size > MAX_KEY_BYTES + 1 {
            return Err(too_large("the start of the range", size, MAX_KEY_BYTES + 1));
        }
        Ok(())
    }
}

/// Some keys in order, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The keys, in the order of their bytes.
    pub entries: Vec<Entry>,
    /// The revision that was read. A watch from the one after it misses nothing.
    pub revision: Revision,
    /// [`Range::from`] of the next page; `None` if this was the last. Pages are read at different
    /// revisions: watch from the first page's on to see what changed meanwhile.
    pub next: Option<Bytes>,
}

/// What must be true of a key for a transaction to take its first branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compare {
    /// The key.
    pub key: Bytes,
    /// What must be true of it.
    pub condition: Condition,
}

/// A condition on one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// There is no such key.
    Absent,
    /// There is.
    Present,
    /// It is there and has this version.
    Version(u64),
    /// It is there and was last changed by this revision.
    Modified(Revision),
    /// It is there and has this value.
    Value(Bytes),
    /// It is there and under this lease.
    Lease(LeaseId),
}

impl Condition {
    /// Whether it holds for a key as it is.
    pub(crate) fn holds(&self, entry: Option<&Entry>) -> bool {
        match (self, entry) {
            (Self::Absent, entry) => entry.is_none(),
            (_, None) => false,
            (Self::Present, Some(_)) => true,
            (Self::Version(version), Some(entry)) => entry.version == *version,
            (Self::Modified(revision), Some(entry)) => entry.modified == *revision,
            (Self::Value(value), Some(entry)) => entry.value == *value,
            (Self::Lease(lease), Some(entry)) => entry.lease == Some(*lease),
        }
    }
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Read a key, as the steps before it left it.
    Get {
        /// The key.
        key: Bytes,
    },
    /// Make or change a key.
    Put {
        /// The key.
        key: Bytes,
        /// Its value from now on.
        value: Bytes,
        /// The lease that it ends with from now on; `None` takes it out of the one it had.
        lease: Option<LeaseId>,
    },
    /// Delete a key. That it is not there is fine.
    Delete {
        /// The key.
        key: Bytes,
    },
}

impl Op {
    /// Reads `key`.
    pub fn get(key: impl Into<Bytes>) -> Self {
        Self::Get { key: key.into() }
    }

    /// Puts `value`, under no lease.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put {
            key: key.into(),
            value: value.into(),
            lease: None,
        }
    }

    /// Puts `value`, until the lease ends.
    pub fn put_leased(key: impl Into<Bytes>, value: impl Into<Bytes>, lease: LeaseId) -> Self {
        Self::Put {
            key: key.into(),
            value: value.into(),
            lease: Some(lease),
        }
    }

    /// Deletes `key`.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Self::Delete { key: key.into() }
    }

    pub(crate) fn key(&self) -> &Bytes {
        match self {
            Self::Get { key } | Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    pub(crate) fn is_change(&self) -> bool {
        !matches!(self, Self::Get { .. })
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Get { key } | Self::Delete { key } => key.len(),
        }
    }
}

/// What one step of a transaction answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpReply {
    /// The key that was read.
    Got(Option<Entry>),
    /// It was put.
    Put,
    /// Whether there was something to delete.
    Deleted(bool),
}

/// Steps that are done all or not at all, and which of them by what is there. Several keys may be
/// changed, each at most once in a branch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Txn {
    /// All must hold for the first branch to be taken. None at all always hold.
    pub compares: Vec<Compare>,
    /// What to do if they hold.
    pub then: Vec<Op>,
    /// What to do if one does not.
    pub otherwise: Vec<Op>,
}

impl Txn {
    /// A transaction that compares nothing and does this.
    pub fn of(ops: impl IntoIterator<Item = Op>) -> Self {
        Self {
            then: ops.into_iter().collect(),
            ..Self::default()
        }
    }

    /// One that does something only if this holds.
    pub fn when(key: impl Into<Bytes>, condition: Condition) -> Self {
        Self::default().and(key, condition)
    }

    /// And only if this holds too.
    pub fn and(mut self, key: impl Into<Bytes>, condition: Condition) -> Self {
        self.compares.push(Compare {
            key: key.into(),
            condition,
        });
        self
    }

    /// What to do if all holds.
    pub fn then(mut self, op: Op) -> Self {
        self.then.push(op);
        self
    }

    /// What to do if something does not.
    pub fn otherwise(mut self, op: Op) -> Self {
        self.otherwise.push(op);
        self
    }

    /// How many bytes its steps have, all branches together.
    pub(crate) fn op_bytes(&self) -> usize {
        self.then.iter().chain(&self.otherwise).map(Op::bytes).sum()
    }

    /// Whether it is within the limits and means something.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (what, count) in [
            ("the list of comparisons", self.compares.len()),
            ("the transaction", self.then.len()),
            ("the transaction's other branch", self.otherwise.len()),
        ] {
            if count > MAX_TXN_OPS {
                return Err(too_large(what, count, MAX_TXN_OPS));
            }
        }
        let mut bytes = 0;
        for compare in &self.compares {
            check_key(&compare.key)?;
            bytes += compare.key.len();
            if let Condition::Value(value) = &compare.condition {
                check_value(&compare.key, value)?;
                bytes += value.len();
            }
        }
        for branch in [&self.then, &self.otherwise] {
            let mut changed = std::collections::BTreeSet::new();
            for op in branch {
                check_key(op.key())?;
                if let Op::Put { key, value, .. } = op {
                    check_value(key, value)?;
                }
                if op.is_change() && !changed.insert(op.key()) {
                    return Err(Error::invalid(format_args!(
                        "one branch of the transaction changes the key {} twice",
                        show(op.key())
                    )));
                }
            }
        }
        bytes += self.op_bytes();
        if bytes > MAX_TXN_BYTES {
            return Err(too_large("the transaction", bytes, MAX_TXN_BYTES));
        }
        Ok(())
    }
}

/// What a transaction did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxnReply {
    /// The revision that it made, or the one that it read if it changed nothing.
    pub revision: Revision,
    /// Whether all comparisons held: the first branch was taken.
    pub succeeded: bool,
    /// One for each step of the branch that was taken.
    pub replies: Vec<OpReply>,
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    match key.len() {
        0 => Err(Error::invalid("a key has at least one byte")),
        1..=MAX_KEY_BYTES => Ok(()),
        len => Err(too_large(
            format_args!("the key {}", show(key)),
            len,
            MAX_KEY_BYTES,
        )),
    }
}

pub(crate) fn check_prefix(prefix: &[u8]) -> Result<(), Error> {
    match prefix.is_empty() {
        true => Ok(()),
        false => check_key(prefix),
    }
}

fn check_value(key: &[u8], value: &[u8]) -> Result<(), Error> {
    match value.len() {
        ..=MAX_VALUE_BYTES => Ok(()),
        len => Err(too_large(
            format_args!("the value of {}", show(key)),
            len,
            MAX_VALUE_BYTES,
        )),
    }
}

/// A time to live in whole seconds, if it is one that leases may have.
pub(crate) fn ttl_seconds(ttl: Duration) -> Result<u64, Error> {
    if ttl > MAX_TTL {
        return Err(Error::invalid(format_args!(
            "a lease of {}s is longer than the longest, {}s",
            ttl.as_secs(),
            MAX_TTL.as_secs()
        )));
    }
    let ttl = ttl.max(MIN_TTL);
    Ok(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0))
}

pub(crate) fn too_large(what: impl ToString, size: usize, limit: usize) -> Error {
    Error::TooLarge {
        what: what.to_string(),
        size: size as u64,
        limit: limit as u64,
    }
}

/// A key for people: text if it is, and not all of a long one.
pub(crate) fn show(key: &[u8]) -> String {
    let start = &key[..key.len().min(80)];
    let more = if start.len() < key.len() { "…" } else { "" };
    format!("\"{}{more}\"", start.escape_ascii())
}

/// The smallest key after all keys that begin with `prefix`; `None` if there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The smallest key after `key`.
pub(crate) fn after_key(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }

    #[test]
    fn bytes_are_one_string_of_bytes() {
        let entry = Entry {
            key: "k".into(),
            value: Bytes::new(),
            created: Revision(1),
            modified: Revision(2),
            version: 3,
            lease: None,
        };
        let page = Page {
            entries: vec![entry],
            revision: Revision(300),
            next: Some("k\0".into()),
        };
        let bytes = b"\x01\x01k\0\x01\x02\x03\0\xac\x02\x01\x02k\0";
        assert_eq!(postcard::to_allocvec(&page).unwrap(), bytes);
        assert_eq!(postcard::from_bytes::<Page>(bytes).unwrap(), page);
        let json = r#"{"entries":[{"key":[107],"value":[],"created":1,"modified":2,"version":3,"lease":null}],"revision":300,"next":[107,0]}"#;
        assert_eq!(serde_json::to_string(&page).unwrap(), json);
        assert_eq!(serde_json::from_str::<Page>(json).unwrap(), page);
    }

    #[test]
    fn limits_are_said_with_numbers() {
        let error = check_key(&[b'k'; 2000]).unwrap_err().to_string();
        assert!(error.contains("2000") && error.contains("1024"), "{error}");
        let twice = Txn::of([Op::put("a", "1"), Op::delete("a")]);
        assert!(matches!(twice.check(), Err(Error::Invalid { .. })));
        let swap = Txn::of([Op::get("a"), Op::put("a", "1")]);
        assert_eq!(swap.check(), Ok(()));
        assert_eq!(ttl_seconds(Duration::from_millis(1001)), Ok(2));
        assert_eq!(ttl_seconds(Duration::ZERO), Ok(1));
    }
}
