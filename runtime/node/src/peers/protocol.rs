//! What nodes say to each other about tasks and objects.
//!
//! Owns the types. Must not: do anything. All of it is postcard; a change of an earlier variant is a new
//! major version of the cluster's protocol.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::http::HttpHost;
use wasmrun_model::id::{
    ActorId, ActorName, Digest, DriverId, NodeId, ObjectId, ObjectName, TaskId,
};
use wasmrun_model::resource::ResourceName;
use wasmrun_model::scheduler::Message;
use wasmrun_model::secret::SecretUse;
use wasmrun_model::task::Attempt;
use wasmrun_model::trace::TraceContext;
use wasmrun_model::value::{Encoded, NumberKind, ValueType};
use wasmrun_model::wire::{Bytes, Net, Phases, WireError};

use super::ask::{Answer, Asked};
use crate::ledger::deadlock::{WaitNumber, Waiter};
use crate::ledger::standstill::Waits;
use crate::records::call_log::Ran;
use crate::records::class::Face;

/// Said without an answer, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum OneWay {
    /// What a scheduler says to another, and nothing else.
    Scheduler(Box<Message>),
    /// A task to run. The message is the scheduler's.
    Place(Box<Place>),
    /// What came of an attempt. The message is the scheduler's.
    Settled(Box<Settled>),
    /// A task of yours wrote this.
    Output(Box<Output>),
    /// Say [`OneWay::Made`] as soon as this object of yours is there, or will never be.
    Want(ObjectName),
    /// It is there, or will never be.
    Made(Box<Made>),
    /// So many of the times that you have given me this, I do not need it any more.
    Release(ObjectName, u64),
    /// I have a copy of this object of yours now, or none any more.
    Holding(ObjectId, bool),
    /// You need not keep this object for me any longer.
    Drop(ObjectId),
    /// The driver has gone: end what you own of its.
    DriverGone(DriverId),
    /// Say [`OneWay::Stands`] of this actor of yours, now and whenever that changes.
    WantActor(ActorName),
    /// Where an actor of mine is.
    Stands(Box<Stands>),
    /// Your actor lives here: this attempt of its creation has come to that.
    Born(ActorId, Attempt),
    /// End this actor of yours.
    Kill(ActorName),
    /// The state of an actor of yours that lives here.
    State(Box<StateOf>),
    /// Somebody here who was given this object of yours wants what is to make it cancelled.
    Cancel(ObjectName),
    /// Say [`OneWay::Found`] of a name that you have claimed.
    Find(Box<Find>),
    /// Whose it is.
    Found(Box<Found>),
    /// An actor of yours that lives here was called.
    Called(Box<Called>),
    /// Make the result of a call of an actor of yours again, and say [`OneWay::CalledAgain`].
    Replay(Box<Replay>),
    /// What came of that.
    CalledAgain(Box<CalledAgain>),
    /// Lend me this object of yours, which another node has lent me, and say [`OneWay::Lent`]: that node may be lost.
    Lend(ObjectName),
    /// It is lent.
    Lent(ObjectName),
    /// Lend me this object of yours, which you keep for this tenant, and say [`OneWay::Lent`] if you do.
    LendKept(Box<KeptFor>),
    /// This task of yours has ended here, and what it had started lives on; or that is over now.
    LeftBehind(TaskId, bool),
    /// What this task of mine has left there is to end.
    EndLeft(TaskId),
    /// A task there waits in a circle: that wait is to end.
    BreakWait(Box<BreakWait>),
    /// This object, which you keep, is mine, perhaps since its owner is lost; if I am lost, another node will come for it.
    Outlives(ObjectId),
    /// This object of yours, which its owner before has left here, I keep for you until you say [`OneWay::Drop`].
    Keeps(ObjectId),
    /// This object was mine, and another node has taken over what made it. It is here: say [`OneWay::Outlives`] if it is
    /// yours.
    Left(ObjectId),
}

