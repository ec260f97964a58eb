//! The summary as text for people.
//!
//! Owns the words, columns and bars. Must not: use colours, know a terminal, or compute figures
//! that the summary does not have.

use std::fmt::{self, Write};

use super::decimal::Decimal;
use super::summary::{Summary, TenantSummary};
use crate::resource::ResourceName;
use crate::units::milliseconds;

/// The most nodes, and tenants, that all have their lines.
const LISTED_MAX: usize = 40;
/// How many have theirs if there are more.
const LISTED_OF_MANY: usize = 20;
/// The characters of a bar: each stands for a twentieth.
const BAR_CELLS: u64 = 20;

impl Summary {
    /// The summary as text for people: a sentence, the tenants, and a bar per node and resource.
    /// Of more than 40 nodes the first 20 are shown, and how the rest lies between the least and
    /// the most used.
    pub fn to_table(&self) -> String {
        let mut out = self.sentence();
        out.push_str("\n\n");
        self.tenant_rows().write_to(&mut out);
        if !self.nodes.is_empty() {
            out.push('\n');
            self.node_rows().write_to(&mut out);
        }
        out
    }

    pub(super) fn sentence(&self) -> String {
        let counts = &self.counts;
        let took = milliseconds(self.makespan_ms);
        let mut out = format!(
            "{} of {} tasks finished in {took}",
            counts.finished, counts.submitted
        );
        let waiting = counts
            .unfinished()
            .saturating_sub(counts.infeasible + counts.unschedulable);
        let others = [
            (counts.infeasible, "infeasible"),
            (counts.unschedulable, "unschedulable"),
            (waiting, "still waiting"),
            (counts.retried, "retried"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            push(&mut out, format_args!(", {count} {what}"));
        }
        out
    }

    fn tenant_rows(&self) -> Rows {
        let header = [
            "tenant",
            "started",
            "finished",
            "share max",
            "wait mean",
            "wait p99",
        ];
        let mut rows = Rows::new(&header, 1);
        let listed = listed(self.tenants.len());
        for tenant in &self.tenants[..listed] {
            rows.push(tenant_row(tenant));
        }
        if listed < self.tenants.len() {
            rows.note(self.tenants.len() - listed, "tenants");
        }
        rows
    }

    fn node_rows(&self) -> Rows {
        let mut rows = Rows::new(&["node", "resource", "utilisation"], 3);
        let listed = listed(self.nodes.len());
        for node in &self.nodes[..listed] {
            push_utilisation(&mut rows, &node.name, &node.utilisation);
        }
        if self.nodes.len() == 1 {
            return rows;
        }
        if listed < self.nodes.len() {
            rows.note(self.nodes.len() - listed, "nodes");
        }
        push_utilisation(&mut rows, "all nodes", &self.utilisation);
        if listed < self.nodes.len() {
            for (place, of_last) in [("least", 0), ("median", 1), ("most", 2)] {
                let of_place = self.utilisation.iter().map(|(name, _)| {
                    let sorted = self.sorted_by_use(name);
                    (name.clone(), sorted[(sorted.len() - 1) * of_last / 2])
                });
                push_utilisation(&mut rows, place, &of_place.collect::<Vec<_>>());
            }
        }
        rows
    }

    /// What the nodes that ever had a resource were used for, the least first; there is one, since
    /// the sum over all has the resource.
    fn sorted_by_use(&self, resource: &ResourceName) -> Vec<Decimal> {
        let all = self.nodes.iter().flat_map(|node| &node.utilisation);
        let mut used: Vec<Decimal> = all
            .filter(|(name, _)| name == resource)
            .map(|(_, used)| *used)
            .collect();
        used.sort_unstable();
        used
    }
}

/// How many of so many have their lines.
pub(super) fn listed(count: usize) -> usize {
    match count <= LISTED_MAX {
        true => count,
        false => LISTED_OF_MANY,
    }
}

fn tenant_row(tenant: &TenantSummary) -> Vec<String> {
    let wait = |ms: Option<u64>| ms.map_or_else(|| "-".into(), milliseconds);
    vec![
        tenant.name.to_string(),
        tenant.counts.started.to_string(),
        tenant.counts.finished.to_string(),
        tenant.dominant_share_max.to_string(),
        wait(tenant.waits.map(|waits| waits.mean_ms.whole())),
        wait(tenant.waits.map(|waits| waits.p99_ms)),
    ]
}

fn push_utilisation(rows: &mut Rows, name: &str, utilisation: &[(ResourceName, Decimal)]) {
    if utilisation.is_empty() {
        rows.push(vec![name.into(), "-".into(), String::new()]);
    }
    for (at, (resource, used)) in utilisation.iter().enumerate() {
        let name = if at == 0 { name } else { "" };
        let bar = format!("{}  {:>3} %", bar(*used), used.percent());
        rows.push(vec![name.into(), resource.to_string(), bar]);
    }
}

/// A bar that is full only for a whole: `[################····]`.
fn bar(used: Decimal) -> String {
    let full = (used.percent() * BAR_CELLS / 100).min(BAR_CELLS);
    let cells = (0..BAR_CELLS).map(|cell| if cell < full { '#' } else { '·' });
    format!("[{}]", cells.collect::<String>())
}

/// Lines of cells under a header; the first columns are flush left, the others flush right.
pub(super) struct Rows {
    lines: Vec<Line>,
    widths: Vec<usize>,
    left: usize,
}

enum Line {
    Cells(Vec<String>),
    Note(String),
}

impl Rows {
    pub(super) fn new(header: &[&str], left: usize) -> Self {
        let mut rows = Self {
            lines: Vec::new(),
            widths: vec![0; header.len()],
            left,
        };
        rows.push(header.iter().map(|title| title.to_string()).collect());
        rows
    }

    pub(super) fn push(&mut self, cells: Vec<String>) {
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        self.lines.push(Line::Cells(cells));
    }

    pub(super) fn note(&mut self, count: usize, what: &str) {
        let note = format!("… {count} more {what}; `-o json` shows them all");
        self.lines.push(Line::Note(note));
    }

    pub(super) fn write_to(&self, out: &mut String) {
        for line in &self.lines {
            match line {
                Line::Note(note) => out.push_str(note),
                Line::Cells(cells) => {
                    let start = out.len();
                    for (column, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
                        let gap = if column == 0 { "" } else { "  " };
                        match column < self.left {
                            true => push(out, format_args!("{gap}{cell:<width$}")),
                            false => push(out, format_args!("{gap}{cell:>width$}")),
                        }
                    }
                    let end = start + out[start..].trim_end().len();
                    out.truncate(end);
                }
            }
            out.push('\n');
        }
    }
}

fn push(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes all text");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_full_only_for_a_whole() {
        let of = |part| bar(Decimal::quotient(part, 100));
        assert_eq!(of(0), "[····················]");
        assert_eq!(of(83), "[################····]");
        assert_eq!(of(99), "[###################·]");
        assert_eq!(of(100), "[####################]");
        assert_eq!(of(250), "[####################]");
    }
}
