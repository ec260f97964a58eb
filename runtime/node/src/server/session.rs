//! One connection, wherever it comes from: greeting, frames in, frames out, and what the client has handles of.
//!
//! Requests that take no time are answered in their order; those that wait run beside the reading, up to
//! a limit. Must not: let one client's slowness or nonsense reach another.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use wasmrun_engine::Feed;
use wasmrun_model::access::Access;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{ActorId, DriverId, ObjectId, TaskId};
use wasmrun_model::value::Handle;
use wasmrun_model::wire::{
    self, Frame, FrameError, HEADER_BYTES, Hello, MAGIC, PROTOCOL, Refusal, RefusalKind, Request,
    Response, Welcome,
};
use wasmrun_net as net;
use wasmrun_store::View;

use super::audit::Changes;
use super::caller::{Caller, Origin};
use super::handed::Handed;
use super::loaded::LoadedModules;
use super::out::{ConnectionClosed, Out};
use super::receive::{Announced, Part, Transfer};
use super::seats::Seat;
use super::users::Users;
use super::views::Asker;
use super::way::Way;
use super::{Inner, lists, users};
use crate::actor::Actor;
use crate::audit::{Entry, Outcome};
use crate::client::Client;
use crate::cluster::now_s;
use crate::node::new_driver;
use crate::records::job::Job;
use crate::records::object::{Object, Reference, Value};

/// How long a client may take to say who it is.
const GREETING: Duration = Duration::from_secs(10);
/// How long a client may take to read why its session is over.
const FAREWELL: Duration = Duration::from_secs(1);
/// The longest first frame, in bytes.
const GREETING_BYTES: usize = 4096;
/// How many bytes are read at once.
const READ_BYTES: usize = 128 << 10;
/// How many requests that wait a connection may have under way.
const MOST_WAITING: usize = 4096;
/// How many values and modules a connection may be sending at a time.
const MOST_TRANSFERS: usize = 16;
/// How many modules stay loaded for one session.
const MOST_MODULES: usize = 1024;
/// How many objects a connection may have handles of.
const MOST_OBJECTS: usize = 1 << 20;
/// How many values a connection may have mapped at a time; of more it gets the bytes.
const MOST_PINS: usize = 1 << 16;

/// One connection, as its requests see it.
pub(super) struct Session {
    pub(super) inner: Arc<Inner>,
    /// Who the client is.
    pub(super) caller: Caller,
    pub(super) client: Client,
    pub(super) tenant: TenantName,
    pub(super) out: Out,
    pub(super) objects: Mutex<Handed<ObjectId, Object>>,
    pub(super) actors: Mutex<Handed<ActorId, Actor>>,
    /// What the client has mapped, by the request that gave it.
    pub(super) pins: Mutex<HashMap<u64, View>>,
    /// The last request that has started a task or call, and what that makes.
    pub(super) last_started: Mutex<Option<(u64, ObjectId)>>,
    /// Where the standard input of tasks comes in.
    pub(super) inputs: Mutex<HashMap<TaskId, Feed>>,
    /// The modules that it has sent or asked for: they stay loaded for it, whatever others load.
    pub(super) modules: Mutex<LoadedModules>,
    /// What its client calls the job that it is; empty if that is not said.
    pub(super) job_name: String,
    /// Who its client is, for people.
    pub(super) by: String,
    /// Whether it has submitted something.
    pub(super) is_job: AtomicBool,
    /// The drivers of its jobs that outlive it, as long as they are to have more tasks.
    pub(super) detached: Mutex<BTreeMap<DriverId, Client>>,
    /// The job of the last task: most are followed by more of their kind.
    pub(super) last_job: Mutex<Option<(wire::Submit, Arc<Job>)>>,
}

