//! What an explanation says, for people.

use std::fmt;

use super::explain::{COUNTED, Explanation, Waits};
use crate::units;

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing { node } => write!(f, "nothing: it is with node {node}"),
            Self::Others { node } => write!(f, "others, on node {node}; its CPU is given back"),
            Self::Cpu { node } => write!(f, "its CPU on node {node}, to go on"),
            Self::Pause { node, why } => {
                write!(f, "its CPU on node {node}, to go on; paused")?;
                why.iter().try_for_each(|why| write!(f, ": {why}"))
            }
            Self::CpuMeanwhile { node } => {
                write!(
                    f,
                    "its CPU on node {node}, and runs meanwhile: the time is up that it wanted to wait"
                )
            }
            Self::Arguments(objects) => match &objects[..] {
                [one] => write!(f, "an argument, object {one}"),
                many => write!(f, "{} arguments that are not here", many.len()),
            },
            Self::Actor(Some(actor)) => write!(f, "actor {actor} to be created"),
            Self::Actor(None) => f.write_str("a decision"),
            Self::Peer {
                node,
                name,
                is_accepted,
            } => {
                match name {
                    Some(name) => write!(f, "node {name}")?,
                    None => write!(f, "node {node}")?,
                }
                f.write_str(match is_accepted {
                    true => ", which has it",
                    false => " to take it",
                })
            }
            Self::Group { group, why } => {
                write!(f, "placement group {group} to be reserved")?;
                why.iter().try_for_each(|why| write!(f, ": {why}"))
            }
            Self::Bundle(group) => {
                write!(f, "room in placement group {group}: others use its bundles")
            }
            Self::Resources => f.write_str("resources"),
            Self::Turn { ahead: Some(ahead) } => write!(f, "its turn: {ahead}"),
            Self::Turn { ahead: None } => f.write_str("its turn"),
            Self::OthersTurn => f.write_str("its turn: another tenant is ahead"),
            Self::Quota(why) => write!(f, "room: {why}"),
            Self::OthersQuota(tenant) => write!(f, "room: tenant {tenant} is at its quota"),
            Self::Slot { max_running } => write!(
                f,
                "one of {max_running} sandboxes: as many tasks run as may at a time; for more, start the node with a \
                 larger --max-sandboxes"
            ),
            Self::Newcomer(node) => {
                write!(f, "node {node} to say what it has: it has just joined")
            }
            Self::Node => f.write_str("a node that can run it: none that is there ever can"),
            Self::Rest { hops } => write!(
                f,
                "a moment to pass before it is placed again: it was handed from node to node {hops} times, and those \
                 that were to run it gave it back"
            ),
        }
    }
}

/// Several lines: the state and what it waits for, then the nodes.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "task {} has been {} for {}: it waits for {}",
            self.task,
            self.phase,
            units::duration(self.since),
            self.waits
        )?;
        let often = |times: u32| match times {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        if let Some((times, in_all)) = self.paused {
            let (often, in_all) = (often(times), units::duration(in_all));
            write!(f, "\n  it was paused {often}, for {in_all} in all")?;
        }
        if let Some((times, in_all, why)) = &self.stopped {
            let (often, in_all) = (often(*times), units::duration(*in_all));
            write!(
                f,
                "\n  it was stopped {often} and begun again, after {in_all} in all"
            )?;
            why.iter().try_for_each(|why| write!(f, ": {why}"))?;
        }
        if self.before > 0 {
            let many = if self.before == COUNTED {
                " or more"
            } else {
                ""
            };
            write!(
                f,
                "\n  {}{many} of the same kind come before it",
                self.before
            )?;
        }
        for verdict in &self.nodes {
            write!(f, "\n  {verdict}")?;
        }
        if self.more_nodes > 0 {
            write!(f, "\n  and {} more nodes", self.more_nodes)?;
        }
        Ok(())
    }
}
