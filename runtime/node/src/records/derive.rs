//! What tasks and actors that a guest starts are: their parent's terms, with what their function or
//! class declares, and what the guest wishes over that.

use std::sync::Arc;

use wasmrun_engine::{ClassIndex, Entry, FunctionIndex, Limits, Wishes};
use wasmrun_model::cluster::{ParseSelectorError, ParseStrategyError, Selectors, Strategy};
use wasmrun_model::manifest::Asked;
use wasmrun_model::resource::{
    Amount, ParseAmountError, ParseResourceNameError, Request, RequestError, ResourceName,
};
use wasmrun_model::task::{Rule, Terms};

use crate::records::class::ActorJob;
use crate::records::job::{Derived, Job, Parent};
use crate::records::options::{JobError, Overrides};
use crate::records::policy::TooMuch;

/// Why a wish cannot be granted.
#[derive(Debug, thiserror::Error)]
pub enum WishError {
    /// A resource's name cannot be one.
    #[error(transparent)]
    Name(#[from] ParseResourceNameError),
    /// An amount cannot be one.
    #[error("{name}: {error}")]
    Amount {
        /// The resource.
        name: ResourceName,
        /// What is wrong.
        error: ParseAmountError,
    },
    /// The label selector cannot be read.
    #[error("the label selector: {0}")]
    Selector(#[from] ParseSelectorError),
    /// The strategy cannot be read.
    #[error("the strategy: {0}")]
    Strategy(#[from] ParseStrategyError),
    /// No node could ever be asked for this.
    #[error(transparent)]
    Job(#[from] JobError),
    /// No node could ever be asked for this.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The node gives no actor that much.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
}

impl WishError {
    /// Whether only a node that gives more could serve it.
    pub fn is_too_much(&self) -> bool {
        matches!(self, Self::TooMuch(_) | Self::Job(JobError::TooMuch(_)))
    }
}

/// The job of a task that starts `function`.
pub(crate) fn job(
    parent: Parent<'_>,
    function: FunctionIndex,
    wishes: Wishes,
) -> Result<Arc<Job>, WishError> {
    if wishes != Wishes::default() {
        return new_job(parent, function, wishes).map(Arc::new);
    }
    if let Some(job) = parent.derived.0.lock().get(&function) {
        return Ok(job.clone());
    }
    let job = Arc::new(new_job(parent, function, wishes)?);
    parent.derived.0.lock().insert(function, job.clone());
    Ok(job)
}

fn new_job(parent: Parent<'_>, function: FunctionIndex, wishes: Wishes) -> Result<Job, WishError> {
    let overrides = Overrides {
        resources: amounts(&wishes)?,
        tenant: parent.terms.tenant.clone(),
        priority: wishes.priority.unwrap_or(parent.terms.priority),
        retries: wishes.retries,
        retry_on_error: wishes.retry_on_error,
        no_preempt: false,
        selectors: selectors(&wishes)?,
        strategy: strategy(&wishes)?,
        time_limit: wishes.time_limit,
        output_bytes: parent.limits.output,
        argument_bytes: parent.limits.arguments,
        result_bytes: parent.limits.result,
        policy: parent.policy.clone(),
    };
    let name = parent.module.function(function).name.clone();
    let entry = Entry::Function(function);
    Ok(Job::new(
        name,
        parent.module,
        entry,
        &overrides,
        parent.grants.clone(),
    )?)
}

/// An actor of `class`.
pub(crate) fn actor(
    parent: Parent<'_>,
    class: ClassIndex,
    wishes: Wishes,
) -> Result<ActorJob, WishError> {
    let of_class = parent.module.class(class);
    let declared = parent.module.manifest().class(&of_class.full_name());
    let declared = declared.cloned().unwrap_or_default();
    let mut asked = parent.policy.actor();
    declared.resources.apply_to(&mut asked);
    amounts(&wishes)?.apply_to(&mut asked);
    parent.policy.check("actor", &asked)?;
    // Of its creation: calls have their own.
    let time = parent.policy.actor_time("constructor", wishes.time_limit)?;
    let memory = asked.get(&ResourceName::MEMORY).whole_units();
    let terms = |request: Request, retries: u32| Terms {
        tenant: parent.terms.tenant.clone(),
        priority: parent.terms.priority,
        retries,
        retry_on_error: false,
        no_preempt: false,
        rule: Arc::new(Rule::of(request)),
    };
    let strategy = match strategy(&wishes)? {
        // It costs no score worth the name, so all of its kind would gather where they are created.
        Strategy::Default if parent.policy.is_idle_actor(&asked) => Strategy::Random,
        strategy => strategy,
    };
    let rule = Rule {
        selectors: selectors(&wishes)?,
        strategy,
        ..Rule::of(Request::new(asked)?)
    };
    // How often it is started again is counted with the actor, not with its creation. But where it is, and from a checkpoint,
    // it may leave its node for another tenant: see `Terms::retries`.
    let restarts = wishes.restarts.or(declared.restarts).unwrap_or(0);
    let may_leave = restarts > 0 && of_class.can_checkpoint();
    let creation = Terms {
        rule: Arc::new(rule),
        ..terms(Request::default(), may_leave.into())
    };
    let call_retries = wishes.call_retries.or(declared.call_retries).unwrap_or(0);
    Ok(ActorJob {
        module: parent.module.clone(),
        class,
        terms: Arc::new(creation),
        limits: Limits {
            memory,
            time,
            ..parent.limits.clone()
        },
        grants: parent.grants.clone(),
        is_deterministic: declared.deterministic,
        restarts,
        call_terms: Arc::new(terms(Request::default(), call_retries)),
        policy: parent.policy.clone(),
        derived: Derived::default(),
    })
}

fn amounts(wishes: &Wishes) -> Result<Asked, WishError> {
    let mut asked = Asked::default();
    for (name, amount) in &wishes.resources {
        let name: ResourceName = name.parse()?;
        match Amount::parse_for(&name, amount) {
            Ok(amount) => drop(asked.0.insert(name, amount)),
            Err(error) => return Err(WishError::Amount { name, error }),
        }
    }
    Ok(asked)
}

fn selectors(wishes: &Wishes) -> Result<Selectors, ParseSelectorError> {
    wishes
        .label_selector
        .as_deref()
        .map_or(Ok(Selectors::default()), str::parse)
}

fn strategy(wishes: &Wishes) -> Result<Strategy, ParseStrategyError> {
    wishes
        .strategy
        .as_deref()
        .map_or(Ok(Strategy::default()), str::parse)
}
