//! The node's answers, as any client gets them.
//!
//! Owns the connections to the node, and the samples that are kept from one answer to the next. Must not: know how anything
//! looks.

mod samples;
mod source;

pub use self::samples::{KEPT, Sample};
pub use self::source::{AskError, Page, Source};
