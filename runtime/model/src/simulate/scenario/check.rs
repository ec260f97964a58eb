//! Checks of a scenario that concern several tasks.
//!
//! Owns: that no tasks wait for each other in a circle, and that time does not run out. Must not:
//! read JSON.

use super::TaskEntry;
use super::error::{Fault, ScenarioError};
use super::json::Value;
use super::limits::HORIZON_MS_MAX;

/// Checks that the run ends before time does.
///
/// After the last submission and event some task runs at every moment until nothing runs any
/// more: so it is over at the latest when all tasks have run one after the other.
pub fn horizon(
    list: &Value<'_, '_>,
    tasks: &[TaskEntry],
    latest_event_ms: u64,
) -> Result<(), ScenarioError> {
    let latest_submit_ms = tasks.iter().map(|task| task.submit_at_ms).max();
    let latest_ms = latest_event_ms.max(latest_submit_ms.unwrap_or(0));
    let durations = tasks
        .iter()
        .map(|task| u128::from(task.count) * u128::from(task.duration_ms));
    let total_ms = u128::from(latest_ms) + durations.sum::<u128>();
    if total_ms > u128::from(HORIZON_MS_MAX) {
        return Err(list.fault(Fault::TooLong {
            total_ms,
            limit_ms: HORIZON_MS_MAX,
        }));
    }
    Ok(())
}

/// How far the search has come with a task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    /// It is on the path that is being followed.
    OnPath,
    Done,
}

/// Checks that no tasks wait for each other in a circle: a depth-first search without recursion,
/// since a chain may be as long as the list.
pub fn no_cycle(values: &[Value<'_, '_>], tasks: &[TaskEntry]) -> Result<(), ScenarioError> {
    let mut marks = vec![Mark::New; tasks.len()];
    // The tasks on the path, each with how many of its `after` have been followed.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for start in 0..tasks.len() {
        if marks[start] != Mark::New {
            continue;
        }
        marks[start] = Mark::OnPath;
        path.push((start, 0));
        while let Some((task, followed)) = path.last_mut() {
            let Some(next) = tasks[*task].after.get(*followed) else {
                marks[*task] = Mark::Done;
                path.pop();
                continue;
            };
            *followed += 1;
            let next = next.0 as usize;
            match marks[next] {
                Mark::New => {
                    marks[next] = Mark::OnPath;
                    path.push((next, 0));
                }
                Mark::OnPath => {
                    let first = path.iter().position(|(task, _)| *task == next);
                    let first = first.expect("what is marked so is on the path");
                    let circle: Vec<usize> = path[first..].iter().map(|(task, _)| *task).collect();
                    let last = *circle.last().expect("it has at least one task");
                    let cycle = names(&circle, tasks);
                    return Err(values[last].fault_in("after", Fault::Cycle { cycle }));
                }
                Mark::Done => {}
            }
        }
    }
    Ok(())
}

/// The longest circle whose tasks are all named.
const NAMED_MAX: usize = 10;

fn names(circle: &[usize], tasks: &[TaskEntry]) -> Vec<String> {
    let name = |task: &usize| tasks[*task].name.to_string();
    let mut names: Vec<String> = circle.iter().take(NAMED_MAX).map(name).collect();
    if circle.len() > NAMED_MAX {
        names.push(format!("({} more)", circle.len() - NAMED_MAX));
    }
    names.push(name(&circle[0]));
    names
}
