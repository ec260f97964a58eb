//! Services of the cluster: every node serves what has a record in the control store.
//!
//! Owns serving a record at this node, and waiting for all nodes where somebody changes one. Must not: know what is in the
//! store, which is `cluster/services`, or when something is tried, which is [`super::wanted`].
//!
//! Invariant: what answers here is what the record says, or a list says why not, and it is tried again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout};
use wasmrun_engine::Module;
use wasmrun_model::access::Tenants;
use wasmrun_model::id::DriverId;
use wasmrun_model::units::ms;
use wasmrun_model::wire::{
    List, Listen, Refusal, RefusalKind, Response, Rows, Serve, ServiceRow, Silent, What,
};
use wasmrun_net::{ByteStream, certificates};

use super::services::{MOST_SERVICES, Running, scheme, tls_of};
use super::wanted::{self, ServiceHost};
use crate::cluster::{ServiceKey, ServiceRecord, ServicesError, Wanted};
use crate::peers::ask::{Answer, Asked, Question};
use crate::records::ids::random;
use crate::serve::{Answers, Passed, Passing, Taken};
use crate::server::Inner;
use crate::server::operands::grants;
use crate::server::session::{Session, refusal};
use crate::server::tasks::overrides;

/// How long the publisher of a service waits for all nodes. They may have to compile it.
const PUBLISHING: Duration = Duration::from_secs(60);
/// How much longer than its requests a stop waits for other nodes.
const STOPPING: Duration = Duration::from_secs(5);
/// The same in any case.
const LONGEST: Duration = Duration::from_secs(3600);
/// How often other nodes are asked meanwhile.
const LOOK: Duration = Duration::from_millis(50);
/// How long another node may take to say what it passes on.
const HEAD: Duration = Duration::from_secs(5);
/// How long requests under way may take where nobody has said so.
const DRAIN: Duration = Duration::from_secs(30);

impl Inner {
    /// Begins to serve what the cluster is to serve, if the node is in one.
    pub(in crate::server) fn serve_what_is_published(self: &Arc<Self>) {
        if let Some(cluster) = self.cluster() {
            let wanted = cluster.services().wanted();
            // It ends with the server.
            let closed = self.closed.subscribe();
            let following = wanted::follow(Arc::downgrade(self), wanted, closed);
            self.shared.control.spawn(following);
        }
    }
}

impl ServiceHost for Inner {
    fn is_stopping(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    fn end_others(self: &Arc<Self>, wanted: &Wanted) {
        let next = |key: &ServiceKey| wanted.get(key).filter(|it| it.ending_ms.is_none());
        let mut failed = self.services.failed.lock();
        failed.retain(|key, _| next(key).is_some());
        drop(failed);
        let is_over = |key: &ServiceKey, running: &mut Running| match (&running.record, next(key)) {
            (Some(record), Some(next)) => place(record) != place(next),
            (Some(_), None) => true,
            (None, _) => false,
        };
        let mut services = self.services.running.lock();
        let ended: Vec<_> = services.extract_if(.., is_over).collect();
        // A list has it in one of both.
        let mut ending = self.services.ending.lock();
        ending.extend(ended.iter().map(|(key, running)| ServiceRow {
            state: "ending".to_owned(),
            ..self.service_row(key, running)
        }));
        drop(ending);
        drop(services);
        for (key, running) in ended {
            let patience = wanted.get(&key).and_then(|it| it.ending_ms);
            let patience = patience.map_or(DRAIN, Duration::from_millis);
            let (inner, job) = (self.clone(), running.service.driver());
            self.shared.control.spawn(async move {
                inner.clone().end_service(running, patience).await;
                inner.services.ending.lock().retain(|row| row.job != job);
            });
        }
    }

    fn serve_one(
        self: Arc<Self>,
        key: ServiceKey,
        record: Arc<ServiceRecord>,
    ) -> BoxFuture<'static, bool> {
        Box::pin(async move { self.serve_as(&key, &record).await })
    }
}

impl Inner {
    /// Has a service answer here as its record says. False if it cannot yet.
    async fn serve_as(&self, key: &ServiceKey, record: &Arc<ServiceRecord>) -> bool {
        let answers = {
            let services = self.services.running.lock();
            let running = services.get(key);
            running.and_then(|it| it.record.clone())
        };
        if answers.as_ref() == Some(record) {
            return true;
        }
        let answered = async {
            let answers = self.answers_of(record).await?;
            let serve = self.opened(key, record).await?;
            self.answer_with(key, record, &serve, answers)
        };
        let Err(why) = answered.await else {
            self.services.failed.lock().remove(key);
            return true;
        };
        self.note_failure(key, record, why);
        false
    }

