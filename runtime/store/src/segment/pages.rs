//! The sizes of pages.

/// The size of a huge page, in bytes; also of what one table of the last level maps. Elsewhere than on
/// x86-64 it may be another, which costs speed only.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The size of a page of this machine, in bytes.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}
