//! Tasks on their way to a node that is only known by its id and its view: nothing that is said to it arrives.

use tokio::time::Instant;
use wasmrun_model::cluster::Labels;
use wasmrun_model::id::Incarnation;
use wasmrun_model::manifest::Asked;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::scheduler::{NodeInfo, PeerView};
use wasmrun_model::value::Handle;
use wasmrun_model::value::codec::Encoded;
use wasmrun_net::FrameError;

use super::super::oversize::Instead;
use super::super::protocol::{Body, Carried};
use super::super::session::Queue;
use super::*;
use crate::client::Client;
use crate::node::{Node, NodeConfig};
use crate::peers::Work as _;
use crate::records::job::Job;
use crate::records::options::Overrides;
use crate::records::task::TaskHandle;
use crate::testing::COUNTER;

const OTHER: NodeId = NodeId::from_bytes([2; 16]);
const OBJECT_MEMORY: usize = 4 << 20;
/// More than travels with a message.
const LARGE: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(60);

/// More than the node has.
fn two_cpus() -> Asked {
    Asked([(ResourceName::CPU, Amount::units(2))].into())
}

struct Sender {
    node: Node,
    exchange: Arc<Exchange>,
    client: Client,
    job: Arc<Job>,
    said: Queue,
    /// A node that could run the job, and how often it has told of itself.
    view: (Node, u64),
}

impl Sender {
    fn new() -> Self {
        let node = Node::start(NodeConfig {
            cpus: Some(Amount::units(1)),
            object_memory: Some(OBJECT_MEMORY as u64),
            ..NodeConfig::default()
        });
        let node = node.expect("it starts");
        let module = node.shared.engine.load(&wat::parse_str(COUNTER).unwrap());
        let module = module.expect("it is a module");
        let entry = Entry::Function(module.find("f").unwrap());
        let overrides = Overrides {
            resources: two_cpus(),
            retries: Some(3),
            ..Overrides::default()
        };
        let job = Job::new("f", &module, entry, &overrides, Grants::default());
        let shared = Arc::downgrade(&node.shared);
        let fabric = std::sync::Weak::<crate::cluster::Cluster>::new();
        let me = node.shared.home.node;
        let exchange = Exchange::of(me, shared, fabric, Default::default());
        node.shared.others.get_or_init(|| exchange.clone());
        exchange.peers.lock().joined(OTHER);
        let (_, said) = exchange.sessions.open(OTHER);
        let other = Node::start(NodeConfig {
            cpus: Some(Amount::units(2)),
            ..NodeConfig::default()
        });
        let mut sender = Self {
            client: node.client(),
            node,
            exchange,
            job: Arc::new(job.unwrap()),
            said,
            view: (other.unwrap(), 0),
        };
        sender.other_tells();
        sender
    }

    /// The other node tells that it has room.
    fn other_tells(&mut self) {
        let info = NodeInfo {
            id: OTHER,
            incarnation: Incarnation::default(),
            name: "other".parse().unwrap(),
            labels: Labels::new(),
        };
        let (other, version) = &mut self.view;
        *version += 1;
        let view = PeerView {
            version: *version,
            ..other.shared.ask(|ledger| ledger.own_view())
        };
        self.exchange.tell(|ledger| ledger.peer_view(info, view));
    }

    /// The future of a task that is never submitted.
    fn future(&self, number: u64) -> Reference {
        let driver = wasmrun_model::id::DriverId::from_bytes([7; 16]);
        let work = Work::Task(self.job.clone());
        let home = self.node.shared.home.clone();
        let cell = TaskCell::new(driver.task(number), driver, work, home);
        Reference::Task(Arc::new(cell))
    }

    fn submit(&self, values: Vec<Argument>) -> TaskHandle {
        let call = Call {
            values,
            ..Call::default()
        };
        self.client.submit(&self.job, call).unwrap()
    }

    /// Why a task has failed.
    fn failure(&self, task: &TaskHandle) -> String {
        let result = self.client.get(&task.object(), Some(LONG));
        result.expect_err("it has failed").to_string()
    }

    /// What is said next.
    fn next(&mut self) -> Queued {
        let until = Instant::now() + LONG;
        loop {
            assert!(Instant::now() < until, "nothing is said");
            if let Some(next) = self.next_soon() {
                return next;
            }
        }
    }

    /// What is said before the next tick.
    fn next_soon(&mut self) -> Option<Queued> {
        let control = &self.node.shared.control;
        let _timers = control.enter();
        let next = tokio::time::timeout(super::super::TICK, self.said.recv());
        match control.block_on(next) {
            Ok(next) => Some(next.expect("it is said")),
            Err(_) => {
                self.exchange.tell(|ledger| ledger.tick());
                None
            }
        }
    }

    /// The message that begins the task that is said next.
    fn next_place(&mut self) -> OneWay {
        match self.next() {
            Queued::Outgoing(outgoing) if matches!(*outgoing, Outgoing::Place(..)) => {
                let session = self.exchange.sessions.get(&OTHER);
                self.exchange
                    .encode(OTHER, &session.expect("it is there"), *outgoing)
            }
            _ => panic!("it goes to the other node"),
        }
    }

