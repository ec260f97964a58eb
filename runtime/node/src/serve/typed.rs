//! Requests that call functions by routes: JSON in, JSON out.

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;
use wasmrun_engine::{HttpBody, Limits, Readable as _};
use wasmrun_model::failure::TaskError;
use wasmrun_model::http::{Lookup, arguments, response};
use wasmrun_model::value::codec::{decode, encode};
use wasmrun_model::value::{DecodeLimits, FunctionType, Value};

use super::answers::{Functions, Target};
use super::body::upload;
use super::front::{Front, InProgress};
use super::problem::{Problem, json, whole};
use crate::records::job::{Argument, Call};
use crate::records::task::Report;

/// Where the description of the routes is, unless one of them is there.
const OPENAPI: &str = "/openapi.json";

impl Front {
    /// The answer of the function whose route a request takes.
    pub(super) async fn call_function(
        &self,
        functions: &Functions,
        request: Request<Incoming>,
        under_way: &mut InProgress,
    ) -> Result<Response<HttpBody>, Problem> {
        let (head, body) = request.into_parts();
        let method = head.method.as_str();
        let (index, captures) = match functions.routes.find(method, head.uri.path()) {
            Lookup::Found { index, captures } => (index, captures),
            Lookup::NoPath
                if matches!(head.method, Method::GET | Method::HEAD)
                    && head.uri.path() == OPENAPI =>
            {
                return Ok(json(StatusCode::OK, "application/json", &functions.openapi));
            }
            Lookup::NoPath => {
                let detail = "no route has this path; GET /openapi.json describes those there are";
                return Err(Problem::new(StatusCode::NOT_FOUND, detail));
            }
            Lookup::WrongMethod { allow } => return Err(Problem::wrong_method(&allow)),
        };
        let (route, ty) = functions.routes.get(index);
        let target = &functions.targets[index];
        under_way.takes(&functions.names[index]);
        if route.method().has_body() && !body.is_end_stream() && !is_json(&head.headers) {
            let detail = "the body is to be JSON, and its content-type is not: send content-type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let body = whole_body(body, target.limits()).await?;
        let values = arguments(route.method(), ty, &captures, head.uri.query(), &body);
        let values = values.map_err(|why| Problem::unfit(&why))?;
        // The task may take its time: neither the JSON nor the values, which are large in memory, wait for it.
        drop(body);
        let values = encoded(ty, values)?;
        let call = Call {
            values,
            ..self.call_of(&head.headers)
        };
        let task = match target {
            Target::Function(job) => self.submit(job, call, under_way)?,
            Target::Method(method) => {
                let task = method.call(self.client(), call).await?;
                under_way.runs(task)
            }
        };
        let report = task.await;
        if let Target::Method(method) = target {
            method.note(&report);
        }
        let value = returned(ty, &report)?;
        let (status, told) = response(ty, value.as_ref());
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Ok(match told {
            Some(told) => json(status, "application/json", &told),
            None => whole(status, Bytes::new()),
        })
    }
}

/// Whether a body says that it is JSON. A page of another site can have a browser send any other kind without asking first.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let kind = kind.and_then(|it| it.split(';').next()).unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

/// A body as a whole. It may take as long to come as the function may run.
async fn whole_body(body: Incoming, limits: &Limits) -> Result<Bytes, Problem> {
    let most = usize::try_from(limits.arguments).unwrap_or(usize::MAX);
    let body = Limited::new(upload(body), most).collect();
    let body = match limits.time {
        Some(limit) => timeout(limit, body).await.map_err(|_| {
            let detail = "the body took longer to come than the request may take";
            Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
        })?,
        None => body.await,
    };
    match body {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the body has more than {most} bytes"),
        )),
        Err(_) => Err(Problem::bad("the body is not what the request said it was")),
    }
}

/// A call's arguments as they move.
fn encoded(ty: &FunctionType, values: Vec<Value>) -> Result<Vec<Argument>, Problem> {
    let values = ty.params().iter().zip(values);
    let values = values.map(|((_, ty), value)| encode(ty, &value).map(Into::into));
    let values = values.collect::<Result<Vec<_>, _>>();
    values.map_err(|error| Problem::bad(&error.to_string()))
}

/// What a function returned, its errors too.
fn returned(ty: &FunctionType, report: &Report) -> Result<Option<Value>, Problem> {
    let Some(ty) = ty.result() else {
        return match &report.result {
            Ok(_) => Ok(None),
            Err(error) => Err(Problem::failed(error)),
        };
    };
    let limits = DecodeLimits {
        memory_bytes: usize::MAX,
    };
    let unreadable = |_| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the result cannot be read",
        )
    };
    let value = match &report.result {
        Ok(None) => return Ok(None),
        Ok(Some(value)) => {
            let loaded = value.load().map_err(|_| unreadable(()))?;
            decode(ty, loaded.encoded(), limits)
        }
        Err(TaskError::Guest { value, .. }) => decode(ty, value, limits),
        Err(error) => return Err(Problem::failed(error)),
    };
    value.map(Some).map_err(|_| unreadable(()))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn only_json_is_json() {
        let is = |kind: &'static str| {
            let kind = HeaderValue::from_static(kind);
            is_json(&HeaderMap::from_iter([(CONTENT_TYPE, kind)]))
        };
        assert!(is("application/json") && is("Application/JSON; charset=utf-8"));
        assert!(is("application/merge-patch+json"));
        for kind in [
            "text/plain",
            "text/plain; x=+json",
            "application/x-www-form-urlencoded",
            "",
        ] {
            assert!(!is(kind), "{kind}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
