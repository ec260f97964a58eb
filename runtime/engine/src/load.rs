//! From a module's bytes to something that can run.
//!
//! 1. Is it wasm at all, and not too large?
//! 2. Is its code in the cache? Then everything known about it is, too.
//! 3. Else: what is it (component, preview1 program, core module to be made a component)?
//!    Which engine suits it? Compile it, keep the code.
//! 4. Link it: whatever it imports must be on offer. Find its functions.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wasi_preview1_component_adapter_provider as adapter;
use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentType, DataKind, Encoding, ExternalKind, Parser,
    Payload, Validator, WasmFeatures,
};
use wasmrun_model::id::Digest;
use wasmrun_model::manifest::{Manifest, ManifestError};
use wasmtime::component::Component;

use crate::cache::Cached;
use crate::compile::{self, CompileError, What};
use crate::flavor::{EngineError, Flavor, IMAGE_DATA_BYTES, Runtime};
use crate::module::Module;
use crate::{EngineInner, section};

/// Changes whenever the same bytes are to be compiled differently by the same wasmtime.
const PIPELINE: u32 = 2;

/// Why a module cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes are something else.
    #[error("this is not a wasm module: {found}; {advice}")]
    NotWasm {
        /// What they look like.
        found: String,
        /// What to do about it.
        advice: String,
    },
    /// The bytes end too early.
    #[error(
        "the module is truncated: it ends in the middle of a section at byte {offset}; \
         build or copy it again"
    )]
    Truncated {
        /// Where more was expected.
        offset: u64,
    },
    /// The bytes break the rules of wasm.
    #[error(
        "the module is not valid wasm: {message}; build it again with an up-to-date toolchain, \
         and see whether `wasm-tools validate` agrees"
    )]
    Invalid {
        /// What is wrong, and where.
        message: String,
    },
    /// The bytes are wasm, but more of it than this host offers.
    #[error(
        "the module needs something of wasm that is not on offer: {message}; this host has no \
         threads, no garbage collection and no exceptions, and a sandbox has at most 16 memories \
         and 64 tables of 131,072 entries"
    )]
    Unsupported {
        /// What it needs, and where.
        message: String,
    },
    /// The module is larger than this host accepts.
    #[error(
        "the module has {bytes} bytes, and this host accepts {limit} at most; strip it \
         (`wasm-tools strip`), or raise the limit with --max-module"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The module needs something that the host does not have.
    #[error(
        "the module imports something that is not on offer: {message}; a task may import \
         WASI 0.2 (wasi:cli, clocks, filesystem, http, io, random, sockets) and \
         wasmrun:runtime@0.1.0 (context, tasks, objects, actors), a core program \
         wasi_snapshot_preview1"
    )]
    Import {
        /// Which import, and what is wrong with it.
        message: String,
    },
    /// The module was built for another version of what wasmrun itself offers.
    #[error(
        "the module imports something that is not on offer: {message}; it was built for another \
         version of wasmrun's interface than this host has (wasmrun:runtime@0.1.0): build it anew \
         with the guest SDK, or the WIT files, of this wasmrun"
    )]
    Interface {
        /// Which import, and what is wrong with it.
        message: String,
    },
    /// There is nothing in the module that could run.
    #[error(
        "the module has nothing to run: {found}; export a function or wasi:cli/run from a \
         component, or build a program with a main function"
    )]
    NothingToRun {
        /// What it has instead.
        found: String,
    },
    /// The module was made for a component but cannot be made one.
    #[error("the core module cannot be made a component: {message}; build it for wasm32-wasip2")]
    Componentize {
        /// Why not.
        message: String,
    },
    /// What the module declares is wrong.
    #[error("the module's manifest (custom section wasmrun:manifest) is wrong: {0}")]
    Manifest(#[from] ManifestError),
    /// It cannot be compiled within the limits.
    #[error(transparent)]
    Compile(CompileError),
    /// No engine could be set up for it.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// What is known about a module besides its code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) kind: Kind,
    pub(crate) flavor: Flavor,
    /// The most that one memory of an instance starts with, in bytes.
    pub(crate) initial_memory: u64,
    pub(crate) manifest: Option<Vec<u8>>,
}

/// How a module's code is to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A component, or a core module made one.
    Component,
    /// A core module with `_start` for preview1.
    CoreProgram,
}

/// How the code of a module was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Whether it came out of the cache.
    pub cached: bool,
    /// How long it took to load, all in all.
    pub took: Duration,
}

