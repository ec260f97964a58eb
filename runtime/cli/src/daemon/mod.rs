//! `wasmrun node`: a node that other commands find, and its cluster.

mod audit;
pub mod cluster;
mod history;
mod notify;
mod otlp;
mod page;
mod several;

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tracing::level_filters::LevelFilter;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{Address, ClientToken, List, Request, Response, SetResource, What};
use wasmrun_engine::CacheStatus;
use wasmrun_model::access::{Access, ParseAccessError, Role, Tenants};
use wasmrun_model::fairness::TenantName;
use wasmrun_node::{ClusterError, JoinToken, Metrics, Node, NodeConfig, Server, Stopper, Users};
use wasmrun_telemetry::Telemetry;

use self::history::{Folder, HistoryFiles};
use self::page::{BoundPage, Page};
use self::several::{Others, Several, StopOnDrop};
use crate::args::{Global, NodeCommand, NodeStart, Output, ResourceCommand, TokenCommand};
use crate::fail::{CommandResult, Exit, Failure};
use crate::printer::Printer;
use crate::things::{self, ends};
use crate::{local, log, remote};

/// How long the token serves that a head prints.
const TOKEN: Duration = Duration::from_secs(3600);

pub fn node(command: &NodeCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        NodeCommand::Start(options) => start(options, global, printer),
        NodeCommand::Stop { now } => {
            let client = remote::connect(global, &TenantName::default())?;
            client.wait(client.stop(*now)).map_err(remote::failed)?;
            printer.note(format_args!("node {} has stopped", client.node()));
            Ok(())
        }
        NodeCommand::List => things::nodes(global, printer),
        NodeCommand::Drain { node, undo } => {
            let request = Request::Drain {
                node: node.clone(),
                is_draining: !undo,
            };
            let client = remote::connect(global, &TenantName::default())?;
            ask(&client, request)?;
            let node = named(&client, What::Members, node, printer);
            match undo {
                true => printer.note(format_args!("node {node} takes work again")),
                false => printer.note(format_args!("node {node} takes no new work")),
            }
            Ok(())
        }
        NodeCommand::Resource { command } => {
            let (name, amount, at) = match command {
                ResourceCommand::Set { resource, at } => {
                    (&resource.name, Some(resource.amount), at)
                }
                ResourceCommand::Delete { name, at } => (name, None, at),
            };
            let set = SetResource {
                node: at.node.clone(),
                name: name.clone(),
                amount,
                is_kept: at.persist,
            };
            let client = remote::connect(global, &TenantName::default())?;
            match ask(&client, Request::SetResource(Box::new(set)))? {
                Response::Text(text) if printer.output == Output::Json => {
                    printer.json(&json!({ "version": 1, "message": text }))
                }
                Response::Text(text) => {
                    printer.note(text);
                    Ok(())
                }
                _ => Err(remote::unexpected("text")),
            }
        }
        NodeCommand::Remove { node, force } => {
            let request = Request::RemoveNode {
                node: node.clone(),
                is_forced: *force,
            };
            let client = remote::connect(global, &TenantName::default())?;
            ask(&client, request)?;
            let node = named(&client, What::Members, node, printer);
            printer.note(format_args!(
                "node {node} is out of the cluster, and nobody talks to it; tokens that it may know are to be revoked, too"
            ));
            Ok(())
        }
        NodeCommand::Token { command } => token(command, global, printer),
    }
}

fn token(command: &TokenCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        TokenCommand::Create {
            client,
            name,
            role,
            tenants,
            many,
            lifetime,
        } => {
            let access = client.then(|| access(name.clone(), *role, tenants));
            let access = access.transpose().map_err(Failure::usage)?;
            create_token(access, *many, *lifetime, global, printer)
        }
        TokenCommand::List => things::tokens(global, printer),
        TokenCommand::Revoke { id } => {
            let client = remote::connect(global, &TenantName::default())?;
            ask(&client, Request::RevokeToken(id.clone()))?;
            let id = named(&client, What::Tokens, id, printer);
            printer.note(format_args!("token {id} lets nobody join any more"));
            Ok(())
        }
    }
}

