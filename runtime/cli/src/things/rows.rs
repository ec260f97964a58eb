//! Rows of lists as text. Owns which of their fields people see, and how. Must not: name fields for programs, which is
//! `wasmrun_client::rows`.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use wasmrun_client::rows;
use wasmrun_client::wire::{Amounts, JobTasks, TaskRow, What};
use wasmrun_model::units;

use super::get::yes;
use crate::printer::{Column, table};

/// Microseconds as people read them.
pub fn took_text(us: u64) -> String {
    units::duration(Duration::from_micros(us))
}

/// Milliseconds as people read them.
pub fn ms_text(ms: u64) -> String {
    units::duration(Duration::from_millis(ms))
}

/// The beginning of an id, where lines have room for no more.
pub fn short(id: &str) -> &str {
    &id[..id.len().min(8)]
}

/// A task's name, with its index if it is one of an array.
pub fn title(row: &TaskRow) -> String {
    match row.array_index {
        Some(index) => format!("{}[{index}]", row.name),
        None => row.name.clone(),
    }
}

/// What tells a task from the others of its job: its index, else the beginning of its id.
pub fn label(row: &TaskRow) -> String {
    match row.array_index {
        Some(index) => index.to_string(),
        None => short(&row.id.to_string()).to_owned(),
    }
}

/// How a task has failed, in a line.
pub fn error(row: &TaskRow) -> &str {
    row.error.as_deref().unwrap_or("it is not known how")
}

/// How many tasks of a job have ended, and how many there are or are to be.
pub fn progress(tasks: &JobTasks) -> (u64, u64) {
    let done = tasks.finished + tasks.failed + tasks.cancelled;
    let known = done + tasks.waiting + tasks.running;
    (done, known.max(tasks.expected))
}

pub fn amounts(amounts: &Amounts) -> String {
    let parts = amounts.iter();
    let shown = parts.map(|(name, amount)| format!("{name} {}", amount.display_for(name)));
    shown.collect::<Vec<_>>().join(", ")
}

/// What is guaranteed, or may be used at most.
pub fn minimum(min: &Amounts) -> String {
    match min.is_empty() {
        true => "-".to_owned(),
        false => amounts(min),
    }
}

macro_rules! columns {
    ($($kind:ident $field:literal)*) => {{
        const COLUMNS: &[Column<'static>] = &[$(Column::$kind($field)),*];
        COLUMNS
    }};
}

/// The fields of a list that people see.
const fn columns(what: What) -> &'static [Column<'static>] {
    match what {
        What::Tasks | What::Attempts => columns! {
            text "id" text "name" text "state" text "node" text "tenant" text "job" number "attempt"
            number "waited_us" number "duration_us" number "age_ms" text "error"
        },
        What::Actors => columns! {
            text "id" text "name" text "class" text "state" text "node" text "tenant" text "job"
            number "generation" number "calls" number "state_bytes" text "failure"
        },
        What::Objects => columns! {
            text "id" number "size_bytes" text "place" text "node" text "tenant" text "kept"
            text "copy" number "references" number "pins"
        },
        What::Jobs => columns! {
            text "id" text "state" text "states" number "failed" number "took_ms" number "age_ms"
            text "by" text "tenant" text "node" text "name"
        },
        What::Modules => columns! { text "digest" text "node" number "exports" text "program" },
        What::Nodes => columns! {
            text "node" number "process" number "up_ms" number "sessions" text "total"
            text "available"
        },
        What::Members => columns! {
            text "name" text "id" text "state" number "incarnation" text "address" text "head"
            text "total" text "available" number "since_ms"
        },
        What::Access => columns! {
            text "id" text "name" text "role" text "tenants" text "state" number "age_ms" number "left_ms"
        },
        What::Tokens => columns! {
            text "id" text "kind" text "state" text "many" number "joined" number "left_ms"
        },
        What::Groups => columns! {
            text "id" text "name" text "kind" text "state" text "bundles" text "node" text "tenant"
            text "detached" number "age_ms" text "why"
        },
        What::Services => columns! {
            text "name" text "url" text "node" text "tenant" text "state" number "all_requests"
            number "requests" number "failed" number "refused" number "running" number "waiting"
            number "connections" number "mean_us" number "age_ms" text "why"
        },
        What::Tenants => columns! {
            text "name" text "node" number "weight" text "min" number "share" text "used"
            number "objects_bytes" number "submitted" number "finished" number "failed" number "cancelled"
        },
        What::Audit => columns! {
            text "time" text "node" text "who" text "from" text "tenant" text "action"
            text "subject" text "outcome" text "error"
        },
        What::Due => columns! {
            text "name" number "weight" text "min" number "share" text "used" text "max"
            number "tasks" number "max_tasks" number "waiting" number "max_waiting"
            number "max_objects_bytes" number "max_detached" text "no_preempt"
        },
    }
}

/// What people see of a field.
fn cell(field: &str, value: &Json) -> String {
    let number = value.as_u64().unwrap_or_default();
    match (field, value) {
        // Nothing stands behind these.
        ("error" | "failure", Json::Null) => String::new(),
        (_, Json::Null) => "-".to_owned(),
        (_, Json::Bool(flag)) => yes(*flag).to_owned(),
        ("job", Json::String(id)) => short(id).to_owned(),
        (_, Json::String(text)) => text.clone(),
        (_, Json::Number(_)) if field.ends_with("_bytes") => units::bytes(number),
        (_, Json::Number(_)) if field.ends_with("_us") => took_text(number),
        (_, Json::Number(_)) if field.ends_with("_ms") => ms_text(number),
        (_, Json::Number(number)) => number.to_string(),
        (_, Json::Array(bundles)) => {
            let nodes = bundles.iter().map(|it| cell("node", &it["node"]));
            nodes.collect::<Vec<_>>().join(",")
        }
        ("states", Json::Object(_)) => {
            let (done, total) = progress(&read(value));
            format!("{done}/{total}")
        }
        ("min" | "max", Json::Object(_)) => minimum(&read(value)),
        (_, Json::Object(_)) => amounts(&read(value)),
    }
}

