//! Requests about what all nodes of the cluster have, asked at this one.
//!
//! Owns asking the others and putting the answers together, and answering theirs ([`Desk`]). Must not: keep what
//! others have said; hand a tenant what is another's, at whichever node it is.
//!
//! A task that was given to another node is known to both: the node where it was submitted knows what it makes and how
//! it ends, the other one knows how it is with it. The same with actors. Invariant: each is shown once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use wasmrun_model::fairness::TenantName;
use wasmrun_model::id::{NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::wire::{
    List, Listed, Output, Refusal, RefusalKind, Response, Rows, TaskDetail, TaskRow, What,
};

use super::lookup::{self, Meant};
use super::requests::{log, outputs};
use super::rows::{self, merged_jobs};
use super::session::{Session, refusal};
use super::views::{self, Asker};
use super::{Inner, again, audit, groups, holding, lists, logs, resources, scheduling};
use crate::peers::ask::{Answer, Answers, Asked, Desk, Question};
use crate::records::object::{Object, Reference};
use crate::server::merge::{
    add, best_of, better, merged, merged_actors, sum_services, truncate, weight, with_silent,
};

impl Desk for Inner {
    fn answer(&self, asked: &Asked) -> Answer {
        let asker = Asker {
            tenant: &asked.tenant,
            driver: asked.driver,
            tenants: &asked.tenants,
        };
        let answer = match &asked.question {
            Question::List(list) => match list.what {
                // Every node knows the members and who has which share, and tokens are in the control store.
                What::Members | What::Tokens | What::Access | What::Due => Err(refusal(
                    RefusalKind::Usage,
                    "this list is not made of several nodes' answers",
                )),
                _ => Ok(Answer::Rows(lists::list(self, asker, list))),
            },
            Question::Describe(task) => views::describe(self, asker, task).map(|detail| {
                let is_own = views::is_own(self, &detail.row.id);
                Answer::Task {
                    detail: Box::new(detail),
                    is_own,
                }
            }),
            Question::Cancel(task) => views::cancel(self, asker, task).map(|()| Answer::Done),
            Question::Group(text) => {
                groups::find(self, asker, text).map(|row| Answer::Group(Box::new(row)))
            }
            Question::RemoveGroup(group) => {
                groups::remove(self, asker, group).map(|()| Answer::Done)
            }
            Question::Logs(task) => {
                log(self, asker, task).map(|log| Answer::Outputs(outputs(&log)))
            }
            Question::Given(task) => again::submission(self, asker, task),
            Question::LogsOf(tasks) => Ok(logs::of_tasks(self, asker, tasks)),
            Question::Things(text) => Ok(Answer::Things(lookup::things(self, asker, text))),
            Question::CancelJob(job) => Ok(Answer::Count(views::cancel_job(self, asker, *job))),
            Question::SetResource {
                name,
                amount,
                is_kept,
            } => resources::set(self, name, *amount, *is_kept).map(Answer::Text),
            Question::Scheduler => Ok(Answer::Text(scheduling::state(self))),
            Question::Object(prefix) => {
                let registry = self.registry();
                let found = registry.kept_by_prefix(&asked.tenant, prefix);
                found.map(|object| Answer::Object(object.name()))
            }
            Question::Holders(object) => {
                let (named, more) = holding::holders(self, asker, object);
                Ok(Answer::Holders { named, more })
            }
            Question::Delete(object) => match self.detached_object(&asked.tenant, object) {
                Some(_) => self.delete(object).map(|()| Answer::Done),
                None => Err(views::missing(&asked.tenant, "object", object)),
            },
        };
        answer.unwrap_or_else(Answer::Refused)
    }

    fn detached_object(&self, tenant: &TenantName, object: &ObjectId) -> Option<Reference> {
        let registry = self.registry();
        let (object, of) = registry.object(object)?;
        (of == tenant).then(|| object.0.clone())
    }

    fn outlives(&self, object: &ObjectId) -> bool {
        let durable = self.durable.get();
        durable.is_some_and(|it| it.is_placed(&object.task()))
    }

    fn has_moved(self: Arc<Self>, object: &ObjectId) {
        drop(self.place_again(object.task()));
    }

    fn has_left(self: Arc<Self>, object: &ObjectId, node: NodeId) {
        self.copy_has_left(object.task(), node);
    }

    fn has_come(&self, node: NodeId) {
        if let (Some(durable), Some(cluster)) = (self.durable.get(), self.cluster())
            && durable.knows_own_in(cluster.incarnation())
        {
            self.claim_places(durable, |holder| holder == node);
        }
    }

    fn is_kept_by(&self, node: NodeId, object: &ObjectId) -> bool {
        let durable = self.durable.get();
        durable.is_some_and(|it| it.has_copy_again(&object.task(), node))
    }

    fn place_results(self: Arc<Self>) -> BoxFuture<'static, ()> {
        let placing = async move {
            for (object, why) in self.place_all().await {
                tracing::debug!(%object, %why, "the result of a detached task is kept by no other node");
            }
        };
        placing.boxed()
    }
}

