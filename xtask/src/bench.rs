//! `cargo xtask bench`: our micro-benchmarks, on a release build of this checkout; and the same cases
//! on Ray beside them, for anybody to repeat. What comparisons share is here; that of servers is in [`against_serve`].

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{against_serve, demo, guests, idle, page, python, shell};

const GUEST: &str = "target/guests/bench.wasm";
const FLOW_GUEST: &str = "target/guests/flow.wasm";

/// The comparison. It prints its own table: no JSON is read here.
const AGAINST_RAY: &str = "xtask/src/against_ray.py";

/// The release of Ray that is compared with.
const RAY: &str = "ray==2.60.*";

/// Builds everything and hands over to `wasmrun bench` with the arguments given, or compares.
pub fn run(args: &[String]) -> Result<()> {
    if let Some(at) = args.iter().position(|arg| arg == "--against") {
        let others = args[..at].iter().chain(args.iter().skip(at + 2));
        let others: Vec<&str> = others.map(String::as_str).collect();
        return match args.get(at + 1).map(String::as_str) {
            Some("ray") => against_ray(&others),
            Some("serve") => against_serve::run(&others),
            _ => bail!("--against takes what to compare with: ray, or serve for servers of HTTP"),
        };
    }
    let wasmrun = built()?;
    if let [flag, nodes] = args
        && flag == "--idle-nodes"
    {
        return idle::run(&wasmrun, nodes);
    }
    if args == ["--page"] {
        return page::run(&wasmrun);
    }
    let mut bench = shell::command(wasmrun);
    bench.args(["bench", "--module", GUEST, "--flow-module", FLOW_GUEST]);
    bench.args(args);
    eprintln!("$ {}", shell::show(&bench));
    shell::run(&mut bench)
}

/// The release binary, with the guests built, too.
fn built() -> Result<PathBuf> {
    let wasmrun = demo::build_wasmrun(demo::Build::Release)?;
    guests::build()?;
    Ok(wasmrun)
}

fn against_ray(cases: &[&str]) -> Result<()> {
    let wasmrun = built()?;
    let mut bench = alone(&ray()?);
    bench.arg(AGAINST_RAY).arg(wasmrun);
    bench.args([GUEST, FLOW_GUEST]);
    bench.args(cases);
    compare(&mut bench)
}

/// Runs a comparison, a command of [`alone`].
pub(crate) fn compare(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", shell::show(command));
    shell::run(command).context(
        "the comparison needs unshare (util-linux), ip (iproute2) and a kernel that lets users make \
         network namespaces",
    )
}

/// Runs a program in a network of its own with nothing in it but its loopback: Ray listens on every address that
/// there is.
pub(crate) fn alone(program: &Path) -> Command {
    let mut command = shell::command("unshare");
    command.args(["--net", "--map-root-user", "sh", "-c"]);
    command.arg("ip link set lo up && exec \"$@\"").arg("sh");
    command.arg(program);
    command
}

/// A Python that has Ray and our package as it is now.
fn ray() -> Result<PathBuf> {
    let python = environment("ray", &[RAY, "numpy"])?;
    let wheel = python::wheel(python::Profile::Release)?;
    let mut install = shell::command(&python);
    install.args(["-m", "pip", "--quiet", "install", "--force-reinstall"]);
    shell::run(install.arg("--no-deps").arg(wheel))?;
    Ok(python)
}

/// The Python of a virtual environment in a folder of `target`, which is made with these packages when it is first needed.
pub(crate) fn environment(folder: &str, packages: &[&str]) -> Result<PathBuf> {
    let home = shell::target_dir().join(folder);
    let python = home.join("bin/python3");
    if !python.exists() {
        let list = packages.join(" ");
        eprintln!("bench: installing {list} into {} (once)…", home.display());
        shell::run(shell::command("python3").args(["-m", "venv"]).arg(&home))
            .context("the comparison needs Python 3.9 to 3.13 with its venv module")?;
        let mut install = shell::command(&python);
        install.args(["-m", "pip", "--quiet", "install"]);
        shell::run(install.args(packages))?;
    }
    Ok(python)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_compared_with_is_alone_in_its_network() {
        let mut probe = shell::command("unshare");
        if !shell::succeeds(probe.args(["--net", "--map-root-user", "ip", "link"])) {
            eprintln!(
                "skipped: there is no unshare or no ip, or the kernel lets us make no network namespace"
            );
            return;
        }
        // What stands in for Ray tells where it is and what is up there. Some kernels have tunnels in every network,
        // which are down.
        let mut ray = alone(Path::new("sh"));
        ray.args(["-c", "readlink /proc/self/ns/net; ip -oneline link show up"]);
        let said = shell::read(&mut ray).unwrap();
        let (network, up) = said.split_once('\n').unwrap();
        let ours = fs::read_link("/proc/self/ns/net").unwrap();
        assert_ne!(network, ours.to_str().unwrap());
        let up: Vec<&str> = up
            .lines()
            .map(|line| line.split(": ").nth(1).unwrap())
            .collect();
        assert_eq!(up, ["lo"], "{said}");
    }
}
