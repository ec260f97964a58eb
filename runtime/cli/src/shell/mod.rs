//! What a command is to its shell: its exit code and error, its streams, the files that it writes, signals.
//!
//! Must not: know arguments, nodes or tasks beyond how they fail.

pub mod fail;
pub mod outfile;
pub mod signals;
pub mod stdio;
