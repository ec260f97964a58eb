//! Tasks that other nodes run for this one, and that this one runs for others.
//!
//! Owns what goes with the messages of schedulers: what a task is to do, and what came of it. Must not:
//! send anything; that is [`Outgoing`], to be sent in order when the lock is released.

use std::collections::BTreeSet;
use std::sync::Arc;

use wasmrun_model::failure::TaskError;
use wasmrun_model::fairness::{TenantConfig, TenantName};
use wasmrun_model::id::{ActorId, DriverId, Incarnation, NodeId, ObjectId, TaskId};
use wasmrun_model::resource::{Amount, NodeResources, Request, ResourceName};
use wasmrun_model::scheduler::{Event, Message, NodeInfo, Outcome, PeerView, Settings, TaskView};
use wasmrun_model::task::{Attempt, TaskSpec};
use wasmrun_model::time::Instant as ModelInstant;

use super::arguments::{missing, needs};
use super::unreported::Loss;
use super::{Entry, Incoming, Ledger, NodeNames, Outbound, Outgoing, Resuming, Todo};
use crate::records::actor::{ActorCell, Standing};
use crate::records::job::Argument;
use crate::records::lineage::Lineage;
use crate::records::object::{Object, Reference};
use crate::records::task::{Report, Work};

impl Ledger {
    /// From now on there may be other nodes.
    pub(crate) fn join_cluster(&mut self, lineage: Lineage, name_of: NodeNames) {
        self.is_clustered = true;
        self.lineage = lineage;
        self.name_of = name_of;
    }

    /// The lineage of results.
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Whether there may be other nodes.
    pub(crate) fn is_clustered(&self) -> bool {
        self.is_clustered
    }

    /// Another node tells what it has and does.
    pub(crate) fn peer_view(&mut self, node: NodeInfo, view: PeerView) -> Todo {
        self.happens(Event::PeerView {
            node,
            view: view.into(),
        })
    }

    /// Another node is a member, and will tell what it has. It may be that it was thought lost.
    pub(crate) fn node_expected(&mut self, node: NodeInfo) -> Todo {
        self.happens(Event::NodeExpected(node))
    }