/// Serves a connection of this machine to its end.
pub(super) async fn run(inner: Arc<Inner>, stream: UnixStream) {
    let Ok(peer) = stream.peer_cred() else {
        return;
    };
    let user = peer.uid();
    let by = by_process(user, peer.pid());
    let is_own = user == rustix::process::geteuid().as_raw();
    // Places are held to the end.
    let node = inner.clone();
    let (access, seat) = match &node.users {
        _ if is_own => (Ok(own_access()), None),
        Some(users) => match admitted(&node, users, (user, peer.gid()), &by) {
            Ok((access, seat)) => (Ok(access), Some(seat)),
            Err(why) => (Err(why), None),
        },
        None => return turned_away(&node, &by),
    };
    let refused = access.is_err().then(|| node.seats.take_refused());
    if matches!(refused, Some(None)) {
        return;
    }
    let origin = match is_own {
        true => Origin::Own,
        false => Origin::User,
    };
    let caller = access.map(|access| Caller {
        origin,
        access,
        until_s: 0,
        from: format!("this machine, {by}"),
    });
    let (reader, writer) = stream.into_split();
    serve(inner, caller, by, reader, Way::Socket(writer)).await;
    drop((seat, refused));
}

/// What another user of this machine may do, who is in this group, and the place of its connection.
fn admitted<'a>(
    inner: &'a Inner,
    users: &Users,
    (user, group): (u32, u32),
    by: &str,
) -> Result<(Access, Seat<'a>), Refusal> {
    let seat = inner.seats.take(user)?;
    let access = users.access(user, group);
    let access = access.inspect_err(|_| turned_away(inner, by))?;
    Ok((access, seat))
}

/// Says of a user of this machine that the node does not let it in.
fn turned_away(inner: &Inner, by: &str) {
    let (who, process) = by.split_once(", ").unwrap_or((by, "a process"));
    inner.audit.add_stranger(Entry {
        outcome: Outcome::Refused {
            kind: "user".to_owned(),
            why: "this user may not use the socket".to_owned(),
        },
        ..Entry::new(who.to_owned(), format!("socket, {process}"), "connect")
    });
}

/// What the user may do that the node runs as.
fn own_access() -> Access {
    static OWN: LazyLock<Access> = LazyLock::new(|| {
        let user = rustix::process::geteuid().as_raw();
        Access::operator(users::name_of(user))
    });
    OWN.clone()
}

/// Serves a client of another machine to its end.
pub(super) async fn run_from_network(inner: Arc<Inner>, session: net::Session) {
    let caller = Caller {
        origin: Origin::Network(session.client),
        access: session.access.unwrap_or_else(Access::unnamed),
        until_s: session.until_s,
        from: session.remote.to_string(),
    };
    let by = format!("client {}", session.client);
    let way = Way::Network(session.writer);
    serve(inner, Ok(caller), by, session.reader, way).await;
}

/// A process of this machine, for people.
fn by_process(user: u32, process: Option<i32>) -> String {
    let Some(process) = process else {
        return format!("user {user}");
    };
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    match name.is_empty() {
        true => format!("user {user}, process {process}"),
        false => format!("user {user}, process {process} ({name})"),
    }
}

