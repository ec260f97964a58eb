//! `wasmrun node`: a node that other commands find, and its cluster.

pub mod cluster;
mod notify;
mod several;

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tracing::level_filters::LevelFilter;
use wasmrun_client::wire::{Request, Response, SetResource};
use wasmrun_engine::CacheStatus;
use wasmrun_model::fairness::TenantName;
use wasmrun_node::{ClusterError, JoinToken, Metrics, Node, Server, Stopper};

use self::several::{Several, StopOnDrop};
use crate::args::{Global, NodeCommand, NodeStart, Output, ResourceCommand, TokenCommand};
use crate::fail::{CommandResult, Exit, Failure};
use crate::printer::Printer;
use crate::{local, log, remote, things};

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
            ask(request, global)?;
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
            match ask(Request::SetResource(Box::new(set)), global)? {
                Response::Text(text) if printer.output == Output::Json => {
                    printer.json(&json!({ "version": 1, "message": text }))
                }
                Response::Text(text) => {
                    printer.note(text);
                    Ok(())
                }
                _ => Err(Failure::usage("the node has answered with something else")),
            }
        }
        NodeCommand::Remove { node, force } => {
            let request = Request::RemoveNode {
                node: node.clone(),
                is_forced: *force,
            };
            ask(request, global)?;
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
            many,
            lifetime,
        } => {
            let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
            let request = match name {
                Some(name) => Request::CreateClientToken {
                    name: name.clone(),
                    is_reusable: *many,
                    lifetime_ms,
                },
                None => Request::CreateToken {
                    is_for_clients: *client,
                    is_reusable: *many,
                    lifetime_ms,
                },
            };
            let Response::Text(token) = ask(request, global)? else {
                return Err(Failure::usage("the node has answered with something else"));
            };
            match printer.output {
                Output::Json => printer.json(&json!({ "version": 1, "token": token })),
                _ => printer.result(token),
            }
        }
        TokenCommand::List => things::tokens(global, printer),
        TokenCommand::Revoke { id } => {
            ask(Request::RevokeToken(id.clone()), global)?;
            printer.note(format_args!("token {id} lets nobody join any more"));
            Ok(())
        }
    }
}

fn ask(request: Request, global: &Global) -> Result<Response, Failure> {
    let client = remote::connect(global, &TenantName::default())?;
    client.wait(client.request(request)).map_err(remote::failed)
}

/// Begins to log what the options say.
fn log(options: &NodeStart, global: &Global) -> Option<log::Logging> {
    let unsaid = match () {
        () if global.verbose => LevelFilter::DEBUG,
        () if global.quiet => LevelFilter::WARN,
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
    let several = options.cluster.local.map(Several::new).transpose()?;
    let mut config = local::config(&options.node)?;
    config.cluster = cluster::config(&options.cluster, several.as_ref())?;
    if let Some(several) = &several {
        several.share(&mut config);
    }
    let is_head = options.cluster.head || several.is_some();
    let node = local::start_as(config, printer)?;
    log::set_node(node.name());
    if let (log::Format::Json, CacheStatus::Unusable { reason, .. }) =
        (options.watch.log_format, node.engine().cache_status())
    {
        // The note about it is not shown.
        tracing::warn!(%reason, "modules are compiled anew each time");
    }
    let served = node.serve(&address);
    let server = served.map_err(|error| Failure::new(Exit::Usage, error))?;
    let (version, resources) = (env!("CARGO_PKG_VERSION"), node.total());
    tracing::info!(id = %node.id(), %address, version, %resources, "the node has started");
    let metrics = serve_metrics(metrics, &server)?;
    let token = match is_head {
        true => node.join_token(true, TOKEN).transpose()?,
        false => None,
    };
    let stopper = server.stopper();
    // However this ends, they do, too.
    let guard = match (several, &token) {
        (Some(several), Some(token)) => {
            let others = several.start(token, options.watch.metrics, *printer)?;
            Some(StopOnDrop(Arc::new(others)))
        }
        _ => None,
    };
    let others = guard.as_ref().map(|it| it.0.clone());
    if options.cluster.tied {
        stop_with_input(stopper.clone());
    }
    stop_on_signals(stopper, others.clone(), *printer)?;
    let told = Told {
        node: &node,
        address: &address.to_string(),
        token: token.as_ref(),
        metrics: metrics.as_ref().map(Metrics::address),
    };
    told.tell(printer)?;
    if let Some(others) = &others {
        others.wait_until_there(&node, printer)?;
    }
    notify::ready(&format!("node {} listens at {address}", node.name()));
    let is_now = server.wait();
    // However that came.
    notify::stopping();
    if let Some(others) = &others {
        others.stop(is_now);
        others.wait();
    }
    let is_removed = node.is_removed();
    // Before those who have asked for it hear that we have stopped.
    node.leave_cluster();
    drop(server);
    drop(node);
    tracing::info!("the node has stopped");
    if is_removed {
        return Err(Failure::new(Exit::Usage, ClusterError::Removed));
    }
    printer.note("stopped");
    Ok(())
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
struct Told<'a> {
    node: &'a Node,
    address: &'a str,
    token: Option<&'a JoinToken>,
    metrics: Option<SocketAddr>,
}

impl Told<'_> {
    fn tell(&self, printer: &Printer) -> CommandResult {
        let (name, address) = (self.node.name(), self.address);
        if printer.output == Output::Json {
            return printer.json(&json!({
                "version": 1, "node": name, "address": address, "process": std::process::id(),
                "token": self.token.map(ToString::to_string),
                "metrics": self.metrics.map(|it| it.to_string()),
            }));
        }
        printer.result(format_args!("node {name} listens at {address}"))?;
        if let Some(metrics) = self.metrics {
            printer.result(format_args!("metrics are at http://{metrics}/metrics"))?;
        }
        if let Some(token) = self.token {
            printer.result(format_args!(
                "others join within an hour with: wasmrun node start --join {token}"
            ))?;
        }
        Ok(())
    }
}

/// The first signal lets what runs end, the second does not.
fn stop_on_signals(
    stopper: Stopper,
    others: Option<Arc<several::Others>>,
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
