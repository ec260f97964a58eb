//! Rows of tasks, attempts and jobs: those that live, from the ledger, and those that have ended, from the history.
//!
//! Owns which of them a list wants, and their order: submitted last first. Must not: change anything, or hold the ledger's
//! lock for longer than it takes to look at a thousand tasks. What a page costs follows from its length, as far as that can be:
//! see [`live`] and [`History::find`](crate::history::History::find).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use wasmrun_model::access::Tenants;
use wasmrun_model::id::{ActorId, DriverId, IdPrefix, NodeId, TaskId};
use wasmrun_model::task::Phase;
use wasmrun_model::units::ms;
use wasmrun_model::wire::{JobRow, JobTasks, List, Rows, Run, TaskRow, What};

use super::Inner;
use super::lists::passes;
use super::live::{self, AT_A_TIME, held_resource, live_rows};
use super::views::Asker;
use crate::history::{Failure, Head, Outcome, Place, Record};
use crate::ledger::Ledger;
use crate::ledger::jobs::Job;
use crate::records::task::TaskCell;

/// How much of an error a row of a task or an actor has: a page of rows that have all of theirs goes into one answer.
const MOST_ERROR_BYTES: usize = 500;

/// The place of a row in its list, as text: for [`List::after`].
pub(super) fn place_text((submitted_us, id, attempt): Place) -> String {
    format!("{submitted_us}-{id}-{attempt}")
}

/// What [`place_text`] made.
pub(super) fn parse_place(text: &str) -> Option<Place> {
    let mut parts = text.split('-');
    let place = (
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
    );
    parts.next().is_none().then_some(place)
}

/// The place of a row in the list of tasks, or of attempts. A task is in the first one once, and its place there stays as its
/// attempts go on.
pub(super) fn place(what: What, row: &TaskRow) -> Place {
    let attempt = match what {
        What::Attempts => row.attempt,
        _ => 0,
    };
    (row.submitted_us, row.id, attempt)
}

/// The place of the last row of a node that may have more of them than fit on a page.
pub(super) fn horizon(list: &List, rows: &Rows) -> Option<Place> {
    match rows {
        Rows::Tasks(rows) if rows.len() >= list.page() => {
            rows.last().map(|row| place(list.what, row))
        }
        _ => None,
    }
}

/// The place of a job's row.
pub(super) fn job_place(row: &JobRow) -> Place {
    (row.submitted_us, TaskId::from_bytes(*row.id.as_bytes()), 0)
}

/// What a list wants of tasks, by what takes no row to look at.
pub(super) struct Wanted<'a> {
    list: &'a List,
    tenants: &'a Tenants,
    pub(super) id: IdPrefix,
    pub(super) job: IdPrefix,
    parent: Option<IdPrefix>,
    actors: Option<BTreeSet<ActorId>>,
    actor: Option<IdPrefix>,
    pub(super) after: Option<Place>,
}

impl<'a> Wanted<'a> {
    /// `None` if no row can be meant.
    fn of(inner: &Inner, tenants: &'a Tenants, list: &'a List) -> Option<Self> {
        let text = |field: &str| {
            let found = list.filters.iter().find(|(name, _)| name == field);
            found.map(|(_, text)| text.as_str())
        };
        let prefix = |field| match text(field) {
            None => Some(None),
            Some(text) => IdPrefix::parse(text).map(Some),
        };
        let actor = text("actor");
        let named = actor.map(|name| {
            let names = inner.shared.names.all();
            let named = names.into_iter().filter(|(_, its)| its == name);
            named.map(|(id, _)| id).collect()
        });
        let after = match &list.after {
            None => None,
            Some(text) => Some(parse_place(text)?),
        };
        Some(Self {
            list,
            tenants,
            id: prefix("id")?.unwrap_or(IdPrefix::ANY),
            job: prefix("job")?.unwrap_or(IdPrefix::ANY),
            parent: prefix("parent")?,
            actors: named,
            actor: actor.and_then(IdPrefix::parse),
            after,
        })
    }

    fn is_actor(&self, actor: Option<ActorId>) -> bool {
        let Some(named) = &self.actors else {
            return true;
        };
        actor.is_some_and(|it| {
            named.contains(&it) || self.actor.is_some_and(|prefix| prefix.begins(&it))
        })
    }

