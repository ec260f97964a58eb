//! What is in the record of a detached task.
//!
//! Owns its fields and their limits. A change that an older wasmrun would misread raises [`Record::VERSION`]: it is
//! postcard, and has what a client submits in it, [as records have that](submitted).

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use wasmrun_control::records::{Form, Record};
use wasmrun_engine::OutputSource;
use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{Digest, DriverId, NodeId, ObjectId, TaskId};
use wasmrun_model::task::Phase;
use wasmrun_model::units::us;
use wasmrun_model::value::Encoded;
use wasmrun_model::wire::{self, Bytes, WireError};

use super::MOST_BYTES;
use super::inventory::MOST_LINEAGE_BYTES;
use crate::peers::Whereabouts;
use crate::records::actor::{ActorCell, Checkpoint};
use crate::records::log::Log;
use crate::records::object::Value;
use crate::records::submitted;
use crate::records::task::Report;

/// The largest result that is kept here, in bytes: a larger one is in stores, and the record says in whose.
const MOST_RESULT_BYTES: usize = crate::guests::storing::INLINE_BYTES;
/// How much of the output is kept: its end.
const MOST_LOG_BYTES: usize = 4 << 10;
/// How much of what a task was given stays when it has ended and its result needs none of it. A node keeps 2,000 tasks that have
/// ended: this is half of their room.
const MOST_GIVEN_BYTES: usize = 4 << 10;
/// The largest state of an actor that is kept, in bytes.
const MOST_STATE_BYTES: usize = 256 << 10;

/// A detached task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::server) struct Stored {
    /// What people call it.
    pub(in crate::server) name: String,
    pub(in crate::server) tenant: TenantName,
    /// How long the module is.
    pub(in crate::server) module_bytes: u64,
    /// What to run; without what it was given where there is no room for that.
    #[serde(with = "submitted::Submit")]
    pub(in crate::server) submit: wire::Submit,
    /// How many nodes were lost that owned it and on which it had not ended.
    pub(in crate::server) losses: u32,
    pub(in crate::server) ending: Option<Ending>,
    /// It stands before the rest: see [`StoredRecord`]. An older wasmrun has kept none.
    #[serde(skip)]
    pub(in crate::server) origin: Option<Origin>,
    /// Whether `submit` has what the task was given. When it has ended it needs that only where its result is elsewhere
    /// (see [`Lineage`]), and has it in any case if that is little: a rerun asks for it.
    #[serde(skip)]
    pub(in crate::server) has_given: bool,
}

/// The job of a task or an actor, and how it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::server) struct Origin {
    pub(in crate::server) job: wire::Job,
    /// Who has submitted it, for people.
    pub(in crate::server) by: String,
    /// When, in microseconds since 1970, by the clock of the node where that was; 0 if it is not known.
    pub(in crate::server) submitted_us: u64,
}

impl Origin {
    /// Of what a job is in whose record an older wasmrun has kept no more than that.
    fn of(job: wire::Job) -> Self {
        Self {
            job,
            by: "a client of a node that is lost".to_owned(),
            submitted_us: 0,
        }
    }

    /// The same of a job of its own.
    fn own(task: TaskId, name: &str) -> Self {
        Self::of(wire::Job {
            id: DriverId::detached(*task.as_bytes()),
            name: name.to_owned(),
            tasks: 1,
        })
    }
}

/// A detached actor that has restarts left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::server) struct StoredActor {
    pub(in crate::server) tenant: TenantName,
    /// How long the module is.
    pub(in crate::server) module_bytes: u64,
    /// What to create.
    #[serde(with = "submitted::Create")]
    pub(in crate::server) create: wire::Create,
    /// How often it may still begin anew.
    pub(in crate::server) restarts_left: u32,
    pub(in crate::server) state: State,
    /// As of a task.
    #[serde(skip)]
    pub(in crate::server) origin: Option<Origin>,
}

/// What the next generation of an actor begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) enum State {
    /// Its constructor.
    Arguments,
    /// This one of its states.
    Checkpoint(u64, Bytes),
    /// A state that is too large to be kept here.
    TooLarge(u64),
}

/// All that can be in a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::server) enum StoredRecord {
    /// As the first wasmrun that kept any has written it.
    Task(
        #[serde(
            serialize_with = "FirstStored::serialize",
            deserialize_with = "FirstStored::boxed"
        )]
        Box<Stored>,
    ),
    /// Likewise.
    Actor(
        #[serde(
            serialize_with = "FirstStoredActor::serialize",
            deserialize_with = "FirstStoredActor::boxed"
        )]
        Box<StoredActor>,
    ),
    /// As an older wasmrun has written it.
    TaskOf(wire::Job, Box<Stored>),
    /// The second is whether it has what the task was given.
    TaskFrom(Origin, bool, Box<Stored>),
    ActorFrom(Origin, Box<StoredActor>),
}

