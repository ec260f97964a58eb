//! Requests and responses.

use futures_lite::stream::try_unfold;
use http_body_util::{BodyExt as _, StreamBody};
use wstd::http::body::{Bytes, Frame};
use wstd::http::{Body, Method, Request, Response, Result, StatusCode};

use crate::table::Table;

const USAGE: &str = "POST CSV to /, and get a line of JSON for each row\n";

pub fn answer(request: Request<Body>) -> Result<Response<Body>> {
    let response = Response::builder();
    if request.uri().path() != "/" {
        let response = response.status(StatusCode::NOT_FOUND);
        return Ok(response.body(USAGE.to_owned().into())?);
    }
    match request.method() {
        &Method::GET | &Method::HEAD => Ok(response.body(USAGE.to_owned().into())?),
        &Method::POST => {
            let response = response.header("content-type", "application/x-ndjson");
            Ok(response.body(lines(request.into_body()))?)
        }
        _ => {
            let response = response.status(StatusCode::METHOD_NOT_ALLOWED);
            let response = response.header("allow", "GET, HEAD, POST");
            Ok(response.body(USAGE.to_owned().into())?)
        }
    }
}

/// The lines of a body of CSV. What is no table is an error: the response is cut off there, so its client does not take
/// it for the whole.
fn lines(body: Body) -> Body {
    let state = Some((body.into_boxed_body(), Table::default()));
    let lines = try_unfold(state, async |state| -> Result<_> {
        let Some((mut body, mut table)) = state else {
            return Ok(None);
        };
        loop {
            let (lines, next) = match body.frame().await {
                None => (table.end()?, None),
                Some(frame) => match frame?.into_data() {
                    Ok(piece) => (table.read(&piece)?, Some((body, table))),
                    // Trailers.
                    Err(_) => (Vec::new(), Some((body, table))),
                },
            };
            match next {
                Some(state) if lines.is_empty() => (body, table) = state,
                next => return Ok(Some((Frame::data(Bytes::from(lines)), next))),
            }
        }
    });
    Body::from_http_body(StreamBody::new(lines))
}