    fn is_parent(&self, parent: Option<TaskId>) -> bool {
        let begins = |prefix: IdPrefix| parent.is_some_and(|it| prefix.begins(&it));
        self.parent.is_none_or(begins)
    }

    /// Whether a task that has not ended at this node is meant. Its row says the same, unless it has gone on meanwhile.
    pub(super) fn lives(&self, ledger: &Ledger, cell: &TaskCell, node: &str) -> bool {
        let mut filters = self.list.filters.iter();
        self.id.begins(&cell.id)
            && self.tenants.covers(&cell.work.terms().tenant)
            && self.job.begins(&cell.driver.job())
            && self.is_actor(cell.work.actor())
            && filters.all(|(field, value)| match field.as_str() {
                "name" => cell.work.name() == value.as_str(),
                "state" => live::state(ledger, cell) == value,
                "tenant" => cell.work.terms().tenant.as_str() == value,
                "node" => node == value,
                "parent" => self.is_parent(ledger.parent(&cell.id).map(|it| it.task)),
                _ => true,
            })
    }

    /// Whether a row has all that is asked for. Its actor was looked at before.
    pub(super) fn passes(&self, row: &TaskRow) -> bool {
        let mut filters = self.list.filters.iter();
        let actor = filters.find(|(field, _)| field == "actor");
        let parent = row.parent.map(|it| it.to_string()).unwrap_or_default();
        passes(
            self.list,
            &[
                ("id", &row.id),
                ("name", &row.name),
                ("state", &row.state),
                ("tenant", &row.tenant),
                ("job", &row.job),
                ("node", &row.node),
                ("actor", &actor.map_or("", |(_, text)| text.as_str())),
                ("parent", &parent),
            ],
        )
    }

    /// Whether a record can be meant, by its head.
    fn fits(&self, head: &Head<'_>) -> bool {
        let is_meant = |field: &str, its: &str| {
            let mut filters = self.list.filters.iter();
            filters.all(|(name, text)| name != field || text == its)
        };
        (self.list.what == What::Attempts || head.outcome != Outcome::Retried)
            && self.id.begins(&head.id)
            && self.tenants.covers(&head.group.tenant)
            && self.job.begins(&head.group.job)
            && is_meant("state", head.outcome.name())
            && is_meant("name", &head.group.name)
            && is_meant("tenant", head.group.tenant.as_str())
    }
}

/// The nodes where a list wants tasks to have run.
struct RanAt<'a> {
    inner: &'a Inner,
    name: Option<&'a str>,
    /// Whether it is this one.
    known: RefCell<BTreeMap<NodeId, bool>>,
}

impl<'a> RanAt<'a> {
    fn of(inner: &'a Inner, list: &'a List) -> Self {
        let name = list.filters.iter().find(|(field, _)| field == "node");
        Self {
            inner,
            name: name.map(|(_, name)| name.as_str()),
            known: RefCell::default(),
        }
    }

    /// Whether this is one of them; none is this node.
    fn has(&self, node: Option<NodeId>) -> bool {
        let Some(name) = self.name else {
            return true;
        };
        let Some(node) = node else {
            return *self.inner.shared.name == *name;
        };
        let is_it = || names_of(self.inner, BTreeSet::from([node]))[&node] == name;
        let mut known = self.known.borrow_mut();
        *known.entry(node).or_insert_with(is_it)
    }
}

/// The tasks, or the attempts that have ended, that a list wants: one page.
pub(super) fn tasks(inner: &Inner, tenants: &Tenants, list: &List) -> Vec<TaskRow> {
    let Some(wanted) = Wanted::of(inner, tenants, list) else {
        return Vec::new();
    };
    let page = list.page();
    let mut rows = match list.what {
        What::Attempts => Vec::new(),
        _ => live::page(inner, &wanted, page),
    };
    let lives: BTreeSet<TaskId> = rows.iter().map(|row| row.id).collect();
    let ran_at = RanAt::of(inner, list);
    let records = inner.shared.history.find(
        wanted.after,
        page,
        |head| wanted.fits(head),
        |kin| wanted.is_actor(kin.actor) && wanted.is_parent(kin.parent) && ran_at.has(kin.ran_at),
    );
    // It may have ended between both looks.
    let records = records.into_iter().filter(|it| !lives.contains(&it.id));
    let ended = ended_rows(inner, tenants, &records.collect::<Vec<_>>());
    rows.extend(ended.into_iter().filter(|row| wanted.passes(row)));
    rows.sort_by_key(|row| std::cmp::Reverse(place(list.what, row)));
    rows.truncate(page);
    rows
}

