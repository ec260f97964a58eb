//! What a sandbox carries while it runs: its identity, its grants, its account.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use wasmrun_model::failure::{LimitHit, TaskError};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::http::HttpHost;
use wasmrun_model::id::TaskId;
use wasmrun_model::resource::ResourceName;
use wasmrun_model::secret::{self, FOLDER, ParseSecretError, SecretPlace, SecretUse};
use wasmrun_model::trace::{Span, TraceContext};
use wasmtime::component::ResourceTable;
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::sockets::SocketAddrUse;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

use crate::http::Http;
use crate::input::Input;
use crate::limits::{Limiter, Limits};
use crate::listener::OutputSource;
use crate::module::Module;
use crate::run::MOST_WASI_HANDLES;
use crate::secret_files::{Folder, SecretFile};
use crate::services::Services;
use crate::stdio::{Stream, TaskOutput};
use crate::windows::Windows;

/// Who a task is, where it runs and what it holds: what the context interface tells it.
#[derive(Debug, Clone)]
pub struct TaskContext {
    /// The task's id.
    pub task: TaskId,
    /// Which attempt this is, from 0.
    pub attempt: u32,
    /// Whose it is.
    pub tenant: TenantName,
    /// The node's name.
    pub node: Arc<str>,
    /// The task's index, if it is one of an array.
    pub array_index: Option<u64>,
    /// The attempt's span, where it is a node's.
    pub span: Option<Span>,
    /// The trace that a client has given.
    pub trace: Option<TraceContext>,
    /// What it holds, in order of name. An actor's calls hold what its creation holds, and nothing of their own.
    pub resources: Vec<HeldResource>,
}

/// What a task holds of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldResource {
    /// The resource's name.
    pub name: ResourceName,
    /// How much in all, in 1/10,000 of a unit.
    pub amount: u64,
    /// Which units and how much of each, in 1/10,000; empty for resources without ids.
    pub units: Vec<(u32, u64)>,
}

/// What a task may reach outside its sandbox. The default is nothing.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// Directories.
    pub dirs: Vec<DirGrant>,
    /// The network.
    pub net: NetGrant,
    /// The servers that it may send HTTP requests to.
    pub http: Vec<HttpHost>,
    /// Secrets, by name. The executor puts their values into `env` and `files` before; a sandbox does not know them.
    pub secrets: Vec<SecretUse>,
    /// Secrets that it finds as files, in `/run/secrets`.
    pub files: Vec<SecretFile>,
}

/// Why something cannot be granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// A guest would find one of them.
    #[error(
        "two directories are called {0} in the guest, which would find one of them: give each a name of its own"
    )]
    SameName(String),
    /// No environment has such a variable.
    #[error("'{0}' is no name of an environment variable: one is not empty, and has no '='")]
    Variable(String),
    /// A task cannot be given these secrets together.
    #[error(transparent)]
    Secrets(#[from] ParseSecretError),
}

impl Grants {
    /// Whether a guest finds all that it is given.
    ///
    /// # Errors
    /// When two directories have the same name, however that is written, or two secrets the same place; when a variable has a
    /// name that none can have.
    pub fn check(&self) -> Result<(), GrantError> {
        secret::check(&self.secrets)?;
        let is_bad = |name: &str| name.is_empty() || name.contains('=');
        if let Some((name, _)) = self.env.iter().find(|(name, _)| is_bad(name)) {
            // Behind a '=' there may be a value, which no error has.
            let end = name.char_indices().skip(1).find(|(_, c)| *c == '=');
            let name = &name[..end.map_or(name.len(), |(at, _)| at + 1)];
            return Err(GrantError::Variable(name.chars().take(40).collect()));
        }
        let mut names = BTreeSet::new();
        let has_files = |it: &SecretUse| matches!(it.place, SecretPlace::File(_));
        let secrets = self.secrets.iter().any(has_files).then_some(FOLDER);
        let given = self.dirs.iter().map(|dir| dir.guest.as_str());
        let mut given = given.chain(secrets);
        match given.find(|name| !names.insert(path_parts(name))) {
            Some(name) => Err(GrantError::SameName(name.to_owned())),
            None => Ok(()),
        }
    }
}

/// The parts of a guest's path, whatever way it is written.
fn path_parts(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts
}

