//! Clients in trouble: that die in the middle of something, or run out of what they need.
//!
//! Those that are short of something are processes of their own: this program starts itself again, in a role.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use wasmrun_client::Value;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{self, Address, Bytes, Form, ObjectRef, Request, Response};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::value::Encoded;

use crate::common::{Raw, Served, pinned, role, start};

const MIB: usize = 1 << 20;

fn connect(address: &Address) -> Client {
    Client::connect(address, TenantName::default()).unwrap()
}

fn put_and_get(client: &Client, len: usize) -> Value {
    let bytes = Encoded::Postcard((0..len).map(|n| (n % 251) as u8).collect());
    let future = client.wait(client.put(&bytes)).unwrap();
    let value = client.wait(future.get(None)).unwrap();
    assert!(value == bytes);
    value
}

fn sessions(client: &Client) -> u64 {
    client.wait(client.status()).unwrap().sessions
}

impl Raw {
    /// Announces a value of so many bytes and waits for room for longer than there is a world.
    fn announce(&mut self, id: u64, len: usize) {
        let put = wire::Put {
            form: Form::Postcard,
            len: len as u64,
            is_kept: false,
            room_ms: Some(u64::MAX),
            can_stage: false,
            objects: Vec::new(),
            actors: Vec::new(),
        };
        self.send(id, Request::Put(Box::new(put)));
    }

    fn chunk(&mut self, id: u64, len: usize) {
        self.send(id, Request::Chunk(Bytes(vec![7; len])));
    }

    /// Stores so many bytes and maps them.
    fn hold(&mut self, len: usize) {
        self.announce(1, len);
        assert_eq!(self.answer(), Response::Continue);
        for _ in 0..len.div_ceil(MIB) {
            self.chunk(1, len.min(MIB));
        }
        let Response::Object(object) = self.answer() else {
            panic!("it is stored");
        };
        let get = Request::Get {
            object: ObjectRef::Id(object),
            timeout_ms: None,
            can_map: true,
        };
        self.send(2, get);
        assert!(matches!(self.answer(), Response::Mapped(_)));
    }
}

#[test]
fn a_client_that_dies_waiting_for_room_leaves_nothing() {
    for sends_early in [false, true] {
        let served = Served::with_store(4 * MIB);
        let client = connect(&served.address);
        let mut dying = Raw::connect(&served.address);
        // So that a node that goes on waiting fails the test.
        let patience = Some(Duration::from_secs(60));
        dying.0.set_read_timeout(patience).unwrap();
        dying.hold(3 * MIB);
        assert_eq!(pinned(&client), 3 * MIB as u64);
        dying.announce(3, 2 * MIB);
        if sends_early {
            // More than the node keeps: it would not come to read that the client is gone.
            for _ in 0..20 {
                dying.chunk(3, 1000);
            }
        }
        drop(dying);
        while sessions(&client) > 1 {}
        let status = client.wait(client.status()).unwrap();
        assert_eq!((status.store.pinned_bytes, status.store.objects), (0, 0));
        drop(put_and_get(&client, 4 * MIB));
    }
}

/// This process may open no more files than it has.
fn open_no_more() {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let highest = open.map(|it| it.unwrap().file_name().to_string_lossy().parse::<u64>());
    let highest = highest.map(Result::unwrap).max().unwrap();
    // The highest was that of the folder, which is closed; fill what is free below it.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(highest);
    setrlimit(Resource::Nofile, limit).unwrap();
    let fill = || std::fs::File::open("/dev/null");
    let filled: Vec<_> = std::iter::from_fn(|| fill().ok()).collect();
    std::mem::forget(filled);
}

fn open_more() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn a_client_that_can_open_no_more_files_gets_the_bytes() {
    if let Some(address) = role() {
        let address: Address = address.parse().unwrap();
        let client = connect(&address);
        open_no_more();
        for _ in 0..2 {
            let value = put_and_get(&client, 2 * MIB);
            assert!(!value.is_mapped());
        }
        // Nothing of it stays pinned.
        while pinned(&client) > 0 {}
        open_more();
        // The segment whose descriptor was lost stays so, and another one is mapped.
        assert!(put_and_get(&client, 40 * MIB).is_mapped());
        return;
    }
    let served = Served::with_store(256 * MIB);
    let test = "a_client_that_can_open_no_more_files_gets_the_bytes";
    let mut child = start(test, &served.address);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_node_that_can_open_no_more_files_sends_the_bytes() {
    let lines = |child: &mut Child| BufReader::new(child.stdout.take().unwrap()).lines();
    if role().is_some() {
        let served = Served::with_store(256 * MIB);
        println!("\nat {}", served.address);
        for next in [open_no_more, open_more, || ()] {
            std::io::stdin().read_line(&mut String::new()).unwrap();
            next();
            println!("\ndone");
        }
        return;
    }
    let mut child = start("a_node_that_can_open_no_more_files_sends_the_bytes", "node");
    let mut said = lines(&mut child).map(Result::unwrap);
    let address = said.find_map(|it| Some(it.strip_prefix("at ")?.to_owned()));
    let client = connect(&address.unwrap().parse().unwrap());
    let mut tell = |child: &mut Child| {
        let stdin = child.stdin.as_mut().unwrap();
        stdin.write_all(b"go on\n").unwrap();
        assert!(said.any(|it| it == "done"));
    };
    // Where there are huge pages, a segment of its own, for which others need another descriptor.
    let bytes = Encoded::Postcard(vec![7; 64 * MIB]);
    let future = client.wait(client.put(&bytes)).unwrap();
    tell(&mut child);
    let value = client.wait(future.get(None)).unwrap();
    assert!(value == bytes);
    drop(value);
    while pinned(&client) > 0 {}
    tell(&mut child);
    let value = client.wait(future.get(None)).unwrap();
    assert!(value.is_mapped() && value == bytes);
    tell(&mut child);
    assert!(child.wait().unwrap().success());
}
