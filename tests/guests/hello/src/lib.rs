//! The smallest answer to HTTP requests. It imports WASI alone, so that any server of `wasi:http/proxy` can run it: `cargo
//! xtask bench --against serve` puts it behind several.

// Names of exports have characters in them that a native linker does not take.
#[cfg(target_family = "wasm")]
use server::Server;
#[cfg(target_family = "wasm")]
wasip2::http::proxy::export!(Server);

#[cfg(target_family = "wasm")]
mod server {
    use wasip2::exports::http::incoming_handler::Guest;
    use wasip2::http::types::{
        Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
    };

    /// What the other servers of the comparison answer, too.
    const ANSWER: &[u8] = b"hello\n";

    /// What answers.
    pub struct Server;

    impl Guest for Server {
        fn handle(_: IncomingRequest, response: ResponseOutparam) {
            let length = ANSWER.len().to_string().into_bytes();
            let headers = Fields::from_list(&[
                ("content-type".to_owned(), b"text/plain".to_vec()),
                ("content-length".to_owned(), length),
            ]);
            let outgoing = OutgoingResponse::new(headers.expect("they are headers"));
            let body = outgoing.body().expect("nobody has taken it yet");
            ResponseOutparam::set(response, Ok(outgoing));
            let stream = body.write().expect("nobody has taken it yet");
            stream
                .blocking_write_and_flush(ANSWER)
                .expect("somebody reads it");
            drop(stream);
            OutgoingBody::finish(body, None).expect("it is a whole body");
        }
    }
}
