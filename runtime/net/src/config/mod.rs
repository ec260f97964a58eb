//! What can be set: who we are, where we listen, and every limit with its default.
//!
//! Owns the settings and their defaults. Must not: act by them.

mod limits;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use wasmrun_model::id::Incarnation;

use crate::identity::{Authority, Enroll, Identity};
pub use limits::{Limits, Timing};

/// How a network is started.
#[derive(Debug)]
pub struct Config {
    /// Which node we are.
    pub identity: Identity,
    /// Which incarnation of our node this is; must be higher than in all incarnations before.
    pub incarnation: Incarnation,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where others reach us, told to those we connect to. At most 8.
    pub advertise: Vec<SocketAddr>,
    /// Lets others join the cluster through us; `None` refuses them.
    pub enrolment: Option<Enrolment>,
    /// What others may take from us.
    pub limits: Limits,
    /// How long things may take.
    pub timing: Timing,
    /// Where bulk connections are driven and served; where the network is started if `None`. It must live as long, and end before that one does. One
    /// with one thread moves the most bytes per CPU time. [`crate::Peer::pull`] should be called there, too.
    pub bulk: Option<Handle>,
    /// The seed of what is drawn, together with the node's id: for back-off, and names of connections. `None` draws it
    /// from the system.
    pub seed: Option<u64>,
}

/// What it takes to let others join.
#[derive(Clone)]
pub struct Enrolment {
    /// Signs the certificates.
    pub authority: Arc<Authority>,
    /// Decides who gets one.
    pub enroll: Arc<dyn Enroll>,
    /// How long certificates are valid.
    pub lifetime: Duration,
}

impl Config {
    /// The defaults for an identity.
    pub fn new(identity: Identity, incarnation: Incarnation, listen: SocketAddr) -> Self {
        Self {
            identity,
            incarnation,
            listen,
            advertise: Vec::new(),
            enrolment: None,
            limits: Limits::default(),
            timing: Timing::default(),
            bulk: None,
            seed: None,
        }
    }
}

impl std::fmt::Debug for Enrolment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Enrolment({:?})", self.authority)
    }
}
