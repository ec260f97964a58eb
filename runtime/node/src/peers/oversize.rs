//! Messages that are too long for the wire.
//!
//! Owns what happens instead, so that such a message is not waited for: the receiver gets an error in place of a result,
//! and a task that cannot be sent fails. Must not: send anything.

use wasmrun_model::failure::TaskError;
use wasmrun_model::id::{NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::scheduler::{Message, Outcome};
use wasmrun_model::task::{Attempt, FailureKind};
use wasmrun_model::wire::WireError;
use wasmrun_net::FrameError;

use super::Exchange;
use super::protocol::{Carried, CarriedArgument, Made, Named, OneWay, Place, ReportOrder, Settled};
use crate::ledger::Todo;
use crate::records::actor::object_of;
use crate::records::task::Report;

/// What happens instead of a message that is too long.
pub(super) enum Instead {
    /// The node is told this, without what the message lent it.
    Say(OneWay, Loans),
    /// The task fails here.
    Fail(Unsent),
}

/// What a message was to lend, and what was kept for its receiver.
#[derive(Debug, Default)]
pub(super) struct Loans {
    names: Vec<ObjectName>,
    kept: Option<ObjectId>,
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
        match message {
            OneWay::Place(place) => Some(Self::Fail(Unsent::of(place)?)),
            OneWay::Settled(settled) => Self::of_settled(settled),
            OneWay::Made(made) => {
                let (error, lent) = error_for(made.result.as_ref())?;
                let made = Made {
                    name: made.name,
                    result: Err(error),
                    ty: None,
                };
                Some(Self::Say(OneWay::Made(Box::new(made)), lent))
            }
            _ => None,
        }
    }

    fn of_settled(settled: &Settled) -> Option<Self> {
        let report = settled.report.as_ref()?;
        let result = report.result.as_ref();
        let (error, mut lent) = error_for(result.map(Option::as_ref).transpose()?)?;
        let mut message = settled.message.clone();
        if let (Ok(_), Message::Settled { task, outcome, .. }) = (result, &mut message) {
            // It would give the same again.
            *outcome = Outcome::Failed(FailureKind::Final);
            lent.kept = Some(ObjectId::of(*task, 0));
        }
        let report = ReportOrder {
            result: Err(error),
            ran_us: report.ran_us,
            held: report.held.clone(),
            memory_peak_bytes: report.memory_peak_bytes,
            stderr_tail: report.stderr_tail.clone(),
            attempt: report.attempt,
            phases: report.phases,
        };
        let settled = Settled {
            message,
            report: Some(report),
        };
        Some(Self::Say(OneWay::Settled(Box::new(settled)), lent))
    }
}

/// What the receiver gets in place of a result that is too long. `None`: a value that names nothing fits, and is not worth a
/// copy of its message.
fn error_for(result: Result<&Carried, &WireError>) -> Option<(WireError, Loans)> {
    let (why, lent) = match result {
        Ok(carried) if carried.names.is_empty() => return None,
        Ok(carried) => {
            let names = names_of(carried).collect();
            let lent = Loans { names, kept: None };
            let why = "the handles in what it gave are too many for a message between nodes (4 MiB); give fewer handles \
                       in one value, or split it into several objects";
            (why, lent)
        }
        Err(_) => {
            let why = "what it gave is too long for a message between nodes; return less, or put it and return the object";
            (why, Loans::default())
        }
    };
    let error = WireError::from(&TaskError::Sandbox(why.into()));
    Some((error, lent))
}

/// What a value names, as it is lent.
fn names_of(carried: &Carried) -> impl Iterator<Item = ObjectName> {
    carried.names.iter().map(|name| match name {
        Named::Object(name) => *name,
        Named::Actor(actor) => object_of(actor.name),
    })
}

impl Unsent {
    fn of(place: &Place) -> Option<Self> {
        let Message::Place { spec, attempt, .. } = &place.message else {
            return None;
        };
        let mut lent = Vec::new();
        let mut given = Vec::new();
        for value in &place.values {
            match value {
                CarriedArgument::Value(value) => lent.extend(names_of(value)),
                CarriedArgument::Object(name, made) => {
                    given.push(*name);
                    let made = made.as_ref().and_then(|made| made.result.as_ref().ok());
                    lent.extend(made.into_iter().flat_map(names_of));
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
    /// A message is not sent: what it was to lend to a node is not kept for it.
    pub(super) fn unsaid(&self, to: NodeId, lent: &Loans) {
        for name in &lent.names {
            self.released(to, name, 1);
        }
        if let Some(object) = lent.kept {
            self.unkeep(to, object);
        }
    }

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