    /// How many of these are kept for the other node.
    fn loan_count(&self, all: &[&Reference]) -> usize {
        let find = |it: &Reference| match it.handle() {
            Handle::Object(name) => self.exchange.lent_as(&name),
            Handle::Actor(_) => None,
        };
        all.iter().filter_map(|it| find(it)).count()
    }
}

fn value(bytes: usize, references: Vec<Reference>) -> Argument {
    Argument::Value(Value::inline(Encoded::Postcard(vec![0; bytes]), references))
}

#[test]
fn arguments_that_the_other_node_fetches_take_no_room_in_the_store() {
    let mut sender = Sender::new();
    let full = Encoded::Postcard(vec![1; OBJECT_MEMORY - LARGE / 2]);
    let filler = sender.client.put(&sender.job.terms.tenant, full);
    let named = sender.future(1);
    let large = value(LARGE, vec![named.clone()]);
    sender.submit(vec![value(10, Vec::new()), large]);
    let OneWay::Place(place) = sender.next_place() else {
        panic!("it is placed");
    };
    let Message::Place { spec, attempt, .. } = place.message else {
        panic!("it is placed");
    };
    let carried = place.values.iter().map(|given| match given {
        CarriedArgument::Value(Carried {
            body: Body::At(at), ..
        }) => Some(at.id),
        CarriedArgument::Value(_) | CarriedArgument::Object(..) => None,
    });
    let carried: Vec<_> = carried.collect();
    let [None, Some(id)] = carried[..] else {
        panic!("only the second is fetched: {carried:?}");
    };
    let (bytes, len) = sender.exchange.argument(&id).expect("it is there");
    assert_eq!(
        (bytes.as_ref().len() as u64, len),
        (LARGE as u64, LARGE as u64)
    );
    assert!(sender.node.shared.store.get(&id).is_none());
    assert_eq!(sender.loan_count(&[&named]), 1);

    let settle = |attempt| {
        let (task, outcome) = (spec.id, Outcome::HandedBack);
        let message = Message::Settled {
            task,
            attempt,
            outcome,
        };
        let report = None;
        let settled = Settled { message, report };
        sender
            .exchange
            .one_way(OTHER, OneWay::Settled(Box::new(settled)));
    };
    settle(attempt.next());
    assert!(
        sender.exchange.argument(&id).is_some(),
        "that was another attempt"
    );
    settle(attempt);
    assert!(sender.exchange.argument(&id).is_none());
    drop(filler);
}

#[test]
fn a_task_that_is_too_long_to_be_sent_fails_for_good() {
    let mut sender = Sender::new();
    let (named, given) = (sender.future(1), sender.future(2));
    let references = vec![named.clone(), given.clone()];
    let task = sender.submit(vec![value(10, references)]);
    let message = sender.next_place();
    assert_eq!(sender.loan_count(&[&named, &given]), 2);
    let Some(Instead::Fail(unsent)) = Instead::of(&message) else {
        panic!("nobody else would hear of it");
    };
    let (bytes, max_bytes) = (5_000_000, 4_000_000);
    let error = FrameError::TooLong { bytes, max_bytes };
    sender.exchange.cannot_be_sent(OTHER, unsent, &error);

    assert_eq!(sender.loan_count(&[&named, &given]), 0);
    let why = sender.failure(&task);
    for part in [
        "cannot be sent to node",
        "5000000 bytes",
        "4000000",
        "put large data",
    ] {
        assert!(why.contains(part), "{why}");
    }
    // It is not tried again, though it has retries.
    while let Ok(queued) = sender.said.try_recv() {
        let is_place =
            matches!(&queued, Queued::Outgoing(it) if matches!(**it, Outgoing::Place(..)));
        assert!(!is_place, "it is sent again");
    }
}

#[test]
fn a_result_with_too_many_handles_fails_at_its_owner() {
    let sender = Sender::new();
    let named = [sender.future(1), sender.future(2)];
    let task = TaskId::from_bytes([5; 16]);
    let settled = |references: Vec<Reference>| {
        let value = Value::inline(Encoded::Postcard(vec![0; 10]), references);
        let report = Report::without_run(task, Ok(Some(value)));
        let message = Message::Settled {
            task,
            attempt: Attempt::FIRST,
            outcome: Outcome::Finished,
        };
        let report = Some(sender.exchange.report_order(OTHER, *report));
        OneWay::Settled(Box::new(Settled { message, report }))
    };
    assert!(Instead::of(&settled(Vec::new())).is_none());
    let message = settled(named.to_vec());
    let [one, two] = &named;
    assert_eq!(sender.loan_count(&[one, two]), 2);
    let Some(Instead::Say(OneWay::Settled(shorter), lent)) = Instead::of(&message) else {
        panic!("the owner would wait for ever");
    };
    let Message::Settled { outcome, .. } = &shorter.message else {
        panic!("it is the end of the same attempt");
    };
    assert_eq!(*outcome, Outcome::Failed(FailureKind::Final));
    let error = shorter.report.unwrap().result.unwrap_err();
    let why = TaskError::from(error).to_string();
    assert!(why.contains("give fewer handles"), "{why}");
    sender.exchange.unsaid(OTHER, &lent);
    assert_eq!(sender.loan_count(&[one, two]), 0);
}
