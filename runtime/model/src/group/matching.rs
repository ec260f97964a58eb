//! Matching: bundles to nodes of their own.
//!
//! Owns the search for as many pairs as possible. Must not: know resources.
//!
//! Invariant: no node is in two pairs, and no other choice of pairs has more of them.

/// A largest set of pairs: for each bundle, its node, or `None`.
///
/// `candidates` lists, for each bundle, the nodes that it fits, the best first; earlier bundles
/// choose first and keep *a* node, though maybe not their best. Kuhn's algorithm of augmenting
/// paths ("The Hungarian method", 1955): at most bundles x candidates steps for each bundle, and
/// one step where nodes are plenty.
pub(super) fn match_bundles(candidates: &[&[usize]], nodes: usize) -> Vec<Option<usize>> {
    let mut search = Search {
        candidates,
        bundle_of: vec![None; nodes],
        seen_by: vec![usize::MAX; nodes],
    };
    for bundle in 0..candidates.len() {
        search.place(bundle, bundle);
    }
    let mut node_of = vec![None; candidates.len()];
    for (node, bundle) in search.bundle_of.into_iter().enumerate() {
        if let Some(bundle) = bundle {
            node_of[bundle] = Some(node);
        }
    }
    node_of
}

struct Search<'a> {
    candidates: &'a [&'a [usize]],
    bundle_of: Vec<Option<usize>>,
    /// The last bundle for which a node was tried.
    seen_by: Vec<usize>,
}

impl Search<'_> {
    /// Finds a node for a bundle, moving others where it must be. It goes at most as deep as
    /// there are bundles.
    fn place(&mut self, bundle: usize, wanted_for: usize) -> bool {
        let candidates = self.candidates[bundle];
        let free = candidates
            .iter()
            .find(|node| self.bundle_of[**node].is_none());
        if let Some(node) = free {
            self.bundle_of[*node] = Some(bundle);
            return true;
        }
        for node in candidates {
            if self.seen_by[*node] == wanted_for {
                continue;
            }
            self.seen_by[*node] = wanted_for;
            let other = self.bundle_of[*node].expect("no candidate is free");
            if self.place(other, wanted_for) {
                self.bundle_of[*node] = Some(bundle);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The most pairs, by trying everything.
    fn most(candidates: &[Vec<usize>], taken: u32) -> usize {
        let Some((first, rest)) = candidates.split_first() else {
            return 0;
        };
        let with = first
            .iter()
            .filter(|node| taken & (1 << **node) == 0)
            .map(|node| 1 + most(rest, taken | 1 << node));
        with.max().unwrap_or(0).max(most(rest, taken))
    }

    proptest! {
        #[test]
        fn no_other_choice_has_more_pairs(
            candidates in prop::collection::vec(prop::collection::btree_set(0usize..6, 0..4), 0..7),
        ) {
            let candidates: Vec<Vec<usize>> =
                candidates.into_iter().map(|nodes| nodes.into_iter().collect()).collect();
            let slices: Vec<&[usize]> = candidates.iter().map(Vec::as_slice).collect();
            let found = match_bundles(&slices, 6);
            let mut nodes: Vec<usize> = found.iter().flatten().copied().collect();
            prop_assert_eq!(nodes.len(), most(&candidates, 0));
            for (node, candidates) in found.iter().zip(&candidates) {
                prop_assert!(node.is_none_or(|node| candidates.contains(&node)));
            }
            nodes.sort_unstable();
            nodes.dedup();
            prop_assert_eq!(nodes.len(), found.iter().flatten().count());
        }
    }

    #[test]
    fn the_best_node_where_nobody_needs_it() {
        assert_eq!(match_bundles(&[&[2, 0], &[2, 1]], 3), [Some(2), Some(1)]);
        assert_eq!(match_bundles(&[&[2, 0], &[2]], 3), [Some(0), Some(2)]);
        assert_eq!(match_bundles(&[&[0], &[0]], 1), [Some(0), None]);
    }
}
