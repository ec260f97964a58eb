//! The cluster at a glance.

use std::collections::BTreeMap;

use maud::{Markup, html};
use wasmrun_client::wire::{DueRow, JobRow, List, MemberRow, TaskRow, What};
use wasmrun_model::resource::{Amount, ResourceName};

use super::jobs::progress;
use super::parts::{self, Column};
use super::{Fragment, share, units};
use crate::data::{AskError, Source};
use crate::picture::{Part, bar};

/// How many failures are shown.
const FAILURES: u32 = 8;
/// How many jobs are shown that run.
const JOBS: usize = 8;

pub async fn render(source: &Source) -> Result<Fragment, AskError> {
    let members = source.rows::<MemberRow>(List::of(What::Members)).await?;
    let jobs = List::of(What::Jobs).with("state", "running");
    let jobs = source.rows::<JobRow>(jobs).await?;
    let mut failures = List::of(What::Tasks).with("state", "failed");
    failures.limit = FAILURES;
    let failures = source.rows::<TaskRow>(failures).await?;
    let shares = share::fetch(source).await?;
    let body = html! {
        (parts::silent(&jobs.silent))
        div.columns {
            section aria-labelledby="h-nodes" { h2 #h-nodes { "Nodes" } (nodes(&members.rows)) }
            section aria-labelledby="h-work" { h2 #h-work { "Work" } (work(&jobs.rows)) (share::rates(source)) }
        }
        section aria-labelledby="h-jobs" { h2 #h-jobs { "Jobs that run" } (running(&jobs.rows)) }
        section aria-labelledby="h-failures" { h2 #h-failures { "The last failures" } (failed(&failures.rows)) }
        section aria-labelledby="h-shares" { h2 #h-shares { "Tenants" } (tenants(&shares.shares.rows)) }
    };
    Ok(Fragment::new("The cluster at a glance", body))
}

/// How many nodes are in which state, and what they have together.
fn nodes(members: &[MemberRow]) -> Markup {
    let mut states = BTreeMap::<&str, usize>::new();
    let mut amounts = BTreeMap::<&ResourceName, (Amount, Amount)>::new();
    for member in members {
        *states.entry(&member.state).or_default() += 1;
        if member.state == "dead" {
            continue;
        }
        for (name, total) in &member.total {
            let free = member.available.get(name).copied().unwrap_or_default();
            let (all, available) = amounts.entry(name).or_default();
            *all = all.checked_add(*total).unwrap_or(Amount::MAX);
            *available = available.checked_add(free).unwrap_or(Amount::MAX);
        }
    }
    html! {
        p {
            a href="/nodes" {
                @for (state, count) in &states { (count) " " (parts::state(state)) " " }
            }
        }
        dl.bars {
            @for (name, (total, free)) in amounts { (used(name, total, free)) }
        }
    }
}

/// How much of a resource is held.
pub fn used(name: &ResourceName, total: Amount, free: Amount) -> Markup {
    let held = Amount::from_steps(total.steps().saturating_sub(free.steps()));
    let label = format!(
        "{} of {} held",
        units::shown(name, held),
        units::shown(name, total)
    );
    let part = Part {
        class: "run",
        label: label.clone(),
        value: held.steps(),
    };
    html! {
        div {
            dt { (name.as_str()) }
            dd { (bar(&[part], total.steps())) span.small { (label) } }
        }
    }
}

fn work(jobs: &[JobRow]) -> Markup {
    let sum = |count: fn(&JobRow) -> u64| jobs.iter().map(count).sum::<u64>();
    html! {
        ul.figures {
            li { strong { (jobs.len()) } " " a href="/jobs?state=running" { "jobs that run" } }
            li { strong { (sum(|it| it.tasks.running)) } " " a href="/tasks?state=running" { "tasks that run" } }
            li { strong { (sum(|it| it.tasks.waiting)) } " " a href="/queue" { "tasks that wait" } }
        }
    }
}

fn running(jobs: &[JobRow]) -> Markup {
    if jobs.is_empty() {
        return parts::empty(
            "Nothing runs. This submits a function of a module:",
            "wasmrun submit --detach module.wasm -i 'function()'",
        );
    }
    let columns: &[Column<JobRow>] = &[
        ("job", |job| parts::job(&job.id)),
        ("name", |job| parts::text(&job.name)),
        ("tenant", |job| parts::text(&job.tenant)),
        ("tasks", |job| progress(&job.tasks)),
        ("age", |job| parts::text(units::age(job.age_ms))),
    ];
    let shown = &jobs[..jobs.len().min(JOBS)];
    html! {
        (parts::table("Jobs that run, the youngest first", shown, |job| job.id, columns))
        @if jobs.len() > JOBS { p { a href="/jobs?state=running" { "All " (jobs.len()) } } }
    }
}

fn failed(failures: &[TaskRow]) -> Markup {
    if failures.is_empty() {
        return parts::empty("Nothing has failed that is remembered.", "");
    }
    let columns: &[Column<TaskRow>] = &[
        ("task", |task| parts::task(&task.id)),
        ("name", |task| parts::text(&task.name)),
        ("job", |task| parts::job(&task.job)),
        ("node", |task| parts::text(&task.node)),
        ("age", |task| parts::text(units::age(task.age_ms))),
        ("error", |task| {
            parts::text(task.error.as_deref().unwrap_or("its error is not known"))
        }),
    ];
    let caption = "Tasks that have failed, the youngest first";
    parts::table(caption, failures, |task| task.id, columns)
}

fn tenants(shares: &[DueRow]) -> Markup {
    if shares.is_empty() {
        return parts::empty("No tenant has submitted anything yet.", "");
    }
    html! {
        dl.bars {
            @for (at, row) in shares.iter().enumerate() {
                div {
                    dt { a href="/tenants" { (row.name.as_str()) } }
                    dd {
                        (bar(&[share_of(row, at)], 1000))
                        span.small { (row.share) " of what it uses most, weight " (row.weight.to_string()) }
                    }
                }
            }
        }
    }
}

fn share_of(row: &DueRow, at: usize) -> Part {
    Part {
        class: share::paint(at),
        label: format!("{} has {}", row.name, row.share),
        value: (share::number(&row.share).clamp(0.0, 1.0) * 1000.0) as u64,
    }
}
