//! Answers one HTTP request in a fresh sandbox: `wasi:http/incoming-handler` of WASI 0.2, `wasi:http/handler` of 0.3.
//!
//! Must not: listen, or decide what a client is told of a handler that fails.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::uri::Scheme as UriScheme;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use hyper::{Request, Response};
use tokio::sync::oneshot;
use wasmrun_model::failure::TaskError;
use wasmtime::component::InstancePre;
use wasmtime_wasi_http::p2::bindings::ProxyIndices;
use wasmtime_wasi_http::p2::bindings::http::types::Scheme;
use wasmtime_wasi_http::p3::bindings::ServiceIndices;
use wasmtime_wasi_http::{Error, WasiHttpView as _};

use crate::http_body::{HttpBody, HttpError};
use crate::run::Sandbox;
use crate::state::TaskState;

/// A request and the way back.
#[derive(Debug)]
pub struct HttpExchange {
    /// The request. Its URI or its `host` header says for whom it is.
    pub request: Request<HttpBody>,
    /// Whether it came by TLS.
    pub is_tls: bool,
    /// Gets the head of the response once the handler says it, or the handler's error in words. Dropped without one
    /// where the handler ends before that.
    pub answer: oneshot::Sender<Result<Response<HttpBody>, String>>,
}

/// A component's handler of HTTP requests.
#[derive(Clone)]
pub(crate) enum HttpHandler {
    P2(ProxyIndices),
    P3(ServiceIndices),
}

impl HttpHandler {
    /// The handler that a component exports, if it does.
    pub(crate) fn of(pre: &InstancePre<TaskState>) -> Option<Self> {
        match ProxyIndices::new(pre) {
            Ok(indices) => Some(Self::P2(indices)),
            Err(_) => ServiceIndices::new(pre).ok().map(Self::P3),
        }
    }

    /// Whether an interface is that of a handler.
    pub(crate) fn is_interface(name: &str) -> bool {
        ["wasi:http/incoming-handler@0.2.", "wasi:http/handler@0.3."]
            .iter()
            .any(|start| name.starts_with(start))
    }
}

impl Sandbox {
    /// Has the module's handler answer a request, in a new instance. Returns when the handler does: what it has written of
    /// the body is on its way then.
    pub(crate) async fn answer(&mut self, exchange: HttpExchange) -> Result<(), TaskError> {
        let handler = self.module.http_handler().cloned();
        let handler = handler.ok_or_else(|| {
            TaskError::Sandbox("the module exports no handler of HTTP requests".into())
        })?;
        let instance = pin!(self.instantiate()).await?;
        // Dropped before the sandbox is, however this ends.
        let mut run = Run::default();
        let failed = run.failed.clone();
        let answered = match handler {
            HttpHandler::P2(indices) => match indices.load(&mut self.store, &instance) {
                Ok(proxy) => pin!(self.answer_p2(&proxy, exchange, failed)).await,
                Err(error) => Err(error),
            },
            HttpHandler::P3(indices) => match indices.load(&mut self.store, &instance) {
                Ok(service) => pin!(self.answer_p3(&service, exchange, failed)).await,
                Err(error) => Err(error),
            },
        };
        run.has_returned = answered.is_ok();
        answered.map_err(|error| self.failure(error))
    }

    async fn answer_p2(
        &mut self,
        proxy: &wasmtime_wasi_http::p2::bindings::Proxy,
        exchange: HttpExchange,
        failed: Arc<AtomicBool>,
    ) -> wasmtime::Result<()> {
        let HttpExchange {
            request,
            is_tls,
            answer,
        } = exchange;
        let scheme = if is_tls { Scheme::Https } else { Scheme::Http };
        let mut http = self.store.data_mut().http();
        let request = http.new_incoming_request(scheme, request)?;
        let out = http.new_response_outparam_from_callback(move |response| {
            let response = response.map(|it| it.map(|body| Ending::of(body, failed, None)));
            // Nobody may want it any more.
            let _ = answer.send(response.map_err(|code| code.to_string()));
        })?;
        let handler = proxy.wasi_http_incoming_handler();
        handler.call_handle(&mut self.store, request, out).await
    }

