//! Why a node would or would not do.
//!
//! Owns the reasons, per node and in words. Must not: decide anything that `choose` does not.

use std::fmt;

use super::choose::Demand;
use super::name::{NodeIx, NodeName};
use super::node::{Basis, Node};
use super::selector::{Selector, Term};
use super::strategy::Strategy;
use super::view::Cluster;
use crate::resource::{Fit, Infeasibility, Request, Shortage};

/// What a node is for a demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeFit {
    /// It can serve it now.
    Available,
    /// It can serve it, not now: for this reason.
    Unavailable(Shortage),
    /// It could serve it now, if something were not kept there for a request that has waited long.
    Kept(Shortage),
    /// It can never serve it, as it is: for this reason.
    Infeasible(Infeasibility),
    /// Its labels are not as demanded: this is the first term that does not hold.
    Label(Term),
    /// It gets no new work.
    Draining,
    /// Nobody here can speak with it now.
    Unreachable,
    /// The demand is bound to another node.
    Elsewhere {
        /// That node.
        node: NodeName,
    },
}

impl NodeFit {
    pub(super) fn of(
        node: &Node,
        selector: Option<&Selector>,
        request: &Request,
        basis: Basis,
    ) -> Self {
        if let Some(term) = selector.and_then(|selector| selector.mismatch(node.labels())) {
            return Self::Label(term.clone());
        }
        match node.fit(request, basis) {
            Fit::Infeasible(why) => Self::Infeasible(why),
            _ if node.is_draining() => Self::Draining,
            _ if node.is_unreachable() => Self::Unreachable,
            Fit::Available => Self::Available,
            Fit::Unavailable(why) => match node.fit_without_kept(request, basis) {
                Fit::Available => Self::Kept(why),
                _ => Self::Unavailable(why),
            },
        }
    }

    /// Whether it can serve it, now or some time.
    pub fn is_ever(&self) -> bool {
        !matches!(
            self,
            Self::Infeasible(_) | Self::Label(_) | Self::Elsewhere { .. }
        )
    }

    /// What a person would rather hear of: smaller is nearer to running there.
    fn distance(&self) -> u8 {
        match self {
            Self::Available => 0,
            Self::Kept(_) => 1,
            Self::Unavailable(_) => 2,
            Self::Draining | Self::Unreachable => 3,
            Self::Infeasible(_) => 4,
            Self::Label(_) => 5,
            Self::Elsewhere { .. } => 6,
        }
    }
}

impl fmt::Display for NodeFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Available => f.write_str("available"),
            Self::Unavailable(why) => write!(f, "unavailable: {why}"),
            Self::Kept(why) => write!(
                f,
                "unavailable: {why}, the rest being kept for a request that has waited long"
            ),
            Self::Infeasible(why) => write!(f, "infeasible: {why}"),
            Self::Label(term) => write!(f, "infeasible: label {term} does not match"),
            Self::Draining => f.write_str("unavailable: it is draining and gets no new work"),
            Self::Unreachable => f.write_str(
                "unavailable: there is no connection to it, and nobody has counted it as dead",
            ),
            Self::Elsewhere { node } => write!(f, "infeasible: bound to node {node}"),
        }
    }
}

/// Why a request can never run: what its hard affinity names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unschedulable {
    /// The node is not there.
    #[error(
        "unschedulable: node {node} is not in the cluster; name another one, or make the affinity \
         soft: node:{node}:soft"
    )]
    Gone {
        /// The node.
        node: NodeName,
    },
    /// The node can never serve it.
    #[error(
        "unschedulable: node {node}: {why}; ask for less, name another node, or make the affinity \
         soft"
    )]
    Infeasible {
        /// The node.
        node: NodeName,
        /// Why not.
        why: NodeFit,
    },
}

impl Cluster {
    /// What a node is for a demand: for the selector and alternative that come nearest to running
    /// there, the earlier ones among equals. `None` if the node is not there.
    pub fn fit_on(&self, ix: NodeIx, demand: &Demand<'_>) -> Option<NodeFit> {
        let node = self.get(ix)?;
        if let Strategy::NodeAffinity { node: name, soft } = demand.strategy
            && self.resolve(name) != Some(ix)
            && !(*soft && self.gives_way(name, demand))
        {
            return Some(NodeFit::Elsewhere { node: name.clone() });
        }
        let basis = match demand.strategy {
            Strategy::Random => Basis::TrulyFree,
            _ => demand.basis,
        };
        let fits = demand.pairs();
        let fits = fits.map(|(selector, _, request)| NodeFit::of(node, selector, request, basis));
        fits.min_by_key(NodeFit::distance)
    }
}
