//! Handlers of WASI 0.3 (`wasi:http/handler`), which send requests by `wasi:http/client`.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use wasmrun_tests::{Stream, assert_says};

use super::{Connection, Service, serve};

#[test]
fn a_handler_of_wasi_0_3_answers() {
    let mut service = Service::start(serve("service", &[]));
    service.is_well();
    assert_eq!(service.get("/nowhere").status, 404);
    // A piece comes back while the rest is not there yet.
    let mut slow = Connection::slow(service.address);
    slow.piece("ended");
    slow.last_piece();
    slow.read_until("ended");
    slow.read_until("0\r\n\r\n");
    // Its own error, and a failure.
    service.get("/refuse").problem(502);
    service.get("/trap").problem(500);
    service.is_well();
    service.wait_for("POST /echo 200 10 ");
}

#[test]
fn a_handler_of_wasi_0_3_sends_requests_to_what_is_granted() {
    let (address, answering) = server();
    let granted = address.to_string();
    let mut service = Service::start(serve("service", &["--http", &granted]));
    let answer = service.get(&format!("/fetch?{address}"));
    assert_eq!((answer.status, &*answer.body), (201, "found"));
    answering.join().expect("it was asked");
    service.get("/fetch?127.0.0.1:1").problem(502);
    service.running.wait_for(Stream::Err, "--http 127.0.0.1:1");
    assert_says(
        &service.running.written(Stream::Err),
        &["a request to 127.0.0.1:1 was refused"],
    );
}

/// A server that answers one request.
fn server() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("it has an address");
    let answering = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("somebody asks");
        let mut connection = Connection::of(stream);
        connection.read_until("\r\n\r\n");
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nfound";
        let sent = connection.stream.get_mut().write_all(answer);
        sent.expect("it is taken");
    });
    (address, answering)
}
