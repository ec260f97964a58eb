//! The names in notes of what a command has ended or revoked: whole ids and names, also where the beginning of an id was
//! typed.
//!
//! Must not: fail. What no node knows is named as it was typed.

use std::collections::BTreeMap;

use wasmrun_client::Described;
use wasmrun_client::blocking::Client;
use wasmrun_client::wire::{List, Rows};

use crate::printer::Printer;

/// What a text stands for, to be asked before that ends. `None` where no notes are shown.
pub fn described(client: &Client, text: &str, printer: &Printer) -> Option<Described> {
    match printer.is_quiet() {
        true => None,
        false => client.wait(client.describe(text)).ok(),
    }
}

/// That it was ended.
pub fn ended(what: Option<&Described>, text: &str) -> String {
    match what {
        Some(Described::Task(task)) => {
            let (id, name) = (&task.row.id, &task.row.name);
            format!("task {id} ({name}) is cancelled, and all that it has started")
        }
        Some(Described::Job(job)) => format!(
            "all tasks of job {} that had not ended are cancelled",
            job.row.id
        ),
        Some(Described::Actor(actor)) => {
            let id = actor.row.id.to_string();
            format!("actor {} is ended", shown(&id, actor.row.name.as_deref()))
        }
        Some(Described::Object(_)) | None => format!("{text} is cancelled"),
    }
}

/// A thing of a list, of which the name, the id or the beginning of the id was given.
pub fn named(client: &Client, list: List, text: &str, printer: &Printer) -> String {
    if printer.is_quiet() {
        return text.to_owned();
    }
    let listed = client.wait(client.list(list));
    listed.map_or_else(|_| text.to_owned(), |it| called(text, &ids(it.rows)))
}

/// Ids, and names of those that have one.
fn ids(rows: Rows) -> BTreeMap<String, Option<String>> {
    match rows {
        Rows::Objects(rows) => {
            let kept = rows.into_iter().filter(|row| row.is_kept);
            kept.map(|row| (row.id.to_string(), None)).collect()
        }
        Rows::Groups(rows) => {
            let rows = rows.into_iter();
            rows.map(|row| (row.id.to_string(), row.name)).collect()
        }
        Rows::Members(rows) => {
            let rows = rows.into_iter();
            rows.map(|row| (row.id.to_string(), Some(row.name)))
                .collect()
        }
        Rows::Tokens(rows) => rows.into_iter().map(|row| (row.id, None)).collect(),
        _ => BTreeMap::new(),
    }
}

/// The only one that is called so, or else whose id begins so.
fn called(text: &str, all: &BTreeMap<String, Option<String>>) -> String {
    let is_called = |(_, name): &(&String, &Option<String>)| name.as_deref() == Some(text);
    let mut fit: Vec<_> = all.iter().filter(is_called).collect();
    if fit.is_empty() {
        fit = all.iter().filter(|(id, _)| id.starts_with(text)).collect();
    }
    match fit[..] {
        [(id, name)] => shown(id, name.as_deref()),
        _ => text.to_owned(),
    }
}

fn shown(id: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{name} ({id})"),
        None => id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_before_ids_and_the_beginning_of_several_stays_as_it_is() {
        let all = [("ab12", Some("cd")), ("ab34", None), ("cd56", None)];
        let all = all.map(|(id, name)| (id.to_owned(), name.map(ToOwned::to_owned)));
        let all = BTreeMap::from(all);
        for (text, expected) in [
            ("cd", "cd (ab12)"),
            ("ab1", "cd (ab12)"),
            ("ab34", "ab34"),
            ("c", "cd56"),
            ("ab", "ab"),
            ("ef", "ef"),
        ] {
            assert_eq!(called(text, &all), expected);
        }
    }
}
