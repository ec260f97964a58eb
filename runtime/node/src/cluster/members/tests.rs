use async_trait::async_trait;
use futures_util::FutureExt;
use wasmrun_model::resource::{NodeResources, Pool};
use wasmrun_net::{BulkRefusal, BulkSender, Range};

use super::*;
use crate::peers;

/// Writes down what it hears.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

#[async_trait]
impl Work for Heard {
    fn one_way(&self, _: NodeId, _: peers::OneWay) {}

    async fn request(&self, _: NodeId, _: peers::Request) -> peers::Response {
        std::future::pending().await
    }

    async fn bulk(
        &self,
        _: NodeId,
        _: peers::Bulk,
        _: Range,
        _: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        Err(BulkRefusal::NotHere)
    }

    fn joined(&self, node: &NodeInfo) {
        self.note(format!("joined {}", node.incarnation));
    }

    fn left(&self, incarnations: &[(NodeId, Incarnation)], is_over: bool) {
        let how = if is_over { "left" } else { "is not seen in" };
        let incarnations: Vec<String> = incarnations
            .iter()
            .map(|(_, incarnation)| incarnation.to_string())
            .collect();
        self.note(format!("{how} {}", incarnations.join(" and ")));
    }

    fn view(&self, _: NodeInfo, view: PeerView) {
        self.note(format!("view {}", view.version));
    }

    fn own_view(&self) -> PeerView {
        view(0)
    }

    fn is_lease_confirmed(&self, _: bool) {}

    fn set_draining(&self, _: NodeId, is_draining: bool) {
        self.note(format!("draining {is_draining}"));
    }
}

