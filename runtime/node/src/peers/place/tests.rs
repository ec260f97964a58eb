//! Tasks on their way to a node that is only known by its id and its view: nothing that is said to it arrives.

use tokio::time::Instant;
use wasmrun_engine::Wishes;
use wasmrun_model::cluster::Labels;
use wasmrun_model::id::Incarnation;
use wasmrun_model::manifest::Asked;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::scheduler::{NodeInfo, PeerView};
use wasmrun_model::value::Handle;
use wasmrun_model::value::codec::Encoded;
use wasmrun_net::FrameError;

use super::super::oversize::Instead;
use super::super::session::Queue;
use super::*;
use crate::actor::ActorOptions;
use crate::client::Client;
use crate::node::{Node, NodeConfig};
use crate::peers::Work as _;
use crate::records::class::ActorJob;
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
    module: Module,
    job: Arc<Job>,
    said: Queue,
    /// A node that could run the job, and how often it has told of itself.
    view: (Node, u64),
}

impl Sender {
    fn new(room_patience: Duration) -> Self {
        let node = Node::start(NodeConfig {
            cpus: Some(Amount::units(1)),
            object_memory: Some(OBJECT_MEMORY as u64),
            room_patience: Some(room_patience),
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
        exchange.borrowed.joined(OTHER);
        let (_, said) = exchange.sessions.open(OTHER);
        let other = Node::start(NodeConfig {
            cpus: Some(Amount::units(2)),
            ..NodeConfig::default()
        });
        let mut sender = Self {
            client: node.client(),
            module,
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
                self.exchange.encode(OTHER, *outgoing)
            }
            _ => panic!("it goes to the other node"),
        }
    }

    /// How many of these are kept for the other node.
    fn lent(&self, all: &[&Reference]) -> usize {
        let find = |it: &Reference| match it.handle() {
            Handle::Object(name) => self.exchange.borrowed.find(&name),
            Handle::Actor(_) => None,
        };
        all.iter().filter_map(|it| find(it)).count()
    }

    /// Leaves no room for a large value.
    fn fill(&self) -> Object {
        let value = Encoded::Postcard(vec![1; OBJECT_MEMORY - LARGE / 2]);
        let filler = self.client.put(&self.job.terms.tenant, value);
        filler.expect("there is room")
    }
}

fn value(bytes: usize, references: Vec<Reference>) -> Argument {
    Argument::Value(Value::inline(Encoded::Postcard(vec![0; bytes]), references))
}

#[test]
fn what_is_not_sent_lends_nothing() {
    let mut sender = Sender::new(LONG);
    let (named, given) = (sender.future(1), sender.future(2));
    let arguments = || {
        vec![
            value(10, vec![named.clone()]),
            value(LARGE, Vec::new()),
            Argument::Object(Object(given.clone())),
        ]
    };
    let mut too_much = arguments();
    too_much.push(value(2 * OBJECT_MEMORY, Vec::new()));
    let too_much = sender.submit(too_much);
    let why = sender.failure(&too_much);
    assert!(why.contains("can never fit"), "{why}");
    assert_eq!(sender.lent(&[&named, &given]), 0);
    assert!(sender.exchange.sent.lock().is_empty());
    assert!(sender.said.try_recv().is_err());
}

#[test]
fn a_task_that_is_too_long_to_be_sent_fails_for_good() {
    let mut sender = Sender::new(LONG);
    let (named, given) = (sender.future(1), sender.future(2));
    let references = vec![named.clone(), given.clone()];
    let task = sender.submit(vec![value(10, references)]);
    let message = sender.next_place();
    assert_eq!(sender.lent(&[&named, &given]), 2);
    let Some(Instead::Fail(unsent)) = Instead::of(&message) else {
        panic!("nobody else would hear of it");
    };
    let (bytes, max_bytes) = (5_000_000, 4_000_000);
    let error = FrameError::TooLong { bytes, max_bytes };
    sender.exchange.cannot_be_sent(OTHER, unsent, &error);

    assert_eq!(sender.lent(&[&named, &given]), 0);
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
fn what_makes_room_is_said_before_what_needs_it() {
    let mut sender = Sender::new(LONG);
    let filler = sender.fill();
    let task = sender.submit(vec![value(LARGE, Vec::new())]);
    let name = task.object().name();
    assert!(sender.exchange.is_staged(&name.id.task()));
    sender.exchange.send(OTHER, OneWay::Release(name, 1));
    assert!(matches!(sender.next(), Queued::Message(OneWay::Release(it, 1)) if it == name));
    drop(filler);
    let OneWay::Place(place) = sender.next_place() else {
        panic!("it is placed");
    };
    let Message::Place { attempt, .. } = place.message else {
        panic!("it is placed");
    };
    assert_eq!(attempt, Attempt::FIRST);
    assert_eq!(sender.exchange.sent.lock().len(), 1);
}

#[test]
fn a_task_whose_arguments_find_no_room_goes_back_and_keeps_its_retries() {
    let mut sender = Sender::new(Duration::from_millis(10));
    let filler = sender.fill();
    let task = sender.submit(vec![value(LARGE, Vec::new())]);
    let attempts = 3 + 2;
    for attempt in 1..=attempts {
        let until = Instant::now() + LONG;
        while sender.node.shared.counters.no_room.get() < attempt {
            assert!(Instant::now() < until, "it waits");
            assert!(sender.next_soon().is_none(), "nothing is sent");
        }
        assert!(sender.client.explain(&task).is_some(), "it has not ended");
        sender.other_tells();
    }
    drop(filler);
    sender.other_tells();
    sender.next_place();
}

#[test]
fn what_is_withdrawn_before_its_arguments_are_stored_is_settled_and_not_sent() {
    let mut sender = Sender::new(LONG);
    let filler = sender.fill();
    let task = sender.submit(vec![value(LARGE, Vec::new())]);
    let id = task.object().name().id.task();
    assert!(sender.exchange.is_staged(&id));
    sender.client.cancel(&task);
    assert!(!sender.exchange.is_staged(&id));
    drop(filler);
    // What is said next is of the next task.
    let next = sender.submit(vec![value(10, Vec::new())]);
    let OneWay::Place(place) = sender.next_place() else {
        panic!("it is placed");
    };
    let Message::Place { spec, .. } = place.message else {
        panic!("it is placed");
    };
    assert_eq!(spec.id, next.object().name().id.task());
    assert!(sender.exchange.sent.lock().is_empty());
}

#[test]
fn later_calls_of_an_actor_wait_for_the_arguments_of_earlier_ones() {
    let mut sender = Sender::new(LONG);
    let options = ActorOptions {
        wishes: Wishes {
            resources: vec![("CPU".into(), "2".into())],
            ..Wishes::default()
        },
        ..ActorOptions::default()
    };
    let class = sender.module.find_class("counter").unwrap();
    let job = ActorJob::new(&sender.module, class, options).unwrap();
    let actor = sender
        .client
        .create_actor(&Arc::new(job), Vec::new(), None, None);
    let actor = actor.unwrap();
    let OneWay::Place(place) = sender.next_place() else {
        panic!("it is created there");
    };
    let Message::Place { spec, attempt, .. } = place.message else {
        panic!("it is created there");
    };
    let task = spec.id;
    let message = Message::Placed { task, attempt };
    sender
        .exchange
        .one_way(OTHER, OneWay::Scheduler(message.into()));
    sender
        .exchange
        .one_way(OTHER, OneWay::Lives(actor.id(), attempt));

    let call = |bytes| actor.call("call", vec![value(bytes, Vec::new())]).unwrap();
    let (first, filler) = (call(10), sender.fill());
    let calls = [first, call(LARGE), call(20), call(30)];
    let calls = calls.map(|it| it.id().task());
    let said = |sender: &mut Sender| loop {
        if let Queued::Outgoing(it) = sender.next()
            && let Outgoing::Place(_, cell, _) = *it
        {
            return cell.id;
        }
    };
    assert_eq!(said(&mut sender), calls[0]);
    assert!(calls[1..].iter().all(|it| sender.exchange.is_staged(it)));
    sender
        .exchange
        .send(OTHER, OneWay::Drop(ObjectId::of(task, 0)));
    assert!(matches!(sender.next(), Queued::Message(OneWay::Drop(_))));
    drop(filler);
    let order = [said(&mut sender), said(&mut sender), said(&mut sender)];
    assert_eq!(order, calls[1..]);
}
