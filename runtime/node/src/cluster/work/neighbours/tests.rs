//! The sockets between neighbours: who gets something there, who does not, and what becomes of it.

use std::os::fd::OwnedFd;

use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::DriverId;
use wasmrun_store::{Copy, Form, Object, StoreConfig};

use super::frame::{Say, Tell};
use super::*;

const MIB: u64 = 1 << 20;
/// More than any of these takes; who waits for longer waits for ever.
const LONG: Duration = Duration::from_secs(60);

/// A node, as far as its neighbours see it.
struct Side {
    neighbours: Arc<Neighbours>,
    dir: TempDir,
}

fn node(n: u8) -> NodeId {
    NodeId::from_bytes([n; 16])
}

fn id(n: u64) -> ObjectId {
    ObjectId::of(DriverId::from_bytes([1; 16]).task(n), 0)
}

fn tenant(name: &str) -> TenantName {
    name.parse().unwrap()
}

fn wanted(n: u64, len: u64) -> Wanted {
    Wanted {
        id: id(n),
        owner: node(1),
        tenant: TenantName::default(),
        form: Form::Postcard,
        len,
    }
}

fn bytes(n: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + n) as u8).collect()
}

fn put(store: &Store, n: u64, len: u64) -> Object {
    let tenant = TenantName::default();
    let mut writer = store
        .try_create(&tenant, id(n), len, Form::Postcard)
        .unwrap();
    writer.copy_from(&bytes(n, len));
    writer.seal()
}

/// Looks again and again, as long as others have something to do.
async fn eventually(is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, looking).await.unwrap();
}

impl Side {
    fn new(n: u8, capacity: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(StoreConfig::new(capacity)).unwrap();
        let control = Handle::current();
        let neighbours = Neighbours::start(node(n), dir.path(), store, &control, LONG).unwrap();
        Self { neighbours, dir }
    }

    fn store(&self) -> &Store {
        &self.neighbours.store
    }

    /// What this one tells a member of its machine.
    fn invitation(&self, to: &Self) -> Invitation {
        let machine = &to.neighbours.machine;
        self.neighbours.invite(to.neighbours.me, machine).unwrap()
    }

    async fn line_to(&self, other: &Self) -> Arc<Line> {
        let invitation = other.invitation(self);
        let (neighbours, node) = (&self.neighbours, other.neighbours.me);
        let line = neighbours.connect(node, &invitation).await.unwrap();
        let way = Way {
            line: Arc::new(OnceCell::new_with(Some(Some(line.clone())))),
            ..Way::default()
        };
        neighbours.ways.lock().insert(node, way);
        line
    }

    fn lent(&self) -> (u64, u64) {
        let lent = self.neighbours.lent();
        (lent.objects, lent.bytes)
    }

    fn borrowed(&self) -> (u64, u64, u64) {
        let usage = self.store().usage();
        self.store().check();
        (
            usage.borrowed_objects,
            usage.borrowed_bytes,
            usage.used_bytes,
        )
    }

    async fn stranger(&self) -> UnixStream {
        UnixStream::connect(&self.neighbours.path).await.unwrap()
    }
}

/// Whether nothing but the end comes.
async fn gets_nothing(socket: UnixStream) -> bool {
    let read = frame::read::<Tell>(&socket);
    tokio::time::timeout(LONG, read).await.unwrap().is_err()
}