impl Heard {
    fn note(&self, what: String) {
        self.0.lock().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

fn view(version: u64) -> PeerView {
    PeerView {
        version,
        resources: Default::default(),
        queue: Default::default(),
        usage: Default::default(),
    }
}

fn record(incarnation: u64) -> NodeRecord {
    NodeRecord {
        name: "b".parse().unwrap(),
        labels: Labels::new(),
        incarnation: Incarnation(incarnation),
        addresses: Vec::new(),
        is_head: false,
        is_draining: false,
        total: Amounts::new(),
        version: String::new(),
    }
}

const NODE: NodeId = NodeId::from_bytes([2; 16]);

fn members() -> (Arc<Members>, Arc<Heard>) {
    let (members, heard) = (Arc::new(Members::new()), Arc::new(Heard::default()));
    members.set_work(heard.clone());
    (members, heard)
}

#[test]
fn a_member_is_heard_of_between_joining_and_leaving() {
    let (members, heard) = members();
    members.view(NODE, Incarnation(1), view(1));
    members.join(NODE, Incarnation(7), record(1));
    for (incarnation, version) in [(1, 2), (1, 2), (1, 1), (2, 3), (1, 3)] {
        members.view(NODE, Incarnation(incarnation), view(version));
    }
    let mut draining = record(1);
    draining.is_draining = true;
    members.amend(NODE, draining);
    members.leave(NODE);
    members.leave(NODE);
    members.view(NODE, Incarnation(1), view(4));
    let told = members.while_alive(NODE, Incarnation(1), |_| panic!("it has left"));
    told.now_or_never().expect("there is nothing to wait for");
    let expected = ["joined 1", "view 2", "view 3", "draining true", "left 1"];
    assert_eq!(heard.take(), expected);
    assert_eq!(members.rows(|_| true)[0].state, "dead");
    // A new incarnation begins with nothing; that it drains is told once the scheduler knows it.
    let mut next = record(2);
    next.is_draining = true;
    members.join(NODE, Incarnation(8), next);
    members.view(NODE, Incarnation(2), view(1));
    assert_eq!(heard.take(), ["joined 2", "view 1", "draining true"]);
    assert_eq!(members.rows(|_| false)[0].state, "unreachable");
}

#[test]
fn of_nodes_that_have_died_the_last_is_always_remembered() {
    let mut table = Table::default();
    for number in (0..MOST_DEAD as u32 + 9).rev() {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        let node = NodeId::from_bytes(id);
        table.note_dead(node, Incarnation(1));
        assert!(table.dead.contains_key(&node), "{number}");
    }
    assert_eq!(table.dead.len(), MOST_DEAD);
}

#[tokio::test]
async fn who_speaks_too_soon_waits_and_who_is_dead_does_not() {
    let (members, heard) = members();
    let early = tokio::spawn({
        let members = members.clone();
        async move { members.admitted(NODE, Some(Incarnation(2))).await }
    });
    tokio::task::yield_now().await;
    members.join(NODE, Incarnation(1), record(1));
    members.leave(NODE);
    assert_eq!(members.admitted(NODE, Some(Incarnation(1))).await, None);
    members.join(NODE, Incarnation(2), record(2));
    assert_eq!(early.await.unwrap(), Some(Incarnation(2)));
    assert_eq!(members.admitted(NODE, None).await, Some(Incarnation(2)));
    // Where it was we who were cut off, the same incarnation joins again.
    members.lose_sight();
    members.join(NODE, Incarnation(2), record(2));
    let again = members.admitted(NODE, Some(Incarnation(2))).await;
    assert_eq!(again, Some(Incarnation(2)));
    heard.take();
    members.give_up_unseen();
    assert!(heard.take().is_empty(), "it has joined again");
    // It died meanwhile.
    members.lose_sight();
    members.give_up_unseen();
    assert_eq!(heard.take(), ["is not seen in 2", "left 2"]);
    let late = members.admitted(NODE, Some(Incarnation(2))).await;
    assert_eq!(late, None);
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_until_its_sender_is_known_and_a_request_for_a_while() {
    let (members, _) = members();
    let asked = members.admitted_soon(NODE, Some(Incarnation(1))).await;
    assert_eq!(asked, None);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = |incarnation: u64| {
        let (members, told) = (members.clone(), told.clone());
        tokio::spawn(async move {
            let note = |_: &dyn Work| told.lock().push(incarnation);
            members
                .while_alive(NODE, Incarnation(incarnation), note)
                .await;
        })
    };
    let mut early = tell(2);
    let waited = tokio::time::timeout(100 * ADMISSION, &mut early).await;
    assert!(waited.is_err() && told.lock().is_empty());
    members.join(NODE, Incarnation(1), record(2));
    early.await.unwrap();
    // This node has lost sight of it: it may live. Then it is known not to.
    members.lose_sight();
    let mut unseen = tell(2);
    let waited = tokio::time::timeout(100 * ADMISSION, &mut unseen).await;
    assert!(waited.is_err());
    members.give_up_unseen();
    unseen.await.unwrap();
    assert_eq!(*told.lock(), [2]);
}

/// What is done for one of them may need another.
#[test]
fn sight_of_all_is_lost_at_once() {
    let (members, heard) = members();
    members.join(NODE, Incarnation(1), record(1));
    members.join(NodeId::from_bytes([3; 16]), Incarnation(4), record(5));
    heard.take();
    members.lose_sight();
    members.give_up_unseen();
    let expected = ["is not seen in 1 and 5", "left 1 and 5"];
    assert_eq!(heard.take(), expected);
    assert!(members.ids().is_empty());
}

#[test]
fn requests_go_first_to_whom_has_the_most_room_and_not_to_whom_is_drained() {
    let (members, _heard) = members();
    let cpus = |count: u32| {
        let mut resources = NodeResources::new();
        let pool = Pool::for_name(&ResourceName::CPU, Amount::units(count)).unwrap();
        resources.add(ResourceName::CPU, pool).unwrap();
        resources.report()
    };
    for (node, count) in [(2, 1), (3, 4), (4, 2), (5, 8)] {
        let node = NodeId::from_bytes([node; 16]);
        let is_draining = count == 8;
        let record = NodeRecord {
            is_draining,
            ..record(1)
        };
        members.join(node, Incarnation(1), record);
        let view = PeerView {
            resources: cpus(count),
            ..view(1)
        };
        members.view(node, Incarnation(1), view);
    }
    // Nothing is known of it yet.
    members.join(NodeId::from_bytes([6; 16]), Incarnation(1), record(1));
    let with_room = |request: Option<&Request>| {
        let nodes = members.with_room(request).into_iter();
        nodes.map(|node| node.as_bytes()[0]).collect::<Vec<_>>()
    };
    assert_eq!(with_room(None), [3, 4, 2]);
    let mut amounts = ResourceSet::new();
    amounts.set(ResourceName::CPU, Amount::units(2));
    let two = Request::new(amounts).unwrap();
    assert_eq!(with_room(Some(&two)), [3, 4]);
}