pub(crate) enum Code {
    Component(Component),
    Core(wasmtime::Module),
}

pub(crate) fn load(engine: &EngineInner, bytes: &[u8]) -> Result<Module, LoadError> {
    let started = Instant::now();
    check_is_wasm(bytes)?;
    let limit = engine.config.module_bytes;
    if bytes.len() > limit {
        return Err(LoadError::TooLarge {
            bytes: bytes.len(),
            limit,
        });
    }
    let digest = Digest::of(bytes);
    let (facts, code, cached) = match from_cache(engine, &digest)? {
        Some((facts, code)) => (facts, code, true),
        None => {
            let (facts, code) = compile(engine, bytes, &digest)?;
            (facts, code, false)
        }
    };
    let manifest = match &facts.manifest {
        Some(json) => Manifest::parse(json)?,
        None => Manifest::default(),
    };
    let runtime = engine.flavors.get(facts.flavor, &engine.ticker)?;
    let module = Module::link(digest, manifest, facts, runtime, code)?;
    Ok(module.with_origin(Origin {
        cached,
        took: started.elapsed(),
    }))
}

/// The bytes of the component that `bytes` are or become: the one that runs, and whose types
/// people see.
///
/// # Errors
/// When they are no component and cannot be made one.
fn component_bytes(bytes: &[u8]) -> Result<std::borrow::Cow<'_, [u8]>, LoadError> {
    let survey = Survey::of(bytes)?;
    Ok(match survey.kind()? {
        Kind::Component if survey.encoding == Encoding::Module => {
            componentize(bytes, survey.has_start)?.into()
        }
        _ => bytes.into(),
    })
}

fn check_is_wasm(bytes: &[u8]) -> Result<(), LoadError> {
    if bytes.starts_with(b"\0asm") {
        return Ok(());
    }
    let not = |found: &str, advice: &str| {
        Err(LoadError::NotWasm {
            found: found.into(),
            advice: advice.into(),
        })
    };
    let build = "build one with `cargo build --target wasm32-wasip2`, for example";
    let text = std::str::from_utf8(&bytes[..bytes.len().min(512)]).unwrap_or_default();
    match bytes {
        [] => not("the file is empty", build),
        [0x7f, b'E', b'L', b'F', ..] => {
            not("it is a native program or precompiled code (ELF)", build)
        }
        [0x1f, 0x8b, ..] => not("it is compressed (gzip)", "decompress it first"),
        [b'P', b'K', ..] => not("it is a zip archive", "unpack it first"),
        _ if text.trim_start().starts_with("(module")
            || text.trim_start().starts_with("(component")
            || text.trim_start().starts_with(";;") =>
        {
            not(
                "it is wasm text (WAT)",
                "turn it into a binary with `wasm-tools parse`",
            )
        }
        _ if text.starts_with("#!") => not("it is a script", build),
        _ => not("it does not begin with the four bytes \\0asm", build),
    }
}

fn invalid(error: &wasmparser::BinaryReaderError) -> LoadError {
    // There is no kind to match on: the text is all that tells the end of the input apart.
    let message = error.message();
    if message.contains("unexpected end") || message.contains("unexpected-eof") {
        return LoadError::Truncated {
            offset: error.offset() as u64,
        };
    }
    LoadError::Invalid {
        message: format!("{message} at byte {}", error.offset()),
    }
}

/// What a look over the module's sections tells.
struct Survey {
    encoding: Encoding,
    has_start: bool,
    has_component_type: bool,
    is_concurrent: bool,
    data_bytes: usize,
    initial_memory: u64,
    core_exports: Vec<String>,
    core_imports: Vec<String>,
}

