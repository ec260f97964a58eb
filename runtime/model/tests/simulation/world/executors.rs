//! What executors and actors do with what they are given, and what the control store tells of actors.

use wasmrun_model::scheduler::Event;
use wasmrun_model::task::{Attempt, FailureKind};

use super::{ActorNews, Coming, Executed, Mode, Run, World};
use crate::work::{self, chance, pick};

impl World {
    pub(super) fn dispatch(&mut self, node: usize, run: Run) {
        let is_new = self.dispatched.insert(run);
        assert!(is_new, "{run:?} is dispatched twice");
        self.nodes[node].runs.insert(run);
        self.check_call(node, run);
        let actor = self.of_actor.get(&run.0);
        if actor.is_some_and(|actor| self.actors[*actor].creation == run.0) {
            self.execute(node, run, Executed::Accept, 5);
            return self.execute(node, run, Executed::Live, 60);
        }
        match self.random.below(100) {
            0..6 if !self.has_healed => self.execute(node, run, Executed::Refuse, 20),
            // It may end before the executor has said that it took it.
            6..12 => self.continue_run(node, run),
            _ => {
                self.execute(node, run, Executed::Accept, 5);
                self.continue_run(node, run);
            }
        }
    }

    /// Calls start where their actor lives, those of one caller in the order made. (Between nodes
    /// messages overtake each other, and calls with them.)
    pub(super) fn check_call(&mut self, node: usize, (task, attempt): Run) {
        let Some((actor, driver, number)) = self.calls.get(&task).copied() else {
            return;
        };
        if self.mode == Mode::One {
            assert_eq!(self.actors[actor].node, Some(node), "a call runs elsewhere");
            if attempt == Attempt::FIRST {
                let last = self.last_calls.insert((actor, driver), number);
                assert!(last < Some(number), "call {number} starts after {last:?}");
            }
        }
    }

    pub(super) fn execute(&mut self, node: usize, run: Run, what: Executed, within_ms: usize) {
        let incarnation = self.nodes[node].incarnation;
        self.come(0, within_ms, Coming::Executor(node, incarnation, run, what));
    }

    /// What a run does next.
    pub(super) fn continue_run(&mut self, node: usize, run: Run) {
        let what = match self.random.below(100) {
            0..10 => Executed::Block,
            10..16 => Executed::Fail(FailureKind::Retryable),
            16..19 => Executed::Fail(FailureKind::Final),
            _ => Executed::Finish,
        };
        let within = pick(&mut self.random, &[5, 100, 1_000]);
        self.execute(node, run, what, within);
    }

    pub(super) fn stop(&mut self, node: usize, run: Run) {
        let what = Executed::Fail(FailureKind::Retryable);
        self.execute(node, run, what, 50);
    }

    pub(super) fn executed(&mut self, node: usize, incarnation: u64, run: Run, what: Executed) {
        if self.nodes[node].incarnation != incarnation || !self.nodes[node].is_alive {
            return;
        }
        // An executor that has said its last word about an attempt may say it again, no more.
        let is_known = self.nodes[node].runs.contains(&run);
        if !is_known && chance(&mut self.random, 80) {
            return;
        }
        let (task, attempt) = run;
        let is_paused = self.nodes[node].paused.contains(&run);
        if is_paused && matches!(what, Executed::Finish | Executed::Block) {
            // It goes on when it has its CPU again, and does something else then.
            return;
        }
        let event = match what {
            Executed::Live | Executed::Die | Executed::Preempt if !is_known => return,
            Executed::Live => {
                let actor = self.of_actor[&task];
                self.announce(ActorNews::Created { actor, node });
                if chance(&mut self.random, 40) {
                    self.execute(node, run, Executed::Die, 3_000);
                }
                return;
            }
            Executed::Die => {
                let (actor, will_restart) = (self.of_actor[&task], true);
                return self.announce(ActorNews::Died {
                    actor,
                    will_restart,
                });
            }
            Executed::Accept => Event::Accepted { task, attempt },
            Executed::Refuse => Event::Refused { task, attempt },
            Executed::Block => {
                let next = pick(&mut self.random, &[Executed::Unblock, Executed::Overdue]);
                self.execute(node, run, next, 300);
                self.nodes[node].ahead.remove(&run);
                self.nodes[node].pausing.remove(&run);
                Event::Blocked { task, attempt }
            }
            Executed::Pause => {
                if !self.nodes[node].pausing.remove(&run) {
                    return;
                }
                self.nodes[node].paused.insert(run);
                Event::Paused { task, attempt }
            }
            Executed::Preempt if self.stays(node, run) => return,
            Executed::Preempt => Event::Preempted { task, attempt },
            Executed::Unblock => Event::Unblocked { task, attempt },
            Executed::Overdue => {
                if is_known {
                    self.nodes[node].ahead.insert(run);
                    self.continue_run(node, run);
                }
                Event::Overdue { task, attempt }
            }
            Executed::Finish => {
                if is_known {
                    self.finished.insert(run);
                }
                Event::Finished { task, attempt }
            }
            Executed::Fail(kind) => Event::Failed {
                task,
                attempt,
                kind,
            },
        };
        if matches!(
            what,
            Executed::Refuse | Executed::Preempt | Executed::Finish | Executed::Fail(_)
        ) {
            self.forget(node, &run);
        }
        self.handle(self.member_of(node), event);
    }

    /// An executor has nothing more to do with an attempt.
    fn forget(&mut self, node: usize, run: &Run) {
        let node = &mut self.nodes[node];
        node.runs.remove(run);
        node.ahead.remove(run);
        node.pausing.remove(run);
        node.paused.remove(run);
    }

    /// Whether an actor does not leave its node that is told to. Where one does, all others hear that it does not live now.
    fn stays(&mut self, node: usize, (task, attempt): Run) -> bool {
        let actor = self.of_actor.get(&task).copied();
        let actor = actor.filter(|actor| self.actors[*actor].creation == task);
        let Some(actor) = actor else {
            return false;
        };
        let host = self.member_of(node);
        if chance(&mut self.random, 20) {
            self.handle(host, Event::Stays { task, attempt });
            return true;
        }
        self.actors[actor].node = None;
        for at in (0..self.members.len()).filter(|at| *at != host) {
            if self.is_up(at) {
                let (actor, will_restart) = (work::actor_id(actor), true);
                self.handle(
                    at,
                    Event::ActorDied {
                        actor,
                        will_restart,
                    },
                );
            }
        }
        false
    }

    pub(super) fn announce(&mut self, news: ActorNews) {
        let event = |news| match news {
            ActorNews::Created { actor, node } => Event::ActorCreated {
                actor: work::actor_id(actor),
                node: work::node_id(node),
            },
            ActorNews::Died {
                actor,
                will_restart,
            } => Event::ActorDied {
                actor: work::actor_id(actor),
                will_restart,
            },
        };
        match news {
            ActorNews::Created { actor, node } => self.actors[actor].node = Some(node),
            ActorNews::Died {
                actor,
                will_restart,
            } => {
                let it = &mut self.actors[actor];
                if it.is_over {
                    return;
                }
                it.is_over = !will_restart;
                it.node = None;
                // It was its own executor.
                let of_actor = &self.of_actor;
                for node in &mut self.nodes {
                    node.runs
                        .retain(|(task, _)| of_actor.get(task) != Some(&actor));
                }
            }
        }
        for at in 0..self.members.len() {
            if self.is_up(at) {
                self.handle(at, event(news));
            }
        }
    }
}