/// A wait that would never end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BreakWait {
    pub(crate) task: TaskId,
    /// Which wait of the task it is.
    pub(crate) number: WaitNumber,
    pub(crate) why: String,
}

/// An object that stays with its node until somebody deletes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeptFor {
    pub(crate) name: ObjectName,
    pub(crate) tenant: TenantName,
}

/// A call of an actor whose class is deterministic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Called {
    pub(crate) actor: ActorId,
    /// The attempt of its creation that lives.
    pub(crate) attempt: Attempt,
    /// Which call of that generation it is, from 1.
    pub(crate) position: u64,
    pub(crate) task: TaskId,
    pub(crate) driver: DriverId,
    pub(crate) method: String,
    /// Its arguments; none if they are too large.
    pub(crate) values: Option<Vec<CarriedArgument>>,
    pub(crate) ran: Ran,
}

/// Which result is to be reconstructed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Replay {
    /// What the answer is to begin with.
    pub(crate) number: u64,
    pub(crate) actor: ActorId,
    /// The call that made it.
    pub(crate) task: TaskId,
}

/// What is said to [`Replay`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CalledAgain {
    pub(crate) number: u64,
    /// It is yours.
    pub(crate) made: Made,
}

/// Who looks for an actor by its name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Find {
    /// What the answer is to begin with.
    pub(crate) number: u64,
    pub(crate) tenant: TenantName,
    pub(crate) name: String,
    /// The actor for which it was claimed.
    pub(crate) actor: ActorId,
    /// Whether that is wanted, if it has the name: else only whether it has.
    pub(crate) is_wanted: bool,
}

/// What is said to [`Find`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) number: u64,
    pub(crate) whose: Whose,
}

/// See [`Found`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Whose {
    /// This actor's, which is kept for who has asked.
    Actor(Box<NamedActor>),
    /// The actor's for which it was claimed. It was not asked for, or cannot be found yet.
    Held,
    /// Not that actor's.
    Gone,
}

/// A task to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    /// [`Message::Place`].
    pub(crate) message: Message,
    pub(crate) deed: Deed,
    pub(crate) values: Vec<CarriedArgument>,
    pub(crate) args: Vec<String>,
    pub(crate) array_index: Option<u64>,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) input: Option<Bytes>,
    /// Whether somebody listens to what it writes.
    pub(crate) is_heard: bool,
    /// Where the task's driver is: all that it has started ends with that node.
    pub(crate) home: NodeId,
    /// When it was submitted, in microseconds since 1970 by the clock of the node where that was. Its place in lists follows
    /// from that, at each node the same.
    pub(crate) submitted_us: u64,
}

/// What a task is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Deed {
    /// A function or a program.
    Task(Box<JobOrder>),
    /// Begin a generation of an actor.
    Create(Box<CreateOrder>),
    /// Call an actor.
    Call(Box<CallOrder>),
}

/// A generation of an actor, to be begun.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CreateOrder {
    pub(crate) actor: ActorName,
    #[serde(with = "wasmrun_model::task::shared")]
    pub(crate) face: Arc<Face>,
    /// What it may use. Its function is none: the class is the face's.
    pub(crate) job: JobOrder,
    /// What it begins with, instead of its arguments.
    pub(crate) state: Option<State>,
}

/// A call of an actor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallOrder {
    pub(crate) actor: ActorName,
    pub(crate) method: String,
    pub(crate) time_us: Option<u64>,
}

/// The state of an actor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    /// Which one: higher is later.
    pub(crate) number: u64,
    pub(crate) len: u64,
    /// Its bytes, unless they are to be fetched.
    pub(crate) inline: Option<Bytes>,
}

/// Whose state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StateOf {
    pub(crate) actor: ActorId,
    /// The attempt of its creation that lives.
    pub(crate) attempt: Attempt,
    pub(crate) state: State,
}