/// The rows of attempts that have ended, for one who has these tenants.
pub(super) fn ended_rows(inner: &Inner, tenants: &Tenants, records: &[Record<'_>]) -> Vec<TaskRow> {
    let error = |failure: &Failure| {
        let error = failure.seen_by(|tenant| tenants.covers(tenant));
        first_line(&error.to_string())
    };
    let elsewhere: BTreeSet<NodeId> = records.iter().filter_map(|it| it.ran_at).collect();
    let names = names_of(inner, elsewhere);
    let now_us = inner.shared.history.unix_us(tokio::time::Instant::now());
    let rows = records.iter().map(|record| TaskRow {
        id: record.id,
        name: record.name.clone().into_owned(),
        state: record.outcome.name().to_owned(),
        tenant: record.tenant.clone(),
        job: record.job,
        parent: record.parent,
        parent_attempt: record.parent_attempt,
        actor: record.actor,
        trace: record.trace.clone(),
        array_index: record.array_index,
        attempt: record.attempt,
        is_detached: record.job.is_detached(),
        submitted_us: record.submitted_us,
        age_ms: now_us.saturating_sub(record.submitted_us) / 1000,
        node: match record.ran_at {
            Some(node) => names[&node].clone(),
            None => inner.name(),
        },
        inputs: record.inputs.clone().into_owned(),
        held: record.held.iter().map(held_resource).collect(),
        run: Some(Run {
            waited_us: record.waited_us,
            ran_us: Some(record.ran_us).filter(|ran| *ran > 0),
            ended_us: record.ended_us,
            phases: record.phases,
            memory_peak_bytes: record.memory_peak_bytes,
        }),
        error: record.failure.as_ref().map(&error),
    });
    rows.collect()
}

/// The first line of an error, as much as a row has of it.
pub(super) fn first_line(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    match line.len() > MOST_ERROR_BYTES {
        true => format!("{}…", &line[..line.floor_char_boundary(MOST_ERROR_BYTES)]),
        false => line.to_owned(),
    }
}

/// What nodes are called, also those that have left and are remembered.
fn names_of(inner: &Inner, nodes: BTreeSet<NodeId>) -> BTreeMap<NodeId, String> {
    if nodes.is_empty() {
        return BTreeMap::new();
    }
    inner.shared.ask(|ledger| {
        let cluster = ledger.scheduler().cluster();
        let named = nodes.into_iter().map(|node| {
            let name = match (cluster.by_id(node), inner.cluster()) {
                (Some(ix), _) => cluster[ix].name().to_string(),
                (None, Some(cluster)) => cluster.name_of(node),
                (None, None) => node.to_string(),
            };
            (node, name)
        });
        named.collect()
    })
}

/// The tasks whose ids begin so and that the asker owns, those that live first: so many at most.
pub(super) fn begun_so(
    inner: &Inner,
    asker: Asker<'_>,
    prefix: IdPrefix,
    most: usize,
) -> Vec<TaskRow> {
    let live: Vec<TaskId> = inner.shared.ask(|ledger| {
        let cells = ledger.cells_with(prefix);
        let own = cells.filter(|cell| asker.owns(&cell.work.terms().tenant, cell.driver));
        own.map(|cell| cell.id).take(most).collect()
    });
    let mut rows = live_rows(inner, live.iter().copied());
    let is_own = |head: &Head<'_>| {
        head.outcome != Outcome::Retried
            && prefix.begins(&head.id)
            && asker.owns(&head.group.tenant, head.group.job)
            && !live.contains(&head.id)
    };
    let records = match prefix.whole() {
        Some(id) => {
            let last = inner.shared.history.last(&TaskId::from_bytes(id));
            let own = last.filter(|it| asker.owns(&it.tenant, it.job) && !live.contains(&it.id));
            own.into_iter().collect()
        }
        None => inner.shared.history.find(None, most, is_own, |_| true),
    };
    rows.extend(ended_rows(inner, asker.tenants, &records));
    rows
}

