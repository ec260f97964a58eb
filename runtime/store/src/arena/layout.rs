//! How much room an object takes, and of which class.
//!
//! Owns the rounding. Invariant: extents of a class are multiples of its unit and start at one, so
//! any free extent that is long enough fits.

use wasmrun_model::value::codec::BUFFER_ALIGN_BYTES;

use crate::segment::{HUGE_PAGE_BYTES, page_bytes};

/// Objects from this length on own whole pages.
pub(crate) const WHOLE_PAGES_FROM_BYTES: u64 = 64 << 10;

/// Objects from this length on own whole huge pages, where they fit: what is lost to rounding is at
/// most a sixteenth.
pub(crate) const HUGE_PAGES_FROM_BYTES: u64 = 32 << 20;

/// Where small objects start, and the multiple that they take.
const PACKED_UNIT_BYTES: u64 = BUFFER_ALIGN_BYTES as u64;

/// The kinds of room. A segment serves one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Small objects share pages.
    Packed,
    /// Large objects own whole pages, so that these can be mapped elsewhere.
    Pages,
    /// The largest own whole huge pages and start at one, in segments of their own.
    HugePages,
}

/// The room for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) class: Class,
    /// What it takes, above zero: a multiple of the unit of the class.
    pub(crate) bytes: u64,
}

impl Layout {
    /// The room for an object of so many bytes, in a store of this capacity. `None` when the sum does
    /// not fit into a `u64`.
    pub(crate) fn of(len: u64, capacity: u64) -> Option<Self> {
        let (class, unit) = match len {
            0..WHOLE_PAGES_FROM_BYTES => (Class::Packed, PACKED_UNIT_BYTES),
            // One that fits into the store must not be refused because of the rounding.
            HUGE_PAGES_FROM_BYTES.. if fits_rounded(len, capacity) => {
                (Class::HugePages, HUGE_PAGE_BYTES)
            }
            _ => (Class::Pages, page_bytes()),
        };
        let bytes = len.max(1).checked_next_multiple_of(unit)?;
        Some(Self { class, bytes })
    }

    /// The memory that must be there for it when no touched extent serves: whole pages.
    pub(crate) fn whole_pages(self) -> u64 {
        // Cannot overflow: the bytes of a small object are few, those of a large one are whole
        // pages.
        self.bytes.next_multiple_of(page_bytes())
    }
}

fn fits_rounded(len: u64, capacity: u64) -> bool {
    len.checked_next_multiple_of(HUGE_PAGE_BYTES)
        .is_some_and(|rounded| rounded <= capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_objects_are_packed_and_large_ones_own_pages() {
        let room = |len| Layout::of(len, 1 << 30).unwrap();
        assert_eq!((room(0).class, room(0).bytes), (Class::Packed, 64));
        assert_eq!((room(65).class, room(65).bytes), (Class::Packed, 128));
        assert_eq!(room((64 << 10) - 1).class, Class::Packed);
        assert_eq!(room(64 << 10).class, Class::Pages);
        assert_eq!(room((64 << 10) + 1).bytes % page_bytes(), 0);
        assert_eq!(Layout::of(u64::MAX, 1 << 30), None);
    }

    #[test]
    fn the_largest_own_huge_pages_where_that_fits() {
        let room = |len, capacity| Layout::of(len, capacity).unwrap();
        assert_eq!(room((32 << 20) - 1, 1 << 30).class, Class::Pages);
        let rounded = room((32 << 20) + 1, 1 << 30);
        assert_eq!((rounded.class, rounded.bytes), (Class::HugePages, 34 << 20));
        assert_eq!(room((32 << 20) + 1, 33 << 20).class, Class::Pages);
    }
}
