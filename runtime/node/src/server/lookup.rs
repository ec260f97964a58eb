//! Which task, actor or job a text stands for, at whichever node it is.
//!
//! Owns finding it by its id, the beginning of that, or its name, and describing actors and jobs. Must not: choose among
//! several that fit; hand a tenant what is another's. Invariants: a whole id comes before names of jobs, and a name before
//! beginnings of ids; where several fit, the refusal says which.
//!
//! An actor and the task that is its creation have one id, and are one thing here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use wasmrun_model::id::{ActorId, DriverId, IdPrefix, TaskId};
use wasmrun_model::wire::{
    ActorDetail, ActorRow, JobDetail, List, Refusal, RefusalKind, Response, Rows, Silent, TaskRow,
    What,
};

use super::Inner;
use super::gather::WHOLE_ID;
use super::merge::{weight, with_silent};
use super::rows;
use super::session::{Session, refusal};
use super::views::{self, Asker};
use crate::peers::ask::{Answer, Question, Thing, ThingId};
use crate::records::dead::FAILED;
use crate::records::log::ActorLog;
use crate::records::task::Work;

/// How many things a node names that an id may begin.
const MOST_THINGS: usize = 16;
/// How many are shown to whoever gave it.
const SHOWN: usize = 8;
/// How many tasks of a job are explained: those that are not running come first.
const EXPLAINED: usize = 8;
/// What is said of an actor that has ended.
const ENDED: &str = "ended";

/// Whether an actor in this state is over.
pub(super) fn is_over(state: &str) -> bool {
    state == ENDED || state == FAILED
}

/// Whether what has a name is over.
fn has_ended(thing: &Thing) -> bool {
    match thing.id {
        ThingId::Job(_) => thing.state != "running",
        ThingId::Actor(_) | ThingId::Task(_) => is_over(&thing.state),
    }
}

/// What an id or a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meant {
    Task(TaskId),
    /// With its name, if it has one.
    Actor(ActorId, Option<String>),
    Job(DriverId),
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name, state, node, ..
        } = self;
        match self.id {
            ThingId::Task(id) => write!(f, "task {id} ({name}, {state}, node {node})"),
            ThingId::Actor(id) if name.is_empty() => write!(f, "actor {id} ({state}, node {node})"),
            ThingId::Actor(id) => write!(f, "actor {id} ({name}, {state}, node {node})"),
            ThingId::Job(id) if name.is_empty() => write!(f, "job {id} (node {node})"),
            ThingId::Job(id) => write!(f, "job {id} ({name}, {state}, node {node})"),
        }
    }
}

/// What this node knows that a text may stand for, of whoever asks: at most [`MOST_THINGS`].
pub(super) fn things(inner: &Inner, asker: Asker<'_>, text: &str) -> Vec<Thing> {
    if text.is_empty() {
        return Vec::new();
    }
    let prefix = IdPrefix::parse(text);
    let actors = actors(inner, asker, text, prefix);
    let named = || actors.iter().filter(|thing| thing.name == text);
    // Of actors that had the name one after the other, the one that has it now, else the last.
    let lives = named().find(|it| !is_over(&it.state));
    if let Some(actor) = lives.or_else(|| named().next()) {
        return vec![actor.clone()];
    }
    // A whole id is never meant as a name: functions give jobs theirs.
    let is_whole = prefix.is_some_and(|prefix| prefix.whole::<{ WHOLE_ID / 2 }>().is_some());
    let mut jobs_named = jobs(inner, asker, |_, name| !is_whole && name == text);
    if !jobs_named.is_empty() {
        jobs_named.truncate(MOST_THINGS);
        return jobs_named;
    }
    let Some(prefix) = prefix else {
        return Vec::new();
    };
    let is_actor = |task: &TaskId| {
        let id = ThingId::Actor(task.actor());
        actors.iter().any(|thing| thing.id == id)
    };
    let mut tasks = rows::begun_so(inner, asker, prefix, MOST_THINGS);
    tasks.retain(|row| !is_actor(&row.id));
    let tasks = tasks.into_iter().map(|row| Thing {
        id: ThingId::Task(row.id),
        name: row.name,
        state: row.state,
        node: row.node,
    });
    let jobs = jobs(inner, asker, |id, _| prefix.begins(id));
    let all = actors.iter().cloned().chain(jobs).chain(tasks);
    all.take(MOST_THINGS).collect()
}

