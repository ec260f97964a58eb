//! Where a task stands, and which changes are legal.
//!
//! Owns [`TaskState`], whose variants carry what is true in that state alone (a task holds
//! resources exactly while it is dispatched, runs or is blocked), and the table of legal changes,
//! after the states of Ray's raylet.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cluster::NodeIx;
use crate::id::{GroupId, NodeId};
use crate::resource::Allocation;

/// Which try of a task this is. Every message carries it, so that late ones are known.
///
/// It is a fence, and a number from 1. The owner draws a higher fence when it submits a task that may have run before,
/// because its parent or its lineage is executed again: so all tries from then on come after all before, however many
/// there were.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Attempt(u64);

impl Attempt {
    /// The first of a task that was not submitted before.
    pub const FIRST: Self = Self::new(0, 1);

    /// After all of lower fences.
    pub const fn new(fence: u32, number: u32) -> Self {
        Self((fence as u64) << u32::BITS | number as u64)
    }

    /// The one after this.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Which one it is, from 1, as people and guests are shown it. 1 is only [`Attempt::FIRST`].
    pub const fn number(self) -> u32 {
        (self.0 & u32::MAX as u64) as u32
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

/// The name of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Phase {
    /// May be placed on a node (again); nothing is final.
    Placeable,
    /// A call whose actor is not known to be alive yet.
    WaitingForActorCreation,
    /// Placed here; some argument objects are not local yet.
    Waiting,
    /// All arguments are local; waits for resources.
    Ready,
    /// Handed to an executor that has not accepted yet.
    Dispatching,
    /// In an executor, holding its allocation.
    Running,
    /// Running, but waiting for others, or paused for another tenant; its CPU is given back meanwhile.
    Blocked,
    /// No live node can ever serve it.
    Infeasible,
    /// Ended with a result.
    Finished,
    /// Ended without one.
    Failed,
    /// Ended because somebody wanted that.
    Cancelled,
}

impl Phase {
    /// All, the live ones first.
    pub const ALL: [Self; 11] = [
        Self::Placeable,
        Self::WaitingForActorCreation,
        Self::Waiting,
        Self::Ready,
        Self::Dispatching,
        Self::Running,
        Self::Blocked,
        Self::Infeasible,
        Self::Finished,
        Self::Failed,
        Self::Cancelled,
    ];

    /// How many of [`Phase::ALL`] are live.
    pub const LIVE: usize = 8;

    /// Its place in [`Phase::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether a task in it has ended.
    pub const fn is_terminal(self) -> bool {
        self.index() >= Self::LIVE
    }

    /// Whether a task in it holds resources.
    pub const fn holds(self) -> bool {
        matches!(self, Self::Dispatching | Self::Running | Self::Blocked)
    }

    /// Whether a task may go from this state to that one.
    pub const fn may_become(self, next: Self) -> bool {
        use Phase::{
            Blocked, Cancelled, Dispatching, Failed, Finished, Infeasible, Placeable, Ready,
            Running, Waiting, WaitingForActorCreation,
        };
        match (self, next) {
            (from, Failed | Cancelled) => !from.is_terminal(),
            (Placeable, Waiting | Infeasible | Placeable)
            | (WaitingForActorCreation | Infeasible, Placeable)
            | (Waiting, Ready | Placeable)
            | (Ready, Dispatching | Waiting | Placeable)
            | (Dispatching, Running | Ready)
            | (Running, Blocked | Finished | Placeable)
            | (Blocked, Running | Finished | Placeable) => true,
            _ => false,
        }
    }

    /// The name as it stands in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Placeable => "placeable",
            Self::WaitingForActorCreation => "waiting-for-actor",
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Dispatching => "dispatching",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Infeasible => "infeasible",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a task holds: units of a node, for as long as it is there.
#[derive(Debug)]
pub struct Assignment {
    /// The node.
    pub node: NodeIx,
    /// The bundle that it was taken from, if not from the node itself.
    pub bundle: Option<(GroupId, u32)>,
    /// Which of the variants that the task asked for it is.
    pub alternative: u16,
    /// The units.
    pub allocation: Allocation,
    /// Whether it goes on without the CPU that it gave back when it was blocked: actors have that for
    /// as long as they live, and may live until this task ends.
    pub lacks_cpu: bool,
}

/// Where a task that may be placed is meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it is decided next, or as soon as what it needs is known.
    Undecided,
    /// With another node, which runs it or hands it back.
    Peer {
        /// The node.
        node: NodeId,
        /// Whether it has said that it has the task.
        is_accepted: bool,
    },
}

/// What a blocked task lacks to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedOn {
    /// What it waits for.
    Others,
    /// Its CPU alone: what it waited for is there.
    Cpu,
    /// Nothing: the time is up that it wanted to wait. It goes on, and gets its CPU when one is free.
    Nothing,
    /// Its CPU alone: it was paused, so that another tenant gets that.
    Pause,
}

