//! The control store in an etcd cluster, for clusters that must survive the loss of any machine.
//!
//! Owns the translation between our words and etcd's. Each key stands in etcd under a prefix. Must not:
//! promise less than the trait; where etcd promises more, that is not shown.

mod connection;
mod pb;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use self::connection::{Connection, Repeat};
pub use self::connection::{EtcdConfig, EtcdConfigError, EtcdTls};
use self::pb::{compare, request_op, response_op};
use self::watch::EtcdWatch;
use crate::error::Error;
use crate::store::{ControlStore, Watch, first_watched};
use crate::types::{
    Condition, Entry, Lease, LeaseId, MAX_PAGE_BYTES, Op, OpReply, Page, Range, Revision, Txn,
    TxnReply, after_key, after_prefix, check_key, check_prefix, ttl_seconds,
};

/// How many entries we ask for at a time: etcd has no limit in bytes, and these can be 64 MiB.
const ENTRIES_AT_A_TIME: usize = 64;

/// The control store in etcd, version 3.4 or newer.
#[derive(Debug)]
pub struct Etcd {
    connection: Arc<Connection>,
    prefix: Bytes,
}

impl Etcd {
    /// A store in these servers. Connects when it is first used.
    ///
    /// # Errors
    /// When the configuration makes no sense.
    pub fn new(config: &EtcdConfig) -> Result<Self, EtcdConfigError> {
        Ok(Self {
            connection: Arc::new(Connection::new(config)?),
            prefix: config.prefix.clone().into_bytes().into(),
        })
    }

    /// The key as it stands in etcd.
    fn outer(&self, key: &[u8]) -> Bytes {
        [&self.prefix, key].concat().into()
    }

    fn entry(&self, kv: pb::KeyValue) -> Result<Entry, Error> {
        entry_of(&self.prefix, kv)
    }

    fn op(&self, op: &Op) -> pb::RequestOp {
        let request = match op {
            Op::Get { key } => request_op::Request::Range(pb::RangeRequest {
                key: self.outer(key),
                ..Default::default()
            }),
            Op::Put { key, value, lease } => request_op::Request::Put(pb::PutRequest {
                key: self.outer(key),
                value: value.clone(),
                lease: lease.map_or(0, |lease| lease.0.cast_signed()),
            }),
            Op::Delete { key } => request_op::Request::DeleteRange(pb::DeleteRangeRequest {
                key: self.outer(key),
            }),
        };
        pb::RequestOp {
            request: Some(request),
        }
    }

    fn reply(&self, reply: pb::ResponseOp) -> Result<OpReply, Error> {
        match reply.response {
            Some(response_op::Response::Range(range)) => {
                let kv = range.kvs.into_iter().next();
                Ok(OpReply::Got(kv.map(|kv| self.entry(kv)).transpose()?))
            }
            Some(response_op::Response::Put(_)) => Ok(OpReply::Put),
            Some(response_op::Response::DeleteRange(deleted)) => {
                Ok(OpReply::Deleted(deleted.deleted > 0))
            }
            None => Err(Error::invalid(
                "etcd answers with a step that we do not know",
            )),
        }
    }

    fn compare(&self, key: &[u8], condition: &Condition) -> pb::Compare {
        use compare::Target;
        let (result, with) = match condition {
            Condition::Absent => (pb::EQUAL, Target::Version(0)),
            Condition::Present => (pb::GREATER, Target::Version(0)),
            Condition::Version(version) => (pb::EQUAL, Target::Version(version.cast_signed())),
            Condition::Modified(revision) => {
                (pb::EQUAL, Target::ModRevision(revision.0.cast_signed()))
            }
            Condition::Value(value) => (pb::EQUAL, Target::Value(value.clone())),
            Condition::Lease(lease) => (pb::EQUAL, Target::Lease(lease.0.cast_signed())),
        };
        pb::Compare {
            result,
            target: with.number(),
            key: self.outer(key),
            with: Some(with),
        }
    }

    /// The comparisons of one condition: etcd has no entry's numbers as zero, and we ask for an entry.
    fn compares(&self, txn: &Txn) -> Vec<pb::Compare> {
        let mut compares = Vec::new();
        for compare in &txn.compares {
            compares.push(self.compare(&compare.key, &compare.condition));
            match compare.condition {
                Condition::Absent | Condition::Present | Condition::Value(_) => {}
                Condition::Version(_) | Condition::Modified(_) | Condition::Lease(_) => {
                    compares.push(self.compare(&compare.key, &Condition::Present));
                }
            }
        }
        compares
    }
}

/// An entry without the prefix that it has in etcd.
fn entry_of(prefix: &Bytes, kv: pb::KeyValue) -> Result<Entry, Error> {
    if !kv.key.starts_with(prefix) {
        return Err(Error::invalid("etcd answers with a key that is not ours"));
    }
    Ok(Entry {
        key: kv.key.slice(prefix.len()..),
        value: kv.value,
        created: Revision(kv.create_revision.cast_unsigned()),
        modified: Revision(kv.mod_revision.cast_unsigned()),
        version: kv.version.cast_unsigned(),
        lease: Some(kv.lease.cast_unsigned())
            .filter(|lease| *lease != 0)
            .map(LeaseId),
    })
}

fn revision_of(header: Option<pb::ResponseHeader>) -> Revision {
    Revision(header.map_or(0, |header| header.revision.cast_unsigned()))
}

/// The end of a range in etcd's terms: a zero byte stands for the end of all keys.
fn range_end(prefix: &[u8]) -> Bytes {
    after_prefix(prefix).unwrap_or_else(|| vec![0]).into()
}