/// The asker's jobs that `fits` says yes to, by their ids and names: those that run first.
fn jobs(inner: &Inner, asker: Asker<'_>, fits: impl Fn(&DriverId, &str) -> bool) -> Vec<Thing> {
    inner.shared.ask(|ledger| {
        let own = ledger.jobs.iter().filter_map(|(id, job)| {
            let about = job.about.as_ref()?;
            let is_meant = asker.owns(&about.tenant, *id) && fits(id, &about.name);
            is_meant.then(|| Thing {
                id: ThingId::Job(*id),
                name: about.name.clone(),
                state: job.state().to_owned(),
                node: inner.name(),
            })
        });
        let mut own: Vec<Thing> = own.collect();
        own.sort_by_key(has_ended);
        own
    })
}

/// The asker's actors that have this name, or whose ids begin so: those that live, those that have failed, and those
/// that have ended and of whose output something is kept, the youngest first.
fn actors(inner: &Inner, asker: Asker<'_>, name: &str, prefix: Option<IdPrefix>) -> Vec<Thing> {
    let names = inner.shared.names.all();
    let begins = |id: &ActorId| prefix.is_some_and(|prefix| prefix.begins(id));
    let fits = |id: &ActorId, its: &Option<String>| its.as_deref() == Some(name) || begins(id);
    let thing = |id: ActorId, name: Option<&String>, state: &str| Thing {
        id: ThingId::Actor(id),
        name: name.cloned().unwrap_or_default(),
        state: state.to_owned(),
        node: inner.name(),
    };
    let mut all: Vec<Thing> = inner.shared.ask(|ledger| {
        let named = names.iter().filter(|(_, its)| *its == name);
        let named = named.filter_map(|(id, _)| ledger.cell(&id.task()));
        let begun = prefix.into_iter().flat_map(|it| ledger.cells_with(it));
        let live = named.chain(begun.cloned());
        let live = live.filter_map(|cell| match &cell.work {
            Work::Create(actor) if asker.owns(&cell.work.terms().tenant, cell.driver) => {
                let state = ledger.phase(&cell.id).map_or(ENDED, |it| it.name());
                Some(thing(actor.id, names.get(&actor.id), state))
            }
            _ => None,
        });
        let mut all: Vec<Thing> = live.collect();
        let dead = ledger.dead.iter();
        let dead = dead.filter(|it| fits(&it.id, &it.name) && asker.owns(&it.tenant, it.driver));
        all.extend(dead.map(|it| thing(it.id, it.name.as_ref(), FAILED)));
        all
    });
    let known: BTreeSet<ThingId> = all.iter().map(|it| it.id).collect();
    let is_own = |it: &ActorLog| fits(&it.id, &it.name) && asker.owns(&it.tenant, it.driver);
    let logged = inner.shared.actor_logs.find(is_own);
    let logged = logged
        .iter()
        .map(|it| thing(it.id, it.name.as_ref(), ENDED));
    all.extend(logged.filter(|it| !known.contains(&it.id)));
    all
}