/// This node's part of its jobs, and of those of others: whose ids begin so. Numbers of nodes add up.
pub(super) fn jobs(inner: &Inner, tenants: &Tenants, list: &List) -> Vec<JobRow> {
    let id = list.filters.iter().find(|(name, _)| name == "id");
    let Some(prefix) = id.map_or(Some(IdPrefix::ANY), |(_, text)| IdPrefix::parse(text)) else {
        return Vec::new();
    };
    let mut running: BTreeMap<DriverId, u64> = BTreeMap::new();
    inner.shared.ask(|ledger| {
        for phase in [Phase::Dispatching, Phase::Running, Phase::Blocked] {
            for task in ledger.scheduler().in_phase(phase) {
                let driver = ledger.scheduler().task(&task).map(|it| it.driver.job());
                if let Some(driver) = driver {
                    *running.entry(driver).or_default() += 1;
                }
            }
        }
    });
    let mut rows = Vec::new();
    let mut last = None;
    loop {
        let before = last;
        inner.shared.ask(|ledger| {
            for (id, job) in ledger.jobs.after(last).take(AT_A_TIME) {
                last = Some(*id);
                if prefix.begins(id) {
                    let running = running.remove(id).unwrap_or_default();
                    rows.push(job_row(inner, *id, Some(job), running));
                }
            }
        });
        if last == before {
            break;
        }
    }
    // Tasks that run here for other nodes.
    let foreign = running.into_iter().filter(|(id, _)| prefix.begins(id));
    rows.extend(foreign.map(|(id, running)| job_row(inner, id, None, running)));
    // A part without a name is added to what the owner says, or left out.
    rows.retain(|row| row.name.is_empty() || tenants.covers(&row.tenant));
    rows.sort_by_key(|row| std::cmp::Reverse(job_place(row)));
    rows
}

/// This node's part of a job, of which so many tasks run here.
fn job_row(inner: &Inner, id: DriverId, job: Option<&Job>, running: u64) -> JobRow {
    let about = job.and_then(|job| job.about.as_ref());
    let ends = job.map(|job| job.ends).unwrap_or_default();
    JobRow {
        id,
        name: about.map_or_else(String::new, |it| it.name.clone()),
        state: job.map_or("running", Job::state).to_owned(),
        tenant: about.map(|it| it.tenant.clone()).unwrap_or_default(),
        by: about.map_or_else(String::new, |it| it.by.clone()),
        is_detached: id.is_detached(),
        submitted_us: job.map_or(0, |job| inner.shared.history.unix_us(job.submitted)),
        age_ms: job.map_or(0, |job| ms(job.submitted.elapsed())),
        took_ms: job.and_then(|job| Some(ms(job.ended? - job.submitted))),
        tasks: JobTasks {
            expected: about.map_or(0, |it| it.expected),
            waiting: job.map_or(0, |job| job.live),
            running,
            finished: ends.finished,
            failed: ends.failed,
            cancelled: ends.cancelled,
        },
        node: inner.name(),
    }
}

/// How much the state of a part says of the whole job: it runs if a part does, and has failed if a part has.
fn rank(state: &str) -> u8 {
    match state {
        "running" => 3,
        "failed" => 2,
        "cancelled" => 1,
        _ => 0,
    }
}