/// What is in [`StoredRecord::Task`]: what a task was submitted with had fewer fields.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Stored")]
struct FirstStored {
    name: String,
    tenant: TenantName,
    module_bytes: u64,
    #[serde(with = "submitted::first::Submit")]
    submit: wire::Submit,
    losses: u32,
    ending: Option<Ending>,
    #[serde(skip)]
    origin: Option<Origin>,
    #[serde(skip)]
    has_given: bool,
}

impl FirstStored {
    fn boxed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<Stored>, D::Error> {
        Self::deserialize(deserializer).map(Box::new)
    }
}

/// Likewise, of an actor.
#[derive(Serialize, Deserialize)]
#[serde(remote = "StoredActor")]
struct FirstStoredActor {
    tenant: TenantName,
    module_bytes: u64,
    #[serde(with = "submitted::first::Create")]
    create: wire::Create,
    restarts_left: u32,
    state: State,
    #[serde(skip)]
    origin: Option<Origin>,
}

impl FirstStoredActor {
    fn boxed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<StoredActor>, D::Error> {
        Self::deserialize(deserializer).map(Box::new)
    }
}

impl Record for StoredRecord {
    const FORM: Form = Form::Postcard;
    const VERSION: u8 = 1;
}

impl StoredRecord {
    /// The same, where a task or an actor knows what stands before it.
    pub(in crate::server) fn with_origin(mut self) -> Self {
        match &mut self {
            Self::Task(stored) => stored.has_given = stored.needs_given(),
            Self::Actor(_) => {}
            Self::TaskOf(job, stored) => {
                stored.origin = Some(Origin::of(job.clone()));
                stored.has_given = stored.needs_given();
            }
            Self::TaskFrom(origin, has_given, stored) => {
                stored.origin = Some(origin.clone());
                stored.has_given = *has_given;
            }
            Self::ActorFrom(origin, stored) => stored.origin = Some(origin.clone()),
        }
        self
    }

    /// Its module, and how long that is.
    pub(in crate::server) fn module(&self) -> (Digest, u64) {
        match self {
            Self::Task(stored) | Self::TaskOf(_, stored) | Self::TaskFrom(_, _, stored) => {
                (stored.submit.module, stored.module_bytes)
            }
            Self::Actor(stored) | Self::ActorFrom(_, stored) => {
                (stored.create.module, stored.module_bytes)
            }
        }
    }
}

impl StoredActor {
    /// It as a value in the store.
    pub(in crate::server) fn to_value(&self) -> bytes::Bytes {
        let stored = Box::new(self.clone());
        match &self.origin {
            Some(origin) => StoredRecord::ActorFrom(origin.clone(), stored).to_value(),
            None => StoredRecord::Actor(stored).to_value(),
        }
    }

    /// Where it comes from; a job of its own if that was not kept.
    pub(in crate::server) fn origin(&self, creation: TaskId) -> Origin {
        let own = || Origin::own(creation, &self.create.class);
        self.origin.clone().unwrap_or_else(own)
    }

    /// The actor as it is now. False if nothing has changed.
    pub(in crate::server) fn update(&mut self, actor: &ActorCell) -> bool {
        let state = actor.checkpoint().map(|checkpoint| {
            let known = match &self.state {
                State::Arguments => 0,
                State::Checkpoint(number, _) | State::TooLarge(number) => *number,
            };
            (known, checkpoint)
        });
        let mut has_changed = false;
        if let Some((known, Checkpoint { number, state })) = state
            && number > known
        {
            has_changed = true;
            self.state = match state.len() {
                ..=MOST_STATE_BYTES => State::Checkpoint(number, Bytes(state.to_vec())),
                _ => State::TooLarge(number),
            };
        }
        let left = actor.restarts_left();
        has_changed |= left != self.restarts_left;
        self.restarts_left = left;
        has_changed
    }
}

/// What the registry knows of a task that has ended.
#[derive(Clone)]
pub(in crate::server) struct End {
    /// In short.
    pub(in crate::server) error: Option<TaskError>,
    /// How many bytes the whole of it has, which is kept with what the task makes.
    pub(in crate::server) error_bytes: usize,
    pub(in crate::server) waited: Duration,
    pub(in crate::server) ran: Duration,
    /// Which other node it ran at, if it did not run here.
    pub(in crate::server) ran_at: Option<NodeId>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::server) struct Ending {
    result: Result<Outcome, WireError>,
    waited_us: u64,
    ran_us: u64,
    /// Where it ran. An older wasmrun does not say so of what ran where it was submitted.
    ran_at: Option<NodeId>,
    /// The end of what it wrote.
    log: Vec<Written>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Outcome {
    /// It makes nothing.
    Nothing,
    Value(Encoded),
    /// It names objects or actors.
    NotKept(u64),
    /// It is there. An older wasmrun says so, and has kept nothing of what it was made of.
    Elsewhere(Whereabouts),
    /// It is there, and may be reconstructed when it is not there any more.
    Made(Whereabouts, Lineage),
}

/// Whether the record of a task that has ended still has what the task was given, so that its result can be reconstructed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) enum Lineage {
    Kept,
    /// With that the record would be too large.
    TooLarge,
    /// There were later ones that needed the room.
    LetGo,
}

