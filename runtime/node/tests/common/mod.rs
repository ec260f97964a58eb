//! What the tests of drivers share: a node that is served, its clients, and a guest.

// Each test program uses a part of it.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fmt::Display;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{self, Address, Frame, Request, Response};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::resource::Amount;
use wasmrun_model::version::Version;
use wasmrun_node::{Node, NodeConfig, Server};

/// A node behind a socket of its own.
pub struct Served {
    pub server: Server,
    pub address: Address,
    pub node: Node,
    _dir: TempDir,
}

impl Served {
    /// A node that is started so.
    pub fn start(config: NodeConfig) -> Self {
        let (node, dir) = (Node::start(config).unwrap(), tempfile::tempdir().unwrap());
        let address = format!("unix:{}/own/node.sock", dir.path().display());
        let address: Address = address.parse().unwrap();
        Self {
            server: node.serve(&address).unwrap(),
            address,
            node,
            _dir: dir,
        }
    }

    /// A node with so many CPUs.
    pub fn with_cpus(count: u32) -> Self {
        Self::start(NodeConfig {
            cpus: Some(Amount::units(count)),
            ..NodeConfig::default()
        })
    }

    /// A node whose store has so many bytes.
    pub fn with_store(bytes: usize) -> Self {
        Self::start(NodeConfig {
            cpus: Some(Amount::units(1)),
            object_memory: Some(bytes as u64),
            ..NodeConfig::default()
        })
    }

    /// A client of it, of the default tenant.
    pub fn client(&self) -> Client {
        Client::connect(&self.address, TenantName::default()).unwrap()
    }

    /// A client of it, of this tenant, and the guest.
    pub fn client_of(&self, tenant: &str) -> (Client, wire::Module) {
        let client = Client::connect(&self.address, tenant.parse().unwrap()).unwrap();
        let module = load(&client);
        (client, module)
    }
}

/// Loads the guest.
pub fn load(client: &Client) -> wire::Module {
    client
        .wait(client.load(&wat::parse_str(GUEST).unwrap()))
        .unwrap()
}

/// How much of the store is mapped or read.
pub fn pinned(client: &Client) -> u64 {
    client.wait(client.status()).unwrap().store.pinned_bytes
}

/// The path of a node's socket.
pub fn path(address: &Address) -> &str {
    match address {
        Address::Unix(path) => path.as_str(),
        Address::Network(_) => panic!("a node of a test is on this machine"),
    }
}

/// What a client says first.
pub fn hello(protocol: Version) -> Vec<u8> {
    let hello = wire::Hello {
        magic: wire::MAGIC,
        protocol,
        version: "0".into(),
        tenant: TenantName::default(),
        job: String::new(),
    };
    wire::encode(&hello).unwrap()
}

/// A client that says what it likes.
pub struct Raw(pub UnixStream);

impl Raw {
    /// One that was welcomed.
    pub fn connect(address: &Address) -> Self {
        let mut raw = Self(UnixStream::connect(path(address)).unwrap());
        raw.0.write_all(&hello(wire::PROTOCOL)).unwrap();
        raw.read();
        raw
    }

    /// Sends a request. The node may have hung up.
    pub fn send(&mut self, id: u64, message: Request) {
        let frame = wire::encode(&Frame { id, message }).unwrap();
        let _ = self.0.write_all(&frame);
    }

