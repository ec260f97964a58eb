//! What one tenant gets while a service of another is flooded.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use anyhow::anyhow;
use wasmrun_engine::Grants;
use wasmrun_node::{Answers, Overrides, Service, ServiceConfig};

use crate::bench::Sample;
use crate::bench::cases::Setting;
use crate::fail::Failure;

/// How many connections ask for more as soon as they are answered.
const CONNECTIONS: usize = 64;
const REQUEST: &[u8] = b"POST /noop HTTP/1.1\r\nHost: localhost\r\n\r\n";

impl Setting {
    /// As `tasks_sync`, of which it is the sample.
    pub(super) fn serve_neighbour(&self) -> Result<Sample, Failure> {
        let service = self.service()?;
        let address = service.address();
        let stop = AtomicBool::new(false);
        let (began, begun) = mpsc::channel();
        let connections = self.count(CONNECTIONS);
        std::thread::scope(|scope| {
            let stopping = Stopping(&stop);
            let floods: Vec<_> = (0..connections)
                .map(|_| {
                    let (began, stop) = (began.clone(), &stop);
                    scope.spawn(move || flood(address, stop, &began))
                })
                .collect();
            begun.iter().take(connections).for_each(drop);
            let sample = self.tasks_sync();
            drop(stopping);
            for flood in floods {
                let ended = flood.join().expect("a bench thread does not panic");
                ended.map_err(|error| anyhow!("the flood has ended: {error}"))?;
            }
            sample
        })
    }

    /// A service of a tenant of its own, which does nothing.
    fn service(&self) -> Result<Service, Failure> {
        let overrides = Overrides {
            tenant: "flood".parse().expect("it is a name"),
            ..Overrides::default()
        };
        let route = "POST /noop=noop".parse().expect("it is a route");
        let grants = Grants::default();
        let answers = Answers::new("flood", &self.module, vec![route], &overrides, &grants);
        let config = ServiceConfig {
            name: "flood".into(),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            tls: None,
            hosts: Vec::new(),
            most_running: CONNECTIONS,
            most_waiting: CONNECTIONS,
            patience: Duration::from_secs(10),
            listener: None,
            log: None,
        };
        Ok(Service::start(self.node.client(), answers?, config)?)
    }
}

/// Ends the flood when it is dropped.
pub(super) struct Stopping<'a>(pub(super) &'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks until it is to stop. Says when it has its first answer, or none.
fn flood(address: SocketAddr, stop: &AtomicBool, began: &Sender<()>) -> io::Result<()> {
    let mut connection = None;
    let first = TcpStream::connect(address).and_then(|stream| {
        let connection = connection.insert(BufReader::new(stream));
        ask(connection)
    });
    let _ = began.send(());
    first?;
    let mut connection = connection.expect("it has been answered");
    while !stop.load(Ordering::Relaxed) {
        ask(&mut connection)?;
    }
    Ok(())
}

/// A request and its answer, which has no body.
fn ask(connection: &mut BufReader<TcpStream>) -> io::Result<()> {
    connection.get_mut().write_all(REQUEST)?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 204 ") {
        return Err(io::Error::other(format!("the answer is {line:?}")));
    }
    while line != "\r\n" {
        line.clear();
        connection.read_line(&mut line)?;
    }
    Ok(())
}
