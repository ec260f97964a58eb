//! What nodes have room for, as a plan sees it: a dense table of numbers.
//!
//! Owns the reading of nodes into the table and what placing a bundle leaves of a node. Must not:
//! choose nodes.
//!
//! Invariants: a row never promises more than the node that it was read from would, if bundles are
//! reserved in the order in which they were placed; the table does not outlive one plan.

use smallvec::SmallVec;

use crate::cluster::{Labels, Selector};
use crate::resource::{Amount, Fit, NodeReport, NodeResources, PoolReport, Request, ResourceName};

/// A node as it offers itself to a plan: its own truth, a report, or more (a node of which
/// something is kept for others).
pub trait Offer {
    /// What is truly free of one resource; `None` if the node does not have it.
    fn free(&self, name: &ResourceName) -> Option<PoolReport>;

    /// Whether one more such request fits, and if not, why.
    fn judge(&self, request: &Request) -> Fit;

    /// Whether its labels are as a selector demands: one of which nothing is known has none.
    fn has_labels(&self, selector: &Selector) -> bool {
        selector.matches(&Labels::default())
    }
}

impl Offer for NodeResources {
    fn free(&self, name: &ResourceName) -> Option<PoolReport> {
        self.free(name)
    }

    fn judge(&self, request: &Request) -> Fit {
        self.judge(request)
    }
}

impl Offer for NodeReport {
    fn free(&self, name: &ResourceName) -> Option<PoolReport> {
        self.free(name)
    }

    fn judge(&self, request: &Request) -> Fit {
        self.judge(request)
    }
}

const UNIT: u64 = Amount::STEPS_PER_UNIT;

/// How many shared ids of a pool are told apart. Below that many, what is left of them is of no
/// use to the plan.
const SHARES: usize = 4;

/// What one node has of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    Missing,
    Sum {
        capacity: u64,
        free: u64,
    },
    Indexed {
        capacity: u32,
        whole: u32,
        /// What is left of shared ids, in steps, the most first; 0 for none.
        shares: [u16; SHARES],
    },
}

impl Cell {
    fn new(report: Option<PoolReport>) -> Self {
        match report {
            None => Self::Missing,
            Some(PoolReport::Sum {
                capacity,
                available,
            }) => Self::Sum {
                capacity: capacity.steps(),
                free: available.steps(),
            },
            Some(PoolReport::Indexed {
                capacity,
                whole_ids,
                largest_share,
                ..
            }) => {
                let mut shares = [0; SHARES];
                shares[0] = largest_share.map_or(0, |share| share.amount().steps() as u16);
                Self::Indexed {
                    capacity,
                    whole: whole_ids,
                    shares,
                }
            }
        }
    }

    /// What there is in all, in steps.
    pub(super) fn capacity(self) -> u64 {
        match self {
            Self::Missing => 0,
            Self::Sum { capacity, .. } => capacity,
            Self::Indexed { capacity, .. } => u64::from(capacity) * UNIT,
        }
    }

    pub(super) fn is_indexed(self) -> bool {
        matches!(self, Self::Indexed { .. })
    }

    /// Whether so much, more than nothing, could be taken if nobody held any.
    fn is_feasible(self, steps: u64) -> bool {
        let is_possible = !self.is_indexed() || steps < UNIT || steps.is_multiple_of(UNIT);
        is_possible && steps <= self.capacity()
    }

    /// Takes so much; false if it is not there, and then the cell is of no use any more.
    fn take(&mut self, steps: u64) -> bool {
        match self {
            Self::Missing => false,
            Self::Sum { free, .. } => {
                let has = *free >= steps;
                *free = free.saturating_sub(steps);
                has
            }
            Self::Indexed { whole, .. } if steps.is_multiple_of(UNIT) => {
                let has = u64::from(*whole) >= steps / UNIT;
                *whole = if has {
                    *whole - (steps / UNIT) as u32
                } else {
                    0
                };
                has
            }
            Self::Indexed { .. } if steps > UNIT => false,
            Self::Indexed { whole, shares, .. } => take_share(whole, shares, steps as u16),
        }
    }

    /// What is free of all there is, in parts of 2^32.
    fn free_ratio(self) -> u64 {
        let free = match self {
            Self::Missing => return 0,
            Self::Sum { free, .. } => free,
            Self::Indexed { whole, shares, .. } => {
                let shares: u64 = shares.iter().copied().map(u64::from).sum();
                u64::from(whole) * UNIT + shares
            }
        };
        // Both shifted alike, so that the division needs no 128 bits.
        let capacity = self.capacity().max(1);
        let shift = capacity.leading_zeros();
        let scale = |steps: u64| (steps.min(capacity) << shift) >> 32;
        (scale(free) << 32) / scale(capacity)
    }
}

/// Takes a share as a pool would: the best fit of the shared ids, else from a whole one.
fn take_share(whole: &mut u32, shares: &mut [u16; SHARES], steps: u16) -> bool {
    let place = shares.iter().rposition(|share| *share >= steps);
    let (at, left) = match place {
        Some(at) => (at, shares[at] - steps),
        None if *whole > 0 => {
            *whole -= 1;
            // The smallest has to make room.
            let left = UNIT as u16 - steps;
            (SHARES - 1, left.max(shares[SHARES - 1]))
        }
        None => return false,
    };
    shares[at] = left;
    shares.sort_unstable_by(|a, b| b.cmp(a));
    true
}

