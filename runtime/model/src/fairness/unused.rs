//! Which tenants leave the table again.
//!
//! Owns the question whether something uses one. Must not: forget one by itself: its caller does where there is no room for another.
//!
//! Invariant: whatever ends a use of a tenant puts it among the idle ones, so that the rest of the table is not looked at.

use std::collections::BTreeSet;

use super::state::TenantCounters;
use super::tenant::{TenantConfig, TenantName};
use super::tenants::{MAX_TENANTS, TenantIx, Tenants};

impl Tenants {
    /// Forgets all that nothing uses: those without tasks, groups and settings, of whom no other node has reported any
    /// usage, and of which no tenant is part that stays. Their counters go on as those of [`Tenants::forgotten`]. Whether
    /// there were any.
    pub fn forget_unused(&mut self) -> bool {
        let mut has_forgotten = false;
        while let Some(ix) = self.idle.pop_last() {
            if !self.is_unused(ix) {
                continue;
            }
            has_forgotten = true;
            self.by_name.remove(&self.tenants[ix.0 as usize].name);
            self.free.push(ix);
            let tenant = &mut self.tenants[ix.0 as usize];
            self.forgotten.add(&tenant.counters);
            if let Some(parent) = tenant.parent.take() {
                self.idle.insert(parent);
                self.for_all_above(parent, |above| above.below -= 1);
            }
        }
        has_forgotten
    }

    /// Whether nothing would miss a tenant of the table. Of the first one all lanes are under first come, first served.
    fn is_unused(&self, ix: TenantIx) -> bool {
        let tenant = self.get(ix);
        ix != TenantIx(0)
            && tenant.uses == 0
            && tenant.below == 0
            && tenant.sandboxes == 0
            && tenant.actors_elsewhere == 0
            && tenant.usage.is_empty()
            && tenant.config == TenantConfig::default()
    }

    /// A task or a group of a tenant is there from now on, or no more.
    pub fn note_use(&mut self, ix: TenantIx, is_more: bool) {
        let uses = &mut self.tenants[ix.0 as usize].uses;
        match is_more {
            true => *uses += 1,
            false => *uses -= 1,
        }
        if *uses == 0 {
            self.idle.insert(ix);
        }
    }

    /// What tenants did that were forgotten.
    pub fn forgotten(&self) -> TenantCounters {
        self.forgotten
    }

    /// Whether a tenant of this name is there, or there is room for it.
    pub fn has_room_for(&self, name: &TenantName) -> bool {
        let mut new = BTreeSet::new();
        self.add_new(name, &mut new);
        self.len() + new.len() <= MAX_TENANTS
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fairness::{MAX_BELOW, Policy, TooManyTenants};
    use crate::id::NodeId;
    use crate::resource::{Amount, ResourceName, ResourceSet};

    fn name(text: &str) -> TenantName {
        text.parse().unwrap()
    }

    fn names(tenants: &Tenants) -> Vec<String> {
        let all = tenants.iter();
        all.map(|(_, it)| it.name().to_string()).collect()
    }

    #[test]
    fn what_nothing_uses_is_forgotten_and_the_rest_stays() {
        let mut tenants = Tenants::new(Policy::Drf);
        let cpu = ResourceSet::new().with(ResourceName::CPU, Amount::ONE);
        let all = ["first", "a/x/1", "b/x", "c", "d/x"];
        let [_, task, settings, nothing, report] = all.map(|it| tenants.intern(&name(it)).unwrap());
        tenants.note_use(task, true);
        let due = TenantConfig {
            min_share: cpu.clone(),
            ..TenantConfig::default()
        };
        tenants.set_config(&name("b/x"), due).unwrap();
        let node = NodeId::from_bytes([1; 16]);
        let usage = BTreeMap::from([(name("d/x"), cpu)]);
        tenants.set_remote(node, &usage).unwrap();
        tenants.note_use(nothing, true);
        tenants.note_finished(nothing);
        assert!(!tenants.forget_unused());
        tenants.note_use(nothing, false);
        assert!(tenants.forget_unused() && !tenants.forget_unused());
        let left = ["a", "a/x", "a/x/1", "b", "b/x", "d", "d/x", "first"];
        assert_eq!(names(&tenants), left);
        assert_eq!(tenants.forgotten().finished, 1);
        // The last use of each ends. Those above go with those below.
        tenants.note_use(task, false);
        tenants
            .set_config(&name("b/x"), TenantConfig::default())
            .unwrap();
        tenants.clear_remote(node);
        assert!(tenants.forget_unused());
        assert_eq!(names(&tenants), ["first"]);
        // Their places are for others, who have none of their past.
        let new = tenants.intern(&name("e")).unwrap();
        assert!(new <= settings.max(report).max(task));
        assert_eq!(tenants.get(new).counters(), TenantCounters::default());
        assert_eq!(tenants.get(new).parent(), None);
    }

    #[test]
    fn one_tenant_does_not_take_up_the_room_of_all() {
        let mut tenants = Tenants::new(Policy::Drf);
        tenants.intern(&name("first")).unwrap();
        let fill = |tenants: &mut Tenants, of: &str| {
            let mut all = (0..).map(|at| name(&format!("{of}/{at}")));
            all.find_map(|it| match tenants.intern(&it) {
                Ok(ix) => {
                    tenants.note_use(ix, true);
                    None
                }
                Err(why) => Some(why),
            })
            .unwrap()
        };
        let of = |text: &str, most: usize, why: TooManyTenants| {
            let TooManyTenants::Below {
                of, most: found, ..
            } = why
            else {
                panic!("{why}");
            };
            assert_eq!((of, found), (name(text), most));
        };
        of("org/team", MAX_BELOW / 4, fill(&mut tenants, "org/team"));
        of("org", MAX_BELOW, fill(&mut tenants, "org"));
        let why = fill(&mut tenants, "org").to_string();
        assert!(why.contains("8192 that have tasks"), "{why}");
        assert!(tenants.intern(&name("other/x")).is_ok());
        // What operators say counts, and is not refused.
        assert!(
            tenants
                .set_config(&name("org/x"), TenantConfig::default())
                .is_ok()
        );
        let one = tenants.find(&name("org/team/7")).unwrap();
        tenants.note_use(one, false);
        assert!(tenants.forget_unused());
        assert!(tenants.intern(&name("org/y")).is_ok());
    }
}
