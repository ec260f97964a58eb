//! `cargo xtask demo`: the project at work, through the real binary, in four acts.
//!
//! Owns what is shown and in which order. Every command is printed before it runs, so that a
//! newcomer can type the same.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{self, cargo, root, size, target_dir};
use crate::{guests, shell::seconds};

/// A task for each band of the picture.
const BANDS: u32 = 32;
const WIDTH: u32 = 960;
const HEIGHT: u32 = 540;
const SAMPLES: u32 = 16;
/// Where the picture is made, from the root of the checkout.
const DIR: &str = "target/demo";

/// One act: its name, what it shows, and how.
type Act = (&'static str, &'static str, fn(&Path) -> Result<()>);

const ACTS: [Act; 4] = [
    (
        "code-stats",
        "an ordinary program in a sandbox that sees one directory",
        count_code,
    ),
    (
        "render",
        "an array of typed tasks on all cores, then a program to join them",
        render,
    ),
    (
        "reinforce",
        "actors that play a game, and tasks that learn from those who are done first, live",
        reinforce,
    ),
    (
        "cluster",
        "three nodes on this machine share the picture; each is a process of its own",
        cluster,
    ),
];

pub fn run() -> Result<()> {
    let start = Instant::now();
    let wasmrun = build_wasmrun()?;
    guests::build()?;
    println!(
        "wasmrun is {}",
        wasmrun.strip_prefix(root()).unwrap_or(&wasmrun).display()
    );

    let mut failed = Vec::new();
    for (name, what, act) in ACTS {
        println!("\n── {name}: {what}");
        if let Err(error) = act(&wasmrun) {
            eprintln!("error: {error:#}");
            failed.push(name);
        }
    }
    println!();
    if !failed.is_empty() {
        bail!(
            "{} of {} demos failed: {}",
            failed.len(),
            ACTS.len(),
            failed.join(", ")
        );
    }
    println!("That was the demo, {} in all.", seconds(start.elapsed()));
    Ok(())
}

/// The bands of the picture once more, on a cluster of three nodes.
fn cluster(wasmrun: &Path) -> Result<()> {
    // Paths of sockets must be short, and another node of the user's may run at the usual place.
    let dir = env::temp_dir().join(format!("wasmrun-demo-{}", std::process::id()));
    shell::private_dir(&dir)?;
    let shown = Nodes::start(wasmrun, &dir).and_then(|nodes| share(wasmrun, &nodes));
    let _ = fs::remove_dir_all(&dir);
    shown
}

/// An empty folder: what an earlier demo made must not stand in for what fails now.
fn fresh_dir(dir: &Path) -> Result<PathBuf> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot delete {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir.to_path_buf())
}

fn share(wasmrun: &Path, nodes: &Nodes) -> Result<()> {
    let parts = fresh_dir(&root().join(DIR).join("cluster"))?;
    let mut submit = nodes.command(wasmrun);
    submit.args([
        "submit",
        "target/guests/render.wasm",
        "--strategy",
        "spread",
    ]);
    submit.args(["--array", &format!("0-{}", BANDS - 1)]);
    submit.args([
        "--invoke",
        &format!("band($i, {BANDS}, {WIDTH}, {HEIGHT}, 1)"),
    ]);
    submit.args(["-O", &format!("{DIR}/cluster/band-$i.bin")]);
    show_and_run(&mut submit)?;
    bytes_of_bands(&parts)?;

    let mut status = nodes.command(wasmrun);
    status.arg("status");
    show_and_run(&mut status)?;
    let mut list = nodes.command(wasmrun);
    list.args(["list", "tasks", "-o", "json"]);
    let tasks = shell::read(&mut list)?;
    println!();
    for node in ["n1", "n2", "n3"] {
        let ran = tasks.matches(&format!("\"node\": \"{node}\"")).count();
        ensure!(ran > 0, "no band was made on node {node}");
        println!("{node} made {ran} of {BANDS} bands");
    }
    Ok(())
}

/// Nodes that run until this is dropped.
struct Nodes {
    process: Child,
    wasmrun: PathBuf,
    address: String,
}

impl Nodes {
    fn start(wasmrun: &Path, dir: &Path) -> Result<Self> {
        let address = format!("unix:{}", dir.join("node.sock").display());
        let mut start = shell::command(wasmrun);
        start.args(["node", "start", "--local", "3", "--node-cpus", "1"]);
        start.args(["--log", "error"]);
        println!("\n$ export WASMRUN_ADDRESS={address}");
        println!("$ {} &", shell::show(&start));
        start.env("WASMRUN_ADDRESS", &address).stdin(Stdio::null());
        let mut process = start
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", wasmrun.display()))?;
        let said = process.stdout.take().expect("it is piped");
        let nodes = Self {
            process,
            wasmrun: wasmrun.to_owned(),
            address,
        };
        let mut said = BufReader::new(said).lines();
        loop {
            let line = said.next().context("the nodes ended before they met")??;
            // The one with the token is long, and nobody joins these.
            if !line.contains("wasmrun-join-") {
                println!("{line}");
            }
            if line.ends_with("nodes are there") {
                // Else they could not say anything more.
                thread::spawn(move || said.for_each(drop));
                return Ok(nodes);
            }
        }
    }

    fn command(&self, wasmrun: &Path) -> Command {
        let mut command = shell::command(wasmrun);
        command.env("WASMRUN_ADDRESS", &self.address);
        command
    }
}

