//! Compiling within limits, in a process of its own.
//!
//! What compiling costs depends on the code more than on its size, and a compiler that was asked to stop
//! cannot be stopped: a thread of ours would go on, and its memory would be ours. So a process compiles: it
//! limits itself before it reads anything ([`compile_as_told`]), and the kernel ends it at the limit. What it
//! gives back is trusted as our own compiler's output is, because it is that: the same program, told by us.
//!
//! Owns both sides and what goes between them: wasm on its standard input, code on its standard output, and
//! why not on its standard error. Must not: know modules, facts or the cache.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal};
use wasmrun_model::units;

use crate::EngineConfig;
use crate::flavor::{Flavor, Flavors, Runtime};
use crate::ticker::Ticker;

/// The process that compiles, and what it may use for one module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// The program: it passes the words of [`Task`] to [`compile_as_told`].
    pub program: PathBuf,
    /// What comes before those words.
    pub args: Vec<OsString>,
    /// The most processor time, of all its threads together. Whole seconds, rounded up.
    pub time: Duration,
    /// The most memory, in bytes.
    pub memory_bytes: u64,
}

/// Why there is no code.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// It would have taken longer than it may.
    #[error(
        "compile time limit of {} reached: compiling the module takes more processor time than that; split \
         it, build it with less inlined into one function, or raise the limit with --max-compile-time {}",
        milliseconds(*.limit), milliseconds(.limit.saturating_mul(2))
    )]
    Time {
        /// The limit.
        limit: Duration,
    },
    /// It would have taken more memory than it may.
    #[error(
        "compile memory limit of {} reached: compiling the module takes more than that; split it, or raise the \
         limit with --max-compile-memory {}",
        units::bytes(*.limit), units::bytes(.limit.saturating_mul(2)).replace(' ', "")
    )]
    Memory {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The compiler refuses the module.
    #[error("{0}")]
    Refused(String),
    /// There is no process to compile in, or it broke off.
    #[error(
        "the process that compiles modules failed: {0}; this is no fault of the module as far as we know"
    )]
    Process(String),
}

fn milliseconds(duration: Duration) -> String {
    units::milliseconds(units::ms(duration))
}

/// Which kind of wasm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Component,
    Core,
}

/// What a process is to compile, and within which limits. Its text is one word of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    what: What,
    flavor: Flavor,
    seconds: u64,
    memory_bytes: u64,
    stack_bytes: usize,
}

const FLAVORS: [(&str, Flavor); 3] = [
    ("fast", Flavor::Fast),
    ("image", Flavor::Image),
    ("concurrent", Flavor::Concurrent),
];
const KINDS: [(&str, What); 2] = [("component", What::Component), ("core", What::Core)];

impl Task {
    fn word(&self) -> String {
        let flavor = FLAVORS.iter().find(|it| it.1 == self.flavor);
        let what = KINDS.iter().find(|it| it.1 == self.what);
        let name = |named: Option<&str>| named.unwrap_or_default().to_owned();
        format!(
            "{},{},{},{},{}",
            name(what.map(|it| it.0)),
            name(flavor.map(|it| it.0)),
            self.seconds,
            self.memory_bytes,
            self.stack_bytes
        )
    }
}

impl FromStr for Task {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let mut words = text.split(',');
            let what = words.next()?;
            let flavor = words.next()?;
            let task = Self {
                what: KINDS.iter().find(|it| it.0 == what)?.1,
                flavor: FLAVORS.iter().find(|it| it.0 == flavor)?.1,
                seconds: words.next()?.parse().ok()?,
                memory_bytes: words.next()?.parse().ok()?,
                stack_bytes: words.next()?.parse().ok()?,
            };
            words.next().is_none().then_some(task)
        };
        parse().ok_or_else(|| "this command is for wasmrun's own use".to_owned())
    }
}

/// The exit code of a process whose module was refused: its standard error says why.
const REFUSED: i32 = 3;
/// How much it says at most, in bytes.
const MESSAGE_BYTES: usize = 16 << 10;

/// Compiles in this process.
pub(crate) fn here(runtime: &Runtime, what: What, wasm: &[u8]) -> wasmtime::Result<Vec<u8>> {
    match what {
        What::Component => runtime.engine.precompile_component(wasm),
        What::Core => runtime.engine.precompile_module(wasm),
    }
}

