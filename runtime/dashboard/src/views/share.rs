//! What is seen of tenants again and again: who has which share, and how many tasks have ended.

use std::time::Instant;

use maud::Markup;
use wasmrun_client::wire::{List, ShareRow, TenantRow, What};

use crate::data::{AskError, KEPT, Page, Sample, Source};
use crate::picture::{Line, lines};

/// How many tenants have lines.
const MOST_LINES: usize = 8;
/// How lines are painted, one after the other.
const PAINTS: [&str; MOST_LINES] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];

/// How something is painted that is one of several.
pub fn paint(at: usize) -> &'static str {
    PAINTS[at % PAINTS.len()]
}

/// What tenants have done at each node, and what they are due.
pub struct Seen {
    /// By node.
    pub tenants: Page<TenantRow>,
    /// Of the cluster.
    pub shares: Page<ShareRow>,
}

/// Asks, and remembers the answer for the lines.
pub async fn see(source: &Source) -> Result<Seen, AskError> {
    let tenants = source.rows::<TenantRow>(List::of(What::Tenants)).await?;
    let shares = source.rows::<ShareRow>(List::of(What::Shares)).await?;
    let sum = |count: fn(&TenantRow) -> u64| tenants.rows.iter().map(count).sum::<u64>();
    let of_tenants = shares.rows.iter();
    let of_tenants = of_tenants.map(|row| (row.name.clone(), number(&row.share)));
    source.samples.lock().push(Sample {
        at: Instant::now(),
        finished: sum(|row| row.finished),
        failed: sum(|row| row.failed),
        shares: of_tenants.collect(),
    });
    Ok(Seen { tenants, shares })
}

/// A share that is text.
pub fn number(share: &str) -> f64 {
    let percent = share.strip_suffix('%').map(str::trim);
    let number = percent.unwrap_or(share).parse::<f64>().unwrap_or(0.0);
    let number = if percent.is_some() {
        number / 100.0
    } else {
        number
    };
    if number.is_finite() { number } else { 0.0 }
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

/// What share each tenant had.
pub fn shares(source: &Source) -> Markup {
    let shares = source.samples.lock().shares();
    let all = shares.into_iter().take(MOST_LINES).enumerate();
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
        assert_eq!(number("25 %"), 0.25);
        assert_eq!(number("nan"), 0.0);
        assert_eq!(number("-"), 0.0);
    }
}
