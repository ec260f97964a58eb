//! A server of the Model Context Protocol: functions of modules, and snippets of Python, as tools for agents.
//!
//! Owns what the tools are (names, schemas, texts) and how a call of one becomes a task and its end an answer. The protocol
//! itself is of `rmcp`. Must not: know how wasm is run, start a node, parse arguments, print.
//!
//! Invariants: each call is a task in a sandbox of its own, with a time limit; it is cancelled when its request is, and when
//! the server ends. What a client sends gives an error, never a panic. What is wrong with a call is told as the tool's error,
//! which the model reads, and not as one of the protocol, which it does not.

mod call;
mod data;
mod docs;
mod function;
mod http;
mod names;
mod python;
mod server;
mod stdio;
mod tools;

pub use crate::http::{Http, ListenError, Token};
pub use crate::server::Server;
pub use crate::stdio::{StdioError, serve as serve_stdio};
pub use crate::tools::{AddError, Settings, Source, Tools};

/// The longest message of a client, in bytes. Longer lines are dropped; longer HTTP requests are refused with 413.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// How many calls may be under way at a time. More are refused, as errors of their tools.
pub const MAX_CALLS: usize = 256;
/// How long a call may take if neither the user nor the module says so, in milliseconds.
pub const DEFAULT_TIME_MS: u64 = 60_000;
