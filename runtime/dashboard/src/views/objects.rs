//! Objects: how large they are, where, and who needs one of them.

use std::collections::BTreeMap;

use maud::{Markup, html};
use wasmrun_client::Described;
use wasmrun_client::wire::{Holder, List, ObjectDetail, ObjectRow, What};
use wasmrun_model::id::ObjectId;
use wasmrun_model::units::bytes;

use super::Fragment;
use super::parts::{self, Column};
use crate::data::{AskError, Source};

/// How many objects are shown: the largest.
const MOST: usize = 500;

pub async fn render(source: &Source) -> Result<Fragment, AskError> {
    let page = source.rows::<ObjectRow>(List::of(What::Objects)).await?;
    let mut objects = BTreeMap::<ObjectId, Vec<&ObjectRow>>::new();
    for row in &page.rows {
        objects.entry(row.id).or_default().push(row);
    }
    let count = objects.len();
    let mut objects: Vec<Copies<'_>> = objects.into_iter().collect();
    objects.sort_by_key(|(_, copies)| std::cmp::Reverse(copies[0].size_bytes));
    objects.truncate(MOST);
    let body = html! {
        (parts::silent(&page.silent))
        @if objects.is_empty() {
            (parts::empty("There are no objects that are kept or in the store. This stores one:", "wasmrun put FILE"))
        } @else {
            p { (count) " objects" @if count > MOST { ", of which the " (MOST) " largest are shown" } "." }
            (listed(&objects))
        }
    };
    Ok(Fragment::new("Objects", body))
}

/// An object and its copies.
type Copies<'a> = (ObjectId, Vec<&'a ObjectRow>);

fn listed(objects: &[Copies<'_>]) -> Markup {
    let columns: &[Column<Copies<'_>>] = &[
        ("object", |(id, _)| parts::object(id)),
        ("size", |(_, copies)| {
            parts::text(bytes(copies[0].size_bytes))
        }),
        ("where", |(_, copies)| {
            let places = copies.iter();
            let places = places.map(|it| format!("{} ({})", it.node, it.place));
            parts::text(places.collect::<Vec<_>>().join(", "))
        }),
        ("copies", |(_, copies)| parts::text(copies.len())),
        ("tenant", |(_, copies)| parts::text(&copies[0].tenant)),
        ("kept", |(_, copies)| {
            match copies.iter().any(|it| it.is_kept) {
                true => parts::state_as("kept", "good"),
                false => parts::text("while it is used"),
            }
        }),
        ("made by", |(id, _)| parts::task(&id.task())),
    ];
    parts::table(
        "Objects, the largest first",
        objects,
        |(id, _)| *id,
        columns,
    )
}

pub async fn one(id: &str, source: &Source) -> Result<Fragment, AskError> {
    let Described::Object(detail) = source.describe(What::Objects, id).await? else {
        return Err(AskError::Missing("object"));
    };
    Ok(Fragment::new("Object", shown(&detail)))
}

fn shown(detail: &ObjectDetail) -> Markup {
    let row = &detail.copies[0];
    html! {
        (parts::silent(&detail.silent))
        (parts::facts(vec![
            ("id", html! { code { (row.id.to_string()) } }),
            ("size", parts::text(bytes(row.size_bytes))),
            ("tenant", parts::text(&row.tenant)),
            ("kept until it is deleted", parts::yes(detail.copies.iter().any(|it| it.is_kept))),
            ("made by", parts::task(&row.id.task())),
        ]))
        section aria-labelledby="h-holders" {
            h2 #h-holders { "Who needs it" }
            @if detail.holders.is_empty() {
                (parts::empty("Nobody is known who does: what runs may, or it is on its way.", ""))
            } @else {
                (holders(&detail.holders))
            }
            @if detail.more_holders > 0 { p { "And " (detail.more_holders) " more." } }
        }
        section aria-labelledby="h-copies" { h2 #h-copies { "Copies" } (copies(&detail.copies)) }
    }
}

fn holders(holders: &[Holder]) -> Markup {
    let columns: &[Column<Holder>] = &[
        ("who", |it| parts::text(&it.kind)),
        ("id", |it| match (&*it.kind, &it.id) {
            (_, None) => parts::text("-"),
            ("driver", Some(id)) => parts::linked("jobs", id),
            ("task", Some(id)) => parts::linked("tasks", id),
            ("actor", Some(id)) => parts::linked("actors", id),
            ("object", Some(id)) => parts::linked("objects", id),
            (_, Some(id)) => parts::id(id),
        }),
        ("name", |it| parts::text(&it.name)),
        ("state", |it| match &it.state {
            Some(state) => parts::state(state),
            None => parts::text("-"),
        }),
        ("how", |it| parts::text(&it.how)),
        ("says node", |it| parts::text(&it.node)),
    ];
    let id = |it: &Holder| {
        let id = it.id.as_deref().unwrap_or_default();
        format!("{}-{id}-{}-{}", it.kind, it.how, it.node)
    };
    parts::table("Who needs it", holders, id, columns)
}

fn copies(copies: &[ObjectRow]) -> Markup {
    let columns: &[Column<ObjectRow>] = &[
        ("node", |it| parts::text(&it.node)),
        ("where", |it| parts::text(&it.place)),
        ("copy", |it| parts::or_dash(it.copy.as_deref())),
        ("references", |it| parts::or_dash(it.references)),
        ("read by", |it| parts::or_dash(it.pins)),
    ];
    parts::table("Copies", copies, |it| it.node.clone(), columns)
}

#[cfg(test)]
mod tests {
    use wasmrun_model::id::TaskId;

    use super::*;

    #[test]
    fn everything_is_text() {
        let bad = "<script>";
        let detail = ObjectDetail {
            copies: vec![ObjectRow {
                id: ObjectId::of(TaskId::from_bytes([1; 16]), 0),
                size_bytes: 1,
                place: "memory".into(),
                tenant: Default::default(),
                is_kept: true,
                node: bad.into(),
                copy: Some("primary".into()),
                references: Some(1),
                pins: Some(0),
            }],
            holders: vec![Holder {
                kind: "task".into(),
                id: Some("00ff".into()),
                name: bad.into(),
                state: Some("ready".into()),
                how: "argument".into(),
                node: "n1".into(),
            }],
            more_holders: 3,
            silent: Vec::new(),
        };
        let html = shown(&detail).into_string();
        assert!(!html.contains(bad), "{html}");
        assert!(html.contains("href=\"/tasks/00ff\""), "{html}");
        assert!(html.contains("And 3 more."), "{html}");
    }
}
