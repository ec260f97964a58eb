//! Who has which share of the cluster, and what each is due.

use std::collections::BTreeMap;

use maud::html;
use wasmrun_client::wire::{ShareRow, TenantRow};
use wasmrun_model::fairness::TenantName;

use super::parts::{self, Row};
use super::{Fragment, share, units};
use crate::data::{AskError, Source};

pub async fn render(source: &Source) -> Result<Fragment, AskError> {
    let seen = share::see(source).await?;
    let mut done = BTreeMap::<&TenantName, [u64; 4]>::new();
    for row in &seen.tenants.rows {
        let counts = done.entry(&row.name).or_default();
        for (count, more) in counts.iter_mut().zip(counts_of(row)) {
            *count = count.saturating_add(more);
        }
    }
    let rows: Vec<Row> = seen
        .shares
        .rows
        .iter()
        .map(|row| cells(row, done.get(&row.name).copied().unwrap_or_default()))
        .collect();
    let header = [
        "tenant",
        "weight",
        "guaranteed",
        "share",
        "holds",
        "submitted",
        "finished",
        "failed",
        "cancelled",
    ];
    let body = html! {
        (parts::silent(&seen.tenants.silent))
        @if rows.is_empty() {
            (parts::empty(
                "No tenant has submitted anything yet. Work that names none is the tenant's `default`; others are named so:",
                "wasmrun submit --tenant red module.wasm",
            ))
        } @else {
            (share::shares(source))
            (parts::table("Tenants", &header, &rows))
        }
        p { "Weights and guarantees are set with " code { "wasmrun tenant set NAME --weight 2" } "." }
    };
    Ok(Fragment::new("Tenants", body))
}

fn counts_of(row: &TenantRow) -> [u64; 4] {
    [row.submitted, row.finished, row.failed, row.cancelled]
}

fn cells(row: &ShareRow, done: [u64; 4]) -> Row {
    let jobs = format!("/jobs?tenant={}", row.name);
    let mut cells = vec![
        html! { a href=(jobs) { (row.name.as_str()) } },
        parts::text(row.weight),
        parts::text(units::amounts(&row.min)),
        parts::text(&row.share),
        parts::text(units::amounts(&row.used)),
    ];
    cells.extend(done.map(parts::text));
    Row::new(&row.name, cells)
}
