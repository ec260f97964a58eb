//! `cargo xtask bench --idle-nodes N`: what a cluster of so many nodes costs that has nothing to do.
//!
//! Owns the nodes: each a process of the real binary, on this machine, which must be able to bear them. What they
//! send is what passes over the loopback interface, so nothing else should talk there meanwhile.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

/// How long after a node the next one is started: a hundred handshakes at once would be another measurement.
const APART: Duration = Duration::from_millis(200);
/// How long all may take to be there.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long they are left alone before it is measured, and while it is.
const SETTLE: Duration = Duration::from_secs(30);
const MEASURE: Duration = Duration::from_secs(30);

pub fn run(wasmrun: &Path, nodes: &str) -> Result<()> {
    let count: usize = nodes
        .parse()
        .ok()
        .filter(|count| *count > 0)
        .with_context(|| {
            format!("--idle-nodes takes how many nodes there are to be, 1 or more, not '{nodes}'")
        })?;
    let dir = std::env::temp_dir().join(format!("wasmrun-idle-{}", std::process::id()));
    let measured = Cluster::start(wasmrun, &dir, count).and_then(|mut cluster| cluster.measure());
    let _ = fs::remove_dir_all(&dir);
    measured
}

/// Nodes that run until this is dropped; the first is the head.
struct Cluster(Vec<Child>);

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.0 {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

impl Cluster {
    fn start(wasmrun: &Path, dir: &Path, count: usize) -> Result<Self> {
        let mut cluster = Self(Vec::new());
        let head = address(&dir.join("0"));
        cluster.add(wasmrun, &dir.join("0"), &["--head"], None)?;
        let begun = Instant::now();
        let at_head = |args: &[&str]| {
            let mut command = shell::command(wasmrun);
            command.args(["--address", &head]).args(args);
            shell::read(&mut command)
        };
        let token = loop {
            match at_head(&["node", "token", "create", "--many"]) {
                Ok(token) => break token,
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                Err(_) => sleep(APART),
            }
        };
        for at in 1..count {
            let dir = dir.join(at.to_string());
            cluster.add(wasmrun, &dir, &["--join"], Some(token.trim()))?;
            sleep(APART);
        }
        loop {
            let alive = at_head(&["node", "list"])?.matches(" alive ").count();
            if alive == count {
                return Ok(cluster);
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "{alive} of {count} nodes were there after {PATIENCE:?}"
            );
            sleep(APART * 5);
        }
    }

    fn add(
        &mut self,
        wasmrun: &Path,
        dir: &Path,
        part: &[&str],
        token: Option<&str>,
    ) -> Result<()> {
        let state = dir.join("state");
        shell::private_dir(dir)?;
        let mut node = shell::command(wasmrun);
        node.args(["--address", &address(dir), "node", "start"])
            .args(part);
        node.args(["--listen", "127.0.0.1:0", "--log", "error", "--state-dir"])
            .arg(state);
        node.args(["--node-name", &format!("n{}", self.0.len())]);
        // Many must fit into the memory of one machine; idle ones need none of it.
        node.args([
            "--node-cpus",
            "1",
            "--node-memory",
            "64MiB",
            "--object-memory",
            "16MiB",
        ]);
        node.args(["--cache-dir", "none"]);
        node.envs(token.map(|token| ("WASMRUN_JOIN_TOKEN", token)));
        node.stdin(Stdio::null()).stdout(Stdio::null());
        let node = node
            .spawn()
            .with_context(|| format!("cannot start {}", wasmrun.display()))?;
        self.0.push(node);
        Ok(())
    }

    fn measure(&mut self) -> Result<()> {
        eprintln!(
            "bench: {} nodes are there; measuring in {SETTLE:?}, for {MEASURE:?}…",
            self.0.len()
        );
        sleep(SETTLE);
        let before = (self.ticks()?, sent()?);
        sleep(MEASURE);
        let after = (self.ticks()?, sent()?);
        let per_second: f64 = shell::read(Command::new("getconf").arg("CLK_TCK"))?
            .trim()
            .parse()
            .context("getconf gives no number")?;
        let share = |ticks: f64| ticks / per_second / MEASURE.as_secs_f64() * 100.0;
        let used = std::iter::zip(&after.0, &before.0);
        let used: Vec<f64> = used
            .map(|(after, before)| (after - before) as f64)
            .collect();
        let mean = used.iter().sum::<f64>() / used.len() as f64;
        let others = used.iter().skip(1).copied().fold(0.0, f64::max);
        let rate = |after: u64, before: u64| (after - before) as f64 / MEASURE.as_secs_f64();
        println!("idle cluster of {} nodes, {MEASURE:?}", self.0.len());
        println!(
            "  traffic in all   {:.0} kB/s, {:.0} datagrams/s",
            rate(after.1.0, before.1.0) / 1e3,
            rate(after.1.1, before.1.1)
        );
        println!("  CPU a node       {:.2} % of a core (mean)", share(mean));
        println!(
            "  CPU of the head  {:.2} %, of the busiest other {:.2} %",
            share(used[0]),
            share(others)
        );
        Ok(())
    }

    /// The processor time of each, in clock ticks.
    fn ticks(&mut self) -> Result<Vec<u64>> {
        let of = |node: &mut Child| {
            // Of one that has ended the system still tells the time.
            if let Some(status) = node.try_wait()? {
                bail!("a node has ended ({status})");
            }
            let path = format!("/proc/{}/stat", node.id());
            let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
            // The program's name, in brackets, may hold anything.
            let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
            let fields: Vec<&str> = fields.split_whitespace().collect();
            let field = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
            match (field(11), field(12)) {
                (Some(user), Some(system)) => Ok(user + system),
                _ => bail!("{path} is not what proc(5) says"),
            }
        };
        self.0.iter_mut().map(of).collect()
    }
}

fn address(dir: &Path) -> String {
    format!("unix:{}", dir.join("node.sock").display())
}

/// Bytes and packets that the loopback interface has carried.
fn sent() -> Result<(u64, u64)> {
    let devices = fs::read_to_string("/proc/net/dev").context("this needs Linux")?;
    let lines = devices
        .lines()
        .filter_map(|line| line.trim().strip_prefix("lo:"));
    let fields = lines.flat_map(str::split_whitespace).take(2);
    let fields: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        [bytes, packets] => Ok((bytes, packets)),
        _ => bail!("/proc/net/dev tells nothing of the interface lo"),
    }
}
