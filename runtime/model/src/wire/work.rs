//! What a client wants done, and what came of it. As in [`super::message`], the order is a wire layout.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::bytes::Bytes;
use super::failure::WireError;
use super::view::Amounts;
use crate::cluster::{Selectors, Strategy};
use crate::fairness::TenantName;
use crate::group::GroupSpec;
use crate::http::{HttpHost, Route};
use crate::id::{ActorId, Digest, DriverId, ObjectId, TaskId};
use crate::resource::{Amount, ResourceName};
use crate::secret::SecretUse;
use crate::trace::TraceContext;
use crate::value::Encoded;

/// An object by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectRef {
    /// One that the session has a handle of.
    Id(ObjectId),
    /// One of those that are kept, by a unique prefix of its id, or of its task's.
    Prefix(String),
    /// What the task or call makes that this request has started, the last of the session's that has started one: a client
    /// asks for it together with that request, before it is told the id.
    Started(u64),
}

/// An argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Argument {
    /// A value, of at most [`super::INLINE_BYTES`].
    Value(Encoded),
    /// An object that the session has a handle of.
    Object(ObjectId),
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The module's program.
    Program,
    /// A function, by any name that is unique.
    Function(String),
}

/// A task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submit {
    /// The module, which the node has.
    pub module: Digest,
    /// What of it to run.
    pub entry: Entry,
    /// What people call it; the function's name if empty.
    pub name: String,
    /// A function's arguments.
    pub values: Vec<Argument>,
    /// A program's arguments, its name first.
    pub args: Vec<String>,
    /// Its index, if it is one of an array.
    pub array_index: Option<u64>,
    /// What it asks for, over what the module declares.
    pub terms: Terms,
    /// What it may use besides.
    pub limits: Limits,
    /// What it may reach.
    pub grants: Grants,
    /// What it reads.
    pub input: Input,
    /// Whether the session wants its output and its report.
    pub is_watched: bool,
    /// Whether it goes on when the session ends, and its result and the end of its output are kept.
    pub is_detached: bool,
    /// The trace that it and its nested tasks belong to; that of their job if not given.
    pub trace: Option<TraceContext>,
}

impl Submit {
    /// One without arguments, that asks for no more than its module declares, and reaches nothing.
    pub fn new(module: Digest, entry: Entry) -> Self {
        Self {
            module,
            entry,
            name: String::new(),
            values: Vec::new(),
            args: Vec::new(),
            array_index: None,
            terms: Terms::default(),
            limits: Limits::default(),
            grants: Grants::default(),
            input: Input::Empty,
            is_watched: false,
            is_detached: false,
            trace: None,
        }
    }
}

/// The job that detached tasks are submitted as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id, drawn at random: one that [`DriverId::is_detached`].
    pub id: DriverId,
    /// What people call it; what its first task is called if empty.
    pub name: String,
    /// How many tasks it is to have, if that is known; else 0.
    pub tasks: u64,
}

/// When and where a task or actor runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Terms {
    /// Amounts in place of the declared ones.
    pub resources: Amounts,
    /// Whose share pays; the session's tenant if not given.
    pub tenant: Option<TenantName>,
    /// Higher goes first among the tenant's tasks.
    pub priority: i32,
    /// How often it is tried again, in place of what is declared.
    pub retries: Option<u32>,
    /// Whether it is after an error that its function returns, too, in place of what is declared.
    pub retry_on_error: Option<bool>,
    /// Whether it is not to be paused or stopped for others. Of actors nothing: one without restarts never is.
    pub no_preempt: bool,
    /// What labels the node must have.
    pub selectors: Selectors,
    /// How the node is chosen.
    pub strategy: Strategy,
}

/// What a task may use besides its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// How long an attempt may take, in place of what is declared, in milliseconds.
    pub time_ms: Option<u64>,
    /// The most output, in bytes.
    pub output_bytes: u64,
    /// The largest arguments, in bytes.
    pub argument_bytes: u64,
    /// The largest result, in bytes.
    pub result_bytes: u64,
}

impl Default for Limits {
    /// No time limit, 256 MiB of output, 64 MiB of arguments and of result.
    fn default() -> Self {
        Self {
            time_ms: None,
            output_bytes: 256 << 20,
            argument_bytes: 64 << 20,
            result_bytes: 64 << 20,
        }
    }
}

/// What a task may reach outside its sandbox. The default is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Grants {
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// Directories.
    pub dirs: Vec<Dir>,
    /// The network.
    pub net: Net,
    /// The servers that it may send HTTP requests to.
    pub http: Vec<HttpHost>,
    /// Secrets, of which at most [`secret::MAX_USES`](crate::secret::MAX_USES).
    pub secrets: Vec<SecretUse>,
}

