//! What the node says, asked as any client asks it.
//!
//! Owns the sessions with the node, and what is remembered from one answer to the next. Must not: know how anything looks.

mod samples;
mod source;

pub use self::samples::{KEPT, Sample};
pub use self::source::{AskError, Page, Source};