fn read<T: DeserializeOwned + Default>(value: &Json) -> T {
    T::deserialize(value).unwrap_or_default()
}

/// A list as people get it.
pub struct Table<'a> {
    fields: &'static [Column<'static>],
    /// All of each row, as programs get it.
    pub rows: &'a [Json],
}

impl<'a> Table<'a> {
    /// Of the rows that an object has of a list.
    pub fn of(what: What, object: &'a Json) -> Self {
        let rows = object[rows::name(what)].as_array();
        Self {
            fields: columns(what),
            rows: rows.map_or(&[][..], Vec::as_slice),
        }
    }

    /// What people see of each row.
    pub fn lines(&self) -> Vec<Vec<String>> {
        let line = |row: &Json| {
            let fields = self.fields.iter();
            let cells = fields.map(|column| cell(column.name, &row[column.name]));
            cells.collect()
        };
        self.rows.iter().map(line).collect()
    }

    /// The columns that people see. They read units in the cells.
    pub fn header(&self) -> Vec<Column<'static>> {
        let named = self.fields.iter().map(|column| {
            let name = match column.name {
                "duration_us" => "ran",
                "states" => "tasks",
                "all_requests" => "all",
                name => ["_ms", "_us", "_bytes"]
                    .iter()
                    .find_map(|unit| name.strip_suffix(unit))
                    .unwrap_or(name),
            };
            Column { name, ..*column }
        });
        named.collect()
    }

    /// A table for people. A text at the end of a line is cut to what `width` has room for, if that is known.
    pub fn text(&self, width: Option<usize>) -> String {
        let header = self.header();
        let text = table(&header, &self.lines());
        let is_text = |name: &&str| ["error", "failure", "why"].contains(name);
        let last = header.last().map(|column| column.name);
        match (width, last.filter(is_text)) {
            (Some(width), Some(last)) => cut(&text, last, width),
            _ => text,
        }
    }
}

/// How much of a text at the end of a line is shown, however narrow the terminal is, in characters.
const LEAST_TEXT: usize = 16;

/// Cuts lines to `width`, but nothing before the column `last`.
fn cut(text: &str, last: &str, width: usize) -> String {
    let header = text.lines().next().unwrap_or_default();
    let before = header.chars().count() - last.len();
    let width = width.max(before + LEAST_TEXT);
    let line = |line: &str| match line.chars().count() > width {
        true => line.chars().take(width - 1).chain(['…']).collect(),
        false => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_at_the_end_of_lines_are_cut_and_nothing_before_them() {
        let text = "id  error\n1\n2   the guest trapped: a wall of words";
        assert_eq!(
            cut(text, "error", 30),
            "id  error\n1\n2   the guest trapped: a wall…"
        );
        assert_eq!(cut(text, "error", 5), "id  error\n1\n2   the guest trapp…");
        assert_eq!(cut(text, "error", 80), text);
    }

    #[test]
    fn progress_counts_what_is_not_submitted_yet() {
        let mut tasks = JobTasks {
            expected: 10,
            waiting: 1,
            running: 1,
            finished: 2,
            failed: 1,
            cancelled: 0,
        };
        assert_eq!(progress(&tasks), (3, 10));
        // Tasks that others started are not among those that were expected.
        tasks.finished = 20;
        assert_eq!(progress(&tasks), (21, 23));
    }

    #[test]
    fn times_read_well() {
        assert_eq!(took_text(850), "850µs");
        assert_eq!(took_text(1_500_000), "1.5s");
    }

    #[test]
    fn cells_are_read_from_what_programs_get() {
        let states = json!(JobTasks {
            expected: 3,
            finished: 1,
            ..JobTasks::default()
        });
        let held = json!({ "CPU": "0.5", "memory": "67108864" });
        let bundles = json!([{ "node": "a" }, { "node": null }]);
        let cells = [
            ("states", states, "1/3"),
            ("used", held, "CPU 0.5, memory 64MiB"),
            ("used", json!({}), ""),
            ("min", json!({}), "-"),
            ("bundles", bundles, "a,-"),
            ("job", json!("0123456789"), "01234567"),
            ("id", json!("0123456789"), "0123456789"),
            ("kept", json!(true), "yes"),
            ("attempt", json!(2), "2"),
            ("error", Json::Null, ""),
            ("waited_us", Json::Null, "-"),
            ("age_ms", json!(1500), "1.5s"),
        ];
        for (field, value, text) in cells {
            assert_eq!(cell(field, &value), text, "{field}: {value}");
        }
    }

    #[test]
    fn columns_are_fields_of_the_list() {
        use wasmrun_client::wire::What::*;
        let lists = [
            Tasks, Attempts, Actors, Objects, Jobs, Modules, Nodes, Members, Access, Tokens,
            Groups, Services, Tenants, Due, Audit,
        ];
        for what in lists {
            let fields = rows::fields(what);
            let mut columns = columns(what).iter();
            assert_eq!(columns.find(|it| !fields.contains(&it.name)), None);
        }
    }
}
