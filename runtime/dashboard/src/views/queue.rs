//! Tasks that wait, grouped by their reason.

use std::collections::{BTreeMap, VecDeque};

use maud::{Markup, html};
use wasmrun_client::wire::{List, TaskRow, What};
use wasmrun_model::fairness::TenantName;

use super::parts::{self, Column};
use super::{Fragment, jobs, units};
use crate::data::{AskError, Source};

/// The states of tasks that wait.
const STATES: [&str; 4] = ["ready", "waiting", "waiting-for-actor", "infeasible"];
/// How many tasks are listed in each state: the youngest.
const MOST: u32 = 500;
/// How many of them are explained: the oldest, of all tenants in turn.
const EXPLAINED: usize = 40;

pub async fn render(source: &Source) -> Result<Fragment, AskError> {
    let (mut tasks, mut silent, mut is_more) = (Vec::new(), Vec::new(), false);
    for state in STATES {
        let mut list = List::of(What::Tasks).with("state", state);
        list.limit = MOST;
        let page = source.rows::<TaskRow>(list).await?;
        tasks.extend(page.rows);
        is_more |= page.next.is_some();
        for it in page.silent {
            if !silent.contains(&it) {
                silent.push(it);
            }
        }
    }
    let chosen = in_turn(&tasks);
    let mut reasons = BTreeMap::<String, (String, Vec<&TaskRow>)>::new();
    for task in &chosen {
        // It may have begun meanwhile.
        let why = source.explain(&task.tenant, &task.id.to_string()).await;
        let why = why.unwrap_or_else(|error| error.to_string());
        let (_, alike) = reasons
            .entry(gist(&why))
            .or_insert_with(|| (why, Vec::new()));
        alike.push(task);
    }
    let mut reasons: Vec<(String, Vec<&TaskRow>)> = reasons.into_values().collect();
    reasons.sort_by_key(|(_, tasks)| std::cmp::Reverse(tasks.len()));
    let body = html! {
        (parts::silent(&silent))
        @if tasks.is_empty() {
            (parts::empty(
                "Nothing waits: every task that was submitted has begun. A task waits where it asks for more than is free, as in",
                "wasmrun submit --detach --cpus 1000 module.wasm -i 'function()'",
            ))
        } @else {
            p {
                (tasks.len()) " tasks wait" @if is_more { ", and older ones" } ". "
                (chosen.len()) " of them, the oldest of each tenant, are explained."
            }
        }
        @for (at, (why, tasks)) in reasons.iter().enumerate() { (reason(at, why, tasks)) }
    };
    Ok(Fragment::new("What waits", body))
}

/// The oldest tasks, of all tenants in turn.
fn in_turn(tasks: &[TaskRow]) -> Vec<&TaskRow> {
    let mut tenants = BTreeMap::<&TenantName, Vec<&TaskRow>>::new();
    for task in tasks {
        tenants.entry(&task.tenant).or_default().push(task);
    }
    let mut turns: VecDeque<Vec<&TaskRow>> = tenants.into_values().collect();
    for tasks in &mut turns {
        // The oldest is taken from the end.
        tasks.sort_by_key(|it| (it.age_ms, it.id));
    }
    let mut chosen = Vec::new();
    while let Some(mut tasks) = turns.pop_front() {
        if chosen.len() == EXPLAINED {
            break;
        }
        if let Some(task) = tasks.pop() {
            chosen.push(task);
            turns.push_back(tasks);
        }
    }
    chosen
}

/// A reason without its ids, times and numbers: reasons that differ in those alone are one.
fn gist(why: &str) -> String {
    let words = why.split_whitespace();
    let words = words.map(|word| match word.chars().any(|it| it.is_ascii_digit()) {
        true => "#",
        false => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn reason(at: usize, why: &str, tasks: &[&TaskRow]) -> Markup {
    let columns: &[Column<&TaskRow>] = &[
        ("task", |task| parts::task(&task.id)),
        ("name", |task| jobs::named(task)),
        ("state", |task| parts::state(&task.state)),
        ("tenant", |task| parts::text(&task.tenant)),
        ("job", |task| parts::job(&task.job)),
        ("node", |task| parts::text(&task.node)),
        ("age", |task| parts::text(units::age(task.age_ms))),
    ];
    html! {
        section {
            h2 id={ "reason-" (at) } { (tasks.len()) @if tasks.len() == 1 { " task" } @else { " tasks" } }
            p.why { (why) }
            (parts::table("Tasks that wait for this", tasks, |task| task.id, columns))
        }
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::DriverId;

    use super::*;

    #[test]
    fn tenants_take_turns_and_the_oldest_is_first() {
        let row = |at: u64, tenant: &str| TaskRow {
            tenant: tenant.parse().expect("it is a name"),
            age_ms: at,
            ..TaskRow::example(DriverId::from_bytes([1; 16]).task(at))
        };
        let mut tasks: Vec<TaskRow> = (0..100).map(|at| row(at, "many")).collect();
        tasks.push(row(1, "one"));
        let chosen = in_turn(&tasks);
        assert_eq!(chosen.len(), EXPLAINED);
        assert_eq!(chosen[0].age_ms, 99);
        assert!(chosen[..2].iter().any(|it| it.tenant.as_str() == "one"));
    }

    #[test]
    fn reasons_are_the_same_but_for_numbers() {
        assert_eq!(
            gist("task 00ff1 waits for 2 CPU"),
            gist("task 00aa2 waits for 8 CPU")
        );
        assert_ne!(gist("waits for CPU"), gist("waits for GPU"));
    }
}