/// What bundles of equal requests ask for: columns of the table and steps.
pub(super) type Shape = SmallVec<[(usize, u64); 4]>;

/// The nodes of a plan, in the order of their keys, by the resources that the bundles ask for.
#[derive(Debug, Clone)]
pub(super) struct Rooms<N> {
    pub(super) keys: Vec<N>,
    pub(super) columns: usize,
    /// Row by row.
    cells: Vec<Cell>,
}

impl<N: Copy + Ord> Rooms<N> {
    /// Reads these resources of these nodes.
    ///
    /// # Panics
    /// If a key comes twice.
    pub(super) fn read<'a, O: Offer + ?Sized + 'a>(
        names: &[&ResourceName],
        nodes: impl Iterator<Item = (N, &'a O)>,
    ) -> Self {
        let mut nodes: Vec<_> = nodes.collect();
        if !nodes.is_sorted_by(|a, b| a.0 < b.0) {
            nodes.sort_by_key(|(key, _)| *key);
        }
        assert!(
            nodes.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "a node was offered twice"
        );
        let mut cells = Vec::with_capacity(nodes.len() * names.len());
        for (_, offer) in &nodes {
            cells.extend(names.iter().map(|name| Cell::new(offer.free(name))));
        }
        Self {
            keys: nodes.into_iter().map(|(key, _)| key).collect(),
            columns: names.len(),
            cells,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn row(&self, node: usize) -> &[Cell] {
        &self.cells[node * self.columns..][..self.columns]
    }

    pub(super) fn row_mut(&mut self, node: usize) -> &mut [Cell] {
        &mut self.cells[node * self.columns..][..self.columns]
    }

    /// Whether a bundle fits a node now.
    pub(super) fn fits(&self, node: usize, shape: &Shape) -> bool {
        fits_in(self.row(node), shape)
    }

    /// Places a bundle that fits.
    pub(super) fn place(&mut self, node: usize, shape: &Shape) {
        let fits = place_in(self.row_mut(node), shape);
        assert!(fits, "a bundle was placed where it does not fit");
    }

    /// Whether a bundle would fit a node if it were empty.
    pub(super) fn is_feasible(&self, node: usize, shape: &Shape) -> bool {
        let row = self.row(node);
        let mut wants = shape.iter();
        wants.all(|(column, steps)| row[*column].is_feasible(*steps))
    }

    /// How much of a node is left, of the resources that the bundles ask for: the sum of the
    /// ratios, in parts of 2^32.
    pub(super) fn remaining(&self, node: usize) -> u64 {
        left_of(self.row(node))
    }
}

/// Places a bundle in a row, if it fits; else the row stays as it was.
pub(super) fn place_in(row: &mut [Cell], shape: &Shape) -> bool {
    let fits = fits_in(row, shape);
    if fits {
        for (column, steps) in shape {
            row[*column].take(*steps);
        }
    }
    fits
}

fn fits_in(row: &[Cell], shape: &Shape) -> bool {
    shape.iter().all(|(column, steps)| {
        let mut cell = row[*column];
        cell.take(*steps)
    })
}

pub(super) fn left_of(row: &[Cell]) -> u64 {
    row.iter().map(|cell| cell.free_ratio()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(whole: u32, shares: [u16; SHARES]) -> Cell {
        let capacity = 8;
        Cell::Indexed {
            capacity,
            whole,
            shares,
        }
    }

    fn after(mut cell: Cell, steps: u64) -> Option<Cell> {
        cell.take(steps).then_some(cell)
    }

    #[test]
    fn shares_are_taken_as_a_pool_does() {
        let cell = gpus(1, [6_000, 4_000, 0, 0]);
        // The best fit, then the next, then a whole one is split; half of different ids is none.
        assert_eq!(after(cell, 4_000), Some(gpus(1, [6_000, 0, 0, 0])));
        assert_eq!(after(cell, 5_000), Some(gpus(1, [4_000, 1_000, 0, 0])));
        assert_eq!(after(cell, 7_000), Some(gpus(0, [6_000, 4_000, 3_000, 0])));
        assert_eq!(after(gpus(0, [6_000, 4_000, 0, 0]), 7_000), None);
        assert_eq!(after(cell, UNIT), Some(gpus(0, [6_000, 4_000, 0, 0])));
        assert_eq!(after(cell, 2 * UNIT), None);
        assert_eq!(after(cell, UNIT + 5_000), None);
    }

    #[test]
    fn a_share_too_many_is_forgotten_not_invented() {
        let full = gpus(1, [4_000, 3_000, 2_000, 1_000]);
        let left = after(full, 8_500).unwrap();
        assert_eq!(left, gpus(0, [4_000, 3_000, 2_000, 1_500]));
        let left = after(full, 9_500).unwrap();
        assert_eq!(left, gpus(0, [4_000, 3_000, 2_000, 1_000]));
    }

    #[test]
    fn ratios_of_any_size() {
        let sum = |free, capacity| Cell::Sum { capacity, free }.free_ratio();
        assert_eq!(sum(u64::MAX, u64::MAX), 1 << 32);
        assert_eq!(sum(1, 2), 1 << 31);
        assert_eq!(sum(u64::MAX / 2 + 1, u64::MAX) >> 8, (1 << 31) >> 8);
        assert_eq!(sum(0, 0), 0);
        assert_eq!(gpus(2, [5_000, 0, 0, 0]).free_ratio(), (5 << 32) / 16);
    }
}
