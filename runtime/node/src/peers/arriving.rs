//! What a task that has come from another node is to run here.
//!
//! Owns the job, the limits and the grants that follow from a message. Must not: give more than this node allows.

use std::time::Duration;

use wasmrun_engine::{Entry, Grants, Limits, Module, NetGrant};
use wasmrun_model::failure::TaskError;
use wasmrun_model::id::NodeId;
use wasmrun_model::task::{Attempt, TaskSpec};
use wasmrun_model::wire::Net;

use crate::peers::Exchange;
use crate::peers::ends::Received;
use crate::peers::place::PlaceError;
use crate::peers::protocol::{CreateOrder, JobOrder, LimitOrder};
use crate::records::actor::Checkpoint;
use crate::records::class::ActorJob;
use crate::records::job::{Derived, Job};
use crate::records::task::Work;

/// A task that has come from another node.
pub(super) struct Arriving {
    pub(super) from: NodeId,
    pub(super) spec: TaskSpec,
    pub(super) attempt: Attempt,
    pub(super) hops: u8,
    /// See [`Place`](super::protocol::Place).
    pub(super) submitted_us: u64,
}

impl Arriving {
    pub(super) fn attempt(&self) -> Received {
        (self.from, self.spec.id, self.attempt)
    }
}

impl Exchange {
    pub(super) fn job(
        &self,
        spec: &TaskSpec,
        order: JobOrder,
        module: &Module,
    ) -> Result<Job, PlaceError> {
        let policy = self.shared.upgrade().map(|shared| shared.policy.clone());
        let entry = match &order.function {
            None => Entry::Program,
            Some(name) => {
                let found = module.find(name);
                Entry::Function(found.map_err(|_| PlaceError::Function(name.clone()))?)
            }
        };
        Ok(Job {
            name: order.name.clone(),
            module: module.clone(),
            entry,
            terms: spec.terms.clone(),
            limits: granted_limits(&order.limits),
            grants: grants(order)?,
            derived: Derived::default(),
            // Of what it starts here.
            policy: policy.unwrap_or_default(),
        })
    }

    /// A generation of another node's actor, which is to be created here.
    pub(super) fn to_create(
        &self,
        arriving: &Arriving,
        order: CreateOrder,
        module: &Module,
    ) -> Result<Work, PlaceError> {
        let CreateOrder {
            actor,
            face,
            job,
            state,
        } = order;
        let policy = self.shared.upgrade().map(|shared| shared.policy.clone());
        let class = module.find_class(&face.class);
        let class = class.map_err(|_| PlaceError::Class(face.class.clone()))?;
        let limits = granted_limits(&job.limits);
        let grants = grants(job)?;
        let call_terms = face.call_terms.clone();
        let (cell, _) = self.foreign_cell(actor, face);
        cell.set_job(ActorJob {
            module: module.clone(),
            class,
            terms: arriving.spec.terms.clone(),
            limits,
            grants,
            // Its owner counts them.
            restarts: 0,
            is_deterministic: cell.face.is_deterministic,
            call_terms,
            policy: policy.unwrap_or_default(),
            derived: Derived::default(),
        });
        // Values are laid out by these types, and peers may say anything.
        let its = module.class(class).methods.iter();
        let its = its.map(|it| (&it.name, &it.ty));
        if !its.eq(cell.face.methods.iter().map(|(name, ty)| (name, ty))) {
            return Err(PlaceError::Class(cell.face.class.clone()));
        }
        let state = state.and_then(|state| {
            Some(Checkpoint {
                number: state.number,
                state: state.inline?.0.into(),
            })
        });
        cell.begins_with(arriving.attempt, state);
        Ok(Work::Create(cell))
    }
}

fn granted_limits(limits: &LimitOrder) -> Limits {
    Limits {
        memory: limits.memory_bytes,
        output: limits.output_bytes,
        arguments: limits.argument_bytes,
        result: limits.result_bytes,
        time: limits.time_us.map(Duration::from_micros),
    }
}

fn grants(order: JobOrder) -> Result<Grants, PlaceError> {
    let grants = Grants {
        env: order.env,
        secrets: order.secrets,
        files: Vec::new(),
        dirs: Vec::new(),
        net: match order.net {
            Net::None => NetGrant::None,
            Net::Only(addresses) => NetGrant::Only(addresses),
            Net::All => NetGrant::All,
        },
        http: order.http,
    };
    let checked = grants.check();
    checked.map_err(|error| TaskError::Arguments(error.to_string()))?;
    Ok(grants)
}