    /// Nothing has happened but time.
    pub(crate) fn tick(&mut self) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        self.scheduler.note(now, Event::Tick);
        self.carry_out(now, None, &mut todo);
        todo
    }

    /// Whether a node takes new work.
    pub(crate) fn set_draining(&mut self, node: NodeId, is_draining: bool) -> Todo {
        self.happens(Event::SetDraining { node, is_draining })
    }

    /// What the node itself has.
    pub(crate) fn own_resources(&self) -> Option<&NodeResources> {
        let own = self.scheduler.own_nodes().first()?;
        self.scheduler.cluster().own(*own)
    }

    /// The node itself has so much of a resource from now on; none, and no such resource, if not given.
    pub(crate) fn set_resource(&mut self, name: ResourceName, amount: Option<Amount>) -> Todo {
        let own = self.scheduler.own_nodes().first();
        let Some(own) = own.map(|ix| self.scheduler.cluster()[*ix].id()) else {
            return Todo::default();
        };
        self.happens(match amount {
            Some(capacity) => Event::SetCapacity {
                node: own,
                name,
                capacity,
            },
            None => Event::DeleteResource { node: own, name },
        })
    }

    /// Whether another node can be spoken with.
    pub(crate) fn set_reachable(&mut self, node: NodeId, is_reachable: bool) -> Todo {
        self.happens(Event::SetReachable { node, is_reachable })
    }

    /// What a tenant is due from now on.
    pub(crate) fn set_tenant(&mut self, tenant: TenantName, config: TenantConfig) -> Todo {
        self.happens(Event::SetTenant {
            tenant,
            config: config.into(),
        })
    }

    /// How the scheduler decides from now on.
    pub(crate) fn configure(&mut self, settings: Settings) -> Todo {
        self.happens(Event::Configure(settings.into()))
    }

    pub(super) fn happens(&mut self, event: Event) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        self.changes += 1;
        self.scheduler.note(now, event);
        self.carry_out(now, None, &mut todo);
        todo
    }

    /// This node itself is gone, for the simulation.
    #[cfg(test)]
    pub(crate) fn lose_own(&mut self) -> Todo {
        let (node, incarnation) = (self.id, Incarnation(u64::MAX));
        self.happens(Event::NodeLost { node, incarnation })
    }

    /// Nodes are gone, and these drivers with them. `is_over`: so are those incarnations of them; else it was this node
    /// that was cut off.
    pub(crate) fn nodes_lost(
        &mut self,
        incarnations: &[(NodeId, Incarnation)],
        is_over: bool,
        drivers: &[DriverId],
    ) -> Todo {
        let mut todo = Todo::default();
        for (node, incarnation) in incarnations {
            self.node_lost(*node, *incarnation, is_over, &mut todo);
        }
        // Also what tasks of theirs have left behind here.
        for driver in drivers {
            self.end_work_of(driver, &mut todo);
        }
        todo
    }

    /// What a node that is gone had of ours is placed anew, what we have of its is nobody's any more.
    fn node_lost(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        is_over: bool,
        todo: &mut Todo,
    ) {
        let taken: Vec<TaskId> = self.scheduler.taken_from(node).collect();
        let had: BTreeSet<TaskId> = self.scheduler.given_to(node).collect();
        let hosted = had.iter().filter_map(|task| self.own_actor(task));
        let hosted: Vec<_> = hosted.filter(|it| it.at() == Some(node)).collect();
        self.losing = Some(Loss { node, had });
        let name = (self.name_of)(node);
        for actor in taken.iter().filter_map(|task| self.actor(task)) {
            let why = format!("node {name}, which owned it, is lost");
            actor.is_orphaned(TaskError::Sandbox(why));
        }
        let now = self.now();
        for actor in hosted {
            let why = TaskError::Sandbox(format!("node {name}, on which it lived, is lost"));
            self.dies(now, &actor, Some(why), todo);
            self.carry_out(now, None, todo);
        }
        self.changes += 1;
        let event = match is_over {
            true => Event::NodeLost { node, incarnation },
            false => Event::NodeUnseen { node, incarnation },
        };
        self.scheduler.note(now, event);
        self.carry_out(now, None, todo);
        self.losing = None;
        for task in taken {
            if self.tasks.get(&task).is_none_or(|it| it.from != Some(node)) {
                continue;
            }
            // One that is a running call has none: it is given some time.
            let family = self.family(task);
            let now = self.now();
            self.cancel_others(now, &family, task, todo);
            self.sweep(&task, todo);
        }
        let left = self.left_by_lost(node);
        if let [first, ..] = left[..] {
            let now = self.now();
            self.cancel_others(now, &left, first, todo);
        }
    }

    /// Another node's scheduler says something that comes with nothing else.
    pub(crate) fn message(&mut self, from: NodeId, message: Message) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        self.changes += 1;
        if let Message::Withdraw { task, .. } = &message
            && self.tasks.get(task).is_some_and(|it| it.from == Some(from))
        {
            if self.is_running_call(task) {
                // It comes to its end, and whoever does not want it hears of that. Where that is because its driver
                // is gone, we are told so.
                return todo;
            }
            let family = self.family(*task);
            self.cancel_others(now, &family, *task, &mut todo);
        }
        self.scheduler.note(
            now,
            Event::Message {
                from,
                message: message.into(),
            },
        );
        self.carry_out(now, None, &mut todo);
        todo
    }

    fn cancel_others(
        &mut self,
        now: ModelInstant,
        family: &[TaskId],
        but: TaskId,
        todo: &mut Todo,
    ) {
        self.end_what_was_left(family);
        for task in family.iter().filter(|task| **task != but) {
            self.scheduler.note(now, Event::Cancel(*task));
        }
        self.carry_out(now, None, todo);
    }

    /// Another node gives us a task.
    pub(crate) fn place(
        &mut self,
        mut spec: TaskSpec,
        attempt: Attempt,
        hops: u8,
        incoming: Incoming,
    ) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        let Incoming { from, call, cell } = incoming;
        let task = cell.id;
        self.changes += 1;
        // What is here and what is not, we know better than who sends it.
        spec.args = needs(&call);
        let entry = Entry {
            call: Some(call),
            cell,
            parent: None,
            children: Vec::new(),
            is_stopped: false,
            resuming: Resuming::No,
            keeps: None,
            from: Some(from),
            given: None,
        };
        let mut slot = None;
        if let Some(before) = self.tasks.get_mut(&task) {
            if before.from != Some(from) {
                // Ours, or another node's: it cannot be run for two at a time.
                todo.trash.calls.extend(entry.call);
                let message = Message::Settled {
                    task,
                    attempt,
                    outcome: Outcome::HandedBack,
                };
                let message = Box::new(Outgoing::Settled(message, None));
                self.outbox.push(Outbound::Say(from, message));
                return todo;
            }
            // The scheduler ends the attempt before this one, if it can: then this takes its place.
            self.incoming = Some(Box::new(entry));
        } else {
            slot = Some(self.insert(entry));
        }
        let message = Message::Place {
            spec,
            attempt,
            hops,
        };
        self.scheduler.note(
            now,
            Event::Message {
                from,
                message: message.into(),
            },
        );
        if let Some(slot) = slot {
            self.scheduler.mark(&task, slot);
        }
        self.carry_out(now, None, &mut todo);
        if let Some(unused) = self.incoming.take() {
            todo.trash.calls.extend(unused.call);
        }
        self.sweep(&task, &mut todo);
        todo
    }

    /// What came of an attempt that another node ran for us.
    pub(crate) fn settled(&mut self, from: NodeId, message: Message, report: Box<Report>) -> Todo {
        let now = self.now();
        let mut todo = Todo::default();
        self.changes += 1;
        self.count_stop(from, &message, &report);
        self.host_settled(now, from, &message, &report, &mut todo);
        let mut report = Some(report);
        // It was stopped there for another tenant. Where it is tried again is decided anew.
        if let Message::Settled {
            task,
            attempt,
            outcome: Outcome::HandedBack,
        } = &message
            && self.scheduler.is_at(task, *attempt, from)
        {
            self.counts.retried += 1;
            let ended = self.retried(task, attempt.next(), report.take());
            todo.retried.extend(ended);
        }
        self.scheduler.note(
            now,
            Event::Message {
                from,
                message: message.into(),
            },
        );
        self.carry_out(now, report, &mut todo);
        todo
    }

    /// A generation of an own actor has ended at its host: the actor decides whether another follows. Not so for an attempt to
    /// create one.
    fn host_settled(
        &mut self,
        now: ModelInstant,
        from: NodeId,
        message: &Message,
        report: &Report,
        todo: &mut Todo,
    ) {
        let Message::Settled { task, attempt, .. } = message else {
            return;
        };
        let actor = self.own_actor(task);
        if let Some(actor) = actor
            && actor.at() == Some(from)
            && self.scheduler.is_at(task, *attempt, from)
        {
            self.dies(now, &actor, report.result.clone().err(), todo);
        }
    }

    /// The actor of ours that a task creates.
    pub(crate) fn own_actor(&self, creation: &TaskId) -> Option<Arc<ActorCell>> {
        self.actor(creation).filter(|actor| !actor.is_foreign())
    }

    /// The actor that a task creates here.
    pub(crate) fn actor(&self, creation: &TaskId) -> Option<Arc<ActorCell>> {
        match &self.tasks.get(creation)?.cell.work {
            Work::Create(actor) => Some(actor.clone()),
            _ => None,
        }
    }

    /// An actor of ours lives, on another node that was given this attempt of its creation.
    pub(crate) fn lives(&mut self, actor: ActorId, attempt: Attempt, from: NodeId) -> Todo {
        let creation = actor.task();
        let own = self.own_actor(&creation);
        let Some(own) = own.filter(|_| self.scheduler.is_at(&creation, attempt, from)) else {
            // It is withdrawn already.
            return Todo::default();
        };
        own.lives_at(from);
        let node = from;
        let todo = self.happens(Event::ActorCreated { actor, node });
        self.tell_standing(&own);
        todo
    }

    /// The owner of an actor says where it stands. `cell` is the actor, where somebody here knows it.
    pub(crate) fn stands(
        &mut self,
        actor: ActorId,
        cell: Option<&ActorCell>,
        standing: Standing,
    ) -> Todo {
        let event = match standing {
            // What is here, and what is not, this node knows best; and that it is to live here.
            Standing::At(node) if node == self.id => return Todo::default(),
            Standing::At(_) | Standing::Away if self.tasks.contains(&actor.task()) => {
                return Todo::default();
            }
            Standing::At(node) => {
                if let Some(cell) = cell {
                    cell.lives_at(node);
                }
                Event::ActorCreated { actor, node }
            }
            Standing::Away => {
                if let Some(cell) = cell {
                    cell.is_away();
                }
                Event::ActorDied {
                    actor,
                    will_restart: true,
                }
            }
            Standing::Dead(why) => {
                if let Some(cell) = cell {
                    cell.set_death(why);
                    cell.ends();
                }
                Event::ActorDied {
                    actor,
                    will_restart: false,
                }
            }
        };
        self.happens(event)
    }

    /// Forgets a task of another node's that the scheduler knows nothing of any more.
    pub(super) fn sweep(&mut self, task: &TaskId, todo: &mut Todo) {
        let is_over = self.tasks.get(task).is_some_and(|it| it.from.is_some())
            && self.scheduler.phase(task).is_none();
        if is_over && let Some(entry) = self.tasks.remove(task) {
            self.leave(entry, todo);
        }
    }

    /// What another node's task leaves behind here.
    fn leave(&mut self, entry: Entry, todo: &mut Todo) {
        if let Some(owner) = entry.from {
            self.leave_behind(entry.cell.id, owner, entry.children);
        }
        todo.trash.calls.extend(entry.call);
        todo.resume.extend(entry.resuming.abandon());
        if let Work::Create(actor) = &entry.cell.work {
            self.bury(actor, None, todo);
            // Its calls that are here hear from its owner where they are to go.
            let event = Event::ActorDied {
                actor: actor.id,
                will_restart: true,
            };
            let now = self.now();
            self.scheduler.note(now, event);
            if actor.is_foreign() {
                self.outbox.push(Outbound::CreationLeft(actor.name()));
            }
        }
    }

    /// A message to another node, with what belongs to it.
    pub(super) fn send(
        &mut self,
        to: NodeId,
        message: Message,
        report: &mut Option<Box<Report>>,
        todo: &mut Todo,
    ) {
        let outgoing = match &message {
            Message::Place { spec, .. } => {
                let entry = self.tasks.get(&spec.id);
                let call = entry.and_then(|entry| Some((entry, entry.call.as_ref()?.try_clone()?)));
                match call {
                    Some((entry, call)) => Outgoing::Place(message, entry.cell.clone(), call),
                    // It has ended meanwhile.
                    None => return,
                }
            }
            Message::Settled { task, attempt, .. } => {
                let task = *task;
                // What is here by now may be a later attempt, or an earlier one that an executor still has.
                let is_earlier = |there: TaskView| *attempt < there.attempt;
                let is_over = self.tasks.get(&task).is_some_and(|it| it.from == Some(to))
                    && self.scheduler.task(&task).is_none_or(is_earlier);
                let report = report.take_if(|report| report.id == task && is_over);
                let report = match report {
                    None if is_over => self.why_moved(&message),
                    report => report,
                };
                let report = report.or_else(|| self.why_never_ran(&task, &message, is_over));
                if is_over && let Some(entry) = self.tasks.remove(&task) {
                    self.leave(entry, todo);
                    if let Some(next) = self.incoming.take() {
                        self.insert(*next);
                    }
                }
                Outgoing::Settled(message, report)
            }
            _ => Outgoing::Message(message),
        };
        self.outbox.push(Outbound::Say(to, Box::new(outgoing)));
    }

    /// The report of another node's task that fails before it runs.
    fn why_never_ran(
        &self,
        task: &TaskId,
        message: &Message,
        is_over: bool,
    ) -> Option<Box<Report>> {
        let Message::Settled {
            outcome: Outcome::Failed(_),
            ..
        } = message
        else {
            return None;
        };
        let entry = self.tasks.get(task).filter(|_| is_over)?;
        match &entry.cell.work {
            Work::Create(actor) => {
                let why = actor.death().unwrap_or(TaskError::Cancelled);
                return Some(Box::new(Report {
                    stderr_tail: actor.stderr_tail(),
                    ..*Report::never_ran(&entry.cell, why)
                }));
            }
            Work::Call(actor, _) if !actor.is_here() => {
                return Some(Report::never_ran(&entry.cell, actor.died()));
            }
            _ => {}
        }
        let call = entry.call.as_ref()?;
        let of_tasks = call.values.iter().filter_map(|value| match value {
            Argument::Object(Object(Reference::Task(cell))) => Some(cell.object().id),
            _ => None,
        });
        let mut failures =
            of_tasks.filter_map(|object| missing(Some(call), &object, &self.name_of));
        let refused = || match &entry.cell.work {
            // It may be here still, about to stop, where its owner is lost.
            Work::Call(actor, _) => actor.died(),
            _ => TaskError::Unschedulable("the node that was chosen refused it".into()),
        };
        let error = failures.next().unwrap_or_else(refused);
        Some(Report::never_ran(&entry.cell, error))
    }

    /// A task here lacks these objects.
    pub(super) fn fetch(&mut self, task: &TaskId, objects: &[ObjectId], todo: &mut Todo) {
        let call = self.tasks.get(task).and_then(|entry| entry.call.as_ref());
        let values = call.into_iter().flat_map(|call| &call.values);
        let lacking = values.filter_map(|value| match value {
            Argument::Object(Object(Reference::Task(cell))) => Some(cell),
            _ => None,
        });
        let lacking = lacking.filter(|cell| objects.contains(&cell.object().id));
        todo.fetch.extend(lacking.cloned());
    }

    /// Whether another node has this attempt of a task that was submitted here.
    pub(crate) fn is_at(&self, task: &TaskId, attempt: Attempt, node: NodeId) -> bool {
        self.scheduler.is_at(task, attempt, node)
    }

    /// The other node that a task which was submitted here is with, if it is with one.
    pub(crate) fn peer(&self, task: &TaskId) -> Option<NodeId> {
        self.scheduler.peer(task)
    }

    /// Who listens to what a task writes that another node runs for us.
    pub(crate) fn listener(&self, task: &TaskId) -> Option<wasmrun_engine::Listener> {
        let entry = self.tasks.get(task)?;
        entry.call.as_ref()?.listener.clone()
    }

    /// A node took so long to send us some bytes.
    pub(crate) fn note_transfer(&mut self, from: NodeId, bytes: u64, took: std::time::Duration) {
        self.scheduler.note_transfer(from, bytes, took);
    }

    /// Whether this node has free what is asked for.
    pub(crate) fn has_room(&self, request: &Request) -> bool {
        self.scheduler.has_room(request)
    }

    /// What this node tells the others about itself. The version is for the caller to fill in.
    pub(crate) fn own_view(&self) -> PeerView {
        self.scheduler.own_view()
    }
}
