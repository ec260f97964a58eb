//! The order of service in the tree of tenants.
//!
//! Owns who is ahead of two tenants anywhere in the tree. Must not: change anything.
//!
//! Invariant: a total order of tenants. Two are compared where their paths part, by the keys of those two there, so all
//! of one subtree stand together. A tenant's own work stands among those below it.
//!
//! Source: the hierarchical `FairSharePolicy` of Hadoop YARN, which compares subtrees by all that they use. Bhattacharya
//! et al., "Hierarchical Scheduling for Diverse Datacenter Workloads", SoCC 2013, show what can starve by that;
//! `docs/decisions/tenants.md` says why it is so here.

use std::cmp::Ordering;

use smallvec::{SmallVec, smallvec};

use super::explain::{Ahead, Side};
use super::key::ShareKey;
use super::tenants::{TenantIx, Tenants};

/// Who stands in a row, that of those which are part of the same tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seat {
    /// A tenant, with all below it.
    Tenant(TenantIx),
    /// The own work of the tenant whose row it is.
    Own(TenantIx),
}

impl Tenants {
    /// Where in its row somebody stands: the smaller key is served first.
    pub fn seat_key(&self, seat: Seat) -> &ShareKey {
        match seat {
            Seat::Tenant(ix) => self.key(ix),
            Seat::Own(ix) => self.get(ix).own_key(),
        }
    }

    /// The tenant in whose row somebody stands; the row of all that are part of nothing has none.
    pub fn row_of(&self, seat: Seat) -> Option<TenantIx> {
        match seat {
            Seat::Tenant(ix) => self.get(ix).parent(),
            Seat::Own(ix) => Some(ix),
        }
    }

    /// The order of service of two tenants. Equal if they are the same, or the policy is `fifo`.
    pub fn order(&self, a: TenantIx, b: TenantIx) -> Ordering {
        let parting = self.parting(a, b);
        parting.map_or(Ordering::Equal, |(a, b)| {
            self.seat_key(a).cmp(self.seat_key(b))
        })
    }

    /// Whether the first of two tenants is served before the other.
    pub fn is_before(&self, a: TenantIx, b: TenantIx) -> bool {
        self.order(a, b) == Ordering::Less
    }

    /// The order by guarantees and shares alone: tenants may be equal in it.
    pub fn cmp_shares(&self, a: TenantIx, b: TenantIx) -> Ordering {
        let parting = self.parting(a, b);
        parting.map_or(Ordering::Equal, |(a, b)| {
            self.seat_key(a).cmp_shares(self.seat_key(b))
        })
    }

    /// Which of two tenants is served first, and why: of those where their paths part. `None` if neither is before the
    /// other: they are the same, or the policy is `fifo`.
    pub fn compare(&self, a: TenantIx, b: TenantIx) -> Option<Ahead> {
        let (a, b) = self.parting(a, b)?;
        let (a, b) = (self.side(a), self.side(b));
        match a.key.cmp(b.key) {
            Ordering::Less => Some(Ahead::new(&a, &b, self.columns())),
            Ordering::Equal => None,
            Ordering::Greater => Some(Ahead::new(&b, &a, self.columns())),
        }
    }

    fn side(&self, seat: Seat) -> Side<'_> {
        let (Seat::Tenant(ix) | Seat::Own(ix)) = seat;
        let tenant = self.get(ix);
        let (ranking, terms) = match seat {
            Seat::Tenant(_) => tenant.ranking(self.columns()),
            Seat::Own(_) => tenant.own_ranking(self.columns()),
        };
        Side {
            name: tenant.name(),
            key: self.seat_key(seat),
            ranking,
            terms,
        }
    }

    /// Those in whose order two tenants stand: in the first row in which they are not the same. `None` if both are one.
    fn parting(&self, a: TenantIx, b: TenantIx) -> Option<(Seat, Seat)> {
        if a == b {
            return None;
        }
        if self.get(a).parent() == self.get(b).parent() {
            return Some((Seat::Tenant(a), Seat::Tenant(b)));
        }
        let (path_a, path_b) = (self.path(a), self.path(b));
        let pairs = std::iter::zip(&path_a, &path_b);
        let at = pairs.take_while(|(a, b)| a == b).count();
        let seat = |path: &[TenantIx], of: TenantIx| {
            let next = path.get(at).copied();
            next.map_or(Seat::Own(of), Seat::Tenant)
        };
        Some((seat(&path_a, a), seat(&path_b, b)))
    }

    /// A tenant behind all that it is part of.
    fn path(&self, ix: TenantIx) -> SmallVec<[TenantIx; 4]> {
        let mut path = smallvec![ix];
        let mut next = self.get(ix).parent();
        while let Some(ix) = next {
            path.push(ix);
            next = self.get(ix).parent();
        }
        path.reverse();
        path
    }
}
