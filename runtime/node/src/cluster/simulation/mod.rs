//! What nodes have in the control store, under faults, from a seed: their places, the records of detached tasks and
//! groups, the names of actors.
//!
//! Owns a world of nodes ([`world`]) each of which is what the product has ([`node`]): its loop of membership and its
//! lease's keeper, its writers, its looking for lost owners, its followers, over ways of its own to one store
//! (`wasmrun_control::simulated`). Nodes are killed, frozen, cut off and started anew; requests and answers are lost or
//! late; the store restarts and forgets its history. What must be so at each step, and once all is well again, is in
//! [`oracles`]. A seed is run twice and must give the same trace.
//!
//! `WASMRUN_SEEDS` is how many seeds are tried (40), `WASMRUN_SEED` the first; one seed alone prints its trace.

mod names;
mod node;
mod oracles;
mod world;

use self::world::run;
use crate::testing::replay;

#[test]
fn what_is_in_the_store_has_one_owner() {
    replay(40, "cluster::simulation", run);
}
