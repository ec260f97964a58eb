//! Bundles: resources of a node that are reserved, and given out again in parts.
//!
//! Owns the small pool inside one reservation of a placement group: which of the units it holds
//! are free. Must not: take anything from the node; what a task gets here is a part of what the
//! bundle holds already.
//!
//! Invariants: tasks inside a bundle hold exactly what it holds less what is free in it; no unit,
//! and no more of a unit than the bundle has, is given out twice; the bundle goes back to the node
//! only when nobody holds a part of it.

use smallvec::SmallVec;

use super::allocation::{Allocation, PoolAllocation, Portion};
use super::amount::Amount;
use super::fit::{AcquireError, Fit, Infeasibility, PoolReport, judge};
use super::groups::Groups;
use super::ids::{ResourceId, ResourceIds};
use super::load::Load;
use super::name::ResourceName;
use super::request::{IndexedDemand, Request};
use super::set::ResourceSet;
use super::share::Share;

/// An allocation of a node that serves requests of its own: the bundle of a placement group, as
/// it lies on one node.
///
/// Its units keep the ids that they have on the node. A bundle with the whole GPU 3 can serve two
/// tasks with half of GPU 3 each; one with half of GPU 1 can serve two with a quarter of GPU 1.
/// (Ray renames such units to resources of the group; here they stay what they are.)
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what is reserved on a node must be released to it"]
pub struct Bundle {
    held: Allocation,
    /// In the order of the names, each once; the same resources as in `held`.
    parts: SmallVec<[(ResourceName, Part); 3]>,
}

/// What a bundle has of one resource, and what of that is free.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// Whole units.
    Units {
        /// From low to high.
        ids: SmallVec<[ResourceId; 4]>,
        /// The free ones, each under its place in `ids`, so that a bundle with one high id stays
        /// as small as any other.
        free: ResourceIds,
    },
    /// A share of one unit.
    Share {
        id: ResourceId,
        has: Share,
        free: Amount,
    },
    /// A quantity without ids.
    Sum { has: Amount, free: Amount },
}

impl Bundle {
    /// A bundle of what this allocation holds, all of it free.
    pub fn new(held: Allocation) -> Self {
        let parts = held
            .iter()
            .map(|(name, part)| (name.clone(), Part::new(part)));
        Self {
            parts: parts.collect(),
            held,
        }
    }

    /// What it holds of the node, free or not.
    pub fn allocation(&self) -> &Allocation {
        &self.held
    }

    /// What it has in all.
    pub fn total(&self) -> ResourceSet {
        self.held.amounts()
    }

    /// What of it is free, as a plain set: of units with ids that is not what fits.
    pub fn available(&self) -> ResourceSet {
        self.parts
            .iter()
            .map(|(name, part)| (name.clone(), part.available()))
            .collect()
    }

    /// Whether nobody holds a part of it. A task that asked for nothing does not show here.
    pub fn is_idle(&self) -> bool {
        self.parts.iter().all(|(_, part)| part.is_idle())
    }

    /// Whether a request can be served inside now, and if not, why. The reasons speak of "node";
    /// here that is the bundle.
    pub fn judge(&self, request: &Request) -> Fit {
        let beyond = request.amounts().iter().find_map(|(name, needs)| {
            let total = self.part(name)?.share()?.amount();
            (needs > total).then(|| Infeasibility::Total {
                name: name.clone(),
                needs,
                total,
            })
        });
        match beyond {
            Some(why) => Fit::Infeasible(why),
            None => judge(request, |name| self.part(name).map(Part::report), None),
        }
    }

    /// Whether [`Bundle::acquire`] would succeed.
    pub fn can_acquire(&self, request: &Request) -> bool {
        let mut amounts = request.amounts().iter();
        amounts.all(|(name, amount)| self.part(name).is_some_and(|part| part.contains(amount)))
    }

    /// The same beside what is kept for others.
    pub fn can_acquire_beside(&self, kept: &Request, request: &Request) -> bool {
        let report = |name: &ResourceName| self.part(name).map(Part::report);
        let kept = std::iter::once(kept);
        let fit = Load::default().judge_beside(kept, report, request);
        self.can_acquire(request) && fit == Fit::Available
    }

