//! One job: how far it is, its graph, when its tasks ran where, and what they wrote.

use maud::{Markup, html};
use wasmrun_client::Described;
use wasmrun_client::wire::{JobDetail, JobRow, List, TaskRow, What};
use wasmrun_model::fairness::TenantName;

use super::parts::{self, Row};
use super::{Fragment, graph, jobs, units};
use crate::data::{AskError, Source};
use crate::picture::{self, Lane, Phase, Span};

/// How much of the output is shown, in bytes.
const MOST_OUTPUT: usize = 64 << 10;
/// How many bars the timeline has, and rows its table.
const MOST_SPANS: usize = 1000;
/// How many tasks the table has.
const MOST_TASKS: usize = 200;

pub async fn render(id: &str, source: &Source) -> Result<Fragment, AskError> {
    let tenant = tenant(id, source).await?;
    let Described::Job(detail) = source.describe(&tenant, id).await? else {
        return Err(AskError::Missing("job"));
    };
    let JobDetail { row, tasks, silent } = *detail;
    let attempts = List::of(What::Attempts).with("job", row.id);
    let attempts = source.rows::<TaskRow>(attempts).await?.rows;
    let output = source.logs(&tenant, &row.id.to_string(), MOST_OUTPUT).await;
    let body = html! {
        (parts::silent(&silent))
        (head(&row))
        section aria-labelledby="h-graph" { h2 #h-graph { "Graph" } (drawn(&tasks)) }
        section aria-labelledby="h-timeline" { h2 #h-timeline { "Timeline" } (ran(&attempts)) }
        section aria-labelledby="h-tasks" { h2 #h-tasks { "Tasks" } (listed(&row, &tasks)) }
        section aria-labelledby="h-output" { h2 #h-output { "Output" } (written(output.as_deref())) }
    };
    Ok(Fragment::new(format!("Job {}", row.name), body))
}

/// Whose job it is.
pub async fn tenant(id: &str, source: &Source) -> Result<TenantName, AskError> {
    let list = List::of(What::Jobs).with("id", id);
    let found = source.rows::<JobRow>(list).await?.rows;
    Ok(found
        .into_iter()
        .next()
        .map(|it| it.tenant)
        .unwrap_or_default())
}

fn head(row: &JobRow) -> Markup {
    html! {
        (parts::facts(vec![
            ("state", parts::state(&row.state)),
            ("id", html! { code { (row.id.to_string()) } }),
            ("tenant", parts::text(&row.tenant)),
            ("by", parts::text(&row.by)),
            ("goes on without its session", parts::text(if row.is_detached { "yes" } else { "no" })),
            ("submitted", parts::text(format!("{} ago", units::age(row.age_ms)))),
            ("took", parts::text(row.took_ms.map_or("-".to_owned(), |ms| units::took(ms.saturating_mul(1000))))),
            ("node", parts::text(&row.node)),
            ("tasks", jobs::progress(&row.tasks)),
        ]))
        @if row.state == "running" {
            (parts::button(&format!("/jobs/{}/cancel", row.id), "Cancel the job"))
        }
    }
}

fn drawn(tasks: &[TaskRow]) -> Markup {
    let (nodes, edges, left_out) = graph::of(tasks);
    if nodes.is_empty() {
        return parts::empty("None of its tasks is remembered.", "");
    }
    html! {
        @if left_out > 0 { p { (left_out) " tasks are left out of the graph." } }
        (picture::graph("Graph of the job's tasks", &nodes, &edges))
    }
}

fn ran(attempts: &[TaskRow]) -> Markup {
    let spans = attempts.iter().filter_map(span).take(MOST_SPANS);
    let spans: Vec<Span> = spans.collect();
    if spans.is_empty() {
        return parts::empty(
            "None of its tasks has ended that is remembered: what ran is shown when it has ended.",
            "",
        );
    }
    html! {
        (picture::timeline("When attempts ran, by node and guest thread", &spans))
        details #attempts {
            summary { "Table of attempts" }
            (attempted(attempts))
        }
    }
}

/// A bar of the timeline, of an attempt that ran.
fn span(attempt: &TaskRow) -> Option<Span> {
    let run = attempt.run.as_ref()?;
    let phases = run.phases;
    let [arguments, sandbox, blocked, result] = [
        phases.arguments_us,
        phases.sandbox_us,
        phases.blocked_us,
        phases.result_us,
    ]
    .map(u64::from);
    // What is said of the parts may be more than the whole, by a little.
    let others = arguments + sandbox + blocked + result;
    let phase = |class, label, us| Phase { class, label, us };
    Some(Span {
        lane: Lane {
            node: attempt.node.clone(),
            thread: phases.thread,
        },
        label: attempt.name.clone(),
        href: format!("/tasks/{}", attempt.id),
        is_failed: matches!(&*attempt.state, "failed" | "retried"),
        start_us: run.ended_us.saturating_sub(run.ran_us),
        phases: vec![
            phase("ph-arguments", "arguments", arguments),
            phase("ph-sandbox", "sandbox", sandbox),
            phase("ph-running", "ran", run.ran_us.saturating_sub(others)),
            phase("ph-blocked", "waited for others, in all", blocked),
            phase("ph-result", "kept its result", result),
        ],
    })
}

/// The attempts in words.
pub fn attempted(attempts: &[TaskRow]) -> Markup {
    let with_run = attempts
        .iter()
        .filter_map(|it| Some((it, it.run.as_ref()?)));
    let rows = with_run.take(MOST_SPANS).map(|(attempt, run)| {
        let cells = vec![
            parts::task(&attempt.id),
            jobs::named(attempt),
            parts::text(attempt.attempt),
            parts::state(&attempt.state),
            parts::text(&attempt.node),
            parts::text(run.phases.thread),
            parts::text(units::took(run.waited_us)),
            parts::text(units::took(run.phases.arguments_us.into())),
            parts::text(units::took(run.phases.sandbox_us.into())),
            parts::text(units::took(run.ran_us)),
            parts::text(units::took(run.phases.blocked_us.into())),
            parts::text(units::took(run.phases.result_us.into())),
            parts::text(wasmrun_model::units::bytes(run.memory_peak_bytes)),
            parts::text(attempt.error.as_deref().unwrap_or_default()),
        ];
        Row::new(format!("{}-{}", attempt.id, attempt.attempt), cells)
    });
    let header = [
        "task",
        "name",
        "attempt",
        "state",
        "node",
        "thread",
        "waited",
        "arguments",
        "sandbox",
        "ran in all",
        "blocked",
        "result",
        "memory",
        "error",
    ];
    parts::table(
        "Attempts that have ended",
        &header,
        &rows.collect::<Vec<_>>(),
    )
}

fn listed(row: &JobRow, tasks: &[TaskRow]) -> Markup {
    let shown = &tasks[..tasks.len().min(MOST_TASKS)];
    html! {
        (jobs::table("Tasks of the job, the youngest first", shown))
        @if shown.len() < tasks.len() {
            p { a href={ "/tasks?job=" (row.id.to_string()) } { "All tasks of the job" } }
        }
    }
}

/// What is kept of the output.
pub fn written(output: Option<&str>) -> Markup {
    match output {
        Some(text) if !text.is_empty() => parts::output("output", text),
        _ => parts::empty(
            "No output is kept. That of detached tasks and of actors is, and of tasks that failed the end of standard error. \
             Detached is what was submitted with",
            "wasmrun submit --detach",
        ),
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_client::wire::{Phases, Run};
    use wasmrun_model::id::DriverId;

    use super::super::parts::tests_rows::task;
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_the_attempt() {
        let attempt = TaskRow {
            run: Some(Run {
                waited_us: 5,
                ran_us: 100,
                ended_us: 1000,
                phases: Phases {
                    thread: 3,
                    arguments_us: 10,
                    sandbox_us: 20,
                    blocked_us: 30,
                    result_us: 5,
                },
                memory_peak_bytes: 0,
            }),
            ..task(DriverId::from_bytes([1; 16]).task(0))
        };
        let span = span(&attempt).expect("it ran");
        assert_eq!(span.start_us, 900);
        assert_eq!(span.phases.iter().map(|it| it.us).sum::<u64>(), 100);
        assert_eq!(span.lane.thread, 3);
    }
}
