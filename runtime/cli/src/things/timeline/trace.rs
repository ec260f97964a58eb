//! Attempts as events of Chrome's trace format, which Perfetto reads as well.
//!
//! Owns which event lies where. A node is a process, a guest thread or an actor is one of its threads. Times are in
//! microseconds since 1970, by the clock of the node where a task was submitted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};
use wasmrun_client::graph::is_creation;
use wasmrun_client::timeline::{PHASES, phases, start_us};
use wasmrun_client::wire::{Run, TaskRow};
use wasmrun_model::id::{ActorId, TaskId};

use super::lanes::{Lanes, Span};
use super::rows;

/// Threads of a node from here on are actors.
const FIRST_ACTOR: u64 = 1 << 20;
/// How many rows a thread or an actor may have before they are mixed with those of the next.
const ROWS: u64 = 1 << 10;

/// A thread of a node, or an actor there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    Thread(u16),
    Actor(ActorId),
}

/// An attempt that has its place.
struct Placed<'a> {
    row: &'a TaskRow,
    run: &'a Run,
    start_us: u64,
    process: u64,
    thread: u64,
}

impl Placed<'_> {
    fn end_us(&self) -> u64 {
        self.run.ended_us
    }

    /// A complete event on its row.
    fn event(&self, name: &str, category: &str, (start_us, end_us): (u64, u64)) -> Json {
        json!({
            "name": name,
            "cat": category,
            "ph": "X",
            "ts": start_us,
            "dur": end_us - start_us,
            "pid": self.process,
            "tid": self.thread,
        })
    }
}

/// A trace.
pub struct Trace {
    /// What processes and threads are called.
    names: Vec<Json>,
    /// All else, by time.
    events: Vec<Json>,
    attempts: usize,
    nodes: usize,
    span_us: u64,
}

/// The order of events: by time, then by kind, then the longest first.
type Order = (u64, u8, Reverse<u64>);

impl Trace {
    /// Of attempts that have ended; those that did not run are left out.
    pub fn of(rows: &[TaskRow]) -> Self {
        let (placed, names) = place(rows);
        // Sorted by time, and what holds others before them.
        let mut events: Vec<(Order, Json)> = Vec::new();
        let mut add = |at: u64, order: u8, length: u64, event: Json| {
            events.push(((at, order, Reverse(length)), event));
        };
        for it in &placed {
            let (start, end) = (it.start_us, it.end_us());
            add(start, 0, end - start, attempt(it));
            // Calls lie within the life of an actor, which is no run of its own.
            let count = if is_creation(it.row) { 2 } else { PHASES.len() };
            for (name, part) in PHASES.iter().zip(phases(it.run).windows(2)).take(count) {
                let (start, end) = (part[0], part[1]);
                if end > start {
                    add(start, 1, end - start, it.event(name, "phase", (start, end)));
                }
            }
        }
        let mut by_task: BTreeMap<TaskId, Vec<&Placed<'_>>> = BTreeMap::new();
        for it in &placed {
            by_task.entry(it.row.id).or_default().push(it);
        }
        for (number, child) in placed.iter().enumerate() {
            let parents = child.row.parent.and_then(|parent| by_task.get(&parent));
            let Some(parent) = parents.and_then(|them| parent_of(child, them)) else {
                continue;
            };
            let [start, finish] = flow(number, parent, child);
            add(start.0, 2, 0, start.1);
            add(finish.0, 3, 0, finish.1);
        }
        events.sort_by_key(|(key, _)| *key);
        let first = placed.iter().map(|it| it.start_us).min().unwrap_or(0);
        let last = placed.iter().map(Placed::end_us).max().unwrap_or(0);
        let nodes: BTreeSet<u64> = placed.iter().map(|it| it.process).collect();
        Self {
            names,
            attempts: placed.len(),
            nodes: nodes.len(),
            span_us: last - first,
            events: events.into_iter().map(|(_, event)| event).collect(),
        }
    }

