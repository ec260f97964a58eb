//! Identities: what a task, an attempt, a driver and a module are called.
//!
//! Every kind of id is its own type, and there is no conversion between kinds. Ids are values
//! computed from other values, so a re-execution names the same things; whatever is random comes
//! in as an argument.

mod map;
mod prefix;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::map::{OfTask, TaskMap};
pub use self::prefix::IdPrefix;

/// A parse error of an id or digest in text form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a {what}: expected {digits} hexadecimal digits")]
pub struct ParseIdError {
    what: &'static str,
    digits: usize,
    text: String,
}

fn parse_hex<const N: usize>(what: &'static str, text: &str) -> Result<[u8; N], ParseIdError> {
    let bad = || ParseIdError {
        what,
        digits: N * 2,
        text: text.chars().take(80).collect(),
    };
    if text.len() != N * 2 || !text.is_ascii() {
        return Err(bad());
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |c: u8| (c as char).to_digit(16).ok_or_else(bad);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Ok(out)
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $len:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name([u8; $len]);

        impl Default for $name {
            /// All zero: the id of nothing.
            fn default() -> Self {
                Self([0; $len])
            }
        }

        impl $name {
            /// The id made of exactly these bytes.
            pub const fn from_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// The bytes of the id.
            pub const fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, &self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_hex($what, text).map(Self)
            }
        }
    };
}

id!(
    /// A driver: one client session that submits work, or one detached submission. The work of one driver is a job.
    DriverId,
    16,
    "driver id"
);

id!(
    /// A task. The same whenever the same parent makes its n-th child, in any attempt.
    TaskId,
    16,
    "task id"
);

id!(
    /// What a module *is*: the BLAKE3 hash of its bytes as they were submitted.
    Digest,
    32,
    "module digest"
);

id!(
    /// A node: one machine that runs tasks. A process that comes back is a new [`Incarnation`] of it.
    NodeId,
    16,
    "node id"
);

id!(
    /// A job: what was submitted with one request, an array of tasks for example.
    JobId,
    16,
    "job id"
);

id!(
    /// An actor: one stateful instance, in whatever node it lives.
    ActorId,
    16,
    "actor id"
);

id!(
    /// A placement group: bundles of resources that are reserved together.
    GroupId,
    16,
    "placement group id"
);

id!(
    /// An object: the value of one return index of one task.
    ObjectId,
    20,
    "object id"
);

id!(
    /// A trace of OpenTelemetry. All zero is none.
    TraceId,
    16,
    "trace id"
);

id!(
    /// A span of a trace. All zero is none.
    SpanId,
    8,
    "span id"
);

impl TraceId {
    /// The trace of a job that is in no other.
    pub const fn of(job: DriverId) -> Self {
        Self(job.0)
    }
}

impl SpanId {
    /// The span of an attempt, from 1. Ids of tasks are hashes: so is half of one, and attempts differ in its last bits.
    pub fn of(task: &TaskId, attempt: u32) -> Self {
        let mut half = [0; 8];
        half.copy_from_slice(&task.0[..8]);
        let id = u64::from_be_bytes(half) ^ u64::from(attempt);
        Self(id.to_be_bytes())
    }
}

impl GroupId {
    /// The group that a node begins to own. The second half of its id is the first half of its owner's: so
    /// whoever is given the id knows whom to ask about it. `unique` tells it from the node's other groups.
    pub fn of(owner: NodeId, unique: [u8; 8]) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&unique);
        bytes[8..].copy_from_slice(&owner.0[..8]);
        Self(bytes)
    }

    /// Whether a node may be its owner.
    pub fn may_be_of(&self, owner: NodeId) -> bool {
        self.0[8..] == owner.0[..8]
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $id:ident, $bytes:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name {
            /// What it is called.
            pub id: $id,
            /// Who knows where it is: the node that it was submitted through.
            pub owner: NodeId,
        }

        impl $name {
            /// How many bytes [`Self::to_bytes`] makes.
            pub const BYTES: usize = $bytes;

            /// The id and the owner's, one after the other: what stands for a handle in encoded values.
            pub fn to_bytes(&self) -> [u8; $bytes] {
                let mut bytes = [0; $bytes];
                let (id, owner) = bytes.split_at_mut($bytes - 16);
                id.copy_from_slice(self.id.as_bytes());
                owner.copy_from_slice(self.owner.as_bytes());
                bytes
            }

            /// What [`Self::to_bytes`] made.
            pub fn from_bytes(bytes: &[u8; $bytes]) -> Self {
                let (mut id, mut owner) = ([0; $bytes - 16], [0; 16]);
                id.copy_from_slice(&bytes[..$bytes - 16]);
                owner.copy_from_slice(&bytes[$bytes - 16..]);
                Self { id: $id::from_bytes(id), owner: NodeId::from_bytes(owner) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}@{}", self.id, self.owner)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let (id, owner) = text.split_once('@').unwrap_or((text, ""));
                Ok(Self { id: parse_hex($what, id).map($id)?, owner: owner.parse()? })
            }
        }
    };
}

name!(
    /// What names an object everywhere: a handle to it, in values that travel.
    ObjectName,
    ObjectId,
    36,
    "object id"
);

name!(
    /// What names an actor everywhere: a handle to it, in values that travel.
    ActorName,
    ActorId,
    32,
    "actor id"
);

/// Which incarnation of a node this is: higher for every process that comes back under the same id.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Separates the hashes of children of drivers from those of tasks.
const DRIVER_CHILD: u8 = 0;
const TASK_CHILD: u8 = 1;
const TASK_GIVEN: u8 = 2;
const STORED: u8 = 3;

