//! What an actor is an instance of.
//!
//! Owns [`ActorJob`], what its instances are made of, and [`Face`], what callers on any node know of it. Must not: know actors.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmrun_engine::{ClassIndex, Grants, Limits, Module};
use wasmrun_model::task::Terms;
use wasmrun_model::value::FunctionType;

use crate::records::job::Derived;
use crate::records::policy::Policy;

/// What an actor is: a class, with what its instances ask for.
pub struct ActorJob {
    /// The module.
    pub module: Module,
    /// Which of its classes.
    pub class: ClassIndex,
    /// Whose it is, and what it holds as long as it lives. The retries say whether it may leave for another tenant.
    pub terms: Arc<Terms>,
    /// What it may use besides.
    pub limits: Limits,
    /// What it may reach.
    pub grants: Grants,
    /// How often it is started again after it died.
    pub restarts: u32,
    /// The terms of its calls: they hold nothing, and are retried so often.
    pub call_terms: Arc<Terms>,
    /// Whether its class is declared so: results of its calls may be reconstructed by replaying them.
    pub is_deterministic: bool,
    pub(crate) policy: Arc<Policy>,
    pub(crate) derived: Derived,
}

/// What callers know of an actor's class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Face {
    /// The class, by its full name.
    pub(crate) class: String,
    /// What can be called, in order of name.
    pub(crate) methods: Vec<(String, FunctionType)>,
    /// The terms of its calls.
    #[serde(with = "wasmrun_model::task::shared")]
    pub(crate) call_terms: Arc<Terms>,
    /// Whether it is declared deterministic.
    pub(crate) is_deterministic: bool,
}

impl Face {
    pub(super) fn of(job: &ActorJob) -> Self {
        let class = job.module.class(job.class);
        let methods = class.methods.iter();
        Self {
            class: class.full_name(),
            methods: methods.map(|it| (it.name.clone(), it.ty.clone())).collect(),
            call_terms: job.call_terms.clone(),
            is_deterministic: job.is_deterministic,
        }
    }

    /// The place of a method among [`Face::methods`].
    pub(crate) fn find(&self, method: &str) -> Option<usize> {
        let found = self
            .methods
            .binary_search_by(|(name, _)| name.as_str().cmp(method));
        found.ok()
    }

    /// The names of its methods.
    pub(crate) fn method_names(&self) -> impl Iterator<Item = &str> {
        self.methods.iter().map(|(name, _)| name.as_str())
    }
}