    /// The whole file.
    pub fn json(&self) -> Json {
        let events: Json = self.names.iter().chain(&self.events).cloned().collect();
        json!({ "displayTimeUnit": "ms", "traceEvents": events })
    }

    pub fn attempts(&self) -> usize {
        self.attempts
    }

    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// From the first beginning to the last end.
    pub fn span_us(&self) -> u64 {
        self.span_us
    }
}

/// Gives each attempt its row, and the rows their names.
fn place(rows: &[TaskRow]) -> (Vec<Placed<'_>>, Vec<Json>) {
    let nodes: BTreeSet<&str> = rows.iter().map(|row| row.node.as_str()).collect();
    let processes: BTreeMap<&str, u64> = nodes.into_iter().zip(1..).collect();
    let creations = rows.iter().filter(|row| is_creation(row));
    let creations: BTreeMap<ActorId, &str> = creations
        .filter_map(|row| Some((row.actor?, row.name.as_str())))
        .collect();
    let mut placed: Vec<Placed<'_>> = rows
        .iter()
        .filter_map(|row| {
            let run = row.run.as_ref().filter(|run| run.ran_us.is_some())?;
            Some(Placed {
                row,
                run,
                start_us: start_us(run),
                process: processes.get(row.node.as_str()).copied()?,
                thread: 0,
            })
        })
        .collect();
    placed.sort_by_key(|it| (it.start_us, Reverse(it.end_us())));
    let mut tracks: BTreeMap<(u64, Track), (Lanes, u64)> = BTreeMap::new();
    let mut actors: BTreeMap<u64, u64> = BTreeMap::new();
    let mut threads: BTreeMap<(u64, u64), String> = BTreeMap::new();
    for it in &mut placed {
        let track = match it.row.actor {
            Some(actor) => Track::Actor(actor),
            None => Track::Thread(it.run.phases.thread),
        };
        let (lanes, first) = tracks.entry((it.process, track)).or_insert_with(|| {
            let first = match track {
                Track::Thread(number) => u64::from(number) * ROWS + 1,
                Track::Actor(_) => {
                    let count = actors.entry(it.process).or_default();
                    *count += 1;
                    FIRST_ACTOR * ROWS + *count * ROWS
                }
            };
            (Lanes::default(), first)
        });
        let lane = lanes.place(Span {
            start_us: it.start_us,
            end_us: it.end_us(),
            holds_from_us: is_creation(it.row).then(|| phases(it.run)[2]),
        });
        it.thread = *first + (lane as u64).min(ROWS - 1);
        let name = threads.entry((it.process, it.thread));
        name.or_insert_with(|| title(track, lane, &creations));
    }
    let mut names = Vec::new();
    for (node, process) in &processes {
        let name = format!("node {node}");
        names.push(named("process_name", *process, 0, json!({ "name": name })));
        let order = json!({ "sort_index": process });
        names.push(named("process_sort_index", *process, 0, order));
    }
    for ((process, thread), name) in &threads {
        names.push(named(
            "thread_name",
            *process,
            *thread,
            json!({ "name": name }),
        ));
        let order = json!({ "sort_index": thread });
        names.push(named("thread_sort_index", *process, *thread, order));
    }
    (placed, names)
}

/// What a row is called.
fn title(track: Track, lane: usize, creations: &BTreeMap<ActorId, &str>) -> String {
    let more = match lane {
        0 => String::new(),
        lane => format!(" ({})", lane + 1),
    };
    match track {
        Track::Thread(number) => format!("thread {number}{more}"),
        Track::Actor(actor) => {
            let id = actor.to_string();
            let name = creations.get(&actor);
            let name = name.map_or_else(String::new, |name| format!(" {name}"));
            format!("actor {}{name}{more}", rows::short(&id))
        }
    }
}

/// An event that says how something is called or where it stands.
fn named(what: &str, process: u64, thread: u64, args: Json) -> Json {
    json!({ "name": what, "ph": "M", "ts": 0, "pid": process, "tid": thread, "args": args })
}