#[async_trait]
impl ControlStore for Etcd {
    async fn get(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        check_key(key)?;
        let request = pb::RangeRequest {
            key: self.outer(key),
            ..Default::default()
        };
        let path = "/etcdserverpb.KV/Range";
        let found: pb::RangeResponse = self
            .connection
            .call(path, request, Repeat::Harmless)
            .await?;
        let kv = found.kvs.into_iter().next();
        kv.map(|kv| self.entry(kv)).transpose()
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        range.check()?;
        let end = range_end(&self.outer(&range.prefix));
        let mut from = range.start().clone();
        let mut page: Option<Page> = None;
        let mut bytes = 0;
        loop {
            let have = page.as_ref().map_or(0, |page| page.entries.len());
            let wanted = ENTRIES_AT_A_TIME.min(range.limit() - have);
            let request = pb::RangeRequest {
                key: self.outer(&from),
                range_end: end.clone(),
                limit: wanted as i64,
            };
            let path = "/etcdserverpb.KV/Range";
            let found: pb::RangeResponse = self
                .connection
                .call(path, request, Repeat::Harmless)
                .await?;
            // The oldest of the revisions that were read: a watch from there misses nothing.
            let page = page.get_or_insert_with(|| Page {
                entries: Vec::new(),
                revision: revision_of(found.header),
                next: None,
            });
            let mut is_cut = found.more;
            for kv in found.kvs {
                let entry = self.entry(kv)?;
                let size = entry.key.len() + entry.value.len();
                if bytes + size > MAX_PAGE_BYTES && !page.entries.is_empty() {
                    is_cut = true;
                    bytes = MAX_PAGE_BYTES;
                    break;
                }
                bytes += size;
                page.entries.push(entry);
            }
            let last = page.entries.last().map(|last| after_key(&last.key));
            let is_full = page.entries.len() >= range.limit() || bytes >= MAX_PAGE_BYTES;
            match (is_cut, last) {
                (true, Some(next)) if is_full => {
                    page.next = Some(next);
                    return Ok(page.clone());
                }
                (true, Some(next)) => from = next,
                (true, None) | (false, _) => return Ok(page.clone()),
            }
        }
    }

    async fn txn(&self, txn: Txn) -> Result<TxnReply, Error> {
        txn.check()?;
        let request = pb::TxnRequest {
            compare: self.compares(&txn),
            success: txn.then.iter().map(|op| self.op(op)).collect(),
            failure: txn.otherwise.iter().map(|op| self.op(op)).collect(),
        };
        let path = "/etcdserverpb.KV/Txn";
        let is_reading = !txn.then.iter().chain(&txn.otherwise).any(Op::is_change);
        let repeat = match is_reading {
            true => Repeat::Harmless,
            false => Repeat::Harmful,
        };
        let done: Result<pb::TxnResponse, Error> =
            self.connection.call(path, request, repeat).await;
        let done = done.map_err(|error| match error {
            // etcd does not say which one.
            Error::LeaseLost { .. } => Error::LeaseLost {
                lease: first_lease(&txn),
            },
            error => error,
        })?;
        let replies = done.responses.into_iter();
        Ok(TxnReply {
            revision: revision_of(done.header),
            succeeded: done.succeeded,
            replies: replies
                .map(|reply| self.reply(reply))
                .collect::<Result<_, _>>()?,
        })
    }

    async fn watch(&self, prefix: &[u8], from: Revision) -> Result<Watch, Error> {
        check_prefix(prefix)?;
        let from = first_watched(self, from).await?;
        let prefix = Bytes::copy_from_slice(prefix);
        let outer = self.outer(&prefix);
        let source = EtcdWatch::new(Arc::clone(&self.connection), &self.prefix, outer, from);
        Ok(Watch::new(prefix, source.checked().await?))
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, Error> {
        let request = pb::LeaseGrantRequest {
            ttl: ttl_seconds(ttl)?.cast_signed(),
        };
        // One too many ends by itself.
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let granted: pb::LeaseGrantResponse = self
            .connection
            .call(path, request, Repeat::Harmless)
            .await?;
        match granted.error.is_empty() {
            true => Ok(Lease {
                id: LeaseId(granted.id.cast_unsigned()),
                ttl: Duration::from_secs(granted.ttl.cast_unsigned()),
            }),
            false => Err(Error::invalid(granted.error)),
        }
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), Error> {
        let request = pb::LeaseKeepAliveRequest {
            id: lease.0.cast_signed(),
        };
        // A stream in etcd's API; one with a single message is a call.
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        let alive: pb::LeaseKeepAliveResponse = self
            .connection
            .call(path, request, Repeat::Harmless)
            .await?;
        match alive.ttl {
            ..=0 => Err(Error::LeaseLost { lease }),
            1.. => Ok(()),
        }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Error> {
        let request = pb::LeaseRevokeRequest {
            id: lease.0.cast_signed(),
        };
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        let revoked: Result<pb::LeaseRevokeResponse, Error> =
            self.connection.call(path, request, Repeat::Harmless).await;
        match revoked {
            Ok(_) | Err(Error::LeaseLost { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn compact(&self, through: Revision) -> Result<(), Error> {
        let request = pb::CompactionRequest {
            revision: through.0.cast_signed(),
        };
        let path = "/etcdserverpb.KV/Compact";
        let compacted: Result<pb::CompactionResponse, Error> =
            self.connection.call(path, request, Repeat::Harmless).await;
        match compacted {
            Ok(_) | Err(Error::Compacted { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The lease that a transaction was most likely refused for.
fn first_lease(txn: &Txn) -> LeaseId {
    let leases = txn
        .then
        .iter()
        .chain(&txn.otherwise)
        .filter_map(|op| match op {
            Op::Put { lease, .. } => *lease,
            Op::Get { .. } | Op::Delete { .. } => None,
        });
    leases.into_iter().next().unwrap_or(LeaseId(0))
}