    /// Takes all that is asked for from what is free inside, or nothing. What is taken goes back
    /// to this bundle, not to the node.
    pub fn acquire(&mut self, request: &Request) -> Result<Allocation, AcquireError> {
        if !self.can_acquire(request) {
            return Err(match self.judge(request) {
                Fit::Unavailable(why) => AcquireError::Unavailable(why),
                Fit::Infeasible(why) => AcquireError::Infeasible(why),
                Fit::Available => unreachable!("{request:?} fits a report, but not the bundle"),
            });
        }
        let mut allocation = Allocation::nothing();
        for (name, amount) in request.amounts().iter() {
            let at = self.find(name).expect("was checked above");
            let part = self.parts[at].1.acquire(amount);
            allocation.push(name.clone(), part.expect("was checked above"));
        }
        Ok(allocation)
    }

    /// Gives back what was taken.
    ///
    /// # Panics
    /// If it was not taken from this bundle, as far as that shows.
    pub fn release(&mut self, allocation: Allocation) {
        for (name, part) in allocation.into_parts() {
            let at = self.find(&name);
            let at = at.unwrap_or_else(|| panic!("{name} was released to a bundle without it"));
            self.parts[at].1.release(&name, part);
        }
    }

    /// Gives the CPU part alone back: for a task that becomes blocked. Others in the bundle can
    /// use it meanwhile, nobody outside.
    pub fn release_cpu(&mut self, allocation: &mut Allocation) {
        self.release(allocation.take_cpu_part());
    }

    /// Takes the CPU part of the request again for a task that was blocked, maybe with other ids.
    /// If it is not there, nothing changes.
    ///
    /// # Panics
    /// If the allocation holds a CPU part.
    pub fn reacquire_cpu(
        &mut self,
        request: &Request,
        allocation: &mut Allocation,
    ) -> Result<(), AcquireError> {
        allocation.join(self.acquire(&request.cpu_part())?);
        Ok(())
    }

    /// Ends the bundle: its allocation, to be released to the node.
    ///
    /// # Panics
    /// If somebody still holds a part of it.
    pub fn into_allocation(self) -> Allocation {
        assert!(
            self.is_idle(),
            "a bundle with {} ended while only {} of it were free",
            self.total(),
            self.available()
        );
        self.held
    }

    /// Ends the bundle when its node is gone, whoever holds a part of it.
    pub fn abandon(self) {
        self.held.abandon();
    }

    fn part(&self, name: &ResourceName) -> Option<&Part> {
        self.find(name).map(|at| &self.parts[at].1)
    }

    fn find(&self, name: &ResourceName) -> Option<usize> {
        self.parts.iter().position(|(other, _)| other == name)
    }
}

impl Part {
    fn new(held: &PoolAllocation) -> Self {
        let ids: SmallVec<[ResourceId; 4]> = held.ids().map(|(id, _)| id).collect();
        let has = held.amount();
        match (ids.as_slice(), Share::new(has)) {
            ([], _) => Self::Sum { has, free: has },
            ([id], Some(share)) => Self::Share {
                id: *id,
                has: share,
                free: has,
            },
            (units, _) => {
                debug_assert!(units.is_sorted(), "{units:?} are not from low to high");
                let free = ResourceIds::new(units.len() as u32);
                Self::Units { ids, free }
            }
        }
    }

    fn share(&self) -> Option<Share> {
        match self {
            Self::Share { has, .. } => Some(*has),
            Self::Units { .. } | Self::Sum { .. } => None,
        }
    }

    fn available(&self) -> Amount {
        match self {
            Self::Units { free, .. } => free.amount(),
            Self::Share { free, .. } | Self::Sum { free, .. } => *free,
        }
    }

    fn is_idle(&self) -> bool {
        match self {
            Self::Units { ids, free } => free.whole_ids() as usize == ids.len(),
            Self::Share { has, free, .. } => *free == has.amount(),
            Self::Sum { has, free } => free == has,
        }
    }

    /// As a pool would be reported. For a share the capacity is rounded up: what is more than the
    /// share must have been refused before.
    fn report(&self) -> PoolReport {
        match self {
            Self::Units { ids, free } => PoolReport::Indexed {
                capacity: ids.len() as u32,
                available: free.amount(),
                whole_ids: free.whole_ids(),
                largest_share: free.largest_share(),
            },
            Self::Share { free, .. } => PoolReport::Indexed {
                capacity: 1,
                available: *free,
                whole_ids: 0,
                largest_share: Share::new(*free),
            },
            Self::Sum { has, free } => PoolReport::Sum {
                capacity: *has,
                available: *free,
            },
        }
    }

    fn contains(&self, amount: Amount) -> bool {
        match self {
            Self::Units { free, .. } => {
                IndexedDemand::new(amount).is_some_and(|demand| free.contains(demand))
            }
            Self::Share { free, .. } | Self::Sum { free, .. } => amount <= *free,
        }
    }

