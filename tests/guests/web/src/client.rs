//! Outgoing requests: no more of HTTP than tests need.

use std::io::Write as _;

use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingBody, IncomingResponse, Method,
    OutgoingBody, OutgoingRequest, RequestOptions, Scheme, http_error_code,
};
use wasip2::io::poll;
use wasip2::io::streams::StreamError;

/// What is sent.
pub struct Request<'a> {
    pub method: &'a str,
    pub url: &'a str,
    pub body: &'a [u8],
    /// How long for the head of the response, and for each piece of its body.
    pub patience_ms: Option<(u64, u64)>,
}

impl<'a> Request<'a> {
    pub fn get(url: &'a str) -> Self {
        Self {
            method: "GET",
            url,
            body: &[],
            patience_ms: None,
        }
    }
}

/// What came back, its body still to be read.
pub struct Response(IncomingResponse);

impl Response {
    pub fn headers(&self) -> Vec<(String, String)> {
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        let entries = self.0.headers().entries().into_iter();
        entries.map(|(name, value)| (name, text(value))).collect()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let mut headers = self.headers().into_iter();
        headers.find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// The status and the whole body.
    pub fn read(self) -> Result<(u16, Vec<u8>), String> {
        let body = self.0.consume().expect("nobody has taken it yet");
        let stream = body.stream().expect("nobody has taken it yet");
        let mut bytes = Vec::new();
        loop {
            match stream.blocking_read(64 << 10) {
                Ok(piece) => bytes.extend(piece),
                Err(StreamError::Closed) => break,
                Err(StreamError::LastOperationFailed(error)) => {
                    // The host has a code for some errors only.
                    return Err(match http_error_code(&error) {
                        Some(code) => text(&code),
                        None => error.to_debug_string(),
                    });
                }
            }
        }
        drop(stream);
        IncomingBody::finish(body);
        Ok((self.0.status(), bytes))
    }
}

/// Sends a request and waits for the head of its response.
pub fn send(request: &Request) -> Result<Response, String> {
    let response = begin(request)?;
    response.subscribe().block();
    take(&response)
}

/// Sends a request so many times at once, and reads each response as it comes.
pub fn send_many(request: &Request, n: u32) -> Result<Vec<u16>, String> {
    let mut waiting = (0..n)
        .map(|_| begin(request))
        .collect::<Result<Vec<_>, _>>()?;
    let mut done = Vec::new();
    while !waiting.is_empty() {
        let all: Vec<_> = waiting.iter().map(|it| it.subscribe()).collect();
        let ready = poll::poll(&all.iter().collect::<Vec<_>>());
        drop(all);
        // In no order, and each place is of before any was taken.
        let mut at = 0;
        waiting.retain(|it| {
            at += 1;
            if ready.contains(&(at - 1)) {
                done.push(take(it).and_then(|response| response.read()));
            }
            !ready.contains(&(at - 1))
        });
    }
    done.into_iter().map(|it| Ok(it?.0)).collect()
}

/// Makes that many headers and keeps them until it has all.
pub fn hoard(n: u32) -> usize {
    let all: Vec<Fields> = (0..n).map(|_| Fields::new()).collect();
    all.len()
}

fn begin(request: &Request) -> Result<FutureIncomingResponse, String> {
    let (scheme, rest) = request.url.split_once("://").ok_or("no URL")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_owned()),
    };
    let method = match request.method {
        "GET" => Method::Get,
        "POST" => Method::Post,
        other => Method::Other(other.to_owned()),
    };
    let headers = Fields::new();
    if !request.body.is_empty() {
        let length = request.body.len().to_string().into_bytes();
        let set = headers.set("content-length", &[length]);
        set.map_err(|error| format!("{error:?}"))?;
    }
    let outgoing = OutgoingRequest::new(headers);
    outgoing.set_method(&method).map_err(|()| "wrong method")?;
    outgoing
        .set_scheme(Some(&scheme))
        .map_err(|()| "wrong scheme")?;
    outgoing
        .set_authority(Some(authority))
        .map_err(|()| "wrong authority")?;
    let path = if path.is_empty() { "/" } else { path };
    outgoing
        .set_path_with_query(Some(path))
        .map_err(|()| "wrong path")?;
    let options = request.patience_ms.map(patience);
    let send = |outgoing| outgoing_handler::handle(outgoing, options).map_err(|code| text(&code));
    if request.body.is_empty() {
        return send(outgoing);
    }
    let body = outgoing.body().expect("nobody has taken it yet");
    let response = send(outgoing)?;
    let mut stream = body.write().expect("nobody has taken it yet");
    // Where the request was refused, its response says why.
    if stream.write_all(request.body).is_ok() {
        let _ = stream.blocking_flush();
    }
    drop(stream);
    let _ = OutgoingBody::finish(body, None);
    Ok(response)
}

fn patience((head_ms, piece_ms): (u64, u64)) -> RequestOptions {
    let options = RequestOptions::new();
    let set = [
        options.set_first_byte_timeout(Some(head_ms * 1_000_000)),
        options.set_between_bytes_timeout(Some(piece_ms * 1_000_000)),
    ];
    assert!(set.iter().all(Result::is_ok), "the host takes both");
    options
}

/// The head that is there.
fn take(response: &FutureIncomingResponse) -> Result<Response, String> {
    let got = response.get().expect("it is ready");
    let got = got.expect("it is taken once");
    got.map(Response).map_err(|code| text(&code))
}

/// `HttpRequestDenied`, and what belongs to it.
fn text(code: &ErrorCode) -> String {
    let text = format!("{code:?}");
    text.strip_prefix("ErrorCode::").unwrap_or(&text).to_owned()
}
