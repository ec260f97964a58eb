//! What a change does to the tables.
//!
//! Owns the rules: revisions, versions, leases and their keys, the history's bound, and answers that
//! are remembered so that a request which arrives twice is done once. Must not: commit, know threads or
//! clocks. Everything that can be refused is refused before the first table is touched; after that only
//! the disk can fail, and then the whole batch is dropped.
//!
//! A client numbers its requests. With each it says its floor: it has the answers of all requests
//! below that number. So at most [`CLIENT_WINDOW`] answers are kept for a client, and a request that
//! turns up once more is either found among them, or is below the floor and refused.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use redb::{ReadableTable, Table, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::tables::{
    ANSWERS, CLIENT_ORDER, CLIENTS, ENTRIES, LEASE_KEYS, LEASES, LOG, META, Meta, decode_entry,
    encode_entry, encode_events,
};
use crate::error::Error;
use crate::types::{
    Changes, Entry, Event, Lease, LeaseId, MAX_TXN_BYTES, Op, OpReply, Revision, Txn, TxnReply,
    too_large,
};

/// How many requests a client may have that it has no answer to yet.
pub const CLIENT_WINDOW: u64 = 256;

/// How many clients are remembered. When more come, the first one is forgotten; it may come again.
pub const MAX_CLIENTS: u64 = 4_096;

/// The largest answer that is remembered as it is. Of a larger one only that it was given.
const MAX_REMEMBERED_BYTES: usize = 16 << 10;

/// The most keys of one lease that one revision deletes, so that no revision is too large to send.
const LEASE_KEYS_PER_REVISION: usize = 512;

/// A process that sends requests through a connection that may break: drawn at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub [u8; 16]);

/// The name of a change that may be sent more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestId {
    /// Who sends it.
    pub client: ClientId,
    /// Its number, from 1, in the order in which the client began them.
    pub number: u64,
    /// The client has the answers to all requests below this number, or no longer wants them.
    pub floor: u64,
}

/// Something to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mutation {
    /// A transaction.
    Txn(Txn),
    /// A new lease of this many seconds.
    Grant {
        /// Its time to live.
        ttl_s: u64,
    },
    /// The end of a lease.
    Revoke(LeaseId),
    /// The end of history up to a revision.
    Compact(Revision),
    /// A client that is about to send requests with numbers.
    Introduce(ClientId),
}

/// What was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// What the transaction did.
    Txn(TxnReply),
    /// The lease.
    Granted(Lease),
    /// It is done.
    Done,
    /// It was done the first time that it was asked for, but what was read then is no longer known.
    Lost,
    /// This client was never introduced, or that is long ago: nothing was done now.
    Stranger,
}

/// How much history is kept.
#[derive(Debug, Clone, Copy)]
pub struct HistoryLimit {
    pub revisions: u64,
    pub bytes: u64,
}

/// Changes of leases that hold once the batch is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseChange {
    Granted(Lease),
    Ended(LeaseId),
}

/// Why nothing was done.
#[derive(Debug)]
pub enum Failure {
    /// The request is refused; the others of the batch are not affected.
    Refused(Error),
    /// The file cannot be read or written; the batch is lost.
    Disk(redb::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            // Found out in the midst of a change, maybe: what was done of it must not be kept.
            Error::Corrupt { why } => Self::Disk(redb::Error::Corrupted(why)),
            error => Self::Refused(error),
        }
    }
}

impl From<redb::StorageError> for Failure {
    fn from(error: redb::StorageError) -> Self {
        Self::Disk(error.into())
    }
}

impl From<redb::TableError> for Failure {
    fn from(error: redb::TableError) -> Self {
        Self::Disk(error.into())
    }
}

/// The tables of one batch of changes, and what they come to.
pub struct Batch<'t> {
    entries: Table<'t, &'static [u8], &'static [u8]>,
    log: Table<'t, u64, &'static [u8]>,
    leases: Table<'t, u64, u64>,
    lease_keys: Table<'t, (u64, &'static [u8]), ()>,
    clients: Table<'t, &'static [u8; 16], (u64, u64)>,
    client_order: Table<'t, u64, &'static [u8; 16]>,
    answers: Table<'t, (&'static [u8; 16], u64), &'static [u8]>,
    numbers: Table<'t, &'static str, u64>,
    meta: Meta,
    limit: HistoryLimit,
    changes: Vec<Changes>,
    lease_changes: Vec<LeaseChange>,
}

/// What a batch comes to, for those who keep things in memory.
#[derive(Debug, Default)]
pub struct Outcome {
    pub meta: Meta,
    pub changes: Vec<Changes>,
    pub lease_changes: Vec<LeaseChange>,
}

impl<'t> Batch<'t> {
    /// Opens all tables; makes those that are not there.
    pub fn new(
        transaction: &'t WriteTransaction,
        meta: Meta,
        limit: HistoryLimit,
    ) -> Result<Self, Failure> {
        Ok(Self {
            entries: transaction.open_table(ENTRIES)?,
            log: transaction.open_table(LOG)?,
            leases: transaction.open_table(LEASES)?,
            lease_keys: transaction.open_table(LEASE_KEYS)?,
            clients: transaction.open_table(CLIENTS)?,
            client_order: transaction.open_table(CLIENT_ORDER)?,
            answers: transaction.open_table(ANSWERS)?,
            numbers: transaction.open_table(META)?,
            meta,
            limit,
            changes: Vec::new(),
            lease_changes: Vec::new(),
        })
    }