/// A directory of the machine, given to a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirGrant {
    /// The directory on this machine.
    pub host: PathBuf,
    /// What the guest calls it.
    pub guest: String,
    /// Whether the guest may not change anything in it.
    pub read_only: bool,
}

/// Which addresses a guest may talk to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetGrant {
    /// None.
    #[default]
    None,
    /// These only, to connect or send to. Port 0 stands for any port.
    Only(Vec<SocketAddr>),
    /// All, listening and looking up names included.
    All,
}

/// Data of one sandbox's store.
pub(crate) struct TaskState {
    pub(crate) wasi: Wasi,
    pub(crate) limiter: Limiter,
    pub(crate) context: Arc<TaskContext>,
    /// The creation of the actor whose sandbox this is: what that holds, all calls hold.
    pub(crate) creation: Option<Arc<TaskContext>>,
    /// What runs.
    pub(crate) module: Module,
    /// Who answers for the rest of the system.
    pub(crate) services: Arc<dyn Services>,
    /// Objects in the guest's memory.
    pub(crate) windows: Windows,
    /// The folder of its secrets: held, never used.
    _secrets: Option<Folder>,
}

impl WasiView for TaskState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.get().ctx()
    }
}

impl WasiHttpView for TaskState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.wasi.http(&self.context.tenant)
    }
}

impl TaskState {
    /// What the guest holds, in order of name: its own, or what its actor holds.
    pub(crate) fn holds(&self) -> &[HeldResource] {
        &self.creation.as_ref().unwrap_or(&self.context).resources
    }

    /// The limit that the guest has run into, if it was not ended by that.
    pub(crate) fn hit(&self) -> Option<LimitHit> {
        self.limiter.hit().or_else(|| self.output_hit())
    }

    /// The same, of its output alone: with WASI 0.3, it hears of a write that failed, and goes on.
    pub(crate) fn output_hit(&self) -> Option<LimitHit> {
        self.wasi.world.output.hit()
    }

    /// The host's table of the guest's handles.
    pub(crate) fn table(&mut self) -> &mut ResourceTable {
        self.wasi.get().ctx().table
    }
}

/// What a guest sees of the world. It is made when the guest first looks: most functions never do, and to make it
/// takes longer than many of them run.
pub(crate) struct Wasi {
    world: World,
    made: Option<Box<WasiP1Ctx>>,
    http: Option<Box<Http>>,
}

impl Wasi {
    pub(crate) fn get(&mut self) -> &mut WasiP1Ctx {
        self.made.get_or_insert_with(|| {
            let mut wasi = WasiCtxBuilder::new();
            self.world.describe(&mut wasi);
            Box::new(built(&mut wasi))
        })
    }

    fn http<'a>(&'a mut self, tenant: &TenantName) -> WasiHttpCtxView<'a> {
        self.get();
        let Self { world, made, http } = self;
        let table = made.as_mut().expect("it was made").ctx().table;
        let http = http.get_or_insert_with(|| {
            let http = Http::new(&world.http, tenant.clone(), world.output.clone());
            Box::new(http)
        });
        http.view(table)
    }
}

/// What can be said of a guest's world without a look at the machine's.
struct World {
    output: Arc<TaskOutput>,
    /// Until it is described.
    input: Input,
    args: Vec<String>,
    env: Vec<(String, String)>,
    net: NetGrant,
    http: Vec<HttpHost>,
    /// Whether file calls may be made on the guest's own thread: where the host refuses files whose opening can block
    /// for ever.
    may_block: bool,
}

impl World {
    fn describe(&mut self, wasi: &mut WasiCtxBuilder) {
        let stream = |source| Stream {
            output: self.output.clone(),
            source,
        };
        wasi.stdout(stream(OutputSource::Stdout))
            .stderr(stream(OutputSource::Stderr));
        if let Some(input) = std::mem::take(&mut self.input).into_stream() {
            wasi.stdin(input);
        }
        wasi.args(&self.args).envs(&self.env);
        wasi.allow_blocking_current_thread(self.may_block);
        grant_network(wasi, &self.net);
    }
}

