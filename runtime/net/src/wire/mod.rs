//! What goes over connections, as bytes: first words, frames, codes of closing, and the errors that all of it can give.
//!
//! Owns their layout and their texts. Must not: open connections, or know what becomes of what was said.

mod close;
mod error;
pub(crate) mod frame;
pub(crate) mod hello;
mod protocol;

pub(crate) use close::{Close, FAREWELL, farewell};
pub use error::{CallError, ConnectError, LinkHint, Lost, SendError, TooNew};
pub use protocol::Protocol;
