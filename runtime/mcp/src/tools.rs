//! What tools there are: gathered from modules before the server begins.

use std::collections::BTreeSet;

use rmcp::model::{Tool, ToolAnnotations};
use wasmrun_client::{Client, Error, wire};
use wasmrun_model::id::Digest;
use wasmrun_model::manifest::Manifest;
use wasmrun_model::trace::TraceContext;

use crate::function::Function;
use crate::names::{Named, tool_names};
use crate::python::{self, Python};
use crate::server::Server;
use crate::{DEFAULT_TIME_MS, docs};

/// What all calls ask for, may use and may reach.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// What they ask for, over what modules declare.
    pub terms: wire::Terms,
    /// What they may use. Where no time is given a module's manifest decides, and where that says nothing [`DEFAULT_TIME_MS`].
    pub limits: wire::Limits,
    /// What they may reach.
    pub grants: wire::Grants,
    /// The trace that they belong to.
    pub trace: Option<TraceContext>,
}

/// A module, as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// What people call it.
    pub name: &'a str,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// What it declares.
    pub manifest: &'a Manifest,
}

/// Why a module brings no tools.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The node cannot load it, or has gone.
    #[error(transparent)]
    Load(#[from] Error),
    /// It has nothing to call.
    #[error(
        "it exports no function that can be a tool: programs, actors, and functions of objects and actors cannot be"
    )]
    NoFunctions,
    /// It is there already.
    #[error("it is given twice; give it once")]
    Twice,
    /// It is not what it should be.
    #[error("it is not the Python interpreter of this version of wasmrun")]
    NotPython,
}

/// What runs when a tool is called.
#[derive(Debug)]
pub(crate) enum Action {
    Function(Box<Function>),
    Python(Box<Python>),
}

impl Action {
    /// How long a call may take, in milliseconds.
    pub(crate) fn time_ms(&self) -> u64 {
        let template = match self {
            Self::Function(function) => &function.template,
            Self::Python(python) => &python.template,
        };
        template.limits.time_ms.unwrap_or(DEFAULT_TIME_MS)
    }
}

/// A function, before all are known and it gets its name.
struct Added {
    module: String,
    function: Function,
    docs: Option<String>,
}

/// The tools, being gathered.
pub struct Tools {
    client: Client,
    settings: Settings,
    modules: BTreeSet<Digest>,
    python: Option<Python>,
    functions: Vec<Added>,
}