/// What a sandbox is set up with.
pub(crate) struct Setup<'a> {
    pub(crate) module: &'a Module,
    pub(crate) context: Arc<TaskContext>,
    pub(crate) grants: &'a Grants,
    pub(crate) args: &'a [String],
    pub(crate) limits: &'a Limits,
    pub(crate) output: &'a Arc<TaskOutput>,
    pub(crate) input: Input,
    pub(crate) services: Arc<dyn Services>,
}

impl Setup<'_> {
    /// What was granted, each name once with its last value, and what we say ourselves, which
    /// nothing that was granted can hide.
    fn environment(&self) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        let granted = self.grants.env.iter();
        let granted = granted.map(|(name, value)| (name.as_str().into(), value.as_str().into()));
        let index = self.context.array_index.map(|index| index.to_string());
        let index = index.map(|index| ("WASMRUN_ARRAY_INDEX".into(), index.into()));
        let gpus = self
            .context
            .resources
            .iter()
            .find(|held| held.name == ResourceName::GPU)
            .map(|gpu| {
                gpu.units
                    .iter()
                    .map(|(id, _)| id.to_string())
                    .collect::<Vec<_>>()
                    .join(",")
            });
        let gpus = ["WASMRUN_GPU_IDS", "CUDA_VISIBLE_DEVICES"]
            .into_iter()
            .filter_map(|name| Some((name.into(), gpus.clone()?.into())));
        let trace = self.context.trace.as_ref();
        let parent = trace.and(self.context.span);
        let parent = parent.map(|span| ("TRACEPARENT".into(), span.to_string().into()));
        let state = trace.and_then(TraceContext::state);
        let state = state.map(|state| ("TRACESTATE".into(), state.into()));
        let own = index.into_iter().chain(gpus).chain(parent).chain(state);
        let mut all: Vec<(Cow<'_, str>, Cow<'_, str>)> = Vec::new();
        for (name, value) in granted.chain(own) {
            match all.iter_mut().find(|(known, _)| *known == name) {
                Some((_, old)) => *old = value,
                None => all.push((name, value)),
            }
        }
        all
    }

    pub(crate) fn into_state(self) -> Result<TaskState, TaskError> {
        let env = self.environment().into_iter();
        let env = env.map(|(name, value)| (name.into_owned(), value.into_owned()));
        let mut world = World {
            env: env.collect(),
            output: self.output.clone(),
            input: self.input,
            args: self.args.to_vec(),
            net: self.grants.net.clone(),
            http: self.grants.http.clone(),
            may_block: self.module.has_guarded_files(),
        };
        if let Some(unopened) = self.grants.secrets.first() {
            let why = format!("secret {} was not opened for it", unopened.name);
            return Err(TaskError::Sandbox(why));
        }
        let secrets = match self.grants.files.as_slice() {
            [] => None,
            files => Some(secret_folder(files)?),
        };
        let granted = secrets.as_ref().map(|folder| DirGrant {
            host: folder.path().to_owned(),
            guest: FOLDER.to_owned(),
            read_only: true,
        });
        let dirs: Vec<&DirGrant> = self.grants.dirs.iter().chain(&granted).collect();
        // Who was granted what cannot be opened hears of it, whether it is used or not.
        let made = match dirs.as_slice() {
            [] => None,
            dirs => Some(Box::new(with_dirs(dirs, &mut world)?)),
        };
        Ok(TaskState {
            wasi: Wasi {
                world,
                made,
                http: None,
            },
            limiter: Limiter::new(self.limits.memory),
            context: self.context,
            creation: None,
            module: self.module.clone(),
            services: self.services,
            windows: Windows::default(),
            _secrets: secrets,
        })
    }
}

fn secret_folder(files: &[SecretFile]) -> Result<Folder, TaskError> {
    Folder::create(files).map_err(|error| {
        TaskError::Sandbox(format!(
            "its secrets cannot be given as files: {error}; give them as variables, or see that /dev/shm is in memory and has \
             room"
        ))
    })
}

fn with_dirs(dirs: &[&DirGrant], world: &mut World) -> Result<WasiP1Ctx, TaskError> {
    let mut wasi = WasiCtxBuilder::new();
    world.describe(&mut wasi);
    for dir in dirs {
        let perms = match dir.read_only {
            true => FsPerms::ReadOnly,
            false => FsPerms::ReadWrite,
        };
        let opened = wasi.preopened_dir(&dir.host, &dir.guest, perms);
        opened.map_err(|error| {
            let host = dir.host.display();
            TaskError::Sandbox(format!(
                "cannot open the granted directory {host}: {error:#}"
            ))
        })?;
    }
    Ok(built(&mut wasi))
}

