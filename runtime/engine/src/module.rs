//! A loaded module: what it exports, linked and ready to be instantiated.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use wasmrun_model::id::Digest;
use wasmrun_model::manifest::Manifest;
use wasmrun_model::value::FunctionType;
use wasmtime::component::ComponentExportIndex;

use crate::call::CallPlan;
use crate::class::{Class, ClassIndex};
use crate::exports::{Exports, FastLane};
use crate::flavor::{Flavor, Runtime};
use crate::http_answer::HttpHandler;
use crate::load::{Code, Facts, LoadError, Origin};
use crate::prefault::DirtyPages;
use crate::room::Needs;
use crate::run::{MOST_HANDLES, MOST_WASI_HANDLES};
use crate::state::TaskState;

/// A loaded module. Cheap to clone.
#[derive(Clone)]
pub struct Module(pub(crate) Arc<ModuleInner>);

pub(crate) struct ModuleInner {
    digest: Digest,
    manifest: Manifest,
    functions: Vec<Function>,
    classes: Vec<Class>,
    /// Each name that stands for one function alone, with that.
    names: HashMap<String, FunctionIndex>,
    skipped: Vec<Skipped>,
    imports: Vec<String>,
    origin: Option<Origin>,
    pub(crate) facts: Facts,
    /// What a sandbox takes from the pool.
    pub(crate) needs: Needs,
    pub(crate) code: Linked,
    /// Of calls by the fast lane.
    pub(crate) dirty_pages: DirtyPages,
}

/// Code with its imports resolved.
pub(crate) enum Linked {
    Component {
        pre: wasmtime::component::InstancePre<TaskState>,
        run: Option<ComponentExportIndex>,
        fast: Option<FastLane>,
        http: Option<HttpHandler>,
    },
    Core {
        pre: wasmtime::InstancePre<TaskState>,
    },
}

/// A function of a module that can be a task.
pub struct Function {
    /// The interface that exports it, such as `example:render/scene@1.0.0`; `None` for functions
    /// that the component exports itself.
    pub interface: Option<String>,
    /// Its name within that.
    pub name: String,
    /// Its parameters and result.
    pub ty: FunctionType,
    pub(crate) export: ComponentExportIndex,
    pub(crate) plan: CallPlan,
}

/// An exported function or class that cannot be a task or an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its full name.
    pub name: String,
    /// Why not.
    pub reason: String,
}

/// Which of a module's functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(pub(crate) usize);

/// What of a module to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Its program.
    Program,
    /// One of its functions.
    Function(FunctionIndex),
    /// Its handler of HTTP requests.
    Http,
}

/// How a module's program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `wasi:cli/run` of a component: it can tell success from failure, and no more unless it
    /// uses `exit-with-code`.
    Component,
    /// `_start` of a core module, straight on preview1: any exit code.
    Core,
}

/// Why a name does not denote a function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// There is none of that name.
    #[error("the module exports no {what} '{name}'; {}", suggest(.near, .all))]
    Unknown {
        /// `function` or `class`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// Names that look alike, best first.
        near: Vec<String>,
        /// All names.
        all: Vec<String>,
    },
    /// There are several.
    #[error("'{name}' could be any of {}; use the full name", .candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// The full names.
        candidates: Vec<String>,
    },
    /// It exists, but it cannot be a task.
    #[error("'{name}' cannot be run as a task: {reason}")]
    NotATask {
        /// Its full name.
        name: String,
        /// Why not.
        reason: String,
    },
}

impl LookupError {
    /// That nothing has this name, of `all` that there is. `what`: `function` or `class`.
    pub fn unknown(what: &'static str, name: &str, all: Vec<String>) -> Self {
        Self::Unknown {
            what,
            name: name.into(),
            near: near(name, &all),
            all,
        }
    }
}

