//! `cargo xtask demo`: the project at work, through the real binary, act by act.
//!
//! Owns what is shown and in which order. Every command is printed before it runs, so that a
//! newcomer can type the same. `check` runs the same acts, small and with the binary of the tests, and looks at
//! what they say and make.

mod languages;

use std::cell::OnceCell;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::shell::{self, cargo, root, size, target_dir};
use crate::{guests, python, shell::seconds};

/// How much is shown.
struct Scale {
    /// A task for each band of the picture.
    bands: u32,
    width: u32,
    height: u32,
    samples: u32,
    /// Where the picture is made, from the root of the checkout.
    dir: &'static str,
}

const FOR_PEOPLE: Scale = Scale {
    bands: 32,
    width: 960,
    height: 540,
    samples: 16,
    dir: "target/demo",
};

/// With as many samples as the cluster takes: it makes the same picture.
const FOR_TESTS: Scale = Scale {
    bands: 27,
    width: 96,
    height: 54,
    samples: CLUSTER_SAMPLES,
    dir: "target/demo-check",
};

const CLUSTER_SAMPLES: u32 = 1;

/// The guests that play.
const GUESTS: [&str; 5] = [
    "code-stats",
    "render",
    "assemble",
    "reinforce",
    "parameter-server",
];

/// Where the acts play.
struct Stage {
    wasmrun: PathBuf,
    scale: Scale,
    /// What is said is kept, to be looked at.
    is_kept: bool,
    /// The folder of the Python package, once an act needs it.
    package: OnceCell<PathBuf>,
}

/// One act.
struct Act {
    name: &'static str,
    /// What it shows.
    what: &'static str,
    /// Gives what its commands said, where that is kept.
    play: fn(&Stage) -> Result<String>,
    /// Looks at what they said, and at what they made.
    check: fn(&Stage, &str) -> Result<()>,
}

const ACTS: [Act; 4] = [
    Act {
        name: "code-stats",
        what: "an ordinary program in a sandbox that sees one directory",
        play: count_code,
        check: check_counts,
    },
    Act {
        name: "render",
        what: "an array of typed tasks on all cores, then a program to join them",
        play: render,
        check: check_bands,
    },
    Act {
        name: "reinforce",
        what: "actors that play a game, and tasks that learn from those who are done first, live",
        play: reinforce,
        check: check_learning,
    },
    Act {
        name: "cluster",
        what: "three nodes on this machine share the picture; each is a process of its own",
        play: |stage| on_cluster(stage, share),
        check: check_cluster,
    },
];

/// The nodes of the cluster.
const NODES: [&str; 3] = ["n1", "n2", "n3"];

pub fn run() -> Result<()> {
    let start = Instant::now();
    // The last crates of wasmrun are compiled one after the other: the guests have the other cores then.
    let (wasmrun, guests) = thread::scope(|scope| {
        let guests = scope.spawn(|| guests::build_these(&GUESTS));
        (build_wasmrun(Build::Debug), guests.join())
    });
    let wasmrun = wasmrun?;
    guests.map_err(|_| anyhow!("the build of the guests panicked"))??;
    println!(
        "wasmrun is {}",
        wasmrun.strip_prefix(root()).unwrap_or(&wasmrun).display()
    );
    let stage = Stage {
        wasmrun,
        scale: FOR_PEOPLE,
        is_kept: false,
        package: OnceCell::new(),
    };

    let mut failed = Vec::new();
    let mut acts: Vec<_> = ACTS.into_iter().collect();
    for (act, missing) in [
        (languages::PYTHON, python::missing()),
        (languages::THREE, languages::missing()),
    ] {
        match missing {
            None => acts.push(act),
            Some(why) => println!("the act {} is left out: {why}", act.name),
        }
    }
    let count = acts.len();
    for Act {
        name, what, play, ..
    } in acts
    {
        println!("\n── {name}: {what}");
        if let Err(error) = play(&stage) {
            eprintln!("error: {error:#}");
            failed.push(name);
        }
    }
    println!();
    if !failed.is_empty() {
        bail!(
            "{} of {count} demos failed: {}",
            failed.len(),
            failed.join(", ")
        );
    }
    println!("That was the demo, {} in all.", seconds(start.elapsed()));
    Ok(())
}