    /// Writes the numbers, and says what the batch comes to. Commit after this.
    pub fn finish(mut self) -> Result<Outcome, Failure> {
        let mut meta = self.meta;
        meta.batches += 1;
        for (name, number) in meta.fields() {
            self.numbers.insert(name, *number)?;
        }
        Ok(Outcome {
            meta,
            changes: self.changes,
            lease_changes: self.lease_changes,
        })
    }

    /// Makes a change, unless it is a request that was answered before: then gives that answer.
    pub fn apply(
        &mut self,
        request: Option<RequestId>,
        mutation: Mutation,
    ) -> Result<Answer, Failure> {
        let Some(request) = request else {
            return self.mutate(mutation);
        };
        if let Some(answer) = self.remembered(request)? {
            return Ok(answer);
        }
        let answer = self.mutate(mutation)?;
        let mut bytes = encode_answer(&answer);
        if bytes.len() > MAX_REMEMBERED_BYTES {
            bytes = encode_answer(&Answer::Lost);
        }
        let key = (&request.client.0, request.number);
        self.answers.insert(key, bytes.as_slice())?;
        Ok(answer)
    }

    fn remembered(&mut self, request: RequestId) -> Result<Option<Answer>, Failure> {
        let client = &request.client.0;
        let known = self.clients.get(client)?.map(|row| row.value());
        let Some((order, floor)) = known else {
            return Ok(Some(Answer::Stranger));
        };
        let key = (client, request.number);
        if let Some(bytes) = self.answers.get(key)? {
            let answer = postcard::from_bytes(bytes.value()).map_err(Error::corrupt)?;
            return Ok(Some(answer));
        }
        if request.number < floor {
            return Err(Error::invalid("this request was answered long ago").into());
        }
        if request.floor > request.number || request.number - request.floor >= CLIENT_WINDOW {
            return Err(Error::invalid("the request's number is out of its window").into());
        }
        if request.floor > floor {
            let answered = (client, floor)..(client, request.floor);
            self.answers.retain_in(answered, |_, _| false)?;
            self.clients.insert(client, (order, request.floor))?;
        }
        Ok(None)
    }

    fn mutate(&mut self, mutation: Mutation) -> Result<Answer, Failure> {
        match mutation {
            Mutation::Txn(txn) => self.txn(txn).map(Answer::Txn),
            Mutation::Grant { ttl_s } => self.grant(ttl_s).map(Answer::Granted),
            Mutation::Revoke(lease) => self.end_lease(lease).map(|()| Answer::Done),
            Mutation::Compact(through) => self.compact(through).map(|()| Answer::Done),
            Mutation::Introduce(client) => self.introduce(client).map(|()| Answer::Done),
        }
    }