/// Where an actor is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stands {
    pub(crate) actor: ActorName,
    pub(crate) place: Where,
}

/// See [`Stands`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Where {
    /// It lives there.
    At(NodeId),
    /// It does not live now.
    Away,
    /// It will never live again, because of this.
    Dead(Option<WireError>),
}

/// What tasks of a job have in common, besides their terms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobOrder {
    pub(crate) name: String,
    pub(crate) module: Digest,
    pub(crate) module_bytes: u64,
    /// The full name of the function; none for the program.
    pub(crate) function: Option<String>,
    pub(crate) limits: LimitOrder,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) net: Net,
    pub(crate) http: Vec<HttpHost>,
    /// Their names, and where the task finds them.
    pub(crate) secrets: Vec<SecretUse>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LimitOrder {
    pub(crate) memory_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) argument_bytes: u64,
    pub(crate) result_bytes: u64,
    pub(crate) time_us: Option<u64>,
}

/// An argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum CarriedArgument {
    Value(Carried),
    /// An object, and what it is, if that is known.
    Object(ObjectName, Option<Box<Made>>),
}

/// A value on its way, and what it names.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Carried {
    pub(crate) body: Body,
    pub(crate) names: Vec<Named>,
}

/// What a value names.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Named {
    Object(ObjectName),
    Actor(Box<NamedActor>),
}

/// An actor, and what whoever calls it must know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NamedActor {
    pub(crate) name: ActorName,
    #[serde(with = "wasmrun_model::task::shared")]
    pub(crate) face: Arc<Face>,
    /// Where it was last.
    pub(crate) at: Option<NodeId>,
}

/// The bytes of a value, or where they are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Body {
    Inline(Encoded),
    At(Box<At>),
}

impl Body {
    /// Whether a buffer's bytes are whole elements. Whoever lays it into a guest's memory relies on that, and
    /// peers may say anything.
    pub(crate) fn is_whole(&self) -> bool {
        let (kind, len) = match self {
            Self::Inline(Encoded::Buffer { kind, bytes }) => (*kind, bytes.len() as u64),
            Self::At(at) => match at.numbers {
                Some(kind) => (kind, at.len),
                None => return true,
            },
            Self::Inline(Encoded::Postcard(_)) => return true,
        };
        len.is_multiple_of(kind.width_bytes() as u64)
    }
}

/// Where the bytes of a value are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct At {
    pub(crate) id: ObjectId,
    /// Who knows where else it is.
    pub(crate) owner: NodeId,
    pub(crate) tenant: TenantName,
    /// The form of a buffer's elements, unless it is no buffer.
    pub(crate) numbers: Option<NumberKind>,
    pub(crate) len: u64,
    pub(crate) holders: Vec<NodeId>,
}

/// What became of an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) name: ObjectName,
    pub(crate) result: Result<Carried, WireError>,
    /// The type that it was made as, if that is known.
    pub(crate) ty: Option<ValueType>,
}

impl Made {
    /// How many bytes of a value it has in it.
    pub(crate) fn inline_bytes(&self) -> usize {
        match &self.result {
            Ok(Carried {
                body: Body::Inline(encoded),
                ..
            }) => encoded.size_bytes(),
            _ => 0,
        }
    }
}

/// What came of an attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Settled {
    /// [`Message::Settled`].
    pub(crate) message: Message,
    /// Unless that was said before.
    pub(crate) report: Option<ReportOrder>,
}

/// A task's report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ReportOrder {
    pub(crate) result: Result<Option<Carried>, WireError>,
    pub(crate) ran_us: u64,
    /// Names, amounts, units.
    pub(crate) held: Vec<HeldResource>,
    pub(crate) memory_peak_bytes: u64,
    pub(crate) stderr_tail: String,
    /// Which attempt, from 1; 0 if none began.
    pub(crate) attempt: u32,
    pub(crate) phases: Phases,
}

