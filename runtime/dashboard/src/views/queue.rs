//! What waits, and why: tasks that wait for the same together.

use std::collections::{BTreeMap, VecDeque};

use maud::{Markup, html};
use wasmrun_client::wire::{List, TaskRow, What};
use wasmrun_model::fairness::TenantName;

use super::parts::{self, Row};
use super::{Fragment, jobs, units};
use crate::data::{AskError, Source};

/// The states of tasks that wait.
const STATES: [&str; 4] = ["ready", "waiting", "waiting-for-actor", "infeasible"];
/// How many tasks are asked for in each state.
const MOST: u32 = 500;
/// How many of them are explained: the oldest, of all tenants in turn.
const EXPLAINED: usize = 40;

pub async fn render(source: &Source) -> Result<Fragment, AskError> {
    let (mut tasks, mut silent) = (Vec::new(), Vec::new());
    for state in STATES {
        let mut list = List::of(What::Tasks).with("state", state);
        list.limit = MOST;
        let page = source.rows::<TaskRow>(list).await?;
        tasks.extend(page.rows);
        silent = page.silent;
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
                (tasks.len()) " tasks wait, or more where there are very many. "
                (chosen.len()) " of them, the oldest of each tenant, are asked why."
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

/// What reasons have in common that differ in ids, times and numbers alone.
fn gist(why: &str) -> String {
    let words = why.split_whitespace();
    let words = words.map(|word| match word.chars().any(|it| it.is_ascii_digit()) {
        true => "#",
        false => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn reason(at: usize, why: &str, tasks: &[&TaskRow]) -> Markup {
    let rows = tasks.iter().map(|task| {
        let cells = vec![
            parts::task(&task.id),
            jobs::named(task),
            parts::state(&task.state),
            parts::text(&task.tenant),
            parts::job(&task.job),
            parts::text(&task.node),
            parts::text(units::age(task.age_ms)),
            parts::text(asks(task)),
        ];
        Row::new(task.id, cells)
    });
    let header = [
        "task",
        "name",
        "state",
        "tenant",
        "job",
        "node",
        "waits for",
        "asks for",
    ];
    html! {
        section {
            h2 id={ "reason-" (at) } { (tasks.len()) @if tasks.len() == 1 { " task" } @else { " tasks" } }
            p.why { (why) }
            (parts::table(why, &header, &rows.collect::<Vec<_>>()))
        }
    }
}

/// What a task asks for, as far as its row says so.
fn asks(task: &TaskRow) -> String {
    let held = task.held.iter();
    let held = held.map(|it| {
        units::named(
            &it.name,
            wasmrun_model::resource::Amount::from_steps(it.steps),
        )
    });
    match held.collect::<Vec<_>>() {
        none if none.is_empty() => "see the reason".to_owned(),
        some => some.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::DriverId;

    use super::super::parts::tests_rows::task;
    use super::*;

    #[test]
    fn tenants_take_turns_and_the_oldest_is_first() {
        let row = |at: u64, tenant: &str| TaskRow {
            tenant: tenant.parse().expect("it is a name"),
            age_ms: at,
            ..task(DriverId::from_bytes([1; 16]).task(at))
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
