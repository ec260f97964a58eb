//! The node inside the command's own process.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use wasmrun_engine::{CacheStatus, Compiler, Engine, EngineConfig, LoadError, Module};
use wasmrun_model::cluster::{Labels, ParseLabelError};
use wasmrun_model::units;
use wasmrun_node::{ClusterError, Node, NodeConfig, SpillConfig, StartError};

use crate::args::{LabelArg, NodeOptions, are_addresses};
use crate::fail::{Exit, Failure};
use crate::printer::Printer;
use crate::stdio;

/// Starts the node. Tells if it cannot keep compiled code.
pub fn start(options: &NodeOptions, printer: &Printer) -> Result<Node, Failure> {
    start_as(config(options)?, printer)
}

/// Starts a node that is configured. Tells if it cannot keep compiled code.
pub fn start_as(config: NodeConfig, printer: &Printer) -> Result<Node, Failure> {
    let started = Node::start(config);
    let node = started.map_err(|error| Failure::new(exit_of(&error), error))?;
    warn_of_cache(node.engine(), printer);
    Ok(node)
}

fn exit_of(error: &StartError) -> Exit {
    match error {
        StartError::Cluster(
            ClusterError::Join(_) | ClusterError::Head { .. } | ClusterError::Store(_),
        ) => Exit::Unreachable,
        _ => Exit::Usage,
    }
}

/// What loads modules, without a node.
pub fn engine(options: &NodeOptions, printer: &Printer) -> Result<Engine, Failure> {
    let engine = Engine::new(config(options)?.engine);
    let engine = engine.map_err(|error| Failure::new(Exit::Usage, error))?;
    warn_of_cache(&engine, printer);
    Ok(engine)
}

fn warn_of_cache(engine: &Engine, printer: &Printer) {
    if let CacheStatus::Unusable { reason, .. } = engine.cache_status() {
        printer.warn(format_args!(
            "modules are compiled anew each time: {reason}"
        ));
    }
}

/// The node's configuration.
pub fn config(options: &NodeOptions) -> Result<NodeConfig, Failure> {
    let resources = options.node_resource.iter().map(|text| {
        text.parse()
            .with_context(|| format!("--node-resource {text}"))
    });
    let mut labels = Labels::new();
    for LabelArg { key, value } in &options.node_label {
        let set = match labels.get(key.as_str()) {
            None => labels.set(key.clone(), value.clone()),
            Some(_) => Err(ParseLabelError::Twice { key: key.clone() }),
        };
        set.with_context(|| format!("--node-label {key}={value}"))?;
    }
    Ok(NodeConfig {
        name: options.node_name.as_ref().map(ToString::to_string),
        labels,
        cpus: options.node_cpus,
        gpus: options.node_gpus,
        memory: options.node_memory,
        object_memory: options.object_memory,
        object_dir: options.object_dir.clone(),
        room_patience: options.put_wait,
        // Nobody can ask a node inside a command.
        history_bytes: Some(0),
        policy: options.policy.config()?,
        spill: options.spill_dir.as_ref().map(|dir| SpillConfig {
            dir: dir.clone(),
            capacity_bytes: options.spill_size,
        }),
        resources: resources.collect::<Result<_, _>>()?,
        audit: None,
        cluster: None,
        engine: EngineConfig {
            cache_dir: cache_dir(options.cache_dir.as_deref()),
            cache_bytes: options.cache_size,
            stack_bytes: usize::try_from(options.max_stack).unwrap_or(usize::MAX),
            module_bytes: usize::try_from(options.max_module).unwrap_or(usize::MAX),
            max_sandboxes: options.max_sandboxes,
            compiler: Some(Compiler {
                // This very program, also where its file has been replaced meanwhile.
                program: "/proc/self/exe".into(),
                args: vec!["compile-module".into()],
                time: options.max_compile_time,
                memory_bytes: options.max_compile_memory,
            }),
        },
    })
}

/// Where compiled code goes: where the user says, else the user's cache folder.
fn cache_dir(given: Option<&Path>) -> Option<PathBuf> {
    let from_env = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let given = given
        .map(Path::to_owned)
        .or_else(|| from_env("WASMRUN_CACHE_DIR"));
    match given {
        Some(dir) if dir == Path::new("none") => None,
        Some(dir) => Some(dir),
        None => {
            let caches = from_env("XDG_CACHE_HOME").filter(|dir| dir.is_absolute());
            let caches = caches.or_else(|| Some(from_env("HOME")?.join(".cache")))?;
            Some(caches.join("wasmrun"))
        }
    }
}

