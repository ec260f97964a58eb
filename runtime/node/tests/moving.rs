//! Objects on their way between nodes: several nodes in this process, connected over loopback as they would be over a
//! network; and objects that nodes of one machine share instead.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use wasmrun_engine::{EngineConfig, Entry, Grants, Module};
use wasmrun_model::cluster::Strategy;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::resource::Amount;
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{Encoded, NumberKind, Value as Plain, ValueType};
use wasmrun_node::{
    Argument, Call, Client, ClusterConfig, Job, Node, NodeConfig, Object, Overrides, Part, Phase,
    Readable, TaskHandle,
};

const HOUR: Duration = Duration::from_secs(3600);
const MIB: usize = 1 << 20;
/// What `make` fills its list with.
const FILL: u8 = 0xa7;

/// `make` gives so many bytes, `sum` adds bytes up.
const GUEST: &str = r#"(component
    (core module $m
      (memory (export "memory") 1)
      (global $next (mut i32) (i32.const 65536))
      (func $realloc (export "realloc") (param i32 i32 i32) (param $bytes i32) (result i32)
        (local $at i32)
        (local.set $at (global.get $next))
        (global.set $next (i32.add (local.get $at) (local.get $bytes)))
        (drop (memory.grow (i32.add (i32.shr_u (local.get $bytes) (i32.const 16)) (i32.const 1))))
        (local.get $at))
      (func (export "make") (param $bytes i32) (result i32)
        (i32.store (i32.const 512)
          (call $realloc (i32.const 0) (i32.const 0) (i32.const 1) (local.get $bytes)))
        (i32.store (i32.const 516) (local.get $bytes))
        (memory.fill (i32.load (i32.const 512)) (i32.const 0xa7) (local.get $bytes))
        (i32.const 512))
      (func (export "sum") (param $at i32) (param $len i32) (result i64)
        (local $sum i64)
        (block $done
          (loop $next
            (br_if $done (i32.eqz (local.get $len)))
            (local.set $sum (i64.add (local.get $sum) (i64.load8_u (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (local.set $len (i32.sub (local.get $len) (i32.const 1)))
            (br $next)))
        (local.get $sum)))
    (core instance $i (instantiate $m))
    (func (export "make") (param "n" u32) (result (list u8))
      (canon lift (core func $i "make") (memory (core memory $i "memory"))))
    (func (export "sum") (param "data" (list u8)) (result u64)
      (canon lift (core func $i "sum") (memory (core memory $i "memory"))
        (realloc (core func $i "realloc")))))"#;

/// Nodes that know each other; the first is the head, and the driver is there.
struct Cluster {
    nodes: Vec<Node>,
    client: Client,
    module: Module,
    _dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// One test at a time: one has half a gigabyte on its way, another looks through all the memory of this process.
static TURN: Mutex<()> = Mutex::new(());

impl Cluster {
    fn new(count: usize) -> Self {
        // A test that has failed has had its turn.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let start = |n: usize, part: Part| {
            let config = NodeConfig {
                name: Some(format!("n{n}")),
                cpus: Amount::from_units(2),
                object_memory: Some(1 << 30),
                engine: EngineConfig {
                    cache_dir: Some(dir.path().join("code")),
                    max_sandboxes: 8,
                    ..EngineConfig::default()
                },
                cluster: Some(ClusterConfig {
                    state_dir: dir.path().join(n.to_string()),
                    part,
                    etcd: None,
                    oidc: None,
                    listen: Some("127.0.0.1:0".parse().unwrap()),
                    advertise: Vec::new(),
                    lease_ttl: Duration::from_secs(10),
                }),
                ..NodeConfig::default()
            };
            Node::start(config).unwrap()
        };
        let mut nodes = vec![start(0, Part::Head)];
        let token = nodes[0].join_token(true, HOUR).unwrap().unwrap();
        for n in 1..count {
            nodes.push(start(n, Part::Member(Some(token.clone()))));
        }
        for node in &nodes {
            assert!(node.wait_for_members(count, HOUR));
        }
        let cluster = Self {
            client: nodes[0].client(),
            module: nodes[0].load(&wat::parse_str(GUEST).unwrap()).unwrap(),
            nodes,
            _dir: dir,
            _turn: turn,
        };
        // The head takes tasks for a node once that has said what it has.
        for n in 1..count {
            cluster.make(n, 1).wait().result.unwrap();
        }
        cluster
    }

    /// A function, with one argument, at a node.
    fn call(&self, function: &str, at: usize, argument: Argument) -> TaskHandle {
        self.call_of(&self.module, function, at, argument)
    }

    /// The same, of any module.
    fn call_of(
        &self,
        module: &Module,
        function: &str,
        at: usize,
        argument: Argument,
    ) -> TaskHandle {
        let overrides = Overrides {
            strategy: Strategy::NodeAffinity {
                node: format!("n{at}").parse().unwrap(),
                soft: false,
            },
            argument_bytes: 1 << 30,
            result_bytes: 1 << 30,
            ..Overrides::default()
        };
        let entry = Entry::Function(module.find(function).unwrap());
        let job = Job::new(function, module, entry, &overrides, Grants::default());
        let job = Arc::new(job.unwrap());
        loop {
            let call = Call {
                values: vec![argument.clone()],
                ..Call::default()
            };
            if let Ok(task) = self.client.submit(&job, call) {
                return task;
            }
            // Its node has not said what it has yet.
            std::thread::yield_now();
        }
    }

    fn make(&self, at: usize, bytes: usize) -> TaskHandle {
        let bytes = Plain::U32(u32::try_from(bytes).unwrap());
        self.call("make", at, encode(&ValueType::U32, &bytes).unwrap().into())
    }

    fn sum(&self, at: usize, object: &Object) -> TaskHandle {
        self.call("sum", at, Argument::Object(object.clone()))
    }
}

fn sum_of(task: TaskHandle) -> Encoded {
    let value = task.wait().result.unwrap().unwrap();
    let loaded = value.load().unwrap();
    Encoded::Postcard(loaded.encoded().bytes().to_vec())
}

fn number(n: u64) -> Encoded {
    encode(&ValueType::U64, &Plain::U64(n)).unwrap()
}

fn put(cluster: &Cluster, bytes: usize) -> (Object, Encoded) {
    let bytes: Vec<u8> = (0..bytes).map(|n| (n / 3) as u8).collect();
    let sum = bytes.iter().map(|byte| u64::from(*byte)).sum();
    let kind = NumberKind::U8;
    let put = cluster
        .client
        .put(&TenantName::default(), Encoded::Buffer { kind, bytes });
    (put.unwrap(), number(sum))
}

#[test]
fn many_readers_are_served_by_each_other() {
    const BYTES: usize = 8 * MIB;
    let cluster = Cluster::new(8);
    let before: Vec<_> = cluster.nodes.iter().map(Node::moved).collect();
    let (object, sum) = put(&cluster, BYTES);
    let tasks: Vec<_> = (1..8).map(|n| cluster.sum(n, &object)).collect();
    for task in tasks {
        assert_eq!(sum_of(task), sum);
    }
    for (n, (node, before)) in cluster.nodes.iter().zip(before).enumerate() {
        let moved = node.moved();
        let received = moved.received_bytes - before.received_bytes;
        assert_eq!(received, if n == 0 { 0 } else { BYTES as u64 }, "n{n}");
        let sent = moved.sent_bytes - before.sent_bytes;
        // How many of them come from one node depends on how fast the others are: the tests of `spread` count that.
        assert!(sent < 7 * BYTES as u64, "n{n} has sent all {sent} bytes");
    }
}

#[test]
fn who_needs_the_same_shares_one_transfer() {
    let cluster = Cluster::new(2);
    let (object, sum) = put(&cluster, 8 * MIB);
    let before = cluster.nodes[1].moved();
    let tasks: Vec<_> = (0..6).map(|_| cluster.sum(1, &object)).collect();
    for task in tasks {
        assert_eq!(sum_of(task), sum);
    }
    let after = cluster.nodes[1].moved();
    assert_eq!(after.received_bytes - before.received_bytes, 8 * MIB as u64);
}

#[test]
fn a_module_comes_once_to_each_node_that_wants_it() {
    let cluster = Cluster::new(3);
    let came = || {
        let moved = cluster.nodes.iter().map(Node::moved);
        let came = moved.map(|moved| (moved.modules, moved.module_bytes));
        came.collect::<Vec<_>>()
    };
    // That of the tasks that each has run so far.
    let first = wat::parse_str(GUEST).unwrap().len() as u64;
    assert_eq!(came(), [(0, 0), (1, first), (1, first)]);
    // Of another one many tasks at once, and then one more.
    let text = GUEST.replace("0xa7", "0xa8");
    let bytes = wat::parse_str(text).unwrap();
    let module = cluster.nodes[0].load(&bytes).unwrap();
    let one = || encode(&ValueType::U32, &Plain::U32(1)).unwrap();
    let make = |at| cluster.call_of(&module, "make", at, one().into());
    let tasks: Vec<_> = (0..24).map(|n| make(n % 3)).collect();
    for task in tasks.into_iter().chain([make(1), make(2)]) {
        task.wait().result.unwrap();
    }
    let both = first + bytes.len() as u64;
    assert_eq!(came(), [(0, 0), (2, both), (2, both)]);
}

/// Each of the large ones has as many pieces under way as it may, and all of them together as many as a connection may.
#[test]
fn large_objects_hold_up_neither_small_ones_nor_calls() {
    const LARGE: usize = 8;
    const LARGE_BYTES: usize = 64 * MIB;
    const SMALL_BYTES: usize = 128 << 10;
    let cluster = Cluster::new(2);
    let made = |bytes| cluster.make(1, bytes).wait().result.unwrap().unwrap();
    let large: Vec<_> = (0..LARGE).map(|_| made(LARGE_BYTES)).collect();
    let small = made(SMALL_BYTES);
    let (other_way, sum) = put(&cluster, SMALL_BYTES);
    let sent = || cluster.nodes[1].moved().sent_bytes;
    let before = sent();
    let arrived = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for value in &large {
            scope.spawn(|| {
                let loaded = cluster.client.load(value).unwrap();
                arrived.fetch_add(1, Ordering::SeqCst);
                assert_eq!(loaded.encoded().bytes().len(), LARGE_BYTES);
            });
        }
        while sent() - before < 16 * MIB as u64 {
            std::thread::yield_now();
        }
        let loaded = cluster.client.load(&small).unwrap();
        assert!(bytes_of(&loaded).iter().all(|byte| *byte == FILL));
        assert_eq!(sum_of(cluster.sum(1, &other_way)), sum);
        let arrived = arrived.load(Ordering::SeqCst);
        assert!(arrived < LARGE, "the small ones came after all large ones");
    });
    let large = (LARGE * LARGE_BYTES) as u64;
    let received = cluster.nodes[0].moved().received_bytes;
    assert!(received >= large, "{received} bytes came");
}

#[test]
fn what_a_holder_cannot_give_any_more_comes_from_another() {
    const BYTES: usize = 160 * MIB;
    let mut cluster = Cluster::new(3);
    let made = cluster.make(1, BYTES);
    let object = made.object();
    let value = made.wait().result.unwrap().unwrap();
    // From here on the head has it, too.
    let loaded = cluster.client.load(&value).unwrap();
    let first = cluster.nodes.remove(1);
    let sent = |node: &Node| node.moved().sent_bytes;
    let before = (sent(&first), sent(&cluster.nodes[0]));
    let reading = cluster.sum(2, &object);
    while sent(&first) - before.0 < 64 * MIB as u64 && reading.phase() != Phase::Ended {
        std::thread::yield_now();
    }
    drop(first);
    let sum = number(BYTES as u64 * u64::from(FILL));
    assert_eq!(sum_of(reading), sum);
    // What had arrived has stayed.
    assert_eq!(cluster.nodes[1].moved().received_bytes, BYTES as u64);
    let sent = sent(&cluster.nodes[0]) - before.1;
    assert!(sent < BYTES as u64, "the head has sent {sent}");
    drop(loaded);
}

#[test]
fn bytes_that_changed_at_a_holder_come_from_another() {
    const BYTES: usize = 5 * MIB;
    let cluster = Cluster::new(3);
    let made = cluster.make(1, BYTES);
    let object = made.object();
    let value = made.wait().result.unwrap().unwrap();
    let at = find_in_a_store(BYTES);
    // The head has it too now, and both know what it was.
    let loaded = cluster.client.load(&value).unwrap();
    assert!(bytes_of(&loaded).iter().all(|byte| *byte == FILL));
    let memory = OpenOptions::new().write(true).open("/proc/self/mem");
    memory
        .unwrap()
        .write_all_at(&[FILL ^ 0x40], at + 1_000_000)
        .unwrap();
    let sum = number(BYTES as u64 * u64::from(FILL));
    assert_eq!(sum_of(cluster.sum(2, &object)), sum);
    assert_eq!(cluster.nodes[2].moved().changed, 1);
    assert_eq!(cluster.nodes[0].moved().changed, 0);
}

fn bytes_of(readable: &impl Readable) -> Vec<u8> {
    readable.encoded().bytes().to_vec()
}

/// The address of so many bytes of what `make` makes, in memory that is shared, as that of stores is.
fn find_in_a_store(bytes: usize) -> u64 {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let wanted = vec![FILL; bytes];
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw-s ")) {
        let (from, rest) = line.split_once('-').unwrap();
        let (to, _) = rest.split_once(' ').unwrap();
        let [from, to] = [from, to].map(|it| u64::from_str_radix(it, 16).unwrap());
        // Objects of this size start at a page, and there are not many.
        let last = to.saturating_sub(bytes as u64).min(from + (64 << 20));
        for at in (from..last).step_by(4096) {
            let mut read = [0; 16];
            if memory.read_exact_at(&mut read, at).is_ok() && read == [FILL; 16] {
                let mut whole = vec![0; bytes];
                memory.read_exact_at(&mut whole, at).unwrap();
                if whole == wanted {
                    found.push(at);
                    break;
                }
            }
        }
    }
    assert_eq!(found.len(), 1, "only one node has it so far");
    found[0]
}
