//! What answers the requests of a service: a module's own handler, or functions by routes.

use std::sync::Arc;
use std::time::Duration;

use wasmrun_engine::{Entry, Grants, Limits, LookupError, Module};
use wasmrun_model::http::{Route, Routes, RoutesError, openapi};
use wasmrun_model::manifest::HTTP;
use wasmrun_model::resource::{Amount, ResourceName};

use super::actors::Method;
use crate::client::Client;
use crate::records::job::Job;
use crate::records::options::{JobError, Overrides};

/// What a request asks for of the CPU where neither the module nor its operator says: most wait more than they compute.
const CPU: Amount = Amount::from_steps(Amount::ONE.steps() / 10);
/// How long a request may take by default.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Why a module cannot answer requests.
#[derive(Debug, thiserror::Error)]
pub enum AnswersError {
    /// It has no handler, and no route was given.
    #[error(
        "the module exports no handler of HTTP requests: build a component for the world wasi:http/proxy (it exports \
         wasi:http/incoming-handler), or serve its functions with --route 'POST /path=function'"
    )]
    NoHandler,
    /// A route names no function.
    #[error("the route {route}: {error}")]
    Function {
        /// The route.
        route: Route,
        /// Why not.
        error: Box<LookupError>,
    },
    /// A route names no method of an actor.
    #[error("the route {route}: {why}")]
    Method {
        /// The route.
        route: Route,
        /// Why not.
        why: String,
    },
    /// The routes do not go together.
    #[error(transparent)]
    Routes(#[from] RoutesError),
    /// It asks for what cannot be asked for.
    #[error(transparent)]
    Job(#[from] JobError),
    /// No request could ever run.
    #[error("{0}")]
    Never(String),
}

/// What answers the requests of a service.
#[derive(Clone)]
pub struct Answers(pub(super) Kind);

#[derive(Clone)]
pub(super) enum Kind {
    /// The handler of a module.
    Handler(Arc<Job>),
    /// Functions of one.
    Functions(Arc<Functions>),
}

pub(super) struct Functions {
    pub(super) routes: Routes,
    /// What requests of each count as, by the route's index.
    pub(super) names: Vec<Arc<str>>,
    /// By the route's index.
    pub(super) targets: Vec<Target>,
    /// What describes them to others.
    pub(super) openapi: serde_json::Value,
}

/// What a route calls.
pub(super) enum Target {
    Function(Arc<Job>),
    Method(Box<Method>),
}

impl Target {
    pub(super) fn limits(&self) -> &Limits {
        match self {
            Self::Function(job) => &job.limits,
            Self::Method(method) => &method.limits,
        }
    }
}

impl Answers {
    /// The functions of these routes, or the module's handler where there are none. `name` is what people call the service.
    ///
    /// # Errors
    /// When the module has no such function, or no handler; when routes contradict each other; when a request would ask for
    /// more than the node gives.
    pub fn new(
        name: &str,
        module: &Module,
        routes: Vec<Route>,
        overrides: &Overrides,
        grants: &Grants,
    ) -> Result<Self, AnswersError> {
        let job = |name: &str, entry| job(name, module, entry, overrides, grants).map(Arc::new);
        if routes.is_empty() {
            return match module.is_http_handler() {
                true => Ok(Self(Kind::Handler(job(name, Entry::Http)?))),
                false => Err(AnswersError::NoHandler),
            };
        }
        let mut targets = Vec::with_capacity(routes.len());
        let mut typed = Vec::with_capacity(routes.len());
        for route in routes {
            if let Some(named) = Method::named(route.function(), module, overrides) {
                match named {
                    Ok(method) => {
                        typed.push((route, method.ty.clone()));
                        targets.push(Target::Method(Box::new(method)));
                    }
                    Err(why) => return Err(AnswersError::Method { route, why }),
                }
                continue;
            }
            let index = match module.find(route.function()) {
                Ok(index) => index,
                Err(error) => {
                    let error = Box::new(error);
                    return Err(AnswersError::Function { route, error });
                }
            };
            let function = module.function(index);
            targets.push(Target::Function(job(
                &function.name,
                Entry::Function(index),
            )?));
            typed.push((route, function.ty.clone()));
        }
        let routes = Routes::new(typed)?;
        let digest = module.digest().to_string();
        let version = digest.get(..12).unwrap_or(&digest);
        let names = routes.iter();
        let names = names.map(|(it, _)| format!("{} {}", it.method().as_str(), it.path()).into());
        Ok(Self(Kind::Functions(Arc::new(Functions {
            names: names.collect(),
            openapi: openapi(name, version, &routes),
            routes,
            targets,
        }))))
    }

    /// The same, where some node can run the requests, as tasks of the session `client`. `is_alone` if no other node is to
    /// answer any.
    ///
    /// # Errors
    /// When none ever can.
    pub fn that_run(self, client: &Client, is_alone: bool) -> Result<Self, AnswersError> {
        let never = match &self.0 {
            Kind::Handler(job) => client.why_never(job, is_alone),
            Kind::Functions(functions) => functions.targets.iter().find_map(|it| match it {
                Target::Function(job) => client.why_never(job, false),
                Target::Method(_) => None,
            }),
        };
        match never {
            Some(why) => Err(AnswersError::Never(why)),
            None => Ok(self),
        }
    }

    /// What requests count as that take a route.
    pub(super) fn routes(&self) -> &[Arc<str>] {
        match &self.0 {
            Kind::Handler(_) => &[],
            Kind::Functions(functions) => &functions.names,
        }
    }
}

/// The job of requests that this answers.
fn job(
    name: &str,
    module: &Module,
    entry: Entry,
    overrides: &Overrides,
    grants: &Grants,
) -> Result<Job, JobError> {
    let full_name = match entry {
        Entry::Function(index) => module.function(index).full_name(),
        Entry::Http | Entry::Program => HTTP.to_owned(),
    };
    let mut overrides = overrides.clone();
    let mut declared = module.manifest().settings(&full_name);
    let is_declared = declared
        .any(|it| it.resources.0.contains_key(&ResourceName::CPU) || !it.alternatives.is_empty());
    if !is_declared {
        let asked = &mut overrides.resources.0;
        asked.entry(ResourceName::CPU).or_insert(CPU);
    }
    let mut job = Job::new(name, module, entry, &overrides, grants.clone())?;
    job.limits.time.get_or_insert(TIME_LIMIT);
    Ok(job)
}
