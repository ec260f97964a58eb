//! Numbers of tenants over time: their shares, and how many tasks have ended.

use std::time::Instant;

use maud::Markup;
use wasmrun_client::wire::{DueRow, List, TenantRow, What};

use crate::data::{AskError, KEPT, Page, Sample, Source};
use crate::picture::{Line, lines};

/// How many tenants have lines.
const MOST_LINES: usize = 8;
/// The colours of lines, one after the other.
const PAINTS: [&str; MOST_LINES] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];

/// The colour of one of several things: a class of the page's style.
pub fn paint(at: usize) -> &'static str {
    PAINTS[at % PAINTS.len()]
}

/// The tenants at each node, and their shares.
pub struct TenantShares {
    /// By node.
    pub tenants: Page<TenantRow>,
    /// Of the cluster.
    pub shares: Page<DueRow>,
}

/// Asks the node, and keeps a sample for the lines.
pub async fn fetch(source: &Source) -> Result<TenantShares, AskError> {
    let tenants = source.rows::<TenantRow>(List::of(What::Tenants)).await?;
    let shares = source.rows::<DueRow>(List::of(What::Due)).await?;
    let sum = |count: fn(&TenantRow) -> u64| tenants.rows.iter().map(count).sum::<u64>();
    let largest = shares.rows.iter().map(|row| (number(&row.share), row));
    let mut largest: Vec<(f64, &DueRow)> = largest.collect();
    largest.sort_by(|one, other| other.0.total_cmp(&one.0));
    let largest = largest.into_iter().take(MOST_LINES);
    source.samples.lock().push(Sample {
        at: Instant::now(),
        finished: sum(|row| row.finished),
        failed: sum(|row| row.failed),
        shares: largest
            .map(|(share, row)| (row.name.clone(), share))
            .collect(),
    });
    Ok(TenantShares { tenants, shares })
}

/// A share that is text.
pub fn number(share: &str) -> f64 {
    let number = share.parse::<f64>().ok();
    number.filter(|it| it.is_finite()).unwrap_or(0.0)
}

/// How many tasks have ended a second.
pub fn rates(source: &Source) -> Markup {
    let (finished, failed) = source.samples.lock().rates();
    let all = [
        Line {
            class: "good",
            label: "finished".into(),
            points: finished,
        },
        Line {
            class: "bad",
            label: "failed".into(),
            points: failed,
        },
    ];
    lines("Tasks that ended, a second", &all, KEPT.as_secs_f64(), 1.0)
}

/// The shares of the tenants that have most.
pub fn shares(source: &Source) -> Markup {
    let shares = source.samples.lock().shares();
    let all = shares.into_iter().enumerate();
    let all: Vec<Line> = all
        .map(|(at, (tenant, points))| Line {
            class: paint(at),
            label: tenant.to_string(),
            points,
        })
        .collect();
    lines("Dominant share of tenants", &all, KEPT.as_secs_f64(), 0.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_they_are_shown() {
        assert_eq!(number("0.25"), 0.25);
        assert_eq!(number("nan"), 0.0);
        assert_eq!(number("-"), 0.0);
    }
}