/// What a text stands for, of what nodes have named.
///
/// # Errors
/// When that is nothing, or more than one thing.
fn one(asker: Asker<'_>, text: &str, all: Vec<Thing>, silent: &[Silent]) -> Result<Meant, Refusal> {
    let mut things: BTreeMap<ThingId, Thing> = BTreeMap::new();
    for thing in all {
        let known = things.entry(thing.id).or_insert_with(|| thing.clone());
        let name = match known.name.is_empty() {
            true => thing.name.clone(),
            false => known.name.clone(),
        };
        let is_better = match (&thing.id, is_over(&thing.state), is_over(&known.state)) {
            // One node has adopted what is left of another's.
            (ThingId::Job(_), ..) => has_ended(known) && !has_ended(&thing),
            // It lives elsewhere by now, or there is more to be told of it.
            (ThingId::Actor(_), is_over, known_is) if is_over || known_is => {
                !is_over || known_is && known.state == ENDED
            }
            _ => weight(&thing.state) > weight(&known.state),
        };
        if is_better {
            *known = thing;
        }
        known.name = name;
    }
    let is_called = |thing: &Thing| !matches!(thing.id, ThingId::Task(_)) && thing.name == text;
    let is_named = things.values().any(is_called);
    if is_named {
        // That an id begins like the name of an actor or a job is an accident.
        things.retain(|_, thing| is_called(thing));
        if things.values().any(|thing| !has_ended(thing)) {
            things.retain(|_, thing| !has_ended(thing));
        }
    }
    let shown: String = text.chars().take(80).collect();
    let Some((_, thing)) = things.pop_first() else {
        let why = format_args!(
            "there is no task, actor or job '{shown}' of tenant '{}'; `wasmrun list tasks`, `list actors` and `list \
             jobs` show what there is, and whose",
            asker.tenant
        );
        return Err(with_silent(refusal(RefusalKind::NotFound, why), silent));
    };
    if things.is_empty() {
        let name = Some(thing.name).filter(|name| !name.is_empty());
        return Ok(match thing.id {
            ThingId::Task(id) => Meant::Task(id),
            ThingId::Actor(id) => Meant::Actor(id, name),
            ThingId::Job(id) => Meant::Job(id),
        });
    }
    let all = std::iter::once(thing).chain(things.into_values());
    let all: Vec<String> = all.map(|thing| thing.to_string()).collect();
    let more = match all.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let all = all[..all.len().min(SHOWN)].join(", ");
    let why = match is_named {
        true => format!("'{shown}' is the name of more than one: {all}{more}; give an id"),
        false => format!("'{shown}' begins the id of more than one: {all}{more}; give more of it"),
    };
    Err(refusal(RefusalKind::Ambiguous, why))
}

impl Session {
    /// What a text stands for, at whichever node.
    pub(super) async fn meant(&self, text: &str) -> Result<Meant, Refusal> {
        let own = things(&self.inner, self.asker(), text);
        let is_whole = |thing: &Thing| match thing.id {
            ThingId::Task(id) => text.len() == WHOLE_ID && id.to_string() == text,
            ThingId::Actor(_) | ThingId::Job(_) => false,
        };
        if own.iter().any(is_whole) {
            return one(self.asker(), text, own, &[]);
        }
        let asked = self.asked(Question::Things(text.to_owned()));
        let all = self.others(&asked).await;
        let of_others = all
            .answers
            .into_iter()
            .filter_map(|(_, answer)| match answer {
                Answer::Things(things) => Some(things),
                _ => None,
            });
        let things = own.into_iter().chain(of_others.flatten()).collect();
        let found = one(self.asker(), text, things, &all.silent);
        found.map_err(|why| self.with_lost(why))
    }

    /// What there is not may have been a lost node's, which alone could tell how it ended.
    fn with_lost(&self, mut why: Refusal) -> Refusal {
        let members = self.inner.cluster().map(|it| it.members());
        let lost = members.into_iter().flatten();
        let lost = lost.filter(|it| it.state == "dead").map(|it| it.name);
        let lost: Vec<String> = lost.take(SHOWN).collect();
        if why.kind == RefusalKind::NotFound && !lost.is_empty() {
            let is_one = lost.len() == 1;
            let nodes = if is_one { "node" } else { "nodes" };
            let (are, them) = if is_one {
                ("is", "it")
            } else {
                ("are", "them")
            };
            let lost = lost.join(", ");
            why.message.push_str(&format!(
                "; {nodes} {lost} {are} lost, and what was there and could not go on elsewhere ended with {them}"
            ));
        }
        why
    }

