//! One task: all that is known of it.

use maud::{Markup, html};
use wasmrun_client::Described;
use wasmrun_client::wire::{List, TaskDetail, TaskRow, What};
use wasmrun_model::failure::TaskError;
use wasmrun_model::resource::Amount;

use super::{Fragment, actors, job, jobs, parts, units};
use crate::data::{AskError, Source};

/// How many ancestors are shown.
const MOST_PARENTS: usize = 8;

pub async fn render(id: &str, source: &Source) -> Result<Fragment, AskError> {
    let detail = match source.describe(What::Tasks, id).await? {
        Described::Task(detail) => *detail,
        // Its creation is the same thing.
        Described::Actor(detail) => return actors::shown(&detail, source).await,
        Described::Job(_) | Described::Object(_) => return Err(AskError::Missing("task")),
    };
    let parents = parents(&detail.row, source).await?;
    let output = match detail.row.is_detached {
        true => source.logs(&detail.row.tenant, id).await,
        false => Ok(String::new()),
    };
    let row = &detail.row;
    let is_over = matches!(&*row.state, "finished" | "failed" | "cancelled");
    let body = html! {
        nav.parents aria-label="What started it" {
            "job " (parts::job(&row.job))
            @for parent in parents.iter().rev() { " › " (parts::task(&parent.id)) " " (parent.name) }
        }
        (facts(row, &detail))
        @if !is_over { (parts::button(&format!("/tasks/{}/cancel", row.id), "Cancel the task")) }
        (said(&detail))
        section aria-labelledby="h-attempts" { h2 #h-attempts { "Attempts" } (attempts(&detail)) }
        section aria-labelledby="h-children" {
            h2 #h-children { "What it started" }
            p { a href={ "/tasks?parent=" (row.id.to_string()) } { "Tasks that it started" } }
        }
        section aria-labelledby="h-output" { h2 #h-output { "Output" } (job::written(&output)) }
    };
    Ok(Fragment::new(format!("Task {}", row.name), body))
}

/// The task that started it, the one that started that, and so on, as far as they are remembered.
async fn parents(row: &TaskRow, source: &Source) -> Result<Vec<TaskRow>, AskError> {
    let (mut parents, mut next) = (Vec::new(), row.parent);
    while let Some(id) = next
        && parents.len() < MOST_PARENTS
    {
        let parent = List::of(What::Tasks).with("id", id);
        let Some(parent) = source.rows::<TaskRow>(parent).await?.rows.pop() else {
            break;
        };
        next = parent.parent;
        parents.push(parent);
    }
    Ok(parents)
}

fn facts(row: &TaskRow, detail: &TaskDetail) -> Markup {
    let held = row.held.iter();
    let held = held.map(|it| {
        let units = it.units.iter();
        let units = units.map(|(unit, steps)| format!("{unit}: {}", Amount::from_steps(*steps)));
        let units = units.collect::<Vec<_>>().join(", ");
        let amount = units::named(&it.name, Amount::from_steps(it.steps));
        match units.is_empty() {
            true => amount,
            false => format!("{amount} (unit {units})"),
        }
    });
    let held = held.collect::<Vec<_>>().join("; ");
    let inputs = html! {
        @for input in &row.inputs {
            (parts::object(input)) " "
        }
        @if row.inputs.is_empty() { "none" }
        @if row.inputs.len() == TaskRow::MOST_INPUTS { "and maybe more" }
    };
    parts::facts(vec![
        ("state", parts::state(&row.state)),
        ("id", html! { code { (row.id.to_string()) } }),
        ("name", jobs::named(row)),
        ("tenant", parts::text(&row.tenant)),
        ("node", parts::text(&row.node)),
        ("attempt", parts::text(row.attempt)),
        ("detached", parts::yes(row.is_detached)),
        (
            "submitted",
            parts::text(format!("{} ago", units::age(row.age_ms))),
        ),
        (
            "actor",
            html! { @if let Some(actor) = &row.actor { (parts::actor(actor)) } @else { "none" } },
        ),
        (
            "holds or held",
            parts::text(if held.is_empty() {
                "nothing"
            } else {
                held.as_str()
            }),
        ),
        ("reads", inputs),
        (
            "its result",
            match &detail.object {
                Some(object) => parts::object(object),
                None => parts::text("is not kept"),
            },
        ),
    ])
}

/// Where it stands, and how it failed.
fn said(detail: &TaskDetail) -> Markup {
    let error = detail.error.clone().map(TaskError::from);
    html! {
        @if let Some(why) = &detail.explanation {
            section aria-labelledby="h-why" { h2 #h-why { "Where it stands" } p.why { (why) } }
        }
        @if let Some(error) = error {
            section aria-labelledby="h-error" {
                h2 #h-error { "How it failed" }
                pre.notice.bad #error { (error.to_string()) }
                @if !detail.stderr_tail.is_empty() {
                    h3 { "The end of standard error" }
                    (parts::output("stderr", &detail.stderr_tail))
                }
            }
        }
    }
}

fn attempts(detail: &TaskDetail) -> Markup {
    let mut all = detail.retried.clone();
    all.push(detail.row.clone());
    match all.iter().any(|it| it.run.is_some()) {
        true => job::attempted(&all),
        false => parts::empty("No attempt has ended yet, or none ran.", ""),
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::{DriverId, ObjectId};

    use super::*;

    #[test]
    fn everything_is_text() {
        let id = DriverId::from_bytes([1; 16]).task(0);
        let bad = "<script>";
        let mut row = TaskRow::example(id);
        row.name = bad.into();
        row.inputs = vec![ObjectId::of(id, 0)];
        let error = TaskError::Sandbox(bad.into());
        let detail = TaskDetail {
            row: row.clone(),
            retried: vec![row.clone()],
            error: Some((&error).into()),
            stderr_tail: bad.into(),
            object: None,
            explanation: Some(bad.into()),
        };
        let html = html! { (facts(&row, &detail)) (said(&detail)) (attempts(&detail)) };
        let html = html.into_string();
        assert!(!html.contains(bad), "{html}");
        assert_eq!(html.matches("&lt;script&gt;").count(), 4, "{html}");
    }
}
