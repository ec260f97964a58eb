//! Actors, and one of them.

use maud::{Markup, html};
use wasmrun_client::Described;
use wasmrun_client::wire::{ActorDetail, ActorRow, List, TaskRow, What};
use wasmrun_model::units::bytes;

use super::parts::{self, Column};
use super::{Fragment, job, jobs, units};
use crate::data::{AskError, Source};

/// How many calls are shown.
const CALLS: u32 = 50;

pub async fn list(source: &Source) -> Result<Fragment, AskError> {
    let page = source.rows::<ActorRow>(List::of(What::Actors)).await?;
    let body = html! {
        (parts::silent(&page.silent))
        @if page.rows.is_empty() {
            (parts::empty("There are no actors. This creates one:", "wasmrun actor create module.wasm class --name one"))
        } @else {
            (listed(&page.rows))
        }
    };
    Ok(Fragment::new("Actors", body))
}

fn listed(actors: &[ActorRow]) -> Markup {
    let columns: &[Column<ActorRow>] = &[
        ("actor", |actor| parts::actor(&actor.id)),
        ("name", |actor| parts::or_dash(actor.name.as_deref())),
        ("class", |actor| parts::text(&actor.class)),
        ("state", |actor| parts::state(&actor.state)),
        ("tenant", |actor| parts::text(&actor.tenant)),
        ("node", |actor| parts::text(&actor.node)),
        ("generation", |actor| parts::text(actor.generation)),
        ("calls", |actor| parts::text(actor.calls)),
        ("kept state", |actor| {
            parts::or_dash(actor.state_bytes.map(bytes))
        }),
        ("last failure", |actor| {
            parts::text(actor.failure.as_deref().unwrap_or_default())
        }),
    ];
    parts::table("Actors", actors, |actor| actor.id, columns)
}

pub async fn one(id: &str, source: &Source) -> Result<Fragment, AskError> {
    match source.describe(What::Actors, id).await? {
        Described::Actor(detail) => shown(&detail, source).await,
        Described::Task(_) | Described::Job(_) | Described::Object(_) => {
            Err(AskError::Missing("actor"))
        }
    }
}

/// Everything about an actor.
pub async fn shown(detail: &ActorDetail, source: &Source) -> Result<Fragment, AskError> {
    let row = &detail.row;
    let id = row.id.to_string();
    let mut calls = List::of(What::Tasks).with("actor", &id);
    calls.limit = CALLS;
    let calls = source.rows::<TaskRow>(calls).await?;
    let output = source.logs(&row.tenant, &id).await;
    let name = row.name.as_deref().unwrap_or(&row.class);
    let is_over = matches!(&*row.state, "failed" | "ended");
    let facts = vec![
        ("state", parts::state(&row.state)),
        ("id", html! { code { (id) } }),
        ("name", parts::or_dash(row.name.as_deref())),
        ("class", parts::text(&row.class)),
        ("tenant", parts::text(&row.tenant)),
        ("job", parts::job(&row.job)),
        ("node", parts::text(&row.node)),
        ("generation", parts::text(row.generation)),
        ("calls that have not ended", parts::text(row.calls)),
        (
            "state of its last checkpoint",
            parts::or_dash(row.state_bytes.map(bytes)),
        ),
        (
            "lives on without its session",
            parts::yes(detail.is_detached),
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
        section aria-labelledby="h-output" { h2 #h-output { "Log" } (job::written(&output)) }
    };
    Ok(Fragment::new(format!("Actor {name}"), body))
}
