//! Whole nodes under faults, from a seed: each has the product's ledger, exchange, references, members and store. The
//! network and the guests are simulated, time is virtual, and all runs on one thread.
//!
//! Owns a world of such nodes ([`world`]), the network between them ([`fabric`]) and what runs in place of guests
//! ([`guests`]). Tasks start tasks, wait for them or leave them behind, put objects, give them on and return large
//! values. Nodes are killed and started anew, cut off for a while, and drained. All that is left must come to its end
//! with the right result, and then nothing may be left anywhere.
//!
//! `WASMRUN_SEEDS` is how many seeds are tried (40), `WASMRUN_SEED` the first; one seed alone prints its trace.

mod fabric;
mod guests;
mod world;

use crate::testing::replay;

#[test]
fn whole_nodes_under_faults() {
    replay(40, "peers::simulation", world::run);
}
