//! What comes from the cluster: messages, requests, and news of members.
//!
//! Owns the dispatch to the parts of the exchange, and the order in which these hear that a member has joined or left. Must
//! not: wait.

use wasmrun_model::fairness::{TenantConfig, TenantName};
use wasmrun_model::id::{Incarnation, NodeId};
use wasmrun_model::scheduler::{Message, NodeInfo, Outcome, PeerView, Settings};
use wasmrun_net::{BulkRefusal, BulkSender, Range};

use super::{Backlog, Bulk, OneWay, Request, Response, Work};
use crate::ledger::GroupNews;
use crate::peers::Exchange;

#[async_trait::async_trait]
impl Work for Exchange {
    fn one_way(&self, from: NodeId, message: OneWay) {
        match message {
            // These come with what belongs to them.
            OneWay::Scheduler(message)
                if matches!(*message, Message::Place { .. } | Message::Settled { .. }) =>
            {
                tracing::warn!(node = %from, "another node sent half a message");
            }
            OneWay::Scheduler(message) => match *message {
                Message::Withdraw { task, attempt } => self.withdrawn(from, task, attempt),
                message => self.tell(|ledger| ledger.message(from, message)),
            },
            OneWay::Place(place) => {
                self.count(|counters| &counters.tasks_taken, 1);
                self.placed(from, *place);
            }
            OneWay::Settled(settled) => {
                if let Message::Settled {
                    outcome: Outcome::HandedBack,
                    ..
                } = &settled.message
                {
                    self.count(|counters| &counters.tasks_returned, 1);
                }
                self.outputs.settled(self, from, *settled);
            }
            OneWay::Output(output) => self.outputs.wrote(self, from, *output),
            OneWay::Want(name) => self.wanted(from, name),
            OneWay::Made(made) => self.made(from, *made),
            OneWay::Release(name, count) => self.released(from, &name, count),
            OneWay::Holding(object, is_held) => self.holding(from, object, is_held),
            OneWay::Drop(object) => self.unkeep(from, object),
            OneWay::WantActor(name) => self.watches(from, name),
            OneWay::Stands(stands) => self.stands(from, *stands),
            OneWay::Born(actor, attempt) => {
                self.tell(|ledger| ledger.lives(actor, attempt, from));
            }
            OneWay::Kill(name) => self.kill_for(from, name),
            OneWay::State(state) => self.has_state(from, *state),
            OneWay::DriverGone(driver) => {
                self.homes.forget(&driver);
                if let Some(shared) = self.shared.upgrade() {
                    shared.end_work_of(driver);
                }
            }
            OneWay::Cancel(name) => self.cancel(name),
            OneWay::Find(find) => self.find(from, *find),
            OneWay::Found(found) => self.found(from, *found),
            OneWay::Called(called) => self.was_called(from, *called),
            OneWay::Replay(replay) => self.replay_for(from, *replay),
            OneWay::CalledAgain(again) => self.called_again(from, *again),
            OneWay::Lend(name) => self.lend_directly(from, name),
            OneWay::Lent(name) => self.has_lent(from, name),
            OneWay::LendKept(kept) => self.lend_kept(from, &kept),
            OneWay::LeftBehind(task, lives_on) => {
                self.tell(|ledger| ledger.left_behind(from, task, lives_on));
            }
            OneWay::EndLeft(task) => self.tell(|ledger| ledger.end_left(from, task)),
            OneWay::BreakWait(broken) => self.break_wait(&broken),
            OneWay::Outlives(object) => self.outlives(from, object),
            OneWay::Keeps(object) => self.is_kept_by(from, object),
            OneWay::Left(object) => self.was_left_at(from, object),
        }
    }

    async fn request(&self, from: NodeId, request: Request) -> Response {
        match request {
            Request::Where { name, gone } => {
                Response::Made(Box::new(self.whereabouts(from, name, &gone).await))
            }
            Request::Ask(asked) => Response::Answered(Box::new(self.answer(&asked))),
            Request::Source { name, gone } => {
                Response::Source(self.source(from, name, &gone).await)
            }
            Request::Hold(digest, len) => Response::Holds(self.hold(from, digest, len).await),
            Request::Waits(tasks) => Response::Waits(self.waits(&tasks, false).waiters),
            Request::Standstill { tasks, with_room } => {
                Response::Standstill(Box::new(self.waits(&tasks, with_room)))
            }
            Request::MoveAway(object) => Response::Moved(self.move_away(from, object).await),
            Request::Keep { at, outlives } => {
                Response::Moved(self.keep_copy(from, *at, outlives).await)
            }
            Request::Bring(name) => Response::Moved(self.bring_for_good(from, name).await),
        }
    }