/// A directory of the node's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dir {
    /// Its absolute path there.
    pub host: String,
    /// What the guest calls it.
    pub guest: String,
    /// Whether the guest may not change anything in it.
    pub is_read_only: bool,
}

/// As people write it: `HOST::GUEST[:ro]` or `HOST[:ro]`. The path is as it was given, and need not be absolute.
impl FromStr for Dir {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = text.rsplit_once(':');
        // What follows `::` is a name, and one that holds a slash is no mode either.
        let mode = mode.filter(|(rest, mode)| !rest.ends_with(':') && !mode.contains('/'));
        let (rest, is_read_only) = match mode {
            None => (text, false),
            Some((rest, mode)) if mode.eq_ignore_ascii_case("ro") => (rest, true),
            Some((rest, mode)) if mode.eq_ignore_ascii_case("rw") => (rest, false),
            Some((host, guest)) if !guest.is_empty() && !host.contains("::") => {
                return Err(one_colon(text, host, guest));
            }
            Some((_, mode)) => {
                return Err(format!(
                    "'{text}' ends with '{mode}': end it with ':ro' to read only, and with nothing to write, too; a path \
                     that has a colon itself needs a name, PATH::GUEST"
                ));
            }
        };
        let (host, guest) = match (rest.split_once("::"), rest.split_once(':')) {
            (Some(both), _) => both,
            (None, Some((host, guest))) => return Err(one_colon(text, host, guest)),
            (None, None) => (rest, rest),
        };
        if host.is_empty() || guest.is_empty() {
            return Err(format!(
                "'{text}' must be HOST::GUEST, such as ./data::/data"
            ));
        }
        Ok(Self {
            host: host.into(),
            guest: guest.into(),
            is_read_only,
        })
    }
}

fn one_colon(text: &str, host: &str, guest: &str) -> String {
    format!(
        "'{text}' has one colon: the guest's name for a directory stands behind two, {host}::{guest}, and to read only, \
         end it with ':ro'; a path that has a colon itself needs such a name, PATH::GUEST"
    )
}

/// A service: HTTP requests that a module answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Serve {
    /// What people call it. One name is one service of a tenant at a node.
    pub name: String,
    /// The module, which the node has.
    pub module: Digest,
    /// Functions that answer; if there are none, the module's own handler does.
    pub routes: Vec<Route>,
    /// Where clients find it.
    pub address: Listen,
    /// A certificate and its key, as PEM, where clients come by TLS.
    pub tls: Option<(Bytes, Bytes)>,
    /// Names that it answers to at an address of loopback, beyond addresses and `localhost`; `*` is all.
    pub hosts: Vec<String>,
    /// How many requests may be under way at a time.
    pub most_running: u32,
    /// How many more may wait for that.
    pub most_waiting: u32,
    /// How long a request may wait, in milliseconds.
    pub patience_ms: u64,
    /// What each request asks for.
    pub terms: Terms,
    /// What each may use besides.
    pub limits: Limits,
    /// What each may reach.
    pub grants: Grants,
    /// Whether it goes on without the session, until it is stopped. In a cluster every node serves it then, unless it has
    /// what only one node has: a folder, or a port that the node chooses.
    pub is_detached: bool,
}

/// Where a service listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listen {
    /// There; port 0 is one that the node chooses.
    At(SocketAddr),
    /// At this port of the address at which the node is reached by others; of the loopback where it is alone.
    Advertised(u16),
}

impl Listen {
    /// The address of a node that others reach there, if any do.
    pub fn address(self, advertised: Option<IpAddr>) -> SocketAddr {
        match self {
            Self::At(address) => address,
            Self::Advertised(port) => {
                let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
                SocketAddr::new(advertised.unwrap_or(loopback), port)
            }
        }
    }

    /// The port; 0 is one that the node chooses.
    pub fn port(self) -> u16 {
        match self {
            Self::At(address) => address.port(),
            Self::Advertised(port) => port,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => write!(f, "{address}"),
            Self::Advertised(port) => write!(f, ":{port}"),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.strip_prefix(':') {
            Some(port) => port.parse().ok().map(Self::Advertised),
            None => text.parse().ok().map(Self::At),
        };
        parsed.ok_or_else(|| {
            format!(
                "'{text}' must be the IP address of an interface and a port, such as 127.0.0.1:8080; the address 0.0.0.0 \
                 is all interfaces, and :8080 the address at which other nodes reach a node"
            )
        })
    }
}

/// Which addresses a guest may talk to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Net {
    /// None.
    #[default]
    None,
    /// These only. Port 0 stands for any.
    Only(Vec<SocketAddr>),
    /// All.
    All,
}

