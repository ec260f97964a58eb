//! `group`: bundles of resources that are reserved together.

use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use wasmrun_client::wire::{List, What};
use wasmrun_client::{CreateGroup, GroupError};
use wasmrun_model::group::GroupSpec;

use super::ends;
use crate::args::{Global, GroupCommand, GroupCreate, Output, SpecArg};
use crate::fail::{CommandResult, Exit, Failure};
use crate::printer::Printer;
use crate::{local, remote};

/// The largest file with a group, in bytes: far more than any needs.
const SPEC_BYTES: u64 = 1 << 20;
/// How often a command that keeps a group looks whether the node is still there.
const LOOK: Duration = Duration::from_millis(500);

/// `group`.
pub fn group(command: &GroupCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        GroupCommand::Create(options) => create(options, global, printer),
        GroupCommand::List => super::show(What::Groups, Vec::new(), global, printer),
        GroupCommand::Ready {
            group,
            timeout,
            tenant,
        } => {
            let client = remote::connect(global, tenant)?;
            let ready = client.wait(client.group_ready(group, *timeout));
            ready.map_err(|error| match error {
                GroupError::TimedOut(_) => Failure::new(Exit::TimedOut, error),
                GroupError::Request(error) => remote::failed(error),
            })
        }
        GroupCommand::Remove { group, tenant } => {
            let client = remote::connect(global, tenant)?;
            let list = List::of(What::Groups).with("tenant", tenant);
            let shown = ends::named(&client, list, group, printer);
            let removed = client.wait(client.remove_group(group));
            removed.map_err(remote::failed)?;
            printer.note(format_args!(
                "placement group {shown} is removed, and what ran in it has ended"
            ));
            Ok(())
        }
    }
}

fn create(options: &GroupCreate, global: &Global, printer: &Printer) -> CommandResult {
    let mut create = CreateGroup::new(spec(options)?);
    create.wire.name.clone_from(&options.name);
    create.wire.is_detached = options.detach;
    let (interrupted, interrupt) = mpsc::channel();
    if !options.detach {
        let handler = move || {
            // Whoever waits for it may have gone.
            let _ = interrupted.send(());
        };
        ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
    }
    let client = remote::connect(global, &options.tenant)?;
    let created = client.wait(client.create_group(create));
    let group = created.map_err(remote::failed)?;
    let id = group.id().to_string();
    if let Some(why) = group.why_not_durable() {
        printer.warn(format_args!(
            "placement group {id} ends if node {} is lost, and is not kept elsewhere: {why}",
            client.node()
        ));
    }
    match printer.output {
        Output::Json => {
            let name = &options.name;
            printer.json(&json!({ "version": 1, "group": id, "name": name }))?;
        }
        _ => printer.result(&id)?,
    }
    if options.detach {
        return Ok(());
    }
    printer.note("the group is there until Ctrl-C; with --detach, until it is removed");
    // It ends with our session.
    while interrupt.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
        if let Some(why) = client.ended() {
            return Err(remote::failed(why));
        }
    }
    Err(Failure::silent(Exit::Interrupted))
}

/// What is asked for.
fn spec(options: &GroupCreate) -> Result<GroupSpec, Failure> {
    let text = match (&options.spec, options.kind) {
        (Some(SpecArg::Text(text)), _) => text.clone(),
        (Some(SpecArg::File(path)), _) => {
            let bytes = local::read_file(path, SPEC_BYTES, "a smaller one");
            let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
            String::from_utf8(bytes).map_err(|_| Failure::usage("the file is not text"))?
        }
        (None, Some(kind)) => {
            let bundles = options.bundle.iter().map(|it| it.request.clone());
            let of_all = options.label_selector.clone().unwrap_or_default();
            let selectors = options.bundle.iter().map(|it| it.selectors.clone());
            let selectors = selectors.map(|it| it.unwrap_or_else(|| of_all.clone()));
            let spec = GroupSpec::new(kind, bundles.collect())?;
            return Ok(spec.with_selectors(selectors.collect())?);
        }
        (None, None) => return Err(Failure::usage("give --kind and --bundle, or --spec")),
    };
    let spec = serde_json::from_str(&text).context("cannot read --spec")?;
    Ok(spec)
}
