//! Services of a node: which there are, and whose.
//!
//! Owns them until they are stopped, or the session of those that are not detached ends. Those that every node of a cluster
//! serves are in [`super::everywhere`]. Must not: know what becomes of a request: see [`crate::serve`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use wasmrun_engine::Listener;
use wasmrun_model::access::Tenants;
use wasmrun_model::fairness::{TenantName, check_place};
use wasmrun_model::id::{Digest, DriverId};
use wasmrun_model::units::{ms, us};
use wasmrun_model::wire::{List, Output, Refusal, RefusalKind, Response, Serve, ServiceRow};
use wasmrun_net::PemError;

use super::Inner;
use super::lists::passes;
use super::operands::grants;
use super::requests::outputs;
use super::session::{Session, refusal};
use super::tasks::{job_refused, overrides, plain_name};
use crate::client::Client;
use crate::cluster::{ServiceKey, ServiceRecord};
use crate::ledger::jobs::About;
use crate::records::ids::random;
use crate::records::log::Log;
use crate::serve::{
    AccessLog, Answers, AnswersError, Service, ServiceConfig, ServiceStats, StartServiceError,
    acceptor,
};

/// How many services a node has at most, and as many again of its cluster.
pub(super) const MOST_SERVICES: usize = 256;

/// The services of a node.
#[derive(Default)]
pub(super) struct Services {
    pub(super) running: Mutex<BTreeMap<ServiceKey, Running>>,
    /// Those of the cluster that do not listen here, as lists show them.
    pub(super) failed: Mutex<BTreeMap<ServiceKey, ServiceRow>>,
    /// Those of the cluster whose last requests are under way, likewise.
    pub(super) ending: Mutex<Vec<ServiceRow>>,
}

pub(super) struct Running {
    pub(super) service: Service,
    pub(super) module: Digest,
    pub(super) is_tls: bool,
    /// The session that it ends with.
    pub(super) session: Option<DriverId>,
    pub(super) began: Instant,
    pub(super) log: Arc<Log>,
    /// What answers, of a service that every node serves.
    pub(super) record: Option<Arc<ServiceRecord>>,
    /// The generation that was to answer last, and why it does not.
    pub(super) outdated: Option<(u64, String)>,
}

impl Services {
    /// Takes no more requests. Those under way go on.
    pub(super) fn leave(&self) {
        let running = self.running.lock();
        running.values().for_each(|it| it.service.leave());
    }

    /// Each with its tenant, its name and what it has served.
    pub(super) fn stats(&self) -> Vec<(TenantName, String, ServiceStats)> {
        let services = self.running.lock();
        let stats = services.iter().map(|((tenant, name), running)| {
            (tenant.clone(), name.clone(), running.service.stats())
        });
        stats.collect()
    }
}

impl Session {
    /// Starts a service, or has another module answer for the one of that name: at every node of the cluster if it is
    /// detached.
    pub(super) async fn serve(&self, mut serve: Serve) -> Result<Response, Refusal> {
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
        let is_in_cluster = serve.is_detached && self.inner.cluster().is_some();
        let why_alone = is_in_cluster.then(|| why_alone(&serve)).flatten();
        let is_everywhere = is_in_cluster && why_alone.is_none();
        let answers = answers.and_then(|it| it.that_run(&self.client, !is_everywhere));
        let answers = answers.map_err(|error| match error {
            AnswersError::Job(error) => job_refused(error),
            AnswersError::Never(_) => refusal(RefusalKind::Unschedulable, error),
            error => refusal(RefusalKind::Usage, error),
        })?;
        serve.name.clone_from(&name);
        let key = (tenant, name);
        if is_everywhere {
            return self.serve_everywhere(key, serve).await;
        }
        let mut row = self.serve_here(key, answers, &serve)?;
        row.why = why_alone.map(str::to_owned);
        Ok(Response::Service(Box::new(row)))
    }

    /// The same at this node alone.
    fn serve_here(
        &self,
        key: ServiceKey,
        answers: Answers,
        serve: &Serve,
    ) -> Result<ServiceRow, Refusal> {
        let mut services = self.inner.services.running.lock();
        if let Some(running) = services.get_mut(&key) {
            self.may_replace(running, serve)?;
            let tls = tls_of(serve).map_err(|why| refusal(RefusalKind::Usage, why))?;
            running.service.replace(answers, tls);
            running.module = serve.module;
            return Ok(self.inner.service_row(&key, running));
        }
        let own = services.iter().filter(|(_, it)| it.record.is_none());
        let mut counts = BTreeMap::<_, usize>::new();
        for ((tenant, _), _) in own {
            *counts.entry(tenant.clone()).or_default() += 1;
        }
        check_place(MOST_SERVICES, &counts, &key.0).map_err(|full| {
            let why = format_args!(
                "a node has at most {MOST_SERVICES} services of its own, and {full}: stop one first"
            );
            refusal(RefusalKind::Usage, why)
        })?;
        let started = self.inner.start_service(&key, answers, serve, &self.by);
        let mut running = started.map_err(|error| refusal(RefusalKind::Usage, error))?;
        running.session = (!serve.is_detached).then(|| self.client.driver());
        let row = self.inner.service_row(&key, &running);
        services.insert(key, running);
        Ok(row)
    }