/// The state of a live task, with what is true in it alone.
#[derive(Debug)]
pub enum TaskState {
    /// See [`Phase::Placeable`].
    Placeable(Place),
    /// See [`Phase::WaitingForActorCreation`].
    WaitingForActorCreation,
    /// See [`Phase::Waiting`].
    Waiting {
        /// How many arguments are not local. More than 0.
        missing: u32,
    },
    /// See [`Phase::Ready`].
    Ready,
    /// See [`Phase::Dispatching`].
    Dispatching(Box<Assignment>),
    /// See [`Phase::Running`].
    Running(Box<Assignment>),
    /// See [`Phase::Blocked`].
    Blocked {
        /// What it holds; without a CPU.
        assignment: Box<Assignment>,
        /// What it still lacks.
        on: BlockedOn,
    },
    /// See [`Phase::Infeasible`].
    Infeasible,
}

impl TaskState {
    /// Its name.
    pub const fn phase(&self) -> Phase {
        match self {
            Self::Placeable(_) => Phase::Placeable,
            Self::WaitingForActorCreation => Phase::WaitingForActorCreation,
            Self::Waiting { .. } => Phase::Waiting,
            Self::Ready => Phase::Ready,
            Self::Dispatching(_) => Phase::Dispatching,
            Self::Running(_) => Phase::Running,
            Self::Blocked { .. } => Phase::Blocked,
            Self::Infeasible => Phase::Infeasible,
        }
    }

    /// What it holds.
    pub const fn assignment(&self) -> Option<&Assignment> {
        match self {
            Self::Dispatching(assignment)
            | Self::Running(assignment)
            | Self::Blocked { assignment, .. } => Some(assignment),
            _ => None,
        }
    }
}

/// Whose failure it is that a task failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FailureKind {
    /// The task's own, and trying again would change nothing: a typed error, bad arguments.
    Final,
    /// Maybe not its own: a trap, a limit, a lost node. It is tried again while it has retries.
    Retryable,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The legal changes, as a table to be compared by eye with docs/scheduling.md.
    #[test]
    fn legal_changes() {
        let legal: Vec<String> = Phase::ALL
            .iter()
            .map(|from| {
                let next: Vec<&str> = Phase::ALL
                    .iter()
                    .filter(|next| from.may_become(**next))
                    .map(|next| next.name())
                    .collect();
                format!("{from}: {}", next.join(" "))
            })
            .collect();
        let expected = "\
placeable: placeable waiting infeasible failed cancelled
waiting-for-actor: placeable failed cancelled
waiting: placeable ready failed cancelled
ready: placeable waiting dispatching failed cancelled
dispatching: ready running failed cancelled
running: placeable blocked finished failed cancelled
blocked: placeable running finished failed cancelled
infeasible: placeable failed cancelled
finished: 
failed: 
cancelled: ";
        assert_eq!(legal.join("\n"), expected);
    }

    #[test]
    fn a_fence_is_above_all_attempts_before_it() {
        let many = Attempt::new(0, u32::MAX);
        assert!(Attempt::FIRST < many && many < Attempt::new(1, 1));
        assert_eq!(Attempt::new(7, 2), Attempt::new(7, 1).next());
        assert_eq!(Attempt::new(7, 2).number(), 2);
        assert_eq!(Attempt::new(7, 2).to_string(), "2");
    }

    /// Messages between nodes and names in the control store.
    #[test]
    fn an_attempt_as_bytes_and_as_json() {
        let bytes = |attempt| postcard::to_stdvec(&attempt).unwrap();
        assert_eq!(bytes(Attempt::new(0, 2)), [2]);
        assert_eq!(bytes(Attempt::new(1, 2)), [0x82, 0x80, 0x80, 0x80, 0x10]);
        let json = serde_json::to_string(&Attempt::new(1, 2)).unwrap();
        assert_eq!(json, "4294967298");
    }

    #[test]
    fn indexes_follow_all() {
        for (index, phase) in Phase::ALL.iter().enumerate() {
            assert_eq!(phase.index(), index);
            assert_eq!(phase.is_terminal(), index >= Phase::LIVE);
        }
    }
}
