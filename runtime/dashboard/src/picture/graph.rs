//! A graph of tasks, from left to right, as the papers on Ray draw them.

use maud::{Markup, html};
use wasmrun_client::graph::EdgeKind;

use super::clipped;
use super::layout::{Place, layout};

/// A node of a graph: one task, or several that are alike.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it is called.
    pub label: String,
    /// How it stands, for people.
    pub state: String,
    /// How it is painted: a class of the page's style.
    pub class: &'static str,
    /// Where a page about it is.
    pub href: Option<String>,
    /// How many it stands for.
    pub count: usize,
}

/// An edge between two nodes, by their places in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// From which.
    pub from: usize,
    /// To which.
    pub to: usize,
    /// Why.
    pub kind: EdgeKind,
}

const WIDTH: usize = 150;
const HEIGHT: usize = 30;
const ACROSS: usize = 60;
const BETWEEN: usize = 12;
const MARGIN: usize = 12;
/// How many characters of a label there is room for.
const LETTERS: usize = 18;

/// The graph, with a legend.
pub fn graph(title: &str, nodes: &[Node], edges: &[Edge]) -> Markup {
    let pairs: Vec<(usize, usize)> = edges.iter().map(|it| (it.from, it.to)).collect();
    let places = layout(nodes.len(), &pairs);
    let layers = places.iter().map(|it| it.layer + 1).max().unwrap_or(0);
    let rows = places.iter().map(|it| it.row + 1).max().unwrap_or(0);
    let width = 2 * MARGIN + layers * (WIDTH + ACROSS);
    let height = 2 * MARGIN + rows * (HEIGHT + BETWEEN);
    html! {
        figure.graph {
            div.scroll tabindex="0" role="region" aria-label=(title) {
                svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="group" {
                    title { (title) }
                    desc {
                        (nodes.len()) " boxes and " (edges.len()) " arrows. The table of tasks says the same in words."
                    }
                    @for edge in edges {
                        path class={ "edge " (edge.kind.name()) } d=(curve(places[edge.from], places[edge.to])) {}
                    }
                    @for (node, place) in nodes.iter().zip(&places) { (drawn(node, *place)) }
                }
            }
            figcaption {
                ul.legend {
                    li { (sample(EdgeKind::Data)) " reads what the other made" }
                    li { (sample(EdgeKind::Control)) " was started by the other" }
                    li { (sample(EdgeKind::State)) " is the next call of one actor" }
                }
            }
        }
    }
}

fn sample(kind: EdgeKind) -> Markup {
    html! {
        svg.key viewBox="0 0 30 8" width="30" height="8" aria-hidden="true" {
            path class={ "edge " (kind.name()) } d="M0 4L30 4" {}
        }
    }
}

fn corner(place: Place) -> (usize, usize) {
    (
        MARGIN + place.layer * (WIDTH + ACROSS),
        MARGIN + place.row * (HEIGHT + BETWEEN),
    )
}

/// From the right side of one to the left side of the other.
fn curve(from: Place, to: Place) -> String {
    let ((x, y), (to_x, to_y)) = (corner(from), corner(to));
    let (x, y, to_y) = (x + WIDTH, y + HEIGHT / 2, to_y + HEIGHT / 2);
    let bend = ACROSS / 2;
    format!(
        "M{x} {y}C{} {y} {} {to_y} {to_x} {to_y}",
        x + bend,
        to_x.saturating_sub(bend)
    )
}

fn drawn(node: &Node, place: Place) -> Markup {
    let (x, y) = corner(place);
    let label = match node.count {
        1 => clipped(&node.label, LETTERS),
        count => format!("{} ×{count}", clipped(&node.label, LETTERS - 6)),
    };
    let inside = html! {
        title { (node.label) ", " (node.state) @if node.count > 1 { ", " (node.count) " tasks" } }
        rect x=(x) y=(y) width=(WIDTH) height=(HEIGHT) rx="4" {}
        text x=(x + 8) y=(y + 13) { (label) }
        text.small x=(x + 8) y=(y + 25) { (node.state) }
    };
    html! {
        g class={ "node " (node.class) } {
            @if let Some(href) = &node.href { a href=(href) { (inside) } } @else { (inside) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(label: &str, count: usize) -> Node {
        Node {
            label: label.into(),
            state: "running".into(),
            class: "run",
            href: (count == 1).then(|| "/tasks/00".into()),
            count,
        }
    }

    #[test]
    fn boxes_are_linked_and_what_guests_have_named_is_text() {
        let edge = Edge {
            from: 0,
            to: 1,
            kind: EdgeKind::State,
        };
        let html = graph("Graph", &[node("<script>x", 1), node("many", 7)], &[edge]);
        let html = html.into_string();
        assert!(!html.contains("<script>"), "{html}");
        assert!(html.contains(r#"<a href="/tasks/00">"#), "{html}");
        assert!(
            html.contains("many ×7") && html.contains("edge state"),
            "{html}"
        );
        // From the right side of the first box to the left side of the second one.
        assert!(html.contains("M162 27C192 27 192 27 222 27"), "{html}");
    }

    #[test]
    fn long_names_are_clipped_at_characters() {
        let html = graph("Graph", &[node(&"ä".repeat(100), 1)], &[]).into_string();
        assert!(
            html.contains(&format!("{}…", "ä".repeat(LETTERS))),
            "{html}"
        );
    }
}
