//! What becomes of one request.
//!
//! Owns the admission of requests, and what a client is told where no handler answers. A client learns which task its
//! request was, and nothing of why it failed: that is for those who run the service.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{COOKIE, HOST, HeaderMap, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::RwLock;
use tokio::sync::oneshot;
use wasmrun_engine::{HttpBody, HttpExchange, Input};
use wasmrun_model::task::Rule;
use wasmrun_model::trace::{Span, TraceContext, TraceState};

use super::answers::{Answers, Kind};
use super::body;
use super::listen::MOST_HEADERS;
use super::passing::Passing;
use super::places::{Place, Places};
use super::problem::Problem;
use super::stats::{OneOf, ServiceStats, Stats};
use super::{Served, ServiceConfig};
use crate::client::Client;
use crate::records::job::{Call, Job};
use crate::records::task::TaskHandle;

/// What nginx and others say of a request whose client was gone first.
const CLIENT_GONE: u16 = 499;

/// What answers the requests of a service.
pub(super) struct Front {
    client: Client,
    answers: RwLock<Answers>,
    places: Arc<Places>,
    config: ServiceConfig,
    pub(super) stats: Stats,
    /// The way to other nodes, if every node of a cluster serves this.
    pub(super) passing: OnceLock<Passing>,
}

/// Who asks, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) client: SocketAddr,
    pub(super) is_tls: bool,
    /// Whether another node has passed it on. Then it is answered here.
    pub(super) is_passed: bool,
}

impl Front {
    pub(super) fn new(client: Client, answers: Answers, config: ServiceConfig) -> Self {
        Self {
            client,
            stats: Stats::new(answers.routes()),
            answers: RwLock::new(answers),
            places: Places::new(config.most_running, config.most_waiting),
            config,
            passing: OnceLock::new(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn replace(&self, answers: Answers) {
        self.stats.set_routes(answers.routes());
        *self.answers.write() = answers;
    }

    pub(super) fn stats(&self) -> ServiceStats {
        let (running, waiting) = self.places.counts();
        ServiceStats {
            running,
            waiting,
            ..self.stats.read()
        }
    }

    /// What a request needs to have free at the node that takes it. The tasks of functions find a node by themselves.
    pub(super) fn rule(&self) -> Option<Arc<Rule>> {
        match &self.answers.read().0 {
            Kind::Handler(job) => Some(job.terms.rule.clone()),
            Kind::Functions(_) => None,
        }
    }

    /// Whether a request could begin here now.
    pub(super) fn has_room(&self) -> bool {
        let ask = |rule: Arc<Rule>| {
            let shared = self.client.shared();
            shared.ask(|ledger| ledger.has_room(rule.preferred()))
        };
        self.places.has_free() && self.rule().is_none_or(ask)
    }

    /// The response to a request.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        caller: Caller,
        one: OneOf,
    ) -> Response<HttpBody> {
        let mut under_way = InProgress::new(self.clone(), &request, caller.client, one);
        let method = request.method().clone();
        match self.answered(request, caller, &mut under_way).await {
            Ok(response) => {
                under_way.status = response.status().as_u16();
                let (head, body) = response.into_parts();
                let length = body::length(&method, head.status, &head.headers);
                let is_discarded = method == Method::HEAD && !body.is_end_stream();
                let body = body::Response::new(body, length, under_way);
                if is_discarded {
                    tokio::spawn(body.discard());
                    return Response::from_parts(head, body::nothing());
                }
                Response::from_parts(head, body.boxed_unsync())
            }
            Err(problem) => {
                under_way.status = problem.status.as_u16();
                under_way.is_whole();
                if problem.status == StatusCode::SERVICE_UNAVAILABLE {
                    self.stats.refused();
                }
                let mut response = problem.response(under_way.task.as_ref().map(TaskHandle::id));
                if method == Method::HEAD {
                    // Over HTTP/2 it would be sent.
                    *response.body_mut() = body::nothing();
                }
                under_way.bytes = response.body().size_hint().exact().unwrap_or(0);
                response
            }
        }
    }

    async fn answered(
        &self,
        request: Request<Incoming>,
        caller: Caller,
        under_way: &mut InProgress,
    ) -> Result<Response<HttpBody>, Problem> {
        // The node that has passed it on has checked the name that it was asked by.
        let names = self.config.own_names().filter(|_| !caller.is_passed);
        check(&request, names)?;
        if let Some(uri) = self.goes_on(&request, caller)
            && let Some(way) = self.way(uri, caller.client).await
        {
            let response = way.pass(request).await?;
            under_way.is_elsewhere = true;
            return Ok(response);
        }
        let place = self
            .places
            .take(under_way.client.ip(), self.config.patience);
        let Some(place) = place.await else {
            return Err(Problem::busy("too many requests wait for their turn"));
        };
        under_way.place = Some(place);
        let answers = self.answers.read().clone();
        match &answers.0 {
            Kind::Handler(job) => {
                self.call_handler(job, request, caller.is_tls, under_way)
                    .await
            }
            Kind::Functions(functions) => self.call_function(functions, request, under_way).await,
        }
    }

    /// The answer of a module's own handler.
    async fn call_handler(
        &self,
        job: &Arc<Job>,
        request: Request<Incoming>,
        is_tls: bool,
        under_way: &mut InProgress,
    ) -> Result<Response<HttpBody>, Problem> {
        let call = self.call_of(request.headers());
        let (answer, answered) = oneshot::channel();
        let mut request = request.map(body::upload);
        join_cookies(request.headers_mut());
        let exchange = HttpExchange {
            request,
            is_tls,
            answer,
        };
        let call = Call {
            input: Input::Http(Box::new(exchange)),
            ..call
        };
        let task = self.submit(job, call, under_way)?;
        match answered.await {
            Ok(Ok(response)) if !response.status().is_informational() => Ok(response),
            // An interim status is no answer.
            Ok(_) => Err(Problem::new(
                StatusCode::BAD_GATEWAY,
                "the handler answered with an error",
            )),
            // It has ended without one.
            Err(_) => Err(match &task.await.result {
                Ok(_) => Problem::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the handler ended without an answer",
                ),
                Err(error) => Problem::failed(error),
            }),
        }
    }

    /// What all calls of requests have.
    pub(super) fn call_of(&self, headers: &HeaderMap) -> Call {
        Call {
            listener: self.config.listener.clone(),
            trace: trace_of(headers),
            ..Call::default()
        }
    }

    /// Submits the task of a request.
    pub(super) fn submit<'a>(
        &self,
        job: &Arc<Job>,
        call: Call,
        under_way: &'a mut InProgress,
    ) -> Result<&'a mut TaskHandle, Problem> {
        let task = self.client.submit(job, call);
        let task = task.map_err(|error| {
            let service = &self.config.name;
            tracing::warn!(service, %error, "a request of a service cannot run");
            Problem::busy("no node can take the request now")
        })?;
        Ok(under_way.runs(task))
    }
}

