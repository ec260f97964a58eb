//! A set of free extents: best fit, and neighbours join.
//!
//! Owns extents that nobody uses. Invariant: no two of them are neighbours; both orders hold the
//! same extents.

use std::collections::{BTreeMap, BTreeSet};

use crate::segment::{Extent, SegmentNumber};

#[derive(Debug, Default)]
pub(crate) struct FreeSet {
    by_place: BTreeMap<(SegmentNumber, u64), Extent>,
    by_size: BTreeSet<(u64, SegmentNumber, u64)>,
}

impl FreeSet {
    /// All extents, the longest first.
    pub(crate) fn longest_first(&self) -> impl Iterator<Item = &Extent> {
        let places = self
            .by_size
            .iter()
            .rev()
            .map(|(_, segment, start)| (*segment, *start));
        places.map(|place| &self.by_place[&place])
    }

    /// Any extent of a segment.
    pub(crate) fn first_of(&self, segment: SegmentNumber) -> Option<&Extent> {
        let mut range = self.by_place.range((segment, 0)..=(segment, u64::MAX));
        range.next().map(|(_, extent)| extent)
    }

    pub(crate) fn insert(&mut self, mut extent: Extent) {
        let place = (extent.segment_number(), extent.start());
        let before = self.by_place.range(..place).next_back();
        if let Some(at) = before
            .filter(|(_, it)| it.is_followed_by(&extent))
            .map(|(at, _)| *at)
        {
            let mut joined = self.unlink(at);
            joined.join(extent);
            extent = joined;
        }
        let after = (extent.segment_number(), extent.end());
        if self.by_place.contains_key(&after) {
            let next = self.unlink(after);
            extent.join(next);
        }
        self.link(extent);
    }

    /// Takes exactly so many bytes, from the shortest extent that has them.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Extent> {
        let shortest = (bytes, SegmentNumber(0), 0);
        let (_, segment, start) = *self.by_size.range(shortest..).next()?;
        self.take_at((segment, start), bytes)
    }

    /// Takes the first bytes of the extent at a place, or all of it if it is not longer.
    pub(crate) fn take_at(&mut self, place: (SegmentNumber, u64), bytes: u64) -> Option<Extent> {
        if !self.by_place.contains_key(&place) {
            return None;
        }
        let mut extent = self.unlink(place);
        if extent.len() > bytes {
            self.link(extent.split_off(bytes));
        }
        Some(extent)
    }

    /// Takes all that is of one segment.
    pub(crate) fn take_segment(&mut self, segment: SegmentNumber) -> Vec<Extent> {
        let of_segment = (segment, 0)..=(segment, u64::MAX);
        let places: Vec<_> = self.by_place.range(of_segment).map(|(at, _)| *at).collect();
        places.into_iter().map(|at| self.unlink(at)).collect()
    }

    /// Checks the invariant by looking at everything; gives the bytes in each segment.
    pub(crate) fn check(&self) -> BTreeMap<SegmentNumber, u64> {
        let mut sums = BTreeMap::new();
        let mut last: Option<&Extent> = None;
        for (place, extent) in &self.by_place {
            assert_eq!(*place, (extent.segment_number(), extent.start()));
            assert!(self.by_size.contains(&(extent.len(), place.0, place.1)));
            assert!(
                !last.is_some_and(|last| last.is_followed_by(extent)),
                "neighbours join"
            );
            *sums.entry(place.0).or_default() += extent.len();
            last = Some(extent);
        }
        assert_eq!(self.by_place.len(), self.by_size.len());
        sums
    }

    fn link(&mut self, extent: Extent) {
        let (segment, start) = (extent.segment_number(), extent.start());
        self.by_size.insert((extent.len(), segment, start));
        self.by_place.insert((segment, start), extent);
    }

    fn unlink(&mut self, place: (SegmentNumber, u64)) -> Extent {
        let extent = self
            .by_place
            .remove(&place)
            .expect("an extent stands where it starts");
        self.by_size.remove(&(extent.len(), place.0, place.1));
        extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Backing, PageSize, Segment};

    #[test]
    fn the_best_fit_is_taken_and_neighbours_join() {
        let mut rest =
            Segment::create(SegmentNumber(0), 1 << 20, &Backing::Memfd, PageSize::Usual).unwrap();
        let mut set = FreeSet::default();
        let mut used = Vec::new();
        for len in [4096, 64, 8192, 64, 4160, 64] {
            let next = rest.split_off(len);
            used.push(std::mem::replace(&mut rest, next));
        }
        let gaps: Vec<_> = used.drain(..).enumerate().collect();
        for (n, extent) in gaps {
            match n % 2 {
                0 => set.insert(extent),
                _ => used.push(extent),
            }
        }
        assert_eq!(set.take(4100).unwrap().len(), 4100);
        assert_eq!(
            set.by_size.iter().map(|it| it.0).collect::<Vec<_>>(),
            [60, 4096, 8192]
        );
        // The one between 4096 and 8192 comes back: three become one.
        set.insert(used.remove(0));
        assert_eq!(set.longest_first().next().unwrap().len(), 4096 + 64 + 8192);
        set.check();
        assert!(set.take(1 << 20).is_none());
        assert_eq!(set.take_segment(SegmentNumber(0)).len(), 2);
    }
}
