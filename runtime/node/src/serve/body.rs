//! The body of a response on its way to a client.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use hyper::body::{Body, Frame, SizeHint};
use wasmrun_engine::{HttpBody, HttpError};

use super::front::InProgress;

/// A handler's body, which tells its request how it ends.
pub(super) struct Response {
    pub(super) body: HttpBody,
    pub(super) request: InProgress,
}

impl Body for Response {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, |data| data.remaining());
                self.request.sent(bytes as u64);
                // Whoever knows that nothing comes behind it does not ask again.
                if self.body.is_end_stream() {
                    self.request.is_whole();
                }
            }
            Poll::Ready(None) => self.request.is_whole(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
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
