//! Lines over the last minutes.

use std::fmt::Write as _;

use maud::{Markup, html};

/// A line.
#[derive(Debug, Clone)]
pub struct Line {
    /// How it is painted: a class of the page's style.
    pub class: &'static str,
    /// What it is, for people.
    pub label: String,
    /// Its points: how many seconds ago, and how much.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 80.0;

/// Lines over the last `span` seconds, from nothing to the largest value of all, or to `least_top` if that is more.
pub fn lines(title: &str, lines: &[Line], span: f64, least_top: f64) -> Markup {
    let values = lines.iter().flat_map(|it| &it.points).map(|it| it.1);
    let top = values.fold(least_top, f64::max).max(f64::MIN_POSITIVE);
    let path = |line: &Line| {
        let mut path = String::new();
        for (at, (ago, value)) in line.points.iter().enumerate() {
            let x = WIDTH - ago / span * WIDTH;
            let y = HEIGHT - 2.0 - value / top * (HEIGHT - 4.0);
            let letter = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{x:.1} {y:.1}");
        }
        path
    };
    let now = |line: &Line| line.points.last().map_or(0.0, |it| it.1);
    html! {
        figure.lines {
            svg viewBox="0 0 600 80" preserveAspectRatio="none" role="img" {
                title { (title) }
                desc {
                    "Over the last " (format!("{:.0}", span / 60.0)) " minutes, from 0 to " (format!("{top:.2}")) "."
                    @for line in lines { " " (line.label) " is at " (format!("{:.2}", now(line))) " now." }
                }
                @for line in lines {
                    path class={ "line " (line.class) } d=(path(line)) {}
                }
            }
            figcaption {
                (title) ", the last " (format!("{:.0}", span / 60.0)) " minutes; the top is " (format!("{top:.2}"))
                ul.legend {
                    @for line in lines {
                        li { span class={ "key " (line.class) } {} " " (line.label) " " (format!("{:.2}", now(line))) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_the_right_edge_and_stay_inside() {
        let line = Line {
            class: "good",
            label: "finished".into(),
            points: vec![(300.0, 0.0), (0.0, 10.0)],
        };
        let html = lines("Tasks a second", &[line], 300.0, 1.0).into_string();
        assert!(html.contains("M0.0 78.0L600.0 2.0"), "{html}");
        let none = lines("Tasks a second", &[], 300.0, 1.0).into_string();
        assert!(none.contains("<title>Tasks a second</title>"), "{none}");
    }
}