    /// Everything about what a text stands for.
    pub(super) async fn describe(&self, text: &str) -> Result<Response, Refusal> {
        let is_longer = text.len() > WHOLE_ID && IdPrefix::parse(text).is_some();
        // Nothing else has so long an id.
        if is_longer {
            return self.describe_object(text).await;
        }
        let meant = match self.meant(text).await {
            Err(why) if why.kind == RefusalKind::NotFound => {
                return self.describe_object_or(text, why).await;
            }
            meant => meant?,
        };
        Ok(match meant {
            Meant::Task(id) => {
                let task = self.find_task(id).await?;
                Response::Task(Box::new(task.whole()))
            }
            Meant::Actor(id, name) => {
                Response::ActorDetail(Box::new(self.describe_actor(id, name).await?))
            }
            Meant::Job(id) => Response::Job(Box::new(self.describe_job(id).await?)),
        })
    }

    async fn describe_actor(
        &self,
        id: ActorId,
        name: Option<String>,
    ) -> Result<ActorDetail, Refusal> {
        let Ok(creation) = self.find_task(id.task()).await else {
            return Err(self.actor_ended(id, name.as_deref()).await);
        };
        let creation = creation.whole();
        // Of one that was ended nothing is kept but what it wrote.
        if creation.row.run.is_some() && creation.row.state != FAILED {
            return Err(self.actor_ended(id, name.as_deref()).await);
        }
        let listed = self.list_all(List::of(What::Actors).with("id", id)).await;
        let Rows::Actors(mut rows) = listed.rows else {
            unreachable!("actors were asked for");
        };
        let task = creation.row;
        let row = rows.pop().unwrap_or_else(|| ActorRow {
            id,
            name,
            class: task.name.clone(),
            state: task.state.clone(),
            tenant: task.tenant.clone(),
            job: task.job,
            node: task.node.clone(),
            generation: 0,
            calls: 0,
            state_bytes: None,
            failure: task.error.clone(),
        });
        Ok(ActorDetail {
            row,
            is_detached: task.is_detached,
            age_ms: task.age_ms,
            explanation: creation.explanation,
        })
    }

    /// Everything about one job.
    ///
    /// # Errors
    /// When it is forgotten meanwhile, or its owner does not answer.
    pub(super) async fn describe_job(&self, id: DriverId) -> Result<JobDetail, Refusal> {
        let listed = self.list_all(List::of(What::Jobs).with("id", id)).await;
        let Rows::Jobs(mut rows) = listed.rows else {
            unreachable!("jobs were asked for");
        };
        let row = rows.pop().ok_or_else(|| {
            let why = format_args!(
                "there is no job {id} any more; `wasmrun list jobs` shows those that are remembered"
            );
            with_silent(refusal(RefusalKind::NotFound, why), &listed.silent)
        })?;
        let listed = self.list_all(List::of(What::Tasks).with("job", id)).await;
        let Rows::Tasks(mut tasks) = listed.rows else {
            unreachable!("tasks were asked for");
        };
        let asker = self.asker();
        tasks.retain(|row| asker.owns(&row.tenant, row.job));
        Ok(JobDetail {
            row,
            tasks,
            silent: listed.silent,
        })
    }

    /// Where what a text stands for stands, and why, in words.
    pub(super) async fn explain(&self, text: &str) -> Result<String, Refusal> {
        match self.meant(text).await? {
            Meant::Task(id) => {
                let task = self.find_task(id).await?;
                Ok(views::explained(task.whole()))
            }
            Meant::Actor(id, name) => {
                let detail = self.describe_actor(id, name).await?;
                let ActorRow {
                    class, state, node, ..
                } = &detail.row;
                Ok(match detail.explanation {
                    Some(why) if state == FAILED => {
                        format!("actor {id}, a {class}, has failed: {why}")
                    }
                    Some(why) => format!(
                        "actor {id}, a {class}, is {state} at node {node}; its creation:\n{why}"
                    ),
                    None => format!("actor {id}, a {class}, is {state} at node {node}"),
                })
            }
            Meant::Job(id) => self.explain_job(id).await,
        }
    }

