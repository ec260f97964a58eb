//! What schedulers tell each other of how it stands with groups, and what is known of those of others.
//!
//! Owns the questions of nodes that have tasks of a group which another node owns, its owner's answers, and
//! where a task of a group belongs. Must not: reserve anything; that is `groups.rs`.
//!
//! Whoever has a task of a group, or waits for it, asks its owner, which the group's id names. The owner
//! answers, and again whenever something changes; as news may be lost, it is asked again while a task waits.
//! Invariants: what is known of another node's group ends with that node, if the group does; a task is never sent to a node that
//! is not known to have a bundle for it.

use std::collections::{BTreeMap, BTreeSet};

use super::Scheduler;
use super::event::{Effect, GroupFace, Message};
use super::explain::Reason;
use super::group_members::WAITING;
use super::groups::GroupTable;
use super::record::TaskIx;
use crate::fairness::TenantName;
use crate::group::GroupState;
use crate::id::{GroupId, NodeId};
use crate::resource::Request;

/// What is known of the groups of other nodes.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<GroupId, Foreign>);

/// A group of another node.
#[derive(Debug)]
struct Foreign {
    owner: NodeId,
    /// What its owner has told last; nothing yet if `None`.
    face: Option<GroupFace>,
    /// Whether its owner is known to be lost, and another is about to take it over.
    is_lost: bool,
    /// Whether it has been asked and has not answered.
    is_asked: bool,
    /// Whether it will be asked again, should there be need.
    is_timed: bool,
    /// Whose turn it is among the nodes that have bundles.
    turn: usize,
}

/// Who is told of a group that is owned here, and what they know.
#[derive(Debug, Default)]
pub(super) struct Telling {
    pub(super) watchers: BTreeSet<NodeId>,
    version: u64,
    /// How it stood when somebody was told last.
    told: Option<(GroupState, Vec<Option<NodeId>>)>,
    /// Whose turn it is among the nodes that have bundles.
    turn: usize,
}

/// Where a task of a group belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// Here: a bundle for it is here, or it waits here until there is one somewhere.
    Here,
    /// On this node.
    There(NodeId),
    /// Nobody here has heard of the group.
    Unknown,
}

impl GroupTable {
    /// Whether one of these bundles of a group is here and can be used.
    fn has_one_here(&self, group: &GroupId, bundles: &[u32]) -> bool {
        bundles
            .iter()
            .any(|bundle| self.has_bundle_here(group, Some(*bundle)))
    }

    /// Where a task of a group belongs that was submitted here.
    pub(super) fn whereabouts(
        &mut self,
        (group, bundle): (&GroupId, Option<u32>),
        tenant: &TenantName,
        alternatives: &[Request],
    ) -> Result<Whereabouts, Reason> {
        let owned = self.owned.get(group);
        let foreign = self.known.0.get(group);
        let (its_tenant, spec, turn) = match (owned, foreign.map(|it| (&it.face, it.turn))) {
            (Some(owned), _) => {
                let state = owned.coordinator.state();
                if matches!(state, GroupState::Removing | GroupState::Removed) {
                    return Err(Reason::GroupRemoved(*group));
                }
                let spec = owned.coordinator.spec();
                (&owned.tenant, spec, owned.telling.turn)
            }
            (None, Some((Some(face), turn))) => (&face.tenant, &face.spec, turn),
            (None, Some((None, _)) | None) => return Ok(Whereabouts::Unknown),
        };
        if its_tenant != tenant {
            // As if it were not there: it is nobody else's business.
            return Err(Reason::NoGroup(*group));
        }
        let holds = |has: &Request| {
            let fits = |asked: &Request| asked.amounts().is_subset(has.amounts());
            alternatives.iter().any(fits)
        };
        let numbered = (0u32..).zip(spec.bundles());
        let meant = numbered.filter(|(number, _)| bundle.is_none_or(|bundle| bundle == *number));
        let holding = meant.filter(|(_, has)| holds(has));
        let holding: Vec<u32> = holding.map(|(number, _)| number).collect();
        if holding.is_empty() {
            let bundles = spec.bundles().len();
            return Err(match bundle {
                Some(bundle) if bundle as usize >= bundles => Reason::NoSuchBundle {
                    group: *group,
                    bundle,
                    bundles,
                },
                _ => Reason::NoBundle { group: *group },
            });
        }
        let has_room_here = alternatives.iter().any(|request| {
            let mut holding = holding.iter();
            holding.any(|number| self.spot(group, Some(*number), request).is_some())
        });
        if has_room_here {
            return Ok(Whereabouts::Here);
        }
        // One after the other, so that all bundles get something to do.
        let is_there = |number: &u32| {
            let node = match owned {
                Some(owned) => owned.coordinator.ready_node(*number),
                None => foreign?
                    .face
                    .as_ref()?
                    .nodes
                    .get(*number as usize)
                    .copied()?,
            };
            node.filter(|node| !self.is_own(*node))
        };
        let mut places: Vec<Whereabouts> = holding
            .iter()
            .filter_map(is_there)
            .map(Whereabouts::There)
            .collect();
        if self.has_one_here(group, &holding) {
            places.push(Whereabouts::Here);
        }
        if places.is_empty() {
            // Others of its bundles may serve others all the same.
            return match self.impossible(group) {
                Some(why) => Err(Reason::GroupImpossible { group: *group, why }),
                None => Ok(Whereabouts::Here),
            };
        }
        let place = places[turn % places.len()];
        if let Some(owned) = self.owned.get_mut(group) {
            owned.telling.turn = turn.wrapping_add(1);
        } else if let Some(foreign) = self.known.0.get_mut(group) {
            foreign.turn = turn.wrapping_add(1);
        }
        Ok(place)
    }