/// What a task held of one resource.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HeldResource {
    pub(crate) name: ResourceName,
    pub(crate) amount: u64,
    pub(crate) units: Vec<(u32, u64)>,
}

/// Some output of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Output {
    pub(crate) task: TaskId,
    pub(crate) writer: u64,
    /// Which attempt of what wrote it.
    pub(crate) attempt: u32,
    pub(crate) is_stderr: bool,
    pub(crate) bytes: Bytes,
}

/// Asked with an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Where is this object of yours? It could not be had where it was last.
    Where {
        name: ObjectName,
        /// Where it is not any more.
        gone: Vec<NodeId>,
    },
    /// A client of the sender wants to know or have done something here. `Answered`.
    Ask(Box<Asked>),
    /// From which node shall I bring this object of yours? `Source`; it may take a while, until one has time. I say
    /// [`OneWay::Holding`] when I have it, or need it no longer.
    Source {
        name: ObjectName,
        /// Which could not give it.
        gone: Vec<NodeId>,
    },
    /// Keep this module of mine, which has so many bytes: what I was given to run may outlive me. `Holds`.
    Hold(Digest, u64),
    /// For whom do these tasks wait there, and those for whom they wait? `Waits`.
    Waits(Vec<TaskId>),
    /// I keep this object of yours and leave: see to it that another node keeps it. `Moved`, when that is so.
    MoveAway(ObjectId),
    /// Bring this object of mine, and keep it for me as if you had made it. `Moved`.
    Keep {
        at: Box<At>,
        /// As with [`OneWay::Outlives`].
        outlives: bool,
    },
    /// You were given this object of mine, and I leave: bring it, and keep it as long as you need it. `Moved`.
    Bring(ObjectName),
    /// As `Waits`, also with what these tasks wait for that others hold. `Standstill`.
    Standstill {
        tasks: Vec<TaskId>,
        /// Whether to say what the node gives out and who has it, with the waits of all who wait there.
        with_room: bool,
    },
}

/// The answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Response {
    /// It is there.
    Made(Box<Made>),
    /// To `Ask`.
    Answered(Box<Answer>),
    /// To `Source`: bring it from there. None: nobody else is known to have it.
    Source(Option<NodeId>),
    /// To `Hold`: whether it is kept.
    Holds(bool),
    /// To `Waits`: those of them that wait without a time limit.
    Waits(Vec<Waiter>),
    /// To `MoveAway`, `Keep` and `Bring`.
    Moved(Moved),
    /// To `Standstill`.
    Standstill(Box<Waits>),
}

/// What came of having an object elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Moved {
    /// It is there.
    Done,
    /// Nobody there knows of it: what would say so may be on its way.
    Unknown,
    /// It cannot be had there, for people.
    Refused(String),
}

/// Asked for in bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Bulk {
    /// The bytes of an object.
    Object(ObjectId),
    /// The bytes of a module.
    Module(Digest),
    /// The state of an actor: this one.
    State(ActorId, u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_whole_elements() {
        let buffer = |len| {
            Body::Inline(Encoded::Buffer {
                kind: NumberKind::F64,
                bytes: vec![0; len],
            })
        };
        let at = |numbers, len| {
            Body::At(Box::new(At {
                id: ObjectId::of(TaskId::from_bytes([1; 16]), 0),
                owner: NodeId::from_bytes([2; 16]),
                tenant: TenantName::default(),
                numbers,
                len,
                holders: Vec::new(),
            }))
        };
        assert!(buffer(0).is_whole() && buffer(16).is_whole() && !buffer(15).is_whole());
        assert!(at(Some(NumberKind::U16), 1 << 40).is_whole());
        assert!(!at(Some(NumberKind::U16), 7).is_whole() && at(None, 7).is_whole());
        assert!(Body::Inline(Encoded::Postcard(vec![0; 7])).is_whole());
    }
}