    async fn answer_p3(
        &mut self,
        service: &wasmtime_wasi_http::p3::bindings::Service,
        exchange: HttpExchange,
        failed: Arc<AtomicBool>,
    ) -> wasmtime::Result<()> {
        let HttpExchange {
            request,
            is_tls,
            answer,
        } = exchange;
        let request = with_scheme(request, is_tls);
        let hooks = self.store.data_mut().http().hooks;
        // How the client's sending of the body ended is in the body itself.
        let (request, _) = wasmtime_wasi_http::p3::Request::from_http(hooks, request);
        self.store
            .run_concurrent(async |store| {
                let response = match service.handle(store, request).await? {
                    Ok(response) => response,
                    Err(code) => {
                        let _ = answer.send(Err(code.to_string()));
                        return Ok(());
                    }
                };
                let response = store.with(|it| response.into_http(it, async { Ok(()) }))?;
                // The guest writes as long as its store is run: until the body has ended, or nobody wants it.
                let (ended, end) = oneshot::channel();
                let response = response.map(|body| Ending::of(body, failed, Some(ended)));
                if answer.send(Ok(response)).is_ok() {
                    let _ = end.await;
                }
                Ok(())
            })
            .await?
    }
}

/// The request with what it is for in its URI, where WASI 0.3 looks.
fn with_scheme(request: Request<HttpBody>, is_tls: bool) -> Request<HttpBody> {
    let (mut head, body) = request.into_parts();
    let host = head.headers.get(http::header::HOST);
    let mut parts = head.uri.clone().into_parts();
    parts.scheme = Some(if is_tls {
        UriScheme::HTTPS
    } else {
        UriScheme::HTTP
    });
    if parts.authority.is_none() {
        parts.authority = host.and_then(|it| it.as_bytes().try_into().ok());
    }
    if let Ok(uri) = http::Uri::from_parts(parts) {
        head.uri = uri;
    }
    Request::from_parts(head, body)
}

/// A handler that runs. It has failed if it ends before it returns.
#[derive(Default)]
struct Run {
    failed: Arc<AtomicBool>,
    has_returned: bool,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.failed.store(!self.has_returned, Ordering::Release);
    }
}

/// A handler's body. It ends with its sandbox, too: then it is whole only if the handler has not failed.
struct Ending {
    body: HttpBody,
    failed: Arc<AtomicBool>,
    /// Dropped with the body.
    _ended: Option<oneshot::Sender<()>>,
}

impl Ending {
    fn of(body: HttpBody, failed: Arc<AtomicBool>, ended: Option<oneshot::Sender<()>>) -> HttpBody {
        let ending = Self {
            body,
            failed,
            _ended: ended,
        };
        ending.boxed_unsync()
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

impl Body for Ending {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None if self.has_failed() => Poll::Ready(Some(Err(Error::HttpResponseIncomplete))),
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && !self.has_failed()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;

    use super::*;

    fn body(run: &Run) -> HttpBody {
        let body = Empty::<Bytes>::new().map_err(|never| match never {});
        Ending::of(body.boxed_unsync(), run.failed.clone(), None)
    }

    #[tokio::test]
    async fn a_body_that_a_failed_handler_has_left_is_not_whole() {
        let run = Run::default();
        let mut whole = body(&run);
        assert!(whole.is_end_stream() && whole.frame().await.is_none());
        let mut broken = body(&run);
        drop(run);
        assert!(!broken.is_end_stream());
        let frame = broken.frame().await;
        assert!(matches!(frame, Some(Err(Error::HttpResponseIncomplete))));

        let mut run = Run::default();
        let mut left = body(&run);
        run.has_returned = true;
        drop(run);
        assert!(left.frame().await.is_none(), "it has returned");
    }
}
