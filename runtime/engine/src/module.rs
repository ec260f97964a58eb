//! A loaded module: what it exports, linked and ready to be instantiated.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use wasmrun_model::id::Digest;
use wasmrun_model::manifest::Manifest;
use wasmrun_model::value::FunctionType;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex};

use crate::call::CallPlan;
use crate::flavor::{Flavor, Runtime};
use crate::load::{Code, LoadError, Origin};
use crate::state::TaskState;
use crate::types::function_type;

/// A loaded module. Cheap to clone.
#[derive(Clone)]
pub struct Module(pub(crate) Arc<ModuleInner>);

pub(crate) struct ModuleInner {
    digest: Digest,
    manifest: Manifest,
    functions: Vec<Function>,
    skipped: Vec<Skipped>,
    imports: Vec<String>,
    origin: Option<Origin>,
    pub(crate) flavor: Flavor,
    pub(crate) code: Linked,
}

/// Code with its imports resolved.
pub(crate) enum Linked {
    Component {
        pre: wasmtime::component::InstancePre<TaskState>,
        run: Option<ComponentExportIndex>,
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

/// An exported function that cannot be a task.
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
    #[error("the module exports no function '{name}'; {}", suggest(.near, .all))]
    Unknown {
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

    /// Whether `name` may stand for it: its full name, that without the version or without the
    /// package, or just its name.
    fn answers_to(&self, name: &str) -> bool {
        let Some((wanted, function)) = name.rsplit_once('#') else {
            return self.name == name;
        };
        let Some(interface) = &self.interface else {
            return false;
        };
        let unversioned = interface
            .split_once('@')
            .map_or(&interface[..], |(name, _)| name);
        let short = unversioned
            .rsplit_once('/')
            .map_or(unversioned, |(_, name)| name);
        function == self.name && [interface, unversioned, short].contains(&wanted)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.full_name(), self.ty)
    }
}

impl Module {
    /// Resolves imports and finds exports.
    pub(crate) fn link(
        digest: Digest,
        manifest: Manifest,
        flavor: Flavor,
        runtime: &Runtime,
        code: Code,
    ) -> Result<Self, LoadError> {
        let missing = |error: wasmtime::Error| LoadError::Import {
            message: format!("{error:#}"),
        };
        let mut inner = match code {
            Code::Component(component) => {
                let pre = runtime
                    .components()
                    .instantiate_pre(&component)
                    .map_err(missing)?;
                let exports = Exports::of(&component, &runtime.engine);
                ModuleInner {
                    digest,
                    manifest,
                    functions: exports.functions,
                    skipped: exports.skipped,
                    imports: exports.imports,
                    origin: None,
                    flavor,
                    code: Linked::Component {
                        pre,
                        run: exports.run,
                    },
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
                    skipped: Vec::new(),
                    imports: imports.into_iter().collect(),
                    origin: None,
                    flavor,
                    code: Linked::Core { pre },
                }
            }
        };
        inner.functions.sort_by_key(Function::full_name);
        let module = Self(Arc::new(inner));
        if module.functions().is_empty()
            && module.program().is_none()
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

    /// The exported functions that cannot be tasks.
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
        let is_skipped = |s: &&Skipped| {
            s.name == name
                || s.name
                    .rsplit_once('#')
                    .is_some_and(|(_, short)| short == name)
        };
        if let Some(skipped) = self.0.skipped.iter().find(is_skipped) {
            let Skipped { name, reason } = skipped.clone();
            return Err(LookupError::NotATask { name, reason });
        }
        let all: Vec<String> = functions.iter().map(Function::full_name).collect();
        Err(LookupError::Unknown {
            name: name.into(),
            near: near(name, functions),
            all,
        })
    }
}

/// The full names of functions whose name is a few slips away from `name`, nearest first.
fn near(name: &str, functions: &[Function]) -> Vec<String> {
    let last = |name: &str| name.rsplit('#').next().unwrap_or_default().to_lowercase();
    let wanted = last(name);
    let mut near: Vec<(usize, String)> = functions
        .iter()
        .map(|f| {
            (
                strsim::damerau_levenshtein(&last(&f.name), &wanted),
                f.full_name(),
            )
        })
        .filter(|(slips, full)| {
            let full = last(full);
            *slips <= wanted.len().max(full.len()) / 3 || full.contains(&wanted) && wanted.len() > 2
        })
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// What a component exports.
#[derive(Default)]
struct Exports {
    functions: Vec<Function>,
    skipped: Vec<Skipped>,
    imports: Vec<String>,
    run: Option<ComponentExportIndex>,
}

impl Exports {
    fn of(component: &Component, engine: &wasmtime::Engine) -> Self {
        let mut exports = Self::default();
        let ty = component.component_type();
        exports.imports = ty
            .imports(engine)
            .map(|(name, _)| name.to_owned())
            .collect();
        for (name, item) in ty.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(func) => exports.add(component, None, name, &func),
                ComponentItem::ComponentInstance(instance) => {
                    for (inner, item) in instance.exports(engine) {
                        if let ComponentItem::ComponentFunc(func) = item.ty {
                            exports.add(component, Some(name), inner, &func);
                        }
                    }
                }
                _ => {}
            }
        }
        exports
    }

    fn add(
        &mut self,
        component: &Component,
        interface: Option<&str>,
        name: &str,
        func: &ComponentFunc,
    ) {
        let instance = interface.and_then(|i| component.get_export_index(None, i));
        let Some(export) = component.get_export_index(instance.as_ref(), name) else {
            return;
        };
        if name == "run" && interface.is_some_and(|i| i.starts_with("wasi:cli/run@")) {
            self.run = Some(export);
            return;
        }
        let full = interface.map_or(name.to_owned(), |i| format!("{i}#{name}"));
        match function_type(func) {
            Ok(ty) => self.functions.push(Function {
                interface: interface.map(str::to_owned),
                name: name.to_owned(),
                plan: CallPlan::for_type(&ty, func.async_()),
                ty,
                export,
            }),
            Err(reason) => self.skipped.push(Skipped { name: full, reason }),
        }
    }
}
