//! Pictures: graphs, timelines, lines and bars, as SVG with the text that says the same.
//!
//! Must not: know tasks or nodes, ask the node, use styles in the markup (the page's policy forbids them: only classes and
//! attributes of SVG are allowed).

mod bar;
mod graph;
mod layout;
mod line;
mod timeline;

pub use self::bar::{Part, bar};
pub use self::graph::{Edge, Node, graph};
pub use self::line::{Line, lines};
pub use self::timeline::{Lane, Phase, Span, timeline};

/// The first characters of a text, with a sign where there are more.
fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