impl Drop for Nodes {
    /// Asks them to end, and if that does not help, ends them.
    fn drop(&mut self) {
        let wasmrun = self.wasmrun.clone();
        let mut stop = self.command(&wasmrun);
        if !shell::succeeds(stop.args(["node", "stop", "--quiet"])) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// A policy learns to balance a pole: the loop of the Ray paper, in one module.
fn reinforce(wasmrun: &Path) -> Result<()> {
    let mut train = shell::command(wasmrun);
    train.args(["submit", "target/guests/reinforce.wasm"]);
    train.args(["--invoke", "train(6, 4, 100)"]);
    show_and_run(&mut train)?;
    Ok(())
}

/// Builds the release binary and returns where it is.
pub fn build_wasmrun() -> Result<PathBuf> {
    let start = Instant::now();
    let binary = target_dir().join(format!("release/wasmrun{}", env::consts::EXE_SUFFIX));
    if !binary.exists() {
        eprintln!("wasmrun: building the release binary (minutes, the first time)…");
    }
    shell::run(cargo().args([
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "wasmrun",
    ]))?;
    let about = fs::metadata(&binary)
        .with_context(|| format!("cargo was content, but there is no {}", binary.display()))?;
    eprintln!(
        "wasmrun: {} ({})",
        size(about.len()),
        seconds(start.elapsed())
    );
    Ok(binary)
}

fn count_code(wasmrun: &Path) -> Result<()> {
    let module = "target/guests/code-stats.wasm";
    let mut sources = shell::command(wasmrun);
    sources.args(["submit", module, "--dir", ".::/src:ro", "--", "/src"]);
    show_and_run(&mut sources)?;

    // Any longer text will do; these are what a checkout has.
    let texts = ["README.md", "LICENSE-APACHE", "LICENSE", "wit/context.wit"];
    let text = texts.into_iter().find(|text| root().join(text).exists());
    let text = text.context("no text in this checkout to count the words of")?;
    let mut words = shell::command(wasmrun);
    words.args(["submit", module, "--stdin", text]);
    show_and_run(&mut words)?;
    Ok(())
}

fn render(wasmrun: &Path) -> Result<()> {
    let dir = fresh_dir(&root().join(DIR))?;
    let parts = fresh_dir(&dir.join("parts"))?;
    let mut bands = shell::command(wasmrun);
    bands.args(["submit", "target/guests/render.wasm"]);
    bands.args(["--array", &format!("0-{}", BANDS - 1)]);
    bands.args([
        "--invoke",
        &format!("band($i, {BANDS}, {WIDTH}, {HEIGHT}, {SAMPLES})"),
    ]);
    bands.args(["-O", &format!("{DIR}/parts/band-$i.bin")]);
    let time = show_and_run(&mut bands)?;
    let bytes = bytes_of_bands(&parts)?;
    let rays = f64::from(WIDTH * HEIGHT * SAMPLES) / time.as_secs_f64();
    println!(
        "{BANDS} bands, {}, {:.1} million paths of light per second",
        size(bytes),
        rays / 1e6
    );

    let mut assemble = shell::command(wasmrun);
    assemble.args([
        "submit",
        "target/guests/assemble.wasm",
        "--dir",
        &format!("{DIR}::/demo"),
    ]);
    assemble.args([
        "--",
        "--width",
        &WIDTH.to_string(),
        "--height",
        &HEIGHT.to_string(),
    ]);
    assemble.args(["/demo/parts", "/demo/image.png"]);
    show_and_run(&mut assemble)?;

    let image = dir.join("image.png");
    let png = fs::read(&image).with_context(|| format!("there is no {}", image.display()))?;
    let (width, height) =
        png_size(&png).with_context(|| format!("{} is not a PNG", image.display()))?;
    ensure!(
        (width, height) == (WIDTH, HEIGHT),
        "{} is {width} x {height}, not {WIDTH} x {HEIGHT}",
        image.display()
    );
    println!(
        "The picture, {width} x {height}, {}: {}",
        size(png.len() as u64),
        image.display()
    );
    Ok(())
}

/// The bytes of all bands together; all must be there.
fn bytes_of_bands(parts: &Path) -> Result<u64> {
    let mut bytes = 0;
    for index in 0..BANDS {
        let band = parts.join(format!("band-{index}.bin"));
        let about = fs::metadata(&band)
            .with_context(|| format!("wasmrun was content, but there is no {}", band.display()))?;
        bytes += about.len();
    }
    let expected = u64::from(WIDTH) * u64::from(HEIGHT) * 3;
    ensure!(
        bytes == expected,
        "the bands are {bytes} bytes together, not {expected}"
    );
    Ok(bytes)
}

/// Width and height, from a PNG's first chunk.
fn png_size(png: &[u8]) -> Option<(u32, u32)> {
    let rest = png.strip_prefix(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR")?;
    let (width, rest) = rest.split_first_chunk()?;
    let (height, _) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*width), u32::from_be_bytes(*height)))
}

fn show_and_run(command: &mut Command) -> Result<Duration> {
    println!("\n$ {}", shell::show(command));
    let start = Instant::now();
    shell::run(command)?;
    let time = start.elapsed();
    println!("({})", seconds(time));
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_png_is_in_its_first_chunk() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x03\xc0\0\0\x02\x1c\x08\x02\0\0\0";
        assert_eq!(png_size(png), Some((960, 540)));
        assert_eq!(png_size(b"GIF89a"), None);
        assert_eq!(png_size(&png[..18]), None);
    }
}
