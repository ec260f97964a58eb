//! The arena: who has which memory, and where new memory comes from.
//!
//! Owns the segments, and what of them is free. Must not: know objects, wait, or do anything
//! slow; what is slow is handed out as [`Leftovers`].
//!
//! Every byte of a segment is one of four. *Used*: somebody has the extent. *Warm*: free, reserved,
//! and touched before, so it takes memory and is fast. *Fresh*: never touched, or given back; takes no
//! memory, and must be reserved before it is touched. *Leaving*: its memory is being given back. Segments are of one
//! tenant and one class; their length is only address space. Invariants: used + warm is never above the capacity when an
//! allocation returns; memory moves from one tenant to another only through the kernel, which
//! clears it.

mod free;
mod layout;

use std::collections::BTreeMap;
use std::io;

use wasmrun_model::fairness::TenantName;

use free::FreeSet;
pub(crate) use layout::{Class, Layout, WHOLE_PAGES_FROM_BYTES};

use crate::segment::{
    Backing, Extent, HUGE_PAGE_BYTES, PageSize, Segment, SegmentNumber, page_bytes,
};

#[derive(Debug)]
pub(crate) struct Arena {
    capacity: u64,
    segment_bytes: u64,
    backing: Backing,
    segments_made: u64,
    segments: BTreeMap<SegmentNumber, Owned>,
    tenants: BTreeMap<TenantName, Pools>,
    used: u64,
    warm: u64,
    leaving: u64,
}

/// A segment, as the arena sees it.
#[derive(Debug)]
struct Owned {
    tenant: TenantName,
    class: Class,
    len: u64,
    used: u64,
    warm: u64,
    leaving: u64,
}

/// What one tenant has.
#[derive(Debug, Default)]
struct Pools {
    packed: Pool,
    pages: Pool,
    huge_pages: Pool,
    used: u64,
}

/// What is free in the segments of one tenant and class.
#[derive(Debug, Default)]
struct Pool {
    warm: FreeSet,
    fresh: FreeSet,
}

/// Memory for one object.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) extent: Extent,
    /// It was never touched: its bytes are zeros.
    pub(crate) fresh: bool,
}

/// Work that is too slow to be done under a lock.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// To be dropped: with the last extent the segment is unmapped.
    pub(crate) closing: Vec<Extent>,
    /// Pages to be given back; then [`Arena::released`].
    pub(crate) leaving: Vec<Extent>,
}

impl Pools {
    fn of(&mut self, class: Class) -> &mut Pool {
        match class {
            Class::Packed => &mut self.packed,
            Class::Pages => &mut self.pages,
            Class::HugePages => &mut self.huge_pages,
        }
    }

    fn all(&self) -> [(Class, &Pool); 3] {
        [
            (Class::Packed, &self.packed),
            (Class::Pages, &self.pages),
            (Class::HugePages, &self.huge_pages),
        ]
    }
}