/// Compiles in a process of its own.
pub(crate) fn elsewhere(
    compiler: &Compiler,
    config: &EngineConfig,
    flavor: Flavor,
    what: What,
    wasm: &[u8],
) -> Result<Vec<u8>, CompileError> {
    let seconds = compiler.time.as_millis().div_ceil(1000).max(1);
    let task = Task {
        what,
        flavor,
        seconds: u64::try_from(seconds).unwrap_or(u64::MAX),
        memory_bytes: compiler.memory_bytes,
        stack_bytes: config.stack_bytes,
    };
    let failed = |error: io::Error| CompileError::Process(error.to_string());
    let mut child = Command::new(&compiler.program)
        .args(&compiler.args)
        .arg(task.word())
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (code, message) = std::thread::scope(|scope| {
        scope.spawn(move || {
            // One that ends before it has read all says itself why.
            let _ = stdin.map(|mut pipe| pipe.write_all(wasm));
        });
        let message = scope.spawn(move || {
            let mut message = Vec::new();
            if let Some(mut pipe) = stderr {
                let _ = pipe
                    .by_ref()
                    .take(MESSAGE_BYTES as u64)
                    .read_to_end(&mut message);
                // Whatever else it says, it must not wait for a reader.
                let _ = io::copy(&mut pipe, &mut io::sink());
            }
            message
        });
        let mut code = Vec::new();
        let read = stdout.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut code));
        (read.map(|_| code), message.join().unwrap_or_default())
    });
    let status = child.wait().map_err(failed)?;
    let message = String::from_utf8_lossy(&message).trim().to_owned();
    match status.code() {
        Some(0) => code.map_err(failed),
        Some(REFUSED) if !is_of_memory(&message) => Err(CompileError::Refused(message)),
        _ => Err(ended(compiler, status, message)),
    }
}

/// Why a process that did not come to its end has ended.
fn ended(compiler: &Compiler, status: ExitStatus, message: String) -> CompileError {
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return CompileError::Time {
            limit: compiler.time,
        };
    }
    if is_of_memory(&message) {
        return CompileError::Memory {
            limit: compiler.memory_bytes,
        };
    }
    let last = message.lines().last().unwrap_or_default();
    CompileError::Process(format!("{status} {last}"))
}

/// Whether this is what Rust, its threads or the kernel say when there is no more memory.
fn is_of_memory(message: &str) -> bool {
    [
        "memory allocation of",
        "Cannot allocate memory",
        "os error 12",
        "WouldBlock",
    ]
    .iter()
    .any(|text| message.contains(text))
}

/// The other side: limits this process, compiles what comes on standard input and writes the code to standard
/// output. Its exit code.
pub fn compile_as_told(task: &Task) -> i32 {
    match limited(task) {
        Ok(()) => 0,
        Err(message) => {
            let end = message.char_indices().nth(MESSAGE_BYTES / 4);
            eprint!("{}", &message[..end.map_or(message.len(), |(at, _)| at)]);
            REFUSED
        }
    }
}

fn limited(task: &Task) -> Result<(), String> {
    let text = |error: rustix::io::Errno| error.to_string();
    for (resource, most) in [
        (Resource::Cpu, task.seconds),
        (Resource::Data, task.memory_bytes),
        (Resource::Core, 0),
    ] {
        let limit = Rlimit {
            current: Some(most),
            // A second more: the signal at the first limit is what tells why.
            maximum: Some(most.saturating_add(u64::from(resource == Resource::Cpu))),
        };
        // One that was lower already stays as it was.
        let before = rustix::process::getrlimit(resource);
        if before.maximum.is_none_or(|before| before > most) {
            rustix::process::setrlimit(resource, limit).map_err(text)?;
        }
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(text)?;
    let mut wasm = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut wasm);
    read.map_err(|error| error.to_string())?;
    let config = EngineConfig {
        stack_bytes: task.stack_bytes,
        // It runs nothing.
        max_sandboxes: 1,
        ..EngineConfig::default()
    };
    let flavors = Flavors::new(&config).map_err(|error| error.to_string())?;
    let runtime = flavors.get(task.flavor, &Ticker::new());
    let runtime = runtime.map_err(|error| error.to_string())?;
    let code = here(runtime, task.what, &wasm).map_err(|error| format!("{error:#}"))?;
    io::stdout()
        .write_all(&code)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_one_word() {
        let task = Task {
            what: What::Core,
            flavor: Flavor::Image,
            seconds: 300,
            memory_bytes: 4 << 30,
            stack_bytes: 1 << 20,
        };
        assert_eq!(task.word(), "core,image,300,4294967296,1048576");
        assert_eq!(task.word().parse(), Ok(task));
        for bad in ["", "core", "core,image,300,1,1,1", "core,slow,1,1,1"] {
            assert!(bad.parse::<Task>().is_err(), "{bad}");
        }
    }
}
