//! What is answered to which request.
//!
//! Owns who is let in, and the headers of all answers. Must not: have a way around [`guard`].

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use maud::{Markup, html};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::api;
use crate::data::{AskError, Source};
use crate::doors::{Doors, SESSION};
use crate::listen::Stay;
use crate::live::{Lives, Shown};
use crate::site::Site;
use crate::views::{self, View};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// What every answer has: no page of ours loads anything from elsewhere, is framed, or says elsewhere where it was. (With
/// `no-referrer` browsers would not say in `Origin` which page has sent a form, and that is checked.)
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; \
             form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        ),
    ),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// How often a line is sent to those who follow a view that does not change: so that it is seen who is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long somebody follows a view before the browser has to ask again, and is let in again.
const FOLLOWED: Duration = Duration::from_secs(3600);

/// What requests are answered with.
#[derive(Debug)]
pub struct Desk {
    /// Where the page is.
    pub site: Site,
    /// Who may come in.
    pub doors: Mutex<Doors>,
    /// The node.
    pub source: Arc<Source>,
    /// The views that somebody follows.
    pub lives: Lives,
}

/// All that there is.
pub fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/style.css", get(style))
        .route("/script.js", get(script))
        .route("/enter", get(enter))
        .route("/events", get(events))
        .route("/api/v1/{list}", get(api::list))
        .route("/tasks/{id}/cancel", post(cancel_task))
        .route("/jobs/{id}/cancel", post(cancel_job))
        .route("/actors/{id}/kill", post(kill_actor))
        .fallback(page)
        .layer(middleware::from_fn_with_state(desk.clone(), guard))
        .with_state(desk)
}

/// Lets in who may come, and gives every answer its headers.
async fn guard(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response {
    let mut response = match refused(&desk, &request) {
        Some(refused) => refused,
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}

/// Why a request is not answered, if it is not.
fn refused(desk: &Desk, request: &Request) -> Option<Response> {
    let (headers, path) = (request.headers(), request.uri().path());
    if !desk.site.is_addressed(headers) {
        let why = format!(
            "This page is at {}, and was asked for by another name.",
            desk.site.url()
        );
        return Some(forbidden(path, &why, html! { p { (why) } }));
    }
    let is_open = matches!(path, "/style.css" | "/script.js" | "/enter");
    let session = desk.site.session(headers);
    let is_known = session.is_some_and(|it| desk.doors.lock().knows(it, Instant::now()));
    if !is_open && !is_known {
        let body = html! {
            p { "You need a link, which lets one browser in, once. On the machine of this node, its user gets one with" }
            pre { "wasmrun dashboard" }
            p { "If you have just opened such a link from another page, reload this one." }
        };
        let why = "send the cookie of a browser that has opened a link of `wasmrun dashboard`";
        return Some(forbidden(path, why, body));
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read && !desk.site.is_from_own_page(headers) {
        let why = "What changes something must come from a page of this site: send its Origin.";
        return Some(forbidden(path, why, html! { p { (why) } }));
    }
    None
}

fn forbidden(path: &str, why: &str, body: Markup) -> Response {
    match path.starts_with("/api/") {
        true => api::failed(StatusCode::FORBIDDEN, why),
        false => plain(StatusCode::FORBIDDEN, "You are not let in", body),
    }
}

fn plain(status: StatusCode, title: &str, body: Markup) -> Response {
    (status, Html(views::plain(title, body).into_string())).into_response()
}

fn sent_to(place: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    // What is no header is no path of ours, either.
    let place = HeaderValue::from_str(place).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, place);
    response
}

async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], STYLE)
}

async fn script() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT)
}

/// The value of a parameter of a query.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let query = uri.query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let found = pairs.find(|(it, _)| it == name);
    found.map(|(_, value)| value.into_owned())
}

