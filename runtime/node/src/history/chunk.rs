//! Records of attempts as bytes, some thousand to a chunk.
//!
//! Owns the layout, which never leaves the process: a head of fixed length, by which records are looked for, then postcard.
//! What many records have in common (job, tenant and name; what they held) is in tables of the chunk.
//!
//! ```text
//! byte  0     16                24         28         30         32
//!       task  submitted_us: u64 attempt    group: u16 held: u16  outcome: u8, then postcard of `Rest`
//! ```

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use wasmrun_engine::HeldResource;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, DriverId, NodeId, ObjectId, TaskId};
use wasmrun_model::trace::TraceContext;
use wasmrun_model::wire::{Phases, WireError};

use super::Place;

/// How many bytes of records a chunk takes.
const CHUNK_BYTES: usize = 64 << 10;
/// How many groups, and kinds of what was held, it has at most.
const MOST_SHARED: usize = 64;
const HEAD_BYTES: usize = 33;
/// How many bytes one of its groups, or a kind of what was held, is taken to have beside texts and units.
const SHARED_BYTES: usize = 128;

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum Outcome {
    #[default]
    Finished,
    Failed,
    Cancelled,
    /// It failed, and another one followed.
    Retried,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Finished, Self::Failed, Self::Cancelled, Self::Retried];

    /// As rows of lists have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Retried => "retried",
        }
    }
}

/// An attempt that has ended. Times in microseconds; those that are no durations since 1970.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Record<'a> {
    pub(crate) id: TaskId,
    /// From 1; 0 if none began.
    pub(crate) attempt: u32,
    pub(crate) outcome: Outcome,
    pub(crate) job: DriverId,
    pub(crate) tenant: TenantName,
    pub(crate) name: Cow<'a, str>,
    pub(crate) parent: Option<TaskId>,
    /// Which attempt of its parent started it; 0 if that is not known.
    pub(crate) parent_attempt: u32,
    pub(crate) trace: Option<TraceContext>,
    /// The actor that it created or was a call of.
    pub(crate) actor: Option<ActorId>,
    pub(crate) array_index: Option<u64>,
    pub(crate) submitted_us: u64,
    pub(crate) ended_us: u64,
    pub(crate) waited_us: u64,
    /// 0 if it did not run, or nobody knows how long.
    pub(crate) ran_us: u64,
    pub(crate) phases: Phases,
    pub(crate) memory_peak_bytes: u64,
    pub(crate) held: Cow<'a, [HeldResource]>,
    /// What it was given as objects.
    pub(crate) inputs: Cow<'a, [ObjectId]>,
    /// Which other node it ran at.
    pub(crate) ran_at: Option<NodeId>,
    pub(crate) failure: Option<Failure>,
}

impl Record<'_> {
    /// The same, which borrows nothing.
    pub(super) fn to_static(&self) -> Record<'static> {
        Record {
            tenant: self.tenant.clone(),
            name: self.name.clone().into_owned().into(),
            held: self.held.clone().into_owned().into(),
            inputs: self.inputs.clone().into_owned().into(),
            failure: self.failure.clone(),
            trace: self.trace.clone(),
            ..*self
        }
    }
}

/// How an attempt failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) error: WireError,
    /// The end of what it wrote to standard error.
    pub(crate) stderr_tail: String,
}

impl Failure {
    /// Of what a guest says at length the beginning is kept: [`TaskError::in_short`].
    pub(crate) fn of(error: &TaskError, stderr_tail: String) -> Self {
        Self {
            error: (&error.in_short()).into(),
            stderr_tail,
        }
    }

    /// Its error for one who is to hear of these tenants alone.
    pub(crate) fn seen_by(&self, sees: impl Fn(&TenantName) -> bool) -> TaskError {
        TaskError::from(self.error.clone()).seen_by(sees)
    }
}

/// What a record is looked for by.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    pub(crate) id: TaskId,
    submitted_us: u64,
    attempt: u32,
    pub(crate) outcome: Outcome,
    pub(crate) group: &'a Group,
}

impl Head<'_> {
    pub(super) fn place(&self) -> Place {
        (self.submitted_us, self.id, self.attempt)
    }
}

/// What the records of one kind of task have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) job: DriverId,
    pub(crate) tenant: TenantName,
    pub(crate) name: String,
}

/// What a record names, as far as it is looked for by that.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Kin {
    pub(crate) parent: Option<TaskId>,
    pub(crate) actor: Option<ActorId>,
    pub(crate) ran_at: Option<NodeId>,
}

/// What stands behind the head.
#[derive(Serialize, Deserialize)]
struct Rest<'a> {
    /// The first, so that it is read without all else.
    kin: Kin,
    parent_attempt: u32,
    trace: Option<TraceContext>,
    array_index: Option<u64>,
    /// From when it was submitted to its end.
    took_us: u64,
    waited_us: u64,
    ran_us: u64,
    phases: Phases,
    memory_peak_bytes: u64,
    inputs: Cow<'a, [ObjectId]>,
    failure: Option<Cow<'a, Failure>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    /// Where each record begins.
    starts: Vec<u32>,
    groups: Vec<Group>,
    held: Vec<Vec<HeldResource>>,
    /// About how many bytes those take: a module may give its functions long names, and a task may hold many units.
    shared_bytes: usize,
    /// The places of the records that were submitted first and last.
    span: Option<(Place, Place)>,
}

impl Chunk {
    /// Whether the next record belongs into another one.
    pub(super) fn is_full(&self) -> bool {
        let shared = self.groups.len().max(self.held.len());
        self.bytes.len() + self.shared_bytes >= CHUNK_BYTES || shared >= MOST_SHARED
    }