/// What a client may do, of what was said of it.
fn access(
    name: Option<String>,
    role: Option<Role>,
    tenants: &[Tenants],
) -> Result<Access, ParseAccessError> {
    let role = role.unwrap_or(Role::Submitter);
    let texts: Vec<String> = tenants.iter().map(ToString::to_string).collect();
    let tenants = match (role, texts.is_empty()) {
        (Role::Operator, true) => Tenants::All,
        (_, true) => Tenants::one(TenantName::default()),
        (_, false) => Tenants::parse(texts.iter().map(String::as_str))?,
    };
    let name = name.unwrap_or_default();
    Access {
        name,
        role,
        tenants,
    }
    .checked()
}

/// Makes a token for a client that may do this, or for a node.
fn create_token(
    access: Option<Access>,
    is_reusable: bool,
    lifetime: Duration,
    global: &Global,
    printer: &Printer,
) -> CommandResult {
    let lifetime_ms = wasmrun_model::units::ms(lifetime);
    let request = match access.clone() {
        Some(access) => Request::CreateClientToken(Box::new(ClientToken {
            access,
            is_reusable,
            lifetime_ms,
        })),
        None => Request::CreateToken {
            is_reusable,
            lifetime_ms,
        },
    };
    let client = remote::connect(global, &TenantName::default())?;
    let Response::Text(token) = ask(&client, request)? else {
        return Err(remote::unexpected("token"));
    };
    if let Some(Access { role, tenants, .. }) = &access {
        printer.note(format_args!(
            "a client that logs in with it is {role} of {tenants}"
        ));
    }
    match (printer.output, access) {
        (Output::Json, None) => printer.json(&json!({ "version": 1, "token": token })),
        (Output::Json, Some(access)) => printer.json(&json!({
            "version": 1, "token": token, "role": access.role, "tenants": access.tenants,
        })),
        _ => printer.result(token),
    }
}

fn ask(client: &Client, request: Request) -> Result<Response, Failure> {
    client.wait(client.request(request)).map_err(remote::failed)
}

/// A node or a token that something was done to, in words.
fn named(client: &Client, what: What, text: &str, printer: &Printer) -> String {
    ends::named(client, List::of(what), text, printer)
}

/// Begins to log what the options say.
fn log(options: &NodeStart, global: &Global) -> Option<log::Logging> {
    let unsaid = match () {
        () if global.verbose => LevelFilter::DEBUG,
        // Who tries several nodes out wants to read what comes.
        () if global.quiet || options.cluster.local.is_some() => LevelFilter::WARN,
        () => LevelFilter::INFO,
    };
    let filter = options.watch.log.clone();
    let filter = filter.unwrap_or_else(|| log::Filter::own(unsaid));
    log::start(filter, options.watch.log_format)
}

