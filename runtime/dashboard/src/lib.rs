//! The web page of a node: what its cluster does, for people with a browser, and as JSON for scripts.
//!
//! Owns the pages and their pictures, the sessions of browsers, and the socket that the pages are served at. It is a client of
//! the node like any other: it connects to the node's own socket. Must not: know how a node works, start one, parse arguments,
//! print.
//!
//! ```no_run
//! use wasmrun_dashboard::{BoundDashboard, Config, DEFAULT_ADDRESS};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let bound = BoundDashboard::bind(Config {
//!     address: DEFAULT_ADDRESS,
//!     is_chosen: false,
//!     tls: None,
//! })
//! .await?;
//! let dashboard = bound.serve(wasmrun_client::default_address()?).await?;
//! println!("open {}", dashboard.link());
//! # Ok(())
//! # }
//! ```
//!
//! Invariants: a session begins with a one-time link, which only a client at the node's socket gets; an address that is not
//! loopback is encrypted; a view that browsers follow is rendered at most once a second, however many they are, and not while
//! none does; a page loads nothing from other hosts; names from guests are text, never markup.

mod api;
mod data;
mod listen;
mod live;
mod picture;
mod routes;
mod serve;
mod sessions;
mod site;
mod views;

pub use crate::serve::{
    BindDashboardError, BoundDashboard, Config, DEFAULT_ADDRESS, Dashboard, Tls,
};
