//! The whole of a scheduler in words, for people: what `wasmrun status --scheduler` prints.
//!
//! Owns the text alone. Must not: change anything.

use std::fmt;

use super::Scheduler;
use super::class::{Class, Gate};
use super::explain::SHOWN;
use crate::cluster::NodeIx;
use crate::resource::{Request, ResourceSet};
use crate::task::Phase;
use crate::units;

/// One line per state that has tasks, one of the settings, one per own node and per tenant (the first [`SHOWN`]), and one per
/// class in use.
impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status();
        writeln!(
            f,
            "scheduler at {}: {}, {}, {}",
            self.now,
            counted(self.live() as u64, "live task"),
            counted(status.drivers as u64, "driver"),
            counted(status.stale, "stale event"),
        )?;
        for phase in status.phases.iter().filter(|phase| phase.tasks > 0) {
            write!(f, "  {}: {}", phase.phase, counted(phase.tasks, "task"))?;
            match phase.asks.is_empty() {
                true => writeln!(f)?,
                false => writeln!(f, ", which ask for {}", amounts(&phase.asks))?,
            }
        }
        self.write_settings(f)?;
        let own = self.own.iter().take(SHOWN);
        own.copied().try_for_each(|ix| self.write_node(f, ix))?;
        for (_, tenant) in self.tenants.iter().take(SHOWN) {
            writeln!(
                f,
                "  tenant {}: dominant share {}, uses {}",
                tenant.name(),
                tenant.dominant_share(),
                amounts(&tenant.usage())
            )?;
        }
        let mut used = self.classes.iter().filter(|(_, class)| class.members() > 0);
        used.try_for_each(|(ix, class)| {
            write!(f, "  class {}: ", ix.0)?;
            write_class(f, class)
        })
    }
}

impl Scheduler {
    fn write_settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings();
        writeln!(
            f,
            "  policy {}, spread-threshold {}, top-share {}, top-nodes {}, local-queue {}, patience {}, preemption {}",
            settings.policy,
            settings.spread_threshold,
            settings.top_share,
            settings.top_nodes,
            settings.local_queue,
            units::milliseconds(units::ms(settings.patience)),
            if settings.preemption { "on" } else { "off" }
        )
    }

    fn write_node(&self, f: &mut fmt::Formatter<'_>, ix: NodeIx) -> fmt::Result {
        let node = &self.cluster[ix];
        let own = self.cluster.own(ix).expect("an own node");
        let available = own.available();
        let free = node.total().iter().map(|(name, total)| {
            let (free, total) = (
                available.get(name).display_for(name),
                total.display_for(name),
            );
            format!("{name} {free} of {total}")
        });
        let free: Vec<String> = free.collect();
        write!(f, "  node {}: free {}", node.name(), free.join(", "))?;
        let load = own.load().amounts();
        if !load.is_empty() {
            write!(f, "; placed tasks will need {}", amounts(&load))?;
        }
        let kept = |what: Option<&Request>| what.map(|it| amounts(it.amounts()));
        if let Some(kept) = kept(node.kept()) {
            write!(f, "; kept for a task that has waited long {kept}")?;
        }
        if let Some(kept) = kept(node.kept_cpu()) {
            write!(f, "; kept for blocked tasks {kept}")?;
        }
        writeln!(f)
    }
}

fn write_class(f: &mut fmt::Formatter<'_>, class: &Class) -> fmt::Result {
    let rule = class.rule();
    let asked = rule.alternatives.iter().map(|it| amounts(it.amounts()));
    let asked: Vec<String> = asked.collect();
    write!(
        f,
        "{}, strategy {}, {} in line{}",
        asked.join(" or "),
        rule.strategy,
        class.in_line,
        match class.gate {
            Gate::Idle | Gate::Open => "",
            Gate::Parked => " and no room",
        }
    )?;
    for phase in Phase::ALL.iter().filter(|phase| !phase.is_terminal()) {
        match class.counts[phase.index()] {
            0 => {}
            count => write!(f, ", {count} {phase}")?,
        }
    }
    writeln!(f)
}

/// Such as `1 task` and `2 tasks`.
fn counted(count: u64, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// Such as `CPU 2, memory 1GiB`.
fn amounts(set: &ResourceSet) -> String {
    let each = set
        .iter()
        .map(|(name, amount)| format!("{name} {}", amount.display_for(name)));
    let each: Vec<String> = each.collect();
    match each.is_empty() {
        true => "nothing".to_owned(),
        false => each.join(", "),
    }
}