/// What nodes say of their parts of jobs, as one row for each job whose owner has answered, that the list wants: one page.
pub(super) fn merged_jobs(list: &List, parts: Vec<JobRow>) -> Vec<JobRow> {
    let mut jobs: BTreeMap<DriverId, JobRow> = BTreeMap::new();
    for part in parts {
        let Some(row) = jobs.remove(&part.id) else {
            jobs.insert(part.id, part);
            continue;
        };
        // Its owner has told its name. So have two nodes where one has adopted tasks of the other: the older part knows its age.
        let (mut row, more) = match (row.name.is_empty(), part.name.is_empty()) {
            (true, _) => (part, row),
            (false, true) => (row, part),
            (false, false) if part.submitted_us < row.submitted_us => (part, row),
            (false, false) => (row, part),
        };
        if !more.name.is_empty() && rank(&more.state) > rank(&row.state) {
            row.took_ms = more.took_ms;
            row.state = more.state;
        }
        let tasks = &mut row.tasks;
        tasks.waiting += more.tasks.waiting;
        tasks.running += more.tasks.running;
        tasks.finished += more.tasks.finished;
        tasks.failed += more.tasks.failed;
        tasks.cancelled += more.tasks.cancelled;
        tasks.expected = tasks.expected.max(more.tasks.expected);
        jobs.insert(row.id, row);
    }
    let after = list.after.as_deref().and_then(parse_place);
    let named = jobs.into_values().filter(|row| !row.name.is_empty());
    let mut rows: Vec<JobRow> = named
        .map(|mut row| {
            row.tasks.waiting = row.tasks.waiting.saturating_sub(row.tasks.running);
            row
        })
        .filter(|row| {
            let is_behind = after.is_none_or(|after| job_place(row) < after);
            is_behind
                && passes(
                    list,
                    &[
                        ("id", &row.id),
                        ("name", &row.name),
                        ("state", &row.state),
                        ("tenant", &row.tenant),
                        ("detached", &if row.is_detached { "yes" } else { "no" }),
                        ("node", &row.node),
                    ],
                )
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(job_place(row)));
    rows.truncate(list.page());
    rows
}

#[cfg(test)]
mod tests {
    use wasmrun_model::wire::{Frame, Listed, Response};

    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let place = (7, DriverId::from_bytes([1; 16]).task(3), 2);
        assert_eq!(parse_place(&place_text(place)), Some(place));
        for text in ["", "7", "7-x-2", "7--2", "a-b-c-d"] {
            assert_eq!(parse_place(text), None, "{text}");
        }
    }

    #[test]
    fn a_page_of_long_errors_goes_into_one_answer() {
        let wall = "é".repeat(8 << 10);
        let id = DriverId::from_bytes([1; 16]).task(3);
        let row = TaskRow {
            error: Some(first_line(&wall)),
            ..TaskRow::example(id)
        };
        let listed = Listed {
            rows: Rows::Tasks(vec![row; Rows::MAX]),
            next: None,
            silent: Vec::new(),
        };
        let answer = Response::Listed(Box::new(listed));
        let frame = Frame {
            id: 1,
            message: answer,
        };
        assert!(wasmrun_model::wire::encode(&frame).is_ok());
        assert_eq!(first_line("one\ntwo"), "one");
    }

    #[test]
    fn a_task_keeps_its_place_as_its_attempts_go_on() {
        let id = DriverId::from_bytes([1; 16]).task(3);
        let [first, second] = [1, 2].map(|attempt| TaskRow {
            attempt,
            ..TaskRow::example(id)
        });
        assert_eq!(place(What::Tasks, &first), place(What::Tasks, &second));
        assert!(place(What::Attempts, &first) < place(What::Attempts, &second));
    }

    #[test]
    fn parts_of_a_job_are_one_row() {
        let part = |name: &str, node: &str, waiting, running, finished| JobRow {
            id: DriverId::from_bytes([1; 16]),
            name: name.into(),
            state: "running".into(),
            tenant: Default::default(),
            by: String::new(),
            is_detached: false,
            submitted_us: 5,
            age_ms: 1,
            took_ms: None,
            tasks: JobTasks {
                waiting,
                running,
                finished,
                ..JobTasks::default()
            },
            node: node.into(),
        };
        let parts = vec![part("", "n2", 0, 2, 3), part("j", "n1", 5, 1, 4)];
        let list = List::of(What::Jobs);
        let rows = merged_jobs(&list, parts.clone());
        let [row] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!((row.name.as_str(), row.node.as_str()), ("j", "n1"));
        let tasks = (row.tasks.waiting, row.tasks.running, row.tasks.finished);
        assert_eq!(tasks, (2, 3, 7));
        let none = list.clone().with("state", "failed");
        assert!(merged_jobs(&none, parts.clone()).is_empty());
        // Of one whose owner is lost nobody knows what it was.
        assert!(merged_jobs(&list, parts[..1].to_vec()).is_empty());
        // Two nodes have tasks of a driver after an adoption.
        let mut adopter = part("j", "n3", 0, 0, 1);
        adopter.submitted_us = 9;
        adopter.state = "failed".into();
        for mut owner in [parts[1].clone(), part("j", "n1", 0, 0, 1)] {
            let runs = owner.tasks.running > 0;
            if !runs {
                owner.state = "finished".into();
            }
            let rows = merged_jobs(&list, vec![adopter.clone(), owner]);
            let state = if runs { "running" } else { "failed" };
            assert_eq!((rows.len(), rows[0].submitted_us), (1, 5));
            assert_eq!((&*rows[0].state, &*rows[0].node), (state, "n1"));
        }
    }
}
