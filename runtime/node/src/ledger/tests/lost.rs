//! Attempts that end without a report of their own.

use wasmrun_engine::Wishes;
use wasmrun_model::id::ActorId;

use super::*;
use crate::actor::ActorOptions;
use crate::records::actor::ActorCell;
use crate::records::class::ActorJob;
use crate::testing::COUNTER;

const THERE: &str = "node:n2:soft";

/// The attempt, where it was, and how long it ran.
type RunSummary = (u32, Option<NodeId>, Duration);

fn run_summary(report: &Report) -> RunSummary {
    (report.attempt, report.ran_at, report.ran)
}

impl Desk {
    fn submit_work(&mut self, name: &str, work: Work, kind: TaskKind) -> TaskId {
        let id = match kind {
            TaskKind::Actor(actor) => actor.task(),
            _ => self.driver.task(self.tasks.len() as u64),
        };
        let terms = match &work {
            Work::Create(actor) => actor.job().terms.clone(),
            Work::Call(actor, _) => actor.face.call_terms.clone(),
            _ => unreachable!("it is of an actor"),
        };
        let cell = Arc::new(TaskCell::new(id, self.driver, work, Home::new(LOCAL)));
        self.tasks.push((name.into(), cell.clone()));
        let todo = self.ledger.submit(Submission {
            driver: self.driver,
            parent: None,
            terms,
            kind,
            call: Call::default(),
            cell,
            keeps: None,
            first: Attempt::FIRST,
        });
        assert!(self.carry_out(todo).is_empty(), "it is given away");
        id
    }

    /// Another node has a task.
    fn placed(&mut self, at: NodeId, task: TaskId) {
        let attempt = Attempt::FIRST;
        let todo = self.ledger.message(at, Message::Placed { task, attempt });
        assert!(self.carry_out(todo).is_empty());
    }

    /// A node says that the generation of an actor that it hosted has left for another tenant.
    fn has_left(&mut self, node: NodeId, task: TaskId) -> Todo {
        let report = Report {
            attempt: 1,
            ran_at: Some(node),
            ..*Report::never_ran(self.cell("actor"), preempted())
        };
        let message = Message::Settled {
            task,
            attempt: Attempt::FIRST,
            outcome: wasmrun_model::scheduler::Outcome::HandedBack,
        };
        self.ledger.settled(node, message, Box::new(report))
    }

    fn lose(&mut self, node: NodeId) -> Todo {
        let lost = [(node, Incarnation::default())];
        self.ledger.nodes_lost(&lost, true, &[])
    }
}

/// A desk with a peer, at which an actor lives, and a call of it that runs there.
fn with_actor(restarts: u32) -> (Desk, NodeId) {
    let mut desk = Desk::with(load(COUNTER), 1, 0, "4GiB");
    let peer = desk.join_peer();
    let class = desk.module.find_class("counter").unwrap();
    let wishes = Wishes {
        strategy: Some(THERE.to_owned()),
        restarts: Some(restarts),
        ..Wishes::default()
    };
    let options = ActorOptions {
        wishes,
        ..ActorOptions::default()
    };
    let job = ActorJob::new(&desk.module, class, options).unwrap();
    let id: ActorId = desk.driver.task(0).actor();
    let actor = Arc::new(ActorCell::new(id, LOCAL, Arc::new(job), None));
    let work = Work::Create(actor.clone());
    let creation = desk.submit_work("actor", work, TaskKind::Actor(id));
    desk.placed(peer, creation);
    let todo = desk.ledger.lives(id, Attempt::FIRST, peer);
    assert!(desk.carry_out(todo).is_empty());
    let kind = TaskKind::Call {
        actor: id,
        caller: None,
    };
    let call = desk.submit_work("call", Work::Call(actor, 0), kind);
    desk.placed(peer, call);
    (desk, peer)
}

/// A task that was placed at a peer.
fn one_task_at_a_peer() -> (Desk, NodeId) {
    let mut desk = Desk::new(1, 0, "1GiB");
    let peer = desk.join_peer();
    let there = Overrides {
        strategy: THERE.parse().unwrap(),
        ..Overrides::default()
    };
    assert!(desk.submit("t", there).is_empty());
    desk.placed(peer, desk.cell("t").id);
    (desk, peer)
}