/// Refuses an address where a path must be.
///
/// # Errors
/// It is one.
pub fn check_path(path: &Path) -> Result<(), Failure> {
    let shown = path.display().to_string();
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    if shown
        .split_once("://")
        .is_some_and(|(scheme, _)| is_scheme(scheme))
    {
        return Err(Failure::usage(format!(
            "{shown} is an address, and this must be a file: download it first, for example with `curl -LO {shown}`"
        )));
    }
    if are_addresses(&shown) {
        return Err(Failure::usage(format!(
            "{shown} is an address, and this must be a file: addresses for --net stand behind an equals sign, \
             --net={shown}"
        )));
    }
    Ok(())
}

/// Reads a module's file, within the node's limit.
pub fn read_module(path: &Path, options: &NodeOptions) -> Result<Vec<u8>, Failure> {
    check_path(path)?;
    let meta = std::fs::metadata(path).ok().filter(|meta| meta.is_file());
    if let Some(meta) = meta.filter(|meta| meta.len() > options.max_module) {
        let size = |n| usize::try_from(n).unwrap_or(usize::MAX);
        let (bytes, limit) = (size(meta.len()), size(options.max_module));
        let error = anyhow::Error::new(LoadError::TooLarge { bytes, limit });
        return Err(error
            .context(format!("cannot load {}", path.display()))
            .into());
    }
    let read = read_file(path, options.max_module, "--max-module");
    Ok(read.with_context(|| format!("cannot read the module {}", path.display()))?)
}

/// Reads a file of at most `most` bytes; `flag` allows more. It may be a pipe or a device, which
/// may have no end.
pub fn read_file(path: &Path, most: u64, flag: &str) -> anyhow::Result<Vec<u8>> {
    read_at_most(File::open(path)?, most, flag)
}

/// The same, where `-` is our standard input.
pub fn read_input(path: &Path, most: u64, flag: &str) -> anyhow::Result<Vec<u8>> {
    read_at_most(open(path)?, most, flag)
}

fn read_at_most(file: File, most: u64, flag: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let most = units::bytes(most);
        anyhow::bail!("it has more than the {most} that are allowed; to allow more, use {flag}");
    }
    Ok(bytes)
}

/// Opens a file to read; `-` is our standard input.
pub fn open(path: &Path) -> io::Result<File> {
    match path == Path::new("-") {
        true => stdio::input(),
        false => File::open(path),
    }
}

/// What errors call a file that [`open`] opens.
pub fn shown(path: &Path) -> String {
    match path == Path::new("-") {
        true => "<stdin>".into(),
        false => path.display().to_string(),
    }
}

/// Reads our standard input to its end, for a program that may read it more than once; nothing if
/// it is a terminal, where a person would not know that we wait.
pub fn read_stdin(most: u64) -> anyhow::Result<Vec<u8>> {
    if io::stdin().is_terminal() {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::new();
    let read =
        stdio::input().and_then(|stdin| stdin.take(most.saturating_add(1)).read_to_end(&mut bytes));
    read.context("cannot read standard input, which --retries needs as a whole")?;
    if bytes.len() as u64 > most {
        let most = units::bytes(most);
        anyhow::bail!(
            "standard input has more than {most}, too much to be kept for another try; leave \
             --retries out, or give the program a directory with --dir"
        );
    }
    Ok(bytes)
}

/// Reads and loads a module, and tells how it went.
pub fn load(
    engine: &Engine,
    path: &Path,
    options: &NodeOptions,
    printer: &Printer,
) -> Result<Module, Failure> {
    load_bytes(engine, path, &read_module(path, options)?, printer)
}

/// Loads a module that was read from this file, which may be a pipe and so cannot be read again.
pub fn load_bytes(
    engine: &Engine,
    path: &Path,
    bytes: &[u8],
    printer: &Printer,
) -> Result<Module, Failure> {
    let large = bytes.len() > (1 << 20);
    let spinner = (large && printer.shows_progress()).then(|| {
        let spinner = indicatif::ProgressBar::new_spinner();
        spinner.set_message(format!(
            "loading {} (compiled on first use)",
            path.display()
        ));
        spinner.enable_steady_tick(std::time::Duration::from_millis(120));
        spinner
    });
    let loaded = engine.load(bytes);
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    let module = loaded.with_context(|| format!("cannot load {}", path.display()))?;
    if let Some(origin) = module.origin() {
        let how = if origin.cached {
            "from the cache"
        } else {
            "compiled"
        };
        let (digest, took) = (module.digest(), units::duration(origin.took));
        printer.detail(format_args!("module {digest}: {how} in {took}"));
    }
    Ok(module)
}
