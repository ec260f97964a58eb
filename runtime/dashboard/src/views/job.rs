//! One job: its progress, its graph, its timeline, and its output.

use maud::{Markup, html};
use wasmrun_client::timeline::{phases, start_us};
use wasmrun_client::wire::{JobDetail, JobRow, List, Run, TaskRow, What};
use wasmrun_client::{Described, Error};
use wasmrun_model::units::bytes;

use super::parts::{self, Column};
use super::{Fragment, graph, jobs, units};
use crate::data::{AskError, Source};
use crate::picture::{self, Lane, Phase, Span};

/// How many bars the timeline has, and rows its table.
const MOST_SPANS: usize = 1000;
/// How many tasks the table has.
const MOST_TASKS: usize = 200;
/// How each of [`timeline::PHASES`](wasmrun_client::timeline::PHASES) is painted, and what people call it.
const PHASES: [(&str, &str); 6] = [
    ("ph-arguments", "arguments"),
    ("ph-sandbox", "sandbox"),
    ("ph-running", "ran"),
    ("ph-blocked", "waited for others, in all"),
    ("ph-paused", "was paused for other tenants, in all"),
    ("ph-result", "kept its result"),
];

pub async fn render(id: &str, source: &Source) -> Result<Fragment, AskError> {
    let Described::Job(detail) = source.describe(What::Jobs, id).await? else {
        return Err(AskError::Missing("job"));
    };
    let JobDetail { row, tasks, silent } = *detail;
    let attempts = List::of(What::Attempts).with("job", row.id);
    let attempts = source.rows::<TaskRow>(attempts).await?.rows;
    let output = source.logs(&row.tenant, &row.id.to_string()).await;
    let body = html! {
        (parts::silent(&silent))
        (head(&row))
        section aria-labelledby="h-graph" { h2 #h-graph { "Graph" } (drawn(&tasks)) }
        section aria-labelledby="h-timeline" { h2 #h-timeline { "Timeline" } (ran(&attempts)) }
        section aria-labelledby="h-tasks" { h2 #h-tasks { "Tasks" } (listed(&row, &tasks)) }
        section aria-labelledby="h-output" { h2 #h-output { "Output" } (written(&output)) }
    };
    Ok(Fragment::new(format!("Job {}", row.name), body))
}

fn head(row: &JobRow) -> Markup {
    html! {
        (parts::facts(vec![
            ("state", parts::state(&row.state)),
            ("id", html! { code { (row.id.to_string()) } }),
            ("tenant", parts::text(&row.tenant)),
            ("by", parts::text(&row.by)),
            ("goes on without its session", parts::yes(row.is_detached)),
            ("submitted", parts::text(format!("{} ago", units::age(row.age_ms)))),
            ("took", jobs::took(row)),
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
            "No attempt that ended is remembered. An attempt is shown when it has ended.",
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
    let run = attempt.run.as_ref().filter(|run| run.ran_us.is_some())?;
    let at = phases(run);
    let parts = PHASES.iter().zip(at.windows(2));
    let parts = parts.map(|(&(class, label), part)| Phase {
        class,
        label,
        us: part[1] - part[0],
    });
    Some(Span {
        lane: Lane {
            node: attempt.node.clone(),
            thread: run.phases.thread,
        },
        label: attempt.name.clone(),
        href: format!("/tasks/{}", attempt.id),
        is_failed: matches!(&*attempt.state, "failed" | "retried"),
        start_us: start_us(run),
        phases: parts.collect(),
    })
}

/// The attempts in words.
pub fn attempted(attempts: &[TaskRow]) -> Markup {
    let with_run = attempts
        .iter()
        .filter_map(|it| Some((it, it.run.as_ref()?)));
    let rows: Vec<(&TaskRow, &Run)> = with_run.take(MOST_SPANS).collect();
    let columns: &[Column<(&TaskRow, &Run)>] = &[
        ("task", |(it, _)| parts::task(&it.id)),
        ("name", |(it, _)| jobs::named(it)),
        ("attempt", |(it, _)| parts::text(it.attempt)),
        ("state", |(it, _)| parts::state(&it.state)),
        ("node", |(it, _)| parts::text(&it.node)),
        ("thread", |(_, run)| {
            parts::or_dash(run.ran_us.map(|_| run.phases.thread))
        }),
        ("waited", |(_, run)| took(run.waited_us)),
        ("arguments", |(_, run)| phase(run, run.phases.arguments_us)),
        ("sandbox", |(_, run)| phase(run, run.phases.sandbox_us)),
        ("ran in all", |(_, run)| {
            parts::or_dash(run.ran_us.map(units::took))
        }),
        ("blocked", |(_, run)| phase(run, run.phases.blocked_us)),
        ("paused", |(_, run)| phase(run, run.phases.paused_us)),
        ("result", |(_, run)| phase(run, run.phases.result_us)),
        ("memory", |(_, run)| {
            parts::text(bytes(run.memory_peak_bytes))
        }),
        ("error", |(it, _)| {
            parts::text(it.error.as_deref().unwrap_or_default())
        }),
    ];
    let id = |(it, _): &(&TaskRow, &Run)| format!("{}-{}", it.id, it.attempt);
    parts::table("Attempts that have ended", &rows, id, columns)
}

fn took(us: u64) -> Markup {
    parts::text(units::took(us))
}

/// How long a phase took, if the attempt ran.
fn phase(run: &Run, us: u32) -> Markup {
    parts::or_dash(run.ran_us.map(|_| units::took(us.into())))
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

/// The output that is kept.
pub fn written(output: &Result<String, AskError>) -> Markup {
    match output {
        Ok(text) if !text.is_empty() => parts::output("output", text),
        Ok(_) | Err(AskError::Request(Error::Refused(_))) => parts::empty(
            "No output is kept. The output of actors, services and detached tasks is kept, and the end of standard error of \
             tasks that failed. This submits a detached task:",
            "wasmrun submit --detach",
        ),
        Err(error) => html! { p.notice.bad { (error.to_string()) } },
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_client::wire::Phases;
    use wasmrun_model::id::DriverId;

    use super::*;

    #[test]
    fn a_bar_is_as_long_as_the_attempt() {
        let attempt = TaskRow {
            run: Some(Run {
                waited_us: 5,
                ran_us: Some(100),
                ended_us: 1000,
                phases: Phases {
                    thread: 3,
                    arguments_us: 10,
                    sandbox_us: 20,
                    blocked_us: 30,
                    paused_us: 10,
                    result_us: 5,
                },
                memory_peak_bytes: 0,
            }),
            ..TaskRow::example(DriverId::from_bytes([1; 16]).task(0))
        };
        let span = span(&attempt).expect("it ran");
        assert_eq!(span.start_us, 900);
        assert_eq!(span.phases.iter().map(|it| it.us).sum::<u64>(), 100);
        assert_eq!(span.lane.thread, 3);
    }
}