async fn serve(
    inner: Arc<Inner>,
    caller: Result<Caller, Refusal>,
    by: String,
    mut reader: impl AsyncRead + Unpin,
    mut way: Way,
) {
    let greeted = tokio::time::timeout(GREETING, greet(&inner, &mut reader, &mut way)).await;
    let hello = match greeted {
        Ok(Ok(hello)) => hello,
        Ok(Err(why)) => {
            // Who hangs up before it has said anything looks whether somebody is here.
            if why.kind() != io::ErrorKind::UnexpectedEof {
                tracing::info!(%why, "a client is turned away");
            }
            return;
        }
        Err(_) => return,
    };
    let (mut out, writing) = Out::new(way, inner.pending.clone());
    // Ends when this function, which owns it, does, or all has been written.
    let mut writer = JoinSet::new();
    writer.spawn(writing);
    let caller = match caller {
        Ok(caller) => caller,
        Err(why) => {
            tracing::info!(by, why = why.message, "a client is refused");
            return farewell(&out, &mut writer, Some((0, why))).await;
        }
    };
    let tenant = caller.tenant(hello.tenant);
    let (who, from) = caller.for_the_audit(&by);
    let (audit, tenants) = (&inner.audit, &caller.access.tenants);
    out = out.audited(Changes::of(audit, who, from, (&tenant, tenants)));
    let session = Arc::new(Session {
        client: Client::new(inner.shared.clone(), new_driver()),
        tenant,
        job_name: hello.job,
        by,
        is_job: AtomicBool::new(false),
        detached: Mutex::default(),
        out: out.clone(),
        caller,
        inner,
        objects: Mutex::default(),
        actors: Mutex::default(),
        pins: Mutex::default(),
        last_started: Mutex::default(),
        inputs: Mutex::default(),
        modules: Mutex::new(LoadedModules::new(MOST_MODULES)),
        last_job: Mutex::default(),
    });
    let driver = session.client.driver();
    let weak = Arc::downgrade(&session);
    session.inner.sessions.lock().insert(driver, weak);
    let ending = Ending(session.clone());
    let serving = Serving {
        session,
        jobs: JoinSet::new(),
        transfers: HashMap::new(),
    };
    let over = serving
        .serve(BufReader::with_capacity(READ_BYTES, reader))
        .await;
    drop(ending);
    let last = match over {
        SessionEnd::Loss => return,
        SessionEnd::Farewell => None,
        SessionEnd::Refusal(id, why) => {
            tracing::info!(why = why.message, "a client's session is ended");
            Some((id, why))
        }
    };
    farewell(&out, &mut writer, last).await;
}

/// Says why a session is over, if there is something to say. A client that does not read does not keep us.
async fn farewell(out: &Out, writer: &mut JoinSet<()>, last: Option<(u64, Refusal)>) {
    let _ = tokio::time::timeout(FAREWELL, async {
        let _ = out.end(last).await;
        writer.join_next().await
    })
    .await;
}

/// Why a session is over.
enum SessionEnd {
    /// The client cannot be reached.
    Loss,
    /// The client has nothing more to say. What it submitted ends, but it may still read what it was answered.
    Farewell,
    /// We do not go on with it, because of this request; 0 if it is not known which.
    Refusal(u64, Refusal),
}

impl From<ConnectionClosed> for SessionEnd {
    fn from(_: ConnectionClosed) -> Self {
        Self::Loss
    }
}

/// Of a read.
impl From<io::Error> for SessionEnd {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Farewell,
            _ => Self::Loss,
        }
    }
}

/// What a session submitted ends with it, however it ends.
struct Ending(Arc<Session>);

impl Drop for Ending {
    fn drop(&mut self) {
        let session = &self.0;
        session.client.is_over();
        let driver = session.client.driver();
        session.inner.end_services_of(&driver);
        session.close_jobs();
        session
            .inner
            .sessions
            .lock()
            .remove(&session.client.driver());
        session.inputs.lock().clear();
        let objects = std::mem::take(&mut *session.objects.lock());
        let actors = std::mem::take(&mut *session.actors.lock());
        let pins = std::mem::take(&mut *session.pins.lock());
        drop((objects, actors, pins));
    }
}

/// The first frame of each side. Ours is sent even to a client of another version, to tell it. One that is a
/// minor version behind asks for nothing whose answer it does not know; one that is ahead asks for nothing
/// that we do not know: see `docs/decisions/versions.md`.
async fn greet(
    inner: &Inner,
    reader: &mut (impl AsyncRead + Unpin),
    way: &mut Way,
) -> io::Result<Hello> {
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header).await?;
    let len = wire::frame_len(header)
        .ok()
        .filter(|len| *len <= GREETING_BYTES);
    let hello = match len {
        Some(len) => {
            let mut bytes = vec![0; len];
            reader.read_exact(&mut bytes).await?;
            wire::decode_greeting::<Hello>(&bytes).map(|(hello, _)| hello)
        }
        None => Err(FrameError::NotWasmrun),
    };
    if hello != Err(FrameError::NotWasmrun) {
        let welcome = wire::encode(&Welcome {
            magic: MAGIC,
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            node: inner.shared.name.to_string(),
            id: inner.shared.home.node,
        });
        way.write_all(&welcome.map_err(io::Error::other)?).await?;
    }
    hello.map_err(io::Error::other)
}

