//! The limits of one task, and the account of its memory.
//!
//! wasmtime asks the [`Limiter`] before any linear memory or table is created or grows. What
//! counts is the sum over all of an instance's memories and tables, so that two memories of half
//! the limit each are as good, or as bad, as one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmrun_model::failure::{LimitHit, LimitKind};
use wasmtime::ResourceLimiter;

/// What one task may use. All sizes in bytes.
#[derive(Debug, Clone)]
pub struct Limits {
    /// All linear memories and tables of the instance together.
    pub memory: u64,
    /// Standard output and standard error together, over the task's life.
    pub output: u64,
    /// All arguments of the call together, encoded.
    pub arguments: u64,
    /// The result of the call, encoded.
    pub result: u64,
    /// From the start of the attempt to its end.
    pub time: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            output: 256 << 20,
            arguments: 64 << 20,
            result: 64 << 20,
            time: None,
        }
    }
}

/// An entry of a table as the host keeps it: one pointer.
const TABLE_ENTRY_BYTES: u64 = size_of::<usize>() as u64;

/// Memory of all instances of this process, in bytes.
static IN_USE: AtomicU64 = AtomicU64::new(0);

/// Memory that guests of this process have, as they see it: memories and tables of all instances, in bytes.
pub(crate) fn in_use() -> u64 {
    IN_USE.load(Ordering::Relaxed)
}

/// Counts the memory of one instance against its limit, and with that of all others.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: u64,
    used: u64,
    /// What the last granted growth added, to take back should it fail after all.
    last_granted: u64,
    /// What the largest refused growth would have come to.
    refused: Option<u64>,
}

impl Limiter {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: 0,
            last_granted: 0,
            refused: None,
        }
    }

    /// The same limit, with nothing used.
    pub(crate) fn renewed(&self) -> Self {
        Self::new(self.limit)
    }

    /// How many bytes there may be.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The limit, if the guest ran into it.
    pub(crate) fn hit(&self) -> Option<LimitHit> {
        self.refused.map(|wanted| LimitHit {
            kind: LimitKind::Memory,
            limit: self.limit,
            wanted: Some(wanted),
        })
    }

    /// What was refused before has nothing to do with what comes now.
    pub(crate) fn forget_refusal(&mut self) {
        self.refused = None;
    }

    /// Bytes in use by memories and tables. They never shrink, so this is also the peak.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    fn grow(&mut self, current: u64, desired: u64, maximum: Option<u64>) -> bool {
        self.last_granted = 0;
        if maximum.is_some_and(|maximum| desired > maximum) {
            return false;
        }
        let delta = desired.saturating_sub(current);
        let total = self.used.saturating_add(delta);
        if total > self.limit {
            self.refused = self.refused.max(Some(total));
            return false;
        }
        self.used = total;
        self.last_granted = delta;
        IN_USE.fetch_add(delta, Ordering::Relaxed);
        true
    }

    fn take_back(&mut self) {
        self.used -= self.last_granted;
        IN_USE.fetch_sub(self.last_granted, Ordering::Relaxed);
        self.last_granted = 0;
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        IN_USE.fetch_sub(self.used, Ordering::Relaxed);
    }
}

/// A refused growth is not a trap: the guest sees `memory.grow` answer -1 and may cope. If it
/// then gives up, [`Limiter::hit`] tells why.
impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(current as u64, desired as u64, maximum.map(|m| m as u64)))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.take_back();
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let bytes = |entries: usize| (entries as u64).saturating_mul(TABLE_ENTRY_BYTES);
        Ok(self.grow(bytes(current), bytes(desired), maximum.map(bytes)))
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.take_back();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_add_up() {
        let mut limiter = Limiter::new(1000);
        assert!(limiter.memory_growing(0, 400, None).unwrap());
        assert!(limiter.memory_growing(0, 400, None).unwrap());
        assert!(limiter.table_growing(0, 25, None).unwrap());
        assert_eq!(limiter.used(), 1000);
        assert!(limiter.hit().is_none());
        assert!(!limiter.memory_growing(400, 401, None).unwrap());
        assert_eq!(limiter.hit().unwrap().wanted, Some(1001));
    }

    #[test]
    fn failed_growth_is_taken_back() {
        let mut limiter = Limiter::new(1000);
        assert!(limiter.memory_growing(0, 600, None).unwrap());
        limiter
            .memory_grow_failed(wasmtime::Error::msg("no pages"))
            .unwrap();
        assert_eq!(limiter.used(), 0);
        // A refusal has nothing to take back, and a second report takes back nothing more.
        assert!(limiter.memory_growing(0, 900, None).unwrap());
        assert!(!limiter.memory_growing(900, 1100, None).unwrap());
        limiter
            .memory_grow_failed(wasmtime::Error::msg("refused"))
            .unwrap();
        assert_eq!(limiter.used(), 900);
    }

    #[test]
    fn the_modules_own_maximum_is_not_our_limit() {
        let mut limiter = Limiter::new(1000);
        assert!(!limiter.memory_growing(0, 600, Some(500)).unwrap());
        assert!(limiter.hit().is_none());
    }
}
