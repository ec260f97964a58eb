//! What this process gives out once: ids of tasks that are never submitted again, and the fences of attempts.
//!
//! Must not: number what a task submits again in each of its attempts; that id follows from the task's.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use wasmrun_model::id::{DriverId, TaskId};
use wasmrun_model::task::Attempt;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Ids {
    /// Drawn at random when the process starts, as that of a driver is. So these ids are unique, also among those of this
    /// node's next incarnations.
    process: DriverId,
    tasks: AtomicU64,
    fences: AtomicU32,
}

impl Ids {
    pub(crate) fn new(random: [u8; 16]) -> Self {
        Self {
            process: DriverId::from_bytes(random),
            tasks: AtomicU64::new(0),
            fences: AtomicU32::new(0),
        }
    }

    /// The id of a task that is not submitted again: a call, or the creation of an actor.
    pub(crate) fn task(&self) -> TaskId {
        self.process
            .task(self.tasks.fetch_add(1, Ordering::Relaxed))
    }

    /// The first attempt of the tasks that this attempt of another one submits: their ids are the same in each attempt.
    pub(crate) fn first_under(&self, parent: Attempt) -> Attempt {
        match parent {
            Attempt::FIRST => Attempt::FIRST,
            // Whether they ran before is not known here. Where guests see the first attempt, they surely did not.
            _ => Attempt::new(self.fence(), parent.number()),
        }
    }

    /// The first attempt of a task that is executed again, after this one and all others that there were.
    pub(crate) fn again(&self, before: Attempt) -> Attempt {
        Attempt::new(self.fence(), before.number().saturating_add(1))
    }

    /// A counter of this process is enough: nodes compare attempts of one owner of the task, in one of its incarnations.
    /// After 2^32 fences it begins anew; attempts are not remembered for so long.
    fn fence(&self) -> u32 {
        let before = self.fences.fetch_add(1, Ordering::Relaxed);
        before.wrapping_add(1)
    }
}

/// Random bytes.
///
/// # Panics
/// When the system has no randomness to give.
pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    let drawn = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    assert_eq!(drawn, Ok(bytes.len()), "the kernel has randomness");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTH: usize = 12;

    /// Has a task begin at this attempt, and try `most` times. In the first and the last of them it submits a task, which
    /// does the same.
    fn run(ids: &Ids, latest: &mut [Attempt], first: Attempt) {
        let Some((latest, below)) = latest.split_first_mut() else {
            return;
        };
        let most = 2 + below.len() as u32 % 5;
        let mut attempt = first;
        for time in 1..=most {
            assert!(attempt > *latest, "{attempt:?} after {latest:?}");
            *latest = attempt;
            if time == 1 || time == most {
                run(ids, below, ids.first_under(attempt));
            }
            attempt = attempt.next();
        }
    }

    #[test]
    fn attempts_come_after_all_earlier_ones_however_deep_their_task_is_nested() {
        let mut latest = [Attempt::default(); DEPTH];
        run(&Ids::new([1; 16]), &mut latest, Attempt::FIRST);
    }

    #[test]
    fn only_a_task_that_has_surely_not_run_is_on_the_first_attempt_that_guests_see() {
        let ids = Ids::new([1; 16]);
        let again = ids.again(Attempt::FIRST);
        let below = ids.first_under(again);
        let deeper = ids.first_under(below.next());
        assert_eq!([again, below, deeper].map(Attempt::number), [2, 2, 3]);
        assert_eq!(ids.first_under(Attempt::FIRST), Attempt::FIRST);
        assert!(ids.again(below) > below);
    }

    #[test]
    fn no_id_is_given_out_twice() {
        let (one, other) = (Ids::new([1; 16]), Ids::new([2; 16]));
        let ids = [one.task(), one.task(), other.task(), other.task()];
        let different: std::collections::BTreeSet<_> = ids.into_iter().collect();
        assert_eq!(different.len(), 4);
    }
}