    async fn bulk(
        &self,
        from: NodeId,
        what: Bulk,
        range: Range,
        to: &mut BulkSender,
    ) -> Result<(), BulkRefusal> {
        match what {
            Bulk::Object(object) => self.serve(from, &object, range, to).await,
            Bulk::Module(digest) => self.modules.serve(&digest, range, to).await,
            Bulk::State(actor, number) => self.serve_state(actor, number, range, to).await,
        }
    }

    fn joined(&self, node: &NodeInfo) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let (session, queue) = {
            let mut peers = self.peers.lock();
            peers.joined(node.id);
            // Under one lock: a peer that is there has a session.
            self.sessions.open(node.id)
        };
        self.want_again(node.id);
        self.ask_about_again(node.id);
        if let Some(desk) = self.desk() {
            desk.has_come(node.id);
        }
        // If it had left, it was we who were cut off.
        self.tell(|ledger| ledger.node_expected(node.clone()));
        // It ends when the node has left, or with the exchange.
        shared.control.spawn(Self::talk(
            self.this.clone(),
            (node.id, node.incarnation),
            session,
            queue,
        ));
    }

    fn left(&self, incarnations: &[(NodeId, Incarnation)], is_over: bool) {
        let nodes = || incarnations.iter().map(|(node, _)| *node);
        for node in nodes() {
            self.sessions.close(&node);
        }
        let drivers: Vec<_> = nodes().flat_map(|node| self.homes.drivers(node)).collect();
        let mut lost = Vec::new();
        self.tell(|ledger| {
            let todo = ledger.nodes_lost(incarnations, is_over, &drivers);
            // In one step: their tasks here end as cancelled, and do not fail for want of lost objects.
            lost = self.remove_peers(nodes());
            todo
        });
        // Not before: messages about their tasks that are just sent name their homes.
        nodes().for_each(|node| self.homes.lost(node));
        for lost in lost {
            self.let_go_of(lost);
        }
        if let Some(shared) = self.shared.upgrade() {
            for driver in drivers {
                shared.sweep_after(driver);
            }
        }
    }

    fn view(&self, node: NodeInfo, view: PeerView) {
        self.tell(|ledger| ledger.peer_view(node, view));
    }

    fn own_view(&self) -> PeerView {
        match self.shared.upgrade() {
            Some(shared) => shared.ask(|ledger| ledger.own_view()),
            None => PeerView {
                version: 0,
                resources: Default::default(),
                queue: Default::default(),
                usage: Default::default(),
            },
        }
    }

    fn set_draining(&self, node: NodeId, is_draining: bool) {
        if node == self.me {
            self.move_while_drained(is_draining);
        }
        self.tell(|ledger| ledger.set_draining(node, is_draining));
    }

    fn set_reachable(&self, node: NodeId, is_reachable: bool) {
        self.tell(|ledger| ledger.set_reachable(node, is_reachable));
    }

    fn backlog(&self, node: NodeId) -> Backlog {
        self.sessions.backlog(&node)
    }

    fn set_tenant(&self, tenant: TenantName, config: TenantConfig) {
        if let Some(shared) = self.shared.upgrade() {
            shared.share_store(&tenant, &config);
        }
        self.transfers.set_weight(&tenant, config.weight);
        self.tell(|ledger| ledger.set_tenant(tenant, config));
    }

    fn configure(&self, settings: Settings) {
        self.tell(|ledger| ledger.configure(settings));
    }

    fn group_news(&self, news: GroupNews) {
        self.tell(|ledger| ledger.group_news(news));
    }

    fn is_lease_confirmed(&self, is_confirmed: bool) {
        self.pause_actors(!is_confirmed);
        if is_confirmed && let Some(shared) = self.shared.upgrade() {
            // It ends when all of them are settled, or with the node.
            shared.control.spawn(shared.claim_names_again());
        }
    }
}
