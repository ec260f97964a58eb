//! A bar of parts.

use maud::{Markup, html};

/// A part of a bar.
#[derive(Debug, Clone)]
pub struct Part {
    /// How it is painted: a class of the page's style.
    pub class: &'static str,
    /// What it is, for people.
    pub label: String,
    /// How much.
    pub value: u64,
}

/// How wide a bar is, in its own units.
const WIDTH: u64 = 1000;

/// Parts of a total beside each other. What is missing to the total is left empty.
pub fn bar(parts: &[Part], total: u64) -> Markup {
    let sum = parts.iter().map(|it| u128::from(it.value)).sum::<u128>();
    let total = u128::from(total).max(sum).max(1);
    let scaled = |value: u128| (value * u128::from(WIDTH) / total) as u64;
    let mut at = 0;
    let places = parts.iter().filter(|it| it.value > 0).map(|part| {
        let from = scaled(at);
        at += u128::from(part.value);
        // What is there at all can be seen.
        (part, from, (scaled(at) - from).max(2))
    });
    let labels: Vec<&str> = parts.iter().map(|it| it.label.as_str()).collect();
    html! {
        svg.bar viewBox="0 0 1000 12" preserveAspectRatio="none" role="img" aria-label=(labels.join(", ")) {
            rect.rest x="0" y="0" width="1000" height="12" {}
            @for (part, from, width) in places {
                rect class=(part.class) x=(from) y="0" width=(width) height="12" {
                    title { (part.label) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(value: u64) -> Part {
        Part {
            class: "run",
            label: format!("<{value}>"),
            value,
        }
    }

    #[test]
    fn parts_lie_beside_each_other_and_are_named() {
        let html = bar(&[part(1), part(0), part(3)], 8).into_string();
        assert!(html.contains(r#"x="0" y="0" width="125""#), "{html}");
        assert!(html.contains(r#"x="125" y="0" width="375""#), "{html}");
        assert!(
            html.contains("&lt;3&gt;") && !html.contains("<3>"),
            "{html}"
        );
        // More than there is, and as much as there can be.
        bar(&[part(u64::MAX), part(u64::MAX)], 1);
        bar(&[], 0);
    }
}
