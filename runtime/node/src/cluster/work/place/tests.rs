//! Tasks on their way to a node that is only known by its id: nothing that is said to it arrives.

use wasmrun_model::id::{DriverId, JobId};
use wasmrun_model::task::Terms;
use wasmrun_model::value::Handle;
use wasmrun_model::value::codec::Encoded;

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
        let overrides = Overrides::default();
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

    let sent = sender.place(&cell, arguments());
    assert_eq!(sent.expect("all fits").values.len(), 2);
    assert_eq!(sender.lent(&[&named, &given]), 2);
}
