//! What whole processes take: memory, and time to start.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, anyhow};

use crate::bench::cases::Setting;
use crate::bench::{Sample, ourselves};
use crate::fail::Failure;

const IDLE_ACTORS: u32 = 500;

impl Setting {
    pub(super) fn memory_idle(&self) -> Result<Sample, Failure> {
        Ok(Sample::from(self.weigh(None, 0)?))
    }

    pub(super) fn memory_actor(&self) -> Result<Sample, Failure> {
        let (path, _) = self.flow().context("the case needs --flow-module")?;
        let actors = self.count(IDLE_ACTORS);
        let all = self.weigh(Some(path), actors)? - self.weigh(Some(path), 0)?;
        Ok(Sample::from(all / f64::from(actors)))
    }

    /// The proportional set size of a node with so many actors, in bytes.
    fn weigh(&self, flow: Option<&Path>, actors: u32) -> Result<f64, Failure> {
        let mut child = Command::new(ourselves()?)
            .arg("idle-node")
            .arg(&self.module_path)
            .args(flow.map(|_| "--flow-module"))
            .args(flow)
            .args(["--actors", &actors.to_string()])
            .arg("--cache-dir")
            .arg(self.scratch.join("code"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a node to weigh")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line)?;
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", child.id()));
        drop(child.stdin.take());
        child.wait()?;
        let rollup = rollup.context("cannot read the memory of the node")?;
        let kilobytes = rollup.lines().find_map(|line| {
            line.strip_prefix("Pss:")?
                .trim()
                .strip_suffix("kB")?
                .trim()
                .parse()
                .ok()
        });
        let kilobytes: f64 = kilobytes.ok_or_else(|| anyhow!("the kernel reports no Pss"))?;
        Ok(kilobytes * 1024.0)
    }

    pub(super) fn start_cold(&self) -> Result<Sample, Failure> {
        let fresh = self.fresh_dirs.fetch_add(1, Ordering::Relaxed);
        self.start(&self.scratch.join(format!("cold-{fresh}")))
    }

    pub(super) fn start_warm(&self) -> Result<Sample, Failure> {
        self.start(&self.scratch.join("warm"))
    }

    fn start(&self, cache: &Path) -> Result<Sample, Failure> {
        let mut command = Command::new(ourselves()?);
        command
            .arg("submit")
            .arg(&self.module_path)
            .args(["--invoke", "noop()"]);
        command.arg("--cache-dir").arg(cache).stdin(Stdio::null());
        let started = Instant::now();
        let output = command.output().context("cannot start wasmrun submit")?;
        let took = started.elapsed();
        if !output.status.success() {
            std::io::stderr().write_all(&output.stderr)?;
            return Err(anyhow!("wasmrun submit failed with {}", output.status).into());
        }
        Ok(Sample::from(took.as_secs_f64() * 1e3))
    }
}