/// What a task reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Input {
    /// Nothing.
    #[default]
    Empty,
    /// These bytes.
    Bytes(Bytes),
    /// What [`super::Request::Input`] brings.
    Stream,
}

/// An actor to be created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Create {
    /// The module, which the node has.
    pub module: Digest,
    /// The class, by any name that is unique.
    pub class: String,
    /// The arguments of its constructor.
    pub values: Vec<Argument>,
    /// Its name within the tenant.
    pub name: Option<String>,
    /// What it asks for.
    pub terms: Terms,
    /// What it and its calls may use besides.
    pub limits: Limits,
    /// What it may reach.
    pub grants: Grants,
    /// How often.
    pub wishes: Wishes,
    /// Whether it lives on when the session ends, until it is killed. Wants a name.
    pub is_detached: bool,
    /// The trace that its creation belongs to. Calls belong to that of their callers.
    pub trace: Option<TraceContext>,
}

impl Create {
    /// One without arguments and a name, that asks for no more than its class declares, and reaches nothing.
    pub fn new(module: Digest, class: String) -> Self {
        Self {
            module,
            class,
            values: Vec::new(),
            name: None,
            terms: Terms::default(),
            limits: Limits::default(),
            grants: Grants::default(),
            wishes: Wishes::default(),
            is_detached: false,
            trace: None,
        }
    }
}

/// How often an actor starts again, in place of what is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Wishes {
    /// After it died.
    pub restarts: Option<u32>,
    /// A call that was under way then.
    pub call_retries: Option<u32>,
}

/// What a node is to have of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetResource {
    /// The node's name, its id, or a unique prefix of that; the one that is asked if not given.
    pub node: Option<String>,
    /// The resource.
    pub name: ResourceName,
    /// How much there is of it from now on; nothing, and no such resource, if not given.
    pub amount: Option<Amount>,
    /// Whether it persists over restarts of the node.
    pub is_kept: bool,
}

/// A placement group to be created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateGroup {
    /// Its bundles, and how they lie to each other, without selectors.
    pub spec: GroupSpec,
    /// What people call it.
    pub name: Option<String>,
    /// Whether it stays when the session ends, until it is removed.
    pub is_detached: bool,
    /// What labels the node of each bundle must have: one for each, in their order, or none at all.
    pub selectors: Vec<Selectors>,
}

/// A call of an actor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The actor.
    pub actor: ActorId,
    /// The method.
    pub method: String,
    /// Its arguments.
    pub values: Vec<Argument>,
    /// Whether the session wants its report.
    pub is_watched: bool,
    /// How long an attempt may take, in milliseconds.
    pub time_ms: Option<u64>,
    /// The trace that it and its nested tasks belong to; that of their job if not given.
    pub trace: Option<TraceContext>,
}

/// Something that a task wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Whether to standard error.
    pub is_stderr: bool,
    /// Which of all that write to this: the task itself, or one that it started.
    pub writer: u64,
    /// Which attempt of that, from 1; 1 of an actor.
    pub attempt: u32,
    /// What.
    pub bytes: Bytes,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The task.
    pub task: TaskId,
    /// Whether it made a value, which is there to get; or how it failed.
    pub result: Result<bool, WireError>,
    /// How long it waited for resources, in microseconds.
    pub waited_us: u64,
    /// How long it ran, in microseconds.
    pub ran_us: u64,
    /// What it held while it ran.
    pub held: Vec<HeldResource>,
    /// The most its memories and tables came to, in bytes; 0 if it failed.
    pub memory_peak_bytes: u64,
    /// The end of what it wrote to standard error, if it failed.
    pub stderr_tail: String,
    /// Which attempt this was, from 1; 0 if none has begun.
    pub attempt: u32,
}

/// What a task held of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldResource {
    /// The resource.
    pub name: ResourceName,
    /// How much, in 1/10,000 of a unit.
    pub steps: u64,
    /// Which units and how much of each, in 1/10,000.
    pub units: Vec<(u32, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_listens_at_an_address_or_at_a_port_of_the_nodes_own() {
        for text in ["127.0.0.1:8080", "[::1]:0", ":8080"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for bad in ["localhost:80", "8080", ":", ":70000", "127.0.0.1", ""] {
            assert!(bad.parse::<Listen>().is_err(), "{bad}");
        }
        let own: Listen = ":8080".parse().unwrap();
        assert_eq!(own.address(None).to_string(), "127.0.0.1:8080");
        let advertised = "10.0.0.5".parse().ok();
        assert_eq!(own.address(advertised).to_string(), "10.0.0.5:8080");
        let fixed: Listen = "127.0.0.1:1".parse().unwrap();
        assert_eq!(fixed.address(advertised).port(), 1);
    }
}