    /// How many tasks a job has in which state, and why those are there that do not run.
    async fn explain_job(&self, id: DriverId) -> Result<String, Refusal> {
        let JobDetail { tasks, silent, .. } = self.describe_job(id).await?;
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &tasks {
            *states.entry(&row.state).or_default() += 1;
        }
        let states = states
            .iter()
            .map(|(state, count)| format!("{count} {state}"));
        let states: Vec<String> = states.collect();
        let mut text = format!("job {id}: {}", states.join(", "));
        let waits = |row: &&TaskRow| weight(&row.state) < 2 && row.state != "running";
        let waiting: Vec<&TaskRow> = tasks.iter().filter(waits).collect();
        for row in waiting.iter().rev().take(EXPLAINED) {
            // It may end meanwhile.
            if let Ok(task) = self.find_task(row.id).await {
                text.push_str(&format!(
                    "\n\n{}: {}",
                    row.name,
                    views::explained(task.whole())
                ));
            }
        }
        match waiting.len().saturating_sub(EXPLAINED) {
            0 => {}
            more => text.push_str(&format!("\n\nand {more} more that wait")),
        }
        for Silent { node, why } in silent {
            text.push_str(&format!("\nnode {node} did not answer: {why}"));
        }
        Ok(text)
    }

    /// Ends what a text stands for: a task, all live tasks of a job, an actor.
    pub(super) async fn cancel(&self, text: &str) -> Result<Response, Refusal> {
        match self.meant(text).await? {
            Meant::Task(id) => self.cancel_task(id).await,
            Meant::Actor(id, name) => match self.cancel_task(id.task()).await {
                Err(why) if why.kind == RefusalKind::NotFound => {
                    Err(self.actor_ended(id, name.as_deref()).await)
                }
                done => done,
            },
            Meant::Job(id) => self.cancel_job(id).await,
        }
    }

    /// That an actor has failed, and how, if that is remembered.
    pub(super) async fn actor_failed(&self, id: ActorId, name: Option<&str>) -> Option<String> {
        let creation = self.find_task(id.task()).await.ok()?.whole();
        let why = creation
            .explanation
            .filter(|_| creation.row.state == FAILED)?;
        let named = match name {
            Some(name) => format!("'{name}' any more: that was actor {id}, and"),
            None => format!("{id} any more:"),
        };
        Some(format!(
            "there is no actor {named} {why}; `wasmrun logs {id}` shows what is kept of what it wrote"
        ))
    }

    /// That an actor is over, and why if that is remembered.
    async fn actor_ended(&self, id: ActorId, name: Option<&str>) -> Refusal {
        let why = self.actor_failed(id, name).await.unwrap_or_else(|| {
            let named = name.map(|name| format!(" '{name}'")).unwrap_or_default();
            format!(
                "actor{named} {id} has ended; `wasmrun logs {id}` shows what is kept of what it wrote"
            )
        });
        refusal(RefusalKind::NotFound, why)
    }

    async fn cancel_job(&self, id: DriverId) -> Result<Response, Refusal> {
        let asked = self.asked(Question::CancelJob(id));
        let own = views::cancel_job(&self.inner, self.asker(), id);
        let all = self.others(&asked).await;
        let of_others = all.answers.iter().map(|(_, answer)| match answer {
            Answer::Count(count) => *count,
            _ => 0,
        });
        let cancelled = own + of_others.sum::<u64>();
        if cancelled > 0 {
            return Ok(Response::Done);
        }
        let why = format_args!(
            "there is nothing to cancel: all tasks of job {id} that tenant '{}' has submitted have ended",
            self.tenant
        );
        Err(with_silent(
            refusal(RefusalKind::NotFound, why),
            &all.silent,
        ))
    }
}