#[test]
fn an_attempt_that_ended_with_its_node_is_known_and_another_follows() {
    let (mut desk, peer) = one_task_at_a_peer();
    let mut todo = desk.lose(peer);
    let retried = std::mem::take(&mut todo.retried);
    let [Ended { report, .. }] = &retried[..] else {
        panic!("one attempt has ended");
    };
    assert_eq!(run_summary(report), (1, Some(peer), Duration::ZERO));
    let error = report.result.as_ref().unwrap_err().to_string();
    assert!(
        error.contains("node b, on which it was, is lost"),
        "{error}"
    );
    assert_eq!(desk.carry_out(todo), ["t"]);
    desk.end("t", Ok(()));
    desk.assert_idle();
}

#[test]
fn an_attempt_that_another_node_cancelled_without_a_report_is_known() {
    let (mut desk, peer) = one_task_at_a_peer();
    let task = desk.cell("t").id;
    let message = Message::Settled {
        task,
        attempt: Attempt::FIRST,
        outcome: wasmrun_model::scheduler::Outcome::Cancelled,
    };
    let mut todo = desk.ledger.settled_unreported(peer, message);
    let retried = std::mem::take(&mut todo.retried);
    let [Ended { report, .. }] = &retried[..] else {
        panic!("one attempt has ended");
    };
    assert_eq!(run_summary(report), (1, Some(peer), Duration::ZERO));
    let error = report.result.as_ref().unwrap_err().to_string();
    assert!(
        error.contains("node b, on which it was, cancelled it"),
        "{error}"
    );
    drop(desk.carry_out(todo));
    assert!(desk.ended.is_empty(), "another attempt follows");
}

#[test]
fn an_actor_and_its_call_that_ended_with_their_node_were_there() {
    let (mut desk, peer) = with_actor(0);
    let todo = desk.lose(peer);
    assert!(desk.carry_out(todo).is_empty());
    let ended: Vec<(&str, RunSummary)> = desk
        .ended
        .iter()
        .map(|(name, it)| (&**name, run_summary(it)))
        .collect();
    let there = (1, Some(peer), Duration::ZERO);
    assert_eq!(ended, [("actor", there), ("call", there)]);
    desk.assert_idle();
}

#[test]
fn a_generation_that_ended_with_its_node_is_an_attempt() {
    let (mut desk, peer) = with_actor(1);
    let mut todo = desk.lose(peer);
    let retried = std::mem::take(&mut todo.retried);
    let [Ended { cell, report, .. }] = &retried[..] else {
        panic!("one generation has ended");
    };
    assert!(matches!(cell.work, Work::Create(_)));
    assert_eq!(run_summary(report), (1, Some(peer), Duration::ZERO));
    let error = report.result.as_ref().unwrap_err().to_string();
    assert!(
        error.contains("node b, on which it lived, is lost"),
        "{error}"
    );
    assert_eq!(desk.carry_out(todo), ["actor"]);
    desk.end("actor", Err(TaskError::Cancelled));
    desk.assert_idle();
}

fn preempted() -> TaskError {
    TaskError::Preempted {
        tenant: None,
        why: "tenant b is below its guaranteed GPU: 0 of 1".to_owned(),
    }
}

#[test]
fn a_generation_that_left_for_another_tenant_is_an_attempt_and_no_restart() {
    let (mut desk, peer) = with_actor(1);
    let task = desk.cell("actor").id;
    let actor = desk.ledger.own_actor(&task).unwrap();
    let mut todo = desk.has_left(peer, task);
    let retried = std::mem::take(&mut todo.retried);
    let [Ended { report, .. }] = &retried[..] else {
        panic!("one generation has ended");
    };
    assert_eq!((report.attempt, report.ran_at), (1, Some(peer)));
    assert_eq!(report.result.as_ref().err(), Some(&preempted()));
    assert_eq!((actor.restarts_left(), actor.death()), (1, None));
    assert_eq!(desk.ledger.counts.restarted, 0);
    drop(desk.carry_out(todo));
    assert!(desk.ended.is_empty(), "another generation follows");
}

#[test]
fn an_actor_that_was_ended_while_it_left_has_not_left() {
    let (mut desk, peer) = with_actor(1);
    let task = desk.cell("actor").id;
    let actor = desk.ledger.own_actor(&task).unwrap();
    actor.ends();
    let todo = desk.has_left(peer, task);
    assert!(todo.retried.is_empty());
    drop(desk.carry_out(todo));
    assert!(desk.ended.iter().any(|(name, _)| name == "actor"));
    assert_eq!(actor.death(), None);
}
