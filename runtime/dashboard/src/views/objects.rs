//! Objects: how large they are, and where.

use std::collections::BTreeMap;

use maud::{Markup, html};
use wasmrun_client::wire::{List, ObjectRow, What};
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
        ("object", |(id, _)| parts::id(&id.to_string())),
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
