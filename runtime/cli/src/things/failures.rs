//! The failures of a job in a few lines: the first tasks that failed, and the names of which most did.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use wasmrun_client::rows::Object;
use wasmrun_client::wire::TaskRow;

use super::jobs::order;
use super::rows;

/// How many failed tasks are shown.
const FIRST: usize = 5;
/// How many names are.
const NAMES: usize = 5;

/// The failed tasks of a job.
#[derive(Debug, Default)]
pub struct Failures {
    /// The first of them: by index, then by time.
    first: Vec<TaskRow>,
    /// The names of which most tasks have failed, and how many of each.
    names: Vec<(String, u64)>,
}

impl Failures {
    /// Of tasks that have failed.
    pub fn of(mut failed: Vec<TaskRow>) -> Self {
        failed.sort_by_key(order);
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for row in &failed {
            *counts.entry(&row.name).or_default() += 1;
        }
        let mut names: Vec<_> = counts
            .iter()
            .map(|(it, n)| ((*it).to_owned(), *n))
            .collect();
        names.sort_by_key(|(_, count)| Reverse(*count));
        names.truncate(NAMES);
        failed.truncate(FIRST);
        Self {
            first: failed,
            names,
        }
    }

    pub fn lines(&self) -> Vec<String> {
        if self.first.is_empty() {
            return Vec::new();
        }
        let mut lines = vec!["\nfailed first:".to_owned()];
        lines.extend(self.first.iter().map(|row| {
            let index = row
                .array_index
                .map_or_else(String::new, |it| format!("[{it}] "));
            let why = rows::error(row);
            format!("  {index}{} {} at {}: {why}", row.id, row.name, row.node)
        }));
        if self.names.len() > 1 {
            let names = self.names.iter();
            let names: Vec<String> = names.map(|(name, n)| format!("{name} {n}")).collect();
            lines.push(format!("failed most: {}", names.join(", ")));
        }
        lines
    }

    pub fn json(&self) -> Json {
        let names = self.names.iter();
        let names: Json = names
            .map(|(name, count)| json!({ "name": name, "failed": count }))
            .collect();
        let first: Json = self.first.iter().map(Object::object).collect();
        json!({ "first": first, "names": names })
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs::tests::task;
    use super::*;

    #[test]
    fn the_first_failures_are_by_index_and_then_by_time() {
        let failed = |name: &str, id: u8, index: Option<u64>, at: u64| TaskRow {
            name: name.to_owned(),
            array_index: index,
            submitted_us: at,
            error: Some(format!("failed at {at}")),
            ..task(id)
        };
        let failures = Failures::of(vec![
            failed("nested", 1, None, 9),
            failed("nested", 2, None, 8),
            failed("top", 3, Some(4), 2),
            failed("top", 4, Some(3), 3),
            failed("nested", 5, None, 10),
        ]);
        let lines = failures.lines();
        assert!(lines[1].contains("[3] ") && lines[1].ends_with("failed at 3"));
        assert!(lines[2].contains("[4] ") && lines[3].ends_with("failed at 8"));
        assert_eq!(
            lines.last().map(String::as_str),
            Some("failed most: nested 3, top 2")
        );
        assert_eq!(failures.json()["names"][0]["failed"], 3);
        assert_eq!(Failures::default().lines(), Vec::<String>::new());
    }
}