fn suggest(near: &[String], all: &[String]) -> String {
    match (near, all) {
        ([], []) => "it exports none at all".into(),
        ([], all) if all.len() <= 8 => format!("it exports {}", all.join(", ")),
        ([], _) => "`wasmrun inspect` lists its functions".into(),
        (near, _) => format!("did you mean {}?", near.join(" or ")),
    }
}

impl Function {
    /// The name that is its alone within the module: `interface#name`, or `name`.
    pub fn full_name(&self) -> String {
        match &self.interface {
            Some(interface) => format!("{interface}#{}", self.name),
            None => self.name.clone(),
        }
    }

    fn answers_to(&self, name: &str) -> bool {
        answers_to(self.interface.as_deref(), &self.name, name)
    }
}

/// Whether `wanted` may stand for what is exported as `name` by `interface`: the full name, that
/// without the version or without the package, or just the name.
fn answers_to(interface: Option<&str>, name: &str, wanted: &str) -> bool {
    let Some((wanted, last)) = wanted.rsplit_once('#') else {
        return name == wanted;
    };
    let Some(interface) = interface else {
        return false;
    };
    let unversioned = interface
        .split_once('@')
        .map_or(interface, |(name, _)| name);
    let short = unversioned
        .rsplit_once('/')
        .map_or(unversioned, |(_, name)| name);
    last == name && [interface, unversioned, short].contains(&wanted)
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.full_name(), self.ty)
    }
}

/// Whether what wasmtime cannot link is one of our interfaces: of another version, or with other types.
fn is_ours(message: &str) -> bool {
    let interfaces = ["actors", "calls", "context", "objects", "tasks"];
    let names = interfaces.map(|name| format!("`wasmrun:runtime/{name}@"));
    names.iter().any(|name| message.contains(name))
}

impl Module {
    /// Resolves imports and finds exports.
    pub(crate) fn link(
        digest: Digest,
        manifest: Manifest,
        facts: Facts,
        runtime: &Runtime,
        code: Code,
    ) -> Result<Self, LoadError> {
        let missing = |error: wasmtime::Error| {
            let message = format!("{error:#}");
            match is_ours(&message) {
                true => LoadError::Interface { message },
                false => LoadError::Import { message },
            }
        };
        let mut inner = match code {
            Code::Component(component) => {
                let linker = runtime.components();
                let pre = linker.instantiate_pre(&component).map_err(missing)?;
                let ty = linker
                    .substituted_component_type(&component)
                    .map_err(missing)?;
                let exports = Exports::of(&component, &ty, &runtime.engine);
                ModuleInner {
                    digest,
                    manifest,
                    functions: exports.functions,
                    classes: exports.classes,
                    names: HashMap::new(),
                    skipped: exports.skipped,
                    imports: exports.imports,
                    origin: None,
                    facts,
                    needs: Needs::of(component.resources_required().as_ref()),
                    code: Linked::Component {
                        http: HttpHandler::of(&pre),
                        pre,
                        run: exports.run,
                        fast: exports.fast,
                    },
                    dirty_pages: DirtyPages::default(),
                }
            }
            Code::Core(module) => {
                let start = module.get_export("_start");
                let is_start =
                    |ty: &wasmtime::FuncType| ty.params().len() == 0 && ty.results().len() == 0;
                if !start.is_some_and(|start| start.func().is_some_and(is_start)) {
                    let found = "its `_start` takes parameters or has a result".into();
                    return Err(LoadError::NothingToRun { found });
                }
                let pre = runtime.core().instantiate_pre(&module).map_err(missing)?;
                // Some toolchains import a function several times.
                let imports: BTreeSet<String> = module
                    .imports()
                    .map(|i| format!("{}.{}", i.module(), i.name()))
                    .collect();
                ModuleInner {
                    digest,
                    manifest,
                    functions: Vec::new(),
                    classes: Vec::new(),
                    names: HashMap::new(),
                    skipped: Vec::new(),
                    imports: imports.into_iter().collect(),
                    origin: None,
                    facts,
                    needs: Needs::of(Some(&module.resources_required())),
                    code: Linked::Core { pre },
                    dirty_pages: DirtyPages::default(),
                }
            }
        };
        inner.functions.sort_by_key(Function::full_name);
        inner.classes.sort_by_key(Class::full_name);
        inner.names = names(&inner.functions);
        let module = Self(Arc::new(inner));
        if module.functions().is_empty()
            && module.classes().is_empty()
            && module.program().is_none()
            && !module.is_http_handler()
            && module.0.skipped.is_empty()
        {
            let found = "it is a component that exports no function".into();
            return Err(LoadError::NothingToRun { found });
        }
        Ok(module)
    }