/// A request, from its head to the end of its response. However that comes, what it holds is given back, and it is
/// counted and logged; a handler that nobody waits for any more is cancelled.
pub(super) struct InProgress {
    front: Arc<Front>,
    began: Instant,
    client: SocketAddr,
    method: String,
    target: String,
    route: Option<Arc<str>>,
    status: u16,
    bytes: u64,
    is_whole: bool,
    /// Another node answers it, and counts and logs it.
    is_elsewhere: bool,
    task: Option<TaskHandle>,
    place: Option<Place>,
    of_connection: OneOf,
}

impl InProgress {
    fn new(front: Arc<Front>, request: &Request<Incoming>, client: SocketAddr, one: OneOf) -> Self {
        let uri = request.uri();
        let target = uri.path_and_query().map_or("/", |it| it.as_str());
        Self {
            began: Instant::now(),
            client,
            method: request.method().to_string(),
            target: target.to_owned(),
            route: None,
            status: CLIENT_GONE,
            bytes: 0,
            is_whole: false,
            is_elsewhere: false,
            task: None,
            place: None,
            of_connection: one,
            front,
        }
    }

    /// It is this task, which is cancelled with it.
    pub(super) fn runs(&mut self, task: TaskHandle) -> &mut TaskHandle {
        self.task.insert(task)
    }

    /// It takes this route.
    pub(super) fn takes(&mut self, route: &Arc<str>) {
        self.route = Some(route.clone());
    }

    /// So many bytes of the body more are on their way.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.of_connection.is_unread();
    }

    /// There is room for more of the body.
    pub(super) fn wants_more(&self) {
        self.of_connection.is_read();
    }

    /// The response is on its way as a whole.
    pub(super) fn is_whole(&mut self) {
        self.is_whole = true;
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let front = &self.front;
        if let (false, Some(task)) = (self.is_whole, &self.task) {
            front.client.cancel(task);
        }
        drop(self.place.take());
        if self.is_elsewhere {
            return front.stats.passed_on.add(1);
        }
        let took = self.began.elapsed();
        let route = self.route.as_deref();
        front.stats.served(route, self.status, self.bytes, took);
        if let Some(log) = &front.config.log {
            log(&Served {
                client: self.client,
                method: std::mem::take(&mut self.method),
                target: std::mem::take(&mut self.target),
                status: self.status,
                bytes: self.bytes,
                took,
                is_cut_off: !self.is_whole,
                task: self.task.as_ref().map(TaskHandle::id),
            });
        }
    }
}