    async fn answers_of(&self, record: &ServiceRecord) -> Result<Answers, String> {
        let serve = &record.serve;
        let module = self.module_of(record).await?;
        let asked = overrides(self, &serve.terms, &serve.limits, record.tenant.clone());
        let grants = grants(&serve.grants).map_err(|why| why.message)?;
        let answers = Answers::new(&serve.name, &module, serve.routes.clone(), &asked, &grants);
        answers.map_err(|error| error.to_string())
    }

    /// What a record has to be served, with its private key.
    async fn opened(&self, key: &ServiceKey, record: &ServiceRecord) -> Result<Serve, String> {
        let mut serve = record.serve.clone();
        if let Some((_, sealed)) = &mut serve.tls {
            let cluster = self.cluster().ok_or("the node is in no cluster")?;
            let opened = cluster.open_key(key, sealed).await;
            *sealed = opened.map_err(|error| error.to_string())?;
        }
        Ok(serve)
    }

    async fn module_of(&self, record: &ServiceRecord) -> Result<Module, String> {
        let digest = record.serve.module;
        let loaded = self.registry().modules.get(&digest);
        if let Some(module) = loaded {
            return Ok(module);
        }
        let exchange = self.exchange().ok_or("the node is in no cluster")?;
        let found = exchange.find_module(digest, record.module_bytes).await;
        let module = found.map_err(|error| error.to_string())?;
        self.registry().modules.add(module.clone());
        Ok(module)
    }

    fn answer_with(
        &self,
        key: &ServiceKey,
        record: &Arc<ServiceRecord>,
        serve: &Serve,
        answers: Answers,
    ) -> Result<(), String> {
        let mut services = self.services.running.lock();
        if let Some(running) = services.get_mut(key) {
            if running.record.is_none() {
                return Err("this node alone has a service of that name: stop that first".into());
            }
            let tls = tls_of(serve).map_err(|error| error.to_string())?;
            running.service.replace(answers, tls);
            running.module = serve.module;
            running.record = Some(record.clone());
            running.outdated = None;
            return Ok(());
        }
        // The node is marked as stopping before its services leave.
        if self.is_stopping() {
            return Err("the node is stopping".into());
        }
        // Those of this node alone have places of their own.
        let others = services.values().filter(|it| it.record.is_some());
        if others.count() >= MOST_SERVICES {
            return Err(format!(
                "a node has at most {MOST_SERVICES} services of its cluster"
            ));
        }
        let started = self.start_service(key, answers, serve, &record.by);
        let mut running = started.map_err(|error| error.to_string())?;
        running.record = Some(record.clone());
        if let Some(cluster) = self.cluster() {
            running.service.share(Passing {
                cluster: cluster.clone(),
                tenant: key.0.clone(),
                name: key.1.clone(),
            });
        }
        services.insert(key.clone(), running);
        Ok(())
    }

    /// Has a service take a request that another node passes on. That one sees at once if there is no such service here.
    pub(in crate::server) async fn take_request(&self, mut stream: ByteStream) {
        let Ok(Ok(passed)) = timeout(HEAD, Passed::read(&mut stream)).await else {
            return;
        };
        let key = (passed.tenant.clone(), passed.name.clone());
        let taker = {
            let services = self.services.running.lock();
            let running = services.get(&key).filter(|it| it.record.is_some());
            running.map(|it| it.service.taker())
        };
        if let Some(taker) = taker {
            // One that has just ended takes none.
            let _ = taker.send(Taken { stream, passed }).await;
        }
    }

    fn note_failure(&self, key: &ServiceKey, record: &ServiceRecord, why: String) {
        let mut services = self.services.running.lock();
        let running = services.get_mut(key).filter(|it| it.record.is_some());
        let is_new = match running {
            Some(running) => {
                let outdated = Some((record.generation, why.clone()));
                let before = std::mem::replace(&mut running.outdated, outdated);
                before != running.outdated
            }
            None => {
                drop(services);
                let mut failed = self.services.failed.lock();
                let before = failed.get(key);
                let is_new = before.is_none_or(|it| it.why.as_ref() != Some(&why));
                let job = before.map_or_else(|| DriverId::detached(random()), |it| it.job);
                let row = self.failed_row(record, why.clone(), job);
                failed.insert(key.clone(), row);
                is_new
            }
        };
        if is_new {
            let (tenant, service) = key;
            tracing::warn!(%tenant, service, why, "a service of the cluster is not served here, and tried again");
        }
    }

