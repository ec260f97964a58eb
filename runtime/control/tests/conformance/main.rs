//! What every control store promises, tried on each of them.
//!
//! `suite` has the promises, as functions over any store; `embedded`, `remote` (over a link that breaks,
//! doubles and delays), `simulated` and `etcd` (a real server) each run all of them.

mod embedded;
mod etcd;
mod more;
mod remote;
mod simulated;
mod suite;

use std::sync::Arc;

use async_trait::async_trait;
use wasmrun_control::ControlStore;

/// A store to try, and what can happen to it.
#[async_trait]
pub trait Harness: Send {
    /// The store; after [`Self::restart`], ask again.
    fn store(&self) -> Arc<dyn ControlStore>;

    /// The store's process is killed (or closed, where it is ours) and started again on what is on its
    /// disk. Returns when it is up, or about to be.
    async fn restart(&mut self);
}

/// Runs every promise of the suite on what `$make` gives; nothing, if it gives none.
#[macro_export]
macro_rules! conform {
    ($make:path: $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(mut harness) = $make(stringify!($name)).await {
                    $crate::suite::$name(&mut harness).await;
                }
            }
        )*
    };
    ($make:path) => {
        $crate::conform!($make:
            values_and_their_numbers, pages_cover_a_range, transactions_are_all_or_nothing,
            conditions_hold_or_not, what_is_too_large_is_refused, large_values_survive,
            watches_see_each_revision_once, a_watch_from_the_past, prefixes_do_not_mix,
            compacted_history_is_said, leases_end_and_take_their_keys, leases_can_be_kept_and_revoked,
            a_key_leaves_its_lease, counters_lose_nothing, a_thousand_watches,
            a_restart_loses_nothing, watches_survive_a_restart, counters_survive_restarts,
            leases_survive_a_restart,
        );
    };
}