/// The reading side.
struct Serving {
    session: Arc<Session>,
    jobs: JoinSet<()>,
    transfers: HashMap<u64, Transfer>,
}

impl Serving {
    async fn serve(mut self, mut reader: impl AsyncReadExt + Unpin) -> SessionEnd {
        let mut buffer = Vec::new();
        loop {
            let mut header = [0; HEADER_BYTES];
            if let Err(error) = reader.read_exact(&mut header).await {
                return error.into();
            }
            let frame = match wire::frame_len(header) {
                Err(error) => Err(error),
                Ok(len) => {
                    buffer.resize(len, 0);
                    if let Err(error) = reader.read_exact(&mut buffer).await {
                        return error.into();
                    }
                    wire::decode::<Frame<Request>>(&buffer)
                }
            };
            let taken = match frame {
                Ok(Frame { id, message }) => self.take(id, message).await,
                Err(error) => {
                    // It may be anything from here on: say so, and close.
                    Err(SessionEnd::Refusal(0, refusal(RefusalKind::Usage, error)))
                }
            };
            if let Err(over) = taken {
                return over;
            }
            while self.jobs.try_join_next().is_some() {}
        }
    }

    async fn take(&mut self, id: u64, mut request: Request) -> Result<(), SessionEnd> {
        let session = self.session.clone();
        if !session.has_own_number(id, &request) {
            let why = format_args!(
                "two requests have the number {id}, and the first is not answered yet: give each a number of its own"
            );
            return Err(SessionEnd::Refusal(0, refusal(RefusalKind::Usage, why)));
        }
        session.resolve(&mut request);
        let noted = session.note(id, &request);
        let caller = &session.caller;
        let has_time = noted.and_then(|()| caller.check_time(now_s(), &request));
        let checked = has_time.and_then(|()| caller.check(&session.tenant, &request));
        if let Err(why) = checked.and_then(|()| lists::check(&request)) {
            if matches!(request, Request::Chunk(_) | Request::Staged { .. }) {
                // More would follow that nobody wants.
                return Err(SessionEnd::Refusal(id, why));
            }
            return Ok(session.refuse(id, why).await?);
        }
        match request {
            Request::Chunk(bytes) => self.part(id, Part::Bytes(bytes.0)).await?,
            Request::Staged { offset, len } => self.part(id, Part::Staged { offset, len }).await?,
            Request::Upload { digest, len } => {
                let module = Announced::Module { digest, len };
                self.upload(id, Ok(module)).await?;
            }
            Request::Put(put) => self.upload(id, session.announced(&put)).await?,
            request if !session.may_wait(&request) => session.respond(id, request).await?,
            _ if self.jobs.len() >= MOST_WAITING => {
                let why = too_many("requests that wait", MOST_WAITING);
                session.refuse(id, why).await?;
            }
            request => {
                self.jobs.spawn(async move {
                    let _ = session.respond(id, request).await;
                });
            }
        }
        Ok(())
    }

    /// Bytes of a value that is on its way here.
    async fn part(&mut self, id: u64, part: Part) -> Result<(), SessionEnd> {
        // One that was refused may still have some under way.
        let Some(transfer) = self.transfers.get(&id) else {
            return Ok(());
        };
        if !transfer.may_come() {
            let why = "bytes of a value came before the node said that they may";
            return Err(SessionEnd::Refusal(id, refusal(RefusalKind::Usage, why)));
        }
        if !transfer.pass(part).await {
            self.transfers.remove(&id);
        }
        Ok(())
    }