/// Runs a node until somebody stops it.
fn start(options: &NodeStart, global: &Global, printer: &Printer) -> CommandResult {
    // To the end of all else.
    let _logging = log(options, global);
    let printer = &match options.watch.log_format {
        log::Format::Text => *printer,
        // Standard error is for lines of JSON alone.
        log::Format::Json => printer.without_notes(),
    };
    if let Some(name) = &options.node.node_name {
        log::set_node(name.as_str());
    }
    let metrics = metrics_address(options)?;
    let address = remote::address(global)?;
    let (config, several) = config(options)?;
    let is_head = options.cluster.head || several.is_some();
    let (users, history) = (users(options)?, Folder::open(&options.watch)?);
    let page = BoundPage::bind(&options.page)?;
    let node = local::start_as(config, printer)?;
    log::set_node(node.name());
    log_cache(options, &node);
    let served = node.serve_users(&address, users);
    let server = served.map_err(|error| Failure::new(Exit::Usage, error))?;
    let followers = followers(options, history, &node, &server)?;
    let (version, resources) = (env!("CARGO_PKG_VERSION"), node.total());
    tracing::info!(id = %node.id(), %address, version, %resources, "the node has started");
    let metrics = serve_metrics(metrics, &server)?;
    let page = page.map(|it| it.serve(&address, &server)).transpose()?;
    let token = match is_head {
        true => node.join_token(true, TOKEN).transpose()?,
        false => None,
    };
    let stopper = server.stopper();
    // However this ends, they do, too.
    let start =
        |(several, token): (Several, _)| several.start(token, options.watch.metrics, *printer);
    let others = several.zip(token.as_ref()).map(start).transpose()?;
    let guard = others.map(|others| StopOnDrop(Arc::new(others)));
    let others = guard.as_ref().map(|it| it.0.clone());
    if options.cluster.tied {
        stop_with_input(stopper.clone());
    }
    stop_on_signals(stopper, others.clone(), *printer)?;
    let announcement = Announcement {
        node: &node,
        address: &address,
        token: token.as_ref().filter(|_| others.is_none()),
        metrics: metrics.as_ref().map(Metrics::address),
        page: page.as_ref().map(Page::url),
        others: others.as_deref(),
    };
    announcement.print(printer)?;
    notify::ready(&format!("node {} listens at {address}", node.name()));
    let is_now = server.wait();
    // However that came.
    notify::stopping();
    if let Some(others) = &others {
        others.stop(is_now);
        others.wait();
    }
    drop(page);
    let is_removed = node.is_removed();
    // Before those who have asked for it hear that we have stopped.
    node.leave_cluster();
    drop(server);
    drop(node);
    // They are given what ended because the node does, too.
    drop(followers);
    tracing::info!("the node has stopped");
    if is_removed {
        return Err(Failure::new(Exit::Usage, ClusterError::Removed));
    }
    printer.note("stopped");
    Ok(())
}

/// What the node is to be, and the others that are started with it.
fn config(options: &NodeStart) -> Result<(NodeConfig, Option<Several>), Failure> {
    let several = options.cluster.local.map(Several::new).transpose()?;
    let mut config = local::config(&options.node)?;
    config.history_bytes = Some(options.watch.history_memory);
    config.cluster = cluster::config(&options.cluster, several.as_ref())?;
    if let Some(several) = &several {
        several.share(&mut config);
    }
    config.audit = audit::config(&options.watch, config.cluster.as_ref())?;
    Ok((config, several))
}

/// The other users of the machine who may use the node.
fn users(options: &NodeStart) -> Result<Option<Users>, Failure> {
    let users = options.users.as_deref().map(Users::open).transpose();
    users.map_err(|error| Failure::new(Exit::Usage, error))
}

/// Begins to give attempts that end to those who want them, until it is dropped.
fn followers(
    options: &NodeStart,
    history: Option<Folder>,
    node: &Node,
    server: &Server,
) -> Result<(Option<HistoryFiles>, Option<Telemetry>), Failure> {
    let files = HistoryFiles::start(history, node.name(), server)?;
    Ok((files, otlp::start(&options.watch, node, server)?))
}

/// Logs that compiled code is not kept, where the note about it is not shown.
fn log_cache(options: &NodeStart, node: &Node) {
    if let (log::Format::Json, CacheStatus::Unusable { reason, .. }) =
        (options.watch.log_format, node.engine().cache_status())
    {
        tracing::warn!(%reason, "modules are compiled anew each time");
    }
}

/// Where metrics are served, if they are. Whoever reaches that can read them: where that may be another machine,
/// somebody must want it.
fn metrics_address(options: &NodeStart) -> Result<Option<SocketAddr>, Failure> {
    let is_meant = |address: &SocketAddr| address.ip().is_loopback() || options.watch.metrics_open;
    match options.watch.metrics {
        Some(address) if !is_meant(&address) => Err(Failure::new(
            Exit::Usage,
            anyhow::anyhow!(
                "metrics have no password, and other machines may reach {address}: say --metrics-open as well if they \
                 are to read them, and keep others away with a firewall; or leave the address out, and this machine \
                 alone reads them"
            ),
        )),
        metrics => Ok(metrics),
    }
}