    fn acquire(&mut self, amount: Amount) -> Option<PoolAllocation> {
        let held = match self {
            Self::Units { ids, free } => {
                let taken = free.acquire(IndexedDemand::new(amount)?, &Groups::none())?;
                let id = |place: ResourceId| ids[place.get() as usize];
                match taken.into_portion() {
                    Portion::Units(places) => Portion::Units(places.into_iter().map(id).collect()),
                    Portion::Share(place, share) => Portion::Share(id(place), share),
                    held @ (Portion::Nothing | Portion::Sum(_)) => held,
                }
            }
            Self::Share { id, free, .. } => {
                *free = free.checked_sub(amount)?;
                Portion::Share(*id, Share::new(amount)?)
            }
            Self::Sum { free, .. } => {
                *free = free.checked_sub(amount)?;
                Portion::Sum(amount)
            }
        };
        Some(PoolAllocation::new(held))
    }

    fn release(&mut self, name: &ResourceName, allocation: PoolAllocation) {
        match (self, allocation.into_portion()) {
            (_, Portion::Nothing) => {}
            (Self::Units { ids, free }, Portion::Units(units)) => {
                for id in units {
                    free.give_back_unit(place(name, ids, id));
                }
            }
            (Self::Units { ids, free }, Portion::Share(id, share)) => {
                free.give_back_share(place(name, ids, id), share);
            }
            (Self::Share { id, has, free }, Portion::Share(other, share)) => {
                place(name, &[*id], other);
                give_back(name, free, share.amount(), has.amount());
            }
            (Self::Sum { has, free }, Portion::Sum(amount)) => give_back(name, free, amount, *has),
            (part, held) => panic!("{name}: {held:?} was released to a bundle with {part:?}"),
        }
    }
}

/// The place of an id among those of a bundle.
fn place(name: &ResourceName, ids: &[ResourceId], id: ResourceId) -> ResourceId {
    match ids.binary_search(&id) {
        Ok(at) => ResourceId::new(at as u32),
        Err(_) => panic!("{name}: id {id} was released to a bundle without it"),
    }
}

fn give_back(name: &ResourceName, free: &mut Amount, amount: Amount, has: Amount) {
    let sum = free.checked_add(amount).filter(|sum| *sum <= has);
    *free = sum.unwrap_or_else(|| {
        panic!("{name}: {amount} beside {free} free is more than the {has} that a bundle has")
    });
}

#[cfg(test)]
mod tests {
    use super::super::node::NodeResources;
    use super::super::pool::Pool;
    use super::*;

    fn node(json: &str) -> NodeResources {
        NodeResources::of(&serde_json::from_str(json).unwrap()).unwrap()
    }

    fn request(json: &str) -> Request {
        serde_json::from_str(json).unwrap()
    }

    fn gpus(allocation: &Allocation) -> String {
        let holding = &allocation.holdings()[&ResourceName::GPU];
        serde_json::to_string(&holding.ids).unwrap()
    }

