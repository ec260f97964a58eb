//! `wasmrun doctor`: is this machine fit to run tasks, and fast?

mod ports;

use std::fs;
use std::path::Path;

use serde_json::json;
use wasmrun_engine::CacheStatus;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::units;
use wasmrun_model::wire::Address;
use wasmrun_node::{Machine, Node};

use self::ports::{Own, Port, Protocol};
use crate::args::{Doctor, Global, Output};
use crate::fail::{CommandResult, Exit, Failure};
use crate::printer::{Column, Printer, table};
use crate::{local, remote};

/// How a check came out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// It works, but not as well as it could, or not as it is.
    Note,
    /// Tasks cannot run.
    Bad,
}

struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
}

impl Check {
    fn new(name: &'static str, good: bool, found: impl Into<String>) -> Self {
        let verdict = if good { Verdict::Good } else { Verdict::Note };
        Self {
            name,
            verdict,
            found: found.into(),
        }
    }
}

pub fn doctor(options: &Doctor, global: &Global, printer: &Printer) -> CommandResult {
    let machine = Machine::detect();
    let mut checks = vec![
        cpus(&machine),
        memory(&machine),
        gpus(&machine),
        address_space(),
        mappings(),
        pagemap_scan(),
        safe_open(),
        huge_pages(),
        open_files(),
        shared_memory(),
    ];
    checks.extend(ports(options).map(|port| port.check(|| own(global))));
    match Node::start(local::config(&options.node)?) {
        Ok(node) => {
            checks.push(cache(&node.engine().cache_status()));
            checks.push(sandbox(&node));
        }
        Err(error) => checks.push(Check {
            name: "node",
            verdict: Verdict::Bad,
            found: error.to_string(),
        }),
    }
    let word = |verdict| match verdict {
        Verdict::Good => "ok",
        Verdict::Note => "note",
        Verdict::Bad => "FAIL",
    };
    if printer.output == Output::Json {
        let checks = checks.iter().map(|check| {
            json!({"name": check.name, "verdict": word(check.verdict), "found": check.found})
        });
        let checks: Vec<_> = checks.collect();
        printer.json(&json!({ "version": 1, "checks": checks }))?;
    } else {
        let rows = checks.iter().map(|check| {
            vec![
                check.name.to_owned(),
                word(check.verdict).to_owned(),
                check.found.clone(),
            ]
        });
        printer.result(table(
            &["check", "", "found"].map(Column::text),
            &rows.collect::<Vec<_>>(),
        ))?;
    }
    match checks
        .iter()
        .filter(|check| check.verdict == Verdict::Bad)
        .count()
    {
        0 => Ok(()),
        n => Err(Failure::new(
            Exit::TaskFailed,
            anyhow::anyhow!(
                "{n} of {} checks failed: tasks cannot run here",
                checks.len()
            ),
        )),
    }
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn cpus(machine: &Machine) -> Check {
    let n = machine.cpus;
    Check::new("CPUs", true, format!("{n} (within affinity and CPU quota)"))
}

fn memory(machine: &Machine) -> Check {
    let all = units::bytes(machine.memory_bytes);
    let offered = units::bytes(machine.task_memory_bytes());
    let good = machine.memory_bytes >= 512 << 20;
    let advice = if good {
        ""
    } else {
        "; tasks ask for 256 MiB unless told otherwise"
    };
    Check::new(
        "memory",
        good,
        format!("{all}, {offered} of it for tasks{advice}"),
    )
}

fn gpus(machine: &Machine) -> Check {
    let found = match machine.gpus {
        0 => "none listed by the NVIDIA driver".to_owned(),
        n => format!("{n} listed by the NVIDIA driver"),
    };
    Check::new("GPUs", true, found)
}

fn address_space() -> Check {
    use rustix::process::{Resource, getrlimit};
    match getrlimit(Resource::As).current {
        None => Check::new("address space", true, "not limited"),
        Some(limit) => Check {
            name: "address space",
            verdict: Verdict::Bad,
            found: format!(
                "limited to {}; sandboxes reserve several TiB that they never touch: \
                 ulimit -v unlimited, or fewer with --max-sandboxes",
                units::bytes(limit)
            ),
        },
    }
}

fn mappings() -> Check {
    let max = read("/proc/sys/vm/max_map_count").and_then(|text| text.parse::<u64>().ok());
    match max {
        None => Check::new("memory mappings", true, "unknown"),
        // Every live sandbox takes four or so.
        Some(max) => Check::new(
            "memory mappings",
            max >= 65_530,
            format!("at most {max}, enough for about {} live sandboxes", max / 4),
        ),
    }
}

fn pagemap_scan() -> Check {
    let good = wasmrun_engine::has_pagemap_scan();
    let found = match good {
        true => "the kernel can tell which pages a task touched (PAGEMAP_SCAN)",
        false => "no PAGEMAP_SCAN: sandboxes are cleared more slowly; use Linux 6.7 or newer",
    };
    Check::new("kernel", good, found)
}

fn safe_open() -> Check {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    let (flags, resolve) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::BENEATH);
    match openat2(CWD, ".", flags, Mode::empty(), resolve) {
        Ok(_) => Check::new(
            "files",
            true,
            "the kernel can open files beneath a folder (openat2)",
        ),
        Err(error) => Check {
            name: "files",
            verdict: Verdict::Bad,
            found: format!("openat2 fails: {error}; components cannot open files given with --dir"),
        },
    }
}