    fn failed_row(&self, record: &ServiceRecord, why: String, job: DriverId) -> ServiceRow {
        let scheme = scheme(record.serve.tls.is_some());
        ServiceRow {
            name: record.serve.name.clone(),
            tenant: record.tenant.clone(),
            url: format!("{scheme}://{}", self.listen_address(&record.serve)),
            node: self.name(),
            module: record.serve.module,
            job,
            is_detached: true,
            age_ms: 0,
            requests: 0,
            failed: 0,
            refused: 0,
            mean_us: 0,
            running: 0,
            waiting: 0,
            connections: 0,
            state: "failed".to_owned(),
            why: Some(why),
            generation: record.generation,
            all_requests: 0,
        }
    }

    /// A service at all nodes, and the nodes that do not say.
    async fn rows_everywhere(&self, (tenant, name): &ServiceKey) -> (Vec<ServiceRow>, Vec<Silent>) {
        let list = List::of(What::Services);
        let list = list.with("tenant", tenant).with("name", name);
        let all = Tenants::All;
        let mut rows = self.service_rows(&all, &list);
        let Some(cluster) = self.cluster() else {
            return (rows, Vec::new());
        };
        let asked = Asked {
            tenant: tenant.clone(),
            tenants: all,
            driver: self.detached.driver(),
            question: Question::List(list),
        };
        let all = cluster.ask_all(&asked).await;
        for (_, answer) in all.answers {
            if let Answer::Rows(Rows::Services(more)) = answer {
                rows.extend(more);
            }
        }
        (rows, all.silent)
    }

    /// Waits until all nodes that live answer with a generation of a service, or have said why not.
    async fn published(&self, key: &ServiceKey, generation: u64) -> Result<ServiceRow, Refusal> {
        let until = Instant::now() + PUBLISHING;
        let (rows, missing) = loop {
            let (rows, silent) = self.rows_everywhere(key).await;
            let (is_settled, mut missing) = missing(&self.living(), &rows, generation);
            if is_settled || Instant::now() >= until {
                missing.extend(
                    silent
                        .into_iter()
                        .map(|it| format!("{}: {}", it.node, it.why)),
                );
                break (rows, missing);
            }
            sleep(LOOK).await;
        };
        let own = self.name();
        let served = rows.into_iter().filter(|it| it.state == "listening");
        // Its address at this node is the one to say, if it has one here.
        let mut served: Vec<ServiceRow> = served.collect();
        served.sort_by_key(|row| row.node != own);
        let Some(mut row) = served.into_iter().next() else {
            let why = missing.join("; ");
            if generation == 1 {
                self.withdraw(key).await;
                return Err(refusal(RefusalKind::Usage, why));
            }
            let why = format_args!("no node serves it yet, and it is tried again: {why}");
            return Err(refusal(RefusalKind::Full, why));
        };
        row.why = (!missing.is_empty()).then(|| missing.join("; "));
        Ok(row)
    }

    /// The names of nodes that are to serve: this one, and those that live and are not about to leave.
    fn living(&self) -> Vec<String> {
        let members = self.cluster().map(|it| it.members()).unwrap_or_default();
        let living = members
            .into_iter()
            .filter(|it| it.is_own || it.state == "alive");
        living.map(|it| it.name).collect()
    }

    /// Takes back what no node can serve.
    async fn withdraw(&self, key: &ServiceKey) {
        let Some(cluster) = self.cluster() else {
            return;
        };
        let services = cluster.services();
        let removed = async {
            services.end(key, 0).await?;
            services.remove(key).await
        };
        if let Err(error) = removed.await {
            tracing::warn!(%error, "a service that cannot be served stays in the control store");
        }
    }

    /// Ends a service of the cluster at all nodes, once its requests have ended, or `patience` has.
    pub(super) async fn stop_everywhere(
        self: Arc<Self>,
        key: ServiceKey,
        patience: Duration,
    ) -> Result<(), Refusal> {
        let missing = || {
            let (tenant, name) = &key;
            let node = self.name();
            let why = format_args!(
                "tenant {tenant} has no service '{name}' at node {node}: see `wasmrun list services`"
            );
            refusal(RefusalKind::NotFound, why)
        };
        let services = self.cluster().ok_or_else(missing)?.services();
        let is_there = services.end(&key, ms(patience)).await;
        if !is_there.map_err(refused)? {
            return Err(missing());
        }
        let until = Instant::now() + patience.saturating_add(STOPPING).min(LONGEST);
        loop {
            let (rows, _) = self.rows_everywhere(&key).await;
            if rows.iter().all(|row| row.generation == 0) || Instant::now() >= until {
                break;
            }
            sleep(LOOK).await;
        }
        services.remove(&key).await.map_err(refused)
    }
}