    #[test]
    fn tasks_hold_the_ids_of_the_bundle() {
        let mut node = node(r#"{"CPU": 8, "GPU": 4, "memory": 100}"#);
        let before = node.acquire(&request(r#"{"GPU": 3}"#)).unwrap();
        let held = node
            .acquire(&request(r#"{"CPU": 2, "GPU": 1, "memory": 10}"#))
            .unwrap();
        let mut bundle = Bundle::new(held);
        let half = request(r#"{"CPU": 1, "GPU": "0.5", "memory": 4}"#);
        let tasks = [
            bundle.acquire(&half).unwrap(),
            bundle.acquire(&half).unwrap(),
        ];
        assert_eq!(
            tasks.each_ref().map(gpus),
            [r#"[[3,"0.5"]]"#, r#"[[3,"0.5"]]"#]
        );
        assert_eq!(bundle.available().to_string(), "{memory: 2}");
        assert!(!bundle.is_idle() && !bundle.can_acquire(&half));
        let refused = bundle.acquire(&half).unwrap_err().to_string();
        assert_eq!(refused, "CPU: needs 1, node has 0 whole units free");
        tasks.into_iter().for_each(|task| bundle.release(task));
        assert!(bundle.is_idle());
        node.release(bundle.into_allocation());
        node.release(before);
        assert_eq!(node.available(), node.total());
    }

    #[test]
    fn a_share_of_a_unit_is_shared_further() {
        let mut node = node(r#"{"GPU": 2}"#);
        let other = node.acquire(&request(r#"{"GPU": 1}"#)).unwrap();
        let mut bundle = Bundle::new(node.acquire(&request(r#"{"GPU": "0.5"}"#)).unwrap());
        let quarter = request(r#"{"GPU": "0.25"}"#);
        let tasks = [
            bundle.acquire(&quarter).unwrap(),
            bundle.acquire(&quarter).unwrap(),
        ];
        assert_eq!(
            tasks.each_ref().map(gpus),
            [r#"[[1,"0.25"]]"#, r#"[[1,"0.25"]]"#]
        );
        assert!(matches!(
            bundle.acquire(&quarter),
            Err(AcquireError::Unavailable(_))
        ));
        for too_much in [r#"{"GPU": "0.75"}"#, r#"{"GPU": 1}"#, r#"{"CPU": 1}"#] {
            let fit = bundle.judge(&request(too_much));
            assert!(matches!(fit, Fit::Infeasible(_)), "{too_much}: {fit:?}");
        }
        tasks.into_iter().for_each(|task| bundle.release(task));
        node.release(bundle.into_allocation());
        node.release(other);
    }

    #[test]
    fn a_blocked_task_gives_its_cpu_to_others_in_the_bundle_only() {
        let mut node = node(r#"{"CPU": 2, "GPU": 1}"#);
        let wanted = request(r#"{"CPU": 1, "GPU": 1}"#);
        let mut bundle = Bundle::new(node.acquire(&wanted).unwrap());
        let mut task = bundle.acquire(&wanted).unwrap();
        bundle.release_cpu(&mut task);
        assert_eq!(node.available().to_string(), "{CPU: 1}");
        let other = bundle.acquire(&wanted.cpu_part()).unwrap();
        assert!(bundle.reacquire_cpu(&wanted, &mut task).is_err());
        bundle.release(other);
        bundle.reacquire_cpu(&wanted, &mut task).unwrap();
        assert_eq!(&task.amounts(), wanted.amounts());
        bundle.release(task);
        node.release(bundle.into_allocation());
    }

    #[test]
    fn a_dead_node_takes_its_bundles_along() {
        let mut node = node(r#"{"CPU": 2}"#);
        let mut bundle = Bundle::new(node.acquire(&request(r#"{"CPU": 2}"#)).unwrap());
        bundle.acquire(&request(r#"{"CPU": 1}"#)).unwrap().abandon();
        bundle.abandon();
    }

    #[test]
    #[should_panic(expected = "ended while only {CPU: 1} of it were free")]
    fn ending_a_bundle_in_use_is_a_bug() {
        let mut bundle = Bundle::new(
            node(r#"{"CPU": 2}"#)
                .acquire(&request(r#"{"CPU": 2}"#))
                .unwrap(),
        );
        let _task = std::mem::ManuallyDrop::new(bundle.acquire(&request(r#"{"CPU": 1}"#)));
        drop(bundle.into_allocation());
    }

    #[test]
    #[should_panic(expected = "GPU: id 0 was released to a bundle without it")]
    fn releasing_a_unit_of_another_bundle_is_a_bug() {
        let mut node = node(r#"{"GPU": 2}"#);
        let one = request(r#"{"GPU": 1}"#);
        let first = node.acquire(&one).unwrap();
        let mut bundle = Bundle::new(node.acquire(&one).unwrap());
        bundle.release(first);
    }

    #[test]
    #[should_panic(expected = "more than the 0.5 that a bundle has")]
    fn releasing_more_of_a_unit_than_the_bundle_has_is_a_bug() {
        let mut node = node(r#"{"GPU": 1}"#);
        let half = request(r#"{"GPU": "0.5"}"#);
        let first = node.acquire(&half).unwrap();
        let mut bundle = Bundle::new(node.acquire(&half).unwrap());
        bundle.release(first);
    }

    #[test]
    fn the_bundle_of_a_high_id_is_as_small_as_any() {
        let mut node = NodeResources::new();
        let tokens: ResourceName = "tokens".parse().unwrap();
        let pool = Pool::for_name(&tokens, Amount::units(1 << 20)).unwrap();
        node.add(tokens.clone(), pool).unwrap();
        let all_but_one = ResourceSet::new().with(tokens, Amount::units((1 << 20) - 1));
        let low = node.acquire(&Request::new(all_but_one).unwrap()).unwrap();
        let held = node.acquire(&request(r#"{"tokens": 1}"#)).unwrap();
        let bundle = Bundle::new(held);
        let Part::Units { free, .. } = &bundle.parts[0].1 else {
            panic!("{bundle:?}");
        };
        assert_eq!(*free, ResourceIds::new(1));
        node.release(bundle.into_allocation());
        node.release(low);
    }
}
