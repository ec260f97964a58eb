//! Routes and their handlers.
//!
//! Owns which requests are answered, and the headers of all answers. Must not: have a way around [`guard`].

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use futures_util::stream;
use maud::{Markup, html};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use wasmrun_client::wire::What;

use crate::api;
use crate::data::{AskError, Source};
use crate::listen::Stay;
use crate::live::{LiveViews, Shown};
use crate::sessions::{SESSION, Sessions};
use crate::site::Site;
use crate::views::{self, View};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The headers of every answer: a page loads nothing from other sites, is in no frame, and is named to no other site. (With
/// `no-referrer` browsers would leave the page that sent a form out of `Origin`, which is checked.)
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

/// How often a line is sent to a browser that follows a view that does not change: a lost connection is noticed by it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What handlers share.
#[derive(Debug)]
pub struct App {
    /// Where the page is.
    pub site: Site,
    /// The links and sessions of browsers.
    pub sessions: Mutex<Sessions>,
    /// The node.
    pub source: Arc<Source>,
    /// The views that browsers follow.
    pub live: LiveViews,
    /// A permit for each browser that may follow one.
    pub followers: Arc<Semaphore>,
}

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/style.css", get(style))
        .route("/script.js", get(script))
        .route("/enter", get(enter))
        .route("/events", get(events))
        .route("/api/v1/{list}", get(api::list))
        .route("/tasks/{id}/cancel", post(cancel))
        .route("/jobs/{id}/cancel", post(cancel))
        .route("/actors/{id}/kill", post(cancel))
        .fallback(page)
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

/// Refuses requests that are not let in, and gives every answer its headers.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match refused(&app, &request) {
        Some(refused) => refused,
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}

/// Why a request is not answered, if it is not.
fn refused(app: &App, request: &Request) -> Option<Response> {
    let (headers, path) = (request.headers(), request.uri().path());
    if !app.site.is_addressed(headers) {
        let (url, port) = (app.site.url(), app.site.address().port());
        let why = format!(
            "This page answers at {url} and localhost:{port} alone, and was asked for by another name. From another machine, \
             forward the same port: ssh -L {port}:{} HOST",
            app.site.address()
        );
        return Some(forbidden(path, &why, html! { p { (why) } }));
    }
    let is_open = matches!(path, "/style.css" | "/script.js" | "/enter");
    let session = app.site.session(headers);
    let is_known = session.is_some_and(|it| app.sessions.lock().knows(it, Instant::now()));
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
    if !is_read && !app.site.is_from_own_page(headers) {
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

fn no_view(path: &str) -> Response {
    if path.starts_with("/api/") {
        return api::failed(StatusCode::NOT_FOUND, "there is only /api/v1/LIST");
    }
    let body = html! { p { a href="/" { "To the cluster at a glance" } } };
    plain(StatusCode::NOT_FOUND, "There is no such page", body)
}

fn plain(status: StatusCode, title: &str, body: Markup) -> Response {
    (status, Html(views::plain(title, body).into_string())).into_response()
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
async fn enter(State(app): State<Arc<App>>, method: Method, uri: Uri) -> Response {
    let key = parameter(&uri, "key").unwrap_or_default();
    // HEAD does not use it up.
    let session = match method == Method::GET {
        true => app.sessions.lock().enter(&key, Instant::now()),
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
        app.site.cookie(),
        SESSION.as_secs(),
        if app.site.is_tls() { "; Secure" } else { "" },
    );
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// A view.
async fn page(State(app): State<Arc<App>>, method: Method, uri: Uri) -> Response {
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
        return no_view(uri.path());
    };
    let (status, fragment) = match views::render(&view, &app.source).await {
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
async fn events(State(app): State<Arc<App>>, uri: Uri, request: Request) -> Response {
    let view = parameter(&uri, "view").and_then(|it| View::at(&it));
    let Some(view) = view else {
        return (StatusCode::NOT_FOUND, "there is no such view\n").into_response();
    };
    let Ok(permit) = app.followers.clone().try_acquire_owned() else {
        let why = "too many pages are open, and kept up to date: close some\n";
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    if let Some(stay) = request.extensions().get::<Stay>() {
        stay.allow();
    }
    let followed = (app.live.follow(view, &app.source), permit);
    let events = stream::unfold(followed, |(mut shown, permit)| async move {
        // A carriage return would end a line of the event.
        let html = next(&mut shown).await?.replace('\r', "&#13;");
        let event = Event::default().event("main").data(html);
        Some((Ok::<_, Infallible>(event), (shown, permit)))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(events).keep_alive(keep_alive).into_response()
}

/// What a view shows next. `None` when it is not rendered any more.
async fn next(shown: &mut watch::Receiver<Shown>) -> Option<Shown> {
    loop {
        shown.changed().await.ok()?;
        let html = shown.borrow_and_update().clone();
        if !html.is_empty() {
            return Some(html);
        }
    }
}

/// `POST /tasks/ID/cancel`, and the same of a job and an actor: ends it, and leads back to its page.
async fn cancel(State(app): State<Arc<App>>, uri: Uri) -> Response {
    let (place, _) = uri.path().rsplit_once('/').unwrap_or_default();
    let (what, id) = match View::at(place) {
        Some(View::Task(id)) => (What::Tasks, id),
        Some(View::Job(id)) => (What::Jobs, id),
        Some(View::Actor(id)) => (What::Actors, id),
        _ => return no_view(uri.path()),
    };
    match app.source.cancel(what, &id).await {
        Ok(()) => Redirect::to(place).into_response(),
        Err(error) => {
            let body = html! {
                p.notice.bad { (error.to_string()) }
                p { a href=(place) { "Back" } }
            };
            plain(status_of(&error), "It was not cancelled", body)
        }
    }
}