    /// Whether a task that another node has sent can run in a bundle that is here.
    pub(super) fn serves(
        &self,
        (group, bundle): (&GroupId, Option<u32>),
        alternatives: &[Request],
    ) -> bool {
        let mut usable = self.usable_here(*group);
        usable.any(|(number, it)| {
            let has = it.total();
            let fits = |asked: &Request| asked.amounts().is_subset(&has);
            bundle.is_none_or(|bundle| bundle == number) && alternatives.iter().any(fits)
        })
    }

    pub(crate) fn is_ready(&self, group: &GroupId) -> bool {
        match (self.owned.get(group), self.known.0.get(group)) {
            (Some(owned), _) => owned.coordinator.state() == GroupState::Ready,
            (None, Some(foreign)) => match &foreign.face {
                Some(face) => face.nodes.iter().all(Option::is_some),
                None => false,
            },
            // Here for a task of another node.
            (None, None) => self.has_bundle_here(group, None),
        }
    }

    /// What a group that is not ready waits for.
    pub(crate) fn why_not_ready(&self, group: &GroupId) -> Option<String> {
        if let Some(foreign) = self.known.0.get(group) {
            if foreign.is_lost {
                return Some(format!(
                    "its owner, node {}, is lost; another node is about to take it over",
                    foreign.owner
                ));
            }
            return match &foreign.face {
                Some(face) => face.why.clone(),
                None => Some(format!(
                    "its owner, node {}, has not said yet how it stands with it",
                    foreign.owner
                )),
            };
        }
        let Some(owned) = self.owned.get(group) else {
            return Some(match self.recorded.contains(group) {
                true => "its owner is lost; another node is about to take it over".to_owned(),
                false => "no node that is known here owns it".to_owned(),
            });
        };
        if owned.coordinator.is_finding() {
            let text = "it was taken over from a node that is lost, and the nodes are asked which of its bundles they have";
            return Some(text.to_owned());
        }
        let state = owned.coordinator.state();
        let refusal = owned.coordinator.last_refusal();
        let refusal = refusal.map(|(bundle, why)| format!("bundle {bundle}: {why}"));
        match (&owned.failed, state) {
            (_, GroupState::Ready) => None,
            (_, GroupState::Removing | GroupState::Removed) => {
                Some("it was removed; what runs in it is being ended".to_owned())
            }
            (Some(why), _) => Some(why.to_string()),
            (None, GroupState::Pending) => refusal,
            (None, GroupState::Preparing | GroupState::Committing) => {
                Some("its bundles are being reserved".to_owned())
            }
        }
    }
}

