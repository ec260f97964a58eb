//! The web page of a node: what its cluster does, for people with a browser, and as JSON for scripts.
//!
//! Owns the pages and their pictures, who may look at them, and the socket that they are served at. It is a client of the
//! node like any other: it opens sessions at the node's own socket. Must not: know how a node works, start one, parse
//! arguments, print.
//!
//! ```no_run
//! use wasmrun_dashboard::{Config, Dashboard, DEFAULT_ADDRESS};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let dashboard = Dashboard::serve(Config {
//!     address: DEFAULT_ADDRESS,
//!     is_chosen: false,
//!     tls: None,
//!     node: wasmrun_client::default_address()?,
//! })
//! .await?;
//! println!("open {}", dashboard.link());
//! # Ok(())
//! # }
//! ```
//!
//! Invariants: who looks has come with a link of use once, made for somebody at the node's socket; what is not at a loopback
//! address is encrypted; the node is asked at most once a second for a view, however many look at it, and not at all while
//! nobody does; a page asks no other host for anything; what guests have named is text, never markup.

mod api;
mod data;
mod doors;
mod listen;
mod live;
mod picture;
mod routes;
mod serve;
mod site;
mod views;

pub use crate::serve::{Config, DEFAULT_ADDRESS, Dashboard, ServeDashboardError, Tls};