impl Tools {
    /// None yet. Calls will be tasks of this session.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self {
            client,
            settings,
            modules: BTreeSet::new(),
            python: None,
            functions: Vec::new(),
        }
    }

    /// Adds the functions of a module. The full names of those that cannot be tools, as they take or return handles.
    ///
    /// # Errors
    /// When the node cannot load it, nothing in it can be a tool, or it was added before.
    pub async fn add_module(&mut self, source: Source<'_>) -> Result<Vec<String>, AddError> {
        let module = self.client.load(source.bytes).await?;
        if !self.modules.insert(module.digest) {
            return Err(AddError::Twice);
        }
        let (left_out, functions): (Vec<_>, Vec<_>) = module
            .functions
            .into_iter()
            .partition(|(_, ty)| ty.has_handles());
        if functions.is_empty() {
            return Err(AddError::NoFunctions);
        }
        let mut docs = docs::of(source.bytes);
        for (name, ty) in functions {
            self.functions.push(Added {
                module: source.name.to_owned(),
                docs: docs.remove(&name),
                function: Function {
                    template: self.template(module.digest, &name, source.manifest),
                    name,
                    ty,
                },
            });
        }
        Ok(left_out.into_iter().map(|(name, _)| name).collect())
    }

    /// Adds the tool `run_python`, by the interpreter of the Python package.
    ///
    /// # Errors
    /// When the node cannot load it, or it is something else.
    pub async fn add_python(&mut self, source: Source<'_>) -> Result<(), AddError> {
        let module = self.client.load(source.bytes).await?;
        let digest = module.digest;
        let mut functions = module.functions.into_iter();
        let found = functions.find(|(name, _)| python::is_run(name));
        let (name, ty) = found.ok_or(AddError::NotPython)?;
        let template = self.template(digest, &name, source.manifest);
        self.python = Some(Python::new(template, ty).ok_or(AddError::NotPython)?);
        Ok(())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.python.is_none()
    }

    /// The server that offers them.
    pub fn into_server(self) -> Server {
        let named = self.functions.iter().map(|it| Named {
            module: it.module.strip_suffix(".wasm").unwrap_or(&it.module),
            function: &it.function.name,
        });
        let names = tool_names(&named.collect::<Vec<_>>(), &[python::NAME]);
        let annotations = annotations(&self.settings.grants);
        let mut tools = Vec::new();
        if let Some(python) = self.python {
            let reach = reach(&self.settings.grants);
            let tool = Tool::new(
                python::NAME,
                python.description(&reach),
                python.input_schema(),
            )
            .with_raw_output_schema(Python::output_schema())
            .with_annotations(annotations.clone());
            tools.push((tool, Action::Python(Box::new(python))));
        }
        for (added, name) in self.functions.into_iter().zip(names) {
            let Added {
                module,
                function,
                docs,
            } = added;
            let description = function.description(&module, docs.as_deref());
            let tool = Tool::new(name, description, function.input_schema())
                .with_raw_output_schema(function.output_schema())
                .with_annotations(annotations.clone());
            tools.push((tool, Action::Function(Box::new(function))));
        }
        Server::new(self.client, tools)
    }

    fn template(&self, module: Digest, name: &str, manifest: &Manifest) -> wire::Submit {
        let declared = manifest.settings(name).find_map(|it| it.time_limit);
        let declared = declared.map(|limit| limit.ms);
        let mut limits = self.settings.limits;
        limits.time_ms = limits.time_ms.or(declared).or(Some(DEFAULT_TIME_MS));
        wire::Submit {
            terms: self.settings.terms.clone(),
            limits,
            grants: self.settings.grants.clone(),
            is_watched: true,
            trace: self.settings.trace.clone(),
            ..wire::Submit::new(module, wire::Entry::Function(name.to_owned()))
        }
    }
}

/// Hints for those who ask people before a tool is called.
fn annotations(grants: &wire::Grants) -> ToolAnnotations {
    let is_closed = grants.net == wire::Net::None && grants.http.is_empty();
    let is_read_only = is_closed && grants.dirs.iter().all(|dir| dir.is_read_only);
    ToolAnnotations::new()
        .read_only(is_read_only)
        .destructive(!is_read_only)
        .open_world(!is_closed)
}

/// What was granted, in words for a model.
fn reach(grants: &wire::Grants) -> String {
    let dirs = grants.dirs.iter().map(|dir| match dir.is_read_only {
        true => format!("{} (read only)", dir.guest),
        false => dir.guest.clone(),
    });
    let dirs: Vec<_> = dirs.collect();
    let dirs = match &dirs[..] {
        [] => "There are no files".to_owned(),
        dirs => format!("There are these directories: {}", dirs.join(", ")),
    };
    let reach = match &grants.net {
        wire::Net::None => format!("{dirs} and there is no network."),
        wire::Net::All => format!("{dirs}, and the network may be used."),
        wire::Net::Only(addresses) => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            format!(
                "{dirs}, and on the network there are {}.",
                addresses.join(", ")
            )
        }
    };
    let hosts: Vec<_> = grants.http.iter().map(ToString::to_string).collect();
    match &hosts[..] {
        [] => reach,
        hosts => format!("{reach} HTTP requests may go to {}.", hosts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_granted_are_told_of() {
        let mut grants = wire::Grants::default();
        let nothing = "There are no files and there is no network.";
        assert_eq!(reach(&grants), nothing);
        assert_eq!(annotations(&grants).open_world_hint, Some(false));
        grants.http = vec!["api.example.com".parse().expect("it is one")];
        let told = format!("{nothing} HTTP requests may go to api.example.com.");
        assert_eq!(reach(&grants), told);
        assert_eq!(annotations(&grants).open_world_hint, Some(true));
        assert_eq!(annotations(&grants).read_only_hint, Some(false));
    }
}