impl Scheduler {
    /// Somebody here wants to know how it stands with a group. As news may be lost, its owner is asked each time
    /// as long as it is not ready.
    pub(super) fn want_group(&mut self, group: GroupId) {
        let is_ready = self.groups.is_ready(&group);
        if self.groups.owned.contains_key(&group) {
            return;
        }
        if let Some(foreign) = self.groups.known.0.get_mut(&group) {
            if !is_ready && !std::mem::replace(&mut foreign.is_asked, true) {
                let owner = foreign.owner;
                self.send(owner, Message::WantGroup(group));
                self.await_news(group);
            }
        } else if !self.ask_owner(group) {
            self.effects.push_back(Effect::GroupChanged(group));
        }
    }

    /// Asks the owner of a group that nobody here has heard of. False if there is none to ask.
    pub(super) fn ask_owner(&mut self, group: GroupId) -> bool {
        if self.groups.known.0.contains_key(&group) {
            return true;
        }
        let Some(owner) = self.owner_of(&group) else {
            return false;
        };
        let foreign = Foreign {
            owner,
            face: None,
            is_lost: false,
            is_asked: true,
            is_timed: false,
            turn: 0,
        };
        self.groups.known.0.insert(group, foreign);
        self.send(owner, Message::WantGroup(group));
        self.await_news(group);
        true
    }

    /// Sees to it that the owner of a group is asked again, if its news should be lost.
    pub(super) fn await_news(&mut self, group: GroupId) {
        let foreign = self.groups.known.0.get_mut(&group);
        if foreign.is_some_and(|it| !std::mem::replace(&mut it.is_timed, true)) {
            self.ask_later(group);
        }
    }

    /// It is time to ask again, if there was no answer, or somebody here waits for news that may be lost.
    pub(super) fn ask_again(&mut self, group: GroupId) {
        let Some(foreign) = self.groups.known.0.get_mut(&group) else {
            return;
        };
        foreign.is_timed = false;
        let (owner, is_asked) = (foreign.owner, foreign.is_asked);
        let mut waiting = WAITING.into_iter();
        if is_asked || waiting.any(|phase| self.count_members(group, phase) > 0) {
            // It may be that this node is about to take it over.
            if owner != self.own_id() {
                self.send(owner, Message::WantGroup(group));
            }
            self.await_news(group);
        }
    }

    /// A node has given a task of a group back: it may be that its bundle is not there any more.
    pub(super) fn doubt_group(&mut self, ix: TaskIx, node: NodeId) {
        let Some(group) = self.group_of(ix) else {
            return;
        };
        let Some(foreign) = self.groups.known.0.get_mut(&group) else {
            return;
        };
        if let Some(face) = &mut foreign.face {
            let there = face.nodes.iter_mut().filter(|it| **it == Some(node));
            there.for_each(|it| *it = None);
        }
        if !std::mem::replace(&mut foreign.is_asked, true) {
            let owner = foreign.owner;
            self.send(owner, Message::WantGroup(group));
            self.await_news(group);
        }
    }

    /// Another node wants to know how it stands with a group of ours.
    pub(super) fn group_wanted(&mut self, from: NodeId, group: GroupId) {
        if let Some(owned) = self.groups.owned.get_mut(&group) {
            owned.telling.watchers.insert(from);
        } else if self.groups.recorded.contains(&group) {
            // Whose it is, is about to be known.
            return;
        }
        let face = self.face(group);
        self.send(from, Message::GroupStands { group, face });
    }

    /// What others are told of a group that is owned here.
    fn face(&self, group: GroupId) -> Option<Box<GroupFace>> {
        let view = self.group(&group).filter(|view| view.is_own)?;
        if matches!(view.state, GroupState::Removing | GroupState::Removed) {
            return None;
        }
        let owned = self.groups.owned.get(&group)?;
        Some(Box::new(GroupFace {
            version: owned.telling.version,
            tenant: view.tenant,
            // Where its bundles may lie is its owner's business.
            spec: view.spec.without_selectors().0,
            nodes: view.nodes,
            why: view.why,
        }))
    }