fn built(wasi: &mut WasiCtxBuilder) -> WasiP1Ctx {
    let mut made = wasi.build_p1();
    made.ctx().table.set_max_capacity(MOST_WASI_HANDLES);
    made
}

fn grant_network(wasi: &mut WasiCtxBuilder, grant: &NetGrant) {
    match grant {
        NetGrant::None => {}
        NetGrant::All => {
            wasi.inherit_network()
                .allow_tcp(true)
                .allow_udp(true)
                .allow_ip_name_lookup(true);
        }
        NetGrant::Only(allowed) => {
            let allowed: Arc<[SocketAddr]> = allowed.as_slice().into();
            wasi.allow_tcp(true)
                .allow_udp(true)
                .socket_addr_check(move |address, purpose| {
                    let ok = is_allowed(&allowed, address, purpose);
                    Box::pin(async move { ok })
                });
        }
    }
}

fn is_allowed(allowed: &[SocketAddr], address: SocketAddr, purpose: SocketAddrUse) -> bool {
    match purpose {
        SocketAddrUse::TcpConnect | SocketAddrUse::UdpSend | SocketAddrUse::UdpReceive => {}
        // To connect or send, a socket is bound first, to any address and any port.
        SocketAddrUse::TcpBind | SocketAddrUse::UdpBind => {
            return address.ip().is_unspecified() && address.port() == 0;
        }
        _ => return false,
    }
    let canonical = |ip: IpAddr| ip.to_canonical();
    allowed.iter().any(|a| {
        canonical(a.ip()) == canonical(address.ip())
            && (a.port() == 0 || a.port() == address.port())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_secrets_and_a_directory_cannot_have_one_name() {
        let dir = DirGrant {
            host: "/h".into(),
            guest: "/run/./secrets/".into(),
            read_only: false,
        };
        let of = |secret: &str| Grants {
            dirs: vec![dir.clone()],
            secrets: vec![secret.parse().unwrap()],
            ..Grants::default()
        };
        assert_eq!(of("KEY").check(), Ok(()));
        assert!(of("/run/secrets/key=KEY").check().is_err());
    }

    #[test]
    fn a_variable_is_none_of_the_secrets() {
        let of = |name: &str| Grants {
            env: vec![(name.to_owned(), "KEY".to_owned())],
            ..Grants::default()
        };
        assert_eq!(of("TOKEN").check(), Ok(()));
        for (bad, shown) in [
            ("=TOKEN", "=TOKEN"),
            ("=/run/secrets/key", "=/run/secrets/key"),
            ("", ""),
            ("A=hunter2", "A="),
        ] {
            let refused = Err(GrantError::Variable(shown.to_owned()));
            assert_eq!(of(bad).check(), refused);
        }
        let twice = Grants {
            secrets: vec!["A".parse().unwrap(), "A=B".parse().unwrap()],
            ..Grants::default()
        };
        assert!(matches!(twice.check(), Err(GrantError::Secrets(_))));
    }

    #[test]
    fn only_the_named_addresses_pass() {
        let allowed = ["10.0.0.1:80".parse().unwrap(), "[::1]:0".parse().unwrap()];
        let ok = |a: &str, purpose| is_allowed(&allowed, a.parse().unwrap(), purpose);
        assert!(ok("10.0.0.1:80", SocketAddrUse::TcpConnect));
        assert!(ok("[::ffff:10.0.0.1]:80", SocketAddrUse::TcpConnect));
        assert!(!ok("10.0.0.1:81", SocketAddrUse::TcpConnect));
        assert!(ok("[::1]:1234", SocketAddrUse::UdpSend));
        assert!(!ok("[::1]:1234", SocketAddrUse::TcpBind));
        assert!(!ok("0.0.0.0:0", SocketAddrUse::TcpListen));
        assert!(!ok("10.0.0.1:80", SocketAddrUse::UdpBind));
        assert!(ok("0.0.0.0:0", SocketAddrUse::UdpBind));
    }
}
