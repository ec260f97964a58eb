//! Two versions of a protocol, one minor number apart: what both know is said between them, and what only the newer one
//! knows is not.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use wasmrun_model::id::Incarnation;
use wasmrun_net::{
    BulkRefusal, BulkSender, CallError, Config, Network, Peer, Protocol, PullOptions, PullWhy,
    Range, SendError, Service, TooNew, Version,
};

use crate::harness::{Cluster, PATIENCE, node_id, soon};

/// As they were in 1.0.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum OldTell {
    Plain(u64),
}

/// As they are in 1.1.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum NewTell {
    Plain(u64),
    /// What would have been another field of the other one.
    Named(u64, String),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum OldAsk {
    Double(u64),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum NewAsk {
    Double(u64),
    Triple(u64),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum OldAnswer {
    Number(u64),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum NewAnswer {
    Number(u64),
    Word(String),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum OldBulk {
    Zeros,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum NewBulk {
    Zeros,
    Ones,
}

struct Old;

impl Protocol for Old {
    const VERSION: Version = Version { major: 1, minor: 0 };
    type OneWay = OldTell;
    type Request = OldAsk;
    type Response = OldAnswer;
    type Bulk = OldBulk;
}

struct New;

impl Protocol for New {
    const VERSION: Version = Version { major: 1, minor: 1 };
    type OneWay = NewTell;
    type Request = NewAsk;
    type Response = NewAnswer;
    type Bulk = NewBulk;

    fn one_way_since(message: &NewTell) -> u16 {
        u16::from(matches!(message, NewTell::Named(..)))
    }

    fn request_since(request: &NewAsk) -> u16 {
        u16::from(matches!(request, NewAsk::Triple(_)))
    }

    fn response_since(response: &NewAnswer) -> u16 {
        u16::from(matches!(response, NewAnswer::Word(_)))
    }

    fn bulk_since(request: &NewBulk) -> u16 {
        u16::from(*request == NewBulk::Ones)
    }
}

/// One that does not say what is new.
struct Careless;

impl Protocol for Careless {
    const VERSION: Version = Version { major: 1, minor: 1 };
    type OneWay = NewTell;
    type Request = NewAsk;
    type Response = NewAnswer;
    type Bulk = NewBulk;
}

/// Passes on what it is told, and answers as it can.
struct Answers<P: Protocol> {
    told: mpsc::UnboundedSender<P::OneWay>,
    protocol: PhantomData<P>,
}

trait Replies: Protocol {
    fn reply(from: &Peer<Self>, ask: Self::Request) -> Self::Response
    where
        Self: Sized;
}

impl Replies for Old {
    fn reply(_from: &Peer<Self>, OldAsk::Double(number): OldAsk) -> OldAnswer {
        OldAnswer::Number(2 * number)
    }
}

impl Replies for New {
    fn reply(from: &Peer<Self>, ask: NewAsk) -> NewAnswer {
        match ask {
            // What nobody should do.
            NewAsk::Double(0) => NewAnswer::Word("nothing".into()),
            NewAsk::Double(number) => match from.speaks() {
                Some(version) if version.minor >= 1 => NewAnswer::Word(format!("{}", 2 * number)),
                _ => NewAnswer::Number(2 * number),
            },
            NewAsk::Triple(number) => NewAnswer::Number(3 * number),
        }
    }
}

impl Replies for Careless {
    fn reply(_from: &Peer<Self>, _ask: NewAsk) -> NewAnswer {
        NewAnswer::Number(0)
    }
}

impl<P: Replies> Service<P> for Answers<P> {
    async fn one_way(&self, _from: &Peer<P>, _: Incarnation, message: P::OneWay) {
        let _ = self.told.send(message);
    }

    async fn request(&self, from: &Peer<P>, request: P::Request) -> P::Response {
        P::reply(from, request)
    }

    async fn bulk(
        &self,
        _from: &Peer<P>,
        _request: P::Bulk,
        range: Range,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        let bytes = vec![0; range.len as usize];
        to.write(bytes.into())
            .await
            .map_err(|_| BulkRefusal::Failed)
    }
}

struct Side<P: Protocol> {
    network: Network<P>,
    told: mpsc::UnboundedReceiver<P::OneWay>,
}

fn side<P: Replies>(config: Config) -> Side<P>
where
    P::OneWay: DeserializeOwned,
{
    let (told, hears) = mpsc::unbounded_channel();
    let service = Answers::<P> {
        told,
        protocol: PhantomData,
    };
    Side {
        network: Network::start(config, Arc::new(service)).expect("a network"),
        told: hears,
    }
}

/// Two that are connected, of which this one has dialled, and each as the other has it.
async fn connected<A: Replies, B: Replies>(dials: &Side<A>, waits: &Side<B>) -> (Peer<A>, Peer<B>) {
    let address = waits.network.local_address().expect("an address");
    let there = soon(dials.network.connect(vec![address])).await;
    let there = there.expect("versions that understand each other");
    // Bulk goes over a connection of its own, which whoever asks dials.
    let address = dials.network.local_address().expect("an address");
    let back = waits.network.peer(dials.network.id(), vec![address]);
    (there, back.expect("known"))
}

const SPOKEN: Version = Version { major: 1, minor: 0 };
const TOO_NEW: TooNew = TooNew {
    since: New::VERSION,
    spoken: Some(SPOKEN),
};

/// What the newer side may and may not say, and that the older one says what it always did.
async fn talk(new: (&mut Side<New>, Peer<New>), old: (&mut Side<Old>, Peer<Old>)) {
    let ((new, to_old), (old, to_new)) = (new, old);
    assert_eq!(
        (to_old.speaks(), to_new.speaks()),
        (Some(SPOKEN), Some(SPOKEN))
    );
    // Nothing is sent of what the other one does not know, and its place in the order is not taken.
    let named = NewTell::Named(1, "one".into());
    assert_eq!(to_old.send(&named).await, Err(SendError::TooNew(TOO_NEW)));
    assert_eq!(to_old.try_send(&named), Err(SendError::TooNew(TOO_NEW)));
    let asked = to_old.call(&NewAsk::Triple(1), PATIENCE).await;
    assert_eq!(asked, Err(CallError::TooNew(TOO_NEW)));
    let text = asked.expect_err("it is too new").to_string();
    for word in ["version 1.1", "speaks 1.0", "same wasmrun"] {
        assert!(text.contains(word), "{text}");
    }
    let mut to = [7; 9];
    let options = PullOptions::default();
    let pulled = soon(to_old.pull(&NewBulk::Ones, 0, &mut to, &options)).await;
    let why = pulled.expect_err("it is too new").why;
    assert_eq!(why, PullWhy::TooNew(TOO_NEW));
    // All that both know.
    to_old.send(&NewTell::Plain(2)).await.expect("sent");
    assert_eq!(soon(old.told.recv()).await, Some(OldTell::Plain(2)));
    to_new.send(&OldTell::Plain(3)).await.expect("sent");
    assert_eq!(soon(new.told.recv()).await, Some(NewTell::Plain(3)));
    let answer = to_old.call(&NewAsk::Double(4), PATIENCE).await;
    assert_eq!(answer, Ok(NewAnswer::Number(8)));
    let answer = to_new.call(&OldAsk::Double(5), PATIENCE).await;
    assert_eq!(answer, Ok(OldAnswer::Number(10)), "in words of 1.0");
    let pulled = soon(to_old.pull(&NewBulk::Zeros, 0, &mut to, &options)).await;
    pulled.expect("the bytes");
    let pulled = soon(to_new.pull(&OldBulk::Zeros, 0, &mut to, &options)).await;
    pulled.expect("the bytes");
    // A response that the other side could not read is not sent.
    let answer = to_new.call(&OldAsk::Double(0), PATIENCE).await;
    assert_eq!(answer, Err(CallError::ResponseLost));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_one_that_dials_keeps_to_what_both_know() {
    let cluster = Cluster::new();
    let mut new = side::<New>(cluster.node_config(1, 1));
    let mut old = side::<Old>(cluster.node_config(2, 1));
    let (to_old, to_new) = connected(&new, &old).await;
    talk((&mut new, to_old), (&mut old, to_new)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_one_that_is_dialled_keeps_to_what_both_know() {
    let cluster = Cluster::new();
    let mut new = side::<New>(cluster.node_config(1, 1));
    let mut old = side::<Old>(cluster.node_config(2, 1));
    let (to_new, to_old) = connected(&old, &new).await;
    talk((&mut new, to_old), (&mut old, to_new)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_newer_ones_say_all_that_there_is() {
    let cluster = Cluster::new();
    let (one, mut two) = (
        side::<New>(cluster.node_config(1, 1)),
        side::<New>(cluster.node_config(2, 1)),
    );
    let (peer, _) = connected(&one, &two).await;
    assert_eq!(peer.speaks(), Some(New::VERSION));
    let named = || NewTell::Named(1, "one".into());
    peer.send(&named()).await.expect("sent");
    assert_eq!(soon(two.told.recv()).await, Some(named()));
    let answer = peer.call(&NewAsk::Triple(2), PATIENCE).await;
    assert_eq!(answer, Ok(NewAnswer::Number(6)));
    let answer = peer.call(&NewAsk::Double(2), PATIENCE).await;
    assert_eq!(answer, Ok(NewAnswer::Word("4".into())));
    let mut to = [7; 9];
    let options = PullOptions::default();
    let pulled = peer.pull(&NewBulk::Ones, 0, &mut to, &options);
    soon(pulled).await.expect("the bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_new_waits_until_it_is_known_who_is_there() {
    let cluster = Cluster::new();
    let one = side::<New>(cluster.node_config(1, 1));
    let peer = one.network.peer(node_id(2), vec![]).expect("a peer");
    let unknown = TooNew {
        since: New::VERSION,
        spoken: None,
    };
    let named = || NewTell::Named(1, "one".into());
    assert_eq!(peer.try_send(&named()), Err(SendError::TooNew(unknown)));
    peer.try_send(&NewTell::Plain(1)).expect("taken");
    // A request waits no longer than it may.
    let brief = Duration::from_millis(50);
    let asked = soon(peer.call(&NewAsk::Triple(1), brief)).await;
    assert!(
        matches!(asked, Err(CallError::TimedOut { .. })),
        "{asked:?}"
    );
    let mut two = side::<New>(cluster.node_config(2, 1));
    let waiting = [(); 2].map(|()| peer.clone());
    let [tells, asks] = waiting;
    let tells = tokio::spawn(async move { tells.send(&NewTell::Named(1, "one".into())).await });
    let asks = tokio::spawn(async move { asks.call(&NewAsk::Triple(2), PATIENCE).await });
    let (_, _) = connected(&one, &two).await;
    assert_eq!(soon(tells).await.expect("no panic"), Ok(()));
    let answer = soon(asks).await.expect("no panic");
    assert_eq!(answer, Ok(NewAnswer::Number(6)));
    assert_eq!(soon(two.told.recv()).await, Some(NewTell::Plain(1)));
    assert_eq!(soon(two.told.recv()).await, Some(named()));
    // Whoever waits for a peer that is given up is told so.
    let away = one.network.peer(node_id(3), vec![]).expect("a peer");
    let sends = tokio::spawn(async move { away.send(&NewTell::Named(1, "one".into())).await });
    tokio::task::yield_now().await;
    one.network.forget(node_id(3));
    let sent = soon(sends).await.expect("no panic");
    assert_eq!(sent, Err(SendError::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_one_leaves_out_what_it_cannot_read() {
    let cluster = Cluster::new();
    let careless = side::<Careless>(cluster.node_config(1, 1));
    let mut old = side::<Old>(cluster.node_config(2, 1));
    let (peer, _) = connected(&careless, &old).await;
    let named = NewTell::Named(1, "one".into());
    peer.send(&named).await.expect("nobody said that it is new");
    peer.send(&NewTell::Plain(2)).await.expect("sent");
    assert_eq!(soon(old.told.recv()).await, Some(OldTell::Plain(2)));
    let asked = peer.call(&NewAsk::Triple(1), PATIENCE).await;
    assert_eq!(asked, Err(CallError::NotUnderstood));
    let mut to = [7; 9];
    let options = PullOptions::default();
    let pulled = peer.pull(&NewBulk::Ones, 0, &mut to, &options);
    let why = soon(pulled).await.expect_err("not understood").why;
    assert_eq!(why, PullWhy::Refused(BulkRefusal::Malformed));
    // The connection is none the worse for it.
    let answer = peer.call(&NewAsk::Double(4), PATIENCE).await;
    assert_eq!(answer, Ok(NewAnswer::Number(8)));
}
