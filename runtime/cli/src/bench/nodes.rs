//! The cases of `wasmrun bench` about a cluster: two nodes on this machine, connected over loopback and
//! encrypted as always.
//!
//! Owns [`Pair`]: a head in this process, and another node in a process of its own, which ends with it. The driver is
//! in the head's process; what it reads is timed from when it asks until all bytes can be read there.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use tempfile::TempDir;
use wasmrun_engine::{Entry, Grants, Module};
use wasmrun_model::cluster::Strategy;
use wasmrun_model::resource::{Amount, ResourceName};
use wasmrun_model::value::codec::encode;
use wasmrun_model::value::{Value as Plain, ValueType};
use wasmrun_node::{
    Argument, Call, Client, ClusterConfig, Job, Node, NodeConfig, Overrides, Part, Readable,
    TaskHandle, Value, wait_all,
};

use super::cases::{ASYNC_TASKS, Setting};
use super::objects::{gigabytes_per_second, have_free};
use super::{Sample, ourselves};
use crate::daemon::cluster::TOKEN;
use crate::fail::Failure;
use crate::local;

/// How long the nodes may take to find each other.
const PATIENCE: Duration = Duration::from_secs(60);
/// How soon is looked again.
const LOOK: Duration = Duration::from_millis(10);
/// As of a node that is started without `--lease-time`.
const LEASE: Duration = Duration::from_secs(3);
/// What each node may have of objects: the largest, and what was freed before it.
const OBJECT_BYTES: u64 = 3 << 30;
/// What a task of the chain makes.
const LINK_BYTES: usize = 10 << 20;
/// The other node.
const OTHER: &str = "other";

/// Where a task runs.
#[derive(Debug, Clone, Copy)]
enum Where {
    Other,
    OtherWhileAlive,
    Any,
}

/// Two nodes that know each other.
pub struct Pair {
    client: Client,
    module: Module,
    /// Ended first, so that the head has nobody to wait for.
    other: Child,
    head: Node,
    _scratch: TempDir,
}

impl Drop for Pair {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.other.kill();
        let _ = self.other.wait();
    }
}

