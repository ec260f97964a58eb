//! `wasmrun node`: a node that other commands find.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use serde_json::json;
use wasmrun_model::fairness::TenantName;

use crate::args::{Global, NodeCommand, NodeOptions, Output};
use crate::fail::{CommandResult, Exit, Failure};
use crate::local;
use crate::printer::Printer;
use crate::{remote, things};

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
    }
}

/// Runs a node until somebody stops it.
fn start(options: &NodeOptions, global: &Global, printer: &Printer) -> CommandResult {
    let address = remote::address(global)?;
    let node = local::start(options, printer)?;
    let served = node.serve(&address);
    let server = served.map_err(|error| Failure::new(Exit::Usage, error))?;
    let stopper = server.stopper();
    let is_second = AtomicBool::new(false);
    let told = *printer;
    ctrlc::set_handler(move || {
        let is_now = is_second.swap(true, Ordering::SeqCst);
        if !is_now {
            told.note("stopping when what runs has ended; once more stops at once");
        }
        stopper.stop(is_now);
    })
    .context("cannot listen for Ctrl-C")?;
    match printer.output {
        Output::Json => {
            let (name, process) = (node.name(), std::process::id());
            let address = address.to_string();
            printer.json(&json!({
                "version": 1, "node": name, "address": address, "process": process,
            }))?;
        }
        _ => printer.result(format_args!("node {} listens at {address}", node.name()))?,
    }
    server.wait();
    drop(server);
    drop(node);
    printer.note("stopped");
    Ok(())
}