/// Plays all acts, small, with the binary and the guests that the tests have built. Says why one is left out, if one is.
pub fn check() -> Result<Option<String>> {
    let wasmrun = target_dir().join(format!("debug/wasmrun{}", env::consts::EXE_SUFFIX));
    ensure!(
        wasmrun.is_file(),
        "there is no {}; run `cargo xtask test guests build demo`",
        wasmrun.display()
    );
    let stage = Stage {
        wasmrun,
        scale: FOR_TESTS,
        is_kept: true,
        package: OnceCell::new(),
    };
    let missing = languages::missing();
    let three = missing.is_none().then_some(languages::THREE);
    for act in ACTS.into_iter().chain(three) {
        let said = (act.play)(&stage).with_context(|| format!("the act {}", act.name))?;
        (act.check)(&stage, &said)
            .with_context(|| format!("the act {} said:\n{said}", act.name))?;
    }
    let left_out = |why: &str| format!("the act {} is left out: {why}", languages::THREE.name);
    Ok(missing.map(left_out))
}

/// Plays on a cluster of three nodes.
fn on_cluster(stage: &Stage, play: fn(&Stage, &Nodes) -> Result<String>) -> Result<String> {
    // Paths of sockets must be short, and another node of the user's may run at the usual place.
    let dir = env::temp_dir().join(format!("wasmrun-demo-{}", std::process::id()));
    shell::private_dir(&dir)?;
    let shown = Nodes::start(&stage.wasmrun, &dir).and_then(|nodes| play(stage, &nodes));
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

/// The bands of the picture once more.
fn share(stage: &Stage, nodes: &Nodes) -> Result<String> {
    let Scale { bands, dir, .. } = stage.scale;
    let parts = fresh_dir(&root().join(dir).join("cluster"))?;
    let mut submit = nodes.command();
    submit.args([
        "submit",
        "target/guests/render.wasm",
        "--strategy",
        "spread",
    ]);
    submit.args(["--array", &format!("0-{}", bands - 1)]);
    submit.args(["--invoke", &stage.scale.band(CLUSTER_SAMPLES)]);
    submit.args(["-O", &format!("{dir}/cluster/band-$i.bin")]);
    let mut said = stage.show(&mut submit)?.1;
    stage.scale.bytes_of_bands(&parts)?;

    let mut status = nodes.command();
    status.arg("status");
    said += &stage.show(&mut status)?.1;
    println!();
    for (node, ran) in nodes.tasks("band")? {
        ensure!(ran > 0, "no band was made on node {node}");
        println!("{node} made {ran} of {bands} bands");
    }
    Ok(said)
}

/// What three nodes have made is what one has.
fn check_cluster(stage: &Stage, said: &str) -> Result<()> {
    check_bands(stage, said)?;
    let dir = root().join(stage.scale.dir);
    for index in 0..stage.scale.bands {
        let band = format!("band-{index}.bin");
        let [one, three] = ["parts", "cluster"].map(|made| fs::read(dir.join(made).join(&band)));
        ensure!(one? == three?, "three nodes made another {band} than one");
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
            println!("{line}");
            if line.ends_with("nodes are there") {
                // Else they could not say anything more.
                thread::spawn(move || said.for_each(drop));
                return Ok(nodes);
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = shell::command(&self.wasmrun);
        command.env("WASMRUN_ADDRESS", &self.address);
        command
    }

    /// How many tasks of this name each node has run.
    fn tasks(&self, name: &str) -> Result<[(&'static str, usize); 3]> {
        let mut list = self.command();
        list.args(["list", "tasks", "-o", "json", "--filter"]);
        let tasks = shell::read(list.arg(format!("name={name}")))?;
        let ran = |node: &str| tasks.matches(&format!("\"node\": \"{node}\"")).count();
        Ok(NODES.map(|node| (node, ran(node))))
    }
}

impl Drop for Nodes {
    /// Asks them to end, and if that does not help, ends them.
    fn drop(&mut self) {
        let mut stop = self.command();
        if !shell::succeeds(stop.args(["node", "stop", "--quiet"])) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// A policy learns to balance a pole: the loop of the Ray paper, in one module.
fn reinforce(stage: &Stage) -> Result<String> {
    let mut train = shell::command(&stage.wasmrun);
    train.args(["submit", "target/guests/reinforce.wasm"]);
    train.args(["--invoke", "train(6, 4, 100)"]);
    Ok(stage.show(&mut train)?.1)
}

/// Each update is told, in order, before what has come of them.
fn check_learning(_: &Stage, said: &str) -> Result<()> {
    let lines: Vec<&str> = said.lines().collect();
    let told = |line: &&str| line.starts_with("update ");
    let updates = lines.iter().filter(|line| told(line)).count();
    let last = lines.iter().rposition(told);
    let result = lines.iter().position(|line| line.starts_with("ok({"));
    ensure!(
        last.is_some() && last < result,
        "the updates were not told before the result"
    );
    let result = lines[result.unwrap_or_default()];
    ensure!(
        result.contains(&format!("updates: {updates},")),
        "{updates} updates were told, and the result is {result}"
    );
    Ok(())
}

/// How the binary is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// For development: what it depends on is built for the tests, too, and optimised where guests spend their time.
    Debug,
    /// As it is installed, and as figures are taken of it.
    Release,
}

/// How our own crates are built where they are to be there soon: the demo neither schedules much nor fails.
const QUICK: [&str; 4] = [
    "--config",
    "profile.dev.debug=false",
    "--config",
    "profile.dev.package.wasmrun-model.opt-level=0",
];

/// Builds the binary and returns where it is.
pub fn build_wasmrun(how: Build) -> Result<PathBuf> {
    let start = Instant::now();
    let (folder, flags): (_, &[&str]) = match how {
        // Our own crates are built for the demo alone: the tests' are linted. The others are the same for both.
        Build::Debug => ("debug", &QUICK),
        Build::Release => ("release", &["--release"]),
    };
    let binary = target_dir().join(format!("{folder}/wasmrun{}", env::consts::EXE_SUFFIX));
    if !binary.exists() {
        eprintln!("wasmrun: building the binary (minutes, the first time)…");
    }
    let mut build = cargo();
    build.args(["build", "--quiet", "--locked", "--package", "wasmrun"]);
    if matches!(how, Build::Debug) && python::missing().is_none() {
        build.args(["--package", "wasmrun-python", "--lib", "--bins"]);
    }
    // What a change would be built faster with takes time to write.
    build.env("CARGO_INCREMENTAL", "0");
    shell::run(build.args(flags))?;
    let about = fs::metadata(&binary)
        .with_context(|| format!("cargo was content, but there is no {}", binary.display()))?;
    eprintln!(
        "wasmrun: {} ({})",
        size(about.len()),
        seconds(start.elapsed())
    );
    Ok(binary)
}

fn count_code(stage: &Stage) -> Result<String> {
    let module = "target/guests/code-stats.wasm";
    let mut sources = shell::command(&stage.wasmrun);
    sources.args(["submit", module, "--dir", ".::/src:ro", "--", "/src"]);
    let said = stage.show(&mut sources)?.1;

    let mut words = shell::command(&stage.wasmrun);
    words.args(["submit", module, "--stdin", longer_text()?]);
    Ok(said + &stage.show(&mut words)?.1)
}

/// Any will do; these are what a checkout has.
fn longer_text() -> Result<&'static str> {
    let texts = ["README.md", "LICENSE-APACHE", "LICENSE", "wit/context.wit"];
    let text = texts.into_iter().find(|text| root().join(text).exists());
    text.context("no text in this checkout to count the words of")
}

/// Both tables are there, and the text is as long as they say.
fn check_counts(_: &Stage, said: &str) -> Result<()> {
    let number = |row: &str| {
        let mut words = said.lines().map(str::split_whitespace);
        let found = words.find_map(|mut words| (words.next() == Some(row)).then(|| words.next()));
        let number = found.flatten().map(|number| number.replace(',', ""));
        let number = number.and_then(|number| number.parse::<usize>().ok());
        number.with_context(|| format!("there is no row {row}"))
    };
    ensure!(number("Rust")? > 0, "no file of Rust was found");
    let text = fs::read_to_string(root().join(longer_text()?))?;
    let counted = (number("lines")?, number("bytes")?);
    let expected = (text.lines().count(), text.len());
    ensure!(
        counted == expected,
        "lines and bytes of the text are {expected:?}, not {counted:?}"
    );
    Ok(())
}

fn render(stage: &Stage) -> Result<String> {
    let Scale {
        bands,
        width,
        height,
        samples,
        dir: made_in,
    } = stage.scale;
    let dir = fresh_dir(&root().join(made_in))?;
    let parts = fresh_dir(&dir.join("parts"))?;
    let mut array = shell::command(&stage.wasmrun);
    array.args(["submit", "target/guests/render.wasm"]);
    array.args(["--array", &format!("0-{}", bands - 1)]);
    array.args(["--invoke", &stage.scale.band(samples)]);
    array.args(["-O", &format!("{made_in}/parts/band-$i.bin")]);
    let (time, said) = stage.show(&mut array)?;
    let bytes = stage.scale.bytes_of_bands(&parts)?;
    let rays = f64::from(width * height * samples) / time.as_secs_f64();
    println!(
        "{bands} bands, {}, {:.1} million paths of light per second",
        size(bytes),
        rays / 1e6
    );

    let mut assemble = shell::command(&stage.wasmrun);
    assemble.args([
        "submit",
        "target/guests/assemble.wasm",
        "--dir",
        &format!("{made_in}::/demo"),
    ]);
    assemble.args([
        "--",
        "--width",
        &width.to_string(),
        "--height",
        &height.to_string(),
    ]);
    assemble.args(["/demo/parts", "/demo/image.png"]);
    let joined = stage.show(&mut assemble)?.1;

    let image = dir.join("image.png");
    let png = fs::read(&image).with_context(|| format!("there is no {}", image.display()))?;
    let found = png_size(&png).with_context(|| format!("{} is not a PNG", image.display()))?;
    ensure!(
        found == (width, height),
        "{} is {} x {}, not {width} x {height}",
        image.display(),
        found.0,
        found.1
    );
    println!(
        "The picture, {width} x {height}, {}: {}",
        size(png.len() as u64),
        image.display()
    );
    Ok(said + &joined)
}

/// All bands were made.
fn check_bands(stage: &Stage, said: &str) -> Result<()> {
    let all = format!("{} finished, 0 failed", stage.scale.bands);
    ensure!(said.contains(&all), "it does not say `{all}`");
    Ok(())
}

impl Scale {
    /// The call of a task of the array.
    fn band(&self, samples: u32) -> String {
        let Self {
            bands,
            width,
            height,
            ..
        } = self;
        format!("band($i, {bands}, {width}, {height}, {samples})")
    }

    /// The bytes of all bands together; all must be there.
    fn bytes_of_bands(&self, parts: &Path) -> Result<u64> {
        let mut bytes = 0;
        for index in 0..self.bands {
            let band = parts.join(format!("band-{index}.bin"));
            let about = fs::metadata(&band).with_context(|| {
                format!("wasmrun was content, but there is no {}", band.display())
            })?;
            bytes += about.len();
        }
        let expected = u64::from(self.width) * u64::from(self.height) * 3;
        ensure!(
            bytes == expected,
            "the bands are {bytes} bytes together, not {expected}"
        );
        Ok(bytes)
    }
}

/// Width and height, from a PNG's first chunk.
fn png_size(png: &[u8]) -> Option<(u32, u32)> {
    let rest = png.strip_prefix(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR")?;
    let (width, rest) = rest.split_first_chunk()?;
    let (height, _) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*width), u32::from_be_bytes(*height)))
}

impl Stage {
    /// Shows a command and runs it: how long that took, and what it said, if that is kept.
    fn show(&self, command: &mut Command) -> Result<(Duration, String)> {
        println!("\n$ {}", shell::show(command));
        let start = Instant::now();
        let said = match self.is_kept {
            true => listen(command)?,
            false => {
                shell::run(command)?;
                String::new()
            }
        };
        let time = start.elapsed();
        println!("({})", seconds(time));
        Ok((time, said))
    }

    /// The Python package, which is laid out once.
    fn package(&self) -> Result<&Path> {
        if self.package.get().is_none() {
            let _ = self.package.set(python::lay_out(&self.wasmrun)?);
        }
        Ok(self.package.get().expect("it was set"))
    }
}

/// Runs a command: what it said on both of its outputs, in the order in which it said it.
fn listen(command: &mut Command) -> Result<String> {
    let (mut said, output) = std::io::pipe()?;
    command.stdout(output.try_clone()?).stderr(output);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run `{}`", shell::show(command)))?;
    // The command has the ends that it gave to its child, and nothing would end what is read.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut text = String::new();
    let read = said.read_to_string(&mut text);
    let status = child.wait()?;
    read.with_context(|| format!("`{}` said what is no text", shell::show(command)))?;
    ensure!(
        status.success(),
        "`{}` failed ({status}):\n{text}",
        shell::show(command)
    );
    Ok(text)
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