#[cfg(test)]
mod tests {
    use wasmrun_model::fairness::TenantName;

    use super::*;

    fn thing(id: ThingId, name: &str, state: &str, node: &str) -> Thing {
        Thing {
            id,
            name: name.into(),
            state: state.into(),
            node: node.into(),
        }
    }

    fn found(text: &str, all: Vec<Thing>) -> Result<Meant, Refusal> {
        let asker = Asker {
            tenant: &TenantName::default(),
            driver: DriverId::from_bytes([9; 16]),
            tenants: &wasmrun_model::access::Tenants::All,
        };
        one(asker, text, all, &[])
    }

    const TASK: TaskId = TaskId::from_bytes([0x31; 16]);
    const ACTOR: ActorId = ActorId::from_bytes([0x32; 16]);
    const JOB: DriverId = DriverId::from_bytes([0x33; 16]);

    #[test]
    fn what_is_alone_is_meant() {
        let task = |state, node| thing(ThingId::Task(TASK), "f", state, node);
        let twice = vec![task("placeable", "a"), task("running", "b")];
        assert_eq!(found("3", twice), Ok(Meant::Task(TASK)));
        let job = thing(ThingId::Job(JOB), "", "", "a");
        assert_eq!(found("3", vec![job.clone(), job]), Ok(Meant::Job(JOB)));
    }

    #[test]
    fn of_jobs_of_one_name_the_one_that_runs_is_meant() {
        let job = |id, state, node| thing(ThingId::Job(id), "j", state, node);
        let other = DriverId::from_bytes([1; 16]);
        let all = vec![
            job(JOB, "finished", "lost"),
            job(JOB, "running", "adopter"),
            job(other, "failed", "a"),
        ];
        assert_eq!(found("j", all), Ok(Meant::Job(JOB)));
    }

    #[test]
    fn a_name_comes_before_ids_and_the_living_before_the_dead() {
        let lives = thing(ThingId::Actor(ACTOR), "31", "running", "a");
        let hosted = thing(ThingId::Actor(ACTOR), "", "running", "b");
        let task = thing(ThingId::Task(TASK), "f", "running", "a");
        let dead = thing(
            ThingId::Actor(ActorId::from_bytes([1; 16])),
            "31",
            ENDED,
            "c",
        );
        let all = vec![task, hosted, dead, lives];
        assert_eq!(found("31", all), Ok(Meant::Actor(ACTOR, Some("31".into()))));
    }

    #[test]
    fn whoever_gives_the_beginning_of_several_is_told_which() {
        let all = vec![
            thing(ThingId::Task(TASK), "f", "ready", "a"),
            thing(ThingId::Actor(ACTOR), "total", "running", "b"),
            thing(ThingId::Job(JOB), "", "", "a"),
        ];
        let why = found("3", all).expect_err("there are three");
        assert_eq!(why.kind, RefusalKind::Ambiguous);
        for part in [
            format!("task {TASK} (f, ready, node a)"),
            format!("actor {ACTOR} (total, running, node b)"),
            format!("job {JOB} (node a)"),
        ] {
            assert!(why.message.contains(&part), "{}", why.message);
        }
        let many = (0..12).map(|n| ThingId::Task(TaskId::from_bytes([n; 16])));
        let many = many.map(|id| thing(id, "f", "ready", "a")).collect();
        let why = found("0", many).expect_err("there are twelve");
        assert!(
            why.message.contains(" and 4 more; give more of it"),
            "{}",
            why.message
        );
    }

    #[test]
    fn what_is_not_there_is_said() {
        let why = found("total", Vec::new()).expect_err("there is nothing");
        assert!(
            why.message
                .starts_with("there is no task, actor or job 'total'")
        );
    }
}