    /// Tells those who want to know what has changed with groups that are owned here: other nodes, where bundles
    /// are. What a group waits for is told to who asks, so that not each plan in vain is news for everybody.
    pub(super) fn tell_of_groups(&mut self) {
        for group in std::mem::take(&mut self.groups.touched) {
            self.charge_group(&group);
            let Some(view) = self.group(&group).filter(|view| view.is_own) else {
                self.effects.push_back(Effect::GroupChanged(group));
                continue;
            };
            let Some(owned) = self.groups.owned.get_mut(&group) else {
                continue;
            };
            let now = (view.state, view.nodes);
            let before = owned.telling.told.replace(now.clone());
            if before.as_ref() == Some(&now) {
                continue;
            }
            self.effects.push_back(Effect::GroupChanged(group));
            let of_others = |(state, nodes): (GroupState, Vec<Option<NodeId>>)| {
                let is_ending = matches!(state, GroupState::Removing | GroupState::Removed);
                (is_ending, nodes)
            };
            if before.map(of_others) == Some(of_others(now)) {
                continue;
            }
            owned.telling.version += 1;
            let watchers = owned.telling.watchers.clone();
            let face = self.face(group);
            for to in watchers {
                let face = face.clone();
                self.send(to, Message::GroupStands { group, face });
            }
        }
    }

    /// The owner of a group says how it stands with it.
    pub(super) fn group_stands(
        &mut self,
        from: NodeId,
        group: GroupId,
        face: Option<Box<GroupFace>>,
    ) {
        let foreign = self.groups.known.0.get_mut(&group);
        let Some(foreign) = foreign.filter(|foreign| foreign.owner == from) else {
            self.stale += 1;
            return;
        };
        let Some(face) = face else {
            let had = self.groups.known.0.remove(&group);
            let was_there = had.is_some_and(|foreign| foreign.face.is_some());
            self.effects.push_back(Effect::GroupChanged(group));
            return self.end_members(
                group,
                match was_there {
                    true => Reason::GroupRemoved(group),
                    false => Reason::NoGroup(group),
                },
            );
        };
        let known = foreign.face.as_ref().map_or(0, |face| face.version);
        if face.version < known || face.nodes.len() != face.spec.bundles().len() {
            self.stale += 1;
            return;
        }
        (foreign.is_asked, foreign.is_lost) = (false, false);
        if foreign.face.as_ref() == Some(&*face) {
            // As it was: so are the places of all that waits.
            return;
        }
        let before = foreign.face.replace(*face);
        let now = foreign.face.as_ref();
        let has_moved = before.is_none_or(|it| now.is_none_or(|now| it.nodes != now.nodes));
        self.effects.push_back(Effect::GroupChanged(group));
        if has_moved {
            self.place_members(group);
        }
    }

    /// A node has joined that was not known when news said that it has bundles.
    pub(super) fn place_members_at(&mut self, node: NodeId) {
        let known = self.groups.known.0.iter();
        let at_it = known.filter(|(_, foreign)| {
            let face = foreign.face.as_ref();
            face.is_some_and(|face| face.nodes.contains(&Some(node)))
        });
        let at_it: Vec<GroupId> = at_it.map(|(group, _)| *group).collect();
        for group in at_it {
            self.place_members(group);
        }
    }

    /// What was known of the groups of a node that is gone.
    pub(super) fn end_groups_of(&mut self, owner: NodeId) {
        let of_owner = self.groups.known.0.iter();
        let of_owner = of_owner.filter(|(_, foreign)| foreign.owner == owner);
        let of_owner: Vec<GroupId> = of_owner.map(|(group, _)| *group).collect();
        for group in of_owner {
            if self.groups.recorded.contains(&group) {
                self.await_next_owner(group);
            } else {
                self.end_known(group, Reason::GroupLost(group));
            }
        }
    }

    /// A group of another node has ended, and what waits for it with it.
    pub(super) fn end_known(&mut self, group: GroupId, why: Reason) {
        self.groups.known.0.remove(&group);
        self.effects.push_back(Effect::GroupChanged(group));
        self.end_members(group, why);
    }

    /// The owner of a group is lost, and another will take it over: what is known of it stays until that one tells.
    fn await_next_owner(&mut self, group: GroupId) {
        if let Some(foreign) = self.groups.known.0.get_mut(&group) {
            (foreign.is_lost, foreign.is_asked) = (true, true);
            foreign.begin_anew();
            self.effects.push_back(Effect::GroupChanged(group));
            self.await_news(group);
        }
    }