impl Inner {
    /// Keeps an object no more, or what a task has made.
    pub(super) fn delete(&self, id: &ObjectId) -> Result<(), Refusal> {
        let deleted = self.registry().delete(id);
        if deleted.is_none() {
            let why = "the task that makes it has not ended; cancel that first";
            return Err(refusal(RefusalKind::Usage, why));
        }
        if let Some(durable) = self.durable.get() {
            durable.forget(&id.task());
        }
        Ok(())
    }
}

impl Session {
    /// A list of what all nodes have, or of what each of them knows.
    pub(super) async fn list(&self, list: List) -> Result<Response, Refusal> {
        let rows = match list.what {
            What::Tokens => self.tokens(&list).await?,
            What::Access => self.access(&list).await?,
            What::Members | What::Due => lists::list(&self.inner, self.asker(), &list),
            _ => return Ok(Response::Listed(Box::new(self.list_all(list).await))),
        };
        Ok(Response::Listed(Box::new(Listed {
            rows,
            next: None,
            silent: Vec::new(),
        })))
    }

    /// Where what a text stands for stands, and why: a placement group, too.
    pub(super) async fn explain_any(&self, text: &str) -> Result<Response, Refusal> {
        let explained = match self.explain(text).await {
            Err(why) if why.kind == RefusalKind::NotFound => {
                let group = self.find_group(text, Some(Duration::ZERO)).await;
                let explained = group.map(|(_, row)| groups::explained(&row));
                explained.map_err(|of_group| groups::more_telling(why, of_group))
            }
            explained => explained,
        };
        explained.map(Response::Text)
    }

    /// What all other nodes say; nothing where there are none.
    pub(super) async fn others(&self, asked: &Asked) -> Answers {
        match self.inner.cluster() {
            Some(cluster) => cluster.ask_all(asked).await,
            None => Answers::default(),
        }
    }

    /// What one node says, which may be this one.
    pub(super) async fn ask(&self, node: NodeId, asked: &Asked) -> Result<Answer, String> {
        match self.inner.cluster() {
            Some(cluster) if node != self.inner.shared.home.node => cluster.ask(node, asked).await,
            _ => Ok(self.inner.answer(asked)),
        }
    }

    pub(super) fn asked(&self, question: Question) -> Asked {
        Asked {
            tenant: self.tenant.clone(),
            driver: self.client.driver(),
            tenants: self.caller.access.tenants.clone(),
            question,
        }
    }

    pub(super) async fn list_all(&self, mut list: List) -> Listed {
        for (_, text) in list
            .filters
            .iter_mut()
            .filter(|(field, _)| field == "actor")
        {
            // Its name is known to its owner alone.
            if text.len() < WHOLE_ID
                && let Ok(Meant::Actor(id, _)) = self.meant(text).await
            {
                *text = id.to_string();
            }
        }
        let lost = match list.what {
            What::Groups => groups::lost(&self.inner, self.asker(), &list),
            _ => Vec::new(),
        };
        let mut rows = lists::list(&self.inner, self.asker(), &list);
        let asked = self.asked(Question::List(list.clone()));
        let mut all = self.others(&asked).await;
        let mut horizon = rows::horizon(&list, &rows);
        let mut of_audit = audit::horizon(&list, &rows);
        for (_, answer) in all.answers.drain(..) {
            if let Answer::Rows(more) = answer {
                horizon = horizon.max(rows::horizon(&list, &more));
                of_audit = of_audit.max(audit::horizon(&list, &more));
                add(&mut rows, more);
            }
        }
        if let Rows::Audit(lines) = &mut rows {
            let next = audit::finish(&list, lines, of_audit);
            let silent = all.silent;
            return Listed { rows, next, silent };
        }
        match &mut rows {
            Rows::Tasks(attempts) if list.what == What::Attempts => {
                attempts.sort_by_key(|row| std::cmp::Reverse(rows::place(list.what, row)));
            }
            Rows::Tasks(tasks) => *tasks = merged(std::mem::take(tasks)),
            Rows::Actors(actors) => *actors = merged_actors(std::mem::take(actors)),
            Rows::Groups(groups) => {
                let known: BTreeSet<_> = groups.iter().map(|row| row.id).collect();
                groups.extend(lost.into_iter().filter(|row| !known.contains(&row.id)));
            }
            Rows::Jobs(jobs) => *jobs = merged_jobs(&list, std::mem::take(jobs)),
            Rows::Services(services) => sum_services(services),
            _ => {}
        }
        if let (Rows::Tasks(tasks), Some(horizon)) = (&mut rows, horizon) {
            // What is behind it comes with the next page: a node that has more may have some in between.
            tasks.retain(|row| rows::place(list.what, row) >= horizon);
        }
        truncate(&mut rows, list.page());
        let last = match &rows {
            Rows::Tasks(rows) if rows.len() >= list.page() => {
                rows.last().map(|row| rows::place(list.what, row))
            }
            Rows::Tasks(_) => horizon,
            Rows::Jobs(rows) if rows.len() >= list.page() => rows.last().map(rows::job_place),
            _ => None,
        };
        Listed {
            rows,
            next: last.map(rows::place_text),
            silent: all.silent,
        }
    }

