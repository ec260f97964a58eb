//! Memories and tables of an engine's pool: who may have how many of them.
//!
//! A component may have several core modules, and wasmtime makes their instances one after the other, each
//! with its start function. Where the pool is full in the middle of that there would be no way back: what
//! start functions did cannot be taken back, and must not be done again. So all memories and tables that a
//! sandbox needs are set aside before anything of it is made.
//!
//! Invariant: whoever takes memories or tables from the pool has a [`Place`] for them, until they are back
//! there.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use wasmrun_model::failure::TaskError;
use wasmtime::ResourcesRequired;

/// How long a sandbox may wait for memories and tables. Idle actors may keep them for as long as they live.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most memories and tables that one sandbox may have.
pub(crate) const MOST_MEMORIES: u32 = 16;
pub(crate) const MOST_TABLES: u32 = 64;

/// What a module's sandbox takes from the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    memories: u32,
    tables: u32,
}

impl Needs {
    /// What wasmtime says, or the most there can be where it does not know.
    pub(crate) fn of(required: Option<&ResourcesRequired>) -> Self {
        let (memories, tables) = required.map_or((MOST_MEMORIES, MOST_TABLES), |it| {
            (it.num_memories, it.num_tables)
        });
        // What needs more is refused when it is loaded.
        Self {
            memories: memories.min(MOST_MEMORIES),
            tables: tables.min(MOST_TABLES),
        }
    }
}

/// What there is in a pool.
#[derive(Debug)]
pub(crate) struct Room {
    memories: Semaphore,
    tables: Semaphore,
    total: Needs,
    patience: Duration,
}

impl Room {
    pub(crate) fn new(memories: u32, tables: u32) -> Arc<Self> {
        Self::with_patience(memories, tables, PATIENCE)
    }

    fn with_patience(memories: u32, tables: u32, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            memories: Semaphore::new(memories as usize),
            tables: Semaphore::new(tables as usize),
            total: Needs { memories, tables },
            patience,
        })
    }

    /// Sets aside what a sandbox needs, once there is so much.
    ///
    /// # Errors
    /// When there is not within [`PATIENCE`].
    pub(crate) async fn take(self: &Arc<Self>, needs: Needs) -> Result<Place, TaskError> {
        if let Some(place) = self.take_now(needs) {
            return Ok(place);
        }
        let place = tokio::time::timeout(self.patience, self.wait(needs)).await;
        place.map_err(|_| {
            let Needs { memories, tables } = needs;
            TaskError::Sandbox(format!(
                "it needs {memories} memories and {tables} tables, and for {:?} other sandboxes, idle actors among \
                 them, had all but {} of {} memories and {} of {} tables of this node; end some of those, or start \
                 the node with a larger --max-sandboxes",
                self.patience,
                self.memories.available_permits(),
                self.total.memories,
                self.tables.available_permits(),
                self.total.tables,
            ))
        })
    }

    /// The fast path: what is available at once, without a timer.
    fn take_now(self: &Arc<Self>, needs: Needs) -> Option<Place> {
        // Permits go to waiters first: this overtakes none.
        let memories = self.memories.try_acquire_many(needs.memories).ok()?;
        let tables = self.tables.try_acquire_many(needs.tables).ok()?;
        memories.forget();
        tables.forget();
        Some(Place {
            room: self.clone(),
            needs,
        })
    }

    async fn wait(self: &Arc<Self>, needs: Needs) -> Place {
        // Always in this order: who waits for tables is not waited for by those who have them.
        let memories = self.memories.acquire_many(needs.memories).await;
        let tables = self.tables.acquire_many(needs.tables).await;
        for permit in [memories, tables] {
            permit
                .map(SemaphorePermit::forget)
                .expect("it is never closed");
        }
        Place {
            room: self.clone(),
            needs,
        }
    }
}

/// What is set aside for a sandbox.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Room>,
    needs: Needs,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.memories.add_permits(self.needs.memories as usize);
        self.room.tables.add_permits(self.needs.tables as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn what_is_given_back_is_the_next_ones() {
        let room = Room::new(3, 2);
        let take = |memories, tables| room.wait(Needs { memories, tables });
        let mut context = Context::from_waker(Waker::noop());
        let mut ready =
            |future: &mut std::pin::Pin<Box<dyn Future<Output = Place> + '_>>| match future
                .as_mut()
                .poll(&mut context)
            {
                Poll::Ready(place) => Some(place),
                Poll::Pending => None,
            };
        let first = ready(&mut (Box::pin(take(2, 2)) as _)).expect("there is room");
        let mut second: std::pin::Pin<Box<dyn Future<Output = Place>>> = Box::pin(take(1, 1));
        assert!(ready(&mut second).is_none(), "there are no tables left");
        // It has one memory already; gives that back when it is not waited for any longer.
        drop(second);
        let mut third: std::pin::Pin<Box<dyn Future<Output = Place>>> = Box::pin(take(3, 0));
        assert!(ready(&mut third).is_none());
        drop(first);
        let third = ready(&mut third).expect("all memories are back");
        assert!(ready(&mut (Box::pin(take(0, 2)) as _)).is_some());
        drop(third);
        assert_eq!(room.memories.available_permits(), 3);
        assert_eq!(room.tables.available_permits(), 2);
    }

    #[tokio::test]
    async fn who_waits_for_too_long_hears_what_is_short() {
        let room = Room::with_patience(3, 2, Duration::from_millis(1));
        let take = |memories, tables| room.take(Needs { memories, tables });
        let first = take(2, 1).await.expect("there is room");
        let why = take(2, 1).await.expect_err("there is one memory left");
        let why = why.to_string();
        assert!(why.contains("1 of 3 memories and 1 of 2 tables"), "{why}");
        drop(first);
        take(3, 2).await.expect("all are back");
    }
}
