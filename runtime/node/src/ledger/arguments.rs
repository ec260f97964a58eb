//! What a call says of where it can run and what it waits for.
//!
//! Owns the look at its arguments. Must not: know the scheduler.

use std::sync::Arc;

use wasmrun_engine::Input;
use wasmrun_model::cluster::{NodeName, Strategy};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::ObjectId;
use wasmrun_model::task::{Argument as Needed, Rule, Terms};

use super::{Ledger, NodeNames};
use crate::records::job::{Argument, Call, Job};
use crate::records::object::{Object, Reference, Value};
use crate::records::task::{TaskCell, Work};

/// What ties something to this node, because it is nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    /// A folder of this machine.
    Folder,
    /// Standard input that is read as it comes.
    Stream,
    /// A request of a client that is connected here.
    Request,
}

impl Tie {
    pub(super) fn of(work: &Work, call: &Call) -> Option<Self> {
        let (dirs, input) = match work {
            Work::Create(actor) => (&actor.job().grants.dirs, &Input::Empty),
            // It goes where its actor is.
            Work::Call(..) | Work::Elsewhere(_) => return None,
            Work::Task(job) => (&job.grants.dirs, &call.input),
        };
        match (dirs.is_empty(), input) {
            (false, _) => Some(Self::Folder),
            (true, Input::Stream(_)) => Some(Self::Stream),
            (true, Input::Http(_)) => Some(Self::Request),
            (true, Input::Empty | Input::Bytes(_)) => None,
        }
    }

    /// What ties each task of a job, of which nothing comes in as it runs but perhaps a request.
    pub(super) fn of_job(job: &Job, is_request: bool) -> Option<Self> {
        match (job.grants.dirs.is_empty(), is_request) {
            (false, _) => Some(Self::Folder),
            (true, true) => Some(Self::Request),
            (true, false) => None,
        }
    }

    /// In words, with the name of this node.
    pub(super) fn said(self, node: &NodeName) -> String {
        match self {
            Self::Folder => format!("it is given a folder of node {node}, which no other node has"),
            Self::Stream => format!("its standard input comes to node {node} and to no other"),
            Self::Request => format!("it answers a request that has come to node {node}"),
        }
    }

    /// What to do instead.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Folder => "give it objects instead of the folder",
            Self::Stream => {
                "give it its input as a whole, as submit does with --retries 1, or none: --stdin /dev/null"
            }
            Self::Request => "serve it at a node that has room for it",
        }
    }
}

/// How many failures that led to each other an error names at most.
const MOST_CAUSES: usize = 16;

/// The objects that a task needs before it starts.
pub(super) fn needs(call: &Call) -> Vec<Needed> {
    let objects = call.values.iter().filter_map(|value| match value {
        Argument::Object(Object(Reference::Task(cell))) => Some(cell),
        _ => None,
    });
    let needed = objects.map(|cell| {
        // In this order: who ends it looks for dependents after it has ended.
        let value = match cell.add_dependent() {
            true => cell.value(),
            false => None,
        };
        let (bytes, holders) = value.as_ref().map_or((0, Vec::new()), Value::whereabouts);
        Needed {
            object: cell.object().id,
            bytes,
            holders,
            is_local: value.is_some_and(|value| value.is_here()),
        }
    });
    needed.collect()
}

/// The argument that is this object, and what is to make it.
fn maker<'a>(call: &'a Call, object: &ObjectId) -> Option<(usize, &'a Arc<TaskCell>)> {
    let values = call.values.iter().enumerate();
    let mut of_tasks = values.filter_map(|(index, value)| match value {
        Argument::Object(Object(Reference::Task(cell))) => Some((index, cell)),
        _ => None,
    });
    of_tasks.find(|(_, cell)| cell.object().id == *object)
}

/// Whether an object that a task needs will never be there.
pub(super) fn has_failed(call: &Call, object: &ObjectId) -> bool {
    maker(call, object).is_some_and(|(_, cell)| matches!(cell.result(), Some(Err(_))))
}

/// Why a task that needs an object which will never be there fails.
pub(super) fn missing(
    call: Option<&Call>,
    object: &ObjectId,
    name_of: &NodeNames,
) -> Option<TaskError> {
    let (index, cell) = maker(call?, object)?;
    let mut cause = match cell.result()? {
        Err(cause) => cause,
        Ok(_) => TaskError::Gone {
            object: *object,
            why: format!(
                "node {} owned it, every node that had it is gone, and what made it cannot be run again; put it again",
                name_of(cell.object().owner)
            ),
        },
    };
    if cause.depth() >= MOST_CAUSES {
        // Long chains say no more than their end, and nobody should have to walk them.
        cause = cause.root().clone();
    }
    Some(TaskError::Dependency {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        task: cell.id,
        name: match &cell.work {
            Work::Elsewhere(foreign) => format!("at node {}", name_of(foreign.name().owner)),
            work => work.name().into_owned(),
        },
        cause: Box::new(cause),
    })
}

impl Ledger {
    /// The terms of something that only this node can run.
    ///
    /// # Errors
    /// When it is to run on another one.
    pub(super) fn stays(&self, terms: &Terms) -> Result<Arc<Terms>, String> {
        let own = self.scheduler.own_nodes().first();
        let Some(own) = own.map(|ix| self.scheduler.cluster()[*ix].name().clone()) else {
            return Err("the node is stopping".into());
        };
        let rule = &terms.rule;
        if let Strategy::NodeAffinity { node, soft: false } = &rule.strategy
            && self.scheduler.cluster().resolve(node) != self.scheduler.cluster().resolve(&own)
        {
            return Err(format!(
                "it is to run on node {node}, but what has a folder or a stream of its own runs where it is \
                 submitted, which is {own}; submit it at {node}"
            ));
        }
        if let Strategy::PlacementGroup { group, .. } = &rule.strategy {
            return Err(format!(
                "it is to run in placement group {group}, whose bundles may be on any node, but what has a folder \
                 or a stream of its own runs where it is submitted; give it objects, or its input as a whole"
            ));
        }
        let strategy = Strategy::NodeAffinity {
            node: own,
            soft: false,
        };
        Ok(Arc::new(Terms {
            rule: Arc::new(Rule {
                strategy,
                alternatives: rule.alternatives.clone(),
                selectors: rule.selectors.clone(),
                module: rule.module,
            }),
            ..terms.clone()
        }))
    }
}
