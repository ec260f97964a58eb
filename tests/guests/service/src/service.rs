//! The handler.

use wasip3::http::client;
use wasip3::http::types::{ErrorCode, Fields, Method, Request, Response, Scheme};
use wasip3::wit_bindgen::StreamReader;
use wasip3::{spawn_local, wit_future, wit_stream};

wasip3::http::service::export!(Service);

struct Service;

impl wasip3::exports::http::handler::Guest for Service {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let target = request.get_path_with_query().unwrap_or_default();
        match target.split_once('?').unwrap_or((&target, "")) {
            ("/hello", _) => Ok(respond(200, written(b"hello\n"))),
            // The body comes back piece by piece, while the rest still comes.
            ("/echo", _) => {
                let (_, unread) = wit_future::new(|| Ok(()));
                let (body, _) = Request::consume_body(request, unread);
                Ok(respond(200, body))
            }
            // The answer of the server whose name and port are the query.
            ("/fetch", authority) => {
                let answer = client::send(get(authority)).await?;
                let status = answer.get_status_code();
                let (_, unread) = wit_future::new(|| Ok(()));
                let (body, _) = Response::consume_body(answer, unread);
                Ok(respond(status, body))
            }
            ("/refuse", _) => Err(ErrorCode::LoopDetected),
            ("/trap", _) => panic!("the guest was asked to"),
            _ => Ok(respond(404, written(b"nothing is here\n"))),
        }
    }
}

fn get(authority: &str) -> Request {
    let (_, trailers) = wit_future::new(|| Ok(None));
    let (request, _) = Request::new(Fields::new(), None, trailers, None);
    request.set_method(&Method::Get).expect("a method");
    request.set_scheme(Some(&Scheme::Http)).expect("a scheme");
    let is_set = request.set_authority(Some(authority));
    is_set.expect("the query has a name and a port");
    request.set_path_with_query(Some("/")).expect("a path");
    request
}

fn respond(status: u16, body: StreamReader<u8>) -> Response {
    let (_, trailers) = wit_future::new(|| Ok(None));
    let (response, _) = Response::new(Fields::new(), Some(body), trailers);
    response.set_status_code(status).expect("a status");
    response
}

/// A body of these bytes, which are written while it is read.
fn written(text: &'static [u8]) -> StreamReader<u8> {
    let (mut writer, reader) = wit_stream::new();
    spawn_local(async move {
        // The reader may be gone.
        let _ = writer.write_all(text.to_vec()).await;
    });
    reader
}