#[tokio::test]
async fn what_a_neighbour_has_is_read_in_place_and_returned() {
    let (a, b) = (Side::new(1, 64 * MIB), Side::new(2, 64 * MIB));
    let objects = [put(a.store(), 1, 3 * MIB + 1), put(a.store(), 2, 100_000)];
    objects[0].set_sum(0, MIB, 77);
    let line = b.line_to(&a).await;
    let one = line.ask(b.store(), &wanted(1, 3 * MIB + 1)).await.unwrap();
    let other = line.ask(b.store(), &wanted(2, 100_000)).await.unwrap();
    assert!(*one == *bytes(1, 3 * MIB + 1) && *other == *bytes(2, 100_000));
    assert_eq!(one.object().sum(0, MIB), Some(77), "it is known there");
    // A client of the reader's maps the same memory.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    wasmrun_store::send(&ours, b"x", &one).unwrap();
    let received = wasmrun_store::receive(&theirs, &mut [0]).unwrap();
    let wasmrun_store::Beside::Descriptor(segment) = received.1 else {
        panic!("its segment can be shared");
    };
    let mut segments = wasmrun_store::Segments::default();
    segments.add(&one.place().unwrap(), segment).unwrap();
    let seen = segments.view(&one.place().unwrap()).unwrap();
    assert!(*seen == *one);
    assert_eq!(one.object().copy(), Copy::Secondary);
    assert_eq!(b.borrowed(), (2, 3 * MIB + 100_001, 0), "it takes no room");
    assert_eq!(a.lent(), (2, 3 * MIB + 100_001));
    // The owner drops it: it stays for whoever looks at it.
    drop(objects);
    assert!(a.store().usage().used_bytes > 3 * MIB);
    drop(one);
    eventually(|| a.lent() == (1, 100_000)).await;
    drop(other);
    eventually(|| a.lent() == (0, 0)).await;
    assert_eq!(b.borrowed(), (0, 0, 0));
    assert_eq!(a.store().usage().objects, 0);
}

#[tokio::test]
async fn who_has_no_secret_of_its_own_gets_nothing() {
    let (a, b) = (Side::new(1, 64 * MIB), Side::new(2, 64 * MIB));
    let _object = put(a.store(), 1, MIB);
    let invitation = a.invitation(&b);
    let hello = |node, secret| Say::Hello { node, secret };
    let ask = Say::Ask {
        object: id(1),
        tenant: TenantName::default(),
        len: MIB,
    };
    // A wrong one, another node's, and none at all.
    let wrong = [
        hello(node(2), Secret([0; 16])),
        hello(node(3), invitation.secret),
        ask,
        Say::Returned { loan: 1 },
    ];
    for said in wrong {
        let (reading, mut out) = a.stranger().await.into_split();
        frame::write(&mut out, &said).await.unwrap();
        assert!(
            gets_nothing(reading.reunite(out).unwrap()).await,
            "{said:?}"
        );
    }
    // Nonsense, and giant lengths.
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0, 0, 0, 0]] {
        let mut stranger = a.stranger().await;
        stranger.write_all(said).await.unwrap();
        assert!(gets_nothing(stranger).await, "{said:?}");
    }
    // What was told serves once, and only this life.
    let line = b.neighbours.connect(node(1), &invitation).await.unwrap();
    assert!(b.neighbours.connect(node(1), &invitation).await.is_err());
    let later = a.invitation(&b);
    a.neighbours.forget(node(2));
    assert!(b.neighbours.connect(node(1), &later).await.is_err());
    // And who was let in before that is lent nothing any more.
    assert!(line.ask(b.store(), &wanted(1, MIB)).await.is_err());
    assert_eq!(a.lent(), (0, 0));
    // Of another machine nobody is told anything.
    assert!(a.neighbours.invite(node(2), "elsewhere").is_none());
}

#[tokio::test]
async fn only_what_is_asked_for_by_its_name_is_lent() {
    let (a, b) = (Side::new(1, 64 * MIB), Side::new(2, 64 * MIB));
    let _objects = [put(a.store(), 1, MIB), put(a.store(), 2, 1000)];
    let line = b.line_to(&a).await;
    let others = Wanted {
        tenant: tenant("others"),
        ..wanted(1, MIB)
    };
    let wrong = [
        others,
        wanted(1, MIB - 1),
        wanted(1, u64::MAX),
        wanted(2, 1000),
        wanted(3, MIB),
    ];
    for wanted in wrong {
        assert!(line.ask(b.store(), &wanted).await.is_err(), "{wanted:?}");
    }
    assert_eq!((a.lent(), b.borrowed()), ((0, 0), (0, 0, 0)));
    assert!(line.ask(b.store(), &wanted(1, MIB)).await.is_ok());
    // And what is here already is not borrowed.
    let _own = put(b.store(), 3, MIB);
    let _theirs = put(a.store(), 3, MIB);
    assert!(line.ask(b.store(), &wanted(3, MIB)).await.is_err());
    eventually(|| a.lent() == (0, 0)).await;
}

