//! The order of the lanes of one class: a tree, as that of tenants.
//!
//! Owns who stands in which row, by the key that it had when it was looked at last. Must not: know tasks.
//!
//! Invariant: in a row are all with a lane, and all below which somebody has one. The own lane of a tenant stands in its own
//! row if there is one, else for the tenant itself.

use std::collections::BTreeMap;

use crate::fairness::{Seat, ShareKey, TenantIx, Tenants};

type Row = BTreeMap<ShareKey, Seat>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Those that are part of nothing.
    top: Row,
    /// Those that are part of a tenant.
    rows: BTreeMap<TenantIx, Row>,
    keys: BTreeMap<Seat, ShareKey>,
}

impl Order {
    /// A tenant has a lane from now on.
    pub(super) fn add(&mut self, tenant: TenantIx, tenants: &Tenants) {
        let mut seat = self.seat_of(tenant);
        while !self.keys.contains_key(&seat) {
            let row = tenants.row_of(seat);
            // A lane that stood for its tenant alone stands in that tenant's row from now on.
            let moves = row.filter(|it| {
                !self.rows.contains_key(it) && self.keys.contains_key(&Seat::Tenant(*it))
            });
            self.sit(seat, tenants);
            if let Some(tenant) = moves {
                self.sit(Seat::Own(tenant), tenants);
            }
            match row {
                Some(tenant) => seat = Seat::Tenant(tenant),
                None => return,
            }
        }
    }

    /// A tenant has no lane any more. Nothing happens if it stands nowhere.
    pub(super) fn remove(&mut self, tenant: TenantIx, tenants: &Tenants) {
        let mut seat = self.seat_of(tenant);
        while let Some(key) = self.keys.remove(&seat) {
            let of = tenants.row_of(seat);
            let row = self.row(of);
            row.remove(&key);
            match of {
                Some(tenant) if row.is_empty() => {
                    self.rows.remove(&tenant);
                    seat = Seat::Tenant(tenant);
                }
                _ => return,
            }
        }
    }

    /// The keys of a tenant may have changed, and of all that it is part of.
    pub(super) fn refresh(&mut self, tenant: TenantIx, tenants: &Tenants) {
        if self.keys.is_empty() {
            return;
        }
        self.sit_anew(Seat::Own(tenant), tenants);
        let mut next = Some(tenant);
        while let Some(tenant) = next {
            self.sit_anew(Seat::Tenant(tenant), tenants);
            next = tenants.get(tenant).parent();
        }
    }

    /// The first with a lane.
    pub(super) fn first(&self) -> Option<TenantIx> {
        let (_, mut seat) = self.top.first_key_value()?;
        loop {
            let tenant = match seat {
                Seat::Own(tenant) => return Some(*tenant),
                Seat::Tenant(tenant) => tenant,
            };
            match self.rows.get(tenant).and_then(Row::first_key_value) {
                Some((_, below)) => seat = below,
                None => return Some(*tenant),
            }
        }
    }

    /// The first with a lane of whom it is said that it may start something. Those that are part of a tenant are left out
    /// if it is said of that one, as of one without a lane, that it may not.
    pub(super) fn first_where(
        &self,
        may_start: &dyn Fn(TenantIx, bool) -> bool,
    ) -> Option<TenantIx> {
        self.first_in(&self.top, may_start)
    }

    fn first_in(&self, row: &Row, may_start: &dyn Fn(TenantIx, bool) -> bool) -> Option<TenantIx> {
        row.values().find_map(|seat| {
            let (Seat::Own(tenant) | Seat::Tenant(tenant)) = seat;
            let below = match seat {
                Seat::Own(_) => None,
                Seat::Tenant(_) => self.rows.get(tenant),
            };
            match below {
                Some(below) if may_start(*tenant, false) => self.first_in(below, may_start),
                Some(_) => None,
                None => may_start(*tenant, true).then_some(*tenant),
            }
        })
    }

    /// Where the own lane of a tenant stands.
    fn seat_of(&self, tenant: TenantIx) -> Seat {
        match self.rows.contains_key(&tenant) {
            true => Seat::Own(tenant),
            false => Seat::Tenant(tenant),
        }
    }

    fn row(&mut self, of: Option<TenantIx>) -> &mut Row {
        match of {
            Some(tenant) => self.rows.entry(tenant).or_default(),
            None => &mut self.top,
        }
    }

    fn sit(&mut self, seat: Seat, tenants: &Tenants) {
        let key = tenants.seat_key(seat);
        self.row(tenants.row_of(seat)).insert(key.clone(), seat);
        self.keys.insert(seat, key.clone());
    }

    fn sit_anew(&mut self, seat: Seat, tenants: &Tenants) {
        let now = tenants.seat_key(seat);
        let Some(key) = self.keys.get_mut(&seat).filter(|key| *key != now) else {
            return;
        };
        let before = std::mem::replace(key, now.clone());
        let row = self.row(tenants.row_of(seat));
        row.remove(&before);
        row.insert(now.clone(), seat);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fairness::Policy;
    use crate::resource::{Amount, ResourceName, ResourceSet};

    const NAMES: [&str; 8] = ["a", "b", "a/x", "a/y", "b/x", "a/x/1", "a/x/2", "c/z/1"];

    #[derive(Debug, Clone)]
    enum Step {
        Add(usize),
        Remove(usize),
        Charge(usize, u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let who = || 0..NAMES.len();
        let step = prop_oneof![
            who().prop_map(Step::Add),
            who().prop_map(Step::Remove),
            (who(), 1u32..4).prop_map(|(who, amount)| Step::Charge(who, amount)),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        /// The first is the first of all that have a lane, after any insertions and removals, and no entry stays behind.
        #[test]
        fn the_first_is_that_of_the_tree(steps in steps()) {
            let mut tenants = Tenants::new(Policy::Drf);
            let cpus = |units| ResourceSet::new().with(ResourceName::CPU, Amount::units(units));
            tenants.set_total(cpus(100));
            let all = NAMES.map(|name| tenants.intern(&name.parse().unwrap()).unwrap());
            let (mut order, mut there) = (Order::default(), std::collections::BTreeSet::new());
            for step in steps {
                match step {
                    Step::Add(who) => {
                        there.insert(all[who]);
                        order.add(all[who], &tenants);
                    }
                    Step::Remove(who) => {
                        // Only who has a lane loses it.
                        if there.remove(&all[who]) {
                            order.remove(all[who], &tenants);
                        }
                    }
                    Step::Charge(who, amount) => {
                        tenants.charge(all[who], &cpus(amount));
                        order.refresh(all[who], &tenants);
                    }
                }
                let first = there.iter().copied().min_by(|a, b| tenants.order(*a, *b));
                prop_assert_eq!(order.first(), first);
                prop_assert_eq!(order.first_where(&|_, _| true), first);
                // Without some, and without all below a.
                let may = |ix: TenantIx, has_lane: bool| match has_lane {
                    true => !ix.0.is_multiple_of(3),
                    false => ix != all[0],
                };
                let is_of_a = |ix: TenantIx| tenants.get(ix).name().as_str().starts_with("a/");
                let others = there.iter().copied();
                let others = others.filter(|ix| may(*ix, true) && !is_of_a(*ix));
                let next = others.min_by(|a, b| tenants.order(*a, *b));
                let found = order.first_where(&may);
                prop_assert_eq!(found, next);
            }
            there.iter().for_each(|ix| order.remove(*ix, &tenants));
            prop_assert!(order.keys.is_empty() && order.rows.is_empty() && order.top.is_empty());
        }
    }
}