/// Serves metrics, if they are wanted.
fn serve_metrics(address: Option<SocketAddr>, server: &Server) -> Result<Option<Metrics>, Failure> {
    let Some(address) = address else {
        return Ok(None);
    };
    let metrics = server.serve_metrics(address)?;
    let address = metrics.address();
    tracing::info!(%address, "metrics are served");
    Ok(Some(metrics))
}

/// Where the node is, and how others join it.
struct Announcement<'a> {
    node: &'a Node,
    address: &'a Address,
    /// None where the others have joined already.
    token: Option<&'a JoinToken>,
    metrics: Option<SocketAddr>,
    page: Option<String>,
    others: Option<&'a Others>,
}

impl Announcement<'_> {
    /// Prints it once all nodes are there; nothing if they are to stop before.
    fn print(&self, printer: &Printer) -> CommandResult {
        if let Some(others) = self.others
            && !others.wait_until_there(self.node)?
        {
            return Ok(());
        }
        let (name, address) = (self.node.name(), self.address);
        if printer.output == Output::Json {
            let mut announcement = json!({
                "version": 1, "node": name, "address": address.to_string(), "process": std::process::id(),
                "token": self.token.map(ToString::to_string),
                "metrics": self.metrics.map(|it| it.to_string()),
                "dashboard": self.page,
            });
            if let Some(others) = self.others {
                let others = others.addresses();
                let others = others.map(|(node, at)| json!({ "node": node, "address": at }));
                announcement["others"] = others.collect();
            }
            return printer.json(&announcement);
        }
        printer.result(format_args!("node {name} listens at {address}"))?;
        if let Some(metrics) = self.metrics {
            printer.result(format_args!("metrics are at http://{metrics}/metrics"))?;
        }
        if let Some(page) = &self.page {
            printer.result(format_args!(
                "the page is at {page}: wasmrun dashboard opens it"
            ))?;
        }
        if let Some(token) = self.token {
            printer.result(format_args!(
                "others join within an hour with: wasmrun node start --join {token}"
            ))?;
        }
        match self.others {
            Some(others) => self.tell_of_others(others, printer),
            None => Ok(()),
        }
    }

    /// Which there are, and what to do with them.
    fn tell_of_others(&self, others: &Others, printer: &Printer) -> CommandResult {
        for (name, address) in others.addresses() {
            printer.result(format_args!("node {name} listens at {address}"))?;
        }
        // What commands in this environment do not find by themselves.
        let is_found = wasmrun_client::default_address().is_ok_and(|it| it == *self.address);
        let option = match is_found {
            true => String::new(),
            false => format!(" --address {}", self.address),
        };
        let count = 1 + others.addresses().count();
        printer.result(format_args!(
            "{count} nodes are there\n\
             to use them: wasmrun{option} submit MODULE\n\
             to end them: Ctrl-C, or wasmrun{option} node stop"
        ))
    }
}

/// The first signal lets what runs end, the second does not.
fn stop_on_signals(
    stopper: Stopper,
    others: Option<Arc<Others>>,
    printer: Printer,
) -> Result<(), Failure> {
    let is_second = AtomicBool::new(false);
    let set = ctrlc::set_handler(move || {
        let is_now = is_second.swap(true, Ordering::SeqCst);
        tracing::info!(is_now, "the node was told to stop");
        if !is_now {
            notify::stopping();
            printer.note("stopping when what runs has ended; once more stops at once");
        }
        stopper.stop(is_now);
        if let Some(others) = &others {
            others.stop(is_now);
        }
    });
    Ok(set.context("cannot listen for Ctrl-C")?)
}

/// Stops when standard input ends, as it does when the process at its other end does.
fn stop_with_input(stopper: Stopper) {
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut bytes = [0; 64];
        while matches!(stdin.read(&mut bytes), Ok(1..)) {}
        stopper.stop(true);
    });
}