/// Whether all of these nodes have come to a generation of a service, and of those that do not answer with it, why.
fn missing(nodes: &[String], rows: &[ServiceRow], generation: u64) -> (bool, Vec<String>) {
    let (mut is_settled, mut missing) = (true, Vec::new());
    for node in nodes {
        let mut own = rows.iter().filter(|row| row.node == *node);
        match own.find(|row| row.generation >= generation && row.state != "ending") {
            Some(row) if row.state == "listening" => {}
            Some(row) => {
                let why = row.why.as_deref().unwrap_or("it does not say why");
                missing.push(format!("{node}: {why}"));
            }
            None => {
                is_settled = false;
                missing.push(format!("{node}: it has not come to it yet"));
            }
        }
    }
    (is_settled, missing)
}

impl Session {
    /// Has every node of the cluster serve this, and waits until they do.
    pub(super) async fn serve_everywhere(
        &self,
        key: ServiceKey,
        mut serve: Serve,
    ) -> Result<Response, Refusal> {
        let usage = |why: &str| refusal(RefusalKind::Usage, why);
        let inner = &self.inner;
        let cluster = inner
            .cluster()
            .ok_or_else(|| usage("the node is in no cluster"))?;
        let is_own = {
            let services = inner.services.running.lock();
            services.get(&key).is_some_and(|it| it.record.is_none())
        };
        if is_own {
            return Err(usage(
                "this node alone has a service of that name: stop that first, or use another name",
            ));
        }
        let module_bytes = inner
            .exchange()
            .and_then(|it| it.modules().len(&serve.module));
        let module_bytes = module_bytes
            .ok_or_else(|| usage("the module is not in the node's state folder: see its log"))?;
        // What no node could use is refused before any tries.
        tls_of(&serve).map_err(|why| refusal(RefusalKind::Usage, why))?;
        if let Some((certs, private)) = &mut serve.tls {
            // Many files have the key, too.
            certs.0 = certificates(&certs.0);
            *private = cluster.seal_key(&key, private).await.map_err(refused)?;
        }
        let record = ServiceRecord {
            tenant: key.0.clone(),
            serve,
            module_bytes,
            generation: 0,
            by: self.by.clone(),
            ending_ms: None,
        };
        let listens = place(&record);
        let published = cluster.services().publish(record, |before| {
            let (known, is_tls) = place(before);
            match (known, is_tls) == listens {
                true => Ok(()),
                false => Err(format!(
                    "the service listens at {known}, {} TLS, which stays as it is when its module is replaced: name the same, \
                     stop it first, or use another name",
                    if is_tls { "with" } else { "without" }
                )),
            }
        });
        let generation = published.await.map_err(refused)?;
        let row = inner.published(&key, generation).await?;
        Ok(Response::Service(Box::new(row)))
    }
}

/// Where a service listens, and whether by TLS: what no update changes.
fn place(record: &ServiceRecord) -> (Listen, bool) {
    (record.serve.address, record.serve.tls.is_some())
}

fn refused(error: ServicesError) -> Refusal {
    let kind = match error {
        ServicesError::Store(_) | ServicesError::Key(_) => RefusalKind::Full,
        _ => RefusalKind::Usage,
    };
    refusal(kind, error)
}

#[cfg(test)]
pub(super) mod tests {
    use wasmrun_model::id::Digest;

    use super::*;

    pub(in crate::server) fn row(node: &str, generation: u64, state: &str) -> ServiceRow {
        ServiceRow {
            name: "s".into(),
            tenant: Default::default(),
            url: String::new(),
            node: node.into(),
            module: Digest::from_bytes([9; 32]),
            job: DriverId::from_bytes([8; 16]),
            is_detached: true,
            age_ms: 0,
            requests: 0,
            failed: 0,
            refused: 0,
            mean_us: 0,
            running: 0,
            waiting: 0,
            connections: 0,
            state: state.into(),
            why: Some("taken".into()),
            generation,
            all_requests: 0,
        }
    }

    #[test]
    fn a_service_is_waited_for_until_all_nodes_have_it_or_say_why_not() {
        let nodes = ["a".to_owned(), "b".to_owned()];
        let (is_settled, why) = missing(&nodes, &[row("a", 2, "listening")], 2);
        assert_eq!((is_settled, why.len()), (false, 1));
        let old = [row("a", 2, "listening"), row("b", 1, "listening")];
        assert!(!missing(&nodes, &old, 2).0);
        let all = [row("a", 2, "listening"), row("b", 3, "listening")];
        assert_eq!(missing(&nodes, &all, 2), (true, Vec::new()));
        for state in ["failed", "outdated"] {
            let some = [row("a", 2, "listening"), row("b", 2, state)];
            let why = vec!["b: taken".to_owned()];
            assert_eq!(missing(&nodes, &some, 2), (true, why), "{state}");
        }
    }
}
