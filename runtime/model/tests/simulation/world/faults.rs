//! What goes wrong, and how all is well again.

use wasmrun_model::fairness::Policy;
use wasmrun_model::id::Incarnation;
use wasmrun_model::resource::ResourceName;
use wasmrun_model::scheduler::{Event, NodeInfo, Setting};
use wasmrun_model::task::Phase;

use super::records::OfGroup;
use super::{Actor, ActorNews, Coming, Mode, World};
use crate::work;

impl World {
    pub(super) fn fault(&mut self) {
        let node = self.random.below(self.nodes.len());
        let at = self.member_of(node);
        let (id, is_alive) = (work::node_id(node), self.nodes[node].is_alive);
        if !is_alive || !self.is_up(at) {
            return;
        }
        match self.random.below(11) {
            0 | 1 => self.crash(node),
            2 => {
                let capacity = self.random.below(6) as u32;
                let name = [ResourceName::CPU, ResourceName::GPU, ResourceName::MEMORY];
                let name = name[self.random.below(3)].clone();
                let capacity = wasmrun_model::resource::Amount::units(capacity);
                self.handle(
                    at,
                    Event::SetCapacity {
                        node: id,
                        name,
                        capacity,
                    },
                );
            }
            3 => {
                let name = ResourceName::GPU;
                self.handle(at, Event::DeleteResource { node: id, name });
            }
            4 => {
                let labels = work::labels(self.random.below(2));
                self.handle(at, Event::SetLabels { node: id, labels });
            }
            5 => self.handle(
                at,
                Event::SetDraining {
                    node: id,
                    is_draining: true,
                },
            ),
            6 => self.handle(
                at,
                Event::SetDraining {
                    node: id,
                    is_draining: false,
                },
            ),
            7 => {
                let driver = work::driver_id(self.random.below(4));
                self.handle(at, Event::DriverGone(driver));
            }
            // Whether it cannot be spoken with is for each to say, also where that is not so.
            8 => {
                let node = work::node_id(self.random.below(self.nodes.len()));
                let is_reachable = false;
                self.handle(at, Event::SetReachable { node, is_reachable });
                let again = Event::SetReachable {
                    node,
                    is_reachable: true,
                };
                let incarnation = self.incarnation_of(at);
                self.come(50, 5_000, Coming::Event(at, incarnation, again));
            }
            9 => {
                let object = work::object_id(self.random.below(work::OBJECTS));
                self.nodes[at].objects.remove(&object);
                self.handle(at, Event::ArgumentLost(object));
            }
            _ => {
                let policy = [Policy::Drf, Policy::Fair, Policy::Fifo][self.random.below(3)];
                let settings = self.members[at].scheduler.settings();
                let settings = settings.with(Setting::Policy(policy));
                self.handle(at, Event::Configure(settings.into()));
            }
        }
    }

    /// A node dies. What it owned is void; the others hear of it, each at its time.
    pub(super) fn crash(&mut self, node: usize) {
        let incarnation = self.nodes[node].incarnation;
        self.nodes[node].is_alive = false;
        self.nodes[node].runs.clear();
        self.nodes[node].ahead.clear();
        self.nodes[node].pausing.clear();
        self.nodes[node].paused.clear();
        self.nodes[node].objects.clear();
        let lost = Event::NodeLost {
            node: work::node_id(node),
            incarnation: Incarnation(incarnation),
        };
        match self.mode {
            Mode::One => self.handle(0, lost),
            Mode::Each => {
                // What tasks hold must not be dropped.
                self.members[node].scheduler.handle(self.now, lost);
                self.members[node] = self.member(node);
                for actor in 0..self.actors.len() {
                    if self.actors[actor].owner == (node, incarnation) {
                        let will_restart = false;
                        self.announce(ActorNews::Died {
                            actor,
                            will_restart,
                        });
                    }
                }
                for to in (0..self.nodes.len()).filter(|to| *to != node) {
                    self.come(
                        100,
                        3_000,
                        Coming::Lost {
                            to,
                            node,
                            incarnation,
                        },
                    );
                }
            }
        }
        if self.mode == Mode::Each {
            self.leave_records(node);
        }
        self.come(50, 4_000, Coming::Rejoin(node));
    }

    pub(super) fn rejoin(&mut self, node: usize) {
        if self.nodes[node].is_alive {
            return;
        }
        self.nodes[node].incarnation += 1;
        self.nodes[node].is_alive = true;
        let info = NodeInfo {
            id: work::node_id(node),
            incarnation: Incarnation(self.nodes[node].incarnation),
            name: format!("n{node}").parse().expect("a name"),
            labels: work::labels(node),
        };
        let resources = work::resources(node);
        let at = self.member_of(node);
        for to in (0..self.members.len()).filter(|to| *to != at) {
            let node = info.clone();
            self.come(0, 3_000, Coming::Expected { to, node });
        }
        self.handle(
            at,
            Event::OwnNode {
                node: info,
                resources: resources.into(),
            },
        );
        self.come(0, 100, Coming::Heartbeat(node));
        if self.mode == Mode::Each {
            self.read_records(node);
        }
    }

    /// All is well from now on: nodes are there, whole, with their labels.
    pub(super) fn heal(&mut self) {
        self.has_healed = true;
        for node in 0..self.nodes.len() {
            self.rejoin(node);
            let at = self.member_of(node);
            let id = work::node_id(node);
            self.handle(
                at,
                Event::SetDraining {
                    node: id,
                    is_draining: false,
                },
            );
            self.handle(
                at,
                Event::SetLabels {
                    node: id,
                    labels: work::labels(node),
                },
            );
            for (name, capacity) in work::resources(node).total().iter() {
                let name = name.clone();
                self.handle(
                    at,
                    Event::SetCapacity {
                        node: id,
                        name,
                        capacity,
                    },
                );
            }
        }
        for id in std::mem::take(&mut self.impossible) {
            for at in 0..self.members.len() {
                if let Some(task) = self.members[at].scheduler.task(&id) {
                    assert_eq!(task.phase, Phase::Infeasible);
                    self.handle(at, Event::Cancel(id));
                }
            }
        }
    }

    pub(super) fn end_all(&mut self) {
        self.check_owners();
        for group in 0..self.groups.len() {
            self.at(self.now, Coming::OfGroup(group, OfGroup::Remove));
        }
        for actor in 0..self.actors.len() {
            let Actor {
                creation,
                owner: (at, incarnation),
                is_over,
                ..
            } = self.actors[actor];
            if !is_over && self.incarnation_of(at) == incarnation {
                self.handle(at, Event::Cancel(creation));
            }
        }
    }
}
