//! Services of a node: which there are, and whose.
//!
//! Owns them until they are stopped, or the session of those that are not detached ends. Must not: know what becomes of a
//! request: see [`crate::serve`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use wasmrun_engine::Listener;
use wasmrun_model::access::Tenants;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{Digest, DriverId};
use wasmrun_model::wire::{List, Output, Refusal, RefusalKind, Response, Serve, ServiceRow};

use super::Inner;
use super::given::grants;
use super::lists::passes;
use super::requests::outputs;
use super::session::{Session, refusal};
use super::tasks::{job_refused, overrides, plain_name};
use super::views::ms;
use crate::client::Client;
use crate::ledger::jobs::About;
use crate::records::ids::random;
use crate::records::log::Log;
use crate::serve::{AccessLog, Answers, AnswersError, Service, ServiceConfig, ServiceStats};

/// How many services a node has at most.
const MOST_SERVICES: usize = 256;

type Key = (TenantName, String);

/// The services of a node.
#[derive(Default)]
pub(super) struct Services(Mutex<BTreeMap<Key, Running>>);

struct Running {
    service: Service,
    module: Digest,
    is_tls: bool,
    /// The session that it ends with.
    session: Option<DriverId>,
    began: Instant,
    log: Arc<Log>,
}

impl Services {
    /// Takes no more requests. Those under way go on.
    pub(super) fn leave(&self) {
        self.0.lock().values().for_each(|it| it.service.leave());
    }

    /// Each with its tenant, its name and what it has served.
    pub(super) fn stats(&self) -> Vec<(TenantName, String, ServiceStats)> {
        let services = self.0.lock();
        let stats = services.iter().map(|((tenant, name), running)| {
            (tenant.clone(), name.clone(), running.service.stats())
        });
        stats.collect()
    }
}

impl Session {
    /// Starts a service, or has another module answer for the one of that name.
    pub(super) fn serve(&self, serve: Serve) -> Result<Response, Refusal> {
        let name = plain_name(&serve.name);
        if name.is_empty() {
            let why = "a service has a name, of characters that can be shown";
            return Err(refusal(RefusalKind::Usage, why));
        }
        let tenant = self.tenant(&serve.terms);
        let module = self.module(&serve.module)?;
        let answers = Answers::new(
            &name,
            &module,
            serve.routes.clone(),
            &overrides(&self.inner, &serve.terms, &serve.limits, tenant.clone()),
            &grants(&serve.grants)?,
        );
        let answers = answers.and_then(|it| it.that_run(&self.client));
        let answers = answers.map_err(|error| match error {
            AnswersError::Job(error) => job_refused(error),
            AnswersError::Never(_) => refusal(RefusalKind::Unschedulable, error),
            error => refusal(RefusalKind::Usage, error),
        })?;
        let mut services = self.inner.services.0.lock();
        let key = (tenant, name);
        if let Some(running) = services.get_mut(&key) {
            self.may_replace(running, &serve)?;
            running.service.replace(answers);
            running.module = serve.module;
            let row = self.inner.service_row(&key, running);
            return Ok(Response::Service(Box::new(row)));
        }
        if services.len() >= MOST_SERVICES {
            let why = format_args!("a node has at most {MOST_SERVICES} services: stop one first");
            return Err(refusal(RefusalKind::Usage, why));
        }
        let running = self.start_service(&key, answers, &serve)?;
        let row = self.inner.service_row(&key, &running);
        services.insert(key, running);
        Ok(Response::Service(Box::new(row)))
    }

    /// Whether this session may put another module in the place of a service's, with the rest as it is.
    fn may_replace(&self, running: &Running, serve: &Serve) -> Result<(), Refusal> {
        let why = match running.session {
            None if !serve.is_detached => Some(
                "a service of that name is detached: replace it with --detach, stop it first, or use another name",
            ),
            Some(session) if serve.is_detached || session != self.client.driver() => Some(
                "a service of that name ends with the command that has started it: end that, or use another name",
            ),
            _ => None,
        };
        if let Some(why) = why {
            return Err(refusal(RefusalKind::Usage, why));
        }
        let address = running.service.address();
        let is_other = serve.address.port() != 0 && serve.address != address;
        if is_other || serve.tls.is_some() != running.is_tls {
            let why = format_args!(
                "the service listens at {address}, {} TLS, which stays as it is when its module is replaced: stop it first, \
                 or use another name",
                if running.is_tls { "with" } else { "without" }
            );
            return Err(refusal(RefusalKind::Usage, why));
        }
        Ok(())
    }

