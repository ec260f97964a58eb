//! Tasks on their way to a node that is only known by its id: nothing that is said to it arrives.

use wasmrun_model::cluster::Labels;
use wasmrun_model::id::{DriverId, Incarnation, JobId};
use wasmrun_model::manifest::Asked;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::scheduler::NodeInfo;
use wasmrun_model::task::Terms;
use wasmrun_model::value::Handle;
use wasmrun_model::value::codec::Encoded;

use wasmrun_net::FrameError;

use super::super::Queue;
use super::super::oversize::Instead;
use super::*;
use crate::node::{Node, NodeConfig};
use crate::options::Overrides;

const OTHER: NodeId = NodeId::from_bytes([2; 16]);
const OBJECT_MEMORY: u64 = 1 << 20;

struct Sender {
    node: Node,
    exchange: Arc<Exchange>,
    job: Arc<Job>,
}

impl Sender {
    fn new() -> Self {
        let node = Node::start(NodeConfig {
            cpus: Some(Amount::units(1)),
            object_memory: Some(OBJECT_MEMORY),
            room_patience: Some(Duration::from_millis(10)),
            ..NodeConfig::default()
        });
        let node = node.expect("it starts");
        let text = r#"(component
            (core module $m (func (export "f")))
            (core instance $i (instantiate $m))
            (func (export "f") (canon lift (core func $i "f"))))"#;
        let module = node.shared.engine.load(&wat::parse_str(text).unwrap());
        let module = module.expect("it is a module");
        let entry = Entry::Function(module.find("f").unwrap());
        // More than this node has.
        let overrides = Overrides {
            resources: Asked([(ResourceName::CPU, Amount::units(2))].into()),
            retries: Some(3),
            ..Overrides::default()
        };
        let job = Job::new("f", &module, entry, &overrides, Grants::default());
        let shared = Arc::downgrade(&node.shared);
        let exchange = Exchange::of(node.shared.home.node, shared, Default::default());
        exchange.borrowed.joined(OTHER);
        Self {
            node,
            exchange,
            job: Arc::new(job.unwrap()),
        }
    }

    fn cell(&self, number: u64) -> Arc<TaskCell> {
        let driver = DriverId::from_bytes([7; 16]);
        let work = Work::Task(self.job.clone());
        let home = self.node.shared.home.clone();
        Arc::new(TaskCell::new(driver.task(number), driver, work, home))
    }

    fn place(&self, cell: &Arc<TaskCell>, values: Vec<Argument>) -> Result<Place, TaskError> {
        let spec = TaskSpec {
            id: cell.id,
            driver: cell.driver,
            job: JobId::from_bytes([7; 16]),
            terms: Arc::new(Terms::clone(&self.job.terms)),
            kind: TaskKind::Task,
            args: Vec::new(),
        };
        let message = Message::Place {
            spec,
            attempt: Attempt::FIRST,
            hops: 0,
        };
        let call = Call {
            values,
            ..Call::default()
        };
        let exchange = &self.exchange;
        let placing = exchange.place_order(OTHER, &message, cell, call);
        self.node.shared.control.block_on(placing)
    }

    /// How many of these are kept for the other node.
    fn lent(&self, all: &[&Reference]) -> usize {
        let find = |it: &Reference| match it.handle() {
            Handle::Object(name) => self.exchange.borrowed.find(&name),
            Handle::Actor(_) => None,
        };
        all.iter().filter_map(|it| find(it)).count()
    }
}

fn value(bytes: u64, references: Vec<Reference>) -> Argument {
    let encoded = Encoded::Postcard(vec![0; usize::try_from(bytes).unwrap()]);
    Argument::Value(Value::inline(encoded, references))
}

#[test]
fn what_is_not_sent_lends_nothing() {
    let sender = Sender::new();
    let object = |number| Reference::Task(sender.cell(number));
    let (named, given) = (object(1), object(2));
    let arguments = || {
        vec![
            value(10, vec![named.clone()]),
            Argument::Object(Object(given.clone())),
        ]
    };
    let cell = sender.cell(0);
    let mut too_much = arguments();
    too_much.push(value(2 * OBJECT_MEMORY, Vec::new()));
    let why = sender.place(&cell, too_much).expect_err("there is no room");
    assert!(
        why.to_string().contains("an argument cannot be stored"),
        "{why}"
    );
    assert_eq!(sender.lent(&[&named, &given]), 0);
    assert!(sender.exchange.sent.lock().is_empty());

    let sent = sender.place(&cell, arguments()).expect("all fits");
    assert_eq!(sent.values.len(), 2);
    assert_eq!(sender.lent(&[&named, &given]), 2);

    // Unless the message as a whole is too long.
    let instead = Instead::of(&OneWay::Place(Box::new(sent)));
    let Some(Instead::Fail(unsent)) = instead else {
        panic!("nobody else would hear of it");
    };
    let exchange = &sender.exchange;
    exchange.cannot_be_sent(OTHER, unsent, &FrameError::Malformed);
    assert_eq!(sender.lent(&[&named, &given]), 0);
}

#[test]
fn a_task_that_is_too_long_to_be_sent_fails_for_good() {
    let sender = Sender::new();
    let (exchange, shared) = (&sender.exchange, &sender.node.shared);
    shared.exchange.get_or_init(|| exchange.clone());
    let (queue, mut said) = Queue::new();
    exchange.queues.lock().insert(OTHER, queue);
    let other = Node::start(NodeConfig {
        cpus: Some(Amount::units(2)),
        ..NodeConfig::default()
    });
    let info = NodeInfo {
        id: OTHER,
        incarnation: Incarnation::default(),
        name: "other".parse().unwrap(),
        labels: Labels::new(),
    };
    let view = other.unwrap().shared.ledger.lock().own_view();
    exchange.carry_out(|ledger| ledger.peer_view(info, view));

    let client = sender.node.client();
    let (named, given) = (sender.cell(1), sender.cell(2));
    let (named, given) = (Reference::Task(named), Reference::Task(given));
    let call = Call {
        values: vec![value(10, vec![named.clone(), given.clone()])],
        ..Call::default()
    };
    let handle = client.submit(&sender.job, call).unwrap();
    let Ok(Queued::Outgoing(outgoing)) = said.try_recv() else {
        panic!("it goes to the other node");
    };
    let encoding = exchange.encode(OTHER, *outgoing);
    let message = shared.control.block_on(encoding).expect("it can be named");
    assert_eq!(sender.lent(&[&named, &given]), 2);
    let Some(Instead::Fail(unsent)) = Instead::of(&message) else {
        panic!("nobody else would hear of it");
    };
    let (bytes, max_bytes) = (5_000_000, 4_000_000);
    let error = FrameError::TooLong { bytes, max_bytes };
    exchange.cannot_be_sent(OTHER, unsent, &error);

    assert_eq!(sender.lent(&[&named, &given]), 0);
    let why = client.get(&handle.object(), Some(Duration::ZERO));
    let why = why.expect_err("it has failed").to_string();
    for part in [
        "cannot be sent to node",
        "5000000 bytes",
        "4000000",
        "put large data",
    ] {
        assert!(why.contains(part), "{why}");
    }
    // It is not tried again, though it has retries.
    while let Ok(queued) = said.try_recv() {
        let is_place =
            matches!(&queued, Queued::Outgoing(it) if matches!(**it, Outgoing::Place(..)));
        assert!(!is_place, "it is sent again");
    }
}
