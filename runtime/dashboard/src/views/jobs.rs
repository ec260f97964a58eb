//! Lists of jobs and of tasks, by page.

use maud::{Markup, html};
use wasmrun_client::wire::{JobRow, JobTasks, TaskRow, What};

use super::view::Filter;
use super::{Fragment, parts, units};
use crate::data::{AskError, Page, Source};
use crate::picture::{Part, bar};

/// The states that jobs are filtered by.
const OF_JOBS: [&str; 4] = ["running", "finished", "failed", "cancelled"];
/// Those that tasks are filtered by.
const OF_TASKS: [&str; 9] = [
    "running",
    "blocked",
    "ready",
    "waiting",
    "waiting-for-actor",
    "infeasible",
    "finished",
    "failed",
    "cancelled",
];

pub async fn jobs(filter: &Filter, source: &Source) -> Result<Fragment, AskError> {
    let page = source.rows::<JobRow>(filter.list(What::Jobs)).await?;
    let body = html! {
        (form("/jobs", filter, &OF_JOBS))
        (parts::silent(&page.silent))
        @if page.rows.is_empty() {
            (parts::empty("There are no such jobs. This submits one:", "wasmrun submit --detach module.wasm -i 'function()'"))
        } @else {
            (parts::table("Jobs, the youngest first", &page.rows, |job| job.id, &[
                ("job", |job| parts::job(&job.id)),
                ("name", |job| parts::text(&job.name)),
                ("state", |job| parts::state(&job.state)),
                ("tenant", |job| parts::text(&job.tenant)),
                ("by", |job| parts::text(&job.by)),
                ("tasks", |job| progress(&job.tasks)),
                ("age", |job| parts::text(units::age(job.age_ms))),
                ("took", took),
                ("node", |job| parts::text(&job.node)),
            ]))
        }
        (pages("/jobs", filter, &page))
    };
    Ok(Fragment::new("Jobs", body))
}

pub async fn tasks(filter: &Filter, source: &Source) -> Result<Fragment, AskError> {
    let page = source.rows::<TaskRow>(filter.list(What::Tasks)).await?;
    let body = html! {
        (form("/tasks", filter, &OF_TASKS))
        (parts::silent(&page.silent))
        @if page.rows.is_empty() {
            (parts::empty("There are no such tasks. This submits one:", "wasmrun submit --detach module.wasm -i 'function()'"))
        } @else {
            (table("Tasks, the youngest first", &page.rows))
        }
        (pages("/tasks", filter, &page))
    };
    Ok(Fragment::new("Tasks", body))
}

/// A table of tasks.
pub fn table(caption: &str, tasks: &[TaskRow]) -> Markup {
    let columns: &[parts::Column<TaskRow>] = &[
        ("task", |task| parts::task(&task.id)),
        ("name", named),
        ("state", |task| parts::state(&task.state)),
        ("tenant", |task| parts::text(&task.tenant)),
        ("job", |task| parts::job(&task.job)),
        ("node", |task| parts::text(&task.node)),
        ("age", |task| parts::text(units::age(task.age_ms))),
        ("ran", |task| {
            let ran_us = task.run.as_ref().and_then(|run| run.ran_us);
            parts::or_dash(ran_us.map(units::took))
        }),
        ("error", |task| {
            parts::text(task.error.as_deref().unwrap_or_default())
        }),
    ];
    parts::table(caption, tasks, |task| task.id, columns)
}

/// How long a job took.
pub fn took(job: &JobRow) -> Markup {
    let took_us = job.took_ms.map(|ms| ms.saturating_mul(1000));
    parts::or_dash(took_us.map(units::took))
}

/// A task's name, with its index if it is one of an array.
pub fn named(task: &TaskRow) -> Markup {
    html! { (task.name) @if let Some(index) = task.array_index { " [" (index) "]" } }
}

/// How far a job is.
pub fn progress(tasks: &JobTasks) -> Markup {
    let JobTasks {
        expected,
        waiting,
        running,
        finished,
        failed,
        cancelled,
    } = *tasks;
    let part = |class, value, word| Part {
        class,
        label: format!("{value} {word}"),
        value,
    };
    let all = [
        part("good", finished, "finished"),
        part("bad", failed, "failed"),
        part("off", cancelled, "cancelled"),
        part("run", running, "running"),
        part("wait", waiting, "waiting"),
    ];
    let said = all
        .iter()
        .filter(|it| it.value > 0)
        .map(|it| it.label.as_str());
    let said = said.collect::<Vec<_>>().join(", ");
    // Tasks that others start are not among those that are expected.
    let is_known = expected > 0 && finished + failed + cancelled + running + waiting <= expected;
    html! {
        (bar(&all, expected))
        span.small {
            (if said.is_empty() { "none yet" } else { said.as_str() })
            @if is_known { ", of " (expected) }
        }
    }
}

/// What chooses rows, as a form that needs no script.
fn form(path: &str, filter: &Filter, states: &[&str]) -> Markup {
    html! {
        form.filter method="get" action=(path) role="search" {
            label { "State "
                select name="state" {
                    option value="" { "any" }
                    @for state in states {
                        option value=(state) selected[filter.value("state") == *state] { (state) }
                    }
                }
            }
            label { "Tenant " input type="text" name="tenant" value=(filter.value("tenant")) autocomplete="off"; }
            label { "Name " input type="text" name="name" value=(filter.value("name")) autocomplete="off"; }
            button type="submit" { "Show" }
            @if *filter != Filter::default() { " " a href=(path) { "Show all" } }
        }
    }
}

fn pages<T>(path: &str, filter: &Filter, page: &Page<T>) -> Markup {
    html! {
        nav.pages aria-label="Pages" {
            @if filter.after.is_some() {
                @let first = Filter { fields: filter.fields.clone(), after: None };
                a href={ (path) (first.query()) } { "To the first page" }
            }
            @if let Some(next) = &page.next {
                " " a href={ (path) (filter.after(next).query()) } rel="next" { "To the next page" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_words_too() {
        let tasks = JobTasks {
            expected: 10,
            running: 2,
            finished: 3,
            failed: 1,
            ..JobTasks::default()
        };
        let html = progress(&tasks).into_string();
        assert!(
            html.contains("3 finished, 1 failed, 2 running, of 10"),
            "{html}"
        );
        // Its tasks have started others.
        let nested = JobTasks {
            expected: 1,
            finished: 5,
            ..JobTasks::default()
        };
        assert!(!progress(&nested).into_string().contains(", of 1"));
        assert!(
            progress(&JobTasks::default())
                .into_string()
                .contains("none yet")
        );
    }

    #[test]
    fn a_filter_is_kept_in_the_form_and_is_text() {
        let filter = Filter {
            fields: vec![
                ("state".into(), "failed".into()),
                ("name".into(), "\"><script>".into()),
            ],
            after: None,
        };
        let html = form("/jobs", &filter, &OF_JOBS).into_string();
        assert!(
            html.contains(r#"<option value="failed" selected>"#),
            "{html}"
        );
        assert!(!html.contains("<script"), "{html}");
    }
}