    /// The bytes of the next frame.
    pub fn read(&mut self) -> Vec<u8> {
        let mut header = [0; wire::HEADER_BYTES];
        self.0.read_exact(&mut header).unwrap();
        let mut bytes = vec![0; wire::frame_len(header).unwrap()];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The next answer, with the id of its request.
    pub fn frame(&mut self) -> Frame<Response> {
        wire::decode(&self.read()).unwrap()
    }

    /// The next answer.
    pub fn answer(&mut self) -> Response {
        self.frame().message
    }
}

const ROLE: &str = "NODE_TEST_ROLE";

/// Runs one test of this program as a process of its own, in a role.
pub fn start(test: &str, role: impl Display) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The role of this process, if [`start`] has started it.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// `sum` of bytes, `add`, `toil`, `spin`, `crash`, and an actor that counts.
pub const GUEST: &str = r#"(component
    (core module $m
      (memory (export "memory") 64)
      (global $next (mut i32) (i32.const 64))
      (func (export "realloc") (param i32 i32 i32 i32) (result i32)
        (local $at i32)
        (local.set $at (global.get $next))
        (global.set $next (i32.add (global.get $next) (local.get 3)))
        (local.get $at))
      (func (export "add") (param i64 i64) (result i64)
        (i64.add (local.get 0) (local.get 1)))
      (func (export "sum") (param $at i32) (param $len i32) (result i64)
        (local $sum i64)
        (block $done
          (loop $next
            (br_if $done (i32.eqz (local.get $len)))
            (local.set $sum (i64.add (local.get $sum) (i64.load8_u (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (local.set $len (i32.sub (local.get $len) (i32.const 1)))
            (br $next)))
        (local.get $sum))
      (func (export "spin") (loop $l (br $l)))
      (func (export "crash") unreachable)
      (global $count (mut i64) (i64.const 0))
      (func (export "create") (param i64) (result i32)
        (global.set $count (local.get 0))
        (i32.const 7))
      (func (export "count") (param i32 i64) (result i64)
        (global.set $count (i64.add (global.get $count) (local.get 1)))
        (global.get $count))
      (func (export "die") (param i32) unreachable)
      (func (export "hang") (param i32) (loop $l (br $l)))
      (func $toil (export "toil") (param $turns i64)
        (loop $next
          (local.set $turns (i64.sub (local.get $turns) (i64.const 1)))
          (br_if $next (i64.gt_s (local.get $turns) (i64.const 0)))))
      (func (export "work") (param i32 i64) (call $toil (local.get 1))))
    (type $counter (resource (rep i32)))
    (core func $new (canon resource.new $counter))
    (core instance $i (instantiate $m))
    (core module $wrap
      (import "m" "create" (func $create (param i64) (result i32)))
      (import "m" "new" (func $new (param i32) (result i32)))
      (func (export "create") (param i64) (result i32)
        (call $new (call $create (local.get 0)))))
    (core instance $w (instantiate $wrap (with "m" (instance
      (export "create" (func $i "create"))
      (export "new" (func $new))))))
    (func (export "add") (param "a" u64) (param "b" u64) (result u64)
      (canon lift (core func $i "add")))
    (func (export "sum") (param "data" (list u8)) (result u64)
      (canon lift (core func $i "sum") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
    (func (export "toil") (param "turns" u64) (canon lift (core func $i "toil")))
    (func (export "spin") (canon lift (core func $i "spin")))
    (func (export "crash") (canon lift (core func $i "crash")))
    (func $create (param "start" u64) (result (own $counter))
      (canon lift (core func $w "create")))
    (func $count (param "self" (borrow $counter)) (param "n" u64) (result u64)
      (canon lift (core func $i "count")))
    (func $die (param "self" (borrow $counter)) (canon lift (core func $i "die")))
    (func $hang (param "self" (borrow $counter)) (canon lift (core func $i "hang")))
    (func $work (param "self" (borrow $counter)) (param "turns" u64)
      (canon lift (core func $i "work")))
    (component $shim
      (import "t" (type $t (sub resource)))
      (import "create" (func $create (param "start" u64) (result (own $t))))
      (import "count" (func $count
        (param "self" (borrow $t)) (param "n" u64) (result u64)))
      (import "die" (func $die (param "self" (borrow $t))))
      (import "hang" (func $hang (param "self" (borrow $t))))
      (import "work" (func $work (param "self" (borrow $t)) (param "turns" u64)))
      (export $c "counter" (type $t))
      (export "[constructor]counter" (func $create)
        (func (param "start" u64) (result (own $c))))
      (export "[method]counter.count" (func $count)
        (func (param "self" (borrow $c)) (param "n" u64) (result u64)))
      (export "[method]counter.die" (func $die) (func (param "self" (borrow $c))))
      (export "[method]counter.hang" (func $hang) (func (param "self" (borrow $c))))
      (export "[method]counter.work" (func $work)
        (func (param "self" (borrow $c)) (param "turns" u64))))
    (instance $api (instantiate $shim
      (with "t" (type $counter))
      (with "create" (func $create))
      (with "count" (func $count))
      (with "die" (func $die))
      (with "hang" (func $hang))
      (with "work" (func $work))))
    (export "test:counters/api" (instance $api)))"#;
