//! `tenant`: what tenants are due, and what they have.

use serde_json::json;
use wasmrun_client::TenantChange;
use wasmrun_client::wire::{TenantSet, What};
use wasmrun_model::fairness::TenantName;

use super::{rows, scheduling};
use crate::args::{self, Global, Output, TenantCommand};
use crate::fail::CommandResult;
use crate::printer::Printer;
use crate::remote;

/// `tenant`.
pub fn tenant(command: &TenantCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        TenantCommand::Set(options) => set(options, global, printer),
        TenantCommand::List { filter } => {
            let filters = filter.iter().map(|it| (it.0.clone(), it.1.clone()));
            super::show(What::Shares, filters.collect(), global, printer)
        }
        TenantCommand::Remove { tenant } => {
            let client = remote::connect(global, &TenantName::default())?;
            let removed = client.wait(client.remove_tenant(tenant));
            removed.map_err(remote::failed)?;
            printer.note(format_args!(
                "tenant {tenant} has weight 1 and no minimum again"
            ));
            Ok(())
        }
    }
}

fn set(options: &args::TenantSet, global: &Global, printer: &Printer) -> CommandResult {
    let mut change = TenantChange::new();
    if let Some(weight) = options.weight {
        change = change.weight(weight);
    }
    if let Some(min) = &options.min {
        change = change.min(min.0.clone());
    }
    if let Some(weights) = &options.resource_weights {
        change = change.resource_weights(weights.0.clone());
    }
    let client = remote::connect(global, &TenantName::default())?;
    let set = client.wait(client.set_tenant(&options.tenant, change));
    let TenantSet {
        tenant,
        weight,
        min,
        notes,
    } = set.map_err(remote::failed)?;
    match printer.output {
        Output::Json => {
            let mut set = json!({
                "version": 1, "tenant": tenant.to_string(), "weight": weight.to_string(), "min": min, "notes": notes,
            });
            if let Some(weights) = &options.resource_weights {
                set["resource_weights"] = scheduling::to_json(&weights.0);
            }
            printer.json(&set)?;
        }
        _ => {
            let min = match min.is_empty() {
                true => "no minimum".to_owned(),
                false => format!("minimum {}", rows::amounts(&min)),
            };
            printer.result(format_args!("tenant {tenant}: weight {weight}, {min}"))?;
            if let Some(weights) = &options.resource_weights {
                printer.result(scheduling::shown(&tenant, &weights.0))?;
            }
        }
    }
    for note in notes {
        printer.warn(note);
    }
    Ok(())
}
