//! The tenants: their shares of the cluster, and what each is due.

use std::collections::BTreeMap;

use maud::{Markup, html};
use wasmrun_client::wire::{DueRow, TenantRow};
use wasmrun_model::fairness::TenantName;

use super::parts::{self, Column};
use super::{Fragment, share, units};
use crate::data::{AskError, Source};

/// What a tenant is due and has, and how many of its tasks were submitted, finished, failed and were cancelled.
type Tenant<'a> = (&'a DueRow, [u64; 4]);

pub async fn render(source: &Source) -> Result<Fragment, AskError> {
    let seen = share::fetch(source).await?;
    let mut done = BTreeMap::<&TenantName, [u64; 4]>::new();
    for row in &seen.tenants.rows {
        let counts = done.entry(&row.name).or_default();
        for (count, more) in counts.iter_mut().zip(counts_of(row)) {
            *count = count.saturating_add(more);
        }
    }
    let shares = seen.shares.rows.iter();
    let rows = shares.map(|row| (row, done.get(&row.name).copied().unwrap_or_default()));
    let rows: Vec<Tenant<'_>> = rows.collect();
    let body = html! {
        (parts::silent(&seen.tenants.silent))
        @if rows.is_empty() {
            (parts::empty(
                "No tenant has submitted anything yet. Work that names none is the tenant's `default`; others are named so:",
                "wasmrun submit --tenant red module.wasm",
            ))
        } @else {
            (share::shares(source))
            (listed(&rows))
        }
        p { "Weights and guarantees are set with " code { "wasmrun tenant set NAME --weight 2" } "." }
    };
    Ok(Fragment::new("Tenants", body))
}

fn counts_of(row: &TenantRow) -> [u64; 4] {
    [row.submitted, row.finished, row.failed, row.cancelled]
}

fn listed(tenants: &[Tenant<'_>]) -> Markup {
    let columns: &[Column<Tenant<'_>>] = &[
        ("tenant", |(row, _)| {
            html! { a href={ "/jobs?tenant=" (row.name.as_str()) } { (row.name.as_str()) } }
        }),
        ("weight", |(row, _)| parts::text(row.weight)),
        ("guaranteed", |(row, _)| {
            parts::text(units::amounts(&row.min))
        }),
        ("share", |(row, _)| parts::text(&row.share)),
        ("holds", |(row, _)| parts::text(units::amounts(&row.used))),
        ("submitted", |(_, done)| parts::text(done[0])),
        ("finished", |(_, done)| parts::text(done[1])),
        ("failed", |(_, done)| parts::text(done[2])),
        ("cancelled", |(_, done)| parts::text(done[3])),
    ];
    parts::table("Tenants", tenants, |(row, _)| row.name.clone(), columns)
}
