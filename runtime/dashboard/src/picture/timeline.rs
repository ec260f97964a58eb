//! Who ran when: a lane for each guest thread of each node, and a bar for each attempt.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};
use wasmrun_model::units;

use super::clipped;

/// A lane: a guest thread of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// The node.
    pub node: String,
    /// The thread.
    pub thread: u16,
}

/// A part of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// How it is painted: a class of the page's style.
    pub class: &'static str,
    /// What it is, for people.
    pub label: &'static str,
    /// How long, in microseconds.
    pub us: u64,
}

/// A bar: something that ran.
#[derive(Debug, Clone)]
pub struct Span {
    /// Where.
    pub lane: Lane,
    /// What, for people.
    pub label: String,
    /// Where a page about it is.
    pub href: String,
    /// Whether it ended badly.
    pub is_failed: bool,
    /// From when, in microseconds since 1970.
    pub start_us: u64,
    /// Its parts, one after the other.
    pub phases: Vec<Phase>,
}

impl Span {
    fn len_us(&self) -> u64 {
        let lengths = self.phases.iter().map(|it| it.us);
        lengths.fold(0, u64::saturating_add)
    }

    fn end_us(&self) -> u64 {
        self.start_us.saturating_add(self.len_us())
    }
}

const WIDTH: u64 = 900;
const NAMES: u64 = 130;
const ROW: u64 = 20;
const BAR: u64 = 14;
const TOP: u64 = 22;
/// How many rows there are at most: what runs beside each other on one thread has a row each.
const MOST_ROWS: usize = 120;

/// The timeline, with a legend.
pub fn timeline(title: &str, spans: &[Span]) -> Markup {
    let start = spans.iter().map(|it| it.start_us).min().unwrap_or(0);
    let end = spans.iter().map(Span::end_us).max().unwrap_or(0);
    let length = end.saturating_sub(start).max(1);
    let x = |us: u64| {
        let scaled = u128::from(us) * u128::from(WIDTH) / u128::from(length);
        NAMES + scaled as u64
    };
    let (rows, left_out) = rows(spans);
    let height = TOP + ROW * rows.len() as u64 + 4;
    let width = NAMES + WIDTH + 10;
    let marks = (0..=4).map(|it| length / 4 * it);
    html! {
        figure.timeline {
            div.scroll tabindex="0" role="region" aria-label=(title) {
                svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="group" {
                    title { (title) }
                    desc {
                        (spans.len()) " attempts in " (took(length)) ". The table of attempts says the same in words."
                    }
                    @for mark in marks {
                        path.mark d={ "M" (x(mark)) " 16V" (height) } {}
                        text.small x=(x(mark)) y="11" text-anchor=(if mark == 0 { "start" } else { "end" }) {
                            (took(mark))
                        }
                    }
                    @for (at, row) in rows.iter().enumerate() {
                        @let y = TOP + ROW * at as u64;
                        text.small x="0" y=(y + 11) {
                            (clipped(&row.lane.node, 14)) " · " (row.lane.thread)
                        }
                        @for span in &row.spans { (drawn(span, y, start, &x)) }
                    }
                }
            }
            figcaption {
                @if left_out > 0 { p { (left_out) " more are left out; the table has them." } }
                (legend(spans))
            }
        }
    }
}

/// What the colours mean, of those that are there.
fn legend(spans: &[Span]) -> Markup {
    let mut phases: Vec<Phase> = Vec::new();
    for phase in spans.iter().flat_map(|it| &it.phases) {
        if !phases.iter().any(|it| it.class == phase.class) {
            phases.push(*phase);
        }
    }
    html! {
        ul.legend {
            @for phase in phases {
                li { span class={ "key " (phase.class) } {} " " (phase.label) }
            }
        }
    }
}

/// A row: what ran on one thread, one after the other.
struct Row<'a> {
    lane: &'a Lane,
    spans: Vec<&'a Span>,
}

/// The rows, and how many spans have none.
fn rows(spans: &[Span]) -> (Vec<Row<'_>>, usize) {
    let mut lanes = BTreeMap::<&Lane, Vec<&Span>>::new();
    for span in spans {
        lanes.entry(&span.lane).or_default().push(span);
    }
    let (mut rows, mut left_out) = (Vec::<Row<'_>>::new(), 0);
    for (lane, mut spans) in lanes {
        spans.sort_by_key(|it| it.start_us);
        let first = rows.len();
        for span in spans {
            let ends = |row: &Row<'_>| row.spans.last().map_or(0, |it| it.end_us());
            match rows[first..]
                .iter()
                .position(|row| ends(row) <= span.start_us)
            {
                Some(at) => rows[first + at].spans.push(span),
                None if rows.len() < MOST_ROWS => rows.push(Row {
                    lane,
                    spans: vec![span],
                }),
                None => left_out += 1,
            }
        }
    }
    (rows, left_out)
}

fn drawn(span: &Span, y: u64, start: u64, x: &impl Fn(u64) -> u64) -> Markup {
    let mut at = span.start_us - start;
    let parts = span.phases.iter().filter(|it| it.us > 0).map(|phase| {
        let from = x(at);
        at = at.saturating_add(phase.us);
        (phase.class, from, (x(at) - from).max(1))
    });
    let said = span.phases.iter().filter(|it| it.us > 0);
    let said: Vec<String> = said
        .map(|it| format!("{} {}", it.label, took(it.us)))
        .collect();
    let how = if span.is_failed { ", failed" } else { "" };
    html! {
        a href=(span.href) {
            g class={ "span" (if span.is_failed { " bad" } else { "" }) } {
                title { (span.label) (how) ": " (said.join(", ")) }
                @for (class, from, width) in parts {
                    rect class=(class) x=(from) y=(y) width=(width) height=(BAR) {}
                }
                @if span.is_failed { text.small x=(x(span.start_us - start)) y=(y + 11) { "✗" } }
            }
        }
    }
}

/// A time for people.
fn took(us: u64) -> String {
    units::duration(Duration::from_micros(us))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(thread: u16, start_us: u64, us: u64) -> Span {
        Span {
            lane: Lane {
                node: "n1".into(),
                thread,
            },
            label: "<b>".into(),
            href: "/tasks/00".into(),
            is_failed: start_us == 0,
            start_us: 1_000_000 + start_us,
            phases: vec![Phase {
                class: "running",
                label: "ran",
                us,
            }],
        }
    }

    #[test]
    fn what_overlaps_on_a_thread_has_rows_of_its_own() {
        let spans = [
            span(0, 0, 10),
            span(0, 5, 10),
            span(0, 20, 5),
            span(1, 0, 25),
        ];
        let (rows, left_out) = rows(&spans);
        let lengths: Vec<usize> = rows.iter().map(|it| it.spans.len()).collect();
        assert_eq!((lengths, left_out), (vec![2, 1, 1], 0));
        let html = timeline("Timeline", &spans).into_string();
        assert!(html.contains("&lt;b&gt;, failed: ran 10µs"), "{html}");
        assert!(!html.contains("<b>"), "{html}");
        // From the start to the end of all.
        assert!(html.contains(r#"x="130" y="62" width="900""#), "{html}");
    }

    #[test]
    fn times_are_written_as_elsewhere() {
        let html = timeline("Timeline", &[span(0, 0, 12_340)]).into_string();
        assert!(html.contains("ran 12.34ms"), "{html}");
    }

    #[test]
    fn too_many_rows_are_counted() {
        let spans: Vec<Span> = (0..200).map(|at| span(0, at, 1000)).collect();
        assert_eq!(rows(&spans).1, 200 - MOST_ROWS);
        timeline("Timeline", &[]);
    }
}