/// `GET /enter?key=KEY&to=PATH`: a link was opened.
async fn enter(State(desk): State<Arc<Desk>>, method: Method, uri: Uri) -> Response {
    let key = parameter(&uri, "key").unwrap_or_default();
    // Who only looks what is there does not use it up.
    let session = match method == Method::GET {
        true => desk.doors.lock().enter(&key, Instant::now()),
        false => None,
    };
    let Some(session) = session else {
        let body = html! {
            p { "A link is of use once, and for ten minutes. This makes another one:" }
            pre { "wasmrun dashboard" }
            p { "If this browser is let in already: " a href="/" { "to the cluster at a glance" } }
        };
        return plain(StatusCode::FORBIDDEN, "This link is used up", body);
    };
    let to = parameter(&uri, "to").and_then(|it| View::at(&it));
    let page = views::way_in(&to.unwrap_or(View::Overview).path());
    let mut response = Html(page.into_string()).into_response();
    let cookie = format!(
        "{}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{}",
        desk.site.cookie(),
        SESSION.as_secs(),
        if desk.site.is_tls() { "; Secure" } else { "" },
    );
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// A view.
async fn page(State(desk): State<Arc<Desk>>, method: Method, uri: Uri) -> Response {
    if !matches!(method, Method::GET | Method::HEAD) {
        let allowed = [(ALLOW, "GET, HEAD")];
        return (
            StatusCode::METHOD_NOT_ALLOWED,
            allowed,
            "only GET and HEAD\n",
        )
            .into_response();
    }
    let Some(view) = View::parse(uri.path(), uri.query()) else {
        let body = html! { p { a href="/" { "To the cluster at a glance" } } };
        return plain(StatusCode::NOT_FOUND, "There is no such page", body);
    };
    let (status, fragment) = match views::render(&view, &desk.source).await {
        Ok(fragment) => (StatusCode::OK, fragment),
        Err(error) => (status_of(&error), views::failed(&error)),
    };
    (status, Html(views::whole(&view, &fragment).into_string())).into_response()
}

fn status_of(error: &AskError) -> StatusCode {
    match error.is_missing() {
        true => StatusCode::NOT_FOUND,
        false => StatusCode::BAD_GATEWAY,
    }
}

/// `GET /events?view=PATH`: what is in the view's `<main>`, whenever that changes.
async fn events(State(desk): State<Arc<Desk>>, uri: Uri, request: Request) -> Response {
    let view = parameter(&uri, "view").and_then(|it| View::at(&it));
    let Some(view) = view else {
        return (StatusCode::NOT_FOUND, "there is no such view\n").into_response();
    };
    if let Some(stay) = request.extensions().get::<Stay>() {
        stay.allow();
    }
    let shown = desk.lives.follow(view, &desk.source);
    let end = tokio::time::Instant::now() + FOLLOWED;
    let events = stream::unfold(shown, move |mut shown| async move {
        let html = tokio::time::timeout_at(end, next(&mut shown))
            .await
            .ok()??;
        // A carriage return would end a line of the event.
        let html = html.replace('\r', "&#13;");
        let event = Event::default().event("main").data(html);
        Some((Ok::<_, Infallible>(event), shown))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(events).keep_alive(keep_alive).into_response()
}

/// What a view shows next. `None` when it is not made any more.
async fn next(shown: &mut watch::Receiver<Shown>) -> Option<Shown> {
    loop {
        shown.changed().await.ok()?;
        let html = shown.borrow_and_update().clone();
        if !html.is_empty() {
            return Some(html);
        }
    }
}

async fn cancel_task(State(desk): State<Arc<Desk>>, Path(id): Path<String>) -> Response {
    let tenant = views::tenant_of_task(&id, &desk.source).await;
    cancelled(&desk, View::Task, &id, tenant).await
}

async fn cancel_job(State(desk): State<Arc<Desk>>, Path(id): Path<String>) -> Response {
    let tenant = views::tenant_of_job(&id, &desk.source).await;
    cancelled(&desk, View::Job, &id, tenant).await
}

async fn kill_actor(State(desk): State<Arc<Desk>>, Path(id): Path<String>) -> Response {
    let tenant = views::tenant_of_actor(&id, &desk.source).await;
    cancelled(&desk, View::Actor, &id, tenant).await
}

/// Cancels something, and leads back to its page.
async fn cancelled(
    desk: &Desk,
    view: fn(String) -> View,
    id: &str,
    tenant: Result<wasmrun_model::fairness::TenantName, AskError>,
) -> Response {
    let path = view(id.to_owned()).path();
    let done = match tenant {
        Ok(tenant) if View::at(&path).is_some() => desk.source.cancel(&tenant, id).await,
        Ok(_) => Err(AskError::Missing("id")),
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => sent_to(&path),
        Err(error) => {
            let body = html! {
                p.notice.bad { (error.to_string()) }
                p { a href=(path) { "Back" } }
            };
            plain(status_of(&error), "It was not cancelled", body)
        }
    }
}