fn child(kind: u8, parent: &[u8; 16], counter: u64) -> TaskId {
    let mut input = [0; 25];
    input[0] = kind;
    input[1..17].copy_from_slice(parent);
    input[17..].copy_from_slice(&counter.to_le_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::hash(&input).as_bytes()[..16]);
    TaskId(id)
}

fn given_child(kind: u8, parent: &TaskId, counter: u64, given: Digest) -> TaskId {
    let id = child(kind, &parent.0, counter);
    let mut input = [0; 48];
    input[..16].copy_from_slice(&id.0);
    input[16..].copy_from_slice(given.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::hash(&input).as_bytes()[..16]);
    TaskId(id)
}

impl DriverId {
    /// From this byte on an id says which driver submits the job's tasks; its last bit, whether they outlive the session.
    const SUFFIX: usize = 12;

    /// The id of a job that goes on without its session, from random bytes. The id itself says so.
    pub const fn detached(random: [u8; 16]) -> Self {
        let mut id = Self::session(random);
        id.0[15] = 1;
        id
    }

    /// The id of a session, from random bytes.
    pub const fn session(random: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = random;
        Self([a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0])
    }

    /// The job that it submits tasks of: its own id, unless it has [adopted](Self::adopter) them.
    pub fn job(&self) -> Self {
        let mut id = Self::session(self.0);
        id.0[15] = self.0[15] & 1;
        id
    }

    /// The driver at another node that goes on with tasks of this job, from random bytes. It is not the driver of before, as
    /// all work of a driver ends when the driver's node is lost.
    #[must_use]
    pub fn adopter(&self, random: [u8; 16]) -> Self {
        let mut id = *self;
        id.0[Self::SUFFIX..].copy_from_slice(&random[Self::SUFFIX..]);
        id.0[15] = id.0[15] & !1 | self.0[15] & 1;
        id
    }

    /// Whether its tasks go on without the session that submitted them.
    pub const fn is_detached(&self) -> bool {
        self.0[15] & 1 == 1
    }

    /// The id of the `counter`-th task (from 0) that this driver submits.
    pub fn task(&self, counter: u64) -> TaskId {
        child(DRIVER_CHILD, &self.0, counter)
    }
}

impl TaskId {
    /// The id of the `counter`-th task (from 0) that this task submits.
    pub fn task(&self, counter: u64) -> TaskId {
        child(TASK_CHILD, &self.0, counter)
    }

    /// The id of the `counter`-th task (from 0) that this task submits, where another attempt of this one is to name it
    /// so only if it is the same: `given` is a hash of what it is and is given.
    pub fn task_given(&self, counter: u64, given: Digest) -> TaskId {
        given_child(TASK_GIVEN, self, counter, given)
    }

    /// What the id of the `counter`-th object that this task stores begins with, in the same way: `given` is a hash of its
    /// bytes.
    pub fn storing(&self, counter: u64, given: Digest) -> TaskId {
        given_child(STORED, self, counter, given)
    }

    /// The actor whose creation this is.
    pub fn actor(&self) -> ActorId {
        ActorId(self.0)
    }
}

impl ActorId {
    /// The task that is its creation.
    pub fn task(&self) -> TaskId {
        TaskId(self.0)
    }
}

impl ObjectId {
    /// Indexes from here on are of what a task stored, not of what it returned.
    const FIRST_PUT: u32 = 1 << 31;

    /// The `counter`-th object (from 0, below 2^31) that a task stores while it runs.
    pub fn put_by(task: TaskId, counter: u32) -> Self {
        Self::of(task, Self::FIRST_PUT | counter)
    }

    /// The object that a task returns at `index` (from 0).
    pub fn of(task: TaskId, index: u32) -> Self {
        let mut id = [0; 20];
        id[..16].copy_from_slice(&task.0);
        id[16..].copy_from_slice(&index.to_be_bytes());
        Self(id)
    }

    /// The task that returns it.
    pub fn task(&self) -> TaskId {
        let mut id = [0; 16];
        id.copy_from_slice(&self.0[..16]);
        TaskId(id)
    }
}

impl Digest {
    /// The digest of a module's bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_adopts_a_job_is_another_driver_of_it() {
        let job = DriverId::detached([7; 16]);
        assert!(job.is_detached() && job.job() == job);
        let adopter = job.adopter([8; 16]);
        assert!(adopter != job && adopter.is_detached());
        assert_eq!((adopter.job(), adopter.adopter([9; 16]).job()), (job, job));
        let session = DriverId::session([7; 16]);
        assert!(!session.is_detached() && session.job() == session && session != job);
    }

    #[test]
    fn ids_are_reproducible_and_apart() {
        let driver = DriverId::from_bytes([7; 16]);
        assert_eq!(driver.task(3), driver.task(3));
        assert_ne!(driver.task(3), driver.task(4));
        // A driver and a task with the same bytes do not share children.
        assert_ne!(driver.task(0), TaskId::from_bytes([7; 16]).task(0));
    }

    #[test]
    fn text_round_trips_and_rejects() {
        let id = DriverId::from_bytes([7; 16]).task(1);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("12".parse::<TaskId>().is_err());
        let name = ObjectName {
            id: ObjectId::of(id, 1),
            owner: NodeId::from_bytes([9; 16]),
        };
        assert_eq!(ObjectName::from_bytes(&name.to_bytes()), name);
        assert_eq!(name.to_string().parse(), Ok(name));
        assert!(name.id.to_string().parse::<ObjectName>().is_err());
        assert!("zz".repeat(16).parse::<TaskId>().is_err());
        assert!("é".repeat(16).parse::<TaskId>().is_err());
    }
}