    pub(super) fn add(&mut self, record: &Record<'_>) {
        let is_its = |group: &Group| {
            group.job == record.job && group.name == record.name && group.tenant == record.tenant
        };
        let shared_bytes = &mut self.shared_bytes;
        let group = index_of(&mut self.groups, is_its, || {
            *shared_bytes += SHARED_BYTES + record.name.len();
            Group {
                job: record.job,
                tenant: record.tenant.clone(),
                name: record.name.clone().into_owned(),
            }
        });
        let is_its = |held: &Vec<HeldResource>| held[..] == record.held[..];
        let held = index_of(&mut self.held, is_its, || {
            *shared_bytes += SHARED_BYTES + held_bytes(&record.held);
            record.held.to_vec()
        });
        let start = u32::try_from(self.bytes.len()).expect("a chunk is short");
        self.starts.push(start);
        let place = (record.submitted_us, record.id, record.attempt);
        let (first, last) = self.span.unwrap_or((place, place));
        self.span = Some((first.min(place), last.max(place)));
        let bytes = &mut self.bytes;
        bytes.extend_from_slice(record.id.as_bytes());
        bytes.extend_from_slice(&record.submitted_us.to_le_bytes());
        bytes.extend_from_slice(&record.attempt.to_le_bytes());
        bytes.extend_from_slice(&group.to_le_bytes());
        bytes.extend_from_slice(&held.to_le_bytes());
        bytes.push(record.outcome as u8);
        let rest = Rest {
            kin: Kin {
                parent: record.parent,
                actor: record.actor,
                ran_at: record.ran_at,
            },
            parent_attempt: record.parent_attempt,
            trace: record.trace.clone(),
            array_index: record.array_index,
            took_us: record.ended_us.saturating_sub(record.submitted_us),
            waited_us: record.waited_us,
            ran_us: record.ran_us,
            phases: record.phases,
            memory_peak_bytes: record.memory_peak_bytes,
            inputs: Cow::Borrowed(&record.inputs[..]),
            failure: record.failure.as_ref().map(Cow::Borrowed),
        };
        let bytes = std::mem::take(&mut self.bytes);
        self.bytes = postcard::to_extend(&rest, bytes).expect("memory takes all that is written");
    }

    /// The same, without room for more.
    pub(super) fn sealed(mut self) -> Self {
        self.bytes.shrink_to_fit();
        self.starts.shrink_to_fit();
        self
    }

    /// How many bytes it takes, more or less.
    pub(super) fn bytes(&self) -> u64 {
        (self.bytes.capacity() + self.starts.capacity() * 4 + self.shared_bytes) as u64
    }

    /// How many records it has.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The task of a record.
    pub(super) fn id(&self, at: usize) -> &[u8; 16] {
        let bytes = &self.bytes[self.starts[at] as usize..];
        bytes.first_chunk().expect("a record has a head")
    }

    pub(super) fn head(&self, at: usize) -> Head<'_> {
        let bytes = &self.bytes[self.starts[at] as usize..][..HEAD_BYTES];
        Head {
            id: TaskId::from_bytes(field(bytes, 0)),
            submitted_us: u64::from_le_bytes(field(bytes, 16)),
            attempt: u32::from_le_bytes(field(bytes, 24)),
            outcome: Outcome::ALL[usize::from(bytes[32])],
            group: &self.groups[usize::from(u16::from_le_bytes(field(bytes, 28)))],
        }
    }

    /// The places of the records that were submitted first and last, if there are any.
    pub(super) fn span(&self) -> Option<(Place, Place)> {
        self.span
    }

    /// What a record names.
    pub(super) fn kin(&self, at: usize) -> Kin {
        let rest = &self.bytes[self.starts[at] as usize + HEAD_BYTES..];
        let (kin, _) = postcard::take_from_bytes(rest).expect("it was written by `Chunk::add`");
        kin
    }

    pub(super) fn record(&self, at: usize) -> Record<'static> {
        let head = self.head(at);
        let bytes = &self.bytes[self.starts[at] as usize..];
        let held = usize::from(u16::from_le_bytes(field(bytes, 30)));
        let (rest, _): (Rest<'static>, _) = postcard::take_from_bytes(&bytes[HEAD_BYTES..])
            .expect("it was written by `Chunk::add`");
        Record {
            id: head.id,
            attempt: head.attempt,
            outcome: head.outcome,
            job: head.group.job,
            tenant: head.group.tenant.clone(),
            name: Cow::Owned(head.group.name.clone()),
            parent: rest.kin.parent,
            parent_attempt: rest.parent_attempt,
            trace: rest.trace,
            actor: rest.kin.actor,
            array_index: rest.array_index,
            submitted_us: head.submitted_us,
            ended_us: head.submitted_us.saturating_add(rest.took_us),
            waited_us: rest.waited_us,
            ran_us: rest.ran_us,
            phases: rest.phases,
            memory_peak_bytes: rest.memory_peak_bytes,
            held: Cow::Owned(self.held[held].clone()),
            inputs: rest.inputs,
            ran_at: rest.kin.ran_at,
            failure: rest.failure.map(Cow::into_owned),
        }
    }
}

/// How many bytes it takes to say what was held.
fn held_bytes(held: &[HeldResource]) -> usize {
    let units = held.iter().map(|it| size_of_val(&it.units[..]));
    size_of_val(held) + units.sum::<usize>()
}

/// Where the one is that `is_it` says yes to: most likely the last; made where there is none.
fn index_of<T>(all: &mut Vec<T>, is_it: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> u16 {
    let found = all.iter().rposition(is_it);
    let index = found.unwrap_or_else(|| {
        all.push(make());
        all.len() - 1
    });
    u16::try_from(index).expect("a chunk has few of them")
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("it has so many bytes")
}
