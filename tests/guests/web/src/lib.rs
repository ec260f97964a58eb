//! A module that sends HTTP requests, and that answers them.
//!
//! Tasks in [`app`] send, by `wasi:http/outgoing-handler` ([`client`]); the export of `wasi:http/incoming-handler`
//! answers ([`server`]).

mod client;
#[cfg(target_family = "wasm")]
mod server;
#[cfg(target_family = "wasm")]
use server::Server;

// Names of exports have characters in them that a native linker does not take.
#[cfg(target_family = "wasm")]
wasip2::http::proxy::export!(Server);

/// Functions that send requests. The error of each is the name of WASI's error code, with what belongs to it.
#[wasmrun_guest::module(cpus = "0.1", memory = "64MiB")]
mod app {
    use crate::client::{self, Request};

    /// Sends a request: the status and the body of its response.
    #[task]
    pub fn fetch(method: String, url: String, body: Vec<u8>) -> Result<(u16, Vec<u8>), String> {
        let request = Request {
            method: &method,
            body: &body,
            ..Request::get(&url)
        };
        client::send(&request)?.read()
    }

    /// Sends that many zeros: the status and the body of the response.
    #[task]
    pub fn upload(url: String, n: u32) -> Result<(u16, Vec<u8>), String> {
        let zeros = vec![0_u8; n as usize];
        let request = Request {
            method: "POST",
            body: &zeros,
            ..Request::get(&url)
        };
        client::send(&request)?.read()
    }

    /// A GET that waits only so long for the head of the response, and for each piece of its body.
    #[task]
    pub fn fetch_within(
        url: String,
        head_ms: u64,
        piece_ms: u64,
    ) -> Result<(u16, Vec<u8>), String> {
        let request = Request {
            patience_ms: Some((head_ms, piece_ms)),
            ..Request::get(&url)
        };
        client::send(&request)?.read()
    }

    /// A GET that follows redirections. All that it asked for, in order, and the status and the body of the last.
    #[task]
    pub fn follow(url: String) -> Result<(Vec<String>, u16, Vec<u8>), String> {
        let mut asked = vec![url];
        loop {
            let response = client::send(&Request::get(&asked[asked.len() - 1]))?;
            let Some(next) = response.header("location") else {
                let (status, body) = response.read()?;
                return Ok((asked, status, body));
            };
            asked.push(next);
        }
    }

    /// Sends that many requests at once: the statuses of their responses, in the order in which they came.
    #[task]
    pub fn fetch_many(url: String, n: u32) -> Result<Vec<u16>, String> {
        client::send_many(&Request::get(&url), n)
    }

    /// Makes that many headers and keeps them: how many it has.
    #[task]
    pub fn hoard(n: u32) -> u64 {
        client::hoard(n) as u64
    }

    /// The headers of a response to GET.
    #[task]
    pub fn headers(url: String) -> Result<Vec<(String, String)>, String> {
        Ok(client::send(&Request::get(&url))?.headers())
    }
}