impl Arena {
    /// An arena without segments. The capacity is in whole pages.
    pub(crate) fn new(capacity: u64, segment_bytes: u64, backing: Backing) -> Self {
        Self {
            capacity: capacity / page_bytes() * page_bytes(),
            segment_bytes,
            backing,
            segments_made: 0,
            segments: BTreeMap::new(),
            tenants: BTreeMap::new(),
            used: 0,
            warm: 0,
            leaving: 0,
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// What is free but takes memory all the same, to be used again.
    pub(crate) fn warm(&self) -> u64 {
        self.warm
    }

    /// What of the capacity each tenant uses.
    pub(crate) fn used_by_tenant(&self) -> impl Iterator<Item = (&TenantName, u64)> {
        self.tenants
            .iter()
            .map(|(tenant, pools)| (tenant, pools.used))
    }

    /// The same from this name on, in the order of names.
    pub(crate) fn used_from(&self, from: &TenantName) -> impl Iterator<Item = (&TenantName, u64)> {
        let all = self.tenants.range(from.clone()..);
        all.map(|(tenant, pools)| (tenant, pools.used))
    }

    /// What of the capacity a tenant uses.
    pub(crate) fn used_of(&self, tenant: &TenantName) -> u64 {
        self.tenants.get(tenant).map_or(0, |it| it.used)
    }

    /// What is free in segments of a tenant and takes memory all the same, segment by segment.
    pub(crate) fn warm_by_tenant(&self) -> impl Iterator<Item = (&TenantName, u64)> {
        let all = self.segments.values();
        all.map(|owned| (&owned.tenant, owned.warm))
    }

    /// Memory for an object; `None` if there is none now.
    ///
    /// # Errors
    /// When the system gives no segment.
    pub(crate) fn allocate(
        &mut self,
        tenant: &TenantName,
        layout: Layout,
        leftovers: &mut Leftovers,
    ) -> io::Result<Option<Room>> {
        if let Some(pools) = self.tenants.get_mut(tenant)
            && let Some(extent) = pools.of(layout.class).warm.take(layout.bytes)
        {
            self.warm -= extent.len();
            self.segments
                .get_mut(&extent.segment_number())
                .expect(KNOWN)
                .warm -= extent.len();
            self.count_used(tenant, &extent);
            return Ok(Some(Room {
                extent,
                fresh: false,
            }));
        }
        if !self.reclaim(layout.whole_pages(), leftovers) {
            return Ok(None);
        }
        let mut extent = self.take_fresh(tenant, layout)?;
        if extent.len() > layout.bytes {
            // The rest of the page has been paid for: the next small objects go there.
            let rest = extent.split_off(layout.bytes);
            self.add_warm(rest);
        }
        self.count_used(tenant, &extent);
        Ok(Some(Room {
            extent,
            fresh: true,
        }))
    }

    /// How much must become free before this can be allocated, as far as the sums tell: above zero.
    pub(crate) fn shortfall(&self, layout: Layout) -> u64 {
        (self.used + layout.whole_pages())
            .saturating_sub(self.capacity)
            .max(1)
    }

    /// Takes back what was allocated. One that was never reserved is untouched, and fresh again: its next user reserves it.
    pub(crate) fn release(&mut self, extent: Extent, leftovers: &mut Leftovers) {
        let owned = self
            .segments
            .get_mut(&extent.segment_number())
            .expect(KNOWN);
        owned.used -= extent.len();
        self.used -= extent.len();
        self.tenants.get_mut(&owned.tenant).expect(KNOWN).used -= extent.len();
        if extent.is_reserved() {
            self.add_warm(extent);
        } else {
            self.add_fresh(extent, leftovers);
        }
    }

    /// Takes back what was [`Leftovers::leaving`]. If its pages could not be given back after all,
    /// because another process was given the segment in between, it is warm again.
    pub(crate) fn released(
        &mut self,
        extent: Extent,
        is_given_back: bool,
        leftovers: &mut Leftovers,
    ) {
        let owned = self
            .segments
            .get_mut(&extent.segment_number())
            .expect(KNOWN);
        owned.leaving -= extent.len();
        self.leaving -= extent.len();
        if is_given_back {
            self.add_fresh(extent, leftovers);
        } else {
            self.add_warm(extent);
        }
    }

    /// Looks at everything. For tests.
    ///
    /// # Panics
    /// If a byte is missing, or there twice.
    pub(crate) fn check(&self) {
        let mut warm = BTreeMap::new();
        let mut fresh = BTreeMap::new();
        for pools in self.tenants.values() {
            for (_, pool) in pools.all() {
                warm.append(&mut pool.warm.check());
                fresh.append(&mut pool.fresh.check());
            }
        }
        for (number, owned) in &self.segments {
            let free = |sums: &BTreeMap<_, _>| sums.get(number).copied().unwrap_or(0);
            assert_eq!(owned.warm, free(&warm), "warm bytes of {number:?}");
            let sum = owned.used + owned.warm + owned.leaving + free(&fresh);
            assert_eq!(owned.len, sum, "all bytes of {number:?}");
        }
        let sum = |of: fn(&Owned) -> u64| self.segments.values().map(of).sum::<u64>();
        let sums = (sum(|it| it.used), sum(|it| it.warm), sum(|it| it.leaving));
        assert_eq!((self.used, self.warm, self.leaving), sums);
        let by_tenant = self.tenants.values().map(|it| it.used).sum::<u64>();
        assert_eq!(self.used, by_tenant, "used bytes of all tenants");
        assert!(self.used <= self.capacity, "more is used than there is");
    }

    /// Makes sure that so many more bytes can be touched, by giving back warm ones if need be: of
    /// segments that nobody uses, then pages out of others.
    fn reclaim(&mut self, bytes: u64, leftovers: &mut Leftovers) -> bool {
        let mut short = (self.used + self.warm + bytes).saturating_sub(self.capacity);
        if short == 0 {
            return true;
        }
        // Cheap to find out, and true for most creates that have to wait.
        if short > self.warm {
            return false;
        }
        let closing = self.segments_to_close(&mut short);
        let pages = self.pages_to_release(&mut short, &closing);
        if short > 0 {
            return false;
        }
        closing
            .into_iter()
            .for_each(|number| self.close(number, leftovers));
        for (tenant, class, place, len) in pages {
            let pool = self.tenants.get_mut(&tenant).expect(KNOWN).of(class);
            let extent = take_whole_pages(&mut pool.warm, place, len);
            let owned = self
                .segments
                .get_mut(&extent.segment_number())
                .expect(KNOWN);
            owned.warm -= extent.len();
            owned.leaving += extent.len();
            self.warm -= extent.len();
            self.leaving += extent.len();
            leftovers.leaving.push(extent);
        }
        true
    }

    /// Segments in which nothing is used, as long as they are not too much; and those that cannot
    /// give back less than everything.
    fn segments_to_close(&self, short: &mut u64) -> Vec<SegmentNumber> {
        let mut chosen = Vec::new();
        for (number, owned) in &self.segments {
            if *short > 0 && owned.used == 0 && owned.leaving == 0 && owned.warm > 0 {
                let is_small = owned.warm <= *short;
                if is_small || !self.can_release_pages(*number, owned) {
                    chosen.push(*number);
                    *short = short.saturating_sub(owned.warm);
                }
            }
        }
        chosen
    }

    fn can_release_pages(&self, number: SegmentNumber, owned: &Owned) -> bool {
        let pools = &self.tenants[&owned.tenant];
        let pool = match owned.class {
            Class::Packed => &pools.packed,
            Class::Pages => &pools.pages,
            Class::HugePages => &pools.huge_pages,
        };
        pool.warm
            .first_of(number)
            .is_some_and(Extent::can_release_pages)
    }

    /// Whole pages in warm extents, the longest extents first, no more than needed.
    fn pages_to_release(
        &self,
        short: &mut u64,
        closing: &[SegmentNumber],
    ) -> Vec<(TenantName, Class, (SegmentNumber, u64), u64)> {
        let mut chosen = Vec::new();
        for (tenant, pools) in &self.tenants {
            for (class, pool) in pools.all() {
                for extent in pool.warm.longest_first() {
                    if *short == 0 {
                        return chosen;
                    }
                    if extent.len() < page_bytes() {
                        break;
                    }
                    let number = extent.segment_number();
                    let unit = match class {
                        Class::Packed | Class::Pages => page_bytes(),
                        Class::HugePages => HUGE_PAGE_BYTES,
                    };
                    let len = whole_pages(extent).min(short.next_multiple_of(unit));
                    if len > 0 && !closing.contains(&number) && extent.can_release_pages() {
                        chosen.push((tenant.clone(), class, (number, extent.start()), len));
                        *short = short.saturating_sub(len);
                    }
                }
            }
        }
        chosen
    }

    fn close(&mut self, number: SegmentNumber, leftovers: &mut Leftovers) {
        let owned = self.segments.remove(&number).expect(KNOWN);
        let pool = self
            .tenants
            .get_mut(&owned.tenant)
            .expect(KNOWN)
            .of(owned.class);
        leftovers
            .closing
            .append(&mut pool.warm.take_segment(number));
        leftovers
            .closing
            .append(&mut pool.fresh.take_segment(number));
        self.warm -= owned.warm;
        if !self.segments.values().any(|it| it.tenant == owned.tenant) {
            self.tenants.remove(&owned.tenant);
        }
    }

    /// Whole pages that were never touched, out of a new segment if there is none.
    fn take_fresh(&mut self, tenant: &TenantName, layout: Layout) -> io::Result<Extent> {
        let pool = self
            .tenants
            .entry(tenant.clone())
            .or_default()
            .of(layout.class);
        let len = layout.whole_pages();
        let mut extent = match pool.fresh.take(len) {
            Some(extent) => extent,
            None => {
                let (unit, pages) = match layout.class {
                    Class::Packed | Class::Pages => (page_bytes(), PageSize::Usual),
                    Class::HugePages => (HUGE_PAGE_BYTES, PageSize::Huge),
                };
                let segment_len = self.segment_bytes.next_multiple_of(unit).max(len);
                let number = SegmentNumber(self.segments_made);
                let whole = Segment::create(number, segment_len, &self.backing, pages)?;
                self.segments_made += 1;
                let owned = Owned {
                    tenant: tenant.clone(),
                    class: layout.class,
                    len: segment_len,
                    used: 0,
                    warm: 0,
                    leaving: 0,
                };
                self.segments.insert(number, owned);
                pool.fresh.insert(whole);
                pool.fresh.take(len).expect("the segment is long enough")
            }
        };
        // Quick for one page. For large objects the writer does it, without the lock.
        if layout.class == Class::Packed
            && let Err(error) = extent.reserve()
        {
            pool.fresh.insert(extent);
            return Err(error);
        }
        Ok(extent)
    }

    fn add_warm(&mut self, extent: Extent) {
        let owned = self
            .segments
            .get_mut(&extent.segment_number())
            .expect(KNOWN);
        owned.warm += extent.len();
        self.warm += extent.len();
        let pools = self.tenants.get_mut(&owned.tenant).expect(KNOWN);
        pools.of(owned.class).warm.insert(extent);
    }

    /// Also closes the segment if nothing else is in it.
    fn add_fresh(&mut self, extent: Extent, leftovers: &mut Leftovers) {
        let number = extent.segment_number();
        let owned = &self.segments[&number];
        let pools = self.tenants.get_mut(&owned.tenant).expect(KNOWN);
        pools.of(owned.class).fresh.insert(extent);
        if owned.used + owned.warm + owned.leaving == 0 {
            self.close(number, leftovers);
        }
    }

    fn count_used(&mut self, tenant: &TenantName, extent: &Extent) {
        self.used += extent.len();
        self.segments
            .get_mut(&extent.segment_number())
            .expect(KNOWN)
            .used += extent.len();
        self.tenants.get_mut(tenant).expect(KNOWN).used += extent.len();
    }
}

const KNOWN: &str = "an extent's segment and tenant are known while it lives";

/// How many bytes of an extent are whole pages.
fn whole_pages(extent: &Extent) -> u64 {
    let start = extent.start().next_multiple_of(page_bytes());
    (extent.end() / page_bytes() * page_bytes()).saturating_sub(start)
}

/// Takes the first `len` bytes that are whole pages out of the extent at a place.
fn take_whole_pages(set: &mut FreeSet, place: (SegmentNumber, u64), len: u64) -> Extent {
    let start = place.1.next_multiple_of(page_bytes());
    let before = start - place.1;
    let mut extent = set
        .take_at(place, before + len)
        .expect("the extent is there");
    match before {
        0 => extent,
        _ => {
            let pages = extent.split_off(before);
            set.insert(extent);
            pages
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 64 << 10;

    fn arena() -> Arena {
        Arena::new(1 << 20, 1 << 20, Backing::Memfd)
    }

    fn room(arena: &mut Arena, len: u64) -> Room {
        let layout = Layout::of(len, 1 << 20).unwrap();
        let room = arena.allocate(&TenantName::default(), layout, &mut Leftovers::default());
        room.unwrap().expect("there is room")
    }

    #[test]
    fn what_was_not_reserved_is_fresh_again() {
        let (mut arena, mut leftovers) = (arena(), Leftovers::default());
        let mut first = room(&mut arena, BYTES);
        first.extent.reserve().unwrap();
        let second = room(&mut arena, BYTES);
        arena.release(second.extent, &mut leftovers);
        arena.check();
        assert_eq!(arena.warm(), 0);
        let second = room(&mut arena, BYTES);
        assert!(second.fresh, "its user reserves it");

        arena.release(first.extent, &mut leftovers);
        arena.check();
        assert_eq!(arena.warm(), BYTES);
        assert!(!room(&mut arena, BYTES).fresh);
        assert!(leftovers.closing.is_empty());
    }

    #[test]
    fn a_segment_of_which_nothing_was_reserved_is_closed() {
        let (mut arena, mut leftovers) = (arena(), Leftovers::default());
        let only = room(&mut arena, BYTES);
        arena.release(only.extent, &mut leftovers);
        arena.check();
        assert_eq!(leftovers.closing.len(), 1);
    }

    #[test]
    fn small_objects_share_a_page_that_was_reserved() {
        let (mut arena, mut leftovers) = (arena(), Leftovers::default());
        let small = room(&mut arena, 1);
        assert!(small.fresh && small.extent.is_reserved());
        let next = room(&mut arena, 1);
        assert!(!next.fresh && next.extent.is_reserved());
        arena.release(small.extent, &mut leftovers);
        arena.release(next.extent, &mut leftovers);
        arena.check();
        assert_eq!(arena.warm(), page_bytes());
    }
}