/// The event of a whole attempt.
fn attempt(it: &Placed<'_>) -> Json {
    let row = it.row;
    let mut event = it.event(&rows::title(row), &row.state, (it.start_us, it.end_us()));
    event["args"] = json!({
        "id": row.id.to_string(),
        "job": row.job.to_string(),
        "attempt": row.attempt,
        "state": row.state,
        "tenant": row.tenant.to_string(),
        "waited_us": it.run.waited_us,
        "memory_peak_bytes": it.run.memory_peak_bytes,
        "error": row.error,
    });
    event
}

/// Of the attempts of a parent, the one that started the child; where that is not known the last one.
fn parent_of<'a, 'b>(child: &Placed<'_>, attempts: &[&'a Placed<'b>]) -> Option<&'a Placed<'b>> {
    let is_it = |it: &&&Placed<'_>| it.row.attempt == child.row.parent_attempt;
    let found = attempts.iter().find(is_it).or(attempts.last());
    found.copied()
}

/// The two ends of an arrow from a parent to a child, with their times.
fn flow(number: usize, parent: &Placed<'_>, child: &Placed<'_>) -> [(u64, Json); 2] {
    // An arrow begins within a slice, and at its end there is none any more.
    let last = parent.end_us().saturating_sub(1).max(parent.start_us);
    let from = child.row.submitted_us.clamp(parent.start_us, last);
    let end = |at: u64, of: &Placed<'_>, phase: &str| {
        json!({
            "name": "starts",
            "cat": "starts",
            "ph": phase,
            "id": number + 1,
            "ts": at,
            "pid": of.process,
            "tid": of.thread,
        })
    };
    let mut finish = end(child.start_us, child, "f");
    // It ends at what begins then, not at what comes next.
    finish["bp"] = "e".into();
    [(from, end(from, parent, "s")), (child.start_us, finish)]
}

#[cfg(test)]
mod tests {
    use wasmrun_client::wire::Phases;

    use super::*;

    /// A task that began at `start` and ended at `end`, with 10 us for each phase but the first.
    fn ran(id: u8, node: &str, (start, end): (u64, u64)) -> TaskRow {
        let phases = Phases {
            thread: 1,
            arguments_us: 5,
            sandbox_us: 10,
            blocked_us: 10,
            paused_us: 10,
            result_us: 10,
        };
        TaskRow {
            name: format!("f{id}"),
            submitted_us: start - 1,
            node: node.into(),
            run: Some(Run {
                waited_us: 1,
                ran_us: Some(end - start),
                ended_us: end,
                phases,
                memory_peak_bytes: 7,
            }),
            ..TaskRow::example(TaskId::from_bytes([id; 16]))
        }
    }

    fn rows() -> Vec<TaskRow> {
        let actor = TaskId::from_bytes([9; 16]).actor();
        vec![
            ran(1, "a", (1000, 2000)),
            // Beside the first on its thread, which it does not wait for.
            TaskRow {
                parent: Some(TaskId::from_bytes([1; 16])),
                ..ran(2, "a", (1500, 2500))
            },
            TaskRow {
                parent: Some(TaskId::from_bytes([1; 16])),
                array_index: Some(3),
                ..ran(3, "b", (1600, 1605))
            },
            TaskRow {
                actor: Some(actor),
                ..ran(9, "b", (1000, 9000))
            },
            TaskRow {
                actor: Some(actor),
                ..ran(10, "b", (2000, 3000))
            },
            TaskRow {
                run: None,
                ..ran(11, "c", (1000, 1001))
            },
        ]
    }

    fn events(trace: &Trace) -> Vec<Json> {
        let text = trace.json().to_string();
        let parsed: Json = serde_json::from_str(&text).expect("it is JSON");
        parsed["traceEvents"].as_array().expect("a list").clone()
    }

    fn number(event: &Json, field: &str) -> u64 {
        event[field]
            .as_u64()
            .unwrap_or_else(|| panic!("{field}: {event}"))
    }