    /// The one object whose id begins so, of those that nodes keep for this tenant. One of another node's is borrowed.
    pub(super) async fn kept_anywhere(&self, prefix: &str) -> Result<Object, Refusal> {
        let ObjectLocations { here, elsewhere } = match self.find_kept(prefix).await {
            Err(why) if why.kind == RefusalKind::NotFound => {
                return Err(self.ended_task(prefix).await.unwrap_or(why));
            }
            found => found?,
        };
        if let Some(object) = here {
            return Ok(object);
        }
        let (_, name) = elsewhere[0];
        let exchange = self.inner.exchange();
        let exchange = exchange.expect("who is in a cluster exchanges objects");
        Ok(Object(exchange.borrow_kept(name, &self.tenant)))
    }

    /// That a task has ended, and how, where its id is given for an object.
    async fn ended_task(&self, prefix: &str) -> Option<Refusal> {
        let Ok(Meant::Task(id)) = self.meant(prefix).await else {
            return None;
        };
        let task = self.find_task(id).await.ok()?.whole();
        let has_ended = task.explanation.is_none();
        has_ended.then(|| {
            let why = format!(
                "{}; there is no object of it: only results of detached tasks stay, until they are deleted",
                views::explained(task)
            );
            refusal(RefusalKind::NotFound, why)
        })
    }

    /// Deletes such an object, at whichever node.
    pub(super) async fn delete_anywhere(&self, prefix: &str) -> Result<Response, Refusal> {
        let ObjectLocations { here, elsewhere } = self.find_kept(prefix).await?;
        if let Some(object) = here {
            self.inner.delete(&object.id())?;
        }
        for (node, name) in elsewhere {
            let asked = self.asked(Question::Delete(name.id));
            let answer = self.ask(node, &asked).await.map_err(|why| {
                let why = format_args!("node {node}, which keeps it, does not do it: {why}");
                refusal(RefusalKind::Full, why)
            })?;
            if let Answer::Refused(why) = answer {
                return Err(why);
            }
        }
        Ok(Response::Done)
    }

    /// Where the one object is whose id begins so, of those that nodes keep for this tenant.
    async fn find_kept(&self, prefix: &str) -> Result<ObjectLocations, Refusal> {
        let own = self.kept_object(&self.inner.registry(), prefix).cloned();
        let (here, missing) = match own {
            // By its task's whole id, or its own.
            Ok(object) if prefix.len() >= WHOLE_ID => {
                return Ok(ObjectLocations {
                    here: Some(object),
                    elsewhere: Vec::new(),
                });
            }
            Ok(object) => (Some(object), None),
            Err(why) if why.kind == RefusalKind::Ambiguous => return Err(why),
            Err(why) => (None, Some(why)),
        };
        let asked = self.asked(Question::Object(prefix.to_owned()));
        let all = self.others(&asked).await;
        let mut elsewhere: Vec<(NodeId, ObjectName)> = Vec::new();
        for (node, answer) in all.answers {
            match answer {
                Answer::Object(name) => elsewhere.push((node, name)),
                Answer::Refused(why) if why.kind == RefusalKind::Ambiguous => return Err(why),
                _ => {}
            }
        }
        let known = here.as_ref().map(Object::id);
        let known = known.or(elsewhere.first().map(|(_, name)| name.id));
        // Two may keep the same for a moment, when one takes over what the other had.
        if elsewhere.iter().any(|(_, name)| Some(name.id) != known) {
            let ids = elsewhere.iter().map(|(_, name)| name.id).chain(known);
            let ids: BTreeSet<_> = ids.collect();
            return Err(views::ambiguous(prefix, "object", ids));
        }
        match missing {
            Some(why) if elsewhere.is_empty() => Err(with_silent(why, &all.silent)),
            _ => Ok(ObjectLocations { here, elsewhere }),
        }
    }