    pub(crate) fn with_origin(mut self, origin: Origin) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.origin = Some(origin);
        }
        self
    }

    /// What the module is: the digest of its bytes.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// What the module declares. A module without a manifest declares nothing.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// The functions that can be tasks, in order of their full names.
    pub fn functions(&self) -> &[Function] {
        &self.0.functions
    }

    /// The classes whose instances can be actors, in order of their full names.
    pub fn classes(&self) -> &[Class] {
        &self.0.classes
    }

    /// The fast lane, if the component has it.
    pub(crate) fn fast_lane(&self) -> Option<&FastLane> {
        match &self.0.code {
            Linked::Component { fast, .. } => fast.as_ref(),
            Linked::Core { .. } => None,
        }
    }

    /// Its handler of HTTP requests, if it has one.
    pub(crate) fn http_handler(&self) -> Option<&HttpHandler> {
        match &self.0.code {
            Linked::Component { http, .. } => http.as_ref(),
            Linked::Core { .. } => None,
        }
    }

    /// Whether it can answer HTTP requests: it exports `wasi:http/incoming-handler` of WASI 0.2, or `wasi:http/handler` of 0.3.
    pub fn is_http_handler(&self) -> bool {
        self.http_handler().is_some()
    }

    /// How many handles a sandbox of it may have. Streams of WASI 0.3 are in no table of WASI's, which has a limit itself.
    pub(crate) fn most_handles(&self) -> usize {
        let has_http = self.imports().iter().any(|it| it.starts_with("wasi:http/"));
        match has_http && self.0.facts.flavor == Flavor::Concurrent {
            true => MOST_WASI_HANDLES,
            false => MOST_HANDLES,
        }
    }

    /// Whether the host itself refuses files that could block a thread for ever.
    pub(crate) fn has_guarded_files(&self) -> bool {
        let is_component = matches!(self.0.code, Linked::Component { .. });
        is_component && self.0.facts.flavor != Flavor::Concurrent
    }

    /// How much memory an instance starts with at most in one memory, in bytes.
    pub(crate) fn initial_memory(&self) -> usize {
        usize::try_from(self.0.facts.initial_memory).unwrap_or(usize::MAX)
    }

    /// The exported functions and classes that cannot be tasks or actors.
    pub fn skipped(&self) -> &[Skipped] {
        &self.0.skipped
    }

    /// What the module imports.
    pub fn imports(&self) -> &[String] {
        &self.0.imports
    }

    /// Where its code came from.
    pub fn origin(&self) -> Option<Origin> {
        self.0.origin
    }

    /// The program in it, if there is one.
    pub fn program(&self) -> Option<Program> {
        match &self.0.code {
            Linked::Core { .. } => Some(Program::Core),
            Linked::Component { run: Some(_), .. } => Some(Program::Component),
            Linked::Component { run: None, .. } => None,
        }
    }

    /// The function at `index`.
    pub fn function(&self, index: FunctionIndex) -> &Function {
        &self.0.functions[index.0]
    }

    /// The function that `name` stands for: `name` where that is unique, else
    /// `interface#name`, with or without the interface's package and version.
    ///
    /// # Errors
    /// When there is no such function or more than one.
    pub fn find(&self, name: &str) -> Result<FunctionIndex, LookupError> {
        if let Some(index) = self.0.names.get(name) {
            return Ok(*index);
        }
        let functions = self.functions();
        if let Some(exact) = functions.iter().position(|f| f.full_name() == name) {
            return Ok(FunctionIndex(exact));
        }
        let answering: Vec<usize> = (0..functions.len())
            .filter(|&i| functions[i].answers_to(name))
            .collect();
        match answering[..] {
            [one] => return Ok(FunctionIndex(one)),
            [] => {}
            _ => {
                let candidates = answering
                    .iter()
                    .map(|&i| functions[i].full_name())
                    .collect();
                return Err(LookupError::Ambiguous {
                    name: name.into(),
                    candidates,
                });
            }
        }
        self.is_skipped(name)?;
        let all = functions.iter().map(Function::full_name).collect();
        Err(LookupError::unknown("function", name, all))
    }

    /// The class at `index`.
    pub fn class(&self, index: ClassIndex) -> &Class {
        &self.0.classes[index.0]
    }

    /// The class that `name` stands for: `name` where that is unique, else `interface#name`, with or
    /// without the interface's package and version.
    ///
    /// # Errors
    /// When there is no such class or more than one.
    pub fn find_class(&self, name: &str) -> Result<ClassIndex, LookupError> {
        let classes = self.classes();
        let answering = (0..classes.len()).filter(|&at| {
            classes[at].full_name() == name
                || answers_to(classes[at].interface.as_deref(), &classes[at].name, name)
        });
        match answering.collect::<Vec<_>>()[..] {
            [one] => return Ok(ClassIndex(one)),
            [] => {}
            ref several => {
                let candidates = several.iter().map(|&at| classes[at].full_name()).collect();
                return Err(LookupError::Ambiguous {
                    name: name.into(),
                    candidates,
                });
            }
        }
        self.is_skipped(name)?;
        let all = classes.iter().map(Class::full_name).collect();
        Err(LookupError::unknown("class", name, all))
    }

    /// The error that says why what is called `name` cannot be used, if there is such a thing.
    fn is_skipped(&self, name: &str) -> Result<(), LookupError> {
        let is_skipped = |s: &&Skipped| {
            s.name == name
                || s.name
                    .rsplit_once('#')
                    .is_some_and(|(_, short)| short == name)
        };
        match self.0.skipped.iter().find(is_skipped) {
            Some(Skipped { name, reason }) => Err(LookupError::NotATask {
                name: name.clone(),
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }
}

/// The names that stand for one function alone: full names, and short ones that are unique.
fn names(functions: &[Function]) -> HashMap<String, FunctionIndex> {
    let mut short: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, function) in functions.iter().enumerate() {
        short.entry(&function.name).or_default().push(at);
    }
    let short = short.into_iter().filter_map(|(name, at)| match at[..] {
        [at] => Some((name.to_owned(), FunctionIndex(at))),
        _ => None,
    });
    let full = functions.iter().enumerate();
    let full = full.map(|(at, function)| (function.full_name(), FunctionIndex(at)));
    // A full name comes before another function's short one.
    short.chain(full).collect()
}

/// Those of the full names that are a few slips away from `name`, nearest first.
fn near(name: &str, all: &[String]) -> Vec<String> {
    let last = |name: &str| name.rsplit('#').next().unwrap_or_default().to_lowercase();
    let wanted = last(name);
    let mut near: Vec<(usize, &String)> = all
        .iter()
        .map(|full| (strsim::damerau_levenshtein(&last(full), &wanted), full))
        .filter(|(slips, full)| {
            let full = last(full);
            *slips <= wanted.len().max(full.len()) / 3 || full.contains(&wanted) && wanted.len() > 2
        })
        .collect();
    near.sort();
    near.into_iter()
        .take(3)
        .map(|(_, name)| name.clone())
        .collect()
}
