//! Markup that several views share.

use maud::{Markup, html};
use wasmrun_client::wire::Silent;
use wasmrun_model::id::{ActorId, DriverId, ObjectId, TaskId};

/// How many characters of an id are shown; its title has the whole id.
const SHOWN: usize = 8;

/// How a state is painted, by what it means.
pub fn class_of(state: &str) -> &'static str {
    match state {
        "finished" | "alive" => "good",
        "failed" | "dead" | "infeasible" | "unreachable" | "unowned" => "bad",
        "running" => "run",
        "blocked" | "draining" | "retried" | "unconfirmed" => "warn",
        "cancelled" | "ended" => "off",
        _ => "wait",
    }
}

/// A state: a sign and a word, so that its colour is not all there is.
pub fn state(state: &str) -> Markup {
    state_as(state, class_of(state))
}

/// A state that is painted as this.
pub fn state_as(state: &str, class: &str) -> Markup {
    let sign = match class {
        "good" => "✓",
        "bad" => "✗",
        "run" => "▶",
        "warn" => "‖",
        "off" => "⊘",
        _ => "…",
    };
    html! { span class={ "state " (class) } { span aria-hidden="true" { (sign) } " " (state) } }
}

/// A link to the view of a thing that has this id.
pub fn linked(path: &str, id: &str) -> Markup {
    let short = id.get(..SHOWN).unwrap_or(id);
    html! { a.id href={ "/" (path) "/" (id) } title=(id) { (short) } }
}

/// A link to a task.
pub fn task(id: &TaskId) -> Markup {
    linked("tasks", &id.to_string())
}

/// A link to a job.
pub fn job(id: &DriverId) -> Markup {
    linked("jobs", &id.to_string())
}

/// A link to an actor.
pub fn actor(id: &ActorId) -> Markup {
    linked("actors", &id.to_string())
}

/// A link to an object.
pub fn object(id: &ObjectId) -> Markup {
    linked("objects", &id.to_string())
}

/// An id that has no page.
pub fn id(id: &str) -> Markup {
    let short = id.get(..SHOWN).unwrap_or(id);
    html! { span.id title=(id) { (short) } }
}

/// A column of a table: its name, and its cell for a row.
pub type Column<T> = (&'static str, fn(&T) -> Markup);

/// A table. `id` tells a row from all others of the view. On a narrow screen each row is a card.
pub fn table<T, I: ToString>(
    caption: &str,
    rows: &[T],
    id: impl Fn(&T) -> I,
    columns: &[Column<T>],
) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead {
                    tr { @for (name, _) in columns { th scope="col" { (name) } } }
                }
                tbody {
                    @for row in rows {
                        tr id={ "row-" (id(row).to_string()) } {
                            @for (name, cell) in columns {
                                td data-label=(name) { (cell(row)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Text in a cell.
pub fn text(text: impl ToString) -> Markup {
    let text = text.to_string();
    html! { (text) }
}

/// A value in a cell, or a dash.
pub fn or_dash(value: Option<impl ToString>) -> Markup {
    value.map_or_else(|| text("-"), text)
}

/// Yes or no, in a cell.
pub fn yes(is_so: bool) -> Markup {
    text(if is_so { "yes" } else { "no" })
}

/// Facts about one thing, each with its name.
pub fn facts(facts: Vec<(&str, Markup)>) -> Markup {
    html! {
        dl.facts {
            @for (name, fact) in facts {
                div { dt { (name) } dd { (fact) } }
            }
        }
    }
}

/// Says that there is nothing, why, and which command changes that.
pub fn empty(why: &str, command: &str) -> Markup {
    html! { p.empty { (why) " " @if !command.is_empty() { code { (command) } } } }
}

/// The nodes that have not answered.
pub fn silent(silent: &[Silent]) -> Markup {
    html! {
        @for it in silent {
            p.notice.warn { "Node " (it.node) " did not answer, so what it alone knows is missing: " (it.why) }
        }
    }
}

/// A button that changes something, by a form that needs no script.
pub fn button(path: &str, label: &str) -> Markup {
    html! {
        form.action method="post" action=(path) { button type="submit" { (label) } }
    }
}

/// Text as a program wrote it. Where the browser has a script, it follows the end.
pub fn output(id: &str, text: &str) -> Markup {
    html! { pre.output #(id) data-follow="end" tabindex="0" { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_guests_have_named_is_text_everywhere() {
        let bad = "<script>alert(1)</script>\"'";
        let all = html! {
            (state(bad))
            (text(bad))
            (id(bad))
            (table(bad, &[bad], |it| *it, &[("a", |it| text(*it))]))
            (facts(vec![("a", text(bad))]))
            (output("o", bad))
            (silent(&[Silent { node: bad.into(), why: bad.into() }]))
        };
        let all = all.into_string();
        assert!(!all.contains("<script"), "{all}");
        assert!(!all.contains("\"'\""), "{all}");
    }

    #[test]
    fn states_are_words_with_signs() {
        let html = state("failed").into_string();
        assert!(html.contains("✗") && html.contains("failed"), "{html}");
    }
}
