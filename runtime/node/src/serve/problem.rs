//! What a client is told where no handler answers (RFC 9457).

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::Value as Json;
use wasmrun_engine::HttpBody;
use wasmrun_model::failure::{LimitKind, TaskError};
use wasmrun_model::http;
use wasmrun_model::id::TaskId;

/// When a client that was refused may come again, in seconds.
const AGAIN_S: HeaderValue = HeaderValue::from_static("1");

/// A failure, as its client is told.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    body: Json,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: &str) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        Self {
            status,
            body: http::problem(status.as_u16(), title, detail),
            header: None,
        }
    }

    pub(super) fn bad(detail: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// A request that does not fit its function.
    pub(super) fn unfit(why: &http::BadRequest) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            body: why.problem(),
            header: None,
        }
    }

    pub(super) fn busy(detail: &str) -> Self {
        Self {
            header: Some((RETRY_AFTER, AGAIN_S)),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        }
    }

    /// A path that takes other methods.
    pub(super) fn wrong_method(allow: &str) -> Self {
        let detail = format!("this path takes {allow}");
        Self {
            header: HeaderValue::from_str(allow).ok().map(|it| (ALLOW, it)),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, &detail)
        }
    }

    /// Of a task that failed. Why is for those who run the service, not for their clients.
    pub(super) fn failed(error: &TaskError) -> Self {
        match error {
            TaskError::Limit { hit, .. } if hit.kind == LimitKind::Time => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                "the request took longer than it may",
            ),
            TaskError::Cancelled => Self::busy("the request was cancelled"),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed"),
        }
    }

    /// The response that says so, and which task it was.
    pub(super) fn response(mut self, task: Option<TaskId>) -> Response<HttpBody> {
        if let Some(task) = task {
            self.body["task"] = task.to_string().into();
        }
        let mut response = json(self.status, "application/problem+json", &self.body);
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// A response of JSON.
pub(super) fn json(status: StatusCode, kind: &'static str, body: &Json) -> Response<HttpBody> {
    let mut response = whole(status, Bytes::from(format!("{body}\n")));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A response that is there as a whole.
pub(super) fn whole(status: StatusCode, body: Bytes) -> Response<HttpBody> {
    let body = Full::new(body).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
}