    fn start_service(
        &self,
        (tenant, name): &Key,
        answers: Answers,
        serve: &Serve,
    ) -> Result<Running, Refusal> {
        let usage = |error: &dyn std::fmt::Display| refusal(RefusalKind::Usage, error);
        let log = Arc::<Log>::default();
        let driver = DriverId::detached(random());
        let client = Client::new(self.inner.shared.clone(), driver);
        let config = ServiceConfig {
            name: name.clone(),
            address: serve.address,
            tls: serve.tls.clone().map(|(cert, key)| (cert.0, key.0)),
            hosts: serve.hosts.clone(),
            most_running: serve.most_running as usize,
            most_waiting: serve.most_waiting as usize,
            patience: Duration::from_millis(serve.patience_ms),
            listener: Some(Listener::kept(log.clone(), None)),
            log: Some(access_log(name.clone())),
        };
        let is_tls = config.tls.is_some();
        let service = Service::start(client, answers, config).map_err(|error| usage(&error))?;
        let about = About {
            name: name.clone(),
            tenant: tenant.clone(),
            by: self.by.clone(),
            expected: 0,
        };
        self.inner.open_job(driver, about);
        Ok(Running {
            service,
            module: serve.module,
            is_tls,
            session: (!serve.is_detached).then(|| self.client.driver()),
            began: Instant::now(),
            log,
        })
    }

    /// Ends a service once its requests have ended, or it is out of patience.
    pub(super) async fn stop_service(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Response, Refusal> {
        let key = (self.tenant.clone(), name.to_owned());
        let running = self.inner.services.0.lock().remove(&key);
        let running = running.ok_or_else(|| {
            let why = format_args!(
                "tenant {} has no service '{name}' at node {}: see `wasmrun list services`",
                self.tenant,
                self.inner.name()
            );
            refusal(RefusalKind::NotFound, why)
        })?;
        let is_own = running.session == Some(self.client.driver());
        let ending = self.inner.clone().end_service(running, patience);
        match is_own {
            true => ending.await,
            // It goes on when nobody waits for it any more.
            false => drop(tokio::spawn(ending).await),
        }
        Ok(Response::Done)
    }
}

impl Inner {
    /// The services that were to end with this session do.
    pub(super) fn end_services_of(&self, session: &DriverId) {
        let ended = {
            let mut services = self.services.0.lock();
            let ended = services.extract_if(.., |_, it| it.session.as_ref() == Some(session));
            ended.map(|(_, running)| running).collect::<Vec<_>>()
        };
        for running in ended {
            self.close_job(&running.service.driver());
        }
    }

    async fn end_service(self: Arc<Self>, running: Running, patience: Duration) {
        let _closing = Closing(&self, running.service.driver());
        running.service.drain_async(patience).await;
    }

    /// What is kept of what handlers of a service print. A text stands for it that is its name, or the id of its job.
    pub(super) fn service_output(&self, tenant: &TenantName, text: &str) -> Option<Vec<Output>> {
        let services = self.services.0.lock();
        let mut services = services.iter();
        let is_meant = |(own, name): &Key, running: &Running| {
            own == tenant && (name == text || running.service.driver().to_string() == text)
        };
        let (_, running) = services.find(|(key, running)| is_meant(key, running))?;
        Some(outputs(&running.log))
    }

    /// The services here.
    pub(super) fn service_rows(&self, tenants: &Tenants, list: &List) -> Vec<ServiceRow> {
        let services = self.services.0.lock();
        let rows = services.iter().map(|(key, it)| self.service_row(key, it));
        let wanted = |row: &ServiceRow| {
            let fields: [(&str, &dyn std::fmt::Display); 3] = [
                ("name", &row.name),
                ("tenant", &row.tenant),
                ("node", &row.node),
            ];
            tenants.covers(&row.tenant) && passes(list, &fields)
        };
        rows.filter(wanted).collect()
    }

    fn service_row(&self, (tenant, name): &Key, running: &Running) -> ServiceRow {
        let stats = running.service.stats();
        let scheme = if running.is_tls { "https" } else { "http" };
        let requests = stats.requests();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        ServiceRow {
            name: name.clone(),
            tenant: tenant.clone(),
            url: format!("{scheme}://{}", running.service.address()),
            node: self.name(),
            module: running.module,
            job: running.service.driver(),
            is_detached: running.session.is_none(),
            age_ms: ms(running.began.elapsed()),
            requests,
            failed: stats.failed(),
            refused: stats.refused,
            mean_us: stats.took_us.checked_div(requests).unwrap_or(0),
            running: count(stats.running),
            waiting: count(stats.waiting),
            connections: u32::try_from(stats.connections).unwrap_or(u32::MAX),
        }
    }
}

/// The job of a service, which is closed when this is dropped: behind the service, however that ends.
struct Closing<'a>(&'a Inner, DriverId);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close_job(&self.1);
    }
}

/// Tells the node's log of each request.
fn access_log(service: String) -> AccessLog {
    Arc::new(move |served| {
        tracing::info!(
            target: "wasmrun::access",
            service,
            client = %served.client,
            method = served.method,
            target = served.target,
            status = served.status,
            bytes = served.bytes,
            took_us = u64::try_from(served.took.as_micros()).unwrap_or(u64::MAX),
            cut_off = served.is_cut_off,
            task = served.task.map(|it| it.to_string()),
            "request"
        );
    })
}