    fn introduce(&mut self, client: ClientId) -> Result<(), Failure> {
        if self.clients.get(&client.0)?.is_some() {
            return Ok(());
        }
        self.meta.clients += 1;
        self.clients.insert(&client.0, (self.meta.clients, 0))?;
        self.client_order.insert(self.meta.clients, &client.0)?;
        let forgotten = self.meta.clients.saturating_sub(MAX_CLIENTS);
        let first = self.client_order.remove(forgotten)?.map(|row| *row.value());
        if let Some(first) = first {
            self.clients.remove(&first)?;
            self.answers
                .retain_in((&first, 0)..=(&first, u64::MAX), |_, _| false)?;
        }
        Ok(())
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, Failure> {
        let row = self.entries.get(key)?;
        row.map(|row| decode_entry(key, row.value()).map_err(Failure::from))
            .transpose()
    }

    fn txn(&mut self, txn: Txn) -> Result<TxnReply, Failure> {
        txn.check()?;
        let mut succeeded = true;
        for compare in &txn.compares {
            let entry = self.entry(&compare.key)?;
            succeeded = succeeded && compare.condition.holds(entry.as_ref());
        }
        let ops = if succeeded { txn.then } else { txn.otherwise };
        self.check_ops(&ops)?;
        let revision = Revision(self.meta.revision + 1);
        let mut events = Vec::new();
        let mut replies = Vec::with_capacity(ops.len());
        for op in ops {
            replies.push(match op {
                Op::Get { key } => OpReply::Got(self.entry(&key)?),
                Op::Put { key, value, lease } => {
                    events.push(Event::Put(self.put(key, value, lease, revision)?));
                    OpReply::Put
                }
                Op::Delete { key } => match self.delete(&key)? {
                    true => {
                        events.push(Event::Delete { key });
                        OpReply::Deleted(true)
                    }
                    false => OpReply::Deleted(false),
                },
            });
        }
        self.record(events)?;
        Ok(TxnReply {
            revision: Revision(self.meta.revision),
            succeeded,
            replies,
        })
    }

    /// Refuses what cannot be done, before any of it is done.
    fn check_ops(&self, ops: &[Op]) -> Result<(), Failure> {
        let mut changed = BTreeMap::new();
        let mut read = 0;
        for op in ops {
            match op {
                Op::Get { key } => {
                    read += match changed.get(key) {
                        Some(bytes) => *bytes,
                        None => self.entry(key)?.map_or(0, |e| key.len() + e.value.len()),
                    };
                }
                Op::Put { key, value, lease } => {
                    changed.insert(key, key.len() + value.len());
                    if let Some(lease) = *lease
                        && self.leases.get(lease.0)?.is_none()
                    {
                        return Err(Error::LeaseLost { lease }.into());
                    }
                }
                Op::Delete { key } => {
                    changed.insert(key, 0);
                }
            }
        }
        if read > MAX_TXN_BYTES {
            return Err(too_large("the transaction's answer", read, MAX_TXN_BYTES).into());
        }
        Ok(())
    }

    fn put(
        &mut self,
        key: Bytes,
        value: Bytes,
        lease: Option<LeaseId>,
        revision: Revision,
    ) -> Result<Entry, Failure> {
        let old = self.entry(&key)?;
        let old_lease = old.as_ref().and_then(|old| old.lease);
        if old_lease != lease {
            if let Some(lease) = old_lease {
                self.lease_keys.remove((lease.0, key.as_ref()))?;
            }
            if let Some(lease) = lease {
                self.lease_keys.insert((lease.0, key.as_ref()), ())?;
            }
        }
        let entry = Entry {
            created: old.as_ref().map_or(revision, |old| old.created),
            modified: revision,
            version: old.map_or(0, |old| old.version) + 1,
            key,
            value,
            lease,
        };
        self.entries
            .insert(entry.key.as_ref(), encode_entry(&entry).as_slice())?;
        Ok(entry)
    }

    /// Returns whether it was there.
    fn delete(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let Some(old) = self.entry(key)? else {
            return Ok(false);
        };
        if let Some(lease) = old.lease {
            self.lease_keys.remove((lease.0, key))?;
        }
        self.entries.remove(key)?;
        Ok(true)
    }

    /// Makes the next revision of these events, if there are any, and lets the oldest go.
    fn record(&mut self, events: Vec<Event>) -> Result<(), Failure> {
        if events.is_empty() {
            return Ok(());
        }
        self.meta.revision += 1;
        let bytes = encode_events(&events);
        self.meta.log_bytes += bytes.len() as u64;
        self.log.insert(self.meta.revision, bytes.as_slice())?;
        self.changes.push(Changes {
            revision: Revision(self.meta.revision),
            events,
        });
        while self.meta.revision - self.meta.compacted > self.limit.revisions
            || self.meta.log_bytes > self.limit.bytes
        {
            self.forget_oldest()?;
        }
        Ok(())
    }

    fn forget_oldest(&mut self) -> Result<(), Failure> {
        let Some((revision, bytes)) = self.log.pop_first()? else {
            return Err(Error::corrupt("the log is shorter than it should be").into());
        };
        self.meta.compacted = revision.value();
        self.meta.log_bytes -= bytes.value().len() as u64;
        Ok(())
    }

    fn compact(&mut self, through: Revision) -> Result<(), Failure> {
        if through.0 > self.meta.revision {
            return Err(Error::invalid(format_args!(
                "revision {through} is yet to come; the last one is {}",
                self.meta.revision
            ))
            .into());
        }
        while self.meta.compacted < through.0 {
            self.forget_oldest()?;
        }
        Ok(())
    }

    fn grant(&mut self, ttl_s: u64) -> Result<Lease, Failure> {
        self.meta.leases += 1;
        self.leases.insert(self.meta.leases, ttl_s)?;
        let lease = Lease {
            id: LeaseId(self.meta.leases),
            ttl: Duration::from_secs(ttl_s),
        };
        self.lease_changes.push(LeaseChange::Granted(lease));
        Ok(lease)
    }

    fn end_lease(&mut self, lease: LeaseId) -> Result<(), Failure> {
        if self.leases.remove(lease.0)?.is_none() {
            return Ok(());
        }
        loop {
            let of_lease = (lease.0, [].as_slice())..(lease.0 + 1, [].as_slice());
            let keys: Vec<Bytes> = self
                .lease_keys
                .range(of_lease)?
                .take(LEASE_KEYS_PER_REVISION)
                .map(|row| Ok(Bytes::copy_from_slice(row?.0.value().1)))
                .collect::<Result<_, redb::StorageError>>()?;
            if keys.is_empty() {
                break;
            }
            for key in &keys {
                self.delete(key)?;
            }
            self.record(keys.into_iter().map(|key| Event::Delete { key }).collect())?;
        }
        self.lease_changes.push(LeaseChange::Ended(lease));
        Ok(())
    }
}

fn encode_answer(answer: &Answer) -> Vec<u8> {
    postcard::to_allocvec(answer).expect("answers have an encoding")
}