    /// Whether this session may put another module in the place of a service's, with the rest as it is.
    fn may_replace(&self, running: &Running, serve: &Serve) -> Result<(), Refusal> {
        let why = match running.session {
            _ if running.record.is_some() && serve.is_detached => Some(
                "every node serves the service of that name, and only one can serve this: stop that first, or use another name",
            ),
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
        let is_other = serve.address.port() != 0 && self.inner.listen_address(serve) != address;
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

    /// Ends a service once its requests have ended, or it is out of patience.
    pub(super) async fn stop_service(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Response, Refusal> {
        let key = (self.tenant.clone(), name.to_owned());
        let own = {
            let mut services = self.inner.services.running.lock();
            let is_own = services.get(&key).is_some_and(|it| it.record.is_none());
            is_own.then(|| services.remove(&key)).flatten()
        };
        let Some(running) = own else {
            // It goes on when nobody waits for it any more.
            let stopping = self.inner.clone().stop_everywhere(key, patience);
            let stopped = tokio::spawn(stopping).await;
            let stopping = |_| refusal(RefusalKind::Stopping, "the node is stopping");
            return stopped.map_err(stopping)?.map(|()| Response::Done);
        };
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
            let mut services = self.services.running.lock();
            let ended = services.extract_if(.., |_, it| it.session.as_ref() == Some(session));
            ended.map(|(_, running)| running).collect::<Vec<_>>()
        };
        for running in ended {
            self.close_job(&running.service.driver());
        }
    }

    pub(super) async fn end_service(self: Arc<Self>, running: Running, patience: Duration) {
        let _closing = Closing(&self, running.service.driver());
        running.service.drain_async(patience).await;
    }

    /// What is kept of what handlers of a service print. A text stands for it that is its name, or the id of its job.
    pub(super) fn service_output(&self, tenant: &TenantName, text: &str) -> Option<Vec<Output>> {
        let services = self.services.running.lock();
        let mut services = services.iter();
        let is_meant = |(own, name): &ServiceKey, running: &Running| {
            own == tenant && (name == text || running.service.driver().to_string() == text)
        };
        let (_, running) = services.find(|(key, running)| is_meant(key, running))?;
        Some(outputs(&running.log))
    }

    /// The services here.
    pub(super) fn service_rows(&self, tenants: &Tenants, list: &List) -> Vec<ServiceRow> {
        let services = self.services.running.lock();
        let rows = services.iter().map(|(key, it)| self.service_row(key, it));
        let mut rows: Vec<ServiceRow> = rows.collect();
        drop(services);
        rows.extend(self.services.failed.lock().values().cloned());
        rows.extend(self.services.ending.lock().iter().cloned());
        let wanted = |row: &ServiceRow| {
            let fields: [(&str, &dyn std::fmt::Display); 3] = [
                ("name", &row.name),
                ("tenant", &row.tenant),
                ("node", &row.node),
            ];
            tenants.covers(&row.tenant) && passes(list, &fields)
        };
        rows.retain(wanted);
        rows
    }

    pub(super) fn service_row(&self, (tenant, name): &ServiceKey, running: &Running) -> ServiceRow {
        let stats = running.service.stats();
        let scheme = scheme(running.is_tls);
        let requests = stats.requests();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let answers = running.record.as_ref().map_or(0, |it| it.generation);
        let (state, generation, why) = match &running.outdated {
            Some((generation, why)) => ("outdated", *generation, Some(why.clone())),
            None => ("listening", answers, None),
        };
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
            state: state.to_owned(),
            why,
            generation,
            all_requests: requests,
        }
    }

    /// Listens, and has this answer.
    pub(super) fn start_service(
        &self,
        (tenant, name): &ServiceKey,
        answers: Answers,
        serve: &Serve,
        by: &str,
    ) -> Result<Running, StartServiceError> {
        let log = Arc::<Log>::default();
        let driver = DriverId::detached(random());
        let client = Client::new(self.shared.clone(), driver);
        let config = ServiceConfig {
            name: name.clone(),
            address: self.listen_address(serve),
            tls: serve.tls.clone().map(|(cert, key)| (cert.0, key.0)),
            hosts: serve.hosts.clone(),
            most_running: serve.most_running as usize,
            most_waiting: serve.most_waiting as usize,
            patience: Duration::from_millis(serve.patience_ms),
            listener: Some(Listener::with_log(log.clone(), None)),
            log: Some(access_log(name.clone())),
        };
        let service = Service::start(client, answers, config)?;
        let about = About {
            name: name.clone(),
            tenant: tenant.clone(),
            by: by.to_owned(),
            expected: 0,
        };
        self.open_job(driver, about);
        Ok(Running {
            service,
            module: serve.module,
            is_tls: serve.tls.is_some(),
            session: None,
            began: Instant::now(),
            log,
            record: None,
            outdated: None,
        })
    }

    /// Where a service listens at this node.
    pub(super) fn listen_address(&self, serve: &Serve) -> SocketAddr {
        let advertised = self.cluster().and_then(|it| it.advertised());
        serve.address.address(advertised)
    }
}

/// What its URL begins with.
pub(super) fn scheme(is_tls: bool) -> &'static str {
    match is_tls {
        true => "https",
        false => "http",
    }
}

/// What a service has connections find.
pub(super) fn tls_of(serve: &Serve) -> Result<Option<TlsAcceptor>, PemError> {
    let tls = serve.tls.as_ref();
    tls.map(|(cert, key)| acceptor(&cert.0, &key.0)).transpose()
}

/// Why only one node of a cluster serves this.
fn why_alone(serve: &Serve) -> Option<&'static str> {
    if !serve.grants.dirs.is_empty() {
        Some("it has a folder of this machine")
    } else if serve.address.port() == 0 {
        Some("its port is one that this node chooses")
    } else {
        None
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
            took_us = us(served.took),
            cut_off = served.is_cut_off,
            task = served.task.map(|it| it.to_string()),
            "request"
        );
    })
}