fn huge_pages() -> Check {
    let mode = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let chosen = mode
        .as_deref()
        .and_then(|m| m.split('[').nth(1)?.split(']').next());
    let found = match chosen {
        Some(mode) => format!("for shared memory: {mode}"),
        None => "not available for shared memory".to_owned(),
    };
    Check::new("huge pages", true, found)
}

fn open_files() -> Check {
    use rustix::process::{Resource, getrlimit};
    match getrlimit(Resource::Nofile).current {
        None => Check::new("open files", true, "not limited"),
        Some(n) => Check::new("open files", n >= 1024, format!("at most {n}")),
    }
}

fn shared_memory() -> Check {
    let path = Path::new("/dev/shm");
    match rustix::fs::statvfs(path) {
        Ok(fs) => {
            let size = fs.f_blocks.saturating_mul(fs.f_frsize);
            Check::new("/dev/shm", true, units::bytes(size))
        }
        Err(_) => Check::new("/dev/shm", true, "not mounted (not needed)"),
    }
}

/// Where a node listens if it is started with the same options.
fn ports(options: &Doctor) -> [Port; 2] {
    [
        Port {
            name: "node port",
            protocol: Protocol::Udp,
            address: options.listen,
            option: "--listen",
        },
        Port {
            name: "metrics port",
            protocol: Protocol::Tcp,
            address: options.metrics,
            option: "--metrics",
        },
    ]
}

/// The node that runs here, if one is found. One of another machine has nothing to do with this one's ports.
fn own(global: &Global) -> Option<Own> {
    let Ok(Address::Unix(_)) = remote::address(global) else {
        return None;
    };
    let client = remote::connect(global, &TenantName::default()).ok()?;
    let status = client.wait(client.status()).ok()?;
    Some(Own {
        name: status.name,
        process: status.process,
    })
}

fn cache(status: &CacheStatus) -> Check {
    match status {
        CacheStatus::Off => Check::new("code cache", false, "off: modules are compiled each time"),
        CacheStatus::Ready(dir) => Check::new("code cache", true, dir.display().to_string()),
        CacheStatus::Unusable { reason, .. } => Check::new("code cache", false, reason.clone()),
    }
}

/// Runs a real task.
fn sandbox(node: &Node) -> Check {
    match crate::bench::run_once(node) {
        Ok(took) => {
            let took = units::duration(took);
            Check::new("sandbox", true, format!("a task ran in {took}"))
        }
        Err(error) => Check {
            name: "sandbox",
            verdict: Verdict::Bad,
            found: error.to_string(),
        },
    }
}
