//! Bodies of requests and responses, whichever side they come from.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};
use wasmtime_wasi_http::Error;

/// The body of a request or a response, as it comes.
pub type HttpBody = UnsyncBoxBody<Bytes, HttpError>;

/// Why a body ends before its end, or a handler has no response.
pub type HttpError = Error;

/// What comes of a connection, and fails when its reader waits for more and nothing comes for `most`. `failure` says what it is
/// when the connection breaks.
pub fn patient_body(
    body: Incoming,
    most: Duration,
    failure: fn(hyper::Error) -> HttpError,
) -> HttpBody {
    let patient = Patient {
        body,
        most,
        failure,
        silence: None,
    };
    patient.boxed_unsync()
}

struct Patient {
    body: Incoming,
    most: Duration,
    failure: fn(hyper::Error) -> HttpError,
    silence: Option<Pin<Box<Sleep>>>,
}

impl Body for Patient {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.silence = None;
            return Poll::Ready(frame.map(|it| it.map_err(self.failure)));
        }
        let most = self.most;
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(most)));
        ready!(silence.as_mut().poll(cx));
        Poll::Ready(Some(Err(HttpError::ConnectionReadTimeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
