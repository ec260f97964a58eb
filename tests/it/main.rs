//! End-to-end tests: the real `wasmrun` on real modules, one file per area of what it promises.
//!
//! They need the binary (`cargo build -p wasmrun`) and the guests (`cargo xtask guests`);
//! `cargo xtask test` builds both first.

mod actors;
mod anywhere;
mod array;
mod asynchronous;
mod bench;
mod cache;
mod cancel;
mod circles;
mod cluster;
mod dataflow_examples;
mod deploy;
mod driver;
mod elsewhere;
mod examples;
mod faults;
mod grants;
mod groups;
mod inspect;
mod limits;
mod limits_said;
mod lineage;
mod lives;
mod logs;
mod lookup;
mod manifest;
mod mapping;
mod metrics;
mod modules;
mod named;
mod node;
mod node_commands;
mod objects;
mod orphans;
mod output;
mod placing;
mod programs;
mod resources;
mod scheduling;
mod sdk;
mod sharing;
mod simulate;
mod spread;
mod tasks;
mod values;
