//! Actors, and one of them.

use maud::html;
use wasmrun_client::Described;
use wasmrun_client::wire::{ActorDetail, ActorRow, List, TaskRow, What};
use wasmrun_model::fairness::TenantName;

use super::parts::{self, Row};
use super::{Fragment, job, jobs, units};
use crate::data::{AskError, Source};

/// How many calls are shown.
const CALLS: u32 = 50;
/// How much of the log is shown, in bytes.
const MOST_OUTPUT: usize = 64 << 10;

pub async fn list(source: &Source) -> Result<Fragment, AskError> {
    let page = source.rows::<ActorRow>(List::of(What::Actors)).await?;
    let rows = page.rows.iter().map(|actor| {
        let cells = vec![
            parts::actor(&actor.id),
            parts::text(actor.name.as_deref().unwrap_or("-")),
            parts::text(&actor.class),
            parts::state(&actor.state),
            parts::text(&actor.tenant),
            parts::text(&actor.node),
            parts::text(actor.generation),
            parts::text(actor.calls),
            parts::text(size(actor.state_bytes)),
            parts::text(actor.failure.as_deref().unwrap_or_default()),
        ];
        Row::new(actor.id, cells)
    });
    let rows: Vec<Row> = rows.collect();
    let header = [
        "actor",
        "name",
        "class",
        "state",
        "tenant",
        "node",
        "generation",
        "calls",
        "kept state",
        "last failure",
    ];
    let body = html! {
        (parts::silent(&page.silent))
        @if rows.is_empty() {
            (parts::empty("There are no actors. This creates one:", "wasmrun actor create module.wasm class --name one"))
        } @else {
            (parts::table("Actors", &header, &rows))
        }
    };
    Ok(Fragment::new("Actors", body))
}

pub async fn one(id: &str, source: &Source) -> Result<Fragment, AskError> {
    let tenant = tenant(id, source).await?;
    match source.describe(&tenant, id).await? {
        Described::Actor(detail) => shown(&detail, source).await,
        Described::Task(_) | Described::Job(_) => Err(AskError::Missing("actor")),
    }
}

/// Whose actor it is.
pub async fn tenant(id: &str, source: &Source) -> Result<TenantName, AskError> {
    let list = List::of(What::Actors).with("id", id);
    let found = source.rows::<ActorRow>(list).await?.rows;
    Ok(found
        .into_iter()
        .next()
        .map(|it| it.tenant)
        .unwrap_or_default())
}

/// Everything about an actor.
pub async fn shown(detail: &ActorDetail, source: &Source) -> Result<Fragment, AskError> {
    let row = &detail.row;
    let id = row.id.to_string();
    let mut calls = List::of(What::Tasks).with("actor", &id);
    calls.limit = CALLS;
    let calls = source.rows::<TaskRow>(calls).await?;
    let output = source.logs(&row.tenant, &id, MOST_OUTPUT).await;
    let name = row.name.as_deref().unwrap_or(&row.class);
    let is_over = matches!(&*row.state, "failed" | "ended");
    let facts = vec![
        ("state", parts::state(&row.state)),
        ("id", html! { code { (id) } }),
        ("name", parts::text(row.name.as_deref().unwrap_or("-"))),
        ("class", parts::text(&row.class)),
        ("tenant", parts::text(&row.tenant)),
        ("job", parts::job(&row.job)),
        ("node", parts::text(&row.node)),
        ("generation", parts::text(row.generation)),
        ("calls that have not ended", parts::text(row.calls)),
        (
            "state of its last checkpoint",
            parts::text(size(row.state_bytes)),
        ),
        (
            "lives on without its session",
            parts::text(if detail.is_detached { "yes" } else { "no" }),
        ),
        (
            "created",
            parts::text(format!("{} ago", units::age(detail.age_ms))),
        ),
    ];
    let body = html! {
        (parts::facts(facts))
        @if !is_over { (parts::button(&format!("/actors/{id}/kill"), "Kill the actor")) }
        @if let Some(failure) = &row.failure {
            section aria-labelledby="h-failure" {
                h2 #h-failure { "Its last failure" }
                p.notice.bad { (failure) }
            }
        }
        @if let Some(why) = &detail.explanation {
            section aria-labelledby="h-why" { h2 #h-why { "Where it stands" } p.why { (why) } }
        }
        section aria-labelledby="h-calls" {
            h2 #h-calls { "Calls" }
            @if calls.rows.is_empty() {
                (parts::empty("No call of it is remembered. This makes one:", "wasmrun actor call NAME 'method()'"))
            } @else {
                (jobs::table("Its creation and calls, the youngest first", &calls.rows))
            }
        }
        section aria-labelledby="h-output" { h2 #h-output { "Log" } (job::written(output.as_deref())) }
    };
    Ok(Fragment::new(format!("Actor {name}"), body))
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or("-".to_owned(), wasmrun_model::units::bytes)
}
