//! The bodies of a request and of its response, on their way from and to a client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use hyper::{Method, StatusCode};
use tokio::time::{Sleep, sleep};
use wasmrun_engine::{HttpBody, HttpError, patient_body};

use super::front::InProgress;
use super::listen::IDLE;

/// A client's body, which fails when the handler waits for more and nothing comes for too long.
pub(super) fn upload(body: Incoming) -> HttpBody {
    patient_body(body, IDLE, Into::into)
}

/// How long what a handler has written may take to go out before its failure cuts it off.
const PARTING: Duration = Duration::from_millis(20);

/// A handler's body whose failure comes a little later. With it a connection drops what it has yet to send, which may be all
/// that the handler has written, and the head.
struct Parting {
    body: HttpBody,
    failed: Option<(HttpError, Pin<Box<Sleep>>)>,
}

impl Parting {
    fn of(body: HttpBody) -> HttpBody {
        let parting = Self { body, failed: None };
        parting.boxed_unsync()
    }

    fn failed(error: HttpError) -> HttpBody {
        let failed = Some((error, Box::pin(sleep(PARTING))));
        let body = nothing();
        Self { body, failed }.boxed_unsync()
    }
}

impl Body for Parting {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if self.failed.is_none() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Err(error)) => self.failed = Some((error, Box::pin(sleep(PARTING)))),
                frame => return Poll::Ready(frame),
            }
        }
        if let Some((_, parting)) = &mut self.failed {
            ready!(parting.as_mut().poll(cx));
        }
        Poll::Ready(self.failed.take().map(|(error, _)| Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A handler's body, which tells its request how it ends.
pub(super) struct Response {
    body: HttpBody,
    /// How many bytes of it the client still gets, where that is known.
    left: Option<u64>,
    request: InProgress,
}

impl Response {
    /// The body of a response, of which the client gets so many bytes, if that is known.
    pub(super) fn new(body: HttpBody, length: Option<u64>, request: InProgress) -> Self {
        let mut response = Self {
            body: Parting::of(body),
            left: length,
            request,
        };
        response.look();
        response
    }

    /// Reads what the client of a HEAD does not get, so that the handler does not fail to write it.
    pub(super) async fn discard(self) {
        let Self { body, request, .. } = self;
        run_out(body).await;
        drop(request);
    }

    fn look(&mut self) {
        // The server does not poll behind what it knows to be the last piece.
        if self.left == Some(0) || self.body.is_end_stream() {
            self.request.is_whole();
        }
    }
}

impl Body for Response {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        self.request.wants_more();
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, |data| data.remaining()) as u64;
                self.request.sent(bytes);
                self.left = self.left.map(|left| left.saturating_sub(bytes));
                if frame.is_trailers() {
                    self.request.is_whole();
                }
                self.look();
                if self.left == Some(0) && !self.body.is_end_stream() {
                    // The server would drop it, and a handler that has yet to flush what it wrote would fail.
                    let rest = std::mem::replace(&mut self.body, nothing());
                    tokio::spawn(run_out(rest));
                }
            }
            Poll::Ready(None) if self.left.is_none() => self.request.is_whole(),
            Poll::Ready(None) if self.left > Some(0) => {
                // Shorter than its head says.
                self.body = Parting::failed(HttpError::HttpResponseIncomplete);
                return Pin::new(&mut self.body).poll_frame(cx);
            }
            Poll::Ready(None | Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// No body.
pub(super) fn nothing() -> HttpBody {
    let nothing = Empty::<Bytes>::new().map_err(|never| match never {});
    nothing.boxed_unsync()
}

/// Reads a body up to its end.
async fn run_out(mut body: HttpBody) {
    while let Some(Ok(_)) = body.frame().await {}
}

/// How many bytes of a response's body its client gets, if its head or the request's method says so.
pub(super) fn length(method: &Method, status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    let is_bare = *method == Method::HEAD
        || *method == Method::CONNECT && status.is_success()
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if is_bare {
        return Some(0);
    }
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, stream};
    use http_body_util::StreamBody;
    use hyper::header::HeaderValue;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_written_may_go_out_before_a_failure_cuts_it_off() {
        let frames = [
            Ok(Frame::data(Bytes::from_static(b"first"))),
            Err(HttpError::HttpResponseIncomplete),
        ];
        let body = StreamBody::new(stream::iter(frames));
        let mut body = Parting::of(body.boxed_unsync());
        let first = body.frame().now_or_never();
        assert!(matches!(first, Some(Some(Ok(_)))));
        assert!(body.frame().now_or_never().is_none(), "it has yet to come");
        assert!(!body.is_end_stream());
        let last = body.frame().await;
        assert!(matches!(last, Some(Err(HttpError::HttpResponseIncomplete))));
    }

    #[test]
    fn the_head_says_how_much_comes() {
        let mut headers = HeaderMap::new();
        assert_eq!(length(&Method::GET, StatusCode::OK, &headers), None);
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
        assert_eq!(length(&Method::POST, StatusCode::OK, &headers), Some(7));
        // The head is that of another response.
        assert_eq!(length(&Method::HEAD, StatusCode::OK, &headers), Some(0));
        let unchanged = StatusCode::NOT_MODIFIED;
        assert_eq!(length(&Method::GET, unchanged, &headers), Some(0));
    }
}