impl Survey {
    fn of(bytes: &[u8]) -> Result<Self, LoadError> {
        let mut survey = Self {
            encoding: Encoding::Module,
            has_start: false,
            has_component_type: false,
            is_concurrent: false,
            data_bytes: 0,
            initial_memory: 0,
            core_exports: Vec::new(),
            core_imports: Vec::new(),
        };
        let mut depth = 0;
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(|e| invalid(&e))?;
            match &payload {
                Payload::Version { encoding, .. } if depth == 0 => survey.encoding = *encoding,
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth -= 1,
                _ => {}
            }
            survey.add(payload, depth == 0).map_err(|e| invalid(&e))?;
        }
        Ok(survey)
    }

    fn add(&mut self, payload: Payload<'_>, top: bool) -> wasmparser::Result<()> {
        match payload {
            Payload::DataSection(data) => {
                for segment in data {
                    let segment = segment?;
                    if matches!(segment.kind, DataKind::Active { .. }) {
                        self.data_bytes += segment.data.len();
                    }
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let memory = memory?;
                    let page = 1_u64.checked_shl(memory.page_size_log2.unwrap_or(16));
                    let page = page.unwrap_or(u64::MAX);
                    let bytes = memory.initial.saturating_mul(page);
                    self.initial_memory = self.initial_memory.max(bytes);
                }
            }
            Payload::CustomSection(section) if top => {
                self.has_component_type |= section.name().starts_with("component-type");
            }
            Payload::ExportSection(exports) if top => {
                for export in exports {
                    let export = export?;
                    if export.kind == ExternalKind::Func {
                        self.has_start |= export.name == "_start";
                        self.core_exports.push(export.name.into());
                    }
                }
            }
            Payload::ImportSection(imports) if top => {
                for import in imports.into_imports() {
                    let import = import?;
                    self.core_imports
                        .push(format!("{}.{}", import.module, import.name));
                }
            }
            Payload::ComponentTypeSection(types) => {
                for ty in types {
                    if let ComponentType::Func(func) = ty? {
                        self.is_concurrent |= func.async_;
                    }
                }
            }
            Payload::ComponentCanonicalSection(functions) => {
                for function in functions {
                    self.is_concurrent |= match function? {
                        CanonicalFunction::Lift { options, .. }
                        | CanonicalFunction::Lower { options, .. } => {
                            options.contains(&CanonicalOption::Async)
                        }
                        CanonicalFunction::ResourceNew { .. }
                        | CanonicalFunction::ResourceDrop { .. }
                        | CanonicalFunction::ResourceRep { .. } => false,
                        _ => true,
                    };
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn kind(&self) -> Result<Kind, LoadError> {
        if self.encoding == Encoding::Component || self.has_component_type {
            return Ok(Kind::Component);
        }
        if self.has_start {
            return Ok(Kind::CoreProgram);
        }
        let exports = match &self.core_exports[..] {
            [] => "no function".into(),
            names => format!("only {}", names[..names.len().min(5)].join(", ")),
        };
        let found = format!(
            "it is a core module that exports {exports}, neither `_start` nor a component's types"
        );
        Err(LoadError::NothingToRun { found })
    }

    fn flavor(&self) -> Flavor {
        match self.data_bytes {
            _ if self.is_concurrent => Flavor::Concurrent,
            ..IMAGE_DATA_BYTES => Flavor::Fast,
            _ => Flavor::Image,
        }
    }
}

fn compile(
    engine: &EngineInner,
    bytes: &[u8],
    digest: &Digest,
) -> Result<(Facts, Code), LoadError> {
    let survey = Survey::of(bytes)?;
    let kind = survey.kind()?;
    let manifest = match section::read(bytes).map_err(|e| invalid(&e))?[..] {
        [] => None,
        [first, ..] => Some(first.to_vec()),
    };
    // A wrong manifest is refused before any time is spent on the code.
    if let Some(json) = &manifest {
        Manifest::parse(json)?;
    }
    let facts = Facts {
        kind,
        flavor: survey.flavor(),
        initial_memory: survey.initial_memory,
        manifest,
    };
    let runtime = engine.flavors.get(facts.flavor, &engine.ticker)?;
    let refused = |message: String| {
        // With everything that any proposal allows, is it wasm?
        match Validator::new_with_features(WasmFeatures::all()).validate_all(bytes) {
            Ok(_) => LoadError::Unsupported { message },
            Err(_) => LoadError::Invalid { message },
        }
    };
    let made;
    let (what, wasm) = match kind {
        Kind::Component if survey.encoding == Encoding::Module => {
            made = componentize(bytes, survey.has_start)?;
            (What::Component, &made[..])
        }
        Kind::Component => (What::Component, bytes),
        Kind::CoreProgram => (What::Core, bytes),
    };
    let code = match &engine.config.compiler {
        None => {
            compile::here(runtime, what, wasm).map_err(|error| refused(format!("{error:#}")))?
        }
        Some(compiler) => {
            let compiled = compile::elsewhere(compiler, &engine.config, facts.flavor, what, wasm);
            compiled.map_err(|error| match error {
                CompileError::Refused(message) => refused(message),
                error => LoadError::Compile(error),
            })?
        }
    };
    let facts_bytes = postcard::to_stdvec(&facts).expect("facts are plain data");
    let name = cache_name(digest, runtime);
    engine.cache.put(&name, &code, &facts_bytes);
    // The code in the file is mapped and its pages shared; ours is only used if there is none.
    if let Some(cached) = engine.cache.get(&name)
        && let Some(code) = map_code(runtime, kind, &cached)
    {
        return Ok((facts, code));
    }
    // SAFETY: these bytes came out of this very engine's compiler, or out of the same program's, which we
    // started ourselves.
    let code = unsafe {
        match kind {
            Kind::Component => Component::deserialize(&runtime.engine, &code).map(Code::Component),
            Kind::CoreProgram => {
                wasmtime::Module::deserialize(&runtime.engine, &code).map(Code::Core)
            }
        }
    };
    Ok((facts, code.map_err(|error| refused(format!("{error:#}")))?))
}

fn componentize(core: &[u8], is_program: bool) -> Result<Vec<u8>, LoadError> {
    let adapter_bytes = match is_program {
        true => adapter::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
        false => adapter::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
    };
    wit_component::ComponentEncoder::default()
        .module(core)
        .and_then(|encoder| {
            encoder.adapter(adapter::WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, adapter_bytes)
        })
        .and_then(|encoder| encoder.validate(true).encode())
        .map_err(|error| LoadError::Componentize {
            message: format!("{error:#}"),
        })
}

/// The engines in the order of likelihood. One file is kept per module and engine, and a module
/// always runs on the same engine, so at most one of the names exists.
const LOOKUP: [Flavor; 3] = [Flavor::Fast, Flavor::Image, Flavor::Concurrent];

fn from_cache(engine: &EngineInner, digest: &Digest) -> Result<Option<(Facts, Code)>, LoadError> {
    if engine.config.cache_dir.is_none() {
        return Ok(None);
    }
    for flavor in LOOKUP {
        let runtime = engine.flavors.get(flavor, &engine.ticker)?;
        let Some(cached) = engine.cache.get(&cache_name(digest, runtime)) else {
            continue;
        };
        let Ok(facts) = postcard::from_bytes::<Facts>(&cached.facts) else {
            continue;
        };
        if let Some(code) = map_code(runtime, facts.kind, &cached) {
            return Ok(Some((facts, code)));
        }
    }
    Ok(None)
}

/// A name for the code of a module, from everything that the code depends on.
fn cache_name(digest: &Digest, runtime: &Runtime) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(digest.as_bytes())
        .update(&PIPELINE.to_le_bytes())
        .update(&runtime.compatibility);
    hasher.finalize().to_hex().to_string()
}

fn map_code(runtime: &Runtime, kind: Kind, cached: &Cached) -> Option<Code> {
    // The very file whose seal was checked, not whatever its path names by now.
    let path = format!("/proc/self/fd/{}", cached.file.as_raw_fd());
    // SAFETY: the seal shows that this user's wasmrun wrote the file, out of wasmtime's compiler,
    // and nobody else can write to it. wasmtime itself checks version, settings and processor.
    unsafe {
        match kind {
            Kind::Component => {
                Component::deserialize_file(&runtime.engine, path).map(Code::Component)
            }
            Kind::CoreProgram => {
                wasmtime::Module::deserialize_file(&runtime.engine, path).map(Code::Core)
            }
        }
    }
    .ok()
}

/// The WIT of the component that `bytes` are or become.
///
/// # Errors
/// When they are no component and cannot be made one, or the component cannot be decoded.
pub fn wit_text(bytes: &[u8]) -> Result<String, LoadError> {
    check_is_wasm(bytes)?;
    if Survey::of(bytes)?.kind()? == Kind::CoreProgram {
        let found = "it is a core program for preview1, which has no WIT".into();
        return Err(LoadError::NothingToRun { found });
    }
    let component = component_bytes(bytes)?;
    let undecodable = |error| LoadError::Invalid {
        message: format!("{error:#}"),
    };
    let decoded = wit_component::decode(&component).map_err(undecodable)?;
    let (resolve, package) = (decoded.resolve(), decoded.package());
    let others: Vec<_> = resolve
        .packages
        .iter()
        .map(|(id, _)| id)
        .filter(|id| *id != package)
        .collect();
    let mut printer = wit_component::WitPrinter::default();
    printer
        .print(resolve, package, &others)
        .map_err(undecodable)?;
    Ok(printer.output.to_string())
}
