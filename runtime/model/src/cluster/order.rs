//! The order of nodes by id, as a small number per node.
//!
//! Owns the numbers and the keys that indexes sort by. Must not: know ids; the caller says where a
//! node belongs.
//!
//! Invariants: a node's number is smaller than that of every node after it; numbers of nodes that
//! are there do not change, except when there is no number between two neighbours: then all get new
//! ones and [`Order::generation`] says so. (Order maintenance by sparse labels: Dietz, "Maintaining
//! order in a linked list", 1982.)

use super::name::NodeIx;

/// The numbers, by place.
#[derive(Debug, Default)]
pub(super) struct Order {
    numbers: Vec<u64>,
    generation: u64,
}

/// Numbers are below 2^40 and places below 2^24, so that both fit 64 bits.
const NUMBER_BITS: u32 = 40;
const PLACE_BITS: u32 = 24;

/// What is left free after the last node when another comes after it.
const GAP: u64 = 1 << 18;

impl Order {
    /// How often all numbers have changed.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// What to sort a node by: first `major`, then the node's number. The place is part of it.
    pub(super) fn key(&self, major: u64, ix: NodeIx) -> u128 {
        let minor = self.numbers[ix.index()] << PLACE_BITS | u64::from(ix.0);
        u128::from(major) << 64 | u128::from(minor)
    }

    /// Gives a node a number between those of two others. False if there is none.
    pub(super) fn insert(
        &mut self,
        ix: NodeIx,
        before: Option<NodeIx>,
        after: Option<NodeIx>,
    ) -> bool {
        assert!(ix.0 < 1 << PLACE_BITS, "at most 2^24 nodes");
        if self.numbers.len() <= ix.index() {
            self.numbers.resize(ix.index() + 1, 0);
        }
        let number = |ix: NodeIx| self.numbers[ix.index()];
        let low = before.map_or(0, number);
        let high = after.map_or(1 << NUMBER_BITS, number);
        let middle = low + (high - low) / 2;
        self.numbers[ix.index()] = match (before, after) {
            (Some(_), None) => middle.min(low + GAP),
            (None, Some(_)) => middle.max(high.saturating_sub(GAP)),
            _ => middle,
        };
        // 0 is nobody's number.
        middle > low
    }

    /// Gives all nodes, in their order, new numbers.
    pub(super) fn respace(&mut self, in_order: impl Iterator<Item = NodeIx> + Clone) {
        let step = (1 << NUMBER_BITS) / (in_order.clone().count() as u64 + 1);
        for (at, ix) in in_order.enumerate() {
            self.numbers[ix.index()] = (at as u64 + 1) * step;
        }
        self.generation += 1;
    }
}

/// The first part of a key.
pub(super) fn major(key: u128) -> u64 {
    (key >> 64) as u64
}

/// The node of a key.
pub(super) fn node(key: u128) -> NodeIx {
    NodeIx(key as u32 & ((1 << PLACE_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_order_and_are_renewed_when_they_run_out() {
        let mut order = Order::default();
        let mut nodes: Vec<NodeIx> = vec![];
        // Always just before the last node: halves one gap again and again.
        for place in 0..200 {
            let ix = NodeIx(place);
            let at = nodes.len().saturating_sub(1);
            let before = at.checked_sub(1).map(|at| nodes[at]);
            let after = nodes.get(at).copied();
            nodes.insert(at, ix);
            if !order.insert(ix, before, after) {
                order.respace(nodes.iter().copied());
            }
            let keys: Vec<_> = nodes.iter().map(|ix| order.key(7, *ix)).collect();
            assert!(keys.is_sorted());
            assert!(keys.iter().all(|key| major(*key) == 7));
            assert!(keys.iter().map(|key| node(*key)).eq(nodes.iter().copied()));
        }
        assert!(order.generation() > 2);
    }

    #[test]
    fn rising_and_falling_ids_need_no_new_numbers() {
        for is_rising in [true, false] {
            let mut order = Order::default();
            let mut last = None;
            for place in 0..100_000 {
                let neighbours = if is_rising {
                    (last, None)
                } else {
                    (None, last)
                };
                assert!(order.insert(NodeIx(place), neighbours.0, neighbours.1));
                last = Some(NodeIx(place));
            }
        }
    }
}
