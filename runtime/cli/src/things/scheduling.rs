//! `scheduling`: how the cluster schedules, as far as operators choose.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use wasmrun_client::wire::{Scheduling, Weights};
use wasmrun_model::fairness::TenantName;
use wasmrun_model::units;

use crate::args::{Global, Output, SchedulingCommand, SettingArg};
use crate::fail::{CommandResult, Failure};
use crate::printer::{Column, Printer, table};
use crate::remote;

/// `scheduling`.
pub fn scheduling(
    command: Option<&SchedulingCommand>,
    global: &Global,
    printer: &Printer,
) -> CommandResult {
    let choices = match command {
        Some(SchedulingCommand::Set { settings }) => {
            check_once(settings)?;
            settings.iter().map(|it| it.setting).collect()
        }
        None => Vec::new(),
    };
    let client = remote::connect(global, &TenantName::default())?;
    let scheduling = client.wait(client.scheduling(choices));
    let Scheduling {
        settings,
        resource_weights,
        notes,
    } = scheduling.map_err(remote::failed)?;
    let patience_ms = units::ms(settings.patience);
    match printer.output {
        Output::Json => {
            let tenants = resource_weights.iter();
            let tenants = tenants.map(|(tenant, of)| (tenant.to_string(), to_json(of)));
            printer.json(&json!({
                "version": 1,
                "policy": settings.policy.to_string(),
                "spread_threshold": settings.spread_threshold.to_string(),
                "top_share": settings.top_share.to_string(),
                "top_nodes": settings.top_nodes,
                "local_queue": settings.local_queue,
                "patience_ms": patience_ms,
                "preemption": settings.preemption,
                "resource_weights": tenants.collect::<Json>(),
                "notes": notes,
            }))?;
        }
        _ => {
            let rows = [
                ("policy", settings.policy.to_string()),
                ("spread-threshold", settings.spread_threshold.to_string()),
                ("top-share", settings.top_share.to_string()),
                ("top-nodes", settings.top_nodes.to_string()),
                ("local-queue", settings.local_queue.to_string()),
                ("patience", units::milliseconds(patience_ms)),
                (
                    "preemption",
                    if settings.preemption { "on" } else { "off" }.to_owned(),
                ),
            ];
            let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
            let mut text = table(&[Column::text("name"), Column::text("value")], &rows);
            for (tenant, of) in &resource_weights {
                text += &format!("\n{}", shown(tenant, of));
            }
            printer.result(text)?;
        }
    }
    for note in notes {
        printer.warn(note);
    }
    Ok(())
}

/// Refuses two values of one setting: one of them would not count.
fn check_once(settings: &[SettingArg]) -> CommandResult {
    let mut names = BTreeSet::new();
    match settings.iter().find(|it| !names.insert(&it.name)) {
        None => Ok(()),
        Some(twice) => Err(Failure::usage(format!(
            "{} is given twice: give one value of it",
            twice.name
        ))),
    }
}

/// Weights of single resources, for programs.
pub fn to_json(weights: &Weights) -> Json {
    let each = weights.iter();
    each.map(|(name, weight)| (name.to_string(), json!(weight.to_string())))
        .collect()
}

/// The weights of single resources of a tenant, for people.
pub fn shown(tenant: &TenantName, weights: &Weights) -> String {
    let each = weights
        .iter()
        .map(|(name, weight)| format!("{name} {weight}"));
    let each: Vec<String> = each.collect();
    match each.is_empty() {
        true => format!("tenant {tenant}: no weights of single resources"),
        false => format!("tenant {tenant}: weights of {}", each.join(", ")),
    }
}