#[tokio::test]
async fn who_listens_there_and_is_not_the_one_is_told_nothing() {
    let (a, b) = (Side::new(1, 64 * MIB), Side::new(2, 64 * MIB));
    let invitation = a.invitation(&b);
    std::fs::remove_file(&invitation.path).unwrap();
    assert!(b.neighbours.connect(node(1), &invitation).await.is_err());
    let listener = UnixListener::bind(&invitation.path).unwrap();
    let connecting = b.neighbours.connect(node(1), &invitation);
    let posing = async {
        let (socket, _) = listener.accept().await.unwrap();
        let said = frame::read::<Say>(&socket).await.unwrap();
        let (reading, mut out) = socket.into_split();
        let proof = Secret([7; 16]);
        frame::write(&mut out, &Tell::Welcome { proof })
            .await
            .unwrap();
        drop(reading);
        said
    };
    let (connected, _) = tokio::join!(connecting, posing);
    assert!(connected.is_err());
    assert!(a.dir.path().exists());
}

/// A lender that says what it is told to, and a line to it.
struct Lying {
    socket: UnixStream,
    line: Arc<Line>,
    _dir: TempDir,
}

impl Lying {
    async fn to(reader: &Side) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SOCKET);
        let listener = UnixListener::bind(&path).unwrap();
        let invitation = Invitation {
            path,
            secret: Secret([1; 16]),
            proof: Secret([2; 16]),
        };
        let connecting = reader.neighbours.connect(node(9), &invitation);
        let welcoming = async {
            let (socket, _) = listener.accept().await.unwrap();
            let hello = frame::read::<Say>(&socket).await.unwrap().0;
            let secret = Secret([1; 16]);
            assert_eq!(
                hello,
                Say::Hello {
                    node: node(2),
                    secret
                }
            );
            let (reading, mut out) = socket.into_split();
            let proof = Secret([2; 16]);
            frame::write(&mut out, &Tell::Welcome { proof })
                .await
                .unwrap();
            reading.reunite(out).unwrap()
        };
        let (line, socket) = tokio::join!(connecting, welcoming);
        Self {
            socket,
            line: line.unwrap(),
            _dir: dir,
        }
    }

    /// Answers the next who asks, with this descriptor if there is one.
    async fn answer(&mut self, tell: Tell, view: Option<&View>) {
        loop {
            let said = frame::read::<Say>(&self.socket).await.unwrap().0;
            if matches!(said, Say::Ask { .. }) {
                break;
            }
        }
        let bytes = wasmrun_model::wire::encode(&tell).unwrap();
        match view {
            None => self.socket.write_all(&bytes).await.unwrap(),
            Some(view) => {
                let socket = &self.socket;
                let send = || wasmrun_store::send(socket, &bytes, view);
                let sent = socket.async_io(tokio::io::Interest::WRITABLE, send).await;
                assert_eq!(sent.unwrap(), bytes.len());
            }
        }
    }
}

