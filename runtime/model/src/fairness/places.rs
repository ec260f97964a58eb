//! Places that are few, such as those of services: a quarter of what others leave stays free for further tenants.
//!
//! Owns how many of them a tenant may have beside the others. Must not: know what has a place, or take one away.
//!
//! Invariants: who has none finds one as long as one is free in its row; one tenant alone never takes all of its row.

use std::collections::BTreeMap;
use std::iter;

use super::parts::start;
use super::tenant::TenantName;

/// A tenant gets no further place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "tenant '{tenant}' has {has} with all that are part of it, and may have {most} beside the others"
)]
pub struct NoPlace {
    /// Which: the one that asks, or one that it is part of.
    pub tenant: TenantName,
    /// How many it has.
    pub has: usize,
    /// How many it may have, as long as the others have theirs.
    pub most: usize,
}

/// Whether a tenant may have one more of so many places, beside what all have. Level by level of the tree: of what the others
/// of a row leave, a tenant and all that are part of it have three quarters at most, and of the last three places all.
///
/// # Errors
/// When it has as many as it may have, or one that it is part of has.
pub fn check_place(
    mut places: usize,
    all: &BTreeMap<TenantName, usize>,
    tenant: &TenantName,
) -> Result<(), NoPlace> {
    let mut path: Vec<_> = iter::successors(Some(tenant.clone()), TenantName::parent).collect();
    path.reverse();
    let mut row: Vec<_> = all.iter().collect();
    for (depth, tenant) in path.into_iter().enumerate() {
        let is_its = |name: &TenantName| start(name.as_str(), depth) == tenant.as_str();
        let (its, others): (Vec<_>, Vec<_>) = row.into_iter().partition(|it| is_its(it.0));
        let has: usize = its.iter().map(|it| *it.1).sum();
        let left = places.saturating_sub(others.iter().map(|it| *it.1).sum());
        let most = left - left / 4;
        if has >= most {
            return Err(NoPlace { tenant, has, most });
        }
        (places, row) = (most, its);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many each gets of 256 places, one after the other, as many as it can.
    fn fill(tenants: &[&str]) -> Vec<usize> {
        let mut all = BTreeMap::new();
        let got = tenants.iter().map(|name| {
            let tenant: TenantName = name.parse().expect("a name");
            while check_place(256, &all, &tenant).is_ok() {
                *all.entry(tenant.clone()).or_default() += 1;
            }
            all.get(&tenant).copied().unwrap_or(0)
        });
        got.collect()
    }

    #[test]
    fn each_that_takes_all_it_can_leaves_some_for_the_next() {
        assert_eq!(
            fill(&["a", "b", "c", "d", "e", "f"]),
            [192, 48, 12, 3, 1, 0]
        );
    }

    #[test]
    fn parts_of_a_tenant_are_counted_with_it() {
        // Many names below one are no way to more.
        assert_eq!(fill(&["a/x", "a/y", "a/z"]), [144, 36, 9]);
        assert_eq!(fill(&["a/x", "a/y", "b", "a"]), [144, 36, 57, 0]);
        // A quarter is free for others in each row.
        assert_eq!(fill(&["a", "a/x", "b/x", "b/y"]), [192, 0, 36, 9]);
    }

    #[test]
    fn who_has_more_than_it_may_have_now_keeps_it_and_gets_no_more() {
        let name = |text: &str| text.parse::<TenantName>().expect("a name");
        let all = BTreeMap::from([(name("a"), 192), (name("b"), 20)]);
        let refused = check_place(256, &all, &name("a")).expect_err("it has enough");
        assert_eq!((refused.has, refused.most), (192, 177));
        let all = BTreeMap::from([(name("a"), 300)]);
        let refused = check_place(256, &all, &name("b")).expect_err("there is none");
        assert_eq!((refused.has, refused.most), (0, 0));
    }
}