    /// A group has another owner, or the same one in another incarnation: that one is asked from now on.
    pub(super) fn follow_owner(&mut self, group: GroupId, owner: NodeId) {
        let own = self.own_id();
        if let Some(foreign) = self.groups.known.0.get_mut(&group) {
            (foreign.owner, foreign.is_asked) = (owner, true);
            foreign.begin_anew();
            if owner != own {
                foreign.is_lost = false;
                self.send(owner, Message::WantGroup(group));
            }
            self.effects.push_back(Effect::GroupChanged(group));
            self.await_news(group);
        } else if !self.owns_group(&group) {
            let mut waiting = WAITING.into_iter();
            if waiting.any(|phase| self.count_members(group, phase) > 0) {
                self.ask_owner(group);
            }
        }
    }

    /// The groups of a node that is not seen any more, and may live: how it stands with them is asked until it is
    /// seen again, or known to be gone.
    pub(super) fn doubt_groups_of(&mut self, owner: NodeId) {
        let of_owner = self.groups.known.0.iter_mut();
        let of_owner = of_owner.filter(|(_, foreign)| foreign.owner == owner);
        let mut doubted = Vec::new();
        for (group, foreign) in of_owner {
            (foreign.face, foreign.is_asked) = (None, true);
            doubted.push(*group);
        }
        for group in doubted {
            self.await_news(group);
        }
    }

    /// Whether a group that nobody here has heard of may be a node's that is not known yet.
    pub(super) fn may_have_owner(&self, group: &GroupId) -> bool {
        let local = self.config.local;
        let is_others = local.is_some_and(|local| !group.may_be_of(local));
        self.groups.recorded.contains(group) || is_others && !self.peers.is_without_owner(group)
    }

    /// Whether neither this group nor its owner is known here.
    pub(super) fn is_group_unheard_of(&self, group: &GroupId) -> bool {
        !self.owns_group(group)
            && !self.groups.known.0.contains_key(group)
            && !self.groups.recorded.contains(group)
            && self.owner_of(group).is_none()
    }

    /// Whether it is of no use to place the tasks of a group that were infeasible.
    pub(super) fn is_group_hopeless(&self, group: &GroupId) -> bool {
        let is_known =
            self.groups.owned.contains_key(group) || self.groups.known.0.contains_key(group);
        match is_known {
            true => self.groups.impossible(group).is_some(),
            false => self.may_have_owner(group) && self.owner_of(group).is_none(),
        }
    }

    /// The node that owns a group by its record, or that the group's id names, if it is there.
    fn owner_of(&self, group: &GroupId) -> Option<NodeId> {
        let others = self.cluster.iter().filter(|(_, node)| !node.is_own());
        let mut others = others.map(|(_, node)| node.id());
        match self.groups.recorded.owner(group) {
            Some(owner) => others.find(|id| *id == owner),
            None => others.find(|id| group.may_be_of(*id)),
        }
    }
}

impl Foreign {
    /// Whoever owns it begins to count its news.
    fn begin_anew(&mut self) {
        if let Some(face) = &mut self.face {
            face.version = 0;
        }
    }
}

impl Known {
    /// Whether a group is known, and its owner is known to be lost.
    pub(super) fn has_lost_owner(&self, group: &GroupId) -> bool {
        self.0.get(group).is_some_and(|foreign| foreign.is_lost)
    }

    /// What the owner of a group has told last. The outer `None`: nothing is known of it.
    pub(super) fn face(&self, group: &GroupId) -> Option<Option<&GroupFace>> {
        self.0.get(group).map(|foreign| foreign.face.as_ref())
    }

    /// A group is this node's now.
    pub(super) fn forget(&mut self, group: &GroupId) {
        self.0.remove(group);
    }

    /// A node is gone, with what it had reserved.
    pub(super) fn node_lost(&mut self, node: NodeId) {
        for foreign in self.0.values_mut() {
            if let Some(face) = &mut foreign.face {
                let there = face.nodes.iter_mut().filter(|it| **it == Some(node));
                there.for_each(|it| *it = None);
            }
        }
    }
}