#[tokio::test]
async fn a_lender_that_says_nonsense_is_not_believed() {
    let b = Side::new(2, 64 * MIB);
    let lending = Store::open(StoreConfig::new(64 * MIB)).unwrap();
    let view = put(&lending, 1, MIB).view().unwrap();
    let Some(Tell::Lent {
        segment_bytes,
        offset_bytes,
        ..
    }) = Tell::lent(1, &view)
    else {
        panic!("it is a large one")
    };
    let lent = |segment_bytes, offset_bytes| Tell::Lent {
        loan: 1,
        segment: 0,
        segment_bytes,
        offset_bytes,
        sums: Vec::new(),
    };
    let mut lying = Lying::to(&b).await;
    let wrong = [
        (lent(u64::MAX, offset_bytes), true),
        (lent(segment_bytes + 1, offset_bytes), true),
        (lent(segment_bytes, segment_bytes), true),
        (lent(segment_bytes, u64::MAX - 4095), true),
        (lent(segment_bytes, offset_bytes + 1), true),
        (lent(segment_bytes, offset_bytes), false),
        (Tell::Refused, false),
    ];
    for (tell, has_descriptor) in wrong {
        let line = lying.line.clone();
        let wanted = wanted(1, MIB);
        let asking = line.ask(b.store(), &wanted);
        let answering = lying.answer(tell.clone(), has_descriptor.then_some(&view));
        let (asked, ()) = tokio::join!(asking, answering);
        assert!(asked.is_err(), "{tell:?}");
        assert_eq!(b.borrowed(), (0, 0, 0));
    }
    // One that is right, after all that.
    let line = lying.line.clone();
    let right = wanted(1, MIB);
    let (asked, ()) = tokio::join!(
        line.ask(b.store(), &right),
        lying.answer(lent(segment_bytes, offset_bytes), Some(&view))
    );
    assert!(*asked.unwrap() == *bytes(1, MIB));
    // And an answer that nobody has asked for, and one that is none: nothing more is borrowed.
    let bytes = wasmrun_model::wire::encode(&Tell::Refused).unwrap();
    lying.socket.write_all(&bytes).await.unwrap();
    eventually(|| line.is_over()).await;
    assert!(line.ask(b.store(), &right).await.is_err());
}

#[tokio::test]
async fn what_a_lender_leaves_that_ends_becomes_the_reader_s_own() {
    let b = Side::new(2, 64 * MIB);
    let lending = Store::open(StoreConfig::new(64 * MIB)).unwrap();
    let view = put(&lending, 1, MIB).view().unwrap();
    let mut lying = Lying::to(&b).await;
    let (line, wanted) = (lying.line.clone(), wanted(1, MIB));
    let tell = Tell::lent(1, &view).unwrap();
    let (asked, ()) = tokio::join!(
        line.ask(b.store(), &wanted),
        lying.answer(tell, Some(&view))
    );
    let seen = asked.unwrap();
    assert_eq!(b.borrowed(), (1, MIB, 0));
    // Somebody asks and is not answered: the process ends.
    let line = lying.line.clone();
    let Lying { socket, .. } = lying;
    let next = self::wanted(2, MIB);
    let (unanswered, ()) = tokio::join!(line.ask(b.store(), &next), async {
        let _ = frame::read::<Say>(&socket).await;
        drop((socket, view, lending));
    });
    assert!(unanswered.is_err());
    let object = seen.object().clone();
    eventually(|| !object.is_borrowed()).await;
    assert_eq!(b.borrowed(), (0, 0, MIB));
    // Who looked at it goes on; who comes sees the copy.
    assert!(*seen == *bytes(1, MIB) && *object.view().unwrap() == *seen);
    assert_ne!(seen.as_ptr(), object.view().unwrap().as_ptr());
}