/// Refuses what no handler is given: a request that does not say for whom it is, says several, or is for somebody else than
/// `own`.
fn check<B>(request: &Request<B>, own: Option<&[String]>) -> Result<(), Problem> {
    let (uri, headers) = (request.uri(), request.headers());
    if headers.len() > MOST_HEADERS {
        let too_many = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Problem::new(too_many, "the request has too many headers"));
    }
    if uri.authority().is_some() && uri.scheme().is_none() && *request.method() != Method::CONNECT {
        return Err(Problem::bad("the request's target is no path"));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() {
        return Err(Problem::bad("the request has several Host headers"));
    }
    let is_of_user = |authority: &Authority| authority.as_str().contains('@');
    // What stands behind an address in brackets is a port, or it is no host.
    let is_whole = |authority: &Authority| {
        let rest = authority.as_str().strip_prefix(authority.host());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    let host = match (uri.authority(), host) {
        (None, None) => return Err(Problem::bad("the request has no Host header")),
        (None, Some(host)) => match Authority::try_from(host.as_bytes()) {
            Ok(host) if !is_of_user(&host) && is_whole(&host) => host,
            _ => return Err(Problem::bad("the request's Host header names no host")),
        },
        (Some(authority), _) if is_of_user(authority) => {
            return Err(Problem::bad("the request names a user before its host"));
        }
        (Some(authority), _) => authority.clone(),
    };
    match own {
        Some(names) if !is_own(host.host(), names) => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "at its address of loopback the service answers to localhost, to addresses, and to the names that it was \
             started with: `wasmrun serve --host NAME`",
        )),
        _ => Ok(()),
    }
}

/// Whether a service that only this machine reaches answers to this host. The owner of a name may point it at this machine,
/// and has the browser of who opens a page of that name send requests here; but the names below stand for nothing else.
fn is_own(host: &str, names: &[String]) -> bool {
    let literal = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let host = host.to_ascii_lowercase();
    literal.unwrap_or(&host).parse::<IpAddr>().is_ok()
        || host == "localhost"
        || host.ends_with(".localhost")
        || names
            .iter()
            .any(|own| own == "*" || own.eq_ignore_ascii_case(&host))
}

/// Clients of HTTP/2 may send each cookie by itself, and nobody else expects that (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let all = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let all: Vec<&[u8]> = all.collect();
    if all.len() < 2 {
        return;
    }
    if let Ok(one) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(COOKIE, one);
    }
}

/// The trace that a client is in, if it says so.
fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let parent: Span = text("traceparent")?.parse().ok()?;
    let state = text("tracestate").and_then(|it| it.parse::<TraceState>().ok());
    Some(TraceContext::new(parent, state.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_for_whom_they_are() {
        let checked = |method: Method, target: &str, host: Option<&str>| {
            let mut request = Request::builder().method(method).uri(target);
            if let Some(host) = host {
                request = request.header(HOST, host);
            }
            check(&request.body(()).unwrap(), None).is_ok()
        };
        for host in ["a", "a.org:80", "[::1]:80", "a_b", "127.0.0.1"] {
            assert!(checked(Method::GET, "/", Some(host)), "{host}");
        }
        for host in ["", "a b", "a/b", "a?b", "a#b", "u@a", "a\tb", "http://a"] {
            assert!(!checked(Method::GET, "/", Some(host)), "{host}");
        }
        assert!(!checked(Method::GET, "/", None));
        assert!(checked(Method::GET, "http://a/b", Some("c")));
        assert!(!checked(Method::GET, "http://u:p@a/b", Some("a")));
        // What is meant as a path, and is an authority.
        assert!(!checked(Method::GET, "hello", Some("a")));
        assert!(checked(Method::CONNECT, "a:80", Some("a:80")));
        let mut request = Request::get("/").header(HOST, "a");
        for _ in 0..MOST_HEADERS {
            request = request.header("x", "y");
        }
        assert!(check(&request.body(()).unwrap(), None).is_err());
    }

    #[test]
    fn a_service_on_loopback_answers_to_its_names_alone() {
        let checked = |target: &str, host: &str| {
            let request = Request::get(target).header(HOST, host).body(()).unwrap();
            check(&request, Some(&["shop.test".to_owned()])).is_ok()
        };
        for host in [
            "127.0.0.1:80",
            "[::1]:80",
            "10.0.0.1",
            "LocalHost",
            "a.localhost:80",
            "Shop.test:80",
        ] {
            assert!(checked("/", host), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "[::1].evil",
            "a.shop.test",
        ] {
            assert!(!checked("/", host), "{host}");
        }
        assert!(!checked("http://evil.example/", "localhost"));
        let any = Request::get("/")
            .header(HOST, "a.example")
            .body(())
            .unwrap();
        assert!(check(&any, Some(&["*".to_owned()])).is_ok());
    }

    #[test]
    fn cookies_come_as_one() {
        let mut headers = HeaderMap::new();
        join_cookies(&mut headers);
        assert!(headers.is_empty());
        for cookie in ["a=1", "b=2; c=3"] {
            headers.append(COOKIE, HeaderValue::from_static(cookie));
        }
        join_cookies(&mut headers);
        let all: Vec<_> = headers.get_all(COOKIE).iter().collect();
        assert_eq!(all, ["a=1; b=2; c=3"]);
    }
}