    #[test]
    fn events_are_sorted_and_those_of_a_row_nest() {
        let trace = Trace::of(&rows());
        let events = events(&trace);
        let times: Vec<u64> = events.iter().map(|it| number(it, "ts")).collect();
        assert!(times.is_sorted(), "{times:?}");
        let mut rows: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
        for event in events.iter().filter(|it| it["ph"] == "X") {
            let row = rows.entry((number(event, "pid"), number(event, "tid")));
            let open = row.or_default();
            let (start, end) = (
                number(event, "ts"),
                number(event, "ts") + number(event, "dur"),
            );
            while open.last().is_some_and(|(_, before)| *before <= start) {
                open.pop();
            }
            let fits = open.last().is_none_or(|(_, holder)| end <= *holder);
            assert!(fits, "{event} in {open:?}");
            open.push((start, end));
        }
        // One thread of a with two rows, one of b, and the actor with its calls.
        assert_eq!(rows.len(), 4, "{rows:?}");
        assert_eq!(
            (trace.attempts(), trace.nodes(), trace.span_us()),
            (5, 2, 8000)
        );
    }

    #[test]
    fn an_attempt_has_its_time_its_phases_and_what_is_to_know() {
        let events = events(&Trace::of(&rows()[..1]));
        let whole = events.iter().find(|it| it["name"] == "f1").expect("there");
        assert_eq!((number(whole, "ts"), number(whole, "dur")), (1000, 1000));
        assert_eq!(whole["args"]["memory_peak_bytes"], 7);
        assert_eq!(whole["args"]["state"], "finished");
        let phases = events.iter().filter(|it| it["cat"] == "phase");
        let phases: Vec<(&str, u64, u64)> = phases
            .map(|it| {
                (
                    it["name"].as_str().unwrap(),
                    number(it, "ts"),
                    number(it, "dur"),
                )
            })
            .collect();
        let expected = [
            ("arguments", 1000, 5),
            ("sandbox", 1005, 10),
            ("run", 1015, 955),
            ("blocked", 1970, 10),
            ("paused", 1980, 10),
            ("result", 1990, 10),
        ];
        assert_eq!(phases, expected);
    }

    #[test]
    fn arrows_go_from_parents_to_children() {
        let events = events(&Trace::of(&rows()));
        let flows = |phase: &str| -> Vec<Json> {
            let some = events.iter().filter(|it| it["ph"] == phase);
            some.cloned().collect()
        };
        let (starts, ends) = (flows("s"), flows("f"));
        assert_eq!((starts.len(), ends.len()), (2, 2));
        for (start, end) in starts.iter().zip(&ends) {
            assert_eq!(start["id"], end["id"]);
            assert!((1000..2000).contains(&number(start, "ts")), "{start}");
            assert!(number(start, "ts") <= number(end, "ts"));
        }
    }

    #[test]
    fn an_arrow_begins_at_the_attempt_that_started_the_child() {
        let second = TaskRow {
            attempt: 2,
            ..ran(1, "b", (3000, 4000))
        };
        let children = [1, 2].map(|parent_attempt| TaskRow {
            parent: Some(second.id),
            parent_attempt,
            ..ran(1 + parent_attempt as u8, "a", (5000, 6000))
        });
        let [one, other] = children;
        let events = events(&Trace::of(&[ran(1, "a", (1000, 2000)), second, one, other]));
        let starts = events.iter().filter(|it| it["ph"] == "s");
        let starts: Vec<u64> = starts.map(|it| number(it, "ts")).collect();
        assert_eq!(starts, [1999, 3999]);
    }

    #[test]
    fn rows_are_named_after_threads_and_actors() {
        let events = events(&Trace::of(&rows()));
        let names = events.iter().filter(|it| it["ph"] == "M");
        let names: Vec<&str> = names.filter_map(|it| it["args"]["name"].as_str()).collect();
        for name in [
            "node a",
            "node b",
            "thread 1",
            "thread 1 (2)",
            "actor 09090909 f9",
        ] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }

    #[test]
    fn nothing_is_a_trace_too() {
        let trace = Trace::of(&[]);
        assert_eq!(trace.json()["traceEvents"], json!([]));
        assert_eq!((trace.attempts(), trace.span_us()), (0, 0));
    }
}