#[tokio::test]
async fn who_needs_room_gets_back_what_nobody_looks_at() {
    let (a, b) = (Side::new(1, 8 * MIB), Side::new(2, 64 * MIB));
    let first = put(a.store(), 1, 3 * MIB);
    let second = put(a.store(), 2, 3 * MIB);
    let line = b.line_to(&a).await;
    let borrowed = line.ask(b.store(), &wanted(1, 3 * MIB)).await.unwrap();
    let idle = borrowed.object().clone();
    drop(borrowed);
    let seen = line.ask(b.store(), &wanted(2, 3 * MIB)).await.unwrap();
    assert_eq!(a.lent(), (2, 6 * MIB));
    drop((first, second));
    a.neighbours.make_room();
    let tenant = TenantName::default();
    let creating = a.store().create(&tenant, id(3), 3 * MIB, Form::Postcard);
    let creating = tokio::spawn(creating);
    eventually(|| a.neighbours.is_short()).await;
    // Meanwhile nothing more is lent.
    assert!(line.ask(b.store(), &wanted(1, 3 * MIB)).await.is_err());
    a.neighbours.make_room();
    let writer = tokio::time::timeout(LONG, creating).await.unwrap();
    assert!(writer.unwrap().is_ok());
    assert!(!idle.is_resident(), "it was given back");
    assert!(*seen == *bytes(2, 3 * MIB), "and what is looked at stays");
}

#[tokio::test]
async fn what_was_borrowed_is_not_lent_again() {
    let [a, b, c] = [1, 2, 3].map(|n| Side::new(n, 64 * MIB));
    let _object = put(a.store(), 1, MIB);
    let (to_a, to_b) = (b.line_to(&a).await, c.line_to(&b).await);
    let seen = to_a.ask(b.store(), &wanted(1, MIB)).await.unwrap();
    let asked = to_b.ask(c.store(), &wanted(1, MIB)).await;
    assert_eq!(asked.err(), Some(Some(node(1))));
    assert_eq!((b.lent(), a.lent()), ((0, 0), (1, MIB)));
    // Once it is its own it is.
    b.neighbours.forget(node(1));
    let object = seen.object();
    eventually(|| !object.is_borrowed()).await;
    let seen_there = to_b.ask(c.store(), &wanted(1, MIB)).await.unwrap();
    assert!(*seen_there == *seen);
    drop(to_a);
    // Whoever looks at the lender's bytes keeps them.
    assert_eq!(a.lent(), (1, MIB));
    drop(seen);
    eventually(|| a.lent() == (0, 0)).await;
}

#[tokio::test]
async fn a_reader_that_ends_returns_all() {
    let a = Side::new(1, 64 * MIB);
    let _object = put(a.store(), 1, MIB);
    let invitation = a.neighbours.invite(node(2), &a.neighbours.machine).unwrap();
    let (reading, mut out) = a.stranger().await.into_split();
    let (node, secret) = (node(2), invitation.secret);
    frame::write(&mut out, &Say::Hello { node, secret })
        .await
        .unwrap();
    let ask = Say::Ask {
        object: id(1),
        tenant: TenantName::default(),
        len: MIB,
    };
    frame::write(&mut out, &ask).await.unwrap();
    frame::write(&mut out, &ask).await.unwrap();
    let welcome = frame::read::<Tell>(reading.as_ref()).await.unwrap().0;
    assert_eq!(
        welcome,
        Tell::Welcome {
            proof: invitation.proof
        }
    );
    let lent: (Tell, Option<OwnedFd>) = frame::read(reading.as_ref()).await.unwrap();
    assert!(matches!(lent, (Tell::Lent { loan: 1, .. }, Some(_))));
    eventually(|| a.lent() == (2, 2 * MIB)).await;
    // A loan that there is not, and then half a message.
    frame::write(&mut out, &Say::Returned { loan: 77 })
        .await
        .unwrap();
    out.write_all(&[40, 0, 0, 0, 1, 2]).await.unwrap();
    drop((reading, out));
    eventually(|| a.lent() == (0, 0)).await;
    assert!(a.neighbours.borrowers.lock().is_empty());
}

/// Nodes of this machine, by what they say when they are asked where to come to.
#[derive(Default)]
struct Machine(Mutex<HashMap<NodeId, Invitation>>);

impl Invite for Machine {
    async fn invitation(&self, node: NodeId, _: &str) -> Result<Option<Invitation>, ()> {
        let invitation = self.0.lock().get(&node).cloned();
        match invitation {
            Some(invitation) => Ok(Some(invitation)),
            // It says nothing.
            None => std::future::pending().await,
        }
    }
}