    /// A module or a value that is going to come in parts.
    async fn upload(
        &mut self,
        id: u64,
        announced: Result<Announced, Refusal>,
    ) -> Result<(), ConnectionClosed> {
        let session = self.session.clone();
        self.transfers.retain(|_, transfer| !transfer.is_over());
        if self.transfers.len() >= MOST_TRANSFERS || self.transfers.contains_key(&id) {
            let why = too_many("transfers", MOST_TRANSFERS);
            return session.refuse(id, why).await;
        }
        let announced = match announced {
            Ok(announced) => announced,
            Err(why) => return session.refuse(id, why).await,
        };
        let (transfer, chunks) = Transfer::new();
        self.transfers.insert(id, transfer);
        self.jobs.spawn(async move {
            let answer = session.receive(id, announced, chunks).await;
            let _ = session.answer(id, answer).await;
        });
        Ok(())
    }
}

impl Session {
    pub(super) async fn answer(
        &self,
        id: u64,
        answer: Result<Response, Refusal>,
    ) -> Result<(), ConnectionClosed> {
        let answer = answer.unwrap_or_else(Response::Refused);
        self.out.send(id, answer).await
    }

    pub(super) async fn refuse(&self, id: u64, why: Refusal) -> Result<(), ConnectionClosed> {
        self.out.send(id, Response::Refused(why)).await
    }

    /// Whose things it may name.
    pub(super) fn asker(&self) -> Asker<'_> {
        Asker {
            tenant: &self.tenant,
            driver: self.client.driver(),
            tenants: &self.caller.access.tenants,
        }
    }

    /// The client gets a handle of this.
    pub(super) fn add_object(&self, object: Object) -> Result<ObjectId, Refusal> {
        let id = object.id();
        let mut objects = self.objects.lock();
        if objects.len() >= MOST_OBJECTS {
            return Err(too_many("objects", MOST_OBJECTS));
        }
        let before = objects.give(id, object);
        drop(objects);
        drop(before);
        Ok(id)
    }

    /// The client gets a handle of each thing that a value names: of these.
    pub(super) fn lend(&self, value: &Value) -> Result<Vec<Handle>, Refusal> {
        let things: BTreeMap<_, _> = value
            .references()
            .iter()
            .map(|it| (it.handle(), it))
            .collect();
        for reference in things.values() {
            match reference {
                Reference::Actor(actor) => self.add_actor(&self.client.actor(actor.clone())),
                object => drop(self.add_object(Object((*object).clone()))?),
            }
        }
        Ok(things.into_keys().collect())
    }

    /// Keeps a value in its place, for the client to map, until it says that it has dropped what this
    /// request gave. False if it has too many: then it gets the bytes.
    pub(super) fn pin(&self, id: u64, view: &View) -> bool {
        let mut pins = self.pins.lock();
        if pins.len() >= MOST_PINS || pins.contains_key(&id) {
            return false;
        }
        pins.insert(id, view.clone());
        true
    }

    pub(super) fn unpin(&self, ids: &[u64]) {
        let mut pins = self.pins.lock();
        let dropped: Vec<_> = ids.iter().filter_map(|id| pins.remove(id)).collect();
        drop(pins);
        drop(dropped);
    }

    /// The client has given handles of these back.
    pub(super) fn release(&self, ids: &[ObjectId]) {
        let mut objects = self.objects.lock();
        let released: Vec<_> = ids.iter().filter_map(|id| objects.release(id)).collect();
        drop(objects);
        drop(released);
    }

    pub(super) fn add_actor(&self, actor: &Actor) {
        let before = self.actors.lock().give(actor.id(), actor.clone());
        drop(before);
    }
}

/// A refusal.
pub(super) fn refusal(kind: RefusalKind, why: impl std::fmt::Display) -> Refusal {
    Refusal {
        kind,
        message: why.to_string(),
    }
}

/// That a session has as much of something as it may.
pub(super) fn too_many(what: &str, most: usize) -> Refusal {
    refusal(
        RefusalKind::Full,
        format_args!("a connection may have {most} {what} at a time; wait for some to end"),
    )
}
