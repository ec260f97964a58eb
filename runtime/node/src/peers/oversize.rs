//! Messages that are too long for the wire.
//!
//! Owns what happens instead, so that such a message is not waited for: the receiver gets an error in place of a result,
//! and a task that cannot be sent fails. Must not: send anything.

use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{NodeId, ObjectName, TaskId};
use wasmrun_model::scheduler::{Message, Outcome};
use wasmrun_model::task::{Attempt, FailureKind};
use wasmrun_model::wire::WireError;
use wasmrun_net::FrameError;

use super::Exchange;
use super::protocol::{Carried, Given, Made, Named, OneWay, Place, ReportOrder, Settled};
use crate::ledger::Todo;
use crate::records::actor::object_of;
use crate::records::task::Report;

/// What happens instead of a message that is too long.
pub(super) enum Instead {
    /// The node is told this.
    Say(OneWay),
    /// The task fails here.
    Fail(Unsent),
}

/// An attempt of a task that was to begin at another node.
pub(super) struct Unsent {
    task: TaskId,
    attempt: Attempt,
    /// What was lent to that node for it.
    lent: Vec<ObjectName>,
}

impl Instead {
    /// What would happen instead of a message.
    pub(super) fn of(message: &OneWay) -> Option<Self> {
        let why = "what it gave is too long for a message between nodes; return less, or put it and return the object";
        let error = || WireError::from(&TaskError::Sandbox(why.into()));
        match message {
            OneWay::Place(place) => Some(Self::Fail(Unsent::of(place)?)),
            OneWay::Settled(settled) => {
                let report = settled.report.as_ref()?;
                // Values that fit are not worth a copy of the message.
                report.result.as_ref().err()?;
                let report = ReportOrder {
                    result: Err(error()),
                    ran_us: report.ran_us,
                    held: report.held.clone(),
                    memory_peak_bytes: report.memory_peak_bytes,
                    stderr_tail: report.stderr_tail.clone(),
                    attempt: report.attempt,
                    phases: report.phases,
                };
                Some(Self::Say(OneWay::Settled(Box::new(Settled {
                    message: settled.message.clone(),
                    report: Some(report),
                }))))
            }
            OneWay::Made(made) if made.result.is_err() => {
                Some(Self::Say(OneWay::Made(Box::new(Made {
                    name: made.name,
                    result: Err(error()),
                    ty: None,
                }))))
            }
            _ => None,
        }
    }
}

impl Unsent {
    fn of(place: &Place) -> Option<Self> {
        let Message::Place { spec, attempt, .. } = &place.message else {
            return None;
        };
        let mut lent = Vec::new();
        let mut carried = |carried: &Carried| {
            lent.extend(carried.names.iter().map(|name| match name {
                Named::Object(name) => *name,
                Named::Actor(actor) => object_of(actor.name),
            }));
        };
        let mut given = Vec::new();
        for value in &place.values {
            match value {
                Given::Value(value) => carried(value),
                Given::Object(name, made) => {
                    given.push(*name);
                    let made = made.as_ref().and_then(|made| made.result.as_ref().ok());
                    made.into_iter().for_each(&mut carried);
                }
            }
        }
        lent.extend(given);
        Some(Self {
            task: spec.id,
            attempt: *attempt,
            lent,
        })
    }
}

impl Exchange {
    /// A task cannot be sent to a node, nor to any other: it would be as long. It fails for good.
    pub(super) fn cannot_be_sent(&self, to: NodeId, unsent: Unsent, error: &FrameError) {
        let Unsent {
            task,
            attempt,
            lent,
        } = unsent;
        for name in &lent {
            self.released(to, name, 1);
        }
        if let Some(session) = self.sessions.get(&to) {
            session.arguments.settled(&task, attempt);
        }
        let what = match error {
            FrameError::TooLong { bytes, max_bytes } => {
                format!("{bytes} bytes, and a message between nodes has {max_bytes} at most")
            }
            FrameError::Malformed => error.to_string(),
        };
        let why = format!(
            "it cannot be sent to node {}: its text arguments, standard input, environment and the handles in its values \
             take {what}; put large data into objects and give it these, or give it fewer handles",
            self.name_of(to)
        );
        let settled = Message::Settled {
            task,
            attempt,
            outcome: Outcome::Failed(FailureKind::Final),
        };
        self.tell(|ledger| {
            let Some(cell) = ledger.cell(&task) else {
                return Todo::default();
            };
            let report = Report::never_ran(&cell, TaskError::Sandbox(why));
            ledger.settled(to, settled, report)
        });
    }
}