#[tokio::test]
async fn who_cannot_be_come_to_is_tried_again_and_then_no_more() {
    let (a, b) = (Side::new(1, 64 * MIB), Side::new(2, 64 * MIB));
    let _object = put(a.store(), 1, MIB);
    let machine = Machine::default();
    let nowhere = Invitation {
        path: a.dir.path().join("nowhere.sock"),
        ..a.invitation(&b)
    };
    machine.0.lock().insert(node(1), nowhere.clone());
    let borrow = || async {
        let holders = [node(1)];
        let neighbours = &b.neighbours;
        neighbours
            .borrow_from(&machine, &holders, &wanted(1, MIB))
            .await
    };
    let ways = |failing, given_up| Ways {
        failing,
        given_up,
        ..Ways::default()
    };
    // As if the time had come.
    let wait = || b.neighbours.ways.lock().get_mut(&node(1)).unwrap().next = None;
    assert!(borrow().await.0.is_none());
    assert_eq!(b.neighbours.ways(), ways(1, 0));
    // Before its time it is not tried.
    machine.0.lock().insert(node(1), a.invitation(&b));
    assert!(borrow().await.0.is_none());
    wait();
    let (view, failed) = borrow().await;
    assert!(view.is_some_and(|view| *view == *bytes(1, MIB)) && failed == 0);
    assert_eq!(b.neighbours.ways().open, 1);
    // In another life it begins anew.
    b.neighbours.forget(node(1));
    eventually(|| a.lent() == (0, 0)).await;
    machine.0.lock().insert(node(1), nowhere);
    for failures in 1..MOST_TRIES {
        assert!(borrow().await.0.is_none());
        assert_eq!(b.neighbours.ways(), ways(1, 0), "{failures}");
        wait();
    }
    assert!(borrow().await.0.is_none());
    assert_eq!(b.neighbours.ways(), ways(0, 1));
    machine.0.lock().insert(node(1), a.invitation(&b));
    wait();
    assert!(borrow().await.0.is_none());
}

#[tokio::test]
async fn who_says_nothing_does_not_keep_another_from_lending() {
    let (a, b) = (Side::new(1, 64 * MIB), Side::new(2, 64 * MIB));
    let _object = put(a.store(), 1, MIB);
    let mut lying = Lying::to(&b).await;
    let way = Way {
        line: Arc::new(OnceCell::new_with(Some(Some(lying.line.clone())))),
        ..Way::default()
    };
    b.neighbours.ways.lock().insert(node(9), way);
    let machine = Machine::default();
    machine.0.lock().insert(node(1), a.invitation(&b));
    // One is connected and does not answer, one does not say where it is.
    let holders = [node(8), node(9), node(1)];
    let wanted = wanted(1, MIB);
    let neighbours = &b.neighbours;
    let borrowing = neighbours.borrow_from(&machine, &holders, &wanted);
    let (view, failed) = tokio::time::timeout(LONG, borrowing).await.unwrap();
    assert!(*view.unwrap() == *bytes(1, MIB));
    assert_eq!(failed, 0);
    // The next does not ask it again at once.
    assert!(neighbours.is_silent(node(9)));
    // What it has to say it says to nobody.
    lying.answer(Tell::Refused, None).await;
    eventually(|| a.lent() == (0, 0)).await;
}

#[tokio::test]
async fn who_comes_when_its_life_is_over_does_not_borrow() {
    let (a, b) = (Side::new(1, 64 * MIB), Side::new(2, 64 * MIB));
    let _object = put(a.store(), 1, MIB);
    let machine = Machine::default();
    machine.0.lock().insert(node(1), a.invitation(&b));
    a.neighbours.forget(node(2));
    let holders = [node(1)];
    let wanted = wanted(1, MIB);
    let borrowing = b.neighbours.borrow_from(&machine, &holders, &wanted);
    assert!(borrowing.await.0.is_none());
    assert!(a.neighbours.borrowers.lock().is_empty());
}
