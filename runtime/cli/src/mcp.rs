//! `wasmrun mcp`: functions of modules and Python snippets as tools for agents.
//!
//! Owns where the modules and the node come from, and what is said on standard error. The server is of `wasmrun-mcp`. Standard
//! output belongs to the protocol, unless that goes over HTTP.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::Address;
use wasmrun_engine::section;
use wasmrun_mcp::{AddError, Http, Settings, Source, Token, Tools};
use wasmrun_model::manifest::Manifest;
use wasmrun_node::{Node, Server};

use crate::args::{Global, Mcp, Output};
use crate::fail::{CommandResult, Exit, Failure};
use crate::printer::Printer;
use crate::signals::stop_on_signals;
use crate::submit::{interpreter, wants_own_node, wire_grants, wire_limits, wire_terms};
use crate::{local, remote};

/// The longest file of a token, in bytes.
const MAX_TOKEN_BYTES: u64 = 4 << 10;

pub fn mcp(options: &Mcp, global: &Global, printer: &Printer) -> CommandResult {
    let settings = settings(options)?;
    let token = options.token_file.as_deref().map(token).transpose()?;
    let stop = CancellationToken::new();
    stop_on_signals(&stop)?;
    // The node ends after its client.
    let (client, _node) = connect(options, global, printer)?;
    let client = &client;
    client.wait(async {
        // What cannot be listened at is said before modules are compiled.
        let http = match options.listen {
            Some(address) => Some(Http::bind(address, token).await?),
            None => None,
        };
        let mut tools = Tools::new((**client).clone(), settings);
        tokio::select! {
            added = add(&mut tools, options, printer) => added?,
            () = stop.cancelled() => return Ok(()),
        }
        let server = tools.into_server();
        let names: Vec<_> = server.names().collect();
        printer.note(format_args!("tools: {}", names.join(", ")));
        match http {
            None => Ok(wasmrun_mcp::serve_stdio(server, stop).await?),
            Some(http) => {
                match printer.output {
                    Output::Json => printer.json(&json!({ "version": 1, "url": http.url() }))?,
                    _ => printer.result(format_args!("the server is at {}", http.url()))?,
                }
                http.serve(server, stop).await;
                Ok(())
            }
        }
    })
}

/// A node of our own, at a socket that nobody else looks for.
struct OwnNode {
    _server: Server,
    _node: Node,
    _folder: TempDir,
}

/// The node that runs, or one of our own.
fn connect(
    options: &Mcp,
    global: &Global,
    printer: &Printer,
) -> Result<(Client, Option<OwnNode>), Failure> {
    let tenant = &options.task.scheduling.tenant;
    if !wants_own_node(&options.node)
        && let Some(client) = remote::find(global, tenant, "mcp")?
    {
        return Ok((client, None));
    }
    let ours = Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new()
        .prefix("wasmrun-")
        .permissions(ours)
        .tempdir();
    let folder = folder.context("cannot make a folder for the socket of a node")?;
    let address: Address = format!("unix:{}/node.sock", folder.path().display()).parse()?;
    let node = local::start(&options.node, printer)?;
    let server = node.serve(&address)?;
    let client = Client::connect(&address, tenant.clone());
    let client = client.map_err(|error| Failure::new(Exit::Unreachable, error))?;
    let own = OwnNode {
        _server: server,
        _node: node,
        _folder: folder,
    };
    Ok((client, Some(own)))
}

/// What all calls have in common.
fn settings(options: &Mcp) -> Result<Settings, Failure> {
    options.task.grants.check_dirs()?;
    Ok(Settings {
        terms: wire_terms(&options.task)?,
        limits: wire_limits(&options.task.limits),
        grants: wire_grants(&options.task.grants)?,
        trace: options.task.trace.context(),
    })
}

/// Adds all tools. Says which there are not, and why.
async fn add(tools: &mut Tools, options: &Mcp, printer: &Printer) -> CommandResult {
    if !options.no_python {
        match interpreter() {
            Ok(path) => {
                let (bytes, manifest) = read(&path, options)?;
                let added = tools.add_python(source("python.wasm", &bytes, &manifest));
                added.await.map_err(|error| failed(&path, error))?;
            }
            Err(why) => printer.note(format_args!("no tool runs Python: {why}")),
        }
    }
    for path in &options.modules {
        let (bytes, manifest) = read(path, options)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let added = tools.add_module(source(&name, &bytes, &manifest));
        let left_out = added.await.map_err(|error| failed(path, error))?;
        if !left_out.is_empty() {
            printer.note(format_args!(
                "{name}: these take or return objects or actors, which tools cannot: {}",
                left_out.join(", ")
            ));
        }
    }
    if tools.is_empty() {
        return Err(Failure::usage(
            "there is nothing to offer: name modules, or see above how to get Python",
        ));
    }
    Ok(())
}

fn source<'a>(name: &'a str, bytes: &'a [u8], manifest: &'a Manifest) -> Source<'a> {
    Source {
        name,
        bytes,
        manifest,
    }
}

/// A module, and what it declares.
fn read(path: &Path, options: &Mcp) -> Result<(Vec<u8>, Manifest), Failure> {
    let bytes = local::read_module(path, &options.node)?;
    // What is wrong with a module says the node that loads it.
    let declared = section::read(&bytes).unwrap_or_default();
    let manifest = declared.first().and_then(|json| Manifest::parse(json).ok());
    let manifest = manifest.unwrap_or_default();
    Ok((bytes, manifest))
}

fn failed(path: &Path, error: AddError) -> Failure {
    let failure = match error {
        AddError::Load(error) => remote::failed(error),
        error => Failure::from(error),
    };
    failure.context(format!("no tools come of {}", path.display()))
}

/// The token in a file.
fn token(path: &Path) -> Result<Token, Failure> {
    let bytes = local::read_file(path, MAX_TOKEN_BYTES, "a shorter token");
    let bytes = bytes.with_context(|| format!("cannot read the token in {}", path.display()))?;
    let text = String::from_utf8(bytes).ok();
    let token = text.and_then(|text| Token::new(text.trim()));
    token.ok_or_else(|| {
        Failure::usage(format!(
            "the token in {} must have at least 16 characters, of ASCII and without spaces: `openssl rand -hex 32` makes one",
            path.display()
        ))
    })
}
