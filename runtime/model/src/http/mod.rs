//! Which HTTP servers a guest may send requests to.

mod hosts;

pub use hosts::{HttpHost, ParseHttpHostError, is_public};
