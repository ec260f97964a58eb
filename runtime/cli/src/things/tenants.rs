//! `tenant`: what tenants are due, and what they have.

use serde_json::json;
use wasmrun_client::TenantChange;
use wasmrun_client::wire::{TenantChanged, What};
use wasmrun_model::fairness::{Quota, TenantName};
use wasmrun_model::units;

use super::{rows, scheduling};
use crate::args::{self, AllowArg, Global, Output, TenantCommand};
use crate::fail::CommandResult;
use crate::printer::Printer;
use crate::remote;

/// `tenant`.
pub fn tenant(command: &TenantCommand, global: &Global, printer: &Printer) -> CommandResult {
    match command {
        TenantCommand::Set(options) => set(options, global, printer),
        TenantCommand::List { filter } => {
            let filters = filter.iter().map(|it| (it.0.clone(), it.1.clone()));
            super::show(What::Due, filters.collect(), global, printer)
        }
        TenantCommand::Remove { tenant } => {
            let client = remote::connect(global, &TenantName::default())?;
            let removed = client.wait(client.remove_tenant(tenant));
            removed.map_err(remote::failed)?;
            printer.note(format_args!(
                "tenant {tenant} has weight 1, no minimum and no quota of its own again"
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
    if let Some(max) = &options.max {
        change = change.max(max.0.clone());
    }
    if let Some(most) = &options.max_objects {
        change = change.max_objects(most.0);
    }
    if let Some(most) = &options.max_detached {
        change = change.max_detached(most.0.map(u64::from));
    }
    if let Some(most) = &options.max_tasks {
        change = change.max_tasks(most.0);
    }
    if let Some(most) = &options.max_waiting {
        change = change.max_waiting(most.0);
    }
    if let Some(allowed) = options.no_preempt {
        change = change.no_preempt(allowed == AllowArg::Allow);
    }
    let client = remote::connect(global, &TenantName::default())?;
    let changed = client.wait(client.set_tenant(&options.tenant, change));
    let changed = changed.map_err(remote::failed)?;
    let quota = quota(options, &changed.quota);
    let TenantChanged {
        tenant,
        weight,
        min,
        quota: of,
        notes,
    } = changed;
    match printer.output {
        Output::Json => {
            let mut set = json!({
                "version": 1, "tenant": tenant.to_string(), "weight": weight.to_string(), "min": min, "notes": notes,
            });
            if let Some(weights) = &options.resource_weights {
                set["resource_weights"] = scheduling::to_json(&weights.0);
            }
            if quota.is_some() {
                set["max"] = json!(of.max);
                set["max_tasks"] = json!(of.max_tasks);
                set["max_waiting"] = json!(of.max_waiting);
                set["max_objects_bytes"] = json!(of.max_objects);
                set["max_detached"] = json!(of.max_detached);
                set["no_preempt"] = json!(of.no_preempt);
            }
            printer.json(&set)?;
        }
        _ => {
            let min = match min.is_empty() {
                true => "no minimum".to_owned(),
                false => format!("minimum {}", rows::amounts(&min)),
            };
            let quota = quota.map_or(String::new(), |quota| format!(", {quota}"));
            printer.result(format_args!(
                "tenant {tenant}: weight {weight}, {min}{quota}"
            ))?;
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

/// The quota in words, if there is one or it was changed.
fn quota(options: &args::TenantSet, quota: &Quota) -> Option<String> {
    let mut parts = Vec::new();
    if !quota.max.is_empty() {
        parts.push(rows::amounts(&quota.max));
    }
    parts.extend(quota.max_tasks.map(|most| format!("{most} sandboxes")));
    let waiting = |most| format!("{most} tasks waiting at a node");
    parts.extend(quota.max_waiting.map(waiting));
    let objects = |most| format!("{} of objects at a node", units::bytes(most));
    parts.extend(quota.max_objects.map(objects));
    let detached = |most| format!("{most} detached tasks at a node");
    parts.extend(quota.max_detached.map(detached));
    let is_named = options.max.is_some()
        || options.max_objects.is_some()
        || options.max_detached.is_some()
        || options.max_tasks.is_some()
        || options.max_waiting.is_some();
    let mut said = Vec::new();
    match parts.is_empty() {
        true => said.extend(is_named.then(|| "no quota".to_owned())),
        false => said.push(format!("quota {}", parts.join(", "))),
    }
    match (quota.no_preempt, options.no_preempt) {
        (true, _) => said.push("may ask for --no-preempt".to_owned()),
        (false, Some(_)) => said.push("may not ask for --no-preempt".to_owned()),
        (false, None) => {}
    }
    (!said.is_empty()).then(|| said.join(", "))
}