impl Lineage {
    /// Why a result that is lost is not reconstructed, for people.
    fn why_not(self) -> String {
        match self {
            Self::Kept => "what it was made of is not what its module takes".to_owned(),
            Self::TooLarge => format!(
                "what it was made of was not kept, as its record would have more than {MOST_BYTES} bytes with that"
            ),
            Self::LetGo => format!(
                "what it was made of was let go: a node keeps {MOST_LINEAGE_BYTES} bytes of that in the control \
                 store, of the last tasks"
            ),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Written {
    writer: u64,
    is_stderr: bool,
    bytes: Bytes,
}

impl Stored {
    pub(in crate::server) fn new(
        submit: wire::Submit,
        origin: Origin,
        name: &str,
        tenant: &TenantName,
        module_bytes: u64,
    ) -> Self {
        Self {
            name: name.to_owned(),
            tenant: tenant.clone(),
            module_bytes,
            submit,
            losses: 0,
            ending: None,
            origin: Some(origin),
            has_given: true,
        }
    }

    /// It as a value in the store.
    pub(in crate::server) fn to_value(&self) -> bytes::Bytes {
        let stored = Box::new(self.clone());
        match &self.origin {
            Some(origin) => {
                StoredRecord::TaskFrom(origin.clone(), self.has_given, stored).to_value()
            }
            None => StoredRecord::Task(stored).to_value(),
        }
    }

    /// Where it comes from, with the name of its job that people see; a job of its own if that was not kept.
    pub(in crate::server) fn origin(&self, task: TaskId) -> Origin {
        let own = || Origin::own(task, &self.name);
        let mut origin = self.origin.clone().unwrap_or_else(own);
        if origin.job.name.is_empty() {
            origin.job.name.clone_from(&self.name);
        }
        origin
    }

    /// The same, ended. What it was given stays where its result may have to be reconstructed, or if it is little.
    pub(in crate::server) fn ended(mut self, ending: Ending) -> Self {
        let has_lineage = ending.has_lineage();
        self.ending = Some(ending);
        if !has_lineage {
            if encoded(&self.submit).len() > MOST_GIVEN_BYTES {
                self.forget();
            }
        } else if self.to_value().len() > MOST_BYTES {
            self.forget_lineage(Lineage::TooLarge);
        }
        self
    }

    /// Whether it has to be run, or may have to be run again.
    fn needs_given(&self) -> bool {
        self.ending.is_none() || self.has_lineage()
    }

    /// Whether it has ended, and its result can be reconstructed of what is here.
    pub(in crate::server) fn has_lineage(&self) -> bool {
        self.ending.as_ref().is_some_and(Ending::has_lineage)
    }

    /// Its result cannot be reconstructed any more, and why.
    pub(in crate::server) fn forget_lineage(&mut self, why: Lineage) {
        if let Some(ending) = &mut self.ending
            && let Ok(Outcome::Made(_, lineage)) = &mut ending.result
        {
            *lineage = why;
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.has_given = false;
        self.submit.values = Vec::new();
        self.submit.args = Vec::new();
        self.submit.input = wire::Input::Empty;
        self.submit.grants = wire::Grants::default();
    }
}

impl End {
    pub(in crate::server) fn of(report: &Report) -> Self {
        let error = report.result.as_ref().err();
        Self {
            error: error.map(TaskError::in_short),
            error_bytes: error.map_or(0, TaskError::size_bytes),
            waited: report.waited,
            ran: report.ran,
            ran_at: report.ran_at,
        }
    }

    /// How it ended.
    pub(in crate::server) fn phase(&self) -> Phase {
        match &self.error {
            None => Phase::Finished,
            Some(TaskError::Cancelled) => Phase::Cancelled,
            Some(_) => Phase::Failed,
        }
    }
}

impl Ending {
    /// `here` is where it was submitted, `place` where the result is, if not in messages.
    pub(in crate::server) fn of(
        report: &Report,
        here: NodeId,
        log: &Log,
        place: Option<Whereabouts>,
    ) -> Self {
        Self {
            result: match &report.result {
                Ok(value) => Ok(Outcome::of(value.as_ref(), place)),
                Err(error) => Err(error.into()),
            },
            waited_us: us(report.waited),
            ran_us: us(report.ran),
            ran_at: report.ran_at.or(Some(here)),
            log: tail(log),
        }
    }

    /// Where the result is, if it is not kept here.
    pub(in crate::server) fn place(&self) -> Option<&Whereabouts> {
        match &self.result {
            Ok(Outcome::Elsewhere(place) | Outcome::Made(place, _)) => Some(place),
            Ok(Outcome::Nothing | Outcome::Value(_) | Outcome::NotKept(_)) | Err(_) => None,
        }
    }

    /// The result is somewhere else now.
    pub(in crate::server) fn set_place(&mut self, now: Whereabouts) {
        if let Ok(Outcome::Elsewhere(place) | Outcome::Made(place, _)) = &mut self.result {
            *place = now;
        }
    }

    /// Whether the result can be reconstructed of what is in the record.
    pub(in crate::server) fn has_lineage(&self) -> bool {
        matches!(self.result, Ok(Outcome::Made(_, Lineage::Kept)))
    }

    /// What the registry is told, and what its object is. `adopt` takes a result over that is elsewhere, if somebody has
    /// it or can make it again.
    pub(in crate::server) fn restore(
        self,
        object: ObjectId,
        adopt: impl FnOnce(&Whereabouts) -> Option<Value>,
    ) -> (End, Result<Option<Value>, TaskError>) {
        let error = self.result.as_ref().err().cloned().map(TaskError::from);
        let end = End {
            error: error.as_ref().map(TaskError::in_short),
            error_bytes: error.as_ref().map_or(0, TaskError::size_bytes),
            waited: Duration::from_micros(self.waited_us),
            ran: Duration::from_micros(self.ran_us),
            ran_at: self.ran_at,
        };
        let result = match (self.result, error) {
            (_, Some(error)) => Err(error),
            (Ok(Outcome::Value(value)), _) => Ok(Some(value.into())),
            (Ok(Outcome::NotKept(bytes)), _) => {
                let why = format!(
                    "the node that owned its task is lost, and results outlive it that name no objects or actors; \
                     this one had {bytes} bytes, and did or was made by an older wasmrun"
                );
                Err(TaskError::Gone { object, why })
            }
            (Ok(Outcome::Elsewhere(place)), _) => adopt(&place).map(Some).ok_or_else(|| {
                let why = "an older wasmrun has not kept what it was made of".to_owned();
                lost(object, &place, &why)
            }),
            (Ok(Outcome::Made(place, lineage)), _) => adopt(&place)
                .map(Some)
                .ok_or_else(|| lost(object, &place, &lineage.why_not())),
            (Ok(Outcome::Nothing) | Err(_), _) => Ok(None),
        };
        (end, result)
    }

    /// What is kept of its output, for `log`: which attempt wrote it is not.
    pub(in crate::server) fn write_to(&self, log: &Log) {
        for part in &self.log {
            let source = match part.is_stderr {
                true => OutputSource::Stderr,
                false => OutputSource::Stdout,
            };
            log.add((part.writer, 1), source, &part.bytes.0);
        }
    }
}

impl Outcome {
    fn of(value: Option<&Value>, place: Option<Whereabouts>) -> Self {
        let Some(value) = value else {
            return Self::Nothing;
        };
        match (value.as_inline(), place) {
            (Some(encoded), _)
                if encoded.size_bytes() <= MOST_RESULT_BYTES && value.references().is_empty() =>
            {
                Self::Value(encoded.clone())
            }
            (_, Some(place)) => Self::Made(place, Lineage::Kept),
            _ => Self::NotKept(value.size_bytes()),
        }
    }
}

/// As it is kept: so it takes what it counts.
pub(in crate::server) fn encoded(submit: &wire::Submit) -> Vec<u8> {
    postcard::to_allocvec(submit).expect("memory takes all that is written")
}

/// No node has a result any more, nor can make it again.
fn lost(object: ObjectId, place: &Whereabouts, why_not: &str) -> TaskError {
    let why = format!(
        "it had {} bytes, and the nodes that had it are lost with the one that owned its task; {why_not}; submit it again",
        place.len
    );
    TaskError::Gone { object, why }
}

fn tail(log: &Log) -> Vec<Written> {
    let mut room = MOST_LOG_BYTES;
    let mut parts = Vec::new();
    for part in log.chunks().into_iter().rev() {
        let from = part.bytes.len().saturating_sub(room);
        room -= part.bytes.len() - from;
        parts.push(Written {
            writer: part.writer,
            is_stderr: part.source == OutputSource::Stderr,
            bytes: Bytes(part.bytes[from..].to_vec()),
        });
        if room == 0 {
            break;
        }
    }
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests;