    /// The task with this id, at all nodes that know it.
    pub(super) async fn find_task(&self, id: TaskId) -> Result<TaskAnswers, Refusal> {
        let asked = self.asked(Question::Describe(id));
        let own = self.inner.answer(&asked);
        let all = match &own {
            // Nobody knows more of it.
            Answer::Task { detail, is_own } if *is_own && is_here(&detail.row) => {
                Answers::default()
            }
            _ => self.others(&asked).await,
        };
        let own = (self.inner.shared.home.node, own);
        let mut found = TaskAnswers::default();
        let mut missing = None;
        for (node, answer) in std::iter::once(own).chain(all.answers) {
            match answer {
                Answer::Task { detail, is_own } => found.0.push((node, *detail, is_own)),
                Answer::Refused(why) => missing = missing.or(Some(why)),
                _ => {}
            }
        }
        match found.0.is_empty() {
            false => Ok(found),
            true => {
                let missing = missing.expect("this node says why");
                Err(with_silent(missing, &all.silent))
            }
        }
    }

    /// Ends a task, at the node where it was submitted.
    pub(super) async fn cancel_task(&self, id: TaskId) -> Result<Response, Refusal> {
        let found = self.find_task(id).await?;
        let Some((node, detail, _)) = found.0.iter().find(|(_, _, is_own)| *is_own) else {
            let why = format_args!(
                "task {id} was submitted at a node that does not answer, and only that can cancel it"
            );
            return Err(refusal(RefusalKind::NotFound, why));
        };
        let asked = self.asked(Question::Cancel(id));
        let answer = self.ask(*node, &asked).await.map_err(|why| {
            let node = &detail.row.node;
            refusal(
                RefusalKind::Full,
                format_args!("node {node} does not do it: {why}"),
            )
        })?;
        match answer {
            Answer::Refused(why) => Err(why),
            _ => Ok(Response::Done),
        }
    }

    /// What is kept of what a task wrote, or the actor that it has created.
    pub(super) async fn logs_of(&self, id: TaskId) -> Result<Vec<Output>, Refusal> {
        let asked = self.asked(Question::Logs(id));
        let own = self.inner.answer(&asked);
        let mut all = match own {
            // Nobody keeps more of it.
            Answer::Outputs(outputs) => return Ok(outputs),
            _ => self.others(&asked).await,
        };
        let mut refused = Vec::new();
        for answer in std::iter::once(own).chain(all.answers.drain(..).map(|(_, it)| it)) {
            match answer {
                Answer::Outputs(outputs) => return Ok(outputs),
                Answer::Refused(why) => refused.push(why),
                _ => {}
            }
        }
        Err(best_of(refused, &all.silent))
    }
}

/// How many digits an id has.
pub(super) const WHOLE_ID: usize = 32;

/// Whether the node where a task was submitted has not given it to another.
fn is_here(row: &TaskRow) -> bool {
    weight(&row.state) > 0
}

/// Where an object is kept. Somewhere.
struct ObjectLocations {
    here: Option<Object>,
    elsewhere: Vec<(NodeId, ObjectName)>,
}

/// What nodes say of one task, and whether it was submitted there. Not empty.
#[derive(Default)]
pub(super) struct TaskAnswers(Vec<(NodeId, TaskDetail, bool)>);

impl TaskAnswers {
    /// All that is known.
    pub(super) fn whole(mut self) -> TaskDetail {
        let owner = self.0.iter().position(|(_, _, is_own)| *is_own);
        let (_, mut whole, _) = self.0.swap_remove(owner.unwrap_or(0));
        for (_, other, _) in self.0 {
            if let (Some(text), Some(more)) = (&mut whole.explanation, &other.explanation) {
                text.push_str(&format!("\nat node {}: {more}", other.row.node));
            }
            whole.row = better(whole.row, other.row);
        }
        whole
    }
}