impl Pair {
    fn start(setting: &Setting) -> Result<Self, Failure> {
        let scratch = tempfile::tempdir().context("cannot make a folder for the nodes")?;
        let options = setting.options();
        let objects = options.object_memory.unwrap_or(OBJECT_BYTES);
        let cpus = (setting.cpus() / 2).max(1);
        let head = Node::start(NodeConfig {
            name: Some("head".into()),
            cpus: Amount::from_units(cpus),
            object_memory: Some(objects),
            cluster: Some(ClusterConfig {
                state_dir: scratch.path().join("head"),
                part: Part::Head,
                etcd: None,
                oidc: None,
                listen: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)),
                advertise: Vec::new(),
                lease_ttl: LEASE,
            }),
            ..local::config(options)?
        })?;
        let token = head.join_token(false, PATIENCE).transpose()?;
        let token = token.context("a head makes tokens")?;
        let state = scratch.path().join(OTHER);
        let mut command = Command::new(ourselves()?);
        command
            .args(["node", "start", "-q", "--tied", "--node-name", OTHER])
            .args(["--node-cpus", &cpus.to_string()])
            .args(["--object-memory", &objects.to_string()])
            .arg("--state-dir")
            .arg(&state)
            .arg("--address")
            .arg(format!("unix:{}", state.join("node.sock").display()))
            .arg("--cache-dir")
            .arg(scratch.path().join("code"))
            // Every user of this machine can read the command line. Last, or what follows would be its value.
            .arg("--join")
            .env(TOKEN, token.to_string())
            // It ends with us, however we end.
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let other = command.spawn().context("cannot start a second node")?;
        let pair = Self {
            client: head.client(),
            module: head
                .load(&std::fs::read(setting.module_path())?)
                .context("cannot load the guest")?,
            other,
            head,
            _scratch: scratch,
        };
        if !pair.head.wait_for_members(2, PATIENCE) {
            return Err(anyhow!("the second node does not find the first").into());
        }
        pair.warm_up()?;
        Ok(pair)
    }

    /// Waits until the head knows what the other node has, and both have the guest's code.
    fn warm_up(&self) -> Result<(), Failure> {
        let job = self.job("noop", 0, Where::Other)?;
        let started = Instant::now();
        loop {
            match self.client.submit(&job, Call::default()) {
                Ok(task) => return Ok(task.wait().result.map(drop)?),
                Err(error) if started.elapsed() > PATIENCE => return Err(error.into()),
                // It is a member, and has not said yet what it has.
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }

    /// A job of the guest's, on values of so many bytes.
    fn job(&self, function: &str, bytes: usize, place: Where) -> Result<Arc<Job>, Failure> {
        let other = |soft| Strategy::NodeAffinity {
            node: OTHER.parse().expect("a name"),
            soft,
        };
        let strategy = match place {
            Where::Other => other(false),
            Where::OtherWhileAlive => other(true),
            Where::Any => Strategy::Default,
        };
        let find = self.module.find(function);
        let entry =
            Entry::Function(find.context("the guest is none for the cases with two nodes")?);
        let mut overrides = Overrides {
            strategy,
            retries: Some(3),
            argument_bytes: 2 << 30,
            result_bytes: 2 << 30,
            ..Overrides::default()
        };
        if bytes > 1 << 20 {
            // An argument and a result of that size, and the guest.
            let memory = Amount::from_units(2 * bytes as u64 + (64 << 20));
            let memory = memory.context("it is no memory")?;
            overrides.resources.0.insert(ResourceName::MEMORY, memory);
        }
        let made = Job::new(function, &self.module, entry, &overrides, Grants::default());
        Ok(Arc::new(made?))
    }

    /// Starts a task that makes so many bytes at the other node.
    fn make_there(&self, bytes: usize) -> Result<TaskHandle, Failure> {
        let count = Plain::U32(u32::try_from(bytes).context("too many")?);
        let call = Call {
            values: vec![encode(&ValueType::U32, &count)?.into()],
            ..Call::default()
        };
        Ok(self
            .client
            .submit(&self.job("make", bytes, Where::OtherWhileAlive)?, call)?)
    }

    /// So many bytes that the other node has.
    fn made_there(&self, bytes: usize) -> Result<Value, Failure> {
        let made = self.make_there(bytes)?.wait().result?;
        Ok(made.context("the guest makes nothing")?)
    }

    /// The time that it takes to have such an object here.
    fn bring(&self, bytes: usize) -> Result<Duration, Failure> {
        self.have_here(&self.made_there(bytes)?, bytes)
    }

    /// The time that it takes to have this object here.
    fn have_here(&self, value: &Value, bytes: usize) -> Result<Duration, Failure> {
        let started = Instant::now();
        let loaded = self.client.load(value).context("it did not come")?;
        let took = started.elapsed();
        let len = loaded.encoded().bytes().len();
        match len == bytes {
            true => Ok(took),
            false => Err(anyhow!("{len} bytes of {bytes} came").into()),
        }
    }
}

impl Setting {
    /// Does something with two nodes, which stay for the other runs of the case.
    fn with_pair<T>(&self, act: impl FnOnce(&Pair) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut pair = self.pair.lock().expect("no case panics");
        if pair.is_none() {
            *pair = Some(Pair::start(self)?);
        }
        act(pair.as_ref().expect("it has just been made"))
    }

    /// Brings an object of this size from the other node, to memory that was used before: GB/s.
    pub(super) fn transfer(&self, bytes: usize) -> Result<Sample, Failure> {
        let bytes = self.bytes(bytes);
        let times = self.count(((64 << 20) / bytes).clamp(1, 20));
        let mut latencies = Vec::with_capacity(times);
        self.with_pair(|pair| {
            for _ in 0..times {
                latencies.push(pair.bring(bytes)?);
            }
            Ok(())
        })?;
        latencies.sort_unstable();
        Ok(Sample {
            value: gigabytes_per_second(bytes, latencies[latencies.len() / 2]),
            latencies,
        })
    }

    /// Brings 1 GiB between two nodes that have just started: GB/s.
    pub(super) fn transfer_1g_first(&self) -> Result<Sample, Failure> {
        let bytes = self.bytes(1 << 30);
        let pair = Pair::start(self)?;
        let value = pair.made_there(bytes)?;
        have_free(bytes);
        let took = pair.have_here(&value, bytes)?;
        Ok(Sample::from(gigabytes_per_second(bytes, took)))
    }

    /// Three tasks at the other node, each with the result of the one before; then the node is killed, and the last
    /// value is read: s.
    pub(super) fn recover_chain(&self) -> Result<Sample, Failure> {
        let bytes = self.bytes(LINK_BYTES);
        let mut pair = Pair::start(self)?;
        let echo = pair.job("echo", bytes, Where::OtherWhileAlive)?;
        let mut last = pair.make_there(bytes)?;
        for _ in 0..2 {
            let call = Call {
                values: vec![Argument::Object(last.object())],
                ..Call::default()
            };
            // What is between them nobody keeps but the chain.
            last = pair.client.submit(&echo, call)?;
        }
        let made = last.wait().result?.context("the guest makes nothing")?;
        let killed = Instant::now();
        pair.other.kill().context("the node cannot be killed")?;
        let loaded = pair.client.load(&made).context("it was not made again")?;
        let took = killed.elapsed();
        match loaded.encoded().bytes().len() == bytes {
            true => Ok(Sample::from(took.as_secs_f64())),
            false => Err(anyhow!("something else was made").into()),
        }
    }

    /// Tasks that do nothing, from one driver, wherever its node has them run: 1/s.
    pub(super) fn tasks_async_2nodes(&self) -> Result<Sample, Failure> {
        let tasks = self.count(ASYNC_TASKS);
        self.with_pair(|pair| {
            let noop = pair.job("noop", 0, Where::Any)?;
            let started = Instant::now();
            let submit = |_| pair.client.submit(&noop, Call::default());
            let handles = (0..tasks).map(submit).collect::<Result<Vec<_>, _>>()?;
            let mut reports = wait_all(handles).into_iter();
            reports.try_for_each(|report| report.result.map(drop))?;
            Ok(Sample::from(tasks as f64 / started.elapsed().as_secs_f64()))
        })
    }
}
